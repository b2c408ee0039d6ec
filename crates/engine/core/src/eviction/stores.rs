//! 2Mark over all stores: what leaves a full store goes to another one, as long as the stores together have room for it.
//!
//! Source: Raicu09 §3.2, figure 6. A *store* is the cache of an executor whose eviction is [`EXCHANGES`]. The dispatcher, which
//! knows who holds what, runs the figure: a request is an input of an attempt that it gives out, and the order of requests is the
//! order in which it gives them out. The answers are [`Order`]s: drop a copy, or move it to another store.
//!
//! | figure 6 | here |
//! |---|---|
//! | lines 2 to 7: a store that is not full takes the object | [`Stores::request`] |
//! | lines 9 to 11: a local phase ends when all objects of a full store are local-marked | `begin_local_phase` |
//! | lines 12 to 18: the object that is needed and one that may leave change places | [`Stores::request`], `make_room` |
//! | lines 20 to 23: a global phase ends when the stores are full of global-marked objects | `begin_global_phase` |
//! | lines 24 to 27: a local-unmarked object moves to a store that has space or a global-unmarked object | `make_room`, `find_place` |
//! | line 29: a global-unmarked object leaves | `make_room` |
//! | line 34: a request marks its object, in its store and in the system | [`Stores::request`] |
//!
//! What figure 6 leaves open is read as the test kit's `two_mark` does. What it assumes, and what a cluster has instead
//! ([decision 0149](../../../../../docs/decisions/0149-two-mark-exchange.md)):
//!
//! * *Requests come one after the other*: a copy that an attempt uses, or that is still on its way, may not leave. Where the object
//!   that is needed may not leave its store, it is copied, and the room for it is made as for an object from home.
//! * *An exchange needs no extra space*: each store keeps a reserve ([`Stores::reserve_bytes`]) into which an object may come before
//!   the one that makes room for it has left.
//! * *No object is twice in the system*: copies are equal, so there may be several. A copy that is not the only one is dropped where
//!   figure 6 would move it.
//! * *Objects have one size*: sizes are counted in bytes. An object of unknown size counts as much as the mean of the known ones
//!   until it is there.
//!
//! *Arbitrary* means drawn at random, for the reason that `two_mark` gives for one store. The numbers come from a fixed seed, so a
//! replay has the same marks.
//!
//! Invariants, checked by [`Stores::sanity_check`]: the sums and sets of each store are those of its entries; whatever goes to another
//! store has an entry there, which has not arrived.
//!
//! Cost: a request and its orders O(log n), and O(n) for a new phase of a store with n objects. Where a store is full of global-marked
//! objects, stores are looked through for one that has room.
//!
//! Not here: carrying out the orders (`dispatcher/two_mark.rs`), and what an executor evicts by itself when attempts need room at once
//! that no order has made ([`super::two_mark`]).

use eyas_terms::rng::Rng;
use eyas_terms::{ExecutorId, ObjectId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The name of the policy: whoever has it takes part.
pub const EXCHANGES: &str = "two-mark-exchange";

/// The reserve is at most one part in so many of a store, unless one object of mean size is more.
const RESERVE_PART: u64 = 8;

/// What has to be done so that the stores are as figure 6 has them, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Remove the copy at this store.
    Drop { at: ExecutorId, object: ObjectId },
    /// Copy the object from one store to another; the copy at `from` is dropped when it has arrived.
    Move { object: ObjectId, from: ExecutorId, to: ExecutorId },
    /// All local marks of a store have ended; `None`: all marks have ended.
    BeginPhase { at: Option<ExecutorId> },
}

/// All stores that exchange objects. See the module.
#[derive(Debug)]
pub struct Stores {
    by_executor: BTreeMap<ExecutorId, Store>,
    /// By object: the stores that have an entry for it, ascending.
    holders: FxHashMap<ObjectId, Vec<ExecutorId>>,
    /// Global-marked objects; all of them have an entry.
    global: FxHashSet<ObjectId>,
    /// Sum over the stores.
    n_global_unmarked: usize,
    /// Objects that have arrived so far, and their bytes, for the mean.
    n_arrived: u64,
    arrived_bytes: u64,
    rng: Rng,
}

