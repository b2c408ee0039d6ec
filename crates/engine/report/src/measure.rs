//! What one report counts: the tasks and attempts of the chosen runs, and the window in which they are counted.
//!
//! The figures that several parts of a report need are made here, so that the parts agree.

use crate::read::{AttemptRecord, End, ExecutorRecord, How, RunLog, SubmittedArray, sum};
use eyas_terms::*;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Parts of a node's processors: used by anybody, and of that by programs outside eyas.
#[derive(Clone, Copy)]
pub(crate) struct Processors {
    pub used: f64,
    pub others: f64,
}

/// All runs of a log, or one of them.
pub(crate) struct Measure<'a> {
    pub log: &'a RunLog,
    pub run: Option<RunId>,
    pub submissions: Vec<SubmittedArray>,
    /// Index of a task's last attempt.
    pub last_attempt: FxHashMap<TaskId, usize>,
    pub start: Timestamp,
    pub stop: Timestamp,
    pub complete: bool,
}

impl<'a> Measure<'a> {
    pub fn new(log: &'a RunLog, run: Option<RunId>) -> Measure<'a> {
        let submissions: Vec<SubmittedArray> =
            log.submissions().filter(|s| run.is_none_or(|r| r == s.run)).collect();
        let runs = log.runs.iter().filter(|(id, r)| run.is_none_or(|x| x == **id) && !r.aborted);
        let (mut complete, mut ended) = (true, Timestamp(0));
        for task in tasks(&submissions) {
            match log.end(task) {
                (End::Not, _) => complete = false,
                (_, t) => ended = ended.max(t),
            }
        }
        let start = runs.map(|(_, r)| r.opened).min();
        let start = start.or(log.lives.first().map(|l| l.began)).unwrap_or_default();
        let stop = if complete { ended.max(start) } else { log.last().max(start) };
        let mut last_attempt = FxHashMap::default();
        for (at, a) in log.attempts.iter().enumerate().filter(|(_, a)| run.is_none_or(|r| r == a.run)) {
            last_attempt.insert(a.task, at);
        }
        Measure { log, run, submissions, last_attempt, start, stop, complete }
    }

    pub fn attempts(&self) -> impl Iterator<Item = &'a AttemptRecord> {
        let run = self.run;
        self.log.attempts.iter().filter(move |a| run.is_none_or(|r| r == a.run))
    }

    /// How long the program of a task ran, in the task's last attempt.
    pub fn run_ns(&self, task: TaskId) -> u64 {
        self.last_attempt.get(&task).map_or(0, |at| self.log.attempts[*at].run_ns())
    }

    /// Bytes that home may move per second, over all dispatchers; `None` if one of them does not limit
    /// home.
    pub fn home_limit_bytes_per_s(&self) -> Option<f64> {
        // The configuration of each member's last life counts.
        let mut limits: BTreeMap<u32, u64> = BTreeMap::new();
        for life in &self.log.lives {
            let member = life.config.group.map_or(0, |group| group.me.0);
            limits.insert(member, life.config.placement_config.affinity.home_bytes_per_s);
        }
        let all_limit = !limits.is_empty() && limits.values().all(|limit| *limit > 0);
        all_limit.then(|| sum(limits.into_values()) as f64)
    }

    /// The times when an executor was there, cut to the window.
    pub fn presence(&self, e: &ExecutorRecord) -> Vec<(Timestamp, Timestamp)> {
        let cut = |(from, to): &(Timestamp, Option<Timestamp>)| {
            ((*from).max(self.start), to.unwrap_or(self.stop).min(self.stop))
        };
        e.present.iter().map(cut).filter(|(from, to)| from < to).collect()
    }

    /// What an executor said of its processors, from when to when, cut to the window.
    pub fn processors(&self, e: &ExecutorRecord) -> Vec<(Timestamp, Timestamp, Processors)> {
        let next = e.processors.iter().skip(1).map(|(t, _)| *t).chain([self.stop]);
        let part = |permille: u32| f64::from(permille.min(1000)) / 1000.0;
        let mut parts = vec![];
        // The first value counts for the time before it, too.
        let since = [Timestamp(0)].into_iter().chain(e.processors.iter().skip(1).map(|(t, _)| *t));
        for ((since, (_, seen)), until) in since.zip(&e.processors).zip(next) {
            let used = Processors { used: part(seen.used_permille), others: part(seen.others_permille) };
            for (from, to) in self.presence(e) {
                let (from, to) = (from.max(since), to.min(until));
                if from < to {
                    parts.push((from, to, used));
                }
            }
        }
        parts
    }

    pub fn present_ns(&self, e: &ExecutorRecord) -> u64 {
        sum(self.presence(e).iter().map(|(from, to)| to.since_ns(*from)))
    }

    /// The changes of the number of tasks without an executor, with their times.
    pub fn queue_changes(&self) -> Vec<(Timestamp, i64)> {
        let mut changes: Vec<(Timestamp, i64)> = vec![];
        for s in &self.submissions {
            changes.push((s.submitted, i64::from(s.n_tasks)));
            // Tasks that end leave the queue at their end, whether an executor had them or not.
            for task in tasks(std::slice::from_ref(s)) {
                if let (End::Done | End::Failed | End::Cancelled, t) = self.log.end(task) {
                    changes.push((t, -1));
                }
            }
        }
        for a in self.attempts() {
            changes.push((a.assigned, -1));
            let over = if a.how == How::Open { self.stop } else { a.over };
            changes.push((over.max(a.assigned), 1));
        }
        changes
    }
}

/// The tasks of these submissions, in the order of their numbers.
pub(crate) fn tasks(submissions: &[SubmittedArray]) -> impl Iterator<Item = TaskId> {
    submissions.iter().flat_map(|s| (s.first.0..s.first.0 + u64::from(s.n_tasks)).map(TaskId))
}
