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
//! | ready | `ready.queue` of the schedule (the first tasks in queue order, unfolded), or folded in `ready.backlog` |
//! | reserved | `attempts.reserved` of the schedule: given to an executor, which stages its inputs and runs it |
//! | landing | the same with `landing` set: its program ended well, its outputs travel home |
//! | done, failed, cancelled | two bits in its array's `ends`, in `work.tasks` |
//!
//! Invariants, checked by [`Dispatcher::sanity_check`]:
//!   1. every task of a started run is in exactly one of these places, and the run's counts say so;
//!   2. an executor's assigned cpus and memory are the sums over its reserved, not yet landing attempts;
//!   3. while the backlog is not empty the queue is full, and no backlog task goes before a task of the queue; where
//!      several users share the cluster, `shares` has the rule;
//!   4. catalog and queue agree on every replica.
//!
//! Why only the first tasks: policies look at a fixed number of tasks, counted and not timed, so that a run
//! gives the same answer on a fast and a slow machine. Only these tasks are ever unfolded.
//!
//! Why executors get more tasks than they have slots: the next inputs move while the present task computes.
//! How many more depends on how short the tasks are (about `AHEAD_NS` of work). No task is given ahead once
//! fewer tasks are ready than there are slots: the last tasks go to the executor that is free first.
//!
//! Why attempts can be *suspect*: one run reads one version of an object. The run must keep to the first
//! bytes that it is known to have read. Until these are known, its attempts learn from home which bytes they
//! read. When other bytes appear under a name, those attempts may have read either version. Then their
//! success does not count, and they are tried again with bytes that are known. This memory lasts for one
//! process, as the journal holds no digests.
//!
//! The fields of [`Dispatcher`] are its table of contents. Each is a structure, mostly of the child module that
//! has its name. A structure owns the methods that concern it, and its methods name in their parameters what else
//! they look at or change ([decision 0060](../../../../docs/decisions/0060-structures-of-the-dispatcher.md)):
//!
//! | field | what it knows |
//! |---|---|
//! | `work` | what was submitted: runs, tasks, and the catalog of the objects that they name (`workload`, `tasks`, `additions`) |
//! | `schedule` | who runs what: ready tasks, attempts, executors with their `resources` and `walltimes`, run times, and what users have had (`shares`) |
//! | `waits` | tasks that wait for another task (`submissions`) |
//! | `intermediates` | files that stay on the nodes (with `promises`, `revivals` and `rescue`) |
//! | `residents` | files of home that lie on the nodes' own disks |
//! | `moves`, `network` | patterns and collectives; what is known of the network |
//! | `reruns` | tasks that run again in place of sending their files |
//! | `pushes` | files that users want on nodes before any task reads them |
//! | `two_mark` | stores that exchange objects, and what attempts read there |
//! | `reach` | executors that cannot reach each other, and tasks that wait because of that |
//! | `given_up`, `leftovers` | attempts that were given up and may still end well; what lost attempts left at home |
//! | `forgotten` | runs that are forgotten (`forget`) |
//! | `home_shares` | which part of home each executor may use |
//! | `exchange` | files that cross from one dispatcher of a group to another, and the group's balance |
//!
//! A function that needs most of them is a method of [`Dispatcher`]: an event of a task passes `submissions` (in, and
//! waiting), `ready` (queued), `assign` (given to an executor) and `attempts` (ended). `executors` and
//! `replicas` have the events of nodes, and `ask` has the answers to users.
//!
//! Not here: how bytes move and what is evicted ([`crate::executor`]), which executor suits which task
//! ([`crate::placement`]), how nodes come and go.

mod additions;
mod ask;
mod assign;
mod attempts;
mod counts;
mod demand;
mod exchange;
mod executors;
mod forget;
mod given_up;
mod intermediates;
mod leftovers;
mod moves;
mod promises;
mod pushes;
mod reach;
mod ready;
mod replicas;
mod reruns;
mod rescue;
mod residents;
mod resources;
mod revivals;
mod run_times;
mod schedule;
mod shares;
mod submissions;
mod tasks;
mod two_mark;
mod walltimes;
mod watched;
mod workload;

