//! Which tasks have to run, and why: decided by what earlier runs made from which inputs, and by the bytes at
//! home now.
//!
//! In: a task list, the [`Memo`] of earlier runs, and a way to examine files at home. Out: a [`Decision`],
//! from which the shorter list that is submitted follows.
//!
//! A task is *up to date* when an earlier run did exactly the same (command, declared environment, names of
//! outputs, names and bytes of inputs) and the outputs that it brought home are there with the bytes that
//! they had then. After that, the decision goes back up: a file that stays on the nodes is gone after its
//! run, so the maker of such a file runs again if a task that has to run reads the file.
//!
//! Invariants:
//!   1. time stamps decide nothing, digests do;
//!   2. in case of doubt (not recorded, cannot be read) the task runs;
//!   3. a task that reads what a running task makes runs, too, even if the same bytes may result;
//!   4. every `run:` file that the shorter list reads is written in it.
//!
//! Files at home are read only as far as they can influence the decision: not those of a task that runs
//! anyhow because of its command or because of earlier tasks.
//!
//! Not here: what earlier runs did (`eyas_report::memo`), submitting and following (`running`, `follow`).

use crate::print::{command_line, count, plural, size};
use crate::{Exit, Fault, dirs, runtimes};
use eyas_client::Client;
use eyas_core::array::TaskSpec;
use eyas_core::log::EVENTS_FILE;
use eyas_core::pattern::stage_of_task;
use eyas_core::types::Digest;
use eyas_report::memo::{CARRIED_FILE, Ended, Memo, Recipe, Record};
use eyas_storage::{ErrorKind, Homes, HomesConfig, Location};
use eyas_tasklist::TaskList;
use eyas_text::{shown, shown_path};
use eyas_wire::identity::Join;
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Files at home that are read at the same time.
const STREAMS: usize = 8;
/// Tasks that are unfolded at the same time.
const TASKS_AT_ONCE: usize = 8192;
/// How often a long reading of files is reported.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Why a task runs. The strings are locations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The user did not ask for earlier results.
    Asked,
    NoEarlierRun,
    New,
    NotEnded,
    Failed,
    Cancelled,
    Command,
    Environment,
    OutputNames,
    InputNames,
    Input(String),
    InputMissing(String),
    InputUnreadable(String),
    /// The earlier run did not record which bytes it read at this location.
    NotRecorded(String),
    OutputMissing(String),
    OutputUnreadable(String),
    OutputOther(String),
    /// The task reads this file, which a running task makes.
    ReadsNew(String),
    /// The task makes this file, which stays on the nodes, and a running task reads it.
    Needed(String),
    /// The task may add tasks, which are not known before.
    Dynamic,
    /// The task makes this file, which stays on the nodes, and added tasks may read it.
    MayBeNeeded(String),
}

impl Why {
    fn text(&self) -> &'static str {
        match self {
            Why::Asked => "all tasks run without --resume",
            Why::NoEarlierRun => "there is no earlier run",
            Why::New => "not in the earlier run",
            Why::NotEnded => "the earlier run did not come to its end",
            Why::Failed => "failed in the earlier run",
            Why::Cancelled => "cancelled in the earlier run",
            Why::Command => "the command changed",
            Why::Environment => "the declared environment changed",
            Why::OutputNames => "outputs were added, left out or renamed",
            Why::InputNames => "inputs were added, left out or renamed",
            Why::Input(_) => "an input changed",
            Why::InputMissing(_) => "an input is missing",
            Why::InputUnreadable(_) => "an input cannot be read",
            Why::NotRecorded(_) => "the earlier run did not record which bytes it read",
            Why::OutputMissing(_) => "an output is missing",
            Why::OutputUnreadable(_) => "an output cannot be read",
            Why::OutputOther(_) => "an output is not what the task made",
            Why::ReadsNew(_) => "an input is made by a task that runs",
            Why::Needed(_) => "a task that runs reads what it leaves on the nodes",
            Why::Dynamic => "it may add tasks to the run",
            Why::MayBeNeeded(_) => "tasks that are added may read what it leaves on the nodes",
        }
    }

    fn location(&self) -> Option<&str> {
        match self {
            Why::Input(at)
            | Why::InputMissing(at)
            | Why::InputUnreadable(at)
            | Why::NotRecorded(at)
            | Why::OutputMissing(at)
            | Why::OutputUnreadable(at)
            | Why::OutputOther(at)
            | Why::ReadsNew(at)
            | Why::Needed(at)
            | Why::MayBeNeeded(at) => Some(at),
            _ => None,
        }
    }
}

