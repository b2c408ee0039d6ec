//! Detects a dispatcher's directory that was copied.
//!
//! Two dispatchers with the same journal would each run the tasks that are left. The journal's lock keeps two
//! processes out of one directory, but not out of two directories with the same content. So `place.json`
//! records the directory's number in the file system and the name of its machine. A copy has another number;
//! a directory that was renamed has the same.

use super::DispatcherError;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) const PLACE_FILE: &str = "place.json";

#[derive(Serialize, Deserialize)]
struct Place {
    host: String,
    inode: u64,
    /// The directory's path at that time, for users.
    path: String,
}

fn io_error(path: &Path, source: std::io::Error) -> DispatcherError {
    DispatcherError::Dir { path: path.display().to_string(), source }
}

fn place_of(dir: &Path) -> Result<Place, DispatcherError> {
    let inode = std::fs::metadata(dir).map_err(|e| io_error(dir, e))?.ino();
    Ok(Place { host: crate::executor::host_name(), inode, path: dir.display().to_string() })
}

/// Whether the directory has a record of its place. `Err`: by the record, it is a copy of another directory.
pub(super) fn check(dir: &Path) -> Result<bool, DispatcherError> {
    let path = dir.join(PLACE_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(io_error(&path, e)),
    };
    let here = place_of(dir)?;
    let bad = |why: String| DispatcherError::Config(format!("`{}` {why}", dir.display()));
    let Ok(kept) = serde_json::from_str::<Place>(&text) else {
        return Err(bad(format!(
            "has a `{PLACE_FILE}` that cannot be read; remove that file if this directory is no copy"
        )));
    };
    if (&kept.host, kept.inode) == (&here.host, here.inode) {
        return Ok(true);
    }
    Err(bad(format!(
        "is a copy of `{}` on {}: two dispatchers with one journal would run the same tasks twice; if the other one is \
         gone for good, remove `{PLACE_FILE}` here and start again",
        kept.path, kept.host
    )))
}

/// Writes the record of the directory's place.
pub(super) fn keep(dir: &Path) -> Result<(), DispatcherError> {
    let (path, fresh) = (dir.join(PLACE_FILE), dir.join("place.tmp"));
    let bytes = serde_json::to_vec_pretty(&place_of(dir)?).expect("plain values");
    std::fs::write(&fresh, bytes)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .map_err(|e| io_error(&path, e))
}
