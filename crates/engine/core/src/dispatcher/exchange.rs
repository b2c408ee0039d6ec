//! Files that cross from one dispatcher of a group to another, and executors that change sides.
//!
//! At the *reader's* dispatcher such a file is an *import*: tasks wait for it by name, as they would for a
//! file of their own dispatcher, and fetch it from the executors that its owner names. At the *owner's*
//! dispatcher it is an *export*: each subscribed member counts as one reader. So the file stays until the
//! last member has reported that none of its tasks reads it any more, and it is made again when its last
//! replica is lost.
//!
//! The two sides are in `imports` and `exports`, the balance described below is in `balance`. What is known
//! of runs in parts, and which messages members send each other, is here.
//!
//! The messages, and why each may be sent twice: [`crate::group`].
//!
//! Invariants, checked by [`Exchange::check`]:
//!   1. an import exists while a task reads it that has not ended, and it counts these tasks;
//!   2. `n_foreign` of a file that stays on the nodes is the number of members subscribed to it.
//!
//! When a file may be dropped: no task reads it here or elsewhere, and every member has reported that it
//! knows all tasks of its part (it is *settled*). After a restart no member counts as settled until it
//! reports again, so none of this has to be in a journal.
//!
//! Why makers of imports are not looked for in other runs: a run waits for the files of its own tasks. Within
//! one dispatcher a task also waits for a result that a task of another run still writes. Across dispatchers
//! that would mean asking all of them for every name.
//!
//! An executor that changes sides takes its files along. It no longer protects them from eviction, but its
//! new dispatcher does not drop them. The owner goes on naming the executor as a holder (the file is *lent*)
//! until a reader reports that the executor no longer has the file.
//!
//! Balance: an executor may be idle because no ready task of its dispatcher fits it. Then it goes to a
//! dispatcher that has more ready tasks than slots, or that has tasks too large for all its own executors (or
//! has no executor). So a task fails as too large only where no dispatcher of the group has a node for
//! it and nobody brings one.

mod balance;
mod exports;
mod imports;

use super::{
    Couriers, Dispatcher, End, Executors, Intermediates, RunState, Waits, Workload, promise_refused,
};
use crate::event::Action;
use crate::group::{
    FileState, KnownFiles, LinkMessage, MemberLoad, Membership, RunLinks, SharedFile, owner_of,
};
use crate::pattern::RunPatterns;
use eyas_terms::array::TaskArray;
use eyas_terms::location::{CatalogLocation, Location};
use eyas_terms::needs::Size;
use eyas_terms::{ArrayId, ExecutorId, MemberId, ObjectId, RunId, TaskId, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

type Key = (RunId, ObjectId);

/// A file that tasks here read and a task of another dispatcher makes.
#[derive(Debug)]
struct Import {
    owner: MemberId,
    state: FileState,
    /// Tasks here that read the file and have not ended.
    n_readers: u32,
    /// Tasks here that wait for the file.
    waiters: Vec<TaskId>,
}

/// A file that is made here and read elsewhere.
#[derive(Debug, Default)]
struct Export {
    /// The members that subscribed, each with the state that was last sent on its present connection.
    last_sent: BTreeMap<MemberId, Option<FileState>>,
    /// Holders that a reader found without the file lately; they are named last.
    failed_holders: Vec<ExecutorId>,
}

/// What a dispatcher knows of the others of its group.
#[derive(Default)]
pub(super) struct Exchange {
    /// This dispatcher's place in its group; `None` where there is only one dispatcher.
    pub(super) group: Option<Membership>,
    imports: BTreeMap<Key, Import>,
    exports: BTreeMap<Key, Export>,
    /// The task that writes each file at home which other dispatchers read.
    home_makers: FxHashMap<Key, TaskId>,
    /// Exports whose state may have changed.
    dirty: BTreeSet<Key>,
    /// Messages to be sent when the present event has been dealt with.
    outbox: BTreeMap<MemberId, Vec<LinkMessage>>,
    /// Submissions that have become parts of runs in parts, each with its run.
    added: BTreeMap<RunId, RunId>,
    /// Our files, with the executors that took a copy along when they went to other dispatchers. As far as is
    /// known they still have it and can be asked for it. They do not report to us when they drop it; a reader
    /// that finds the copy gone does.
    lent: BTreeMap<ObjectId, Vec<ExecutorId>>,
    /// Copies of other dispatchers' files that executors brought here. The files' owners may count on these
    /// copies.
    brought: BTreeSet<(ExecutorId, ObjectId)>,
    /// Files that are known here for a run although no task here may have named them: other members spoke of
    /// them, or they belong to a pattern of the whole run. They are forgotten with the run.
    named: BTreeSet<Key>,
    /// The members to which our own connection is up.
    connected: BTreeSet<MemberId>,
    pub(super) loads: BTreeMap<MemberId, MemberLoad>,
    /// The sizes of executors that were sent to other dispatchers lately.
    sent: Vec<(Timestamp, Size)>,
    /// The size of the group's courier, unless no member has had it for a while.
    pub(super) courier: Option<Size>,
    /// The time since when some executor here has been idle.
    idle_since: Option<Timestamp>,
}

/// What a run knows of its other parts.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Linked {
    /// The owner of each file whose name does not determine its owner.
    imports: BTreeMap<String, MemberId>,
    exports: BTreeSet<String>,
    /// Members that may have further tasks that read our files, of the run or of a submission into it.
    unsettled: BTreeSet<(RunId, MemberId)>,
    /// Nothing of this run has been dropped yet, so unread files are not remembered one by one: when all
    /// members are settled, all files are looked at.
    has_dropped_nothing: bool,
}

