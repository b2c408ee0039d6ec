//! `affinity`: every task goes to its files, and a file is fetched for as many tasks as possible.
//!
//! Source: our own. The window of Raicu09 §2.3 sees the first few thousand tasks and looks at one task at a
//! time. This policy sees (nearly) the whole queue through inverted indexes, so that it can ask *which file
//! should this executor fetch next?*
//!
//! The rules, in this order, for an executor with room:
//!   1. **Hits**: the oldest task whose inputs are all on the executor. The task is left to other executors
//!      if it would have to wait for a slot here, other executors have open slots for all queued tasks, and
//!      its inputs can be copied there in less time than a program runs. Of executors with the same room and all
//!      inputs of the task, the one gets it that has most bytes of them in memory.
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
//!     node. Attempts for which the node only unpacks what has come are not counted, up to as many again, so that links
//!     do not rest while processors unpack.
//!
//! | file | |
//! |---|---|
//! | `config` | all settings of the policy |
//! | `tasks` | the queue, by inputs |
//! | `hints` | which tasks have all inputs on which executor, and which objects are near which executor |
//! | `rank` | objects ranked by tasks per byte |
//! | `home` | the rate that home gives to a number of readers, learnt from the progress of reads |
//! | `transfers` | the objects on their way, their progress, and the sources that an input could come from |
//! | `reads` | the reads from home that are under way |
//! | `seated` | the executors, and the room that they have |
//! | `uploads` | what the executors serve to each other |
//! | `asking` | which executors are asked, and when all are asked again |
//! | `learnt` | times and sizes seen so far |
//! | `choose` | the rules |
//! | `disk` | what waits at each node's disk |
//! | `in_memory` | what executors have in memory, as far as reports show it |
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
use crate::executor_set::Seat;
use crate::network::{NetworkUse, Sites};
use asking::Asking;
use disk::DiskRead;
use eyas_terms::location::MadeLocation;
use eyas_terms::{CacheOutcome, ExecutorId, ObjectId, TaskId, Timestamp};
use in_memory::InMemory;
use kin::Spared;
use late::Late;
use learnt::{Sizes, Times};
use near::Near;
use pace::Compared;
use rank::Heat;
use reads::HomeReads;
use rustc_hash::{FxHashMap, FxHashSet};
use seated::{Executors, SeatedExecutor};
use std::fmt;
use std::sync::Arc;
use tasks::Tasks;
use uploads::Uploads;

mod asking;
mod choose;
mod config;
mod disk;
mod hints;
mod home;
mod in_memory;
mod kin;
mod late;
mod learnt;
mod near;
mod pace;
mod rank;
mod reads;
mod seated;
mod site;
mod tasks;
#[cfg(test)]
mod tests;
mod transfers;
mod uploads;

pub use config::Config;

/// A task to be given, by its bundle.
struct Choice {
    bundle: u32,
    reason: Reason,
}

pub const NAME: &str = "affinity";

/// With more executors than this, one new source is no reason to ask all of them again at once.
const ASK_ALL_EXECUTORS_MAX: usize = 128;
/// With at most this many queued tasks, every task that enters is a reason to ask all executors again.
const FEW_TASKS: usize = 4096;

/// See the module.
pub struct Affinity {
    config: Config,
    tasks: Tasks,
    executors: Executors,
    uploads: Uploads,
    asking: Asking,
    home: HomeReads,
    times: Times,
    sizes: Sizes,
    /// Places in the queue tried as seeds so far.
    n_seeds: u32,
    /// Attempts with inputs on their way.
    attempts: FxHashMap<TaskId, Attempt>,
    late: Late,
    disk_reads: FxHashMap<TaskId, DiskRead>,
    in_memory: InMemory,
    paces: Compared,
    /// Objects that this policy had read past a cache. That such an object was not cached does not mean
    /// that it cannot be.
    streamed: FxHashSet<ObjectId>,
    spared: Spared,
    near: Near,
    all_in_sight: bool,
    /// For objects whose holders may run all readers soon: the time since which the number of queued
    /// readers has been the same, and this number.
    unchanged_readers: FxHashMap<ObjectId, (Timestamp, u64)>,
    /// Objects that are never cached because they are read in place or too large. Placement ignores them.
    never_cached: FxHashSet<ObjectId>,
    /// The routes of the inputs of the task in the last decision.
    plan: Plan,
    /// Buffers that are kept so that their memory is used again.
    scratch: Vec<FoundReader>,
    seats: Vec<Seat>,
}

