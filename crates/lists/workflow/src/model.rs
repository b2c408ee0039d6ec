//! One neutral form for all formats: tasks, files, and which task writes and reads which file.
//!
//! Files and tasks are numbered. A [`Workflow`] that has passed [`Builder::finish`] keeps these promises:
//!   1. all ids differ, all file names differ, and every number points at something;
//!   2. a file has at most one writer, and no task reads a file that it writes itself;
//!   3. no task waits for itself, neither through files nor through parents;
//!   4. `parents` holds only tasks that no file links already, in order, each once.
//!
//! A file whose name ends in `/` is a folder, which a task writes or reads as a whole.
//!
//! Names of files are relative paths without `.` and empty parts where the format means paths of the
//! workflow, absolute paths or URLs where it means files outside. Nothing here looks at the file system.

use crate::error::{Error, ErrorKind, Result, on_line, shown};
use crate::limit::{Allowance, ITEM_BYTES, PIECE_BYTES};
use eyas_terms::array::{Command, Hints};
use eyas_terms::needs::Needs;
use rustc_hash::FxHashMap;

/// Number of a file in [`Workflow::files`].
pub type FileNo = u32;
/// Number of a task in [`Workflow::tasks`].
pub type TaskNo = u32;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workflow {
    pub name: String,
    pub tasks: Vec<Task>,
    pub files: Vec<File>,
    /// Measurements of a whole run, if the workflow comes from one.
    pub run: Option<Run>,
    /// The lines are for `/bin/sh`, as Makeflow has it: what `echo` makes of a `\` is another thing in bash.
    pub is_for_sh: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: String,
    /// The name of the kind of task: transformation, category, label or program.
    pub stage: String,
    /// `None`: the file says what the task reads and writes, but not what it runs.
    pub command: Option<Command<String>>,
    /// Environment variables that are set in addition to those of every task.
    pub env: Vec<(String, String)>,
    pub inputs: Vec<Use>,
    pub outputs: Vec<Use>,
    /// Tasks that must have ended although no file links them to this one.
    pub parents: Vec<TaskNo>,
    /// Slots held while the task runs, at least 1.
    pub cpus: u32,
    /// What the task needs beside whole cpus and memory.
    pub needs: Option<Box<Needs>>,
    /// Memory that the task may use; a task that uses more is ended.
    pub memory_bytes: Option<u64>,
    pub walltime_ns: Option<u64>,
    pub retries: u32,
    /// Tasks with a larger priority go first.
    pub priority: i32,
    /// The task's program may add tasks to the run.
    pub dynamic: bool,
    pub hints: Hints,
    /// `run:` files that will be written by tasks that this task's program adds.
    pub promises: Vec<String>,
    pub measured: Measured,
    /// The line of the task in the file, from 1.
    pub line: Option<u32>,
}

impl Task {
    /// The memory that the task takes, roughly.
    fn n_bytes(&self) -> u64 {
        let text = |text: &String| PIECE_BYTES + text.len() as u64;
        let used = |u: &Use| ITEM_BYTES + u.name.as_ref().map_or(0, |name| name.len() as u64);
        ITEM_BYTES
            + text(&self.id)
            + text(&self.stage)
            + match &self.command {
                None => 0,
                Some(Command::Exec(argv)) => argv.iter().map(text).sum(),
                Some(Command::Shell(line)) => text(line),
            }
            + self.env.iter().map(|(name, value)| text(name) + text(value)).sum::<u64>()
            + self.inputs.iter().chain(&self.outputs).map(used).sum::<u64>()
            + self.promises.iter().map(text).sum::<u64>()
    }
}

impl Default for Task {
    fn default() -> Task {
        Task {
            id: String::new(),
            stage: String::new(),
            command: None,
            env: vec![],
            inputs: vec![],
            outputs: vec![],
            parents: vec![],
            cpus: 1,
            needs: None,
            memory_bytes: None,
            walltime_ns: None,
            retries: 0,
            priority: 0,
            dynamic: false,
            hints: Hints::default(),
            promises: vec![],
            measured: Measured::default(),
            line: None,
        }
    }
}

/// Measurements of a task that has run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    pub runtime_ns: Option<u64>,
    /// Processor time of the program and its children.
    pub cpu_ns: Option<u64>,
    /// The most memory that the task used.
    pub rss_bytes_max: Option<u64>,
    pub machine: Option<String>,
}

/// Measurements of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// A time such as `2026-11-22T10:20:30Z`.
    pub executed_at: String,
    pub makespan_ns: u64,
    pub machines: Vec<Machine>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub name: String,
    pub n_cores: Option<u32>,
}

