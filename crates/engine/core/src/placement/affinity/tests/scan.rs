//! Decisions are compared with a scan of everything, in random worlds.

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Enter { priority: i32, inputs: Vec<u32>, cpus: u32, memory_bytes: u64 },
    Leave(prop::sample::Index),
    Join(u32, u32),
    Left(u32),
    Drain(u32),
    Arrive(prop::sample::Index),
    Hold(u32, u32),
    Drop(u32, u32),
    End(prop::sample::Index),
    Ahead(u32),
    Learn(u32, CacheOutcome, u64),
    Wait(u64),
    Place,
}

fn op(n_executors: u32, n_objects: u32) -> impl Strategy<Value = Op> {
    let (e, o) = (0..n_executors, 0..n_objects);
    let inputs = prop_oneof![
        1 => Just(BTreeSet::new()),
        4 => prop::collection::btree_set(o.clone(), 1),
        4 => prop::collection::btree_set(o.clone(), 2),
        1 => prop::collection::btree_set(o.clone(), 3..4),
    ];
    let size = prop_oneof![5 => Just((1, 0)), 1 => (1..3u32, 0..6u64)];
    let outcome = prop_oneof![
        Just(CacheOutcome::Miss),
        Just(CacheOutcome::RemoteHit { from: ExecutorId(0) }),
        Just(CacheOutcome::InPlace)
    ];
    prop_oneof![
        12 => (0..8u32, inputs, size).prop_map(|(p, inputs, (cpus, memory_bytes))| Op::Enter {
            priority: i32::from(p == 0),
            inputs: inputs.into_iter().collect(),
            cpus,
            memory_bytes
        }),
        2 => any::<prop::sample::Index>().prop_map(Op::Leave),
        2 => (e.clone(), 1..4u32).prop_map(|(e, slots)| Op::Join(e, slots)),
        1 => e.clone().prop_map(Op::Left),
        1 => e.clone().prop_map(Op::Drain),
        8 => any::<prop::sample::Index>().prop_map(Op::Arrive),
        2 => (e.clone(), o.clone()).prop_map(|(e, o)| Op::Hold(e, o)),
        3 => (e, o.clone()).prop_map(|(e, o)| Op::Drop(e, o)),
        8 => any::<prop::sample::Index>().prop_map(Op::End),
        1 => (0..3u32).prop_map(Op::Ahead),
        1 => (o, outcome, 1..5000u64).prop_map(|(o, outcome, ms)| Op::Learn(o, outcome, ms)),
        3 => (1..3000u64).prop_map(Op::Wait),
        12 => Just(Op::Place),
    ]
}

