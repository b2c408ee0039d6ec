//! Work stealing: the papers' policies and ours on the shapes of Zhang12's applications.
//!
//! In: a machine, shapes, policies and seeds. Out: a [`Cell`] per shape and policy, with means over the
//! seeds.
//!
//! The policies differ in where tasks wait: at the node of their first input (`first-input`, §V-I), there
//! except for tasks that idle neighbours steal (`first-input-steal`), or at no node, because a task is
//! given out when there is a slot for it (`max-compute-util`, `affinity`). Everything else is equal:
//! caches, collectives, and that nodes are given tasks ahead of free slots.
//!
//! The machine is the paper's as far as the paper describes it (§VI, §VI-B2): 63 nodes of four cores,
//! memory as disk, a 10 Gbit/s link to shared storage. The rest is that of the Blue Gene of Raicu09, see
//! [`eyas_sim::machine`], except for caches of 8 GB: a gather of Montage reads more than the 2 GB of a node,
//! and the paper runs such a task on the login node (§V-G).

use crate::workload::shapes::{Shape, ShapeConfig, shape};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::placement::{affinity, first_input, max_compute_util};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::world::{Scheduling, simulate};
use serde::{Deserialize, Serialize};

/// The others are compared with the first one.
pub const PLACEMENTS: [&str; 4] =
    [first_input::NAME, first_input::NAME_STEAL, max_compute_util::NAME, affinity::NAME];

/// Means over seeds.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Cell {
    pub shape: String,
    pub placement: String,
    pub makespan_s: f64,
    pub makespan_min_s: f64,
    pub makespan_max_s: f64,
    /// [`Summary::starved_slot_s`], as a share of all slots over the whole time.
    pub starved_share: f64,
    /// Share of the slots that held a program.
    pub utilisation: f64,
    pub peer_bytes: f64,
    pub home_bytes: f64,
}

/// The paper's machine: of 64 nodes, one is dispatcher and metadata server.
pub fn machine() -> Machine {
    let blue_gene = preset("bgp-4096").expect("it is listed");
    let link = 10e9 / 8.0;
    let cache_bytes_per_node = 8_000_000_000;
    Machine { name: "bgp-63".into(), nodes: 63, cache_bytes_per_node, home_bytes_per_s: link, ..blue_gene }
}

/// One shape under one policy, once per seed from 1 to `n_seeds`. `Err` is one sentence for users.
pub fn cell(
    machine: &Machine,
    of: Shape,
    slice_sigma: f64,
    placement: &str,
    n_seeds: u64,
) -> Result<Cell, String> {
    let dispatcher = DispatcherConfig { placement: placement.into(), ..DispatcherConfig::default() };
    let scheduling = Scheduling { dispatcher, ..Scheduling::default() };
    let mut all: Vec<Summary> = vec![];
    for seed in 1..=n_seeds {
        let config = ShapeConfig { n_slices: machine.nodes, slice_sigma, seed, ..ShapeConfig::default() };
        let workload = shape(of, &config).map_err(|e| e.to_string())?;
        let summary = simulate(machine, &scheduling, &Faults::default(), workload, seed, None)?;
        if summary.n_done < summary.n_tasks {
            let first = summary.failure.unwrap_or_default();
            return Err(format!("{} under {placement}: a task failed: {first}", of.name()));
        }
        all.push(summary);
    }
    let mean = |of: fn(&Summary) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let makespans = || all.iter().map(|s| s.makespan_s);
    Ok(Cell {
        shape: of.name().into(),
        placement: placement.into(),
        makespan_s: mean(|s| s.makespan_s),
        makespan_min_s: makespans().fold(f64::INFINITY, f64::min),
        makespan_max_s: makespans().fold(0.0, f64::max),
        starved_share: mean(|s| s.starved_slot_s / (s.cpu_hours * 3600.0)),
        utilisation: mean(|s| s.utilisation),
        peer_bytes: mean(|s| s.moved_peer_bytes as f64),
        home_bytes: mean(|s| (s.moved_home_bytes + s.landed_bytes) as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(machine: &Machine, of: Shape) -> [Cell; 4] {
        let sigma = ShapeConfig::default().slice_sigma;
        PLACEMENTS.map(|placement| cell(machine, of, sigma, placement, 3).expect(placement))
    }

    #[test]
    fn stealing_helps_where_tasks_are_uneven_and_ours_needs_none() {
        let machine = machine();
        for of in [Shape::Blast, Shape::Cybershake] {
            let [bound, steals, utilised, affinity] = &cells(&machine, of);
            assert!(steals.makespan_s < bound.makespan_s, "{of:?}: {bound:?} {steals:?}");
            assert!(affinity.makespan_s < steals.makespan_s, "{of:?}: {steals:?} {affinity:?}");
            assert!(steals.starved_share < bound.starved_share, "{of:?}: {bound:?} {steals:?}");
            assert!(affinity.starved_share < steals.starved_share, "{of:?}: {steals:?} {affinity:?}");
            // A task waits only while a copy is on its way, or until its holder is free a moment later.
            assert!(affinity.starved_share < 0.02, "{of:?}: {affinity:?}");
            assert!(utilised.starved_share < 1e-4, "{of:?}: {utilised:?}");
            // Stolen tasks need copies of their inputs.
            assert!(steals.peer_bytes > bound.peer_bytes, "{of:?}: {bound:?} {steals:?}");
        }
    }
}
