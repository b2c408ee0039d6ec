//! The checker of lives: *no committed file is lost while one good copy existed*.
//!
//! The real catalog on a database in a file, with sites in memory that fail as a seed says: they stop to answer in the middle of a
//! copy, of a removal or of an audit, come back with what they had, lose their objects or their whole folder, and bits of their copies
//! flip. Meanwhile data sets are put and removed, sites are drained, and the clock is set a year forwards or back. What is checked:
//!
//! * at each removal of a good copy of a file that a committed data set needs: as many other good ones as it asks for are left;
//! * after each put: what was committed can be found, and what was not cannot;
//! * at the end, when nothing fails any more: each committed file of which any site had a good copy left can be read with its bytes,
//!   and has as many good copies as it should, as far as there are sites.

#[path = "lives/sites.rs"]
mod sites;

use eyas_catalog::{Caller, Catalog, Joining, Key, NewSite, Put, SiteState, put};
use eyas_data::Digest;
use eyas_keeping::spare::Goals;
use eyas_keeping::verification::Pace;
use eyas_terms::rng::Rng;
use sites::{Site, World};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

const DAY_MS: i64 = 86_400_000;
const YEAR_MS: i64 = 365 * DAY_MS;
const N_STEPS: u64 = 45;

struct Life<'a> {
    rng: Rng,
    folder: &'a Path,
    catalog: Catalog,
    world: World,
    now_ms: i64,
    n_made: u64,
    /// Committed data sets: the bytes of each file, by path, and how many copies there should be.
    sets: BTreeMap<String, (BTreeMap<String, Vec<u8>>, u32)>,
    /// What was done, for whoever reads of a violation.
    trace: Vec<String>,
}

fn alice() -> Caller {
    Caller::user("alice")
}

/// In memory where there is such a folder, as nothing has to outlive a power cut.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Lives through the life of a seed; the error is what went wrong, after what was done.
fn live(seed: u64) -> Result<(), String> {
    let folder = folder();
    let mut life = Life::new(seed, folder.path());
    let n_sites = 2 + life.rng.below(4);
    for n in 0..n_sites {
        life.add_site(&format!("s{n}"));
    }
    let lived = (0..N_STEPS).try_for_each(|_| life.step()).and_then(|()| life.end());
    lived.map_err(|what| format!("seed {seed}: {what}, after\n{}", life.trace.join("\n")))
}

