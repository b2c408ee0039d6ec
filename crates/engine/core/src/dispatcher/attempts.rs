//! How attempts and tasks end: well, tried again, failed, cancelled; and a run with its last task.
//!
//! A failure is either the task's own or *weather*: a fault of the node, or of the way to the inputs. Each
//! kind has its bound. A task whose outputs still travel home is *landing*: its slot is free, and the task is
//! done when the outputs are there.

use super::{
    Dispatcher, DispatcherConfig, End, Exchange, Executors, RETURN_GRACE_NS, RETURN_GRACE_NS_MAX,
    RETURN_GRACE_PART, Schedule, Workload,
};
use crate::event::{Action, AttemptReport, Offer};
use crate::placement::NeedsId;
use eyas_terms::{
    AttemptNo, CacheOutcome, ExecutorId, Failure, FailureKind, ObjectId, Outcome, RunId, TaskId, Timestamp,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// How long a node gets no tasks after an attempt failed through the node's fault; doubled for each further
/// such failure.
pub(super) const SICK_NS: u64 = 1_000_000_000;
pub(super) const SICK_NS_MAX: u64 = 60_000_000_000;
/// After this many failures on a disk that the task may have filled together with other programs, the task is
/// tried with a disk to itself. An executor that finds its disk short runs fewer programs at once, so mostly
/// the first repeat succeeds.
pub(super) const DISK_SHARED_MAX: u32 = 2;

/// A task that was given to an executor.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub(super) executor: ExecutorId,
    pub(super) attempt: AttemptNo,
    pub(super) cpus: u32,
    pub(super) memory_bytes: u64,
    /// What the attempt holds beside; nothing once its program has ended.
    pub(super) needs: NeedsId,
    pub(super) landing: bool,
    pub(super) cancelling: bool,
    /// Order in which attempts were given out.
    pub(super) given: u64,
    /// When this process gave the attempt out, or took it over.
    pub(super) given_at: Timestamp,
    /// The attempt was asked back, see [`Schedule::recall`].
    pub(super) recalled: bool,
    /// An earlier process gave the attempt out, so this process does not know which bytes the attempt was
    /// told to read.
    pub(super) adopted: bool,
    /// The attempt asks home for an input, and learns only there which bytes it gets.
    pub(super) asks_home: bool,
    /// The attempt may have read other bytes of an input than its run agreed on, so its success does not
    /// count.
    pub(super) suspect: bool,
    pub(super) outputs: Vec<ObjectId>,
    /// At least one output goes home.
    pub(super) lands: bool,
    /// Inputs that no executor held or was reading when this attempt was given out, see `arriving`.
    pub(super) reads_first: Vec<ObjectId>,
}

/// What earlier attempts of a task leave behind; only tasks that had an attempt have a history.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) n_attempts: u32,
    pub(super) n_own_failures: u32,
    pub(super) n_weather: u32,
    pub(super) n_losses: u32,
    /// Attempts that an executor's walltime cut off although they had most of its time.
    pub(super) n_cuts: u32,
    /// The longest time that an attempt had before it was cut off.
    pub(super) cut_ns: u64,
    pub(super) private_inputs: bool,
    /// Failures of kind [`FailureKind::DiskShared`].
    pub(super) n_disk_shared: u32,
    /// Failures of kind [`FailureKind::CacheTooSmall`].
    pub(super) n_too_small: u32,
    /// The count of [`Intermediates::n_room_made`] when the task last failed with [`FailureKind::CacheFull`].
    pub(super) full_at: Option<u64>,
    /// An attempt that brings files home was lost with its executor, so it may have left a part of a file
    /// there.
    pub(super) may_have_left: bool,
    /// The latest attempt that the journal records as given up; all attempts before it count as given up,
    /// too.
    pub(super) given_up: u32,
}

