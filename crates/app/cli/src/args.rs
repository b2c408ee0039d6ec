//! Arguments that several verbs share. One way to say which cluster (`--join`) and where (`--dir`) for all commands.

use clap::{Args, Parser};
use eyas_client::JoinFile;
use eyas_cluster::values::{gpus, option, system_users};
use eyas_core::dispatcher::{CollectiveMode, KeepRuns};
use eyas_core::network::NetworkUse;
use eyas_text::Shell;
use std::path::PathBuf;

pub mod values;

pub use eyas_cluster::options::ProviderKind;
pub use eyas_cluster::values::{Amount, BatchOption, Gpus, Nodes, SystemUser};
pub(crate) use eyas_cluster::values::{amount, nodes};
pub(crate) use values::{address, host_port, some_bytes};
pub use values::{bytes, duration, rate, task_name};

#[derive(Args, Clone, Default)]
pub struct JoinArgs {
    /// Join file of the cluster [default: the newest cluster of this machine; for commands that give work, the newest
    /// that `eyas up` started]
    #[arg(long, value_name = "FILE", env = "EYAS_JOIN")]
    pub join: Option<PathBuf>,
}

impl JoinArgs {
    /// The file that the user named, if they did.
    pub fn named(&self) -> Option<JoinFile> {
        self.join.clone().map(JoinFile::named)
    }
}

#[derive(Args)]
pub struct SourceArgs {
    /// Directory of a run or of its cluster, up or not [default: the one that was given work last]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub join: JoinArgs,
}

/// How an embedded or local cluster is made.
#[derive(Args, Clone)]
#[command(next_help_heading = "The cluster")]
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
    /// Where the cluster keeps its state: journal, event log, caches [default: a new folder for temporary files; of `eyas up`: the same one each time]
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

impl ClusterArgs {
    /// What holds where no option is given.
    pub fn by_default() -> ClusterArgs {
        #[derive(Parser)]
        struct NoOptions {
            #[command(flatten)]
            cluster: ClusterArgs,
        }
        NoOptions::try_parse_from(["eyas"]).expect("it needs no options").cluster
    }
}

/// How nodes are got.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Nodes from elsewhere")]
pub struct ProvideArgs {
    /// Where nodes come from: local (processes of this machine), ssh (the hosts of --hosts), allocation (the nodes of the
    /// Slurm, Grid Engine or PBS job that this runs in), command (commands of yours), ray (the nodes of a Ray cluster), or
    /// jobs of a batch system: slurm, grid-engine, pbspro, torque, lsf, htcondor, kubernetes, aws, azure, googlecloud
    #[arg(long, value_name = "KIND", default_value = "local", value_parser = ProviderKind::by_name)]
    pub provider: ProviderKind,
    /// Hosts for --provider ssh, one on a line; --nodes is their number unless given
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// How hosts are reached by ssh, and by an allocation that is not Slurm's [default: ssh; in Grid Engine qrsh]
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// The program `eyas` on the nodes [default: the path of this one]
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Starts a block, which is one node, and prints its id; {name}, {join}, {script} and {walltime} are filled in
    #[arg(long, value_name = "COMMAND")]
    pub start: Option<String>,
    /// Prints a line for each block: its id, its name, and queued, running, stuck or ended; a reason may follow
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
    #[arg(long, value_name = "NAME=VALUE", value_parser = option)]
    pub options: Vec<BatchOption>,
    /// The Python that has Parsl or Ray [default: the python3 beside this program, else the one on PATH]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// How long a job may live; --start of --provider command finds it in {walltime} as HH:MM:SS
    #[arg(long, value_name = "TIME", value_parser = values::job_time)]
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

/// How nodes come and go.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Nodes that come and go")]
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
#[command(next_help_heading = "Each node")]
pub struct NodeArgs {
    /// Programs that one node runs at once [default: its processors, shared among the nodes of a local cluster]
    #[arg(short = 'j', long, visible_alias = "jobs", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Size of each node's cache, which is never exceeded
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = values::some_bytes)]
    pub cache: u64,
    /// Memory of each node, for tasks that declare how much they need [default: the machine's, shared among local
    /// nodes]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// So much of each node's memory holds files of its cache, so that programs read them from there and not from the disk; tasks get
    /// the rest [default: none]
    #[arg(long, value_name = "BYTES", default_value = "0", hide_default_value = true, value_parser = bytes)]
    pub cache_memory: u64,
    /// Gpus of each node: a number, or auto for those that the machine or the batch system has [default: none]
    #[arg(long, value_name = "N", value_parser = gpus)]
    pub gpus: Option<Gpus>,
    /// A resource of each node that tasks may name, such as a board or a licence (may be given more than once)
    #[arg(long = "resource", value_name = "NAME=N", value_parser = amount)]
    pub resources: Vec<Amount>,
    /// The names of the gpus of a node that shares a machine with others.
    #[arg(long, hide = true, value_delimiter = ',')]
    pub gpu_names: Vec<String>,
    /// Policy that says which file leaves a full cache: random, fifo, lru, lfu, two-mark, two-mark-exchange
    #[arg(long, default_value = "lru", value_name = "POLICY")]
    pub eviction: String,
    /// How long a node's programs may go on after SIGTERM, with which batch systems take nodes back; less than the time until
    /// they send SIGKILL
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub grace: u64,
    /// How long a home that is away is waited for, in place of failing the task; 0: not at all
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub home_wait: u64,
    /// What runs the programs of tasks that have a container, in place of bubblewrap and Apptainer: a program and its words, with
    /// {image}, {sandbox}, the task's folder, and {node}, the folder that this is in; the task's command follows
    #[arg(long, value_name = "COMMAND", value_parser = values::container_command)]
    pub container_command: Option<String>,
    /// The shell that runs command lines which choose none themselves: sh or bash [default: bash, so that a pipe fails with any
    /// of its parts, where the node has it; else sh]
    #[arg(long, value_name = "SHELL", value_parser = Shell::of_name)]
    pub line_shell: Option<Shell>,
    /// A directory of inputs on this node's own disk: its files are read where they are, and not copied (may be given
    /// more than once)
    #[arg(long, value_name = "DIR")]
    pub home_local: Vec<PathBuf>,
    /// Run the programs of each user as a system user of their own, so that none can read another's files on the node:
    /// a range of ids that belong to nobody, such as 70000-70099, and USER=ACCOUNT for each user who has an account of
    /// the machine (may be given more than once); the executor has to be root's [default: as whoever started the executor]
    #[arg(long, value_name = "IDS", value_parser = system_users)]
    pub system_users: Vec<SystemUser>,
}