impl Linked {
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Whether a file that lost its last reader has to be remembered until all members are settled.
    pub fn remembers_unread(&self) -> bool {
        !self.has_dropped_nothing && !self.is_settled()
    }

    /// Adds what a submission into the run knows; the submission has become part of the run.
    fn extend(&mut self, added: Linked) {
        self.imports.extend(added.imports);
        self.exports.extend(added.exports);
        self.unsettled.extend(added.unsettled);
    }
}

impl Exchange {
    pub(super) fn new(group: Option<Membership>) -> Exchange {
        Exchange { group, ..Exchange::default() }
    }

    pub(super) fn say(&mut self, to: MemberId, message: LinkMessage) {
        if !self.connected.contains(&to) {
            return; // all of it is sent when the connection is up
        }
        let messages = self.outbox.entry(to).or_default();
        match (messages.last_mut(), message) {
            (Some(LinkMessage::Subscribed { files }), LinkMessage::Subscribed { files: more }) => {
                files.extend(more)
            }
            (Some(LinkMessage::Unsubscribed { files }), LinkMessage::Unsubscribed { files: more }) => {
                files.extend(more)
            }
            (_, message) => messages.push(message),
        }
    }

    pub(super) fn on_member_silent(&mut self, member: MemberId) {
        self.connected.remove(&member);
        self.outbox.remove(&member);
    }

    // ------------------------------------------------------------ what is known of runs

    /// Notes the patterns of the whole run that the submission `run` is a part of.
    pub(super) fn on_run_patterns(&self, work: &mut Workload, run: RunId, patterns: RunPatterns) {
        if self.group.is_some()
            && let Some(state) = work.runs.get_mut(&run).filter(|r| !r.started)
        {
            state.patterns = Some(Box::new(patterns));
        }
    }

    pub(super) fn on_run_linked(&mut self, work: &mut Workload, run: RunId, links: RunLinks) {
        let Some(group) = self.group else { return };
        let Some(state) = work.runs.get_mut(&run).filter(|r| !r.started) else { return };
        let exports: BTreeSet<String> = links.exports.into_iter().collect();
        let is_addition = state.into.is_some();
        state.linked = Some(Box::new(Linked {
            imports: links.imports.into_iter().collect(),
            exports: exports.clone(),
            unsettled: group.others().map(|member| (run, member)).collect(),
            has_dropped_nothing: !is_addition,
        }));
        // Tasks that were in the run before may write what added tasks read.
        for location in exports.iter().filter(|_| is_addition) {
            if let Some(maker) = work.find_writer(run, location) {
                self.learn_export(work, run, maker, location);
            }
        }
    }

