//! What attempts that were lost with their executors may have left at home, where no later attempt removes
//! it.
//!
//! An output goes home under a temporary name. An executor that is killed meanwhile leaves that file. The
//! next attempt of the task that brings its outputs home removes the file, as the name says which task it
//! belongs to. Where the task ends without such an attempt, an executor is asked to remove the file: a
//! connected one, or else the next one that joins. If that executor goes without an answer, another one is
//! asked. So the same may be asked twice, which does no harm.
//!
//! After a restart it is not known which attempts were given out before. For a task from before the restart
//! an executor is asked if the task failed or was cancelled. Not here: how the names are made and how files
//! are removed (`eyas_storage::Part`).

use super::{Attempts, Dispatcher, End, ExecutorState, Executors, History, Workload};
use crate::event::Action;
use eyas_terms::{AttemptNo, ExecutorId, TaskId};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Leftovers {
    /// Tasks whose leftovers no executor has been asked to remove, each with its latest attempt.
    unasked: BTreeMap<TaskId, AttemptNo>,
    asked: BTreeMap<(ExecutorId, TaskId), AttemptNo>,
}

impl Leftovers {
    pub(super) fn removed(&mut self, executor: ExecutorId, tasks: &[TaskId]) {
        for task in tasks {
            self.asked.remove(&(executor, *task));
        }
    }

    /// The executor is gone, or its connection broke, so it may not have received the request: another one is
    /// asked.
    pub(super) fn ask_anew(&mut self, executor: ExecutorId) {
        let of_it = (executor, TaskId(0))..=(executor, TaskId(u64::MAX));
        let again: Vec<_> = self.asked.range(of_it).map(|(key, attempt)| (*key, *attempt)).collect();
        for (key, attempt) in again {
            self.asked.remove(&key);
            self.unasked.insert(key.1, attempt);
        }
    }

    /// Notes that `task`, which did not end well, may have left something at home.
    pub(super) fn note(&mut self, work: &Workload, attempts: &Attempts, task: TaskId, history: &History) {
        let may_have_left =
            history.may_have_left || (task.0 < attempts.n_recovered && work.tasks.lands(task));
        if may_have_left {
            self.unasked.insert(task, AttemptNo(history.n_attempts));
        }
    }

    pub(super) fn ask(&mut self, executors: &Executors, out: &mut Vec<Action>) {
        if self.unasked.is_empty() {
            return;
        }
        let is_heard = |(_, e): &(_, &ExecutorState)| e.silent_since.is_none();
        // Prefer an executor that is not about to leave.
        let able = executors.by_id.iter().filter(is_heard).min_by_key(|(id, e)| (e.draining, **id));
        let Some((&executor, _)) = able else { return };
        let attempts: Vec<_> = std::mem::take(&mut self.unasked).into_iter().collect();
        for (task, attempt) in &attempts {
            self.asked.insert((executor, *task), *attempt);
        }
        out.push(Action::RemoveParts { executor, attempts });
    }

    pub(super) fn check(&self, work: &Workload, executors: &Executors) {
        let Leftovers { unasked, asked } = self;
        assert!(unasked.is_empty() || executors.silent.len() == executors.by_id.len(), "{unasked:?}");
        for (executor, task) in asked.keys() {
            assert!(executors.by_id.contains_key(executor), "{executor:?}");
            assert!(!matches!(work.tasks.end_of(*task), End::Not | End::Done), "{task:?}");
        }
    }

    /// Tasks whose leftovers are still to be removed, with the executor that was asked, if one was.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, Option<ExecutorId>)> {
        let asked = self.asked.keys().map(|(executor, task)| (*task, Some(*executor)));
        self.unasked.keys().map(|task| (*task, None)).chain(asked)
    }
}

impl Dispatcher {
    /// Tasks whose leftovers are still to be removed, with the executor that was asked, if one was.
    pub fn leftovers(&self) -> impl Iterator<Item = (TaskId, Option<ExecutorId>)> {
        self.leftovers.iter()
    }
}
