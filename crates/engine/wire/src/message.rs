//! Messages of the control plane. Each connection opens with a [`Hello`] and its [`Welcome`]. After that,
//! every frame is a batch: `Vec<ToExecutor>`, `Vec<FromExecutor>`, or a client's request and reply. Messages
//! between dispatchers of a group go one way, as `Vec<FromMember>`; for the other direction there is another
//! connection.
//!
//! The layout is postcard's: adding, removing or reordering anything here needs a new
//! [`crate::frame::PROTOCOL`]; the test in `golden.rs` holds the bytes of each variant of each kind.

use crate::users::{ClusterRights, Principal, UserKey};
use eyas_core::collective::BatchId;
use eyas_core::dispatcher::Upstream;
use eyas_core::event::{AssignedInput, Assignment, LeftFiles, NodeMessage, Offer};
use eyas_core::group::{KnownFiles, LinkMessage, MemberLoad, PartEnd, RunLinks};
use eyas_core::home_share::{HomeReport, HomeShare};
use eyas_core::pattern::RunPatterns;
use eyas_core::provisioning::NodeView;
use eyas_core::provisioning::decision::Decision;
use eyas_core::provisioning::work::Predicted;
use eyas_terms::array::{TaskArray, TaskSpec};
use eyas_terms::needs::Size;
use eyas_terms::needs::{Equipment, Needs};
use eyas_terms::processors::ProcessorUse;
use eyas_terms::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The first frame of the side that connects.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum Hello {
    Executor(ExecutorHello),
    Client {
        name: String,
    },
    /// Another dispatcher of the group.
    Member {
        member: MemberId,
        n_members: u32,
        /// The members' addresses, as far as the sender knows them, including its own.
        addresses: Vec<String>,
    },
    /// A relay: after its welcome both sides speak as in [`crate::relay`].
    Relay {
        /// Where executors reach it, as `host:port`.
        address: String,
    },
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct ExecutorHello {
    pub offer: Offer,
    /// The address where this executor serves its cache: `host:port`. An empty host means the address that
    /// the dispatcher sees.
    pub data_address: String,
    /// Its name on the data plane, chosen at its start; tickets are made out to it.
    pub data_id: u32,
    /// The executor's id before its connection broke, given by the dispatcher process [`Offer::owner`].
    pub known_as: Option<ExecutorId>,
    /// In a group of dispatchers, the member that this executor belongs to: the one that welcomed it last, or
    /// that it was sent to. `None`: it may go to any.
    pub member: Option<MemberId>,
}

/// First frame of the dispatcher.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum Welcome {
    Executor {
        executor: ExecutorId,
        /// The number of this dispatcher process: object numbers of another process mean nothing. Larger than
        /// the numbers of all earlier processes with the same journal.
        incarnation: u64,
        /// The journal that the numbers of tasks are from; its name is the number of its first process.
        journal: u64,
        /// This dispatcher's place in its group. The executor belongs here from now on, and says so in each
        /// hello.
        member: Option<MemberId>,
        now: Timestamp,
        settings: Settings,
    },
    Client {
        incarnation: u64,
        now: Timestamp,
        /// In a group, the addresses of the dispatchers; unknown addresses are empty.
        members: Vec<String>,
    },
    Refused {
        reason: String,
    },
    /// The executor belongs to this dispatcher of the group. An empty address: the sender does not know where
    /// that dispatcher is now.
    Redirected {
        member: MemberId,
        address: String,
    },
    Member {
        addresses: Vec<String>,
        /// The dispatcher's time, which its executors follow: tickets to fetch from them expire by it.
        now: Timestamp,
    },
    /// The executor has attempts that were not given out with this dispatcher's journal. It has to find the
    /// dispatcher that they are from, which may be at this address again later.
    NotMine,
    Relay {
        /// A relay ends itself when no dispatcher has answered for this long, as its executors do.
        lease_ns: u64,
    },
}

