//! All homes of a process: picks the home for a location, with limits and retries around it.
//!
//! The order is `Limited(Retry(Chaos(adaptor)))`: a stream keeps its place while it waits to try again, so a struggling
//! server is not met by more streams than one that is well.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::kinds::file::{self, mounts};
use crate::kinds::kinds;
use crate::scheme::schemes_with_places;
use crate::wrappers::wide;
use crate::{
    Chaos, Home, HomesConfig, Limited, Limits, Listed, Listing, Location, Opened, Part, PartPlace, Put,
    Retry, Stat,
};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Parts of one large object that are read ahead at the same time.
const PARTS_AT_ONCE: usize = 4;

/// The homes of a process. Cheap to clone; clones share connections and limits.
#[derive(Clone)]
pub struct Homes {
    /// One home of each kind, in the order of the list of kinds.
    homes: Arc<[Arc<dyn Home>]>,
    limits: Arc<Limits>,
    /// See [`Homes::set_wide`].
    parts_at_once: Arc<AtomicUsize>,
}

/// Counts the bytes of an object that is written.
struct Counted<'a> {
    body: &'a mut dyn Read,
    n_bytes: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.body.read(buffer)?;
        self.n_bytes += n as u64;
        Ok(n)
    }
}

impl Homes {
    /// Errors: a local directory or authority file that is not there, a limit of 0, no tries.
    pub fn new(config: HomesConfig) -> Result<Homes> {
        let refuse = |what: &str, reason: &str| {
            Error::new(ErrorKind::InvalidName, Status::Permanent, "use the setting", what, reason)
        };
        if config.streams_max == Some(0) {
            return Err(refuse(
                "streams_max",
                "with 0 streams nothing could ever be read; leave it out for no limit",
            ));
        }
        if config.rate_bytes_per_s == Some(0) {
            return Err(refuse(
                "rate_bytes_per_s",
                "at 0 B/s nothing could ever be read; leave it out for no limit",
            ));
        }
        if config.retries.tries_max == 0 {
            return Err(refuse("retries.tries_max", "there has to be a first try; 1 means no retries"));
        }
        let limits = Arc::new(Limits::new(config.streams_max, config.rate_bytes_per_s));
        let wrap = |home: Arc<dyn Home>| -> Arc<dyn Home> {
            let home = match &config.chaos {
                Some(chaos) => Arc::new(Chaos::new(home, chaos.clone())),
                None => home,
            };
            let home = Arc::new(Retry::new(home, config.retries.clone()));
            Arc::new(Limited::new(home, limits.clone()))
        };
        let homes = kinds().map(|kind| Ok(wrap(kind.open(&config)?))).collect::<Result<_>>()?;
        let parts_at_once = Arc::new(AtomicUsize::new(PARTS_AT_ONCE));
        Ok(Homes { homes, limits, parts_at_once })
    }

    /// The home that a location belongs to.
    pub fn get(&self, location: &Location) -> &Arc<dyn Home> {
        &self.homes[location.kind().index()]
    }

    /// Changes the limits of all homes, also for streams that are waiting now. `None` is unlimited, 0 pauses.
    pub fn set_limits(&self, streams_max: Option<u32>, rate_bytes_per_s: Option<u64>) {
        self.limits.set_limits(streams_max, rate_bytes_per_s);
    }

    /// Streams open now, over all homes.
    pub fn n_streams(&self) -> u32 {
        self.limits.n_streams()
    }

    /// Bytes moved so far at a limited rate, both ways.
    pub fn moved_bytes(&self) -> u64 {
        self.limits.moved_bytes()
    }

    /// See [`Home::stat`].
    pub fn stat(&self, location: &Location) -> Result<Stat> {
        self.get(location).stat(location)
    }

    /// See [`Home::stat_at_once`].
    pub fn stat_at_once(&self, location: &Location) -> Option<Stat> {
        self.get(location).stat_at_once(location)
    }

