//! `eyas up` and `eyas down`: a local cluster that stays.
//!
//! `up` makes the cluster whole: it starts the dispatchers that are not there and the nodes that are missing, and takes over those that
//! are. So it brings a cluster back whose dispatcher was killed (its nodes live on for the length of their lease, and come
//! back with what they run), and one that lost a node.

use crate::args::{ClusterArgs, JoinArgs, KeepArgs, ProvideArgs};
use crate::environment::EnvArgs;
use crate::help::{self, EXIT_STATUS};
use crate::print::plural;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, dirs, ending, local, provide, tmpfs};
use clap::Args;
use eyas_client::{Choice, Client, JoinFile, Target};
use eyas_cluster::dirs::{node_dirs, node_name};
use eyas_cluster::known::Kind;
use eyas_cluster::plan::Plan;
use eyas_cluster::processes::Processes;
use eyas_cluster::provide::may_leave_blocks;
use eyas_cluster::reach::PATIENCE;
use eyas_cluster::remains::sweep_homes;
use eyas_cluster::{kept, starting};
use eyas_net::NetError;
use eyas_runtime::locks::{dispatcher_lock, holder_of};
use eyas_runtime::part::in_words;
use eyas_terms::NodeState;
use eyas_text::{shown, shown_path};
use eyas_wire::message::ClusterStatus;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a node may take to join, besides the lease of one that was there before.
const JOIN_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Args)]
#[command(
    mut_args(|arg| help::short(arg, &["profile", "nodes", "slots", "cache", "memory", "gpus", "dir", "provider", "env", "keep-runs"])),
    after_help = help::MORE,
    after_long_help = EXIT_STATUS
)]
pub struct UpArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub env: EnvArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
}

pub fn up(args: UpArgs) -> Result<Exit, Fault> {
    let dir = match &args.cluster.dir {
        Some(dir) => dir.clone(),
        None => dirs::default_cluster_dir()?,
    };
    let mut args = args;
    args.cluster.provide = args.provide;
    args.cluster.policy.keep_runs = args.keep.rule();
    // Nodes of this machine have the variables of this process.
    match args.cluster.provide.is_elsewhere() {
        true => args.cluster.provide.setup.extend(args.env.lines()?),
        false => args.env.set()?,
    }
    provide::check_tools(&args.cluster)?;
    let plan = local::plan(&args.cluster, &dir, false)?;
    let dir = plan.cluster_dir();
    let _starting = starting::hold(&plan.dir)?;
    provide::sweep_keys();
    let elsewhere = args.cluster.provide.is_elsewhere();
    if !elsewhere {
        tmpfs::say_so(dir, args.cluster.node.cache.saturating_mul(u64::from(args.cluster.nodes.max)));
    }
    let file = JoinFile::new(plan.join_of(0), Choice::Own);
    let join = file.path();
    let nodes = args.cluster.nodes;
    client_runtime().block_on(async {
        let Some(dispatchers) = await_dispatchers(&plan).await else {
            let pid = holder_of(&plan.lock_of(0)).unwrap_or_default();
            let message =
                format!("process {pid} has the cluster in {} and does not answer", shown_path(dir));
            return Err(Fault::new(Exit::Cluster, message)
                .hint("it may be on its way to its end: try again, or end that process"));
        };
        let was_up = dispatchers.is_empty();
        // The join file goes when a cluster ends in order.
        let killed = kept::provider(&plan.dir).filter(|_| !was_up && !elsewhere && join.exists());
        if let Some(kind) = killed {
            let message = format!("the cluster in {} was killed; its nodes came from --provider {kind}", shown_path(dir));
            let hint = "`eyas up` with the options that it had goes on with its work; `eyas down` ends what is left of it, and \
                        then `eyas up` starts it with nodes of this machine";
            return Err(Fault::new(Exit::Cluster, message).hint(hint));
        }
        let mut cluster = Processes::default();
        cluster.start_dispatchers(&plan, &dispatchers)?;
        let mut client = Client::connect(&file.read()?).await?;
        let mut has_started_provider = false;
        if plan.provider_args.is_none() {
            // Somebody else decides about the nodes of that cluster, and only the kept words say how its blocks are ended.
            let may_leave = |words: Vec<String>| may_leave_blocks(&words);
            let has_blocks = kept::words(&plan.dir).is_some_and(may_leave);
            if was_up && (has_blocks || client.status().await?.provisioner.is_some()) {
                return Err(is_up_already(dir));
            }
            kept::keep(&plan.dir, None)?;
        }
        if plan.provider_args.is_some() {
            // Whoever starts and ends nodes may have been killed alone, or may have outlived the dispatcher.
            let has_provider = has_provider(&mut client, &plan).await?;
            if was_up && has_provider {
                return Err(is_up_already(dir));
            }
            if !has_provider {
                if !elsewhere {
                    await_free_nodes(dir).await?;
                }
                kept::keep(&plan.dir, plan.provider_args.as_deref())?;
                cluster.start_provider(&plan)?;
                has_started_provider = true;
            }
        }
        let started = fill(&mut client, &mut cluster, &plan, dir).await?;
        // Ready means that all nodes have joined which are there without work, and that whoever starts the others has.
        loop {
            let status = client.status().await?;
            let has_provisioner = plan.provider_args.is_none() || status.provisioner.is_some();
            // How long a queue of nodes elsewhere is, nobody knows.
            let has_nodes = elsewhere || connected(&status).count() >= nodes.min as usize;
            if has_provisioner && has_nodes {
                break;
            }
            if let Some((name, why)) = cluster.find_ended() {
                return Err(Fault::new(Exit::Cluster, format!("{} ended: {why}", in_words(&name))));
            }
            tokio::time::sleep(PAUSE).await;
        }
        cluster.detach();
        say_what_goes_on(&client.status().await?);
        if was_up && started.is_empty() && !has_started_provider {
            return Err(is_up_already(dir));
        }
        clusters::known()?.remember(dir, Kind::Up)?;
        let mut out = eyas_text::raw_unless_terminal();
        if was_up && has_started_provider {
            writeln!(out, "what starts and ends nodes was started again; the rest of the cluster was up")?;
        } else if elsewhere {
            let described = provide::describe(nodes, &args.cluster.provide);
            writeln!(out, "{described}; join file: {}", join.display())?;
        } else if was_up {
            writeln!(out, "{} started; the rest of the cluster was up", started.join(", "))?;
        } else {
            let at_most = if nodes.are_fixed() { String::new() } else { format!(", at most {}", nodes.max) };
            let up = plural(u64::from(nodes.min), "node");
            writeln!(out, "{up} up{at_most}; join file: {}", join.display())?;
        }
        Ok(Exit::Good)
    })
}