/// Settings that an executor gets once.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Settings {
    /// The executor ends itself when no dispatcher has answered for this long.
    pub lease_ns: u64,
    /// A status must be sent at least this often.
    pub heartbeat_ns: u64,
    /// How much is kept of each of a program's two output streams, from its start and from its end.
    pub capture_head_bytes: u32,
    pub capture_tail_bytes: u32,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum ToExecutor {
    Assign(Box<AssignTask>),
    /// Give the attempt back if its program has not begun.
    Recall {
        task: TaskId,
        attempt: AttemptNo,
    },
    Cancel {
        task: TaskId,
        attempt: AttemptNo,
    },
    Drop {
        objects: Vec<ObjectId>,
    },
    /// Fetch these objects into the cache for tasks to come.
    Prefetch {
        batch: BatchId,
        inputs: Vec<AssignedInput>,
        /// The location of each input.
        locations: Vec<String>,
        /// As in [`AssignTask`].
        permits: Vec<Permit>,
        /// The first source may only be about to receive the objects.
        awaits: bool,
    },
    /// Stop fetching these objects, unless an attempt needs them.
    CancelPrefetch {
        objects: Vec<ObjectId>,
    },
    /// Objects that are on the executor, or will be: the dispatcher's numbers, locations and, if known,
    /// digests.
    Named {
        objects: Vec<(ObjectId, String, Option<Digest>)>,
    },
    /// The ends of these attempts are durable; they need not be reported again.
    Recorded {
        ended: Vec<(TaskId, AttemptNo)>,
    },
    /// The tasks of these attempts are not known any more: their ends need not be reported again, and files that they
    /// made for later tasks are not needed.
    Forgotten {
        ended: Vec<(TaskId, AttemptNo)>,
    },
    /// The addresses where executors serve their caches, and their names on the data plane.
    Peers {
        peers: Vec<(ExecutorId, String, u32)>,
    },
    /// This executor's share of home storage.
    Home(HomeShare),
    /// The answer to a status; keeps the lease. An executor without attempts sends its next status within `idle_ns`.
    Beat {
        idle_ns: u64,
    },
    /// End now: finish nothing, keep the cache.
    Shutdown {
        reason: String,
    },
    /// When no work is left and nothing is left to report: say goodbye, and join this dispatcher of the
    /// group.
    Redirect {
        member: MemberId,
        address: String,
    },
    /// Remove what these attempts, and earlier ones of the same tasks, may have left at home, beside the
    /// locations of their outputs.
    RemoveParts {
        attempts: Vec<(TaskId, AttemptNo, Vec<String>)>,
    },
    /// Report what the program of this attempt has printed so far. Answered with `Looked`.
    Look {
        ask: u64,
        task: TaskId,
        attempt: AttemptNo,
    },
    /// Ask home on which hosts these objects lie. Answered with [`NodeMessage::PlacesFound`].
    FindPlaces {
        objects: Vec<(ObjectId, String)>,
    },
    /// Read this object, which lies on the executor's own disk, into its cache. Answered with
    /// [`NodeMessage::ReplicaAdded`] or [`NodeMessage::HomeNotRead`].
    ReadHome {
        object: ObjectId,
        location: String,
        run: RunId,
    },
    /// Measure how long a round trip to each of these executors takes. Answered with [`NodeMessage::PeersProbed`].
    ProbePeers {
        peers: Vec<ExecutorId>,
    },
    /// The running program of this attempt gets this file, too. `Err`: why it may not have it.
    AddInput {
        task: TaskId,
        attempt: AttemptNo,
        location: String,
        input: Result<Box<AssignedInput>, String>,
        /// As in [`AssignTask`].
        permits: Vec<Permit>,
    },
    /// The files that a watched attempt said it has made are outputs of it. `Err`: why they may not be.
    AdmitOutputs {
        task: TaskId,
        attempt: AttemptNo,
        outputs: Result<Vec<ObjectId>, String>,
    },
    /// What the locations of signed URLs leave out. Comes before whatever names such a location.
    Queries(Queries),
    /// What the attempt printed is kept up to byte `upto`, and more may come; `None`: no more of it is kept.
    PrintedKept {
        task: TaskId,
        attempt: AttemptNo,
        upto: Option<u64>,
    },
}

/// Queries of signed URLs, which are secrets: they are sent, and neither written down nor printed. Locations have a digest in their
/// place ([decision 0086](../../../../docs/decisions/0086-names-and-urls-from-outside.md)).
#[derive(Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Queries(pub Vec<String>);

impl std::fmt::Debug for Queries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queries({})", self.0.len())
    }
}

