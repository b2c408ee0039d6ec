//! Where a cluster's nodes come from, as options say it: this machine, hosts that are known by name, or commands of the user.

use crate::args::{ClusterArgs, NodeArgs, Nodes, ProvideArgs, ProviderKind};
use crate::fault::bad;
use crate::print::{plural, reason};
use crate::{Exit, Fault};
use eyas_batch::{BatchSystem, GridEngine, Slurm, env};
use eyas_cluster::Cluster;
use eyas_cluster::options::ProviderShape;
use eyas_cluster::provide::shared_state;
use eyas_runtime::provider::{Share, claim, sweep_shares};
use eyas_text::shown_path;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the dispatcher listens whose nodes are on other machines: everywhere, on a free port.
const EVERYWHERE: &str = "0.0.0.0:0";

impl ProvideArgs {
    /// Nodes are elsewhere: the dispatcher has to be reached from there, and its key has to get there.
    pub fn is_elsewhere(&self) -> bool {
        self.provider.is_elsewhere()
    }

    /// Options that this kind of provider does not have, given or not.
    pub fn absent_options(kind: ProviderKind) -> Vec<&'static str> {
        let options = ProvideArgs { provider: kind, ..ProvideArgs::default() }.options();
        options.into_iter().filter(|(.., has)| !has).map(|(name, ..)| name).collect()
    }

    /// Options that this kind of provider does not have, and that are given.
    fn needless(&self) -> Vec<&'static str> {
        let options = self.options().into_iter();
        options.filter(|(_, is_given, has)| *is_given && !has).map(|(name, ..)| name).collect()
    }

    /// Each option that not all providers have, whether it is given, and whether this provider has it.
    fn options(&self) -> [(&'static str, bool, bool); 16] {
        let ProvideArgs { provider, hosts, ssh, program, start, list, stop, list_every, walltime, .. } = self;
        let (is_local, is_command) = (!self.is_elsewhere(), *provider == ProviderKind::Command);
        let (is_batch, is_slurm) = (provider.is_batch(), *provider == ProviderKind::Slurm);
        let is_cloud =
            matches!(provider, ProviderKind::Aws | ProviderKind::Azure | ProviderKind::Googlecloud);
        let is_ray = *provider == ProviderKind::Ray;
        let has_accounts = is_batch && !is_cloud && !is_ray && *provider != ProviderKind::Kubernetes;
        [
            ("hosts", hosts.is_some(), *provider == ProviderKind::Ssh),
            ("ssh", ssh.is_some(), matches!(provider, ProviderKind::Ssh | ProviderKind::Allocation)),
            ("program", program.is_some(), !is_local),
            ("start", start.is_some(), is_command),
            ("list", list.is_some(), is_command),
            ("stop", stop.is_some(), is_command),
            ("address", self.address.is_some(), is_ray),
            ("list-every", list_every.is_some(), is_command || is_batch),
            ("walltime", walltime.is_some(), is_command || has_accounts),
            ("partition", self.partition.is_some(), is_slurm),
            ("queue", self.queue.is_some(), has_accounts && !is_slurm && *provider != ProviderKind::Htcondor),
            ("account", self.account.is_some(), has_accounts),
            ("nodes-per-job", self.nodes_per_job.is_some(), is_batch && !is_ray),
            ("options", !self.options.is_empty(), is_batch),
            ("python", self.python.is_some(), is_batch),
            ("setup", !self.setup.is_empty(), !is_local),
        ]
    }

    /// What these options make of a provider, as far as they say it: where nodes come from.
    pub fn shape(&self) -> ProviderShape {
        let of = self.clone();
        ProviderShape {
            kind: of.provider,
            hosts: of.hosts,
            ssh: of.ssh,
            program: of.program,
            start: of.start,
            list: of.list,
            stop: of.stop,
            address: of.address,
            list_every_ns: of.list_every,
            partition: of.partition,
            queue: of.queue,
            account: of.account,
            nodes_per_job: of.nodes_per_job,
            options: of.options,
            python: of.python,
            walltime_ns: of.walltime,
            node_dir: of.node_dir,
            scratch_age_ns: of.scratch_age,
            setup: of.setup,
            ..ProviderShape::default()
        }
    }

    /// The same, with options of its nodes.
    pub fn shape_with(&self, node: &NodeArgs) -> ProviderShape {
        ProviderShape { node: node.shape(), ..self.shape() }
    }

    /// Where the dispatcher listens.
    pub fn listens(&self) -> Option<String> {
        self.listen.clone().or(self.is_elsewhere().then(|| EVERYWHERE.into()))
    }
}

