//! Answers to the driver, reports and users: tasks, runs, executors; and the check of all invariants.

use super::demand::KindCounts;
use super::{
    ArrayState, Dispatcher, End, Exchange, ExecutorState, Intermediates, Ready, Reserved, Schedule,
    TaskState, UserShare, Workload,
};
use crate::event::{AttemptReport, Event, MACHINE_BYTES_MAX, NodeMessage, OBJECT_BYTES_MAX, Offer, Placed};
use crate::group::{FileState, LinkMessage};
use crate::placement::{Stage, Unplaced};
use eyas_terms::location::CatalogLocation;
use eyas_terms::{AttemptNo, ExecutorId, NodeState, ObjectId, OwnerId, RunId, TaskId, Timestamp};
use eyas_text::shown;
use std::collections::{BTreeMap, BTreeSet};

/// How many of the inputs that a task waits for are named.
const AWAITED_NAMED: usize = 3;
/// How many resting nodes are named.
const RESTING_NAMED: usize = 3;

fn why_too_large(bytes: u64) -> Option<String> {
    (bytes > OBJECT_BYTES_MAX).then(|| format!("an object of {bytes} bytes"))
}

fn why_no_cache(bytes: u64) -> Option<String> {
    (bytes > MACHINE_BYTES_MAX).then(|| format!("a cache of {bytes} bytes"))
}

impl Workload {
    /// Describes what cannot be true in `event`: an id that this dispatcher has never given, or a size that
    /// no machine has. Such an event comes from another dispatcher, from another version or from a damaged
    /// log. A driver that receives events from outside must not pass it to [`Dispatcher::handle`].
    pub fn find_nonsense(&self, event: &Event) -> Option<String> {
        match event {
            Event::ExecutorJoined { offer, .. } => offer.check().err(),
            Event::ReplicasChanged { added, dropped, .. } => {
                let mut objects = added.iter().map(|replica| replica.object).chain(dropped.iter().copied());
                objects
                    .find_map(|object| self.why_unnamed(object))
                    .or_else(|| added.iter().find_map(|replica| why_too_large(replica.size_bytes)))
            }
            Event::PrefetchFailed { object, .. } | Event::HomeNotRead { object, .. } => {
                self.why_unnamed(*object)
            }
            Event::PlacesFound { asked, placed, .. } => self.find_nonsense_in_places(asked, placed),
            Event::AttemptEnded { report, .. } => self.find_nonsense_in_report(report),
            Event::CacheResized { cache_bytes, .. } => why_no_cache(*cache_bytes),
            Event::MemberLoadChanged { load, .. } => load.check().err(),
            Event::MemberTold { messages, .. } => messages.iter().find_map(|message| match message {
                LinkMessage::File { state: FileState::Held { size_bytes, .. }, .. } => {
                    why_too_large(*size_bytes)
                }
                _ => None,
            }),
            Event::OutputsHome { task, .. }
            | Event::FileOpened { task, .. }
            | Event::FilesMade { task, .. }
            | Event::TaskRestored { task, .. }
            | Event::TaskRevived { task }
            | Event::AttemptGivenUp { task, .. }
            | Event::CancelRequested { task: Some(task), .. } => self.why_not_submitted(*task),
            _ => None,
        }
    }

    /// As [`Self::find_nonsense`], for an executor's message before it is made an event.
    pub fn find_nonsense_in_message(&self, message: &NodeMessage) -> Option<String> {
        match message {
            NodeMessage::ReplicaAdded(replica) => {
                self.why_unnamed(replica.object).or_else(|| why_too_large(replica.size_bytes))
            }
            NodeMessage::ReplicaDropped(object) | NodeMessage::PrefetchFailed { object, .. } => {
                self.why_unnamed(*object)
            }
            NodeMessage::AttemptEnded { report } => self.find_nonsense_in_report(report),
            NodeMessage::OutputsHome { task, .. }
            | NodeMessage::FileOpened { task, .. }
            | NodeMessage::FilesMade { task, .. } => self.why_not_submitted(*task),
            NodeMessage::CacheResized { cache_bytes } => why_no_cache(*cache_bytes),
            NodeMessage::InputMoved(_)
            | NodeMessage::PartsRemoved { .. }
            | NodeMessage::PeersProbed { .. }
            | NodeMessage::PeerUnreachable { .. } => None,
            NodeMessage::PlacesFound { asked, placed } => self.find_nonsense_in_places(asked, placed),
            NodeMessage::HomeNotRead { object, .. } => self.why_unnamed(*object),
        }
    }

