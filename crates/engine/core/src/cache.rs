//! Cache: what one node keeps under a hard byte budget.
//!
//! A state machine that counts bytes, driven by the executor's state machine: it moves nothing itself. Room
//! is reserved before the first byte of a transfer arrives. The objects that had to leave are reported in
//! `evicted`, and the driver removes their files before it carries out any later action.
//!
//! A replica is *creating* (space reserved, bytes arriving) and then *ready*; dropping is immediate. An
//! object can be held against eviction in two ways. *Pins* are counted, and belong to the object and not to
//! its bytes: an attempt pins its inputs, present or not, and unpins each exactly once, whatever happened to
//! the bytes meanwhile. *Keeping* protects the last copy of an output that is not home yet.
//!
//! An attempt with several inputs should be admitted whole or not at all, so that two attempts never wait for
//! each other's half. For this, pin all its inputs, then compare [`Cache::available_bytes`] with the sizes of
//! the inputs that are not here; reserve all of these, or unpin all inputs.
//!
//! Policies propose which object leaves ([`crate::eviction`]); the promises are kept here. Half a file group is worth little, as
//! no task reads it alone: once an object has left, the others of its group ([`FileGroups`]) are next, before the policy is asked
//! again, unless the group is requested meanwhile. Still none leaves before room is needed.
//!
//! Invariants, checked by [`Cache::sanity_check`]:
//!   1. `used_bytes + reserved_bytes <= budget_bytes` at every moment. The exception: objects that were
//!      here when the budget was lowered and must stay: then nothing is granted until the sum is within the
//!      budget;
//!   2. the policy may choose among exactly the ready objects that are neither pinned nor kept;
//!   3. room is made completely or not at all: a request that cannot be met evicts nothing.
//!
//! Every operation is O(1) in the number of objects, apart from the policy's own cost (at most logarithmic)
//! and [`Cache::iter`].
//!
//! Not here: which object to fetch and from where (`executor`); files and digests (`eyas-data`); what
//! other nodes hold (`catalog`); objects larger than the budget, which are read in place.

use crate::eviction::{self, Eviction, Row, UnknownEviction};
use crate::file_groups::FileGroups;
use eyas_terms::ObjectId;
use eyas_terms::rng::Rng;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::hash_map;

/// The configuration of a cache. A log must hold it to be replayed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct CacheConfig {
    /// Ready and reserved bytes never exceed this; 0 caches only empty objects.
    pub budget_bytes: u64,
    /// A name in [`eviction::POLICIES`].
    pub eviction: String,
    /// Seed of the randomness that a policy may use.
    pub seed: u64,
    /// Whether what leaves takes its file group with it, see [`Cache::requested`]. `false` only to compare.
    #[serde(default = "yes")]
    pub groups: bool,
}

fn yes() -> bool {
    true
}

/// The state of a replica that is here. (An absent replica has no state.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Its space is reserved; its bytes are arriving.
    Creating,
    /// All bytes are here.
    Ready,
}

/// The answer to a request for room.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// The bytes are reserved, after the evictions reported.
    Granted,
    /// Not now, because too much must stay. The last three figures add up to everything that is in the way.
    Wait {
        /// The bytes that would have to be free or evictable in addition.
        missing_bytes: u64,
        /// Ready and pinned.
        pinned_bytes: u64,
        /// Ready, not pinned, but the last copy of outputs that are not home yet.
        kept_bytes: u64,
        /// Reserved for replicas that are being created.
        reserved_bytes: u64,
    },
    /// Never: the object is larger than the whole cache.
    NeverFits { budget_bytes: u64 },
}

/// Why [`Cache::remove`] refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyNot {
    /// An attempt needs the object.
    Pinned,
    /// The object is the last copy of an output that is not home yet.
    Kept,
    /// The object's bytes are still arriving; see [`Cache::abort`].
    Creating,
    /// The object is not here.
    Absent,
}

/// What [`Cache::forget_corrupt`] removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgotten {
    pub size_bytes: u64,
    /// Attempts that pin the object, and go on doing so.
    pub n_pins: u32,
    /// The object was the last copy of an output that was not home yet; that output is now lost.
    pub was_kept: bool,
}

/// The cache of one node. See the module.
#[derive(Debug)]
pub struct Cache {
    budget_bytes: u64,
    /// Bytes beyond the budget: they were here when it was lowered, and could not leave.
    over_bytes: u64,
    /// Never iterated, as its order means nothing.
    rows: FxHashMap<ObjectId, Row>,
    /// Indexed by row. An unused row is absent and unpinned.
    entries: Vec<Entry>,
    unused_rows: Vec<Row>,
    /// Bytes and objects by [`Class`].
    totals: [Total; 5],
    policy: Box<dyn Eviction>,
    rng: Rng,
    /// `None`: each object leaves by itself.
    groups: Option<FileGroups>,
    /// The rest of the group of which an object has left.
    leaving: Vec<ObjectId>,
}

/// What is known of an object that is here or pinned.
#[derive(Clone, Copy, Debug)]
struct Entry {
    object: ObjectId,
    /// `None`: the object is pinned, but not here.
    state: Option<ReplicaState>,
    kept: bool,
    n_pins: u32,
    /// 0 when the object is not here.
    size_bytes: u64,
}

/// Every entry is in exactly one class, which decides how its bytes are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Absent,
    Creating,
    /// Ready and pinned, kept or not.
    Pinned,
    /// Ready, kept, not pinned.
    Kept,
    /// Ready, and neither pinned nor kept: the policy may choose it.
    Evictable,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Total {
    n_entries: usize,
    bytes: u64,
}

