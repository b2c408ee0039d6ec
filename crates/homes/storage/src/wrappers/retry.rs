//! Repeats operations that failed for a reason that may pass, a bounded number of times.
//!
//! A read that breaks in the middle goes on where it stopped, with a range, and only if the object still has the
//! version that was opened; otherwise it fails with `Changed`. Where the version is not strong, the object is read from its start
//! again, and goes on only if the bytes that were given are its first ones. A write is tried again only while nothing of its source
//! is used up, because a source cannot be rewound; later failures stay `Temporary` for the caller, who can.
//!
//! Waits double from try to try, each shortened by a seeded random part so that many readers do not come back at once;
//! `Retry-After` is respected up to a bound. The sleep is an argument, so tests do not wait. Tries that take long because nothing is
//! heard are bounded in time as well.
//!
//! An operation that still fails in the end has status `Persistent`, and its error gives the number of tries.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::version::{Strength, Version};
use crate::{
    Capabilities, Home, Listed, Listing, Location, Opened, Part, PartPlace, Put, Stat, Whole, splitmix64,
};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A body that breaks again and again is still worth resuming while each try brings this much.
const PROGRESS_BYTES: u64 = 1 << 20;

/// How often and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Tries in all, at least 1; 1 never tries again.
    pub tries_max: u32,
    /// Before the second try; doubled for each further one.
    pub wait_first: Duration,
    /// No wait is longer by doubling.
    pub wait_max: Duration,
    /// Nothing is asked for again once its tries have heard nothing for so long in all.
    pub silence_max: Duration,
    /// No `Retry-After` is respected beyond this.
    pub retry_after_max: Duration,
    /// For the random part of waits.
    pub seed: u64,
}

impl Default for RetryConfig {
    /// Five tries within some six seconds: bridges a restarting server, not a night. One that accepts and then says nothing is asked
    /// twice.
    fn default() -> RetryConfig {
        RetryConfig {
            tries_max: 5,
            wait_first: Duration::from_millis(200),
            wait_max: Duration::from_secs(10),
            silence_max: Duration::from_secs(90),
            retry_after_max: Duration::from_secs(60),
            seed: 0,
        }
    }
}

/// A home whose temporary failures are tried again.
#[derive(Clone)]
pub struct Retry(Arc<Shared>);

struct Shared {
    inner: Arc<dyn Home>,
    backoff: Backoff,
}

impl Retry {
    /// Waits by sleeping on the calling thread.
    pub fn new(inner: Arc<dyn Home>, config: RetryConfig) -> Retry {
        Retry::with_sleep(inner, config, std::thread::sleep)
    }

    /// Waits by calling `sleep`.
    pub fn with_sleep(
        inner: Arc<dyn Home>,
        config: RetryConfig,
        sleep: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Retry {
        Retry(Arc::new(Shared { inner, backoff: Backoff::with_sleep(config, sleep) }))
    }

    /// The same bytes, by a reader that goes on where they break.
    fn resuming(&self, mut opened: Opened) -> Opened {
        if self.capabilities().read_range {
            opened.reader = Box::new(Resuming {
                shared: self.0.clone(),
                location: opened.location.clone(),
                stat: opened.stat.clone(),
                start: opened.range.start,
                given: (opened.stat.version.strength() != Strength::Strong).then(Box::default),
                at: opened.range.start,
                end: opened.range.end,
                reader: Some(opened.reader),
                n_failures: 0,
                silent: Duration::ZERO,
                progress_bytes: 0,
            });
        }
        opened
    }
}

/// Tries one request again. An adaptor whose write takes several requests uses it for each of them, because the whole write
/// cannot be repeated: its source is used up.
pub(crate) struct Backoff {
    config: RetryConfig,
    sleep: Box<dyn Fn(Duration) + Send + Sync>,
    n_waits: AtomicU64,
}

impl Backoff {
    /// Waits by sleeping on the calling thread.
    pub(crate) fn new(config: RetryConfig) -> Backoff {
        Backoff::with_sleep(config, std::thread::sleep)
    }

    fn with_sleep(config: RetryConfig, sleep: impl Fn(Duration) + Send + Sync + 'static) -> Backoff {
        Backoff { config, sleep: Box::new(sleep), n_waits: AtomicU64::new(0) }
    }

