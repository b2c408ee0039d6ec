//! `eyas sim`: a workload on a simulated cluster, with decisions by the same core.
//!
//! In: a workload, a machine, policies, faults, a seed. Out: a short table, and on request the whole summary
//! as JSON and the event log of the run. `eyas report`, `eyas explain`, `eyas replay` and `eyas sim trace`
//! read that log like the log of a live run.
//!
//! Not here: the simulator (`eyas-sim`), the papers' workloads (`eyas-lab sim`), the search for broken promises (`eyas-lab chaos`).

use crate::args::{bytes, duration};
use crate::print::{plural, reason, size};
use crate::{Exit, Fault};
use clap::{Args, Subcommand};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::log::EVENTS_FILE;
use eyas_core::provisioning::{self, ProvisionConfig};
use eyas_sim::machine::{Faults, Machine};
use eyas_sim::predict::calibrate;
use eyas_sim::workload::trace::{Trace, TraceConfig};
use eyas_sim::workload::workflow::{WorkflowConfig, workflow};
use eyas_sim::workload::{self, ProgramIo, Workload, all_pairs};
use eyas_sim::world::{Pushed, Scheduling, simulate, simulate_push};
use eyas_text::shown_path;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use table::table;

mod machine;
mod table;

pub use machine::{MachineArgs, PolicyArgs, bad, named_machine};
pub use table::{per_cent, seconds, write_json};

#[derive(Args)]
pub struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every item of one set with every item of another
    Allpairs(AllPairsArgs),
    /// Bring files to the caches of all nodes before tasks read them, as `eyas warm` does
    Push(PushArgs),
    /// Simulate a recorded run
    Trace(TraceArgs),
    /// A workflow file with run times and sizes, such as an instance of WfCommons
    Workflow(WorkflowArgs),
}

/// The machine, policies, faults and seed of a simulation, and where its results go.
#[derive(Args)]
pub struct Common {
    #[command(flatten)]
    machine: MachineArgs,
    /// Nodes, at most [default: the machine's]
    #[arg(long)]
    pub nodes: Option<u32>,
    /// Cache of each node [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    cache: Option<u64>,
    /// Which task goes where [default: that of `eyas run`]
    #[arg(long, value_name = "POLICY")]
    pub placement: Option<String>,
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
    pub seed: u64,
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

#[derive(Args)]
struct PushArgs {
    #[arg(long, value_name = "FILES", default_value_t = 40)]
    files: u64,
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = bytes)]
    file_size: u64,
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

pub fn sim(args: SimArgs) -> Result<Exit, Fault> {
    match args.what {
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
                    let machine = eyas_pairs::Machine {
                        n_nodes: a.common.nodes.unwrap_or(machine.nodes),
                        n_slots: slots,
                        cache_bytes: a.common.cache.unwrap_or(machine.cache_bytes_per_node),
                        pair_ns: a.compute,
                        tile_ns_max: eyas_pairs::TILE_NS_MAX,
                    };
                    all_pairs::tiled(config, &machine, rereads)
                }
            })
        }
        What::Push(a) => push(&a),
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
    }
}

/// A recorded run time includes reading and writing; the simulated disk adds them again.
pub fn program_io(machine: &Machine) -> ProgramIo {
    let rate = Some(machine.disk_bytes_per_s);
    ProgramIo { read_bytes_per_s: rate, write_bytes_per_s: rate }
}

fn push(args: &PushArgs) -> Result<Exit, Fault> {
    let common = &args.common;
    let machine = common.shaped(named_machine(common.machine.machine.as_deref().unwrap_or("tg-anl-100"))?)?;
    if common.provisioning != STATIC {
        let message =
            format!("a push is simulated on nodes that stay, and --provisioning is {}", common.provisioning);
        return Err(Fault::new(Exit::BadInput, message).hint("leave out --provisioning"));
    }
    let base = Scheduling::default().dispatcher;
    let scheduling = common.policy.scheduling(base, common.placement.as_deref())?;
    let (faults, log) = (common.faults()?, common.event_log.as_deref().map(open_log).transpose()?);
    let pushed = Pushed { n_files: args.files, file_bytes: args.file_size };
    let record = simulate_push(&machine, &scheduling, &faults, pushed, common.seed, log).map_err(bad)?;
    let took_s = record.ended.map_or(0, |ended| ended.since_ns(record.began)) as f64 / 1e9;
    let bytes = pushed.n_files * pushed.file_bytes;
    // Each byte has to come into each node through its link.
    let least_s = bytes as f64 / machine.nic_bytes_per_s;
    writeln!(
        eyas_text::stdout(),
        "push: {} of {} to {} of {}, seed {}\n  {:<12} {}\n  {:<12} {}, of which it took {:.2} times\n  {:<12} {} of {}, {} did not fit",
        plural(pushed.n_files, "file"),
        size(pushed.file_bytes),
        plural(u64::from(machine.nodes), "node"),
        machine.name,
        common.seed,
        "took",
        seconds(took_s),
        "size / link",
        seconds(least_s),
        took_s / least_s.max(1e-9),
        "copies there",
        record.n_there,
        record.n_wanted,
        record.n_unfit,
    )?;
    if let Some(path) = &common.json {
        let all = serde_json::json!({
            "machine": machine, "scheduling": scheduling, "faults": faults, "seed": common.seed, "pushed": pushed,
            "record": record, "took_s": took_s, "least_s": least_s,
        });
        write_json(path, &all)?;
    }
    Ok(if record.is_whole() { Exit::Good } else { Exit::TasksFailed })
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

impl Common {
    /// Makes a workload for the machine, or for the one of the name `machine` where the user names none, and simulates it.
    pub fn run(
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