/// Which executor has which task, and what is known of attempts that have ended.
#[derive(Default)]
pub(super) struct Attempts {
    pub(super) reserved: FxHashMap<TaskId, Reserved>,
    pub(super) histories: FxHashMap<TaskId, History>,
    /// Objects that no executor holds, with the executor that is about to read each from home.
    pub(super) arriving: FxHashMap<ObjectId, ExecutorId>,
    /// The reserved task that makes an object.
    pub(super) making: FxHashMap<ObjectId, TaskId>,
    /// Attempts whose programs have ended, or that are over, since the last event.
    pub(super) released: Vec<(TaskId, AttemptNo)>,
    /// Attempts given out so far.
    pub(super) n_given: u64,
    /// When it was last looked whether attempts wait behind full slots while others are idle.
    pub(super) recalled_at: Timestamp,
    /// After a restart, no task is given out before this time, nor before the journal says that this process gives out.
    pub(super) hold_until: Option<Timestamp>,
    pub(super) giving: Giving,
    /// Tasks with a smaller number than this may have been given out by an earlier process.
    pub(super) n_recovered: u64,
    /// The processes that may have given out tasks with this journal, including this one.
    pub(super) incarnations: BTreeSet<u64>,
    /// Dispatcher processes that ended before they gave out a task.
    pub(super) gave_nothing: BTreeSet<u64>,
}

/// Whether the journal says that this process gives out tasks. It is asked for it where the process before may have given some out.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Giving {
    #[default]
    Unrecorded,
    Asked,
    Recorded,
}

impl Attempts {
    /// A process began that may give out tasks with this journal; `gave_nothing`: it ended before it gave out any.
    pub(super) fn on_began(&mut self, incarnation: u64, gave_nothing: bool) {
        self.incarnations.insert(incarnation);
        if gave_nothing {
            self.gave_nothing.insert(incarnation);
        }
    }

    /// Whether nothing may be given out yet, because executors with attempts of an earlier process may still come back. When their
    /// time is over, the journal is asked to record that.
    pub(super) fn settle_hold(&mut self, now: Timestamp, out: &mut Vec<Action>) -> bool {
        let Some(until) = self.hold_until else { return false };
        match self.giving {
            Giving::Recorded => self.hold_until = None,
            Giving::Unrecorded if now >= until => {
                self.giving = Giving::Asked;
                out.push(Action::RecordGivesOut);
            }
            _ => {}
        }
        self.hold_until.is_some()
    }

    /// Whether the attempts that an executor brings were given out by this process, or by an earlier one with
    /// this journal. The driver asks before it welcomes an executor: an executor with the work of another
    /// dispatcher is turned away.
    pub(super) fn is_own_work(&self, offer: &Offer) -> bool {
        offer.attempts.is_empty()
            || match offer.owner {
                Some(owner) => self.incarnations.contains(&owner),
                // Logs that were written before processes had names.
                None => self.incarnations.is_empty(),
            }
    }

    /// Records that `attempt` was given out, by whichever process, so that the next attempt of `task` gets a
    /// higher number.
    pub(super) fn tried(&mut self, task: TaskId, attempt: AttemptNo) -> &mut History {
        let history = self.histories.entry(task).or_default();
        history.n_attempts = history.n_attempts.max(attempt.0);
        history
    }

    /// Whether another executor may have been given the task after this attempt. That is so if this process
    /// or an earlier one gave the attempt up, if a later attempt is known, or if a process that ran between
    /// `owner` (the one that the executor knows) and this one may have given out tasks. Then the files that the
    /// attempt brought home may have been replaced, and the inputs that it reads may differ from what its run
    /// reads by now.
    pub(super) fn may_be_outdone(&self, owner: Option<u64>, task: TaskId, attempt: AttemptNo) -> bool {
        let mine = self.incarnations.last();
        let may_have_given = |process: &u64| Some(process) != mine && !self.gave_nothing.contains(process);
        let is_followed = |owner: u64| {
            let mut later = self.incarnations.range((Bound::Excluded(owner), Bound::Unbounded));
            Some(&owner) == mine || later.any(may_have_given)
        };
        owner.is_some_and(is_followed)
            || self
                .histories
                .get(&task)
                .is_some_and(|history| attempt.0 < history.n_attempts || attempt.0 <= history.given_up)
    }

