//! Faults on purpose: a home that fails as real ones do, the same way for the same seed.
//!
//! Whether the n-th use of a location goes wrong depends on the seed, the location, the operation and n alone, not on
//! the order in which threads come, so a failing run can be repeated.
//!
//! `truncate` and `flip` are lies: fewer or other bytes, without an error. Length checks and digests have to find them.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::{
    Capabilities, Home, Listed, Listing, Location, Opened, Part, PartPlace, Put, Stat, fnv1a64, splitmix64,
};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Probabilities in `[0, 1]` for one call each; the default injects nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChaosConfig {
    /// Decides everything.
    pub seed: u64,
    /// `stat` fails, temporarily.
    pub stat_fail: f64,
    /// `open` fails, temporarily.
    pub open_fail: f64,
    /// A body fails at a random byte, temporarily.
    pub read_fail: f64,
    /// A body ends at a random byte, without an error.
    pub truncate: f64,
    /// A body has one random bit inverted.
    pub flip: f64,
    /// `write` fails before its first byte, temporarily.
    pub write_fail: f64,
    /// `write` finds the disk full at its first byte.
    pub no_space: f64,
    /// `list` fails, temporarily.
    pub list_fail: f64,
    /// `remove` fails, temporarily.
    pub remove_fail: f64,
}

/// How many faults of each kind were injected so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ChaosCounts {
    pub stat_fail: u64,
    pub open_fail: u64,
    pub read_fail: u64,
    pub truncate: u64,
    pub flip: u64,
    pub write_fail: u64,
    pub no_space: u64,
    pub list_fail: u64,
    pub remove_fail: u64,
}

/// A home with injected faults.
pub struct Chaos {
    inner: Arc<dyn Home>,
    config: ChaosConfig,
    /// Uses so far of each (operation, location).
    n_uses: Mutex<BTreeMap<(&'static str, Location), u64>>,
    counts: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    stat_fail: AtomicU64,
    open_fail: AtomicU64,
    read_fail: AtomicU64,
    truncate: AtomicU64,
    flip: AtomicU64,
    write_fail: AtomicU64,
    no_space: AtomicU64,
    list_fail: AtomicU64,
    remove_fail: AtomicU64,
}

impl Chaos {
    /// Around `inner`, which keeps working normally for others.
    pub fn new(inner: Arc<dyn Home>, config: ChaosConfig) -> Chaos {
        Chaos { inner, config, n_uses: Mutex::new(BTreeMap::new()), counts: Arc::default() }
    }

    /// How many faults were injected so far; those of bodies count when they strike.
    pub fn counts(&self) -> ChaosCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &*self.counts;
        ChaosCounts {
            stat_fail: get(&counts.stat_fail),
            open_fail: get(&counts.open_fail),
            read_fail: get(&counts.read_fail),
            truncate: get(&counts.truncate),
            flip: get(&counts.flip),
            write_fail: get(&counts.write_fail),
            no_space: get(&counts.no_space),
            list_fail: get(&counts.list_fail),
            remove_fail: get(&counts.remove_fail),
        }
    }

    /// The dice for this use of a location.
    fn dice(&self, operation: &'static str, location: &Location) -> Dice {
        let mut uses = self.n_uses.lock().unwrap_or_else(PoisonError::into_inner);
        let n = uses.entry((operation, location.clone())).or_insert(0);
        *n += 1;
        let place = fnv1a64(location.as_str().as_bytes()) ^ fnv1a64(operation.as_bytes()).rotate_left(32);
        Dice(splitmix64(self.config.seed ^ splitmix64(place ^ splitmix64(*n))))
    }

    fn maybe_fail(
        &self,
        dice: &mut Dice,
        probability: f64,
        counter: &AtomicU64,
        operation: &'static str,
        location: &Location,
    ) -> Result<()> {
        if !dice.hits(probability) {
            return Ok(());
        }
        counter.fetch_add(1, Ordering::Relaxed);
        Err(injected(operation, location))
    }
}

