//! Tasks whose inputs leave home once ([`Hint::Once`](eyas_terms::array::Hint)), such as the tiles of All-Pairs: each reads many objects,
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
//!
//! **Where the network has sites**, the assignment has two levels, sites first and then executors:
//!   1. Each site has a part of each class, as large as its part of all slots ([`Parts`]). Tasks that are close in the queue share most
//!      objects, so the objects of a part are few. An object comes into a site once (`near`).
//!   2. Behind slow links, a task whose inputs are all in the site comes first, whatever its class. For one that lacks inputs, the
//!      site brings those of the task with most pairs of inputs per byte that has to cross ([`gain`]): large tasks before the small
//!      ones that would only begin them, and neighbours of what the site has.
//!   3. Within the site, the rules above decide.
//!   4. An executor with an idle slot for which its site's part has nothing takes a task of another part, from its end. Next to home it
//!      does so before it takes a task of a smaller priority: tiles of a smaller priority are shorter. Behind slow links it does so last
//!      of all, and only if nothing has to cross for that task.

use super::{Affinity, Choice, SeatedExecutor, holds, spread};
use crate::catalog::Catalog;
use crate::executor_set::Seat;
use crate::placement::Reason;
use eyas_terms::{ObjectId, TaskId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// So many inputs of an executor's last task are remembered.
const RECENT_MAX: usize = 8;
/// At most so many readers of each of them are looked at.
const READERS_MAX: usize = 256;
/// Of the tasks found, the ones with most of these inputs are compared by bytes: about so many inputs in total, and at least two tasks.
const COMPARED_INPUTS_MAX: usize = 4096;
const COMPARED_MIN: usize = 2;
/// The set of objects is cleaned when it has so many more than were in use after the last time.
const SPARED_MORE: usize = 1024;

/// What crosses is that of the task that needs fewest bytes, among those whose gain is more than this part of the largest.
const ENOUGH_GAIN: f64 = 2.0;
/// So many tasks of a site's part are looked at.
const OF_PART_MAX: usize = 32;

/// Which part of a class each site has, by the numbers of tasks.
#[derive(Default)]
pub(super) struct Parts {
    /// By class: the first and the last task that the class has had.
    spans: BTreeMap<u32, (TaskId, TaskId)>,
}

impl Parts {
    /// The class has tasks from `first` to `last` now.
    fn see(&mut self, class: u32, (first, last): (TaskId, TaskId)) {
        let span = self.spans.entry(class).or_insert((first, last));
        // A class that was empty meanwhile begins anew.
        *span = if first > span.1 { (first, last) } else { (span.0.min(first), span.1.max(last)) };
    }

    /// The tasks of `class` that belong to `site`: from the first number to before the second one. `sites`: all sites in order, each
    /// with its slots.
    fn of(&self, class: u32, site: u32, sites: &[(u32, u32)]) -> (TaskId, TaskId) {
        let Some(&(first, last)) = self.spans.get(&class) else { return (TaskId(0), TaskId(0)) };
        let n_slots: u64 = sites.iter().map(|(_, n)| u64::from(*n)).sum();
        let before = sites.iter().take_while(|(other, _)| *other != site).map(|(_, n)| u64::from(*n)).sum();
        let own = sites.iter().find(|(other, _)| *other == site).map_or(0, |(_, n)| u64::from(*n));
        let n_tasks = u128::from(last.0 - first.0 + 1);
        let at = |n: u64| TaskId(first.0 + (n_tasks * u128::from(n) / u128::from(n_slots.max(1))) as u64);
        (at(before), at(before + own))
    }
}

/// What a site gains by bringing what it lacks of a task: pairs of inputs per byte. A tile of All-Pairs has about as many pairs as the
/// square of half of its inputs.
fn gain(n_inputs: usize, lacking_bytes: u64) -> f64 {
    (n_inputs as f64).powi(2) / lacking_bytes.max(1) as f64
}

/// So many items of tiles cross a slow link at once. A tile needs many of them: the second one keeps the link busy while the first
/// one's end is reported.
pub(super) const ITEMS_CROSSING_MAX: u32 = 2;

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

/// How many tasks of `priority` an executor will take for slots that have had none.
fn slots_left(seated: &SeatedExecutor, priority: i32) -> u64 {
    let slots = seated.room.slots_total;
    u64::from(match seated.recent_priority {
        Some((last, n_given)) if last == priority => slots.saturating_sub(n_given),
        Some((last, _)) if last < priority => 0,
        _ => slots,
    })
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
        let seated = self.executors.at_mut(seat);
        seated.recent = some;
        let before = seated.recent_priority.filter(|(last, _)| *last == priority);
        seated.recent_priority = Some((priority, before.map_or(1, |(_, n)| n.saturating_add(1))));
    }

    /// The task of `class` that should go to `seat` because of what is there; see the module.
    pub(super) fn kin(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, class: u32) -> Kin {
        if self.spared.is_empty() || self.executors.at(seat).recent.is_empty() {
            return Kin::None;
        }
        let first = self.tasks.classes[class as usize].order.first_key_value();
        if first.is_none_or(|(_, node)| !self.is_spared(self.tasks.bundle_of_node(*node))) {
            return Kin::None;
        }
        let seated = self.executors.at(seat);
        let is_idle = seated.room.slots_idle > seated.moving.cpus;
        let mut foreign = vec![];
        for (here_bytes, bundle) in self.candidates(catalog, seat, class, |_| true) {
            if !self.lacks_any(catalog, seat, bundle) {
                self.note_whole(catalog, seat, bundle);
                continue;
            }
            if self.has_other_more(catalog, seat, bundle, here_bytes, None) {
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

    /// The site of `seat`, if tiles are given by sites.
    pub(super) fn tile_site(&self, seat: Seat) -> Option<u32> {
        match !self.spared.is_empty() && self.config.network.learns() {
            true => self.near.site(seat),
            false => None,
        }
    }

    /// The number of classes from place `at` of the order on whose tasks have inputs that leave home once.
    pub(super) fn n_classes_of_tiles(&self, at: usize) -> usize {
        let is_of_tiles = |class: &&u32| {
            let first = self.tasks.classes[**class as usize].order.first_key_value();
            first.is_some_and(|(_, node)| self.is_spared(self.tasks.bundle_of_node(*node)))
        };
        self.tasks.class_order[at..].iter().take_while(is_of_tiles).count()
    }

    /// The task of one of `classes` that should go to `seat`, by the rules for sites; see the module.
    pub(super) fn kin_of_site(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        site: u32,
        classes: &[u32],
    ) -> Kin {
        let room = self.executors.at(seat).room;
        let is_idle = room.slots_idle > self.executors.at(seat).moving.cpus;
        let is_slow = self.is_behind_slow_links(site);
        let sites: Vec<(u32, u32)> =
            self.near.in_order().into_iter().map(|site| (site, self.stock(site).n_slots)).collect();
        let mut parts: Vec<(u32, (TaskId, TaskId))> = vec![];
        for &class in classes {
            let of_class = &self.tasks.classes[class as usize];
            let (Some((first, _)), Some((last, _))) =
                (of_class.order.first_key_value(), of_class.order.last_key_value())
            else {
                continue;
            };
            self.near.parts.see(class, (*first, *last));
            if room.can_move(of_class.size, of_class.lasts) {
                parts.push((class, self.near.parts.of(class, site, &sites)));
            }
        }
        let others: Vec<u32> = sites.iter().map(|(other, _)| *other).filter(|other| *other != site).collect();
        for &(class, part) in &parts {
            if is_idle || self.is_plenty_in(site, class, part) {
                match self.next_of_part(catalog, now, seat, site, class, part) {
                    Kin::None | Kin::Not => {}
                    kin => return kin,
                }
            }
            // A large task of another part that has not begun is more urgent than a small one of the own part, as the small ones fill
            // what is left of the time.
            if is_idle && !is_slow {
                for &other in &others {
                    let part = self.near.parts.of(class, other, &sites);
                    if let Some(choice) = self.last_of_part(catalog, now, seat, site, class, (other, part)) {
                        return Kin::Found(choice);
                    }
                }
            }
        }
        if !is_slow {
            return Kin::Not;
        }
        if let Some(choice) = self.best_tile_to_cross(catalog, now, seat, site, &parts, is_idle) {
            return Kin::Found(choice);
        }
        if is_idle {
            for (&other, &(class, _)) in others.iter().flat_map(|other| parts.iter().map(move |p| (other, p)))
            {
                let part = self.near.parts.of(class, other, &sites);
                if let Some(choice) = self.last_of_part(catalog, now, seat, site, class, (other, part)) {
                    return Kin::Found(choice);
                }
            }
        }
        Kin::Not
    }

    /// A task of the site's part for `seat` for which nothing has to cross a slow link.
    fn next_of_part(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        site: u32,
        class: u32,
        part: (TaskId, TaskId),
    ) -> Kin {
        let is_slow = self.is_behind_slow_links(site);
        let is_here = |this: &Affinity, bundle: u32| !is_slow || this.lacks_of_site(site, bundle).0 == 0;
        let mut foreign = vec![];
        let is_wanted =
            |bundle: u32| (part.0..part.1).contains(&self.tasks.head(bundle).0) && is_here(self, bundle);
        for (here_bytes, bundle) in self.candidates(catalog, seat, class, is_wanted) {
            if !self.lacks_any(catalog, seat, bundle) {
                self.note_whole(catalog, seat, bundle);
            } else if self.has_other_more(catalog, seat, bundle, here_bytes, Some(site)) {
                foreign.push(bundle);
            } else if self.plan_for(catalog, now, seat, bundle) {
                return Kin::Found(self.choice(bundle));
            } else if !is_slow {
                return Kin::Waits;
            }
        }
        for bundle in self.of_part(class, part, OF_PART_MAX) {
            if !is_here(self, bundle) {
                continue;
            }
            if !self.lacks_any(catalog, seat, bundle) {
                self.note_whole(catalog, seat, bundle);
            } else if !foreign.contains(&bundle) && self.plan_for(catalog, now, seat, bundle) {
                return Kin::Found(self.choice(bundle));
            }
        }
        match foreign.into_iter().find(|bundle| self.plan_for(catalog, now, seat, *bundle)) {
            Some(bundle) => Kin::Found(self.choice(bundle)),
            None => Kin::Not,
        }
    }

    /// The task whose missing inputs should cross a slow link into `site` now. While nothing is known of the link, the first class
    /// alone is looked at: its tasks are small.
    fn best_tile_to_cross(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        site: u32,
        parts: &[(u32, (TaskId, TaskId))],
        is_idle: bool,
    ) -> Option<Choice> {
        if !self.near.has_room_into(site, ITEMS_CROSSING_MAX) {
            return None;
        }
        let n_classes = if self.near.rate((None, site)).is_finite() { parts.len() } else { 1 };
        let mut best: Vec<(f64, u64, TaskId, u32)> = vec![];
        for &(class, part) in &parts[..n_classes.min(parts.len())] {
            if !is_idle && !self.is_plenty_in(site, class, part) {
                continue;
            }
            let mut n_inputs = 0;
            for bundle in self.of_part(class, part, OF_PART_MAX) {
                let inputs = self.tasks.inputs(bundle);
                let lacking = inputs.iter().filter(|e| !self.is_in_site(site, e.object));
                let bytes: u64 = lacking.map(|e| self.size_of(catalog, e.object)).sum();
                if bytes > 0 {
                    best.push((gain(inputs.len(), bytes), bytes, self.tasks.head(bundle).0, bundle));
                }
                n_inputs += inputs.len();
                if n_inputs > COMPARED_INPUTS_MAX {
                    break;
                }
            }
        }
        // A task of half the gain that needs less is there sooner, and what it brings is of use to the others.
        let most = best.iter().map(|(gain, ..)| *gain).fold(0.0, f64::max);
        best.retain(|(gain, ..)| *gain * ENOUGH_GAIN >= most);
        best.sort_unstable_by_key(|(_, bytes, task, _)| (*bytes, *task));
        best.truncate(self.config.tries);
        let (.., bundle) =
            best.into_iter().find(|(.., bundle)| self.plan_for(catalog, now, seat, *bundle))?;
        Some(self.choice(bundle))
    }

    /// A task of the part of `owner`, another site, from its end; those first for which the owner still lacks something.
    fn last_of_part(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        site: u32,
        class: u32,
        (owner, part): (u32, (TaskId, TaskId)),
    ) -> Option<Choice> {
        let is_slow = self.is_behind_slow_links(site);
        let order = &self.tasks.classes[class as usize].order;
        let last = order.range(part.0..part.1).rev().take(OF_PART_MAX);
        let mut bundles: Vec<u32> = last.map(|(_, node)| self.tasks.bundle_of_node(*node)).collect();
        bundles.sort_by_key(|bundle| self.lacks_of_site(owner, *bundle).0 == 0);
        for bundle in bundles {
            if !self.lacks_any(catalog, seat, bundle) {
                self.note_whole(catalog, seat, bundle);
                continue;
            }
            // A site that waits for its links takes nothing over them that another site may have. If nobody does anything, it does.
            if is_slow
                && self.lacks_of_site(site, bundle).0 > 0
                && (self.executors.n_slots_idle < self.executors.n_slots_total || !self.attempts.is_empty())
            {
                continue;
            }
            if self.plan_for(catalog, now, seat, bundle) {
                return Some(self.choice(bundle));
            }
        }
        None
    }

    /// The first bundles of a part, in queue order.
    fn of_part(&self, class: u32, part: (TaskId, TaskId), n_max: usize) -> Vec<u32> {
        let order = &self.tasks.classes[class as usize].order;
        order.range(part.0..part.1).take(n_max).map(|(_, node)| self.tasks.bundle_of_node(*node)).collect()
    }

    /// All inputs of `bundle` are on `seat` or on their way there: a hit that the hints missed, or one that is about to be one.
    fn note_whole(&mut self, catalog: &Catalog, seat: Seat, bundle: u32) {
        if self.tasks.inputs(bundle).iter().all(|e| holds(catalog, seat, e.object)) {
            self.push_full(seat, bundle);
        }
    }

    /// As [`Affinity::is_plenty`], for the part of a class that `site` has.
    fn is_plenty_in(&self, site: u32, class: u32, part: (TaskId, TaskId)) -> bool {
        let priority = self.tasks.classes[class as usize].priority;
        let slots_total = u64::from(self.stock(site).n_slots);
        let order = &self.tasks.classes[class as usize].order;
        let n = order.range(part.0..part.1).take(slots_total as usize + 1).count() as u64;
        let of_site = |i: usize| self.near.site(Seat(i as u32)) == Some(site);
        let seated = self.executors.by_seat.iter().enumerate().filter(|(i, _)| of_site(*i));
        n > slots_total
            || n > seated.filter_map(|(_, seated)| Some(slots_left(seated.as_ref()?, priority))).sum()
    }

    /// Whether `class` has more tasks than executors that have had none for some of their slots will take.
    fn is_plenty(&self, class: u32) -> bool {
        let (priority, n) = (
            self.tasks.classes[class as usize].priority,
            self.tasks.classes[class as usize].order.len() as u64,
        );
        n > self.executors.n_slots_total
            || n > self.executors.iter().map(|seated| slots_left(seated, priority)).sum()
    }

    fn choice(&self, bundle: u32) -> Choice {
        Choice { bundle, reason: Reason::Brings { n_tasks: self.tasks.bundle(bundle).n_tasks } }
    }

    /// Bundles of `class` among the wanted ones that read some of the executor's recent objects, with the bytes of their inputs that the executor has or will
    /// have; most bytes first.
    fn candidates(
        &self,
        catalog: &Catalog,
        seat: Seat,
        class: u32,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Vec<(u64, u32)> {
        let seated = self.executors.at(seat);
        let mut n_common: BTreeMap<u32, u32> = BTreeMap::new();
        for object in &seated.recent {
            for reader in self.tasks.readers_around(*object, 0).take(READERS_MAX) {
                if reader.class == class {
                    *n_common.entry(reader.bundle).or_default() += 1;
                }
            }
        }
        let wanted = n_common.into_iter().filter(|(bundle, _)| is_wanted(*bundle));
        let mut found: Vec<(u32, u32)> = wanted.map(|(bundle, n)| (n, bundle)).collect();
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

    /// Whether another executor, of `site` if one is given, has more than `here_bytes` of the inputs of `bundle`, or will have.
    fn has_other_more(
        &self,
        catalog: &Catalog,
        seat: Seat,
        bundle: u32,
        here_bytes: u64,
        site: Option<u32>,
    ) -> bool {
        let is_asked = |other: Seat| other != seat && (site.is_none() || self.near.site(other) == site);
        let mut bytes: FxHashMap<Seat, u64> = FxHashMap::default();
        let mut holders = vec![];
        for input in self.tasks.inputs(bundle) {
            let size_bytes = self.size_of(catalog, input.object);
            self.some_holders(catalog, input.object, spread(seat, input.object), &mut holders);
            let heading = self.spared.heading.get(&input.object);
            for other in holders.iter().chain(heading.into_iter().flatten()).filter(|other| is_asked(**other))
            {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The parts of all sites are a class without gaps, and each is as large as its site's part of the slots.
        #[test]
        fn each_task_is_in_the_part_of_one_site(
            first in 0u64..1000, n in 1u64..500, slots in prop::collection::vec(0u32..20, 1..6),
        ) {
            prop_assume!(slots.iter().any(|n| *n > 0));
            let mut parts = Parts::default();
            parts.see(3, (TaskId(first), TaskId(first + n - 1)));
            // The first tasks have left the queue, which changes nothing.
            parts.see(3, (TaskId(first + n / 2), TaskId(first + n - 1)));
            let sites: Vec<(u32, u32)> = slots.iter().enumerate().map(|(site, n)| (site as u32, *n)).rev().collect();
            let n_slots: u64 = slots.iter().map(|n| u64::from(*n)).sum();
            let mut n_of: BTreeMap<u32, u64> = BTreeMap::new();
            for task in first..first + n {
                let is_in = |site: u32| {
                    let part = parts.of(3, site, &sites);
                    (part.0..part.1).contains(&TaskId(task))
                };
                let owners: Vec<u32> = (0..slots.len() as u32).filter(|site| is_in(*site)).collect();
                prop_assert_eq!(owners.len(), 1);
                *n_of.entry(owners[0]).or_default() += 1;
            }
            for (site, own) in sites {
                let fair = n as f64 * f64::from(own) / n_slots as f64;
                prop_assert!((n_of.get(&site).copied().unwrap_or(0) as f64 - fair).abs() <= 1.0);
            }
            parts.see(3, (TaskId(first + n), TaskId(first + n)));
            prop_assert_eq!(parts.spans[&3], (TaskId(first + n), TaskId(first + n)));
        }
    }
}
