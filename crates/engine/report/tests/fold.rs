//! The fold of the event log: its rules line by line, and that a fold of one task says of it what a fold of all tasks says.

mod common;

use common::*;
use eyas_core::event::*;
use eyas_core::log::{Header, LOG_VERSION};
use eyas_core::provisioning::decision::{Basis, Decided, Decision};
use eyas_report::fold::{Change, End, Fold, Gone, How};
use eyas_report::lines::Entry;
use eyas_terms::array::{Command, Pattern, TaskArray, Template};
use eyas_terms::*;
use std::sync::Arc;

const TASK: TaskId = TaskId(0);
const RUN: RunId = RunId(1);

fn header(t: u64) -> Entry {
    Entry::Header(Header {
        eyas_event_log: LOG_VERSION,
        eyas_version: "0".into(),
        t: Timestamp(t),
        config: Default::default(),
        cluster: "c".into(),
        is_cut: false,
    })
}

fn array(n_tasks: u32) -> Arc<TaskArray> {
    let template = Template::new(Pattern::default(), Command::Exec(vec![]));
    Arc::new(TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None })
}

fn opened(run: u32, into: Option<u32>) -> Event {
    Event::RunOpened { run: RunId(run), name: "r".into(), keep: false, into: into.map(RunId) }
}

fn joined(executor: u32, name: &str, attempts: &[(TaskId, AttemptNo)]) -> Event {
    let offer = Offer { name: name.into(), attempts: attempts.to_vec(), ..Offer::default() };
    Event::ExecutorJoined { executor: ExecutorId(executor), offer }
}

fn assigned(executor: u32, attempt: u32) -> Action {
    let assignment = Assignment {
        task: TASK,
        attempt: AttemptNo(attempt),
        run: RUN,
        cpus: 1,
        inputs: vec![],
        outputs: vec![],
        staying: vec![],
        private_inputs: false,
        repeated: false,
        alone: false,
        needs: None,
        why: Why::default(),
    };
    Action::Assign { executor: ExecutorId(executor), assignment: Box::new(assignment) }
}

fn reported(executor: u32, attempt: u32, outcome: Outcome, n_outputs: u32) -> Event {
    let output = |output| OutputReport { output, digest: Digest([0; 32]), size_bytes: 1, marks: None };
    let report = AttemptReport {
        task: TASK,
        attempt: AttemptNo(attempt),
        outcome,
        times: Times::default(),
        inputs: vec![],
        in_memory: vec![],
        outputs: (0..n_outputs).map(output).collect(),
        cpu_ns: 0,
        rss_bytes_max: 0,
        left: None,
    };
    Event::AttemptEnded { executor: ExecutorId(executor), report: Arc::new(report) }
}

fn home(executor: u32, attempt: u32) -> Event {
    Event::OutputsHome {
        executor: ExecutorId(executor),
        task: TASK,
        attempt: AttemptNo(attempt),
        result: Ok(()),
    }
}

/// A log of one run with one task, and what each line changed, in short.
struct Log {
    fold: Fold,
    now: u64,
}

impl Log {
    fn new() -> Log {
        let mut log = Log { fold: Fold::whole(), now: 0 };
        log.fold.take(&header(0));
        log.event(opened(1, None));
        log.event(Event::ArrayAdded { run: RUN, array: array(1) });
        log.event(Event::RunCommitted { run: RUN });
        log.event(joined(1, "a", &[]));
        log
    }

    fn restart(&mut self) {
        self.now += 1;
        self.fold.take(&header(self.now));
        self.event(opened(1, None));
        self.event(Event::ArrayAdded { run: RUN, array: array(1) });
    }

