//! Where a cluster's nodes come from, as options say it: this machine, hosts that are known by name, or commands of the user.

use crate::args::{
    Cli, ClusterArgs, NodeArgs, Nodes, ProvideArgs, ProviderArgs, ProviderCheckArgs, ProviderKind,
    ProviderVerb, Verb, listed_every,
};
use crate::print::{plural, reason};
use crate::provider_check::{self, Prober};
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, batch, clusters, local, node, walltime};
use clap::Parser;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::provisioning::blocks::BlockConfig;
use eyas_runtime::cluster::provider_left;
use eyas_runtime::provider::{
    CommandLines, Commands, Haste, Hosts, Launch, Local, ProviderOptions, Share, Source, check_line, claim,
    end_blocks, has_hole, run, slots_of_grid_engine, sweep_shares,
};
use eyas_text::shown_path;
use eyas_wire::identity::Join;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the dispatcher listens whose nodes are on other machines: everywhere, on a free port.
const EVERYWHERE: &str = "0.0.0.0:0";

/// How long a node's folder that the user named may be unused.
const SCRATCH_AGE_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

fn bad(e: impl std::fmt::Display) -> Fault {
    Fault::new(Exit::BadInput, e)
}

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
            (ProviderKind::Allocation, _) => Hosts::of_allocation(|name| std::env::var(name).ok(), ssh),
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

/// Checks that what this provider needs is installed here, before anything is made.
pub fn check_tools(args: &ProvideArgs) -> Result<(), Fault> {
    if args.provider.is_batch() { batch::check(args) } else { Ok(()) }
}

fn command_lines(args: &ProvideArgs) -> Result<CommandLines, Fault> {
    if let Some(fault) = line_faults(args).into_iter().next() {
        return Err(fault);
    }
    let line = |given: &Option<String>| given.clone().expect("otherwise there is a fault");
    Ok(CommandLines { start: line(&args.start), list: line(&args.list), stop: line(&args.stop) })
}

/// The command line of the process that starts and ends nodes.
pub fn arguments(join: &Path, dir: &Path, args: &ClusterArgs, node_words: Vec<String>) -> Vec<String> {
    let mut list = vec!["provider".into(), "--join".into(), join.display().to_string()];
    list.extend(["--dir".into(), dir.display().to_string()]);
    list.extend(["--nodes".into(), args.nodes.to_string()]);
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
fn shared_state() -> Result<PathBuf, Fault> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    state.ok_or_else(|| {
        bad("neither XDG_STATE_HOME nor HOME is set, so there is no folder that nodes can read")
    })
}

