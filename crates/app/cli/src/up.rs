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
use crate::{Exit, Fault, clusters, dirs, local, provide, tmpfs};
use clap::Args;
use eyas_cluster::kept;
use eyas_cluster::known::Kind;
use eyas_cluster::standing::{JOIN_MAX, NotEnded, NotWhole, Waited, end_standing, make_whole};
use eyas_runtime::part::in_words;
use eyas_text::{shown, shown_path};
use eyas_wire::message::ClusterStatus;
use std::io::Write;
use std::path::Path;

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
    provide::sweep_keys();
    let elsewhere = plan.is_elsewhere;
    if !elsewhere {
        tmpfs::say_so(dir, args.cluster.node.cache.saturating_mul(u64::from(args.cluster.nodes.max)));
    }
    let whole = client_runtime().block_on(make_whole(&plan, say_waited)).map_err(|e| not_whole(e, dir))?;
    say_what_goes_on(&whole.status);
    if whole.was_whole() {
        return Err(is_up_already(dir));
    }
    clusters::known()?.remember(dir, Kind::Up)?;
    let (join, nodes) = (plan.join_of(0), args.cluster.nodes);
    let mut out = eyas_text::raw_unless_terminal();
    if whole.was_up && whole.has_started_provider {
        writeln!(out, "what starts and ends nodes was started again; the rest of the cluster was up")?;
    } else if elsewhere {
        let described = provide::describe(nodes, &args.cluster.provide);
        writeln!(out, "{described}; join file: {}", join.display())?;
    } else if whole.was_up {
        writeln!(out, "{} started; the rest of the cluster was up", whole.started.join(", "))?;
    } else {
        let at_most = if nodes.are_fixed() { String::new() } else { format!(", at most {}", nodes.max) };
        let up = plural(u64::from(nodes.min), "node");
        writeln!(out, "{up} up{at_most}; join file: {}", join.display())?;
    }
    Ok(Exit::Good)
}

fn say_waited(waited: Waited) {
    match waited {
        Waited::Node { name, pid } => {
            eyas_text::say!(
                "note: {name} (process {pid}) is there from before; it joins again, or ends within its lease"
            );
        }
        Waited::EndsOfNodes => eyas_text::say!("note: waiting for the nodes of before to end"),
    }
}

/// Why the cluster in this folder is not whole, in words.
fn not_whole(why: NotWhole, dir: &Path) -> Fault {
    let fault = |message: String, hint: String| Fault::new(Exit::Cluster, message).hint(hint);
    let again = "end that process, then try again".to_string();
    match why {
        NotWhole::Starting(e) => e.into(),
        NotWhole::Process(e) => e.into(),
        NotWhole::Net(e) => e.into(),
        NotWhole::NotKept(e) => e.into(),
        NotWhole::IsUp => is_up_already(dir),
        NotWhole::Silent { pid } => fault(
            format!("process {pid} has the cluster in {} and does not answer", shown_path(dir)),
            "it may be on its way to its end: try again, or end that process".into(),
        ),
        NotWhole::KilledElsewhere { kind } => fault(
            format!("the cluster in {} was killed; its nodes came from --provider {kind}", shown_path(dir)),
            "`eyas up` with the options that it had goes on with its work; `eyas down` ends what is left of it, and \
             then `eyas up` starts it with nodes of this machine"
                .into(),
        ),
        NotWhole::SilentProvider { pid } => {
            fault(format!("process {pid}, of before, starts and ends nodes, and does not answer"), again)
        }
        NotWhole::NodeStays { pid, node } => {
            fault(format!("process {pid}, of before, still uses {}", shown_path(&node)), again)
        }
        NotWhole::PartEnded { name, why } => {
            Fault::new(Exit::Cluster, format!("{} ended: {why}", in_words(&name)))
        }
        NotWhole::NotJoined { name, of_before, log } => {
            let message = match of_before {
                Some(pid) => {
                    format!(
                        "{name} (process {pid}) is left from the earlier cluster; it neither joins nor ends"
                    )
                }
                None => format!("{name} has not joined within {} s", JOIN_MAX.as_secs()),
            };
            fault(message, format!("see {}", shown_path(&log)))
        }
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

pub fn down(args: JoinArgs) -> Result<Exit, Fault> {
    let file = match clusters::work_join(&args) {
        Ok(file) => file,
        Err(fault) => clusters::killed_join(kept::is_kept).ok_or(fault)?,
    };
    // A dispatcher may still run whose file cannot be read, so the file stays.
    let target = file.read()?;
    let slow = |most: std::time::Duration| {
        eyas_text::say!("ending the nodes, for at most {} s", most.as_secs());
    };
    let ended = client_runtime().block_on(end_standing(&target, slow)).map_err(|why| match why {
        NotEnded::Nobody(e) => {
            let path = shown_path(target.path());
            Fault::from(e).hint(format!("nobody answers; if the cluster was killed, remove {path}"))
        }
        NotEnded::Net(e) => e.into(),
        NotEnded::StillEnding { pid } => {
            let message = format!("the cluster has ended, and process {pid} still ends nodes of it");
            let log = target.dir().join("provider.log");
            Fault::new(Exit::Cluster, message).hint(format!("see {}", shown_path(&log)))
        }
        NotEnded::Left(left) => {
            let left = left.join("; ");
            let message = format!("the cluster has ended, and something of it may be left: {left}");
            Fault::new(Exit::Cluster, message).hint("end it by the means of the batch system")
        }
        NotEnded::Provide(e) => e.into(),
    })?;
    match ended.was_killed {
        true => writeln!(eyas_text::stdout(), "the cluster had been killed, and its nodes have ended")?,
        false => writeln!(eyas_text::stdout(), "the cluster has ended")?,
    }
    if ended.n_unfinished > 0 {
        let tasks = plural(ended.n_unfinished, "task");
        eyas_text::say!("note: {tasks} had not ended; the same `eyas up` goes on with what was submitted");
    }
    Ok(Exit::Good)
}
