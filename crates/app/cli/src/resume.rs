//! `--resume` and `--dry-run`: finds the earlier run, leaves out what need not run again, and says why the rest runs.
//!
//! The decision itself is in [`eyas_client::resume`], and what earlier runs did in [`eyas_report::memo`]. Here is where the
//! logs of earlier runs are, and what the user gets to read.

use crate::print::{command_line, count, plural, size};
use crate::source::say_lost;
use crate::{Exit, Fault, dirs, runtimes};
use eyas_client::resume::{self, Decision, HomeReader, Tasks, Why, decide};
use eyas_client::{Client, JoinFile, Target};
use eyas_cluster::dirs::{dispatcher_dir, member_dirs};
use eyas_core::log::EVENTS_FILE;
use eyas_core::pattern::stage_of_task;
use eyas_report::memo::{CARRIED_FILE, Memo, Record};
use eyas_tasklist::TaskList;
use eyas_text::{shown, shown_path};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

// ---------------------------------------------------------------- the earlier run

/// The folder in which the links to the last runs of workflow files are.
fn links_dir() -> Result<PathBuf, Fault> {
    Ok(dirs::state_dir()?.join("workflows"))
}

/// Where the tasks of a run come from. A later run of the same tasks finds this run by it.
pub enum Origin {
    /// The file that was given, a task list or a workflow.
    File(PathBuf),
    /// `eyas map` in a folder, with a command and places of outputs. The files that it is over may change.
    Map { folder: PathBuf, command: Vec<String>, out: Vec<String> },
}

impl Origin {
    /// The name of a run of these tasks, for users.
    pub fn name(&self) -> String {
        match self {
            Origin::File(path) => path.display().to_string(),
            Origin::Map { command, .. } => command.join(" "),
        }
    }

    /// The origin's name in messages.
    fn called(&self) -> String {
        match self {
            Origin::File(path) => shown_path(path).to_string(),
            Origin::Map { .. } => "this map".to_owned(),
        }
    }

    /// The link to the dispatcher's folder of the last run of these tasks; `None` for a pipe.
    fn link(&self) -> Result<Option<PathBuf>, Fault> {
        let mut hasher = blake3::Hasher::new();
        match self {
            Origin::File(path) => {
                let Some(path) = path.canonicalize().ok().filter(|path| path.is_file()) else {
                    return Ok(None);
                };
                hasher.update(path.as_os_str().as_encoded_bytes());
            }
            Origin::Map { folder, command, out } => {
                // No path contains a NUL byte.
                hasher.update(folder.as_os_str().as_encoded_bytes());
                for (mark, words) in [(b"\0\0command", command), (b"\0\0outputs", out)] {
                    hasher.update(mark);
                    for word in words {
                        hasher.update(b"\0");
                        hasher.update(word.as_bytes());
                    }
                }
            }
        }
        Ok(Some(links_dir()?.join(&hasher.finalize().to_hex()[..32])))
    }
}

/// Remembers that the log of the last run of `origin` is in `dir`, a dispatcher's folder. Links to runs whose
/// folders are gone are removed.
fn remember(origin: &Origin, dir: &Path) -> Result<(), Fault> {
    let Some(link) = origin.link()? else { return Ok(()) };
    let links = links_dir()?;
    std::fs::create_dir_all(&links)?;
    for entry in std::fs::read_dir(&links)?.flatten() {
        if !entry.path().exists() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let fresh = link.with_extension(std::process::id().to_string());
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(dir, &fresh)?;
    std::fs::rename(fresh, link)?;
    Ok(())
}

fn has_records(dir: &Path) -> bool {
    dir.join(EVENTS_FILE).exists() || dir.join(CARRIED_FILE).exists()
}

/// The dispatcher's folder of the run to continue: the given folder, else that of the cluster with the join
/// file `join`, else that of the last run of the same tasks.
fn earlier_dir(
    origin: &Origin,
    given: Option<&Path>,
    join: Option<&JoinFile>,
) -> Result<Option<PathBuf>, Fault> {
    if let Some(dir) = given {
        let found = [dispatcher_dir(dir), dir.to_path_buf()].into_iter().find(|dir| has_records(dir));
        return found.map(Some).ok_or_else(|| {
            let message = format!("there is no run to resume in {}: it has no event log", shown_path(dir));
            Fault::new(Exit::BadInput, message)
                .hint("name the folder that the earlier run was given with --dir, or leave DIR out for the last run of this file")
        });
    }
    let target = join.and_then(|file| file.read().ok());
    if let Some(target) = target.filter(|target| has_records(target.dir())) {
        complete_log(&target);
        return Ok(Some(target.dir().to_path_buf()));
    }
    let Some(link) = origin.link()? else {
        return Err(Fault::new(Exit::BadInput, "a task list that comes through a pipe has no earlier run")
            .hint("name the earlier run's folder: --resume DIR"));
    };
    Ok(link.canonicalize().ok().filter(|dir| has_records(dir)))
}

/// A running dispatcher writes its log a moment late, unless it is asked for its status. If that fails, the
/// tasks of the last moment run again.
fn complete_log(target: &Target) {
    let _ = runtimes::client_runtime()
        .block_on(async { Client::connect(target).await.ok()?.status().await.ok() });
}

// ---------------------------------------------------------------- for commands

/// The user's request besides the tasks.
pub struct Asked<'a> {
    pub origin: &'a Origin,
    /// `--resume`, with its folder.
    pub resume: Option<Option<&'a Path>>,
    pub dry_run: bool,
    /// Join file of the cluster that the run is for; `None` for one of its own.
    pub join: Option<&'a JoinFile>,
}

