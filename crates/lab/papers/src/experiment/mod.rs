//! Experiments: the evaluation of Raicu09 (§5 and §6) as a list, with the results that the paper gives.
//!
//! In: nothing. Out: [`all`], a list of [`Experiment`]s. Each has its machine, scheduling, faults and
//! workload, so that it can be simulated alone, and the paper's numbers with the places where they stand.
//! `eyas-lab repro` runs them and writes the page; this module does not know how they are shown.
//!
//! | module | |
//! |---|---|
//! | [`paper`] | how the paper schedules; the experiments of §5 and §6 |
//! | [`beyond`] | the same workloads under our own default, without faults and with them |
//! | [`best`] | what would be possible: all data on local disks, and active storage |
//! | [`collectives`] | beside the paper: the collective that is chosen against the best of all in hindsight |
//! | [`exchange`] | beside the paper: caches that exchange objects as 2Mark does, and caches that each decide alone |
//! | [`file_groups`] | beside the paper: caches that know which files are used together, and caches that do not |
//! | [`micro`] | the micro-benchmarks of §4.2 and §4.3 |
//! | [`provisioning`] | MI and SW under each provisioning policy |
//! | [`scripting`] | the evaluation of Zhang12: its patterns over many nodes, Montage and BLAST |
//! | [`sites`] | beside the paper: nodes in several places, with and without knowledge of the network |
//! | [`stealing`] | beside the paper: queues per node with and without stealing (Zhang12 §V-I), and ours |
//! | [`worlds`] | beside the paper: random machines and workloads, our default against the paper's policies |
//!
//! Invariants: names are unique and describe their experiment; the same name is the same run, to the byte.
//!
//! Nothing is fitted here. The fitting of machines is described in [`eyas_sim::machine`], and the one scale of
//! the stacking workload in [`crate::workload::stacking`].

pub mod best;
pub mod beyond;
pub mod collectives;
pub mod exchange;
pub mod file_groups;
pub mod micro;
pub mod paper;
pub mod provisioning;
pub mod scripting;
pub mod sites;
pub mod stealing;
pub mod worlds;

use crate::workload::mi::{MiConfig, mi};
use crate::workload::stacking::{StackingConfig, stacking};
use crate::workload::sw::{SwConfig, sw};
use eyas_sim::machine::{Faults, Machine};
use eyas_sim::outcome::{Series, Summary};
use eyas_sim::workload::all_pairs::{self, AllPairsConfig, Rereads};
use eyas_sim::workload::{self, Workload};
use eyas_sim::world::{Scheduling, simulate};
use serde::{Deserialize, Serialize};

/// The seed of all experiments. Other seeds give other draws of the same workloads.
pub const SEED: u64 = 1;
/// The most points of a series that is kept: enough for a figure.
const POINTS_MAX: usize = 240;

/// Experiments that belong together on the page, and can be run together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Chapter {
    Mi,
    Sw,
    AllPairs,
    Stacking,
    Beyond,
    /// All-Pairs as `eyas pairs` has it.
    Tiles,
    Provisioning,
}

impl Chapter {
    pub const ALL: [Chapter; 7] = [
        Chapter::Mi,
        Chapter::Sw,
        Chapter::AllPairs,
        Chapter::Stacking,
        Chapter::Beyond,
        Chapter::Tiles,
        Chapter::Provisioning,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Chapter::Mi => "mi",
            Chapter::Sw => "sw",
            Chapter::AllPairs => "allpairs",
            Chapter::Stacking => "stacking",
            Chapter::Beyond => "beyond",
            Chapter::Tiles => "tiles",
            Chapter::Provisioning => "provisioning",
        }
    }
}

/// The quantities that the paper gives for an experiment. Shares are in [0, 1]; bytes, and bytes per
/// second, have no prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    MakespanS,
    Efficiency,
    LocalShare,
    PeerShare,
    HomeShare,
    Throughput,
    ThroughputP99,
    ResponseS,
    QueueMax,
    CpuHours,
    Utilisation,
    /// Speed-up against first-available, as a factor.
    Speedup,
    /// Speed-up divided by CPU hours, as a share of the best experiment's.
    PerformanceIndex,
    /// Bytes between nodes; `HomeBytes`: bytes from home.
    PeerBytes,
    HomeBytes,
}

/// A number of the paper and the place where it stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperNumber {
    pub metric: Metric,
    pub value: f64,
    pub place: &'static str,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    Mi(MiConfig),
    Sw(SwConfig),
    AllPairs(AllPairsConfig),
    /// The same pairs in tiles.
    Tiles(AllPairsConfig),
    Stacking(StackingConfig),
}

#[derive(Clone, Debug)]
pub struct Experiment {
    pub name: String,
    pub chapter: Chapter,
    /// A description for readers, without what the experiment's table says already.
    pub what: String,
    /// The figure of the paper, or empty.
    pub figure: &'static str,
    pub machine: Machine,
    pub scheduling: Scheduling,
    pub faults: Faults,
    pub load: Load,
    /// Whether the experiment's course over time is kept.
    pub keeps_series: bool,
    /// Whether the experiment is small enough to be run with the tests.
    pub is_quick: bool,
    pub said: Vec<PaperNumber>,
}

