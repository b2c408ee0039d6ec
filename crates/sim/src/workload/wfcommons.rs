//! Workflow instances of WfCommons (WfFormat 1.3 to 1.6): real and generated workflows as JSON.
//!
//! Tasks are linked by files: what one lists as output and another as input makes the other wait. Where an instance
//! says that a task has a parent and they share no file, a file of one byte named `after:PARENT` is put between
//! them, because files are all that links tasks here.
//!
//! | WfFormat | tasks | names | run time | sizes |
//! |---|---|---|---|---|
//! | 1.3 | `workflow.tasks` | tasks refer to each other by `name` | `runtime` | `files[].size` of each task |
//! | 1.4 | `workflow.tasks` | the same | `runtimeInSeconds` | `files[].sizeInBytes` of each task |
//! | 1.5, 1.6 | `workflow.specification.tasks` | by `id` | `workflow.execution.tasks[].runtimeInSeconds` | `workflow.specification.files` |
//!
//! The shape of the file decides, not its `schemaVersion`, which instances often have wrong. Unknown fields are
//! skipped. What is missing is refused unless [`WfConfig`] says what to take instead. Not used: memory (KB in 1.3,
//! wrong in many instances), machines, commands.
//!
//! A recorded run time has the task's own reading and writing in it, see [`ProgramIo`].
//!
//! All tasks are submitted at time 0, makers before readers, otherwise in the order of the instance. The ideal
//! time is the longest chain of compute times. Sources: the README and schema of WfFormat, and its migration tool for
//! what changed between versions.

use super::*;
use serde::Deserialize;
use std::path::Path;

const READ: &str = "read the workflow";

#[derive(Clone, PartialEq, Debug, Default)]
pub struct WfConfig {
    /// For tasks without a run time, in nanoseconds.
    pub compute_missing_ns: Option<u64>,
    /// For files without a size.
    pub size_missing_bytes: Option<u64>,
    /// Tasks that had more cores get so many slots. `None`: as many as they had.
    pub cpus_max: Option<u32>,
    pub io: ProgramIo,
}

#[derive(Deserialize)]
struct Instance {
    name: Option<String>,
    #[serde(rename = "schemaVersion")]
    schema_version: Option<String>,
    workflow: Option<Workflow>,
}

