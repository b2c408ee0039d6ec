//! Which workloads end, and which are said never to: neither long programs, nor late nodes, nor files larger than every
//! cache are a reason to give up.

use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::placement;
use eyas_core::provisioning::ProvisionConfig;
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::all_pairs::{AllPairsConfig, all_pairs};
use eyas_sim::world::{Scheduling, simulate};

const S: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * S;

fn machine() -> Machine {
    Machine { nodes: 2, ..preset("this-machine").unwrap() }
}

fn end(machine: &Machine, scheduling: &Scheduling, config: AllPairsConfig) -> Result<Summary, String> {
    simulate(machine, scheduling, &Faults::default(), all_pairs(config).unwrap(), 1, None)
}

#[test]
fn a_program_may_compute_for_days() {
    let config = AllPairsConfig { n: 2, item_bytes: 1000, compute_ns: 50 * HOUR };
    let s = end(&machine(), &Scheduling::default(), config).unwrap();
    assert_eq!((s.n_done, s.n_failed), (4, 0));
    assert!(s.makespan_s > 50.0 * 3600.0);
}

#[test]
fn a_node_may_be_awaited_for_hours() {
    let machine = Machine { node_delay_min_ns: 5 * HOUR, node_delay_max_ns: 5 * HOUR, ..machine() };
    let provision = Some(ProvisionConfig { nodes_max: 2, ..ProvisionConfig::default() });
    let scheduling = Scheduling { provision, ..Scheduling::default() };
    let config = AllPairsConfig { n: 2, item_bytes: 1000, compute_ns: S };
    let s = end(&machine, &scheduling, config).unwrap();
    assert_eq!(s.n_done, 4);
}

#[test]
fn files_larger_than_every_cache_are_read_past_it_with_every_policy() {
    let machine = Machine { cache_bytes_per_node: 1_000_000, ..machine() };
    for name in placement::NAMES {
        let dispatcher = DispatcherConfig { placement: (*name).into(), ..DispatcherConfig::default() };
        let config = AllPairsConfig { n: 4, item_bytes: 5_000_000, compute_ns: S / 10 };
        let s = end(&machine, &Scheduling { dispatcher, ..Scheduling::default() }, config)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!((s.n_done, s.n_failed), (16, 0), "{name}");
        assert_eq!(s.moved_home_bytes, 16 * 2 * 5_000_000, "{name}: each is read each time");
    }
}
