//! What goes into and comes out of the two state machines, [`crate::dispatcher::Dispatcher`] and
//! [`crate::executor::Executor`].
//!
//! Events are past tense, actions imperative. Every action that takes time comes back as an event,
//! also when it fails. The event log writes these types as they stand (see
//! `docs/reference/event-log.md`), so a replay feeds a state machine exactly what it was fed live.

use crate::array::TaskArray;
use crate::collective::{BatchId, CollectiveRecord};
use crate::group::{LinkMessage, MemberLoad, RunLinks};
use crate::home_share::{HomeReport, HomeShare};
use crate::pattern::{Evidence, RunPatterns};
use crate::placement::Reason;
use crate::types::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

// ---------------------------------------------------------------- dispatcher

/// Into the dispatcher.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A submission began; its tasks are collected but nothing starts yet.
    RunOpened {
        run: RunId,
        name: String,
        /// Its files that stay on the nodes are not dropped when nobody will read them any more.
        #[serde(default)]
        keep: bool,
        /// Its tasks are added to this run, which goes on: they share its files that stay on the nodes, and when they
        /// are committed they are that run's. `keep` is then that run's, too.
        #[serde(default)]
        into: Option<RunId>,
    },
    /// One more folded group of tasks of an open run.
    ArrayAdded { run: RunId, array: Arc<TaskArray> },
    /// Its tasks may start as they come; more will be added before it is committed.
    RunStarted { run: RunId },
    /// The submission is complete and journalled: its tasks may start. Where they are added to a run, the driver has
    /// asked [`crate::dispatcher::Dispatcher::why_not_added`] before.
    RunCommitted { run: RunId },
    /// The submission broke off or was refused: nothing of it may start.
    RunAborted { run: RunId },
    /// Read back from the journal after a restart: this task had ended.
    TaskRestored {
        task: TaskId,
        outcome: Outcome,
        /// Digests and sizes of what it made, in the task's order; empty where it is not known.
        #[serde(default)]
        outputs: Vec<(Digest, u64)>,
    },
    /// Read back from the journal after a restart: after its end this task had to run again.
    TaskRevived { task: TaskId },
    /// The journal holds on disk what [`Action::RecordGivenUp`] asked for; or this was read back from it after a restart.
    AttemptGivenUp { task: TaskId, attempt: AttemptNo },
    /// An executor said hello, for the first time or again after its connection broke.
    ExecutorJoined { executor: ExecutorId, offer: Offer },
    /// The connection to an executor broke; it may come back before its lease ends.
    ExecutorSilent { executor: ExecutorId },
    /// The executor is gone for good (it said goodbye, or its process was seen to end).
    ExecutorLost { executor: ExecutorId, reason: String },
    /// The executor takes nothing new and leaves when what it has is finished.
    ExecutorDraining { executor: ExecutorId },
    /// The program of an attempt ended, or the attempt failed before that.
    AttemptEnded { executor: ExecutorId, report: Arc<AttemptReport> },
    /// All declared outputs of an attempt are at home.
    OutputsHome { executor: ExecutorId, task: TaskId, attempt: AttemptNo, result: Result<(), Failure> },
    /// An executor's cache changed; batched, so the catalog is loosely coherent (`Raicu09` §2.1).
    ReplicasChanged { executor: ExecutorId, added: Vec<ReplicaAdded>, dropped: Vec<ObjectId> },
    /// An executor's cache has another size than it offered: its disk has no room for more, or has it again.
    CacheResized { executor: ExecutorId, cache_bytes: u64 },
    /// How far an input that is watched has come ([`AssignedInput::watched`]).
    InputMoved { executor: ExecutorId, moved: InputMoved },
    /// A prefetch did not bring this object, whatever was tried.
    PrefetchFailed { executor: ExecutorId, batch: BatchId, object: ObjectId, kind: TransferErrorKind },
    /// How an executor uses home, where that is limited.
    HomeUsed { executor: ExecutorId, report: HomeReport },
    /// The executor has done what [`Action::RemoveParts`] asked for, as far as home let it.
    PartsRemoved { executor: ExecutorId, tasks: Vec<TaskId> },
    /// Somebody wants these tasks ended: one, or a whole run.
    CancelRequested { run: RunId, task: Option<TaskId> },
    /// Time passed; sent about once a second while nothing else happens.
    Ticked,
    /// A dispatcher process began to give out tasks by this journal: each earlier one, in order, and then this one. Only
    /// what one of them gave out is this dispatcher's.
    Began { incarnation: u64 },
    /// Read back from the journal after a restart: when the run was opened, and when its last task ended, if it has.
    RunRestored { run: RunId, opened: Timestamp, ended: Option<Timestamp> },
    /// The run has ended and the journal says that it is forgotten; read back from the journal, it may not have started.
    RunForgotten { run: RunId },
    /// All parts of a run in parts have ended, the last of them at `at` by this dispatcher's clock. Only the dispatcher that
    /// decides for the group hears it.
    AllPartsEnded { run: RunId, at: Timestamp },
    /// Read back from the journal: so many tasks have been numbered, those of runs that are forgotten among them.
    TasksNumbered { n_tasks: u64 },
    /// The journal of an earlier process has been read back: executors that still have its attempts are
    /// about to come back, so nothing is given out for a moment.
    Recovered,
    /// An open run is a part of one that is spread over a group of dispatchers. Before its tasks.
    RunLinked { run: RunId, links: RunLinks },
    /// The patterns of the whole of which an open run is a part. Before its tasks.
    RunPatterns { run: RunId, patterns: RunPatterns },
    /// Our own connection to another dispatcher of the group is there, or there again: nothing has been said on it.
    MemberConnected { member: MemberId },
    /// It is gone.
    MemberSilent { member: MemberId },
    /// Another dispatcher of the group said this, in this order.
    MemberTold { member: MemberId, messages: Vec<LinkMessage> },
    /// How much another dispatcher of the group has to do.
    MemberLoadChanged { member: MemberId, load: MemberLoad },
}

