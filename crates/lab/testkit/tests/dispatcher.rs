//! The dispatcher, event by event: exactly these actions and no other.

use eyas_core::dispatcher::TaskState;
use eyas_core::event::{Event, Offer};
use eyas_core::home_share::{HomeReport, HomeShare};
use eyas_terms::*;
use eyas_testkit::build::{Task, array_of, reads, task, writes};
use eyas_testkit::script::Cluster;

fn tasks(n: usize) -> Vec<Task> {
    (0..n).map(|i| task(&format!("t{i}"))).collect()
}

#[test]
fn the_life_of_a_task_with_an_output() {
    let mut c = Cluster::new();
    c.run(&[reads("x").writes("y")]);
    assert_eq!(c.state(0), TaskState::Ready { reason: Some("no executor has joined".into()) });
    c.expect(&[]).node(1, 2).expect(&["assign 0.1 to 1"]);
    c.done(1, (0, 1)).expect(&[]);
    assert!(matches!(c.state(0), TaskState::Reserved { landing: true, .. }));
    c.home(1, (0, 1), true).expect(&["end 0 done", "end run 1"]);
    assert_eq!(c.state(0), TaskState::Done);
}

#[test]
fn late_and_repeated_words_change_nothing() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[writes("y")]);
    c.expect(&["assign 0.1 to 1"]);
    c.done(2, (0, 1)).done(1, (0, 2)).home(1, (0, 1), true).done(1, (9, 1)).expect(&[]);
    c.done(1, (0, 1)).done(1, (0, 1)).expect(&[]);
    c.home(1, (0, 1), true).home(1, (0, 1), true).done(1, (0, 1)).expect(&["end 0 done", "end run 1"]);
}

#[test]
fn failures_of_the_cluster_do_not_use_up_the_users_retries() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[task("t").retries(1)]);
    c.expect(&["assign 0.1 to 1"]);
    c.failed(1, (0, 1), FailureKind::Node).wait(1).expect(&["assign 0.2 to 1"]);
    c.failed(1, (0, 2), FailureKind::ExitCode(1)).expect(&["assign 0.3 to 1"]);
    c.failed(1, (0, 3), FailureKind::ExitCode(1)).expect(&["end 0 failed ExitCode(1)", "end run 1"]);
}

#[test]
fn a_task_on_a_disk_that_others_filled_too_runs_alone_in_the_end() {
    let mut c = Cluster::with(|config| config.weather_max = 0);
    c.node(1, 1);
    c.run(&[task("t")]);
    // The node is well, so it does not rest.
    c.failed(1, (0, 1), FailureKind::DiskShared).failed(1, (0, 2), FailureKind::DiskShared);
    c.expect(&["assign 0.1 to 1", "assign 0.2 to 1", "assign 0.3 to 1"]);
    assert_eq!(c.assignments.iter().map(|a| a.alone).collect::<Vec<_>>(), [false, false, true]);
    c.failed(1, (0, 3), FailureKind::ExitCode(1)).expect(&["end 0 failed ExitCode(1)", "end run 1"]);
}

#[test]
fn weather_has_an_end_too() {
    let mut c = Cluster::with(|config| config.weather_max = 2);
    c.node(1, 1);
    c.run(&[task("t")]);
    c.failed(1, (0, 1), FailureKind::Node).wait(1).failed(1, (0, 2), FailureKind::Node).wait(2);
    c.expect(&["assign 0.1 to 1", "assign 0.2 to 1", "assign 0.3 to 1"]);
    c.failed(1, (0, 3), FailureKind::Node).expect(&["end 0 failed Node", "end run 1"]);
}

#[test]
fn a_node_that_fails_at_once_does_not_eat_the_queue() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[task("t"), task("u")]);
    c.failed(1, (0, 1), FailureKind::Node).expect(&["assign 0.1 to 1"]);
    // The healthy node gets all tasks while the sick one rests, each time longer.
    c.node(2, 1).expect(&["assign 0.2 to 2"]);
    c.wait(1).expect(&["assign 1.1 to 1"]);
    c.failed(1, (1, 1), FailureKind::Node).wait(1).expect(&[]);
    c.done(2, (0, 2)).expect(&["end 0 done", "assign 1.2 to 2"]);
    c.done(2, (1, 2)).expect(&["end 1 done", "end run 1"]);
}

#[test]
fn attempts_behind_full_slots_are_recalled_for_idle_slots() {
    let mut c = Cluster::new();
    c.node(1, 1);
    // There are more than twice as many tasks as slots: one task goes ahead.
    c.run(&[task("a"), task("b"), task("c")]);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    c.node(2, 1).expect(&["assign 2.1 to 2"]);
    c.wait(2).expect(&[]);
    c.done(2, (2, 1)).expect(&["end 2 done"]);
    c.wait(1).expect(&["recall 1.1 from 1"]);
    // There is no answer, so the program may have begun, and the other attempt is asked back. No attempt is
    // asked back twice.
    c.wait(1).expect(&["recall 0.1 from 1"]);
    c.wait(1).expect(&[]);
    c.ended(1, (1, 1), Outcome::Cancelled).expect(&["assign 1.2 to 2"]);
    c.done(1, (0, 1)).done(2, (1, 2)).expect(&["end 0 done", "end 1 done", "end run 1"]);
}

