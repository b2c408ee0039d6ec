//! What belongs to eyas itself, and into no data set: the catalog, which changes while it is read, folders of sites, in which the copies
//! are, and files with keys, which open more than a data set should.

use crate::catalog::Catalog;
use crate::folder::is_site;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What stands behind the name of an embedded database in the names of the files beside it.
const BESIDE: [&str; 5] = ["", "-wal", "-shm", "-journal", "-reserve"];
/// A larger file has no keys of eyas in it.
const KEYS_BYTES_MAX: u64 = 64 << 10;

/// How what belongs to eyas is known.
pub(crate) struct Own {
    /// The number of the folder of the embedded database, and the names of its files.
    database: Option<((u64, u64), Vec<OsString>)>,
}

impl Own {
    pub(crate) fn of(catalog: &Catalog) -> Own {
        let files = |path: PathBuf| {
            let path = fs::canonicalize(path).ok()?;
            let folder = fs::metadata(path.parent()?).ok()?;
            let name = path.file_name()?;
            let beside = BESIDE.iter().map(|behind| {
                let mut name = name.to_owned();
                name.push(behind);
                name
            });
            Some(((folder.dev(), folder.ino()), beside.collect()))
        };
        Own { database: catalog.file().and_then(files) }
    }

    /// What a file or a folder is, if it belongs to eyas.
    pub(crate) fn is_own(&self, path: &Path) -> Option<&'static str> {
        let found = fs::metadata(path).ok()?;
        if found.is_dir() {
            return is_site(path).then_some("the folder of a site");
        }
        if self.is_of_database(path) {
            return Some("a file of the catalog");
        }
        (found.is_file() && found.len() <= KEYS_BYTES_MAX && has_keys(path))
            .then_some("a file with keys of eyas")
    }

    fn is_of_database(&self, path: &Path) -> bool {
        let Some((folder, names)) = &self.database else { return false };
        if !path.file_name().is_some_and(|name| names.iter().any(|own| own == name)) {
            return false;
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::metadata(above).is_ok_and(|found| (found.dev(), found.ino()) == *folder)
    }
}

/// Whether a file is the join file of a store, a hub, a cluster or a user.
fn has_keys(path: &Path) -> bool {
    let Ok(mut file) = fs::File::open(path) else { return false };
    let mut first = [0];
    // Most files are seen to be none by their first byte.
    if file.read_exact(&mut first).is_err() || first != *b"{" {
        return false;
    }
    let mut text = first.to_vec();
    let has_read = file.take(KEYS_BYTES_MAX).read_to_end(&mut text).is_ok();
    let value = has_read.then(|| serde_json::from_slice::<serde_json::Value>(&text).ok()).flatten();
    value.is_some_and(|value| ["secret", "key_pem"].iter().all(|key| value.get(key).is_some()))
}
