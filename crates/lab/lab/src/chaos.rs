//! `eyas-lab chaos`: worlds full of faults, in which every promise is checked.
//!
//! In: what kind of worlds, and their seeds. Out: how much they did; or, of the first world that breaks a promise, its
//! options and the end of its trace.
//!
//! Not here: the worlds (`eyas-testkit`).

use clap::Args;
use eyas_cli::print::{count, plural};
use eyas_cli::sim::bad;
use eyas_cli::{Exit, Fault};
use eyas_testkit::options::Options;
use eyas_testkit::process;
use eyas_testkit::world;
use std::io::Write;

#[derive(Args)]
pub struct ChaosArgs {
    /// Number of worlds
    #[arg(long, value_name = "N", default_value_t = 200)]
    seeds: u64,
    /// The seed of the first world
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Draw worlds without faults
    #[arg(long)]
    calm: bool,
    /// Worlds of workflows, whose tasks are linked by files that stay on the nodes
    #[arg(long)]
    workflows: bool,
    /// Worlds of several dispatchers, which are killed and cut off from each other, with tasks whose outputs follow from what
    /// they read
    #[arg(long, conflicts_with = "workflows")]
    groups: bool,
    /// Add to each world: `uneven`, nodes and tasks that differ much in slots and memory; `stops`, nodes whose process
    /// stops and goes on later, beyond its lease too; `clocks`, wall clocks that are wrong; `small`, caches and disks that are
    /// smaller than what tasks need; `scratch`, programs that fill their disk together; `forget`, ended runs that are
    /// forgotten; `equal`, files of the same bytes, which a cache keeps once; `walltimes`, nodes that end at their walltime; `owners`, files on the own disks of nodes; `warm`,
    /// nodes that begin with what another cluster has left on their disks; `resources`, tasks that need gpus and licences; `provided`, a
    /// large node that comes only when a provider brings it, and a provider that is killed; `users`, runs of several users who share
    /// the cluster; `sites`, nodes in three sites, which placement knows of; `islands`, nodes that reach the dispatcher and home, and
    /// not each other; `dispatchers`, several dispatchers, which are cut off from each other and from clients; `busy`, a home that
    /// takes a few requests in a second and refuses the others; `pushes`, runs that also want files of home on nodes; `calls`, runs without files, which
    /// start while a slow journal is written; `trees`, gathers and scatters that go along a tree of archives
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = Options::KINDS)]
    with: Vec<String>,
    /// Number of lines that are shown of the trace of a world that breaks a promise
    #[arg(long, value_name = "LINES", default_value_t = 40)]
    tail: usize,
}

/// Each world's seed and options are printed before it lives where there is one, and with the trace of one that
/// breaks a promise.
pub fn chaos(args: &ChaosArgs) -> Result<Exit, Fault> {
    let mut kind = String::new();
    for (given, name) in
        [(args.workflows, " --workflows"), (args.groups, " --groups"), (args.calm, " --calm")]
    {
        kind += if given { name } else { "" };
    }
    if !args.with.is_empty() {
        kind += &format!(" --with {}", args.with.join(","));
    }
    let draw = |seed| {
        let options = match (args.groups, args.workflows, args.calm) {
            (true, _, false) => Options::groups_from_seed(seed),
            (true, _, true) => Options::calm_groups(seed),
            (false, false, false) => Options::from_seed(seed),
            (false, false, true) => Options::calm(seed),
            (false, true, false) => Options::workflows_from_seed(seed),
            (false, true, true) => Options::calm_workflows(seed),
        };
        args.with.iter().try_fold(options, |o, kind| o.with(kind)).expect("clap knows the kinds")
    };
    live_through(args, &kind, draw)
}

/// Worlds one after the other, as `draw` makes them of their seeds, up to the first one that breaks a promise.
fn live_through(args: &ChaosArgs, kind: &str, draw: impl Fn(u64) -> Options) -> Result<Exit, Fault> {
    let Some(end) = args.from.checked_add(args.seeds).filter(|_| args.seeds > 0) else {
        return Err(bad("--seeds has to be at least 1, and the last seed below 2^64"));
    };
    // So many worlds are lived through here that the time of each counts.
    process::check_without_scans();
    let mut out = eyas_text::stdout();
    writeln!(out, "eyas {}, seeds {}..{end}{kind}", env!("CARGO_PKG_VERSION"), args.from)?;
    let (mut n_events, mut ends) = (0u64, [0u64; 4]);
    for seed in args.from..end {
        let options = draw(seed);
        if args.seeds == 1 {
            writeln!(out, "{options:?}")?;
        }
        match quietly(|| world::simulate(&options)) {
            Ok(s) => {
                n_events += s.n_events;
                for (sum, n) in ends.iter_mut().zip([s.n_done, s.n_failed, s.n_cancelled, s.n_revivals]) {
                    *sum += n;
                }
                if args.seeds == 1 {
                    writeln!(out, "trace hash {:016x}", s.trace_hash)?;
                }
            }
            Err(violation) => {
                writeln!(out, "{options:?}")?;
                let from = violation.tail.len().saturating_sub(args.tail);
                for line in &violation.tail[from..] {
                    writeln!(out, "{line}")?;
                }
                let message = format!("seed {seed} breaks a promise: {}", violation.message);
                return Err(Fault::new(Exit::TasksFailed, message).hint(format!(
                    "`eyas-lab chaos{kind} --seeds 1 --from {seed} --tail 400` shows it alone"
                )));
            }
        }
    }
    writeln!(
        out,
        "{}: all promises kept; {} events, {} tasks done, {} failed, {} cancelled, {} run again",
        plural(args.seeds, "world"),
        count(n_events),
        count(ends[0]),
        count(ends[1]),
        count(ends[2]),
        count(ends[3])
    )?;
    Ok(Exit::Good)
}

/// A machine that panics in a world is caught there and reported once, with the trace.
fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = f();
    std::panic::set_hook(hook);
    result
}
