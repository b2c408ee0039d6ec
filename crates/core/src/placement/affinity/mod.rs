//! `affinity`: every task goes to its files, and files are fetched for as many tasks as possible.
//!
//! Source: our own. The window of Raicu09 §2.3 sees the first few thousand tasks and one task at a time; this policy
//! sees (nearly) the whole queue through inverted indexes, so that it can ask *which file should this executor fetch
//! next?*
//!
//! The rules, in this order, for an executor with room:
//!   1. **hits**: a task whose inputs it all holds, the oldest one; left to others where it would have to wait for a slot, others have
//!      open ones for all that is queued, and its inputs are there sooner than a program ends;
//!   2. one in [`Config::oldest_every`] choices that move data: the oldest task that can go there, so that nobody starves;
//!   3. **near** objects, or objects that are cold: fetch what gives most tasks per byte. *Near* counts the tasks that
//!      lack nothing else here; it makes square tiles of structured task sets such as All-Pairs by itself. *Cold* objects
//!      are those that nobody holds or is reading; one that tasks read alone is worth the same to everybody;
//!   4. **seeds**: where nothing is near, a task whose inputs are cold too, far in the queue from where others began. What
//!      grows from there prefers what is near in the queue, so tiles hardly overlap;
//!   5. **copies**: what others hold is copied once its readers have waited longer than a copy takes; at once for a task that nobody
//!      has all inputs of.
//!
//! A task that lacks several inputs is given to whoever holds most bytes of it, if there is room, whoever was asked.
//!
//! Rule 5 holds for near objects as well: nothing is copied for a task that its holder may run a moment later, nor to an
//! executor that has enough to do without. Larger
//! priorities come first within hits and within what moves data.
//!
//! Moving data:
//!   - what one executor is reading from home is awaited by the others, then copied, as long as reading from home
//!     is slow (its time per byte against that of a copy) and the reader is not late;
//!   - an executor serves at most [`Config::uploads_max`] attempts at once, the least loaded holder first; an attempt that copies from
//!     many counts as a part at each. A tree from home
//!     to all who need an object comes about by itself; without the cap all would queue at the first holder;
//!   - what home gives sooner than the node's disk, if all do so, is read past the cache each time: through the disk it is
//!     written and read. That holds where reading past the cache spares the disk ([`Config::disk_bytes_per_s`]);
//!   - a node to which enough is on its way for all its slots fetches nothing besides;
//!   - nothing is copied that its holders will have done with before the copy is there, by how long programs ran so far;
//!   - an executor has no more attempts with moving inputs than slots. They do not count as occupying slots for hits:
//!     waiting for home never blocks what is at hand.
//!
//! | file | |
//! |---|---|
//! | `config` | what can be tuned |
//! | `tasks` | the queue, by inputs |
//! | `hints` | who holds all inputs of which tasks, and what is near for whom |
//! | `rank` | objects ranked by tasks per byte |
//! | `home` | what home gives to how many, learnt from how reads come along |
//! | `transfers` | what is on its way, what that has taken so far, where an input could come from |
//! | `choose` | the rules |
//!
//! The indexes of executors (`full`, `near`) are hints: they are validated when used, and bounded where an object is
//! read by a great many groups ([`Config::readers_max`]) or held by a great many executors ([`Config::holders_max`]).
//! What they miss is found by the other rules. A task is never given away beyond room, nor a source used beyond its cap.
//!
//! Nobody polls: an answer that time alone makes another one says when ([`Queue::wake_at`]).
//!
//! Assumes that inputs are immutable and tasks short compared with the run. Cost: a decision looks at a bounded
//! number of candidates, each with at most `readers_max` readers; replicas that appear cost one step per reader.
//!
//! Not here: what is evicted, how bytes move, how many tasks an executor is given ahead (`dispatcher`).

use super::queue::{Moving, Queue, Route};
use super::window::move_between;
use super::{Pick, QueueKey, ReadyTask, Room, Unplaced};
use crate::catalog::{Catalog, HoldersView};
use crate::event::{InputMoved, InputReport, Source, Target};
use crate::executor_set::{Seat, SeatSet};
use crate::types::{CacheOutcome, ExecutorId, ObjectId, TaskId, Timestamp};
use home::{HomeLoad, Landed, Mark};
use rank::{Heat, Rank};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::ops::ControlFlow;
use tasks::Tasks;

