//! Placement: which of the ready tasks goes to which executor next.
//!
//! In: a [`Queue`], which the dispatcher keeps in step with its own queue, the catalog and the executors' room.
//! Out: one decision per call of [`Queue::place`]: an executor and up to `m` tasks for it, each with the parts of
//! its score, or the reason why nothing can be placed now. The dispatcher applies the decision
//! ([`Queue::leave`], [`Queue::set_room`]) and asks again.
//!
//! | file | |
//! |---|---|
//! | [`queue`] | what the dispatcher needs of placement |
//! | [`affinity`] | our own policy, which looks at the whole queue |
//! | [`first_input`] | a queue per node and neighbour stealing (Zhang12), to compare with |
//! | [`window`] | for the policies of the paper: the tasks that are looked at, the holders of their inputs,
//! and the executors' room |
//! | `hit_tree` | the index below it |
//! | `choice` | the two parts of the algorithm (figures 4 and 5 of Raicu09), shared by the policies |
//! | [`first_available`], [`max_cache_hit`], [`max_compute_util`], [`good_cache_compute`] | one policy each, and how its ambiguous lines are read |
//! | `naive` | the same decisions by scanning everything; the tests compare |
//!
//! Invariant: a decision depends only on what was reported to the queue; ties end in a seat and in the
//! queue's order, which ends in a task's number.
//!
//! Cost on a window: logarithmic in the window, `n_executors / 64` words per row; times the number of different
//! `(cpus, memory, inputs up to 9)` among the tasks of the window, which is small in practice.
//!
//! Not here: which tasks are ready, the tasks behind those that are looked at, reservations, whether a task
//! can ever fit (`dispatcher`).

use eyas_terms::{ExecutorId, ObjectId, TaskId};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

pub mod affinity;
mod choice;
pub mod first_available;
pub mod first_input;
pub mod good_cache_compute;
mod hit_tree;
pub mod max_cache_hit;
pub mod max_compute_util;
pub mod naive;
pub mod queue;
mod reason;
#[cfg(test)]
mod tests;
mod time;
pub mod window;

pub use queue::{Moving, Queue, Route, Windowed};
pub use reason::Reason;
pub use time::{Lasts, TimeLeft};
pub use window::{Standing, Window};

/// Place in the queue: larger priority first, then the order of submission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueKey {
    pub priority: i32,
    pub task: TaskId,
}

impl Ord for QueueKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.priority.cmp(&self.priority).then(self.task.cmp(&other.task))
    }
}
impl PartialOrd for QueueKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The properties of a ready task that placement looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadyTask {
    pub key: QueueKey,
    /// Distinct, in any order.
    pub inputs: Vec<ObjectId>,
    /// The input that the task lists first.
    pub first_input: Option<ObjectId>,
    /// Slots held while running, at least 1.
    pub cpus: u32,
    /// 0 when not declared.
    pub memory_bytes: u64,
    pub needs: NeedsId,
    /// The time that it is expected to take at most.
    pub lasts: Lasts,
}

impl ReadyTask {
    pub fn size(&self) -> TaskSize {
        TaskSize { cpus: self.cpus, memory_bytes: self.memory_bytes, needs: self.needs }
    }
}

/// A set of needs beside whole cpus and memory ([`eyas_terms::needs`]), as numbered by the dispatcher; 0: none. Placement
/// does not know what stands behind a number: a [`Room`] says for which numbers it has room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NeedsId(pub u8);

impl NeedsId {
    pub const NONE: NeedsId = NeedsId(0);
    /// How many different sets there may be at a time, with the empty one.
    pub const N_MAX: usize = 64;

    #[inline]
    pub fn bit(self) -> u64 {
        1 << self.0
    }

    pub fn is_none(self) -> bool {
        self == NeedsId::NONE
    }
}

/// What a task takes of an executor's [`Room`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TaskSize {
    /// Whole slots. 0 only for a task that needs a part of a cpu, which is among its needs.
    pub cpus: u32,
    pub memory_bytes: u64,
    pub needs: NeedsId,
}

