//! `eyas-lab bench workflow`: a workflow of a million tasks through the decision core.
//!
//! The shape is Montage's (`Zhang12` table II): a third of the tasks each project one image; each two
//! neighbours are compared; a fixed number of comparisons is gathered by each task of the next stage; each
//! projection is corrected with the gathered table. All files but the last stay on the nodes. Executors are
//! only simulated: each attempt ends at once and well, and the inputs that it lacked are reported as
//! copied. Everything that the dispatcher does is timed: submission (makers, readers, patterns), and from
//! then on waking, placing, collectives, replicas, and dropping files that no task will read. Network,
//! journal and programs are not part of it (see `eyas-lab bench dispatch`).

use super::memory::held_by;
use super::table::{Row, Table};
use super::{Common, failed, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::*;
use eyas_terms::array::{Column, Command, Pattern, TaskArray, Template};
use eyas_terms::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

const RUN: RunId = RunId(1);
const FILE_BYTES: u64 = 1_000_000;

#[derive(Args)]
pub struct WorkflowArgs {
    /// Approximate number of tasks of the workflow
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..))]
    tasks: u32,
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    executors: u32,
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    slots: u32,
    /// Number of comparisons that one task gathers
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..))]
    gathered: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &WorkflowArgs) -> Result<Exit, Fault> {
    args.common.run(|_| {
        let mut table = Table::new(format!(
            "workflow: about {} tasks, {} executors with {} slots",
            args.tasks, args.executors, args.slots
        ));
        note("making the workflow");
        let arrays = workflow(args)?;
        let n_tasks: u64 = arrays.iter().map(|a| u64::from(a.n_tasks)).sum();
        // The core is returned too, so that its memory is counted.
        let (bytes, (cost, _core)) = held_by(|| resolve(args, &arrays));
        let Cost { submitted_s, resolved_s, n_tasks_done, n_prefetched, n_dropped } = cost?;
        if n_tasks_done != n_tasks {
            return Err(failed(format!("{n_tasks_done} of {n_tasks} tasks ended well")));
        }
        table.row(
            Row::new("submitted and resolved", n_tasks as f64 / (submitted_s + resolved_s), "tasks/s")
                .target("30,000 tasks/s", "100,000 tasks/s"),
        );
        table.row(Row::new("  submission", submitted_s * 1e6 / n_tasks as f64, "µs/task"));
        table.row(Row::new("  resolution", resolved_s * 1e6 / n_tasks as f64, "µs/task"));
        table.row(Row::new("files brought ahead of their readers", n_prefetched as f64, ""));
        table.row(Row::new("replicas dropped after their last reader", n_dropped as f64, ""));
        if let Some(bytes) = bytes {
            let row = Row::new("held by the dispatcher at the end", bytes as f64 / 1e6, "MB");
            table.row(row.target("1,000 MB", ""));
        }
        Ok(table)
    })
}

struct Cost {
    submitted_s: f64,
    resolved_s: f64,
    n_tasks_done: u64,
    n_prefetched: u64,
    n_dropped: u64,
}

