//! Machines: what a simulated cluster is made of, in units that the names say.
//!
//! Presets hold the machines of the papers. Each figure is either a sentence of the paper, or it is fitted, and then the
//! preset says to which number; nothing else is fitted anywhere (`docs/results/data-diffusion.md` lists them again).

use eyas_terms::needs::Equipment;
use eyas_text::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const GBIT: f64 = 1e9 / 8.0;
const GB: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A cluster of equal nodes around one home storage.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub name: String,
    /// Most nodes that there are.
    pub nodes: u32,
    /// Programs that one node runs at once.
    pub slots_per_node: u32,
    pub cache_bytes_per_node: u64,
    /// So much of each cache is held in memory, too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_memory_bytes_per_node: u64,
    /// Gpus and named resources of each node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub equipment: Equipment,
    /// One node's disk, shared by programs that read and write, by copies that arrive and by copies that leave.
    pub disk_bytes_per_s: f64,
    /// One node's memory, from which programs read what is held there.
    #[serde(default = "memory_bytes_per_s", skip_serializing_if = "is_usual_memory")]
    pub memory_bytes_per_s: f64,
    /// One node's link, in each direction.
    pub nic_bytes_per_s: f64,
    /// Home storage, all clients together.
    pub home_bytes_per_s: f64,
    /// Home storage, one node alone.
    pub home_client_bytes_per_s: f64,
    /// Time until home answers a question, and until it sends the first byte of a file.
    pub home_latency_ns: u64,
    /// Time of one message from dispatcher to executor or back.
    pub message_ns: u64,
    /// Time that the dispatcher needs for one task, from its queue to its end. The dispatcher handles one event after the other.
    pub dispatch_ns: u64,
    /// Time that a slot needs for a task beside the program: for the sandbox.
    pub task_overhead_ns: u64,
    /// Time from the request for a node until it joins: at least, and at most; evenly distributed.
    pub node_delay_min_ns: u64,
    pub node_delay_max_ns: u64,
    /// How long a node lives from the moment that it joins, as a job of a batch system does; absent: as long as it is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walltime_ns: Option<u64>,
    /// Speed of a processor: a program that computes for 1 s at speed 1 takes 1 / `speed` s.
    pub speed: f64,
    /// What files cost beside their bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub costs: Costs,
    /// Absent: all nodes are in one place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<Sites>,
    /// Absent: each node reaches each other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_links: Option<CutLinks>,
}

/// Nodes that reach the dispatcher and home, and not each other. The machine has places for nodes, with numbers from 0, and a node
/// that joins takes the lowest one that is free.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CutLinks {
    /// Places belong to the islands in turn. Nodes of two islands do not reach each other; with as many islands as nodes, no node
    /// reaches another.
    #[serde(default = "one_island")]
    pub islands: u32,
    /// The first place of each pair does not reach the second one.
    #[serde(default)]
    pub pairs: BTreeSet<(u32, u32)>,
    /// Time until a node that asks another one knows that it does not reach it. By default as long as a live node tries to connect.
    #[serde(default = "connect_ns")]
    pub notice_ns: u64,
}

fn one_island() -> u32 {
    1
}

fn connect_ns() -> u64 {
    5 * S
}

impl CutLinks {
    /// Whether a node in the place `reader` cannot connect to one in the place `holder`.
    pub fn cuts(&self, reader: u32, holder: u32) -> bool {
        reader % self.islands != holder % self.islands || self.pairs.contains(&(reader, holder))
    }
}

/// Nodes in several places. Each two sites have a link of their own in each direction, and all traffic between them shares it.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Sites {
    /// Nodes join the sites in turn. Home is in the first one.
    pub n: u32,
    pub between_bytes_per_s: f64,
    /// What the way to another site adds to the time of a message, where nodes ask each other and home.
    pub between_latency_ns: u64,
}

