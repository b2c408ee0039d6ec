//! The command line. One way to say which cluster (`--join`) and where (`--dir`) for all commands.

use crate::batch;
use crate::equipment::{self, Amount, Gpus};
use crate::replaces::ReplaceArgs;
use crate::workflow::{ConvertArgs, ExportArgs, GraphArgs, WorkflowArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use eyas_core::dispatcher::{CollectiveMode, KeepRuns};
use eyas_core::group::Membership;
use eyas_core::{MemberId, RunId};
use eyas_tasklist::{parse_bytes, parse_duration, parse_rate};
use std::path::PathBuf;

/// Run many programs over many files, close to the data.
#[derive(Parser)]
#[command(
    name = "eyas",
    bin_name = "eyas",
    version,
    max_term_width = 100,
    after_help = "Exit status: 0 all tasks ended well, 1 some did not, \
    2 the input is wrong and nothing was started, 3 no cluster answers, 4 anything else, 130 interrupted."
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// One command over many files, parameters or rows of a table: one task for each
    Map(Box<MapArgs>),
    /// Compare every file of a set with every file of another (All-Pairs), and write the matrix of the results
    Pairs(Box<crate::pairs::PairsArgs>),
    /// Run a list of tasks (JSON Lines) or of commands, or a workflow file, and wait for its end
    Run(RunArgs),
    /// Hand a list of tasks or commands, or a workflow file, to a cluster that is up, and return
    Submit(SubmitArgs),
    /// Wait for the end of what was submitted
    Wait(WaitArgs),
    /// What the cluster is doing
    Status(StatusArgs),
    /// What the cluster is doing, live on the whole screen
    Top(JoinArgs),
    /// What tasks print, also while they run
    Logs(LogsArgs),
    /// A table of the tasks of a run: state, node, time, attempts, why they failed
    Tasks(TasksArgs),
    /// Why a task ran where it did, or why it waits, or why it failed; or why nodes came and went
    Explain(ExplainArgs),
    /// One page (and a JSON file) on what a run did
    Report(ReportArgs),
    /// Write a run as a workflow file, with measured times and sizes
    Export(ExportArgs),
    /// Make a task list, or WfCommons WfFormat, of a workflow file
    Convert(ConvertArgs),
    /// Draw a workflow by its stages
    Graph(GraphArgs),
    /// Feed a run's log to the decision core again and compare what it decides
    Replay(ReplayArgs),
    /// End tasks: some, or all of a run
    Cancel(CancelArgs),
    /// Have a cluster forget runs that have ended, and drop their files from the caches
    Forget(ForgetArgs),
    /// Start a cluster that stays until `eyas down`
    Up(UpArgs),
    /// End the cluster that `eyas up` started
    Down(JoinArgs),
    /// Simulate a workload on a cluster, with the decisions of a real one
    Sim(Box<crate::sim::SimArgs>),
    /// Predict how long work would take on a cluster, and which cluster it needs
    Predict(Box<crate::predict::PredictArgs>),
    /// Measure this machine, its disk, home storage and the network in a minute, and give advice
    Bench(crate::bench::BenchArgs),
    /// Options that are kept in `eyas.toml`
    Config(ConfigArgs),
    /// The part that holds the queue and decides who runs what
    Dispatcher(DispatcherArgs),
    /// The part that runs tasks on one node and keeps its cache
    Executor(ExecutorArgs),
    /// The part of a local cluster that starts and ends nodes
    #[command(hide = true)]
    Provider(ProviderArgs),
}

/// Most nodes of a local cluster.
const NODES_MAX: u32 = 1024;

#[derive(Args, Clone, Default)]
pub struct JoinArgs {
    /// Join file of the cluster [default: the newest cluster of this machine; for commands that give work, the newest
    /// that `eyas up` started]
    #[arg(long, value_name = "FILE", env = "EYAS_JOIN")]
    pub join: Option<PathBuf>,
}

