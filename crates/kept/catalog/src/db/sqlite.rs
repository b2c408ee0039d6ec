//! The embedded database: one file on a disk of this machine.
//!
//! SQLite can do nothing on a full disk, as it writes a log and an index of it even to read. So beside the database lies a file of some
//! MiB, the reserve, which is removed when there is no other room, and made again as soon as there is. It is for those who read, and
//! for what frees room.
//!
//! Another file beside it has the mark of the last change, and during a change that of the one before, too, as nobody can write both at
//! once. Who restores the database from a backup leaves that file as it is, or removes it, and both are seen. It is not flushed: after a
//! loss of power the database may look like a restored one, and is looked through like one.

use super::{Db, Dialect, PATIENCE, Row, Value};
use crate::error::{Error, Result};
use crate::folder::random_text;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// File systems of a network, by `statfs`'s number, on which the locks of SQLite's log do not hold: NFS, SMB (three numbers), Lustre, GPFS, BeeGFS,
/// CephFS, AFS, 9P.
const NETWORK: [(u64, &str); 10] = [
    (0x6969, "NFS"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "CephFS"),
    (0x5346_414f, "AFS"),
    (0x0102_1997, "9P"),
];

/// Bytes of the reserve: enough to remove some ten thousand files from the catalog at once. On a small disk it is a part of what is free.
const RESERVE_BYTES: u64 = 8 << 20;
const RESERVE_PART: u64 = 8;
/// A smaller reserve is of no use.
const RESERVE_LEAST: u64 = 128 << 10;
/// With less free than this, a disk is full: the index of the log takes 32 KiB.
const FULL_BYTES: u64 = 64 << 10;

pub(crate) struct Sqlite {
    connection: Connection,
    name: String,
    path: PathBuf,
    /// Bytes of the reserve that was given back; 0: it is there.
    given_bytes: u64,
    /// The mark that the transaction under way gives the database, and the locked file of the marks, which has the one of before, too.
    marking: Option<(fs::File, String)>,
}

impl Sqlite {
    /// Opens the file, which is made if `may_make`.
    ///
    /// # Errors
    /// The folder lies on a network's file system, or the file is not there or no database.
    pub(crate) fn open(path: &Path, may_make: bool) -> Result<Sqlite> {
        let name = eyas_text::shown_path(path).to_string();
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Some((_, kind)) = eyas_storage::file_system_of(folder)
            .and_then(|found| NETWORK.iter().find(|(number, _)| *number == found))
        {
            return Err(Error::bad(format!(
                "{name} would lie on {kind}, where SQLite's locks do not hold and the catalog could be damaged: \
                 use a folder on this machine's own disk, or a PostgreSQL server (postgres://…)"
            )));
        }
        if !may_make && !path.exists() {
            return Err(Error::NotFound(format!(
                "there is no catalog at {name}: `eyas data init` makes one"
            )));
        }
        if may_make {
            // The keys of stores are in it. SQLite gives its other files the same mode.
            // Where that fails, SQLite says why.
            let _ = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        }
        let mut given_bytes = 0;
        let connection = match connect(path, &name) {
            Err(Error::Full { .. }) if reserve_of(path) > 0 => {
                given_bytes = remove_reserve(path);
                connect(path, &name)?
            }
            connected => connected?,
        };
        if given_bytes == 0 {
            keep_reserve(path);
        }
        Ok(Sqlite { connection, name, path: path.into(), given_bytes, marking: None })
    }

    fn explain(&self, error: rusqlite::Error) -> Error {
        explain(&self.path, &self.name, error)
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if self.given_bytes > 0
            && let Ok(none) = Connection::open_in_memory()
        {
            // The log goes with the last connection, and leaves its room.
            drop(std::mem::replace(&mut self.connection, none));
            let mut size_bytes = self.given_bytes;
            while size_bytes >= RESERVE_LEAST && !make_reserve(&self.path, size_bytes) {
                size_bytes /= 2;
            }
        }
    }
}

