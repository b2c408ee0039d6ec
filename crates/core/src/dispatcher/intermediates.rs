//! Files that stay on the nodes: who makes them, who still reads them, and what happens when one is lost.
//!
//! A location `run:NAME` is a file of its run (`Zhang12` §V): a task makes the file, and it lives in caches
//! and never goes home. Under which text the catalog knows it: [`crate::location`].
//!
//! The life of such a file: *expected* (nobody has made it yet; readers wait) → *made* (its maker is done,
//! and there is at least one replica, which the maker's node does not evict) → *dropped* (no task will read
//! it: all readers have ended and the run is committed). When the last replica goes while somebody still
//! reads the file, the file is *lost* and its maker runs again. The maker then reads its own inputs once
//! more, so of its ancestors only those run again whose files were dropped or lost, too.
//!
//! A task may *promise* a file that a task which its program adds will make. Readers wait for such a file
//! without a maker, as `orphans`. When the promising task has ended and nothing is being added any more, the
//! readers fail. A promise may be handed on: an added task may promise the file again. So nobody waits for
//! ever: a promise is over when its task ends.
//!
//! Invariants, checked by [`Dispatcher::check_intermediates`]:
//!   1. `n_readers` is the number of tasks that read the file and have not ended (of this dispatcher; `exchange` has
//!      the others);
//!   2. a file that is made and read by somebody has a replica, or its maker is not done.
//!
//! Why revivals come to an end: each task runs again at most [`REVIVALS_MAX`] times for lost files. After
//! that it fails, and with it the tasks that wait for it.
//!
//! Not here: which node keeps a replica (the executor keeps what its tasks made until it is asked to drop
//! it).

use super::attempts::{SICK_NS, SICK_NS_MAX};
use super::*;
use eyas_text::shown;

/// How often a task may run again because a file that it had made was lost.
pub const REVIVALS_MAX: u32 = 8;
/// Attempts of a task that runs again are numbered from a multiple of this number, because the attempt
/// numbers of its earlier runs are not kept.
const REVIVAL_ATTEMPTS: u32 = 1 << 16;

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

/// How long a leaving executor waits for other nodes to copy the files that only it holds.
const RESCUE_NS_MAX: u64 = 60_000_000_000;

/// An executor that was told to leave.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub since: Timestamp,
    /// Files that other nodes were asked to copy.
    pub copies_asked: BTreeSet<ObjectId>,
}

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
    fn is_read(&self) -> bool {
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

    pub(super) fn is_intermediate(&self, object: ObjectId) -> bool {
        !self.files.is_empty() && self.files.contains_key(&object)
    }
}