/// Whether somebody starts and ends nodes. One who has lost the dispatcher comes back to it, or ends.
async fn has_provider(client: &mut Client, plan: &Plan) -> Result<bool, Fault> {
    let deadline = Instant::now() + JOIN_MAX + Duration::from_nanos(plan.lease_ns);
    loop {
        if client.status().await?.provisioner.is_some() {
            return Ok(true);
        }
        let Some(pid) = holder_of(&plan.provider_lock()) else { return Ok(false) };
        if Instant::now() > deadline {
            let message = format!("process {pid}, of before, starts and ends nodes, and does not answer");
            return Err(Fault::new(Exit::Cluster, message).hint("end that process, then try again"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs of before, which a cluster goes on with, may be somebody's of long ago.
fn say_what_goes_on(status: &ClusterStatus) {
    for run in status.runs.iter().filter(|run| run.ended.is_none()) {
        let n_left = run.n_tasks - run.n_done - run.n_failed - run.n_cancelled;
        eyas_text::say!(
            "note: the cluster goes on with run {}, {}, of which {} left; `eyas cancel --run {}` ends it",
            run.run,
            shown(&run.name),
            if n_left == 1 { "1 task is".into() } else { format!("{} are", plural(n_left, "task")) },
            run.run
        );
    }
}

fn is_up_already(dir: &Path) -> Fault {
    let message = format!("a cluster is up already in {}", shown_path(dir));
    Fault::new(Exit::Cluster, message).hint("`eyas down` ends it, `eyas status` shows it")
}

/// The dispatchers whose directories no process has.
fn missing_dispatchers(plan: &Plan) -> Vec<usize> {
    (0..plan.dispatchers.len()).filter(|i| holder_of(&plan.lock_of(*i)).is_none()).collect()
}

/// Waits until the first dispatcher answers, which may just have been started, or a dispatcher is missing: one that has
/// just been killed may take a moment to be gone. Gives those that are missing, or `None` if neither came.
async fn await_dispatchers(plan: &Plan) -> Option<Vec<usize>> {
    let file = JoinFile::new(plan.join_of(0), Choice::Own);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let missing = missing_dispatchers(plan);
        if !missing.is_empty() {
            return Some(missing);
        }
        if let Ok(target) = file.read()
            && Client::connect(&target).await.is_ok()
        {
            return Some(missing);
        }
        if Instant::now() > deadline {
            return None;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn connected(status: &ClusterStatus) -> impl Iterator<Item = &str> {
    status.executors.iter().filter(|e| e.state != NodeState::Silent).map(|e| e.name.as_str())
}

/// Starts the nodes of `plan` that are not there, and waits until all have joined. One that is there, from before the
/// dispatcher was killed, joins by itself or ends when its lease does; then another one takes its place. Gives the names of those that
/// were started.
async fn fill(
    client: &mut Client,
    cluster: &mut Processes,
    plan: &Plan,
    dir: &Path,
) -> Result<Vec<String>, Fault> {
    let names = (1..=plan.executor_args.len() as u32).map(node_name);
    let mut missing: BTreeMap<String, usize> = names.enumerate().map(|(i, name)| (name, i)).collect();
    let deadline = Instant::now() + JOIN_MAX + Duration::from_nanos(plan.lease_ns);
    let (mut started, mut taken_over) = (vec![], BTreeMap::new());
    loop {
        let status = client.status().await?;
        for name in connected(&status) {
            missing.remove(name);
        }
        if missing.is_empty() {
            break;
        }
        for (name, i) in &missing {
            let holder = holder_of(&dir.join(name).join("cache/lock"));
            if started.contains(name) {
                if let Some(why) = cluster.end_of(name) {
                    return Err(Fault::new(Exit::Cluster, format!("{} ended: {why}", in_words(name))));
                }
            } else if let Some(pid) = holder {
                if taken_over.insert(name.clone(), pid).is_none() {
                    eyas_text::say!(
                        "note: {name} (process {pid}) is there from before; it joins again, or ends within its lease"
                    );
                }
            } else {
                cluster.start_node(plan, *i)?;
                started.push(name.clone());
            }
        }
        if Instant::now() > deadline {
            let (name, _) = missing.iter().next().expect("some are missing");
            let log = plan.dir.join(format!("{name}.log"));
            let message = match taken_over.get(name) {
                Some(pid) if !started.contains(name) => {
                    format!(
                        "{name} (process {pid}) is left from the earlier cluster; it neither joins nor ends"
                    )
                }
                _ => format!("{name} has not joined within {} s", JOIN_MAX.as_secs()),
            };
            return Err(Fault::new(Exit::Cluster, message).hint(format!("see {}", shown_path(&log))));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(started)
}

/// Where nodes come and go, those of before end with the part that started them.
async fn await_free_nodes(dir: &Path) -> Result<(), Fault> {
    let deadline = Instant::now() + JOIN_MAX;
    let mut has_said = false;
    loop {
        let held = |node: &PathBuf| holder_of(&node.join("cache/lock"));
        let nodes = node_dirs(dir);
        let Some((node, pid)) = nodes.iter().find_map(|node| Some((node, held(node)?))) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            let message = format!("process {pid}, of before, still uses {}", shown_path(node));
            return Err(Fault::new(Exit::Cluster, message).hint("end that process, then try again"));
        }
        if !std::mem::replace(&mut has_said, true) {
            eyas_text::say!("note: waiting for the nodes of before to end");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub fn down(args: JoinArgs) -> Result<Exit, Fault> {
    let file = match clusters::work_join(&args) {
        Ok(file) => file,
        Err(fault) => clusters::killed_join(kept::is_kept).ok_or(fault)?,
    };
    // A dispatcher may still run whose file cannot be read, so the file stays.
    let target = file.read()?;
    let path = target.path();
    client_runtime().block_on(async {
        let mut client = match Client::connect(&target).await {
            Ok(client) => client,
            Err(e @ (NetError::Connect { .. } | NetError::NoAnswer { .. })) => {
                if let Some(exit) = end_killed(&target)? {
                    return Ok(exit);
                }
                let hint = format!("nobody answers; if the cluster was killed, remove {}", shown_path(path));
                return Err(Fault::from(e).hint(hint));
            }
            Err(e) => return Err(e.into()),
        };
        let n_unfinished: u64 = match client.status().await {
            Ok(status) => status.runs.iter().map(|r| r.n_tasks - r.n_ended()).sum(),
            Err(_) => 0,
        };
        client.shut_down().await?;
        // The join file goes when the dispatcher does.
        let deadline = Instant::now() + Duration::from_secs(10);
        while path.exists() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // A local cluster's nodes lie beside its dispatcher.
        if let Some(dir) = path.parent().and_then(Path::parent) {
            sweep_homes(dir);
        }
        if let Some(dir) = target.dir_here() {
            ending::await_provider(dir, target.cluster())?;
        }
        writeln!(eyas_text::stdout(), "the cluster has ended")?;
        if n_unfinished > 0 {
            let tasks = plural(n_unfinished, "task");
            eyas_text::say!(
                "note: {tasks} had not ended; the same `eyas up` goes on with what was submitted"
            );
        }
        Ok(Exit::Good)
    })
}

/// Ends what is left of a cluster whose dispatcher and provider were killed. `None`: it is none of that kind.
fn end_killed(target: &Target) -> Result<Option<Exit>, Fault> {
    let dir = target.dir();
    let is_there = holder_of(&dispatcher_lock(dir)).is_some();
    if is_there || !kept::is_kept(dir) {
        return Ok(None);
    }
    ending::await_provider(dir, target.cluster())?;
    let _ = std::fs::remove_file(target.path());
    writeln!(eyas_text::stdout(), "the cluster had been killed, and its nodes have ended")?;
    Ok(Some(Exit::Good))
}
