//! Replicas as executors report them, and which bytes a run reads under a name.
//!
//! One run reads one version of an object; the parent's header explains under *suspect* what happens when
//! other bytes turn up.

use super::{Attempts, Dispatcher, Schedule, Workload};
use crate::collective::CollectiveEvent;
use crate::event::{Action, InputMoved, ReplicaAdded, TransferError, TransferErrorKind};
use eyas_terms::{Digest, ExecutorId, ObjectId, RunId, Timestamp};

impl Schedule {
    pub(super) fn on_input_moved(
        &mut self,
        work: &mut Workload,
        now: Timestamp,
        executor: ExecutorId,
        moved: &InputMoved,
    ) {
        if !self.executors.by_id.contains_key(&executor) || !work.catalog.is_known(moved.object) {
            return;
        }
        // As long as nobody has read the object, this report is the only source of its size.
        if work.catalog.digest(moved.object).is_none() {
            work.catalog.set_size_bytes(moved.object, Some(moved.size_bytes));
        }
        let before = self.ready.queue.moving(executor);
        self.ready.queue.moved(&work.catalog, now, executor, moved);
        if self.ready.queue.moving(executor) != before {
            self.update_room(work, executor);
        }
    }
}

impl Attempts {
    /// Marks attempts, on one executor or on all, as suspect if they learn from home which bytes of `object`
    /// they read and their program has not ended yet. Looks at all attempts, as home's bytes change rarely.
    pub(super) fn suspect(&mut self, work: &Workload, object: ObjectId, on: Option<ExecutorId>) {
        let location = work.catalog.location(object).text();
        let (arrays, mut text) = (&work.tasks.arrays, String::new());
        for (task, r) in &mut self.reserved {
            if r.landing || !r.asks_home || on.is_some_and(|executor| r.executor != executor) {
                continue;
            }
            let a = &arrays[arrays.partition_point(|a| a.base <= *task) - 1];
            let i = (task.0 - a.base.0) as u32;
            // Inputs that stay on the nodes are never requested from home.
            r.suspect |= a.array.template.inputs.iter().any(|(_, pattern)| {
                text.clear();
                a.array.fill_into(pattern, i, &mut text);
                text == location
            });
        }
    }
}

impl Dispatcher {
    pub(super) fn on_replicas_changed(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        added: Vec<ReplicaAdded>,
        mut dropped: Vec<ObjectId>,
        out: &mut Vec<Action>,
    ) {
        for replica in added {
            self.on_replica_added(now, executor, replica, out);
        }
        dropped.retain(|object| self.work.catalog.is_known(*object));
        for object in &dropped {
            if self.work.catalog.holds(executor, *object) {
                self.pushes.left(executor, *object);
            }
            self.drop_replica(executor, *object);
            let error = TransferError {
                kind: TransferErrorKind::NoSpace,
                message: "the cache of the node that read it dropped it at once".into(),
            };
            self.pushes.not_read(executor, *object, &error);
            // A copy that was read for others and dropped at once is only reported as dropped.
            self.on_home_not_read(now, executor, *object, TransferErrorKind::NoSpace, out);
        }
        self.check_lost(now, &dropped, out);
    }

    fn on_replica_added(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        replica: ReplicaAdded,
        out: &mut Vec<Action>,
    ) {
        let ReplicaAdded { object, digest, run, private, .. } = replica;
        self.take_replica(now, executor, replica, out);
        if !private {
            self.pushes.arrived(executor, object);
        }
        if let Some(run) = run.filter(|_| !private) {
            self.was_read(now, executor, object, digest, run, out);
            self.push_was_read(executor, object, digest, run);
        }
    }