#[test]
fn a_file_that_a_node_reads_from_home_is_not_read_by_a_second_node_while_there_is_other_work() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[reads("x"), reads("x"), reads("y"), reads("x")]);
    c.expect(&["assign 0.1 to 1", "assign 2.1 to 2"]);
    // No other task is left, and a task is not kept waiting for a transfer that is under way elsewhere.
    c.done(2, (2, 1)).expect(&["end 2 done", "assign 1.1 to 2"]);
    c.lost(1).expect(&[]);
    c.done(2, (1, 1)).expect(&["end 1 done", "assign 0.2 to 2"]);
    c.done(2, (0, 2)).expect(&["end 0 done", "assign 3.1 to 2"]);
    c.done(2, (3, 1)).expect(&["end 3 done", "end run 1"]);
}

#[test]
fn a_task_that_lacks_fewer_files_on_their_way_goes_first_and_a_short_search_is_made_each_time() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    let with_program = |file: &str| reads("program").reads(file);
    // All tasks lack the program, which is on its way to the first node; only the last task lacks nothing else.
    c.run(&[with_program("x"), with_program("x"), with_program("y")]);
    c.expect(&["assign 0.1 to 1", "assign 2.1 to 2"]);
    // No other task is left, so the search has no result.
    c.done(2, (2, 1)).expect(&["end 2 done", "assign 1.1 to 2"]);
    c.done(1, (0, 1)).done(2, (1, 1)).expect(&["end 0 done", "end 1 done", "end run 1"]);
    // The next search is made all the same.
    c.run(&[reads("v"), reads("v"), reads("w")]);
    c.expect(&["assign 3.1 to 1", "assign 5.1 to 2"]);
}

#[test]
fn a_long_search_without_result_is_made_again_when_something_has_arrived() {
    let mut c = Cluster::with(|config| config.placement_config.ahead = false);
    c.node(1, 1).node(2, 1);
    let with_program = |file: &str| reads("program").reads(file);
    let mut tasks = vec![with_program("x"), with_program("x"), with_program("x")];
    tasks.extend((0..200).map(|i| with_program(&format!("y{i}"))));
    c.run(&tasks);
    c.expect(&["assign 0.1 to 1", "assign 3.1 to 2"]);
    // The search for task 3 went through many tasks, so the next decision is taken without one.
    c.done(2, (3, 1)).expect(&["end 3 done", "assign 1.1 to 2"]);
    c.has(1, "program", "program", None);
    c.done(2, (1, 1)).expect(&["end 1 done", "assign 4.1 to 2"]);
}

#[test]
fn a_restarted_dispatcher_waits_for_executors_to_come_back() {
    let mut c = Cluster::new();
    let run = c.open(&[task("a").array(), task("b").array()]);
    c.feed(Event::RunCommitted { run });
    c.feed(Event::Recovered);
    c.node(1, 1).expect(&[]);
    assert!(matches!(c.state(0), TaskState::Ready { reason: Some(why) } if why.contains("restarted")));
    // The second executor still runs the first task, which would have been given to the first executor.
    c.join(2, 1, &[(0, 1)]).expect(&[]);
    c.wait(2).expect(&["assign 1.1 to 1"]);
    c.done(2, (0, 1)).done(1, (1, 1)).expect(&["end 0 done", "end 1 done", "end run 1"]);
}

#[test]
fn a_restarted_dispatcher_gives_nothing_out_before_the_journal_says_that_it_does() {
    let mut c = Cluster::new();
    let run = c.open(&[task("a").array(), task("b").array()]);
    c.feed(Event::RunCommitted { run });
    c.feed(Event::Recovered);
    c.journal_waits = true;
    c.node(1, 1).wait(2).expect(&["record that it gives out"]);
    // Until then a late executor is welcome with its work.
    c.wait(3).join(2, 1, &[(0, 1)]).expect(&[]);
    c.on_disk().expect(&["assign 1.1 to 1"]);
}

#[test]
fn a_long_lease_makes_a_restarted_dispatcher_wait_longer() {
    for (lease_s, grace_s) in [(1, 2), (15, 2), (60, 5), (3600, 10)] {
        let mut c = Cluster::with(|config| config.lease_ns = lease_s * 1_000_000_000);
        let run = c.open(&[task("a").array()]);
        c.feed(Event::RunCommitted { run });
        c.feed(Event::Recovered);
        // It joins only now, as a short lease would be over.
        c.wait(grace_s - 1).node(1, 1).expect(&[]);
        c.wait(1).expect(&["assign 0.1 to 1"]);
    }
}

/// What a third process does with what an executor has of the first one.
fn third_process(gave_nothing: bool, owner: u64) -> Cluster {
    let mut c = Cluster::new();
    let run = c.open(&[task("a").array()]);
    c.feed(Event::RunCommitted { run });
    c.feed(Event::Began { incarnation: 1, gave_nothing: false });
    c.feed(Event::Began { incarnation: 2, gave_nothing });
    c.feed(Event::Began { incarnation: 3, gave_nothing: false });
    c.feed(Event::Recovered);
    let attempts = vec![(TaskId(0), AttemptNo(1))];
    c.offers(1, Offer { slots: 1, attempts, owner: Some(owner), ..Offer::default() });
    c
}