    /// All of the journal has been read back.
    pub(super) fn on_recovered(&mut self, work: &Workload, config: &DispatcherConfig, now: Timestamp) {
        // Only attempts of unfinished runs can still be on executors.
        if work.runs.values().any(|r| r.started && r.ended.is_none()) {
            let part_ns = config.lease_ns / RETURN_GRACE_PART;
            let grace_ns = part_ns.clamp(RETURN_GRACE_NS, RETURN_GRACE_NS_MAX);
            self.hold_until = Some(now.plus_ns(grace_ns));
        }
        self.n_recovered = work.tasks.next_task;
    }
}

impl Schedule {
    /// How long an attempt that ended well took says how long others of its stage will.
    fn learn_run_time(&mut self, work: &Workload, report: &AttemptReport) {
        let Some(run_ns) = report.times.run_ns() else { return };
        let (array, _) = work.tasks.locate(report.task);
        let stage = work.tasks.arrays[array.0 as usize].stage;
        // Where inputs move before a task takes a slot, as many tasks of a node move as run, and a slot waits for
        // whichever takes longer. Elsewhere a task has its slot from the beginning.
        let move_ns = report.inputs.iter().map(|input| input.wait_ns).max().unwrap_or(0);
        let slot_ns = match self.ready.ahead {
            true => run_ns.max(move_ns),
            false => report.times.exited.since_ns(report.times.received),
        };
        self.run_times.ran(stage, run_ns, slot_ns);
        self.note_run_time(stage);
    }
}

impl Executors {
    /// Whether some executor may have a larger cache than `executor` offered. The executors of other
    /// dispatchers are unknown here, so in a group the answer is yes.
    fn has_larger_cache(&self, exchange: &Exchange, executor: ExecutorId) -> bool {
        let Some(e) = self.by_id.get(&executor) else { return true };
        exchange.group.is_some()
            || self.by_id.values().any(|other| other.cache_offered_bytes > e.cache_offered_bytes)
    }
}

