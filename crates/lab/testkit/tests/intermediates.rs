//! Files that stay on the nodes (`run:` locations), in both state machines, event by event.

use eyas_core::dispatcher::{REVIVALS_MAX, TaskState};
use eyas_core::event::*;
use eyas_terms::*;
use eyas_testkit::build::{reads, task, writes};
use eyas_testkit::home::digest_of;
use eyas_testkit::script::{Cluster, NodeScript, known};

const X: &str = "run:here.1/x";

fn last_message(c: &Cluster, run: RunId) -> String {
    c.core
        .work()
        .find_run(run)
        .expect("it is known")
        .failures
        .back()
        .expect("a task failed")
        .1
        .message
        .clone()
}

fn join_holding(c: &mut Cluster, id: u32, slots: u32, location: &str) {
    let held = vec![HeldObject { digest: digest_of(location), size_bytes: 10, origin: None }];
    let offer =
        Offer { slots, memory_bytes: 1_000_000_000, cache_bytes: 1_000_000, held, ..Offer::default() };
    c.feed(Event::ExecutorJoined { executor: ExecutorId(id), offer });
}

#[test]
fn a_reader_may_come_before_the_maker_and_the_file_goes_with_the_last_reader() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[reads("run:x"), writes("run:x")]);
    c.expect(&["assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["end 1 done", "assign 0.1 to 1"]);
    c.done(1, (0, 1)).expect(&["drop run:here.1/x on 1", "end 0 done", "end run 1"]);
}

#[test]
fn two_writers_of_one_file_are_refused() {
    let mut c = Cluster::new();
    c.open(&[writes("run:x").array(), task("other").writes("run:x").array()]);
    c.expect(&["refuse run 1"]);
}

#[test]
fn a_file_that_nobody_makes_fails_its_reader_by_name() {
    let mut c = Cluster::new();
    let run = c.run(&[reads("run:x")]);
    c.expect(&["end 0 failed InputUnavailable", "end run 1"]);
    assert_eq!(last_message(&c, run), "no task of the run makes its input `run:x`");
}

#[test]
fn nothing_is_dropped_while_more_tasks_may_come() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let run = c.open(&[writes("run:x").array(), reads("run:x").array()]);
    c.feed(Event::RunStarted { run });
    c.done(1, (0, 1)).done(1, (1, 1));
    c.expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 1", "end 1 done"]);
    c.feed(Event::RunCommitted { run });
    c.expect(&["drop run:here.1/x on 1", "end run 1"]);
}

/// Found by worlds of busy stores with several dispatchers (`--workflows --with busy,dispatchers --from 178`).
#[test]
fn what_a_task_made_that_failed_for_a_changed_input_is_dropped_once_no_more_tasks_come() {
    let mut c = Cluster::new();
    c.node(1, 2);
    let run = c.open(&[reads("x").array(), reads("x").writes("run:y").array()]);
    c.feed(Event::RunStarted { run });
    c.has(1, "x", "v1", Some("v1")).done(1, (0, 1));
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1", "end 0 done"]);
    c.silent(1);
    c.run(&[reads("x")]);
    c.node(2, 1).expect(&["assign 2.1 to 2"]);
    c.has(2, "x", "v2", Some("v2")).expect(&["drop x on 1"]);
    c.join(1, 2, &[(1, 1)]);
    c.done(1, (1, 1)).expect(&["end 1 failed InputChanged"]);
    c.feed(Event::RunCommitted { run });
    c.expect(&["drop run:here.1/y on 1", "end run 1"]);
}

#[test]
fn two_runs_may_use_one_name() {
    let mut c = Cluster::new();
    c.node(1, 2);
    c.run(&[writes("run:x")]);
    c.run(&[writes("run:x")]);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    c.done(1, (0, 1)).expect(&["drop run:here.1/x on 1", "end 0 done", "end run 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.2/x on 1", "end 1 done", "end run 2"]);
}

#[test]
fn a_lost_file_is_made_again_with_those_of_its_ancestors_that_were_dropped() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("run:a"), task("b").reads("run:a").writes("run:b"), reads("run:b")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.1/a on 1", "end 1 done", "assign 2.1 to 1"]);
    c.lost(1).expect(&["revive 1 for run:here.1/b", "revive 0 for run:here.1/a"]);
    c.node(2, 1).expect(&["assign 0.65537 to 2"]);
    c.done(2, (0, 65537)).expect(&["end 0 done", "assign 1.65537 to 2"]);
    c.done(2, (1, 65537)).expect(&["drop run:here.1/a on 2", "end 1 done", "assign 2.2 to 2"]);
    c.done(2, (2, 2)).expect(&["drop run:here.1/b on 2", "end 2 done", "end run 1"]);
}

