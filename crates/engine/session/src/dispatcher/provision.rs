//! The dispatcher's side of provisioning: it tells what there is to do, and ends nodes that have drained.
//!
//! Whoever starts and ends nodes is a client that asks a few times a second. It decides by
//! [`eyas_core::provisioning`]; nothing is decided here. With each question it says what further nodes are
//! expected to have, and the core hears of that, because a task may wait for such a node.
//!
//! A node that was asked to leave is told to end when the core has nothing of it any more (its outputs are home)
//! and every end that it told is in the journal.

use super::{Outside, Session};
use eyas_core::event::Event;
use eyas_core::provisioning::NodeView;
use eyas_core::provisioning::blocks::number_of;
use eyas_core::provisioning::decision::Decision;
use eyas_core::provisioning::work::Predicted;
use eyas_terms::needs::Size;
use eyas_terms::{ExecutorId, NodeState, Timestamp};
use eyas_text::line_of;
use eyas_wire::message::{DemandStatus, Provisioner, ReplyBody, ToExecutor};
use std::collections::{BTreeMap, BTreeSet};

/// A provisioner that was gone for so long does not come back by itself.
const GONE_NS: u64 = 3_000_000_000;
/// One that was gone for so long brings no nodes any more.
const MISSED_NS: u64 = 120_000_000_000;

/// What the dispatcher remembers of provisioning.
#[derive(Default)]
pub(super) struct Provision {
    /// The provisioner's connection and what it said of itself last.
    provisioner: Option<(u64, Provisioner)>,
    /// Names of the executors of which the provisioner heard last, and of those of which it had heard before it said what it said last.
    heard: BTreeSet<String>,
    known: BTreeSet<String>,
    /// When the provisioner's connection ended, and the reason that it gave, until there is a provisioner again.
    gone: Option<(Timestamp, Option<String>)>,
    /// Executors that were asked to leave and have not been told to end, each with the reason that it will be told.
    draining: BTreeMap<ExecutorId, String>,
    /// The size of further nodes, as the core was told last.
    expected: Option<Size>,
    /// Lent to the core for each look.
    views: Vec<NodeView>,
    /// The last decision about nodes.
    last: Option<Decision>,
}

impl Provision {
    /// A client's connection is gone.
    pub(super) fn left(&mut self, now: Timestamp, connection: u64) {
        if let Some((_, gone)) = self.provisioner.take_if(|(of, _)| *of == connection) {
            self.gone = Some((now, gone.ends));
        }
    }

    /// Why nodes do not come or go.
    pub(super) fn troubles(&self, now: Timestamp) -> Vec<String> {
        match &self.provisioner {
            Some((_, provisioner)) => provisioner.troubles.clone(),
            None => self.why_none(now).into_iter().collect(),
        }
    }

    /// That nobody starts or ends nodes any more, and why. One that was killed may be started again within a moment, which is not worth
    /// a word.
    pub(super) fn why_none(&self, now: Timestamp) -> Option<String> {
        let (since, why) = self.gone.as_ref().filter(|_| self.provisioner.is_none())?;
        let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let is_due = now.since_ns(*since) >= GONE_NS;
        is_due.then(|| {
            format!(
                "no node comes or goes, as `eyas provider` has ended{why}; the same `eyas up` starts it again"
            )
        })
    }
}

impl<O: Outside> Session<O> {
    pub(super) fn on_demand(&mut self, connection: u64, number: u64, mut provisioner: Provisioner) {
        if !provisioner.decisions.iter().all(Decision::follows_from_its_numbers) {
            let what = "its numbers do not give the decision about nodes that it tells of";
            return self.refuse(connection, number, what.to_owned());
        }
        for decision in std::mem::take(&mut provisioner.decisions) {
            self.provision.last = Some(decision.clone());
            self.feed(Event::NodesDecided { decision: Box::new(decision) });
        }
        let (n_pending, node, prefix) =
            (provisioner.n_pending, provisioner.node.clone(), provisioner.prefix.clone());
        if let Err(what) = node.check() {
            return self.refuse(connection, number, format!("a node cannot have {what}"));
        }
        self.expect_nodes(Some(&node));
        let heard = std::mem::take(&mut self.provision.heard);
        let has_asked = self.provision.provisioner.as_ref().is_some_and(|(of, _)| *of == connection);
        self.provision.known = if has_asked { heard } else { BTreeSet::new() };
        self.provision.provisioner = Some((connection, provisioner));
        self.provision.gone = None;
        let mut views = std::mem::take(&mut self.provision.views);
        let mut predicted = Predicted::default();
        let demand = self.core.demand(
            &node,
            n_pending,
            |name| number_of(&prefix, name).is_some(),
            &mut views,
            &mut predicted,
        );
        // Both go through the executors in the order of their numbers.
        let offers = self.core.executors().map(|(executor, offer, ..)| (executor, offer));
        let nodes = demand.nodes.iter().zip(offers).map(|(view, (executor, offer))| {
            // What it has beyond the catalog's names, too: it knows its cache best.
            let cached_bytes = self.cached_bytes(executor);
            (NodeView { cached_bytes, ..*view }, offer.name.clone())
        });
        let status = DemandStatus {
            now: self.now,
            n_ready: demand.n_ready,
            n_running: demand.n_running,
            predicted: demand.predicted.clone(),
            nodes: nodes.collect(),
            sizes: self.core.executors().map(|(_, offer, ..)| offer.size()).collect(),
        };
        self.provision.views = views;
        self.provision.heard = status.nodes.iter().map(|(_, name)| name.clone()).collect();
        self.reply(connection, number, ReplyBody::Demand(Box::new(status)));
    }

