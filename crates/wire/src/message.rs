//! Messages of the control plane. Each connection opens with a [`Hello`] and its [`Welcome`]; after
//! that every frame is a batch: `Vec<ToExecutor>`, `Vec<FromExecutor>`, or a client's request and reply. What one dispatcher
//! of a group says to another goes one way, as `Vec<FromMember>`; the other one has a connection of its own.
//!
//! The layout is postcard's: adding, removing or reordering anything here needs a new
//! [`crate::frame::PROTOCOL`]; a golden test holds the bytes of one message of each kind.

use eyas_core::array::{TaskArray, TaskSpec};
use eyas_core::collective::BatchId;
use eyas_core::dispatcher::Upstream;
use eyas_core::event::{AssignedInput, Assignment, NodeMessage, Offer};
use eyas_core::group::{KnownFiles, LinkMessage, MemberLoad, PartEnd, RunLinks};
use eyas_core::home_share::{HomeReport, HomeShare};
use eyas_core::pattern::RunPatterns;
use eyas_core::provisioning::NodeView;
use eyas_core::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// First frame of whoever connects.
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
        /// Where the members are, as far as the sender knows; its own among them.
        addresses: Vec<String>,
    },
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct ExecutorHello {
    pub offer: Offer,
    /// Where this executor serves its cache: `host:port`. An empty host means: as you see me.
    pub data_address: String,
    /// Its name on the data plane, chosen at its start; tickets are made out to it.
    pub data_id: u32,
    /// What this executor was called before its connection broke, by the dispatcher process [`Offer::owner`].
    pub known_as: Option<ExecutorId>,
    /// Whose it is, in a group of dispatchers: the member that welcomed it last, or that it was sent to. `None`: it may go
    /// anywhere.
    pub member: Option<MemberId>,
}

/// First frame of the dispatcher.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum Welcome {
    Executor {
        executor: ExecutorId,
        /// Names this dispatcher process: object numbers of another one mean nothing. Larger than those of all earlier
        /// processes with the same journal.
        incarnation: u64,
        /// Names the journal that numbers of tasks are from, over all processes: the first of them.
        journal: u64,
        /// Which member of a group this is. The executor belongs here from now on, and says so in each hello.
        member: Option<MemberId>,
        now: Timestamp,
        settings: Settings,
    },
    Client {
        incarnation: u64,
        now: Timestamp,
        /// Where the dispatchers of the group are, where there is one; empty addresses are not known.
        members: Vec<String>,
    },
    Refused {
        reason: String,
    },
    /// The executor belongs to this dispatcher of the group. An empty address: it is not known where that is now.
    Redirected {
        member: MemberId,
        address: String,
    },
    Member {
        addresses: Vec<String>,
        /// By its clock, which its executors go by: permissions to fetch from them are made out by it.
        now: Timestamp,
    },
    /// The executor has attempts that were not given out by this dispatcher's journal. It has to find the dispatcher whose
    /// they are, which may be at this address again later.
    NotMine,
}

/// What an executor is told once.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Settings {
    /// The executor ends itself when no dispatcher answered for so long.
    pub lease_ns: u64,
    /// A status is due at least so often.
    pub heartbeat_ns: u64,
    /// Kept of each of a program's two output streams, from its start and from its end.
    pub capture_head_bytes: u32,
    pub capture_tail_bytes: u32,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum ToExecutor {
    Assign(Box<AssignTask>),
    /// Give it back if its program has not begun.
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
    /// Get these objects into the cache for tasks to come.
    Prefetch {
        batch: BatchId,
        inputs: Vec<AssignedInput>,
        /// Of each input.
        locations: Vec<String>,
        /// As in [`AssignTask`].
        permits: Vec<Permit>,
    },
    /// Get these no more, unless an attempt needs them.
    CancelPrefetch {
        objects: Vec<ObjectId>,
    },
    /// These lie there, or will: the dispatcher's numbers, locations and, where known, digests.
    Named {
        objects: Vec<(ObjectId, String, Option<Digest>)>,
    },
    /// The ends of these attempts are durable; they need not be told again.
    Recorded {
        ended: Vec<(TaskId, AttemptNo)>,
    },
    /// Where executors serve their caches, and their names on the data plane.
    Peers {
        peers: Vec<(ExecutorId, String, u32)>,
    },
    /// This executor's share of home storage.
    Home(HomeShare),
    /// Nothing to say; keeps the lease.
    Beat,
    /// End: finish nothing, keep the cache.
    Shutdown {
        reason: String,
    },
    /// When nothing is left to do or to tell: say goodbye, and join this dispatcher of the group.
    Redirect {
        member: MemberId,
        address: String,
    },
    /// Remove what these attempts, and earlier ones of the same tasks, may have left at home, where their outputs go.
    RemoveParts {
        attempts: Vec<(TaskId, AttemptNo, Vec<String>)>,
    },
    /// What has the program of this attempt printed so far? Answered with `Looked`.
    Look {
        ask: u64,
        task: TaskId,
        attempt: AttemptNo,
    },
}

