//! The rules by example, and the indexes against a scan of everything.

use super::super::{Reason, Rule};
use super::home::{NodeReads, Reads};
use super::*;
use crate::location::CatalogLocation;
use proptest::prelude::*;
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;
const OBJECT_BYTES: u64 = 10_000_000;
const NODE_READS_ONE: NodeReads = NodeReads { n: 1, n_alike: 1.0 };

/// A task that was given out.
#[derive(Clone, Debug)]
struct Given {
    executor: u32,
    task: ReadyTask,
}

/// A small dispatcher: keeps rooms, and carries out what the policy decides.
struct World {
    catalog: Catalog,
    queue: Affinity,
    now: Timestamp,
    tasks: BTreeMap<QueueKey, ReadyTask>,
    /// Slots of the executors that are here, and whether they get tasks ahead.
    slots: BTreeMap<u32, u32>,
    memory: BTreeMap<u32, u64>,
    ahead: u32,
    given: BTreeMap<TaskId, Given>,
    n_tasks: u64,
    /// Objects that were said to be read in place.
    never_cached: BTreeSet<ObjectId>,
}

/// What one decision has set in motion.
#[derive(Debug, PartialEq)]
struct Decision {
    executor: u32,
    task: u64,
    reason: Reason,
    /// `(object, peer)`, no peer for home.
    moves: Vec<(u32, Option<u32>)>,
}

impl World {
    fn new(n_objects: u32, config: Config) -> World {
        let mut catalog = Catalog::new();
        for o in 0..n_objects {
            let object = catalog.intern(CatalogLocation::Home(&format!("o{o}")));
            catalog.set_size_bytes(object, Some(OBJECT_BYTES));
        }
        World {
            catalog,
            queue: Affinity::new(config).unwrap(),
            now: Timestamp(1000 * MS),
            tasks: BTreeMap::new(),
            slots: BTreeMap::new(),
            memory: BTreeMap::new(),
            ahead: 0,
            given: BTreeMap::new(),
            n_tasks: 0,
            never_cached: BTreeSet::new(),
        }
    }

    fn executor(&mut self, id: u32, slots: u32) {
        self.catalog.executor_joined(ExecutorId(id));
        self.queue.executor_joined(&self.catalog, ExecutorId(id));
        self.slots.insert(id, slots);
        self.update_room(id);
    }

    /// As the dispatcher does it, with memory of 10 for whoever has no other.
    fn update_room(&mut self, id: u32) {
        let Some(&slots) = self.slots.get(&id) else { return };
        let there = self.given.values().filter(|g| g.executor == id);
        let (cpus, memory) = there.fold((0, 0), |(c, m), g| (c + g.task.cpus, m + g.task.memory_bytes));
        let moving = self.queue.moving(ExecutorId(id)).cpus;
        let here = cpus - moving;
        let moves = match self.ahead {
            0 => slots.saturating_sub(cpus),
            _ if moving < slots => slots,
            _ => 0,
        };
        let memory_total_bytes = self.memory.get(&id).copied().unwrap_or(10);
        let room = Room {
            slots_total: slots,
            slots_idle: slots.saturating_sub(here),
            ahead: (slots + self.ahead).saturating_sub(here.max(slots)),
            memory_total_bytes,
            memory_free_bytes: memory_total_bytes.saturating_sub(memory),
            moves,
            rests: false,
        };
        self.queue.set_room(ExecutorId(id), room);
    }

    fn leaves(&mut self, id: u32) {
        let objects = self.catalog.executor_left(ExecutorId(id));
        self.queue.executor_left(&self.catalog, ExecutorId(id), &objects);
        self.slots.remove(&id);
        let lost: Vec<TaskId> =
            self.given.iter().filter(|(_, g)| g.executor == id).map(|(t, _)| *t).collect();
        for task in lost {
            self.queue.ended(&self.catalog, task);
            let given = self.given.remove(&task).unwrap();
            self.enter(given.task);
        }
    }

    fn holds(&mut self, id: u32, objects: &[u32]) {
        for &o in objects {
            if self.catalog.add_replica(ExecutorId(id), ObjectId(o)) {
                self.queue.replica_added(&self.catalog, ExecutorId(id), ObjectId(o));
                self.update_room(id);
            }
        }
    }

    fn drops(&mut self, id: u32, object: u32) {
        if self.catalog.drop_replica(ExecutorId(id), ObjectId(object)) {
            self.queue.replica_dropped(&self.catalog, ExecutorId(id), ObjectId(object));
        }
    }

