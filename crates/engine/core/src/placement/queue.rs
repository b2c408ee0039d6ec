//! The interface between the dispatcher and placement, however a policy looks at the queue.
//!
//! In: the first [`Queue::capacity`] tasks of the queue, executors with their room, replicas, and the
//! outcomes of attempts that were given out, all reported in step with the dispatcher's own state. Out: one
//! decision per call of [`Queue::place`].
//!
//! There are three: [`Windowed`], the policies of the paper on a [`Window`], which have no memory;
//! [`super::affinity`], which looks at the whole queue and remembers which transfers it has planned; and
//! [`super::first_input`], which binds each task to a node as it enters.

use super::{NeedsId, Pick, Policy, QueueKey, ReadyTask, Room, TaskSize, Unplaced, Window};
use crate::catalog::Catalog;
use crate::event::{InputMoved, InputReport, Source};
use crate::network::Sites;
use eyas_terms::{ExecutorId, ObjectId, TaskId, Timestamp};
use std::fmt;
use std::sync::Arc;

/// How one input of a task that is given out reaches its executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub object: ObjectId,
    /// `None`: the input is there already, or on its way there for another attempt.
    pub source: Option<Source>,
    /// Read for this attempt only, past the cache.
    pub direct: bool,
    /// The executor shall report the transfer's progress.
    pub watched: bool,
}

/// Attempts on one executor whose inputs are still on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moving {
    pub n_attempts: u32,
    pub cpus: u32,
    /// The part of `cpus` of attempts for which nothing comes any more: the node is making their last inputs of packed ones.
    pub making_cpus: u32,
    /// Attempts there read inputs that no cache ever holds, so whether these have arrived cannot be seen.
    pub unseen: bool,
}

/// The queue, with its policy.
pub trait Queue: Send + Sync + fmt::Debug {
    /// The name as it is spelt in the configuration.
    fn name(&self) -> &'static str;

    /// Whether executors keep what they fetch and are told the holders of their inputs. `false`: each task
    /// reads from home.
    fn uses_caches(&self) -> bool;

    /// Whether [`Queue::give`] says where inputs come from. Otherwise the dispatcher spreads readers over holders.
    fn plans_routes(&self) -> bool {
        false
    }

    /// Whether a task may be taken out and put back to see what would be placed in its place.
    fn bears_asides(&self) -> bool {
        false
    }

    // ---- tasks

    /// How many tasks are looked at, at least 1.
    fn capacity(&self) -> usize;
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn is_full(&self) -> bool {
        self.len() >= self.capacity()
    }
    fn contains(&self, key: QueueKey) -> bool;
    /// The last task in queue order.
    fn last(&self) -> Option<QueueKey>;
    /// The sizes of the tasks that are here, each once.
    fn sizes(&self) -> Vec<TaskSize>;
    /// The first task in queue order that has these needs.
    fn first_with(&self, needs: NeedsId) -> Option<QueueKey>;
    /// The tasks of one size, in queue order.
    fn tasks_of_size(&self, size: TaskSize) -> Vec<QueueKey>;
    /// The number of tasks of one size.
    fn n_of_size(&self, size: TaskSize) -> usize;
    /// Notes that these objects are read from home once only, as far as possible ([`eyas_terms::array::Hint::Once`]). A task that reads them
    /// is about to enter.
    fn spare_home(&mut self, inputs: &[ObjectId]) {
        let _ = inputs;
    }
    /// Whether the first tasks in queue order are tiles: tasks of several such objects.
    fn begins_with_tiles(&self) -> bool {
        false
    }
    /// Adds a task, which must not be here yet.
    fn enter(&mut self, catalog: &Catalog, now: Timestamp, task: &ReadyTask);
    /// Takes a task out; `false`: it was not here.
    fn leave(&mut self, catalog: &Catalog, key: QueueKey) -> bool;

    /// Whether all tasks that may read the same files as the tasks here are here, too, as far as is known.
    fn set_all_in_sight(&mut self, _all: bool) {}

