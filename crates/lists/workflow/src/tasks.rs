//! Workflows to task lists, and back.
//!
//! The location of a file:
//!
//! | file | location |
//! |---|---|
//! | no task writes it | where the workflow says, else in the folder of inputs |
//! | a task writes it, and it is a result | where the workflow says, else in the folder of results; there in any case if the user named that folder |
//! | a task writes it, otherwise | `run:NAME`: it stays on the nodes |
//!
//! No two files have one location: a result that would replace an input is refused.
//!
//! A result is a file that the workflow declares to be one; if the workflow says nothing, a file that no
//! task reads. The location stands in the task that writes and in those that read, so it links them.
//!
//! A folder that a task writes (its name ends in `/`) is one object, at a location that ends in `/`. A
//! folder that no task writes stands for the files that are in it when the tasks are made.
//!
//! A parent that no file links to its child gets a link of its own: the parent also writes an empty file
//! `run:.after/ID`, and the child reads it. This is done only where it is needed: not where the child waits
//! for the parent anyway, through files and other tasks. The command of such a parent goes through the
//! shell, which writes the file when the command has ended well.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::limit::{Allowance, PIECE_BYTES};
use crate::model::{Builder, Task, TaskNo, Use, Workflow};
use crate::words;
use eyas_core::pattern::stage_of_task;
use eyas_storage::canonical::Url;
use eyas_storage::{LeftOut, files_below};
use eyas_tasklist::TaskList;
use eyas_terms::array::{Command, TaskArray, TaskForm, TaskSpec};
use eyas_terms::location::{Location, MadeLocation, is_directory, run_file};
use eyas_text::{Shell, shown_path};
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::{Path, PathBuf};

/// The name of the marker file in the sandbox of the task that writes it.
const MARKER: &str = ".eyas-after";
/// The most tasks looked at to see whether a child waits for its parent anyway. A superfluous marker does
/// no harm.
const LOOKED_AT_MAX: usize = 20_000;

#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the file that the workflow was read from, for messages.
    pub origin: String,
    /// The folder of files that no task writes.
    pub inputs_dir: PathBuf,
    /// The folder of results.
    pub out_dir: PathBuf,
    /// Results go to `out_dir` even if the workflow names another place.
    pub out_dir_wins: bool,
    /// Refuse files that no task writes and that do not exist.
    pub check_inputs: bool,
    /// Each task writes files of the known sizes in place of running its command, and files that no task
    /// writes are left out: the shape of a workflow without its programs and data.
    pub stand_ins: bool,
}

impl Options {
    /// The options for the workflow in the file `path`: inputs and results are in the file's folder.
    pub fn beside(path: &Path) -> Options {
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Options {
            origin: path.display().to_string(),
            inputs_dir: dir.clone(),
            out_dir: dir,
            out_dir_wins: false,
            check_inputs: true,
            stand_ins: false,
        }
    }
}

/// The reason why a workflow did not become a task list.
#[derive(Debug)]
pub enum TasksError {
    Workflow(Error),
    List(eyas_tasklist::Error),
}

