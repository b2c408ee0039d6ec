//! From a version to files on this machine: every byte is verified, and a copy that turns out to be damaged is noted.

use crate::access::{Caller, known, require};
use crate::asking::Sites;
use crate::catalog::Catalog;
use crate::copying::beside;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::holding::{self, Condition, CopyEnd, Holding};
use crate::key::Key;
use crate::rights::Right;
use crate::rows::{digest_of, row_of, version_of};
use crate::sealed::File;
use crate::sets::{Draft, path_of};
use crate::sites::{Marked, OnTheirWay, Site, host_of};
use crate::tags::Tag;
use crate::values;
use eyas_data::Digest;
use eyas_text::{shown, shown_path};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A version that a caller reads.
pub struct SetReader<'a> {
    catalog: &'a Catalog,
    key: Key,
    now_ms: i64,
    files: Vec<File>,
    /// The sites with a good copy of each object.
    holders: HashMap<Digest, Vec<String>>,
    sites: Sites<'a>,
    /// Those of them that are on this machine.
    near: BTreeSet<String>,
    /// The site that the reader has chosen.
    only: Option<String>,
    /// Bytes that each site gave of each object.
    read: Mutex<BTreeMap<String, HashMap<Digest, u64>>>,
}

/// What was copied from sites.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Got {
    pub size_bytes: u64,
    /// The sites that gave the files, by name.
    pub sites: BTreeSet<String>,
}

/// A file that a caller may read, and the sites with a good copy of it: folders first.
pub(crate) struct Readable {
    pub(crate) file: File,
    pub(crate) holders: Vec<Holder>,
}

/// A site with a copy.
pub(crate) struct Holder {
    pub(crate) name: String,
    /// See [`Site::address`].
    pub(crate) address: String,
    pub(crate) is_store: bool,
    /// The mark that its copy had; 0 where no copy is meant.
    pub(crate) mark: i64,
}

impl Holder {
    pub(crate) fn of(site: &Site) -> Holder {
        Holder { name: site.name.clone(), address: site.address.clone(), is_store: site.is_store, mark: 0 }
    }

    /// The name or address of the machine of a store; `None` for a folder.
    pub(crate) fn host(&self) -> Option<&str> {
        self.is_store.then(|| host_of(&self.address))
    }
}

/// The files of a version, or the one at a path.
fn files_of(db: &mut dyn Db, version_id: i64, path: Option<&str>) -> Result<Vec<(i64, File)>> {
    let sql = "SELECT o.id, f.path, o.size_bytes, o.digest, f.is_executable FROM file f \
               JOIN object o ON o.id = f.object_id WHERE f.version_id = ?1 AND f.path = ?2";
    let all = "SELECT o.id, f.path, o.size_bytes, o.digest, f.is_executable FROM file f \
               JOIN object o ON o.id = f.object_id WHERE f.version_id = ?1 LIMIT 2";
    let rows = match path {
        Some(path) => db.query(sql, values![version_id, path])?,
        None => db.query(all, values![version_id])?,
    };
    let file = |row: &crate::db::Row| {
        let (path, digest, is_executable) = (path_of(row, 1)?, digest_of(row, 3)?, row.int(4) != 0);
        Ok((row.int(0), File { path, size_bytes: row.int(2) as u64, digest, is_executable }))
    };
    rows.iter().map(file).collect()
}

/// See [`Catalog::only_file`].
fn only_file(db: &mut dyn Db, caller: &Caller, key: &Key, path: &str) -> Result<Option<File>> {
    let Some(set) = row_of(db, &key.label)?.filter(|set| set.newest > 0 && !set.is_removed) else {
        return Ok(None);
    };
    require(db, caller, &set, Right::Write)?;
    let (version_id, number) = version_of(db, &set, key)?;
    let mut files = files_of(db, version_id, None)?;
    match (files.pop(), files.pop()) {
        (Some((_, file)), None) if file.path == path => Ok(Some(file)),
        _ => Err(Error::Conflict(format!(
            "version {number} of `{}` has other files, and what a run writes is a data set of one file: choose \
                 another label",
            key.label
        ))),
    }
}

/// No site has a good copy of a file, or the one that was chosen has none.
pub(crate) fn no_copy(site: Option<&str>, key: &Key, path: &str) -> Error {
    let path = shown(path);
    Error::NotFound(match site {
        Some(site) => format!(
            "the site `{site}` has no good copy of {path} of `{key}`: `eyas data where {key}` says which sites have one"
        ),
        None => format!("no site has a good copy of {path} of `{key}`"),
    })
}

impl Catalog {
    /// A file of a version, for reading.
    ///
    /// # Errors
    /// The caller has not got the right to read it, or there is none.
    pub(crate) fn readable(&self, caller: &Caller, key: &Key, path: &str) -> Result<Readable> {
        let db = &mut **self.db();
        let set = known(db, caller, &key.label)?;
        require(db, caller, &set, Right::Read)?;
        let (version_id, _) = version_of(db, &set, key)?;
        let Some((object_id, file)) = files_of(db, version_id, Some(path))?.pop() else {
            return Err(Error::NotFound(format!(
                "`{key}` has no file {}: `eyas data ls {key}` lists them",
                shown(path)
            )));
        };
        let sql = "SELECT s.name, s.address, s.is_store, r.mark FROM replica r JOIN site s ON s.id = r.site_id \
                   WHERE r.object_id = ?1 AND r.state = 'ready' AND s.state <> 'gone' ORDER BY s.name";
        let rows = db.query(sql, values![object_id])?;
        let mut holders: Vec<Holder> = rows
            .iter()
            .map(|row| Holder {
                name: row.text(0),
                address: row.text(1),
                is_store: row.int(2) != 0,
                mark: row.int(3),
            })
            .collect();
        holders.sort_by_key(|holder| holder.is_store);
        Ok(Readable { file, holders })
    }