    fn find_nonsense_in_places(&self, asked: &[ObjectId], placed: &[Placed]) -> Option<String> {
        let mut objects = asked.iter().copied().chain(placed.iter().map(|placed| placed.object));
        let unnamed = objects.find_map(|object| self.why_unnamed(object));
        unnamed.or_else(|| placed.iter().find_map(|placed| why_too_large(placed.size_bytes)))
    }

    fn find_nonsense_in_report(&self, report: &AttemptReport) -> Option<String> {
        self.why_not_submitted(report.task)
            .or_else(|| report.inputs.iter().find_map(|input| self.why_unnamed(input.object)))
            .or_else(|| report.inputs.iter().find_map(|input| why_too_large(input.size_bytes)))
            .or_else(|| report.outputs.iter().find_map(|output| why_too_large(output.size_bytes)))
    }

    fn why_unnamed(&self, object: ObjectId) -> Option<String> {
        let is_named = (object.0 as usize) < self.catalog.n_objects();
        (!is_named).then(|| format!("object {object}, which nobody named"))
    }

    fn why_not_submitted(&self, task: TaskId) -> Option<String> {
        (!self.tasks.has_task(task)).then(|| format!("task {task}, which nobody submitted"))
    }
}

impl Exchange {
    /// A phrase about the task or dispatcher that is to make the file at `location`, which `task` reads;
    /// `None` if nobody is to make it.
    fn awaited_from(
        &self,
        work: &Workload,
        intermediates: &Intermediates,
        task: TaskId,
        location: CatalogLocation<'_>,
    ) -> Option<String> {
        let owner = work.catalog.find(location).and_then(|object| self.awaited_import(work, task, object));
        if let Some(owner) = owner {
            return Some(format!("a task of dispatcher {} makes", owner.0 + 1));
        }
        let (by, promised) = intermediates.maker_or_promiser(work, location)?;
        let (id, ended) = (work.tasks.user_id(by), work.tasks.end_of(by) != End::Not);
        match promised {
            true => Some(format!("task {id} has promised", id = shown(&id))),
            false => (!ended).then(|| format!("task {id} makes", id = shown(&id))),
        }
    }
}

