//! `eyas sim`: a workload on a simulated cluster, with decisions by the same core.
//!
//! In: a workload, a machine, policies, faults, a seed. Out: a short table, and on request the whole summary
//! as JSON and the event log of the run. `eyas report`, `eyas explain`, `eyas replay` and `eyas sim trace`
//! read that log like the log of a live run.
//!
//! Not here: the simulator (`eyas-sim`), the search for broken promises (`eyas-lab chaos`).

use crate::args::{bytes, duration, rate};
use crate::equipment::{self, Amount};
use crate::print::{count, plural, reason, size};
use crate::{Exit, Fault};
use clap::{Args, Subcommand};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::log::EVENTS_FILE;
use eyas_core::provisioning::ProvisionConfig;
use eyas_core::{eviction, placement, provisioning};
use eyas_sim::experiment::stealing;
use eyas_sim::group::{GroupCase, simulate_group};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::predict::calibrate;
use eyas_sim::workload::shapes::{Shape, ShapeConfig};
use eyas_sim::workload::trace::{Trace, TraceConfig};
use eyas_sim::workload::workflow::{WorkflowConfig, workflow};
use eyas_sim::workload::{self, ProgramIo, Workload, all_pairs, mi, stacking, sw};
use eyas_sim::world::{Scheduling, simulate};
use eyas_text::shown_path;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args)]
pub struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Tasks that arrive faster and faster (equation 12 of the data diffusion paper)
    Mi(MiArgs),
    /// Tasks that arrive in growing waves (equation 13)
    Sw(SwArgs),
    /// Every item of one set with every item of another
    Allpairs(AllPairsArgs),
    /// Many small cuts from few images (table 3)
    Stacking(StackingArgs),
    /// Simulate a recorded run
    Trace(TraceArgs),
    /// A workflow file with run times and sizes, such as an instance of WfCommons
    Workflow(WorkflowArgs),
    /// How many tasks a second several dispatchers give out, without and with files that cross between them
    Dispatchers(DispatchersArgs),
    /// Tasks queued at the node of their first input, without and with work stealing, beside a queue for all
    Stealing(StealingArgs),
}

