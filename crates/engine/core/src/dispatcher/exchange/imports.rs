//! The reader's side: files that tasks here read and tasks of another dispatcher make, and the copies of files that
//! executors took along.

use super::{Exchange, Import, Key};
use crate::dispatcher::{Dispatcher, End, Executors, Intermediates, SOURCES_MAX, Workload};
use crate::event::Action;
use crate::group::{Carried, FileState, LinkMessage, SharedFile};
use eyas_terms::{ExecutorId, Failure, FailureKind, MemberId, ObjectId, Outcome, RunId, TaskId, Timestamp};

impl Exchange {
    /// Adds to `sources` the executors of another dispatcher that `executor` may ask for `object`.
    pub(in crate::dispatcher) fn foreign_sources(
        &self,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
        sources: &mut Vec<ExecutorId>,
    ) {
        let Some(import) = self.imports.get(&(run, object)) else { return };
        let FileState::Held { holders, .. } = &import.state else { return };
        let skip = (executor.0 as usize).wrapping_add(object.0 as usize) % holders.len().max(1);
        let n_more = SOURCES_MAX.saturating_sub(sources.len()).min(holders.len());
        // A holder that has moved to this dispatcher is already among `sources`, if it can be asked at all.
        let elsewhere = holders.iter().cycle().skip(skip).take(n_more).filter(|h| !sources.contains(h));
        let found: Vec<ExecutorId> = elsewhere.copied().collect();
        sources.extend(found);
    }

    /// Whether an executor of another dispatcher has a copy of our file, as far as is known.
    pub(in crate::dispatcher) fn is_lent(&self, object: ObjectId) -> bool {
        self.lent.contains_key(&object)
    }

