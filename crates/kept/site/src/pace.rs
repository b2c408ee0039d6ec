//! A limit on the bytes per second of all connections of a store together.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was not used is not saved up for longer than this.
const SAVED: Duration = Duration::from_millis(100);

pub(crate) struct Pace {
    bytes_per_s: f64,
    /// When the bytes that were let through so far are due.
    due: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(bytes_per_s: u64) -> Pace {
        Pace { bytes_per_s: bytes_per_s.max(1) as f64, due: Mutex::new(None) }
    }

    /// How long the sender of these bytes waits at `now`.
    pub(crate) fn wait(&self, n_bytes: usize, now: Instant) -> Duration {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(SAVED).unwrap_or(now);
        let start = due.map_or(earliest, |due| due.max(earliest));
        let end = start + Duration::from_secs_f64(n_bytes as f64 / self.bytes_per_s);
        *due = Some(end);
        end.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate_and_a_pause_is_not_made_up_for() {
        let pace = Pace::new(1000);
        let start = Instant::now();
        let ms = |n| Duration::from_millis(n);
        let waited = |n_bytes, at: Duration| pace.wait(n_bytes, start + at).as_millis();
        assert_eq!(waited(100, ms(0)), 0, "a tenth of a second is saved up");
        assert_eq!(waited(500, ms(0)), 500);
        assert_eq!(waited(500, ms(0)), 1000, "two connections share it");
        assert_eq!(waited(500, ms(1000)), 500);
        assert_eq!(waited(200, ms(60_000)), 100, "a minute without bytes gives a tenth of a second");
    }
}
