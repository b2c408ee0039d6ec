//! The errors of a journal, and whether trying again can help.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result of a journal operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether trying the same thing again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Trying again cannot help as long as nothing is changed.
    Permanent,
    /// Trying again may help soon, without any change.
    Temporary,
    /// The operation was retried and still fails; a person has to act (free space, end the other process).
    Persistent,
}

/// The kind of error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another process holds the directory. `pid` is absent when the owner had not written it yet.
    InUse { pid: Option<u32> },
    /// The file is damaged at `offset` (bytes from its start) in a part that had been made durable.
    Corrupt { offset: u64, what: String },
    /// A file with a journal's name does not begin like a journal file.
    NotAJournal,
    /// The file was written by another version of eyas.
    Version { found: u32, supported: u32 },
    /// The buffer of records that wait for the disk has no room for this record.
    Full,
    /// The record is larger than the format allows.
    TooLarge { body_bytes: usize, body_bytes_max: usize },
    /// Records wait because the disk refuses them; see [`crate::Journal::health`].
    Stalled,
    /// The journal is closed.
    Closed,
    /// The caller asked for something impossible.
    Invalid { what: String },
    /// The operating system refused; the source says why.
    Io,
}

/// A failed journal operation: the operation, the file, the reason, and whether to try again.
#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// The operation, as an infinitive: "open the journal".
    pub operation: &'static str,
    /// The file or directory concerned.
    pub path: PathBuf,
    pub source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, path: &Path) -> Self {
        Error { kind, operation, path: path.to_owned(), source: None }
    }

    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Error { kind: ErrorKind::Io, operation, path: path.to_owned(), source: Some(source) }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corrupt { offset, what: what.into() }, "read the journal", path)
    }

    /// Whether trying again can help.
    pub fn status(&self) -> Status {
        match self.kind {
            ErrorKind::Full => Status::Temporary,
            ErrorKind::InUse { .. } | ErrorKind::Stalled => Status::Persistent,
            ErrorKind::Io => match self.source.as_ref().map(io::Error::kind) {
                Some(io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => Status::Temporary,
                Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Status::Persistent,
                _ => Status::Permanent,
            },
            _ => Status::Permanent,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            ErrorKind::InUse { pid: Some(pid) } => write!(f, "another dispatcher (pid {pid}) uses {path}"),
            ErrorKind::InUse { pid: None } => write!(f, "another dispatcher uses {path}"),
            ErrorKind::Corrupt { offset, what } => {
                write!(f, "journal file {path} is damaged at byte {offset}: {what}")
            }
            ErrorKind::NotAJournal => write!(f, "{path} is not a journal file of eyas"),
            ErrorKind::Version { found, supported } if found > supported => write!(
                f,
                "{path} was written by a newer eyas (journal format {found}, this one reads {supported})"
            ),
            ErrorKind::Version { found, supported } => write!(
                f,
                "{path} was written by an older eyas (journal format {found}, this one reads {supported})"
            ),
            ErrorKind::Full => write!(f, "the journal in {path} has no room for more waiting records"),
            ErrorKind::TooLarge { body_bytes, body_bytes_max } => {
                write!(
                    f,
                    "a record of {body_bytes} bytes is too large for the journal (limit {body_bytes_max})"
                )
            }
            ErrorKind::Stalled => {
                write!(f, "the journal cannot write {path}")?;
                self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
            }
            ErrorKind::Closed => write!(f, "the journal in {path} is closed"),
            ErrorKind::Invalid { what } => write!(f, "cannot {}: {what}", self.operation),
            ErrorKind::Io => {
                write!(f, "cannot {} ({path})", self.operation)?;
                self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
