//! Lets a user who does not want to wait any longer stop what a source of nodes is waiting for.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Shared by a source, which looks at it while it waits, and by whoever may lose patience.
#[derive(Clone, Debug, Default)]
pub struct Haste(Arc<OnceLock<Instant>>);

impl Haste {
    /// From now on nothing is waited for.
    pub fn begin(&self) {
        let _ = self.0.set(Instant::now());
    }

    pub fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Whether it began so long ago.
    pub(super) fn is_older_than(&self, time: Duration) -> bool {
        self.0.get().is_some_and(|begun| begun.elapsed() >= time)
    }

    /// Sleeps, but not once haste has begun.
    pub(super) fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.has_begun() {
            std::thread::sleep(Duration::from_millis(5).min(time));
        }
    }
}