/// The cluster that is simulated.
#[derive(Args, Clone, Default)]
pub struct MachineArgs {
    /// The machine: its name, or a JSON file with what `--json` wrote as `machine` [default: by the workload]
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Programs that one node runs at once [default: the machine's]
    #[arg(long)]
    pub slots: Option<u32>,
    /// Bytes per second from and to home storage, all nodes together [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub home_rate: Option<u64>,
    /// How long a node lives, as a job of a batch system does; it is requested again when it drains [default: the machine's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub walltime: Option<u64>,
    /// Gpus of each node [default: the machine's]
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// A resource of each node that tasks may name (may be given more than once) [default: the machine's]
    #[arg(long = "resource", value_name = "NAME=N", value_parser = equipment::amount)]
    pub resources: Vec<Amount>,
}

/// What is decided by whom.
#[derive(Args, Clone, Default)]
pub struct PolicyArgs {
    /// Policy that says which file leaves a full cache: random, fifo, lru, lfu, two-mark
    #[arg(long, value_name = "POLICY", default_value = "lru")]
    pub eviction: String,
    /// How many ready tasks a placement of the paper looks at [default: 3200]
    #[arg(long, value_name = "TASKS")]
    pub window: Option<usize>,
    /// good-cache-compute lets tasks wait for their data when at least this share of the slots is busy [default: 0.8]
    #[arg(long, alias = "threshold", value_name = "SHARE")]
    pub utilisation_threshold: Option<f64>,
    /// Nodes are given tasks ahead of a free slot, so that the next inputs move while a task computes [default]
    #[arg(long, overrides_with = "no_ahead")]
    pub ahead: bool,
    /// Inputs move while their task holds its slot, as in the paper
    #[arg(long)]
    pub no_ahead: bool,
    /// Tasks do not wait for what another node is reading from home, as in the paper
    #[arg(long)]
    pub no_await_arriving: bool,
    /// The inputs of a task come one after the other, and not side by side
    #[arg(long)]
    pub inputs_in_turn: bool,
    /// A resource of the whole cluster that tasks may name (may be given more than once)
    #[arg(long = "cluster-resource", value_name = "NAME=N", value_parser = equipment::amount)]
    pub cluster_resources: Vec<Amount>,
}

#[derive(Args)]
struct Common {
    #[command(flatten)]
    machine: MachineArgs,
    /// Nodes, at most [default: the machine's]
    #[arg(long)]
    nodes: Option<u32>,
    /// Cache of each node [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    cache: Option<u64>,
    /// Which task goes where [default: that of `eyas run`]
    #[arg(long, value_name = "POLICY")]
    placement: Option<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Policy for the number of nodes: static, one-at-a-time, additive, exponential, all-at-once, demand
    #[arg(long, value_name = "POLICY", default_value = STATIC)]
    provisioning: String,
    /// Nodes that stay, work or not (not with static)
    #[arg(long, value_name = "NODES", default_value_t = 0)]
    nodes_min: u32,
    /// A node that had no task for so long is released (not with static)
    #[arg(long, alias = "release-idle", value_name = "TIME", default_value = "30s", value_parser = duration)]
    idle_release: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Share of the nodes that is lost in an hour
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    losses_per_hour: f64,
    /// Share of the nodes that is slow
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    slow_share: f64,
    /// Speed of a slow node beside the others'
    #[arg(long, value_name = "SPEED", default_value_t = 0.5)]
    slow_speed: f64,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the event log into this folder, for `eyas report`, `explain` and `replay` with --dir
    #[arg(long, value_name = "DIR")]
    event_log: Option<PathBuf>,
}

const STATIC: &str = provisioning::growth::STATIC;

#[derive(Args)]
struct MiArgs {
    #[arg(long, value_name = "N", default_value_t = mi::MiConfig::default().n_tasks)]
    tasks: u64,
    /// Different files that tasks read
    #[arg(long, value_name = "N", default_value_t = mi::MiConfig::default().n_files)]
    files: u64,
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = bytes)]
    file_size: u64,
    /// Compute time of each program
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    compute: u64,
    /// Tasks per second in the first minute
    #[arg(long, value_name = "TASKS", default_value_t = mi::MiConfig::default().rate_first)]
    rate_first: u64,
    /// Tasks per second that arrive at most
    #[arg(long, value_name = "TASKS", default_value_t = mi::MiConfig::default().rate_max)]
    rate_max: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct SwArgs {
    /// How long tasks arrive
    #[arg(long, value_name = "TIME", default_value = "6505s", value_parser = duration)]
    duration: u64,
    /// Different files that tasks read
    #[arg(long, value_name = "N", default_value_t = sw::SwConfig::default().n_files)]
    files: u64,
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = bytes)]
    file_size: u64,
    /// Compute time of each program
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    compute: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct AllPairsArgs {
    /// Items in each set
    #[arg(short, long, default_value_t = all_pairs::AllPairsConfig::default().n)]
    n: u32,
    #[arg(long, value_name = "BYTES", default_value = "12MB", value_parser = bytes)]
    item_size: u64,
    /// Compute time of each program
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    compute: u64,
    /// In tiles, as `eyas pairs` chooses them, and not a task for each pair. memory: an item is read from the disk once in a
    /// tile; disk: each pair reads both items from the disk
    #[arg(long, value_name = "READS")]
    tiles: Option<TileReads>,
    #[command(flatten)]
    common: Common,
}

/// Where the pairs of a tile read their items.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TileReads {
    Memory,
    Disk,
}

