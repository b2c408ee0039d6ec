//! What was decided about nodes, and the numbers that it was decided by: for the event log, from which `eyas explain --nodes`
//! tells it in words.
//!
//! A look that changes nothing leaves no record.

use super::sizing::Sizing;
use eyas_terms::{ExecutorId, Timestamp};
use serde::{Deserialize, Serialize};

/// One decision of a [`super::Provisioner`], or of [`super::blocks::Blocks`] about what it had requested.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decision {
    pub at: Timestamp,
    /// A name in [`super::NAMES`].
    pub policy: String,
    pub what: Decided,
    pub why: Why,
    pub seen: Basis,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// So many nodes were requested.
    Requested { n_nodes: u32 },
    /// These nodes were asked to leave.
    Released { executors: Vec<ExecutorId> },
    /// The request for so many nodes, which had not come, was taken back.
    Withdrawn { n_nodes: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Fewer than the least number of nodes were there or on their way.
    BelowMinimum,
    /// Paper's policies: tasks, queued and running, are to have a slot for each `tasks_per_slot` of them, for which so many nodes are
    /// wanted in all.
    Tasks { n_wanted: u32, tasks_per_slot: u32 },
    /// `demand`: the predicted work lacks so many nodes.
    Work { n_lacking: u32, sizing: Box<Sizing> },
    /// Every task that waits takes longer than the node has left.
    NoTimeLeft,
    /// The nodes had had no task for at least this long.
    Idle { idle_ns: u64 },
    /// `demand`: so many nodes would have been enough for all of the last `window_ns`.
    Surplus { n_keep: u32, window_ns: u64 },
    /// No task had waited for this long.
    NothingWaits { for_ns: u64 },
    /// More nodes were there or on their way than there may be.
    AboveMaximum,
}

/// What was seen when it was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Basis {
    /// Tasks that could start and that no node had.
    pub n_ready: u64,
    /// Their predicted times together; tasks of which nothing is predicted are not in it.
    pub queued_ns: u64,
    pub n_unknown: u64,
    /// Tasks that are too large for a node as it is expected.
    pub n_too_large: u64,
    /// Slots that the others would take if all of them ran at once.
    pub queued_slots: u64,
    /// Tasks that some node had.
    pub n_running: u64,
    pub n_busy_slots: u64,
    pub n_slots: u64,
    /// Nodes that were there and stay.
    pub n_nodes: u32,
    /// Nodes that were asked to leave, or drain, and were still there.
    pub n_leaving: u32,
    /// Nodes that were requested and had not joined.
    pub n_pending: u32,
    pub nodes_min: u32,
    pub nodes_max: u32,
}

impl Decision {
    /// Whether the logged numbers give the logged decision again.
    pub fn follows_from_its_numbers(&self) -> bool {
        let n_lacking = match &self.why {
            Why::Work { n_lacking, sizing } => {
                if sizing.n_lacking().0 != *n_lacking {
                    return false;
                }
                *n_lacking
            }
            Why::Tasks { n_wanted, .. } => {
                n_wanted.saturating_sub(self.seen.n_nodes.saturating_add(self.seen.n_pending))
            }
            _ => return true,
        };
        matches!(self.what, Decided::Requested { n_nodes } if (1..=n_lacking).contains(&n_nodes))
    }
}
