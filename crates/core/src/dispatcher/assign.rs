//! Ready tasks are given to executors with room until nothing more can be placed.
//!
//! The policy chooses the executor ([`crate::placement`]). This module has the rules that are the same for
//! all policies: how much room an executor has; that a task whose input another node is reading from home
//! waits for a while behind a task that can start; and what an executor is told of each input (its bytes, and
//! which executors hold it).

use super::attempts::DISK_SHARED_MAX;
use super::*;
use crate::location::{Made, is_made_tree};
use eyas_text::shown;

/// Work that an executor should have beyond what its slots run, so that it never waits for a message.
const AHEAD_NS: u64 = 30_000_000;
/// The largest number of attempts that one executor is given beyond its slots.
const AHEAD_MAX: u32 = 512;
/// The largest number of attempts that all executors together are given beyond their slots, apart from one for each
/// slot. That is about what a dispatcher does in half a second. What is given ahead costs it memory, and the reports of
/// one executor wait behind those of all others, so more would only make every message late.
const AHEAD_ALL_MAX: u32 = 1 << 16;
/// An executor that has less than this many times the time of one task left is given nothing ahead.
const STOCK_PART: u64 = 4;
/// How many tasks at most are put aside in the search for a task whose inputs are not on their way to another
/// node.
const ASIDE_MAX: usize = 128;
const SEARCH_REST_MAX: u32 = 4096;
/// The largest number of holders named per input. An executor would try further holders only after these have
/// failed.
pub(super) const SOURCES_MAX: usize = 3;

impl Dispatcher {
    pub(super) fn place(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.attempts.is_held(now, out) {
            return;
        }
        loop {
            self.refill(now);
            self.settle_residents(now, out);
            if self.awaits_places(now) {
                return;
            }
            if self.ready.queue.is_empty() || self.executors.by_id.is_empty() {
                return;
            }
            self.settle_stock();
            // Tasks that still wait read files that other tasks make. They seldom also read a file that is
            // being read now, and if one does, it costs only one more read.
            let all_in_sight = self.n_open == 0 && self.ready.backlog.is_empty();
            self.ready.queue.set_all_in_sight(all_in_sight);
            let mut picks = std::mem::take(&mut self.ready.picks);
            let placed = self.choose(now, &mut picks);
            match placed {
                Ok(executor) => {
                    for pick in &picks {
                        self.assign(now, executor, pick, out);
                    }
                    self.ready.picks = picks;
                }
                Err(unplaced) => {
                    self.ready.picks = picks;
                    if let Some((executor, pick)) = self.find_stranded() {
                        self.assign(now, executor, &pick, out);
                        continue;
                    }
                    self.ready.unplaced = Some(unplaced);
                    return;
                }
            }
        }
    }

    /// The policy's choice, with one exception: a task that lacks an input which another executor is about to
    /// read from home comes after tasks that lack none. A moment later the input is a hit there, and home is
    /// read once. No executor stays idle for this: where there is no other task to place, the task is placed.
    fn choose(&mut self, now: Timestamp, picks: &mut Vec<Pick>) -> Result<ExecutorId, Unplaced> {
        let first = self.ready.queue.place(&self.catalog, now, picks);
        let (Ok(executor), [pick]) = (&first, &picks[..]) else { return first };
        let awaits = self.config.placement_config.await_arriving && self.ready.queue.bears_asides();
        if !awaits || self.attempts.arriving.is_empty() || !self.reads_arriving(*executor, *pick) {
            return first;
        }
        if self.ready.n_skips > 0 {
            self.ready.n_skips -= 1;
            return first;
        }
        let kept = *pick;
        let mut aside = vec![];
        let mut other = (*executor, kept);
        while aside.len() < ASIDE_MAX && self.reads_arriving(other.0, other.1) {
            self.ready.queue.leave(&self.catalog, other.1.key);
            aside.push(other.1.key);
            match (self.ready.queue.place(&self.catalog, now, picks), &picks[..]) {
                (Ok(executor), [pick]) => other = (executor, *pick),
                _ => break,
            }
        }
        let found = !self.reads_arriving(other.0, other.1);
        for key in aside {
            let (array, i) = self.tasks.locate(key.task);
            self.unfold(now, key, array, i);
        }
        picks.clear();
        if found {
            self.ready.n_skips_next = SEARCH_REST;
            picks.push(other.1);
            return Ok(other.0);
        }
        self.ready.n_skips = self.ready.n_skips_next;
        self.ready.n_skips_next = (self.ready.n_skips_next * 2).min(SEARCH_REST_MAX);
        picks.push(kept);
        first
    }

