//! The live driver's clock: the only place that turns the machine's time into a [`Timestamp`].
//!
//! The machine's wall clock is read once, when this process first asks for the time. From then on the
//! monotonic clock counts, so a wall clock that is set back or forth changes nothing here: no lease ends by
//! it, no run stops, no elapsed time is wrong. The machine's wall clock may still be far off; executors
//! therefore use the dispatcher's clock, which they learn when they are welcomed.

use eyas_session::clock;
use eyas_terms::Timestamp;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The readings of both clocks at one moment.
struct Anchor {
    unix_ns: u64,
    monotonic_ns: u64,
}

static ANCHOR: OnceLock<Anchor> = OnceLock::new();
/// How far the times given here are ahead of the anchor's; see [`go_on_from`].
static AHEAD_NS: AtomicU64 = AtomicU64::new(0);

/// Now, in nanoseconds since the UNIX epoch. Never goes back.
pub fn now() -> Timestamp {
    of_monotonic(monotonic_ns())
}

/// The reading of this machine's monotonic clock; comparable only with other processes of the same boot.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The time at which this machine's `CLOCK_MONOTONIC` had the value `monotonic_ns`. So what another process
/// of this machine reports is comparable with [`now`].
pub fn of_monotonic(monotonic_ns: u64) -> Timestamp {
    let anchor = ANCHOR.get_or_init(|| Anchor {
        unix_ns: read(libc::CLOCK_REALTIME),
        monotonic_ns: read(libc::CLOCK_MONOTONIC),
    });
    let since = i128::from(monotonic_ns) - i128::from(anchor.monotonic_ns);
    let ns = i128::from(anchor.unix_ns) + i128::from(AHEAD_NS.load(Ordering::Relaxed)) + since;
    Timestamp(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
}

/// From now on, no time before `earliest` is given, because an earlier process has already given it. Returns
/// by how many nanoseconds the machine's clock is behind.
pub fn go_on_from(earliest: Timestamp) -> u64 {
    let behind_ns = earliest.since_ns(now());
    AHEAD_NS.fetch_add(behind_ns, Ordering::Relaxed);
    behind_ns
}

/// Nanoseconds since this machine started, including those in which it slept. For lengths of time on this
/// machine only.
pub fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. Both clocks exist on every Linux, so the call does not fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // A clock before 1970 counts as 1970.
    let (s, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// The dispatcher's clock, as an executor estimates it from its welcome. Clones share it.
///
/// All times that an executor reports, and those by which it judges tickets, are by this clock: the clock of
/// its own machine may be an hour ahead.
#[derive(Clone, Default)]
pub struct DispatchersClock {
    ahead_ns: Arc<AtomicI64>,
}

impl DispatchersClock {
    /// The dispatcher reported just now that its time is `now`.
    pub fn said(&self, now: Timestamp) {
        self.ahead_ns.store(clock::ahead_ns(self::now(), now), Ordering::Relaxed);
    }

    pub fn now(&self) -> Timestamp {
        self.at(self::now())
    }

    /// The dispatcher's time when the time here is `here`.
    pub fn at(&self, here: Timestamp) -> Timestamp {
        clock::there(here, self.ahead_ns.load(Ordering::Relaxed))
    }
}

/// Processor time that this process has used so far, and that of its ended children, in nanoseconds.
pub fn cpu_ns() -> (u64, u64) {
    fn used(who: libc::c_int) -> u64 {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is valid for writes of one rusage, which the call fills.
        let usage = unsafe {
            libc::getrusage(who, usage.as_mut_ptr());
            usage.assume_init()
        };
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
        ns(usage.ru_utime) + ns(usage.ru_stime)
    }
    (used(libc::RUSAGE_SELF), used(libc::RUSAGE_CHILDREN))
}

/// Resident memory of this process in bytes; 0 where the system does not say.
pub fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_on_from_the_last_one_that_was_given() {
        let before = now();
        let hour_ns = 3_600_000_000_000;
        let behind_ns = go_on_from(before.plus_ns(hour_ns));
        assert!(0 < behind_ns && behind_ns <= hour_ns, "{behind_ns}");
        assert!(now() >= before.plus_ns(hour_ns));
        assert_eq!(go_on_from(before), 0, "what is past already moves nothing");
    }

    #[test]
    fn the_monotonic_clock_of_another_process_is_the_same() {
        let (before, at, after) = (now(), of_monotonic(read(libc::CLOCK_MONOTONIC)), now());
        // Another test may set the clock ahead between the three.
        assert!(before <= at && at <= after, "{before:?} {at:?} {after:?}");
    }
}