/// What nodes elsewhere run.
fn launch_of(args: &ProvideArgs, node: &NodeArgs) -> Result<Launch, Fault> {
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

/// Who submits the probe of `eyas provider check`, with what it would submit. `join`: of a dispatcher with that id of its cluster.
pub fn prober(
    args: &ProviderCheckArgs,
    cluster: &str,
    join: &Path,
    dir: &Path,
    n_nodes: u32,
) -> Result<Prober, Fault> {
    let mut launch = launch_of(&args.provide, &args.node)?;
    launch.node_args.push("--probe".into());
    let share = Share::of(&shared_state()?, cluster);
    share.refresh(join)?;
    claim(&share, join.parent().unwrap_or(dir))?;
    let (name, log_dir) = (format!("eyas-{cluster}-1"), dir.to_path_buf());
    let list_every = args.provide.list_every.map(Duration::from_nanos);
    let fail = |e: String| Fault::new(Exit::Cluster, e);
    let (source, mut parts): (Box<dyn Source>, _) = match args.provide.provider {
        ProviderKind::Command => {
            let lines = command_lines(&args.provide)?;
            let mut source = Commands::new(cluster, lines, launch, share.clone(), log_dir);
            let start = source.describe(&name).map_err(fail)?;
            (Box::new(source), vec![("The command that starts a node:".to_string(), start)])
        }
        kind if kind.is_batch() => {
            let settings = batch::settings(&args.provide, &args.node);
            let mut source =
                batch::with_settings(cluster, &args.provide, settings, launch, share.clone(), log_dir);
            source.open().map_err(batch::fault)?;
            let (script, command) = source.describe(&name, n_nodes).map_err(fail)?;
            let mut parts = vec![];
            if !script.is_empty() {
                parts.push((format!("What is submitted, by {command}:"), script));
            }
            (Box::new(source), parts)
        }
        kind => {
            let message = format!("a probe is a job, and --provider {} has none", kind.name());
            return Err(bad(message).hint("`eyas up` says at once what is wrong with hosts"));
        }
    };
    let script = std::fs::read_to_string(share.dir().join(format!("{name}.sh")))?;
    parts.push(("What each node runs:".into(), script));
    Ok(Prober { source, parts, name, share, list_every })
}

/// The process that starts and ends nodes.
pub fn provider(mut args: ProviderArgs) -> Result<Exit, Fault> {
    if let Some(ProviderVerb::Check(args)) = args.verb.take() {
        return provider_check::check(args);
    }
    let (Some(dir), Some(nodes)) = (args.dir.take(), args.nodes) else {
        return Err(bad("`eyas provider` needs --dir and --nodes"));
    };
    let join = clusters::work_join(&args.join)?;
    let slots = args.node.slots.unwrap_or(1);
    let config = local::provision_config(nodes, &args.provision, slots);
    let log_dir = join.parent().unwrap_or(Path::new(".")).to_path_buf();
    let lock = eyas_runtime::cluster::provider_lock(&log_dir);
    let until_stdin_closes = args.until_stdin_closes;
    let exe = std::env::current_exe()?;
    let launch = launch_of(&args.provide, &args.node)?;
    let runtime = client_runtime();
    let result = match args.provide.provider {
        ProviderKind::Local => {
            let (to, node, scratch) = (join.clone(), args.node, args.provide.local_scratch()?);
            let node_args = move |name: &str| node::executor_arguments(&to, &dir, name, &scratch, &node);
            let source = Local::new(exe, log_dir, node_args);
            let blocks = Local::block_config(node::NODE);
            let options = ProviderOptions { join, lock, config, blocks, elsewhere: None, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
        ProviderKind::Ssh | ProviderKind::Allocation => {
            let hosts = args.provide.hosts()?.expect("these providers have hosts");
            let mut launch = launch;
            if args.provide.provider == ProviderKind::Allocation {
                launch.node_args.extend(walltime::words_of_grid_engine());
            }
            let n_hosts = hosts.names.len() as u32;
            let read = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?;
            let key = serde_json::to_string(&read).map_err(|e| Fault::new(Exit::Other, e))?;
            let start = move |name: &str| {
                let number = name.strip_prefix(node::NODE).and_then(|digits| digits.parse().ok());
                let number = number.ok_or_else(|| format!("{name} has no number"))?;
                hosts.start(name, number, &launch)
            };
            let source = Local::of_hosts(log_dir, key, start);
            let blocks = BlockConfig { number_max: n_hosts, ..Local::block_config(node::NODE) };
            let options = ProviderOptions { join, lock, config, blocks, elsewhere: None, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
        ProviderKind::Command => {
            let cluster = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?.cluster;
            let share = Share::of(&shared_state()?, &cluster);
            let blocks = Commands::block_config(&cluster, listed_every(args.provide.list_every));
            let source =
                Commands::new(&cluster, command_lines(&args.provide)?, launch, share.clone(), log_dir);
            let lease_ns = args.lease.unwrap_or(DispatcherConfig::default().lease_ns);
            let elsewhere = Some((Duration::from_nanos(lease_ns), share));
            let options = ProviderOptions { join, lock, config, blocks, elsewhere, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
        _ => {
            let cluster = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?.cluster;
            let share = Share::of(&shared_state()?, &cluster);
            share.refresh(&join)?;
            let blocks = batch::block_config(&cluster, &args.provide);
            let mut source = batch::source(&cluster, &args, launch, share.clone(), log_dir);
            source.open().map_err(|refusal| Fault::new(Exit::BadInput, refusal))?;
            let lease_ns = args.lease.unwrap_or(DispatcherConfig::default().lease_ns);
            let elsewhere = Some((Duration::from_nanos(lease_ns), share));
            let options = ProviderOptions { join, lock, config, blocks, elsewhere, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
    };
    result.map(|()| Exit::Good).map_err(|e| Fault::new(Exit::Cluster, e))
}

/// What the provider of a cluster that stays was started with, in the folder of its dispatcher: whoever ends the cluster needs it
/// where the provider is gone.
const WORDS: &str = "provider.json";

/// Keeps what the provider is started with; `None`: there is none any more.
pub fn keep_words(dispatcher_dir: &Path, words: Option<&[String]>) -> Result<(), Fault> {
    let path = dispatcher_dir.join(WORDS);
    if words.is_none() {
        let _ = std::fs::remove_file(provider_left(dispatcher_dir));
    }
    let kept = match words {
        Some(words) => std::fs::write(&path, serde_json::to_vec(words).expect("texts can be written")),
        None => match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        },
    };
    kept.map_err(|e| Fault::new(Exit::Other, format!("cannot write {}: {}", shown_path(&path), reason(&e))))
}

pub fn has_kept_words(dispatcher_dir: &Path) -> bool {
    dispatcher_dir.join(WORDS).exists()
}

/// What [`keep_words`] kept.
pub fn kept_words(dispatcher_dir: &Path) -> Option<Vec<String>> {
    serde_json::from_slice(&std::fs::read(dispatcher_dir.join(WORDS)).ok()?).ok()
}

/// The options of a provider that was started with these words, if its blocks may outlive it. All other nodes end with the
/// process that started them.
fn outlived(words: &[String]) -> Option<ProviderArgs> {
    let words = ["eyas"].into_iter().chain(words.iter().map(String::as_str));
    let Ok(Cli { verb: Verb::Provider(args) }) = Cli::try_parse_from(words) else { return None };
    let kind = args.provide.provider;
    (kind == ProviderKind::Command || kind.is_batch()).then_some(args)
}

/// Whether blocks may outlive the provider that was started with these words.
pub fn may_leave_blocks(words: &[String]) -> bool {
    outlived(words).is_some()
}

/// Ends the blocks of a cluster whose provider was killed; `words` are what it was started with. Gives a sentence for each block that
/// may be left. `haste` is given what cuts off its commands.
pub fn end_left(words: &[String], cluster: &str, haste: impl FnOnce(Haste)) -> Result<Vec<String>, Fault> {
    let Some(args) = outlived(words) else { return Ok(vec![]) };
    let join = args.join.join.clone().unwrap_or_default();
    let dir = join.parent().unwrap_or(Path::new(".")).to_path_buf();
    let share = Share::of(&shared_state()?, cluster);
    let launch = launch_of(&args.provide, &args.node)?;
    let prefix = Commands::block_config(cluster, listed_every(None)).prefix;
    let left = if args.provide.provider.is_batch() {
        // The Python process works in the folder, which may be gone.
        std::fs::create_dir_all(share.dir())?;
        let source = batch::source(cluster, &args, launch, share.clone(), dir);
        haste(source.haste());
        end_blocks(source, &prefix)
    } else {
        let source = Commands::new(cluster, command_lines(&args.provide)?, launch, share.clone(), dir);
        haste(source.haste());
        end_blocks(source, &prefix)
    };
    share.remove();
    Ok(left)
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
    let of_slurm = std::env::var("SLURM_CPUS_ON_NODE").ok().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let of_job = of_slurm.or_else(|| slots_of_grid_engine(|name| std::env::var(name).ok()));
    of_job.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

/// How a cluster says which nodes it has, once it is up.
pub fn describe(nodes: Nodes, args: &ProvideArgs) -> String {
    format!("up, with {nodes} nodes by --provider {}", args.provider.name())
}