    /// Notes that `task` of `run` writes the file `at_home`, if other dispatchers read that file.
    pub(super) fn learn_export(&mut self, work: &mut Workload, run: RunId, task: TaskId, at_home: &str) {
        let Some(state) = work.runs.get(&run) else { return };
        if state.linked.as_ref().is_some_and(|linked| linked.exports.contains(at_home)) {
            let whole = state.into.unwrap_or(run);
            let object = work.catalog.intern(CatalogLocation::Home(at_home));
            self.home_makers.insert((whole, object), task);
        }
    }

    /// The submission `run` was given up, so its tasks no longer count as makers.
    pub(super) fn forget_exports(&mut self, work: &Workload, run: RunId) {
        let makers = &mut self.home_makers;
        makers.retain(|_, task| {
            let at = work.tasks.bases.partition_point(|base| base <= task) - 1;
            work.tasks.arrays[at].run != run
        });
    }

    /// Adds what the submission `run` knows of its parts elsewhere to `whole`, which it is part of from now
    /// on.
    pub(super) fn link_added(
        &mut self,
        work: &mut Workload,
        intermediates: &mut Intermediates,
        waits: &Waits,
        run: RunId,
        whole: RunId,
        added: Option<Box<Linked>>,
    ) {
        let Some(added) = added else { return };
        self.added.insert(run, whole);
        let promised = |location: &&String| Location::of(location).stays();
        let moved: Vec<(String, MemberId)> =
            added.imports.iter().filter(|(l, _)| promised(l)).map(|(l, owner)| (l.clone(), *owner)).collect();
        work.run_mut(whole).linked.get_or_insert_default().extend(*added);
        for (location, owner) in moved {
            self.move_owner(work, intermediates, waits, whole, location, owner);
        }
    }

    /// A task of `owner` makes (or promises again) the file at `location`, which had been promised: the tasks
    /// that wait for the file here now wait for that dispatcher.
    fn move_owner(
        &mut self,
        work: &mut Workload,
        intermediates: &mut Intermediates,
        waits: &Waits,
        run: RunId,
        location: String,
        owner: MemberId,
    ) {
        let is_here = self.group.is_some_and(|group| group.me == owner);
        let mut text = location;
        let scoped = work.scope_of(run).put_into(&mut text);
        let key = (run, work.catalog.intern(scoped));
        self.named.insert(key);
        let files = vec![work.shared(key)];
        let before = self.imports.get(&key).map(|import| import.owner);
        match before {
            Some(before) if before == owner => return,
            Some(before) => self.say(before, LinkMessage::Unsubscribed { files: files.clone() }),
            None => {}
        }
        if is_here {
            if let Some(import) = self.imports.remove(&key) {
                intermediates.orphans.entry(key.1).or_default().extend(import.waiters);
            }
            return;
        }
        let mut waiters = intermediates.orphans.remove(&key.1).unwrap_or_default();
        waiters.retain(|task| waits.n_missing.contains_key(task));
        if before.is_none() && waiters.is_empty() {
            return;
        }
        let n_more = waiters.len() as u32;
        let new = Import { owner, state: FileState::Expected, n_readers: 0, waiters: vec![] };
        let import = self.imports.entry(key).or_insert(new);
        import.owner = owner;
        import.n_readers += n_more;
        import.waiters.extend(waiters);
        self.say(owner, LinkMessage::Subscribed { files });
    }