#[test]
fn an_executor_that_missed_a_process_keeps_its_work_if_that_process_gave_nothing_out() {
    third_process(true, 1).expect(&[]).wait(3).expect(&[]);
    third_process(false, 2).expect(&[]);
    // Somebody else may have been given the task, and may have brought its result home.
    third_process(false, 1).expect(&["cancel 0.1 on 1"]);
    // This process did not give it out.
    third_process(true, 3).expect(&["cancel 0.1 on 1"]);
}

#[test]
fn a_started_run_takes_more_tasks_and_ends_only_when_it_is_complete() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let run = c.open(&[task("a").array()]);
    c.expect(&[]);
    c.feed(Event::RunStarted { run });
    c.expect(&["assign 0.1 to 1"]);
    c.done(1, (0, 1)).expect(&["end 0 done"]);
    let array = task("b").array();
    c.feed(Event::ArrayAdded { run, array });
    c.expect(&["assign 1.1 to 1"]);
    c.feed(Event::RunCommitted { run });
    c.expect(&[]);
    c.done(1, (1, 1)).expect(&["end 1 done", "end run 1"]);
    // No task can be added to the run any more.
    let array = task("c").array();
    c.feed(Event::ArrayAdded { run, array });
    c.expect(&[]);
}

#[test]
fn what_can_never_help_is_not_tried_again() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[task("t").retries(5)]);
    c.failed(1, (0, 1), FailureKind::NotStarted);
    c.expect(&["assign 0.1 to 1", "end 0 failed NotStarted", "end run 1"]);
}

#[test]
fn a_program_that_wrote_to_its_input_gets_copies() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[reads("x")]);
    c.failed(1, (0, 1), FailureKind::InputModified).expect(&["assign 0.1 to 1", "assign 0.2 to 1"]);
    assert!(!c.assignments[0].private_inputs && c.assignments[1].private_inputs);
}

#[test]
fn cancelled_in_every_state() {
    let mut c = Cluster::new();
    c.node(1, 1);
    // 0 runs, 1 lands, 2 is ahead, 3 is ready, 4 waits for 3, 5 waits for 4.
    let run =
        c.run(&[writes("a"), writes("b"), task("ahead"), writes("c"), reads("c").writes("d"), reads("d")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "assign 1.1 to 1", "assign 2.1 to 1"]);
    // Cancelling a task cancels the tasks that need it.
    c.cancel(run, Some(4)).expect(&["end 4 cancelled", "end 5 cancelled"]);
    c.cancel(run, None).expect(&["cancel 1.1 on 1", "cancel 2.1 on 1", "end 3 cancelled"]);
    c.cancel(run, None).expect(&[]);
    c.home(1, (0, 1), true).expect(&["end 0 done"]);
    c.done(1, (1, 1)).home(1, (1, 1), false).expect(&["end 1 cancelled"]);
    c.ended(1, (2, 1), Outcome::Cancelled).expect(&["end 2 cancelled", "end run 1"]);
}

#[test]
fn a_cancelled_task_that_was_landing_is_not_tried_again() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let run = c.run(&[writes("a").retries(3)]);
    c.done(1, (0, 1)).cancel(run, None).expect(&["assign 0.1 to 1"]);
    c.lost(1).expect(&["end 0 cancelled", "end run 1"]);
}

#[test]
fn files_that_a_lost_attempt_left_at_home_are_removed_when_the_task_ends_without_another_landing() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 0).node(3, 0);
    let run = c.run(&[writes("y")]);
    // The landing may have begun before the report of the program's end arrived.
    c.cancel(run, None).expect(&["assign 0.1 to 1", "cancel 0.1 on 1"]);
    c.lost(1).expect(&["end 0 cancelled", "end run 1", "remove parts of 0.1 on 2"]);
    c.wait(60).expect(&[]);
    // An executor that leaves without an answer, or was disconnected meanwhile, may not have received the
    // request.
    c.lost(2).expect(&["remove parts of 0.1 on 3"]);
    c.silent(3).wait(1).expect(&[]).join(3, 0, &[]).expect(&["remove parts of 0.1 on 3"]);
    c.lost(3).expect(&[]);
    c.node(4, 0).expect(&["remove parts of 0.1 on 4"]);
    c.parts_removed(4, &[0]).lost(4).node(5, 1).expect(&[]);
    assert_eq!(c.core.leftovers().count(), 0);
}

#[test]
fn files_left_at_home_are_removed_by_a_later_landing_or_after_the_last_attempt() {
    let mut c = Cluster::new();
    c.node(1, 1).run(&[writes("y")]);
    c.done(1, (0, 1)).lost(1).expect(&["assign 0.1 to 1"]);
    c.node(2, 1).done(2, (0, 2)).home(2, (0, 2), true);
    c.expect(&["assign 0.2 to 2", "end 0 done", "end run 1"]);

    let mut c = Cluster::new();
    c.node(1, 1).run(&[writes("y")]);
    c.done(1, (0, 1)).lost(1).expect(&["assign 0.1 to 1"]);
    c.node(2, 1).failed(2, (0, 2), FailureKind::ExitCode(1));
    c.expect(&["assign 0.2 to 2", "end 0 failed ExitCode(1)", "end run 1", "remove parts of 0.2 on 2"]);
}

