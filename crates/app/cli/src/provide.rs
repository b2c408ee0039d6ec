//! Where a cluster's nodes come from, as options say it: this machine, hosts that are known by name, or commands of the user.

use crate::args::{ClusterArgs, NodeArgs, Nodes, ProvideArgs, ProviderKind};
use crate::fault::bad;
use crate::print::{plural, reason};
use crate::{Exit, Fault, batch, node};
use eyas_batch::{BatchSystem, GridEngine, Slurm, env};
use eyas_runtime::provider::{CommandLines, Hosts, Launch, Share, check_line, claim, has_hole, sweep_shares};
use eyas_text::shown_path;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the dispatcher listens whose nodes are on other machines: everywhere, on a free port.
const EVERYWHERE: &str = "0.0.0.0:0";

/// How long a node's folder that the user named may be unused.
const SCRATCH_AGE_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

impl ProvideArgs {
    /// Nodes are elsewhere: the dispatcher has to be reached from there, and its key has to get there.
    pub fn is_elsewhere(&self) -> bool {
        self.provider != ProviderKind::Local
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

    /// As words for the process that starts nodes.
    fn words(&self) -> Vec<String> {
        let ProvideArgs { provider, hosts, ssh, program, start, list, stop, list_every, walltime, .. } = self;
        let ms = |ns: &Option<u64>| ns.map(|ns| format!("{}ms", ns / 1_000_000));
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let options = [
            ("hosts", path(hosts)),
            ("ssh", ssh.clone()),
            ("program", path(program)),
            ("start", start.clone()),
            ("list", list.clone()),
            ("stop", stop.clone()),
            ("address", self.address.clone()),
            ("list-every", ms(list_every)),
            ("walltime", ms(walltime)),
            ("node-dir", self.node_dir.clone()),
            ("scratch-age", ms(&self.scratch_age)),
            ("partition", self.partition.clone()),
            ("queue", self.queue.clone()),
            ("account", self.account.clone()),
            ("nodes-per-job", self.nodes_per_job.map(|n| n.to_string())),
            ("python", path(&self.python)),
        ];
        let mut words = vec![format!("--provider={}", provider.name())];
        words.extend(options.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))));
        words.extend(self.setup.iter().map(|line| format!("--setup={line}")));
        words.extend(self.options.iter().map(|option| format!("--options={}={}", option.name, option.value)));
        words
    }

    /// The hosts that nodes are on, where they are known by name.
    pub fn hosts(&self) -> Result<Option<Hosts>, Fault> {
        let ssh = self.ssh.as_deref();
        let found = match (self.provider, &self.hosts) {
            (ProviderKind::Ssh, Some(path)) => Hosts::of_file(path, ssh.unwrap_or("ssh")),
            (ProviderKind::Ssh, None) => {
                let fault = bad("--provider ssh needs --hosts FILE");
                return Err(fault.hint("write the hosts into a file, one on a line, as ssh takes them"));
            }
            (ProviderKind::Allocation, _) => Hosts::of_allocation(&env, ssh),
            _ => return Ok(None),
        };
        found.map(Some).map_err(bad)
    }

    /// How long a node's folder may be unused before it is removed.
    fn scratch_age(&self) -> Duration {
        let default_ns = if self.node_dir.is_some() { SCRATCH_AGE_NS } else { 0 };
        Duration::from_nanos(self.scratch_age.unwrap_or(default_ns))
    }

    /// Where nodes of this machine keep their caches, if the user says it: options of an executor.
    pub fn local_scratch(&self) -> Result<Vec<String>, Fault> {
        let Some(template) = self.node_dir.as_ref().filter(|_| !self.is_elsewhere()) else {
            return Ok(vec![]);
        };
        // The shell fills it in, as on nodes elsewhere.
        let line = format!("printf %s \"{}\"", Launch::in_double_quotes(template));
        let output = std::process::Command::new("/bin/sh").args(["-c", &line]).output()?;
        let dir = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || dir.is_empty() {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = if dir.is_empty() && why.is_empty() { "it is empty here".into() } else { why };
            return Err(bad(format!("--node-dir {template} is no folder: {}", why.trim())));
        }
        let dir = std::path::absolute(dir)?.display().to_string();
        let age = format!("{}ms", self.scratch_age().as_millis());
        Ok(vec!["--scratch".into(), dir, "--scratch-age".into(), age])
    }

    /// The options of the dispatcher that follow.
    pub fn dispatcher_words(&self) -> Vec<String> {
        let listen = self.listen.clone().or(self.is_elsewhere().then(|| EVERYWHERE.into()));
        let mut words = vec![];
        words.extend(listen.map(|listen| format!("--listen={listen}")));
        words.extend(self.advertise.iter().map(|address| format!("--advertise={address}")));
        words
    }
}

