//! `eyas-lab bench decide`: the cost of one placement decision, and the memory of a queued task and of a
//! replica.
//!
//! Each task reads one of the objects, each object is cached on three executors, and executors have two
//! slots. *Whole*: the end of an attempt goes into the dispatcher's state machine, which ends the task,
//! lets the next task of the backlog into the window, asks the policy and assigns; all of that is timed.
//! *Policy*: only the question to the policy and the window's upkeep are timed. The objects that the
//! executor fetched and evicted for a task are reported between two decisions and not timed.

use super::cluster::{plain_array, template};
use super::memory::held_by;
use super::table::{Row, Table};
use super::{Common, Random, failed, note, quantile};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::catalog::Catalog;
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::*;
use eyas_core::placement::{self, Lasts, QueueKey, ReadyTask, Room, TaskSize, Window};
use eyas_terms::array::{Column, Command, Pattern, TaskArray};
use eyas_terms::*;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const N_SLOTS: u32 = 2;
const N_REPLICAS: usize = 3;
const OBJECT_BYTES: u64 = 10_000_000;
/// The run time is so long that the dispatcher sees no need for a large stock on each executor.
const RUN_NS: u64 = 1_000_000_000;
const RUN: RunId = RunId(1);

#[derive(Args)]
pub struct DecideArgs {
    /// Number of tasks in the queue
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10_000..))]
    queued: u32,
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(3..))]
    executors: u32,
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..))]
    objects: u32,
    #[arg(long, default_value_t = 3200)]
    window: usize,
    /// Number of decisions that are timed for each policy
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    decisions: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &DecideArgs) -> Result<Exit, Fault> {
    args.common.run(|_| {
        let mut table = Table::new(format!(
            "decide: {} tasks queued, {} executors, {} objects, window {}",
            args.queued, args.executors, args.objects, args.window
        ));
        for name in placement::NAMES {
            note(&format!("{name}, the whole dispatcher"));
            let whole = through_the_dispatcher(name, args)?;
            let row = Row::new(format!("{name}, whole, median"), quantile(&whole, 0.5), "µs");
            table.row(row.target("10 µs", "2 µs"));
            table.row(Row::new("  whole, 99th percentile", quantile(&whole, 0.99), "µs"));
            note(&format!("{name}, the policy"));
            let policy = policy_alone(name, args)?;
            if policy.is_empty() {
                continue;
            }
            table.row(Row::new("  policy and window, median", quantile(&policy, 0.5), "µs"));
            table.row(Row::new("  policy and window, 99th percentile", quantile(&policy, 0.99), "µs"));
        }
        note("memory");
        memory(args, &mut table)?;
        Ok(table)
    })
}

/// The speed of a policy's decisions.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Pace {
    pub policy: String,
    /// Decisions per second from the end of an attempt to the next assignment (whole).
    pub decisions_per_s: f64,
    /// Mean times in microseconds; `policy_us` is the policy with its window alone, if it has one.
    pub whole_us: f64,
    pub policy_us: Option<f64>,
}

/// The setting of figure 15 of Raicu09: 32 executors, 250,000 tasks, each reads one of 10,000 files, a
/// window of 3,200.
pub fn pace(name: &str) -> Result<Pace, Fault> {
    let args = DecideArgs {
        queued: 250_000,
        executors: 32,
        objects: 10_000,
        window: 3200,
        decisions: 200_000,
        common: Common { json: None, dir: None },
    };
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let whole_us = mean(&through_the_dispatcher(name, &args)?);
    let policy = policy_alone(name, &args)?;
    let policy_us = (!policy.is_empty()).then(|| mean(&policy));
    Ok(Pace { policy: name.into(), decisions_per_s: 1e6 / whole_us, whole_us, policy_us })
}

fn location(object: u32) -> String {
    format!("/sky/tile-{object:07}.fits")
}

fn digest_of(object: u32) -> Digest {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&object.to_le_bytes());
    Digest(bytes)
}

fn version() -> HomeVersion {
    HomeVersion { size_bytes: OBJECT_BYTES, stamp: "1".into() }
}

