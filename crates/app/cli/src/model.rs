//! `eyas model`: the abstract model of data diffusion (Raicu09 §3.1) for numbers that a user gives.
//!
//! In: a workload in a few numbers, a machine, and where accesses find their data. Out: the paper's quantities, what bounds the
//! time, and what a change would bring. Nothing is run or simulated; `eyas predict` does that.
//!
//! Not here: the model (`eyas_sim::model`).

use crate::args::{bytes, duration, rate};
use crate::print::{plural, size};
use crate::sim::{MachineArgs, bad, named_machine, per_cent, seconds};
use crate::{Exit, Fault, json};
use clap::Args;
use eyas_sim::machine::Machine;
use eyas_sim::model::expect::{Arrivals, Change, Expected, ExpectedArrivals, ModelWork, Reuse};
use eyas_sim::model::expect::{changes, expect, expect_arrivals};
use eyas_sim::model::predict::{self, Bottleneck};
use eyas_sim::model::{HitRatios, Interval, Regime, arrival_rate_max_interval_per_s, task_time_interval_s};
use std::io::Write;

/// A change that brings less than this share of the time is not shown.
const CHANGE_MIN: f64 = 0.01;

#[derive(Args)]
pub struct ModelArgs {
    /// Tasks [K; with --arrivals: the rates say how many]
    #[arg(long, value_name = "TASKS", required_unless_present = "arrivals")]
    tasks: Option<u64>,
    /// Different objects that the tasks read, each equally often and in random order
    #[arg(long, value_name = "OBJECTS", conflicts_with = "locality")]
    objects: Option<u64>,
    /// How often each object is read, in place of --objects
    #[arg(long, value_name = "TIMES")]
    locality: Option<f64>,
    /// Bytes of an object
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = bytes)]
    object_size: u64,
    /// Objects that one task reads
    #[arg(long, value_name = "OBJECTS", default_value_t = 1.0)]
    reads: f64,
    /// Computing of one task, without reading [C]
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    compute: u64,
    /// Nothing is kept on nodes: each access reads home
    #[arg(long, conflicts_with_all = ["hit_local", "hit_remote", "cache"])]
    no_caches: bool,
    /// Share of accesses that the own node's cache serves, from 0 to 1 [HR_l; default: from --objects and the caches]
    #[arg(long, value_name = "SHARE")]
    hit_local: Option<f64>,
    /// Share of accesses that other nodes' caches serve [HR_c]
    #[arg(long, value_name = "SHARE", requires = "hit_local")]
    hit_remote: Option<f64>,
    /// Tasks per second, and for how long: `100:60s,300:10m`. Without it all tasks are there from the beginning
    #[arg(long, value_name = "RATE:TIME,...", value_delimiter = ',', value_parser = arrivals, conflicts_with = "tasks")]
    arrivals: Vec<Arrivals>,
    /// Nodes [default: the machine's]
    #[arg(long)]
    nodes: Option<u32>,
    /// Cache of each node [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    cache: Option<u64>,
    /// Bytes per second over a node's link [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    link_rate: Option<u64>,
    /// What the dispatcher needs for one task [default: the machine's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    dispatch: Option<u64>,
    /// Print all numbers as JSON on standard output, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: MachineArgs,
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    let what = "write tasks per second and a time, such as 100:60s";
    let (per_s, time) = text.split_once(':').ok_or(what)?;
    let per_s: f64 = per_s.trim().parse().map_err(|_| what)?;
    let duration_s = duration(time.trim()).map_err(|e| format!("{e}; {what}"))? as f64 / 1e9;
    Ok(Arrivals { duration_s, per_s })
}

pub fn model(args: &ModelArgs) -> Result<Exit, Fault> {
    let machine = args.machine()?;
    let model = predict::Machine::of(&machine);
    let n_tasks = match args.tasks {
        Some(n) => n,
        None => args.arrivals.iter().map(|phase| phase.duration_s * phase.per_s).sum::<f64>() as u64,
    };
    let work = args.work(&machine, n_tasks)?;
    let expected = expect(&model, &work).map_err(bad)?;
    let arriving = match args.arrivals[..] {
        [] => None,
        _ => Some(expect_arrivals(&model, &work, &args.arrivals).map_err(bad)?),
    };
    let regime =
        Regime::of(machine.cache_bytes_per_node * u64::from(machine.nodes), working_set(&work) as u64);
    let costs = model.costs_alone(work.object_bytes);
    let n = model.n_processors();
    // Where home gives one reader more than a node's disk gives another node, the paper's ends change places.
    let sorted = |i: Interval| Interval { low: i.low.min(i.high), high: i.low.max(i.high) };
    let answer = Answer {
        task_s: sorted(task_time_interval_s(regime, costs, work.compute_s)),
        rate_per_s: sorted(arrival_rate_max_interval_per_s(regime, costs, work.compute_s, n, 1.0)),
        changes: changes(&model, &work).map_err(bad)?,
        arriving,
        expected,
        regime,
        work,
        machine,
    };
    match args.json {
        true => json::write(&answer.as_json())?,
        false => write!(eyas_text::stdout(), "{}", answer.text())?,
    }
    Ok(Exit::Good)
}

