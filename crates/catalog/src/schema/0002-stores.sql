-- The join file of a site that is a store elsewhere: how it is reached, and the key to it.
ALTER TABLE site ADD COLUMN join_text {text};
-- The newest row of the trail whose change is in the seals of a site; 0: nobody knows.
ALTER TABLE site ADD COLUMN sealed_trail BIGINT NOT NULL DEFAULT 0;
