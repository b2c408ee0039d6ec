//! Tasks whose inputs leave home once.

use super::*;
use std::collections::BTreeMap;

impl World {
    /// A task with the hint.
    fn once(&mut self, priority: i32, inputs: &[u32]) -> u64 {
        let objects: Vec<ObjectId> = inputs.iter().map(|o| ObjectId(*o)).collect();
        self.queue.spare_home(&objects);
        self.sized(priority, inputs, 1, 0)
    }

    fn is_home_quick(&mut self) {
        for object in 0..12 {
            self.learn(0, object, CacheOutcome::Miss, 1);
            self.learn(0, object, CacheOutcome::RemoteHit { from: ExecutorId(1) }, 1000);
        }
    }
}

/// Four openings that read three objects each, and four blocks: block `k` reads what openings `k` and `k + 1` read.
fn tiles(world: &mut World) -> (Vec<u64>, Vec<u64>) {
    let objects = |k: u32| [3 * k, 3 * k + 1, 3 * k + 2];
    let openings = (0..4).map(|k| world.once(2, &objects(k))).collect();
    let blocks = (0..4).map(|k| world.once(0, &[objects(k), objects((k + 1) % 4)].concat())).collect();
    (openings, blocks)
}

fn world() -> World {
    let mut world = World::new(12, Config::default());
    world.ahead = 1;
    (0..4).for_each(|id| world.executor(id, 1));
    world.is_home_quick();
    world
}

#[test]
fn each_input_leaves_home_once_and_tasks_follow_their_inputs() {
    let mut world = world();
    let (openings, blocks) = tiles(&mut world);
    let mut owner = BTreeMap::new();
    let mut fetched: Vec<u32> = vec![];
    for decision in world.place_all() {
        let opening = openings.iter().position(|t| *t == decision.task).expect("openings come first");
        assert!(decision.moves.iter().all(|(_, from)| from.is_none()), "{decision:?}");
        fetched.extend(decision.moves.iter().map(|(object, _)| *object));
        assert!(owner.insert(opening, decision.executor).is_none());
    }
    assert_eq!(owner.values().collect::<BTreeSet<_>>().len(), 4, "an executor has one opening: {owner:?}");
    fetched.sort_unstable();
    assert_eq!(fetched, (0..12).collect::<Vec<_>>());
    world.check();
    world.arrive_all();
    let decisions = world.place_all();
    assert_eq!(decisions.len(), 4, "{decisions:?}");
    for decision in decisions {
        let block = blocks.iter().position(|t| *t == decision.task).unwrap();
        // Either of two executors has half of a block.
        assert!([block, (block + 1) % 4].iter().any(|k| owner[k] == decision.executor), "{decision:?}");
        assert!(decision.moves.iter().all(|(_, from)| from.is_some()), "home again: {decision:?}");
        assert_eq!(decision.moves.len(), 3);
    }
    world.check();
    world.arrive_all();
    world.end_all();
    world.check();
}

#[test]
fn a_task_waits_for_what_another_executor_reads() {
    let mut world = World::new(12, Config::default());
    world.ahead = 1;
    (0..2).for_each(|id| world.executor(id, 1));
    world.is_home_quick();
    let opening = world.once(2, &[0, 1, 2]);
    world.once(2, &[6, 7, 8]);
    let block = world.once(0, &[0, 1, 2, 3, 4, 5]);
    let openings = world.place_all();
    // Home would be quicker, but the block's first three inputs are on their way already.
    assert_eq!(openings.len(), 2, "{openings:?}");
    let owner = openings.iter().find(|d| d.task == opening).unwrap().executor;
    world.arrive_all();
    let second = world.place().unwrap();
    assert_eq!((second.executor, second.task), (owner, block));
    assert_eq!(second.moves, [(3, None), (4, None), (5, None)]);
    world.check();
}

#[test]
fn an_executor_without_an_idle_slot_leaves_a_task_to_the_one_that_has_more() {
    let mut world = world();
    let own = world.once(0, &[0, 1, 2]);
    world.holds(0, &[0, 1, 2]);
    let other = world.once(0, &[2, 3, 4]);
    world.holds(1, &[3, 4]);
    // Both are given their own tasks; nobody takes the other's.
    let decisions = world.place_all();
    let tasks: BTreeMap<u64, u32> = decisions.iter().map(|d| (d.task, d.executor)).collect();
    assert_eq!(tasks[&own], 0);
    assert_eq!(tasks.len(), 2);
    assert!(tasks.contains_key(&other));
    world.check();
}

#[test]
fn the_set_of_objects_stays_small() {
    let mut world = World::new(20_000, Config::default());
    for k in 0..5000 {
        world.once(0, &[4 * k, 4 * k + 1, 4 * k + 2]);
        let key = *world.tasks.keys().next().unwrap();
        world.tasks.remove(&key);
        assert!(world.queue.leave(&world.catalog, key));
    }
    assert!(world.queue.n_spared() < 3000, "{}", world.queue.n_spared());
}