/// What files cost beside their bytes. By default an open costs nothing but the latency, a byte written as much as a byte read, and a
/// copy its sender as much as its receiver.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Files that home storage opens or creates per second, for all clients together; absent: no limit.
    pub home_opens_per_s: Option<f64>,
    /// Scratch directories that home storage makes, links into and removes per second, for all clients together; absent: no limit.
    pub home_scratch_per_s: Option<f64>,
    /// A byte written to a node's disk takes the disk for as long as so many bytes read.
    pub disk_write: f64,
    /// A byte written to home storage takes it for as long as so many bytes read.
    pub home_write: f64,
    /// Bytes that a node makes in a second of a packed file, on one processor, beside reading and writing.
    pub made_bytes_per_s: f64,
    /// A copy between nodes takes neither the disk nor the link of the node that sends it.
    pub free_senders: bool,
    /// Copies that one node sends at once; those beyond wait for their turn; absent: no limit.
    pub sends_max: Option<u32>,
}

/// What `eyas-lab bench once` measures of an archive in gzip.
const MADE_BYTES_PER_S: f64 = 250e6;

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            home_opens_per_s: None,
            home_scratch_per_s: None,
            disk_write: 1.0,
            home_write: 1.0,
            made_bytes_per_s: MADE_BYTES_PER_S,
            free_senders: false,
            sends_max: None,
        }
    }
}

/// What bgp-4096 has for caches in memory, too.
const MEMORY_BYTES_PER_S: f64 = 10e9;

fn memory_bytes_per_s() -> f64 {
    MEMORY_BYTES_PER_S
}

fn is_usual_memory(rate: &f64) -> bool {
    *rate == MEMORY_BYTES_PER_S
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What goes wrong, and how often.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Share of the nodes that is lost in an hour.
    pub losses_per_node_hour: f64,
    /// Share of the nodes that is slow, and their speed beside the others'.
    pub slow_share: f64,
    pub slow_speed: f64,
}

/// Names that [`preset`] knows.
pub const PRESETS: [&str; 6] =
    ["tg-anl-64", "tg-anl-100", "tg-anl-64-2008", "bgp-4096", "sicortex-5832", "this-machine"];