impl Schedule {
    /// Why a ready task that fits some executor is not given to an executor now.
    fn why_not_now(&self, work: &Workload, task: TaskId) -> Option<String> {
        let size = work.tasks.size_of(task);
        let (cpus, memory_bytes) = (self.executors.resources.n_slots_for(size), size.memory_bytes);
        let (array, _) = work.tasks.locate(task);
        let stage = work.tasks.arrays[array.0 as usize].stage;
        let lasts = self.lasts_of(task, stage, size);
        let is_large = |e: &&ExecutorState| self.executors.resources.is_able(e, size);
        let (mut n_large, mut n_silent, mut n_leaving, mut n_resting, mut n_ending) = (0, 0, 0, 0, 0);
        let mut n_kept = 0;
        let mut has_room = None;
        for (id, e) in self.executors.by_id.iter().filter(|(_, e)| is_large(e)) {
            n_large += 1;
            let room = self.ready.queue.room(*id).unwrap_or_default();
            match e.node_state() {
                NodeState::Silent => n_silent += 1,
                NodeState::Draining => n_leaving += 1,
                NodeState::Connected if e.sick_until.is_some() => n_resting += 1,
                NodeState::Connected if !e.left.is_enough_for(lasts) => n_ending += 1,
                NodeState::Connected if room.fits(Stage::Idle, size, lasts) => {
                    has_room = has_room.or(Some(e));
                }
                NodeState::Connected if self.executors.resources.is_kept_from(*id, size.needs) => n_kept += 1,
                NodeState::Connected => {}
            }
        }
        if let Some(e) = has_room {
            let why = self.ready.queue.why_not(work.tasks.key_of(task)).or(self.ready.unplaced);
            return why.map(|why| format!("executor `{}` has room for it; {why}", e.offer.name));
        }
        let mut needs = if cpus == 1 { "1 idle slot".to_string() } else { format!("{cpus} idle slots") };
        if memory_bytes > 0 {
            needs += &format!(" and {} of free memory", eyas_text::size(memory_bytes));
        }
        needs += &self.executors.resources.needs_in_words(size.needs);
        let n_busy = n_large - n_silent - n_leaving - n_resting - n_ending - n_kept;
        let ways = [
            (n_busy, "busy"),
            (n_silent, "silent"),
            (n_leaving, "leaving"),
            (n_resting, "resting after tasks failed there"),
            (n_ending, "with too little time until their end"),
            (n_kept, "kept for a task that others passed too often"),
        ];
        let ways = ways.iter().filter(|(n, _)| *n > 0).map(|(n, way)| format!("{n} {way}"));
        let ways = ways.collect::<Vec<_>>().join(", ");
        let n = self.executors.by_id.len();
        Some(format!("no executor has {needs}: of {n}, {n_large} are large enough ({ways})"))
    }

    fn placement_wakes_at(&self) -> Option<Timestamp> {
        let waits =
            matches!(self.ready.unplaced, Some(Unplaced::WaitingForCopy { .. } | Unplaced::NotAsked { .. }));
        if !waits
            || self.ready.queue.is_empty()
            || self.attempts.hold_until.is_some()
            || !self.ready.has_idle_slot()
        {
            return None;
        }
        self.ready.queue.wake_at()
    }
}

impl Ready {
    pub(super) fn has_idle_slot(&self) -> bool {
        self.queue.n_slots_active() < self.queue.n_slots_total()
    }
}

impl Dispatcher {
    /// What was submitted: runs, tasks and the catalog of their objects.
    pub fn work(&self) -> &Workload {
        &self.work
    }

    /// What a waiting task waits for and which task makes that, as a phrase: "`a`, which task `b` makes".
    pub fn waits_for(&self, task: TaskId) -> String {
        if self.given_up.awaits_record(task) {
            return "the journal's disk, which has yet to take that its last attempt was given up".into();
        }
        if let Some(why) = self.why_apart(task) {
            return why;
        }
        let (mut named, mut n_more) = (vec![], 0);
        for (_, location) in &self.work.task_spec(task).inputs {
            let location = CatalogLocation::of(location);
            match self.exchange.awaited_from(&self.work, &self.intermediates, task, location) {
                Some(from) if named.len() < AWAITED_NAMED => {
                    named.push(format!("{}, which {from}", shown(&location.written().text())));
                }
                Some(_) => n_more += 1,
                None => {}
            }
        }
        if n_more > 0 {
            named.push(format!("{n_more} more"));
        }
        if named.is_empty() {
            // The inputs have been made, but none of their holders answers.
            return "an input that only silent nodes hold".into();
        }
        named.join("; ")
    }

    /// Whether an executor has this attempt, and the attempt's program has not ended as far as is known.
    pub fn has_attempt(&self, executor: ExecutorId, task: TaskId, attempt: AttemptNo) -> bool {
        let is_there = |r: &Reserved| r.executor == executor && r.attempt == attempt && !r.landing;
        self.schedule.attempts.reserved.get(&task).is_some_and(is_there)
            || self.reruns.has(executor, task, attempt)
    }

