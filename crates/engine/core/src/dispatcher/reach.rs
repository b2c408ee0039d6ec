//! Executors that cannot reach each other: which these are, and how tasks get their files all the same.
//!
//! In a cloud, nodes often reach the dispatcher and home, and not each other. A fetch that could make no connection says so
//! ([`Event::PeerUnreachable`]), and from then on this dispatcher keeps the pair *cut*: the reader is not sent to that holder.
//! After a while the pair counts as open again, so the next fetch tries it; each further failure in a row doubles the while. A
//! fetch that succeeds ends the cut at once. Where [`CUTS_MEAN_ALL`] readers could not reach a holder and none ever did, nobody
//! is sent there; in the same way a reader that reached nobody is sent nowhere. So a cluster of n nodes learns this in a number
//! of failures that grows with n, and not with the number of pairs.
//!
//! A file of home is then read from other holders, or from home. A file that is only on nodes (`run:`) comes to the task in the
//! first of these ways that there is:
//!
//! 1. The task goes to an executor that reaches a holder of each input. Where all of these are busy, it waits for one.
//! 2. The file is copied to a third executor that reaches a holder and that the task's executor reaches.
//! 3. The file's maker runs once more at the task's executor, as a rerun (`reruns`), which changes nothing for anybody else.
//! 4. Where that cannot be, as the maker writes home or makes other bytes each time, the maker is revived (`revivals`), and is given to
//!    one executor. All readers of such files go to the same executor, so each of these files moves there once.
//!
//! A task for which none of these is possible, as its executor is too small for the maker, is tried, and fails like one whose input
//! is lost.
//!
//! Invariant, checked by [`Reach::check`]: a task of `apart` is in `waits`, and waits for nothing else.
//!
//! A file of another dispatcher of the group is not made again by this one: the group's `courier` brings it.

mod courier;

pub(super) use courier::Couriers;

use super::{Dispatcher, End, ExecutorState, Executors, Intermediate, REVIVALS_MAX, Waits};
use crate::event::{Action, InputReport};
use crate::group::FileState;
use crate::placement::{Mode, Pick, Rule, Stage, TaskSize};
use eyas_terms::{CacheOutcome, ExecutorId, ObjectId, RunId, TaskId, Timestamp};
use eyas_text::shown;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// How long a pair is cut after its first failure, and at most.
const CUT_NS: u64 = 10_000_000_000;
const CUT_NS_MAX: u64 = 600_000_000_000;
/// After so many failures with different executors, and no success, an executor counts as cut from all.
const CUTS_MEAN_ALL: usize = 3;
/// A task that is apart is looked at again after this time, whatever happens.
const APART_NS: u64 = 5_000_000_000;
/// How many third executors are tried for one file, and for how long each.
const RELAYS_MAX: usize = 2;
const RELAY_NS: u64 = 30_000_000_000;
/// How often one task is rerun at one executor before it is revived instead.
const RERUNS_MAX: u32 = 2;
/// Pairs that are named to users.
const CUTS_NAMED: usize = 5;

#[derive(Clone, Copy, Debug)]
struct Cut {
    since: Timestamp,
    until: Timestamp,
    wait_ns: u64,
}

/// What a task that is apart waits for.
#[derive(Clone, Copy, Debug)]
enum Awaits {
    /// Room on the executor, which reaches all inputs or is to make one.
    Room,
    /// A copy on this third executor.
    Copy(ExecutorId),
    /// The maker of the file runs once more, on this executor if it can.
    Again(ExecutorId),
    /// The group's courier, which is elsewhere, or has to go for files of other dispatchers; `called`: it could run the task now.
    Courier { called: bool },
}

/// A task that waits because executors do not reach each other.
#[derive(Clone, Debug)]
struct Apart {
    /// The executor that the task is meant for.
    executor: ExecutorId,
    /// Inputs that do not reach that executor.
    lacking: Vec<ObjectId>,
    awaits: Awaits,
    until: Timestamp,
}

/// The third executors that were asked to copy a file.
#[derive(Clone, Debug, Default)]
struct Relays {
    tried: Vec<ExecutorId>,
    until: Timestamp,
}