/// The room that one executor has for tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    pub slots_total: u32,
    pub slots_idle: u32,
    /// How many further tasks it may be given while its slots are full, so that their inputs move early.
    pub ahead: u32,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    /// Only for a queue that plans how inputs move: cpus of the attempts with moving inputs that the executor
    /// may be given. Such attempts are not counted in the other fields until their inputs have arrived.
    pub moves: u32,
    /// The executor gets no tasks for a while, and no task should wait for it.
    pub rests: bool,
    /// A bit per [`NeedsId`]: no task with these needs can be given to the executor now.
    pub lacks: u64,
    /// A bit per [`NeedsId`]: the executor can never hold a task with these needs.
    pub never: u64,
    /// Beside the idle slots, a part of a slot is free, into which a task may fit that needs a part of a cpu.
    pub has_part: bool,
    /// The time until its end.
    pub left: TimeLeft,
}

/// Which part of an executor's [`Room`] a task takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Slots that are idle now.
    Idle,
    /// A place behind full slots.
    Ahead,
}

impl Room {
    /// The room of an executor that is not there, or of which nothing is known yet: no task fits, not even one that
    /// needs no whole slot.
    pub const NONE: Room = Room {
        slots_total: 0,
        slots_idle: 0,
        ahead: 0,
        memory_total_bytes: 0,
        memory_free_bytes: 0,
        moves: 0,
        rests: false,
        lacks: u64::MAX,
        never: u64::MAX,
        has_part: false,
        left: TimeLeft::NO_END,
    };

    /// Whether a task of that size and time can be given to the executor now.
    #[inline]
    pub fn fits(&self, stage: Stage, size: TaskSize, lasts: Lasts) -> bool {
        if !self.left.is_enough_for(lasts) {
            return false;
        }
        let TaskSize { cpus, memory_bytes, needs } = size;
        match stage {
            Stage::Idle => {
                cpus <= self.slots_idle
                    && memory_bytes <= self.memory_free_bytes
                    && self.lacks & needs.bit() == 0
            }
            // What a task needs beside slots and memory is held from the moment at which the task is given.
            Stage::Ahead => {
                self.ahead > 0
                    && cpus <= self.slots_total
                    && memory_bytes <= self.memory_total_bytes
                    && needs.is_none()
                    && self.lacks & needs.bit() == 0
            }
        }
    }

    /// Whether a task of that size with inputs to move can be given to the executor now.
    #[inline]
    pub fn can_move(&self, size: TaskSize, lasts: Lasts) -> bool {
        let TaskSize { cpus, memory_bytes, needs } = size;
        cpus.max(1) <= self.moves
            && memory_bytes <= self.memory_free_bytes
            && self.lacks & needs.bit() == 0
            && self.left.is_enough_for(lasts)
    }

    /// The idle slots, as a measure of how free the executor is; 0: no task fits that needs a slot or a part of one.
    #[inline]
    pub fn idle_rank(&self) -> u32 {
        self.slots_idle + u32::from(self.has_part)
    }

    /// Whether a task of that size may wait for this executor: the executor is large enough when it has no
    /// other task, has time enough, and does not rest.
    #[inline]
    pub fn is_worth_waiting_for(&self, size: TaskSize, lasts: Lasts) -> bool {
        !self.rests && self.is_able(size) && self.left.is_enough_for(lasts)
    }

    /// Whether the executor is large enough for a task of that size when it has no other task.
    #[inline]
    pub fn is_able(&self, size: TaskSize) -> bool {
        let TaskSize { cpus, memory_bytes, needs } = size;
        cpus.max(1) <= self.slots_total
            && memory_bytes <= self.memory_total_bytes
            && self.never & needs.bit() == 0
    }

    /// The room that is left after such a task, which must fit, has been given.
    #[inline]
    pub fn after(mut self, stage: Stage, size: TaskSize) -> Room {
        match stage {
            Stage::Idle => {
                self.slots_idle -= size.cpus;
                self.memory_free_bytes -= size.memory_bytes;
            }
            Stage::Ahead => self.ahead -= 1,
        }
        if !size.needs.is_none() {
            // Only the dispatcher knows what is left now, and says it before the next decision.
            (self.lacks, self.has_part) = (u64::MAX, false);
        }
        self
    }
}