impl std::fmt::Display for TasksError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TasksError::Workflow(e) => e.fmt(f),
            TasksError::List(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for TasksError {}

impl From<Error> for TasksError {
    fn from(e: Error) -> TasksError {
        TasksError::Workflow(e)
    }
}

/// The task list of a workflow, with its stages as labels.
pub fn to_list(workflow: &Workflow, options: &Options) -> std::result::Result<TaskList, TasksError> {
    let specs = to_specs(workflow, options)?;
    let needs = workflow.tasks.iter().map(|task| task.needs.clone());
    let specs = specs.into_iter().zip(needs);
    eyas_tasklist::fold_tasks(specs, &options.inputs_dir, &options.origin).map_err(TasksError::List)
}

/// The same tasks, in the workflow's order and not folded into arrays; locations are not normalised yet.
pub fn to_specs(workflow: &Workflow, options: &Options) -> Result<Vec<TaskSpec>> {
    specs(workflow, options).map_err(|e| e.operation("convert").origin(&options.origin))
}

fn specs(workflow: &Workflow, options: &Options) -> Result<Vec<TaskSpec>> {
    let (locations, folders) = locations(workflow, options)?;
    let marked = needed_markers(workflow);
    let mut is_marked = vec![false; workflow.tasks.len()];
    marked.iter().flatten().for_each(|parent| is_marked[*parent as usize] = true);
    let mut specs = Vec::with_capacity(workflow.tasks.len());
    // Many tasks may use one file, and each repeats the location that the workflow has only once.
    let mut allowance = Allowance::made_of(workflow.n_bytes());
    let dirs_bytes = [&options.inputs_dir, &options.out_dir].map(|dir| dir.as_os_str().len());
    let folder_bytes = dirs_bytes[0].max(dirs_bytes[1]) as u64;
    for (n, task) in workflow.tasks.iter().enumerate() {
        let mut named = |uses: &[Use]| -> Result<Vec<(String, String)>> {
            let mut files = Vec::with_capacity(uses.len());
            for u in uses {
                let Some(location) = &locations[u.file as usize] else { continue };
                let name = sandbox_name(workflow, task, u)?;
                let place_bytes = (location.len() as u64).saturating_sub(folder_bytes);
                let one_bytes = place_bytes + name.len() as u64 + 2 * PIECE_BYTES;
                let inside = folders.get(&u.file);
                // A folder stands for each of its files, with the folder's own name before the file's.
                let n_bytes = inside.map_or(one_bytes, |inside| {
                    inside.iter().map(|file| one_bytes + 2 * file.len() as u64).sum()
                });
                allowance.take(n_bytes, "the files that the tasks name have").map_err(|e| e.at(task.line))?;
                match inside {
                    None => files.push((name, location.clone())),
                    Some(inside) => files.extend(
                        inside.iter().map(|file| (format!("{name}/{file}"), format!("{location}/{file}"))),
                    ),
                }
            }
            Ok(files)
        };
        let (mut inputs, mut outputs) = (named(&task.inputs)?, named(&task.outputs)?);
        let mut command = match (&task.command, options.stand_ins) {
            (_, true) => stand_in(workflow, task, &outputs),
            (Some(command), false) => command.clone(),
            (None, false) => {
                let message = format!(
                    "task {} has no command: the file says what the workflow looks like, not what it runs",
                    shown(&task.id)
                );
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .hint("`eyas predict` takes such a file; `--stand-ins` runs tasks that only write files of the recorded sizes")
                    .at(task.line));
            }
        };
        for parent in &marked[n] {
            let n_bytes = workflow.tasks[*parent as usize].id.len() as u64 + PIECE_BYTES;
            allowance.take(n_bytes, "the names of parents have").map_err(|e| e.at(task.line))?;
            inputs.push((format!(".after/{parent}"), marker(workflow, *parent)));
        }
        if is_marked[n] {
            outputs.push((MARKER.into(), marker(workflow, n as TaskNo)));
            command = with_marker(command);
        }
        if workflow.is_for_sh {
            command = for_sh(command);
        }
        specs.push(TaskForm {
            id: task.id.clone(),
            command,
            inputs,
            outputs,
            env: task.env.clone(),
            cpus: task.cpus,
            memory_bytes: task.memory_bytes,
            walltime_ns: task.walltime_ns,
            retries: task.retries,
            priority: task.priority,
            label: task.stage.clone(),
            dynamic: task.dynamic,
            hints: task.hints,
            promises: task.promises.clone(),
        });
    }
    Ok(specs)
}

/// By number of a file that is a folder of inputs: the files in it, by relative names.
type Folders = FxHashMap<u32, Vec<String>>;

