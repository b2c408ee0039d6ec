//! Calls of functions as tasks.

use eyas_tasklist::TaskList;
use eyas_terms::array::{Command, TaskSpec};
use eyas_terms::needs::Needs;
use pyo3::prelude::*;
use std::path::Path;

/// A call, as Python says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Call {
    id: String,
    command: Vec<String>,
    /// Names in the sandbox, and locations.
    inputs: Vec<(String, String)>,
    env: Vec<(String, String)>,
    cpus: u32,
    memory_bytes: Option<u64>,
    walltime_ns: Option<u64>,
    retries: u32,
    label: String,
}

impl Call {
    fn task(self) -> (TaskSpec, Option<Box<Needs>>) {
        let Call { id, command, inputs, env, cpus, memory_bytes, walltime_ns, retries, label } = self;
        let task = TaskSpec {
            inputs,
            env,
            cpus,
            memory_bytes,
            walltime_ns,
            retries,
            label,
            ..TaskSpec::new(id, Command::Exec(command))
        };
        (task, None)
    }
}

/// The tasks of calls. Relative names are taken from `base_dir`.
pub fn tasks_of(calls: Vec<Call>, base_dir: &Path) -> eyas_tasklist::Result<TaskList> {
    eyas_tasklist::fold_tasks(calls.into_iter().map(Call::task), base_dir, "a call")
}