    fn take_replica(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        replica: ReplicaAdded,
        out: &mut Vec<Action>,
    ) {
        let ReplicaAdded { object, digest, size_bytes, version, run, private } = replica;
        if !self.schedule.executors.by_id.contains_key(&executor)
            || object.0 as usize >= self.work.catalog.n_objects()
        {
            return;
        }
        if !self.work.catalog.is_known(object) {
            // The replica was fetched for a run that is forgotten by now.
            out.push(Action::DropReplicas { executor, objects: vec![object] });
            return;
        }
        let run = run.filter(|run| self.work.runs.contains_key(run));
        if let Some(maker) = self.schedule.attempts.making.get(&object)
            && let r = &self.schedule.attempts.reserved[maker]
            && (r.executor, r.landing) == (executor, false)
            && version.is_none()
        {
            let run = self.work.tasks.run_of(*maker);
            self.on_made(executor, run, object, digest, size_bytes, out);
        }
        let checked = self.work.catalog.checked_run(object);
        if self.schedule.attempts.arriving.remove(&object).is_some() {
            // The last search for a task may have failed for this object alone.
            self.schedule.ready.n_skips = 0;
        }
        match self.work.catalog.digest(object) {
            Some(known) if known == digest => {}
            Some(_) if version.is_none() || checked >= run => {
                // A run has already read other bytes under this name: those bytes stay, and this replica is
                // dropped.
                self.schedule.attempts.suspect(&self.work, object, Some(executor));
                self.drop_replica(executor, object);
                out.push(Action::DropReplicas { executor, objects: vec![object] });
                return;
            }
            None => {
                self.work.catalog.set_digest(object, Some(digest));
                self.work.catalog.set_size_bytes(object, Some(size_bytes));
            }
            Some(_) => {
                // Runs up to `checked` must read the old bytes; later runs may have begun to read them.
                self.schedule.attempts.suspect(&self.work, object, None);
                self.replace_bytes(executor, object, digest, size_bytes, out);
                self.work.catalog.set_version(object, version);
                self.work.catalog.set_checked_run(object, run);
                if !private {
                    self.add_replica(executor, object);
                }
                return;
            }
        }
        let from_home = version.is_some();
        if from_home {
            self.work.catalog.set_version(object, version);
            if let Some(run) = run {
                self.work.raise_checked_run(object, run);
            }
        }
        if private {
            return;
        }
        self.add_replica(executor, object);
        if from_home && self.work.catalog.n_holders(object) == 1 {
            self.consider_multicast(now, &[object], None);
        }
        if self.intermediates.has(object) {
            self.drop_unread(&[object], out);
        }
    }

    /// A task of `run` has made `object` anew: these are the object's bytes from now on, whatever other
    /// replicas hold.
    pub(super) fn on_made(
        &mut self,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
        digest: Digest,
        size_bytes: u64,
        out: &mut Vec<Action>,
    ) {
        if self.work.catalog.digest(object) != Some(digest) {
            self.replace_bytes(executor, object, digest, size_bytes, out);
            // Readers in this run wait for the maker, so they have not read what an earlier attempt made. The
            // exception is a maker that had been done and runs again for a lost file.
            let again = |maker| self.intermediates.revivals.contains_key(maker);
            if self.intermediates.has(object)
                || !self.schedule.attempts.making.get(&object).is_some_and(again)
            {
                self.work.run_mut(run).changed.remove(&object);
            }
        }
        // Home's version is known when the outputs have landed.
        self.work.catalog.set_version(object, None);
        self.work.catalog.set_marks(object, None);
        self.work.raise_checked_run(object, run);
    }

    /// Replaces an object's bytes: other replicas are stale, and runs that read the old bytes must not also
    /// read the new ones.
    fn replace_bytes(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        digest: Digest,
        size_bytes: u64,
        out: &mut Vec<Action>,
    ) {
        let stale: Vec<ExecutorId> =
            self.work.catalog.holders_of(object).filter(|h| *h != executor).collect();
        for holder in stale {
            self.drop_replica(holder, object);
            out.push(Action::DropReplicas { executor: holder, objects: vec![object] });
        }
        // A reader of a file that stays on the nodes waits for the file's maker, whenever that runs.
        if let Some(checked) =
            self.work.catalog.checked_run(object).filter(|_| !self.intermediates.has(object))
        {
            // A part that has ended goes on when a file is lost that another dispatcher reads.
            for (_, state) in self.work.runs.range_mut(..=checked).filter(|(_, r)| r.whole_ended().is_none())
            {
                state.changed.insert(object);
            }
        }
        self.work.catalog.set_digest(object, Some(digest));
        self.work.catalog.set_size_bytes(object, Some(size_bytes));
    }

    pub(super) fn add_replica(&mut self, executor: ExecutorId, object: ObjectId) {
        self.residents.copy_added(executor, object);
        self.store_has(executor, object);
        if self.work.catalog.add_replica(executor, object) {
            if self.moves.collectives.n_live() > 0 {
                self.moves.pending.push(CollectiveEvent::ReplicaAdded { executor, object });
            }
            let before = self.schedule.ready.queue.moving(executor);
            self.exchange.touch_export(&self.work, &self.intermediates, object);
            self.reach.stir(object);
            self.schedule.ready.queue.replica_added(&self.work.catalog, executor, object);
            if self.schedule.ready.queue.moving(executor) != before {
                self.schedule.update_room(&self.work, executor);
            }
        }
    }

    pub(super) fn drop_replica(&mut self, executor: ExecutorId, object: ObjectId) {
        self.two_mark.stores.dropped(executor, object);
        if self.residents.copy_dropped(executor, object) {
            return;
        }
        if self.work.catalog.drop_replica(executor, object) {
            self.exchange.touch_export(&self.work, &self.intermediates, object);
            self.schedule.ready.queue.replica_dropped(&self.work.catalog, executor, object);
        }
    }
}
