//! Tasks and submissions for tests, in one line each.
//!
//! Each task becomes an array of its own unless [`array_of`] is used; locations stand for themselves.

use eyas_terms::array::{Command, Hints, Pattern, Piece, TaskArray, TaskForm};
use eyas_terms::needs::{Needs, PARTS};
use std::sync::Arc;

/// One task under construction, with all the properties that the dispatcher looks at.
#[derive(Clone, Debug, Default)]
pub struct Task {
    pub id: String,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub cpus: u32,
    pub memory_bytes: Option<u64>,
    pub retries: u32,
    pub priority: i32,
    pub label: String,
    pub hints: Hints,
    pub promises: Vec<String>,
    pub needs: Needs,
}

/// A task without inputs and outputs.
pub fn task(id: &str) -> Task {
    Task { id: id.into(), cpus: 1, ..Task::default() }
}

/// A task that reads `location` and is named after it.
pub fn reads(location: &str) -> Task {
    task(&format!("reads-{location}")).reads(location)
}

/// A task that writes `location` and is named after it.
pub fn writes(location: &str) -> Task {
    task(&format!("writes-{location}")).writes(location)
}

impl Task {
    pub fn reads(mut self, location: &str) -> Task {
        self.inputs.push(location.into());
        self
    }
    pub fn writes(mut self, location: &str) -> Task {
        self.outputs.push(location.into());
        self
    }
    pub fn cpus(self, cpus: u32) -> Task {
        Task { cpus, ..self }
    }
    pub fn memory(self, bytes: u64) -> Task {
        Task { memory_bytes: Some(bytes), ..self }
    }
    pub fn retries(self, retries: u32) -> Task {
        Task { retries, ..self }
    }
    pub fn priority(self, priority: i32) -> Task {
        Task { priority, ..self }
    }

    pub fn label(self, label: &str) -> Task {
        Task { label: label.into(), ..self }
    }
    /// The task may add tasks, one of which will write this file.
    pub fn promises(mut self, location: &str) -> Task {
        self.promises.push(location.into());
        self
    }
    pub fn hints(self, hints: Hints) -> Task {
        Task { hints, ..self }
    }

    /// The task needs that many thousandths of a gpu.
    pub fn gpus(mut self, parts: u32) -> Task {
        self.needs.gpu_parts = parts;
        self
    }
    /// The task needs a part of a cpu, in thousandths.
    pub fn cpu_parts(mut self, parts: u32) -> Task {
        (self.needs.cpu_parts, self.cpus) = (parts, parts.div_ceil(PARTS));
        self
    }
    /// The task needs `n` of a named resource.
    pub fn needs(mut self, name: &str, n: u32) -> Task {
        self.needs.resources.insert(name.into(), n);
        self
    }

    /// The array that holds only this task.
    pub fn array(&self) -> Arc<TaskArray> {
        let pairs = |list: &[String]| {
            let named = list.iter().enumerate();
            named.map(|(i, l)| (Pattern::literal(i.to_string()), Pattern::literal(l.as_str()))).collect()
        };
        Arc::new(TaskArray {
            n_tasks: 1,
            first_index: 0,
            columns: vec![],
            template: TaskForm {
                id: Pattern::literal(self.id.as_str()),
                command: Command::Exec(vec![Pattern::literal("work")]),
                inputs: pairs(&self.inputs),
                outputs: pairs(&self.outputs),
                env: vec![],
                cpus: self.cpus,
                memory_bytes: self.memory_bytes,
                walltime_ns: None,
                retries: self.retries,
                priority: self.priority,
                label: self.label.clone(),
                dynamic: !self.promises.is_empty(),
                promises: self.promises.clone(),
                hints: self.hints,
            },
            needs: (!self.needs.is_empty()).then(|| Box::new(self.needs.clone())),
        })
    }
}

/// `n_tasks` tasks like `like`, folded; every input and output gets the task's index at its end.
pub fn array_of(n_tasks: u32, like: &Task) -> Arc<TaskArray> {
    let mut array = TaskArray { n_tasks, ..(*like.array()).clone() };
    let template = &mut array.template;
    let numbered = |pattern: &mut Pattern| pattern.0.push(Piece::Index);
    numbered(&mut template.id);
    template.inputs.iter_mut().chain(&mut template.outputs).for_each(|(_, location)| numbered(location));
    Arc::new(array)
}

/// `n` MiB in bytes.
pub fn mib(n: u64) -> u64 {
    n << 20
}