    fn take(&mut self, entry: Entry) -> Vec<String> {
        let changes = self.fold.take(&entry);
        let short = |change: Change<'_>| match change {
            Change::AttemptBegan { at, row, assignment, .. } => {
                format!("{at} began at row {row}{}", if assignment.is_none() { ", taken over" } else { "" })
            }
            Change::AttemptMoved { at, row } => format!("{at} moved to row {row}"),
            Change::AttemptReported { at, .. } => format!("{at} reported"),
            Change::LateReport { held, .. } => format!("late report from row {}", held.row),
            Change::OutputsHome { .. } => "home".into(),
            Change::AttemptOver { at, t, how } => format!("{at} {how:?} at {}", t.0),
            Change::TaskEnded { t, outcome, restored, .. } => {
                format!(
                    "task {:?} at {}{}",
                    how(outcome),
                    t.0,
                    if restored.is_some() { ", restored" } else { "" }
                )
            }
            Change::TaskRevived { .. } => "revived".into(),
            Change::EndsForgotten { tasks } => format!("ends forgotten: {tasks:?}"),
            Change::ArrayAdded { base, replaces, .. } => format!("array at {base}, replaces: {replaces}"),
            Change::RunAborted { run } => format!("run {run} aborted"),
            Change::ExecutorCame { row, .. } => format!("executor at row {row}"),
            Change::ExecutorLost { row } => format!("lost row {row}"),
        };
        changes.into_iter().map(short).collect()
    }

    fn event(&mut self, event: Event) -> Vec<String> {
        self.now += 1;
        self.take(Entry::In(Timestamp(self.now), event))
    }

    fn action(&mut self, action: Action) -> Vec<String> {
        self.take(Entry::Out(Timestamp(self.now), action))
    }

    fn end(&mut self, outcome: Outcome) -> Vec<String> {
        self.action(Action::EndTask { task: TASK, outcome, by: None })
    }
}

fn how(outcome: &Outcome) -> How {
    match outcome {
        Outcome::Done => How::Done,
        Outcome::Failed(_) => How::Failed,
        Outcome::Cancelled => How::Cancelled,
    }
}

#[test]
fn an_attempt_with_outputs_is_over_when_they_are_home() {
    let mut log = Log::new();
    assert_eq!(log.action(assigned(1, 1)), ["0 began at row 0"]);
    assert_eq!(log.event(reported(2, 1, Outcome::Done, 1)), [""; 0], "nobody knows that executor");
    assert_eq!(log.event(reported(1, 2, Outcome::Done, 1)), [""; 0], "it has no such attempt");
    assert_eq!(log.event(reported(1, 1, Outcome::Done, 1)), ["0 reported"]);
    assert!(log.fold.attempts.of(TASK).is_some_and(|held| held.is_landing));
    assert_eq!(log.event(reported(1, 1, Outcome::Done, 1)), [""; 0], "it was reported before");
    assert_eq!(log.event(home(1, 1)), ["home", "0 Done at 9"]);
    assert_eq!(log.end(Outcome::Done), ["task Done at 9"]);
    assert_eq!(log.fold.tasks.end(TASK), (End::Done, Timestamp(9)));
    assert_eq!(log.event(home(1, 1)), [""; 0]);
    assert_eq!(log.action(Action::ReviveTask { task: TASK, lost: ObjectId(0) }), ["revived"]);
    assert_eq!(log.fold.tasks.end(TASK).0, End::Not);
}

#[test]
fn what_an_executor_reports_of_a_cancelled_task_is_late() {
    let mut log = Log::new();
    log.action(assigned(1, 1));
    assert_eq!(log.end(Outcome::Cancelled), ["0 Cancelled at 4", "task Cancelled at 4"]);
    assert_eq!(log.event(reported(1, 1, Outcome::Cancelled, 0)), ["late report from row 0"]);
    assert_eq!(log.event(reported(1, 1, Outcome::Cancelled, 0)), [""; 0], "that was all");
    // The same where the executor is lost first.
    let mut log = Log::new();
    log.action(assigned(1, 1));
    log.end(Outcome::Cancelled);
    let lost = Event::ExecutorLost { executor: ExecutorId(1), reason: "gone".into() };
    assert_eq!(log.event(lost), ["lost row 0"]);
    assert_eq!(log.event(joined(1, "a", &[])), ["executor at row 1"]);
    assert_eq!(log.event(reported(1, 1, Outcome::Cancelled, 0)), [""; 0]);
}

#[test]
fn an_executor_keeps_what_it_offers_and_loses_the_rest() {
    let mut log = Log::new();
    log.action(assigned(1, 1));
    assert_eq!(log.event(joined(1, "a", &[(TASK, AttemptNo(1))])), [""; 0]);
    assert_eq!(log.event(joined(1, "a", &[])), ["0 Lost at 6"]);
    assert_eq!(log.action(assigned(1, 2)), ["1 began at row 0"]);
    assert_eq!(log.action(Action::ForgetExecutor { executor: ExecutorId(1) }), ["1 Lost at 6", "lost row 0"]);
}

