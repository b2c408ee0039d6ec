//! What is done with the copies at sites whose folders are on this machine: verified, made and dropped.
//!
//! The decision which copies are made is `eyas_core::replication`'s. Here they are carried out.

use crate::access::Caller;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::folder::{BATCH_BYTES, BATCH_FILES, Condition, Folder};
use crate::sites::{Needed, ReplicaState, SiteState};
use eyas_core::replication::{self, Copy, Short, SiteNo};
use eyas_data::Digest;
use std::cmp::Reverse;
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
        let address = self.address(site)?;
        let folder = Folder::open(Path::new(&address))?;
        match folder.name() == site {
            true => Ok(folder),
            false => Err(Error::Conflict(format!(
                "{} is the folder of the site `{}` now, not of `{site}`",
                eyas_text::shown(&address),
                folder.name()
            ))),
        }
    }

    /// Reads every copy at a site through and notes what it finds. `progress` is called with the bytes that are done.
    pub fn audit(&self, site: &str, now_ms: i64, progress: &mut dyn FnMut(u64)) -> Result<Audit> {
        let folder = self.folder(site)?;
        let mut audit = Audit { site: site.into(), ..Audit::default() };
        let mut good = vec![];
        let mut replicas = self.replicas_at(site)?;
        // The largest are begun first, so that no reader has one left when the others have ended.
        replicas.sort_by_key(|(_, size_bytes, _)| Reverse(*size_bytes));
        let digests: Vec<Digest> = replicas.iter().map(|(digest, ..)| *digest).collect();
        let mut conditions = vec![None; replicas.len()];
        folder.verify_all(&digests, &mut |n, condition| {
            conditions[n] = Some(condition);
            progress(replicas[n].1);
        })?;
        for ((digest, size_bytes, state), condition) in replicas.iter().zip(conditions) {
            match condition.expect("all were read") {
                Condition::Good => {
                    audit.n_good += 1;
                    audit.good_bytes += size_bytes;
                    // What is to be dropped stays so.
                    if *state != ReplicaState::Deleting {
                        good.push(*digest);
                    }
                }
                // What is on its way, or to be dropped, need not be there.
                _ if matches!(state, ReplicaState::Creating | ReplicaState::Deleting) => {}
                Condition::Bad => audit.bad.push(*digest),
                Condition::Missing => audit.missing.push(*digest),
            }
        }
        let known: HashSet<Digest> = digests.into_iter().collect();
        audit.foreign = folder.objects()?.into_iter().filter(|digest| !known.contains(digest)).collect();
        // In the order in which the database has them; a report is in that order, too.
        for digests in [&mut good, &mut audit.bad, &mut audit.missing, &mut audit.foreign] {
            digests.sort_unstable();
        }
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
        let takes = |n: usize| sites[n].state == SiteState::Up && folders.contains_key(&n);
        let counting: Vec<&str> = (0..sites.len()).filter(|&n| takes(n)).map(|n| &*sites[n].name).collect();
        let objects = self.short_of_copies(&counting)?;
        let mut domains: Vec<&str> = sites.iter().map(|site| &*site.domain).collect();
        domains.sort_unstable();
        let views: Vec<replication::Site> = sites
            .iter()
            .enumerate()
            .map(|(n, site)| replication::Site {
                domain: domains.partition_point(|domain| *domain < &*site.domain) as u32,
                takes_copies: takes(n),
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
        for copies in in_batches(plan.copies, &objects) {
            let to = &folders[&copies[0].to];
            let made = self.make_copies(to, &copies, &objects, &folders, now_ms);
            match made {
                Ok(made) => {
                    repair.n_copies += made.len() as u64;
                    let bytes: u64 = made.iter().map(|copy| objects[copy.object].size_bytes).sum();
                    repair.copied_bytes += bytes;
                    progress(bytes);
                }
                Err(error) => repair.away.push((to.name().to_owned(), error.to_string())),
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
            let unneeded = self.take_unneeded(folder.name())?;
            unneeded.iter().try_for_each(|digest| folder.remove(*digest))?;
            self.forget_replicas(folder.name(), &unneeded)?;
            repair.n_removed += unneeded.len() as u64;
        }
        Ok(repair)
    }
}

/// Copies that are written together: for one site, and not too many of them.
fn in_batches(mut copies: Vec<Copy>, objects: &[Needed]) -> Vec<Vec<Copy>> {
    // What has fewest copies stays first at each site.
    copies.sort_by_key(|copy| copy.to);
    let mut batches: Vec<Vec<Copy>> = vec![];
    let mut batch_bytes = 0;
    for copy in copies {
        let size_bytes = objects[copy.object].size_bytes;
        match batches.last_mut() {
            Some(last) if last[0].to == copy.to && last.len() < BATCH_FILES && batch_bytes < BATCH_BYTES => {
                last.push(copy);
                batch_bytes += size_bytes;
            }
            _ => {
                batches.push(vec![copy]);
                batch_bytes = size_bytes;
            }
        }
    }
    batches
}

impl Catalog {
    /// Makes copies at one site; returns those that were made. A source that turns out to be damaged is noted as bad.
    fn make_copies(
        &self,
        to: &Folder,
        copies: &[Copy],
        objects: &[Needed],
        folders: &BTreeMap<SiteNo, Folder>,
        now_ms: i64,
    ) -> Result<Vec<Copy>> {
        let explain = |error: std::io::Error| {
            Error::Conflict(format!("cannot write into the site `{}`: {error}", to.name()))
        };
        let mut batch = to.batch()?;
        let mut made = vec![];
        for copy in copies {
            let digest = objects[copy.object].digest;
            let from = &folders[&copy.from];
            let is_whole = match std::fs::File::open(from.path_of(digest)) {
                Ok(mut bytes) => batch.add_copy(&mut bytes, digest).map_err(explain)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
                // The site itself is in trouble, which says nothing about this copy.
                Err(error) => {
                    let site = from.name();
                    return Err(Error::Conflict(format!("cannot read from the site `{site}`: {error}")));
                }
            };
            match is_whole {
                true => made.push(*copy),
                false => {
                    self.note_replicas(from.name(), &[digest], ReplicaState::Bad, now_ms)?;
                }
            }
        }
        batch.keep().map_err(explain)?;
        let digests: Vec<Digest> = made.iter().map(|copy| objects[copy.object].digest).collect();
        self.note_replicas(to.name(), &digests, ReplicaState::Ready, now_ms)?;
        Ok(made)
    }

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
