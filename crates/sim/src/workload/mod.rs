//! Workloads: what is submitted, when, how large its files are and how long its programs compute.
//!
//! A workload is a stream of [`Submission`]s in order of time, so that millions of tasks need not be made before
//! they are needed, and a table of file sizes. All chance comes from a seed.

use eyas_core::Timestamp;
use eyas_core::array::TaskArray;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Tasks that arrive together.
pub struct Submission {
    /// Since the beginning of the workload.
    pub at: Timestamp,
    pub array: Arc<TaskArray>,
    pub compute: Compute,
}

/// How long the programs of an array compute on a processor of speed 1, beside reading and writing their files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compute {
    /// Nanoseconds, each.
    Same(u64),
    /// Nanoseconds, by the task's position in its array.
    Each(Vec<u64>),
}

impl Compute {
    /// Of task `i` of the array.
    pub fn of(&self, i: u32) -> u64 {
        match self {
            Compute::Same(ns) => *ns,
            Compute::Each(all) => all[i as usize],
        }
    }
}

/// How large files are, in bytes.
#[derive(Clone, Debug)]
pub enum Sizes {
    Same(u64),
    /// By location, inputs and outputs.
    Each(FxHashMap<String, u64>),
}

impl Sizes {
    /// `None`: there is no such file.
    pub fn of(&self, location: &str) -> Option<u64> {
        match self {
            Sizes::Same(bytes) => Some(*bytes),
            Sizes::Each(all) => all.get(location).copied(),
        }
    }
}

pub struct Workload {
    pub name: String,
    pub n_tasks: u64,
    /// How long it would take on a machine without limits, in nanoseconds: for a stream of arrivals the time of the last
    /// one, for a bag of tasks 0.
    pub ideal_ns: u64,
    /// Bytes that the tasks read in total, each reading counted.
    pub read_bytes: u64,
    pub sizes: Sizes,
    /// In order of time.
    pub submissions: Box<dyn Iterator<Item = Submission>>,
}
