//! When an executor hears that it may forget an attempt, with the real session and its journal.

use eyas_core::dispatcher::{DispatcherConfig, TaskState};
use eyas_core::event::{AttemptReport, NodeMessage, Offer, Times};
use eyas_terms::{AttemptNo, ExecutorId, Failure, FailureKind, Outcome, TaskId, Timestamp};
use eyas_testkit::build::task;
use eyas_testkit::process::{FromNode, Journal, Process, ToNode};
use eyas_wire::message::{ExecutorHello, RequestBody, ToExecutor};

const NOW: Timestamp = Timestamp(1);
const TASK: TaskId = TaskId(0);

/// Connection `life` of the one node, which may be known and may have an attempt.
fn connect(process: &mut Process, life: u64, known_as: Option<ExecutorId>, has_attempt: bool) {
    let offer = Offer {
        name: "n".into(),
        slots: 1,
        memory_bytes: 1 << 30,
        cache_bytes: 1 << 30,
        owner: known_as.map(|_| process.incarnation()),
        attempts: if has_attempt { vec![(TASK, AttemptNo(1))] } else { vec![] },
        ..Offer::default()
    };
    let hello = ExecutorHello { offer, data_address: "host:1".into(), data_id: 1, known_as, member: None };
    process.on_connected(life, 1);
    process.on_batch(NOW, life, vec![FromNode::Hello(Box::new(hello))]);
}

fn report(process: &mut Process, life: u64, outcome: Outcome) {
    let report = AttemptReport {
        task: TASK,
        attempt: AttemptNo(1),
        outcome,
        times: Times::default(),
        inputs: vec![],
        in_memory: vec![],
        outputs: vec![],
        cpu_ns: 0,
        rss_bytes_max: 0,
        left: None,
    };
    process.on_batch(NOW, life, vec![NodeMessage::AttemptEnded { report: report.into() }.into()]);
}

/// The attempts that the node may forget by what was said since the last call.
fn recorded(process: &mut Process) -> Vec<(TaskId, AttemptNo)> {
    // Recorded ends wait for company until the next tick.
    process.tick(NOW);
    let mut recorded = vec![];
    for (_, _, batch) in process.settle(NOW).to_nodes {
        for message in batch {
            if let ToNode::Says(message) = message
                && let ToExecutor::Recorded { ended } = *message
            {
                recorded.extend(ended);
            }
        }
    }
    recorded
}

fn all_durable(process: &mut Process) {
    process.on_durable(NOW, process.journal().records.len());
}

/// A process whose one task was given to the one node.
fn begun(retries: u32) -> Process {
    let mut process = Process::start(&DispatcherConfig::default(), 1, NOW, &mut Journal::default());
    connect(&mut process, 1, None, false);
    process.submit(NOW, &[task("t").retries(retries).array()], false).expect("nothing refuses it");
    all_durable(&mut process);
    assert_eq!(recorded(&mut process), []);
    assert!(matches!(process.core().task_state(TASK), TaskState::Reserved { attempt: AttemptNo(1), .. }));
    process
}

#[test]
fn an_end_that_is_said_again_while_the_journal_writes_it_is_acknowledged_when_it_is_durable() {
    let mut process = begun(0);
    let executor = process.core().executors().next().expect("it joined").0;
    report(&mut process, 1, Outcome::Done);
    assert_eq!(process.core().task_state(TASK), TaskState::Done);
    assert_eq!(recorded(&mut process), [], "the journal does not have it");
    process.on_disconnected(NOW, 1);
    connect(&mut process, 2, Some(executor), true);
    report(&mut process, 2, Outcome::Done);
    assert_eq!(recorded(&mut process), [], "the journal still does not have it");
    all_durable(&mut process);
    assert_eq!(recorded(&mut process), [(TASK, AttemptNo(1))]);
    report(&mut process, 2, Outcome::Done);
    assert_eq!(recorded(&mut process), [(TASK, AttemptNo(1))], "nothing is left to record");
}

#[test]
fn an_attempt_whose_task_is_tried_again_may_be_forgotten_at_once() {
    let mut process = begun(1);
    let failure = Failure { kind: FailureKind::ExitCode(3), message: String::new() };
    report(&mut process, 1, Outcome::Failed(failure));
    assert_eq!(recorded(&mut process), [(TASK, AttemptNo(1))], "nothing of it goes to the journal");
    assert!(matches!(process.core().task_state(TASK), TaskState::Reserved { attempt: AttemptNo(2), .. }));
}

/// Ends waited up to 50 ms for others, also where a client could do nothing more before it had heard of them: a chain of calls beside one
/// that ran took 50 ms for each of them.
#[test]
fn an_end_that_a_client_hears_of_is_recorded_at_once_unless_tasks_are_left_to_give_out() {
    for (n_tasks, is_heard, expect) in [(2, false, false), (2, true, true), (1000, true, false)] {
        let mut process = Process::start(&DispatcherConfig::default(), 1, NOW, &mut Journal::default());
        connect(&mut process, 1, None, false);
        let arrays: Vec<_> = (0..n_tasks).map(|i| task(&format!("t{i}")).array()).collect();
        let run = process.submit(NOW, &arrays, false).expect("nothing refuses it");
        all_durable(&mut process);
        process.on_client_connected(NOW, 7);
        if is_heard {
            process.on_request(NOW, 7, 1, RequestBody::FollowEnds { run });
        }
        process.settle(NOW);
        process.take_hurry();
        report(&mut process, 1, Outcome::Done);
        process.settle(NOW);
        assert_eq!(process.take_hurry(), expect, "{n_tasks} tasks, heard: {is_heard}");
    }
}
