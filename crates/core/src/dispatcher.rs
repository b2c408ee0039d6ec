//! Dispatcher: which task runs where, and when its inputs start moving.
//!
//! Input: [`Event`]s and the current [`Timestamp`]. Output: [`Action`]s for a driver to carry out.
//! There is no I/O, clock or lock here; `eyas-runtime` is the live driver, the replayer another.
//!
//! A task is in exactly one of these states (drawing in `docs/states/task.md`):
//!
//! | state | where it lives |
//! |---|---|
//! | waiting | `waiting`: another task still has to make one of its inputs |
//! | ready | `queue` (the first tasks in queue order, unfolded), or folded in `backlog` |
//! | reserved | `reserved`: given to an executor, which stages its inputs and runs it |
//! | landing | `reserved` with `landing` set: its program ended well, its outputs travel home |
//! | done, failed, cancelled | two bits in its array's `ends` |
//!
//! Invariants, checked by [`Dispatcher::sanity_check`]:
//!   1. every task of a started run is in exactly one of these places, and the run's counts say so;
//!   2. an executor's assigned cpus and memory are the sums over its reserved, not yet landing attempts;
//!   3. while the backlog is not empty the queue is full, and no backlog task goes before a task of the queue;
//!   4. catalog and queue agree on every replica.
//!
//! Why only the first tasks: policies look at so many tasks, counted and not timed, so that a run gives
//! the same answer on a fast and a slow machine, and only these are ever unfolded.
//!
//! Why executors get more than their slots: the next inputs move while this task computes. How many
//! more follows from how short the tasks are (about [`AHEAD_NS`] of work), and nothing is given ahead
//! once fewer tasks are ready than there are slots: the last tasks go to whoever is free first.
//!
//! Why attempts can be *suspect*: one run reads one version of an object. The first bytes that a run is
//! known to have read hold it; until then its attempts learn from home what they read. When other bytes
//! turn up under a name, those attempts may have read either: their success does not count, and they are
//! tried again with bytes that are known. This memory is one process long, as the journal holds no digests.
//!
//! Files that stay on the nodes (`run:` locations) are the child module `intermediates`, patterns and collectives `moves`, tasks
//! that are added to a run that goes on `additions`, files that cross from one dispatcher of a group to another `exchange`.
//!
//! Not here: how bytes move and what is evicted ([`crate::executor`]), which executor suits which task
//! ([`crate::placement`]), how nodes come and go.

mod additions;
mod exchange;
mod intermediates;
mod moves;
mod run_times;

pub use intermediates::{REVIVALS_MAX, unscoped};
pub use moves::CollectiveMode;

use self::additions::Additions;
use self::exchange::{Exchange, Linked};
use self::intermediates::{Intermediate, Intermediates, Leaving};
use self::moves::Moves;
use self::run_times::RunTimes;
use crate::array::{Pattern, TaskArray, TaskSpec};
use crate::catalog::Catalog;
use crate::collective::CollectiveEvent;
use crate::event::*;
use crate::group::Membership;
use crate::placement::{self, Mode, Pick, Queue, QueueKey, ReadyTask, Room, Route, Rule, Stage, Unplaced};
use crate::provisioning::{Demand, NodeView};
use crate::types::*;
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::sync::Arc;

/// Work that an executor should have beyond its slots, so that it never waits for a message.
const AHEAD_NS: u64 = 30_000_000;
/// Most attempts beyond its slots that one executor is given.
const AHEAD_MAX: u32 = 512;
/// How many tasks are put aside at most in the search for one that reads nothing that is on its way.
const ASIDE_MAX: usize = 128;
/// After a search in vain so many decisions are taken without one; doubled for each further one, as for tasks
/// that all read one object which is never cached.
const SEARCH_REST: u32 = 16;
const SEARCH_REST_MAX: u32 = 4096;
/// How long a node gets nothing after an attempt failed through its fault; doubled for each further one.
const SICK_NS: u64 = 1_000_000_000;
const SICK_NS_MAX: u64 = 60_000_000_000;
/// How long a restarted dispatcher waits for executors to come back with what they still run.
const RETURN_GRACE_NS: u64 = 2_000_000_000;
/// How long a task that fits no connected executor waits for a larger one to come.
const UNFIT_GRACE_NS: u64 = 15_000_000_000;
/// Holders named per input; more would only be tried after these failed.
const SOURCES_MAX: usize = 3;
/// Failures kept per run for people to look at.
const FAILURES_KEPT: usize = 20;

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct DispatcherConfig {
    /// A name in [`placement::NAMES`].
    pub placement: String,
    pub placement_config: placement::Config,
    /// A silent executor is given up after so long, and its attempts go elsewhere.
    pub lease_ns: u64,
    /// A task that was on so many lost executors is taken to be what kills them.
    pub losses_max: u32,
    /// Attempts that may fail through the node's fault before the task fails.
    pub weather_max: u32,
    /// Which collectives there are.
    #[serde(default)]
    pub collectives: CollectiveMode,
    /// Tells this cluster's `run:` files from those of others; the same after a restart.
    #[serde(default)]
    pub scope: String,
    /// Which of several dispatchers this is, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Membership>,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        DispatcherConfig {
            placement: placement::affinity::NAME.into(),
            placement_config: placement::Config::default(),
            lease_ns: 15_000_000_000,
            losses_max: 3,
            weather_max: 5,
            collectives: CollectiveMode::default(),
            scope: "here".into(),
            group: None,
        }
    }
}

/// How a task ended, in two bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Not = 0,
    Done = 1,
    Failed = 2,
    Cancelled = 3,
}

impl End {
    fn of(outcome: &Outcome) -> End {
        match outcome {
            Outcome::Done => End::Done,
            Outcome::Failed(_) => End::Failed,
            Outcome::Cancelled => End::Cancelled,
        }
    }
}

/// Two bits per task.
#[derive(Default)]
struct Ends(Vec<u64>);

impl Ends {
    fn new(n_tasks: u32) -> Ends {
        Ends(vec![0; (n_tasks as usize).div_ceil(32)])
    }
    fn get(&self, i: u32) -> End {
        match self.0[i as usize / 32] >> (2 * (i % 32)) & 3 {
            0 => End::Not,
            1 => End::Done,
            2 => End::Failed,
            _ => End::Cancelled,
        }
    }
    fn set(&mut self, i: u32, end: End) {
        let word = &mut self.0[i as usize / 32];
        *word = *word & !(3 << (2 * (i % 32))) | (end as u64) << (2 * (i % 32));
    }
}

struct ArrayState {
    base: TaskId,
    run: RunId,
    array: Arc<TaskArray>,
    ends: Ends,
    /// In `run_times`.
    stage: u32,
    /// Some of its tasks may read, or write, files that stay on the nodes.
    reads_run: bool,
    writes_run: bool,
}

/// A stretch of ready tasks of one array that is still folded: `start..end`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    array: ArrayId,
    start: u32,
    end: u32,
}

/// A task that an executor has.
#[derive(Clone, Debug)]
struct Reserved {
    executor: ExecutorId,
    attempt: AttemptNo,
    cpus: u32,
    memory_bytes: u64,
    landing: bool,
    cancelling: bool,
    /// Order in which attempts were given out.
    given: u64,
    /// It was asked back, see [`Dispatcher::recall`].
    recalled: bool,
    /// It asks home for an input: which bytes it gets, it learns there.
    asks_home: bool,
    /// It may have read other bytes of an input than its run agreed on: its success does not count.
    suspect: bool,
    outputs: Vec<ObjectId>,
    /// Some of them go home.
    lands: bool,
    /// Inputs that nobody held or was reading when this attempt was given out, see `arriving`.
    reads_first: Vec<ObjectId>,
}

/// What earlier attempts leave behind; only for tasks that had one.
#[derive(Clone, Debug, Default)]
struct History {
    n_attempts: u32,
    n_own_failures: u32,
    n_weather: u32,
    n_losses: u32,
    private_inputs: bool,
}

struct ExecutorState {
    offer: Offer,
    /// Since when its connection is broken.
    silent_since: Option<Timestamp>,
    /// It takes nothing new.
    draining: bool,
    /// Since when, and which files that only it held other nodes were asked to copy.
    leaving: Option<Leaving>,
    assigned: BTreeMap<TaskId, AttemptNo>,
    cpus_assigned: u32,
    memory_assigned: u64,
    /// Smoothed time from start to exit of the tasks it ran.
    run_ns_mean: Option<u64>,
    /// When it joined, or an attempt of it ended: since then it is idle, if it has no other.
    last_ended: Timestamp,
    /// Attempts in a row that failed through this node's fault, and until when it gets nothing for that:
    /// a node that fails at once is idle first, and would eat the whole queue.
    n_node_failures: u32,
    sick_until: Option<Timestamp>,
}

/// One run, as people ask after it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunState {
    pub name: String,
    /// Its tasks may run.
    pub started: bool,
    /// No more tasks come.
    pub committed: bool,
    /// Files that stay on the nodes are not dropped when the last reader is done.
    pub keep: bool,
    pub opened: Timestamp,
    pub ended: Option<Timestamp>,
    pub n_tasks: u64,
    pub n_waiting: u64,
    pub n_ready: u64,
    /// Given to an executor; `n_landing` of them are bringing outputs home.
    pub n_reserved: u64,
    pub n_landing: u64,
    pub n_done: u64,
    pub n_failed: u64,
    pub n_cancelled: u64,
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
    /// The latest failures.
    pub failures: VecDeque<(TaskId, Failure)>,
    /// All of it was cancelled; what is added to it is, too.
    pub cancelled: bool,
    arrays: Vec<ArrayId>,
    /// Its tasks are added to this run.
    into: Option<RunId>,
    additions: Additions,
    /// What tells its files that stay on the nodes from those of other runs.
    prefix: String,
    /// Objects that changed at home after this run had read them.
    changed: BTreeSet<ObjectId>,
    /// What is known of its parts at other dispatchers, if there are any.
    linked: Option<Box<Linked>>,
}

/// Where a task is, for people.
#[derive(Clone, PartialEq, Debug)]
pub enum TaskState {
    Waiting {
        n_missing: u32,
    },
    Ready {
        reason: Option<String>,
    },
    Reserved {
        executor: ExecutorId,
        attempt: AttemptNo,
        landing: bool,
    },
    Done,
    Failed,
    Cancelled,
    /// Its submission is not complete.
    Submitting,
}

