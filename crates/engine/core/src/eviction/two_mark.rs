//! `two-mark`: objects that were requested in this phase stay; any other may leave, each equally likely.
//!
//! Source: Raicu09 §3.2, figure 6; this policy is the part of it that one node can do alone. 2Mark manages
//! all stores of a system as one: *local marks* show what a store needs now, *global marks* show what the
//! system needs, and an object that leaves one store moves to another while the system needs it.
//!
//! | figure 6 | here |
//! |---|---|
//! | lines 9 to 11: a local phase ends when all objects of a full store are local-marked | [`TwoMark::victim`] |
//! | lines 13, 25: an arbitrary local-unmarked object leaves | the same, drawn at random |
//! | line 34: a request local-marks its object | `accessed`, and `inserted` |
//! | lines 20 to 24, 29: global marks and phases | absent: one node does not see the requests at others |
//! | lines 14, 27: an object that leaves goes to another node | absent: an executor drops what it evicts |
//! | one copy of an object in the system | absent: a node keeps a copy although others have one |
//!
//! With one store both kinds of mark are the same and the algorithm is this policy. The whole algorithm, its
//! readings and the check of equation 11 are in the test kit (`two_mark`).
//!
//! Assumes nothing about the workload; its value is its guarantee. With objects of one size, at most `M` of
//! which fit, it fetches at most `M` times as often as a policy that knows the future. On average it fetches
//! at most `2 (1 + 1/2 + … + 1/M)` times as often, when requests do not depend on its draws (Fiat, Karp,
//! Luby, McGeoch, Sleator, Young: *Competitive Paging Algorithms*, 1991). That is why the victim is drawn:
//! taking the object whose last use is longest ago would satisfy the same rule, but would make this policy
//! equal to `lru`, and loops larger than the cache would never hit.
//!
//! Exact meaning: entering the cache marks an object, and so does every request, also for an object that is
//! pinned or still on its way; the end of a pin does not. A phase ends when an object has to leave and all
//! candidates are marked; then no object is marked any more, including pinned ones. Sizes do not count.
//!
//! Cost: O(1) for everything.

use super::{Eviction, Row};
use eyas_terms::rng::Rng;

const NOT_A_CANDIDATE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub struct TwoMark {
    /// The number of this phase.
    phase: u64,
    /// By row: the phase of the object's last request. The object is marked if that is the present phase.
    requested: Vec<u64>,
    /// By row: the object's position in `marked` or in `unmarked`.
    at: Vec<u32>,
    /// The candidates.
    marked: Vec<Row>,
    unmarked: Vec<Row>,
}

impl TwoMark {
    fn is_marked(&self, row: Row) -> bool {
        self.requested[row.0 as usize] == self.phase
    }

    /// The candidates with the same mark as `row`.
    fn alike(&mut self, row: Row) -> &mut Vec<Row> {
        if self.is_marked(row) { &mut self.marked } else { &mut self.unmarked }
    }
}

impl Eviction for TwoMark {
    fn inserted(&mut self, row: Row) {
        let i = row.0 as usize;
        if i >= self.at.len() {
            self.at.resize(i + 1, NOT_A_CANDIDATE);
            self.requested.resize(i + 1, 0);
        }
        assert!(!self.is_candidate(row), "{row:?} is taken by a candidate");
        self.requested[i] = self.phase;
    }

    fn accessed(&mut self, row: Row) {
        if self.is_candidate(row) && !self.is_marked(row) {
            self.held(row);
            self.requested[row.0 as usize] = self.phase;
            self.freed(row);
        } else {
            self.requested[row.0 as usize] = self.phase;
        }
    }

    fn held(&mut self, row: Row) {
        let at = std::mem::replace(&mut self.at[row.0 as usize], NOT_A_CANDIDATE);
        assert!(at != NOT_A_CANDIDATE, "{row:?} is no candidate");
        let alike = self.alike(row);
        alike.swap_remove(at as usize);
        if let Some(&moved) = alike.get(at as usize) {
            self.at[moved.0 as usize] = at;
        }
    }

    fn freed(&mut self, row: Row) {
        assert!(!self.is_candidate(row), "{row:?} is a candidate already");
        let alike = self.alike(row);
        alike.push(row);
        let at = alike.len() as u32 - 1;
        self.at[row.0 as usize] = at;
    }

    fn victim(&mut self, rng: &mut Rng) -> Option<Row> {
        if self.unmarked.is_empty() {
            if self.marked.is_empty() {
                return None;
            }
            // A new phase: all marks end at once, because none is of this phase.
            self.phase += 1;
            std::mem::swap(&mut self.marked, &mut self.unmarked);
        }
        let n = self.unmarked.len() as u64;
        Some(self.unmarked[rng.below(n) as usize])
    }

