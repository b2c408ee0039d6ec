//! Whether the results of an attempt may still appear at home.
//!
//! In: connections, sent messages and answers, as the agent reports them; cancellations; the end of this
//! process. Out: the [`Fence`] that home asks while an output is on its way. The rule itself is
//! [`eyas_core::lease::Lease`].
//!
//! A landing whose right is in doubt waits. One of these decides: the dispatcher's next answer, its message
//! that the attempt now belongs to another executor, or the end of this executor.

use super::landings::Landings;
use crate::clock;
use eyas_core::lease::Lease;
use eyas_data::Halt;
use eyas_storage::Fence;
use eyas_terms::Timestamp;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How often a waiting landing checks whether it was given up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The right of one executor process to let results appear at home. Clones share it.
#[derive(Clone, Default)]
pub struct Rights(Arc<Shared>);

#[derive(Default)]
struct Shared {
    lease: Mutex<Lease>,
    changed: Condvar,
}

impl Rights {
    /// The dispatcher has welcomed this executor; see [`Lease::connected`].
    pub fn connected(&self, lease_ns: u64) {
        self.lease().connected(lease_ns);
    }

    /// A message is sent to the dispatcher that it will answer.
    pub fn asked(&self) {
        self.lease().asked(now());
    }

    pub fn was_answered(&self) {
        self.lease().was_answered();
        self.0.changed.notify_all();
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.0.lease.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until the right holds, or until `halt` is set because the landing is of no use any more.
    fn wait(&self, halt: &Halt) -> Result<(), String> {
        let mut lease = self.lease();
        loop {
            if halt.is_stopped() {
                return Err(NOT_WANTED.into());
            }
            if lease.holds(now()) {
                return Ok(());
            }
            let slept = self.0.changed.wait_timeout(lease, LOOK_EVERY);
            lease = slept.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

const NOT_WANTED: &str = "the attempt was ended before this output was home";

fn now() -> Timestamp {
    Timestamp(clock::boot_ns())
}

/// The fence of one landing.
pub struct LandingFence {
    pub rights: Rights,
    pub halt: Halt,
    pub landings: Landings,
}

impl Fence for LandingFence {
    fn may_go_on(&self) -> Result<(), String> {
        if self.halt.is_stopped() { Err(NOT_WANTED.into()) } else { Ok(()) }
    }

    fn may_appear(&self) -> Result<(), String> {
        self.rights.wait(&self.halt)
    }

    fn part_begins(&self, part: &Path) {
        self.landings.begin(part);
    }

    fn part_ended(&self, part: &Path) {
        self.landings.end(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_waits_for_an_answer_and_no_longer_than_it_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let (landings, _) = Landings::open(dir.path()).unwrap();
        let (rights, halt) = (Rights::default(), Halt::default());
        let fence = LandingFence { rights: rights.clone(), halt: halt.clone(), landings };
        rights.connected(15_000_000_000);
        rights.asked();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| fence.may_appear());
            rights.was_answered();
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
        // A new connection: nothing is answered on it yet, and the attempt is cancelled.
        rights.connected(15_000_000_000);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| fence.may_appear());
            halt.stop();
            assert_eq!(waiting.join().unwrap(), Err(NOT_WANTED.to_string()));
        });
        assert!(fence.may_go_on().is_err());
    }
}
