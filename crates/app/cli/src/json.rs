//! The output of `--json`: one JSON value on standard output, and nothing else there.
//!
//! Fields are described in `docs/reference/json.md`; they may be added, and never change their meaning.

use crate::Fault;
use eyas_core::log::PrintedLine;
use eyas_report::TaskStory;
use eyas_terms::array::TaskSpec;
use eyas_terms::{RunId, TaskId, TaskPhase, Timestamp};
use eyas_wire::message::RunStatus;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Prints `value`.
pub fn write(value: &impl Serialize) -> Result<(), Fault> {
    let mut out = std::io::BufWriter::new(eyas_text::raw_unless_terminal());
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// A run that the command waited for: the fields of `eyas status --json`, and the outcome.
#[derive(Serialize)]
pub struct Run<'a> {
    /// `done`, `failed` (some task failed or was cancelled), `open` (the run goes on).
    state: &'static str,
    /// The folder of the run's dispatcher, where its log is, if it is on this machine.
    dir: Option<&'a Path>,
    #[serde(flatten)]
    status: &'a RunStatus,
}

impl<'a> Run<'a> {
    pub fn of(status: &'a RunStatus, dir: Option<&'a Path>) -> Run<'a> {
        let state = match status.ended {
            None => "open",
            Some(_) if status.n_failed + status.n_cancelled > 0 => "failed",
            Some(_) if status.push.as_ref().is_some_and(|push| !push.is_whole()) => "failed",
            Some(_) => "done",
        };
        Run { state, dir, status }
    }
}

/// Printed in place of a run if there was nothing to do.
#[derive(Serialize)]
pub struct NoRun {
    state: &'static str,
    run: Option<RunId>,
    n_tasks: u64,
}

impl NoRun {
    pub const NEEDED: NoRun = NoRun { state: "done", run: None, n_tasks: 0 };
}

/// The result of a submission.
#[derive(Serialize)]
pub struct Submitted {
    pub run: RunId,
    pub n_tasks: u64,
    /// The same tasks had been added to that run before, and were not added again.
    pub again: bool,
}

/// Everything that is known of a task.
#[derive(Serialize)]
pub struct Explained<'a> {
    run: RunId,
    id: &'a str,
    number: TaskId,
    state: TaskPhase,
    /// Why the task waits, or why it failed.
    reason: Option<String>,
    submitted: Option<Timestamp>,
    task: Option<&'a TaskSpec>,
    patterns: &'a [String],
    printed: &'a [PrintedLine],
    /// Names of the executors that `events` name by number.
    executors: &'a BTreeMap<u32, String>,
    /// Locations of the files that `events` name by number.
    objects: &'a BTreeMap<u32, String>,
    events: Vec<Value>,
    /// The same for users.
    text: Vec<String>,
}

impl<'a> Explained<'a> {
    pub fn of(story: &'a TaskStory) -> Explained<'a> {
        // A torn last line of the log is skipped.
        let events = story.log_lines.iter().filter_map(|line| serde_json::from_slice(line.as_bytes()).ok());
        let events: Vec<Value> = events.collect();
        let failed =
            events.iter().rev().find_map(|event| event.pointer("/out/end_task/outcome/failed/message"));
        let failed = failed.filter(|_| story.state == TaskPhase::Failed).and_then(Value::as_str);
        Explained {
            run: story.run,
            id: &story.user_id,
            number: story.task,
            state: story.state,
            reason: story.reason.clone().or_else(|| failed.map(str::to_owned)),
            submitted: story.submitted,
            task: story.spec.as_ref(),
            patterns: &story.patterns,
            printed: &story.printed,
            executors: &story.executors,
            objects: &story.objects,
            events,
            text: eyas_report::explain_lines(story).lines().map(str::to_owned).collect(),
        }
    }
}