    /// `None` if no task of this part of `whole` has promised the file, or another dispatcher has the file by
    /// now. Otherwise `Some` with whether the promise still holds.
    fn promised_here(
        &self,
        work: &Workload,
        intermediates: &Intermediates,
        whole: RunId,
        location: CatalogLocation<'_>,
    ) -> Option<bool> {
        let object = work.catalog.find(location)?;
        let promise = intermediates.find_promise(work, object)?;
        // While others ask, a submission is open and every promise counts as open. So the promising task
        // itself must not have ended.
        let holders = &intermediates.promises[&object];
        let is_open = promise.is_ok() && holders.iter().any(|holder| work.tasks.end_of(*holder) == End::Not);
        Some(is_open && self.owner_elsewhere(work, intermediates, whole, object).is_none())
    }

    /// The dispatcher that makes the file at `object`; `None` if this one does.
    pub(super) fn owner_elsewhere(
        &self,
        work: &Workload,
        intermediates: &Intermediates,
        run: RunId,
        object: ObjectId,
    ) -> Option<MemberId> {
        let Membership { me, n_members } = self.group?;
        let linked = work.runs.get(&run)?.linked.as_ref()?;
        let location = work.catalog.location(object);
        let written = location.written().text();
        let named = linked.imports.get(&*written).copied();
        if let Some(owner) = named {
            return Some(owner).filter(|owner| *owner != me);
        }
        if !location.stays() || intermediates.is_made_here(object) {
            return None;
        }
        Some(owner_of(&written, n_members)).filter(|owner| *owner != me)
    }

    /// The run of a file that stays on the nodes, if another dispatcher makes the file. Where no task here
    /// reads the file, its name is not known here, and any of the other dispatchers may make it.
    pub(super) fn run_of_import(
        &self,
        work: &Workload,
        intermediates: &Intermediates,
        object: ObjectId,
    ) -> Option<RunId> {
        let CatalogLocation::Run(file) = work.catalog.location(object) else { return None };
        let run = file.run()?;
        work.runs.get(&run)?.linked.as_ref()?;
        // A file that one of our tasks promised may have been added at another dispatcher since.
        let is_ours = intermediates.is_made_here(object)
            && self.owner_elsewhere(work, intermediates, run, object).is_none();
        (!is_ours).then_some(run)
    }

