//! Candidates in the order of a key: the part that `fifo`, `lru` and `lfu` share.
//!
//! Every row has a key; some rows are candidates. [`Ranked::first`] is the candidate with the smallest
//! key. Keys are unique among candidates (they end in a counter), so the answer depends on the keys
//! alone and not on the order of calls.
//!
//! Why a heap and not the usual linked list: a pinned object leaves the candidates and comes back with the
//! key that it has earned meanwhile, which need not be the newest. A list would have to search for the
//! object's place, or to treat the end of a pin as a use. Why four children: half the levels of a binary
//! heap, and siblings share a cache line. `first` and setting the key of a row that is no candidate are O(1),
//! the rest is O(log n); coming back with the newest key, the usual case, is O(1).

use super::{Eviction, Row};
use eyas_terms::rng::Rng;
use std::fmt;

/// What a policy ranks objects by: the candidate with the smallest key leaves first.
pub trait Order: fmt::Debug + Send {
    type Key: Copy + Ord + Default + fmt::Debug + Send;

    /// The key of an object that enters the cache. No other object has it.
    fn entered(&mut self) -> Self::Key;
    /// The new key of an object that is used once more; `None`: it keeps the one that it has. No other object has it.
    fn used(&mut self, key: Self::Key) -> Option<Self::Key>;
}

/// The policy by which objects leave in the order `O`.
#[derive(Clone, Debug, Default)]
pub struct InOrder<O: Order> {
    order: O,
    rows: Ranked<O::Key>,
}

impl<O: Order> Eviction for InOrder<O> {
    fn inserted(&mut self, row: Row) {
        self.rows.insert(row, self.order.entered());
    }

    fn accessed(&mut self, row: Row) {
        if let Some(key) = self.order.used(self.rows.key(row)) {
            self.rows.set_key(row, key);
        }
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

const ARITY: usize = 4;
const NOT_A_CANDIDATE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
struct Ranked<K> {
    /// By row.
    keys: Vec<K>,
    /// By row: its position in `heap`.
    at: Vec<u32>,
    /// Min-heap of the candidates, with a copy of the key so that sifting stays in one place.
    heap: Vec<(K, Row)>,
}

impl<K: Copy + Ord + Default> Ranked<K> {
    /// Begins (or begins anew) a row, which is no candidate.
    fn insert(&mut self, row: Row, key: K) {
        let i = row.0 as usize;
        if i >= self.keys.len() {
            self.keys.resize(i + 1, K::default());
            self.at.resize(i + 1, NOT_A_CANDIDATE);
        }
        assert!(!self.is_candidate(row), "{row:?} is taken by a candidate");
        self.keys[i] = key;
    }

    fn key(&self, row: Row) -> K {
        self.keys[row.0 as usize]
    }

    /// Changes the key of a row, candidate or not.
    fn set_key(&mut self, row: Row, key: K) {
        self.keys[row.0 as usize] = key;
        let at = self.at[row.0 as usize];
        if at != NOT_A_CANDIDATE {
            self.heap[at as usize].0 = key;
            self.sift(at as usize);
        }
    }

    fn add_candidate(&mut self, row: Row) {
        assert!(!self.is_candidate(row), "{row:?} is a candidate already");
        self.heap.push((self.key(row), row));
        self.sift(self.heap.len() - 1);
    }

    fn remove_candidate(&mut self, row: Row) {
        let at = std::mem::replace(&mut self.at[row.0 as usize], NOT_A_CANDIDATE);
        assert!(at != NOT_A_CANDIDATE, "{row:?} is no candidate");
        self.heap.swap_remove(at as usize);
        if (at as usize) < self.heap.len() {
            self.sift(at as usize);
        }
    }

    fn first(&self) -> Option<Row> {
        self.heap.first().map(|&(_, row)| row)
    }

    fn is_candidate(&self, row: Row) -> bool {
        self.at.get(row.0 as usize).is_some_and(|&at| at != NOT_A_CANDIDATE)
    }

    fn n_candidates(&self) -> usize {
        self.heap.len()
    }

    /// Moves the item at `i`, the only one that may be out of place, up or down to where it belongs.
    fn sift(&mut self, mut i: usize) {
        let item = self.heap[i];
        while i > 0 {
            let parent = (i - 1) / ARITY;
            if self.heap[parent].0 <= item.0 {
                break;
            }
            self.put(i, self.heap[parent]);
            i = parent;
        }
        loop {
            let children = i * ARITY + 1..(i * ARITY + 1 + ARITY).min(self.heap.len());
            let Some(child) = children.min_by_key(|&c| self.heap[c].0) else { break };
            if item.0 <= self.heap[child].0 {
                break;
            }
            self.put(i, self.heap[child]);
            i = child;
        }
        self.put(i, item);
    }

    fn put(&mut self, i: usize, item: (K, Row)) {
        self.heap[i] = item;
        self.at[item.1.0 as usize] = i as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a scan over all candidates, with keys that go up, down and stay.
        #[test]
        fn gives_the_smallest_key(steps in prop::collection::vec((0u32..40, 0u64..1_000, 0u8..3), 1..300)) {
            let mut ranked = Ranked::default();
            let mut keys = BTreeMap::new();
            let mut candidates = BTreeMap::new();
            for (row, key, step) in steps {
                // The row makes keys unique, as a counter does in the policies.
                let key = (key, row);
                let row = Row(row);
                if keys.insert(row, key).is_none() {
                    ranked.insert(row, key);
                } else {
                    ranked.set_key(row, key);
                }
                if step > 0 && candidates.remove(&row).is_some() {
                    ranked.remove_candidate(row);
                } else if step == 2 {
                    ranked.add_candidate(row);
                    candidates.insert(row, ());
                }
                let first = candidates.keys().copied().min_by_key(|row| keys[row]);
                prop_assert_eq!(ranked.first(), first);
                prop_assert_eq!(ranked.n_candidates(), candidates.len());
                prop_assert!(keys.keys().all(|r| ranked.is_candidate(*r) == candidates.contains_key(r)));
                prop_assert!(keys.iter().all(|(r, k)| ranked.key(*r) == *k));
            }
        }
    }
}