/// A message from one dispatcher of a group to another.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum FromMember {
    /// Messages for the other's state machine.
    Said(Vec<LinkMessage>),
    /// The sender's executors: where they serve their caches, their names on the data plane, and their names
    /// for users.
    Peers(Vec<(ExecutorId, String, u32, String)>),
    Load(MemberLoad),
    /// To the member that opens all runs: these runs are prepared here. Answered when it is decided whether
    /// each is accepted.
    InDoubt {
        runs: Vec<RunId>,
    },
    /// From that member: whether a submission in parts was accepted.
    Decided {
        run: RunId,
        committed: bool,
    },
    /// From that member: have your parts of these runs ended? Answered once with `PartsEnded` and the same number.
    AskEnded {
        number: u64,
        runs: Vec<RunId>,
    },
    /// Those of the runs of which the sender's part has ended, for all that its journal has on the disk.
    PartsEnded {
        number: u64,
        parts: Vec<(RunId, PartEnd)>,
    },
    /// From that member: it has forgotten this run, and so does the receiver.
    Forgotten {
        run: RunId,
    },
    /// From that member, first on each connection once it has forgotten any: the runs that it knows. It has forgotten all others that were accepted and
    /// have a number below `next_run`.
    KnownRuns {
        runs: Vec<RunId>,
        next_run: u32,
    },
    /// From that member: all parts of these runs have ended.
    AllEnded {
        runs: Vec<RunId>,
    },
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct AssignTask {
    pub assignment: Box<Assignment>,
    /// Inputs and outputs are in the same order as in the assignment.
    pub spec: TaskSpec,
    /// For each source of each input, in order: when the permission to fetch there ends, and its proof.
    pub permits: Vec<Permit>,
    /// Whose run it is.
    pub principal: Principal,
    /// Everything that the program prints to standard output is wanted.
    pub prints_whole: bool,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Permit {
    pub expires_unix_ms: u64,
    pub mac: [u8; 32],
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum FromExecutor {
    Node(NodeMessage),
    Status(Box<ExecutorStatus>),
    /// Where home is limited: how this executor uses it.
    Home(HomeReport),
    /// The output of a program.
    Printed(Box<Printed>),
    /// The executor leaves of its own accord; its attempts go to other executors.
    Bye {
        reason: String,
    },
    /// Answer to `Look`, with its `ask`.
    Looked {
        ask: u64,
        /// The program has begun.
        has_begun: bool,
        printed: Box<Printed>,
    },
    /// A part of what a program that has ended printed to standard output. Answered with `PrintedKept`; the attempt's end is
    /// reported after that.
    PrintedPart(PrintedPart),
    /// The executor ends in `within_ns`, for this reason (a phrase after "because"). It is told to end when
    /// nothing is left there.
    Leaving {
        within_ns: u64,
        reason: String,
    },
    /// How busy the executor's processors are, sent when that has changed.
    Processors(ProcessorUse),
}

/// The state of an executor; sent with every heartbeat. Counters grow from the executor's start.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ExecutorStatus {
    /// Programs that run now: task, attempt, and since when.
    pub running: Vec<(TaskId, AttemptNo, Timestamp)>,
    pub n_waiting: u32,
    pub cache_used_bytes: u64,
    pub cache_n_objects: u64,
    /// Of the cache, so much is held in memory, too, and so much may be: less than was asked for where the node has no more.
    pub memory_used_bytes: u64,
    pub memory_bytes: u64,
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_read_bytes: u64,
    pub home_written_bytes: u64,
    /// Processor time of the executor itself, its runners and its programs.
    pub own_cpu_ns: u64,
    pub program_cpu_ns: u64,
    /// Homes that transfers of this node wait for, at most [`HOMES_AWAY_MAX`].
    pub away: Vec<HomeAway>,
}

/// A node names so many homes at most.
pub const HOMES_AWAY_MAX: usize = 8;

/// A home that transfers of a node wait for.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct HomeAway {
    /// As it stands in locations: `http://host:port`, `s3://bucket`, the first two directories of a path.
    pub home: String,
    /// How long it had not answered when this was said.
    pub for_ns: u64,
    /// The error of the last try.
    pub why: String,
}

/// What a node says where a home answers, and gives it nothing of what the node could read before.
pub const MAY_NOT_READ: &str = "this node may not read what it read before, such as";

impl HomeAway {
    /// Whether the home answers, and refuses what the node wants.
    pub fn refuses(&self) -> bool {
        self.why.contains(MAY_NOT_READ)
    }
}

