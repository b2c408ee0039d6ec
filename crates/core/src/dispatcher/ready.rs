//! Ready tasks: the first in `queue`, where placement looks at them, the others folded in `backlog`.
//!
//! Invariant: while the backlog is not empty the queue is full, and no task of the backlog goes before one of the queue.

use super::*;
use crate::array::Hint;

/// A range of ready tasks of one array that is still folded: `start..end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) array: ArrayId,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Tasks that may be given to an executor.
pub(super) struct Ready {
    /// The ready tasks that placement looks at.
    pub(super) queue: Box<dyn Queue>,
    /// The ready tasks behind those of the queue, folded.
    pub(super) backlog: BTreeMap<QueueKey, Segment>,
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
}

impl Ready {
    pub(super) fn new(queue: Box<dyn Queue>, ahead: bool) -> Ready {
        Ready {
            queue,
            backlog: BTreeMap::new(),
            n_tasks: 0,
            unfit: BTreeMap::new(),
            unplaced: None,
            picks: vec![],
            routes: vec![],
            n_skips: 0,
            n_skips_next: SEARCH_REST,
            may_stock: false,
            ahead,
        }
    }

    /// Moves a task from the queue to the backlog.
    pub(super) fn fold(&mut self, work: &Workload, key: QueueKey) {
        self.queue.leave(&work.catalog, key);
        let (array, i) = work.tasks.locate(key.task);
        self.backlog.insert(key, Segment { array, start: i, end: i + 1 });
    }
}

impl Schedule {
    /// Puts a task that is in no other collection into the queue, at its place in the order.
    pub(super) fn requeue(&mut self, work: &mut Workload, now: Timestamp, task: TaskId) {
        let key = work.tasks.key_of(task);
        let (array, i) = work.tasks.locate(task);
        let run = work.tasks.run_of(task);
        self.count_ready(work, run, array, 1);
        let goes_first = self.ready.queue.last().is_some_and(|last| key < last);
        if goes_first || self.ready.backlog.is_empty() {
            self.unfold(work, now, key, array, i);
        } else {
            self.ready.backlog.insert(key, Segment { array, start: i, end: i + 1 });
        }
        while self.ready.queue.len() > self.ready.queue.capacity() {
            self.ready.fold(work, self.ready.queue.last().expect("a queue over its size is not empty"));
        }
    }

    /// Removes a ready task from the queue, if it is there.
    pub(super) fn take_ready(&mut self, work: &mut Workload, task: TaskId) {
        let key = work.tasks.key_of(task);
        let (array, i) = work.tasks.locate(task);
        if !self.ready.queue.leave(&work.catalog, key) {
            // Of the segments of the task's priority, the last that begins at or before the task.
            let found = self.ready.backlog.range(..=key).next_back().map(|(k, s)| (*k, *s));
            let Some((at, segment)) = found.filter(|(_, s)| s.array == array && s.start <= i && i < s.end)
            else {
                return;
            };
            self.ready.backlog.remove(&at);
            if segment.start < i {
                self.ready.backlog.insert(at, Segment { end: i, ..segment });
            }
            if i + 1 < segment.end {
                let next = QueueKey { task: TaskId(task.0 + 1), ..key };
                self.ready.backlog.insert(next, Segment { start: i + 1, ..segment });
            }
        }
        self.ready.n_tasks -= 1;
        work.run_mut(work.tasks.run_of(task)).n_ready -= 1;
        let ArrayState { array, stage, needs, .. } = &work.tasks.arrays[array.0 as usize];
        self.run_times.not_ready(*stage, task_size(array, *needs));
    }

    /// Counts `n` more ready tasks of an array of `run`.
    pub(super) fn count_ready(&mut self, work: &mut Workload, run: RunId, array: ArrayId, n: u64) {
        self.ready.n_tasks += n;
        work.run_mut(run).n_ready += n;
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
    }

    /// Unfolds the next tasks of the backlog until the queue is full.
    pub(super) fn refill(&mut self, work: &mut Workload, now: Timestamp) {
        while !self.ready.queue.is_full() {
            let Some((key, segment)) = self.ready.backlog.pop_first() else { return };
            if segment.start + 1 < segment.end {
                let next = QueueKey { task: TaskId(key.task.0 + 1), ..key };
                self.ready.backlog.insert(next, Segment { start: segment.start + 1, ..segment });
            }
            self.unfold(work, now, key, segment.array, segment.start);
        }
    }
}
