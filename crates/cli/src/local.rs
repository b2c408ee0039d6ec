//! Folders on this machine: state folders, the default cluster, embedded clusters.

use crate::args::{ClusterArgs, JoinArgs, NodeArgs, Nodes, PolicyArgs, ProvisionArgs};
use crate::clusters::{self, Kind, Meant};
use crate::print::reason;
use crate::{Exit, Fault, equipment, provide, starting};
use eyas_core::dispatcher::{CollectiveMode, DispatcherConfig, KeepRuns};
use eyas_core::provisioning::{ProvisionConfig, Provisioner};
use eyas_core::{eviction, placement};
use eyas_runtime::cluster::{LocalCluster, Plan};
use eyas_text::shown_path;
use eyas_wire::identity::Join;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// First argument of a slot process.
pub const SLOT_ARGUMENT: &str = "__slot";

/// The program that the processes of a cluster run: this program, or the `eyas` beside another program that
/// starts clusters.
pub fn program() -> Result<PathBuf, Fault> {
    let this = std::env::current_exe()?;
    if this.file_name().is_none_or(|name| name != "eyas-lab") {
        return Ok(this);
    }
    let eyas = this.with_file_name("eyas");
    match eyas.is_file() {
        true => Ok(eyas),
        false => Err(Fault::new(Exit::Other, format!("there is no `eyas` beside {}", shown_path(&this)))
            .hint("`make build` puts both into .venv/bin")),
    }
}

/// This user's folder for clusters and runs that were given none: `$EYAS_STATE`, or one under the
/// system's folder for temporary files. On local disk, because caches live here.
pub fn state_dir() -> Result<PathBuf, Fault> {
    // SAFETY: a plain query.
    let uid = unsafe { libc::getuid() };
    let dir = match std::env::var_os("EYAS_STATE") {
        Some(dir) => PathBuf::from(dir),
        None => std::env::temp_dir().join(format!("eyas-{uid}")),
    };
    let fail = |e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot use {} for state: {}", shown_path(&dir), reason(&e)))
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(fail)?;
    let meta = std::fs::metadata(&dir).map_err(fail)?;
    if meta.uid() != uid {
        let message = format!("{} belongs to another user", shown_path(&dir));
        return Err(Fault::new(Exit::Other, message).hint("set EYAS_STATE to a folder of your own"));
    }
    Ok(dir)
}

/// The folder of the cluster that `eyas up` starts.
pub fn default_cluster_dir() -> Result<PathBuf, Fault> {
    Ok(state_dir()?.join("cluster"))
}

/// The dispatcher's folder within a cluster's.
pub fn dispatcher_dir(cluster_dir: &Path) -> PathBuf {
    cluster_dir.join("dispatcher")
}

/// Like [`dispatcher_dir`], for the dispatcher with that number among several, counted from 1.
pub fn dispatcher_dir_of(cluster_dir: &Path, number: u32) -> PathBuf {
    match number {
        1 => dispatcher_dir(cluster_dir),
        n => cluster_dir.join(format!("dispatcher{n}")),
    }
}

/// The share of home storage that each of several dispatchers may use.
fn policy_share(policy: &PolicyArgs, dispatchers: u32) -> PolicyArgs {
    PolicyArgs {
        home_streams: policy.home_streams.map(|n| (n / dispatchers).max(1)),
        home_rate: policy.home_rate.map(|n| (n / u64::from(dispatchers)).max(1)),
        ..policy.clone()
    }
}

/// The dispatcher's folder of a run that is over: the given folder, or that of the last run.
pub fn ended_dir(dir: Option<&Path>) -> Result<PathBuf, Fault> {
    let dir = match dir {
        Some(dir) => dir.to_path_buf(),
        None => match clusters::newest()? {
            Some(newest) => newest.dir,
            None => return Err(Fault::new(Exit::BadInput, "there is no run to tell of: none was made here")),
        },
    };
    for candidate in [dispatcher_dir(&dir), dir.clone()] {
        if candidate.join(eyas_core::log::EVENTS_FILE).exists() {
            return Ok(candidate);
        }
    }
    let message = format!("there is no event log in {}", shown_path(&dir));
    Err(Fault::new(Exit::BadInput, message).hint("name the folder that a run was given with --dir"))
}