    fn is_candidate(&self, row: Row) -> bool {
        self.at.get(row.0 as usize).is_some_and(|&at| at != NOT_A_CANDIDATE)
    }

    fn n_candidates(&self) -> usize {
        self.marked.len() + self.unmarked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn holding(n: u32) -> TwoMark {
        let mut policy = TwoMark::default();
        for row in (0..n).map(Row) {
            policy.inserted(row);
            policy.freed(row);
        }
        policy
    }

    /// The rows that leave until the phase ends, in any order.
    fn leave(policy: &mut TwoMark, n: usize) -> BTreeSet<u32> {
        let mut rng = Rng::new(5);
        let mut victims = || {
            let row = policy.victim(&mut rng).unwrap();
            policy.held(row);
            row.0
        };
        (0..n).map(|_| victims()).collect()
    }

    #[test]
    fn what_was_requested_in_this_phase_stays() {
        let mut policy = holding(6);
        // All six are marked: a new phase begins with the first victim.
        let first = leave(&mut policy, 1);
        let rest: Vec<u32> = (0..6).filter(|row| !first.contains(row)).collect();
        policy.accessed(Row(rest[1]));
        policy.accessed(Row(rest[3]));
        assert_eq!(leave(&mut policy, 3), BTreeSet::from([rest[0], rest[2], rest[4]]));
        // Only marked ones are left: the next phase.
        policy.accessed(Row(rest[1]));
        assert_eq!(leave(&mut policy, 2), BTreeSet::from([rest[1], rest[3]]));
        assert_eq!(policy.victim(&mut Rng::new(0)), None);
    }

    #[test]
    fn requests_mark_while_pinned_and_the_end_of_a_pin_does_not() {
        let mut policy = holding(4);
        policy.held(Row(0));
        policy.held(Row(1));
        // Ends the phase of all four, pinned or not.
        let row = policy.victim(&mut Rng::new(0)).unwrap();
        policy.accessed(Row(0));
        policy.freed(Row(0));
        policy.freed(Row(1));
        assert!(row == Row(2) || row == Row(3));
        assert_eq!(leave(&mut policy, 3), BTreeSet::from([1, 2, 3]));
        assert_eq!(leave(&mut policy, 1), BTreeSet::from([0]));
    }

    #[test]
    fn what_comes_back_is_marked() {
        let mut policy = holding(2);
        assert_eq!(leave(&mut policy, 2), BTreeSet::from([0, 1]));
        for row in [0, 1].map(Row) {
            policy.inserted(row);
            policy.freed(row);
        }
        policy.victim(&mut Rng::new(0));
        policy.held(Row(0));
        policy.inserted(Row(0));
        policy.freed(Row(0));
        assert_eq!(leave(&mut policy, 1), BTreeSet::from([1]));
    }

    /// Requests for objects of one size, as the paper has them.
    fn n_faults(n_slots: usize, requests: impl Iterator<Item = u32>, rng: &mut Rng) -> u32 {
        let mut policy = TwoMark::default();
        let mut rows: Vec<Option<u32>> = vec![None; n_slots];
        let mut n_faults = 0;
        for object in requests {
            let row = rows.iter().position(|held| *held == Some(object)).unwrap_or_else(|| {
                n_faults += 1;
                let row = rows.iter().position(Option::is_none).unwrap_or_else(|| {
                    let row = policy.victim(rng).unwrap();
                    policy.held(row);
                    row.0 as usize
                });
                rows[row] = Some(object);
                policy.inserted(Row(row as u32));
                policy.freed(Row(row as u32));
                row
            });
            policy.accessed(Row(row as u32));
        }
        n_faults
    }

    /// A loop over one object more than fits: `lru` never hits, the optimum misses once in `M` requests.
    #[test]
    fn a_loop_larger_than_the_cache_costs_no_more_than_the_draw_promises() {
        const M: u32 = 16;
        let mut rng = Rng::new(9);
        let n_requests = 100_000;
        let n_faults = n_faults(M as usize, (0..n_requests).map(|i| i % (M + 1)), &mut rng);
        let harmonic: f64 = (1..=M).map(|i| 1.0 / f64::from(i)).sum();
        let optimum = f64::from(n_requests / M);
        assert!(f64::from(n_faults) <= 2.0 * harmonic * optimum, "{n_faults} of {n_requests}");
        assert!(f64::from(n_faults) >= optimum);
    }
}
