//! File groups: caches that let a group leave as a whole, beside caches that let each file leave by itself.
//!
//! In: a machine, a workload whose tasks read whole groups ([`crate::workload::grouped`]), a policy. Out: a [`Cell`] with and one
//! without groups, from the same tasks. Everything else is equal.

use crate::workload::grouped::{GroupedConfig, grouped};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::world::{Scheduling, simulate};
use serde::{Deserialize, Serialize};

/// What came of one policy; means over seeds.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Cell {
    pub eviction: String,
    pub groups: bool,
    /// From a task's arrival to its end.
    pub response_mean_s: f64,
    /// Share of the inputs that were on the node.
    pub hit_ratio: f64,
    /// Share of the tasks that had all inputs on their node.
    pub at_once: f64,
    pub peer_bytes: f64,
    pub home_bytes: f64,
}

/// Eight nodes, whose caches hold a third of the files together.
pub fn machine(config: &GroupedConfig) -> Machine {
    let base = preset("tg-anl-64").expect("it is listed");
    let all_bytes = u64::from(config.n_groups) * u64::from(config.files_per_group) * config.file_bytes;
    let nodes = 8;
    let cache_bytes_per_node = all_bytes / (3 * u64::from(nodes));
    Machine { name: "8 nodes".into(), nodes, cache_bytes_per_node, ..base }
}

/// One policy, once per seed from 1 to `n_seeds`. `Err` is one sentence for users.
pub fn cell(
    machine: &Machine,
    config: &GroupedConfig,
    eviction: &str,
    groups: bool,
    n_seeds: u64,
) -> Result<Cell, String> {
    let scheduling = Scheduling { eviction: eviction.into(), groups, ..Scheduling::default() };
    let mut sum = Cell { eviction: eviction.into(), groups, ..Cell::default() };
    for seed in 1..=n_seeds {
        let workload = grouped(seed, config).map_err(|e| e.to_string())?;
        let summary = simulate(machine, &scheduling, &Faults::default(), workload, seed, None)?;
        if summary.n_done < summary.n_tasks {
            return Err(format!("a task failed: {}", summary.failure.unwrap_or_default()));
        }
        let share = 1.0 / n_seeds as f64;
        let n_inputs = (summary.n_local + summary.n_peer + summary.n_home).max(1);
        sum.response_mean_s += summary.response_mean_s * share;
        sum.at_once += summary.n_at_once as f64 / summary.n_tasks.max(1) as f64 * share;
        sum.hit_ratio += summary.n_local as f64 / n_inputs as f64 * share;
        sum.peer_bytes += summary.moved_peer_bytes as f64 * share;
        sum.home_bytes += summary.moved_home_bytes as f64 * share;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_change_nothing_where_the_order_of_use_decides_and_something_where_chance_does() {
        let config = GroupedConfig { n_tasks: 4_000, ..GroupedConfig::default() };
        let machine = machine(&config);
        let of = |eviction, groups| cell(&machine, &config, eviction, groups, 1).unwrap();
        // All files of a group are used at the same time, so with `lru` they leave one after the other anyway.
        let (alone, together) = (of("lru", false), of("lru", true));
        assert_eq!((alone.peer_bytes, alone.home_bytes), (together.peer_bytes, together.home_bytes));
        let (alone, together) = (of("random", false), of("random", true));
        assert!(together.peer_bytes < 0.5 * alone.peer_bytes, "{alone:?} {together:?}");
    }
}