#[derive(Debug)]
struct Store {
    budget_bytes: u64,
    slots: u32,
    /// It cannot be reached or is about to leave: nothing is moved there, and nothing there may leave.
    is_away: bool,
    entries: BTreeMap<ObjectId, Entry>,
    /// Of the entries that stay.
    bytes: u64,
    n_free: usize,
    /// Free entries without a local mark, in the order of their draws.
    unmarked: BTreeSet<(u64, ObjectId)>,
    /// Free entries without a global mark, in the order of their draws, and their bytes.
    global_unmarked: BTreeSet<(u64, ObjectId)>,
    global_unmarked_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    size_bytes: u64,
    /// The executor has reported the copy.
    is_here: bool,
    /// It comes from another store by an order.
    is_moving: bool,
    /// Attempts that read it there.
    n_uses: u32,
    /// It is not at home, or cannot be sent: figure 6 never lets it leave.
    is_fixed: bool,
    local: bool,
    /// It leaves when its copy at this store has arrived.
    goes_to: Option<ExecutorId>,
    /// Decides which of several objects leaves.
    draw: u64,
}

impl Entry {
    /// Whether the object counts as being in this store.
    fn stays(&self) -> bool {
        self.goes_to.is_none()
    }

    /// Whether it may leave.
    fn is_free(&self) -> bool {
        self.is_here && self.n_uses == 0 && !self.is_fixed && self.stays()
    }
}

impl Default for Stores {
    fn default() -> Self {
        Stores {
            by_executor: BTreeMap::new(),
            holders: FxHashMap::default(),
            global: FxHashSet::default(),
            n_global_unmarked: 0,
            n_arrived: 0,
            arrived_bytes: 0,
            rng: Rng::new(0),
        }
    }
}

impl Stores {
    pub fn is_empty(&self) -> bool {
        self.by_executor.is_empty()
    }

    pub fn has(&self, at: ExecutorId) -> bool {
        self.by_executor.contains_key(&at)
    }

    /// A store without objects. What it holds is reported with [`Stores::arrived`], and what attempts use there with
    /// [`Stores::pin`].
    pub fn joined(&mut self, at: ExecutorId, budget_bytes: u64, slots: u32) {
        let store = Store {
            budget_bytes,
            slots,
            is_away: false,
            entries: BTreeMap::new(),
            bytes: 0,
            n_free: 0,
            unmarked: BTreeSet::new(),
            global_unmarked: BTreeSet::new(),
            global_unmarked_bytes: 0,
        };
        let known = self.by_executor.insert(at, store);
        assert!(known.is_none(), "{at:?} has joined already");
    }

    /// The store is gone with all that it had.
    pub fn left(&mut self, at: ExecutorId, orders: &mut Vec<Order>) {
        self.away(at);
        let Some(store) = self.by_executor.get(&at) else { return };
        for object in store.entries.keys().copied().collect::<Vec<_>>() {
            self.remove(at, object);
            self.stay_after_all(at, object, orders);
        }
        self.by_executor.remove(&at);
    }

    /// The store cannot be reached, or is about to leave.
    pub fn away(&mut self, at: ExecutorId) {
        if let Some(store) = self.by_executor.get_mut(&at) {
            store.is_away = true;
        }
    }

    /// The store has this budget from now on.
    pub fn resized(&mut self, at: ExecutorId, budget_bytes: u64, orders: &mut Vec<Order>) {
        if let Some(store) = self.by_executor.get_mut(&at) {
            store.budget_bytes = budget_bytes;
            self.make_room(at, None, orders);
        }
    }

    /// A copy is in the store; also said again when `is_fixed` has changed.
    pub fn arrived(
        &mut self,
        at: ExecutorId,
        object: ObjectId,
        size_bytes: u64,
        is_fixed: bool,
        orders: &mut Vec<Order>,
    ) {
        if !self.has(at) {
            return;
        }
        let is_new = self.find(at, object).is_none_or(|entry| !entry.is_here);
        if is_new && !is_fixed {
            self.n_arrived += 1;
            self.arrived_bytes += size_bytes;
        }
        self.add(at, object, size_bytes);
        self.change(at, object, |entry| {
            (entry.is_here, entry.is_moving, entry.is_fixed) = (true, false, is_fixed);
            entry.size_bytes = size_bytes;
        });
        if is_new {
            self.let_go(at, object, orders);
        }
        self.make_room(at, None, orders);
    }

    /// A copy is not in the store any more.
    pub fn dropped(&mut self, at: ExecutorId, object: ObjectId) {
        let Some(entry) = self.find(at, object) else { return };
        if entry.n_uses > 0 || entry.is_moving {
            self.change(at, object, |entry| entry.is_here = false);
        } else if entry.is_here {
            self.remove(at, object);
        }
    }