#[test]
fn nobody_is_asked_about_attempts_that_leave_nothing_at_home() {
    let mut c = Cluster::new();
    c.node(1, 2).node(2, 0);
    // The one makes nothing, the other's executor lives and removes it itself.
    let run = c.run(&[task("t"), writes("y")]);
    c.cancel(run, None).take();
    c.ended(1, (1, 1), Outcome::Cancelled).expect(&["end 1 cancelled"]);
    c.lost(1).expect(&["end 0 cancelled", "end run 1"]);
}

#[test]
fn after_a_restart_a_failed_attempt_may_have_had_forerunners() {
    let mut c = Cluster::new();
    let run = c.run(&[writes("a"), writes("b"), writes("c")]);
    c.feed(Event::Recovered);
    c.node(1, 1).wait(3).expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    c.failed(1, (0, 1), FailureKind::ExitCode(1)).take();
    assert_eq!(c.core.leftovers().collect::<Vec<_>>(), [(TaskId(0), Some(ExecutorId(1)))]);
    c.parts_removed(1, &[0]).cancel(run, Some(1)).take();
    c.ended(1, (1, 1), Outcome::Cancelled);
    assert!(c.take().contains(&"remove parts of 1.1 on 1".to_string()));
    // What was not there before the restart had none.
    c.run(&[writes("d")]);
    c.done(1, (2, 1)).home(1, (2, 1), true).take();
    c.failed(1, (3, 1), FailureKind::ExitCode(1)).expect(&["end 3 failed ExitCode(1)", "end run 2"]);
}

#[test]
fn a_cancel_that_nobody_heard_is_repeated() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let run = c.run(&[task("t")]);
    c.silent(1).cancel(run, None).expect(&["assign 0.1 to 1", "cancel 0.1 on 1"]);
    c.join(1, 1, &[(0, 1)]).expect(&["cancel 0.1 on 1"]);
    c.ended(1, (0, 1), Outcome::Cancelled).expect(&["end 0 cancelled", "end run 1"]);
}

#[test]
fn cancelling_a_task_of_an_aborted_run_is_harmless() {
    let mut c = Cluster::new();
    let run = c.open(&[task("t").array()]);
    c.feed(Event::RunAborted { run });
    c.cancel(run, Some(0)).cancel(run, None).expect(&[]);
}

#[test]
fn an_attempt_that_ends_as_cancelled_and_was_not_cancelled_is_repeated() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[task("t")]);
    c.ended(1, (0, 1), Outcome::Cancelled).expect(&["assign 0.1 to 1", "assign 0.2 to 1"]);
}

#[test]
fn a_lost_executor_gives_back_what_it_had() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("a"), task("b")]);
    c.expect(&["assign 0.1 to 1"]).done(1, (0, 1)).expect(&["assign 1.1 to 1"]);
    c.lost(1).expect(&[]);
    c.node(2, 2).expect(&["assign 0.2 to 2", "assign 1.2 to 2"]);
}

#[test]
fn a_given_up_attempt_is_given_out_again_when_the_journal_has_recorded_it() {
    let mut c = Cluster::new();
    c.journal_waits = true;
    c.node(1, 1);
    c.run(&[task("a"), task("b")]);
    c.node(2, 1).expect(&["assign 0.1 to 1", "assign 1.1 to 2"]);
    c.lost(1).done(2, (1, 1)).expect(&["record 0.1 given up", "end 1 done"]);
    assert_eq!(c.state(0), TaskState::Waiting { n_missing: 1 });
    assert!(c.core.waits_for(TaskId(0)).contains("journal"), "{}", c.core.waits_for(TaskId(0)));
    // It comes back in between: somebody else may be given its task at any moment.
    c.join(3, 1, &[(0, 1)]).expect(&["record 0.1 given up", "cancel 0.1 on 3"]);
    c.on_disk().expect(&["assign 0.2 to 3"]);
}

#[test]
fn a_given_up_task_that_ended_stays_ended_when_the_journal_has_recorded_it() {
    let mut c = Cluster::new();
    c.journal_waits = true;
    c.node(1, 1);
    let run = c.run(&[task("a")]);
    c.lost(1).cancel(run, None);
    c.expect(&["assign 0.1 to 1", "record 0.1 given up", "end 0 cancelled", "end run 1"]);
    c.on_disk().node(2, 1).expect(&[]);
}

