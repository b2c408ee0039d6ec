//! Which tasks have to run, and why: decided by what earlier runs made from which inputs, and by the bytes at
//! home now.
//!
//! In: a task list, the [`Memo`] of earlier runs, and a way to examine files at home. Out: a [`Decision`],
//! from which the shorter list that is submitted follows.
//!
//! A task is *up to date* when it did exactly the same in an earlier run (command, declared environment, names of
//! outputs, names and bytes of inputs), ended well, and the outputs that it brought home are there with the bytes
//! that they had then. Tasks and earlier ends are paired one to one, in module [`pairing`]: that an equal task ended
//! well says nothing about this one. After that, the decision goes back up: a file that stays on the nodes is gone after its
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
//! Not here: what earlier runs did (`eyas_report::memo`), and where their logs are.

mod home;
mod pairing;

pub use home::HomeReader;
use pairing::Pairing;

use eyas_report::memo::{Ended, Memo, Recipe, Record, digest_of_recipe};
use eyas_tasklist::TaskList;
use eyas_terms::Digest;
use eyas_terms::array::TaskSpec;
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::Path;

/// Tasks that are unfolded at the same time.
const TASKS_AT_ONCE: usize = 8192;

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
    /// The task's program is watched: which files it reads is not known before.
    Watched,
}

impl Why {
    /// The reason in words, without the location.
    pub fn text(&self) -> &'static str {
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
            Why::Watched => "its program is watched, and may read what has changed",
            Why::Dynamic => "it may add tasks to the run",
            Why::MayBeNeeded(_) => "tasks that are added may read what it leaves on the nodes",
        }
    }

    /// The file that is the reason.
    pub fn location(&self) -> Option<&str> {
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
pub enum FoundFile {
    Bytes(Digest),
    Missing,
    /// The file may exist, but cannot be read.
    Unreadable,
}

/// The tasks of a list by their position in it.
pub struct Tasks<'a> {
    list: &'a TaskList,
    /// For each array, the position of its first task.
    starts: Vec<usize>,
    /// The number of tasks.
    pub n: usize,
}

