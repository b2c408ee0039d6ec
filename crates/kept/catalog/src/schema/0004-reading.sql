-- Bytes that readers took of an object from a site. Half of them is forgotten in each half-life; this is what was left at `at_ms`.
CREATE TABLE reading (
    object_id BIGINT NOT NULL REFERENCES object (id),
    site_id BIGINT NOT NULL REFERENCES site (id),
    read_bytes BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (object_id, site_id)
) {by_key};