/// What an executor brings.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Offer {
    /// For people: host name and number.
    pub name: String,
    pub slots: u32,
    pub memory_bytes: u64,
    pub cache_bytes: u64,
    /// What its cache holds already.
    pub held: Vec<Held>,
    /// Attempts it still has from before its connection broke.
    pub attempts: Vec<(TaskId, AttemptNo)>,
    /// The dispatcher process that welcomed it last. The attempts were given out by that one or by an earlier process with
    /// the same journal: their numbers mean nothing to another dispatcher.
    #[serde(default)]
    pub owner: Option<u64>,
}

/// More than any machine has. What goes beyond is a mistake somewhere, and sums of it could not be computed.
const SLOTS_MAX: u32 = 1 << 20;
pub(crate) const MACHINE_BYTES_MAX: u64 = 1 << 60;
pub(crate) const OBJECT_BYTES_MAX: u64 = 1 << 53;

impl Offer {
    /// `Err` names what no executor can have.
    pub fn check(&self) -> Result<(), String> {
        if self.slots > SLOTS_MAX {
            return Err(format!("{} slots", self.slots));
        }
        if let Some(bytes) =
            [self.memory_bytes, self.cache_bytes].into_iter().find(|n| *n > MACHINE_BYTES_MAX)
        {
            return Err(format!("memory or a cache of {bytes} bytes"));
        }
        match self.held.iter().find(|held| held.size_bytes > OBJECT_BYTES_MAX) {
            Some(held) => Err(format!("an object of {} bytes", held.size_bytes)),
            None => Ok(()),
        }
    }
}

