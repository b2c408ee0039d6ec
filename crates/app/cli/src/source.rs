//! Where the answers about a run come from: a cluster that is up, or the logs of one that is over.

use crate::args::{JoinArgs, SourceArgs};
use crate::clusters::{self, Meant, describe};
use crate::{Exit, Fault};
use eyas_client::JoinFile;
use eyas_cluster::dirs::{dispatcher_dir, member_dirs};
use eyas_cluster::given;
use eyas_cluster::known::{Kind, KnownCluster};
use eyas_core::log::EVENTS_FILE;
use eyas_terms::RunId;
use eyas_text::{line_of, shown_path};
use eyas_wire::message::{ClusterStatus, LOG_LINES_LOST};
use std::path::{Path, PathBuf};

/// The dispatcher's folder of a run that is over: the given folder, or that of the last run.
pub fn ended_dir(dir: Option<&Path>) -> Result<PathBuf, Fault> {
    let dir = match dir {
        Some(dir) => dir.to_path_buf(),
        None => match clusters::known()?.newest() {
            Some(newest) => newest.dir,
            None => return Err(Fault::new(Exit::BadInput, "there is no run to tell of: none was made here")),
        },
    };
    for candidate in [dispatcher_dir(&dir), dir.clone()] {
        if candidate.join(EVENTS_FILE).exists() {
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
    Live(JoinFile),
    Ended(Vec<PathBuf>),
}

pub fn source(join: &JoinArgs, dir: Option<&Path>) -> Result<Source, Fault> {
    if dir.is_some() {
        return Ok(Source::Ended(ended_dirs(dir)?));
    }
    match clusters::find(join)? {
        Meant::Live(file) => Ok(Source::Live(file)),
        Meant::Ended(known) => source_of_log(&known),
    }
}

fn source_of(known: &KnownCluster) -> Result<Source, Fault> {
    match known.is_up() {
        true => Ok(Source::Live(known.join_file())),
        false => source_of_log(known),
    }
}

fn source_of_log(known: &KnownCluster) -> Result<Source, Fault> {
    if known.kind == Kind::Up {
        eyas_text::say!("note: {} is not up; this is what its log says", describe(known));
    }
    Ok(Source::Ended(ended_dirs(Some(&known.dir))?))
}

/// A command that names no run looks into so many clusters for its task.
const LOOKED_INTO_MAX: usize = 8;

/// Asks about a task of the named cluster and run; else, of the runs of this folder, the newest first, and then of the others, in the
/// order of [`eyas_cluster::known::KnownClusters::as_meant`], where it is first found. Errors: that of the first place, if it is nowhere.
pub fn of_task<T>(
    of: &SourceArgs,
    run: Option<RunId>,
    mut ask: impl FnMut(&Source, Option<RunId>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    if of.dir.is_some() || of.join.join.is_some() {
        return ask(&source(&of.join, of.dir.as_deref())?, run);
    }
    let mut first = None;
    for known in
        clusters::known()?.as_meant().into_iter().filter(KnownCluster::can_be_asked).take(LOOKED_INTO_MAX)
    {
        let source = source_of(&known)?;
        let runs = match run {
            Some(run) => vec![Some(run)],
            None => known.runs_from_here().into_iter().map(Some).chain([None]).collect(),
        };
        // The last try is of all runs there, so its error is the one to show.
        let mut refused = None;
        for run in runs {
            match ask(&source, run) {
                Err(fault) if fault.exit == Exit::BadInput => refused = Some(fault),
                found => {
                    if first.is_some() && found.is_ok() && run.is_none() {
                        eyas_text::say!("note: this is {}", describe(&known));
                    }
                    return found;
                }
            }
        }
        first = first.or(refused);
    }
    Err(first.unwrap_or_else(clusters::none_up))
}

/// The newest run of the log in the dispatcher's folder `dir` that was given from the working folder.
pub fn run_of_here(dir: &Path) -> Option<RunId> {
    given::from_here(dir).first().copied()
}

/// The folders of the dispatchers whose logs cover the meant cluster or run, whether they are up or not.
pub fn log_dirs(join: &JoinArgs, dir: Option<&Path>) -> Result<Vec<PathBuf>, Fault> {
    match source(join, dir)? {
        Source::Ended(dirs) => Ok(say_lost(dirs)),
        // The log is on the dispatcher's machine. Elsewhere its folder does not exist, which the reader
        // reports.
        Source::Live(file) => Ok(say_lost(member_dirs(file.read()?.dir().to_path_buf()))),
    }
}

/// Says what the logs in these folders lack, if anything, and gives the folders. What is wrong with a log is its reader's to say.
pub fn say_lost(dirs: Vec<PathBuf>) -> Vec<PathBuf> {
    if let Ok(Some(lost)) = eyas_report::lost_lines(&dirs) {
        eyas_text::say!("warning: {}", eyas_report::lost_sentence(&lost));
    }
    dirs
}

/// Says what the log of a cluster that is up lacks by now, if anything, though not yet in the log.
pub fn say_lost_by(status: &ClusterStatus) {
    for warning in status.warnings.iter().filter(|warning| warning.ends_with(LOG_LINES_LOST)) {
        eyas_text::say!("warning: {}: what is told here may be incomplete", line_of(warning));
    }
}