    /// Whether `pick` lacks an input on `executor` that is on its way from home to another executor.
    fn reads_arriving(&mut self, executor: ExecutorId, pick: Pick) -> bool {
        if pick.n_hits >= pick.n_inputs {
            return false;
        }
        let (array, i) = self.tasks.locate(pick.key.task);
        let array = self.tasks.arrays[array.0 as usize].array.clone();
        let inputs = self.inputs_of(self.tasks.run_of(pick.key.task), &array, i);
        inputs.iter().any(|o| self.attempts.arriving.get(o).is_some_and(|reader| *reader != executor))
    }

    /// Decides whether executors are given tasks ahead. The last tasks go to whichever executor is free
    /// first, not into one executor's stock. Two different bounds keep the decision from changing with every
    /// task, as each change updates the room of all executors.
    fn settle_stock(&mut self) {
        let n_slots = self.ready.queue.n_slots_total();
        let stock = self.ready.n_tasks > if self.ready.may_stock { n_slots } else { 2 * n_slots };
        if stock != self.ready.may_stock {
            self.ready.may_stock = stock;
            for executor in self.executors.by_id.keys().copied().collect::<Vec<_>>() {
                self.update_room(executor);
            }
        }
    }

    /// Finds a task, anywhere in the queue, that waits for holders which are all too small for it or rest,
    /// and an idle executor that can run it.
    fn find_stranded(&self) -> Option<(ExecutorId, Pick)> {
        let (able, key) = self.ready.queue.find_stranded()?;
        let (array, _) = self.tasks.locate(key.task);
        let n_inputs = self.tasks.arrays[array.0 as usize].array.template.inputs.len() as u32;
        let rule = Rule::Paper(Mode::MaxComputeUtil);
        Some((able, Pick { key, n_hits: 0, n_inputs, rule, stage: Stage::Idle }))
    }

    /// Gives the task to the executor, or puts it aside if something is in the way.
    fn assign(&mut self, now: Timestamp, executor: ExecutorId, pick: &Pick, out: &mut Vec<Action>) {
        let task = pick.key.task;
        let run = self.tasks.run_of(task);
        if let Some(missing) = self.find_missing(now, task, out) {
            return self.await_missing(now, task, missing, out);
        }
        let (array_id, i) = self.tasks.locate(task);
        let array = self.tasks.arrays[array_id.0 as usize].array.clone();
        // Most tasks read one file. The queue knows that file, as its name was looked up when the task
        // entered the queue.
        let sole =
            if array.template.inputs.len() == 1 { self.ready.queue.sole_input(pick.key) } else { None };
        let objects = sole.map_or_else(|| self.inputs_of(run, &array, i), |object| vec![object]);
        if let Some(bad) = objects.iter().find(|o| self.runs[&run].changed.contains(o)) {
            let message =
                format!("{} changed since this run first read it", shown(self.catalog.location(*bad).text()));
            let failure = Failure { kind: FailureKind::InputChanged, message };
            self.take_ready(task);
            self.end_task(now, task, Outcome::Failed(failure), out);
            return;
        }
        if let Some(owner) = objects.iter().find_map(|object| self.silent_owner(executor, run, *object)) {
            return self.await_missing(now, task, Missing::Silent(owner), out);
        }
        let unread = self.unread_inputs(executor, run, &objects);
        if !unread.is_empty() {
            return self.await_reads(task, run, &unread, out);
        }
        let n_queued = self.ready.n_tasks;
        let inputs = self.give(now, executor, run, pick.key, objects);
        let outputs = self.outputs_of(run, &array, i);
        let why = self.why_here(pick, n_queued);
        let assignment = self.make_assignment(task, inputs, outputs, why);
        self.reserve_for(now, executor, &assignment);
        self.note_passed(pick.key, self.tasks.size_of(task).needs);
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
        let mut routes = std::mem::take(&mut self.ready.routes);
        routes.clear();
        self.ready.queue.give(&self.catalog, now, executor, key, &mut routes);
        self.take_ready(key.task);
        let mut inputs = Vec::with_capacity(objects.len());
        for object in objects {
            let route = routes.iter().find(|r| r.object == object).copied();
            inputs.push(self.assigned_input(executor, run, object, route));
        }
        self.pair_made(&mut inputs);
        self.ready.routes = routes;
        inputs
    }

