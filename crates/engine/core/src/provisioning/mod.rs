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
//! | `demand` | [`demand`] | as many as the predicted work needs once they are there; lets go by surplus, not by idleness |
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
//! [`blocks`] turns requests into blocks, which a batch system grants, and keeps the pace of asking for them. [`decision`] is the
//! record of what was decided and why, [`work`] what is predicted of tasks, [`sizing`] the arithmetic of `demand`.
//!
//! Not here: where nodes come from, how long that takes, and what happens to the tasks of a lost node.

pub mod blocks;
pub mod decision;
pub mod demand;
pub mod growth;
pub mod sizing;
#[cfg(test)]
mod tests;
pub mod work;

use self::decision::{Basis, Decided, Decision, Why};
use self::work::{NODE_PARTS, Predicted};
use crate::means::smooth;
use eyas_terms::needs::{Equipment, PARTS, Size};
use eyas_terms::{ExecutorId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;

/// If a node is idle for this long while tasks are queued, further nodes would be idle, too.
pub const IDLE_PROVES_NS: u64 = 5_000_000_000;
/// Wait after a request that failed.
const RETRY_NS: u64 = 1_000_000_000;
const RETRY_NS_MAX: u64 = 60_000_000_000;
/// The start-up time follows about so many of the last nodes.
const START_UPS: u64 = 4;

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
    /// Memory of one node; [`u64::MAX`]: not known, so tasks are taken to have enough.
    pub memory_per_node: u64,
    /// Gpus and named resources of one node.
    pub equipment: Equipment,
    /// The shortest time from one request to the next; 0: a request at each look.
    pub request_every_ns: u64,
    /// Paper's policies: so many times the tasks that a node holds at once, queued and running, want one node; at least 1.
    pub tasks_per_slot_queued: u32,
    /// `demand`: the time within which every queued task should have started, where nodes come as quickly as that; at least 1.
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
            memory_per_node: u64::MAX,
            equipment: Equipment::default(),
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
    /// Slots that they take, at most `slots`: of tasks of which the node holds `k` at once, each takes one `k`-th of the slots.
    pub busy_slots: u32,
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
}

/// The work to be done, and the nodes that can do it. What nodes that are not the provisioner's do, or have room for, is no part of the
/// work.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// Tasks that could start and that no node has. Tasks that wait for other tasks are not counted: a node
    /// that comes for them would be idle.
    pub n_ready: u64,
    /// Tasks that some node has.
    pub n_running: u64,
    /// What is predicted of these tasks.
    pub predicted: &'a Predicted,
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
    /// The reason for the nodes that `n_lacking` just found lacking.
    fn why_lacking(&self, view: &View) -> Why;
    /// At this look no nodes are lacking.
    fn satisfied(&mut self) {}
    /// Idle nodes that may be released, the first one first. Called only when no nodes are lacking, or when
    /// more nodes would be of no use.
    fn releasable(&mut self, view: &View, go: &mut Vec<ExecutorId>);
    /// The reason why the nodes that `releasable` just gave may be released.
    fn why_releasable(&self, view: &View) -> Why;
}

/// A look at the demand with the nodes that leave taken out.
struct View<'a> {
    now: Timestamp,
    config: &'a ProvisionConfig,
    n_ready: u64,
    n_running: u64,
    predicted: &'a Predicted,
    n_pending: u32,
    /// Nodes that stay.
    nodes: &'a [NodeView],
    /// The number of nodes that stay, plus the pending ones.
    n_have: u32,
    /// The time from a request until its nodes are there; 0: none has come yet.
    start_up_ns: u64,
}

