//! What dispatchers, nodes and whoever starts nodes are to be like, and the same in words of their command lines.

use crate::values::{
    Amount, BatchOption, Gpus, Nodes, SystemUser, amount, gpus, nodes, option, system_users,
};
use eyas_core::dispatcher::{CollectiveMode, DispatcherConfig, KeepRuns};
use eyas_core::network::NetworkUse;
use eyas_core::placement;
use eyas_runtime::provider::RAY;
use eyas_text::Shell;
use std::path::PathBuf;
use std::time::Duration;

const MS_NS: u64 = 1_000_000;

/// What the dispatchers of a cluster are to be like.
#[derive(Clone, PartialEq, Debug)]
pub struct DispatcherShape {
    /// Address that it listens on; `None`: loopback.
    pub listen: Option<String>,
    /// Address at which nodes reach it, if that is another one.
    pub advertise: Option<String>,
    /// A name in [`placement::NAMES`].
    pub placement: String,
    pub window: usize,
    pub utilisation_threshold: f64,
    pub collectives: CollectiveMode,
    pub network: NetworkUse,
    /// How long an executor and its dispatcher are without each other before they give up, in nanoseconds.
    pub lease_ns: u64,
    /// Transfers from and to home storage at the same time, of all nodes together.
    pub home_streams: Option<u32>,
    pub home_bytes_per_s: Option<u64>,
    /// Resources of the whole cluster.
    pub resources: Vec<Amount>,
    pub no_event_log: bool,
    /// `None`: all runs are remembered.
    pub keep_runs: Option<KeepRuns>,
}

impl Default for DispatcherShape {
    fn default() -> DispatcherShape {
        let DispatcherConfig { placement, placement_config, lease_ns, collectives, .. } = Default::default();
        let placement::Config { window, utilisation_threshold, .. } = placement_config;
        DispatcherShape {
            listen: None,
            advertise: None,
            placement,
            window,
            utilisation_threshold,
            collectives,
            network: NetworkUse::Off,
            lease_ns,
            home_streams: None,
            home_bytes_per_s: None,
            resources: vec![],
            no_event_log: false,
            keep_runs: None,
        }
    }
}

impl DispatcherShape {
    /// What each of so many dispatchers is to be like, which share what home storage allows.
    pub fn one_of(&self, n_dispatchers: u32) -> DispatcherShape {
        DispatcherShape {
            home_streams: self.home_streams.map(|n| (n / n_dispatchers).max(1)),
            home_bytes_per_s: self.home_bytes_per_s.map(|n| (n / u64::from(n_dispatchers)).max(1)),
            ..self.clone()
        }
    }

    /// Options of `eyas dispatcher`.
    pub fn words(&self) -> Vec<String> {
        let mut words = Words::default();
        self.listen.iter().for_each(|listen| words.bind("listen", listen));
        self.advertise.iter().for_each(|address| words.bind("advertise", address));
        words.pair("placement", &self.placement);
        words.pair("window", self.window);
        words.pair("utilisation-threshold", self.utilisation_threshold);
        words.pair("collectives", self.collectives.name());
        words.pair("network", self.network.name());
        words.pair("lease", ms(self.lease_ns));
        self.home_streams.iter().for_each(|streams| words.pair("home-streams", streams));
        self.home_bytes_per_s.iter().for_each(|rate| words.pair("home-rate", rate));
        self.resources.iter().for_each(|amount| words.pair("cluster-resource", amount));
        if self.no_event_log {
            words.0.push("--no-event-log".into());
        }
        words.pair("keep-runs", shown_rule(self.keep_runs));
        words.0
    }
}

/// The form that `--keep-runs` accepts.
fn shown_rule(rule: Option<KeepRuns>) -> String {
    let Some(KeepRuns { n_runs, age_ns }) = rule else { return "all".into() };
    let age = age_ns.map(|ns| format!("{ns}ns"));
    n_runs.map(|n| n.to_string()).into_iter().chain(age).collect::<Vec<_>>().join(",")
}

/// What one node is to be like.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeShape {
    /// `None`: the processors of its machine.
    pub slots: Option<u32>,
    pub cache_bytes: u64,
    /// `None`: the memory of its machine.
    pub memory_bytes: Option<u64>,
    /// How much of its memory holds files of its cache.
    pub cache_memory_bytes: u64,
    pub gpus: Option<Gpus>,
    /// The names of its gpus, where it shares a machine with others.
    pub gpu_names: Vec<String>,
    pub resources: Vec<Amount>,
    /// A name in [`eyas_core::eviction::NAMES`].
    pub eviction: String,
    /// How long programs may go on after SIGTERM, in nanoseconds.
    pub grace_ns: u64,
    /// How long a home that is away is waited for, in nanoseconds.
    pub home_wait_ns: u64,
    /// A program and its words, between blanks, that runs programs in containers.
    pub container_command: Option<String>,
    pub line_shell: Option<Shell>,
    /// Folders of inputs on the node's own disk.
    pub home_local: Vec<PathBuf>,
    pub system_users: Vec<SystemUser>,
    /// Where it keeps its cache, if not in the cluster's folder.
    pub scratch: Option<Scratch>,
}