/// All that is wrong with what is said of where nodes come from, before anything is made.
pub fn faults(args: &ProvideArgs, nodes: Nodes, dispatchers: u32) -> Vec<Fault> {
    let shape = args.shape();
    let kind = args.provider.name();
    let ageless = args.scratch_age.is_some() && args.node_dir.is_none() && !args.is_elsewhere();
    let ageless = ageless.then(|| {
        bad("--scratch-age needs --node-dir with --provider local")
            .hint("it says where nodes keep their caches")
    });
    let needless = args.needless().into_iter().map(|name| {
        let fault = bad(format!("--{name} has nothing to say to --provider {kind}"));
        fault.hint("`eyas up --help` says which options belong to which provider")
    });
    let mut all: Vec<Fault> = needless.chain(ageless).collect();
    if args.is_elsewhere() && dispatchers > 1 {
        let message = format!("--provider {kind} works with one dispatcher so far");
        all.push(bad(message).hint("leave out --dispatchers"));
    }
    match args.provider {
        ProviderKind::Local => {}
        ProviderKind::Command => all.extend(shape.line_refusals().into_iter().map(Fault::from)),
        ProviderKind::Ssh | ProviderKind::Allocation => match shape.hosts() {
            Err(refusal) => all.push(refusal.into()),
            Ok(hosts) => {
                let n_hosts = hosts.map_or(0, |hosts| hosts.names.len());
                if nodes.max as usize > n_hosts {
                    let there_are = plural(n_hosts as u64, "host");
                    let message =
                        format!("--nodes allows {} nodes, and there are only {there_are}", nodes.max);
                    all.push(bad(message).hint("a host that stands twice in --hosts holds two nodes"));
                }
            }
        },
        // What its options mean is known to Parsl alone.
        _ => {}
    }
    all
}

/// Checks that what this provider needs is installed here and takes its options, before anything is made.
pub fn check_tools(args: &ClusterArgs) -> Result<(), Fault> {
    Ok(args.provide.shape_with(&args.node).check_tools()?)
}

/// The folder that nodes elsewhere share with the dispatcher of this cluster. It is made, and of a cluster that is killed
/// [`sweep_keys`] removes it.
pub fn shared_folder(cluster: &Cluster, kind: ProviderKind) -> Result<Share, Fault> {
    let share = Share::of(&shared_state()?, cluster.target().cluster());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(share.dir())?;
    // Whoever asks for blocks does so itself, at this moment perhaps.
    if !kind.blocks_outlive() {
        claim(&share, &cluster.dispatcher_dir())?;
    }
    Ok(share)
}

/// Writes the cluster's key into the folder where nodes find it, and whose it is. `join`: the first dispatcher's join file.
pub fn share_key(share: &Share, join: &Path) -> Result<(), Fault> {
    let written = share.refresh(join).and_then(|()| claim(share, join.parent().unwrap_or(Path::new("."))));
    written.map_err(|e| {
        let message =
            format!("cannot write the cluster's key into {}: {}", shown_path(share.dir()), reason(&e));
        Fault::new(Exit::Other, message).hint("nodes find it there; XDG_STATE_HOME names another folder")
    })
}

/// Removes the keys of this user's clusters that are dead from the folder that nodes elsewhere read.
pub fn sweep_keys() {
    let Ok(state) = shared_state() else { return };
    for cluster in sweep_shares(&state) {
        eyas_text::say!("note: the key of cluster {cluster}, which was killed, is removed");
    }
}

/// The join file of an executor that is given it on standard input, as one line. It is kept in the executor's folder.
pub fn join_from_stdin(dir: Option<&Path>) -> Result<PathBuf, Fault> {
    let dir = dir.ok_or_else(|| bad("--join - needs --dir, which the join file is kept in"))?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim().is_empty() {
        return Err(bad("standard input has no join file on its first line"));
    }
    let make = || -> std::io::Result<PathBuf> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let path = dir.join("join.json");
        let _ = std::fs::remove_file(&path);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(line.as_bytes())?;
        Ok(path)
    };
    make().map_err(|e| Fault::new(Exit::Other, format!("cannot use {}: {}", shown_path(dir), reason(&e))))
}

/// Processors that an executor has: those of its part of a job of Slurm or Grid Engine, or those of the machine that it may use.
pub fn processors() -> u32 {
    let of_job = Slurm.slots_here(&env).or_else(|| GridEngine.slots_here(&env));
    of_job.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

/// How a cluster says which nodes it has, once it is up.
pub fn describe(nodes: Nodes, args: &ProvideArgs) -> String {
    format!("up, with {nodes} nodes by --provider {}", args.provider.name())
}