    pub(in crate::dispatcher) fn lent_to(&self, object: ObjectId) -> impl Iterator<Item = ExecutorId> + '_ {
        self.lent.get(&object).into_iter().flatten().copied()
    }

    /// No executor of another dispatcher has a copy of our file.
    pub(in crate::dispatcher) fn unlend_all(&mut self, object: ObjectId) {
        self.lent.remove(&object);
    }

    /// An executor of another dispatcher has no copy of our file, or has come back.
    pub(in crate::dispatcher) fn unlend(&mut self, object: ObjectId, executor: ExecutorId) {
        if let Some(lent) = self.lent.get_mut(&object) {
            lent.retain(|other| *other != executor);
            if lent.is_empty() {
                self.lent.remove(&object);
            }
        }
    }

    /// What the owner says of a file of another dispatcher.
    pub(in crate::dispatcher) fn import_state(&self, key: Key) -> Option<&FileState> {
        self.imports.get(&key).map(|import| &import.state)
    }

    /// Asks the owner to have the courier take the file, which it does not have.
    pub(in crate::dispatcher) fn ask_to_carry(&mut self, work: &Workload, key: Key) {
        let Some(import) = self.imports.get_mut(&key) else { return };
        if let FileState::Held { carried, .. } = &mut import.state {
            *carried = Carried::No;
        }
        let (owner, file) = (import.owner, work.shared(key));
        self.say(owner, LinkMessage::Carry { file });
    }

    /// Notes that an executor came here with a copy of another dispatcher's file.
    pub(in crate::dispatcher) fn note_brought(&mut self, executor: ExecutorId, object: ObjectId) {
        self.brought.insert((executor, object));
    }

    pub(in crate::dispatcher) fn was_brought(&self, executor: ExecutorId, object: ObjectId) -> bool {
        self.brought.contains(&(executor, object))
    }

    pub(in crate::dispatcher) fn forget_brought(&mut self, executor: ExecutorId) {
        self.brought.retain(|(by, _)| *by != executor);
    }

    /// Counts `task` among the readers of a file that another dispatcher makes. `Ok(true)`: the task waits
    /// for the file. `Err`: the file will never be made.
    pub(in crate::dispatcher) fn read_import(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        task: TaskId,
        object: ObjectId,
    ) -> Result<bool, String> {
        let key = (work.tasks.run_of(task), object);
        if !self.imports.contains_key(&key) {
            let owner = self
                .owner_elsewhere(work, intermediates, key.0, object)
                .expect("it is one of `foreign_inputs`");
            let import = Import { owner, state: FileState::Expected, n_readers: 0, waiters: vec![] };
            self.imports.insert(key, import);
            let files = vec![work.shared(key)];
            self.say(owner, LinkMessage::Subscribed { files });
        }
        let import = self.imports.get_mut(&key).expect("it is there by now");
        import.n_readers += 1;
        match &import.state {
            FileState::Never { message, .. } => Err(message.clone()),
            FileState::Expected => {
                import.waiters.push(task);
                Ok(true)
            }
            FileState::AtHome | FileState::Held { .. } => Ok(false),
        }
    }

    /// The files of other dispatchers that a ready task lacks although they existed once. `Err`: one of them
    /// will never be made again.
    pub(in crate::dispatcher) fn missing_imports(
        &self,
        work: &mut Workload,
        executors: &Executors,
        intermediates: &Intermediates,
        task: TaskId,
    ) -> Result<Vec<ObjectId>, String> {
        if self.imports.is_empty() {
            return Ok(vec![]);
        }
        let run = work.tasks.run_of(task);
        let mut missing = vec![];
        for object in self.foreign_inputs(work, intermediates, task) {
            let Some(import) = self.imports.get(&(run, object)) else { continue };
            let heard = |e: ExecutorId| executors.by_id.get(&e).is_some_and(|e| e.silent_since.is_none());
            match &import.state {
                FileState::Never { message, .. } => return Err(message.clone()),
                FileState::Expected if !work.catalog.holders_of(object).any(heard) => missing.push(object),
                _ => {}
            }
        }
        Ok(missing)
    }

    pub(in crate::dispatcher) fn await_import(&mut self, work: &Workload, task: TaskId, object: ObjectId) {
        let run = work.tasks.run_of(task);
        if let Some(import) = self.imports.get_mut(&(run, object)) {
            import.waiters.push(task);
        }
    }

    /// Whether executors of another dispatcher hold `object`, according to the file's owner.
    pub(in crate::dispatcher) fn is_held_elsewhere(
        &self,
        work: &Workload,
        intermediates: &Intermediates,
        object: ObjectId,
    ) -> bool {
        if self.imports.is_empty() {
            return false;
        }
        let Some(run) = self.run_of_import(work, intermediates, object) else { return false };
        let import = self.imports.get(&(run, object));
        import.is_some_and(|import| matches!(import.state, FileState::Held { .. }))
    }

    /// `executor` goes to another dispatcher and takes `objects` along: those that are still wanted need not
    /// be made again.
    pub(in crate::dispatcher) fn lend(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        executor: ExecutorId,
        objects: &[ObjectId],
    ) {
        for object in objects {
            let file = intermediates.files.get(object);
            let maker = file.filter(|file| !file.dropped).and_then(|file| file.maker);
            if maker.is_some_and(|maker| work.tasks.end_of(maker) == End::Done) {
                self.lent.entry(*object).or_default().push(executor);
            }
        }
    }

    /// No executor of another dispatcher has a useful copy of our file any more.
    pub(in crate::dispatcher) fn forget_lent(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        object: ObjectId,
    ) {
        if self.lent.remove(&object).is_some() {
            self.touch_export(work, intermediates, object);
        }
    }

    /// An attempt found no copy of some input of `task`.
    pub(in crate::dispatcher) fn forget_lent_inputs(
        &mut self,
        work: &mut Workload,
        intermediates: &Intermediates,
        task: TaskId,
    ) {
        if !self.lent.is_empty() {
            intermediates
                .files_read(work, task)
                .into_iter()
                .for_each(|object| self.forget_lent(work, intermediates, object));
        }
    }

    /// No source had an input of `task`: the inputs' owners are asked for other sources.
    pub(in crate::dispatcher) fn ask_owners(
        &mut self,
        work: &mut Workload,
        intermediates: &Intermediates,
        task: TaskId,
    ) {
        let run = work.tasks.run_of(task);
        for object in self.foreign_inputs(work, intermediates, task) {
            let key = (run, object);
            let Some(import) = self.imports.get_mut(&key) else { continue };
            let (FileState::Held { holders, .. }, owner) = (&import.state, import.owner) else { continue };
            if work.catalog.n_holders(object) > 0 {
                continue;
            }
            let holders = holders.clone();
            import.state = FileState::Expected;
            let file = work.shared(key);
            self.say(owner, LinkMessage::Missed { file, holders });
        }
    }
}

