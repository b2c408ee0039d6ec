//! The reasons why there is no workload, and whether trying again can help.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The options give no workload.
    Config,
    /// A file is missing or cannot be read.
    Open,
    /// A file does not have the expected content.
    Foreign,
    /// A file breaks off, or its run had not ended.
    Incomplete,
    /// The run in the file failed.
    Failed,
    /// The workload would never end: tasks wait for each other, or fit no machine.
    NeverEnds,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The same call will fail again.
    Permanent,
    /// The same call may succeed later.
    Temporary,
    /// The call was tried again and failed each time. Only a caller that tries again sets this.
    Persistent,
}

/// One sentence for users: the operation, its object and the reason; a hint may follow on its own line.
#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    pub status: Status,
    /// The operation: `make a workload`.
    pub operation: &'static str,
    /// The object of the operation, and what is wrong with it.
    pub context: String,
    /// What the user can do about it.
    pub hint: Option<String>,
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, operation: &'static str, context: impl Into<String>) -> Error {
        Error {
            kind,
            status: Status::Permanent,
            operation,
            context: context.into(),
            hint: None,
            source: None,
        }
    }

    pub fn config(context: impl Into<String>) -> Error {
        Error::new(ErrorKind::Config, "make a workload", context)
    }

    pub fn never_ends(context: impl Into<String>) -> Error {
        Error::new(ErrorKind::NeverEnds, "run the workload to its end", context)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.operation, self.context)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
