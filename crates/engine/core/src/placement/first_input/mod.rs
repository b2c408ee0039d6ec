//! `first-input` and `first-input-steal`: each node has its own queue; idle nodes may take tasks from their
//! neighbours' queues.
//!
//! Source: Zhang12 §V-I. "A task with multiple input files will be dispatched to where the first input file is. Thus, a
//! starving situation might occur, where some AME workers are busy and have extra tasks in their queues, while other AME
//! workers are idle with empty queues. [...] When a AME worker is idle, it will try to steal a task from its neighbors."
//! §VI-B2a: "we limit stealing to a compute node's neighbors (on BG/P, we choose neighbors on the 3D torus network)".
//!
//! Not the default, because a task is bound to a node before anybody knows how long the other tasks there
//! take. Without stealing, slots are idle while tasks queue elsewhere; with stealing, slots are idle when all
//! neighbours are idle, too. Only the first input counts, however small it is beside the others. `affinity`
//! binds a task when there is a slot for it, and looks at bytes. This policy is here for comparison (`eyas-lab
//! sim stealing`, decision 0023).
//!
//! Readings:
//!   - *when*: a task is bound when it becomes ready, so that what another task writes is held by then. Bound stays bound,
//!     whatever moves later, until the task is stolen or its node is lost or leaves: then it is bound anew;
//!   - *the first input*: as the task lists them;
//!   - *where it is*: of several holders the one with the shortest queue, then the lowest seat. The paper's files have
//!     one holder, or come from a multicast, of which it says nothing;
//!   - *nobody holds it, or there is none*: the nodes in turn, by seat, as dispatchers hand out tasks in §IV. The paper's nodes are there
//!     from the beginning; ours join one by one, so tasks that were dealt in turn are dealt anew when a node joins;
//!   - *a node too small for the task* is passed over; the paper's tasks take one core each;
//!   - *a queue* gives its tasks in queue order; one that does not fit now does not block those behind it;
//!   - *idle*: there are idle slots, and nothing in the node's own queue fits them;
//!   - *neighbours*: the nodes, in the order of their seats, fill a torus `x * y * z` of exactly their number, as near to a cube
//!     as its divisors allow (64 nodes: 4 * 4 * 4; a prime number: a ring). Each has up to 6, asked in the order
//!     +x, -x, +y, -y, +z, -z;
//!   - *which task is stolen*: one, the last in the neighbour's queue that fits: it would have to wait longest there;
//!   - *ahead* (not in the paper): a node is given tasks ahead of free slots from its own queue only. Its queue is here and not with the node,
//!     so that what it has been given ahead cannot be stolen; near the end of the work nothing is given ahead.
//!
//! Invariants, checked by `sanity_check` in tests: every task is in the queue of a node that is large enough
//! for it, or in no queue if there is no such node; all counts equal their recomputation.
//!
//! Cost: logarithmic in the queue, times the different sizes (cpus, memory) of its tasks; entering costs one step per holder. A
//! node that joins costs one step per task that was dealt in turn.
//!
//! Not here: which tasks are ready, where inputs are fetched from (`dispatcher`).

