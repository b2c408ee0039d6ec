//! Checks that a log holds a whole run, and makes the workload and the measurements of it.

use super::measured::Transfer;
use super::measured::starts;
use super::{
    Measured, MeasuredTransfers, READ, Spread, TaskMeasured, Trace, TraceConfig, TraceReader, Way, submitted,
};
use crate::workload::{ArrivingTasks, Compute, Error, ErrorKind, Sizes, links};
use eyas_core::log::EVENTS_FILE;
use eyas_report::fold::{End, Fold, RunRecord};
use eyas_report::read::Requests;
use eyas_terms::{RunId, TaskId, Timestamp};
use eyas_text::shown_path;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::path::Path;

impl TraceReader {
    /// `torn`: the log breaks off in the middle of a line.
    pub(super) fn finish(
        self,
        fold: Fold,
        dir: &Path,
        torn: bool,
        config: &TraceConfig,
    ) -> Result<Trace, Error> {
        let log = dir.join(EVENTS_FILE);
        let log = shown_path(&log).to_string();
        let runs = fold.runs.records();
        let chosen = choose_runs(&fold, &log, torn, config)?;
        let chosen_set: BTreeSet<RunId> = chosen.iter().copied().collect();
        let zero = chosen.iter().map(|id| runs[id].opened).min().unwrap_or_default();

        let (mut tasks, mut submissions) = (vec![], vec![]);
        for a in fold.tasks.arrays().iter().filter(|a| chosen_set.contains(&a.run)) {
            let n = u64::from(a.array.n_tasks);
            let positions = (tasks.len() as u64..tasks.len() as u64 + n).collect();
            let numbers = (a.base..a.base + n).map(TaskId);
            tasks.extend(numbers.map(|task| {
                let (end, ended) = fold.tasks.end(task);
                TaskMeasured { end, ended, ..self.tasks.get(&task).copied().unwrap_or(submitted(a)) }
            }));
            submissions.push(ArrivingTasks {
                at: Timestamp(a.submitted.since_ns(zero)),
                array: a.array.clone(),
                compute: Compute::Each(positions),
            });
        }
        let ends = Ends::of(&tasks);
        ends.check(&log, torn, config)?;
        let mut runs_ns: Vec<u64> = tasks.iter().filter(|t| t.has_run()).map(TaskMeasured::run_ns).collect();
        runs_ns.sort_unstable();
        if runs_ns.is_empty() {
            let context = format!("no program in {log} has a start and an end");
            return Err(Error::new(ErrorKind::Failed, READ, context));
        }
        let run_median_ns = runs_ns[(runs_ns.len() - 1) / 2];
        tasks.iter_mut().for_each(|task| task.count_from(zero));

        let mut sizes = self.sizes;
        let read_bytes = complete_sizes(&submissions, &mut sizes, config.allow_failed);
        let ordered = links::in_order(submissions, &Sizes::Each(sizes.clone())).map_err(|e| Error {
            context: format!("{log}: {}", e.context),
            operation: READ,
            ..e
        })?;

        let transfers_of = |way: Way| {
            let mine = |(run, w, _): &&(RunId, Way, Transfer)| *w == way && chosen_set.contains(run);
            MeasuredTransfers::of(
                self.transfers.iter().filter(mine).map(|(.., transfer)| *transfer).collect(),
            )
        };
        let ran = || tasks.iter().filter(|t| t.has_run());
        let mut requests = Requests::default();
        chosen.iter().filter_map(|id| self.requests.get(id)).for_each(|r| requests.add(r));
        let mut nodes = self.nodes;
        nodes.iter_mut().for_each(|n| n.joined = Timestamp(n.joined.since_ns(zero)));
        let life = fold.lives.last().expect("a log begins with its header");
        let measured = Measured {
            eyas_version: life.eyas_version.clone(),
            config: life.config.clone(),
            n_lives: fold.lives.len() as u32,
            n_tasks: ends.n_tasks,
            n_done: ends.n_done,
            n_failed: ends.n_failed,
            n_cancelled: ends.n_cancelled,
            n_attempts: chosen.iter().filter_map(|id| self.n_attempts.get(id)).sum(),
            makespan_ns: tasks.iter().map(|t| t.ended.0).max().unwrap_or(0),
            home_in: transfers_of(Way::HomeIn),
            peer: transfers_of(Way::Peer),
            home_out: transfers_of(Way::HomeOut),
            dispatch: Spread::of(ran().map(|t| t.received.since_ns(t.assigned)).collect()),
            start: Spread::of(starts(&tasks, &nodes)),
            run: Spread::of(runs_ns),
            report: Spread::of(ran().map(|t| t.reported.since_ns(t.exited)).collect()),
            requests,
            nodes,
            tasks,
        };
        let name = match chosen.as_slice() {
            [one] if !runs[one].name.is_empty() => runs[one].name.clone(),
            _ => dir.display().to_string(),
        };
        Ok(Trace { name, measured, sizes, read_bytes, ordered, run_median_ns })
    }
}

/// The complete runs that are wanted.
fn choose_runs(fold: &Fold, log: &str, torn: bool, config: &TraceConfig) -> Result<Vec<RunId>, Error> {
    let is_kept = |r: &RunRecord| r.is_complete && !r.aborted;
    let runs = fold.runs.records().iter();
    let known: Vec<RunId> = runs.filter(|(_, r)| is_kept(r)).map(|(id, _)| *id).collect();
    let chosen: Vec<RunId> = match config.run {
        None => known.clone(),
        Some(run) => known.iter().copied().filter(|id| id.0 == run).collect(),
    };
    if !chosen.is_empty() {
        return Ok(chosen);
    }
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
    Err(Error::new(ErrorKind::Incomplete, READ, context))
}

/// How many of the tasks ended, and how.
struct Ends {
    n_tasks: u64,
    n_done: u64,
    n_failed: u64,
    n_cancelled: u64,
}

impl Ends {
    fn of(tasks: &[TaskMeasured]) -> Ends {
        let count = |end: End| tasks.iter().filter(|t| t.end == end).count() as u64;
        Ends {
            n_tasks: tasks.len() as u64,
            n_done: count(End::Done),
            n_failed: count(End::Failed),
            n_cancelled: count(End::Cancelled),
        }
    }

    /// Refuses a log that does not say how long the whole work takes.
    fn check(&self, log: &str, torn: bool, config: &TraceConfig) -> Result<(), Error> {
        let Ends { n_tasks, n_done, n_failed, n_cancelled } = *self;
        if n_tasks == 0 {
            let context = format!("the run in {log} has no tasks");
            return Err(Error::new(ErrorKind::Incomplete, READ, context));
        }
        let n_not = n_tasks - n_done - n_failed - n_cancelled;
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
        Ok(())
    }
}

impl TaskMeasured {
    /// Times are counted from `zero` on.
    fn count_from(&mut self, zero: Timestamp) {
        for time in [
            &mut self.submitted,
            &mut self.ended,
            &mut self.assigned,
            &mut self.received,
            &mut self.inputs_ready,
            &mut self.started,
            &mut self.exited,
            &mut self.reported,
        ] {
            *time = Timestamp(time.since_ns(zero));
        }
    }
}

/// Bytes that all tasks read. With `fill`, files that no executor measured get the median size, or one
/// byte.
fn complete_sizes(submissions: &[ArrivingTasks], sizes: &mut FxHashMap<String, u64>, fill: bool) -> u64 {
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