/// The file at a location at home.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Found {
    Bytes(Digest),
    Missing,
    /// The file may exist, but cannot be read.
    Unreadable,
}

/// The tasks of a list by their position in it.
struct Tasks<'a> {
    list: &'a TaskList,
    /// For each array, the position of its first task.
    starts: Vec<usize>,
    n: usize,
}

impl<'a> Tasks<'a> {
    fn new(list: &'a TaskList) -> Tasks<'a> {
        let mut n = 0;
        let mut starts = vec![];
        for array in &list.arrays {
            starts.push(n);
            n += array.n_tasks as usize;
        }
        Tasks { list, starts, n }
    }

    fn at(&self, task: usize) -> (&'a eyas_core::array::TaskArray, u32) {
        let a = self.starts.partition_point(|start| *start <= task) - 1;
        (&self.list.arrays[a], (task - self.starts[a]) as u32)
    }

    fn spec(&self, task: usize) -> TaskSpec {
        let (array, i) = self.at(task);
        array.expand(i)
    }

    /// Calls `f` with each task and the location of each of its inputs, or outputs.
    fn for_each_file(&self, inputs: bool, mut f: impl FnMut(usize, &str)) {
        let mut text = String::new();
        for (array, start) in self.list.arrays.iter().zip(&self.starts) {
            let files = if inputs { &array.template.inputs } else { &array.template.outputs };
            for i in 0..array.n_tasks {
                for (_, location) in files {
                    text.clear();
                    array.fill_into(location, i, &mut text);
                    f(start + i as usize, &text);
                }
            }
        }
    }
}

/// For each task of a list, why it runs; `None` if it is up to date.
pub struct Decision<'a> {
    pub why: Vec<Option<Why>>,
    /// Records of tasks that were done in earlier runs.
    pub known: Vec<&'a Record>,
}

impl Decision<'_> {
    fn all(list: &TaskList, why: Why) -> Decision<'static> {
        Decision { why: vec![Some(why); list.n_tasks as usize], known: vec![] }
    }

    pub fn n_running(&self) -> u64 {
        self.why.iter().flatten().count() as u64
    }
}

/// What `look` found at home; each location is examined once.
struct AtHome<F> {
    look: F,
    found: FxHashMap<String, Found>,
}

impl<F: Fn(&[String]) -> Vec<Found>> AtHome<F> {
    fn look_at<'a>(&mut self, locations: impl Iterator<Item = &'a str>) {
        let fresh: FxHashSet<&str> = locations.filter(|at| !self.found.contains_key(*at)).collect();
        let mut fresh: Vec<String> = fresh.into_iter().map(str::to_owned).collect();
        fresh.sort();
        let found = (self.look)(&fresh);
        self.found.extend(fresh.into_iter().zip(found));
    }
}

