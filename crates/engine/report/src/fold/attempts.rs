//! Which attempt a task has, and at which executor.

use eyas_terms::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Not, as far as the log goes.
    Open,
    Done,
    Failed,
    Cancelled,
    /// Its executor was lost, or came back without it.
    Lost,
}

impl How {
    /// By what its executor reported.
    pub(super) fn of_report(outcome: &Outcome) -> How {
        match outcome {
            Outcome::Done => How::Done,
            Outcome::Failed(_) => How::Failed,
            Outcome::Cancelled => How::Cancelled,
        }
    }

    /// By how its task ended.
    pub(super) fn of_end(outcome: &Outcome) -> How {
        match outcome {
            Outcome::Failed(f) if f.kind == FailureKind::ExecutorLost => How::Lost,
            _ => How::of_report(outcome),
        }
    }
}

/// An attempt that an executor has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeldAttempt {
    /// Position among all attempts of the log; `None`: its task does not have it any more, or never had.
    pub at: Option<usize>,
    pub attempt: AttemptNo,
    /// Row of the executor.
    pub row: usize,
    /// When the executor was given the attempt, or came to a restarted dispatcher with it.
    pub since: Timestamp,
    /// The program ended well; its outputs are on their way home.
    pub is_landing: bool,
}

#[derive(Debug, Default)]
pub struct Attempts {
    /// The attempt that a task has now.
    open: FxHashMap<TaskId, HeldAttempt>,
    /// Attempts that executors still have and their tasks do not.
    left: FxHashMap<(TaskId, AttemptNo), HeldAttempt>,
    n_begun: usize,
}

impl Attempts {
    /// The attempt that a task has now.
    pub fn of(&self, task: TaskId) -> Option<HeldAttempt> {
        self.open.get(&task).copied()
    }

    /// All attempts that tasks have now, in no order.
    pub fn open(&self) -> impl Iterator<Item = &HeldAttempt> {
        self.open.values()
    }

    /// What the executor of `row` has under that number.
    pub(super) fn find(&self, task: TaskId, attempt: AttemptNo, row: usize) -> Option<HeldAttempt> {
        let is_it = |held: &HeldAttempt| held.attempt == attempt && held.row == row;
        self.of(task).filter(is_it).or_else(|| self.left.get(&(task, attempt)).copied().filter(is_it))
    }

    pub(super) fn find_landing(&self, task: TaskId, attempt: AttemptNo, row: usize) -> Option<HeldAttempt> {
        self.find(task, attempt, row).filter(|held| held.is_landing)
    }

    pub(super) fn begin_life(&mut self) {
        self.left.clear();
    }

    /// Returns the attempt's position. The task has no other attempt.
    pub(super) fn begin(&mut self, task: TaskId, attempt: AttemptNo, row: usize, t: Timestamp) -> usize {
        let at = self.n_begun;
        self.n_begun += 1;
        self.open.insert(task, HeldAttempt { at: Some(at), attempt, row, since: t, is_landing: false });
        at
    }

    /// Another executor has the task's attempt.
    pub(super) fn move_to(&mut self, task: TaskId, row: usize, t: Timestamp) {
        if let Some(held) = self.open.get_mut(&task) {
            (held.row, held.since) = (row, t);
        }
    }

    pub(super) fn land(&mut self, task: TaskId, attempt: AttemptNo) {
        let open = self.open.get_mut(&task).filter(|held| held.attempt == attempt);
        if let Some(held) = open.or_else(|| self.left.get_mut(&(task, attempt))) {
            held.is_landing = true;
        }
    }

    /// An executor has an attempt that its task does not have.
    pub(super) fn leave(&mut self, task: TaskId, attempt: AttemptNo, row: usize, t: Timestamp) {
        self.left
            .insert((task, attempt), HeldAttempt { at: None, attempt, row, since: t, is_landing: false });
    }

    /// The task does not have its attempt any more, its executor perhaps does. Returns what it was.
    pub(super) fn end(&mut self, task: TaskId) -> Option<HeldAttempt> {
        let held = self.open.remove(&task)?;
        self.left.insert((task, held.attempt), HeldAttempt { at: None, ..held });
        Some(held)
    }

    pub(super) fn forget_left(&mut self, task: TaskId, attempt: AttemptNo) {
        self.left.remove(&(task, attempt));
    }

    /// An executor is gone, or came back with what it `offered`: it reports nothing else.
    pub(super) fn forget_left_at(&mut self, row: usize, offered: &[(TaskId, AttemptNo)]) {
        self.left.retain(|id, held| held.row != row || offered.contains(id));
    }

    /// Tasks whose attempts the executor of `row` had, and does not have by its offer. Ascending.
    pub(super) fn not_offered(&self, row: usize, offered: &[(TaskId, AttemptNo)]) -> Vec<TaskId> {
        let is_gone = |(task, held): &(&TaskId, &HeldAttempt)| {
            held.row == row && !offered.contains(&(**task, held.attempt))
        };
        let mut gone: Vec<TaskId> = self.open.iter().filter(is_gone).map(|(task, _)| *task).collect();
        gone.sort_unstable();
        gone
    }
}
