-- Takes all of it from a role again.
REVOKE ALL ON eyas_schema, site, site_key, member, data_set, version, object, file, replica, tag_name, tag, acl, trail, catalog_id,
    owned, used, quota, reading, making, last_change FROM {role};
REVOKE UPDATE (copies, newest, n_files, size_bytes, removed_ms) ON data_set FROM {role};
REVOKE UPDATE (state, committed_ms, n_files, size_bytes) ON version FROM {role};
REVOKE ALL ON FUNCTION {schema}.eyas_rights(TEXT, BIGINT), {schema}.eyas_rights_of_version(TEXT, BIGINT),
    {schema}.eyas_is_open(BIGINT), {schema}.eyas_has_object(TEXT, BIGINT, TEXT), {schema}.eyas_claim(TEXT, BYTEA) FROM {role};
