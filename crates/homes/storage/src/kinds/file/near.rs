//! Folders on disks of this machine, whose files can be looked at without waiting for a network.
//!
//! A look at a file takes a few microseconds there, and giving it to another thread takes ten times as long. On a
//! network's file system the same look may hang, so the thread that serves everything else must never take it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// File systems without a network behind them (`statfs`, f_type): ext2 to ext4, xfs, btrfs, tmpfs, overlay, zfs, f2fs.
const LOCAL: [u64; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010];
/// A folder whose disk took longer for one look is left to other threads from then on.
const SLOW: Duration = Duration::from_millis(50);
/// Most folders that are remembered; with more of them all are forgotten, and found again.
const FOLDERS_MAX: usize = 4096;

/// What is known of folders. Each was reached on a thread that may wait before it gets in here.
#[derive(Debug, Default)]
pub(crate) struct NearFolders {
    /// The device that a folder lies on; `None`: its files are to be looked at by threads that may wait.
    known: Mutex<HashMap<PathBuf, Option<u64>>>,
}

impl NearFolders {
    /// Remembers the folder of the file at `path`, which was just found there. May wait for a network.
    pub(crate) fn note(&self, path: &Path) {
        let Some(folder) = path.parent() else { return };
        if self.lock().contains_key(folder) {
            return;
        }
        let device = fs::metadata(folder).ok().filter(|_| is_local(folder)).map(|found| found.dev());
        let mut known = self.lock();
        if known.len() >= FOLDERS_MAX {
            known.clear();
        }
        known.insert(folder.to_path_buf(), device);
    }

    /// What is known of the file at `path`, without waiting; `None`: another thread has to look. Symbolic links are not
    /// followed, as they may lead onto a network.
    pub(crate) fn look(&self, path: &Path) -> Option<Metadata> {
        let folder = path.parent()?;
        let device = (*self.lock().get(folder)?)?;
        let start = Instant::now();
        let found = fs::symlink_metadata(path).ok().filter(|found| found.is_file() && found.dev() == device);
        if start.elapsed() > SLOW {
            self.lock().insert(folder.to_path_buf(), None);
        }
        found
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Option<u64>>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn is_local(folder: &Path) -> bool {
    file_system_of(folder).is_some_and(|kind| LOCAL.contains(&kind))
}

/// File systems whose inodes are made up by each machine that mounts them: FUSE, two of SMB, 9p, FAT, exFAT.
const MADE_UP: [u64; 6] = [0x6573_5546, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x4d44, 0x2011_bab0];

/// Whether the inodes of the file system `device`, on which the file at `path` lies, are the same wherever it is mounted. Only the
/// first question about a device asks the file system.
pub(crate) fn has_own_inodes(device: u64, path: &Path) -> bool {
    static KNOWN: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = known().get(&device) {
        return *known;
    }
    let kind = file_system_of(path);
    let has = kind.is_some_and(|kind| !MADE_UP.contains(&kind));
    // What could not be asked is asked again.
    if kind.is_some() {
        known().insert(device, has);
    }
    has
}

/// The kind of the file system that a path is on, as `statfs` numbers it (f_type); `None`: it cannot be asked.
pub fn file_system_of(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut of = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends in a NUL byte, and `of` has room for what the call writes.
    let status = unsafe { libc::statfs(path.as_ptr(), of.as_mut_ptr()) };
    // SAFETY: all bytes are initialised, and zero is a value of each field.
    let of = unsafe { of.assume_init() };
    // The type of the field differs between C libraries; the numbers have 32 bits.
    (status == 0).then_some(of.f_type as u64 & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_of_known_folders_on_their_own_device_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "four").unwrap();
        symlink(at("file"), at("link")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let near = NearFolders::default();
        assert!(near.look(&at("file")).is_none(), "nobody has been there");
        near.note(&at("file"));
        assert_eq!(near.look(&at("file")).map(|found| found.len()), Some(4));
        assert!(near.look(&at("link")).is_none(), "it may lead anywhere");
        assert!(near.look(&at("folder")).is_none());
        assert!(near.look(&at("nothing")).is_none());
        // /proc has no disk.
        near.note(Path::new("/proc/version"));
        assert!(near.look(Path::new("/proc/version")).is_none());
    }

    #[test]
    fn folders_are_forgotten_when_there_are_too_many() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let near = NearFolders::default();
        for i in 0..FOLDERS_MAX {
            near.note(&PathBuf::from(format!("/nowhere/{i}/file")));
        }
        near.note(&dir.path().join("file"));
        assert_eq!(near.lock().len(), 1);
        assert!(near.look(&dir.path().join("file")).is_some());
    }
}