    /// See [`Home::open`]. A large object is read in several parts at once where its home can do so.
    pub fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        match range {
            Some(range) => self.get(location).open(location, Some(range)),
            None => wide::open(self.get(location), location, self.parts_at_once.load(Ordering::Relaxed)),
        }
    }

    /// Whether large objects may be read by several streams at once from now on. Without it each open object is one stream.
    pub fn set_wide(&self, is_wide: bool) {
        self.parts_at_once.store(if is_wide { PARTS_AT_ONCE } else { 0 }, Ordering::Relaxed);
    }

    /// See [`Home::may_write`].
    pub fn may_write(&self, location: &Location) -> Result<()> {
        self.get(location).may_write(location)
    }

    /// See [`Home::write`].
    pub fn write(
        &self,
        location: &Location,
        body: &mut dyn Read,
        size_hint_bytes: Option<u64>,
    ) -> Result<Stat> {
        self.put(location, body, &Put::simple(size_hint_bytes))
    }

    /// See [`Home::put`]. Errors besides: the home says that it has another number of bytes than it was given.
    pub fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let mut body = Counted { body, n_bytes: 0 };
        let written = self.get(location).put(location, &mut body, put)?;
        let (n_there, n_given) = (written.size_bytes, body.n_bytes);
        // A directory has the bytes of its files, and is given as one stream with their names.
        match n_there == n_given || location.is_directory() {
            true => Ok(written),
            // The home has answered, and the same bytes would have the same end there.
            false => {
                let reason = format!("{n_given} B were written, and there are {n_there} B now");
                Err(Error::new(ErrorKind::Io, Status::Permanent, "write", location, reason))
            }
        }
    }

    /// See [`Home::remove_part`]. The note of a part does not say which home has it, but each home knows its own parts.
    pub fn remove_part(&self, part: &Path) -> Result<()> {
        self.homes.iter().try_for_each(|home| home.remove_part(part))
    }

    /// See [`Home::remove_parts`].
    pub fn remove_parts(&self, location: &Location, part: &Part) -> Result<()> {
        self.get(location).remove_parts(location, part)
    }

    /// See [`Home::end_unfinished`].
    pub fn end_unfinished(&self, place: &Location) -> Result<u64> {
        self.get(place).end_unfinished(place)
    }

    /// See [`Home::list`].
    pub fn list(&self, listing: &Listing) -> Result<Listed> {
        self.get(listing.directory()).list(listing)
    }

    /// See [`Home::remove`].
    pub fn remove(&self, location: &Location) -> Result<()> {
        self.get(location).remove(location)
    }

    /// See [`Home::rename`]. Names of two homes are left to the caller as well.
    pub fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        match from.kind() == to.kind() {
            true => self.get(from).rename(from, to),
            false => Ok(false),
        }
    }

    /// See [`Home::make_directory`].
    pub fn make_directory(&self, location: &Location) -> Result<()> {
        self.get(location).make_directory(location)
    }

    /// Makes the directory `name` below `top`, a location without a `/` at its end. `name` comes from outside, so no link is followed
    /// below `top`; if it is empty, `top` is made.
    pub fn make_directory_below(&self, top: &Location, name: &str) -> Result<()> {
        let to = if name.is_empty() { top.clone() } else { top.below(name)? };
        match top.path() {
            Some(path) => file::make_directory_below(path, name, &to),
            None => self.make_directory(&Location::parse(&format!("{to}/"), Path::new("/"))?),
        }
    }

    /// See [`Home::remove_directory`].
    pub fn remove_directory(&self, location: &Location) -> Result<u64> {
        self.get(location).remove_directory(location)
    }

    /// See [`Home::mode`].
    pub fn mode(&self, location: &Location) -> Result<Option<u32>> {
        self.get(location).mode(location)
    }

    /// See [`Home::set_mode`].
    pub fn set_mode(&self, location: &Location, mode: u32) -> Result<()> {
        self.get(location).set_mode(location, mode)
    }

    /// See [`Home::places`].
    pub fn places(&self, location: &Location) -> Result<Vec<PartPlace>> {
        self.get(location).places(location)
    }

    /// See [`Home::local_path`].
    pub fn local_path(&self, location: &Location) -> Option<PathBuf> {
        self.get(location).local_path(location)
    }
}

/// What the locations of all objects begin with whose home knows on which hosts they lie: schemes, and directories where such file
/// systems are mounted now.
pub fn beginnings_with_places() -> Vec<String> {
    let schemes = schemes_with_places().map(|scheme| format!("{scheme}://"));
    schemes.chain(mounts::beginnings()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testserver::{Fault, TestServer};
    use crate::{ChaosConfig, HttpConfig, RetryConfig};
    use std::time::Duration;

    fn config() -> HomesConfig {
        HomesConfig {
            http: HttpConfig { proxy_from_env: false, ..HttpConfig::default() },
            retries: RetryConfig {
                wait_first: Duration::from_micros(1),
                retry_after_max: Duration::from_micros(1),
                ..RetryConfig::default()
            },
            ..HomesConfig::default()
        }
    }

    #[test]
    fn each_location_finds_its_home() {
        let server = TestServer::start();
        let dir = tempfile::tempdir().unwrap();
        let homes = Homes::new(HomesConfig {
            home_local: vec![dir.path().to_path_buf()],
            streams_max: Some(8),
            rate_bytes_per_s: Some(1 << 30),
            ..config()
        })
        .unwrap();
        let file = Location::from_path(&dir.path().join("x")).unwrap();
        let url = server.url("x");
        server.put(&url, b"from afar".to_vec());
        server.set_fault(Fault::FailFirst(2));
        let mut opened = homes.open(&url, None).unwrap();
        assert_eq!(homes.n_streams(), 1);
        let stat = homes.write(&file, &mut opened.reader, Some(opened.stat.size_bytes)).unwrap();
        assert_eq!(homes.stat(&file).unwrap(), stat);
        assert_eq!(std::fs::read(homes.local_path(&file).unwrap()).unwrap(), b"from afar");
        assert_eq!(homes.local_path(&url), None);
        assert_eq!(
            homes.list(&Listing::parse("*", dir.path()).unwrap()).unwrap().found,
            std::slice::from_ref(&file)
        );
        homes.remove(&file).unwrap();
        assert_eq!(homes.remove(&url).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn conformance_of_the_whole_tower_with_faults() {
        let dir = tempfile::tempdir().unwrap();
        let chaos =
            ChaosConfig { seed: 11, open_fail: 0.1, read_fail: 0.1, truncate: 0.1, ..ChaosConfig::default() };
        let mut config = HomesConfig { chaos: Some(chaos), streams_max: Some(5), ..config() };
        config.retries.tries_max = 50;
        let base = Location::from_path(dir.path()).unwrap();
        crate::conformance::run(&**Homes::new(config).unwrap().get(&base), &base);
    }

    #[test]
    fn settings_that_would_hang_are_refused() {
        let check = |config: HomesConfig, expect: &str| {
            let error = Homes::new(config).err().unwrap();
            assert!(error.to_string().contains(expect), "{error}");
        };
        check(HomesConfig { streams_max: Some(0), ..config() }, "streams_max");
        check(HomesConfig { rate_bytes_per_s: Some(0), ..config() }, "rate_bytes_per_s");
        let mut no_tries = config();
        no_tries.retries.tries_max = 0;
        check(no_tries, "tries_max");
        check(HomesConfig { home_local: vec!["/not/there".into()], ..config() }, "/not/there");
    }
}