#[derive(Deserialize)]
struct Workflow {
    specification: Option<Specification>,
    execution: Option<Execution>,
    tasks: Option<Vec<OldTask>>,
    jobs: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Specification {
    #[serde(default)]
    tasks: Vec<SpecTask>,
    #[serde(default)]
    files: Vec<SpecFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecTask {
    id: Option<String>,
    name: Option<String>,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
    #[serde(default)]
    input_files: Vec<String>,
    #[serde(default)]
    output_files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecFile {
    id: String,
    size_in_bytes: Option<f64>,
}

#[derive(Deserialize)]
struct Execution {
    #[serde(default)]
    tasks: Vec<ExecTask>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecTask {
    id: String,
    runtime_in_seconds: Option<f64>,
    core_count: Option<f64>,
}

#[derive(Deserialize)]
struct OldTask {
    name: Option<String>,
    id: Option<String>,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
    #[serde(default)]
    files: Vec<OldFile>,
    #[serde(alias = "runtimeInSeconds")]
    runtime: Option<f64>,
    cores: Option<f64>,
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

/// A task, whatever the version.
struct Task {
    id: String,
    /// Other names by which parents and children may call it.
    aliases: Vec<String>,
    parents: Vec<String>,
    children: Vec<String>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    runtime_s: Option<f64>,
    cores: Option<f64>,
}

/// Reads an instance. Errors name the file and, where it is one task or file's fault, that.
pub fn wfcommons(path: &Path, config: &WfConfig) -> Result<Workload, Error> {
    let text = std::fs::read(path).map_err(|e| Error::open(READ, path, e))?;
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    parse(&text, &stem, config).map_err(|mut error| {
        error.context = format!("`{}`: {}", path.display(), error.context);
        error
    })
}

fn foreign(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Foreign, READ, context)
}

fn parse(text: &[u8], stem: &str, config: &WfConfig) -> Result<Workload, Error> {
    config.io.check()?;
    let instance: Instance = serde_json::from_slice(text).map_err(|e| {
        let broken = e.is_eof() && !text.is_empty();
        let context = match broken {
            true => format!("it breaks off: {e}"),
            false => format!("it is not a WfCommons instance: {e}"),
        };
        let kind = if broken { ErrorKind::Incomplete } else { ErrorKind::Foreign };
        Error { source: Some(Box::new(e)), ..Error::new(kind, READ, context) }
    })?;
    let Some(workflow) = instance.workflow else {
        return Err(foreign("it is not a WfCommons instance: it has no `workflow`"));
    };
    let mut sizes = FxHashMap::default();
    let tasks = match (workflow.specification, workflow.tasks, workflow.jobs) {
        (Some(specification), ..) => new_tasks(specification, workflow.execution, &mut sizes)?,
        (None, Some(tasks), _) => old_tasks(tasks, &mut sizes)?,
        (None, None, Some(_)) => {
            let version = instance.schema_version.unwrap_or_else(|| "1.2 or older".into());
            return Err(foreign(format!(
                "it has `workflow.jobs`, which is WfFormat {version}; 1.3 to 1.6 are read"
            ))
            .hint("WfFormat's own tools/wfcommons-migrate-instance.py makes a new one of it"));
        }
        _ => return Err(foreign("its `workflow` has neither `specification` nor `tasks`")),
    };
    if tasks.is_empty() {
        return Err(foreign("it has no tasks"));
    }
    let name = instance.name.filter(|name| !name.is_empty()).unwrap_or_else(|| stem.into());
    workload(name, tasks, sizes, config)
}

/// A size as JSON has it, which may be a float.
fn bytes(size: Option<f64>, file: &str) -> Result<Option<u64>, Error> {
    match size {
        Some(size) if !(size.is_finite() && (0.0..1e18).contains(&size)) => {
            Err(foreign(format!("file `{file}` cannot have {size} bytes")))
        }
        size => Ok(size.map(|s| s.round() as u64)),
    }
}

fn new_tasks(
    specification: Specification,
    execution: Option<Execution>,
    sizes: &mut FxHashMap<String, u64>,
) -> Result<Vec<Task>, Error> {
    for file in specification.files {
        if let Some(size) = bytes(file.size_in_bytes, &file.id)? {
            sizes.insert(file.id, size);
        }
    }
    let executed: FxHashMap<String, (Option<f64>, Option<f64>)> = execution
        .map(|e| e.tasks.into_iter().map(|t| (t.id, (t.runtime_in_seconds, t.core_count))).collect())
        .unwrap_or_default();
    let tasks = specification.tasks.into_iter().enumerate().map(|(n, t)| {
        let Some(id) = t.id.or(t.name) else {
            return Err(foreign(format!("task {} has neither `id` nor `name`", n + 1)));
        };
        let (runtime_s, cores) = executed.get(&id).copied().unwrap_or_default();
        Ok(Task {
            id,
            aliases: vec![],
            parents: t.parents,
            children: t.children,
            inputs: t.input_files,
            outputs: t.output_files,
            runtime_s,
            cores,
        })
    });
    tasks.collect()
}

fn old_tasks(tasks: Vec<OldTask>, sizes: &mut FxHashMap<String, u64>) -> Result<Vec<Task>, Error> {
    let tasks = tasks.into_iter().enumerate().map(|(n, t)| {
        let aliases: Vec<String> = t.id.iter().cloned().collect();
        let Some(id) = t.name.or(t.id) else {
            return Err(foreign(format!("task {} has neither `name` nor `id`", n + 1)));
        };
        let (mut inputs, mut outputs) = (vec![], vec![]);
        for file in t.files {
            let location = format!("{}{}", file.path.as_deref().unwrap_or(""), file.name);
            if let Some(size) = bytes(file.size, &location)? {
                // The first one to say it holds, as in the migration tool of WfFormat.
                sizes.entry(location.clone()).or_insert(size);
            }
            match file.link.as_deref().map(str::to_ascii_lowercase).as_deref() {
                Some("input") => inputs.push(location),
                Some("output") => outputs.push(location),
                _ => {
                    return Err(foreign(format!(
                        "file `{location}` of task `{id}` is neither `input` nor `output` by its `link`"
                    )));
                }
            }
        }
        let (runtime_s, cores) = (t.runtime, t.cores);
        Ok(Task { id, aliases, parents: t.parents, children: t.children, inputs, outputs, runtime_s, cores })
    });
    tasks.collect()
}

fn workload(
    name: String,
    mut tasks: Vec<Task>,
    mut sizes: FxHashMap<String, u64>,
    config: &WfConfig,
) -> Result<Workload, Error> {
    for task in &mut tasks {
        for list in [&mut task.inputs, &mut task.outputs] {
            let mut seen = std::collections::BTreeSet::new();
            list.retain(|location| seen.insert(location.clone()));
        }
    }
    link_parents(&mut tasks, &mut sizes)?;
    let (mut submissions, mut read_bytes) = (vec![], 0u64);
    for task in &tasks {
        let mut sum = |list: &[String]| {
            let mut total = 0u64;
            for location in list {
                let size = match sizes.get(location).copied().or(config.size_missing_bytes) {
                    Some(size) => size,
                    None => {
                        return Err(foreign(format!("file `{location}` of task `{}` has no size", task.id))
                            .hint("say how large files without a size are taken to be"));
                    }
                };
                sizes.insert(location.clone(), size);
                total = total.saturating_add(size);
            }
            Ok(total)
        };
        let (task_reads, task_writes) = (sum(&task.inputs)?, sum(&task.outputs)?);
        read_bytes = read_bytes.saturating_add(task_reads);
        let run_ns = match task.runtime_s {
            Some(s) if s.is_finite() && (0.0..1e9).contains(&s) => (s * 1e9).round() as u64,
            Some(s) => return Err(foreign(format!("task `{}` cannot have run for {s} s", task.id))),
            None => config.compute_missing_ns.ok_or_else(|| {
                foreign(format!("task `{}` has no run time", task.id))
                    .hint("only recorded or generated executions have run times; say how long the others are taken to be")
            })?,
        };
        let patterns = |list: &[String]| list.iter().map(Pattern::literal).collect();
        let (inputs, outputs) = (patterns(&task.inputs), patterns(&task.outputs));
        let mut template = template(Pattern::literal(&task.id), "task", inputs, outputs);
        let cores = task.cores.unwrap_or(1.0).ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
        template.cpus = cores.min(config.cpus_max.unwrap_or(u32::MAX).max(1));
        let array = TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![] };
        let compute_ns = match task.runtime_s {
            Some(_) => config.io.compute_ns(run_ns, task_reads, task_writes),
            None => run_ns,
        };
        submissions.push(Submission {
            at: Timestamp(0),
            array: Arc::new(array),
            compute: Compute::Same(compute_ns),
        });
    }
    let sizes = Sizes::Each(sizes);
    let submissions = links::in_order(submissions, &sizes)?;
    Ok(Workload {
        name,
        n_tasks: submissions.len() as u64,
        ideal_ns: links::longest_chain_ns(&submissions),
        read_bytes,
        sizes,
        submissions: Box::new(submissions.into_iter()),
    })
}

/// Puts a file between a task and a parent where they share none.
fn link_parents(tasks: &mut [Task], sizes: &mut FxHashMap<String, u64>) -> Result<(), Error> {
    let mut index: FxHashMap<String, usize> = FxHashMap::default();
    for (n, task) in tasks.iter().enumerate() {
        if index.insert(task.id.clone(), n).is_some() {
            return Err(foreign(format!("two tasks are called `{}`", task.id)));
        }
    }
    for (n, task) in tasks.iter().enumerate() {
        task.aliases.iter().for_each(|alias| {
            index.entry(alias.clone()).or_insert(n);
        });
    }
    let find = |name: &String, of: &Task| {
        index.get(name).copied().ok_or_else(|| {
            foreign(format!("task `{}` has `{name}` as parent or child, which is no task", of.id))
        })
    };
    let mut pairs = std::collections::BTreeSet::new();
    for (n, task) in tasks.iter().enumerate() {
        for parent in &task.parents {
            pairs.insert((find(parent, task)?, n));
        }
        for child in &task.children {
            pairs.insert((n, find(child, task)?));
        }
    }
    for (parent, child) in pairs {
        let shares = tasks[parent].outputs.iter().any(|location| tasks[child].inputs.contains(location));
        if shares {
            continue;
        }
        let location = format!("after:{}", tasks[parent].id);
        sizes.insert(location.clone(), 1);
        if tasks[parent].outputs.last() != Some(&location) {
            tasks[parent].outputs.push(location.clone());
        }
        tasks[child].inputs.push(location);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by hand for these tests: split, two searches that also read a database, a merge and a report that
    // shares no file with the merge.
    const NEW: &str = r#"{"name":"own","schemaVersion":"1.5","workflow":{"specification":{
        "tasks":[
          {"name":"report","id":"r","parents":["m"],"children":[],"inputFiles":[],"outputFiles":["page"]},
          {"name":"split","id":"s","parents":[],"children":["a","b"],"inputFiles":["seqs"],"outputFiles":["q1","q2"]},
          {"name":"search","id":"a","parents":["s"],"children":["m"],"inputFiles":["q1","db"],"outputFiles":["h1"]},
          {"name":"search","id":"b","parents":["s"],"children":["m"],"inputFiles":["q2","db"],"outputFiles":["h2"]},
          {"name":"merge","id":"m","parents":["a","b"],"children":["r"],"inputFiles":["h1","h2"],"outputFiles":["all"]}],
        "files":[{"id":"seqs","sizeInBytes":1000},{"id":"q1","sizeInBytes":500},{"id":"q2","sizeInBytes":500},
          {"id":"db","sizeInBytes":9000},{"id":"h1","sizeInBytes":10},{"id":"h2","sizeInBytes":20},
          {"id":"all","sizeInBytes":30},{"id":"page","sizeInBytes":5}]},
      "execution":{"makespanInSeconds":9,"executedAt":"2026-01-01T00:00:00Z","tasks":[
          {"id":"s","runtimeInSeconds":1.5},{"id":"a","runtimeInSeconds":4,"coreCount":1.5},
          {"id":"b","runtimeInSeconds":3},{"id":"m","runtimeInSeconds":0.25},{"id":"r","runtimeInSeconds":0.001}]}}}"#;

    // The same split and one search as 1.3 would have it.
    const OLD: &str = r#"{"name":"old","schemaVersion":"1.3","workflow":{"makespan":9,"executedAt":"x","tasks":[
        {"name":"search_ID2","id":"ID2","type":"compute","runtime":4,"cores":1,"parents":["split_ID1"],
         "files":[{"link":"input","name":"q1","size":500},{"link":"input","name":"db","path":"home/","size":9000},
                  {"link":"output","name":"h1","size":10}]},
        {"name":"split_ID1","id":"ID1","type":"compute","runtime":1.5,"parents":[],
         "files":[{"link":"input","name":"seqs","size":1000},{"link":"output","name":"q1","size":500}]}]}}"#;

    fn read(text: &str) -> Result<Workload, Error> {
        parse(text.as_bytes(), "stem", &WfConfig::default())
    }

    fn refused(text: &str, expect: &str) {
        let error = read(text).err().expect("is refused").to_string();
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn tasks_of_1_5_are_linked_by_files_and_makers_come_first() {
        let workload = read(NEW).unwrap();
        assert_eq!((workload.name.as_str(), workload.n_tasks), ("own", 5));
        assert_eq!(workload.read_bytes, 1000 + 2 * 9500 + 30 + 1);
        assert_eq!(workload.ideal_ns, 5_751 * MS_NS);
        assert_eq!(workload.sizes.of("db"), Some(9000));
        let list: Vec<_> = workload.submissions.collect();
        let tasks: Vec<_> = list.iter().map(|s| s.array.expand(0)).collect();
        let ids: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
        assert_eq!(ids, ["s", "a", "b", "m", "r"]);
        let cpus: Vec<u32> = tasks.iter().map(|t| t.cpus).collect();
        assert_eq!(cpus, [1, 2, 1, 1, 1], "1.5 cores are two slots");
        assert_eq!(list[1].compute, Compute::Same(4 * SECOND_NS));
        let reads: Vec<&str> = tasks[4].inputs.iter().map(|(_, l)| l.as_str()).collect();
        assert_eq!(reads, ["after:m"], "no file links the report to its parent");
    }

    #[test]
    fn tasks_of_1_3_are_read_as_well() {
        let workload = read(OLD).unwrap();
        assert_eq!((workload.n_tasks, workload.ideal_ns), (2, 5_500 * MS_NS));
        assert_eq!(workload.sizes.of("home/db"), Some(9000));
        let ids: Vec<String> = workload.submissions.map(|s| s.array.expand(0).id).collect();
        assert_eq!(ids, ["split_ID1", "search_ID2"]);
        let newer =
            OLD.replace(r#""size":"#, r#""sizeInBytes":"#).replace(r#""runtime":"#, r#""runtimeInSeconds":"#);
        assert_eq!(read(&newer).unwrap().ideal_ns, 5_500 * MS_NS);
    }

    #[test]
    fn reading_and_writing_is_taken_out_of_run_times() {
        let io = ProgramIo { read_bytes_per_s: Some(1000.0), write_bytes_per_s: Some(10_000.0) };
        let config = WfConfig { io, ..WfConfig::default() };
        let first = parse(OLD.as_bytes(), "", &config).unwrap().submissions.next().unwrap();
        assert_eq!(first.compute, Compute::Same((1500 - 1000 - 50) * MS_NS));
    }

    #[test]
    fn what_is_missing_has_to_be_said() {
        let unsized_ = NEW.replace(r#"{"id":"db","sizeInBytes":9000},"#, "");
        refused(&unsized_, "file `db` of task `a` has no size");
        let untimed = NEW.replace(r#"{"id":"b","runtimeInSeconds":3},"#, "");
        refused(&untimed, "task `b` has no run time");
        let config = WfConfig {
            compute_missing_ns: Some(7),
            size_missing_bytes: Some(8),
            cpus_max: Some(1),
            ..WfConfig::default()
        };
        let workload = parse(unsized_.as_bytes(), "", &config).unwrap();
        assert_eq!(workload.sizes.of("db"), Some(8));
        assert!(workload.submissions.into_iter().all(|s| s.array.template.cpus == 1));
        let workload = parse(untimed.as_bytes(), "", &config).unwrap();
        assert!(workload.submissions.into_iter().any(|s| s.compute == Compute::Same(7)));
    }

    #[test]
    fn foreign_truncated_and_impossible_files_are_refused_in_a_sentence() {
        refused(&NEW[..NEW.len() / 2], "it breaks off");
        refused("hello", "it is not a WfCommons instance");
        refused("{}", "it has no `workflow`");
        refused(r#"{"workflow":{"jobs":[]},"schemaVersion":"1.1"}"#, "WfFormat 1.1; 1.3 to 1.6 are read");
        refused(r#"{"workflow":{"specification":{"tasks":[]}}}"#, "it has no tasks");
        refused(
            &NEW.replace(r#""parents":["m"]"#, r#""parents":["x"]"#),
            "has `x` as parent or child, which is no task",
        );
        refused(&NEW.replace(r#""id":"b","parents""#, r#""id":"a","parents""#), "two tasks are called `a`");
        refused(
            &NEW.replace("\"runtimeInSeconds\":3", "\"runtimeInSeconds\":-3"),
            "cannot have run for -3 s",
        );
        refused(&NEW.replace(r#"["seqs"]"#, r#"["h1"]"#), "in a circle");
        let missing = wfcommons(Path::new("/nowhere/w.json"), &WfConfig::default()).err().unwrap();
        assert_eq!((missing.kind, missing.status), (ErrorKind::Open, Status::Permanent));
        assert!(missing.to_string().contains("/nowhere/w.json"));
    }
}
