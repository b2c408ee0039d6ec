//! `lru`: the object whose last use is longest ago leaves first.
//!
//! Source: Raicu09 2.1, which names the policy and says no more; all experiments of that paper use it.
//!
//! Assumes that an object used lately will be used again soon. Loops larger than the cache never hit.
//!
//! Exact meaning: entering the cache and every request count as a use, also a request for an object
//! that is pinned or still on its way. The end of a pin does not: an object that a task held for an
//! hour was last used when it was last requested, and may be the next to leave.
//!
//! Cost: O(log n) to come and go; a use is O(1) for a pinned object, else O(log n).

use super::ranked::{InOrder, Order};

pub type Lru = InOrder<LastUses>;

/// The key is the number of uses, of any object, before the last use of this one.
#[derive(Clone, Debug, Default)]
pub struct LastUses {
    n_uses: u64,
}

impl Order for LastUses {
    type Key = u64;

    fn entered(&mut self) -> u64 {
        self.n_uses += 1;
        self.n_uses - 1
    }

    fn used(&mut self, _key: u64) -> Option<u64> {
        Some(self.entered())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::{Eviction, Row};
    use eyas_terms::rng::Rng;

    #[test]
    fn uses_count_while_pinned_and_the_end_of_a_pin_does_not() {
        let mut policy = Lru::default();
        let mut rng = Rng::new(0);
        for row in (0..3).map(Row) {
            policy.inserted(row);
            policy.freed(row);
        }
        policy.held(Row(0));
        policy.held(Row(1));
        policy.accessed(Row(0));
        policy.freed(Row(0));
        policy.freed(Row(1));
        // Last uses in order: 1 (when it came), 2 (when it came), 0 (while pinned).
        for row in [1, 2, 0].map(Row) {
            assert_eq!(policy.victim(&mut rng), Some(row));
            policy.held(row);
        }
    }
}
