//! Names from outside (of a listing, an archive, a catalog, a peer, a task list) on their way to a place below a directory.
//!
//! Two things keep what is written there within the directory. The name as a text leads nowhere else ([`why_not_below`]), and
//! whoever writes goes from one open directory to the next ([`open_parent`]), so a symbolic link on the way is never followed,
//! whoever put it there and whenever that was.

use crate::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use eyas_text::shown_bytes;
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a file cannot have this name below a directory, as the end of a sentence whose subject is the name. `None`: it can. The name
/// may have directories in it.
pub fn why_not_below(name: &[u8]) -> Option<&'static str> {
    match name {
        [] => return Some("is empty"),
        [b'/', ..] => return Some("is absolute"),
        [.., b'/'] => return Some("names a directory, not a file"),
        _ if name.contains(&0) => return Some("holds a NUL byte"),
        _ if name.len() > PATH_BYTES_MAX => return Some("has more than 4,096 bytes"),
        _ => {}
    }
    name.split(|byte| *byte == b'/').find_map(|part| match part {
        b"" => Some("has an empty part"),
        b"." => Some("has a part `.`"),
        b".." => Some("leads out with `..`"),
        part if part.len() > NAME_BYTES_MAX => Some("has a part of more than 255 bytes"),
        _ => None,
    })
}

/// Whether a name is that of a file or directory directly in a directory.
pub fn is_one_name(name: &[u8]) -> bool {
    !name.contains(&b'/') && why_not_below(name).is_none()
}

/// A directory that is open. Its path leads to this very directory, whatever becomes of its name.
pub struct OpenDirectory(OwnedFd);

impl OpenDirectory {
    /// A path of this process, for as long as the value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// # Errors
    /// There is no directory of this name: something else, or a link.
    fn enter(&self, part: &[u8]) -> io::Result<OpenDirectory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(OpenDirectory(openat(&self.0, part, flags, Mode::empty())?))
    }

    /// Makes a directory, unless there is something of its name.
    fn make(&self, part: &[u8]) -> io::Result<()> {
        match mkdirat(&self.0, part, Mode::from_raw_mode(0o777)) {
            Ok(()) => flush_directory(&self.path()),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the directory in which the file `name` is below `top`, a directory that is there. Directories on the way are made where
/// they are missing.
///
/// # Errors
/// Why `name` is no name below a directory; something on the way is no directory, or is a link.
pub fn open_parent(top: &Path, name: &Path) -> io::Result<OpenDirectory> {
    let bytes = name.as_os_str().as_bytes();
    if let Some(why) = why_not_below(bytes) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidFilename,
            format!("the name {} {why}", shown_bytes(bytes)),
        ));
    }
    let top = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(top)?;
    let mut at = OpenDirectory(top.into());
    let above = bytes.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |end| &bytes[..end]);
    for part in above.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let entered = match at.enter(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                at.make(part)?;
                at.enter(part)
            }
            entered => entered,
        };
        at = entered.map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => io::Error::new(
                io::ErrorKind::InvalidFilename,
                format!("{} on the way to it is a file or a symbolic link, no directory", shown_bytes(part)),
            ),
            _ => error,
        })?;
    }
    Ok(at)
}

/// Some network file systems cannot flush a directory, and a directory may not be readable.
pub(crate) fn flush_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        Err(e) => match e.raw_os_error() {
            Some(libc::EINVAL | libc::ENOTSUP | libc::ENOSYS | libc::EACCES | libc::EPERM) => Ok(()),
            _ => Err(e),
        },
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for name in ["a", "a/b", "..a", "a..", "...", "a\nb", "a\\..\\b", "é", &"x".repeat(255)] {
            assert_eq!(why_not_below(name.as_bytes()), None, "{name:?}");
        }
        let (long, deep) = ("x".repeat(256), "x/".repeat(2048) + "x");
        for (name, expect) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("a/", "directory"),
            ("..", "`..`"),
            ("../a", "`..`"),
            ("a/../../b", "`..`"),
            ("a/./b", "`.`"),
            ("a//b", "empty part"),
            ("a\0b", "NUL"),
            (&long, "255"),
            (&deep, "4,096"),
        ] {
            let why = why_not_below(name.as_bytes()).unwrap();
            assert!(why.contains(expect), "{name:?}: {why}");
        }
        assert!(is_one_name(b"a") && !is_one_name(b"a/b") && !is_one_name(b".."));
    }

    #[test]
    fn no_link_on_the_way_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir(&top).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, top.join("link")).unwrap();
        fs::write(top.join("file"), "").unwrap();
        for name in ["link/x", "link/d/x", "file/x", "../x", "/x"] {
            let error = open_parent(&top, Path::new(name)).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidFilename, "{name}: {error}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let opened = open_parent(&top, Path::new("a/b/x")).unwrap();
        fs::write(opened.path().join("x"), "here").unwrap();
        assert_eq!(fs::read(top.join("a/b/x")).unwrap(), b"here");
        // A link to the top itself is its user's.
        symlink(&top, dir.path().join("way")).unwrap();
        open_parent(&dir.path().join("way"), Path::new("a/y")).unwrap();
    }
}
