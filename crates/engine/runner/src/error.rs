//! Errors of this crate: what was tried, on what, and whether trying again can help.

use std::io;

/// Whether trying the same thing again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The same request fails again.
    Permanent,
    /// It may work later or elsewhere.
    Temporary,
    /// The error was temporary, the request was tried again, and it still failed.
    Persistent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The peer sent bytes that are no frame of this protocol.
    Protocol,
    /// The operating system refused.
    System,
    /// No bytes or inodes left on the file system.
    NoSpace,
}

/// An error with its operation and object; one clear sentence when displayed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {context}: {source}")]
pub struct Error {
    pub kind: ErrorKind,
    pub status: Status,
    pub operation: &'static str,
    pub context: String,
    #[source]
    pub source: io::Error,
}

impl Error {
    /// Classifies a system error met while doing `operation` on `context`.
    pub fn system(operation: &'static str, context: impl Into<String>, source: io::Error) -> Self {
        let (kind, status) = match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => (ErrorKind::NoSpace, Status::Temporary),
            Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EINTR) => {
                (ErrorKind::System, Status::Temporary)
            }
            _ => (ErrorKind::System, Status::Permanent),
        };
        Self { kind, status, operation, context: context.into(), source }
    }

    pub(crate) fn protocol(context: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Protocol,
            status: Status::Permanent,
            operation: "decode",
            context: context.into(),
            source: io::Error::new(io::ErrorKind::InvalidData, what.into()),
        }
    }
}