/// The rule by which a task was picked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    FirstAvailable,
    MaxCacheHit,
    MaxComputeUtil,
}

/// The rule that picked a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    Paper(Mode),
    Affinity(Reason),
    FirstInput { policy: &'static str, reason: Reason },
}

impl Rule {
    /// The policy whose rule it is.
    pub fn policy(self) -> &'static str {
        match self {
            Rule::Paper(Mode::FirstAvailable) => first_available::NAME,
            Rule::Paper(Mode::MaxCacheHit) => max_cache_hit::NAME,
            Rule::Paper(Mode::MaxComputeUtil) => max_compute_util::NAME,
            Rule::Affinity(_) => affinity::NAME,
            Rule::FirstInput { policy, .. } => policy,
        }
    }

    pub fn reason(self) -> Option<Reason> {
        match self {
            Rule::Paper(_) => None,
            Rule::Affinity(reason) | Rule::FirstInput { reason, .. } => Some(reason),
        }
    }
}

/// A task that goes to the executor of the decision, with the parts of its score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    pub key: QueueKey,
    /// Inputs that are cached on that executor; 0 under `first-available`, which does not look.
    pub n_hits: u32,
    pub n_inputs: u32,
    pub rule: Rule,
    pub stage: Stage,
}

/// Why nothing can be placed now. "Never" is not among the answers, see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unplaced {
    NothingReady,
    NoExecutor,
    /// Every slot is busy and no executor may be given tasks ahead.
    NoneFree,
    /// The head of the queue waits for the executor that holds most of its inputs (of equals, the lowest).
    WaitingForHolder {
        task: TaskId,
        executor: ExecutorId,
    },
    /// The head of the queue waits until its inputs have come nearer, or until an executor that has some of
    /// them can send them.
    WaitingForCopy {
        task: TaskId,
    },
    /// Executors have room for the head of the queue, but for some of them it has not been considered yet
    /// what they would fetch.
    NotAsked {
        task: TaskId,
    },
    /// The head of the queue is bound to an executor, which is busy, while others are idle.
    QueuedAt {
        task: TaskId,
        executor: ExecutorId,
    },
    /// There is idle room or room ahead, but too little for the head of the queue or any task behind it.
    NothingFits {
        task: TaskId,
        cpus: u32,
        memory_bytes: u64,
    },
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unplaced::NothingReady => write!(f, "no task is ready"),
            Unplaced::NoExecutor => write!(f, "there is no executor"),
            Unplaced::NoneFree => write!(f, "every slot is busy"),
            Unplaced::WaitingForHolder { task, executor } => {
                write!(f, "task {task} waits for executor {executor}, which holds most of its inputs")
            }
            Unplaced::QueuedAt { task, executor } => {
                write!(f, "task {task} is queued at executor {executor}, which is busy")
            }
            Unplaced::WaitingForCopy { task } => {
                write!(
                    f,
                    "task {task} waits for its inputs, which are on their way or whose holders are busy"
                )
            }
            Unplaced::NotAsked { task } => {
                write!(f, "task {task} is offered to the executors that have room for it, a few at a time")
            }
            Unplaced::NothingFits { task, cpus, memory_bytes: 0 } => {
                write!(f, "no executor has {cpus} idle slots for task {task}")
            }
            Unplaced::NothingFits { task, cpus, memory_bytes } => {
                write!(
                    f,
                    "no executor has {cpus} idle slots and {} of memory for task {task}",
                    eyas_text::size(*memory_bytes)
                )
            }
        }
    }
}

/// A placement policy. It reads the window and changes nothing.
pub trait Policy: Send + Sync + fmt::Debug {
    /// The name as it is spelt in the paper and in the configuration.
    fn name(&self) -> &'static str;

    /// Whether executors keep what they fetch and are told the holders of their inputs. `false`: each task
    /// reads from home.
    fn uses_caches(&self) -> bool {
        true
    }

    /// One decision: fills `picks` (cleared first) with 1 to `m` tasks in the order in which they should be given
    /// to the executor, all of the same [`Stage`] and together within its room.
    fn place(&self, window: &Window, picks: &mut Vec<Pick>) -> Result<ExecutorId, Unplaced>;
}

