//! What the policy learns about home, links and disks, and what it does with that knowledge.

use super::*;
use crate::event::Target;
use crate::placement::affinity::home::HomeLoad;
use std::collections::BTreeMap;

#[test]
fn how_long_tiny_files_take_says_little_of_large_ones() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    world.executor(1, 1);
    world.holds(0, &[1]);
    // Ten bytes took 2 ms: at that rate ten megabytes would take half an hour.
    (0..100).for_each(|_| world.learn_of(1, 2, CacheOutcome::RemoteHit { from: ExecutorId(0) }, 10, 2));
    world.ran(1, 1000);
    world.task(&[1]);
    let waits = world.task(&[1]);
    assert_eq!(world.place().unwrap().executor, 0);
    world.wait_ms(200);
    assert_eq!(world.place().unwrap().task, waits);
}

#[test]
fn a_quick_home_is_read_by_everybody_and_a_late_reader_is_not_awaited() {
    let mut world = World::new(9, Config::default());
    (0..3).for_each(|e| world.executor(e, 1));
    world.task(&[1]);
    world.task(&[1]);
    world.task(&[1]);
    assert_eq!(world.place().unwrap().moves, fetched(1));
    world.wait_ms(1900);
    assert!(world.place().is_err());
    world.wait_ms(200);
    assert_eq!(
        world.place().unwrap().moves,
        fetched(1),
        "after two seconds something is wrong with the first"
    );
    world.learn(0, 1, CacheOutcome::Miss, 10_000);
    world.wait_ms(2000);
    world.task(&[2]);
    assert_eq!(world.place().unwrap().moves, fetched(2));
    world.end_all();
    world.place_all();
    world.end_all();
    (0..200).for_each(|_| world.learn(0, 1, CacheOutcome::Miss, 50));
    (0..64).for_each(|_| world.learn(0, 1, CacheOutcome::RemoteHit { from: ExecutorId(1) }, 50));
    let read_at_once = |world: &mut World, objects: &[u32]| {
        objects.iter().for_each(|o| _ = world.task(&[*o]));
        assert_eq!(world.place_all().len(), objects.len());
        world.wait_ms(50);
        world.arrive_all();
        assert!(world.place().is_err());
        world.end_all();
    };
    let n_reads = |world: &mut World, object| {
        (0..3).for_each(|_| _ = world.task(&[object]));
        let n = world.place_all().iter().filter(|d| d.moves == fetched(object)).count();
        world.arrive_all();
        world.end_all();
        while !world.place_all().is_empty() {
            world.end_all();
        }
        n
    };
    // For one reader home is as quick as a copy. What three readers together would get is not known, so two
    // try.
    read_at_once(&mut world, &[3]);
    assert_eq!(n_reads(&mut world, 4), 2);
    // Home is as quick for three readers, so no reader waits for another.
    read_at_once(&mut world, &[5, 6, 7]);
    assert_eq!(n_reads(&mut world, 8), 3);
}

/// The executors that have begun read one object from home. Home gives each reader the same rate, at most
/// an equal share of the whole.
pub(super) struct HomeReads {
    pub world: World,
    /// By executor: the time when its read began, and the bytes that have come.
    reads: BTreeMap<u32, (Timestamp, u64)>,
}

impl HomeReads {
    pub fn new(config: Config) -> HomeReads {
        let mut world = World::new(9, config);
        (0..16).for_each(|e| world.executor(e, 1));
        (0..16).for_each(|_| _ = world.task(&[1]));
        let mut reads = HomeReads { world, reads: BTreeMap::new() };
        assert_eq!(reads.begin(), 1, "nothing is known of home");
        reads
    }

    /// Takes all decisions; gives the number of reads that begin now.
    pub fn begin(&mut self) -> usize {
        let decided = self.world.place_all();
        let begun = decided.iter().filter(|d| d.moves == fetched(1));
        let now = self.world.now;
        let before = self.reads.len();
        self.reads.extend(begun.map(|d| (d.executor, (now, 0))));
        self.reads.len() - before
    }