impl<'a> Life<'a> {
    fn new(seed: u64, folder: &'a Path) -> Life<'a> {
        let world = World::default();
        let url = format!("sqlite:{}", folder.join("catalog.db").display());
        let catalog = Catalog::init(&url, 0).unwrap().reaching(Box::new(world.clone()));
        Life {
            rng: Rng::new(seed),
            folder,
            catalog,
            world,
            now_ms: 1_800_000_000_000,
            n_made: 0,
            sets: BTreeMap::new(),
            trace: vec![],
        }
    }
    fn name(&mut self) -> String {
        let disks = self.world.disks();
        let n = self.rng.below(disks.sites.len() as u64) as usize;
        disks.sites.keys().nth(n).unwrap().clone()
    }

    fn new_folder(&mut self) -> Site {
        self.n_made += 1;
        let free_bytes = if self.rng.below(6) == 0 { 1500 } else { 1 << 30 };
        Site { folder_id: format!("folder{}", self.n_made), answers: true, free_bytes, ..Site::default() }
    }

    fn add_site(&mut self, name: &str) {
        let folder = self.new_folder();
        self.world.disks().sites.insert(name.into(), folder);
        self.join(name, Joining::Comes);
    }

    fn join(&mut self, name: &str, how: Joining) {
        let domain = format!("hall{}", self.rng.below(3));
        let new =
            NewSite { name, address: name, join: Some("{}"), domain: Some(&domain), ..NewSite::default() };
        let holding = eyas_catalog::Reach::reach(&self.world, name, "").unwrap();
        self.catalog.join_site(&alice(), &*holding, &new, how, self.now_ms).unwrap();
    }

    fn say(&mut self, text: impl Into<String>) {
        self.trace.push(text.into());
    }

    fn step(&mut self) -> Result<(), String> {
        let site = self.name();
        match self.rng.below(25) {
            0..=4 => self.put(&site)?,
            5 => self.remove_a_set(),
            6..=9 => self.repair(),
            10 => {
                let audited = self.catalog.audit(&site, self.now_ms, &mut |_| {});
                self.say(format!("audit {site}: {audited:?}"));
            }
            11 => {
                let pace =
                    Pace { period_ms: 30 * DAY_MS as u64, look_ms: DAY_MS as u64, most_bytes: Some(3000) };
                let audited = self.catalog.audit_due(&site, pace, self.now_ms);
                self.say(format!("audit of what is due {site}: {audited:?}"));
            }
            12 | 13 => {
                let fuse = self.rng.below(12);
                self.world.disks().sites.get_mut(&site).unwrap().fuse = Some(fuse);
                self.say(format!("{site} stops after {fuse}"));
            }
            14..=16 => {
                self.world.disks().sites.values_mut().for_each(|site| site.answers = true);
                self.say("all sites answer");
            }
            17 => {
                let objects = self.world.disks().sites[&site].objects.len() as u64;
                if objects > 0 {
                    let nth = self.rng.below(objects) as usize;
                    let mut disks = self.world.disks();
                    let (digest, bytes) =
                        disks.sites.get_mut(&site).unwrap().objects.iter_mut().nth(nth).unwrap();
                    let digest = *digest;
                    match bytes.first_mut() {
                        // Another value each time: what was flipped twice would be whole again.
                        Some(first) => *first = first.wrapping_add(1),
                        None => bytes.push(0),
                    }
                    drop(disks);
                    self.say(format!("a bit of {digest} flips at {site}"));
                }
            }
            18 => {
                self.world.disks().sites.get_mut(&site).unwrap().objects.clear();
                self.say(format!("the objects of {site} are deleted"));
            }
            19 => {
                let folder = self.new_folder();
                self.world.disks().sites.insert(site.clone(), folder);
                self.say(format!("the folder of {site} is another one"));
                if self.rng.below(2) == 0 {
                    self.join(&site, Joining::Replaces);
                    self.say("which replaces it");
                }
            }
            22..=24 => self.spare(),
            20 => {
                let state = if self.rng.below(2) == 0 { SiteState::Draining } else { SiteState::Up };
                self.catalog.set_site_state(&alice(), &site, state, self.now_ms).unwrap();
                self.say(format!("{site} is {state:?}"));
            }
            _ => {
                self.now_ms += if self.rng.below(2) == 0 { YEAR_MS } else { -YEAR_MS };
                self.say("the clock is a year off");
            }
        }
        self.now_ms += DAY_MS;
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        match &self.world.disks().violation {
            Some(what) => Err(what.clone()),
            None => Ok(()),
        }
    }

    fn put(&mut self, site: &str) -> Result<(), String> {
        self.n_made += 1;
        let (label, copies) = (format!("set{}", self.n_made), 1 + self.rng.below(3) as u32);
        let source = self.folder.join(&label);
        std::fs::create_dir(&source).unwrap();
        let mut files = BTreeMap::new();
        for n in 0..1 + self.rng.below(3) {
            // Some files are those of other data sets, also of removed ones.
            let (of, size) = (self.rng.below(12) as u8, 700 * (1 + self.rng.below(2) as usize));
            let (path, bytes) = (format!("f{n}"), vec![of; size]);
            std::fs::write(source.join(&path), &bytes).unwrap();
            files.insert(path, bytes);
        }
        let what = Put {
            sources: &[source],
            is_made: false,
            label: &label,
            copies: Some(copies),
            tags: &[],
            now_ms: self.now_ms,
        };
        let done = self
            .catalog
            .holding(site)
            .and_then(|holding| put(&self.catalog, &*holding, &alice(), &what, &mut |_, _| {}));
        self.say(format!("put {label}, {copies} copies, into {site}: {done:?}"));
        let key: Key = label.parse().unwrap();
        if self.catalog.show(&alice(), &key).is_ok() != done.is_ok() {
            return Err(format!("`{label}` is there or not, other than its put said"));
        }
        if done.is_ok() {
            self.sets.insert(label, (files, copies));
            self.note_needed();
        }
        Ok(())
    }

    fn remove_a_set(&mut self) {
        if self.sets.is_empty() {
            return;
        }
        let nth = self.rng.below(self.sets.len() as u64) as usize;
        let label = self.sets.keys().nth(nth).unwrap().clone();
        self.catalog.remove(&alice(), &label.parse().unwrap(), self.now_ms).unwrap();
        self.sets.remove(&label);
        self.note_needed();
        self.say(format!("{label} is removed"));
    }

    fn note_needed(&self) {
        let digests = |(files, copies): &(BTreeMap<String, Vec<u8>>, u32)| {
            files.values().map(|bytes| (Digest::of(bytes), *copies)).collect::<Vec<_>>()
        };
        let files = self.sets.values().flat_map(digests);
        let mut needed = HashMap::new();
        for (digest, copies) in files {
            let most: &mut u32 = needed.entry(digest).or_default();
            *most = copies.max(*most);
        }
        self.world.disks().needed = needed;
    }

    fn repair(&mut self) {
        let repaired = self.catalog.repair(self.now_ms, &mut |_| {});
        self.say(format!("repair: {repaired:?}"));
    }

    /// Somebody reads some files much, and spare copies are looked after.
    fn spare(&mut self) {
        {
            let mut disks = self.world.disks();
            let mut needed: Vec<Digest> = disks.needed.keys().copied().collect();
            needed.sort_unstable();
            for digest in needed {
                if self.rng.below(3) == 0 {
                    let n_bytes = 700 * self.rng.below(40);
                    let holder = disks.sites.values_mut().find(|site| site.objects.contains_key(&digest));
                    if let Some(site) = holder {
                        site.read.insert(digest, n_bytes);
                    }
                }
            }
        }
        let goals = Goals {
            free_part: 0.1,
            reads_per_copy: 2.0,
            spare_bytes_max: 1000 * self.rng.below(10),
            copies_max: 4,
            made_bytes_max: u64::MAX,
        };
        let spared = self.catalog.spare(&goals, DAY_MS as u64, self.now_ms);
        self.say(format!("spare copies: {spared:?}"));
    }

    /// Nothing fails any more, and everything has to be made good that can be.
    fn end(&mut self) -> Result<(), String> {
        self.say("the end: nothing fails any more");
        let names: Vec<String> = self.world.disks().sites.keys().cloned().collect();
        for name in &names {
            let mut disks = self.world.disks();
            let site = disks.sites.get_mut(name).unwrap();
            (site.answers, site.fuse, site.free_bytes) = (true, None, 1 << 30);
            let is_new = site.catalog.is_none();
            drop(disks);
            if is_new {
                self.join(name, Joining::Replaces);
            }
            self.catalog.set_site_state(&alice(), name, SiteState::Up, self.now_ms).unwrap();
        }
        let had: Vec<Digest> = {
            let disks = self.world.disks();
            disks.needed.keys().copied().filter(|digest| disks.n_good(digest) > 0).collect()
        };
        for name in &names {
            let audited = self.catalog.audit(name, self.now_ms, &mut |_| {});
            self.say(format!("audit {name}: {audited:?}"));
            audited.map_err(|error| format!("an audit fails without a fault: {error}"))?;
        }
        self.repair();
        self.check()?;
        let target = self.folder.join("got");
        for (label, (files, copies)) in &self.sets {
            let key: Key = label.parse().unwrap();
            let reader =
                self.catalog.reader(&alice(), &key, self.now_ms).map_err(|error| error.to_string())?;
            for (path, bytes) in files {
                let digest = Digest::of(bytes);
                if !had.contains(&digest) {
                    continue;
                }
                let file = reader.file(path).map_err(|error| error.to_string())?;
                reader.get(file, &target).map_err(|error| {
                    format!("`{path}` of `{label}` is lost, of which there was a good copy: {error}")
                })?;
                if std::fs::read(&target).unwrap() != *bytes {
                    return Err(format!("`{path}` of `{label}` has other bytes"));
                }
                let (n_good, most) = (self.world.disks().n_good(&digest), names.len());
                if n_good < most.min(*copies as usize) {
                    return Err(format!("`{path}` of `{label}` has {n_good} copies of {copies}"));
                }
            }
        }
        Ok(())
    }
}

/// `EYAS_LIVES=FROM..END` says which seeds; without it, a few.
#[test]
fn no_committed_file_is_lost_while_one_good_copy_exists() {
    let given = std::env::var("EYAS_LIVES").ok();
    let seeds = match given.as_deref().and_then(|text| text.split_once("..")) {
        Some((from, end)) => from.parse().unwrap()..end.parse().unwrap(),
        None => 0..100,
    };
    for seed in seeds {
        if let Err(what) = live(seed) {
            panic!("{what}");
        }
    }
}

/// The removal of a data set's copies breaks off, and its bytes are put again elsewhere and lost there: the copy that was to be
/// dropped is the only one, and is kept.
#[test]
fn what_was_to_be_dropped_and_is_needed_again_is_kept() {
    let folder = folder();
    let mut life = Life::new(1, folder.path());
    for name in ["s0", "s1"] {
        life.add_site(name);
        life.world.disks().sites.get_mut(name).unwrap().free_bytes = 1 << 30;
    }
    let source = folder.path().join("x");
    std::fs::write(&source, "bytes").unwrap();
    for (label, site) in [("first", "s0"), ("second", "s1")] {
        let what = Put {
            sources: std::slice::from_ref(&source),
            label,
            copies: Some(2),
            tags: &[],
            now_ms: life.now_ms,
            is_made: false,
        };
        let holding = life.catalog.holding(site).unwrap();
        put(&life.catalog, &*holding, &alice(), &what, &mut |_, _| {}).unwrap();
        if label == "first" {
            life.catalog.remove(&alice(), &"first".parse().unwrap(), life.now_ms).unwrap();
            assert_eq!(life.catalog.take_unneeded("s0").unwrap(), [Digest::of(b"bytes")]);
        }
    }
    life.world.disks().needed = [(Digest::of(b"bytes"), 2)].into();
    life.world.disks().sites.get_mut("s1").unwrap().objects.clear();
    life.catalog.audit("s1", life.now_ms, &mut |_| {}).unwrap();
    let repair = life.catalog.repair(life.now_ms, &mut |_| {}).unwrap();
    assert_eq!((repair.n_copies, repair.n_removed, repair.short), (1, 0, vec![]));
    assert_eq!(life.check(), Ok(()));
    assert_eq!(life.world.disks().n_good(&Digest::of(b"bytes")), 2);
}