mod choose;
mod config;
mod hints;
mod home;
mod rank;
mod tasks;
#[cfg(test)]
mod tests;
mod transfers;

pub use config::Config;

pub const NAME: &str = "affinity";

/// How often the executors in vain of work are all asked again, as waiting long enough is a reason to copy: so long
/// per executor, within bounds.
const STIR_NS_EACH: u64 = 100_000;
const STIR_NS_MIN: u64 = 5_000_000;
const STIR_NS_MAX: u64 = 100_000_000;
/// Of more executors, not all are asked again at once because of one more source.
const STIR_ALL_MAX: usize = 128;
/// Of more holders than that it is remembered that they are all in use, until the next time that all are asked again.
const BUSY_HOLDERS_MIN: usize = 16;
/// Below this many queued tasks every task that comes is a reason to ask everybody again.
const FEW_TASKS: usize = 4096;

/// See the module.
pub struct Affinity {
    config: Config,
    tasks: Tasks,
    /// By seat.
    seated: Vec<Option<SeatedExecutor>>,
    is_seated: SeatSet,
    seat_of: FxHashMap<ExecutorId, Seat>,
    n_joined: u32,
    by_idle: BTreeMap<u32, SeatSet>,
    by_ahead: BTreeMap<u32, SeatSet>,
    /// Executors that may be given something to move, by how many attempts they lack.
    by_spare: BTreeMap<u32, SeatSet>,
    /// By seat: attempts that the executor copies inputs for, each counted by the part of its copies that come from there. Beside the executors, as it is asked of many at once.
    uploads: Vec<u32>,
    n_slots_total: u64,
    n_slots_idle: u64,
    /// Idle slots that no attempt with moving inputs will take.
    n_slots_open: u64,
    /// Executors that may have a hit; those that may have something to move and have not been asked since.
    has_hits: SeatSet,
    to_ask: SeatSet,
    /// Something has changed since all were asked again: some answers may be other ones now.
    changed: bool,
    /// When time alone makes the first of the answers since then another one.
    due: Option<Timestamp>,
    /// Those not asked in this round. The next round begins when all that have room have been asked and something has
    /// changed since.
    not_asked: SeatSet,
    stirred: Timestamp,
    /// Where the search for an executor that moves something goes on, so that caches fill evenly.
    turn: u32,
    /// Seeds looked for so far.
    n_seeds: u32,
    /// Attempts with inputs on their way.
    attempts: FxHashMap<TaskId, Attempt>,
    /// Objects that nobody holds and somebody reads from home.
    arriving: FxHashMap<ObjectId, Arriving>,
    n_home_reads: u32,
    /// Executors that read from home.
    n_readers: u32,
    /// What moves past the caches, by the task that reads it.
    direct: FxHashMap<TaskId, Vec<Direct>>,
    n_direct: u32,
    /// Objects that were read so, and are no reason to think that they never can be cached.
    streamed: FxHashSet<ObjectId>,
    /// What home gives to reads that go through a disk, and past it.
    home_load: HomeLoad,
    direct_load: HomeLoad,
    all_in_sight: bool,
    /// Reads from home that have ended since the last decision was asked for, which is when the time is known.
    landed: Vec<Landed>,
    /// Objects with many holders, all of which are in use.
    busy: FxHashSet<ObjectId>,
    /// Objects with fewer holders, all of which were in use when so many of `freed` had become free.
    none_free: FxHashMap<ObjectId, u32>,
    freed: Vec<Seat>,
    /// Smoothed time per MiB from when an attempt was received.
    home_ns_per_mib: Option<u64>,
    copy_ns_per_mib: Option<u64>,
    /// Smoothed time that programs run.
    run_ns: Option<u64>,
    /// Objects whose holders are awaited: since when no task that reads them was taken, and how many there were then.
    taken: FxHashMap<ObjectId, (Timestamp, u64)>,
    /// Objects that are never cached: read in place, or too large. They count for nothing.
    open: FxHashSet<ObjectId>,
    /// Taken for the size of an object until it is known; the mean of those seen.
    size_bytes_assumed: u64,
    n_sizes: u64,
    sum_sizes: u128,
    /// How the inputs of the last decision's task get there.
    plan: Plan,
    /// Kept for their memory.
    scratch: Vec<Found>,
    seats: Vec<Seat>,
}