    /// Why the policy chose this executor, for people. `n_queued`: the ready tasks at that time.
    fn why_here(&self, pick: &Pick, n_queued: u64) -> Why {
        Why {
            policy: pick.rule.policy().into(),
            reason: pick.rule.reason(),
            n_hits: pick.n_hits,
            n_inputs: pick.n_inputs,
            n_slots_active: self.ready.queue.n_slots_active() as u32,
            n_slots: self.ready.queue.n_slots_total() as u32,
            n_queued,
            ahead: pick.stage == Stage::Ahead,
        }
    }

    /// What an executor is told of the next attempt of `task`.
    fn make_assignment(
        &self,
        task: TaskId,
        inputs: Vec<AssignedInput>,
        outputs: Vec<ObjectId>,
        why: Why,
    ) -> Assignment {
        let (array, _) = self.tasks.locate(task);
        let ArrayState { array, run, needs, .. } = &self.tasks.arrays[array.0 as usize];
        let staying = (0..)
            .zip(&outputs)
            .filter(|(_, object)| self.intermediates.is_intermediate(**object))
            .map(|(n, _)| n)
            .collect();
        let history = self.attempts.histories.get(&task).cloned().unwrap_or_default();
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
            repeated: attempt.0 > 1 || task.0 < self.attempts.n_recovered,
            alone: history.n_disk_shared >= DISK_SHARED_MAX,
            needs: self.resources.of_node(*needs),
            why,
        }
    }

    /// From now on the task takes room of this executor, and its inputs that nobody has are about to be read there.
    fn reserve_for(&mut self, now: Timestamp, executor: ExecutorId, assignment: &Assignment) {
        let Assignment { task, attempt, inputs, outputs, staying, .. } = assignment;
        let TaskSize { cpus, memory_bytes, needs } = self.tasks.size_of(*task);
        let mut reads_first = vec![];
        for input in inputs.iter().filter(|i| !i.direct) {
            if self.catalog.n_holders(input.object) == 0
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
        self.reserve(*task, r);
    }

    pub(super) fn assigned_input(
        &self,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
        route: Option<Route>,
    ) -> AssignedInput {
        // What lies on another executor's own disk is fetched from caches, like a file that stays on the nodes.
        let stays = self.intermediates.is_intermediate(object) || self.is_elsewhere(executor, run, object);
        let uses_caches = self.ready.queue.uses_caches() || stays;
        let known = self.known(object);
        let is_copyless = |e: ExecutorId| self.residents.without_copy(object).any(|other| other == e);
        let planned = route.and_then(|r| r.source);
        let planned = planned.filter(|source| !matches!(source, Source::Peer(e) if is_copyless(*e)));
        let direct = !uses_caches || !stays && route.is_some_and(|r| r.direct);
        // Where the file is read in place, home is asked in any case, as only its answer says so.
        let check_home = !stays
            && (self.catalog.checked_run(object).is_none_or(|checked| checked < run)
                || self.residents.is_own(executor, object));
        let mut sources = vec![];
        // A tree cannot be sent, so each node makes its own.
        let is_tree = is_made_tree(self.catalog.location(object).text());
        if !is_tree && uses_caches && known.is_some() && (stays || planned != Some(Source::Home)) {
            if let Some(Source::Peer(first)) = planned {
                sources.push(first);
            }
            self.more_sources(executor, object, &mut sources);
            if self.intermediates.is_intermediate(object) {
                self.exchange.foreign_sources(executor, run, object, &mut sources);
                let n_more = SOURCES_MAX.saturating_sub(sources.len());
                sources.extend(self.exchange.lent_to(object).take(n_more));
            }
        }
        let watched = route.is_some_and(|r| r.watched);
        AssignedInput { object, known, sources, check_home, direct, watched, stays, making: Making::No }
    }

    /// Marks the inputs that are made on the node, each behind the packed file that it is made of.
    fn pair_made(&self, inputs: &mut [AssignedInput]) {
        for i in 1..inputs.len() {
            let text = self.catalog.location(inputs[i].object).text();
            let packed = self.catalog.location(inputs[i - 1].object).text();
            if Made::of(text).is_some_and(|made| made.packed == packed) {
                inputs[i - 1].making = Making::Packed;
                inputs[i].making = Making::Made;
            }
        }
    }

    /// Adds holders of `object` to `sources`, which has those that `executor` tries first, up to
    /// [`SOURCES_MAX`] in all. Does not go through all holders: a database file has a thousand of them.
    fn more_sources(&self, executor: ExecutorId, object: ObjectId, sources: &mut Vec<ExecutorId>) {
        let n = self.catalog.n_holders(object);
        let first = sources.first().copied();
        let without = || self.residents.without_copy(object);
        let mut others =
            self.executors.silent.iter().copied().chain([executor]).chain(first).chain(without());
        let mut ranks: Vec<usize> =
            others.by_ref().filter_map(|e| self.catalog.holder_rank(object, e)).collect();
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
                && !self.executors.silent.contains(h)
                && !without().any(|other| other == *h)
        };
        let n_more = (SOURCES_MAX - sources.len()).min(n_all);
        sources.extend(self.catalog.holders_from(object, start).filter(is_candidate).take(n_more));
    }

    /// What is known of an object's bytes; `None` until somebody has read them.
    pub(super) fn known(&self, object: ObjectId) -> Option<Known> {
        let (digest, size_bytes) = (self.catalog.digest(object)?, self.catalog.size_bytes(object)?);
        Some(Known { digest, size_bytes, version: self.catalog.version(object).cloned().unwrap_or_default() })
    }

    /// Changes an executor's load, and updates everything that is computed from it.
    pub(super) fn change_load(&mut self, executor: ExecutorId, change: impl FnOnce(&mut ExecutorState)) {
        let Some(e) = self.executors.by_id.get_mut(&executor) else { return };
        change(e);
        self.update_room(executor);
    }

    pub(super) fn update_room(&mut self, executor: ExecutorId) {
        let Some(e) = self.executors.by_id.get(&executor) else { return };
        if !e.is_connected() {
            // The executor gets no tasks, and no task waits for it; its replicas may still be fetched.
            if self.ready.queue.room(executor).is_some() {
                let objects = self.catalog.objects_on(executor);
                self.ready.queue.executor_left(&self.catalog, executor, &objects);
            }
            return;
        }
        self.ready.queue.executor_joined(&self.catalog, executor);
        let slots = e.offer.slots;
        let n_executors = self.executors.by_id.len() as u32;
        let stock = match e.run_ns_mean {
            // At least one attempt per slot, and as many as keep the executor busy while a message is on its
            // way.
            Some(ns) => (u64::from(slots) * AHEAD_NS / ns.max(1))
                .min(u64::from(AHEAD_MAX.min(AHEAD_ALL_MAX / n_executors)))
                .max(u64::from(slots)) as u32,
            None => slots,
        };
        let is_well = e.sick_until.is_none();
        // Near its end an executor gets nothing ahead: what waits there for a slot would begin too late.
        let has_time = e.left_ns / STOCK_PART > e.run_ns_mean.unwrap_or(0);
        let may_stock = has_time && self.ready.may_stock && self.config.placement_config.ahead;
        // Attempts whose inputs are still moving take no slot from attempts that can run.
        let moving = self.ready.queue.moving(executor);
        let cpus_here = e.cpus_assigned - moving.cpus;
        let moves = match may_stock {
            true if moving.unseen => (slots + stock).saturating_sub(e.cpus_assigned).min(slots),
            // Attempts whose inputs have arrived and that wait for a slot count as stock.
            true if moving.cpus < slots && cpus_here < slots + stock => slots,
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
        if !self.resources.is_empty() {
            self.resources.settle_room(executor, e, &mut room);
        }
        self.ready.queue.set_room(executor, room);
    }
}