#[test]
fn a_restarted_dispatcher_takes_attempts_over() {
    let mut log = Log::new();
    log.action(assigned(1, 1));
    log.restart();
    log.event(Event::RunCommitted { run: RUN });
    let row = "executor at row 0";
    assert_eq!(log.event(joined(7, "a", &[(TASK, AttemptNo(1))])), [row]);
    assert_eq!(log.fold.attempts.of(TASK).map(|held| held.since), Some(Timestamp(log.now)));
    assert_eq!(log.event(reported(7, 1, Outcome::Done, 0)), ["0 reported", "0 Done at 10"]);
    // Another executor has it than the log says. The number of an executor means nothing in another life.
    let mut log = Log::new();
    log.action(assigned(1, 1));
    log.restart();
    log.event(Event::RunCommitted { run: RUN });
    assert_eq!(log.event(joined(1, "b", &[])), ["executor at row 1"]);
    let came = log.event(joined(2, "c", &[(TASK, AttemptNo(1))]));
    assert_eq!(came, ["executor at row 2", "0 moved to row 2"]);
    // Nobody has it any more: it is given out again.
    let mut log = Log::new();
    log.action(assigned(1, 1));
    log.restart();
    log.event(Event::RunCommitted { run: RUN });
    log.event(joined(1, "b", &[]));
    assert_eq!(log.action(assigned(1, 1)), ["0 Lost at 4", "1 began at row 1"]);
    // The log lost the assignment.
    let mut log = Log::new();
    log.restart();
    log.event(Event::RunCommitted { run: RUN });
    let came = log.event(joined(1, "b", &[(TASK, AttemptNo(3))]));
    assert_eq!(came, ["executor at row 1", "0 began at row 1, taken over"]);
}

#[test]
fn what_the_journal_kept_has_happened_and_nothing_else() {
    let restored =
        || Event::TaskRestored { task: TASK, outcome: Outcome::Done, outputs: vec![(Digest([1; 32]), 5)] };
    // The log has the end, the journal has not.
    let mut log = Log::new();
    log.action(assigned(1, 1));
    log.end(Outcome::Done);
    log.restart();
    assert_eq!(log.event(Event::RunCommitted { run: RUN }), [format!("ends forgotten: {:?}", [TASK])]);
    assert_eq!(log.fold.tasks.end(TASK).0, End::Not);
    // Both have it.
    let mut log = Log::new();
    log.action(assigned(1, 1));
    log.end(Outcome::Done);
    log.restart();
    assert_eq!(log.event(restored()), [""; 0]);
    assert_eq!(log.event(Event::RunCommitted { run: RUN }), [""; 0]);
    assert_eq!(log.fold.tasks.end(TASK), (End::Done, Timestamp(4)));
    // The journal has it, the log has not: it was the last that the earlier life did.
    let mut log = Log::new();
    log.action(assigned(1, 1));
    log.restart();
    assert_eq!(log.event(restored()), ["0 Done at 4", "task Done at 4, restored"]);
    assert_eq!(log.event(Event::RunCommitted { run: RUN }), [""; 0]);
}

#[test]
fn tasks_are_numbered_through_all_lives() {
    let mut log = Log::new();
    log.event(opened(2, Some(1)));
    assert_eq!(
        log.event(Event::ArrayAdded { run: RunId(2), array: array(3) }),
        ["array at 1, replaces: false"]
    );
    assert_eq!(log.fold.runs.whole_of(RunId(2)), RUN);
    assert_eq!(log.fold.tasks.find(TaskId(3)).map(|a| a.run), Some(RunId(2)));
    log.event(Event::RunCommitted { run: RunId(2) });
    assert_eq!(log.fold.tasks.find(TaskId(3)).map(|a| a.run), Some(RUN));
    assert_eq!(log.fold.runs.records()[&RUN].n_tasks, 4);
    assert!(log.fold.runs.is_accepted(RunId(2)) && !log.fold.runs.records().contains_key(&RunId(2)));
    let submitted = log.fold.tasks.find(TASK).map(|a| a.submitted);
    log.restart();
    assert_eq!(log.fold.tasks.find(TASK).map(|a| a.submitted), submitted);
    // This journal did not keep the addition, so its numbers are given again.
    log.event(opened(3, None));
    assert_eq!(
        log.event(Event::ArrayAdded { run: RunId(3), array: array(2) }),
        ["array at 1, replaces: true"]
    );
    log.event(Event::RunAborted { run: RunId(3) });
    assert_eq!(log.fold.runs.newest(), Some(RUN));
    // Forgotten runs leave their numbers behind.
    let mut log = Log::new();
    log.take(header(9));
    log.event(Event::TasksNumbered { n_tasks: 1 });
    log.event(opened(2, None));
    assert_eq!(
        log.event(Event::ArrayAdded { run: RunId(2), array: array(1) }),
        ["array at 1, replaces: false"]
    );
    assert!(log.fold.tasks.find(TASK).is_some(), "the earlier life's array stays");
}

