-- How many committed versions of data sets of an owner have an object. Each object takes its bytes once per owner.
CREATE TABLE owned (
    owner {text} NOT NULL,
    object_id BIGINT NOT NULL REFERENCES object (id),
    n_versions BIGINT NOT NULL,
    PRIMARY KEY (owner, object_id)
) {by_key};
-- The bytes of all objects that an owner has.
CREATE TABLE used (
    owner {text} NOT NULL PRIMARY KEY,
    used_bytes BIGINT NOT NULL
) {by_key};
-- Most bytes that `user:NAME` may take, or `everyone` who has no row of their own.
CREATE TABLE quota (
    subject {text} NOT NULL PRIMARY KEY,
    allowed_bytes BIGINT NOT NULL
) {by_key};
INSERT INTO owned (owner, object_id, n_versions)
    SELECT s.owner, f.object_id, count(DISTINCT f.version_id) FROM file f
    JOIN version v ON v.id = f.version_id AND v.state = 'committed'
    JOIN data_set s ON s.id = v.set_id
    GROUP BY s.owner, f.object_id;
INSERT INTO used (owner, used_bytes)
    SELECT w.owner, CAST(sum(o.size_bytes) AS BIGINT) FROM owned w JOIN object o ON o.id = w.object_id
    GROUP BY w.owner;
