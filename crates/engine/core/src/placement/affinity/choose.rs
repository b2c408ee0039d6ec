//! The rules, in the order of the module's header.

use super::kin::Kin;
use super::rank::{Heat, bucket_of};
use super::reads::Direct;
use super::seated::SeatedExecutor;
use super::tasks::{Edge, NIL};
use super::{Affinity, Choice, holds, is_made, spread, wrapping_ms};
use crate::catalog::Catalog;
use crate::event::Source;
use crate::executor_set::{Seat, SeatSet};
use crate::placement::queue::Queue;
use crate::placement::{Pick, QueueKey, Reason, Room, Rule, Stage, TaskSize, Unplaced};
use eyas_terms::{ExecutorId, ObjectId, TaskId, Timestamp};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// At most this many executors that have inputs of a task in memory are compared.
const IN_MEMORY_MAX: usize = 64;
/// For a seed, at most this many readers of an input are searched for a task whose inputs are all cold.
const SEED_READERS_MAX: usize = 64;
/// A seed with more inputs than this is not exchanged for a colder task nearby: each exchange compares an
/// input with all others.
const EXCHANGED_MAX: usize = 64;
/// Until it is known how long programs run, the wait for holders is the time of a copy divided by this
/// number.
const FIRST_RUN_PART: f64 = 8.0;
/// With at most this many objects on their way to an executor, they are examined to see whether they give
/// it enough tasks.
const COMING_MAX: usize = 16;
const TASK_PARTS: u64 = 1024;
/// At most this many objects that would have to cross a slow link are passed over in the search for one that need not.
const PASSED_MAX: usize = 1024;
/// The readers of at most this many objects are watched for a change of their number.
const WATCHED_OBJECTS_MAX: usize = 4096;
/// How many of the oldest tasks are looked at.
const OLDEST_MAX: usize = 16;
/// At most this many executors that are too small for every queued task are passed over, twice in a
/// decision.
const UNFIT_MAX: usize = 64;

/// The use of fetching an object for an executor.
#[derive(Default)]
pub(super) struct Worth {
    /// Tasks that lack only this object.
    pub n_tasks: u32,
    /// The oldest of these tasks, and its bundle.
    pub oldest: Option<(TaskId, u32)>,
}

impl Worth {
    /// Counts a bundle whose oldest task is `task`.
    pub fn add(&mut self, bundle: u32, n_tasks: u32, task: TaskId) {
        self.n_tasks += n_tasks;
        if self.oldest.is_none_or(|(oldest, _)| task < oldest) {
            self.oldest = Some((task, bundle));
        }
    }
}

