-- A number that is another one after each change of a copy and each time that bytes are announced or have come. Who has read a copy
-- says something of it only while it is the same.
ALTER TABLE replica ADD COLUMN mark BIGINT NOT NULL DEFAULT 0;
