//! What is done with the copies at sites whose folders are on this machine: got, verified, made and dropped.
//!
//! The decision which copies are made is `eyas_core::replication`'s. Here they are carried out.

use crate::access::{Caller, Right};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::folder::{Condition, Folder};
use crate::key::Key;
use crate::sites::{ReplicaState, SiteState};
use eyas_core::replication::{self, Short};
use eyas_data::Digest;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// What a look at all copies of a site found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Audit {
    pub site: String,
    pub n_good: u64,
    pub good_bytes: u64,
    /// Copies with other bytes than their digest says.
    #[serde(serialize_with = "as_texts")]
    pub bad: Vec<Digest>,
    /// Copies that the catalog knows and the site has not got.
    #[serde(serialize_with = "as_texts")]
    pub missing: Vec<Digest>,
    /// Objects that the site has and no data set needs.
    #[serde(serialize_with = "as_texts")]
    pub foreign: Vec<Digest>,
}

fn as_texts<S: serde::Serializer>(digests: &[Digest], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(digests.iter().map(Digest::to_string))
}

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Repair {
    pub n_copies: u64,
    pub copied_bytes: u64,
    /// Objects that no version needs any more, and that were removed from sites.
    pub n_removed: u64,
    /// Files that stay short of copies, with the reason, the worst first.
    pub short: Vec<ShortFile>,
    /// Sites that could not be reached, with the reason.
    pub away: Vec<(String, String)>,
}

/// A file of a data set that has fewer copies than it should.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ShortFile {
    pub key: String,
    pub path: String,
    pub n_missing: u32,
    #[serde(serialize_with = "as_reason")]
    pub reason: Short,
}

fn as_reason<S: serde::Serializer>(reason: &Short, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(reason_of(*reason))
}

/// Why a file stays short of copies, in words.
pub fn reason_of(reason: Short) -> &'static str {
    match reason {
        Short::Lost => "no site has a good copy",
        Short::TooFewSites => "there are not enough sites",
        Short::NoRoom => "the other sites have no room",
    }
}

/// A site that names no limit may keep this much.
const NO_LIMIT: u64 = 1 << 60;

impl Catalog {
    /// The folder of a site, if it is on this machine.
    pub fn folder(&self, site: &str) -> Result<Folder> {
        let sites = self.sites()?;
        let found = sites.iter().find(|known| known.name == site);
        let found = found.ok_or_else(|| {
            Error::NotFound(format!("the catalog knows no site {}", eyas_text::shown(site)))
        })?;
        let folder = Folder::open(Path::new(&found.address))?;
        match folder.name() == site {
            true => Ok(folder),
            false => Err(Error::Conflict(format!(
                "{} is the folder of the site `{}` now, not of `{site}`",
                eyas_text::shown(&found.address),
                folder.name()
            ))),
        }
    }