#[test]
fn an_attempt_that_an_earlier_process_gave_up_is_not_adopted() {
    let mut c = Cluster::new();
    c.run(&[task("a"), writes("b")]);
    c.feed(Event::AttemptGivenUp { task: TaskId(0), attempt: AttemptNo(2) });
    c.feed(Event::AttemptGivenUp { task: TaskId(1), attempt: AttemptNo(1) });
    c.feed(Event::Recovered);
    c.join(1, 2, &[(0, 2), (1, 2)]).expect(&["cancel 0.2 on 1"]);
    c.wait(3).expect(&["assign 0.3 to 1"]);
    // And what the lost one may have left at home is remembered.
    c.failed(1, (1, 2), FailureKind::ExitCode(1))
        .expect(&["end 1 failed ExitCode(1)", "remove parts of 1.2 on 1"]);
    c.parts_removed(1, &[1]).done(1, (0, 3)).expect(&["end 0 done", "end run 1"]);
}

#[test]
fn a_task_that_loses_executors_is_taken_to_be_the_reason() {
    let mut c = Cluster::with(|config| config.losses_max = 1);
    c.run(&[task("t")]);
    c.node(1, 1).lost(1).node(2, 1).expect(&["assign 0.1 to 1", "assign 0.2 to 2"]);
    c.lost(2).expect(&["end 0 failed ExecutorLost", "end run 1"]);
}

#[test]
fn a_task_that_was_landing_did_not_take_its_executor_along() {
    let mut c = Cluster::with(|config| config.losses_max = 0);
    c.run(&[writes("a")]);
    c.node(1, 1).done(1, (0, 1)).lost(1).node(2, 1).expect(&["assign 0.1 to 1", "assign 0.2 to 2"]);
}

#[test]
fn silence_is_waited_out_until_the_lease_ends() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[task("t")]);
    c.expect(&["assign 0.1 to 1"]).silent(1).node(2, 1).wait(15).expect(&[]);
    c.wait(1).expect(&["forget 1", "assign 0.2 to 2"]);
}

#[test]
fn a_draining_executor_that_falls_silent_is_given_up_all_the_same() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[task("t")]);
    c.expect(&["assign 0.1 to 1"]).silent(1);
    c.feed(Event::ExecutorDraining { executor: ExecutorId(1) });
    c.wait(16).expect(&["forget 1"]);
}

#[test]
fn draining_outlives_a_reconnect() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.feed(Event::ExecutorDraining { executor: ExecutorId(1) });
    c.silent(1).join(1, 1, &[]);
    c.run(&[task("t")]);
    c.expect(&[]).node(2, 1).expect(&["assign 0.1 to 2"]);
}

#[test]
fn an_executor_that_rejoins_keeps_its_attempts_and_loses_those_it_never_received() {
    let mut c = Cluster::new();
    c.node(1, 3);
    c.run(&[writes("a"), task("b"), task("c")]);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1", "assign 2.1 to 1"]);
    c.done(1, (0, 1)).silent(1);
    // It never heard of task 2, its landing task is gone, and it has something that nobody gave it.
    c.join(1, 3, &[(1, 1), (7, 1)]).expect(&["cancel 7.1 on 1", "assign 0.2 to 1", "assign 2.2 to 1"]);
    c.done(1, (1, 1)).expect(&["end 1 done"]);
}

#[test]
fn a_restarted_dispatcher_goes_on() {
    let mut c = Cluster::new();
    let run = c.open(&[task("a").array(), writes("b").array(), task("c").array(), task("d").array()]);
    c.feed(Event::TaskRestored { task: TaskId(0), outcome: Outcome::Done, outputs: vec![] });
    c.feed(Event::RunCommitted { run });
    c.expect(&[]);
    // It still runs 1 and 2, and has not heard that the end of 0 is recorded.
    c.join(1, 2, &[(0, 1), (1, 3), (2, 1)]).expect(&["cancel 0.1 on 1"]);
    assert!(matches!(c.state(1), TaskState::Reserved { attempt: AttemptNo(3), .. }));
    // Task 1 had been landing: both messages are sent again.
    c.done(1, (1, 3)).home(1, (1, 3), true).expect(&["assign 3.1 to 1", "end 1 done"]);
    c.done(1, (2, 1)).done(1, (3, 1)).expect(&["end 2 done", "end 3 done", "end run 1"]);
}

#[test]
fn attempt_numbers_do_not_repeat_after_a_restart() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[task("t")]);
    c.expect(&["assign 0.1 to 1"]);
    // An executor of the earlier process comes late.
    c.join(2, 1, &[(0, 4)]).expect(&["cancel 0.4 on 2"]);
    c.lost(1).expect(&["assign 0.5 to 2"]);
}

#[test]
fn dependents_of_a_maker_that_failed_before_the_restart_fail() {
    let mut c = Cluster::new();
    let run = c.open(&[writes("y").array(), reads("y").array(), writes("z").array()]);
    let failure = Failure { kind: FailureKind::ExitCode(1), message: String::new() };
    c.feed(Event::TaskRestored { task: TaskId(0), outcome: Outcome::Failed(failure), outputs: vec![] });
    c.feed(Event::TaskRestored { task: TaskId(2), outcome: Outcome::Done, outputs: vec![] });
    c.feed(Event::RunCommitted { run });
    c.expect(&["end 1 failed InputUnavailable", "end run 1"]);
    // A later run may make it, and what it makes counts.
    c.node(1, 2);
    c.run(&[writes("y"), reads("y")]);
    c.expect(&["assign 3.1 to 1"]).done(1, (3, 1)).home(1, (3, 1), true);
    c.expect(&["end 3 done", "assign 4.1 to 1"]);
}

