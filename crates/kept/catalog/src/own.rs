//! What belongs to eyas itself, and into no data set: the catalog, which changes while it is read, folders of sites, in which the copies
//! are, and files with keys, which open more than a data set should.

use crate::catalog::Catalog;
use crate::folder::is_site;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What stands behind the name of an embedded database in the names of the files beside it.
const BESIDE: [&str; 6] = ["", "-wal", "-shm", "-journal", "-reserve", "-last"];
/// A larger file has no keys of eyas in it.
const KEYS_BYTES_MAX: u64 = 64 << 10;

/// How what belongs to eyas is known. By default no catalog is.
#[derive(Default)]
pub(crate) struct Own {
    /// The files of the embedded database, as far as they are there.
    database: Vec<PathBuf>,
}

impl Own {
    pub(crate) fn of(catalog: &Catalog) -> Own {
        let files = |path: PathBuf| {
            let path = fs::canonicalize(path).ok()?;
            let beside = |behind: &&str| {
                let mut path = path.clone().into_os_string();
                path.push(behind);
                PathBuf::from(path)
            };
            Some(BESIDE.iter().map(beside).collect())
        };
        Own { database: catalog.file().and_then(files).unwrap_or_default() }
    }

    /// What a file or a folder is, if it belongs to eyas.
    pub(crate) fn is_own(&self, path: &Path) -> Option<&'static str> {
        let found = fs::metadata(path).ok()?;
        if found.is_dir() {
            // Whatever name leads there: a link may show a part of a site.
            let real = fs::canonicalize(path).ok()?;
            let is_objects = |folder: &Path| {
                folder.file_name().is_some_and(|name| name == "objects")
                    && folder.parent().is_some_and(is_site)
            };
            return match is_site(&real) || real.ancestors().any(is_objects) {
                true => Some("the folder of a site"),
                false => is_journal(&real).then_some("the journal of a cluster"),
            };
        }
        if self.is_of_database(&found) {
            return Some("a file of the catalog");
        }
        (found.is_file() && found.len() <= KEYS_BYTES_MAX && has_keys(path))
            .then_some("a file with keys of eyas")
    }

    /// By what the file is, not by its name.
    fn is_of_database(&self, found: &fs::Metadata) -> bool {
        let is_it = |own: fs::Metadata| (own.dev(), own.ino()) == (found.dev(), found.ino());
        self.database.iter().any(|path| fs::metadata(path).is_ok_and(is_it))
    }
}

/// Whether a folder has records of tasks with their environments in it, and changes while it is read.
fn is_journal(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "journal")
        && folder.join("lock").is_file()
        && fs::read_dir(folder).is_ok_and(|mut entries| {
            entries.any(|entry| {
                entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"segment-"))
            })
        })
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