/// A folder in which nodes keep their caches, and how long one may be unused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scratch {
    pub dir: PathBuf,
    pub age: Duration,
}

impl Default for NodeShape {
    fn default() -> NodeShape {
        NodeShape {
            slots: None,
            cache_bytes: 4 << 30,
            memory_bytes: None,
            cache_memory_bytes: 0,
            gpus: None,
            gpu_names: vec![],
            resources: vec![],
            eviction: "lru".into(),
            grace_ns: 0,
            home_wait_ns: 300_000_000_000,
            container_command: None,
            line_shell: None,
            home_local: vec![],
            system_users: vec![],
            scratch: None,
        }
    }
}

impl NodeShape {
    /// Options of `eyas executor`.
    pub fn words(&self) -> Vec<String> {
        let mut words = Words::default();
        if let Some(Scratch { dir, age }) = &self.scratch {
            words.pair("scratch", dir.display());
            words.pair("scratch-age", format!("{}ms", age.as_millis()));
        }
        words.pair("cache", self.cache_bytes);
        words.pair("eviction", &self.eviction);
        self.slots.iter().for_each(|slots| words.pair("slots", slots));
        self.memory_bytes.iter().for_each(|memory| words.pair("memory", memory));
        if self.cache_memory_bytes > 0 {
            words.pair("cache-memory", self.cache_memory_bytes);
        }
        if !self.gpu_names.is_empty() {
            words.pair("gpu-names", self.gpu_names.join(","));
        } else if let Some(gpus) = self.gpus {
            words.pair("gpus", gpus);
        }
        self.resources.iter().for_each(|amount| words.pair("resource", amount));
        if self.grace_ns > 0 {
            words.pair("grace", format!("{}ms", self.grace_ns.div_ceil(MS_NS)));
        }
        words.pair("home-wait", format!("{}ms", self.home_wait_ns.div_ceil(MS_NS)));
        self.container_command.iter().for_each(|command| words.pair("container-command", command));
        self.line_shell.iter().for_each(|shell| words.pair("line-shell", shell.name()));
        self.home_local.iter().for_each(|dir| words.pair("home-local", dir.display()));
        self.system_users.iter().for_each(|part| words.pair("system-users", part));
        words.0
    }

    /// Sets the option of that name to what its word says. `None`: there is no such option of a node, or no such value.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "cache" => self.cache_bytes = value.parse().ok()?,
            "eviction" => self.eviction = value.into(),
            "slots" => self.slots = Some(value.parse().ok()?),
            "cache-memory" => self.cache_memory_bytes = value.parse().ok()?,
            "memory" => self.memory_bytes = Some(value.parse().ok()?),
            "gpu-names" => self.gpu_names = value.split(',').map(str::to_owned).collect(),
            "gpus" => self.gpus = Some(gpus(value).ok()?),
            "resource" => self.resources.push(amount(value).ok()?),
            "grace" => self.grace_ns = ns_of(value)?,
            "home-wait" => self.home_wait_ns = ns_of(value)?,
            "container-command" => self.container_command = Some(value.into()),
            "line-shell" => self.line_shell = Some(Shell::of_name(value).ok()?),
            "home-local" => self.home_local.push(value.into()),
            "system-users" => self.system_users.push(system_users(value).ok()?),
            _ => return None,
        }
        Some(())
    }
}

/// Where nodes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProviderKind {
    /// Processes of this machine
    #[default]
    Local,
    /// Commands of the user
    Command,
    /// Hosts that are known by name, by ssh
    Ssh,
    /// The nodes of the allocation that this process runs in: Slurm, Grid Engine, PBS
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
    pub const ALL: [ProviderKind; 15] = [
        ProviderKind::Local,
        ProviderKind::Command,
        ProviderKind::Ssh,
        ProviderKind::Allocation,
        ProviderKind::Ray,
        ProviderKind::Slurm,
        ProviderKind::GridEngine,
        ProviderKind::Pbspro,
        ProviderKind::Torque,
        ProviderKind::Lsf,
        ProviderKind::Htcondor,
        ProviderKind::Kubernetes,
        ProviderKind::Aws,
        ProviderKind::Azure,
        ProviderKind::Googlecloud,
    ];

    pub fn by_name(name: &str) -> Result<ProviderKind, String> {
        let names = ProviderKind::ALL.map(ProviderKind::name);
        let found = ProviderKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("there is no such provider; choose one of {}", names.join(", ")))
    }

    pub fn name(self) -> &'static str {
        match self {
            ProviderKind::Local => "local",
            ProviderKind::Command => "command",
            ProviderKind::Ssh => "ssh",
            ProviderKind::Allocation => "allocation",
            ProviderKind::Ray => RAY,
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

    /// Whether a Python process asks for nodes: jobs of a batch system, machines of a cloud, or nodes of Ray.
    pub fn is_batch(self) -> bool {
        use ProviderKind::*;
        !matches!(self, Local | Command | Ssh | Allocation)
    }

    /// Nodes are elsewhere: the dispatcher has to be reached from there, and its key has to get there.
    pub fn is_elsewhere(self) -> bool {
        self != ProviderKind::Local
    }

    /// Whether the nodes of such a provider go on where it is killed. All others end with the process that started them.
    pub fn blocks_outlive(self) -> bool {
        self == ProviderKind::Command || self.is_batch()
    }
}