    fn enter(&mut self, task: ReadyTask) {
        self.queue.enter(&self.catalog, self.now, &task);
        self.tasks.insert(task.key, task);
    }

    fn sized(&mut self, priority: i32, inputs: &[u32], cpus: u32, memory_bytes: u64) -> u64 {
        let task = self.n_tasks;
        self.n_tasks += 1;
        let key = QueueKey { priority, task: TaskId(task) };
        let inputs = inputs.iter().map(|&o| ObjectId(o)).collect();
        self.enter(ReadyTask { key, inputs, first_input: None, cpus, memory_bytes });
        task
    }

    fn task(&mut self, inputs: &[u32]) -> u64 {
        self.sized(0, inputs, 1, 0)
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ns(ms * MS);
    }

    fn place(&mut self) -> Result<Decision, Unplaced> {
        let mut picks = vec![];
        let executor = self.queue.place(&self.catalog, self.now, &mut picks)?;
        let [pick] = picks[..] else { panic!("one task per decision") };
        let task = self.tasks.remove(&pick.key).unwrap();
        let room = self.queue.room(executor).unwrap();
        let mut routes = vec![];
        self.queue.give(&self.catalog, self.now, executor, pick.key, &mut routes);
        assert!(self.queue.leave(&self.catalog, pick.key));
        let moves: Vec<(u32, Option<u32>)> = routes
            .iter()
            .filter_map(|r| match r.source? {
                Source::Home => Some((r.object.0, None)),
                Source::Peer(from) => Some((r.object.0, Some(from.0))),
            })
            .collect();
        // Inputs that no cache holds do not count.
        let inputs: Vec<ObjectId> = routes.iter().map(|r| r.object).collect();
        let n_hits = inputs.iter().filter(|o| self.catalog.holds(executor, **o)).count();
        assert_eq!((pick.n_hits as usize, pick.n_inputs as usize), (n_hits, inputs.len()));
        assert!(task.inputs.iter().all(|o| inputs.contains(o) || self.never_cached.contains(o)));
        if n_hits == inputs.len() {
            assert!(room.fits(pick.stage, task.cpus, task.memory_bytes), "{room:?} for {task:?}");
        } else {
            assert!(
                task.cpus <= room.moves && task.memory_bytes <= room.memory_free_bytes,
                "{room:?} for {task:?}"
            );
        }
        let Rule::Affinity(reason) = pick.rule else { panic!("another policy's rule") };
        self.given.insert(pick.key.task, Given { executor: executor.0, task });
        self.update_room(executor.0);
        Ok(Decision { executor: executor.0, task: pick.key.task.0, reason, moves })
    }

    /// All decisions that can be taken now.
    fn place_all(&mut self) -> Vec<Decision> {
        std::iter::from_fn(|| self.place().ok()).collect()
    }

    /// What is on its way: `(executor, object)`.
    fn coming(&self) -> Vec<(u32, u32)> {
        let members = self.queue.members.iter().flatten();
        members.flat_map(|m| m.coming.keys().map(|o| (m.id.0, o.0))).collect()
    }

    fn arrive_all(&mut self) {
        for (executor, object) in self.coming() {
            self.holds(executor, &[object]);
        }
    }

    fn end(&mut self, task: u64) {
        let given = self.given.remove(&TaskId(task)).unwrap();
        self.queue.ended(&self.catalog, TaskId(task));
        self.update_room(given.executor);
    }

    fn end_all(&mut self) {
        for task in self.given.keys().copied().collect::<Vec<_>>() {
            self.end(task.0);
        }
    }

    fn learn(&mut self, executor: u32, object: u32, outcome: CacheOutcome, wait_ms: u64) {
        self.learn_of(executor, object, outcome, OBJECT_BYTES, wait_ms);
    }

    fn learn_of(&mut self, executor: u32, object: u32, outcome: CacheOutcome, size_bytes: u64, wait_ms: u64) {
        let wait_ns = wait_ms * MS;
        let input = InputReport { object: ObjectId(object), outcome, size_bytes, wait_ns };
        if outcome == CacheOutcome::InPlace {
            self.never_cached.insert(ObjectId(object));
        }
        self.queue.learnt(&self.catalog, ExecutorId(executor), &[input], None);
    }

    /// A program has run for so long.
    fn ran(&mut self, executor: u32, ms: u64) {
        self.queue.learnt(&self.catalog, ExecutorId(executor), &[], Some(ms * MS));
    }

