//! The policies of the paper: `static`, `one-at-a-time`, `additive`, `exponential`, `all-at-once`.
//!
//! Source: `Raicu09` §2.1: the length of the queue triggers the provisioning, "tunable allocation and
//! de-allocation policies"; §5.2: "we set each worker to release its resource after 30 seconds of idleness", and its
//! cache is gone with it. The names and sizes are those of Falkon (`Raicu07`): for n nodes, n requests of one, requests
//! that grow by one, requests that double, or one request.
//!
//! Our reading, where the paper says nothing:
//!   - wanted are the nodes that hold all tasks at once, queued and running, divided by `tasks_per_slot_queued`: a task of which a
//!     node holds `k` at once, for its cpus, memory, gpus or named resources, takes one `k`-th of a node. Falkon's tasks took one processor.
//!     The queue is all that has been submitted and not ended, because with the ready ones alone a full cluster would never grow
//!     for fewer tasks than it has slots. Tasks that are too large for a node as it is expected want one node in all;
//!   - requests are made one after the other, `request_every_ns` apart, and do not wait for the earlier ones to
//!     be granted (the batch system takes 30 to 60 s, §5.1.6); what is pending counts as if it were there;
//!   - a series begins anew once nothing lacks;
//!   - nodes go in the order in which they became idle, whether or not something is queued.
//!
//! `static` is `nodes_min = nodes_max`: all nodes are asked for in one request, one that was lost is asked for
//! again, and none is released.

use super::decision::Why;
use super::work::NODE_PARTS;
use super::{Policy, View};
use eyas_terms::ExecutorId;

pub const STATIC: &str = "static";
pub const ONE_AT_A_TIME: &str = "one-at-a-time";
pub const ADDITIVE: &str = "additive";
pub const EXPONENTIAL: &str = "exponential";
pub const ALL_AT_ONCE: &str = "all-at-once";

/// How the sizes of successive requests grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Series {
    One,
    Additive,
    Doubling,
    All,
}

#[derive(Debug)]
pub(super) struct Growth {
    series: Series,
    /// Size of the next request.
    next: u32,
}

impl Growth {
    pub(super) fn named(name: &str) -> Option<Growth> {
        let series = match name {
            ONE_AT_A_TIME => Series::One,
            ADDITIVE => Series::Additive,
            EXPONENTIAL => Series::Doubling,
            ALL_AT_ONCE | STATIC => Series::All,
            _ => return None,
        };
        Some(Growth { series, next: 1 })
    }
}

/// Nodes that the tasks want in all.
fn n_wanted(view: &View) -> u32 {
    let (config, predicted) = (view.config, view.predicted);
    let parts = predicted.queued_parts().saturating_add(predicted.running_parts());
    let wanted = parts.div_ceil(NODE_PARTS * u64::from(config.tasks_per_slot_queued));
    wanted.max(u64::from(predicted.n_too_large > 0)).min(u64::from(config.nodes_max)) as u32
}

impl Policy for Growth {
    fn n_lacking(&mut self, view: &View) -> u32 {
        n_wanted(view).saturating_sub(view.n_have)
    }

    fn why_lacking(&self, view: &View) -> Why {
        Why::Tasks { n_wanted: n_wanted(view), tasks_per_slot: view.config.tasks_per_slot_queued }
    }

    fn request_size(&mut self, n_lacking: u32) -> u32 {
        let size = self.next;
        match self.series {
            Series::All => return n_lacking,
            Series::One => {}
            Series::Additive => self.next = size.saturating_add(1),
            Series::Doubling => self.next = size.saturating_mul(2),
        }
        size
    }

    fn satisfied(&mut self) {
        self.next = 1;
    }

    fn releasable(&mut self, view: &View, go: &mut Vec<ExecutorId>) {
        let Some(release_idle_ns) = view.config.release_idle_ns else { return };
        let mut idle: Vec<(u64, ExecutorId)> = (view.nodes.iter())
            .filter_map(|n| Some((n.idle_ns(view.now)?, n.executor)))
            .filter(|(idle_ns, _)| *idle_ns >= release_idle_ns)
            .collect();
        idle.sort_unstable_by_key(|(idle_ns, id)| (std::cmp::Reverse(*idle_ns), *id));
        go.extend(idle.into_iter().map(|(_, id)| id));
    }

    fn why_releasable(&self, view: &View) -> Why {
        Why::Idle { idle_ns: view.config.release_idle_ns.unwrap_or(0) }
    }
}