    /// The reads go on for `ms` milliseconds and report their progress at the end. `alone` and `together`
    /// are home's limits for one reader and for all, in bytes per second.
    pub fn pass(&mut self, ms: u64, alone: u64, together: u64) {
        self.world.wait_ms(ms);
        let (now, rate) = (self.world.now, alone.min(together / self.reads.len() as u64));
        for (executor, (since, moved_bytes)) in &mut self.reads {
            *moved_bytes += rate * ms / 1000;
            let moved = InputMoved {
                target: Target::Cache(ObjectId(1)),
                object: ObjectId(1),
                source: Source::Home,
                moved_bytes: *moved_bytes,
                size_bytes: OBJECT_BYTES,
                moving_ns: now.since_ns(*since),
                is_all: false,
            };
            self.world.queue.moved(&self.world.catalog, now, ExecutorId(*executor), &moved);
        }
    }
}

#[test]
fn home_is_tried_by_twice_as_many_while_that_brings_more_and_then_awaited_while_it_comes_along() {
    // Each reader gets as much as the first reader alone.
    let mut quick = HomeReads::new(Config::default());
    let mut begun = vec![];
    for _ in 0..8 {
        quick.pass(10, 1_000_000, u64::MAX);
        begun.push(quick.begin());
    }
    assert_eq!(begun, [1, 3, 6, 5, 0, 0, 0, 0]);
    // All readers together get no more than the first reader alone: no other executor reads as long as the
    // object keeps coming.
    let mut slow = HomeReads::new(Config::default());
    slow.pass(10, 100_000, 100_000);
    assert_eq!(slow.begin(), 1);
    let mut ms = 10;
    for _ in 0..12 {
        slow.pass(ms, 100_000, 100_000);
        assert_eq!(slow.begin(), 0, "after {ms} ms more");
        ms *= 2;
    }
    assert!(ms > 40_000, "longer than anybody waits for what is not known to come along");
    // Where home's limit is known, no executor has to try.
    let mut limited = HomeReads::new(Config { home_bytes_per_s: 100_000, ..Config::default() });
    limited.pass(10, 100_000, 100_000);
    assert_eq!(limited.begin(), 0);
}

#[test]
fn what_no_other_task_in_sight_reads_passes_the_cache_by_where_no_run_follows() {
    for (keeps_once, all_in_sight, passes) in
        [(false, true, true), (true, true, false), (false, false, false)]
    {
        let mut world = World::new(9, Config { keeps_once, ..Config::default() });
        world.queue.set_all_in_sight(all_in_sight);
        world.executor(0, 1);
        world.executor(1, 1);
        world.task(&[1]);
        world.task(&[2]);
        world.task(&[2]);
        let once = world.place_all().into_iter().find(|d| d.moves == fetched(1)).expect("it is cold");
        assert_eq!(world.coming().contains(&(once.executor, 1)), !passes);
        assert!(world.coming().iter().any(|(_, object)| *object == 2), "it is read twice");
        world.queue.sanity_check(&world.catalog);
        world.end_all();
        world.queue.sanity_check(&world.catalog);
    }
}

/// Four tasks on four nodes read one file; the first reads it from home at the given rate. Gives the number
/// of tasks that then read it past the cache.
fn n_past_cache(disk_bytes_per_s: u64, home_bytes_per_s: u64) -> usize {
    let mut world = World::new(9, Config { disk_bytes_per_s, home_bytes_per_s, ..Config::default() });
    world.queue.set_all_in_sight(true);
    (0..4).for_each(|e| world.executor(e, 1));
    (0..4).for_each(|_| _ = world.task(&[1]));
    let first = world.place().unwrap();
    world.wait_ms(10);
    let (now, rate) = (world.now, home_bytes_per_s.min(disk_bytes_per_s.max(1)));
    let moved = InputMoved {
        target: Target::Cache(ObjectId(1)),
        object: ObjectId(1),
        source: Source::Home,
        moved_bytes: rate / 100,
        size_bytes: OBJECT_BYTES,
        moving_ns: 10 * MS,
        is_all: false,
    };
    world.queue.moved(&world.catalog, now, ExecutorId(first.executor), &moved);
    while world.place().is_ok() {}
    world.check();
    let n = world.queue.home.direct.len();
    world.end_all();
    world.check();
    n
}

