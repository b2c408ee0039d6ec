//! `affinity`: every task goes to its files, and a file is fetched for as many tasks as possible.
//!
//! Source: our own. The window of Raicu09 §2.3 sees the first few thousand tasks and looks at one task at a
//! time. This policy sees (nearly) the whole queue through inverted indexes, so that it can ask *which file
//! should this executor fetch next?*
//!
//! The rules, in this order, for an executor with room:
//!   1. **Hits**: the oldest task whose inputs are all on the executor. The task is left to other executors
//!      if it would have to wait for a slot here, other executors have open slots for all queued tasks, and
//!      its inputs can be copied there in less time than a program runs.
//!   2. **The oldest task**: one in [`Config::oldest_every`] choices that move data is the oldest task that
//!      can go to the executor, so that no task starves.
//!   3. **Near** objects and **cold** objects: the executor fetches the object that gives most tasks per
//!      byte. An object is *near* an executor that lacks only this object for some tasks, and these tasks
//!      are counted. This rule alone makes square tiles of structured task sets such as All-Pairs. An
//!      object is *cold* if no executor holds it or is reading it. For a cold object only the tasks that
//!      read nothing else are counted, so it is worth the same to every executor.
//!   4. **Seeds**: where nothing is near, the executor takes a task whose inputs are all cold, far in the
//!      queue from where other executors began. What grows from there prefers tasks that are close in the
//!      queue, so tiles hardly overlap.
//!   5. **Copies**: an object that other executors hold is copied once its readers have waited longer than
//!      a copy takes. It is copied at once for a task whose inputs are not all on any executor.
//!
//! A task that lacks several inputs goes to the executor with room that holds most bytes of these inputs,
//! even if another executor was asked.
//!
//! Rule 5 holds for near objects as well: nothing is copied for a task that the holder may run a moment
//! later, nor to an executor that has enough to do without the copy. Tasks of larger priority come first,
//! both among hits and among tasks that move data.
//!
//! Moving data:
//!   - While one executor reads an object from home, the others wait for it and then copy it, as long as
//!     reading from home is slow (its time per byte against that of a copy) and the reader is not late.
//!   - An executor serves at most [`Config::uploads_max`] attempts at once, and the least loaded holder
//!     serves first. An attempt that copies from several executors counts as a part at each of them. This
//!     cap makes a tree from home to all executors that need an object; without it all of them would queue
//!     at the first holder.
//!   - An object is read past the cache each time if home delivers it faster than the node's disk does,
//!     even when all executors read it that way: by way of the cache its bytes would be written to the disk
//!     and read again. This holds where reading past the cache spares the disk
//!     ([`Config::disk_bytes_per_s`]). What is in the cache already is read past it while programs there have so
//!     much to read that home gives it sooner.
//!   - While enough is on its way to a node for all its slots, the node fetches nothing else.
//!   - An object is not copied if its holders are expected to run all its tasks before the copy is there,
//!     judged by how long programs ran so far.
//!   - An executor has at most as many attempts with moving inputs as slots. These attempts do not occupy
//!     slots as far as hits are concerned: waiting for home never blocks a task whose inputs are on the
//!     node.
//!
//! | file | |
//! |---|---|
//! | `config` | all settings of the policy |
//! | `tasks` | the queue, by inputs |
//! | `hints` | which tasks have all inputs on which executor, and which objects are near which executor |
//! | `rank` | objects ranked by tasks per byte |
//! | `home` | the rate that home gives to a number of readers, learnt from the progress of reads |
//! | `transfers` | the objects on their way, their progress, and the sources that an input could come from |
//! | `choose` | the rules |
//! | `disk` | what waits at each node's disk |
//! | `pace` | which executors leave the last tasks to faster ones |
//! | `late` | attempts that are better begun anew than left to wait for a slow transfer |
//! | `kin` | tasks whose inputs leave home once |
//! | `near` | which source is near, where the network has several sites |
//! | `site` | what a site has, and what should cross a slow link into it |
//!
//! The indexes of executors (`full`, `near`) are hints: they are checked when used. They are also bounded
//! where an object is read by a great many bundles ([`Config::readers_max`]) or held by a great many
//! executors ([`Config::holders_max`]); the other rules find what the indexes miss. No executor gets a task
//! that it has no room for, and no source is used beyond its cap.
//!
//! Nobody polls: where an answer changes with time alone, [`Queue::wake_at`] says when.
//!
//! The policy assumes that inputs are immutable and that tasks are short compared with the run. Cost: a
//! decision looks at a bounded number of candidates, each with at most `readers_max` readers; a replica
//! that appears costs one step per reader.
//!
//! Not here: which replicas are evicted, how bytes move, how many tasks an executor is given ahead
//! (`dispatcher`).