/// A machine by name. `Err`: there is no such machine; it names those that there are.
pub fn preset(name: &str) -> Result<Machine, String> {
    // Raicu09 §4.1, table 1: dual processors, "1Gb/s"; §5: "2 ms latency to the executors", "<1ms latency" to GPFS;
    // §5.1.6: "resource allocation takes on the order of 30~60 seconds due to LRM's overheads".
    // §4.4: 1,322 decisions per second for the slowest policy.
    // Fitted: the disk, to the 81 Gb/s of figure 25 on 64 nodes. A client of GPFS is bounded by its link.
    let tg_anl = Machine {
        name: name.into(),
        nodes: 64,
        slots_per_node: 2,
        equipment: Default::default(),
        cache_bytes_per_node: 4 * GB,
        cache_memory_bytes_per_node: 0,
        disk_bytes_per_s: 81.0 / 64.0 * GBIT,
        memory_bytes_per_s: MEMORY_BYTES_PER_S,
        nic_bytes_per_s: GBIT,
        home_bytes_per_s: 4.4 * GBIT,
        home_client_bytes_per_s: GBIT,
        home_latency_ns: MS,
        message_ns: 2 * MS,
        dispatch_ns: S / 1322,
        task_overhead_ns: 0,
        node_delay_min_ns: 30 * S,
        node_delay_max_ns: 60 * S,
        walltime_ns: None,
        speed: 1.0,
        costs: Costs::default(),
        sites: None,
        cut_links: None,
    };
    Ok(match name {
        // §5.1.1: GPFS "remains flat at an average of 4.4Gb/s".
        "tg-anl-64" => tg_anl,
        // §5.2: "GPFS's peak throughput is higher (8Gb/s vs. 4Gb/s) due to a major upgrade"; "50GB caches/node".
        "tg-anl-100" => {
            Machine { nodes: 100, cache_bytes_per_node: 50 * GB, home_bytes_per_s: 8.0 * GBIT, ..tg_anl }
        }
        // §4.2: GPFS "tops out at 3420 Mb/s for large files"; the stacking of §6 ran there.
        // Uncompressing an image of 6 MB takes 150 ms (`eyas_sim::workload::stacking`).
        "tg-anl-64-2008" => Machine {
            cache_bytes_per_node: 50 * GB,
            home_bytes_per_s: 3.42 * GBIT,
            costs: Costs { made_bytes_per_s: 6e6 / 0.15, ..Costs::default() },
            ..tg_anl
        },
        // §5.3: "4096 processors, 2GB caches per node, 1Gb/s network connectivity, and a 64Gb/s parallel file system";
        // "1024 nodes"; the workload's 4 s are on these processors, so their speed is 1. The caches are memory ("Local
        // Disk/Memory", table 2): 187 Gb/s is the "theoretical upper bound" of the throughput when nothing waits for data,
        // so memory is no bound; 10 GB/s stands for it. Decisions as fast as on `tg-anl` ("870 scheduling decisions per second").
        "bgp-4096" => Machine {
            nodes: 1024,
            slots_per_node: 4,
            cache_bytes_per_node: 2 * GB,
            disk_bytes_per_s: 10e9,
            home_bytes_per_s: 64.0 * GBIT,
            node_delay_min_ns: 0,
            node_delay_max_ns: 0,
            ..tg_anl
        },
        // §5.3: "5832 processors, 3.6GB caches, and a relatively slow parallel file system rated at 4Gb/s"; "972 nodes".
        "sicortex-5832" => Machine {
            nodes: 972,
            slots_per_node: 6,
            cache_bytes_per_node: 3_600_000_000,
            disk_bytes_per_s: 10e9,
            home_bytes_per_s: 4.0 * GBIT,
            node_delay_min_ns: 0,
            node_delay_max_ns: 0,
            ..tg_anl
        },
        // A local cluster on one machine: what `eyas-lab bench` measures on a small virtual server. A starting point for
        // predictions without a recorded run.
        "this-machine" => Machine {
            nodes: 2,
            slots_per_node: 1,
            cache_bytes_per_node: 2 * GB,
            disk_bytes_per_s: 1.5e9,
            nic_bytes_per_s: 1.3e9,
            home_bytes_per_s: 0.7e9,
            home_client_bytes_per_s: 0.7e9,
            home_latency_ns: 200_000,
            message_ns: 100_000,
            dispatch_ns: 25_000,
            task_overhead_ns: 900_000,
            node_delay_min_ns: 100 * MS,
            node_delay_max_ns: 300 * MS,
            ..tg_anl
        },
        _ => {
            return Err(format!(
                "there is no machine {name}; known are {}",
                PRESETS.join(", "),
                name = shown(name)
            ));
        }
    })
}

impl Machine {
    /// `Err` says in one sentence why there can be no such machine.
    pub fn check(&self) -> Result<(), String> {
        let rates = [
            ("disk_bytes_per_s", self.disk_bytes_per_s),
            ("memory_bytes_per_s", self.memory_bytes_per_s),
            ("nic_bytes_per_s", self.nic_bytes_per_s),
            ("home_bytes_per_s", self.home_bytes_per_s),
            ("home_client_bytes_per_s", self.home_client_bytes_per_s),
            ("speed", self.speed),
            ("home_opens_per_s", self.costs.home_opens_per_s.unwrap_or(1.0)),
            ("home_scratch_per_s", self.costs.home_scratch_per_s.unwrap_or(1.0)),
            ("disk_write", self.costs.disk_write),
            ("home_write", self.costs.home_write),
            ("made_bytes_per_s", self.costs.made_bytes_per_s),
        ];
        let bad = |what: String| Err(format!("the machine {} cannot be: {what}", shown(&self.name)));
        for (name, rate) in rates {
            if !(rate > 0.0 && rate.is_finite()) {
                return bad(format!("`{name}` is {rate}, it has to be above 0"));
            }
        }
        if self.nodes == 0 || self.slots_per_node == 0 {
            return bad("it needs at least one node with one slot".into());
        }
        if u64::from(self.nodes) * u64::from(self.slots_per_node) > 10_000_000 {
            return bad(format!(
                "{} nodes of {} slots are more than 10,000,000 slots",
                self.nodes, self.slots_per_node
            ));
        }
        if self.walltime_ns.is_some_and(|ns| ns < S) {
            return bad("`walltime_ns` is below a second".into());
        }
        if self.costs.sends_max == Some(0) {
            return bad("`sends_max` is 0, so no node could ever copy from another".into());
        }
        if let Some(sites) = &self.sites {
            if sites.n == 0 || sites.n > self.nodes {
                return bad(format!("{} sites cannot have {} nodes", sites.n, self.nodes));
            }
            if !(sites.between_bytes_per_s > 0.0 && sites.between_bytes_per_s.is_finite()) {
                return bad("`between_bytes_per_s` has to be above 0".into());
            }
        }
        if let Some(links) = &self.cut_links {
            if links.islands == 0 || links.islands > self.nodes {
                return bad(format!("{} islands cannot have {} nodes", links.islands, self.nodes));
            }
            if let Some((a, b)) = links.pairs.iter().find(|(a, b)| a == b || *a.max(b) >= self.nodes) {
                return bad(format!(
                    "its `cut_links` name the places {a} and {b}, and it has places 0 to {}",
                    self.nodes - 1
                ));
            }
        }
        if self.node_delay_min_ns > self.node_delay_max_ns {
            return bad("`node_delay_min_ns` is above `node_delay_max_ns`".into());
        }
        Ok(())
    }
}