    fn check(&self) {
        self.queue.sanity_check(&self.catalog);
        assert_eq!(self.queue.len(), self.tasks.len());
        assert_eq!(self.queue.last(), self.tasks.keys().last().copied());
        assert!(self.tasks.keys().all(|key| self.queue.contains(*key)));
        let all: BTreeSet<QueueKey> =
            self.queue.sizes().into_iter().flat_map(|size| self.queue.tasks_of_size(size)).collect();
        assert!(all.iter().eq(self.tasks.keys()));
    }

    /// The hit that the rules want, by looking at everything: `true` for the stage it is for.
    fn hit_on(&self, executor: u32, stage: super::super::Stage) -> Option<u64> {
        let room = self.queue.room(ExecutorId(executor))?;
        let here = |o: &ObjectId| self.catalog.holds(ExecutorId(executor), *o) || self.queue.open.contains(o);
        let fits = |t: &&ReadyTask| room.fits(stage, t.cpus, t.memory_bytes) && t.inputs.iter().all(here);
        self.tasks.values().find(fits).map(|t| t.key.task.0)
    }

    /// Idle slots there that nothing on its way will take.
    fn n_open(&self, executor: u32) -> u32 {
        let idle = self.queue.room(ExecutorId(executor)).map_or(0, |room| room.slots_idle);
        idle.saturating_sub(self.queue.moving(ExecutorId(executor)).cpus)
    }
}

fn fetched(object: u32) -> Vec<(u32, Option<u32>)> {
    vec![(object, None)]
}

#[test]
fn hits_come_first_and_the_oldest_of_them() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    world.executor(1, 1);
    world.task(&[7]);
    world.holds(1, &[1, 2]);
    let old = world.task(&[1, 2]);
    world.task(&[2]);
    let decision = world.place().unwrap();
    assert_eq!((decision.executor, decision.task, decision.reason), (1, old, Reason::AllHere));
    world.holds(0, &[2]);
    assert_eq!(world.place().unwrap().executor, 0, "who comes to hold an input is told");
}

#[test]
fn a_task_may_have_a_hundred_thousand_inputs() {
    let mut world = World::new(100_000, Config::default());
    world.executor(0, 1);
    world.executor(1, 1);
    let all: Vec<u32> = (0..100_000).collect();
    world.holds(1, &all[10..]);
    let gather = world.task(&all);
    let decision = world.place().unwrap();
    assert_eq!((decision.executor, decision.task), (1, gather));
}

#[test]
fn the_file_that_most_tasks_wait_for_is_fetched_and_serves_them_all() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 4);
    world.task(&[1]);
    let first = world.task(&[2]);
    world.task(&[2]);
    world.task(&[2]);
    let brings = Reason::Brings { n_tasks: 3 };
    assert_eq!(
        world.place().unwrap(),
        Decision { executor: 0, task: first, reason: brings, moves: fetched(2) }
    );
    assert_eq!(world.place().unwrap().moves, fetched(1));
    assert_eq!(world.place(), Err(Unplaced::WaitingForCopy { task: TaskId(2) }), "the rest joins");
    world.holds(0, &[2]);
    assert_eq!(world.place_all().len(), 2);
}

#[test]
fn bytes_count_as_well_as_tasks() {
    let mut world = World::new(9, Config::default());
    world.catalog.set_size_bytes(ObjectId(2), Some(5 * OBJECT_BYTES));
    world.executor(0, 1);
    world.task(&[1]);
    for _ in 0..3 {
        world.task(&[2]);
    }
    assert_eq!(world.place().unwrap().moves, fetched(1));
}

#[test]
fn home_is_read_once_and_copies_make_a_tree() {
    let mut world = World::new(1, Config::default());
    (0..9).for_each(|e| world.executor(e, 1));
    for _ in 0..90 {
        world.task(&[0]);
    }
    world.ran(0, 1000);
    world.wait_ms(1000);
    assert_eq!(world.place_all().len(), 1, "one reads from home, the others wait for it");
    let mut sizes = vec![];
    while world.catalog.n_holders(ObjectId(0)) < 9 {
        world.wait_ms(1000);
        world.arrive_all();
        let decisions = world.place_all();
        assert!(decisions.iter().flat_map(|d| &d.moves).all(|(_, from)| from.is_some()));
        world.check();
        sizes.push(decisions.iter().filter(|d| !d.moves.is_empty()).count());
        world.end_all();
        // What was on its way is counted when it is there.
        for (e, _) in decisions.iter().flat_map(|d| d.moves.iter().map(|m| (d.executor, m))) {
            world.holds(e, &[0]);
        }
    }
    assert_eq!(sizes, [2, 6], "two copies per holder at a time");
}

