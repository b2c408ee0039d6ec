//! `random`: any candidate may leave, each with the same probability.
//!
//! Source: Raicu09 2.1, which names the policy and says no more.
//!
//! Assumes nothing about the workload. It is the measure for the other policies, and it does not collapse on
//! loops larger than the cache as `lru` and `fifo` do.
//!
//! Exact meaning: each victim takes one draw from the cache's seeded generator, over the objects that
//! may leave at that moment. Uses, ages and sizes do not count; neither does a pin that has ended.
//! Which number means which object depends on the order in which objects came and went, which the
//! events determine, so the same events and seed give the same victims.
//!
//! Cost: O(1) for everything.

use super::{Eviction, Row};
use eyas_terms::rng::Rng;

const NOT_A_CANDIDATE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub struct Random {
    candidates: Vec<Row>,
    /// By row: its position in `candidates`.
    at: Vec<u32>,
}

impl Eviction for Random {
    fn inserted(&mut self, row: Row) {
        let i = row.0 as usize;
        if i >= self.at.len() {
            self.at.resize(i + 1, NOT_A_CANDIDATE);
        }
        assert!(!self.is_candidate(row), "{row:?} is taken by a candidate");
    }

    fn accessed(&mut self, _row: Row) {}

    fn held(&mut self, row: Row) {
        let at = std::mem::replace(&mut self.at[row.0 as usize], NOT_A_CANDIDATE);
        assert!(at != NOT_A_CANDIDATE, "{row:?} is no candidate");
        self.candidates.swap_remove(at as usize);
        if let Some(moved) = self.candidates.get(at as usize) {
            self.at[moved.0 as usize] = at;
        }
    }

    fn freed(&mut self, row: Row) {
        assert!(!self.is_candidate(row), "{row:?} is a candidate already");
        self.at[row.0 as usize] = self.candidates.len() as u32;
        self.candidates.push(row);
    }

    fn victim(&mut self, rng: &mut Rng) -> Option<Row> {
        let n = self.candidates.len() as u64;
        (n > 0).then(|| self.candidates[rng.below(n) as usize])
    }

    fn is_candidate(&self, row: Row) -> bool {
        self.at.get(row.0 as usize).is_some_and(|&at| at != NOT_A_CANDIDATE)
    }

    fn n_candidates(&self) -> usize {
        self.candidates.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_equally_likely() {
        let mut policy = Random::default();
        for row in (0..9).map(Row) {
            policy.inserted(row);
            policy.freed(row);
        }
        [3, 0, 8].into_iter().for_each(|row| policy.held(Row(row)));
        let mut rng = Rng::new(1);
        let mut n_chosen = [0u32; 9];
        for _ in 0..60_000 {
            n_chosen[policy.victim(&mut rng).unwrap().0 as usize] += 1;
        }
        for (row, n) in n_chosen.into_iter().enumerate() {
            // Binomial with mean 10,000 and standard deviation 91: five of them either way.
            let expected = if policy.is_candidate(Row(row as u32)) { 9_545..=10_455 } else { 0..=0 };
            assert!(expected.contains(&n), "{n_chosen:?}");
        }
    }
}
