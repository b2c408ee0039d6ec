-- The last change of versions, in a text that something outside of the database knows, too, so that a database which went back in time
-- is seen to have done so. One row at most.
CREATE TABLE last_change (
    mark {text} NOT NULL PRIMARY KEY
) {by_key};
-- 1: the catalog went back in time, and the site may have written down versions that it does not know.
ALTER TABLE site ADD COLUMN may_know_more BIGINT NOT NULL DEFAULT 0;
