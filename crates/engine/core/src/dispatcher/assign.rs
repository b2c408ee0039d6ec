//! Ready tasks are given to executors with room until nothing more can be placed.
//!
//! The policy chooses the executor ([`crate::placement`]). This module has the rules that are the same for
//! all policies: how much room an executor has; that a task whose input another node is reading from home
//! waits for a while behind a task that can start; and what an executor is told of each input (its bytes, and
//! which executors hold it).

use super::attempts::DISK_SHARED_MAX;
use super::{
    ArrayState, Attempts, Dispatcher, DispatcherConfig, ExecutorState, Executors, Missing, Ready, Reserved,
    Residents, SEARCH_REST, Schedule, Workload,
};
use crate::event::{Action, AssignedInput, Assignment, Making, Source, Why};
use crate::placement::{Mode, Pick, QueueKey, Room, Route, Rule, Stage, TaskSize, Unplaced};
use eyas_terms::location::{MadeLocation, is_made_tree};
use eyas_terms::{AttemptNo, ExecutorId, Failure, FailureKind, ObjectId, Outcome, RunId, TaskId, Timestamp};
use eyas_text::shown;

/// Work that an executor should have beyond what its slots run, so that it never waits for a message.
const AHEAD_NS: u64 = 30_000_000;
/// The largest number of attempts that one executor is given beyond its slots.
const AHEAD_MAX: u32 = 512;
/// The largest number of attempts that all executors together are given beyond their slots, apart from one for each
/// slot. That is about what a dispatcher does in half a second. What is given ahead costs it memory, and the reports of
/// one executor wait behind those of all others, so more would only make every message late.
const AHEAD_ALL_MAX: u32 = 1 << 16;
/// An executor is given ahead at most so many times the number of tasks that it has run, once that is more than [`STOCK_FIRST`]: the first
/// of them may be the shortest by far.
const STOCK_GROWTH: u64 = 2;
/// So many it may be given in any case: a node where tasks fail before they run rests after what it was given at once.
const STOCK_FIRST: u64 = 64;
/// An executor that has less than this many times the time of one task left is given nothing ahead.
const STOCK_PART: u64 = 4;
/// How many tasks at most are put aside in the search for a task whose inputs are not on their way to another
/// node.
const ASIDE_MAX: usize = 128;
const SEARCH_REST_MAX: u32 = 4096;
/// The largest number of holders named per input. An executor would try further holders only after these have
/// failed.
pub(super) const SOURCES_MAX: usize = 3;

impl Schedule {
    /// The policy's choice, with one exception: a task that lacks inputs which another executor is about to
    /// read from home comes after tasks that lack fewer of them. A moment later such an input is a hit there, and
    /// home is read once. No executor stays idle for this: where there is no other task to place, the task is placed.
    fn choose(
        &mut self,
        work: &mut Workload,
        config: &DispatcherConfig,
        now: Timestamp,
        picks: &mut Vec<Pick>,
    ) -> Result<ExecutorId, Unplaced> {
        let first = self.ready.queue.place(&work.catalog, now, picks);
        let (Ok(executor), [pick]) = (&first, &picks[..]) else { return first };
        let awaits = config.placement_config.await_arriving && self.ready.queue.bears_asides();
        if !awaits || self.attempts.arriving.is_empty() {
            return first;
        }
        let mut other = (*executor, *pick);
        let mut n_arriving = self.attempts.n_arriving(work, other.0, other.1);
        if n_arriving == 0 {
            return first;
        }
        if self.ready.n_skips > 0 {
            self.ready.n_skips -= 1;
            return first;
        }
        let mut best = (n_arriving, other);
        let mut aside = vec![];
        while n_arriving > 0 && aside.len() < ASIDE_MAX {
            self.leave_queue(work, other.1.key);
            aside.push(other.1.key);
            match (self.ready.queue.place(&work.catalog, now, picks), &picks[..]) {
                (Ok(executor), [pick]) => other = (executor, *pick),
                _ => break,
            }
            n_arriving = self.attempts.n_arriving(work, other.0, other.1);
            if n_arriving < best.0 {
                best = (n_arriving, other);
            }
        }
        // A search that saw all tasks was short, and the queue's end is near.
        let is_cut_off = aside.len() == ASIDE_MAX;
        for key in aside {
            let (array, i) = work.tasks.locate(key.task);
            self.unfold(work, now, key, array, i);
        }
        if best.0 == 0 {
            self.ready.n_skips_next = SEARCH_REST;
        } else if is_cut_off {
            self.ready.n_skips = self.ready.n_skips_next;
            self.ready.n_skips_next = (self.ready.n_skips_next * 2).min(SEARCH_REST_MAX);
        }
        picks.clear();
        picks.push(best.1.1);
        Ok(best.1.0)
    }

