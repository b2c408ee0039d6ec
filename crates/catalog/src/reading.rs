//! From a version to files on this machine: every byte is verified, and a copy that turns out to be damaged is noted.

use crate::access::{Caller, Right};
use crate::catalog::Catalog;
use crate::copying::beside;
use crate::error::{Error, Result};
use crate::holding::{self, Given, Holding};
use crate::key::Key;
use crate::sealed::File;
use crate::sites::ReplicaState;
use eyas_data::Digest;
use eyas_text::{shown, shown_path};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// A version that a caller reads.
pub struct Reader<'a> {
    catalog: &'a Catalog,
    key: Key,
    now_ms: i64,
    files: Vec<File>,
    /// The sites with a good copy of each object.
    holders: HashMap<Digest, Vec<String>>,
    /// These sites, or why one cannot be reached.
    reached: BTreeMap<String, std::result::Result<Box<dyn Holding>, Error>>,
}

/// What was copied from sites.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Got {
    pub size_bytes: u64,
    /// The sites that gave the files, by name.
    pub sites: BTreeSet<String>,
}

impl Catalog {
    /// Begins to read a version.
    ///
    /// # Errors
    /// The caller has not got the right to read it, or there is none.
    pub fn reader(&self, caller: &Caller, key: &Key, now_ms: i64) -> Result<Reader<'_>> {
        self.require(caller, key, Right::Read)?;
        let files = self.files(caller, key)?;
        let holders = self.holders(caller, key)?;
        let mut reached = BTreeMap::new();
        for site in holders.values().flatten() {
            if !reached.contains_key(site) {
                reached.insert(site.clone(), self.holding(site));
            }
        }
        Ok(Reader { catalog: self, key: key.clone(), now_ms, files, holders, reached })
    }
}

impl Reader<'_> {
    /// The files, by path.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The file at a path.
    pub fn file(&self, path: &str) -> Result<&File> {
        let found = self.files.binary_search_by(|file| file.path.as_str().cmp(path));
        found.map(|n| &self.files[n]).map_err(|_| {
            let key = &self.key;
            Error::NotFound(format!("`{key}` has no file {}: `eyas data ls {key}` lists them", shown(path)))
        })
    }

    /// Copies a file to `target`, which appears whole or not at all, from the first site that gives its bytes. Returns that site.
    pub fn get(&self, file: &File, target: &Path) -> Result<&str> {
        let mut last = None;
        for site in self.holders.get(&file.digest).into_iter().flatten() {
            let from = match &self.reached[site] {
                Ok(from) => from,
                Err(error) => {
                    last = Some(Error::Unreached { site: site.clone(), reason: error.reason() });
                    continue;
                }
            };
            match holding::get(&**from, file.digest, target, file.is_executable)? {
                Given::Whole => return Ok(site),
                Given::Away(error) => last = Some(error),
                Given::Damaged(error) => {
                    self.catalog.note_replicas(site, &[file.digest], ReplicaState::Bad, self.now_ms)?;
                    last = Some(error);
                }
            }
        }
        let path = shown(&file.path);
        Err(last.unwrap_or_else(|| {
            Error::NotFound(format!("no site has a good copy of {path} of `{}`", self.key))
        }))
    }

    /// Copies all files into a new directory, which appears when all are in it.
    ///
    /// # Errors
    /// `target` is there already, or a file has no good copy; then nothing appears.
    pub fn get_all(&self, target: &Path) -> Result<Got> {
        let part = beside(target);
        let done = self.fill(&part).and_then(|got| match fs::rename(&part, target) {
            Ok(()) => Ok(got),
            Err(error) => Err(cannot_write(target, &error)),
        });
        if done.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        done
    }

    fn fill(&self, directory: &Path) -> Result<Got> {
        let mut got = Got::default();
        for file in &self.files {
            let target = directory.join(&file.path);
            let parent = target.parent().expect("it is in the directory");
            fs::create_dir_all(parent).map_err(|error| cannot_write(parent, &error))?;
            let site = self.get(file, &target)?;
            got.size_bytes += file.size_bytes;
            if !got.sites.contains(site) {
                got.sites.insert(site.to_owned());
            }
        }
        Ok(got)
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::Conflict(format!("cannot write {}: {error}", shown_path(path)))
}