use super::queue::{Moving, Queue, Route};
use super::window::move_between;
use super::{Lasts, NeedsId, Pick, QueueKey, ReadyTask, Reason, Room, TaskSize, Unplaced};
use crate::catalog::{Catalog, HoldersView};
use crate::event::{InputMoved, InputReport, Source};
use crate::executor_set::{Seat, SeatSet};
use crate::means::smooth;
use crate::network::{NetworkUse, Sites};
use disk::{DiskLoad, DiskRead};
use eyas_terms::{CacheOutcome, ExecutorId, ObjectId, TaskId, Timestamp};
use home::{HomeLoad, Landed, Mark};
use kin::Spared;
use late::Late;
use near::Near;
use pace::{Compared, Pace};
use rank::{Heat, Rank};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;
use tasks::Tasks;

mod choose;
mod config;
mod disk;
mod hints;
mod home;
mod kin;
mod late;
mod near;
mod pace;
mod rank;
mod site;
mod tasks;
#[cfg(test)]
mod tests;
mod transfers;

pub use config::Config;

/// A task to be given, by its bundle.
struct Choice {
    bundle: u32,
    reason: Reason,
}

/// Means move towards a new value by a sixteenth.
const SMOOTHED_OVER: u64 = 16;

pub const NAME: &str = "affinity";

/// How often all executors that found no work are asked again, since a task that has waited long enough may
/// be copied for: this long per executor, within bounds.
const ASK_ALL_NS_EACH: u64 = 100_000;
const ASK_ALL_NS_MIN: u64 = 5_000_000;
const ASK_ALL_NS_MAX: u64 = 100_000_000;
/// With more executors than this, one new source is no reason to ask all of them again at once.
const ASK_ALL_EXECUTORS_MAX: usize = 128;
/// An object with at least this many busy holders is remembered as busy until all executors are asked
/// again.
const BUSY_HOLDERS_MIN: usize = 16;
/// With at most this many queued tasks, every task that enters is a reason to ask all executors again.
const FEW_TASKS: usize = 4096;

