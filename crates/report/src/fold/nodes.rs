//! What was decided about nodes: requests and releases, with their reasons.

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
}

impl Nodes {
    /// All decisions, in the order of the log.
    pub fn decisions(&self) -> &[NodesDecision] {
        &self.decisions
    }

    pub(super) fn note(&mut self, decision: &Decision, executors: &Executors) {
        let name = |executor: &ExecutorId| match executors.find_row(*executor) {
            Some(row) => executors.records()[row].name.clone(),
            None => format!("executor {executor}"),
        };
        let released = match &decision.what {
            Decided::Released { executors } => executors.iter().map(name).collect(),
            Decided::Requested { .. } | Decided::Withdrawn { .. } => vec![],
        };
        self.decisions.push(NodesDecision { decision: decision.clone(), released });
    }
}