    // ---- executors, as for [`Window`]

    fn executor_joined(&mut self, catalog: &Catalog, executor: ExecutorId);
    fn executor_left(&mut self, catalog: &Catalog, executor: ExecutorId, objects: &[ObjectId]);
    fn set_room(&mut self, executor: ExecutorId, room: Room);
    fn room(&self, executor: ExecutorId) -> Option<Room>;
    fn n_executors(&self) -> usize;
    fn n_slots_total(&self) -> u64;
    fn n_slots_active(&self) -> u64;

    // ---- replicas

    fn replica_added(&mut self, catalog: &Catalog, executor: ExecutorId, object: ObjectId);
    fn replica_dropped(&mut self, catalog: &Catalog, executor: ExecutorId, object: ObjectId);

    // ---- decisions

    /// One decision: fills `picks` (cleared first) with tasks in the order in which they should be given to the
    /// executor, all of the same stage and together within its room.
    fn place(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        picks: &mut Vec<Pick>,
    ) -> Result<ExecutorId, Unplaced>;

    /// Why the task with that key, which is here, was not placed although some executor has room for it;
    /// `None` if the queue does not know this for each task. For users.
    fn why_not(&self, _key: QueueKey) -> Option<Unplaced> {
        None
    }

    /// Finds a task that waits without result, because the executors that hold most of its inputs are too
    /// small for it or rest. It fits the idle slots of the executor that is given with it.
    fn find_stranded(&self) -> Option<(ExecutorId, QueueKey)> {
        None
    }

    /// When waiting alone may change the answer of [`Queue::place`], after it had nothing to give.
    fn wake_at(&self) -> Option<Timestamp> {
        None
    }

    /// A picked task, which is still here, is about to be given to `executor`: appends to `routes` how its
    /// inputs get there, if the queue plans that. The caller takes the task out next.
    fn give(
        &mut self,
        _catalog: &Catalog,
        _now: Timestamp,
        _executor: ExecutorId,
        _key: QueueKey,
        _routes: &mut Vec<Route>,
    ) {
    }

    /// Attempts that wait for a slow transfer, and whose tasks would begin sooner if they were placed anew. Asked after
    /// [`Queue::place`] has had nothing to give. No attempt is named twice.
    fn late(&mut self, _catalog: &Catalog, _now: Timestamp) -> Vec<TaskId> {
        vec![]
    }

    /// The attempt at `task` that was last given out is over.
    fn ended(&mut self, _catalog: &Catalog, _task: TaskId) {}

    /// What an attempt on `executor` reports of its inputs. `stage_ns`: how long tasks of its stage run in the mean, if it ended
    /// well.
    fn learnt(
        &mut self,
        _catalog: &Catalog,
        _executor: ExecutorId,
        _inputs: &[InputReport],
        _run_ns: Option<u64>,
        _stage_ns: Option<u64>,
    ) {
    }

    /// A program has run on `executor`. `in_memory`: the places of those of its `inputs` that were in the executor's memory when the
    /// program began. `budget_bytes`: the executor holds at most so many bytes of objects in memory.
    fn seen_in_memory(
        &mut self,
        _executor: ExecutorId,
        _inputs: &[InputReport],
        _in_memory: &[u32],
        _budget_bytes: u64,
    ) {
    }

    /// The progress of a watched input on its way to `executor`.
    fn moved(&mut self, _catalog: &Catalog, _now: Timestamp, _executor: ExecutorId, _moved: &InputMoved) {}

    /// The executor measures how far it is from others, or has done so. Nothing should be moved to it meanwhile.
    fn set_awaited(&mut self, _executor: ExecutorId, _is_awaited: bool) {}

    /// The sites that executors are in have changed, or what was seen of their links. `None`: the network is one site, as far as is
    /// known.
    fn sites_found(&mut self, _catalog: &Catalog, _sites: Option<Arc<Sites>>) {}

