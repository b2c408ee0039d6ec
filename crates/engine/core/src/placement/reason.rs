//! Why a policy picked a task. The event log says it with each assignment.

use eyas_terms::ExecutorId;
use serde::{Deserialize, Serialize};

/// Why [`super::affinity`] or [`super::first_input`] picked a task, for `explain`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// All its inputs were on the executor.
    AllHere,
    /// The task has no inputs.
    NoInputs,
    /// The inputs that are fetched for it make this many queued tasks runnable there, including itself.
    Brings { n_tasks: u32 },
    /// No related file was there, so any executor is as good as another to begin with.
    Seed,
    /// The task had waited longest, so it was placed whatever its inputs bring.
    Oldest,
    /// Other executors hold its inputs, but did not take the task for this long.
    Copied { waited_ms: u32 },
    /// Its first input was on the executor when it became ready.
    FirstHere,
    /// Its first input was on no node when it became ready, and it was this node's turn.
    Dealt,
    /// The task was in the queue of this neighbour, which was busy.
    Stolen { from: ExecutorId },
}
