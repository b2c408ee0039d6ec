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
//! Not here: reports for people (`eyas-report`), and what a node spends on its own account.

use super::*;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::{Action, AttemptReport, Event, Offer};
use eyas_core::location::Location;
use eyas_core::log::EVENTS_FILE;
use eyas_core::types::*;
use eyas_report::lines::{Entry, Lines};
use eyas_report::read::{End, Requests, Tally};
use eyas_text::shown_path;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::{Path, PathBuf};

const READ: &str = "replay the run";
/// Transfers below this say what a request costs, those from it on how fast bytes come.
const SMALL_BYTES: u64 = 64 << 10;

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

/// What a log says about a run. Times are nanoseconds since its first submission, where not said otherwise.
#[derive(Clone, Debug)]
pub struct Measured {
    pub eyas_version: String,
    /// Placement policy and its options, lease and so on, of the last life.
    pub config: DispatcherConfig,
    /// Dispatcher processes that wrote the log.
    pub n_lives: u32,
    pub n_tasks: u64,
    pub n_done: u64,
    pub n_failed: u64,
    pub n_cancelled: u64,
    /// Attempts that ended, well or not, as far as executors told.
    pub n_attempts: u64,
    /// From the first submission to the last end.
    pub makespan_ns: u64,
    pub nodes: Vec<MeasuredNode>,
    /// Where inputs came from.
    pub requests: Requests,
    /// From home to nodes: misses and direct reads.
    pub home_in: Link,
    /// Between nodes' caches.
    pub peer: Link,
    /// Outputs on their way home, all of one attempt being one transfer.
    pub home_out: Link,
    /// From the dispatcher's decision to the executor's knowing it.
    pub dispatch: Spread,
    /// From the moment when an attempt had its inputs and a slot was free until its program started. Empty where
    /// tasks hold several slots, as the log does not say which.
    pub start: Spread,
    /// From start to exit of the program.
    pub run: Spread,
    /// From the program's exit to the dispatcher's knowing it: hashing and storing outputs, and the message.
    pub report: Spread,
    /// By position in the workload as it was submitted.
    pub tasks: Vec<TaskMeasured>,
}

impl Measured {
    /// Shares of requests answered locally, by a peer and by home, as in `Raicu09`; `None` without requests. What
    /// joined a transfer under way counts as a miss, see `eyas_report::metrics`.
    pub fn hit_ratios(&self) -> Option<(f64, f64, f64)> {
        let r = &self.requests;
        let total = r.total().n_requests;
        let share = |n: u64| n as f64 / total as f64;
        (total > 0).then(|| {
            let local = r.local_hit.n_requests + r.in_place.n_requests;
            let miss = r.joined.n_requests + r.miss.n_requests + r.direct.n_requests;
            (share(local), share(r.remote_hit.n_requests), share(miss))
        })
    }

    /// Slots of all nodes together.
    pub fn n_slots(&self) -> u64 {
        self.nodes.iter().map(|n| u64::from(n.slots)).sum()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredNode {
    pub name: String,
    pub slots: u32,
    pub memory_bytes: u64,
    pub cache_bytes: u64,
    /// What its cache held when it joined first: not 0 means that the run began with warm caches.
    pub held_bytes: u64,
    /// Before the first submission counts as 0.
    pub joined: Timestamp,
    /// How often it was lost or left.
    pub n_losses: u32,
}

/// Transfers of one kind.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Link {
    pub n_transfers: u64,
    pub bytes: u64,
    /// Sum of what each took, from being asked for until it was there, so waiting for other transfers included.
    pub wait_ns: u64,
    /// How long at least one was under way. The log does not say when a transfer began: taken is when its attempt
    /// reached the executor.
    pub busy_ns: u64,
    /// Rates of single transfers of at least 64 KiB, bytes per second: 10th percentile, median, 90th.
    pub each_bytes_per_s: Option<[f64; 3]>,
    /// Median wait of smaller ones: what a request costs beside its bytes.
    pub small_wait_ns: Option<u64>,
    /// By the number of transfers under way, from 1 without gaps: what they got together. Each transfer counts with its
    /// mean rate all the time. A level that grows with the number is limited per transfer, one that does not by
    /// what they share.
    pub levels: Vec<Level>,
}

/// The time during which a certain number of transfers was under way.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Level {
    pub ns: u64,
    /// Of all of them, mean over that time.
    pub bytes_per_s: f64,
}

