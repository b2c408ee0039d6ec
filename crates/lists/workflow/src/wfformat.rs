//! WfFormat of WfCommons: JSON, read in all its versions and written in version 1.5.
//!
//! | WfFormat | tasks | they refer to each other by | run time | sizes |
//! |---|---|---|---|---|
//! | 1.0 to 1.2 | `workflow.jobs` | `name` | `runtime` | `files[].size` of each task |
//! | 1.3 | `workflow.tasks` | `name` | `runtime` | the same |
//! | 1.4 | `workflow.tasks` | `name` | `runtimeInSeconds` | `files[].sizeInBytes` of each task |
//! | 1.5, 1.6 | `workflow.specification.tasks` | `id` | `workflow.execution.tasks[].runtimeInSeconds` | `workflow.specification.files` |
//!
//! The shape of the file decides, not its `schemaVersion`, which is often wrong in instances. Unknown
//! fields are skipped. `coreCount` is what the task needs. Memory is what the task was seen to use, and no
//! limit.
//!
//! Written is what the schema of 1.5 allows. It wants ids of letters, digits, `-`, `_` and `.`, a size for
//! each file and a run time for each task; and it has no place for environment, limits and locations. What
//! the schema cannot express is written into an object `eyas` beside it, which other readers skip and ours
//! reads: reading the written file gives the same workflow.
//!
//! Files with absolute names (`/b6/e95c/x`, the work folders of Nextflow) are names of the other system and
//! no locations here: files that tasks write lose the first `/`, and files that no task writes are looked
//! for at their names. A task sees either kind by the last part of the name, as far as its files differ in
//! it.
//!
//! Source: the schema of WfFormat (wfcommons-schema.json, tag 1.5); for the changes between versions, its
//! migration tool.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::model::{
    Builder, File, FileNo, Machine, Measured, NO_NAME, Run, Task, TaskNo, Use, Workflow, plain_name_of_any,
};
use crate::naming;
use eyas_terms::array::{Command, Hints};
use eyas_terms::needs::{Needs, PARTS};
use eyas_text::line_of;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// The version that is written.
pub const VERSION: &str = "1.5";

// ---------------------------------------------------------------- the file

#[derive(Deserialize)]
struct Instance {
    name: Option<String>,
    #[serde(rename = "schemaVersion")]
    schema_version: Option<String>,
    workflow: Option<Body>,
}

#[derive(Deserialize)]
struct Body {
    specification: Option<Specification>,
    execution: Option<Execution>,
    #[serde(alias = "jobs")]
    tasks: Option<Vec<OldTask>>,
}