impl Dispatcher {
    pub(super) fn on_attempt_ended(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        report: Arc<AttemptReport>,
        out: &mut Vec<Action>,
    ) {
        let (task, attempt) = (report.task, report.attempt);
        let Some(r) = self
            .schedule
            .attempts
            .reserved
            .get(&task)
            .filter(|r| r.executor == executor && r.attempt == attempt)
        else {
            if !self.on_rerun_ended(now, executor, &report, out) {
                self.on_late_end(executor, &report, out);
            }
            out.push(Action::ForgetAttempt { executor, task, attempt });
            return;
        };
        if r.landing {
            return; // reported again after a reconnect
        }
        let (cpus, memory_bytes) = (r.cpus, r.memory_bytes);
        let knows_bytes = !r.suspect && !r.adopted;
        let run = self.work.tasks.run_of(task);
        let is_done = report.outcome == Outcome::Done;
        let lands = is_done && r.lands;
        if is_done {
            self.schedule.learn_run_time(&self.work, &report);
        }
        self.schedule.ready.queue.ended(&self.work.catalog, task);
        let needs = self.schedule.attempts.reserved.get_mut(&task).map(|r| std::mem::take(&mut r.needs));
        self.schedule.hold(&self.work, executor, needs.unwrap_or_default(), false);
        let kind = self.work.tasks.kind_of(task);
        self.schedule.change_load(&self.work, executor, |e| {
            e.last_ended = now;
            e.cpus_assigned -= cpus;
            e.memory_assigned -= memory_bytes;
            if !lands {
                e.unassign(task, kind);
            }
            e.learn(now, &report);
        });
        let run_ns = report.times.run_ns();
        let stage_ns =
            is_done.then(|| self.schedule.run_times.expected_ns(self.work.tasks.stage_of(task))).flatten();
        self.schedule.ready.queue.learnt(&self.work.catalog, executor, &report.inputs, run_ns, stage_ns);
        if let Some(run_ns) = report.times.run_ns() {
            self.schedule.shares.ran(self.work.owner_of(task), cpus, run_ns);
            let offer = self.schedule.executors.by_id.get(&executor).map(|e| &e.offer);
            let budget_bytes = offer.map_or(0, |offer| offer.cache_memory_bytes);
            if budget_bytes > 0 {
                let (inputs, in_memory) = (&report.inputs, &report.in_memory);
                self.schedule.ready.queue.seen_in_memory(executor, inputs, in_memory, budget_bytes);
            }
        }
        self.moves.learn_links(executor, &report.inputs);
        self.reach.learn(executor, &report.inputs);
        self.moves.learn_network(
            &self.config,
            &self.work.catalog,
            &mut self.schedule.ready,
            &mut self.network,
            executor,
            &report.inputs,
        );
        let state = self.work.run_mut(run);
        state.read.count(&report.inputs);
        if let Some(left) = report.left.as_deref().filter(|_| report.outcome == Outcome::Done) {
            state.left.add(left);
        }
        if is_done && knows_bytes {
            // From now on the run must read these bytes. What was read in place was whatever lay there, and not the bytes
            // that the catalog knows.
            for input in report.inputs.iter().filter(|input| input.outcome != CacheOutcome::InPlace) {
                self.work.raise_checked_run(input.object, run);
            }
        }
        if is_done {
            self.note_made(executor, run, &report, out);
        }
        if lands {
            self.schedule.attempts.released.push((task, attempt));
            self.schedule.attempts.reserved.get_mut(&task).expect("seen above").landing = true;
            self.work.run_mut(run).tasks.n_landing += 1;
            return;
        }
        let r = self.schedule.release(&mut self.work, task);
        self.finish_attempt(now, task, &r, report.outcome.clone(), out);
    }

    /// The outputs of a reserved attempt that ended well are the objects' bytes from now on.
    fn note_made(&mut self, executor: ExecutorId, run: RunId, report: &AttemptReport, out: &mut Vec<Action>) {
        let outputs = self.schedule.attempts.reserved[&report.task].outputs.clone();
        for made in &report.outputs {
            let Some(object) = outputs.get(made.output as usize) else { continue };
            self.on_made(executor, run, *object, made.digest, made.size_bytes, out);
            self.work.catalog.set_marks(*object, made.marks);
            if self.intermediates.has(*object) {
                self.add_replica(executor, *object);
            }
        }
    }

    /// Handles the end of an attempt that was given up. Nobody asked this attempt to let its results appear
    /// at home, but its files that stay on the nodes lie in the executor's cache, protected like last copies.
    /// A file is kept if its bytes are the known ones; otherwise it is dropped.
    fn on_late_end(&mut self, executor: ExecutorId, report: &AttemptReport, out: &mut Vec<Action>) {
        let task = report.task;
        if report.outcome != Outcome::Done
            || !self.work.tasks.has_task(task)
            || !self.schedule.executors.by_id.contains_key(&executor)
        {
            return;
        }
        let (array, i) = self.work.tasks.locate(task);
        if !self.work.tasks.arrays[array.0 as usize].writes_run
            || !self.work.runs.contains_key(&self.work.tasks.run_of(task))
        {
            return;
        }
        let array = self.work.tasks.arrays[array.0 as usize].array.clone();
        let outputs = self.work.outputs_of(self.work.tasks.run_of(task), &array, i);
        let (mut named, mut useless) = (vec![], vec![]);
        for made in &report.outputs {
            let Some(object) = outputs.get(made.output as usize).copied() else { continue };
            let Some(file) = self.intermediates.files.get(&object) else { continue };
            if self.work.catalog.holds(executor, object) {
                continue;
            }
            named.push(object);
            let is_same = self.work.catalog.digest(object) == Some(made.digest);
            if is_same && !file.dropped && self.work.tasks.end_of(task) == End::Done {
                self.add_replica(executor, object);
            } else {
                useless.push(object);
            }
        }
        if !named.is_empty() {
            out.push(Action::NameObjects { executor, objects: named.clone() });
            if !useless.is_empty() {
                out.push(Action::DropReplicas { executor, objects: useless });
            }
            self.drop_unread(&named, out);
        }
    }