impl Link {
    /// What all transfers got together while there were any, bytes per second.
    pub fn together_bytes_per_s(&self) -> Option<f64> {
        (self.bytes > 0 && self.busy_ns > 0).then(|| self.bytes as f64 / self.busy_ns as f64 * 1e9)
    }

    /// The most that they got together at any level that lasted for a twentieth of the busy time, bytes per second.
    pub fn plateau_bytes_per_s(&self) -> Option<f64> {
        let lasting = self.levels.iter().filter(|l| l.ns > 0 && l.ns >= self.busy_ns / 20);
        lasting.map(|l| l.bytes_per_s).max_by(f64::total_cmp)
    }

    fn of(mut transfers: Vec<Transfer>) -> Link {
        transfers.sort_unstable_by_key(|t| t.begin_ns);
        let mut link = Link { n_transfers: transfers.len() as u64, ..Link::default() };
        let mut covered_ns = 0;
        let (mut rates, mut small) = (vec![], vec![]);
        for t in &transfers {
            link.bytes += t.bytes;
            link.wait_ns += t.wait_ns;
            let end_ns = t.begin_ns.saturating_add(t.wait_ns);
            link.busy_ns += end_ns.saturating_sub(covered_ns.max(t.begin_ns));
            covered_ns = covered_ns.max(end_ns);
            match t.bytes < SMALL_BYTES {
                true => small.push(t.wait_ns),
                false => rates.push(t.bytes as f64 / t.wait_ns.max(1) as f64 * 1e9),
            }
        }
        rates.sort_unstable_by(f64::total_cmp);
        small.sort_unstable();
        let at = |share: usize| rates[(rates.len() - 1) * share / 100];
        link.each_bytes_per_s = (!rates.is_empty()).then(|| [at(10), at(50), at(90)]);
        link.small_wait_ns = (!small.is_empty()).then(|| small[(small.len() - 1) / 2]);
        link.levels = levels(&transfers);
        link
    }
}

/// `[n - 1]`: while `n` transfers were under way.
fn levels(transfers: &[Transfer]) -> Vec<Level> {
    let lasting = transfers.iter().filter(|t| t.wait_ns > 0);
    let mut turns: Vec<(u64, i32, f64)> = lasting
        .flat_map(|t| {
            let rate = t.bytes as f64 / t.wait_ns as f64;
            [(t.begin_ns, 1, rate), (t.begin_ns.saturating_add(t.wait_ns), -1, -rate)]
        })
        .collect();
    // Ends before beginnings of the same moment.
    turns.sort_by_key(|turn| (turn.0, turn.1));
    let (mut n_now, mut rate_now, mut since_ns) = (0i32, 0.0, 0);
    let mut levels: Vec<(u64, f64)> = vec![];
    for (t_ns, change, rate) in turns {
        let ns = t_ns - since_ns;
        if n_now > 0 && ns > 0 {
            let at = n_now as usize - 1;
            levels.resize(levels.len().max(at + 1), (0, 0.0));
            levels[at].0 += ns;
            levels[at].1 += rate_now * ns as f64;
        }
        n_now += change;
        rate_now = if n_now == 0 { 0.0 } else { rate_now + rate };
        since_ns = t_ns;
    }
    let mean = |(ns, bytes): (u64, f64)| Level { ns, bytes_per_s: bytes / ns.max(1) as f64 * 1e9 };
    levels.into_iter().map(mean).collect()
}

/// How long something took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    pub n: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

