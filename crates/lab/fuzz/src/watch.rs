//! Limits on what one input may take: a thread ends the process when an input takes too much processor time.

use crate::memory;
use crate::place::{die, place};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Processor time that one input may take, in seconds.
pub const CPU_S_MAX: u64 = 10;
/// The process's exit status then.
pub const STATUS: i32 = 87;
/// Input `number` of `target` begins.
pub fn begin(target: usize, number: u64) {
    let place = place();
    place.since_ns.store(cpu_ns(), Ordering::Relaxed);
    place.begun[target].store(number + 1, Ordering::Relaxed);
    place.target.store(target as u64 + 1, Ordering::Relaxed);
    memory::begin();
}

/// The same input, changed a little, is read once more.
pub fn again() {
    place().since_ns.store(cpu_ns(), Ordering::Relaxed);
    memory::begin();
}

/// It ended.
pub fn end() {
    let place = place();
    if let Some((target, _)) = place.current() {
        let took_ns = cpu_ns().saturating_sub(place.since_ns.load(Ordering::Relaxed));
        place.most_ns[target].fetch_max(took_ns, Ordering::Relaxed);
        place.most_bytes[target].fetch_max(memory::most() as u64, Ordering::Relaxed);
    }
    place.target.store(0, Ordering::Relaxed);
}

/// Processor time of this process.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the one value that the call writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Begins to watch this process.
pub fn start() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let place = place();
            let since_ns = place.since_ns.load(Ordering::Relaxed);
            if place.current().is_some() && cpu_ns().saturating_sub(since_ns) > CPU_S_MAX * 1_000_000_000 {
                die("an input took more than 10 s of processor time", STATUS);
            }
        }
    });
}