#[test]
fn a_waiting_task_starts_when_its_inputs_are_made() {
    let mut c = Cluster::new();
    c.node(1, 4);
    c.run(&[reads("a").reads("b"), writes("a"), writes("b")]);
    assert_eq!(c.state(0), TaskState::Waiting { n_missing: 2 });
    let makes = |c: &Cluster, i| format!("which task `{}` makes", c.core.work().user_id(TaskId(i)));
    let both = format!("`a`, {}; `b`, {}", makes(&c, 1), makes(&c, 2));
    assert_eq!(c.core.waits_for(TaskId(0)), both);
    c.expect(&["assign 1.1 to 1", "assign 2.1 to 1"]);
    c.done(1, (1, 1)).home(1, (1, 1), true).done(1, (2, 1)).expect(&["end 1 done"]);
    assert_eq!(c.core.waits_for(TaskId(0)), format!("`b`, {}", makes(&c, 2)));
    c.home(1, (2, 1), true).expect(&["end 2 done", "assign 0.1 to 1"]);
    let input = &c.assignments[2].inputs[0];
    assert!(!input.check_home, "this run made it, home need not be asked");
    assert_eq!(input.known.as_ref().map(|k| k.size_bytes), Some(10));
}

#[test]
fn a_failed_maker_takes_a_long_chain_with_it() {
    let n = 20_000;
    let mut c = Cluster::new();
    c.node(1, 1);
    let mut chain = vec![writes("0")];
    chain.extend((1..n).map(|i| reads(&(i - 1).to_string()).writes(&i.to_string())));
    let run = c.open(&[]);
    let mut out = vec![];
    for link in &chain {
        c.core.handle(c.now, Event::ArrayAdded { run, array: link.array() }, &mut out);
    }
    c.core.handle(c.now, Event::RunCommitted { run }, &mut out);
    let report =
        c.report((0, 1), Outcome::Failed(Failure { kind: FailureKind::ExitCode(1), message: "".into() }));
    c.core.handle(c.now, Event::AttemptEnded { executor: ExecutorId(1), report: report.into() }, &mut out);
    assert_eq!(c.core.work().find_run(run).map(|r| r.ends.n_failed), Some(n));
}

#[test]
fn two_tasks_that_write_the_same_are_refused() {
    let mut c = Cluster::new();
    let run = c.open(&[writes("y").array(), writes("y").array()]);
    c.expect(&["refuse run 1"]).feed(Event::RunAborted { run });
    // The refused one holds no name back; a committed one does until it has ended.
    c.run(&[writes("y")]);
    c.open(&[writes("y").array()]);
    c.expect(&["refuse run 3"]);
}

#[test]
fn priorities_go_first_also_when_they_come_late() {
    let mut c = Cluster::with(|config| config.placement_config.window = 2);
    c.run(&tasks(4));
    c.run(&[task("urgent").priority(1)]);
    c.run(&[task("last").priority(-1)]);
    c.node(1, 1).expect(&["assign 4.1 to 1", "assign 0.1 to 1"]);
    c.done(1, (4, 1)).expect(&["end 4 done", "end run 2", "assign 1.1 to 1"]);
    for (task, next) in [(0, "assign 2.1 to 1"), (1, "assign 3.1 to 1")] {
        c.done(1, (task, 1)).expect(&[&format!("end {task} done"), next]);
    }
    c.done(1, (2, 1)).expect(&["end 2 done"]);
    c.done(1, (3, 1)).expect(&["end 3 done", "end run 1", "assign 5.1 to 1"]);
}

#[test]
fn no_stock_when_fewer_are_ready_than_there_are_slots() {
    let mut c = Cluster::new();
    c.node(1, 2);
    c.run(&tasks(6));
    // Two slots and a stock of two; the last two tasks stay for the executor that is free first.
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1", "assign 2.1 to 1", "assign 3.1 to 1"]);
    c.node(2, 2).expect(&["assign 4.1 to 2", "assign 5.1 to 2"]);
}

#[test]
fn what_fits_nowhere_fails_after_a_grace() {
    let mut c = Cluster::new();
    c.run(&[task("wide").cpus(3), task("large").memory(2_000_000_000)]);
    c.wait(60).expect(&[]);
    c.node(1, 2).wait(16).expect(&[]);
    c.wait(1).expect(&["end 0 failed NeverFits", "end 1 failed NeverFits", "end run 1"]);
}

#[test]
fn a_larger_executor_within_the_grace_saves_the_task() {
    let mut c = Cluster::new();
    c.node(1, 2);
    c.run(&[task("wide").cpus(3)]);
    c.wait(10).node(2, 3).expect(&["assign 0.1 to 2"]).wait(60).expect(&[]);
    // It is requeued when that one is lost, and then nothing fits again.
    c.lost(2).wait(17).expect(&["end 0 failed NeverFits", "end run 1"]);
}

