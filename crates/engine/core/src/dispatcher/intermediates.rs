//! Files that stay on the nodes: who makes them, who still reads them, and when they may be dropped.
//!
//! A location `run:NAME` is a file of its run (`Zhang12` §V): a task makes the file, and it lives in caches
//! and never goes home. Under which text the catalog knows it: [`eyas_terms::location`].
//!
//! The life of such a file: *expected* (nobody has made it yet; readers wait) → *made* (its maker is done,
//! and there is at least one replica, which the maker's node does not evict) → *dropped* (no task will read
//! it: all readers have ended and the run is committed). When the last replica goes while somebody still
//! reads the file, the file is *lost* and its maker runs again (`revivals`). A task may *promise* a file that
//! a task which its program adds will make (`promises`). Before a node leaves, the files that only it holds
//! are copied to others (`rescue`).
//!
//! Invariants, checked by [`Intermediates::check`]:
//!   1. `n_readers` is the number of tasks that read the file and have not ended (of this dispatcher; `exchange` has
//!      the others);
//!   2. a file that is made and read by somebody has a replica, or its maker is not done.
//!
//! Not here: which node keeps a replica (the executor keeps what its tasks made until it is asked to drop
//! it).

use super::{Dispatcher, End, Waits, Workload};
use crate::collective::CollectiveEvent;
use crate::event::{Action, HeldObject};
use eyas_terms::location::CatalogLocation;
use eyas_terms::{ArrayId, ExecutorId, ObjectId, RunId, TaskId, Timestamp};
use eyas_text::shown;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one file that stays on the nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Intermediate {
    /// `None` until the task that makes it is submitted.
    pub maker: Option<TaskId>,
    /// Tasks of this dispatcher that read the file and have not ended.
    pub n_readers: u32,
    /// Other dispatchers of the group whose tasks read the file.
    pub n_foreign: u32,
    /// The holders were asked to drop the file, as no task would read it.
    pub dropped: bool,
}

impl Intermediate {
    pub(super) fn is_read(&self) -> bool {
        self.n_readers > 0 || self.n_foreign > 0
    }
}

/// All files that stay on the nodes, and the tasks that wait for a file without a maker.
#[derive(Default)]
pub(super) struct Intermediates {
    pub files: FxHashMap<ObjectId, Intermediate>,
    /// The tasks that promised a file, in the order in which they did.
    pub promises: BTreeMap<ObjectId, Vec<TaskId>>,
    /// Readers of files whose maker is not known yet.
    pub orphans: BTreeMap<ObjectId, Vec<TaskId>>,
    /// How often a task ran again for lost files.
    pub revivals: BTreeMap<TaskId, u32>,
    /// Ready tasks that found all holders of an input silent, by one such holder.
    pub parked: BTreeMap<ExecutorId, Vec<TaskId>>,
    /// Tasks that found an input nowhere although it should exist, with the time until which they rest.
    pub resting: BTreeSet<(Timestamp, TaskId)>,
    /// How often files were dropped from caches because no task will read them any more.
    pub n_room_made: u64,
}

impl Intermediates {
    /// Whether a run that is known has anything to do with the file.
    pub(super) fn mentions(&self, object: ObjectId) -> bool {
        self.files.contains_key(&object)
            || self.orphans.contains_key(&object)
            || self.promises.contains_key(&object)
    }

    /// Whether a task of this dispatcher makes the file, or has promised it.
    pub(super) fn is_made_here(&self, object: ObjectId) -> bool {
        let has_maker = self.files.get(&object).is_some_and(|file| file.maker.is_some());
        has_maker || self.promises.contains_key(&object)
    }

    pub(super) fn has(&self, object: ObjectId) -> bool {
        !self.files.is_empty() && self.files.contains_key(&object)
    }