    /// Decides whether executors are given tasks ahead. The last tasks go to whichever executor is free
    /// first, not into one executor's stock. Two different bounds keep the decision from changing with every
    /// task, as each change updates the room of all executors.
    fn settle_stock(&mut self, work: &Workload) {
        let n_slots = self.ready.queue.n_slots_total();
        let stock = self.ready.n_tasks > if self.ready.may_stock { n_slots } else { 2 * n_slots };
        if stock != self.ready.may_stock {
            self.ready.may_stock = stock;
            for executor in self.executors.by_id.keys().copied().collect::<Vec<_>>() {
                self.update_room(work, executor);
            }
        }
    }

    /// From now on the task takes room of this executor, and its inputs that nobody has are about to be read there.
    fn reserve_for(
        &mut self,
        work: &mut Workload,
        now: Timestamp,
        executor: ExecutorId,
        assignment: &Assignment,
    ) {
        let Assignment { task, attempt, inputs, outputs, staying, .. } = assignment;
        let TaskSize { cpus, memory_bytes, needs } = work.tasks.size_of(*task);
        let mut reads_first = vec![];
        for input in inputs.iter().filter(|i| !i.direct) {
            if work.catalog.n_holders(input.object) == 0
                && !self.attempts.arriving.contains_key(&input.object)
            {
                self.attempts.arriving.insert(input.object, executor);
                reads_first.push(input.object);
            }
        }
        let r = Reserved {
            executor,
            attempt: *attempt,
            cpus,
            memory_bytes,
            needs,
            landing: false,
            cancelling: false,
            given: self.attempts.n_given,
            given_at: now,
            recalled: false,
            adopted: false,
            asks_home: inputs.iter().any(|i| i.check_home || i.known.is_none()),
            suspect: false,
            outputs: outputs.clone(),
            lands: staying.len() < outputs.len(),
            reads_first,
        };
        self.reserve(work, *task, r);
    }

    /// Changes an executor's load, and updates everything that is computed from it.
    pub(super) fn change_load(
        &mut self,
        work: &Workload,
        executor: ExecutorId,
        change: impl FnOnce(&mut ExecutorState),
    ) {
        let Some(e) = self.executors.by_id.get_mut(&executor) else { return };
        change(e);
        self.update_room(work, executor);
    }

    pub(super) fn update_room(&mut self, work: &Workload, executor: ExecutorId) {
        let Some(e) = self.executors.by_id.get(&executor) else { return };
        if !e.is_connected() {
            // The executor gets no tasks, and no task waits for it; its replicas may still be fetched.
            if self.ready.queue.room(executor).is_some() {
                let objects = work.catalog.objects_on(executor);
                self.ready.queue.executor_left(&work.catalog, executor, &objects);
            }
            return;
        }
        self.ready.queue.executor_joined(&work.catalog, executor);
        let slots = e.offer.slots;
        let n_executors = self.executors.by_id.len() as u32;
        let stock = match e.run_ns_mean {
            // At least one attempt per slot, and as many as keep the executor busy while a message is on its
            // way.
            Some(ns) => (u64::from(slots) * AHEAD_NS / ns.max(1))
                .min(u64::from(AHEAD_MAX.min(AHEAD_ALL_MAX / n_executors)))
                .min(STOCK_FIRST.max(STOCK_GROWTH * u64::from(e.n_runs)))
                .max(u64::from(slots)) as u32,
            None => slots,
        };
        let is_well = e.sick_until.is_none();
        // Near its end an executor gets nothing ahead: what waits there for a slot would begin too late.
        let has_time = e.left_ns / STOCK_PART > e.run_ns_mean.unwrap_or(0);
        let may_stock = has_time && self.ready.may_stock && self.ready.ahead;
        // Attempts whose inputs are still moving take no slot from attempts that can run.
        let moving = self.ready.queue.moving(executor);
        let cpus_here = e.cpus_assigned - moving.cpus;
        // While the node unpacks what has come, its link may bring the next. What waits to be unpacked has a bound, too.
        let link_is_free = moving.cpus - moving.making_cpus < slots && moving.cpus < 2 * slots;
        // Where links between sites are slow, a tile rather waits for a node of a site that has its files.
        // What is unpacked has to set out so early that the stock lasts until it is unpacked.
        let comes_late = e.comes_late(slots + stock) || e.is_made_late(stock);
        let waits = self.ready.has_sites && self.ready.queue.begins_with_tiles();
        let early = if comes_late && !waits { slots } else { 0 };
        let moves = match may_stock {
            true if moving.unseen => (slots + stock).saturating_sub(e.cpus_assigned).min(slots),
            // Attempts whose inputs have arrived and that wait for a slot count as stock. Where inputs take longer to come than
            // the programs of a full stock run, they set out before there is room for them.
            true if link_is_free && cpus_here < slots + stock + early => slots,
            true => 0,
            false => slots.saturating_sub(e.cpus_assigned),
        };
        let mut room = Room {
            slots_total: slots,
            slots_idle: slots.saturating_sub(cpus_here),
            memory_total_bytes: e.offer.memory_bytes,
            ahead: if may_stock { (slots + stock).saturating_sub(cpus_here.max(slots)) } else { 0 },
            memory_free_bytes: e.offer.memory_bytes.saturating_sub(e.memory_assigned),
            moves,
            rests: !is_well,
            left: e.left,
            ..Room::default()
        };
        if !is_well {
            (room.slots_idle, room.ahead, room.moves) = (0, 0, 0);
        }
        if !self.executors.resources.is_empty() {
            self.executors.resources.settle_room(executor, e, &mut room);
        }
        self.ready.queue.set_room(executor, room);
    }
}