/// See the module.
pub struct Affinity {
    config: Config,
    tasks: Tasks,
    /// Indexed by seat, like `uploads`.
    seated: Vec<Option<SeatedExecutor>>,
    is_seated: SeatSet,
    seat_of: FxHashMap<ExecutorId, Seat>,
    n_joined: u32,
    by_idle: BTreeMap<u32, SeatSet>,
    by_ahead: BTreeMap<u32, SeatSet>,
    /// Executors that may be given a task with inputs to move, by the number of attempts that they have
    /// room for.
    by_spare: BTreeMap<u32, SeatSet>,
    /// By seat: the attempts that the executor copies inputs for, each counted by the part of its copies
    /// that come from this executor. The list stands beside the executors, not in them, because one choice
    /// reads the entries of many executors.
    uploads: Vec<u32>,
    n_slots_total: u64,
    n_slots_idle: u64,
    /// Idle slots that will not be taken by an attempt with moving inputs.
    n_slots_open: u64,
    /// `has_hits`: executors that may have a hit. `to_ask`: executors that may find a task with inputs to
    /// move and have not been asked since something changed for them.
    has_hits: SeatSet,
    to_ask: SeatSet,
    /// Something has changed since all executors were last asked again, so some of their answers may differ
    /// now.
    changed: bool,
    /// The earliest time at which an answer given since then changes without any event.
    due: Option<Timestamp>,
    /// Executors that have not been asked in this round. The next round begins when all executors with room
    /// have been asked and something has changed since.
    not_asked: SeatSet,
    /// The time when all executors were last asked again because the interval was over.
    all_asked_at: Timestamp,
    /// The seat at which the search for an executor that moves data goes on, so that caches fill evenly.
    turn: u32,
    /// Places in the queue tried as seeds so far.
    n_seeds: u32,
    /// Attempts with inputs on their way.
    attempts: FxHashMap<TaskId, Attempt>,
    late: Late,
    disk_reads: FxHashMap<TaskId, DiskRead>,
    paces: Compared,
    /// Objects that some executor is reading from home into its cache, so that others may wait for them.
    arriving: FxHashMap<ObjectId, Arriving>,
    n_home_reads: u32,
    /// Executors that read from home.
    n_readers: u32,
    /// Reads past the caches that are under way, by the task that reads.
    direct: FxHashMap<TaskId, Vec<Direct>>,
    n_direct: u32,
    /// Objects that this policy had read past a cache. That such an object was not cached does not mean
    /// that it cannot be.
    streamed: FxHashSet<ObjectId>,
    spared: Spared,
    near: Near,
    /// The rate of home for reads into a cache (through the disk), and for reads past it.
    home_load: HomeLoad,
    direct_load: HomeLoad,
    all_in_sight: bool,
    /// Reads from home that have ended since the last decision. They are evaluated at the next decision,
    /// which knows the time.
    landed: Vec<Landed>,
    /// Objects with many holders, all of which serve as many attempts as they may.
    busy: FxHashSet<ObjectId>,
    /// Objects with fewer holders, all of which served as many attempts as they may when `freed` had this
    /// length.
    none_free: FxHashMap<ObjectId, u32>,
    freed: Vec<Seat>,
    /// Smoothed time per MiB, counted from the moment at which the executor received the attempt.
    home_ns_per_mib: Option<u64>,
    copy_ns_per_mib: Option<u64>,
    /// Smoothed run time of programs.
    run_ns: Option<u64>,
    /// The time when the first copy of all set out.
    first_copy_at: Option<Timestamp>,
    /// For objects whose holders may run all readers soon: the time since which the number of queued
    /// readers has been the same, and this number.
    unchanged_readers: FxHashMap<ObjectId, (Timestamp, u64)>,
    /// Objects that are never cached because they are read in place or too large. Placement ignores them.
    never_cached: FxHashSet<ObjectId>,
    /// The size assumed for an object of unknown size: the mean of the sizes seen.
    size_bytes_assumed: u64,
    n_sizes: u64,
    sum_sizes: u128,
    /// The routes of the inputs of the task in the last decision.
    plan: Plan,
    /// Buffers that are kept so that their memory is used again.
    scratch: Vec<FoundReader>,
    seats: Vec<Seat>,
}

struct SeatedExecutor {
    id: ExecutorId,
    /// A number that differs each time an executor joins.
    session: u32,
    room: Room,
    spare: u32,
    /// By class: bundles whose inputs are all on the executor, with the task that was the oldest when the
    /// bundle was pushed.
    full: Vec<Full>,
    /// By class: objects that would complete the inputs of some tasks here, with an upper bound of the
    /// number of these tasks.
    near: Vec<Option<Box<Rank>>>,
    /// Changes of `near` that have not been applied yet; they are applied before `near` is read. One new
    /// task changes the ranks of many executors, which lie all over the memory, so changes are collected.
    rank_updates: Vec<RankUpdate>,
    /// Objects on their way to this executor.
    coming: FxHashMap<ObjectId, Coming>,
    moving: Moving,
    /// This executor's part of [`Affinity::n_slots_open`].
    n_open: u32,
    /// The objects that this executor reads from home, one entry for each read.
    home_reads: Vec<ObjectId>,
    /// Some inputs of the last task with spared inputs that this executor was given.
    recent: Vec<ObjectId>,
    /// The priority of that task, and how many such tasks in a row had it.
    recent_priority: Option<(i32, u32)>,
    /// Number of tasks with inputs to move that this executor was given.
    n_moves: u32,
    disk: DiskLoad,
    pace: Pace,
    /// The executor has too little to do to leave objects to their holders. The value is computed anew each
    /// time the executor is asked.
    wants_copies: bool,
}