impl Entry {
    fn class(&self) -> Class {
        match self.state {
            None => Class::Absent,
            Some(ReplicaState::Creating) => Class::Creating,
            Some(ReplicaState::Ready) if self.n_pins > 0 => Class::Pinned,
            Some(ReplicaState::Ready) if self.kept => Class::Kept,
            Some(ReplicaState::Ready) => Class::Evictable,
        }
    }
}

impl Cache {
    /// An empty cache. `Err` if there is no eviction policy of that name.
    pub fn new(config: CacheConfig) -> Result<Self, UnknownEviction> {
        Ok(Cache {
            budget_bytes: config.budget_bytes,
            over_bytes: 0,
            rows: FxHashMap::default(),
            entries: Vec::new(),
            unused_rows: Vec::new(),
            totals: Default::default(),
            policy: eviction::by_name(&config.eviction)?,
            rng: Rng::new(config.seed),
            groups: config.groups.then(FileGroups::default),
            leaving: Vec::new(),
        })
    }

    /// Makes room for an object that is not here. If room is granted, the object is creating.
    ///
    /// `evicted` gets the objects that had to leave, in that order; none leaves unless the answer is
    /// [`Reserve::Granted`]. Panics when the object is here already.
    pub fn reserve(&mut self, object: ObjectId, size_bytes: u64, evicted: &mut Vec<ObjectId>) -> Reserve {
        assert_eq!(self.state(object), None, "{object:?} is here already, so no space is to be reserved");
        let answer = self.make_room(size_bytes, size_bytes, evicted);
        if answer == Reserve::Granted {
            let row = self.get_or_add(object);
            self.policy.inserted(row);
            self.change(row, |entry| {
                entry.state = Some(ReplicaState::Creating);
                entry.size_bytes = size_bytes;
            });
        }
        answer
    }

    /// Makes the reservation of a creating object larger, when its size was unknown or wrong; a reservation
    /// that is large enough stays as it is. Unless the answer is granted, nothing changes, and the caller has
    /// to wait or call [`Cache::abort`]. Panics when the object is not creating.
    pub fn grow(&mut self, object: ObjectId, to_bytes: u64, evicted: &mut Vec<ObjectId>) -> Reserve {
        let row = self.get_creating(object);
        let more_bytes = to_bytes.saturating_sub(self.entry(row).size_bytes);
        let answer = self.make_room(more_bytes, to_bytes, evicted);
        if answer == Reserve::Granted {
            self.change(row, |entry| entry.size_bytes += more_bytes);
        }
        answer
    }

    /// The object is complete: it becomes ready, and reserved bytes that it did not need are free again.
    /// Panics when the object is not creating or larger than its reservation.
    pub fn commit(&mut self, object: ObjectId, size_bytes: u64) {
        let row = self.get_creating(object);
        let reserved_bytes = self.entry(row).size_bytes;
        assert!(
            size_bytes <= reserved_bytes,
            "{object:?} came with {size_bytes} bytes, {reserved_bytes} were reserved"
        );
        self.change(row, |entry| {
            entry.state = Some(ReplicaState::Ready);
            entry.size_bytes = size_bytes;
        });
    }

    /// Gives up a creating object and its reservation; pins stay. Panics when the object is not creating.
    pub fn abort(&mut self, object: ObjectId) {
        let row = self.get_creating(object);
        self.leave(row);
    }

    /// Holds the object against eviction once more, whether it is ready, creating or not here yet.
    pub fn pin(&mut self, object: ObjectId) {
        let row = self.get_or_add(object);
        self.change(row, |entry| entry.n_pins += 1);
    }

    /// Takes back one [`Cache::pin`]. Panics when the object has no pin.
    pub fn unpin(&mut self, object: ObjectId) {
        let row = self.find(object).filter(|&row| self.entry(row).n_pins > 0);
        let row = row.unwrap_or_else(|| panic!("{object:?} is unpinned more often than pinned"));
        self.change(row, |entry| entry.n_pins -= 1);
        self.forget_if_unneeded(row);
    }

    /// Marks the object as the last copy of an output that is not home yet. Harmless when the object is
    /// already kept; panics when it is not here.
    pub fn keep(&mut self, object: ObjectId) {
        let row = self.find_here(object).unwrap_or_else(|| panic!("{object:?} is not here to be kept"));
        self.change(row, |entry| entry.kept = true);
    }

    /// The object is safe at home. Harmless when it is not kept or not here.
    pub fn release(&mut self, object: ObjectId) {
        if let Some(row) = self.find(object) {
            self.change(row, |entry| entry.kept = false);
        }
    }

    /// Reports to the policy that the object was requested: once for each request, including the request that
    /// made the object come. Harmless when the object is not here.
    pub fn touch(&mut self, object: ObjectId) {
        if let Some(row) = self.find_here(object) {
            self.policy.accessed(row);
        }
    }

    /// These objects are requested by one attempt; each is named once. From such requests the cache learns which objects are of
    /// use only together. It is called beside [`Cache::touch`], which tells the policy of each object.
    pub fn requested(&mut self, objects: &[ObjectId]) {
        let Some(groups) = &mut self.groups else { return };
        if let Some(first) = self.leaving.first()
            && objects.iter().any(|object| groups.are_mates(*first, *object))
        {
            self.leaving.clear();
        }
        let (rows, entries) = (&self.rows, &self.entries);
        let is_here = |object| rows.get(&object).is_some_and(|row| entries[row.0 as usize].state.is_some());
        groups.requested(objects, is_here);
    }