    /// Those inputs of `task` that other dispatchers make, each once.
    pub(super) fn foreign_inputs(
        &self,
        work: &mut Workload,
        intermediates: &Intermediates,
        task: TaskId,
    ) -> Vec<ObjectId> {
        let run = work.tasks.run_of(task);
        let (array, i) = work.tasks.locate(task);
        if !work.may_import(run, array) {
            return vec![];
        }
        let array = work.tasks.arrays[array.0 as usize].array.clone();
        let mut objects = work.inputs_of(run, &array, i);
        objects.retain(|object| self.owner_elsewhere(work, intermediates, run, *object).is_some());
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// `None`: the run is not known.
    fn intern_shared(&mut self, work: &mut Workload, file: &SharedFile) -> Option<Key> {
        let scope = &work.runs.get(&file.run)?.scope;
        let mut text = file.location.clone();
        let key = (file.run, work.catalog.intern(scope.put_into(&mut text)));
        self.named.insert(key);
        Some(key)
    }

    /// A file of `run`, which is a part of one, is known here, though no task here may have named it.
    pub(super) fn note_named(&mut self, run: RunId, object: ObjectId) {
        if self.group.is_some() {
            self.named.insert((run, object));
        }
    }

    /// Forgets what crosses for `run`, which has ended. Gives the files that this was about.
    pub(super) fn forget_crossing(&mut self, work: &Workload, run: RunId) -> BTreeSet<ObjectId> {
        if self.group.is_none() {
            return BTreeSet::new();
        }
        let catalog = &work.catalog;
        let is_of_run = |object: ObjectId| match catalog.location(object) {
            CatalogLocation::Run(file) => file.run() == Some(run),
            CatalogLocation::Home(_) => false,
        };
        let is_other = |key: &Key| key.0 != run;
        let range = (run, ObjectId(0))..=(run, ObjectId(u32::MAX));
        let mut files: BTreeSet<ObjectId> = self.imports.range(range.clone()).map(|(key, _)| key.1).collect();
        files.extend(self.exports.range(range.clone()).map(|(key, _)| key.1));
        files.extend(self.named.range(range).map(|key| key.1));
        files.extend(self.home_makers.keys().filter(|key| !is_other(key)).map(|key| key.1));
        self.imports.retain(|key, _| is_other(key));
        self.exports.retain(|key, _| is_other(key));
        self.named.retain(is_other);
        self.home_makers.retain(|key, _| is_other(key));
        self.dirty.retain(is_other);
        self.added.retain(|_, whole| *whole != run);
        files.extend(self.lent.keys().copied().filter(|object| is_of_run(*object)));
        self.lent.retain(|object, _| !is_of_run(*object));
        files.extend(self.brought.iter().map(|(_, object)| *object).filter(|object| is_of_run(*object)));
        self.brought.retain(|(_, object)| !is_of_run(*object));
        files
    }

    /// Files that members speak of for runs that are known here.
    pub(super) fn crossing(&self) -> BTreeSet<ObjectId> {
        let Exchange { imports, exports, home_makers, lent, brought, named, .. } = self;
        let keys = imports.keys().chain(exports.keys()).chain(home_makers.keys()).chain(named);
        let keys = keys.map(|(_, object)| *object);
        keys.chain(lent.keys().copied()).chain(brought.iter().map(|(_, object)| *object)).collect()
    }

    // ------------------------------------------------------------ messages

    pub(super) fn on_member_connected(&mut self, work: &Workload, member: MemberId) {
        if self.group.is_none_or(|g| g.me == member || member.0 >= g.n_members) {
            return;
        }
        self.connected.insert(member);
        self.outbox.remove(&member);
        let reads: Vec<Key> =
            self.imports.iter().filter(|(_, i)| i.owner == member).map(|(key, _)| *key).collect();
        let files = reads.into_iter().map(|key| work.shared(key)).collect();
        let is_settled = |r: &RunState| r.committed && r.linked.is_some();
        let settled = work.runs.iter().filter(|(_, r)| is_settled(r)).map(|(run, _)| *run);
        let settled = settled.chain(self.added.keys().copied()).collect();
        self.say(member, LinkMessage::Reads { files, settled });
        for (key, export) in &mut self.exports {
            if let Some(last_sent) = export.last_sent.get_mut(&member) {
                *last_sent = None;
                self.dirty.insert(*key);
            }
        }
    }

    /// Queues the messages that other dispatchers need now, and hands them to the driver.
    pub(super) fn tell_members(
        &mut self,
        work: &Workload,
        executors: &Executors,
        intermediates: &Intermediates,
        couriers: &Couriers,
        out: &mut Vec<Action>,
    ) {
        for key in std::mem::take(&mut self.dirty) {
            let Some(export) = self.exports.get(&key) else { continue };
            let mut changed = vec![];
            for (member, last_sent) in &export.last_sent {
                if !self.connected.contains(member) {
                    continue;
                }
                let mut state =
                    self.state_of_export(work, executors, intermediates, key, *member, last_sent.as_ref());
                if let FileState::Held { carried, .. } = &mut state {
                    *carried = couriers.carries(work, executors, self, key);
                }
                if last_sent.as_ref() != Some(&state) {
                    changed.push((*member, state));
                }
            }
            for (member, state) in changed {
                let file = work.shared(key);
                self.say(member, LinkMessage::File { file, state: state.clone() });
                let export = self.exports.get_mut(&key).expect("it was found above");
                export.last_sent.insert(member, Some(state));
                export.failed_holders.clear();
            }
        }
        for (member, messages) in std::mem::take(&mut self.outbox) {
            out.push(Action::TellMember { member, messages });
        }
    }

    /// Panics when an invariant of the module's header is broken. For tests.
    pub(super) fn check(&self, work: &Workload, intermediates: &Intermediates) {
        let mut n_readers: BTreeMap<Key, u32> = BTreeMap::new();
        for a in &work.tasks.arrays {
            if !work.runs.get(&a.run).is_some_and(|r| r.started && r.linked.is_some()) {
                continue;
            }
            for i in (0..a.array.n_tasks).filter(|i| a.ends.get(*i) == End::Not) {
                let mut objects = BTreeSet::new();
                let mut text = String::new();
                for (_, pattern) in &a.array.template.inputs {
                    let object =
                        work.catalog.find(work.location_into(a.run, &a.array, pattern, i, &mut text));
                    objects.extend(
                        object.filter(|o| self.owner_elsewhere(work, intermediates, a.run, *o).is_some()),
                    );
                }
                for object in objects {
                    *n_readers.entry((a.run, object)).or_default() += 1;
                }
            }
        }
        let counted: BTreeMap<Key, u32> =
            self.imports.iter().map(|(key, import)| (*key, import.n_readers)).collect();
        assert_eq!(counted, n_readers, "readers of imports");
        let mut n_told: BTreeMap<ObjectId, usize> = BTreeMap::new();
        for (key, export) in &self.exports {
            *n_told.entry(key.1).or_default() += export.last_sent.len();
        }
        for (object, file) in &intermediates.files {
            let n = n_told.get(object).copied().unwrap_or(0);
            assert_eq!(file.n_foreign as usize, n, "members that read {}", work.catalog.location(*object));
        }
    }
}

impl Workload {
    /// Whether tasks of an array may read files of other dispatchers.
    pub(super) fn may_import(&self, run: RunId, array: ArrayId) -> bool {
        let Some(linked) = self.runs.get(&run).and_then(|r| r.linked.as_ref()) else { return false };
        self.tasks.arrays[array.0 as usize].reads_run || !linked.imports.is_empty()
    }