/// The dispatcher. See the module's header.
pub struct Dispatcher {
    config: DispatcherConfig,
    catalog: Catalog,
    /// The ready tasks that placement looks at.
    queue: Box<dyn Queue>,
    runs: BTreeMap<RunId, RunState>,
    arrays: Vec<ArrayState>,
    next_task: u64,
    backlog: BTreeMap<QueueKey, Segment>,
    /// Ready tasks, in the queue and in the backlog.
    n_ready: u64,
    reserved: FxHashMap<TaskId, Reserved>,
    histories: FxHashMap<TaskId, History>,
    /// Tasks whose inputs are not all made, with how many makers they wait for.
    waiting: BTreeMap<TaskId, u32>,
    subscribers: FxHashMap<TaskId, Vec<TaskId>>,
    intermediates: Intermediates,
    moves: Moves,
    exchange: Exchange,
    run_times: RunTimes,
    /// Makers of files that go home, by hash of output location; a hit is confirmed by unfolding the maker.
    makers: HashTable<(u64, TaskId)>,
    /// Objects that nobody holds and that an executor is about to read from home.
    arriving: FxHashMap<ObjectId, ExecutorId>,
    /// The reserved task that makes an object.
    making: FxHashMap<ObjectId, TaskId>,
    /// Makers that had not ended well before a restart; whoever waited for them fails when its run is
    /// committed again.
    failed_makers: Vec<TaskId>,
    executors: BTreeMap<ExecutorId, ExecutorState>,
    /// Sizes (cpus and memory) of ready tasks that fit no executor, and since when.
    unfit: BTreeMap<(u32, u64), Timestamp>,
    unplaced: Option<Unplaced>,
    picks: Vec<Pick>,
    routes: Vec<Route>,
    /// Decisions to be taken without a search for other work, and how many after the next one in vain.
    search_rest: u32,
    search_rest_next: u32,
    /// Whether executors may be given more than their slots, see the module's header.
    stock: bool,
    /// Attempts given out so far.
    n_given: u64,
    /// After a restart nothing is given out until then.
    hold_until: Option<Timestamp>,
}

/// Makes a location of the form `run:NAME` one of the catalog, `run:SCOPE.RUN/NAME`; others stay as they are.
/// `prefix` is the run's, `SCOPE.RUN/`.
fn scope_location(prefix: &str, location: &mut String) {
    if location.starts_with(RUN_FILE) {
        location.insert_str(RUN_FILE.len(), prefix);
    }
}

fn hash_of(location: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(location.as_bytes());
    hasher.finish()
}

/// The task as placement sees it.
fn ready_task(key: QueueKey, array: &TaskArray, mut inputs: Vec<ObjectId>) -> ReadyTask {
    inputs.sort_unstable();
    inputs.dedup();
    let memory_bytes = array.template.memory_bytes.unwrap_or(0);
    ReadyTask { key, inputs, cpus: array.template.cpus, memory_bytes }
}

impl Dispatcher {
    /// `Err` names an unknown placement policy and the known ones.
    pub fn new(config: DispatcherConfig) -> Result<Dispatcher, String> {
        let queue = placement::by_name(&config.placement, &config.placement_config)?;
        Ok(Dispatcher {
            config,
            catalog: Catalog::new(),
            queue,
            runs: BTreeMap::new(),
            arrays: vec![],
            next_task: 0,
            backlog: BTreeMap::new(),
            n_ready: 0,
            reserved: FxHashMap::default(),
            histories: FxHashMap::default(),
            waiting: BTreeMap::new(),
            subscribers: FxHashMap::default(),
            intermediates: Intermediates::default(),
            moves: Moves::default(),
            exchange: Exchange::default(),
            run_times: RunTimes::default(),
            makers: HashTable::new(),
            arriving: FxHashMap::default(),
            making: FxHashMap::default(),
            failed_makers: vec![],
            executors: BTreeMap::new(),
            unfit: BTreeMap::new(),
            unplaced: None,
            picks: vec![],
            routes: vec![],
            search_rest: 0,
            search_rest_next: SEARCH_REST,
            stock: false,
            n_given: 0,
            hold_until: None,
        })
    }

    /// The one door. Appends to `out` what the driver has to do.
    pub fn handle(&mut self, now: Timestamp, event: Event, out: &mut Vec<Action>) {
        let is_of_submission = matches!(
            event,
            Event::RunOpened { .. }
                | Event::ArrayAdded { .. }
                | Event::RunStarted { .. }
                | Event::RunCommitted { .. }
                | Event::RunAborted { .. }
                | Event::RunLinked { .. }
                | Event::TaskRestored { .. }
                | Event::TaskRevived { .. }
        );
        if !is_of_submission {
            // The journal is read to its end.
            for task in std::mem::take(&mut self.failed_makers) {
                self.forget_maker(task);
            }
        }
        match event {
            Event::RunOpened { run, name, keep, into: None } => {
                let prefix = format!("{}.{run}/", self.config.scope);
                self.runs.insert(run, RunState { name, keep, prefix, opened: now, ..RunState::default() });
            }
            Event::RunOpened { run, name, into: Some(whole), .. } => {
                self.open_addition(now, run, name, whole)
            }
            Event::ArrayAdded { run, array } => self.on_array_added(now, run, array, out),
            Event::RunStarted { run } => self.on_run_started(now, run, out),
            Event::RunCommitted { run } => match self.runs.get(&run).and_then(|r| r.into) {
                Some(whole) => self.add(now, run, whole, out),
                None => {
                    self.on_run_started(now, run, out);
                    self.on_run_committed(now, run, out);
                }
            },
            Event::RunAborted { run } => self.on_run_aborted(now, run, out),
            Event::TaskRestored { task, outcome, outputs } => self.on_task_restored(task, &outcome, &outputs),
            Event::TaskRevived { task } => self.on_task_revived(task),
            Event::ExecutorJoined { executor, offer } => self.on_executor_joined(now, executor, offer, out),
            Event::ExecutorSilent { executor } => self.on_executor_silent(now, executor),
            Event::ExecutorLost { executor, reason } => self.on_executor_lost(now, executor, &reason, out),
            Event::ExecutorDraining { executor } => {
                if let Some(e) = self.executors.get_mut(&executor) {
                    e.draining = true;
                    e.leaving.get_or_insert(Leaving { since: now, asked: BTreeSet::new() });
                    self.update_room(executor);
                    self.rescue(now, executor);
                }
            }
            Event::AttemptEnded { executor, report } => self.on_attempt_ended(now, executor, report, out),
            Event::OutputsHome { executor, task, attempt, result } => {
                self.on_outputs_home(now, executor, task, attempt, result, out)
            }
            Event::ReplicasChanged { executor, added, dropped } => {
                for replica in added {
                    self.on_replica_added(now, executor, replica, out);
                }
                for object in &dropped {
                    self.drop_replica(executor, *object);
                }
                self.check_lost(now, &dropped, out);
            }
            Event::PrefetchFailed { executor, batch, object, kind } => {
                self.moves.pending.push(CollectiveEvent::PrefetchFailed { executor, batch, object, kind })
            }
            Event::CancelRequested { run, task } => self.on_cancel(now, run, task, out),
            Event::Ticked => self.on_ticked(now, out),
            Event::Recovered => {
                // Only what is unfinished can be out there still.
                if self.runs.values().any(|r| r.started && r.ended.is_none()) {
                    self.hold_until = Some(now.plus_ns(RETURN_GRACE_NS));
                }
            }
            Event::RunLinked { run, links } => self.on_run_linked(run, links),
            Event::MemberConnected { member } => self.on_member_connected(member),
            Event::MemberSilent { member } => self.on_member_silent(member),
            Event::MemberTold { member, messages } => self.on_member_told(now, member, messages, out),
            Event::MemberLoadChanged { member, load } => self.on_member_load(member, load),
        }
        let held = self.hold_until.is_some();
        self.place(now, out);
        if self.config.group.is_some() {
            if held && self.hold_until.is_none() {
                self.touch_all_exports();
            }
            while self.revive_exports(now, out) {
                self.place(now, out);
            }
            self.tell_members(out);
        }
        self.carry_collectives(now, out);
    }

    // ------------------------------------------------------------ submissions

    fn on_array_added(&mut self, now: Timestamp, run: RunId, array: Arc<TaskArray>, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get_mut(&run).filter(|r| !r.committed) else { return };
        let (started, into) = (state.started, state.into);
        let id = ArrayId(self.arrays.len() as u32);
        let base = TaskId(self.next_task);
        self.next_task += u64::from(array.n_tasks);
        state.n_tasks += u64::from(array.n_tasks);
        state.arrays.push(id);
        let ends = Ends::new(array.n_tasks);
        let any_run_file =
            |list: &[(Pattern, Pattern)]| list.iter().any(|(_, l)| array.may_begin(l, RUN_FILE));
        let (reads_run, writes_run) =
            (any_run_file(&array.template.inputs), any_run_file(&array.template.outputs));
        let stage = self.run_times.stage(into.unwrap_or(run), &array.template.label);
        self.arrays.push(ArrayState { base, run, array: array.clone(), ends, stage, reads_run, writes_run });
        if !self.learn_makers(run, base, &array, out) || !started {
            return;
        }
        self.enqueue(now, run, &[id], out);
    }

    /// Notes what the tasks of an array write. `false`: somebody else writes the same, the run is refused.
    fn learn_makers(&mut self, run: RunId, base: TaskId, array: &TaskArray, out: &mut Vec<Action>) -> bool {
        if array.template.outputs.is_empty() {
            return true;
        }
        let mut location = String::new();
        let is_workflow = self.arrays.last().is_some_and(|a| a.reads_run || a.writes_run);
        for i in 0..array.n_tasks {
            for (_, pattern) in &array.template.outputs {
                self.location_into(run, array, pattern, i, &mut location);
                let task = TaskId(base.0 + u64::from(i));
                let taken = if location.starts_with(RUN_FILE) {
                    self.learn_intermediate(task, &location).err()
                } else {
                    self.find_writer(run, &location)
                };
                if let Some(other) = taken {
                    let (a, b) = (self.user_id(other), self.user_id(task));
                    let way_out = match self.end_of(other) == End::Not && !location.starts_with(RUN_FILE) {
                        true => "give each its own output, or wait until the first one has ended",
                        false => "give each its own output",
                    };
                    let location = unscoped(&location);
                    let message = format!("tasks `{a}` and `{b}` both write `{location}`; {way_out}");
                    out.push(Action::RefuseRun { run, message });
                    return false;
                }
                if !location.starts_with(RUN_FILE) {
                    let hash = hash_of(&location);
                    self.makers.insert_unique(hash, (hash, task), |entry| entry.0);
                    self.learn_export(run, task, &location);
                }
            }
            if is_workflow && self.runs[&run].into.is_none() {
                self.learn_writes(TaskId(base.0 + u64::from(i)));
            }
        }
        true
    }

    /// The task that writes `location` and has not ended; failing that, one that ended badly before a
    /// restart, or one that is done, of a run that tasks are added to.
    fn find_maker(&self, location: &str) -> Option<TaskId> {
        self.makers_of(location).max_by_key(|task| (self.end_of(*task) == End::Not, *task))
    }

