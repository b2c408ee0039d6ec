//! Placement against the naive scan, by example, and in golden numbers.

use super::naive::{Rule, Scan};
use super::*;
use crate::catalog::Catalog;
use eyas_terms::location::CatalogLocation;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// Catalog and window in step, and the same facts as plain collections.
struct World {
    catalog: Catalog,
    window: Window,
    tasks: BTreeMap<QueueKey, ReadyTask>,
    rooms: BTreeMap<ExecutorId, Room>,
    n_tasks: u64,
    /// Of tasks that enter.
    needs: NeedsId,
}

/// The room of an executor whose memory is of no matter.
pub(super) fn slots(slots_idle: u32, slots_total: u32, ahead: u32) -> Room {
    Room {
        slots_total,
        slots_idle,
        ahead,
        memory_total_bytes: 9,
        memory_free_bytes: 9,
        moves: 0,
        rests: false,
        left: TimeLeft::NO_END,
        ..Room::default()
    }
}

impl World {
    fn new(n_objects: u32) -> World {
        let mut catalog = Catalog::new();
        for o in 0..n_objects {
            catalog.intern(CatalogLocation::Home(&format!("o{o}")));
        }
        let window = Window::new(3200);
        World {
            catalog,
            window,
            tasks: BTreeMap::new(),
            rooms: BTreeMap::new(),
            n_tasks: 0,
            needs: NeedsId::NONE,
        }
    }

    fn executor(&mut self, id: u32, room: Room) {
        let id = ExecutorId(id);
        self.catalog.executor_joined(id);
        self.window.executor_joined(&self.catalog, id);
        self.window.set_room(id, room);
        self.rooms.insert(id, room);
    }

    fn holds(&mut self, executor: u32, objects: &[u32]) {
        for &o in objects {
            if self.catalog.add_replica(ExecutorId(executor), ObjectId(o)) {
                self.window.replica_added(ExecutorId(executor), ObjectId(o));
            }
        }
    }

    fn drops(&mut self, executor: u32, object: u32) {
        if self.catalog.drop_replica(ExecutorId(executor), ObjectId(object)) {
            self.window.replica_dropped(ExecutorId(executor), ObjectId(object));
        }
    }

    fn leaves(&mut self, executor: u32) {
        let objects = self.catalog.executor_left(ExecutorId(executor));
        self.window.executor_left(ExecutorId(executor), &objects);
        self.rooms.remove(&ExecutorId(executor));
    }

    /// Gets no tasks any more, while others may still copy from it.
    fn drains(&mut self, executor: u32) {
        let id = ExecutorId(executor);
        self.window.executor_left(id, &self.catalog.objects_on(id));
        self.rooms.remove(&id);
    }

    fn task(&mut self, priority: i32, inputs: &[u32], cpus: u32, memory_bytes: u64) -> u64 {
        self.timed(priority, inputs, cpus, memory_bytes, Lasts::ANY)
    }

    fn timed(&mut self, priority: i32, inputs: &[u32], cpus: u32, memory_bytes: u64, lasts: Lasts) -> u64 {
        let task = self.n_tasks;
        self.n_tasks += 1;
        let inputs = inputs.iter().map(|&o| ObjectId(o)).collect();
        let key = QueueKey { priority, task: TaskId(task) };
        let needs = self.needs;
        let ready = ReadyTask { key, inputs, first_input: None, cpus, memory_bytes, needs, lasts };
        self.window.enter(&self.catalog, &ready);
        self.tasks.insert(ready.key, ready);
        task
    }

    fn apply(&mut self, executor: ExecutorId, picks: &[Pick]) {
        for pick in picks {
            assert!(self.window.leave(pick.key.task));
            let task = self.tasks.remove(&pick.key).unwrap();
            let room = self.rooms.get_mut(&executor).unwrap();
            *room = room.after(pick.stage, task.size());
        }
        self.window.set_room(executor, self.rooms[&executor]);
    }

    fn place(&self, policy: &dyn Policy) -> Result<(ExecutorId, Vec<Pick>), Unplaced> {
        let mut picks = Vec::new();
        policy.place(&self.window, &mut picks).map(|e| (e, picks))
    }