/// A change of `near`: `n_tasks` more tasks of a class lack only `object`.
struct RankUpdate {
    object: ObjectId,
    class: u32,
    n_tasks: u32,
    size_bytes: u64,
}

#[derive(Default)]
struct Full {
    heap: BinaryHeap<Reverse<(TaskId, u32)>>,
    /// The length at which stale entries are removed.
    limit: usize,
}

struct Coming {
    source: Source,
    /// The session of the source, if it is a peer: a peer may leave and join again.
    session: u32,
    /// The share of the source's capacity to serve that this copy takes, in parts of an attempt
    /// (`UPLOAD_PARTS`).
    weight: u32,
    begun_at: Timestamp,
    /// The progress of the transfer when it set out or was last reported.
    mark: Mark,
    /// The attempt that the transfer was started for.
    begun_for: TaskId,
    /// Attempts that wait for the object.
    tasks: Vec<TaskId>,
}

impl Coming {
    /// Started for the attempt of `task`, which is given out now.
    fn for_task(task: TaskId, source: Source, weight: u32) -> Coming {
        let (begun_at, mark) = Default::default();
        Coming { source, session: 0, weight, begun_at, mark, begun_for: task, tasks: vec![task] }
    }
}

/// A read from home for one attempt only.
struct Direct {
    seat: Seat,
    object: ObjectId,
    mark: Mark,
    /// A replica is on the executor, so the task counted as one without inputs to move.
    is_hit: bool,
}

struct Attempt {
    executor: ExecutorId,
    size: TaskSize,
    lasts: Lasts,
    inputs: Vec<ObjectId>,
    waits: Vec<ObjectId>,
    /// Number of inputs that the attempt reads past the cache and that are still on their way.
    n_direct: u32,
}

struct Arriving {
    n: u32,
    /// Number of all reads from home that were under way when this read began, itself included.
    n_reads: u32,
    since: Timestamp,
    /// The last report: its time, the bytes that had come, and their rate in bytes per second.
    progress: Option<(Timestamp, u64, f64)>,
}

/// A route for each input that has to move to the task's executor.
#[derive(Default)]
struct Plan {
    task: Option<TaskId>,
    moves: Vec<(ObjectId, Source)>,
}

/// What a walk through an object's readers has found.
enum FoundReader {
    Full(u32),
    Near(u32, ObjectId, u32),
}

/// The reason for a walk through an object's readers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// The object has set out: tasks that now lack only one other input make that input near.
    Coming,
    /// The object had set out before and has arrived: tasks that it completes can run.
    Landed,
    /// The object has arrived without having set out before: both apply.
    Appeared,
}

/// Whether the executor on `seat` holds `object`, by the catalog.
#[inline]
fn holds(catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
    catalog.seat_holds(seat, object)
}

/// When this many changes of a rank wait, they are applied.
const RANK_UPDATES_MAX: usize = 256;