/// What a dispatcher of a group says to another one.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum FromMember {
    /// For the other's state machine.
    Said(Vec<LinkMessage>),
    /// Its executors, with where they serve their caches, their names on the data plane, and those for people.
    Peers(Vec<(ExecutorId, String, u32, String)>),
    Load(MemberLoad),
    /// To the member that opens all runs: these are prepared here. Answered as soon as it is decided what becomes of them.
    InDoubt {
        runs: Vec<RunId>,
    },
    /// From that member: what became of a submission in parts.
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
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct AssignTask {
    pub assignment: Box<Assignment>,
    /// Inputs and outputs are in the same order as in the assignment.
    pub spec: TaskSpec,
    /// For each source of each input, in order: when the permission to fetch there ends, and its proof.
    pub permits: Vec<Permit>,
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
    /// What a program printed.
    Printed(Box<Printed>),
    /// Leaves of its own accord; whatever it had goes elsewhere.
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
}

/// How an executor is doing; sent with every heartbeat. Counters grow from the executor's start.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ExecutorStatus {
    /// Programs running now: task, attempt, since when.
    pub running: Vec<(TaskId, AttemptNo, Timestamp)>,
    pub n_waiting: u32,
    pub cache_used_bytes: u64,
    pub cache_n_objects: u64,
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_read_bytes: u64,
    pub home_written_bytes: u64,
    /// Processor time of the executor itself, its runners and its programs.
    pub own_cpu_ns: u64,
    pub program_cpu_ns: u64,
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
    /// Everything that was printed, kept or not.
    pub total_bytes: u64,
}

/// A task, for people who want to know what it printed.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct TaskPrinted {
    pub task: TaskId,
    pub run: RunId,
    pub user_id: String,
    pub state: PrintedState,
    /// Why it failed, or what it waits for.
    pub reason: Option<String>,
    /// What its attempts printed, the running one among them, in that order.
    pub attempts: Vec<Printed>,
}

/// How far a task is, as far as printing goes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub enum PrintedState {
    /// It waits for other tasks or for an executor.
    #[default]
    Queued,
    /// An executor has it, and its program has not begun.
    Given,
    Running,
    /// An executor has it that does not answer.
    Silent,
    Done,
    Failed,
    Cancelled,
}

impl PrintedState {
    /// No more will come.
    pub fn is_over(self) -> bool {
        matches!(self, PrintedState::Done | PrintedState::Failed | PrintedState::Cancelled)
    }
}

/// Whose output is wanted of a run.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum WhichTasks {
    /// Those that failed.
    Failed,
    /// All, in order, each when it has ended and all before it have.
    Ended,
}

