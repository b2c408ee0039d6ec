-- A site that is a store, which is reached over the network.
ALTER TABLE site ADD COLUMN is_store BIGINT NOT NULL DEFAULT 0;
UPDATE site SET is_store = 1 WHERE join_text IS NOT NULL;
-- How a user reaches a store: a join file with a key of the user's own, which the store knows by its digest. Who keeps the catalog has
-- the store's own key, under the empty name. On a server each role sees the rows of its own name (guards.sql).
CREATE TABLE site_key (
    site_id BIGINT NOT NULL REFERENCES site (id),
    who {text} NOT NULL,
    join_text {text} NOT NULL,
    digest {bytes},
    PRIMARY KEY (site_id, who)
) {by_key};
INSERT INTO site_key (site_id, who, join_text) SELECT id, '', join_text FROM site WHERE join_text IS NOT NULL;
ALTER TABLE site DROP COLUMN join_text;
-- Users of a catalog beside who keeps it; each is a role of the server. Names of groups have a space between them.
CREATE TABLE member (
    name {text} NOT NULL PRIMARY KEY,
    group_names {text} NOT NULL,
    added_ms BIGINT NOT NULL
) {by_key};
-- Objects whose digest a user has said: whoever has had the bytes knows it, and no other user sees it.
CREATE TABLE claim (
    who {text} NOT NULL,
    object_id BIGINT NOT NULL REFERENCES object (id),
    PRIMARY KEY (who, object_id)
) {by_key};
-- Seals have the rights of data sets now, so the next repair looks at all of them.
UPDATE site SET sealed_trail = 0 WHERE EXISTS (SELECT 1 FROM acl);