    /// The object has no number any more.
    pub fn forget(&mut self, object: ObjectId) {
        for at in self.holders.get(&object).cloned().unwrap_or_default() {
            self.remove(at, object);
        }
    }

    /// An attempt at this store will read these objects: each is one request, in this order. Each is named once, with its size
    /// if that is known. What [`Stores::ended`] takes back is noted.
    pub fn request(&mut self, at: ExecutorId, objects: &[(ObjectId, Option<u64>)], orders: &mut Vec<Order>) {
        if !self.has(at) {
            return;
        }
        // What is here of the attempt's inputs makes no room for the others.
        let mut are_hits = Vec::with_capacity(objects.len());
        for (object, _) in objects {
            let entry = self.find(at, *object);
            are_hits.push(entry.is_some());
            if entry.is_some() {
                self.change(at, *object, |entry| {
                    entry.n_uses += 1;
                    entry.goes_to = None;
                });
            }
        }
        for ((object, size_bytes), is_hit) in objects.iter().zip(are_hits) {
            if !is_hit {
                let partner = self.partner(at, *object);
                self.add(at, *object, size_bytes.unwrap_or_else(|| self.mean_bytes()));
                self.change(at, *object, |entry| entry.n_uses += 1);
                let was_marked = partner.map(|from| {
                    let was_marked = self.find(from, *object).is_some_and(|entry| entry.local);
                    self.change(from, *object, |entry| entry.goes_to = Some(at));
                    (from, was_marked)
                });
                self.make_room(at, was_marked, orders);
            } else {
                // It may have been about to go.
                self.make_room(at, None, orders);
            }
            self.change(at, *object, |entry| entry.local = true);
            self.mark_global(*object);
        }
    }

    /// Attempts that are known from before read this object there. It is no request.
    pub fn pin(&mut self, at: ExecutorId, object: ObjectId, size_bytes: Option<u64>) {
        if self.has(at) {
            self.add(at, object, size_bytes.unwrap_or_else(|| self.mean_bytes()));
            self.change(at, object, |entry| entry.n_uses += 1);
        }
    }

    /// An attempt that was to read these objects at this store is over, or its program has ended.
    pub fn ended(&mut self, at: ExecutorId, objects: &[ObjectId], orders: &mut Vec<Order>) {
        for object in objects {
            let Some(entry) = self.find(at, *object).copied().filter(|e| e.n_uses > 0) else { continue };
            self.change(at, *object, |entry| entry.n_uses -= 1);
            if entry.n_uses == 1 && !entry.is_here && !entry.is_moving {
                // It never came: it was read in another way, or not at all.
                self.remove(at, *object);
                self.stay_after_all(at, *object, orders);
            }
        }
        self.make_room(at, None, orders);
    }

    /// An order to move the object to this store could not be carried out. What was to leave for it leaves all the same.
    pub fn not_moved(&mut self, to: ExecutorId, object: ObjectId, orders: &mut Vec<Order>) {
        let Some(entry) = self.find(to, object).filter(|entry| entry.is_moving) else { return };
        if entry.n_uses > 0 {
            // An attempt there waits for it, and may read it from where it is.
            return self.change(to, object, |entry| entry.is_moving = false);
        }
        self.remove(to, object);
        self.let_go(to, object, orders);
    }

    /// Bytes of a store that figure 6 does not fill: objects come into them before others have left. That is an object of mean size
    /// for each slot, and at most one part in [`RESERVE_PART`] of the store, unless a single object is more; half of the store at most.
    pub fn reserve_bytes(&self, at: ExecutorId) -> u64 {
        self.by_executor.get(&at).map_or(0, |store| self.reserve_of(store))
    }

    fn reserve_of(&self, store: &Store) -> u64 {
        let mean_bytes = self.mean_bytes();
        let of_slots = mean_bytes.saturating_mul(u64::from(store.slots));
        of_slots.min(store.budget_bytes / RESERVE_PART).max(mean_bytes).min(store.budget_bytes / 2)
    }

    fn limit_bytes(&self, store: &Store) -> u64 {
        store.budget_bytes - self.reserve_of(store)
    }

    fn mean_bytes(&self) -> u64 {
        self.arrived_bytes.div_ceil(self.n_arrived.max(1))
    }

