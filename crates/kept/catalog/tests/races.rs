//! Puts, repairs and audits at the same time, in all or many orders of their steps at the sites: what was committed is there, and what
//! the catalog says to be good is good.

#[path = "common/mod.rs"]
mod common;

use common::{Databases, NOW, Server, alice};
use eyas_catalog::{
    Arrivals, Aside, Catalog, Condition, Folder, Holding, Key, NewSite, Put, Reach, ReplicaState, Result,
    Sealed, SitePlace, put,
};
use eyas_data::Digest;
use eyas_terms::rng::Rng;
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

const BYTES: &[u8] = b"bytes that were removed and come again";

/// Where a process stops at the site until it is its turn.
#[derive(Clone)]
struct Turns {
    stops: Sender<()>,
    goes: Arc<Mutex<Receiver<()>>>,
}

impl Turns {
    fn wait(&self) {
        self.stops.send(()).unwrap();
        self.goes.lock().unwrap().recv().unwrap();
    }
}

/// A folder whose requests that change something, or say what is there, wait for their turns.
struct Waiting {
    folder: Folder,
    turns: Turns,
}

struct Batch<'a> {
    inner: Box<dyn Arrivals + 'a>,
    turns: Turns,
}

impl Arrivals for Batch<'_> {
    fn add(&mut self, from: &mut dyn Read) -> io::Result<(Digest, u64)> {
        self.inner.add(from)
    }
    fn undo(&mut self) -> io::Result<()> {
        self.inner.undo()
    }
    fn keep(self: Box<Self>) -> io::Result<()> {
        self.turns.wait();
        self.inner.keep()?;
        self.turns.wait();
        Ok(())
    }
}

impl Holding for Waiting {
    fn batch(&self) -> Result<Box<dyn Arrivals + '_>> {
        self.turns.wait();
        Ok(Box::new(Batch { inner: self.folder.batch()?, turns: self.turns.clone() }))
    }
    fn set_aside(&self, digests: &[Digest]) -> Result<()> {
        self.turns.wait();
        self.folder.set_aside(digests)?;
        self.turns.wait();
        Ok(())
    }
    fn settle(&self, unneeded: &[Aside], needed: &[Aside]) -> Result<()> {
        self.turns.wait();
        self.folder.settle(unneeded, needed)?;
        self.turns.wait();
        Ok(())
    }
    fn aside(&self) -> Result<Vec<Aside>> {
        self.folder.aside()
    }
    fn name(&self) -> &str {
        self.folder.name()
    }
    fn place(&self) -> &SitePlace {
        self.folder.place()
    }
    fn claim(&self, catalog: &str) -> Result<String> {
        self.folder.claim(catalog)
    }
    fn open(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        self.folder.open(digest)
    }
    fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()> {
        if digests.is_empty() {
            return Ok(());
        }
        self.turns.wait();
        self.folder.verify_all(digests, found)?;
        self.turns.wait();
        Ok(())
    }
    fn objects(&self) -> Result<Vec<Digest>> {
        self.folder.objects()
    }
    fn seal(&self, key: &Key, text: &[u8]) -> Result<bool> {
        self.folder.seal(key, text)
    }
    fn unseal(&self, key: &Key) -> Result<()> {
        self.folder.unseal(key)
    }
    fn seal_digests(&self) -> Result<HashMap<String, Digest>> {
        self.folder.seal_digests()
    }
    fn seals(&self) -> Result<(Vec<Sealed>, Vec<String>)> {
        self.folder.seals()
    }
}

/// Reaches the site, with turns or without.
struct ReachWaiting(PathBuf, Option<Turns>);

impl Reach for ReachWaiting {
    fn reach(&self, site: &str, _: &str) -> Result<Box<dyn Holding>> {
        let folder = Folder::open(&self.0.join(site))?;
        Ok(match self.1.clone() {
            Some(turns) => Box::new(Waiting { folder, turns }),
            None => Box::new(folder),
        })
    }
}

/// Where a race is run: a folder for sites, and a database.
#[derive(Clone)]
struct Scene {
    root: PathBuf,
    url: String,
}

impl Scene {
    fn in_file(root: &Path) -> Scene {
        Scene { root: root.into(), url: format!("sqlite:{}", root.join("catalog.db").display()) }
    }

