//! Caches that exchange objects (2Mark as a whole), beside caches that each decide alone, on the paper's workloads.
//!
//! In: a [`Case`], which is a workload of the paper with caches that do not hold it, and a placement; and the name of an eviction
//! policy. Out: a [`Cell`]. Everything else is equal: the tasks, the machine, the seed.
//!
//! Under GCC tasks go to where their files are, so a store is asked for little that it does not have. Under MCU that looks at one task
//! at a time, a busy cluster gives the next task to whoever is free: requests come to the stores in any order, as in the paper's model.

use super::{Experiment, Load, paper};
use crate::workload::mi::MiConfig;
use eyas_core::placement::{good_cache_compute, max_compute_util};
use eyas_sim::outcome::Summary;
use serde::{Deserialize, Serialize};

/// The policies that are compared.
pub const EVICTIONS: [&str; 3] = ["lru", "two-mark", eyas_core::eviction::stores::EXCHANGES];

/// A workload, the size of the caches, and where tasks go.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub placement: &'static str,
    experiment: Experiment,
}

/// What came of one policy.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Cell {
    pub case: String,
    pub placement: String,
    pub eviction: String,
    pub makespan_s: f64,
    pub efficiency: f64,
    pub response_mean_s: f64,
    /// Tasks at which the placement looks.
    pub window: usize,
    /// Shares of the inputs.
    pub local: f64,
    pub peer: f64,
    pub home: f64,
    /// Bytes that moved between nodes, for attempts and for exchanges, and from home.
    pub peer_bytes: u64,
    pub home_bytes: u64,
}

/// All cases. `n_tasks`: how many tasks the workload with increasing arrivals has; `None`: as many as in the paper, and All-Pairs, too.
pub fn cases(n_tasks: Option<u64>) -> Vec<Case> {
    let mi = |cache_mb: u64, placement: &'static str, window: usize| {
        let name = format!("mi-gcc-{}gb", if cache_mb == 1000 { "1" } else { "0.5" });
        let mut experiment = paper::mi()
            .into_iter()
            .find(|e| e.name == name)
            .expect("it is one of the paper's or beside them");
        if let Some(n_tasks) = n_tasks {
            experiment.load = Load::Mi(MiConfig { n_tasks, ..MiConfig::default() });
        }
        let dispatcher = &mut experiment.scheduling.dispatcher;
        (dispatcher.placement, dispatcher.placement_config.window) = (placement.into(), window);
        Case { name: format!("MI, {} GB", cache_mb as f64 / 1000.0), placement, experiment }
    };
    let (gcc, mcu) = (good_cache_compute::NAME, max_compute_util::NAME);
    let mut cases = vec![mi(1000, gcc, 2500), mi(1000, mcu, 1), mi(500, gcc, 2500), mi(500, mcu, 1)];
    if n_tasks.is_none() {
        let experiment = paper::all_pairs().into_iter().find(|e| e.name == "ap-1000-bgp");
        let experiment = experiment.expect("it is one of the paper's");
        cases.push(Case { name: "All-Pairs, Blue Gene/P".into(), placement: gcc, experiment });
    }
    cases
}

/// One case under one policy. `Err` is one sentence for users.
pub fn cell(case: &Case, eviction: &str) -> Result<Cell, String> {
    let mut experiment = case.experiment.clone();
    experiment.scheduling.eviction = eviction.into();
    experiment.keeps_series = false;
    let s: Summary = experiment.run()?;
    if s.n_done < s.n_tasks {
        return Err(format!("a task failed: {}", s.failure.unwrap_or_default()));
    }
    Ok(Cell {
        case: case.name.clone(),
        placement: case.placement.into(),
        eviction: eviction.into(),
        window: case.experiment.scheduling.dispatcher.placement_config.window,
        makespan_s: s.makespan_s,
        efficiency: s.efficiency(),
        response_mean_s: s.response_mean_s,
        local: s.local_ratio(),
        peer: s.peer_ratio(),
        home: s.home_ratio(),
        peer_bytes: s.moved_peer_bytes,
        home_bytes: s.moved_home_bytes,
    })
}
