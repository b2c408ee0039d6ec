//! The time of a world, what is to happen in it, and the lines that say what did.

use super::watch::Lines;
use super::{LINES_KEPT, S};
use crate::happening::Ev;
use crate::home::hash;
use eyas_terms::Timestamp;
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// Events to come, ordered by time and then by the order in which they were made.
pub(super) struct Calendar {
    pub now: Timestamp,
    queue: BTreeMap<(u64, u64), Ev>,
    next_seq: u64,
    /// How many events have happened.
    pub n_events: u64,
}

impl Calendar {
    pub fn new() -> Calendar {
        Calendar { now: Timestamp(S), queue: BTreeMap::new(), next_seq: 0, n_events: 0 }
    }

    pub fn add(&mut self, after_ns: u64, ev: Ev) {
        self.queue.insert((self.now.0 + after_ns, self.next_seq), ev);
        self.next_seq += 1;
    }

    /// Takes the next event, and is at its time.
    pub fn next(&mut self) -> Option<Ev> {
        let ((time, _), ev) = self.queue.pop_first()?;
        self.now = Timestamp(time);
        self.n_events += 1;
        Some(ev)
    }

    pub fn to_come(&self) -> impl Iterator<Item = &Ev> {
        self.queue.values()
    }
}

/// What has happened: a hash over all of it, and the last lines.
pub(super) struct Trace {
    pub hash: u64,
    lines: Lines,
}

impl Trace {
    pub fn new(lines: Lines) -> Trace {
        Trace { hash: 0, lines }
    }

    pub fn add(&mut self, line: String) {
        self.hash = hash(self.hash, line.as_bytes());
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}