/// A file as a task sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    pub file: FileNo,
    /// The task's own name for the file, if it differs from the file's name.
    pub name: Option<String>,
    /// The task can run without the file, or end without having written it.
    pub optional: bool,
}

impl Use {
    pub fn of(file: FileNo) -> Use {
        Use { file, name: None, optional: false }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    pub name: String,
    /// The file's location at home, if the workflow gives one.
    pub location: Option<String>,
    pub size_bytes: Option<u64>,
    /// Whether the file is wanted when all tasks are done. `None`: it is wanted if no task reads it.
    pub result: Option<bool>,
}

impl Workflow {
    /// For each file, the task that writes it.
    pub fn writers(&self) -> Vec<Option<TaskNo>> {
        let mut writers = vec![None; self.files.len()];
        for (n, task) in self.tasks.iter().enumerate() {
            task.outputs.iter().for_each(|u| writers[u.file as usize] = Some(n as TaskNo));
        }
        writers
    }

    /// For each file, the number of tasks that read it.
    pub fn reader_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.files.len()];
        self.tasks.iter().flat_map(|t| &t.inputs).for_each(|u| counts[u.file as usize] += 1);
        counts
    }

    /// The memory that the workflow takes, roughly.
    pub(crate) fn n_bytes(&self) -> u64 {
        let text = |text: &String| PIECE_BYTES + text.len() as u64;
        let files = self.files.iter().map(|file| text(&file.name) + file.location.as_ref().map_or(0, text));
        self.tasks.iter().map(Task::n_bytes).sum::<u64>() + files.sum::<u64>()
    }

    /// For each task, the tasks that it waits for: writers of its inputs and its parents, in order, each
    /// once.
    pub fn predecessors(&self) -> Vec<Vec<TaskNo>> {
        let writers = self.writers();
        self.tasks
            .iter()
            .map(|task| {
                let by_file = task.inputs.iter().filter_map(|u| writers[u.file as usize]);
                let mut all: Vec<TaskNo> = by_file.chain(task.parents.iter().copied()).collect();
                all.sort_unstable();
                all.dedup();
                all
            })
            .collect()
    }

    /// For each task, the length of the longest chain of tasks before it.
    pub fn levels(&self) -> Vec<u32> {
        let predecessors = self.predecessors();
        let mut levels = vec![0; self.tasks.len()];
        for n in order(&predecessors) {
            let before = predecessors[n as usize].iter().map(|p| levels[*p as usize] + 1).max();
            levels[n as usize] = before.unwrap_or(0);
        }
        levels
    }
}

/// An order in which every task comes after those it waits for (Kahn62). Tasks in a circle, and tasks that
/// wait for one in a circle, are left out.
pub(crate) fn order(predecessors: &[Vec<u32>]) -> Vec<u32> {
    let n = predecessors.len();
    let mut waits: Vec<u32> = predecessors.iter().map(|p| p.len() as u32).collect();
    let mut successors: Vec<Vec<u32>> = vec![vec![]; n];
    for (task, before) in predecessors.iter().enumerate() {
        before.iter().for_each(|p| successors[*p as usize].push(task as u32));
    }
    let mut order: Vec<u32> = (0..n as u32).filter(|t| waits[*t as usize] == 0).collect();
    let mut next = 0;
    while let Some(&task) = order.get(next) {
        next += 1;
        for &s in &successors[task as usize] {
            waits[s as usize] -= 1;
            if waits[s as usize] == 0 {
                order.push(s);
            }
        }
    }
    order
}

/// The name of a workflow without a name.
pub(crate) const NO_NAME: &str = "workflow";

/// Collects a workflow as a reader finds it, and checks it as a whole.
pub(crate) struct Builder {
    workflow: Workflow,
    files: FxHashMap<String, FileNo>,
    ids: FxHashMap<String, TaskNo>,
    allowance: Allowance,
}

impl Builder {
    /// A builder for a file of `n_bytes`; the size decides how much text the file may stand for.
    pub fn new(name: impl Into<String>, n_bytes: usize) -> Builder {
        let name = Some(name.into()).filter(|name| !name.is_empty()).unwrap_or_else(|| NO_NAME.into());
        Builder {
            workflow: Workflow { name, ..Workflow::default() },
            files: FxHashMap::default(),
            ids: FxHashMap::default(),
            allowance: Allowance::of_file(n_bytes),
        }
    }

    /// The number of the file `name`, which is new or known.
    pub fn file(&mut self, name: &str) -> FileNo {
        if let Some(&file) = self.files.get(name) {
            return file;
        }
        let file = self.workflow.files.len() as FileNo;
        self.files.insert(name.to_owned(), file);
        self.workflow.files.push(File { name: name.to_owned(), ..File::default() });
        file
    }