    /// The tasks that `makers` has for `location`.
    fn makers_of(&self, location: &str) -> impl Iterator<Item = TaskId> {
        let hash = hash_of(location);
        let mut text = String::new();
        let mut writes = move |task: TaskId| {
            let (array, i) = self.locate(task);
            let array = &self.arrays[array.0 as usize].array;
            array.template.outputs.iter().any(|(_, pattern)| {
                text.clear();
                array.fill_into(pattern, i, &mut text);
                text == location
            })
        };
        self.makers.iter_hash(hash).filter(move |e| e.0 == hash && writes(e.1)).map(|e| e.1)
    }

    fn forget_maker(&mut self, task: TaskId) {
        let (array, i) = self.locate(task);
        let array = self.arrays[array.0 as usize].array.clone();
        let mut location = String::new();
        for (_, pattern) in &array.template.outputs {
            location.clear();
            array.fill_into(pattern, i, &mut location);
            if location.starts_with(RUN_FILE) {
                continue;
            }
            let hash = hash_of(&location);
            if let Ok(entry) = self.makers.find_entry(hash, |e| *e == (hash, task)) {
                entry.remove();
            }
        }
    }

    fn on_run_started(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get_mut(&run).filter(|r| !r.started && r.into.is_none()) else { return };
        state.started = true;
        let arrays = state.arrays.clone();
        self.enqueue(now, run, &arrays, out);
    }

    fn on_run_committed(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get_mut(&run) else { return };
        state.committed = true;
        let arrays = state.arrays.clone();
        self.settle_intermediates(now, run, &arrays, out);
        self.settle_exchange(run);
        self.check_run_end(now, run, out);
    }

    /// The tasks of `arrays`, of a run that has started, are ready or wait for those that make their inputs.
    fn enqueue(&mut self, now: Timestamp, run: RunId, arrays: &[ArrayId], out: &mut Vec<Action>) {
        let mut failed = vec![];
        for id in arrays {
            let a = &self.arrays[id.0 as usize];
            let (array, base) = (a.array.clone(), a.base);
            let may_import = self.may_import(run, *id);
            let may_depend = a.reads_run || a.writes_run || !self.makers.is_empty() || may_import;
            let priority = array.template.priority;
            let mut start = None;
            // Ready tasks stay folded; those that ended before a restart or that wait cut the stretch.
            for i in 0..=array.n_tasks {
                let here = i < array.n_tasks && {
                    let task = TaskId(base.0 + u64::from(i));
                    match self.arrays[id.0 as usize].ends.get(i) {
                        End::Not if !may_depend => true,
                        End::Not => match self.subscribe(task, &array, i, out) {
                            Ok(n_missing) => n_missing == 0,
                            Err(sentence) => {
                                failed.push((task, sentence));
                                false
                            }
                        },
                        _ => false,
                    }
                };
                match (here, start) {
                    (true, None) => start = Some(i),
                    (false, Some(s)) => {
                        let key = QueueKey { priority, task: TaskId(base.0 + u64::from(s)) };
                        self.backlog.insert(key, Segment { array: *id, start: s, end: i });
                        self.count_ready(run, *id, u64::from(i - s));
                        start = None;
                    }
                    _ => {}
                }
            }
        }
        // Tasks that go before those of the queue take their places.
        while let (Some((first, _)), Some(last)) = (self.backlog.first_key_value(), self.queue.last())
            && *first < last
        {
            self.fold(last);
        }
        for (task, message) in failed {
            let failure = Failure { kind: FailureKind::InputUnavailable, message };
            self.end_task(now, task, Outcome::Failed(failure), out);
        }
    }

    /// Counts what `task` has to wait for and subscribes it to each maker. `Err`: one has failed.
    fn subscribe(
        &mut self,
        task: TaskId,
        array: &TaskArray,
        i: u32,
        out: &mut Vec<Action>,
    ) -> Result<u32, String> {
        let run = self.run_of(task);
        let (at, _) = self.locate(task);
        if self.arrays[at.0 as usize].reads_run || self.arrays[at.0 as usize].writes_run {
            self.learn_reads(task, array, i, out);
        }
        let imports = self.foreign_inputs(task);
        let mut makers: Vec<TaskId> = vec![];
        let mut files: Vec<ObjectId> = vec![];
        let mut location = String::new();
        for (_, pattern) in &array.template.inputs {
            self.location_into(run, array, pattern, i, &mut location);
            if location.starts_with(RUN_FILE) {
                files.push(self.catalog.intern(&location));
            } else if !imports.is_empty()
                && self.catalog.find(&location).is_some_and(|o| imports.contains(&o))
            {
                // Another dispatcher has it made.
            } else if let Some(maker) = self.find_maker(&location)
                && maker != task
                && self.end_of(maker) != End::Done
                && !makers.contains(&maker)
            {
                makers.push(maker);
            }
        }
        let ended = makers.iter().find(|maker| self.end_of(**maker) != End::Not);
        let mut failed = ended.map(|maker| self.maker_failed(*maker, self.end_of(*maker) == End::Cancelled));
        files.sort_unstable();
        files.dedup();
        let mut n_orphaned = 0;
        // All are counted, also when one has failed: the end of the task counts all back.
        for object in &imports {
            match self.read_import(task, *object) {
                Ok(waits) => n_orphaned += u32::from(waits),
                Err(sentence) => failed = failed.or(Some(sentence)),
            }
        }
        for object in files {
            match self.read_intermediate(task, object, imports.contains(&object), &mut n_orphaned) {
                Ok(Some(maker)) if maker != task => makers.push(maker),
                Ok(_) => {}
                Err(sentence) => failed = failed.or(Some(sentence)),
            }
        }
        if let Some(sentence) = failed {
            return Err(sentence);
        }
        makers.sort_unstable();
        makers.dedup();
        let n = makers.len() as u32 + n_orphaned;
        for maker in makers {
            self.subscribers.entry(maker).or_default().push(task);
        }
        if n > 0 {
            self.waiting.insert(task, n);
            self.run_mut(run).n_waiting += 1;
        }
        Ok(n)
    }

    fn maker_failed(&self, maker: TaskId, cancelled: bool) -> String {
        let how = if cancelled { "was cancelled" } else { "failed" };
        format!("task `{}`, which makes one of its inputs, {how}", self.user_id(maker))
    }

    fn on_run_aborted(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get(&run).filter(|r| !r.started) else { return };
        let into = state.into;
        for id in state.arrays.clone() {
            let a = &self.arrays[id.0 as usize];
            let (base, n) = (a.base, if a.array.template.outputs.is_empty() { 0 } else { a.array.n_tasks });
            for i in 0..n {
                self.forget_maker(TaskId(base.0 + u64::from(i)));
                self.forget_intermediates(TaskId(base.0 + u64::from(i)));
            }
        }
        self.runs.remove(&run);
        if let Some(whole) = into {
            self.close_addition(now, whole, out);
        }
    }

    fn on_task_restored(&mut self, task: TaskId, outcome: &Outcome, outputs: &[(Digest, u64)]) {
        let (array, i) = self.locate(task);
        let a = &mut self.arrays[array.0 as usize];
        if a.ends.get(i) != End::Not {
            return;
        }
        a.ends.set(i, End::of(outcome));
        let run = a.run;
        self.count_end(run, task, outcome);
        if *outcome != Outcome::Done {
            // Those who wait for it may not have been told to fail yet.
            self.failed_makers.push(task);
            return;
        }
        // What it made is there, also if an earlier run had failed to make it.
        let spec = self.task_spec(task);
        for ((_, location), (digest, size_bytes)) in spec.outputs.iter().zip(outputs) {
            if location.starts_with(RUN_FILE) {
                let object = self.catalog.intern(location);
                self.catalog.set_digest(object, Some(*digest));
                self.catalog.set_size_bytes(object, Some(*size_bytes));
            }
        }
        while let Some(ended) = spec.outputs.iter().find_map(|(_, location)| {
            self.makers_of(location)
                .find(|maker| self.end_of(*maker) != End::Not && !self.is_remembered(*maker))
        }) {
            self.forget_maker(ended);
        }
    }

    // ------------------------------------------------------------ executors

    fn on_executor_joined(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        offer: Offer,
        out: &mut Vec<Action>,
    ) {
        let (mut held_before, mut made) = (vec![], vec![]);
        if let Some(known) = self.executors.remove(&executor) {
            held_before = self.rejoin(now, executor, known, &offer, out);
        } else {
            self.catalog.executor_joined(executor);
            self.insert_executor(executor, offer.clone(), BTreeMap::new());
            // A dispatcher that restarted: this executor still has what its predecessor gave it.
            for &(task, attempt) in &offer.attempts {
                made.extend(self.adopt(executor, task, attempt, out));
            }
        }
        self.on_all_held(executor, &offer.held, made, out);
        self.touch_exports_on(executor);
        self.change_load(executor, |e| e.last_ended = now);
        self.unpark(now, executor);
        self.check_lost(now, &held_before, out);
    }

    fn insert_executor(&mut self, executor: ExecutorId, offer: Offer, assigned: BTreeMap<TaskId, AttemptNo>) {
        let mut state = ExecutorState {
            offer,
            silent_since: None,
            draining: false,
            leaving: None,
            assigned,
            cpus_assigned: 0,
            memory_assigned: 0,
            run_ns_mean: None,
            last_ended: Timestamp::default(),
            n_node_failures: 0,
            sick_until: None,
        };
        for task in state.assigned.keys() {
            let r = &self.reserved[task];
            if !r.landing {
                state.cpus_assigned += r.cpus;
                state.memory_assigned += r.memory_bytes;
            }
        }
        self.executors.insert(executor, state);
    }

    /// The same executor again: keep what both know, requeue what it lost, end what it should not have.
    /// Gives the objects that it held as far as was known; the caller learns what it holds now.
    fn rejoin(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        known: ExecutorState,
        offer: &Offer,
        out: &mut Vec<Action>,
    ) -> Vec<ObjectId> {
        let mut kept = BTreeMap::new();
        let mut lost = vec![];
        for (task, attempt) in known.assigned {
            if offer.attempts.contains(&(task, attempt)) {
                kept.insert(task, attempt);
            } else {
                lost.push(task);
            }
        }
        for &(task, attempt) in &offer.attempts {
            // What was asked while nobody listened is asked again.
            let is_wanted = kept.get(&task) == Some(&attempt) && {
                let r = &self.reserved[&task];
                !r.cancelling || r.landing
            };
            if !is_wanted {
                out.push(Action::CancelAttempt { executor, task, attempt });
            }
        }
        let held_before = self.catalog.objects_on(executor);
        for object in &held_before {
            self.drop_replica(executor, *object);
        }
        self.insert_executor(executor, offer.clone(), kept);
        let e = self.executors.get_mut(&executor).expect("it was just inserted");
        (e.draining, e.leaving, e.run_ns_mean) = (known.draining, known.leaving, known.run_ns_mean);
        for task in lost {
            let r = self.release(task);
            self.tried(task, r.attempt);
            if r.cancelling {
                self.end_task(now, task, Outcome::Cancelled, out);
            } else {
                self.requeue(now, task);
            }
        }
        held_before
    }

