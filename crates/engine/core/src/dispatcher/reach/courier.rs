//! The courier of a group of dispatchers: an executor that goes from one dispatcher to another and takes files along.
//!
//! A file of another dispatcher is only made again by its owner, and only the reader's dispatcher knows which executors reach its
//! holders. Where none of them does, the task is *bound* to the courier, and so is a maker that runs again for it. The courier gets
//! the file at the owner, in one of the four ways of [`super`], comes here with it, and runs the task.
//!
//! - There is one courier in the group, the largest executor, and the first member chooses it when a member *calls* for one. The
//!   others learn it with the first member's load, and a member that starts again learns it from any. Each member gives the courier
//!   another number, so its name says who it is. A courier that no member has had for a while is replaced. Until then it counts as
//!   an executor that may come to any member: on its way it is in nobody's load, and a task that it is large enough for waits for it.
//! - The reader's dispatcher asks the owner to have the courier take the file (`Carry`), and hears from the file's state whether it
//!   has it. It asks again from time to time, so that nothing has to be written down.
//! - A member calls when the courier could do something there *now*: run a bound task whose foreign files it carries, or get a file
//!   that was asked for and whose maker is done. Files and tasks have no circle, so some member calls as long as a task is bound.
//! - The courier stays while the member needs it, then goes to the next member that calls. It never waits for another member.
//!
//! So a file that exists once is made again for the courier once, however many dispatchers and executors read it, as long as the
//! courier keeps its copy.
//!
//! Once a group has a courier, it is also the one executor to which readers of files go that exist once.

use super::{APART_NS, Apart, Awaits, Brought};
use crate::dispatcher::{Dispatcher, End, Exchange, Executors, Workload};
use crate::event::Action;
use crate::group::{Carried, Courier, FileState};
use eyas_terms::{ExecutorId, MemberId, ObjectId, RunId, TaskId, Timestamp};
use eyas_text::shown;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

type Key = (RunId, ObjectId);

/// A courier that no member has had for this long is replaced.
const AWAY_NS: u64 = 60_000_000_000;
/// The courier is asked again to copy a file after this time.
const COPY_NS: u64 = 10_000_000_000;

/// So often at most a maker is rerun on the courier, the courier gets a file, and it is to bring a task its inputs: what its cache does
/// not keep until it is read would be made and brought for ever.
const TRIES_MAX: u32 = 16;

/// A file of ours that another member wants the courier to have.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// When the courier was asked to fetch it.
    asked: Option<Timestamp>,
    /// There is no way in which the courier could get it and keep it.
    never: bool,
    /// The courier, which is here, has it.
    had: bool,
    /// On this visit, the courier could not copy it or has dropped it for another file.
    missed: bool,
    /// How often that was so, and how often it was asked again to get it.
    n_misses: u32,
}

impl Wanted {
    /// The courier could not copy it or has dropped it. `false`: that was so too often.
    fn miss(&mut self) -> bool {
        self.missed = true;
        self.n_misses += 1;
        self.n_misses < TRIES_MAX
    }

    /// The courier, which is here, has it or not. `false`: it was missing too often.
    fn look(&mut self, has: bool) -> bool {
        if std::mem::replace(&mut self.had, has) && !has {
            self.miss();
        }
        self.n_misses < TRIES_MAX
    }
}

/// See the module.
#[derive(Default)]
pub(in crate::dispatcher) struct Couriers {
    chosen: Option<Courier>,
    /// When some member had the courier last.
    seen: Timestamp,
    /// Tasks here that run on the courier alone.
    pub(super) bound: BTreeSet<TaskId>,
    wanted: BTreeMap<Key, Wanted>,
    /// Our files of which the courier took copies along when it left, with the number that it had here.
    took: BTreeMap<ObjectId, ExecutorId>,
    /// How often makers were rerun on the courier.
    n_reruns: BTreeMap<TaskId, u32>,
    /// How often the courier came for a task and had lost an input on its way.
    n_losses: BTreeMap<TaskId, u32>,
}

impl Couriers {
    fn is_called(&self, name: &str) -> bool {
        self.chosen.as_ref().is_some_and(|courier| courier.name == name)
    }