/// All that is wrong with what is said of where nodes come from, before anything is made.
pub fn faults(args: &ProvideArgs, nodes: Nodes, dispatchers: u32) -> Vec<Fault> {
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
        ProviderKind::Command => all.extend(line_faults(args)),
        ProviderKind::Ssh | ProviderKind::Allocation => match args.hosts() {
            Err(fault) => all.push(fault),
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

/// What is wrong with one of the three commands: `which` is `start`, `list` or `stop`.
pub fn line_fault(which: &str, line: &str) -> Option<Fault> {
    let e = check_line(which, line).err()?;
    Some(match e.split_once("\nhint: ") {
        Some((message, hint)) => bad(message).hint(hint),
        None => bad(e),
    })
}

fn line_faults(args: &ProvideArgs) -> Vec<Fault> {
    let lines = [("start", &args.start), ("list", &args.list), ("stop", &args.stop)];
    let wrong = lines.into_iter().filter_map(|(which, given)| match given {
        Some(line) => line_fault(which, line),
        None => {
            let fault = bad(format!("--provider command needs --{which}"));
            Some(fault.hint("it takes the three commands --start, --list and --stop"))
        }
    });
    let mut all: Vec<Fault> = wrong.collect();
    if let Some(start) = &args.start {
        if has_hole(start, "walltime") && args.walltime.is_none() {
            let fault = bad("--start has {walltime}, and nobody says how long a block may live");
            all.push(fault.hint("--walltime 1h does"));
        }
        if !has_hole(start, "script") && !has_hole(start, "join") {
            let fault = bad("--start has neither {script} nor {join}, so it starts no executor");
            all.push(fault.hint("{script} is a file for /bin/sh that starts one"));
        }
    }
    all
}

/// Checks that what this provider needs is installed here and takes its options, before anything is made.
pub fn check_tools(args: &ClusterArgs) -> Result<(), Fault> {
    if args.provide.provider.is_batch() { batch::check(&args.provide, &args.node) } else { Ok(()) }
}

pub fn command_lines(args: &ProvideArgs) -> Result<CommandLines, Fault> {
    if let Some(fault) = line_faults(args).into_iter().next() {
        return Err(fault);
    }
    let line = |given: &Option<String>| given.clone().expect("otherwise there is a fault");
    Ok(CommandLines { start: line(&args.start), list: line(&args.list), stop: line(&args.stop) })
}

/// Whether the nodes of such a provider go on where it is killed. All others end with the process that started them.
pub fn blocks_outlive(kind: ProviderKind) -> bool {
    kind == ProviderKind::Command || kind.is_batch()
}

/// The options of the process that starts and ends nodes, beside where the cluster is.
pub fn options(args: &ClusterArgs, node_words: Vec<String>) -> Vec<String> {
    let mut list = vec!["--nodes".into(), args.nodes.to_string()];
    if let Some(policy) = &args.provision.provisioning {
        list.extend(["--provisioning".into(), policy.clone()]);
    }
    if let Some(ns) = args.provision.idle_release {
        list.extend(["--idle-release".into(), format!("{}ms", ns / 1_000_000)]);
    }
    list.extend(["--lease".into(), format!("{}ms", args.policy.lease / 1_000_000)]);
    list.extend(args.provide.words());
    list.extend(node_words);
    list
}

/// This user's folder for state, which nodes elsewhere mount as well.
pub fn shared_state() -> Result<PathBuf, Fault> {
    let state = crate::dirs::user_folder("XDG_STATE_HOME", ".local/state");
    state.ok_or_else(|| {
        bad("neither XDG_STATE_HOME nor HOME is set, so there is no folder that nodes can read")
    })
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

/// What nodes elsewhere run.
pub fn launch_of(args: &ProvideArgs, node: &NodeArgs) -> Result<Launch, Fault> {
    Ok(Launch {
        exe: program_of(args)?,
        node_args: node::node_arguments(node),
        node_dir: args.node_dir.clone(),
        scratch_age: args.scratch_age(),
        setup: args.setup.clone(),
        walltime: args.walltime.map(Duration::from_nanos),
    })
}

/// The program as nodes elsewhere find it.
pub fn program_of(args: &ProvideArgs) -> Result<PathBuf, Fault> {
    Ok(args.program.clone().map_or_else(std::env::current_exe, Ok)?)
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
