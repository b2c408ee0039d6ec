//! The owner's side: files that are made here and read elsewhere.

use super::{Exchange, Key};
use crate::dispatcher::{
    Dispatcher, End, Executors, Forgotten, Intermediate, Intermediates, SOURCES_MAX, Workload,
};
use crate::event::Action;
use crate::group::{Carried, FileState, LinkMessage, SharedFile};
use eyas_terms::{ExecutorId, MemberId, ObjectId, RunId, TaskId, Timestamp};
use eyas_text::shown;

impl Exchange {
    /// Notes that a promised file may never be made.
    pub(in crate::dispatcher) fn touch_promised(&mut self, run: RunId, object: ObjectId) {
        if self.exports.contains_key(&(run, object)) {
            self.dirty.insert((run, object));
        }
    }

    /// Whether members read any of these files.
    pub(in crate::dispatcher) fn is_any_exported(&self, range: std::ops::RangeInclusive<Key>) -> bool {
        self.exports.range(range).next().is_some()
    }

    /// After a restart: all files that executors still hold are known now.
    pub(in crate::dispatcher) fn touch_all_exports(&mut self) {
        let keys: Vec<Key> = self.exports.keys().copied().collect();
        self.dirty.extend(keys);
    }

    pub(super) fn subscribed(
        &mut self,
        work: &mut Workload,
        forgotten: &Forgotten,
        intermediates: &mut Intermediates,
        member: MemberId,
        file: &SharedFile,
    ) -> Option<Key> {
        let Some(key) = self.intern_shared(work, file) else {
            let message =
                format!("run {} is not known to the dispatcher that has {}", file.run, shown(&file.location));
            // A task that runs again in a run which is forgotten here is about to be cancelled there.
            let state = FileState::Never { message, cancelled: forgotten.is_forgotten(work, file.run) };
            self.say(member, LinkMessage::File { file: file.clone(), state });
            return None;
        };
        let export = self.exports.entry(key).or_default();
        export.last_sent.insert(member, None);
        let n_foreign = export.last_sent.len() as u32;
        if work.catalog.location(key.1).stays() {
            let file = intermediates.files.entry(key.1).or_default();
            file.n_foreign = n_foreign;
            file.dropped = false;
        }
        self.dirty.insert(key);
        Some(key)
    }

    /// Notes that the state of an export may have changed.
    pub(in crate::dispatcher) fn touch_export(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        object: ObjectId,
    ) {
        if self.exports.is_empty() {
            return;
        }
        if let Some(Intermediate { maker: Some(maker), n_foreign: 1.., .. }) =
            intermediates.files.get(&object)
        {
            self.dirty.insert((work.tasks.run_of(*maker), object));
        }
    }

    /// `task` has ended or runs again, so the state of its exports may have changed.
    pub(in crate::dispatcher) fn touch_exports_of(&mut self, work: &mut Workload, task: TaskId) {
        if self.exports.is_empty() {
            return;
        }
        let run = work.tasks.run_of(task);
        let (array, i) = work.tasks.locate(task);
        let array = work.tasks.arrays[array.0 as usize].array.clone();
        for object in work.outputs_of(run, &array, i) {
            if self.exports.contains_key(&(run, object)) {
                self.dirty.insert((run, object));
            }
        }
    }

    /// An executor has become silent or is heard again, so the files that it holds can no longer or can again
    /// be fetched.
    pub(in crate::dispatcher) fn touch_exports_on(
        &mut self,
        work: &Workload,
        intermediates: &Intermediates,
        executor: ExecutorId,
    ) {
        if self.exports.is_empty() {
            return;
        }
        for object in work.catalog.objects_on(executor) {
            self.touch_export(work, intermediates, object);
        }
    }

    /// All tasks of `run`, or of the submission `run` into `whole`, are known here, so a file without a maker
    /// will never be made.
    pub(in crate::dispatcher) fn settle(&mut self, work: &Workload, run: RunId, whole: RunId) {
        let Some(group) = self.group else { return };
        if work.runs[&whole].linked.is_none() {
            return;
        }
        for member in group.others() {
            self.say(member, LinkMessage::Settled { run });
        }
        let range = (whole, ObjectId(0))..=(whole, ObjectId(u32::MAX));
        let keys: Vec<Key> = self.exports.range(range).map(|(key, _)| *key).collect();
        self.dirty.extend(keys);
    }

    /// The other dispatcher that makes a file which `task` waits for; `None` if no other dispatcher does.
    pub(in crate::dispatcher) fn awaited_import(
        &self,
        work: &Workload,
        task: TaskId,
        object: ObjectId,
    ) -> Option<MemberId> {
        let import = self.imports.get(&(work.tasks.run_of(task), object))?;
        import.waiters.contains(&task).then_some(import.owner)
    }

    pub(in crate::dispatcher) fn maker_of_export(
        &self,
        intermediates: &Intermediates,
        key: Key,
    ) -> Option<TaskId> {
        let stays = intermediates.files.get(&key.1).and_then(|file| file.maker);
        stays.or_else(|| self.home_makers.get(&key).copied())
    }

