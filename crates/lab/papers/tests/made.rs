//! Files that nodes make of packed ones, in the simulator: what is read from home, and how often a file is made.

use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::placement::{affinity, max_compute_util};
use eyas_papers::workload::stacking::{Format, Locality, StackingConfig, Uncompress, stacking};
use eyas_sim::machine::{Costs, Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::world::{Scheduling, simulate};

const MB: u64 = 1_000_000;

fn stack(placement: &str, cache_bytes: u64, locality: Locality, format: Format) -> Summary {
    let machine = Machine {
        nodes: 4,
        cache_bytes_per_node: cache_bytes,
        node_delay_min_ns: 0,
        node_delay_max_ns: 0,
        ..preset("tg-anl-64-2008").unwrap()
    };
    let dispatcher = DispatcherConfig { placement: placement.into(), ..DispatcherConfig::default() };
    let scheduling = Scheduling { dispatcher, ..Scheduling::default() };
    let config =
        StackingConfig { locality, format, uncompress: Uncompress::OncePerNode, ..StackingConfig::default() };
    let s =
        simulate(&machine, &scheduling, &Faults::default(), stacking(1, config).unwrap(), 1, None).unwrap();
    assert_eq!((s.n_done, s.n_failed), (u64::from(locality.n_objects), 0));
    s
}

#[test]
fn a_node_makes_a_file_once_and_programs_read_what_it_made() {
    let locality = Locality { name: "20", n_objects: 400, n_files: 20 };
    for placement in [max_compute_util::NAME, affinity::NAME] {
        let s = stack(placement, 1000 * MB, locality, Format::Gz);
        let n_copies = s.moved_home_bytes / (2 * MB) + s.moved_peer_bytes / (6 * MB);
        assert!((20..=80).contains(&n_copies), "at most one of each file on each node: {n_copies}");
        assert!((20..=80).contains(&s.n_made), "{}", s.n_made);
        // Each program was given 6 MB, and nodes read the packed files beside.
        let packed_bytes = (s.n_home + s.n_peer) * 2 * MB;
        assert!(s.local_bytes + s.peer_bytes + s.home_bytes <= 400 * 6 * MB + packed_bytes);
        assert!(s.local_ratio() + s.peer_ratio() > 0.75, "{}", s.local_ratio());
    }
}

#[test]
fn of_a_file_that_one_task_reads_only_the_packed_bytes_come_from_home() {
    let locality = Locality { name: "1", n_objects: 100, n_files: 100 };
    for placement in [max_compute_util::NAME, affinity::NAME] {
        let s = stack(placement, 1000 * MB, locality, Format::Gz);
        assert_eq!(s.moved_home_bytes, 100 * 2 * MB, "{placement}");
        let fit = stack(placement, 1000 * MB, locality, Format::Fit);
        assert_eq!(fit.moved_home_bytes, 100 * 6 * MB, "{placement}");
    }
}

#[test]
fn it_ends_where_both_forms_hardly_fit_the_cache() {
    let locality = Locality { name: "5", n_objects: 200, n_files: 40 };
    let s = stack(affinity::NAME, 20 * MB, locality, Format::Gz);
    assert!(s.n_made + s.n_home >= 40);
}

/// Nodes of one slot. A node that reads alone has 2 MB from home in 50 ms and unpacks them in 40 ms; a program computes for 60 ms.
/// Returns the makespan in seconds.
fn stack_in_s(placement: &str, nodes: u32, locality: Locality) -> f64 {
    let disk_bytes_per_s = 100_000 * MB;
    let machine = Machine {
        nodes,
        home_bytes_per_s: 40e6,
        home_client_bytes_per_s: 40e6,
        disk_bytes_per_s: disk_bytes_per_s as f64,
        node_delay_min_ns: 0,
        node_delay_max_ns: 0,
        costs: Costs { made_bytes_per_s: 6e6 / 0.04, ..Costs::default() },
        ..preset("this-machine").unwrap()
    };
    let dispatcher = DispatcherConfig { placement: placement.into(), ..DispatcherConfig::default() };
    let scheduling = Scheduling { dispatcher, ..Scheduling::default() };
    let stack_ns = 60_000_000;
    let config = StackingConfig { locality, stack_ns, disk_bytes_per_s, ..StackingConfig::default() };
    let s =
        simulate(&machine, &scheduling, &Faults::default(), stacking(1, config).unwrap(), 1, None).unwrap();
    assert_eq!(s.n_done, u64::from(locality.n_objects));
    s.makespan_s
}

#[test]
fn home_is_read_while_a_node_unpacks() {
    let locality = Locality { name: "1", n_objects: 100, n_files: 100 };
    // Programs take longest. One file after the other, each unpacked before the next sets out, would take 9 s.
    let alone_s = stack_in_s(affinity::NAME, 1, locality);
    assert!((6.0..6.4).contains(&alone_s), "{alone_s}");
    // Home takes longest: 100 files of 50 ms.
    let together_s = stack_in_s(affinity::NAME, 2, locality);
    assert!((5.0..5.4).contains(&together_s), "{together_s}");
}
