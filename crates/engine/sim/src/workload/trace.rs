//! A live run, read from its event log: the same tasks again as a workload, and the measurements of the
//! run.
//!
//! The workload has the arrays as they were submitted, each at its time since the first submission; the
//! sizes of files as executors reported them; and as compute time the time that the program took from start
//! to exit. That time contains the program's own reading and writing, which a simulated node adds again:
//! [`ProgramIo`] says how much to take out. [`Trace::workload`] may be called many times, so one reading
//! serves many predictions.
//!
//! [`Measured`] is for calibrating a machine and for judging a prediction. Its times are by the
//! dispatcher's clock; those that an executor reports are by its estimate of that clock.
//!
//! A task that was tried several times counts with the attempt that ended well. Requests and transfers of
//! failed attempts count, too, because they used the links. A log of several lives (the dispatcher was
//! restarted) is read as one log; `n_lives` shows it, because the pause between the lives is part of every
//! time.
//!
//! Refused: a file that is no event log; a run that had not ended when the log broke off; a run with failed
//! or cancelled tasks, unless [`TraceConfig::allow_failed`] is set. Then tasks without a good attempt get
//! the median run time, and files that no executor measured get the median size.
//!
//! | module | |
//! |---|---|
//! | `measured` | the measurements |
//! | `whole` | whether the log holds a whole run, and the workload and measurements of that run |
//!
//! Not here: how lines become runs, tasks and attempts (`eyas_report::fold`), reports for users
//! (`eyas-report`), and the time that a node uses for itself.

mod measured;
#[cfg(test)]
mod tests;
mod whole;

pub use measured::{Measured, MeasuredNode, MeasuredTransfers, Spread, TaskMeasured};

use super::{ArrivingTasks, Compute, Error, ErrorKind, ProgramIo, Sizes, Status, Workload};
use eyas_core::event::{AttemptReport, Offer};
use eyas_core::log::EVENTS_FILE;
use eyas_report::fold::{Array, Change, Fold, HeldAttempt};
use eyas_report::read::Requests;
use eyas_terms::array::TaskArray;
use eyas_terms::location::Location;
use eyas_terms::*;
use eyas_text::shown_path;
use measured::Transfer;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const READ: &str = "replay the run";

#[derive(Clone, PartialEq, Debug, Default)]
pub struct TraceConfig {
    /// One submission of the log, by the number that `eyas` shows. `None`: all submissions.
    pub run: Option<u32>,
    /// Also take runs in which tasks failed or were cancelled.
    pub allow_failed: bool,
}

/// A recorded run.
pub struct Trace {
    pub name: String,
    pub measured: Measured,
    sizes: FxHashMap<String, u64>,
    read_bytes: u64,
    /// The submissions, makers first; their "compute times" are indices into `measured.tasks`.
    ordered: Vec<ArrivingTasks>,
    /// The run time assumed for tasks without a good attempt.
    run_median_ns: u64,
}

impl Trace {
    /// Reads the log of a run's folder, of the dispatcher's folder in it, or an `events.jsonl`.
    pub fn read(path: &Path, config: &TraceConfig) -> Result<Trace, Error> {
        let dir = find_dir(path)?;
        let foreign = |e: eyas_report::Error| {
            let status = match e.status {
                eyas_report::Status::Permanent => Status::Permanent,
                eyas_report::Status::Temporary => Status::Temporary,
                eyas_report::Status::Persistent => Status::Persistent,
            };
            let kind = match e.kind {
                eyas_report::ErrorKind::Open | eyas_report::ErrorKind::Read => ErrorKind::Open,
                _ => ErrorKind::Foreign,
            };
            let context = e.context.clone();
            Error { status, source: Some(Box::new(e)), ..Error::new(kind, READ, context) }
        };
        let (mut fold, mut reader) = (Fold::whole(), TraceReader::default());
        let torn = fold
            .read(&dir, is_wanted, |fold, entry, changes| reader.take(fold, entry.t(), changes))
            .map_err(foreign)?;
        reader.finish(fold, &dir, torn, config)
    }

    /// The same tasks as a workload.
    pub fn workload(&self, io: &ProgramIo) -> Result<Workload, Error> {
        io.check()?;
        Ok(self.workload_by(|position, _| {
            let t = &self.measured.tasks[position];
            io.compute_ns(t.run_ns(), t.read_bytes(), t.output_bytes)
        }))
    }

