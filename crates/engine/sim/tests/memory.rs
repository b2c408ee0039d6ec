//! Files that nodes hold in memory above their disks: what they bring, by the decisions of the live executor.

use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::all_pairs::{AllPairsConfig, all_pairs};
use eyas_sim::world::{Scheduling, simulate};

const MB: u64 = 1_000_000;
const N: u32 = 12;

/// All pairs on one node with a slow disk, which is what bounds them. Each item is read many times. Home is slower still, so nothing is
/// read past the cache.
fn run(cache_memory_bytes_per_node: u64) -> Summary {
    let machine = Machine {
        nodes: 1,
        slots_per_node: 1,
        disk_bytes_per_s: 50e6,
        home_bytes_per_s: 20e6,
        home_client_bytes_per_s: 20e6,
        cache_memory_bytes_per_node,
        ..preset("this-machine").unwrap()
    };
    let config = AllPairsConfig { n: N, item_bytes: 10 * MB, compute_ns: MB };
    simulate(&machine, &Scheduling::default(), &Faults::default(), all_pairs(config).unwrap(), 1, None)
        .unwrap()
}

#[test]
fn memory_for_all_files_spares_the_disk_and_less_memory_less() {
    let read_bytes = 2 * u64::from(N * N) * 10 * MB;
    let none = run(0);
    assert_eq!((none.n_done, none.in_memory_bytes), (u64::from(N * N), 0));
    // Each item is read from memory from its second reading on.
    let all = run(300 * MB);
    assert_eq!(all.n_done, none.n_done);
    assert!(all.in_memory_bytes > read_bytes * 8 / 10, "{} of {read_bytes}", all.in_memory_bytes);
    assert!(all.makespan_s < none.makespan_s / 3.0, "{} and {} s", all.makespan_s, none.makespan_s);
    let some = run(60 * MB);
    assert!(some.in_memory_bytes > 0 && some.in_memory_bytes < all.in_memory_bytes);
    assert!(some.makespan_s > all.makespan_s && some.makespan_s < none.makespan_s);
    assert_eq!(run(60 * MB).makespan_s, some.makespan_s, "the same seed is the same run");
}
