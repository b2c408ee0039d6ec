//! What is done with the copies at sites that can be reached: verified, made and dropped.
//!
//! The decision which copies are made is `eyas_keeping`'s. Here they are carried out.

use crate::access::Caller;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::folder::{BATCH_BYTES, BATCH_FILES};
use crate::holding::{Aside, Condition, CopyEnd, Holding, add_copy};
use crate::making::ToMake;
use crate::reached::{Reached, room_of, takes};
use crate::sites::{HeldCopies, Marked, Needed, OnTheirWay, Replica, ReplicaState, Site, SiteState};
use eyas_data::Digest;
use eyas_keeping::verification::{self, Verified};
use eyas_keeping::{Copy, Short, SiteNo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

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
    /// Copies that the site has and the catalog did not know of; they are among the good ones.
    #[serde(serialize_with = "as_texts")]
    pub found: Vec<Digest>,
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
    /// Copies that were to be made, and were not: a site went away or a source was damaged meanwhile.
    pub n_not_made: u64,
    /// Copies that others make now, or that wait for others between the same sites.
    pub n_coming: u64,
    /// Files that stay short of copies, with the reason, the worst first. [`Catalog::name_short`] says which files they are.
    pub short: Vec<ShortFile>,
    /// Sites that could not be reached, with the reason.
    pub away: Vec<(String, String)>,
    /// Sites that have written down another version under a key of this catalog, and keep it, with the key.
    pub other: Vec<(String, String)>,
}

/// A file of a data set that has fewer copies than it should.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ShortFile {
    #[serde(skip)]
    object: i64,
    /// `None`: nobody was named, or whoever asked may not list the data set.
    pub key: Option<String>,
    pub path: Option<String>,
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
        Short::Away => "only sites that do not answer have a good copy",
        Short::TooFewSites => "there are not enough sites",
        Short::NoRoom => "the other sites have no room",
        Short::NotNow => "no other site can take a copy now",
    }
}

/// Rows of the trail that may be committed after later ones, by transactions that run at the same time.
const TRAILS_OPEN: i64 = 50;
/// How often a repair is planned where copies could not be made.
const ROUNDS_MAX: usize = 3;
/// Pairs of sites between which copies are made at the same time.
const PAIRS_MAX: usize = 16;

/// Whether a site, which answers or does not, went away so short a time ago that copies at other sites are not made in place of its own
/// yet. It is asked of each site in each repair.
pub type Rests<'a> = &'a dyn Fn(&str, bool) -> bool;

impl Catalog {
    /// Reads every copy at a site through and notes what it finds. `progress` is called with the bytes that are done.
    pub fn audit(&self, site: &str, now_ms: i64, progress: &mut dyn FnMut(u64)) -> Result<Audit> {
        self.require_keeper("audit")?;
        let holding = self.holding(site)?;
        let replicas = self.replicas_at(site)?;
        let mut audit = self.verify(&*holding, &replicas, OnTheirWay::AreLooked, now_ms, progress)?;
        let known: HashSet<Digest> = replicas.iter().map(|replica| replica.digest).collect();
        audit.foreign = holding.objects()?.into_iter().filter(|digest| !known.contains(digest)).collect();
        audit.foreign.sort_unstable();
        audit.found = self.take_in(&*holding, &audit.foreign, now_ms)?;
        audit.n_good += audit.found.len() as u64;
        audit.foreign.retain(|digest| audit.found.binary_search(digest).is_err());
        // Seals may be lost as well: the next repair looks at all of them.
        self.set_sealed_trail(site, 0)?;
        Ok(audit)
    }

    /// Reads objects through that the catalog does not know to be at this site, and notes those that a version needs. Returns the
    /// good ones, in their order.
    fn take_in(&self, holding: &dyn Holding, unknown: &[Digest], now_ms: i64) -> Result<Vec<Digest>> {
        // The catalog knows of them before they are read, so that nobody removes what is being found good.
        let claimed = self.claim(holding.name(), &self.needed(unknown)?, now_ms)?;
        let held = self.judge_all(holding, &claimed, OnTheirWay::AreLooked, now_ms)?;
        Ok(held.good)
    }