/// The location of each file, and the files in folders of inputs. `None`: tasks find the file by
/// themselves, or can run without it.
fn locations(workflow: &Workflow, options: &Options) -> Result<(Vec<Option<String>>, Folders)> {
    let mut folders = Folders::default();
    let (writers, n_readers) = (workflow.writers(), workflow.reader_counts());
    let mut needed_by: Vec<Option<&Task>> = vec![None; workflow.files.len()];
    for task in workflow.tasks.iter().rev() {
        task.inputs.iter().filter(|u| !u.optional).for_each(|u| needed_by[u.file as usize] = Some(task));
    }
    let absolute = |dir: &Path| -> Result<PathBuf> {
        let message = || format!("cannot tell where the folder {} is", shown_path(dir));
        std::path::absolute(dir).map_err(|e| Error::io("convert", message(), e))
    };
    let (inputs_dir, out_dir) = (absolute(&options.inputs_dir)?, absolute(&options.out_dir)?);
    let text = |path: PathBuf| match path.into_os_string().into_string() {
        Ok(text) => Ok(text),
        Err(name) => Err(Error::broken(format!("the name {} is not UTF-8", shown(&name.to_string_lossy())))),
    };
    let is_result = |n: usize| {
        let file = &workflow.files[n];
        writers[n].is_some() && (file.location.is_some() || file.result.unwrap_or(n_readers[n] == 0))
    };
    let names = match options.out_dir_wins {
        true => relative_names(workflow, &is_result),
        false => FxHashMap::default(),
    };
    let promises = workflow.tasks.iter().flat_map(|task| &task.promises);
    let stays = |location| match Location::of(location) {
        Location::Run { name } => Some(name),
        Location::Home(_) => None,
    };
    let promised: FxHashSet<&str> = promises.filter_map(|location| stays(location)).collect();
    let mut missing: Vec<(&str, &Task, PathBuf)> = vec![];
    let mut locations = Vec::with_capacity(workflow.files.len());
    for (n, file) in workflow.files.iter().enumerate() {
        let name = file.name.as_str();
        let location = match (writers[n], &file.location) {
            (Some(_), Some(location)) if !options.out_dir_wins => Some(location.clone()),
            (Some(_), _) => match is_result(n) {
                true => Some(text(out_dir.join(names.get(&n).map_or(name, String::as_str)))?),
                false => Some(run_file(name)),
            },
            (None, None) if promised.contains(name) => Some(run_file(name)),
            (None, _) if options.stand_ins => None,
            (None, location) => {
                // What nodes make lies nowhere. The packed file is a file of its own.
                let is_made = location.as_deref().is_some_and(|text| MadeLocation::of(text).is_some());
                let location = location.as_deref().unwrap_or(name);
                let path = match Url::split(location) {
                    _ if is_made => None,
                    None => Some(inputs_dir.join(location)),
                    Some(url) => url.path().map(PathBuf::from),
                };
                match path {
                    None => Some(location.to_owned()),
                    Some(path) => {
                        let is_folder = path.is_dir();
                        if is_folder {
                            folders.insert(n as u32, files_in(&path)?);
                        }
                        let is_there = !options.check_inputs || is_folder || path.is_file();
                        match (is_there, needed_by[n]) {
                            (true, _) => Some(text(path)?),
                            (false, None) => None,
                            (false, Some(task)) => {
                                missing.push((name, task, path));
                                None
                            }
                        }
                    }
                }
            }
        };
        locations.push(location);
    }
    let Some((name, task, path)) = missing.first() else {
        check_places(workflow, &writers, &needed_by, &locations)?;
        return Ok((locations, folders));
    };
    let more = match missing.len() - 1 {
        0 => String::new(),
        1 => ", and so is 1 other".into(),
        n => format!(", and so are {n} others"),
    };
    let message = format!(
        "{}, which task {} reads and no task writes, is missing: there is no file {}{more}",
        shown(name),
        shown(&task.id),
        shown_path(path)
    );
    Err(Error::new(ErrorKind::Missing, message)
        .hint("--inputs DIR says where the workflow's input files are")
        .at(task.line))
}

