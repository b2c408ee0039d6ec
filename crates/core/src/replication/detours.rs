//! Pairs of sites that do not reach each other, and when they try again.
//!
//! A copy between such a pair goes another way, through the machine of the catalog. Each failed try may take seconds, so the time until
//! the next one doubles, from a minute up to an hour.

use std::collections::BTreeMap;

const FIRST_WAIT_MS: i64 = 60_000;
const LAST_WAIT_MS: i64 = 3_600_000;

/// The pairs that failed last time. Times are in milliseconds, from any moment.
#[derive(Debug)]
pub struct Detours<P> {
    pairs: BTreeMap<P, Failed>,
}

#[derive(Debug)]
struct Failed {
    again_at_ms: i64,
    wait_ms: i64,
}

impl<P> Default for Detours<P> {
    fn default() -> Detours<P> {
        Detours { pairs: BTreeMap::new() }
    }
}

impl<P: Ord> Detours<P> {
    /// Whether the pair is not to try now.
    pub fn has(&self, pair: &P, now_ms: i64) -> bool {
        self.pairs.get(pair).is_some_and(|failed| now_ms < failed.again_at_ms)
    }

    /// The pair has tried, and one site did not reach the other.
    pub fn failed(&mut self, pair: P, now_ms: i64) {
        let before_ms = self.pairs.get(&pair).map(|failed| failed.wait_ms);
        let wait_ms = before_ms.map_or(FIRST_WAIT_MS, |before_ms| (2 * before_ms).min(LAST_WAIT_MS));
        self.pairs.insert(pair, Failed { again_at_ms: now_ms.saturating_add(wait_ms), wait_ms });
    }

    /// The pair has copied something.
    pub fn worked(&mut self, pair: &P) {
        self.pairs.remove(pair);
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
