//! The live driver's clock: the only place that turns the machine's time into a [`Timestamp`].

use eyas_core::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in nanoseconds since the UNIX epoch.
pub fn now() -> Timestamp {
    let ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Timestamp(u64::try_from(ns).unwrap_or(u64::MAX))
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
