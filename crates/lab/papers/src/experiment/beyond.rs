//! The workloads of the paper under our own default, beside `good-cache-compute` as the paper has it.
//!
//! One function defines the default ([`ours`]), with one set of settings for all workloads. Each row is run
//! three times: with the paper's policy, with ours, and with ours while nodes are lost and a tenth of them
//! is slow.

use super::paper::{ALL_PAIRS, IN_TURN, MB, all_pairs_load, machine};
use super::{Chapter, Experiment, Load};
use crate::workload::mi::MiConfig;
use crate::workload::sw::SwConfig;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::placement::affinity;
use eyas_core::provisioning::{ProvisionConfig, demand};
use eyas_sim::machine::{Faults, Machine};
use eyas_sim::workload::all_pairs::AllPairsConfig;
use eyas_sim::world::Scheduling;

/// Our default. `dynamic`: nodes come and go with the queue.
pub fn ours(machine: &Machine, dynamic: bool) -> Scheduling {
    let provision = dynamic.then(|| ProvisionConfig {
        policy: demand::NAME.into(),
        nodes_max: machine.nodes,
        slots_per_node: machine.slots_per_node,
        release_idle_ns: Some(60_000_000_000),
        ..ProvisionConfig::default()
    });
    Scheduling {
        dispatcher: DispatcherConfig { placement: affinity::NAME.into(), ..DispatcherConfig::default() },
        provision,
        ..Scheduling::default()
    }
}

/// "5 % node loss per hour and a tenth of the nodes at half speed."
pub fn faults() -> Faults {
    Faults { losses_per_node_hour: 0.05, slow_share: 0.1, slow_speed: 0.5 }
}

/// All-Pairs in tiles with our default, by the name of the paper's experiment.
pub fn tiles() -> Vec<Experiment> {
    let one = |(name, what, _, machine_name, n, compute_ns): (&str, &str, &str, &str, u32, u64)| {
        let machine = machine(machine_name, None);
        Experiment {
            name: tiles_name(name),
            chapter: Chapter::Tiles,
            what: format!("All-Pairs {what}, in tiles"),
            figure: "",
            scheduling: ours(&machine, false),
            machine,
            faults: Faults::default(),
            load: Load::Tiles(AllPairsConfig { n, compute_ns, ..AllPairsConfig::default() }),
            keeps_series: false,
            is_quick: false,
            said: vec![],
        }
    };
    ALL_PAIRS.into_iter().map(one).collect()
}

/// The name of the experiment in tiles that belongs to the paper's experiment `name`.
pub fn tiles_name(name: &str) -> String {
    format!("tiles-{name}")
}

/// The goals of our default. A share is relative to the paper's policy on the same machine. Of two numbers,
/// the first must be reached and the second is hoped for.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Goal {
    /// The largest share of the paper's policy's makespan.
    pub makespan: Option<(f64, f64)>,
    /// The largest share of the paper's policy's mean response time.
    pub response: Option<f64>,
    /// The largest share of the paper's policy's CPU hours.
    pub hours: Option<(f64, f64)>,
    /// The longest makespan, in seconds: below what the paper measured.
    pub makespan_s: Option<f64>,
    /// The least efficiency against all-local: above what the paper measured.
    pub efficiency: Option<f64>,
}

fn makespan(must: f64, aim: f64) -> Goal {
    Goal { makespan: Some((must, aim)), ..Goal::default() }
}

/// A row of the comparison.
pub struct Row {
    pub what: String,
    /// Names of experiments; among several baselines the fastest counts.
    pub baselines: Vec<String>,
    pub ours: String,
    pub ours_with_faults: String,
    pub goal: Goal,
}

/// With faults the makespan may be longer by this factor: the factor that must be kept, and the one that is
/// hoped for.
pub const FAULTS_MUST: f64 = 1.15;
pub const FAULTS_AIM: f64 = 1.08;

struct Case {
    what: String,
    baseline: String,
    machine: Machine,
    dynamic: bool,
    load: Load,
    goal: Goal,
}