/// What a provider is to be like: how many nodes it starts and ends, where, and what each of them is to be like.
#[derive(Clone, PartialEq, Debug)]
pub struct ProviderShape {
    pub kind: ProviderKind,
    pub nodes: Nodes,
    pub node: NodeShape,
    /// A name of [`eyas_core::provisioning`]'s policies, if not the usual one.
    pub provisioning: Option<String>,
    pub idle_release_ns: Option<u64>,
    /// How long a dispatcher that does not answer is waited for, in nanoseconds; `None`: as long as dispatchers wait where nobody
    /// says it.
    pub lease_ns: Option<u64>,
    pub hosts: Option<PathBuf>,
    pub ssh: Option<String>,
    /// The program on the nodes; `None`: the path of this one.
    pub program: Option<PathBuf>,
    pub start: Option<String>,
    pub list: Option<String>,
    pub stop: Option<String>,
    /// Of the Ray cluster.
    pub address: Option<String>,
    pub list_every_ns: Option<u64>,
    pub partition: Option<String>,
    pub queue: Option<String>,
    pub account: Option<String>,
    pub nodes_per_job: Option<u32>,
    pub options: Vec<BatchOption>,
    pub python: Option<PathBuf>,
    pub walltime_ns: Option<u64>,
    /// Where a node keeps its cache; `$NAME` is what the node has under that name.
    pub node_dir: Option<String>,
    pub scratch_age_ns: Option<u64>,
    /// Lines for the shell of each node before its executor starts.
    pub setup: Vec<String>,
}

impl Default for ProviderShape {
    fn default() -> ProviderShape {
        ProviderShape {
            kind: ProviderKind::Local,
            nodes: Nodes::fixed(1),
            node: NodeShape::default(),
            provisioning: None,
            idle_release_ns: None,
            lease_ns: None,
            hosts: None,
            ssh: None,
            program: None,
            start: None,
            list: None,
            stop: None,
            address: None,
            list_every_ns: None,
            partition: None,
            queue: None,
            account: None,
            nodes_per_job: None,
            options: vec![],
            python: None,
            walltime_ns: None,
            node_dir: None,
            scratch_age_ns: None,
            setup: vec![],
        }
    }
}

