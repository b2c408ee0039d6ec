//! Detects a dispatcher's directory that was copied.
//!
//! Two dispatchers with the same journal would each run the tasks that are left. The journal's lock keeps two
//! processes out of one directory, but not out of two directories with the same content. So `place.json`
//! records the directory's number in the file system and the name of its machine. A copy has another number;
//! a directory that was renamed has the same.

use super::{DispatcherError, dir_error};
use crate::files;
use eyas_host::host_name;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const PLACE_FILE: &str = "place.json";

#[derive(Serialize, Deserialize)]
struct FolderPlace {
    host: String,
    inode: u64,
    /// The directory's path at that time, for users.
    path: String,
}

fn place_of(dir: &Path) -> Result<FolderPlace, DispatcherError> {
    let inode = std::fs::metadata(dir).map_err(|e| dir_error(dir, e))?.ino();
    Ok(FolderPlace { host: host_name(), inode, path: dir.display().to_string() })
}

/// Whether the directory has a record of its place. `Err`: by the record, it is a copy of another directory.
pub(super) fn check(dir: &Path) -> Result<bool, DispatcherError> {
    let path = dir.join(PLACE_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(dir_error(&path, e)),
    };
    let here = place_of(dir)?;
    let bad = |why: String| DispatcherError::Config(format!("`{}` {why}", dir.display()));
    let Ok(kept) = serde_json::from_slice::<FolderPlace>(text.as_bytes()) else {
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
    let path = dir.join(PLACE_FILE);
    let bytes = serde_json::to_vec_pretty(&place_of(dir)?).expect("plain values");
    files::replace(&path, &bytes).map_err(|e| dir_error(&path, e))
}

/// Reports that the directory may have been moved or copied without its place file; the two cannot be
/// distinguished.
pub(super) fn say_moved(dir: &Path) {
    eyas_text::say!(
        "eyas: {dir} has a journal and no `{PLACE_FILE}`: its runs go on here, and tasks that executors of an earlier \
         dispatcher have run again; where the journal was copied, see that the other dispatcher is gone for good, as \
         both would run the same tasks",
        dir = eyas_text::shown_path(dir)
    );
}
