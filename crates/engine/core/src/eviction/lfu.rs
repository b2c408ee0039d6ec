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

use super::ranked::{InOrder, Order};

pub type Lfu = InOrder<UseCounts>;

#[derive(Clone, Debug, Default)]
pub struct UseCounts {
    /// The uses and insertions of all objects.
    clock: u64,
}

/// The order of the fields is the order of leaving.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Worth {
    n_uses: u64,
    /// Reading of the clock.
    last_use: u64,
}

impl UseCounts {
    fn worth(&mut self, n_uses: u64) -> Worth {
        self.clock += 1;
        Worth { n_uses, last_use: self.clock - 1 }
    }
}

impl Order for UseCounts {
    type Key = Worth;

    fn entered(&mut self) -> Worth {
        self.worth(0)
    }

    fn used(&mut self, key: Worth) -> Option<Worth> {
        Some(self.worth(key.n_uses + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::{Eviction, Row};
    use eyas_terms::rng::Rng;

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