#[test]
fn what_home_gives_sooner_than_the_disk_passes_the_cache_by() {
    assert!(n_past_cache(50_000_000, 10_000_000_000) > 0, "home is quicker than the disk");
    assert_eq!(n_past_cache(5_000_000_000, 100_000_000), 0, "the disk is quicker than home");
    assert_eq!(n_past_cache(0, 10_000_000_000), 0, "nothing is to be gained by it");
}

#[test]
fn a_node_that_reads_has_less_of_home_for_what_it_reads_besides() {
    let mut load = HomeLoad::default();
    let second_ns = 1000 * MS;
    let mut now = Timestamp(0);
    for n in [1.0, 2.0, 4.0, 8.0] {
        // Each read is on a node of its own, and each gets as much as the first read.
        let mark = load.begin(now, 1);
        now = now.plus_ns(second_ns);
        let all = Reads { n, n_nodes: n };
        load.learn(mark, 10_000_000, now, second_ns, NODE_READS_ONE, all, Some(all));
    }
    let eight = Reads { n: 8.0, n_nodes: 8.0 };
    assert_eq!(load.forecast(eight, 1), Some(1e7));
    assert_eq!(load.forecast(eight, 4), Some(2.5e6), "four share what one node gets");
}

/// The reads of one node share its link: together they say what the link gives, and nothing of what a
/// second node would get.
#[test]
fn what_bounds_a_node_is_not_taken_for_what_home_gives() {
    let mut load = HomeLoad::default();
    let ms = |n| Timestamp(n * MS);
    let marks = [1, 2, 3, 4].map(|_| load.begin(ms(0), 4));
    load.pass(ms(10), 4);
    let all = Reads { n: 4.0, n_nodes: 1.0 };
    for mark in marks {
        let sharing = load.sharing(mark, ms(10), 10 * MS, all);
        load.learn(mark, 50_000, ms(10), 10 * MS, NodeReads { n: 4, n_alike: 4.0 }, all, sharing);
    }
    assert_eq!(load.forecast(Reads { n: 5.0, n_nodes: 2.0 }, 1), Some(8e6), "as much as the first node");
}

/// One node got 10 MB/s alone. Then a hundred nodes share as much and all report. What one node takes is as much as before:
/// it is forgotten by the rounds of reports, not by their number.
#[test]
fn many_nodes_that_share_home_do_not_make_one_node_look_slow() {
    let mut load = HomeLoad::default();
    let ms = |n| Timestamp(n * MS);
    let one = Reads { n: 1.0, n_nodes: 1.0 };
    let first = load.begin(ms(0), 1);
    load.learn(first, 100_000, ms(10), 10 * MS, NODE_READS_ONE, one, Some(one));
    load.end(first);
    let all = Reads { n: 100.0, n_nodes: 100.0 };
    for _ in 0..100 {
        let mark = load.begin(ms(10), 1);
        load.learn(mark, 1_000, ms(20), 10 * MS, NODE_READS_ONE, all, Some(all));
    }
    assert!((9.8e6..1e7).contains(&load.node_max), "{} bytes/s", load.node_max);
    assert!(load.forecast(one, 1).is_some_and(|rate| rate > 9.8e6), "{:?}", load.forecast(one, 1));
}