/// The dispatchers' folders of a run that is over, like [`ended_dir`]; if the folder of a single dispatcher
/// is named, only that folder.
pub fn ended_dirs(dir: Option<&Path>) -> Result<Vec<PathBuf>, Fault> {
    let first = ended_dir(dir)?;
    match dir == Some(first.as_path()) {
        true => Ok(vec![first]),
        false => Ok(member_dirs(first)),
    }
}

/// The folders of all dispatchers that shared a cluster with the dispatcher of `dir`, as far as they are
/// beside it.
pub fn member_dirs(dir: PathBuf) -> Vec<PathBuf> {
    // If the log has a problem, its reader reports that.
    let (Ok(Some(group)), Some(cluster)) = (eyas_report::membership(&dir), dir.parent()) else {
        return vec![dir];
    };
    if dir != dispatcher_dir_of(cluster, group.me.0 + 1) {
        return vec![dir];
    }
    let all = (1..=group.n_members).map(|k| dispatcher_dir_of(cluster, k));
    all.filter(|dir| dir.join(eyas_core::log::EVENTS_FILE).exists()).collect()
}

/// The source of answers about a task: the join file of a cluster, or the dispatchers' folders when the run
/// is over and its log is read. An explicit `--dir` means the log in it, an explicit `--join` that cluster.
pub enum Source {
    Live(PathBuf),
    Ended(Vec<PathBuf>),
}

pub fn source(join: &JoinArgs, dir: Option<&Path>) -> Result<Source, Fault> {
    if dir.is_some() {
        return Ok(Source::Ended(ended_dirs(dir)?));
    }
    match clusters::find(join)? {
        Meant::Live(join) => Ok(Source::Live(join)),
        Meant::Ended(known) => {
            if known.kind == Kind::Up {
                eyas_text::say!("note: {} is not up; this is what its log says", known.describe());
            }
            Ok(Source::Ended(ended_dirs(Some(&known.dir))?))
        }
    }
}

/// The folders of the dispatchers whose logs cover the meant cluster or run, whether they are up or not.
pub fn log_dirs(join: &JoinArgs, dir: Option<&Path>) -> Result<Vec<PathBuf>, Fault> {
    match source(join, dir)? {
        Source::Ended(dirs) => Ok(dirs),
        // The log is on the dispatcher's machine. Elsewhere its folder does not exist, which the reader
        // reports.
        Source::Live(join) => {
            let join = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?;
            Ok(member_dirs(PathBuf::from(join.dir)))
        }
    }
}

/// Checks the settings for dispatchers, which would otherwise be refused after a folder was made.
pub fn check_policy(policy: &PolicyArgs) -> Result<(), Fault> {
    let checked = placement::by_name(&policy.placement, &dispatcher_config(policy).placement_config);
    let named = equipment::by_name(&policy.cluster_resources).map(drop);
    checked.map(drop).and(named).map_err(|e| Fault::new(Exit::BadInput, e))
}

fn check_eviction(node: &NodeArgs) -> Result<(), Fault> {
    equipment::by_name(&node.resources).map_err(|e| Fault::new(Exit::BadInput, e))?;
    eviction::by_name(&node.eviction).map(drop).map_err(|e| Fault::new(Exit::BadInput, e))
}

/// The same check of the settings for nodes.
pub fn check_node(node: &NodeArgs) -> Result<(), Fault> {
    check_eviction(node)?;
    for dir in &node.home_local {
        if !dir.is_dir() {
            let message = format!("--home-local {} is not a directory", shown_path(dir));
            return Err(Fault::new(Exit::BadInput, message));
        }
    }
    Ok(())
}

/// Checks the request for a local cluster before anything is made for it.
pub fn check(args: &ClusterArgs) -> Result<(), Fault> {
    faults(args).into_iter().next().map_or(Ok(()), Err)
}