/// What the dispatcher decides by.
#[derive(Args, Clone)]
#[command(next_help_heading = "What the dispatcher decides by")]
pub struct PolicyArgs {
    /// Which task goes where: affinity, or a policy of the papers: first-available, max-cache-hit, max-compute-util,
    /// good-cache-compute, first-input, first-input-steal
    #[arg(long, default_value = "affinity", value_name = "POLICY")]
    pub placement: String,
    /// How many ready tasks a policy of the papers looks at
    #[arg(long, default_value_t = 3200, value_name = "TASKS", value_parser = values::window)]
    pub window: usize,
    /// good-cache-compute lets tasks wait for their data when at least this share of the slots is busy
    #[arg(long, alias = "threshold", default_value_t = 0.8, value_name = "SHARE", value_parser = values::share)]
    pub utilisation_threshold: f64,
    /// How the files of workflows are moved before the tasks that read them start: auto (the way that is predicted to
    /// be quickest), off, collective-gather or async-gather (all gathers in that way), archive-tree (all gathers and
    /// scatters), or task-rerun (a task whose file many tasks read runs again on their nodes; task-replication is
    /// another name for it)
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = values::collectives)]
    pub collectives: CollectiveMode,
    /// What affinity knows of the network between nodes in several places: measured (small probes at first, then every
    /// transfer), passive (transfers alone, no probes), ping (probes alone), or off: all nodes count as equally near
    #[arg(long, value_name = "HOW", default_value = "off", value_parser = values::network)]
    pub network: NetworkUse,
    /// Transfers from and to home storage at the same time, of all nodes together [default: 16 a node]
    #[arg(long, value_name = "STREAMS", value_parser = clap::value_parser!(u32).range(1..))]
    pub home_streams: Option<u32>,
    /// Bytes per second from and to home storage, of all nodes together [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub home_rate: Option<u64>,
    /// A resource of the whole cluster that tasks may name, such as floating licences (may be given more than once)
    #[arg(long = "cluster-resource", value_name = "NAME=N", value_parser = amount)]
    pub cluster_resources: Vec<Amount>,
    /// Time after which the dispatcher gives up an executor that it does not hear, and after which an executor ends
    /// that does not hear its dispatcher
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = values::lease)]
    pub lease: u64,
    /// Write no event log; then there are no reports and no explanations, and nothing that tasks print is kept
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
    #[arg(long, value_name = "RUNS|TIME", value_parser = values::kept_runs)]
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

/// What earlier runs made is not made again.
#[derive(Args)]
#[command(next_help_heading = "Earlier runs")]
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