/// See the module.
#[derive(Default)]
pub(super) struct Reach {
    /// By reader and holder.
    cuts: BTreeMap<(ExecutorId, ExecutorId), Cut>,
    /// The readers that are cut from a holder.
    readers: BTreeMap<ExecutorId, BTreeSet<ExecutorId>>,
    /// Executors that have fetched from some other executor, and those that some other has fetched from.
    has_read: BTreeSet<ExecutorId>,
    has_served: BTreeSet<ExecutorId>,
    apart: BTreeMap<TaskId, Apart>,
    by_object: BTreeMap<ObjectId, BTreeSet<TaskId>>,
    by_room: BTreeMap<ExecutorId, BTreeSet<TaskId>>,
    /// Files that tasks which are apart lack and that an executor has got, or that were made in vain.
    stirred: BTreeSet<ObjectId>,
    relays: BTreeMap<ObjectId, Relays>,
    n_reruns: BTreeMap<(TaskId, ExecutorId), u32>,
    /// The only executor that a task goes to: one that reads files which exist once, or that was revived to make such a file.
    meant_for: BTreeMap<TaskId, ExecutorId>,
    pub(super) couriers: Couriers,
}

impl Reach {
    /// Whether all executors reach each other, as far as is known.
    pub(super) fn is_whole(&self) -> bool {
        self.cuts.is_empty() && self.meant_for.is_empty() && self.couriers.bound.is_empty()
    }

    /// `reader` could not connect to `holder`. `false`: that was known.
    fn cut(&mut self, now: Timestamp, reader: ExecutorId, holder: ExecutorId) -> bool {
        let before = self.cuts.get(&(reader, holder));
        if before.is_some_and(|cut| now < cut.until) {
            return false;
        }
        let wait_ns = before.map_or(CUT_NS, |cut| (cut.wait_ns * 2).min(CUT_NS_MAX));
        self.cuts.insert((reader, holder), Cut { since: now, until: now.plus_ns(wait_ns), wait_ns });
        self.readers.entry(holder).or_default().insert(reader);
        true
    }

    fn end_cut(&mut self, reader: ExecutorId, holder: ExecutorId) {
        if self.cuts.remove(&(reader, holder)).is_some()
            && let Some(readers) = self.readers.get_mut(&holder)
        {
            readers.remove(&reader);
            if readers.is_empty() {
                self.readers.remove(&holder);
            }
        }
    }

    /// An attempt on `reader` has these inputs.
    pub(super) fn learn(&mut self, reader: ExecutorId, inputs: &[InputReport]) {
        for input in inputs {
            if let CacheOutcome::RemoteHit { from } = input.outcome {
                self.has_read.insert(reader);
                self.has_served.insert(from);
                self.end_cut(reader, from);
            }
        }
    }

    fn cuts_of(&self, reader: ExecutorId) -> impl Iterator<Item = (ExecutorId, &Cut)> {
        let all = (reader, ExecutorId(0))..=(reader, ExecutorId(u32::MAX));
        self.cuts.range(all).map(|((_, holder), cut)| (*holder, cut))
    }

    /// Whether some executor was found out of reach of `reader` since then.
    pub(super) fn learnt_since(&self, reader: ExecutorId, since: Timestamp) -> bool {
        self.cuts_of(reader).any(|(_, cut)| cut.since >= since)
    }

    /// Whether `reader` may be sent to `holder`.
    pub(super) fn may_read(&self, now: Timestamp, reader: ExecutorId, holder: ExecutorId) -> bool {
        if self.cuts.is_empty() {
            return true;
        }
        let is_cut = |reader, holder| self.cuts.get(&(reader, holder)).is_some_and(|cut| now < cut.until);
        let serves_nobody = || {
            let readers = self.readers.get(&holder).into_iter().flatten();
            !self.has_served.contains(&holder)
                && readers.filter(|reader| is_cut(**reader, holder)).count() >= CUTS_MEAN_ALL
        };
        let reads_nobody = || {
            !self.has_read.contains(&reader)
                && self.cuts_of(reader).filter(|(_, cut)| now < cut.until).count() >= CUTS_MEAN_ALL
        };
        !is_cut(reader, holder) && !serves_nobody() && !reads_nobody()
    }

