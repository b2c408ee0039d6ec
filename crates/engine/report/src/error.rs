//! Why a log could not be read, and whether trying again can help.

use eyas_text::shown_path;
use std::fmt;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The file is missing or may not be opened.
    Open,
    /// The file could be opened and not be read.
    Read,
    /// The file does not begin as an event log does.
    NotALog,
    /// Written by a version of eyas that this one does not understand.
    Version,
    /// A line in the middle does not follow the grammar.
    Line,
    /// The header names a configuration that the core refuses.
    Config,
    /// No task has that name or number.
    NoTask,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The same call fails again.
    Permanent,
    /// It may succeed later.
    Temporary,
    /// The operation was repeated and failed each time. The caller that repeats it sets this; nothing in this crate repeats.
    Persistent,
}

#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    pub status: Status,
    /// What was being done: `read the event log`.
    pub operation: &'static str,
    /// The thing that the error is about, and what is wrong with it.
    pub context: String,
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, context: impl Into<String>) -> Error {
        Error { kind, status: Status::Permanent, operation, context: context.into(), source: None }
    }

    pub(crate) fn io(kind: ErrorKind, path: &Path, source: std::io::Error) -> Error {
        use std::io::ErrorKind::*;
        let status = match source.kind() {
            NotFound | PermissionDenied | IsADirectory | NotADirectory | InvalidInput => Status::Permanent,
            _ => Status::Temporary,
        };
        let context = format!("{}: {source}", shown_path(path));
        Error { kind, status, operation: "read the event log", context, source: Some(Box::new(source)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.operation, self.context)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