/// A number that differs between executors and objects, to begin walks at different places.
#[inline]
fn spread(seat: Seat, object: ObjectId) -> usize {
    let mixed = (u64::from(seat.0) << 32 | u64::from(object.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 33) as usize
}

impl SeatedExecutor {
    /// Applies the collected changes of `near`, in their order.
    fn apply_rank_updates(&mut self) {
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
    fn has(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        holds(catalog, seat, object) || self.awaits(object)
    }

    /// Whether `object` is on its way to this executor.
    #[inline]
    fn awaits(&self, object: ObjectId) -> bool {
        !self.coming.is_empty() && self.coming.contains_key(&object)
    }
}

/// The fields that give an object's size and heat, borrowed apart from the queue so that the queue can be
/// changed meanwhile.
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
    /// `Err` is one sentence for users.
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
            all_asked_at: Timestamp::default(),
            turn: 0,
            n_seeds: 0,
            attempts: FxHashMap::default(),
            late: Late::default(),
            disk_reads: FxHashMap::default(),
            paces: Compared::default(),
            arriving: FxHashMap::default(),
            n_home_reads: 0,
            n_readers: 0,
            direct: FxHashMap::default(),
            n_direct: 0,
            streamed: FxHashSet::default(),
            spared: Spared::default(),
            near: Near::default(),
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
            first_copy_at: None,
            unchanged_readers: FxHashMap::default(),
            never_cached: FxHashSet::default(),
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

    /// Asks again all executors that may be given a task with inputs to move.
    fn ask_all_again(&mut self) {
        self.changed = true;
        self.to_ask.clone_from(&self.is_seated);
        if self.not_asked.is_empty() {
            self.not_asked.clone_from(&self.is_seated);
        }
    }

    fn ask_all_every_ns(&self) -> u64 {
        (self.is_seated.len() as u64 * ASK_ALL_NS_EACH).clamp(ASK_ALL_NS_MIN, ASK_ALL_NS_MAX)
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

    /// Counts anew the idle slots of an executor that will not be taken by attempts with moving inputs.
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

    fn first_with(&self, needs: NeedsId) -> Option<QueueKey> {
        let classes = self.tasks.class_order.iter().map(|c| &self.tasks.classes[*c as usize]);
        let first = |c: &tasks::Class| {
            c.order.first_key_value().map(|(&task, _)| QueueKey { priority: c.priority, task })
        };
        classes.filter(|c| c.size.needs == needs).filter_map(first).min()
    }

    fn sizes(&self) -> Vec<TaskSize> {
        let of = |c: &u32| self.tasks.classes[*c as usize].size;
        let mut sizes: Vec<_> = self.tasks.class_order.iter().map(of).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn tasks_of_size(&self, size: TaskSize) -> Vec<QueueKey> {
        let classes = self.tasks.class_order.iter().map(|c| &self.tasks.classes[*c as usize]);
        let of_size = classes.filter(|c| c.size == size);
        let keys = |c: &tasks::Class| {
            let priority = c.priority;
            c.order.keys().map(move |&task| QueueKey { priority, task }).collect::<Vec<_>>()
        };
        let mut keys: Vec<QueueKey> = of_size.flat_map(keys).collect();
        keys.sort_unstable();
        keys
    }

    fn n_of_size(&self, size: TaskSize) -> usize {
        let classes = self.tasks.class_order.iter().map(|c| &self.tasks.classes[*c as usize]);
        classes.filter(|c| c.size == size).map(|c| c.order.len()).sum()
    }

    fn enter(&mut self, catalog: &Catalog, now: Timestamp, task: &ReadyTask) {
        self.enter_at(catalog, transfers::wrapping_ms(now), task);
    }

    fn spare_home(&mut self, inputs: &[ObjectId]) {
        self.note_spared(inputs);
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
        for object in catalog.objects_on(executor) {
            self.reheat(catalog, object);
            let start = spread(seat, object) % self.tasks.readers(object).len().max(1);
            self.walk_readers(catalog, seat, object, start, Walk::Appeared);
        }
        self.near.joined(executor, seat);
        for object in catalog.objects_on(executor) {
            self.site_gains(catalog, seat, object);
        }
        self.not_asked.insert(seat);
        self.ask_all_again();
    }

    fn executor_left(&mut self, catalog: &Catalog, executor: ExecutorId, objects: &[ObjectId]) {
        self.set_room(executor, Room::NONE);
        self.near.forget_awaited(executor);
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
            self.spared.stopped(object, seat);
            self.near.stopped(object, seat);
            self.stop_using(catalog, object, &coming);
            self.site_may_lose(catalog, seat, object);
        }
        for &object in objects {
            self.reheat(catalog, object);
            self.site_may_lose(catalog, seat, object);
        }
        self.near.left(seat);
        self.ask_all_again();
    }

    fn set_room(&mut self, executor: ExecutorId, room: Room) {
        let Some(&seat) = self.seat_of.get(&executor) else { return };
        let old = std::mem::replace(&mut self.executor_at_mut(seat).room, room);
        self.n_slots_total = self.n_slots_total - u64::from(old.slots_total) + u64::from(room.slots_total);
        self.n_slots_idle = self.n_slots_idle - u64::from(old.slots_idle) + u64::from(room.slots_idle);
        move_between(&mut self.by_idle, seat, old.idle_rank(), room.idle_rank());
        move_between(&mut self.by_ahead, seat, old.ahead, room.ahead);
        self.set_spare(seat);
        self.settle_open(seat);
        self.near.change_slots(seat, old.slots_total, room.slots_total);
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
        self.never_cached.remove(&object);
        self.none_free.remove(&object);
        self.changed = true;
        let walk = if self.land(catalog, seat, object) { Walk::Landed } else { Walk::Appeared };
        self.reheat(catalog, object);
        self.site_gains(catalog, seat, object);
        let start = spread(seat, object) % self.tasks.readers(object).len().max(1);
        self.walk_readers(catalog, seat, object, start, walk);
        // There is one more source now.
        if self.is_seated.len() <= ASK_ALL_EXECUTORS_MAX {
            self.ask_all_again();
        }
    }

    fn replica_dropped(&mut self, catalog: &Catalog, executor: ExecutorId, object: ObjectId) {
        let Some(&seat) = self.seat_of.get(&executor) else { return };
        self.changed = true;
        self.reheat(catalog, object);
        self.site_may_lose(catalog, seat, object);
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
        self.near.pass(now);
        self.compare_paces(now);
        self.home_load.pass(now, self.n_home_reads + self.landed.len() as u32);
        self.settle_landed(now);
        // Executors that have not been asked yet are asked with the newest knowledge anyway. The others are
        // asked again only after the interval.
        let is_due = self.changed || self.due.is_some_and(|due| due <= now);
        if is_due && now.since_ns(self.all_asked_at) >= self.ask_all_every_ns() {
            self.all_asked_at = now;
            self.forget_busy();
            self.ask_all_again();
            self.changed = false;
            self.due = None;
        }
        self.decide(catalog, now).map(|(executor, pick)| {
            picks.push(pick);
            executor
        })
    }

    fn why_not(&self, key: QueueKey) -> Option<Unplaced> {
        let class = self.tasks.bundle(self.tasks.bundle_of(key)?).class;
        Some(self.why_not_task(key, class))
    }

    fn wake_at(&self) -> Option<Timestamp> {
        let soonest = self.all_asked_at.plus_ns(self.ask_all_every_ns());
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

    fn late(&mut self, catalog: &Catalog, now: Timestamp) -> Vec<TaskId> {
        self.late_attempts(catalog, now)
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
        stage_ns: Option<u64>,
    ) {
        self.changed = true;
        if let (Some(run_ns), Some(stage_ns)) = (run_ns, stage_ns) {
            self.learn_pace(executor, run_ns, stage_ns);
        }
        if let Some(run_ns) = run_ns {
            smooth(&mut self.run_ns, run_ns, SMOOTHED_OVER);
        }
        self.learn_times(inputs);
        let mut unseen = None;
        for input in inputs {
            match input.outcome {
                // The executor read the object past the cache because this policy asked for it.
                CacheOutcome::Direct if self.streamed.contains(&input.object) => {
                    unseen.get_or_insert(false);
                }
                CacheOutcome::InPlace | CacheOutcome::Direct => {
                    unseen = Some(true);
                    self.mark_never_cached(catalog, input.object);
                }
                CacheOutcome::Miss | CacheOutcome::RemoteHit { .. } | CacheOutcome::Made => {
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

    fn sites_found(&mut self, catalog: &Catalog, sites: Option<Arc<Sites>>) {
        if self.config.network != NetworkUse::Off {
            self.settle_sites(catalog, sites);
        }
    }

    fn set_awaited(&mut self, executor: ExecutorId, is_awaited: bool) {
        Affinity::set_awaited(self, executor, is_awaited);
    }

    fn sole_input(&self, key: QueueKey) -> Option<ObjectId> {
        match self.tasks.inputs(self.tasks.bundle_of(key)?) {
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

    fn sanity_check(&self, catalog: &Catalog) {
        self.check(catalog);
    }
}