/// One object that a (re)joining executor has.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Held {
    pub digest: Digest,
    pub size_bytes: u64,
    /// Where it came from and what home said then, where the executor knows.
    pub origin: Option<(String, HomeVersion)>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct ReplicaAdded {
    pub object: ObjectId,
    pub digest: Digest,
    pub size_bytes: u64,
    /// Present when the bytes (or only the version) were read from home just now.
    pub version: Option<HomeVersion>,
    /// The run of the attempt for which that was read. Home may have changed before a later run began, whose tasks wait at the same
    /// executor.
    #[serde(default)]
    pub run: Option<RunId>,
    /// One attempt read these bytes and nobody else can: it tells which they are, and is no replica.
    #[serde(default)]
    pub private: bool,
}

/// When it is first said how far a watched transfer has come.
pub const WATCH_NS_MIN: u64 = 2_000_000;

/// How far the transfer of a watched input has come. Said after some milliseconds, and again each time that it has gone on for
/// twice as long; of a private input also at its end, of which nothing else tells.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct InputMoved {
    pub target: Target,
    pub object: ObjectId,
    pub source: Source,
    pub moved_bytes: u64,
    /// Of the whole, as far as the executor knows.
    pub size_bytes: u64,
    /// Since the transfer began.
    pub moving_ns: u64,
    /// All of it is here.
    pub is_all: bool,
}

/// What an executor says of an attempt that ended.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct AttemptReport {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub outcome: Outcome,
    pub times: Times,
    pub inputs: Vec<InputReport>,
    pub outputs: Vec<OutputReport>,
    /// Processor time of the program and its children.
    pub cpu_ns: u64,
    pub rss_bytes_max: u64,
}

/// When things happened to an attempt, by the dispatcher's clock as the executor estimates it.
/// Zero where it did not come to that.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Times {
    pub received: Timestamp,
    pub inputs_ready: Timestamp,
    pub started: Timestamp,
    pub exited: Timestamp,
}

/// Where one input came from.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct InputReport {
    pub object: ObjectId,
    pub outcome: CacheOutcome,
    pub size_bytes: u64,
    /// From when the attempt asked for it until it was there; 0 for a local hit.
    pub wait_ns: u64,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct OutputReport {
    /// Position in the task's list of outputs.
    pub output: u32,
    pub digest: Digest,
    pub size_bytes: u64,
}

/// Out of the dispatcher.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Give this attempt to this executor.
    Assign { executor: ExecutorId, assignment: Box<Assignment> },
    /// Give this executor a rerun of a task that is done: it is to make the task's files once more, beside those that there
    /// are. Nobody waits for it. Older logs have it as `replicate_task`.
    #[serde(alias = "replicate_task")]
    RerunTask { executor: ExecutorId, assignment: Box<Assignment> },
    /// End this attempt wherever it is; the executor answers with `AttemptEnded`.
    CancelAttempt { executor: ExecutorId, task: TaskId, attempt: AttemptNo },
    /// Take this attempt back if its program has not begun: another executor has nothing to do. The
    /// executor answers with `AttemptEnded`, or not at all.
    RecallAttempt { executor: ExecutorId, task: TaskId, attempt: AttemptNo },
    /// Get these objects into the cache, in one request to the first source that has them, for tasks to come.
    Prefetch { executor: ExecutorId, batch: BatchId, inputs: Vec<AssignedInput> },
    /// Get these no more, unless an attempt needs them.
    CancelPrefetch { executor: ExecutorId, objects: Vec<ObjectId> },
    /// The tasks of a run were found to have this pattern. For people.
    FoundPattern { run: RunId, evidence: Evidence },
    /// A collective is over. For people.
    EndCollective { record: CollectiveRecord },
    /// These files, which stay on the nodes, are among what the executor held or was making when it joined: say by which
    /// numbers they are called. What it does not hold after all it tells as dropped.
    NameObjects { executor: ExecutorId, objects: Vec<ObjectId> },
    /// Remove these replicas: their bytes are not what the catalog says any more.
    DropReplicas { executor: ExecutorId, objects: Vec<ObjectId> },
    /// What the executor may use of home from now on; where home is limited, the first one comes when it joins.
    ShareHome { executor: ExecutorId, share: HomeShare },
    /// Remove what these attempts, and earlier ones of the same tasks, may have left at home of outputs that were on their
    /// way. The tasks have ended. The executor answers with `PartsRemoved`.
    RemoveParts { executor: ExecutorId, attempts: Vec<(TaskId, AttemptNo)> },
    /// The task reached its last state. Journal it before telling anybody.
    EndTask { task: TaskId, outcome: Outcome },
    /// The task was done and runs again: the last replica of `lost`, which it had made, is gone, and it is
    /// still needed. Journal it like an end.
    ReviveTask { task: TaskId, lost: ObjectId },
    /// This attempt was given up, and may still end well where nobody hears of it. Journal that; when it is on disk, answer
    /// with `AttemptGivenUp`.
    RecordGivenUp { task: TaskId, attempt: AttemptNo },
    /// The submission cannot be accepted; the client is told why.
    RefuseRun { run: RunId, message: String },
    /// The last task of the run ended.
    EndRun { run: RunId },
    /// The journal is to say that this run is forgotten; it has ended.
    ForgetRun { run: RunId },
    /// The lease of a silent executor ended: forget its connection.
    ForgetExecutor { executor: ExecutorId },
    /// Say this to another dispatcher of the group, after what was said before.
    TellMember { member: MemberId, messages: Vec<LinkMessage> },
    /// Have this executor, which has nothing to do here, join another dispatcher of the group.
    SendAway { executor: ExecutorId, member: MemberId },
}