    /// Reads copies through, and notes what is found; returns what held.
    pub(crate) fn judge_all(
        &self,
        holding: &dyn Holding,
        copies: &[Marked],
        coming: OnTheirWay,
        now_ms: i64,
    ) -> Result<HeldCopies> {
        let digests: Vec<Digest> = copies.iter().map(|copy| copy.digest).collect();
        let mut found = vec![];
        holding.verify_all(&digests, &mut |n, condition| found.push((copies[n], condition)))?;
        self.judge(holding.name(), &found, coming, now_ms)
    }

    /// Takes in copies that the catalog does not know of, of objects of which it knows no good copy at all. Whether there were any.
    fn take_in_lost(
        &self,
        objects: &[Needed],
        reached: &BTreeMap<String, Reached>,
        now_ms: i64,
    ) -> Result<bool> {
        let lost = objects.iter().filter(|object| object.ready.is_empty());
        let lost: Vec<Digest> = lost.map(|object| object.digest).collect();
        let mut has_found = false;
        for (name, site) in reached.iter().filter(|_| !lost.is_empty()) {
            let known: HashSet<Digest> =
                self.replicas_of(name, &lost)?.iter().map(|replica| replica.digest).collect();
            let unknown: Vec<Digest> =
                lost.iter().copied().filter(|digest| !known.contains(digest)).collect();
            let mut there = vec![];
            // Most are not there, which costs little, and the catalog need not hear of them.
            let looked = site.holding.verify_all(&unknown, &mut |n, condition| {
                if condition == Condition::Good {
                    there.push(unknown[n]);
                }
            });
            match looked.and_then(|()| self.take_in(&*site.holding, &there, now_ms)) {
                Ok(found) => has_found |= !found.is_empty(),
                // Who asks it next says so.
                Err(error) if !error.is_of_database() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(has_found)
    }

    /// Compares what the catalog knows of a site that came, or came back, with what is there.
    fn take_stock(&self, holding: &dyn Holding, now_ms: i64) -> Result<()> {
        // What comes while this looks is in the list of objects at least, and so is not taken for lost.
        let replicas = self.replicas_at(holding.name())?;
        let there: HashSet<Digest> = holding.objects()?.into_iter().collect();
        let known: HashSet<Digest> = replicas.iter().map(|replica| replica.digest).collect();
        let is_lost =
            |replica: &&Replica| replica.state == ReplicaState::Ready && !there.contains(&replica.digest);
        let lost = replicas.iter().filter(is_lost).map(|replica| (replica.marked(), Condition::Missing));
        self.judge(holding.name(), &lost.collect::<Vec<_>>(), OnTheirWay::Come, now_ms)?;
        let mut unknown: Vec<Digest> = there.difference(&known).copied().collect();
        unknown.sort_unstable();
        self.take_in(holding, &unknown, now_ms).map(|_| ())
    }

    /// Reads those copies at a site through whose turn it is ([`verification::due`]), and notes what it finds.
    pub fn audit_due(&self, site: &str, pace: verification::Pace, now_ms: i64) -> Result<Audit> {
        self.require_keeper("audit")?;
        let holding = self.holding(site)?;
        let mut replicas = self.replicas_at(site)?;
        replicas.retain(|replica| replica.state == ReplicaState::Ready);
        let verified: Vec<Verified> = replicas
            .iter()
            .map(|replica| Verified { size_bytes: replica.size_bytes, at_ms: replica.verified_ms })
            .collect();
        let due: Vec<Replica> =
            verification::due(&verified, pace, now_ms).into_iter().map(|n| replicas[n]).collect();
        self.verify(&*holding, &due, OnTheirWay::Come, now_ms, &mut |_| {})
    }

    /// Reads these copies through and notes what it finds.
    fn verify(
        &self,
        holding: &dyn Holding,
        replicas: &[Replica],
        coming: OnTheirWay,
        now_ms: i64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Audit> {
        let site = holding.name();
        let mut audit = Audit { site: site.into(), ..Audit::default() };
        let mut replicas = replicas.to_vec();
        // The largest are begun first, so that no reader has one left when the others have ended.
        replicas.sort_by_key(|replica| Reverse(replica.size_bytes));
        let digests: Vec<Digest> = replicas.iter().map(|replica| replica.digest).collect();
        let mut conditions = vec![None; replicas.len()];
        holding.verify_all(&digests, &mut |n, condition| {
            conditions[n] = Some(condition);
            progress(replicas[n].size_bytes);
        })?;
        let mut found = vec![];
        let mut on_their_way = HashSet::new();
        for (replica, condition) in replicas.iter().zip(conditions) {
            let condition = condition.expect("all were read");
            if condition == Condition::Good {
                audit.n_good += 1;
                audit.good_bytes += replica.size_bytes;
            }
            match replica.state {
                // What is to be dropped stays so, and need not be there.
                ReplicaState::Deleting => continue,
                ReplicaState::Creating => on_their_way.insert(replica.digest),
                ReplicaState::Ready | ReplicaState::Bad => false,
            };
            found.push((replica.marked(), condition));
        }
        let held = self.judge(site, &found, coming, now_ms)?;
        // What was on its way and did not come is nothing that was lost.
        let was_there = |digests: Vec<Digest>| {
            digests.into_iter().filter(|digest| !on_their_way.contains(digest)).collect::<Vec<_>>()
        };
        (audit.bad, audit.missing) = (was_there(held.bad), was_there(held.missing));
        Ok(audit)
    }

    /// Makes the copies that are missing, and drops what is bad, once there is a good copy elsewhere, and what nobody needs.
    pub fn repair(&self, now_ms: i64, progress: &mut dyn FnMut(u64)) -> Result<Repair> {
        self.repair_while(&|_, _| false, now_ms, progress)
    }

    /// The same, where sites may rest.
    pub fn repair_while(
        &self,
        rests: Rests<'_>,
        now_ms: i64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Repair> {
        self.require_keeper("repair")?;
        let mut repair = Repair::default();
        let mut resting = HashSet::new();
        let mut reached = BTreeMap::new();
        let (_, sealed) = self.sealed_trails()?;
        for site in self.sites()?.into_iter().filter(|site| site.state != SiteState::Gone) {
            let holding = self.holding(&site.name).and_then(|holding| {
                // An earlier repair may have been cut short.
                self.remove_unneeded(&*holding, &[], now_ms)?;
                // Nobody has looked at all of it since it came.
                if sealed.get(&site.name) == Some(&0) {
                    self.take_stock(&*holding, now_ms)?;
                }
                let again = self.needed_again(&site.name)?;
                if !again.is_empty() {
                    self.verify(&*holding, &again, OnTheirWay::Come, now_ms, &mut |_| {})?;
                }
                Ok(holding)
            });
            if rests(&site.name, holding.is_ok()) && holding.is_err() {
                resting.insert(site.name.clone());
            }
            match holding {
                Ok(holding) => {
                    reached.insert(site.name, Reached { holding, keep_bytes: 0, is_written: true });
                }
                Err(error) if !error.is_of_database() => {
                    repair.away.push((site.name, error.reason()));
                }
                Err(error) => return Err(error),
            }
        }
        // The room is beside what a site was found to have.
        for site in self.sites()? {
            if let Some(reached) = reached.get_mut(&site.name) {
                reached.keep_bytes = room_of(&site, &*reached.holding);
            }
        }
        // What turns out to be damaged, full or away changes what can be done, so it is planned again.
        for _ in 0..ROUNDS_MAX {
            repair.n_not_made = self.make_missing(&mut reached, &resting, &mut repair, now_ms, progress)?;
            if repair.n_not_made == 0 {
                break;
            }
        }
        for Reached { holding, .. } in reached.values() {
            if let Err(error) = self.tell_users(&**holding) {
                match error.is_of_database() {
                    true => return Err(error),
                    false => repair.away.push((holding.name().to_owned(), error.reason())),
                }
            }
        }
        repair.short.sort_by_key(|short| (short.reason != Short::Lost, short.n_missing));
        let (unsealed, other) = self.seal_all(reached.values().map(|site| &*site.holding))?;
        repair.away.extend(unsealed);
        repair.other = other;
        repair.n_removed += self.drop_stand_ins(&reached, now_ms, &mut repair.away)?;
        for Reached { holding, .. } in reached.values() {
            match self.drop_unneeded(&**holding, now_ms) {
                Ok(n_removed) => repair.n_removed += n_removed,
                // A site that went away in the middle keeps its copies until the next repair.
                Err(error) if !error.is_of_database() => {
                    repair.away.push((holding.name().to_owned(), error.reason()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(repair)
    }

    /// Names the files that a repair found short of copies, as far as the caller may list them, in the order of their names.
    pub fn name_short(&self, caller: &Caller, repair: &mut Repair) -> Result<()> {
        let objects: Vec<i64> = repair.short.iter().map(|short| short.object).collect();
        let names = self.names_of(caller, &objects)?;
        for short in &mut repair.short {
            (short.key, short.path) = names.get(&short.object).cloned().unzip();
        }
        repair.short.sort_by_key(|short| {
            (short.reason != Short::Lost, short.key.clone(), short.n_missing, short.path.clone())
        });
        Ok(())
    }

    /// Makes the copies that are missing at the sites that can be reached; those that cannot any more are taken out. Returns how
    /// many copies were planned and not made.
    fn make_missing(
        &self,
        reached: &mut BTreeMap<String, Reached>,
        resting: &HashSet<String>,
        repair: &mut Repair,
        now_ms: i64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let sites = self.sites()?;
        let counts = |site: &&Site| site.state == SiteState::Up && reached.contains_key(&site.name);
        let counting: Vec<&str> = sites.iter().filter(counts).map(|site| &*site.name).collect();
        let mut objects = self.short_of_copies(&counting)?;
        if self.take_in_lost(&objects, reached, now_ms)? {
            objects = self.short_of_copies(&counting)?;
        }
        let mut domains: Vec<&str> = sites.iter().map(|site| &*site.domain).collect();
        domains.sort_unstable();
        let making = self.making(now_ms)?;
        let (mut coming, mut coming_bytes) = (HashMap::<i64, Vec<&str>>::new(), HashMap::<&str, u64>::new());
        for copy in &making {
            coming.entry(copy.object).or_default().push(&copy.to);
            *coming_bytes.entry(&copy.to).or_default() += copy.size_bytes;
        }
        let views: Vec<eyas_keeping::Site> = sites
            .iter()
            .map(|site| eyas_keeping::Site {
                domain: domains.partition_point(|domain| *domain < &*site.domain) as u32,
                takes: takes(site, reached.get(&site.name)),
                keep_bytes: reached.get(&site.name).map_or(0, |reached| reached.keep_bytes),
                used_bytes: site.size_bytes + coming_bytes.get(&*site.name).copied().unwrap_or(0),
                is_busy: coming_bytes.contains_key(&*site.name),
            })
            .collect();
        let number: HashMap<&str, SiteNo> =
            sites.iter().enumerate().map(|(n, site)| (&*site.name, n)).collect();
        let at = |names: &[String]| -> Vec<SiteNo> {
            let there = names.iter().filter(|name| reached.contains_key(*name));
            there.map(|name| number[name.as_str()]).collect()
        };
        let wanted: Vec<eyas_keeping::Object> = objects
            .iter()
            .map(|object| eyas_keeping::Object {
                size_bytes: object.size_bytes,
                wanted: object.copies,
                ready: at(&object.ready),
                is_away: object.ready.iter().any(|name| !reached.contains_key(name)),
                coming: coming.get(&object.id).into_iter().flatten().map(|name| number[name]).collect(),
                resting: object
                    .ready
                    .iter()
                    .filter(|name| !reached.contains_key(*name) && resting.contains(*name))
                    .map(|name| number[name.as_str()])
                    .collect(),
                // A copy is written over a bad one by a rename.
                barred: vec![],
            })
            .collect();
        let plan = eyas_keeping::plan(&views, &wanted);
        repair.short.clear();
        let mut without_room = vec![];
        for (object, n_missing, reason) in plan.short {
            let object = &objects[object];
            if matches!(reason, Short::NoRoom | Short::NotNow) {
                without_room.push(object);
            }
            repair.short.push(ShortFile { object: object.id, key: None, path: None, n_missing, reason });
        }
        let of_short = objects.iter().filter_map(|object| coming.get(&object.id));
        repair.n_coming = of_short.map(|sites| sites.len() as u64).sum();
        let n_planned = plan.copies.len() as u64;
        let away = &mut repair.away;
        let stood_in: Vec<Option<&String>> = objects
            .iter()
            .map(|object| object.ready.iter().find(|name| !reached.contains_key(*name)))
            .collect();
        let CarriedOut { made, n_left } =
            self.carry_out(plan.copies, &objects, &sites, reached, away, Some(&counting), now_ms, progress)?;
        repair.n_coming += n_left;
        let stand_ins: Vec<(i64, &str, &str)> = made
            .iter()
            .filter_map(|copy| {
                Some((objects[copy.object].id, &*sites[copy.to].name, &**stood_in[copy.object]?))
            })
            .collect();
        self.note_stand_ins(&stand_ins)?;
        repair.n_copies += made.len() as u64;
        repair.copied_bytes += made.iter().map(|copy| objects[copy.object].size_bytes).sum::<u64>();
        let mut n_not_made = n_planned - n_left - made.len() as u64;
        // What is asked for comes before what is spare: then it is planned again.
        if !without_room.is_empty() && self.make_way_for(&without_room, reached, now_ms, away)? > 0 {
            n_not_made += 1;
        }
        Ok(n_not_made)
    }

    /// Makes planned copies; returns those that were made. Sites that cannot be reached any more are taken out, with the reason in `away`.
    ///
    /// What goes from one site to another is made one after another, and what goes between others at the same time, so that a slow
    /// site holds up nothing but what goes to or from it. What others make is left to them.
    pub(crate) fn carry_out(
        &self,
        copies: Vec<Copy>,
        objects: &[Needed],
        sites: &[Site],
        reached: &mut BTreeMap<String, Reached>,
        away: &mut Vec<(String, String)>,
        counting: Option<&[&str]>,
        now_ms: i64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<CarriedOut> {
        let to_make = |copy: &Copy| ToMake {
            object: objects[copy.object].id,
            from: sites[copy.from].name.clone(),
            to: sites[copy.to].name.clone(),
        };
        let wanted: Vec<ToMake> = copies.iter().map(to_make).collect();
        let claims = self.claim_copies(&wanted, objects, counting, now_ms)?;
        let n_wanted = copies.len();
        let copies: Vec<Copy> =
            copies.into_iter().filter(|copy| claims.got.contains(&to_make(copy))).collect();
        let n_left = (n_wanted - copies.len()) as u64;
        // By how far the target stands behind the source in the list, so that those that work at once are different ones.
        let mut pairs: BTreeMap<(SiteNo, SiteNo), Vec<Copy>> = BTreeMap::new();
        for copy in copies {
            let behind = (copy.to + sites.len() - copy.from) % sites.len();
            pairs.entry((behind, copy.from)).or_default().push(copy);
        }
        let n_workers = pairs.len().min(PAIRS_MAX);
        let waiting = Mutex::new(pairs.into_values());
        let work =
            CopyWork { catalog: self, objects, sites, reached: &*reached, now_ms, lost: Mutex::default() };
        let (made, all_made) = mpsc::channel();
        let run = |made: mpsc::Sender<u64>| -> Result<Vec<Copy>> {
            let mut all = vec![];
            loop {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(copies) = next else { return Ok(all) };
                let (from, to) = (copies[0].from, copies[0].to);
                all.extend(work.make_pair(copies, &made)?);
                claims.end(&sites[from].name, &sites[to].name)?;
            }
        };
        let ended: Vec<Result<Vec<Copy>>> = claims.during(now_ms, || {
            thread::scope(|scope| {
                let begin = |_| {
                    let (run, made) = (&run, made.clone());
                    scope.spawn(move || run(made))
                };
                let workers: Vec<_> = (0..n_workers).map(begin).collect();
                drop(made);
                all_made.iter().for_each(&mut *progress);
                workers.into_iter().map(|worker| worker.join().expect("a copy does not panic")).collect()
            })
        });
        let lost = work.lost.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (site, (lost, reason)) in lost {
            let name = &sites[site].name;
            match lost {
                Lost::Away => drop(reached.remove(name)),
                // It may still be read, and is not written to again in this repair.
                Lost::Unwritten => {
                    drop(reached.entry(name.clone()).and_modify(|site| site.is_written = false))
                }
            }
            away.push((name.clone(), reason));
        }
        let mut all = vec![];
        for made in ended {
            all.extend(made?);
        }
        Ok(CarriedOut { made: all, n_left })
    }

    /// Drops copies that were made while a site was away that is back, as far as there are enough others.
    fn drop_stand_ins(
        &self,
        reached: &BTreeMap<String, Reached>,
        now_ms: i64,
        away: &mut Vec<(String, String)>,
    ) -> Result<u64> {
        let back: Vec<(Digest, String)> = self
            .stand_ins()?
            .into_iter()
            .filter(|(_, at, instead_of)| reached.contains_key(at) && reached.contains_key(instead_of))
            .map(|(digest, at, _)| (digest, at))
            .collect();
        if back.is_empty() { Ok(0) } else { self.undo(&back, reached, now_ms, away) }
    }
}

/// What became of copies that were planned.
pub(crate) struct CarriedOut {
    pub(crate) made: Vec<Copy>,
    /// Copies that others make, or that have to wait for others.
    pub(crate) n_left: u64,
}

/// How a site was lost while copies were made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Away,
    Unwritten,
}

/// What those need who make copies.
struct CopyWork<'a> {
    catalog: &'a Catalog,
    objects: &'a [Needed],
    sites: &'a [Site],
    reached: &'a BTreeMap<String, Reached>,
    now_ms: i64,
    /// Sites that went away or are full, with the reason.
    lost: Mutex<BTreeMap<SiteNo, (Lost, String)>>,
}

impl CopyWork<'_> {
    fn is_lost(&self, site: SiteNo, as_target: bool) -> bool {
        let name = &self.sites[site].name;
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).get(&site).map(|(lost, _)| *lost);
        let is_there = self.reached.get(name).is_some_and(|site| site.is_written || !as_target);
        !is_there || lost == Some(Lost::Away) || (as_target && lost.is_some())
    }

    fn lose(&self, site: SiteNo, lost: Lost, error: &Error) {
        let mut all = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(site).or_insert_with(|| (lost, error.reason()));
    }

    /// Makes copies from one site to another; returns those that were made.
    fn make_pair(&self, copies: Vec<Copy>, made_bytes: &mpsc::Sender<u64>) -> Result<Vec<Copy>> {
        let CopyWork { catalog, objects, sites, reached, now_ms, .. } = *self;
        let are_stores = sites[copies[0].from].is_store && sites[copies[0].to].is_store;
        let are_lost = self.is_lost(copies[0].from, false) || self.is_lost(copies[0].to, true);
        let (mut all, copies) = match are_stores && !are_lost {
            true => catalog.fetch(copies, objects, sites, reached, now_ms, made_bytes)?,
            false => (vec![], copies),
        };
        for copies in in_batches(copies, objects) {
            let to = copies[0].to;
            // A site that went away or is full meanwhile is not asked again.
            if self.is_lost(copies[0].from, false) || self.is_lost(to, true) {
                break;
            }
            match catalog.make_copies(&copies, objects, sites, reached, now_ms) {
                Ok(made) => {
                    // Whoever listens for progress may be gone after an error.
                    let _ =
                        made_bytes.send(made.copies.iter().map(|copy| objects[copy.object].size_bytes).sum());
                    made.away.iter().for_each(|(site, error)| self.lose(*site, Lost::Away, error));
                    all.extend(made.copies);
                }
                Err(error) if !error.is_of_database() => self.lose(to, Lost::Unwritten, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(all)
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

/// Copies that were made at a site.
struct MadeCopies {
    copies: Vec<Copy>,
    /// Sources that went away, with the reason.
    away: BTreeMap<SiteNo, Error>,
}

impl Catalog {
    /// Has one store fetch copies from another one. Returns those that were made, and those that have to be made in another way.
    fn fetch(
        &self,
        copies: Vec<Copy>,
        objects: &[Needed],
        sites: &[Site],
        reached: &BTreeMap<String, Reached>,
        now_ms: i64,
        made_bytes: &mpsc::Sender<u64>,
    ) -> Result<(Vec<Copy>, Vec<Copy>)> {
        let holding = |site: SiteNo| &*reached[&sites[site].name].holding;
        let (mut made, mut others) = (vec![], vec![]);
        let detours = || self.detours.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |site: SiteNo| sites[site].name.clone();
        let pair = copies.first().map(|copy| (name(copy.from), name(copy.to)));
        // Those that do not reach each other try once, and again after a while.
        let mut is_cut_off = pair.as_ref().is_some_and(|pair| detours().has(pair, now_ms));
        for copies in in_batches(copies, objects) {
            if is_cut_off {
                others.extend(copies);
                continue;
            }
            let (from, to) = (holding(copies[0].from), holding(copies[0].to));
            let digests: Vec<Digest> = copies.iter().map(|copy| objects[copy.object].digest).collect();
            let mut conditions = vec![None; copies.len()];
            let expected = self.expect(to.name(), &digests, now_ms)?;
            let fetched = from.permit(&digests).and_then(|permit| match permit {
                Some(permit) => {
                    to.fetch(&permit, &digests, &mut |n, condition| conditions[n] = Some(condition))
                }
                None => Ok(false),
            });
            // The way through this machine says what is wrong, if it does not help.
            let is_reached = matches!(fetched, Ok(true));
            match &pair {
                Some(pair) if is_reached => detours().worked(pair),
                Some(pair) => detours().failed(pair.clone(), now_ms),
                None => {}
            }
            if !is_reached {
                is_cut_off = true;
                conditions.fill(None);
            }
            let (mut came, mut doubted) = (HashMap::new(), vec![]);
            for ((copy, digest), condition) in copies.into_iter().zip(digests).zip(conditions) {
                match condition {
                    Some(Condition::Good) => {
                        came.insert(digest, copy);
                    }
                    // What one store says of another one's copy, the other one says itself.
                    Some(Condition::Bad | Condition::Missing) => {
                        doubted.push(digest);
                        others.push(copy);
                    }
                    None => others.push(copy),
                }
            }
            let expected: Vec<Marked> =
                expected.into_iter().filter(|copy| came.contains_key(&copy.digest)).collect();
            for digest in self.arrived(to.name(), &expected, now_ms)?.0 {
                let copy = came[&digest];
                // Whoever listens for progress may be gone after an error.
                let _ = made_bytes.send(objects[copy.object].size_bytes);
                made.push(copy);
            }
            match self.read_through(from, &doubted, now_ms) {
                Err(error) if error.is_of_database() => return Err(error),
                // It is away, or has said what it has.
                Err(_) | Ok(_) => {}
            }
        }
        Ok((made, others))
    }

    /// Makes copies at one site. A source that turns out to be damaged is noted as bad.
    ///
    /// # Errors
    /// The site cannot be written.
    fn make_copies(
        &self,
        copies: &[Copy],
        objects: &[Needed],
        sites: &[Site],
        reached: &BTreeMap<String, Reached>,
        now_ms: i64,
    ) -> Result<MadeCopies> {
        let to = &reached[&sites[copies[0].to].name].holding;
        let explain = |error: std::io::Error| {
            Error::Failed(format!("cannot write into the site `{}`: {error}", to.name()))
        };
        let mut batch = to.batch()?;
        let mut made = MadeCopies { copies: vec![], away: BTreeMap::new() };
        for copy in copies.iter().copied() {
            if made.away.contains_key(&copy.from) {
                continue;
            }
            let (digest, from) = (objects[copy.object].digest, &reached[&sites[copy.from].name].holding);
            match add_copy(&mut *batch, &**from, digest).map_err(explain)? {
                CopyEnd::Whole => made.copies.push(copy),
                CopyEnd::Damaged(_) => match self.read_through(&**from, &[digest], now_ms) {
                    Ok(_) => {}
                    Err(error) if !error.is_of_database() => {
                        made.away.insert(copy.from, error);
                    }
                    Err(error) => return Err(error),
                },
                CopyEnd::Away(error) => {
                    made.away.insert(copy.from, error);
                }
            }
        }
        let digests: Vec<Digest> = made.copies.iter().map(|copy| objects[copy.object].digest).collect();
        let expected = self.expect(to.name(), &digests, now_ms)?;
        batch.keep().map_err(explain)?;
        let came: HashSet<Digest> = self.arrived(to.name(), &expected, now_ms)?.0.into_iter().collect();
        made.copies.retain(|copy| came.contains(&objects[copy.object].digest));
        Ok(made)
    }

    /// Drops from a site what nobody needs; returns how many objects those were.
    fn drop_unneeded(&self, from: &dyn Holding, now_ms: i64) -> Result<u64> {
        let unneeded = self.take_unneeded(from.name())?;
        let needed = self.remove_unneeded(from, &unneeded, now_ms)?;
        Ok(unneeded.iter().filter(|digest| !needed.contains(digest)).count() as u64)
    }

    /// Removes objects at a site that are marked as deleting, and whatever else is set aside there. What somebody has begun to need
    /// since it was found to be unneeded is put back, and returned.
    ///
    /// Why two steps: between the catalog's answer and the removal of the bytes any time may pass, in which the same bytes may be put
    /// again. A put tells the catalog of its files before their bytes take their places ([`Catalog::expect`]). So bytes that came before
    /// they were set aside are known to be needed when the catalog is asked again, and bytes that come later are not touched.
    pub(crate) fn remove_unneeded(
        &self,
        from: &dyn Holding,
        marked: &[Digest],
        now_ms: i64,
    ) -> Result<HashSet<Digest>> {
        from.set_aside(marked)?;
        let aside = from.aside()?;
        if marked.is_empty() && aside.is_empty() {
            return Ok(HashSet::new());
        }
        // What was not there at all is forgotten, too.
        let digests: BTreeSet<Digest> =
            aside.iter().map(|aside| aside.digest).chain(marked.iter().copied()).collect();
        let expected = self.forget_unneeded(from.name(), &digests.into_iter().collect::<Vec<_>>(), now_ms)?;
        let needed: HashSet<Digest> = expected.iter().map(|copy| copy.digest).collect();
        let (put_back, gone): (Vec<Aside>, Vec<Aside>) =
            aside.into_iter().partition(|aside| needed.contains(&aside.digest));
        from.settle(&gone, &put_back)?;
        self.come_back(from, expected, now_ms)?;
        Ok(needed)
    }

    /// Reads through what was announced and is in its place again, and notes what it is. While it was aside, others may have found it
    /// missing and said so.
    pub(crate) fn come_back(&self, from: &dyn Holding, mut expected: Vec<Marked>, now_ms: i64) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let (mut good, mut others) = (vec![], vec![]);
            let digests: Vec<Digest> = expected.iter().map(|copy| copy.digest).collect();
            from.verify_all(&digests, &mut |n, condition| match condition {
                Condition::Good => good.push(expected[n]),
                other => others.push((expected[n], other)),
            })?;
            self.judge(from.name(), &others, OnTheirWay::AreLooked, now_ms)?;
            (_, expected) = self.arrived(from.name(), &good, now_ms)?;
            if expected.is_empty() {
                break;
            }
        }
        // The next repair looks at the rest.
        Ok(())
    }

    /// Has sites say of all versions what they are, so that the catalog can be made anew from any of them. Only what changed since
    /// the last time is written. Returns the sites that could not, with the reason, and those that have another version under a key, with
    /// that key.
    fn seal_all<'a>(
        &self,
        sites: impl Iterator<Item = &'a dyn Holding>,
    ) -> Result<(Vec<(String, String)>, Vec<(String, String)>)> {
        let everybody = Caller { name: "eyas".into(), groups: vec![], is_operator: true };
        let (newest, trails) = self.sealed_trails()?;
        let (mut failed, mut other) = (vec![], vec![]);
        let sites: Vec<&dyn Holding> = sites.collect();
        let sealed_at = |site: &&dyn Holding| trails.get(site.name()).copied().unwrap_or(0);
        let since = sites.iter().map(sealed_at).min().unwrap_or(newest) - TRAILS_OPEN;
        let mut sealing = vec![];
        for site in sites {
            // Where all versions are looked at, each site says first what it has.
            match if since <= 0 { site.seal_digests().map(Some) } else { Ok(None) } {
                Ok(known) => sealing.push((site, known)),
                Err(error) => failed.push((site.name().to_owned(), error.reason())),
            }
        }
        // Each work says whether the site has what it should have.
        let mut at_all =
            |key: &str, work: &dyn Fn(&dyn Holding, Option<&HashMap<String, Digest>>) -> Result<bool>| {
                sealing.retain(|(site, known)| match work(*site, known.as_ref()) {
                    Ok(true) => true,
                    Ok(false) => {
                        other.push((site.name().to_owned(), key.to_owned()));
                        true
                    }
                    Err(error) => {
                        failed.push((site.name().to_owned(), error.reason()));
                        false
                    }
                });
            };
        for key in self.versions("removed", since)? {
            let name = key.to_string();
            at_all(&name, &|site, known| match known.is_some_and(|known| !known.contains_key(&name)) {
                true => Ok(true),
                false => site.unseal(&key).map(|()| true),
            });
        }
        for key in self.versions("committed", since)? {
            let text = match self.sealed(&everybody, &key) {
                Ok(sealed) => sealed.text(),
                // It was removed meanwhile.
                Err(Error::NotFound(_)) => continue,
                Err(error) => return Err(error),
            };
            let (digest, name) = (Digest::of(&text), key.to_string());
            at_all(&name, &|site, known| match known.and_then(|known| known.get(&name)) == Some(&digest) {
                true => Ok(true),
                false => site.seal(&key, &text),
            });
        }
        for (site, _) in sealing.iter().filter(|(site, _)| trails.get(site.name()) != Some(&newest)) {
            self.set_sealed_trail(site.name(), newest)?;
        }
        Ok((failed, other))
    }
}
