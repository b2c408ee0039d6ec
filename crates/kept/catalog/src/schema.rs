//! The catalog's tables, the same in both databases, and how an older database becomes a newer one.
//!
//! A migration is never changed once it was released; a new one is added at the end of [`MIGRATIONS`].

use crate::db::{Db, within};
use crate::error::{Error, Result};
use crate::tags::Kind;
use crate::values;
use eyas_text::shown;

/// Each migration's statements. `{key}`, `{text}`, `{real}`, `{bytes}` and `{by_key}` are filled in per database.
const MIGRATIONS: [&str; 8] = [
    include_str!("schema/0001-start.sql"),
    include_str!("schema/0002-stores.sql"),
    include_str!("schema/0003-quotas.sql"),
    include_str!("schema/0004-reading.sql"),
    include_str!("schema/0005-marks.sql"),
    include_str!("schema/0006-exact.sql"),
    include_str!("schema/0007-restored.sql"),
    include_str!("schema/0008-users.sql"),
];

/// The migration after which the tags are read once more.
const EXACT: i64 = 6;
/// Rows that are read at once.
const ROWS_AT_ONCE: i64 = 5000;

/// Has the rows of tags that are numbers or dates say so, by their texts.
fn read_tags(db: &mut dyn Db) -> Result<()> {
    let mut last = (i64::MIN, i64::MIN);
    loop {
        let sql = "SELECT set_id, name_id, text FROM tag WHERE set_id > ?1 OR (set_id = ?1 AND name_id > ?2) \
                   ORDER BY set_id, name_id LIMIT ?3";
        let rows = db.query(sql, values![last.0, last.1, ROWS_AT_ONCE])?;
        let Some(row) = rows.last() else { return Ok(()) };
        last = (row.int(0), row.int(1));
        for row in &rows {
            let kind = Kind::of(&row.text(2));
            if let Some(ordinal) = kind.ordinal() {
                let sql = "UPDATE tag SET kind = ?3, ordinal = ?4 WHERE set_id = ?1 AND name_id = ?2";
                db.execute(sql, values![row.int(0), row.int(1), kind.name(), ordinal])?;
            }
        }
    }
}

/// The newest version that this program knows.
pub(crate) const NEWEST: i64 = MIGRATIONS.len() as i64;

/// The version of the tables in a database, 0: there are none.
pub(crate) fn version(db: &mut dyn Db) -> Result<i64> {
    if !db.has_tables()? {
        return Ok(0);
    }
    let rows = db.query("SELECT coalesce(max(version), 0) FROM eyas_schema", values![])?;
    Ok(rows[0].int(0))
}

/// Brings the tables to the newest version, in one transaction.
///
/// # Errors
/// [`Error::Newer`]: a newer program made them.
pub(crate) fn migrate(db: &mut dyn Db, now_ms: i64) -> Result<()> {
    migrate_to(db, NEWEST, now_ms)
}