    /// The store with which `at` exchanges for the object: it holds the object, which may leave.
    fn partner(&self, at: ExecutorId, object: ObjectId) -> Option<ExecutorId> {
        let holders = self.holders.get(&object)?;
        let may_leave = |from: &&ExecutorId| {
            **from != at
                && !self.by_executor[*from].is_away
                && self.find(**from, object).is_some_and(|entry| entry.is_free())
        };
        holders.iter().find(may_leave).copied()
    }

    /// Lets objects leave until the store is within its limit, or nothing more may leave. `partner`: the store from which the
    /// object comes that needs the room, as it has just become free there, and whether that object was local-marked there.
    fn make_room(
        &mut self,
        at: ExecutorId,
        mut partner: Option<(ExecutorId, bool)>,
        orders: &mut Vec<Order>,
    ) {
        loop {
            let store = &self.by_executor[&at];
            if store.bytes <= self.limit_bytes(store) || store.n_free == 0 || store.is_away {
                return;
            }
            if store.unmarked.is_empty() {
                self.begin_local_phase(at, orders);
            }
            let unmarked = self.first_unmarked(at);
            let size_bytes = self.by_executor[&at].entries[&unmarked].size_bytes;
            if let Some((to, was_marked)) = partner {
                // Lines 13 to 18.
                let other = &self.by_executor[&to];
                if self.is_elsewhere(at, unmarked) {
                    self.drop(at, unmarked, orders);
                } else if other.bytes + size_bytes <= self.limit_bytes(other) {
                    self.send(unmarked, at, to, was_marked, orders);
                } else {
                    partner = None;
                }
                continue;
            }
            if self.n_global_unmarked == 0 && self.with_space(at, self.mean_bytes()).is_none() {
                self.begin_global_phase(orders);
            }
            if let Some((_, object)) = self.by_executor[&at].global_unmarked.first().copied() {
                // Line 29.
                self.drop(at, object, orders);
            } else if self.is_elsewhere(at, unmarked) {
                self.drop(at, unmarked, orders);
            } else if let Some(to) = self.find_place(at, size_bytes) {
                // Lines 25 to 27.
                let was_marked = self.replace(to, size_bytes, orders);
                self.send(unmarked, at, to, was_marked, orders);
            } else {
                self.drop(at, unmarked, orders);
            }
        }
    }

    fn first_unmarked(&self, at: ExecutorId) -> ObjectId {
        self.by_executor[&at].unmarked.first().expect("a phase has just begun, or some are left").1
    }

    /// Whether another store has the object, and keeps it.
    fn is_elsewhere(&self, at: ExecutorId, object: ObjectId) -> bool {
        let keeps =
            |other: &&ExecutorId| **other != at && self.find(**other, object).is_some_and(|e| e.stays());
        self.holders.get(&object).is_some_and(|holders| holders.iter().any(|other| keeps(&other)))
    }

    /// The other stores, from the one after `at` on, once around.
    fn others(&self, at: ExecutorId) -> impl Iterator<Item = (ExecutorId, &Store)> {
        let after = self.by_executor.range((Bound::Excluded(at), Bound::Unbounded));
        let stores = after.chain(self.by_executor.range(..at));
        stores.filter(|(_, store)| !store.is_away).map(|(other, store)| (*other, store))
    }

    /// Another store that has room for so many bytes.
    fn with_space(&self, at: ExecutorId, bytes: u64) -> Option<ExecutorId> {
        self.others(at).find(|(_, s)| s.bytes + bytes <= self.limit_bytes(s)).map(|(other, _)| other)
    }

    /// Line 26: another store that has room, or makes it without the loss of a global-marked object.
    fn find_place(&self, at: ExecutorId, bytes: u64) -> Option<ExecutorId> {
        let makes_room =
            |s: &Store| s.bytes.saturating_sub(s.global_unmarked_bytes) + bytes <= self.limit_bytes(s);
        let replaces = || self.others(at).find(|(_, s)| makes_room(s)).map(|(other, _)| other);
        self.with_space(at, bytes).or_else(replaces)
    }

    /// Line 27: global-unmarked objects leave for so many bytes. Gives whether one of them was local-marked: what takes its place is
    /// marked then.
    fn replace(&mut self, at: ExecutorId, bytes: u64, orders: &mut Vec<Order>) -> bool {
        let mut was_marked = false;
        loop {
            let store = &self.by_executor[&at];
            if store.bytes + bytes <= self.limit_bytes(store) {
                return was_marked;
            }
            let (_, object) = *store.global_unmarked.first().expect("their bytes were counted");
            was_marked |= store.entries[&object].local;
            self.drop(at, object, orders);
        }
    }

