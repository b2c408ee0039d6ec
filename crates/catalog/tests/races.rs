//! A put and a repair at the same time, in every order of their steps at the site: what was committed is there.

use eyas_catalog::{
    Arrivals, Aside, Caller, Catalog, Condition, Folder, Holding, Key, NewSite, Place, Put, Reach, Result,
    Sealed, put,
};
use eyas_data::Digest;
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

const NOW: i64 = 1_800_000_000_000;
const BYTES: &[u8] = b"bytes that were removed and come again";

fn alice() -> Caller {
    Caller::user("alice")
}

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

/// A folder whose requests that change something wait for their turns.
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
    fn place(&self) -> &Place {
        self.folder.place()
    }
    fn claim(&self, catalog: &str) -> Result<String> {
        self.folder.claim(catalog)
    }
    fn open(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        self.folder.open(digest)
    }
    fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()> {
        self.folder.verify_all(digests, found)
    }
    fn objects(&self) -> Result<Vec<Digest>> {
        self.folder.objects()
    }
    fn seal(&self, key: &Key, text: &[u8]) -> Result<()> {
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
    fn reach(&self, _: &str, _: &str) -> Result<Box<dyn Holding>> {
        let folder = Folder::open(&self.0.join("site"))?;
        Ok(match self.1.clone() {
            Some(turns) => Box::new(Waiting { folder, turns }),
            None => Box::new(folder),
        })
    }
}

fn catalog(root: &Path, turns: Option<Turns>) -> Catalog {
    let url = format!("sqlite:{}", root.join("catalog.db").display());
    let catalog = Catalog::open(&url, NOW).or_else(|_| Catalog::init(&url, NOW)).unwrap();
    catalog.reaching(Box::new(ReachWaiting(root.into(), turns)))
}

fn put_bytes(catalog: &Catalog, root: &Path, label: &str) -> Result<()> {
    let source = root.join("source");
    std::fs::write(&source, BYTES).unwrap();
    let what = Put { sources: &[source], label, copies: Some(1), tags: &[], now_ms: NOW };
    put(catalog, &*catalog.holding("site")?, &alice(), &what, &mut |_, _| {}).map(|_| ())
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

/// How the steps of the two went, as `p` and `r`; `bit` n of the order says whose turn the nth is.
fn race(order: u32) -> String {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    Folder::make(&root.join("site"), "site").unwrap();
    let first = catalog(&root, None);
    let new = NewSite { name: "site", address: "site:1", join: Some("{}"), ..NewSite::default() };
    first.add_site(&alice(), &new, NOW).unwrap();
    first.repair(NOW, &mut |_| {}).unwrap();
    put_bytes(&first, &root, "old").unwrap();
    first.remove(&alice(), &"old".parse().unwrap(), NOW).unwrap();

    let (of_put, of_repair) = (root.clone(), root.clone());
    let putting = stepped(move |turns| put_bytes(&catalog(&of_put, Some(turns)), &of_put, "new"));
    let repairing =
        stepped(move |turns| catalog(&of_repair, Some(turns)).repair(NOW, &mut |_| {}).map(|_| ()));
    let mut told = String::new();
    for n in 0.. {
        // Where one has ended, the other goes on.
        let put_first = order >> n & 1 == 0;
        let (has_stepped, name) = match put_first {
            true if putting.step() => (true, 'p'),
            false if repairing.step() => (true, 'r'),
            true => (repairing.step(), 'r'),
            false => (putting.step(), 'p'),
        };
        if !has_stepped {
            break;
        }
        told.push(name);
    }
    let was_put = putting.ends.join().unwrap();
    repairing.ends.join().unwrap().unwrap_or_else(|error| panic!("{told}: {error}"));
    was_put.unwrap_or_else(|error| panic!("{told}: {error}"));
    let there = |when: &str| {
        let digest = Digest::of(BYTES);
        let site = Folder::open(&root.join("site")).unwrap();
        assert!(site.open(digest).unwrap().is_some(), "{told}: what was put is gone {when}");
        let key = "new".parse().unwrap();
        let holders = first.holders(&alice(), &key).unwrap();
        assert_eq!(holders[&digest], ["site"], "{told}: {when}");
        assert_eq!(site.aside().unwrap(), [], "{told}: {when}");
    };
    there("at once");
    first.repair(NOW, &mut |_| {}).unwrap();
    there("after another repair");
    told
}

#[test]
fn what_is_put_while_the_same_bytes_are_removed_is_kept() {
    // A put has three steps and a repair four.
    let mut orders: Vec<String> = (0_u32..1 << 7).filter(|order| order.count_ones() == 4).map(race).collect();
    orders.sort();
    orders.dedup();
    assert!(orders.len() >= 20, "{orders:?}");
}
