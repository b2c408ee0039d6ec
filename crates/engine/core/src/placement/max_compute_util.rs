//! `max-compute-util`: keep every slot busy, prefer the executor with most of the needed data.
//!
//! Source: Raicu09 §2.3 (text on MCU), figures 4 and 5. "It sends a task to an available executor, preferring
//! executors with the most needed data locally."
//!
//! Assumes that moving a file costs less than an idle slot.
//!
//! Readings:
//!   - *figure 4, T0*: the first task in queue order that some executor has room for; a task that fits nowhere now
//!     does not block those behind it;
//!   - *figure 4, lines 2 to 8*: candidates are counted by the number of T0's files they hold, not by bytes, as
//!     `candidates[]++` says; ties go to the executor with most idle slots, then to the next in turn, so that tasks
//!     which share a database that everybody holds spread over the nodes. Line 5 indexes by `tempSet`, which we take for
//!     the executor of the loop of line 4. With more than 8 inputs the count is exact too;
//!   - *figure 4, lines 12 and 13* hand T0 itself to the executor, while the text and figure 5 let the executor pick
//!     up the best tasks of the window. We follow the text: T0 chooses who is notified, the window decides what it gets;
//!   - *figure 4, lines 16 and 17* stand inside the loop over candidates; we take them to follow it, or every busy
//!     candidate would cause a notification. *Next free executor*: most idle slots, then the next in turn;
//!   - *figure 5, line 24*: `minCacheHit` is not defined. By the text: tasks of the window with all inputs cached come
//!     first, in queue order; if there are fewer than `m`, those with the highest hit rate (inputs cached / inputs), equal
//!     rates in queue order. A task without inputs has a hit rate of 100 %;
//!   - rates of tasks with more than 8 inputs are compared in eighths, rounded down, with "all" and "none" exact;
//!   - only "if no tasks were found that would yield any cache hit rates" the first `m` of the queue are taken. So
//!     a task with a hit never drags one without along: the latter chooses its own executor in the next decision;
//!   - tasks that do not fit what is left of the executor's room are skipped;
//!   - room *ahead* (not in the paper) is used by the same rules, when no executor has idle slots for any task.
//!
//! Known weakness of the source: while tasks with better hit rates keep arriving within the window, T0 waits.

use super::{ExecutorId, Mode, Pick, Policy, Stage, Unplaced, Window, choice};

pub const NAME: &str = "max-compute-util";

#[derive(Debug)]
pub struct MaxComputeUtil {
    /// `m`, at least 1.
    pub n_tasks_max: usize,
}

impl Policy for MaxComputeUtil {
    fn name(&self) -> &'static str {
        NAME
    }

    fn place(&self, window: &Window, picks: &mut Vec<Pick>) -> Result<ExecutorId, Unplaced> {
        choice::place(
            window,
            &[(Stage::Idle, Mode::MaxComputeUtil), (Stage::Ahead, Mode::MaxComputeUtil)],
            self.n_tasks_max,
            picks,
        )
    }
}