    /// The number that the next task gets.
    pub fn next_task(&self) -> TaskId {
        TaskId(self.work.tasks.next_task)
    }

    /// Whether `run` is a submission of its own whose tasks have no files and add no tasks: nothing of them is seen elsewhere before
    /// their ends are told.
    pub fn has_no_files(&self, run: RunId) -> bool {
        let Some(state) = self.work.find_run(run).filter(|state| state.into.is_none()) else { return false };
        state.arrays.iter().all(|id| {
            let form = &self.work.tasks.arrays[id.0 as usize].array.template;
            form.inputs.is_empty() && form.outputs.is_empty() && form.promises.is_empty() && !form.dynamic
        })
    }

    /// The state of a task, with the reason if it waits.
    pub fn task_state(&self, task: TaskId) -> TaskState {
        if let Some(ended) = self.work.tasks.find_end(task) {
            return ended;
        }
        if let Some(r) = self.schedule.attempts.reserved.get(&task) {
            return TaskState::Reserved { executor: r.executor, attempt: r.attempt, landing: r.landing };
        }
        if let Some(n) = self.waits.n_missing.get(&task) {
            return TaskState::Waiting { n_missing: *n };
        }
        if !self.work.runs.get(&self.work.tasks.run_of(task)).is_some_and(|r| r.started) {
            return TaskState::Submitting;
        }
        let reason = if self.schedule.executors.by_id.is_empty() {
            Some("no executor has joined".to_string())
        } else if self.schedule.attempts.hold_until.is_some() {
            Some("the dispatcher has just restarted; executors may come back with it".to_string())
        } else if let Some(unfit) =
            self.schedule.executors.find_unfit(&self.exchange, self.work.tasks.size_of(task))
        {
            Some(unfit.in_words())
        } else if !self.schedule.ready.queue.contains(self.work.tasks.key_of(task)) {
            // Of a user whose turn it is not, tasks that fit no idle slot may be all of them that placement looks at.
            let shares = &self.schedule.shares;
            let (owner, is_full) = (self.work.owner_of(task), self.schedule.ready.queue.is_full());
            let n_before = match shares.turn {
                Some(_) if !is_full => shares.n_queued(owner),
                _ => self.schedule.ready.queue.len() as u64,
            };
            let shared = shares.why_not(owner).filter(|_| !is_full && n_before == 0);
            shared.or(Some(format!("{n_before} tasks are before it in the queue")))
        } else {
            self.schedule.why_not_now(&self.work, task)
        };
        // A node that rests cannot take the task, so its sentence is part of the reason.
        let resting: Vec<String> = self.schedule.executors.resting().take(RESTING_NAMED).collect();
        let reason = match reason {
            Some(reason) if !resting.is_empty() => Some(format!("{reason}; {}", resting.join("; "))),
            reason => reason,
        };
        TaskState::Ready { reason }
    }

    /// A sentence for each executor that gets no tasks for a while because of its last failures.
    pub fn resting(&self) -> impl Iterator<Item = String> {
        self.schedule.executors.resting()
    }

    /// A sentence for each executor that fails one task after the other, or whose disk is full. It stays the same while that lasts.
    pub fn unwell(&self) -> impl Iterator<Item = String> {
        self.schedule.executors.unwell()
    }

    /// A sentence for each executor whose cache is now smaller than the cache that it offered.
    pub fn short_of_space(&self) -> impl Iterator<Item = String> {
        self.schedule.executors.short_of_space()
    }

    /// Executors: what each offers, how many attempts it has, and the state of its node.
    pub fn executors(&self) -> impl Iterator<Item = (ExecutorId, &Offer, usize, NodeState)> {
        self.schedule.executors.by_id.iter().map(|(id, e)| (*id, &e.offer, e.assigned.len(), e.node_state()))
    }

    /// Whether the executor has joined and was not lost since.
    pub fn has_executor(&self, executor: ExecutorId) -> bool {
        self.schedule.executors.by_id.contains_key(&executor)
    }

