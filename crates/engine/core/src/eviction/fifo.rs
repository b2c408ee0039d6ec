//! `fifo`: the object that entered the cache first leaves first.
//!
//! Source: Raicu09 2.1, which names the policy and says no more.
//!
//! Assumes that an object's requests are close together in time, so that its age shows whether it is still
//! wanted. Loops larger than the cache never hit.
//!
//! Exact meaning: an object's age counts from the moment when space was reserved for it, that is from the
//! request that missed, not from the end of its transfer. Uses and pins do not change the age: an object
//! whose last pin ends is as old as it would be without pins. An object that leaves and comes back is new.
//!
//! Cost: O(log n) to come and go, O(1) for a use.

use super::ranked::{InOrder, Order};

pub type Fifo = InOrder<Entries>;

/// The key is the number of insertions before this one.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    n_inserted: u64,
}

impl Order for Entries {
    type Key = u64;

    fn entered(&mut self) -> u64 {
        self.n_inserted += 1;
        self.n_inserted - 1
    }

    fn used(&mut self, _key: u64) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::{Eviction, Row};
    use eyas_terms::rng::Rng;

    #[test]
    fn neither_uses_nor_pins_change_the_age() {
        let mut policy = Fifo::default();
        let mut rng = Rng::new(0);
        for row in (0..3).map(Row) {
            policy.inserted(row);
        }
        (0..3).rev().for_each(|row| policy.freed(Row(row)));
        policy.accessed(Row(0));
        policy.held(Row(0));
        assert_eq!(policy.victim(&mut rng), Some(Row(1)));
        policy.freed(Row(0));
        assert_eq!(policy.victim(&mut rng), Some(Row(0)));
    }
}
