//! Ready tasks: the first in `queue`, where placement looks at them, the others folded in `backlog`.
//!
//! Invariant: while the backlog is not empty the queue is full, and no task of the backlog goes before one of the queue.
//! Where several users share the cluster, `shares` says whose tasks are in the queue.

use super::{ArrayState, SEARCH_REST, Schedule, Workload, ready_task, task_size};
use crate::catalog::Catalog;
use crate::network::Sites;
use crate::placement::{Pick, Queue, QueueKey, Route, TaskSize, Unplaced};
use eyas_terms::array::Hint;
use eyas_terms::{ArrayId, OwnerId, RunId, TaskId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A range of ready tasks of one array that is still folded: `start..end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) array: ArrayId,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Ready tasks that are still folded, by the user whose they are.
#[derive(Default)]
pub(super) struct Backlog {
    of: Vec<BTreeMap<QueueKey, Segment>>,
}

impl Backlog {
    pub(super) fn insert(&mut self, owner: OwnerId, key: QueueKey, segment: Segment) {
        let at = owner.0 as usize;
        if self.of.len() <= at {
            self.of.resize_with(at + 1, BTreeMap::new);
        }
        self.of[at].insert(key, segment);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.iter().all(BTreeMap::is_empty)
    }

    /// The first task of a user.
    pub(super) fn first_of(&self, owner: OwnerId) -> Option<QueueKey> {
        self.of.get(owner.0 as usize)?.first_key_value().map(|(key, _)| *key)
    }

    /// The first task of all.
    pub(super) fn first(&self) -> Option<QueueKey> {
        self.first_with_owner().map(|(key, _)| key)
    }

    fn first_with_owner(&self) -> Option<(QueueKey, OwnerId)> {
        let owners = (0..self.of.len() as u32).map(OwnerId);
        owners.filter_map(|owner| Some((self.first_of(owner)?, owner))).min()
    }

    /// Takes the first task of all out.
    pub(super) fn pop_first(&mut self) -> Option<(QueueKey, ArrayId, u32)> {
        let (_, owner) = self.first_with_owner()?;
        self.pop_first_of(owner)
    }

    /// Takes the first task of a user out: its key, its array and its place in that array.
    pub(super) fn pop_first_of(&mut self, owner: OwnerId) -> Option<(QueueKey, ArrayId, u32)> {
        let of = self.of.get_mut(owner.0 as usize)?;
        let (key, segment) = of.pop_first()?;
        if segment.start + 1 < segment.end {
            let next = QueueKey { task: TaskId(key.task.0 + 1), ..key };
            of.insert(next, Segment { start: segment.start + 1, ..segment });
        }
        Some((key, segment.array, segment.start))
    }

    /// Takes one task out of the middle; `false`: it is not here.
    fn take(&mut self, owner: OwnerId, key: QueueKey, array: ArrayId, i: u32) -> bool {
        let Some(of) = self.of.get_mut(owner.0 as usize) else { return false };
        // Of the segments of the task's priority, the last that begins at or before the task.
        let found = of.range(..=key).next_back().map(|(k, s)| (*k, *s));
        let Some((at, segment)) = found.filter(|(_, s)| s.array == array && s.start <= i && i < s.end) else {
            return false;
        };
        of.remove(&at);
        if segment.start < i {
            of.insert(at, Segment { end: i, ..segment });
        }
        if i + 1 < segment.end {
            let next = QueueKey { task: TaskId(key.task.0 + 1), ..key };
            of.insert(next, Segment { start: i + 1, ..segment });
        }
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&QueueKey, &Segment)> {
        self.of.iter().flatten()
    }

    pub(super) fn segments_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.of.iter_mut().flat_map(BTreeMap::values_mut)
    }
}

/// Tasks that may be given to an executor.
pub(super) struct Ready {
    /// The ready tasks that placement looks at.
    pub(super) queue: Box<dyn Queue>,
    /// The ready tasks behind those of the queue, folded.
    pub(super) backlog: Backlog,
    /// The number of ready tasks, in the queue and in the backlog.
    pub(super) n_tasks: u64,
    /// Sizes of ready tasks that fit no executor, present or expected, each with the time since when.
    pub(super) unfit: BTreeMap<TaskSize, Timestamp>,
    pub(super) unplaced: Option<Unplaced>,
    pub(super) picks: Vec<Pick>,
    pub(super) routes: Vec<Route>,
    /// Decisions that are taken without a search for another task, now and after the next search without
    /// result.
    pub(super) n_skips: u32,
    pub(super) n_skips_next: u32,
    /// Whether executors may be given more tasks than they have slots, see the header of [`super`].
    pub(super) may_stock: bool,
    /// Whether inputs move before their task takes a slot, so that tasks are given ahead at all.
    pub(super) ahead: bool,
    /// Whether the nodes are known to stand in several sites.
    pub(super) has_sites: bool,
}

impl Ready {
    pub(super) fn new(queue: Box<dyn Queue>, ahead: bool) -> Ready {
        Ready {
            queue,
            backlog: Backlog::default(),
            n_tasks: 0,
            unfit: BTreeMap::new(),
            unplaced: None,
            picks: vec![],
            routes: vec![],
            n_skips: 0,
            n_skips_next: SEARCH_REST,
            may_stock: false,
            ahead,
            has_sites: false,
        }
    }

    /// Which sites there are is known anew.
    pub(super) fn sites_found(&mut self, catalog: &Catalog, sites: Option<Arc<Sites>>) {
        self.has_sites = sites.is_some();
        self.queue.sites_found(catalog, sites);
    }

    /// Ready tasks of that size: those of the queue, then those of the backlog.
    pub(super) fn tasks_of_size(&self, work: &Workload, size: TaskSize) -> impl Iterator<Item = TaskId> {
        let queued = self.queue.tasks_of_size(size).into_iter().map(|key| key.task);
        let is_of_size = move |segment: &&Segment| {
            let ArrayState { array, needs, .. } = &work.tasks.arrays[segment.array.0 as usize];
            task_size(array, *needs) == size
        };
        let task = |array: ArrayId, i: u32| TaskId(work.tasks.arrays[array.0 as usize].base.0 + u64::from(i));
        let behind = self.backlog.iter().map(|(_, segment)| segment).filter(is_of_size);
        queued.chain(behind.flat_map(move |s| (s.start..s.end).map(move |i| task(s.array, i))))
    }
}

impl Schedule {
    /// Takes a task out of the queue; `false`: it was not there.
    pub(super) fn leave_queue(&mut self, work: &Workload, key: QueueKey) -> bool {
        let was_there = self.ready.queue.leave(&work.catalog, key);
        if was_there {
            self.shares.not_queued(work.owner_of(key.task));
        }
        was_there
    }

    /// Moves a task from the queue to the backlog.
    pub(super) fn fold(&mut self, work: &Workload, key: QueueKey) {
        self.leave_queue(work, key);
        let (array, i) = work.tasks.locate(key.task);
        self.ready.backlog.insert(work.owner_of(key.task), key, Segment { array, start: i, end: i + 1 });
    }

    /// Puts a task that is in no other collection into the queue, at its place in the order.
    pub(super) fn requeue(&mut self, work: &mut Workload, now: Timestamp, task: TaskId) {
        let key = work.tasks.key_of(task);
        let (array, i) = work.tasks.locate(task);
        let run = work.tasks.run_of(task);
        self.count_ready(work, run, array, 1);
        let goes_first = || self.ready.queue.last().is_some_and(|last| key < last);
        let enters = self.enters_at_once(work, key);
        if enters.unwrap_or_else(|| goes_first() || self.ready.backlog.is_empty()) {
            self.unfold(work, now, key, array, i);
        } else {
            self.ready.backlog.insert(work.owner_of(task), key, Segment { array, start: i, end: i + 1 });
        }
        while self.ready.queue.len() > self.ready.queue.capacity() {
            self.fold(work, self.ready.queue.last().expect("a queue over its size is not empty"));
        }
    }

    /// Removes a ready task from the queue, if it is there.
    pub(super) fn take_ready(&mut self, work: &mut Workload, task: TaskId) {
        let key = work.tasks.key_of(task);
        let (array, i) = work.tasks.locate(task);
        let owner = work.owner_of(task);
        if !self.leave_queue(work, key) && !self.ready.backlog.take(owner, key, array, i) {
            return;
        }
        self.shares.not_ready(owner);
        self.ready.n_tasks -= 1;
        work.run_mut(work.tasks.run_of(task)).tasks.n_ready -= 1;
        let ArrayState { array, stage, needs, .. } = &work.tasks.arrays[array.0 as usize];
        self.run_times.not_ready(*stage, task_size(array, *needs));
    }

    /// Counts `n` more ready tasks of an array of `run`.
    pub(super) fn count_ready(&mut self, work: &mut Workload, run: RunId, array: ArrayId, n: u64) {
        self.ready.n_tasks += n;
        let state = work.run_mut(run);
        state.tasks.n_ready += n;
        self.shares.ready(state.owner, n);
        let ArrayState { array, stage, needs, .. } = &work.tasks.arrays[array.0 as usize];
        self.run_times.ready(*stage, task_size(array, *needs), n);
    }

    pub(super) fn unfold(
        &mut self,
        work: &mut Workload,
        now: Timestamp,
        key: QueueKey,
        array: ArrayId,
        i: u32,
    ) {
        let ArrayState { array: a, run, stage, needs, .. } = &work.tasks.arrays[array.0 as usize];
        let (a, run, stage, size) = (a.clone(), *run, *stage, task_size(a, *needs));
        let inputs = work.inputs_of(run, &a, i);
        if a.template.hints.multicast == Hint::Once {
            self.ready.queue.spare_home(&inputs);
        }
        let lasts = self.step_of(key.task, stage, size);
        self.ready.queue.enter(&work.catalog, now, &ready_task(key, size, inputs, lasts));
        self.shares.queued(work.owner_of(key.task));
    }

    /// Unfolds the next tasks of the backlog until the queue is full.
    pub(super) fn refill(&mut self, work: &mut Workload, now: Timestamp) {
        if self.take_turns(work, now) {
            return;
        }
        while !self.ready.queue.is_full() {
            let Some((key, array, i)) = self.ready.backlog.pop_first() else { return };
            self.unfold(work, now, key, array, i);
        }
    }
}
