//! Dispatcher: which task runs where, and when its inputs start moving.
//!
//! Input: [`Event`]s and the current [`Timestamp`]. Output: [`Action`]s for a driver to carry out.
//! There is no I/O, clock or lock here; `eyas-runtime` is the live driver, the replayer another.
//!
//! A task is in exactly one of these states (drawing in `docs/states/task.md`):
//!
//! | state | where it lives |
//! |---|---|
//! | waiting | `waits`: another task still has to make one of its inputs |
//! | ready | `ready.queue` (the first tasks in queue order, unfolded), or folded in `ready.backlog` |
//! | reserved | `attempts.reserved`: given to an executor, which stages its inputs and runs it |
//! | landing | `attempts.reserved` with `landing` set: its program ended well, its outputs travel home |
//! | done, failed, cancelled | two bits in its array's `ends`, in `tasks` |
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
//! more follows from how short the tasks are (about `AHEAD_NS` of work), and nothing is given ahead
//! once fewer tasks are ready than there are slots: the last tasks go to whoever is free first.
//!
//! Why attempts can be *suspect*: one run reads one version of an object. The first bytes that a run is
//! known to have read hold it; until then its attempts learn from home what they read. When other bytes
//! turn up under a name, those attempts may have read either: their success does not count, and they are
//! tried again with bytes that are known. This memory is one process long, as the journal holds no digests.
//!
//! The fields of [`Dispatcher`] are its table of contents: each is a structure of the child module that has its name or says
//! what it is for, and what concerns only one of them is a method of that structure. `tasks` knows every task by its number.
//!
//! A task's way through the child modules: `submissions` (in, and waiting), `ready` (queued), `assign` (given to an executor),
//! `attempts` (ended); beside it `executors` and `replicas` (what there is), `run_times` (what was learnt), `ask` (what people see).
//! Files that stay on the nodes (`run:` locations) are `intermediates`, patterns and collectives `moves`, tasks that run
//! again in place of sending their files `reruns`, attempts that were given up and may still end well `given_up`, what
//! lost attempts left at home `leftovers`, runs that are forgotten `forget`, tasks that are
//! added to a run that goes on `additions`, files that cross from one dispatcher of a group to another `exchange`.
//!
//! Not here: how bytes move and what is evicted ([`crate::executor`]), which executor suits which task
//! ([`crate::placement`]), how nodes come and go.

mod additions;
mod ask;
mod assign;
mod attempts;
mod exchange;
mod executors;
mod forget;
mod given_up;
mod intermediates;
mod leftovers;
mod moves;
mod ready;
mod replicas;
mod reruns;
mod run_times;
mod submissions;
mod tasks;

pub use additions::{Upstream, find_circle, has_ended, nobody_writes, was_dropped};
pub use forget::KeepRuns;
pub use intermediates::REVIVALS_MAX;
pub use moves::CollectiveMode;

use self::additions::Additions;
use self::attempts::{Attempts, History, Reserved};
use self::exchange::{Exchange, Linked};
use self::executors::{ExecutorState, Executors};
use self::forget::Forgotten;
use self::given_up::GivenUp;
use self::intermediates::{Intermediate, Intermediates, Leaving};
use self::leftovers::Leftovers;
use self::moves::Moves;
use self::ready::{Ready, Segment};
use self::reruns::Reruns;
use self::run_times::RunTimes;
use self::submissions::Waits;
use self::tasks::{ArrayState, End, Ends, TaskTable};
use crate::array::{Pattern, TaskArray, TaskSpec};
use crate::catalog::Catalog;
use crate::collective::CollectiveEvent;
use crate::event::*;
use crate::group::Membership;
use crate::home_share::{HomeLimits, HomeShares};
use crate::location::{CatalogLocation, Location, RunScope};
use crate::pattern::RunPatterns;
use crate::placement::{self, Mode, Pick, Queue, QueueKey, ReadyTask, Room, Route, Rule, Stage, Unplaced};
use crate::provisioning::{Demand, NodeView};
use crate::types::*;
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::sync::Arc;