    fn scan(&self) -> Scan<'_> {
        let mut executors: Vec<_> = self.rooms.iter().map(|(e, r)| (*e, *r)).collect();
        let turn = self.window.turn();
        executors.sort_by_key(|(e, _)| self.catalog.seat(*e).map(|seat| (seat < turn, seat)));
        Scan { tasks: self.tasks.values().collect(), catalog: &self.catalog, executors }
    }

    /// All policies must decide as the scan does. Gives the decision of `good-cache-compute`.
    fn check(&self, n_tasks_max: usize, threshold: f64) -> Result<(ExecutorId, Vec<Pick>), Unplaced> {
        let config = Config {
            utilisation_threshold: threshold,
            tasks_per_decision: n_tasks_max,
            window: 1,
            ..Config::default()
        };
        let rules = [
            Rule::FirstAvailable,
            Rule::MaxCacheHit,
            Rule::MaxComputeUtil,
            Rule::GoodCacheCompute { utilisation_threshold: threshold },
        ];
        let scan = self.scan();
        let mut last = None;
        for (name, rule) in NAMES.iter().zip(rules) {
            let policy = of_paper(name, &config).unwrap().unwrap();
            let decision = self.place(&*policy);
            assert_eq!(decision, scan.place(rule, n_tasks_max), "{name}");
            last = Some(decision);
        }
        last.unwrap()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Enter { priority: i32, inputs: Vec<u32>, cpus: u32, memory_bytes: u64, hours: u64 },
    Leave(prop::sample::Index),
    Add(u32, u32),
    Drop(u32, u32),
    Multicast(u32),
    Join(u32, Room),
    Left(u32),
    Drain(u32),
    SetRoom(u32, Room),
    Place { n_tasks_max: usize, threshold: f64, apply: bool },
}

/// A task that takes so many hours; 0: that is not known.
pub(super) fn lasts(hours: u64) -> Lasts {
    if hours == 0 { Lasts::ANY } else { Lasts::of_ns(hours * 3_600_000_000_000) }
}

/// An executor with so many hours left; 0: it has no end.
pub(super) fn left(hours: u64) -> TimeLeft {
    if hours == 0 { TimeLeft::NO_END } else { TimeLeft::of_ns(hours * 3_600_000_000_000) }
}

fn room() -> impl Strategy<Value = Room> {
    let bits = || prop_oneof![3 => Just(0u64), 1 => (0..8u64).prop_map(|bits| bits & 0b110)];
    (0..4u32, 0..3u32, 0..3u32, 0..3u64, 0..2u64, 0..4u64, bits(), bits()).prop_map(
        |(idle, busy, ahead, free, used, left, lacks, never)| Room {
            slots_total: idle + busy,
            slots_idle: idle,
            ahead,
            memory_total_bytes: free + used,
            memory_free_bytes: free,
            moves: 0,
            rests: false,
            left: self::left(left),
            // Of the needs that tasks have here, which this node has no room for, and which it can never hold.
            lacks: lacks | never,
            never,
            has_part: false,
        },
    )
}

/// Objects 0 and 1 are the shared databases that many tasks read.
fn inputs(n_objects: u32) -> impl Strategy<Value = Vec<u32>> {
    let own = |n| prop::collection::btree_set(2..n_objects, n);
    let shared = prop_oneof![Just(vec![]), Just(vec![0]), Just(vec![1]), Just(vec![0, 1])];
    let own = prop_oneof![8 => own(0..4), 1 => own(7..(n_objects as usize - 2).min(20))];
    (shared, own).prop_map(|(shared, own)| shared.into_iter().chain(own).collect())
}

fn op(n_executors: u32, n_objects: u32) -> impl Strategy<Value = Op> {
    let (e, o) = (0..n_executors, 0..n_objects);
    let size = prop_oneof![5 => Just((1, 0, 0)), 1 => (1..4u32, 0..3u64, 0..4u64)];
    prop_oneof![
        8 => (-1..2i32, inputs(n_objects), size)
            .prop_map(|(priority, inputs, (cpus, memory_bytes, hours))| {
                Op::Enter { priority, inputs, cpus, memory_bytes, hours }
            }),
        2 => any::<prop::sample::Index>().prop_map(Op::Leave),
        8 => (e.clone(), o.clone()).prop_map(|(e, o)| Op::Add(e, o)),
        4 => (e.clone(), o.clone()).prop_map(|(e, o)| Op::Drop(e, o)),
        1 => o.prop_map(Op::Multicast),
        3 => (e.clone(), room()).prop_map(|(e, r)| Op::Join(e, r)),
        1 => e.clone().prop_map(Op::Left),
        1 => e.clone().prop_map(Op::Drain),
        4 => (e, room()).prop_map(|(e, r)| Op::SetRoom(e, r)),
        6 => (prop_oneof![Just(1usize), Just(2), Just(5)], prop_oneof![Just(0.0), Just(0.5), Just(0.8), Just(1.0)], any::<bool>())
            .prop_map(|(n_tasks_max, threshold, apply)| Op::Place { n_tasks_max, threshold, apply }),
    ]
}