impl Attempts {
    /// How many inputs that `pick` lacks on `executor` are on their way from home to another executor.
    fn n_arriving(&self, work: &mut Workload, executor: ExecutorId, pick: Pick) -> usize {
        if pick.n_hits >= pick.n_inputs {
            return 0;
        }
        let (array, i) = work.tasks.locate(pick.key.task);
        let array = work.tasks.arrays[array.0 as usize].array.clone();
        let inputs = work.inputs_of(work.tasks.run_of(pick.key.task), &array, i);
        inputs.iter().filter(|o| self.arriving.get(o).is_some_and(|reader| *reader != executor)).count()
    }
}

impl Ready {
    /// Finds a task, anywhere in the queue, that waits for holders which are all too small for it or rest,
    /// and an idle executor that can run it.
    fn find_stranded(&self, work: &Workload) -> Option<(ExecutorId, Pick)> {
        let (able, key) = self.queue.find_stranded()?;
        let (array, _) = work.tasks.locate(key.task);
        let n_inputs = work.tasks.arrays[array.0 as usize].array.template.inputs.len() as u32;
        let rule = Rule::Paper(Mode::MaxComputeUtil);
        Some((able, Pick { key, n_hits: 0, n_inputs, rule, stage: Stage::Idle }))
    }

    /// Why the policy chose this executor, for people. `n_queued`: the ready tasks at that time.
    fn why_here(&self, pick: &Pick, n_queued: u64) -> Why {
        Why {
            policy: pick.rule.policy().into(),
            reason: pick.rule.reason(),
            n_hits: pick.n_hits,
            n_inputs: pick.n_inputs,
            n_slots_active: self.queue.n_slots_active() as u32,
            n_slots: self.queue.n_slots_total() as u32,
            n_queued,
            ahead: pick.stage == Stage::Ahead,
        }
    }
}

impl Workload {
    /// Marks the inputs that are made on the node, each behind the packed file that it is made of.
    fn pair_made(&self, inputs: &mut [AssignedInput]) {
        for i in 1..inputs.len() {
            let text = self.catalog.location(inputs[i].object).text();
            let packed = self.catalog.location(inputs[i - 1].object).text();
            if MadeLocation::of(text).is_some_and(|made| made.packed == packed) {
                inputs[i - 1].making = Making::Packed;
                inputs[i].making = Making::Made;
            }
        }
    }
}

impl Residents {
    /// Adds holders of `object` to `sources`, which has those that `executor` tries first, up to
    /// [`SOURCES_MAX`] in all. Does not go through all holders: a database file has a thousand of them.
    fn more_sources(
        &self,
        work: &Workload,
        executors: &Executors,
        executor: ExecutorId,
        object: ObjectId,
        may_read: impl Fn(ExecutorId) -> bool,
        sources: &mut Vec<ExecutorId>,
    ) {
        let n = work.catalog.n_holders(object);
        let first = sources.first().copied();
        let without = || self.without_copy(object);
        let mut others = executors.silent.iter().copied().chain([executor]).chain(first).chain(without());
        let mut ranks: Vec<usize> =
            others.by_ref().filter_map(|e| work.catalog.holder_rank(object, e)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let n_all = n - ranks.len();
        if n_all == 0 {
            return;
        }
        // Spread readers over the holders: the first holder named depends on the reading executor and on the
        // object.
        let skip = (executor.0 as usize + object.0 as usize) % n_all;
        let start = ranks.iter().fold(skip, |at, rank| at + usize::from(at >= *rank));
        let is_candidate = |h: &ExecutorId| {
            *h != executor
                && Some(*h) != first
                && !executors.silent.contains(h)
                && !without().any(|other| other == *h)
                && may_read(*h)
        };
        let n_more = (SOURCES_MAX - sources.len()).min(n_all);
        sources.extend(work.catalog.holders_from(object, start).filter(is_candidate).take(n_more));
    }
}

impl Dispatcher {
    pub(super) fn place(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.schedule.attempts.settle_hold(now, out) {
            return;
        }
        self.place_ready(now, out);
        self.schedule.recall_late(&self.work, now, out);
        self.schedule.recall_to_idle(&self.work, now, out);
    }