    /// Calls `attempt` with the number of the try, from 1.
    pub(crate) fn run<T>(&self, mut attempt: impl FnMut(u32) -> Result<T>) -> Result<T> {
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            match attempt(n_tries) {
                Err(error) => self.wait_or_give_up(error, n_tries, Duration::ZERO)?,
                done => return done,
            }
        }
    }

    /// As [`Backoff::run`], where a try is one request, so that a long one has heard nothing.
    fn run_request<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let (mut n_tries, mut silent) = (0, Duration::ZERO);
        loop {
            n_tries += 1;
            let began = Instant::now();
            match attempt() {
                Err(error) => {
                    silent += began.elapsed();
                    self.wait_or_give_up(error, n_tries, silent)?;
                }
                done => return done,
            }
        }
    }

    /// Sleeps if another try is due after the `n_tries`-th failed; otherwise the error comes back. `silent`: how long they heard nothing.
    fn wait_or_give_up(&self, error: Error, n_tries: u32, silent: Duration) -> Result<()> {
        if error.status() != Status::Temporary {
            return Err(error);
        }
        if n_tries >= self.config.tries_max || silent >= self.config.silence_max {
            return Err(error.with_status(Status::Persistent).with_context("tries", n_tries));
        }
        (self.sleep)(self.wait_after(&error, n_tries));
        Ok(())
    }

    /// Between half and all of the doubled wait (equal jitter: Brooker, AWS Architecture Blog 2015).
    fn wait_after(&self, error: &Error, n_tries: u32) -> Duration {
        let doubled =
            self.config.wait_first.saturating_mul(1 << (n_tries - 1).min(30)).min(self.config.wait_max);
        let draw = splitmix64(self.config.seed ^ splitmix64(self.n_waits.fetch_add(1, Ordering::Relaxed)));
        let part = draw as f64 / u64::MAX as f64;
        let wait = doubled.mul_f64(0.5 + 0.5 * part);
        wait.max(error.retry_after().unwrap_or(Duration::ZERO).min(self.config.retry_after_max))
    }
}

impl Home for Retry {
    fn capabilities(&self) -> &'static Capabilities {
        self.0.inner.capabilities()
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        self.0.backoff.run_request(|| self.0.inner.stat(location))
    }

    fn stat_at_once(&self, location: &Location) -> Option<Stat> {
        self.0.inner.stat_at_once(location)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        let opened = self.0.backoff.run_request(|| self.0.inner.open(location, range.clone()))?;
        Ok(self.resuming(opened))
    }

    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        let opened = self.0.backoff.run_request(|| self.0.inner.open_first(location, most_bytes))?;
        Ok(self.resuming(opened))
    }

    fn several_max(&self, location: &Location) -> usize {
        self.0.inner.several_max(location)
    }

    fn read_several(&self, locations: &[Location], most_bytes: u64) -> Result<Vec<Option<Whole>>> {
        self.0.backoff.run(|_| self.0.inner.read_several(locations, most_bytes))
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let mut body = Touched { body, is_touched: false };
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            match self.0.inner.put(location, &mut body, put) {
                Err(error) if !body.is_touched => {
                    self.0.backoff.wait_or_give_up(error, n_tries, Duration::ZERO)?;
                }
                done => return done,
            }
        }
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        self.0.backoff.run(|_| self.0.inner.remove_part(part))
    }

    fn remove_parts(&self, location: &Location, part: &Part) -> Result<()> {
        self.0.backoff.run(|_| self.0.inner.remove_parts(location, part))
    }

    fn end_unfinished(&self, place: &Location) -> Result<u64> {
        self.0.backoff.run(|_| self.0.inner.end_unfinished(place))
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        self.0.backoff.run(|_| self.0.inner.list(listing))
    }

    fn remove(&self, location: &Location) -> Result<()> {
        self.0.backoff.run(|n_tries| match self.0.inner.remove(location) {
            // The try before did it, and only its answer was lost.
            Err(error) if n_tries > 1 && error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        })
    }

    fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        self.0.backoff.run(|n_tries| match self.0.inner.rename(from, to) {
            Err(error) if n_tries > 1 && error.kind() == ErrorKind::NotFound => Ok(true),
            other => other,
        })
    }

    fn make_directory(&self, location: &Location) -> Result<()> {
        self.0.backoff.run(|_| self.0.inner.make_directory(location))
    }

    fn remove_directory(&self, location: &Location) -> Result<u64> {
        let mut n_before = 0;
        self.0.backoff.run(|n_tries| match self.0.inner.remove_directory(location) {
            Ok(n_files) => Ok(n_before + n_files),
            Err(error) if n_tries > 1 && error.kind() == ErrorKind::NotFound => Ok(n_before),
            Err(error) => {
                let earlier = n_before;
                n_before += error.n_removed();
                Err(error.after_removing(earlier))
            }
        })
    }

    fn mode(&self, location: &Location) -> Result<Option<u32>> {
        self.0.backoff.run(|_| self.0.inner.mode(location))
    }

    fn set_mode(&self, location: &Location, mode: u32) -> Result<()> {
        self.0.backoff.run(|_| self.0.inner.set_mode(location, mode))
    }

    fn may_write(&self, location: &Location) -> Result<()> {
        self.0.inner.may_write(location)
    }

    fn places(&self, location: &Location) -> Result<Vec<PartPlace>> {
        self.0.backoff.run(|_| self.0.inner.places(location))
    }

    fn local_path(&self, location: &Location) -> Option<PathBuf> {
        self.0.inner.local_path(location)
    }
}