#[derive(Args)]
struct StackingArgs {
    /// Objects per image, a row of table 3: 1, 1.38, 2, 3, 4, 5, 10, 20, 30
    #[arg(long, default_value = "1.38")]
    locality: String,
    /// Images of 2 MB compressed, or of 6 MB
    #[arg(long, default_value = "gz", value_parser = ["gz", "fit"])]
    format: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct TraceArgs {
    /// The folder of a run, or its events.jsonl
    #[arg(value_name = "RUN")]
    path: PathBuf,
    /// Only this run of the log [default: all]
    #[arg(long, value_name = "RUN")]
    run: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct WorkflowArgs {
    #[arg(value_name = "FILE")]
    path: PathBuf,
    #[command(flatten)]
    missing: MissingArgs,
    #[command(flatten)]
    common: Common,
}

/// What a workflow instance may leave out.
#[derive(Args, Clone, Default)]
pub struct MissingArgs {
    /// What tasks without a run time are taken to compute [default: such a workflow is refused]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub missing_run_time: Option<u64>,
    /// How large files without a size are taken to be [default: such a workflow is refused]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub missing_size: Option<u64>,
}

#[derive(Args)]
struct DispatchersArgs {
    /// How many dispatchers, one case after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8")]
    dispatchers: Vec<u32>,
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    tasks: u32,
    /// The machine whose dispatcher's time for a task and whose messages are taken, by name or as a JSON file
    #[arg(long, value_name = "NAME|FILE", default_value = "tg-anl-64")]
    machine: String,
    /// Time of a dispatcher for one task [default: the machine's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    decision: Option<u64>,
    /// Time of a dispatcher for one file in a message to or from another one [default: a tenth of that for a task]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    crossing: Option<u64>,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct StealingArgs {
    /// The machine, by name or as a JSON file [default: 63 nodes of a Blue Gene/P]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// Nodes [default: the machine's]
    #[arg(long)]
    nodes: Option<u32>,
    /// How uneven the slices of the BLAST database are: the sigma of a log-normal factor
    #[arg(long, value_name = "SIGMA", default_value_t = ShapeConfig::default().slice_sigma)]
    slice_sigma: f64,
    /// How many draws of each workload
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The fault for any mistake in the request.
pub fn bad(e: impl std::fmt::Display) -> Fault {
    let text = e.to_string();
    match text.split_once("\nhint: ") {
        Some((message, hint)) => Fault::new(Exit::BadInput, message).hint(hint),
        None => Fault::new(Exit::BadInput, text),
    }
}

impl From<workload::Error> for Fault {
    fn from(e: workload::Error) -> Fault {
        bad(e)
    }
}

pub fn sim(args: SimArgs) -> Result<Exit, Fault> {
    match args.what {
        What::Mi(a) => {
            let config = mi::MiConfig {
                n_tasks: a.tasks,
                n_files: a.files,
                file_bytes: a.file_size,
                compute_ns: a.compute,
                rate_first: a.rate_first,
                rate_max: a.rate_max,
                ..mi::MiConfig::default()
            };
            a.common.run("tg-anl-64", |_| mi::mi(a.common.seed, config))
        }
        What::Sw(a) => {
            let config = sw::SwConfig {
                duration_s: a.duration / 1_000_000_000,
                n_files: a.files,
                file_bytes: a.file_size,
                compute_ns: a.compute,
            };
            a.common.run("tg-anl-100", |_| sw::sw(a.common.seed, config))
        }
        What::Allpairs(a) => {
            let config = all_pairs::AllPairsConfig { n: a.n, item_bytes: a.item_size, compute_ns: a.compute };
            a.common.run("tg-anl-100", |machine| match a.tiles {
                None => all_pairs::all_pairs(config),
                Some(reads) => {
                    let slots = machine.slots_per_node;
                    let rereads = match reads {
                        TileReads::Memory => all_pairs::Rereads::Memory,
                        TileReads::Disk => all_pairs::Rereads::Disk {
                            bytes_per_s: machine.disk_bytes_per_s / f64::from(slots),
                        },
                    };
                    let machine = eyas_core::pairs::Machine {
                        n_nodes: a.common.nodes.unwrap_or(machine.nodes),
                        n_slots: slots,
                        cache_bytes: a.common.cache.unwrap_or(machine.cache_bytes_per_node),
                        pair_ns: a.compute,
                        tile_ns_max: eyas_core::pairs::TILE_NS_MAX,
                    };
                    all_pairs::tiled(config, &machine, rereads)
                }
            })
        }
        What::Stacking(a) => {
            let (gz, locality) = (a.format == "gz", stacking::find_locality(&a.locality)?);
            let uses_caches = a.common.placement.as_deref() != Some(placement::first_available::NAME);
            a.common.run("tg-anl-64-2008", |machine| {
                let config = stacking::StackingConfig {
                    locality,
                    format: if gz { stacking::Format::Gz } else { stacking::Format::Fit },
                    uncompress: match uses_caches {
                        true => stacking::Uncompress::FirstTask,
                        false => stacking::Uncompress::EachTask,
                    },
                    disk_bytes_per_s: machine.disk_bytes_per_s as u64,
                    ..stacking::StackingConfig::default()
                };
                stacking::stacking(a.common.seed, config)
            })
        }
        What::Trace(a) => trace(&a),
        What::Workflow(a) => a.common.run("this-machine", |machine| {
            let config = WorkflowConfig {
                compute_missing_ns: a.missing.missing_run_time,
                size_missing_bytes: a.missing.missing_size,
                cpus_max: None,
                io: program_io(machine),
            };
            workflow(&a.path, &config)
        }),
        What::Stealing(a) => stealing(&a),
        What::Dispatchers(a) => dispatchers(&a),
    }
}

fn dispatchers(args: &DispatchersArgs) -> Result<Exit, Fault> {
    let machine = named_machine(&args.machine)?;
    let decision_ns = args.decision.unwrap_or(machine.dispatch_ns).max(1);
    let most = args.dispatchers.iter().copied().max().unwrap_or(1);
    let mut cases = vec![];
    let mut out = eyas_text::stdout();
    writeln!(
        out,
        "{:>11} {:>12} {:>7} {:>12} {:>7} {:>9}  busiest, least busy",
        "dispatchers", "tasks/s", "ratio", "crossing", "ratio", "crossed"
    )?;
    let mut first: Option<(f64, f64)> = None;
    for &n_dispatchers in &args.dispatchers {
        let mut case = GroupCase {
            n_dispatchers,
            // Slots for twice as many tasks as all dispatchers of the largest group could give out.
            n_nodes: 16 * most,
            slots_per_node: 8,
            n_tasks: args.tasks,
            task_ns: decision_ns * 64,
            crossing: false,
            decision_ns,
            link_ns: args.crossing.unwrap_or(decision_ns / 10),
            message_ns: machine.message_ns,
        };
        let plain = simulate_group(&case).map_err(bad)?;
        case.crossing = true;
        let crossing = simulate_group(&case).map_err(bad)?;
        let (plain_first, crossing_first) = *first.get_or_insert((plain.tasks_per_s, crossing.tasks_per_s));
        writeln!(
            out,
            "{n_dispatchers:>11} {:>12.0} {:>7.2} {:>12.0} {:>7.2} {:>9}  {:.2}, {:.2}",
            plain.tasks_per_s,
            plain.tasks_per_s / plain_first,
            crossing.tasks_per_s,
            crossing.tasks_per_s / crossing_first,
            count(crossing.n_crossed),
            crossing.busiest,
            crossing.least_busy,
        )?;
        cases.push((case, plain, crossing));
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_vec_pretty(&cases).map_err(|e| Fault::new(Exit::Other, e))?;
        std::fs::write(path, json)?;
    }
    Ok(Exit::Good)
}

fn stealing(args: &StealingArgs) -> Result<Exit, Fault> {
    let machine = args.machine.as_deref().map_or_else(|| Ok(stealing::machine()), named_machine)?;
    let machine = Machine { nodes: args.nodes.unwrap_or(machine.nodes), ..machine };
    machine.check().map_err(bad)?;
    let mut out = eyas_text::stdout();
    writeln!(
        out,
        "{}: {} of {}; means of {}",
        machine.name,
        plural(u64::from(machine.nodes), "node"),
        plural(u64::from(machine.slots_per_node), "slot"),
        plural(args.seeds, "seed")
    )?;
    writeln!(
        out,
        "{:<11} {:<18} {:>10} {:>20} {:>7} {:>9} {:>14} {:>14}",
        "", "placement", "whole", "least, most", "ratio", "starved", "between nodes", "home"
    )?;
    let mut cells = vec![];
    for shape in Shape::ALL {
        let mut first: Option<f64> = None;
        for placement in stealing::PLACEMENTS {
            let cell =
                stealing::cell(&machine, shape, args.slice_sigma, placement, args.seeds).map_err(bad)?;
            let ratio = cell.makespan_s / *first.get_or_insert(cell.makespan_s);
            writeln!(
                out,
                "{:<11} {placement:<18} {:>10} {:>20} {ratio:>7.3} {:>9} {:>14} {:>14}",
                shape.name(),
                seconds(cell.makespan_s),
                format!("{}, {}", seconds(cell.makespan_min_s), seconds(cell.makespan_max_s)),
                per_cent(cell.starved_share),
                size(cell.peer_bytes as u64),
                size(cell.home_bytes as u64),
            )?;
            cells.push(cell);
        }
    }
    writeln!(out, "starved: share of the slots that no task was given to while tasks queued elsewhere")?;
    if let Some(path) = &args.json {
        write_json(path, &serde_json::json!({ "machine": machine, "seeds": args.seeds, "cells": cells }))?;
    }
    Ok(Exit::Good)
}

/// A recorded run time includes reading and writing; the simulated disk adds them again.
pub fn program_io(machine: &Machine) -> ProgramIo {
    let rate = Some(machine.disk_bytes_per_s);
    ProgramIo { read_bytes_per_s: rate, write_bytes_per_s: rate }
}

fn trace(args: &TraceArgs) -> Result<Exit, Fault> {
    let recorded = Trace::read(&args.path, &TraceConfig { run: args.run, ..TraceConfig::default() })?;
    let calibration = calibrate(&recorded.measured).map_err(bad)?;
    let common = &args.common;
    let (machine, base) = match &common.machine.machine {
        None => (calibration.machine, recorded.measured.config.clone()),
        Some(name) => (named_machine(name)?, DispatcherConfig::default()),
    };
    let machine = common.shaped(machine)?;
    let workload = recorded.workload(&program_io(&machine))?;
    common.simulate(&machine, base, workload)
}

/// A machine by name, or from a file.
pub fn named_machine(name: &str) -> Result<Machine, Fault> {
    let path = Path::new(name);
    if path.extension().is_none_or(|e| e != "json") {
        return preset(name).map_err(|e| bad(e).hint("a machine of your own goes into a file `NAME.json`"));
    }
    let text =
        std::fs::read(path).map_err(|e| bad(format!("cannot read the machine `{name}`: {}", reason(&e))))?;
    // Either a machine alone, or the output of `--json`.
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| bad(format!("the machine `{name}` is not JSON: {e}")))?;
    let inner = value.get("machine").filter(|m| m.is_object()).cloned().unwrap_or(value);
    let machine: Machine = serde_json::from_value(inner)
        .map_err(|e| bad(format!("`{name}` does not describe a machine: {e}")))?;
    machine.check().map_err(bad)?;
    Ok(machine)
}

impl MachineArgs {
    /// `machine` with the command line's changes.
    pub fn change(&self, mut machine: Machine) -> Result<Machine, Fault> {
        machine.walltime_ns = self.walltime.or(machine.walltime_ns);
        machine.equipment.gpus = self.gpus.unwrap_or(machine.equipment.gpus);
        machine.equipment.resources.extend(equipment::by_name(&self.resources).map_err(bad)?);
        machine.slots_per_node = self.slots.unwrap_or(machine.slots_per_node);
        if let Some(rate) = self.home_rate {
            machine.home_bytes_per_s = rate as f64;
            machine.home_client_bytes_per_s = machine.home_client_bytes_per_s.min(rate as f64);
        }
        machine.check().map_err(bad)?;
        Ok(machine)
    }
}

impl PolicyArgs {
    /// `base` with the command line's changes; names are checked.
    pub fn scheduling(&self, base: DispatcherConfig, placement: Option<&str>) -> Result<Scheduling, Fault> {
        let mut dispatcher = base;
        if let Some(name) = placement {
            dispatcher.placement = name.into();
        }
        let config = &mut dispatcher.placement_config;
        config.window = self.window.unwrap_or(config.window);
        config.utilisation_threshold = self.utilisation_threshold.unwrap_or(config.utilisation_threshold);
        config.ahead = (config.ahead || self.ahead) && !self.no_ahead;
        config.await_arriving &= !self.no_await_arriving;
        dispatcher.resources.extend(equipment::by_name(&self.cluster_resources).map_err(bad)?);
        placement::by_name(&dispatcher.placement, &dispatcher.placement_config).map_err(bad)?;
        eviction::by_name(&self.eviction).map_err(bad)?;
        let (eviction, inputs_in_turn) = (self.eviction.clone(), self.inputs_in_turn);
        Ok(Scheduling { dispatcher, eviction, inputs_in_turn, ..Scheduling::default() })
    }
}

impl Common {
    fn run(
        &self,
        machine: &str,
        make: impl FnOnce(&Machine) -> Result<Workload, workload::Error>,
    ) -> Result<Exit, Fault> {
        let machine = named_machine(self.machine.machine.as_deref().unwrap_or(machine))?;
        let machine = self.shaped(machine)?;
        let workload = make(&machine)?;
        self.simulate(&machine, Scheduling::default().dispatcher, workload)
    }

    fn shaped(&self, machine: Machine) -> Result<Machine, Fault> {
        let nodes = self.nodes.unwrap_or(machine.nodes);
        let cache_bytes_per_node = self.cache.unwrap_or(machine.cache_bytes_per_node);
        self.machine.change(Machine { nodes, cache_bytes_per_node, ..machine })
    }

    fn faults(&self) -> Result<Faults, Fault> {
        let faults = Faults {
            losses_per_node_hour: self.losses_per_hour,
            slow_share: self.slow_share,
            slow_speed: self.slow_speed,
        };
        faults.check().map_err(bad)?;
        Ok(faults)
    }

    fn simulate(&self, machine: &Machine, base: DispatcherConfig, workload: Workload) -> Result<Exit, Fault> {
        let provision = ProvisionConfig {
            policy: self.provisioning.clone(),
            nodes_min: self.nodes_min,
            nodes_max: machine.nodes,
            release_idle_ns: Some(self.idle_release),
            slots_per_node: machine.slots_per_node,
            ..ProvisionConfig::default()
        };
        let provision = match self.provisioning == STATIC {
            true => None,
            false => {
                provisioning::Provisioner::new(provision.clone()).map_err(bad)?;
                Some(provision)
            }
        };
        let scheduling = Scheduling { provision, ..self.policy.scheduling(base, self.placement.as_deref())? };
        let faults = self.faults()?;
        let log = self.event_log.as_deref().map(open_log).transpose()?;
        let began = Instant::now();
        let summary = simulate(machine, &scheduling, &faults, workload, self.seed, log).map_err(bad)?;
        let wall_s = began.elapsed().as_secs_f64();
        let head = format!(
            "{}: {} on {}; {} of {}, caches of {}, {}, {}, seed {}",
            summary.workload,
            plural(summary.n_tasks, "task"),
            machine.name,
            plural(u64::from(machine.nodes), "node"),
            plural(u64::from(machine.slots_per_node), "slot"),
            size(machine.cache_bytes_per_node),
            scheduling.dispatcher.placement,
            scheduling.eviction,
            self.seed,
        );
        write!(eyas_text::stdout(), "{head}\n{}", table(&summary, wall_s))?;
        if let Some(path) = &self.json {
            let all = serde_json::json!({
                "machine": machine, "scheduling": scheduling, "faults": faults, "seed": self.seed,
                "summary": summary, "wall_s": wall_s,
            });
            write_json(path, &all)?;
        }
        match summary.n_failed {
            0 => Ok(Exit::Good),
            _ => Ok(Exit::TasksFailed),
        }
    }
}

pub fn write_json(path: &Path, all: &serde_json::Value) -> Result<(), Fault> {
    let text = serde_json::to_string_pretty(all).map_err(|e| Fault::new(Exit::Other, e))?;
    std::fs::write(path, text + "\n")
        .map_err(|e| Fault::new(Exit::Other, format!("cannot write {}: {}", shown_path(path), reason(&e))))
}

/// The log file in a folder, which is created if it is missing.
fn open_log(dir: &Path) -> Result<Box<dyn Write>, Fault> {
    let path = dir.join(EVENTS_FILE);
    let fail = |e: std::io::Error| {
        Fault::new(
            Exit::BadInput,
            format!("cannot write the event log {}: {}", shown_path(&path), reason(&e)),
        )
        .hint("--event-log names a folder")
    };
    std::fs::create_dir_all(dir).map_err(fail)?;
    Ok(Box::new(BufWriter::with_capacity(1 << 20, File::create(&path).map_err(fail)?)))
}

/// `1,415.3 s`
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 100.0 => format!("{s:.2} s"),
        s if s < 1000.0 => format!("{s:.1} s"),
        s => format!("{} s", count(s.round() as u64)),
    }
}

