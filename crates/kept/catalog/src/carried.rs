//! Copies of files as a job on another machine needs them: it cannot open the catalog, so what it reads is carried to it.
//!
//! The side that has the catalog settles what each file is and lists its copies ([`Catalog::carry`]). The job takes the copies in an
//! order of its own ([`Fetcher`]). That the answers of the catalog may be packaged and reused is footnote 2 of
//! `Wozniak06` §III-C.4.

use crate::access::Caller;
use crate::asking::{Sites, any_turn};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::holding::{self, CopyEnd, Holding, Reach};
use crate::key::Key;
use crate::reading::no_copy;
use crate::rights::Right;
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
        let mut holders = self.holders(caller, key)?;
        for site in holders.values().flatten() {
            if !sites.contains_key(site) {
                match self.carried_site(site) {
                    Ok(carried) => drop(sites.insert(site.clone(), carried)),
                    // Other sites may have the file.
                    Err(Error::Denied(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        holders.values_mut().for_each(|of_file| of_file.retain(|site| sites.contains_key(site)));
        let files = self.files(caller, key)?.into_iter().map(|file| CarriedFile {
            sites: holders.get(&file.digest).cloned().unwrap_or_default(),
            path: file.path,
            size_bytes: file.size_bytes,
            digest: file.digest,
            is_executable: file.is_executable,
        });
        Ok(files.collect())
    }

    /// How a job reaches a site.
    ///
    /// # Errors
    /// There is no such site, or it is a store to which this user has no key.
    pub fn carried_site(&self, site: &str) -> Result<CarriedSite> {
        let place = self.address(site)?;
        match place.is_store && place.join.is_none() {
            true => Err(self.no_key(site)),
            false => Ok(CarriedSite { address: place.address, join: place.join }),
        }
    }

    /// Leaves of the copies of these files of a version those at one site.
    ///
    /// # Errors
    /// There is no such site, or it has no good copy of one of them.
    pub fn only_at(&self, site: &str, key: &Key, files: &mut [CarriedFile]) -> Result<()> {
        self.require_site(site)?;
        files.iter_mut().try_for_each(|file| {
            file.sites.retain(|of| of == site);
            if file.sites.is_empty() { Err(no_copy(Some(site), key, &file.path)) } else { Ok(()) }
        })
    }
}

/// Copies carried files to this machine, and reaches each site once.
pub struct Fetcher<'a> {
    sites: Sites<'a>,
}

impl<'a> Fetcher<'a> {
    pub fn new(reach: &'a dyn Reach, sites: &'a BTreeMap<String, CarriedSite>) -> Fetcher<'a> {
        let sites = Sites::new(sites.keys(), any_turn(), move |name| match &sites[name] {
            CarriedSite { join: Some(join), .. } => reach.reach(name, join),
            CarriedSite { address, join: None } => {
                Folder::open(Path::new(address)).map(|folder| Box::new(folder) as Box<dyn Holding>)
            }
        });
        Fetcher { sites }
    }

    /// Copies a file to `target`, which appears whole or not at all, from the first site that gives its bytes; those that `is_near`
    /// knows are asked before others. Returns that site. Each byte is verified. `damaged` is called with the sites whose copy turned
    /// out to be damaged.
    ///
    /// # Errors
    /// No site gives the file, for the reason that the last one had; `target` cannot be written.
    pub fn get<'f>(
        &self,
        file: &'f CarriedFile,
        is_near: &dyn Fn(&str) -> bool,
        target: &Path,
        damaged: &mut dyn FnMut(&str),
    ) -> Result<&'f str> {
        let mut last = None;
        for name in self.sites.order(&file.sites, is_near) {
            let from = match self.sites.get(name) {
                Ok(from) => from,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            match holding::get(from, file.digest, target, file.is_executable)? {
                CopyEnd::Whole => {
                    from.note_reads(&HashMap::from([(file.digest, file.size_bytes)]));
                    return Ok(name);
                }
                CopyEnd::Away(error) => last = Some(error),
                CopyEnd::Damaged(error) => {
                    damaged(name);
                    last = Some(error);
                }
            }
        }
        let none = || Error::NotFound(format!("no site has a good copy of {}", shown(&file.path)));
        Err(last.unwrap_or_else(none))
    }
}