    fn send(
        &mut self,
        object: ObjectId,
        from: ExecutorId,
        to: ExecutorId,
        local: bool,
        orders: &mut Vec<Order>,
    ) {
        let size_bytes = self.by_executor[&from].entries[&object].size_bytes;
        if self.find(to, object).is_some() {
            // It was about to leave there, and stays.
            self.change(to, object, |entry| (entry.goes_to, entry.local) = (None, local));
            self.drop(from, object, orders);
            return;
        }
        self.add(to, object, size_bytes);
        self.change(to, object, |entry| (entry.is_moving, entry.local) = (true, local));
        self.change(from, object, |entry| (entry.goes_to, entry.local) = (Some(to), false));
        orders.push(Order::Move { object, from, to });
    }

    fn drop(&mut self, at: ExecutorId, object: ObjectId, orders: &mut Vec<Order>) {
        self.remove(at, object);
        orders.push(Order::Drop { at, object });
    }

    /// The object is at `to`, or does not come there any more by an order: copies that were to leave for that leave now.
    fn let_go(&mut self, to: ExecutorId, object: ObjectId, orders: &mut Vec<Order>) {
        for from in self.holders.get(&object).cloned().unwrap_or_default() {
            if self.find(from, object).is_some_and(|entry| entry.goes_to == Some(to)) {
                self.drop(from, object, orders);
            }
        }
    }

    /// The object does not come to `to`: copies that were to leave for that stay.
    fn stay_after_all(&mut self, to: ExecutorId, object: ObjectId, orders: &mut Vec<Order>) {
        for from in self.holders.get(&object).cloned().unwrap_or_default() {
            if self.find(from, object).is_some_and(|entry| entry.goes_to == Some(to)) {
                self.change(from, object, |entry| entry.goes_to = None);
                self.make_room(from, None, orders);
            }
        }
    }

    fn begin_local_phase(&mut self, at: ExecutorId, orders: &mut Vec<Order>) {
        let store = self.by_executor.get_mut(&at).expect("it has joined");
        store.entries.values_mut().for_each(|entry| entry.local = false);
        store.unmarked = free_of(&store.entries);
        orders.push(Order::BeginPhase { at: Some(at) });
    }

    fn begin_global_phase(&mut self, orders: &mut Vec<Order>) {
        self.global.clear();
        self.n_global_unmarked = 0;
        for store in self.by_executor.values_mut() {
            store.entries.values_mut().for_each(|entry| entry.local = false);
            store.unmarked = free_of(&store.entries);
            store.global_unmarked = store.unmarked.clone();
            let bytes_of = |(_, object): &(u64, ObjectId)| store.entries[object].size_bytes;
            store.global_unmarked_bytes = store.global_unmarked.iter().map(bytes_of).sum();
            self.n_global_unmarked += store.n_free;
        }
        orders.push(Order::BeginPhase { at: None });
    }

    fn mark_global(&mut self, object: ObjectId) {
        if self.global.contains(&object) {
            return;
        }
        let holders = self.holders.get(&object).cloned().unwrap_or_default();
        for at in &holders {
            self.uncount(*at, object);
        }
        self.global.insert(object);
        for at in holders {
            self.count(at, object);
        }
    }

    fn find(&self, at: ExecutorId, object: ObjectId) -> Option<&Entry> {
        self.by_executor.get(&at)?.entries.get(&object)
    }

    /// An entry for the object, if there is none yet.
    fn add(&mut self, at: ExecutorId, object: ObjectId, size_bytes: u64) {
        let store = self.by_executor.get_mut(&at).expect("it has joined");
        if store.entries.contains_key(&object) {
            return;
        }
        let entry = Entry {
            size_bytes,
            is_here: false,
            is_moving: false,
            n_uses: 0,
            is_fixed: false,
            local: false,
            goes_to: None,
            draw: self.rng.next_u64(),
        };
        store.entries.insert(object, entry);
        let holders = self.holders.entry(object).or_default();
        let place = holders.partition_point(|other| *other < at);
        holders.insert(place, at);
        self.count(at, object);
    }

    fn remove(&mut self, at: ExecutorId, object: ObjectId) {
        self.uncount(at, object);
        self.by_executor.get_mut(&at).expect("it has joined").entries.remove(&object);
        let holders = self.holders.get_mut(&object).expect("an entry has a holder");
        holders.retain(|other| *other != at);
        if holders.is_empty() {
            self.holders.remove(&object);
            self.global.remove(&object);
        }
    }