impl ModelArgs {
    fn machine(&self) -> Result<Machine, Fault> {
        let machine = named_machine(self.machine.machine.as_deref().unwrap_or("this-machine"))?;
        let float = |given: Option<u64>, otherwise: f64| given.map_or(otherwise, |n| n as f64);
        let nic_bytes_per_s = float(self.link_rate, machine.nic_bytes_per_s);
        let home_client_bytes_per_s = match self.link_rate {
            // One reader of home gets what its link gives.
            Some(rate) => rate as f64,
            None => machine.home_client_bytes_per_s,
        };
        self.machine.change(Machine {
            nodes: self.nodes.unwrap_or(machine.nodes),
            cache_bytes_per_node: self.cache.unwrap_or(machine.cache_bytes_per_node),
            dispatch_ns: self.dispatch.unwrap_or(machine.dispatch_ns),
            nic_bytes_per_s,
            home_client_bytes_per_s,
            ..machine
        })
    }

    fn work(&self, machine: &Machine, n_tasks: u64) -> Result<ModelWork, Fault> {
        let n_accesses = n_tasks as f64 * self.reads;
        let cache_bytes = machine.cache_bytes_per_node as f64 * f64::from(machine.nodes);
        if self.locality.is_some_and(|locality| !(locality >= 1.0 && locality.is_finite())) {
            return Err(bad("--locality is how often each object is read, and has to be at least 1"));
        }
        let n_objects = match (self.objects, self.locality) {
            (Some(n), _) => Some(n),
            (None, Some(locality)) => Some(((n_accesses / locality) as u64).max(1)),
            (None, None) => None,
        };
        let reuse = match (self.no_caches, self.hit_local, n_objects) {
            (true, ..) => Reuse::NoCaches,
            (_, Some(local), _) => {
                Reuse::Ratios(HitRatios::new(local, self.hit_remote.unwrap_or(0.0)).map_err(bad)?)
            }
            (_, None, Some(n_objects)) => Reuse::Objects { n_objects, cache_bytes },
            (_, None, None) => {
                let message = "nothing says how often data is read again";
                return Err(bad(message).hint("give --objects or --locality, --hit-local, or --no-caches"));
            }
        };
        Ok(ModelWork {
            n_tasks,
            accesses_per_task: self.reads,
            object_bytes: self.object_size as f64,
            compute_s: self.compute as f64 / 1e9,
            overhead_s: (2 * machine.message_ns + machine.task_overhead_ns) as f64 / 1e9,
            reuse,
            making: None,
        })
    }
}

/// Bytes of all different objects, as far as they are known.
fn working_set(work: &ModelWork) -> f64 {
    let n_accesses = work.n_tasks as f64 * work.accesses_per_task;
    let n_objects = match work.reuse {
        Reuse::Objects { n_objects, .. } => (n_objects as f64).min(n_accesses),
        Reuse::NoCaches => n_accesses,
        Reuse::Ratios(ratios) => n_accesses * ratios.home(),
    };
    n_objects * work.object_bytes
}

struct Answer {
    machine: Machine,
    work: ModelWork,
    regime: Regime,
    expected: Expected,
    arriving: Option<ExpectedArrivals>,
    /// Equations 1 and 8.
    task_s: Interval,
    rate_per_s: Interval,
    changes: Vec<Change>,
}

fn name_of(resource: Bottleneck) -> &'static str {
    match resource {
        Bottleneck::Processors => "processors",
        Bottleneck::LocalDisks => "local disks",
        Bottleneck::Links => "links",
        Bottleneck::Home => "home",
        Bottleneck::Dispatcher => "the dispatcher",
    }
}

impl Answer {
    /// Changes that are worth to be named.
    fn worthwhile(&self) -> impl Iterator<Item = &Change> {
        let least_s = self.expected.time_s * (1.0 - CHANGE_MIN);
        self.changes.iter().filter(move |change| change.time_s < least_s)
    }

