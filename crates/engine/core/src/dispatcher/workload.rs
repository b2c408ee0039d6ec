//! What was submitted: runs, their tasks, and the objects that the tasks name.
//!
//! Nearly every decision of the dispatcher looks at these three together. A task names its files by patterns,
//! its run's scope makes locations of them, and the catalog knows the object of each location and who holds
//! it. So they are one structure, and a method of another structure that needs them says so with one
//! parameter.

use super::{ArrayState, DispatcherConfig, RunState, TaskState, TaskTable};
use crate::catalog::Catalog;
use crate::event::Known;
use eyas_terms::array::{Pattern, TaskArray, TaskSpec};
use eyas_terms::location::{CatalogLocation, RunScope};
use eyas_terms::needs::Needs;
use eyas_terms::{ArrayId, Failure, ObjectId, Outcome, OwnerId, RunId, TaskId, Timestamp};
use std::collections::BTreeMap;

/// Failures that are kept per run for users to look at.
pub(super) const FAILURES_KEPT: usize = 20;

/// Runs, tasks and the catalog of their objects.
pub struct Workload {
    pub(super) runs: BTreeMap<RunId, RunState>,
    /// Submissions that have begun and are not complete.
    pub(super) n_open: u32,
    pub(super) tasks: TaskTable,
    pub(super) catalog: Catalog,
    /// A buffer for locations, kept so that its memory is used again.
    pub(super) location: String,
}

impl Workload {
    pub(super) fn new() -> Workload {
        Workload {
            runs: BTreeMap::new(),
            n_open: 0,
            tasks: TaskTable::default(),
            catalog: Catalog::new(),
            location: String::new(),
        }
    }

    /// The array of a submitted task, and the task's position in that array. Arrays are numbered in the order
    /// in which they were added.
    pub fn locate(&self, task: TaskId) -> (ArrayId, u32) {
        self.tasks.locate(task)
    }

    pub(super) fn run_mut(&mut self, run: RunId) -> &mut RunState {
        self.runs.get_mut(&run).expect("a task's run is known")
    }

    /// The run that `task` belongs to. `task` must have been submitted.
    pub fn run_of(&self, task: TaskId) -> RunId {
        self.tasks.run_of(task)
    }

    /// The user whose run `task` belongs to.
    pub(super) fn owner_of(&self, task: TaskId) -> OwnerId {
        self.runs.get(&self.tasks.run_of(task)).map_or(OwnerId::default(), |run| run.owner)
    }

    /// All that is known of the task, with its locations in the catalog's form.
    pub fn task_spec(&self, task: TaskId) -> TaskSpec {
        let (array, i) = self.tasks.locate(task);
        let ArrayState { array, run, reads_run, writes_run, .. } = &self.tasks.arrays[array.0 as usize];
        let mut spec = array.expand(i);
        if *reads_run || *writes_run {
            for (_, location) in spec.inputs.iter_mut().chain(&mut spec.outputs) {
                self.scope_of(*run).put_into(location);
            }
        }
        spec
    }

    /// The name that the user gave the task.
    pub fn user_id(&self, task: TaskId) -> String {
        self.tasks.user_id(task)
    }

    /// Finds a task by the user's name for it, in the newest run of those that `of` lets through that has a task of that name. Looks
    /// through all tasks.
    pub fn find_task(&self, run: Option<RunId>, user_id: &str, of: impl Fn(RunId) -> bool) -> Option<TaskId> {
        let mut text = String::new();
        for a in self
            .tasks
            .arrays
            .iter()
            .rev()
            .filter(|a| run.is_none_or(|r| r == a.run) && self.runs.contains_key(&a.run) && of(a.run))
        {
            for i in 0..a.array.n_tasks {
                text.clear();
                a.array.fill_into(&a.array.template.id, i, &mut text);
                if text == user_id {
                    return Some(TaskId(a.base.0 + u64::from(i)));
                }
            }
        }
        None
    }

    /// The tasks of a run in the order in which they were added, starting at position `from`.
    pub fn tasks_of(&self, run: RunId, from: u64) -> impl Iterator<Item = TaskId> {
        let arrays = self.runs.get(&run).map_or(&[][..], |r| &r.arrays);
        let mut before = 0;
        arrays.iter().map(|id| &self.tasks.arrays[id.0 as usize]).flat_map(move |a| {
            let n = u64::from(a.array.n_tasks);
            let skipped = from.saturating_sub(before).min(n);
            before += n;
            (a.base.0 + skipped..a.base.0 + n).map(TaskId)
        })
    }

    /// How a task has ended: one of the last three states of [`TaskState`]; `None` if it has not ended.
    pub fn find_end(&self, task: TaskId) -> Option<TaskState> {
        self.tasks.find_end(task)
    }

