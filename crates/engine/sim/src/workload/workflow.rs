//! Workflows from files: instances of WfCommons, and the other formats that `eyas-workflow` reads.
//!
//! Tasks are linked by files: if one task lists a file as output and another as input, the other waits. If
//! a task has a parent and they share no file, a file of one byte named `after:PARENT` is put between them,
//! because only files link tasks here.
//!
//! Missing run times and sizes are refused unless [`WorkflowConfig`] says what to assume. Not used: memory,
//! machines, commands.
//!
//! A recorded run time contains the task's own reading and writing, see [`ProgramIo`].
//!
//! All tasks are submitted at time 0, makers before readers, otherwise in the order of the file. The ideal
//! time is the longest chain of compute times.
//!
//! Not here: the formats (`eyas-workflow`), including the refusal of a file that cannot be a workflow: two
//! writers, circles.

use super::{ArrivingTasks, Compute, Error, ErrorKind, ProgramIo, Sizes, Status, Workload, links, template};
use eyas_terms::Timestamp;
use eyas_terms::array::{Pattern, TaskArray};
use eyas_text::shown;
use eyas_workflow as flow;
use rustc_hash::FxHashMap;
use std::path::Path;
use std::sync::Arc;

const READ: &str = "read the workflow";

#[derive(Clone, PartialEq, Debug, Default)]
pub struct WorkflowConfig {
    /// The compute time of tasks without a run time, in nanoseconds.
    pub compute_missing_ns: Option<u64>,
    /// The size of files without a size.
    pub size_missing_bytes: Option<u64>,
    /// The most slots of a task; tasks that had more cores get this number. `None`: as many slots as the
    /// task had cores.
    pub cpus_max: Option<u32>,
    pub io: ProgramIo,
}

/// Reads a workflow file. Errors name the file and, if one task or file in it is the cause, that task or
/// file.
pub fn workflow(path: &Path, config: &WorkflowConfig) -> Result<Workload, Error> {
    let format = flow::format_of(path).map_err(unread)?;
    if format == flow::Format::JsonLines {
        let context =
            format!("{}: it is a task list, and no workflow such as those of WfCommons", path.display());
        return Err(foreign(context)
            .hint("`eyas predict` takes task lists, and `eyas convert` makes workflows of them"));
    }
    let workflow = flow::read(path, format).map_err(unread)?;
    workload(&workflow, config).map_err(|mut error| {
        error.context = format!("{}: {}", path.display(), error.context);
        error
    })
}

/// The error of the reader of workflows, as an error of workloads.
fn unread(e: flow::Error) -> Error {
    let kind = match e.kind {
        flow::ErrorKind::Io => ErrorKind::Open,
        flow::ErrorKind::Truncated => ErrorKind::Incomplete,
        flow::ErrorKind::Unknown
        | flow::ErrorKind::Broken
        | flow::ErrorKind::Unsupported
        | flow::ErrorKind::Conflict
        | flow::ErrorKind::Missing => ErrorKind::Foreign,
    };
    let status = match e.status {
        flow::Status::Temporary => Status::Temporary,
        flow::Status::Permanent | flow::Status::Persistent => Status::Permanent,
    };
    let text = e.to_string();
    let context = text.split("\nhint: ").next().unwrap_or(&text);
    let error = Error { status, hint: e.hint.clone(), ..Error::new(kind, READ, context) };
    Error { source: Some(Box::new(e)), ..error }
}

fn foreign(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Foreign, READ, context)
}