impl Experiment {
    pub fn workload(&self) -> Result<Workload, workload::Error> {
        match self.load.clone() {
            Load::Mi(config) => mi(SEED, config),
            Load::Sw(config) => sw(SEED, config),
            Load::AllPairs(config) => all_pairs::all_pairs(config),
            Load::Tiles(config) => {
                let machine = eyas_pairs::Machine {
                    n_nodes: self.machine.nodes,
                    n_slots: self.machine.slots_per_node,
                    cache_bytes: self.machine.cache_bytes_per_node,
                    pair_ns: config.compute_ns,
                    tile_ns_max: eyas_pairs::TILE_NS_MAX,
                };
                all_pairs::tiled(config, &machine, Rereads::Memory)
            }
            Load::Stacking(config) => stacking(SEED, config),
        }
    }

    /// Simulates the experiment. A series that is not needed later is left out of the summary, see
    /// [`Experiment::keeps_series`].
    pub fn run(&self) -> Result<Summary, String> {
        let workload = self.workload().map_err(|e| e.to_string())?;
        let mut summary = simulate(&self.machine, &self.scheduling, &self.faults, workload, SEED, None)?;
        if !matches!(self.load, Load::Mi(_)) {
            summary.intervals.clear();
        }
        summary.series = if self.keeps_series { coarse(&summary.series) } else { Series::default() };
        Ok(summary)
    }

    pub fn said(&self, metric: Metric) -> Option<PaperNumber> {
        self.said.iter().find(|said| said.metric == metric).copied()
    }

    /// The number of tasks, used to begin with the long experiments.
    pub fn n_tasks(&self) -> u64 {
        match &self.load {
            Load::Mi(config) => config.n_tasks,
            Load::Sw(config) => (0..config.duration_s).map(crate::workload::sw::arrival_rate).sum(),
            Load::AllPairs(config) => u64::from(config.n).pow(2),
            Load::Tiles(_) => self.workload().map_or(0, |workload| workload.n_tasks),
            Load::Stacking(config) => u64::from(config.locality.n_objects),
        }
    }

    pub fn n_processors(&self) -> u64 {
        u64::from(self.machine.nodes) * u64::from(self.machine.slots_per_node)
    }
}

/// The same series with fewer points.
fn coarse(series: &Series) -> Series {
    let by = series.demand.len().div_ceil(POINTS_MAX).max(1);
    let mean = |all: &[f64]| -> Vec<f64> {
        all.chunks(by).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
    };
    Series {
        step_s: series.step_s * by as u64,
        demand: mean(&series.demand),
        local: mean(&series.local),
        peer: mean(&series.peer),
        home: mean(&series.home),
        queue: mean(&series.queue),
        nodes: mean(&series.nodes),
        busy_slots: mean(&series.busy_slots),
    }
}

/// All experiments, in the order of the paper.
pub fn all() -> Vec<Experiment> {
    let mut list = paper::mi();
    list.extend(paper::sw());
    list.extend(paper::all_pairs());
    list.extend(paper::stacking());
    list.extend(beyond::experiments());
    list.extend(beyond::tiles());
    list.extend(provisioning::experiments());
    list
}

/// The experiments that `only` names, as chapters or one by one. `Err` is one sentence that says which there
/// are.
pub fn select(all: Vec<Experiment>, only: &[String]) -> Result<Vec<Experiment>, String> {
    let names = |e: &Experiment, word: &String| *word == e.name || word == e.chapter.name();
    if let Some(unknown) = only.iter().find(|word| !all.iter().any(|e| names(e, word))) {
        let chapters: Vec<&str> = Chapter::ALL.iter().map(|g| g.name()).collect();
        return Err(format!(
            "there is no experiment `{unknown}`; known are {}, and single ones by the names that the page gives them, such as {}",
            chapters.join(", "),
            all.first().map_or("", |e| e.name.as_str()),
        ));
    }
    Ok(all.into_iter().filter(|e| only.iter().any(|word| names(e, word))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_everything_can_be() {
        let list = all();
        let names: BTreeSet<&str> = list.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names.len(), list.len());
        for e in &list {
            assert_eq!((e.machine.check(), e.faults.check()), (Ok(()), Ok(())), "{}", e.name);
            assert_eq!(e.workload().expect(&e.name).n_tasks, e.n_tasks(), "{}", e.name);
            assert!(e.name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)), "{}", e.name);
        }
        for chapter in Chapter::ALL {
            assert!(!names.contains(chapter.name()), "a chapter and an experiment have one name");
        }
    }

    #[test]
    fn a_selection_takes_groups_and_names_and_refuses_others() {
        let n = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            select(all(), &only).map(|list| list.len())
        };
        assert_eq!(n(&["sw"]), Ok(3));
        assert_eq!(n(&["sw", "mi-fa", "sw-fa"]), Ok(4));
        let refusal = n(&["montage"]).expect_err("there is none");
        assert!(refusal.contains("`montage`") && refusal.contains("stacking"), "{refusal}");
    }

    #[test]
    fn fewer_points_keep_the_mean() {
        let demand: Vec<f64> = (0..1000).map(f64::from).collect();
        let series = coarse(&Series { step_s: 2, demand, ..Series::default() });
        assert_eq!((series.step_s, series.demand.len()), (10, 200));
        let mean = series.demand.iter().sum::<f64>() / 200.0;
        assert!((mean - 499.5).abs() < 1e-9, "{mean}");
    }
}
