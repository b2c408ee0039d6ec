//! What one placement decision on a window costs; `eyas-lab bench decide` times all policies through the dispatcher.
//!
//! `cargo run --release -p eyas-core --example decide [-- N_QUEUED N_EXECUTORS N_OBJECTS WINDOW]`
//!
//! At the end the naive scan decides as well, which the policies must equal (for `first-available` and
//! `max-compute-util`; the scan of the others takes minutes at this size).
//!
//! For each workload and policy: fill the window, then time single decisions. One decision is: ask the policy, take
//! the picked task out of the window and its slot from the executor, let the next task of the backlog enter. Between two
//! decisions, untimed, the executor reports what it fetched and dropped for the task (both go through the catalog and the
//! window, and are timed on their own), and when nothing can be placed up to 64 running tasks end.
//!
//! Workloads:
//!   - `files`: each task reads one of N_OBJECTS objects, each of which is cached on 3 executors;
//!   - `blast`: each task reads its own object and a database that all executors hold;
//!   - `all-pairs`: each task reads two of 1,000 objects, each of which is cached on 30 % of the executors.

// A benchmark reads the clock and its arguments, and its own map is only looked up or sorted.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use eyas_core::catalog::Catalog;
use eyas_core::placement::{self, Lasts, QueueKey, ReadyTask, Room, TaskSize, Window};
use eyas_terms::{CatalogLocation, ExecutorId, ObjectId, TaskId};
use std::collections::VecDeque;
use std::time::Instant;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

