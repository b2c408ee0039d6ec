//! Executors that end at their walltime, or that announce that they leave: what they are given, what becomes of what they had,
//! and that nothing of it counts against a task.

use eyas_core::event::{AttemptReport, Event, Offer, Times, Walltime};
use eyas_core::{ExecutorId, FailureKind, Outcome, TaskId, Timestamp};
use eyas_testkit::build::{Task, task as of_id};
use eyas_testkit::script::Cluster;
use std::sync::Arc;

const S: u64 = 1_000_000_000;

/// An executor with `slots` slots and a walltime of `whole_s` seconds, which has just begun.
fn limited(c: &mut Cluster, id: u32, slots: u32, whole_s: u64) {
    let walltime = Some(Walltime { whole_ns: whole_s * S, left_ns: whole_s * S });
    c.offers(id, Offer { slots, cache_bytes: 1_000_000, walltime, ..Offer::default() });
}

/// `n` tasks of one stage.
fn stage(n: usize) -> Vec<Task> {
    (0..n).map(|i| of_id(&format!("t{i}")).label("stage")).collect()
}

/// The attempt ends well after its program has run for `run_s` seconds, which are over now.
fn ran(c: &mut Cluster, executor: u32, task: u64, attempt: u32, run_s: f64) {
    let started = Timestamp(c.now.0 - (run_s * S as f64) as u64);
    let times = Times { received: started, inputs_ready: started, started, exited: c.now };
    let (inputs, outputs) = (vec![], vec![]);
    let (task, attempt) = (TaskId(task), eyas_core::AttemptNo(attempt));
    let report = AttemptReport {
        task,
        attempt,
        outcome: Outcome::Done,
        times,
        inputs,
        outputs,
        cpu_ns: 0,
        rss_bytes_max: 0,
    };
    c.feed(Event::AttemptEnded { executor: ExecutorId(executor), report: Arc::new(report) });
}

fn lost(c: &mut Cluster, id: u32) {
    c.feed(Event::ExecutorLost { executor: ExecutorId(id), reason: "it is gone".into() });
}

#[test]
fn a_task_goes_to_an_executor_that_has_time_enough_for_it() {
    let mut c = Cluster::new();
    c.node(1, 2).run(&stage(4));
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    c.feed(Event::ExecutorDraining { executor: ExecutorId(1) });
    c.wait(30);
    ran(&mut c, 1, 0, 1, 30.0);
    c.expect(&["end 0 done"]);
    // The stage's tasks take about half a minute, and up to 52 s as far as one task shows.
    limited(&mut c, 2, 1, 100);
    c.expect(&["assign 2.1 to 2"]);
    limited(&mut c, 3, 1, 40);
    c.expect(&[]);
    limited(&mut c, 4, 1, 80);
    c.expect(&["assign 3.1 to 4"]);
}

#[test]
fn a_stage_of_which_nothing_is_known_is_placed_anywhere_until_the_drain() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 80);
    c.wait(69).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 80);
    // The last eighth of its time.
    c.wait(71).expect(&["drain 1 because its walltime of 80 s is about to end"]);
    c.run(&stage(1));
    c.expect(&[]);
}

#[test]
fn a_task_that_is_too_long_for_every_executor_is_given_to_a_fresh_one() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 100);
    c.run(&stage(2));
    c.expect(&["assign 0.1 to 1"]);
    c.wait(80);
    ran(&mut c, 1, 0, 1, 80.0);
    // What is left there is too little.
    c.expect(&["end 0 done"]);
    limited(&mut c, 2, 1, 100);
    c.expect(&["assign 1.1 to 2"]);
}

#[test]
fn what_an_end_cuts_off_counts_as_no_loss_and_runs_again() {
    let mut c = Cluster::with(|config| config.losses_max = 0);
    limited(&mut c, 1, 1, 80);
    c.wait(60).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    c.wait(11).expect(&["recall 0.1 from 1", "drain 1 because its walltime of 80 s is about to end"]);
    c.wait(9);
    lost(&mut c, 1);
    c.node(2, 1).expect(&["assign 0.2 to 2"]);
    // Nobody foresaw this.
    lost(&mut c, 2);
    c.expect(&["end 0 failed ExecutorLost", "end run 1"]);
}

#[test]
fn a_task_that_needs_more_than_the_walltime_ends_in_a_sentence() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 600);
    let run = c.run(&stage(1));
    c.wait(600);
    lost(&mut c, 1);
    limited(&mut c, 2, 1, 600);
    c.take();
    c.wait(600);
    lost(&mut c, 2);
    let last = c.take();
    assert_eq!(last[last.len() - 2..], ["end 0 failed CutOff", "end run 1"]);
    let failures = &c.core.find_run(run).expect("it is kept").failures;
    let (_, failure) = failures.front().expect("it failed");
    assert_eq!(failure.kind, FailureKind::CutOff);
    let sentence = "the task needs more than the walltime of 10 min: 2 nodes ended while it ran, which it had for up to 10 min";
    assert_eq!(failure.message, sentence);
}

#[test]
fn a_task_that_was_cut_off_late_in_a_node_s_life_gets_one_with_more_time() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 600);
    c.wait(400).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    // It had 200 s there, so it is expected to take 300 s.
    c.wait(200);
    limited(&mut c, 2, 1, 250);
    limited(&mut c, 3, 1, 900);
    c.take();
    lost(&mut c, 1);
    c.expect(&["assign 0.2 to 3"]);
}

#[test]
fn an_executor_that_announces_its_end_gives_back_what_has_not_begun() {
    let mut c = Cluster::with(|config| config.losses_max = 0);
    c.node(1, 1).run(&stage(1));
    c.expect(&["assign 0.1 to 1"]);
    let reason = "it was told to stop".into();
    c.feed(Event::ExecutorLeaving { executor: ExecutorId(1), within_ns: 30 * S, reason });
    c.expect(&["recall 0.1 from 1", "drain 1 because it was told to stop"]);
    c.run(&stage(1));
    c.expect(&[]);
    assert!(!c.core.may_leave(c.now, ExecutorId(1)));
    c.wait(20);
    lost(&mut c, 1);
    c.node(2, 1).expect(&["assign 0.2 to 2"]);
}

#[test]
fn an_executor_that_comes_back_keeps_its_end() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 80);
    c.wait(60);
    c.feed(Event::ExecutorSilent { executor: ExecutorId(1) });
    c.wait(2).join(1, 1, &[]);
    c.wait(9).expect(&["drain 1 because its walltime of 80 s is about to end"]);
}

#[test]
fn a_waiting_task_says_that_no_executor_has_time_enough() {
    let mut c = Cluster::new();
    limited(&mut c, 1, 1, 100);
    c.run(&stage(2));
    c.wait(60);
    ran(&mut c, 1, 0, 1, 60.0);
    let state = c.core.task_state(TaskId(1));
    let eyas_core::dispatcher::TaskState::Ready { reason: Some(reason) } = state else { panic!("{state:?}") };
    assert!(reason.contains("1 with too little time until their end"), "{reason}");
    let mut views = vec![];
    let demand = c.core.demand(0, &mut views);
    assert!(demand.nodes[0].has_no_time && !demand.nodes[0].leaves);
    c.take();
}