impl Faults {
    /// `Err` says in one sentence why there can be no such faults.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.slow_share) {
            return Err(format!("`slow_share` must lie between 0 and 1, it is {}", self.slow_share));
        }
        if self.slow_share > 0.0 && !(self.slow_speed > 0.0 && self.slow_speed <= 1.0) {
            return Err(format!("`slow_speed` must lie above 0 and at most at 1, it is {}", self.slow_speed));
        }
        if !(0.0..=1e4).contains(&self.losses_per_node_hour) {
            return Err(format!(
                "`losses_per_node_hour` must be a number from 0, it is {}",
                self.losses_per_node_hour
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be() {
        for name in PRESETS {
            let machine = preset(name).expect("it is listed");
            assert_eq!((machine.name.as_str(), machine.check()), (name, Ok(())));
        }
        let refusal = preset("cray").expect_err("there is none");
        assert!(refusal.contains("`cray`") && refusal.contains("bgp-4096"), "{refusal}");
    }

    #[test]
    fn impossible_machines_are_refused_by_name() {
        let fine = preset("tg-anl-64").expect("it is listed");
        for (bad, word) in [
            (Machine { home_bytes_per_s: 0.0, ..fine.clone() }, "home_bytes_per_s"),
            (Machine { disk_bytes_per_s: f64::NAN, ..fine.clone() }, "disk_bytes_per_s"),
            (
                Machine { costs: Costs { home_opens_per_s: Some(0.0), ..Costs::default() }, ..fine.clone() },
                "home_opens_per_s",
            ),
            (Machine { nodes: 0, ..fine.clone() }, "at least one node"),
            (
                Machine {
                    sites: Some(Sites { n: 65, between_bytes_per_s: 1e6, between_latency_ns: 0 }),
                    ..fine.clone()
                },
                "65 sites",
            ),
            (
                Machine {
                    sites: Some(Sites { n: 3, between_bytes_per_s: 0.0, between_latency_ns: 0 }),
                    ..fine.clone()
                },
                "between_bytes_per_s",
            ),
            (
                Machine {
                    cut_links: Some(CutLinks { islands: 0, pairs: BTreeSet::new(), notice_ns: 1 }),
                    ..fine.clone()
                },
                "0 islands",
            ),
            (
                Machine {
                    cut_links: Some(CutLinks { islands: 1, pairs: [(0, 64)].into(), notice_ns: 1 }),
                    ..fine.clone()
                },
                "places 0 and 64",
            ),
            (Machine { walltime_ns: Some(5), ..fine.clone() }, "walltime_ns"),
            (Machine { slots_per_node: 1_000_000, ..fine.clone() }, "slots"),
            (Machine { node_delay_min_ns: 2, node_delay_max_ns: 1, ..fine }, "node_delay_min_ns"),
        ] {
            let refusal = bad.check().expect_err("it cannot be");
            assert!(refusal.contains(word), "{refusal}");
        }
    }
}