fn check_provisioning(args: &ClusterArgs) -> Result<(), Fault> {
    let provisioner = Provisioner::new(provision_config(args.nodes, &args.provision, 1));
    provisioner.map(drop).map_err(|e| Fault::new(Exit::BadInput, e))
}

/// What is wrong with the name of a policy that stands behind the option of that name.
pub fn policy_fault(args: &ClusterArgs, option: &str) -> Option<Fault> {
    match option {
        "placement" => check_policy(&args.policy).err(),
        "eviction" => check_eviction(&args.node).err(),
        "provisioning" => check_provisioning(args).err(),
        _ => None,
    }
}

/// All that is wrong with the request for a local cluster.
pub fn faults(args: &ClusterArgs) -> Vec<Fault> {
    let ClusterArgs { profile: _, nodes, provision, dispatchers, dir: _, node, policy, provide } = args;
    let bad = |e: String| Fault::new(Exit::BadInput, e);
    let mut all: Vec<Fault> = check_provisioning(args).err().into_iter().collect();
    if nodes.are_fixed() && (provision.provisioning.is_some() || provision.idle_release.is_some()) {
        let message =
            format!("--provisioning and --idle-release have nothing to decide with --nodes {}", nodes.max);
        all.push(bad(message).hint("a range, such as --nodes 1..4, lets nodes come and go"));
    }
    if nodes.max < *dispatchers {
        let message =
            format!("{dispatchers} dispatchers need at least as many nodes, --nodes allows {}", nodes.max);
        all.push(bad(message).hint("each dispatcher has nodes of its own"));
    }
    if !policy.cluster_resources.is_empty() && *dispatchers > 1 {
        let message = format!("{dispatchers} dispatchers cannot share --cluster-resource");
        all.push(bad(message).hint("one dispatcher counts what the whole cluster has"));
    }
    if node.gpus.is_some() && !provide.is_elsewhere() && !nodes.are_fixed() && nodes.max > 1 {
        let message = "the gpus of this machine cannot be shared among nodes that come and go".into();
        all.push(bad(message).hint("give a number of nodes, such as --nodes 2"));
    }
    all.extend(check_policy(policy).err());
    all.extend(provide::faults(provide, *nodes, *dispatchers));
    let of_node = match provide.is_elsewhere() {
        // Its folders are other machines'.
        true => check_eviction(node),
        false => check_node(node),
    };
    all.extend(of_node.err());
    all
}

/// Whether the user asked for a cluster of a certain shape.
pub fn is_shaped(cluster: &ClusterArgs) -> bool {
    let ClusterArgs { profile, nodes, provision, dispatchers, dir, node, policy, provide } = cluster;
    profile.is_some()
        || provide.is_elsewhere()
        || *nodes != Nodes::fixed(1)
        || *dispatchers != 1
        || provision.provisioning.is_some()
        || provision.idle_release.is_some()
        || dir.is_some()
        || node.slots.is_some()
        || node.memory.is_some()
        || node.gpus.is_some()
        || !node.resources.is_empty()
        || !policy.cluster_resources.is_empty()
        || !node.home_local.is_empty()
        || provide.node_dir.is_some()
        || policy.home_streams.is_some()
        || policy.home_rate.is_some()
        || node.cache != 4 << 30
        || node.eviction != "lru"
        || policy.placement != placement::affinity::NAME
        || policy.collectives != CollectiveMode::Auto
}

pub fn dispatcher_config(policy: &PolicyArgs) -> DispatcherConfig {
    DispatcherConfig {
        placement: policy.placement.clone(),
        placement_config: placement::Config {
            window: policy.window,
            utilisation_threshold: policy.utilisation_threshold,
            ..placement::Config::default()
        },
        lease_ns: policy.lease,
        collectives: policy.collectives,
        keep_runs: policy.keep_runs,
        resources: equipment::by_name(&policy.cluster_resources).unwrap_or_default(),
        ..DispatcherConfig::default()
    }
}

