//! Collectives: moving the data of a pattern as one plan instead of file by file.
//!
//! In: which node holds what, which node needs it, and the properties of the links. Out: the quickest way
//! ([`choose`]), a [`Plan`], and the prefetches that carry it out while nodes come and go ([`Collectives`]).
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
//! A collective is advice: it brings objects to caches before tasks ask for them. An object that a collective
//! gives up is fetched by the task's own attempt. So a collective may end incomplete at any time, and no
//! promise depends on it.
//!
//! Not here: which patterns there are ([`crate::pattern`]), and how bytes move (executors; a source that
//! still receives an object sends on the bytes it has).

pub mod carry;
pub mod choose;
pub mod cost;
mod fit;
pub mod lessons;
pub mod links;
pub mod plan;

pub use carry::{CarryConfig, CollectiveAction, CollectiveEvent, Collectives, Left};
pub use choose::{Choice, Outlook, RerunCase, choose_gather, choose_multicast, choose_scatter};
pub use lessons::{Case, Expectation, Forecast, Lesson, Lessons};
pub use links::{Estimate, LinkEstimator, LinkModel, Links, Observation};
pub use plan::{Item, Plan, Want};

use eyas_terms::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a collective within one dispatcher's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default)]
#[serde(transparent)]
pub struct CollectiveId(pub u32);

/// The number of one request to one executor, for objects from one source. Never used again.
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
    /// No collective: each task that needs a file asks a holder for it, one request per file.
    PlainFetches,
    /// When the last file exists: one request per source for all its files (§IV-C, "collective gather").
    CollectiveGather,
    /// Each file is fetched when it appears, while the rest computes (§IV-C, "asynchronous gather").
    AsyncGather,
    /// Like the asynchronous gather, but files that appeared at a source since the last request travel
    /// together.
    AsyncArchives,
    /// One request per receiver for all that it needs.
    Archives,
    /// A tree of nodes over which a gather or a scatter goes: each node asks for the files of all nodes behind it at
    /// once, and passes them on while they arrive (§V-B.3, figure 8).
    ArchiveTree { arity: u32 },
    /// Every node that has everything sends it on, so that each round doubles the holders (§V-B.3).
    Binomial,
    /// A tree in which every node sends on what it still receives; `arity` 1 is a chain.
    Pipelined { arity: u32 },
    /// No file moves: the task that made the files also runs at the receivers (§V-F.5, "task replication",
    /// the name in older logs).
    #[serde(alias = "task-replication")]
    TaskRerun,
}

impl Way {
    /// Whether nodes pass on what they have not received whole.
    pub fn streams(self) -> bool {
        matches!(self, Way::Pipelined { .. } | Way::ArchiveTree { .. })
    }

    /// Whether a gather of this way begins when its last file exists.
    pub fn waits_for_all(self) -> bool {
        matches!(self, Way::CollectiveGather | Way::ArchiveTree { .. })
    }
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
            Way::ArchiveTree { arity } => write!(f, "archives along a tree of arity {arity}"),
            Way::Pipelined { arity: 1 } => f.write_str("pipelined chain"),
            Way::Pipelined { arity } => write!(f, "pipelined tree of arity {arity}"),
        }
    }
}

/// The outcome of a collective, for the event log and `eyas report`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct CollectiveRecord {
    pub collective: CollectiveId,
    pub kind: CollectiveKind,
    pub way: Way,
    pub began: Timestamp,
    /// All objects that it wanted existed since then. `None`: not all of them came to exist, or the log is older.
    #[serde(default)]
    pub ready: Option<Timestamp>,
    pub ended: Timestamp,
    /// The cost model's predictions for this way when it was chosen, and for the other ways.
    pub choice: Option<Choice>,
    pub n_receivers: u32,
    /// Pairs of receiver and object: how many were wanted, how many had arrived at the end, and the bytes of
    /// those.
    pub n_wanted: u32,
    pub n_arrived: u32,
    pub arrived_bytes: u64,
    /// How often a receiver was given another source, because the first was lost, late or without the object.
    pub n_moved: u32,
}

impl CollectiveRecord {
    /// The moment from which the data was there to be moved. Before it, a gather waits for the tasks that make its files.
    pub fn ready(&self) -> Timestamp {
        self.ready.unwrap_or(self.began)
    }
    /// Time from [`Self::ready`] to the last arrival.
    pub fn measured_ns(&self) -> u64 {
        self.ended.since_ns(self.ready())
    }
    /// The predicted time, if it is sure enough to be shown: see [`lessons::PROMISE`].
    pub fn predicted_ns(&self) -> Option<u64> {
        self.choice.as_ref()?.promised_ns()
    }
}
