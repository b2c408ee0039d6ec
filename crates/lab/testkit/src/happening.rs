//! What can happen in a world of faults: messages, work that ends, faults and what clients do.

use crate::home::Content;
use crate::process::{FromNode, ToNode};
use eyas_core::event::*;
use eyas_core::group::split::Part;
use eyas_terms::home_wait::Tries;
use eyas_terms::*;
use eyas_wire::message::{FromMember, ReplyBody, RequestBody};
use std::fmt;

pub type AttemptId = (TaskId, AttemptNo);

/// Work of a node that takes time, and has just ended.
#[derive(Clone, Debug)]
pub enum NodeWork {
    /// A watched fetch is half done.
    Moved {
        moved: InputMoved,
    },
    Ask {
        object: ObjectId,
    },
    /// A file is in memory, or was refused there.
    Hold {
        object: ObjectId,
    },
    /// The driver is to receive the event about bytes that are complete.
    Word {
        digest: Digest,
        event: NodeEvent,
    },
    Fetch {
        target: Target,
        object: ObjectId,
        source: Source,
        known: Option<Known>,
        size_bytes: u64,
        began: Option<Content>,
    },
    /// A request that a busy home has refused before is made once more.
    Again {
        work: Box<NodeWork>,
        tries: Tries,
    },
    /// A program writes the scratch data that it needs for a while.
    Scratch {
        id: AttemptId,
    },
    Program {
        id: AttemptId,
    },
    /// A program that waits behind another one is taken back from its slot, if it has not begun.
    Withdraw {
        id: AttemptId,
    },
    /// The end of a program was held back, because its signal may have been meant for the whole node.
    Held {
        id: AttemptId,
    },
    Store {
        id: AttemptId,
        output: u32,
        object: ObjectId,
        cache_bytes: Option<u64>,
    },
    Land {
        id: AttemptId,
        output: u32,
        object: ObjectId,
        cached: bool,
    },
}

#[derive(Clone, Debug)]
pub enum Fault {
    KillNode(usize),
    Stop(usize),
    Continue(usize),
    Cut(usize),
    /// The relay of this node dies, which cuts all nodes behind it.
    KillRelay(usize),
    KillDispatcher(usize),
    /// The connection from one dispatcher to another breaks.
    CutMember(usize, usize),
    /// The connections of all clients to a dispatcher break.
    CutClients(usize),
    HomeDown,
    HomeUp,
    ChangeHome,
    Corrupt(usize),
    Cancel,
    Drain(usize),
    /// The walltime of this process of a node is over.
    WalltimeEnds(usize, u64),
    /// Something else takes a part of the disk, or gives it back.
    FillDisk(usize),
    FreeDisk(usize),
    /// The same for the disk of a dispatcher's journal.
    FillJournal(usize),
    FreeJournal(usize),
    /// Whoever brings a node is killed, and comes back.
    KillProvider,
    /// A client asks to forget a run. It is no fault, but comes at a random time.
    Forget,
}

/// An event of the world, and when it is handled.
// Few happenings wait at a time, so that a box for each would gain nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Ev {
    Tick,
    /// A dispatcher asked to be woken.
    Wake {
        m: usize,
    },
    NodeTick {
        n: usize,
        epoch: u64,
    },
    StartNode {
        n: usize,
    },
    StartDispatcher {
        m: usize,
    },
    /// Whoever brings a node asks what there is to do.
    AskDemand,
    Connect {
        n: usize,
        epoch: u64,
    },
    /// The node notices that its connection is gone.
    NodeCut {
        n: usize,
        life: u64,
    },
    /// A dispatcher notices that the connection is gone.
    Cut {
        life: u64,
    },
    ToNode {
        n: usize,
        life: u64,
        batch: Vec<ToNode>,
    },
    FromNode {
        life: u64,
        batch: Vec<FromNode>,
    },
    Durable {
        incarnation: u64,
        n: usize,
    },
    Done {
        n: usize,
        epoch: u64,
        work: NodeWork,
    },
    Submit {
        plan: usize,
    },
    /// The client that adds tasks to a run has sent them all, or goes away before that.
    Complete {
        plan: usize,
        run: RunId,
        goes_away: bool,
    },
    /// A dispatcher tries to reach another one.
    LinkTry {
        from: usize,
        to: usize,
    },
    MemberLost {
        from: usize,
        to: usize,
        life: u64,
    },
    ToMember {
        from: usize,
        to: usize,
        life: u64,
        message: FromMember,
    },
    ClientConnect {
        c: u64,
        m: usize,
    },
    ClientCut {
        life: u64,
    },
    FromClient {
        life: u64,
        number: u64,
        body: Asks,
    },
    ToClient {
        life: u64,
        number: u64,
        body: ReplyBody,
    },
    ClientNext {
        c: u64,
        next: Next,
    },
    /// A client has split its submission.
    Split {
        c: u64,
        parts: Parts,
    },
    Fault(Fault),
    FaultsOver,
}

/// What a client does next by itself.
#[derive(Clone, Debug)]
pub enum Next {
    Commit,
    Abort,
    /// The client goes away.
    Leave,
}

/// A request, printed shortly in the trace.
#[derive(Clone)]
pub struct Asks(pub RequestBody);

impl fmt::Debug for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            RequestBody::AddArray { run, array } => write!(f, "AddArray {run} {}", array.expand(0).id),
            RequestBody::Consult { run, array } => write!(f, "Consult {run} {}", array.expand(0).id),
            RequestBody::LinkRun { run, links, .. } => write!(f, "LinkRun {run} {links:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The result of splitting, without its tasks in the trace.
#[derive(Clone)]
pub struct Parts(pub Result<Vec<Part>, String>);

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(parts) => write!(f, "{} parts", parts.len()),
            Err(reason) => write!(f, "{reason}"),
        }
    }
}