/// All files in the folder `dir` and in folders in it, by names relative to it, in order. What cannot be read as a file is named.
fn files_in(dir: &Path) -> Result<Vec<String>> {
    let fail = |e| Error::io("convert", format!("cannot list the folder `{}`", dir.display()), e);
    let mut below = files_below(dir, &mut |_, _| false).map_err(fail)?;
    LeftOut::say_all(&below.left_out);
    below.files.sort_unstable();
    Ok(below.files)
}

/// Refuses a result at the location of another file: the task list would treat the two as one file, and
/// link tasks by it.
fn check_places(
    workflow: &Workflow,
    writers: &[Option<TaskNo>],
    needed_by: &[Option<&Task>],
    locations: &[Option<String>],
) -> Result<()> {
    let place = |n: usize| locations[n].as_deref();
    let written = (0..locations.len()).filter(|n| writers[*n].is_some());
    let taken: FxHashMap<&str, usize> = written.filter_map(|n| Some((place(n)?, n))).collect();
    for n in (0..locations.len()).filter(|n| writers[*n].is_none()) {
        let Some((at, &other)) = place(n).and_then(|at| Some((at, taken.get(at)?))) else { continue };
        let writer = writers[other].map_or("", |task| workflow.tasks[task as usize].id.as_str());
        let reader = needed_by[n].map_or(String::new(), |task| format!(" of task {}", shown(&task.id)));
        let message = format!(
            "task {} would write its result {} to `{at}`, which is an input{reader}",
            shown(writer),
            shown(&workflow.files[other].name)
        );
        return Err(
            Error::new(ErrorKind::Conflict, message).hint("--out DIR puts the results into another folder")
        );
    }
    Ok(())
}

/// Names for the files that `is_wanted` picks and that have no plain relative name or location: the part of
/// the path behind the folder that all these files have in common, or behind a folder above it, so that no
/// two files have one name.
fn relative_names(workflow: &Workflow, is_wanted: &dyn Fn(usize) -> bool) -> FxHashMap<usize, String> {
    let path_of = |n: usize| {
        let file = &workflow.files[n];
        let text = file.location.as_deref().unwrap_or(&file.name);
        let path = text.split_once("://").map_or(text, |(_, path)| path);
        path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect::<Vec<&str>>()
    };
    let is_absolute = |n: &usize| {
        let file = &workflow.files[*n];
        file.location.is_some() || file.name.starts_with('/') || file.name.contains("://")
    };
    let (named, others): (Vec<usize>, Vec<usize>) =
        (0..workflow.files.len()).partition(|n| is_wanted(*n) && is_absolute(n));
    let paths: Vec<Vec<&str>> = named.iter().map(|n| path_of(*n)).collect();
    let Some(first) = paths.first() else { return FxHashMap::default() };
    // The last part of each path is always kept as a name.
    let is_common =
        |depth: usize| paths.iter().all(|path| path.len() > depth + 1 && path[..=depth] == first[..=depth]);
    let n_common = (0..first.len()).take_while(|depth| is_common(*depth)).count();
    let taken: FxHashSet<&str> = others.iter().map(|n| workflow.files[*n].name.as_str()).collect();
    let slash = |n: usize| {
        let file = &workflow.files[n];
        if file.location.as_deref().unwrap_or(&file.name).ends_with('/') { "/" } else { "" }
    };
    let names_from = |depth: usize| -> Vec<String> {
        named.iter().zip(&paths).map(|(n, path)| path[depth..].join("/") + slash(*n)).collect()
    };
    let is_free = |names: &Vec<String>| names.iter().all(|name| !taken.contains(name.as_str()));
    let names = (0..=n_common).rev().map(names_from).find(is_free).unwrap_or_else(|| names_from(0));
    named.into_iter().zip(names).collect()
}