struct SeatedExecutor {
    id: ExecutorId,
    /// Differs each time that anybody joins.
    session: u32,
    room: Room,
    spare: u32,
    /// By class: groups whose inputs are all here, by the oldest task that was known when they were pushed.
    full: Vec<Full>,
    /// By class: objects whose arrival would make tasks full, with an upper bound of how many.
    near: Vec<Option<Box<Rank>>>,
    /// Changes of `near` that are made before it is looked at. A new task changes the ranks of many executors, which lie all over
    /// the memory.
    rank_updates: Vec<RankUpdate>,
    /// Objects on their way here.
    coming: FxHashMap<ObjectId, Coming>,
    moving: Moving,
    /// What it has of [`Affinity::n_slots_open`].
    n_open: u32,
    /// Objects that it reads from home, one for each read.
    home_reads: Vec<ObjectId>,
    /// Tasks with inputs to move that it was given.
    n_moves: u32,
    /// It has too little to do to leave to others what they hold; settled anew whenever it is asked.
    wants_copies: bool,
}

/// A change of `near`: so many tasks more of a class lack nothing but `object`.
struct RankUpdate {
    object: ObjectId,
    class: u32,
    n_tasks: u32,
    size_bytes: u64,
}

#[derive(Default)]
struct Full {
    heap: BinaryHeap<Reverse<(TaskId, u32)>>,
    /// The length at which what is stale is thrown out.
    limit: usize,
}

struct Coming {
    source: Source,
    /// That of the source, if it is a peer: it may leave and come back.
    session: u32,
    /// How much of its source's time to serve it takes.
    weight: u32,
    /// When it set out, or was seen last.
    mark: Mark,
    /// The attempt that it was set in motion for.
    begun_for: TaskId,
    /// Attempts that wait for it.
    tasks: Vec<TaskId>,
}

/// A read from home for one attempt only.
struct Direct {
    seat: Seat,
    object: ObjectId,
    mark: Mark,
    /// A copy of it is there, so that it was given out as a task that needs nothing to move.
    is_hit: bool,
}

struct Attempt {
    executor: ExecutorId,
    cpus: u32,
    waits: Vec<ObjectId>,
    /// Inputs that it reads past the cache and that are still on their way.
    n_direct: u32,
}

struct Arriving {
    n: u32,
    /// All reads from home under way when it began, itself included.
    n_reads: u32,
    since: Timestamp,
    /// When it was seen last, how much of it was there, and at what rate that had come.
    progress: Option<(Timestamp, u64, f64)>,
}

/// A route for each input that has to move.
#[derive(Default)]
struct Plan {
    task: Option<TaskId>,
    moves: Vec<(ObjectId, Source)>,
}

/// What a walk through an object's readers has found.
enum Found {
    Full(u32),
    Near(u32, ObjectId, u32),
}

/// Why an object's readers are walked through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// It has set out: what lacks one other input now is near.
    Coming,
    /// It had set out before and is there: what it completes can run.
    Landed,
    /// Both at once.
    Appeared,
}

/// The catalog's word on whether the executor on `seat` holds `object`.
#[inline]
fn holds(catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
    catalog.seat_holds(seat, object)
}

/// So many waiting updates are made at once.
const RANK_UPDATES_MAX: usize = 256;

/// A number that differs between executors and objects, to begin walks at different places.
#[inline]
fn spread(seat: Seat, object: ObjectId) -> usize {
    let mixed = (u64::from(seat.0) << 32 | u64::from(object.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 33) as usize
}

impl SeatedExecutor {
    /// Makes the changes of `near` that wait, in their order.
    fn tell(&mut self) {
        for RankUpdate { object, class, n_tasks, size_bytes } in self.rank_updates.drain(..) {
            if self.near.len() <= class as usize {
                self.near.resize_with(class as usize + 1, || None);
            }
            let rank = self.near[class as usize].get_or_insert_default();
            rank.add(object, n_tasks, size_bytes, Heat::Cold);
        }
    }

    /// Here or on its way here.
    #[inline]
    fn has(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        holds(catalog, seat, object) || self.awaits(object)
    }

    /// On its way here.
    #[inline]
    fn awaits(&self, object: ObjectId) -> bool {
        !self.coming.is_empty() && self.coming.contains_key(&object)
    }
}

/// What is known of an object, apart from what is asked about it.
#[derive(Clone, Copy)]
struct Facts<'a> {
    catalog: &'a Catalog,
    is_seated: &'a SeatSet,
    arriving: &'a FxHashMap<ObjectId, Arriving>,
    size_bytes_assumed: u64,
}

