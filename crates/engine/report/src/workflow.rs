//! A run as a workflow: which task read and wrote which files, with the times and sizes that were measured.
//!
//! Times are those of the attempt that ended the task well, from start to exit of its program. The size of a file
//! is what the last attempt that read or wrote it saw. Tasks that did not end well are there without times. Results have
//! relative names: the user who runs the workflow again chooses the folder for them.
//!
//! The logs of several dispatchers that shared the run are read as one ([`crate::group`]). Each log is read twice: once as for every
//! report, once for sizes, which reports do without.

use crate::error::{Error, ErrorKind};
use crate::fold::{Change, Fold, RunRecord};
use crate::group::read_group;
use crate::lines::Entry;
use crate::read::How;
use eyas_core::event::{Action, Event};
use eyas_terms::array::TaskArray;
use eyas_terms::location::run_file;
use eyas_terms::*;
use eyas_text::shown_path;
use eyas_workflow::{Machine, Run, Workflow, from_arrays, wfformat};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run `wanted` (`None`: the newest) of the logs in the dispatchers' directories `dirs`, at least one.
pub fn workflow(dirs: &[PathBuf], wanted: Option<RunId>) -> Result<Workflow, Error> {
    let log = read_group(dirs)?;
    let run = match wanted {
        Some(run) => Some(run).filter(|run| log.runs.get(run).is_some_and(RunRecord::is_accepted)),
        None => log.newest_run(),
    };
    let Some(run) = run else {
        let dir = shown_path(&dirs[0]);
        let message = match wanted {
            Some(run) => format!("there is no run {run} in {dir}"),
            None => format!("there is no run in {dir}"),
        };
        return Err(Error::new(ErrorKind::NoTask, "export the run", message));
    };
    let record = &log.runs[&run];
    let mut sizes = FxHashMap::default();
    for dir in dirs {
        read_sizes(dir, run, &mut sizes)?;
    }
    let mut workflow = from_arrays(log.arrays_of(run).map(|(_, array)| array), &record.name)
        .map_err(|e| Error::new(ErrorKind::Line, "export the run", e.to_string()))?;
    for file in &mut workflow.files {
        file.size_bytes = match &file.location {
            Some(location) => sizes.get(location).copied(),
            None => sizes.get(&run_file(&file.name)).copied(),
        };
    }
    eyas_workflow::forget_places_of_results(&mut workflow);
    // Tasks of the workflow are numbered through the run's arrays.
    let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut n_before = 0;
    for (base, array) in log.arrays_of(run) {
        starts.insert(base, n_before);
        n_before += u64::from(array.n_tasks);
    }
    let mut used: BTreeSet<u32> = BTreeSet::new();
    for attempt in log.attempts.iter().filter(|a| a.run == run && a.how == How::Done) {
        let Some((base, start)) = starts.range(..=attempt.task.0).next_back() else { continue };
        let Some(task) = workflow.tasks.get_mut((start + attempt.task.0 - base) as usize) else { continue };
        let executor = &log.executors[attempt.executor as usize];
        used.insert(attempt.executor);
        let measured = &mut task.measured;
        measured.runtime_ns = Some(attempt.run_ns());
        measured.cpu_ns = Some(attempt.cpu_ns);
        measured.rss_bytes_max = Some(attempt.rss_bytes_max).filter(|bytes| *bytes > 0);
        measured.machine = Some(executor.name.clone());
    }
    let machine = |number: &u32| {
        let executor = &log.executors[*number as usize];
        Machine { name: executor.name.clone(), n_cores: Some(executor.slots) }
    };
    workflow.run = Some(Run {
        executed_at: wfformat::timestamp(record.opened.0),
        makespan_ns: record.ended.unwrap_or(log.last()).since_ns(record.opened),
        machines: used.iter().map(machine).collect(),
    });
    Ok(workflow)
}

/// What one dispatcher's log says of the sizes of files of `run`, by location.
fn read_sizes(dir: &Path, run: RunId, sizes: &mut FxHashMap<String, u64>) -> Result<(), Error> {
    // The locations that objects of this life have.
    let mut objects: FxHashMap<ObjectId, String> = FxHashMap::default();
    let find = |fold: &Fold, task: TaskId| -> Option<(Arc<TaskArray>, u32)> {
        let a = fold.tasks.find(task).filter(|a| fold.runs.whole_of(a.run) == run)?;
        Some((a.array.clone(), (task.0 - a.base) as u32))
    };
    let each = |fold: &Fold, entry: &Entry, _: Vec<Change<'_>>| match entry {
        Entry::Header(_) => objects.clear(),
        Entry::Out(_, Action::Assign { assignment, .. }) if assignment.run == run => {
            let Some((array, i)) = find(fold, assignment.task) else { return };
            for (input, (_, location)) in assignment.inputs.iter().zip(&array.template.inputs) {
                objects.entry(input.object).or_insert_with(|| array.fill(location, i));
            }
        }
        // The report of a rerun counts, too: its sizes are measured as well.
        Entry::In(_, Event::AttemptEnded { report, .. }) => {
            let Some((array, i)) = find(fold, report.task) else { return };
            for input in &report.inputs {
                if let Some(location) = objects.get(&input.object) {
                    sizes.insert(location.clone(), input.size_bytes);
                }
            }
            for output in &report.outputs {
                if let Some((_, location)) = array.template.outputs.get(output.output as usize) {
                    sizes.insert(array.fill(location, i), output.size_bytes);
                }
            }
        }
        _ => {}
    };
    Fold::whole().read(dir, Fold::takes, each)?;
    Ok(())
}