impl Spread {
    fn of(mut list: Vec<u64>) -> Spread {
        list.sort_unstable();
        let Some(last) = list.len().checked_sub(1) else { return Spread::default() };
        let sum: u128 = list.iter().map(|ns| u128::from(*ns)).sum();
        Spread {
            n: list.len() as u64,
            mean_ns: (sum / list.len() as u128) as u64,
            p50_ns: list[last / 2],
            p99_ns: list[last * 99 / 100],
        }
    }
}

/// One task. What comes from an attempt is 0 where none ended well.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TaskMeasured {
    pub end: End,
    pub submitted: Timestamp,
    /// Its last state reached, outputs at home.
    pub ended: Timestamp,
    pub assigned: Timestamp,
    pub received: Timestamp,
    pub inputs_ready: Timestamp,
    pub started: Timestamp,
    pub exited: Timestamp,
    /// The dispatcher was told of the program's end.
    pub reported: Timestamp,
    /// Index into [`Measured::nodes`].
    pub node: u32,
    pub cpus: u32,
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
    /// The longest wait for one input of that kind.
    pub peer_wait_ns: u64,
    pub home_wait_ns: u64,
    pub output_bytes: u64,
    /// Of its outputs, those that went home.
    pub landed_bytes: u64,
    pub cpu_ns: u64,
}

impl TaskMeasured {
    /// From start to exit of the program.
    pub fn run_ns(&self) -> u64 {
        self.exited.since_ns(self.started)
    }
    /// Of its inputs, wherever they were.
    pub fn read_bytes(&self) -> u64 {
        self.local_bytes + self.peer_bytes + self.home_bytes
    }
    fn has_run(&self) -> bool {
        self.exited > self.started
    }
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

#[derive(Clone, Copy)]
struct Transfer {
    begin_ns: u64,
    wait_ns: u64,
    bytes: u64,
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
            Action::ReplicateTask { .. }
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

