//! Gentleness to shared storage: at most so many streams at once, at most so many bytes per second together.
//!
//! [`Limits`] are shared by all homes that stand for one storage system; [`Limited`] puts them around a home. A stream
//! is one `open` or `write`, from the call until the [`Opened`] is dropped. Limits change at run time, and whoever waits
//! notices at once.
//!
//! The rate is a token bucket that may go into debt by one small piece (a hundredth of a second's worth), with readers
//! served in the order they came: 20 MB/s is 200 kB every 10 ms, not 20 MB once a second. Without a rate a read costs
//! one relaxed atomic load.
//!
//! Where home is this node's own disk (`local_path` answers) nothing is limited.
//!
//! Not here: the shares of executors and the start of transfers, which `eyas-core` decides.

use crate::error::Result;
use crate::{Capabilities, Home, Listed, Listing, Location, Opened, Part, PartPlace, Put, Stat, Whole};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PIECE_BYTES_MIN: u64 = 4 * 1024;
const PIECE_BYTES_MAX: u64 = 1024 * 1024;

/// Limits shared by any number of homes and threads.
pub struct Limits {
    state: Mutex<State>,
    /// A stream ended, or a limit changed.
    stream_free: Condvar,
    /// The turn passed on, or a limit changed.
    turn: Condvar,
    /// So that unlimited reads take no lock.
    is_rate_limited: AtomicBool,
    began: Instant,
}

struct State {
    streams_max: Option<u32>,
    n_streams: u32,
    bucket: Bucket,
    /// Moved at a limited rate, both ways.
    moved_bytes: u64,
    /// Readers that wait for bytes are served by ticket.
    ticket_next: u64,
    ticket_served: u64,
}

impl Limits {
    /// `None` is unlimited; 0 stops everything until the limit is changed.
    pub fn new(streams_max: Option<u32>, rate_bytes_per_s: Option<u64>) -> Limits {
        Limits {
            state: Mutex::new(State {
                streams_max,
                n_streams: 0,
                bucket: Bucket::new(rate_bytes_per_s, 0),
                moved_bytes: 0,
                ticket_next: 0,
                ticket_served: 0,
            }),
            stream_free: Condvar::new(),
            turn: Condvar::new(),
            is_rate_limited: AtomicBool::new(rate_bytes_per_s.is_some()),
            began: Instant::now(),
        }
    }

    /// Changes both limits for all streams, also for those that are waiting. Streams beyond a lower limit are not cut off.
    pub fn set_limits(&self, streams_max: Option<u32>, rate_bytes_per_s: Option<u64>) {
        let mut state = self.lock();
        state.streams_max = streams_max;
        state.bucket.set_rate(rate_bytes_per_s, self.now_ns());
        self.is_rate_limited.store(rate_bytes_per_s.is_some(), Ordering::Relaxed);
        drop(state);
        self.stream_free.notify_all();
        self.turn.notify_all();
    }

    /// Streams open now.
    pub fn n_streams(&self) -> u32 {
        self.lock().n_streams
    }

