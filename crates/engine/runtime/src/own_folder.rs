//! The folders that a process lives in. Where they are removed or moved while it lives, it ends: what it would write next would be
//! half of what was there.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks. A folder is gone when two of them say so.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Whether nothing, or another folder, is where `folder` was opened. Errors: nobody knows. As it is open, its number is the same in
/// file systems that give a new one at each visit.
fn is_gone(path: &Path, folder: &File) -> io::Result<bool> {
    let place = |found: Metadata| (found.dev(), found.ino());
    match fs::metadata(path) {
        Ok(found) => Ok(place(found) != place(folder.metadata()?)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(true),
        Err(e) => Err(e),
    }
}

/// Calls `then` with a reason, on a thread of its own, when one of these folders, which are there now, is another or none.
pub fn when_gone(folders: Vec<PathBuf>, then: impl FnOnce(String) + Send + 'static) {
    let open = |path: PathBuf| Some((File::open(&path).ok()?, path));
    let folders: Vec<_> = folders.into_iter().filter_map(open).collect();
    std::thread::spawn(move || {
        let mut n_gone = 0;
        let path = loop {
            std::thread::sleep(LOOK_EVERY);
            let gone = folders.iter().find(|(folder, path)| is_gone(path, folder).unwrap_or(false));
            match gone {
                Some((_, path)) if n_gone > 0 => break path,
                found => n_gone = usize::from(found.is_some()),
            }
        };
        then(format!("its folder {} was removed or moved", eyas_text::shown_path(path)));
    });
}