/// One attempt as given to an executor.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Assignment {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub run: RunId,
    pub cpus: u32,
    pub inputs: Vec<AssignedInput>,
    /// Output objects, in the task's order.
    pub outputs: Vec<ObjectId>,
    /// Which of these, by position, stay on the nodes and do not go home; ascending.
    #[serde(default)]
    pub staying: Vec<u32>,
    /// Give the program private copies of its inputs, because an earlier attempt wrote to one.
    pub private_inputs: bool,
    /// An earlier attempt may have begun to bring its outputs home, and may not know that it has been given up.
    #[serde(default)]
    pub repeated: bool,
    /// Run the program while no other attempt has anything on the node's disk, because earlier attempts may have failed for
    /// want of room there.
    #[serde(default)]
    pub alone: bool,
    pub why: Why,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct AssignedInput {
    pub object: ObjectId,
    /// What the dispatcher knows of the bytes, if anybody has read them yet.
    pub known: Option<Known>,
    /// Executors believed to hold it, best first; a hint.
    pub sources: Vec<ExecutorId>,
    /// Ask home whether it changed since an earlier run.
    pub check_home: bool,
    /// Do not cache: read from home for this attempt only.
    pub direct: bool,
    /// Say how it comes along, see [`InputMoved`].
    #[serde(default)]
    pub watched: bool,
    /// It stays on the nodes: home does not have it.
    #[serde(default)]
    pub stays: bool,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Known {
    pub digest: Digest,
    pub size_bytes: u64,
    pub version: HomeVersion,
}

/// The parts of the decision that put an attempt where it is, kept for `eyas explain`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Why {
    /// The policy, or the mode it was in: `max-cache-hit` or `max-compute-util` under `good-cache-compute`.
    pub policy: Cow<'static, str>,
    /// Inputs in the executor's cache then.
    pub n_hits: u32,
    pub n_inputs: u32,
    /// Slots with a task, and all slots, when the decision was taken.
    pub n_slots_active: u32,
    pub n_slots: u32,
    /// Tasks queued then.
    pub n_queued: u64,
    /// The executor's slots were full: its inputs move while another task computes.
    pub ahead: bool,
    /// Under `affinity`: which of its rules.
    #[serde(default)]
    pub reason: Option<Reason>,
}

// ---------------------------------------------------------------- executor

/// Where a transfer reads from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Peer(ExecutorId),
    Home,
}

