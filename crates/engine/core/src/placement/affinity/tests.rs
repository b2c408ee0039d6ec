//! The rules by example. Tests of what is learnt about home, links and disks are in `reads`; comparisons of
//! the indexes with a scan of everything are in `scan`.

mod kin;
mod late;
mod pace;
mod reads;
mod scan;
mod sites;

use super::super::{Lasts, Reason, Rule, TimeLeft};
use super::home::{NodeReads, Reads};
use super::*;
use eyas_terms::location::CatalogLocation;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;
const OBJECT_BYTES: u64 = 10_000_000;
const NODE_READS_ONE: NodeReads = NodeReads { n: 1, n_alike: 1.0 };

/// A task that was given to an executor.
#[derive(Clone, Debug)]
struct GivenTask {
    executor: u32,
    task: ReadyTask,
}

/// A small dispatcher: it keeps the executors' room, and carries out the decisions of the policy.
struct World {
    catalog: Catalog,
    queue: Affinity,
    now: Timestamp,
    tasks: BTreeMap<QueueKey, ReadyTask>,
    /// The slots of the executors that are here, by executor.
    slots: BTreeMap<u32, u32>,
    memory: BTreeMap<u32, u64>,
    ahead: u32,
    given: BTreeMap<TaskId, GivenTask>,
    n_tasks: u64,
    /// Objects that were reported as read in place.
    never_cached: BTreeSet<ObjectId>,
}

/// A decision and the moves that it started.
#[derive(Debug, PartialEq)]
struct Decision {
    executor: u32,
    task: u64,
    reason: Reason,
    /// `(object, peer)`; no peer where the object comes from home.
    moves: Vec<(u32, Option<u32>)>,
}

impl World {
    fn new(n_objects: u32, config: Config) -> World {
        World::of((0..n_objects).map(|o| format!("o{o}")), config)
    }