#[test]
fn a_run_is_cancelled_while_a_maker_runs_again() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let run = c.run(&[writes("run:x"), reads("run:x")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 1"]);
    c.lost(1).expect(&["revive 0 for run:here.1/x"]);
    c.node(2, 1).expect(&["assign 0.65537 to 2"]);
    c.cancel(run, None).expect(&["cancel 0.65537 on 2", "end 1 cancelled"]);
    c.ended(2, (0, 65537), Outcome::Cancelled).expect(&["end 0 cancelled", "end run 1"]);
}

#[test]
fn a_maker_that_fails_when_it_runs_again_takes_its_readers_with_it() {
    let mut c = Cluster::new();
    c.node(1, 1);
    let run = c.run(&[writes("run:x"), reads("run:x")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 1"]);
    c.lost(1).expect(&["revive 0 for run:here.1/x"]);
    c.node(2, 1).expect(&["assign 0.65537 to 2"]);
    c.failed(2, (0, 65537), FailureKind::ExitCode(1));
    c.expect(&["end 0 failed ExitCode(1)", "end 1 failed InputUnavailable", "end run 1"]);
    assert_eq!(last_message(&c, run), "task `writes-run:x`, which makes one of its inputs, failed");
}

#[test]
fn a_file_that_is_read_under_two_names_has_one_reader() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("run:x"), task("twice").reads("run:x").reads("run:x"), reads("run:x")]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 1"]);
    assert_eq!(c.assignments[1].inputs.len(), 2);
    c.done(1, (1, 1)).expect(&["end 1 done", "assign 2.1 to 1"]);
    c.done(1, (2, 1)).expect(&["drop run:here.1/x on 1", "end 2 done", "end run 1"]);
}

#[test]
fn the_only_copy_on_a_leaving_node_is_copied_before_it_leaves() {
    let mut c = Cluster::new();
    let leaver = ExecutorId(1);
    c.node(1, 1);
    c.run(&[writes("run:x"), writes("run:y"), reads("run:x").cpus(2)]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 1"]);
    c.node(2, 1);
    c.feed(Event::ExecutorDraining { executor: leaver });
    c.expect(&["prefetch run:here.1/x to 2"]);
    // No task reads the other file: it is dropped, not copied.
    c.done(1, (1, 1)).expect(&["drop run:here.1/y on 1", "end 1 done"]);
    assert!(!c.core.may_leave(c.now, leaver));
    c.has(2, X, X, None).expect(&["end collective"]);
    assert!(c.core.may_leave(c.now, leaver));
    c.lost(1).node(3, 2).expect(&["assign 2.1 to 3"]);
    c.done(3, (2, 1)).expect(&["drop run:here.1/x on 2", "end 2 done", "end run 1"]);
}

#[test]
fn a_leaving_node_does_not_wait_for_ever() {
    let mut c = Cluster::new();
    let leaver = ExecutorId(1);
    c.node(1, 1);
    c.run(&[writes("run:x"), reads("run:x").cpus(2)]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done"]);
    // There is no other node, so the executor may leave at once.
    c.feed(Event::ExecutorDraining { executor: leaver });
    assert!(c.core.may_leave(c.now, leaver));
    c.node(2, 1).wait(1).expect(&["prefetch run:here.1/x to 2"]);
    assert!(!c.core.may_leave(c.now, leaver));
    assert!(c.core.may_leave(c.now.plus_ns(60_000_000_000), leaver));
    c.lost(1).expect(&["revive 0 for run:here.1/x", "assign 0.65537 to 2"]);
    c.done(2, (0, 65537)).expect(&["end 0 done", "end collective"]);
    c.node(3, 2).expect(&["assign 1.1 to 3"]);
    c.done(3, (1, 1)).expect(&["drop run:here.1/x on 2", "end 1 done", "end run 1"]);
}

/// The only holder of a file is too small for its reader, and silent when a larger one comes.
fn with_silent_holder() -> Cluster {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("run:x"), reads("run:x").cpus(2)]);
    c.done(1, (0, 1)).expect(&["assign 0.1 to 1", "end 0 done"]);
    c.silent(1).node(2, 2).expect(&[]);
    assert_eq!(c.state(1), TaskState::Waiting { n_missing: 1 });
    assert_eq!(c.core.waits_for(TaskId(1)), "an input that only silent nodes hold");
    c
}

#[test]
fn readers_wait_for_a_silent_holder() {
    let mut c = with_silent_holder();
    join_holding(&mut c, 1, 1, X);
    c.expect(&["name run:here.1/x to 1", "assign 1.1 to 2"]);
    c.done(2, (1, 1)).expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);
    // The executor comes back and has not received the drop.
    join_holding(&mut c, 1, 1, X);
    c.expect(&["name run:here.1/x to 1", "drop run:here.1/x on 1"]);
}

