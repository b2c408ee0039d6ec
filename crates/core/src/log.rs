//! The grammar of the event log: JSON lines, the same live, simulated and replayed.
//!
//! A log is a sequence of *lives*, one per dispatcher process. Each starts with a [`Header`]; every later
//! line is a [`Line`]: an event that went into the core, or an action that came out, in that order and
//! with the time the core was given. What programs printed is in a second file of [`PrintedLine`]s.
//! `docs/reference/event-log.md` describes both for people.
//!
//! Not here: files. `eyas-runtime` writes them, `eyas-report` reads them.

use crate::dispatcher::DispatcherConfig;
use crate::event::{Action, Event};
use crate::types::*;
use serde::{Deserialize, Serialize};

/// Version of the grammar.
pub const LOG_VERSION: u32 = 1;
/// Names of the two files in a dispatcher's directory.
pub const EVENTS_FILE: &str = "events.jsonl";
pub const PRINTED_FILE: &str = "printed.jsonl";

/// First line of a life.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Header {
    /// [`LOG_VERSION`].
    pub eyas_event_log: u32,
    pub eyas_version: String,
    pub t: Timestamp,
    /// All that the core was made from, so that a replay makes the same one.
    pub config: DispatcherConfig,
    pub cluster: String,
}

/// Any later line.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Line {
    pub t: Timestamp,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum What {
    In(Event),
    Out(Action),
}

/// What one attempt printed. Bytes that are not UTF-8 are replaced.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct PrintedLine {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub stdout: PrintedStream,
    pub stderr: PrintedStream,
}

/// The first and the last part of a stream; in between `total_bytes` less both is missing.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct PrintedStream {
    pub head: String,
    pub tail: String,
    pub total_bytes: u64,
}