#[derive(Args)]
pub struct SourceArgs {
    /// Directory of a run or of its cluster, up or not [default: the one that was given work last]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Say what is wrong with a file of profiles: unknown keys with the nearest known one, and values that cannot be
    Check {
        /// The file [default: eyas.toml here, and the one in the user's folder of configuration]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// How an embedded or local cluster is made.
#[derive(Args, Clone)]
pub struct ClusterArgs {
    /// Take options that are not given here from that section of eyas.toml, here or in ~/.config/eyas
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Nodes of the local cluster, each a process with its own cache: a number, or a range such as 1..4: then nodes
    /// start when tasks wait, and idle nodes end
    #[arg(long, default_value = "1", value_name = "NODES", value_parser = nodes)]
    pub nodes: Nodes,
    #[command(flatten)]
    pub provision: ProvisionArgs,
    /// Dispatchers of the local cluster, which share the tasks, the names of files and the nodes among them
    #[arg(long, default_value_t = 1, value_name = "DISPATCHERS", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub dispatchers: u32,
    /// Where the cluster keeps its state: journal, event log, caches [default: a new folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Where nodes come from, for commands that can say it.
    #[arg(skip)]
    pub provide: ProvideArgs,
}

/// Where nodes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum ProviderKind {
    /// Processes of this machine
    #[default]
    Local,
    /// Commands of yours: --start, --list and --stop
    Command,
    /// Hosts of --hosts, by ssh
    Ssh,
    /// The nodes of the allocation that this command runs in: Slurm, Grid Engine, PBS
    Allocation,
    /// The nodes of a Ray cluster
    Ray,
    /// Batch systems and clouds, through Parsl
    Slurm,
    GridEngine,
    Pbspro,
    Torque,
    Lsf,
    Htcondor,
    Kubernetes,
    Aws,
    Azure,
    Googlecloud,
}

impl ProviderKind {
    /// Whether a Python process asks for nodes: jobs of a batch system, machines of a cloud, or nodes of Ray.
    pub fn is_batch(self) -> bool {
        use ProviderKind::*;
        !matches!(self, Local | Command | Ssh | Allocation)
    }

    pub fn name(self) -> &'static str {
        match self {
            ProviderKind::Local => "local",
            ProviderKind::Command => "command",
            ProviderKind::Ssh => "ssh",
            ProviderKind::Allocation => "allocation",
            ProviderKind::Ray => eyas_runtime::provider::RAY,
            ProviderKind::Slurm => "slurm",
            ProviderKind::GridEngine => "grid-engine",
            ProviderKind::Pbspro => "pbspro",
            ProviderKind::Torque => "torque",
            ProviderKind::Lsf => "lsf",
            ProviderKind::Htcondor => "htcondor",
            ProviderKind::Kubernetes => "kubernetes",
            ProviderKind::Aws => "aws",
            ProviderKind::Azure => "azure",
            ProviderKind::Googlecloud => "googlecloud",
        }
    }
}

