//! Who runs what: the ready tasks, the executors, the attempts that they have, and how long tasks take.
//!
//! The room of an executor depends on all four: on what it offers, on the attempts that it has, on whether
//! more tasks are ready than there are slots, and on how long a task of each stage takes. So what changes one
//! of them and tells the others is a method of [`Schedule`], and what concerns only one of them is a method
//! of that one.

use super::*;

/// Ready tasks, executors, attempts and run times. See the module's header.
pub(super) struct Schedule {
    pub(super) ready: Ready,
    pub(super) attempts: Attempts,
    pub(super) executors: Executors,
    pub(super) run_times: RunTimes,
}

impl Schedule {
    pub(super) fn new(config: &DispatcherConfig, queue: Box<dyn Queue>) -> Schedule {
        let resources = Resources::new(config.resources.clone());
        Schedule {
            ready: Ready::new(queue, config.placement_config.ahead),
            attempts: Attempts::default(),
            executors: Executors { resources, ..Executors::default() },
            run_times: RunTimes::default(),
        }
    }
}
