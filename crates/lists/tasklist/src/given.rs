//! Tasks that a program supplies, checked and folded like those of a list.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::file::File;
use crate::line::Task;
use crate::list::{Builder, Refused, TaskList};
use crate::location;
use eyas_terms::array::{Command, TaskSpec};
use eyas_terms::needs::Needs;
use std::path::Path;

/// Folds `tasks`, whose ids must not be empty. Relative locations are taken from `base_dir`; `origin` says in
/// messages where the tasks come from. Mistakes name the task instead of a line.
pub fn fold_tasks(
    tasks: impl IntoIterator<Item = (TaskSpec, Option<Box<Needs>>)>,
    base_dir: &Path,
    origin: &str,
) -> Result<TaskList> {
    let with_origin = |e: Error| e.origin(origin);
    let base = location::base_text(base_dir).map_err(with_origin)?;
    let mut builder = Builder::new(base, "");
    for (n, (spec, needs)) in tasks.into_iter().enumerate() {
        builder
            .add(&Task { needs, ..borrowed(&spec) }, n as u64 + 1)
            .map_err(|refused| with_origin(explain(refused, &spec.id)))?;
    }
    builder.finish().map_err(with_origin)
}

fn borrowed(spec: &TaskSpec) -> Task<'_> {
    fn files(list: &[(String, String)]) -> Vec<File<'_>> {
        list.iter()
            .map(|(name, location)| File { name: Some(name.into()), location: location.into() })
            .collect()
    }
    Task {
        id: Some(spec.id.as_str().into()),
        command: match &spec.command {
            Command::Exec(argv) => Command::Exec(argv.iter().map(|word| word.into()).collect()),
            Command::Shell(line) => Command::Shell(line.into()),
        },
        inputs: files(&spec.inputs),
        outputs: files(&spec.outputs),
        env: spec.env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        container: None,
        cpus: spec.cpus,
        needs: None,
        memory_bytes: spec.memory_bytes,
        walltime_ns: spec.walltime_ns,
        retries: spec.retries,
        priority: spec.priority,
        label: spec.label.as_str().into(),
        dynamic: spec.dynamic,
        hints: spec.hints,
        promises: spec.promises.iter().map(|name| name.as_str().into()).collect(),
        reduce: None,
    }
}

fn explain(refused: Refused, id: &str) -> Error {
    let of = shown(id);
    match refused {
        Refused::Bad { error, .. } => {
            let again = Error::new(error.kind, format!("task {of}: {}", error.message));
            match &error.hint {
                Some(hint) => again.hint(hint),
                None => again,
            }
        }
        Refused::SameId { .. } => Error::new(ErrorKind::Conflict, format!("two tasks have the id {of}")),
        Refused::SamePromise { location, first } => Error::new(
            ErrorKind::Conflict,
            format!("tasks {} and {of} both promise {}", shown(&first.id), shown(&location)),
        ),
        Refused::SameOutput { location, first } if first.id == id => {
            Error::new(ErrorKind::Conflict, format!("task {of} writes {} twice", shown(&location)))
        }
        Refused::SameOutput { location, first } => {
            let first = shown(&first.id);
            Error::new(ErrorKind::Conflict, format!("two tasks write {}: {first} and {of}", shown(&location)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(id: &str, output: &str) -> TaskSpec {
        TaskSpec {
            inputs: vec![("in".into(), "data/in".into())],
            outputs: vec![("out".into(), output.into())],
            label: "stage".into(),
            ..TaskSpec::new(id.into(), Command::Exec(vec!["true".into()]))
        }
    }

    fn fold(tasks: Vec<TaskSpec>) -> Result<TaskList> {
        fold_tasks(tasks.into_iter().map(|task| (task, None)), Path::new("/base"), "w.yml")
    }

    #[test]
    fn tasks_in_hand_fold_as_lines_do() {
        let list = fold(vec![spec("a", "x"), spec("b", "y")]).unwrap();
        assert_eq!((list.n_tasks, list.arrays.len()), (2, 1));
        let task = list.arrays[0].expand(1);
        assert_eq!((task.id.as_str(), task.outputs[0].1.as_str()), ("b", "/base/y"));
        assert_eq!(task.inputs[0].1, "/base/data/in");
    }

    #[test]
    fn mistakes_name_tasks() {
        for (tasks, expect) in [
            (vec![spec("a", "x"), spec("a", "y")], "w.yml: two tasks have the id `a`"),
            (vec![spec("a", "x"), spec("b", "x")], "two tasks write `/base/x`: `a` and `b`"),
            (
                vec![spec("a", "..")],
                "task `a`: `outputs` `out`: the location `..` names a directory by no name",
            ),
        ] {
            let error = fold(tasks).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