/// Gives relative names to results that have a location of their own at home. A workflow that was measured
/// in one folder can then run in another, and does not write to the first one by itself.
pub fn forget_places_of_results(workflow: &mut Workflow) {
    let writers = workflow.writers();
    let is_placed = |n: usize| writers[n].is_some() && workflow.files[n].location.is_some();
    let names = relative_names(workflow, &is_placed);
    for task in &mut workflow.tasks {
        for u in task.inputs.iter_mut().chain(&mut task.outputs) {
            if let Some(name) = names.get(&(u.file as usize)) {
                let file = &workflow.files[u.file as usize];
                let own = u.name.take().unwrap_or_else(|| file.name.clone());
                u.name = Some(own).filter(|own| own != name);
            }
        }
    }
    for (n, name) in names {
        let file = &mut workflow.files[n];
        (file.name, file.location, file.result) = (name, None, Some(true));
    }
}

/// The task's name for the file.
fn sandbox_name(workflow: &Workflow, task: &Task, u: &Use) -> Result<String> {
    let file = &workflow.files[u.file as usize].name;
    // A URL stands for the file that its last part names.
    let end = file.split_once("://").map(|(_, path)| {
        let path = path.split('?').next().unwrap_or(path);
        path.rsplit('/').next().unwrap_or(path)
    });
    if let Some(name) = u.name.as_deref().or(end) {
        if matches!(name, "." | "..") {
            let message = format!(
                "task {} has a file {}, whose last part is no name of a file",
                shown(&task.id),
                shown(file)
            );
            return Err(Error::new(ErrorKind::Broken, message)
                .hint("give the whole location; the file has its last part as name where the task runs")
                .at(task.line));
        }
        return Ok(name.trim_end_matches('/').to_owned());
    }
    if file.starts_with('/') || file.split('/').any(|part| part == "..") {
        let message = format!(
            "task {} calls a file {}, which lies outside of its sandbox",
            shown(&task.id),
            shown(file)
        );
        return Err(Error::new(ErrorKind::Unsupported, message)
            .hint("tasks run in a directory of their own; give the file a relative path")
            .at(task.line));
    }
    Ok(file.trim_end_matches('/').to_owned())
}

fn marker(workflow: &Workflow, task: TaskNo) -> String {
    let id = &workflow.tasks[task as usize].id;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !id.starts_with('.') && id.chars().all(is_plain) {
        true => run_file(format_args!(".after/{id}")),
        // No plain id begins with `#`.
        false => run_file(format_args!(".after/#{task}")),
    }
}

fn with_marker(command: Command<String>) -> Command<String> {
    let line = match command {
        Command::Exec(argv) => words::line(&argv),
        // The command runs in a shell of its own, so that an `exit 0` in it leaves only that shell. Which program that shell is, the
        // first line of all says.
        Command::Shell(line) => {
            let rest = Shell::without(&line);
            let chosen = &line[..line.len() - rest.len()];
            format!("{chosen}(\n{rest}\n)")
        }
    };
    Command::Shell(format!("{line} && : > {MARKER}"))
}

/// The command for `/bin/sh`, unless it chooses a shell itself, or is a pipe, which fails with any of its parts in bash alone.
fn for_sh(command: Command<String>) -> Command<String> {
    match command {
        Command::Shell(line) if !line.contains('|') && Shell::chosen_by(line.as_bytes()).is_none() => {
            Command::Shell(format!("{}{line}", Shell::Sh.first_line()))
        }
        other => other,
    }
}

/// The bytes that a folder with one file `zeros`, as one object, has more than that file.
const FOLDER_BYTES: u64 = 30;

