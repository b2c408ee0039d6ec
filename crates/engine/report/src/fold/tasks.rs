//! The numbers of tasks, their arrays, and how tasks ended.

use super::ends::{End, Ends, TaskEnd};
use eyas_terms::array::TaskArray;
use eyas_terms::*;
use std::sync::Arc;

/// Tasks that were submitted together.
#[derive(Clone, Debug)]
pub struct Array {
    /// Number of its first task.
    pub base: u64,
    pub run: RunId,
    /// When the dispatcher first received them.
    pub submitted: Timestamp,
    pub array: Arc<TaskArray>,
}

impl Array {
    /// Number behind that of its last task.
    fn end(&self) -> u64 {
        self.base + u64::from(self.array.n_tasks)
    }
}

#[derive(Debug, Default)]
pub struct Tasks {
    /// By `base`, ascending and without overlaps.
    arrays: Vec<Array>,
    /// Arrays that an earlier life had and this one has not repeated yet.
    earlier: Vec<Array>,
    ends: Ends,
    keeps_arrays: bool,
    next_task: u64,
    /// Tasks of the life that had most.
    n_most: u64,
}

impl Tasks {
    pub(super) fn new(keeps_arrays: bool) -> Tasks {
        Tasks { keeps_arrays, ..Tasks::default() }
    }

    /// All arrays, in the order of their tasks.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The array that a task is of.
    pub fn find(&self, task: TaskId) -> Option<&Array> {
        find(&self.arrays, task)
    }

    /// How and when a task ended.
    pub fn end(&self, task: TaskId) -> (End, Timestamp) {
        self.ends.get(task).map_or((End::Not, Timestamp(0)), |e| (e.end, e.t))
    }

    /// Whether any life submitted so many tasks.
    pub(super) fn is_numbered(&self, task: TaskId) -> bool {
        task.0 < self.n_most
    }

    pub(super) fn begin_life(&mut self) {
        self.keep_earlier();
        self.earlier = std::mem::take(&mut self.arrays);
        self.next_task = 0;
    }

    /// A life that ended while it was still recovering leaves what it did not come to.
    pub(super) fn keep_earlier(&mut self) {
        let next_task = self.next_task;
        self.arrays.extend(std::mem::take(&mut self.earlier).into_iter().filter(|a| a.base >= next_task));
    }

    /// Numbers the tasks of one more array. Returns the number of the first, and whether an earlier life gave it to another array.
    ///
    /// * `whole`: the run that the submission `run` is added to, or `run`.
    pub(super) fn add(
        &mut self,
        t: Timestamp,
        run: RunId,
        whole: RunId,
        array: &Arc<TaskArray>,
    ) -> (u64, bool) {
        let base = self.next_task;
        let is_same = |a: &&Array| a.base == base && (a.run == run || a.run == whole);
        let known = find(&self.earlier, TaskId(base)).filter(is_same);
        let submitted = known.map_or(t, |a| a.submitted);
        let replaces = known.is_none() && base < self.n_most;
        self.number(base + u64::from(array.n_tasks));
        if self.keeps_arrays {
            self.arrays.push(Array { base, run, submitted, array: array.clone() });
        }
        (base, replaces)
    }

    /// So many tasks have been numbered. Those that have no array are of forgotten runs, of which this life says nothing.
    pub(super) fn number(&mut self, n_tasks: u64) {
        let before = self.next_task;
        self.next_task = before.max(n_tasks);
        self.n_most = self.n_most.max(self.next_task);
    }

    /// Arrays of forgotten runs stay as an earlier life had them.
    pub(super) fn forget_until(&mut self, n_tasks: u64) {
        let forgotten = self.next_task..n_tasks;
        let earlier = std::mem::take(&mut self.earlier);
        let (kept, earlier) = earlier.into_iter().partition(|a| forgotten.contains(&a.base));
        self.earlier = earlier;
        self.arrays.extend::<Vec<_>>(kept);
        self.number(n_tasks);
    }

    /// The tasks of a submission are those of the run that it was added to.
    pub(super) fn move_to_run(&mut self, submission: RunId, run: RunId) {
        if submission != run {
            self.arrays.iter_mut().filter(|a| a.run == submission).for_each(|a| a.run = run);
        }
    }

    pub(super) fn end_task(&mut self, task: TaskId, t: Timestamp, end: End, life: usize) {
        self.ends.insert(task, TaskEnd { t, end, life: life as u16 });
    }

    /// This life repeats that a task has ended. `false`: no earlier one said so.
    pub(super) fn confirm_end(&mut self, task: TaskId, life: usize) -> bool {
        self.ends.get_mut(task).map(|end| end.life = life as u16).is_some()
    }

    /// The task has not ended.
    pub(super) fn revive(&mut self, task: TaskId) {
        self.ends.remove(task);
    }

    /// Forgets the ends in `run` that this life has not repeated. Returns their tasks, and whether all tasks of the run have ended.
    pub(super) fn forget_unkept_ends(&mut self, run: RunId, life: usize) -> (Vec<TaskId>, bool) {
        let mut forgotten = vec![];
        for a in self.arrays.iter().filter(|a| a.run == run) {
            let tasks = a.base..a.end();
            // An array may say that it has more tasks than anything is known of.
            let ended: Vec<TaskId> = match a.array.n_tasks as usize > self.ends.len() {
                true => {
                    self.ends.iter().map(|(task, _)| task).filter(|task| tasks.contains(&task.0)).collect()
                }
                false => tasks.map(TaskId).collect(),
            };
            for task in ended {
                if self.ends.get(task).is_some_and(|end| usize::from(end.life) != life) {
                    self.ends.remove(task);
                    forgotten.push(task);
                }
            }
        }
        let all_ended = self.arrays.iter().filter(|a| a.run == run).all(|a| {
            a.array.n_tasks as usize <= self.ends.len()
                && (a.base..a.end()).all(|task| self.ends.get(TaskId(task)).is_some())
        });
        (forgotten, all_ended)
    }

    /// The same for one task.
    pub(super) fn forget_unkept_end(&mut self, task: TaskId, life: usize) -> Vec<TaskId> {
        match self.ends.get(task).is_some_and(|end| usize::from(end.life) != life) {
            true => {
                self.ends.remove(task);
                vec![task]
            }
            false => vec![],
        }
    }

    /// Takes the tasks of another dispatcher in, whose numbers follow those here. Returns how much was added to their numbers.
    pub(crate) fn join(&mut self, other: Tasks) -> u64 {
        let first = self.arrays.last().map_or(0, Array::end);
        self.arrays.extend(other.arrays.into_iter().map(|a| Array { base: a.base + first, ..a }));
        other.ends.iter().for_each(|(task, end)| self.ends.insert(TaskId(task.0 + first), *end));
        first
    }
}

fn find(arrays: &[Array], task: TaskId) -> Option<&Array> {
    let at = arrays.partition_point(|a| a.base <= task.0).checked_sub(1)?;
    Some(&arrays[at]).filter(|a| task.0 < a.end())
}
