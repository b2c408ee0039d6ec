//! `max-cache-hit`: a task goes to the executor that holds most of its data, and waits until there is room.
//!
//! Source: Raicu09 §2.3 (text on MCH), figures 4 and 5. "If that executor is busy, task dispatch is delayed until
//! the executor becomes available."
//!
//! Assumes that moving a file costs more than an idle slot, and that executors stay.
//!
//! Readings, where they differ from `max-compute-util`:
//!   - a task is *cold* if none of its inputs is cached on any executor, or if it has none; otherwise it is *warm* and
//!     belongs to its *best holders*: all executors that hold the largest number of its files (figure 5 counts
//!     files, the text says "amount of data"; sizes may be unknown). Any of them may take it, nobody else,
//!     also if it holds some of the files: that is the text's "delayed";
//!   - "no tasks are returned" read literally would never start anything, since files get into caches by running
//!     tasks. So a cold task goes to the next free executor;
//!   - part 1: the head of the queue chooses its best holder with room, of several the one with most, then the next in turn
//!     seat; if it is cold, the next free executor. If it has to wait it blocks nobody: then comes the executor for which
//!     some task of the window waits (again most room, then the next in turn), then the first cold task that fits
//!     somewhere, with the next free executor;
//!   - part 2: that executor gets the tasks that belong to it, fully cached ones first (queue order), then by hit rate;
//!     cold tasks, in queue order, only if there are none of those;
//!   - room *ahead* (not in the paper) is used when nothing can be placed on idle slots: a task queued behind its best
//!     holder's full slots is delayed as the text asks, and neither moves nor blocks anything.

use super::{ExecutorId, Mode, Pick, Policy, Stage, Unplaced, Window, choice};

pub const NAME: &str = "max-cache-hit";

#[derive(Debug)]
pub struct MaxCacheHit {
    /// `m`, at least 1.
    pub n_tasks_max: usize,
}

impl Policy for MaxCacheHit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn place(&self, window: &Window, picks: &mut Vec<Pick>) -> Result<ExecutorId, Unplaced> {
        choice::place(
            window,
            &[(Stage::Idle, Mode::MaxCacheHit), (Stage::Ahead, Mode::MaxCacheHit)],
            self.n_tasks_max,
            picks,
        )
    }
}