fn injected(operation: &'static str, location: &Location) -> Error {
    Error::new(ErrorKind::Io, Status::Temporary, operation, location, "a fault was injected")
}

/// A stream of random numbers.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix64(self.0)
    }

    fn hits(&mut self, probability: f64) -> bool {
        // 53 bits make a number in [0, 1), so 1 always hits and 0 never.
        ((self.next() >> 11) as f64) / ((1u64 << 53) as f64) < probability
    }

    /// Uniform in `[0, end)`, as far as a remainder is; `end` is at least 1.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl Chaos {
    fn open_by(&self, location: &Location, open: impl FnOnce() -> Result<Opened>) -> Result<Opened> {
        let mut dice = self.dice("read", location);
        self.maybe_fail(&mut dice, self.config.open_fail, &self.counts.open_fail, "read", location)?;
        let mut opened = open()?;
        let size_bytes = opened.range.end - opened.range.start;
        let kinds = [
            (Strike::Fail, self.config.read_fail),
            (Strike::End, self.config.truncate),
            (Strike::Flip, self.config.flip),
        ];
        let strike = kinds.into_iter().find(|(_, probability)| dice.hits(*probability));
        if let Some((strike, _)) = strike
            && size_bytes > 0
        {
            // A copy by file handle would go round the fault.
            opened.file = None;
            opened.reader = Box::new(Struck {
                reader: opened.reader,
                location: location.clone(),
                strike: Some(strike),
                until_bytes: dice.below(size_bytes),
                bit: 1 << dice.below(8),
                counts: self.counts.clone(),
            });
        }
        Ok(opened)
    }
}

impl Home for Chaos {
    fn capabilities(&self) -> &'static Capabilities {
        self.inner.capabilities()
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        let mut dice = self.dice("stat", location);
        self.maybe_fail(&mut dice, self.config.stat_fail, &self.counts.stat_fail, "stat", location)?;
        self.inner.stat(location)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        self.open_by(location, || self.inner.open(location, range))
    }

    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        self.open_by(location, || self.inner.open_first(location, most_bytes))
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let mut dice = self.dice("write", location);
        self.maybe_fail(&mut dice, self.config.write_fail, &self.counts.write_fail, "write", location)?;
        if dice.hits(self.config.no_space) {
            self.counts.no_space.fetch_add(1, Ordering::Relaxed);
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(Error::from_io("write", location, full).with_context("cause", "a fault was injected"));
        }
        self.inner.put(location, body, put)
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        self.inner.remove_part(part)
    }

    fn remove_parts(&self, location: &Location, part: &Part) -> Result<()> {
        self.inner.remove_parts(location, part)
    }

    fn end_unfinished(&self, place: &Location) -> Result<u64> {
        self.inner.end_unfinished(place)
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        let location = listing.directory();
        let mut dice = self.dice("list", location);
        self.maybe_fail(&mut dice, self.config.list_fail, &self.counts.list_fail, "list", location)?;
        self.inner.list(listing)
    }

    fn remove(&self, location: &Location) -> Result<()> {
        let mut dice = self.dice("remove", location);
        self.maybe_fail(&mut dice, self.config.remove_fail, &self.counts.remove_fail, "remove", location)?;
        self.inner.remove(location)
    }

    fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        self.inner.rename(from, to)
    }

    fn make_directory(&self, location: &Location) -> Result<()> {
        self.inner.make_directory(location)
    }

    fn remove_directory(&self, location: &Location) -> Result<u64> {
        self.inner.remove_directory(location)
    }

    fn mode(&self, location: &Location) -> Result<Option<u32>> {
        self.inner.mode(location)
    }

    fn set_mode(&self, location: &Location, mode: u32) -> Result<()> {
        self.inner.set_mode(location, mode)
    }

    fn may_write(&self, location: &Location) -> Result<()> {
        self.inner.may_write(location)
    }

    fn places(&self, location: &Location) -> Result<Vec<PartPlace>> {
        self.inner.places(location)
    }

    fn local_path(&self, location: &Location) -> Option<PathBuf> {
        self.inner.local_path(location)
    }
}

