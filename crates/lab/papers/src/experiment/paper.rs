//! The experiments of Raicu09 §5 and §6.5, scheduled as in the paper.
//!
//! The paper gives: the policy of each experiment; "window size set to 2500" (§5.1.1, §5.2), "optimizing
//! cache hits while keeping processor utilization high (90%)"; the release of a node "after 30 seconds of
//! idleness" in SW with dynamic provisioning (§5.2); MCU with caches, FA without, for the stacking (§6.5).
//!
//! The paper does not give the following, which is assumed: All-Pairs has the window and the threshold of
//! §5.1; caches are LRU (the default of the earlier papers on Falkon); the allocation policy is
//! `all-at-once`, which asks for as many nodes as the queue could use; nothing is released in MI, whose
//! load only grows. The additions of eyas are off: no inputs are moved ahead of a free slot, no executor
//! waits for an object that another executor is reading from home, and each decision places one task.

use super::{Chapter, Experiment, Load, Metric, PaperNumber};
use crate::workload::mi::MiConfig;
use crate::workload::stacking::{Format, Locality, StackingConfig, TABLE_3, Uncompress};
use crate::workload::sw::SwConfig;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::placement::{self, first_available, good_cache_compute, max_cache_hit, max_compute_util};
use eyas_core::provisioning::{ProvisionConfig, growth};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::workload::all_pairs::AllPairsConfig;
use eyas_sim::world::Scheduling;

pub const MB: u64 = 1_000_000;
const GBIT: f64 = 1e9 / 8.0;
const GB: f64 = 1e9;
const S: u64 = 1_000_000_000;

/// The paper's scheduling, with all nodes there from the beginning.
pub fn scheduling(placement: &str) -> Scheduling {
    let placement_config = placement::Config {
        window: 2500,
        utilisation_threshold: 0.9,
        tasks_per_decision: 1,
        ahead: false,
        await_arriving: false,
        ..placement::Config::default()
    };
    Scheduling {
        dispatcher: DispatcherConfig {
            placement: placement.into(),
            placement_config,
            ..DispatcherConfig::default()
        },
        eviction: "lru".into(),
        provision: None,
        ..Scheduling::default()
    }
}

/// The same with nodes that come with the queue, and leave after `release_idle_ns` without work.
pub fn dynamic(placement: &str, machine: &Machine, release_idle_ns: Option<u64>) -> Scheduling {
    let provision = ProvisionConfig {
        policy: growth::ALL_AT_ONCE.into(),
        nodes_min: 0,
        nodes_max: machine.nodes,
        slots_per_node: machine.slots_per_node,
        release_idle_ns,
        ..ProvisionConfig::default()
    };
    Scheduling { provision: Some(provision), ..scheduling(placement) }
}

/// A machine that [`preset`] lists, with another cache size if the experiment has one.
pub fn machine(name: &str, cache_bytes: Option<u64>) -> Machine {
    let mut machine = preset(name).expect("the preset is listed");
    machine.cache_bytes_per_node = cache_bytes.unwrap_or(machine.cache_bytes_per_node);
    machine
}

fn said(place: &'static str, all: &[(Metric, f64)]) -> Vec<PaperNumber> {
    all.iter().map(|&(metric, value)| PaperNumber { metric, value, place }).collect()
}