/// Where a transfer writes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// This node's cache; space is reserved.
    Cache(ObjectId),
    /// A private file of one attempt: input number `input`.
    Private { task: TaskId, attempt: AttemptNo, input: u32 },
}

/// Why a transfer did not happen.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct TransferError {
    pub kind: TransferErrorKind,
    pub message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum TransferErrorKind {
    /// The source does not have it (any more).
    NotHeld,
    /// The source serves too many already; try another or later.
    Busy,
    /// The bytes do not have the recorded digest.
    Corrupt,
    /// Home's version is not the one this run read before.
    Changed,
    /// Home says that it does not exist or may not be read.
    Unavailable,
    /// This node's disk is full.
    NoSpace,
    /// Anything else; another source or another time may work.
    Temporary,
    /// It was stored, and went with another object of the same bytes before this was told.
    Dropped,
    /// The attempt is not wanted any more, or this executor has lost the right to it.
    GivenUp,
    /// This node's executor is out of something that comes back, such as descriptors. It says nothing about the source.
    Shortage,
}

/// What reading an object gave.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Fetched {
    pub digest: Digest,
    pub size_bytes: u64,
    /// Set when the bytes came from home.
    pub version: Option<HomeVersion>,
}

/// What the runner saw of a program.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Exit {
    /// `Ok` when the program ended with status 0.
    pub result: Result<(), Failure>,
    pub started: Timestamp,
    pub exited: Timestamp,
    pub cpu_ns: u64,
    pub rss_bytes_max: u64,
    /// Size of each declared output in the sandbox, `None` where it is missing.
    pub outputs: Vec<Option<u64>>,
    /// Inputs (by position) whose cached bytes the program changed.
    pub inputs_modified: Vec<u32>,
    /// Inputs (by position) whose cached copy, as it lies here now, is not what was stored. Another attempt
    /// may have had the changed one dropped and a fresh one fetched meanwhile.
    pub inputs_damaged: Vec<u32>,
    /// Of a program that failed: what is known of the room on the disk of its sandbox.
    #[serde(default)]
    pub disk: Option<DiskSeen>,
}

/// What is known of the disk of a sandbox while its program ran. Whether the disk was full at some moment cannot be seen
/// afterwards: whoever took the room may have given it back. That it was *not* full can be known, as programs fill a disk by writing.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct DiskSeen {
    /// Bytes that were free when the program began, less a part that does not count.
    pub free_bytes: u64,
    /// There was no room for anything that counts when it had ended.
    pub is_full: bool,
    /// Bytes that the programs of this node have written since it began, itself among them, at most. `None`: nobody counts.
    pub wrote_bytes: Option<u64>,
    /// The program was told that there is no room, by its own words.
    pub is_said: bool,
}

/// Into the executor.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum NodeEvent {
    Assigned {
        assignment: Box<Assignment>,
    },
    CancelRequested {
        task: TaskId,
        attempt: AttemptNo,
    },
    /// Give this attempt back if its program has not begun.
    RecallRequested {
        task: TaskId,
        attempt: AttemptNo,
    },
    DropRequested {
        objects: Vec<ObjectId>,
    },
    /// Get these objects for tasks to come. They replace earlier sources of the same objects.
    PrefetchRequested {
        batch: BatchId,
        inputs: Vec<AssignedInput>,
    },
    /// Nobody but attempts needs these any more.
    PrefetchCancelled {
        objects: Vec<ObjectId>,
    },
    /// Home answered a [`NodeAction::AskHome`].
    HomeAnswered {
        object: ObjectId,
        result: Result<HomeAnswer, TransferError>,
    },
    /// A watched transfer has come so far.
    TransferMoved {
        moved: InputMoved,
    },
    TransferEnded {
        target: Target,
        source: Source,
        result: Result<Fetched, TransferError>,
    },
    ProgramEnded {
        task: TaskId,
        attempt: AttemptNo,
        exit: Exit,
    },
    /// An output was hashed, and moved into the cache if `cached` was asked for.
    OutputStored {
        task: TaskId,
        attempt: AttemptNo,
        output: u32,
        result: Result<Fetched, TransferError>,
    },
    /// An output arrived at home, or cannot.
    OutputLanded {
        task: TaskId,
        attempt: AttemptNo,
        output: u32,
        result: Result<HomeVersion, TransferError>,
    },
    /// Somebody noticed that a cached object's bytes are not what was stored.
    FoundCorrupt {
        object: ObjectId,
    },
    /// The file system under the cache was looked at.
    ///
    /// * `room_bytes`: what the cache has there, complete or arriving, and what is free there, in one figure; 0 where it
    ///   takes no writes.
    /// * `disk_bytes`: its whole size.
    SpaceMeasured {
        room_bytes: u64,
        disk_bytes: u64,
    },
    /// This node may have so many transfers from and to home at once; at least 1. Those that run go on.
    HomeShared {
        streams: u32,
    },
    /// The dispatcher has durably recorded the end of this attempt.
    EndRecorded {
        task: TaskId,
        attempt: AttemptNo,
    },
    Ticked,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct HomeAnswer {
    pub version: HomeVersion,
    /// Home is this node's own disk; the program can read it where it is.
    pub in_place: bool,
}

