//! Tasks whose inputs leave home once ([`Hint::Once`](crate::array::Hint)), such as the tiles of All-Pairs: each reads many objects,
//! and neighbours share most of them.
//!
//! Three rules differ from those for other tasks:
//!   1. An input that another executor holds, or is reading from home, comes from that executor, also where home would be quicker.
//!      Home is what all users share, and it does not grow when nodes are added.
//!   2. A task goes to the executor that has most bytes of its inputs, on it or on their way. The other rules only look for executors
//!      that lack one object, and here an executor lacks many. As long as the other executors will take all such tasks of a priority,
//!      an executor without an idle slot takes no task ahead of which another executor has more bytes.
//!   3. While such tasks of a larger priority are queued, no task of a smaller priority is given ahead.
//!
//! Which tasks are looked at: those that read some of the objects that the executor's last such task read.

use super::super::Reason;
use super::Choice;
use super::*;

/// So many inputs of an executor's last task are remembered.
const RECENT_MAX: usize = 8;
/// At most so many readers of each of them are looked at.
const READERS_MAX: usize = 256;
/// Of the tasks found, the ones with most of these inputs are compared by bytes: about so many inputs in total, and at least two tasks.
const COMPARED_INPUTS_MAX: usize = 4096;
const COMPARED_MIN: usize = 2;
/// The set of objects is cleaned when it has so many more than were in use after the last time.
const SPARED_MORE: usize = 1024;

/// The objects that leave home once.
#[derive(Default)]
pub(super) struct Spared {
    objects: FxHashSet<ObjectId>,
    clean_at: usize,
    /// The executors that each of these objects is on its way to.
    heading: FxHashMap<ObjectId, Vec<Seat>>,
}

impl Spared {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    #[inline]
    pub fn contains(&self, object: ObjectId) -> bool {
        !self.objects.is_empty() && self.objects.contains(&object)
    }

    pub fn set_out(&mut self, object: ObjectId, seat: Seat) {
        if self.contains(object) {
            self.heading.entry(object).or_default().push(seat);
        }
    }

    /// The object is no longer on its way to `seat`.
    pub fn stopped(&mut self, object: ObjectId, seat: Seat) {
        if let Some(seats) = self.heading.get_mut(&object) {
            seats.retain(|other| *other != seat);
            if seats.is_empty() {
                self.heading.remove(&object);
            }
        }
    }
}

/// The answer of the second rule.
pub(super) enum Kin {
    /// The rule says nothing.
    None,
    /// The executor takes no task of this class now.
    Not,
    /// The executor's next task waits for a source, so the executor fetches nothing else.
    Waits,
    Found(Choice),
}

impl Affinity {
    /// Notes that these objects leave home once.
    pub(super) fn note_spared(&mut self, inputs: &[ObjectId]) {
        self.spared.objects.extend(inputs);
        if self.spared.objects.len() >= self.spared.clean_at {
            let tasks = &self.tasks;
            self.spared.objects.retain(|object| tasks.n_readers(*object) > 0 || inputs.contains(object));
            self.spared.clean_at = 2 * self.spared.objects.len() + SPARED_MORE;
        }
    }

    #[cfg(test)]
    pub(super) fn n_spared(&self) -> usize {
        self.spared.objects.len()
    }

    fn is_spared(&self, bundle: u32) -> bool {
        let inputs = self.tasks.inputs(bundle);
        inputs.len() > 1 && inputs.iter().all(|e| self.spared.contains(e.object))
    }

    /// Whether tasks of `priority` are not given ahead, because tasks of a larger priority whose inputs leave home once are queued. A
    /// hit that is given ahead would otherwise run before a task whose inputs have yet to come, whatever their priorities.
    pub(super) fn is_kept_back(&self, priority: i32) -> bool {
        let Some(first) = self.tasks.class_order.first().filter(|_| !self.spared.is_empty()) else {
            return false;
        };
        let class = &self.tasks.classes[*first as usize];
        let node = class.order.first_key_value().map(|(_, node)| *node);
        class.priority > priority && node.is_some_and(|node| self.is_spared(self.tasks.bundle_of_node(node)))
    }

    /// Remembers some inputs of the task that `seat` was given.
    pub(super) fn note_recent(&mut self, seat: Seat, bundle: u32) {
        if self.spared.is_empty() || !self.is_spared(bundle) {
            return;
        }
        let inputs = self.tasks.inputs(bundle);
        let n = inputs.len().min(RECENT_MAX);
        let some = (0..n).map(|k| inputs[k * inputs.len() / n].object).collect();
        let priority = self.tasks.classes[self.tasks.bundle(bundle).class as usize].priority;
        let seated = self.executor_at_mut(seat);
        seated.recent = some;
        let before = seated.recent_priority.filter(|(last, _)| *last == priority);
        seated.recent_priority = Some((priority, before.map_or(1, |(_, n)| n.saturating_add(1))));
    }