    pub(super) fn executor_lost(&mut self, executor: ExecutorId) {
        let of_it = |pair: &&(ExecutorId, ExecutorId)| pair.0 == executor || pair.1 == executor;
        for (reader, holder) in self.cuts.keys().filter(of_it).copied().collect::<Vec<_>>() {
            self.end_cut(reader, holder);
        }
        self.has_read.remove(&executor);
        self.has_served.remove(&executor);
        self.meant_for.retain(|_, at| *at != executor);
        self.n_reruns.retain(|(_, at), _| *at != executor);
    }

    /// An executor has got a copy of `object`, or its maker has run in vain.
    pub(super) fn stir(&mut self, object: ObjectId) {
        if self.by_object.contains_key(&object) {
            self.stirred.insert(object);
        }
    }

    /// `task` has ended.
    pub(super) fn forget(&mut self, task: TaskId) {
        if self.is_whole() && self.apart.is_empty() {
            return;
        }
        self.leave(task);
        self.meant_for.remove(&task);
        self.couriers.bound.remove(&task);
        self.couriers.forget(task);
        let all = (task, ExecutorId(0))..=(task, ExecutorId(u32::MAX));
        let keys: Vec<_> = self.n_reruns.range(all).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| _ = self.n_reruns.remove(key));
    }

    /// The task is not apart any more; `false`: it was not.
    fn leave(&mut self, task: TaskId) -> bool {
        let Some(Apart { executor, lacking, .. }) = self.apart.remove(&task) else { return false };
        fn take<K: Ord + Copy>(of: &mut BTreeMap<K, BTreeSet<TaskId>>, key: K, task: TaskId) {
            if let Some(tasks) = of.get_mut(&key) {
                tasks.remove(&task);
                if tasks.is_empty() {
                    of.remove(&key);
                }
            }
        }
        lacking.iter().for_each(|object| take(&mut self.by_object, *object, task));
        take(&mut self.by_room, executor, task);
        true
    }

    fn enter(&mut self, task: TaskId, apart: Apart) {
        for object in &apart.lacking {
            self.by_object.entry(*object).or_default().insert(task);
        }
        if matches!(apart.awaits, Awaits::Room) {
            self.by_room.entry(apart.executor).or_default().insert(task);
        }
        self.apart.insert(task, apart);
    }

    /// Forgets what is long over.
    fn forget_old(&mut self, now: Timestamp) {
        let is_over = |until: Timestamp| until.plus_ns(CUT_NS_MAX) < now;
        let old: Vec<_> = self.cuts.iter().filter(|(_, c)| is_over(c.until)).map(|(pair, _)| *pair).collect();
        old.iter().for_each(|(reader, holder)| self.end_cut(*reader, *holder));
        self.relays.retain(|_, relays| !is_over(relays.until));
    }

    /// Panics when the invariant of the module's header is broken. For tests.
    pub(super) fn check(&self, waits: &Waits) {
        for task in self.apart.keys() {
            assert_eq!(waits.n_missing.get(task), Some(&1), "{task:?} is apart");
        }
        assert!(self.by_room.values().flatten().all(|task| self.apart.contains_key(task)));
        assert!(self.by_object.values().flatten().all(|task| self.apart.contains_key(task)));
    }
}

/// How a file comes to an executor that reaches no holder of it.
enum Brought {
    Awaited(Awaits),
    /// In no way.
    Never,
}

impl Dispatcher {
    pub(super) fn on_peer_unreachable(&mut self, now: Timestamp, executor: ExecutorId, peer: ExecutorId) {
        if self.schedule.executors.by_id.contains_key(&executor) && self.reach.cut(now, executor, peer) {
            self.end_apart(now);
        }
    }

    /// Queues all tasks again that are apart: what executors reach has changed.
    pub(super) fn end_apart(&mut self, now: Timestamp) {
        for task in self.reach.apart.keys().copied().collect::<Vec<_>>() {
            self.queue_apart(now, task);
        }
    }