pub use additions::{Upstream, find_circle, has_ended, nobody_writes, was_dropped};
pub use counts::{BytesRead, EndCounts, TaskCounts};
pub use forget::KeepRuns;
pub use moves::CollectiveMode;
pub use revivals::REVIVALS_MAX;
pub use shares::UserShare;
pub use walltimes::{drain_before_ns, stop_before_ns};
pub use workload::Workload;

use self::additions::Additions;
use self::assign::SOURCES_MAX;
use self::attempts::{Attempts, Giving, History, Reserved};
use self::exchange::{Exchange, Linked};
use self::executors::{ExecutorState, Executors};
use self::forget::Forgotten;
use self::given_up::GivenUp;
use self::intermediates::{Intermediate, Intermediates};
use self::leftovers::Leftovers;
use self::moves::Moves;
use self::promises::promise_refused;
use self::pushes::Pushes;
use self::reach::{Couriers, Reach};
use self::ready::{Ready, Segment};
use self::reruns::Reruns;
use self::rescue::Leaving;
use self::residents::Residents;
use self::resources::Resources;
use self::revivals::Missing;
use self::run_times::RunTimes;
use self::schedule::Schedule;
use self::shares::Shares;
use self::submissions::Waits;
use self::tasks::{ArrayState, End, Ends, TaskTable};
use self::two_mark::TwoMark;
use self::walltimes::Walltimes;
use crate::collective::CollectiveEvent;
use crate::event::*;
use crate::group::Membership;
use crate::home_share::{HomeLimits, HomeShares};
use crate::network::Network;
use crate::pattern::RunPatterns;
use crate::placement::{self, Lasts, NeedsId, QueueKey, ReadyTask, TaskSize};
use eyas_terms::array::TaskArray;
use eyas_terms::location::RunScope;
use eyas_terms::*;
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;

/// After a search that found no other task, this many decisions are taken without a search. The number
/// doubles with each further search without result, as when all tasks read one object that is never cached.
const SEARCH_REST: u32 = 16;
/// How long a restarted dispatcher waits at least for executors to report the attempts that they still run.
pub const RETURN_GRACE_NS: u64 = 2_000_000_000;
/// The same at most.
const RETURN_GRACE_NS_MAX: u64 = 10_000_000_000;
/// It waits for this part of the lease. Where leases are long, nodes are far, and hear late of a dispatcher that has another address.
const RETURN_GRACE_PART: u64 = 12;

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct DispatcherConfig {
    /// A name in [`placement::NAMES`].
    pub placement: String,
    pub placement_config: placement::Config,
    /// An executor that has been silent for this long is given up, and its attempts go to other executors.
    pub lease_ns: u64,
    /// A task that had been assigned to more than this many executors when they were lost fails: the task is
    /// assumed to be the cause.
    pub losses_max: u32,
    /// Attempts of one task that may fail through no fault of the task before the task fails.
    pub weather_max: u32,
    /// Which collectives the dispatcher may choose.
    #[serde(default)]
    pub collectives: CollectiveMode,
    /// Distinguishes this cluster's `run:` files from those of other clusters; it stays the same after a
    /// restart.
    #[serde(default)]
    pub scope: String,
    /// This dispatcher's place in its group; `None` where there is only one dispatcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Membership>,
    /// What home storage allows, for all executors of this dispatcher together.
    #[serde(default)]
    pub home_limits: HomeLimits,
    /// Which ended runs are kept; `None`: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_runs: Option<KeepRuns>,
    /// Named resources that the whole cluster has, such as licences: how many tasks may hold one at a time. A name
    /// that stands here is none of a node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u32>,
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
            resources: BTreeMap::new(),
        }
    }
}