/// How nodes are got.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Nodes from elsewhere")]
pub struct ProvideArgs {
    /// Where nodes come from: local (processes of this machine), ssh (the hosts of --hosts), allocation (the nodes of the
    /// Slurm, Grid Engine or PBS job that this runs in), command (commands of yours), ray (the nodes of a Ray cluster), or
    /// jobs of a batch system: slurm, grid-engine, pbspro, torque, lsf, htcondor, kubernetes, aws, azure, googlecloud
    #[arg(long, value_name = "KIND", default_value = "local", value_parser = provider_kind)]
    pub provider: ProviderKind,
    /// Hosts for --provider ssh, one on a line; --nodes is their number unless given
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// How hosts are reached by ssh, and by an allocation that is not Slurm's [default: ssh]
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// The program `eyas` on the nodes [default: the path of this one]
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Starts a block, which is one node, and prints its id; {name}, {join}, {script} and {walltime} are filled in
    #[arg(long, value_name = "COMMAND")]
    pub start: Option<String>,
    /// Prints a line for each block: its id, its name, and queued, running or ended
    #[arg(long, value_name = "COMMAND")]
    pub list: Option<String>,
    /// Ends a block; {id} and {name} are filled in
    #[arg(long, value_name = "COMMAND")]
    pub stop: Option<String>,
    /// The Ray cluster: auto for the one of this machine or of RAY_ADDRESS, HOST:PORT for one that this machine is a node of, or
    /// ray://HOST:PORT for one elsewhere [default: auto]
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Time between two listings of all blocks [default: 15s; of Ray 2s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub list_every: Option<u64>,
    /// Slurm's partition that jobs go to [default: Slurm's own]
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// The queue of another batch system that jobs go to [default: its own]
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
    /// The account or project that jobs are charged to
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Nodes of each job [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes_per_job: Option<u32>,
    /// Anything else that the batch system's provider in Parsl takes, such as qos=long, or that Ray's actors take, such as
    /// 'resources={"big": 1}' (may be given more than once)
    #[arg(long, value_name = "NAME=VALUE", value_parser = batch::option)]
    pub options: Vec<batch::BatchOption>,
    /// The Python that has Parsl or Ray [default: the python3 beside this program, else the one on PATH]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// How long a job may live; --start of --provider command finds it in {walltime} as HH:MM:SS
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub walltime: Option<u64>,
    /// Where a node keeps its cache; $NAME is what the node has under that name. A later node of yours on that machine
    /// begins with what is cached there [default: its folder for temporary files, and nothing is left there]
    #[arg(long, value_name = "DIR")]
    pub node_dir: Option<String>,
    /// A node's folder that was unused for longer is removed by your next node on that machine; 0: each node removes its
    /// own at its end [default: 7d with --node-dir, else 0]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub scratch_age: Option<u64>,
    /// A line for the shell of each node before its executor starts, such as `module load gcc` (may be given more than once)
    #[arg(long, value_name = "LINE")]
    pub setup: Vec<String>,
    /// Address that the dispatcher listens on [default: loopback; everywhere, if nodes are elsewhere]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
    pub listen: Option<String>,
    /// Address at which nodes reach the dispatcher, if that is not the address it listens on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub advertise: Option<String>,
}

/// Time between two listings, where nothing else is said.
pub fn listed_every(given: Option<u64>) -> std::time::Duration {
    std::time::Duration::from_nanos(given.unwrap_or(15_000_000_000))
}

/// How many nodes there are: at least `min`, at most `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nodes {
    pub min: u32,
    pub max: u32,
}

impl Nodes {
    pub fn fixed(n: u32) -> Nodes {
        Nodes { min: n, max: n }
    }
    pub fn are_fixed(self) -> bool {
        self.min == self.max
    }
}

impl std::fmt::Display for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.min, self.max)
    }
}

/// How nodes come and go.
#[derive(Args, Clone, Default)]
pub struct ProvisionArgs {
    /// How many nodes are asked for when tasks wait: one-at-a-time, additive, exponential, all-at-once, demand, static
    /// [default: exponential]
    #[arg(long, value_name = "POLICY")]
    pub provisioning: Option<String>,
    /// A node ends when it has had no task for this time [default: 30s]
    #[arg(long, alias = "release-idle", value_name = "TIME", value_parser = duration)]
    pub idle_release: Option<u64>,
}

/// How one node behaves.
#[derive(Args, Clone)]
pub struct NodeArgs {
    /// Programs that one node runs at once [default: its processors, shared among the nodes of a local cluster]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Size of each node's cache, which is never exceeded
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = some_bytes)]
    pub cache: u64,
    /// Memory of each node, for tasks that declare how much they need [default: the machine's, shared among local
    /// nodes]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Gpus of each node: a number, or auto for those that the machine or the batch system has [default: none]
    #[arg(long, value_name = "N", value_parser = equipment::gpus)]
    pub gpus: Option<Gpus>,
    /// A resource of each node that tasks may name, such as a board or a licence (may be given more than once)
    #[arg(long = "resource", value_name = "NAME=N", value_parser = equipment::amount)]
    pub resources: Vec<Amount>,
    /// The names of the gpus of a node that shares a machine with others.
    #[arg(long, hide = true, value_delimiter = ',')]
    pub gpu_names: Vec<String>,
    /// Policy that says which file leaves a full cache: random, fifo, lru, lfu, two-mark
    #[arg(long, default_value = "lru", value_name = "POLICY")]
    pub eviction: String,
    /// How long a node's programs may go on after SIGTERM, with which batch systems take nodes back; less than the time until
    /// they send SIGKILL
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub grace: u64,
    /// A directory of inputs on this node's own disk: its files are read where they are, and not copied (may be given
    /// more than once)
    #[arg(long, value_name = "DIR")]
    pub home_local: Vec<PathBuf>,
}

