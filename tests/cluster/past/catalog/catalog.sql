BEGIN TRANSACTION;
CREATE TABLE acl (
    set_id BIGINT NOT NULL REFERENCES data_set (id),
    subject TEXT NOT NULL,
    rights TEXT NOT NULL,
    PRIMARY KEY (set_id, subject)
) WITHOUT ROWID;
CREATE TABLE catalog_id (
    id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;
INSERT INTO "catalog_id" VALUES('d5c9546dc1912d32d065d3c8b4af293b');
CREATE TABLE data_set (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    label TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    copies BIGINT NOT NULL,
    -- The newest committed version, 0: none yet; then nobody but its maker sees it.
    newest BIGINT NOT NULL,
    n_files BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    removed_ms BIGINT
);
INSERT INTO "data_set" VALUES(1,'old','root',1795897306977,1,1,2,9,NULL);
CREATE TABLE eyas_schema (version BIGINT NOT NULL PRIMARY KEY, applied_ms BIGINT NOT NULL) WITHOUT ROWID;
INSERT INTO "eyas_schema" VALUES(1,1795897306937);
INSERT INTO "eyas_schema" VALUES(2,1795897306937);
INSERT INTO "eyas_schema" VALUES(3,1795897306937);
INSERT INTO "eyas_schema" VALUES(4,1795897306937);
INSERT INTO "eyas_schema" VALUES(5,1795897306937);
INSERT INTO "eyas_schema" VALUES(6,1795897306937);
CREATE TABLE file (
    version_id BIGINT NOT NULL REFERENCES version (id),
    path TEXT NOT NULL,
    object_id BIGINT NOT NULL REFERENCES object (id),
    is_executable BIGINT NOT NULL,
    PRIMARY KEY (version_id, path)
) WITHOUT ROWID;
INSERT INTO "file" VALUES(1,'a.txt',1,0);
INSERT INTO "file" VALUES(1,'b.txt',2,0);
CREATE TABLE making (
    object_id BIGINT NOT NULL REFERENCES object (id),
    site_id BIGINT NOT NULL REFERENCES site (id),
    from_id BIGINT NOT NULL REFERENCES site (id),
    by_whom TEXT NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (object_id, site_id)
) WITHOUT ROWID;
CREATE TABLE object (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    size_bytes BIGINT NOT NULL
);
INSERT INTO "object" VALUES(1,X'619354140C6CBD02DBC004C504BBAC11A276F439CB79C5ACE6069D3E7A5400DC',5);
INSERT INTO "object" VALUES(2,X'EF40086AD8A395C7A05B5F70CF2575AD187F637AD813136292CB39610694DB73',4);
CREATE TABLE owned (
    owner TEXT NOT NULL,
    object_id BIGINT NOT NULL REFERENCES object (id),
    n_versions BIGINT NOT NULL,
    PRIMARY KEY (owner, object_id)
) WITHOUT ROWID;
INSERT INTO "owned" VALUES('root',1,1);
INSERT INTO "owned" VALUES('root',2,1);
CREATE TABLE quota (
    subject TEXT NOT NULL PRIMARY KEY,
    allowed_bytes BIGINT NOT NULL
) WITHOUT ROWID;
CREATE TABLE reading (
    object_id BIGINT NOT NULL REFERENCES object (id),
    site_id BIGINT NOT NULL REFERENCES site (id),
    read_bytes BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (object_id, site_id)
) WITHOUT ROWID;
CREATE TABLE replica (
    object_id BIGINT NOT NULL REFERENCES object (id),
    site_id BIGINT NOT NULL REFERENCES site (id),
    state TEXT NOT NULL,
    made_ms BIGINT NOT NULL,
    verified_ms BIGINT, mark BIGINT NOT NULL DEFAULT 0, instead_of BIGINT REFERENCES site (id),
    PRIMARY KEY (object_id, site_id)
) WITHOUT ROWID;
INSERT INTO "replica" VALUES(1,1,'ready',1795897306977,1795897306977,3407999391874708144,NULL);
INSERT INTO "replica" VALUES(2,1,'ready',1795897306977,1795897306977,3407999391874708144,NULL);
CREATE TABLE site (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    address TEXT NOT NULL,
    domain TEXT NOT NULL,
    state TEXT NOT NULL,
    keep_bytes BIGINT,
    added_ms BIGINT NOT NULL,
    seen_ms BIGINT
, join_text TEXT, sealed_trail BIGINT NOT NULL DEFAULT 0, folder_id TEXT);
INSERT INTO "site" VALUES(1,'here','@SITE@','here','up',NULL,1795897306954,1795897306954,NULL,0,'57180bd2abe154fe4c18dd7a85209353');
CREATE TABLE tag (
    set_id BIGINT NOT NULL REFERENCES data_set (id),
    name_id BIGINT NOT NULL REFERENCES tag_name (id),
    text TEXT NOT NULL,
    kind TEXT NOT NULL, ordinal TEXT,
    PRIMARY KEY (set_id, name_id)
) WITHOUT ROWID;
INSERT INTO "tag" VALUES(1,1,'red','text',NULL);
CREATE TABLE tag_name (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE
);
INSERT INTO "tag_name" VALUES(1,'colour');
CREATE TABLE trail (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms BIGINT NOT NULL,
    caller TEXT NOT NULL,
    verb TEXT NOT NULL,
    set_id BIGINT REFERENCES data_set (id),
    detail TEXT NOT NULL
);
INSERT INTO "trail" VALUES(1,1795897306954,'root','site',NULL,'here at @SITE@');
INSERT INTO "trail" VALUES(2,1795897306977,'root','put',1,'version 1: 2 files, 9 bytes');
CREATE TABLE used (
    owner TEXT NOT NULL PRIMARY KEY,
    used_bytes BIGINT NOT NULL
) WITHOUT ROWID;
INSERT INTO "used" VALUES('root',9);
CREATE TABLE version (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    set_id BIGINT NOT NULL REFERENCES data_set (id),
    number BIGINT NOT NULL,
    state TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    committed_ms BIGINT,
    n_files BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    UNIQUE (set_id, number)
);
INSERT INTO "version" VALUES(1,1,1,'committed',1795897306977,1795897306977,2,9);
CREATE INDEX data_set_owner ON data_set (owner, id);
CREATE INDEX file_object ON file (object_id);
CREATE INDEX replica_site ON replica (site_id, state);
CREATE INDEX tag_text ON tag (name_id, text, set_id);
CREATE INDEX acl_subject ON acl (subject, set_id);
CREATE INDEX trail_set ON trail (set_id, id);
CREATE INDEX tag_ordinal ON tag (name_id, kind, ordinal, set_id) WHERE ordinal IS NOT NULL;
CREATE INDEX replica_instead ON replica (instead_of) WHERE instead_of IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('site',1);
INSERT INTO "sqlite_sequence" VALUES('trail',2);
INSERT INTO "sqlite_sequence" VALUES('data_set',1);
INSERT INTO "sqlite_sequence" VALUES('version',1);
INSERT INTO "sqlite_sequence" VALUES('object',2);
INSERT INTO "sqlite_sequence" VALUES('tag_name',1);
COMMIT;
