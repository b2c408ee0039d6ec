//! The inputs and outputs of the two state machines, [`crate::dispatcher::Dispatcher`] and
//! [`crate::executor::Executor`].
//!
//! Events are past tense, actions imperative. Every action that takes time comes back as an event, also when
//! it fails. The event log writes these types as they are (see `docs/reference/event-log.md`), so a replay
//! feeds a state machine exactly what it was fed live.

use crate::collective::{BatchId, CollectiveRecord};
use crate::group::{LinkMessage, MemberLoad, RunLinks};
use crate::home_share::{HomeReport, HomeShare};
use crate::pattern::{Evidence, RunPatterns};
use crate::placement::Reason;
use crate::provisioning::decision::Decision;
use eyas_terms::array::TaskArray;
use eyas_terms::needs::{Equipment, Needs, Size};
use eyas_terms::processors::ProcessorUse;
use eyas_terms::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

// ---------------------------------------------------------------- dispatcher

/// Inputs of the dispatcher.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A submission began; its tasks are collected but nothing starts yet.
    RunOpened {
        run: RunId,
        name: String,
        /// The run's files that stay on the nodes are kept even when no task will read them any more.
        #[serde(default)]
        keep: bool,
        /// The run, still going on, that the submission's tasks are added to. The tasks share that run's
        /// files that stay on the nodes, and when they are committed they are tasks of that run. `keep` is
        /// then the setting of that run.
        #[serde(default)]
        into: Option<RunId>,
    },
    /// One more folded group of tasks of an open run.
    ArrayAdded { run: RunId, array: Arc<TaskArray> },
    /// An open run wants these files of home on nodes, before any task reads them: an active push. The files of several such
    /// events of a run add up.
    FilesWanted {
        run: RunId,
        files: Vec<String>,
        /// Names of executors; none: all that are there when the push begins.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<String>,
    },
    /// The run's tasks may start as they come: more will be added before the run is committed, or the journal has yet to have its commit
    /// on the disk.
    RunStarted { run: RunId },
    /// The submission is complete and journalled, so its tasks may start. For a submission into a run, the
    /// driver has asked [`crate::dispatcher::Dispatcher::why_not_added`] before.
    RunCommitted { run: RunId },
    /// The submission broke off or was refused, so none of its tasks may start.
    RunAborted { run: RunId },
    /// Read back from the journal after a restart: this task had ended.
    TaskRestored {
        task: TaskId,
        outcome: Outcome,
        /// Digests and sizes of the task's outputs, in the task's order; empty if they are not known.
        #[serde(default)]
        outputs: Vec<(Digest, u64)>,
    },
    /// Read back from the journal after a restart: this task had to run again after its end.
    TaskRevived { task: TaskId },
    /// The record that [`Action::RecordGivenUp`] asked for is on the journal's disk, or was read back from
    /// there after a restart.
    AttemptGivenUp { task: TaskId, attempt: AttemptNo },
    /// An executor said hello, for the first time or again after its connection broke.
    ExecutorJoined { executor: ExecutorId, offer: Offer },
    /// The connection to an executor broke; it may come back before its lease ends.
    ExecutorSilent { executor: ExecutorId },
    /// The executor is gone for good (it said goodbye, or its process was seen to end).
    ExecutorLost { executor: ExecutorId, reason: String },
    /// The executor takes no new attempts and leaves when the attempts that it has are finished.
    ExecutorDraining { executor: ExecutorId },
    /// The executor has announced that it ends in `within_ns`, and why, as a phrase after "because". It takes
    /// no new attempts; those that end in time count.
    ExecutorLeaving { executor: ExecutorId, within_ns: u64, reason: String },
    /// The program of an attempt ended, or the attempt failed before that.
    AttemptEnded { executor: ExecutorId, report: Arc<AttemptReport> },
    /// All declared outputs of an attempt are at home.
    OutputsHome { executor: ExecutorId, task: TaskId, attempt: AttemptNo, result: Result<(), Failure> },
    /// An executor's cache changed; batched, so the catalog is loosely coherent (`Raicu09` §2.1).
    ReplicasChanged { executor: ExecutorId, added: Vec<ReplicaAdded>, dropped: Vec<ObjectId> },
    /// The size of an executor's cache differs from its offer, because its disk has no room for more, or has
    /// room again.
    CacheResized { executor: ExecutorId, cache_bytes: u64 },
    /// Progress of an input that is watched ([`AssignedInput::watched`]).
    InputMoved { executor: ExecutorId, moved: InputMoved },
    /// A prefetch did not bring this object, although all sources were tried.
    PrefetchFailed { executor: ExecutorId, batch: BatchId, object: ObjectId, kind: TransferErrorKind },
    /// The program of a watched attempt has named this file, which is none of its inputs. Answered with [`Action::AddInput`].
    FileOpened { executor: ExecutorId, task: TaskId, attempt: AttemptNo, location: String },
    /// The program of a watched attempt has ended well, and made these files, which are none of its outputs. Answered with
    /// [`Action::AdmitOutputs`].
    FilesMade { executor: ExecutorId, task: TaskId, attempt: AttemptNo, locations: Vec<String> },
    /// How an executor uses home, reported where home's use is limited.
    HomeUsed { executor: ExecutorId, report: HomeReport },
    /// How busy the processors of an executor are, reported when that has changed. For people; nothing is decided by it.
    ProcessorsUsed { executor: ExecutorId, used: ProcessorUse },
    /// The executor has done what [`Action::RemoveParts`] asked for, as far as home let it.
    PartsRemoved { executor: ExecutorId, tasks: Vec<TaskId> },
    /// Where files lie, as their home says; the answer to [`Action::FindPlaces`]. Files of which home says nothing are
    /// left out of `placed`.
    PlacesFound { executor: ExecutorId, asked: Vec<ObjectId>, placed: Vec<Placed> },
    /// The executor could not do what [`Action::ReadHome`] asked for.
    HomeNotRead { executor: ExecutorId, object: ObjectId, error: TransferError },
    /// What [`Action::ProbePeers`] asked for: the shortest round trip to each peer that answered, in nanoseconds.
    PeersProbed { executor: ExecutorId, round_trips: Vec<(ExecutorId, u64)> },
    /// The executor could not make a connection to the cache of this other one.
    PeerUnreachable { executor: ExecutorId, peer: ExecutorId },
    /// Whoever starts and ends nodes has decided this. Nothing follows from it here: executors that come and go
    /// are events of their own.
    NodesDecided { decision: Box<Decision> },
    /// Whoever starts nodes may bring further ones of this size; `None`: nobody brings nodes.
    NodesExpected { node: Option<Box<Size>> },
    /// A user wants this task, or the whole run, to end.
    CancelRequested { run: RunId, task: Option<TaskId> },
    /// Time passed; sent about once a second while there are no other events.
    Ticked,
    /// A dispatcher process began with this journal. There is one such event for each earlier process, in order, and
    /// then one for this process. Only attempts that one of these processes gave out belong to this dispatcher.
    Began {
        incarnation: u64,
        /// It ended before it gave out any task.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gave_nothing: bool,
    },
    /// The record that [`Action::RecordGivesOut`] asked for is on the journal's disk.
    GivesOut,
    /// Read back from the journal after a restart: when the run was opened, and when its last task ended, if it has.
    RunRestored { run: RunId, opened: Timestamp, ended: Option<Timestamp> },
    /// The run has ended, and the journal has recorded that it is forgotten. When this is read back from the
    /// journal, the run may not have started.
    RunForgotten { run: RunId },
    /// All parts of a run in parts have ended, the last of them at `at` by this dispatcher's clock. The
    /// dispatcher that decides for the group has asked the others, who hear it from there at `at`.
    AllPartsEnded { run: RunId, at: Timestamp },
    /// Read back from the journal: the number of tasks that have been numbered, including those of forgotten
    /// runs, and those that an earlier process may have given out before they were recorded.
    TasksNumbered { n_tasks: u64 },
    /// The journal of an earlier process has been read back. Executors that still have its attempts are about
    /// to come back, so for a moment no task is given out.
    Recovered,
    /// An open run is a part of a run that is spread over a group of dispatchers. Comes before the part's
    /// tasks.
    RunLinked { run: RunId, links: RunLinks },
    /// The patterns of the whole run that an open run is a part of. Comes before the part's tasks.
    RunPatterns { run: RunId, patterns: RunPatterns },
    /// An open run belongs to this user, with whom others share the cluster. Comes before its tasks.
    RunOwned { run: RunId, owner: String },
    /// How much of the cluster a user may have, compared with others: a user of weight 2 twice as much as one of weight 1.
    WeightSet { user: String, weight: u32 },
    /// Our own connection to another dispatcher of the group is up, for the first time or again; no message
    /// has been sent on it.
    MemberConnected { member: MemberId },
    /// That connection broke.
    MemberSilent { member: MemberId },
    /// Another dispatcher of the group sent these messages, in this order.
    MemberTold { member: MemberId, messages: Vec<LinkMessage> },
    /// The load of another dispatcher of the group.
    MemberLoadChanged { member: MemberId, load: MemberLoad },
}

