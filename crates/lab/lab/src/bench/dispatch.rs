//! `eyas-lab bench dispatch`: tasks through a real dispatcher and a real executor, with two slots or as many as are asked for.
//!
//! Four questions. How many programs run per second, beside as many bare `posix_spawn` loops? What share of the
//! processors does the dispatcher take for one task? How many tasks per second that start nothing do the
//! protocol and the two state machines allow? How long after its placement does a program start whose input
//! is cached?

use super::cluster::{Cluster, RunCost, Shape, plain_array, template};
use super::table::{Row, Table};
use super::{Common, failed, median, note, quantile};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::event::{Action, Event};
use eyas_core::log::{EVENTS_FILE, Line, What};
use eyas_terms::array::{Command, Pattern, TaskArray};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

const N_WARM_UP: u32 = 500;

#[derive(Args)]
pub struct DispatchArgs {
    /// Number of tasks of each round; each task starts /bin/true
    #[arg(short, long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..))]
    n: u32,
    /// Number of rounds; each has a bare loop, a run with an event log and a run without one; 0 leaves this part out
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Number of tasks that start nothing; 0 leaves this part out
    #[arg(long, default_value_t = 1_000_000)]
    noop: u32,
    /// Number of tasks with a cached input, which run one after the other; 0 leaves this part out
    #[arg(long, default_value_t = 300)]
    hits: u32,
    /// Number of dispatchers; each has an executor of its own, and all share the slots
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    dispatchers: u32,
    /// Number of slots, and of bare loops
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    slots: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &DispatchArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let slots = args.slots;
        let mut table = Table::new(match args.dispatchers {
            1 => format!("dispatch: one dispatcher, one executor with {slots} slots, TLS over loopback"),
            n => format!(
                "dispatch: {n} dispatchers, {n} executors that share {slots} slots, TLS over loopback"
            ),
        });
        let mut clusters = Clusters::start(dir, args)?;
        if args.rounds > 0 {
            programs(args, &mut clusters, &mut table)?;
        }
        if args.noop > 0 {
            no_ops(args.noop, &mut clusters, &mut table)?;
        }
        clusters.stop();
        if args.hits > 0 {
            hits(args.hits, args.slots, dir, &mut table)?;
        }
        Ok(table)
    })
}

/// One cluster with an event log and one without; the cluster that waits costs next to nothing.
struct Clusters {
    logged: Cluster,
    bare: Cluster,
}

impl Clusters {
    fn start(dir: &Path, args: &DispatchArgs) -> Result<Clusters, Fault> {
        let logged = Cluster::start(&dir.join("logged"), &shape(true, args.dispatchers, args.slots))?;
        let bare = Cluster::start(&dir.join("bare"), &shape(false, args.dispatchers, args.slots))?;
        Ok(Clusters { logged, bare })
    }

    fn stop(self) {
        self.logged.stop();
        self.bare.stop();
    }
}

fn shape(event_log: bool, dispatchers: u32, slots: u32) -> Shape {
    let placement = eyas_core::placement::good_cache_compute::NAME.into();
    let slots = (slots / dispatchers).max(1);
    Shape { nodes: dispatchers, slots, cache_bytes: 64 << 20, placement, event_log, dispatchers }
}

fn programs(args: &DispatchArgs, clusters: &mut Clusters, table: &mut Table) -> Result<(), Fault> {
    let n = args.n;
    let warm_up = [Arc::new(plain_array(N_WARM_UP, &["/bin/true"]))];
    clusters.logged.run(&warm_up)?;
    clusters.bare.run(&warm_up)?;
    let array = [Arc::new(plain_array(n, &["/bin/true"]))];
    let (mut bare, mut bare_cpu) = (vec![], vec![]);
    let (mut logged, mut unlogged) = (Rounds::default(), Rounds::default());
    for round in 1..=args.rounds {
        let spawned = eyas_runner::bench::bare_spawn_rate(n, args.slots).map_err(failed)?;
        bare.push(spawned.tasks_per_s);
        bare_cpu.push(spawned.cpu_ns_per_task as f64 / 1e3);
        logged.take(n, &clusters.logged.run(&array)?, spawned.tasks_per_s);
        unlogged.take(n, &clusters.bare.run(&array)?, spawned.tasks_per_s);
        note(&format!(
            "round {round}: bare {:.0}/s, eyas {:.0}/s, without event log {:.0}/s",
            spawned.tasks_per_s,
            logged.rates.last().copied().unwrap_or(0.0),
            unlogged.rates.last().copied().unwrap_or(0.0)
        ));
    }
    let (bare, bare_cpu) = (median(&bare), median(&bare_cpu));
    for (name, rounds) in [("", &logged), (", no event log", &unlogged)] {
        let rate = Row::new(format!("/bin/true, {n} tasks{name}"), median(&rounds.rates), "/s").against_by(
            "as many bare spawners",
            bare,
            median(&rounds.ratios),
        );
        let own = Row::new(format!("  dispatcher CPU{name}"), median(&rounds.dispatcher_us), "µs/task");
        let all =
            Row::new(format!("  all CPU{name}"), median(&rounds.all_us), "µs/task").against("bare", bare_cpu);
        table.row(rate.target("ratio 0.70", "0.90"));
        table.row(own.target("25 µs", "10 µs"));
        table.row(all);
    }
    Ok(())
}

