-- The join file of a site that is a store elsewhere: how it is reached, and the key to it.
ALTER TABLE site ADD COLUMN join_text {text};
-- The newest row of the trail whose change is in the seals of a site; 0: nobody knows.
ALTER TABLE site ADD COLUMN sealed_trail BIGINT NOT NULL DEFAULT 0;
-- The folder that was found at a site, so that another one of its name is not taken for it.
ALTER TABLE site ADD COLUMN folder_id {text};
-- One row: a text that no other catalog has. A site belongs to one catalog, which alone removes what is in it.
CREATE TABLE catalog_id (
    id {text} NOT NULL PRIMARY KEY
) {by_key};
