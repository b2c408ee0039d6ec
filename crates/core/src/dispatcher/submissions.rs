//! Submissions: tasks come in, wait for those that make their inputs, and are queued.
//!
//! Ready tasks stay folded in `backlog`; only those that wait, and the first of the queue, are looked at one by one.
//! What a restart knows from the journal comes the same way, followed by how its tasks had ended.
//!
//! Not here: additions to a run that goes on (`additions`), files that stay on the nodes (`intermediates`).

use super::*;

/// Of the tasks of a submission that was given up; runs are numbered from 1.
pub(super) const NO_RUN: RunId = RunId(0);
use eyas_text::shown;

impl Dispatcher {
    pub(super) fn on_array_added(
        &mut self,
        now: Timestamp,
        run: RunId,
        array: Arc<TaskArray>,
        out: &mut Vec<Action>,
    ) {
        let Some(state) = self.runs.get_mut(&run).filter(|r| !r.committed) else { return };
        let (started, into) = (state.started, state.into);
        let id = ArrayId(self.arrays.len() as u32);
        let base = TaskId(self.next_task);
        self.next_task += u64::from(array.n_tasks);
        state.n_tasks += u64::from(array.n_tasks);
        state.arrays.push(id);
        let ends = Ends::new(array.n_tasks);
        let any_run_file = |list: &[(Pattern, Pattern)]| list.iter().any(|(_, l)| array.may_stay(l));
        let (reads_run, writes_run) =
            (any_run_file(&array.template.inputs), any_run_file(&array.template.outputs));
        let stage = self.run_times.stage(into.unwrap_or(run), &array.template.label);
        self.bases.push(base);
        let n_noted = 0;
        let state =
            ArrayState { base, run, array: array.clone(), ends, n_noted, stage, reads_run, writes_run };
        self.arrays.push(state);
        let n_promising = if array.template.promises.is_empty() { 0 } else { array.n_tasks };
        for i in 0..n_promising {
            self.note_up_to(id, i);
            if let Err(message) = self.learn_promises(TaskId(base.0 + u64::from(i))) {
                out.push(Action::RefuseRun { run, message });
                return;
            }
        }
        if !self.learn_makers(run, id, &array, out) || !started {
            return;
        }
        self.enqueue(now, run, &[id], out);
    }

    /// What task `i` of an array writes or promises is being noted.
    fn note_up_to(&mut self, id: ArrayId, i: u32) {
        let n_noted = &mut self.arrays[id.0 as usize].n_noted;
        *n_noted = (*n_noted).max(i + 1);
    }

    /// Notes what the tasks of an array write. `false`: somebody else writes the same, the run is refused.
    fn learn_makers(&mut self, run: RunId, id: ArrayId, array: &TaskArray, out: &mut Vec<Action>) -> bool {
        if array.template.outputs.is_empty() {
            return true;
        }
        let base = self.arrays[id.0 as usize].base;
        let mut text = String::new();
        let is_workflow = self.arrays.last().is_some_and(|a| a.reads_run || a.writes_run);
        for i in 0..array.n_tasks {
            self.note_up_to(id, i);
            for (_, pattern) in &array.template.outputs {
                let location = self.location_into(run, array, pattern, i, &mut text);
                let task = TaskId(base.0 + u64::from(i));
                let taken = match location {
                    CatalogLocation::Run(_) => self.learn_intermediate(task, location).err(),
                    CatalogLocation::Home(at_home) => self.find_writer(run, at_home),
                };
                if let Some(other) = taken {
                    let message = self.clash(other, &self.user_id(task), location);
                    out.push(Action::RefuseRun { run, message });
                    return false;
                }
                if let CatalogLocation::Home(at_home) = location {
                    let hash = hash_of(at_home);
                    self.makers.insert_unique(hash, (hash, task), |entry| entry.0);
                    self.learn_export(run, task, at_home);
                }
            }
            if is_workflow && self.runs[&run].into.is_none() {
                self.learn_writes(TaskId(base.0 + u64::from(i)));
            }
        }
        true
    }

