//! Runs that are forgotten, event by event.

use eyas_core::dispatcher::{DispatcherConfig, KeepRuns};
use eyas_core::event::Event;
use eyas_terms::*;
use eyas_testkit::build::{reads, task, writes};
use eyas_testkit::process::{Journal, Process};
use eyas_testkit::script::Cluster;

fn keeping(n_runs: Option<u32>, age_ns: Option<u64>) -> Cluster {
    Cluster::with(|config| config.keep_runs = Some(KeepRuns { n_runs, age_ns }))
}

/// A run of one task that reads `x` and does nothing else, and has ended.
fn reader(c: &mut Cluster, number: u64) -> RunId {
    let run = c.run(&[reads("x")]);
    c.has(1, "x", "bytes", Some("1"));
    c.done(1, (number, 1));
    c.take();
    run
}

#[test]
fn a_forgotten_run_leaves_nothing_and_its_numbers_are_not_given_again() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[reads("x").writes("y")]);
    c.has(1, "x", "bytes", Some("1")).done(1, (0, 1)).home(1, (0, 1), true);
    c.expect(&["assign 0.1 to 1", "end 0 done", "end run 1"]);
    c.feed(Event::RunForgotten { run: RunId(1) });
    c.expect(&["drop forgotten 0 on 1"]);
    assert!(!c.core.work().has_task(TaskId(0)) && c.core.work().find_run(RunId(1)).is_none());
    assert_eq!(
        (c.core.work().catalog().find(CatalogLocation::of("x")), c.core.queue_heap_bytes() < 100_000),
        (None, true)
    );
    // Late words of it: nobody minds.
    c.done(1, (0, 1)).home(1, (0, 1), true).expect(&[]);
    c.feed(Event::RunForgotten { run: RunId(1) });
    let object = ObjectId(0);
    c.feed(Event::ReplicasChanged { executor: ExecutorId(1), added: vec![], dropped: vec![object] });
    c.expect(&[]);
    c.run(&[reads("x")]);
    c.expect(&["assign 1.1 to 1"]);
    c.has(1, "x", "bytes", Some("1")).done(1, (1, 1)).expect(&["end 1 done", "end run 2"]);
}

#[test]
fn a_file_that_came_for_a_forgotten_run_is_dropped() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[reads("x")]);
    c.has(1, "x", "bytes", Some("1")).done(1, (0, 1)).take();
    let replica = eyas_core::event::ReplicaAdded {
        object: c.core.work().catalog().find(CatalogLocation::of("x")).expect("it was read"),
        digest: Digest([7; 32]),
        size_bytes: 5,
        version: None,
        run: None,
        private: false,
    };
    c.feed(Event::RunForgotten { run: RunId(1) });
    c.expect(&["drop forgotten 0 on 1"]);
    c.feed(Event::ReplicasChanged { executor: ExecutorId(2), added: vec![replica], dropped: vec![] });
    c.expect(&["drop forgotten 0 on 2"]);
}

#[test]
fn a_file_stays_as_long_as_an_unfinished_run_may_have_named_it() {
    let mut c = Cluster::new();
    c.node(1, 2);
    // The first run goes on, and may have named what the second one reads.
    c.run(&[task("long")]);
    let second = reader(&mut c, 1);
    let third = reader(&mut c, 2);
    c.feed(Event::RunForgotten { run: second });
    assert!(
        c.core.work().catalog().find(CatalogLocation::of("x")).is_some(),
        "the third run has named it, too"
    );
    c.feed(Event::RunForgotten { run: third });
    assert!(c.core.work().catalog().find(CatalogLocation::of("x")).is_some(), "the first run goes on");
    c.expect(&[]);
    c.done(1, (0, 1)).expect(&["end 0 done", "drop forgotten 0 on 1", "end run 1"]);
}

#[test]
fn runs_are_kept_by_number_and_age_those_that_ended_last() {
    let mut c = keeping(Some(2), Some(100_000_000_000));
    c.node(1, 1);
    let runs: Vec<RunId> = (0..4).map(|number| reader(&mut c, number)).collect();
    c.wait(1).expect(&["forget run 1", "forget run 2"]);
    // The journal is writing it.
    c.wait(1).expect(&[]);
    c.feed(Event::RunForgotten { run: runs[0] });
    c.feed(Event::RunForgotten { run: runs[1] });
    c.wait(97).expect(&[]);
    let last = reader(&mut c, 4);
    c.wait(1).expect(&["forget run 3"]);
    c.wait(3).expect(&["forget run 4"]);
    assert!(c.core.why_kept(last).is_none());
}

#[test]
fn a_run_that_goes_on_or_has_left_files_at_home_is_kept() {
    let mut c = keeping(Some(0), None);
    c.node(1, 1);
    let run = c.run(&[writes("y")]);
    c.expect(&["assign 0.1 to 1"]);
    assert_eq!(c.core.why_kept(run).as_deref(), Some("run 1 has not ended"));
    assert_eq!(c.core.why_kept(RunId(9)).as_deref(), Some("there is no run 9"));
    // Its attempt is lost; nobody is there to remove what it may have left.
    c.lost(1).cancel(run, None).take();
    c.wait(1).expect(&[]);
    assert!(c.core.why_kept(run).is_some_and(|why| why.contains("left at home")));
    c.node(2, 1).expect(&["remove parts of 0.1 on 2"]);
    c.wait(1).expect(&[]);
    c.parts_removed(2, &[0]);
    c.wait(1).expect(&["forget run 1"]);
}

/// A dispatcher that has done 1,000 runs needs hardly more disk than one that has done a few: whenever one looks, the
/// event log is about at most a quarter more tasks than those of known runs.
#[test]
fn an_event_log_is_at_most_a_quarter_longer_than_known_runs_need() {
    const N_KEPT: u64 = 40;
    let keep_runs = Some(KeepRuns { n_runs: Some(N_KEPT as u32), age_ns: None });
    let config = DispatcherConfig { keep_runs, ..DispatcherConfig::default() };
    let mut process = Process::start(&config, 1, Timestamp(0), &mut Journal::default());
    let mut now = Timestamp(0);
    let mut n_in_log_max = 0;
    for _ in 0..1_000 {
        let run = process.submit(now, &[reads("x").array()], false).expect("nothing refuses it");
        process.on_durable(now, process.journal().records.len());
        process.cancel(now, run, None);
        process.settle(now);
        now = now.plus_ns(2_000_000_000);
        process.tick(now);
        process.settle(now);
        n_in_log_max = n_in_log_max.max(run.0 - process.log_needed_from().0 + 1);
        process.on_durable(now, process.journal().records.len());
        process.settle(now);
    }
    assert_eq!(process.core().work().runs().count() as u64, N_KEPT);
    assert_eq!(u64::from(n_in_log_max), N_KEPT + N_KEPT / 4);
}

/// The run was refused at the first output of its second task. When it was given up, the task's other output got a
/// name that stayed (seed 1538 of the group worlds with uneven nodes and forgotten runs).
#[test]
fn a_refused_submission_leaves_no_names() {
    let mut c = Cluster::new();
    let run = c.open(&[writes("run:x").array(), writes("run:x").writes("run:y").array()]);
    c.expect(&["refuse run 1"]);
    c.feed(Event::RunAborted { run });
    c.wait(1).expect(&[]);
    assert_eq!(c.core.names_of_forgotten_runs(), [""; 0]);
}