/// The four stages; each column holds one name per task.
fn workflow(args: &WorkflowArgs) -> Result<Vec<Arc<TaskArray>>, Fault> {
    let n = (args.tasks / 3).max(2);
    let column = |values: &mut dyn Iterator<Item = String>| -> Result<Column, Fault> {
        let mut column = Column::default();
        for value in values {
            if !column.push(&value) {
                return Err(failed("a stage has more than 4 GiB of names"));
            }
        }
        column.shrink_to_fit();
        Ok(column)
    };
    let file = |name: &str, column: u32| (Pattern::literal(name), Pattern::column(column));
    let form = |label: &str, inputs: Vec<(Pattern, Pattern)>, outputs: Vec<(Pattern, Pattern)>| Template {
        inputs,
        outputs,
        label: label.into(),
        ..Template::new(
            Pattern(vec![array::Piece::Literal(format!("{label}-")), array::Piece::Index]),
            Command::Exec(vec![Pattern::literal("/bin/true")]),
        )
    };
    let mut arrays = vec![];
    let mut add = |n_tasks: u32, template: Template, columns: Vec<Column>| {
        arrays.push(Arc::new(TaskArray { n_tasks, first_index: 0, template, columns, needs: None }));
    };
    let proj = |i: u32| run_file(format_args!("proj/{i}"));
    let raw = column(&mut (0..n).map(|i| format!("/sky/{i}.fits")))?;
    let projected = || column(&mut (0..n).map(proj));
    add(n, form("project", vec![file("in", 0)], vec![file("out", 1)]), vec![raw, projected()?]);
    let next = column(&mut (0..n).map(|i| proj((i + 1) % n)))?;
    let diffs = column(&mut (0..n).map(|i| run_file(format_args!("diff/{i}"))))?;
    let inputs = vec![file("a", 0), file("b", 1)];
    add(n, form("diff", inputs, vec![file("out", 2)]), vec![projected()?, next, diffs]);
    let k = args.gathered;
    for (g, start) in (0..n).step_by(k as usize).enumerate() {
        let inputs = (start..(start + k).min(n)).map(|i| {
            (Pattern::literal(format!("{i}")), Pattern::literal(run_file(format_args!("diff/{i}"))))
        });
        let out = vec![(Pattern::literal("table"), Pattern::literal(run_file(format_args!("fit/{g}"))))];
        add(1, form("concat", inputs.collect(), out), vec![]);
    }
    let fits = column(&mut (0..n).map(|i| run_file(format_args!("fit/{}", i / k))))?;
    let done = column(&mut (0..n).map(|i| format!("/sky/corrected/{i}.fits")))?;
    let inputs = vec![file("in", 0), file("table", 1)];
    add(n, form("background", inputs, vec![file("out", 2)]), vec![projected()?, fits, done]);
    Ok(arrays)
}

fn digest_of(object: ObjectId) -> Digest {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&object.0.to_le_bytes());
    Digest(bytes)
}

/// The reports that the simulated executors have still to make.
enum PendingReport {
    Ended(ExecutorId, Box<Assignment>),
    Prefetched(ExecutorId, Vec<ObjectId>),
}

/// Also gives the state machine, so that its memory can be counted.
fn resolve(args: &WorkflowArgs, arrays: &[Arc<TaskArray>]) -> (Result<Cost, Fault>, Option<Dispatcher>) {
    let mut cluster = match Cluster::new(args) {
        Ok(cluster) => cluster,
        Err(e) => return (Err(e), None),
    };
    let begun = Instant::now();
    cluster.submit(arrays);
    let submitted_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    while cluster.step() {}
    let Cluster { core, n_tasks_done, n_prefetched, n_dropped, .. } = cluster;
    let resolved_s = begun.elapsed().as_secs_f64();
    (Ok(Cost { submitted_s, resolved_s, n_tasks_done, n_prefetched, n_dropped }), Some(core))
}

/// A dispatcher's core with simulated executors.
struct Cluster {
    core: Dispatcher,
    out: Vec<Action>,
    now: u64,
    reports: VecDeque<PendingReport>,
    n_tasks_done: u64,
    n_prefetched: u64,
    n_dropped: u64,
}

impl Cluster {
    fn new(args: &WorkflowArgs) -> Result<Cluster, Fault> {
        let core = Dispatcher::new(DispatcherConfig::default()).map_err(failed)?;
        let mut cluster = Cluster {
            core,
            out: vec![],
            now: 1_000_000_000,
            reports: VecDeque::new(),
            n_tasks_done: 0,
            n_prefetched: 0,
            n_dropped: 0,
        };
        for e in 1..=args.executors {
            let offer = Offer {
                name: format!("node{e}"),
                slots: args.slots,
                memory_bytes: 1 << 40,
                cache_bytes: 1 << 50,
                ..Offer::default()
            };
            cluster.handle(Event::ExecutorJoined { executor: ExecutorId(e), offer });
        }
        Ok(cluster)
    }

    fn handle(&mut self, event: Event) {
        self.core.handle(Timestamp(self.now), event, &mut self.out);
    }