    /// The courier, as far as it is here.
    fn find(&self, executors: &Executors) -> Option<ExecutorId> {
        let name = &self.chosen.as_ref()?.name;
        executors.by_id.iter().find(|(_, e)| e.offer.name == *name).map(|(id, _)| *id)
    }

    /// Another member wants the courier to have our file.
    pub(in crate::dispatcher) fn want(&mut self, exchange: &mut Exchange, key: Key) {
        self.wanted.entry(key).or_default();
        // It would not ask, had the courier come with the file.
        if let Some(executor) = self.took.remove(&key.1) {
            exchange.unlend(key.1, executor);
        }
    }

    /// No member reads the file any more.
    pub(in crate::dispatcher) fn unwant(&mut self, key: Key) {
        self.wanted.remove(&key);
    }

    /// What other members hear of our file.
    pub(in crate::dispatcher) fn carries(
        &self,
        work: &Workload,
        executors: &Executors,
        exchange: &Exchange,
        key: Key,
    ) -> Carried {
        let here = self.find(executors).is_some_and(|courier| work.catalog.holds(courier, key.1));
        let took = || self.took.get(&key.1).is_some_and(|e| exchange.lent_to(key.1).any(|lent| lent == *e));
        match self.wanted.get(&key) {
            _ if here || took() => Carried::Yes,
            Some(Wanted { never: true, .. }) => Carried::Never,
            _ => Carried::No,
        }
    }

    /// An executor of that name has joined.
    pub(in crate::dispatcher) fn joined(&mut self, exchange: &mut Exchange, name: &str) {
        if self.is_called(name) {
            for wanted in self.wanted.values_mut() {
                (wanted.had, wanted.missed) = (false, false);
            }
            // It says itself what it has.
            for (object, executor) in std::mem::take(&mut self.took) {
                exchange.unlend(object, executor);
            }
        }
    }

    /// An executor of that name went to another member, with these files.
    pub(in crate::dispatcher) fn left(
        &mut self,
        exchange: &Exchange,
        name: &str,
        executor: ExecutorId,
        objects: &[ObjectId],
    ) {
        if self.is_called(name) {
            let lent =
                objects.iter().filter(|object| exchange.lent_to(**object).any(|lent| lent == executor));
            self.took.extend(lent.map(|object| (*object, executor)));
        }
    }

    pub(super) fn count_rerun(&mut self, maker: TaskId) {
        *self.n_reruns.entry(maker).or_default() += 1;
    }

    /// Whether the courier has run the maker again so often that it would do so for ever.
    pub(super) fn has_rerun_often(&self, maker: TaskId) -> bool {
        self.n_reruns.get(&maker).is_some_and(|n| *n >= TRIES_MAX)
    }

    /// The task has ended, as one that waited or was revived, or its run is forgotten.
    pub(in crate::dispatcher) fn forget(&mut self, task: TaskId) {
        self.n_reruns.remove(&task);
        self.n_losses.remove(&task);
    }

    /// The run is forgotten.
    pub(in crate::dispatcher) fn forget_run(&mut self, exchange: &Exchange, run: RunId) {
        self.wanted.retain(|key, _| key.0 != run);
        self.took.retain(|object, executor| exchange.lent_to(*object).any(|lent| lent == *executor));
    }
}

impl Dispatcher {
    /// The courier, where it is here and takes tasks.
    pub(super) fn courier_here(&self) -> Option<ExecutorId> {
        let executors = &self.schedule.executors;
        let takes =
            |id: &ExecutorId| executors.by_id[id].is_connected() && executors.by_id[id].moving_to.is_none();
        self.reach.couriers.find(executors).filter(takes)
    }

    /// Whether the file comes from another dispatcher and lies on its nodes.
    pub(super) fn is_import(&self, run: RunId, object: ObjectId) -> bool {
        let state = self.exchange.import_state((run, object));
        state.is_some_and(|state| *state != FileState::AtHome)
    }

    /// Whether the courier may run `task` and get its `objects`, as far as is known.
    pub(super) fn may_bind(&self, task: TaskId, objects: &[ObjectId]) -> bool {
        let run = self.work.tasks.run_of(task);
        let can_come = |object: &ObjectId| {
            let state = self.exchange.import_state((run, *object));
            !matches!(state, Some(FileState::Held { carried: Carried::Never, .. }))
        };
        let is_in_vain = || self.reach.couriers.n_losses.get(&task).is_some_and(|n| *n >= TRIES_MAX);
        self.exchange.group.is_some()
            && !is_in_vain()
            && self.reach.couriers.chosen.as_ref().is_none_or(|courier| self.is_able_as(task, courier))
            && objects.iter().all(can_come)
    }