#[test]
fn a_silent_holder_that_is_given_up_has_the_file_made_again() {
    let mut c = with_silent_holder();
    c.lost(1).expect(&["revive 0 for run:here.1/x", "assign 0.65537 to 2"]);
    c.done(2, (0, 65537)).expect(&["end 0 done", "assign 1.1 to 2"]);
    c.done(2, (1, 1)).expect(&["drop run:here.1/x on 2", "end 1 done", "end run 1"]);
}

#[test]
fn a_file_is_made_again_only_so_often() {
    let mut c = Cluster::new();
    let run = c.run(&[writes("run:x"), reads("run:x").cpus(2)]);
    for n in 0..=REVIVALS_MAX {
        c.node(n + 1, 1).done(n + 1, (0, n * 65536 + 1));
        c.expect(&[&format!("assign 0.{} to {}", n * 65536 + 1, n + 1), "end 0 done"]);
        c.lost(n + 1);
        match n == REVIVALS_MAX {
            false => c.expect(&["revive 0 for run:here.1/x"]),
            true => c.expect(&["revive 0 for run:here.1/x", "end 0 failed ExecutorLost"]),
        };
    }
    assert!(last_message(&c, run).starts_with("the file `run:x` that it makes was lost 9 times"));
    c.node(99, 2).expect(&["end 1 failed InputUnavailable", "end run 1"]);
}

#[test]
fn a_holder_that_lacked_the_file_is_asked_again_after_a_pause() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("run:x"), reads("run:x").cpus(2)]);
    c.done(1, (0, 1)).node(2, 2).expect(&["assign 0.1 to 1", "end 0 done", "assign 1.1 to 2"]);
    c.failed(2, (1, 1), FailureKind::InputLost).expect(&["assign 1.2 to 2"]);
    c.failed(2, (1, 2), FailureKind::InputLost).wait(1).expect(&[]);
    c.wait(1).expect(&["assign 1.3 to 2"]);
    c.done(2, (1, 3)).expect(&["drop run:here.1/x on 1", "end 1 done", "end run 1"]);
}

#[test]
fn an_output_that_fits_no_cache_is_a_clear_failure() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["run:y"]).exited(0, &[200]).stored(0, 0, 200);
    n.expect(&["start 0.1", "store run:y", "clean 0.1", "tell 0.1 failed CacheTooSmall"]);
    let Outcome::Failed(failure) = &n.reports[0].outcome else { panic!("it failed") };
    let expected =
        "its outputs with 200 bytes stay on the nodes, and the cache of this node has at most 100;";
    assert!(failure.message.starts_with(expected), "{}", failure.message);
}

#[test]
fn outputs_that_fit_the_cache_one_by_one_have_to_fit_it_together() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["run:y", "run:z"]).exited(0, &[60, 60]);
    n.expect(&["start 0.1", "store run:y in the cache", "store run:z"]);
    n.stored(0, 0, 60).stored(0, 1, 60);
    n.expect(&["evict run:y", "tell lost run:y", "clean 0.1", "tell 0.1 failed CacheTooSmall"]);
}

#[test]
fn an_output_that_fits_the_cache_when_it_is_empty_may_fit_later() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["run:x"]).exited(0, &[60]).stored(0, 0, 60).recorded(0);
    n.expect(&["start 0.1", "store run:x in the cache", "tell has run:x", "tell 0.1 done", "clean 0.1"]);
    n.assign(1, &[], &["run:y"]).exited(1, &[60]).stored(1, 0, 60);
    n.expect(&["start 1.1", "store run:y", "clean 1.1", "tell 1.1 failed CacheFull"]);
}

#[test]
fn an_output_that_no_cache_can_hold_fails_its_task_at_once() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[writes("run:x"), writes("run:y")]);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 2"]);
    c.failed(1, (0, 1), FailureKind::CacheTooSmall).expect(&["end 0 failed CacheTooSmall"]);
}

#[test]
fn an_output_that_one_cache_cannot_hold_is_tried_with_a_larger_cache() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("run:x")]);
    c.expect(&["assign 0.1 to 1"]);
    c.node_with_cache(2, 1, 2_000_000);
    c.failed(1, (0, 1), FailureKind::CacheTooSmall).expect(&["assign 0.2 to 2"]);
    c.failed(2, (0, 2), FailureKind::CacheTooSmall).expect(&["end 0 failed CacheTooSmall", "end run 1"]);
}

