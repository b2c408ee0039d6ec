//! How an active push stands (`Raicu09` §5.3): what journals, clients and logs have of it. Who decides about it is `eyas_core`.

use crate::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

/// How a push stands, or how it ended.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct PushRecord {
    pub run: RunId,
    pub began: Timestamp,
    pub ended: Option<Timestamp>,
    pub is_cancelled: bool,
    pub n_files: u64,
    /// Files whose bytes are known: they were read from home for the push, or home says that a node has them.
    pub n_read: u64,
    pub n_nodes: u32,
    /// Pairs of a file and a node: how many are wanted, how many are there, and the bytes of those.
    pub n_wanted: u64,
    pub n_there: u64,
    pub there_bytes: u64,
    /// Of the pairs that are not there: how many did not fit into the node's cache.
    pub n_unfit: u64,
    /// The first pairs that are not there, when the push has ended.
    pub missing: Vec<MissingFile>,
}

impl PushRecord {
    /// Whether every file is on every node that wants it.
    pub fn is_whole(&self) -> bool {
        self.ended.is_some() && self.n_there == self.n_wanted && !self.is_cancelled
    }
}

/// A file that a push did not bring to a node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct MissingFile {
    pub file: String,
    /// Empty: no node has it.
    pub node: String,
    /// A clause.
    pub why: String,
}