/// The configuration of the policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `W`: how many ready tasks are looked at, at least 1. The paper takes 100 times the number of nodes; 3,200
    /// are its 32 nodes (§4.4).
    pub window: usize,
    /// Share of slots that must be busy before `good-cache-compute` lets tasks wait for their holders, in [0, 1].
    /// §4.4 takes 0.8 (with the window of 3,200, which is why it is the default here), §2.3 and §5.1 mention 0.9.
    pub utilisation_threshold: f64,
    /// `m`: tasks given to one executor by one decision, at least 1. The paper names no value; with 1 the
    /// utilisation and the holders are looked at anew for each task.
    pub tasks_per_decision: usize,
    /// Executors are given more tasks than they have slots, so that the next inputs move while a task
    /// computes. Not in the paper, where executors fetch inside the slot.
    pub ahead: bool,
    /// Tasks whose inputs another executor is reading from home come after other work. Not in the paper.
    pub await_arriving: bool,
    /// Of the policy `affinity`, which uses none of the above except `ahead`.
    pub affinity: affinity::Config,
    /// How many ready tasks `first-input` and `first-input-steal` look at, at least 1: all nodes' queues together.
    pub first_input_queued_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            window: 3200,
            utilisation_threshold: 0.8,
            tasks_per_decision: 1,
            ahead: true,
            await_arriving: true,
            affinity: affinity::Config::default(),
            first_input_queued_max: 262_144,
        }
    }
}

/// The names that [`by_name`] knows, those of Raicu09 first.
pub const NAMES: [&str; 7] = [
    first_available::NAME,
    max_cache_hit::NAME,
    max_compute_util::NAME,
    good_cache_compute::NAME,
    affinity::NAME,
    first_input::NAME,
    first_input::NAME_STEAL,
];

/// The queue with the policy called `name`. `Err` is one sentence for users.
pub fn by_name(name: &str, config: &Config) -> Result<Box<dyn Queue>, String> {
    if name == affinity::NAME {
        return Ok(Box::new(affinity::Affinity::new(config.affinity.clone())?));
    }
    if name == first_input::NAME || name == first_input::NAME_STEAL {
        let (capacity, n_tasks_max) = (config.first_input_queued_max, config.tasks_per_decision);
        if capacity == 0 || n_tasks_max == 0 {
            return Err("`first_input_queued_max` and `tasks_per_decision` must be at least 1".into());
        }
        let steals = name == first_input::NAME_STEAL;
        return Ok(Box::new(first_input::FirstInput::new(steals, capacity, n_tasks_max)));
    }
    match of_paper(name, config)? {
        Some(policy) => Ok(Box::new(Windowed { window: Window::new(config.window), policy })),
        None => Err(format!(
            "there is no placement policy {}; known are {}",
            eyas_text::shown(name),
            NAMES.join(", ")
        )),
    }
}

/// The policy of the paper called `name`, which needs a [`Window`]. `Err` is one sentence for users.
pub fn of_paper(name: &str, config: &Config) -> Result<Option<Box<dyn Policy>>, String> {
    if config.window == 0 || config.tasks_per_decision == 0 {
        return Err("`window` and `tasks_per_decision` must be at least 1".into());
    }
    if !(0.0..=1.0).contains(&config.utilisation_threshold) {
        return Err(format!(
            "`utilisation_threshold` must lie between 0 and 1, it is {}",
            config.utilisation_threshold
        ));
    }
    let n_tasks_max = config.tasks_per_decision;
    Ok(Some(match name {
        first_available::NAME => Box::new(first_available::FirstAvailable { n_tasks_max }),
        max_cache_hit::NAME => Box::new(max_cache_hit::MaxCacheHit { n_tasks_max }),
        max_compute_util::NAME => Box::new(max_compute_util::MaxComputeUtil { n_tasks_max }),
        good_cache_compute::NAME => Box::new(good_cache_compute::GoodCacheCompute {
            n_tasks_max,
            utilisation_threshold: config.utilisation_threshold,
        }),
        _ => return Ok(None),
    }))
}