    /// The only input of a task that is here and lists one input, if it is known without looking up its name.
    fn sole_input(&self, _key: QueueKey) -> Option<ObjectId> {
        None
    }

    /// Attempts on `executor` that cannot run yet.
    fn moving(&self, _executor: ExecutorId) -> Moving {
        Moving::default()
    }

    /// Heap bytes held.
    fn heap_bytes(&self) -> usize;

    /// Panics when an index differs from its recomputation.
    fn sanity_check(&self, catalog: &Catalog);
}

/// A policy of the paper, which looks at a [`Window`].
pub struct Windowed {
    pub window: Window,
    pub policy: Box<dyn Policy>,
}

impl fmt::Debug for Windowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} tasks", self.policy.name(), self.window.len())
    }
}

impl Queue for Windowed {
    fn name(&self) -> &'static str {
        self.policy.name()
    }
    fn uses_caches(&self) -> bool {
        self.policy.uses_caches()
    }
    fn bears_asides(&self) -> bool {
        true
    }
    fn capacity(&self) -> usize {
        self.window.capacity()
    }
    fn len(&self) -> usize {
        self.window.len()
    }
    fn contains(&self, key: QueueKey) -> bool {
        self.window.contains(key.task)
    }
    fn last(&self) -> Option<QueueKey> {
        self.window.last()
    }
    fn first_with(&self, needs: NeedsId) -> Option<QueueKey> {
        self.window.first_with(needs)
    }
    fn sizes(&self) -> Vec<TaskSize> {
        self.window.sizes()
    }
    fn tasks_of_size(&self, size: TaskSize) -> Vec<QueueKey> {
        self.window.tasks_of_size(size)
    }
    fn n_of_size(&self, size: TaskSize) -> usize {
        self.window.n_of_size(size)
    }
    fn enter(&mut self, catalog: &Catalog, _now: Timestamp, task: &ReadyTask) {
        self.window.enter(catalog, task);
    }
    fn leave(&mut self, _catalog: &Catalog, key: QueueKey) -> bool {
        self.window.leave(key.task)
    }
    fn executor_joined(&mut self, catalog: &Catalog, executor: ExecutorId) {
        self.window.executor_joined(catalog, executor);
    }
    fn executor_left(&mut self, _catalog: &Catalog, executor: ExecutorId, objects: &[ObjectId]) {
        self.window.executor_left(executor, objects);
    }
    fn set_room(&mut self, executor: ExecutorId, room: Room) {
        self.window.set_room(executor, room);
    }
    fn room(&self, executor: ExecutorId) -> Option<Room> {
        self.window.room(executor)
    }
    fn n_executors(&self) -> usize {
        self.window.n_executors()
    }
    fn n_slots_total(&self) -> u64 {
        self.window.n_slots_total()
    }
    fn n_slots_active(&self) -> u64 {
        self.window.n_slots_active()
    }
    fn replica_added(&mut self, _catalog: &Catalog, executor: ExecutorId, object: ObjectId) {
        self.window.replica_added(executor, object);
    }
    fn replica_dropped(&mut self, _catalog: &Catalog, executor: ExecutorId, object: ObjectId) {
        self.window.replica_dropped(executor, object);
    }
    fn place(
        &mut self,
        _catalog: &Catalog,
        _now: Timestamp,
        picks: &mut Vec<Pick>,
    ) -> Result<ExecutorId, Unplaced> {
        self.policy.place(&self.window, picks)
    }
    fn why_not(&self, key: QueueKey) -> Option<Unplaced> {
        let executor = *self.window.standing(key.task)?.best_holders.first()?;
        Some(Unplaced::WaitingForHolder { task: key.task, executor })
    }
    fn find_stranded(&self) -> Option<(ExecutorId, QueueKey)> {
        self.window.find_stranded()
    }
    fn heap_bytes(&self) -> usize {
        self.window.heap_bytes()
    }
    fn sanity_check(&self, catalog: &Catalog) {
        self.window.sanity_check(catalog);
    }
}