/// What the dispatcher decides by.
#[derive(Args, Clone)]
pub struct PolicyArgs {
    /// Which task goes where: affinity, or a policy of the papers: first-available, max-cache-hit, max-compute-util,
    /// good-cache-compute, first-input, first-input-steal
    #[arg(long, default_value = "affinity", value_name = "POLICY")]
    pub placement: String,
    /// How many ready tasks a policy of the papers looks at
    #[arg(long, default_value_t = 3200, value_name = "TASKS", value_parser = window)]
    pub window: usize,
    /// good-cache-compute lets tasks wait for their data when at least this share of the slots is busy
    #[arg(long, alias = "threshold", default_value_t = 0.8, value_name = "SHARE", value_parser = share)]
    pub utilisation_threshold: f64,
    /// How the files of workflows are moved before the tasks that read them start: auto (the way that is predicted to
    /// be quickest), off, collective-gather or async-gather (all gathers in that way), or task-rerun (a task whose file
    /// many tasks read runs again on their nodes; task-replication is another name for it)
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = collectives)]
    pub collectives: CollectiveMode,
    /// Transfers from and to home storage at the same time, of all nodes together [default: 16 a node]
    #[arg(long, value_name = "STREAMS", value_parser = clap::value_parser!(u32).range(1..))]
    pub home_streams: Option<u32>,
    /// Bytes per second from and to home storage, of all nodes together [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub home_rate: Option<u64>,
    /// A resource of the whole cluster that tasks may name, such as floating licences (may be given more than once)
    #[arg(long = "cluster-resource", value_name = "NAME=N", value_parser = equipment::amount)]
    pub cluster_resources: Vec<Amount>,
    /// Time after which the dispatcher gives up an executor that it does not hear, and after which an executor ends
    /// that does not hear its dispatcher
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = lease)]
    pub lease: u64,
    /// Write no event log; then there are no reports and no explanations
    #[arg(long)]
    pub no_event_log: bool,
    /// Which ended runs a cluster that stays remembers.
    #[arg(skip)]
    pub keep_runs: Option<KeepRuns>,
}

/// Of a cluster that stays.
#[derive(Args, Clone)]
pub struct KeepArgs {
    /// Which ended runs the cluster remembers: the last ones by number (20), by age (30d), or by both (20,30d); `all`
    /// remembers every run. A forgotten run can still be reported for a while, until the event log is cut [default: 100]
    #[arg(long, value_name = "RUNS|TIME", value_parser = kept_runs)]
    pub keep_runs: Option<KeepRuns>,
}

impl KeepArgs {
    /// Which ended runs the cluster keeps, with one dispatcher or with several. `None`: all.
    pub fn rule(&self) -> Option<KeepRuns> {
        let all = KeepRuns::default();
        let by_default = KeepRuns { n_runs: Some(KEPT_RUNS), ..all };
        Some(self.keep_runs.unwrap_or(by_default)).filter(|rule| *rule != all)
    }
}

/// Ended runs that are remembered where nothing else is said.
const KEPT_RUNS: u32 = 100;