/// What an executor offers when it joins.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Offer {
    /// Host name and number, for users.
    pub name: String,
    pub slots: u32,
    pub memory_bytes: u64,
    pub cache_bytes: u64,
    /// So much of its memory holds files of the cache. It is no part of `memory_bytes`, which tasks may have. Older logs lack it.
    #[serde(default)]
    pub cache_memory_bytes: u64,
    /// What its cache already holds.
    pub held: Vec<HeldObject>,
    /// Attempts it still has from before its connection broke.
    pub attempts: Vec<(TaskId, AttemptNo)>,
    /// The dispatcher process that welcomed the executor last. That process, or an earlier one with the same
    /// journal, gave out the attempts. Another dispatcher cannot tell by their numbers which attempts these
    /// are.
    #[serde(default)]
    pub owner: Option<u64>,
    /// How long the executor lives, if its batch system limits that.
    #[serde(default)]
    pub walltime: Option<Walltime>,
    /// Gpus and named resources.
    #[serde(default)]
    pub equipment: Equipment,
    /// Files at home that lie on its machine.
    #[serde(default)]
    pub nearby: Box<Nearby>,
    /// Its cache is one of the stores that exchange objects, see [`crate::eviction::stores`]. Older logs lack it.
    #[serde(default)]
    pub exchanges: bool,
}

