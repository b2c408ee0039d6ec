//! Provisioning: how many nodes there should be, decided from the tasks that wait and the nodes that are
//! idle.
//!
//! In: a [`Demand`], about once a second and whenever a node joins or leaves. Out: [`ProvisionAction`]s for the
//! driver, which turns a request into processes or a batch job and a release into a drain. How each request
//! ended comes back by [`Provisioner::request_ended`].
//!
//! | name | file | asks for |
//! |---|---|---|
//! | `static` | [`growth`] | nothing; it means that `nodes_min` is `nodes_max`, which promise 2 keeps |
//! | `one-at-a-time` | [`growth`] | requests of 1, 1, 1, ... nodes while too few are there |
//! | `additive` | [`growth`] | 1, 2, 3, ... |
//! | `exponential` | [`growth`] | 1, 2, 4, ... |
//! | `all-at-once` | [`growth`] | all that lack, in one request |
//! | `demand` | [`demand`] | as many as start the queue within a delay; lets go by surplus, not by idleness |
//!
//! A policy proposes; [`Provisioner`] keeps these promises, whatever the policy says:
//!   1. nodes that are there, leaving or requested are never more than `nodes_max`;
//!   2. a release never leaves fewer than `nodes_min`, and fewer than that are asked for at once, work or not; the one
//!      exception is an idle node with too little time left for every task that waits, as another one takes its place;
//!   3. only a node without any task is released, and each only once; nodes of one block are released together, or not at
//!      all where that would leave too few, because a part of a block gives nothing back;
//!   4. nodes that are asked for are counted as if they were there, so that one need is never asked for twice;
//!   5. after a request that failed, the next one waits: 1 s, doubled for each further failure, at most 60 s;
//!   6. no nodes are asked for while one of those there has been idle for [`IDLE_PROVES_NS`] with a queue: what
//!      waits there waits for something that a further node does not bring (a larger node, a busy holder). A node with
//!      too little time left proves nothing.
//!
//! A node that drains because its end is near no longer counts as one that is there, except for rule 1. So its successor
//! is asked for before it has left, as far as `nodes_max` allows.
//!
//! A release asks a node to drain. A task may reach the node before the release does; the task ends before
//! the node leaves. Until the node has left, the driver goes on showing it in [`Demand::nodes`].
//!
//! [`blocks`] turns requests into blocks, which a batch system grants, and keeps the pace of asking for them.
//!
//! Not here: where nodes come from, how long that takes, and what happens to the tasks of a lost node.

pub mod blocks;
pub mod demand;
pub mod growth;
#[cfg(test)]
mod tests;

use crate::types::{ExecutorId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// If a node is idle for this long while tasks are queued, further nodes would be idle, too.
pub const IDLE_PROVES_NS: u64 = 5_000_000_000;
/// Wait after a request that failed.
const RETRY_NS: u64 = 1_000_000_000;
const RETRY_NS_MAX: u64 = 60_000_000_000;

/// The configuration of provisioning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProvisionConfig {
    /// A name in [`NAMES`].
    pub policy: String,
    /// Releases never leave fewer nodes than this; 0 is allowed.
    pub nodes_min: u32,
    /// Never more nodes than this; at least 1.
    pub nodes_max: u32,
    /// A node that had no task for this long is released; `None`: nodes stay. §5.2 of Raicu09 takes 30 s.
    pub release_idle_ns: Option<u64>,
    /// Slots of one node, at least 1: what a request is expected to bring.
    pub slots_per_node: u32,
    /// The shortest time from one request to the next; 0: a request at each look.
    pub request_every_ns: u64,
    /// Paper's policies: tasks, queued and running, for which one slot is wanted; at least 1.
    pub tasks_per_slot_queued: u32,
    /// `demand`: the time within which every queued task should have started; at least 1.
    pub start_within_ns: u64,
    /// `demand`: nodes kept beyond the busiest moment of the last `release_idle_ns`, as a share of it.
    pub headroom: f64,
    /// `demand`: share of the largest number of nodes that were ever busy at once that stays, in [0, 1] ...
    pub warm_share: f64,
    /// ... for this long after the last task.
    pub warm_ns: u64,
}

impl Default for ProvisionConfig {
    fn default() -> ProvisionConfig {
        ProvisionConfig {
            policy: growth::EXPONENTIAL.into(),
            nodes_min: 0,
            nodes_max: 1,
            release_idle_ns: Some(30_000_000_000),
            slots_per_node: 1,
            request_every_ns: 1_000_000_000,
            tasks_per_slot_queued: 1,
            start_within_ns: 2_000_000_000,
            headroom: 0.5,
            warm_share: 0.5,
            warm_ns: 600_000_000_000,
        }
    }
}