    /// Takes a task from the executor that has it; the caller accounts for the executor.
    fn release(&mut self, task: TaskId) -> Reserved {
        let r = self.reserved.remove(&task).expect("an assigned task is reserved");
        let run = self.run_mut(self.run_of(task));
        run.n_reserved -= 1;
        run.n_landing -= u64::from(r.landing);
        for output in &r.outputs {
            self.making.remove(output);
        }
        for object in &r.reads_first {
            if self.arriving.get(object) == Some(&r.executor) {
                self.arriving.remove(object);
            }
        }
        self.queue.ended(&self.catalog, task);
        r
    }

    /// The next try at `task` gets a later number than this one, whichever process gave it.
    fn tried(&mut self, task: TaskId, attempt: AttemptNo) -> &mut History {
        let history = self.histories.entry(task).or_default();
        history.n_attempts = history.n_attempts.max(attempt.0);
        history
    }

    fn reserve(&mut self, task: TaskId, r: Reserved) {
        self.n_given += 1;
        let run = self.run_mut(self.run_of(task));
        run.n_reserved += 1;
        for output in &r.outputs {
            self.making.insert(*output, task);
        }
        let (executor, attempt, cpus, memory_bytes) = (r.executor, r.attempt, r.cpus, r.memory_bytes);
        self.reserved.insert(task, r);
        self.change_load(executor, |e| {
            e.assigned.insert(task, attempt);
            e.cpus_assigned += cpus;
            e.memory_assigned += memory_bytes;
        });
    }

    /// Takes over an attempt that a previous dispatcher process gave out. Gives what it makes.
    fn adopt(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        out: &mut Vec<Action>,
    ) -> Vec<ObjectId> {
        let free = task.0 < self.next_task
            && self.end_of(task) == End::Not
            && !self.reserved.contains_key(&task)
            && !self.waiting.contains_key(&task)
            && self.runs.get(&self.run_of(task)).is_some_and(|r| r.started);
        if !free {
            if task.0 < self.next_task && self.end_of(task) == End::Not {
                // Not to be mistaken for a later try there.
                self.tried(task, attempt);
            }
            // Its end may be recorded and only the acknowledgement lost; ending it again is harmless.
            out.push(Action::CancelAttempt { executor, task, attempt });
            return vec![];
        }
        self.take_ready(task);
        let spec = self.task_spec(task);
        let outputs: Vec<ObjectId> =
            spec.outputs.iter().map(|(_, location)| self.catalog.intern(location)).collect();
        let lands = spec.outputs.iter().any(|(_, location)| !location.starts_with(RUN_FILE));
        self.tried(task, attempt);
        let r = Reserved {
            executor,
            attempt,
            cpus: spec.cpus,
            memory_bytes: spec.memory_bytes.unwrap_or(0),
            landing: false,
            cancelling: false,
            given: self.n_given,
            recalled: false,
            asks_home: true,
            suspect: false,
            outputs: outputs.clone(),
            lands,
            reads_first: vec![],
        };
        self.reserve(task, r);
        outputs
    }

    /// What a (re)joining executor has; `named` gets what stays on the nodes, `useless` what of that is no use.
    fn on_held(
        &mut self,
        executor: ExecutorId,
        held: &Held,
        named: &mut Vec<ObjectId>,
        useless: &mut Vec<ObjectId>,
    ) {
        let objects = match &held.origin {
            Some((location, version)) => {
                let object = self.catalog.intern(location);
                if location.starts_with(RUN_FILE) {
                    named.push(object);
                    // Of a run that is not known, or other bytes than the task that is done has made.
                    let known = self.catalog.digest(object);
                    if !self.is_intermediate(object) || known.is_some_and(|digest| digest != held.digest) {
                        useless.push(object);
                        return;
                    }
                }
                if self.catalog.digest(object).is_none() {
                    self.catalog.set_digest(object, Some(held.digest));
                    self.catalog.set_size_bytes(object, Some(held.size_bytes));
                    self.catalog.set_version(object, Some(version.clone()));
                }
                vec![object]
            }
            None => {
                let objects = self.catalog.objects_with_digest(held.digest);
                named.extend(objects.iter().filter(|o| self.is_intermediate(**o)));
                objects
            }
        };
        for object in objects {
            if self.catalog.digest(object) == Some(held.digest) {
                self.add_replica(executor, object);
            }
        }
    }

    fn on_executor_silent(&mut self, now: Timestamp, executor: ExecutorId) {
        if let Some(e) = self.executors.get_mut(&executor) {
            e.silent_since.get_or_insert(now);
            self.update_room(executor);
            self.touch_exports_on(executor);
        }
    }

    fn on_executor_lost(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        reason: &str,
        out: &mut Vec<Action>,
    ) {
        let Some(lost) = self.executors.remove(&executor) else { return };
        let objects = self.catalog.executor_left(executor);
        self.moves.executor_lost(executor);
        self.queue.executor_left(&self.catalog, executor, &objects);
        for (task, attempt) in lost.assigned {
            let r = self.release(task);
            let history = self.tried(task, attempt);
            // A program that has ended well did not take the node with it.
            history.n_losses += u32::from(!r.landing);
            let n_losses = history.n_losses;
            if r.cancelling {
                self.end_task(now, task, Outcome::Cancelled, out);
            } else if n_losses > self.config.losses_max {
                let message = format!(
                    "{n_losses} executors were lost while they had this task, the last one ({}) because {reason}",
                    lost.offer.name
                );
                let failure = Failure { kind: FailureKind::ExecutorLost, message };
                self.end_task(now, task, Outcome::Failed(failure), out);
            } else {
                self.requeue(now, task);
            }
        }
        self.unpark(now, executor);
        objects.iter().for_each(|object| self.touch_export(*object));
        self.check_lost(now, &objects, out);
    }

    fn on_ticked(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.moves.collectives.n_live() > 0 {
            self.moves.pending.push(CollectiveEvent::Ticked);
        }
        let lease_ns = self.config.lease_ns;
        let gone: Vec<ExecutorId> = self
            .executors
            .iter()
            .filter(|(_, e)| e.silent_since.is_some_and(|since| now.since_ns(since) > lease_ns))
            .map(|(id, _)| *id)
            .collect();
        for executor in gone {
            let reason = format!("nothing was heard of it for {} s", lease_ns / 1_000_000_000);
            self.on_executor_lost(now, executor, &reason, out);
            out.push(Action::ForgetExecutor { executor });
        }
        self.unrest(now);
        // What was made there since it was told to leave.
        let leaving: Vec<ExecutorId> =
            self.executors.iter().filter(|(_, e)| e.leaving.is_some()).map(|(id, _)| *id).collect();
        leaving.into_iter().for_each(|executor| self.rescue(now, executor));
        self.fail_unfit(now, out);
        let well: Vec<ExecutorId> = self
            .executors
            .iter()
            .filter(|(_, e)| e.sick_until.is_some_and(|until| until <= now))
            .map(|(id, _)| *id)
            .collect();
        for executor in well {
            self.change_load(executor, |e| e.sick_until = None);
        }
        self.recall(out);
        self.balance(now, out);
    }

    /// Takes attempts back that wait behind full slots while other slots have nothing to do: the last
    /// given first. An executor ignores it for a program that has begun.
    fn recall(&mut self, out: &mut Vec<Action>) {
        if self.n_ready > 0 || self.hold_until.is_some() {
            return;
        }
        let takes_new =
            |e: &&ExecutorState| !e.draining && e.silent_since.is_none() && e.sick_until.is_none();
        let idle = |e: &ExecutorState| e.offer.slots.saturating_sub(e.cpus_assigned);
        let mut n_idle: u32 = self.executors.values().filter(takes_new).map(idle).sum();
        if n_idle == 0 {
            return;
        }
        let mut asked = vec![];
        for (executor, e) in &self.executors {
            let mut surplus = e.cpus_assigned.saturating_sub(e.offer.slots);
            if surplus == 0 || e.silent_since.is_some() {
                continue;
            }
            let mut waiting: Vec<(u64, TaskId, u32)> = e
                .assigned
                .keys()
                .map(|task| (*task, &self.reserved[task]))
                .filter(|(_, r)| !r.landing && !r.cancelling && !r.recalled)
                .map(|(task, r)| (r.given, task, r.cpus))
                .collect();
            waiting.sort_unstable_by(|a, b| b.cmp(a));
            for (_, task, cpus) in waiting {
                if cpus > surplus || cpus > n_idle {
                    break;
                }
                surplus -= cpus;
                n_idle -= cpus;
                asked.push((*executor, task));
            }
        }
        for (executor, task) in asked {
            let r = self.reserved.get_mut(&task).expect("an assigned task is reserved");
            r.recalled = true;
            out.push(Action::RecallAttempt { executor, task, attempt: r.attempt });
        }
    }

    /// Ends ready tasks that have been too large for every executor for a while. By size, so that those
    /// which come into the queue later do not wait again.
    fn fail_unfit(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let mut unfit = BTreeMap::new();
        let mut failed = vec![];
        for size in self.queue.sizes() {
            if let Some(sentence) = self.why_unfit(size) {
                let since = *self.unfit.get(&size).unwrap_or(&now);
                unfit.insert(size, since);
                if now.since_ns(since) > UNFIT_GRACE_NS {
                    let keys = self.queue.tasks_of_size(size).into_iter();
                    failed.extend(keys.map(|key| (key.task, sentence.clone())));
                }
            }
        }
        self.unfit = unfit;
        failed.sort_unstable();
        for (task, message) in failed {
            self.take_ready(task);
            let failure = Failure { kind: FailureKind::NeverFits, message };
            self.end_task(now, task, Outcome::Failed(failure), out);
        }
    }

    /// A sentence when there are executors and none is large enough for a task of that size.
    fn why_unfit(&self, (cpus, memory): (u32, u64)) -> Option<String> {
        if self.executors.values().any(|e| e.offer.slots >= cpus && e.offer.memory_bytes >= memory) {
            return None;
        }
        let slots = self.executors.values().map(|e| e.offer.slots).max()?;
        let most = self.executors.values().map(|e| e.offer.memory_bytes).max()?;
        Some(if cpus > slots {
            format!("the task asks for {cpus} cpus, the largest executor has {slots} slots")
        } else if memory > most {
            format!("the task asks for {memory} bytes of memory, the largest executor offers {most}")
        } else {
            format!("no executor has both {cpus} slots and {memory} bytes of memory")
        })
    }