    fn queue_apart(&mut self, now: Timestamp, task: TaskId) {
        if self.reach.leave(task)
            && !self.waits_for_courier(now, task)
            && self.waits.n_missing.remove(&task).is_some()
        {
            self.work.run_mut(self.work.tasks.run_of(task)).tasks.n_waiting -= 1;
            self.schedule.requeue(&mut self.work, now, task);
        }
    }

    /// Time has passed.
    pub(super) fn tick_apart(&mut self, now: Timestamp) {
        let due: Vec<TaskId> =
            self.reach.apart.iter().filter(|(_, a)| a.until <= now).map(|(task, _)| *task).collect();
        due.into_iter().for_each(|task| self.queue_apart(now, task));
        self.reach.forget_old(now);
    }

    /// Tasks that were apart go on, where what they waited for is there.
    pub(super) fn settle_apart(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        for object in std::mem::take(&mut self.reach.stirred) {
            for task in self.reach.by_object.get(&object).cloned().unwrap_or_default() {
                self.queue_apart(now, task);
            }
        }
        for executor in self.reach.by_room.keys().copied().collect::<Vec<_>>() {
            for task in self.reach.by_room.get(&executor).cloned().unwrap_or_default() {
                if !self.has_room(task, executor) {
                    break;
                }
                self.queue_apart(now, task);
                let key = self.work.tasks.key_of(task);
                if self.schedule.ready.queue.contains(key) {
                    let n_inputs = self.work.task_spec(task).inputs.len() as u32;
                    let rule = Rule::Paper(Mode::MaxComputeUtil);
                    self.assign(
                        now,
                        executor,
                        &Pick { key, n_hits: 0, n_inputs, rule, stage: Stage::Idle },
                        out,
                    );
                }
            }
        }
    }

    fn has_room(&self, task: TaskId, executor: ExecutorId) -> bool {
        // Attempts whose inputs move do not count in an executor's room.
        let may_have_more = |e: &ExecutorState| e.cpus_assigned < 2 * e.offer.slots;
        self.schedule.executors.by_id.get(&executor).is_some_and(may_have_more)
            && !self.schedule.with_room(&self.work, task, &[executor]).is_empty()
    }

    fn is_able(&self, task: TaskId, executor: ExecutorId) -> bool {
        let Executors { by_id, resources, .. } = &self.schedule.executors;
        by_id.get(&executor).is_some_and(|e| resources.is_able(e, self.work.tasks.size_of(task)))
    }

    fn is_heard(&self, executor: ExecutorId) -> bool {
        self.schedule.executors.by_id.get(&executor).is_some_and(|e| e.silent_since.is_none())
    }

    /// Whether `executor` reaches the bytes of an input of a task of `run`.
    fn reaches(&self, now: Timestamp, executor: ExecutorId, run: RunId, object: ObjectId) -> bool {
        let stays = self.intermediates.has(object);
        if !stays && !self.residents.is_elsewhere(&self.schedule.executors, executor, run, object) {
            return true;
        }
        let may_read = |holder: ExecutorId| self.reach.may_read(now, executor, holder);
        let holders = || self.work.catalog.holders_of(object).filter(|h| self.is_heard(*h));
        if self.work.catalog.holds(executor, object) || holders().any(may_read) {
            return true;
        }
        let mut elsewhere = vec![];
        self.exchange.foreign_sources(executor, run, object, &mut elsewhere);
        elsewhere.extend(self.exchange.lent_to(object));
        // Of a file that nobody has, others find out why.
        elsewhere.iter().any(|h| may_read(*h)) || elsewhere.is_empty() && holders().next().is_none()
    }