/// A command that makes the outputs with the sizes that are known; in an output folder, it makes one file.
fn stand_in(workflow: &Workflow, task: &Task, outputs: &[(String, String)]) -> Command<String> {
    let sizes = task.outputs.iter().map(|u| workflow.files[u.file as usize].size_bytes.unwrap_or(0));
    let parts: Vec<String> = outputs
        .iter()
        .zip(sizes)
        .map(|((name, location), size)| {
            let zeros = |size: u64, name: &str| format!("head -c {size} /dev/zero > {}", words::quoted(name));
            match is_directory(location) {
                false => zeros(size, name),
                true if size <= FOLDER_BYTES => format!("mkdir -p {}", words::quoted(name)),
                true => {
                    let made = zeros(size - FOLDER_BYTES, &format!("{name}/zeros"));
                    format!("mkdir -p {} && {made}", words::quoted(name))
                }
            }
        })
        .collect();
    match parts.is_empty() {
        true => Command::Exec(vec!["true".into()]),
        false => Command::Shell(parts.join(" && ")),
    }
}

/// For each task, the parents that need a marker for it.
fn needed_markers(workflow: &Workflow) -> Vec<Vec<TaskNo>> {
    let mut needed: Vec<Vec<TaskNo>> = vec![vec![]; workflow.tasks.len()];
    if workflow.tasks.iter().all(|task| task.parents.is_empty()) {
        return needed;
    }
    let (predecessors, levels) = (workflow.predecessors(), workflow.levels());
    for (n, task) in workflow.tasks.iter().enumerate() {
        for &parent in &task.parents {
            // A quick look first: another predecessor may wait for the parent itself. Lists are sorted. The
            // search below is bounded because levels grow along every chain.
            let leads = |other: TaskNo| predecessors[other as usize].binary_search(&parent).is_ok();
            if predecessors[n].iter().rev().any(|other| leads(*other)) {
                continue;
            }
            let mut seen: FxHashSet<TaskNo> = FxHashSet::default();
            let mut open: Vec<TaskNo> = predecessors[n].iter().copied().filter(|p| *p != parent).collect();
            let mut found = false;
            while let Some(other) = open.pop() {
                if other == parent {
                    found = true;
                    break;
                }
                let may_lead = levels[other as usize] > levels[parent as usize];
                if may_lead && seen.len() < LOOKED_AT_MAX && seen.insert(other) {
                    open.extend(&predecessors[other as usize]);
                }
            }
            if !found {
                needed[n].push(parent);
            }
        }
    }
    needed
}

/// A task list as a workflow: tasks in the order of the arrays, files named by their locations.
pub fn from_arrays<'a>(arrays: impl IntoIterator<Item = &'a TaskArray>, name: &str) -> Result<Workflow> {
    // The text is not limited: each task had a line of its own, so a small file cannot stand for many
    // tasks.
    let mut b = Builder::new(name, usize::MAX);
    for array in arrays {
        for i in 0..array.n_tasks {
            let spec = array.expand(i);
            let mut uses = |files: Vec<(String, String)>, are_written: bool| -> Vec<Use> {
                let mut uses = vec![];
                for (own, location) in files {
                    let stays = Location::of(&location).stays();
                    let (Location::Run { name } | Location::Home(name)) = Location::of(&location);
                    let file = b.file(name);
                    let known = b.file_mut(file);
                    if are_written {
                        known.result = Some(!stays);
                    }
                    known.location = (!stays).then(|| location.clone());
                    uses.push(Use { name: (own != name).then_some(own), ..Use::of(file) });
                }
                uses
            };
            let (inputs, outputs) = (uses(spec.inputs, false), uses(spec.outputs, true));
            b.task(Task {
                stage: stage_of_task(array, i),
                id: spec.id,
                command: Some(spec.command),
                env: spec.env,
                inputs,
                outputs,
                cpus: spec.cpus,
                needs: array.needs.clone(),
                memory_bytes: spec.memory_bytes,
                walltime_ns: spec.walltime_ns,
                retries: spec.retries,
                priority: spec.priority,
                dynamic: spec.dynamic,
                hints: spec.hints,
                promises: spec.promises,
                ..Task::default()
            })?;
        }
    }
    b.finish()
}
