//! How many tasks of a run are in which state, and what they read.

use crate::event::InputReport;
use eyas_terms::{CacheOutcome, Outcome};

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TaskCounts {
    pub n_tasks: u64,
    pub n_waiting: u64,
    pub n_ready: u64,
    /// Tasks given to an executor; `n_landing` of them are bringing their outputs home.
    pub n_reserved: u64,
    pub n_landing: u64,
}

/// Tasks that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndCounts {
    pub n_done: u64,
    pub n_failed: u64,
    pub n_cancelled: u64,
}

impl EndCounts {
    pub fn n(&self) -> u64 {
        self.n_done + self.n_failed + self.n_cancelled
    }

    /// One more task has ended like this.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Done => self.n_done += 1,
            Outcome::Failed(_) => self.n_failed += 1,
            Outcome::Cancelled => self.n_cancelled += 1,
        }
    }

    pub fn add(&mut self, more: &EndCounts) {
        self.n_done += more.n_done;
        self.n_failed += more.n_failed;
        self.n_cancelled += more.n_cancelled;
    }
}

/// The bytes that attempts read, by where they came from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BytesRead {
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
}

impl BytesRead {
    pub(super) fn count(&mut self, inputs: &[InputReport]) {
        for input in inputs {
            match input.outcome {
                CacheOutcome::LocalHit
                | CacheOutcome::Joined
                | CacheOutcome::InPlace
                | CacheOutcome::Made => self.local_bytes += input.size_bytes,
                CacheOutcome::RemoteHit { .. } => self.peer_bytes += input.size_bytes,
                CacheOutcome::Miss | CacheOutcome::Direct => self.home_bytes += input.size_bytes,
            }
        }
    }
}
