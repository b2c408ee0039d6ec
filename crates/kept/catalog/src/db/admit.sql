-- Lets a role use the catalog, within what guards.sql says.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT EXECUTE ON FUNCTION {schema}.eyas_rights(TEXT, BIGINT), {schema}.eyas_rights_of_version(TEXT, BIGINT),
    {schema}.eyas_is_open(BIGINT), {schema}.eyas_has_object(TEXT, BIGINT, TEXT), {schema}.eyas_claim(TEXT, BYTEA) TO {role};
GRANT SELECT ON eyas_schema, site, site_key, member, data_set, version, object, file, replica, tag_name, tag, acl, trail, catalog_id,
    owned, used, quota, reading, making, last_change TO {role};
GRANT INSERT ON data_set, version, object, file, replica, tag_name, tag, acl, trail, owned, used, last_change TO {role};
GRANT UPDATE (copies, newest, n_files, size_bytes, removed_ms) ON data_set TO {role};
GRANT UPDATE (state, committed_ms, n_files, size_bytes) ON version TO {role};
GRANT UPDATE ON replica, tag, owned, used TO {role};
GRANT DELETE ON data_set, version, file, replica, tag, acl, owned, last_change TO {role};
