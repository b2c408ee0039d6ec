//! The error in a workflow file, in one sentence with its place, and a hint on a line of its own.

use eyas_text::Mistake;
pub(crate) use eyas_text::shown;
use std::fmt;
use std::io;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The system refused to read or write a file.
    Io,
    /// The format is unknown, or its version is.
    Unknown,
    /// The file breaks off before its end.
    Truncated,
    /// The file does not contain what its format requires.
    Broken,
    /// The file is correct, but eyas cannot do what it asks for.
    Unsupported,
    /// Parts that are valid alone and cannot be together: equal ids, two writers, a circle.
    Conflict,
    /// A file that no task writes and that does not exist.
    Missing,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Permanent,
    Temporary,
    /// Trying again can help only after something outside has been changed.
    Persistent,
}

/// One pointer wide, so results stay small; read its parts through [`Problem`].
pub struct Error(Box<Problem>);

#[derive(Debug)]
pub struct Problem {
    pub kind: ErrorKind,
    pub status: Status,
    /// What was being done: "read", "write" or "convert".
    pub operation: &'static str,
    /// The file that was read, written or converted.
    pub origin: String,
    /// Counted from 1.
    pub line: Option<u32>,
    /// In characters, counted from 1.
    pub column: Option<u32>,
    /// Number of the file among several that were read together; 0 is the one that was named.
    pub(crate) part: u16,
    /// One sentence, without the place in the file.
    pub message: String,
    pub hint: Option<String>,
    pub source: Option<io::Error>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let status = match kind {
            ErrorKind::Io | ErrorKind::Missing => Status::Persistent,
            _ => Status::Permanent,
        };
        Error(Box::new(Problem {
            kind,
            status,
            operation: "read",
            origin: String::new(),
            line: None,
            column: None,
            part: 0,
            message: message.into(),
            hint: None,
            source: None,
        }))
    }
    pub(crate) fn broken(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Broken, message)
    }
    pub(crate) fn io(operation: &'static str, message: impl Into<String>, source: io::Error) -> Error {
        let mut error = Error::new(ErrorKind::Io, message);
        if matches!(source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::ResourceBusy) {
            error.0.status = Status::Temporary;
        }
        error.0.operation = operation;
        error.0.source = Some(source);
        error
    }
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }
    pub(crate) fn at(mut self, line: impl Into<Option<u32>>) -> Error {
        self.0.line = line.into();
        self
    }
    pub(crate) fn column(mut self, column: u32) -> Error {
        self.0.column = Some(column);
        self
    }
    pub(crate) fn part(mut self, part: u16) -> Error {
        self.0.part = part;
        self
    }
    pub(crate) fn caused(mut self, source: io::Error) -> Error {
        self.0.source = Some(source);
        self
    }
    /// Names the file, unless a file that was read with it is named already.
    pub(crate) fn origin(mut self, origin: &str) -> Error {
        if self.0.origin.is_empty() {
            self.0.origin = origin.into();
        }
        self
    }
    pub(crate) fn operation(mut self, operation: &'static str) -> Error {
        self.0.operation = operation;
        self
    }
}

impl std::ops::Deref for Error {
    type Target = Problem;
    fn deref(&self) -> &Problem {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { origin, line, column, message, hint, source, .. } = &*self.0;
        let (line, column) = (line.map(u64::from), column.map(u64::from));
        Mistake { origin, line, column, message, source: source.as_ref(), hint: hint.as_deref() }.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

/// "on line 7", or nothing if the line is not known.
pub(crate) fn on_line(line: Option<u32>) -> String {
    line.map_or(String::new(), |line| format!(" on line {line}"))
}