use super::queue::Queue;
use super::{Lasts, NeedsId, Pick, QueueKey, ReadyTask, Reason, Room, Rule, Stage, TaskSize, Unplaced};
use crate::catalog::Catalog;
use crate::executor_set::{Seat, SeatSet};
use eyas_terms::{ExecutorId, ObjectId, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[cfg(test)]
mod tests;
mod torus;

pub use torus::Torus;

pub const NAME: &str = "first-input";
pub const NAME_STEAL: &str = "first-input-steal";

/// See the module.
pub struct FirstInput {
    steals: bool,
    capacity: usize,
    n_tasks_max: usize,
    tasks: BTreeMap<QueueKey, Task>,
    /// Tasks that are in no node's queue.
    unbound: Bag,
    /// By seat.
    seated: Vec<Option<SeatedExecutor>>,
    is_seated: SeatSet,
    seat_of: FxHashMap<ExecutorId, Seat>,
    n_slots_total: u64,
    n_slots_idle: u64,
    /// The seat that the next task dealt in turn goes to; if it is not usable, one of the next.
    turn: u32,
    /// A node has joined, so the tasks that were dealt in turn are dealt anew.
    deals_again: bool,
    /// Executors in the order of seats, and the place of each seat in that order; empty when the order has to
    /// be computed again.
    ranks: Vec<Seat>,
    rank_of: Vec<u32>,
    torus: Torus,
    /// Nodes that may have a task to run and have not been tried.
    has_work: SeatSet,
    may_steal: SeatSet,
    has_ahead: SeatSet,
}

struct Task {
    inputs: Vec<ObjectId>,
    first: Option<ObjectId>,
    wants: Wants,
    at: Option<Seat>,
    /// The task was dealt in turn.
    dealt: bool,
}

struct SeatedExecutor {
    id: ExecutorId,
    room: Room,
    queue: Bag,
}

/// What a task wants of a node: its size, and time.
type Wants = (TaskSize, Lasts);

/// Tasks by what they want.
#[derive(Default)]
struct Bag {
    by_wants: BTreeMap<Wants, BTreeSet<QueueKey>>,
    len: usize,
}

impl Bag {
    fn insert(&mut self, wants: Wants, key: QueueKey) {
        self.len += usize::from(self.by_wants.entry(wants).or_default().insert(key));
    }

    fn remove(&mut self, wants: Wants, key: QueueKey) {
        let Some(keys) = self.by_wants.get_mut(&wants) else { return };
        self.len -= usize::from(keys.remove(&key));
        if keys.is_empty() {
            self.by_wants.remove(&wants);
        }
    }

    /// The tasks that fit `room`, one set for all with the same wants.
    fn fitting(&self, room: Room, stage: Stage) -> impl Iterator<Item = &BTreeSet<QueueKey>> {
        self.by_wants
            .iter()
            .filter(move |((size, lasts), _)| room.fits(stage, *size, *lasts))
            .map(|(_, keys)| keys)
    }

    fn keys(&self) -> impl Iterator<Item = QueueKey> {
        self.by_wants.values().flatten().copied()
    }
}

fn lowest(seats: &SeatSet) -> Option<Seat> {
    seats.iter().next()
}

impl fmt::Debug for FirstInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} tasks", self.name(), self.tasks.len())
    }
}

impl FirstInput {
    /// * `steals`: idle nodes take tasks from their neighbours' queues.
    /// * `capacity`: tasks that are looked at, at least 1. The nodes' queues together hold no more.
    /// * `n_tasks_max`: tasks given to a node from its own queue by one decision, at least 1.
    pub fn new(steals: bool, capacity: usize, n_tasks_max: usize) -> FirstInput {
        FirstInput {
            steals,
            capacity,
            n_tasks_max,
            tasks: BTreeMap::new(),
            unbound: Bag::default(),
            seated: vec![],
            is_seated: SeatSet::default(),
            seat_of: FxHashMap::default(),
            n_slots_total: 0,
            n_slots_idle: 0,
            turn: 0,
            deals_again: false,
            ranks: vec![],
            rank_of: vec![],
            torus: Torus::of(0),
            has_work: SeatSet::default(),
            may_steal: SeatSet::default(),
            has_ahead: SeatSet::default(),
        }
    }

    fn executor_at(&self, seat: Seat) -> &SeatedExecutor {
        self.seated[seat.0 as usize].as_ref().expect("an executor has this seat")
    }

    fn executor_at_mut(&mut self, seat: Seat) -> &mut SeatedExecutor {
        self.seated[seat.0 as usize].as_mut().expect("an executor has this seat")
    }

    // ---- binding

