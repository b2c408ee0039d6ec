//! Executors come, are silent for a while, come back with what they have, or are lost.
//!
//! A silent executor keeps its attempts until its lease is over. An executor that comes back reports what it
//! runs and what it holds, and both sides agree again. After a restart of the dispatcher, running attempts
//! are known only from these reports. Attempts that wait behind full slots while other executors are idle are
//! taken back, see [`Schedule::recall`].
//!
//! Not here: which nodes there should be ([`crate::provisioning`]).

use super::attempts::{SICK_NS, SICK_NS_MAX};
use super::demand::{KindCounts, TaskKind};
use super::walltimes;
use super::walltimes::Loss;
use super::{
    Dispatcher, End, Exchange, Intermediates, Leaving, Moves, Reserved, Resources, Schedule, Shares, Waits,
    Walltimes, Workload, task_size,
};
use crate::collective::CollectiveEvent;
use crate::event::{Action, AttemptReport, HeldObject, InputReport, Offer};
use crate::means::{RUNS_SMOOTHED, smooth};
use crate::placement::{NeedsId, TaskSize, TimeLeft};
use eyas_terms::location::CatalogLocation;
use eyas_terms::needs::Size;
use eyas_terms::{
    AttemptNo, CacheOutcome, ExecutorId, Failure, FailureKind, MemberId, NodeState, ObjectId, Outcome,
    OwnerId, RunId, TaskId, Timestamp,
};
use eyas_text::{size as shown_size, size_beside};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a task that fits no connected executor waits for a larger executor to come.
const UNFIT_GRACE_NS: u64 = 15_000_000_000;
/// Of the tasks of one size that fit nowhere, so many end at once, so that nothing else waits for long.
const FAILED_AT_ONCE: usize = 4096;

/// A file is sent to a node ahead of its readers only if it takes at most one part in `CACHE_PARTS` of the
/// node's cache.
const CACHE_PARTS: u64 = 4;
/// A disk is full where the cache has room for less than one part in `FULL_SHARE` of what it was given.
const FULL_SHARE: u64 = 16;
const RECALL_EVERY_NS: u64 = 50_000_000;

pub(super) struct ExecutorState {
    pub(super) offer: Offer,
    /// Since when the executor's connection is broken.
    pub(super) silent_since: Option<Timestamp>,
    /// The executor takes no new tasks.
    pub(super) draining: bool,
    /// The dispatcher of the group that this executor was told to move to. It is told again when it
    /// reconnects, because the first message may be lost with the connection.
    pub(super) moving_to: Option<MemberId>,
    /// The executor was told to leave: since when, and which files that only it held other nodes were asked
    /// to copy.
    pub(super) leaving: Option<Leaving>,
    pub(super) assigned: BTreeMap<TaskId, AttemptNo>,
    /// How many of these tasks there are of which kind.
    pub(super) kinds: KindCounts,
    pub(super) cpus_assigned: u32,
    pub(super) memory_assigned: u64,
    /// How many of the attempts hold which needs beside whole cpus and memory.
    pub(super) needs_held: BTreeMap<NeedsId, u32>,
    /// Smoothed time from start to exit of the tasks it ran.
    pub(super) run_ns_mean: Option<u64>,
    /// The number of these tasks.
    pub(super) n_runs: u32,
    /// Smoothed time that inputs took to come here from home, over the attempts that waited for any.
    pub(super) moved_ns_mean: Option<u64>,
    /// The same with the time until this node has made of packed inputs what programs read; `None`: it made none.
    pub(super) made_ns_mean: Option<u64>,
    /// When the executor joined or its last attempt ended. If it has no attempt, it has been idle since then.
    pub(super) last_ended: Timestamp,
    /// Attempts in a row that failed through this node's fault, and until when the node gets no tasks because
    /// of that. A node on which tasks fail at once would otherwise be idle first and take the whole queue.
    pub(super) n_node_failures: u32,
    pub(super) sick_until: Option<Timestamp>,
    /// The message of the last of these failures.
    pub(super) sick_why: Arc<str>,
    /// Why an attempt failed among the failures in a row, of which there have been several.
    pub(super) unwell_why: Option<Arc<str>>,
    /// When the executor ends, if that is known, and how much of its time placement counts on.
    pub(super) ends: Option<walltimes::Ends>,
    pub(super) left: TimeLeft,
    /// The same time in nanoseconds.
    pub(super) left_ns: u64,
    /// The size of the executor's cache when it joined, which [`Event::CacheResized`] does not change.
    pub(super) cache_offered_bytes: u64,
}

impl ExecutorState {
    /// The executor has an attempt of the task from now on.
    pub(super) fn assign(&mut self, task: TaskId, attempt: AttemptNo, kind: TaskKind) {
        if self.assigned.insert(task, attempt).is_none() {
            self.kinds.add(kind);
        }
    }

    /// The executor does not have the task any more.
    pub(super) fn unassign(&mut self, task: TaskId, kind: TaskKind) {
        if self.assigned.remove(&task).is_some() {
            self.kinds.remove(kind);
        }
    }

    pub(super) fn node_state(&self) -> NodeState {
        match (self.silent_since, self.draining) {
            (Some(_), _) => NodeState::Silent,
            (None, true) => NodeState::Draining,
            (None, false) => NodeState::Connected,
        }
    }

