//! The executors that take part, and the room that they have.

use super::disk::DiskLoad;
use super::home::Mark;
use super::pace::Pace;
use super::rank::{Heat, Rank};
use super::{holds, move_between};
use crate::catalog::Catalog;
use crate::event::Source;
use crate::executor_set::{Seat, SeatSet};
use crate::placement::Room;
use crate::placement::queue::Moving;
use eyas_terms::{ExecutorId, ObjectId, TaskId, Timestamp};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// When this many changes of a rank wait, they are applied.
const RANK_UPDATES_MAX: usize = 256;

/// All executors, by seat and by the room that they have.
#[derive(Default)]
pub(super) struct Executors {
    pub by_seat: Vec<Option<SeatedExecutor>>,
    /// The seats that are taken.
    pub seats: SeatSet,
    pub seat_of: FxHashMap<ExecutorId, Seat>,
    n_joined: u32,
    pub by_idle: BTreeMap<u32, SeatSet>,
    pub by_ahead: BTreeMap<u32, SeatSet>,
    /// Executors that may be given a task with inputs to move, by the number of attempts that they have
    /// room for.
    pub by_spare: BTreeMap<u32, SeatSet>,
    pub n_slots_total: u64,
    pub n_slots_idle: u64,
    /// Idle slots that will not be taken by an attempt with moving inputs.
    pub n_slots_open: u64,
}

pub(super) struct SeatedExecutor {
    pub id: ExecutorId,
    /// A number that differs each time an executor joins.
    pub session: u32,
    pub room: Room,
    spare: u32,
    /// By class: bundles whose inputs are all on the executor, with the task that was the oldest when the
    /// bundle was pushed.
    pub full: Vec<Full>,
    /// By class: objects that would complete the inputs of some tasks here, with an upper bound of the
    /// number of these tasks.
    pub near: Vec<Option<Box<Rank>>>,
    /// Changes of `near` that have not been applied yet; they are applied before `near` is read. One new
    /// task changes the ranks of many executors, which lie all over the memory, so changes are collected.
    rank_updates: Vec<RankUpdate>,
    /// Objects on their way to this executor.
    pub coming: FxHashMap<ObjectId, Coming>,
    pub moving: Moving,
    /// This executor's part of [`Executors::n_slots_open`].
    pub n_open: u32,
    /// The objects that this executor reads from home, one entry for each read.
    pub home_reads: Vec<ObjectId>,
    /// Some inputs of the last task with spared inputs that this executor was given.
    pub recent: Vec<ObjectId>,
    /// The priority of that task, and how many such tasks in a row had it.
    pub recent_priority: Option<(i32, u32)>,
    /// Number of tasks with inputs to move that this executor was given.
    pub n_moves: u32,
    pub disk: DiskLoad,
    pub pace: Pace,
    /// The executor has too little to do to leave objects to their holders. The value is computed anew each
    /// time the executor is asked.
    pub wants_copies: bool,
}

/// A change of `near`: `n_tasks` more tasks of a class lack only `object`.
pub(super) struct RankUpdate {
    pub object: ObjectId,
    pub class: u32,
    pub n_tasks: u32,
    pub size_bytes: u64,
}

#[derive(Default)]
pub(super) struct Full {
    pub heap: BinaryHeap<Reverse<(TaskId, u32)>>,
    /// The length at which stale entries are removed.
    pub limit: usize,
}

pub(super) struct Coming {
    pub source: Source,
    /// The session of the source, if it is a peer: a peer may leave and join again.
    pub session: u32,
    /// The share of the source's capacity to serve that this copy takes, in parts of an attempt
    /// (`UPLOAD_PARTS`).
    pub weight: u32,
    pub begun_at: Timestamp,
    /// The progress of the transfer when it set out or was last reported.
    pub mark: Mark,
    /// The attempt that the transfer was started for.
    pub begun_for: TaskId,
    /// Attempts that wait for the object.
    pub tasks: Vec<TaskId>,
}

impl Coming {
    /// Started for the attempt of `task`, which is given out now.
    pub fn for_task(task: TaskId, source: Source, weight: u32) -> Coming {
        let (begun_at, mark) = Default::default();
        Coming { source, session: 0, weight, begun_at, mark, begun_for: task, tasks: vec![task] }
    }
}

impl SeatedExecutor {
    /// `n_tasks` more tasks of a class lack only the object that the change names.
    pub fn note_near(&mut self, update: RankUpdate) {
        self.rank_updates.push(update);
        if self.rank_updates.len() >= RANK_UPDATES_MAX {
            self.apply_rank_updates();
        }
    }

    /// Applies the collected changes of `near`, in their order.
    pub fn apply_rank_updates(&mut self) {
        for RankUpdate { object, class, n_tasks, size_bytes } in self.rank_updates.drain(..) {
            if self.near.len() <= class as usize {
                self.near.resize_with(class as usize + 1, || None);
            }
            let rank = self.near[class as usize].get_or_insert_default();
            rank.add(object, n_tasks, size_bytes, Heat::Cold);
        }
    }

    /// Whether `object` is on this executor or on its way there.
    #[inline]
    pub fn has(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        holds(catalog, seat, object) || self.awaits(object)
    }

    /// Whether `object` is on its way to this executor.
    #[inline]
    pub fn awaits(&self, object: ObjectId) -> bool {
        !self.coming.is_empty() && self.coming.contains_key(&object)
    }