impl Dispatcher {
    /// `task` has ended and no longer reads its imports.
    pub(in crate::dispatcher) fn release_imports(&mut self, task: TaskId, out: &mut Vec<Action>) {
        if self.exchange.imports.is_empty() {
            return;
        }
        let run = self.work.tasks.run_of(task);
        let mut unread = vec![];
        for object in self.exchange.foreign_inputs(&mut self.work, &self.intermediates, task) {
            let Some(import) = self.exchange.imports.get_mut(&(run, object)) else { continue };
            import.n_readers = import.n_readers.saturating_sub(1);
            if import.n_readers > 0 {
                continue;
            }
            let owner = import.owner;
            self.exchange.imports.remove(&(run, object));
            let files = vec![self.work.shared((run, object))];
            self.exchange.say(owner, LinkMessage::Unsubscribed { files });
            if self.intermediates.has(object) {
                unread.push(object);
            }
        }
        self.drop_unread(&unread, out);
    }

    /// The owner reports the state of a file.
    pub(super) fn on_file(
        &mut self,
        now: Timestamp,
        from: MemberId,
        file: &SharedFile,
        state: FileState,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.work.find_shared(file) else { return };
        let Some(import) = self.exchange.imports.get_mut(&key).filter(|i| i.owner == from) else {
            return; // no task here reads the file any more; the owner was told so on another connection
        };
        self.reach.stir(key.1);
        let was_held = matches!(import.state, FileState::Held { .. });
        import.state = state.clone();
        if state == FileState::Expected {
            return;
        }
        let waiters = std::mem::take(&mut import.waiters);
        if let FileState::Held { digest, size_bytes, .. } = state {
            let object = key.1;
            if !was_held {
                let ahead = |task: &TaskId| self.moves.gathers_ahead(*task);
                let gatherers: Vec<TaskId> = waiters.iter().copied().filter(ahead).collect();
                self.moves.arrived(object, gatherers);
            }
            if self.work.catalog.digest(object) != Some(digest) {
                // The file was made anew, with other bytes.
                for holder in self.work.catalog.holders_of(object).collect::<Vec<_>>() {
                    self.drop_replica(holder, object);
                    out.push(Action::DropReplicas { executor: holder, objects: vec![object] });
                }
                self.work.catalog.set_digest(object, Some(digest));
                self.work.catalog.set_size_bytes(object, Some(size_bytes));
            }
        }
        for task in waiters {
            let Some(n_missing) = self.waits.n_missing.get_mut(&task) else { continue };
            let outcome = match &state {
                FileState::Never { cancelled: true, .. } => Some(Outcome::Cancelled),
                FileState::Never { message, .. } => {
                    let failure = Failure { kind: FailureKind::InputUnavailable, message: message.clone() };
                    Some(Outcome::Failed(failure))
                }
                _ => None,
            };
            if outcome.is_none() {
                *n_missing -= 1;
                if *n_missing > 0 {
                    continue;
                }
            }
            self.waits.n_missing.remove(&task);
            self.work.run_mut(key.0).tasks.n_waiting -= 1;
            match outcome {
                Some(outcome) => self.end_task(now, task, outcome, out),
                None => self.schedule.requeue(&mut self.work, now, task),
            }
        }
    }
}
