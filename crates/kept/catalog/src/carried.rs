//! Copies of files as a job on another machine needs them: it cannot open the catalog, so what it reads is carried to it.
//!
//! The side that has the catalog settles what each file is and lists its copies ([`Catalog::carry`]). The job takes the copies in an
//! order of its own ([`Fetcher`]). That the answers of the catalog may be packaged and reused is footnote 2 of
//! `Wozniak06` §III-C.4.

use crate::access::{Caller, Right};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::holding::{self, CopyEnd, Holding, Reach};
use crate::key::Key;
use eyas_data::Digest;
use eyas_text::shown;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A file, and the sites with a good copy of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CarriedFile {
    /// Its path in the data set.
    pub path: String,
    pub size_bytes: u64,
    pub digest: Digest,
    pub is_executable: bool,
    /// By name.
    pub sites: Vec<String>,
}

/// How a site is reached. The join text of a store is the key to it.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CarriedSite {
    /// The path of a folder on the machine of the catalog, or host and port of a store.
    pub address: String,
    /// `None`: the site is a folder.
    pub join: Option<String>,
}

impl Catalog {
    /// The files of a version with their copies, and adds the sites of these to `sites`.
    ///
    /// # Errors
    /// The caller has not got the right to read the version, or there is none.
    pub fn carry(
        &self,
        caller: &Caller,
        key: &Key,
        sites: &mut BTreeMap<String, CarriedSite>,
    ) -> Result<Vec<CarriedFile>> {
        self.require(caller, key, Right::Read)?;
        let holders = self.holders(caller, key)?;
        for site in holders.values().flatten() {
            if !sites.contains_key(site) {
                let place = self.address(site)?;
                sites.insert(site.clone(), CarriedSite { address: place.address, join: place.join });
            }
        }
        let files = self.files(caller, key)?.into_iter().map(|file| CarriedFile {
            sites: holders.get(&file.digest).cloned().unwrap_or_default(),
            path: file.path,
            size_bytes: file.size_bytes,
            digest: file.digest,
            is_executable: file.is_executable,
        });
        Ok(files.collect())
    }
}

/// Copies carried files to this machine, and reaches each site once.
pub struct Fetcher<'a> {
    reach: &'a dyn Reach,
    sites: &'a BTreeMap<String, CarriedSite>,
    reached: BTreeMap<String, std::result::Result<Box<dyn Holding>, Error>>,
}

impl<'a> Fetcher<'a> {
    pub fn new(reach: &'a dyn Reach, sites: &'a BTreeMap<String, CarriedSite>) -> Fetcher<'a> {
        Fetcher { reach, sites, reached: BTreeMap::new() }
    }

    /// Copies a file to `target`, which appears whole or not at all, from the first site in the list that gives its bytes. Returns
    /// that site. Each byte is verified. `damaged` is called with the sites whose copy turned out to be damaged.
    ///
    /// # Errors
    /// No site gives the file, for the reason that the last one had; `target` cannot be written.
    pub fn get<'s>(
        &mut self,
        file: &CarriedFile,
        order: &[&'s str],
        target: &Path,
        damaged: &mut dyn FnMut(&str),
    ) -> Result<&'s str> {
        let mut last = None;
        for &name in order {
            match self.reached(name) {
                Err(error) => {
                    last = Some(Error::Unreached { site: name.to_owned(), reason: error.reason() });
                }
                Ok(from) => match holding::get(from, file.digest, target, file.is_executable)? {
                    CopyEnd::Whole => {
                        from.note_reads(&HashMap::from([(file.digest, file.size_bytes)]));
                        return Ok(name);
                    }
                    CopyEnd::Away(error) => last = Some(error),
                    CopyEnd::Damaged(error) => {
                        damaged(name);
                        last = Some(error);
                    }
                },
            }
        }
        let none = || Error::NotFound(format!("no site has a good copy of {}", shown(&file.path)));
        Err(last.unwrap_or_else(none))
    }

    fn reached(&mut self, name: &str) -> std::result::Result<&dyn Holding, &Error> {
        let reached = self.reached.entry(name.to_owned()).or_insert_with(|| match self.sites.get(name) {
            None => Err(Error::NotFound(format!("nothing says where the site `{name}` is"))),
            Some(CarriedSite { join: Some(join), .. }) => self.reach.reach(name, join),
            Some(CarriedSite { address, join: None }) => {
                Folder::open(Path::new(address)).map(|folder| Box::new(folder) as Box<dyn Holding>)
            }
        });
        reached.as_deref()
    }
}
