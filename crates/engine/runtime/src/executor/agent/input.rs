//! The agent's inputs: from the connection to the dispatcher, from slot processes, and from threads that work
//! for it.

use super::runner;
use super::{AttemptId, NetError, Writer, net};
use crate::executor::processors::Looks;
use crate::executor::watch::Watched;
use crate::executor::watched_files::{Answer, Copy, Entries, Entry, MadeFile};
use eyas_core::event::{Exit, NodeEvent, Placed, Staged};
use eyas_data::{Digest, Incoming};
use eyas_terms::processors::ProcessorUse;
use eyas_terms::{ExecutorId, ObjectId, TaskId};
use eyas_wire::message::{ToExecutor, Welcome};
use std::sync::mpsc::Sender;
use tokio::sync::mpsc;

/// The sending end of the agent's queue, for everything that runs on a thread or a task of its own.
pub type Inputs = mpsc::UnboundedSender<Input>;

/// What an attempt whose inputs are here starts with.
pub struct Start {
    pub(super) id: AttemptId,
    /// The attempt's number among slot processes: a later attempt with that id is another one.
    pub(super) key: u64,
    pub(super) staged: Vec<Staged>,
    pub(super) has_private_inputs: bool,
    pub(super) gpus: Vec<u32>,
}

pub enum Input {
    /// The processors were looked at.
    ProcessorsSeen {
        looks: Box<Looks>,
        seen: Option<ProcessorUse>,
    },
    /// The bytes that all programs of this node had written when `n_lives` slot processes had been replaced.
    ProgramsWrote {
        bytes: u64,
        n_lives: u64,
    },
    /// There is a connection. The dispatcher has not been greeted on it yet.
    Connected {
        reader: net::FrameReader,
        writer: Writer,
    },
    NotConnected {
        error: NetError,
    },
    Welcomed {
        welcome: Welcome,
        life: u64,
    },
    FromDispatcher {
        batch: Vec<ToExecutor>,
        life: u64,
    },
    Disconnected {
        life: u64,
    },
    Slot {
        index: usize,
        life: u64,
        reports: Vec<runner::SlotReport>,
    },
    SlotGone {
        index: usize,
        life: u64,
    },
    /// A program has ended, and the inputs that it may have written to were read through. `whole`: the inputs
    /// that have the right bytes.
    Looked {
        report: Box<runner::RunReport>,
        whole: Vec<Watched>,
    },
    /// A watched program opens this file below its sandbox, and it is not there.
    FileNamed {
        key: u64,
        name: String,
        reply: Sender<Answer<Copy>>,
    },
    /// A watched program asks about this name below its sandbox, where nothing is.
    EntryNamed {
        key: u64,
        name: String,
        reply: Sender<Answer<Entry>>,
    },
    /// A watched program has opened this directory below its sandbox.
    FolderNamed {
        key: u64,
        name: String,
        reply: Sender<Answer<Entries>>,
    },
    /// A watched program has ended, and made these files; or why they are not to be kept.
    FilesFound {
        key: u64,
        exit: Box<Exit>,
        made: Result<Vec<MadeFile>, String>,
    },
    /// The doubted inputs of an attempt that is to start were read through, see [`Start`].
    LookedBefore {
        start: Box<Start>,
    },
    /// It is known whether the user of an attempt that is to start may have its inputs; if not, why.
    Allowed {
        start: Box<Start>,
        refusal: Option<String>,
    },
    /// A program was ended by a signal a moment ago, and what it did to its inputs is known.
    EndHeld {
        report: Box<runner::RunReport>,
    },
    /// This process ends after its grace period at the latest, for this reason (a phrase after "because").
    Leave {
        reason: String,
    },
    /// Work on a thread of its own is over.
    Event(NodeEvent),
    /// A transfer broke off. The next source need not send the bytes again that have arrived.
    BrokenOff {
        object: ObjectId,
        begun: Incoming,
        event: NodeEvent,
    },
    /// The files that attempts of these tasks had left at home are removed.
    PartsRemoved {
        tasks: Vec<TaskId>,
    },
    /// Home was asked on which hosts these files lie.
    PlacesFound {
        asked: Vec<ObjectId>,
        placed: Vec<Placed>,
    },
    /// The shortest round trip to each peer that answered, in nanoseconds.
    PeersProbed {
        round_trips: Vec<(ExecutorId, u64)>,
    },
    /// A thread that serves the cache, or brings an output home, found the cached bytes changed.
    FoundCorrupt(Digest),
    /// Home did not give these objects together with others.
    AskAlone(Vec<ObjectId>),
    Stop {
        reason: String,
    },
}

/// Reports an event of the node's state machine to the agent. An agent that has ended hears nothing.
pub(super) fn send_event(inputs: &Inputs, event: NodeEvent) {
    let _ = inputs.send(Input::Event(event));
}
