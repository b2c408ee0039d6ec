//! The nodes that a provider has requested: what the dispatcher and their source say of them, and what follows.

use super::{BlockId, BlockState, ProviderError, Source};
use eyas_core::provisioning::{Demand, NodeView, ProvisionAction, Provisioner};
use eyas_core::{ExecutorId, Timestamp};
use eyas_wire::message::{self, DemandStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A node that has not joined by then, since its block was requested from a source without a queue, is given up.
const JOIN_MAX: Duration = Duration::from_secs(60);
/// After so many nodes in a row that could not start, with none there, there is no point in going on.
const FAILURES_MAX: u32 = 3;

/// A node of ours.
struct Node {
    block: BlockId,
    requested: Instant,
    /// Since it has joined.
    executor: Option<ExecutorId>,
}

/// Whether a node is there.
enum Presence {
    /// Its block is requested, and no executor has joined from it yet.
    Pending,
    /// The dispatcher knows its executor.
    Joined(NodeView),
    /// The dispatcher has given its executor up, or the executor said goodbye a moment ago. The node is there until its block
    /// has ended.
    Gone(ExecutorId),
}

impl Node {
    fn presence(&self, status: &DemandStatus) -> Presence {
        let Some(executor) = self.executor else { return Presence::Pending };
        let known = status.nodes.iter().find(|(view, _)| view.executor == executor);
        known.map_or(Presence::Gone(executor), |(view, _)| Presence::Joined(*view))
    }
}

impl Presence {
    /// The node as the provisioner sees it, if it is there: a node that is gone takes nothing, and cannot be released.
    fn view(&self) -> Option<NodeView> {
        match *self {
            Presence::Pending => None,
            Presence::Joined(view) => Some(view),
            Presence::Gone(executor) => Some(NodeView {
                executor,
                slots: 0,
                n_assigned: 1,
                idle_since: None,
                cached_bytes: 0,
                sole_bytes: 0,
            }),
        }
    }
}

/// See the module.
pub(super) struct Nodes<S> {
    source: S,
    /// A node's name, by its number from 1.
    node_name: fn(u32) -> String,
    provisioner: Provisioner,
    nodes: BTreeMap<u32, Node>,
    /// Nodes in a row that ended before they had joined.
    n_failures: u32,
}

impl<S: Source> Nodes<S> {
    pub fn new(source: S, node_name: fn(u32) -> String, provisioner: Provisioner) -> Nodes<S> {
        Nodes { source, node_name, provisioner, nodes: BTreeMap::new(), n_failures: 0 }
    }

    /// What the dispatcher is told of this provider, for people to see.
    pub fn describe(&self) -> message::Provisioner {
        let config = self.provisioner.config();
        message::Provisioner {
            policy: config.policy.clone(),
            nodes_min: config.nodes_min,
            nodes_max: config.nodes_max,
            n_pending: self.n_pending(),
        }
    }

    /// Takes in what the dispatcher says, requests nodes, and has those end that it does not know any more. Gives the executors
    /// that are to be drained. `Err`: there is no point in going on.
    pub fn follow(&mut self, status: &DemandStatus, now: Instant) -> Result<Vec<ExecutorId>, ProviderError> {
        self.note_joined(status);
        self.note_ended(status.now, now)?;
        let nodes: Vec<Presence> = self.nodes.values().map(|node| node.presence(status)).collect();
        let joined = nodes.iter().filter_map(|node| match node {
            Presence::Joined(view) => Some(view.executor),
            Presence::Pending | Presence::Gone(_) => None,
        });
        self.end_blocks_without(&joined.collect());
        let views: Vec<NodeView> = nodes.iter().filter_map(Presence::view).collect();
        let demand = Demand {
            n_ready: status.n_ready,
            n_running: status.n_running,
            task_ns_mean: status.task_ns_mean,
            n_pending: self.n_pending(),
            nodes: &views,
        };
        let mut actions = vec![];
        self.provisioner.decide(status.now, &demand, &mut actions);
        let mut released = vec![];
        for action in actions {
            match action {
                ProvisionAction::Request { n_nodes } => self.request(n_nodes, status, now)?,
                ProvisionAction::Release { executor } => released.push(executor),
            }
        }
        Ok(released)
    }

    /// Ends all nodes: in order as far as that goes by the deadline.
    pub fn end_all(&mut self, deadline: Instant) {
        self.source.end_all(deadline);
    }

    fn n_pending(&self) -> u32 {
        self.nodes.values().filter(|n| n.executor.is_none()).count() as u32
    }

    /// Blocks of which the dispatcher knows no node any more end in order.
    fn end_blocks_without(&mut self, known: &BTreeSet<ExecutorId>) {
        let is_left = |node: &Node| node.executor.is_none_or(|executor| known.contains(&executor));
        let left: BTreeSet<&BlockId> = self.nodes.values().filter(|n| is_left(n)).map(|n| &n.block).collect();
        let all: BTreeSet<&BlockId> = self.nodes.values().map(|n| &n.block).collect();
        for block in all.difference(&left) {
            self.source.ask_to_end(block);
        }
    }

    fn request(&mut self, n_nodes: u32, status: &DemandStatus, now: Instant) -> Result<(), ProviderError> {
        let mut n_left = n_nodes;
        while n_left > 0 {
            let n = n_left.min(self.source.nodes_per_block());
            n_left -= n;
            // A node that was lost keeps its name until its lease is over.
            let is_free = |i: &u32| {
                let name = (self.node_name)(*i);
                !self.nodes.contains_key(i) && !status.nodes.iter().any(|(_, known)| *known == name)
            };
            let numbers: Vec<u32> = (1..).filter(is_free).take(n as usize).collect();
            match self.source.request(&numbers) {
                Ok(block) => {
                    let node =
                        |number: u32| (number, Node { block: block.clone(), requested: now, executor: None });
                    self.nodes.extend(numbers.into_iter().map(node));
                }
                Err(why) => {
                    for number in numbers {
                        self.failed(status.now, (self.node_name)(number), why.clone())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds the executors of nodes that have joined, by their names.
    fn note_joined(&mut self, status: &DemandStatus) {
        for (number, node) in self.nodes.iter_mut().filter(|(_, n)| n.executor.is_none()) {
            let name = (self.node_name)(*number);
            if let Some((view, _)) = status.nodes.iter().find(|(_, known)| *known == name) {
                node.executor = Some(view.executor);
                self.n_failures = 0;
                self.provisioner.request_ended(status.now, 1, true);
            }
        }
    }

    /// Forgets nodes whose blocks have ended, or that have not joined in time.
    fn note_ended(&mut self, at: Timestamp, now: Instant) -> Result<(), ProviderError> {
        let mut ended: BTreeMap<u32, String> = BTreeMap::new();
        for block in self.source.list() {
            let of_block = self.nodes.iter().filter(|(_, node)| node.block == block.id);
            match block.state {
                BlockState::Ended(why) => ended.extend(of_block.map(|(number, _)| (*number, why.clone()))),
                // How long a queue is, nobody knows.
                BlockState::Queued => {}
                BlockState::Running => {
                    let is_late =
                        |n: &Node| n.executor.is_none() && now.duration_since(n.requested) > JOIN_MAX;
                    let why = format!("it did not join within {} s", JOIN_MAX.as_secs());
                    ended.extend(
                        of_block.filter(|(_, n)| is_late(n)).map(|(number, _)| (*number, why.clone())),
                    );
                }
            }
        }
        for (number, why) in ended {
            let node = self.nodes.remove(&number).expect("it was just seen");
            if self.nodes.values().all(|other| other.block != node.block) {
                self.source.cancel(&node.block);
            }
            if node.executor.is_none() {
                self.failed(at, (self.node_name)(number), why)?;
            }
        }
        Ok(())
    }

    fn failed(&mut self, at: Timestamp, name: String, why: String) -> Result<(), ProviderError> {
        eyas_text::say!("{name} could not be started: {why}");
        self.provisioner.request_ended(at, 1, false);
        self.n_failures += 1;
        if self.n_failures >= FAILURES_MAX && self.nodes.values().all(|n| n.executor.is_none()) {
            return Err(ProviderError::NoNode { name, why });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Block;
    use super::*;
    use eyas_core::provisioning::ProvisionConfig;

    /// Lends nodes three at a time, as the test says.
    #[derive(Default)]
    struct Lender {
        blocks: Vec<Block>,
        numbers: Vec<Vec<u32>>,
        asked_to_end: BTreeSet<BlockId>,
    }

    impl Source for Lender {
        fn nodes_per_block(&self) -> u32 {
            3
        }
        fn request(&mut self, numbers: &[u32]) -> Result<BlockId, String> {
            let id = BlockId(format!("job {}", self.numbers.len()));
            self.numbers.push(numbers.to_vec());
            let (n_nodes, ends_at) = (numbers.len() as u32, Some(Timestamp(1)));
            self.blocks.push(Block { id: id.clone(), state: BlockState::Queued, n_nodes, ends_at });
            Ok(id)
        }
        fn list(&mut self) -> Vec<Block> {
            self.blocks.clone()
        }
        fn ask_to_end(&mut self, block: &BlockId) {
            self.asked_to_end.insert(block.clone());
        }
        fn cancel(&mut self, block: &BlockId) {
            self.blocks.retain(|b| b.id != *block);
        }
        fn end_all(&mut self, _: Instant) {
            self.blocks.clear();
        }
    }

    fn name(number: u32) -> String {
        format!("N{number}")
    }

    fn nodes(nodes_min: u32, nodes_max: u32) -> Nodes<Lender> {
        let config = ProvisionConfig { nodes_min, nodes_max, ..ProvisionConfig::default() };
        Nodes::new(Lender::default(), name, Provisioner::new(config).unwrap())
    }

    /// Executor `i` is node `i`.
    fn status(at_s: u64, joined: &[u32]) -> DemandStatus {
        let view = |i: &u32| NodeView {
            executor: ExecutorId(*i),
            slots: 1,
            n_assigned: 1,
            idle_since: None,
            cached_bytes: 0,
            sole_bytes: 0,
        };
        DemandStatus {
            now: Timestamp(at_s * 1_000_000_000),
            n_ready: 0,
            n_running: 0,
            task_ns_mean: None,
            nodes: joined.iter().map(|i| (view(i), name(*i))).collect(),
        }
    }

    #[test]
    fn a_block_has_several_nodes_and_ends_in_order_when_the_last_of_them_is_gone() {
        let (mut n, now) = (nodes(5, 5), Instant::now());
        assert_eq!(n.follow(&status(1, &[]), now).unwrap(), []);
        assert_eq!(n.source.numbers, [vec![1, 2, 3], vec![4, 5]]);
        assert_eq!(n.describe().n_pending, 5);
        // A queue may be long: nobody is given up for that.
        let later = now + 10 * JOIN_MAX;
        n.follow(&status(2, &[]), later).unwrap();
        assert_eq!((n.describe().n_pending, n.source.numbers.len()), (5, 2));
        n.source.blocks.iter_mut().for_each(|b| b.state = BlockState::Running);
        n.follow(&status(3, &[1, 2, 3, 4, 5]), later).unwrap();
        assert_eq!(n.describe().n_pending, 0);
        // Two of three have left: the third one still needs the block.
        n.follow(&status(4, &[3, 4, 5]), later).unwrap();
        assert!(n.source.asked_to_end.is_empty());
        n.follow(&status(5, &[4, 5]), later).unwrap();
        assert_eq!(n.source.asked_to_end, [BlockId("job 0".into())].into());
    }

    #[test]
    fn nodes_of_a_block_that_ended_are_requested_again_and_those_that_never_join_end_it() {
        let (mut n, now) = (nodes(2, 2), Instant::now());
        n.follow(&status(1, &[]), now).unwrap();
        n.source.blocks[0].state = BlockState::Running;
        n.follow(&status(2, &[1, 2]), now).unwrap();
        n.source.blocks[0].state = BlockState::Ended("walltime".into());
        n.follow(&status(30, &[]), now).unwrap();
        assert_eq!(n.source.numbers, [vec![1, 2], vec![1, 2]], "their numbers are free again");
        n.source.blocks[0].state = BlockState::Running;
        let mut result = Ok(vec![]);
        for round in 1..=4 {
            let at = now + round * 2 * JOIN_MAX;
            n.source.blocks.iter_mut().for_each(|b| b.state = BlockState::Running);
            result = n.follow(&status(1000 * u64::from(round), &[]), at);
            if result.is_err() {
                break;
            }
        }
        let why = result.expect_err("three nodes in a row did not join").to_string();
        assert!(why.contains("did not join within 60 s"), "{why}");
    }
}