    pub(super) fn on_outputs_home(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        result: Result<(), Failure>,
        out: &mut Vec<Action>,
    ) {
        let matches = |r: &&Reserved| r.executor == executor && r.attempt == attempt && r.landing;
        if self.schedule.attempts.reserved.get(&task).filter(matches).is_none() {
            out.push(Action::ForgetAttempt { executor, task, attempt });
            return;
        }
        let r = self.schedule.release(&mut self.work, task);
        if let Some(e) = self.schedule.executors.by_id.get_mut(&executor) {
            e.unassign(task, self.work.tasks.kind_of(task));
            e.last_ended = now;
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(failure) => Outcome::Failed(failure),
        };
        self.finish_attempt(now, task, &r, outcome, out);
    }

    /// Ends the task or queues it again, after the attempt `r` is over and no executor has the task.
    fn finish_attempt(
        &mut self,
        now: Timestamp,
        task: TaskId,
        r: &Reserved,
        outcome: Outcome,
        out: &mut Vec<Action>,
    ) {
        let (executor, attempt) = (r.executor, r.attempt);
        match self.judge_attempt(now, task, r, outcome, out) {
            Some(outcome) => self.end_task_by(now, task, outcome, Some((executor, attempt)), out),
            None => out.push(Action::ForgetAttempt { executor, task, attempt }),
        }
    }

    /// The outcome of the task, if this attempt ends it. Otherwise the task is queued again.
    fn judge_attempt(
        &mut self,
        now: Timestamp,
        task: TaskId,
        r: &Reserved,
        outcome: Outcome,
        out: &mut Vec<Action>,
    ) -> Option<Outcome> {
        let Reserved { executor, attempt, cancelling, suspect, .. } = *r;
        let may_count_later = suspect && outcome == Outcome::Done;
        let outcome = match outcome {
            Outcome::Done if suspect => {
                let message = "an input changed while this run was reading it".into();
                Outcome::Failed(Failure { kind: FailureKind::InputChanged, message })
            }
            outcome => outcome,
        };
        match outcome {
            Outcome::Done => Some(Outcome::Done),
            _ if cancelling => {
                self.schedule.attempts.tried(task, attempt);
                Some(Outcome::Cancelled)
            }
            // The user did not cancel this: an earlier dispatcher process ended a second attempt of this
            // task.
            Outcome::Cancelled => {
                self.schedule.attempts.tried(task, attempt);
                self.schedule.requeue(&mut self.work, now, task);
                None
            }
            Outcome::Failed(failure) => {
                let (array, _) = self.work.tasks.locate(task);
                let retries = self.work.tasks.arrays[array.0 as usize].array.template.retries;
                let weather_max = self.config.weather_max;
                let n_executors = self.schedule.executors.by_id.len() as u32;
                let has_larger_cache = self.schedule.executors.has_larger_cache(&self.exchange, executor);
                let n_room_made = self.intermediates.n_room_made;
                let is_apart =
                    failure.kind == FailureKind::InputLost && self.reach.learnt_since(executor, r.given_at);
                let history = self.schedule.attempts.tried(task, attempt);
                history.private_inputs |= failure.kind == FailureKind::InputModified;
                let again = if failure.kind == FailureKind::CacheTooSmall {
                    history.n_too_small += 1;
                    has_larger_cache && history.n_too_small <= weather_max + n_executors
                } else if failure.kind == FailureKind::DiskShared && history.n_disk_shared < DISK_SHARED_MAX {
                    history.n_disk_shared += 1;
                    // The tries with a disk to itself have a count of their own; together they are bounded
                    // like other weather.
                    history.n_weather += 1;
                    true
                } else if failure.kind == FailureKind::CacheFull
                    && history.full_at.replace(n_room_made).is_some_and(|at| at < n_room_made)
                {
                    // Other tasks took the room that was made since. As long as room is made, this task will
                    // get its turn.
                    true
                } else if is_apart {
                    // The attempt has shown that nodes do not reach each other. The next one goes another way.
                    true
                } else if failure.kind.is_weather() || suspect {
                    history.n_weather += 1;
                    history.n_weather <= weather_max
                } else {
                    history.n_own_failures += 1;
                    !failure.kind.is_final() && history.n_own_failures <= retries
                };
                let n_weather = history.n_weather;
                if again && failure.kind == FailureKind::InputLost {
                    self.exchange.ask_owners(&mut self.work, &self.intermediates, task);
                    self.exchange.forget_lent_inputs(&mut self.work, &self.intermediates, task);
                }
                if !again {
                    return Some(Outcome::Failed(failure));
                }
                let waits_for_room = matches!(failure.kind, FailureKind::InputLost | FailureKind::CacheFull);
                if waits_for_room && n_weather > 1 {
                    self.intermediates.rest(&mut self.work, &mut self.waits, now, task, n_weather);
                } else if may_count_later {
                    self.given_up.give_up(&mut self.work, &mut self.waits, task, attempt, out);
                } else {
                    self.schedule.requeue(&mut self.work, now, task);
                }
                None
            }
        }
    }