impl Affinity {
    pub(super) fn decide(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<(ExecutorId, Pick), Unplaced> {
        self.plan.task = None;
        for stage in [Stage::Idle, Stage::Ahead] {
            if let Some(found) = self.place_hit(catalog, now, stage) {
                return Ok(found);
            }
        }
        if let Some(found) = self.place_move(catalog, now) {
            return Ok(found);
        }
        Err(self.why_not())
    }

    fn pick(&self, catalog: &Catalog, seat: Seat, choice: &Choice, stage: Stage) -> (ExecutorId, Pick) {
        let inputs = self.tasks.inputs(choice.bundle);
        let n_hits = inputs.iter().filter(|e| catalog.is_held_by(e.object, seat)).count() as u32;
        let pick = Pick {
            key: self.tasks.key(choice.bundle),
            n_hits,
            n_inputs: inputs.len() as u32,
            rule: Rule::Affinity(choice.reason),
            stage,
        };
        (self.executors.at(seat).id, pick)
    }

    // ---- hits

    /// Finds a hit on the executor with most room among those that have one.
    fn place_hit(&mut self, catalog: &Catalog, now: Timestamp, stage: Stage) -> Option<(ExecutorId, Pick)> {
        let mut tried = SeatSet::default();
        loop {
            let by_room =
                if stage == Stage::Idle { &self.executors.by_idle } else { &self.executors.by_ahead };
            let wanted = |seats: &SeatSet| {
                let words = seats.words().iter().zip(self.asking.has_hits.words()).enumerate();
                let mut free =
                    words.map(|(i, (a, b))| (i, a & b & !tried.words().get(i).copied().unwrap_or(0)));
                free.find(|(_, w)| *w != 0).map(|(i, w)| Seat(i as u32 * 64 + w.trailing_zeros()))
            };
            let seat = by_room.values().rev().find_map(wanted)?;
            if self.leaves_to_faster(now, seat) {
                tried.insert(seat);
                continue;
            }
            let (best, any) = self.best_hit(catalog, seat, stage);
            if let Some(bundle) = best {
                let n_inputs = self.tasks.bundle(bundle).n_inputs;
                let seat = self.with_most_in_memory(catalog, now, seat, bundle, stage);
                let reason = if n_inputs == 0 { Reason::NoInputs } else { Reason::AllHere };
                return Some(self.pick(catalog, seat, &Choice { bundle, reason }, stage));
            }
            if any {
                tried.insert(seat);
            } else {
                self.asking.has_hits.remove(seat);
            }
        }
    }

    /// The first bundle in queue order whose inputs are all on `seat` and that fits there; and whether there
    /// is any bundle, fitting or not, whose inputs are all on `seat`.
    fn best_hit(&mut self, catalog: &Catalog, seat: Seat, stage: Stage) -> (Option<u32>, bool) {
        let mut best: Option<(QueueKey, u32)> = None;
        let mut any = false;
        for i in 0..self.tasks.class_order.len() {
            let c = self.tasks.class_order[i];
            let class = &self.tasks.classes[c as usize];
            let (priority, size, lasts, free) = (class.priority, class.size, class.lasts, class.free);
            if best.is_some_and(|(key, _)| key.priority > priority)
                || stage == Stage::Ahead && self.is_kept_back(priority)
            {
                break;
            }
            let hit = self.oldest_full(catalog, seat, c);
            any |= hit.is_some() || free != NIL;
            if !self.executors.at(seat).room.fits(stage, size, lasts) {
                continue;
            }
            for bundle in hit.into_iter().chain((free != NIL).then_some(free)) {
                let key = self.tasks.key(bundle);
                if best.is_none_or(|(first, _)| key < first) && !self.is_left(catalog, seat, bundle) {
                    best = Some((key, bundle));
                }
            }
        }
        (best.map(|(_, bundle)| bundle), any)
    }

    /// Of the executors that have all inputs of `bundle` and the same room as `seat`, the one that has most bytes of the inputs in
    /// memory; `seat`, which is one of them, if none has more.
    fn with_most_in_memory(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        bundle: u32,
        stage: Stage,
    ) -> Seat {
        if self.in_memory.is_empty() {
            return seat;
        }
        let class = &self.tasks.classes[self.tasks.bundle(bundle).class as usize];
        let (size, lasts, room) = (class.size, class.lasts, self.executors.at(seat).room);
        let rank = |room: &Room| if stage == Stage::Idle { room.idle_rank() } else { room.ahead };
        let inputs = || self.tasks.inputs(bundle).iter().map(|e| e.object);
        let mut others: BTreeMap<Seat, u64> = BTreeMap::new();
        for other in inputs().flat_map(|object| self.in_memory.seats_of(object)).take(IN_MEMORY_MAX) {
            let theirs = &self.executors.at(other).room;
            let is_equal = rank(theirs) == rank(&room) && theirs.fits(stage, size, lasts);
            if is_equal && inputs().all(|object| catalog.is_held_by(object, other)) {
                others.entry(other).or_insert_with(|| self.in_memory.bytes_on(other, inputs()));
            }
        }
        let here = self.in_memory.bytes_on(seat, inputs());
        let mut others: Vec<(Reverse<u64>, Seat)> = others
            .into_iter()
            .filter(|(_, bytes)| *bytes > here)
            .map(|(s, bytes)| (Reverse(bytes), s))
            .collect();
        others.sort_unstable();
        let mut able = |(_, other): &(Reverse<u64>, Seat)| {
            !self.leaves_to_faster(now, *other) && !self.is_left(catalog, *other, bundle)
        };
        others.into_iter().find(|other| able(other)).map_or(seat, |(_, other)| other)
    }

    /// Whether `bundle`, whose inputs are all on `seat`, is left to an open slot elsewhere. It is if there are
    /// open slots for all queued tasks, if on `seat` the bundle would wait for a slot or take one from a task
    /// whose inputs are on their way, and if a copy of its inputs takes less time than a program runs.
    fn is_left(&self, catalog: &Catalog, seat: Seat, bundle: u32) -> bool {
        let class = &self.tasks.classes[self.tasks.bundle(bundle).class as usize];
        let (cpus, memory_bytes) = (class.size.cpus.max(1), class.size.memory_bytes);
        // An open slot says nothing of what a task needs beside it.
        if !class.size.needs.is_none() || !self.is_roomy() || self.executors.at(seat).n_open >= cpus {
            return false;
        }
        let copy_ns: f64 =
            self.tasks.inputs(bundle).iter().map(|e| self.copy_at_worst_ns(catalog, e.object)).sum();
        let has_room = |m: &SeatedExecutor| {
            m.n_open >= cpus
                && m.room.memory_free_bytes >= memory_bytes
                && m.room.left.is_enough_for(class.lasts)
        };
        copy_ns < self.times.run_ns_expected() && self.executors.iter().any(has_room)
    }

    /// Whether all queued tasks have room in open slots: slots that are idle and that no attempt with
    /// moving inputs will take.
    fn is_roomy(&self) -> bool {
        self.tasks.len() as u64 <= self.executors.n_slots_open
    }

    /// Whether the holders of `object` have no open slot for the tasks that wait for it, while other
    /// executors have open slots for all queued tasks.
    fn is_left_to_others(&self, catalog: &Catalog, object: ObjectId) -> bool {
        if !self.is_roomy() || self.copy_at_worst_ns(catalog, object) >= self.times.run_ns_expected() {
            return false;
        }
        let mut is_left = true;
        self.visit_holders(catalog, object, 0, |holder| {
            is_left = self.executors.at(holder).n_open == 0;
            if is_left { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        is_left
    }

    /// The bundle of `class` with the oldest task among the bundles whose inputs are all on `seat`. Removes
    /// stale entries that come before it.
    fn oldest_full(&mut self, catalog: &Catalog, seat: Seat, class: u32) -> Option<u32> {
        let (tasks, seated) = (&self.tasks, self.executors.at_mut(seat));
        let heap = &mut seated.full.get_mut(class as usize)?.heap;
        while let Some(&Reverse((task, bundle))) = heap.peek() {
            let is_full = tasks.is_bundle(bundle, class)
                && tasks.inputs(bundle).iter().all(|e| catalog.is_held_by(e.object, seat));
            let head = if is_full { Some(tasks.head(bundle).0) } else { None };
            if head == Some(task) {
                return Some(bundle);
            }
            while heap.peek() == Some(&Reverse((task, bundle))) {
                heap.pop();
            }
            if let Some(head) = head {
                heap.push(Reverse((head, bundle)));
            }
        }
        None
    }

    // ---- moves

    /// Asks the executors that have not been asked since something changed, those with most to spare first
    /// and in turns among equals. One question in a decision goes to an executor that has not been asked in
    /// this round: the executors with most to spare are asked again and again as things change, and must
    /// not keep the others from being asked at all.
    fn place_move(&mut self, catalog: &Catalog, now: Timestamp) -> Option<(ExecutorId, Pick)> {
        let n_eager = self.config.vain_max.saturating_sub(1).max(1);
        let (mut n_refused, mut n_unfit) = (0, 0);
        while n_refused < n_eager
            && n_unfit < UNFIT_MAX
            && let Some(seat) = self.executors.next_among(&self.asking.to_ask, self.asking.turn)
        {
            if let Some(found) = self.ask(catalog, now, seat, &mut n_refused, &mut n_unfit) {
                return Some(found);
            }
        }
        n_unfit = 0;
        while n_refused <= n_eager
            && n_unfit < UNFIT_MAX
            && let Some(seat) = self.executors.next_among(&self.asking.not_asked, self.asking.turn)
        {
            if let Some(found) = self.ask(catalog, now, seat, &mut n_refused, &mut n_unfit) {
                return Some(found);
            }
        }
        if self.executors.next_among(&self.asking.not_asked, self.asking.turn).is_none() {
            // The executors that are left have no room.
            self.asking.not_asked.clear();
        }
        None
    }

    /// The task that `seat` would move data for, if any. Executors that are too small for every queued task
    /// are counted apart, because it costs next to nothing to see that.
    fn ask(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        n_refused: &mut usize,
        n_unfit: &mut usize,
    ) -> Option<(ExecutorId, Pick)> {
        self.asking.not_asked.remove(seat);
        let room = self.executors.at(seat).room;
        let classes = || self.tasks.class_order.iter().map(|c| &self.tasks.classes[*c as usize]);
        if !classes().any(|class| room.can_move(class.size, class.lasts)) || self.leaves_to_faster(now, seat)
        {
            *n_unfit += 1;
            self.asking.to_ask.remove(seat);
            return None;
        }
        let Some(choice) = self.choose_move(catalog, now, seat) else {
            *n_refused += 1;
            self.asking.to_ask.remove(seat);
            return None;
        };
        self.asking.turn = seat.0 + 1;
        let seat = self.richest(catalog, now, seat, choice.bundle);
        let cpus = self.tasks.classes[self.tasks.bundle(choice.bundle).class as usize].size.cpus;
        let idle = cpus + self.executors.at(seat).moving.cpus <= self.executors.at(seat).room.slots_idle;
        let stage = if idle { Stage::Idle } else { Stage::Ahead };
        Some(self.pick(catalog, seat, &choice, stage))
    }

    /// The executor with room that holds most bytes of the inputs of `bundle`; `asked` if no executor with
    /// room holds more than `asked` does. The plan is made for the executor that is returned.
    fn richest(&mut self, catalog: &Catalog, now: Timestamp, asked: Seat, bundle: u32) -> Seat {
        let is_lacking = |e: &&Edge| !self.executors.at(asked).has(catalog, asked, e.object);
        if self.tasks.inputs(bundle).iter().filter(is_lacking).take(2).count() < 2 {
            return asked;
        }
        let mut bytes: BTreeMap<Seat, u64> = BTreeMap::new();
        let mut holders = vec![];
        for input in self.tasks.inputs(bundle) {
            self.some_holders(catalog, input.object, spread(asked, input.object), &mut holders);
            let size_bytes = self.size_of(catalog, input.object);
            holders.iter().for_each(|seat| *bytes.entry(*seat).or_default() += size_bytes);
        }
        let class = &self.tasks.classes[self.tasks.bundle(bundle).class as usize];
        let (cpus, memory_bytes) = (class.size.cpus.max(1), class.size.memory_bytes);
        let needs = class.size.needs.bit();
        let here = bytes.get(&asked).copied().unwrap_or(0);
        let fits = |seat: Seat| {
            let seated = self.executors.at(seat);
            cpus <= seated.room.moves.min(seated.room.slots_idle.saturating_sub(seated.moving.cpus))
                && memory_bytes <= seated.room.memory_free_bytes
                && seated.room.lacks & needs == 0
                && seated.room.left.is_enough_for(class.lasts)
                && !self.are_apart(asked, seat)
        };
        let richer = bytes.iter().filter(|(seat, held)| **held > here && fits(**seat));
        let Some((&best, _)) = richer.max_by_key(|(seat, held)| (**held, Reverse(**seat))) else {
            return asked;
        };
        if self.plan_for(catalog, now, best, bundle) {
            return best;
        }
        let planned = self.plan_for(catalog, now, asked, bundle);
        debug_assert!(planned, "it was chosen for that executor");
        asked
    }

    fn choose_move(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat) -> Option<Choice> {
        if self.is_served(catalog, seat) || self.near.is_awaited(self.executors.at(seat).id) {
            return None;
        }
        self.settle_wants(catalog, seat);
        self.executors.at_mut(seat).apply_rank_updates();
        let every = self.config.oldest_every;
        let oldest_first = every > 0 && self.executors.at(seat).n_moves % every == every - 1;
        let tile_site = self.tile_site(seat);
        let mut i = 0;
        while let Some(&c) = self.tasks.class_order.get(i) {
            i += 1;
            if let Some(site) = tile_site
                && let n @ 1.. = self.n_classes_of_tiles(i - 1)
            {
                let classes = self.tasks.class_order[i - 1..i - 1 + n].to_vec();
                i += n - 1;
                match self.kin_of_site(catalog, now, seat, site, &classes) {
                    Kin::Found(choice) => return Some(choice),
                    Kin::Waits => return None,
                    Kin::None | Kin::Not => continue,
                }
            }
            let (class, room) = (&self.tasks.classes[c as usize], self.executors.at(seat).room);
            if !room.can_move(class.size, class.lasts) {
                continue;
            }
            match self.kin(catalog, now, seat, c) {
                Kin::None => {}
                Kin::Not => continue,
                Kin::Waits => return None,
                Kin::Found(choice) => return Some(choice),
            }
            if oldest_first && let Some(choice) = self.oldest(catalog, now, seat, c) {
                return Some(choice);
            }
            if let Some(choice) = self.choose_in_site(catalog, now, seat, c) {
                let planned = self.plan_for(catalog, now, seat, choice.bundle);
                debug_assert!(planned, "a bundle is only chosen when all its inputs have a route");
                return Some(choice);
            }
            if self.slow_site(seat).is_some_and(|site| self.need_not_cross(site, c)) {
                continue;
            }
            let near = self.best_near(catalog, now, seat, c);
            let cold = self.best_cold(catalog, now, seat, c);
            let best = match (near, cold) {
                (Some(near), Some(cold)) => Some(if near.0 >= cold.0 { near } else { cold }),
                (near, cold) => near.or(cold),
            };
            let has_near = self
                .executors
                .at(seat)
                .near
                .get(c as usize)
                .is_some_and(|n| n.as_ref().is_some_and(|n| n.len() > 0));
            let choice = best
                .map(|(_, choice)| choice)
                .or_else(|| if has_near { None } else { self.seed(catalog, now, seat, c, Heat::Cold) })
                .or_else(|| self.steal(catalog, now, seat, c, Heat::Warm))
                .or_else(|| self.steal(catalog, now, seat, c, Heat::Arriving))
                .or_else(|| if has_near { None } else { self.seed(catalog, now, seat, c, Heat::Warm) })
                .or_else(|| self.oldest(catalog, now, seat, c));
            if let Some(choice) = choice {
                // The plan is that of the last bundle looked at, so it is made again for the chosen bundle.
                let planned = self.plan_for(catalog, now, seat, choice.bundle);
                debug_assert!(planned, "a bundle is only chosen when all its inputs have a route");
                return Some(choice);
            }
        }
        None
    }

    /// Whether the objects on their way to `seat` will give its slots enough to do: fetching more at the
    /// same time would only delay them.
    #[allow(clippy::disallowed_methods, reason = "a sum of integers is the same in any order")]
    fn is_served(&self, catalog: &Catalog, seat: Seat) -> bool {
        let seated = self.executors.at(seat);
        if !(1..=COMING_MAX).contains(&seated.coming.len()) {
            return false;
        }
        // The sum is taken in integer parts of a task, because the order of a map must not matter.
        // What the node makes comes over no link, and its packed file counts.
        let parts: u64 = seated
            .coming
            .iter()
            .filter(|(object, _)| !is_made(catalog, **object))
            .map(|(object, coming)| {
                let n_nodes =
                    catalog.n_holders(*object) + self.home.arriving.get(object).map_or(0, |a| a.n as usize);
                let n_tasks = self.tasks.n_tasks_reading_only(*object);
                (n_tasks * TASK_PARTS) / n_nodes.max(1) as u64 + coming.tasks.len() as u64 * TASK_PARTS
            })
            .sum();
        parts >= u64::from(seated.room.slots_total) * TASK_PARTS
    }

    /// The use of fetching `object` for `seat`, found by looking at the object's readers.
    pub(super) fn recount(&self, catalog: &Catalog, seat: Seat, class: u32, object: ObjectId) -> Worth {
        let seated = self.executors.at(seat);
        let mut worth = Worth::default();
        for reader in self.tasks.readers_around(object, 0).take(self.config.readers_max) {
            if reader.class != class
                || reader.sole_other().is_some_and(|(other, _)| !seated.has(catalog, seat, other))
            {
                continue;
            }
            let id = reader.bundle;
            let bundle = self.tasks.bundle(id);
            if bundle.n_inputs < 2 {
                continue;
            }
            let mut others = self.tasks.inputs(id).iter().filter(|e| e.object != object);
            if others.all(|e| seated.has(catalog, seat, e.object)) {
                worth.add(id, bundle.n_tasks, self.tasks.head(id).0);
            }
        }
        worth
    }

    /// Computes anew whether an executor wants copies. A copy uses disks and links at both ends, so only an
    /// executor with idle slots or few hits left wants one.
    fn settle_wants(&mut self, catalog: &Catalog, seat: Seat) {
        let (tasks, seated) = (&self.tasks, self.executors.at_mut(seat));
        seated.wants_copies = seated.room.slots_idle > seated.moving.cpus;
        let enough = self.config.hits_enough.saturating_mul(seated.room.slots_total as usize);
        let mut n_hits = 0;
        for (class, full) in seated.full.iter_mut().enumerate().filter(|_| !seated.wants_copies) {
            // Long lists are counted without a check.
            if (enough..enough.saturating_mul(4)).contains(&full.heap.len()) {
                full.heap.retain(|Reverse((_, bundle))| {
                    tasks.is_bundle(*bundle, class as u32)
                        && tasks.inputs(*bundle).iter().all(|e| holds(catalog, seat, e.object))
                });
            }
            n_hits += full.heap.len();
        }
        seated.wants_copies |= n_hits < enough;
    }

    /// Whether `object` may be copied to `seat` for the oldest task of `bundle`. Until that task has waited
    /// long enough, a holder may be about to run it.
    fn has_waited(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        object: ObjectId,
        bundle: u32,
    ) -> bool {
        if !self.executors.at(seat).wants_copies {
            return false;
        }
        if self.is_past_copies(catalog, seat, object) || self.is_left_to_others(catalog, object) {
            return true;
        }
        let (_, entered_ms) = self.tasks.head(bundle);
        let waited_ms = wrapping_ms(now).wrapping_sub(entered_ms);
        let after_ns = self.steal_after_ns(catalog, seat, object);
        let rest_ns = after_ns - f64::from(waited_ms) * 1e6;
        if rest_ns >= 0.0 && self.is_whole_anywhere(catalog, bundle) {
            self.asking.note_due(now, rest_ns);
            return false;
        }
        true
    }

    /// Whether any executor has all inputs of `bundle`, or will have them. Where none does, no executor can
    /// run the bundle before something is copied.
    fn is_whole_anywhere(&self, catalog: &Catalog, bundle: u32) -> bool {
        let inputs = self.tasks.inputs(bundle);
        let by_holders = |e: &&Edge| (catalog.n_holders(e.object), e.object);
        let Some(rarest) = inputs.iter().min_by_key(by_holders).map(|e| e.object) else { return true };
        // No executor holds an object that is just being read from home, but one is about to hold it.
        if inputs.len() < 2 || catalog.n_holders(rarest) == 0 {
            return true;
        }
        let mut is_whole = false;
        self.visit_holders(catalog, rarest, 0, |seat| {
            is_whole = inputs.iter().all(|e| self.executors.at(seat).has(catalog, seat, e.object));
            if is_whole { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        is_whole
    }

    /// Whether the holders of `object` will have run all tasks that read it before a copy could be of use.
    fn is_soon_done(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, object: ObjectId) -> bool {
        if self.is_past_copies(catalog, seat, object) || self.is_left_to_others(catalog, object) {
            return false;
        }
        let by_site_ns = self.copy_by_site_ns(catalog, seat, object);
        let copy_ns = by_site_ns.unwrap_or_else(|| self.copy_use_ns(catalog, object));
        let n_tasks = self.tasks.n_tasks_reading(object);
        let awaits_ns = match self.times.run_ns {
            Some(run_ns) => {
                let slots = self.executors.n_slots_total as f64 / self.executors.seats.len().max(1) as f64;
                let rounds = n_tasks as f64 / (catalog.n_holders(object) as f64 * slots).max(1.0);
                if rounds * run_ns as f64 >= copy_ns {
                    return false;
                }
                copy_ns + 2.0 * run_ns as f64
            }
            // It is unknown how long programs run. The holders get time to run one, but only a part of the
            // time of a copy.
            None => self.steal_after_ns(catalog, seat, object) / FIRST_RUN_PART,
        };
        // Holders may have no room, or be slower than others. They are given time as long as they take one
        // task after the other.
        if self.unchanged_readers.len() >= WATCHED_OBJECTS_MAX {
            self.unchanged_readers.clear();
        }
        let (since, n_before) = self.unchanged_readers.entry(object).or_insert((now, n_tasks));
        if n_tasks != *n_before {
            (*since, *n_before) = (now, n_tasks);
        }
        let rest_ns = awaits_ns - now.since_ns(*since) as f64;
        if rest_ns >= 0.0 {
            self.asking.note_due(now, rest_ns);
        }
        rest_ns >= 0.0
    }

    /// Lazy greedy: the known number of an entry is an upper bound, so the first entry that keeps its place
    /// when its readers are counted is the best.
    pub(super) fn best_near(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        class: u32,
    ) -> Option<(u16, Choice)> {
        let mut at = self.executors.at(seat).near.get(class as usize)?.as_ref()?.first(Heat::Cold);
        let mut best: Option<(u16, Choice)> = None;
        let slow_site = self.slow_site(seat);
        let (mut n_tried, mut n_passed) = (0, 0);
        while n_tried < self.config.tries {
            let Some(entry) = at else { break };
            if best.as_ref().is_some_and(|(bucket, _)| *bucket >= entry.bucket) {
                break;
            }
            let object = entry.object;
            // Behind slow links, `site` says what crosses them.
            if slow_site.is_some_and(|site| !self.is_in_site(site, object)) && n_passed < PASSED_MAX {
                n_passed += 1;
                let near = self.executors.at(seat).near[class as usize].as_ref().expect("it has an entry");
                at = near.after(&entry);
                continue;
            }
            n_tried += 1;
            let near = self.executors.at(seat).near[class as usize].as_ref().expect("it has an entry");
            at = near.after(&entry);
            let is_here = self.executors.at(seat).has(catalog, seat, object);
            let is_warm = self.heat(catalog, object) == Heat::Warm;
            // This check comes before the readers are counted, which costs more than anything else here.
            if is_warm && !is_here && !self.executors.at(seat).wants_copies {
                continue;
            }
            if !is_here && self.route(catalog, now, seat, object).is_none() {
                continue;
            }
            let worth = if is_here { Worth::default() } else { self.recount(catalog, seat, class, object) };
            let size_bytes = self.size_of(catalog, object);
            if worth.n_tasks != entry.n_tasks {
                let rank =
                    self.executors.at_mut(seat).near[class as usize].as_mut().expect("it has an entry");
                rank.set(object, worth.n_tasks, size_bytes, Heat::Cold);
                // The neighbours of the entry have changed, and the list may be gone.
                at = at.and_then(|next| rank.get(next.object).copied());
            }
            let Some((_, bundle)) = worth.oldest else { continue };
            if is_warm && !self.has_waited(catalog, now, seat, object, bundle) {
                continue;
            }
            let cost = self.crossing_cost(catalog, seat, object);
            let bucket = bucket_of(worth.n_tasks, (size_bytes as f64 * cost) as u64);
            if best.as_ref().is_none_or(|(other, _)| bucket > *other) {
                best = Some((bucket, Choice { bundle, reason: Reason::Brings { n_tasks: worth.n_tasks } }));
            }
        }
        best
    }

    fn best_cold(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        class: u32,
    ) -> Option<(u16, Choice)> {
        let entry = self.tasks.classes[class as usize].single.first(Heat::Cold)?;
        self.route(catalog, now, seat, entry.object)?;
        let bundle = self.tasks.single(class, entry.object)?;
        Some((entry.bucket, Choice { bundle, reason: Reason::Brings { n_tasks: entry.n_tasks } }))
    }

    /// A bundle to begin with. Places in the queue are tried in an order that covers the queue evenly,
    /// whatever its structure; then the objects of that heat that most tasks read.
    fn seed(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        class: u32,
        heat: Heat,
    ) -> Option<Choice> {
        let seed = |bundle| Choice { bundle, reason: Reason::Seed };
        self.tasks.classes[class as usize].multi.first(heat)?;
        let mut least_cold = None;
        for _ in 0..self.config.tries {
            self.n_seeds = self.n_seeds.wrapping_add(1);
            let part = self.n_seeds.wrapping_mul(0x9E37_79B9);
            let Some(mut bundle) = self.tasks.bundle_at(class, part) else { break };
            if self.tasks.bundle(bundle).n_inputs < 2 {
                continue;
            }
            let inputs: Vec<ObjectId> = match self.tasks.inputs(bundle) {
                inputs if inputs.len() <= EXCHANGED_MAX => inputs.iter().map(|e| e.object).collect(),
                _ => Vec::new(),
            };
            for input in inputs {
                // An exchange for an earlier input may have led to a bundle without this input.
                if self.tasks.inputs(bundle).iter().all(|e| e.object != input) {
                    continue;
                }
                let others = self.tasks.inputs(bundle).iter().filter(|e| e.object != input);
                let cold = others.filter(|e| self.heat(catalog, e.object) == Heat::Cold).count();
                if heat == Heat::Cold && cold + 1 < self.tasks.inputs(bundle).len() {
                    bundle =
                        self.coldest_around(catalog, class, input, self.tasks.place_among(input, bundle)).1;
                }
            }
            let n_cold = self.n_cold(catalog, bundle);
            let is_all = n_cold == self.tasks.inputs(bundle).len();
            let may = if heat == Heat::Cold { n_cold > 0 } else { self.may_copy(catalog, now, seat, bundle) };
            if may && self.lacks_any(catalog, seat, bundle) && self.plan_for(catalog, now, seat, bundle) {
                if is_all || heat != Heat::Cold {
                    return Some(seed(bundle));
                }
                least_cold = least_cold.or(Some(bundle));
            }
        }
        if let Some(bundle) = least_cold {
            return Some(seed(bundle));
        }
        let mut at = self.tasks.classes[class as usize].multi.first(heat);
        for _ in 0..self.config.tries {
            let entry = at?;
            at = self.tasks.classes[class as usize].multi.after(&entry);
            let start = spread(seat, entry.object) % self.tasks.readers(entry.object).len();
            let (_, bundle) = self.coldest_around(catalog, class, entry.object, start);
            if bundle == NIL || !self.lacks_any(catalog, seat, bundle) {
                continue;
            }
            let may = heat == Heat::Cold || self.may_copy(catalog, now, seat, bundle);
            if may && self.plan_for(catalog, now, seat, bundle) {
                return Some(seed(bundle));
            }
        }
        None
    }

    /// Whether `seat` lacks any input of `bundle`. If not, the bundle is a hit, or about to become one.
    pub(super) fn lacks_any(&self, catalog: &Catalog, seat: Seat, bundle: u32) -> bool {
        let seated = self.executors.at(seat);
        self.tasks.inputs(bundle).iter().any(|e| !seated.has(catalog, seat, e.object))
    }

    fn n_cold(&self, catalog: &Catalog, bundle: u32) -> usize {
        self.tasks.inputs(bundle).iter().filter(|e| self.heat(catalog, e.object) == Heat::Cold).count()
    }

    /// The reader of `object` with most cold inputs, as its number of cold inputs and its bundle. Among
    /// equals, the first found.
    fn coldest_around(&self, catalog: &Catalog, class: u32, object: ObjectId, start: usize) -> (usize, u32) {
        let is_cold = |object| self.heat(catalog, object) == Heat::Cold;
        let object_is_cold = is_cold(object);
        let mut best = (0, NIL);
        for reader in self.tasks.readers_around(object, start).take(SEED_READERS_MAX) {
            if reader.class != class {
                continue;
            }
            let id = reader.bundle;
            let (n_cold, n_inputs) = match reader.sole_other() {
                Some((other, _)) => (usize::from(object_is_cold) + usize::from(is_cold(other)), 2),
                None => (self.n_cold(catalog, id), self.tasks.inputs(id).len()),
            };
            if n_inputs < 2 {
                continue;
            }
            if best.1 == NIL || n_cold > best.0 {
                best = (n_cold, id);
                if n_cold == n_inputs {
                    break;
                }
            }
        }
        best
    }

    /// Whether the tasks of `bundle` have waited long enough for every input that `seat` lacks and other
    /// executors hold.
    fn may_copy(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, bundle: u32) -> bool {
        for i in 0..self.tasks.inputs(bundle).len() {
            let object = self.tasks.inputs(bundle)[i].object;
            let lacks = !self.executors.at(seat).has(catalog, seat, object)
                && self.heat(catalog, object) == Heat::Warm;
            if lacks && !self.has_waited(catalog, now, seat, object, bundle) {
                return false;
            }
        }
        true
    }

    /// A task that reads nothing but one object, which other executors hold or are reading. The object that
    /// most tasks per byte wait for comes first.
    fn steal(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        class: u32,
        heat: Heat,
    ) -> Option<Choice> {
        let mut at = self.tasks.classes[class as usize].single.first(heat);
        for _ in 0..self.config.tries {
            let entry = at?;
            at = self.tasks.classes[class as usize].single.after(&entry);
            let seated = self.executors.at(seat);
            // A short cut: `take_waiting` would find the same with more effort.
            if heat == Heat::Warm
                && !seated.wants_copies
                && !catalog.is_held_by(entry.object, seat)
                && !seated.awaits(entry.object)
            {
                continue;
            }
            let Some(bundle) = self.tasks.single(class, entry.object) else { continue };
            if let Some(choice) = self.take_waiting(catalog, now, seat, bundle) {
                return Some(choice);
            }
        }
        None
    }

    /// The first of the oldest tasks of a class that can go to `seat`.
    fn oldest(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, class: u32) -> Option<Choice> {
        let mut nodes = [NIL; OLDEST_MAX];
        let oldest = self.tasks.classes[class as usize].order.values();
        nodes.iter_mut().zip(oldest).for_each(|(to, node)| *to = *node);
        nodes.into_iter().take_while(|node| *node != NIL).find_map(|node| {
            let bundle = self.tasks.bundle_of_node(node);
            let choice = self.take_waiting(catalog, now, seat, bundle)?;
            Some(match choice.reason {
                Reason::Copied { .. } => choice,
                _ => Choice { reason: Reason::Oldest, ..choice },
            })
        })
    }

    /// `bundle` for `seat`, if every input that it lacks has a source, and is cold or has been waited for
    /// long enough.
    pub(super) fn take_waiting(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        bundle: u32,
    ) -> Option<Choice> {
        let seated = self.executors.at(seat);
        let (_, entered_ms) = self.tasks.head(bundle);
        let (mut lacks, mut held) = (false, None);
        for input in self.tasks.inputs(bundle) {
            // Every executor asks for the same few objects, so the lookup goes by object and not by seat.
            if catalog.is_held_by(input.object, seat) || seated.awaits(input.object) {
                continue;
            }
            lacks = true;
            if self.heat(catalog, input.object) == Heat::Warm {
                held = Some(input.object);
                break;
            }
        }
        let copies = held.is_some();
        if let Some(object) = held {
            // Most executors that find nothing stop here.
            if self.tasks.bundle(bundle).n_inputs == 1 && self.is_soon_done(catalog, now, seat, object)
                || !self.has_waited(catalog, now, seat, object, bundle)
                || self.uploads.is_busy(catalog, object) && !self.home_is_quicker(catalog, now, seat, object)
            {
                return None;
            }
        }
        if !lacks {
            // A hit that the hints missed, or a bundle that is about to become a hit.
            if self.tasks.inputs(bundle).iter().all(|e| holds(catalog, seat, e.object)) {
                self.push_full(seat, bundle);
            }
            return None;
        }
        if copies && !self.may_copy(catalog, now, seat, bundle) {
            return None;
        }
        if !self.plan_for(catalog, now, seat, bundle) {
            return None;
        }
        let waited_ms = wrapping_ms(now).wrapping_sub(entered_ms);
        let n_tasks = self.tasks.bundle(bundle).n_tasks;
        let reason = if copies { Reason::Copied { waited_ms } } else { Reason::Brings { n_tasks } };
        Some(Choice { bundle, reason })
    }

    // ---- reasons for not placing a task

    fn why_not(&self) -> Unplaced {
        let Some((key, class)) = self.tasks.first() else { return Unplaced::NothingReady };
        if self.n_executors() == 0 {
            return Unplaced::NoExecutor;
        }
        if self.executors.are_full() {
            return Unplaced::NoneFree;
        }
        self.why_not_task(key, class)
    }

    /// Why the task `key` of `class` is not placed although some executor has room for some task.
    pub(super) fn why_not_task(&self, key: QueueKey, class: u32) -> Unplaced {
        let class = &self.tasks.classes[class as usize];
        let (task, TaskSize { cpus, memory_bytes, needs }) = (key.task, class.size);
        let fits = |m: &SeatedExecutor| {
            cpus.max(1) <= m.room.slots_idle.max(m.room.moves)
                && memory_bytes <= m.room.memory_free_bytes
                && m.room.lacks & needs.bit() == 0
                && m.room.left.is_enough_for(class.lasts)
        };
        if !self.executors.iter().any(fits) {
            return Unplaced::NothingFits { task, cpus, memory_bytes };
        }
        match self.asking.next(&self.executors) {
            Some(_) => Unplaced::NotAsked { task },
            None => Unplaced::WaitingForCopy { task },
        }
    }

    pub(super) fn check(&self, catalog: &Catalog) {
        self.tasks.sanity_check(|object| self.heat(catalog, object));
        self.check_stocks(catalog);
        self.in_memory.sanity_check();
        let here = || {
            self.executors.by_seat.iter().enumerate().filter_map(|(s, m)| Some((Seat(s as u32), m.as_ref()?)))
        };
        assert_eq!(here().count(), self.executors.seat_of.len());
        assert_eq!(
            self.executors.n_slots_total,
            here().map(|(_, m)| u64::from(m.room.slots_total)).sum::<u64>()
        );
        assert_eq!(
            self.executors.n_slots_idle,
            here().map(|(_, m)| u64::from(m.room.slots_idle)).sum::<u64>()
        );
        let n_open = |m: &SeatedExecutor| m.room.slots_idle.saturating_sub(m.moving.cpus);
        assert!(here().all(|(_, m)| m.n_open == n_open(m)));
        assert_eq!(self.executors.n_slots_open, here().map(|(_, m)| u64::from(m.n_open)).sum::<u64>());
        assert_eq!(self.home.n_readers as usize, here().filter(|(_, m)| !m.home_reads.is_empty()).count());
        let mut uploads: BTreeMap<ExecutorId, BTreeMap<TaskId, u32>> = BTreeMap::new();
        let mut arriving: BTreeMap<ObjectId, u32> = BTreeMap::new();
        let mut n_waits = 0;
        for (seat, seated) in here() {
            assert!(self.executors.seats.contains(seat) && self.executors.seat_of[&seated.id] == seat);
            let mut moving: BTreeMap<TaskId, u32> = BTreeMap::new();
            for (object, coming) in &seated.coming {
                assert!(!holds(catalog, seat, *object), "{object:?} is here and on its way");
                assert!(!coming.tasks.is_empty());
                match coming.source {
                    Source::Peer(from) => {
                        let stays =
                            self.executors.seat_of.get(&from).map(|seat| self.executors.at(*seat).session);
                        if stays == Some(coming.session) {
                            *uploads.entry(from).or_default().entry(coming.begun_for).or_default() +=
                                coming.weight;
                        }
                    }
                    Source::Home => *arriving.entry(*object).or_default() += 1,
                }
                for task in &coming.tasks {
                    let attempt = &self.attempts[task];
                    assert!(attempt.executor == seated.id && attempt.waits.contains(object));
                    moving.insert(*task, attempt.size.cpus);
                    n_waits += 1;
                }
            }
            let moves = |reads: &[Direct]| reads[0].seat == seat && reads.iter().any(|read| !read.is_hit);
            for (task, reads) in &self.home.direct {
                if moves(reads) {
                    moving.insert(*task, self.attempts[task].size.cpus);
                }
            }
            assert_eq!(seated.moving.n_attempts as usize, moving.len());
            assert_eq!(seated.moving.cpus, moving.values().sum::<u32>());
            let making = moving.iter().filter(|(task, _)| self.attempts[*task].is_making);
            assert_eq!(seated.moving.making_cpus, making.map(|(_, cpus)| cpus).sum::<u32>());
            for rank in seated.near.iter().flatten() {
                rank.sanity_check();
            }
        }
        for attempt in self.attempts.values() {
            let only_made = attempt.n_direct == 0 && attempt.waits.iter().all(|o| is_made(catalog, *o));
            assert_eq!(attempt.is_making, only_made);
        }
        assert_eq!(n_waits, self.attempts.values().map(|a| a.waits.len()).sum::<usize>());
        let n_direct = self.home.direct.values().map(Vec::len).sum::<usize>() as u32;
        assert_eq!(n_direct, self.home.n_direct);
        assert_eq!(self.home.n, arriving.values().sum::<u32>() + n_direct);
        assert_eq!(self.home.arriving.len(), arriving.len());
        for (object, n) in &arriving {
            assert_eq!(self.home.arriving[object].n, *n);
        }
        for (seat, seated) in here() {
            let served = uploads.remove(&seated.id).unwrap_or_default();
            assert_eq!(self.uploads.of(seat), served.values().sum::<u32>());
            // The last attempt was accepted while the load was below full, whatever its own part.
            let last = served.values().max().copied().unwrap_or(0);
            assert!(
                served.values().sum::<u32>() < self.uploads.full + last.max(1),
                "{:?} serves {served:?}",
                seated.id
            );
        }
    }
}