    /// The task of `class` that should go to `seat` because of what is there; see the module.
    pub(super) fn kin(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, class: u32) -> Kin {
        if self.spared.is_empty() || self.executor_at(seat).recent.is_empty() {
            return Kin::None;
        }
        let first = self.tasks.classes[class as usize].order.first_key_value();
        if first.is_none_or(|(_, node)| !self.is_spared(self.tasks.bundle_of_node(*node))) {
            return Kin::None;
        }
        let seated = self.executor_at(seat);
        let is_idle = seated.room.slots_idle > seated.moving.cpus;
        let mut foreign = vec![];
        for (here_bytes, bundle) in self.candidates(catalog, seat, class) {
            if !self.lacks_any(catalog, seat, bundle) {
                // A hit, or about to become one.
                if self.tasks.inputs(bundle).iter().all(|e| holds(catalog, seat, e.object)) {
                    self.push_full(seat, bundle);
                }
                continue;
            }
            if self.has_other_more(catalog, seat, bundle, here_bytes) {
                foreign.push(bundle);
                continue;
            }
            return match self.plan_for(catalog, now, seat, bundle) {
                true => Kin::Found(self.choice(bundle)),
                false => Kin::Waits,
            };
        }
        if !is_idle && !self.is_plenty(class) {
            return Kin::Not;
        }
        match foreign.into_iter().find(|bundle| self.plan_for(catalog, now, seat, *bundle)) {
            Some(bundle) => Kin::Found(self.choice(bundle)),
            None => Kin::None,
        }
    }

    /// Whether `class` has more tasks than executors that have had none for some of their slots will take.
    fn is_plenty(&self, class: u32) -> bool {
        let (priority, n) = (
            self.tasks.classes[class as usize].priority,
            self.tasks.classes[class as usize].order.len() as u64,
        );
        let left = |seated: &SeatedExecutor| {
            let slots = seated.room.slots_total;
            u64::from(match seated.recent_priority {
                Some((last, n_given)) if last == priority => slots.saturating_sub(n_given),
                Some((last, _)) if last < priority => 0,
                _ => slots,
            })
        };
        n > self.n_slots_total || n > self.seated.iter().flatten().map(left).sum()
    }

    fn choice(&self, bundle: u32) -> Choice {
        Choice { bundle, reason: Reason::Brings { n_tasks: self.tasks.bundle(bundle).n_tasks } }
    }

    /// Bundles of `class` that read some of the executor's recent objects, with the bytes of their inputs that the executor has or will
    /// have; most bytes first.
    fn candidates(&self, catalog: &Catalog, seat: Seat, class: u32) -> Vec<(u64, u32)> {
        let seated = self.executor_at(seat);
        let mut n_common: BTreeMap<u32, u32> = BTreeMap::new();
        for object in &seated.recent {
            for reader in self.tasks.readers_around(*object, 0).take(READERS_MAX) {
                if reader.class == class {
                    *n_common.entry(reader.bundle).or_default() += 1;
                }
            }
        }
        let mut found: Vec<(u32, u32)> = n_common.into_iter().map(|(bundle, n)| (n, bundle)).collect();
        found.sort_unstable_by_key(|(n, bundle)| (Reverse(*n), self.tasks.head(*bundle).0));
        let mut n_inputs = 0;
        let mut by_bytes = vec![];
        for (_, bundle) in found {
            let inputs = self.tasks.inputs(bundle);
            n_inputs += inputs.len();
            if n_inputs > COMPARED_INPUTS_MAX && by_bytes.len() >= COMPARED_MIN {
                break;
            }
            let here = inputs.iter().filter(|e| seated.has(catalog, seat, e.object));
            by_bytes.push((here.map(|e| self.size_of(catalog, e.object)).sum::<u64>(), bundle));
        }
        by_bytes.sort_unstable_by_key(|(bytes, bundle)| (Reverse(*bytes), self.tasks.head(*bundle).0));
        by_bytes
    }

    /// Whether another executor has more than `here_bytes` of the inputs of `bundle`, or will have.
    fn has_other_more(&self, catalog: &Catalog, seat: Seat, bundle: u32, here_bytes: u64) -> bool {
        let mut bytes: FxHashMap<Seat, u64> = FxHashMap::default();
        let mut holders = vec![];
        for input in self.tasks.inputs(bundle) {
            let size_bytes = self.size_of(catalog, input.object);
            self.some_holders(catalog, input.object, spread(seat, input.object), &mut holders);
            let heading = self.spared.heading.get(&input.object);
            for other in holders.iter().chain(heading.into_iter().flatten()).filter(|other| **other != seat) {
                let sum = bytes.entry(*other).or_default();
                *sum += size_bytes;
                if *sum > here_bytes {
                    return true;
                }
            }
        }
        false
    }
}