    // ------------------------------------------------------------ attempts

    fn on_attempt_ended(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        report: AttemptReport,
        out: &mut Vec<Action>,
    ) {
        let (task, attempt) = (report.task, report.attempt);
        let Some(r) = self.reserved.get(&task).filter(|r| r.executor == executor && r.attempt == attempt)
        else {
            return; // a late word from an attempt that was given up
        };
        if r.landing {
            return; // told twice after a reconnect
        }
        let (cpus, memory_bytes, cancelling, suspect) = (r.cpus, r.memory_bytes, r.cancelling, r.suspect);
        let run = self.run_of(task);
        let run_ns = report.times.exited.since_ns(report.times.started);
        let ran = report.times.started.0 > 0;
        let lands = report.outcome == Outcome::Done && r.lands;
        if ran && report.outcome == Outcome::Done {
            let (array, _) = self.locate(task);
            self.run_times.ran(self.arrays[array.0 as usize].stage, run_ns);
        }
        self.queue.ended(&self.catalog, task);
        self.change_load(executor, |e| {
            e.last_ended = now;
            e.cpus_assigned -= cpus;
            e.memory_assigned -= memory_bytes;
            if !lands {
                e.assigned.remove(&task);
            }
            if ran {
                e.run_ns_mean = Some(e.run_ns_mean.map_or(run_ns, |m| m - m / 8 + run_ns / 8));
            }
            match &report.outcome {
                Outcome::Failed(Failure { kind: FailureKind::Node | FailureKind::CacheFull, .. }) => {
                    let wait_ns = (SICK_NS << e.n_node_failures.min(6)).min(SICK_NS_MAX);
                    e.n_node_failures += 1;
                    e.sick_until = Some(now.plus_ns(wait_ns));
                }
                Outcome::Done => e.n_node_failures = 0,
                _ => {}
            }
        });
        self.queue.learnt(&self.catalog, executor, &report.inputs);
        self.learn_links(&report.inputs);
        let state = self.runs.get_mut(&run).expect("a reserved task has a run");
        for input in &report.inputs {
            match input.outcome {
                CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace => {
                    state.local_bytes += input.size_bytes
                }
                CacheOutcome::RemoteHit { .. } => state.peer_bytes += input.size_bytes,
                CacheOutcome::Miss | CacheOutcome::Direct => state.home_bytes += input.size_bytes,
            }
        }
        if report.outcome == Outcome::Done && !suspect {
            // From now on the run is held to these bytes.
            for input in &report.inputs {
                self.raise_checked_run(input.object, run);
            }
        }
        if report.outcome == Outcome::Done {
            let outputs = self.reserved[&task].outputs.clone();
            for made in &report.outputs {
                let Some(object) = outputs.get(made.output as usize) else { continue };
                self.on_made(executor, run, *object, made.digest, made.size_bytes, out);
                if self.is_intermediate(*object) {
                    self.add_replica(executor, *object);
                }
            }
        }
        if lands {
            self.reserved.get_mut(&task).expect("seen above").landing = true;
            self.run_mut(run).n_landing += 1;
            return;
        }
        self.release(task);
        self.finish_attempt(now, task, attempt, report.outcome, cancelling, suspect, out);
    }

    fn on_outputs_home(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        result: Result<(), Failure>,
        out: &mut Vec<Action>,
    ) {
        let matches = |r: &&Reserved| r.executor == executor && r.attempt == attempt && r.landing;
        if self.reserved.get(&task).filter(matches).is_none() {
            return;
        }
        let r = self.release(task);
        if let Some(e) = self.executors.get_mut(&executor) {
            e.assigned.remove(&task);
            e.last_ended = now;
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(failure) => Outcome::Failed(failure),
        };
        self.finish_attempt(now, task, attempt, outcome, r.cancelling, r.suspect, out);
    }

    /// The attempt is over and nobody has the task: it ends, or it is queued again.
    fn finish_attempt(
        &mut self,
        now: Timestamp,
        task: TaskId,
        attempt: AttemptNo,
        outcome: Outcome,
        cancelling: bool,
        suspect: bool,
        out: &mut Vec<Action>,
    ) {
        let outcome = match outcome {
            Outcome::Done if suspect => {
                let message = "an input changed while this run was reading it".into();
                Outcome::Failed(Failure { kind: FailureKind::InputChanged, message })
            }
            outcome => outcome,
        };
        let outcome = match outcome {
            Outcome::Done => Outcome::Done,
            _ if cancelling => Outcome::Cancelled,
            // Somebody else's wish: an earlier dispatcher process ended a second try at this task.
            Outcome::Cancelled => {
                self.tried(task, attempt);
                return self.requeue(now, task);
            }
            Outcome::Failed(failure) => {
                let (array, _) = self.locate(task);
                let retries = self.arrays[array.0 as usize].array.template.retries;
                let weather_max = self.config.weather_max;
                let history = self.tried(task, attempt);
                history.private_inputs |= failure.kind == FailureKind::InputModified;
                let again = if failure.kind.is_weather() || suspect {
                    history.n_weather += 1;
                    history.n_weather <= weather_max
                } else {
                    history.n_own_failures += 1;
                    !failure.kind.is_final() && history.n_own_failures <= retries
                };
                let n_weather = history.n_weather;
                if again && failure.kind == FailureKind::InputLost {
                    self.ask_owners(task);
                }
                if again && failure.kind == FailureKind::InputLost && n_weather > 1 {
                    return self.rest(now, task, n_weather);
                }
                if again {
                    return self.requeue(now, task);
                }
                Outcome::Failed(failure)
            }
        };
        self.end_task(now, task, outcome, out);
    }

    fn on_cancel(&mut self, now: Timestamp, run: RunId, task: Option<TaskId>, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get_mut(&run).filter(|r| r.started) else { return };
        state.cancelled |= task.is_none();
        let state = &self.runs[&run];
        let tasks: Vec<TaskId> = match task {
            Some(task) if task.0 < self.next_task && self.run_of(task) == run => vec![task],
            Some(_) => return,
            None => {
                let arrays = state.arrays.iter().map(|id| &self.arrays[id.0 as usize]);
                arrays.flat_map(|a| (a.base.0..a.base.0 + u64::from(a.array.n_tasks)).map(TaskId)).collect()
            }
        };
        for task in tasks {
            if self.end_of(task) != End::Not {
                continue;
            }
            if let Some(r) = self.reserved.get_mut(&task) {
                // What is landing lands, but is not tried again if it does not.
                if !std::mem::replace(&mut r.cancelling, true) && !r.landing {
                    out.push(Action::CancelAttempt { executor: r.executor, task, attempt: r.attempt });
                }
                continue;
            }
            if self.waiting.remove(&task).is_some() {
                self.run_mut(run).n_waiting -= 1;
            } else {
                self.take_ready(task);
            }
            self.end_task(now, task, Outcome::Cancelled, out);
        }
    }

    // ------------------------------------------------------------ ends

    /// Ends a task that is nowhere any more, and with it those that wait for it in vain.
    fn end_task(&mut self, now: Timestamp, task: TaskId, outcome: Outcome, out: &mut Vec<Action>) {
        // A list, not recursion: chains of tasks may be long.
        let mut ends = VecDeque::from([(task, outcome)]);
        while let Some((task, outcome)) = ends.pop_front() {
            let run = self.run_of(task);
            let (array, i) = self.locate(task);
            self.arrays[array.0 as usize].ends.set(i, End::of(&outcome));
            self.count_end(run, task, &outcome);
            self.histories.remove(&task);
            if !self.arrays[array.0 as usize].array.template.outputs.is_empty() && !self.is_remembered(task) {
                self.forget_maker(task);
            }
            self.forget_gather(task);
            let made = self.files_made(task);
            if outcome == Outcome::Done {
                self.spread_made(now, task, &made);
            }
            self.ended_with_intermediates(task, &made, out);
            self.release_imports(task, out);
            self.touch_exports_of(task);
            out.push(Action::EndTask { task, outcome: outcome.clone() });
            for subscriber in self.subscribers.remove(&task).unwrap_or_default() {
                if outcome == Outcome::Done {
                    self.consider_gather(now, subscriber);
                }
                let Some(n_missing) = self.waiting.get_mut(&subscriber) else { continue };
                if outcome == Outcome::Done {
                    *n_missing -= 1;
                    if *n_missing > 0 {
                        continue;
                    }
                }
                self.waiting.remove(&subscriber);
                let run = self.run_of(subscriber);
                self.run_mut(run).n_waiting -= 1;
                if outcome == Outcome::Done {
                    self.requeue(now, subscriber);
                } else if outcome == Outcome::Cancelled {
                    // Whoever ends a task ends what needs it.
                    ends.push_back((subscriber, Outcome::Cancelled));
                } else {
                    let message = self.maker_failed(task, false);
                    let failure = Failure { kind: FailureKind::InputUnavailable, message };
                    ends.push_back((subscriber, Outcome::Failed(failure)));
                }
            }
            self.check_run_end(now, run, out);
        }
    }

    fn count_end(&mut self, run: RunId, task: TaskId, outcome: &Outcome) {
        let state = self.run_mut(run);
        match outcome {
            Outcome::Done => state.n_done += 1,
            Outcome::Cancelled => state.n_cancelled += 1,
            Outcome::Failed(failure) => {
                state.n_failed += 1;
                state.failures.push_back((task, failure.clone()));
                if state.failures.len() > FAILURES_KEPT {
                    state.failures.pop_front();
                }
            }
        }
    }

    fn check_run_end(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let state = self.run_mut(run);
        let n_ended = state.n_done + state.n_failed + state.n_cancelled;
        let is_whole = state.committed && state.additions.n_open == 0;
        if is_whole && state.ended.is_none() && n_ended == state.n_tasks {
            state.ended = Some(now);
            self.forget_writers(run);
            self.forget_patterns(run);
            out.push(Action::EndRun { run });
        }
    }

    // ------------------------------------------------------------ the queue

    fn key_of(&self, task: TaskId) -> QueueKey {
        let (array, _) = self.locate(task);
        QueueKey { priority: self.arrays[array.0 as usize].array.template.priority, task }
    }

    /// Puts a task that is nowhere into the queue, at its own place.
    fn requeue(&mut self, now: Timestamp, task: TaskId) {
        let key = self.key_of(task);
        let (array, i) = self.locate(task);
        self.count_ready(self.run_of(task), array, 1);
        let goes_first = self.queue.last().is_some_and(|last| key < last);
        if goes_first || self.backlog.is_empty() {
            self.unfold(now, key, array, i);
        } else {
            self.backlog.insert(key, Segment { array, start: i, end: i + 1 });
        }
        while self.queue.len() > self.queue.capacity() {
            self.fold(self.queue.last().expect("a queue over its size is not empty"));
        }
    }