pub fn per_cent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn table(s: &Summary, wall_s: f64) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| text += &format!("  {name:<12} {value}\n");
    // For a bag of tasks the efficiency says nothing.
    let ideal = match s.efficiency() >= 0.01 {
        true => format!(" (ideal {}, efficiency {})", seconds(s.ideal_s), per_cent(s.efficiency())),
        false => String::new(),
    };
    row("makespan", format!("{}{ideal}", seconds(s.makespan_s)));
    if s.n_failed > 0 {
        let first = s.failure.as_deref().unwrap_or_default();
        row("failed", format!("{} of {}; first: {first}", count(s.n_failed), count(s.n_tasks)));
    }
    row(
        "inputs",
        format!(
            "{} on the node, {} from peers, {} from home",
            per_cent(s.local_ratio()),
            per_cent(s.peer_ratio()),
            per_cent(s.home_ratio())
        ),
    );
    row(
        "moved",
        format!(
            "{} between nodes, {} from home, {} to home",
            size(s.moved_peer_bytes),
            size(s.moved_home_bytes),
            size(s.landed_bytes)
        ),
    );
    row("throughput", format!("{}/s mean", size(s.throughput_mean_bytes_per_s as u64)));
    row(
        "response",
        format!("{} mean, {} in 99 of 100 cases", seconds(s.response_mean_s), seconds(s.response_p99_s)),
    );
    row("CPU hours", format!("{:.2}, {} used", s.cpu_hours, per_cent(s.utilisation)));
    let ended = match s.n_walltimes_ended {
        0 => String::new(),
        n => format!(", {n} cut off by their walltime"),
    };
    row("nodes", format!("{} at most, {} lost{ended}", s.n_nodes_max, s.n_losses));
    row(
        "simulated in",
        format!(
            "{wall_s:.2} s, {} events, {} events/s",
            count(s.n_events),
            count((s.n_events as f64 / wall_s.max(1e-9)) as u64)
        ),
    );
    text
}
