//! The tasks of all runs, folded: arrays in the order of their tasks' numbers, how each task ended, and which
//! task makes which file.

use super::demand::TaskKind;
use super::{TaskState, hash_of, task_size};
use crate::placement::{NeedsId, QueueKey, TaskSize};
use eyas_terms::array::TaskArray;
use eyas_terms::location::{CatalogLocation, Location};
use eyas_terms::{ArrayId, Outcome, RunId, TaskId};
use eyas_text::shown;
use hashbrown::HashTable;
use std::cell::Cell;
use std::sync::Arc;

/// How a task ended, in two bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Not = 0,
    Done = 1,
    Failed = 2,
    Cancelled = 3,
}

impl End {
    pub(super) fn of(outcome: &Outcome) -> End {
        match outcome {
            Outcome::Done => End::Done,
            Outcome::Failed(_) => End::Failed,
            Outcome::Cancelled => End::Cancelled,
        }
    }
}

/// Two bits per task.
#[derive(Default)]
pub(super) struct Ends(pub(super) Vec<u64>);

impl Ends {
    pub(super) fn new(n_tasks: u32) -> Ends {
        Ends(vec![0; (n_tasks as usize).div_ceil(32)])
    }

    pub(super) fn get(&self, i: u32) -> End {
        match self.0[i as usize / 32] >> (2 * (i % 32)) & 3 {
            0 => End::Not,
            1 => End::Done,
            2 => End::Failed,
            _ => End::Cancelled,
        }
    }

    pub(super) fn set(&mut self, i: u32, end: End) {
        let word = &mut self.0[i as usize / 32];
        *word = *word & !(3 << (2 * (i % 32))) | (end as u64) << (2 * (i % 32));
    }
}

pub(super) struct ArrayState {
    pub(super) base: TaskId,
    pub(super) run: RunId,
    pub(super) array: Arc<TaskArray>,
    pub(super) ends: Ends,
    /// The number of the array's first tasks whose outputs and promises are noted, at least in part. It stays
    /// short of the whole array only if the submission is refused.
    pub(super) n_noted: u32,
    /// The array's stage in `run_times`.
    pub(super) stage: u32,
    /// What its tasks need beside whole cpus and memory.
    pub(super) needs: NeedsId,
    /// Whether some tasks of the array may read (or write) files that stay on the nodes.
    pub(super) reads_run: bool,
    pub(super) writes_run: bool,
}

/// All tasks, by number.
#[derive(Default)]
pub(super) struct TaskTable {
    pub(super) arrays: Vec<ArrayState>,
    /// The first task of each array; kept apart because it is searched all the time.
    pub(super) bases: Vec<TaskId>,
    /// The array in which a task was found last: the same task is often looked up many times in a row.
    pub(super) located: Cell<usize>,
    pub(super) next_task: u64,
    /// Makers of files that go home, by the hash of the output's location; a match is confirmed by unfolding
    /// the maker.
    pub(super) makers: HashTable<(u64, TaskId)>,
}

impl TaskTable {
    /// The array of a submitted task, and the task's position in that array. Arrays are numbered in the order
    /// in which they were added.
    pub(super) fn locate(&self, task: TaskId) -> (ArrayId, u32) {
        let mut at = self.located.get();
        let is_there = self.bases[at] <= task && self.bases.get(at + 1).is_none_or(|next| task < *next);
        if !is_there {
            at = self.bases.partition_point(|base| *base <= task) - 1;
            self.located.set(at);
        }
        (ArrayId(at as u32), (task.0 - self.bases[at].0) as u32)
    }

    pub(super) fn end_of(&self, task: TaskId) -> End {
        let (array, i) = self.locate(task);
        self.arrays[array.0 as usize].ends.get(i)
    }

    /// The run that `task` belongs to. `task` must have been submitted.
    pub(super) fn run_of(&self, task: TaskId) -> RunId {
        self.arrays[self.locate(task).0.0 as usize].run
    }

    /// The stage in `run_times` of a task.
    pub(super) fn stage_of(&self, task: TaskId) -> u32 {
        self.arrays[self.locate(task).0.0 as usize].stage
    }

    pub(super) fn size_of(&self, task: TaskId) -> TaskSize {
        self.kind_of(task).1
    }

    /// The task's stage, and its size.
    pub(super) fn kind_of(&self, task: TaskId) -> TaskKind {
        let (array, _) = self.locate(task);
        let ArrayState { array, needs, stage, .. } = &self.arrays[array.0 as usize];
        (*stage, task_size(array, *needs))
    }

