//! Tasks that are added to a run while it goes on, event by event.

use eyas_core::dispatcher::TaskState;
use eyas_core::event::*;
use eyas_core::*;
use eyas_testkit::bench::Cluster;
use eyas_testkit::build::{Task, reads, task, writes};

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
    assert_eq!(c.core.run_of(TaskId(3)), whole);
    assert_eq!(c.core.find_run(RunId(7)), None);
    c.done(1, (1, 1)).expect(&["end 1 done", "assign 2.1 to 1"]);
    c.done(1, (2, 1)).expect(&["drop run:here.1/x on 1", "end 2 done", "assign 3.1 to 1"]);
    c.done(1, (3, 1)).expect(&["drop run:here.1/y on 1", "end 3 done", "end run 1"]);
    assert_eq!(c.core.why_closed(whole).as_deref(), Some("run 1 has ended; submit a run of its own"));
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
fn who_goes_away_leaves_nothing_and_holds_nothing_up() {
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
    // Also who has ended is a writer: of files that stay, and of those at home.
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
fn what_is_added_to_a_cancelled_run_is_cancelled() {
    let mut c = Cluster::new();
    let whole = c.run(&[task("a")]);
    let run = open(&mut c, 7, whole, &[task("b")]);
    c.cancel(whole, None).expect(&["end 0 cancelled"]);
    assert_eq!(c.core.why_not_added(run).as_deref(), Some("run 1 was cancelled"));
    // Its commit was on its way to the disk.
    c.feed(Event::RunCommitted { run });
    c.expect(&["end 1 cancelled", "end run 1"]);
}

/// The journal tells all submissions and ends, then what was committed.
#[test]
fn after_a_restart_a_run_has_what_was_added() {
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
    let state = c.core.find_run(whole).expect("it is there");
    assert_eq!((state.n_tasks, state.n_done, state.ended), (3, 2, None));
    // Nobody has the file any more: it is made again for the reader.
    c.node(1, 1).wait(3).expect(&["revive 0 for run:here.1/x", "assign 0.65537 to 1"]);
    c.done(1, (0, 65537)).expect(&["end 0 done", "assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);
}