    /// Moves a task from the queue to the backlog.
    fn fold(&mut self, key: QueueKey) {
        self.queue.leave(&self.catalog, key);
        let (array, i) = self.locate(key.task);
        self.backlog.insert(key, Segment { array, start: i, end: i + 1 });
    }

    /// Removes a ready task from the queue, if it is there.
    fn take_ready(&mut self, task: TaskId) {
        let key = self.key_of(task);
        let (array, i) = self.locate(task);
        if !self.queue.leave(&self.catalog, key) {
            // The segment that begins last at or before the task, among those of its priority.
            let found = self.backlog.range(..=key).next_back().map(|(k, s)| (*k, *s));
            let Some((at, segment)) = found.filter(|(_, s)| s.array == array && s.start <= i && i < s.end)
            else {
                return;
            };
            self.backlog.remove(&at);
            if segment.start < i {
                self.backlog.insert(at, Segment { end: i, ..segment });
            }
            if i + 1 < segment.end {
                let next = QueueKey { task: TaskId(task.0 + 1), ..key };
                self.backlog.insert(next, Segment { start: i + 1, ..segment });
            }
        }
        self.n_ready -= 1;
        self.run_mut(self.run_of(task)).n_ready -= 1;
        self.run_times.not_ready(self.arrays[array.0 as usize].stage);
    }

    /// So many tasks of an array of `run` are ready now.
    fn count_ready(&mut self, run: RunId, array: ArrayId, n: u64) {
        self.n_ready += n;
        self.run_mut(run).n_ready += n;
        self.run_times.ready(self.arrays[array.0 as usize].stage, n);
    }

    /// The location that `pattern` gives for task `i` of an array of `run`, as the catalog has it.
    fn location_into(&self, run: RunId, array: &TaskArray, pattern: &Pattern, i: u32, text: &mut String) {
        text.clear();
        array.fill_into(pattern, i, text);
        scope_location(self.prefix_of(run), text);
    }

    fn prefix_of(&self, run: RunId) -> &str {
        self.runs.get(&run).map_or("", |r| &r.prefix)
    }

    /// The inputs of a task, in its own order.
    fn inputs_of(&mut self, run: RunId, array: &TaskArray, i: u32) -> Vec<ObjectId> {
        self.objects_of(run, array, &array.template.inputs, i)
    }

    fn outputs_of(&mut self, run: RunId, array: &TaskArray, i: u32) -> Vec<ObjectId> {
        self.objects_of(run, array, &array.template.outputs, i)
    }

    fn objects_of(
        &mut self,
        run: RunId,
        array: &TaskArray,
        files: &[(Pattern, Pattern)],
        i: u32,
    ) -> Vec<ObjectId> {
        let mut location = String::new();
        let mut objects = Vec::with_capacity(files.len());
        for (_, pattern) in files {
            self.location_into(run, array, pattern, i, &mut location);
            objects.push(self.catalog.intern(&location));
        }
        objects
    }

    fn unfold(&mut self, now: Timestamp, key: QueueKey, array: ArrayId, i: u32) {
        let ArrayState { array: a, run, .. } = &self.arrays[array.0 as usize];
        let (a, run) = (a.clone(), *run);
        let inputs = self.inputs_of(run, &a, i);
        self.queue.enter(&self.catalog, now, &ready_task(key, &a, inputs));
    }

    /// Unfolds the next tasks of the backlog until the queue is full.
    fn refill(&mut self, now: Timestamp) {
        while !self.queue.is_full() {
            let Some((key, segment)) = self.backlog.pop_first() else { return };
            if segment.start + 1 < segment.end {
                let next = QueueKey { task: TaskId(key.task.0 + 1), ..key };
                self.backlog.insert(next, Segment { start: segment.start + 1, ..segment });
            }
            self.unfold(now, key, segment.array, segment.start);
        }
    }

    // ------------------------------------------------------------ placement

    fn place(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.hold_until.is_some_and(|until| now < until) {
            return;
        }
        self.hold_until = None;
        loop {
            self.refill(now);
            if self.queue.is_empty() || self.executors.is_empty() {
                return;
            }
            self.settle_stock();
            let mut picks = std::mem::take(&mut self.picks);
            let placed = self.choose(now, &mut picks);
            match placed {
                Ok(executor) => {
                    for pick in &picks {
                        self.assign(now, executor, pick, out);
                    }
                    self.picks = picks;
                }
                Err(unplaced) => {
                    self.picks = picks;
                    if let Unplaced::WaitingForHolder { task, executor } = unplaced
                        && let Some((able, pick)) = self.find_able(task, executor)
                    {
                        self.assign(now, able, &pick, out);
                        continue;
                    }
                    self.unplaced = Some(unplaced);
                    return;
                }
            }
        }
    }

    /// The policy's choice; but a task that lacks an input which another executor is about to read from home
    /// comes after those that do not: a moment later it is a hit there, and home is read once.
    /// Nobody waits for it: where there is nothing else to place, it is placed.
    fn choose(&mut self, now: Timestamp, picks: &mut Vec<Pick>) -> Result<ExecutorId, Unplaced> {
        let first = self.queue.place(&self.catalog, now, picks);
        let (Ok(executor), [pick]) = (&first, &picks[..]) else { return first };
        let awaits = self.config.placement_config.await_arriving && !self.queue.plans_routes();
        if !awaits || self.arriving.is_empty() || !self.reads_arriving(*executor, *pick) {
            return first;
        }
        if self.search_rest > 0 {
            self.search_rest -= 1;
            return first;
        }
        let kept = *pick;
        let mut aside = vec![];
        let mut other = (*executor, kept);
        while aside.len() < ASIDE_MAX && self.reads_arriving(other.0, other.1) {
            self.queue.leave(&self.catalog, other.1.key);
            aside.push(other.1.key);
            match (self.queue.place(&self.catalog, now, picks), &picks[..]) {
                (Ok(executor), [pick]) => other = (executor, *pick),
                _ => break,
            }
        }
        let found = !self.reads_arriving(other.0, other.1);
        for key in aside {
            let (array, i) = self.locate(key.task);
            self.unfold(now, key, array, i);
        }
        picks.clear();
        if found {
            self.search_rest_next = SEARCH_REST;
            picks.push(other.1);
            return Ok(other.0);
        }
        self.search_rest = self.search_rest_next;
        self.search_rest_next = (self.search_rest_next * 2).min(SEARCH_REST_MAX);
        picks.push(kept);
        first
    }

    /// Whether `pick` lacks an input on `executor` that is on its way from home to another one.
    fn reads_arriving(&mut self, executor: ExecutorId, pick: Pick) -> bool {
        if pick.n_hits >= pick.n_inputs {
            return false;
        }
        let (array, i) = self.locate(pick.key.task);
        let array = self.arrays[array.0 as usize].array.clone();
        let inputs = self.inputs_of(self.run_of(pick.key.task), &array, i);
        inputs.iter().any(|o| self.arriving.get(o).is_some_and(|reader| *reader != executor))
    }

    /// The last tasks go to whoever is free first, not into somebody's stock. The two bounds keep it from
    /// changing with every task, as all rooms change with it.
    fn settle_stock(&mut self) {
        let n_slots = self.queue.n_slots_total();
        let stock = self.n_ready > if self.stock { n_slots } else { 2 * n_slots };
        if stock != self.stock {
            self.stock = stock;
            for executor in self.executors.keys().copied().collect::<Vec<_>>() {
                self.update_room(executor);
            }
        }
    }

    /// An idle executor for a task that waits for a holder which is too small for it, now and later.
    fn find_able(&self, task: TaskId, holder: ExecutorId) -> Option<(ExecutorId, Pick)> {
        let (cpus, memory_bytes) = self.size_of(task);
        let offer = &self.executors[&holder].offer;
        if offer.slots >= cpus && offer.memory_bytes >= memory_bytes {
            return None;
        }
        let able = self.executors.keys().copied().find(|executor| {
            self.queue.room(*executor).is_some_and(|room| room.fits(Stage::Idle, cpus, memory_bytes))
        })?;
        let key = self.key_of(task);
        let (array, _) = self.locate(task);
        let n_inputs = self.arrays[array.0 as usize].array.template.inputs.len() as u32;
        let rule = Rule::Paper(Mode::MaxComputeUtil);
        Some((able, Pick { key, n_hits: 0, n_inputs, rule, stage: Stage::Idle }))
    }

    fn assign(&mut self, now: Timestamp, executor: ExecutorId, pick: &Pick, out: &mut Vec<Action>) {
        let task = pick.key.task;
        let run = self.run_of(task);
        if let Some(missing) = self.find_missing(now, task, out) {
            return self.await_missing(now, task, missing, out);
        }
        let n_queued = self.n_ready;
        let (array_id, i) = self.locate(task);
        let array = self.arrays[array_id.0 as usize].array.clone();
        let objects = self.inputs_of(run, &array, i);
        if let Some(bad) = objects.iter().find(|o| self.runs[&run].changed.contains(o)) {
            let message = format!("`{}` changed since this run first read it", self.catalog.location(*bad));
            let failure = Failure { kind: FailureKind::InputChanged, message };
            self.take_ready(task);
            self.end_task(now, task, Outcome::Failed(failure), out);
            return;
        }
        let mut routes = std::mem::take(&mut self.routes);
        routes.clear();
        self.queue.give(&self.catalog, now, executor, pick.key, &mut routes);
        self.take_ready(task);
        let mut inputs = Vec::with_capacity(objects.len());
        for object in objects {
            let source = routes.iter().find(|r| r.object == object).and_then(|r| r.source);
            inputs.push(self.assigned_input(executor, run, object, source));
        }
        self.routes = routes;
        let outputs = self.outputs_of(run, &array, i);
        let staying: Vec<u32> = (0..)
            .zip(&outputs)
            .filter(|(_, object)| self.is_intermediate(**object))
            .map(|(n, _)| n)
            .collect();
        let history = self.histories.get(&task).cloned().unwrap_or_default();
        let attempt = AttemptNo(history.n_attempts + 1);
        let (cpus, memory_bytes) = (array.template.cpus, array.template.memory_bytes.unwrap_or(0));
        let (n_slots, n_slots_active) = (self.queue.n_slots_total(), self.queue.n_slots_active());
        let ahead = pick.stage == Stage::Ahead;
        let mut reads_first = vec![];
        for input in inputs.iter().filter(|i| !i.direct) {
            if self.catalog.n_holders(input.object) == 0 && !self.arriving.contains_key(&input.object) {
                self.arriving.insert(input.object, executor);
                reads_first.push(input.object);
            }
        }
        let r = Reserved {
            executor,
            attempt,
            cpus,
            memory_bytes,
            landing: false,
            cancelling: false,
            given: self.n_given,
            recalled: false,
            asks_home: inputs.iter().any(|i| i.check_home || i.known.is_none()),
            suspect: false,
            outputs: outputs.clone(),
            lands: staying.len() < outputs.len(),
            reads_first,
        };
        self.reserve(task, r);
        let why = Why {
            policy: pick.rule.policy().into(),
            reason: pick.rule.reason(),
            n_hits: pick.n_hits,
            n_inputs: pick.n_inputs,
            n_slots_active: n_slots_active as u32,
            n_slots: n_slots as u32,
            n_queued,
            ahead,
        };
        let private_inputs = history.private_inputs;
        let assignment =
            Assignment { task, attempt, run, cpus, inputs, outputs, staying, private_inputs, why };
        out.push(Action::Assign { executor, assignment });
    }