    fn text(&self) -> String {
        let (m, e, w) = (&self.machine, &self.expected, &self.work);
        let n = m.nodes * m.slots_per_node;
        let mut text = format!(
            "{} on {} of {} ({} processors), {}\n",
            plural(w.n_tasks, "task"),
            plural(u64::from(m.nodes), "node"),
            plural(u64::from(m.slots_per_node), "slot"),
            n,
            m.name
        );
        let mut row = |name: &str, value: String| text += &format!("  {name:<22} {value}\n");
        let caches = size(m.cache_bytes_per_node * u64::from(m.nodes));
        let (working, ends) = (
            size(working_set(w) as u64),
            match self.regime {
                Regime::Fits => "S >= W",
                Regime::Exceeds => "S < W",
            },
        );
        row("caches S, data W", format!("{caches}, {working}: {ends}"));
        let r = e.ratios;
        let ratios = [r.local(), r.remote(), r.home()].map(per_cent);
        row("hit ratios l, c, s", format!("{}, {}, {}", ratios[0], ratios[1], ratios[2]));
        row(
            "time T_N(D)",
            format!("{} ({} to {})", seconds(e.time_s), seconds(e.by_chance_s), seconds(e.in_step_s)),
        );
        row("on one processor T_1", seconds(e.time_on_one_s));
        row("speedup, efficiency", format!("{:.1} of {n}, {}", e.speedup, per_cent(e.efficiency)));
        row(
            "task TK",
            format!(
                "{} (eq. 1: {} to {})",
                seconds(e.task_s),
                seconds(self.task_s.low),
                seconds(self.task_s.high)
            ),
        );
        row(
            "arrival rate A_max",
            format!(
                "{:.1}/s (eq. 8: {:.1} to {:.1})",
                e.arrivals_max_per_s, self.rate_per_s.low, self.rate_per_s.high
            ),
        );
        row(
            "bytes",
            format!(
                "{} from own disks, {} from other nodes, {} from home",
                size(e.local_bytes as u64),
                size(e.remote_bytes as u64),
                size(e.home_bytes as u64)
            ),
        );
        if let Some(a) = &self.arriving {
            row(
                "as they arrive",
                format!(
                    "{} (ideal {}, efficiency {})",
                    seconds(a.time_s),
                    seconds(a.ideal_s),
                    per_cent(a.efficiency)
                ),
            );
            row("utilization U", per_cent(a.utilization));
            row("longest queue", plural(a.queue_tasks_max.round() as u64, "task"));
            row("response", format!("{} in the mean", seconds(a.response_s)));
        }
        let busy: Vec<String> = e
            .busy
            .iter()
            .map(|(resource, share)| format!("{} {}", name_of(*resource), per_cent(*share)))
            .collect();
        row("busy", busy.join(", "));
        let bound = name_of(e.busy[0].0);
        let mut changes = self.worthwhile();
        let text_of = |change: &Change| {
            format!(
                "{} ({}, {:.2} times as fast)",
                change.what,
                seconds(change.time_s),
                e.time_s / change.time_s
            )
        };
        text += &match changes.next() {
            Some(best) => format!("The time is bound by {bound}. What would bring most: {}", text_of(best)),
            None => format!("The time is bound by {bound}. Twice as much of no single thing would bring 1 %"),
        };
        for other in changes.take(2) {
            text += &format!("; {}", text_of(other));
        }
        text + ".\n"
    }

    fn as_json(&self) -> serde_json::Value {
        let (e, r) = (&self.expected, self.expected.ratios);
        let interval = |i: Interval| serde_json::json!([i.low, i.high]);
        let busy: serde_json::Map<String, serde_json::Value> =
            e.busy.iter().map(|(resource, share)| (name_of(*resource).into(), (*share).into())).collect();
        serde_json::json!({
            "machine": self.machine,
            "n_tasks": self.work.n_tasks,
            "n_processors": self.machine.nodes * self.machine.slots_per_node,
            "working_set_bytes": working_set(&self.work),
            "fits": self.regime == Regime::Fits,
            "hit_ratios": { "local": r.local(), "remote": r.remote(), "home": r.home() },
            "time_s": e.time_s, "time_by_chance_s": e.by_chance_s, "time_in_step_s": e.in_step_s,
            "time_on_one_s": e.time_on_one_s, "speedup": e.speedup, "efficiency": e.efficiency,
            "task_s": e.task_s, "task_interval_s": interval(self.task_s),
            "arrivals_max_per_s": e.arrivals_max_per_s, "arrivals_interval_per_s": interval(self.rate_per_s),
            "local_bytes": e.local_bytes, "remote_bytes": e.remote_bytes, "home_bytes": e.home_bytes,
            "busy": busy, "bound": name_of(e.busy[0].0),
            "arriving": self.arriving.map(|a| serde_json::json!({
                "n_tasks": a.n_tasks, "time_s": a.time_s, "ideal_s": a.ideal_s, "efficiency": a.efficiency,
                "queue_tasks_max": a.queue_tasks_max, "response_s": a.response_s, "utilization": a.utilization,
            })),
            "changes": self.changes.iter().map(|change| serde_json::json!({
                "what": change.what, "time_s": change.time_s,
            })).collect::<Vec<_>>(),
        })
    }
}