#[test]
fn a_task_does_not_wait_for_a_holder_that_is_too_small() {
    let mut c = Cluster::with(|config| config.placement = "max-cache-hit".into());
    c.node(1, 1);
    c.run(&[reads("x")]);
    c.has(1, "x", "v1", Some("v1")).done(1, (0, 1)).node(2, 2);
    c.expect(&["assign 0.1 to 1", "end 0 done", "end run 1"]);
    c.run(&[reads("x").cpus(2)]);
    c.expect(&["assign 1.1 to 2"]);
}

#[test]
fn sources_of_a_file_are_the_holders_that_can_be_reached() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[reads("x"), reads("x")]);
    c.has(1, "x", "v1", Some("v1")).done(1, (0, 1)).done(2, (1, 1)).has(2, "x", "v1", None);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 2", "end 0 done", "end 1 done", "end run 1"]);
    c.silent(2).node(3, 4);
    c.run(&[task("a"), reads("x").cpus(2)]);
    c.expect(&["assign 2.1 to 3", "assign 3.1 to 3"]);
    let input = &c.assignments[3].inputs[0];
    assert_eq!(input.sources, [ExecutorId(1)]);
    assert!(input.check_home, "another run asks home again");
}

#[test]
fn a_newer_run_reads_new_bytes_and_the_older_one_fails() {
    let mut c = Cluster::new();
    c.node(1, 2);
    c.run(&[reads("x"), reads("x")]);
    c.has(1, "x", "v1", Some("v1")).done(1, (0, 1));
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1", "end 0 done"]);
    c.silent(1);
    c.run(&[reads("x")]);
    c.node(2, 1).expect(&["assign 2.1 to 2"]);
    c.has(2, "x", "v2", Some("v2")).expect(&["drop x on 1"]);
    c.join(1, 2, &[(1, 1)]);
    // Attempt 1 may have read either; its run is held to v1, which is no more.
    c.done(1, (1, 1)).expect(&["end 1 failed InputChanged", "end run 1"]);
    // The newer run may have begun with v1: it is tried again, with bytes that are known.
    c.done(2, (2, 1)).expect(&["assign 2.2 to 2"]);
    let input = &c.assignments.last().expect("it was assigned").inputs[0];
    assert!(!input.check_home && input.known.is_some());
    c.done(2, (2, 2)).expect(&["end 2 done", "end run 2"]);
}

#[test]
fn within_one_run_the_first_bytes_stay() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[reads("x"), reads("x")]);
    c.has(1, "x", "v1", Some("v1")).done(1, (0, 1)).expect(&[
        "assign 0.1 to 1",
        "assign 1.1 to 2",
        "end 0 done",
    ]);
    c.has(2, "x", "v2", Some("v2")).expect(&["drop x on 2"]);
    c.done(2, (1, 1)).expect(&["assign 1.2 to 1"]);
    c.failed(1, (1, 2), FailureKind::InputChanged).expect(&["end 1 failed InputChanged", "end run 1"]);
}

#[test]
fn an_output_that_is_made_again_with_other_bytes_is_the_output() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("y"), reads("y")]);
    c.has(1, "y", "first", None).done(1, (0, 1)).has(1, "y", "y", Some("v1")).lost(1);
    c.node(2, 1).expect(&["assign 0.1 to 1", "assign 0.2 to 2"]);
    c.has(2, "y", "second", None).done(2, (0, 2)).home(2, (0, 2), true);
    c.expect(&["end 0 done", "assign 1.1 to 2"]);
}

#[test]
fn a_million_folded_tasks_cost_nothing_until_unfolded() {
    let mut c = Cluster::with(|config| config.placement_config.window = 100);
    let run = c.open(&[array_of(1_000_000, &reads("in/"))]);
    let mut out = vec![];
    c.core.handle(c.now, Event::RunCommitted { run }, &mut out);
    assert_eq!((c.core.n_ready(), out.len()), (1_000_000, 0));
    assert!(c.core.work().catalog().n_objects() <= 100, "only the window is unfolded");
    assert!(c.core.queue_heap_bytes() < 1_000_000, "{}", c.core.queue_heap_bytes());
}

#[test]
fn a_node_of_a_thousand_slots_is_given_tasks() {
    let mut c = Cluster::new();
    c.node(1, 1024);
    let tasks: Vec<Task> = (0..1500).map(|i| task(&format!("t{i}"))).collect();
    c.run(&tasks);
    let given = |c: &mut Cluster| c.take().iter().filter(|action| action.starts_with("assign ")).count();
    assert!(given(&mut c) >= 1024);
    // From its first end on the node's tasks are known to take a while.
    c.done(1, (0, 1));
    assert!(given(&mut c) >= 1);
}

#[test]
fn home_is_shared_by_the_executors_that_use_it_and_unused_parts_go_to_the_others() {
    let mut c = Cluster::with(|config| config.home_limits.streams = Some(4));
    c.node(1, 1).expect(&["share any rate, 1 streams with 1"]);
    c.node(2, 1).expect(&["share any rate, 1 streams with 2"]);
    let share = |number, streams| HomeShare { number, bytes_per_s: None, streams };
    let report = |share| HomeReport { active: true, moved_bytes: 0, share };
    c.feed(Event::HomeUsed { executor: ExecutorId(1), report: report(share(1, 1)) });
    c.wait(1).expect(&["share any rate, 3 streams with 1"]);
    // It wakes for that, and says nothing twice.
    assert_eq!(c.core.wake_at(), None);
    c.wait(1).expect(&[]);
    c.feed(Event::HomeUsed { executor: ExecutorId(1), report: report(share(2, 3)) });
    c.feed(Event::ExecutorLost { executor: ExecutorId(2), reason: "it left".into() });
    c.wait(1).expect(&["share any rate, 4 streams with 1"]);
}