/// What an executor says of files at home that lie on its own machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Nearby {
    /// Beginnings of locations. All files below one of them lie on this executor's own disk, where it reads them in
    /// place, and perhaps no other machine can reach them.
    pub own: Vec<String>,
    /// Beginnings of locations whose home can be asked on which hosts a file lies.
    pub told: Vec<String>,
    /// The names and addresses by which such a home may know this executor's machine.
    pub hosts: Vec<String>,
}

impl Nearby {
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.told.is_empty()
    }
}

/// On which hosts a file lies, as its home says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Placed {
    pub object: ObjectId,
    pub size_bytes: u64,
    /// Each host that has a part of the file, and how many bytes of it.
    pub hosts: Vec<(String, u64)>,
}

impl Offer {
    /// What the executors of one machine have in common: the names and addresses of the machine. Where these are not known, each executor
    /// counts as a machine.
    pub fn host(&self) -> String {
        match self.nearby.hosts.is_empty() {
            true => self.name.clone(),
            false => self.nearby.hosts.join(" "),
        }
    }

    pub fn size(&self) -> Size {
        Size::of_node(self.slots, self.memory_bytes, &self.equipment)
    }
}

/// The time of an executor whose batch system ends it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Walltime {
    /// The time of the whole job.
    pub whole_ns: u64,
    /// What is left of it when the offer is made.
    pub left_ns: u64,
}

/// More than any machine has. A larger value is a mistake, and sums of such values could overflow.
const SLOTS_MAX: u32 = 1 << 20;
/// Ten years.
const WALLTIME_NS_MAX: u64 = 10 * 366 * 86_400 * 1_000_000_000;
pub(crate) const MACHINE_BYTES_MAX: u64 = 1 << 60;
pub(crate) const OBJECT_BYTES_MAX: u64 = 1 << 53;

impl Offer {
    /// `Err` names a value that no executor can have.
    pub fn check(&self) -> Result<(), String> {
        if self.slots > SLOTS_MAX {
            return Err(format!("{} slots", self.slots));
        }
        if let Some(bytes) = [self.memory_bytes, self.cache_bytes, self.cache_memory_bytes]
            .into_iter()
            .find(|n| *n > MACHINE_BYTES_MAX)
        {
            return Err(format!("memory or a cache of {bytes} bytes"));
        }
        self.equipment.check()?;
        if let Some(w) = self.walltime.filter(|w| w.whole_ns.max(w.left_ns) > WALLTIME_NS_MAX) {
            return Err(format!("a walltime of {} s", w.whole_ns.max(w.left_ns) / 1_000_000_000));
        }
        match self.held.iter().find(|held| held.size_bytes > OBJECT_BYTES_MAX) {
            Some(held) => Err(format!("an object of {} bytes", held.size_bytes)),
            None => Ok(()),
        }
    }
}