#[derive(Deserialize, Serialize)]
struct Specification {
    #[serde(default)]
    tasks: Vec<SpecTask>,
    #[serde(default)]
    files: Vec<SpecFile>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecTask {
    name: Option<String>,
    id: Option<String>,
    parents: Vec<String>,
    children: Vec<String>,
    input_files: Vec<String>,
    output_files: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    eyas: TaskExtra,
}

/// The properties of a task that WfFormat has no place for.
#[derive(Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct TaskExtra {
    /// The task's real id.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The task's stage, if names and program would give another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Command<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<Box<Needs>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    walltime_ns: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    retries: u32,
    #[serde(skip_serializing_if = "is_default")]
    dynamic: bool,
    #[serde(skip_serializing_if = "is_default")]
    hints: Hints,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    promises: Vec<String>,
    /// The task's own names of inputs, by position in `inputFiles`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    input_names: Vec<(u32, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_names: Vec<(u32, String)>,
    /// Positions in `inputFiles` of the inputs that the task can run without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    optional_inputs: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    optional_outputs: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// The run time in `execution` is made up; the task has none.
    #[serde(skip_serializing_if = "is_default")]
    no_runtime: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns: Option<u64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecFile {
    id: String,
    size_in_bytes: Option<serde_json::Number>,
    #[serde(default, skip_serializing_if = "is_default")]
    eyas: FileExtra,
}

#[derive(Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct FileExtra {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<bool>,
    /// The size is made up; the file has none.
    #[serde(skip_serializing_if = "is_default")]
    no_size: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Execution {
    #[serde(default)]
    makespan_in_seconds: Option<f64>,
    #[serde(default)]
    executed_at: Option<String>,
    #[serde(default)]
    tasks: Vec<ExecTask>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    machines: Vec<ExecMachine>,
    /// There was no run: the times are made up because the schema wants some.
    #[serde(default, skip_serializing_if = "is_default")]
    eyas_no_run: bool,
    /// See [`Workflow::is_for_sh`]; otherwise `/bin/sh -c LINE` is a line for eyas's usual shell.
    #[serde(default, skip_serializing_if = "is_default")]
    eyas_for_sh: bool,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecTask {
    id: String,
    runtime_in_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Started>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_count: Option<f64>,
    #[serde(rename = "avgCPU", skip_serializing_if = "Option::is_none")]
    avg_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    written_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_in_bytes: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// WfFormat 1.6 has a list here.
    #[serde(skip_serializing)]
    machines: Vec<String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Started {
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecMachine {
    node_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<MachineCpu>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineCpu {
    #[serde(alias = "count", skip_serializing_if = "Option::is_none")]
    core_count: Option<serde_json::Number>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldTask {
    name: Option<String>,
    id: Option<String>,
    category: Option<String>,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
    #[serde(default)]
    files: Vec<OldFile>,
    #[serde(alias = "runtimeInSeconds")]
    runtime: Option<f64>,
    cores: Option<f64>,
    command: Option<Started>,
    machine: Option<String>,
}

#[derive(Deserialize)]
struct OldFile {
    #[serde(alias = "id")]
    name: String,
    path: Option<String>,
    link: Option<String>,
    #[serde(alias = "sizeInBytes")]
    size: Option<f64>,
}

// ---------------------------------------------------------------- in

/// `stem` names the workflow if it has no name of its own.
pub(crate) fn parse(text: &str, stem: &str) -> Result<Workflow> {
    let instance: Instance = serde_json::from_str(text).map_err(explain)?;
    let version = instance.schema_version.unwrap_or_default();
    // A version that does not exist yet is refused. A wrong version ("1.0" in a newer file, or none at all)
    // is ignored.
    let newer = version.split_once('.').is_some_and(|(major, _)| major.parse::<u32>().is_ok_and(|m| m > 1));
    if newer {
        let message = format!("this is WfFormat {}, and 1.0 to 1.6 are known", shown(&version));
        return Err(Error::new(ErrorKind::Unknown, message));
    }
    let Some(body) = instance.workflow else {
        return Err(Error::broken("this is no WfFormat: it has no `workflow`"));
    };
    let name = instance.name.filter(|name| !name.is_empty()).unwrap_or_else(|| stem.into());
    let builder = Builder::new(name, text.len());
    match (body.specification, body.tasks) {
        (Some(specification), _) => new_tasks(builder, specification, body.execution),
        (None, Some(tasks)) => old_tasks(builder, tasks),
        (None, None) => {
            Err(Error::broken("its `workflow` has neither `specification` nor `tasks` nor `jobs`"))
        }
    }
}

fn explain(e: serde_json::Error) -> Error {
    let text = e.to_string();
    let text = text.strip_suffix(&format!(" at line {} column {}", e.line(), e.column())).unwrap_or(&text);
    let line = Some(e.line() as u32).filter(|line| *line > 0);
    match e.is_eof() {
        true => Error::new(ErrorKind::Truncated, "the file breaks off before its end").at(line),
        false => Error::broken(format!("this is no WfFormat: {}", line_of(text))).at(line),
    }
}

/// From here on, a float has not enough digits for nanoseconds.
const SECONDS_IN_MS: f64 = 1e6;

/// Nanoseconds; from [`SECONDS_IN_MS`] on whole milliseconds, so that reading a written time gives the same
/// time.
fn seconds_ns(seconds: Option<f64>, of: &str) -> Result<Option<u64>> {
    match seconds {
        Some(s) if !(s.is_finite() && (0.0..=1e9).contains(&s)) => {
            Err(Error::broken(format!("task {} cannot have run for {s} s", shown(of))))
        }
        Some(s) if s >= SECONDS_IN_MS => Ok(Some((s * 1e3).round() as u64 * 1_000_000)),
        s => Ok(s.map(|s| (s * 1e9).round() as u64)),
    }
}

fn bytes(size: Option<f64>, file: &str) -> Result<Option<u64>> {
    match size {
        Some(size) if !(size.is_finite() && (0.0..1e19).contains(&size)) => {
            Err(Error::broken(format!("file {} cannot have {size} bytes", shown(file))))
        }
        size => Ok(size.map(|s| s.round() as u64)),
    }
}

fn cpus(cores: Option<f64>) -> u32 {
    cores.unwrap_or(1.0).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// The command, if there is a program. A program that is a written [`Command::Shell`] becomes one again.
fn command(started: Option<Started>) -> Option<Command<String>> {
    let started = started?;
    let program = started.program.filter(|program| !program.is_empty())?;
    match (program.as_str(), started.arguments.as_slice()) {
        ("/bin/sh", [option, _]) if option == "-c" => {
            started.arguments.into_iter().nth(1).map(Command::Shell)
        }
        _ => Some(Command::Exec(std::iter::once(program).chain(started.arguments).collect())),
    }
}

fn new_tasks(mut b: Builder, specification: Specification, execution: Option<Execution>) -> Result<Workflow> {
    // From ids in the file to names, where they differ.
    let mut names: FxHashMap<String, String> = FxHashMap::default();
    // Files whose names eyas itself has written; these names need no change.
    let mut own: FxHashSet<FileNo> = FxHashSet::default();
    for file in specification.files {
        let size = match &file.size_in_bytes {
            _ if file.eyas.no_size => None,
            Some(n) => n.as_u64().map_or_else(|| bytes(n.as_f64(), &file.id), |n| Ok(Some(n)))?,
            None => None,
        };
        let is_own = file.eyas.name.is_some();
        let name = match file.eyas.name {
            Some(name) => names.entry(file.id).insert_entry(name).get().clone(),
            None => plain_name_of_any(&file.id).into_owned(),
        };
        let number = b.file(&name);
        if is_own {
            own.insert(number);
        }
        let known = b.file_mut(number);
        known.size_bytes = known.size_bytes.or(size);
        known.location = file.eyas.location;
        known.result = file.eyas.result;
    }
    let mut executed: FxHashMap<String, ExecTask> = FxHashMap::default();
    let is_for_sh = execution.as_ref().is_some_and(|execution| execution.eyas_for_sh);
    if let Some(execution) = execution {
        executed.extend(execution.tasks.into_iter().map(|t| (t.id.clone(), t)));
        if !execution.eyas_no_run {
            b.run(Run {
                executed_at: execution.executed_at.unwrap_or_default(),
                makespan_ns: seconds_ns(execution.makespan_in_seconds, "all")?.unwrap_or(0),
                machines: execution.machines.into_iter().map(machine).collect(),
            });
        }
    }
    let mut links: Vec<(TaskNo, Vec<String>, Vec<String>)> = vec![];
    let mut by_id: FxHashMap<String, TaskNo> = FxHashMap::default();
    let has_kinds = has_kinds(&specification.tasks);
    for (n, t) in specification.tasks.into_iter().enumerate() {
        let Some(id) = t.id.or_else(|| t.name.clone()) else {
            return Err(Error::broken(format!("task {} has neither `id` nor `name`", n + 1)));
        };
        let done = executed.remove(&id).unwrap_or_default();
        let mut uses = |ids: Vec<String>, own: Vec<(u32, String)>, optional: Vec<u32>| {
            let files = ids.iter().map(|id| match names.get(id) {
                Some(name) => b.file(name),
                None => b.file(&plain_name_of_any(id)),
            });
            let mut uses: Vec<Use> = files.map(Use::of).collect();
            for (place, name) in own {
                if let Some(u) = uses.get_mut(place as usize) {
                    u.name = Some(name);
                }
            }
            for place in optional {
                if let Some(u) = uses.get_mut(place as usize) {
                    u.optional = true;
                }
            }
            uses
        };
        let inputs = uses(t.input_files, t.eyas.input_names, t.eyas.optional_inputs);
        let outputs = uses(t.output_files, t.eyas.output_names, t.eyas.optional_outputs);
        let runtime_ns = seconds_ns(done.runtime_in_seconds, &id)?.filter(|_| !t.eyas.no_runtime);
        let needs = t.eyas.needs.filter(|needs| !needs.is_empty());
        if let Some(why) = needs.as_ref().and_then(|needs| needs.check().err()) {
            return Err(Error::broken(format!("task {} cannot need what it says: {why}", shown(&id))));
        }
        let task = Task {
            id: t.eyas.id.unwrap_or_else(|| id.clone()),
            stage: t
                .eyas
                .stage
                .unwrap_or_else(|| stage(t.name.as_deref(), &id, done.command.as_ref(), has_kinds)),
            command: t.eyas.command.or_else(|| command(done.command)),
            env: t.eyas.env,
            inputs,
            outputs,
            cpus: match &needs {
                Some(needs) if needs.cpu_parts > 0 => needs.cpu_parts.div_ceil(PARTS),
                _ => cpus(done.core_count),
            },
            needs,
            memory_bytes: t.eyas.memory_bytes,
            walltime_ns: t.eyas.walltime_ns,
            retries: t.eyas.retries,
            dynamic: t.eyas.dynamic,
            hints: t.eyas.hints,
            promises: t.eyas.promises,
            priority: done.priority.unwrap_or(0.0).clamp(-2e9, 2e9) as i32,
            measured: Measured {
                runtime_ns,
                cpu_ns: t.eyas.cpu_ns,
                // A whole number of bytes is kept as an integer: as a float it would not come back from a
                // file exactly.
                rss_bytes_max: done
                    .memory_in_bytes
                    .and_then(|n| n.as_u64().or_else(|| Some(n.as_f64()? as u64))),
                machine: done.machine.or_else(|| done.machines.into_iter().next()),
            },
            parents: vec![],
            line: t.eyas.line,
        };
        let number = b.task(task)?;
        by_id.insert(id, number);
        links.push((number, t.parents, t.children));
    }
    link(&mut b, links, &by_id)?;
    bring_inside(&mut b, &own);
    Ok(Workflow { is_for_sh, ..b.finish()? })
}

fn stage(name: Option<&str>, id: &str, started: Option<&Started>, has_kinds: bool) -> String {
    let program = started.and_then(|s| s.program.as_deref());
    naming::stage(name.unwrap_or(id), id, program, started.map_or(&[], |s| &s.arguments), has_kinds)
}

/// Whether the names of tasks in the file are names of their kinds.
fn has_kinds(tasks: &[SpecTask]) -> bool {
    tasks.iter().any(|t| match (&t.name, &t.id) {
        (Some(name), Some(id)) => naming::is_kind(name, id),
        _ => false,
    })
}

fn machine(m: ExecMachine) -> Machine {
    let n_cores = m.cpu.and_then(|cpu| cpu.core_count?.as_f64()).filter(|n| *n >= 1.0).map(|n| n as u32);
    Machine { name: m.node_name, n_cores }
}

fn old_tasks(mut b: Builder, tasks: Vec<OldTask>) -> Result<Workflow> {
    let mut links = vec![];
    let mut by_id: FxHashMap<String, TaskNo> = FxHashMap::default();
    let mut aliases = vec![];
    // If several tasks have one name, it is the name of their kind.
    let mut n_named: FxHashMap<String, u32> = FxHashMap::default();
    tasks.iter().filter_map(|t| t.name.clone()).for_each(|name| *n_named.entry(name).or_default() += 1);
    for (n, t) in tasks.into_iter().enumerate() {
        let is_kind = t.name.as_ref().is_some_and(|name| n_named[name] > 1) && t.id.is_some();
        let (name, id) = if is_kind { (&t.id, &t.name) } else { (&t.name, &t.id) };
        let Some(id) = name.clone().or_else(|| id.clone()) else {
            return Err(Error::broken(format!("task {} has neither `name` nor `id`", n + 1)));
        };
        let mut task = Task {
            stage: t.category.clone().unwrap_or_else(|| {
                let name = t.name.as_deref().filter(|_| is_kind);
                stage(name.or(Some(&id)), &id, t.command.as_ref(), false)
            }),
            command: command(t.command),
            cpus: cpus(t.cores),
            measured: Measured {
                runtime_ns: seconds_ns(t.runtime, &id)?,
                machine: t.machine,
                ..Measured::default()
            },
            ..Task::default()
        };
        for file in t.files {
            let path = file.path.filter(|path| !path.is_empty());
            let slash = if path.as_ref().is_some_and(|path| !path.ends_with('/')) { "/" } else { "" };
            let name = format!("{}{slash}{}", path.unwrap_or_default(), file.name);
            let size = bytes(file.size, &name)?;
            let number = b.file(&plain_name_of_any(&name));
            // The first size given for a file holds, as in the migration tool of WfFormat.
            let known = b.file_mut(number);
            known.size_bytes = known.size_bytes.or(size);
            match file.link.as_deref().map(str::to_ascii_lowercase).as_deref() {
                Some("input") => task.inputs.push(Use::of(number)),
                Some("output") => task.outputs.push(Use::of(number)),
                _ => {
                    let message = format!(
                        "file {} of task {} is neither `input` nor `output` by its `link`",
                        shown(&name),
                        shown(&id)
                    );
                    return Err(Error::broken(message));
                }
            }
        }
        task.id = id.clone();
        let number = b.task(task)?;
        by_id.insert(id, number);
        aliases.extend(t.id.map(|alias| (alias, number)));
        links.push((number, t.parents, t.children));
    }
    for (alias, number) in aliases {
        by_id.entry(alias).or_insert(number);
    }
    link(&mut b, links, &by_id)?;
    bring_inside(&mut b, &FxHashSet::default());
    b.finish()
}

/// Replaces absolute names, for all files but the `kept` ones: tasks get own names for them, and files that
/// tasks write get relative names.
fn bring_inside(b: &mut Builder, kept: &FxHashSet<FileNo>) {
    let written = b.written();
    let mut absolute = vec![false; written.len()];
    for (n, is_written) in written.into_iter().enumerate() {
        let file = b.file_mut(n as u32);
        if !file.name.starts_with('/') || file.location.is_some() || kept.contains(&(n as FileNo)) {
            continue;
        }
        absolute[n] = true;
        match is_written {
            false => file.location = Some(file.name.clone()),
            true => {
                let mut name = file.name.trim_start_matches('/').to_owned();
                while b.known_number(&name).is_some() {
                    name.insert(0, '_');
                }
                b.rename(n as u32, name);
            }
        }
    }
    if absolute.contains(&true) {
        b.tasks_mut().for_each(|(task, files)| own_names(task, files, &absolute));
    }
}

/// Lets `task` see its `absolute` files by the last part of their names, or by the whole name where the
/// last part is used already.
fn own_names(task: &mut Task, files: &[File], absolute: &[bool]) {
    let uses = || task.inputs.iter().chain(&task.outputs);
    let last = |u: &Use| -> &str {
        let name = files[u.file as usize].name.as_str();
        name.trim_end_matches('/').rsplit('/').next().unwrap_or(name)
    };
    // Own names, and the first parts of own paths, with the number of files that use them.
    let mut taken: FxHashMap<&str, u32> = FxHashMap::default();
    for u in uses().filter(|u| u.name.is_none()) {
        let name = files[u.file as usize].name.as_str();
        let own = if absolute[u.file as usize] { last(u) } else { name.split('/').next().unwrap_or(name) };
        *taken.entry(own).or_default() += 1;
    }
    let named = |u: &Use| -> Option<String> {
        let is_meant = absolute[u.file as usize] && u.name.is_none();
        let whole = files[u.file as usize].name.trim_start_matches('/');
        is_meant.then(|| if taken[last(u)] == 1 { last(u).to_owned() } else { whole.to_owned() })
    };
    let names: Vec<Option<String>> = uses().map(named).collect();
    for (u, name) in task.inputs.iter_mut().chain(&mut task.outputs).zip(names) {
        if let Some(name) = name.filter(|name| !name.is_empty() && *name != files[u.file as usize].name) {
            u.name = Some(name);
        }
    }
}

fn link(
    b: &mut Builder,
    links: Vec<(TaskNo, Vec<String>, Vec<String>)>,
    by_id: &FxHashMap<String, TaskNo>,
) -> Result<()> {
    for (task, parents, children) in links {
        for (name, is_parent) in
            parents.iter().map(|name| (name, true)).chain(children.iter().map(|name| (name, false)))
        {
            let Some(&other) = by_id.get(name) else {
                let what = if is_parent { "parent" } else { "child" };
                let of = shown(&b.task_mut(task).id);
                return Err(Error::broken(format!(
                    "task {of} has {} as {what}, which is no task",
                    shown(name)
                )));
            };
            match is_parent {
                true => b.link(other, task),
                false => b.link(task, other),
            }
        }
    }
    Ok(())
}

// ---------------------------------------------------------------- out

/// Writes `workflow` as WfFormat 1.5; `created_at` as in `2026-11-22T10:20:30Z`.
pub fn write(workflow: &Workflow, created_at: &str, mut out: impl Write) -> std::io::Result<()> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Out<'a> {
        name: &'a str,
        description: &'a str,
        created_at: &'a str,
        schema_version: &'a str,
        runtime_system: System,
        workflow: OutBody,
    }
    #[derive(Serialize)]
    struct System {
        name: &'static str,
        version: &'static str,
    }
    #[derive(Serialize)]
    struct OutBody {
        specification: Specification,
        #[serde(skip_serializing_if = "Option::is_none")]
        execution: Option<Execution>,
    }
    let all = Out {
        name: if workflow.name.is_empty() { NO_NAME } else { &workflow.name },
        description: match workflow.run {
            Some(_) => "A run of eyas, with measured times and sizes",
            None => "A workflow converted by eyas",
        },
        created_at,
        schema_version: VERSION,
        runtime_system: System { name: "eyas", version: env!("CARGO_PKG_VERSION") },
        workflow: body(workflow, created_at),
    };
    fn body(workflow: &Workflow, created_at: &str) -> OutBody {
        let (specification, execution) = parts(workflow, created_at);
        OutBody { specification, execution }
    }
    serde_json::to_writer_pretty(&mut out, &all)?;
    out.write_all(b"\n")
}

/// A time since the UNIX epoch as WfFormat writes it, `2026-11-22T10:20:30Z`.
pub fn timestamp(unix_ns: u64) -> String {
    let s = unix_ns / 1_000_000_000;
    let (mut day, second) = (s / 86_400, s % 86_400);
    let is_leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02}T{h:02}:{m:02}:{s:02}Z", day + 1)
}

/// Ids that the schema allows, one for each name; equal to the name where it is allowed and free.
fn ids<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken: FxHashSet<String> = FxHashSet::default();
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let names: Vec<&str> = names.collect();
    let plain = |name: &str| !name.is_empty() && name.chars().all(is_fine);
    taken.extend(names.iter().filter(|name| plain(name)).map(|name| (*name).to_owned()));
    // How often each base was made into an id, so that a million files of one name are not counted anew
    // each time.
    let mut n_made: FxHashMap<String, u64> = FxHashMap::default();
    let mut make = |name: &str| {
        if plain(name) {
            return name.to_owned();
        }
        let tail = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name);
        let mut base: String = tail.chars().map(|c| if is_fine(c) { c } else { '_' }).collect();
        if base.is_empty() {
            base.push('_');
        }
        let n = n_made.entry(base.clone()).or_insert(0);
        loop {
            *n += 1;
            let id = if *n == 1 { base.clone() } else { format!("{base}-{n}") };
            if taken.insert(id.clone()) {
                return id;
            }
        }
    };
    names.iter().map(|name| make(name)).collect()
}

fn parts(workflow: &Workflow, created_at: &str) -> (Specification, Option<Execution>) {
    let task_ids = ids(workflow.tasks.iter().map(|t| t.id.as_str()));
    let file_ids = ids(workflow.files.iter().map(|f| f.name.as_str()));
    let predecessors = workflow.predecessors();
    let mut children: Vec<Vec<String>> = vec![vec![]; workflow.tasks.len()];
    for (n, before) in predecessors.iter().enumerate() {
        before.iter().for_each(|p| children[*p as usize].push(task_ids[n].clone()));
    }
    let file = |(n, f): (usize, &File)| SpecFile {
        id: file_ids[n].clone(),
        size_in_bytes: Some(f.size_bytes.unwrap_or(0).into()),
        eyas: FileExtra {
            name: (file_ids[n] != f.name).then(|| f.name.clone()),
            location: f.location.clone(),
            result: f.result,
            no_size: f.size_bytes.is_none(),
        },
    };
    let mut tasks = Vec::with_capacity(workflow.tasks.len());
    let mut executed = Vec::with_capacity(workflow.tasks.len());
    let names_kind = |(t, id): (&Task, &String)| !t.stage.is_empty() && naming::is_kind(&t.stage, id);
    let has_kinds = workflow.tasks.iter().zip(&task_ids).any(names_kind);
    for (n, t) in workflow.tasks.iter().enumerate() {
        let used = |uses: &[Use]| -> Vec<String> {
            uses.iter().map(|u| file_ids[u.file as usize].clone()).collect()
        };
        let own = |uses: &[Use]| -> Vec<(u32, String)> {
            let named = uses.iter().enumerate();
            named.filter_map(|(i, u)| Some((i as u32, u.name.clone()?))).collect()
        };
        let optional = |uses: &[Use]| -> Vec<u32> {
            uses.iter().enumerate().filter(|(_, u)| u.optional).map(|(i, _)| i as u32).collect()
        };
        let (started, is_kept) = match &t.command {
            None => (None, true),
            Some(Command::Shell(line)) => {
                let arguments = vec!["-c".into(), line.clone()];
                (Some(Started { program: Some("/bin/sh".into()), arguments }), !line.is_empty())
            }
            Some(Command::Exec(argv)) => {
                let started = Started {
                    program: argv.first().cloned(),
                    arguments: argv.get(1..).unwrap_or_default().to_vec(),
                };
                // A program of this form would be read as a shell command.
                let is_shell = argv.len() == 3 && argv[0] == "/bin/sh" && argv[1] == "-c";
                (Some(started), !is_shell && !argv.iter().any(String::is_empty))
            }
        };
        let started = started.filter(|_| is_kept);
        let name = if t.stage.is_empty() { &task_ids[n] } else { &t.stage };
        let is_told = stage(Some(name), &task_ids[n], started.as_ref(), has_kinds) == t.stage;
        tasks.push(SpecTask {
            name: Some(name.clone()),
            id: Some(task_ids[n].clone()),
            parents: predecessors[n].iter().map(|p| task_ids[*p as usize].clone()).collect(),
            children: std::mem::take(&mut children[n]),
            input_files: used(&t.inputs),
            output_files: used(&t.outputs),
            eyas: TaskExtra {
                id: (task_ids[n] != t.id).then(|| t.id.clone()),
                stage: (!is_told).then(|| t.stage.clone()),
                command: t.command.clone().filter(|_| !is_kept),
                env: t.env.clone(),
                needs: t.needs.clone(),
                memory_bytes: t.memory_bytes,
                walltime_ns: t.walltime_ns,
                retries: t.retries,
                dynamic: t.dynamic,
                hints: t.hints,
                promises: t.promises.clone(),
                input_names: own(&t.inputs),
                output_names: own(&t.outputs),
                optional_inputs: optional(&t.inputs),
                optional_outputs: optional(&t.outputs),
                line: t.line,
                no_runtime: t.measured.runtime_ns.is_none(),
                cpu_ns: t.measured.cpu_ns,
            },
        });
        let sum = |uses: &[Use]| -> Option<f64> {
            let sizes = uses.iter().map(|u| workflow.files[u.file as usize].size_bytes.map(|b| b as f64));
            sizes.sum()
        };
        let runtime_ns = t.measured.runtime_ns;
        let ran = runtime_ns.is_some();
        executed.push(ExecTask {
            id: task_ids[n].clone(),
            runtime_in_seconds: Some(runtime_ns.unwrap_or(0) as f64 / 1e9),
            command: started,
            core_count: Some(f64::from(t.cpus)),
            avg_cpu: t
                .measured
                .cpu_ns
                .zip(runtime_ns.filter(|ns| *ns > 0))
                .map(|(cpu, ns)| (cpu as f64 / ns as f64 * 1e4).round() / 100.0),
            read_bytes: sum(&t.inputs).filter(|_| ran),
            written_bytes: sum(&t.outputs).filter(|_| ran),
            memory_in_bytes: t.measured.rss_bytes_max.map(Into::into),
            priority: (t.priority != 0).then_some(f64::from(t.priority)),
            machine: t.measured.machine.clone(),
            machines: vec![],
        });
    }
    let files = workflow.files.iter().enumerate().map(file).collect();
    let run = workflow.run.as_ref();
    let known = run.map(|run| run.executed_at.as_str()).filter(|at| !at.is_empty());
    let execution = Execution {
        makespan_in_seconds: Some(run.map_or(0, |run| run.makespan_ns) as f64 / 1e9),
        executed_at: Some(known.unwrap_or(created_at).into()),
        tasks: executed,
        machines: run.map_or(vec![], |run| run.machines.iter().map(out_machine).collect()),
        eyas_no_run: run.is_none(),
        eyas_for_sh: workflow.is_for_sh,
    };
    (Specification { tasks, files }, Some(execution))
}

fn out_machine(m: &Machine) -> ExecMachine {
    let cpu = m.n_cores.map(|n| MachineCpu { core_count: Some(n.into()) });
    ExecMachine { node_name: m.name.clone(), system: Some("linux".into()), cpu }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_text() {
        for (s, expect) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_795_293_000, "2026-11-21T20:30:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(s * 1_000_000_000), expect);
        }
    }
}