    fn catalog(&self, turns: Option<Turns>) -> Catalog {
        let catalog = Catalog::open(&self.url, NOW).or_else(|_| Catalog::init(&self.url, NOW)).unwrap();
        catalog.reaching(Box::new(ReachWaiting(self.root.clone(), turns)))
    }

    /// A catalog with sites of these names.
    fn with_sites(&self, names: &[&str]) -> Catalog {
        let catalog = self.catalog(None);
        for name in names {
            Folder::make(&self.root.join(name), name).unwrap();
            let new = NewSite { name, address: "host:1", join: Some("{}"), ..NewSite::default() };
            catalog.add_site(&alice(), &new, NOW).unwrap();
        }
        catalog.repair(NOW, &mut |_| {}).unwrap();
        catalog
    }

    fn put(&self, catalog: &Catalog, label: &str, site: &str) -> Result<()> {
        let source = self.root.join(format!("source-{label}"));
        std::fs::write(&source, BYTES).unwrap();
        let what = Put { sources: &[source], is_made: false, label, copies: Some(1), tags: &[], now_ms: NOW };
        put(catalog, &*catalog.holding(site)?, &alice(), &what, &mut |_, _| {}).map(|_| ())
    }

    /// What the catalog says to be good is, `kept` can be read, and nothing is left aside.
    fn check(&self, catalog: &Catalog, sites: &[&str], told: &str) {
        let digest = Digest::of(BYTES);
        let copies = catalog.whereabouts(&alice(), &"kept".parse().unwrap()).unwrap();
        let ready: Vec<&str> =
            copies.iter().filter(|copy| copy.state == ReplicaState::Ready).map(|copy| &*copy.site).collect();
        assert!(!ready.is_empty(), "{told}: no site has a good copy of what was put: {copies:?}");
        for site in sites {
            let folder = Folder::open(&self.root.join(site)).unwrap();
            let mut is_good = false;
            folder.verify_all(&[digest], &mut |_, found| is_good = found == Condition::Good).unwrap();
            assert!(is_good || !ready.contains(site), "{told}: the copy at {site} is not good");
            assert_eq!(folder.aside().unwrap(), [], "{told}");
        }
    }
}

/// A process of which each step waits until it is let go.
struct Stepped<T> {
    stops: Receiver<()>,
    goes: Sender<()>,
    ends: thread::JoinHandle<T>,
}

fn stepped<T: Send + 'static>(work: impl FnOnce(Turns) -> T + Send + 'static) -> Stepped<T> {
    let ((stops, stopped), (goes, go)) = (channel(), channel());
    let turns = Turns { stops, goes: Arc::new(Mutex::new(go)) };
    Stepped { stops: stopped, goes, ends: thread::spawn(move || work(turns)) }
}

impl<T> Stepped<T> {
    /// Lets it do one step; returns whether it had one.
    fn step(&self) -> bool {
        // It is at a stop, or has ended.
        self.stops.recv().is_ok() && self.goes.send(()).is_ok()
    }
}

/// What runs at the same time.
#[derive(Clone, Copy)]
enum Does {
    /// Puts the bytes as `kept` into the first site.
    Put,
    Repair,
    /// Audits the first site.
    Audit,
}

/// Lets processes take their steps, each time the one that `next` chooses of so many, until all have ended. Returns the order.
fn race(scene: &Scene, does: &[Does], mut next: impl FnMut(usize) -> usize) -> String {
    let begin = |does: &Does| {
        let (does, scene) = (*does, scene.clone());
        stepped(move |turns| {
            let catalog = scene.catalog(Some(turns));
            match does {
                Does::Put => scene.put(&catalog, "kept", "first"),
                Does::Repair => catalog.repair(NOW, &mut |_| {}).map(|_| ()),
                Does::Audit => catalog.audit("first", NOW, &mut |_| {}).map(|_| ()),
            }
        })
    };
    let processes: Vec<Stepped<Result<()>>> = does.iter().map(begin).collect();
    let mut going: Vec<usize> = (0..does.len()).collect();
    let mut told = String::new();
    while !going.is_empty() {
        let at = next(going.len());
        match processes[going[at]].step() {
            true => told += &going[at].to_string(),
            false => drop(going.remove(at)),
        }
    }
    for process in processes {
        process.ends.join().unwrap().unwrap_or_else(|error| panic!("{told}: {error}"));
    }
    told
}

