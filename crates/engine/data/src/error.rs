//! One error type for the crate: what failed, on which thing, and whether trying again can help.

use std::io;
use std::sync::Arc;

use crate::Digest;

pub type Result<T> = std::result::Result<T, Error>;

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The same call will fail again.
    Permanent,
    /// The same call, or one to another holder, may succeed.
    Temporary,
    /// The call was tried again and failed each time. Set by the caller that tries again; this crate never
    /// sets it.
    Persistent,
}

/// The kind of error, for code that has to distinguish cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another process owns the cache directory.
    InUse,
    /// More bytes than the budget, or than the reservation, has left.
    OverBudget { asked_bytes: u64, free_bytes: u64 },
    /// The file system under the cache is full, takes no writes, or is not there any more.
    NoSpace,
    /// This process or this machine is out of a resource that it will have again: descriptors, memory,
    /// threads. No object or peer is to blame.
    Shortage,
    /// No such object here; ask the next source.
    NotHeld,
    /// The bytes are not those that were promised.
    DigestMismatch { expected: Digest, found: Digest },
    /// A held object was changed by another program.
    Corrupt,
    /// The holder serves as many streams as it may; ask another or later.
    Busy,
    /// The ticket is forged, expired, or made out to another executor; or the range is not valid.
    Refused,
    /// The other side does not have this cluster's secret.
    WrongSecret,
    /// The other side speaks another version of the protocol.
    WrongVersion { ours: u16, theirs: u16 },
    /// The other side violates the protocol.
    Protocol,
    /// The connection broke; the bytes that arrived are kept for a resume.
    Interrupted,
    /// No bytes moved for the idle limit.
    Timeout,
    /// No connection to the holder could be made, or somebody else is at its address.
    Unreachable,
    /// The work was stopped, see [`crate::Halt`].
    GivenUp,
    /// Any other failure of the operating system.
    Io,
}

/// An error at the boundary of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {operation}: {context}{}", .cause.as_ref().map(|s| format!(": {s}")).unwrap_or_default())]
pub struct Error {
    pub kind: ErrorKind,
    /// What was tried, as an infinitive: "fetch", "store an object".
    pub operation: &'static str,
    /// The thing that it was tried on, in words.
    pub context: String,
    /// The operating system's error. It is part of this error's text, so it is not offered as `source()`
    /// again.
    cause: Option<Arc<io::Error>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, context: impl Into<String>) -> Error {
        Error { kind, operation, context: context.into(), cause: None }
    }

    /// An error of the operating system. Only this function and [`Error::net`] interpret error numbers in
    /// this crate.
    pub(crate) fn io(operation: &'static str, context: impl Into<String>, source: io::Error) -> Error {
        let kind = match source.raw_os_error() {
            _ if source.get_ref().is_some_and(|e| e.is::<crate::halt::Halted>()) => ErrorKind::GivenUp,
            Some(libc::ENOSPC | libc::EDQUOT | libc::EROFS) => ErrorKind::NoSpace,
            // EAGAIN: no thread could be started. Files do not block.
            Some(libc::EAGAIN | libc::EINTR) => ErrorKind::Shortage,
            Some(errno) if is_shortage(errno) => ErrorKind::Shortage,
            _ => ErrorKind::Io,
        };
        Error { kind, operation, context: context.into(), cause: Some(Arc::new(source)) }
    }

    /// An error of a socket; distinguishes silence, a broken connection and a shortage on this side.
    pub(crate) fn net(operation: &'static str, context: impl Into<String>, source: io::Error) -> Error {
        let kind = match source.kind() {
            _ if source.raw_os_error().is_some_and(is_shortage) => ErrorKind::Shortage,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ErrorKind::Timeout,
            io::ErrorKind::InvalidData => ErrorKind::Protocol,
            _ => ErrorKind::Interrupted,
        };
        Error { kind, operation, context: context.into(), cause: Some(Arc::new(source)) }
    }

    /// The operating system's error, if there was one.
    pub fn cause(&self) -> Option<&io::Error> {
        self.cause.as_deref()
    }

    /// Whether the error shows that the requested object is no longer, or never was, what was stored. All
    /// other errors, above all a shortage of this process, say nothing about the object.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind, ErrorKind::Corrupt | ErrorKind::DigestMismatch { .. } | ErrorKind::NotHeld)
    }

    pub fn status(&self) -> Status {
        match self.kind {
            ErrorKind::InUse
            | ErrorKind::Refused
            | ErrorKind::WrongSecret
            | ErrorKind::WrongVersion { .. }
            | ErrorKind::Protocol
            | ErrorKind::GivenUp
            | ErrorKind::Io => Status::Permanent,
            ErrorKind::OverBudget { .. }
            | ErrorKind::NoSpace
            | ErrorKind::Shortage
            | ErrorKind::NotHeld
            | ErrorKind::DigestMismatch { .. }
            | ErrorKind::Corrupt
            | ErrorKind::Busy
            | ErrorKind::Interrupted
            | ErrorKind::Timeout
            | ErrorKind::Unreachable => Status::Temporary,
        }
    }
}

/// Whether the operating system reported a shortage of something that it, or this process, will have again.
pub(crate) fn is_shortage(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_this_node_is_neither_damage_nor_the_end_of_a_peer() {
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            let error = || io::Error::from_raw_os_error(errno);
            assert_eq!(Error::io("read", "x", error()).kind, ErrorKind::Shortage);
            assert_eq!(Error::net("fetch", "x", error()).kind, ErrorKind::Shortage);
            assert_eq!(Error::io("read", "x", error()).status(), Status::Temporary);
        }
        let net = |errno| Error::net("fetch", "x", io::Error::from_raw_os_error(errno)).kind;
        assert_eq!(net(libc::EAGAIN), ErrorKind::Timeout);
        assert_eq!(net(libc::ECONNRESET), ErrorKind::Interrupted);
        let io = |errno| Error::io("store", "x", io::Error::from_raw_os_error(errno)).kind;
        assert_eq!((io(libc::ENOSPC), io(libc::EROFS)), (ErrorKind::NoSpace, ErrorKind::NoSpace));
        assert_eq!(io(libc::EIO), ErrorKind::Io);
    }
}
