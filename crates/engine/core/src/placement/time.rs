//! How long tasks take and how much time executors have left, in steps.
//!
//! Batch systems end nodes at their walltime. A task is given to an executor only if the time that it is expected
//! to take at most fits into the time that the executor has left. Tasks of the same size whose times are in the
//! same step are one kind for placement, so there are few kinds.
//!
//! A step is a factor of 2^(1/4), about 1.19. Times of tasks are rounded up and times of executors down, so a
//! task that fits by its step fits by its time.

use serde::{Deserialize, Serialize};

/// The first step ends at this time.
const FIRST_NS: f64 = 1_000_000.0;
const STEPS_PER_DOUBLING: f64 = 4.0;

/// The time that a task is expected to take at most. The default: nothing is known, or no executor's end
/// matters to the task, so it may go to any executor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Lasts(u8);

/// The time that an executor has left. The default: it has no end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TimeLeft(Option<u8>);

fn steps(ns: u64) -> f64 {
    (ns.max(1) as f64 / FIRST_NS).log2() * STEPS_PER_DOUBLING
}

impl Lasts {
    pub const ANY: Lasts = Lasts(0);

    /// The step of a task that takes at most `ns` nanoseconds.
    pub fn of_ns(ns: u64) -> Lasts {
        Lasts(1 + steps(ns).ceil().clamp(0.0, 250.0) as u8)
    }

    /// Steps from `other` to this one; 0 if this one is not longer.
    pub fn steps_above(self, other: Lasts) -> u8 {
        self.0.saturating_sub(other.0)
    }
}

impl TimeLeft {
    pub const NO_END: TimeLeft = TimeLeft(None);

    /// The step of an executor that has `ns` nanoseconds left.
    pub fn of_ns(ns: u64) -> TimeLeft {
        TimeLeft(Some((1.0 + steps(ns).floor()).clamp(0.0, 250.0) as u8))
    }

    #[inline]
    pub fn is_enough_for(self, lasts: Lasts) -> bool {
        self.0.is_none_or(|left| lasts.0 <= left)
    }

    /// The longest task that has time enough; `None`: any task has.
    pub fn longest(self) -> Option<Lasts> {
        self.0.map(Lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_task_without_a_time_goes_anywhere_and_an_executor_without_an_end_takes_any_task() {
        assert!(TimeLeft::of_ns(0).is_enough_for(Lasts::ANY));
        assert!(TimeLeft::NO_END.is_enough_for(Lasts::of_ns(u64::MAX)));
        assert!(!TimeLeft::of_ns(0).is_enough_for(Lasts::of_ns(1)));
        assert!(TimeLeft::of_ns(1_000_000).is_enough_for(Lasts::of_ns(1_000_000)));
    }

    proptest! {
        #[test]
        fn what_fits_by_its_step_fits_and_a_fifth_more_than_needed_twice_is_always_enough(
            task in 1u64..1 << 50, left in 1u64..1 << 50,
        ) {
            let fits = TimeLeft::of_ns(left).is_enough_for(Lasts::of_ns(task));
            if fits {
                // Below the first step, times are not told apart.
                prop_assert!(task <= left.max(FIRST_NS as u64), "{task} in {left}");
            }
            if left > 2_000_000 && left as f64 >= task as f64 * 1.42 {
                prop_assert!(fits, "{task} in {left}");
            }
        }
    }
}