impl View<'_> {
    fn n_busy_slots(&self) -> u64 {
        self.nodes.iter().map(|n| u64::from(n.busy_slots)).sum()
    }
    fn n_slots(&self) -> u64 {
        self.nodes.iter().map(|n| u64::from(n.slots)).sum()
    }
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
    /// Requested nodes that have not come, the first request first: when they were requested, and how many.
    requested: VecDeque<(Timestamp, u32)>,
    /// The mean time from a request until its nodes were there.
    start_up_ns: Option<u64>,
    /// What was decided since [`Provisioner::take_decisions`].
    decisions: Vec<Decision>,
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
                requested: VecDeque::new(),
                start_up_ns: None,
                decisions: vec![],
            });
        };
        Err(refusal)
    }

    pub fn config(&self) -> &ProvisionConfig {
        &self.config
    }

    /// What was decided since the last call, the oldest first.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// The time from a request until its nodes are there: the mean of the last ones, and at least as long as the oldest request has
    /// waited. 0: nothing is known.
    pub fn start_up_ns(&self, now: Timestamp) -> u64 {
        let waited_ns = self.requested.front().map_or(0, |(at, _)| now.since_ns(*at));
        self.start_up_ns.unwrap_or(0).max(waited_ns)
    }

    /// One look. Appends to `out` at most one request, and releases; never both.
    pub fn decide(&mut self, now: Timestamp, demand: &Demand, out: &mut Vec<ProvisionAction>) {
        self.forget_withdrawn(demand.n_pending);
        let start_up_ns = self.start_up_ns(now);
        let config = &self.config;
        self.leaving.retain(|id| demand.nodes.iter().any(|node| node.executor == *id));
        self.staying.clear();
        let mut spent = vec![];
        for node in demand.nodes.iter().filter(|node| node.has_no_time && node.is_idle() && !node.leaves) {
            if self.leaving.insert(node.executor) {
                spent.push(node.executor);
            }
        }
        let stays = |node: &NodeView| !node.leaves && !self.leaving.contains(&node.executor);
        self.staying.extend(demand.nodes.iter().copied().filter(stays));
        let n_stay = self.staying.len() as u32;
        let n_have = n_stay + demand.n_pending;
        let view = View {
            now,
            config,
            n_ready: demand.n_ready,
            n_running: demand.n_running,
            predicted: demand.predicted,
            n_pending: demand.n_pending,
            nodes: &self.staying,
            n_have,
            start_up_ns,
        };
        let decisions = &mut self.decisions;
        let mut note = |what: Decided, why: Why| {
            let n_leaving = demand.nodes.len() as u32 - n_stay;
            let (policy, seen) = (config.policy.clone(), basis(&view, n_leaving));
            decisions.push(Decision { at: now, policy, what, why, seen });
        };
        if !spent.is_empty() {
            out.extend(spent.iter().map(|&executor| ProvisionAction::Release { executor }));
            note(Decided::Released { executors: spent }, Why::NoTimeLeft);
            return;
        }
        let to_min = config.nodes_min.saturating_sub(n_have);
        let is_in_vain = self.staying.iter().any(|n| n.idle_ns(now).is_some_and(|ns| ns >= IDLE_PROVES_NS));
        let n_by_policy = self.policy.n_lacking(&view);
        if n_by_policy == 0 {
            self.policy.satisfied();
        }
        let n_lacking = if is_in_vain { to_min } else { n_by_policy.max(to_min) };
        if n_lacking > 0 {
            let n_room = config.nodes_max.saturating_sub(demand.nodes.len() as u32 + demand.n_pending);
            if n_room > 0 && now >= self.next_request {
                let n_nodes = self.policy.request_size(n_lacking).max(to_min).min(n_lacking).min(n_room);
                self.next_request = now.plus_ns(config.request_every_ns);
                let is_by_policy = !is_in_vain && n_by_policy >= n_nodes;
                let why = if is_by_policy { self.policy.why_lacking(&view) } else { Why::BelowMinimum };
                note(Decided::Requested { n_nodes }, why);
                self.requested.push_back((now, n_nodes));
                out.push(ProvisionAction::Request { n_nodes });
            }
            if !is_in_vain {
                return;
            }
        }
        self.go.clear();
        self.policy.releasable(&view, &mut self.go);
        let mut released = vec![];
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
                    released.push(node.executor);
                }
            }
        }
        if !released.is_empty() {
            let why = self.policy.why_releasable(&view);
            note(Decided::Released { executors: released }, why);
        }
    }

    /// The numbers of a look, for a decision that is not the policy's.
    pub fn basis(&self, now: Timestamp, demand: &Demand) -> Basis {
        let stays = |node: &&NodeView| !node.leaves && !self.leaving.contains(&node.executor);
        let staying: Vec<NodeView> = demand.nodes.iter().filter(stays).copied().collect();
        let view = View {
            now,
            config: &self.config,
            n_ready: demand.n_ready,
            n_running: demand.n_running,
            predicted: demand.predicted,
            n_pending: demand.n_pending,
            nodes: &staying,
            n_have: staying.len() as u32 + demand.n_pending,
            start_up_ns: 0,
        };
        basis(&view, (demand.nodes.len() - staying.len()) as u32)
    }

    /// Requests that the driver took back are the newest ones.
    fn forget_withdrawn(&mut self, n_pending: u32) {
        let mut n_known: u32 = self.requested.iter().map(|(_, n)| n).sum();
        while n_known > n_pending {
            let Some((_, n)) = self.requested.back_mut() else { return };
            let n_gone = (n_known - n_pending).min(*n);
            *n -= n_gone;
            n_known -= n_gone;
            if *n == 0 {
                self.requested.pop_back();
            }
        }
    }

    /// Takes the oldest `n_nodes` of the requested nodes out. Those that came (`ok`) show how long it takes.
    fn answered(&mut self, now: Timestamp, mut n_nodes: u32, ok: bool) {
        while n_nodes > 0 {
            let Some((at, n)) = self.requested.front_mut() else { return };
            let n_answered = n_nodes.min(*n);
            if ok {
                let ns = now.since_ns(*at);
                smooth(&mut self.start_up_ns, ns, START_UPS);
            }
            *n -= n_answered;
            n_nodes -= n_answered;
            if *n == 0 {
                self.requested.pop_front();
            }
        }
    }

    /// The size that further nodes are expected to have.
    pub fn node(&self) -> Size {
        Size::of_node(self.config.slots_per_node, self.config.memory_per_node, &self.config.equipment)
    }

    /// A node turns out to have this size, which is what further ones are expected to bring. `is_of_before`: it was requested with
    /// options that may have been other ones, so that it says nothing of the equipment, which options name.
    pub fn saw_node(&mut self, size: &Size, is_of_before: bool) {
        self.config.slots_per_node = size.slots().max(1);
        self.config.memory_per_node = size.memory_bytes;
        if !is_of_before {
            self.config.equipment =
                Equipment { gpus: size.gpu_parts / PARTS, resources: size.resources.clone() };
        }
    }

    /// Nodes that were requested will not come for a reason that says nothing of other ones, so the next may be requested at once.
    pub fn request_dropped(&mut self, now: Timestamp, n_nodes: u32) {
        self.answered(now, n_nodes, false);
    }

    /// A request has ended: `ok`, its nodes have joined; otherwise they will not come.
    pub fn request_ended(&mut self, now: Timestamp, n_nodes: u32, ok: bool) {
        self.answered(now, n_nodes, ok);
        if ok || n_nodes == 0 {
            self.n_failures = 0;
            return;
        }
        let wait_ns = (RETRY_NS << self.n_failures.min(6)).min(RETRY_NS_MAX);
        self.n_failures += 1;
        self.next_request = self.next_request.max(now.plus_ns(wait_ns));
    }
}

/// The numbers of a look, for the record of what was decided.
fn basis(view: &View, n_leaving: u32) -> Basis {
    let slots_of = |parts: u64| {
        (u128::from(parts) * u128::from(view.config.slots_per_node)).div_ceil(NODE_PARTS.into()) as u64
    };
    Basis {
        n_ready: view.n_ready,
        queued_ns: view.predicted.queued.iter().fold(0, |sum, work| sum.saturating_add(work.ns)),
        n_unknown: view.predicted.queued_unknown.n,
        n_too_large: view.predicted.n_too_large,
        queued_slots: slots_of(view.predicted.queued_parts()),
        n_running: view.n_running,
        n_busy_slots: view.n_busy_slots(),
        n_slots: view.n_slots(),
        n_nodes: view.nodes.len() as u32,
        n_leaving,
        n_pending: view.n_pending,
        nodes_min: view.config.nodes_min,
        nodes_max: view.config.nodes_max,
    }
}