    /// The file that the newest version has and no other; `None`: there is no version yet.
    ///
    /// # Errors
    /// The newest version has other files.
    pub(crate) fn only_file(&self, caller: &Caller, key: &Key, path: &str) -> Result<Option<File>> {
        only_file(&mut **self.db(), caller, key, path)
    }

    /// Commits a version of one file, where no version with other files came in between.
    ///
    /// # Errors
    /// As [`Catalog::commit`] and [`Catalog::only_file`].
    pub(crate) fn commit_alone(
        &self,
        caller: &Caller,
        draft: &Draft,
        path: &str,
        tags: &[Tag],
        now_ms: i64,
    ) -> Result<()> {
        let newest = Key { label: draft.key.label.clone(), version: None };
        self.commit_if(caller, draft, tags, now_ms, &|db| only_file(db, caller, &newest, path).map(|_| ()))
    }

    /// Has a site read a copy through that a reader found to be damaged or missing, and notes what it says. What is not there is
    /// bad until an audit has said that it is missing.
    pub fn doubt(&self, holding: &dyn Holding, digest: Digest, now_ms: i64) -> Result<()> {
        let look = || {
            let copies = self.copies_to_read(holding, &[digest])?;
            let mut found = vec![];
            let digests: Vec<Digest> = copies.iter().map(|copy| copy.digest).collect();
            holding.verify_all(&digests, &mut |n, condition| {
                let is_good = condition == Condition::Good;
                found.push((copies[n], if is_good { Condition::Good } else { Condition::Bad }));
            })?;
            self.judge(holding.name(), &found, OnTheirWay::Come, now_ms)
        };
        match look() {
            Err(error) if error.is_of_database() => Err(error),
            // A site that is away says nothing. An audit finds it, too.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Notes that a reader found a copy to be damaged or missing, if it still is the copy that was to be read.
    pub(crate) fn note_bad(&self, holder: &Holder, digest: Digest, now_ms: i64) {
        let copy = Marked { digest, mark: holder.mark };
        // An audit finds it, too.
        let _ = self.judge(&holder.name, &[(copy, Condition::Bad)], OnTheirWay::Come, now_ms);
    }

    /// Begins to read a version. Of sites that are equally good, `now_ms` says with which the reader begins.
    ///
    /// # Errors
    /// The caller has not got the right to read it, or there is none.
    pub fn reader(&self, caller: &Caller, key: &Key, now_ms: i64) -> Result<SetReader<'_>> {
        self.require(caller, key, Right::Read)?;
        let files = self.files(caller, key)?;
        let holders = self.holders(caller, key)?;
        let sites = Sites::new(holders.values().flatten(), now_ms as u64, |site| self.holding(site));
        let (near, only, read) = (BTreeSet::new(), None, Mutex::default());
        Ok(SetReader { catalog: self, key: key.clone(), now_ms, files, holders, sites, near, only, read })
    }
}

impl SetReader<'_> {
    /// Has copies on this machine read before others: those in folders, and those of stores on hosts that `is_near` knows.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn near_first(mut self, is_near: &dyn Fn(&str) -> bool) -> Result<Self> {
        let rows = self.catalog.db().query("SELECT name, address, is_store FROM site", values![])?;
        let sites = rows.iter().map(|row| Holder {
            name: row.text(0),
            address: row.text(1),
            is_store: row.int(2) != 0,
            mark: 0,
        });
        let held: BTreeSet<&String> = self.holders.values().flatten().collect();
        let sites = sites.filter(|site| held.contains(&site.name));
        self.near = sites.filter(|site| site.host().is_none_or(is_near)).map(|site| site.name).collect();
        Ok(self)
    }

    /// Has copies read at one site only.
    ///
    /// # Errors
    /// There is no such site.
    pub fn only_at(mut self, site: &str) -> Result<Self> {
        self.catalog.require_site(site)?;
        self.holders.values_mut().for_each(|sites| sites.retain(|of| of == site));
        self.only = Some(site.to_owned());
        Ok(self)
    }

    /// Whether a site is on this machine, as far as [`SetReader::near_first`] found.
    pub fn is_near(&self, site: &str) -> bool {
        self.near.contains(site)
    }

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
        let holders = self.holders.get(&file.digest).map_or(&[][..], |holders| holders);
        for site in self.sites.order(holders, &|site| self.is_near(site)) {
            let from = match self.sites.get(site) {
                Ok(from) => from,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            match holding::get(from, file.digest, target, file.is_executable)? {
                CopyEnd::Whole => {
                    let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
                    *read.entry(site.to_owned()).or_default().entry(file.digest).or_default() +=
                        file.size_bytes;
                    return Ok(site);
                }
                CopyEnd::Away(error) => last = Some(error),
                CopyEnd::Damaged(error) => {
                    self.catalog.doubt(from, file.digest, self.now_ms)?;
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| no_copy(self.only.as_deref(), &self.key, &file.path)))
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

/// Sites are told what was read when the reader has ended.
impl Drop for SetReader<'_> {
    fn drop(&mut self) {
        let read = self.read.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (site, read) in std::mem::take(read) {
            if let Some(from) = self.sites.asked(&site) {
                from.note_reads(&read);
            }
        }
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::Conflict(format!("cannot write {}: {error}", shown_path(path)))
}
