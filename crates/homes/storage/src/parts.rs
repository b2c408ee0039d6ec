//! Names of parts: temporary files and directories of objects that are on their way to a `file` home.
//!
//! A name is `.eyas-part-<work>-<epoch>-<number>-<unique>`, see [`Part`]: short, so a target of the longest allowed length
//! still works. Who may remove a part is said in [`crate::kinds::file`].

use crate::error::Result;
use crate::put::Part;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Begins the name of every part. A part is no user's file yet, so names that begin so are never listed.
pub const PART_PREFIX: &str = ".eyas-part-";

/// An unused name in `directory`, for a part of the object `name`.
pub(crate) fn part_path(directory: &Path, name: &[u8], part: &Part) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Part { work, epoch, number, .. } = *part;
    let work = if work == 0 { crate::fnv1a64(name) } else { work };
    // Unique among threads by the count, among processes by pid and time, among nodes by chance; where chance
    // fails, exclusive creation notices.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = (u64::from(std::process::id()) << 32) ^ now.as_nanos() as u64;
    let unique = crate::splitmix64(seed ^ crate::splitmix64(COUNT.fetch_add(1, Ordering::Relaxed)));
    directory.join(format!("{PART_PREFIX}{work:016x}-{epoch:016x}-{number:08x}-{unique:016x}"))
}

/// The parts in a directory, with their writers.
pub(crate) fn parts_in(directory: &Path) -> io::Result<Vec<(Part, PathBuf)>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some(part) = entry.file_name().to_str().and_then(part_named) {
            parts.push((part, entry.path()));
        }
    }
    Ok(parts)
}

/// The writer in the name of a part.
pub(crate) fn part_named(name: &str) -> Option<Part> {
    let mut fields = name.strip_prefix(PART_PREFIX)?.split('-');
    let mut next = || u64::from_str_radix(fields.next()?, 16).ok();
    let (work, epoch, number) = (next()?, next()?, next()?);
    next()?;
    Some(Part { work, epoch, number: u32::try_from(number).ok()?, replaces: false })
}

/// Removes a part, which may be a directory, and the rest of a directory whose removal under the part's name was cut short.
pub(crate) fn remove_part(path: &Path) -> io::Result<()> {
    let gone = gone(path);
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        // At once, for a writer that was stopped: it must not find half of it under the name that it would give another one.
        eyas_folder::remove(&gone)?;
        fs::rename(path, &gone)?;
    } else {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    eyas_folder::remove(&gone)
}

/// The part of a failed upload is looked for so often, with these pauses before.
const PART_PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// No further try begins after this time.
const LATE_PART_MAX: Duration = Duration::from_secs(3);

/// Removes the part of an upload that failed. The other side may make the part, or store what has come, a moment after the
/// upload broke, so the part is looked for again until it stays away.
///
/// `delete` removes it, and gives whether it was there.
pub(crate) fn remove_late_part(mut delete: impl FnMut() -> Result<bool>) -> Result<()> {
    let (mut was_there, mut n_away, mut last) = (false, 0, Ok(()));
    let begun = Instant::now();
    for pause in PART_PAUSES {
        // Another side that does not answer lets each try wait.
        if begun.elapsed() > LATE_PART_MAX {
            break;
        }
        std::thread::sleep(pause);
        (n_away, last) = match delete() {
            Ok(false) => (n_away + 1, Ok(())),
            Ok(true) => (0, Ok(())),
            Err(error) => (0, Err(error)),
        };
        was_there |= n_away == 0;
        if was_there && n_away == 2 {
            break;
        }
    }
    last
}

/// The name that a part has while it is being removed.
pub(crate) fn gone(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_owned();
    name.push("-gone");
    name.into()
}
