//! Collectives: moving the data of a pattern as one plan instead of file by file.
//!
//! In: who holds what, who needs it, and what the links are like. Out: which way is quickest ([`choose`]), a [`Plan`],
//! and the prefetches that carry it out while nodes come and go ([`Collectives`]).
//!
//! | module | |
//! |---|---|
//! | [`links`] | latency, cost per object and bandwidth, measured from transfers, and how sure they are |
//! | [`cost`] | how long each way takes (`Zhang12` §VI-A.1) |
//! | [`choose`] | the way that is predicted to end first, if that is sure enough, with what was predicted for the others |
//! | [`lessons`] | how long collectives take here, from those that have ended, and how sure that is |
//! | [`plan`] | trees, batches and replicas |
//! | [`carry`] | the state machine that issues prefetches and survives losses |
//!
//! A collective is advice: it brings objects to caches before tasks ask for them. What it gives up, a task's own attempt
//! fetches. So a collective may end incomplete at any time, and no promise depends on it.
//!
//! Not here: which pattern there is ([`crate::pattern`]), and how bytes move (executors; a source that still receives an
//! object sends on what it has).

pub mod carry;
pub mod choose;
pub mod cost;
mod fit;
pub mod lessons;
pub mod links;
pub mod plan;

pub use carry::{CarryConfig, CollectiveAction, CollectiveEvent, Collectives};
pub use choose::{Choice, Outlook, RerunCase, choose_gather, choose_multicast, choose_scatter};
pub use lessons::{Case, Expectation, Lesson, Lessons};
pub use links::{Estimate, LinkEstimator, LinkModel, Links, Observation};
pub use plan::{Item, Plan, Want};

use crate::types::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names a collective in one dispatcher's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default)]
#[serde(transparent)]
pub struct CollectiveId(pub u32);

/// Objects asked of one executor at once, from one source. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default)]
#[serde(transparent)]
pub struct BatchId(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveKind {
    Multicast,
    Scatter,
    Gather,
    /// Copies for balance, in proportion to consumption (§V-F.2).
    Replicate,
}

/// How the bytes of a collective move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// No collective: whoever needs a file asks a holder for it, one request per file.
    PlainFetches,
    /// When the last file exists, one request per source for all that is there (§IV-C, "collective gather").
    CollectiveGather,
    /// Each file when it appears, while the rest computes (§IV-C, "asynchronous gather").
    AsyncGather,
    /// As the asynchronous gather, but what appeared at a source since the last request travels together.
    AsyncArchives,
    /// One request per receiver for all that it needs.
    Archives,
    /// Whoever has it all sends it on, twice as many in each round (§V-B.3).
    Binomial,
    /// A tree in which everybody sends on what it still receives; `arity` 1 is a chain.
    Pipelined { arity: u32 },
    /// Nothing moves: the task that made the files runs at the receivers, too (§V-F.5, "task replication", as older logs have it).
    #[serde(alias = "task-replication")]
    TaskRerun,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::PlainFetches => f.write_str("plain fetches"),
            Way::CollectiveGather => f.write_str("collective gather"),
            Way::AsyncGather => f.write_str("asynchronous gather"),
            Way::AsyncArchives => f.write_str("asynchronous gather in archives"),
            Way::Archives => f.write_str("archives"),
            Way::Binomial => f.write_str("binomial tree"),
            Way::TaskRerun => f.write_str("task rerun"),
            Way::Pipelined { arity: 1 } => f.write_str("pipelined chain"),
            Way::Pipelined { arity } => write!(f, "pipelined tree of arity {arity}"),
        }
    }
}

/// What became of a collective, for the event log and `eyas report`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct CollectiveRecord {
    pub collective: CollectiveId,
    pub kind: CollectiveKind,
    pub way: Way,
    pub began: Timestamp,
    pub ended: Timestamp,
    /// What the cost model said for this way when it was chosen, and for the others.
    pub choice: Option<Choice>,
    pub n_receivers: u32,
    /// Pairs of receiver and object: wanted, there at the end, and their bytes.
    pub n_wanted: u32,
    pub n_arrived: u32,
    pub arrived_bytes: u64,
    /// Times that a receiver was given another source, because the first was lost, late or without the object.
    pub n_moved: u32,
}

impl CollectiveRecord {
    /// From the beginning to the last arrival.
    pub fn measured_ns(&self) -> u64 {
        self.ended.since_ns(self.began)
    }
    /// What was predicted, where that is sure enough to be told: see [`lessons::PROMISE`].
    pub fn predicted_ns(&self) -> Option<u64> {
        self.choice.as_ref()?.promised_ns()
    }
}