fn workload(workflow: &flow::Workflow, config: &WorkflowConfig) -> Result<Workload, Error> {
    config.io.check()?;
    let mut sizes: FxHashMap<String, u64> = FxHashMap::default();
    let mut is_parent = vec![false; workflow.tasks.len()];
    workflow.tasks.iter().flat_map(|t| &t.parents).for_each(|parent| is_parent[*parent as usize] = true);
    let after = |task: &flow::Task| format!("after:{}", task.id);
    for (task, _) in workflow.tasks.iter().zip(&is_parent).filter(|(_, is_parent)| **is_parent) {
        sizes.insert(after(task), 1);
    }
    let (mut submissions, mut read_bytes) = (vec![], 0u64);
    for (task, is_parent) in workflow.tasks.iter().zip(is_parent) {
        let mut sized = |uses: &[flow::Use]| {
            let (mut names, mut total) = (Vec::with_capacity(uses.len() + 1), 0u64);
            for u in uses {
                let file = &workflow.files[u.file as usize];
                let Some(size) = file.size_bytes.or(config.size_missing_bytes) else {
                    return Err(foreign(format!(
                        "file {} of task {} has no size",
                        shown(&file.name),
                        shown(&task.id)
                    ))
                    .hint("say how large files without a size are taken to be"));
                };
                sizes.insert(file.name.clone(), size);
                names.push(file.name.clone());
                total = total.saturating_add(size);
            }
            Ok((names, total))
        };
        let (mut inputs, mut task_reads) = sized(&task.inputs)?;
        let (mut outputs, mut task_writes) = sized(&task.outputs)?;
        inputs.extend(task.parents.iter().map(|parent| after(&workflow.tasks[*parent as usize])));
        task_reads = task_reads.saturating_add(task.parents.len() as u64);
        if is_parent {
            outputs.push(after(task));
            task_writes = task_writes.saturating_add(1);
        }
        read_bytes = read_bytes.saturating_add(task_reads);
        let compute_ns = match (task.measured.runtime_ns, config.compute_missing_ns) {
            (Some(run_ns), _) => config.io.compute_ns(run_ns, task_reads, task_writes),
            (None, Some(compute_ns)) => compute_ns,
            (None, None) => {
                return Err(foreign(format!("task {} has no run time", shown(&task.id))).hint(
                    "only recorded or generated executions have run times; say how long the others are taken to be",
                ));
            }
        };
        let patterns = |list: &[String]| list.iter().map(Pattern::literal).collect();
        let mut template =
            template(Pattern::literal(&task.id), "task", patterns(&inputs), patterns(&outputs));
        if !task.stage.is_empty() {
            template.label = task.stage.clone();
        }
        template.cpus = task.cpus.min(config.cpus_max.unwrap_or(u32::MAX).max(1));
        let array = TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None };
        submissions.push(ArrivingTasks {
            at: Timestamp(0),
            array: Arc::new(array),
            compute: Compute::Same(compute_ns),
        });
    }
    let sizes = Sizes::Each(sizes);
    let submissions = links::in_order(submissions, &sizes)?;
    Ok(Workload {
        name: workflow.name.clone(),
        n_tasks: submissions.len() as u64,
        ideal_ns: links::longest_chain_ns(&submissions),
        read_bytes,
        sizes,
        submissions: Box::new(submissions.into_iter()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{MS_NS, SECOND_NS};

    // Written by hand for these tests: a split, two searches that also read a database, a merge, and a
    // report that shares no file with the merge.
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

    // The same split and one search in the form of WfFormat 1.3.
    const OLD: &str = r#"{"name":"old","schemaVersion":"1.3","workflow":{"makespan":9,"executedAt":"x","tasks":[
        {"name":"search_ID2","id":"ID2","type":"compute","runtime":4,"cores":1,"parents":["split_ID1"],
         "files":[{"link":"input","name":"q1","size":500},{"link":"input","name":"db","path":"home/","size":9000},
                  {"link":"output","name":"h1","size":10}]},
        {"name":"split_ID1","id":"ID1","type":"compute","runtime":1.5,"parents":[],
         "files":[{"link":"input","name":"seqs","size":1000},{"link":"output","name":"q1","size":500}]}]}}"#;

    fn parse(text: &str, config: &WorkflowConfig) -> Result<Workload, Error> {
        workload(&flow::parse(flow::Format::WfFormat, text, "stem", None).map_err(unread)?, config)
    }

    fn read(text: &str) -> Result<Workload, Error> {
        parse(text, &WorkflowConfig::default())
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
        let config = WorkflowConfig { io, ..WorkflowConfig::default() };
        let first = parse(OLD, &config).unwrap().submissions.next().unwrap();
        assert_eq!(first.compute, Compute::Same((1500 - 1000 - 50) * MS_NS));
    }

    #[test]
    fn what_is_missing_has_to_be_said() {
        let unsized_ = NEW.replace(r#"{"id":"db","sizeInBytes":9000},"#, "");
        refused(&unsized_, "file `db` of task `a` has no size");
        let untimed = NEW.replace(r#"{"id":"b","runtimeInSeconds":3},"#, "");
        refused(&untimed, "task `b` has no run time");
        let config = WorkflowConfig {
            compute_missing_ns: Some(7),
            size_missing_bytes: Some(8),
            cpus_max: Some(1),
            ..WorkflowConfig::default()
        };
        let workload = parse(&unsized_, &config).unwrap();
        assert_eq!(workload.sizes.of("db"), Some(8));
        assert!(workload.submissions.into_iter().all(|s| s.array.template.cpus == 1));
        let workload = parse(&untimed, &config).unwrap();
        assert!(workload.submissions.into_iter().any(|s| s.compute == Compute::Same(7)));
    }

    // Other files that are no workflow are refused by the reader (`eyas-workflow`), whose tests cover them.
    #[test]
    fn what_the_reader_refuses_is_refused_in_its_words() {
        let cut = read(&NEW[..NEW.len() / 2]).err().expect("it breaks off");
        assert_eq!((cut.kind, cut.status), (ErrorKind::Incomplete, Status::Permanent));
        refused(&NEW[..NEW.len() / 2], "cannot read the workflow: line ");
        refused(
            &NEW.replace("\"runtimeInSeconds\":3", "\"runtimeInSeconds\":-3"),
            "cannot have run for -3 s",
        );
        refused(&NEW.replace(r#""id":"b","parents""#, r#""id":"a","parents""#), "`a`");
        let missing =
            workflow(Path::new("/nowhere/w.json"), &WorkflowConfig::default()).err().expect("is not there");
        assert_eq!((missing.kind, missing.status), (ErrorKind::Open, Status::Permanent));
        assert!(missing.to_string().contains("/nowhere/w.json"), "{missing}");
    }
}
