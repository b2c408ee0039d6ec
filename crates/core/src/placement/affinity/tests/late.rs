//! Slow transfers: who does not begin one, and who gives one up.

use super::reads::HomeReads;
use super::*;

const NOBODY: [u64; 0] = [];

#[test]
fn the_share_of_home_that_a_node_gets_at_first_does_not_make_a_second_one_read() {
    let mut limited = HomeReads::new(Config { home_bytes_per_s: 1_000_000, ..Config::default() });
    limited.pass(20, 30_000, 30_000);
    assert_eq!(limited.begin(), 0);
}

#[test]
fn who_finds_all_holders_busy_waits_for_the_first_copies_and_does_not_read_a_slow_home_again() {
    let mut reads = HomeReads::new(Config { home_bytes_per_s: 1_000_000, ..Config::default() });
    for _ in 0..10 {
        reads.pass(1000, 1_000_000, 1_000_000);
        assert_eq!(reads.begin(), 0);
    }
    let world = &mut reads.world;
    let reader = world.coming()[0].0;
    world.holds(reader, &[1]);
    let mut decided = vec![];
    for _ in 0..20 {
        decided.extend(world.place_all());
        world.wait_ms(100);
    }
    let moves: Vec<_> = decided.iter().filter(|d| !d.moves.is_empty()).map(|d| d.moves.clone()).collect();
    assert_eq!(moves, [vec![(1, Some(reader))], vec![(1, Some(reader))]]);
}

/// Executor 0 reads object 1 from home so slowly that it takes 1000 s. Executor 1 has the object by now.
fn slow_read() -> (World, u64) {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    let task = world.task(&[1]);
    assert_eq!(world.place().unwrap().moves, fetched(1));
    world.wait_ms(1000);
    let moved = InputMoved {
        target: Target::Cache(ObjectId(1)),
        object: ObjectId(1),
        source: Source::Home,
        moved_bytes: OBJECT_BYTES / 1000,
        size_bytes: OBJECT_BYTES,
        moving_ns: 1000 * MS,
        is_all: false,
    };
    world.queue.moved(&world.catalog, world.now, ExecutorId(0), &moved);
    assert_eq!(world.late(), NOBODY, "nobody has it");
    world.executor(1, 1);
    world.holds(1, &[1, 2]);
    (world, task)
}

#[test]
fn a_task_that_waits_for_home_goes_to_an_idle_node_that_has_its_files() {
    let (mut world, task) = slow_read();
    assert_eq!(world.late(), [task]);
    assert_eq!(world.late(), NOBODY, "nothing is said twice");
    let again = world.given[&TaskId(task)].task.clone();
    world.end(task);
    world.enter(again);
    let decision = world.place().unwrap();
    assert_eq!((decision.executor, decision.task, decision.moves), (1, task, vec![]));
}

#[test]
fn a_read_from_home_is_given_up_for_a_copy_that_is_much_quicker() {
    let (mut world, task) = slow_read();
    world.task(&[2]);
    assert_eq!(world.place().unwrap().executor, 1, "nobody is idle now");
    assert_eq!(world.late(), NOBODY, "it is not known how long a copy takes");
    world.learn(0, 3, CacheOutcome::RemoteHit { from: ExecutorId(1) }, 500_000);
    assert_eq!(world.late(), NOBODY, "a copy takes half as long");
    (0..200).for_each(|_| world.learn(0, 3, CacheOutcome::RemoteHit { from: ExecutorId(1) }, 50));
    assert_eq!(world.late(), [task]);
}
