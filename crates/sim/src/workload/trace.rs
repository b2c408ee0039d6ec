//! What a live run did, from its event log: the same tasks again as a workload, and what was measured.
//!
//! The workload has the arrays as they were submitted, each at its time since the first submission; sizes of files
//! as executors reported them; and as compute time what the program took from start to exit. That time has the program's
//! own reading and writing in it, which a simulated node adds again: [`ProgramIo`] says how much to take out.
//! [`Trace::workload`] may be called again and again, so one reading serves many predictions.
//!
//! [`Measured`] is for calibrating a machine and for judging a prediction. Its times are by the dispatcher's clock;
//! those that an executor reports are by its estimate of that clock.
//!
//! A task that was tried several times counts with the attempt that ended well; requests and transfers of failed
//! attempts count too, because they used the links. A log of several lives (the dispatcher was restarted) is read
//! as one; `n_lives` says so, because the pause between them is in every time.
//!
//! Refused: what is no event log; a run that had not ended when the log broke off; a run with failed or cancelled
//! tasks, unless [`TraceConfig::allow_failed`] is set: then tasks without a good attempt get the median run time,
//! and files that nobody measured the median size.
//!
//! | module | |
//! |---|---|
//! | `measured` | what was measured |
//! | `whole` | whether what was read is a whole run, and what it amounts to |
//!
//! Not here: reports for people (`eyas-report`), and what a node spends on its own account.

mod measured;
#[cfg(test)]
mod tests;
mod whole;

pub use measured::{Level, Measured, MeasuredNode, MeasuredTransfers, Spread, TaskMeasured};

use super::*;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::{Action, AttemptReport, Event, Offer};
use eyas_core::location::Location;
use eyas_core::log::EVENTS_FILE;
use eyas_core::types::*;
use eyas_report::lines::{Entry, Lines};
use eyas_report::read::{End, Requests, Tally};
use eyas_text::shown_path;
use measured::Transfer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const READ: &str = "replay the run";