    /// The executor that is to get `task`, which was chosen for `executor` and reads `objects`. `None`: the task waits.
    pub(super) fn way_round(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        task: TaskId,
        objects: &[ObjectId],
        out: &mut Vec<Action>,
    ) -> Option<ExecutorId> {
        let may_bind = self.may_bind(task, objects);
        if self.reach.couriers.bound.contains(&task) {
            if may_bind {
                return self.by_courier(now, executor, task, objects, out);
            }
            self.reach.couriers.bound.remove(&task);
        }
        let run = self.work.tasks.run_of(task);
        let size = self.work.tasks.size_of(task);
        let may_take = |e: &ExecutorState| {
            e.is_connected() && e.moving_to.is_none() && self.schedule.executors.resources.is_able(e, size)
        };
        let meant_for = self.reach.meant_for.get(&task).copied();
        let meant_for = meant_for.filter(|at| self.schedule.executors.by_id.get(at).is_some_and(may_take));
        let lacking_at = |at: ExecutorId| {
            let mut lacking = objects.to_vec();
            lacking.retain(|object| !self.reaches(now, at, run, *object));
            lacking
        };
        if meant_for.is_none_or(|at| at == executor) && lacking_at(executor).is_empty() {
            return Some(executor);
        }
        let size_of = |o: &ObjectId| self.work.catalog.size_bytes(*o).unwrap_or(0);
        let able = self.schedule.executors.by_id.iter().filter(|(_, e)| may_take(e));
        let able = able.filter(|(id, _)| meant_for.is_none_or(|at| at == **id));
        let choices = able.map(|(id, e)| {
            let lacking = lacking_at(*id);
            let bytes: u64 = lacking.iter().map(size_of).sum();
            let is_busy = !self.has_room(task, *id);
            // What was begun for the task is not begun anew elsewhere.
            let is_made = lacking.iter().any(|object| self.is_being_made(*object, *id));
            let lacks_import = lacking.iter().any(|object| self.is_import(run, *object));
            (((lacks_import, !lacking.is_empty()), !is_made, is_busy, bytes, e.assigned.len(), *id), lacking)
        });
        let Some((((lacks_import, lacks), _, is_busy, _, _, at), lacking)) =
            choices.min_by_key(|(rank, _)| *rank)
        else {
            return Some(executor);
        };
        if !lacks && !is_busy {
            return Some(at);
        }
        if lacks_import {
            if !may_bind {
                return Some(executor);
            }
            self.reach.couriers.bound.insert(task);
            return self.by_courier(now, executor, task, objects, out);
        }
        // Files that exist once come together on the same executor for all their readers, if it can run all their makers.
        let makers = objects.iter().filter_map(|o| self.intermediates.files.get(o)?.maker);
        let is_carried = may_bind && self.has_courier_for(makers.clone());
        let makers: Vec<TaskSize> = makers.map(|maker| self.work.tasks.size_of(maker)).collect();
        let rank = |(id, e): &(&ExecutorId, &ExecutorState)| {
            let n_able = makers.iter().filter(|m| self.schedule.executors.resources.is_able(e, **m)).count();
            (n_able, e.offer.memory_bytes, e.offer.slots, std::cmp::Reverse(**id))
        };
        let able = self.schedule.executors.by_id.iter().filter(|(_, e)| may_take(e));
        let together = able.max_by_key(rank).map_or(at, |(id, _)| *id);
        if meant_for.is_none() && lacking.iter().any(|object| self.needs_revival(now, *object, at)) {
            if is_carried {
                self.reach.couriers.bound.insert(task);
            } else {
                self.reach.meant_for.insert(task, together);
            }
            return self.way_round(now, executor, task, objects, out);
        }
        let mut awaits = Awaits::Room;
        for object in &lacking {
            match self.bring(now, *object, at, out) {
                Brought::Awaited(way) => awaits = way,
                Brought::Never => return Some(executor),
            }
        }
        self.go_apart(task, Apart { executor: at, lacking, awaits, until: now.plus_ns(APART_NS) });
        None
    }

    /// A ready task waits.
    fn go_apart(&mut self, task: TaskId, apart: Apart) {
        self.schedule.take_ready(&mut self.work, task);
        self.waits.n_missing.insert(task, 1);
        self.work.run_mut(self.work.tasks.run_of(task)).tasks.n_waiting += 1;
        self.reach.enter(task, apart);
    }