fn connect(path: &Path, name: &str) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let explain = |error| explain(path, name, error);
    let connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    connection.busy_timeout(PATIENCE).map_err(explain)?;
    connection.set_prepared_statement_cache_capacity(200);
    // What is committed is on the disk: a data set that somebody was given a label for does not vanish with the power.
    // LIKE tells large letters from small ones, as PostgreSQL's does.
    connection
        .execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-65536; \
             PRAGMA case_sensitive_like=ON;",
        )
        .map_err(explain)?;
    // The log and its index are made with the first look, and a full disk is seen there.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(explain)?;
    Ok(connection)
}

fn beside(database: &Path, behind: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(behind);
    path.into()
}

fn reserve_path(database: &Path) -> PathBuf {
    beside(database, "-reserve")
}

/// The file of the marks: of the database itself, by whatever links it is named.
fn marks_path(database: &Path) -> PathBuf {
    beside(&fs::canonicalize(database).unwrap_or_else(|_| database.into()), "-last")
}

/// Opens the file of the marks, and waits until no other change is under way. It is its owner's whoever writes, and written in place.
fn open_marks(database: &Path, path: &Path) -> io::Result<fs::File> {
    let of = fs::metadata(database)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).mode(of.mode() & 0o666).custom_flags(libc::O_NOFOLLOW);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            // Root writes for others.
            let _ = fchown(&file, Some(of.uid()), Some(of.gid()));
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path)?,
        Err(error) => return Err(error),
    };
    file.lock()?;
    Ok(file)
}

fn write_marks(file: &fs::File, marks: &[&str]) -> io::Result<()> {
    let text = marks.join("\n");
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Bytes of the reserve that is there.
fn reserve_of(database: &Path) -> u64 {
    fs::metadata(reserve_path(database)).map_or(0, |found| found.len())
}

/// Removes the reserve; returns how many bytes it had.
fn remove_reserve(database: &Path) -> u64 {
    let size_bytes = reserve_of(database);
    fs::remove_file(reserve_path(database)).map_or(0, |()| size_bytes)
}

/// Makes a reserve where there is none, or one that is small for the room that there is now. Without one, nothing is lost.
fn keep_reserve(database: &Path) {
    let (there, free) = (reserve_of(database), free_bytes(database).unwrap_or(0));
    let wanted = RESERVE_BYTES.min((free + there) / RESERVE_PART);
    if wanted >= RESERVE_LEAST && wanted >= 2 * there {
        remove_reserve(database);
        make_reserve(database, wanted);
    }
}

fn make_reserve(database: &Path, size_bytes: u64) -> bool {
    let path = reserve_path(database);
    let Ok(file) = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) else {
        return false;
    };
    // SAFETY: the descriptor is open for as long as `file` lives.
    let is_made = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size_bytes as libc::off_t) } == 0;
    if !is_made {
        let _ = fs::remove_file(&path);
    }
    is_made
}

fn free_bytes(database: &Path) -> Option<u64> {
    let file = fs::File::open(database).ok()?;
    eyas_storage::free_bytes(&file)
}