#[derive(Clone, PartialEq, Debug, Default)]
pub struct TraceConfig {
    /// One submission of the log, by the number that `eyas` shows. `None`: all of them.
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
    /// Makers first; "compute times" are indices into `measured.tasks`.
    ordered: Vec<Submission>,
    /// What tasks without a good attempt are taken to run.
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
        let mut lines = Lines::open(&dir).map_err(foreign)?;
        let mut reader = Reader::default();
        while let Some(entry) = lines.next_if(is_wanted).map_err(foreign)? {
            match entry {
                Entry::Header(header) => {
                    reader.eyas_version = header.eyas_version;
                    reader.config = Some(header.config);
                    reader.on_header();
                }
                Entry::In(t, event) => reader.on_event(t, event),
                Entry::Out(t, action) => reader.on_action(t, action),
            }
        }
        reader.finish(&dir, lines.is_torn(), config)
    }

    /// The same tasks again.
    pub fn workload(&self, io: &ProgramIo) -> Result<Workload, Error> {
        io.check()?;
        Ok(self.workload_by(|position, _| {
            let t = &self.measured.tasks[position];
            io.compute_ns(t.run_ns(), t.read_bytes(), t.output_bytes)
        }))
    }

    /// The same tasks with other compute times, in nanoseconds by position and array; asked in order, of tasks that ran.
    pub fn workload_by(&self, mut compute_ns: impl FnMut(usize, &TaskArray) -> u64) -> Workload {
        let mut compute_ns = |task: u64, array: &TaskArray| match self.measured.tasks[task as usize].has_run()
        {
            true => compute_ns(task as usize, array),
            false => self.run_median_ns,
        };
        let submissions: Vec<Submission> = (self.ordered.iter())
            .map(|s| {
                let tasks = 0..s.array.n_tasks;
                let compute = Compute::Each(tasks.map(|i| compute_ns(s.compute.of(i), &s.array)).collect());
                Submission { at: s.at, array: s.array.clone(), compute }
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
        let each = |s: &Submission, i: u32| s.compute.of(i) as usize;
        self.ordered.iter().flat_map(move |s| (0..s.array.n_tasks).map(move |i| (each(s, i), &*s.array, i)))
    }

    /// Of a file that was read or written, in bytes.
    pub fn size_of(&self, location: &str) -> Option<u64> {
        self.sizes.get(location).copied()
    }
}

/// The folder with the log.
fn find_dir(path: &Path) -> Result<PathBuf, Error> {
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

/// Whether a line can matter here; the others, most of all what caches told, are not parsed.
fn is_wanted(text: &[u8]) -> bool {
    let head = &text[..text.len().min(64)];
    let has = |needle: &str| head.windows(needle.len()).any(|w| w == needle.as_bytes());
    !(has(r#""in":{"replicas_changed""#) || has(r#""in":"ticked""#) || has(r#""out":{"drop_replicas""#))
}

struct Recorded {
    base: u64,
    run: RunId,
    at: Timestamp,
    array: Arc<TaskArray>,
}

impl Recorded {
    /// What is known of one of its tasks at first.
    fn submitted(&self) -> TaskMeasured {
        TaskMeasured { submitted: self.at, cpus: self.array.template.cpus, ..TaskMeasured::default() }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    HomeIn,
    Peer,
    HomeOut,
}

struct RunTold {
    name: String,
    opened: Timestamp,
    committed: bool,
    aborted: bool,
}

/// All times as they are in the log.
#[derive(Default)]
struct Reader {
    eyas_version: String,
    config: Option<DispatcherConfig>,
    n_lives: u32,
    arrays: Vec<Recorded>,
    next_task: u64,
    runs: BTreeMap<RunId, RunTold>,
    /// Submissions into runs, and into which.
    into: BTreeMap<RunId, RunId>,
    nodes: Vec<MeasuredNode>,
    /// Executors of this life.
    rows: FxHashMap<ExecutorId, u32>,
    /// Tasks of which something is known beside their submission.
    tasks: FxHashMap<TaskId, TaskMeasured>,
    /// Attempts that were given out and have not ended: where and when.
    open: FxHashMap<(TaskId, AttemptNo), (u32, Timestamp)>,
    sizes: FxHashMap<String, u64>,
    requests: BTreeMap<RunId, Requests>,
    n_attempts: BTreeMap<RunId, u64>,
    transfers: Vec<(RunId, Way, Transfer)>,
}

impl Reader {
    fn on_header(&mut self) {
        self.n_lives += 1;
        self.next_task = 0;
        self.rows.clear();
    }

    fn on_event(&mut self, t: Timestamp, event: Event) {
        match event {
            Event::RunOpened { run, name, into, .. } => {
                self.into.extend(into.map(|whole| (run, whole)));
                let told = RunTold { name, opened: t, committed: false, aborted: false };
                self.runs.entry(run).or_insert(told).aborted = false;
            }
            Event::ArrayAdded { run, array } => {
                let base = self.next_task;
                self.next_task += u64::from(array.n_tasks);
                // A later life tells again what an earlier one had.
                let whole = self.into.get(&run).copied().unwrap_or(run);
                if self.arrays.iter().any(|a| a.base == base && (a.run == run || a.run == whole)) {
                    return;
                }
                let n_before = self.arrays.len();
                self.arrays.retain(|a| a.base + u64::from(a.array.n_tasks) <= base);
                if self.arrays.len() < n_before {
                    // The earlier life's journal did not keep them, so their numbers are given again.
                    self.tasks.retain(|task, _| task.0 < base);
                }
                self.arrays.push(Recorded { base, run, at: t, array });
            }
            Event::TasksNumbered { n_tasks } => self.next_task = self.next_task.max(n_tasks),
            Event::RunCommitted { run } if self.into.contains_key(&run) => {
                // Its tasks are that run's now.
                self.runs.remove(&run);
                let whole = self.into[&run];
                self.arrays.iter_mut().filter(|a| a.run == run).for_each(|a| a.run = whole);
            }
            Event::RunCommitted { run } => {
                self.runs
                    .entry(run)
                    .and_modify(|r| r.committed = true)
                    .or_insert(RunTold { name: String::new(), opened: t, committed: true, aborted: false })
                    .aborted = false
            }
            Event::RunAborted { run } => {
                if let Some(told) = self.runs.get_mut(&run) {
                    told.aborted = true;
                }
            }
            Event::TaskRestored { task, outcome, .. } => self.end_task(t, task, &outcome),
            Event::ExecutorJoined { executor, offer } => self.on_joined(t, executor, &offer),
            Event::ExecutorLost { executor, .. } => self.on_lost(executor),
            Event::AttemptEnded { executor, report } => self.on_attempt_ended(t, executor, &report),
            Event::OutputsHome { executor, task, attempt, result: Ok(()) } => {
                let known = self.rows.contains_key(&executor);
                if let Some(measured) = self.tasks.get(&task).filter(|m| known && m.output_bytes > 0) {
                    let begin_ns = measured.reported.0;
                    let wait_ns = t.since_ns(measured.reported);
                    let transfer = Transfer { begin_ns, wait_ns, bytes: measured.output_bytes };
                    let run = self.find_array(task).map(|a| a.run);
                    self.transfers.extend(run.map(|run| (run, Way::HomeOut, transfer)));
                }
                self.open.remove(&(task, attempt));
            }
            Event::TaskRevived { task } => self.revive(task),
            Event::OutputsHome { .. }
            | Event::ExecutorSilent { .. }
            | Event::ExecutorDraining { .. }
            | Event::ReplicasChanged { .. }
            | Event::CancelRequested { .. }
            | Event::PrefetchFailed { .. }
            | Event::CacheResized { .. }
            | Event::InputMoved { .. }
            | Event::PartsRemoved { .. }
            | Event::HomeUsed { .. }
            | Event::Ticked
            | Event::RunStarted { .. }
            | Event::Recovered
            | Event::RunForgotten { .. }
            | Event::AllPartsEnded { .. }
            | Event::Began { .. }
            | Event::AttemptGivenUp { .. }
            | Event::RunRestored { .. }
            | Event::RunLinked { .. }
            | Event::RunPatterns { .. }
            | Event::MemberConnected { .. }
            | Event::MemberSilent { .. }
            | Event::MemberTold { .. }
            | Event::MemberLoadChanged { .. } => {}
        }
    }

    fn on_action(&mut self, t: Timestamp, action: Action) {
        match action {
            Action::Assign { executor, assignment } => {
                if let Some(&row) = self.rows.get(&executor) {
                    self.open.insert((assignment.task, assignment.attempt), (row, t));
                }
            }
            Action::EndTask { task, outcome } => self.end_task(t, task, &outcome),
            Action::RefuseRun { run, .. } => {
                if let Some(told) = self.runs.get_mut(&run) {
                    told.aborted = true;
                }
            }
            Action::ForgetExecutor { executor } => self.on_lost(executor),
            Action::ReviveTask { task, .. } => self.revive(task),
            Action::RerunTask { .. }
            | Action::CancelAttempt { .. }
            | Action::RecallAttempt { .. }
            | Action::NameObjects { .. }
            | Action::DropReplicas { .. }
            | Action::RemoveParts { .. }
            | Action::ShareHome { .. }
            | Action::RecordGivenUp { .. }
            | Action::ForgetRun { .. }
            | Action::Prefetch { .. }
            | Action::CancelPrefetch { .. }
            | Action::FoundPattern { .. }
            | Action::EndCollective { .. }
            | Action::EndRun { .. }
            | Action::TellMember { .. }
            | Action::SendAway { .. } => {}
        }
    }

    /// It was done, and runs again.
    fn revive(&mut self, task: TaskId) {
        if let Some(measured) = self.tasks.get_mut(&task) {
            measured.end = End::Not;
        }
    }

    fn end_task(&mut self, t: Timestamp, task: TaskId, outcome: &Outcome) {
        let Some(array) = self.find_array(task) else { return };
        let submitted = array.submitted();
        let measured = self.tasks.entry(task).or_insert(submitted);
        let end = match outcome {
            Outcome::Done => End::Done,
            Outcome::Failed(_) => End::Failed,
            Outcome::Cancelled => End::Cancelled,
        };
        if measured.end == End::Not {
            measured.ended = t;
        }
        measured.end = end;
    }

    fn on_joined(&mut self, t: Timestamp, executor: ExecutorId, offer: &Offer) {
        if self.rows.contains_key(&executor) {
            return;
        }
        let row = self.nodes.iter().position(|n| n.name == offer.name);
        let row = row.unwrap_or_else(|| {
            self.nodes.push(MeasuredNode {
                name: offer.name.clone(),
                slots: offer.slots,
                memory_bytes: offer.memory_bytes,
                cache_bytes: offer.cache_bytes,
                held_bytes: offer.held.iter().map(|h| h.size_bytes).sum(),
                joined: t,
                n_losses: 0,
            });
            self.nodes.len() - 1
        });
        self.rows.insert(executor, row as u32);
        // A restarted dispatcher takes over what they still have.
        for id in &offer.attempts {
            self.open.insert(*id, (row as u32, t));
        }
    }

    fn on_lost(&mut self, executor: ExecutorId) {
        if let Some(row) = self.rows.remove(&executor) {
            self.nodes[row as usize].n_losses += 1;
        }
    }

    fn find_array(&self, task: TaskId) -> Option<&Recorded> {
        let at = self.arrays.partition_point(|a| a.base <= task.0).checked_sub(1)?;
        Some(&self.arrays[at]).filter(|a| task.0 - a.base < u64::from(a.array.n_tasks))
    }

    fn on_attempt_ended(&mut self, t: Timestamp, executor: ExecutorId, report: &AttemptReport) {
        let Some(&row) = self.rows.get(&executor) else { return };
        let Some(&(node, assigned)) = self.open.get(&(report.task, report.attempt)) else { return };
        let Some(recorded) = self.find_array(report.task) else { return };
        let (submitted, Recorded { base, run, array, .. }) = (recorded.submitted(), recorded);
        if node != row {
            return;
        }
        let (run, array, i) = (*run, array.clone(), (report.task.0 - base) as u32);
        *self.n_attempts.entry(run).or_default() += 1;
        let mut measured = TaskMeasured {
            assigned,
            received: report.times.received,
            inputs_ready: report.times.inputs_ready,
            started: report.times.started,
            exited: report.times.exited,
            reported: t,
            node,
            output_bytes: report.outputs.iter().map(|o| o.size_bytes).sum(),
            cpu_ns: report.cpu_ns,
            ..self.tasks.get(&report.task).copied().unwrap_or(submitted)
        };
        (measured.local_bytes, measured.peer_bytes, measured.home_bytes) = (0, 0, 0);
        measured.landed_bytes = 0;
        let requests = self.requests.entry(run).or_default();
        for input in &report.inputs {
            let (tally, way) = match input.outcome {
                CacheOutcome::LocalHit => (&mut requests.local_hit, None),
                CacheOutcome::Joined => (&mut requests.joined, None),
                CacheOutcome::InPlace => (&mut requests.in_place, None),
                CacheOutcome::RemoteHit { .. } => (&mut requests.remote_hit, Some(Way::Peer)),
                CacheOutcome::Miss => (&mut requests.miss, Some(Way::HomeIn)),
                CacheOutcome::Direct => (&mut requests.direct, Some(Way::HomeIn)),
            };
            let (bytes, wait_ns) = (input.size_bytes, input.wait_ns);
            *tally = Tally {
                n_requests: tally.n_requests + 1,
                bytes: tally.bytes + bytes,
                wait_ns: tally.wait_ns + wait_ns,
            };
            match way {
                Some(Way::Peer) => {
                    measured.peer_bytes += bytes;
                    measured.peer_wait_ns = measured.peer_wait_ns.max(wait_ns);
                }
                Some(_) => {
                    measured.home_bytes += bytes;
                    measured.home_wait_ns = measured.home_wait_ns.max(wait_ns);
                }
                None => measured.local_bytes += bytes,
            }
            let transfer = Transfer { begin_ns: report.times.received.0, wait_ns, bytes };
            self.transfers.extend(way.map(|way| (run, way, transfer)));
        }
        // An attempt that ended well tells all its inputs, in the order of the template.
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
