//! Attempts that were given up although they may still end well.
//!
//! An executor that was lost may come back with the result of an attempt, and so may one whose attempt was *suspect*. While
//! this process lives it knows better; the next one would believe it, and record a result that a later attempt has replaced
//! at home. So an attempt that was given up is written to the journal, and its task is not given out again before that is on
//! the disk. It costs one record for each such attempt, and nothing in a run without failures.
//!
//! In: an attempt that is given up ([`Dispatcher::give_up`]), and the journal's word for it, live or read back after a restart
//! ([`Event::AttemptGivenUp`]). Out: [`Action::RecordGivenUp`], and the task in its queue again.
//!
//! Invariant, checked by `Dispatcher::check_given_up`: a task of `unrecorded` is in `waits`, for this alone.

use super::*;

/// Tasks that wait until the journal holds that this attempt was given up.
#[derive(Default)]
pub(super) struct GivenUp {
    unrecorded: BTreeMap<TaskId, AttemptNo>,
}

impl GivenUp {
    pub(super) fn awaits_record(&self, task: TaskId) -> bool {
        self.unrecorded.contains_key(&task)
    }

    /// `task` has ended without having been given out again.
    pub(super) fn forget_given_up(&mut self, task: TaskId) {
        self.unrecorded.remove(&task);
    }
}

impl Dispatcher {
    /// Nobody has the task any more, and `attempt` may still end well: the task is queued again when the journal knows.
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
        // Read back, it is all that is known of the attempt: it may have left a part of an output at home.
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