    /// Whether the executor has no task, and ends at a known time.
    pub(super) fn is_idle_with_an_end(&self) -> bool {
        self.ends.is_some() && self.assigned.is_empty()
    }

    /// Learns from the end of an attempt how long tasks run here, and whether the node has to rest.
    pub(super) fn learn(&mut self, now: Timestamp, report: &AttemptReport) {
        if let Some(run_ns) = report.times.run_ns() {
            self.n_runs = self.n_runs.saturating_add(1);
            smooth(&mut self.run_ns_mean, run_ns, RUNS_SMOOTHED);
        }
        // What comes from another node had better not be copied: where one waits for it, more tasks would wait in the same way.
        let is_of_home =
            |input: &&InputReport| matches!(input.outcome, CacheOutcome::Miss | CacheOutcome::Direct);
        let waits = report.inputs.iter().filter(is_of_home).map(|input| input.wait_ns).max();
        if let Some(moved_ns) = waits.filter(|ns| *ns > 0) {
            smooth(&mut self.moved_ns_mean, moved_ns, RUNS_SMOOTHED);
        }
        let made = report.inputs.iter().filter(|input| input.outcome == CacheOutcome::Made);
        let made = made.map(|input| input.wait_ns).max();
        // What was unpacked once for all tasks says little of those that follow and wait for plain files.
        let is_kept = made.is_some() || self.made_ns_mean.is_some();
        if let Some(made_ns) = made.max(waits).filter(|_| is_kept) {
            smooth(&mut self.made_ns_mean, made_ns, RUNS_SMOOTHED);
        }
        match &report.outcome {
            Outcome::Failed(Failure { kind: FailureKind::Node, message }) => {
                self.sick_why = message.as_str().into();
                let wait_ns = (SICK_NS << self.n_node_failures.min(6)).min(SICK_NS_MAX);
                self.n_node_failures += 1;
                if self.n_node_failures > 1 {
                    self.unwell_why.get_or_insert_with(|| self.sick_why.clone());
                }
                self.sick_until = Some(now.plus_ns(wait_ns));
            }
            // The node is well, but this task is too large for it: other nodes get a chance to take the
            // task. The node rests no longer than that, as the end of tasks that wait for this node may
            // be what makes room.
            Outcome::Failed(Failure {
                kind: FailureKind::DiskTooSmall | FailureKind::CacheFull | FailureKind::CacheTooSmall,
                message,
            }) => {
                self.sick_why = message.as_str().into();
                self.sick_until = Some(now.plus_ns(SICK_NS));
            }
            Outcome::Done => {
                self.n_node_failures = 0;
                self.unwell_why = None;
            }
            _ => {}
        }
    }

    /// Whether inputs take longer to come here than the slots need for the programs of `n_tasks` tasks.
    pub(super) fn comes_late(&self, n_tasks: u32) -> bool {
        self.takes_longer(self.moved_ns_mean, n_tasks)
    }

    /// Whether what this node makes of packed inputs takes longer, with their coming, than the slots need for the programs of
    /// `n_tasks` tasks.
    pub(super) fn is_made_late(&self, n_tasks: u32) -> bool {
        self.takes_longer(self.made_ns_mean, n_tasks)
    }

    fn takes_longer(&self, ns: Option<u64>, n_tasks: u32) -> bool {
        let (Some(run_ns), Some(ns)) = (self.run_ns_mean, ns) else { return false };
        run_ns.saturating_mul(u64::from(n_tasks)) < ns.saturating_mul(u64::from(self.offer.slots))
    }

    /// Whether the executor is neither silent nor draining.
    pub(super) fn is_connected(&self) -> bool {
        self.node_state() == NodeState::Connected
    }
}

/// No executor that is there is large enough for a task of some size.
pub(super) struct Unfit {
    /// A sentence.
    pub(super) why: String,
    /// An executor that is large enough may come.
    pub(super) may_pass: bool,
}

impl Unfit {
    /// The same for people, with what follows for the task.
    pub(super) fn in_words(self) -> String {
        match self.may_pass {
            true => self.why,
            false => {
                let s = UNFIT_GRACE_NS / 1_000_000_000;
                format!("{}; the task fails if none that is large enough joins within {s} s", self.why)
            }
        }
    }
}

/// All executors of this dispatcher.
#[derive(Default)]
pub(super) struct Executors {
    pub(super) by_id: BTreeMap<ExecutorId, ExecutorState>,
    /// The executors whose connection is broken.
    pub(super) silent: BTreeSet<ExecutorId>,
    /// The size of the nodes that whoever starts nodes may bring; `None`: nobody brings nodes.
    pub(super) expected_node: Option<Box<Size>>,
    /// When an executor joined or was lost the last time.
    pub(super) changed: Timestamp,
    /// What tasks need beside whole cpus and memory, and who holds it.
    pub(super) resources: Resources,
    /// Executors that end at a known time.
    pub(super) walltimes: Walltimes,
}

impl Executors {
    /// A sentence for each executor that gets no tasks for a while because of its last failures.
    pub(super) fn resting(&self) -> impl Iterator<Item = String> {
        self.by_id.values().filter(|e| e.sick_until.is_some() && e.silent_since.is_none()).map(|e| {
            let times = match e.n_node_failures {
                0 | 1 => "failed an attempt".into(),
                n => format!("failed {n} attempts in a row"),
            };
            format!("node `{}` rests, as it {times}, the last one because: {}", e.offer.name, e.sick_why)
        })
    }