/// A client's frame: a number of its choice, and what it wants.
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
        /// Files that stay on the nodes are not dropped when the last task that reads them has ended.
        keep: bool,
        /// The tasks are added to a run that goes on. Answered with `RunAccepted` where that was done before.
        into: Option<Addition>,
    },
    /// Not answered unless it is refused: the client streams.
    AddArray {
        run: RunId,
        array: Arc<TaskArray>,
    },
    /// Answered with `RunAccepted` when the submission is durable.
    CommitRun {
        run: RunId,
    },
    AbortRun {
        run: RunId,
    },
    /// Answered with `Status` once.
    Status,
    /// Answered with `Run` now, whenever something changed (at most every `interval_ns`), and at its end.
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
    /// From whoever starts and ends nodes, and what it is about. Answered with `Demand`.
    Demand {
        provisioner: Provisioner,
    },
    /// Give this executor nothing new, and end it when it has nothing left. Answered with `Draining`.
    Drain {
        executor: ExecutorId,
    },
    /// As `OpenRun`, for the part of a run that another dispatcher of the group has opened. Answered with `RunOpened`.
    JoinRun {
        run: RunId,
        name: String,
        keep: bool,
        into: Option<Addition>,
    },
    /// What this dispatcher knows of the files of tasks that are to be added by the submission `run`, which it has a part
    /// of. Answered with `Consulted`.
    Consult {
        run: RunId,
        array: Arc<TaskArray>,
    },
    /// Which tasks here, that have not ended, make these files or promise them. As `Consult`; answered with `Upstream`.
    Upstream {
        run: RunId,
        locations: Arc<Vec<String>>,
    },
    /// What this part has to know of the others; before its arrays. Not answered unless it is refused.
    LinkRun {
        run: RunId,
        links: RunLinks,
        /// Of the whole run.
        patterns: RunPatterns,
    },
    /// This part is complete; whether it runs is for the member to say that opened the run. Answered with `RunPrepared`
    /// when it is durable.
    PrepareRun {
        run: RunId,
    },
    /// What tasks of a run printed, from a position among its tasks on. Answered with `Prints`.
    Prints {
        /// `None`: the newest.
        run: Option<RunId>,
        which: WhichTasks,
        from: u64,
    },
    /// Forget these runs, which have ended: all of them or none. Answered with `Forgotten` when that is durable.
    Forget {
        runs: Vec<RunId>,
    },
}

/// Tasks that are added to a run while it goes on.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Addition {
    pub run: RunId,
    /// Chosen by the client. What was added with a token is not added again with the same one, so a client that does not
    /// know whether it was heard says it again.
    pub token: String,
    /// Of the tasks; one token with two digests is refused.
    pub digest: Digest,
}

/// How people name a task.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum TaskName {
    /// Its `id` in the task list; of the newest run that has one, unless a run is named.
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
        /// Of a submission into a run in parts: this part had ended. Where all had, it is too late.
        was_over: bool,
    },
    /// `run` is the one that the tasks are in now; `again`: they had been accepted before, with the same token.
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
    /// Of those of the files that have one.
    Upstream(Vec<(String, Upstream)>),
    Prints {
        run: RunId,
        tasks: Vec<TaskPrinted>,
        /// Where to go on; `None`: these were the last.
        next: Option<u64>,
        /// The task at `next` has not ended: it is too early to go on.
        is_early: bool,
    },
    Forgotten {
        runs: Vec<RunId>,
    },
}

/// What a provisioner says of itself, for people to see.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Provisioner {
    /// As in [`eyas_core::provisioning::NAMES`].
    pub policy: String,
    pub nodes_min: u32,
    pub nodes_max: u32,
    /// Requested and not joined.
    pub n_pending: u32,
}

/// What provisioning decides from, with the dispatcher's clock.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct DemandStatus {
    pub now: Timestamp,
    pub n_ready: u64,
    pub n_running: u64,
    pub task_ns_mean: Option<u64>,
    /// All executors, with their names.
    pub nodes: Vec<(NodeView, String)>,
}

/// How far a run is. Ended counts are of ends that are durable.
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
    /// Nodes that take work, where nodes come and go.
    pub n_nodes: Option<u32>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ClusterStatus {
    pub cluster: String,
    pub now: Timestamp,
    pub started: Timestamp,
    pub placement: String,
    pub runs: Vec<RunStatus>,
    pub executors: Vec<ExecutorLine>,
    /// What the dispatcher itself used: processor time and memory.
    pub own_cpu_ns: u64,
    pub own_rss_bytes: u64,
    /// Trouble that people should know of, such as a full disk under the journal.
    pub warnings: Vec<String>,
    /// Who starts and ends nodes, where somebody does.
    pub provisioner: Option<Provisioner>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct ExecutorLine {
    pub executor: ExecutorId,
    pub name: String,
    pub slots: u32,
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
    /// The task's state now, in one word of the task's life.
    pub state: String,
    /// Why it waits, if it waits.
    pub reason: Option<String>,
    /// The event log's lines about this task, oldest first.
    pub log_lines: Vec<String>,
    /// Names of executors that the lines mention.
    pub executors: Vec<(ExecutorId, String)>,
    /// The patterns that it takes part in.
    pub patterns: Vec<String>,
    /// Locations of objects that the lines mention.
    pub objects: Vec<(ObjectId, String)>,
    pub printed: Vec<Printed>,
    pub submitted: Option<Timestamp>,
    pub spec: Option<TaskSpec>,
}