    /// Whether the node is large enough for the task when it has no other task, and has time enough.
    fn is_able(&self, seat: Seat, (size, lasts): Wants) -> bool {
        let room = &self.executor_at(seat).room;
        room.is_able(size) && room.left.is_enough_for(lasts)
    }

    /// Puts a task that is in no queue into a queue, if there is a node for it.
    fn bind(&mut self, catalog: &Catalog, key: QueueKey) {
        let task = &self.tasks[&key];
        let (wants, first) = (task.wants, task.first);
        let holders = first.into_iter().flat_map(|object| catalog.holders_of(object));
        let holders = holders.filter_map(|id| self.seat_of.get(&id).copied());
        let held =
            holders.filter(|s| self.is_able(*s, wants)).min_by_key(|s| (self.executor_at(*s).queue.len, *s));
        let at = held.or_else(|| self.next_in_turn(wants));
        match at {
            Some(seat) => {
                self.executor_at_mut(seat).queue.insert(wants, key);
                self.has_work.insert(seat);
                self.has_ahead.insert(seat);
                self.neighbours_may_steal(seat);
            }
            None => self.unbound.insert(wants, key),
        }
        let task = self.tasks.get_mut(&key).expect("it is here");
        (task.at, task.dealt) = (at, at.is_some() && held.is_none());
    }

    fn next_in_turn(&mut self, wants: Wants) -> Option<Seat> {
        let n = self.seated.len() as u32;
        let seats = (0..n).map(|i| Seat((self.turn + i) % n));
        let seat = { seats }.find(|s| self.is_seated.contains(*s) && self.is_able(*s, wants))?;
        self.turn = (seat.0 + 1) % n;
        Some(seat)
    }

    fn unbind(&mut self, key: QueueKey) {
        let task = self.tasks.get_mut(&key).expect("it is here");
        let wants = task.wants;
        match task.at.take() {
            Some(seat) => self.executor_at_mut(seat).queue.remove(wants, key),
            None => self.unbound.remove(wants, key),
        }
    }

    fn bind_anew(&mut self, catalog: &Catalog, keys: impl Iterator<Item = QueueKey>) {
        let mut keys: Vec<QueueKey> = keys.collect();
        keys.sort_unstable();
        keys.iter().for_each(|key| self.unbind(*key));
        keys.iter().for_each(|key| self.bind(catalog, *key));
    }

    /// Deals tasks anew after a node has joined, has become larger or smaller, or has less time.
    fn deal_again(&mut self, catalog: &Catalog) {
        if std::mem::take(&mut self.deals_again) {
            let is_misplaced = |t: &Task| t.dealt || t.at.is_none_or(|seat| !self.is_able(seat, t.wants));
            let keys: Vec<QueueKey> =
                self.tasks.iter().filter(|(_, t)| is_misplaced(t)).map(|(key, _)| *key).collect();
            self.turn = 0;
            self.bind_anew(catalog, keys.into_iter());
        }
    }

    // ---- neighbours

    fn rank_members(&mut self) {
        if !self.ranks.is_empty() {
            return;
        }
        self.ranks.extend(self.is_seated.iter());
        self.torus = Torus::of(self.ranks.len() as u32);
        self.rank_of.clear();
        self.rank_of.resize(self.seated.len(), u32::MAX);
        for (rank, seat) in self.ranks.iter().enumerate() {
            self.rank_of[seat.0 as usize] = rank as u32;
        }
    }