/// Tasks that each read a packed file and what a node makes of it, by `affinity`, on one node of one slot. Each file has `n_each`
/// readers.
fn packed(n_files: usize, n_each: usize) -> Cluster {
    let mut c = Cluster::with(|config| config.placement = "affinity".into());
    c.node(1, 1);
    let reader = |i: usize| {
        let packed = format!("p{}", i / n_each);
        task(&format!("t{i}")).reads(&packed).reads(&format!("made:gzip:{packed}"))
    };
    c.run(&(0..n_files * n_each).map(reader).collect::<Vec<_>>());
    c
}

/// The only task that is given out now.
fn given(c: &mut Cluster) -> u64 {
    let taken = c.take();
    assert!(matches!(&taken[..], [one] if one.starts_with("assign ")), "{taken:?}");
    c.assignments.last().expect("it was given").task.0
}

#[test]
fn while_a_node_unpacks_a_file_the_next_one_is_fetched() {
    let mut c = packed(6, 1);
    let first = given(&mut c);
    c.has(1, &format!("p{first}"), "packed", Some("1"));
    let second = given(&mut c);
    // Both wait to be unpacked.
    c.has(1, &format!("p{second}"), "packed", Some("1")).expect(&[]);
    c.has(1, &format!("made:gzip:p{first}"), "plain", Some("1"));
    given(&mut c);
}

#[test]
fn what_takes_long_to_come_and_to_unpack_sets_out_early() {
    // A program takes 1 s, so that of one task in stock is over when an image is there, or not.
    for (made_ms, is_early) in [(900, false), (1100, true)] {
        let mut c = packed(6, 2);
        let file = |task: u64| task / 2;
        let packed = |task| format!("p{}", file(task));
        let plain = |task| format!("made:gzip:p{}", file(task));
        let first = given(&mut c);
        c.has(1, &packed(first), "packed", Some("1"));
        let second = given(&mut c);
        c.has(1, &plain(first), "plain", Some("1"));
        assert_eq!(file(given(&mut c)), file(first), "the other reader is in stock");
        let mut report = c.report((first, 1), Outcome::Done);
        report.inputs[0].wait_ns = 500_000_000;
        report.inputs[1].outcome = CacheOutcome::Made;
        report.inputs[1].wait_ns = made_ms * 1_000_000;
        c.feed(Event::AttemptEnded { executor: ExecutorId(1), report: report.into() });
        c.expect(&[&format!("end {first} done")]);
        c.has(1, &packed(second), "packed", Some("1"));
        let third = given(&mut c);
        c.has(1, &plain(second), "plain", Some("1")).expect(&[]);
        // One task runs, one is in stock, and the third file is to be unpacked.
        c.has(1, &packed(third), "packed", Some("1"));
        match is_early {
            true => assert_ne!(file(given(&mut c)), file(third)),
            false => assert_eq!(c.take(), [""; 0]),
        }
    }
}

#[test]
fn a_file_that_watched_tasks_make_has_one_writer_and_is_read_where_it_is() {
    let mut c = Cluster::new();
    c.node(1, 4);
    c.run(&[task("a"), task("b"), task("c"), writes("later")]);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1", "assign 2.1 to 1", "assign 3.1 to 1"]);
    let made = |task: u64, location: &str| Event::FilesMade {
        executor: ExecutorId(1),
        task: TaskId(task),
        attempt: AttemptNo(1),
        locations: vec![location.into()],
    };
    let opened = |task: u64, location: &str| Event::FileOpened {
        executor: ExecutorId(1),
        task: TaskId(task),
        attempt: AttemptNo(1),
        location: location.into(),
    };
    c.feed(made(0, "/m"));
    c.expect(&["admit 1 outputs of 0 on 1"]);
    // Said again after a reconnect.
    c.feed(made(0, "/m"));
    c.expect(&["admit 1 outputs of 0 on 1"]);
    c.feed(made(1, "/m"));
    c.expect(&["admit none of 1 on 1: tasks `a` and `b` both write `/m`; give each its own output"]);
    c.feed(opened(2, "later"));
    let wait = "declare it as an input, so that this task waits for it";
    c.expect(&[&format!(
        "add no later to 2 on 1: task `writes-later` makes `later` and has not ended: {wait}"
    )]);
    c.feed(opened(2, "/m"));
    c.expect(&[&format!("add no /m to 2 on 1: task `a` makes `/m` and has not ended: {wait}")]);
    // Of an attempt that is not this executor's nothing follows, and it is told so.
    c.feed(made(9, "/m"));
    let take = c.take();
    assert!(take.iter().all(|action| action.contains("not wanted")), "{take:?}");
}