    fn shared(&self, (run, object): Key) -> SharedFile {
        SharedFile { run, location: self.catalog.location(object).written().to_string() }
    }

    /// `None`: nobody here has named the file.
    fn find_shared(&self, file: &SharedFile) -> Option<Key> {
        let scope = &self.runs.get(&file.run)?.scope;
        let mut text = file.location.clone();
        Some((file.run, self.catalog.find(scope.put_into(&mut text))?))
    }
}

impl Dispatcher {
    /// Whether the submission `run` has been accepted, on its own or as a part of another run.
    pub fn is_accepted(&self, run: RunId) -> bool {
        self.exchange.added.contains_key(&run) || self.work.runs.get(&run).is_some_and(|r| r.committed)
    }

    /// What this dispatcher of a group knows of the files that tasks of `array` name. These tasks are to be
    /// added to the run that the submission `run` is into. The submission is open, so the answer holds until
    /// it is committed or given up.
    pub fn consult(&self, run: RunId, array: &TaskArray) -> KnownFiles {
        let mut known = KnownFiles::default();
        let Some(whole) = self.work.runs.get(&run).and_then(|r| r.into) else { return known };
        let mut text = String::new();
        for promise in &array.template.promises {
            text.clone_from(promise);
            let location = self.work.scope_of(run).put_into(&mut text);
            let file = self.work.catalog.find(location).and_then(|o| self.intermediates.files.get(&o));
            if let Some(maker) = file.and_then(|file| file.maker) {
                let (id, maker) = (array.fill(&array.template.id, 0), self.work.tasks.user_id(maker));
                known.clash = Some(promise_refused(&id, promise, &maker, "writes"));
                return known;
            }
            if self.exchange.promised_here(&self.work, &self.intermediates, whole, location).is_some() {
                known.promised.insert(promise.clone());
            }
        }
        for i in 0..array.n_tasks {
            for (_, pattern) in &array.template.outputs {
                let location = self.work.location_into(run, array, pattern, i, &mut text);
                if location.stays()
                    && self.exchange.promised_here(&self.work, &self.intermediates, whole, location).is_some()
                {
                    known.promised.insert(location.written().to_string());
                }
                let writer = match location {
                    CatalogLocation::Run(_) => {
                        let object = self.work.catalog.find(location);
                        object.and_then(|o| self.intermediates.files.get(&o)).and_then(|file| file.maker)
                    }
                    CatalogLocation::Home(at_home) => self.work.find_writer(run, at_home),
                };
                if let Some(other) = writer {
                    known.clash =
                        Some(self.work.tasks.clash(other, &array.fill(&array.template.id, i), location));
                    return known;
                }
            }
        }
        for (_, pattern) in &array.template.inputs {
            // A location that is the same for all tasks is looked up once.
            let n = if pattern.is_constant() { array.n_tasks.min(1) } else { array.n_tasks };
            for i in 0..n {
                let location = self.work.location_into(run, array, pattern, i, &mut text);
                if let CatalogLocation::Home(at_home) = location {
                    let awaited = |task: &TaskId| {
                        self.work.tasks.run_of(*task) == whole && self.work.tasks.end_of(*task) == End::Not
                    };
                    if self.work.tasks.makers_of(at_home).any(|task| awaited(&task)) {
                        known.makes.insert(at_home.to_owned());
                    }
                    continue;
                }
                let written = || location.written().to_string();
                match self.work.catalog.find(location).and_then(|o| self.intermediates.files.get(&o)) {
                    Some(file) if file.maker.is_some() && file.dropped => known.dropped.insert(written()),
                    Some(file) if file.maker.is_some() => known.makes.insert(written()),
                    _ if self.exchange.promised_here(&self.work, &self.intermediates, whole, location)
                        == Some(true) =>
                    {
                        known.makes.insert(written())
                    }
                    _ => continue,
                };
            }
        }
        known
    }

