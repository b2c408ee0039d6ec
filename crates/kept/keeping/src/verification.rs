//! Which copies of a site are read through now, so that each one is verified again within a period.
//!
//! Input: the copies of a site, with their sizes and when each was verified last. Output: which of them are read in this look. The
//! rules:
//!
//! * the copy that was verified longest ago comes first, and one that never was before all others;
//! * a look reads as large a part of all bytes as the time between two looks is of the period, so that reading is even and each
//!   copy gets its turn within the period, and besides everything whose time is over;
//! * a look reads at most so many bytes as its owner allows, but always one copy, so that a large one has its turn, too;
//! * a time that has not come yet says nothing: it is from a clock that was wrong, and the copy counts as never verified.
//!
//! Source: the audits of GEMS (`Wozniak06` §III-A), which find copies that disks and people have damaged.

use std::cmp::Reverse;

/// A copy at a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    pub size_bytes: u64,
    /// When it was read through last, in milliseconds since 1970; `None`: never.
    pub at_ms: Option<i64>,
}

/// How often copies are verified. Times are in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Each copy is verified again within about this time.
    pub period_ms: u64,
    /// The time between two looks.
    pub look_ms: u64,
    /// Most bytes that are read in one look.
    pub most_bytes: Option<u64>,
}

/// By how much the clocks of machines that verify copies may differ, in milliseconds.
const CLOCKS_DIFFER_MS: i64 = 60_000;

/// When a copy was verified, by what a clock said then.
fn known_ms(at_ms: Option<i64>, now_ms: i64) -> Option<i64> {
    at_ms.filter(|&at_ms| at_ms.saturating_sub(now_ms) <= CLOCKS_DIFFER_MS).map(|at_ms| at_ms.min(now_ms))
}

/// The places of the copies that are to be read through now, in the order in which they are read.
pub fn due(copies: &[Verified], pace: Pace, now_ms: i64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..copies.len()).collect();
    order.sort_by_key(|&n| (known_ms(copies[n].at_ms, now_ms), Reverse(copies[n].size_bytes), n));
    let all_bytes: u128 = copies.iter().map(|copy| u128::from(copy.size_bytes)).sum();
    let share = (all_bytes * u128::from(pace.look_ms)).div_ceil(u128::from(pace.period_ms.max(1)));
    let period_ms = i64::try_from(pace.period_ms).unwrap_or(i64::MAX);
    let most_bytes = pace.most_bytes.map_or(u128::MAX, u128::from);
    let mut n_bytes: u128 = 0;
    let taken = order.iter().take_while(|&&n| {
        let copy = copies[n];
        let at_ms = known_ms(copy.at_ms, now_ms);
        let is_over = at_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= period_ms);
        let after = n_bytes + u128::from(copy.size_bytes);
        let is_taken = (is_over || n_bytes < share) && (n_bytes == 0 || after <= most_bytes);
        n_bytes = after;
        is_taken
    });
    taken.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::rng::Rng;

    fn copies(all: &[(u64, Option<i64>)]) -> Vec<Verified> {
        all.iter().map(|&(size_bytes, at_ms)| Verified { size_bytes, at_ms }).collect()
    }

    #[test]
    fn the_oldest_come_first_up_to_the_share_of_a_look() {
        let pace = Pace { period_ms: 1000, look_ms: 100, most_bytes: None };
        // Of 100 bytes, a tenth is due in each look.
        let all = copies(&[(40, Some(500)), (5, Some(400)), (5, Some(300)), (50, Some(450))]);
        assert_eq!(due(&all, pace, 600), [2, 1]);
        assert_eq!(due(&all, pace, 1350), [2, 1], "one is over, and the share is not reached");
        assert_eq!(due(&all, pace, 1450), [2, 1, 3], "what is over is read whatever the share says");
        assert!(due(&[], pace, 600).is_empty());
    }

    #[test]
    fn a_limit_holds_but_one_copy_is_always_read() {
        let pace = Pace { period_ms: 1000, look_ms: 100, most_bytes: Some(45) };
        let all = copies(&[(50, None), (40, None), (5, None), (5, Some(0))]);
        assert_eq!(due(&all, pace, 5000), [0]);
        let all = copies(&[(50, Some(4999)), (40, None), (5, None), (5, Some(0))]);
        assert_eq!(due(&all, pace, 5000), [1, 2]);
        // A copy of no bytes is read, too.
        assert_eq!(due(&copies(&[(0, None)]), pace, 5000), [0]);
    }

    #[test]
    fn a_time_that_has_not_come_says_nothing() {
        let pace = Pace { period_ms: 1_000_000, look_ms: 0, most_bytes: None };
        let all =
            copies(&[(9, Some(5_000_000)), (9, Some(400_000)), (9, Some(i64::MAX)), (9, Some(530_000))]);
        assert_eq!(due(&all, pace, 500_000), [0, 2], "clocks may differ by a little");
        assert_eq!(due(&all, pace, 1_450_000), [0, 2, 1]);
    }

    /// Many looks at random copies: none goes without being read for longer than a period and two looks.
    #[test]
    fn every_copy_is_read_within_its_period() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let n = 1 + rng.below(60) as usize;
            let mut all = copies(&vec![(0, Some(0)); n]);
            for copy in &mut all {
                copy.size_bytes = rng.below(1000);
            }
            let pace = Pace { period_ms: 10_000, look_ms: 100 + rng.below(2000), most_bytes: None };
            let (mut now_ms, mut n_read) = (0, 0);
            for _ in 0..200 {
                now_ms += pace.look_ms as i64;
                let taken = due(&all, pace, now_ms);
                n_read += taken.len();
                for n in taken {
                    all[n].at_ms = Some(now_ms);
                }
                let oldest = all.iter().filter_map(|copy| copy.at_ms).min().unwrap();
                assert!(now_ms - oldest <= (pace.period_ms + 2 * pace.look_ms) as i64, "seed {seed}");
            }
            // Reading is even: hardly more often than once in a period.
            let n_periods = now_ms as f64 / pace.period_ms as f64;
            assert!(n_read as f64 <= (n_periods + 1.0) * n as f64 * 2.0 + 200.0, "seed {seed}: {n_read}");
        }
    }
}