/// A program's output: the first and the last bytes of each stream.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Printed {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub stdout: Captured,
    pub stderr: Captured,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Captured {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
    /// Bytes of everything that was printed, kept or not.
    pub total_bytes: u64,
}

/// A part of what an attempt printed to standard output.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct PrintedPart {
    pub task: TaskId,
    pub attempt: AttemptNo,
    /// Where the part begins.
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// A task, for users who want to know what it printed.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct TaskPrinted {
    pub task: TaskId,
    pub run: RunId,
    pub user_id: String,
    pub state: PrintedState,
    /// Why the task failed, or what it waits for.
    pub reason: Option<String>,
    /// What kind of failure that was, of a task that failed.
    pub failure: Option<FailureKind>,
    /// The output of the task's attempts, including a running one, in that order.
    pub attempts: Vec<Printed>,
}

impl TaskPrinted {
    /// The task failed, for this reason.
    pub fn fail(&mut self, Failure { kind, message }: &Failure) {
        (self.reason, self.failure) = (Some(message.clone()), Some(*kind));
    }

    /// Whether the task failed, and nothing here says why.
    pub fn lacks_failure(&self) -> bool {
        self.state == PrintedState::Failed && self.failure.is_none()
    }
}

/// The state of a task, as far as printing is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub enum PrintedState {
    /// The task waits for other tasks or for an executor.
    #[default]
    Queued,
    /// An executor has it, and its program has not begun.
    Given,
    Running,
    /// The executor that has the task does not answer.
    Silent,
    Done,
    Failed,
    Cancelled,
}

impl PrintedState {
    /// Whether no further output will come.
    pub fn is_over(self) -> bool {
        matches!(self, PrintedState::Done | PrintedState::Failed | PrintedState::Cancelled)
    }
}

/// The tasks of a run whose output is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum WhichTasks {
    /// The tasks that failed.
    Failed,
    /// All tasks, in order, each when it has ended and all tasks before it have ended.
    Ended,
}