    pub(super) fn on_member_told(
        &mut self,
        now: Timestamp,
        member: MemberId,
        messages: Vec<LinkMessage>,
        out: &mut Vec<Action>,
    ) {
        for message in messages {
            match message {
                LinkMessage::Reads { files, settled } => {
                    let mut reads = BTreeSet::new();
                    for file in &files {
                        reads.extend(self.exchange.subscribed(
                            &mut self.work,
                            &self.forgotten,
                            &mut self.intermediates,
                            member,
                            file,
                        ));
                    }
                    let is_over = |(key, export): (&Key, &Export)| {
                        (export.last_sent.contains_key(&member) && !reads.contains(key)).then_some(*key)
                    };
                    let over: Vec<Key> = self.exchange.exports.iter().filter_map(is_over).collect();
                    for key in over {
                        self.unsubscribed(member, key, out);
                    }
                    for run in settled {
                        self.settled(member, run, out);
                    }
                }
                LinkMessage::Subscribed { files } => {
                    for file in &files {
                        self.exchange.subscribed(
                            &mut self.work,
                            &self.forgotten,
                            &mut self.intermediates,
                            member,
                            file,
                        );
                    }
                }
                LinkMessage::Unsubscribed { files } => {
                    for file in &files {
                        if let Some(key) = self.work.find_shared(file) {
                            self.unsubscribed(member, key, out);
                        }
                    }
                }
                LinkMessage::Settled { run } => self.settled(member, run, out),
                LinkMessage::Missed { file, holders } => {
                    if let Some(key) = self.work.find_shared(&file)
                        && let Some(export) = self.exchange.exports.get_mut(&key)
                        && let Some(last_sent) = export.last_sent.get_mut(&member)
                    {
                        *last_sent = None;
                        if let Some(lent) = self.exchange.lent.get_mut(&key.1) {
                            lent.retain(|executor| !holders.contains(executor));
                            if lent.is_empty() {
                                self.exchange.lent.remove(&key.1);
                            }
                        }
                        export.failed_holders = holders;
                        self.exchange.dirty.insert(key);
                    }
                }
                LinkMessage::Carry { file } => {
                    if let Some(key) = self.work.find_shared(&file)
                        && self.exchange.exports.contains_key(&key)
                    {
                        self.reach.couriers.want(&mut self.exchange, key);
                        self.exchange.dirty.insert(key);
                    }
                }
                LinkMessage::File { file, state } => self.on_file(now, member, &file, state, out),
            }
        }
    }
}
