//! `first-available`: the head of the queue goes to the next free executor.
//!
//! Source: Raicu09 §2.3, "it simply chooses the first available executor, and provides the executor with no
//! information concerning the location of data objects needed by the task".
//!
//! Assumes nothing about the tasks' data. The executor reads each input from home storage, every time.
//!
//! Readings:
//!   - *first available*: the executor with most idle slots; of equals, the next in turn, so that a burst
//!     spreads over the nodes instead of filling one after the other;
//!   - *head of the queue*: the first task that some executor has room for. A task that needs more slots or
//!     memory than any executor has idle does not block the tasks behind it;
//!   - room *ahead* (not in the paper) is used when no executor has idle slots for any task of the window,
//!     beginning with the executor that has most such room;
//!   - with `m > 1` the following tasks that fit the same executor go along, in queue order.

use super::{ExecutorId, Mode, Pick, Policy, Stage, Unplaced, Window, choice};

pub const NAME: &str = "first-available";

#[derive(Debug)]
pub struct FirstAvailable {
    /// `m`, at least 1.
    pub n_tasks_max: usize,
}

impl Policy for FirstAvailable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn uses_caches(&self) -> bool {
        false
    }

    fn place(&self, window: &Window, picks: &mut Vec<Pick>) -> Result<ExecutorId, Unplaced> {
        choice::place(
            window,
            &[(Stage::Idle, Mode::FirstAvailable), (Stage::Ahead, Mode::FirstAvailable)],
            self.n_tasks_max,
            picks,
        )
    }
}