/// What tasks of a map have in common.
#[derive(Args)]
pub struct MapArgs {
    /// Files, URLs or quoted patterns: each file makes one task. `-` reads names from standard input. Each file after
    /// `:::` is combined with each file before it; files after `:::+` are paired with the files before it, in their
    /// order
    #[arg(value_name = "FILES")]
    pub paths: Vec<String>,
    /// A parameter and its values: A,B,C or numbers A..B. Each value makes a task, in combination with all files and
    /// other parameters; {NAME} in the command is the value (may be given more than once)
    #[arg(long = "param", value_name = "NAME=VALUES", value_parser = parameter)]
    pub params: Vec<Parameter>,
    /// A table with a header: each row makes one task, and the names of its columns are holes in the command, such as
    /// {sample}
    #[arg(long, value_name = "FILE", conflicts_with = "tsv")]
    pub csv: Option<PathBuf>,
    /// The same, with tabs between columns
    #[arg(long, value_name = "FILE")]
    pub tsv: Option<PathBuf>,
    /// Columns of the table that name files, which become inputs
    #[arg(long = "files", value_name = "COLUMN,...", value_delimiter = ',')]
    pub file_columns: Vec<String>,
    /// One task for each number A..B instead of files
    #[arg(long, value_name = "A..B", value_parser = range)]
    pub range: Option<std::ops::Range<u64>>,
    /// Where the output goes: a path or URL with {stem}, {name}, {index}, {//}, ... (may be given more than once)
    #[arg(long, value_name = "TEMPLATE")]
    pub out: Vec<String>,
    /// A further input of every task, such as the script that is run
    #[arg(long, value_name = "FILE")]
    pub with: Vec<String>,
    /// Show what each task prints when it has ended, in the order of the tasks [default: where no output is declared]
    #[arg(long, overrides_with = "no_print")]
    pub print: bool,
    /// Do not show what tasks print
    #[arg(long)]
    pub no_print: bool,
    /// Names on standard input end in NUL bytes
    #[arg(short = '0', long)]
    pub null: bool,
    /// Hand the command to the shell
    #[arg(long)]
    pub shell: bool,
    /// Slots that a task holds while it runs; with 0.5, two tasks share a slot
    #[arg(long, default_value = "1", value_name = "CPUS", value_parser = equipment::parts)]
    pub cpus: u64,
    /// Gpus that a task holds while it runs; with 0.25, four tasks share a gpu [default: none]
    #[arg(long = "task-gpus", value_name = "GPUS", value_parser = equipment::parts)]
    pub task_gpus: Option<u64>,
    /// A named resource that a task holds while it runs (may be given more than once)
    #[arg(long = "task-resource", value_name = "NAME=N", value_parser = equipment::amount)]
    pub task_resources: Vec<Amount>,
    /// Memory that a task may use; it is ended when it uses more [default: no limit]
    #[arg(long = "task-memory", value_name = "BYTES", value_parser = bytes)]
    pub task_memory: Option<u64>,
    /// Time after which a task is ended, such as 90s or 1h30m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub walltime: Option<u64>,
    /// Further attempts after a failure
    #[arg(long, default_value_t = 0)]
    pub retries: u32,
    /// Tasks with a larger number start first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    pub priority: i32,
    /// Groups tasks in reports
    #[arg(long, default_value = "")]
    pub label: String,
    #[command(flatten)]
    pub replace: ReplaceArgs,
    #[command(flatten)]
    pub resume: ResumeArgs,
    /// Print how the run ended as JSON on standard output, and nothing else there; for programs
    #[arg(long, conflicts_with_all = ["print", "dry_run", "to_list"])]
    pub json: bool,
    /// Write the tasks that would run into this file, for `eyas run FILE`, and start nothing; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub to_list: Option<PathBuf>,
    /// Join file of a cluster that is up [default: a cluster of its own, for this run]
    #[arg(long, value_name = "FILE", env = "EYAS_JOIN")]
    pub join: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The command, with {in} {out} {stem} {name} {index}, {} {/} {.} {/.} {//} {2} {NAME}, ...
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Args)]
pub struct RunArgs {
    /// A task list, or `-` for standard input; a list of commands (.txt), each a line for the shell; or a workflow: WfCommons WfFormat, Pegasus YAML or DAX, Makeflow
    #[arg(value_name = "TASKS")]
    pub tasks: PathBuf,
    #[command(flatten)]
    pub files: WorkflowArgs,
    #[command(flatten)]
    pub replace: ReplaceArgs,
    /// Join file of a cluster that is up [default: a cluster of its own, for this run]
    #[arg(long, value_name = "FILE", env = "EYAS_JOIN")]
    pub join: Option<PathBuf>,
    /// Print how the run ended as JSON on standard output, and nothing else there; for programs
    #[arg(long, conflicts_with = "dry_run")]
    pub json: bool,
    /// Do not drop files that stay on the nodes (`run:`) when the last task that reads them has ended
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub resume: ResumeArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
}

/// What earlier runs made is not made again.
#[derive(Args)]
pub struct ResumeArgs {
    /// Run only the tasks that an earlier run has not done, or whose inputs, command or environment have changed since
    /// then, as their digests say; DIR is that run's folder or a cluster's [default: the cluster's with --join, else
    /// that of the last run of this file, or of a map with this command here]
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub resume: Option<Option<PathBuf>>,
    /// Print the commands that would run, and why they would, and start nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct SubmitArgs {
    /// A task list, or `-` for standard input; a list of commands (.txt), each a line for the shell; or a workflow: WfCommons WfFormat, Pegasus YAML or DAX, Makeflow
    #[arg(value_name = "TASKS")]
    pub tasks: PathBuf,
    /// Print the run's number as JSON on standard output, for programs
    #[arg(long, conflicts_with = "dry_run")]
    pub json: bool,
    /// Do not drop files that stay on the nodes (`run:`) when the last task that reads them has ended
    #[arg(long)]
    pub keep: bool,
    /// Add the tasks to this run, which has not ended. They may read its `run:` files, and the run ends when they have
    /// ended, too. `new`: a run of its own [default: within a task that may add tasks, its run; else a run of its own]
    #[arg(long, value_name = "RUN", env = "EYAS_RUN", hide_env_values = true)]
    pub into: Option<Into>,
    /// With --into, a name for these tasks: under one name, tasks are added only once [default: within a task, a digest
    /// of the list]
    #[arg(long, value_name = "NAME")]
    pub token: Option<String>,
    #[command(flatten)]
    pub files: WorkflowArgs,
    #[command(flatten)]
    pub replace: ReplaceArgs,
    #[command(flatten)]
    pub resume: ResumeArgs,
    #[command(flatten)]
    pub join: JoinArgs,
}