    /// Drops a ready object by decision and gives its size; refuses an object that must stay.
    pub fn remove(&mut self, object: ObjectId) -> Result<u64, WhyNot> {
        let row = self.find(object).ok_or(WhyNot::Absent)?;
        let entry = *self.entry(row);
        match entry.class() {
            Class::Absent => Err(WhyNot::Absent),
            Class::Creating => Err(WhyNot::Creating),
            Class::Pinned => Err(WhyNot::Pinned),
            Class::Kept => Err(WhyNot::Kept),
            Class::Evictable => {
                self.leave(row);
                Ok(entry.size_bytes)
            }
        }
    }

    /// Drops a ready object, also a pinned or kept one, because its bytes are wrong. Pins stay: their holders
    /// unpin as always, and a new [`Cache::reserve`] finds the object pinned. `None` when it is not ready.
    pub fn forget_corrupt(&mut self, object: ObjectId) -> Option<Forgotten> {
        let row = self.find(object)?;
        let Entry { state, size_bytes, n_pins, kept: was_kept, .. } = *self.entry(row);
        (state == Some(ReplicaState::Ready)).then(|| {
            self.leave(row);
            Forgotten { size_bytes, n_pins, was_kept }
        })
    }

    /// Takes in an object that a restarted executor found on disk. If granted, the object is ready.
    ///
    /// Answers like [`Cache::reserve`]. An object that is not granted must be deleted, or the budget refused
    /// if it is the last copy of an output. Insert (and keep) outputs that are not home yet first, then the
    /// longest unused objects, so that `lru` goes on where it was. Panics when the object is here already.
    pub fn insert_ready(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        evicted: &mut Vec<ObjectId>,
    ) -> Reserve {
        let answer = self.reserve(object, size_bytes, evicted);
        if answer == Reserve::Granted {
            self.commit(object, size_bytes);
        }
        answer
    }

    /// The object's state, or `None` when it is not here.
    pub fn state(&self, object: ObjectId) -> Option<ReplicaState> {
        self.find_entry(object)?.state
    }

    pub fn is_ready(&self, object: ObjectId) -> bool {
        self.state(object) == Some(ReplicaState::Ready)
    }

    /// Bytes of a ready object, or bytes reserved for a creating object; `None` when the object is not here.
    pub fn size_bytes(&self, object: ObjectId) -> Option<u64> {
        self.find_here(object).map(|row| self.entry(row).size_bytes)
    }

    /// How often the object is pinned, whether it is here or not.
    pub fn n_pins(&self, object: ObjectId) -> u32 {
        self.find_entry(object).map_or(0, |entry| entry.n_pins)
    }

    /// Whether this is the last copy of an output that is not home yet.
    pub fn is_kept(&self, object: ObjectId) -> bool {
        self.find_entry(object).is_some_and(|entry| entry.kept)
    }

    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Sets another budget. Objects leave until the rest fits or must stay; then call this again when one may
    /// leave ([`Cache::is_over`]). `evicted` gets the objects that left, in that order.
    pub fn set_budget(&mut self, budget_bytes: u64, evicted: &mut Vec<ObjectId>) {
        self.budget_bytes = budget_bytes;
        while self.taken_bytes() > budget_bytes && self.total(Class::Evictable).bytes > 0 {
            self.evict_one(evicted);
        }
        self.over_bytes = self.taken_bytes().saturating_sub(budget_bytes);
    }

    /// Whether the cache holds more than its budget, which was lowered, and some of that may leave.
    pub fn is_over(&self) -> bool {
        self.taken_bytes() > self.budget_bytes && self.total(Class::Evictable).bytes > 0
    }

    /// Bytes of all ready objects.
    pub fn used_bytes(&self) -> u64 {
        self.total(Class::Pinned).bytes + self.total(Class::Kept).bytes + self.total(Class::Evictable).bytes
    }

    /// Bytes set aside for creating objects.
    pub fn reserved_bytes(&self) -> u64 {
        self.total(Class::Creating).bytes
    }

    /// Bytes of the budget that are neither used nor reserved.
    pub fn free_bytes(&self) -> u64 {
        self.budget_bytes.saturating_sub(self.taken_bytes())
    }

    /// The largest object that [`Cache::reserve`] would grant now: free plus evictable bytes.
    pub fn available_bytes(&self) -> u64 {
        self.budget_bytes.saturating_sub(self.taken_bytes() - self.total(Class::Evictable).bytes)
    }

    /// Bytes that could leave to make room.
    pub fn evictable_bytes(&self) -> u64 {
        self.total(Class::Evictable).bytes
    }

    /// Bytes that are used or reserved.
    fn taken_bytes(&self) -> u64 {
        self.used_bytes() + self.reserved_bytes()
    }

    /// Ready and creating objects.
    pub fn n_objects(&self) -> usize {
        self.rows.len() - self.total(Class::Absent).n_entries
    }

