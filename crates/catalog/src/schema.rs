//! The catalog's tables, the same in both databases, and how an older database becomes a newer one.
//!
//! A migration is never changed once it was released; a new one is added at the end of [`MIGRATIONS`].

use crate::db::{Db, within};
use crate::error::{Error, Result};
use crate::values;

/// Each migration's statements. `{key}`, `{text}`, `{real}`, `{bytes}` and `{by_key}` are filled in per database.
const MIGRATIONS: [&str; 1] = [include_str!("schema/0001-start.sql")];

/// The newest version that this program knows.
pub(crate) const NEWEST: i64 = MIGRATIONS.len() as i64;

/// The version of the tables in a database, 0: there are none.
pub(crate) fn version(db: &mut dyn Db) -> Result<i64> {
    // A table that is not there is an error in a transaction of PostgreSQL, so it is made first.
    let dialect = db.dialect();
    db.batch(&format!(
        "CREATE TABLE IF NOT EXISTS eyas_schema (version BIGINT NOT NULL PRIMARY KEY, applied_ms BIGINT NOT NULL) {}",
        dialect.by_key
    ))?;
    let rows = db.query("SELECT coalesce(max(version), 0) FROM eyas_schema", values![])?;
    Ok(rows[0].int(0))
}

/// Brings the tables to the newest version, in one transaction.
///
/// # Errors
/// [`Error::Newer`]: a newer program made them.
pub(crate) fn migrate(db: &mut dyn Db, now_ms: i64) -> Result<()> {
    let found = version(db)?;
    if found == NEWEST {
        return Ok(());
    }
    let name = db.name().to_owned();
    if found > NEWEST {
        return Err(Error::Newer { database: name, found, known: NEWEST });
    }
    within(db, |db| {
        let rows = db.query("SELECT coalesce(max(version), 0) FROM eyas_schema", values![])?;
        let dialect = db.dialect();
        for n in rows[0].int(0)..NEWEST {
            let sql = MIGRATIONS[n as usize]
                .replace("{key}", dialect.key)
                .replace("{text}", dialect.text)
                .replace("{real}", dialect.real)
                .replace("{bytes}", dialect.bytes)
                .replace("{by_key}", dialect.by_key);
            db.batch(&sql)?;
            db.execute(
                "INSERT INTO eyas_schema (version, applied_ms) VALUES (?1, ?2)",
                values![n + 1, now_ms],
            )?;
        }
        Ok(())
    })
}
