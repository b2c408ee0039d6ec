//! Finds out whether a file was opened before it had its bytes.
//!
//! A call that the kernel carries out by itself may find another file than the one that its path led to when the supervisor looked: the
//! program, or somebody else, has changed the path or a link in between. The kernel's notices (inotify) come in the order of what
//! happened. Whoever fills a file opens it by a name in another directory, and touches it when all bytes are there. So each opening
//! before that was another one. The kernel makes one notice of several equal ones in a row, which is enough.

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

pub(crate) struct Watch {
    notices: OwnedFd,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The numbers of files that are not full, by directory and name.
    files: HashMap<(i32, OsString), u64>,
    /// The numbers of files that were opened too early.
    early: Vec<u64>,
    /// The kernel had more notices than it keeps.
    has_lost: bool,
}

/// What was seen.
pub(crate) struct Early {
    pub(crate) numbers: Vec<u64>,
    pub(crate) has_lost: bool,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Watch> {
        // SAFETY: a plain call.
        let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it has just been opened, and nobody else has it.
        Ok(Watch { notices: unsafe { OwnedFd::from_raw_fd(fd) }, seen: Mutex::default() })
    }

    /// Begins to watch a directory in which these empty files are, by name and number.
    ///
    /// # Errors
    /// This user watches as many directories as they may.
    pub(crate) fn add<'a>(
        &self,
        directory: &Path,
        files: impl Iterator<Item = (&'a OsStr, u64)>,
    ) -> io::Result<()> {
        let path = CString::new(directory.as_os_str().as_bytes())?;
        let mask = libc::IN_OPEN | libc::IN_ATTRIB | libc::IN_ONLYDIR;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the text ends in a NUL byte and lives until the call is over.
        let watch = unsafe { libc::inotify_add_watch(self.notices.as_raw_fd(), path.as_ptr(), mask) };
        if watch < 0 {
            return Err(io::Error::last_os_error());
        }
        seen.files.extend(files.map(|(name, number)| ((watch, name.to_owned()), number)));
        Ok(())
    }

    /// Waits for notices; `false`: nobody can wait for them.
    pub(crate) fn wait(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.notices.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel writes where it may.
        let n = unsafe { libc::poll(&mut poll, 1, -1) };
        n > 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    }

    /// Takes in the notices that are there.
    pub(crate) fn take(&self) {
        const HEAD: usize = size_of::<libc::inotify_event>();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0_u8; 64 << 10];
        loop {
            // SAFETY: the kernel writes where it may.
            let n = unsafe { libc::read(self.notices.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
            let Some(mut rest) = usize::try_from(n).ok().filter(|n| *n > 0).map(|n| &bytes[..n]) else {
                return;
            };
            while rest.len() >= HEAD {
                // SAFETY: the kernel writes whole events, and any bytes are one.
                let event = unsafe { rest.as_ptr().cast::<libc::inotify_event>().read_unaligned() };
                let end = (HEAD + event.len as usize).min(rest.len());
                let name = rest[HEAD..end].split(|byte| *byte == 0).next().unwrap_or_default();
                seen.note(event.wd, OsStr::from_bytes(name), event.mask);
                rest = &rest[end..];
            }
        }
    }

    /// What was opened too early until now.
    pub(crate) fn early(&self) -> Early {
        self.take();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Early { numbers: seen.early.clone(), has_lost: seen.has_lost }
    }
}

impl Seen {
    fn note(&mut self, directory: i32, name: &OsStr, mask: u32) {
        self.has_lost |= mask & libc::IN_Q_OVERFLOW != 0;
        let key = (directory, name.to_owned());
        let Some(number) = self.files.get(&key) else { return };
        if mask & libc::IN_OPEN != 0 {
            self.early.push(*number);
        }
        if mask & libc::IN_ATTRIB != 0 {
            self.files.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_who_comes_before_the_bytes_is_early() {
        let dir = tempfile::tempdir().unwrap();
        let apart = tempfile::tempdir().unwrap();
        let names = ["untouched", "filled", "early", "meanwhile"];
        for name in names {
            File::create(dir.path().join(name)).unwrap().set_len(5).unwrap();
        }
        let watch = Watch::new().unwrap();
        watch.add(dir.path(), names.iter().map(OsStr::new).zip(1..)).unwrap();
        let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
        let begin = |name: &str| {
            let second = apart.path().join(name);
            fs::hard_link(dir.path().join(name), &second).unwrap();
            fs::set_permissions(&second, fs::Permissions::from_mode(0o644)).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&second).unwrap();
            fs::remove_file(&second).unwrap();
            file
        };
        let end = |name: &str, file: File| {
            drop(file);
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o444)).unwrap();
        };
        end("filled", begin("filled"));
        read("filled");
        read("early");
        end("early", begin("early"));
        read("early");
        let filling = begin("meanwhile");
        read("meanwhile");
        end("meanwhile", filling);
        read("meanwhile");
        assert!(watch.wait());
        let Early { numbers, has_lost } = watch.early();
        assert_eq!((numbers, has_lost), (vec![3, 4], false));
    }
}
