//! Slow transfers: who does not begin one, and who gives one up.

use super::super::late::Late;
use super::reads::HomeReads;
use super::*;
use crate::event::Target;
use eyas_terms::AttemptNo;

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

#[test]
fn the_names_of_late_tasks_do_not_grow_without_end() {
    let mut late = Late::default();
    for task in 0..100_000 {
        late.name(&[TaskId(task)]);
        assert!(late.has_named(TaskId(task)) && late.has_named(TaskId(task.saturating_sub(1000))));
        assert!(late.n_named() <= 8192);
    }
}

/// Two nodes with a slow disk read an object through their caches. Others read past theirs, and home gives
/// `home_bytes_per_s` to each of them.
fn read_through_a_slow_disk(home_bytes_per_s: u64) -> (World, u64) {
    let disk_bytes_per_s = 1_000_000;
    let mut world = World::new(9, Config { disk_bytes_per_s, keeps_once: false, ..Config::default() });
    (0..4).for_each(|e| world.executor(e, 1));
    world.queue.set_all_in_sight(true);
    let tasks: Vec<u64> = (0..4).map(|_| world.task(&[1])).collect();
    assert_eq!(world.place().unwrap().task, tasks[0]);
    let report = |world: &mut World, executor, target, rate: u64| {
        world.wait_ms(100);
        let moving_ns = world.now.since_ns(Timestamp(1000 * MS));
        let moved_bytes = (rate as f64 * moving_ns as f64 / 1e9) as u64;
        let (object, source) = (ObjectId(1), Source::Home);
        let size_bytes = OBJECT_BYTES;
        let moved = InputMoved { target, object, source, moved_bytes, size_bytes, moving_ns, is_all: false };
        world.queue.moved(&world.catalog, world.now, ExecutorId(executor), &moved);
    };
    let through = world.coming()[0].0;
    report(&mut world, through, Target::Cache(ObjectId(1)), disk_bytes_per_s.min(home_bytes_per_s));
    assert_eq!(world.late(), NOBODY, "what home gives past the cache is not known");
    for _ in 0..8 {
        while world.place().is_ok() {}
        for (task, executor) in world.past_cache() {
            let target = Target::Private { task: TaskId(task), attempt: AttemptNo(1), input: 0 };
            report(&mut world, executor, target, home_bytes_per_s);
        }
    }
    (world, tasks[0])
}

#[test]
fn a_read_through_a_slow_disk_begins_anew_past_it_once_home_turns_out_to_be_quicker() {
    let (mut world, task) = read_through_a_slow_disk(4_000_000);
    assert_eq!(world.late(), [task]);
    let again = world.given[&TaskId(task)].task.clone();
    world.end(task);
    world.enter(again);
    assert_eq!(world.place().unwrap().task, task);
    assert!(world.past_cache().iter().any(|(t, _)| *t == task));
    world.check();
    let (mut world, _) = read_through_a_slow_disk(700_000);
    assert_eq!(world.late(), NOBODY, "home is no quicker than the disk");
}