fn migrate_to(db: &mut dyn Db, newest: i64, now_ms: i64) -> Result<()> {
    let found = version(db)?;
    if found == newest {
        return Ok(());
    }
    let name = db.name().to_owned();
    if found > NEWEST {
        return Err(Error::Newer { database: name, found, known: NEWEST });
    }
    if let Some(user) = db.role()? {
        return Err(Error::Denied(format!(
            "{name} has tables of an older eyas, which its user {} may not change: whoever keeps the catalog brings them up to date \
             by any command, such as `eyas data ls`",
            shown(&user)
        )));
    }
    if found == 0 {
        // A table that is not there is an error in a transaction of PostgreSQL, so it is made first.
        db.batch(&format!(
            "CREATE TABLE IF NOT EXISTS eyas_schema (version BIGINT NOT NULL PRIMARY KEY, applied_ms BIGINT NOT NULL) {}",
            db.dialect().by_key
        ))?;
    }
    within(db, |db| {
        let rows = db.query("SELECT coalesce(max(version), 0) FROM eyas_schema", values![])?;
        let dialect = db.dialect();
        for n in rows[0].int(0)..newest {
            let sql = MIGRATIONS[n as usize]
                .replace("{key}", dialect.key)
                .replace("{text}", dialect.text)
                .replace("{real}", dialect.real)
                .replace("{bytes}", dialect.bytes)
                .replace("{by_key}", dialect.by_key);
            db.batch(&sql)?;
            if n + 1 == EXACT {
                read_tags(db)?;
            }
            db.execute(
                "INSERT INTO eyas_schema (version, applied_ms) VALUES (?1, ?2)",
                values![n + 1, now_ms],
            )?;
        }
        if newest == NEWEST { db.guard() } else { Ok(()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Caller;
    use crate::catalog::Catalog;
    use crate::db::Sqlite;
    use crate::sites::NewSite;

    /// The keys to stores are there for who keeps the catalog, and stand no longer beside what everybody reads.
    #[test]
    fn keys_to_stores_leave_the_sites() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.db");
        let mut db = Sqlite::open(&path, true).unwrap();
        migrate_to(&mut db, 7, 5).unwrap();
        db.batch(
            "INSERT INTO site (name, address, domain, state, added_ms, join_text, sealed_trail) VALUES \
             ('far', 'far:1', 'far', 'up', 5, '{\"key\": 1}', 3), ('here', '/disk', 'hall', 'up', 5, NULL, 3); \
             INSERT INTO data_set (id, label, owner, created_ms, copies, newest, n_files, size_bytes) \
             VALUES (1, 'x', 'bob', 5, 1, 1, 0, 0); INSERT INTO acl (set_id, subject, rights) VALUES (1, 'everyone', 'r')",
        )
        .unwrap();
        drop(db);
        let catalog = Catalog::open(&format!("sqlite:{}", path.display()), 6).unwrap();
        let (far, here) = (catalog.address("far").unwrap(), catalog.address("here").unwrap());
        assert_eq!((far.is_store, far.join.as_deref()), (true, Some("{\"key\": 1}")));
        assert_eq!((here.is_store, here.join), (false, None));
        let (_, trails) = catalog.sealed_trails().unwrap();
        assert!(trails.values().all(|trail| *trail == 0), "seals get the rights");
        assert!(catalog.db().query("SELECT join_text FROM site", values![]).is_err());
        let alice = Caller::user("alice");
        let refused = catalog.add_user(&alice, "bo", &[], 7).unwrap_err().to_string();
        assert!(refused.contains("a catalog for many users is in PostgreSQL"), "{refused}");
    }

    /// What an earlier program wrote is there, and what is new can be used.
    #[test]
    fn a_catalog_of_the_first_version_is_brought_up_to_date() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.db");
        let mut db = Sqlite::open(&path, true).unwrap();
        migrate_to(&mut db, 1, 5).unwrap();
        db.batch(
            "INSERT INTO site (name, address, domain, state, added_ms, seen_ms) \
             VALUES ('here', '/disk', 'hall', 'up', 5, 5); \
             INSERT INTO data_set (id, label, owner, created_ms, copies, newest, n_files, size_bytes) \
             VALUES (1, 'x', 'bob', 5, 1, 2, 2, 40), (2, 'y', 'bob', 5, 1, 1, 1, 30); \
             INSERT INTO version (id, set_id, number, state, created_ms, n_files, size_bytes) \
             VALUES (1, 1, 1, 'removed', 5, 1, 7), (2, 1, 2, 'committed', 5, 3, 70), (3, 2, 1, 'committed', 5, 1, 30), \
             (4, 2, 2, 'open', 5, 0, 0); \
             INSERT INTO object (id, digest, size_bytes) VALUES (1, x'01', 10), (2, x'02', 30), (3, x'03', 500); \
             INSERT INTO file (version_id, path, object_id, is_executable) \
             VALUES (2, 'a', 1, 0), (2, 'b', 2, 0), (2, 'c', 2, 0), (3, 'a', 2, 0), (4, 'a', 3, 0); \
             INSERT INTO tag_name (id, name) VALUES (1, 'event'), (2, 'day'), (3, 'note'); \
             INSERT INTO tag (set_id, name_id, text, kind, number) VALUES \
             (1, 1, '9007199254740993', 'number', 9007199254740992.0), (1, 2, '2026-11-25', 'date', 1795564800.0), \
             (1, 3, 'a', 'text', NULL), (2, 1, '9007199254740992', 'number', 9007199254740992.0), \
             (2, 3, '0e7', 'number', 0.0)",
        )
        .unwrap();
        drop(db);
        let catalog = Catalog::open(&format!("sqlite:{}", path.display()), 6).unwrap();
        let new = NewSite { name: "far", address: "far:1", join: Some("{}"), ..NewSite::default() };
        catalog.add_site(&Caller::user("alice"), &new, 7).unwrap();
        let sites = catalog.sites().unwrap();
        let seen: Vec<_> = sites.iter().map(|site| (site.name.as_str(), site.is_store)).collect();
        assert_eq!(seen, [("far", true), ("here", false)]);
        assert_eq!(sites[1].domain, "hall");
        let used = |catalog: &Catalog| catalog.quotas().unwrap().users.first().map(|user| user.used_bytes);
        assert_eq!(used(&catalog), Some(40), "each object of committed versions once");
        let bob = Caller::user("bob");
        let found = |query: &str| -> Vec<String> {
            catalog.find(&bob, Some(query), 9).unwrap().into_iter().map(|set| set.label).collect()
        };
        assert_eq!(found("event = 9007199254740993"), ["x"]);
        assert_eq!(found("event > 9007199254740992"), ["x"]);
        assert_eq!(found("event = 9007199254740992..9007199254740993"), ["y", "x"]);
        assert_eq!(found("day > 2026-11-24T23:59"), ["x"]);
        assert_eq!(found("note in (0e7, b)"), ["y"]);
        assert!(found("note = 0").is_empty() && found("note < 1") == ["y"]);
        catalog.remove(&bob, &"x".parse().unwrap(), 8).unwrap();
        assert_eq!(used(&catalog), Some(30), "one of them is also in another data set");
        catalog.remove(&bob, &"y@1".parse().unwrap(), 9).unwrap();
        assert_eq!(used(&catalog), None);
    }
}