/// The run that tasks are added to; `None`: a new one.
#[derive(Clone, Copy, Debug)]
pub struct Into(pub Option<RunId>);

impl std::str::FromStr for Into {
    type Err = String;
    fn from_str(text: &str) -> Result<Into, String> {
        match text.parse::<u32>() {
            Ok(run) => Ok(Into(Some(RunId(run)))),
            Err(_) if text == "new" => Ok(Into(None)),
            Err(_) => Err("write the number of a run, or `new`".into()),
        }
    }
}

#[derive(Args)]
pub struct WaitArgs {
    /// Print how the runs ended as JSON on standard output, and nothing else there; for programs
    #[arg(long)]
    pub json: bool,
    /// The run to wait for [default: all]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Args)]
pub struct StatusArgs {
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Show each cluster on this machine: those of `eyas up`, and those of `eyas run` and `eyas map` while they run
    #[arg(long, conflicts_with = "join")]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Args)]
pub struct TaskArgs {
    /// The task's id, or #N for its number
    #[arg(value_name = "TASK")]
    pub task: String,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// The run it belongs to [default: the newest that has such a task]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub of: SourceArgs,
}

#[derive(Args)]
pub struct ExplainArgs {
    /// The task's id, or #N for its number
    #[arg(value_name = "TASK", required_unless_present = "nodes")]
    pub task: Option<String>,
    /// Why nodes were requested and released, with the queue and the predicted work at each decision
    #[arg(long, conflicts_with_all = ["task", "run"])]
    pub nodes: bool,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// The run it belongs to [default: the newest that has such a task]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub of: SourceArgs,
}

#[derive(Args)]
pub struct TasksArgs {
    /// Only those that failed
    #[arg(long, conflicts_with = "running")]
    pub failed: bool,
    /// Only those whose program runs now
    #[arg(long)]
    pub running: bool,
    /// Only the N whose program ran longest, the longest first
    #[arg(long, value_name = "N")]
    pub slowest: Option<usize>,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// As lines with tabs between the columns, for programs and spreadsheets
    #[arg(long, conflicts_with = "json")]
    pub tsv: bool,
    /// The run that is meant [default: the newest]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub of: SourceArgs,
}

#[derive(Args)]
pub struct LogsArgs {
    /// The task's id, or #N for its number
    #[arg(value_name = "TASK", required_unless_present = "failed")]
    pub task: Option<String>,
    /// Go on until the task has ended
    #[arg(short, long, conflicts_with = "failed")]
    pub follow: bool,
    /// What each failed task printed, under a heading
    #[arg(long, conflicts_with = "task")]
    pub failed: bool,
    /// The run that is meant [default: the newest that has such a task; with --failed the newest]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub of: SourceArgs,
}

#[derive(Args)]
pub struct ReportArgs {
    /// Directory of the run or of its cluster [default: the one that was given work last]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where the page goes; the JSON file beside it has the same name
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Also draw figures 17 to 28 of the data diffusion paper from the log, as SVG files into this folder (needs
    /// matplotlib)
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
    /// Directory of another run of the same tasks, to set side by side
    #[arg(long, value_name = "DIR")]
    pub compare: Option<PathBuf>,
    /// The run that the page is about [default: the newest]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// All runs of the log together
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Args)]
pub struct ReplayArgs {
    /// Directory of the run [default: the last one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Args)]
pub struct CancelArgs {
    /// Task ids, or #N for task numbers
    #[arg(value_name = "TASK", required_unless_present_any = ["run", "all"])]
    pub tasks: Vec<String>,
    /// All tasks of this run that have not ended
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// All tasks that have not ended
    #[arg(long, conflicts_with_all = ["run", "tasks"])]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Args)]
pub struct ForgetArgs {
    /// Numbers of runs, as `eyas status` shows them
    #[arg(value_name = "RUN", required_unless_present = "all")]
    pub runs: Vec<u32>,
    /// All runs that have ended
    #[arg(long, conflicts_with = "runs")]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
}

#[derive(Args)]
pub struct DispatcherArgs {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT", value_parser = host_port)]
    pub listen: String,
    /// Address that others are told, if it is not the one listened on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub advertise: Option<String>,
    /// Journal, event log and join file
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// It is the K-th of N dispatchers which share one cluster, such as 2/3
    #[arg(long, value_name = "K/N", value_parser = member)]
    pub member: Option<Membership>,
    /// Join file of another dispatcher of the group; all but the first one started need it
    #[arg(long, value_name = "FILE", requires = "member")]
    pub group: Option<PathBuf>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

#[derive(Args)]
pub struct ExecutorArgs {
    #[command(flatten)]
    pub join: JoinArgs,
    /// Cache and sandboxes, on a disk of this node [default: a folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// What people call it [default: the host's name]
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub node: NodeArgs,
    /// Address to serve the cache on [default: any, or loopback when the dispatcher is on loopback]
    #[arg(long, value_name = "HOST:PORT")]
    pub data_listen: Option<String>,
    /// tls: encrypted; signed: tickets and digests only, for a trusted network [default: signed on loopback, else tls]
    #[arg(long, value_name = "HOW", value_parser = ["tls", "signed"])]
    pub data_plane: Option<String>,
    /// Remove the directory at the end
    #[arg(long, requires = "dir", conflicts_with = "scratch")]
    pub remove_dir: bool,
    /// A folder of folders, on a disk of this node: one that an earlier executor of yours has left there is used again, with
    /// its cache, or a new one is made; --dir becomes a link to it
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Folders there that were unused for longer are removed; 0: none is used again, and this one is removed at the end
    #[arg(long, value_name = "TIME", requires = "scratch", default_value = "7d", value_parser = duration)]
    pub scratch_age: u64,
    /// Only look around, for `eyas provider check`
    #[arg(long, hide = true)]
    pub probe: bool,
    /// How long the batch system lets this executor live, from its start on; no task is begun that would not end in time
    /// [default: what Slurm says in the job's environment]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub walltime: Option<u64>,
    /// When that time ends, in seconds since 1970 [default: after --walltime]
    #[arg(long, value_name = "SECONDS", requires = "walltime")]
    pub walltime_end: Option<u64>,
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

#[derive(Subcommand)]
pub enum ProviderVerb {
    /// Show what would be submitted for nodes, submit one probe, and say in words what is wrong with it
    Check(ProviderCheckArgs),
}

#[derive(Args)]
pub struct ProviderCheckArgs {
    /// Take options that are not given here from that section of eyas.toml, here or in ~/.config/eyas
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How long the probe may wait in the queue
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration)]
    pub wait: u64,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ProviderArgs {
    #[command(subcommand)]
    pub verb: Option<ProviderVerb>,
    #[command(flatten)]
    pub join: JoinArgs,
    /// The nodes' folders are made in it
    #[arg(long, value_name = "DIR", required = true)]
    pub dir: Option<PathBuf>,
    #[arg(long, value_parser = nodes, required = true)]
    pub nodes: Option<Nodes>,
    #[command(flatten)]
    pub provision: ProvisionArgs,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
    /// How long a dispatcher that does not answer is waited for, where nodes are elsewhere
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub lease: Option<u64>,
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

fn nodes(text: &str) -> Result<Nodes, String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= NODES_MAX);
    let nodes = match text.split_once("..") {
        Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| Nodes { min, max }),
        None => number(text).map(Nodes::fixed),
    };
    match nodes {
        Some(Nodes { max: 0, .. }) => Err("there must be at least 1 node".into()),
        Some(Nodes { min, max }) if min > max => {
            Err(format!("at least {min} nodes and at most {max} cannot both be"))
        }
        Some(nodes) => Ok(nodes),
        None => Err(format!("write a number from 1 to {NODES_MAX}, or a range such as 1..4")),
    }
}
fn member(text: &str) -> Result<Membership, String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=64).contains(n));
    match text.split_once('/').and_then(|(k, n)| Some((number(k)?, number(n)?))) {
        Some((k, n)) if k <= n => Ok(Membership { me: MemberId(k - 1), n_members: n }),
        _ => Err("write it as 2/3: the second of three, of at most 64".into()),
    }
}
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|e| e.to_string())
}
pub fn rate(text: &str) -> Result<u64, String> {
    parse_rate(text).map_err(|e| e.to_string())
}
pub fn duration(text: &str) -> Result<u64, String> {
    let d = parse_duration(text).map_err(|e| e.to_string())?;
    u64::try_from(d.as_nanos()).map_err(|_| "that is too long".to_string())
}
fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("write at least 1 byte, such as 20GiB".into()),
        n => Ok(n),
    }
}

