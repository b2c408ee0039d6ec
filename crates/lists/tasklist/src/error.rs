//! A mistake in a task list, explained for the person who wrote the list.
//!
//! [`Error`] displays as one sentence with its place, and a hint on its own line. The parts are public, so
//! that a program can point at the place instead.

use eyas_text::Mistake;
pub(crate) use eyas_text::shown;
use std::fmt;
use std::io;
use std::ops::Deref;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Text that is not valid: broken JSON, unknown field, bad value, bad name.
    Invalid,
    /// Two things that are valid alone but not together: equal ids, one output written twice, a circle.
    Conflict,
    /// A file or pattern that matches nothing.
    NotFound,
    /// The system refused to read something.
    Io,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Permanent,
    Temporary,
    /// Trying again can help only after something outside has changed.
    Persistent,
}

/// As small as one pointer, so that results stay small; read its parts through [`Problem`].
pub struct Error(Box<Problem>);

#[derive(Debug)]
pub struct Problem {
    pub kind: ErrorKind,
    pub status: Status,
    /// What was read: a file's name, "standard input", an option.
    pub origin: String,
    /// Counted from 1.
    pub line: Option<u64>,
    /// In characters, counted from 1.
    pub column: Option<u64>,
    /// The field of the task that the mistake is in.
    pub field: Option<String>,
    /// One sentence without its place.
    pub message: String,
    pub hint: Option<String>,
    pub source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let status = match kind {
            ErrorKind::Invalid | ErrorKind::Conflict => Status::Permanent,
            ErrorKind::NotFound | ErrorKind::Io => Status::Persistent,
        };
        Error(Box::new(Problem {
            kind,
            status,
            origin: String::new(),
            line: None,
            column: None,
            field: None,
            message: message.into(),
            hint: None,
            source: None,
        }))
    }
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }
    pub(crate) fn io(message: impl Into<String>, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        let mut error = Error::new(kind, message);
        if matches!(source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::ResourceBusy) {
            error.0.status = Status::Temporary;
        }
        error.0.source = Some(source);
        error
    }
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }
    pub(crate) fn field(mut self, field: impl Into<String>) -> Error {
        self.0.field = Some(field.into());
        self
    }
    pub(crate) fn origin(mut self, origin: &str) -> Error {
        self.0.origin = origin.into();
        self
    }
    pub(crate) fn at(mut self, line: u64, column: Option<u64>) -> Error {
        self.0.line = Some(line);
        self.0.column = column;
        self
    }
}

impl Deref for Error {
    type Target = Problem;
    fn deref(&self) -> &Problem {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { origin, line, column, message, hint, source, .. } = &*self.0;
        let (line, column) = (*line, *column);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_place_first_and_its_hint_on_a_line_of_its_own() {
        let error =
            Error::invalid("unknown field `x`").hint("fields are ...").origin("t.jsonl").at(3, Some(7));
        assert_eq!(error.to_string(), "t.jsonl, line 3, column 7: unknown field `x`\nhint: fields are ...");
    }
}