impl Dispatcher {
    /// The files among the inputs of `task` that stay on the nodes, each once.
    pub(super) fn files_read(&mut self, task: TaskId) -> Vec<ObjectId> {
        let (array, i) = self.tasks.locate(task);
        if !self.tasks.arrays[array.0 as usize].reads_run {
            return vec![];
        }
        let array = self.tasks.arrays[array.0 as usize].array.clone();
        let mut objects = self.inputs_of(self.tasks.run_of(task), &array, i);
        objects.retain(|object| self.intermediates.files.contains_key(object));
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// The files that `task` makes and that stay on the nodes.
    pub(super) fn files_made(&mut self, task: TaskId) -> Vec<ObjectId> {
        let (array, i) = self.tasks.locate(task);
        if !self.tasks.arrays[array.0 as usize].writes_run {
            return vec![];
        }
        let array = self.tasks.arrays[array.0 as usize].array.clone();
        let mut objects = self.outputs_of(self.tasks.run_of(task), &array, i);
        objects.retain(|object| self.intermediates.files.contains_key(object));
        objects
    }

    /// Notes that `task` makes the file at `location`. `Err`: the other task that makes it.
    pub(super) fn learn_intermediate(
        &mut self,
        task: TaskId,
        location: CatalogLocation<'_>,
    ) -> Result<(), TaskId> {
        let object = self.catalog.intern(location);
        let file = self.intermediates.files.entry(object).or_default();
        match file.maker {
            Some(other) => return Err(other),
            None => file.maker = Some(task),
        }
        // The readers of a file whose maker is only being added wait on: the submission may be given up.
        if self.runs[&self.tasks.run_of(task)].into.is_none() {
            for reader in self.intermediates.orphans.remove(&object).unwrap_or_default() {
                self.waits.subscribers.entry(task).or_default().push(reader);
            }
        }
        Ok(())
    }

    /// The readers of a promised file, whose maker has now been added, wait for that maker. After a restart
    /// the maker may have ended.
    fn adopt_orphans(&mut self, now: Timestamp, object: ObjectId, out: &mut Vec<Action>) {
        let Some(maker) = self.intermediates.files.get(&object).and_then(|file| file.maker) else { return };
        for reader in self.intermediates.orphans.remove(&object).unwrap_or_default() {
            let end = self.tasks.end_of(maker);
            let Some(n_missing) = self.waits.n_missing.get_mut(&reader) else { continue };
            match end {
                End::Not => self.waits.subscribers.entry(maker).or_default().push(reader),
                End::Done => {
                    *n_missing -= 1;
                    if *n_missing == 0 {
                        self.waits.n_missing.remove(&reader);
                        self.run_mut(self.tasks.run_of(reader)).n_waiting -= 1;
                        self.requeue(now, reader);
                    }
                }
                end => {
                    let cancelled = end == End::Cancelled;
                    let message = self.tasks.maker_failed(maker, cancelled);
                    for (reader, outcome) in self.end_orphans(vec![reader], &message, cancelled) {
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
            let a = &self.tasks.arrays[id.0 as usize];
            let (base, n) = (a.base, if a.writes_run { a.array.n_tasks } else { 0 });
            for i in 0..n {
                let made = self.files_made(TaskId(base.0 + u64::from(i)));
                made.into_iter().for_each(|object| self.adopt_orphans(now, object, out));
            }
        }
    }

    // ------------------------------------------------------------ promises

    /// The files that `task` has promised.
    fn files_promised(&mut self, task: TaskId) -> Vec<ObjectId> {
        let (array, _) = self.tasks.locate(task);
        let array = self.tasks.arrays[array.0 as usize].array.clone();
        let scope = self.scope_of(self.tasks.run_of(task)).clone();
        let scoped = |promised: &String| self.catalog.intern(scope.put_into(&mut promised.clone()));
        array.template.promises.iter().map(scoped).collect()
    }

    /// Notes what `task` promises. `Err`: a sentence, if another task of its submission promises the same or
    /// some task writes it.
    pub(super) fn learn_promises(&mut self, task: TaskId) -> Result<(), String> {
        let run = self.tasks.run_of(task);
        for object in self.files_promised(task) {
            let maker = self.intermediates.files.get(&object).and_then(|file| file.maker);
            let holders = self.intermediates.promises.entry(object).or_default();
            let same = holders.iter().find(|other| {
                let at = self.tasks.bases.partition_point(|base| base <= *other) - 1;
                self.tasks.arrays[at].run == run
            });
            let (other, does) = match (same.copied(), maker) {
                (_, Some(maker)) => (maker, "writes"),
                (Some(other), None) => (other, "promises, too"),
                (None, None) => {
                    holders.push(task);
                    continue;
                }
            };
            let (id, other) = (self.tasks.user_id(task), self.tasks.user_id(other));
            let location = self.catalog.location(object).written().text();
            return Err(promise_refused(&id, &location, &other, does));
        }
        Ok(())
    }

    /// Whether `task` belongs to a submission into a run that is not committed and may still be given up.
    fn is_being_added(&self, task: TaskId) -> bool {
        self.runs.get(&self.tasks.run_of(task)).is_some_and(|run| run.into.is_some())
    }

    /// Forgets the promises of `task`, whose submission was given up.
    pub(super) fn forget_promises(&mut self, task: TaskId) {
        for object in self.files_promised(task) {
            if let Some(holders) = self.intermediates.promises.get_mut(&object) {
                holders.retain(|holder| *holder != task);
                if holders.is_empty() {
                    self.intermediates.promises.remove(&object);
                }
            }
        }
    }

    /// Whether a task that makes the file may still be added: `Ok` if so. `Err`: the task that promised it
    /// last; all that promised it have ended. `None`: no task promised it.
    pub(super) fn find_promise(&self, object: ObjectId) -> Option<Result<(), TaskId>> {
        let last = *self.intermediates.promises.get(&object)?.last()?;
        let holders = &self.intermediates.promises[&object];
        let of = self.tasks.run_of(last);
        // After a restart, the promising task may be of a submission that is not part of its run yet.
        let whole = self.runs.get(&of).and_then(|run| run.into).unwrap_or(of);
        let is_adding = self.runs.get(&whole).is_some_and(|run| run.additions.n_open > 0);
        let is_open = is_adding || holders.iter().any(|holder| self.tasks.end_of(*holder) == End::Not);
        Some(if is_open { Ok(()) } else { Err(last) })
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

    /// `task` has ended. The files that it promised and that have no maker will not be made, unless another
    /// task promises them. Gives the readers that end with this.
    pub(super) fn end_promises_of(&mut self, task: TaskId) -> Vec<(TaskId, Outcome)> {
        let (array, _) = self.tasks.locate(task);
        if self.tasks.arrays[array.0 as usize].array.template.promises.is_empty() {
            return vec![];
        }
        let promised = self.files_promised(task);
        self.end_promises(&promised)
    }

    /// No submission into `run` is open any more, so promised files without a maker may never be made.
    pub(super) fn end_promises_to(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let of_run = |holders: &Vec<TaskId>| holders.iter().any(|holder| self.tasks.run_of(*holder) == run);
        let promised: Vec<ObjectId> =
            self.intermediates.promises.iter().filter(|(_, h)| of_run(h)).map(|(o, _)| *o).collect();
        for (reader, outcome) in self.end_promises(&promised) {
            self.end_task(now, reader, outcome, out);
        }
    }

    fn end_promises(&mut self, promised: &[ObjectId]) -> Vec<(TaskId, Outcome)> {
        let mut ends = vec![];
        for object in promised.iter().copied() {
            let Some(Err(by)) = self.find_promise(object) else { continue };
            if self.intermediates.files.get(&object).is_some_and(|file| file.maker.is_some()) {
                continue;
            }
            self.exchange.touch_promised(self.tasks.run_of(by), object);
            let readers = self.intermediates.orphans.remove(&object).unwrap_or_default();
            let message = self.broken_promise(object, by);
            let cancelled = self.tasks.end_of(by) == End::Cancelled;
            ends.extend(self.end_orphans(readers, &message, cancelled));
        }
        ends
    }

    /// Takes `readers` out of the waiting tasks, as nobody will make their input. Gives how they end.
    fn end_orphans(
        &mut self,
        readers: Vec<TaskId>,
        message: &str,
        cancelled: bool,
    ) -> Vec<(TaskId, Outcome)> {
        let mut ends = vec![];
        for task in readers {
            if self.waits.n_missing.remove(&task).is_none() {
                continue;
            }
            self.run_mut(self.tasks.run_of(task)).n_waiting -= 1;
            let failure = Failure { kind: FailureKind::InputUnavailable, message: message.into() };
            ends.push((task, if cancelled { Outcome::Cancelled } else { Outcome::Failed(failure) }));
        }
        ends
    }

    /// Counts `task` among the readers of a file; gives the maker that the task has to wait for. `Err`: the
    /// maker has failed.
    ///
    /// If the file's maker is not known yet, the task waits for the file under its name; `n_orphaned` counts
    /// such files. An import was dealt with before and is only counted here.
    pub(super) fn read_intermediate(
        &mut self,
        task: TaskId,
        object: ObjectId,
        is_import: bool,
        n_orphaned: &mut u32,
    ) -> Result<Option<TaskId>, String> {
        let file = self.intermediates.files.entry(object).or_default();
        file.n_readers += 1;
        file.dropped = false;
        if is_import {
            return Ok(None);
        }
        let maker = file.maker;
        let is_known = |maker: &TaskId| {
            !self.intermediates.promises.contains_key(&object) || !self.is_being_added(*maker)
        };
        let Some(maker) = maker.filter(is_known) else {
            self.intermediates.orphans.entry(object).or_default().push(task);
            *n_orphaned += 1;
            return Ok(None);
        };
        match self.tasks.end_of(maker) {
            End::Not => Ok(Some(maker)),
            // Whether the file still exists is checked when the task is given out.
            End::Done => Ok(None),
            end => Err(self.tasks.maker_failed(maker, end == End::Cancelled)),
        }
    }

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
                self.tasks.run_of(readers[0]) == run && self.find_promise(*object) != Some(Ok(()))
            });
        self.intermediates.orphans = others;
        for (object, readers) in of_run {
            let message = match self.find_promise(object) {
                Some(Err(by)) => self.broken_promise(object, by),
                _ => self.nobody_makes(object),
            };
            for (reader, outcome) in self.end_orphans(readers, &message, false) {
                self.end_task(now, reader, outcome, out);
            }
        }
        self.drop_all_unread(run, arrays, out);
    }

    pub(super) fn nobody_makes(&self, object: ObjectId) -> String {
        let location = self.catalog.location(object).written().text();
        format!("no task of the run makes its input {}", shown(&location))
    }

    /// Drops the files that tasks of `arrays`, of `run`, made and that no task will read.
    pub(super) fn drop_all_unread(&mut self, run: RunId, arrays: &[ArrayId], out: &mut Vec<Action>) {
        let state = &self.runs[&run];
        if state.keep || !state.committed {
            return;
        }
        let mut unread = vec![];
        for id in arrays {
            let a = &self.tasks.arrays[id.0 as usize];
            if !a.writes_run {
                continue;
            }
            let (base, array) = (a.base, a.array.clone());
            for i in 0..array.n_tasks {
                if self.tasks.arrays[id.0 as usize].ends.get(i) == End::Done {
                    unread.extend(self.files_made(TaskId(base.0 + u64::from(i))));
                }
            }
        }
        self.drop_unread(&unread, out);
    }

    /// Forgets the files that `task`, of a submission that was given up, would have made.
    pub(super) fn forget_intermediates(&mut self, task: TaskId) {
        for object in self.files_made(task) {
            // The file may have another maker, in the run that this task was to be added to.
            let file = self.intermediates.files.get_mut(&object).expect("it was filtered by being there");
            match file.maker == Some(task) {
                // Readers of a promised file go on waiting.
                true if file.is_read() => file.maker = None,
                true => _ = self.intermediates.files.remove(&object),
                false => {}
            }
        }
    }

    /// `task` has ended: it no longer reads its inputs, and its files are needed only by their readers.
    pub(super) fn ended_with_intermediates(
        &mut self,
        task: TaskId,
        made: &[ObjectId],
        out: &mut Vec<Action>,
    ) {
        let mut unread = self.files_read(task);
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
        held: &[Held],
        made: Vec<ObjectId>,
        out: &mut Vec<Action>,
    ) {
        let (mut named, mut useless) = (made, vec![]);
        named.retain(|object| self.intermediates.is_intermediate(*object));
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
            let Some(run) = maker.map(|m| self.tasks.run_of(m)).or_else(|| self.run_of_import(*object))
            else {
                continue;
            };
            let is_made = maker.is_none_or(|maker| self.tasks.end_of(maker) != End::Not);
            let run = self.run_mut(run);
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
            self.forget_lent(*object);
            if let Some(maker) = maker {
                self.reruns.cancel(maker);
            }
            if self.moves.collectives.n_live() > 0 {
                self.moves.pending.push(CollectiveEvent::ObjectGone { object: *object });
            }
            for holder in self.catalog.holders_of(*object).collect::<Vec<_>>() {
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

    /// Holders have dropped replicas of `objects`. Where the last replica of a file that some task still
    /// reads is gone, the file's maker runs again.
    pub(super) fn check_lost(&mut self, now: Timestamp, objects: &[ObjectId], out: &mut Vec<Action>) {
        if self.intermediates.files.is_empty() || self.attempts.hold_until.is_some() {
            return;
        }
        for object in objects {
            if let Some(file @ Intermediate { maker: Some(maker), .. }) = self.intermediates.files.get(object)
                && file.is_read()
                && self.catalog.n_holders(*object) == 0
                && !self.exchange.is_lent(*object)
                && self.tasks.end_of(*maker) == End::Done
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
        for object in self.files_read(task) {
            let maker = self.intermediates.files[&object].maker;
            let Some(maker) = maker.filter(|maker| *maker != task) else { continue };
            if self.tasks.end_of(maker) == End::Done {
                let heard =
                    |e: ExecutorId| self.executors.by_id.get(&e).is_some_and(|e| e.silent_since.is_none());
                if self.catalog.holders_of(object).any(heard) || self.exchange.is_lent(object) {
                    continue;
                }
                if let Some(silent) = self.catalog.holders_of(object).next() {
                    return Some(Missing::Silent(silent));
                }
                self.revive(now, maker, object, out);
            }
            // While the maker runs again, a replica on some node may come from an attempt that has yet to end
            // well.
            match self.tasks.end_of(maker) {
                End::Not if !makers.contains(&maker) => makers.push(maker),
                End::Not => {}
                end => return Some(Missing::Never(self.tasks.maker_failed(maker, end == End::Cancelled))),
            }
        }
        if !self.intermediates.revivals.is_empty() {
            // A task that runs again for a lost file also makes its results at home anew. Until the new
            // results are at home, a cached copy may differ from them.
            let (array, i) = self.tasks.locate(task);
            let array = self.tasks.arrays[array.0 as usize].array.clone();
            for object in self.inputs_of(self.tasks.run_of(task), &array, i) {
                if let Some(maker) = self.attempts.making.get(&object).copied()
                    && maker != task
                    && self.intermediates.revivals.contains_key(&maker)
                    && !makers.contains(&maker)
                {
                    makers.push(maker);
                }
            }
        }
        let imports = match self.missing_imports(task) {
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
        self.take_ready(task);
        let run = self.tasks.run_of(task);
        match missing {
            Missing::Never(message) => {
                let failure = Failure { kind: FailureKind::InputUnavailable, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
            }
            Missing::Silent(holder) => {
                self.intermediates.parked.entry(holder).or_default().push(task);
                self.waits.n_missing.insert(task, 1);
                self.run_mut(run).n_waiting += 1;
            }
            Missing::Makers(makers, imports) => {
                self.waits.n_missing.insert(task, (makers.len() + imports.len()) as u32);
                self.run_mut(run).n_waiting += 1;
                for object in imports {
                    self.await_import(task, object);
                }
                for maker in makers {
                    self.waits.subscribers.entry(maker).or_default().push(task);
                }
            }
        }
    }

    /// No holder had an input of `task`, for the `n`th time (at least the second). It takes a while until a
    /// lost holder is known to be lost, and trying again at once would use up the task's attempts. So the
    /// task rests, longer each time.
    pub(super) fn rest(&mut self, now: Timestamp, task: TaskId, n: u32) {
        let until = now.plus_ns((SICK_NS << n.min(6)).min(SICK_NS_MAX) / 2);
        self.intermediates.resting.insert((until, task));
        self.waits.n_missing.insert(task, 1);
        self.run_mut(self.tasks.run_of(task)).n_waiting += 1;
    }

    /// Queues tasks again whose rest is over.
    pub(super) fn unrest(&mut self, now: Timestamp) {
        while let Some(&(until, task)) = self.intermediates.resting.first()
            && until <= now
        {
            self.intermediates.resting.pop_first();
            if self.waits.n_missing.remove(&task).is_some() {
                self.run_mut(self.tasks.run_of(task)).n_waiting -= 1;
                self.requeue(now, task);
            }
        }
    }

    /// An executor is heard again or was given up: the tasks that waited for that are queued again.
    pub(super) fn unpark(&mut self, now: Timestamp, executor: ExecutorId) {
        for task in self.intermediates.parked.remove(&executor).unwrap_or_default() {
            if self.waits.n_missing.remove(&task).is_some() {
                let run = self.tasks.run_of(task);
                self.run_mut(run).n_waiting -= 1;
                self.requeue(now, task);
            }
        }
    }

    /// Whether `object` would be lost with `executor`: the file stays on the nodes, is still wanted, and no
    /// executor that stays has it.
    fn is_only_on(&self, executor: ExecutorId, object: ObjectId) -> bool {
        let Some(Intermediate { maker: Some(maker), n_readers, .. }) = self.intermediates.files.get(&object)
        else {
            return false;
        };
        let is_kept =
            || self.runs.get(&self.tasks.run_of(*maker)).is_some_and(|run| run.keep && run.ended.is_none());
        let stays =
            |e: ExecutorId| e != executor && self.executors.by_id.get(&e).is_some_and(|e| e.is_connected());
        self.tasks.end_of(*maker) == End::Done
            && (*n_readers > 0 || is_kept())
            && self.catalog.holds(executor, object)
            && !self.catalog.holders_of(object).any(stays)
    }

    /// Has files that only a leaving executor holds copied to nodes that stay and have room. A copy there is
    /// an ordinary cache entry. Where no node has room, or the copy is evicted, the file's maker runs again.
    pub(super) fn rescue(&mut self, now: Timestamp, executor: ExecutorId) {
        if self.intermediates.files.is_empty() {
            return;
        }
        let Some(Leaving { copies_asked, .. }) =
            self.executors.by_id.get(&executor).and_then(|e| e.leaving.as_ref())
        else {
            return;
        };
        let mut sole = self.catalog.objects_on(executor);
        sole.retain(|object| !copies_asked.contains(object) && self.is_only_on(executor, *object));
        // Bytes sent to each node; the node that was sent least is next.
        let mut nodes = self.executors.receivers_of_rescue();
        let mut wanted: BTreeMap<ExecutorId, Vec<ObjectId>> = BTreeMap::new();
        for &object in &sole {
            let size_bytes = self.catalog.size_bytes(object).unwrap_or(0);
            let fits = |(_, (sent, room)): &(&ExecutorId, &mut (u64, u64))| *sent + size_bytes <= *room;
            let Some((target, (sent, _))) =
                nodes.iter_mut().filter(fits).min_by_key(|(id, (sent, _))| (*sent, **id))
            else {
                continue;
            };
            *sent += size_bytes;
            wanted.entry(*target).or_default().push(object);
        }
        for (target, objects) in wanted {
            if let Some(leaving) = self.executors.by_id.get_mut(&executor).and_then(|e| e.leaving.as_mut()) {
                leaving.copies_asked.extend(&objects);
            }
            self.copy_to(now, target, &objects);
        }
    }

    /// Whether a leaving executor may end: it has no attempt, and the copies that other nodes were asked for
    /// exist or have taken too long.
    pub fn may_leave(&self, now: Timestamp, executor: ExecutorId) -> bool {
        let Some(e) = self.executors.by_id.get(&executor) else { return true };
        let waits = |leaving: &Leaving| {
            now.since_ns(leaving.since) < RESCUE_NS_MAX
                && leaving.copies_asked.iter().any(|object| self.is_only_on(executor, *object))
        };
        e.assigned.is_empty() && !e.leaving.as_ref().is_some_and(waits)
    }

    /// Runs done tasks again: `task`, because `lost` is needed and no executor holds it, and those of its
    /// ancestors whose files are gone, too.
    pub(super) fn revive(&mut self, now: Timestamp, task: TaskId, lost: ObjectId, out: &mut Vec<Action>) {
        // A list, not recursion: chains of tasks may be long.
        let mut again = VecDeque::from([(task, lost)]);
        while let Some((task, lost)) = again.pop_front() {
            if self.tasks.end_of(task) != End::Done {
                continue;
            }
            self.reruns.cancel(task);
            let n = self.intermediates.revivals.entry(task).or_default();
            *n += 1;
            let n = *n;
            let (array, i) = self.tasks.locate(task);
            let run = self.tasks.run_of(task);
            self.tasks.arrays[array.0 as usize].ends.set(i, End::Not);
            let state = self.run_mut(run);
            state.n_done -= 1;
            state.begin_again();
            out.push(Action::ReviveTask { task, lost });
            for object in self.files_made(task) {
                self.forget_lent(object);
            }
            self.touch_exports_of(task);
            let n_attempts = n * REVIVAL_ATTEMPTS;
            self.attempts.histories.insert(task, History { n_attempts, ..History::default() });
            // After a restart, nothing has been requested yet from other dispatchers for tasks that had
            // ended.
            let imports = self.foreign_inputs(task);
            for object in imports.iter().filter(|o| self.catalog.location(**o).stays()) {
                self.intermediates.files.entry(*object).or_default();
            }
            let inputs = self.files_read(task);
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
                match self.read_import(task, object) {
                    Ok(waits) => n_awaited += u32::from(waits),
                    Err(message) => never = Some(message),
                }
            }
            if n > REVIVALS_MAX {
                let file = self.catalog.location(lost).written().text();
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
                if let Some(maker) =
                    maker.filter(|_| self.catalog.n_holders(object) == 0 && !self.exchange.is_lent(object))
                    && maker != task
                    && !makers.contains(&maker)
                {
                    makers.push(maker);
                    again.push_back((maker, object));
                }
            }
            let ended_badly = |m: &&TaskId| matches!(self.tasks.end_of(**m), End::Failed | End::Cancelled);
            if let Some(maker) = makers.iter().find(ended_badly) {
                let message = self.tasks.maker_failed(*maker, self.tasks.end_of(*maker) == End::Cancelled);
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
                self.requeue(now, task);
                continue;
            }
            self.waits.n_missing.insert(task, makers.len() as u32 + n_awaited);
            self.run_mut(run).n_waiting += 1;
            for maker in makers {
                self.waits.subscribers.entry(maker).or_default().push(task);
            }
        }
    }

    /// The journal, read back after a restart, says that this task had to run again.
    pub(super) fn on_task_revived(&mut self, task: TaskId) {
        let (array, i) = self.tasks.locate(task);
        if self.tasks.arrays[array.0 as usize].ends.get(i) != End::Done {
            return;
        }
        self.tasks.arrays[array.0 as usize].ends.set(i, End::Not);
        let n = self.intermediates.revivals.entry(task).or_default();
        *n += 1;
        let n_attempts = *n * REVIVAL_ATTEMPTS;
        self.attempts.histories.insert(task, History { n_attempts, ..History::default() });
        let run = self.tasks.run_of(task);
        self.run_mut(run).n_done -= 1;
    }

    /// Panics when an invariant of the module's header is broken. For tests.
    pub(super) fn check_intermediates(&self) {
        let mut n_readers: FxHashMap<ObjectId, u32> = FxHashMap::default();
        for a in self
            .tasks
            .arrays
            .iter()
            .filter(|a| a.reads_run && self.runs.get(&a.run).is_some_and(|r| r.started))
        {
            for i in (0..a.array.n_tasks).filter(|i| a.ends.get(*i) == End::Not) {
                let mut text = String::new();
                let mut objects = vec![];
                for (_, pattern) in &a.array.template.inputs {
                    let object =
                        self.catalog.find(self.location_into(a.run, &a.array, pattern, i, &mut text));
                    objects.extend(object.filter(|o| self.intermediates.files.contains_key(o)));
                }
                objects.sort_unstable();
                objects.dedup();
                objects.iter().for_each(|o| *n_readers.entry(*o).or_default() += 1);
            }
        }
        for (object, file) in &self.intermediates.files {
            let n = n_readers.get(object).copied().unwrap_or(0);
            assert_eq!(file.n_readers, n, "readers of {}", self.catalog.location(*object));
        }
    }
}
