//! A file that stays on the nodes is lost: its maker runs again.
//!
//! The maker then reads its own inputs once more, so of its ancestors only those run again whose files were
//! dropped or lost, too.
//!
//! Why revivals come to an end: each task runs again at most [`REVIVALS_MAX`] times for lost files. After
//! that it fails, and with it the tasks that wait for it.

use super::attempts::{SICK_NS, SICK_NS_MAX};
use super::{Attempts, Dispatcher, End, History, Intermediate, Intermediates, Schedule, Waits, Workload};
use crate::event::Action;
use eyas_terms::{ExecutorId, Failure, FailureKind, ObjectId, Outcome, TaskId, Timestamp};
use eyas_text::shown;
use std::collections::VecDeque;

/// How often a task may run again because a file that it had made was lost.
pub const REVIVALS_MAX: u32 = 8;
/// Attempts of a task that runs again are numbered from a multiple of this number, because the attempt
/// numbers of its earlier runs are not kept.
const REVIVAL_ATTEMPTS: u32 = 1 << 16;

/// Why a ready task cannot be given out after all.
pub(super) enum Missing {
    /// The task that makes an input has failed or was cancelled.
    Never(String),
    /// An input's holders are all silent; this is one of them. They may come back.
    Silent(ExecutorId),
    /// These tasks have to make inputs again, and these inputs are awaited from other dispatchers.
    Makers(Vec<TaskId>, Vec<ObjectId>),
}

impl Intermediates {
    /// No holder had an input of `task`, for the `n`th time (at least the second). It takes a while until a
    /// lost holder is known to be lost, and trying again at once would use up the task's attempts. So the
    /// task rests, longer each time.
    pub(super) fn rest(
        &mut self,
        work: &mut Workload,
        waits: &mut Waits,
        now: Timestamp,
        task: TaskId,
        n: u32,
    ) {
        let until = now.plus_ns((SICK_NS << n.min(6)).min(SICK_NS_MAX) / 2);
        self.resting.insert((until, task));
        waits.n_missing.insert(task, 1);
        work.run_mut(work.tasks.run_of(task)).tasks.n_waiting += 1;
    }

    /// Queues tasks again whose rest is over.
    pub(super) fn unrest(
        &mut self,
        work: &mut Workload,
        schedule: &mut Schedule,
        waits: &mut Waits,
        now: Timestamp,
    ) {
        while let Some(&(until, task)) = self.resting.first()
            && until <= now
        {
            self.resting.pop_first();
            if waits.n_missing.remove(&task).is_some() {
                work.run_mut(work.tasks.run_of(task)).tasks.n_waiting -= 1;
                schedule.requeue(work, now, task);
            }
        }
    }

    /// An executor is heard again or was given up: the tasks that waited for that are queued again.
    pub(super) fn unpark(
        &mut self,
        work: &mut Workload,
        schedule: &mut Schedule,
        waits: &mut Waits,
        now: Timestamp,
        executor: ExecutorId,
    ) {
        for task in self.parked.remove(&executor).unwrap_or_default() {
            if waits.n_missing.remove(&task).is_some() {
                let run = work.tasks.run_of(task);
                work.run_mut(run).tasks.n_waiting -= 1;
                schedule.requeue(work, now, task);
            }
        }
    }

    /// The journal, read back after a restart, says that this task had to run again.
    pub(super) fn on_task_revived(&mut self, work: &mut Workload, attempts: &mut Attempts, task: TaskId) {
        let (array, i) = work.tasks.locate(task);
        if work.tasks.arrays[array.0 as usize].ends.get(i) != End::Done {
            return;
        }
        work.tasks.arrays[array.0 as usize].ends.set(i, End::Not);
        let n = self.revivals.entry(task).or_default();
        *n += 1;
        let n_attempts = *n * REVIVAL_ATTEMPTS;
        attempts.histories.insert(task, History { n_attempts, ..History::default() });
        let run = work.tasks.run_of(task);
        work.run_mut(run).ends.n_done -= 1;
    }
}

