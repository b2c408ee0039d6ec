//! What the tasks of a run that failed printed, from the files of a run that is over.

use crate::error::{Error, ErrorKind};
use crate::explain::printed_lines;
use crate::read::{End, read};
use eyas_core::log::{PrintedLine, add_printed};
use eyas_terms::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A task that failed.
#[derive(Clone, PartialEq, Debug)]
pub struct FailedTask {
    pub task: TaskId,
    pub user_id: String,
    pub message: String,
    pub printed: Vec<PrintedLine>,
}

/// The failed tasks of a run, by default of the newest, in the order of their numbers, dispatcher by dispatcher.
pub fn failed_printed(dirs: &[PathBuf], run: Option<RunId>) -> Result<(RunId, Vec<FailedTask>), Error> {
    let logs = dirs.iter().map(|dir| read(dir)).collect::<Result<Vec<_>, Error>>()?;
    let newest = || logs.iter().filter_map(|log| log.newest_run()).max();
    let known = |run: &RunId| logs.iter().any(|log| log.runs.contains_key(run));
    let run = match run {
        Some(run) => Some(run).filter(known),
        None => newest(),
    };
    let Some(run) = run else {
        return Err(Error::new(ErrorKind::NoTask, "find the run", "the log has no such run"));
    };
    let mut all = vec![];
    for (dir, log) in dirs.iter().zip(&logs) {
        let is_mine = |task: TaskId| {
            log.arrays_of(run).any(|(base, a)| (base..base + u64::from(a.n_tasks)).contains(&task.0))
        };
        let failed = log.failures.iter().filter(|f| log.end(f.task).0 == End::Failed && is_mine(f.task));
        // A task may fail again after a restart; its last failure counts.
        let failed: BTreeMap<TaskId, &str> = failed.map(|f| (f.task, f.failure.message.as_str())).collect();
        let mut printed: BTreeMap<TaskId, Vec<PrintedLine>> = BTreeMap::new();
        printed_lines(
            dir,
            |task| failed.contains_key(&task),
            |line| add_printed(printed.entry(line.task).or_default(), line),
        )?;
        all.extend(failed.into_iter().map(|(task, message)| FailedTask {
            task,
            user_id: log.user_id(task),
            message: message.to_string(),
            printed: printed.remove(&task).unwrap_or_default(),
        }));
    }
    Ok((run, all))
}
