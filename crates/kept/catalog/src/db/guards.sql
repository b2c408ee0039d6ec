-- What users of a catalog in PostgreSQL may see and change by SQL: run whenever the tables were made or changed. The owner of the tables,
-- who keeps the catalog, is not held by any of it.

-- The rights of a user of a data set, in letters; some may come twice.
CREATE OR REPLACE FUNCTION {schema}.eyas_rights(who TEXT, of_set BIGINT) RETURNS TEXT
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT 1 FROM data_set s WHERE s.id = of_set AND s.owner = who) THEN 'rwlax'
    ELSE coalesce((SELECT string_agg(a.rights, '') FROM acl a WHERE a.set_id = of_set AND (
        a.subject IN ('everyone', 'user:' || who) OR a.subject IN (
            SELECT 'group:' || g.name FROM member m, unnest(string_to_array(m.group_names, ' ')) AS g (name)
            WHERE m.name = who))), '') END
$$;
CREATE OR REPLACE FUNCTION {schema}.eyas_rights_of_version(who TEXT, of_version BIGINT) RETURNS TEXT
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
    SELECT coalesce((SELECT eyas_rights(who, v.set_id) FROM version v WHERE v.id = of_version), '')
$$;
-- Whether a version may still get files.
CREATE OR REPLACE FUNCTION {schema}.eyas_is_open(of_version BIGINT) RETURNS BOOLEAN
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM version v WHERE v.id = of_version AND v.state = 'open')
$$;
-- Whether a user has claimed an object, or has a right of a data set with it: one of the letters of a pattern.
CREATE OR REPLACE FUNCTION {schema}.eyas_has_object(who TEXT, of_object BIGINT, letters TEXT) RETURNS BOOLEAN
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM claim c WHERE c.who = eyas_has_object.who AND c.object_id = of_object)
        OR EXISTS (SELECT 1 FROM file f WHERE f.object_id = of_object AND eyas_rights_of_version(eyas_has_object.who, f.version_id) ~ letters)
$$;
-- Notes that a user knows the digest of an object; returns the object's row, or nothing where there is none. Who knows the digest from a
-- list of files only has not had the bytes.
CREATE OR REPLACE FUNCTION {schema}.eyas_claim(who TEXT, of_digest BYTEA) RETURNS BIGINT
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
DECLARE
    known BIGINT;
BEGIN
    IF NOT pg_has_role(session_user, eyas_claim.who, 'MEMBER') THEN
        RAISE EXCEPTION 'nobody claims an object for somebody else' USING ERRCODE = '42501';
    END IF;
    SELECT o.id INTO known FROM object o WHERE o.digest = of_digest;
    IF known IS NULL OR eyas_has_object(eyas_claim.who, known, '[rw]') THEN
        RETURN known;
    END IF;
    IF eyas_has_object(eyas_claim.who, known, '.') THEN
        RAISE EXCEPTION 'its bytes are those of a file that this user may list and not read' USING ERRCODE = '42501';
    END IF;
    INSERT INTO claim (who, object_id) VALUES (eyas_claim.who, known) ON CONFLICT DO NOTHING;
    RETURN known;
END
$$;
REVOKE ALL ON FUNCTION {schema}.eyas_rights(TEXT, BIGINT), {schema}.eyas_rights_of_version(TEXT, BIGINT),
    {schema}.eyas_is_open(BIGINT), {schema}.eyas_has_object(TEXT, BIGINT, TEXT), {schema}.eyas_claim(TEXT, BYTEA) FROM PUBLIC;

ALTER TABLE claim ENABLE ROW LEVEL SECURITY;

ALTER TABLE object ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON object;
CREATE POLICY eyas_see ON object FOR SELECT USING ({schema}.eyas_has_object(current_user::text, id, '.'));
DROP POLICY IF EXISTS eyas_add ON object;
CREATE POLICY eyas_add ON object FOR INSERT WITH CHECK (true);