    /// Has a file brought to where `at`, which reaches none of its holders, can get it.
    fn bring(&mut self, now: Timestamp, object: ObjectId, at: ExecutorId, out: &mut Vec<Action>) -> Brought {
        if let Some(third) = self.relay(now, object, at) {
            return Brought::Awaited(Awaits::Copy(third));
        }
        let maker = self.intermediates.files.get(&object).and_then(|file| file.maker);
        let Some(maker) = maker else { return Brought::Never };
        if self.work.tasks.end_of(maker) != End::Done {
            return Brought::Awaited(Awaits::Again(at));
        }
        if self.reruns.is_at(maker, at) {
            return Brought::Awaited(Awaits::Again(at));
        }
        if self.may_make_at(now, maker, at) {
            if self.able_to_rerun(maker, &[at]).is_empty() {
                return Brought::Awaited(Awaits::Room);
            }
            *self.reach.n_reruns.entry((maker, at)).or_default() += 1;
            if self.courier_here() == Some(at) {
                self.reach.couriers.count_rerun(maker);
            }
            self.rerun_task(now, maker, &[at], None);
            return Brought::Awaited(Awaits::Again(at));
        }
        let has_run_often = self.intermediates.revivals.get(&maker).is_some_and(|n| *n >= REVIVALS_MAX);
        if has_run_often || !self.is_able(maker, at) {
            return Brought::Never;
        }
        if self.courier_here() == Some(at) {
            self.reach.couriers.bound.insert(maker);
        } else {
            self.reach.meant_for.insert(maker, at);
        }
        self.revive(now, maker, object, out);
        Brought::Awaited(Awaits::Again(at))
    }

    /// Whether a rerun makes the file at that executor now.
    fn is_being_made(&self, object: ObjectId, at: ExecutorId) -> bool {
        let maker = self.intermediates.files.get(&object).and_then(|file| file.maker);
        maker.is_some_and(|maker| self.reruns.is_at(maker, at))
    }

    /// Whether nothing less than a revival brings the file to `at`.
    fn needs_revival(&mut self, now: Timestamp, object: ObjectId, at: ExecutorId) -> bool {
        let maker = self.intermediates.files.get(&object).and_then(|file| file.maker);
        maker.is_some_and(|maker| {
            self.work.tasks.end_of(maker) == End::Done
                && !self.reruns.is_at(maker, at)
                && self.find_relay(now, object, at).is_none()
                && !self.may_make_at(now, maker, at)
        })
    }

    /// Has a third executor copy the file for `at`, where there is one that leads there.
    fn relay(&mut self, now: Timestamp, object: ObjectId, at: ExecutorId) -> Option<ExecutorId> {
        let third = self.find_relay(now, object, at)?;
        let relays = self.reach.relays.entry(object).or_default();
        if !relays.tried.contains(&third) {
            relays.tried.push(third);
            relays.until = now.plus_ns(RELAY_NS);
            self.moves.copy_to(&self.work, now, third, &[object], self.exchange.is_lent(object));
        }
        Some(third)
    }

    /// The third executor that copies the file for `at`, or that should be asked to.
    fn find_relay(&self, now: Timestamp, object: ObjectId, at: ExecutorId) -> Option<ExecutorId> {
        let size_bytes = self.work.catalog.size_bytes(object).unwrap_or(0);
        // Not over an executor of which only ways that do not work are known, so that few are tried that lead nowhere.
        let may_go = |reader: ExecutorId, holder: ExecutorId| {
            let reach = &self.reach;
            let n_readers = || reach.readers.get(&holder).map_or(0, BTreeSet::len);
            (reach.has_read.contains(&reader) || reach.cuts_of(reader).count() < 2)
                && (reach.has_served.contains(&holder) || n_readers() < 2)
                && reach.may_read(now, reader, holder)
        };
        let is_way = |third: &ExecutorId| {
            let mut holders = self.work.catalog.holders_of(object);
            let gets_it =
                holders.any(|holder| self.is_heard(holder) && self.reach.may_read(now, *third, holder));
            gets_it && self.reach.may_read(now, at, *third)
        };
        let none = Relays::default();
        let relays = self.reach.relays.get(&object).unwrap_or(&none);
        if let Some(last) = relays.tried.last()
            && now < relays.until
            && self.is_heard(*last)
            && is_way(last)
        {
            return Some(*last);
        }
        if relays.tried.len() >= RELAYS_MAX {
            return None;
        }
        let nodes = self.schedule.executors.receivers(size_bytes);
        let is_new = |third: &ExecutorId| {
            *third != at && !relays.tried.contains(third) && !self.work.catalog.holds(*third, object)
        };
        let holders: Vec<ExecutorId> =
            self.work.catalog.holders_of(object).filter(|h| self.is_heard(*h)).collect();
        let leads =
            |third: &ExecutorId| may_go(at, *third) && holders.iter().any(|holder| may_go(*third, *holder));
        let able = nodes.keys().copied().filter(|e| is_new(e) && leads(e));
        able.min_by_key(|e| (nodes[e], *e))
    }

