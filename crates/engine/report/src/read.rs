//! From an event log to compact records: what the metrics need, and no more.
//!
//! Runs, tasks and executors are the fold's ([`crate::fold`]), which says when attempts begin and end. Here are, of each attempt, the
//! times and bytes that its executor reported.
//!
//! Memory: about 150 bytes per attempt, some 18 per ended task, as many per file that came from home, and the arrays as folded as they were logged.

use crate::error::Error;
use crate::fold::{Array, Change, Fold, Tasks, newest};
pub use crate::fold::{End, ExecutorRecord, How, Life, RunRecord};
use crate::lines::Entry;
use eyas_core::collective::CollectiveRecord;
use eyas_core::event::{Action, AttemptReport, InputReport, OutputReport};
use eyas_core::log::LostLines;
use eyas_core::pattern::Evidence;
use eyas_terms::array::TaskArray;
use eyas_terms::*;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Failures whose messages are kept; all are counted.
const FAILURES_KEPT: usize = 10_000;

/// What a log says.
#[derive(Debug)]
pub struct RunLog {
    pub lives: Vec<Life>,
    /// The log ends in the middle of a line.
    pub torn: bool,
    /// What it lacks.
    pub lost: Option<LostLines>,
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
    /// Bytes of the files that a run read from home, each file once.
    pub home_once_bytes: BTreeMap<RunId, u64>,
    tasks: Tasks,
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
pub struct AttemptRecord {
    pub task: TaskId,
    pub attempt: AttemptNo,
    pub run: RunId,
    /// Index into [`RunLog::executors`].
    pub executor: u32,
    pub cpus: u32,
    pub how: How,
    pub assigned: Timestamp,
    /// Zero where it did not come to that, as in [`eyas_core::event::Times`].
    pub received: Timestamp,
    pub inputs_ready: Timestamp,
    pub started: Timestamp,
    pub exited: Timestamp,
    /// When no executor had the attempt any more.
    pub over: Timestamp,
    /// Read from this node's disk: local hits, joined requests and inputs read in place.
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
    /// The longest wait for one input of that kind.
    pub peer_wait_ns: u64,
    pub home_wait_ns: u64,
    pub output_bytes: u64,
    /// Of these, the bytes that stayed on the nodes and were not sent home.
    pub staying_bytes: u64,
    pub cpu_ns: u64,
    pub rss_bytes_max: u64,
}

impl AttemptRecord {
    fn begun(
        t: Timestamp,
        row: usize,
        task: TaskId,
        attempt: AttemptNo,
        run: RunId,
        cpus: u32,
    ) -> AttemptRecord {
        AttemptRecord {
            task,
            attempt,
            run,
            executor: row as u32,
            cpus,
            how: How::Open,
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
        }
    }

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
    #[serde(default)]
    pub made: Tally,
    /// Those of all these whose bytes were in memory when their program began.
    #[serde(default)]
    pub in_memory: Tally,
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
    pub fn by_name(&self) -> [(&'static str, Tally); 7] {
        [
            ("local hit", self.local_hit),
            ("in place", self.in_place),
            ("made", self.made),
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
        self.made.add(other.made);
        self.in_memory.add(other.in_memory);
    }
    /// Counts one request. `in_memory`: its bytes were in memory when the program began.
    pub fn count(&mut self, input: &InputReport, in_memory: bool) {
        let one = Tally { n_requests: 1, bytes: input.size_bytes, wait_ns: input.wait_ns };
        self.of(input.outcome).add(one);
        if in_memory {
            self.in_memory.add(one);
        }
    }
    fn of(&mut self, outcome: CacheOutcome) -> &mut Tally {
        match outcome {
            CacheOutcome::LocalHit => &mut self.local_hit,
            CacheOutcome::RemoteHit { .. } => &mut self.remote_hit,
            CacheOutcome::Joined => &mut self.joined,
            CacheOutcome::Miss => &mut self.miss,
            CacheOutcome::Direct => &mut self.direct,
            CacheOutcome::InPlace => &mut self.in_place,
            CacheOutcome::Made => &mut self.made,
        }
    }
}

impl RunLog {
    /// How and when a task ended.
    pub fn end(&self, task: TaskId) -> (End, Timestamp) {
        self.tasks.end(task)
    }

    /// The user's own name for a task; its number where the log does not say.
    pub fn user_id(&self, task: TaskId) -> String {
        match self.tasks.find(task) {
            Some(a) => a.array.fill(&a.array.template.id, (task.0 - a.base) as u32),
            None => format!("#{task}"),
        }
    }

    /// When the dispatcher first received a task.
    pub fn submitted(&self, task: TaskId) -> Timestamp {
        self.tasks.find(task).map_or(Timestamp(0), |a| a.submitted)
    }

    /// All submissions of committed runs, in the order of their tasks.
    pub fn submissions(&self) -> impl Iterator<Item = SubmittedArray> {
        let is_accepted = |a: &&Array| self.runs.get(&a.run).is_some_and(RunRecord::is_accepted);
        self.tasks.arrays().iter().filter(is_accepted).map(|a| SubmittedArray {
            first: TaskId(a.base),
            n_tasks: a.array.n_tasks,
            run: a.run,
            submitted: a.submitted,
        })
    }

    /// The arrays of `run`, those added to it among them, with the number of their first task, ascending.
    pub fn arrays_of(&self, run: RunId) -> impl Iterator<Item = (u64, &TaskArray)> {
        self.tasks.arrays().iter().filter(move |a| a.run == run).map(|a| (a.base, &*a.array))
    }

    /// The run that was submitted last.
    pub fn newest_run(&self) -> Option<RunId> {
        newest(&self.runs)
    }

    /// The array that a task is of.
    pub fn array_at(&self, task: TaskId) -> Option<&TaskArray> {
        self.tasks.find(task).map(|a| &*a.array)
    }

    /// Takes the log of another dispatcher of the same group in, see [`crate::group`].
    pub(crate) fn join(&mut self, other: RunLog) {
        let first_task = self.tasks.join(other.tasks);
        let (first_life, first_row) = (self.lives.len(), self.executors.len());
        let task = |task: TaskId| TaskId(task.0 + first_task);
        self.lives.extend(other.lives);
        self.torn |= other.torn;
        self.lost = match (self.lost, other.lost) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (a, b) => a.or(b),
        };
        for (id, part) in other.runs {
            let run = self.runs.entry(id).or_insert_with(|| RunRecord { n_tasks: 0, ..part.clone() });
            run.n_tasks += part.n_tasks;
            run.opened = run.opened.min(part.opened);
            run.committed = run.committed.into_iter().chain(part.committed).min();
            // It has ended when all its parts have.
            run.ended = run.ended.zip(part.ended).map(|(a, b)| a.max(b));
        }
        self.executors
            .extend(other.executors.into_iter().map(|e| ExecutorRecord { life: e.life + first_life, ..e }));
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
        for (run, bytes) in other.home_once_bytes {
            let all = self.home_once_bytes.entry(run).or_default();
            *all = all.saturating_add(bytes);
        }
        self.requests.extend(other.requests.into_iter().map(|((run, row), r)| ((run, row + first_row), r)));
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

/// Reads the event log in the dispatcher's directory `dir`.
pub fn read(dir: &Path) -> Result<RunLog, Error> {
    let (mut fold, mut records) = (Fold::whole(), Records::default());
    // All lines are parsed, because a line that the grammar does not know is an error.
    let torn = fold.read(dir, |_| true, |fold, entry, changes| records.take(fold, entry, changes))?;
    Ok(records.finish(fold, torn))
}

/// What the changes of the log amount to beside the fold's own states.
#[derive(Default)]
struct Records {
    attempts: Vec<AttemptRecord>,
    failures: Vec<FailureRecord>,
    patterns: Vec<(RunId, Evidence)>,
    collectives: Vec<CollectiveRecord>,
    requests: BTreeMap<(RunId, usize), Requests>,
    home_once_bytes: BTreeMap<RunId, u64>,
    /// Files of this life that a run has read from home.
    read_from_home: FxHashSet<(RunId, ObjectId)>,
}

impl Records {
    fn take(&mut self, fold: &Fold, entry: &Entry, changes: Vec<Change<'_>>) {
        match entry {
            Entry::Out(_, Action::FoundPattern { run, evidence }) => {
                self.patterns.push((*run, evidence.clone()))
            }
            // What became of reruns is in the record of their collective.
            Entry::Out(_, Action::EndCollective { record }) => self.collectives.push(record.clone()),
            // Each dispatcher process numbers objects anew.
            Entry::Header(_) => self.read_from_home.clear(),
            _ => {}
        }
        for change in changes {
            match change {
                Change::AttemptBegan { t, task, attempt, row, assignment, .. } => {
                    let (run, cpus) = match (assignment, fold.tasks.find(task)) {
                        (Some(assignment), _) => (assignment.run, assignment.cpus),
                        (None, Some(a)) => (a.run, a.array.template.cpus),
                        (None, None) => unreachable!("only attempts at numbered tasks are taken over"),
                    };
                    self.attempts.push(AttemptRecord::begun(t, row, task, attempt, run, cpus));
                }
                Change::AttemptMoved { at, row } => self.attempts[at].executor = row as u32,
                Change::AttemptReported { at, report, .. } => self.on_reported(fold, at, report),
                Change::AttemptOver { at, t, how } => {
                    let attempt = &mut self.attempts[at];
                    attempt.how = how;
                    attempt.over = t.max(attempt.assigned);
                }
                Change::TaskEnded { task, t, outcome: Outcome::Failed(failure), .. }
                    if self.failures.len() < FAILURES_KEPT =>
                {
                    self.failures.push(FailureRecord { task, t, failure: failure.clone() });
                }
                Change::EndsForgotten { tasks } => {
                    let tasks: BTreeSet<TaskId> = tasks.into_iter().collect();
                    self.failures.retain(|f| !tasks.contains(&f.task));
                }
                _ => {}
            }
        }
    }

    fn on_reported(&mut self, fold: &Fold, at: usize, report: &AttemptReport) {
        let a = &mut self.attempts[at];
        a.received = report.times.received;
        a.inputs_ready = report.times.inputs_ready;
        a.started = report.times.started;
        a.exited = report.times.exited;
        a.cpu_ns = report.cpu_ns;
        a.rss_bytes_max = report.rss_bytes_max;
        a.output_bytes = sum(report.outputs.iter().map(|o| o.size_bytes));
        a.staying_bytes = staying_bytes(fold, report);
        let requests = self.requests.entry((a.run, a.executor as usize)).or_default();
        for (input, i) in report.inputs.iter().zip(0..) {
            requests.count(input, report.in_memory.binary_search(&i).is_ok());
            match input.outcome {
                CacheOutcome::LocalHit
                | CacheOutcome::Joined
                | CacheOutcome::InPlace
                | CacheOutcome::Made => {
                    a.local_bytes = a.local_bytes.saturating_add(input.size_bytes);
                }
                CacheOutcome::RemoteHit { .. } => {
                    a.peer_bytes = a.peer_bytes.saturating_add(input.size_bytes);
                    a.peer_wait_ns = a.peer_wait_ns.max(input.wait_ns);
                }
                CacheOutcome::Miss | CacheOutcome::Direct => {
                    a.home_bytes = a.home_bytes.saturating_add(input.size_bytes);
                    a.home_wait_ns = a.home_wait_ns.max(input.wait_ns);
                    if self.read_from_home.insert((a.run, input.object)) {
                        let once = self.home_once_bytes.entry(a.run).or_default();
                        *once = once.saturating_add(input.size_bytes);
                    }
                }
            }
        }
    }

    fn finish(mut self, fold: Fold, torn: bool) -> RunLog {
        let last = fold.last();
        for at in fold.attempts.open().filter_map(|held| held.at) {
            self.attempts[at].over = last;
        }
        let mut runs = fold.runs.into_records();
        // Only what the last life has of a run, and only if that was completed.
        let repeated: BTreeSet<RunId> = fold.tasks.arrays().iter().map(|a| a.run).collect();
        runs.retain(|id, r| r.n_tasks == 0 || repeated.contains(id));
        RunLog {
            lives: fold.lives,
            torn,
            lost: fold.lost,
            runs,
            executors: fold.executors.into_records(),
            attempts: self.attempts,
            failures: self.failures,
            patterns: self.patterns,
            collectives: self.collectives,
            requests: self.requests,
            home_once_bytes: self.home_once_bytes,
            tasks: fold.tasks,
        }
    }
}

/// Bytes of outputs that are not sent home.
fn staying_bytes(fold: &Fold, report: &AttemptReport) -> u64 {
    let Some(record) = fold.tasks.find(report.task) else { return 0 };
    let (array, i) = (&record.array, (report.task.0 - record.base) as u32);
    let mut text = String::new();
    let stays = |output: &&OutputReport| {
        let location = array.template.outputs.get(output.output as usize).map(|(_, location)| location);
        location.is_some_and(|location| array.locate(location, i, &mut text).stays())
    };
    sum(report.outputs.iter().filter(stays).map(|o| o.size_bytes))
}