/// A decision must be the hit that a scan finds, if there is one. No decision may exceed an executor's room
/// or a source's cap. Once nothing goes wrong any more, all tasks are placed.
fn run(n_executors: u32, n_objects: u32, config: Config, ops: Vec<Op>) {
    use crate::placement::Stage;
    // Some objects are what nodes make of another one, if they have that.
    let location = |o| if o % 5 == 4 { format!("made:gzip:o{}", o - 1) } else { format!("o{o}") };
    let mut world = World::of((0..n_objects).map(location), config);
    world.executor(0, 2);
    for op in ops {
        match op {
            Op::Enter { priority, inputs, cpus, memory_bytes } => {
                world.sized(priority, &inputs, cpus, memory_bytes);
            }
            Op::Leave(index) if !world.tasks.is_empty() => {
                let key = *world.tasks.keys().nth(index.index(world.tasks.len())).unwrap();
                world.tasks.remove(&key);
                assert!(world.queue.leave(&world.catalog, key) && !world.queue.leave(&world.catalog, key));
            }
            Op::Join(e, slots) if e < n_executors => world.executor(e, slots),
            Op::Left(e) => world.leaves(e),
            Op::Drain(e) if world.slots.contains_key(&e) => {
                // The replicas stay where they are but no longer count; the executor's attempts end one
                // after the other.
                let id = ExecutorId(e);
                world.queue.executor_left(&world.catalog, id, &world.catalog.objects_on(id));
                world.slots.remove(&e);
            }
            Op::Arrive(index) => {
                let coming = world.coming();
                if !coming.is_empty() {
                    let (e, o) = coming[index.index(coming.len())];
                    world.holds(e, &[o]);
                }
            }
            Op::Hold(e, o) => world.holds(e, &[o]),
            Op::Drop(e, o) => world.drops(e, o),
            Op::End(index) if !world.given.is_empty() => {
                let task = *world.given.keys().nth(index.index(world.given.len())).unwrap();
                world.end(task.0);
            }
            Op::Ahead(n) => {
                world.ahead = n;
                (0..n_executors).for_each(|e| world.update_room(e));
            }
            Op::Learn(o, outcome, ms) => world.learn(0, o, outcome, ms),
            Op::Wait(ms) => world.wait_ms(ms),
            Op::Place => {
                let hit = |stage| -> Vec<(u32, u64)> {
                    let on = |e: &u32| Some((*e, world.hit_on(*e, stage)?));
                    world.slots.keys().filter_map(on).collect()
                };
                let (idle, ahead) = (hit(Stage::Idle), hit(Stage::Ahead));
                let wanted = if idle.is_empty() { ahead } else { idle };
                // An object that was once read in place may be cached later; a task that entered before
                // that may go to any executor.
                let unsure = |t: &ReadyTask| t.inputs.iter().any(|o| world.never_cached.contains(o));
                if world.tasks.values().any(unsure) {
                    world.place().ok();
                    continue;
                }
                // All queued tasks have open slots. A hit may be left to these slots, but not if its
                // executor has an open slot itself.
                let n_open = |e: &u32| u64::from(world.n_open(*e));
                if world.tasks.len() as u64 <= world.slots.keys().map(n_open).sum() {
                    let has_slot = |e: &u32| {
                        let task = world.hit_on(*e, Stage::Idle);
                        let found = task.and_then(|t| world.tasks.values().find(|of| of.key.task.0 == t));
                        found.is_some_and(|t| t.cpus <= world.n_open(*e))
                    };
                    let must = world.slots.keys().any(has_slot);
                    let is_hit = |d: Decision| matches!(d.reason, Reason::AllHere | Reason::NoInputs);
                    assert!(world.place().is_ok_and(is_hit) || !must);
                    continue;
                }
                match world.place() {
                    Ok(decision) if wanted.is_empty() => {
                        let is_hit = matches!(decision.reason, Reason::AllHere | Reason::NoInputs);
                        assert!(!is_hit, "{decision:?}");
                    }
                    Ok(decision) => {
                        let (executor, task) = (decision.executor, decision.task);
                        assert!(wanted.contains(&(executor, task)), "{decision:?}, not one of {wanted:?}");
                    }
                    Err(unplaced) => assert!(wanted.is_empty(), "{unplaced:?}, but {wanted:?}"),
                }
            }
            _ => {}
        }
        world.check();
    }
    world.executor(99, 3);
    for _ in 0..2 * world.n_tasks + 10 {
        world.place_all();
        world.arrive_all();
        world.end_all();
        world.wait_ms(10_000);
        world.check();
        if world.tasks.is_empty() {
            return;
        }
    }
    panic!("{} tasks are left: {:?}", world.tasks.len(), world.tasks.values().next());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn decisions_keep_the_promises(ops in prop::collection::vec(op(5, 8), 1..120)) {
        run(5, 8, Config::default(), ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// All bounds are so narrow that the indexes miss most of what happens. Hits may then come late, but no
    /// task is lost.
    #[test]
    fn narrow_bounds_lose_nothing(ops in prop::collection::vec(op(5, 6), 1..80)) {
        let narrow =
            Config { uploads_max: 1, home_reads_max: 1, tries: 1, vain_max: 1, oldest_every: 1, ..Config::default() };
        run(5, 6, narrow, ops);
    }
}
