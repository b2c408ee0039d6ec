//! Calls of functions as tasks.

use eyas_tasklist::TaskList;
use eyas_terms::array::{Command, TaskSpec};
use eyas_terms::needs::Needs;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// A call, as Python says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Call {
    id: String,
    command: Vec<String>,
    /// Names in the sandbox, and locations.
    inputs: Vec<(String, String)>,
    outputs: Vec<(String, String)>,
    env: Vec<(String, String)>,
    cpus: u32,
    cpu_parts: u32,
    gpu_parts: u32,
    resources: BTreeMap<String, u32>,
    memory_bytes: Option<u64>,
    walltime_ns: Option<u64>,
    retries: u32,
    label: String,
}

impl Call {
    fn task(self) -> (TaskSpec, Option<Box<Needs>>) {
        let Call {
            id, command, inputs, outputs, env, cpus, memory_bytes, walltime_ns, retries, label, ..
        } = self;
        let needs = Needs { cpu_parts: self.cpu_parts, gpu_parts: self.gpu_parts, resources: self.resources };
        let task = TaskSpec {
            inputs,
            outputs,
            env,
            cpus,
            memory_bytes,
            walltime_ns,
            retries,
            label,
            ..TaskSpec::new(id, Command::Exec(command))
        };
        (task, (!needs.is_empty()).then(|| Box::new(needs)))
    }
}

/// The tasks of calls. Relative names are taken from `base_dir`. Errors: no task can need this, or a name is none.
pub fn tasks_of(calls: Vec<Call>, base_dir: &Path) -> eyas_tasklist::Result<TaskList> {
    eyas_tasklist::fold_tasks(calls.into_iter().map(Call::task), base_dir, "a call")
}