/// The properties of one node that provisioning looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeView {
    pub executor: ExecutorId,
    pub slots: u32,
    /// Tasks that the node has: being staged, running, or bringing outputs home.
    pub n_assigned: u32,
    /// The time since when it has no task; `None` while it has one.
    pub idle_since: Option<Timestamp>,
    /// Bytes in its cache; 0 if they are not counted.
    pub cached_bytes: u64,
    /// Of these, bytes that no other node has.
    pub sole_bytes: u64,
    /// When the node ends at the latest, if that is known.
    pub ends: Option<Timestamp>,
    /// The node drains because its end is near, so another one takes its place.
    pub leaves: bool,
    /// The node is idle, and every task that waits takes longer than the node has left.
    pub has_no_time: bool,
    /// The nodes of one block end together, so they are released together or not at all. [`blocks`] sets it.
    #[serde(skip)]
    pub block: Option<u32>,
}

impl NodeView {
    fn is_idle(&self) -> bool {
        self.n_assigned == 0
    }
    /// How long it has had no task.
    fn idle_ns(&self, now: Timestamp) -> Option<u64> {
        self.idle_since.filter(|_| self.is_idle()).map(|since| now.since_ns(since))
    }
    fn n_busy_slots(&self) -> u32 {
        self.n_assigned.min(self.slots)
    }
}

/// The work to be done, and the nodes that can do it.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// Tasks that could start and that no node has. Tasks that wait for other tasks are not counted: a node
    /// that comes for them would be idle.
    pub n_ready: u64,
    /// Tasks that some node has.
    pub n_running: u64,
    /// The mean time of a task; `None` while none has ended.
    pub task_ns_mean: Option<u64>,
    /// Nodes that were requested and have not joined, less those of requests that failed.
    pub n_pending: u32,
    /// All nodes, also those that were released and have not left.
    pub nodes: &'a [NodeView],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProvisionAction {
    /// Request this many nodes, at least 1, in one request. From now on they count in [`Demand::n_pending`].
    Request { n_nodes: u32 },
    /// Drain this node and let it go.
    Release { executor: ExecutorId },
}

/// A policy. It sees only nodes that stay, and its answers are limited by the promises of the module.
trait Policy: Send + fmt::Debug {
    /// How many nodes are needed beyond `view.n_have`, the nodes that are there or pending.
    fn n_lacking(&mut self, view: &View) -> u32;
    /// How many of them go into the next request, which is about to be made; `n_lacking` is at least 1.
    fn request_size(&mut self, n_lacking: u32) -> u32 {
        n_lacking
    }
    /// At this look no nodes are lacking.
    fn satisfied(&mut self) {}
    /// Idle nodes that may be released, the first one first. Called only when no nodes are lacking, or when
    /// more nodes would be of no use.
    fn releasable(&mut self, view: &View, go: &mut Vec<ExecutorId>);
}

/// A look at the demand with the nodes that leave taken out.
struct View<'a> {
    now: Timestamp,
    config: &'a ProvisionConfig,
    n_ready: u64,
    n_running: u64,
    task_ns_mean: Option<u64>,
    n_pending: u32,
    /// Nodes that stay.
    nodes: &'a [NodeView],
    /// The number of nodes that stay, plus the pending ones.
    n_have: u32,
}

/// The names that [`Provisioner::new`] knows.
pub const NAMES: [&str; 6] = [
    growth::STATIC,
    growth::ONE_AT_A_TIME,
    growth::ADDITIVE,
    growth::EXPONENTIAL,
    growth::ALL_AT_ONCE,
    demand::NAME,
];

fn by_name(name: &str) -> Result<Box<dyn Policy>, String> {
    if let Some(growth) = growth::Growth::named(name) {
        return Ok(Box::new(growth));
    }
    match name {
        demand::NAME => Ok(Box::new(demand::ByDemand::default())),
        _ => Err(format!(
            "there is no provisioning policy {}; known are {}",
            eyas_text::shown(name),
            NAMES.join(", ")
        )),
    }
}

/// Decides how many nodes there should be. See the module's header.
#[derive(Debug)]
pub struct Provisioner {
    config: ProvisionConfig,
    policy: Box<dyn Policy>,
    /// Nodes that were released and are still there.
    leaving: BTreeSet<ExecutorId>,
    /// No request is made before this time.
    next_request: Timestamp,
    /// Requests in a row that failed.
    n_failures: u32,
    staying: Vec<NodeView>,
    go: Vec<ExecutorId>,
}