impl Facts<'_> {
    fn of(self, object: ObjectId) -> (u64, Heat) {
        (self.size_of(object), self.heat(object))
    }

    fn size_of(self, object: ObjectId) -> u64 {
        self.catalog.size_bytes(object).unwrap_or(self.size_bytes_assumed)
    }

    fn heat(self, object: ObjectId) -> Heat {
        let held = match self.catalog.holders_view(object) {
            HoldersView::List(list) => list.iter().any(|s| self.is_seated.contains(*s)),
            HoldersView::Words(words) => words.iter().zip(self.is_seated.words()).any(|(a, b)| a & b != 0),
        };
        match held {
            true => Heat::Warm,
            false if self.arriving.contains_key(&object) => Heat::Arriving,
            false => Heat::Cold,
        }
    }
}

impl fmt::Debug for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} on {} tasks", self.tasks.len())
    }
}

impl Affinity {
    /// `Err` is one sentence for people.
    pub fn new(config: Config) -> Result<Affinity, String> {
        config.check()?;
        Ok(Affinity {
            config,
            tasks: Tasks::default(),
            seated: vec![],
            is_seated: SeatSet::default(),
            seat_of: FxHashMap::default(),
            n_joined: 0,
            by_idle: BTreeMap::new(),
            by_ahead: BTreeMap::new(),
            by_spare: BTreeMap::new(),
            uploads: vec![],
            n_slots_total: 0,
            n_slots_idle: 0,
            n_slots_open: 0,
            has_hits: SeatSet::default(),
            to_ask: SeatSet::default(),
            changed: true,
            due: None,
            not_asked: SeatSet::default(),
            stirred: Timestamp::default(),
            turn: 0,
            n_seeds: 0,
            attempts: FxHashMap::default(),
            arriving: FxHashMap::default(),
            n_home_reads: 0,
            n_readers: 0,
            direct: FxHashMap::default(),
            n_direct: 0,
            streamed: FxHashSet::default(),
            all_in_sight: false,
            home_load: HomeLoad::default(),
            direct_load: HomeLoad::default(),
            landed: vec![],
            busy: FxHashSet::default(),
            none_free: FxHashMap::default(),
            freed: vec![],
            home_ns_per_mib: None,
            copy_ns_per_mib: None,
            run_ns: None,
            taken: FxHashMap::default(),
            open: FxHashSet::default(),
            size_bytes_assumed: 1 << 20,
            n_sizes: 0,
            sum_sizes: 0,
            plan: Plan::default(),
            scratch: vec![],
            seats: vec![],
        })
    }

    fn executor_at(&self, seat: Seat) -> &SeatedExecutor {
        self.seated[seat.0 as usize].as_ref().expect("an executor has this seat")
    }

    fn executor_at_mut(&mut self, seat: Seat) -> &mut SeatedExecutor {
        self.seated[seat.0 as usize].as_mut().expect("an executor has this seat")
    }

    /// Everybody who may be given something to move is asked again.
    fn stir(&mut self) {
        self.changed = true;
        self.to_ask.clone_from(&self.is_seated);
        if self.not_asked.is_empty() {
            self.not_asked.clone_from(&self.is_seated);
        }
    }

    fn stir_ns(&self) -> u64 {
        (self.is_seated.len() as u64 * STIR_NS_EACH).clamp(STIR_NS_MIN, STIR_NS_MAX)
    }

    fn size_of(&self, catalog: &Catalog, object: ObjectId) -> u64 {
        self.facts(catalog).size_of(object)
    }