    /// Whether an executor has attempts, as far as this dispatcher knows.
    pub fn has_attempts(&self, executor: ExecutorId) -> bool {
        self.schedule.executors.by_id.get(&executor).is_some_and(|e| !e.assigned.is_empty())
    }

    /// Whether an executor has no attempt and could be given one.
    pub fn is_idle(&self, executor: ExecutorId) -> bool {
        self.schedule.executors.is_idle(executor)
    }

    pub fn n_ready(&self) -> u64 {
        self.schedule.ready.n_tasks
    }

    /// When the driver should send [`Event::Ticked`] although nothing happened: when time alone may let a
    /// waiting ready task start, when shares of home are due, or when an executor is to drain before its end.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let due = self
            .home_shares
            .wake_at()
            .into_iter()
            .chain(self.schedule.executors.next_drain())
            .chain(self.residents.next_due());
        self.schedule.placement_wakes_at().into_iter().chain(due).min()
    }

    /// Bytes of heap that queued tasks take: folded arrays, ends, and the queue of placement.
    pub fn queue_heap_bytes(&self) -> usize {
        let arrays: usize =
            self.work.tasks.arrays.iter().map(|a| a.array.heap_bytes() + a.ends.0.len() * 8).sum();
        let makers = self.work.tasks.makers.capacity() * 16;
        arrays
            + self.work.tasks.arrays.len() * size_of::<ArrayState>()
            + makers
            + self.schedule.ready.queue.heap_bytes()
    }

    fn check_shares(&self, ready: &BTreeSet<TaskId>) {
        let mut counts: BTreeMap<OwnerId, (u64, u64, u64)> = BTreeMap::new();
        for task in ready {
            let (n_ready, n_queued, _) = counts.entry(self.work.owner_of(*task)).or_default();
            *n_ready += 1;
            *n_queued += u64::from(self.schedule.ready.queue.contains(self.work.tasks.key_of(*task)));
        }
        for (task, r) in &self.schedule.attempts.reserved {
            counts.entry(self.work.owner_of(*task)).or_default().2 += u64::from(r.cpus.max(1));
        }
        self.schedule.shares.check(&counts);
    }

    /// The user whose run it is; an empty name: nobody in particular. `None`: there is no such run.
    pub fn owner_of(&self, run: RunId) -> Option<&str> {
        self.work.runs.get(&run).map(|state| self.schedule.shares.name_of(state.owner))
    }

    /// What each user has of the cluster; the first is nobody in particular.
    pub fn user_shares(&self) -> impl Iterator<Item = UserShare> {
        self.schedule.shares.all()
    }

    /// Checks the invariants of the module's header; panics when one is broken. For tests.
    pub fn sanity_check(&self) {
        self.schedule.ready.queue.sanity_check(&self.work.catalog);
        self.sanity_check_without_scans();
    }

    /// The same but for what compares the queue's indexes with scans of everything.
    pub fn sanity_check_without_scans(&self) {
        self.work.catalog.sanity_check();
        self.home_shares.sanity_check();
        self.intermediates.check(&self.work);
        self.moves.collectives.sanity_check(&self.work.catalog);
        self.pushes.check(&self.schedule.executors);
        self.two_mark.stores.sanity_check(|executor, object| self.work.catalog.holds(executor, object));
        if self.exchange.group.is_some() {
            self.exchange.check(&self.work, &self.intermediates);
        }
        let sizes = self.schedule.ready.queue.sizes().into_iter();
        let queued = sizes.flat_map(|size| self.schedule.ready.queue.tasks_of_size(size)).map(|key| key.task);
        let mut ready: BTreeSet<TaskId> = queued.collect();
        assert_eq!(ready.len(), self.schedule.ready.queue.len(), "tasks are queued once");
        let is_shared = self.schedule.shares.turn.is_some();
        for (key, segment) in self.schedule.ready.backlog.iter() {
            assert_eq!(self.work.tasks.locate(key.task), (segment.array, segment.start));
            assert!(
                is_shared || self.schedule.ready.queue.last().is_none_or(|last| last < *key),
                "{key:?} goes before the queue"
            );
            for i in segment.start..segment.end {
                let task = TaskId(self.work.tasks.arrays[segment.array.0 as usize].base.0 + u64::from(i));
                assert!(ready.insert(task), "{task:?} is queued twice");
            }
        }
        assert_eq!(ready.len() as u64, self.schedule.ready.n_tasks);
        self.check_shares(&ready);
        assert_eq!(self.schedule.run_times.n_ready(), self.schedule.ready.n_tasks);
        for (run, state) in self.work.runs.iter().filter(|(_, r)| r.started) {
            let of_run = |task: &&TaskId| self.work.tasks.run_of(**task) == *run;
            assert_eq!(ready.iter().filter(of_run).count() as u64, state.tasks.n_ready, "{run:?} ready");
            assert_eq!(
                self.waits.n_missing.keys().filter(of_run).count() as u64,
                state.tasks.n_waiting,
                "{run:?} waiting"
            );
            assert_eq!(
                self.schedule.attempts.reserved.keys().filter(of_run).count() as u64,
                state.tasks.n_reserved,
                "{run:?} reserved"
            );
            let landing = self
                .schedule
                .attempts
                .reserved
                .keys()
                .filter(of_run)
                .filter(|t| self.schedule.attempts.reserved[t].landing)
                .count();
            assert_eq!(landing as u64, state.tasks.n_landing, "{run:?} landing");
            let sum = state.tasks.n_ready + state.tasks.n_waiting + state.tasks.n_reserved + state.ends.n();
            assert_eq!(sum, state.tasks.n_tasks, "{run:?}: every task is somewhere");
            assert!(state.ended.is_none() || state.ends.n() == sum, "{run:?} has ended with all its tasks");
            let n_open = self.work.runs.values().filter(|r| r.into == Some(*run)).count();
            assert_eq!(n_open, state.additions.n_open as usize, "{run:?}: submissions into it");
            assert!(state.ended.is_none() || n_open == 0, "{run:?} has ended while tasks are added");
        }
        for (task, r) in &self.schedule.attempts.reserved {
            assert!(!ready.contains(task) && !self.waits.n_missing.contains_key(task));
            assert_eq!(self.schedule.executors.by_id[&r.executor].assigned.get(task), Some(&r.attempt));
            assert!(r.outputs.iter().all(|output| self.schedule.attempts.making.get(output) == Some(task)));
        }
        self.leftovers.check(&self.work, &self.schedule.executors);
        self.residents.check(&self.work, &self.schedule.executors);
        self.schedule.executors.check_walltimes();
        self.check_forgotten();
        self.given_up.check(&self.waits);
        self.reach.check(&self.waits);
        self.schedule.check_resources();
        assert_eq!(
            self.schedule.attempts.making.len(),
            self.schedule.attempts.reserved.values().map(|r| r.outputs.len()).sum::<usize>()
        );
        for (id, e) in &self.schedule.executors.by_id {
            let load = e.assigned.keys().map(|t| &self.schedule.attempts.reserved[t]).filter(|r| !r.landing);
            let (cpus, memory) =
                load.fold(self.reruns.load_on(*id), |(c, m), r| (c + r.cpus, m + r.memory_bytes));
            assert_eq!((e.cpus_assigned, e.memory_assigned), (cpus, memory), "{id:?}");
            let kinds = e.assigned.keys().map(|task| self.work.tasks.kind_of(*task));
            assert_eq!(e.kinds.counts(), KindCounts::of(kinds).counts(), "{id:?}");
            assert_eq!(self.schedule.executors.silent.contains(id), e.silent_since.is_some(), "{id:?}");
            assert_eq!(self.schedule.ready.queue.room(*id).is_some(), e.is_connected(), "{id:?}");
        }
    }
}
