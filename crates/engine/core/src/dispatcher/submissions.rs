//! Submissions: tasks come in, wait for the tasks that make their inputs, and are queued.
//!
//! Ready tasks stay folded in `backlog`; only waiting tasks and the first tasks of the queue are looked at
//! one by one. After a restart, tasks come in from the journal in the same way, followed by how they had
//! ended.
//!
//! Not here: additions to a run that goes on (`additions`), files that stay on the nodes (`intermediates`).

use super::{ArrayState, Attempts, Dispatcher, End, Ends, Segment, Workload, hash_of};
use crate::event::Action;
use crate::placement::{NeedsId, QueueKey};
use eyas_terms::array::{Pattern, TaskArray};
use eyas_terms::location::CatalogLocation;
use eyas_terms::{ArrayId, Digest, Failure, FailureKind, ObjectId, Outcome, RunId, TaskId, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The run of tasks whose submission was given up; real runs are numbered from 1.
pub(super) const NO_RUN: RunId = RunId(0);

/// Tasks whose inputs are not all made.
#[derive(Default)]
pub(super) struct Waits {
    /// The number of makers that each task waits for.
    pub(super) n_missing: BTreeMap<TaskId, u32>,
    /// The tasks that wait for each maker.
    pub(super) subscribers: FxHashMap<TaskId, Vec<TaskId>>,
    /// Makers that had not ended well before a restart. The tasks that waited for them fail when their run is
    /// committed again.
    pub(super) failed_makers: Vec<TaskId>,
}

impl Waits {
    pub(super) fn on_task_restored(
        &mut self,
        work: &mut Workload,
        attempts: &mut Attempts,
        task: TaskId,
        outcome: &Outcome,
        outputs: &[(Digest, u64)],
    ) {
        let (array, i) = work.tasks.locate(task);
        let a = &mut work.tasks.arrays[array.0 as usize];
        if a.ends.get(i) != End::Not {
            return;
        }
        a.ends.set(i, End::of(outcome));
        let run = a.run;
        attempts.histories.remove(&task);
        work.count_end(run, task, outcome);
        if *outcome != Outcome::Done {
            // The tasks that wait for this one may not have failed yet.
            self.failed_makers.push(task);
            return;
        }
        // The files that it made exist, even if an earlier run had failed to make them.
        let spec = work.task_spec(task);
        let locations = spec.outputs.iter().map(|(_, location)| CatalogLocation::of(location));
        for (location, (digest, size_bytes)) in locations.clone().zip(outputs) {
            if location.stays() {
                let object = work.catalog.intern(location);
                work.catalog.set_digest(object, Some(*digest));
                work.catalog.set_size_bytes(object, Some(*size_bytes));
            }
        }
        while let Some(ended) = locations.clone().find_map(|location| {
            let CatalogLocation::Home(at_home) = location else { return None };
            work.tasks
                .makers_of(at_home)
                .find(|maker| work.tasks.end_of(*maker) != End::Not && !work.is_remembered(*maker))
        }) {
            work.tasks.forget_maker(ended);
        }
    }
}

impl Dispatcher {
    pub(super) fn on_array_added(
        &mut self,
        now: Timestamp,
        run: RunId,
        array: Arc<TaskArray>,
        out: &mut Vec<Action>,
    ) {
        let Some(state) = self.work.runs.get_mut(&run).filter(|r| !r.committed) else { return };
        let (started, into) = (state.started, state.into);
        let id = ArrayId(self.work.tasks.arrays.len() as u32);
        let base = TaskId(self.work.tasks.next_task);
        self.work.tasks.next_task += u64::from(array.n_tasks);
        state.tasks.n_tasks += u64::from(array.n_tasks);
        state.arrays.push(id);
        let ends = Ends::new(array.n_tasks);
        let any_run_file = |list: &[(Pattern, Pattern)]| list.iter().any(|(_, l)| array.may_stay(l));
        let (reads_run, writes_run) =
            (any_run_file(&array.template.inputs), any_run_file(&array.template.outputs));
        let stage = self.schedule.run_times.stage(into.unwrap_or(run), &array.template.label);
        self.work.tasks.bases.push(base);
        let n_noted = 0;
        let state = ArrayState {
            base,
            run,
            array: array.clone(),
            ends,
            n_noted,
            stage,
            needs: NeedsId::NONE,
            reads_run,
            writes_run,
        };
        self.work.tasks.arrays.push(state);
        match self.schedule.number_needs(&self.work, &array) {
            Ok(needs) => self.work.tasks.arrays[id.0 as usize].needs = needs,
            Err(message) => {
                out.push(Action::RefuseRun { run, message });
                return;
            }
        }
        let n_promising = if array.template.promises.is_empty() { 0 } else { array.n_tasks };
        for i in 0..n_promising {
            self.work.tasks.note_up_to(id, i);
            if let Err(message) =
                self.intermediates.learn_promises(&mut self.work, TaskId(base.0 + u64::from(i)))
            {
                out.push(Action::RefuseRun { run, message });
                return;
            }
        }
        if !self.learn_makers(run, id, &array, out) || !started {
            return;
        }
        self.enqueue(now, run, &[id], out);
    }

    /// Notes what the tasks of an array write. `false`: another task writes the same file, and the run is
    /// refused.
    fn learn_makers(&mut self, run: RunId, id: ArrayId, array: &TaskArray, out: &mut Vec<Action>) -> bool {
        if array.template.outputs.is_empty() {
            return true;
        }
        let base = self.work.tasks.arrays[id.0 as usize].base;
        let mut text = String::new();
        let is_workflow = self.work.tasks.arrays.last().is_some_and(|a| a.reads_run || a.writes_run);
        for i in 0..array.n_tasks {
            self.work.tasks.note_up_to(id, i);
            for (_, pattern) in &array.template.outputs {
                let location = self.work.location_into(run, array, pattern, i, &mut text);
                let task = TaskId(base.0 + u64::from(i));
                let taken = match location {
                    CatalogLocation::Run(_) => {
                        self.intermediates.learn_maker(&mut self.work, &mut self.waits, task, location).err()
                    }
                    CatalogLocation::Home(at_home) => self.work.find_writer(run, at_home),
                };
                if let Some(other) = taken {
                    let message = self.work.tasks.clash(other, &self.work.tasks.user_id(task), location);
                    out.push(Action::RefuseRun { run, message });
                    return false;
                }
                if let CatalogLocation::Home(at_home) = location {
                    let hash = hash_of(at_home);
                    self.work.tasks.makers.insert_unique(hash, (hash, task), |entry| entry.0);
                    self.exchange.learn_export(&mut self.work, run, task, at_home);
                }
            }
            if is_workflow && self.work.runs[&run].into.is_none() {
                self.moves.learn_writes(&mut self.work, TaskId(base.0 + u64::from(i)));
            }
        }
        true
    }

    pub(super) fn on_run_started(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.work.runs.get_mut(&run).filter(|r| !r.started && r.into.is_none()) else {
            return;
        };
        state.started = true;
        let arrays = state.arrays.clone();
        self.enqueue(now, run, &arrays, out);
    }

    pub(super) fn on_run_committed(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        if let Some(whole) = self.work.runs.get(&run).and_then(|r| r.into) {
            return self.add(now, run, whole, out);
        }
        self.on_run_started(now, run, out);
        let Some(state) = self.work.runs.get_mut(&run) else { return };
        state.committed = true;
        let arrays = state.arrays.clone();
        self.settle_intermediates(now, run, &arrays, out);
        self.exchange.settle(&self.work, run, run);
        let wide = self.work.run_mut(run).patterns.take();
        self.moves.report_patterns(&mut self.work, &mut self.exchange, run, wide, out);
        self.check_run_end(now, run, out);
    }

    /// Makes the tasks of `arrays`, of a run that has started, ready, or lets them wait for the makers of
    /// their inputs.
    pub(super) fn enqueue(&mut self, now: Timestamp, run: RunId, arrays: &[ArrayId], out: &mut Vec<Action>) {
        let mut failed = vec![];
        let owner = self.work.runs[&run].owner;
        for id in arrays {
            let a = &self.work.tasks.arrays[id.0 as usize];
            let (array, base) = (a.array.clone(), a.base);
            let may_import = self.work.may_import(run, *id);
            let may_depend = a.reads_run || a.writes_run || !self.work.tasks.makers.is_empty() || may_import;
            let priority = array.template.priority;
            let mut start = None;
            // Ready tasks stay folded; tasks that ended before a restart or that wait divide the range.
            for i in 0..=array.n_tasks {
                let here = i < array.n_tasks && {
                    let task = TaskId(base.0 + u64::from(i));
                    match self.work.tasks.arrays[id.0 as usize].ends.get(i) {
                        End::Not if !may_depend => true,
                        End::Not => match self.subscribe(task, &array, i) {
                            Ok(n_missing) => n_missing == 0,
                            Err(sentence) => {
                                failed.push((task, sentence));
                                false
                            }
                        },
                        _ => false,
                    }
                };
                match (here, start) {
                    (true, None) => start = Some(i),
                    (false, Some(s)) => {
                        let key = QueueKey { priority, task: TaskId(base.0 + u64::from(s)) };
                        let segment = Segment { array: *id, start: s, end: i };
                        self.schedule.ready.backlog.insert(owner, key, segment);
                        self.schedule.count_ready(&mut self.work, run, *id, u64::from(i - s));
                        start = None;
                    }
                    _ => {}
                }
            }
        }
        // Tasks of the backlog that go before tasks of the queue take their places.
        self.schedule.look_again(owner);
        while self.schedule.shares.turn.is_none()
            && let (Some(first), Some(last)) =
                (self.schedule.ready.backlog.first(), self.schedule.ready.queue.last())
            && first < last
        {
            self.schedule.fold(&self.work, last);
        }
        for (task, message) in failed {
            let failure = Failure { kind: FailureKind::InputUnavailable, message };
            self.end_task(now, task, Outcome::Failed(failure), out);
        }
    }

    /// Counts the makers that `task` has to wait for and subscribes it to each. `Err`: one of them has
    /// failed.
    fn subscribe(&mut self, task: TaskId, array: &TaskArray, i: u32) -> Result<u32, String> {
        let run = self.work.tasks.run_of(task);
        let (at, _) = self.work.tasks.locate(task);
        if self.work.tasks.arrays[at.0 as usize].reads_run || self.work.tasks.arrays[at.0 as usize].writes_run
        {
            self.moves.learn_reads(&mut self.work, &self.exchange, &self.intermediates, task, array, i);
        }
        let imports = self.exchange.foreign_inputs(&mut self.work, &self.intermediates, task);
        let mut makers: Vec<TaskId> = vec![];
        let mut files: Vec<ObjectId> = vec![];
        let mut text = String::new();
        for (_, pattern) in &array.template.inputs {
            let location = self.work.location_into(run, array, pattern, i, &mut text);
            let CatalogLocation::Home(at_home) = location else {
                files.push(self.work.catalog.intern(location));
                continue;
            };
            if !imports.is_empty() && self.work.catalog.find(location).is_some_and(|o| imports.contains(&o)) {
                // Another dispatcher has the file made.
            } else if let Some(maker) = self.work.tasks.find_maker(at_home)
                && maker != task
                && self.work.tasks.end_of(maker) != End::Done
                && !makers.contains(&maker)
            {
                makers.push(maker);
            }
        }
        let ended = makers.iter().find(|maker| self.work.tasks.end_of(**maker) != End::Not);
        let mut failed = ended.map(|maker| {
            self.work.tasks.maker_failed(*maker, self.work.tasks.end_of(*maker) == End::Cancelled)
        });
        files.sort_unstable();
        files.dedup();
        let mut n_orphaned = 0;
        // All inputs are counted even if one has failed, because the end of the task counts all of them back.
        for object in &imports {
            match self.exchange.read_import(&self.work, &self.intermediates, task, *object) {
                Ok(waits) => n_orphaned += u32::from(waits),
                Err(sentence) => failed = failed.or(Some(sentence)),
            }
        }
        for object in files {
            match self.intermediates.read(
                &self.work,
                task,
                object,
                imports.contains(&object),
                &mut n_orphaned,
            ) {
                Ok(Some(maker)) if maker != task => makers.push(maker),
                Ok(_) => {}
                Err(sentence) => failed = failed.or(Some(sentence)),
            }
        }
        if let Some(sentence) = failed {
            return Err(sentence);
        }
        makers.sort_unstable();
        makers.dedup();
        let n = makers.len() as u32 + n_orphaned;
        for maker in makers {
            self.waits.subscribers.entry(maker).or_default().push(task);
        }
        if n > 0 {
            self.waits.n_missing.insert(task, n);
            self.work.run_mut(run).tasks.n_waiting += 1;
        }
        Ok(n)
    }

    pub(super) fn on_run_aborted(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.work.runs.get(&run).filter(|r| !r.started) else { return };
        let into = state.into;
        for object in self.pushes.forget(run) {
            self.work.catalog.unname(object, run);
            self.forgotten.may_be_stale(object);
        }
        for id in state.arrays.clone() {
            let ArrayState { base, n_noted, .. } = self.work.tasks.arrays[id.0 as usize];
            for i in 0..n_noted {
                let task = TaskId(base.0 + u64::from(i));
                self.work.tasks.forget_maker(task);
                self.intermediates.forget_made(&mut self.work, task);
                self.intermediates.forget_promises(&mut self.work, task);
                // Last, because the steps before give names to the task's files, also to those which the submission had not
                // named when it was refused.
                self.forgotten.forget_names(&mut self.work, task);
            }
        }
        let arrays = self.work.runs.remove(&run).map(|state| state.arrays).unwrap_or_default();
        self.exchange.forget_exports(&self.work, run);
        for id in arrays {
            // The number of the run may be given again.
            self.work.tasks.arrays[id.0 as usize].run = NO_RUN;
        }
        if let Some(whole) = into {
            self.close_addition(now, whole, out);
        }
    }
}