#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    ratios: Vec<f64>,
    dispatcher_us: Vec<f64>,
    all_us: Vec<f64>,
}

impl Rounds {
    fn take(&mut self, n: u32, cost: &RunCost, bare_per_s: f64) {
        let rate = cost.rate_per_s(n.into());
        self.rates.push(rate);
        self.ratios.push(rate / bare_per_s);
        self.dispatcher_us.push(cost.dispatcher_cpu_ns as f64 / 1e3 / f64::from(n));
        self.all_us.push(cost.all_cpu_ns as f64 / 1e3 / f64::from(n));
    }
}

fn no_ops(n: u32, clusters: &mut Clusters, table: &mut Table) -> Result<(), Fault> {
    let array = [Arc::new(plain_array(n, &[]))];
    for (name, cluster) in [(", no event log", &mut clusters.bare), ("", &mut clusters.logged)] {
        note(&format!("{n} no-op tasks{name}"));
        let cost = cluster.run(&array)?;
        let per_task = |ns: u64| ns as f64 / 1e3 / f64::from(n);
        let rate = Row::new(format!("no-op, {n} tasks{name}"), cost.rate_per_s(n.into()), "/s");
        table.row(rate.target("50,000/s", "150,000/s"));
        table.row(Row::new(format!("  dispatcher CPU{name}"), per_task(cost.dispatcher_cpu_ns), "µs/task"));
        table.row(Row::new(format!("  all CPU{name}"), per_task(cost.all_cpu_ns), "µs/task"));
        table.row(Row::new("  dispatcher memory after it", cost.dispatcher_rss_bytes as f64 / 1e6, "MB"));
    }
    Ok(())
}

/// Tasks that read one cached file. Each is submitted when the one before has ended, so that none waits for
/// a slot. The times are those of the event log.
fn hits(n: u32, slots: u32, dir: &Path, table: &mut Table) -> Result<(), Fault> {
    note(&format!("{n} tasks with a cached input"));
    let input = dir.join("input");
    std::fs::write(&input, vec![7; 1 << 20])?;
    let mut cluster = Cluster::start(&dir.join("hits"), &shape(true, 1, slots))?;
    let inputs = vec![(Pattern::literal("input"), Pattern::literal(input.display().to_string()))];
    let command = Command::Exec(vec![Pattern::literal("/bin/true")]);
    let array = TaskArray {
        n_tasks: 1,
        first_index: 0,
        template: template(command, inputs),
        columns: vec![],
        needs: None,
    };
    let array = [Arc::new(array)];
    for _ in 0..=n {
        cluster.run(&array)?;
    }
    let log = cluster.stop().join(EVENTS_FILE);
    let mut placed = HashMap::new();
    let mut waits_us = vec![];
    for line in BufReader::new(std::fs::File::open(log)?).lines().skip(1) {
        let line: Line = serde_json::from_str(&line?).map_err(failed)?;
        match line.what {
            What::Out(Action::Assign { assignment, .. }) => {
                placed.insert(assignment.task, line.t);
            }
            What::In(Event::AttemptEnded { report, .. }) => {
                let hit = report.inputs.iter().all(|i| i.outcome == eyas_terms::CacheOutcome::LocalHit);
                if let Some(placed) = placed.remove(&report.task).filter(|_| hit) {
                    waits_us.push(report.times.started.since_ns(placed) as f64 / 1e3);
                }
            }
            _ => {}
        }
    }
    if waits_us.len() < n as usize {
        return Err(failed(format!("only {} of {n} tasks were cache hits", waits_us.len())));
    }
    let row = Row::new(format!("cache hit: placed to started, median of {n}"), median(&waits_us), "µs");
    table.row(row.target("1,000 µs", "300 µs"));
    table.row(Row::new("  the same, 99th percentile", quantile(&waits_us, 0.99), "µs"));
    Ok(())
}
