//! A database as the catalog needs it: statements, rows, transactions. The two kinds differ here and nowhere else.
//!
//! Statements are written once, for both. A value is `?1`, `?2`, …, in any order. Texts compare by their bytes.
//! No value is ever written into a statement.

mod postgres;
mod sqlite;
mod tls;

use crate::error::{Error, Result};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) use postgres::Postgres;
pub(crate) use sqlite::Sqlite;

/// A value of a statement or of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Real(value)
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.into())
    }
}
impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}
impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Value {
        Value::Bytes(value.into())
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// The values of a statement.
#[macro_export]
#[doc(hidden)]
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Value::from($value)),*] };
}

/// One row of an answer. A column of another type than asked for is a mistake in this crate, and panics.
#[derive(Debug, Clone)]
pub struct Row(pub Vec<Value>);

impl Row {
    pub fn int(&self, column: usize) -> i64 {
        match &self.0[column] {
            Value::Int(value) => *value,
            other => panic!("column {column} is no integer: {other:?}"),
        }
    }
    pub fn maybe_int(&self, column: usize) -> Option<i64> {
        (self.0[column] != Value::Null).then(|| self.int(column))
    }
    pub fn maybe_text(&self, column: usize) -> Option<String> {
        (self.0[column] != Value::Null).then(|| self.text(column))
    }
    pub fn text(&self, column: usize) -> String {
        match &self.0[column] {
            Value::Text(value) => value.clone(),
            other => panic!("column {column} is no text: {other:?}"),
        }
    }
    pub fn bytes(&self, column: usize) -> &[u8] {
        match &self.0[column] {
            Value::Bytes(value) => value,
            other => panic!("column {column} has no bytes: {other:?}"),
        }
    }
}

/// The columns' types by name, as each database spells them.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// A key that the database counts up.
    pub key: &'static str,
    /// Text that compares by its bytes.
    pub text: &'static str,
    /// A number of 64 bits with a point.
    pub real: &'static str,
    /// A string of bytes.
    pub bytes: &'static str,
    /// What stands behind a table whose rows lie in the order of its primary key, where there is such.
    pub by_key: &'static str,
}