-- Where copies are, everybody may know. What is said of a copy of somebody else's object would have a repair remove it.
ALTER TABLE replica ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON replica;
CREATE POLICY eyas_see ON replica FOR SELECT USING (true);
DROP POLICY IF EXISTS eyas_change ON replica;
CREATE POLICY eyas_change ON replica FOR ALL USING ({schema}.eyas_has_object(current_user::text, object_id, '.'))
    WITH CHECK (state <> 'deleting' AND {schema}.eyas_has_object(current_user::text, object_id, '.'));

ALTER TABLE site_key ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON site_key;
CREATE POLICY eyas_see ON site_key FOR SELECT USING (who = current_user::text);

ALTER TABLE member ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON member;
CREATE POLICY eyas_see ON member FOR SELECT USING (name = current_user::text);

ALTER TABLE data_set ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON data_set;
CREATE POLICY eyas_see ON data_set FOR SELECT
    USING (owner = current_user::text OR {schema}.eyas_rights(current_user::text, id) <> '');
DROP POLICY IF EXISTS eyas_add ON data_set;
CREATE POLICY eyas_add ON data_set FOR INSERT WITH CHECK (owner = current_user::text);
DROP POLICY IF EXISTS eyas_change ON data_set;
CREATE POLICY eyas_change ON data_set FOR UPDATE USING ({schema}.eyas_rights(current_user::text, id) ~ '[wa]');
DROP POLICY IF EXISTS eyas_drop ON data_set;
CREATE POLICY eyas_drop ON data_set FOR DELETE USING (owner = current_user::text AND newest = 0);

ALTER TABLE version ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON version;
CREATE POLICY eyas_see ON version FOR SELECT USING ({schema}.eyas_rights(current_user::text, set_id) <> '');
DROP POLICY IF EXISTS eyas_add ON version;
CREATE POLICY eyas_add ON version FOR INSERT WITH CHECK ({schema}.eyas_rights(current_user::text, set_id) ~ 'w');
DROP POLICY IF EXISTS eyas_change ON version;
CREATE POLICY eyas_change ON version FOR UPDATE USING ({schema}.eyas_rights(current_user::text, set_id) ~ '[wa]');
DROP POLICY IF EXISTS eyas_drop ON version;
CREATE POLICY eyas_drop ON version FOR DELETE USING ({schema}.eyas_rights(current_user::text, set_id) ~ 'w');

ALTER TABLE file ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON file;
CREATE POLICY eyas_see ON file FOR SELECT
    USING ({schema}.eyas_rights_of_version(current_user::text, version_id) <> '');
DROP POLICY IF EXISTS eyas_add ON file;
CREATE POLICY eyas_add ON file FOR INSERT WITH CHECK ({schema}.eyas_is_open(version_id)
    AND {schema}.eyas_rights_of_version(current_user::text, version_id) ~ 'w'
    AND {schema}.eyas_has_object(current_user::text, object_id, '[rw]'));
DROP POLICY IF EXISTS eyas_drop ON file;
CREATE POLICY eyas_drop ON file FOR DELETE
    USING ({schema}.eyas_rights_of_version(current_user::text, version_id) ~ '[wa]');

ALTER TABLE tag ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON tag;
CREATE POLICY eyas_see ON tag FOR SELECT USING ({schema}.eyas_rights(current_user::text, set_id) <> '');
DROP POLICY IF EXISTS eyas_change ON tag;
CREATE POLICY eyas_change ON tag FOR ALL USING ({schema}.eyas_rights(current_user::text, set_id) ~ 'w');

ALTER TABLE acl ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON acl;
CREATE POLICY eyas_see ON acl FOR SELECT USING ({schema}.eyas_rights(current_user::text, set_id) <> '');
DROP POLICY IF EXISTS eyas_change ON acl;
CREATE POLICY eyas_change ON acl FOR ALL USING ({schema}.eyas_rights(current_user::text, set_id) ~ 'a');

ALTER TABLE trail ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS eyas_see ON trail;
CREATE POLICY eyas_see ON trail FOR SELECT USING (set_id IS NULL OR caller = current_user::text
    OR {schema}.eyas_rights(current_user::text, set_id) <> '');
DROP POLICY IF EXISTS eyas_add ON trail;
CREATE POLICY eyas_add ON trail FOR INSERT WITH CHECK (caller = current_user::text);