    fn facts<'a>(&'a self, catalog: &'a Catalog) -> Facts<'a> {
        Facts {
            catalog,
            is_seated: &self.is_seated,
            arriving: &self.arriving,
            size_bytes_assumed: self.size_bytes_assumed,
        }
    }

    fn tasks_and_facts<'a>(&'a mut self, catalog: &'a Catalog) -> (&'a mut Tasks, Facts<'a>) {
        let facts = Facts {
            catalog,
            is_seated: &self.is_seated,
            arriving: &self.arriving,
            size_bytes_assumed: self.size_bytes_assumed,
        };
        (&mut self.tasks, facts)
    }

    /// Counts anew the idle slots there that nothing on its way will take.
    fn settle_open(&mut self, seat: Seat) {
        let seated = self.seated[seat.0 as usize].as_mut().expect("an executor has this seat");
        let n_open = seated.room.slots_idle.saturating_sub(seated.moving.cpus);
        let before = std::mem::replace(&mut seated.n_open, n_open);
        self.n_slots_open = self.n_slots_open - u64::from(before) + u64::from(n_open);
    }

    fn set_spare(&mut self, seat: Seat) {
        let seated = self.seated[seat.0 as usize].as_mut().expect("an executor has this seat");
        let room = seated.room;
        let spare = if room.moves == 0 { 0 } else { 1 + room.slots_idle + room.moves };
        let old = std::mem::replace(&mut seated.spare, spare);
        move_between(&mut self.by_spare, seat, old, spare);
    }
}

