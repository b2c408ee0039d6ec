//! `good-cache-compute`: `max-compute-util` until enough slots are busy, then `max-cache-hit`.
//!
//! Source: Raicu09 §2.3 (text on GCC), figure 5 line 24.
//!
//! Assumes that a few idle slots are a fair price for fewer transfers.
//!
//! Readings:
//!   - *processor utilization*, "the number of processors with active tasks divided by the total number of processors
//!     allocated": busy slots / all slots of the executors that are here. A slot counts as busy from the moment a task
//!     is placed on it, also while its inputs still move;
//!   - *the threshold*: below it the rules of `max-compute-util` hold, at it and above those of `max-cache-hit`. It is
//!     looked at once per decision ("at the time of scheduling decision"), not per task as figure 5 line 24 could be read;
//!   - room *ahead* (not in the paper) begins where slots are full, so it is given by the rules of `max-cache-hit`.

use super::{ExecutorId, Mode, Pick, Policy, Stage, Unplaced, Window, choice};

pub const NAME: &str = "good-cache-compute";

#[derive(Debug)]
pub struct GoodCacheCompute {
    /// `m`, at least 1.
    pub n_tasks_max: usize,
    /// In [0, 1].
    pub utilisation_threshold: f64,
}

impl GoodCacheCompute {
    /// The rule for idle slots when `n_active` of `n_total` slots are busy.
    pub fn mode(&self, n_active: u64, n_total: u64) -> Mode {
        if (n_active as f64) < self.utilisation_threshold * n_total as f64 {
            Mode::MaxComputeUtil
        } else {
            Mode::MaxCacheHit
        }
    }
}

impl Policy for GoodCacheCompute {
    fn name(&self) -> &'static str {
        NAME
    }

    fn place(&self, window: &Window, picks: &mut Vec<Pick>) -> Result<ExecutorId, Unplaced> {
        let mode = self.mode(window.n_slots_active(), window.n_slots_total());
        let stages = [(Stage::Idle, mode), (Stage::Ahead, Mode::MaxCacheHit)];
        choice::place(window, &stages, self.n_tasks_max, picks)
    }
}
