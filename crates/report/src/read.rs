//! From an event log to compact records: what the metrics need, and no more.
//!
//! The reader follows the life of each attempt as the dispatcher does: an attempt is open from its
//! `assign` until its end is told, its executor is lost or comes back without it, or the task ends.
//! Words of attempts that are not open any more are ignored here as they were there.
//!
//! A log may hold several lives of one dispatcher. Task numbers mean the same in all of them, executor and
//! object numbers do not; a later life begins by telling the submissions and ends that its journal kept,
//! which must not be counted twice. An end that the journal did not keep has not happened.
//!
//! Memory: about 150 bytes per attempt, 16 per ended task, and the arrays as folded as they were logged.

use crate::error::Error;
use crate::lines::{Entry, Lines};
use eyas_core::array::TaskArray;
use eyas_core::collective::CollectiveRecord;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::{Action, AttemptReport, Event, Offer};
use eyas_core::pattern::Evidence;
use eyas_core::types::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Failures whose messages are kept; all are counted.
const FAILURES_KEPT: usize = 10_000;

/// What a log says.
#[derive(Debug)]
pub struct RunLog {
    pub lives: Vec<Life>,
    /// The log ends in the middle of a line.
    pub torn: bool,
    pub runs: BTreeMap<RunId, RunRecord>,
    pub executors: Vec<ExecutorRecord>,
    /// In the order in which they were assigned.
    pub attempts: Vec<AttemptRecord>,
    /// At most the first 10,000; [`RunLog::end`] knows all.
    pub failures: Vec<FailureRecord>,
    /// Patterns as they were found, with the run.
    pub patterns: Vec<(RunId, Evidence)>,
    /// Collectives that ended, in that order.
    pub collectives: Vec<CollectiveRecord>,
    /// What attempts asked for, by run and by index into `executors`.
    pub requests: BTreeMap<(RunId, usize), Requests>,
    arrays: Vec<ArrayRecord>,
    ends: FxHashMap<TaskId, TaskEnd>,
}

/// One dispatcher process.
#[derive(Clone, Debug)]
pub struct Life {
    pub eyas_version: String,
    pub cluster: String,
    pub config: DispatcherConfig,
    pub began: Timestamp,
    /// Time of its last line.
    pub last: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    pub name: String,
    pub opened: Timestamp,
    pub committed: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub n_tasks: u64,
    /// The submission broke off or was refused; none of its tasks exist.
    pub aborted: bool,
}

#[derive(Clone, Debug)]
struct ArrayRecord {
    base: u64,
    run: RunId,
    submitted: Timestamp,
    array: Arc<TaskArray>,
}

/// Tasks of one array.
#[derive(Clone, Copy, Debug)]
pub struct SubmittedArray {
    pub first: TaskId,
    pub n_tasks: u32,
    pub run: RunId,
    /// When the dispatcher first received them.
    pub submitted: Timestamp,
}

#[derive(Clone, Debug)]
pub struct ExecutorRecord {
    pub name: String,
    pub slots: u32,
    pub cache_bytes: u64,
    /// When it was there; the last one is open while it still is.
    pub present: Vec<(Timestamp, Option<Timestamp>)>,
    /// Of that: when its connection was broken. Most that are silent have ended and are only given up later.
    pub silent: Vec<(Timestamp, Option<Timestamp>)>,
    /// How often it was lost or left.
    pub n_losses: u32,
    /// Life and number in that life.
    id: (usize, ExecutorId),
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Not, as far as the log goes.
    Open,
    Done,
    Failed,
    Cancelled,
    /// Its executor was lost, or came back without it.
    Lost,
}