    /// The same tasks with other compute times, in nanoseconds. `compute_ns` is called in order, with the
    /// position and the array of each task that ran.
    pub fn workload_by(&self, mut compute_ns: impl FnMut(usize, &TaskArray) -> u64) -> Workload {
        let mut compute_ns = |task: u64, array: &TaskArray| match self.measured.tasks[task as usize].has_run()
        {
            true => compute_ns(task as usize, array),
            false => self.run_median_ns,
        };
        let submissions: Vec<ArrivingTasks> = (self.ordered.iter())
            .map(|s| {
                let tasks = 0..s.array.n_tasks;
                let compute = Compute::Each(tasks.map(|i| compute_ns(s.compute.of(i), &s.array)).collect());
                ArrivingTasks { at: s.at, array: s.array.clone(), compute }
            })
            .collect();
        Workload {
            name: self.name.clone(),
            n_tasks: self.measured.n_tasks,
            ideal_ns: submissions.last().map_or(0, |s| s.at.0),
            read_bytes: self.read_bytes,
            sizes: Sizes::Each(self.sizes.clone()),
            submissions: Box::new(submissions.into_iter()),
        }
    }

    /// All tasks, makers first: position in [`Measured::tasks`], array, and place in the array.
    pub fn tasks(&self) -> impl Iterator<Item = (usize, &TaskArray, u32)> {
        let each = |s: &ArrivingTasks, i: u32| s.compute.of(i) as usize;
        self.ordered.iter().flat_map(move |s| (0..s.array.n_tasks).map(move |i| (each(s, i), &*s.array, i)))
    }

    /// The size of a file that was read or written, in bytes.
    pub fn size_of(&self, location: &str) -> Option<u64> {
        self.sizes.get(location).copied()
    }
}

/// The folder with the log of a recorded run: `path` itself, the one of the dispatcher in it, or the one that the log `path` is in.
///
/// # Errors
/// There is no event log.
pub fn find_dir(path: &Path) -> Result<PathBuf, Error> {
    if path.file_name().is_some_and(|name| name == EVENTS_FILE) && path.is_file() {
        return Ok(path.parent().unwrap_or(Path::new("")).to_path_buf());
    }
    let inside = [path.join("dispatcher"), path.to_path_buf()];
    if let Some(dir) = inside.into_iter().find(|dir| dir.join(EVENTS_FILE).is_file()) {
        return Ok(dir);
    }
    let context = match path.exists() {
        true => format!("there is no event log (`{EVENTS_FILE}`) in {}", shown_path(path)),
        false => format!("{} does not exist", shown_path(path)),
    };
    Err(Error::new(ErrorKind::Open, READ, context).hint("name the folder that a run was given with --dir"))
}