pub fn mi() -> Vec<Experiment> {
    use Metric::*;
    let gcc = good_cache_compute::NAME;
    let one = |name: &str, what: &str, figure, placement: &str, cache_mb: u64, list: &[Vec<PaperNumber>]| {
        let machine = machine("tg-anl-64", Some(cache_mb * MB));
        Experiment {
            name: name.into(),
            chapter: Chapter::Mi,
            what: what.into(),
            figure,
            scheduling: dynamic(placement, &machine, None),
            machine,
            faults: Faults::default(),
            load: Load::Mi(MiConfig::default()),
            keeps_series: !figure.is_empty(),
            is_quick: !figure.is_empty(),
            said: list.concat(),
        }
    };
    let mut list = vec![
        one(
            "mi-fa",
            "FA",
            "17",
            first_available::NAME,
            4000,
            &[
                said("§5.1.1", &[(MakespanS, 5011.0), (Efficiency, 0.28), (QueueMax, 198e3)]),
                said("§5.1.4", &[(Throughput, 4.0 * GBIT), (ThroughputP99, 6.0 * GBIT)]),
                said("§5.1.5", &[(Speedup, 1.0), (PerformanceIndex, 1.0 / 34.0)]),
                said("§5.1.7", &[(ResponseS, 1870.0)]),
            ],
        ),
        one(
            "mi-gcc-1gb",
            "GCC, 1 GB",
            "18",
            gcc,
            1000,
            &[
                said("§5.1.1", &[(MakespanS, 3762.0), (Efficiency, 0.38)]),
                said("§5.1.3", &[(HomeShare, 0.70)]),
                said("§5.1.4", &[(Throughput, 5.3 * GBIT)]),
                said("§5.1.5", &[(Speedup, 1.3)]),
                said("§5.1.7, the worst with data diffusion", &[(ResponseS, 1084.0)]),
            ],
        ),
        one(
            "mi-gcc-1.5gb",
            "GCC, 1.5 GB",
            "19",
            gcc,
            1500,
            &[said(
                "§5.1.1",
                &[
                    (MakespanS, 1596.0),
                    (Efficiency, 0.89),
                    (LocalShare, 0.78),
                    (PeerShare, 0.01),
                    (HomeShare, 0.21),
                ],
            )],
        ),
        one(
            "mi-gcc-2gb",
            "GCC, 2 GB",
            "20",
            gcc,
            2000,
            &[
                // "cache hit rates approaching 98%" are not said to be local hits.
                said("§5.1.1", &[(MakespanS, 1436.0), (Efficiency, 0.985), (QueueMax, 7e3)]),
                said("§5.1.5", &[(CpuHours, 24.0), (Speedup, 3.5), (PerformanceIndex, 0.7)]),
            ],
        ),
        one(
            "mi-gcc-4gb",
            "GCC, 4 GB",
            "21",
            gcc,
            4000,
            &[
                said(
                    "§5.1.1",
                    &[
                        (MakespanS, 1427.0),
                        (Efficiency, 0.992),
                        (LocalShare, 0.88),
                        (PeerShare, 0.06),
                        (HomeShare, 0.06),
                    ],
                ),
                said("§5.1.2", &[(Utilisation, 0.95)]),
                said("§5.1.4", &[(Throughput, 13.9 * GBIT), (ThroughputP99, 81.0 * GBIT)]),
                said("§5.1.5", &[(CpuHours, 17.0), (Speedup, 3.5), (PerformanceIndex, 1.0)]),
                said("§5.1.7", &[(ResponseS, 3.1), (QueueMax, 7e3)]),
            ],
        ),
        one(
            "mi-mch",
            "MCH, 4 GB",
            "22",
            max_cache_hit::NAME,
            4000,
            &[said(
                "§5.1.2",
                &[(MakespanS, 2888.0), (Efficiency, 0.49), (LocalShare, 0.95), (Utilisation, 0.43)],
            )],
        ),
        one(
            "mi-mcu",
            "MCU, 4 GB",
            "23",
            max_compute_util::NAME,
            4000,
            &[said("§5.1.2", &[(MakespanS, 2037.0), (Efficiency, 0.69)])],
        ),
    ];
    // Not in the paper: smaller caches, to compare policies; and all nodes from the beginning.
    list.push(one("mi-gcc-0.5gb", "GCC, 0.5 GB", "", gcc, 500, &[]));
    list.push(one("mi-gcc-0.25gb", "GCC, 0.25 GB", "", gcc, 250, &[]));
    let mut all_there =
        one("mi-gcc-4gb-static", "GCC, 4 GB, 64 nodes from the beginning", "", gcc, 4000, &[]);
    all_there.scheduling = scheduling(gcc);
    list.push(all_there);
    list
}

