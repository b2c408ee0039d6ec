//! Files that a task has promised: a task that its program adds will make them.
//!
//! Readers wait for such a file without a maker, as `orphans`. When the promising task has ended and nothing
//! is being added any more, the readers fail. A promise may be handed on: an added task may promise the file
//! again. So nobody waits for ever: a promise is over when its task ends.
//!
//! Not here: what becomes of the file once it has a maker (`intermediates`).

use super::{Dispatcher, End, Exchange, Intermediates, Waits, Workload};
use crate::event::Action;
use eyas_terms::{ArrayId, Failure, FailureKind, ObjectId, Outcome, RunId, TaskId, Timestamp};
use eyas_text::shown;

/// The message for a submission of the task `id`, which promises `location` although `other` promises or
/// writes it.
pub(super) fn promise_refused(id: &str, location: &str, other: &str, does: &str) -> String {
    format!(
        "task {id} promises {location}, which task {other} {does}",
        id = shown(id),
        location = shown(location),
        other = shown(other)
    )
}

impl Intermediates {
    /// Notes what `task` promises. `Err`: a sentence, if another task of its submission promises the same or
    /// some task writes it.
    pub(super) fn learn_promises(&mut self, work: &mut Workload, task: TaskId) -> Result<(), String> {
        let run = work.tasks.run_of(task);
        for object in work.files_promised(task) {
            let maker = self.files.get(&object).and_then(|file| file.maker);
            let holders = self.promises.entry(object).or_default();
            let same = holders.iter().find(|other| {
                let at = work.tasks.bases.partition_point(|base| base <= *other) - 1;
                work.tasks.arrays[at].run == run
            });
            let (other, does) = match (same.copied(), maker) {
                (_, Some(maker)) => (maker, "writes"),
                (Some(other), None) => (other, "promises, too"),
                (None, None) => {
                    holders.push(task);
                    continue;
                }
            };
            let (id, other) = (work.tasks.user_id(task), work.tasks.user_id(other));
            let location = work.catalog.location(object).written().text();
            return Err(promise_refused(&id, &location, &other, does));
        }
        Ok(())
    }

    /// Forgets the promises of `task`, whose submission was given up.
    pub(super) fn forget_promises(&mut self, work: &mut Workload, task: TaskId) {
        for object in work.files_promised(task) {
            if let Some(holders) = self.promises.get_mut(&object) {
                holders.retain(|holder| *holder != task);
                if holders.is_empty() {
                    self.promises.remove(&object);
                }
            }
        }
    }

    /// Whether a task that makes the file may still be added: `Ok` if so. `Err`: the task that promised it
    /// last; all that promised it have ended. `None`: no task promised it.
    pub(super) fn find_promise(&self, work: &Workload, object: ObjectId) -> Option<Result<(), TaskId>> {
        let last = *self.promises.get(&object)?.last()?;
        let holders = &self.promises[&object];
        let of = work.tasks.run_of(last);
        // After a restart, the promising task may be of a submission that is not part of its run yet.
        let whole = work.runs.get(&of).and_then(|run| run.into).unwrap_or(of);
        let is_adding = work.runs.get(&whole).is_some_and(|run| run.additions.n_open > 0);
        let is_open = is_adding || holders.iter().any(|holder| work.tasks.end_of(*holder) == End::Not);
        Some(if is_open { Ok(()) } else { Err(last) })
    }

    /// `task` has ended. The files that it promised and that have no maker will not be made, unless another
    /// task promises them. Gives the readers that end with this.
    pub(super) fn end_promises_of(
        &mut self,
        work: &mut Workload,
        exchange: &mut Exchange,
        waits: &mut Waits,
        task: TaskId,
    ) -> Vec<(TaskId, Outcome)> {
        let (array, _) = work.tasks.locate(task);
        if work.tasks.arrays[array.0 as usize].array.template.promises.is_empty() {
            return vec![];
        }
        let promised = work.files_promised(task);
        self.end_promises(work, exchange, waits, &promised)
    }

    pub(super) fn end_promises(
        &mut self,
        work: &mut Workload,
        exchange: &mut Exchange,
        waits: &mut Waits,
        promised: &[ObjectId],
    ) -> Vec<(TaskId, Outcome)> {
        let mut ends = vec![];
        for object in promised.iter().copied() {
            let Some(Err(by)) = self.find_promise(work, object) else { continue };
            if self.files.get(&object).is_some_and(|file| file.maker.is_some()) {
                continue;
            }
            exchange.touch_promised(work.tasks.run_of(by), object);
            let readers = self.orphans.remove(&object).unwrap_or_default();
            let message = work.broken_promise(object, by);
            let cancelled = work.tasks.end_of(by) == End::Cancelled;
            ends.extend(waits.end_orphans(work, readers, &message, cancelled));
        }
        ends
    }
}