    /// The state of an export, without what the courier carries. `last_sent` is the state that was last sent to `member`: holders that are still
    /// good stay named.
    pub(super) fn state_of_export(
        &self,
        work: &Workload,
        executors: &Executors,
        intermediates: &Intermediates,
        key: Key,
        member: MemberId,
        last_sent: Option<&FileState>,
    ) -> FileState {
        let (run, object) = key;
        let Some(maker) = self.maker_of_export(intermediates, key) else {
            if work.runs.get(&run).is_some_and(|r| !r.committed) {
                return FileState::Expected;
            }
            return match intermediates.find_promise(work, object) {
                Some(Ok(())) => FileState::Expected,
                // Another dispatcher has the file now and reports its state; readers learned of the new owner
                // with the added tasks.
                Some(Err(_)) if self.owner_elsewhere(work, intermediates, run, object).is_some() => {
                    FileState::Expected
                }
                Some(Err(by)) => FileState::Never {
                    message: work.broken_promise(object, by),
                    cancelled: work.tasks.end_of(by) == End::Cancelled,
                },
                None => FileState::Never { message: work.nobody_makes(object), cancelled: false },
            };
        };
        match work.tasks.end_of(maker) {
            End::Not => return FileState::Expected,
            End::Done => {}
            end => {
                let cancelled = end == End::Cancelled;
                return FileState::Never { message: work.tasks.maker_failed(maker, cancelled), cancelled };
            }
        }
        if !intermediates.has(object) {
            return FileState::AtHome;
        }
        let (Some(digest), Some(size_bytes)) = (work.catalog.digest(object), work.catalog.size_bytes(object))
        else {
            return FileState::Expected;
        };
        let heard = |e: &ExecutorId| executors.by_id.get(e).is_some_and(|e| e.silent_since.is_none());
        let mut holders: Vec<ExecutorId> = work.catalog.holders_of(object).filter(heard).collect();
        holders.extend(self.lent_to(object));
        let failed_holders = &self.exports[&key].failed_holders;
        if let Some(FileState::Held { digest: before, holders: named, .. }) = last_sent {
            let good = |h: &ExecutorId| holders.contains(h) && !failed_holders.contains(h);
            if *before == digest && named.iter().all(good) && named.len() >= SOURCES_MAX.min(holders.len()) {
                return FileState::Held { digest, size_bytes, holders: named.clone(), carried: Carried::No };
            }
        }
        if holders.is_empty() {
            return FileState::Expected;
        }
        // Each member gets another holder first; holders that were found without the file come last.
        let n = holders.len();
        holders.rotate_left((member.0 as usize).wrapping_add(object.0 as usize) % n);
        holders.sort_by_key(|h| failed_holders.contains(h));
        holders.truncate(SOURCES_MAX);
        FileState::Held { digest, size_bytes, holders, carried: Carried::No }
    }
}

impl Dispatcher {
    pub(super) fn unsubscribed(&mut self, member: MemberId, key: Key, out: &mut Vec<Action>) {
        let Some(export) = self.exchange.exports.get_mut(&key) else { return };
        export.last_sent.remove(&member);
        let n_foreign = export.last_sent.len() as u32;
        if n_foreign == 0 {
            self.exchange.exports.remove(&key);
            self.reach.couriers.unwant(key);
        }
        if let Some(file) = self.intermediates.files.get_mut(&key.1) {
            file.n_foreign = n_foreign;
            self.drop_unread(&[key.1], out);
        }
    }

    /// `member` knows all its tasks of `run`, which may be a submission into another run, before or after it
    /// has become part of that run.
    pub(super) fn settled(&mut self, member: MemberId, run: RunId, out: &mut Vec<Action>) {
        let whole = self.exchange.added.get(&run).copied().unwrap_or(run);
        let Some(linked) = self.work.runs.get_mut(&whole).and_then(|r| r.linked.as_mut()) else { return };
        if !linked.unsettled.remove(&(run, member)) || !linked.is_settled() {
            return;
        }
        if std::mem::take(&mut linked.has_dropped_nothing) {
            let arrays = self.work.runs[&whole].arrays.clone();
            self.drop_all_unread(whole, &arrays, out);
        }
        let unread = std::mem::take(&mut self.work.run_mut(whole).additions.unread);
        self.drop_unread(&unread, out);
    }

    /// Has files made again that other dispatchers read and that no executor holds any more. Gives whether
    /// there were any.
    pub(in crate::dispatcher) fn revive_exports(&mut self, now: Timestamp, out: &mut Vec<Action>) -> bool {
        if self.schedule.attempts.hold_until.is_some() {
            return false;
        }
        let mut revived = false;
        for key in self.exchange.dirty.iter().copied().collect::<Vec<_>>() {
            if self.exchange.exports.contains_key(&key)
                && self.intermediates.has(key.1)
                && self.work.catalog.n_holders(key.1) == 0
                && !self.exchange.is_lent(key.1)
                && let Some(maker) = self
                    .exchange
                    .maker_of_export(&self.intermediates, key)
                    .filter(|maker| self.work.tasks.end_of(*maker) == End::Done)
            {
                self.revive(now, maker, key.1, out);
                revived = true;
            }
        }
        revived
    }
}