    /// A task's failure, if it is among the latest failures of its run.
    pub fn failure_of(&self, task: TaskId) -> Option<&Failure> {
        let failures = &self.runs.get(&self.tasks.run_of(task))?.failures;
        failures.iter().rev().find(|(of, _)| *of == task).map(|(_, failure)| failure)
    }

    /// Whether the task was submitted and its run has not been forgotten.
    pub fn has_task(&self, task: TaskId) -> bool {
        self.tasks.has_task(task)
    }

    /// All tasks that are known, in the order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.tasks()
    }

    pub fn runs(&self) -> impl Iterator<Item = (RunId, &RunState)> {
        self.runs.iter().map(|(id, r)| (*id, r))
    }

    /// The smallest number of a task that is not forgotten; if there is none, the number of the next task.
    pub fn first_task(&self) -> TaskId {
        self.tasks.bases.first().copied().unwrap_or(TaskId(self.tasks.next_task))
    }

    pub fn find_run(&self, run: RunId) -> Option<&RunState> {
        self.runs.get(&run)
    }

    pub fn location(&self, object: ObjectId) -> CatalogLocation<'_> {
        self.catalog.location(object)
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What is known of an object's bytes; `None` until somebody has read them.
    pub(super) fn known_bytes(&self, object: ObjectId) -> Option<Known> {
        let (digest, size_bytes) = (self.catalog.digest(object)?, self.catalog.size_bytes(object)?);
        let version = self.catalog.version(object).cloned().unwrap_or_default();
        Some(Known { digest, size_bytes, version, marks: self.catalog.marks(object) })
    }

    pub(super) fn count_end(&mut self, run: RunId, task: TaskId, outcome: &Outcome) {
        let state = self.run_mut(run);
        state.ends.count(outcome);
        if let Outcome::Failed(failure) = outcome {
            state.failures.push_back((task, failure.clone()));
            if state.failures.len() > FAILURES_KEPT {
                state.failures.pop_front();
            }
        }
    }

    /// Restores the times that an earlier process recorded. A run that goes on all the same has no end yet.
    pub(super) fn restore_times(&mut self, run: RunId, opened: Timestamp, ended: Option<Timestamp>) {
        if let Some(state) = self.runs.get_mut(&run) {
            state.opened = opened;
            if state.ended.is_some() && ended.is_some() {
                state.ended = ended;
            }
        }
    }

    /// The location that `pattern` gives for task `i` of an array of `run`, in the catalog's form. It is
    /// written to `text`, whose former content is lost.
    pub(super) fn location_into<'t>(
        &self,
        run: RunId,
        array: &TaskArray,
        pattern: &Pattern,
        i: u32,
        text: &'t mut String,
    ) -> CatalogLocation<'t> {
        text.clear();
        array.fill_into(pattern, i, text);
        self.scope_of(run).put_into(text)
    }

    pub(super) fn scope_of(&self, run: RunId) -> &RunScope {
        self.runs.get(&run).map_or(RunScope::NONE, |r| &r.scope)
    }

    /// The inputs of a task, in the task's own order.
    pub(super) fn inputs_of(&mut self, run: RunId, array: &TaskArray, i: u32) -> Vec<ObjectId> {
        self.objects_of(run, array, &array.template.inputs, i)
    }

    pub(super) fn outputs_of(&mut self, run: RunId, array: &TaskArray, i: u32) -> Vec<ObjectId> {
        self.objects_of(run, array, &array.template.outputs, i)
    }

    fn objects_of(
        &mut self,
        run: RunId,
        array: &TaskArray,
        files: &[(Pattern, Pattern)],
        i: u32,
    ) -> Vec<ObjectId> {
        let mut text = std::mem::take(&mut self.location);
        let mut objects = Vec::with_capacity(files.len());
        for (_, pattern) in files {
            let location = self.location_into(run, array, pattern, i, &mut text);
            let object = self.catalog.intern(location);
            self.catalog.name(object, run);
            objects.push(object);
        }
        self.location = text;
        objects
    }

    pub(super) fn raise_checked_run(&mut self, object: ObjectId, run: RunId) {
        if self.catalog.checked_run(object).is_none_or(|checked| checked < run) {
            self.catalog.set_checked_run(object, Some(run));
        }
    }

    /// What `task`, which has been submitted, needs beside whole cpus and memory.
    pub fn needs_of(&self, task: TaskId) -> Option<&Needs> {
        let (array, _) = self.tasks.locate(task);
        self.tasks.arrays[array.0 as usize].array.needs.as_deref()
    }

    pub(super) fn on_run_opened(
        &mut self,
        config: &DispatcherConfig,
        now: Timestamp,
        run: RunId,
        name: String,
        keep: bool,
    ) {
        let scope = RunScope::new(&config.scope, run);
        self.runs.insert(run, RunState { name, keep, scope, opened: now, ..RunState::default() });
    }
}