/// A client's frame: a number of its choice, and the request.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Request {
    pub number: u64,
    pub body: RequestBody,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum RequestBody {
    /// Begin a submission; answered with `RunOpened`.
    OpenRun {
        name: String,
        keep: Keep,
        /// The tasks are added to a run that goes on. Answered with `RunAccepted` if that was done before.
        into: Option<Addition>,
    },
    /// Not answered unless it is refused: the client streams.
    AddArray {
        run: RunId,
        array: Arc<TaskArray>,
    },
    /// These files of home are wanted on nodes, see [`eyas_core::event::Event::FilesWanted`]. Not answered unless it is refused:
    /// the client streams.
    WantFiles {
        run: RunId,
        files: Arc<Vec<String>>,
        /// Names of nodes; none: all that are there.
        nodes: Vec<String>,
    },
    /// Answered with `RunAccepted` when the submission is durable.
    CommitRun {
        run: RunId,
    },
    /// A whole submission of tasks that have one form, to a dispatcher that is the only one: as `OpenRun`, `AddArray` and `CommitRun`
    /// together. Answered as `CommitRun`, or as `OpenRun` where it was done before.
    SubmitRun {
        name: String,
        keep: Keep,
        into: Option<Addition>,
        array: Arc<TaskArray>,
        /// Whoever listens under this number hears of the tasks' ends as after `FollowEnds`.
        listener: Option<u64>,
    },
    AbortRun {
        run: RunId,
    },
    /// Answered with `Status` once.
    Status,
    /// Answered with `Run` now, whenever something changes (at most every `interval_ns`), and at the run's
    /// end.
    WatchRun {
        run: RunId,
        interval_ns: u64,
    },
    /// Answered with `Cancelled`.
    Cancel {
        run: Option<RunId>,
        task: Option<TaskName>,
    },
    /// Answered with `Explained`.
    Explain {
        run: Option<RunId>,
        task: TaskName,
    },
    /// Answered with `Printed`.
    Logs {
        run: Option<RunId>,
        task: TaskName,
    },
    /// End the dispatcher and its executors. Answered with `ShuttingDown`.
    Shutdown,
    /// From the process that starts and ends nodes, with its settings. Answered with `Demand`.
    Demand {
        provisioner: Provisioner,
    },
    /// Give this executor no new attempts, and end it when it has none left. Answered with `Draining`.
    Drain {
        executor: ExecutorId,
    },
    /// Like `OpenRun`, for a part of a run that another dispatcher of the group has opened. Answered with
    /// `RunOpened`.
    JoinRun {
        run: RunId,
        /// The incarnation of the dispatcher process that opened the run. After that process was killed, the next
        /// one may give the run's number to another submission.
        opened_by: u64,
        name: String,
        keep: Keep,
        into: Option<Addition>,
    },
    /// Asks what this dispatcher knows of the files of tasks that are to be added by the submission `run`, of
    /// which it has a part. Answered with `Consulted`.
    Consult {
        run: RunId,
        array: Arc<TaskArray>,
    },
    /// Asks which tasks here that have not ended make or promise these files. See `Consult`; answered with
    /// `Upstream`.
    Upstream {
        run: RunId,
        locations: Arc<Vec<String>>,
    },
    /// What this part has to know of the other parts; comes before its arrays. Not answered unless it is
    /// refused.
    LinkRun {
        run: RunId,
        links: RunLinks,
        /// Of the whole run.
        patterns: RunPatterns,
    },
    /// This part is complete; the member that opened the run decides whether it runs. Answered with
    /// `RunPrepared` when the part is durable.
    PrepareRun {
        run: RunId,
    },
    /// Asks for the output of tasks of a run, from a position among its tasks on. Answered with `Prints`.
    Prints {
        /// `None`: the newest run.
        run: Option<RunId>,
        which: WhichTasks,
        from: u64,
    },
    /// Asks for a part of everything that an attempt printed to standard output, from byte `at` on. Answered with `PrintedPart`.
    ReadPrinted {
        run: Option<RunId>,
        task: TaskName,
        attempt: AttemptNo,
        at: u64,
        /// Everything before `at` has been read, and nothing of what the task printed need be kept beyond its ends.
        drop: bool,
    },
    /// Forget these runs, which have ended: all of them or none. Answered with `Forgotten` when that is durable.
    Forget {
        runs: Vec<RunId>,
    },
    /// Answered with `Users`.
    Users,
    /// Lets a new user in (`key` given), or changes what a known one may do. Answered with `Users` when that is durable.
    SetUser {
        name: String,
        key: Option<UserKey>,
        rights: Option<ClusterRights>,
        weight: Option<u32>,
    },
    /// Takes a user's key back. Answered with `Users` when that is durable.
    RemoveUser {
        name: String,
    },
    /// What the locations of signed URLs leave out, before arrays with such locations. Answered with `Kept` when it is durable.
    Queries(Queries),
    /// Asks for each task of a run when its end is durable, those that have ended first. Answered with `Prints` again and again; `next`
    /// is `None` in the last answer, when all tasks have ended.
    FollowEnds {
        run: RunId,
    },
    /// Asks the same for each run that is submitted from now on for this listener, by the same user. Answered with `Kept` at once.
    Listen {
        listener: u64,
    },
}

/// What is kept of a run that would not be kept otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Keep {
    /// Files that stay on the nodes, when the last task that reads them has ended.
    pub files: bool,
    /// Everything that its tasks print to standard output, until somebody has read it, and not only its ends.
    pub printed: bool,
}

/// Tasks that are added to a run while it goes on.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Addition {
    pub run: RunId,
    /// Chosen by the client. Tasks that were added with a token are not added again with the same token, so a
    /// client that does not know whether it was heard can repeat its submission.
    pub token: String,
    /// The digest of the tasks; a token with two digests is refused.
    pub digest: Digest,
}

/// The name of a task, as users give it.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum TaskName {
    /// The task's `id` in the task list; in the newest run that has such a task, unless a run is named.
    User(String),
    Number(TaskId),
}