/// An executor tries to reach a dispatcher about once a second.
fn lease(text: &str) -> Result<u64, String> {
    match duration(text)? {
        0..1_000_000_000 => Err("write a time of at least 1s".into()),
        ns => Ok(ns),
    }
}

fn window(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "write a number of tasks, at least 1".into())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to 1, such as 0.8".into())
}

fn provider_kind(text: &str) -> Result<ProviderKind, String> {
    let all = ProviderKind::value_variants();
    let names: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
    all.iter()
        .find(|kind| kind.name() == text)
        .copied()
        .ok_or_else(|| format!("there is no such provider; choose one of {}", names.join(", ")))
}

/// An address to listen on: port 0 is a free one.
fn host_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let is_host = |host: &str| {
        let is_v6 = host.starts_with('[') && host.ends_with(']');
        !host.is_empty()
            && !host.contains(char::is_whitespace)
            && (is_v6 || !host.contains([':', '/', '[', ']']))
    };
    match parts.filter(|(host, port)| is_host(host) && port.parse::<u16>().is_ok()) {
        Some(_) => Ok(text.into()),
        None => Err("write HOST:PORT, such as 0.0.0.0:7700".into()),
    }
}

/// An address to connect to.
fn address(text: &str) -> Result<String, String> {
    match host_port(text) {
        Ok(text) if !text.ends_with(":0") => Ok(text),
        _ => Err("write HOST:PORT, such as login1:7700".into()),
    }
}

