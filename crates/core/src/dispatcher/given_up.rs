//! Attempts that were given up although they may still end well.
//!
//! A lost executor may come back with the result of an attempt, and so may an executor whose attempt was
//! *suspect*. This process knows that the attempt was given up. The next process would not: it would believe
//! the executor, and record a result that a later attempt has replaced at home. So each attempt that is given
//! up is written to the journal, and its task is not given out again before that record is on the disk. This
//! costs one record for each such attempt, and nothing in a run without failures.
//!
//! In: an attempt that is given up ([`Dispatcher::give_up`]), and the journal's confirmation of it, live or
//! read back after a restart ([`Event::AttemptGivenUp`]). Out: [`Action::RecordGivenUp`], and the task back
//! in its queue.
//!
//! Invariant, checked by `Dispatcher::check_given_up`: a task of `unrecorded` is in `waits`, and waits for
//! nothing else.

use super::*;

/// Tasks that wait until the journal has recorded that this attempt was given up.
#[derive(Default)]
pub(super) struct GivenUp {
    unrecorded: BTreeMap<TaskId, AttemptNo>,
}

impl GivenUp {
    pub(super) fn awaits_record(&self, task: TaskId) -> bool {
        self.unrecorded.contains_key(&task)
    }

    /// `task` has ended before it was given out again.
    pub(super) fn forget_given_up(&mut self, task: TaskId) {
        self.unrecorded.remove(&task);
    }
}

impl Dispatcher {
    /// Gives up `attempt`, which may still end well although no executor counts as having the task: the task
    /// is queued again when the journal has the record.
    pub(super) fn give_up(&mut self, task: TaskId, attempt: AttemptNo, out: &mut Vec<Action>) {
        self.given_up.unrecorded.insert(task, attempt);
        self.waits.n_missing.insert(task, 1);
        self.run_mut(self.tasks.run_of(task)).n_waiting += 1;
        out.push(Action::RecordGivenUp { task, attempt });
    }

    pub(super) fn on_attempt_given_up(&mut self, now: Timestamp, task: TaskId, attempt: AttemptNo) {
        if !self.tasks.has_task(task) || self.tasks.end_of(task) != End::Not {
            return;
        }
        let waited = self.given_up.unrecorded.get(&task) == Some(&attempt);
        // When the record is read back, nothing else is known of the attempt: it may have left a part of an
        // output at home.
        let may_have_left = !waited && self.tasks.lands(task);
        let history = self.attempts.tried(task, attempt);
        history.given_up = history.given_up.max(attempt.0);
        history.may_have_left |= may_have_left;
        if waited {
            self.given_up.unrecorded.remove(&task);
            self.waits.n_missing.remove(&task);
            self.run_mut(self.tasks.run_of(task)).n_waiting -= 1;
            self.requeue(now, task);
        }
    }

    /// Panics when the invariant of the module's header is broken. For tests.
    pub(super) fn check_given_up(&self) {
        for task in self.given_up.unrecorded.keys() {
            assert_eq!(self.waits.n_missing.get(task), Some(&1), "{task:?} waits for the journal");
        }
    }
}