    pub(super) fn on_cancel(
        &mut self,
        now: Timestamp,
        run: RunId,
        task: Option<TaskId>,
        out: &mut Vec<Action>,
    ) {
        let Some(state) = self.work.runs.get_mut(&run).filter(|r| r.started) else { return };
        state.cancelled |= task.is_none();
        if task.is_none() {
            self.cancel_push(run);
        }
        let state = &self.work.runs[&run];
        let tasks: Vec<TaskId> = match task {
            Some(task) if self.work.tasks.has_task(task) && self.work.tasks.run_of(task) == run => vec![task],
            Some(_) => return,
            None => {
                let arrays = state.arrays.iter().map(|id| &self.work.tasks.arrays[id.0 as usize]);
                arrays.flat_map(|a| (a.base.0..a.base.0 + u64::from(a.array.n_tasks)).map(TaskId)).collect()
            }
        };
        for task in tasks {
            if self.work.tasks.end_of(task) != End::Not {
                continue;
            }
            if let Some(r) = self.schedule.attempts.reserved.get_mut(&task) {
                // A landing attempt is not stopped; if it fails to land, the task is not tried again.
                if !std::mem::replace(&mut r.cancelling, true) && !r.landing {
                    out.push(Action::CancelAttempt { executor: r.executor, task, attempt: r.attempt });
                }
                continue;
            }
            if self.waits.n_missing.remove(&task).is_some() {
                self.work.run_mut(run).tasks.n_waiting -= 1;
            } else {
                self.schedule.take_ready(&mut self.work, task);
            }
            self.end_task(now, task, Outcome::Cancelled, out);
        }
    }

    /// Ends a task that is in no other collection any more, and with it the tasks that wait for it and now
    /// cannot run. No attempt ended the task.
    pub(super) fn end_task(&mut self, now: Timestamp, task: TaskId, outcome: Outcome, out: &mut Vec<Action>) {
        self.end_task_by(now, task, outcome, None, out);
    }

