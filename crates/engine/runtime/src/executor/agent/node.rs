//! The session of this node, which sees the dispatcher's time and no other.

use super::ExecutorError;
use crate::clock::DispatchersClock;
use eyas_core::event::*;
use eyas_core::executor::ExecutorConfig;
use eyas_session::executor::{AttemptId, Book, ExecutorSession};
use eyas_terms::{Failure, Timestamp};

/// See the module.
pub(super) struct NodeState {
    pub(super) session: ExecutorSession,
    pub(super) clock: DispatchersClock,
}

impl NodeState {
    pub(super) fn new(config: ExecutorConfig) -> Result<NodeState, ExecutorError> {
        let session = ExecutorSession::new(config).map_err(|e| ExecutorError::Config(e.to_string()))?;
        Ok(NodeState { session, clock: DispatchersClock::default() })
    }

    pub(super) fn book(&self) -> &Book {
        self.session.book()
    }

    pub(super) fn feed(&mut self, event: NodeEvent) {
        self.session.feed(self.now(), event);
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
        found: vec![],
        outputs,
        inputs_modified: vec![],
        inputs_damaged: vec![],
        disk: None,
    }
}