    fn finish(self, dir: &Path, torn: bool, config: &TraceConfig) -> Result<Trace, Error> {
        let log = dir.join(EVENTS_FILE);
        let log = shown_path(&log);
        let kept = |r: &RunTold| r.committed && !r.aborted;
        let known: Vec<RunId> = self.runs.iter().filter(|(_, r)| kept(r)).map(|(id, _)| *id).collect();
        let chosen: Vec<RunId> = match config.run {
            None => known.clone(),
            Some(run) => known.iter().copied().filter(|id| id.0 == run).collect(),
        };
        if chosen.is_empty() {
            let context = match (config.run, known.as_slice()) {
                (None, _) | (_, []) if torn => {
                    format!("{log} breaks off before any submission is complete")
                }
                (None, _) | (_, []) => format!("no run was submitted completely in {log}"),
                (Some(run), known) => {
                    let list: Vec<String> = known.iter().map(|id| id.to_string()).collect();
                    format!("{log} has no run {run}; it has {}", list.join(", "))
                }
            };
            return Err(Error::new(ErrorKind::Incomplete, READ, context));
        }
        let chosen_set: std::collections::BTreeSet<RunId> = chosen.iter().copied().collect();
        let arrays: Vec<&Recorded> = self.arrays.iter().filter(|a| chosen_set.contains(&a.run)).collect();
        let zero = chosen.iter().map(|id| self.runs[id].opened).min().unwrap_or_default();

        let (mut tasks, mut submissions) = (vec![], vec![]);
        for a in arrays {
            let n = u64::from(a.array.n_tasks);
            let positions = (tasks.len() as u64..tasks.len() as u64 + n).collect();
            let numbers = (a.base..a.base + n).map(TaskId);
            tasks.extend(numbers.map(|task| self.tasks.get(&task).copied().unwrap_or(a.submitted())));
            submissions.push(Submission {
                at: Timestamp(a.at.since_ns(zero)),
                array: a.array.clone(),
                compute: Compute::Each(positions),
            });
        }
        let count = |end: End| tasks.iter().filter(|t| t.end == end).count() as u64;
        let (n_tasks, n_not) = (tasks.len() as u64, count(End::Not));
        let (n_done, n_failed, n_cancelled) = (count(End::Done), count(End::Failed), count(End::Cancelled));
        if n_tasks == 0 {
            let context = format!("the run in {log} has no tasks");
            return Err(Error::new(ErrorKind::Incomplete, READ, context));
        }
        if n_not > 0 {
            let how = if torn { "it breaks off in the middle of a line" } else { "it stops" };
            let context =
                format!("{log} is not of a whole run: {how}, and {n_not} of {n_tasks} tasks had not ended",);
            return Err(Error::new(ErrorKind::Incomplete, READ, context)
                .hint("wait for the run to end, or copy the whole folder"));
        }
        if n_done < n_tasks && !config.allow_failed {
            let context = format!(
                "{n_failed} of {n_tasks} tasks in {log} failed and {n_cancelled} were cancelled, so it does not say how long the work takes",
            );
            return Err(Error::new(ErrorKind::Failed, READ, context)
                .hint("run it again until all of it is done, or take medians for what is missing"));
        }
        let mut runs_ns: Vec<u64> = tasks.iter().filter(|t| t.has_run()).map(TaskMeasured::run_ns).collect();
        runs_ns.sort_unstable();
        if runs_ns.is_empty() {
            let context = format!("no program in {log} has a start and an end");
            return Err(Error::new(ErrorKind::Failed, READ, context));
        }
        let run_median_ns = runs_ns[(runs_ns.len() - 1) / 2];
        for t in &mut tasks {
            for time in [
                &mut t.submitted,
                &mut t.ended,
                &mut t.assigned,
                &mut t.received,
                &mut t.inputs_ready,
                &mut t.started,
                &mut t.exited,
                &mut t.reported,
            ] {
                *time = Timestamp(time.since_ns(zero));
            }
        }

        let mut sizes = self.sizes;
        let read_bytes = complete_sizes(&submissions, &mut sizes, config.allow_failed);
        let ordered = links::in_order(submissions, &Sizes::Each(sizes.clone())).map_err(|e| Error {
            context: format!("{log}: {}", e.context),
            operation: READ,
            ..e
        })?;

        let link = |way: Way| {
            let mine = |(run, w, _): &&(RunId, Way, Transfer)| *w == way && chosen_set.contains(run);
            Link::of(self.transfers.iter().filter(mine).map(|(.., transfer)| *transfer).collect())
        };
        let ran = || tasks.iter().filter(|t| t.has_run());
        let mut requests = Requests::default();
        chosen.iter().filter_map(|id| self.requests.get(id)).for_each(|r| requests.add(r));
        let mut nodes = self.nodes;
        nodes.iter_mut().for_each(|n| n.joined = Timestamp(n.joined.since_ns(zero)));
        let measured = Measured {
            eyas_version: self.eyas_version,
            config: self.config.expect("a log begins with its header"),
            n_lives: self.n_lives,
            n_tasks,
            n_done,
            n_failed,
            n_cancelled,
            n_attempts: chosen.iter().filter_map(|id| self.n_attempts.get(id)).sum(),
            makespan_ns: tasks.iter().map(|t| t.ended.0).max().unwrap_or(0),
            home_in: link(Way::HomeIn),
            peer: link(Way::Peer),
            home_out: link(Way::HomeOut),
            dispatch: Spread::of(ran().map(|t| t.received.since_ns(t.assigned)).collect()),
            start: Spread::of(starts(&tasks, &nodes)),
            run: Spread::of(runs_ns),
            report: Spread::of(ran().map(|t| t.reported.since_ns(t.exited)).collect()),
            requests,
            nodes,
            tasks,
        };
        let name = match chosen.as_slice() {
            [one] if !self.runs[one].name.is_empty() => self.runs[one].name.clone(),
            _ => dir.display().to_string(),
        };
        Ok(Trace { name, measured, sizes, read_bytes, ordered, run_median_ns })
    }
}

/// Bytes that all tasks read. With `fill`, files that nobody measured get the median size, or one byte.
fn complete_sizes(submissions: &[Submission], sizes: &mut FxHashMap<String, u64>, fill: bool) -> u64 {
    let mut known: Vec<u64> = sizes.values().copied().collect();
    known.sort_unstable();
    let median = known.get(known.len() / 2).copied().unwrap_or(1);
    let mut read_bytes = 0u64;
    for s in submissions {
        for i in 0..s.array.n_tasks {
            for (_, pattern) in &s.array.template.inputs {
                let location = s.array.fill(pattern, i);
                let bytes = match sizes.get(&location) {
                    Some(bytes) => *bytes,
                    None if fill => *sizes.entry(location).or_insert(median),
                    None => 0,
                };
                read_bytes = read_bytes.saturating_add(bytes);
            }
            for (_, pattern) in s.array.template.outputs.iter().filter(|_| fill) {
                sizes.entry(s.array.fill(pattern, i)).or_insert(median);
            }
        }
    }
    read_bytes
}

/// From the moment when inputs and a slot were there to the start of the program, for each task. The slot is the
/// one of its node that was free first.
fn starts(tasks: &[TaskMeasured], nodes: &[MeasuredNode]) -> Vec<u64> {
    if tasks.iter().any(|t| t.cpus != 1) {
        return vec![];
    }
    let mut by_start: Vec<&TaskMeasured> = tasks.iter().filter(|t| t.has_run()).collect();
    by_start.sort_unstable_by_key(|t| t.started);
    let free = |n: &MeasuredNode| (0..n.slots).map(|_| std::cmp::Reverse(Timestamp(0))).collect();
    let mut slots: Vec<BinaryHeap<std::cmp::Reverse<Timestamp>>> = nodes.iter().map(free).collect();
    let mut gap = |t: &TaskMeasured| {
        let slots = slots.get_mut(t.node as usize)?;
        let free = slots.pop()?.0;
        slots.push(std::cmp::Reverse(t.exited));
        Some(t.started.since_ns(free.max(t.inputs_ready)))
    };
    by_start.into_iter().filter_map(&mut gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_core::array::{Part, Piece};
    use eyas_core::event::*;
    use eyas_core::log::{Header, LOG_VERSION, Line, What};

    const ZERO_NS: u64 = 1_795_293_000 * SECOND_NS;

    /// A log that a dispatcher could have written, with times in milliseconds since its start.
    #[derive(Default)]
    struct Log(Vec<u8>);

    impl Log {
        fn life() -> Log {
            let mut log = Log::default();
            log.header();
            log
        }
        fn header(&mut self) {
            self.push(&Header {
                eyas_event_log: LOG_VERSION,
                eyas_version: "0.1.0".into(),
                t: Timestamp(ZERO_NS),
                config: DispatcherConfig::default(),
                cluster: "test".into(),
            });
        }
        fn push(&mut self, line: &impl serde::Serialize) {
            serde_json::to_writer(&mut self.0, line).unwrap();
            self.0.push(b'\n');
        }
        fn add(&mut self, ms: u64, event: Event) {
            self.push(&Line { t: at(ms), what: What::In(event) });
        }
        fn out(&mut self, ms: u64, action: Action) {
            self.push(&Line { t: at(ms), what: What::Out(action) });
        }
        fn node(&mut self, ms: u64, n: u32) {
            let offer = Offer {
                name: format!("node-{n}"),
                slots: 1,
                memory_bytes: 1 << 30,
                cache_bytes: 1 << 20,
                held: vec![],
                attempts: vec![],
                owner: None,
            };
            self.add(ms, Event::ExecutorJoined { executor: ExecutorId(n), offer });
        }
        /// `n` tasks that read `sky/0`, `sky/1`, ... and write `cut/0`, ...
        fn run(&mut self, ms: u64, run: u32, n_tasks: u32) {
            let run = RunId(run);
            let (literal, index) = (|s: &str| Piece::Literal(s.into()), Piece::Index);
            let mut column = eyas_core::array::Column::default();
            (0..n_tasks).for_each(|i| assert!(column.push(&format!("sky/{i}"))));
            let input = Pattern(vec![Piece::Column { column: 0, part: Part::Whole }]);
            let output = Pattern(vec![literal(&format!("cut{run}/")), index.clone()]);
            let array = TaskArray {
                n_tasks,
                first_index: 0,
                template: template(Pattern(vec![literal("t"), index]), "cut", vec![input], vec![output]),
                columns: vec![column],
            };
            self.add(ms, Event::RunOpened { run, name: format!("run {run}"), keep: false, into: None });
            self.add(ms, Event::ArrayAdded { run, array: Arc::new(array) });
            self.add(ms, Event::RunCommitted { run });
        }
        /// Given at `ms`, inputs there after 100 ms, runs for 50 ms, its output of 500 bytes at home 10 ms later.
        fn task(&mut self, ms: u64, task: u64, node: u32, outcome: CacheOutcome, end: Outcome) {
            let (task, executor, attempt, object) =
                (TaskId(task), ExecutorId(node), AttemptNo(1), ObjectId(0));
            let why = Why {
                policy: "max-compute-util".into(),
                n_hits: 0,
                n_inputs: 1,
                n_slots_active: 0,
                n_slots: 1,
                n_queued: 0,
                ahead: false,
                reason: None,
            };
            let assignment = Assignment {
                task,
                attempt,
                run: RunId(1),
                cpus: 1,
                inputs: vec![AssignedInput {
                    object,
                    known: None,
                    sources: vec![],
                    check_home: true,
                    direct: false,
                    watched: false,
                    stays: false,
                }],
                outputs: vec![],
                staying: vec![],
                private_inputs: false,
                repeated: false,
                alone: false,
                why,
            };
            self.out(ms, Action::Assign { executor, assignment: assignment.into() });
            let times = Times {
                received: at(ms + 2),
                inputs_ready: at(ms + 102),
                started: at(ms + 105),
                exited: at(ms + 155),
            };
            let wait_ns = if outcome == CacheOutcome::LocalHit { 0 } else { 100 * MS_NS };
            let report = AttemptReport {
                task,
                attempt,
                outcome: end.clone(),
                times,
                inputs: vec![InputReport { object, outcome, size_bytes: 100_000, wait_ns }],
                outputs: vec![OutputReport { output: 0, digest: Digest::default(), size_bytes: 500 }],
                cpu_ns: 40 * MS_NS,
                rss_bytes_max: 0,
            };
            self.add(ms + 156, Event::AttemptEnded { executor, report: report.into() });
            if end == Outcome::Done {
                self.add(ms + 166, Event::OutputsHome { executor, task, attempt, result: Ok(()) });
            }
            self.out(ms + 166, Action::EndTask { task, outcome: end });
        }
        fn read(&self, config: &TraceConfig) -> Result<Trace, Error> {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(EVENTS_FILE), &self.0).unwrap();
            Trace::read(dir.path(), config)
        }
        fn refused(&self, expect: &str) -> ErrorKind {
            let error = self.read(&TraceConfig::default()).err().expect("is refused");
            assert!(error.to_string().contains(expect), "{error}");
            error.kind
        }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp(ZERO_NS + ms * MS_NS)
    }

    fn failed() -> Outcome {
        Outcome::Failed(Failure { kind: FailureKind::ExitCode(1), message: "exit status 1".into() })
    }

    /// Three tasks on two nodes: from home, from a peer, from the cache.
    fn good() -> Log {
        let mut log = Log::life();
        log.node(0, 1);
        log.node(5, 2);
        log.run(1000, 1, 3);
        log.task(1010, 0, 1, CacheOutcome::Miss, Outcome::Done);
        log.task(1010, 1, 2, CacheOutcome::RemoteHit { from: ExecutorId(1) }, Outcome::Done);
        log.task(1165, 2, 1, CacheOutcome::LocalHit, Outcome::Done);
        log
    }

    #[test]
    fn a_run_is_measured() {
        let m = good().read(&TraceConfig::default()).unwrap().measured;
        assert_eq!((m.n_tasks, m.n_done, m.n_attempts, m.n_lives), (3, 3, 3, 1));
        assert_eq!(m.makespan_ns, 331 * MS_NS, "1000 to 1165 + 166");
        assert_eq!((m.nodes.len(), m.n_slots(), m.nodes[0].cache_bytes), (2, 2, 1 << 20));
        let third = 1.0 / 3.0;
        assert_eq!(m.hit_ratios(), Some((third, third, third)));
        assert_eq!((m.home_in.n_transfers, m.home_in.bytes, m.home_in.busy_ns), (1, 100_000, 100 * MS_NS));
        assert_eq!(m.home_in.together_bytes_per_s(), Some(1e6));
        assert_eq!(m.peer.each_bytes_per_s, Some([1e6; 3]));
        assert_eq!((m.home_out.bytes, m.home_out.small_wait_ns), (1500, Some(10 * MS_NS)));
        assert_eq!((m.dispatch.p50_ns, m.report.p50_ns, m.run.p50_ns), (2 * MS_NS, MS_NS, 50 * MS_NS));
        assert_eq!((m.start.n, m.start.p50_ns), (3, 3 * MS_NS));
        assert_eq!(m.tasks[1].assigned, Timestamp(10 * MS_NS));
    }

    #[test]
    fn what_it_says_is_what_the_report_says() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(EVENTS_FILE), &good().0).unwrap();
        let m = Trace::read(dir.path(), &TraceConfig::default()).unwrap().measured;
        let report = eyas_report::metrics(&eyas_report::read(dir.path()).unwrap());
        let t = &report.totals;
        assert_eq!((m.makespan_ns, m.requests), (t.makespan_ns, report.requests));
        let ratios = (t.hit_ratio_local.unwrap(), t.hit_ratio_remote.unwrap(), t.miss_ratio.unwrap());
        assert_eq!(m.hit_ratios(), Some(ratios));
        assert_eq!(
            (m.home_in.bytes, m.peer.bytes, m.home_out.bytes),
            (t.home_in_bytes, t.cache_remote_bytes, t.home_out_bytes)
        );
    }

    #[test]
    fn what_is_shared_shows_in_the_levels_of_a_link() {
        let transfer = |begin_ns, wait_ns, bytes| Transfer { begin_ns, wait_ns, bytes };
        // 1 byte/ns alone; the two that overlap for 100 ns get half of it each.
        let link = Link::of(vec![transfer(0, 100, 100), transfer(200, 100, 50), transfer(200, 100, 50)]);
        assert_eq!(link.busy_ns, 200);
        let levels: Vec<(u64, f64)> = link.levels.iter().map(|l| (l.ns, l.bytes_per_s)).collect();
        assert_eq!(levels, [(100, 1e9), (100, 1e9)]);
        assert_eq!(link.plateau_bytes_per_s(), Some(1e9));
        assert_eq!(Link::of(vec![]), Link::default());
    }

    #[test]
    fn it_is_a_workload_again_as_often_as_wanted() {
        let trace = good().read(&TraceConfig::default()).unwrap();
        for (io, expect_ms) in [
            (ProgramIo::default(), 50),
            (ProgramIo { read_bytes_per_s: Some(1e7), write_bytes_per_s: Some(5e4) }, 30),
        ] {
            let workload = trace.workload(&io).unwrap();
            assert_eq!(
                (workload.name.as_str(), workload.n_tasks, workload.read_bytes),
                ("run 1", 3, 300_000)
            );
            assert_eq!((workload.sizes.of("sky/2"), workload.sizes.of("cut1/2")), (Some(100_000), Some(500)));
            let list: Vec<_> = workload.submissions.collect();
            assert_eq!((list.len(), list[0].at, list[0].array.n_tasks), (1, Timestamp(0), 3));
            assert_eq!(list[0].compute, Compute::Each(vec![expect_ms * MS_NS; 3]));
        }
        let zero = ProgramIo { read_bytes_per_s: Some(0.0), ..ProgramIo::default() };
        assert!(trace.workload(&zero).err().unwrap().to_string().contains("0 bytes per second"));
    }

    #[test]
    fn one_run_of_several_can_be_chosen() {
        let mut log = good();
        log.run(2000, 2, 1);
        log.task(2001, 3, 1, CacheOutcome::LocalHit, Outcome::Done);
        let read = |run| log.read(&TraceConfig { run, ..TraceConfig::default() });
        assert_eq!(read(None).unwrap().measured.n_tasks, 4);
        let second = read(Some(2)).unwrap();
        assert_eq!((second.name.as_str(), second.measured.n_tasks), ("run 2", 1));
        assert_eq!(second.measured.makespan_ns, 167 * MS_NS);
        assert_eq!(second.measured.requests.total().n_requests, 1);
        assert!(read(Some(7)).err().unwrap().to_string().contains("has no run 7; it has 1, 2"));
    }

    #[test]
    fn a_second_life_tells_the_first_again_and_is_not_counted_twice() {
        let mut log = Log::life();
        log.node(0, 1);
        log.run(1000, 1, 2);
        log.task(1010, 0, 1, CacheOutcome::Miss, Outcome::Done);
        log.0.extend_from_slice(b"{\"t\":17952"); // killed in the middle of a line
        log.header();
        log.run(3000, 1, 2);
        log.add(3000, Event::TaskRestored { task: TaskId(0), outcome: Outcome::Done, outputs: vec![] });
        log.node(3001, 1);
        log.task(3010, 1, 1, CacheOutcome::LocalHit, Outcome::Done);
        let trace = log.read(&TraceConfig::default()).unwrap();
        let m = &trace.measured;
        assert_eq!((m.n_lives, m.n_tasks, m.n_done, m.nodes.len()), (2, 2, 2, 1));
        assert_eq!(m.makespan_ns, (3010 + 166 - 1000) * MS_NS);
        assert_eq!(m.tasks[0].ended, Timestamp(176 * MS_NS));
    }

    #[test]
    fn foreign_truncated_and_failed_runs_are_refused_in_a_sentence() {
        let foreign = Log(b"time,task\n1,2\n".to_vec());
        assert_eq!(foreign.refused("does not begin with the header of an event log"), ErrorKind::Foreign);
        assert_eq!(Log::default().refused("is empty"), ErrorKind::Foreign);
        assert_eq!(Log::life().refused("no run was submitted completely"), ErrorKind::Incomplete);
        let mut newer = Log::life();
        let text = String::from_utf8(std::mem::take(&mut newer.0)).unwrap();
        newer.0 = text.replace(r#"event_log":1"#, r#"event_log":9"#).into_bytes();
        assert_eq!(newer.refused("version 9"), ErrorKind::Foreign);

        let mut torn = good();
        torn.0.truncate(torn.0.len() - 300);
        assert_eq!(torn.refused("1 of 3 tasks had not ended"), ErrorKind::Incomplete);

        let mut bad = good();
        bad.run(2000, 2, 2);
        bad.task(2001, 3, 1, CacheOutcome::LocalHit, failed());
        bad.task(2301, 4, 1, CacheOutcome::LocalHit, Outcome::Done);
        assert_eq!(bad.refused("1 of 5 tasks"), ErrorKind::Failed);
        let trace = bad.read(&TraceConfig { allow_failed: true, ..TraceConfig::default() }).unwrap();
        assert_eq!((trace.measured.n_failed, trace.measured.n_done), (1, 4));
        let workload = trace.workload(&ProgramIo::default()).unwrap();
        let last = workload.submissions.last().unwrap();
        assert_eq!(last.compute, Compute::Each(vec![50 * MS_NS; 2]), "the median for the one that failed");

        let nowhere = Trace::read(Path::new("/nowhere"), &TraceConfig::default()).err().unwrap();
        assert!(nowhere.to_string().contains("`/nowhere` does not exist"), "{nowhere}");
        let empty = tempfile::tempdir().unwrap();
        let none = Trace::read(empty.path(), &TraceConfig::default()).err().unwrap();
        assert!(none.to_string().contains("no event log"), "{none}");
    }
}
