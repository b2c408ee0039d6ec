//! Files at home that lie on an executor's own machine: its *residents*.
//!
//! Usually home is equally far from all executors. Where it is made of the executors' own disks, an executor can read
//! some of its files without any network. Two kinds are known:
//!
//! * *own* files lie on the executor's own disk, and programs read them there, without a copy. An executor says so of
//!   all locations that begin alike ([`Nearby::own`]). Perhaps no other machine reaches them;
//! * *near* files are those of which home says that at least half of their bytes lie on the executor's host
//!   ([`Event::PlacesFound`]). They are read from home like others, only without crossing the network.
//!
//! A resident is a replica in the catalog, which no cache can drop. So policies need to know nothing of all this: a
//! task's input is here or it is not.
//!
//! An executor that has no own file of a task gets it from a cache of one that has: no digest of the file is known
//! before somebody has read it through, and home may be out of reach. So the task waits while an executor that has the
//! file reads it into its cache ([`Action::ReadHome`]), once in each run that asks.
//!
//! Where home is asked for places, nothing is given out until it has answered for the first files of a run, for at most
//! [`PLACES_WAIT_NS`]: the first tasks would be given to any executor, and their files would be cached there.
//!
//! Invariants, checked by `Residents::check`:
//!   1. whatever is resident is a replica in the catalog;
//!   2. a task that waits for a file to be read is in `waits`;
//!   3. a file is read by an executor that is there.
//!
//! Not here: how a location is looked for on a disk, and what hosts are called (the drivers, and `eyas-storage`).

use super::{Dispatcher, Executors, Schedule, Waits, Workload};
use crate::event::{Action, Nearby, Placed, TransferErrorKind};
use eyas_terms::location::CatalogLocation;
use eyas_terms::{Digest, ExecutorId, Failure, FailureKind, ObjectId, Outcome, RunId, TaskId, Timestamp};
use eyas_text::shown;
use std::collections::{BTreeMap, BTreeSet};

/// How long a run's first tasks wait for home to say where files lie.
const PLACES_WAIT_NS: u64 = 1_000_000_000;
/// The most files that one message asks for.
const PLACES_MAX: usize = 512;
/// The most files for which answers are awaited; further ones are asked for when answers come.
const ASKED_MAX: usize = 4 * PLACES_MAX;
/// How many executors, or how often one, may fail to read a file before it is looked for at home.
const READS_MAX: u32 = 3;
/// For how long an owner is asked again whose cache has no room for anything, and how often. What takes the room are mostly files of
/// tasks that run there.
const NO_ROOM_WAIT_NS: u64 = 600_000_000_000;
const NO_ROOM_AGAIN_NS: u64 = 500_000_000;
/// How often a task waits for files to be read. If their owner's cache cannot hold all of them at once, each read pushes another
/// one out; then they are looked for at home.
const WAITS_MAX: u32 = 8;

/// See the module.
#[derive(Default)]
pub(super) struct Residents {
    /// What each executor has said of itself, if that is anything.
    nearby: BTreeMap<ExecutorId, Nearby>,
    own: BTreeMap<String, BTreeSet<ExecutorId>>,
    told: BTreeMap<String, BTreeSet<ExecutorId>>,
    by_host: BTreeMap<String, BTreeSet<ExecutorId>>,
    /// Objects with lower numbers have been looked at.
    n_seen: u32,
    of: BTreeMap<ObjectId, Vec<Resident>>,
    /// The hosts that have at least half of a file.
    hosts: BTreeMap<ObjectId, Vec<String>>,
    /// Files of which home is to be asked, and files of which an executor was asked.
    unasked: BTreeSet<ObjectId>,
    asked: BTreeMap<ObjectId, ExecutorId>,
    /// The newest run for which nothing was given out until home had answered, and until when.
    waited_for: Option<RunId>,
    wait_until: Option<Timestamp>,
    reads: BTreeMap<ObjectId, Read>,
    /// Since when each owner has had room for none of the files that it was asked for.
    no_room: BTreeMap<ExecutorId, Timestamp>,
    /// How often each task that has not been given out since has waited for reads.
    n_waits: BTreeMap<TaskId, u32>,
    /// Files that their owners could not read for others, with the run for which they tried. In that run the files are
    /// looked for at home.
    unserved: BTreeMap<ObjectId, RunId>,
}

struct Resident {
    executor: ExecutorId,
    is_own: bool,
    /// The executor's cache has a copy, too, which it can serve.
    has_copy: bool,
}

/// A file that an executor was asked to read for others.
struct Read {
    executor: ExecutorId,
    run: RunId,
    waiters: Vec<TaskId>,
    n_failed: u32,
    /// When an owner is asked again, if there was no room and none is asked now.
    again: Option<Timestamp>,
}