impl ProviderShape {
    /// Options of `eyas provider`, beside where the cluster is.
    pub fn words(&self) -> Vec<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let mut words = Words::default();
        words.pair("nodes", self.nodes);
        self.provisioning.iter().for_each(|policy| words.pair("provisioning", policy));
        self.idle_release_ns.iter().for_each(|ns| words.pair("idle-release", ms(*ns)));
        self.lease_ns.iter().for_each(|ns| words.pair("lease", ms(*ns)));
        words.bind("provider", self.kind.name());
        let bound = [
            ("hosts", path(&self.hosts)),
            ("ssh", self.ssh.clone()),
            ("program", path(&self.program)),
            ("start", self.start.clone()),
            ("list", self.list.clone()),
            ("stop", self.stop.clone()),
            ("address", self.address.clone()),
            ("list-every", self.list_every_ns.map(ms)),
            ("walltime", self.walltime_ns.map(ms)),
            ("node-dir", self.node_dir.clone()),
            ("scratch-age", self.scratch_age_ns.map(ms)),
            ("partition", self.partition.clone()),
            ("queue", self.queue.clone()),
            ("account", self.account.clone()),
            ("nodes-per-job", self.nodes_per_job.map(|n| n.to_string())),
            ("python", path(&self.python)),
        ];
        for (name, value) in bound {
            value.iter().for_each(|value| words.bind(name, value));
        }
        self.setup.iter().for_each(|line| words.bind("setup", line));
        self.options
            .iter()
            .for_each(|option| words.bind("options", format!("{}={}", option.name, option.value)));
        words.0.extend(self.node.words());
        words.0
    }

    /// Reads options that [`Self::words`] gave. `None`: they are none, or another version's.
    pub fn of_words<'w>(words: impl IntoIterator<Item = (&'w str, &'w str)>) -> Option<ProviderShape> {
        let mut shape = ProviderShape::default();
        for (name, value) in words {
            let text = || Some(value.to_owned());
            match name {
                "nodes" => shape.nodes = nodes(value).ok()?,
                "provisioning" => shape.provisioning = text(),
                "idle-release" => shape.idle_release_ns = Some(ns_of(value)?),
                "lease" => shape.lease_ns = Some(ns_of(value)?),
                "provider" => shape.kind = ProviderKind::by_name(value).ok()?,
                "hosts" => shape.hosts = Some(value.into()),
                "ssh" => shape.ssh = text(),
                "program" => shape.program = Some(value.into()),
                "start" => shape.start = text(),
                "list" => shape.list = text(),
                "stop" => shape.stop = text(),
                "address" => shape.address = text(),
                "list-every" => shape.list_every_ns = Some(ns_of(value)?),
                "walltime" => shape.walltime_ns = Some(ns_of(value)?),
                "node-dir" => shape.node_dir = text(),
                "scratch-age" => shape.scratch_age_ns = Some(ns_of(value)?),
                "partition" => shape.partition = text(),
                "queue" => shape.queue = text(),
                "account" => shape.account = text(),
                "nodes-per-job" => shape.nodes_per_job = Some(value.parse().ok()?),
                "python" => shape.python = Some(value.into()),
                "setup" => shape.setup.extend(text()),
                "options" => shape.options.push(option(value).ok()?),
                _ => shape.node.set(name, value)?,
            }
        }
        Some(shape)
    }
}

/// Words of a command line.
#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    /// `--name value`
    fn pair(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.extend([format!("--{name}"), value.to_string()]);
    }

    /// `--name=value`, for a value that may begin with a dash.
    fn bind(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{name}={value}"));
    }
}

/// Options in words, by name. `None`: a word is no option, or has no value.
pub(crate) fn options_of(words: &[String]) -> Option<Vec<(&str, &str)>> {
    let (mut all, mut words) = (vec![], words.iter());
    while let Some(word) = words.next() {
        let option = word.strip_prefix("--")?;
        all.push(match option.split_once('=') {
            Some(bound) => bound,
            None => (option, words.next()?.as_str()),
        });
    }
    Some(all)
}

fn ms(ns: u64) -> String {
    format!("{}ms", ns / MS_NS)
}

/// What [`ms`] wrote, in nanoseconds.
fn ns_of(ms: &str) -> Option<u64> {
    ms.strip_suffix("ms")?.parse::<u64>().ok()?.checked_mul(MS_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_read_as_it_is_written() {
        let node = NodeShape {
            slots: Some(3),
            cache_bytes: 5,
            memory_bytes: Some(7),
            cache_memory_bytes: 6,
            gpus: Some(Gpus::Auto),
            resources: vec![amount("board=2").unwrap()],
            grace_ns: 2 * MS_NS,
            container_command: Some("run {image}".into()),
            line_shell: Some(Shell::of_name("sh").unwrap()),
            home_local: vec!["/a b".into(), "/c".into()],
            system_users: vec![system_users("7-9").unwrap(), system_users("ann=web").unwrap()],
            ..NodeShape::default()
        };
        let text = |text: &str| Some(text.to_string());
        let shape = ProviderShape {
            kind: ProviderKind::GridEngine,
            nodes: Nodes { min: 0, max: 4 },
            node,
            provisioning: text("additive"),
            idle_release_ns: Some(MS_NS),
            lease_ns: Some(9 * MS_NS),
            hosts: Some("hosts".into()),
            ssh: text("--ssh"),
            program: Some("/bin/eyas".into()),
            start: text("--start=x {script}"),
            list: text("l"),
            stop: text("s"),
            address: text("auto"),
            list_every_ns: Some(3 * MS_NS),
            partition: text("p"),
            queue: text("q"),
            account: text("a"),
            nodes_per_job: Some(2),
            options: vec![option("qos=long").unwrap(), option("n=[1]").unwrap()],
            python: Some("/python".into()),
            walltime_ns: Some(4 * MS_NS),
            node_dir: text("$TMP"),
            scratch_age_ns: Some(0),
            setup: vec!["module load --x=1".into()],
        };
        let words = shape.words();
        assert_eq!(ProviderShape::of_words(options_of(&words).unwrap()), Some(shape));
        let by_default = ProviderShape::default();
        assert_eq!(ProviderShape::of_words(options_of(&by_default.words()).unwrap()), Some(by_default));
    }
}