impl Workload {
    /// The files that `task` has promised.
    pub(super) fn files_promised(&mut self, task: TaskId) -> Vec<ObjectId> {
        let (array, _) = self.tasks.locate(task);
        let array = self.tasks.arrays[array.0 as usize].array.clone();
        let scope = self.scope_of(self.tasks.run_of(task)).clone();
        let scoped = |promised: &String| self.catalog.intern(scope.put_into(&mut promised.clone()));
        array.template.promises.iter().map(scoped).collect()
    }

    /// The message for a reader of a promised file that fails because nobody made the file.
    pub(super) fn broken_promise(&self, object: ObjectId, by: TaskId) -> String {
        let (file, by) = (self.catalog.location(object).written().text(), self.tasks.user_id(by));
        format!(
            "nobody wrote its input {file}: task {by}, which promised it, ended without adding a task that does",
            file = shown(&file),
            by = shown(&by)
        )
    }
}

impl Waits {
    /// Takes `readers` out of the waiting tasks, as nobody will make their input. Gives how they end.
    pub(super) fn end_orphans(
        &mut self,
        work: &mut Workload,
        readers: Vec<TaskId>,
        message: &str,
        cancelled: bool,
    ) -> Vec<(TaskId, Outcome)> {
        let mut ends = vec![];
        for task in readers {
            if self.n_missing.remove(&task).is_none() {
                continue;
            }
            work.run_mut(work.tasks.run_of(task)).tasks.n_waiting -= 1;
            let failure = Failure { kind: FailureKind::InputUnavailable, message: message.into() };
            ends.push((task, if cancelled { Outcome::Cancelled } else { Outcome::Failed(failure) }));
        }
        ends
    }
}

impl Dispatcher {
    /// The readers of a promised file, whose maker has now been added, wait for that maker. After a restart
    /// the maker may have ended.
    pub(super) fn adopt_orphans(&mut self, now: Timestamp, object: ObjectId, out: &mut Vec<Action>) {
        let Some(maker) = self.intermediates.files.get(&object).and_then(|file| file.maker) else { return };
        for reader in self.intermediates.orphans.remove(&object).unwrap_or_default() {
            let end = self.work.tasks.end_of(maker);
            let Some(n_missing) = self.waits.n_missing.get_mut(&reader) else { continue };
            match end {
                End::Not => self.waits.subscribers.entry(maker).or_default().push(reader),
                End::Done => {
                    *n_missing -= 1;
                    if *n_missing == 0 {
                        self.waits.n_missing.remove(&reader);
                        self.work.run_mut(self.work.tasks.run_of(reader)).tasks.n_waiting -= 1;
                        self.schedule.requeue(&mut self.work, now, reader);
                    }
                }
                end => {
                    let cancelled = end == End::Cancelled;
                    let message = self.work.tasks.maker_failed(maker, cancelled);
                    for (reader, outcome) in
                        self.waits.end_orphans(&mut self.work, vec![reader], &message, cancelled)
                    {
                        self.end_task(now, reader, outcome, out);
                    }
                }
            }
        }
    }

    /// Tasks of `arrays`, which have been added, may make files that other tasks wait for.
    pub(super) fn adopt_all_orphans(&mut self, now: Timestamp, arrays: &[ArrayId], out: &mut Vec<Action>) {
        if self.intermediates.orphans.is_empty() {
            return;
        }
        for id in arrays {
            let a = &self.work.tasks.arrays[id.0 as usize];
            let (base, n) = (a.base, if a.writes_run { a.array.n_tasks } else { 0 });
            for i in 0..n {
                let made = self.intermediates.files_made(&mut self.work, TaskId(base.0 + u64::from(i)));
                made.into_iter().for_each(|object| self.adopt_orphans(now, object, out));
            }
        }
    }

    /// No submission into `run` is open any more, so promised files without a maker may never be made.
    pub(super) fn end_promises_to(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let of_run =
            |holders: &Vec<TaskId>| holders.iter().any(|holder| self.work.tasks.run_of(*holder) == run);
        let promised: Vec<ObjectId> =
            self.intermediates.promises.iter().filter(|(_, h)| of_run(h)).map(|(o, _)| *o).collect();
        for (reader, outcome) in
            self.intermediates.end_promises(&mut self.work, &mut self.exchange, &mut self.waits, &promised)
        {
            self.end_task(now, reader, outcome, out);
        }
    }
}