    /// Whether there is a courier, which can run the tasks.
    pub(super) fn has_courier_for(&self, mut tasks: impl Iterator<Item = TaskId>) -> bool {
        let chosen = self.reach.couriers.chosen.as_ref();
        chosen.is_some_and(|courier| tasks.all(|task| self.is_able_as(task, courier)))
    }

    fn is_able_as(&self, task: TaskId, courier: &Courier) -> bool {
        let size = self.work.tasks.size_of(task);
        self.schedule.executors.resources.full_size(size).is_within(&courier.size)
    }

    /// The executor that is to get `task`, which is bound to the courier and was chosen for `executor`. `None`: the task waits.
    pub(super) fn by_courier(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        task: TaskId,
        objects: &[ObjectId],
        out: &mut Vec<Action>,
    ) -> Option<ExecutorId> {
        let run = self.work.tasks.run_of(task);
        let Some(at) = self.courier_here() else {
            let apart = self.await_courier(now, run, objects);
            self.go_apart(task, apart);
            return None;
        };
        // Whether the courier reaches holders elsewhere need not be tried, as it goes to the owner anyway.
        let mut lacking = objects.to_vec();
        lacking.retain(|object| match self.is_import(run, *object) {
            true => !self.work.catalog.holds(at, *object),
            false => !self.reaches(now, at, run, *object),
        });
        let imports: Vec<ObjectId> = lacking.iter().copied().filter(|o| self.is_import(run, *o)).collect();
        let mut awaits = Awaits::Room;
        if !imports.is_empty() {
            let carried =
                |o: &ObjectId| self.exchange.import_state((run, *o)).is_some_and(FileState::is_carried);
            if imports.iter().all(carried) {
                *self.reach.couriers.n_losses.entry(task).or_default() += 1;
            }
            imports.iter().for_each(|object| self.exchange.ask_to_carry(&self.work, (run, *object)));
            awaits = Awaits::Courier { called: false };
        } else if lacking.is_empty() && (executor == at || self.has_room(task, at)) {
            return Some(at);
        } else {
            for object in &lacking {
                match self.bring(now, *object, at, out) {
                    Brought::Awaited(way) => awaits = way,
                    Brought::Never => {
                        self.reach.couriers.bound.remove(&task);
                        return Some(executor);
                    }
                }
            }
        }
        self.go_apart(task, Apart { executor: at, lacking, awaits, until: now.plus_ns(APART_NS) });
        None
    }

    /// What a bound task does while the courier is elsewhere.
    fn await_courier(&mut self, now: Timestamp, run: RunId, objects: &[ObjectId]) -> Apart {
        let imports: Vec<ObjectId> = objects.iter().copied().filter(|o| self.is_import(run, *o)).collect();
        let mut called = true;
        if self.reach.couriers.chosen.is_some() {
            for object in &imports {
                if !self.exchange.import_state((run, *object)).is_some_and(FileState::is_carried) {
                    self.exchange.ask_to_carry(&self.work, (run, *object));
                    called = false;
                }
            }
        }
        let (executor, until) = (ExecutorId(0), now.plus_ns(APART_NS));
        Apart { executor, lacking: imports, awaits: Awaits::Courier { called }, until }
    }

    /// A task that is apart no more goes on waiting for the courier. `false`: it does not, as it is not bound, or something else
    /// has to be seen to first.
    pub(super) fn waits_for_courier(&mut self, now: Timestamp, task: TaskId) -> bool {
        if !self.reach.couriers.bound.contains(&task) || self.courier_here().is_some() {
            return false;
        }
        let (array, i) = self.work.tasks.locate(task);
        let run = self.work.tasks.run_of(task);
        let array = self.work.tasks.arrays[array.0 as usize].array.clone();
        let objects = self.work.inputs_of(run, &array, i);
        let executors = &self.schedule.executors;
        let missing = self.exchange.missing_imports(&mut self.work, executors, &self.intermediates, task);
        if missing != Ok(vec![]) || !self.may_bind(task, &objects) {
            return false;
        }
        let apart = self.await_courier(now, run, &objects);
        self.reach.enter(task, apart);
        true
    }