struct Attempt {
    executor: ExecutorId,
    size: TaskSize,
    lasts: Lasts,
    inputs: Vec<ObjectId>,
    waits: Vec<ObjectId>,
    /// Number of inputs that the attempt reads past the cache and that are still on their way.
    n_direct: u32,
    /// It waits only for what its node makes of packed files that are there.
    is_making: bool,
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

/// Whether nodes make `object` of a packed file.
fn is_made(catalog: &Catalog, object: ObjectId) -> bool {
    MadeLocation::of(catalog.location(object).text()).is_some()
}

/// Milliseconds of a clock that wraps after 49 days: good enough for ages.
fn wrapping_ms(at: Timestamp) -> u32 {
    (at.0 / 1_000_000) as u32
}

/// A number that differs between executors and objects, to begin walks at different places.
#[inline]
fn spread(seat: Seat, object: ObjectId) -> usize {
    let mixed = (u64::from(seat.0) << 32 | u64::from(object.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 33) as usize
}

/// The fields that give an object's size and heat, borrowed apart from the queue so that the queue can be
/// changed meanwhile.
#[derive(Clone, Copy)]
struct Facts<'a> {
    catalog: &'a Catalog,
    executors: &'a Executors,
    home: &'a HomeReads,
    sizes: &'a Sizes,
}

impl Facts<'_> {
    fn of(self, object: ObjectId) -> (u64, Heat) {
        (self.size_of(object), self.heat(object))
    }

    fn size_of(self, object: ObjectId) -> u64 {
        self.catalog.size_bytes(object).unwrap_or(self.sizes.assumed_bytes)
    }