    /// A world of objects with these locations.
    fn of(locations: impl Iterator<Item = String>, config: Config) -> World {
        let mut catalog = Catalog::new();
        for location in locations {
            let object = catalog.intern(CatalogLocation::Home(&location));
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

    /// Computes an executor's room as the dispatcher does. An executor without a memory of its own has 10
    /// bytes.
    fn update_room(&mut self, id: u32) {
        let Some(&slots) = self.slots.get(&id) else { return };
        let there = self.given.values().filter(|g| g.executor == id);
        let (cpus, memory) = there.fold((0, 0), |(c, m), g| (c + g.task.cpus, m + g.task.memory_bytes));
        let moving = self.queue.moving(ExecutorId(id));
        let here = cpus - moving.cpus;
        let moves = match self.ahead {
            0 => slots.saturating_sub(cpus),
            _ if moving.cpus - moving.making_cpus < slots && moving.cpus < 2 * slots => slots,
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
            left: TimeLeft::NO_END,
            ..Room::default()
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
        self.timed(priority, inputs, cpus, memory_bytes, Lasts::ANY)
    }

    fn timed(&mut self, priority: i32, inputs: &[u32], cpus: u32, memory_bytes: u64, lasts: Lasts) -> u64 {
        let task = self.n_tasks;
        self.n_tasks += 1;
        let key = QueueKey { priority, task: TaskId(task) };
        let inputs = inputs.iter().map(|&o| ObjectId(o)).collect();
        let needs = Default::default();
        self.enter(ReadyTask { key, inputs, first_input: None, cpus, memory_bytes, needs, lasts });
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
        // Inputs that no cache holds are not counted.
        let inputs: Vec<ObjectId> = routes.iter().map(|r| r.object).collect();
        let n_hits = inputs.iter().filter(|o| self.catalog.holds(executor, **o)).count();
        assert_eq!((pick.n_hits as usize, pick.n_inputs as usize), (n_hits, inputs.len()));
        assert!(task.inputs.iter().all(|o| inputs.contains(o) || self.never_cached.contains(o)));
        if n_hits == inputs.len() {
            assert!(room.fits(pick.stage, task.size(), task.lasts), "{room:?} for {task:?}");
        } else {
            assert!(
                task.cpus <= room.moves && task.memory_bytes <= room.memory_free_bytes,
                "{room:?} for {task:?}"
            );
        }
        let Rule::Affinity(reason) = pick.rule else { panic!("another policy's rule") };
        self.given.insert(pick.key.task, GivenTask { executor: executor.0, task });
        self.update_room(executor.0);
        Ok(Decision { executor: executor.0, task: pick.key.task.0, reason, moves })
    }

    /// The tasks whose attempts are asked back after a while.
    fn late(&mut self) -> Vec<u64> {
        self.wait_ms(100);
        self.queue.late(&self.catalog, self.now).into_iter().map(|task| task.0).collect()
    }

    /// Takes all decisions that can be taken now.
    fn place_all(&mut self) -> Vec<Decision> {
        std::iter::from_fn(|| self.place().ok()).collect()
    }

    /// The objects on their way: `(executor, object)`.
    fn coming(&self) -> Vec<(u32, u32)> {
        let seated = self.queue.executors.iter();
        seated.flat_map(|m| m.coming.keys().map(|o| (m.id.0, o.0))).collect()
    }

    /// The attempts that read an input past the cache: `(task, executor)`.
    fn past_cache(&self) -> Vec<(u64, u32)> {
        let mut of: Vec<_> = self.queue.home.direct.keys().map(|t| (t.0, self.given[t].executor)).collect();
        of.sort_unstable();
        of
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
        self.queue.learnt(&self.catalog, ExecutorId(executor), &[input], None, None);
    }

    /// A program on `executor` found the inputs in the places `in_memory` in memory.
    fn seen_in_memory(&mut self, executor: u32, objects: &[u32], in_memory: &[u32]) {
        let (outcome, size_bytes, wait_ns) = (CacheOutcome::LocalHit, OBJECT_BYTES, 0);
        let input = |o: &u32| InputReport { object: ObjectId(*o), outcome, size_bytes, wait_ns };
        let inputs: Vec<InputReport> = objects.iter().map(input).collect();
        self.queue.seen_in_memory(ExecutorId(executor), &inputs, in_memory, 10 * OBJECT_BYTES);
    }

    /// A program has run for `ms` milliseconds on `executor`.
    fn ran(&mut self, executor: u32, ms: u64) {
        self.queue.learnt(&self.catalog, ExecutorId(executor), &[], Some(ms * MS), None);
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

    /// The task that is the hit on `executor` in that stage by the rules, found by looking at all tasks.
    fn hit_on(&self, executor: u32, stage: super::super::Stage) -> Option<u64> {
        let room = self.queue.room(ExecutorId(executor))?;
        let here = |o: &ObjectId| {
            self.catalog.holds(ExecutorId(executor), *o) || self.queue.never_cached.contains(o)
        };
        let fits = |t: &&ReadyTask| room.fits(stage, t.size(), t.lasts) && t.inputs.iter().all(here);
        self.tasks.values().find(fits).map(|t| t.key.task.0)
    }

    /// The idle slots of `executor` that no attempt with moving inputs will take.
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
fn of_equal_holders_the_one_with_the_inputs_in_memory_gets_the_task() {
    let mut world = World::new(9, Config::default());
    for id in 0..4 {
        world.executor(id, 1);
        world.holds(id, &[1, 2]);
    }
    world.seen_in_memory(2, &[1, 2], &[0]);
    world.seen_in_memory(3, &[1, 2], &[0, 1]);
    let mut next = || {
        let task = world.task(&[1, 2]);
        let decision = world.place().unwrap();
        assert_eq!((decision.task, decision.reason), (task, Reason::AllHere));
        world.check();
        (decision.executor, task)
    };
    // Executor 3 has both inputs in memory and 2 has one; then both are busy.
    let given = [next(), next(), next()];
    assert_eq!(given.map(|(executor, _)| executor), [3, 2, 0]);
    world.end_all();
    // Reports say that one input has left the memory of 3, and 2 has lost its copy of the other.
    world.seen_in_memory(3, &[1, 2], &[1]);
    world.drops(2, 1);
    world.holds(2, &[1]);
    world.task(&[1]);
    assert_eq!(world.place().unwrap().executor, 0, "nobody is known to have it in memory");
    world.task(&[2]);
    assert_eq!(world.place().unwrap().executor, 3);
    // An executor with more idle slots comes before one that has the inputs in memory.
    world.end_all();
    world.executor(4, 2);
    world.holds(4, &[1, 2]);
    world.task(&[2]);
    assert_eq!(world.place().unwrap().executor, 4);
    world.leaves(3);
    world.check();
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
        // The ended attempts have forgotten their moves, so the copies are added here.
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
    // Copies turn out to take a second.
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

/// Waiting gives a holder the time to run a task itself. Where no executor has all inputs of a task,
/// waiting would not help.
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

/// A task that reads one file from each of eight nodes takes an eighth of each node's capacity to serve, so
/// more than two such tasks begin at the same time.
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
    // Four perfect tiles of 12 by 12 need 4 * 24 moves; in the order of the queue it would be over 150.
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
        // All executors are asked anew each time, as in a cluster in which nothing else happens.
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

/// Nine executors have more room than the idle executor, and each has enough hits to leave the others'
/// objects to the others.
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
        // The holder has taken no task for a second, for whatever reason, so a copy is made if none was.
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
    // There are more tasks than the other executor has slots: with one task for it, nobody would wait.
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
    // No executor has room, and time alone will not give any.
    world.task(&[1]);
    for _ in 0..5 {
        assert!(world.place().is_err());
        world.now = world.queue.wake_at().unwrap_or(world.now);
    }
    assert_eq!(world.queue.wake_at(), None);
}

/// An executor without a free slot leaves its tasks to executors with free slots, where a copy arrives
/// sooner than a program ends.
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

/// While enough for all slots of a node is on its way there, the node fetches nothing else.
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

/// Several inputs came together, so the time counts for all of them and not for each of them.
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
    world.queue.learnt(&world.catalog, ExecutorId(0), &[copy(1), copy(2), copy(3), copy(4)], None, None);
    assert_eq!(
        world.queue.steal_after_ns(&world.catalog, Seat(0), ObjectId(1)) as u64,
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
    // The object is cached after all.
    world.holds(1, &[1]);
    world.end_all();
    let hit = world.task(&[1]);
    while world.place().is_ok_and(|d| d.task != hit) {
        world.end_all();
    }
    assert_eq!(world.given[&TaskId(hit)].executor, 1);
}

#[test]
fn while_a_node_unpacks_the_next_file_is_on_its_way() {
    let locations = (0..5).flat_map(|o| [format!("o{o}"), format!("made:gzip:o{o}")]);
    let mut world = World::of(locations, Config::default());
    world.ahead = 1;
    world.executor(0, 1);
    for task in 0..5 {
        assert_eq!(world.task(&[2 * task, 2 * task + 1]), u64::from(task));
    }
    // The only task that is given out.
    let given = |world: &mut World| match world.place_all()[..] {
        [Decision { task, .. }] => task as u32,
        ref others => panic!("{others:?}"),
    };
    let moving = |world: &World| {
        let moving = world.queue.moving(ExecutorId(0));
        (moving.cpus, moving.making_cpus)
    };
    let first = given(&mut world);
    world.holds(0, &[2 * first]);
    assert_eq!(moving(&world), (1, 1));
    world.check();
    let second = given(&mut world);
    assert_eq!(moving(&world), (2, 1));
    // What waits to be unpacked does not grow without end.
    world.holds(0, &[2 * second]);
    assert_eq!((moving(&world), world.place_all()), ((2, 2), vec![]));
    // The first one can run.
    world.holds(0, &[2 * first + 1]);
    assert_eq!(moving(&world), (1, 1));
    given(&mut world);
    // One that ends early leaves nothing behind.
    world.end(u64::from(second));
    assert_eq!(moving(&world), (1, 0));
    world.check();
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