/// One run, as users and reports see it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunState {
    pub name: String,
    /// The run's tasks may be given to executors.
    pub started: bool,
    /// The run is complete: no further tasks come, except by submissions into the run.
    pub committed: bool,
    /// Files that stay on the nodes are kept when their last reader has ended.
    pub keep: bool,
    pub opened: Timestamp,
    pub ended: Option<Timestamp>,
    /// When the last part of a run in parts ended, as far as this dispatcher has heard.
    all_parts_ended: Option<Timestamp>,
    pub tasks: TaskCounts,
    pub ends: EndCounts,
    pub read: BytesRead,
    /// Files that tasks which are done made, and that are no outputs.
    pub left: LeftFiles,
    /// The latest failures.
    pub failures: VecDeque<(TaskId, Failure)>,
    /// The whole run was cancelled, and so is every task that is added to it later.
    pub cancelled: bool,
    owner: OwnerId,
    arrays: Vec<ArrayId>,
    /// Set for a submission into another run: the run that its tasks are added to.
    into: Option<RunId>,
    additions: Additions,
    scope: RunScope,
    /// Objects that changed at home after this run had read them.
    changed: BTreeSet<ObjectId>,
    /// Files that watched tasks of the run have made, each with the task.
    found: BTreeMap<ObjectId, TaskId>,
    /// Files that watched tasks of the run have named, each with the first task.
    named: BTreeMap<ObjectId, TaskId>,
    /// Where this run is a part of a run in parts: what is known of the parts at other dispatchers.
    linked: Option<Box<Linked>>,
    /// Where this run is a part of a run in parts: the patterns of the whole run, kept until all tasks of
    /// this part are known.
    patterns: Option<Box<RunPatterns>>,
}

/// The state of a task, as users see it.
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
    /// The task's submission is not complete.
    Submitting,
}

/// The dispatcher. See the module's header.
pub struct Dispatcher {
    config: DispatcherConfig,
    work: Workload,
    schedule: Schedule,
    waits: Waits,
    intermediates: Intermediates,
    leftovers: Leftovers,
    home_shares: HomeShares,
    given_up: GivenUp,
    forgotten: Forgotten,
    moves: Moves,
    exchange: Exchange,
    reruns: Reruns,
    residents: Residents,
    network: Network,
    reach: Reach,
    pushes: Pushes,
    two_mark: TwoMark,
}

fn hash_of(location: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(location.as_bytes());
    hasher.finish()
}

/// What a task of an array takes of an executor's room; `needs`: the number of the array's needs.
fn task_size(array: &TaskArray, needs: NeedsId) -> TaskSize {
    let cpus = match &array.needs {
        None => array.template.cpus,
        Some(needs) => needs.whole_cpus(array.template.cpus),
    };
    TaskSize { cpus, memory_bytes: array.template.memory_bytes.unwrap_or(0), needs }
}

/// The task in the form that placement works with.
fn ready_task(key: QueueKey, size: TaskSize, mut inputs: Vec<ObjectId>, lasts: Lasts) -> ReadyTask {
    let first_input = inputs.first().copied();
    inputs.sort_unstable();
    inputs.dedup();
    let TaskSize { cpus, memory_bytes, needs } = size;
    ReadyTask { key, inputs, first_input, cpus, memory_bytes, needs, lasts }
}

impl Dispatcher {
    /// `Err` names an unknown placement policy and the known ones.
    pub fn new(config: DispatcherConfig) -> Result<Dispatcher, String> {
        let queue = placement::by_name(&config.placement, &config.placement_config)?;
        Ok(Dispatcher {
            home_shares: HomeShares::new(config.home_limits),
            work: Workload::new(),
            schedule: Schedule::new(&config, queue),
            waits: Waits::default(),
            intermediates: Intermediates::default(),
            leftovers: Leftovers::default(),
            given_up: GivenUp::default(),
            forgotten: Forgotten::default(),
            moves: Moves::default(),
            exchange: Exchange::new(config.group),
            reruns: Reruns::default(),
            residents: Residents::default(),
            network: Network::default(),
            reach: Reach::default(),
            pushes: Pushes::default(),
            two_mark: TwoMark::default(),
            config,
        })
    }

    /// The one door. Appends to `out` what the driver has to do.
    pub fn handle(&mut self, now: Timestamp, event: Event, out: &mut Vec<Action>) {
        self.note_submission(&event);
        let ticked = matches!(event, Event::Ticked);
        self.take(now, event, out);
        self.settle(now, ticked, out);
    }