/// Small reads that wait for home's first byte take nothing of a node's link. Counted like a large read,
/// they made the link look quicker by as much.
#[test]
fn small_reads_do_not_make_the_link_of_a_large_one_look_quicker() {
    let mut world = World::new(9, Config::default());
    (1..9).for_each(|o| world.catalog.set_size_bytes(ObjectId(o), Some(100)));
    world.executor(0, 4);
    world.task(&[0, 1, 2, 3]);
    assert_eq!(world.place().unwrap().moves.len(), 4);
    world.wait_ms(10);
    let moved = InputMoved {
        target: Target::Cache(ObjectId(0)),
        object: ObjectId(0),
        source: Source::Home,
        moved_bytes: 10_000,
        size_bytes: OBJECT_BYTES,
        moving_ns: 10 * MS,
        is_all: false,
    };
    world.queue.moved(&world.catalog, world.now, ExecutorId(0), &moved);
    let node_max = world.queue.home.load.node_max;
    assert!((1e6..1.1e6).contains(&node_max), "{node_max} bytes/s, where 10,000 came in 10 ms");
}

/// A script comes from home beside the large files that its program reads, and no progress was reported for
/// any of them. The time of the script went to messages and to home's first byte. Judged by that time, home
/// would give a second node as much as the first, and both nodes would read all files.
#[test]
fn a_small_file_that_lands_beside_large_ones_says_nothing_of_what_home_gives() {
    for (home_bytes_per_s, landed_ms) in [(20_000_000, 4), (20_000_000, 15), (0, 4)] {
        let mut world = World::new(9, Config { home_bytes_per_s, ..Config::default() });
        (0..5).for_each(|o| world.catalog.set_size_bytes(ObjectId(o), None));
        world.executor(0, 1);
        world.executor(1, 1);
        world.task(&[0, 1, 2, 3]);
        let waits = world.task(&[0, 1, 2, 4]);
        assert_eq!(world.place().unwrap().moves.len(), 4);
        assert!(world.place().is_err(), "the other node waits for what the first one reads");
        world.wait_ms(landed_ms);
        world.catalog.set_size_bytes(ObjectId(0), Some(8_915));
        world.holds(0, &[0]);
        assert_eq!(world.place(), Err(Unplaced::WaitingForCopy { task: TaskId(waits) }));
        [1, 2].into_iter().for_each(|o| world.catalog.set_size_bytes(ObjectId(o), Some(840_053)));
        world.wait_ms(80);
        world.holds(0, &[1, 2]);
        let copied = world.place().unwrap().moves;
        assert_eq!(copied, [(0, Some(0)), (1, Some(0)), (2, Some(0)), (4, None)], "{home_bytes_per_s}");
        world.check();
    }
}

/// A read that has only set out may not have begun: home gives its whole rate to the read that moves.
#[test]
fn a_read_that_was_not_heard_of_does_not_make_home_quicker() {
    let mut load = HomeLoad::default();
    let ms = |n| Timestamp(n * MS);
    let first = load.begin(ms(0), 1);
    load.pass(ms(2), 1);
    let one = Reads { n: 1.0, n_nodes: 1.0 };
    let sharing = load.sharing(first, ms(2), 2 * MS, one);
    load.learn(first, 20_000, ms(2), 2 * MS, NODE_READS_ONE, one, sharing);
    let first = load.mark(first, ms(2), 20_000, 1);
    for _ in 0..7 {
        load.begin(ms(2), 1);
    }
    load.pass(ms(4), 8);
    let eight = Reads { n: 8.0, n_nodes: 8.0 };
    let sharing = load.sharing(first, ms(4), 4 * MS, eight);
    load.learn(first, 40_000, ms(4), 2 * MS, NODE_READS_ONE, eight, sharing);
    assert_eq!(load.total(1.0), Some(1e7));
    assert_eq!(load.total(8.0), None, "of eight nothing is known");
}

#[test]
fn home_reads_can_be_limited() {
    let mut world = World::new(9, Config { home_reads_max: 2, ..Config::default() });
    (0..4).for_each(|e| world.executor(e, 1));
    for o in 0..4 {
        world.task(&[o]);
    }
    assert_eq!(world.place_all().len(), 2);
    world.arrive_all();
    assert_eq!(world.place_all().len(), 2);
}
