//! The directory of a journal: its lock, the names of its files, creation and removal.
//!
//! ```text
//! lock                            flock'ed by the owner, holds its pid
//! segment-<seq, 20 digits>.log    records from this number on
//! snapshot-<seq, 20 digits>.log   stands for all records up to and including this number
//! snapshot.tmp                    a compaction that has not finished
//! reached                         the number of a record that was durable when a process opened or closed the journal
//! ```

use crate::error::{Error, ErrorKind, Result};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Records hold command lines and environments, which may hold secrets: no other user may read them.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// A killed owner holds the lock until the last of its threads is gone, and so does a child of it that is
/// between `fork` and `exec`: for milliseconds, or longer on a busy machine. A restart waits this long for
/// the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

pub(crate) const SNAPSHOT_TMP: &str = "snapshot.tmp";

pub(crate) fn segment_path(dir: &Path, first_seq: u64) -> PathBuf {
    dir.join(format!("segment-{first_seq:020}.log"))
}

pub(crate) fn snapshot_path(dir: &Path, covers: u64) -> PathBuf {
    dir.join(format!("snapshot-{covers:020}.log"))
}

/// The numbers in the names of the segments and of the snapshots, ascending.
pub(crate) struct Listing {
    pub segments: Vec<u64>,
    pub snapshots: Vec<u64>,
}

/// The journal files in a directory. Files with other names are left alone: the directory is shared.
pub(crate) fn list(dir: &Path) -> io::Result<Listing> {
    let mut listing = Listing { segments: Vec::new(), snapshots: Vec::new() };
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".log")) else { continue };
        for (prefix, found) in [("segment-", &mut listing.segments), ("snapshot-", &mut listing.snapshots)] {
            if let Some(digits) = stem.strip_prefix(prefix)
                && digits.len() == 20
                && let Ok(seq) = digits.parse()
            {
                found.push(seq);
            }
        }
    }
    listing.segments.sort_unstable();
    listing.snapshots.sort_unstable();
    Ok(listing)
}

/// Creates the directory if it is absent, in a way that survives a power loss.
pub(crate) fn create_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let fail = |source| Error::io("create the journal's directory", dir, source);
    fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(fail)?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent).map_err(fail),
        _ => Ok(()),
    }
}

const REACHED: &str = "reached";

/// The number of a record up to which all were durable at some time; 0 if that is not known.
pub(crate) fn reached(dir: &Path) -> u64 {
    let text = fs::read_to_string(dir.join(REACHED)).unwrap_or_default();
    text.strip_suffix('\n').and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Remembers it. A number that is too small, or none, does no harm, so this does not fail and waits for no disk.
pub(crate) fn set_reached(dir: &Path, seq: u64) {
    if seq <= reached(dir) {
        return;
    }
    let new = dir.join("reached.tmp");
    let write = || -> io::Result<()> {
        remove(&new)?;
        writeln!(create_new(&new)?, "{seq}")?;
        fs::rename(&new, dir.join(REACHED))
    };
    if write().is_err() {
        let _ = remove(&new);
    }
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Removes a file; no error if the file is already gone.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Takes the directory for this process. The lock ends with the returned file, also on `kill -9`.
pub(crate) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let fail = |source| Error::io("lock the journal's directory", &path, source);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(&path)
        .map_err(fail)?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The text is only for the message: an owner that has not written its pid yet is an owner
                // all the same.
                let _ = file.read_to_string(&mut text);
                let pid = text.trim().parse().ok();
                return Err(Error::new(ErrorKind::InUse { pid }, "open the journal", dir));
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
    }
    // On a full disk the pid cannot be written. The lock holds nevertheless; only the owner's number is
    // missing.
    let write_pid = |file: &mut File| -> io::Result<()> {
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        writeln!(file, "{}", std::process::id())
    };
    match write_pid(&mut file) {
        Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(fail(error)),
        _ => Ok(file),
    }
}