    fn submit(&mut self, arrays: &[Arc<TaskArray>]) {
        self.handle(Event::RunOpened { run: RUN, name: "bench".into(), keep: false, into: None });
        for array in arrays {
            self.handle(Event::ArrayAdded { run: RUN, array: array.clone() });
        }
        self.handle(Event::RunCommitted { run: RUN });
    }

    /// Takes what the core did last, and makes the next report. `false`: there is nothing left to do.
    fn step(&mut self) -> bool {
        self.take_actions();
        self.now += 1_000;
        match self.reports.pop_front() {
            Some(PendingReport::Prefetched(executor, objects)) => {
                let added = objects.into_iter().map(|object| replica(object, None, None)).collect();
                self.handle(Event::ReplicasChanged { executor, added, dropped: vec![] });
            }
            Some(PendingReport::Ended(executor, assignment)) => self.end(executor, &assignment),
            None if self.core.n_ready() > 0 => {
                self.now += 10_000_000;
                self.handle(Event::Ticked);
            }
            None => return false,
        }
        true
    }

    fn take_actions(&mut self) {
        for action in self.out.drain(..) {
            match action {
                Action::Assign { executor, assignment } => {
                    self.reports.push_back(PendingReport::Ended(executor, assignment))
                }
                Action::Prefetch { executor, inputs, .. } => {
                    self.n_prefetched += inputs.len() as u64;
                    self.reports.push_back(PendingReport::Prefetched(
                        executor,
                        inputs.iter().map(|i| i.object).collect(),
                    ))
                }
                Action::EndTask { outcome: Outcome::Done, .. } => self.n_tasks_done += 1,
                Action::DropReplicas { objects, .. } => self.n_dropped += objects.len() as u64,
                _ => {}
            }
        }
    }

    /// The attempt has copied what it lacked, and ended well.
    fn end(&mut self, executor: ExecutorId, assignment: &Assignment) {
        let catalog = self.core.work().catalog();
        let version =
            |stays: bool| (!stays).then(|| HomeVersion { size_bytes: FILE_BYTES, stamp: "1".into() });
        let lacking = assignment.inputs.iter().filter(|i| !catalog.holds(executor, i.object));
        let fetched: Vec<ReplicaAdded> = lacking
            .map(|i| replica(i.object, version(i.stays), (!i.stays).then_some(assignment.run)))
            .collect();
        let outcome_of = |input: &AssignedInput| match input.sources.first() {
            _ if catalog.holds(executor, input.object) => CacheOutcome::LocalHit,
            Some(from) => CacheOutcome::RemoteHit { from: *from },
            None => CacheOutcome::Miss,
        };
        let inputs = assignment.inputs.iter().map(|i| InputReport {
            object: i.object,
            outcome: outcome_of(i),
            size_bytes: FILE_BYTES,
            wait_ns: 1_000_000,
        });
        let inputs = inputs.collect();
        if !fetched.is_empty() {
            self.handle(Event::ReplicasChanged { executor, added: fetched, dropped: vec![] });
        }
        let (task, attempt) = (assignment.task, assignment.attempt);
        let outputs = (0..).zip(&assignment.outputs).map(|(output, object)| OutputReport {
            output,
            digest: digest_of(*object),
            size_bytes: FILE_BYTES,
            marks: None,
        });
        let t = Timestamp(self.now);
        let report = AttemptReport {
            task,
            attempt,
            outcome: Outcome::Done,
            times: Times { received: t, inputs_ready: t, started: t, exited: t.plus_ns(1_000_000) },
            inputs,
            in_memory: vec![],
            outputs: outputs.collect(),
            cpu_ns: 1_000_000,
            rss_bytes_max: 0,
            left: None,
        };
        self.handle(Event::AttemptEnded { executor, report: report.into() });
        if assignment.staying.len() < assignment.outputs.len() {
            self.handle(Event::OutputsHome { executor, task, attempt, result: Ok(()) });
        }
    }
}

fn replica(object: ObjectId, version: Option<HomeVersion>, run: Option<RunId>) -> ReplicaAdded {
    ReplicaAdded { object, digest: digest_of(object), size_bytes: FILE_BYTES, version, run, private: false }
}