    fn assigned_input(
        &self,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
        planned: Option<Source>,
    ) -> AssignedInput {
        let stays = self.is_intermediate(object);
        let uses_caches = self.queue.uses_caches() || stays;
        let known = self.known(object);
        let check_home = !stays && self.catalog.checked_run(object).is_none_or(|checked| checked < run);
        let mut sources = vec![];
        if uses_caches && known.is_some() && (stays || planned != Some(Source::Home)) {
            if let Some(Source::Peer(first)) = planned {
                sources.push(first);
            }
            // Spread readers over holders: start at a place that depends on who asks and for what.
            let n = self.catalog.n_holders(object);
            let skip = if n <= SOURCES_MAX { 0 } else { (executor.0 as usize + object.0 as usize) % n };
            let holders = self.catalog.holders_of(object);
            let first = sources.first().copied();
            let others = holders
                .filter(|h| *h != executor && Some(*h) != first && self.executors[h].silent_since.is_none());
            let n_more = SOURCES_MAX - sources.len();
            if skip == 0 {
                sources.extend(others.take(n_more));
            } else {
                let all: Vec<ExecutorId> = others.collect();
                sources.extend(all.iter().cycle().skip(skip).take(n_more.min(all.len())));
            }
            if stays {
                self.foreign_sources(executor, run, object, &mut sources);
            }
        }
        AssignedInput { object, known, sources, check_home, direct: !uses_caches, stays }
    }

    /// What is known of an object's bytes, if somebody has read them.
    fn known(&self, object: ObjectId) -> Option<Known> {
        let (digest, size_bytes) = (self.catalog.digest(object)?, self.catalog.size_bytes(object)?);
        Some(Known { digest, size_bytes, version: self.catalog.version(object).cloned().unwrap_or_default() })
    }

    /// Changes what an executor has, and everything that is counted from it.
    fn change_load(&mut self, executor: ExecutorId, change: impl FnOnce(&mut ExecutorState)) {
        let Some(e) = self.executors.get_mut(&executor) else { return };
        change(e);
        self.update_room(executor);
    }

    fn update_room(&mut self, executor: ExecutorId) {
        let Some(e) = self.executors.get(&executor) else { return };
        if e.draining || e.silent_since.is_some() {
            // Nothing goes there and nothing waits for it; its replicas may still be fetched.
            if self.queue.room(executor).is_some() {
                let objects = self.catalog.objects_on(executor);
                self.queue.executor_left(&self.catalog, executor, &objects);
            }
            return;
        }
        self.queue.executor_joined(&self.catalog, executor);
        let slots = e.offer.slots;
        let stock = match e.run_ns_mean {
            // At least one per slot; as many as fill the time that a message may take.
            Some(ns) => {
                (u64::from(slots) * AHEAD_NS / ns.max(1)).clamp(u64::from(slots), u64::from(AHEAD_MAX)) as u32
            }
            None => slots,
        };
        let is_well = e.sick_until.is_none();
        let may_stock = self.stock && self.config.placement_config.ahead;
        // What cannot run yet keeps no slot from what can.
        let moving = self.queue.moving(executor);
        let cpus_here = e.cpus_assigned - moving.cpus;
        let moves = match may_stock {
            true if moving.unseen => (slots + stock).saturating_sub(e.cpus_assigned).min(slots),
            // What has arrived and waits for a slot is stock like any other.
            true if moving.cpus < slots && cpus_here < slots + stock => slots,
            true => 0,
            false => slots.saturating_sub(e.cpus_assigned),
        };
        let mut room = Room {
            slots_total: slots,
            slots_idle: slots.saturating_sub(cpus_here),
            memory_total_bytes: e.offer.memory_bytes,
            ahead: if may_stock { (slots + stock).saturating_sub(cpus_here.max(slots)) } else { 0 },
            memory_free_bytes: e.offer.memory_bytes.saturating_sub(e.memory_assigned),
            moves,
        };
        if !is_well {
            (room.slots_idle, room.ahead, room.moves) = (0, 0, 0);
        }
        self.queue.set_room(executor, room);
    }

    // ------------------------------------------------------------ replicas

    fn on_replica_added(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        replica: ReplicaAdded,
        out: &mut Vec<Action>,
    ) {
        let ReplicaAdded { object, digest, size_bytes, version } = replica;
        if !self.executors.contains_key(&executor) || object.0 as usize >= self.catalog.n_objects() {
            return;
        }
        if let Some(maker) = self.making.get(&object)
            && let r = &self.reserved[maker]
            && (r.executor, r.landing) == (executor, false)
            && version.is_none()
        {
            let run = self.run_of(*maker);
            self.on_made(executor, run, object, digest, size_bytes, out);
        }
        let e = &self.executors[&executor];
        // Whoever asked for these bytes is among the attempts there: runs in between are not told apart.
        let (first, last) = (e.assigned.first_key_value(), e.assigned.last_key_value());
        let first = first.map(|(task, _)| self.run_of(*task));
        let last = last.map(|(task, _)| self.run_of(*task));
        let checked = self.catalog.checked_run(object);
        self.arriving.remove(&object);
        match self.catalog.digest(object) {
            Some(known) if known == digest => {}
            Some(_) if version.is_none() || checked >= last => {
                // A run has read other bytes under this name already: they stay, these go.
                self.suspect(object, Some(executor));
                self.drop_replica(executor, object);
                out.push(Action::DropReplicas { executor, objects: vec![object] });
                return;
            }
            None => {
                self.catalog.set_digest(object, Some(digest));
                self.catalog.set_size_bytes(object, Some(size_bytes));
            }
            Some(_) => {
                // Runs up to `checked` are held to the old bytes, later ones may have begun to read them.
                self.suspect(object, None);
                self.replace_bytes(executor, object, digest, size_bytes, out);
                self.catalog.set_version(object, version);
                let later = |run: &RunId| checked.is_none_or(|c| *run > c);
                let tasks = self.executors[&executor].assigned.keys();
                let run = tasks.map(|task| self.run_of(*task)).filter(later).min();
                self.catalog.set_checked_run(object, run);
                self.add_replica(executor, object);
                return;
            }
        }
        let from_home = version.is_some();
        if from_home {
            self.catalog.set_version(object, version);
            if let Some(run) = first {
                self.raise_checked_run(object, run);
            }
        }
        self.add_replica(executor, object);
        if from_home && self.catalog.n_holders(object) == 1 {
            self.consider_multicast(now, object, None);
        }
        if self.is_intermediate(object) {
            self.drop_unread(&[object], out);
        }
    }

    /// A task of `run` has made `object` anew: these are its bytes now, whatever lies elsewhere.
    fn on_made(
        &mut self,
        executor: ExecutorId,
        run: RunId,
        object: ObjectId,
        digest: Digest,
        size_bytes: u64,
        out: &mut Vec<Action>,
    ) {
        if self.catalog.digest(object) != Some(digest) {
            self.replace_bytes(executor, object, digest, size_bytes, out);
            // Readers of this run wait for the maker: they have not read what an earlier try made. Unless it had
            // been done, and runs again for a file that was lost.
            let again = |maker| self.intermediates.revivals.contains_key(maker);
            if self.is_intermediate(object) || !self.making.get(&object).is_some_and(again) {
                self.run_mut(run).changed.remove(&object);
            }
        }
        // Home's version is known when they have landed.
        self.catalog.set_version(object, None);
        self.raise_checked_run(object, run);
    }

    /// There are new bytes under a name: other replicas are stale, runs that read the old ones must not
    /// mix them.
    fn replace_bytes(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        digest: Digest,
        size_bytes: u64,
        out: &mut Vec<Action>,
    ) {
        let stale: Vec<ExecutorId> = self.catalog.holders_of(object).filter(|h| *h != executor).collect();
        for holder in stale {
            self.drop_replica(holder, object);
            out.push(Action::DropReplicas { executor: holder, objects: vec![object] });
        }
        // Who reads a file that stays on the nodes waits for its maker, whenever that runs.
        if let Some(checked) = self.catalog.checked_run(object).filter(|_| !self.is_intermediate(object)) {
            for (_, state) in self.runs.range_mut(..=checked).filter(|(_, r)| r.ended.is_none()) {
                state.changed.insert(object);
            }
        }
        self.catalog.set_digest(object, Some(digest));
        self.catalog.set_size_bytes(object, Some(size_bytes));
    }

    /// Marks the attempts, on one executor or on all, that learn from home which bytes of `object` they
    /// read and whose program has not reported yet. Looks at all; home's bytes change rarely.
    fn suspect(&mut self, object: ObjectId, on: Option<ExecutorId>) {
        let location = self.catalog.location(object);
        let (arrays, mut text) = (&self.arrays, String::new());
        for (task, r) in &mut self.reserved {
            if r.landing || !r.asks_home || on.is_some_and(|executor| r.executor != executor) {
                continue;
            }
            let a = &arrays[arrays.partition_point(|a| a.base <= *task) - 1];
            let i = (task.0 - a.base.0) as u32;
            // Files that stay on the nodes are never asked of home.
            r.suspect |= a.array.template.inputs.iter().any(|(_, pattern)| {
                text.clear();
                a.array.fill_into(pattern, i, &mut text);
                text == location
            });
        }
    }

    fn raise_checked_run(&mut self, object: ObjectId, run: RunId) {
        if self.catalog.checked_run(object).is_none_or(|checked| checked < run) {
            self.catalog.set_checked_run(object, Some(run));
        }
    }

    fn add_replica(&mut self, executor: ExecutorId, object: ObjectId) {
        if self.catalog.add_replica(executor, object) {
            if self.moves.collectives.n_live() > 0 {
                self.moves.pending.push(CollectiveEvent::ReplicaAdded { executor, object });
            }
            let before = self.queue.moving(executor);
            self.touch_export(object);
            self.queue.replica_added(&self.catalog, executor, object);
            if self.queue.moving(executor) != before {
                self.update_room(executor);
            }
        }
    }

    fn drop_replica(&mut self, executor: ExecutorId, object: ObjectId) {
        if self.catalog.drop_replica(executor, object) {
            self.touch_export(object);
            self.queue.replica_dropped(&self.catalog, executor, object);
        }
    }