    /// What is said to somebody who submits the task `id`, which writes `location` as `other` does.
    pub(super) fn clash(&self, other: TaskId, id: &str, location: CatalogLocation<'_>) -> String {
        let way_out = match self.end_of(other) == End::Not && !location.stays() {
            true => "give each its own output, or wait until the first one has ended",
            false => "give each its own output",
        };
        let (other, location) = (self.user_id(other), location.written().text());
        format!(
            "tasks {other} and {id} both write {location}; {way_out}",
            other = shown(&other),
            id = shown(id),
            location = shown(&location)
        )
    }

    /// The task that writes the file `at_home` and has not ended; failing that, one that ended badly before a
    /// restart, or one that is done, of a run that tasks are added to.
    pub(super) fn find_maker(&self, at_home: &str) -> Option<TaskId> {
        self.makers_of(at_home).max_by_key(|task| (self.end_of(*task) == End::Not, *task))
    }

    /// The tasks that `makers` has for the file `at_home`.
    pub(super) fn makers_of(&self, at_home: &str) -> impl Iterator<Item = TaskId> {
        let hash = hash_of(at_home);
        let mut text = String::new();
        let mut writes = move |task: TaskId| {
            let (array, i) = self.locate(task);
            let array = &self.arrays[array.0 as usize].array;
            let mut outputs = array.template.outputs.iter();
            outputs.any(|(_, pattern)| array.locate(pattern, i, &mut text) == Location::Home(at_home))
        };
        self.makers.iter_hash(hash).filter(move |e| e.0 == hash && writes(e.1)).map(|e| e.1)
    }

    pub(super) fn forget_maker(&mut self, task: TaskId) {
        let (array, i) = self.locate(task);
        let array = self.arrays[array.0 as usize].array.clone();
        let mut text = String::new();
        for (_, pattern) in &array.template.outputs {
            let Location::Home(at_home) = array.locate(pattern, i, &mut text) else { continue };
            let hash = hash_of(at_home);
            if let Ok(entry) = self.makers.find_entry(hash, |e| *e == (hash, task)) {
                entry.remove();
            }
        }
    }

    pub(super) fn on_run_started(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get_mut(&run).filter(|r| !r.started && r.into.is_none()) else { return };
        state.started = true;
        let arrays = state.arrays.clone();
        self.enqueue(now, run, &arrays, out);
    }

    pub(super) fn on_run_committed(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get_mut(&run) else { return };
        state.committed = true;
        let arrays = state.arrays.clone();
        self.settle_intermediates(now, run, &arrays, out);
        self.settle_exchange(run, run);
        let wide = self.run_mut(run).patterns.take();
        self.report_patterns(run, wide, out);
        self.check_run_end(now, run, out);
    }

    /// The tasks of `arrays`, of a run that has started, are ready or wait for those that make their inputs.
    pub(super) fn enqueue(&mut self, now: Timestamp, run: RunId, arrays: &[ArrayId], out: &mut Vec<Action>) {
        let mut failed = vec![];
        for id in arrays {
            let a = &self.arrays[id.0 as usize];
            let (array, base) = (a.array.clone(), a.base);
            let may_import = self.may_import(run, *id);
            let may_depend = a.reads_run || a.writes_run || !self.makers.is_empty() || may_import;
            let priority = array.template.priority;
            let mut start = None;
            // Ready tasks stay folded; those that ended before a restart or that wait cut the stretch.
            for i in 0..=array.n_tasks {
                let here = i < array.n_tasks && {
                    let task = TaskId(base.0 + u64::from(i));
                    match self.arrays[id.0 as usize].ends.get(i) {
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
                        self.backlog.insert(key, Segment { array: *id, start: s, end: i });
                        self.count_ready(run, *id, u64::from(i - s));
                        start = None;
                    }
                    _ => {}
                }
            }
        }
        // Tasks that go before those of the queue take their places.
        while let (Some((first, _)), Some(last)) = (self.backlog.first_key_value(), self.queue.last())
            && *first < last
        {
            self.fold(last);
        }
        for (task, message) in failed {
            let failure = Failure { kind: FailureKind::InputUnavailable, message };
            self.end_task(now, task, Outcome::Failed(failure), out);
        }
    }

