//! The simulated machine and the policies on it, as a user names them. `eyas predict` takes the same options.

use crate::args::{Amount, amount};
use crate::args::{bytes, duration, rate};
use crate::print::reason;
use crate::{Exit, Fault};
use clap::Args;
use eyas_cluster::values::by_name;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::{eviction, placement};
use eyas_sim::machine::{Machine, preset};
use eyas_sim::workload;
use eyas_sim::world::Scheduling;
use std::path::Path;

/// The cluster that is simulated.
#[derive(Args, Clone, Default)]
pub struct MachineArgs {
    /// The machine: its name, or a JSON file with what `--json` wrote as `machine` [default: by the workload]
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Programs that one node runs at once [default: the machine's]
    #[arg(long)]
    pub slots: Option<u32>,
    /// So much of each cache is held in memory, too, beside what the tasks need [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub cache_memory: Option<u64>,
    /// Bytes per second that the programs of a node read from its disk, together [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub disk_rate: Option<u64>,
    /// Bytes per second that the programs of a node read from its memory, together [default: 10 GB/s]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub memory_rate: Option<u64>,
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
    #[arg(long = "resource", value_name = "NAME=N", value_parser = amount)]
    pub resources: Vec<Amount>,
}

/// What is decided by whom.
#[derive(Args, Clone, Default)]
pub struct PolicyArgs {
    /// Policy that says which file leaves a full cache: random, fifo, lru, lfu, two-mark, two-mark-exchange
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
    #[arg(long = "cluster-resource", value_name = "NAME=N", value_parser = amount)]
    pub cluster_resources: Vec<Amount>,
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
        machine.equipment.resources.extend(by_name(&self.resources).map_err(bad)?);
        machine.slots_per_node = self.slots.unwrap_or(machine.slots_per_node);
        let float = |rate: Option<u64>, usual: f64| rate.map_or(usual, |rate| rate as f64);
        machine.cache_memory_bytes_per_node =
            self.cache_memory.unwrap_or(machine.cache_memory_bytes_per_node);
        machine.disk_bytes_per_s = float(self.disk_rate, machine.disk_bytes_per_s);
        machine.memory_bytes_per_s = float(self.memory_rate, machine.memory_bytes_per_s);
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
        dispatcher.resources.extend(by_name(&self.cluster_resources).map_err(bad)?);
        placement::by_name(&dispatcher.placement, &dispatcher.placement_config).map_err(bad)?;
        eviction::by_name(&self.eviction).map_err(bad)?;
        let (eviction, inputs_in_turn) = (self.eviction.clone(), self.inputs_in_turn);
        Ok(Scheduling { dispatcher, eviction, inputs_in_turn, ..Scheduling::default() })
    }
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
