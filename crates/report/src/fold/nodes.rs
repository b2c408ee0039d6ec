//! What was decided about nodes: requests and releases, with their reasons; and when nobody could bring nodes.

use super::Executors;
use eyas_core::provisioning::decision::{Decided, Decision};
use eyas_core::types::*;

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