    pub fn file_mut(&mut self, file: FileNo) -> &mut File {
        &mut self.workflow.files[file as usize]
    }

    pub fn n_tasks(&self) -> usize {
        self.workflow.tasks.len()
    }

    pub fn files(&self) -> &[File] {
        &self.workflow.files
    }

    /// The number of the file `name`, if the file has been named before.
    pub fn known_number(&self, name: &str) -> Option<FileNo> {
        self.files.get(name).copied()
    }

    /// Gives a file another name, which no file has yet.
    pub fn rename(&mut self, file: FileNo, name: String) {
        let old = std::mem::replace(&mut self.workflow.files[file as usize].name, name.clone());
        self.files.remove(&old);
        self.files.insert(name, file);
    }

    /// All tasks, each together with the list of all files.
    pub fn tasks_mut(&mut self) -> impl Iterator<Item = (&mut Task, &[File])> {
        let Workflow { tasks, files, .. } = &mut self.workflow;
        tasks.iter_mut().map(|task| (task, files.as_slice()))
    }

    /// For each file, whether a task writes it.
    pub fn written(&self) -> Vec<bool> {
        let mut written = vec![false; self.workflow.files.len()];
        self.workflow.tasks.iter().flat_map(|t| &t.outputs).for_each(|u| written[u.file as usize] = true);
        written
    }

    pub fn task(&mut self, task: Task) -> Result<TaskNo> {
        self.allowance.take(task.n_bytes(), "the tasks up to here have").map_err(|e| e.at(task.line))?;
        let number = self.workflow.tasks.len() as TaskNo;
        if task.id.is_empty() {
            let which = format!("task {} has an empty id", number + 1);
            return Err(Error::broken(which).at(task.line));
        }
        if let Some(first) = self.ids.insert(task.id.clone(), number) {
            let first = on_line(self.workflow.tasks[first as usize].line);
            let message = format!("two tasks have the id {}; the other is{first}", shown(&task.id));
            let message =
                if first.is_empty() { format!("two tasks have the id {}", shown(&task.id)) } else { message };
            return Err(Error::new(ErrorKind::Conflict, message).at(task.line));
        }
        self.workflow.tasks.push(task);
        Ok(number)
    }

    pub fn task_mut(&mut self, task: TaskNo) -> &mut Task {
        &mut self.workflow.tasks[task as usize]
    }

    /// The line of the task in the file.
    pub fn task_line(&self, task: TaskNo) -> Option<u32> {
        self.workflow.tasks[task as usize].line
    }

    pub fn find_task(&self, id: &str) -> Option<TaskNo> {
        self.ids.get(id).copied()
    }

    /// `child` waits for `parent`.
    pub fn link(&mut self, parent: TaskNo, child: TaskNo) {
        self.workflow.tasks[child as usize].parents.push(parent);
    }

    /// Takes over the tasks of `inner`, with `PREFIX.` before their ids. Files that they write and that are
    /// not shared get `PREFIX/` before their names; the tasks see the files under their old names. Gives
    /// the number of the first task.
    pub fn absorb(
        &mut self,
        inner: Builder,
        prefix: &str,
        is_shared: &dyn Fn(&File) -> bool,
    ) -> Result<TaskNo> {
        let written = inner.written();
        let base = self.workflow.tasks.len() as TaskNo;
        // By inner number: the outer number, and the inner tasks' name of the file if it differs.
        let mut numbers: Vec<(FileNo, Option<String>)> = Vec::with_capacity(written.len());
        for (file, is_written) in inner.workflow.files.into_iter().zip(written) {
            let keeps_name = !is_written || is_shared(&file);
            let name = if keeps_name { file.name.clone() } else { format!("{prefix}/{}", file.name) };
            let number = self.file(&name);
            let known = self.file_mut(number);
            known.size_bytes = known.size_bytes.or(file.size_bytes);
            known.location = known.location.take().or(file.location);
            known.result = known.result.or(file.result);
            numbers.push((number, (!keeps_name).then_some(file.name)));
        }
        for mut task in inner.workflow.tasks {
            task.id = format!("{prefix}.{}", task.id);
            task.parents.iter_mut().for_each(|parent| *parent += base);
            for u in task.inputs.iter_mut().chain(&mut task.outputs) {
                let (number, own) = &numbers[u.file as usize];
                u.file = *number;
                u.name = u.name.take().or_else(|| own.clone());
            }
            self.task(task)?;
        }
        Ok(base)
    }