impl Dispatcher {
    /// Holders have dropped replicas of `objects`. Where the last replica of a file that some task still
    /// reads is gone, the file's maker runs again.
    pub(super) fn check_lost(&mut self, now: Timestamp, objects: &[ObjectId], out: &mut Vec<Action>) {
        if self.intermediates.files.is_empty() || self.schedule.attempts.hold_until.is_some() {
            return;
        }
        for object in objects {
            if let Some(file @ Intermediate { maker: Some(maker), .. }) = self.intermediates.files.get(object)
                && file.is_read()
                && self.work.catalog.n_holders(*object) == 0
                && !self.exchange.is_lent(*object)
                && self.work.tasks.end_of(*maker) == End::Done
            {
                self.revive(now, *maker, *object, out);
            }
        }
    }

    /// The inputs that a ready task lacks although their makers were done, if there are any; makers of lost
    /// files run again.
    pub(super) fn find_missing(
        &mut self,
        now: Timestamp,
        task: TaskId,
        out: &mut Vec<Action>,
    ) -> Option<Missing> {
        let mut makers = vec![];
        for object in self.intermediates.files_read(&mut self.work, task) {
            let maker = self.intermediates.files[&object].maker;
            let Some(maker) = maker.filter(|maker| *maker != task) else { continue };
            if self.work.tasks.end_of(maker) == End::Done {
                let heard = |e: ExecutorId| {
                    self.schedule.executors.by_id.get(&e).is_some_and(|e| e.silent_since.is_none())
                };
                if self.work.catalog.holders_of(object).any(heard) || self.exchange.is_lent(object) {
                    continue;
                }
                if let Some(silent) = self.work.catalog.holders_of(object).next() {
                    return Some(Missing::Silent(silent));
                }
                self.revive(now, maker, object, out);
            }
            // While the maker runs again, a replica on some node may come from an attempt that has yet to end
            // well.
            match self.work.tasks.end_of(maker) {
                End::Not if !makers.contains(&maker) => makers.push(maker),
                End::Not => {}
                end => {
                    return Some(Missing::Never(self.work.tasks.maker_failed(maker, end == End::Cancelled)));
                }
            }
        }
        if !self.intermediates.revivals.is_empty() {
            // A task that runs again for a lost file also makes its results at home anew. Until the new
            // results are at home, a cached copy may differ from them.
            let (array, i) = self.work.tasks.locate(task);
            let array = self.work.tasks.arrays[array.0 as usize].array.clone();
            for object in self.work.inputs_of(self.work.tasks.run_of(task), &array, i) {
                if let Some(maker) = self.schedule.attempts.making.get(&object).copied()
                    && maker != task
                    && self.intermediates.revivals.contains_key(&maker)
                    && !makers.contains(&maker)
                {
                    makers.push(maker);
                }
            }
        }
        let imports = match self.exchange.missing_imports(
            &mut self.work,
            &self.schedule.executors,
            &self.intermediates,
            task,
        ) {
            Ok(imports) => imports,
            Err(message) => return Some(Missing::Never(message)),
        };
        (!makers.is_empty() || !imports.is_empty()).then_some(Missing::Makers(makers, imports))
    }