    /// A sentence for each executor that fails one task after the other, or whose disk is full. It stays the same while that lasts.
    pub(super) fn unwell(&self) -> impl Iterator<Item = String> {
        let is_here = |e: &&ExecutorState| e.silent_since.is_none();
        self.by_id.values().filter(is_here).filter_map(|e| {
            if let Some(why) = &e.unwell_why {
                return Some(format!("node `{}` fails tasks and rests: {why}", e.offer.name));
            }
            let is_full = e.offer.cache_bytes < e.cache_offered_bytes / FULL_SHARE;
            let name = is_full.then_some(&e.offer.name)?;
            Some(format!("the disk of node `{name}` is full: its cache has little room left (eyas status)"))
        })
    }

    /// A sentence for each executor whose cache is now smaller than the cache that it offered.
    pub(super) fn short_of_space(&self) -> impl Iterator<Item = String> {
        let short = |e: &&ExecutorState| e.offer.cache_bytes < e.cache_offered_bytes;
        self.by_id.values().filter(short).map(|e| {
            let mib = |bytes: u64| bytes >> 20;
            format!(
                "node `{}`: its disk has room for a cache of {} MiB, not for the {} MiB that it was given; free space \
                 there, or start it with a smaller --cache",
                e.offer.name,
                mib(e.offer.cache_bytes),
                mib(e.cache_offered_bytes)
            )
        })
    }

    /// The disk of an executor has room for a cache of this size.
    pub(super) fn on_resized(&mut self, executor: ExecutorId, cache_bytes: u64) {
        if let Some(e) = self.by_id.get_mut(&executor) {
            e.offer.cache_bytes = cache_bytes;
        }
    }

    /// The slots of an executor that its attempts take.
    fn taken(&self, e: &ExecutorState) -> u32 {
        e.cpus_assigned + self.resources.slots_in_parts(e)
    }

    /// Whether an executor has no attempt and could be given one.
    pub(super) fn is_idle(&self, executor: ExecutorId) -> bool {
        self.by_id.get(&executor).is_some_and(|e| {
            e.assigned.is_empty() && e.cpus_assigned == 0 && e.is_connected() && e.sick_until.is_none()
        })
    }

    /// Executors that may be sent `bytes`, each with the number of its attempts, by which callers choose.
    pub(super) fn receivers(&self, bytes: u64) -> BTreeMap<ExecutorId, u32> {
        let takes = |e: &&ExecutorState| e.is_connected() && e.offer.cache_bytes / CACHE_PARTS >= bytes;
        let of = self.by_id.iter().filter(|(_, e)| takes(e));
        of.map(|(id, e)| (*id, e.assigned.len() as u32)).collect()
    }

    /// Whether all nodes that may be sent files may be sent so many bytes.
    pub(super) fn all_receive(&self, bytes: u64) -> bool {
        self.receivers(bytes).len() == self.receivers(0).len()
    }

    /// Nodes that may be sent files which would otherwise be lost: bytes sent so far, and bytes that there is
    /// room for.
    pub(super) fn receivers_of_rescue(&self) -> BTreeMap<ExecutorId, (u64, u64)> {
        let nodes = self.receivers(0);
        nodes.keys().map(|e| (*e, (0, self.by_id[e].offer.cache_bytes / 2))).collect()
    }

    /// Whether a node that may come is large enough for a task of that size.
    fn is_expected(&self, size: TaskSize) -> bool {
        let task = self.resources.full_size(size);
        self.resources.can_ever_have(size.needs)
            && self.expected_node.as_ref().is_some_and(|n| n.holds(&task) > 0)
    }

    /// `Some` if there are executors and none is large enough for a task of that size.
    pub(super) fn find_unfit(&self, exchange: &Exchange, size: TaskSize) -> Option<Unfit> {
        let (cpus, memory) = (self.resources.n_slots_for(size), size.memory_bytes);
        let unequipped = self.why_unequipped(size.needs);
        let offers = || self.by_id.values().filter(|e| e.moving_to.is_none()).map(|e| &e.offer);
        let fits = |e: &&ExecutorState| e.moving_to.is_none() && self.resources.is_able(e, size);
        if unequipped.is_none() && self.by_id.values().any(|e| fits(&e)) {
            return None;
        }
        let largest = offers().map(Offer::size);
        let largest: Vec<Size> = largest.chain(exchange.offers_elsewhere()).collect();
        let slots = largest.iter().map(Size::slots).max()?;
        let most = largest.iter().map(|size| size.memory_bytes).max()?;
        if self.resources.can_ever_have(size.needs) && exchange.may_come(&self.resources, size) {
            let why = "no executor of this dispatcher is large enough; one of another dispatcher may be, and comes when it has nothing to do";
            return Some(Unfit { why: why.into(), may_pass: true });
        }
        if self.is_expected(size) {
            let why = "no executor that is there is large enough; one that may still come is";
            return Some(Unfit { why: why.into(), may_pass: true });
        }
        let why = if let Some(sentence) = unequipped {
            sentence
        } else if cpus > slots {
            let s = if slots == 1 { "" } else { "s" };
            format!("the task asks for {cpus} cpus, the largest executor has {slots} slot{s}")
        } else if memory > most {
            let (asked, offered) = (size_beside(memory, most), size_beside(most, memory));
            format!("the task asks for {asked} of memory, the largest executor offers {offered}")
        } else if !size.needs.is_none() {
            format!(
                "no executor has {cpus} slots, {} of memory{} together",
                shown_size(memory),
                self.resources.needs_in_words(size.needs)
            )
        } else {
            format!("no executor has both {cpus} slots and {} of memory", shown_size(memory))
        };
        Some(Unfit { why, may_pass: false })
    }
}

