//! Attempts that were given up although they may still end well.
//!
//! A lost executor may come back with the result of an attempt, and so may an executor whose attempt was
//! *suspect*. This process knows that the attempt was given up. The next process would not: it would believe
//! the executor, and record a result that a later attempt has replaced at home. So each attempt that is given
//! up is written to the journal, and its task is not given out again before that record is on the disk. This
//! costs one record for each such attempt, and nothing in a run without failures.
//!
//! In: an attempt that is given up ([`GivenUp::give_up`]), and the journal's confirmation of it, live or
//! read back after a restart ([`Event::AttemptGivenUp`]). Out: [`Action::RecordGivenUp`], and the task back
//! in its queue.
//!
//! Invariant, checked by `GivenUp::check`: a task of `unrecorded` is in `waits`, and waits for
//! nothing else.

use super::{End, Schedule, Waits, Workload};
use crate::event::Action;
use eyas_terms::{AttemptNo, TaskId, Timestamp};
use std::collections::BTreeMap;

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
    pub(super) fn forget(&mut self, task: TaskId) {
        self.unrecorded.remove(&task);
    }

    /// Gives up `attempt`, which may still end well although no executor counts as having the task: the task
    /// is queued again when the journal has the record.
    pub(super) fn give_up(
        &mut self,
        work: &mut Workload,
        waits: &mut Waits,
        task: TaskId,
        attempt: AttemptNo,
        out: &mut Vec<Action>,
    ) {
        self.unrecorded.insert(task, attempt);
        waits.n_missing.insert(task, 1);
        work.run_mut(work.tasks.run_of(task)).tasks.n_waiting += 1;
        out.push(Action::RecordGivenUp { task, attempt });
    }

    pub(super) fn on_attempt_given_up(
        &mut self,
        work: &mut Workload,
        schedule: &mut Schedule,
        waits: &mut Waits,
        now: Timestamp,
        task: TaskId,
        attempt: AttemptNo,
    ) {
        if !work.tasks.has_task(task) || work.tasks.end_of(task) != End::Not {
            return;
        }
        let waited = self.unrecorded.get(&task) == Some(&attempt);
        // When the record is read back, nothing else is known of the attempt: it may have left a part of an
        // output at home.
        let may_have_left = !waited && work.tasks.lands(task);
        let history = schedule.attempts.tried(task, attempt);
        history.given_up = history.given_up.max(attempt.0);
        history.may_have_left |= may_have_left;
        if waited {
            self.unrecorded.remove(&task);
            waits.n_missing.remove(&task);
            work.run_mut(work.tasks.run_of(task)).tasks.n_waiting -= 1;
            schedule.requeue(work, now, task);
        }
    }

    /// Panics when the invariant of the module's header is broken. For tests.
    pub(super) fn check(&self, waits: &Waits) {
        for task in self.unrecorded.keys() {
            assert_eq!(waits.n_missing.get(task), Some(&1), "{task:?} waits for the journal");
        }
    }
}