    /// Copies a file of a version to `target`, from the first site that gives its bytes. A copy that turns out to be damaged is noted as bad.
    pub fn get(
        &self,
        caller: &Caller,
        key: &Key,
        file: &crate::sealed::File,
        holders: &HashMap<Digest, Vec<String>>,
        target: &Path,
        now_ms: i64,
    ) -> Result<()> {
        self.require(caller, key, Right::Read)?;
        let mut last = None;
        for site in holders.get(&file.digest).into_iter().flatten() {
            match self.folder(site).and_then(|folder| folder.get(file.digest, target, file.is_executable)) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    if let Ok(Condition::Bad | Condition::Missing) =
                        self.folder(site).and_then(|folder| folder.verify(file.digest))
                    {
                        self.note_replicas(site, &[file.digest], ReplicaState::Bad, now_ms)?;
                    }
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::NotFound(format!("no site has a good copy of {} of `{key}`", eyas_text::shown(&file.path)))
        }))
    }

    /// Reads every copy at a site through and notes what it finds. `progress` is called with the bytes that are done.
    pub fn audit(&self, site: &str, now_ms: i64, progress: &mut dyn FnMut(u64)) -> Result<Audit> {
        let folder = self.folder(site)?;
        let mut audit = Audit { site: site.into(), ..Audit::default() };
        let mut good = vec![];
        let replicas = self.replicas_at(site)?;
        for (digest, size_bytes, state) in &replicas {
            match folder.verify(*digest)? {
                Condition::Good => {
                    good.push(*digest);
                    audit.n_good += 1;
                    audit.good_bytes += size_bytes;
                }
                // What is on its way, or to be dropped, need not be there.
                _ if matches!(state, ReplicaState::Creating | ReplicaState::Deleting) => {}
                Condition::Bad => audit.bad.push(*digest),
                Condition::Missing => audit.missing.push(*digest),
            }
            progress(*size_bytes);
        }
        let known: HashSet<Digest> = replicas.iter().map(|(digest, ..)| *digest).collect();
        audit.foreign = folder.objects()?.into_iter().filter(|digest| !known.contains(digest)).collect();
        let keep_state = |digest: &Digest| {
            replicas
                .iter()
                .any(|(known, _, state)| known == digest && matches!(state, ReplicaState::Deleting))
        };
        good.retain(|digest| !keep_state(digest));
        self.note_replicas(site, &good, ReplicaState::Ready, now_ms)?;
        self.note_replicas(site, &audit.bad, ReplicaState::Bad, now_ms)?;
        self.forget_replicas(site, &audit.missing)?;
        Ok(audit)
    }

    /// Makes the copies that are missing, and drops what is bad, once there is a good copy elsewhere, and what nobody needs.
    pub fn repair(&self, now_ms: i64, progress: &mut dyn FnMut(u64)) -> Result<Repair> {
        let mut repair = Repair::default();
        let sites = self.sites()?;
        let mut folders = BTreeMap::new();
        for (n, site) in sites.iter().enumerate() {
            match self.folder(&site.name) {
                Ok(folder) if site.state != SiteState::Gone => {
                    folders.insert(n, folder);
                }
                Ok(_) => {}
                Err(error) => repair.away.push((site.name.clone(), error.to_string())),
            }
        }
        let objects = self.needed()?;
        let mut domains: Vec<&str> = sites.iter().map(|site| &*site.domain).collect();
        domains.sort_unstable();
        let views: Vec<replication::Site> = sites
            .iter()
            .enumerate()
            .map(|(n, site)| replication::Site {
                domain: domains.partition_point(|domain| *domain < &*site.domain) as u32,
                takes_copies: site.state == SiteState::Up && folders.contains_key(&n),
                keep_bytes: site.keep_bytes.unwrap_or(NO_LIMIT),
                used_bytes: site.size_bytes,
            })
            .collect();
        let number: HashMap<&str, usize> =
            sites.iter().enumerate().map(|(n, site)| (&*site.name, n)).collect();
        let at = |names: &[String]| -> Vec<usize> {
            names.iter().map(|name| number[name.as_str()]).filter(|n| folders.contains_key(n)).collect()
        };
        let wanted: Vec<replication::Object> = objects
            .iter()
            .map(|object| replication::Object {
                size_bytes: object.size_bytes,
                wanted: object.copies,
                ready: at(&object.ready),
                coming: vec![],
                // A copy is written over a bad one by a rename.
                barred: vec![],
            })
            .collect();
        let plan = replication::plan(&views, &wanted);
        for copy in &plan.copies {
            let object = &objects[copy.object];
            let (from, to) = (&folders[&copy.from], &folders[&copy.to]);
            match make_copy(from, to, object.digest) {
                Ok(()) => {
                    self.note_replicas(to.name(), &[object.digest], ReplicaState::Ready, now_ms)?;
                    repair.n_copies += 1;
                    repair.copied_bytes += object.size_bytes;
                    progress(object.size_bytes);
                }
                Err(error) => {
                    if from.verify(object.digest)? != Condition::Good {
                        self.note_replicas(from.name(), &[object.digest], ReplicaState::Bad, now_ms)?;
                    }
                    repair.away.push((to.name().to_owned(), error.to_string()));
                }
            }
        }
        for (object, n_missing, reason) in plan.short {
            let object = &objects[object];
            repair.short.push(ShortFile {
                key: object.key.clone(),
                path: object.path.clone(),
                n_missing,
                reason,
            });
        }
        repair
            .short
            .sort_by_key(|short| (short.reason != Short::Lost, short.key.clone(), short.path.clone()));
        self.seal_all(folders.values())?;
        for folder in folders.values() {
            for digest in self.take_unneeded(folder.name())? {
                folder.remove(digest)?;
                self.forget_replicas(folder.name(), &[digest])?;
                repair.n_removed += 1;
            }
        }
        Ok(repair)
    }
}

impl Catalog {
    /// Has every site say of all versions what they are, so that the catalog can be made anew from any of them.
    fn seal_all<'a>(&self, folders: impl Iterator<Item = &'a Folder> + Clone) -> Result<()> {
        let everybody = Caller { name: "eyas".into(), groups: vec![], is_operator: true };
        for key in self.committed()? {
            let sealed = self.sealed(&everybody, &key)?;
            for folder in folders.clone() {
                folder.seal(&sealed)?;
            }
        }
        Ok(())
    }
}

/// Copies an object from one site to another. The target verifies the bytes before the object appears.
fn make_copy(from: &Folder, to: &Folder, digest: Digest) -> Result<()> {
    let explain = |error: std::io::Error| {
        Error::Conflict(format!("cannot copy an object from `{}` to `{}`: {error}", from.name(), to.name()))
    };
    let mut bytes = std::fs::File::open(from.path_of(digest)).map_err(explain)?;
    let mut batch = to.batch()?;
    let (found, _) = batch.add(&mut bytes).map_err(explain)?;
    if found != digest {
        return Err(Error::Conflict(format!(
            "the copy of {digest} at the site `{}` is damaged",
            from.name()
        )));
    }
    batch.keep().map_err(explain)
}
