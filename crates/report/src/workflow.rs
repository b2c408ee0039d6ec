//! A run as a workflow: who read and wrote what, with the times and sizes that were measured.
//!
//! Times are those of the attempt that ended the task well, from start to exit of its program. The size of a file
//! is what the last attempt that read or wrote it saw. Tasks that did not end well are there without times. Results have
//! relative names: whoever runs the workflow again says where they go.
//!
//! The logs of several dispatchers that shared the run are read as one ([`crate::group`]). Each log is read twice: once as for every
//! report, once for sizes, which reports do without.

use crate::error::{Error, ErrorKind};
use crate::group::read_group;
use crate::lines::{Entry, Lines};
use crate::read::How;
use eyas_core::array::TaskArray;
use eyas_core::event::{Action, Event};
use eyas_core::location::run_file;
use eyas_core::types::*;
use eyas_text::shown_path;
use eyas_workflow::{Machine, Run, Workflow, from_arrays, wfformat};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run `wanted` (`None`: the newest) of the logs in the dispatchers' directories `dirs`, at least one.
pub fn workflow(dirs: &[PathBuf], wanted: Option<RunId>) -> Result<Workflow, Error> {
    let log = read_group(dirs)?;
    let is_there = |run: &RunId| log.runs.get(run).is_some_and(|r| r.committed.is_some() && !r.aborted);
    let run = match wanted {
        Some(run) => Some(run).filter(is_there),
        None => log.runs.keys().rev().find(|run| is_there(run)).copied(),
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

type Arrays = BTreeMap<u64, Arc<TaskArray>>;

/// What one dispatcher's log says of the sizes of files of `run`, by location.
fn read_sizes(dir: &Path, run: RunId, sizes: &mut FxHashMap<String, u64>) -> Result<(), Error> {
    // By the number of their first task; those added to the run among them.
    let mut arrays = Arrays::new();
    let mut added: BTreeSet<RunId> = BTreeSet::new();
    let mut next_task = 0;
    // Of this life: what stands behind an object's number.
    let mut objects: FxHashMap<ObjectId, String> = FxHashMap::default();
    let mut lines = Lines::open(dir)?;
    let find = |arrays: &Arrays, task: TaskId| -> Option<(Arc<TaskArray>, u32)> {
        let (base, array) = arrays.range(..=task.0).next_back()?;
        let i = u32::try_from(task.0 - base).ok().filter(|i| *i < array.n_tasks)?;
        Some((array.clone(), i))
    };
    while let Some(entry) = lines.next_entry()? {
        match entry {
            Entry::Header(_) => {
                next_task = 0;
                objects.clear();
            }
            Entry::In(_, Event::RunOpened { run: number, into: Some(whole), .. }) if whole == run => {
                added.insert(number);
            }
            Entry::In(_, Event::TasksNumbered { n_tasks }) => next_task = next_task.max(n_tasks),
            Entry::In(_, Event::ArrayAdded { run: of, array }) => {
                let base = next_task;
                next_task += u64::from(array.n_tasks);
                if of == run || added.contains(&of) {
                    arrays.insert(base, array);
                }
            }
            Entry::Out(_, Action::Assign { assignment, .. }) if assignment.run == run => {
                let Some((array, i)) = find(&arrays, assignment.task) else { continue };
                for (input, (_, location)) in assignment.inputs.iter().zip(&array.template.inputs) {
                    objects.entry(input.object).or_insert_with(|| array.fill(location, i));
                }
            }
            Entry::In(_, Event::AttemptEnded { report, .. }) => {
                let Some((array, i)) = find(&arrays, report.task) else { continue };
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
        }
    }
    Ok(())
}