/// After a search in vain so many decisions are taken without one; doubled for each further one, as for tasks
/// that all read one object which is never cached.
const SEARCH_REST: u32 = 16;
/// How long a restarted dispatcher waits for executors to come back with what they still run.
pub const RETURN_GRACE_NS: u64 = 2_000_000_000;

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
    /// What home storage allows, for all executors of this dispatcher together.
    #[serde(default)]
    pub home_limits: HomeLimits,
    /// Which runs are kept when they have ended; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_runs: Option<KeepRuns>,
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
            home_limits: HomeLimits::default(),
            keep_runs: None,
        }
    }
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
    /// When the last part of a run in parts ended, as far as this dispatcher has heard.
    all_parts_ended: Option<Timestamp>,
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
    scope: RunScope,
    /// Objects that changed at home after this run had read them.
    changed: BTreeSet<ObjectId>,
    /// What is known of its parts at other dispatchers, if there are any.
    linked: Option<Box<Linked>>,
    /// What the whole run shows, where this is a part of it; until all its tasks are known.
    patterns: Option<Box<RunPatterns>>,
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
    runs: BTreeMap<RunId, RunState>,
    /// Submissions that have begun and are not complete.
    n_open: u32,
    tasks: TaskTable,
    waits: Waits,
    ready: Ready,
    attempts: Attempts,
    executors: Executors,
    intermediates: Intermediates,
    leftovers: Leftovers,
    home_shares: HomeShares,
    given_up: GivenUp,
    forgotten: Forgotten,
    moves: Moves,
    exchange: Exchange,
    reruns: Reruns,
    run_times: RunTimes,
    /// Kept for its memory.
    location: String,
}

fn hash_of(location: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(location.as_bytes());
    hasher.finish()
}

/// The task as placement sees it.
fn ready_task(key: QueueKey, array: &TaskArray, mut inputs: Vec<ObjectId>) -> ReadyTask {
    let first_input = inputs.first().copied();
    inputs.sort_unstable();
    inputs.dedup();
    let memory_bytes = array.template.memory_bytes.unwrap_or(0);
    ReadyTask { key, inputs, first_input, cpus: array.template.cpus, memory_bytes }
}