    pub fn heap_bytes(&self) -> usize {
        let full: usize = self.full.iter().map(|f| f.heap.capacity() * 16).sum();
        let near: usize = self.near.iter().flatten().map(|r| r.heap_bytes() + size_of::<Rank>()).sum();
        full + near + self.rank_updates.capacity() * size_of::<RankUpdate>()
    }
}

impl Executors {
    /// An executor that has no room yet takes `seat`.
    pub fn join(&mut self, executor: ExecutorId, seat: Seat) {
        let i = seat.0 as usize;
        if i >= self.by_seat.len() {
            self.by_seat.resize_with(i + 1, || None);
        }
        self.seat_of.insert(executor, seat);
        self.seats.insert(seat);
        self.n_joined = self.n_joined.wrapping_add(1);
        self.by_seat[i] = Some(SeatedExecutor {
            id: executor,
            session: self.n_joined,
            room: Room::NONE,
            spare: 0,
            full: vec![],
            near: vec![],
            rank_updates: vec![],
            coming: FxHashMap::default(),
            moving: Moving::default(),
            n_open: 0,
            home_reads: vec![],
            recent: vec![],
            recent_priority: None,
            n_moves: 0,
            wants_copies: false,
            disk: DiskLoad::default(),
            pace: Pace::default(),
        });
    }

    #[inline]
    pub fn at(&self, seat: Seat) -> &SeatedExecutor {
        self.by_seat[seat.0 as usize].as_ref().expect("an executor has this seat")
    }

    #[inline]
    pub fn at_mut(&mut self, seat: Seat) -> &mut SeatedExecutor {
        self.by_seat[seat.0 as usize].as_mut().expect("an executor has this seat")
    }

    /// In the order of their seats.
    pub fn iter(&self) -> impl Iterator<Item = &SeatedExecutor> {
        self.by_seat.iter().flatten()
    }

    /// Gives the room that the executor had before.
    pub fn set_room(&mut self, seat: Seat, room: Room) -> Room {
        let seated = self.at_mut(seat);
        let old = std::mem::replace(&mut seated.room, room);
        let spare = if room.moves == 0 { 0 } else { 1 + room.slots_idle + room.moves };
        let old_spare = std::mem::replace(&mut seated.spare, spare);
        self.n_slots_total = self.n_slots_total - u64::from(old.slots_total) + u64::from(room.slots_total);
        self.n_slots_idle = self.n_slots_idle - u64::from(old.slots_idle) + u64::from(room.slots_idle);
        move_between(&mut self.by_idle, seat, old.idle_rank(), room.idle_rank());
        move_between(&mut self.by_ahead, seat, old.ahead, room.ahead);
        move_between(&mut self.by_spare, seat, old_spare, spare);
        self.settle_open(seat);
        old
    }

    /// Counts anew the idle slots of an executor that will not be taken by attempts with moving inputs.
    pub fn settle_open(&mut self, seat: Seat) {
        let seated = self.at_mut(seat);
        let n_open = seated.room.slots_idle.saturating_sub(seated.moving.cpus);
        let before = std::mem::replace(&mut seated.n_open, n_open);
        self.n_slots_open = self.n_slots_open - u64::from(before) + u64::from(n_open);
    }

    /// Whether no executor has room for anything.
    pub fn are_full(&self) -> bool {
        self.by_idle.is_empty() && self.by_ahead.is_empty() && self.by_spare.is_empty()
    }

    /// An attempt with moving inputs begins on `seat`.
    pub fn begin_moving(&mut self, seat: Seat, cpus: u32) {
        let seated = self.at_mut(seat);
        seated.moving.n_attempts += 1;
        seated.moving.cpus += cpus;
        seated.n_moves = seated.n_moves.wrapping_add(1);
        self.settle_open(seat);
    }

    /// Nothing comes any more for one attempt with moving inputs on `seat`, which waits for what the node makes.
    pub fn begin_making(&mut self, seat: Seat, cpus: u32) {
        self.at_mut(seat).moving.making_cpus += cpus;
    }

    /// Nothing moves any more for one attempt on `seat`, and nothing is made for it.
    pub fn stop_moving(&mut self, seat: Seat, cpus: u32, is_making: bool) {
        let moving = &mut self.at_mut(seat).moving;
        moving.n_attempts -= 1;
        moving.cpus -= cpus;
        moving.making_cpus -= if is_making { cpus } else { 0 };
        self.settle_open(seat);
    }

    /// The executor among `seats` with most to spare, of equals the first one from `turn` on.
    pub fn next_among(&self, seats: &SeatSet, turn: u32) -> Option<Seat> {
        let (word, bit) = (turn as usize / 64, turn % 64);
        let to_ask = seats.words();
        self.by_spare.values().rev().find_map(|seats| {
            let both = |i: usize| seats.words().get(i).unwrap_or(&0) & to_ask.get(i).unwrap_or(&0);
            let n = seats.words().len().min(to_ask.len());
            let seat_in = |i: usize, mask: u64| {
                let w = both(i) & mask;
                (w != 0).then(|| Seat(i as u32 * 64 + w.trailing_zeros()))
            };
            let after =
                seat_in(word, u64::MAX << bit).or_else(|| (word + 1..n).find_map(|i| seat_in(i, u64::MAX)));
            after.or_else(|| (0..n.min(word + 1)).find_map(|i| seat_in(i, u64::MAX)))
        })
    }
}