#[test]
fn who_waits_for_home_does_not_block_what_is_here() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 2);
    world.holds(0, &[5]);
    world.task(&[1]);
    world.task(&[2]);
    world.task(&[3]);
    assert_eq!(world.place_all().len(), 2, "no more moves than slots");
    let hit = world.task(&[5]);
    assert_eq!(world.place().unwrap().task, hit);
    let hit = world.task(&[5]);
    assert_eq!(world.place().unwrap().task, hit);
    world.task(&[5]);
    assert!(world.place().is_err(), "two run, two wait for home");
    world.check();
}

#[test]
fn what_others_hold_is_copied_after_as_long_as_a_copy_takes() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    world.executor(1, 1);
    world.holds(0, &[1]);
    world.task(&[1]);
    let waits = world.task(&[1]);
    assert_eq!(world.place().unwrap().executor, 0);
    world.wait_ms(100);
    assert_eq!(world.place(), Err(Unplaced::WaitingForCopy { task: TaskId(waits) }));
    world.wait_ms(1);
    let copied = Decision {
        executor: 1,
        task: waits,
        reason: Reason::Copied { waited_ms: 101 },
        moves: vec![(1, Some(0))],
    };
    world.wait_ms(60);
    let copied = Decision { reason: Reason::Copied { waited_ms: 161 }, ..copied };
    assert_eq!(world.place(), Ok(copied));
    // Copies turned out to take a second.
    world.learn(1, 1, CacheOutcome::RemoteHit { from: ExecutorId(0) }, 1000);
    world.holds(1, &[1]);
    world.end_all();
    world.executor(2, 1);
    for _ in 0..3 {
        world.task(&[1]);
    }
    assert_eq!(world.place_all().len(), 2);
    world.wait_ms(900);
    assert!(world.place().is_err());
    world.wait_ms(200);
    assert_eq!(world.place().unwrap().executor, 2);
}

/// Waiting gives a holder the time to run a task itself. Where nobody has all that a task reads, nobody would.
#[test]
fn what_nobody_has_all_of_is_copied_at_once() {
    for (somebody_has_both, is_placed) in [(false, true), (true, false)] {
        let mut world = World::new(9, Config::default());
        (0..4).for_each(|e| world.executor(e, 1));
        world.holds(0, &[1]);
        world.holds(1, &[2]);
        if somebody_has_both {
            world.holds(2, &[1, 2, 3]);
            world.task(&[3]);
            assert_eq!(world.place().unwrap().executor, 2, "it has something to do");
        }
        world.task(&[1, 2]);
        let placed = world.place();
        assert_eq!(placed.is_ok(), is_placed, "{placed:?}");
        assert!(placed.is_err() || placed.is_ok_and(|d| d.executor < 2 && d.moves.len() == 1));
        world.check();
    }
}

/// A task that reads a file of each of eight nodes takes an eighth of its time from each, so that more than two such tasks begin at once.
#[test]
fn who_serves_a_part_of_an_attempt_serves_the_more_attempts() {
    let n_begun = |n_inputs: u32| {
        let mut world = World::new(8, Config::default());
        (0..8).for_each(|e| world.executor(e, 1));
        (8..16).for_each(|e| world.executor(e, 1));
        (0..8).for_each(|e| world.holds(e, &[e]));
        (0..8).for_each(|e| world.slots.insert(e, 0).map_or((), |_| world.update_room(e)));
        let inputs: Vec<u32> = (0..n_inputs).collect();
        (0..8).for_each(|_| _ = world.task(&inputs));
        world.ran(0, 60_000);
        world.wait_ms(2000);
        let n = world.place_all().iter().filter(|d| d.moves.len() == n_inputs as usize).count();
        world.check();
        n
    };
    assert_eq!(n_begun(1), 2, "all of each attempt comes from one node");
    assert_eq!(n_begun(8), 8);
}