impl Dispatcher {
    /// `Err` names an unknown placement policy and the known ones.
    pub fn new(config: DispatcherConfig) -> Result<Dispatcher, String> {
        let queue = placement::by_name(&config.placement, &config.placement_config)?;
        Ok(Dispatcher {
            home_shares: HomeShares::new(config.home_limits),
            config,
            catalog: Catalog::new(),
            runs: BTreeMap::new(),
            n_open: 0,
            tasks: TaskTable::default(),
            waits: Waits::default(),
            ready: Ready::new(queue),
            attempts: Attempts::default(),
            executors: Executors::default(),
            intermediates: Intermediates::default(),
            leftovers: Leftovers::default(),
            given_up: GivenUp::default(),
            forgotten: Forgotten::default(),
            moves: Moves::default(),
            exchange: Exchange::default(),
            reruns: Reruns::default(),
            run_times: RunTimes::default(),
            location: String::new(),
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
                | Event::RunPatterns { .. }
                | Event::TaskRestored { .. }
                | Event::TaskRevived { .. }
                | Event::AttemptGivenUp { .. }
                | Event::Began { .. }
                | Event::RunForgotten { .. }
                | Event::TasksNumbered { .. }
        );
        if !is_of_submission {
            // The journal is read to its end.
            for task in std::mem::take(&mut self.waits.failed_makers) {
                self.tasks.forget_maker(task);
            }
        }
        match &event {
            Event::RunOpened { .. } => self.n_open += 1,
            Event::RunCommitted { .. } | Event::RunAborted { .. } => {
                self.n_open = self.n_open.saturating_sub(1);
            }
            _ => {}
        }
        let ticked = matches!(event, Event::Ticked);
        match event {
            Event::RunOpened { run, name, keep, into: None } => {
                let scope = RunScope::new(&self.config.scope, run);
                self.runs.insert(run, RunState { name, keep, scope, opened: now, ..RunState::default() });
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
            Event::AttemptGivenUp { task, attempt } => self.on_attempt_given_up(now, task, attempt),
            Event::ExecutorJoined { executor, offer } => self.on_executor_joined(now, executor, offer, out),
            Event::ExecutorSilent { executor } => self.on_executor_silent(now, executor),
            Event::ExecutorLost { executor, reason } => self.on_executor_lost(now, executor, &reason, out),
            Event::ExecutorDraining { executor } => {
                if let Some(e) = self.executors.by_id.get_mut(&executor) {
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
                let dropped: Vec<ObjectId> =
                    dropped.into_iter().filter(|object| self.catalog.is_known(*object)).collect();
                for object in &dropped {
                    self.drop_replica(executor, *object);
                }
                self.check_lost(now, &dropped, out);
            }
            Event::CacheResized { executor, cache_bytes } => {
                if let Some(e) = self.executors.by_id.get_mut(&executor) {
                    e.offer.cache_bytes = cache_bytes;
                }
            }
            Event::InputMoved { executor, moved } => {
                if self.executors.by_id.contains_key(&executor) && self.catalog.is_known(moved.object) {
                    // Of what nobody has read yet this is all that is known.
                    if self.catalog.digest(moved.object).is_none() {
                        self.catalog.set_size_bytes(moved.object, Some(moved.size_bytes));
                    }
                    let before = self.ready.queue.moving(executor);
                    self.ready.queue.moved(&self.catalog, now, executor, &moved);
                    if self.ready.queue.moving(executor) != before {
                        self.update_room(executor);
                    }
                }
            }
            Event::PrefetchFailed { executor, batch, object, kind } => {
                self.moves.pending.push(CollectiveEvent::PrefetchFailed { executor, batch, object, kind })
            }
            Event::HomeUsed { executor, report } => self.home_shares.reported(now, executor, report),
            Event::PartsRemoved { executor, tasks } => self.leftovers.removed(executor, &tasks),
            Event::CancelRequested { run, task } => self.on_cancel(now, run, task, out),
            Event::Ticked => self.on_ticked(now, out),
            Event::Began { incarnation } => {
                self.attempts.incarnations.insert(incarnation);
            }
            Event::RunForgotten { run } => self.on_run_forgotten(run, out),
            Event::AllPartsEnded { run, at } => self.on_all_parts_ended(run, at),
            Event::TasksNumbered { n_tasks } => self.tasks.next_task = self.tasks.next_task.max(n_tasks),
            Event::RunRestored { run, opened, ended } => self.on_run_restored(run, opened, ended),
            Event::Recovered => {
                // Only what is unfinished can be out there still.
                if self.runs.values().any(|r| r.started && r.ended.is_none()) {
                    self.attempts.hold_until = Some(now.plus_ns(RETURN_GRACE_NS));
                }
                self.attempts.n_recovered = self.tasks.next_task;
            }
            Event::RunLinked { run, links } => self.on_run_linked(run, links),
            Event::RunPatterns { run, patterns } => self.on_run_patterns(run, patterns),
            Event::MemberConnected { member } => self.on_member_connected(member),
            Event::MemberSilent { member } => self.exchange.on_member_silent(member),
            Event::MemberTold { member, messages } => self.on_member_told(now, member, messages, out),
            Event::MemberLoadChanged { member, load } => self.exchange.on_member_load(member, load),
        }
        let held = self.attempts.hold_until.is_some();
        self.place(now, out);
        if self.config.group.is_some() {
            if held && self.attempts.hold_until.is_none() {
                self.exchange.touch_all_exports();
            }
            while self.revive_exports(now, out) {
                self.place(now, out);
            }
            self.tell_members(out);
        }
        self.bring_imports(now, ticked);
        self.carry_collectives(now, out);
        self.ask_for_leftovers(out);
        self.share_home(now, out);
    }
}