/// Decides which tasks have to run. `look` examines locations at home.
pub fn decide<'a>(list: &TaskList, memo: &'a Memo, look: impl Fn(&[String]) -> Vec<Found>) -> Decision<'a> {
    if memo.is_empty() {
        return Decision::all(list, Why::NoEarlierRun);
    }
    let tasks = Tasks::new(list);
    let mut writers: FxHashMap<String, usize> = FxHashMap::default();
    tasks.for_each_file(false, |task, location| {
        writers.insert(location.to_owned(), task);
    });
    let order = order(&tasks, &writers);
    let mut home = AtHome { look, found: FxHashMap::default() };
    let mut decision = Decision { why: vec![None; tasks.n], known: vec![] };
    // The outputs of up-to-date tasks, by location.
    let mut made: FxHashMap<String, Digest> = FxHashMap::default();

    for some in order.iter().flat_map(|level| level.chunks(TASKS_AT_ONCE)) {
        let mut open: Vec<(usize, TaskSpec, Recipe)> = vec![];
        for &task in some {
            let spec = tasks.spec(task);
            let recipe = Recipe::of(&spec);
            let runs = |(_, at): &&(String, String)| {
                writers.get(at).is_some_and(|writer| decision.why[*writer].is_some())
            };
            decision.why[task] = match spec.inputs.iter().find(runs) {
                _ if !memo.knows(&recipe) => Some(what_changed(memo, &spec, &recipe, None)),
                _ if spec.dynamic => Some(Why::Dynamic),
                Some((_, at)) => Some(Why::ReadsNew(at.clone())),
                None => {
                    open.push((task, spec, recipe));
                    None
                }
            };
        }
        let inputs = open.iter().flat_map(|(_, spec, _)| &spec.inputs).map(|(_, at)| at.as_str());
        home.look_at(inputs.filter(|at| !writers.contains_key(*at)));

        let mut likely = vec![];
        for (task, spec, recipe) in open {
            let digest_of = |at: &String| match made.get(at) {
                Some(digest) => Ok(*digest),
                None => match home.found[at] {
                    Found::Bytes(digest) => Ok(digest),
                    Found::Missing => Err(Why::InputMissing(at.clone())),
                    Found::Unreadable => Err(Why::InputUnreadable(at.clone())),
                },
            };
            let digests: Result<Vec<Digest>, Why> = spec.inputs.iter().map(|(_, at)| digest_of(at)).collect();
            let digests = match digests {
                Ok(digests) => digests,
                Err(why) => {
                    decision.why[task] = Some(why);
                    continue;
                }
            };
            let names = spec.inputs.iter().map(|(name, _)| name.as_str());
            let key = recipe.key(names.zip(digests.iter().copied()));
            match memo.find(key).next() {
                None => decision.why[task] = Some(what_changed(memo, &spec, &recipe, Some(&digests))),
                Some(_) => likely.push((task, spec, key)),
            }
        }
        let outputs = likely.iter().flat_map(|(_, spec, _)| &spec.outputs).map(|(_, at)| at.as_str());
        home.look_at(outputs.filter(|at| !stays(at)));

        for (task, spec, key) in likely {
            // If several tasks did the same, take this task's own record first.
            let (own, others): (Vec<&Record>, Vec<&Record>) = memo.find(key).partition(|r| r.id == spec.id);
            let mut first_miss = None;
            let fits =
                own.into_iter().chain(others).find(|record| match is_there(&spec, record, &home.found) {
                    Ok(()) => true,
                    Err(why) => {
                        first_miss.get_or_insert(why);
                        false
                    }
                });
            match fits {
                Some(record) => {
                    for (name, at) in &spec.outputs {
                        let (_, digest) =
                            record.outputs.iter().find(|(n, _)| n == name).expect("it is there");
                        made.insert(at.clone(), *digest);
                    }
                    decision.known.push(record);
                }
                None => decision.why[task] = first_miss,
            }
        }
    }

    // The tasks that dynamic tasks add are not known yet, so all files that stay on the nodes must be
    // available to them.
    if list.arrays.iter().any(|array| array.template.dynamic) {
        tasks.for_each_file(false, |task, at| {
            if stays(at) && decision.why[task].is_none() {
                decision.why[task] = Some(Why::MayBeNeeded(at.to_owned()));
            }
        });
    }
    // Back up: makers of files that stay on the nodes and are read again.
    for &task in order.iter().rev().flatten() {
        if decision.why[task].is_none() {
            continue;
        }
        for (_, at) in tasks.spec(task).inputs {
            if stays(&at)
                && let Some(&writer) = writers.get(&at)
                && decision.why[writer].is_none()
            {
                decision.why[writer] = Some(Why::Needed(at));
            }
        }
    }
    decision
}

/// Whether the file at `at`, as users write it, stays on the nodes.
fn stays(at: &str) -> bool {
    eyas_core::Location::of(at).stays()
}

/// Whether all outputs of `record` are where `spec` has them.
fn is_there(spec: &TaskSpec, record: &Record, found: &FxHashMap<String, Found>) -> Result<(), Why> {
    for (name, at) in &spec.outputs {
        let Some((_, made)) = record.outputs.iter().find(|(n, _)| n == name) else {
            return Err(Why::OutputNames);
        };
        if stays(at) {
            continue;
        }
        match &found[at] {
            Found::Bytes(digest) if digest == made => {}
            Found::Bytes(_) => return Err(Why::OutputOther(at.clone())),
            Found::Missing => return Err(Why::OutputMissing(at.clone())),
            Found::Unreadable => return Err(Why::OutputUnreadable(at.clone())),
        }
    }
    Ok(())
}