/// A folder for one embedded run.
pub fn new_run_dir() -> Result<PathBuf, Fault> {
    let runs = state_dir()?.join("runs");
    std::fs::create_dir_all(&runs)?;
    let stamp = eyas_runtime::clock::now().0 / 1_000_000;
    let dir = runs.join(format!("{stamp}-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    Ok(dir)
}

/// Starts the processes of a local cluster in `dir`.
pub fn start(args: &ClusterArgs, dir: &Path, embedded: bool) -> Result<LocalCluster, Fault> {
    let (plan, _) = plan(args, dir, embedded)?;
    let _starting = starting::hold(&plan.dir)?;
    Ok(LocalCluster::start(&plan)?)
}

/// The folders of a cluster's nodes.
pub fn node_dirs(dir: &Path) -> Vec<PathBuf> {
    let is_node = |e: &std::fs::DirEntry| e.file_name().as_encoded_bytes().starts_with(b"node");
    let nodes = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(is_node);
    nodes.map(|e| e.path()).collect()
}

/// The parts of a local cluster in `dir`, and the absolute path of `dir`, which is created.
pub fn plan(args: &ClusterArgs, dir: &Path, embedded: bool) -> Result<(Plan, PathBuf), Fault> {
    check(args)?;
    provide::check_tools(&args.provide)?;
    let fail = |e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot use the directory {}: {}", shown_path(dir), reason(&e)))
    };
    let dispatcher = dispatcher_dir(dir);
    std::fs::create_dir_all(&dispatcher).map_err(fail)?;
    let dir = dir.canonicalize().map_err(fail)?;
    let dispatcher = dispatcher_dir(&dir);
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let slots = args.node.slots.unwrap_or((processors / args.nodes.max).max(1));
    let memory = args
        .node
        .memory
        .unwrap_or(eyas_runtime::executor::machine_memory_bytes() / u64::from(args.nodes.max));
    let node = NodeArgs {
        slots: Some(slots),
        memory: Some(memory),
        home_local: args.node.home_local.iter().map(|d| d.canonicalize().unwrap_or(d.clone())).collect(),
        ..args.node.clone()
    };
    let join = dispatcher.join(eyas_runtime::dispatcher::JOIN_FILE);

    let dispatcher_args = |number: u32| -> (PathBuf, Vec<String>) {
        let of = dispatcher_dir_of(&dir, number);
        let mut list = vec!["dispatcher".into(), "--dir".into(), of.display().to_string()];
        list.extend(args.provide.dispatcher_words());
        list.extend(policy_arguments(&policy_share(&args.policy, args.dispatchers)));
        if args.dispatchers > 1 {
            list.extend(["--member".into(), format!("{number}/{}", args.dispatchers)]);
        }
        if number > 1 {
            list.extend(["--group".into(), join.display().to_string()]);
        }
        (of, list)
    };
    let mut plan = Plan {
        exe: program()?,
        dir: dispatcher,
        dispatchers: (1..=args.dispatchers).map(dispatcher_args).collect(),
        executor_args: vec![],
        provider_args: None,
        embedded,
        lease_ns: args.policy.lease,
    };
    if args.provide.is_elsewhere() {
        plan.provider_args = Some(provide::arguments(&join, &dir, args, node_arguments(&args.node)));
    } else if args.nodes.are_fixed() {
        let scratch = args.provide.local_scratch()?;
        let words = |i| {
            let gpu_names = equipment::gpu_names(node.gpus, i - 1, args.nodes.max);
            executor_arguments(&join, &dir, &node_name(i), &scratch, &NodeArgs { gpu_names, ..node.clone() })
        };
        plan.executor_args = (1..=args.nodes.max).map(words).collect();
    } else {
        plan.provider_args = Some(provide::arguments(&join, &dir, args, node_arguments(&node)));
    }
    Ok((plan, dir))
}

/// What the name of a node of this machine begins with.
pub const NODE: &str = "node";

/// The folder among a machine's temporary files that nodes of this user have theirs in; a script of the provider makes it.
pub fn nodes_dir_name() -> String {
    // SAFETY: a plain query.
    format!("eyas-nodes-{}", unsafe { libc::getuid() })
}

/// The name that users know the node with that number by; also the name of its folder.
pub fn node_name(number: u32) -> String {
    format!("{NODE}{number}")
}

/// The command line of one node's executor. `scratch`: as [`crate::args::ProvideArgs::local_scratch`] gives it.
pub fn executor_arguments(
    join: &Path,
    dir: &Path,
    name: &str,
    scratch: &[String],
    node: &NodeArgs,
) -> Vec<String> {
    let mut list = vec!["executor".into(), "--join".into(), join.display().to_string()];
    list.extend(["--dir".into(), dir.join(name).display().to_string()]);
    list.extend(["--name".into(), name.into()]);
    list.extend_from_slice(scratch);
    list.extend(node_arguments(node));
    list
}

/// The options of an executor that are the same for all nodes.
pub fn node_arguments(node: &NodeArgs) -> Vec<String> {
    let NodeArgs { slots, cache, memory, gpus, resources, gpu_names, eviction, grace, home_local } = node;
    let mut list = vec!["--cache".into(), cache.to_string(), "--eviction".into(), eviction.clone()];
    if let Some(slots) = slots {
        list.extend(["--slots".into(), slots.to_string()]);
    }
    if let Some(memory) = memory {
        list.extend(["--memory".into(), memory.to_string()]);
    }
    if !gpu_names.is_empty() {
        list.extend(["--gpu-names".into(), gpu_names.join(",")]);
    } else if let Some(gpus) = gpus {
        list.extend(["--gpus".into(), gpus.to_string()]);
    }
    for amount in resources {
        list.extend(["--resource".into(), amount.to_string()]);
    }
    if *grace > 0 {
        list.extend(["--grace".into(), format!("{}ms", grace.div_ceil(1_000_000))]);
    }
    for local in home_local {
        list.extend(["--home-local".into(), local.display().to_string()]);
    }
    list
}

/// The settings that decide how many nodes a local cluster has. `slots` are those of one node.
pub fn provision_config(nodes: Nodes, args: &ProvisionArgs, slots: u32) -> ProvisionConfig {
    let default = ProvisionConfig::default();
    ProvisionConfig {
        policy: args.provisioning.clone().unwrap_or(default.policy),
        nodes_min: nodes.min,
        nodes_max: nodes.max,
        release_idle_ns: args.idle_release.or(default.release_idle_ns),
        slots_per_node: slots,
        // A local node is restarted within a moment, and still has its cache.
        warm_share: 0.0,
        ..default
    }
}

fn policy_arguments(policy: &PolicyArgs) -> Vec<String> {
    let mut list = vec![
        "--placement".into(),
        policy.placement.clone(),
        "--window".into(),
        policy.window.to_string(),
        "--utilisation-threshold".into(),
        policy.utilisation_threshold.to_string(),
        "--collectives".into(),
        policy.collectives.name().into(),
        "--lease".into(),
        format!("{}ms", policy.lease / 1_000_000),
    ];
    if let Some(streams) = policy.home_streams {
        list.extend(["--home-streams".into(), streams.to_string()]);
    }
    if let Some(rate) = policy.home_rate {
        list.extend(["--home-rate".into(), rate.to_string()]);
    }
    for amount in &policy.cluster_resources {
        list.extend(["--cluster-resource".into(), amount.to_string()]);
    }
    if policy.no_event_log {
        list.push("--no-event-log".into());
    }
    list.extend(["--keep-runs".into(), shown_rule(policy.keep_runs)]);
    list
}

/// The form that `--keep-runs` accepts.
fn shown_rule(rule: Option<KeepRuns>) -> String {
    let Some(KeepRuns { n_runs, age_ns }) = rule else { return "all".into() };
    let age = age_ns.map(|ns| format!("{ns}ns"));
    n_runs.map(|n| n.to_string()).into_iter().chain(age).collect::<Vec<_>>().join(",")
}