impl Residents {
    fn find(&mut self, executor: ExecutorId, object: ObjectId) -> Option<&mut Resident> {
        self.of.get_mut(&object)?.iter_mut().find(|resident| resident.executor == executor)
    }

    /// Whether the file lies on the executor's own disk.
    pub(super) fn is_own(&self, executor: ExecutorId, object: ObjectId) -> bool {
        let is_it = |r: &Resident| r.executor == executor && r.is_own;
        !self.of.is_empty() && self.of.get(&object).is_some_and(|list| list.iter().any(is_it))
    }

    /// The executors that count as holders of the file and have no copy that they could serve.
    pub(super) fn without_copy(&self, object: ObjectId) -> impl Iterator<Item = ExecutorId> + '_ {
        let list = self.of.get(&object).map_or(&[][..], Vec::as_slice);
        list.iter().filter(|resident| !resident.has_copy).map(|resident| resident.executor)
    }

    pub(super) fn copy_added(&mut self, executor: ExecutorId, object: ObjectId) {
        if let Some(resident) = self.find(executor, object) {
            resident.has_copy = true;
        }
    }

    /// `true`: the executor's copy is gone, and the file is there nevertheless.
    pub(super) fn copy_dropped(&mut self, executor: ExecutorId, object: ObjectId) -> bool {
        let found = self.find(executor, object);
        found.map(|resident| resident.has_copy = false).is_some()
    }

    /// Whether an executor is reading the file, or tasks wait for that.
    pub(super) fn is_read(&self, object: ObjectId) -> bool {
        self.reads.contains_key(&object)
    }

    /// The executor that reads the file for others, if it lies on the own disks of executors.
    pub(super) fn reader(&self, executors: &Executors, object: ObjectId) -> Option<ExecutorId> {
        self.find_reader(executors, object, None)
    }

    pub(super) fn forget_object(&mut self, object: ObjectId) {
        self.of.remove(&object);
        self.hosts.remove(&object);
        self.unasked.remove(&object);
        self.asked.remove(&object);
        self.unserved.remove(&object);
    }

    /// The executors that can read a location without a network, as far as its text says.
    fn owners_of(&self, location: &str) -> Vec<ExecutorId> {
        let all = self.own.iter().filter(|(beginning, _)| is_below(location, beginning));
        let found: BTreeSet<ExecutorId> = all.flat_map(|(_, executors)| executors).copied().collect();
        found.into_iter().collect()
    }

    fn is_told(&self, location: &str) -> bool {
        self.told.keys().any(|beginning| location.starts_with(beginning.as_str()))
    }

    /// An executor has joined, for the first time or again.
    pub(super) fn joined(&mut self, executors: &Executors, executor: ExecutorId) {
        let nearby = (*executors.by_id[&executor].offer.nearby).clone();
        if nearby.is_empty() {
            return;
        }
        for (list, map) in
            [(&nearby.own, &mut self.own), (&nearby.told, &mut self.told), (&nearby.hosts, &mut self.by_host)]
        {
            for text in list {
                map.entry(text.clone()).or_default().insert(executor);
            }
        }
        self.nearby.insert(executor, nearby);
        self.unserved.clear();
        // Everything is looked at again, as this executor may have any of it.
        self.n_seen = 0;
    }

    // ------------------------------------------------------------ where home says that files lie

    fn ask_for_places(
        &mut self,
        work: &Workload,
        executors: &Executors,
        now: Timestamp,
        out: &mut Vec<Action>,
    ) {
        while !self.unasked.is_empty() && self.asked.len() < ASKED_MAX {
            // The executors of one beginning understand the same homes.
            let is_heard = |executor: &&ExecutorId| {
                executors.by_id.get(executor).is_some_and(|e| e.silent_since.is_none())
            };
            let Some((beginning, executor)) = self.told.iter().find_map(|(beginning, executors)| {
                let begins = |o: &ObjectId| work.catalog.location(*o).text().starts_with(beginning.as_str());
                self.unasked.iter().any(begins).then_some(())?;
                Some((beginning.clone(), *executors.iter().find(is_heard)?))
            }) else {
                return;
            };
            let begins = |o: &&ObjectId| work.catalog.location(**o).text().starts_with(beginning.as_str());
            let objects: Vec<ObjectId> =
                self.unasked.iter().filter(begins).take(PLACES_MAX).copied().collect();
            let newest = objects.iter().filter_map(|object| work.catalog.named_by(*object)).max();
            for object in &objects {
                self.unasked.remove(object);
                self.asked.insert(*object, executor);
            }
            if newest > self.waited_for {
                self.waited_for = newest;
                self.wait_until = Some(now.plus_ns(PLACES_WAIT_NS));
            }
            out.push(Action::FindPlaces { executor, objects });
        }
    }

    /// Whether nothing is to be given out, because home is about to say where the first files of a run lie.
    pub(super) fn awaits_places(&mut self, now: Timestamp) -> bool {
        let waits = self.wait_until.is_some_and(|until| now < until) && !self.asked.is_empty();
        if !waits {
            self.wait_until = None;
        }
        waits
    }

    /// When the wait for places is over, or an owner is to be asked again.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let again = self.reads.values().filter_map(|read| read.again);
        again.chain(self.wait_until).min()
    }

    // ------------------------------------------------------------ own files that others need

    /// The inputs that have to be read by an executor on whose disk they lie before `executor` can get them.
    pub(super) fn unread_inputs(
        &self,
        work: &Workload,
        executors: &Executors,
        executor: ExecutorId,
        run: RunId,
        inputs: &[ObjectId],
    ) -> Vec<ObjectId> {
        if self.of.is_empty() {
            return vec![];
        }
        let mut unread: Vec<ObjectId> = inputs
            .iter()
            .filter(|object| self.is_unread(work, executors, executor, run, **object))
            .copied()
            .collect();
        unread.sort_unstable();
        unread.dedup();
        unread
    }

    /// Whether the file lies on the own disks of other executors, of which one is there.
    pub(super) fn is_elsewhere(
        &self,
        executors: &Executors,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
    ) -> bool {
        !self.of.is_empty()
            && !self.is_own(executor, object)
            && self.unserved.get(&object).is_none_or(|unserved| *unserved < run)
            && self.find_reader(executors, object, None).is_some()
    }

    fn is_unread(
        &self,
        work: &Workload,
        executors: &Executors,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
    ) -> bool {
        self.is_elsewhere(executors, executor, run, object) && self.lacks_copy(work, run, object)
    }

    /// The executor on whose disk the file lies, if nobody else has it and that executor is silent: it may come back.
    pub(super) fn silent_owner(
        &self,
        work: &Workload,
        executors: &Executors,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
    ) -> Option<ExecutorId> {
        let list = self.of.get(&object)?;
        let owner = list.iter().find(|resident| resident.is_own)?.executor;
        let waits = !self.is_own(executor, object)
            && self.find_reader(executors, object, None).is_none()
            && self.lacks_copy(work, run, object);
        waits.then_some(owner)
    }

    /// Whether no cache has a copy of a resident file of which `run` knows that it is right.
    fn lacks_copy(&self, work: &Workload, run: RunId, object: ObjectId) -> bool {
        let is_checked = work.catalog.checked_run(object).is_some_and(|checked| checked >= run);
        let n_without = self.without_copy(object).count();
        work.catalog.digest(object).is_none() || !is_checked || work.catalog.n_holders(object) == n_without
    }

    /// An executor that can read the file on its own disk for others; `but` only if there is no other one.
    fn find_reader(
        &self,
        executors: &Executors,
        object: ObjectId,
        but: Option<ExecutorId>,
    ) -> Option<ExecutorId> {
        let n_reads = |executor| self.reads.values().filter(|read| read.executor == executor).count();
        let able = self.of.get(&object)?.iter().filter(|r| r.is_own).map(|r| r.executor);
        let able = able.filter(|e| executors.by_id.get(e).is_some_and(|e| e.silent_since.is_none()));
        able.min_by_key(|executor| (Some(*executor) == but, n_reads(*executor), *executor))
    }

    /// Lets a ready task wait until these files can be fetched from a cache. `false`: it has waited often enough, and for its run
    /// they are looked for at home.
    pub(super) fn await_reads(
        &mut self,
        work: &mut Workload,
        schedule: &mut Schedule,
        waits: &mut Waits,
        task: TaskId,
        run: RunId,
        unread: &[ObjectId],
        out: &mut Vec<Action>,
    ) -> bool {
        let n_waits = self.n_waits.entry(task).or_default();
        *n_waits += 1;
        if *n_waits > WAITS_MAX {
            self.unserved.extend(unread.iter().map(|object| (*object, run)));
            return false;
        }
        schedule.take_ready(work, task);
        waits.n_missing.insert(task, unread.len() as u32);
        work.run_mut(run).tasks.n_waiting += 1;
        for object in unread.iter().copied() {
            if let Some(read) = self.reads.get_mut(&object) {
                read.waiters.push(task);
                continue;
            }
            let executor = self
                .find_reader(&schedule.executors, object, None)
                .expect("it was found when the task had to wait");
            let read = Read { executor, run, waiters: vec![task], n_failed: 0, again: None };
            self.reads.insert(object, read);
            out.push(Action::ReadHome { executor, object, run });
        }
        true
    }

    /// A task is given out, or ends.
    pub(super) fn waits_no_more(&mut self, task: TaskId) {
        self.n_waits.remove(&task);
    }

    /// Asks for the files again whose owners had no room for them.
    fn read_again(&mut self, executors: &Executors, now: Timestamp, out: &mut Vec<Action>) {
        let is_due = |read: &Read| read.again.is_some_and(|at| at <= now);
        let due = self.reads.iter().filter(|(_, read)| is_due(read));
        let due: Vec<(ObjectId, ExecutorId)> = due.map(|(object, read)| (*object, read.executor)).collect();
        for (object, before) in due {
            let next = self.find_reader(executors, object, Some(before));
            let read = self.reads.get_mut(&object).expect("just seen");
            // Nobody: the owner is silent, and what its end means is dealt with when it comes.
            read.again = next.is_none().then(|| now.plus_ns(NO_ROOM_AGAIN_NS));
            if let Some(executor) = next {
                read.executor = executor;
                out.push(Action::ReadHome { executor, object, run: read.run });
            }
        }
    }

    pub(super) fn check(&self, work: &Workload, executors: &Executors) {
        for (object, list) in &self.of {
            for resident in list {
                assert!(work.catalog.holds(resident.executor, *object), "{object:?} is a replica");
            }
        }
        for (object, read) in &self.reads {
            assert!(executors.by_id.contains_key(&read.executor), "{object:?} is read by nobody");
        }
    }
}

