//! Who runs what: the ready tasks, the executors, the attempts that they have, how long tasks take, and what users have had.
//!
//! The room of an executor depends on all four: on what it offers, on the attempts that it has, on whether
//! more tasks are ready than there are slots, and on how long a task of each stage takes. A function that
//! changes one of the four and must update the others is a method of [`Schedule`]. A function that needs only
//! one of the four is a method of that structure.
//! Methods of [`Schedule`] are in the files of their subjects:
//!
//! | file | subject |
//! |---|---|
//! | `ready` | tasks enter and leave the queue |
//! | `shares` | whose tasks are in the queue, where several users share the cluster |
//! | `assign` | which executor gets which task, and how much room an executor has |
//! | `executors` | attempts begin and end to take room; attempts are taken back |
//! | `resources` | needs are held; a node is kept for a task that was passed too often |
//! | `walltimes` | how long tasks may take, and executors that end soon |
//! | `attempts` | what an ended attempt teaches |
//! | `replicas`, `reruns`, `exchange/balance`, `ask` | one function each: a transfer went on, room for a rerun, the load of this dispatcher, what provisioning asks |

use super::{Attempts, DispatcherConfig, Executors, Ready, Resources, RunTimes, Shares};
use crate::placement::Queue;

/// Ready tasks, executors, attempts and run times. See the module's header.
pub(super) struct Schedule {
    pub(super) ready: Ready,
    pub(super) attempts: Attempts,
    pub(super) executors: Executors,
    pub(super) run_times: RunTimes,
    pub(super) shares: Shares,
}

impl Schedule {
    pub(super) fn new(config: &DispatcherConfig, queue: Box<dyn Queue>) -> Schedule {
        let resources = Resources::new(config.resources.clone());
        Schedule {
            ready: Ready::new(queue, config.placement_config.ahead),
            attempts: Attempts::default(),
            executors: Executors { resources, ..Executors::default() },
            run_times: RunTimes::default(),
            shares: Shares::default(),
        }
    }
}