/// One object that a (re)joining executor has.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct HeldObject {
    pub digest: Digest,
    pub size_bytes: u64,
    /// The object's location, and the version that home reported when it was read, if the executor knows
    /// them.
    pub origin: Option<(String, HomeVersion)>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct ReplicaAdded {
    pub object: ObjectId,
    pub digest: Digest,
    pub size_bytes: u64,
    /// Present when the bytes (or only the version) were read from home just now.
    pub version: Option<HomeVersion>,
    /// The run of the attempt for which this was read. Home may have changed before a later run began whose
    /// tasks wait at the same executor.
    #[serde(default)]
    pub run: Option<RunId>,
    /// Only one attempt can read these bytes: the report says which bytes they are, and there is no replica.
    #[serde(default)]
    pub private: bool,
}

/// How long after a watched transfer begins its first progress report is sent.
pub const WATCH_NS_MIN: u64 = 2_000_000;

/// The progress of a watched input's transfer. It is reported after some milliseconds, and again each time
/// the transfer has gone on for twice as long. For a private input it is also reported at the end, because no
/// other message reports that.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct InputMoved {
    pub target: Target,
    pub object: ObjectId,
    pub source: Source,
    pub moved_bytes: u64,
    /// Bytes of the whole object, as far as the executor knows.
    pub size_bytes: u64,
    /// Time since the transfer began.
    pub moving_ns: u64,
    /// All bytes are here.
    pub is_all: bool,
}

/// An executor's report on an attempt that ended.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct AttemptReport {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub outcome: Outcome,
    pub times: Times,
    pub inputs: Vec<InputReport>,
    /// The positions of those inputs that were held in memory when the program began; ascending. Older logs lack it.
    #[serde(default)]
    pub in_memory: Vec<u32>,
    pub outputs: Vec<OutputReport>,
    /// Processor time of the program and its children.
    pub cpu_ns: u64,
    pub rss_bytes_max: u64,
    /// Files that the program made and that are no outputs; they go with the sandbox.
    #[serde(default)]
    pub left: Option<Box<LeftFiles>>,
}

/// Files that programs made and that are no outputs of their tasks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct LeftFiles {
    pub n_files: u64,
    pub n_tasks: u64,
    /// The first few.
    pub names: Vec<String>,
}

impl LeftFiles {
    /// So many names are kept.
    const NAMES_MAX: usize = 3;

    pub fn add(&mut self, other: &LeftFiles) {
        self.n_files += other.n_files;
        self.n_tasks += other.n_tasks;
        for name in other.names.iter() {
            if self.names.len() < LeftFiles::NAMES_MAX && !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
    }
}

/// When things happened to an attempt, by the dispatcher's clock as the executor estimates it. Zero for a
/// step that the attempt did not reach.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Times {
    pub received: Timestamp,
    pub inputs_ready: Timestamp,
    pub started: Timestamp,
    pub exited: Timestamp,
}

impl Times {
    /// How long the program ran, if it was started.
    pub fn run_ns(&self) -> Option<u64> {
        (self.started.0 > 0).then(|| self.exited.since_ns(self.started))
    }
}

/// Where one input came from.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct InputReport {
    pub object: ObjectId,
    pub outcome: CacheOutcome,
    pub size_bytes: u64,
    /// Time from the attempt's request until the input was there; 0 for a local hit.
    pub wait_ns: u64,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct OutputReport {
    /// Position in the task's list of outputs.
    pub output: u32,
    pub digest: Digest,
    pub size_bytes: u64,
    /// What the program gave the file, where the executor knows that. Older logs lack it.
    #[serde(default)]
    pub marks: Option<Marks>,
}