    /// What the provisioner says of further nodes, or that it is gone, changes which tasks may still find a node.
    fn expect_nodes(&mut self, node: Option<&Size>) {
        if self.provision.expected.as_ref() != node {
            self.provision.expected = node.cloned();
            self.feed(Event::NodesExpected { node: node.cloned().map(Box::new) });
        }
    }

    /// Nobody brings nodes any more, once there has been no provisioner for a while. One that was killed may be started again
    /// until then, by itself or by a user, and tasks that wait for its nodes should still be there.
    pub(super) fn expect_no_nodes(&mut self) {
        let gone = self.provision.gone.as_ref().filter(|_| self.provision.provisioner.is_none());
        if gone.is_some_and(|(since, _)| self.now.since_ns(*since) > MISSED_NS) {
            self.expect_nodes(None);
        }
    }

    pub(super) fn on_drain(&mut self, connection: u64, number: u64, executor: ExecutorId) {
        if !self.core.has_executor(executor) {
            let reason = format!("there is no executor {executor}");
            return self.refuse(connection, number, reason);
        }
        let reason = match self.core.is_short_of_time(executor) {
            true => "released, as no task that waits would end before its walltime",
            false => "released, as there was no work for it",
        };
        self.feed(Event::ExecutorDraining { executor });
        self.provision.draining.insert(executor, reason.into());
        self.reply(connection, number, ReplyBody::Draining);
    }

    /// The core drains an executor, because that ends soon.
    pub(super) fn drain(&mut self, executor: ExecutorId, reason: String) {
        // It may be in the words of another machine.
        let reason = line_of(&reason).to_string();
        self.say(format!("eyas: executor {} gets nothing more, because {reason}", self.name_of(executor)));
        self.provision.draining.insert(executor, format!("drained, because {reason}"));
    }

    /// Tells executors to end that were asked to leave and have nothing left.
    pub(super) fn end_drained(&mut self) {
        if self.provision.draining.is_empty() {
            return;
        }
        let now = self.now;
        let draining = self.provision.draining.keys().copied();
        let is_busy = |e: &ExecutorId| !self.core.may_leave(now, *e) || self.recording.ends.has_of(*e);
        let busy: BTreeSet<ExecutorId> = draining.filter(is_busy).collect();
        let (draining, drained) =
            std::mem::take(&mut self.provision.draining).into_iter().partition(|(e, _)| busy.contains(e));
        self.provision.draining = draining;
        for (executor, reason) in BTreeMap::into_iter(drained) {
            self.tell(executor, ToExecutor::Shutdown { reason });
        }
    }

    /// What users are shown of the provisioner.
    pub(super) fn shown_provisioner(&self) -> Option<Provisioner> {
        let (_, provisioner) = self.provision.provisioner.as_ref()?;
        let decisions = self.provision.last.iter().cloned().collect();
        Some(Provisioner { decisions, n_pending: self.n_pending(provisioner), ..provisioner.clone() })
    }

    /// Nodes that were requested and have not joined. What the provisioner says is up to a second old: nodes that have joined since
    /// then are not among them any more.
    fn n_pending(&self, provisioner: &Provisioner) -> u32 {
        let known = &self.provision.known;
        let names = self.core.executors().map(|(_, offer, ..)| &offer.name);
        let is_new =
            |name: &&String| number_of(&provisioner.prefix, name).is_some() && !known.contains(*name);
        provisioner.n_pending.saturating_sub(names.filter(is_new).count() as u32)
    }

    /// Nodes that were requested and have not joined, and why the first of them waits in a queue, if that is known.
    pub(super) fn pending_nodes(&self) -> (u32, String) {
        let Some((_, provisioner)) = &self.provision.provisioner else { return (0, String::new()) };
        let mut queued = provisioner.blocks.iter().filter(|block| block.state == "queued");
        let why = queued.find(|block| !block.why.is_empty()).map(|block| block.why.clone());
        (self.n_pending(provisioner), why.unwrap_or_default())
    }

    /// Nodes that take work, if nodes come and go.
    pub(super) fn n_nodes(&self) -> Option<u32> {
        self.provision.provisioner.as_ref()?;
        Some(self.core.executors().filter(|(.., state)| *state == NodeState::Connected).count() as u32)
    }
}