#[test]
fn a_fold_of_one_task_says_the_same_of_it() {
    for seed in 0..12 {
        let mut cluster = Cluster::new("affinity", seed, ROUGH);
        cluster.join("n1", 2);
        cluster.join("n2", 2);
        let run = cluster.submit("first", vec![map("a", 20, 7, 1)]);
        cluster.go(Some(START.plus_ns(250 * MS)));
        cluster.restart(b"");
        cluster.go(Some(START.plus_ns(350 * MS + 40 * MS * seed)));
        let dir = tempfile::tempdir().unwrap();
        cluster.save(dir.path());
        let mut whole = Fold::whole();
        whole.read(dir.path(), |_| true, |_, _, _| {}).unwrap();
        for task in (0..20).map(TaskId) {
            let mut one = Fold::of_task(task, run);
            one.read(dir.path(), Fold::takes, |_, _, _| {}).unwrap();
            assert_eq!(one.tasks.end(task), whole.tasks.end(task), "seed {seed}, task {task}");
            let held =
                |fold: &Fold| fold.attempts.of(task).map(|h| (h.attempt, h.row, h.since, h.is_landing));
            assert_eq!(held(&one), held(&whole), "seed {seed}, task {task}");
            assert!(one.tasks.arrays().is_empty() && one.attempts.open().count() <= 1);
        }
    }
}

#[test]
fn a_released_node_that_has_ended_is_named_and_a_provider_that_was_away_is_told_of() {
    let mut log = Log::new();
    let expects = |node: bool| Event::NodesExpected { node: node.then(Default::default) };
    log.event(expects(true));
    log.event(Event::ExecutorLost { executor: ExecutorId(1), reason: "it said goodbye".into() });
    // The decision comes with the next question of whoever decided.
    let decision = Decision {
        at: Timestamp(1),
        policy: "demand".into(),
        what: Decided::Released { executors: vec![ExecutorId(1), ExecutorId(9)] },
        why: eyas_core::provisioning::decision::Why::BelowMinimum,
        seen: Basis::default(),
    };
    log.event(Event::NodesDecided { decision: Box::new(decision) });
    assert_eq!(log.fold.nodes.decisions()[0].released, ["a", "executor 9"]);
    assert_eq!(log.fold.nodes.providers(), [], "that there is one at first is no change");
    log.event(expects(false));
    log.restart();
    log.event(expects(true));
    log.event(expects(true));
    let changes: Vec<bool> = log.fold.nodes.providers().iter().map(|change| change.is_back).collect();
    assert_eq!(changes, [false, true]);
}

#[test]
fn a_node_that_leaves_without_being_asked_to_is_lost() {
    let mut log = Log::new();
    let leaving = |executor: u32, reason: &str| Event::ExecutorLeaving {
        executor: ExecutorId(executor),
        within_ns: 1,
        reason: reason.into(),
    };
    let lost = |executor: u32, reason: &str| Event::ExecutorLost {
        executor: ExecutorId(executor),
        reason: reason.into(),
    };
    log.event(leaving(1, "SIGTERM"));
    log.event(Event::ExecutorSilent { executor: ExecutorId(1) });
    log.now += 60 * S;
    log.action(Action::ForgetExecutor { executor: ExecutorId(1) });
    let named = |log: &Log| -> Vec<(String, Gone)> {
        log.fold.nodes.losses().iter().map(|loss| (loss.name.clone(), loss.how.clone())).collect()
    };
    let first = ("a".to_string(), Gone::Silent { for_ns: 60 * S, announced: Some("SIGTERM".into()) });
    assert_eq!(named(&log), std::slice::from_ref(&first));
    log.event(joined(2, "b", &[]));
    log.event(Event::ExecutorDraining { executor: ExecutorId(2) });
    log.event(lost(2, "released, as there was no work for it"));
    log.event(lost(7, "nobody knows it"));
    assert_eq!(
        named(&log),
        std::slice::from_ref(&first),
        "one was asked to leave, the other was never there"
    );
    log.event(joined(3, "c", &[]));
    log.event(lost(3, "its walltime is over"));
    let second = ("c".to_string(), Gone::Left { reason: "its walltime is over".into() });
    assert_eq!(named(&log), [first, second]);
}