/// Outputs of the dispatcher.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Give this attempt to this executor.
    Assign { executor: ExecutorId, assignment: Box<Assignment> },
    /// Give this executor a rerun of a done task: it is to make the task's files once more, in addition to
    /// the existing ones. No task waits for the rerun. Older logs have this action as `replicate_task`.
    #[serde(alias = "replicate_task")]
    RerunTask { executor: ExecutorId, assignment: Box<Assignment> },
    /// End this attempt wherever it is; the executor answers with `AttemptEnded`.
    CancelAttempt { executor: ExecutorId, task: TaskId, attempt: AttemptNo },
    /// Take this attempt back if its program has not begun, because another executor is idle. The executor
    /// answers with `AttemptEnded`, or not at all.
    RecallAttempt { executor: ExecutorId, task: TaskId, attempt: AttemptNo },
    /// Get these objects into the cache, in one request to the first source that has them, for tasks to come.
    Prefetch {
        executor: ExecutorId,
        batch: BatchId,
        inputs: Vec<AssignedInput>,
        /// The first source may only be about to receive the objects, so it is waited for.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        awaits: bool,
    },
    /// Stop fetching these objects, unless an attempt needs them.
    CancelPrefetch { executor: ExecutorId, objects: Vec<ObjectId> },
    /// The tasks of a run were found to have this pattern; shown to users.
    FoundPattern { run: RunId, evidence: Evidence },
    /// A collective is over; shown to users.
    EndCollective { record: CollectiveRecord },
    /// These files stay on the nodes, and the executor held them or was making them when it joined: tell it
    /// the files' numbers. It reports as dropped what it does not hold after all.
    NameObjects { executor: ExecutorId, objects: Vec<ObjectId> },
    /// Remove these replicas: the catalog no longer wants their bytes.
    DropReplicas { executor: ExecutorId, objects: Vec<ObjectId> },
    /// 2Mark begins a new phase: all marks of objects in this executor's cache end, `None`: all marks, the global ones, too. For the
    /// event log. Older logs lack it.
    BeginPhase { executor: Option<ExecutorId> },
    /// The executor's share of home from now on. The first share comes when the executor joins, also where home is not
    /// limited.
    ShareHome { executor: ExecutorId, share: HomeShare },
    /// Remove what these attempts, and earlier ones of the same tasks, may have left at home while outputs
    /// were on their way. The tasks have ended. The executor answers with `PartsRemoved`.
    RemoveParts { executor: ExecutorId, attempts: Vec<(TaskId, AttemptNo)> },
    /// Ask the home of these files on which hosts they lie. The executor answers with `PlacesFound`.
    FindPlaces { executor: ExecutorId, objects: Vec<ObjectId> },
    /// Read this file, which lies on the executor's own disk, into the executor's cache, so that others can fetch it
    /// from there. Ask home whether it has changed since an earlier run than `run`. The executor answers with a replica,
    /// also if it has one already, or with `HomeNotRead`.
    ReadHome { executor: ExecutorId, object: ObjectId, run: RunId },
    /// Measure how long a round trip to each of these executors takes. The executor answers with `PeersProbed`.
    ProbePeers { executor: ExecutorId, peers: Vec<ExecutorId> },
    /// The running program of this attempt gets this file, too, if there is one. `Err`: why it may not have it, as a sentence.
    AddInput {
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        location: String,
        input: Result<Box<AssignedInput>, String>,
    },
    /// The files that a watched attempt has made are outputs of it, with these objects, after those that it declared. `Err`: why
    /// they may not be, as a sentence.
    AdmitOutputs {
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        outputs: Result<Vec<ObjectId>, String>,
    },
    /// The task reached its last state. Journal it before reporting it to anybody. `by`: the attempt that ended the task, if
    /// one did, and its executor; that executor keeps the attempt until it hears that the end is durable. Older logs lack it.
    EndTask {
        task: TaskId,
        outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<(ExecutorId, AttemptNo)>,
    },
    /// What this executor said of this attempt ends no task: the task is tried again, or somebody else ended it, or the end
    /// was said before. Nothing of it has to be journaled, so the executor may forget the attempt, unless the journal is still
    /// writing that this attempt ended its task. Older logs lack this.
    ForgetAttempt { executor: ExecutorId, task: TaskId, attempt: AttemptNo },
    /// A done task runs again: the last replica of its file `lost` is gone, and the file is still needed.
    /// Journal this like an end.
    ReviveTask { task: TaskId, lost: ObjectId },
    /// This attempt was given up, and may still end well without this dispatcher's knowledge. Journal that;
    /// when the record is on disk, answer with `AttemptGivenUp`.
    RecordGivenUp { task: TaskId, attempt: AttemptNo },
    /// Executors of before have had their time to come back. Journal that this process gives out tasks from now on; when
    /// the record is on disk, answer with `GivesOut`.
    RecordGivesOut,
    /// The submission cannot be accepted; send the reason to the client.
    RefuseRun { run: RunId, message: String },
    /// The push of this run begins; shown to users. It is to bring these objects, which are the files that the run wants, each once
    /// and in their order, to these executors. Older logs lack this.
    BeginPush { run: RunId, executors: Vec<ExecutorId>, objects: Vec<ObjectId> },
    /// The push of this run is over; shown to users.
    EndPush { record: Box<PushRecord> },
    /// The last task of the run ended, and its push if it has one.
    EndRun { run: RunId },
    /// Record in the journal that this run, which has ended, is forgotten.
    ForgetRun { run: RunId },
    /// This executor ends soon, for this reason (a phrase after "because"), and gets nothing more. End it once
    /// [`crate::dispatcher::Dispatcher::may_leave`] says that nothing is left there.
    DrainExecutor { executor: ExecutorId, reason: String },
    /// The lease of a silent executor ended: forget its connection.
    ForgetExecutor { executor: ExecutorId },
    /// Send these messages to another dispatcher of the group, after those that were sent before.
    TellMember { member: MemberId, messages: Vec<LinkMessage> },
    /// Send this executor, which is idle here, to another dispatcher of the group.
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
    /// The positions of those outputs that stay on the nodes and do not go home; ascending.
    #[serde(default)]
    pub staying: Vec<u32>,
    /// Give the program private copies of its inputs, because an earlier attempt wrote to an input.
    pub private_inputs: bool,
    /// An earlier attempt may have begun to bring its outputs home, and may not know that it was given up.
    #[serde(default)]
    pub repeated: bool,
    /// Run the program while no other attempt has anything on the node's disk, because earlier attempts may
    /// have failed for lack of room there.
    #[serde(default)]
    pub alone: bool,
    /// What the attempt needs of the node beside whole cpus and memory.
    #[serde(default)]
    pub needs: Option<Box<Needs>>,
    pub why: Why,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct AssignedInput {
    pub object: ObjectId,
    /// What the dispatcher knows of the bytes, if they have been read before.
    pub known: Option<Known>,
    /// Executors that are believed to hold the object, best first; a hint.
    pub sources: Vec<ExecutorId>,
    /// Ask home whether the object has changed since an earlier run.
    pub check_home: bool,
    /// Do not cache the object: read it from home for this attempt only.
    pub direct: bool,
    /// Report the transfer's progress, see [`InputMoved`].
    #[serde(default)]
    pub watched: bool,
    /// The object stays on the nodes, so it is not at home.
    #[serde(default)]
    pub stays: bool,
    /// How the executor gets objects that are made on the node itself.
    #[serde(default)]
    pub making: Making,
}

