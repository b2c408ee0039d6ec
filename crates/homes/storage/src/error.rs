//! What went wrong at home storage, and whether trying again can help.
//!
//! Every failure of this crate is one [`Error`]: a [`ErrorKind`] for code that decides, a [`Status`] for code that
//! retries, and one sentence for people that names the location and what was tried.
//!
//! Readers handed out by adaptors speak `std::io`; there the [`Error`] travels inside the `io::Error` and
//! [`Error::from_read`] takes it out again, so nothing is lost between the two.

use eyas_text::{line_of, shown};
use std::fmt;
use std::io;
use std::time::Duration;

/// The result of every operation on home storage.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for code that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is nothing at the location (also: a symbolic link that leads nowhere).
    NotFound,
    /// It may be there, but this user may not do that to it.
    PermissionDenied,
    /// It is a directory, pipe, socket or device, and a regular file is needed.
    NotAFile,
    /// The bytes there are no longer the ones that were asked for.
    Changed,
    /// This kind of home cannot do this at all; see its `Capabilities`.
    Unsupported,
    /// The name cannot be used: unknown scheme, too long, not UTF-8, a NUL byte.
    InvalidName,
    /// The byte range does not lie inside the object.
    InvalidRange,
    /// The file system is full, or a quota is used up.
    NoSpace,
    /// This process or this machine is out of something that comes back: descriptors, memory. It says nothing about home.
    Shortage,
    /// The system uses the object for something else now. It says nothing about other objects of this home.
    InUse,
    /// The home answers that it takes no more requests now.
    Busy,
    /// An HTTP answer that has no better name here.
    Http(u16),
    /// Whoever asked for it does not want it any more, or has lost the right to it.
    GivenUp,
    /// Anything else that the system or the network reported.
    Io,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The same request will fail in the same way.
    Permanent,
    /// Trying again soon may well help.
    Temporary,
    /// The operation may work one day, but not by trying again now: retries are used up, or a person has to act first.
    Persistent,
}

/// A failed operation on home storage. One pointer wide, so results stay small.
pub struct Error(Box<Parts>);

struct Parts {
    kind: ErrorKind,
    status: Status,
    operation: &'static str,
    location: String,
    reason: String,
    context: Vec<(&'static str, String)>,
    retry_after: Option<Duration>,
    n_removed: u64,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A failure of `operation` (a verb: "read", "write") at `location`; `reason` completes the sentence
    /// "cannot read X: ...".
    pub fn new(
        kind: ErrorKind,
        status: Status,
        operation: &'static str,
        location: impl fmt::Display,
        reason: impl Into<String>,
    ) -> Error {
        Error(Box::new(Parts {
            kind,
            status,
            operation,
            location: location.to_string(),
            reason: reason.into(),
            context: Vec::new(),
            retry_after: None,
            n_removed: 0,
            source: None,
        }))
    }

    /// A failure the operating system reported, with kind and status by errno.
    pub fn from_io(operation: &'static str, location: impl fmt::Display, error: io::Error) -> Error {
        let (kind, status, reason) = classify_io(&error);
        let reason = reason.map_or_else(|| error.to_string(), str::to_owned);
        Error::new(kind, status, operation, location, reason).with_source(error)
    }

    /// The error behind a failed `Read` of an [`crate::Opened`] body: the adaptor's own if there is one.
    pub fn from_read(operation: &'static str, location: impl fmt::Display, error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(own) => own,
            Err(error) => Error::from_io(operation, location, error),
        }
    }

    /// This home cannot do `operation`.
    pub(crate) fn unsupported(operation: &'static str, location: impl fmt::Display, home: &str) -> Error {
        let reason = format!("`{home}` home storage does not support it");
        Error::new(ErrorKind::Unsupported, Status::Permanent, operation, location, reason)
    }

    /// The range `range` does not lie inside an object of `size_bytes`.
    pub(crate) fn range_outside(
        operation: &'static str,
        location: impl fmt::Display,
        range: &std::ops::Range<u64>,
        size_bytes: u64,
    ) -> Error {
        let reason = format!("bytes {}..{} do not lie inside its {size_bytes} B", range.start, range.end);
        Error::new(ErrorKind::InvalidRange, Status::Permanent, operation, location, reason)
    }

    /// The object changed under the reader; `difference` is what `Version::describe_change` says.
    pub(crate) fn changed(operation: &'static str, location: impl fmt::Display, difference: String) -> Error {
        let reason = format!("it changed since it was first looked at ({difference})");
        Error::new(ErrorKind::Changed, Status::Permanent, operation, location, reason)
    }

    /// Adds a detail of the attempt or its result, which is shown at the end of the sentence.
    pub fn with_context(mut self, key: &'static str, value: impl fmt::Display) -> Error {
        self.0.context.push((key, value.to_string()));
        self
    }

    /// Adds the underlying error.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// Adds how long the other side asked us to wait.
    pub fn with_retry_after(mut self, wait: Option<Duration>) -> Error {
        self.0.retry_after = wait;
        self
    }

    /// Adds that so many files were removed before the removal failed.
    pub(crate) fn after_removing(mut self, n_files: u64) -> Error {
        self.0.n_removed += n_files;
        self
    }