    /// The name that the user gave the task.
    pub(super) fn user_id(&self, task: TaskId) -> String {
        let (array, i) = self.locate(task);
        let array = &self.arrays[array.0 as usize].array;
        array.fill(&array.template.id, i)
    }

    /// How a task has ended: one of the last three states of [`TaskState`]; `None` if it has not ended.
    pub(super) fn find_end(&self, task: TaskId) -> Option<TaskState> {
        match self.end_of(task) {
            End::Not => None,
            End::Done => Some(TaskState::Done),
            End::Failed => Some(TaskState::Failed),
            End::Cancelled => Some(TaskState::Cancelled),
        }
    }

    /// Whether some output of `task` goes home.
    pub(super) fn lands(&self, task: TaskId) -> bool {
        let (array, i) = self.locate(task);
        let ArrayState { array, writes_run, .. } = &self.arrays[array.0 as usize];
        let (mut outputs, mut text) = (array.template.outputs.iter(), String::new());
        outputs.any(|(_, l)| !writes_run || !array.locate(l, i, &mut text).stays())
    }

    pub(super) fn key_of(&self, task: TaskId) -> QueueKey {
        let (array, _) = self.locate(task);
        QueueKey { priority: self.arrays[array.0 as usize].array.template.priority, task }
    }

    /// The message for a submission of the task `id`, which writes `location` as `other` does.
    pub(super) fn clash(&self, other: TaskId, id: &str, location: CatalogLocation<'_>) -> String {
        let way_out = match self.end_of(other) == End::Not && !location.stays() {
            true => "give each its own output, or wait until the first one has ended",
            false => "give each its own output",
        };
        let (other, location) = (self.user_id(other), location.written().text());
        format!(
            "tasks {other} and {id} both write {location}; {way_out}",
            other = shown(&other),
            id = shown(id),
            location = shown(&location)
        )
    }

    pub(super) fn maker_failed(&self, maker: TaskId, cancelled: bool) -> String {
        let how = if cancelled { "was cancelled" } else { "failed" };
        format!("task {}, which makes one of its inputs, {how}", shown(&self.user_id(maker)))
    }

    /// The task that writes the file `at_home` and has not ended. If there is none: a task that ended badly
    /// before a restart, or a done task of a run that tasks are added to.
    pub(super) fn find_maker(&self, at_home: &str) -> Option<TaskId> {
        self.makers_of(at_home).max_by_key(|task| (self.end_of(*task) == End::Not, *task))
    }

    /// The tasks that `makers` has for the file `at_home`.
    pub(super) fn makers_of(&self, at_home: &str) -> impl Iterator<Item = TaskId> {
        let hash = hash_of(at_home);
        let mut text = String::new();
        let mut writes = move |task: TaskId| {
            let (array, i) = self.locate(task);
            let array = &self.arrays[array.0 as usize].array;
            let mut outputs = array.template.outputs.iter();
            outputs.any(|(_, pattern)| array.locate(pattern, i, &mut text) == Location::Home(at_home))
        };
        self.makers.iter_hash(hash).filter(move |e| e.0 == hash && writes(e.1)).map(|e| e.1)
    }

    pub(super) fn forget_maker(&mut self, task: TaskId) {
        let (array, i) = self.locate(task);
        let array = self.arrays[array.0 as usize].array.clone();
        let mut text = String::new();
        for (_, pattern) in &array.template.outputs {
            let Location::Home(at_home) = array.locate(pattern, i, &mut text) else { continue };
            let hash = hash_of(at_home);
            if let Ok(entry) = self.makers.find_entry(hash, |e| *e == (hash, task)) {
                entry.remove();
            }
        }
    }

    /// Notes that what task `i` of an array writes or promises is being noted.
    pub(super) fn note_up_to(&mut self, id: ArrayId, i: u32) {
        let n_noted = &mut self.arrays[id.0 as usize].n_noted;
        *n_noted = (*n_noted).max(i + 1);
    }

    /// Whether the task was submitted and its run has not been forgotten.
    pub(super) fn has_task(&self, task: TaskId) -> bool {
        let after = self.bases.partition_point(|base| *base <= task);
        let Some(a) = after.checked_sub(1).map(|at| &self.arrays[at]) else { return false };
        task.0 - a.base.0 < u64::from(a.array.n_tasks)
    }

    /// All tasks that are known, in the order of their numbers.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.arrays.iter().flat_map(|a| (a.base.0..a.base.0 + u64::from(a.array.n_tasks)).map(TaskId))
    }
}