    /// The neighbours, in the order in which they are asked.
    fn neighbours_of(&self, seat: Seat) -> impl Iterator<Item = Seat> + use<'_> {
        let ranks = self.torus.neighbours_of(self.rank_of[seat.0 as usize]);
        ranks.map(|rank| self.ranks[rank as usize])
    }

    fn neighbours_may_steal(&mut self, seat: Seat) {
        // Without ranks, all nodes are asked when the ranks are computed.
        if self.steals && !self.ranks.is_empty() {
            let neighbours: Vec<Seat> = self.neighbours_of(seat).collect();
            neighbours.into_iter().for_each(|seat| {
                self.may_steal.insert(seat);
            });
        }
    }

    fn members_changed(&mut self) {
        self.ranks.clear();
        self.may_steal = if self.steals { self.is_seated.clone() } else { SeatSet::default() };
    }

    // ---- decisions

    fn pick(
        &self,
        catalog: &Catalog,
        executor: ExecutorId,
        key: QueueKey,
        stage: Stage,
        reason: Reason,
    ) -> Pick {
        let inputs = &self.tasks[&key].inputs;
        let n_hits = inputs.iter().filter(|o| catalog.holds(executor, **o)).count() as u32;
        let policy = self.name();
        Pick { key, n_hits, n_inputs: inputs.len() as u32, rule: Rule::FirstInput { policy, reason }, stage }
    }

    /// Takes tasks from the node's own queue.
    fn take_own(&self, catalog: &Catalog, seat: Seat, stage: Stage, picks: &mut Vec<Pick>) {
        let seated = self.executor_at(seat);
        let mut room = seated.room;
        let mut after: Option<QueueKey> = None;
        while picks.len() < self.n_tasks_max {
            // Look only behind the last task: a task before it that did not fit does not fit now either.
            let next = |keys: &BTreeSet<QueueKey>| match after {
                None => keys.first().copied(),
                Some(key) => {
                    keys.range((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded)).next().copied()
                }
            };
            let Some(key) = seated.queue.fitting(room, stage).filter_map(next).min() else { break };
            let task = &self.tasks[&key];
            let reason = if task.dealt { Reason::Dealt } else { Reason::FirstHere };
            picks.push(self.pick(catalog, seated.id, key, stage, reason));
            room = room.after(stage, task.wants.0);
            after = Some(key);
        }
    }

    /// Takes a task from a neighbour's queue.
    fn steal(&self, catalog: &Catalog, seat: Seat, picks: &mut Vec<Pick>) {
        let thief = self.executor_at(seat);
        for victim in self.neighbours_of(seat).map(|s| self.executor_at(s)) {
            let last =
                victim.queue.fitting(thief.room, Stage::Idle).filter_map(|keys| keys.last().copied()).max();
            if let Some(key) = last {
                let reason = Reason::Stolen { from: victim.id };
                picks.push(self.pick(catalog, thief.id, key, Stage::Idle, reason));
                return;
            }
        }
    }

    fn why_unplaced(&self) -> Unplaced {
        let Some((key, head)) = self.tasks.first_key_value() else { return Unplaced::NothingReady };
        let (task, (TaskSize { cpus, memory_bytes, .. }, _)) = (key.task, head.wants);
        match head.at {
            _ if self.is_seated.is_empty() => Unplaced::NoExecutor,
            None => Unplaced::NothingFits { task, cpus, memory_bytes },
            Some(_) if self.n_slots_idle == 0 => Unplaced::NoneFree,
            Some(seat) => Unplaced::QueuedAt { task, executor: self.executor_at(seat).id },
        }
    }
}