    /// Lets a ready task wait for what [`Dispatcher::find_missing`] found.
    pub(super) fn await_missing(
        &mut self,
        now: Timestamp,
        task: TaskId,
        missing: Missing,
        out: &mut Vec<Action>,
    ) {
        self.schedule.take_ready(&mut self.work, task);
        let run = self.work.tasks.run_of(task);
        match missing {
            Missing::Never(message) => {
                let failure = Failure { kind: FailureKind::InputUnavailable, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
            }
            Missing::Silent(holder) => {
                self.intermediates.parked.entry(holder).or_default().push(task);
                self.waits.n_missing.insert(task, 1);
                self.work.run_mut(run).tasks.n_waiting += 1;
            }
            Missing::Makers(makers, imports) => {
                self.waits.n_missing.insert(task, (makers.len() + imports.len()) as u32);
                self.work.run_mut(run).tasks.n_waiting += 1;
                for object in imports {
                    self.exchange.await_import(&self.work, task, object);
                }
                for maker in makers {
                    self.waits.subscribers.entry(maker).or_default().push(task);
                }
            }
        }
    }

    /// Runs done tasks again: `task`, because `lost` is needed and no executor holds it, and those of its
    /// ancestors whose files are gone, too.
    pub(super) fn revive(&mut self, now: Timestamp, task: TaskId, lost: ObjectId, out: &mut Vec<Action>) {
        // A list, not recursion: chains of tasks may be long.
        let mut again = VecDeque::from([(task, lost)]);
        while let Some((task, lost)) = again.pop_front() {
            if self.work.tasks.end_of(task) != End::Done {
                continue;
            }
            self.reruns.cancel(task);
            let n = self.intermediates.revivals.entry(task).or_default();
            *n += 1;
            let n = *n;
            let (array, i) = self.work.tasks.locate(task);
            let run = self.work.tasks.run_of(task);
            self.work.tasks.arrays[array.0 as usize].ends.set(i, End::Not);
            let state = self.work.run_mut(run);
            state.ends.n_done -= 1;
            state.begin_again();
            out.push(Action::ReviveTask { task, lost });
            for object in self.intermediates.files_made(&mut self.work, task) {
                self.exchange.forget_lent(&self.work, &self.intermediates, object);
            }
            self.exchange.touch_exports_of(&mut self.work, task);
            let n_attempts = n * REVIVAL_ATTEMPTS;
            self.schedule.attempts.histories.insert(task, History { n_attempts, ..History::default() });
            // After a restart, nothing has been requested yet from other dispatchers for tasks that had
            // ended.
            let imports = self.exchange.foreign_inputs(&mut self.work, &self.intermediates, task);
            for object in imports.iter().filter(|o| self.work.catalog.location(**o).stays()) {
                self.intermediates.files.entry(*object).or_default();
            }
            let inputs = self.intermediates.files_read(&mut self.work, task);
            for object in &inputs {
                let file = self.intermediates.files.get_mut(object).expect("it was filtered by being there");
                file.n_readers += 1;
                file.dropped = false;
            }
            // Files of other dispatchers may be gone, too; the task waits for them as it waits for its
            // ancestors here.
            let mut n_awaited = 0;
            let mut never = None;
            for object in imports {
                match self.exchange.read_import(&self.work, &self.intermediates, task, object) {
                    Ok(waits) => n_awaited += u32::from(waits),
                    Err(message) => never = Some(message),
                }
            }
            if n > REVIVALS_MAX {
                let file = self.work.catalog.location(lost).written().text();
                let message = format!(
                    "the file {file} that it makes was lost {n} times before all its readers had read it: nodes \
                     leave too often, or caches are too small; give them more space or keep the file at home",
                    file = shown(&file)
                );
                let failure = Failure { kind: FailureKind::ExecutorLost, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
                continue;
            }
            let mut makers: Vec<TaskId> = vec![];
            for object in inputs {
                let maker = self.intermediates.files[&object].maker;
                if let Some(maker) = maker
                    .filter(|_| self.work.catalog.n_holders(object) == 0 && !self.exchange.is_lent(object))
                    && maker != task
                    && !makers.contains(&maker)
                {
                    makers.push(maker);
                    again.push_back((maker, object));
                }
            }
            let ended_badly =
                |m: &&TaskId| matches!(self.work.tasks.end_of(**m), End::Failed | End::Cancelled);
            if let Some(maker) = makers.iter().find(ended_badly) {
                let message =
                    self.work.tasks.maker_failed(*maker, self.work.tasks.end_of(*maker) == End::Cancelled);
                let failure = Failure { kind: FailureKind::InputUnavailable, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
                continue;
            }
            if let Some(message) = never {
                let failure = Failure { kind: FailureKind::InputUnavailable, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
                continue;
            }
            if makers.is_empty() && n_awaited == 0 {
                self.schedule.requeue(&mut self.work, now, task);
                continue;
            }
            self.waits.n_missing.insert(task, makers.len() as u32 + n_awaited);
            self.work.run_mut(run).tasks.n_waiting += 1;
            for maker in makers {
                self.waits.subscribers.entry(maker).or_default().push(task);
            }
        }
    }
}