#[derive(Clone, Debug)]
pub struct AttemptRecord {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub run: RunId,
    /// Index into [`RunLog::executors`].
    pub executor: u32,
    pub cpus: u32,
    pub how: How,
    /// The program ended well; outputs are on their way home.
    landing: bool,
    pub assigned: Timestamp,
    /// Zero where it did not come to that, as in [`eyas_core::event::Times`].
    pub received: Timestamp,
    pub inputs_ready: Timestamp,
    pub started: Timestamp,
    pub exited: Timestamp,
    /// When nobody had it any more.
    pub over: Timestamp,
    /// Read from this node's disk: local hits, joined requests and inputs read in place.
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
    /// The longest wait for one input of that kind.
    pub peer_wait_ns: u64,
    pub home_wait_ns: u64,
    pub output_bytes: u64,
    /// Of these, what stayed on the nodes and was not sent home.
    pub staying_bytes: u64,
    pub cpu_ns: u64,
    pub rss_bytes_max: u64,
}

impl AttemptRecord {
    /// Bytes of all inputs.
    pub fn input_bytes(&self) -> u64 {
        self.local_bytes.saturating_add(self.peer_bytes).saturating_add(self.home_bytes)
    }
    /// Bytes of outputs that went home.
    pub fn landed_bytes(&self) -> u64 {
        self.output_bytes.saturating_sub(self.staying_bytes)
    }
    /// From start to exit of the program.
    pub fn run_ns(&self) -> u64 {
        self.exited.since_ns(self.started)
    }
}

#[derive(Clone, Debug)]
pub struct FailureRecord {
    pub task: TaskId,
    pub t: Timestamp,
    pub failure: Failure,
}

/// Requests for inputs by where their bytes came from, one each. From [`CacheOutcome`] and from nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Requests {
    pub local_hit: Tally,
    pub remote_hit: Tally,
    pub joined: Tally,
    pub miss: Tally,
    pub direct: Tally,
    pub in_place: Tally,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Tally {
    pub n_requests: u64,
    pub bytes: u64,
    /// Sum of the waits.
    pub wait_ns: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        // A damaged log may say anything.
        self.n_requests = self.n_requests.saturating_add(other.n_requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
    }
}