/// The part that an input has in the making of an object on the node, see [`eyas_terms::location::MadeLocation`].
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum Making {
    /// None: it is an ordinary input.
    #[default]
    No,
    /// The program does not read it. The next input is made of it, and it is needed only for that.
    Packed,
    /// It is made of the input before it.
    Made,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Known {
    pub digest: Digest,
    pub size_bytes: u64,
    pub version: HomeVersion,
    /// What the task gave the object that made it. `None`: no task of this cluster made these bytes, or the version says it.
    #[serde(default)]
    pub marks: Option<Marks>,
}

/// The parts of the decision that put an attempt where it is, kept for `eyas explain`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Why {
    /// The policy, or the mode it was in: `max-cache-hit` or `max-compute-util` under `good-cache-compute`.
    pub policy: Cow<'static, str>,
    /// Inputs that were in the executor's cache when the decision was taken.
    pub n_hits: u32,
    pub n_inputs: u32,
    /// Slots with a task, and all slots, when the decision was taken.
    pub n_slots_active: u32,
    pub n_slots: u32,
    /// Tasks that were queued when the decision was taken.
    pub n_queued: u64,
    /// The executor's slots were full: the inputs move while another task computes.
    pub ahead: bool,
    /// The rule of the `affinity` policy that decided, if that is the policy.
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
    /// The source does not have the object (any more).
    NotHeld,
    /// The source already serves too many requests; try another source, or try later.
    Busy,
    /// The bytes do not have the recorded digest.
    Corrupt,
    /// Home's version is not the version that this run read before.
    Changed,
    /// Home reports that the object does not exist or may not be read.
    Unavailable,
    /// This node's disk is full.
    NoSpace,
    /// Any other error; another source or another time may work.
    Temporary,
    /// The object was stored, but another object with the same bytes was dropped, and this one with it,
    /// before that was reported.
    Dropped,
    /// The attempt is not wanted any more, or this executor has lost the right to carry it out.
    GivenUp,
    /// This node's executor is out of something that it will have again, such as descriptors. The source is
    /// not to blame.
    Shortage,
    /// The object was made and waits to be taken over, but it is larger than the room that was reserved: it
    /// has this many bytes.
    Larger { bytes: u64 },
    /// The object cannot be made: the packed file is damaged, or the user's transform failed.
    Unmakeable,
    /// Home did not answer, or failed for a reason that may pass; see [`crate::home_wait`].
    HomeAway,
    /// No connection to the executor that was asked could be made.
    Unreachable,
    /// Home answers that it takes no more requests now. So its name is right.
    HomeBusy,
    /// Home does not let this node do that. A driver asks whether others are let in, and reports one of the other kinds.
    Refused,
}