/// Remembers whether anything was asked of a source.
struct Touched<'a> {
    body: &'a mut dyn Read,
    is_touched: bool,
}

impl Read for Touched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.is_touched = true;
        self.body.read(buffer)
    }
}

/// A body that opens its object again where it broke.
struct Resuming {
    shared: Arc<Shared>,
    location: Location,
    stat: Stat,
    start: u64,
    at: u64,
    end: u64,
    /// Of the bytes that were given, where the version does not say whether others belong to them.
    given: Option<Box<blake3::Hasher>>,
    /// `None` after a failure, until the object is open again.
    reader: Option<Box<dyn Read + Send>>,
    /// Since `PROGRESS_BYTES` came in one go.
    n_failures: u32,
    /// How long the reads that failed since then had waited.
    silent: Duration,
    progress_bytes: u64,
}

impl Resuming {
    fn reopen(&self) -> Result<Box<dyn Read + Send>> {
        let from = if self.given.is_some() { self.start } else { self.at };
        let is_all = (from, self.end) == (0, self.stat.size_bytes);
        let range = (!is_all).then_some(from..self.end);
        let mut opened =
            self.shared.inner.open(&self.location, range).map_err(|error| match error.kind() {
                // It was there and that long when we began.
                ErrorKind::InvalidRange => Error::changed("read", &self.location, error.to_string()),
                _ => error,
            })?;
        let is_other = match &self.given {
            Some(_) => opened.stat.version.contradicts(&self.stat.version),
            None => opened.stat != self.stat,
        };
        if is_other {
            let difference = Version::describe_change(&self.stat.version, &opened.stat.version);
            return Err(Error::changed("read", &self.location, difference));
        }
        if let Some(given) = &self.given {
            let mut again = blake3::Hasher::new();
            let mut before = opened.reader.by_ref().take(self.at - from);
            io::copy(&mut before, &mut again)
                .map_err(|error| Error::from_read("read", &self.location, error))?;
            if again.finalize() != given.finalize() {
                let difference = format!("its first {} B are others now", self.at);
                return Err(Error::changed("read", &self.location, difference));
            }
        }
        Ok(opened.reader)
    }

    fn read_once(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.reopen()?,
        };
        let n = loop {
            match reader.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => break other,
            }
        };
        let n = n.map_err(|error| Error::from_read("read", &self.location, error))?;
        if n == 0 && self.at < self.end && !buffer.is_empty() {
            let reason = format!("it ended at byte {} of {}", self.at, self.end);
            return Err(Error::new(ErrorKind::Io, Status::Temporary, "read", &self.location, reason));
        }
        self.reader = Some(reader);
        Ok(n)
    }
}