    /// As [`Workflow::predecessors`], of the tasks collected so far.
    pub fn predecessors(&self) -> Vec<Vec<TaskNo>> {
        self.workflow.predecessors()
    }

    pub fn run(&mut self, run: Run) {
        self.workflow.run = Some(run);
    }

    /// The workflow, if it has tasks that can all be done in some order.
    pub fn finish(self) -> Result<Workflow> {
        match self.workflow.tasks.is_empty() {
            true => Err(Error::broken("the workflow has no tasks")),
            false => self.finish_also_empty(),
        }
    }

    /// The same for a format in which a file may do its work without tasks.
    pub fn finish_also_empty(mut self) -> Result<Workflow> {
        let workflow = &mut self.workflow;
        let n_files = workflow.files.len();
        // The last task that named a file, plus one. Equal uses by one task count once.
        let mut seen = vec![0u32; n_files];
        for (n, task) in workflow.tasks.iter_mut().enumerate() {
            let mark = n as u32 + 1;
            task.inputs.retain(|u| std::mem::replace(&mut seen[u.file as usize], mark) != mark);
        }
        drop_unwanted(workflow);
        let mut writers: Vec<Option<TaskNo>> = vec![None; n_files];
        for n in 0..workflow.tasks.len() {
            let mut outputs = std::mem::take(&mut workflow.tasks[n].outputs);
            let mut conflict = None;
            outputs.retain(|u| match writers[u.file as usize].replace(n as TaskNo) {
                None => true,
                Some(other) if other == n as TaskNo => false,
                Some(other) => {
                    conflict.get_or_insert((u.file, other));
                    false
                }
            });
            workflow.tasks[n].outputs = outputs;
            if let Some((file, other)) = conflict {
                let (task, other) = (&workflow.tasks[n], &workflow.tasks[other as usize]);
                let message = format!(
                    "two tasks write {}: {}{} and {}{}",
                    shown(&workflow.files[file as usize].name),
                    shown(&other.id),
                    on_line(other.line),
                    shown(&task.id),
                    on_line(task.line)
                );
                return Err(Error::new(ErrorKind::Conflict, message).at(task.line));
            }
        }
        for (n, task) in workflow.tasks.iter_mut().enumerate() {
            let n = n as TaskNo;
            if let Some(u) = task.inputs.iter().find(|u| writers[u.file as usize] == Some(n)) {
                let name = shown(&workflow.files[u.file as usize].name);
                let message = format!("task {} writes {name}, which it reads", shown(&task.id));
                return Err(Error::new(ErrorKind::Conflict, message).at(task.line));
            }
            if task.parents.is_empty() {
                continue;
            }
            if task.parents.contains(&n) {
                let message = format!("task {} waits for itself", shown(&task.id));
                return Err(Error::new(ErrorKind::Conflict, message).at(task.line));
            }
            let mut by_file: Vec<TaskNo> =
                task.inputs.iter().filter_map(|u| writers[u.file as usize]).collect();
            by_file.sort_unstable();
            task.parents.sort_unstable();
            task.parents.dedup();
            task.parents.retain(|p| by_file.binary_search(p).is_err());
        }
        let predecessors = self.workflow.predecessors();
        let order = order(&predecessors);
        if order.len() < predecessors.len() {
            return Err(circle(&self.workflow, &predecessors, &order));
        }
        Ok(self.workflow)
    }
}

/// Removes files that several tasks write, that no task reads and that are no results from these tasks'
/// outputs: logs that one task after the other writes anew, and that nobody wants.
fn drop_unwanted(workflow: &mut Workflow) {
    let n_readers = workflow.reader_counts();
    let mut n_writers = vec![0u32; workflow.files.len()];
    workflow.tasks.iter().flat_map(|t| &t.outputs).for_each(|u| n_writers[u.file as usize] += 1);
    let is_unwanted: Vec<bool> = (0..workflow.files.len())
        .map(|n| n_writers[n] > 1 && n_readers[n] == 0 && workflow.files[n].result == Some(false))
        .collect();
    if is_unwanted.contains(&true) {
        for task in &mut workflow.tasks {
            task.outputs.retain(|u| !is_unwanted[u.file as usize]);
        }
    }
}