pub fn sw() -> Vec<Experiment> {
    use Metric::*;
    let machine = machine("tg-anl-100", None);
    let one = |name: &str, what: &str, figure, scheduling, list: &[Vec<PaperNumber>]| Experiment {
        name: name.into(),
        chapter: Chapter::Sw,
        what: what.into(),
        figure,
        machine: machine.clone(),
        scheduling,
        faults: Faults::default(),
        load: Load::Sw(SwConfig::default()),
        keeps_series: true,
        is_quick: false,
        said: list.concat(),
    };
    let gcc = good_cache_compute::NAME;
    vec![
        one(
            "sw-fa",
            "FA, 100 nodes",
            "30",
            scheduling(first_available::NAME),
            &[said(
                "§5.2",
                &[(MakespanS, 20491.0), (Efficiency, 0.32), (QueueMax, 1.4e6), (CpuHours, 1138.0)],
            )],
        ),
        one(
            "sw-gcc",
            "GCC, 100 nodes",
            "31",
            scheduling(gcc),
            &[said(
                "§5.2",
                &[
                    (MakespanS, 6505.0),
                    (Efficiency, 1.0),
                    (PeerShare, 0.10),
                    (QueueMax, 50e3),
                    (ThroughputP99, 72.0 * GBIT),
                    (CpuHours, 361.0),
                ],
            )],
        ),
        one(
            "sw-gcc-dynamic",
            "GCC, up to 100 nodes",
            "32",
            dynamic(gcc, &machine, Some(30 * S)),
            &[said(
                "§5.2",
                &[(MakespanS, 6697.0), (Efficiency, 0.97), (ThroughputP99, 72.0 * GBIT), (CpuHours, 253.0)],
            )],
        ),
    ]
}

/// The four All-Pairs workloads: name, what, figure, machine, items, compute time in ns.
pub const ALL_PAIRS: [(&str, &str, &str, &str, u32, u64); 4] = [
    ("ap-500-1s", "500×500, 1 s, 200 processors", "36", "tg-anl-100", 500, S),
    ("ap-500-0.1s", "500×500, 0.1 s, 200 processors", "37", "tg-anl-100", 500, S / 10),
    ("ap-1000-bgp", "1000×1000, 4 s, 4,096 processors", "38", "bgp-4096", 1000, 4 * S),
    ("ap-1000-sicortex", "1000×1000, 4 s, 5,832 processors", "39", "sicortex-5832", 1000, 4 * S),
];

/// One thing that may have been otherwise in the paper's system than it is in the simulated one.
pub struct Assumption {
    /// The end of the names of the experiments that have it.
    pub name: &'static str,
    /// What is otherwise, for readers.
    pub what: &'static str,
    /// The workloads of [`ALL_PAIRS`] that it is tried with.
    with: &'static [usize],
    change: fn(&mut Machine, &mut Scheduling),
}

/// The end of the names of the experiments in which a task's two items come one after the other.
pub const IN_TURN: &str = "-in-turn";

pub const ASSUMPTIONS: [Assumption; 13] = [
    Assumption {
        name: IN_TURN,
        what: "a task's inputs come one after the other",
        with: &[0, 1, 2, 3],
        change: |_, s| s.inputs_in_turn = true,
    },
    Assumption {
        name: "-free-senders",
        what: "a copy costs its sender neither disk nor link",
        with: &[0, 1, 2, 3],
        change: |m, _| m.costs.free_senders = true,
    },
    Assumption {
        name: "-two-sends",
        what: "a node sends two copies at once, the others wait",
        with: &[0, 1],
        change: |m, _| m.costs.sends_max = Some(2),
    },
    Assumption {
        name: "-page-cache",
        what: "2 GB of each cache are in memory, too",
        with: &[0, 1],
        change: |m, _| m.cache_memory_bytes_per_node = 2000 * MB,
    },
    Assumption {
        name: "-wait",
        what: "a task whose input another node is reading from home comes after other tasks",
        with: &[0, 1, 3],
        change: |_, s| s.dispatcher.placement_config.await_arriving = true,
    },
    Assumption {
        name: "-free-senders-wait",
        what: "the same with free senders",
        with: &[0, 1, 3],
        change: |m, s| {
            m.costs.free_senders = true;
            s.dispatcher.placement_config.await_arriving = true;
        },
    },
    Assumption {
        name: "-free-home",
        what: "home as quick as one likes",
        with: &[0, 1, 3],
        change: |m, _| m.home_bytes_per_s = 1e12,
    },
    Assumption {
        name: "-free-links",
        what: "links as quick as one likes",
        with: &[0, 1, 3],
        change: |m, _| m.nic_bytes_per_s = 1e12,
    },
    Assumption {
        name: "-free-disks",
        what: "disks as quick as one likes",
        with: &[0, 1, 3],
        change: |m, _| m.disk_bytes_per_s = 1e12,
    },
    Assumption {
        name: "-mcu",
        what: "MCU in place of GCC",
        with: &[0, 1, 3],
        change: |_, s| s.dispatcher.placement = max_compute_util::NAME.into(),
    },
    Assumption {
        name: "-executor-per-processor",
        what: "an executor for each processor, with its share of the node's cache, disk and link",
        with: &[0, 1],
        change: |m, _| {
            m.nic_bytes_per_s /= f64::from(m.slots_per_node);
            divide(m);
        },
    },
    Assumption {
        name: "-executor-per-processor-whole-link",
        what: "the same with the whole link",
        with: &[0, 1],
        change: |m, _| divide(m),
    },
    Assumption {
        name: "-executor-per-processor-free-senders",
        what: "the same with the whole link, and free senders",
        with: &[0, 1],
        change: |m, _| {
            divide(m);
            m.costs.free_senders = true;
        },
    },
];