    fn place_ready(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        self.schedule.begin_placing(&self.work, now);
        loop {
            self.schedule.refill(&mut self.work, now);
            self.settle_residents(now, out);
            self.settle_apart(now, out);
            if self.residents.awaits_places(now) {
                return;
            }
            if self.schedule.ready.queue.is_empty() || self.schedule.executors.by_id.is_empty() {
                return;
            }
            self.schedule.settle_stock(&self.work);
            // Tasks that still wait read files that other tasks make. They seldom also read a file that is
            // being read now, and if one does, it costs only one more read.
            let all_in_sight = self.work.n_open == 0 && self.schedule.ready.backlog.is_empty();
            self.schedule.ready.queue.set_all_in_sight(all_in_sight);
            let mut picks = std::mem::take(&mut self.schedule.ready.picks);
            let placed = self.schedule.choose(&mut self.work, &self.config, now, &mut picks);
            match placed {
                Ok(executor) => {
                    for pick in &picks {
                        self.assign(now, executor, pick, out);
                    }
                    self.schedule.ready.picks = picks;
                }
                Err(unplaced) => {
                    self.schedule.ready.picks = picks;
                    if let Some((executor, pick)) = self.schedule.ready.find_stranded(&self.work) {
                        self.assign(now, executor, &pick, out);
                        continue;
                    }
                    if self.schedule.let_guests_in(&mut self.work, now) {
                        continue;
                    }
                    self.schedule.ready.unplaced = Some(unplaced);
                    return;
                }
            }
        }
    }

    /// Gives the task to the executor, or puts it aside if something is in the way.
    pub(super) fn assign(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        pick: &Pick,
        out: &mut Vec<Action>,
    ) {
        let task = pick.key.task;
        let run = self.work.tasks.run_of(task);
        if let Some(missing) = self.find_missing(now, task, out) {
            return self.await_missing(now, task, missing, out);
        }
        let (array_id, i) = self.work.tasks.locate(task);
        let array = self.work.tasks.arrays[array_id.0 as usize].array.clone();
        // Most tasks read one file. The queue knows that file, as its name was looked up when the task
        // entered the queue.
        let sole = if array.template.inputs.len() == 1 {
            self.schedule.ready.queue.sole_input(pick.key)
        } else {
            None
        };
        let objects = sole.map_or_else(|| self.work.inputs_of(run, &array, i), |object| vec![object]);
        if let Some(bad) = objects.iter().find(|o| self.work.runs[&run].changed.contains(o)) {
            let message = format!(
                "{} changed since this run first read it",
                shown(self.work.catalog.location(*bad).text())
            );
            let failure = Failure { kind: FailureKind::InputChanged, message };
            self.schedule.take_ready(&mut self.work, task);
            self.end_task(now, task, Outcome::Failed(failure), out);
            return;
        }
        let executor = match self.reach.is_whole() {
            true => executor,
            false => match self.way_round(now, executor, task, &objects, out) {
                Some(executor) => executor,
                None => return,
            },
        };
        if let Some(owner) = objects.iter().find_map(|object| {
            self.residents.silent_owner(&self.work, &self.schedule.executors, executor, run, *object)
        }) {
            return self.await_missing(now, task, Missing::Silent(owner), out);
        }
        let unread =
            self.residents.unread_inputs(&self.work, &self.schedule.executors, executor, run, &objects);
        if !unread.is_empty()
            && self.residents.await_reads(
                &mut self.work,
                &mut self.schedule,
                &mut self.waits,
                task,
                run,
                &unread,
                out,
            )
        {
            return;
        }
        self.residents.waits_no_more(task);
        let n_queued = self.schedule.ready.n_tasks;
        let inputs = self.give(now, executor, run, pick.key, objects);
        let outputs = self.work.outputs_of(run, &array, i);
        let why = self.schedule.ready.why_here(pick, n_queued);
        let assignment = self.make_assignment(task, inputs, outputs, why);
        self.schedule.reserve_for(&mut self.work, now, executor, &assignment);
        self.schedule.note_passed(&self.work, pick.key, self.work.tasks.size_of(task).needs);
        self.request_inputs(executor, &assignment, out);
        out.push(Action::Assign { executor, assignment: Box::new(assignment) });
    }

