//! The best possible results: all data on local disks, and active storage (Raicu09 §5.3).
//!
//! **All local.** The efficiency of All-Pairs is measured against "the best case of all data accesses
//! occurring to local disk". Here that is equation 5 of the abstract model with only local hits on the
//! simulated machine: the longest of the times that processors need (computing, and reading alone), that
//! disks need, and that the dispatcher needs to give all tasks out.
//!
//! **Active storage.** It hands the whole data set to all nodes "via a spanning tree" and then computes
//! locally. The paper gives results (96 %, 35 %, 27 %) and no formula. The following formula gives two of
//! the results. The data set is read once from home, then copied from node to node in `ceil(log2 n)`
//! rounds, in each of which every holder hands the whole set over one link; then the computation takes
//! `t_local`, at the paper's own "theoretical upper bound" of 187 and 268 Gb/s:
//!
//! `efficiency = t_local / (t_local + d / home + ceil(log2 n) · d / link)`
//!
//! Blue Gene/P: 1,027 s / (1,027 s + 3 s + 10 · 192 s) = 35 %; SiCortex: 716 s / (716 s + 48 s + 10 · 192 s) = 27 %. For the
//! 500×500 of 1 s the same formula gives about two thirds and not 96 %; a tree that passes on what it is still receiving,
//! `t_local / (t_local + d / home + d / link)`, gives more than 90 %. Both are computed.

use eyas_sim::machine::Machine;
use eyas_sim::model::predict::{self, predict};
use eyas_sim::model::{HitRatios, Invalid};

/// Time of the workload when every access is a local hit, in seconds.
pub fn all_local_s(machine: &Machine, workload: &predict::Workload) -> Result<f64, Invalid> {
    Ok(predict(&predict::Machine::of(machine), workload, HitRatios::LOCAL_ONLY)?.time_s)
}

/// Active storage at its best.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ActiveStorage {
    /// The nodes pass on whole copies, one round after the other.
    pub rounds_efficiency: f64,
    /// Each node passes data on while it receives them.
    pub pipelined_efficiency: f64,
    /// Bytes between nodes: the data set once for each node beyond the first.
    pub network_bytes: f64,
    /// Bytes from home: the data set once.
    pub home_bytes: f64,
}

/// * `data_bytes`: all objects that the workload reads, each once; `local_s`: the result of
///   [`all_local_s`].
pub fn active_storage(machine: &Machine, data_bytes: f64, local_s: f64) -> ActiveStorage {
    let n_rounds = f64::from(machine.nodes.next_power_of_two().trailing_zeros());
    let (home_s, link_s) = (data_bytes / machine.home_bytes_per_s, data_bytes / machine.nic_bytes_per_s);
    ActiveStorage {
        rounds_efficiency: local_s / (local_s + home_s + n_rounds * link_s),
        pipelined_efficiency: local_s / (local_s + home_s + link_s),
        network_bytes: data_bytes * f64::from(machine.nodes - 1),
        home_bytes: data_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_sim::machine::preset;

    #[test]
    fn rounds_give_the_papers_active_storage_on_the_large_machines() {
        for (name, bound_gbit, expect) in [("bgp-4096", 187.0, 0.35), ("sicortex-5832", 268.0, 0.27)] {
            let machine = preset(name).expect("it is listed");
            let local_s = 24_000e9 * 8.0 / (bound_gbit * 1e9);
            let got = active_storage(&machine, 24e9, local_s).rounds_efficiency;
            assert!((got - expect).abs() < 0.005, "{name}: {got}");
        }
    }

    #[test]
    fn all_local_is_bound_by_processors_or_by_disks() {
        let machine = preset("tg-anl-100").expect("it is listed");
        let workload = predict::Workload {
            n_tasks: 250_000,
            accesses_per_task: 2.0,
            object_bytes: 12e6,
            compute_s: 1.0,
        };
        let slow = all_local_s(&machine, &workload).expect("it can be");
        assert!((1250.0..1700.0).contains(&slow), "{slow}");
        let fast =
            all_local_s(&machine, &predict::Workload { compute_s: 0.0, ..workload }).expect("it can be");
        let disks = 6_000e9 / (100.0 * machine.disk_bytes_per_s);
        assert!((fast / disks - 1.0).abs() < 1e-9, "{fast} {disks}");
    }
}
