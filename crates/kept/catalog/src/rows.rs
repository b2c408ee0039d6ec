//! Rows that several parts of the catalog read and write.

use crate::db::{Db, Row};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::values;
use eyas_data::Digest;

/// A row of `data_set`.
pub(crate) struct SetRow {
    pub(crate) id: i64,
    pub(crate) label: String,
    pub(crate) owner: String,
    pub(crate) newest: i64,
    pub(crate) is_removed: bool,
}

/// The answer when there is no such data set, or the caller may not know of it.
pub(crate) fn unknown(label: &str) -> Error {
    Error::NotFound(format!(
        "there is no data set `{label}` that you may list: `eyas data find` shows those that you may"
    ))
}

/// The data set of a label, whatever its state.
pub(crate) fn row_of(db: &mut dyn Db, label: &str) -> Result<Option<SetRow>> {
    let sql = "SELECT id, owner, newest, removed_ms FROM data_set WHERE label = ?1";
    Ok(db.query(sql, values![label])?.first().map(|row| SetRow {
        id: row.int(0),
        label: label.into(),
        owner: row.text(1),
        newest: row.int(2),
        is_removed: row.maybe_int(3).is_some(),
    }))
}

/// The committed version that a key means: its row's id and its number.
pub(crate) fn version_of(db: &mut dyn Db, set: &SetRow, key: &Key) -> Result<(i64, u32)> {
    let number = key.version.map_or(set.newest, i64::from);
    let sql = "SELECT id FROM version WHERE set_id = ?1 AND number = ?2 AND state = 'committed'";
    match db.query(sql, values![set.id, number])?.first() {
        Some(row) => Ok((row.int(0), u32::try_from(number).unwrap_or(u32::MAX))),
        None => Err(Error::NotFound(format!(
            "the data set `{}` has no version {number}: `eyas data show {}` lists its versions",
            key.label, key.label
        ))),
    }
}

/// The digest in a column.
pub(crate) fn digest_of(row: &Row, column: usize) -> Result<Digest> {
    let bytes: [u8; 32] = row.bytes(column).try_into().map_err(|_| Error::Database {
        database: "the catalog".into(),
        reason: "a digest has not got 32 bytes; the database was changed by somebody else".into(),
    })?;
    Ok(Digest(bytes))
}