/// Whether a location is below a place, or is the place.
fn is_below(location: &str, place: &str) -> bool {
    let rest = location.strip_prefix(place.strip_suffix('/').unwrap_or(place));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Dispatcher {
    /// Looks at the files that were named since the last time, and asks where they are where home can be asked.
    pub(super) fn settle_residents(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.residents.nearby.is_empty() {
            return;
        }
        for number in self.residents.n_seen..self.work.catalog.n_objects() as u32 {
            self.look_for_residents(ObjectId(number));
        }
        self.residents.n_seen = self.work.catalog.n_objects() as u32;
        self.residents.read_again(&self.schedule.executors, now, out);
        self.residents.ask_for_places(&self.work, &self.schedule.executors, now, out);
    }

    fn look_for_residents(&mut self, object: ObjectId) {
        if !self.work.catalog.is_known(object) {
            return;
        }
        let CatalogLocation::Home(location) = self.work.catalog.location(object) else { return };
        let owners = self.residents.owners_of(location);
        // A file that a task is writing lies nowhere yet.
        let is_made = self.schedule.attempts.making.contains_key(&object);
        let is_asked =
            self.residents.hosts.contains_key(&object) || self.residents.asked.contains_key(&object);
        if !is_made && !is_asked && self.residents.is_told(location) {
            self.residents.unasked.insert(object);
        }
        for executor in owners {
            self.add_resident(executor, object, true);
        }
        for host in self.residents.hosts.get(&object).cloned().unwrap_or_default() {
            for executor in self.residents.by_host.get(&host).cloned().unwrap_or_default() {
                self.add_resident(executor, object, false);
            }
        }
    }

    fn add_resident(&mut self, executor: ExecutorId, object: ObjectId, is_own: bool) {
        if self.residents.find(executor, object).is_some() {
            return;
        }
        let has_copy = self.work.catalog.holds(executor, object);
        self.add_replica(executor, object);
        if self.work.catalog.holds(executor, object) {
            self.residents.of.entry(object).or_default().push(Resident { executor, is_own, has_copy });
        }
    }

    /// An executor has left, or its connection has broken and it may not know what it was asked. `held`: what it held.
    pub(super) fn residents_left(&mut self, now: Timestamp, executor: ExecutorId, held: &[ObjectId]) {
        let r = &mut self.residents;
        if r.nearby.remove(&executor).is_none() {
            return;
        }
        r.no_room.remove(&executor);
        for map in [&mut r.own, &mut r.told, &mut r.by_host] {
            map.retain(|_, executors| {
                executors.remove(&executor);
                !executors.is_empty()
            });
        }
        for object in held {
            if let Some(list) = r.of.get_mut(object) {
                list.retain(|resident| resident.executor != executor);
                if list.is_empty() {
                    r.of.remove(object);
                }
            }
        }
        let unanswered = r.asked.iter().filter(|(_, asked)| **asked == executor);
        r.unasked.extend(unanswered.map(|(object, _)| *object));
        r.asked.retain(|_, asked| *asked != executor);
        let broken: Vec<ObjectId> =
            r.reads.iter().filter(|(_, read)| read.executor == executor).map(|(object, _)| *object).collect();
        for object in broken {
            self.end_read(now, object, None, &mut vec![]);
        }
    }

    pub(super) fn on_places_found(&mut self, asked: &[ObjectId], placed: Vec<Placed>) {
        for object in asked {
            self.residents.asked.remove(object);
        }
        for Placed { object, size_bytes, hosts } in placed {
            if !self.work.catalog.is_known(object) {
                continue;
            }
            if self.work.catalog.size_bytes(object).is_none() {
                self.work.catalog.set_size_bytes(object, Some(size_bytes));
            }
            let has_half = hosts.into_iter().filter(|(_, bytes)| *bytes >= size_bytes.div_ceil(2).max(1));
            self.residents.hosts.insert(object, has_half.map(|(host, _)| host).collect());
            self.look_for_residents(object);
        }
    }

    /// A report of a replica has been dealt with; it may be the answer of an executor that was asked to read the file.
    /// `digest`: of the bytes that it has read; `run`: for which home was asked about them. What was read for an earlier run
    /// is no answer: home may have other bytes since.
    pub(super) fn was_read(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        object: ObjectId,
        digest: Digest,
        run: RunId,
        out: &mut Vec<Action>,
    ) {
        let is_answered = |read: &&Read| read.executor == executor && read.run <= run;
        let Some(read) = self.residents.reads.get(&object).filter(is_answered) else { return };
        let run = read.run;
        self.residents.no_room.remove(&executor);
        if self.work.catalog.digest(object) == Some(digest) {
            self.work.raise_checked_run(object, run);
            self.end_read(now, object, None, out);
        } else {
            let location = shown(self.work.catalog.location(object).text()).to_string();
            let message = format!("{location} changed since this run first read it");
            self.end_read(now, object, Some(Failure { kind: FailureKind::InputChanged, message }), out);
        }
    }

    pub(super) fn on_home_not_read(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        object: ObjectId,
        kind: TransferErrorKind,
        out: &mut Vec<Action>,
    ) {
        let Some(read) = self.residents.reads.get_mut(&object).filter(|read| read.executor == executor)
        else {
            return;
        };
        if kind == TransferErrorKind::NoSpace {
            let since = *self.residents.no_room.entry(executor).or_insert(now);
            if now.since_ns(since) < NO_ROOM_WAIT_NS {
                read.again = Some(now.plus_ns(NO_ROOM_AGAIN_NS));
                return;
            }
        }
        read.n_failed += 1;
        let (n_failed, run) = (read.n_failed, read.run);
        if n_failed < READS_MAX
            && let Some(next) = self.residents.find_reader(&self.schedule.executors, object, Some(executor))
        {
            self.residents.reads.get_mut(&object).expect("just seen").executor = next;
            out.push(Action::ReadHome { executor: next, object, run });
            return;
        }
        self.residents.unserved.insert(object, run);
        self.end_read(now, object, None, out);
    }

    /// The tasks that wait for this file go on, or fail.
    fn end_read(
        &mut self,
        now: Timestamp,
        object: ObjectId,
        failure: Option<Failure>,
        out: &mut Vec<Action>,
    ) {
        let Some(read) = self.residents.reads.remove(&object) else { return };
        for task in read.waiters {
            // It may have been cancelled meanwhile.
            let Some(n_missing) = self.waits.n_missing.get_mut(&task) else { continue };
            let run = self.work.tasks.run_of(task);
            // A later run has not read the old bytes; for it the file is read once more.
            let failure = failure.as_ref().filter(|_| run <= read.run);
            *n_missing -= 1;
            if *n_missing > 0 && failure.is_none() {
                continue;
            }
            self.waits.n_missing.remove(&task);
            self.work.run_mut(run).tasks.n_waiting -= 1;
            match failure {
                None => self.schedule.requeue(&mut self.work, now, task),
                Some(failure) => self.end_task(now, task, Outcome::Failed(failure.clone()), out),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_what_is_below_it() {
        for place in ["/data/a", "/data/a/"] {
            for (location, expect) in [
                ("/data/a", true),
                ("/data/a/x", true),
                ("/data/a/b/x", true),
                ("/data/ab", false),
                ("/data", false),
                ("/other/data/a/x", false),
            ] {
                assert_eq!(is_below(location, place), expect, "{location} below {place}");
            }
        }
        assert!(is_below("/x", "/"));
        assert!(is_below("dav://h/d/x", "dav://h/d"));
    }
}