#[test]
fn where_nothing_is_near_executors_begin_in_different_corners() {
    let mut world = World::new(8, Config::default());
    (0..4).for_each(|e| world.executor(e, 1));
    for a in 0..4 {
        for b in 4..8 {
            world.task(&[a, b]);
        }
    }
    let decisions = world.place_all();
    let objects: BTreeSet<u32> = decisions.iter().flat_map(|d| &d.moves).map(|m| m.0).collect();
    assert_eq!((decisions.len(), objects.len()), (4, 8), "each object is read once");
    assert!(decisions.iter().all(|d| d.reason == Reason::Seed));
}

/// Tiles of `k` by `k` need `2 k` objects for `k * k` tasks.
#[test]
fn tiles_of_all_pairs_are_nearly_square() {
    let n = 24;
    let mut world = World::new(2 * n, Config::default());
    (0..4).for_each(|e| world.executor(e, 2));
    for a in 0..n {
        for b in n..2 * n {
            world.task(&[a, b]);
        }
    }
    let mut n_moves = 0;
    while !world.tasks.is_empty() {
        world.wait_ms(200);
        n_moves += world.place_all().iter().map(|d| d.moves.len()).sum::<usize>();
        world.arrive_all();
        world.end_all();
    }
    // Four perfect tiles of 12 by 12 need 4 * 24; in the order of the queue it would be over 150.
    println!("{n_moves} moves");
    assert!(n_moves <= 120, "{n_moves}");
    world.check();
}

#[test]
fn the_oldest_gets_its_turn() {
    let mut world = World::new(100, Config { oldest_every: 4, ..Config::default() });
    world.executor(0, 1);
    let old = world.task(&[0]);
    for o in 1..99 {
        world.task(&[o]);
        world.task(&[o]);
    }
    let mut order = vec![];
    for _ in 0..4 {
        let decision = world.place().unwrap();
        order.push((decision.task, decision.reason));
        world.end(decision.task);
    }
    assert_eq!(order[3], (old, Reason::Oldest));
    assert!(order[..3].iter().all(|(_, reason)| *reason == Reason::Brings { n_tasks: 2 }));
}

#[test]
fn larger_priorities_come_first() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 4);
    world.holds(0, &[1, 2]);
    world.task(&[1]);
    let hit = world.sized(1, &[2], 1, 0);
    assert_eq!(world.place().unwrap().task, hit);
    for _ in 0..5 {
        world.task(&[4]);
    }
    let lone = world.sized(1, &[5], 1, 0);
    world.place().unwrap();
    assert_eq!(world.place().unwrap().task, lone);
    assert_eq!(world.place().unwrap().moves, fetched(4));
}

#[test]
fn many_with_more_room_do_not_keep_the_only_one_that_fits_from_being_asked() {
    for n_thin in [1, 4, 8, 500] {
        let mut world = World::new(9, Config::default());
        for e in 0..n_thin {
            world.executor(e, 2);
        }
        world.memory.insert(n_thin, 40);
        world.executor(n_thin, 1);
        let heavy = world.sized(0, &[1], 1, 30);
        // Everybody is asked anew each time, as in a cluster in which nothing else happens.
        let mut answer = world.place();
        for _ in 0..n_thin / 32 {
            assert!(answer.is_ok() || answer == Err(Unplaced::NotAsked { task: TaskId(heavy) }));
            world.wait_ms(1000);
            answer = answer.or_else(|_| world.place());
        }
        let placed = answer.expect("it fits");
        assert_eq!((placed.executor, placed.task), (n_thin, heavy));
        world.check();
    }
}

/// Nine executors have more room than the one that is idle, and hits enough to leave to others what these hold.
#[test]
fn many_that_refuse_do_not_keep_an_idle_one_from_being_asked() {
    let mut world = World::new(600, Config::default());
    world.ahead = 8;
    for e in 0..9 {
        world.executor(e, 4);
        for object in 60 * e..60 * (e + 1) {
            world.holds(e, &[object]);
            world.task(&[object]);
        }
    }
    assert_eq!(world.place_all().len(), 9 * 12, "all have as much as they are given ahead");
    world.executor(9, 1);
    let mut placed = vec![];
    for _ in 0..12 {
        world.wait_ms(1000);
        placed.extend(world.place_all());
    }
    assert!(placed.iter().all(|d| d.executor == 9) && !placed.is_empty(), "{placed:?}");
}

