//! Finds out whether a file was opened before it had its bytes.
//!
//! A call that the kernel carries out by itself may find another file than the one that its path led to when the supervisor looked: the
//! program, or somebody else, has changed the path or a link in between. The kernel's notices (inotify) come in the order of what
//! happened. Whoever fills a file opens it by a name in another directory, and touches it when all bytes are there. So each opening
//! before that was another one. The kernel makes one notice of several equal ones in a row, which is enough.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

pub(crate) struct Watch {
    notices: OwnedFd,
    seen: Mutex<SeenFiles>,
}

#[derive(Default)]
struct SeenFiles {
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
        let notices = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Watch { notices, seen: Mutex::default() })
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
        let mask = WatchFlags::OPEN | WatchFlags::ATTRIB | WatchFlags::ONLYDIR;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = inotify::add_watch(&self.notices, directory, mask)?;
        seen.files.extend(files.map(|(name, number)| ((watch, name.to_owned()), number)));
        Ok(())
    }

    /// Waits for notices; `false`: nobody can wait for them.
    pub(crate) fn wait(&self) -> bool {
        match poll(&mut [PollFd::new(&self.notices, PollFlags::IN)], None) {
            Ok(n) => n > 0,
            Err(error) => error == Errno::INTR,
        }
    }

    /// Takes in the notices that are there.
    pub(crate) fn take(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [MaybeUninit::uninit(); 64 << 10];
        let mut notices = inotify::Reader::new(&self.notices, &mut bytes);
        while let Ok(event) = notices.next() {
            let name = event.file_name().map_or(&[][..], CStr::to_bytes);
            seen.note(event.wd(), OsStr::from_bytes(name), event.events());
        }
    }

    /// What was opened too early until now.
    pub(crate) fn early(&self) -> Early {
        self.take();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Early { numbers: seen.early.clone(), has_lost: seen.has_lost }
    }
}

impl SeenFiles {
    fn note(&mut self, directory: i32, name: &OsStr, mask: ReadFlags) {
        self.has_lost |= mask.contains(ReadFlags::QUEUE_OVERFLOW);
        let key = (directory, name.to_owned());
        let Some(number) = self.files.get(&key) else { return };
        if mask.contains(ReadFlags::OPEN) {
            self.early.push(*number);
        }
        if mask.contains(ReadFlags::ATTRIB) {
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