impl Provisioner {
    /// `Err` is one sentence for users about a setting that is not possible.
    pub fn new(mut config: ProvisionConfig) -> Result<Provisioner, String> {
        let policy = by_name(&config.policy)?;
        if config.policy == growth::STATIC {
            config.nodes_min = config.nodes_max;
        }
        let c = &config;
        let refusal = if c.nodes_max == 0 {
            "`nodes_max` must be at least 1".to_string()
        } else if c.nodes_min > c.nodes_max {
            format!("at least {} nodes and at most {} cannot both be", c.nodes_min, c.nodes_max)
        } else if c.slots_per_node == 0 || c.tasks_per_slot_queued == 0 || c.start_within_ns == 0 {
            "`slots_per_node`, `tasks_per_slot_queued` and `start_within_ns` must be at least 1".into()
        } else if !(0.0..=1.0).contains(&c.warm_share) {
            format!("`warm_share` must lie between 0 and 1, it is {}", c.warm_share)
        } else if !(0.0..=1e6).contains(&c.headroom) {
            format!("`headroom` must be a number from 0, it is {}", c.headroom)
        } else {
            return Ok(Provisioner {
                config,
                policy,
                leaving: BTreeSet::new(),
                next_request: Timestamp::default(),
                n_failures: 0,
                staying: vec![],
                go: vec![],
            });
        };
        Err(refusal)
    }

    pub fn config(&self) -> &ProvisionConfig {
        &self.config
    }

    /// One look. Appends to `out` at most one request, and releases; never both.
    pub fn decide(&mut self, now: Timestamp, demand: &Demand, out: &mut Vec<ProvisionAction>) {
        let config = &self.config;
        self.leaving.retain(|id| demand.nodes.iter().any(|node| node.executor == *id));
        self.staying.clear();
        let n_before = out.len();
        for node in demand.nodes.iter().filter(|node| node.has_no_time && node.is_idle() && !node.leaves) {
            if self.leaving.insert(node.executor) {
                out.push(ProvisionAction::Release { executor: node.executor });
            }
        }
        let stays = |node: &NodeView| !node.leaves && !self.leaving.contains(&node.executor);
        self.staying.extend(demand.nodes.iter().copied().filter(stays));
        if out.len() > n_before {
            return;
        }
        let n_stay = self.staying.len() as u32;
        let n_have = n_stay + demand.n_pending;
        let view = View {
            now,
            config,
            n_ready: demand.n_ready,
            n_running: demand.n_running,
            task_ns_mean: demand.task_ns_mean,
            n_pending: demand.n_pending,
            nodes: &self.staying,
            n_have,
        };
        let to_min = config.nodes_min.saturating_sub(n_have);
        let is_in_vain = self.staying.iter().any(|n| n.idle_ns(now).is_some_and(|ns| ns >= IDLE_PROVES_NS));
        let n_lacking = self.policy.n_lacking(&view);
        if n_lacking == 0 {
            self.policy.satisfied();
        }
        let n_lacking = if is_in_vain { to_min } else { n_lacking.max(to_min) };
        if n_lacking > 0 {
            let n_room = config.nodes_max.saturating_sub(demand.nodes.len() as u32 + demand.n_pending);
            if n_room > 0 && now >= self.next_request {
                let n_nodes = self.policy.request_size(n_lacking).max(to_min).min(n_lacking).min(n_room);
                self.next_request = now.plus_ns(config.request_every_ns);
                out.push(ProvisionAction::Request { n_nodes });
            }
            if !is_in_vain {
                return;
            }
        }
        self.go.clear();
        self.policy.releasable(&view, &mut self.go);
        let mut n_may_go = self.go.len().min(n_stay.saturating_sub(config.nodes_min) as usize);
        for &executor in &self.go {
            let Some(node) = self.staying.iter().find(|n| n.executor == executor) else { continue };
            let is_with =
                |n: &&NodeView| n.executor == executor || n.block.is_some() && n.block == node.block;
            let together: Vec<&NodeView> = self.staying.iter().filter(is_with).collect();
            let is_new = !self.leaving.contains(&executor);
            if is_new && together.len() <= n_may_go && together.iter().all(|n| n.is_idle()) {
                n_may_go -= together.len();
                for node in together {
                    self.leaving.insert(node.executor);
                    out.push(ProvisionAction::Release { executor: node.executor });
                }
            }
        }
    }

    /// Nodes turn out to have so many slots, which is what further ones are expected to bring.
    pub fn saw_slots(&mut self, slots: u32) {
        self.config.slots_per_node = slots.max(1);
    }

    /// A request has ended: `ok`, its nodes have joined; otherwise they will not come.
    pub fn request_ended(&mut self, now: Timestamp, n_nodes: u32, ok: bool) {
        if ok || n_nodes == 0 {
            self.n_failures = 0;
            return;
        }
        let wait_ns = (RETRY_NS << self.n_failures.min(6)).min(RETRY_NS_MAX);
        self.n_failures += 1;
        self.next_request = self.next_request.max(now.plus_ns(wait_ns));
    }
}