/// Each processor becomes a node of its own, with its share of the cache and of the disk.
fn divide(machine: &mut Machine) {
    let n = machine.slots_per_node;
    machine.nodes *= n;
    machine.slots_per_node = 1;
    machine.cache_bytes_per_node /= u64::from(n);
    machine.disk_bytes_per_s /= f64::from(n);
}

pub fn all_pairs_load(n: u32, compute_ns: u64) -> Load {
    Load::AllPairs(AllPairsConfig { n, compute_ns, ..AllPairsConfig::default() })
}

pub fn all_pairs() -> Vec<Experiment> {
    use Metric::*;
    let numbers: [&[Vec<PaperNumber>]; 4] = [
        &[
            said("§5.3", &[(Efficiency, 0.80)]),
            said("table 2", &[(PeerBytes, 1698.0 * GB), (HomeBytes, 34.0 * GB)]),
        ],
        &[
            said("§5.3", &[(Efficiency, 0.75)]),
            said("table 2", &[(PeerBytes, 1528.0 * GB), (HomeBytes, 62.0 * GB)]),
        ],
        &[
            said("§5.3", &[(MakespanS, 1150.0), (Efficiency, 0.86)]),
            said("table 2", &[(PeerBytes, 4676.0 * GB), (HomeBytes, 384.0 * GB)]),
        ],
        &[
            said("§5.3", &[(Efficiency, 0.27)]),
            said("table 2", &[(PeerBytes, 3867.0 * GB), (HomeBytes, 906.0 * GB)]),
        ],
    ];
    let one = |i: usize, name: String, what: String, placement: &str, list: Vec<PaperNumber>| {
        let (_, _, figure, machine_name, n, compute_ns) = ALL_PAIRS[i];
        Experiment {
            name,
            chapter: Chapter::AllPairs,
            what,
            figure,
            machine: machine(machine_name, None),
            scheduling: scheduling(placement),
            faults: Faults::default(),
            load: all_pairs_load(n, compute_ns),
            keeps_series: placement != first_available::NAME,
            is_quick: false,
            said: list,
        }
    };
    let gcc = good_cache_compute::NAME;
    let mut list: Vec<Experiment> = (0..4)
        .map(|i| {
            let (name, what, ..) = ALL_PAIRS[i];
            one(i, name.into(), format!("GCC, {what}"), gcc, numbers[i].concat())
        })
        .collect();
    // "Running the same workload through Falkon directly against a parallel file system achieves only 26%".
    let (name, what, ..) = ALL_PAIRS[0];
    let fa = said("§5.3", &[(Efficiency, 0.26)]);
    list.push(one(0, format!("{name}-fa"), format!("FA, {what}"), first_available::NAME, fa));
    for assumption in ASSUMPTIONS {
        list.extend(assumption.with.iter().map(|&i| {
            let (name, what, ..) = ALL_PAIRS[i];
            let what = format!("GCC, {what}, {}", assumption.what);
            let mut e = one(i, format!("{name}{}", assumption.name), what, gcc, vec![]);
            (assumption.change)(&mut e.machine, &mut e.scheduling);
            Experiment { keeps_series: false, figure: "", ..e }
        }));
    }
    list
}

