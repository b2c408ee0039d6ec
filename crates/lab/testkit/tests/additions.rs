//! Tasks that are added to a run while it goes on, event by event.

use eyas_core::dispatcher::TaskState;
use eyas_core::event::*;
use eyas_terms::*;
use eyas_testkit::build::{Task, reads, task, writes};
use eyas_testkit::script::Cluster;

/// Opens and fills a submission into `whole`.
fn open(c: &mut Cluster, number: u32, whole: RunId, tasks: &[Task]) -> RunId {
    let run = RunId(number);
    c.feed(Event::RunOpened { run, name: String::new(), keep: false, into: Some(whole) });
    tasks.iter().for_each(|task| c.feed(Event::ArrayAdded { run, array: task.array() }));
    run
}

fn add(c: &mut Cluster, number: u32, whole: RunId, tasks: &[Task]) {
    let run = open(c, number, whole, tasks);
    assert_eq!(c.core.why_not_added(run), None);
    c.feed(Event::RunCommitted { run });
}

#[test]
fn added_tasks_are_the_runs_own() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let whole = c.run(&[writes("run:x"), reads("run:x")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 1"]);
    add(&mut c, 7, whole, &[task("b").reads("run:x").writes("run:y"), reads("run:y")]);
    assert_eq!(c.core.work().run_of(TaskId(3)), whole);
    assert_eq!(c.core.work().find_run(RunId(7)), None);
    c.done(1, (1, 1)).expect(&["end 1 done", "assign 2.1 to 1"]);
    c.done(1, (2, 1)).expect(&["drop run:here.1/x on 1", "end 2 done", "assign 3.1 to 1"]);
    c.done(1, (3, 1)).expect(&["drop run:here.1/y on 1", "end 3 done", "end run 1"]);
    assert_eq!(c.core.work().why_closed(whole).as_deref(), Some("run 1 has ended; submit a run of its own"));
}

#[test]
fn while_a_submission_is_open_the_run_neither_ends_nor_drops() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let whole = c.run(&[writes("run:x")]);
    let run = open(&mut c, 7, whole, &[reads("run:x")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done"]);
    assert_eq!(c.state(1), TaskState::Submitting);
    assert_eq!(c.core.why_not_added(run), None);
    c.feed(Event::RunCommitted { run });
    c.expect(&["assign 1.1 to 1"]).done(1, (1, 1));
    c.expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);
}

#[test]
fn a_client_that_goes_away_leaves_no_tasks_and_blocks_nobody() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let whole = c.run(&[writes("run:x")]);
    let run = open(&mut c, 7, whole, &[reads("run:x").writes("run:y")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done"]);
    c.feed(Event::RunAborted { run });
    c.expect(&["drop run:here.1/x on 1", "end run 1"]);
    c.feed(Event::RunCommitted { run });
    c.expect(&[]);
}

#[test]
fn clashes_are_refused_and_leave_the_run_as_it_was() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let whole = c.run(&[writes("run:x"), writes("home"), reads("run:x"), task("long")]);
    c.done(1, (0, 1)).done(1, (1, 1)).home(1, (1, 1), true).done(1, (2, 1));
    c.expect(&[
        "assign 0.1 to 1",
        "assign 1.1 to 1",
        "end 0 done",
        "assign 2.1 to 1",
        "end 1 done",
        "drop run:here.1/x on 1",
        "end 2 done",
        "assign 3.1 to 1",
    ]);
    // A task that has ended also counts as a writer: of files that stay, and of files at home.
    for (number, file) in [(7, "run:x"), (8, "home")] {
        let run = open(&mut c, number, whole, &[task("second").writes(file)]);
        c.expect(&[&format!("refuse run {number}")]);
        c.feed(Event::RunAborted { run });
    }
    for (number, file, expect) in [
        (9, "run:nowhere", "task `late` reads `run:nowhere`, which no task of the run writes"),
        (
            10,
            "run:x",
            "task `late` reads `run:x`, which was dropped when the last task that read it had ended",
        ),
    ] {
        let run = open(&mut c, number, whole, &[task("late").reads(file)]);
        let why = c.core.why_not_added(run).expect("it is refused");
        assert!(why.starts_with(expect), "{why}");
        c.feed(Event::RunAborted { run });
    }
    // Another run may write what this one has written.
    c.done(1, (3, 1)).expect(&["end 3 done", "end run 1"]);
    c.run(&[writes("home")]);
    c.expect(&["assign 8.1 to 1"]);
}

#[test]
fn tasks_that_are_added_to_a_cancelled_run_are_cancelled() {
    let mut c = Cluster::new();
    let whole = c.run(&[task("a")]);
    let run = open(&mut c, 7, whole, &[task("b")]);
    c.cancel(whole, None).expect(&["end 0 cancelled"]);
    assert_eq!(c.core.why_not_added(run).as_deref(), Some("run 1 was cancelled"));
    // The commit was on its way to the disk.
    c.feed(Event::RunCommitted { run });
    c.expect(&["end 1 cancelled", "end run 1"]);
}

/// The journal gives all submissions and ends, then the commits of additions.
#[test]
fn after_a_restart_a_run_has_its_added_tasks() {
    let mut c = Cluster::new();
    let whole = c.open(&[writes("run:x").array()]);
    let run = open(&mut c, 2, whole, &[reads("run:x"), task("b").writes("home")]);
    let outputs = vec![(Digest([1; 32]), 10)];
    for task in [0, 2] {
        let outcome = Outcome::Done;
        c.feed(Event::TaskRestored { task: TaskId(task), outcome, outputs: outputs.clone() });
    }
    c.feed(Event::RunCommitted { run: whole });
    c.feed(Event::RunCommitted { run });
    c.feed(Event::Recovered);
    let state = c.core.work().find_run(whole).expect("it is there");
    assert_eq!((state.tasks.n_tasks, state.ends.n_done, state.ended), (3, 2, None));
    // No executor has the file any more, so it is made again for the reader.
    c.node(1, 1).wait(3).expect(&["revive 0 for run:here.1/x", "assign 0.65537 to 1"]);
    c.done(1, (0, 65537)).expect(&["end 0 done", "assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);
}

// ---------------------------------------------------------------- promises

/// A task that promises `run:x`, and one that reads it; the first is running.
fn promised(c: &mut Cluster) -> RunId {
    c.node(1, 1);
    let whole = c.run(&[task("plan").promises("run:x"), task("r").reads("run:x")]);
    c.expect(&["assign 0.1 to 1"]);
    whole
}

fn why_failed(c: &Cluster, run: RunId) -> String {
    let failures = &c.core.work().find_run(run).expect("it is there").failures;
    failures.back().expect("a task failed").1.message.clone()
}

const BROKEN: &str =
    "nobody wrote its input `run:x`: task `plan`, which promised it, ended without adding a task that does";

#[test]
fn a_promised_file_is_waited_for_until_it_is_written() {
    let mut c = Cluster::new();
    let whole = promised(&mut c);
    assert_eq!(c.core.waits_for(TaskId(1)), "`run:x`, which task `plan` has promised");
    add(&mut c, 7, whole, &[task("w").writes("run:x")]);
    c.done(1, (0, 1)).expect(&["end 0 done", "assign 2.1 to 1"]);
    assert_eq!(c.state(1), TaskState::Waiting { n_missing: 1 });
    assert_eq!(c.core.waits_for(TaskId(1)), "`run:x`, which task `w` makes");
    c.done(1, (2, 1)).expect(&["end 2 done", "assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);
}

#[test]
fn a_reader_of_a_promised_file_that_nobody_wrote_fails_when_the_promise_ends() {
    let mut c = Cluster::new();
    let whole = promised(&mut c);
    c.done(1, (0, 1)).expect(&["end 0 done", "end 1 failed InputUnavailable", "end run 1"]);
    assert_eq!(why_failed(&c, whole), BROKEN);
    // The same if the promising task failed; if it is cancelled, its readers are cancelled, too.
    let mut c = Cluster::new();
    let whole = promised(&mut c);
    c.failed(1, (0, 1), FailureKind::ExitCode(1));
    c.expect(&["end 0 failed ExitCode(1)", "end 1 failed InputUnavailable", "end run 1"]);
    assert_eq!(why_failed(&c, whole), BROKEN);
    let mut c = Cluster::new();
    c.node(1, 1);
    let whole = c.run(&[task("busy"), task("plan").promises("run:x"), task("r").reads("run:x")]);
    c.cancel(whole, Some(1)).done(1, (0, 1));
    c.expect(&["assign 0.1 to 1", "end 1 cancelled", "end 2 cancelled", "end 0 done", "end run 1"]);
}

#[test]
fn a_promise_is_handed_on() {
    let mut c = Cluster::new();
    let whole = promised(&mut c);
    add(&mut c, 7, whole, &[task("again").promises("run:x"), task("s").reads("run:x")]);
    c.done(1, (0, 1)).expect(&["end 0 done", "assign 2.1 to 1"]);
    add(&mut c, 8, whole, &[task("w").writes("run:x")]);
    c.done(1, (2, 1)).expect(&["end 2 done", "assign 4.1 to 1"]);
    c.done(1, (4, 1)).expect(&["end 4 done", "assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["end 1 done", "assign 3.1 to 1"]);
    c.done(1, (3, 1)).expect(&["drop run:here.1/x on 1", "end 3 done", "end run 1"]);
    // The readers fail even if the promise was handed to a task that does not keep it.
    let mut c = Cluster::new();
    let whole = promised(&mut c);
    add(&mut c, 7, whole, &[task("again").promises("run:x")]);
    c.done(1, (0, 1)).expect(&["end 0 done", "assign 2.1 to 1"]);
    c.done(1, (2, 1)).expect(&["end 2 done", "end 1 failed InputUnavailable", "end run 1"]);
    assert!(why_failed(&c, whole).contains("task `again`, which promised it"));
}

#[test]
fn a_promise_holds_while_something_is_being_added() {
    let mut c = Cluster::new();
    let whole = promised(&mut c);
    let run = open(&mut c, 7, whole, &[task("w").writes("run:x")]);
    c.done(1, (0, 1)).expect(&["end 0 done"]);
    assert_eq!(c.core.why_not_added(run), None);
    c.feed(Event::RunCommitted { run });
    c.expect(&["assign 2.1 to 1"]).done(1, (2, 1)).expect(&["end 2 done", "assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);

    let mut c = Cluster::new();
    let whole = promised(&mut c);
    let run = open(&mut c, 7, whole, &[task("w").writes("run:x"), task("p").promises("run:y")]);
    c.done(1, (0, 1)).expect(&["end 0 done"]);
    c.feed(Event::RunAborted { run });
    c.expect(&["end 1 failed InputUnavailable", "end run 1"]);
    assert_eq!(why_failed(&c, whole), BROKEN);
}

#[test]
fn tasks_of_a_given_up_submission_can_be_added_by_another_client() {
    let mut c = Cluster::new();
    let whole = promised(&mut c);
    let run = open(&mut c, 7, whole, &[task("w").writes("run:x")]);
    c.feed(Event::RunAborted { run });
    add(&mut c, 8, whole, &[task("v").writes("run:x")]);
    c.done(1, (0, 1)).expect(&["end 0 done", "assign 3.1 to 1"]);
    c.done(1, (3, 1)).expect(&["end 3 done", "assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);
}

#[test]
fn promises_that_cannot_be_kept_are_refused() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let tasks = [
        task("plan").promises("run:x"),
        task("r").reads("run:x").writes("run:y"),
        task("q").writes("run:q"),
        task("s").reads("run:q"),
    ];
    let whole = c.run(&tasks);
    c.expect(&["assign 0.1 to 1"]);
    // A task that writes a promised file must not wait for a task that waits for that file; the same holds
    // for a task that promises the file again.
    let run = open(
        &mut c,
        7,
        whole,
        &[task("w").reads("run:y").writes("run:z"), task("v").reads("run:z").writes("run:x")],
    );
    let circle =
        "tasks wait for each other in a circle, each reads what the one before it writes or promises: ";
    assert_eq!(c.core.why_not_added(run), Some(format!("{circle}`r`, `w`, `v`")));
    c.feed(Event::RunAborted { run });
    let run = open(&mut c, 8, whole, &[task("w").reads("run:y").promises("run:x")]);
    assert_eq!(c.core.why_not_added(run), Some(format!("{circle}`r`, `w`")));
    c.feed(Event::RunAborted { run });
    // Another task already writes the file.
    let run = open(&mut c, 9, whole, &[task("p").promises("run:q")]);
    c.expect(&["refuse run 9"]);
    c.feed(Event::RunAborted { run });
    // Two tasks of one submission promise the file.
    let run = open(&mut c, 10, whole, &[task("p").promises("run:p"), task("o").promises("run:p")]);
    c.expect(&["refuse run 10"]);
    c.feed(Event::RunAborted { run });
    // A file that nobody promises is refused as before; a promised file is not.
    let run = open(&mut c, 11, whole, &[task("late").reads("run:p")]);
    assert!(c.core.why_not_added(run).expect("it is refused").contains("which no task of the run writes"));
    c.feed(Event::RunAborted { run });
    add(&mut c, 12, whole, &[task("late").reads("run:x")]);
    c.cancel(whole, None).expect(&[
        "cancel 0.1 on 1",
        "end 1 cancelled",
        "end 2 cancelled",
        "end 3 cancelled",
        "end 11 cancelled",
    ]);
    c.done(1, (0, 1)).expect(&["end 0 done", "end run 1"]);
}

/// The journal records that the promising task has ended, and what was added.
#[test]
fn after_a_restart_promises_are_as_they_were() {
    for kept in [true, false] {
        let mut c = Cluster::new();
        let whole = c.open(&[task("plan").promises("run:x").array(), task("r").reads("run:x").array()]);
        let added = kept.then(|| open(&mut c, 2, whole, &[task("w").writes("run:x")]));
        c.feed(Event::TaskRestored { task: TaskId(0), outcome: Outcome::Done, outputs: vec![] });
        c.feed(Event::RunCommitted { run: whole });
        added.into_iter().for_each(|run| c.feed(Event::RunCommitted { run }));
        c.feed(Event::Recovered);
        if kept {
            c.node(1, 1).wait(3).expect(&["assign 2.1 to 1"]);
            c.done(1, (2, 1)).done(1, (1, 1));
            c.expect(&["end 2 done", "assign 1.1 to 1", "drop run:here.1/x on 1", "end 1 done", "end run 1"]);
        } else {
            c.expect(&["end 1 failed InputUnavailable", "end run 1"]);
            assert_eq!(why_failed(&c, whole), BROKEN);
        }
    }
}
