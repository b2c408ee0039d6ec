//! Submissions whose clients go away, with the real session and its journal.

use eyas_core::Timestamp;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_session::dispatcher::Record;
use eyas_testkit::build::reads;
use eyas_testkit::process::{Journal, Process};
use std::sync::Arc;

/// The session gave a submission up whose client went away while the journal wrote the commit. In a group it told
/// the other members so, and a process that was killed then found the commit when it read its journal.
#[test]
fn a_submission_whose_commit_is_being_written_is_not_given_up() {
    let now = Timestamp(1);
    let mut process = Process::start(&DispatcherConfig::default(), 1, now, &mut Journal::default());
    let run = process.submit(now, &[Arc::new(reads("x").array())], false).expect("nothing refuses it");
    process.client_gone(now, run);
    process.settle(now);
    let is_given_up = |record: &Record<'_>| matches!(record, Record::RunAborted { .. });
    assert!(!process.journal().records.iter().any(is_given_up), "only the disk decides now");
    process.on_durable(now, process.journal().records.len());
    process.settle(now);
    assert!(process.core().is_accepted(run));
    let mut journal = process.into_journal();
    let later = Process::start(&DispatcherConfig::default(), 2, now, &mut journal);
    assert!(later.core().is_accepted(run), "a later process finds the same");
}