    /// Every ready or creating object with its state and bytes, by id. Sorts: O(n log n).
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, ReplicaState, u64)> + use<> {
        let here = self.entries.iter().filter_map(|e| Some((e.object, e.state?, e.size_bytes)));
        let mut objects: Vec<_> = here.collect();
        objects.sort_unstable_by_key(|&(object, ..)| object);
        objects.into_iter()
    }

    /// Recounts everything and panics if a total is wrong. O(n), for tests and checkers.
    pub fn sanity_check(&self) {
        let mut totals = [Total::default(); 5];
        let rows = (0u32..).map(Row).zip(&self.entries);
        for (row, entry) in rows.filter(|(row, entry)| self.find(entry.object) == Some(*row)) {
            let object = entry.object;
            assert!(entry.state.is_some() || entry.n_pins > 0, "{object:?} is neither here nor pinned");
            assert!(entry.state.is_some() || (entry.size_bytes == 0 && !entry.kept), "{entry:?}");
            let total = &mut totals[entry.class() as usize];
            total.n_entries += 1;
            total.bytes += entry.size_bytes;
            let candidate = self.policy.is_candidate(row);
            assert_eq!(candidate, entry.class() == Class::Evictable, "the policy is wrong on {entry:?}");
        }
        assert_eq!(totals, self.totals, "the totals by class are wrong");
        assert_eq!(totals.iter().map(|total| total.n_entries).sum::<usize>(), self.rows.len());
        assert_eq!(self.policy.n_candidates(), self.total(Class::Evictable).n_entries);
        assert!(self.taken_bytes() <= self.budget_bytes + self.over_bytes, "over budget");
        assert_eq!(self.rows.len() + self.unused_rows.len(), self.entries.len(), "a row is lost");
        for &row in &self.unused_rows {
            let Entry { state, n_pins, kept, size_bytes, .. } = *self.entry(row);
            assert_eq!((state, n_pins, kept, size_bytes), (None, 0, false, 0), "unused {row:?}");
        }
    }

    /// Evicts until `more_bytes` are free, if possible. `object_bytes`: size of the whole object.
    fn make_room(&mut self, more_bytes: u64, object_bytes: u64, evicted: &mut Vec<ObjectId>) -> Reserve {
        if object_bytes > self.budget_bytes {
            return Reserve::NeverFits { budget_bytes: self.budget_bytes };
        }
        if more_bytes > self.available_bytes() {
            return Reserve::Wait {
                missing_bytes: more_bytes - self.available_bytes(),
                pinned_bytes: self.total(Class::Pinned).bytes,
                kept_bytes: self.total(Class::Kept).bytes,
                reserved_bytes: self.reserved_bytes(),
            };
        }
        // The loop counts what is taken, not what is free: after the budget was lowered, more than the budget
        // may be taken.
        while self.taken_bytes() + more_bytes > self.budget_bytes && self.total(Class::Evictable).bytes > 0 {
            self.evict_one(evicted);
        }
        Reserve::Granted
    }

    fn evict_one(&mut self, evicted: &mut Vec<ObjectId>) {
        let victim = self.next_leaving().unwrap_or_else(|| {
            let victim = self.policy.victim(&mut self.rng);
            let victim = victim.expect("a policy has a victim while bytes are evictable");
            let object = self.entry(victim).object;
            if let Some(groups) = &self.groups {
                self.leaving.extend(groups.group_of(object).iter().filter(|other| **other != object));
            }
            victim
        });
        let object = self.entry(victim).object;
        self.leave(victim);
        evicted.push(object);
    }

    /// The next object of the group of which one has left.
    fn next_leaving(&mut self) -> Option<Row> {
        while let Some(object) = self.leaving.pop() {
            let row = self.find(object).filter(|row| self.entry(*row).class() == Class::Evictable);
            if row.is_some() {
                return row;
            }
        }
        None
    }

    /// Removes the replica; pins stay.
    fn leave(&mut self, row: Row) {
        self.change(row, |entry| {
            entry.state = None;
            entry.size_bytes = 0;
            entry.kept = false;
        });
        self.forget_if_unneeded(row);
    }

    /// The only place where entries change, so that totals and policy always agree with them.
    fn change(&mut self, row: Row, change: impl FnOnce(&mut Entry)) {
        let entry = &mut self.entries[row.0 as usize];
        let (class_before, bytes_before) = (entry.class(), entry.size_bytes);
        change(entry);
        let (class, bytes) = (entry.class(), entry.size_bytes);
        let before = &mut self.totals[class_before as usize];
        before.n_entries -= 1;
        before.bytes -= bytes_before;
        let after = &mut self.totals[class as usize];
        after.n_entries += 1;
        after.bytes += bytes;
        if self.over_bytes > 0 {
            self.over_bytes = self.over_bytes.min(self.taken_bytes().saturating_sub(self.budget_bytes));
        }
        match (class_before == Class::Evictable, class == Class::Evictable) {
            (false, true) => self.policy.freed(row),
            (true, false) => self.policy.held(row),
            _ => {}
        }
    }

    fn get_or_add(&mut self, object: ObjectId) -> Row {
        match self.rows.entry(object) {
            hash_map::Entry::Occupied(slot) => *slot.get(),
            hash_map::Entry::Vacant(slot) => {
                let entry = Entry { object, state: None, kept: false, n_pins: 0, size_bytes: 0 };
                let row = self.unused_rows.pop().unwrap_or_else(|| {
                    self.entries.push(entry);
                    Row(u32::try_from(self.entries.len() - 1).expect("as many rows as object ids"))
                });
                self.entries[row.0 as usize] = entry;
                self.totals[Class::Absent as usize].n_entries += 1;
                *slot.insert(row)
            }
        }
    }

    fn forget_if_unneeded(&mut self, row: Row) {
        let entry = *self.entry(row);
        if entry.state.is_none() && entry.n_pins == 0 {
            self.rows.remove(&entry.object);
            self.unused_rows.push(row);
            self.totals[Class::Absent as usize].n_entries -= 1;
        }
    }

    fn find(&self, object: ObjectId) -> Option<Row> {
        self.rows.get(&object).copied()
    }

    /// The row of an object that is ready or creating, not merely pinned.
    fn find_here(&self, object: ObjectId) -> Option<Row> {
        self.find(object).filter(|&row| self.entry(row).state.is_some())
    }

    fn find_entry(&self, object: ObjectId) -> Option<&Entry> {
        self.find(object).map(|row| self.entry(row))
    }

    fn entry(&self, row: Row) -> &Entry {
        &self.entries[row.0 as usize]
    }

    fn get_creating(&self, object: ObjectId) -> Row {
        let creating = self.find(object).filter(|&row| self.entry(row).state == Some(ReplicaState::Creating));
        creating.unwrap_or_else(|| panic!("{object:?} is not being created"))
    }

    fn total(&self, class: Class) -> Total {
        self.totals[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Just, ProptestConfig, Strategy, prop, prop_oneof, proptest};
    use std::collections::BTreeMap;

    const A: ObjectId = ObjectId(1);
    const B: ObjectId = ObjectId(2);
    const C: ObjectId = ObjectId(3);
    const D: ObjectId = ObjectId(4);

    fn cache(eviction: &str, budget_bytes: u64) -> Cache {
        Cache::new(CacheConfig { budget_bytes, eviction: eviction.to_owned(), seed: 7, groups: true })
            .unwrap()
    }

    /// An `lru` cache of 100 bytes that holds these ready objects, the longest unused first.
    fn holding(objects: &[(ObjectId, u64)]) -> Cache {
        let mut cache = cache("lru", 100);
        for &(object, size_bytes) in objects {
            assert_eq!(reserve(&mut cache, object, size_bytes), (Reserve::Granted, vec![]));
            cache.commit(object, size_bytes);
        }
        cache
    }

    fn reserve(cache: &mut Cache, object: ObjectId, size_bytes: u64) -> (Reserve, Vec<ObjectId>) {
        let mut evicted = Vec::new();
        let answer = cache.reserve(object, size_bytes, &mut evicted);
        cache.sanity_check();
        (answer, evicted)
    }

    fn wait(
        missing_bytes: u64,
        pinned_bytes: u64,
        kept_bytes: u64,
        reserved_bytes: u64,
    ) -> (Reserve, Vec<ObjectId>) {
        (Reserve::Wait { missing_bytes, pinned_bytes, kept_bytes, reserved_bytes }, vec![])
    }

    /// A cache of 60 bytes with three pairs of 10 bytes each, of which each was requested.
    fn pairs(eviction: &str, groups: bool) -> Cache {
        let config = CacheConfig { budget_bytes: 60, eviction: eviction.to_owned(), seed: 7, groups };
        let mut cache = Cache::new(config).unwrap();
        for first in [10, 20, 30] {
            let pair = [ObjectId(first), ObjectId(first + 1)];
            for object in pair {
                assert_eq!(reserve(&mut cache, object, 10), (Reserve::Granted, vec![]));
                cache.commit(object, 10);
            }
            cache.requested(&pair);
        }
        cache
    }

    #[test]
    fn the_rest_of_a_group_is_next_to_leave_and_not_before_room_is_needed() {
        let mut n_halves = 0;
        for (eviction, _) in eviction::POLICIES {
            for groups in [false, true] {
                let mut cache = pairs(eviction, groups);
                let (_, first) = reserve(&mut cache, A, 10);
                assert_eq!(first.len(), 1, "{eviction}: no more leaves than has to");
                let (_, second) = reserve(&mut cache, B, 10);
                let is_pair = first[0].0 / 10 == second[0].0 / 10;
                assert!(is_pair || !groups, "{eviction}: {first:?} and {second:?} leave");
                n_halves += u32::from(!is_pair);
                // The next pair is the policy's choice again.
                let (_, others) = reserve(&mut cache, C, 20);
                assert_eq!(others.len(), 2);
                assert!(!groups || others[0].0 / 10 == others[1].0 / 10, "{eviction}: {others:?} leave");
                cache.sanity_check();
            }
        }
        assert!(n_halves > 0, "by chance some policy leaves halves");
    }

    #[test]
    fn what_is_needed_of_a_group_stays() {
        // The other half is requested again, or held.
        for hold in [false, true] {
            let mut cache = pairs("lru", true);
            assert_eq!(reserve(&mut cache, A, 10).1, [ObjectId(10)]);
            match hold {
                true => cache.pin(ObjectId(11)),
                false => {
                    cache.requested(&[ObjectId(10), ObjectId(11)]);
                    cache.touch(ObjectId(11));
                }
            }
            assert_eq!(reserve(&mut cache, B, 10).1, [ObjectId(20)]);
            assert_eq!(reserve(&mut cache, C, 10).1, [ObjectId(21)]);
            cache.sanity_check();
        }
    }

    #[test]
    fn evicts_what_is_needed_and_no_more() {
        let mut cache = holding(&[(A, 30), (B, 30), (C, 30)]);
        assert_eq!(reserve(&mut cache, D, 40), (Reserve::Granted, vec![A]));
        assert_eq!((cache.used_bytes(), cache.reserved_bytes(), cache.free_bytes()), (60, 40, 0));
    }

    #[test]
    fn room_is_made_completely_or_not_at_all() {
        let mut cache = holding(&[(A, 30), (B, 30), (C, 30)]);
        cache.pin(B);
        cache.keep(C);
        assert_eq!(cache.available_bytes(), 40);
        assert_eq!(reserve(&mut cache, D, 41), wait(1, 30, 30, 0));
        assert!(cache.is_ready(A));
        assert_eq!(reserve(&mut cache, D, 40), (Reserve::Granted, vec![A]));
        assert_eq!(reserve(&mut cache, A, 1), wait(1, 30, 30, 40));
        assert_eq!(reserve(&mut cache, A, 101), (Reserve::NeverFits { budget_bytes: 100 }, vec![]));
        cache.unpin(B);
        cache.release(C);
        assert_eq!(reserve(&mut cache, A, 60), (Reserve::Granted, vec![B, C]));
    }

    #[test]
    fn a_reservation_grows_and_gives_back_what_it_does_not_need() {
        let mut cache = holding(&[(A, 30), (B, 30)]);
        let mut evicted = vec![];
        assert_eq!(reserve(&mut cache, C, 0), (Reserve::Granted, vec![]));
        assert_eq!(cache.grow(C, 60, &mut evicted), Reserve::Granted);
        assert_eq!((cache.reserved_bytes(), &evicted[..]), (60, &[A][..]));
        assert_eq!(cache.grow(C, 20, &mut evicted), Reserve::Granted);
        assert_eq!(cache.reserved_bytes(), 60, "growing never shrinks");
        assert_eq!(cache.grow(C, 101, &mut evicted), Reserve::NeverFits { budget_bytes: 100 });
        cache.pin(B);
        let missing = Reserve::Wait { missing_bytes: 1, pinned_bytes: 30, kept_bytes: 0, reserved_bytes: 60 };
        assert_eq!(cache.grow(C, 71, &mut evicted), missing);
        cache.commit(C, 50);
        cache.sanity_check();
        assert_eq!((cache.used_bytes(), cache.reserved_bytes(), evicted), (80, 0, vec![A]));
    }

    #[test]
    fn pins_outlive_the_bytes() {
        let mut cache = holding(&[]);
        cache.pin(A);
        assert_eq!((cache.state(A), cache.n_pins(A), cache.n_objects()), (None, 1, 0));
        assert_eq!(reserve(&mut cache, A, 60), (Reserve::Granted, vec![]));
        cache.pin(A);
        cache.abort(A);
        assert_eq!((cache.state(A), cache.n_pins(A), cache.free_bytes()), (None, 2, 100));
        assert_eq!(reserve(&mut cache, A, 60), (Reserve::Granted, vec![]));
        cache.commit(A, 60);
        cache.keep(A);
        let forgotten = Forgotten { size_bytes: 60, n_pins: 2, was_kept: true };
        assert_eq!(cache.forget_corrupt(A), Some(forgotten));
        assert_eq!(cache.forget_corrupt(A), None);
        assert_eq!(reserve(&mut cache, A, 60), (Reserve::Granted, vec![]));
        cache.commit(A, 60);
        cache.unpin(A);
        assert_eq!(reserve(&mut cache, B, 60), wait(20, 60, 0, 0));
        cache.unpin(A);
        assert!(!cache.is_kept(A), "the copy that was kept is gone");
        assert_eq!(reserve(&mut cache, B, 60), (Reserve::Granted, vec![A]));
    }

    #[test]
    fn a_refused_removal_says_why() {
        let mut cache = holding(&[(A, 30)]);
        assert_eq!(cache.remove(B), Err(WhyNot::Absent));
        cache.pin(B);
        assert_eq!(cache.remove(B), Err(WhyNot::Absent));
        assert_eq!(reserve(&mut cache, B, 30), (Reserve::Granted, vec![]));
        assert_eq!(cache.remove(B), Err(WhyNot::Creating));
        cache.keep(A);
        assert_eq!(cache.remove(A), Err(WhyNot::Kept));
        cache.pin(A);
        assert_eq!(cache.remove(A), Err(WhyNot::Pinned));
        cache.release(A);
        cache.unpin(A);
        assert_eq!(cache.remove(A), Ok(30));
        cache.sanity_check();
    }

    #[test]
    fn a_restart_with_a_smaller_budget_says_what_has_to_go() {
        let mut cache = cache("lru", 100);
        let mut evicted = vec![];
        let too_large = Reserve::NeverFits { budget_bytes: 100 };
        let granted = Reserve::Granted;
        for (object, size_bytes, answer) in
            [(A, 50, granted), (B, 50, granted), (C, 101, too_large), (D, 20, granted)]
        {
            assert_eq!(cache.insert_ready(object, size_bytes, &mut evicted), answer);
            cache.sanity_check();
        }
        assert_eq!(evicted, [A], "it was unused the longest");
        assert_eq!(
            cache.iter().collect::<Vec<_>>(),
            [(B, ReplicaState::Ready, 50), (D, ReplicaState::Ready, 20)]
        );
    }

    #[test]
    fn empty_objects_need_no_room_and_stay_until_it_is_their_turn() {
        let mut cache = holding(&[(A, 0), (B, 100)]);
        cache.touch(A);
        assert_eq!(reserve(&mut cache, C, 0), (Reserve::Granted, vec![]));
        assert_eq!(reserve(&mut cache, D, 1), (Reserve::Granted, vec![B]));
        assert_eq!(cache.n_objects(), 3);
        let mut without_budget = super::tests::cache("random", 0);
        assert_eq!(reserve(&mut without_budget, A, 0), (Reserve::Granted, vec![]));
        assert_eq!(reserve(&mut without_budget, B, 1), (Reserve::NeverFits { budget_bytes: 0 }, vec![]));
    }

    #[test]
    #[should_panic(expected = "ObjectId(1) is unpinned more often than pinned")]
    fn an_unpin_without_a_pin_is_a_broken_invariant() {
        let mut cache = holding(&[(A, 1)]);
        cache.pin(A);
        cache.unpin(A);
        cache.unpin(A);
    }

    #[test]
    #[should_panic(expected = "ObjectId(1) came with 11 bytes, 10 were reserved")]
    fn bytes_beyond_the_reservation_are_a_broken_invariant() {
        let mut cache = holding(&[]);
        let _ = reserve(&mut cache, A, 10);
        cache.commit(A, 11);
    }

    #[test]
    #[should_panic(expected = "ObjectId(1) is here already")]
    fn a_second_reservation_is_a_broken_invariant() {
        let mut cache = holding(&[(A, 1)]);
        let _ = reserve(&mut cache, A, 1);
    }

    /// The naive reference: one map, and every question answered by a scan over all of it.
    struct Model {
        budget_bytes: u64,
        eviction: &'static str,
        objects: BTreeMap<ObjectId, ModelObject>,
        /// `random` draws an index into this list.
        evictable: Vec<ObjectId>,
        /// `two-mark` draws an index into the second; the first are the marked ones.
        evictable_by_mark: [Vec<ObjectId>; 2],
        clock: u64,
        rng: Rng,
    }

    #[derive(Clone, Default)]
    struct ModelObject {
        state: Option<ReplicaState>,
        kept: bool,
        n_pins: u32,
        size_bytes: u64,
        entered: u64,
        last_use: u64,
        n_uses: u64,
        is_marked: bool,
    }

    impl ModelObject {
        fn is_evictable(&self) -> bool {
            self.state == Some(ReplicaState::Ready) && self.n_pins == 0 && !self.kept
        }
        fn leave(&mut self) {
            *self = ModelObject { n_pins: self.n_pins, ..Default::default() };
        }
    }

    impl Model {
        fn new(eviction: &'static str, budget_bytes: u64) -> Self {
            let (objects, rng) = (BTreeMap::new(), Rng::new(7));
            let evictable_by_mark = Default::default();
            Model { budget_bytes, eviction, objects, evictable: vec![], evictable_by_mark, clock: 0, rng }
        }

        fn bytes(&self, which: impl Fn(&ModelObject) -> bool) -> u64 {
            self.objects.values().filter(|o| which(o)).map(|o| o.size_bytes).sum()
        }

        fn get(&self, object: ObjectId) -> ModelObject {
            self.objects.get(&object).cloned().unwrap_or_default()
        }

        fn change(&mut self, object: ObjectId, change: impl FnOnce(&mut ModelObject)) {
            let entry = self.objects.entry(object).or_default();
            change(entry);
            match (self.evictable.iter().position(|o| *o == object), entry.is_evictable()) {
                (Some(at), false) => drop(self.evictable.swap_remove(at)),
                (None, true) => self.evictable.push(object),
                _ => {}
            }
            for (by_mark, is_marked) in self.evictable_by_mark.iter_mut().zip([true, false]) {
                let belongs = entry.is_evictable() && entry.is_marked == is_marked;
                match (by_mark.iter().position(|o| *o == object), belongs) {
                    (Some(at), false) => drop(by_mark.swap_remove(at)),
                    (None, true) => by_mark.push(object),
                    _ => {}
                }
            }
        }

        fn tick(&mut self) -> u64 {
            self.clock += 1;
            self.clock
        }

        fn victim(&mut self) -> ObjectId {
            let candidates = || self.objects.iter().filter(|(_, o)| o.is_evictable());
            let victim = match self.eviction {
                "fifo" => candidates().min_by_key(|(_, o)| o.entered),
                "lru" => candidates().min_by_key(|(_, o)| o.last_use),
                "lfu" => candidates().min_by_key(|(_, o)| (o.n_uses, o.last_use)),
                "two-mark" | "two-mark-exchange" => {
                    if self.evictable_by_mark[1].is_empty() {
                        self.objects.values_mut().for_each(|o| o.is_marked = false);
                        self.evictable_by_mark.swap(0, 1);
                    }
                    let unmarked = &self.evictable_by_mark[1];
                    return unmarked[self.rng.below(unmarked.len() as u64) as usize];
                }
                _ => return self.evictable[self.rng.below(self.evictable.len() as u64) as usize],
            };
            *victim.unwrap().0
        }

        fn make_room(&mut self, more_bytes: u64, object_bytes: u64, evicted: &mut Vec<ObjectId>) -> Reserve {
            if object_bytes > self.budget_bytes {
                return Reserve::NeverFits { budget_bytes: self.budget_bytes };
            }
            let must_stay_bytes = self.bytes(|o| !o.is_evictable());
            if must_stay_bytes + more_bytes > self.budget_bytes {
                let ready = |o: &ModelObject| o.state == Some(ReplicaState::Ready);
                return Reserve::Wait {
                    missing_bytes: must_stay_bytes + more_bytes - self.budget_bytes,
                    pinned_bytes: self.bytes(|o| ready(o) && o.n_pins > 0),
                    kept_bytes: self.bytes(|o| ready(o) && o.n_pins == 0 && o.kept),
                    reserved_bytes: self.bytes(|o| !ready(o)),
                };
            }
            while self.bytes(|_| true) + more_bytes > self.budget_bytes {
                let victim = self.victim();
                self.change(victim, ModelObject::leave);
                evicted.push(victim);
            }
            Reserve::Granted
        }

        fn reserve(&mut self, object: ObjectId, size_bytes: u64, evicted: &mut Vec<ObjectId>) -> Reserve {
            let answer = self.make_room(size_bytes, size_bytes, evicted);
            if answer == Reserve::Granted {
                let now = self.tick();
                self.change(object, |o| {
                    o.state = Some(ReplicaState::Creating);
                    (o.size_bytes, o.entered, o.last_use, o.is_marked) = (size_bytes, now, now, true);
                });
            }
            answer
        }

        fn grow(&mut self, object: ObjectId, to_bytes: u64, evicted: &mut Vec<ObjectId>) -> Reserve {
            let more_bytes = to_bytes.saturating_sub(self.get(object).size_bytes);
            let answer = self.make_room(more_bytes, to_bytes, evicted);
            if answer == Reserve::Granted {
                self.change(object, |o| o.size_bytes += more_bytes);
            }
            answer
        }

        fn commit(&mut self, object: ObjectId, size_bytes: u64) {
            self.change(object, |o| (o.state, o.size_bytes) = (Some(ReplicaState::Ready), size_bytes));
        }

        fn touch(&mut self, object: ObjectId) {
            let now = self.tick();
            self.change(object, |o| (o.last_use, o.n_uses, o.is_marked) = (now, o.n_uses + 1, true));
        }

        fn remove(&mut self, object: ObjectId) -> Result<u64, WhyNot> {
            let o = self.get(object);
            match o.state {
                None => Err(WhyNot::Absent),
                Some(ReplicaState::Creating) => Err(WhyNot::Creating),
                _ if o.n_pins > 0 => Err(WhyNot::Pinned),
                _ if o.kept => Err(WhyNot::Kept),
                _ => {
                    self.change(object, ModelObject::leave);
                    Ok(o.size_bytes)
                }
            }
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Reserve what is absent, grow what is creating, use what is ready.
        Request,
        /// Commit what is creating.
        Commit,
        Abort,
        Pin,
        Unpin,
        Keep,
        Release,
        Touch,
        Remove,
        ForgetCorrupt,
        InsertReady,
    }

    fn steps() -> impl Strategy<Value = Vec<(Step, ObjectId, u64)>> {
        let step = prop_oneof![
            8 => Just(Step::Request),
            8 => Just(Step::Commit),
            1 => Just(Step::Abort),
            2 => Just(Step::Pin),
            3 => Just(Step::Unpin),
            1 => Just(Step::Keep),
            2 => Just(Step::Release),
            3 => Just(Step::Touch),
            1 => Just(Step::Remove),
            1 => Just(Step::ForgetCorrupt),
            1 => Just(Step::InsertReady),
        ];
        prop::collection::vec((step, (0u32..12).prop_map(ObjectId), 0u64..45), 1..200)
    }

    /// Does one step to both, unless its precondition does not hold, and compares all that can be seen.
    fn step_both(cache: &mut Cache, model: &mut Model, (step, object, size_bytes): (Step, ObjectId, u64)) {
        let (mut evicted, mut expected) = (vec![], vec![]);
        let before = model.get(object);
        let (creating, ready) = (Some(ReplicaState::Creating), Some(ReplicaState::Ready));
        match step {
            Step::Request if before.state.is_none() => {
                let answer = model.reserve(object, size_bytes, &mut expected);
                assert_eq!(cache.reserve(object, size_bytes, &mut evicted), answer);
                assert!(answer == Reserve::Granted || evicted.is_empty());
            }
            Step::Request if before.state == creating => {
                let answer = model.grow(object, size_bytes, &mut expected);
                assert_eq!(cache.grow(object, size_bytes, &mut evicted), answer);
                assert!(answer == Reserve::Granted || evicted.is_empty());
            }
            Step::Commit if before.state == creating => {
                let size_bytes = size_bytes.min(before.size_bytes);
                model.commit(object, size_bytes);
                cache.commit(object, size_bytes);
            }
            Step::Abort if before.state == creating => {
                model.change(object, ModelObject::leave);
                cache.abort(object);
            }
            Step::Pin => {
                model.change(object, |o| o.n_pins += 1);
                cache.pin(object);
            }
            Step::Unpin if before.n_pins > 0 => {
                model.change(object, |o| o.n_pins -= 1);
                cache.unpin(object);
            }
            Step::Keep if before.state.is_some() => {
                model.change(object, |o| o.kept = true);
                cache.keep(object);
            }
            Step::Release => {
                model.change(object, |o| o.kept = false);
                cache.release(object);
            }
            Step::Request | Step::Touch => {
                if before.state.is_some() {
                    model.touch(object);
                }
                cache.touch(object);
            }
            Step::Remove => assert_eq!(cache.remove(object), model.remove(object)),
            Step::ForgetCorrupt => {
                let ModelObject { size_bytes, n_pins, kept: was_kept, .. } = before;
                let forgotten = (before.state == ready).then_some(Forgotten { size_bytes, n_pins, was_kept });
                assert_eq!(cache.forget_corrupt(object), forgotten);
                if forgotten.is_some() {
                    model.change(object, ModelObject::leave);
                }
            }
            Step::InsertReady if before.state.is_none() => {
                let answer = model.reserve(object, size_bytes, &mut expected);
                if answer == Reserve::Granted {
                    model.commit(object, size_bytes);
                }
                assert_eq!(cache.insert_ready(object, size_bytes, &mut evicted), answer);
            }
            Step::Commit | Step::Abort | Step::Unpin | Step::Keep | Step::InsertReady => {}
        }
        assert_eq!(evicted, expected, "after {step:?} {object:?} {size_bytes}");
        cache.sanity_check();
        assert_eq!(cache.used_bytes(), model.bytes(|o| o.state == ready));
        assert_eq!(cache.reserved_bytes(), model.bytes(|o| o.state == creating));
        assert_eq!(cache.free_bytes(), model.budget_bytes - model.bytes(|_| true));
        let here = model.objects.iter().filter_map(|(object, o)| Some((*object, o.state?, o.size_bytes)));
        assert!(cache.iter().eq(here));
        assert_eq!(cache.n_objects(), cache.iter().count());
        let now = model.get(object);
        assert_eq!((cache.state(object), cache.n_pins(object)), (now.state, now.n_pins));
        assert_eq!((cache.is_ready(object), cache.is_kept(object)), (now.state == ready, now.kept));
        assert_eq!(cache.size_bytes(object), now.state.map(|_| now.size_bytes));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        #[test]
        fn does_what_the_naive_reference_does(steps in steps(), budget_bytes in 0u64..160) {
            for &(eviction, _) in eviction::POLICIES {
                let mut cache = cache(eviction, budget_bytes);
                let mut model = Model::new(eviction, budget_bytes);
                for &step in &steps {
                    step_both(&mut cache, &mut model, step);
                }
            }
        }
    }
}