/// `all` is a rule without a limit.
fn kept_runs(text: &str) -> Result<KeepRuns, String> {
    let mut rule = KeepRuns::default();
    if text == "all" {
        return Ok(rule);
    }
    for part in text.split(',') {
        let is_new = match part.parse() {
            Ok(n) => rule.n_runs.replace(n).is_none(),
            Err(_) => {
                let age_ns = duration(part)
                    .map_err(|e| format!("{part} is neither a number of runs nor a time: {e}"))?;
                rule.age_ns.replace(age_ns).is_none()
            }
        };
        if !is_new {
            return Err("write one number of runs and one time at most, such as 20,30d".into());
        }
    }
    Ok(rule)
}

fn collectives(text: &str) -> Result<CollectiveMode, String> {
    CollectiveMode::by_name(text)
        .ok_or_else(|| format!("there is no such mode; choose one of {}", CollectiveMode::NAMES.join(", ")))
}

/// A parameter of a map.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub values: Vec<String>,
}

/// Values that a parameter may have; each is kept.
const VALUES_MAX: u64 = 10_000_000;

fn parameter(text: &str) -> Result<Parameter, String> {
    let (name, values) = text
        .split_once('=')
        .filter(|(name, values)| !name.is_empty() && !values.is_empty())
        .ok_or("write it as NAME=A,B,C or NAME=0..10")?;
    let numbers =
        values.split_once("..").and_then(|(a, b)| Some(a.parse::<u64>().ok()?..b.parse::<u64>().ok()?));
    let values = match numbers {
        Some(range) if range.is_empty() => return Err("the range is empty".into()),
        Some(range) if range.end - range.start > VALUES_MAX => {
            return Err(format!("a parameter may have {VALUES_MAX} values at most"));
        }
        Some(range) => range.map(|n| n.to_string()).collect(),
        None => values.split(',').map(str::to_owned).collect(),
    };
    Ok(Parameter { name: name.into(), values })
}

fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let parts = text.split_once("..").and_then(|(a, b)| Some(a.parse::<u64>().ok()?..b.parse::<u64>().ok()?));
    match parts {
        Some(range) if range.start < range.end => Ok(range),
        Some(_) => Err("the range is empty".into()),
        None => Err("write it as 0..1000".into()),
    }
}

#[cfg(test)]
mod tests;