/// Out of the executor.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum NodeAction {
    /// Ask home for size and version.
    AskHome { object: ObjectId },
    /// Move an object here.
    /// `awaits`: the source may only be about to receive it itself.
    Fetch {
        target: Target,
        object: ObjectId,
        source: Source,
        known: Option<Known>,
        size_bytes: u64,
        #[serde(default)]
        awaits: bool,
        /// Say how it comes along, see [`InputMoved`].
        #[serde(default)]
        watched: bool,
    },
    /// Delete a cached object. Done before any later action.
    Evict { object: ObjectId },
    /// Run the program in a slot. All inputs are there.
    Start { task: TaskId, attempt: AttemptNo, inputs: Vec<Staged>, private_inputs: bool },
    /// End the program and everything it started.
    Kill { task: TaskId, attempt: AttemptNo },
    /// Stop hashing this attempt's outputs and bringing them home, as far as it goes; each still ends by its event.
    Halt { task: TaskId, attempt: AttemptNo },
    /// Hash an output and, where `cache_bytes` is set, move it into the cache as `object`.
    StoreOutput { task: TaskId, attempt: AttemptNo, output: u32, object: ObjectId, cache_bytes: Option<u64> },
    /// Bring an output home, from the cache where `cached` says so, else from the sandbox.
    Land { task: TaskId, attempt: AttemptNo, output: u32, object: ObjectId, cached: bool },
    /// Remove the private file of an input: the disk is full, and the attempt waits once more.
    DropPrivate { task: TaskId, attempt: AttemptNo, input: u32 },
    /// Remove what is left of the attempt on disk.
    CleanUp { task: TaskId, attempt: AttemptNo },
    /// Tell the dispatcher.
    Tell { message: NodeMessage },
}

/// How an input reaches the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Staged {
    Cached(ObjectId),
    /// The private file made for [`Target::Private`].
    Private,
    /// Where it lives at home, which is this node's own disk.
    InPlace(ObjectId),
}

/// What the executor's state machine tells the dispatcher.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum NodeMessage {
    AttemptEnded {
        report: Arc<AttemptReport>,
    },
    OutputsHome {
        task: TaskId,
        attempt: AttemptNo,
        result: Result<(), Failure>,
    },
    ReplicaAdded(ReplicaAdded),
    ReplicaDropped(ObjectId),
    PrefetchFailed {
        batch: BatchId,
        object: ObjectId,
        kind: TransferErrorKind,
    },
    /// The cache holds at most so much from now on: its disk has less room than was asked for, or has it again.
    CacheResized {
        cache_bytes: u64,
    },
    InputMoved(InputMoved),
    /// What attempts of these tasks may have left at home is gone, as far as home let it.
    PartsRemoved {
        tasks: Vec<TaskId>,
    },
}