/// A dispatcher with executors that hold objects and with the queue submitted; also gives the first
/// assignments.
fn filled(name: &str, args: &DecideArgs, random: &mut Random) -> Result<(Dispatcher, Vec<Action>), Fault> {
    let config = DispatcherConfig {
        placement: name.into(),
        placement_config: placement::Config { window: args.window, ..placement::Config::default() },
        ..DispatcherConfig::default()
    };
    let mut core = Dispatcher::new(config).map_err(failed)?;
    let mut held: Vec<Vec<HeldObject>> = vec![vec![]; args.executors as usize];
    for object in 0..args.objects {
        for _ in 0..N_REPLICAS {
            held[random.below(args.executors as usize)].push(HeldObject {
                digest: digest_of(object),
                size_bytes: OBJECT_BYTES,
                origin: Some((location(object), version())),
            });
        }
    }
    let now = Timestamp(1_000 * RUN_NS);
    let mut out = vec![];
    for (i, held) in held.into_iter().enumerate() {
        let executor = ExecutorId(i as u32 + 1);
        let offer = Offer {
            walltime: None,
            equipment: Default::default(),
            nearby: Default::default(),
            exchanges: false,
            name: format!("node{i}"),
            slots: N_SLOTS,
            memory_bytes: 1 << 36,
            cache_bytes: 1 << 40,
            cache_memory_bytes: 0,
            held,
            attempts: vec![],
            owner: None,
        };
        core.handle(now, Event::ExecutorJoined { executor, offer }, &mut out);
    }
    let mut column = Column::default();
    for _ in 0..args.queued {
        if !column.push(&location(random.below(args.objects as usize) as u32)) {
            return Err(failed("the list of inputs has more than 4 GiB"));
        }
    }
    let array = TaskArray {
        n_tasks: args.queued,
        first_index: 0,
        template: template(
            Command::Exec(vec![Pattern::literal("/bin/true")]),
            vec![(Pattern::literal("in"), Pattern::column(0))],
        ),
        columns: vec![column],
        needs: None,
    };
    core.handle(now, Event::RunOpened { run: RUN, name: "bench".into(), keep: false, into: None }, &mut out);
    core.handle(now, Event::ArrayAdded { run: RUN, array: Arc::new(array) }, &mut out);
    core.handle(now, Event::RunCommitted { run: RUN }, &mut out);
    Ok((core, out))
}

/// The time of each end of an attempt in microseconds, with all that follows from it.
fn through_the_dispatcher(name: &str, args: &DecideArgs) -> Result<Vec<f64>, Fault> {
    let mut random = Random(1);
    let (mut core, mut out) = filled(name, args, &mut random)?;
    let mut cached: HashMap<ExecutorId, VecDeque<ObjectId>> = (1..=args.executors)
        .map(|e| (ExecutorId(e), core.work().catalog().objects_on(ExecutorId(e)).into()))
        .collect();
    let uses_caches = placement::by_name(name, &placement::Config::default()).map_err(failed)?.uses_caches();
    let mut running: Vec<(ExecutorId, Box<Assignment>)> = vec![];
    let mut now = 1_001 * RUN_NS;
    let mut times_us = Vec::with_capacity(args.decisions as usize);
    loop {
        for action in out.drain(..) {
            if let Action::Assign { executor, assignment } = action {
                running.push((executor, assignment));
            }
        }
        if times_us.len() == args.decisions as usize || running.is_empty() {
            return Ok(times_us);
        }
        let (executor, assignment) = running.swap_remove(random.below(running.len()));
        now += 1_000;
        let mut inputs = vec![];
        for input in &assignment.inputs {
            let object = input.object;
            let hit = core.work().catalog().holds(executor, object);
            if !hit && uses_caches {
                let known = input.known.clone().ok_or_else(|| failed("an input's bytes are not known"))?;
                let cache = cached.get_mut(&executor).ok_or_else(|| failed("an executor is not known"))?;
                cache.push_back(object);
                let added = ReplicaAdded {
                    object,
                    digest: known.digest,
                    size_bytes: known.size_bytes,
                    version: Some(known.version),
                    run: Some(assignment.run),
                    private: false,
                };
                let dropped = cache.pop_front().into_iter().collect();
                let event = Event::ReplicasChanged { executor, added: vec![added], dropped };
                core.handle(Timestamp(now), event, &mut out);
            }
            let outcome = if hit { CacheOutcome::LocalHit } else { CacheOutcome::Miss };
            inputs.push(InputReport { object, outcome, size_bytes: OBJECT_BYTES, wait_ns: 0 });
        }
        let started = Timestamp(now - RUN_NS);
        let report = AttemptReport {
            task: assignment.task,
            attempt: assignment.attempt,
            outcome: Outcome::Done,
            times: Times { received: started, inputs_ready: started, started, exited: Timestamp(now) },
            inputs,
            in_memory: vec![],
            outputs: vec![],
            cpu_ns: RUN_NS,
            rss_bytes_max: 0,
            left: None,
        };
        let event = Event::AttemptEnded { executor, report: report.into() };
        let begun = Instant::now();
        core.handle(Timestamp(now), event, &mut out);
        times_us.push(begun.elapsed().as_nanos() as f64 / 1e3);
    }
}