    /// As [`Self::end_task`], for a task that this attempt of this executor ended, if one did.
    fn end_task_by(
        &mut self,
        now: Timestamp,
        task: TaskId,
        outcome: Outcome,
        mut by: Option<(ExecutorId, AttemptNo)>,
        out: &mut Vec<Action>,
    ) {
        // A list, not recursion: chains of tasks may be long.
        let (mut next, mut ends) = (Some((task, outcome)), VecDeque::new());
        while let Some((task, outcome)) = next {
            let run = self.work.tasks.run_of(task);
            let (array, i) = self.work.tasks.locate(task);
            self.work.tasks.arrays[array.0 as usize].ends.set(i, End::of(&outcome));
            self.work.count_end(run, task, &outcome);
            if let Some(history) = self.schedule.attempts.histories.remove(&task)
                && outcome != Outcome::Done
            {
                self.leftovers.note(&self.work, &self.schedule.attempts, task, &history);
            }
            if !self.work.tasks.arrays[array.0 as usize].array.template.outputs.is_empty()
                && !self.work.is_remembered(task)
            {
                self.work.tasks.forget_maker(task);
            }
            self.given_up.forget(task);
            self.residents.waits_no_more(task);
            self.reach.forget(task);
            self.moves.forget_gather(task);
            let made = self.intermediates.files_made(&mut self.work, task);
            if outcome == Outcome::Done {
                self.spread_made(now, task, &made);
            }
            self.ended_with_intermediates(task, &made, out);
            self.release_imports(task, out);
            self.exchange.touch_exports_of(&mut self.work, task);
            out.push(Action::EndTask { task, outcome: outcome.clone(), by: by.take() });
            ends.extend(self.intermediates.end_promises_of(
                &mut self.work,
                &mut self.exchange,
                &mut self.waits,
                task,
            ));
            for subscriber in self.waits.subscribers.remove(&task).unwrap_or_default() {
                if outcome == Outcome::Done {
                    self.consider_gather(now, subscriber);
                }
                let Some(n_missing) = self.waits.n_missing.get_mut(&subscriber) else { continue };
                if outcome == Outcome::Done {
                    *n_missing -= 1;
                    if *n_missing > 0 {
                        continue;
                    }
                }
                self.waits.n_missing.remove(&subscriber);
                let run = self.work.tasks.run_of(subscriber);
                self.work.run_mut(run).tasks.n_waiting -= 1;
                if outcome == Outcome::Done {
                    self.schedule.requeue(&mut self.work, now, subscriber);
                } else if outcome == Outcome::Cancelled {
                    // Cancelling a task cancels the tasks that need it.
                    ends.push_back((subscriber, Outcome::Cancelled));
                } else {
                    let message = self.work.tasks.maker_failed(task, false);
                    let failure = Failure { kind: FailureKind::InputUnavailable, message };
                    ends.push_back((subscriber, Outcome::Failed(failure)));
                }
            }
            self.check_run_end(now, run, out);
            next = ends.pop_front();
        }
    }

    pub(super) fn check_run_end(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let state = self.work.run_mut(run);
        let is_whole = state.committed && state.additions.n_open == 0 && !self.pushes.is_going(run);
        if is_whole && state.ended.is_none() && state.ends.n() == state.tasks.n_tasks {
            self.end_run(now, run, out);
            out.push(Action::EndRun { run });
        }
    }

    fn end_run(&mut self, at: Timestamp, run: RunId, out: &mut Vec<Action>) {
        self.work.run_mut(run).ended = Some(at);
        self.work.forget_writers(run);
        self.moves.forget_patterns(run);
        self.forget_stale(out);
    }

    /// Restores the times that an earlier process recorded. A push that had ended does not begin again.
    pub(super) fn on_run_restored(
        &mut self,
        run: RunId,
        opened: Timestamp,
        ended: Option<Timestamp>,
        out: &mut Vec<Action>,
    ) {
        if let Some(at) = ended.filter(|_| self.pushes.is_going(run)) {
            self.pushes.had_ended(run);
            let state = self.work.run_mut(run);
            if state.ends.n() == state.tasks.n_tasks {
                self.end_run(at, run, out);
            }
        }
        self.work.restore_times(run, opened, ended);
    }
}
