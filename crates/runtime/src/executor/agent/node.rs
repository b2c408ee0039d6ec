//! The node's state machine, with the actions that it has asked for and that are not carried out yet.

use super::{AttemptId, ExecutorError};
use crate::clock::DispatchersClock;
use eyas_core::event::*;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_terms::{Failure, ObjectId, Timestamp};

/// See the module.
pub(super) struct Node {
    pub(super) core: Executor,
    /// Actions that wait to be carried out, in their order.
    actions: Vec<NodeAction>,
    /// The state machine sees the dispatcher's time, and no other.
    pub(super) clock: DispatchersClock,
}

impl Node {
    pub(super) fn new(config: ExecutorConfig) -> Result<Node, ExecutorError> {
        let core = Executor::new(config).map_err(|e| ExecutorError::Config(e.to_string()))?;
        Ok(Node { core, actions: vec![], clock: DispatchersClock::default() })
    }

    /// The cache holds these objects from an earlier process.
    pub(super) fn restore(&mut self, held: Vec<(ObjectId, Fetched)>) {
        for (object, bytes) in held {
            self.core.restore(object, bytes, &mut self.actions);
        }
    }

    pub(super) fn feed(&mut self, event: NodeEvent) {
        self.core.handle(self.now(), event, &mut self.actions);
    }

    /// An attempt ended whose program did not run, or about whose program nothing more is known.
    pub(super) fn fail_unstarted(&mut self, (task, attempt): AttemptId, failure: Failure) {
        let exit = Exit { result: Err(failure), ..without_program(Timestamp(0), vec![]) };
        self.feed(NodeEvent::ProgramEnded { task, attempt, exit });
    }

    /// An attempt of a task without a program: it has ended as soon as its inputs are here.
    pub(super) fn end_at_once(&mut self, (task, attempt): AttemptId, n_outputs: usize) {
        let exit = without_program(self.now(), vec![None; n_outputs]);
        self.feed(NodeEvent::ProgramEnded { task, attempt, exit });
    }

    /// Now, by the dispatcher's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn take_actions(&mut self) -> Vec<NodeAction> {
        std::mem::take(&mut self.actions)
    }
}

/// A good end at the time `at`, of which there is nothing to report.
fn without_program(at: Timestamp, outputs: Vec<Option<u64>>) -> Exit {
    Exit {
        result: Ok(()),
        started: at,
        exited: at,
        cpu_ns: 0,
        rss_bytes_max: 0,
        left: None,
        outputs,
        inputs_modified: vec![],
        inputs_damaged: vec![],
        disk: None,
    }
}