impl<'a> Tasks<'a> {
    pub fn new(list: &'a TaskList) -> Tasks<'a> {
        let mut n = 0;
        let mut starts = vec![];
        for array in &list.arrays {
            starts.push(n);
            n += array.n_tasks as usize;
        }
        Tasks { list, starts, n }
    }

    /// The array of a task, and the task's position in it.
    pub fn at(&self, task: usize) -> (&'a eyas_terms::array::TaskArray, u32) {
        let a = self.starts.partition_point(|start| *start <= task) - 1;
        (&self.list.arrays[a], (task - self.starts[a]) as u32)
    }

    pub fn spec(&self, task: usize) -> TaskSpec {
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
pub struct Decision {
    pub why: Vec<Option<Why>>,
    /// Records of tasks that were done in earlier runs, under the ids that the tasks have now.
    pub known: Vec<Record>,
}

impl Decision {
    /// All tasks run, for this reason.
    pub fn all(list: &TaskList, why: Why) -> Decision {
        Decision { why: vec![Some(why); list.n_tasks as usize], known: vec![] }
    }

    /// How many tasks run.
    pub fn n_running(&self) -> u64 {
        self.why.iter().flatten().count() as u64
    }
}

/// What `look` found at home; each location is examined once.
struct AtHome<F> {
    look: F,
    found: FxHashMap<String, FoundFile>,
}

impl<F: Fn(&[String]) -> Vec<FoundFile>> AtHome<F> {
    fn look_at<'a>(&mut self, locations: impl Iterator<Item = &'a str>) {
        let fresh: FxHashSet<&str> = locations.filter(|at| !self.found.contains_key(*at)).collect();
        let mut fresh: Vec<String> = fresh.into_iter().map(str::to_owned).collect();
        fresh.sort();
        let found = (self.look)(&fresh);
        self.found.extend(fresh.into_iter().zip(found));
    }
}

/// Decides which tasks have to run. `look` examines locations at home.
pub fn decide(list: &TaskList, memo: &Memo, look: impl Fn(&[String]) -> Vec<FoundFile>) -> Decision {
    if memo.is_empty() {
        return Decision::all(list, Why::NoEarlierRun);
    }
    let tasks = Tasks::new(list);
    let mut writers: FxHashMap<String, usize> = FxHashMap::default();
    tasks.for_each_file(false, |task, location| {
        writers.insert(location.to_owned(), task);
    });
    let order = order(&tasks, &writers);
    let home = AtHome { look, found: FxHashMap::default() };
    let decision = Decision { why: vec![None; tasks.n], known: vec![] };
    let pairing = Pairing::of(&tasks, memo);
    let mut deciding = Deciding { memo, tasks, pairing, writers, home, made: FxHashMap::default(), decision };
    for some in order.iter().flat_map(|level| level.chunks(TASKS_AT_ONCE)) {
        let open = deciding.judge_recipes(some);
        let likely = deciding.judge_inputs(open);
        deciding.judge_outputs(likely);
    }
    if list.arrays.iter().any(|array| array.template.dynamic) {
        deciding.make_for_added_tasks();
    }
    deciding.make_for_readers(&order);
    deciding.decision
}

/// The decision while it is being made. Tasks come some at a time, after the tasks that make their inputs.
struct Deciding<'l, 'a, F> {
    memo: &'a Memo,
    tasks: Tasks<'l>,
    pairing: Pairing<'a>,
    /// The task that makes each file.
    writers: FxHashMap<String, usize>,
    home: AtHome<F>,
    /// The outputs of up-to-date tasks, by location.
    made: FxHashMap<String, Digest>,
    decision: Decision,
}

impl<'a, F: Fn(&[String]) -> Vec<FoundFile>> Deciding<'_, 'a, F> {
    /// Decides for tasks that nobody has run before as they are, or that read what a running task makes. Gives the others.
    fn judge_recipes(&mut self, some: &[usize]) -> Vec<(usize, TaskSpec, Recipe)> {
        let mut open = vec![];
        for &task in some {
            let spec = self.tasks.spec(task);
            let recipe = Recipe::of(&spec);
            let runs = |(_, at): &&(String, String)| {
                self.writers.get(at).is_some_and(|writer| self.decision.why[*writer].is_some())
            };
            self.decision.why[task] = match spec.inputs.iter().find(runs) {
                _ if !self.memo.knows(&recipe) => Some(self.what_changed(&spec, &recipe, None)),
                _ if spec.dynamic => Some(Why::Dynamic),
                _ if spec.watched_at().is_some() => Some(Why::Watched),
                Some((_, at)) => Some(Why::ReadsNew(at.clone())),
                None => {
                    open.push((task, spec, recipe));
                    None
                }
            };
        }
        open
    }

    /// Decides for tasks that have not ended well with these bytes. Gives the others, each with the record of its end.
    fn judge_inputs(&mut self, open: Vec<(usize, TaskSpec, Recipe)>) -> Vec<(usize, TaskSpec, &'a Record)> {
        let inputs = open.iter().flat_map(|(_, spec, _)| &spec.inputs).map(|(_, at)| at.as_str());
        let at_home = |at: &&str| !self.writers.contains_key(*at) && digest_of_recipe(at).is_none();
        self.home.look_at(inputs.filter(at_home));
        let mut likely = vec![];
        for (task, spec, recipe) in open {
            let digests = match self.digests_of(&spec) {
                Ok(digests) => digests,
                Err(why) => {
                    self.decision.why[task] = Some(why);
                    continue;
                }
            };
            let names = spec.inputs.iter().map(|(name, _)| name.as_str());
            let key = recipe.key(names.zip(digests.iter().copied()));
            match self.pairing.end_of(&spec, &recipe, key) {
                None => self.decision.why[task] = Some(self.what_changed(&spec, &recipe, Some(&digests))),
                Some(record) if record.ended != Ended::Well => {
                    self.decision.why[task] = Some(why_again(record))
                }
                Some(record) if record.key().is_none() => {
                    self.decision.why[task] = Some(self.what_changed(&spec, &recipe, Some(&digests)))
                }
                Some(record) => likely.push((task, spec, record)),
            }
        }
        likely
    }

    /// The bytes that a task would read, in the order of its inputs. All of them have been looked for.
    fn digests_of(&self, spec: &TaskSpec) -> Result<Vec<Digest>, Why> {
        let digest_of = |at: &String| match self.made.get(at).copied().or_else(|| digest_of_recipe(at)) {
            Some(digest) => Ok(digest),
            None => match self.home.found[at] {
                FoundFile::Bytes(digest) => Ok(digest),
                FoundFile::Missing => Err(Why::InputMissing(at.clone())),
                FoundFile::Unreadable => Err(Why::InputUnreadable(at.clone())),
            },
        };
        spec.inputs.iter().map(|(_, at)| digest_of(at)).collect()
    }

    /// Decides for tasks that were done before: those whose outputs are still there are up to date.
    fn judge_outputs(&mut self, likely: Vec<(usize, TaskSpec, &'a Record)>) {
        let outputs = likely.iter().flat_map(|(_, spec, _)| &spec.outputs).map(|(_, at)| at.as_str());
        self.home.look_at(outputs.filter(|at| !stays(at)));
        for (task, spec, record) in likely {
            if let Err(why) = is_there(&spec, record, &self.home.found) {
                self.decision.why[task] = Some(why);
                continue;
            }
            for (name, at) in &spec.outputs {
                let (_, digest) = record.outputs.iter().find(|(n, _)| n == name).expect("it is there");
                self.made.insert(at.clone(), *digest);
            }
            let place = Some(record.recipe.place(&spec));
            self.decision.known.push(Record { id: spec.id, place, ..record.clone() });
        }
    }

    /// Why a task whose end is not known to be good runs. `digests`: those of its inputs, if they are known.
    fn what_changed(&self, spec: &TaskSpec, recipe: &Recipe, digests: Option<&[Digest]>) -> Why {
        match self.pairing.last_of(spec, recipe) {
            Some(last) => what_changed(last, spec, recipe, digests),
            None => Why::New,
        }
    }

    /// The tasks that dynamic tasks add are not known yet, so all files that stay on the nodes must be
    /// available to them.
    fn make_for_added_tasks(&mut self) {
        let why = &mut self.decision.why;
        self.tasks.for_each_file(false, |task, at| {
            if stays(at) && why[task].is_none() {
                why[task] = Some(Why::MayBeNeeded(at.to_owned()));
            }
        });
    }

    /// Back up: makers of files that stay on the nodes and are read again.
    fn make_for_readers(&mut self, order: &[Vec<usize>]) {
        let why = &mut self.decision.why;
        for &task in order.iter().rev().flatten() {
            if why[task].is_none() {
                continue;
            }
            for (_, at) in self.tasks.spec(task).inputs {
                if stays(&at)
                    && let Some(&writer) = self.writers.get(&at)
                    && why[writer].is_none()
                {
                    why[writer] = Some(Why::Needed(at));
                }
            }
        }
    }
}

/// Whether the file at `at`, as users write it, stays on the nodes.
fn stays(at: &str) -> bool {
    eyas_terms::Location::of(at).stays()
}

/// Whether all outputs of `record` are where `spec` has them.
fn is_there(spec: &TaskSpec, record: &Record, found: &FxHashMap<String, FoundFile>) -> Result<(), Why> {
    for (name, at) in &spec.outputs {
        let Some((_, made)) = record.outputs.iter().find(|(n, _)| n == name) else {
            return Err(Why::OutputNames);
        };
        if stays(at) {
            continue;
        }
        match &found[at] {
            FoundFile::Bytes(digest) if digest == made => {}
            FoundFile::Bytes(_) => return Err(Why::OutputOther(at.clone())),
            FoundFile::Missing => return Err(Why::OutputMissing(at.clone())),
            FoundFile::Unreadable => return Err(Why::OutputUnreadable(at.clone())),
        }
    }
    Ok(())
}

/// Why a task that did not end well runs.
fn why_again(record: &Record) -> Why {
    match record.ended {
        Ended::Not => Why::NotEnded,
        Ended::Failed => Why::Failed,
        Ended::Cancelled => Why::Cancelled,
        Ended::Well => Why::New,
    }
}

/// In what a task differs from the earlier task of which `last` is the record. `digests`: those of its inputs, if they
/// are known.
fn what_changed(last: &Record, spec: &TaskSpec, recipe: &Recipe, digests: Option<&[Digest]>) -> Why {
    if last.ended != Ended::Well {
        return why_again(last);
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

/// The tasks that run, as a list of their own; the whole list if all run. `origin`: the name of that list in messages.
pub fn shorten(list: TaskList, decision: &Decision, origin: &str) -> Result<TaskList, eyas_tasklist::Error> {
    if decision.n_running() == list.n_tasks {
        return Ok(list);
    }
    let tasks = Tasks::new(&list);
    let running = (0..tasks.n).filter(|task| decision.why[*task].is_some());
    // What a task needs beside whole cpus and memory stands at its array.
    let running = running.map(|task| (tasks.spec(task), tasks.at(task).0.needs.clone()));
    eyas_tasklist::fold_tasks(running, Path::new("/"), origin)
}

#[cfg(test)]
mod tests;