/// The result of reading an object.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Fetched {
    pub digest: Digest,
    pub size_bytes: u64,
    /// Set when the bytes came from home.
    pub version: Option<HomeVersion>,
}

/// What the runner reports of a program.
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
    /// Inputs (by position) whose cached copy, as it is here now, differs from what was stored. Another
    /// attempt may meanwhile have had the changed copy dropped and a fresh one fetched.
    pub inputs_damaged: Vec<u32>,
    /// For a program that failed: what is known of the room on the disk of its sandbox.
    #[serde(default)]
    pub disk: Option<DiskSeen>,
    /// Files that the program made and that are no outputs.
    #[serde(default)]
    pub left: Option<Box<LeftFiles>>,
    /// The outputs that nobody declared, of a watched attempt; their sizes are the last ones of `outputs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<ObjectId>,
}

/// What is known of the disk of a sandbox while its program ran. Nobody can see afterwards whether the disk
/// was full at some moment, because whatever took the room may have given it back. That the disk was *not*
/// full can be known, because programs fill a disk by writing.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct DiskSeen {
    /// Bytes that were free when the program began, less a part that does not count.
    pub free_bytes: u64,
    /// When the program had ended, there was no room worth counting.
    pub is_full: bool,
    /// The most that the programs of this node, including this one, may have written since this program
    /// began, in bytes. `None`: not counted.
    pub wrote_bytes: Option<u64>,
    /// The program's own output says that it found no room.
    pub is_said: bool,
}

/// Inputs of the executor.
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
    /// Fetch these objects for tasks to come. The sources named here replace earlier sources of the same
    /// objects.
    PrefetchRequested {
        batch: BatchId,
        inputs: Vec<AssignedInput>,
        /// The first source may only be about to receive the objects.
        awaits: bool,
    },
    /// Read this object from home into the cache, for other executors, after asking whether it has changed since an
    /// earlier run than `run`.
    ReadRequested {
        object: ObjectId,
        run: RunId,
    },
    /// These objects are needed only by attempts from now on.
    PrefetchCancelled {
        objects: Vec<ObjectId>,
    },
    /// Home answered a [`NodeAction::AskHome`].
    HomeAnswered {
        object: ObjectId,
        result: Result<HomeAnswer, TransferError>,
    },
    /// A watched transfer has made this progress.
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
    /// The program of a watched attempt has named a file that is none of its inputs.
    FileOpened {
        task: TaskId,
        attempt: AttemptNo,
        location: String,
    },
    /// The program of a watched attempt has ended well, and made these files, which are none of its outputs. The end itself
    /// follows when the dispatcher has answered.
    FilesMade {
        task: TaskId,
        attempt: AttemptNo,
        locations: Vec<String>,
    },
    /// The dispatcher says how the running program of this attempt gets one more input.
    InputAdded {
        task: TaskId,
        attempt: AttemptNo,
        location: String,
        input: Result<Box<AssignedInput>, String>,
    },
    /// An output was hashed, and moved into the cache if `cached` was asked for.
    OutputStored {
        task: TaskId,
        attempt: AttemptNo,
        output: u32,
        /// What the program gave the file, where that is known. Older logs lack it.
        #[serde(default)]
        marks: Option<Marks>,
        result: Result<Fetched, TransferError>,
    },
    /// An output arrived at home, or cannot arrive.
    OutputLanded {
        task: TaskId,
        attempt: AttemptNo,
        output: u32,
        result: Result<HomeVersion, TransferError>,
    },
    /// A cached object's bytes were found to differ from what was stored.
    FoundCorrupt {
        object: ObjectId,
    },
    /// The file system under the cache was measured.
    ///
    /// * `room_bytes`: bytes that the cache has there, complete or arriving, plus bytes that are free there;
    ///   0 if the file system takes no writes.
    /// * `disk_bytes`: its whole size.
    SpaceMeasured {
        room_bytes: u64,
        disk_bytes: u64,
    },
    /// The driver has done what [`NodeAction::HoldInMemory`] asked for, or not.
    MemoryAnswered {
        object: ObjectId,
        result: Result<(), NotHeldInMemory>,
    },
    /// So much more memory could be held now without taking it from programs.
    MemoryMeasured {
        room_bytes: u64,
    },
    /// This node may have this many transfers from and to home at once; at least 1. Transfers that run go on.
    HomeShared {
        streams: u32,
    },
    /// The dispatcher has durably recorded the end of this attempt.
    EndRecorded {
        task: TaskId,
        attempt: AttemptNo,
    },
    /// The dispatcher does not know the task of this attempt any more, so no task will read what it made.
    EndForgotten {
        task: TaskId,
        attempt: AttemptNo,
    },
    Ticked,
}