#[derive(Clone, Copy)]
enum Strike {
    Fail,
    End,
    Flip,
}

/// A body that goes wrong once, at a fixed byte.
struct Struck {
    reader: Box<dyn Read + Send>,
    location: Location,
    strike: Option<Strike>,
    /// Good bytes still to come before the fault.
    until_bytes: u64,
    bit: u8,
    counts: Arc<Counters>,
}

impl Read for Struck {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(strike) = self.strike else { return self.reader.read(buffer) };
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.until_bytes > 0 {
            let want = buffer.len().min(usize::try_from(self.until_bytes).unwrap_or(usize::MAX));
            let n = self.reader.read(&mut buffer[..want])?;
            self.until_bytes -= n as u64;
            return Ok(n);
        }
        match strike {
            Strike::Fail => {
                self.strike = None;
                self.counts.read_fail.fetch_add(1, Ordering::Relaxed);
                // What follows would be right, but nobody reads on after a failure.
                Err(injected("read", &self.location).into())
            }
            Strike::End => {
                // Stays at the end, as a short file does.
                self.counts.truncate.fetch_add(1, Ordering::Relaxed);
                Ok(0)
            }
            Strike::Flip => {
                let n = self.reader.read(buffer)?;
                if n > 0 {
                    buffer[0] ^= self.bit;
                    self.strike = None;
                    self.counts.flip.fetch_add(1, Ordering::Relaxed);
                }
                Ok(n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileHome;

    fn run(config: &ChaosConfig) -> (Vec<String>, ChaosCounts) {
        let dir = tempfile::tempdir().unwrap();
        let home = Chaos::new(Arc::new(FileHome::default()), config.clone());
        // The name is the same in each run; the directory is not, so it must not decide.
        let location: Location = "/proc/self/status".parse().unwrap();
        let file = Location::from_path(&dir.path().join("x")).unwrap();
        FileHome::default().write(&file, &mut &[0; 1000][..], None).unwrap();
        let mut story = Vec::new();
        for _ in 0..200 {
            story.push(format!("{:?}", home.stat(&location).is_ok()));
        }
        for _ in 0..200 {
            let Ok(mut opened) = home.open(&file, None) else { continue };
            let mut bytes = Vec::new();
            let read = opened.reader.read_to_end(&mut bytes);
            assert!(
                read.is_err() || bytes.len() < 1000 || bytes.iter().map(|b| b.count_ones()).sum::<u32>() <= 1
            );
        }
        (story, home.counts())
    }

    #[test]
    fn the_same_seed_tells_the_same_story() {
        let config = ChaosConfig {
            seed: 3,
            stat_fail: 0.5,
            open_fail: 0.25,
            read_fail: 0.25,
            truncate: 0.25,
            flip: 0.25,
            ..ChaosConfig::default()
        };
        let (story, counts) = run(&config);
        assert_eq!(run(&config).0, story);
        assert_ne!(run(&ChaosConfig { seed: 4, ..config }).0, story);
        assert!(counts.read_fail > 0 && counts.truncate > 0 && counts.flip > 0, "{counts:?}");
        assert!((50..150).contains(&counts.stat_fail), "{counts:?}");
        assert_eq!(run(&ChaosConfig::default()).1, ChaosCounts::default());
    }

    #[test]
    fn certain_faults_always_come() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::from_path(&dir.path().join("x")).unwrap();
        let config =
            ChaosConfig { no_space: 1.0, list_fail: 1.0, remove_fail: 1.0, ..ChaosConfig::default() };
        let home = Chaos::new(Arc::new(FileHome::default()), config);
        let error = home.write(&location, &mut &b"x"[..], None).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::NoSpace, Status::Persistent));
        assert_eq!(home.remove(&location).unwrap_err().status(), Status::Temporary);
        let listing = Listing::Under(Location::from_path(dir.path()).unwrap());
        assert_eq!(home.list(&listing).unwrap_err().status(), Status::Temporary);
    }
}