impl Requests {
    /// With the names that people see.
    pub fn by_name(&self) -> [(&'static str, Tally); 6] {
        [
            ("local hit", self.local_hit),
            ("in place", self.in_place),
            ("joined", self.joined),
            ("remote hit", self.remote_hit),
            ("miss", self.miss),
            ("direct", self.direct),
        ]
    }
    pub fn total(&self) -> Tally {
        let mut sum = Tally::default();
        self.by_name().iter().for_each(|(_, tally)| sum.add(*tally));
        sum
    }
    pub fn add(&mut self, other: &Requests) {
        self.local_hit.add(other.local_hit);
        self.remote_hit.add(other.remote_hit);
        self.joined.add(other.joined);
        self.miss.add(other.miss);
        self.direct.add(other.direct);
        self.in_place.add(other.in_place);
    }
    fn of(&mut self, outcome: CacheOutcome) -> &mut Tally {
        match outcome {
            CacheOutcome::LocalHit => &mut self.local_hit,
            CacheOutcome::RemoteHit { .. } => &mut self.remote_hit,
            CacheOutcome::Joined => &mut self.joined,
            CacheOutcome::Miss => &mut self.miss,
            CacheOutcome::Direct => &mut self.direct,
            CacheOutcome::InPlace => &mut self.in_place,
        }
    }
}

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum End {
    #[default]
    Not,
    Done,
    Failed,
    Cancelled,
}

impl End {
    fn of(outcome: &Outcome) -> End {
        match outcome {
            Outcome::Done => End::Done,
            Outcome::Failed(_) => End::Failed,
            Outcome::Cancelled => End::Cancelled,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct TaskEnd {
    t: Timestamp,
    end: End,
    /// The life that last said so.
    life: u16,
}

impl RunLog {
    /// How and when a task ended.
    pub fn end(&self, task: TaskId) -> (End, Timestamp) {
        self.ends.get(&task).map_or((End::Not, Timestamp(0)), |e| (e.end, e.t))
    }

    /// The user's own name for a task; its number where the log does not say.
    pub fn user_id(&self, task: TaskId) -> String {
        match self.array_of(task) {
            Some(a) => a.array.fill(&a.array.template.id, (task.0 - a.base) as u32),
            None => format!("#{task}"),
        }
    }

    /// When the dispatcher first received a task.
    pub fn submitted(&self, task: TaskId) -> Timestamp {
        self.array_of(task).map_or(Timestamp(0), |a| a.submitted)
    }

    /// All submissions of committed runs, in the order of their tasks.
    pub fn submissions(&self) -> impl Iterator<Item = SubmittedArray> {
        let of_committed =
            |a: &&ArrayRecord| self.runs.get(&a.run).is_some_and(|r| r.committed.is_some() && !r.aborted);
        self.arrays.iter().filter(of_committed).map(|a| SubmittedArray {
            first: TaskId(a.base),
            n_tasks: a.array.n_tasks,
            run: a.run,
            submitted: a.submitted,
        })
    }

    /// The arrays of `run`, those added to it among them, with the number of their first task, ascending.
    pub fn arrays_of(&self, run: RunId) -> impl Iterator<Item = (u64, &TaskArray)> {
        self.arrays.iter().filter(move |a| a.run == run).map(|a| (a.base, &*a.array))
    }

    /// The run that was submitted last.
    pub fn newest_run(&self) -> Option<RunId> {
        let is_run = |r: &RunRecord| r.committed.is_some() && !r.aborted;
        self.runs.iter().rev().find(|(_, r)| is_run(r)).map(|(run, _)| *run)
    }

    /// The array that a task is of.
    pub fn array_at(&self, task: TaskId) -> Option<&TaskArray> {
        self.array_of(task).map(|a| &*a.array)
    }

    fn array_of(&self, task: TaskId) -> Option<&ArrayRecord> {
        find_array(&self.arrays, task)
    }

    /// Takes the log of another dispatcher of the same group in, see [`crate::group`].
    pub(crate) fn join(&mut self, other: RunLog) {
        let ends = |arrays: &[ArrayRecord]| arrays.last().map_or(0, |a| a.base + u64::from(a.array.n_tasks));
        let first_task = ends(&self.arrays);
        let (first_life, first_row) = (self.lives.len(), self.executors.len());
        let task = |task: TaskId| TaskId(task.0 + first_task);
        self.lives.extend(other.lives);
        self.torn |= other.torn;
        for (id, part) in other.runs {
            let run = self.runs.entry(id).or_insert_with(|| RunRecord { n_tasks: 0, ..part.clone() });
            run.n_tasks += part.n_tasks;
            run.opened = run.opened.min(part.opened);
            run.committed = run.committed.into_iter().chain(part.committed).min();
            // It has ended when all its parts have.
            run.ended = run.ended.zip(part.ended).map(|(a, b)| a.max(b));
        }
        self.executors.extend(other.executors.into_iter().map(|e| {
            let id = (e.id.0 + first_life, e.id.1);
            ExecutorRecord { id, ..e }
        }));
        self.attempts.extend(other.attempts.into_iter().map(|a| {
            let executor = a.executor + first_row as u32;
            AttemptRecord { task: task(a.task), executor, ..a }
        }));
        self.attempts.sort_by_key(|a| a.assigned);
        self.failures.extend(other.failures.into_iter().map(|f| FailureRecord { task: task(f.task), ..f }));
        self.failures.sort_by_key(|f| f.t);
        self.failures.truncate(FAILURES_KEPT);
        self.patterns.extend(other.patterns);
        self.collectives.extend(other.collectives);
        self.collectives.sort_by_key(|c| c.began);
        self.requests.extend(other.requests.into_iter().map(|((run, row), r)| ((run, row + first_row), r)));
        let moved = |a: ArrayRecord| ArrayRecord { base: a.base + first_task, ..a };
        self.arrays.extend(other.arrays.into_iter().map(moved));
        self.ends.extend(other.ends.into_iter().map(|(ended, end)| (task(ended), end)));
    }

    /// How many dispatchers the logs are of, and how many there were.
    pub fn n_dispatchers(&self) -> (u32, u32) {
        let members: BTreeSet<u32> =
            self.lives.iter().map(|l| l.config.group.map_or(0, |group| group.me.0)).collect();
        let all = self.lives.iter().filter_map(|l| l.config.group).map(|group| group.n_members).max();
        (members.len() as u32, all.unwrap_or(1))
    }

    /// Time of the last line.
    pub fn last(&self) -> Timestamp {
        self.lives.iter().map(|l| l.last).max().unwrap_or_default()
    }
}

/// A sum that a damaged log cannot make too large.
pub(crate) fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

fn find_array(arrays: &[ArrayRecord], task: TaskId) -> Option<&ArrayRecord> {
    let at = arrays.partition_point(|a| a.base <= task.0).checked_sub(1)?;
    Some(&arrays[at]).filter(|a| task.0 - a.base < u64::from(a.array.n_tasks))
}

/// Reads the event log in the dispatcher's directory `dir`.
pub fn read(dir: &Path) -> Result<RunLog, Error> {
    let mut lines = Lines::open(dir)?;
    let mut reader = Reader::default();
    while let Some(entry) = lines.next_entry()? {
        match entry {
            Entry::Header(header) => reader.on_header(Life {
                eyas_version: header.eyas_version,
                cluster: header.cluster,
                config: header.config,
                began: header.t,
                last: header.t,
            }),
            Entry::In(t, event) => reader.on_event(t, event),
            Entry::Out(t, action) => reader.on_action(t, action),
        }
    }
    Ok(reader.finish(lines.is_torn()))
}

#[derive(Default)]
struct Reader {
    lives: Vec<Life>,
    /// Submissions into runs, and into which.
    into: BTreeMap<RunId, RunId>,
    runs: BTreeMap<RunId, RunRecord>,
    executors: Vec<ExecutorRecord>,
    attempts: Vec<AttemptRecord>,
    failures: Vec<FailureRecord>,
    patterns: Vec<(RunId, Evidence)>,
    collectives: Vec<CollectiveRecord>,
    requests: BTreeMap<(RunId, usize), Requests>,
    arrays: Vec<ArrayRecord>,
    ends: FxHashMap<TaskId, TaskEnd>,
    /// Executors of this life.
    rows: FxHashMap<ExecutorId, usize>,
    /// The attempt that a task has now.
    open: FxHashMap<TaskId, usize>,
    /// Executors that were there when the last life ended and have not come back yet.
    away: BTreeSet<usize>,
    /// Arrays that an earlier life had and this one has not told yet.
    earlier: Vec<ArrayRecord>,
    next_task: u64,
    /// Tasks of the life that had most.
    n_tasks_most: u64,
    /// When the life before this one fell silent.
    before: Timestamp,
}

impl Reader {
    fn life(&self) -> usize {
        self.lives.len() - 1
    }

    fn on_header(&mut self, life: Life) {
        self.keep_earlier_arrays();
        self.earlier = std::mem::take(&mut self.arrays);
        self.next_task = 0;
        if let Some(before) = self.lives.last() {
            self.before = before.last;
        }
        self.away.extend(self.rows.drain().map(|(_, row)| row));
        self.lives.push(life);
    }

    /// A life that ended while it was still recovering leaves what it did not come to.
    fn keep_earlier_arrays(&mut self) {
        let next_task = self.next_task;
        self.arrays.extend(std::mem::take(&mut self.earlier).into_iter().filter(|a| a.base >= next_task));
    }

    fn on_event(&mut self, t: Timestamp, event: Event) {
        self.saw(t);
        match event {
            Event::RunOpened { run, name, into, .. } => {
                self.into.extend(into.map(|whole| (run, whole)));
                let record =
                    self.runs.entry(run).or_insert_with(|| RunRecord { opened: t, ..RunRecord::default() });
                record.name = name;
                record.n_tasks = 0;
                record.aborted = false;
            }
            Event::ArrayAdded { run, array } => {
                let base = self.next_task;
                let whole = self.into.get(&run).copied().unwrap_or(run);
                let is_same = |a: &&ArrayRecord| a.base == base && (a.run == run || a.run == whole);
                let known = find_array(&self.earlier, TaskId(base)).filter(is_same);
                let submitted = known.map_or(t, |a| a.submitted);
                self.next_task += u64::from(array.n_tasks);
                self.n_tasks_most = self.n_tasks_most.max(self.next_task);
                self.runs.entry(run).or_default().n_tasks += u64::from(array.n_tasks);
                self.arrays.push(ArrayRecord { base, run, submitted, array });
            }
            Event::TasksNumbered { n_tasks } => {
                // Those of forgotten runs, of which this life says nothing.
                let forgotten = self.next_task..n_tasks;
                let earlier = std::mem::take(&mut self.earlier);
                let (kept, earlier) = earlier.into_iter().partition(|a| forgotten.contains(&a.base));
                self.earlier = earlier;
                self.arrays.extend::<Vec<_>>(kept);
                self.next_task = self.next_task.max(n_tasks);
                self.n_tasks_most = self.n_tasks_most.max(self.next_task);
            }
            Event::RunStarted { run } => {
                self.runs.entry(run).or_default().committed.get_or_insert(t);
            }
            Event::RunCommitted { run } if self.into.contains_key(&run) => {
                // Its tasks are that run's now.
                let whole = self.into[&run];
                let added = self.runs.remove(&run).unwrap_or_default();
                self.runs.entry(whole).or_default().n_tasks += added.n_tasks;
                self.arrays.iter_mut().filter(|a| a.run == run).for_each(|a| a.run = whole);
                self.forget_unkept_ends(whole);
            }
            Event::RunCommitted { run } => {
                self.runs.entry(run).or_default().committed.get_or_insert(t);
                self.forget_unkept_ends(run);
            }
            Event::RunAborted { run } => self.runs.entry(run).or_default().aborted = true,
            Event::TaskRestored { task, outcome, .. } => self.on_restored(task, outcome),
            Event::ExecutorJoined { executor, offer } => self.on_joined(t, executor, &offer),
            Event::ExecutorLost { executor, .. } => self.on_lost(t, executor),
            Event::AttemptEnded { executor, report } => self.on_attempt_ended(t, executor, &report),
            Event::OutputsHome { executor, task, attempt, result } => {
                let how = if result.is_ok() { How::Done } else { How::Failed };
                if let Some(at) =
                    self.find_open(executor, task, attempt).filter(|at| self.attempts[*at].landing)
                {
                    self.close(at, t, how);
                }
            }
            Event::TaskRevived { task } => self.on_revived(task),
            Event::ExecutorSilent { executor } => {
                if let Some(&row) = self.rows.get(&executor) {
                    self.is_heard(row, t);
                    self.executors[row].silent.push((t, None));
                }
            }
            Event::ExecutorDraining { .. }
            | Event::ReplicasChanged { .. }
            | Event::CancelRequested { .. }
            | Event::PrefetchFailed { .. }
            | Event::CacheResized { .. }
            | Event::InputMoved { .. }
            | Event::PartsRemoved { .. }
            | Event::HomeUsed { .. }
            | Event::Ticked
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
        self.saw(t);
        match action {
            Action::Assign { executor, assignment } => {
                let Some(&row) = self.rows.get(&executor) else { return };
                if let Some(&at) = self.open.get(&assignment.task) {
                    self.close(at, self.before.max(self.attempts[at].assigned), How::Lost);
                }
                self.begin(t, row, assignment.task, assignment.attempt, assignment.run, assignment.cpus);
            }
            Action::EndTask { task, outcome } => {
                if let Some(&at) = self.open.get(&task) {
                    let how = match &outcome {
                        Outcome::Done => How::Done,
                        Outcome::Cancelled => How::Cancelled,
                        Outcome::Failed(f) if f.kind == FailureKind::ExecutorLost => How::Lost,
                        Outcome::Failed(_) => How::Failed,
                    };
                    self.close(at, t, how);
                }
                self.end_task(t, task, outcome);
            }
            Action::ReviveTask { task, .. } => self.on_revived(task),
            Action::RefuseRun { run, .. } => self.runs.entry(run).or_default().aborted = true,
            Action::EndRun { run } => {
                self.runs.entry(run).or_default().ended.get_or_insert(t);
            }
            Action::ForgetExecutor { executor } => self.on_lost(t, executor),
            Action::FoundPattern { run, evidence } => self.patterns.push((run, evidence)),
            Action::EndCollective { record } => self.collectives.push(record),
            // What became of it is in the record of its collective.
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
            | Action::TellMember { .. }
            | Action::SendAway { .. } => {}
        }
    }

    fn saw(&mut self, t: Timestamp) {
        if let Some(life) = self.lives.last_mut() {
            life.last = life.last.max(t);
        }
    }

    // ------------------------------------------------------------ tasks

    fn end_task(&mut self, t: Timestamp, task: TaskId, outcome: Outcome) {
        // The log of a dispatcher says of each task first that it was submitted.
        if task.0 >= self.n_tasks_most {
            return;
        }
        self.ends.insert(task, TaskEnd { t, end: End::of(&outcome), life: self.life() as u16 });
        if let Outcome::Failed(failure) = outcome
            && self.failures.len() < FAILURES_KEPT
        {
            self.failures.push(FailureRecord { task, t, failure });
        }
    }

    /// It was done, and runs again.
    fn on_revived(&mut self, task: TaskId) {
        self.ends.remove(&task);
    }

    fn on_restored(&mut self, task: TaskId, outcome: Outcome) {
        let life = self.life() as u16;
        if let Some(&at) = self.open.get(&task) {
            let how = match outcome {
                Outcome::Done => How::Done,
                Outcome::Failed(_) => How::Failed,
                Outcome::Cancelled => How::Cancelled,
            };
            self.close(at, self.before, how);
        }
        match self.ends.get_mut(&task).filter(|e| e.end != End::Not) {
            Some(known) => known.life = life,
            // The journal kept it and the log did not: it was the last that the life before did.
            None => self.end_task(self.before, task, outcome),
        }
    }

    /// Ends that an earlier life logged and its journal did not keep have not happened.
    fn forget_unkept_ends(&mut self, run: RunId) {
        let life = self.life() as u16;
        if life == 0 {
            return;
        }
        for a in self.arrays.iter().filter(|a| a.run == run) {
            let tasks = a.base..a.base + u64::from(a.array.n_tasks);
            // An array may say that it has more tasks than anything is known of.
            let ended: Vec<TaskId> = match a.array.n_tasks as usize > self.ends.len() {
                true => self.ends.keys().copied().filter(|task| tasks.contains(&task.0)).collect(),
                false => tasks.map(TaskId).collect(),
            };
            for task in ended {
                if self.ends.get(&task).is_some_and(|end| end.life != life) {
                    self.ends.remove(&task);
                    self.failures.retain(|f| f.task != task);
                }
            }
        }
        let all_ended = self.arrays.iter().filter(|a| a.run == run).all(|a| {
            a.array.n_tasks as usize <= self.ends.len()
                && (a.base..a.base + u64::from(a.array.n_tasks))
                    .all(|task| self.ends.contains_key(&TaskId(task)))
        });
        if !all_ended && let Some(record) = self.runs.get_mut(&run) {
            record.ended = None;
        }
    }

    // ------------------------------------------------------------ executors

    fn on_joined(&mut self, t: Timestamp, executor: ExecutorId, offer: &Offer) {
        if let Some(&row) = self.rows.get(&executor) {
            // The same one again: what it has lost meanwhile is over.
            self.is_heard(row, t);
            self.executors[row].slots = offer.slots;
            self.executors[row].cache_bytes = offer.cache_bytes;
            let gone: Vec<usize> = self
                .open
                .values()
                .copied()
                .filter(|at| {
                    let a = &self.attempts[*at];
                    a.executor as usize == row && !offer.attempts.contains(&(a.task, a.attempt))
                })
                .collect();
            gone.into_iter().for_each(|at| self.close(at, t, How::Lost));
            return;
        }
        let id = (self.life(), executor);
        let returns = self.away.iter().copied().find(|row| self.executors[*row].name == offer.name);
        let row = match returns {
            Some(row) => {
                self.away.remove(&row);
                self.is_heard(row, t);
                // A process that was welcomed by an earlier dispatcher was there all the time; a new one was not.
                if offer.owner.is_none()
                    && let Some((_, left @ None)) = self.executors[row].present.last_mut()
                {
                    *left = Some(self.before);
                    self.executors[row].present.push((t, None));
                }
                self.executors[row].id = id;
                self.executors[row].slots = offer.slots;
                self.executors[row].cache_bytes = offer.cache_bytes;
                row
            }
            None => {
                self.executors.push(ExecutorRecord {
                    name: offer.name.clone(),
                    slots: offer.slots,
                    cache_bytes: offer.cache_bytes,
                    present: vec![(t, None)],
                    silent: vec![],
                    n_losses: 0,
                    id,
                });
                self.executors.len() - 1
            }
        };
        self.rows.insert(executor, row);
        // What a dispatcher that restarted takes over.
        for &(task, attempt) in &offer.attempts {
            if self.ends.contains_key(&task) {
                continue;
            }
            match self.open.get(&task).copied() {
                // This life may have given the task to another node under the same number.
                Some(at) if self.attempts[at].attempt == attempt && !self.is_here(at) => {
                    self.attempts[at].executor = row as u32
                }
                Some(_) => {}
                None => {
                    if let Some(a) = find_array(&self.arrays, task) {
                        let (run, cpus) = (a.run, a.array.template.cpus);
                        self.begin(t, row, task, attempt, run, cpus);
                    }
                }
            }
        }
    }

    /// The attempt's node is one of this life.
    fn is_here(&self, at: usize) -> bool {
        self.executors[self.attempts[at].executor as usize].id.0 == self.life()
    }

    /// Ends the silence of an executor, if it was silent.
    fn is_heard(&mut self, row: usize, t: Timestamp) {
        if let Some((_, until @ None)) = self.executors[row].silent.last_mut() {
            *until = Some(t);
        }
    }

    fn on_lost(&mut self, t: Timestamp, executor: ExecutorId) {
        let Some(row) = self.rows.remove(&executor) else { return };
        let had: Vec<usize> =
            self.open.values().copied().filter(|at| self.attempts[*at].executor as usize == row).collect();
        had.into_iter().for_each(|at| self.close(at, t, How::Lost));
        self.is_heard(row, t);
        let record = &mut self.executors[row];
        record.n_losses += 1;
        if let Some((_, left)) = record.present.last_mut() {
            left.get_or_insert(t);
        }
    }

    // ------------------------------------------------------------ attempts

    fn begin(&mut self, t: Timestamp, row: usize, task: TaskId, attempt: AttemptNo, run: RunId, cpus: u32) {
        self.open.insert(task, self.attempts.len());
        self.attempts.push(AttemptRecord {
            task,
            attempt,
            run,
            executor: row as u32,
            cpus,
            how: How::Open,
            landing: false,
            assigned: t,
            received: Timestamp(0),
            inputs_ready: Timestamp(0),
            started: Timestamp(0),
            exited: Timestamp(0),
            over: t,
            local_bytes: 0,
            peer_bytes: 0,
            home_bytes: 0,
            peer_wait_ns: 0,
            home_wait_ns: 0,
            output_bytes: 0,
            staying_bytes: 0,
            cpu_ns: 0,
            rss_bytes_max: 0,
        });
    }

    /// The open attempt that a word of an executor is about.
    fn find_open(&self, executor: ExecutorId, task: TaskId, attempt: AttemptNo) -> Option<usize> {
        let at = *self.open.get(&task)?;
        let a = &self.attempts[at];
        let row = *self.rows.get(&executor)?;
        (a.attempt == attempt && a.executor as usize == row).then_some(at)
    }

    /// Bytes of outputs that are not sent home.
    fn staying_bytes(&self, report: &AttemptReport) -> u64 {
        let Some(record) = find_array(&self.arrays, report.task) else { return 0 };
        let (array, i) = (&record.array, (report.task.0 - record.base) as u32);
        let mut text = String::new();
        let stays = |output: &&eyas_core::event::OutputReport| {
            let location = array.template.outputs.get(output.output as usize).map(|(_, location)| location);
            location.is_some_and(|location| array.locate(location, i, &mut text).stays())
        };
        sum(report.outputs.iter().filter(stays).map(|o| o.size_bytes))
    }

    fn on_attempt_ended(&mut self, t: Timestamp, executor: ExecutorId, report: &AttemptReport) {
        let Some(at) = self.find_open(executor, report.task, report.attempt) else { return };
        let staying_bytes = self.staying_bytes(report);
        let a = &mut self.attempts[at];
        if a.landing {
            return;
        }
        a.received = report.times.received;
        a.inputs_ready = report.times.inputs_ready;
        a.started = report.times.started;
        a.exited = report.times.exited;
        a.cpu_ns = report.cpu_ns;
        a.rss_bytes_max = report.rss_bytes_max;
        a.output_bytes = sum(report.outputs.iter().map(|o| o.size_bytes));
        a.staying_bytes = staying_bytes;
        let requests = self.requests.entry((a.run, a.executor as usize)).or_default();
        for input in &report.inputs {
            requests.of(input.outcome).add(Tally {
                n_requests: 1,
                bytes: input.size_bytes,
                wait_ns: input.wait_ns,
            });
            match input.outcome {
                CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace => {
                    a.local_bytes = a.local_bytes.saturating_add(input.size_bytes);
                }
                CacheOutcome::RemoteHit { .. } => {
                    a.peer_bytes = a.peer_bytes.saturating_add(input.size_bytes);
                    a.peer_wait_ns = a.peer_wait_ns.max(input.wait_ns);
                }
                CacheOutcome::Miss | CacheOutcome::Direct => {
                    a.home_bytes = a.home_bytes.saturating_add(input.size_bytes);
                    a.home_wait_ns = a.home_wait_ns.max(input.wait_ns);
                }
            }
        }
        match report.outcome {
            Outcome::Done if !report.outputs.is_empty() => a.landing = true,
            Outcome::Done => self.close(at, t, How::Done),
            Outcome::Failed(_) => self.close(at, t, How::Failed),
            Outcome::Cancelled => self.close(at, t, How::Cancelled),
        }
    }

    fn close(&mut self, at: usize, t: Timestamp, how: How) {
        let a = &mut self.attempts[at];
        a.how = how;
        a.over = t.max(a.assigned);
        self.open.remove(&a.task);
    }

    fn finish(mut self, torn: bool) -> RunLog {
        self.keep_earlier_arrays();
        let last = self.lives.last().map_or(Timestamp(0), |l| l.last);
        for &at in self.open.values() {
            self.attempts[at].over = last;
        }
        for &row in &self.away {
            let record = &mut self.executors[row];
            if let Some((_, left)) = record.present.last_mut() {
                left.get_or_insert(self.lives[record.id.0].last);
            }
        }
        // Only what the last telling of a run has, and only if that was completed.
        let told: BTreeSet<RunId> = self.arrays.iter().map(|a| a.run).collect();
        self.runs.retain(|id, r| r.n_tasks == 0 || told.contains(id));
        RunLog {
            lives: self.lives,
            torn,
            runs: self.runs,
            executors: self.executors,
            attempts: self.attempts,
            failures: self.failures,
            patterns: self.patterns,
            collectives: self.collectives,
            requests: self.requests,
            arrays: self.arrays,
            ends: self.ends,
        }
    }
}