impl Queue for Affinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn uses_caches(&self) -> bool {
        true
    }

    fn plans_routes(&self) -> bool {
        true
    }

    fn capacity(&self) -> usize {
        self.config.look_ahead
    }

    fn len(&self) -> usize {
        self.tasks.len()
    }

    fn contains(&self, key: QueueKey) -> bool {
        self.tasks.contains(key)
    }

    fn last(&self) -> Option<QueueKey> {
        self.tasks.last()
    }

    fn sizes(&self) -> Vec<(u32, u64)> {
        let of = |c: &u32| {
            let class = &self.tasks.classes[*c as usize];
            (class.cpus, class.memory_bytes)
        };
        let mut sizes: Vec<_> = self.tasks.class_order.iter().map(of).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn tasks_of_size(&self, size: (u32, u64)) -> Vec<QueueKey> {
        let classes = self.tasks.class_order.iter().map(|c| &self.tasks.classes[*c as usize]);
        let of_size = classes.filter(|c| (c.cpus, c.memory_bytes) == size);
        let keys = |c: &tasks::Class| {
            let priority = c.priority;
            c.order.keys().map(move |&task| QueueKey { priority, task }).collect::<Vec<_>>()
        };
        of_size.flat_map(keys).collect()
    }

    fn n_of_size(&self, size: (u32, u64)) -> usize {
        let classes = self.tasks.class_order.iter().map(|c| &self.tasks.classes[*c as usize]);
        classes.filter(|c| (c.cpus, c.memory_bytes) == size).map(|c| c.order.len()).sum()
    }

    fn enter(&mut self, catalog: &Catalog, now: Timestamp, task: &ReadyTask) {
        self.enter_at(catalog, transfers::wrapping_ms(now), task);
    }

    fn leave(&mut self, catalog: &Catalog, key: QueueKey) -> bool {
        let (tasks, facts) = self.tasks_and_facts(catalog);
        tasks.leave(key, |o| facts.of(o))
    }

    fn set_all_in_sight(&mut self, all: bool) {
        self.all_in_sight = all;
    }

    fn executor_joined(&mut self, catalog: &Catalog, executor: ExecutorId) {
        if self.seat_of.contains_key(&executor) {
            return;
        }
        let seat = catalog.seat(executor).expect("an executor joins the catalog first");
        let i = seat.0 as usize;
        if i >= self.seated.len() {
            self.seated.resize_with(i + 1, || None);
            self.uploads.resize(i + 1, 0);
        }
        self.uploads[i] = 0;
        self.none_free.clear();
        self.seat_of.insert(executor, seat);
        self.is_seated.insert(seat);
        self.n_joined = self.n_joined.wrapping_add(1);
        self.seated[i] = Some(SeatedExecutor {
            id: executor,
            session: self.n_joined,
            room: Room::default(),
            spare: 0,
            full: vec![],
            near: vec![],
            rank_updates: vec![],
            coming: FxHashMap::default(),
            moving: Moving::default(),
            n_open: 0,
            home_reads: vec![],
            n_moves: 0,
            wants_copies: false,
        });
        for object in catalog.objects_on(executor) {
            self.reheat(catalog, object);
            let start = spread(seat, object) % self.tasks.readers(object).len().max(1);
            self.walk_readers(catalog, seat, object, start, Walk::Appeared);
        }
        self.not_asked.insert(seat);
        self.stir();
    }

    fn executor_left(&mut self, catalog: &Catalog, executor: ExecutorId, objects: &[ObjectId]) {
        self.set_room(executor, Room::default());
        let Some(seat) = self.seat_of.remove(&executor) else { return };
        self.is_seated.remove(seat);
        self.has_hits.remove(seat);
        self.to_ask.remove(seat);
        self.not_asked.remove(seat);
        let n_home_reads = &mut self.n_home_reads;
        let n_direct = &mut self.n_direct;
        let home_load = &mut self.home_load;
        let attempts = &mut self.attempts;
        self.direct.retain(|task, reads| {
            if reads.first().is_some_and(|read| read.seat == seat) {
                attempts.remove(task);
                *n_home_reads -= reads.len() as u32;
                *n_direct -= reads.len() as u32;
                reads.iter().for_each(|read| home_load.end(read.mark));
                return false;
            }
            true
        });
        let seated = self.seated[seat.0 as usize].take().expect("an executor has this seat");
        self.n_readers -= u32::from(!seated.home_reads.is_empty());
        let mut coming: Vec<_> = seated.coming.into_iter().collect();
        coming.sort_unstable_by_key(|(object, _)| *object);
        for (object, coming) in coming {
            for task in &coming.tasks {
                self.attempts.remove(task);
            }
            self.stop_using(catalog, object, &coming);
        }
        for &object in objects {
            self.reheat(catalog, object);
        }
        self.stir();
    }

    fn set_room(&mut self, executor: ExecutorId, room: Room) {
        let Some(&seat) = self.seat_of.get(&executor) else { return };
        let old = std::mem::replace(&mut self.executor_at_mut(seat).room, room);
        self.n_slots_total = self.n_slots_total - u64::from(old.slots_total) + u64::from(room.slots_total);
        self.n_slots_idle = self.n_slots_idle - u64::from(old.slots_idle) + u64::from(room.slots_idle);
        move_between(&mut self.by_idle, seat, old.slots_idle, room.slots_idle);
        move_between(&mut self.by_ahead, seat, old.ahead, room.ahead);
        self.set_spare(seat);
        self.settle_open(seat);
        if old != room {
            self.has_hits.insert(seat);
            self.to_ask.insert(seat);
        }
    }

    fn room(&self, executor: ExecutorId) -> Option<Room> {
        Some(self.executor_at(*self.seat_of.get(&executor)?).room)
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

    fn replica_added(&mut self, catalog: &Catalog, executor: ExecutorId, object: ObjectId) {
        let Some(&seat) = self.seat_of.get(&executor) else { return };
        self.open.remove(&object);
        self.none_free.remove(&object);
        self.changed = true;
        let walk = if self.land(catalog, seat, object) { Walk::Landed } else { Walk::Appeared };
        self.reheat(catalog, object);
        let start = spread(seat, object) % self.tasks.readers(object).len().max(1);
        self.walk_readers(catalog, seat, object, start, walk);
        // There is one source more.
        if self.is_seated.len() <= STIR_ALL_MAX {
            self.stir();
        }
    }

    fn replica_dropped(&mut self, catalog: &Catalog, executor: ExecutorId, object: ObjectId) {
        let Some(&seat) = self.seat_of.get(&executor) else { return };
        self.changed = true;
        self.reheat(catalog, object);
        for i in 0..self.tasks.class_order.len() {
            let class = self.tasks.class_order[i];
            if self.tasks.classes[class as usize].multi.get(object).is_some() {
                let worth = self.recount(catalog, seat, class, object);
                if worth.n_tasks > 0 {
                    self.add_near(catalog, seat, class, object, worth.n_tasks);
                }
            }
        }
    }

    fn place(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        picks: &mut Vec<Pick>,
    ) -> Result<ExecutorId, Unplaced> {
        picks.clear();
        self.home_load.pass(now, self.n_home_reads + self.landed.len() as u32);
        self.settle_landed(now);
        // Those who were not asked yet are asked with what is known now.
        let is_due = self.changed || self.due.is_some_and(|due| due <= now);
        if is_due && now.since_ns(self.stirred) >= self.stir_ns() {
            self.stirred = now;
            self.forget_busy();
            self.stir();
            self.changed = false;
            self.due = None;
        }
        self.decide(catalog, now).map(|(executor, pick)| {
            picks.push(pick);
            executor
        })
    }

    fn why_not(&self, key: QueueKey) -> Option<Unplaced> {
        let class = self.tasks.group(self.tasks.group_of(key)?).class;
        Some(self.why_not_task(key, class))
    }

    fn wake_at(&self) -> Option<Timestamp> {
        let soonest = self.stirred.plus_ns(self.stir_ns());
        let asks = || self.next_among(&self.to_ask).or_else(|| self.next_among(&self.not_asked)).is_some();
        match self.changed || asks() {
            true => Some(soonest),
            false => self.due.map(|due| due.max(soonest)),
        }
    }

    fn give(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        executor: ExecutorId,
        key: QueueKey,
        routes: &mut Vec<Route>,
    ) {
        self.changed = true;
        self.set_out(catalog, now, executor, key, routes);
    }

    fn ended(&mut self, catalog: &Catalog, task: TaskId) {
        self.forget_attempt(catalog, task);
    }

    fn moved(&mut self, catalog: &Catalog, now: Timestamp, executor: ExecutorId, moved: &InputMoved) {
        if let Some(&seat) = self.seat_of.get(&executor) {
            self.watch(catalog, now, seat, moved);
        }
    }

    fn learnt(
        &mut self,
        catalog: &Catalog,
        executor: ExecutorId,
        inputs: &[InputReport],
        run_ns: Option<u64>,
    ) {
        self.changed = true;
        if let Some(run_ns) = run_ns {
            transfers::smooth(&mut self.run_ns, run_ns);
        }
        self.learn_times(inputs);
        let mut unseen = None;
        for input in inputs {
            match input.outcome {
                // As it was told to.
                CacheOutcome::Direct if self.streamed.contains(&input.object) => {
                    unseen.get_or_insert(false);
                }
                CacheOutcome::InPlace | CacheOutcome::Direct => {
                    unseen = Some(true);
                    self.open_up(catalog, input.object);
                }
                CacheOutcome::Miss | CacheOutcome::RemoteHit { .. } => {
                    unseen.get_or_insert(false);
                    self.learn_size(catalog, input);
                }
                CacheOutcome::LocalHit | CacheOutcome::Joined => {}
            }
        }
        if let (Some(unseen), Some(&seat)) = (unseen, self.seat_of.get(&executor)) {
            self.executor_at_mut(seat).moving.unseen = unseen;
        }
    }

    fn sole_input(&self, key: QueueKey) -> Option<ObjectId> {
        match self.tasks.inputs(self.tasks.group_of(key)?) {
            [input] => Some(input.object),
            _ => None,
        }
    }

    fn moving(&self, executor: ExecutorId) -> Moving {
        self.seat_of.get(&executor).map_or(Moving::default(), |seat| self.executor_at(*seat).moving)
    }

    fn heap_bytes(&self) -> usize {
        let of_executor = |m: &SeatedExecutor| {
            let full: usize = m.full.iter().map(|f| f.heap.capacity() * 16).sum();
            let near: usize = m.near.iter().flatten().map(|r| r.heap_bytes() + size_of::<Rank>()).sum();
            full + near + m.rank_updates.capacity() * size_of::<RankUpdate>()
        };
        self.tasks.heap_bytes() + self.seated.iter().flatten().map(of_executor).sum::<usize>()
    }

    #[cfg(any(test, feature = "reference"))]
    fn sanity_check(&self, catalog: &Catalog) {
        self.check(catalog);
    }
}