/// The time in microseconds of asking the policy, taking its task out and letting the next one in. Empty
/// for a policy that does not look at a window.
fn policy_alone(name: &str, args: &DecideArgs) -> Result<Vec<f64>, Fault> {
    let mut random = Random(1);
    let (mut catalog, mut view) = (Catalog::new(), Window::new(args.window));
    let Some(policy) = placement::of_paper(name, &placement::Config::default()).map_err(failed)? else {
        return Ok(vec![]);
    };
    let idle = Room { slots_total: N_SLOTS, slots_idle: N_SLOTS, ..Room::default() };
    for e in (0..args.executors).map(ExecutorId) {
        catalog.executor_joined(e);
        view.executor_joined(&catalog, e);
        view.set_room(e, idle);
    }
    for object in 0..args.objects {
        let object = catalog.intern(CatalogLocation::Home(&location(object)));
        for _ in 0..N_REPLICAS {
            catalog.add_replica(ExecutorId(random.below(args.executors as usize) as u32), object);
        }
    }
    let mut n_entered = 0;
    let mut next = |random: &mut Random| {
        n_entered += 1;
        let input = ObjectId(random.below(args.objects as usize) as u32);
        ReadyTask {
            key: QueueKey { priority: 0, task: TaskId(n_entered) },
            inputs: vec![input],
            first_input: Some(input),
            cpus: 1,
            memory_bytes: 0,
            needs: Default::default(),
            lasts: Lasts::ANY,
        }
    };
    for _ in 0..args.window.min(args.queued as usize) {
        view.enter(&catalog, &next(&mut random));
    }
    let (mut times_us, mut picks, mut running) = (vec![], vec![], vec![]);
    while times_us.len() < args.decisions as usize {
        let task = next(&mut random);
        let begun = Instant::now();
        let Ok(executor) = policy.place(&view, &mut picks) else {
            // No executor suits, so some tasks end.
            for _ in 0..=random.below(64).min(running.len().saturating_sub(1)) {
                if running.is_empty() {
                    return Err(failed(format!("{name} places nothing on idle executors")));
                }
                let executor: ExecutorId = running.swap_remove(random.below(running.len()));
                if let Some(room) = view.room(executor) {
                    view.set_room(executor, Room { slots_idle: room.slots_idle + 1, ..room });
                }
            }
            continue;
        };
        view.leave(picks[0].key.task);
        if let Some(room) = view.room(executor) {
            view.set_room(executor, room.after(picks[0].stage, TaskSize { cpus: 1, ..TaskSize::default() }));
        }
        view.enter(&catalog, &task);
        times_us.push(begun.elapsed().as_nanos() as f64 / 1e3);
        running.push(executor);
    }
    Ok(times_us)
}