    /// The files among the inputs of `task` that stay on the nodes, each once.
    pub(super) fn files_read(&self, work: &mut Workload, task: TaskId) -> Vec<ObjectId> {
        let (array, i) = work.tasks.locate(task);
        if !work.tasks.arrays[array.0 as usize].reads_run {
            return vec![];
        }
        let array = work.tasks.arrays[array.0 as usize].array.clone();
        let mut objects = work.inputs_of(work.tasks.run_of(task), &array, i);
        objects.retain(|object| self.files.contains_key(object));
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// The files that `task` makes and that stay on the nodes.
    pub(super) fn files_made(&self, work: &mut Workload, task: TaskId) -> Vec<ObjectId> {
        let (array, i) = work.tasks.locate(task);
        if !work.tasks.arrays[array.0 as usize].writes_run {
            return vec![];
        }
        let array = work.tasks.arrays[array.0 as usize].array.clone();
        let mut objects = work.outputs_of(work.tasks.run_of(task), &array, i);
        objects.retain(|object| self.files.contains_key(object));
        objects
    }

    /// Notes that `task` makes the file at `location`. `Err`: the other task that makes it.
    pub(super) fn learn_maker(
        &mut self,
        work: &mut Workload,
        waits: &mut Waits,
        task: TaskId,
        location: CatalogLocation<'_>,
    ) -> Result<(), TaskId> {
        let object = work.catalog.intern(location);
        let file = self.files.entry(object).or_default();
        match file.maker {
            Some(other) => return Err(other),
            None => file.maker = Some(task),
        }
        // The readers of a file whose maker is only being added wait on: the submission may be given up.
        if work.runs[&work.tasks.run_of(task)].into.is_none() {
            for reader in self.orphans.remove(&object).unwrap_or_default() {
                waits.subscribers.entry(task).or_default().push(reader);
            }
        }
        Ok(())
    }

    /// Counts `task` among the readers of a file; gives the maker that the task has to wait for. `Err`: the
    /// maker has failed.
    ///
    /// If the file's maker is not known yet, the task waits for the file under its name; `n_orphaned` counts
    /// such files. An import was dealt with before and is only counted here.
    pub(super) fn read(
        &mut self,
        work: &Workload,
        task: TaskId,
        object: ObjectId,
        is_import: bool,
        n_orphaned: &mut u32,
    ) -> Result<Option<TaskId>, String> {
        let file = self.files.entry(object).or_default();
        file.n_readers += 1;
        file.dropped = false;
        if is_import {
            return Ok(None);
        }
        let maker = file.maker;
        let is_known = |maker: &TaskId| !self.promises.contains_key(&object) || !work.is_being_added(*maker);
        let Some(maker) = maker.filter(is_known) else {
            self.orphans.entry(object).or_default().push(task);
            *n_orphaned += 1;
            return Ok(None);
        };
        match work.tasks.end_of(maker) {
            End::Not => Ok(Some(maker)),
            // Whether the file still exists is checked when the task is given out.
            End::Done => Ok(None),
            end => Err(work.tasks.maker_failed(maker, end == End::Cancelled)),
        }
    }

    /// Forgets the files that `task`, of a submission that was given up, would have made.
    pub(super) fn forget_made(&mut self, work: &mut Workload, task: TaskId) {
        for object in self.files_made(work, task) {
            // The file may have another maker, in the run that this task was to be added to.
            let file = self.files.get_mut(&object).expect("it was filtered by being there");
            match file.maker == Some(task) {
                // Readers of a promised file go on waiting.
                true if file.is_read() => file.maker = None,
                true => _ = self.files.remove(&object),
                false => {}
            }
        }
    }

    /// Panics when an invariant of the module's header is broken. For tests.
    pub(super) fn check(&self, work: &Workload) {
        let mut n_readers: FxHashMap<ObjectId, u32> = FxHashMap::default();
        for a in work
            .tasks
            .arrays
            .iter()
            .filter(|a| a.reads_run && work.runs.get(&a.run).is_some_and(|r| r.started))
        {
            for i in (0..a.array.n_tasks).filter(|i| a.ends.get(*i) == End::Not) {
                let mut text = String::new();
                let mut objects = vec![];
                for (_, pattern) in &a.array.template.inputs {
                    let object =
                        work.catalog.find(work.location_into(a.run, &a.array, pattern, i, &mut text));
                    objects.extend(object.filter(|o| self.files.contains_key(o)));
                }
                objects.sort_unstable();
                objects.dedup();
                objects.iter().for_each(|o| *n_readers.entry(*o).or_default() += 1);
            }
        }
        for (object, file) in &self.files {
            let n = n_readers.get(object).copied().unwrap_or(0);
            assert_eq!(file.n_readers, n, "readers of {}", work.catalog.location(*object));
        }
    }
}

impl Workload {
    /// Whether `task` belongs to a submission into a run that is not committed and may still be given up.
    fn is_being_added(&self, task: TaskId) -> bool {
        self.runs.get(&self.tasks.run_of(task)).is_some_and(|run| run.into.is_some())
    }

