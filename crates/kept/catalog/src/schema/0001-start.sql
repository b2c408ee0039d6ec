-- Where copies are kept: a folder of a machine. Sites of one domain (a room, an institute) may be lost together.
CREATE TABLE site (
    id {key},
    name {text} NOT NULL UNIQUE,
    address {text} NOT NULL,
    domain {text} NOT NULL,
    state {text} NOT NULL,
    keep_bytes BIGINT,
    added_ms BIGINT NOT NULL,
    seen_ms BIGINT
);

-- A data set: what its label, owner and tags stand for. Its files are those of its newest committed version.
CREATE TABLE data_set (
    id {key},
    label {text} NOT NULL UNIQUE,
    owner {text} NOT NULL,
    created_ms BIGINT NOT NULL,
    copies BIGINT NOT NULL,
    -- The newest committed version, 0: none yet; then nobody but its maker sees it.
    newest BIGINT NOT NULL,
    n_files BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    removed_ms BIGINT
);
CREATE INDEX data_set_owner ON data_set (owner, id);

-- Open: files come in. Committed: never changed again. Removed: as if it had never been, but for the history.
CREATE TABLE version (
    id {key},
    set_id BIGINT NOT NULL REFERENCES data_set (id),
    number BIGINT NOT NULL,
    state {text} NOT NULL,
    created_ms BIGINT NOT NULL,
    committed_ms BIGINT,
    n_files BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    UNIQUE (set_id, number)
);

-- The bytes of files, by digest: equal files of any data sets are one object.
CREATE TABLE object (
    id {key},
    digest {bytes} NOT NULL UNIQUE,
    size_bytes BIGINT NOT NULL
);

CREATE TABLE file (
    version_id BIGINT NOT NULL REFERENCES version (id),
    path {text} NOT NULL,
    object_id BIGINT NOT NULL REFERENCES object (id),
    is_executable BIGINT NOT NULL,
    PRIMARY KEY (version_id, path)
) {by_key};
CREATE INDEX file_object ON file (object_id);

CREATE TABLE replica (
    object_id BIGINT NOT NULL REFERENCES object (id),
    site_id BIGINT NOT NULL REFERENCES site (id),
    state {text} NOT NULL,
    made_ms BIGINT NOT NULL,
    verified_ms BIGINT,
    PRIMARY KEY (object_id, site_id)
) {by_key};
CREATE INDEX replica_site ON replica (site_id, state);

CREATE TABLE tag_name (
    id {key},
    name {text} NOT NULL UNIQUE
);

-- A tag's value as it was written; where it is a number or a date (in seconds since 1970), that, too.
CREATE TABLE tag (
    set_id BIGINT NOT NULL REFERENCES data_set (id),
    name_id BIGINT NOT NULL REFERENCES tag_name (id),
    text {text} NOT NULL,
    kind {text} NOT NULL,
    number {real},
    PRIMARY KEY (set_id, name_id)
) {by_key};
CREATE INDEX tag_text ON tag (name_id, text, set_id);
CREATE INDEX tag_number ON tag (name_id, kind, number, set_id) WHERE number IS NOT NULL;

-- Who may do what with a data set: letters of rights for `user:NAME`, `group:NAME` or `everyone`.
CREATE TABLE acl (
    set_id BIGINT NOT NULL REFERENCES data_set (id),
    subject {text} NOT NULL,
    rights {text} NOT NULL,
    PRIMARY KEY (set_id, subject)
) {by_key};
CREATE INDEX acl_subject ON acl (subject, set_id);

-- What was done, by whom and when; rows are only added.
CREATE TABLE trail (
    id {key},
    at_ms BIGINT NOT NULL,
    caller {text} NOT NULL,
    verb {text} NOT NULL,
    set_id BIGINT REFERENCES data_set (id),
    detail {text} NOT NULL
);
CREATE INDEX trail_set ON trail (set_id, id);
