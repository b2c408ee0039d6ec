-- A number or a moment as a text whose order by bytes is its own order (`exact.rs`), in place of one that was rounded. The texts of the
-- tags stay, and what they are is read from them once more.
DROP INDEX tag_number;
ALTER TABLE tag DROP COLUMN number;
ALTER TABLE tag ADD COLUMN ordinal {text};
UPDATE tag SET kind = 'text';
CREATE INDEX tag_ordinal ON tag (name_id, kind, ordinal, set_id) WHERE ordinal IS NOT NULL;
-- The site that was away when this copy was made in place of its one; the copy goes again when that site is back.
ALTER TABLE replica ADD COLUMN instead_of BIGINT REFERENCES site (id);
CREATE INDEX replica_instead ON replica (instead_of) WHERE instead_of IS NOT NULL;
-- Copies that repairs are about to make or make now, so that none makes one that another one makes. A claim that nobody renews ends.
CREATE TABLE making (
    object_id BIGINT NOT NULL REFERENCES object (id),
    site_id BIGINT NOT NULL REFERENCES site (id),
    from_id BIGINT NOT NULL REFERENCES site (id),
    by_whom {text} NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (object_id, site_id)
) {by_key};
