//! The logs of several dispatchers that shared one cluster, as one.
//!
//! In: the folders of the members, as far as they are at hand. Out: one [`RunLog`], to which each member adds its part:
//! a run has one number at all of them, and its tasks are spread over them.
//!
//! Each member counts tasks and executors on its own. Here the tasks of each come after those of the one before; an executor that went
//! from one dispatcher to another has a row for its time at each.
//!
//! Not here: which folders belong together (`eyas-cli`), the members' own replays.

use crate::error::{Error, ErrorKind};
use crate::explain::{TaskStory, story_from_dir};
use crate::fold::Fold;
use crate::lines::{Entry, Lines, name_of};
use crate::read::{RunLog, read};
use eyas_core::event::Event;
use eyas_core::group::Membership;
use eyas_terms::RunId;
use std::path::{Path, PathBuf};

/// Which member wrote the log in `dir`; `None`: there was one dispatcher.
pub fn membership(dir: &Path) -> Result<Option<Membership>, Error> {
    match Lines::open(dir)?.next_if(|_| false)? {
        Some(Entry::Header(header)) => Ok(header.config.group),
        _ => Ok(None),
    }
}

/// The run that was submitted last, of the logs in `dirs`.
pub fn newest_run(dirs: &[PathBuf]) -> Result<Option<RunId>, Error> {
    let mut newest = None;
    for dir in dirs {
        let mut fold = Fold::of_runs();
        fold.read(dir, Fold::takes_of_runs, |_, _, _| {})?;
        newest = newest.max(fold.runs.newest());
    }
    Ok(newest)
}

/// Reads the logs in `dirs`, at least one, as one.
pub fn read_group(dirs: &[PathBuf]) -> Result<RunLog, Error> {
    let mut logs = dirs.iter().map(|dir| read(dir)).collect::<Result<Vec<RunLog>, Error>>()?.into_iter();
    let mut all = logs.next().expect("a cluster has a dispatcher");
    logs.for_each(|log| all.join(log));
    Ok(all)
}

/// The story of a task of `run` from the logs in `dirs`, by default of the newest run that has a task of that name.
pub fn story_from_group(dirs: &[PathBuf], name: &str, run: Option<RunId>) -> Result<TaskStory, Error> {
    if dirs.len() > 1 && name.starts_with('#') {
        let context = "each dispatcher of a group numbers its own tasks; name the task by its id";
        return Err(Error::new(ErrorKind::NoTask, "find the task", context));
    }
    let mut newest: Option<TaskStory> = None;
    let mut unknown = None;
    for dir in dirs {
        match story_from_dir(dir, name, run) {
            Ok(story) if newest.as_ref().is_none_or(|n| n.run < story.run) => newest = Some(story),
            Ok(_) => {}
            Err(e) if e.kind == ErrorKind::NoTask => {
                unknown.get_or_insert(e);
            }
            Err(e) => return Err(e),
        }
    }
    let mut story = newest.ok_or_else(|| unknown.expect("a cluster has a dispatcher"))?;
    if dirs.len() > 1 {
        // Its inputs may have come from nodes of others; numbers of executors are the group's.
        for dir in dirs {
            name_executors(dir, &mut story)?;
        }
    }
    Ok(story)
}

fn name_executors(dir: &Path, story: &mut TaskStory) -> Result<(), Error> {
    let mut lines = Lines::open(dir)?;
    while let Some(entry) = lines.next_if(|line| name_of(line) == Some(b"executor_joined"))? {
        if let Entry::In(_, Event::ExecutorJoined { executor, offer }) = entry {
            story.executors.entry(executor.0).or_insert(offer.name);
        }
    }
    Ok(())
}