/// Why an object is not held in memory.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum NotHeldInMemory {
    /// The system gives this process no more memory to hold.
    Refused,
    /// It was not wanted any more, is gone from the disk, or is no single file there.
    Gone,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct HomeAnswer {
    pub version: HomeVersion,
    /// Home is this node's own disk, so the program can read the object where it is.
    pub in_place: bool,
}

/// Outputs of the executor.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum NodeAction {
    /// Ask home for size and version.
    /// `reads`: attempts here wait for the object and nobody is known to have its bytes, so it is going to be read from home. A
    /// driver that gets the bytes of a small object with the answer can keep them for that.
    AskHome { object: ObjectId, reads: bool },
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
        /// Report the transfer's progress, see [`InputMoved`].
        #[serde(default)]
        watched: bool,
        /// Make the object of this one, which is in the cache.
        #[serde(default)]
        packed: Option<ObjectId>,
    },
    /// Delete a cached object. Done before any later action.
    Evict { object: ObjectId },
    /// Hold the bytes of this cached object in memory, too. Answered with [`NodeEvent::MemoryAnswered`].
    HoldInMemory { object: ObjectId },
    /// The object is on the disk only from now on. Done before any later object is taken into memory. Where the object is not in
    /// memory yet, its `MemoryAnswered` still comes.
    LeaveMemory { object: ObjectId },
    /// Run the program in a slot. All inputs are there.
    /// `gpus`: the numbers of the node's gpus that the program may use, ascending.
    Start { task: TaskId, attempt: AttemptNo, inputs: Vec<Staged>, private_inputs: bool, gpus: Vec<u32> },
    /// End the program and everything it started.
    Kill { task: TaskId, attempt: AttemptNo },
    /// Stop hashing this attempt's outputs and bringing them home, as far as that is possible; each of these
    /// steps still ends with its event.
    Halt { task: TaskId, attempt: AttemptNo },
    /// Hash an output and, if `cache_bytes` is set, move it into the cache as `object`.
    StoreOutput { task: TaskId, attempt: AttemptNo, output: u32, object: ObjectId, cache_bytes: Option<u64> },
    /// Bring an output home: from the cache if `cached` is set, else from the sandbox.
    Land { task: TaskId, attempt: AttemptNo, output: u32, object: ObjectId, cached: bool },
    /// Remove the private file of an input: the disk is full, and the attempt waits for space again.
    DropPrivate { task: TaskId, attempt: AttemptNo, input: u32 },
    /// A file that the running program of a watched attempt has named is here, as input number `input`, or cannot be had.
    Bring {
        task: TaskId,
        attempt: AttemptNo,
        location: String,
        brought: Result<(u32, Staged), TransferError>,
    },
    /// Remove what is left of the attempt on disk.
    CleanUp { task: TaskId, attempt: AttemptNo },
    /// Send a message to the dispatcher.
    Tell { message: NodeMessage },
}

/// How an input reaches the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Staged {
    Cached(ObjectId),
    /// The private file made for [`Target::Private`].
    Private,
    /// The program does not get it: what is made of it is here.
    Unneeded,
    /// The place where the input is at home, which is this node's own disk.
    InPlace(ObjectId),
}

/// Messages from the executor's state machine to the dispatcher.
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
    /// The cache holds at most this much from now on: its disk has less room than was asked for, or has it
    /// again.
    CacheResized {
        cache_bytes: u64,
    },
    InputMoved(InputMoved),
    /// Where files lie that were asked for, as far as their home says so.
    PlacesFound {
        asked: Vec<ObjectId>,
        placed: Vec<Placed>,
    },
    /// An object that was to be read for other executors cannot be read.
    HomeNotRead {
        object: ObjectId,
        error: TransferError,
    },
    /// The shortest round trip to each peer that answered, in nanoseconds.
    PeersProbed {
        round_trips: Vec<(ExecutorId, u64)>,
    },
    /// What attempts of these tasks may have left at home is removed, as far as home allowed it.
    PartsRemoved {
        tasks: Vec<TaskId>,
    },
    /// No connection to the cache of this executor could be made.
    PeerUnreachable {
        peer: ExecutorId,
    },
    /// See [`Event::FileOpened`].
    FileOpened {
        task: TaskId,
        attempt: AttemptNo,
        location: String,
    },
    /// See [`Event::FilesMade`].
    FilesMade {
        task: TaskId,
        attempt: AttemptNo,
        locations: Vec<String>,
    },
}