impl Read for Resuming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let began = Instant::now();
            match self.read_once(buffer) {
                Ok(n) => {
                    if let Some(given) = &mut self.given {
                        given.update(&buffer[..n]);
                    }
                    self.at += n as u64;
                    self.progress_bytes += n as u64;
                    return Ok(n);
                }
                Err(error) => {
                    if self.progress_bytes >= PROGRESS_BYTES {
                        (self.n_failures, self.silent) = (0, Duration::ZERO);
                    }
                    self.progress_bytes = 0;
                    self.n_failures += 1;
                    self.silent += began.elapsed();
                    self.shared.backoff.wait_or_give_up(error, self.n_failures, self.silent)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testserver::{Fault, TestServer};
    use crate::{Chaos, ChaosConfig, FileHome, HttpConfig, HttpHome};
    use std::sync::Mutex;

    /// A retrying home and the waits it would have made.
    fn retrying(inner: Arc<dyn Home>, tries_max: u32) -> (Retry, Arc<Mutex<Vec<Duration>>>) {
        let waits = Arc::new(Mutex::new(Vec::new()));
        let config = RetryConfig { tries_max, ..RetryConfig::default() };
        let log = waits.clone();
        (Retry::with_sleep(inner, config, move |wait| log.lock().unwrap().push(wait)), waits)
    }

    fn http() -> Arc<dyn Home> {
        Arc::new(HttpHome::new(HttpConfig { proxy_from_env: false, ..HttpConfig::default() }))
    }

    fn read_all(home: &dyn Home, location: &Location) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut opened = home.open(location, None)?;
        let read = opened.reader.read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| Error::from_read("read", location, error))
    }

    /// A server that sends a little in each try and then says nothing is not asked as often as one that breaks off at once.
    #[test]
    fn silence_is_bounded_in_time() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, vec![7; 100_000]);
        server.set_fault(Fault::Stall(1_000));
        let stall_timeout = Duration::from_millis(100);
        let inner =
            HttpHome::new(HttpConfig { proxy_from_env: false, stall_timeout, ..HttpConfig::default() });
        let silence_max = stall_timeout * 3 / 2;
        let config = RetryConfig { tries_max: 20, silence_max, ..RetryConfig::default() };
        let home = Retry::with_sleep(Arc::new(inner), config, |_| {});
        let error = read_all(&home, &location).unwrap_err();
        assert_eq!(error.status(), Status::Persistent, "{error}");
        // Each try waits for the whole of the limit, so the second one is the last.
        assert!(server.n_requests() <= 2, "{} requests: {error}", server.n_requests());
    }

    #[test]
    fn waits_double_and_respect_retry_after() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, b"abc".to_vec());
        server.set_fault(Fault::FailFirst(3));
        let (home, waits) = retrying(http(), 4);
        assert_eq!(read_all(&home, &location).unwrap(), b"abc");
        assert_eq!(*waits.lock().unwrap(), [Duration::from_secs(7); 3], "the server asks for 7 s");

        let error = || Error::new(ErrorKind::Io, Status::Temporary, "read", "x", "because");
        for (n_tries, doubled_ms) in [(1, 200), (2, 400), (3, 800), (20, 10_000), (4_000_000_000, 10_000)] {
            let wait = home.0.backoff.wait_after(&error(), n_tries);
            let doubled = Duration::from_millis(doubled_ms);
            assert!(wait >= doubled / 2 && wait <= doubled, "{n_tries}: {wait:?}");
        }
        let hours = error().with_retry_after(Some(Duration::from_secs(7200)));
        assert_eq!(home.0.backoff.wait_after(&hours, 1), Duration::from_secs(60));
    }

    #[test]
    fn gives_up_with_persistent() {
        // After 500 to a request for a part, each try asks for the whole, too: some servers answer so to parts only.
        for (code, n_requests) in [(502, 3), (500, 6)] {
            let server = TestServer::start();
            server.set_fault(Fault::Code(code));
            let (home, waits) = retrying(http(), 3);
            let error = home.stat(&server.url("x")).unwrap_err();
            assert_eq!((error.kind(), error.status()), (ErrorKind::Http(code), Status::Persistent));
            assert!(error.to_string().ends_with("(tries: 3)"), "{error}");
            assert_eq!((waits.lock().unwrap().len(), server.n_requests()), (2, n_requests));
        }
    }

    #[test]
    fn permanent_failures_are_not_tried_again() {
        let server = TestServer::start();
        let (home, waits) = retrying(http(), 3);
        assert_eq!(home.stat(&server.url("x")).unwrap_err().status(), Status::Permanent);
        assert!(waits.lock().unwrap().is_empty());
    }

    #[test]
    fn a_broken_body_goes_on_where_it_stopped() {
        let server = TestServer::start();
        let location = server.url("x");
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
        server.put(&location, bytes.clone());
        for fault in [Fault::Truncate(30_000), Fault::TruncateChunked(30_000)] {
            server.set_fault(fault);
            // A chunked answer is counted first, which a server that always breaks never lets finish.
            if fault == Fault::TruncateChunked(30_000) {
                assert_eq!(
                    read_all(&retrying(http(), 5).0, &location).unwrap_err().status(),
                    Status::Persistent
                );
            } else {
                assert!(read_all(&retrying(http(), 5).0, &location).unwrap() == bytes);
                assert_eq!(
                    read_all(&retrying(http(), 3).0, &location).unwrap_err().status(),
                    Status::Persistent
                );
            }
        }
    }

    #[test]
    fn a_body_without_a_version_goes_on_only_behind_the_same_bytes() {
        let server = TestServer::start();
        let location = server.url("x");
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let opened = |n_other: usize| {
            server.put(&location, bytes.clone());
            server.set_fault(Fault::TruncateNoVersion(30_000));
            let mut opened = retrying(http(), 3).0.open(&location, None).unwrap();
            opened.reader.read_exact(&mut [0; 20_000]).unwrap();
            // Another object of equal size, whose last bytes are as before.
            let other = [vec![1; n_other], bytes[n_other..].to_vec()].concat();
            server.put(&location, other);
            server.set_fault(Fault::NoVersion);
            let mut rest = Vec::new();
            opened.reader.read_to_end(&mut rest).map(|_| rest)
        };
        assert!(opened(0).unwrap() == bytes[20_000..]);
        let error = Error::from_read("read", &location, opened(1).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    }

    #[test]
    fn a_body_that_changed_is_not_mixed() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, vec![1; 100_000]);
        server.set_fault(Fault::Truncate(30_000));
        let (home, _) = retrying(http(), 5);
        let mut opened = home.open(&location, None).unwrap();
        opened.reader.read_exact(&mut [0; 10]).unwrap();
        server.put(&location, vec![2; 100_000]);
        let error = opened.reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(Error::from_read("read", "", error).kind(), ErrorKind::Changed);
    }

    #[test]
    fn a_used_source_is_not_written_twice() {
        struct Breaks;
        impl Read for Breaks {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let location = Location::from_path(&dir.path().join("x")).unwrap();
        let (home, waits) = retrying(Arc::new(FileHome::default()), 5);
        assert_eq!(home.write(&location, &mut Breaks, None).unwrap_err().status(), Status::Temporary);
        assert!(waits.lock().unwrap().is_empty());
        // Chaos that strikes before the source is touched is hidden.
        let config = ChaosConfig { seed: 1, write_fail: 0.7, ..ChaosConfig::default() };
        let chaos = Arc::new(Chaos::new(Arc::new(FileHome::default()), config));
        let (home, _) = retrying(chaos.clone(), 50);
        for _ in 0..20 {
            assert_eq!(home.write(&location, &mut &b"abc"[..], None).unwrap().size_bytes, 3);
        }
        assert!(chaos.counts().write_fail > 0);
    }

    #[test]
    fn a_removal_whose_answer_was_lost_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::from_path(&dir.path().join("x")).unwrap();
        let config = ChaosConfig { seed: 1, remove_fail: 0.5, ..ChaosConfig::default() };
        let chaos = Arc::new(Chaos::new(Arc::new(FileHome::default()), config));
        let (home, _) = retrying(chaos.clone(), 50);
        for _ in 0..20 {
            home.write(&location, &mut &b"abc"[..], None).unwrap();
            home.remove(&location).unwrap();
        }
        assert!(chaos.counts().remove_fail > 0);
        let calm = retrying(Arc::new(FileHome::default()), 5).0;
        assert_eq!(calm.remove(&location).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn conformance_through_chaos() {
        let dir = tempfile::tempdir().unwrap();
        let config = ChaosConfig {
            seed: 7,
            stat_fail: 0.2,
            open_fail: 0.2,
            read_fail: 0.2,
            truncate: 0.2,
            write_fail: 0.2,
            list_fail: 0.2,
            ..ChaosConfig::default()
        };
        let chaos = Arc::new(Chaos::new(Arc::new(FileHome::default()), config));
        let (home, waits) = retrying(chaos.clone(), 50);
        crate::conformance::run(&home, &Location::from_path(dir.path()).unwrap());
        let counts = chaos.counts();
        assert!(counts.open_fail > 0 && counts.read_fail > 0 && counts.truncate > 0, "{counts:?}");
        assert!(!waits.lock().unwrap().is_empty());
    }
}
