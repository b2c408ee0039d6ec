//! The rules, in the order of the module's header.

use super::super::{Reason, Rule, Stage};
use super::rank::{Heat, bucket_of};
use super::tasks::{Edge, NIL};
use super::*;

/// How many readers of a seed are looked at for one that is cold in all its inputs.
const SEED_READERS_MAX: usize = 64;
/// Inputs of a seed up to which one is exchanged for another: each is held against all others.
const EXCHANGED_MAX: usize = 64;
/// Of what a copy takes, one part in so many is waited until it is known how long programs run.
const FIRST_RUN_PART: f64 = 8.0;
/// How long programs are taken to run until one has ended.
const RUN_NS_ASSUMED: u64 = 100_000_000;
/// Up to so many objects on their way to an executor it is asked whether they are enough.
const COMING_MAX: usize = 16;
const TASK_PARTS: u64 = 1024;
/// Of so many objects it is known when a task that reads them was taken last.
const TAKEN_MAX: usize = 4096;
/// How many of the oldest tasks are looked at.
const OLDEST_MAX: usize = 16;
/// Executors that are too small for everything that is queued: how many are passed over at most, twice in a decision.
const UNFIT_MAX: usize = 64;

/// What fetching an object for an executor would give.
#[derive(Default)]
pub(super) struct Worth {
    /// Tasks that lack nothing else.
    pub n_tasks: u32,
    /// The oldest of them, and its group.
    oldest: Option<(TaskId, u32)>,
}

/// A task to be given, by its group.
struct Choice {
    group: u32,
    reason: Reason,
}

/// Whether there is room for a task of that size with inputs to move.
fn can_move(room: &Room, cpus: u32, memory_bytes: u64) -> bool {
    cpus.max(1) <= room.moves && memory_bytes <= room.memory_free_bytes
}