/// A connection to a database.
pub(crate) trait Db: Send {
    /// The database in words, for messages; without a password.
    fn name(&self) -> &str;
    fn dialect(&self) -> Dialect;
    /// Its file, where it is one.
    fn file(&self) -> Option<&Path> {
        None
    }
    /// Runs one statement; returns how many rows it changed.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64>;
    /// Runs one statement and returns its rows.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>>;
    /// Runs statements without values.
    fn batch(&mut self, sql: &str) -> Result<()>;
    /// Begins a transaction that will write. Nobody else's writing is lost or overwritten by it.
    fn begin(&mut self) -> Result<()>;
    /// Commits. `Ok(false)`: another transaction was in the way, nothing was changed, and it is worth another try.
    fn commit(&mut self) -> Result<bool>;
    fn rollback(&mut self);
    /// The marks that the database may have, if it is the one that was written last: what lies outside of it says so, and does not go
    /// back in time with it. It may be asked in a transaction, where nobody else changes it.
    ///
    /// # Errors
    /// It cannot be read.
    fn marks_outside(&mut self) -> Result<Vec<String>>;
    /// A mark for the database to have from the end of this transaction on. The outside knows it already, beside `known`, the one of before.
    fn next_mark(&mut self, known: Option<&str>) -> Result<String>;
    /// Whether there are tables of a catalog.
    fn has_tables(&mut self) -> Result<bool>;
    /// The user of the database, where that is not one who keeps the catalog. `None`: it is, or whoever opens the database does.
    fn role(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
    /// Says once more what users of the catalog may do, after tables were made or changed.
    fn guard(&mut self) -> Result<()> {
        Ok(())
    }
    /// Says that the user of the database knows these digests, so that the rows of their objects are seen. It is nothing to who keeps the
    /// catalog, who sees all.
    fn claim(&mut self, digests: &[Value]) -> Result<()> {
        let _ = digests;
        Ok(())
    }
    /// Lets a user of the database use the catalog.
    ///
    /// # Errors
    /// [`Error::Conflict`]: the database has no users, or none of that name.
    fn admit(&mut self, user: &str) -> Result<()> {
        Err(Error::Conflict(format!(
            "{} is one user's, so {} cannot be let in: a catalog for many users is in PostgreSQL \
             (`eyas data init --db postgres://USER@HOST/DATABASE`)",
            self.name(),
            eyas_text::shown(user)
        )))
    }
    /// Lets a user use the catalog no more.
    fn expel(&mut self, user: &str) -> Result<()> {
        let _ = user;
        Ok(())
    }
    /// Gives the room that is kept for a full disk back to it; whether there was any.
    fn give_reserve(&mut self) -> bool {
        false
    }
    /// Whether that room was given back, and the disk is as full as then.
    fn lacks_reserve(&mut self) -> bool {
        false
    }
}

/// How long a transaction waits for others that are in its way, and how long it is tried again.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest pause between two tries of a transaction.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Does `work` in one transaction: all of it, or nothing. `work` may be called several times.
///
/// After each try that met another transaction or lost its connection, it waits for a random time of up to twice the last bound, so that
/// several programs that write the same rows get their turn one after the other.
///
/// # Errors
/// [`Error::Full`]: the disk has no room but that which is kept for [`within_reserve`].
pub(crate) fn within<T>(db: &mut dyn Db, mut work: impl FnMut(&mut dyn Db) -> Result<T>) -> Result<T> {
    match db.lacks_reserve() {
        true => Err(Error::Full { database: db.name().into() }),
        false => transact(db, &mut work),
    }
}

/// The same for what frees room and adds next to nothing: where the disk is full, it takes the room that is kept for this.
pub(crate) fn within_reserve<T>(
    db: &mut dyn Db,
    mut work: impl FnMut(&mut dyn Db) -> Result<T>,
) -> Result<T> {
    match transact(db, &mut work) {
        Err(Error::Full { .. }) if db.give_reserve() => transact(db, &mut work),
        done => done,
    }
}

fn transact<T>(db: &mut dyn Db, work: &mut dyn FnMut(&mut dyn Db) -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let mut pause_max = Duration::from_millis(1);
    loop {
        db.begin()?;
        let other = match work(db) {
            Ok(done) => match db.commit()? {
                true => return Ok(done),
                false => Error::Locked { database: db.name().into() },
            },
            Err(error) => {
                db.rollback();
                match error {
                    Error::Collided { .. } => Error::Locked { database: db.name().into() },
                    // Nothing was committed, and the next begin waits for the server.
                    Error::Away { .. } | Error::Busy { .. } => error,
                    error => return Err(error),
                }
            }
        };
        if begun.elapsed() >= PATIENCE {
            return Err(other);
        }
        std::thread::sleep(pause_max.mul_f64(random_part()));
        pause_max = PAUSE_MAX.min(2 * pause_max);
    }
}

/// A random number from 0 to 1, another one at each call.
fn random_part() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// The places of so many values in a statement, `?1, ?2`.
pub(crate) fn places(n: usize) -> String {
    let places: Vec<String> = (1..=n).map(|n| format!("?{n}")).collect();
    places.join(", ")
}

/// Most rows that one statement inserts.
const ROWS_AT_ONCE: usize = 500;

/// Inserts rows, many in one statement. `tail` stands behind the rows, e.g. `ON CONFLICT DO NOTHING`.
pub(crate) fn insert(
    db: &mut dyn Db,
    table: &str,
    columns: &[&str],
    rows: &[Vec<Value>],
    tail: &str,
) -> Result<u64> {
    let mut n_changed = 0;
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let places: Vec<String> = (0..rows.len())
            .map(|row| {
                let of_row: Vec<String> =
                    (1..=columns.len()).map(|column| format!("?{}", row * columns.len() + column)).collect();
                format!("({})", of_row.join(", "))
            })
            .collect();
        let sql = format!("INSERT INTO {table} ({}) VALUES {} {tail}", columns.join(", "), places.join(", "));
        let values: Vec<Value> = rows.iter().flatten().cloned().collect();
        n_changed += db.execute(&sql, &values)?;
    }
    Ok(n_changed)
}