    /// Gets files for the courier that is here, which other members want it to have.
    pub(in crate::dispatcher) fn load_courier(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.reach.couriers.wanted.is_empty() || self.schedule.attempts.hold_until.is_some() {
            return;
        }
        let Some(at) = self.courier_here() else { return };
        for ((_, object), wanted) in &mut self.reach.couriers.wanted {
            if !wanted.never && !wanted.look(self.work.catalog.holds(at, *object)) {
                wanted.never = true;
                self.exchange.touch_export(&self.work, &self.intermediates, *object);
            }
        }
        let keys: Vec<Key> =
            self.reach.couriers.wanted.keys().copied().filter(|key| self.is_due(*key)).collect();
        for (run, object) in keys {
            let is_reached = self.reaches(now, at, run, object);
            let is_lost = !is_reached && matches!(self.bring(now, object, at, out), Brought::Never);
            let Some(wanted) = self.reach.couriers.wanted.get_mut(&(run, object)) else { continue };
            if is_lost {
                wanted.never = true;
                self.exchange.touch_export(&self.work, &self.intermediates, object);
            } else if is_reached
                && wanted.asked.is_none_or(|at| now.since_ns(at) >= COPY_NS)
                && !self.moves.collectives.awaits(object)
            {
                if wanted.asked.is_some() && !wanted.miss() {
                    wanted.never = true;
                    self.exchange.touch_export(&self.work, &self.intermediates, object);
                    continue;
                }
                if wanted.asked.is_some() && self.work.catalog.n_holders(object) == 0 {
                    // Executors that went to other dispatchers do not give it. So it is lost, and made again.
                    self.exchange.unlend_all(object);
                    self.exchange.touch_export(&self.work, &self.intermediates, object);
                }
                wanted.asked = Some(now);
                self.moves.copy_to(&self.work, now, at, &[object], self.exchange.is_lent(object));
            }
        }
    }

    /// Whether the courier could get a file that it is wanted to have, and lacks it.
    fn is_due(&self, key: Key) -> bool {
        let maker = self.exchange.maker_of_export(&self.intermediates, key);
        self.intermediates.has(key.1)
            && maker.is_some_and(|maker| self.work.tasks.end_of(maker) == End::Done)
            && self.reach.couriers.carries(&self.work, &self.schedule.executors, &self.exchange, key)
                == Carried::No
    }

    /// Whether a bound task could be given to the courier, or was.
    fn is_bound_ready(&self, task: TaskId) -> bool {
        self.work.tasks.end_of(task) == End::Not && !self.waits.n_missing.contains_key(&task)
    }

    /// Whether the courier, which is elsewhere, could do something here now.
    pub(in crate::dispatcher) fn calls_courier(&self) -> bool {
        let is_called = |apart: &Apart| matches!(apart.awaits, Awaits::Courier { called: true });
        self.courier_here().is_none()
            && (self.reach.apart.values().any(is_called)
                || self.reach.couriers.bound.iter().any(|task| self.is_bound_ready(*task))
                || self.reach.couriers.wanted.keys().any(|key| self.is_due(*key)))
    }

    /// Whether `executor` is the courier and has something to do here.
    pub(in crate::dispatcher) fn needs_courier(&self, executor: ExecutorId) -> bool {
        let is_for_it =
            |apart: &Apart| apart.executor == executor && !matches!(apart.awaits, Awaits::Courier { .. });
        self.courier_here() == Some(executor)
            && (self.reach.apart.values().any(is_for_it)
                || self.reruns.load_on(executor).0 > 0
                || self.reach.couriers.bound.iter().any(|task| self.is_bound_ready(*task))
                // Where not all fits its cache, it goes with what it has.
                || self.reach.couriers.wanted.iter().any(|(key, wanted)| !wanted.missed && self.is_due(*key)))
    }

    /// The courier has nothing to do here: it goes to the next member that calls.
    pub(in crate::dispatcher) fn send_courier(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let (Some(at), Some(group)) = (self.courier_here(), self.exchange.group) else { return };
        if self.schedule.attempts.hold_until.is_some() || self.needs_courier(at) {
            return;
        }
        let next = (1..group.n_members).map(|i| MemberId((group.me.0 + i) % group.n_members));
        let calls = |member: &MemberId| self.exchange.loads.get(member).is_some_and(|load| load.calls);
        if let Some(to) = next.into_iter().find(calls) {
            self.send_away(now, at, to, out);
        }
    }