impl Affinity {
    pub(super) fn decide(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<(ExecutorId, Pick), Unplaced> {
        self.plan.task = None;
        for stage in [Stage::Idle, Stage::Ahead] {
            if let Some(found) = self.place_hit(catalog, stage) {
                return Ok(found);
            }
        }
        if let Some(found) = self.place_move(catalog, now) {
            return Ok(found);
        }
        Err(self.why_not())
    }

    fn pick(&self, catalog: &Catalog, seat: Seat, choice: &Choice, stage: Stage) -> (ExecutorId, Pick) {
        let inputs = self.tasks.inputs(choice.group);
        let n_hits = inputs.iter().filter(|e| catalog.is_held_by(e.object, seat)).count() as u32;
        let pick = Pick {
            key: self.tasks.key(choice.group),
            n_hits,
            n_inputs: inputs.len() as u32,
            rule: Rule::Affinity(choice.reason),
            stage,
        };
        (self.executor_at(seat).id, pick)
    }

    // ---- hits

    /// The executor with most room among those that have a hit.
    fn place_hit(&mut self, catalog: &Catalog, stage: Stage) -> Option<(ExecutorId, Pick)> {
        let mut tried = SeatSet::default();
        loop {
            let by_room = if stage == Stage::Idle { &self.by_idle } else { &self.by_ahead };
            let wanted = |seats: &SeatSet| {
                let words = seats.words().iter().zip(self.has_hits.words()).enumerate();
                let mut free =
                    words.map(|(i, (a, b))| (i, a & b & !tried.words().get(i).copied().unwrap_or(0)));
                free.find(|(_, w)| *w != 0).map(|(i, w)| Seat(i as u32 * 64 + w.trailing_zeros()))
            };
            let seat = by_room.values().rev().find_map(wanted)?;
            let (best, any) = self.best_hit(catalog, seat, stage);
            if let Some(group) = best {
                let n_inputs = self.tasks.group(group).n_inputs;
                let reason = if n_inputs == 0 { Reason::NoInputs } else { Reason::AllHere };
                return Some(self.pick(catalog, seat, &Choice { group, reason }, stage));
            }
            if any {
                tried.insert(seat);
            } else {
                self.has_hits.remove(seat);
            }
        }
    }

    /// The first group in queue order that is all on `seat` and fits there, and whether there is any that is.
    fn best_hit(&mut self, catalog: &Catalog, seat: Seat, stage: Stage) -> (Option<u32>, bool) {
        let mut best: Option<(QueueKey, u32)> = None;
        let mut any = false;
        for i in 0..self.tasks.class_order.len() {
            let c = self.tasks.class_order[i];
            let class = &self.tasks.classes[c as usize];
            let (priority, cpus, memory_bytes, free) =
                (class.priority, class.cpus, class.memory_bytes, class.free);
            if best.is_some_and(|(key, _)| key.priority > priority) {
                break;
            }
            let hit = self.oldest_full(catalog, seat, c);
            any |= hit.is_some() || free != NIL;
            if !self.executor_at(seat).room.fits(stage, cpus, memory_bytes) {
                continue;
            }
            for group in hit.into_iter().chain((free != NIL).then_some(free)) {
                let key = self.tasks.key(group);
                if best.is_none_or(|(first, _)| key < first) && !self.is_left(catalog, seat, group) {
                    best = Some((key, group));
                }
            }
        }
        (best.map(|(_, group)| group), any)
    }

    /// Whether `group`, all of which is on `seat`, is left to an open slot elsewhere: here it would wait for a slot, or take one from
    /// what is on its way, and what it reads is there sooner than a program ends.
    fn is_left(&self, catalog: &Catalog, seat: Seat, group: u32) -> bool {
        let class = &self.tasks.classes[self.tasks.group(group).class as usize];
        let (cpus, memory_bytes) = (class.cpus.max(1), class.memory_bytes);
        if !self.is_roomy() || self.executor_at(seat).n_open >= cpus {
            return false;
        }
        let copy_ns: f64 =
            self.tasks.inputs(group).iter().map(|e| self.copy_at_worst_ns(catalog, e.object)).sum();
        let has_room = |m: &SeatedExecutor| m.n_open >= cpus && m.room.memory_free_bytes >= memory_bytes;
        copy_ns < self.run_ns_expected() && self.seated.iter().flatten().any(has_room)
    }

    /// Whether all that is queued has room in slots that are idle and that nothing on its way will take.
    fn is_roomy(&self) -> bool {
        self.tasks.len() as u64 <= self.n_slots_open
    }

    /// Whether those who hold `object` have no slot for the tasks that wait for it, while others have slots for all that is queued.
    fn is_left_to_others(&self, catalog: &Catalog, object: ObjectId) -> bool {
        if !self.is_roomy() || self.copy_at_worst_ns(catalog, object) >= self.run_ns_expected() {
            return false;
        }
        let mut is_left = true;
        self.visit_holders(catalog, object, 0, |holder| {
            is_left = self.executor_at(holder).n_open == 0;
            if is_left { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        is_left
    }

    fn run_ns_expected(&self) -> f64 {
        self.run_ns.unwrap_or(RUN_NS_ASSUMED) as f64
    }

    /// The group of `class` with the oldest task of those that are all on `seat`; throws out what is stale before it.
    fn oldest_full(&mut self, catalog: &Catalog, seat: Seat, class: u32) -> Option<u32> {
        let (tasks, seated) =
            (&self.tasks, self.seated[seat.0 as usize].as_mut().expect("an executor has this seat"));
        let heap = &mut seated.full.get_mut(class as usize)?.heap;
        while let Some(&Reverse((task, group))) = heap.peek() {
            let is_full = tasks.is_group(group, class)
                && tasks.inputs(group).iter().all(|e| catalog.is_held_by(e.object, seat));
            let head = if is_full { Some(tasks.head(group).0) } else { None };
            if head == Some(task) {
                return Some(group);
            }
            while heap.peek() == Some(&Reverse((task, group))) {
                heap.pop();
            }
            if let Some(head) = head {
                heap.push(Reverse((head, group)));
            }
        }
        None
    }

    // ---- moves

    /// The executor with most to spare of those not asked since something changed, in turns among equals. One question in a
    /// decision goes to an executor that has not been asked in this round: whoever has most to spare is asked again and
    /// again as things change, and must not keep the others from being asked at all.
    fn place_move(&mut self, catalog: &Catalog, now: Timestamp) -> Option<(ExecutorId, Pick)> {
        let n_eager = self.config.vain_max.saturating_sub(1).max(1);
        let (mut n_vain, mut n_unfit) = (0, 0);
        while n_vain < n_eager
            && n_unfit < UNFIT_MAX
            && let Some(seat) = self.next_among(&self.to_ask)
        {
            if let Some(found) = self.ask(catalog, now, seat, &mut n_vain, &mut n_unfit) {
                return Some(found);
            }
        }
        n_unfit = 0;
        while n_vain <= n_eager
            && n_unfit < UNFIT_MAX
            && let Some(seat) = self.next_among(&self.not_asked)
        {
            if let Some(found) = self.ask(catalog, now, seat, &mut n_vain, &mut n_unfit) {
                return Some(found);
            }
        }
        if self.next_among(&self.not_asked).is_none() {
            // Whoever is left has no room.
            self.not_asked.clear();
        }
        None
    }

    /// What `seat` would move, if anything. Which executors are too small for all that is queued costs next to nothing to
    /// see, so they are counted apart.
    fn ask(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        n_vain: &mut usize,
        n_unfit: &mut usize,
    ) -> Option<(ExecutorId, Pick)> {
        self.not_asked.remove(seat);
        let room = self.executor_at(seat).room;
        let classes = || self.tasks.class_order.iter().map(|c| &self.tasks.classes[*c as usize]);
        if !classes().any(|class| can_move(&room, class.cpus, class.memory_bytes)) {
            *n_unfit += 1;
            self.to_ask.remove(seat);
            return None;
        }
        let Some(choice) = self.choose_move(catalog, now, seat) else {
            *n_vain += 1;
            self.to_ask.remove(seat);
            return None;
        };
        self.turn = seat.0 + 1;
        let seat = self.richest(catalog, now, seat, choice.group);
        let cpus = self.tasks.classes[self.tasks.group(choice.group).class as usize].cpus;
        let idle = cpus + self.executor_at(seat).moving.cpus <= self.executor_at(seat).room.slots_idle;
        let stage = if idle { Stage::Idle } else { Stage::Ahead };
        Some(self.pick(catalog, seat, &choice, stage))
    }

    /// Who holds most bytes of what `group` reads and has room for it; `asked` where nobody holds more than that one.
    /// The plan is that of the answer.
    fn richest(&mut self, catalog: &Catalog, now: Timestamp, asked: Seat, group: u32) -> Seat {
        let is_lacking = |e: &&Edge| !self.executor_at(asked).has(catalog, asked, e.object);
        if self.tasks.inputs(group).iter().filter(is_lacking).take(2).count() < 2 {
            return asked;
        }
        let mut bytes: BTreeMap<Seat, u64> = BTreeMap::new();
        let mut holders = vec![];
        for input in self.tasks.inputs(group) {
            self.some_holders(catalog, input.object, spread(asked, input.object), &mut holders);
            let size_bytes = self.size_of(catalog, input.object);
            holders.iter().for_each(|seat| *bytes.entry(*seat).or_default() += size_bytes);
        }
        let class = &self.tasks.classes[self.tasks.group(group).class as usize];
        let (cpus, memory_bytes) = (class.cpus.max(1), class.memory_bytes);
        let here = bytes.get(&asked).copied().unwrap_or(0);
        let fits = |seat: Seat| {
            let seated = self.executor_at(seat);
            cpus <= seated.room.moves.min(seated.room.slots_idle.saturating_sub(seated.moving.cpus))
                && memory_bytes <= seated.room.memory_free_bytes
        };
        let richer = bytes.iter().filter(|(seat, held)| **held > here && fits(**seat));
        let Some((&best, _)) = richer.max_by_key(|(seat, held)| (**held, Reverse(**seat))) else {
            return asked;
        };
        if self.plan_for(catalog, now, best, group) {
            return best;
        }
        let planned = self.plan_for(catalog, now, asked, group);
        debug_assert!(planned, "it was chosen for that executor");
        asked
    }

    /// The executor of `seats` with most to spare.
    pub(super) fn next_among(&self, seats: &SeatSet) -> Option<Seat> {
        let (word, bit) = (self.turn as usize / 64, self.turn % 64);
        let to_ask = seats.words();
        self.by_spare.values().rev().find_map(|seats| {
            let both = |i: usize| seats.words().get(i).unwrap_or(&0) & to_ask.get(i).unwrap_or(&0);
            let n = seats.words().len().min(to_ask.len());
            let seat_in = |i: usize, mask: u64| {
                let w = both(i) & mask;
                (w != 0).then(|| Seat(i as u32 * 64 + w.trailing_zeros()))
            };
            let after =
                seat_in(word, u64::MAX << bit).or_else(|| (word + 1..n).find_map(|i| seat_in(i, u64::MAX)));
            after.or_else(|| (0..n.min(word + 1)).find_map(|i| seat_in(i, u64::MAX)))
        })
    }

    fn choose_move(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat) -> Option<Choice> {
        if self.is_served(catalog, seat) {
            return None;
        }
        self.settle_wants(catalog, seat);
        self.executor_at_mut(seat).tell();
        let every = self.config.oldest_every;
        let oldest_first = every > 0 && self.executor_at(seat).n_moves % every == every - 1;
        for i in 0..self.tasks.class_order.len() {
            let c = self.tasks.class_order[i];
            let (class, room) = (&self.tasks.classes[c as usize], self.executor_at(seat).room);
            if !can_move(&room, class.cpus, class.memory_bytes) {
                continue;
            }
            if oldest_first && let Some(choice) = self.oldest(catalog, now, seat, c) {
                return Some(choice);
            }
            let near = self.best_near(catalog, now, seat, c);
            let cold = self.best_cold(catalog, now, seat, c);
            let best = match (near, cold) {
                (Some(near), Some(cold)) => Some(if near.0 >= cold.0 { near } else { cold }),
                (near, cold) => near.or(cold),
            };
            let has_near = self
                .executor_at(seat)
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
                // The plan is that of the last group looked at.
                let planned = self.plan_for(catalog, now, seat, choice.group);
                debug_assert!(planned, "a group is only chosen when all its inputs have a route");
                return Some(choice);
            }
        }
        None
    }

    /// Whether what is on its way to `seat` will give its slots enough to do: more at once would only make that come later.
    #[allow(clippy::disallowed_methods, reason = "a sum of integers is the same in any order")]
    fn is_served(&self, catalog: &Catalog, seat: Seat) -> bool {
        let seated = self.executor_at(seat);
        if !(1..=COMING_MAX).contains(&seated.coming.len()) {
            return false;
        }
        // In parts of a task, as the order of a map must not matter.
        let parts: u64 = seated
            .coming
            .iter()
            .map(|(object, coming)| {
                let n_nodes =
                    catalog.n_holders(*object) + self.arriving.get(object).map_or(0, |a| a.n as usize);
                let n_tasks = self.tasks.n_tasks_reading_only(*object);
                (n_tasks * TASK_PARTS) / n_nodes.max(1) as u64 + coming.tasks.len() as u64 * TASK_PARTS
            })
            .sum();
        parts >= u64::from(seated.room.slots_total) * TASK_PARTS
    }

    /// What `object` would give on `seat`, by looking at its readers.
    pub(super) fn recount(&self, catalog: &Catalog, seat: Seat, class: u32, object: ObjectId) -> Worth {
        let seated = self.executor_at(seat);
        let mut worth = Worth::default();
        for reader in self.tasks.readers_around(object, 0).take(self.config.readers_max) {
            if reader.class != class
                || reader.sole_other().is_some_and(|(other, _)| !seated.has(catalog, seat, other))
            {
                continue;
            }
            let id = reader.group;
            let group = self.tasks.group(id);
            if group.n_inputs < 2 {
                continue;
            }
            let mut others = self.tasks.inputs(id).iter().filter(|e| e.object != object);
            if others.all(|e| seated.has(catalog, seat, e.object)) {
                worth.n_tasks += group.n_tasks;
                let (task, _) = self.tasks.head(id);
                if worth.oldest.is_none_or(|(oldest, _)| task < oldest) {
                    worth.oldest = Some((task, id));
                }
            }
        }
        worth
    }

    /// A copy takes disks and links from both ends: who has idle slots or few hits left wants one.
    fn settle_wants(&mut self, catalog: &Catalog, seat: Seat) {
        let (tasks, seated) =
            (&self.tasks, self.seated[seat.0 as usize].as_mut().expect("an executor has this seat"));
        seated.wants_copies = seated.room.slots_idle > seated.moving.cpus;
        let enough = self.config.hits_enough.saturating_mul(seated.room.slots_total as usize);
        let mut n_hits = 0;
        for (class, full) in seated.full.iter_mut().enumerate().filter(|_| !seated.wants_copies) {
            // Long lists are taken at their word.
            if (enough..enough.saturating_mul(4)).contains(&full.heap.len()) {
                full.heap.retain(|Reverse((_, group))| {
                    tasks.is_group(*group, class as u32)
                        && tasks.inputs(*group).iter().all(|e| holds(catalog, seat, e.object))
                });
            }
            n_hits += full.heap.len();
        }
        seated.wants_copies |= n_hits < enough;
    }

    /// Whether `object` is free to be copied to `seat` for a task of that age: others may be about to run it.
    fn has_waited(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        object: ObjectId,
        group: u32,
    ) -> bool {
        if !self.executor_at(seat).wants_copies {
            return false;
        }
        if self.is_past_copies(catalog, seat, object) || self.is_left_to_others(catalog, object) {
            return true;
        }
        let (_, entered_ms) = self.tasks.head(group);
        let waited_ms = transfers::wrapping_ms(now).wrapping_sub(entered_ms);
        let after_ns = self.steal_after_ns(catalog, object);
        let rest_ns = after_ns - f64::from(waited_ms) * 1e6;
        if rest_ns >= 0.0 && self.is_whole_anywhere(catalog, group) {
            self.note_due(now, rest_ns);
            return false;
        }
        true
    }

    /// Whether any executor has all that `group` reads, or will have it. Where none does, nobody runs it before something is copied.
    fn is_whole_anywhere(&self, catalog: &Catalog, group: u32) -> bool {
        let inputs = self.tasks.inputs(group);
        let by_holders = |e: &&Edge| (catalog.n_holders(e.object), e.object);
        let Some(rarest) = inputs.iter().min_by_key(by_holders).map(|e| e.object) else { return true };
        // Nobody holds what is read from home just now, but somebody is about to.
        if inputs.len() < 2 || catalog.n_holders(rarest) == 0 {
            return true;
        }
        let mut is_whole = false;
        self.visit_holders(catalog, rarest, 0, |seat| {
            is_whole = inputs.iter().all(|e| self.executor_at(seat).has(catalog, seat, e.object));
            if is_whole { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        is_whole
    }

    /// Whether those who hold `object` will have run all tasks that read nothing else before a copy of it could be of use.
    fn is_soon_done(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, object: ObjectId) -> bool {
        if self.is_past_copies(catalog, seat, object) || self.is_left_to_others(catalog, object) {
            return false;
        }
        let copy_ns = self.copy_use_ns(catalog, object);
        let n_tasks = self.tasks.n_tasks_reading(object);
        let awaits_ns = match self.run_ns {
            Some(run_ns) => {
                let slots = self.n_slots_total as f64 / self.is_seated.len().max(1) as f64;
                let rounds = n_tasks as f64 / (catalog.n_holders(object) as f64 * slots).max(1.0);
                if rounds * run_ns as f64 >= copy_ns {
                    return false;
                }
                copy_ns + 2.0 * run_ns as f64
            }
            // Nobody knows how long they take: one of them is waited for, but only for a part of what a copy takes.
            None => self.steal_after_ns(catalog, object) / FIRST_RUN_PART,
        };
        // Holders may have no room, or be slower than others: they are awaited as long as they take one after the other.
        if self.taken.len() >= TAKEN_MAX {
            self.taken.clear();
        }
        let (since, n_before) = self.taken.entry(object).or_insert((now, n_tasks));
        if n_tasks != *n_before {
            (*since, *n_before) = (now, n_tasks);
        }
        let rest_ns = awaits_ns - now.since_ns(*since) as f64;
        if rest_ns >= 0.0 {
            self.note_due(now, rest_ns);
        }
        rest_ns >= 0.0
    }

    /// Time alone makes an answer another one, so much later.
    pub(super) fn note_due(&mut self, now: Timestamp, after_ns: f64) {
        let at = now.plus_ns(after_ns.clamp(0.0, 1e18) as u64 + 1_000_000);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Lazy greedy: what is known of an entry is an upper bound, so the first one that keeps its place when its readers are
    /// counted is the best.
    fn best_near(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        class: u32,
    ) -> Option<(u16, Choice)> {
        let mut at = self.executor_at(seat).near.get(class as usize)?.as_ref()?.first(Heat::Cold);
        let mut best: Option<(u16, Choice)> = None;
        for _ in 0..self.config.tries {
            let Some(entry) = at else { break };
            if best.as_ref().is_some_and(|(bucket, _)| *bucket >= entry.bucket) {
                break;
            }
            let object = entry.object;
            let near = self.executor_at(seat).near[class as usize].as_ref().expect("it has an entry");
            at = near.after(&entry);
            let is_here = self.executor_at(seat).has(catalog, seat, object);
            let is_warm = self.heat(catalog, object) == Heat::Warm;
            // Before the readers are counted, which costs more than anything else here.
            if is_warm && !is_here && !self.executor_at(seat).wants_copies {
                continue;
            }
            if !is_here && self.route(catalog, now, seat, object).is_none() {
                continue;
            }
            let worth = if is_here { Worth::default() } else { self.recount(catalog, seat, class, object) };
            let size_bytes = self.size_of(catalog, object);
            if worth.n_tasks != entry.n_tasks {
                let rank = self.executor_at_mut(seat).near[class as usize].as_mut().expect("it has an entry");
                rank.set(object, worth.n_tasks, size_bytes, Heat::Cold);
                // Its neighbours have changed, and the list may be gone.
                at = at.and_then(|next| rank.get(next.object).copied());
            }
            let Some((_, group)) = worth.oldest else { continue };
            if is_warm && !self.has_waited(catalog, now, seat, object, group) {
                continue;
            }
            let bucket = bucket_of(worth.n_tasks, size_bytes);
            if best.as_ref().is_none_or(|(other, _)| bucket > *other) {
                best = Some((bucket, Choice { group, reason: Reason::Brings { n_tasks: worth.n_tasks } }));
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
        let group = self.tasks.single(class, entry.object)?;
        Some((entry.bucket, Choice { group, reason: Reason::Brings { n_tasks: entry.n_tasks } }))
    }

    /// A group to begin with. Places in the queue are tried in an order that covers it evenly, whatever its structure;
    /// then the objects of that heat that most tasks read.
    fn seed(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        class: u32,
        heat: Heat,
    ) -> Option<Choice> {
        let seed = |group| Choice { group, reason: Reason::Seed };
        self.tasks.classes[class as usize].multi.first(heat)?;
        let mut least_cold = None;
        for _ in 0..self.config.tries {
            self.n_seeds = self.n_seeds.wrapping_add(1);
            let part = self.n_seeds.wrapping_mul(0x9E37_79B9);
            let Some(mut group) = self.tasks.group_at(class, part) else { break };
            if self.tasks.group(group).n_inputs < 2 {
                continue;
            }
            let inputs: Vec<ObjectId> = match self.tasks.inputs(group) {
                inputs if inputs.len() <= EXCHANGED_MAX => inputs.iter().map(|e| e.object).collect(),
                _ => Vec::new(),
            };
            for input in inputs {
                // Unless it has been exchanged for one without this input.
                if self.tasks.inputs(group).iter().all(|e| e.object != input) {
                    continue;
                }
                let others = self.tasks.inputs(group).iter().filter(|e| e.object != input);
                let cold = others.filter(|e| self.heat(catalog, e.object) == Heat::Cold).count();
                if heat == Heat::Cold && cold + 1 < self.tasks.inputs(group).len() {
                    group =
                        self.coldest_around(catalog, class, input, self.tasks.place_among(input, group)).1;
                }
            }
            let n_cold = self.n_cold(catalog, group);
            let is_all = n_cold == self.tasks.inputs(group).len();
            let may = if heat == Heat::Cold { n_cold > 0 } else { self.may_copy(catalog, now, seat, group) };
            if may && self.lacks_any(catalog, seat, group) && self.plan_for(catalog, now, seat, group) {
                if is_all || heat != Heat::Cold {
                    return Some(seed(group));
                }
                least_cold = least_cold.or(Some(group));
            }
        }
        if let Some(group) = least_cold {
            return Some(seed(group));
        }
        let mut at = self.tasks.classes[class as usize].multi.first(heat);
        for _ in 0..self.config.tries {
            let entry = at?;
            at = self.tasks.classes[class as usize].multi.after(&entry);
            let start = spread(seat, entry.object) % self.tasks.readers(entry.object).len();
            let (_, group) = self.coldest_around(catalog, class, entry.object, start);
            if group == NIL || !self.lacks_any(catalog, seat, group) {
                continue;
            }
            let may = heat == Heat::Cold || self.may_copy(catalog, now, seat, group);
            if may && self.plan_for(catalog, now, seat, group) {
                return Some(seed(group));
            }
        }
        None
    }

    /// Otherwise it is a hit, or about to become one.
    fn lacks_any(&self, catalog: &Catalog, seat: Seat, group: u32) -> bool {
        let seated = self.executor_at(seat);
        self.tasks.inputs(group).iter().any(|e| !seated.has(catalog, seat, e.object))
    }

    fn n_cold(&self, catalog: &Catalog, group: u32) -> usize {
        self.tasks.inputs(group).iter().filter(|e| self.heat(catalog, e.object) == Heat::Cold).count()
    }

    /// The reader of `object` with most cold inputs, the first one found, and their number.
    fn coldest_around(&self, catalog: &Catalog, class: u32, object: ObjectId, start: usize) -> (usize, u32) {
        let is_cold = |object| self.heat(catalog, object) == Heat::Cold;
        let object_is_cold = is_cold(object);
        let mut best = (0, NIL);
        for reader in self.tasks.readers_around(object, start).take(SEED_READERS_MAX) {
            if reader.class != class {
                continue;
            }
            let id = reader.group;
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

    /// Whether all that `seat` lacks of `group` and others hold has been waited for.
    fn may_copy(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, group: u32) -> bool {
        for i in 0..self.tasks.inputs(group).len() {
            let object = self.tasks.inputs(group)[i].object;
            let lacks = !self.executor_at(seat).has(catalog, seat, object)
                && self.heat(catalog, object) == Heat::Warm;
            if lacks && !self.has_waited(catalog, now, seat, object, group) {
                return false;
            }
        }
        true
    }

    /// What others hold or read and tasks read alone, the most waited for first.
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
            let seated = self.executor_at(seat);
            // What would be found out at length.
            if heat == Heat::Warm
                && !seated.wants_copies
                && !catalog.is_held_by(entry.object, seat)
                && !seated.awaits(entry.object)
            {
                continue;
            }
            let Some(group) = self.tasks.single(class, entry.object) else { continue };
            if let Some(choice) = self.take_waiting(catalog, now, seat, group) {
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
            let group = self.tasks.group_of_node(node);
            let choice = self.take_waiting(catalog, now, seat, group)?;
            Some(match choice.reason {
                Reason::Copied { .. } => choice,
                _ => Choice { reason: Reason::Oldest, ..choice },
            })
        })
    }

    /// `group` for `seat`, if what it lacks can be had and is cold or has been waited for.
    fn take_waiting(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, group: u32) -> Option<Choice> {
        let seated = self.executor_at(seat);
        let (_, entered_ms) = self.tasks.head(group);
        let (mut lacks, mut held) = (false, None);
        for input in self.tasks.inputs(group) {
            // The same few objects are asked for by everybody.
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
            // What most of those find who ask in vain.
            if self.tasks.group(group).n_inputs == 1 && self.is_soon_done(catalog, now, seat, object)
                || !self.has_waited(catalog, now, seat, object, group)
                || self.is_busy(catalog, object) && !self.home_is_quicker(catalog, now, seat, object)
            {
                return None;
            }
        }
        if !lacks {
            // A hit that was not told, or one that is about to become one.
            if self.tasks.inputs(group).iter().all(|e| holds(catalog, seat, e.object)) {
                self.push_full(seat, group);
            }
            return None;
        }
        if copies && !self.may_copy(catalog, now, seat, group) {
            return None;
        }
        if !self.plan_for(catalog, now, seat, group) {
            return None;
        }
        let waited_ms = transfers::wrapping_ms(now).wrapping_sub(entered_ms);
        let n_tasks = self.tasks.group(group).n_tasks;
        let reason = if copies { Reason::Copied { waited_ms } } else { Reason::Brings { n_tasks } };
        Some(Choice { group, reason })
    }

    // ---- no

    fn why_not(&self) -> Unplaced {
        let Some((key, class)) = self.tasks.first() else { return Unplaced::NothingReady };
        if self.n_executors() == 0 {
            return Unplaced::NoExecutor;
        }
        if self.by_idle.is_empty() && self.by_ahead.is_empty() && self.by_spare.is_empty() {
            return Unplaced::NoneFree;
        }
        self.why_not_task(key, class)
    }

    /// Why the task with that key, of `class`, is not placed although somebody has room for something.
    pub(super) fn why_not_task(&self, key: QueueKey, class: u32) -> Unplaced {
        let class = &self.tasks.classes[class as usize];
        let (task, cpus, memory_bytes) = (key.task, class.cpus, class.memory_bytes);
        let fits = |m: &SeatedExecutor| {
            cpus.max(1) <= m.room.slots_idle.max(m.room.moves) && memory_bytes <= m.room.memory_free_bytes
        };
        if !self.seated.iter().flatten().any(fits) {
            return Unplaced::NothingFits { task, cpus, memory_bytes };
        }
        match self.next_among(&self.to_ask).or_else(|| self.next_among(&self.not_asked)) {
            Some(_) => Unplaced::NotAsked { task },
            None => Unplaced::WaitingForCopy { task },
        }
    }

    #[cfg(any(test, feature = "reference"))]
    pub(super) fn check(&self, catalog: &Catalog) {
        self.tasks.sanity_check(|object| self.heat(catalog, object));
        let here = || self.seated.iter().enumerate().filter_map(|(s, m)| Some((Seat(s as u32), m.as_ref()?)));
        assert_eq!(here().count(), self.seat_of.len());
        assert_eq!(self.n_slots_total, here().map(|(_, m)| u64::from(m.room.slots_total)).sum::<u64>());
        assert_eq!(self.n_slots_idle, here().map(|(_, m)| u64::from(m.room.slots_idle)).sum::<u64>());
        let n_open = |m: &SeatedExecutor| m.room.slots_idle.saturating_sub(m.moving.cpus);
        assert!(here().all(|(_, m)| m.n_open == n_open(m)));
        assert_eq!(self.n_slots_open, here().map(|(_, m)| u64::from(m.n_open)).sum::<u64>());
        assert_eq!(self.n_readers as usize, here().filter(|(_, m)| !m.home_reads.is_empty()).count());
        let mut uploads: BTreeMap<ExecutorId, BTreeMap<TaskId, u32>> = BTreeMap::new();
        let mut arriving: BTreeMap<ObjectId, u32> = BTreeMap::new();
        let mut n_waits = 0;
        for (seat, seated) in here() {
            assert!(self.is_seated.contains(seat) && self.seat_of[&seated.id] == seat);
            let mut moving: BTreeMap<TaskId, u32> = BTreeMap::new();
            for (object, coming) in &seated.coming {
                assert!(!holds(catalog, seat, *object), "{object:?} is here and on its way");
                assert!(!coming.tasks.is_empty());
                match coming.source {
                    Source::Peer(from) => {
                        let stays = self.seat_of.get(&from).map(|seat| self.executor_at(*seat).session);
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
                    moving.insert(*task, attempt.cpus);
                    n_waits += 1;
                }
            }
            let moves = |reads: &[Direct]| reads[0].seat == seat && reads.iter().any(|read| !read.is_hit);
            for (task, reads) in &self.direct {
                if moves(reads) {
                    moving.insert(*task, self.attempts[task].cpus);
                }
            }
            assert_eq!(seated.moving.n_attempts as usize, moving.len());
            assert_eq!(seated.moving.cpus, moving.values().sum::<u32>());
            for rank in seated.near.iter().flatten() {
                rank.sanity_check();
            }
        }
        assert_eq!(n_waits, self.attempts.values().map(|a| a.waits.len()).sum::<usize>());
        let n_direct = self.direct.values().map(Vec::len).sum::<usize>() as u32;
        assert_eq!(n_direct, self.n_direct);
        assert_eq!(self.n_home_reads, arriving.values().sum::<u32>() + n_direct);
        assert_eq!(self.arriving.len(), arriving.len());
        for (object, n) in &arriving {
            assert_eq!(self.arriving[object].n, *n);
        }
        for (seat, seated) in here() {
            let served = uploads.remove(&seated.id).unwrap_or_default();
            assert_eq!(self.uploads[seat.0 as usize], served.values().sum::<u32>());
            // The last one began when there was room for any part of an attempt.
            let last = served.values().max().copied().unwrap_or(0);
            assert!(
                served.values().sum::<u32>() < self.uploads_full() + last.max(1),
                "{:?} serves {served:?}",
                seated.id
            );
        }
    }
}