fn memory(args: &DecideArgs, table: &mut Table) -> Result<(), Fault> {
    let n = args.queued;
    let submit = |array: Vec<TaskArray>| -> Result<Dispatcher, Fault> {
        let mut core = Dispatcher::new(DispatcherConfig::default()).map_err(failed)?;
        let mut out = vec![];
        let now = Timestamp(RUN_NS);
        core.handle(
            now,
            Event::RunOpened { run: RUN, name: "bench".into(), keep: false, into: None },
            &mut out,
        );
        for array in array {
            core.handle(now, Event::ArrayAdded { run: RUN, array: Arc::new(array) }, &mut out);
        }
        core.handle(now, Event::RunCommitted { run: RUN }, &mut out);
        Ok(core)
    };
    let per_task = |bytes: Option<u64>| bytes.map_or(f64::NAN, |b| b as f64 / f64::from(n));
    let (bytes, core) = held_by(|| submit(vec![plain_array(n, &["/bin/true"])]));
    drop(core?);
    let row = Row::new("queued task, folded: a map over numbers", per_task(bytes), "B");
    table.row(row.target("16 B", "8 B"));

    let (bytes, core) = held_by(|| -> Result<_, Fault> {
        let mut column = Column::default();
        for i in 0..n {
            if !column.push(&location(i)) {
                return Err(failed("the list of inputs has more than 4 GiB"));
            }
        }
        column.shrink_to_fit();
        let input = (Pattern::literal("in"), Pattern::column(0));
        let command = Command::Exec(vec![Pattern::literal("/bin/true")]);
        let template = template(command, vec![input]);
        submit(vec![TaskArray { n_tasks: n, first_index: 0, template, columns: vec![column], needs: None }])
    });
    drop(core?);
    let name_bytes = location(0).len();
    table.row(Row::new(
        format!("queued task, folded: a file each, names of {name_bytes} B"),
        per_task(bytes),
        "B",
    ));

    let line_bytes = distinct_line(0).len();
    let (bytes, core) = held_by(|| -> Result<_, Fault> {
        let lines = BufReader::new(Lines { next: 0, n, text: vec![], at: 0 });
        let list = eyas_tasklist::read(lines, Path::new("/"), &eyas_tasklist::ReadOptions::default())?;
        submit(list.arrays)
    });
    drop(core?);
    let row =
        Row::new(format!("queued task, distinct, 2 inputs: JSON of {line_bytes} B"), per_task(bytes), "B");
    table.row(row.target("500 B", "250 B"));

    let mut catalog = Catalog::new();
    for e in 0..args.executors {
        catalog.executor_joined(ExecutorId(e));
    }
    let objects: Vec<ObjectId> =
        (0..args.objects).map(|o| catalog.intern(CatalogLocation::Home(&location(o)))).collect();
    let mut random = Random(1);
    let (bytes, n_pairs) = held_by(|| {
        for object in &objects {
            for _ in 0..N_REPLICAS {
                catalog.add_replica(ExecutorId(random.below(args.executors as usize) as u32), *object);
            }
        }
        catalog.n_replicas()
    });
    let per_pair = bytes.map_or(f64::NAN, |b| b as f64 / n_pairs as f64);
    table.row(
        Row::new(format!("catalog, per (object, holder), {N_REPLICAS} holders"), per_pair, "B")
            .target("64 B", "24 B"),
    );
    table.note("Memory is what the allocator has given out (mallinfo2), with everything that a submission leaves behind.");
    Ok(())
}

/// A task whose strings have nothing in common with each other or with those of other tasks, so that
/// folding can share nothing but the shape.
fn distinct_line(i: u32) -> String {
    let mut random = Random(u64::from(i) << 8);
    let mut word = || format!("{:08x}{:04x}", random.next() as u32, random.next() as u16);
    let (id, seed, a, b) = (word(), word(), word(), word());
    format!(
        "{{\"id\":\"{id}-{i}\",\"command\":[\"compare\",\"a.fits\",\"b.fits\",\"--seed={seed}\"],\
         \"inputs\":{{\"a.fits\":\"/sky/a/tile-{a}.fits\",\"b.fits\":\"/sky/b/tile-{b}.fits\"}}}}\n"
    )
}

/// A task list that is generated while it is read.
struct Lines {
    next: u32,
    n: u32,
    text: Vec<u8>,
    at: usize,
}

impl Read for Lines {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.text.len() && self.next < self.n {
            self.text = distinct_line(self.next).into_bytes();
            self.next += 1;
            self.at = 0;
        }
        let n = into.len().min(self.text.len() - self.at);
        into[..n].copy_from_slice(&self.text[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}