    pub(crate) fn with_status(mut self, status: Status) -> Error {
        self.0.status = status;
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether trying again can help.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// The verb: "read", "write", "stat", "list", "remove", "parse".
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The location as text.
    pub fn location(&self) -> &str {
        &self.0.location
    }

    /// What was tried or found, in order.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }

    /// Of the removal of a directory: how many files are gone although it failed, as far as the home knows.
    pub fn n_removed(&self) -> u64 {
        self.0.n_removed
    }

    /// How long the server asked us to wait (`Retry-After`).
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        write!(f, "cannot {} {}: {}", parts.operation, shown(&parts.location), parts.reason)?;
        for (index, (key, value)) in parts.context.iter().enumerate() {
            write!(f, "{}{key}: {}", if index == 0 { " (" } else { ", " }, line_of(value))?;
        }
        if parts.context.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error[{:?}, {:?}]: {self}", self.0.kind, self.0.status)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error.kind() {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// Kind, status and, where the system's words are not clear enough, better ones.
fn classify_io(error: &io::Error) -> (ErrorKind, Status, Option<&'static str>) {
    use ErrorKind::*;
    use Status::*;
    if let Some(errno) = error.raw_os_error() {
        return match errno {
            libc::ENOENT => (NotFound, Permanent, Some("there is no such file")),
            libc::ENOTDIR => (NotFound, Permanent, Some("a parent of it is not a directory")),
            libc::EACCES | libc::EPERM => (PermissionDenied, Permanent, Some("permission denied")),
            libc::EROFS => (PermissionDenied, Permanent, Some("the file system is read-only")),
            libc::EISDIR => (NotAFile, Permanent, Some("it is a directory")),
            // Opening a socket, or a device without a driver.
            libc::ENXIO | libc::ENODEV => (NotAFile, Permanent, Some("it is not a regular file")),
            libc::ENAMETOOLONG => (InvalidName, Permanent, Some("the name is too long for this file system")),
            libc::EILSEQ => (InvalidName, Permanent, Some("this file system does not accept the name")),
            libc::ELOOP => (InvalidName, Permanent, Some("its symbolic links form a circle")),
            // A full disk gets space when files on it are removed, not by asking again a moment later.
            libc::ENOSPC => (NoSpace, Persistent, Some("no space left on the device")),
            libc::EDQUOT => (NoSpace, Persistent, Some("the disk quota is used up")),
            libc::EFBIG => (NoSpace, Permanent, Some("the file would be larger than is allowed here")),
            libc::EINTR | libc::EAGAIN | libc::ETIMEDOUT => (Io, Temporary, None),
            libc::EBUSY => (InUse, Temporary, None),
            libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS => (Shortage, Temporary, None),
            // What network file systems report while a server restarts.
            libc::EIO | libc::ESTALE | libc::EREMOTEIO | libc::ENOTCONN | libc::ESHUTDOWN => {
                (Io, Temporary, None)
            }
            libc::ECONNREFUSED | libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE => (Io, Temporary, None),
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::ENETRESET => {
                (Io, Temporary, None)
            }
            _ => (Io, Permanent, None),
        };
    }
    match error.kind() {
        io::ErrorKind::NotFound => (NotFound, Permanent, None),
        io::ErrorKind::PermissionDenied => (PermissionDenied, Permanent, None),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => (InvalidName, Permanent, None),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (NoSpace, Persistent, None),
        io::ErrorKind::Interrupted
        | io::ErrorKind::WouldBlock
        | io::ErrorKind::TimedOut
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::BrokenPipe => (Io, Temporary, None),
        _ => (Io, Permanent, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_decides_kind_and_status() {
        let check = |errno, kind, status| {
            let error = Error::from_io("read", "/x", io::Error::from_raw_os_error(errno));
            assert_eq!((error.kind(), error.status()), (kind, status), "errno {errno}");
        };
        check(libc::ENOENT, ErrorKind::NotFound, Status::Permanent);
        check(libc::EACCES, ErrorKind::PermissionDenied, Status::Permanent);
        check(libc::EISDIR, ErrorKind::NotAFile, Status::Permanent);
        check(libc::ENAMETOOLONG, ErrorKind::InvalidName, Status::Permanent);
        check(libc::ENOSPC, ErrorKind::NoSpace, Status::Persistent);
        check(libc::EDQUOT, ErrorKind::NoSpace, Status::Persistent);
        check(libc::EIO, ErrorKind::Io, Status::Temporary);
        check(libc::EMFILE, ErrorKind::Shortage, Status::Temporary);
        check(libc::ENOMEM, ErrorKind::Shortage, Status::Temporary);
        check(libc::ESTALE, ErrorKind::Io, Status::Temporary);
        check(libc::EBUSY, ErrorKind::InUse, Status::Temporary);
        // A file system in user space has lost its server; a client of Lustre is cut off.
        check(libc::ENOTCONN, ErrorKind::Io, Status::Temporary);
        check(libc::ESHUTDOWN, ErrorKind::Io, Status::Temporary);
    }

    #[test]
    fn one_printable_sentence() {
        let error = Error::new(ErrorKind::NotFound, Status::Permanent, "read", "/a\nb\u{1b}[31m", "gone")
            .with_context("tries", 3)
            .with_context("last", "x\ty");
        assert_eq!(
            error.to_string(),
            "cannot read `/a\\nb\\u{1b}[31m`: gone (tries: 3, last: x\\ty)",
            "no control character may reach a terminal"
        );
    }

    #[test]
    fn survives_the_trip_through_io_error() {
        let error = Error::changed("read", "/a", "size 1 -> 2 B".into());
        let back = Error::from_read("read", "/other", error.into());
        assert_eq!((back.kind(), back.location()), (ErrorKind::Changed, "/a"));
        let plain = Error::from_read("read", "/a", io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(plain.status(), Status::Temporary);
    }
}