impl Schedule {
    fn insert_executor(
        &mut self,
        work: &Workload,
        now: Timestamp,
        executor: ExecutorId,
        offer: Offer,
        assigned: BTreeMap<TaskId, AttemptNo>,
    ) {
        let offer_ends = offer.walltime.map(|walltime| walltimes::Ends::of(now, walltime));
        let mut state = ExecutorState {
            cache_offered_bytes: offer.cache_bytes,
            offer,
            silent_since: None,
            draining: false,
            moving_to: None,
            leaving: None,
            kinds: KindCounts::of(assigned.keys().map(|task| work.tasks.kind_of(*task))),
            assigned,
            cpus_assigned: 0,
            memory_assigned: 0,
            needs_held: BTreeMap::new(),
            run_ns_mean: None,
            n_runs: 0,
            moved_ns_mean: None,
            made_ns_mean: None,
            last_ended: Timestamp::default(),
            n_node_failures: 0,
            sick_until: None,
            sick_why: "".into(),
            unwell_why: None,
            ends: offer_ends,
            left: TimeLeft::NO_END,
            left_ns: u64::MAX,
        };
        for task in state.assigned.keys() {
            let r = &self.attempts.reserved[task];
            if !r.landing {
                state.cpus_assigned += r.cpus;
                state.memory_assigned += r.memory_bytes;
                if !r.needs.is_none() {
                    *state.needs_held.entry(r.needs).or_default() += 1;
                }
            }
        }
        self.executors.by_id.insert(executor, state);
        self.executors.changed = now;
    }

    /// Takes a task from the executor that has it; the caller updates the executor's load.
    pub(super) fn release(&mut self, work: &mut Workload, task: TaskId) -> Reserved {
        let r = self.attempts.reserved.remove(&task).expect("an assigned task is reserved");
        self.attempts.released.push((task, r.attempt));
        self.run_times.not_reserved(work.tasks.stage_of(task), work.tasks.size_of(task));
        self.hold_elsewhere(work, r.needs);
        self.shares.not_held(work.owner_of(task), r.cpus, r.given_at);
        let run = work.run_mut(work.tasks.run_of(task));
        run.tasks.n_reserved -= 1;
        run.tasks.n_landing -= u64::from(r.landing);
        for output in &r.outputs {
            self.attempts.making.remove(output);
        }
        for object in &r.reads_first {
            if self.attempts.arriving.get(object) == Some(&r.executor) {
                self.attempts.arriving.remove(object);
            }
        }
        self.ready.queue.ended(&work.catalog, task);
        r
    }

    pub(super) fn reserve(&mut self, work: &mut Workload, task: TaskId, r: Reserved) {
        self.attempts.n_given += 1;
        self.shares.held(work.owner_of(task), r.cpus, r.given_at);
        let run = work.run_mut(work.tasks.run_of(task));
        run.tasks.n_reserved += 1;
        for output in &r.outputs {
            self.attempts.making.insert(*output, task);
        }
        let (executor, attempt, cpus, memory_bytes) = (r.executor, r.attempt, r.cpus, r.memory_bytes);
        let needs = r.needs;
        let kind @ (stage, size) = work.tasks.kind_of(task);
        self.run_times.reserved(stage, size);
        self.attempts.reserved.insert(task, r);
        self.change_load(work, executor, |e| {
            e.assign(task, attempt, kind);
            e.cpus_assigned += cpus;
            e.memory_assigned += memory_bytes;
        });
        self.hold(work, executor, needs, true);
    }