/// Why a task without a matching record differs from the earlier task of the same name. `digests`: those of
/// its inputs, if they are known.
fn what_changed(memo: &Memo, spec: &TaskSpec, recipe: &Recipe, digests: Option<&[Digest]>) -> Why {
    let Some(last) = memo.last_of(&spec.id) else { return Why::New };
    match last.ended {
        Ended::Not => return Why::NotEnded,
        Ended::Failed => return Why::Failed,
        Ended::Cancelled => return Why::Cancelled,
        Ended::Well => {}
    }
    if last.recipe.command != recipe.command {
        return Why::Command;
    }
    if last.recipe.env != recipe.env {
        return Why::Environment;
    }
    if last.recipe.outputs != recipe.outputs {
        return Why::OutputNames;
    }
    let read: FxHashMap<&str, Option<Digest>> =
        last.inputs.iter().map(|(name, digest)| (name.as_str(), *digest)).collect();
    if read.len() != spec.inputs.len()
        || spec.inputs.iter().any(|(name, _)| !read.contains_key(name.as_str()))
    {
        return Why::InputNames;
    }
    for (n, (name, at)) in spec.inputs.iter().enumerate() {
        match read[name.as_str()] {
            None => return Why::NotRecorded(at.clone()),
            Some(digest) if digests.is_some_and(|now| now[n] != digest) => return Why::Input(at.clone()),
            Some(_) => {}
        }
    }
    Why::New
}

/// The tasks by level: tasks of one level read only what tasks of earlier levels write. The list has no
/// circles.
fn order(tasks: &Tasks, writers: &FxHashMap<String, usize>) -> Vec<Vec<usize>> {
    let mut edges: Vec<(u32, u32)> = vec![];
    tasks.for_each_file(true, |task, location| {
        if let Some(&writer) = writers.get(location) {
            edges.push((writer as u32, task as u32));
        }
    });
    edges.sort_unstable();
    edges.dedup();
    let mut n_waiting = vec![0u32; tasks.n];
    edges.iter().for_each(|(_, reader)| n_waiting[*reader as usize] += 1);
    let mut levels: Vec<Vec<usize>> = vec![];
    let mut level: Vec<usize> = (0..tasks.n).filter(|task| n_waiting[*task] == 0).collect();
    while !level.is_empty() {
        let mut next = vec![];
        for &task in &level {
            let from = edges.partition_point(|(writer, _)| (*writer as usize) < task);
            for (_, reader) in edges[from..].iter().take_while(|(writer, _)| *writer as usize == task) {
                n_waiting[*reader as usize] -= 1;
                if n_waiting[*reader as usize] == 0 {
                    next.push(*reader as usize);
                }
            }
        }
        next.sort_unstable();
        levels.push(std::mem::replace(&mut level, next));
    }
    levels
}

/// The tasks that run, as a list of their own; the whole list if all run.
fn shorter(list: TaskList, decision: &Decision, origin: &str) -> Result<TaskList, Fault> {
    if decision.n_running() == list.n_tasks {
        return Ok(list);
    }
    let tasks = Tasks::new(&list);
    let running = (0..tasks.n).filter(|task| decision.why[*task].is_some());
    // What a task needs beside whole cpus and memory stands at its array.
    let running = running.map(|task| (tasks.spec(task), tasks.at(task).0.needs.clone()));
    Ok(eyas_tasklist::fold_tasks(running, Path::new("/"), origin)?)
}

// ---------------------------------------------------------------- home

/// Reads files at home, several at once, and reports it if that takes long.
struct HomeReader {
    homes: Homes,
    n_files: AtomicU64,
    n_bytes: AtomicU64,
    last_report: Mutex<Instant>,
}

impl HomeReader {
    fn new() -> Result<HomeReader, Fault> {
        let homes = Homes::new(HomesConfig::default()).map_err(|e| Fault::new(Exit::Other, e))?;
        let last_report = Mutex::new(Instant::now());
        Ok(HomeReader { homes, n_files: AtomicU64::new(0), n_bytes: AtomicU64::new(0), last_report })
    }