fn explain(path: &Path, name: &str, error: rusqlite::Error) -> Error {
    let database = name.to_owned();
    let is_full = || free_bytes(path).is_some_and(|free| free < FULL_BYTES);
    match &error {
        rusqlite::Error::SqliteFailure(code, message) => match code.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Error::Locked { database },
            ErrorCode::NotADatabase => {
                Error::bad(format!("{database} is a file, but not an eyas catalog; choose another path"))
            }
            ErrorCode::DiskFull => Error::Full { database },
            ErrorCode::SystemIoFailure | ErrorCode::CannotOpen if is_full() => Error::Full { database },
            ErrorCode::CannotOpen => Error::Failed(format!(
                "{database} cannot be opened; does its folder exist, and may you read and write there?"
            )),
            _ => Error::Database { database, reason: message.clone().unwrap_or_else(|| error.to_string()) },
        },
        _ => Error::Database { database, reason: error.to_string() },
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

impl Db for Sqlite {
    fn name(&self) -> &str {
        &self.name
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            key: "INTEGER PRIMARY KEY AUTOINCREMENT",
            text: "TEXT",
            real: "REAL",
            bytes: "BLOB",
            by_key: "WITHOUT ROWID",
        }
    }

    fn has_tables(&mut self) -> Result<bool> {
        let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'eyas_schema'";
        Ok(!self.query(sql, &[])?.is_empty())
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64> {
        let run = || -> rusqlite::Result<usize> {
            self.connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values))
        };
        run().map(|n| n as u64).map_err(|error| self.explain(error))
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>> {
        let run = || -> rusqlite::Result<Vec<Row>> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let n_columns = statement.column_count();
            let mut found = statement.query(rusqlite::params_from_iter(values))?;
            let mut rows = vec![];
            while let Some(row) = found.next()? {
                let column = |column| -> rusqlite::Result<Value> {
                    Ok(match row.get_ref(column)? {
                        ValueRef::Null => Value::Null,
                        ValueRef::Integer(value) => Value::Int(value),
                        ValueRef::Real(value) => Value::Real(value),
                        ValueRef::Text(value) => Value::Text(String::from_utf8_lossy(value).into_owned()),
                        ValueRef::Blob(value) => Value::Bytes(value.to_vec()),
                    })
                };
                rows.push(Row((0..n_columns).map(column).collect::<rusqlite::Result<_>>()?));
            }
            Ok(rows)
        };
        run().map_err(|error| self.explain(error))
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(|error| self.explain(error))
    }

    fn begin(&mut self) -> Result<()> {
        // The one writer from the start: a transaction that first reads would be refused when it comes to write.
        self.batch("BEGIN IMMEDIATE")
    }

    fn commit(&mut self) -> Result<bool> {
        self.batch("COMMIT")?;
        if let Some((file, mark)) = self.marking.take() {
            // From now on a database with the mark of before is a restored one. Where that cannot be written, it is not seen to be one.
            let _ = write_marks(&file, &[&mark]);
        }
        Ok(true)
    }

    fn rollback(&mut self) {
        // What cannot be rolled back was rolled back by the database already.
        let _ = self.batch("ROLLBACK");
        self.marking = None;
    }

    fn marks_outside(&mut self) -> Result<Vec<String>> {
        let path = marks_path(&self.path);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
            Err(error) => {
                Err(Error::Failed(format!("cannot read {}: {error}", eyas_text::shown_path(&path))))
            }
        }
    }

    fn next_mark(&mut self, known: Option<&str>) -> Result<String> {
        let (path, next) = (marks_path(&self.path), random_text()?);
        let marks: Vec<&str> = known.into_iter().chain([next.as_str()]).collect();
        let opened = match self.marking.take() {
            Some((file, _)) => Ok(file),
            None => open_marks(&self.path, &path),
        };
        match opened.and_then(|file| write_marks(&file, &marks).map(|()| file)) {
            Ok(file) => {
                self.marking = Some((file, next.clone()));
                Ok(next)
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                Err(Error::Full { database: self.name.clone() })
            }
            Err(error) => {
                Err(Error::Failed(format!("cannot write {}: {error}", eyas_text::shown_path(&path))))
            }
        }
    }

    fn give_reserve(&mut self) -> bool {
        let given_bytes = remove_reserve(&self.path);
        self.given_bytes += given_bytes;
        given_bytes > 0
    }

    fn lacks_reserve(&mut self) -> bool {
        let has_room = |free: u64| free / 2 >= self.given_bytes;
        if self.given_bytes > 0 && free_bytes(&self.path).is_some_and(has_room) {
            keep_reserve(&self.path);
            self.given_bytes = 0;
        }
        self.given_bytes > 0
    }
}