    /// Takes over an attempt that a previous dispatcher process gave out. Gives the objects that the attempt
    /// makes.
    fn adopt(
        &mut self,
        work: &mut Workload,
        waits: &Waits,
        now: Timestamp,
        executor: ExecutorId,
        owner: Option<u64>,
        task: TaskId,
        attempt: AttemptNo,
        out: &mut Vec<Action>,
    ) -> Vec<ObjectId> {
        let free = work.tasks.has_task(task)
            && work.tasks.end_of(task) == End::Not
            && !self.attempts.reserved.contains_key(&task)
            && !waits.n_missing.contains_key(&task)
            && work.runs.get(&work.tasks.run_of(task)).is_some_and(|r| r.started)
            && !self.attempts.may_be_outdone(owner, task, attempt)
            // Others may have got meanwhile what the attempt held of the whole cluster.
            && self.executors.resources.cluster_has(work.tasks.size_of(task).needs);
        if !free {
            if work.tasks.has_task(task) && work.tasks.end_of(task) == End::Not {
                // A later attempt of the task must not get the same number. The record is needed because a
                // process that comes after this one would know of the attempt no more than if this process
                // had given it up.
                self.attempts.tried(task, attempt);
                out.push(Action::RecordGivenUp { task, attempt });
            }
            // The attempt's end may be recorded, with only the acknowledgement lost; cancelling it again does
            // no harm.
            out.push(Action::CancelAttempt { executor, task, attempt });
            return vec![];
        }
        self.take_ready(work, task);
        let spec = work.task_spec(task);
        let TaskSize { cpus, memory_bytes, needs } = work.tasks.size_of(task);
        let outputs: Vec<ObjectId> =
            spec.outputs.iter().map(|(_, l)| work.catalog.intern(CatalogLocation::of(l))).collect();
        let run = work.tasks.run_of(task);
        outputs.iter().for_each(|object| work.catalog.name(*object, run));
        let lands = work.tasks.lands(task);
        self.attempts.tried(task, attempt);
        let r = Reserved {
            executor,
            attempt,
            cpus,
            memory_bytes,
            needs,
            landing: false,
            cancelling: false,
            given: self.attempts.n_given,
            recalled: false,
            adopted: true,
            asks_home: true,
            given_at: now,
            suspect: false,
            outputs: outputs.clone(),
            lands,
            reads_first: vec![],
        };
        self.reserve(work, task, r);
        outputs
    }

    pub(super) fn on_executor_draining(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        moves: &mut Moves,
        now: Timestamp,
        executor: ExecutorId,
    ) {
        let Some(e) = self.executors.by_id.get_mut(&executor) else { return };
        e.draining = true;
        e.leaving.get_or_insert(Leaving { since: now, copies_asked: BTreeSet::new() });
        self.executors.walltimes.forget(executor);
        self.executors.ends_changed();
        self.update_room(work, executor);
        intermediates.rescue(work, &mut self.executors, moves, now, executor);
    }

    pub(super) fn on_executor_silent(
        &mut self,
        work: &Workload,
        exchange: &mut Exchange,
        intermediates: &Intermediates,
        now: Timestamp,
        executor: ExecutorId,
    ) {
        if let Some(e) = self.executors.by_id.get_mut(&executor) {
            e.silent_since.get_or_insert(now);
            self.executors.silent.insert(executor);
            self.update_room(work, executor);
            exchange.touch_exports_on(work, intermediates, executor);
        }
    }

    /// Takes back attempts that wait behind full slots: while other slots are idle, and long ones of users whose turn it is not
    /// where several share the cluster.
    ///
    /// `n_asked`: slots of attempts that were asked back a moment ago, for which idle slots are kept.
    pub(super) fn recall(&mut self, work: &Workload, now: Timestamp, n_asked: u32, out: &mut Vec<Action>) {
        self.attempts.recalled_at = now;
        if self.attempts.hold_until.is_some() {
            return;
        }
        if self.ready.n_tasks > 0 {
            return self.recall_some(work, u32::MAX, out, |shares, owner| shares.makes_way(owner));
        }
        let takes_new = |e: &&ExecutorState| e.is_connected() && e.sick_until.is_none();
        let idle = |e: &ExecutorState| e.offer.slots.saturating_sub(self.executors.taken(e));
        let n_idle: u32 = self.executors.by_id.values().filter(takes_new).map(idle).sum();
        self.recall_some(work, n_idle.saturating_sub(n_asked), out, |_, _| true);
    }

    /// Takes back attempts that wait behind full slots while other slots are idle and no task is ready. Looks at all executors, so
    /// it does so now and then only.
    pub(super) fn recall_to_idle(&mut self, work: &Workload, now: Timestamp, out: &mut Vec<Action>) {
        let is_time = now.since_ns(self.attempts.recalled_at) >= RECALL_EVERY_NS;
        if is_time && self.ready.n_tasks == 0 {
            let n_asked = self.attempts.reserved.values().filter(|r| r.recalled).map(|r| r.cpus).sum();
            self.recall(work, now, n_asked, out);
        }
    }

    /// Takes back attempts that wait for a slow transfer although their tasks could begin sooner elsewhere or by another way.
    pub(super) fn recall_late(&mut self, work: &Workload, now: Timestamp, out: &mut Vec<Action>) {
        for task in self.ready.queue.late(&work.catalog, now) {
            let Some(r) = self.attempts.reserved.get_mut(&task) else { continue };
            let is_heard = self.executors.by_id.get(&r.executor).is_some_and(ExecutorState::is_connected);
            if is_heard && !r.landing && !r.cancelling && !std::mem::replace(&mut r.recalled, true) {
                out.push(Action::RecallAttempt { executor: r.executor, task, attempt: r.attempt });
            }
        }
    }

