//! Ways that did not work, and when they are tried again.
//!
//! A way is a pair of sites that do not reach each other, whose copies go through the machine of the catalog then, or a site that a reader
//! does not reach and asks after all others then. Each failed try may take seconds, so the time until the next one doubles, from a
//! minute up to an hour.

use std::collections::BTreeMap;

const FIRST_WAIT_MS: i64 = 60_000;
const LAST_WAIT_MS: i64 = 3_600_000;

/// The ways that failed last time. Times are in milliseconds, from any moment.
#[derive(Debug)]
pub struct Detours<W> {
    ways: BTreeMap<W, Failed>,
}

#[derive(Debug)]
struct Failed {
    again_at_ms: i64,
    wait_ms: i64,
}

impl<W> Default for Detours<W> {
    fn default() -> Detours<W> {
        Detours { ways: BTreeMap::new() }
    }
}

impl<W: Ord> Detours<W> {
    /// Whether the way is not to be tried now.
    pub fn has(&self, way: &W, now_ms: i64) -> bool {
        self.ways.get(way).is_some_and(|failed| now_ms < failed.again_at_ms)
    }

    /// The way was tried and did not work.
    pub fn failed(&mut self, way: W, now_ms: i64) {
        let before_ms = self.ways.get(&way).map(|failed| failed.wait_ms);
        let wait_ms = before_ms.map_or(FIRST_WAIT_MS, |before_ms| (2 * before_ms).min(LAST_WAIT_MS));
        self.ways.insert(way, Failed { again_at_ms: now_ms.saturating_add(wait_ms), wait_ms });
    }

    /// The way has worked.
    pub fn worked(&mut self, way: &W) {
        self.ways.remove(way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_waits_twice_as_long_after_each_failure_and_is_forgiven_at_once() {
        let mut detours = Detours::default();
        assert!(!detours.has(&(1, 2), 0));
        let mut now_ms = 0;
        for wait_min in [1, 2, 4, 8, 16, 32, 60, 60] {
            detours.failed((1, 2), now_ms);
            let again_ms = now_ms + wait_min * 60_000;
            assert!(detours.has(&(1, 2), again_ms - 1) && !detours.has(&(1, 2), again_ms), "{wait_min}");
            assert!(!detours.has(&(2, 1), now_ms), "the other way is another pair");
            now_ms = again_ms;
        }
        detours.worked(&(1, 2));
        detours.failed((1, 2), now_ms);
        assert!(!detours.has(&(1, 2), now_ms + 60_000));
    }
}