    /// The only place where entries change, so that the sums and sets agree with them.
    fn change(&mut self, at: ExecutorId, object: ObjectId, change: impl FnOnce(&mut Entry)) {
        self.uncount(at, object);
        let store = self.by_executor.get_mut(&at).expect("it has joined");
        change(store.entries.get_mut(&object).expect("the caller has seen it"));
        self.count(at, object);
    }

    fn count(&mut self, at: ExecutorId, object: ObjectId) {
        let store = self.by_executor.get_mut(&at).expect("it has joined");
        let entry = store.entries[&object];
        if entry.stays() {
            store.bytes += entry.size_bytes;
        }
        if entry.is_free() {
            store.n_free += 1;
            if !entry.local {
                store.unmarked.insert((entry.draw, object));
            }
            if !self.global.contains(&object) {
                store.global_unmarked.insert((entry.draw, object));
                store.global_unmarked_bytes += entry.size_bytes;
                self.n_global_unmarked += 1;
            }
        }
    }

    fn uncount(&mut self, at: ExecutorId, object: ObjectId) {
        let store = self.by_executor.get_mut(&at).expect("it has joined");
        let entry = store.entries[&object];
        if entry.stays() {
            store.bytes -= entry.size_bytes;
        }
        if entry.is_free() {
            store.n_free -= 1;
            store.unmarked.remove(&(entry.draw, object));
            if store.global_unmarked.remove(&(entry.draw, object)) {
                store.global_unmarked_bytes -= entry.size_bytes;
                self.n_global_unmarked -= 1;
            }
        }
    }

    /// The objects of a store that stay there, each with its local and its global mark; ascending. Empty for who takes no part.
    pub fn marks(&self, at: ExecutorId) -> Vec<(ObjectId, bool, bool)> {
        let entries = self.by_executor.get(&at).into_iter().flat_map(|store| &store.entries);
        let staying = entries.filter(|(_, entry)| entry.stays());
        staying.map(|(object, entry)| (*object, entry.local, self.global.contains(object))).collect()
    }

    /// Checks the invariants of the module's header, and that what is in a store is there by `is_held`, too; panics when one is broken. For
    /// tests.
    #[allow(clippy::disallowed_methods, reason = "all of them are looked at, in whatever order")]
    pub fn sanity_check(&self, is_held: impl Fn(ExecutorId, ObjectId) -> bool) {
        let mut n_global_unmarked = 0;
        let mut n_entries = 0;
        for (at, store) in &self.by_executor {
            let staying = store.entries.values().filter(|entry| entry.stays());
            assert_eq!(staying.map(|entry| entry.size_bytes).sum::<u64>(), store.bytes, "bytes of {at:?}");
            let free = free_of(&store.entries);
            assert_eq!(free.len(), store.n_free, "free objects of {at:?}");
            let local = |(_, object): &&(u64, ObjectId)| !store.entries[object].local;
            let global = |(_, object): &&(u64, ObjectId)| !self.global.contains(object);
            assert!(free.iter().filter(local).eq(&store.unmarked), "local marks of {at:?}");
            assert!(free.iter().filter(global).eq(&store.global_unmarked), "global marks of {at:?}");
            n_global_unmarked += store.global_unmarked.len();
            n_entries += store.entries.len();
            for (object, entry) in &store.entries {
                assert!(!entry.is_here || is_held(*at, *object), "{object:?} at {at:?}");
                assert!(self.holders[object].contains(at), "{object:?} at {at:?}");
                assert!(entry.is_here || entry.is_moving || entry.n_uses > 0, "{object:?} comes to {at:?}");
                if let Some(to) = entry.goes_to {
                    assert!(entry.n_uses == 0, "what goes is not in use");
                    let other = self.find(to, *object);
                    assert!(other.is_some_and(|other| !other.is_here), "{object:?} is awaited at {to:?}");
                }
            }
        }
        assert_eq!(n_global_unmarked, self.n_global_unmarked, "global-unmarked objects");
        assert_eq!(self.holders.values().map(Vec::len).sum::<usize>(), n_entries, "holders");
        assert!(self.global.iter().all(|object| self.holders.contains_key(object)), "marks of the absent");
    }
}

/// The entries that may leave, in the order of their draws.
fn free_of(entries: &BTreeMap<ObjectId, Entry>) -> BTreeSet<(u64, ObjectId)> {
    let free = entries.iter().filter(|(_, entry)| entry.is_free());
    free.map(|(object, entry)| (entry.draw, *object)).collect()
}