    /// Takes back attempts of some users that wait behind full slots, of at most `n_slots` slots; the last given goes first. An
    /// executor ignores this for an attempt whose program has begun.
    fn recall_some(
        &mut self,
        work: &Workload,
        mut n_slots: u32,
        out: &mut Vec<Action>,
        of: impl Fn(&Shares, OwnerId) -> bool,
    ) {
        if n_slots == 0 || self.ready.n_tasks > 0 && self.shares.turn.is_none() {
            return;
        }
        let mut asked = vec![];
        for (executor, e) in &self.executors.by_id {
            let mut surplus = self.executors.taken(e).saturating_sub(e.offer.slots);
            if surplus == 0 || e.silent_since.is_some() {
                continue;
            }
            let mut waiting: Vec<(u64, TaskId, u32)> = e
                .assigned
                .keys()
                .map(|task| (*task, &self.attempts.reserved[task]))
                .filter(|(_, r)| !r.landing && !r.cancelling && !r.recalled && r.needs.is_none())
                .filter(|(task, _)| of(&self.shares, work.owner_of(*task)))
                .map(|(task, r)| (r.given, task, r.cpus))
                .collect();
            waiting.sort_unstable_by(|a, b| b.cmp(a));
            for (_, task, cpus) in waiting {
                if cpus > surplus || cpus > n_slots {
                    break;
                }
                surplus -= cpus;
                n_slots -= cpus;
                asked.push((*executor, task));
            }
        }
        for (executor, task) in asked {
            let r = self.attempts.reserved.get_mut(&task).expect("an assigned task is reserved");
            r.recalled = true;
            out.push(Action::RecallAttempt { executor, task, attempt: r.attempt });
        }
    }
}

impl Dispatcher {
    pub(super) fn on_executor_joined(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        mut offer: Offer,
        out: &mut Vec<Action>,
    ) {
        if !self.schedule.attempts.is_own_work(&offer) {
            // The driver turns such an executor away. Here the numbers of its attempts would mean other
            // tasks.
            offer.attempts.clear();
        }
        let (mut held_before, mut made) = (vec![], vec![]);
        self.leftovers.ask_anew(executor);
        self.reach.couriers.joined(&mut self.exchange, &offer.name);
        // Also where home is not limited: another dispatcher may have limited the executor before.
        out.push(Action::ShareHome { executor, share: self.home_shares.joined(executor) });
        self.reruns.forget_on(now, executor);
        self.schedule.executors.silent.remove(&executor);
        if let Some(known) = self.schedule.executors.by_id.remove(&executor) {
            held_before = self.rejoin(now, executor, known, &offer, out);
        } else {
            self.work.catalog.executor_joined(executor);
            if self.config.measures_network() {
                self.network.executor_joined(executor, &offer.host());
                self.probe_network(now, Some(executor), out);
            }
            self.schedule.insert_executor(&self.work, now, executor, offer.clone(), BTreeMap::new());
            // This dispatcher has restarted: the executor still has the attempts that the process before gave
            // it.
            for &(task, attempt) in &offer.attempts {
                made.extend(self.schedule.adopt(
                    &mut self.work,
                    &self.waits,
                    now,
                    executor,
                    offer.owner,
                    task,
                    attempt,
                    out,
                ));
            }
        }
        self.schedule.executors.note_ends(executor);
        self.store_joined(executor);
        self.on_all_held(executor, &offer.held, made, out);
        self.residents.joined(&self.schedule.executors, executor);
        self.exchange.touch_exports_on(&self.work, &self.intermediates, executor);
        self.schedule.change_load(&self.work, executor, |e| e.last_ended = now);
        self.intermediates.unpark(&mut self.work, &mut self.schedule, &mut self.waits, now, executor);
        self.end_apart(now);
        self.check_lost(now, &held_before, out);
    }

    /// Whether the attempts that an executor brings were given out by this process, or by an earlier one with
    /// this journal. The driver asks before it welcomes an executor: an executor with the work of another
    /// dispatcher is turned away.
    pub fn is_own_work(&self, offer: &Offer) -> bool {
        self.schedule.attempts.is_own_work(offer)
    }

    /// Whether this process gives out nothing yet, as executors of before may still come back.
    pub fn is_held(&self) -> bool {
        self.schedule.attempts.hold_until.is_some()
    }

    /// An executor that is known here has come back: keeps the attempts that both sides know, queues again
    /// those that the executor no longer has, and ends those that it should not have. Gives the objects that
    /// it held as far as was known; the caller learns what it holds now.
    fn rejoin(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        known: ExecutorState,
        offer: &Offer,
        out: &mut Vec<Action>,
    ) -> Vec<ObjectId> {
        let mut kept = BTreeMap::new();
        let mut lost = vec![];
        for (task, attempt) in known.assigned {
            if offer.attempts.contains(&(task, attempt)) {
                kept.insert(task, attempt);
            } else {
                lost.push(task);
            }
        }
        for &(task, attempt) in &offer.attempts {
            // A cancellation that was sent while the connection was broken is sent again.
            let is_wanted = kept.get(&task) == Some(&attempt) && {
                let r = &self.schedule.attempts.reserved[&task];
                !r.cancelling || r.landing
            };
            if !is_wanted {
                out.push(Action::CancelAttempt { executor, task, attempt });
            }
        }
        // Before the executor's load is counted anew: the room of an executor is what its load leaves, less the tasks whose
        // inputs move, and the end of a lost task that held something of the whole cluster has all rooms computed.
        for task in &lost {
            self.schedule.ready.queue.ended(&self.work.catalog, *task);
        }
        let held_before = self.work.catalog.objects_on(executor);
        self.residents_left(now, executor, &held_before);
        self.pushes.executor_left(executor, false);
        for object in &held_before {
            self.drop_replica(executor, *object);
        }
        self.schedule.insert_executor(&self.work, now, executor, offer.clone(), kept);
        let e = self.schedule.executors.by_id.get_mut(&executor).expect("it was just inserted");
        (e.draining, e.leaving) = (known.draining, known.leaving);
        (e.run_ns_mean, e.n_runs) = (known.run_ns_mean, known.n_runs);
        (e.moved_ns_mean, e.made_ns_mean) = (known.moved_ns_mean, known.made_ns_mean);
        e.moving_to = known.moving_to;
        // What it announced holds, and so does how long it has lived.
        e.ends = known.ends.or(e.ends.take());
        (e.left, e.left_ns) = (known.left, known.left_ns);
        if let Some(member) = e.moving_to {
            out.push(Action::SendAway { executor, member });
        }
        for task in lost {
            let r = self.schedule.release(&mut self.work, task);
            self.schedule.attempts.tried(task, r.attempt);
            if r.cancelling {
                self.end_task(now, task, Outcome::Cancelled, out);
            } else {
                self.schedule.requeue(&mut self.work, now, task);
            }
        }
        held_before
    }

