//! The virtual clock, and what is to happen when.

use super::AttemptId;
use super::hardware::LandedOutput;
use crate::agenda::Agenda;
use crate::fluid::FlowId;
use eyas_core::event::{NodeEvent, NodeMessage};
use eyas_terms::{ExecutorId, ObjectId, Timestamp};

pub(super) enum Ev {
    Submit,
    ToDispatcher {
        node: u32,
        messages: Vec<NodeMessage>,
    },
    ToNode {
        node: u32,
        events: Vec<NodeEvent>,
    },
    /// The dispatcher has time again.
    Dispatch,
    HomeAnswered {
        node: u32,
        object: ObjectId,
    },
    Fetched {
        node: u32,
        transfer: u32,
    },
    /// The dispatcher is to hear how far a watched fetch has come.
    Moved {
        node: u32,
        transfer: u32,
        flow: FlowId,
    },
    /// Home has opened the file of a fetch.
    Opened {
        node: u32,
        transfer: u32,
    },
    /// Home has made the scratch directory of a program, which now reads `input_bytes`.
    ScratchMade {
        node: u32,
        attempt: AttemptId,
        input_bytes: u64,
    },
    /// Home has created the file of an output.
    Created {
        node: u32,
        output: LandedOutput,
    },
    /// The source of a fetch is asked again whether it has begun to receive the object.
    Awaited {
        node: u32,
        transfer: u32,
    },
    /// The receiver looks again whether its source, which is still receiving the object itself, has all of it.
    SentOn {
        node: u32,
        transfer: u32,
    },
    /// An executor has measured round trips, and the dispatcher hears of them.
    Probed {
        node: u32,
        round_trips: Vec<(ExecutorId, u64)>,
    },
    Computed {
        node: u32,
        attempt: AttemptId,
    },
    Tick,
    /// The dispatcher asked to hear the time now.
    Wake,
    /// Requested nodes are there.
    Join {
        n_nodes: u32,
    },
    Lose {
        node: u32,
    },
    /// The walltime of a node is over.
    WalltimeEnds {
        node: u32,
    },
}

/// See the module.
pub(super) struct Time {
    pub now: Timestamp,
    agenda: Agenda<Ev>,
}

impl Time {
    pub fn new() -> Time {
        Time { now: Timestamp(0), agenda: Agenda::default() }
    }

    pub fn at(&mut self, at_ns: u64, ev: Ev) {
        self.agenda.put(at_ns, ev);
    }

    pub fn after(&mut self, delay_ns: u64, ev: Ev) {
        self.agenda.put(self.now.0 + delay_ns, ev);
    }

    /// When the next event comes.
    pub fn next_ns(&self) -> Option<u64> {
        self.agenda.next_ns()
    }

    pub fn pop(&mut self) -> Option<Ev> {
        self.agenda.pop().map(|(_, ev)| ev)
    }
}