/// The error that names the tasks of a circle. The circle is among the tasks that are not in `order`.
fn circle(workflow: &Workflow, predecessors: &[Vec<TaskNo>], order: &[TaskNo]) -> Error {
    const NAMED_MAX: usize = 8;
    let mut left = vec![true; predecessors.len()];
    order.iter().for_each(|n| left[*n as usize] = false);
    // Every task that is left waits for another one that is left, so going back must reach a task for the
    // second time.
    let mut step_of = vec![usize::MAX; predecessors.len()];
    let mut path: Vec<usize> = left.iter().position(|l| *l).into_iter().collect();
    loop {
        let last = *path.last().expect("somebody is left");
        step_of[last] = path.len() - 1;
        let before = predecessors[last].iter().map(|p| *p as usize).find(|p| left[*p]);
        let before = before.expect("who is left waits for somebody who is left");
        if let Some(start) = Some(step_of[before]).filter(|step| *step != usize::MAX) {
            let mut names: Vec<String> = path[start..]
                .iter()
                .rev()
                .map(|n| format!("{}{}", shown(&workflow.tasks[*n].id), on_line(workflow.tasks[*n].line)))
                .collect();
            let n_more = names.len().saturating_sub(NAMED_MAX);
            names.truncate(NAMED_MAX);
            let more = if n_more > 0 { format!(" and {n_more} more") } else { String::new() };
            let message = format!(
                "tasks wait for each other in a circle, each for the one before it: {}{more}",
                names.join(", ")
            );
            return Error::new(ErrorKind::Conflict, message);
        }
        path.push(before);
    }
}

/// A path of the workflow in its normal form: without `.` and empty parts. Absolute paths and URLs stay as
/// they are.
pub(crate) fn plain_name(name: &str) -> std::borrow::Cow<'_, str> {
    let is_url = name.contains("://");
    let is_plain = !name.split('/').any(|part| part.is_empty() || part == ".");
    if is_url || is_plain || name.starts_with('/') {
        return name.into();
    }
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.join("/").into()
}

/// The same for any name: the name of a folder still ends in `/`.
pub(crate) fn plain_name_of_any(name: &str) -> std::borrow::Cow<'_, str> {
    let plain = plain_name(name);
    match name.ends_with('/') && !plain.is_empty() && !plain.ends_with('/') {
        true => format!("{plain}/").into(),
        false => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, inputs: &[&str], outputs: &[&str], b: &mut Builder) -> Task {
        let mut uses = |names: &[&str]| names.iter().map(|n| Use::of(b.file(n))).collect::<Vec<_>>();
        let (inputs, outputs) = (uses(inputs), uses(outputs));
        Task { id: id.into(), inputs, outputs, ..Task::default() }
    }

    fn build(tasks: &[(&str, &[&str], &[&str])], links: &[(u32, u32)]) -> Result<Workflow> {
        let mut b = Builder::new("w", 0);
        for (id, inputs, outputs) in tasks {
            let t = task(id, inputs, outputs, &mut b);
            b.task(t)?;
        }
        links.iter().for_each(|(p, c)| b.link(*p, *c));
        b.finish()
    }

    #[test]
    fn what_files_say_is_not_said_again() {
        let w = build(
            &[("a", &["in", "in"], &["x", "x"]), ("b", &["x"], &[]), ("c", &[], &[])],
            &[(0, 1), (0, 2), (1, 2), (0, 2)],
        )
        .unwrap();
        assert_eq!((w.tasks[0].inputs.len(), w.tasks[0].outputs.len()), (1, 1));
        assert_eq!(w.tasks[1].parents, [] as [u32; 0]);
        assert_eq!(w.tasks[2].parents, [0, 1]);
        assert_eq!(w.levels(), [0, 1, 2]);
        assert_eq!(w.writers(), [None, Some(0)]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_names() {
        let check = |tasks: &[(&str, &[&str], &[&str])], links: &[(u32, u32)], expect: &str| {
            let error = build(tasks, links).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&[], &[], "no tasks");
        check(&[("a", &[], &[]), ("a", &[], &[])], &[], "two tasks have the id `a`");
        check(&[("a", &[], &["x"]), ("b", &[], &["x"])], &[], "two tasks write `x`: `a` and `b`");
        check(&[("a", &["x"], &["x"])], &[], "task `a` writes `x`, which it reads");
        check(&[("a", &[], &[])], &[(0, 0)], "task `a` waits for itself");
        check(
            &[("s", &[], &["i"]), ("a", &["i", "z"], &["x"]), ("b", &["x"], &["y"]), ("c", &["y"], &["z"])],
            &[],
            "circle, each for the one before it: `b`, `c`, `a`",
        );
        check(&[("a", &[], &["x"]), ("b", &["x"], &[])], &[(1, 0)], "in a circle");
    }

    #[test]
    fn names_have_one_text() {
        for (name, expect) in
            [("./a//b", "a/b"), ("a", "a"), ("/x/./y", "/x/./y"), ("http://h/a", "http://h/a")]
        {
            assert_eq!(plain_name(name), expect);
        }
    }
}