/// Carries the operations out; the indexes must equal the scan whenever asked, and their recomputation at the end.
fn run(n_executors: u32, n_objects: u32, n_tasks_max_ready: usize, ops: Vec<Op>) {
    let mut world = World::new(n_objects);
    for e in 0..n_executors {
        world.executor(e, slots(1, 1, 0));
    }
    for op in ops {
        match op {
            Op::Enter { priority, inputs, cpus, memory_bytes, hours } => {
                if world.tasks.len() < n_tasks_max_ready {
                    world.needs = NeedsId(if cpus == 1 { 0 } else { memory_bytes as u8 });
                    world.timed(priority, &inputs, cpus, memory_bytes, lasts(hours));
                }
            }
            Op::Leave(index) => {
                if !world.tasks.is_empty() {
                    let key = *world.tasks.keys().nth(index.index(world.tasks.len())).unwrap();
                    world.tasks.remove(&key);
                    assert!(world.window.leave(key.task) && !world.window.leave(key.task));
                }
            }
            Op::Add(e, o) => world.holds(e, &[o]),
            Op::Drop(e, o) => world.drops(e, o),
            Op::Multicast(o) => (0..n_executors).for_each(|e| world.holds(e, &[o])),
            Op::Join(e, room) => world.executor(e, room),
            Op::Left(e) => world.leaves(e),
            Op::Drain(e) => world.drains(e),
            Op::SetRoom(e, room) => {
                world.window.set_room(ExecutorId(e), room);
                if let Some(known) = world.rooms.get_mut(&ExecutorId(e)) {
                    *known = room;
                }
            }
            Op::Place { n_tasks_max, threshold, apply } => {
                let decision = world.check(n_tasks_max, threshold);
                if apply && let Ok((executor, picks)) = decision {
                    world.apply(executor, &picks);
                }
            }
        }
    }
    world.check(1, 0.8).ok();
    assert_eq!(world.window.last(), world.tasks.keys().last().copied());
    world.window.sanity_check(&world.catalog);
    world.catalog.sanity_check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn decisions_equal_the_naive_scan(ops in prop::collection::vec(op(6, 14), 1..120)) {
        run(6, 14, 40, ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// More executors than fit one word of a row, and holder sets kept as bits.
    #[test]
    fn decisions_equal_the_naive_scan_with_many_executors(ops in prop::collection::vec(op(150, 16), 1..60)) {
        run(100, 16, 10, ops);
    }
}

fn policy(name: &str, n_tasks_max: usize) -> Box<dyn Policy> {
    of_paper(name, &Config { tasks_per_decision: n_tasks_max, ..Config::default() }).unwrap().unwrap()
}

/// `Ok((executor, tasks))` of the next decision.
fn decide(world: &World, name: &str, n_tasks_max: usize) -> Result<(u32, Vec<u64>), Unplaced> {
    let (executor, picks) = world.place(&*policy(name, n_tasks_max))?;
    Ok((executor.0, picks.iter().map(|p| p.key.task.0).collect()))
}

#[test]
fn queue_order_is_priority_then_submission() {
    let key = |priority, task| QueueKey { priority, task: TaskId(task) };
    assert!(key(1, 9) < key(0, 1) && key(0, 1) < key(0, 2));
}

#[test]
fn an_unknown_policy_is_answered_with_the_known_ones() {
    let error = by_name("max-cache-hits", &Config::default()).unwrap_err();
    assert!(error.contains("`max-cache-hits`") && error.contains("good-cache-compute"), "{error}");
    assert!(by_name(NAMES[0], &Config { window: 0, ..Config::default() }).is_err());
    assert!(by_name(NAMES[3], &Config { utilisation_threshold: f64::NAN, ..Config::default() }).is_err());
    let tries_none = affinity::Config { tries: 0, ..affinity::Config::default() };
    assert!(by_name(affinity::NAME, &Config { affinity: tries_none, ..Config::default() }).is_err());
    for name in NAMES {
        assert_eq!(by_name(name, &Config::default()).unwrap().name(), name);
    }
    assert!(!policy("first-available", 1).uses_caches() && policy("max-cache-hit", 1).uses_caches());
}

#[test]
fn the_head_chooses_the_executor_and_the_executor_its_best_tasks() {
    let mut world = World::new(10);
    world.executor(0, slots(2, 2, 0));
    world.executor(1, slots(2, 2, 0));
    world.holds(1, &[1, 2, 3]);
    world.task(0, &[1, 9], 1, 0);
    world.task(0, &[8], 1, 0);
    world.task(0, &[2, 3], 1, 0);
    // T0 has a file on 1, so 1 is notified; there T2 has all its files, T0 half, T1 none.
    assert_eq!(decide(&world, "max-compute-util", 1), Ok((1, vec![2])));
    assert_eq!(decide(&world, "max-compute-util", 3), Ok((1, vec![2, 0])));
    assert_eq!(decide(&world, "first-available", 3), Ok((0, vec![0, 1])), "as many as there are slots");
}

#[test]
fn under_max_cache_hit_a_task_waits_for_its_holder_and_blocks_nobody() {
    let mut world = World::new(10);
    world.executor(0, slots(1, 1, 0));
    world.executor(1, slots(0, 1, 0));
    world.holds(1, &[1, 2]);
    world.holds(0, &[1]);
    let waiting = world.task(0, &[1, 2], 1, 0);
    let only = Unplaced::WaitingForHolder { task: TaskId(waiting), executor: ExecutorId(1) };
    assert_eq!(decide(&world, "max-cache-hit", 1), Err(only), "1 holds both files, 0 only one");
    assert_eq!(decide(&world, "max-compute-util", 1), Ok((0, vec![waiting])));
    // Half of the slots are busy: below the threshold, so the idle slot wins.
    assert_eq!(decide(&world, "good-cache-compute", 1), Ok((0, vec![waiting])));
    let cold = world.task(0, &[7], 1, 0);
    assert_eq!(decide(&world, "max-cache-hit", 1), Ok((0, vec![cold])));
    let own = world.task(0, &[1], 1, 0);
    assert_eq!(decide(&world, "max-cache-hit", 2), Ok((0, vec![own])), "hits come before cold tasks");
    // With room ahead, waiting happens in the holder's own queue.
    world.leaves(0);
    world.executor(1, slots(0, 1, 1));
    assert_eq!(decide(&world, "max-cache-hit", 1), Ok((1, vec![waiting])));
    assert_eq!(decide(&world, "good-cache-compute", 1), Ok((1, vec![waiting])));
}

#[test]
fn a_task_whose_holders_are_all_too_small_for_it_is_found_wherever_it_is_in_the_queue() {
    let mut world = World::new(10);
    world.executor(0, slots(2, 2, 0));
    world.executor(1, slots(0, 1, 0));
    world.executor(2, slots(0, 1, 0));
    world.holds(1, &[1, 3]);
    world.holds(2, &[2, 3]);
    world.task(0, &[1], 1, 0);
    assert_eq!(world.window.find_stranded(), None, "its holder is large enough, and busy");
    let stranded = world.task(0, &[2], 2, 0);
    let first = world.task(1, &[3], 2, 0);
    let of = |task| world.window.find_stranded().filter(|(_, key)| key.task == TaskId(task)).map(|(e, _)| e);
    assert_eq!(of(first), Some(ExecutorId(0)), "of two holders none is large enough");
    world.holds(0, &[3]);
    let of = |task| world.window.find_stranded().filter(|(_, key)| key.task == TaskId(task)).map(|(e, _)| e);
    assert_eq!(of(stranded), Some(ExecutorId(0)), "one of the holders of the other can take it");
    world.executor(0, slots(1, 2, 0));
    assert_eq!(world.window.find_stranded(), None, "nobody has room for it now");
    // A task does not wait for a resting executor either.
    world.executor(1, Room { rests: true, ..slots(0, 1, 0) });
    assert_eq!(
        world.window.find_stranded().map(|(e, _)| e),
        Some(ExecutorId(0)),
        "the first task's holder rests"
    );
}

#[test]
fn tasks_that_share_what_everybody_holds_spread_over_the_nodes() {
    for name in ["max-compute-util", "max-cache-hit", "good-cache-compute"] {
        let mut world = World::new(9);
        (0..3).for_each(|e| world.executor(e, slots(2, 2, 0)));
        (0..3).for_each(|e| world.holds(e, &[0]));
        (1..7).for_each(|own| {
            world.task(0, &[0, own], 1, 0);
        });
        let policy = policy(name, 1);
        let mut order = Vec::new();
        while let Ok((executor, picks)) = world.place(&*policy) {
            world.apply(executor, &picks);
            order.push(executor.0);
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2], "{name}");
    }
}

#[test]
fn no_comes_with_a_reason() {
    let mut world = World::new(2);
    assert_eq!(decide(&world, "max-compute-util", 1), Err(Unplaced::NothingReady));
    let task = TaskId(world.task(0, &[], 2, 0));
    assert_eq!(decide(&world, "max-compute-util", 1), Err(Unplaced::NoExecutor));
    world.executor(0, slots(0, 2, 0));
    assert_eq!(decide(&world, "max-compute-util", 1), Err(Unplaced::NoneFree));
    world.executor(1, slots(1, 2, 0));
    let why = Unplaced::NothingFits { task, cpus: 2, memory_bytes: 0 };
    assert_eq!(decide(&world, "max-compute-util", 1), Err(why));
    assert_eq!(why.to_string(), "no executor has 2 idle slots for task 0");
    let small = world.task(0, &[], 1, 0);
    assert_eq!(decide(&world, "first-available", 1), Ok((1, vec![small])), "the head blocks nobody");
}

#[test]
fn standing_tells_explain_where_a_task_could_go() {
    let mut world = World::new(3);
    world.executor(0, slots(0, 1, 1));
    world.executor(1, slots(1, 1, 1));
    world.holds(0, &[0, 1]);
    world.holds(1, &[1]);
    let task = TaskId(world.task(0, &[0, 1, 2], 1, 0));
    let expect = Standing {
        n_inputs: 3,
        n_hits_best: 2,
        best_holders: vec![ExecutorId(0)],
        n_fit_idle: 1,
        n_fit_ahead: 2,
    };
    assert_eq!(world.window.standing(task), Some(expect));
    assert_eq!(world.window.standing(TaskId(99)), None);
}

/// 600 tasks, each reading one of 40 files (every fifth also a second), on 4 nodes of 2 slots with caches of 8 files
/// that are replaced in order of arrival. A task computes for 3 ticks and each file not at hand takes 2 more; 2
/// tasks arrive per tick. Gives `(inputs at hand, ticks until the last task ended)`.
fn trace(name: &str) -> (u32, u32) {
    let mut world = World::new(40);
    (0..4).for_each(|e| world.executor(e, slots(2, 2, 0)));
    let mut caches: Vec<VecDeque<u32>> = vec![VecDeque::new(); 4];
    let mut busy: Vec<(u32, u32)> = Vec::new();
    let policy = policy(name, 1);
    let mut seed = 1u64;
    let mut draw = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((seed >> 33) % 40) as u32
    };
    let (mut n_hits, mut tick) = (0, 0);
    while world.n_tasks < 600 || !world.tasks.is_empty() || !busy.is_empty() {
        for _ in 0..2 {
            if world.n_tasks < 600 {
                let mut inputs = vec![draw()];
                if world.n_tasks.is_multiple_of(5) {
                    inputs.push((inputs[0] + 1 + draw() % 39) % 40);
                }
                world.task(0, &inputs, 1, 0);
            }
        }
        busy.retain(|&(end, e)| {
            if end == tick {
                let id = ExecutorId(e);
                world.rooms.get_mut(&id).unwrap().slots_idle += 1;
                world.window.set_room(id, world.rooms[&id]);
            }
            end > tick
        });
        while let Ok((executor, picks)) = world.place(&*policy) {
            let inputs = world.tasks[&picks[0].key].inputs.clone();
            world.apply(executor, &picks);
            let cache = &mut caches[executor.0 as usize];
            let mut n_missing = 0;
            for o in inputs.iter().map(|o| o.0) {
                if cache.contains(&o) {
                    continue;
                }
                n_missing += 1;
                if policy.uses_caches() {
                    if cache.len() == 8 {
                        let gone = cache.pop_front().unwrap();
                        world.drops(executor.0, gone);
                    }
                    cache.push_back(o);
                    world.holds(executor.0, &[o]);
                }
            }
            n_hits += inputs.len() as u32 - n_missing;
            busy.push((tick + 3 + 2 * n_missing, executor.0));
        }
        tick += 1;
    }
    (n_hits, tick)
}

/// 720 requests. More hits the longer tasks may wait for them; idle slots are what that costs.
#[test]
fn golden_hits_and_ticks() {
    let names = ["first-available", "max-cache-hit", "max-compute-util", "good-cache-compute"];
    assert_eq!(names.map(trace), [(0, 409), (471, 306), (412, 307), (430, 305)], "{names:?}");
}
