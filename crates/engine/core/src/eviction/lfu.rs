//! `lfu`: the object that was used least often leaves first; among equals, the one whose last use is longest
//! ago.
//!
//! Source: Raicu09 2.1, which names the policy and says no more.
//!
//! Assumes that popularity is stable. An object that was popular once stays: counts do not age.
//!
//! Exact meaning: every request counts as a use, also a request for an object that is pinned or still on its
//! way; the end of a pin does not count. The count begins at 0 when the object enters and is forgotten when
//! it leaves (in-cache LFU), so an object that comes back begins again. Sizes do not count.
//!
//! Cost: O(log n) to come and go; a use is O(1) for a pinned object, else O(log n).

use super::{Eviction, Row, ranked::Ranked};
use eyas_terms::rng::Rng;

#[derive(Clone, Debug, Default)]
pub struct Lfu {
    clock: u64,
    rows: Ranked<Worth>,
}

/// The order of the fields is the order of leaving.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Worth {
    n_uses: u64,
    /// Reading of `clock`, which counts the uses and insertions of all objects.
    last_use: u64,
}

impl Eviction for Lfu {
    fn inserted(&mut self, row: Row) {
        self.rows.insert(row, Worth { n_uses: 0, last_use: self.clock });
        self.clock += 1;
    }

    fn accessed(&mut self, row: Row) {
        let n_uses = self.rows.key(row).n_uses + 1;
        self.rows.set_key(row, Worth { n_uses, last_use: self.clock });
        self.clock += 1;
    }

    fn held(&mut self, row: Row) {
        self.rows.remove_candidate(row);
    }

    fn freed(&mut self, row: Row) {
        self.rows.add_candidate(row);
    }

    fn victim(&mut self, _rng: &mut Rng) -> Option<Row> {
        self.rows.first()
    }

    fn is_candidate(&self, row: Row) -> bool {
        self.rows.is_candidate(row)
    }

    fn n_candidates(&self) -> usize {
        self.rows.n_candidates()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewest_uses_first_then_least_recent_and_counts_end_with_the_stay() {
        let mut policy = Lfu::default();
        let mut rng = Rng::new(0);
        for row in (0..4).map(Row) {
            policy.inserted(row);
            policy.freed(row);
        }
        for row in [0, 0, 0, 2, 1, 3, 3] {
            policy.accessed(Row(row));
        }
        for row in [2, 1, 3, 0].map(Row) {
            assert_eq!(policy.victim(&mut rng), Some(row));
            policy.held(row);
        }
        // Row 0 had three uses; the object that takes it over has none.
        policy.inserted(Row(0));
        (0..2).for_each(|row| policy.freed(Row(row)));
        assert_eq!(policy.victim(&mut rng), Some(Row(0)));
    }
}
