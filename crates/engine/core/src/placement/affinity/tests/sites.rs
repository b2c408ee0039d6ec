//! Executors in sites with slow links between them.

use super::*;
use crate::event::Target;
use crate::network::Network;
use eyas_terms::rng::Rng;
use std::collections::BTreeMap;

/// `n` executors with two slots, in three sites in turn, as round trips show them.
fn three_sites(n: u32, n_objects: u32) -> World {
    let mut world = one_site(n, n_objects);
    find_sites(&mut world, n);
    world
}

/// The same executors, of which nothing is known yet.
fn one_site(n: u32, n_objects: u32) -> World {
    let mut world = World::new(n_objects, Config { network: NetworkUse::Measured, ..Config::default() });
    (0..n).for_each(|id| world.executor(id, 2));
    world
}

fn find_sites(world: &mut World, n: u32) {
    let found = sites(n);
    assert_eq!(found.as_ref().map(|sites| sites.sites.len()), Some(3));
    world.queue.sites_found(&world.catalog, found);
}

fn sites(n: u32) -> Option<Arc<Sites>> {
    let mut network = Network::default();
    (0..n).for_each(|id| network.executor_joined(ExecutorId(id), &format!("host{id}")));
    for (a, b) in (0..n).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let round_trip_ns = if a % 3 == b % 3 { MS / 5 } else { 20 * MS };
        network.observe_round_trip(ExecutorId(a), ExecutorId(b), round_trip_ns);
    }
    network.settle();
    network.sites().cloned()
}

/// A read from home by `executor` goes on with that rate.
fn shows_home(world: &mut World, executor: u32, object: u32, mb_per_s: u64) {
    let moved = InputMoved {
        target: Target::Cache(ObjectId(object)),
        object: ObjectId(object),
        source: Source::Home,
        moved_bytes: OBJECT_BYTES / 5,
        size_bytes: OBJECT_BYTES,
        moving_ns: OBJECT_BYTES / 5 * 1000 / mb_per_s,
        is_all: false,
    };
    world.queue.moved(&world.catalog, world.now, ExecutorId(executor), &moved);
}

#[test]
fn few_objects_cross_a_slow_link_at_once_and_the_neighbour_waits() {
    // Executors 1, 4 and 7 are one site.
    let mut world = three_sites(9, 40);
    (0..40).for_each(|object| {
        world.task(&[object]);
    });
    let begun = world.place_all();
    let into = |site: u32| begun.iter().filter(|d| d.executor % 3 == site).count();
    assert_eq!([into(0), into(1), into(2)], [1, 1, 1], "nothing is known of any link");
    for decision in &begun {
        let mb_per_s = if decision.executor % 3 == 0 { 100 } else { 6 };
        shows_home(&mut world, decision.executor, decision.moves[0].0, mb_per_s);
    }
    world.wait_ms(200);
    let more = world.place_all();
    assert!(
        !more.is_empty() && more.iter().all(|d| d.executor % 3 == 0),
        "home is quick for one site: {more:?}"
    );
    world.check();
}

#[test]
fn objects_cross_for_tasks_that_were_queued_before_sites_were_found() {
    for n_inputs in [1, 2] {
        let mut world = one_site(9, 40);
        world.holds(1, &[39]);
        for object in 0..30 {
            world.task(&[object, 39][..n_inputs]);
        }
        find_sites(&mut world, 9);
        world.check();
        assert!(world.place_all().iter().any(|d| d.executor % 3 == 1), "tasks with {n_inputs} inputs");
    }
}

#[test]
fn what_a_site_has_lost_is_counted_again_as_what_it_lacks() {
    for n_inputs in [1, 2] {
        let mut world = three_sites(9, 40);
        world.holds(1, &[38, 39]);
        for _ in 0..30 {
            world.task(&[38, 39][..n_inputs]);
        }
        world.drops(1, 38);
        world.check();
    }
}

#[test]
fn a_site_gets_what_it_lacks_also_where_a_task_lasts_much_longer_than_a_crossing() {
    let mut world = three_sites(3, 40);
    world.queue.times.run_ns = Some(1_000_000 * MS);
    (0..30).for_each(|object| {
        world.task(&[object]);
    });
    for round in 0..4 {
        let begun = world.place_all();
        for decision in &begun {
            let mb_per_s = if decision.executor == 0 { 100 } else { 6 };
            decision.moves.iter().for_each(|(o, _)| shows_home(&mut world, decision.executor, *o, mb_per_s));
        }
        assert!(begun.iter().any(|d| d.executor == 1), "round {round}: {begun:?}");
        world.arrive_all();
        world.wait_ms(1_000_000);
        world.end_all();
    }
}

#[test]
fn an_object_crosses_once_and_then_comes_from_the_neighbour() {
    let mut world = three_sites(9, 4);
    (0..30).for_each(|_| {
        world.task(&[1]);
    });
    let first = world.place().unwrap();
    shows_home(&mut world, first.executor, 1, 6);
    let site = first.executor % 3;
    world.wait_ms(100);
    let more = world.place_all();
    assert!(more.iter().all(|d| d.executor % 3 != site || d.executor == first.executor), "{more:?}");
    world.arrive_all();
    let mut copies = vec![];
    for _ in 0..4 {
        let is_copy = |d: &Decision| d.executor % 3 == site && !d.moves.is_empty();
        copies.extend(world.place_all().into_iter().filter(is_copy));
        world.wait_ms(1_000);
    }
    assert!(!copies.is_empty());
    for copy in copies {
        let (_, from) = copy.moves[0];
        assert_eq!(from.map(|from| from % 3), Some(site), "{copy:?}");
    }
    world.check();
}

