//! Nodes that are not equally fast, and disks that many programs read.

use super::*;
use eyas_terms::HomeVersion;

const SLOW: u32 = 0;
const FAST: [u32; 3] = [1, 2, 3];

/// Four nodes of one slot. Programs run for 1 s in the mean, on the slow node `slowness` times as long.
fn unequal(slowness: u64) -> World {
    let mut world = World::new(9, Config::default());
    world.executor(SLOW, 1);
    FAST.iter().for_each(|e| world.executor(*e, 1));
    for _ in 0..20 {
        for executor in 0..4 {
            let ns = if executor == SLOW { slowness * 1000 * MS } else { 1000 * MS };
            world.queue.learnt(&world.catalog, ExecutorId(executor), &[], Some(ns), Some(1000 * MS));
        }
    }
    world
}

#[test]
fn the_last_tasks_are_left_to_faster_nodes_but_not_for_ever() {
    let mut world = unequal(4);
    (0..4).for_each(|_| _ = world.task(&[]));
    assert!(world.place_all().iter().any(|d| d.executor == SLOW), "there is enough for all");
    world.end_all();
    world.wait_ms(1000);
    (0..2).for_each(|_| _ = world.task(&[]));
    assert!(world.place_all().iter().all(|d| FAST.contains(&d.executor)));
    (0..2).for_each(|_| _ = world.task(&[]));
    let given = world.place_all();
    assert!(
        given.len() == 1 && FAST.contains(&given[0].executor),
        "the slow node would take longer than two"
    );
    assert!(world.queue.wake_at().is_some(), "somebody looks again");
    world.wait_ms(10_000);
    assert_eq!(world.place().unwrap().executor, SLOW, "no faster node has become free");
}

#[test]
fn a_node_that_is_hardly_slower_and_the_only_one_that_is_large_enough_take_the_last_task() {
    for (slowness, slots) in [(1, 1), (4, 2)] {
        let mut world = unequal(slowness);
        world.slots.insert(SLOW, slots);
        world.update_room(SLOW);
        (0..3 + slots).for_each(|_| _ = world.task(&[]));
        let n_slow = world.place_all().iter().filter(|d| d.executor == SLOW).count();
        assert_eq!(n_slow as u32, slots);
    }
}

/// Eight programs on one node read an object that is in its cache. Gives how many of them read it from home.
fn n_past_disk(disk_bytes_per_s: u64, home_bytes_per_s: u64) -> usize {
    let mut world = World::new(9, Config { disk_bytes_per_s, home_bytes_per_s, ..Config::default() });
    world.executor(0, 8);
    let version = HomeVersion { size_bytes: OBJECT_BYTES, stamp: "x".into() };
    world.catalog.set_version(ObjectId(1), Some(version));
    world.holds(0, &[1]);
    (0..8).for_each(|_| _ = world.task(&[1]));
    world.place_all();
    world.check();
    world.past_cache().len()
}

#[test]
fn programs_that_share_a_disk_read_some_of_what_is_there_from_home() {
    let n = n_past_disk(10_000_000, 5_000_000);
    assert!((1..8).contains(&n), "{n} of 8 read from home");
    assert_eq!(n_past_disk(1_000_000_000, 5_000_000), 0, "the disk is quick");
    assert_eq!(n_past_disk(0, 5_000_000), 0, "nothing is to be gained by it");
}