/// Whether a line can matter here. Other lines, most of them cache reports, are not parsed.
fn is_wanted(text: &[u8]) -> bool {
    let head = &text[..text.len().min(64)];
    let has = |needle: &str| head.windows(needle.len()).any(|w| w == needle.as_bytes());
    !(has(r#""in":{"replicas_changed""#) || has(r#""in":"ticked""#) || has(r#""out":{"drop_replicas""#))
}

/// The initial record of a task of `a`.
fn submitted(a: &Array) -> TaskMeasured {
    TaskMeasured { submitted: a.submitted, cpus: a.array.template.cpus, ..TaskMeasured::default() }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    HomeIn,
    Peer,
    HomeOut,
}

/// Collects what the fold's own states do not keep of the log's changes. All times are as they are in the
/// log.
#[derive(Default)]
struct TraceReader {
    nodes: Vec<MeasuredNode>,
    /// The node of each executor, by its row. An executor that was lost and joined again is the same node.
    node_of: Vec<u32>,
    /// Tasks with an attempt that ended well.
    tasks: FxHashMap<TaskId, TaskMeasured>,
    sizes: FxHashMap<String, u64>,
    requests: BTreeMap<RunId, Requests>,
    n_attempts: BTreeMap<RunId, u64>,
    transfers: Vec<(RunId, Way, Transfer)>,
}

impl TraceReader {
    fn take(&mut self, fold: &Fold, t: Timestamp, changes: Vec<Change<'_>>) {
        for change in changes {
            match change {
                // The journal of an earlier life did not keep the tasks that had these numbers.
                Change::ArrayAdded { base, replaces: true, .. } => self.tasks.retain(|task, _| task.0 < base),
                Change::ExecutorCame { row, offer } => self.on_came(t, row, offer),
                Change::ExecutorLost { row } => self.nodes[self.node_of[row] as usize].n_losses += 1,
                // Late reports count, because their attempts used the links, too.
                Change::AttemptReported { held, report, .. } | Change::LateReport { held, report } => {
                    self.on_reported(fold, t, held, report)
                }
                Change::OutputsHome { task } => self.on_outputs_home(fold, t, task),
                _ => {}
            }
        }
    }

    fn on_came(&mut self, t: Timestamp, row: usize, offer: &Offer) {
        let node = self.nodes.iter().position(|n| n.name == offer.name);
        let node = node.unwrap_or_else(|| {
            self.nodes.push(MeasuredNode {
                name: offer.name.clone(),
                slots: offer.slots,
                memory_bytes: offer.memory_bytes,
                cache_bytes: offer.cache_bytes,
                cache_memory_bytes: offer.cache_memory_bytes,
                equipment: offer.equipment.clone(),
                held_bytes: offer.held.iter().map(|h| h.size_bytes).sum(),
                joined: t,
                n_losses: 0,
            });
            self.nodes.len() - 1
        });
        self.node_of.resize(self.node_of.len().max(row + 1), 0);
        self.node_of[row] = node as u32;
    }

    /// All outputs of an attempt are one transfer.
    fn on_outputs_home(&mut self, fold: &Fold, t: Timestamp, task: TaskId) {
        let Some(measured) = self.tasks.get(&task).filter(|m| m.output_bytes > 0) else { return };
        let transfer = Transfer {
            begin_ns: measured.reported.0,
            wait_ns: t.since_ns(measured.reported),
            bytes: measured.output_bytes,
        };
        self.transfers.extend(fold.tasks.find(task).map(|a| (a.run, Way::HomeOut, transfer)));
    }

    fn on_reported(&mut self, fold: &Fold, t: Timestamp, held: HeldAttempt, report: &AttemptReport) {
        let Some(recorded) = fold.tasks.find(report.task) else { return };
        let (run, array, i) = (recorded.run, &recorded.array, (report.task.0 - recorded.base) as u32);
        *self.n_attempts.entry(run).or_default() += 1;
        let mut measured = TaskMeasured {
            assigned: held.since,
            received: report.times.received,
            inputs_ready: report.times.inputs_ready,
            started: report.times.started,
            exited: report.times.exited,
            reported: t,
            node: self.node_of[held.row],
            output_bytes: report.outputs.iter().map(|o| o.size_bytes).sum(),
            cpu_ns: report.cpu_ns,
            ..submitted(recorded)
        };
        let requests = self.requests.entry(run).or_default();
        for (input, i) in report.inputs.iter().zip(0..) {
            requests.count(input, report.in_memory.binary_search(&i).is_ok());
            let (bytes, wait_ns) = (input.size_bytes, input.wait_ns);
            let way = match input.outcome {
                CacheOutcome::LocalHit
                | CacheOutcome::Joined
                | CacheOutcome::InPlace
                | CacheOutcome::Made => {
                    measured.local_bytes += bytes;
                    continue;
                }
                CacheOutcome::RemoteHit { .. } => {
                    measured.peer_bytes += bytes;
                    measured.peer_wait_ns = measured.peer_wait_ns.max(wait_ns);
                    Way::Peer
                }
                CacheOutcome::Miss | CacheOutcome::Direct => {
                    measured.home_bytes += bytes;
                    measured.home_wait_ns = measured.home_wait_ns.max(wait_ns);
                    Way::HomeIn
                }
            };
            let transfer = Transfer { begin_ns: report.times.received.0, wait_ns, bytes };
            self.transfers.push((run, way, transfer));
        }
        // An attempt that ended well reports all its inputs, in the order of the template.
        if report.outcome != Outcome::Done {
            return;
        }
        let template = &array.template;
        if report.inputs.len() == template.inputs.len() {
            for (input, (_, pattern)) in report.inputs.iter().zip(&template.inputs) {
                self.sizes.insert(array.fill(pattern, i), input.size_bytes);
            }
        }
        for output in &report.outputs {
            if let Some((_, pattern)) = template.outputs.get(output.output as usize) {
                let location = array.fill(pattern, i);
                let lands = !Location::of(&location).stays();
                measured.landed_bytes += if lands { output.size_bytes } else { 0 };
                self.sizes.insert(location, output.size_bytes);
            }
        }
        self.tasks.insert(report.task, measured);
    }
}
