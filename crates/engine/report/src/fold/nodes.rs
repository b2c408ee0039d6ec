//! What was decided about nodes: requests and releases, with their reasons; when nobody could bring nodes; and which nodes were
//! lost that nobody had asked to leave.

use super::Executors;
use eyas_core::provisioning::decision::{Decided, Decision};
use eyas_terms::*;
use std::collections::{BTreeMap, BTreeSet};

/// A decision, with the names of the nodes that it released.
#[derive(Clone, PartialEq, Debug)]
pub struct NodesDecision {
    pub decision: Decision,
    pub released: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Nodes {
    decisions: Vec<NodesDecision>,
    providers: Vec<ProviderChange>,
    /// Whether somebody brings nodes.
    has_provider: bool,
    losses: Vec<NodeLoss>,
    /// Executors of this life that were asked to leave.
    sent_away: BTreeSet<ExecutorId>,
    /// Why executors of this life were about to end, as a phrase after "because".
    announced: BTreeMap<ExecutorId, String>,
}

/// A node is gone that nobody had asked to leave.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeLoss {
    pub at: Timestamp,
    pub name: String,
    pub how: Gone,
}

/// How a node went.
#[derive(Clone, PartialEq, Debug)]
pub enum Gone {
    /// It was heard of last, or somebody found that it had ended, with this reason.
    Left { reason: String },
    /// Nothing was heard of it for so long. `announced`: why it had been about to end, as a phrase after "because".
    Silent { for_ns: u64, announced: Option<String> },
}

/// Nobody brings nodes any more, or somebody does again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProviderChange {
    pub at: Timestamp,
    pub is_back: bool,
}

impl Nodes {
    /// All decisions, in the order of the log.
    pub fn decisions(&self) -> &[NodesDecision] {
        &self.decisions
    }

    /// When nobody brought nodes any more, and when somebody did again, in the order of the log.
    pub fn providers(&self) -> &[ProviderChange] {
        &self.providers
    }

    /// Whether there ever was somebody who could bring nodes.
    pub fn had_provider(&self) -> bool {
        self.has_provider || !self.providers.is_empty()
    }

    /// Somebody brings nodes from now on, or nobody does. That somebody does for the first time is no change to tell of.
    pub(super) fn note_provider(&mut self, at: Timestamp, is_there: bool) {
        let had_provider = std::mem::replace(&mut self.has_provider, is_there);
        if had_provider != is_there && (had_provider || !self.providers.is_empty()) {
            self.providers.push(ProviderChange { at, is_back: is_there });
        }
    }

    /// Nodes that were lost, in the order of the log.
    pub fn losses(&self) -> &[NodeLoss] {
        &self.losses
    }

    pub(super) fn begin_life(&mut self) {
        self.sent_away.clear();
        self.announced.clear();
    }

    /// Somebody has asked the executor to leave; its end is no loss.
    pub(super) fn note_sent_away(&mut self, executor: ExecutorId) {
        self.sent_away.insert(executor);
    }

    /// The executor ends soon, and why, as a phrase after "because".
    pub(super) fn note_announced(&mut self, executor: ExecutorId, reason: &str) {
        self.announced.insert(executor, reason.into());
    }

    /// An executor is about to be lost, as far as `executors` know. `reason`: as it was logged; `None`: it was given up, as nothing
    /// was heard of it.
    pub(super) fn note_loss(
        &mut self,
        at: Timestamp,
        executor: ExecutorId,
        reason: Option<&str>,
        executors: &Executors,
    ) {
        let announced = self.announced.remove(&executor);
        let Some(row) = executors.find_row(executor) else { return };
        if self.sent_away.remove(&executor) {
            return;
        }
        let record = &executors.records()[row];
        let how = match reason {
            Some(reason) => Gone::Left { reason: reason.into() },
            None => {
                let since = record.silent.last().filter(|(_, until)| until.is_none());
                Gone::Silent { for_ns: since.map_or(0, |(since, _)| at.since_ns(*since)), announced }
            }
        };
        self.losses.push(NodeLoss { at, name: record.name.clone(), how });
    }

    pub(super) fn note(&mut self, decision: &Decision, executors: &Executors) {
        // A decision reaches the log with the next question of whoever decides; a node that was idle may have ended by then.
        let name = |executor: &ExecutorId| match executors.find_name(*executor) {
            Some(name) => name.to_string(),
            None => format!("executor {executor}"),
        };
        let released = match &decision.what {
            Decided::Released { executors } => executors.iter().map(name).collect(),
            Decided::Requested { .. } | Decided::Withdrawn { .. } => vec![],
        };
        self.decisions.push(NodesDecision { decision: decision.clone(), released });
    }
}