/// The dispatcher's answer; `number` is the request's.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Reply {
    pub number: u64,
    pub body: ReplyBody,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum ReplyBody {
    RunOpened {
        run: RunId,
        /// Of a submission into a run in parts: this part had ended. If all parts had ended, it is too late.
        was_over: bool,
        /// The incarnation of the dispatcher process that answers.
        incarnation: u64,
    },
    /// `run` is the run that the tasks are in now; `again`: they had been accepted before, with the same
    /// token.
    RunAccepted {
        run: RunId,
        n_tasks: u64,
        again: bool,
    },
    Status(Box<ClusterStatus>),
    Run(Box<RunStatus>),
    Cancelled {
        n_tasks: u64,
    },
    Explained(Box<Explained>),
    Printed(Box<TaskPrinted>),
    ShuttingDown,
    Refused {
        reason: String,
    },
    Demand(Box<DemandStatus>),
    Draining,
    RunPrepared {
        run: RunId,
        n_tasks: u64,
    },
    Consulted(Box<KnownFiles>),
    /// For those of the files that such a task makes.
    Upstream(Vec<(String, Upstream)>),
    Prints {
        run: RunId,
        tasks: Vec<TaskPrinted>,
        /// The position to continue from; `None`: these were the last.
        next: Option<u64>,
        /// The task at `next` has not ended, so it is too early to continue.
        is_early: bool,
    },
    /// Bytes from the place that was asked for; none: nothing is kept from there on.
    PrintedPart {
        bytes: Vec<u8>,
    },
    Forgotten {
        runs: Vec<RunId>,
    },
    /// The submission can come to nothing: the dispatcher process that opened it was killed. The client may not
    /// have noticed that yet.
    OpenerGone,
    /// The users whom the one who asks may see, and the cluster's owner with an empty name.
    Users(Vec<UserLine>),
    /// What was sent is kept.
    Kept,
}

/// What a user may do, and what they have of the cluster.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct UserLine {
    pub name: String,
    pub rights: ClusterRights,
    pub weight: u32,
    /// Runs that go on.
    pub n_runs: u64,
    pub n_ready: u64,
    /// Slots for which tasks of the user were given out and have not ended.
    pub n_slots: u64,
    /// Slot-nanoseconds, of which half counts after an hour.
    pub used_slot_ns: u64,
}

/// The provisioner's settings, for users to see.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Provisioner {
    /// As in [`eyas_core::provisioning::NAMES`].
    pub policy: String,
    pub nodes_min: u32,
    pub nodes_max: u32,
    /// What the names of its blocks, and so of its nodes, begin with; a number follows. Other nodes are not counted.
    pub prefix: String,
    /// Nodes that were requested and have not joined.
    pub n_pending: u32,
    /// Where nodes come from elsewhere: blocks that are no nodes yet, or no more; the first of them where they are many.
    pub blocks: Vec<BlockLine>,
    /// What does not work at the moment, in sentences.
    pub troubles: Vec<String>,
    /// Why the provisioner ends now; `None`: it goes on.
    pub ends: Option<String>,
    /// Where nodes come from elsewhere: how often the batch system was asked for something.
    pub calls: Option<Calls>,
    /// From the provisioner: what it has decided since it asked last. For users: the last of its decisions.
    pub decisions: Vec<Decision>,
    /// What a further node is expected to have: parts of nodes in the answer are parts of such a node.
    pub node: Size,
}

/// Commands of a batch system that were run for a cluster, by their purpose.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(default)]
pub struct Calls {
    pub n_submit: u64,
    pub n_list: u64,
    pub n_cancel: u64,
    /// Others, such as questions about the batch system itself when a provider starts.
    pub n_other: u64,
}

impl Calls {
    pub fn total(&self) -> u64 {
        self.n_submit + self.n_list + self.n_cancel + self.n_other
    }

    /// Such as `3 submissions, 7 listings, 1 cancellation`.
    pub fn in_words(&self) -> String {
        let kinds = [
            (self.n_submit, "submission", "submissions"),
            (self.n_list, "listing", "listings"),
            (self.n_cancel, "cancellation", "cancellations"),
            (self.n_other, "other", "others"),
        ];
        let words = |(n, one, many): &(u64, &str, &str)| format!("{n} {}", if *n == 1 { one } else { many });
        let all: Vec<String> = kinds.iter().filter(|(n, ..)| *n > 0).map(words).collect();
        if all.is_empty() { "never".into() } else { all.join(", ") }
    }
}

/// Nodes that are requested together, for people to see.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct BlockLine {
    pub name: String,
    /// As the batch system calls it; empty before its submission.
    pub id: String,
    /// `wanted`, `queued`, `starting` or `ending`.
    pub state: String,
    pub n_nodes: u32,
    /// What the batch system says of that, such as the reason that the block waits for; may be empty.
    pub why: String,
}