#[derive(Clone, Copy)]
struct Scale {
    n_queued: usize,
    n_executors: usize,
    n_objects: usize,
    window: usize,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Workload {
    Files,
    Blast,
    AllPairs,
}

const N_SLOTS: u32 = 2;
const N_DECISIONS: usize = 100_000;

/// `(median, 99th percentile)`.
fn quantiles(mut ns: Vec<u64>) -> (u64, u64) {
    ns.sort_unstable();
    let at = |q: usize| ns.get(ns.len() * q / 100).copied().unwrap_or(0);
    (at(50), at(99))
}

fn decide(workload: Workload, name: &str, scale: Scale) {
    let Scale { n_queued, n_executors, n_objects, window } = scale;
    let mut random = Random(1);
    let mut catalog = Catalog::new();
    let mut view = Window::new(window);
    let policy = of_paper(name).expect("only they are asked");
    let room = Room { slots_total: N_SLOTS, slots_idle: N_SLOTS, ..Room::default() };
    for e in (0..n_executors as u32).map(ExecutorId) {
        catalog.executor_joined(e);
        view.executor_joined(&catalog, e);
        view.set_room(e, room);
    }
    let n_objects = if workload == Workload::AllPairs { n_objects.min(1000) } else { n_objects };
    for o in 0..n_objects {
        catalog.intern(CatalogLocation::Home(&format!("sky/tile-{o:07}.fits")));
    }
    let mut cached: Vec<VecDeque<ObjectId>> = vec![VecDeque::new(); n_executors];
    for o in 0..n_objects {
        let n_replicas = match workload {
            Workload::Files => 3,
            Workload::Blast if o == 0 => n_executors,
            Workload::Blast => 1,
            Workload::AllPairs => n_executors * 3 / 10,
        };
        for r in 0..n_replicas {
            let e = if n_replicas == n_executors { r } else { random.below(n_executors) };
            let object = ObjectId(o as u32);
            if catalog.add_replica(ExecutorId(e as u32), object) && (workload, o) != (Workload::Blast, 0) {
                cached[e].push_back(object);
            }
        }
    }
    // The backlog is the dispatcher's; here it is a generator of inputs.
    let mut n_entered = 0usize;
    let mut next = |random: &mut Random| {
        let mut inputs = vec![ObjectId(random.below(n_objects) as u32)];
        match workload {
            Workload::Files => {}
            Workload::Blast => inputs.push(ObjectId(0)),
            Workload::AllPairs => inputs.push(ObjectId(random.below(n_objects) as u32)),
        }
        inputs.sort_unstable();
        inputs.dedup();
        n_entered += 1;
        ReadyTask {
            key: QueueKey { priority: 0, task: TaskId(n_entered as u64) },
            first_input: inputs.first().copied(),
            inputs,
            cpus: 1,
            memory_bytes: 0,
            needs: Default::default(),
            lasts: Lasts::ANY,
        }
    };
    let mut waiting = Waiting::new();
    for _ in 0..window.min(n_queued) {
        let task = next(&mut random);
        waiting.insert(task.key.task, task.inputs.clone());
        view.enter(&catalog, &task);
    }
    let n_decisions = N_DECISIONS.min(n_queued);
    let (mut of_decision, mut of_policy, mut of_replica) = (Vec::new(), Vec::new(), Vec::new());
    let (mut n_hits, mut n_inputs, mut n_none) = (0u64, 0u64, 0u64);
    let mut running: VecDeque<ExecutorId> = VecDeque::new();
    let mut picks = Vec::new();
    while of_decision.len() < n_decisions {
        let task = next(&mut random);
        let task_inputs = task.inputs.clone();
        let start = Instant::now();
        let decision = policy.place(&view, &mut picks);
        let decided = start.elapsed();
        let Ok(executor) = decision else {
            // All executors are busy, or all tasks wait for busy ones: some tasks end.
            n_none += 1;
            for _ in 0..=random.below(64).min(running.len() - 1) {
                let i = random.below(running.len());
                let executor = running.swap_remove_back(i).expect("as many run");
                let room = view.room(executor).expect("nobody leaves");
                view.set_room(executor, Room { slots_idle: room.slots_idle + 1, ..room });
            }
            continue;
        };
        let pick = picks[0];
        view.leave(pick.key.task);
        let room = view.room(executor).expect("nobody leaves");
        view.set_room(executor, room.after(pick.stage, TaskSize { cpus: 1, ..TaskSize::default() }));
        view.enter(&catalog, &task);
        of_decision.push(start.elapsed().as_nanos() as u64);
        of_policy.push(decided.as_nanos() as u64);

        n_hits += u64::from(pick.n_hits);
        n_inputs += u64::from(pick.n_inputs);
        running.push_back(executor);
        let inputs = waiting.remove(&pick.key.task).expect("it was in the window");
        waiting.insert(task.key.task, task_inputs);
        if policy.uses_caches() {
            for object in inputs {
                if catalog.holds(executor, object) {
                    continue;
                }
                let start = Instant::now();
                catalog.add_replica(executor, object);
                view.replica_added(executor, object);
                let cache = &mut cached[executor.0 as usize];
                cache.push_back(object);
                let gone = cache.pop_front().expect("one was just added");
                catalog.drop_replica(executor, gone);
                view.replica_dropped(executor, gone);
                of_replica.push(start.elapsed().as_nanos() as u64);
            }
        }
    }
    // What a multicast costs here: an object that the whole window reads comes to one more executor.
    let mut of_multicast = Vec::new();
    if workload == Workload::Blast {
        for e in (0..n_executors as u32).map(ExecutorId) {
            catalog.drop_replica(e, ObjectId(0));
            view.replica_dropped(e, ObjectId(0));
            let start = Instant::now();
            catalog.add_replica(e, ObjectId(0));
            view.replica_added(e, ObjectId(0));
            of_multicast.push(start.elapsed().as_nanos() as u64);
        }
    }
    let of_scan = scan(name, &catalog, &view, &waiting, n_executors);
    let (median, p99) = quantiles(of_decision);
    let (policy_median, policy_p99) = quantiles(of_policy);
    let (replica_median, replica_p99) = quantiles(of_replica);
    println!(
        "{:10} {name:19} {median:7} {p99:7} {policy_median:7} {policy_p99:7} {replica_median:7} {replica_p99:7} \
         {:6.1} {:8} {:7.1} {:11} {:9}",
        format!("{workload:?}"),
        100.0 * n_hits as f64 / n_inputs as f64,
        n_none,
        view.heap_bytes() as f64 / 1e6,
        quantiles(of_multicast).0,
        quantiles(of_scan).0,
    );
}

/// Bytes that the catalog takes per (object, holder) pair, both directions.
fn catalog_bytes(n_executors: usize, n_objects: usize) {
    for n_replicas in [2, 3, 5, 20] {
        let (mut catalog, mut random) = (Catalog::new(), Random(1));
        for e in 0..n_executors as u32 {
            catalog.executor_joined(ExecutorId(e));
        }
        for o in 0..n_objects {
            let object = catalog.intern(CatalogLocation::Home(&format!("sky/tile-{o:07}.fits")));
            for _ in 0..n_replicas {
                catalog.add_replica(ExecutorId(random.below(n_executors) as u32), object);
            }
        }
        println!(
            "catalog, {n_replicas:2} replicas per object: {:4.1} bytes per pair; with names and sizes {:.1} MB",
            catalog.replica_bytes() as f64 / catalog.n_replicas() as f64,
            catalog.heap_bytes() as f64 / 1e6
        );
    }
}

fn of_paper(name: &str) -> Option<Box<dyn placement::Policy>> {
    placement::of_paper(name, &placement::Config::default()).expect("the defaults are good")
}

type Waiting = std::collections::HashMap<TaskId, Vec<ObjectId>>;

/// Nanoseconds of single decisions by the naive scan, on the state in which the benchmark ends.
fn scan(name: &str, catalog: &Catalog, view: &Window, waiting: &Waiting, n_executors: usize) -> Vec<u64> {
    use eyas_core::placement::naive::{Rule, Scan};
    let rule = match name {
        placement::first_available::NAME => Rule::FirstAvailable,
        placement::max_compute_util::NAME => Rule::MaxComputeUtil,
        _ => return Vec::new(),
    };
    let mut tasks: Vec<ReadyTask> = waiting
        .iter()
        .map(|(&task, inputs)| ReadyTask {
            key: QueueKey { priority: 0, task },
            inputs: inputs.clone(),
            first_input: inputs.first().copied(),
            cpus: 1,
            memory_bytes: 0,
            needs: Default::default(),
            lasts: Lasts::ANY,
        })
        .collect();
    tasks.sort_unstable_by_key(|t| t.key);
    let turn = view.turn().0;
    let ids = (turn..n_executors as u32).chain(0..turn.min(n_executors as u32)).map(ExecutorId);
    let executors = ids.map(|e| (e, view.room(e).expect("nobody leaves"))).collect();
    let scan = Scan { tasks: tasks.iter().collect(), catalog, executors };
    let policy = of_paper(name).expect("only they are asked");
    let mut picks = Vec::new();
    let decision = policy.place(view, &mut picks).map(|e| (e, picks));
    let time = |_| {
        let start = Instant::now();
        assert_eq!(scan.place(rule, 1), decision);
        start.elapsed().as_nanos() as u64
    };
    (0..20).map(time).collect()
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|a| a.parse::<usize>().unwrap_or_else(|_| panic!("`{a}` is not a number")));
    let mut number = |default| numbers.next().unwrap_or(default);
    let scale = Scale {
        n_queued: number(1_000_000),
        n_executors: number(1000),
        n_objects: number(100_000),
        window: number(3200),
    };
    println!(
        "{} tasks queued, {} executors, {} objects, window {}; {} decisions each; times in ns",
        scale.n_queued,
        scale.n_executors,
        scale.n_objects,
        scale.window,
        N_DECISIONS.min(scale.n_queued)
    );
    println!("                               whole decision  policy alone    replica in + out");
    println!(
        "workload   policy               median     p99  median     p99  median     p99   hit % no room  window MB  multicast  the scan"
    );
    for workload in [Workload::Files, Workload::Blast, Workload::AllPairs] {
        for name in placement::NAMES.into_iter().filter(|name| of_paper(name).is_some()) {
            decide(workload, name, scale);
        }
    }
    catalog_bytes(scale.n_executors, scale.n_objects);
}