    /// Bytes moved so far while there was a rate, both ways.
    pub fn moved_bytes(&self) -> u64 {
        self.lock().moved_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No invariant spans a panic: every critical section is a few assignments.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn is_rate_limited(&self) -> bool {
        self.is_rate_limited.load(Ordering::Relaxed)
    }

    /// Waits for a place. The place becomes free again when the result is dropped.
    fn enter(self: &Arc<Limits>) -> StreamPermit {
        let mut state = self.lock();
        while state.streams_max.is_some_and(|max| state.n_streams >= max) {
            state = self.stream_free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.n_streams += 1;
        StreamPermit(self.clone())
    }

    /// Waits until some of `want_bytes` (at least 1) may move; returns how many.
    fn take(&self, want_bytes: usize) -> usize {
        if !self.is_rate_limited() {
            return want_bytes;
        }
        let mut state = self.lock();
        let ticket = state.ticket_next;
        state.ticket_next += 1;
        loop {
            if state.ticket_served != ticket {
                state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            match state.bucket.take(want_bytes as u64, self.now_ns()) {
                Grant::Bytes(bytes) => {
                    state.ticket_served += 1;
                    state.moved_bytes += bytes;
                    drop(state);
                    self.turn.notify_all();
                    // Never more than the wanted bytes, so the number fits.
                    return bytes as usize;
                }
                Grant::After(Some(wait)) => {
                    state = self.turn.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
                Grant::After(None) => state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Gives back the bytes that were taken and not moved.
    fn give_back(&self, bytes: usize) {
        if bytes > 0 && self.is_rate_limited() {
            let mut state = self.lock();
            state.bucket.give_back(bytes as u64);
            state.moved_bytes = state.moved_bytes.saturating_sub(bytes as u64);
        }
    }
}

/// The arithmetic of a rate, without clock or lock.
struct Bucket {
    rate_bytes_per_s: Option<u64>,
    /// Bytes times 10⁹, so that no fraction is ever lost; negative is debt.
    level: i128,
    at_ns: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Grant {
    Bytes(u64),
    /// Nothing before this time has passed; `None`: not at this rate.
    After(Option<Duration>),
}

const BYTE: i128 = 1_000_000_000;

impl Bucket {
    fn new(rate_bytes_per_s: Option<u64>, now_ns: u64) -> Bucket {
        Bucket { rate_bytes_per_s, level: 0, at_ns: now_ns }
    }

    /// From now on. What was moved ahead is still owed, so that many changes are no way round the rate.
    fn set_rate(&mut self, rate_bytes_per_s: Option<u64>, now_ns: u64) {
        self.accrue(now_ns);
        // Bytes that were saved up at a higher rate are not spent at a lower rate.
        self.level = self.level.min(0);
        self.rate_bytes_per_s = rate_bytes_per_s;
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// Adds the bytes that the time since the last call allows.
    fn accrue(&mut self, now_ns: u64) {
        let Some(rate) = self.rate_bytes_per_s else { return };
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        // Idle time saves up one piece, or the bytes that a late wake-up missed, and never a burst.
        let saved_max = i128::from(Bucket::piece_bytes(rate).max(rate / 50)) * BYTE;
        self.level = (self.level + i128::from(elapsed_ns) * i128::from(rate)).min(saved_max);
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// Bytes that may move in one go at `rate`.
    fn piece_bytes(rate_bytes_per_s: u64) -> u64 {
        (rate_bytes_per_s / 100).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }

    fn take(&mut self, want_bytes: u64, now_ns: u64) -> Grant {
        let Some(rate) = self.rate_bytes_per_s else { return Grant::Bytes(want_bytes) };
        if rate == 0 {
            return Grant::After(None);
        }
        self.accrue(now_ns);
        if self.level >= 0 {
            let bytes = want_bytes.min(Bucket::piece_bytes(rate));
            self.level -= i128::from(bytes) * BYTE;
            return Grant::Bytes(bytes);
        }
        // Rounded up: waking too early would only mean waiting twice.
        let wait_ns = (-self.level + i128::from(rate) - 1) / i128::from(rate);
        Grant::After(Some(Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX))))
    }

    fn give_back(&mut self, bytes: u64) {
        self.level += i128::from(bytes) * BYTE;
    }
}

/// A place among the streams.
struct StreamPermit(Arc<Limits>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.lock().n_streams -= 1;
        self.0.stream_free.notify_one();
    }
}

/// Bytes at the shared rate.
struct Throttled<R> {
    reader: R,
    limits: Arc<Limits>,
    _permit: StreamPermit,
}

impl<R: Read> Read for Throttled<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let allowed = self.limits.take(buffer.len());
        let n = self.reader.read(&mut buffer[..allowed]);
        self.limits.give_back(allowed - n.as_ref().map_or(0, |n| *n));
        n
    }
}

/// A home whose streams keep to shared [`Limits`].
///
/// A thread that holds an [`Opened`] and opens another can wait for itself when `streams_max` is 1.
pub struct Limited {
    inner: Arc<dyn Home>,
    limits: Arc<Limits>,
}

impl Limited {
    /// `limits` may be shared with other homes.
    pub fn new(inner: Arc<dyn Home>, limits: Arc<Limits>) -> Limited {
        Limited { inner, limits }
    }

    /// Opens with a place among the streams, which the reader keeps.
    fn open_by(&self, open: impl FnOnce() -> Result<Opened>) -> Result<Opened> {
        let permit = self.limits.enter();
        let mut opened = open()?;
        if self.limits.is_rate_limited() {
            // A copy by file handle would go round the rate.
            opened.file = None;
        }
        opened.reader =
            Box::new(Throttled { reader: opened.reader, limits: self.limits.clone(), _permit: permit });
        Ok(opened)
    }
}

impl Home for Limited {
    fn capabilities(&self) -> &'static Capabilities {
        self.inner.capabilities()
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        self.inner.stat(location)
    }

    fn stat_at_once(&self, location: &Location) -> Option<Stat> {
        self.inner.stat_at_once(location)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        if self.inner.local_path(location).is_some() {
            return self.inner.open(location, range);
        }
        self.open_by(|| self.inner.open(location, range))
    }

    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        if self.inner.local_path(location).is_some() {
            return self.inner.open_first(location, most_bytes);
        }
        self.open_by(|| self.inner.open_first(location, most_bytes))
    }

    fn several_max(&self, location: &Location) -> usize {
        // Their bytes come in one piece, and would go round the rate.
        if self.limits.is_rate_limited() { 0 } else { self.inner.several_max(location) }
    }

    fn read_several(&self, locations: &[Location], most_bytes: u64) -> Result<Vec<Option<Whole>>> {
        let _permit = self.limits.enter();
        self.inner.read_several(locations, most_bytes)
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        if self.inner.local_path(location).is_some() {
            return self.inner.put(location, body, put);
        }
        let permit = self.limits.enter();
        let mut body = Throttled { reader: body, limits: self.limits.clone(), _permit: permit };
        self.inner.put(location, &mut body, put)
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
        self.inner.list(listing)
    }

    fn remove(&self, location: &Location) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileHome;
    use proptest::prelude::*;
    use std::sync::mpsc;

    /// Moves bytes at `rate` for `seconds` of invented time; returns the bytes of each 100 ms.
    fn simulate(rate: u64, want_bytes: u64, seconds: u64) -> Vec<u64> {
        let mut bucket = Bucket::new(Some(rate), 0);
        let mut moved = vec![0; (seconds * 10) as usize];
        let mut now_ns = 0;
        while now_ns < seconds * 1_000_000_000 {
            match bucket.take(want_bytes, now_ns) {
                Grant::Bytes(bytes) => moved[(now_ns / 100_000_000) as usize] += bytes,
                Grant::After(Some(wait)) => now_ns += wait.as_nanos() as u64,
                Grant::After(None) => panic!("a rate above 0 never stops"),
            }
        }
        moved
    }

    #[test]
    fn a_slow_rate_is_smooth() {
        for want_bytes in [1_000, 8 * 1024, 1 << 20] {
            for (index, bytes) in simulate(20_000_000, want_bytes, 3).into_iter().enumerate() {
                assert!((1_790_000..=2_210_000).contains(&bytes), "{bytes} B in tenth {index}");
            }
        }
    }

    #[test]
    fn idle_time_saves_up_no_burst() {
        let mut bucket = Bucket::new(Some(20_000_000), 0);
        let hour_ns = 3_600_000_000_000;
        let mut burst = 0;
        while let Grant::Bytes(bytes) = bucket.take(1 << 20, hour_ns) {
            burst += bytes;
        }
        assert!(burst <= 600_000, "{burst} B at once");
    }

    #[test]
    fn what_was_not_moved_is_given_back() {
        let mut bucket = Bucket::new(Some(1_000_000), 0);
        assert_eq!(bucket.take(10_000, 0), Grant::Bytes(10_000));
        bucket.give_back(9_000);
        assert_eq!(bucket.take(1, 0), Grant::After(Some(Duration::from_millis(1))));
        assert_eq!(Bucket::new(Some(0), 0).take(1, u64::MAX), Grant::After(None));
        assert_eq!(Bucket::new(None, 0).take(77, 0), Grant::Bytes(77));
    }

    proptest! {
        #[test]
        fn the_rate_is_kept_over_any_reads(
            rate in 1u64..1 << 40,
            steps in proptest::collection::vec((1u64..1 << 24, 0u64..1 << 32), 1..200),
        ) {
            let mut bucket = Bucket::new(Some(rate), 0);
            let (mut now_ns, mut moved) = (0u64, 0u128);
            for (want_bytes, pause_ns) in steps {
                now_ns += pause_ns;
                if let Grant::Bytes(bytes) = bucket.take(want_bytes, now_ns) {
                    prop_assert!(bytes >= 1 && bytes <= want_bytes);
                    moved += u128::from(bytes);
                }
                // One piece of debt, and what may be saved up.
                let allowed = u128::from(rate) * u128::from(now_ns) / 1_000_000_000;
                prop_assert!(moved <= allowed + u128::from(Bucket::piece_bytes(rate)) + 1);
            }
        }
    }

    #[test]
    fn changing_the_rate_forgives_no_debt() {
        let mut bucket = Bucket::new(Some(1_000_000), 0);
        let mut moved = 0;
        for ms in 0..1000 {
            let now_ns = ms * 1_000_000;
            bucket.set_rate(Some(1_000_000 + ms % 2), now_ns);
            if let Grant::Bytes(bytes) = bucket.take(1 << 20, now_ns) {
                moved += bytes;
            }
        }
        assert!((900_000..1_020_000).contains(&moved), "{moved} B in a second at 1 MB/s");
        // From no rate to one there is nothing owed or saved.
        let mut bucket = Bucket::new(None, 0);
        bucket.set_rate(Some(1_000_000), 5_000_000_000);
        assert_eq!(bucket.take(1 << 20, 5_000_000_000), Grant::Bytes(10_000));
        assert_eq!(bucket.take(1, 5_000_000_000), Grant::After(Some(Duration::from_millis(10))));
    }

    fn limited(streams_max: Option<u32>, rate: Option<u64>) -> (tempfile::TempDir, Location, Arc<Limited>) {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::from_path(&dir.path().join("x")).unwrap();
        FileHome::default().write(&location, &mut &[7; 5000][..], None).unwrap();
        let limits = Arc::new(Limits::new(streams_max, rate));
        (dir, location, Arc::new(Limited::new(Arc::new(FileHome::default()), limits)))
    }

    /// Generous: it only ends a test that hangs.
    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn conformance() {
        let (dir, _, home) = limited(Some(4), Some(1 << 40));
        crate::conformance::run(&*home, &Location::from_path(&dir.path().join("base")).unwrap());
        assert_eq!(home.limits.n_streams(), 0);
    }

    #[test]
    fn streams_are_counted_until_they_are_dropped() {
        let (_dir, location, home) = limited(Some(2), None);
        let first = home.open(&location, None).unwrap();
        let second = home.open(&location, None).unwrap();
        assert!(first.file.is_some(), "without a rate the file may be used");
        assert_eq!(home.limits.n_streams(), 2);
        let (sender, receiver) = mpsc::channel();
        let waiting = std::thread::spawn({
            let (home, location) = (home.clone(), location.clone());
            move || sender.send(home.open(&location, None).unwrap().stat.size_bytes).unwrap()
        });
        drop(first);
        assert_eq!(receiver.recv_timeout(DEADLINE), Ok(5000));
        waiting.join().unwrap();
        // A failed open gives its place back.
        assert!(home.open(&location.join("none").unwrap(), None).is_err());
        assert_eq!(home.limits.n_streams(), 1);
        drop(second);
        assert_eq!(home.limits.n_streams(), 0);
    }

    #[test]
    fn who_waits_notices_new_limits() {
        let (_dir, location, home) = limited(Some(0), Some(0));
        let (sender, receiver) = mpsc::channel();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (home, location, sender) = (home.clone(), location.clone(), sender.clone());
                std::thread::spawn(move || {
                    let mut opened = home.open(&location, None).unwrap();
                    assert!(opened.file.is_none(), "the file would go round the rate");
                    sender.send(0).unwrap();
                    sender.send(opened.reader.read_to_end(&mut Vec::new()).unwrap()).unwrap();
                })
            })
            .collect();
        home.limits.set_limits(None, Some(0));
        for _ in 0..3 {
            assert_eq!(receiver.recv_timeout(DEADLINE), Ok(0), "all are open, none may read");
        }
        home.limits.set_limits(None, Some(1_000_000));
        for _ in 0..3 {
            assert_eq!(receiver.recv_timeout(DEADLINE), Ok(5000));
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_local_home_is_not_limited() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::from_path(&dir.path().join("x")).unwrap();
        let inner = Arc::new(FileHome::new(vec![dir.path().to_path_buf()]).unwrap());
        let home = Limited::new(inner, Arc::new(Limits::new(Some(0), Some(0))));
        home.write(&location, &mut &b"abc"[..], None).unwrap();
        assert_eq!(io::read_to_string(home.open(&location, None).unwrap().reader).unwrap(), "abc");
    }
}
