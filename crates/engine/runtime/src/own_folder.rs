//! The folders that a process lives in. Where they are removed or moved while it lives, it ends: what it would write next would be
//! half of what was there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// Between two looks. A folder is gone when two of them say so.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Its device and its number there; `None`: it is not there. Errors: nobody knows.
fn place_of(folder: &PathBuf) -> io::Result<Option<(u64, u64)>> {
    match std::fs::metadata(folder) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Calls `then` with a reason, on a thread of its own, when one of these folders, which are there now, is another or none.
pub fn when_gone(folders: Vec<PathBuf>, then: impl FnOnce(String) + Send + 'static) {
    let places: Vec<_> = folders.into_iter().filter_map(|at| Some((place_of(&at).ok()??, at))).collect();
    let is_gone =
        |(place, folder): &&((u64, u64), PathBuf)| place_of(folder).is_ok_and(|now| now != Some(*place));
    std::thread::spawn(move || {
        let mut n_gone = 0;
        let folder = loop {
            std::thread::sleep(LOOK_EVERY);
            match places.iter().find(is_gone) {
                Some((_, folder)) if n_gone > 0 => break folder,
                found => n_gone = usize::from(found.is_some()),
            }
        };
        then(format!("its folder {} was removed or moved", eyas_text::shown_path(folder)));
    });
}