    /// Counts what `task` has to wait for and subscribes it to each maker. `Err`: one has failed.
    fn subscribe(&mut self, task: TaskId, array: &TaskArray, i: u32) -> Result<u32, String> {
        let run = self.run_of(task);
        let (at, _) = self.locate(task);
        if self.arrays[at.0 as usize].reads_run || self.arrays[at.0 as usize].writes_run {
            self.learn_reads(task, array, i);
        }
        let imports = self.foreign_inputs(task);
        let mut makers: Vec<TaskId> = vec![];
        let mut files: Vec<ObjectId> = vec![];
        let mut text = String::new();
        for (_, pattern) in &array.template.inputs {
            let location = self.location_into(run, array, pattern, i, &mut text);
            let CatalogLocation::Home(at_home) = location else {
                files.push(self.catalog.intern(location));
                continue;
            };
            if !imports.is_empty() && self.catalog.find(location).is_some_and(|o| imports.contains(&o)) {
                // Another dispatcher has it made.
            } else if let Some(maker) = self.find_maker(at_home)
                && maker != task
                && self.end_of(maker) != End::Done
                && !makers.contains(&maker)
            {
                makers.push(maker);
            }
        }
        let ended = makers.iter().find(|maker| self.end_of(**maker) != End::Not);
        let mut failed = ended.map(|maker| self.maker_failed(*maker, self.end_of(*maker) == End::Cancelled));
        files.sort_unstable();
        files.dedup();
        let mut n_orphaned = 0;
        // All are counted, also when one has failed: the end of the task counts all back.
        for object in &imports {
            match self.read_import(task, *object) {
                Ok(waits) => n_orphaned += u32::from(waits),
                Err(sentence) => failed = failed.or(Some(sentence)),
            }
        }
        for object in files {
            match self.read_intermediate(task, object, imports.contains(&object), &mut n_orphaned) {
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
            self.subscribers.entry(maker).or_default().push(task);
        }
        if n > 0 {
            self.waiting.insert(task, n);
            self.run_mut(run).n_waiting += 1;
        }
        Ok(n)
    }

    pub(super) fn maker_failed(&self, maker: TaskId, cancelled: bool) -> String {
        let how = if cancelled { "was cancelled" } else { "failed" };
        format!("task {}, which makes one of its inputs, {how}", shown(&self.user_id(maker)))
    }

    pub(super) fn on_run_aborted(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get(&run).filter(|r| !r.started) else { return };
        let into = state.into;
        for id in state.arrays.clone() {
            let ArrayState { base, n_noted, .. } = self.arrays[id.0 as usize];
            for i in 0..n_noted {
                self.forget_maker(TaskId(base.0 + u64::from(i)));
                self.forget_intermediates(TaskId(base.0 + u64::from(i)));
                self.forget_promises(TaskId(base.0 + u64::from(i)));
            }
        }
        let arrays = self.runs.remove(&run).map(|state| state.arrays).unwrap_or_default();
        self.forget_exports(run);
        for id in arrays {
            // The number of the run may be given again.
            self.arrays[id.0 as usize].run = NO_RUN;
        }
        if let Some(whole) = into {
            self.close_addition(now, whole, out);
        }
    }

    pub(super) fn on_task_restored(&mut self, task: TaskId, outcome: &Outcome, outputs: &[(Digest, u64)]) {
        let (array, i) = self.locate(task);
        let a = &mut self.arrays[array.0 as usize];
        if a.ends.get(i) != End::Not {
            return;
        }
        a.ends.set(i, End::of(outcome));
        let run = a.run;
        self.histories.remove(&task);
        self.count_end(run, task, outcome);
        if *outcome != Outcome::Done {
            // Those who wait for it may not have been told to fail yet.
            self.failed_makers.push(task);
            return;
        }
        // What it made is there, also if an earlier run had failed to make it.
        let spec = self.task_spec(task);
        let locations = spec.outputs.iter().map(|(_, location)| CatalogLocation::of(location));
        for (location, (digest, size_bytes)) in locations.clone().zip(outputs) {
            if location.stays() {
                let object = self.catalog.intern(location);
                self.catalog.set_digest(object, Some(*digest));
                self.catalog.set_size_bytes(object, Some(*size_bytes));
            }
        }
        while let Some(ended) = locations.clone().find_map(|location| {
            let CatalogLocation::Home(at_home) = location else { return None };
            self.makers_of(at_home)
                .find(|maker| self.end_of(*maker) != End::Not && !self.is_remembered(*maker))
        }) {
            self.forget_maker(ended);
        }
    }
}