    /// Notes a file that a (re)joining executor holds. `named` gets the files that stay on the nodes,
    /// `useless` those of them that are of no use.
    pub(super) fn on_held(
        &mut self,
        executor: ExecutorId,
        held: &HeldObject,
        named: &mut Vec<ObjectId>,
        useless: &mut Vec<ObjectId>,
    ) {
        let objects = match &held.origin {
            Some((location, version)) => {
                let location = CatalogLocation::of(location);
                let object = self.work.catalog.intern(location);
                if location.stays() {
                    if let Some(run) = self.exchange.run_of_import(&self.work, &self.intermediates, object) {
                        self.exchange.note_named(run, object);
                        // The file's owner may name this executor as a holder, even after all tasks of the
                        // run that are here have ended.
                        self.exchange.note_brought(executor, object);
                        if !self.intermediates.has(object) {
                            return;
                        }
                    }
                    named.push(object);
                    // The file is useless if its run is not known, or if its bytes are not those that the
                    // done task has made.
                    let known = self.work.catalog.digest(object);
                    if !self.intermediates.has(object) || known.is_some_and(|digest| digest != held.digest) {
                        useless.push(object);
                        self.forgotten.may_be_stale(object);
                        return;
                    }
                }
                if self.work.catalog.digest(object).is_none() {
                    self.work.catalog.set_digest(object, Some(held.digest));
                    self.work.catalog.set_size_bytes(object, Some(held.size_bytes));
                    self.work.catalog.set_version(object, Some(version.clone()));
                }
                vec![object]
            }
            None => {
                let objects = self.work.catalog.objects_with_digest(held.digest);
                named.extend(objects.iter().filter(|o| self.intermediates.has(**o)));
                objects
            }
        };
        for object in objects {
            if self.work.catalog.digest(object) == Some(held.digest) {
                self.add_replica(executor, object);
            }
        }
    }