/// The bytes were in a data set that was removed, and are put again.
fn removed_and_put_again(scene: &Scene, does: &[Does], next: impl FnMut(usize) -> usize) -> String {
    let catalog = scene.with_sites(&["first"]);
    scene.put(&catalog, "old", "first").unwrap();
    catalog.remove(&alice(), &"old".parse().unwrap(), NOW).unwrap();
    let told = race(scene, does, next);
    scene.check(&catalog, &["first"], &told);
    catalog.repair(NOW, &mut |_| {}).unwrap();
    scene.check(&catalog, &["first"], &format!("{told} and another repair"));
    told
}

/// A data set has a good copy elsewhere and a damaged one where the same bytes are put.
fn damaged_and_put_again(scene: &Scene, does: &[Does], next: impl FnMut(usize) -> usize) {
    let (sites, digest) = (["first", "second"], Digest::of(BYTES));
    let catalog = scene.with_sites(&sites);
    sites.iter().for_each(|site| scene.put(&catalog, "old", site).unwrap());
    let damaged = Folder::open(&scene.root.join("first")).unwrap().path_of(digest);
    std::fs::remove_file(&damaged).unwrap();
    std::fs::write(&damaged, "damaged").unwrap();
    let told = race(scene, does, next);
    scene.check(&catalog, &sites, &told);
    catalog.audit("first", NOW, &mut |_| {}).unwrap();
    catalog.repair(NOW, &mut |_| {}).unwrap();
    scene.check(&catalog, &sites, &format!("{told} and an audit"));
}

/// In memory where there is such a folder, as nothing has to outlive a power cut.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

#[test]
fn what_is_put_while_the_same_bytes_are_removed_is_kept() {
    // A put has three steps and a repair four, or some more where it puts something back.
    let race = |order: u32| {
        let dir = folder();
        let mut n = 0;
        removed_and_put_again(&Scene::in_file(dir.path()), &[Does::Put, Does::Repair], |n_going| {
            n += 1;
            if n_going == 1 { 0 } else { (order >> (n - 1) & 1) as usize }
        })
    };
    let mut orders: Vec<String> = (0_u32..1 << 8).filter(|order| order.count_ones() == 4).map(race).collect();
    orders.sort();
    orders.dedup();
    assert!(orders.len() >= 20, "{orders:?}");
}

/// `EYAS_RACES=FROM..END` says which seeds; without it, a few.
#[test]
fn what_is_put_beside_repairs_and_audits_is_kept() {
    let given = std::env::var("EYAS_RACES").ok();
    let seeds = match given.as_deref().and_then(|text| text.split_once("..")) {
        Some((from, end)) => from.parse().unwrap()..end.parse().unwrap(),
        None => 0..60,
    };
    for seed in seeds {
        let dirs = [folder(), folder()];
        let [removed, damaged] = dirs.each_ref().map(|dir| Scene::in_file(dir.path()));
        race_with_seed(seed, &removed, &damaged);
    }
}

#[test]
fn what_is_put_beside_repairs_and_audits_is_kept_in_postgresql() {
    let server = Server::start();
    for seed in 1000..1006 {
        let dirs = [folder(), folder()];
        let [removed, damaged] = ["removed", "damaged"].map(|name| server.url(&format!("{name}{seed}")));
        let scene = |dir: &tempfile::TempDir, url: String| Scene { root: dir.path().into(), url };
        race_with_seed(seed, &scene(&dirs[0], removed), &scene(&dirs[1], damaged));
    }
}

fn race_with_seed(seed: u64, removed: &Scene, damaged: &Scene) {
    let mut rng = Rng::new(seed);
    let mut does =
        vec![Does::Put, Does::Repair, if seed.is_multiple_of(2) { Does::Repair } else { Does::Audit }];
    if seed.is_multiple_of(3) {
        does.push(Does::Audit);
    }
    removed_and_put_again(removed, &does, |n_going| rng.below(n_going as u64) as usize);
    damaged_and_put_again(damaged, &does, |n_going| rng.below(n_going as u64) as usize);
}
