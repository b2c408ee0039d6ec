//! The tasks of a run as they would have been declared: what the programs of watched tasks read and made are their inputs and outputs.
//!
//! Of a task that was tried several times, the attempt that ended well counts. A file that a program only asked about, and did not open, is none of its inputs.

use crate::error::{Error, ErrorKind};
use crate::fold::Fold;
use crate::lines::{Entry, name_of};
use eyas_core::event::{Action, Event};
use eyas_terms::array::{TaskSpec, WATCH_VARIABLE};
use eyas_terms::needs::Needs;
use eyas_terms::{AttemptNo, ObjectId, Outcome, RunId, TaskId};
use eyas_text::{shown, shown_path};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What one attempt was seen to do.
#[derive(Default)]
struct SeenFiles {
    named: BTreeMap<ObjectId, String>,
    read: BTreeSet<String>,
    made: Vec<String>,
    is_done: bool,
}

/// The tasks of `run` in the log of the dispatcher's directory `dir`, in their order, each with what it needs of a node.
/// `name_below`: the name of a location below another one, which is a directory; `None`: it is not below it.
///
/// # Errors
/// There is no such log or run, or a watched task of it did not end well.
pub fn declared(
    dir: &Path,
    run: RunId,
    name_below: impl Fn(&str, &str) -> Option<String>,
) -> Result<Vec<(TaskSpec, Option<Box<Needs>>)>, Error> {
    let mut seen: BTreeMap<(TaskId, AttemptNo), SeenFiles> = BTreeMap::new();
    let mut done: BTreeMap<TaskId, SeenFiles> = BTreeMap::new();
    let is_wanted = |line: &[u8]| {
        let names: [&[u8]; 2] = [b"add_input", b"files_made"];
        Fold::takes(line) || name_of(line).is_some_and(|name| names.contains(&name))
    };
    let mut fold = Fold::whole();
    fold.read(dir, is_wanted, |_, entry, _| match entry {
        Entry::Out(_, Action::AddInput { task, attempt, location, input: Ok(input), .. }) => {
            seen.entry((*task, *attempt)).or_default().named.insert(input.object, location.clone());
        }
        Entry::In(_, Event::FilesMade { task, attempt, locations, .. }) => {
            seen.entry((*task, *attempt)).or_default().made.clone_from(locations);
        }
        Entry::In(_, Event::AttemptEnded { report, .. }) => {
            let mut of = seen.remove(&(report.task, report.attempt)).unwrap_or_default();
            let named = report.inputs.iter().filter_map(|input| of.named.get(&input.object));
            of.read = named.cloned().collect();
            of.is_done = report.outcome == Outcome::Done;
            if of.is_done {
                done.insert(report.task, of);
            }
        }
        _ => {}
    })?;
    let failed = |message: String| Error::new(ErrorKind::NoTask, "write the tasks of the run", message);
    if !fold.runs.is_accepted(run) {
        return Err(failed(format!("there is no run {run} in {}", shown_path(dir))));
    }
    let mut tasks = vec![];
    for array in fold.tasks.arrays().iter().filter(|array| fold.runs.whole_of(array.run) == run) {
        for i in 0..array.array.n_tasks {
            let mut spec = array.array.expand(i);
            if let Some(at) = spec.watched_at().map(|at| at.to_owned()) {
                let task = TaskId(array.base + u64::from(i));
                let of = done.remove(&task).ok_or_else(|| {
                    failed(format!(
                        "task {} did not end well, so it is not known which files it needs",
                        shown(&spec.id)
                    ))
                })?;
                let named = |location: &String| Some((name_below(location, &at)?, location.clone()));
                spec.inputs.extend(of.read.iter().filter_map(named));
                spec.outputs.extend(of.made.iter().filter_map(named));
                spec.env.retain(|(name, _)| name != WATCH_VARIABLE);
            }
            tasks.push((spec, array.array.needs.clone()));
        }
    }
    Ok(tasks)
}