    pub(super) fn on_executor_lost(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        reason: &str,
        out: &mut Vec<Action>,
    ) {
        let Some(lost) = self.schedule.executors.by_id.remove(&executor) else { return };
        self.schedule.executors.changed = now;
        self.schedule.executors.silent.remove(&executor);
        self.schedule.executors.walltimes.forget(executor);
        self.schedule.executors.ends_changed();
        let how = Loss::of(now, &lost);
        self.home_shares.left(executor);
        self.network.executor_left(executor);
        let objects = self.work.catalog.executor_left(executor);
        self.exchange.forget_brought(executor);
        if lost.moving_to.is_some() {
            self.exchange.lend(&self.work, &self.intermediates, executor, &objects);
            self.reach.couriers.left(&self.exchange, &lost.offer.name, executor, &objects);
        }
        self.moves.executor_lost(executor);
        self.reach.executor_lost(executor);
        self.leftovers.ask_anew(executor);
        self.reruns.forget_on(now, executor);
        self.schedule.ready.queue.executor_left(&self.work.catalog, executor, &objects);
        self.residents_left(now, executor, &objects);
        self.pushes.executor_left(executor, true);
        self.two_mark.executor_lost(executor);
        for (task, attempt) in lost.assigned {
            let r = self.schedule.release(&mut self.work, task);
            let is_suspect = !r.landing && how.is_suspicious();
            let history = self.schedule.attempts.tried(task, attempt);
            // A landing attempt's program had ended well, so the program did not take the node down.
            history.n_losses += u32::from(is_suspect);
            history.may_have_left |= r.lands;
            let n_losses = history.n_losses;
            let cut = match &how {
                Loss::Walltime { ends, at } if !r.landing => {
                    self.schedule.attempts.note_cut(task, attempt, r.given_at, ends, *at)
                }
                _ => None,
            };
            if r.cancelling {
                self.end_task(now, task, Outcome::Cancelled, out);
            } else if let Some(message) = cut {
                let failure = Failure { kind: FailureKind::CutOff, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
            } else if n_losses > self.config.losses_max {
                let message = format!(
                    "{n_losses} executors were lost while they had this task, the last one ({}) because {}",
                    lost.offer.name,
                    how.reason(reason)
                );
                let failure = Failure { kind: FailureKind::ExecutorLost, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
            } else {
                self.given_up.give_up(&mut self.work, &mut self.waits, task, attempt, out);
            }
        }
        self.intermediates.unpark(&mut self.work, &mut self.schedule, &mut self.waits, now, executor);
        self.end_apart(now);
        objects
            .iter()
            .for_each(|object| self.exchange.touch_export(&self.work, &self.intermediates, *object));
        self.check_lost(now, &objects, out);
    }

    /// Tells executors their new shares of home, when that is due.
    pub(super) fn share_home(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let mut shares = vec![];
        self.home_shares.divide(now, &mut shares);
        out.extend(shares.into_iter().map(|(executor, share)| Action::ShareHome { executor, share }));
    }

    pub(super) fn on_ticked(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.moves.collectives.n_live() > 0 {
            self.moves.pending.push(CollectiveEvent::Ticked);
        }
        self.await_no_probes(now);
        let lease_ns = self.config.lease_ns;
        let is_gone = |id: &ExecutorId| {
            let silent_since = self.schedule.executors.by_id.get(id).and_then(|e| e.silent_since);
            silent_since.is_some_and(|since| now.since_ns(since) > lease_ns)
        };
        let gone: Vec<ExecutorId> = self.schedule.executors.silent.iter().copied().filter(is_gone).collect();
        for executor in gone {
            let e = &self.schedule.executors.by_id[&executor];
            let reason = match Loss::of(now, e) {
                Loss::Walltime { ends, .. } => ends.why(),
                _ => format!("nothing was heard of it for {} s", lease_ns / 1_000_000_000),
            };
            self.on_executor_lost(now, executor, &reason, out);
            out.push(Action::ForgetExecutor { executor });
        }
        self.intermediates.unrest(&mut self.work, &mut self.schedule, &mut self.waits, now);
        self.tick_apart(now);
        // Rescue files that were made on an executor after it was told to leave.
        let leaving: Vec<ExecutorId> = self
            .schedule
            .executors
            .by_id
            .iter()
            .filter(|(_, e)| e.leaving.is_some())
            .map(|(id, _)| *id)
            .collect();
        leaving.into_iter().for_each(|executor| {
            self.intermediates.rescue(
                &self.work,
                &mut self.schedule.executors,
                &mut self.moves,
                now,
                executor,
            )
        });
        self.fail_unfit(now, out);
        self.schedule.settle_kept(&self.work);
        let well: Vec<ExecutorId> = self
            .schedule
            .executors
            .by_id
            .iter()
            .filter(|(_, e)| e.sick_until.is_some_and(|until| until <= now))
            .map(|(id, _)| *id)
            .collect();
        for executor in well {
            self.schedule.change_load(&self.work, executor, |e| e.sick_until = None);
        }
        self.schedule.recall(&self.work, now, 0, out);
        self.balance(now, out);
        self.forget_stale(out);
        self.forgotten.forget_old_runs(&self.work, &self.config, &self.exchange, &self.leftovers, now, out);
    }

    /// Why a run that is not committed yet would fail: a task of it is larger than every node that is there or may come. `None`: it is
    /// not, or nodes come and go, so that nobody knows. `are_all_here`: no node is on its way.
    pub fn why_never_fits(&self, now: Timestamp, run: RunId, are_all_here: bool) -> Option<String> {
        let executors = &self.schedule.executors;
        // Without somebody who starts nodes, a user may just be about to start one.
        let is_settled = executors.expected_node.is_some() && are_all_here
            || now.since_ns(executors.changed) > UNFIT_GRACE_NS;
        if !is_settled || self.schedule.attempts.hold_until.is_some() {
            return None;
        }
        let arrays = self.work.find_run(run)?.arrays.iter().map(|id| &self.work.tasks.arrays[id.0 as usize]);
        arrays.filter(|a| a.array.n_tasks > 0).find_map(|a| {
            let unfit = executors.find_unfit(&self.exchange, task_size(&a.array, a.needs))?;
            let id = a.array.fill(&a.array.template.id, 0);
            (!unfit.may_pass).then(|| format!("task {} fits no node: {}", eyas_text::shown(&id), unfit.why))
        })
    }

    /// Ends ready tasks that have been too large for every executor for a while. The time is kept by size over all ready tasks: those
    /// that enter the queue later do not wait anew, and neither do those that leave it while it is another user's turn.
    fn fail_unfit(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.schedule.attempts.hold_until.is_some() {
            // Executors, and whoever brings further ones, have not had time to come back.
            return;
        }
        let mut unfit = BTreeMap::new();
        let mut failed = vec![];
        for size in self.schedule.run_times.ready_sizes() {
            let found = self.schedule.executors.find_unfit(&self.exchange, size);
            if let Some(Unfit { why, may_pass: false }) = found {
                let since = *self.schedule.ready.unfit.get(&size).unwrap_or(&now);
                unfit.insert(size, since);
                if now.since_ns(since) > UNFIT_GRACE_NS {
                    let tasks = self.schedule.ready.tasks_of_size(&self.work, size);
                    failed.extend(tasks.take(FAILED_AT_ONCE).map(|task| (task, why.clone())));
                }
            }
        }
        self.schedule.ready.unfit = unfit;
        failed.sort_unstable();
        for (task, message) in failed {
            self.schedule.take_ready(&mut self.work, task);
            let failure = Failure { kind: FailureKind::NeverFits, message };
            self.end_task(now, task, Outcome::Failed(failure), out);
        }
    }
}