    /// Counts the submissions that are open, and notices the end of what is read back from a journal.
    fn note_submission(&mut self, event: &Event) {
        let is_of_submission = matches!(
            event,
            Event::RunOpened { .. }
                | Event::ArrayAdded { .. }
                | Event::FilesWanted { .. }
                | Event::RunStarted { .. }
                | Event::RunCommitted { .. }
                | Event::RunAborted { .. }
                | Event::RunLinked { .. }
                | Event::RunPatterns { .. }
                | Event::RunOwned { .. }
                | Event::WeightSet { .. }
                | Event::TaskRestored { .. }
                | Event::TaskRevived { .. }
                | Event::AttemptGivenUp { .. }
                | Event::Began { .. }
                | Event::RunForgotten { .. }
                | Event::TasksNumbered { .. }
        );
        if !is_of_submission {
            // The first event that is no part of a submission: the journal has been read to its end.
            for task in std::mem::take(&mut self.waits.failed_makers) {
                self.work.tasks.forget_maker(task);
            }
        }
        match event {
            Event::RunOpened { .. } => self.work.n_open += 1,
            Event::RunCommitted { .. } | Event::RunAborted { .. } => {
                self.work.n_open = self.work.n_open.saturating_sub(1);
            }
            _ => {}
        }
    }