fn cases() -> Vec<Case> {
    let mut list = vec![];
    let fits = makespan(1.01, 0.99);
    let mi_goals = [
        (1000, "1", Goal { response: Some(0.1), ..makespan(0.80, 0.78) }),
        (500, "0.5", makespan(0.55, 0.52)),
        (250, "0.25", makespan(0.50, 0.44)),
        (1500, "1.5", fits),
        (2000, "2", fits),
        (4000, "4", fits),
    ];
    for (cache_mb, gb, goal) in mi_goals {
        list.push(Case {
            what: format!("MI, {gb} GB caches"),
            baseline: format!("mi-gcc-{gb}gb"),
            machine: machine("tg-anl-64", Some(cache_mb * MB)),
            dynamic: true,
            load: Load::Mi(MiConfig::default()),
            goal,
        });
    }
    list.push(Case {
        what: "SW, dynamic".into(),
        baseline: "sw-gcc-dynamic".into(),
        machine: machine("tg-anl-100", None),
        dynamic: true,
        load: Load::Sw(SwConfig::default()),
        goal: Goal { response: Some(1.0 / 15.0), hours: Some((1.0, 0.95)), ..Goal::default() },
    });
    let ap_goals = [
        makespan(0.65, 0.57),
        makespan(0.70, 0.64),
        Goal { makespan_s: Some(0.9 * 1150.0), ..makespan(0.45, 0.40) },
        Goal { efficiency: Some(2.5 * 0.27), ..makespan(0.15, 0.10) },
    ];
    for ((name, what, _, machine_name, n, compute_ns), goal) in ALL_PAIRS.into_iter().zip(ap_goals) {
        list.push(Case {
            what: format!("All-Pairs {what}"),
            baseline: name.into(),
            machine: machine(machine_name, None),
            dynamic: false,
            load: all_pairs_load(n, compute_ns),
            goal,
        });
    }
    list
}

fn names(baseline: &str) -> (String, String) {
    let workload = baseline.replace("-gcc", "").replace("-dynamic", "");
    (format!("ours-{workload}"), format!("ours-{workload}-faults"))
}

pub fn rows() -> Vec<Row> {
    let row = |case: Case| {
        let (ours, ours_with_faults) = names(&case.baseline);
        let mut baselines = vec![case.baseline.clone()];
        if matches!(case.load, Load::AllPairs(_)) {
            baselines.push(case.baseline + IN_TURN);
        }
        Row { what: case.what, baselines, ours, ours_with_faults, goal: case.goal }
    };
    cases().into_iter().map(row).collect()
}

pub fn experiments() -> Vec<Experiment> {
    let mut list = vec![];
    for case in cases() {
        let (ours_name, faults_name) = names(&case.baseline);
        let is_quick = matches!(case.load, Load::Mi(_)) && case.machine.cache_bytes_per_node == 1000 * MB;
        let experiment = Experiment {
            name: ours_name,
            chapter: Chapter::Beyond,
            what: case.what,
            figure: "",
            scheduling: ours(&case.machine, case.dynamic),
            machine: case.machine,
            faults: Faults::default(),
            load: case.load,
            keeps_series: case.goal.response.is_some(),
            is_quick,
            said: vec![],
        };
        list.push(Experiment {
            name: faults_name,
            faults: faults(),
            keeps_series: false,
            ..experiment.clone()
        });
        list.push(experiment);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::all;

    #[test]
    fn every_row_has_its_experiments() {
        let list = all();
        for row in rows() {
            for name in row.baselines.iter().chain([&row.ours, &row.ours_with_faults]) {
                assert!(list.iter().any(|e| e.name == *name), "{name}");
            }
        }
        // There is one set of defaults: rows differ only in the machine.
        for e in experiments() {
            assert_eq!(e.scheduling.dispatcher, experiments()[0].scheduling.dispatcher, "{}", e.name);
        }
    }
}