    /// Whether a rerun of `maker`, which is done, can make the same files at `at`.
    fn may_make_at(&mut self, now: Timestamp, maker: TaskId, at: ExecutorId) -> bool {
        if self.reach.n_reruns.get(&(maker, at)).is_some_and(|n| *n >= RERUNS_MAX)
            || self.reach.couriers.has_rerun_often(maker) && self.courier_here() == Some(at)
            || !self.reruns.may_rerun(&mut self.work, &self.intermediates, maker)
        {
            return false;
        }
        if !self.is_able(maker, at) {
            return false;
        }
        let run = self.work.tasks.run_of(maker);
        let (array, i) = self.work.tasks.locate(maker);
        let array = self.work.tasks.arrays[array.0 as usize].array.clone();
        self.work.inputs_of(run, &array, i).iter().all(|object| {
            let (work, intermediates) = (&self.work, &self.intermediates);
            let is_there = |file: &Intermediate| !file.dropped && work.catalog.n_holders(*object) > 0;
            // What another dispatcher says of a file it says to those who read it, and the maker has read it.
            let is_known = !work.catalog.location(*object).stays()
                || work.catalog.holds(at, *object)
                || self.exchange.owner_elsewhere(work, intermediates, run, *object).is_none()
                || matches!(self.exchange.import_state((run, *object)), Some(FileState::Held { .. }));
            is_known
                && intermediates.files.get(object).is_none_or(is_there)
                && self.reaches(now, at, run, *object)
        })
    }

    /// The names that users know executors by.
    fn name_of(&self, executor: ExecutorId) -> String {
        match self.schedule.executors.by_id.get(&executor) {
            Some(e) => format!("node `{}`", e.offer.name),
            None => format!("executor {executor} of another dispatcher"),
        }
    }

    /// What a task that is apart waits for, as a phrase; `None`: the task is not apart.
    pub(super) fn why_apart(&self, task: TaskId) -> Option<String> {
        let Apart { executor, lacking, awaits, .. } = self.reach.apart.get(&task)?;
        if let Awaits::Courier { called } = awaits {
            return Some(self.why_not_carried(lacking, *called));
        }
        let at = self.name_of(*executor);
        let Some(object) = lacking.first() else {
            return Some(format!("room on {at}, as other nodes cannot reach the nodes that hold its inputs"));
        };
        let mut why = shown(&self.work.catalog.location(*object).written().text()).to_string();
        match self.work.catalog.holders_of(*object).next() {
            Some(holder) => _ = write!(why, ", as {at} cannot reach {}, which has it", self.name_of(holder)),
            None => _ = write!(why, ", as {at} cannot reach a node that has it"),
        }
        match awaits {
            Awaits::Room => why += ": its maker runs once more there when there is room",
            Awaits::Copy(third) => _ = write!(why, ": it goes there by way of {}", self.name_of(*third)),
            Awaits::Again(at) => _ = write!(why, ": its maker runs once more, on {}", self.name_of(*at)),
            Awaits::Courier { .. } => {}
        }
        Some(why)
    }

    /// A sentence for each pair of executors of which one cannot reach the other.
    pub fn out_of_reach(&self) -> Vec<String> {
        let pairs = self.reach.cuts.keys();
        let mut sentences: Vec<String> = pairs
            .take(CUTS_NAMED)
            .map(|(reader, holder)| {
                format!(
                    "{} cannot reach {}: files that it needs from there go by way of a third node, or are made again",
                    self.name_of(*reader),
                    self.name_of(*holder)
                )
            })
            .collect();
        if self.reach.cuts.len() > CUTS_NAMED {
            let n = self.reach.cuts.len() - CUTS_NAMED;
            sentences.push(format!("{n} more pairs of nodes cannot reach each other"));
        }
        sentences
    }
}