impl Queue for FirstInput {
    fn name(&self) -> &'static str {
        if self.steals { NAME_STEAL } else { NAME }
    }
    fn uses_caches(&self) -> bool {
        true
    }
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn len(&self) -> usize {
        self.tasks.len()
    }
    fn contains(&self, key: QueueKey) -> bool {
        self.tasks.contains_key(&key)
    }
    fn last(&self) -> Option<QueueKey> {
        self.tasks.last_key_value().map(|(key, _)| *key)
    }
    fn first_with(&self, needs: NeedsId) -> Option<QueueKey> {
        self.tasks.iter().find(|(_, task)| task.wants.0.needs == needs).map(|(key, _)| *key)
    }
    fn sizes(&self) -> Vec<TaskSize> {
        let queues = self.seated.iter().flatten().map(|m| &m.queue).chain([&self.unbound]);
        let sizes: BTreeSet<TaskSize> = queues.flat_map(|q| q.by_wants.keys()).map(|wants| wants.0).collect();
        sizes.into_iter().collect()
    }
    fn tasks_of_size(&self, size: TaskSize) -> Vec<QueueKey> {
        self.tasks.iter().filter(|(_, t)| t.wants.0 == size).map(|(key, _)| *key).collect()
    }
    fn n_of_size(&self, size: TaskSize) -> usize {
        self.tasks.values().filter(|t| t.wants.0 == size).count()
    }

    fn enter(&mut self, catalog: &Catalog, _now: Timestamp, task: &ReadyTask) {
        let ReadyTask { key, inputs, first_input, lasts, .. } = task;
        let (wants, first) = ((task.size(), *lasts), *first_input);
        let task = Task { inputs: inputs.clone(), first, wants, at: None, dealt: false };
        let new = self.tasks.insert(*key, task).is_none();
        assert!(new, "{key:?} is here already");
        self.bind(catalog, *key);
    }

    fn leave(&mut self, _catalog: &Catalog, key: QueueKey) -> bool {
        let is_here = self.tasks.contains_key(&key);
        if is_here {
            self.unbind(key);
            self.tasks.remove(&key);
        }
        is_here
    }

    fn executor_joined(&mut self, catalog: &Catalog, executor: ExecutorId) {
        if self.seat_of.contains_key(&executor) {
            return;
        }
        let seat = catalog.seat(executor).expect("an executor that joins has a seat");
        self.seat_of.insert(executor, seat);
        if self.seated.len() <= seat.0 as usize {
            self.seated.resize_with(seat.0 as usize + 1, || None);
        }
        self.seated[seat.0 as usize] =
            Some(SeatedExecutor { id: executor, room: Room::default(), queue: Bag::default() });
        self.is_seated.insert(seat);
        self.members_changed();
    }

    fn executor_left(&mut self, catalog: &Catalog, executor: ExecutorId, _objects: &[ObjectId]) {
        let Some(seat) = self.seat_of.remove(&executor) else { return };
        let seated = self.seated[seat.0 as usize].take().expect("the executor has its seat");
        self.n_slots_total -= u64::from(seated.room.slots_total);
        self.n_slots_idle -= u64::from(seated.room.slots_idle);
        self.is_seated.remove(seat);
        for seats in [&mut self.has_work, &mut self.has_ahead] {
            seats.remove(seat);
        }
        self.members_changed();
        let mut keys: Vec<QueueKey> = seated.queue.keys().collect();
        keys.sort_unstable();
        for key in keys {
            self.bind(catalog, key);
        }
    }

    fn set_room(&mut self, executor: ExecutorId, room: Room) {
        let Some(&seat) = self.seat_of.get(&executor) else { return };
        let seated = self.executor_at_mut(seat);
        let old = std::mem::replace(&mut seated.room, room);
        let size = |room: &Room| (room.slots_total, room.memory_total_bytes, room.never, room.left);
        self.deals_again |= size(&old) != size(&room);
        self.n_slots_total = self.n_slots_total + u64::from(room.slots_total) - u64::from(old.slots_total);
        self.n_slots_idle = self.n_slots_idle + u64::from(room.slots_idle) - u64::from(old.slots_idle);
        if room.idle_rank() > 0 {
            self.has_work.insert(seat);
            self.may_steal.set(seat, self.steals);
        }
        if room.ahead > 0 {
            self.has_ahead.insert(seat);
        }
    }

    fn room(&self, executor: ExecutorId) -> Option<Room> {
        self.seat_of.get(&executor).map(|seat| self.executor_at(*seat).room)
    }
    fn n_executors(&self) -> usize {
        self.is_seated.len()
    }
    fn n_slots_total(&self) -> u64 {
        self.n_slots_total
    }
    fn n_slots_active(&self) -> u64 {
        self.n_slots_total - self.n_slots_idle
    }

    fn replica_added(&mut self, _catalog: &Catalog, _executor: ExecutorId, _object: ObjectId) {}
    fn replica_dropped(&mut self, _catalog: &Catalog, _executor: ExecutorId, _object: ObjectId) {}

    /// First every node takes from its own queue, then nodes that are still idle take from their neighbours'
    /// queues, then tasks are given ahead.
    fn place(
        &mut self,
        catalog: &Catalog,
        _now: Timestamp,
        picks: &mut Vec<Pick>,
    ) -> Result<ExecutorId, Unplaced> {
        picks.clear();
        self.deal_again(catalog);
        while let Some(seat) = lowest(&self.has_work) {
            self.take_own(catalog, seat, Stage::Idle, picks);
            if !picks.is_empty() {
                return Ok(self.executor_at(seat).id);
            }
            self.has_work.remove(seat);
        }
        self.rank_members();
        while let Some(seat) = lowest(&self.may_steal) {
            self.steal(catalog, seat, picks);
            if !picks.is_empty() {
                return Ok(self.executor_at(seat).id);
            }
            self.may_steal.remove(seat);
        }
        while let Some(seat) = lowest(&self.has_ahead) {
            self.take_own(catalog, seat, Stage::Ahead, picks);
            if !picks.is_empty() {
                return Ok(self.executor_at(seat).id);
            }
            self.has_ahead.remove(seat);
        }
        Err(self.why_unplaced())
    }

    fn why_not(&self, key: QueueKey) -> Option<Unplaced> {
        let executor = self.executor_at(self.tasks.get(&key)?.at?).id;
        Some(Unplaced::QueuedAt { task: key.task, executor })
    }

    fn heap_bytes(&self) -> usize {
        let of_task = |t: &Task| t.inputs.capacity() * size_of::<ObjectId>();
        let tasks: usize = self.tasks.values().map(of_task).sum();
        let per_task = size_of::<(QueueKey, Task)>() + size_of::<QueueKey>();
        tasks
            + self.tasks.len() * per_task
            + self.seated.capacity() * size_of::<Option<SeatedExecutor>>()
            + self.ranks.capacity() * size_of::<Seat>()
            + self.rank_of.capacity() * size_of::<u32>()
    }

    fn sanity_check(&self, catalog: &Catalog) {
        let mut n_queued = self.unbound.len;
        for (id, &seat) in &self.seat_of {
            let seated = self.executor_at(seat);
            assert_eq!((seated.id, catalog.seat(*id)), (*id, Some(seat)));
            assert!(self.is_seated.contains(seat));
            assert_eq!(seated.queue.len, seated.queue.keys().count());
            n_queued += seated.queue.len;
        }
        assert_eq!(self.seat_of.len(), self.is_seated.len());
        assert_eq!(n_queued, self.tasks.len(), "every task is in one queue");
        for (key, task) in &self.tasks {
            let queue = match task.at {
                Some(seat) => &self.executor_at(seat).queue,
                None => &self.unbound,
            };
            assert!(queue.by_wants[&task.wants].contains(key), "{key:?} is where it says");
            if !self.deals_again {
                let at = task.at.map(|seat| self.is_able(seat, task.wants));
                let able = self.is_seated.iter().any(|s| self.is_able(s, task.wants));
                assert_eq!(at, able.then_some(true), "{key:?} is at a node that is large enough");
            }
        }
        let rooms = self.seated.iter().flatten().map(|m| m.room);
        let (total, idle) =
            rooms.fold((0, 0), |(t, i), r| (t + u64::from(r.slots_total), i + u64::from(r.slots_idle)));
        assert_eq!((total, idle), (self.n_slots_total, self.n_slots_idle));
    }
}