    pub(super) fn nobody_makes(&self, object: ObjectId) -> String {
        let location = self.catalog.location(object).written().text();
        format!("no task of the run makes its input {}", shown(&location))
    }
}

impl Dispatcher {
    /// No more tasks come to `run` with `arrays`, its own or those added: files without a maker will never be
    /// made, and files that no task reads may be dropped.
    pub(super) fn settle_intermediates(
        &mut self,
        now: Timestamp,
        run: RunId,
        arrays: &[ArrayId],
        out: &mut Vec<Action>,
    ) {
        let orphans = std::mem::take(&mut self.intermediates.orphans);
        let (of_run, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            orphans.into_iter().partition(|(object, readers)| {
                self.work.tasks.run_of(readers[0]) == run
                    && self.intermediates.find_promise(&self.work, *object) != Some(Ok(()))
            });
        self.intermediates.orphans = others;
        for (object, readers) in of_run {
            let message = match self.intermediates.find_promise(&self.work, object) {
                Some(Err(by)) => self.work.broken_promise(object, by),
                _ => self.work.nobody_makes(object),
            };
            for (reader, outcome) in self.waits.end_orphans(&mut self.work, readers, &message, false) {
                self.end_task(now, reader, outcome, out);
            }
        }
        self.drop_all_unread(run, arrays, out);
    }

    /// Drops the files that tasks of `arrays`, of `run`, made and that no task will read.
    pub(super) fn drop_all_unread(&mut self, run: RunId, arrays: &[ArrayId], out: &mut Vec<Action>) {
        let state = &self.work.runs[&run];
        if state.keep || !state.committed {
            return;
        }
        let mut unread = vec![];
        for id in arrays {
            let a = &self.work.tasks.arrays[id.0 as usize];
            if !a.writes_run {
                continue;
            }
            let (base, array) = (a.base, a.array.clone());
            for i in 0..array.n_tasks {
                if self.work.tasks.arrays[id.0 as usize].ends.get(i) != End::Not {
                    unread
                        .extend(self.intermediates.files_made(&mut self.work, TaskId(base.0 + u64::from(i))));
                }
            }
        }
        self.drop_unread(&unread, out);
    }

    /// `task` has ended: it no longer reads its inputs, and its files are needed only by their readers.
    pub(super) fn ended_with_intermediates(
        &mut self,
        task: TaskId,
        made: &[ObjectId],
        out: &mut Vec<Action>,
    ) {
        let mut unread = self.intermediates.files_read(&mut self.work, task);
        for object in &unread {
            let file = self.intermediates.files.get_mut(object).expect("it was filtered by being there");
            file.n_readers = file.n_readers.saturating_sub(1);
        }
        unread.extend(made);
        self.drop_unread(&unread, out);
    }

    /// Notes what a (re)joining executor holds, and what its attempts make. The executor may have missed that
    /// a file is to be dropped, and after a restart of the dispatcher it does not know the files' numbers.
    pub(super) fn on_all_held(
        &mut self,
        executor: ExecutorId,
        held: &[HeldObject],
        made: Vec<ObjectId>,
        out: &mut Vec<Action>,
    ) {
        let (mut named, mut useless) = (made, vec![]);
        named.retain(|object| self.intermediates.has(*object));
        for held in held {
            self.on_held(executor, held, &mut named, &mut useless);
        }
        if named.is_empty() {
            return;
        }
        named.sort_unstable();
        named.dedup();
        out.push(Action::NameObjects { executor, objects: named.clone() });
        if !useless.is_empty() {
            out.push(Action::DropReplicas { executor, objects: useless });
        }
        self.drop_unread(&named, out);
    }

    /// Drops the files among `objects` that no task will read.
    pub(super) fn drop_unread(&mut self, objects: &[ObjectId], out: &mut Vec<Action>) {
        let mut drops: BTreeMap<ExecutorId, Vec<ObjectId>> = BTreeMap::new();
        for object in objects {
            let Some(Intermediate { maker, n_readers: 0, n_foreign: 0, .. }) =
                self.intermediates.files.get(object)
            else {
                continue;
            };
            let maker = *maker;
            // A file without a maker here is made by another dispatcher; the files here are copies.
            let Some(run) = maker
                .map(|m| self.work.tasks.run_of(m))
                .or_else(|| self.exchange.run_of_import(&self.work, &self.intermediates, *object))
            else {
                continue;
            };
            let is_made = maker.is_none_or(|maker| self.work.tasks.end_of(maker) != End::Not);
            let run = self.work.run_mut(run);
            let linked = run.linked.as_ref().filter(|_| maker.is_some());
            let remembers = linked.is_some_and(|linked| linked.remembers_unread());
            let is_settled = remembers || linked.is_none_or(|linked| linked.is_settled());
            if !run.committed || !is_settled || run.keep || !is_made {
                continue;
            }
            if run.additions.n_open > 0 || remembers {
                // A task that is being submitted, or that is not known to all dispatchers yet, may read the
                // file.
                run.additions.unread.push(*object);
                continue;
            }
            self.intermediates.files.entry(*object).or_default().dropped = true;
            self.exchange.forget_lent(&self.work, &self.intermediates, *object);
            if let Some(maker) = maker {
                self.reruns.cancel(maker);
            }
            if self.moves.collectives.n_live() > 0 {
                self.moves.pending.push(CollectiveEvent::ObjectGone { object: *object });
            }
            for holder in self.work.catalog.holders_of(*object).collect::<Vec<_>>() {
                if maker.is_none() && self.exchange.was_brought(holder, *object) {
                    continue; // readers of other dispatchers may fetch it there
                }
                self.drop_replica(holder, *object);
                drops.entry(holder).or_default().push(*object);
            }
        }
        self.intermediates.n_room_made += u64::from(!drops.is_empty());
        for (executor, objects) in drops {
            out.push(Action::DropReplicas { executor, objects });
        }
    }
}