    fn heat(self, object: ObjectId) -> Heat {
        let held = match self.catalog.holders_view(object) {
            HoldersView::List(list) => list.iter().any(|s| self.executors.seats.contains(*s)),
            HoldersView::Words(words) => {
                words.iter().zip(self.executors.seats.words()).any(|(a, b)| a & b != 0)
            }
        };
        match held {
            true => Heat::Warm,
            false if self.home.arriving.contains_key(&object) => Heat::Arriving,
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
            tasks: Tasks::default(),
            executors: Executors::default(),
            uploads: Uploads::new(config.uploads_max),
            asking: Asking::new(),
            home: HomeReads::default(),
            times: Times::default(),
            sizes: Sizes::default(),
            n_seeds: 0,
            attempts: FxHashMap::default(),
            late: Late::default(),
            disk_reads: FxHashMap::default(),
            in_memory: InMemory::default(),
            paces: Compared::default(),
            streamed: FxHashSet::default(),
            spared: Spared::default(),
            near: Near::default(),
            all_in_sight: false,
            unchanged_readers: FxHashMap::default(),
            never_cached: FxHashSet::default(),
            plan: Plan::default(),
            scratch: vec![],
            seats: vec![],
            config,
        })
    }

    fn size_of(&self, catalog: &Catalog, object: ObjectId) -> u64 {
        self.facts(catalog).size_of(object)
    }

    fn facts<'a>(&'a self, catalog: &'a Catalog) -> Facts<'a> {
        Facts { catalog, executors: &self.executors, home: &self.home, sizes: &self.sizes }
    }

    fn tasks_and_facts<'a>(&'a mut self, catalog: &'a Catalog) -> (&'a mut Tasks, Facts<'a>) {
        let facts = Facts { catalog, executors: &self.executors, home: &self.home, sizes: &self.sizes };
        (&mut self.tasks, facts)
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
        self.enter_at(catalog, wrapping_ms(now), task);
    }

    fn spare_home(&mut self, inputs: &[ObjectId]) {
        self.note_spared(inputs);
    }

    fn begins_with_tiles(&self) -> bool {
        self.n_classes_of_tiles(0) > 0
    }

    fn leave(&mut self, catalog: &Catalog, key: QueueKey) -> bool {
        let (tasks, facts) = self.tasks_and_facts(catalog);
        tasks.leave(key, |o| facts.of(o))
    }

    fn set_all_in_sight(&mut self, all: bool) {
        self.all_in_sight = all;
    }

    fn executor_joined(&mut self, catalog: &Catalog, executor: ExecutorId) {
        if self.executors.seat_of.contains_key(&executor) {
            return;
        }
        let seat = catalog.seat(executor).expect("an executor joins the catalog first");
        self.executors.join(executor, seat);
        self.uploads.joined(seat);
        for object in catalog.objects_on(executor) {
            self.reheat(catalog, object);
            let start = spread(seat, object) % self.tasks.readers(object).len().max(1);
            self.walk_readers(catalog, seat, object, start, Walk::Appeared);
        }
        self.near.joined(executor, seat);
        for object in catalog.objects_on(executor) {
            self.site_gains(catalog, seat, object);
        }
        self.asking.joined(seat);
        self.asking.all_again(&self.executors.seats);
    }

    fn executor_left(&mut self, catalog: &Catalog, executor: ExecutorId, objects: &[ObjectId]) {
        self.set_room(executor, Room::NONE);
        self.near.forget_awaited(executor);
        let Some(seat) = self.executors.seat_of.remove(&executor) else { return };
        self.executors.seats.remove(seat);
        self.in_memory.leave(seat);
        self.asking.left(seat);
        let seated = self.executors.by_seat[seat.0 as usize].take().expect("an executor has this seat");
        for task in self.home.left(seat, &seated) {
            self.attempts.remove(&task);
        }
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
        self.asking.all_again(&self.executors.seats);
    }

    fn set_room(&mut self, executor: ExecutorId, room: Room) {
        let Some(&seat) = self.executors.seat_of.get(&executor) else { return };
        let old = self.executors.set_room(seat, room);
        self.near.change_slots(seat, old.slots_total, room.slots_total);
        if old != room {
            self.asking.has_hits.insert(seat);
            self.asking.to_ask.insert(seat);
        }
    }

    fn room(&self, executor: ExecutorId) -> Option<Room> {
        Some(self.executors.at(*self.executors.seat_of.get(&executor)?).room)
    }

    fn n_executors(&self) -> usize {
        self.executors.seats.len()
    }

    fn n_slots_total(&self) -> u64 {
        self.executors.n_slots_total
    }

    fn n_slots_active(&self) -> u64 {
        self.executors.n_slots_total - self.executors.n_slots_idle
    }

    fn replica_added(&mut self, catalog: &Catalog, executor: ExecutorId, object: ObjectId) {
        let Some(&seat) = self.executors.seat_of.get(&executor) else { return };
        self.never_cached.remove(&object);
        self.uploads.appeared(object);
        self.asking.changed = true;
        let walk = if self.land(catalog, seat, object) { Walk::Landed } else { Walk::Appeared };
        self.reheat(catalog, object);
        self.site_gains(catalog, seat, object);
        let start = spread(seat, object) % self.tasks.readers(object).len().max(1);
        self.walk_readers(catalog, seat, object, start, walk);
        // There is one more source now.
        if self.executors.seats.len() <= ASK_ALL_EXECUTORS_MAX {
            self.asking.all_again(&self.executors.seats);
        }
    }

    fn replica_dropped(&mut self, catalog: &Catalog, executor: ExecutorId, object: ObjectId) {
        let Some(&seat) = self.executors.seat_of.get(&executor) else { return };
        self.in_memory.remove(seat, object);
        self.asking.changed = true;
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
        self.home.load.pass(now, self.home.n + self.home.landed.len() as u32);
        self.settle_landed(now);
        if self.asking.begins_anew(now, &self.executors) {
            self.uploads.forget_busy();
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
        self.asking.wake_at(&self.executors)
    }

    fn give(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        executor: ExecutorId,
        key: QueueKey,
        routes: &mut Vec<Route>,
    ) {
        self.asking.changed = true;
        self.set_out(catalog, now, executor, key, routes);
    }

    fn late(&mut self, catalog: &Catalog, now: Timestamp) -> Vec<TaskId> {
        self.late_attempts(catalog, now)
    }

    fn ended(&mut self, catalog: &Catalog, task: TaskId) {
        self.forget_attempt(catalog, task);
    }

    fn moved(&mut self, catalog: &Catalog, now: Timestamp, executor: ExecutorId, moved: &InputMoved) {
        if let Some(&seat) = self.executors.seat_of.get(&executor) {
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
        self.asking.changed = true;
        if let (Some(run_ns), Some(stage_ns)) = (run_ns, stage_ns) {
            self.learn_pace(executor, run_ns, stage_ns);
        }
        if let Some(run_ns) = run_ns {
            self.times.learn_run(run_ns);
        }
        self.times.learn(inputs);
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
        if let (Some(unseen), Some(&seat)) = (unseen, self.executors.seat_of.get(&executor)) {
            self.executors.at_mut(seat).moving.unseen = unseen;
        }
    }

    fn seen_in_memory(
        &mut self,
        executor: ExecutorId,
        inputs: &[InputReport],
        in_memory: &[u32],
        budget_bytes: u64,
    ) {
        let Some(&seat) = self.executors.seat_of.get(&executor) else { return };
        for (input, place) in inputs.iter().zip(0..) {
            match in_memory.binary_search(&place).is_ok() {
                true => self.in_memory.note(seat, input.object, input.size_bytes, budget_bytes),
                false => self.in_memory.remove(seat, input.object),
            }
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
        self.executors
            .seat_of
            .get(&executor)
            .map_or(Moving::default(), |seat| self.executors.at(*seat).moving)
    }

    fn heap_bytes(&self) -> usize {
        let executors: usize = self.executors.iter().map(SeatedExecutor::heap_bytes).sum();
        self.tasks.heap_bytes() + executors + self.in_memory.heap_bytes()
    }

    fn sanity_check(&self, catalog: &Catalog) {
        self.check(catalog);
    }
}
