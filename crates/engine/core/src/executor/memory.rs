//! Memory: which objects of the cache are held in memory, too.
//!
//! The cache on the disk has every object; memory is a second tier above it, with a budget and an eviction policy of its own. An
//! object that comes into the cache is about to be read, so it goes into memory if there is room. When an attempt asks for an object
//! that the cache has already, others leave memory for it: what is read once never pushes out what is read again and again.
//! The policy of the disk's cache says which object leaves memory first. An object that leaves memory stays on the disk, so none of the
//! disk's promises matter here, and a running program keeps no object in memory.
//!
//! The budget is what was asked for, or less: it follows the memory that the node has left ([`Memory::measured`]), so that programs
//! that take more than they declared get it back, and what the system refused ([`NotHeldInMemory::Refused`]). What was refused is tried
//! again after [`PROBE_NS`], a half more each time.
//!
//! Invariants, checked by [`Memory::sanity_check`]:
//!   1. the pages of all objects in memory, coming there and leaving while they come, are within the budget, except after it was lowered,
//!      until the driver has carried out what follows;
//!   2. what is in memory is in the cache.
//!
//! Not here: how bytes are held (`eyas-data`); which objects the disk keeps ([`crate::cache`]).

use super::space::spare_bytes;
use crate::cache::{Cache, CacheConfig, ReplicaState, Reserve};
use crate::event::{NodeAction, NotHeldInMemory};
use crate::eviction::UnknownEviction;
use eyas_terms::{ObjectId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// After this long without a refusal more is tried.
const PROBE_NS: u64 = 60_000_000_000;

/// The configuration of a node's memory tier.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct MemoryConfig {
    /// 0: nothing is held in memory.
    pub budget_bytes: u64,
    /// Memory is held in pages of this size.
    pub page_bytes: u64,
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig { budget_bytes: 0, page_bytes: 4096 }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Memory {
    asked_bytes: u64,
    page_bytes: u64,
    tier: Cache,
    /// Objects on their way into memory; `false`: they have left the cache meanwhile.
    coming: BTreeMap<ObjectId, bool>,
    measured_bytes: Option<u64>,
    /// The system refused to hold more than this, and when that was found or last raised.
    refused: Option<(u64, Timestamp)>,
}

impl Memory {
    /// The tier above a cache. `Err` if there is no eviction policy of the cache's name.
    pub fn new(config: &MemoryConfig, cache: &CacheConfig) -> Result<Memory, UnknownEviction> {
        let of_tier = CacheConfig { budget_bytes: config.budget_bytes, groups: false, ..cache.clone() };
        Ok(Memory {
            asked_bytes: config.budget_bytes,
            page_bytes: config.page_bytes.max(1),
            tier: Cache::new(of_tier)?,
            coming: BTreeMap::new(),
            measured_bytes: None,
            refused: None,
        })
    }

    /// Whether the whole object is in memory.
    pub fn holds(&self, object: ObjectId) -> bool {
        self.tier.is_ready(object)
    }

    /// Bytes of the pages that are held.
    pub fn used_bytes(&self) -> u64 {
        self.tier.used_bytes()
    }

    /// Pages never take more than this; less than was asked for where the node has no more.
    pub fn budget_bytes(&self) -> u64 {
        self.tier.budget_bytes()
    }

    /// An object has come into the cache, or is asked for again.
    pub(super) fn requested(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        is_again: bool,
        out: &mut Vec<NodeAction>,
    ) {
        if self.asked_bytes == 0 || size_bytes == 0 {
            return;
        }
        if self.tier.state(object).is_none() {
            let mut left = vec![];
            let bytes = size_bytes.next_multiple_of(self.page_bytes);
            if !is_again && bytes > self.tier.free_bytes() {
                return;
            }
            let granted = self.tier.reserve(object, bytes, &mut left) == Reserve::Granted;
            leave(left, out);
            if granted {
                self.coming.insert(object, true);
                out.push(NodeAction::HoldInMemory { object });
            }
        }
        self.tier.touch(object);
    }

    /// An object has left the cache, or was not let in.
    pub(super) fn left_cache(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        let left = match self.coming.get_mut(&object) {
            Some(wanted) => std::mem::take(wanted),
            None => self.tier.remove(object).is_ok(),
        };
        if left {
            out.push(NodeAction::LeaveMemory { object });
        }
    }

    /// See [`crate::event::NodeEvent::MemoryAnswered`].
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        object: ObjectId,
        result: Result<(), NotHeldInMemory>,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(wanted) = self.coming.remove(&object) else { return };
        match result {
            Ok(()) if wanted => {
                let size_bytes = self.tier.size_bytes(object).expect("it is coming");
                self.tier.commit(object, size_bytes);
            }
            Ok(()) | Err(NotHeldInMemory::Gone) => self.tier.abort(object),
            Err(NotHeldInMemory::Refused) => {
                self.tier.abort(object);
                self.refused = Some((self.tier.used_bytes(), now));
            }
        }
        self.fit(out);
    }

    /// See [`crate::event::NodeEvent::MemoryMeasured`].
    pub(super) fn measured(&mut self, room_bytes: u64, out: &mut Vec<NodeAction>) {
        let here = self.tier.used_bytes() + self.tier.reserved_bytes();
        self.measured_bytes = Some(here.saturating_add(room_bytes));
        self.fit(out);
    }

    /// As time passes, more is tried.
    pub(super) fn probe(&mut self, now: Timestamp, out: &mut Vec<NodeAction>) {
        let Some((bytes, at)) = &mut self.refused else { return };
        if now.since_ns(*at) >= PROBE_NS {
            *bytes = bytes.saturating_add((*bytes / 2).max(self.asked_bytes / 16).max(self.page_bytes));
            *at = now;
            if *bytes >= self.asked_bytes {
                self.refused = None;
            }
            self.fit(out);
        }
    }

    fn fit(&mut self, out: &mut Vec<NodeAction>) {
        let measured = self.measured_bytes.map_or(u64::MAX, |bytes| bytes - spare_bytes(bytes));
        let refused = self.refused.map_or(u64::MAX, |(bytes, _)| bytes);
        let mut left = vec![];
        self.tier.set_budget(self.asked_bytes.min(measured).min(refused), &mut left);
        leave(left, out);
    }

    /// Checks the invariants of the module's header; panics when one is broken. For tests.
    pub fn sanity_check(&self, cache: &Cache) {
        self.tier.sanity_check();
        let coming = self.tier.iter().filter(|(_, state, _)| *state == ReplicaState::Creating);
        assert!(coming.map(|(object, ..)| object).eq(self.coming.keys().copied()), "what comes is asked for");
        for (object, state, bytes) in self.tier.iter() {
            assert_eq!(bytes % self.page_bytes, 0, "{object:?} takes whole pages");
            if state == ReplicaState::Ready || self.coming[&object] {
                assert!(cache.is_ready(object), "{object:?} is in memory, so it is in the cache");
            }
        }
    }
}