    /// The executor here that is the courier, or that may become it.
    pub(in crate::dispatcher) fn courier_candidate(&self) -> Option<Courier> {
        let by_id = &self.schedule.executors.by_id;
        let courier = |id: &ExecutorId| {
            let offer = &by_id[id].offer;
            Courier { name: offer.name.clone(), size: offer.size() }
        };
        let stays = by_id.iter().filter(|(_, e)| e.is_connected() && e.offer.walltime.is_none());
        let largest = || stays.max_by_key(|(id, e)| (e.offer.memory_bytes, e.offer.slots, Reverse(**id)));
        self.reach
            .couriers
            .find(&self.schedule.executors)
            .or_else(|| largest().map(|(id, _)| *id))
            .as_ref()
            .map(courier)
    }

    /// Notes whether some member has the courier. The first member chooses it when a member calls, and another one when it is gone.
    pub(in crate::dispatcher) fn choose_courier(&mut self, now: Timestamp) {
        let there = self.exchange.loads.values().filter_map(|load| load.candidate.clone());
        let candidates: Vec<Courier> = self.courier_candidate().into_iter().chain(there).collect();
        let couriers = &mut self.reach.couriers;
        if candidates.iter().any(|candidate| couriers.is_called(&candidate.name)) {
            couriers.seen = now;
        }
        let lasts = now.since_ns(couriers.seen) < AWAY_NS;
        self.exchange.courier =
            couriers.chosen.as_ref().filter(|_| lasts).map(|courier| courier.size.clone());
        let is_first = self.exchange.group.is_some_and(|group| group.me == MemberId(0));
        if !is_first || self.exchange.courier.is_some() {
            return;
        }
        let is_wanted = couriers.chosen.is_some()
            || self.calls_courier()
            || self.exchange.loads.values().any(|load| load.calls);
        let rank = |c: &Courier| (c.size.memory_bytes, c.size.cpu_parts, Reverse(c.name.clone()));
        if let Some(courier) = candidates.into_iter().max_by_key(rank).filter(|_| is_wanted) {
            self.set_courier(now, courier);
        }
    }

    /// The courier, for the load that is told to other members.
    pub(in crate::dispatcher) fn told_courier(&self) -> Option<Courier> {
        self.reach.couriers.chosen.clone()
    }

    /// A member says who the courier is. The first one knows best; what the others say is for a member that has just started.
    pub(in crate::dispatcher) fn hear_of_courier(
        &mut self,
        now: Timestamp,
        member: MemberId,
        courier: &Courier,
    ) {
        let couriers = &self.reach.couriers;
        let is_news =
            couriers.chosen.is_none() || member == MemberId(0) && !couriers.is_called(&courier.name);
        if is_news {
            self.set_courier(now, courier.clone());
        }
    }

    /// What a bound task that is apart waits for, as a phrase.
    pub(super) fn why_not_carried(&self, lacking: &[ObjectId], called: bool) -> String {
        let courier = match &self.reach.couriers.chosen {
            Some(courier) => format!("node `{}`", courier.name),
            None => "a node that is still to be chosen".into(),
        };
        let Some(object) = lacking.first().filter(|_| !called) else {
            return format!("{courier}, which is at another dispatcher and is to come with its inputs");
        };
        let file = self.work.catalog.location(*object).written().text();
        let file = shown(&file);
        format!(
            "{file}, as no node here reaches a node that has it: {courier} brings it from another dispatcher"
        )
    }

    fn set_courier(&mut self, now: Timestamp, courier: Courier) {
        let couriers = &mut self.reach.couriers;
        (couriers.chosen, couriers.seen) = (Some(courier), now);
        couriers.took.clear();
        couriers.wanted.values_mut().for_each(|wanted| *wanted = Wanted::default());
        // Two places at which files come together would take them from each other.
        couriers.bound.extend(std::mem::take(&mut self.reach.meant_for).into_keys());
        self.exchange.touch_all_exports();
        self.end_apart(now);
    }
}