/// The tasks that are left to do.
pub enum Left {
    /// Nothing is left; all messages have been printed.
    Nothing,
    /// This list has to be submitted.
    Run(TaskList, EarlierResults),
}

/// Results of earlier runs that a run uses.
#[derive(Default)]
pub struct EarlierResults {
    records: Vec<Record>,
    /// The dispatcher's folder that has the log of those runs.
    log_dir: Option<PathBuf>,
}

impl EarlierResults {
    /// Writes the results into the dispatcher's folder `dir`, where a later run looks for them, and remembers
    /// that the log of the last run of `origin` is there.
    pub fn leave(&self, origin: &Origin, dir: &Path) -> Result<(), Fault> {
        let is_there =
            self.log_dir.as_ref().is_some_and(|log| log.canonicalize().ok() == dir.canonicalize().ok());
        if !is_there && !self.records.is_empty() {
            Memo::carry(dir, &self.records)?;
        }
        remember(origin, dir)
    }
}

/// Leaves out tasks that need not run, or only reports them.
pub fn what_is_left(list: TaskList, asked: &Asked) -> Result<Left, Fault> {
    let n_tasks = list.n_tasks;
    let Some(given) = asked.resume else {
        if asked.dry_run {
            print_decision(&list, &Decision::all(&list, Why::Asked), None)?;
            return Ok(Left::Nothing);
        }
        return Ok(Left::Run(list, EarlierResults::default()));
    };
    let dir = earlier_dir(asked.origin, given, asked.join)?;
    let memo = match &dir {
        Some(dir) => Memo::read_group(&say_lost(member_dirs(dir.clone())))?,
        None => Memo::default(),
    };
    let home = HomeReader::new(say_progress).map_err(|e| Fault::new(Exit::Other, e))?;
    let decision = decide(&list, &memo, |locations| home.look_at(locations));
    if asked.dry_run {
        print_decision(&list, &decision, dir.as_deref())?;
        return Ok(Left::Nothing);
    }
    let n_running = decision.n_running();
    match &dir {
        None => eyas_text::say!("no earlier run of {} is known here: all tasks run", asked.origin.called()),
        Some(_) if n_running == 0 => {
            eyas_text::say!("all {} are up to date: nothing to do", plural(n_tasks, "task"));
            return Ok(Left::Nothing);
        }
        Some(_) => eyas_text::say!(
            "{} of {} are up to date, {} to run (--dry-run says why)",
            count(n_tasks - n_running),
            plural(n_tasks, "task"),
            count(n_running)
        ),
    }
    let origin = asked.origin.name();
    let shorter = resume::shorten(list, &decision, &origin)?;
    Ok(Left::Run(shorter, EarlierResults { records: decision.known, log_dir: dir }))
}

fn say_progress(n_files: u64, n_bytes: u64) {
    eyas_text::say!("comparing what is at home: {} read, {}", plural(n_files, "file"), size(n_bytes));
}

/// Tasks of one stage that run for one reason.
struct Cause<'a> {
    stage: String,
    why: &'a Why,
    n_tasks: u64,
    others: FxHashSet<&'a str>,
}

/// Prints what would run, command by command, and then why, by stages.
fn print_decision(list: &TaskList, decision: &Decision, earlier: Option<&Path>) -> Result<(), Fault> {
    let tasks = Tasks::new(list);
    let mut causes: Vec<Cause> = vec![];
    let mut places: FxHashMap<(String, &str), usize> = FxHashMap::default();
    for (task, why) in decision.why.iter().enumerate() {
        let Some(why) = why else { continue };
        let (array, i) = tasks.at(task);
        let stage = stage_of_task(array, i);
        let place = *places.entry((stage.clone(), why.text())).or_insert_with(|| {
            causes.push(Cause { stage, why, n_tasks: 0, others: FxHashSet::default() });
            causes.len() - 1
        });
        let cause = &mut causes[place];
        cause.n_tasks += 1;
        if let Some(at) = why.location().filter(|at| Some(*at) != cause.why.location()) {
            cause.others.insert(at);
        }
    }
    let n_running = decision.n_running();
    let mut commands = std::io::BufWriter::new(eyas_text::raw_unless_terminal());
    for task in (0..tasks.n).filter(|task| decision.why[*task].is_some()) {
        writeln!(commands, "{}", command_line(&tasks.spec(task).command))?;
    }
    commands.flush()?;
    drop(commands);
    let mut out = eyas_text::stdout();
    match (earlier, n_running) {
        (Some(_), 0) => {
            writeln!(out, "all {} are up to date: nothing would run", plural(list.n_tasks, "task"))?
        }
        (_, _) => writeln!(
            out,
            "{} of {} would run, {} up to date",
            count(n_running),
            plural(list.n_tasks, "task"),
            count(list.n_tasks - n_running)
        )?,
    }
    for cause in causes {
        write!(out, "  {} of stage {}: ", plural(cause.n_tasks, "task"), shown(&cause.stage))?;
        write!(out, "{}", cause.why.text())?;
        match (cause.why.location(), cause.others.len()) {
            (None, _) => writeln!(out)?,
            (Some(at), 0) => writeln!(out, " ({})", shown(at))?,
            (Some(at), n) => writeln!(out, " ({} and {} more)", shown(at), count(n as u64))?,
        }
    }
    if let Some(dir) = earlier {
        writeln!(out, "compared with what {} tells", shown_path(dir))?;
    }
    Ok(())
}