#[test]
fn large_tasks_wait_for_room_and_small_ones_pass() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 2);
    world.holds(0, &[1]);
    let small = world.task(&[1]);
    assert_eq!(world.place().unwrap().task, small);
    let wide = world.sized(0, &[1], 2, 0);
    let heavy = world.sized(0, &[1], 1, 11);
    let other = world.task(&[1]);
    assert_eq!(world.place().unwrap().task, other);
    world.end_all();
    assert_eq!(world.place().unwrap().task, wide);
    world.end_all();
    assert_eq!(world.place(), Err(Unplaced::NothingFits { task: TaskId(heavy), cpus: 1, memory_bytes: 11 }));
}

#[test]
fn tasks_without_inputs_go_to_whoever_has_room_in_order() {
    let mut world = World::new(1, Config::default());
    assert_eq!(world.place(), Err(Unplaced::NothingReady));
    for _ in 0..3 {
        world.task(&[]);
    }
    assert_eq!(world.place(), Err(Unplaced::NoExecutor));
    world.executor(0, 1);
    world.executor(1, 2);
    let order: Vec<_> = world.place_all().into_iter().map(|d| (d.task, d.executor, d.reason)).collect();
    let free = Reason::NoInputs;
    assert_eq!(order, [(0, 1, free), (1, 0, free), (2, 1, free)], "the roomiest first");
    world.task(&[]);
    assert_eq!(world.place(), Err(Unplaced::NoneFree));
}

#[test]
fn how_long_tiny_files_take_says_little_of_large_ones() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    world.executor(1, 1);
    world.holds(0, &[1]);
    // 2 ms each for ten bytes: by that rate ten megabytes would take half an hour.
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
    // As quick as a copy, for one reader: what all three together would get is not known, so two try.
    read_at_once(&mut world, &[3]);
    assert_eq!(n_reads(&mut world, 4), 2);
    // For all of them: nobody waits for anybody.
    read_at_once(&mut world, &[5, 6, 7]);
    assert_eq!(n_reads(&mut world, 8), 3);
}

/// One object is read from home by those who have begun to; home gives as much to each, up to a share of the whole.
struct HomeReads {
    world: World,
    /// By executor: when it was seen to begin, and what has come.
    reads: BTreeMap<u32, (Timestamp, u64)>,
}

impl HomeReads {
    fn new(config: Config) -> HomeReads {
        let mut world = World::new(9, config);
        (0..16).for_each(|e| world.executor(e, 1));
        (0..16).for_each(|_| _ = world.task(&[1]));
        let mut reads = HomeReads { world, reads: BTreeMap::new() };
        assert_eq!(reads.begin(), 1, "nothing is known of home");
        reads
    }

    /// How many begin now.
    fn begin(&mut self) -> usize {
        let decided = self.world.place_all();
        let begun = decided.iter().filter(|d| d.moves == fetched(1));
        let now = self.world.now;
        let before = self.reads.len();
        self.reads.extend(begun.map(|d| (d.executor, (now, 0))));
        self.reads.len() - before
    }

