//! Where the answers about a run come from: a cluster that is up, or the logs of one that is over.

use crate::args::JoinArgs;
use crate::clusters::{self, Kind, Meant};
use crate::dirs::{dispatcher_dir, member_dirs};
use crate::{Exit, Fault};
use eyas_text::shown_path;
use eyas_wire::identity::Join;
use std::path::{Path, PathBuf};

/// The dispatcher's folder of a run that is over: the given folder, or that of the last run.
pub fn ended_dir(dir: Option<&Path>) -> Result<PathBuf, Fault> {
    let dir = match dir {
        Some(dir) => dir.to_path_buf(),
        None => match clusters::newest()? {
            Some(newest) => newest.dir,
            None => return Err(Fault::new(Exit::BadInput, "there is no run to tell of: none was made here")),
        },
    };
    for candidate in [dispatcher_dir(&dir), dir.clone()] {
        if candidate.join(eyas_core::log::EVENTS_FILE).exists() {
            return Ok(candidate);
        }
    }
    let message = format!("there is no event log in {}", shown_path(&dir));
    Err(Fault::new(Exit::BadInput, message).hint("name the folder that a run was given with --dir"))
}

/// The dispatchers' folders of a run that is over, like [`ended_dir`]; if the folder of a single dispatcher
/// is named, only that folder.
pub fn ended_dirs(dir: Option<&Path>) -> Result<Vec<PathBuf>, Fault> {
    let first = ended_dir(dir)?;
    match dir == Some(first.as_path()) {
        true => Ok(vec![first]),
        false => Ok(member_dirs(first)),
    }
}

/// The source of answers about a task: the join file of a cluster, or the dispatchers' folders when the run
/// is over and its log is read. An explicit `--dir` means the log in it, an explicit `--join` that cluster.
pub enum Source {
    Live(PathBuf),
    Ended(Vec<PathBuf>),
}

pub fn source(join: &JoinArgs, dir: Option<&Path>) -> Result<Source, Fault> {
    if dir.is_some() {
        return Ok(Source::Ended(ended_dirs(dir)?));
    }
    match clusters::find(join)? {
        Meant::Live(join) => Ok(Source::Live(join)),
        Meant::Ended(known) => {
            if known.kind == Kind::Up {
                eyas_text::say!("note: {} is not up; this is what its log says", known.describe());
            }
            Ok(Source::Ended(ended_dirs(Some(&known.dir))?))
        }
    }
}

/// The folders of the dispatchers whose logs cover the meant cluster or run, whether they are up or not.
pub fn log_dirs(join: &JoinArgs, dir: Option<&Path>) -> Result<Vec<PathBuf>, Fault> {
    match source(join, dir)? {
        Source::Ended(dirs) => Ok(dirs),
        // The log is on the dispatcher's machine. Elsewhere its folder does not exist, which the reader
        // reports.
        Source::Live(join) => {
            let join = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?;
            Ok(member_dirs(PathBuf::from(join.dir)))
        }
    }
}