/// The data that provisioning decides by, with the dispatcher's time.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct DemandStatus {
    pub now: Timestamp,
    pub n_ready: u64,
    pub n_running: u64,
    pub predicted: Predicted,
    /// All executors, with their names.
    pub nodes: Vec<(NodeView, String)>,
    /// The sizes of these executors, in the same order.
    pub sizes: Vec<Size>,
}

/// The progress of a run. Tasks count as ended when their ends are durable.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct RunStatus {
    pub run: RunId,
    pub name: String,
    pub n_tasks: u64,
    pub n_waiting: u64,
    pub n_ready: u64,
    pub n_reserved: u64,
    pub n_running: u64,
    pub n_landing: u64,
    pub n_done: u64,
    pub n_failed: u64,
    pub n_cancelled: u64,
    /// Bytes that tasks of this run read, by where they came from.
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
    pub opened: Timestamp,
    pub ended: Option<Timestamp>,
    /// The latest failures: user's task id, sentence.
    pub failures: Vec<(String, String)>,
    /// Nodes that take work, if nodes come and go.
    pub n_nodes: Option<u32>,
    /// Nodes that were requested and have not joined.
    pub n_nodes_pending: u32,
    /// Why the first of them waits in a queue, as the batch system says it; may be empty.
    pub pending_why: String,
    /// Why nodes do not come or go, and which homes nodes wait for, in sentences.
    pub troubles: Vec<String>,
    /// The user whose run it is; empty: the cluster's owner's.
    #[serde(default)]
    pub owner: String,
    /// Files that tasks which are done made, and that are no outputs.
    #[serde(default)]
    pub left: LeftFiles,
    /// The files that the run wants on nodes.
    #[serde(default)]
    pub push: Option<Box<PushRecord>>,
}

impl RunStatus {
    /// Tasks that have ended, however they did.
    pub fn n_ended(&self) -> u64 {
        self.n_done + self.n_failed + self.n_cancelled
    }
}

/// How the warning ends that says how many lines the event log lacks by now.
pub const LOG_LINES_LOST: &str = "lines of the event log could not be written";

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ClusterStatus {
    pub cluster: String,
    pub now: Timestamp,
    pub started: Timestamp,
    pub placement: String,
    pub runs: Vec<RunStatus>,
    pub executors: Vec<ExecutorLine>,
    /// The dispatcher's own use: processor time and memory.
    pub own_cpu_ns: u64,
    pub own_rss_bytes: u64,
    /// Problems that users should know of, such as a full disk under the journal.
    pub warnings: Vec<String>,
    /// The process that starts and ends nodes, if there is one.
    pub provisioner: Option<Provisioner>,
    /// Named resources of the whole cluster.
    #[serde(default)]
    pub resources: Vec<ClusterResource>,
}

/// A named resource of the whole cluster, such as a licence.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ClusterResource {
    pub name: String,
    pub n: u32,
    /// How many of it tasks hold now.
    pub n_held: u32,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ExecutorLine {
    pub executor: ExecutorId,
    pub name: String,
    pub slots: u32,
    /// Gpus and named resources that the node has, and what tasks hold of them.
    #[serde(default)]
    pub equipment: Equipment,
    #[serde(default)]
    pub held: Needs,
    pub n_assigned: u32,
    pub cache_bytes: u64,
    pub state: NodeState,
    pub status: ExecutorStatus,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Explained {
    pub task: TaskId,
    pub run: RunId,
    pub user_id: String,
    /// The task's state now.
    pub state: TaskPhase,
    /// The reason why the task waits, if it does.
    pub reason: Option<String>,
    /// The event log's lines about this task, oldest first.
    pub log_lines: Vec<String>,
    /// Names of executors of the present dispatcher process.
    pub executors: Vec<(ExecutorId, String)>,
    /// The dispatcher processes of the log: when each began, and the names of those of its executors that the lines mention. The
    /// numbers of executors begin anew with each process.
    pub lives: Vec<(Timestamp, Vec<(ExecutorId, String)>)>,
    /// The patterns that the task takes part in.
    pub patterns: Vec<String>,
    /// Locations of objects that the lines mention.
    pub objects: Vec<(ObjectId, String)>,
    pub printed: Vec<Printed>,
    pub submitted: Option<Timestamp>,
    pub spec: Option<TaskSpec>,
}