    /// They go on for some time, and are heard of at its end.
    fn pass(&mut self, ms: u64, alone: u64, together: u64) {
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
    // Each gets as much as the first one alone.
    let mut quick = HomeReads::new(Config::default());
    let mut begun = vec![];
    for _ in 0..8 {
        quick.pass(10, 1_000_000, u64::MAX);
        begun.push(quick.begin());
    }
    assert_eq!(begun, [1, 3, 6, 5, 0, 0, 0, 0]);
    // Together they get no more than that: nobody else reads, for as long as it comes along.
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
    // Where a limit is known, nobody has to try.
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

/// How many of four tasks on four nodes read one file past the cache, once a first one reads it from home at that rate.
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
    let n = world.queue.direct.len();
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
fn what_its_holders_will_soon_have_done_with_is_not_copied() {
    for (run_ms, n_copies) in [(1, 0), (1000, 1)] {
        let mut world = World::new(9, Config::default());
        world.executor(0, 1);
        world.executor(1, 1);
        world.holds(0, &[1]);
        world.ran(0, run_ms);
        (0..4).for_each(|_| _ = world.task(&[1]));
        assert_eq!(world.place().unwrap().executor, 0);
        world.wait_ms(1000);
        assert_eq!(world.place_all().len(), n_copies, "programs run for {run_ms} ms");
        // They take none, whatever the reason.
        world.wait_ms(1000);
        assert_eq!(world.place_all().len(), 1 - n_copies);
    }
}

#[test]
fn who_waits_is_asked_again_when_time_makes_a_difference_and_not_before() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    world.executor(1, 1);
    world.holds(0, &[1]);
    world.ran(0, 60_000);
    // More than the other one has slots: with one task for it, nobody would wait.
    (0..3).for_each(|_| _ = world.task(&[1]));
    assert_eq!(world.place().unwrap().executor, 0);
    let began = world.now;
    let mut n_asked = 0;
    let copied = loop {
        if let Ok(decision) = world.place() {
            break decision;
        }
        n_asked += 1;
        assert!(n_asked < 5, "asked again and again");
        world.now = world.queue.wake_at().expect("a copy is to come").max(world.now);
    };
    assert_eq!(copied.executor, 1);
    let waited_ns = world.now.since_ns(began);
    assert!((100 * MS..120 * MS).contains(&waited_ns), "{waited_ns} ns");
    // Nobody has room, and time alone will not give any.
    world.task(&[1]);
    for _ in 0..5 {
        assert!(world.place().is_err());
        world.now = world.queue.wake_at().unwrap_or(world.now);
    }
    assert_eq!(world.queue.wake_at(), None);
}

#[test]
fn a_node_that_reads_has_less_of_home_for_what_it_reads_besides() {
    let mut load = HomeLoad::default();
    let second_ns = 1000 * MS;
    let mut now = Timestamp(0);
    for n in [1.0, 2.0, 4.0, 8.0] {
        // Each of them on a node of its own: as much for each as for the first one.
        let mark = load.begin(now, 1);
        now = now.plus_ns(second_ns);
        load.learn(mark, 10_000_000, now, second_ns, NODE_READS_ONE, Some(Reads { n, n_nodes: n }));
    }
    let eight = Reads { n: 8.0, n_nodes: 8.0 };
    assert_eq!(load.forecast(eight, 1), Some(1e7));
    assert_eq!(load.forecast(eight, 4), Some(2.5e6), "four share what one node gets");
}

/// Reads of one node that share its link say what it takes, and nothing of what a second node would get.
#[test]
fn what_bounds_a_node_is_not_taken_for_what_home_gives() {
    let mut load = HomeLoad::default();
    let ms = |n| Timestamp(n * MS);
    let marks = [1, 2, 3, 4].map(|_| load.begin(ms(0), 4));
    load.pass(ms(10), 4);
    let all = Reads { n: 4.0, n_nodes: 1.0 };
    for mark in marks {
        let sharing = load.sharing(mark, ms(10), 10 * MS, all);
        load.learn(mark, 50_000, ms(10), 10 * MS, NodeReads { n: 4, n_alike: 4.0 }, sharing);
    }
    assert_eq!(load.forecast(Reads { n: 5.0, n_nodes: 2.0 }, 1), Some(8e6), "as much as the first node");
}

/// Small reads that wait for home's first byte take nothing of a node's link: counted like a large one, they made the link look
/// quicker by as much.
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
    let node_max = world.queue.home_load.node_max;
    assert!((1e6..1.1e6).contains(&node_max), "{node_max} bytes/s, where 10,000 came in 10 ms");
}

/// Who has only set out may not read yet: home gives its all to the one that does.
#[test]
fn a_read_that_was_not_heard_of_does_not_make_home_quicker() {
    let mut load = HomeLoad::default();
    let ms = |n| Timestamp(n * MS);
    let first = load.begin(ms(0), 1);
    load.pass(ms(2), 1);
    let sharing = load.sharing(first, ms(2), 2 * MS, Reads { n: 1.0, n_nodes: 1.0 });
    load.learn(first, 20_000, ms(2), 2 * MS, NODE_READS_ONE, sharing);
    let first = load.mark(first, ms(2), 20_000, 1);
    for _ in 0..7 {
        load.begin(ms(2), 1);
    }
    load.pass(ms(4), 8);
    let sharing = load.sharing(first, ms(4), 4 * MS, Reads { n: 8.0, n_nodes: 8.0 });
    load.learn(first, 40_000, ms(4), 2 * MS, NODE_READS_ONE, sharing);
    assert_eq!(load.total(1.0), Some(1e7));
    assert_eq!(load.total(8.0), None, "of eight nothing is known");
}