#[test]
fn while_an_executor_measures_how_far_it_is_nothing_is_moved_to_it() {
    let mut world = World::new(9, Config { network: NetworkUse::Measured, ..Config::default() });
    world.executor(0, 1);
    world.holds(0, &[1]);
    world.queue.set_awaited(ExecutorId(0), true);
    world.task(&[2]);
    let hit = world.task(&[1]);
    assert_eq!(world.place().unwrap().task, hit);
    world.end(hit);
    assert!(world.place().is_err());
    Queue::set_awaited(&mut world.queue, ExecutorId(0), false);
    assert_eq!(world.place().unwrap().moves, fetched(2));
}

/// Enters all pairs of two sets of `n` items as tiles of the shape that `eyas pairs` gives them for six executors of two slots:
/// of each of twelve blocks first an opening of a quarter of it, and small tiles of its last rows behind all blocks. Gives
/// their number.
fn tiles_of(world: &mut World, n: u32) -> usize {
    let part = |k: u32, of: u32| n * k / of..n * (k + 1) / of;
    let mut tiles = vec![];
    for (rows, columns) in (0..3).flat_map(|i| (0..4).map(move |j| (part(i, 3), part(j, 4)))) {
        let half = |of: &std::ops::Range<u32>| of.start..of.start.midpoint(of.end + 1);
        tiles.push((2, half(&rows), half(&columns)));
        tiles.push((1, rows.clone(), columns.clone()));
        tiles.push((0, rows.end.saturating_sub(1).max(rows.start)..rows.end, columns));
    }
    tiles.retain(|(_, rows, columns)| !rows.is_empty() && !columns.is_empty());
    for (priority, rows, columns) in &tiles {
        let objects: Vec<u32> = rows.clone().chain(columns.clone().map(|i| n + i)).collect();
        let inputs: Vec<ObjectId> = objects.iter().map(|o| ObjectId(*o)).collect();
        world.queue.spare_home(&inputs);
        world.sized(*priority, &objects, 1, 0);
    }
    tiles.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However transfers and programs end: an item of a tile comes into each site once, by a plain count, and all tiles run.
    #[test]
    fn items_of_tiles_come_into_each_site_once(seed in 0u64..1 << 40, n in 4u32..16) {
        let mut rng = Rng::new(seed);
        let mut world = three_sites(6, 2 * n);
        world.ahead = rng.below(2) as u32;
        let n_tiles = tiles_of(&mut world, n);
        let mut n_into: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut n_given = 0;
        for _ in 0..40 * n_tiles {
            for decision in world.place_all() {
                n_given += 1;
                for (object, from) in &decision.moves {
                    let site = decision.executor % 3;
                    if from.is_none_or(|from| from % 3 != site) {
                        *n_into.entry((*object, site)).or_default() += 1;
                    }
                    if from.is_none() {
                        shows_home(&mut world, decision.executor, *object, if site == 0 { 100 } else { 6 });
                    }
                }
            }
            world.check();
            for (executor, object) in world.coming() {
                if rng.below(2) == 0 {
                    world.holds(executor, &[object]);
                }
            }
            for task in world.given.keys().copied().collect::<Vec<_>>() {
                let given = &world.given[&task];
                let is_whole = given.task.inputs.iter().all(|o| world.catalog.holds(ExecutorId(given.executor), *o));
                if is_whole && rng.below(2) == 0 {
                    world.end(task.0);
                }
            }
            world.wait_ms(200);
            if world.tasks.is_empty() {
                break;
            }
        }
        prop_assert_eq!((n_given, world.tasks.len()), (n_tiles, 0));
        prop_assert!(n_into.values().all(|times| *times == 1), "{:?}", n_into);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What sites have stays right whatever happens, and all tasks run.
    #[test]
    fn indexes_of_sites_are_what_their_executors_have(seed in 0u64..1 << 40) {
        let mut rng = Rng::new(seed);
        let mut world = three_sites(6, 12);
        for _ in 0..60 {
            let (object, executor) = (rng.below(12) as u32, rng.below(6) as u32);
            let is_here = world.slots.contains_key(&executor);
            match rng.below(9) {
                0..=2 => drop(world.task(&[object, (object + 1 + rng.below(11) as u32) % 12])),
                3 => drop(world.task(&[object])),
                4 => world.arrive_all(),
                5 => world.end_all(),
                6 if is_here => world.drops(executor, object),
                7 if is_here && rng.below(4) == 0 => world.leaves(executor),
                7 if !is_here => {
                    world.executor(executor, 2);
                    let found = sites(6);
                    world.queue.sites_found(&world.catalog, found);
                }
                _ => {
                    let moves = world.place_all();
                    for decision in moves.iter().filter(|d| d.moves.iter().any(|(_, from)| from.is_none())) {
                        let mb_per_s = if decision.executor % 3 == 0 { 100 } else { 6 };
                        shows_home(&mut world, decision.executor, decision.moves[0].0, mb_per_s);
                    }
                }
            }
            world.check();
            world.wait_ms(50);
        }
        for executor in 0..6 {
            if !world.slots.contains_key(&executor) {
                world.executor(executor, 2);
            }
        }
        for _ in 0..400 {
            world.place_all();
            world.arrive_all();
            world.end_all();
            world.wait_ms(1_000);
        }
        world.check();
        prop_assert!(world.tasks.is_empty(), "{} tasks are left", world.tasks.len());
    }
}