#[test]
fn a_task_that_finds_the_cache_full_is_tried_as_long_as_room_is_made() {
    let mut c = Cluster::new();
    c.node(1, 2);
    c.run(&[writes("run:x")]);
    c.expect(&["assign 0.1 to 1"]);
    for k in 1..=20 {
        // A file of another task comes and goes: there was room, but another task took it.
        let other = u64::from(k);
        c.run(&[writes("run:y")]);
        let mut seen = c.take();
        while !seen.contains(&format!("assign {other}.1 to 1")) {
            c.wait(1);
            seen.extend(c.take());
        }
        c.done(1, (other, 1));
        assert!(c.take().iter().any(|action| action.starts_with("drop ")));
        c.failed(1, (0, k), FailureKind::CacheFull);
        let mut seen = c.take();
        while !seen.contains(&format!("assign 0.{} to 1", k + 1)) {
            assert!(!seen.iter().any(|action| action.starts_with("end 0")), "{seen:?}");
            c.wait(1);
            seen.extend(c.take());
        }
    }
    // No room is made any more.
    for k in 21..=24 {
        c.failed(1, (0, k), FailureKind::CacheFull).wait(60);
    }
    c.take();
    c.failed(1, (0, 25), FailureKind::CacheFull);
    assert!(c.take().contains(&"end 0 failed CacheFull".to_string()));
}

#[test]
fn a_node_whose_cache_is_full_is_back_after_a_second() {
    let mut c = Cluster::new();
    c.node(1, 1);
    c.run(&[writes("run:x"), writes("run:y")]);
    c.expect(&["assign 0.1 to 1"]);
    c.failed(1, (0, 1), FailureKind::CacheFull).expect(&[]);
    c.wait(1).expect(&["assign 0.2 to 1"]);
    c.failed(1, (0, 2), FailureKind::CacheFull).expect(&[]);
    // From now on the task rests longer than the node, which gets another task meanwhile.
    c.wait(1).expect(&["assign 1.1 to 1"]);
    c.done(1, (1, 1)).expect(&["drop run:here.1/y on 1", "end 1 done"]).wait(1).expect(&["assign 0.3 to 1"]);
    c.failed(1, (0, 3), FailureKind::CacheFull).wait(1).expect(&[]);
    c.wait(1).expect(&["assign 0.4 to 1"]);
}

#[test]
fn an_attempt_whose_file_has_come_from_elsewhere_meanwhile_is_no_failure() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["run:y"]).expect(&["start 0.1"]);
    n.assign(1, &[known("run:y", "v1", 10, &[2])], &[]).expect(&["fetch run:y from 2"]);
    n.arrived("run:y", Some(2), "v1", 10).expect(&["tell has run:y"]);
    n.exited(0, &[10]).stored(0, 0, 10);
    n.expect(&["store run:y", "start 1.1", "clean 0.1", "tell 0.1 cancelled"]);
}

#[test]
fn an_output_on_a_node_is_kept_until_the_dispatcher_drops_it() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["run:y"]).exited(0, &[10]).stored(0, 0, 10).recorded(0);
    n.expect(&["start 0.1", "store run:y in the cache", "tell has run:y", "tell 0.1 done", "clean 0.1"]);
    n.assign(1, &[known("x", "v1", 95, &[])], &[]).expect(&["fetch private x from home"]);
    n.drop_replica("run:y").expect(&["evict run:y", "tell lost run:y"]);
}

#[test]
fn inputs_that_are_only_on_nodes_have_to_fit() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("run:x", "v1", 200, &[7])], &[]);
    n.expect(&["clean 0.1", "tell 0.1 failed CacheTooSmall"]);
}

#[test]
fn an_input_that_no_holder_has_is_not_asked_of_home() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("run:x", "v1", 20, &[7])], &[]).expect(&["fetch run:x from 7"]);
    n.missed("run:x", Some(7), TransferErrorKind::NotHeld);
    n.expect(&["clean 0.1", "tell 0.1 failed InputLost"]);
    n.assign(1, &[known("run:x", "v1", 20, &[])], &[]).expect(&["clean 1.1", "tell 1.1 failed InputLost"]);
    assert_eq!(n.core.cache().reserved_bytes(), 0);
}

#[test]
fn a_damaged_file_is_reported_though_it_was_kept() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["run:y"]).exited(0, &[10]).stored(0, 0, 10);
    n.expect(&["start 0.1", "store run:y in the cache", "tell has run:y", "tell 0.1 done", "clean 0.1"]);
    n.corrupt("run:y").expect(&["evict run:y", "tell lost run:y"]);
}