/// Who has no slot free leaves its tasks to those who have, where a copy is there sooner than a program ends.
#[test]
fn the_last_tasks_go_where_slots_are_open_rather_than_wait_for_one_at_their_holder() {
    for (run_ms, holder_waits) in [(60_000, true), (20, false)] {
        let mut world = World::new(9, Config::default());
        world.executor(0, 1);
        world.executor(1, 1);
        world.holds(0, &[1]);
        world.ran(0, run_ms);
        (0..2).for_each(|_| _ = world.task(&[1]));
        assert_eq!(world.place().unwrap().executor, 0);
        let placed = world.place();
        assert_eq!(placed.is_ok_and(|d| d.executor == 1), holder_waits, "programs run for {run_ms} ms");
    }
}

/// A link that brings enough for all slots of its node brings nothing besides.
#[test]
fn a_node_that_waits_for_enough_fetches_nothing_besides() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 4);
    (0..8).for_each(|_| _ = world.task(&[1]));
    (0..2).for_each(|_| _ = world.task(&[2]));
    assert_eq!(world.place().unwrap().moves, fetched(1));
    assert!(world.place().is_err(), "seven tasks more come with it");
    world.arrive_all();
    world.end_all();
    let fetches_two = (0..8).any(|_| {
        let found = world.place_all().iter().any(|d| d.moves == fetched(2));
        world.end_all();
        found
    });
    assert!(fetches_two, "once nothing is on its way");
}

/// Two inputs that came together took as long as both, not each as long.
#[test]
fn what_several_copies_took_they_took_together() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    world.holds(0, &[1]);
    let copy = |object| InputReport {
        object: ObjectId(object),
        outcome: CacheOutcome::RemoteHit { from: ExecutorId(0) },
        size_bytes: 1 << 20,
        wait_ns: 40 * MS,
    };
    world.queue.learnt(&world.catalog, ExecutorId(0), &[copy(1), copy(2), copy(3), copy(4)], None);
    assert_eq!(
        world.queue.steal_after_ns(&world.catalog, ObjectId(1)) as u64,
        10 * MS * OBJECT_BYTES / (1 << 20)
    );
}

#[test]
fn what_no_cache_ever_holds_is_no_reason_to_be_anywhere() {
    let mut world = World::new(9, Config::default());
    world.executor(0, 1);
    world.executor(1, 1);
    let first = world.task(&[1]);
    for _ in 0..4 {
        world.task(&[1]);
    }
    world.task(&[1, 2]);
    assert_eq!(world.place_all().len(), 1, "the first reader of 1, and nobody else");
    world.learn(0, 1, CacheOutcome::InPlace, 0);
    world.end(first);
    world.check();
    assert_eq!(world.place().unwrap().reason, Reason::NoInputs);
    assert!(world.queue.moving(ExecutorId(0)).unseen);
    // It is cached after all.
    world.holds(1, &[1]);
    world.end_all();
    let hit = world.task(&[1]);
    while world.place().is_ok_and(|d| d.task != hit) {
        world.end_all();
    }
    assert_eq!(world.given[&TaskId(hit)].executor, 1);
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

#[test]
fn misses_are_spread_over_the_nodes() {
    let mut world = World::new(90, Config::default());
    (0..3).for_each(|e| world.executor(e, 2));
    let mut n_by = [0; 3];
    for o in 0..90 {
        world.task(&[o]);
        let decision = world.place().unwrap();
        n_by[decision.executor as usize] += 1;
        world.arrive_all();
        world.end_all();
    }
    assert_eq!(n_by, [30, 30, 30]);
}

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

/// A decision must be the hit that a scan finds, if there is one; nothing may exceed room or cap; and when nothing goes
/// wrong any more, all tasks get their place.
fn run(n_executors: u32, n_objects: u32, config: Config, ops: Vec<Op>) {
    use super::super::Stage;
    let mut world = World::new(n_objects, config);
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
                // Its replicas stay where they are and count no more; what it runs ends by and by.
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
                // What was once read in place may be cached after all; whoever came before that goes anywhere.
                let unsure = |t: &ReadyTask| t.inputs.iter().any(|o| world.never_cached.contains(o));
                if world.tasks.values().any(unsure) {
                    world.place().ok();
                    continue;
                }
                // All that is queued has slots that are open: a hit may be left to them, but not where it has one itself.
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
    /// With all bounds so narrow that the indexes miss most of what happens; hits may then be late, but nothing is lost.
    #[test]
    fn narrow_bounds_lose_nothing(ops in prop::collection::vec(op(5, 6), 1..80)) {
        let narrow =
            Config { uploads_max: 1, home_reads_max: 1, tries: 1, vain_max: 1, oldest_every: 1, ..Config::default() };
        run(5, 6, narrow, ops);
    }
}