/// The four configurations of §6.5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackingCase {
    /// Caches and MCU; otherwise FA, which reads from home.
    pub diffusion: bool,
    pub format: Format,
}

pub const STACKING_CASES: [StackingCase; 4] = [
    StackingCase { diffusion: true, format: Format::Gz },
    StackingCase { diffusion: true, format: Format::Fit },
    StackingCase { diffusion: false, format: Format::Gz },
    StackingCase { diffusion: false, format: Format::Fit },
];

impl StackingCase {
    pub fn what(self) -> &'static str {
        match (self.diffusion, self.format) {
            (true, Format::Gz) => "Data diffusion (GZ)",
            (true, Format::Fit) => "Data diffusion (FIT)",
            (false, Format::Gz) => "GPFS (GZ)",
            (false, Format::Fit) => "GPFS (FIT)",
        }
    }

    /// The name of the experiment with `n_processors` processors, such as `stacking-1.38-gz-128`; `-gpfs`
    /// comes after the format.
    pub fn name(self, locality: Locality, n_processors: u32) -> String {
        let format = if self.format == Format::Gz { "gz" } else { "fit" };
        let home = if self.diffusion { "" } else { "-gpfs" };
        format!("stacking-{}-{format}{home}-{n_processors}", locality.name)
    }
}

/// The numbers of processors of figures 44, 45 and 50; the other figures have the last one.
pub const STACKING_PROCESSORS: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Localities for which the number of processors varies (figures 44, 45, 50).
pub const STACKING_VARIED: [&str; 3] = ["1", "1.38", "30"];

pub fn stacking() -> Vec<Experiment> {
    let one = |case: StackingCase, locality: Locality, n_processors: u32| {
        let mut machine = machine("tg-anl-64-2008", None);
        machine.nodes = n_processors / machine.slots_per_node;
        let uncompress = if case.diffusion { Uncompress::OncePerNode } else { Uncompress::EachTask };
        let placement = if case.diffusion { max_compute_util::NAME } else { first_available::NAME };
        let disk_bytes_per_s = machine.disk_bytes_per_s as u64;
        Experiment {
            name: case.name(locality, n_processors),
            chapter: Chapter::Stacking,
            what: case.what().into(),
            figure: match (n_processors, locality.name) {
                (128, _) => "46–49, 51",
                (_, "1.38") => "44, 50",
                (_, "30") => "45, 50",
                _ => "50",
            },
            machine,
            scheduling: scheduling(placement),
            faults: Faults::default(),
            load: Load::Stacking(StackingConfig {
                locality,
                format: case.format,
                uncompress,
                disk_bytes_per_s,
                ..StackingConfig::default()
            }),
            keeps_series: false,
            is_quick: n_processors == 128 && locality.n_objects < 50_000,
            said: vec![],
        }
    };
    let mut list = vec![];
    for locality in TABLE_3 {
        for case in STACKING_CASES {
            for n_processors in STACKING_PROCESSORS {
                if n_processors == 128 || STACKING_VARIED.contains(&locality.name) {
                    list.push(one(case, locality, n_processors));
                }
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_assumption_changes_the_machine_or_the_scheduling_of_each_all_pairs() {
        let list = all_pairs();
        let find = |name: &str| list.iter().find(|e| e.name == name).expect("it is there");
        for (i, (name, ..)) in ALL_PAIRS.into_iter().enumerate() {
            let plain = find(name);
            let mut seen = vec![(plain.machine.clone(), plain.scheduling.clone())];
            for assumption in ASSUMPTIONS.iter().filter(|assumption| assumption.with.contains(&i)) {
                let e = find(&format!("{name}{}", assumption.name));
                let setting = (e.machine.clone(), e.scheduling.clone());
                assert!(!seen.contains(&setting), "{} is no other than another", e.name);
                assert_eq!((&e.load, e.n_processors()), (&plain.load, plain.n_processors()), "{}", e.name);
                seen.push(setting);
            }
        }
    }
}