    /// Each event has its method.
    fn take(&mut self, now: Timestamp, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::RunOpened { run, name, keep, into: None } => {
                self.work.on_run_opened(&self.config, now, run, name, keep)
            }
            Event::RunOpened { run, name, into: Some(whole), .. } => {
                self.work.open_addition(now, run, name, whole)
            }
            Event::ArrayAdded { run, array } => self.on_array_added(now, run, array, out),
            Event::FilesWanted { run, files, nodes } => self.on_files_wanted(run, files, nodes),
            Event::RunStarted { run } => self.on_run_started(now, run, out),
            Event::RunCommitted { run } => self.on_run_committed(now, run, out),
            Event::RunAborted { run } => self.on_run_aborted(now, run, out),
            Event::TaskRestored { task, outcome, outputs } => self.waits.on_task_restored(
                &mut self.work,
                &mut self.schedule.attempts,
                task,
                &outcome,
                &outputs,
            ),
            Event::TaskRevived { task } => {
                self.intermediates.on_task_revived(&mut self.work, &mut self.schedule.attempts, task)
            }
            Event::AttemptGivenUp { task, attempt } => self.given_up.on_attempt_given_up(
                &mut self.work,
                &mut self.schedule,
                &mut self.waits,
                now,
                task,
                attempt,
            ),
            Event::ExecutorJoined { executor, offer } => self.on_executor_joined(now, executor, offer, out),
            Event::ExecutorSilent { executor } => {
                self.two_mark.stores.away(executor);
                self.schedule.on_executor_silent(
                    &self.work,
                    &mut self.exchange,
                    &self.intermediates,
                    now,
                    executor,
                )
            }
            Event::ExecutorLost { executor, reason } => self.on_executor_lost(now, executor, &reason, out),
            Event::ExecutorDraining { executor } => {
                self.two_mark.stores.away(executor);
                self.schedule.on_executor_draining(
                    &self.work,
                    &self.intermediates,
                    &mut self.moves,
                    now,
                    executor,
                )
            }
            Event::ExecutorLeaving { executor, within_ns, reason } => {
                self.two_mark.stores.away(executor);
                self.schedule.on_executor_leaving(
                    &self.work,
                    &self.intermediates,
                    &mut self.moves,
                    now,
                    executor,
                    within_ns,
                    reason,
                    out,
                )
            }
            Event::AttemptEnded { executor, report } => self.on_attempt_ended(now, executor, report, out),
            Event::OutputsHome { executor, task, attempt, result } => {
                self.on_outputs_home(now, executor, task, attempt, result, out)
            }
            Event::ReplicasChanged { executor, added, dropped } => {
                self.on_replicas_changed(now, executor, added, dropped, out)
            }
            Event::CacheResized { executor, cache_bytes } => {
                self.schedule.executors.on_resized(executor, cache_bytes);
                self.two_mark.resized(executor, cache_bytes)
            }
            Event::InputMoved { executor, moved } => {
                self.schedule.on_input_moved(&mut self.work, now, executor, &moved)
            }
            Event::PrefetchFailed { executor, batch, object, kind } => {
                if !self.two_mark.prefetch_failed(executor, batch, object) {
                    if kind == TransferErrorKind::NoSpace {
                        self.pushes.refused(executor, object);
                    }
                    let failed = CollectiveEvent::PrefetchFailed { executor, batch, object, kind };
                    self.moves.pending.push(failed);
                }
            }
            Event::HomeUsed { executor, report } => self.home_shares.reported(now, executor, report),
            // They are in the log for people; what follows from a decision comes as further events.
            Event::NodesDecided { .. } | Event::ProcessorsUsed { .. } => {}
            Event::NodesExpected { node } => self.schedule.executors.expected_node = node,
            Event::PlacesFound { executor: _, asked, placed } => self.on_places_found(&asked, placed),
            Event::HomeNotRead { executor, object, error } => {
                self.pushes.not_read(executor, object, &error);
                self.on_home_not_read(now, executor, object, error.kind, out)
            }
            Event::PeersProbed { executor, round_trips } => {
                self.on_peers_probed(now, executor, &round_trips, out)
            }
            Event::PeerUnreachable { executor, peer } => self.on_peer_unreachable(now, executor, peer),
            Event::FileOpened { executor, task, attempt, location } => {
                self.on_file_opened(now, executor, (task, attempt), location, out)
            }
            Event::FilesMade { executor, task, attempt, locations } => {
                self.on_files_made(executor, (task, attempt), &locations, out)
            }
            Event::PartsRemoved { executor, tasks } => self.leftovers.removed(executor, &tasks),
            Event::CancelRequested { run, task } => self.on_cancel(now, run, task, out),
            Event::Ticked => self.on_ticked(now, out),
            Event::Began { incarnation, gave_nothing } => {
                self.schedule.attempts.on_began(incarnation, gave_nothing)
            }
            Event::GivesOut => self.schedule.attempts.giving = Giving::Recorded,
            Event::RunForgotten { run } => self.on_run_forgotten(run, out),
            Event::AllPartsEnded { run, at } => self.work.on_all_parts_ended(run, at),
            Event::TasksNumbered { n_tasks } => {
                self.work.tasks.next_task = self.work.tasks.next_task.max(n_tasks)
            }
            Event::RunRestored { run, opened, ended } => self.on_run_restored(run, opened, ended, out),
            Event::Recovered => self.schedule.attempts.on_recovered(&self.work, &self.config, now),
            Event::RunLinked { run, links } => self.exchange.on_run_linked(&mut self.work, run, links),
            Event::RunPatterns { run, patterns } => {
                self.exchange.on_run_patterns(&mut self.work, run, patterns)
            }
            Event::RunOwned { run, owner } => {
                let owner = self.schedule.shares.number(&owner);
                if let Some(state) = self.work.runs.get_mut(&run).filter(|run| !run.started) {
                    state.owner = owner;
                }
            }
            Event::WeightSet { user, weight } => self.schedule.shares.set_weight(&user, weight),
            Event::MemberConnected { member } => self.exchange.on_member_connected(&self.work, member),
            Event::MemberSilent { member } => self.exchange.on_member_silent(member),
            Event::MemberTold { member, messages } => self.on_member_told(now, member, messages, out),
            Event::MemberLoadChanged { member, load } => self.on_member_load(now, member, load),
        }
    }

    /// What an event of any kind may have made possible: tasks are given out, and files set out.
    fn settle(&mut self, now: Timestamp, ticked: bool, out: &mut Vec<Action>) {
        for (task, attempt) in std::mem::take(&mut self.schedule.attempts.released) {
            self.two_mark.ended(task, attempt);
        }
        self.settle_stores(out);
        let held = self.schedule.attempts.hold_until.is_some();
        self.schedule.look_at_ends(&mut self.work, &self.intermediates, &mut self.moves, now, out);
        if ticked && self.exchange.group.is_some() {
            self.choose_courier(now);
        }
        self.load_courier(now, out);
        self.place(now, out);
        if self.exchange.group.is_some() {
            if held && self.schedule.attempts.hold_until.is_none() {
                self.exchange.touch_all_exports();
            }
            while self.revive_exports(now, out) {
                self.place(now, out);
            }
            if ticked {
                self.send_courier(now, out);
            }
            let Dispatcher { work, schedule, intermediates, reach, .. } = self;
            self.exchange.tell_members(work, &schedule.executors, intermediates, &reach.couriers, out);
        }
        self.bring_imports(now, ticked);
        self.go_on_pushing(now, ticked, out);
        self.carry_collectives(now, out);
        self.end_pushes(now, out);
        self.leftovers.ask(&self.schedule.executors, out);
        self.share_home(now, out);
    }
}