    /// Takes the task out of the queue. Gives its inputs, each with where the executor gets it from.
    fn give(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        run: RunId,
        key: QueueKey,
        objects: Vec<ObjectId>,
    ) -> Vec<AssignedInput> {
        let mut routes = std::mem::take(&mut self.schedule.ready.routes);
        routes.clear();
        self.schedule.ready.queue.give(&self.work.catalog, now, executor, key, &mut routes);
        self.schedule.take_ready(&mut self.work, key.task);
        let mut inputs = Vec::with_capacity(objects.len());
        for object in objects {
            let route = routes.iter().find(|r| r.object == object).copied();
            inputs.push(self.assigned_input(now, executor, run, object, route));
        }
        self.work.pair_made(&mut inputs);
        self.schedule.ready.routes = routes;
        inputs
    }

    /// What an executor is told of the next attempt of `task`.
    fn make_assignment(
        &self,
        task: TaskId,
        inputs: Vec<AssignedInput>,
        outputs: Vec<ObjectId>,
        why: Why,
    ) -> Assignment {
        let (array, _) = self.work.tasks.locate(task);
        let ArrayState { array, run, needs, .. } = &self.work.tasks.arrays[array.0 as usize];
        let staying = (0..)
            .zip(&outputs)
            .filter(|(_, object)| self.intermediates.has(**object))
            .map(|(n, _)| n)
            .collect();
        let history = self.schedule.attempts.histories.get(&task).cloned().unwrap_or_default();
        let attempt = AttemptNo(history.n_attempts + 1);
        Assignment {
            task,
            attempt,
            run: *run,
            cpus: array.template.cpus,
            inputs,
            outputs,
            staying,
            private_inputs: history.private_inputs,
            repeated: attempt.0 > 1 || task.0 < self.schedule.attempts.n_recovered,
            alone: history.n_disk_shared >= DISK_SHARED_MAX,
            needs: self.schedule.executors.resources.of_node(*needs),
            why,
        }
    }

    pub(super) fn assigned_input(
        &self,
        now: Timestamp,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
        route: Option<Route>,
    ) -> AssignedInput {
        // What lies on another executor's own disk is fetched from caches, like a file that stays on the nodes.
        let stays = self.intermediates.has(object)
            || self.residents.is_elsewhere(&self.schedule.executors, executor, run, object);
        let uses_caches = self.schedule.ready.queue.uses_caches() || stays;
        let known = self.work.known_bytes(object);
        let is_copyless = |e: ExecutorId| self.residents.without_copy(object).any(|other| other == e);
        let planned = route.and_then(|r| r.source);
        let may_read = |holder: ExecutorId| self.reach.may_read(now, executor, holder);
        let is_useless = |e: ExecutorId| is_copyless(e) || !may_read(e);
        let planned = planned.filter(|source| !matches!(source, Source::Peer(e) if is_useless(*e)));
        let direct = !uses_caches || !stays && route.is_some_and(|r| r.direct);
        // Where the file is read in place, home is asked in any case, as only its answer says so.
        let check_home = !stays
            && (self.work.catalog.checked_run(object).is_none_or(|checked| checked < run)
                || self.residents.is_own(executor, object));
        let mut sources = vec![];
        // A tree cannot be sent, so each node makes its own.
        let is_tree = is_made_tree(self.work.catalog.location(object).text());
        if !is_tree && uses_caches && known.is_some() && (stays || planned != Some(Source::Home)) {
            if let Some(Source::Peer(first)) = planned {
                sources.push(first);
            }
            let executors = &self.schedule.executors;
            self.residents.more_sources(&self.work, executors, executor, object, may_read, &mut sources);
            if self.intermediates.has(object) {
                self.exchange.foreign_sources(executor, run, object, &mut sources);
                let n_more = SOURCES_MAX.saturating_sub(sources.len());
                sources.extend(self.exchange.lent_to(object).take(n_more));
                sources.retain(|source| may_read(*source));
            }
        }
        let watched = route.is_some_and(|r| r.watched);
        AssignedInput { object, known, sources, check_home, direct, watched, stays, making: Making::No }
    }
}
