//! A directory as one object: its bytes, its size before they are read, and a directory again.
//!
//! Equal trees give equal bytes, whoever made them, when and in which order: names are sorted by their bytes,
//! and the only permission that is kept is whether a file may be executed. Owners, other permissions and hard
//! links are not kept. Times are not in the bytes either: they are told beside them ([`Tree::times`], [`Times`]). Long runs of zeros become holes ([`holes`]).
//!
//! The bytes are [`MAGIC`], then each entry of the directory as a letter, the length of its name (4 bytes,
//! the lowest first) and its name:
//!
//! | letter | is | after its name |
//! |---|---|---|
//! | `f` | a file | its size (8 bytes) and its bytes |
//! | `x` | a file that may be executed | the same |
//! | `l` | a symbolic link | the length of where it leads (4 bytes), and where |
//! | `d` | a directory | what is in it, to its `.` |
//! | `.` | the end of a directory, also of the outermost; it has no name | |
//!
//! Invariants:
//!   1. *one way to say it*: there is exactly one sequence of bytes for a tree, and [`unpack`] refuses every other one;
//!   2. *nothing leads out*: a name is one name (no `/`, not `..`), no name is there twice, and a link leads to a place within the
//!      directory: `..` only at its beginning, and no more of them than the link is deep. So neither making the tree nor
//!      following its links ends elsewhere;
//!   3. what is neither a file nor a directory nor such a link is refused by its name.
//!
//! Why not tar: it has many ways to say one tree, extensions for long names, and paths that have to be checked for where they
//! lead. The form is that of Nix's archives, which they have for the same reason.
//!
//! Not here: digests, and where a directory is brought to; what changes while it is read is noticed as far as sizes and
//! times tell.

#![forbid(unsafe_code)]

mod below;
pub mod holes;
mod mount;
mod pack;
mod room;
mod tree;
mod unpack;
mod walk;

pub use below::{OpenDirectory, is_one_name, open_parent, why_not_below};
pub use mount::place_of_mount;
pub use pack::Packed;
pub use room::has_room;
pub use tree::{Tree, UNKNOWN_TIME_NS, leads_out, time_of};
pub use unpack::{Modes, Times, remove, unpack};
pub use walk::{AGAIN, AGAIN_MAX, Above, Below, Kind, LeftOut, NOT_UTF8, NOWHERE, files_below, look};

use eyas_text::shown_bytes;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The beginning of the bytes of each directory.
pub const MAGIC: &[u8; 11] = b"eyas-dir 1\n";

/// Longest name of a file, as the kernel has it.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest place where a link leads.
const TARGET_BYTES_MAX: usize = 4095;
/// Longest path below a directory.
const PATH_BYTES_MAX: usize = 4096;

const FILE: u8 = b'f';
const PROGRAM: u8 = b'x';
const LINK: u8 = b'l';
const DIRECTORY: u8 = b'd';
const END: u8 = b'.';

/// Why a directory cannot be one object, or why bytes are no directory.
#[derive(Debug)]
pub enum Error {
    /// There is an entry that no object can have. `path` is relative to the directory; `what` says what it
    /// is: "a socket".
    Refused { path: PathBuf, what: String },
    /// It is no directory; `what` says what it is: "a file".
    NotADirectory { what: &'static str },
    /// The file or directory has changed since it was examined.
    Changed { path: PathBuf },
    /// The bytes do not describe a directory.
    Damaged { why: &'static str },
    /// The work is no longer wanted.
    GivenUp,
    /// `path` is relative to the directory; an empty path is the directory itself, or the bytes.
    Io { path: PathBuf, source: io::Error },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        |source| Error::Io { path: path.to_path_buf(), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &'_ Path| shown_bytes(path.as_os_str().as_bytes()).to_string();
        match self {
            Error::Refused { path, what } => write!(f, "{} in it is {what}", name(path)),
            Error::NotADirectory { what } => write!(f, "it is {what}, not a directory"),
            Error::Changed { path } => write!(f, "{} in it changed while it was being read", name(path)),
            Error::Damaged { why } => write!(f, "these are not the bytes of a directory: {why}"),
            Error::GivenUp => f.write_str("nobody wants it any more"),
            Error::Io { path, source } if path.as_os_str().is_empty() => source.fmt(f),
            Error::Io { path, source } => write!(f, "{} in it: {source}", name(path)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// For readers and writers that use `std::io`; the [`Error`] is inside the `io::Error`.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Io { path, source } if path.as_os_str().is_empty() => source,
            Error::Io { ref source, .. } => io::Error::new(source.kind(), error),
            other => io::Error::other(other),
        }
    }
}