fn leave(objects: Vec<ObjectId>, out: &mut Vec<NodeAction>) {
    out.extend(objects.into_iter().map(|object| NodeAction::LeaveMemory { object }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 10;

    fn memory(budget_bytes: u64, eviction: &str) -> Memory {
        let cache = CacheConfig { budget_bytes: 1 << 40, eviction: eviction.into(), seed: 3, groups: true };
        Memory::new(&MemoryConfig { budget_bytes, page_bytes: PAGE }, &cache).unwrap()
    }

    fn hold(object: u32) -> NodeAction {
        NodeAction::HoldInMemory { object: ObjectId(object) }
    }

    fn left(object: u32) -> NodeAction {
        NodeAction::LeaveMemory { object: ObjectId(object) }
    }

    fn request(memory: &mut Memory, object: u32, size_bytes: u64) -> Vec<NodeAction> {
        let mut out = vec![];
        memory.requested(ObjectId(object), size_bytes, true, &mut out);
        out
    }

    fn answer(memory: &mut Memory, object: u32, result: Result<(), NotHeldInMemory>) -> Vec<NodeAction> {
        let mut out = vec![];
        memory.answered(Timestamp(0), ObjectId(object), result, &mut out);
        out
    }

    #[test]
    fn what_is_asked_for_comes_in_pages_and_the_oldest_leaves() {
        let mut memory = memory(30, "lru");
        assert_eq!(request(&mut memory, 1, 11), [hold(1)]);
        assert!(!memory.holds(ObjectId(1)), "it is only coming");
        assert_eq!(answer(&mut memory, 1, Ok(())), []);
        assert_eq!((memory.holds(ObjectId(1)), memory.used_bytes()), (true, 20));
        assert_eq!(request(&mut memory, 2, 10), [hold(2)]);
        assert_eq!(request(&mut memory, 1, 11), [], "it is there");
        assert_eq!(request(&mut memory, 3, 25), [], "what comes cannot leave yet");
        answer(&mut memory, 2, Ok(()));
        assert_eq!(request(&mut memory, 4, 1), [left(2), hold(4)]);
        assert_eq!(request(&mut memory, 5, 31), [], "it is larger than memory");
        assert_eq!(request(&mut memory, 6, 0), [], "nothing needs no memory");
    }

    #[test]
    fn what_comes_for_the_first_time_takes_only_room_that_is_free() {
        let mut memory = memory(30, "lru");
        let mut out = vec![];
        for (object, size_bytes) in [(1, 20), (2, 20), (3, 10)] {
            memory.requested(ObjectId(object), size_bytes, false, &mut out);
            answer(&mut memory, object, Ok(()));
        }
        assert_eq!(out, [hold(1), hold(3)]);
        assert_eq!(request(&mut memory, 2, 20), [left(1), hold(2)], "it is asked for again");
    }

    #[test]
    fn what_leaves_the_cache_while_it_comes_keeps_its_room_until_the_driver_has_answered() {
        let mut memory = memory(20, "lru");
        request(&mut memory, 1, 20);
        let mut out = vec![];
        memory.left_cache(ObjectId(1), &mut out);
        memory.left_cache(ObjectId(1), &mut out);
        assert_eq!(out, [left(1)], "it is said once");
        assert_eq!(request(&mut memory, 2, 10), []);
        answer(&mut memory, 1, Ok(()));
        assert!(!memory.holds(ObjectId(1)));
        assert_eq!(request(&mut memory, 2, 10), [hold(2)]);
    }

    #[test]
    fn a_refusal_lowers_the_budget_until_more_is_tried() {
        let mut memory = memory(160, "lru");
        request(&mut memory, 1, 40);
        answer(&mut memory, 1, Ok(()));
        request(&mut memory, 2, 40);
        assert_eq!(answer(&mut memory, 2, Err(NotHeldInMemory::Refused)), []);
        assert_eq!(memory.budget_bytes(), 40);
        let mut budgets = vec![];
        for minute in 1..8 {
            memory.probe(Timestamp(minute * PROBE_NS), &mut vec![]);
            budgets.push(memory.budget_bytes());
        }
        budgets.dedup();
        assert_eq!(budgets, [60, 90, 135, 160]);
        answer(&mut memory, 9, Ok(()));
        request(&mut memory, 3, 10);
        answer(&mut memory, 3, Err(NotHeldInMemory::Gone));
        assert_eq!(memory.budget_bytes(), 160, "a file that is gone says nothing about memory");
    }

    #[test]
    fn programs_that_take_memory_get_it() {
        let mut memory = memory(160, "lru");
        for object in [1, 2] {
            request(&mut memory, object, 80);
            answer(&mut memory, object, Ok(()));
        }
        let mut out = vec![];
        memory.measured(1 << 40, &mut out);
        assert_eq!((out.as_slice(), memory.budget_bytes()), (&[] as &[_], 160));
        memory.measured(0, &mut out);
        assert_eq!((out.as_slice(), memory.budget_bytes()), (&[left(1)] as &[_], 140));
    }

    /// The naive reference for `lru`: a list of what is in memory or coming, the longest unused first.
    #[derive(Default)]
    struct Naive {
        rows: Vec<(u32, u64)>,
        coming: Vec<u32>,
        unwanted: Vec<u32>,
    }

    impl Naive {
        fn bytes(&self) -> u64 {
            self.rows.iter().map(|row| row.1).sum()
        }

        fn make_room(&mut self, within: u64, out: &mut Vec<NodeAction>) {
            while self.bytes() > within {
                let Some(at) = self.rows.iter().position(|row| !self.coming.contains(&row.0)) else { return };
                out.push(left(self.rows.remove(at).0));
            }
        }

        fn request(&mut self, object: u32, size_bytes: u64, is_again: bool, budget: u64) -> Vec<NodeAction> {
            let mut out = vec![];
            let bytes = size_bytes.div_ceil(PAGE) * PAGE;
            match self.rows.iter().position(|row| row.0 == object) {
                Some(at) => {
                    let row = self.rows.remove(at);
                    self.rows.push(row);
                }
                None if bytes > 0 && (is_again || self.bytes() + bytes <= budget) => {
                    let stay = self.rows.iter().filter(|row| self.coming.contains(&row.0));
                    if stay.map(|row| row.1).sum::<u64>() + bytes <= budget {
                        self.make_room(budget - bytes, &mut out);
                        self.rows.push((object, bytes));
                        self.coming.push(object);
                        out.push(hold(object));
                    }
                }
                _ => {}
            }
            out
        }
    }

    proptest! {
        #[test]
        fn does_what_the_naive_reference_does(
            steps in prop::collection::vec((0u8..6, 0u32..8, 0u64..60), 1..200),
            asked in 1u64..200,
        ) {
            let (mut memory, mut naive) = (memory(asked, "lru"), Naive::default());
            let mut cache = Cache::new(CacheConfig {
                budget_bytes: 1 << 40, eviction: "lru".into(), seed: 1, groups: false,
            }).unwrap();
            for (step, object, size) in steps {
                let id = ObjectId(object);
                let (mut out, mut expected) = (vec![], vec![]);
                let size = cache.size_bytes(id).unwrap_or(size);
                match step {
                    0..=2 => {
                        if cache.state(id).is_none() {
                            let _ = cache.insert_ready(id, size, &mut vec![]);
                        }
                        memory.requested(id, size, step > 0, &mut out);
                        expected = naive.request(object, size, step > 0, memory.budget_bytes());
                    }
                    3 => {
                        let _ = cache.remove(id);
                        memory.left_cache(id, &mut out);
                        if naive.coming.contains(&object) {
                            if !naive.unwanted.contains(&object) {
                                naive.unwanted.push(object);
                                expected.push(left(object));
                            }
                        } else if naive.rows.iter().any(|row| row.0 == object) {
                            naive.rows.retain(|row| row.0 != object);
                            expected.push(left(object));
                        }
                    }
                    4 => {
                        let result = if size.is_multiple_of(5) { Err(NotHeldInMemory::Gone) } else { Ok(()) };
                        memory.answered(Timestamp(0), id, result, &mut out);
                        if let Some(at) = naive.coming.iter().position(|o| *o == object) {
                            naive.coming.remove(at);
                            if naive.unwanted.contains(&object) || result.is_err() {
                                naive.rows.retain(|row| row.0 != object);
                            }
                            naive.unwanted.retain(|o| *o != object);
                            naive.make_room(memory.budget_bytes(), &mut expected);
                        }
                    }
                    _ => {
                        let total = naive.bytes() + size;
                        memory.measured(size, &mut out);
                        let budget = asked.min(total - total / 8);
                        prop_assert_eq!(memory.budget_bytes(), budget);
                        naive.make_room(budget, &mut expected);
                    }
                }
                prop_assert_eq!(out, expected);
                memory.sanity_check(&cache);
                let here: Vec<u32> = (0..8).filter(|o| memory.holds(ObjectId(*o))).collect();
                let mut there: Vec<u32> = naive.rows.iter().map(|row| row.0).collect();
                there.retain(|o| !naive.coming.contains(o));
                there.sort_unstable();
                prop_assert_eq!(here, there);
            }
        }
    }
}
