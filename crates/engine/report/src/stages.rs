//! Tasks by stage: what each stage of a workflow read, wrote and took.
//!
//! Stages are those of [`eyas_core::pattern`]: a label; without one, the program and the numbers of files. The columns are
//! those of `Zhang12`, table VI (tasks, inputs, outputs, bytes), and of its table VII (how the time of a task divides).
//!
//! An input that several tasks read is counted for each of them, as there. Attempts that did not end a task
//! are left out.

use crate::read::{AttemptRecord, End, RunLog, SubmittedArray};
use eyas_core::pattern::{is_one_stage, stage_of_task};
use eyas_terms::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct StageRow {
    pub stage: String,
    pub n_tasks: u64,
    pub n_done: u64,
    pub n_failed: u64,
    /// Inputs and outputs of all its tasks.
    pub n_inputs: u64,
    pub n_outputs: u64,
    /// Of done tasks, as everything below.
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Of the inputs: read from home.
    pub home_in_bytes: u64,
    /// Of the inputs: from other nodes' caches.
    pub peer_bytes: u64,
    /// Of the outputs: sent home; the others stayed on the nodes.
    pub home_out_bytes: u64,
    /// From the beginning of the window to the first assignment of one of its tasks, and to its last end.
    pub began_ns: u64,
    pub ended_ns: u64,
    /// From the assignment until all inputs were there.
    pub stage_in_mean_ns: u64,
    pub run_mean_ns: u64,
    /// From the program's exit to the task's end.
    pub delivery_mean_ns: u64,
}

/// Stages in the order in which their first tasks were submitted.
pub(crate) fn stages<'a>(
    log: &'a RunLog,
    submissions: &[SubmittedArray],
    start: Timestamp,
    last_attempt: impl Fn(TaskId) -> Option<&'a AttemptRecord>,
) -> Vec<StageRow> {
    let mut rows: Vec<StageRow> = vec![];
    let mut sums: Vec<[u128; 3]> = vec![];
    let mut numbers: FxHashMap<String, usize> = FxHashMap::default();
    for submission in submissions {
        let Some(array) = log.array_at(submission.first) else { continue };
        let shared = (is_one_stage(array) && submission.n_tasks > 0).then(|| stage_of_task(array, 0));
        for i in 0..submission.n_tasks {
            let name = shared.clone().unwrap_or_else(|| stage_of_task(array, i));
            let at = *numbers.entry(name).or_insert_with_key(|name| {
                rows.push(StageRow { stage: name.clone(), began_ns: u64::MAX, ..StageRow::default() });
                sums.push([0; 3]);
                rows.len() - 1
            });
            let row = &mut rows[at];
            row.n_tasks += 1;
            row.n_inputs += array.template.inputs.len() as u64;
            row.n_outputs += array.template.outputs.len() as u64;
            let task = TaskId(submission.first.0 + u64::from(i));
            let (end, ended) = log.end(task);
            row.n_failed += u64::from(end == End::Failed);
            let (End::Done, Some(a)) = (end, last_attempt(task)) else { continue };
            row.n_done += 1;
            for (sum, bytes) in [
                (&mut row.input_bytes, a.input_bytes()),
                (&mut row.output_bytes, a.output_bytes),
                (&mut row.home_in_bytes, a.home_bytes),
                (&mut row.peer_bytes, a.peer_bytes),
                (&mut row.home_out_bytes, a.landed_bytes()),
            ] {
                *sum = sum.saturating_add(bytes);
            }
            row.began_ns = row.began_ns.min(a.assigned.since_ns(start));
            row.ended_ns = row.ended_ns.max(ended.since_ns(start));
            let ready = if a.inputs_ready.0 > 0 { a.inputs_ready } else { a.started };
            let parts = [ready.since_ns(a.assigned), a.run_ns(), ended.since_ns(a.exited)];
            sums[at].iter_mut().zip(parts).for_each(|(sum, ns)| *sum += u128::from(ns));
        }
    }
    for (row, sums) in rows.iter_mut().zip(sums) {
        let n_done = u128::from(row.n_done.max(1));
        [row.stage_in_mean_ns, row.run_mean_ns, row.delivery_mean_ns] = sums.map(|sum| (sum / n_done) as u64);
        row.began_ns = row.began_ns.min(row.ended_ns);
    }
    rows
}