    // ------------------------------------------------------------ looking up

    fn locate(&self, task: TaskId) -> (ArrayId, u32) {
        let at = self.arrays.partition_point(|a| a.base <= task) - 1;
        (ArrayId(at as u32), (task.0 - self.arrays[at].base.0) as u32)
    }

    fn end_of(&self, task: TaskId) -> End {
        let (array, i) = self.locate(task);
        self.arrays[array.0 as usize].ends.get(i)
    }

    fn run_mut(&mut self, run: RunId) -> &mut RunState {
        self.runs.get_mut(&run).expect("a task's run is known")
    }

    /// The run that `task` belongs to; `task` has been submitted.
    pub fn run_of(&self, task: TaskId) -> RunId {
        self.arrays[self.locate(task).0.0 as usize].run
    }

    /// The task in full, its locations as the catalog has them.
    pub fn task_spec(&self, task: TaskId) -> TaskSpec {
        let (array, i) = self.locate(task);
        let ArrayState { array, run, reads_run, writes_run, .. } = &self.arrays[array.0 as usize];
        let mut spec = array.expand(i);
        if *reads_run || *writes_run {
            for (_, location) in spec.inputs.iter_mut().chain(&mut spec.outputs) {
                scope_location(self.prefix_of(*run), location);
            }
        }
        spec
    }

    fn size_of(&self, task: TaskId) -> (u32, u64) {
        let (array, _) = self.locate(task);
        let template = &self.arrays[array.0 as usize].array.template;
        (template.cpus, template.memory_bytes.unwrap_or(0))
    }

    /// The user's own name for a task.
    pub fn user_id(&self, task: TaskId) -> String {
        let (array, i) = self.locate(task);
        let array = &self.arrays[array.0 as usize].array;
        array.fill(&array.template.id, i)
    }

    /// Finds a task by the user's name for it, in the newest run that has one. Looks through all tasks.
    pub fn find_task(&self, run: Option<RunId>, user_id: &str) -> Option<TaskId> {
        let mut text = String::new();
        for a in self
            .arrays
            .iter()
            .rev()
            .filter(|a| run.is_none_or(|r| r == a.run) && self.runs.contains_key(&a.run))
        {
            for i in 0..a.array.n_tasks {
                text.clear();
                a.array.fill_into(&a.array.template.id, i, &mut text);
                if text == user_id {
                    return Some(TaskId(a.base.0 + u64::from(i)));
                }
            }
        }
        None
    }

    pub fn has_task(&self, task: TaskId) -> bool {
        task.0 < self.next_task
    }

    /// Where a task is now, with the reason when it waits.
    pub fn task_state(&self, task: TaskId) -> TaskState {
        match self.end_of(task) {
            End::Done => return TaskState::Done,
            End::Failed => return TaskState::Failed,
            End::Cancelled => return TaskState::Cancelled,
            End::Not => {}
        }
        if let Some(r) = self.reserved.get(&task) {
            return TaskState::Reserved { executor: r.executor, attempt: r.attempt, landing: r.landing };
        }
        if let Some(n) = self.waiting.get(&task) {
            return TaskState::Waiting { n_missing: *n };
        }
        if !self.runs.get(&self.run_of(task)).is_some_and(|r| r.started) {
            return TaskState::Submitting;
        }
        let reason = if self.executors.is_empty() {
            Some("no executor has joined".to_string())
        } else if self.hold_until.is_some() {
            Some("the dispatcher has just restarted; executors may come back with it".to_string())
        } else if let Some(sentence) = self.why_unfit(self.size_of(task)) {
            Some(sentence)
        } else if !self.queue.contains(self.key_of(task)) {
            Some(format!("{} tasks are before it in the queue", self.queue.len()))
        } else {
            self.unplaced.as_ref().map(|u| u.to_string())
        };
        TaskState::Ready { reason }
    }

    pub fn runs(&self) -> impl Iterator<Item = (RunId, &RunState)> {
        self.runs.iter().map(|(id, r)| (*id, r))
    }

    pub fn find_run(&self, run: RunId) -> Option<&RunState> {
        self.runs.get(&run)
    }

    pub fn location(&self, object: ObjectId) -> &str {
        self.catalog.location(object)
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Executors: name, slots, cache bytes, attempts they have, and how they are.
    pub fn executors(&self) -> impl Iterator<Item = (ExecutorId, &Offer, usize, &'static str)> {
        self.executors.iter().map(|(id, e)| {
            let presence = match (e.silent_since, e.draining) {
                (Some(_), _) => "silent",
                (None, true) => "draining",
                (None, false) => "connected",
            };
            (*id, &e.offer, e.assigned.len(), presence)
        })
    }

    pub fn n_ready(&self) -> u64 {
        self.n_ready
    }

    /// When the driver should send [`Event::Ticked`] although nothing happened: a ready task was left waiting, and
    /// time alone may change that.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let waits = matches!(self.unplaced, Some(Unplaced::WaitingForCopy { .. }));
        if !waits || self.queue.is_empty() || self.hold_until.is_some() || !self.has_idle_slot() {
            return None;
        }
        self.queue.wake_at()
    }

    fn has_idle_slot(&self) -> bool {
        self.queue.n_slots_active() < self.queue.n_slots_total()
    }

    /// Whether some output of `task` goes home.
    pub fn lands(&self, task: TaskId) -> bool {
        let (array, i) = self.locate(task);
        let ArrayState { array, writes_run, .. } = &self.arrays[array.0 as usize];
        let outputs = &array.template.outputs;
        !outputs.is_empty()
            && (!writes_run || outputs.iter().any(|(_, l)| !array.fill(l, i).starts_with(RUN_FILE)))
    }

    /// What provisioning looks at, with `n_pending` nodes requested; `nodes` is filled and lent to the answer.
    /// Silent nodes count, as their work is not yet given up; draining ones too, until they have left.
    pub fn demand<'a>(&self, n_pending: u32, nodes: &'a mut Vec<NodeView>) -> Demand<'a> {
        nodes.clear();
        nodes.extend(self.executors.iter().map(|(&executor, e)| NodeView {
            executor,
            slots: e.offer.slots,
            n_assigned: e.assigned.len() as u32,
            idle_since: e.assigned.is_empty().then_some(e.last_ended),
            cached_bytes: 0,
            sole_bytes: 0,
        }));
        let (n_known, sum_ns) = self
            .executors
            .values()
            .filter_map(|e| e.run_ns_mean)
            .fold((0, 0), |(n, sum), ns| (n + 1, sum + u128::from(ns)));
        // What waits counts; while nothing does, what has run.
        let ready_ns = self.run_times.expected_ready_ns();
        Demand {
            n_ready: self.n_ready,
            n_running: self.reserved.len() as u64,
            task_ns_mean: ready_ns.or_else(|| (n_known > 0).then(|| (sum_ns / n_known) as u64)),
            n_pending,
            nodes,
        }
    }

    /// Bytes held for queued tasks: folded arrays, ends, and what placement looks at.
    pub fn queue_heap_bytes(&self) -> usize {
        let arrays: usize = self.arrays.iter().map(|a| a.array.heap_bytes() + a.ends.0.len() * 8).sum();
        let makers = self.makers.capacity() * 16;
        arrays + self.arrays.len() * size_of::<ArrayState>() + makers + self.queue.heap_bytes()
    }

    /// Checks the invariants of the module's header; panics when one is broken. For tests.
    pub fn sanity_check(&self) {
        self.catalog.sanity_check();
        self.check_intermediates();
        if self.config.group.is_some() {
            self.check_exchange();
        }
        #[cfg(any(test, feature = "reference"))]
        self.queue.sanity_check(&self.catalog);
        let sizes = self.queue.sizes().into_iter();
        let queued = sizes.flat_map(|size| self.queue.tasks_of_size(size)).map(|key| key.task);
        let mut ready: BTreeSet<TaskId> = queued.collect();
        assert_eq!(ready.len(), self.queue.len(), "tasks are queued once");
        for (key, segment) in &self.backlog {
            assert_eq!(self.locate(key.task), (segment.array, segment.start));
            assert!(self.queue.last().is_none_or(|last| last < *key), "{key:?} goes before the queue");
            for i in segment.start..segment.end {
                let task = TaskId(self.arrays[segment.array.0 as usize].base.0 + u64::from(i));
                assert!(ready.insert(task), "{task:?} is queued twice");
            }
        }
        assert_eq!(ready.len() as u64, self.n_ready);
        assert_eq!(self.run_times.n_ready(), self.n_ready);
        for (run, state) in self.runs.iter().filter(|(_, r)| r.started) {
            let of_run = |task: &&TaskId| self.run_of(**task) == *run;
            assert_eq!(ready.iter().filter(of_run).count() as u64, state.n_ready, "{run:?} ready");
            assert_eq!(self.waiting.keys().filter(of_run).count() as u64, state.n_waiting, "{run:?} waiting");
            assert_eq!(
                self.reserved.keys().filter(of_run).count() as u64,
                state.n_reserved,
                "{run:?} reserved"
            );
            let landing = self.reserved.keys().filter(of_run).filter(|t| self.reserved[t].landing).count();
            assert_eq!(landing as u64, state.n_landing, "{run:?} landing");
            let ended = state.n_done + state.n_failed + state.n_cancelled;
            let sum = state.n_ready + state.n_waiting + state.n_reserved + ended;
            assert_eq!(sum, state.n_tasks, "{run:?}: every task is somewhere");
            assert!(state.ended.is_none() || ended == sum, "{run:?} has ended with all its tasks");
            let n_open = self.runs.values().filter(|r| r.into == Some(*run)).count();
            assert_eq!(n_open, state.additions.n_open as usize, "{run:?}: submissions into it");
            assert!(state.ended.is_none() || n_open == 0, "{run:?} has ended while tasks are added");
        }
        for (task, r) in &self.reserved {
            assert!(!ready.contains(task) && !self.waiting.contains_key(task));
            assert_eq!(self.executors[&r.executor].assigned.get(task), Some(&r.attempt));
            assert!(r.outputs.iter().all(|output| self.making.get(output) == Some(task)));
        }
        assert_eq!(self.making.len(), self.reserved.values().map(|r| r.outputs.len()).sum::<usize>());
        for (id, e) in &self.executors {
            let load = e.assigned.keys().map(|t| &self.reserved[t]).filter(|r| !r.landing);
            let (cpus, memory) = load.fold((0, 0), |(c, m), r| (c + r.cpus, m + r.memory_bytes));
            assert_eq!((e.cpus_assigned, e.memory_assigned), (cpus, memory), "{id:?}");
            let takes_new = !e.draining && e.silent_since.is_none();
            assert_eq!(self.queue.room(*id).is_some(), takes_new, "{id:?}");
        }
    }
}
