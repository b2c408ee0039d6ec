//! What goes wrong, by what a command can do about it.

use eyas_text::reason;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The program failed, or did not make what it should.
    Program,
    /// What was asked for is wrong.
    Input,
    /// A batch system refused to answer.
    System,
    /// Anything else.
    Other,
    /// Somebody asked the command to end.
    Interrupted,
}

impl ErrorKind {
    /// Its number in a job's report: the exit status of the command that waits.
    pub fn number(self) -> i32 {
        match self {
            ErrorKind::Program => 1,
            ErrorKind::Input => 2,
            ErrorKind::System => 3,
            ErrorKind::Other => 4,
            ErrorKind::Interrupted => 130,
        }
    }

    /// That of a job's report.
    pub(crate) fn of_number(number: i32) -> ErrorKind {
        [ErrorKind::Input, ErrorKind::System, ErrorKind::Other, ErrorKind::Interrupted]
            .into_iter()
            .find(|kind| kind.number() == number)
            .unwrap_or(ErrorKind::Program)
    }
}

#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// One sentence.
    pub message: String,
    pub hint: Option<String>,
    /// The reader of the command's output is gone.
    pub nobody_reads: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Error {
        Error { kind, message: message.to_string(), hint: None, nobody_reads: false }
    }

    /// What was asked for is wrong.
    pub fn input(message: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Input, message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }
}

impl From<eyas_catalog::Error> for Error {
    fn from(error: eyas_catalog::Error) -> Error {
        use eyas_catalog::Error as Of;
        let kind = match error {
            Of::Unreached { .. } | Of::Failed(_) | Of::Full { .. } => ErrorKind::Other,
            Of::Newer { .. } => ErrorKind::Input,
            ref error if error.is_of_database() => ErrorKind::Other,
            _ => ErrorKind::Input,
        };
        Error::new(kind, error)
    }
}

impl From<eyas_batch::Error> for Error {
    fn from(error: eyas_batch::Error) -> Error {
        use eyas_batch::ErrorKind as Of;
        let fault = match error.kind {
            Of::NoCommand => Error::input(error.message).hint(
                "--mode late and --mode scheduled need the commands of Slurm or Grid Engine on the PATH; --mode local needs none",
            ),
            Of::Job => Error::input(error.message),
            Of::Question => Error::new(ErrorKind::System, error.message),
            Of::Other => Error::new(ErrorKind::Other, error.message),
        };
        error.hint.into_iter().fold(fault, Error::hint)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        let nobody_reads = error.kind() == std::io::ErrorKind::BrokenPipe;
        Error { nobody_reads, ..Error::new(ErrorKind::Other, reason(&error)) }
    }
}