    fn look_at(&self, locations: &[String]) -> Vec<Found> {
        let next = AtomicUsize::new(0);
        let found: Vec<Mutex<Found>> = locations.iter().map(|_| Mutex::new(Found::Missing)).collect();
        let work = || {
            let mut buffer = vec![0; 256 << 10];
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(location) = locations.get(n) else { break };
                *found[n].lock().expect("no holder panics") = self.digest_of(location, &mut buffer);
                self.n_files.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..STREAMS.min(locations.len()) {
                scope.spawn(work);
            }
            work();
        });
        found.into_iter().map(|one| one.into_inner().expect("no holder panics")).collect()
    }

    fn digest_of(&self, location: &str, buffer: &mut [u8]) -> Found {
        let missing = |e: &eyas_storage::Error| match e.kind() {
            ErrorKind::NotFound => Found::Missing,
            _ => Found::Unreadable,
        };
        let parsed = Location::parse(location, Path::new("/"));
        let mut opened = match parsed.and_then(|location| self.homes.open(&location, None)) {
            Ok(opened) => opened,
            Err(e) => return missing(&e),
        };
        let mut hasher = blake3::Hasher::new();
        loop {
            match opened.reader.read(buffer) {
                Ok(0) => return Found::Bytes(Digest(*hasher.finalize().as_bytes())),
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    self.n_bytes.fetch_add(n as u64, Ordering::Relaxed);
                    self.report_progress();
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Found::Unreadable,
            }
        }
    }

    fn report_progress(&self) {
        let Ok(mut last_report) = self.last_report.try_lock() else { return };
        if last_report.elapsed() >= REPORT_EVERY {
            *last_report = Instant::now();
            eyas_text::say!(
                "comparing what is at home: {} read, {}",
                plural(self.n_files.load(Ordering::Relaxed), "file"),
                size(self.n_bytes.load(Ordering::Relaxed))
            );
        }
    }
}

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
fn earlier_dir(origin: &Origin, given: Option<&Path>, join: Option<&Path>) -> Result<Option<PathBuf>, Fault> {
    if let Some(dir) = given {
        let found = [dirs::dispatcher_dir(dir), dir.to_path_buf()].into_iter().find(|dir| has_records(dir));
        return found.map(Some).ok_or_else(|| {
            let message = format!("there is no run to resume in {}: it has no event log", shown_path(dir));
            Fault::new(Exit::BadInput, message)
                .hint("name the folder that the earlier run was given with --dir, or leave DIR out for the last run of this file")
        });
    }
    if let Some(path) = join {
        let dir = Join::read(path).ok().map(|join| PathBuf::from(join.dir));
        if let Some(dir) = dir.filter(|dir| has_records(dir)) {
            complete_log(path);
            return Ok(Some(dir));
        }
    }
    let Some(link) = origin.link()? else {
        return Err(Fault::new(Exit::BadInput, "a task list that comes through a pipe has no earlier run")
            .hint("name the earlier run's folder: --resume DIR"));
    };
    Ok(link.canonicalize().ok().filter(|dir| has_records(dir)))
}

/// A running dispatcher writes its log a moment late, unless it is asked for its status. If that fails, the
/// tasks of the last moment run again.
fn complete_log(join: &Path) {
    let _ =
        runtimes::client_runtime().block_on(async { Client::connect(join).await.ok()?.status().await.ok() });
}

// ---------------------------------------------------------------- for commands

/// The user's request besides the tasks.
pub struct Asked<'a> {
    pub origin: &'a Origin,
    /// `--resume`, with its folder.
    pub resume: Option<Option<&'a Path>>,
    pub dry_run: bool,
    /// Join file of the cluster that the run is for; `None` for one of its own.
    pub join: Option<&'a Path>,
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
        Some(dir) => Memo::read_group(&dirs::member_dirs(dir.clone()))?,
        None => Memo::default(),
    };
    let home = HomeReader::new()?;
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
    let shorter = shorter(list, &decision, &origin)?;
    Ok(Left::Run(
        shorter,
        EarlierResults { records: decision.known.into_iter().cloned().collect(), log_dir: dir },
    ))
}

/// Tasks of one stage that run for one reason.
struct Group<'a> {
    stage: String,
    why: &'a Why,
    n_tasks: u64,
    others: FxHashSet<&'a str>,
}

/// Prints what would run, command by command, and then why, by stages.
fn print_decision(list: &TaskList, decision: &Decision, earlier: Option<&Path>) -> Result<(), Fault> {
    let tasks = Tasks::new(list);
    let mut groups: Vec<Group> = vec![];
    let mut places: FxHashMap<(String, &str), usize> = FxHashMap::default();
    for (task, why) in decision.why.iter().enumerate() {
        let Some(why) = why else { continue };
        let (array, i) = tasks.at(task);
        let stage = stage_of_task(array, i);
        let place = *places.entry((stage.clone(), why.text())).or_insert_with(|| {
            groups.push(Group { stage, why, n_tasks: 0, others: FxHashSet::default() });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.n_tasks += 1;
        if let Some(at) = why.location().filter(|at| Some(*at) != group.why.location()) {
            group.others.insert(at);
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
    for group in groups {
        write!(out, "  {} of stage {}: ", plural(group.n_tasks, "task"), shown(&group.stage))?;
        write!(out, "{}", group.why.text())?;
        match (group.why.location(), group.others.len()) {
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

#[cfg(test)]
mod tests;
