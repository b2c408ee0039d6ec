//! The executor, event by event: exactly these actions and no other.

use eyas_core::event::*;
use eyas_terms::*;
use eyas_testkit::home::digest_of;
use eyas_testkit::script::{In, NodeScript, known, unknown};

#[test]
fn the_life_of_an_attempt() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[unknown("x")], &["y"]).expect(&["ask x"]);
    n.answer("x", "v1", 10).expect(&["fetch x from home"]);
    n.arrived("x", None, "v1", 10).expect(&["tell has x", "start 0.1"]);
    n.exited(0, &[5]).expect(&["store y in the cache"]);
    n.stored(0, 0, 5).expect(&["tell has y", "tell 0.1 done", "land y from the cache"]);
    assert_eq!(n.outcomes(), [CacheOutcome::Miss]);
    n.landed(0, 0, true).expect(&["tell has y", "clean 0.1", "tell 0.1 home"]);
    assert_eq!(n.core.attempts(), [(TaskId(0), AttemptNo(1))]);
    n.recorded(0).expect(&[]);
    assert!(n.core.is_idle());
}

#[test]
fn one_transfer_serves_all_attempts_that_ask_meanwhile() {
    let mut n = NodeScript::new(2, 100);
    let x = known("x", "v1", 10, &[7]);
    n.assign(0, std::slice::from_ref(&x), &[]).assign(1, std::slice::from_ref(&x), &[]);
    n.expect(&["fetch x from 7"]);
    n.arrived("x", Some(7), "v1", 10).expect(&["tell has x", "start 0.1", "start 1.1"]);
    n.assign(2, &[x], &[]).exited(0, &[]).exited(1, &[]).exited(2, &[]);
    n.expect(&[
        "clean 0.1",
        "tell 0.1 done",
        "start 2.1",
        "clean 1.1",
        "tell 1.1 done",
        "clean 2.1",
        "tell 2.1 done",
    ]);
    let outcomes: Vec<CacheOutcome> = n.reports.iter().map(|r| r.inputs[0].outcome).collect();
    let remote = CacheOutcome::RemoteHit { from: ExecutorId(7) };
    assert_eq!(outcomes, [remote, CacheOutcome::Joined, CacheOutcome::LocalHit]);
}

#[test]
fn sources_are_tried_in_turn_and_home_last() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("x", "v1", 10, &[7, 8])], &[]).expect(&["fetch x from 7"]);
    n.missed("x", Some(7), TransferErrorKind::Busy).expect(&["fetch x from 8"]);
    n.missed("x", Some(8), TransferErrorKind::Corrupt).expect(&["fetch x from home"]);
    n.missed("x", None, TransferErrorKind::Unavailable);
    n.expect(&["clean 0.1", "tell 0.1 failed InputUnavailable"]);
    assert_eq!(n.core.cache().reserved_bytes(), 0);
}

#[test]
fn inputs_come_in_turn_where_that_is_wanted() {
    let mut n = NodeScript::with(2, 100, |config| config.inputs_in_turn = true);
    let pair = |a, b| [known(a, "v", 10, &[]), known(b, "v", 10, &[])];
    n.assign(0, &pair("a", "b"), &[]).expect(&["fetch a from home"]);
    // Another attempt's do not wait for them, and it asks for nothing that is on its way already.
    n.assign(1, &pair("a", "c"), &[]).expect(&[]);
    n.arrived("a", None, "v", 10).expect(&["tell has a", "fetch b from home", "fetch c from home"]);
    n.arrived("c", None, "v", 10).expect(&["tell has c", "start 1.1"]);
    n.missed("b", None, TransferErrorKind::Unavailable);
    n.expect(&["clean 0.1", "tell 0.1 failed InputUnavailable"]);
}

#[test]
fn a_file_that_went_with_equal_bytes_is_the_nodes_failure() {
    // The task is tried again: neither its input nor its output is missing through its own fault.
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("x", "v1", 10, &[])], &[]).missed("x", None, TransferErrorKind::Dropped);
    n.expect(&["fetch x from home", "clean 0.1", "tell 0.1 failed Node"]);
    n.assign(1, &[], &["y"]).exited(1, &[10]).expect(&["start 1.1", "store y in the cache"]);
    let error = TransferError { kind: TransferErrorKind::Dropped, message: "of a test".into() };
    let (task, attempt) = (TaskId(1), AttemptNo(1));
    n.feed(NodeEvent::OutputStored { task, attempt, output: 0, marks: None, result: Err(error) });
    n.expect(&["clean 1.1", "tell 1.1 failed Node"]);
    assert_eq!(n.core.cache().reserved_bytes(), 0);
}

#[test]
fn a_question_to_home_is_asked_once_and_again_for_a_newer_run() {
    let mut n = NodeScript::new(4, 100);
    n.assign_for(0, 1, 1, &[unknown("x")], &[]).assign_for(1, 1, 1, &[unknown("x")], &[]).expect(&["ask x"]);
    n.assign_for(2, 2, 1, &[unknown("x")], &[]).expect(&[]);
    n.answer("x", "v1", 10).expect(&["ask x", "fetch x from home"]);
    // Home has changed meanwhile: the newer run reads that, and not what is on its way for the older.
    n.answer("x", "v2", 10).expect(&["fetch private x from home"]);
    n.arrived("x", None, "v1", 10).expect(&["tell has x", "start 0.1", "start 1.1"]);
    n.arrived_private(2, 0, "v2", 10).expect(&["tell has x", "start 2.1"]);
    n.exited(2, &[]).expect(&["clean 2.1", "tell 2.1 done", "tell lost x"]);
}

#[test]
fn a_hit_that_home_confirmed_is_told() {
    let mut n = NodeScript::new(4, 100);
    n.assign(0, &[known("x", "v1", 10, &[])], &[]).arrived("x", None, "v1", 10);
    n.expect(&["fetch x from home", "tell has x", "start 0.1"]);
    n.assign_for(1, 2, 1, &[unknown("x")], &[]).expect(&["ask x"]);
    n.answer("x", "v1", 10).expect(&["tell has x", "start 1.1"]);
}

#[test]
fn a_stale_copy_is_no_hit() {
    let mut n = NodeScript::new(4, 100);
    n.assign(0, &[known("x", "v1", 10, &[])], &[]).arrived("x", None, "v1", 10);
    n.expect(&["fetch x from home", "tell has x", "start 0.1"]);
    // While it is pinned the other bytes come as a private copy, later in its place.
    n.assign(1, &[known("x", "v2", 10, &[7])], &[]).expect(&["fetch private x from home"]);
    n.arrived_private(1, 0, "v2", 10).exited(0, &[]).expect(&["start 1.1", "clean 0.1", "tell 0.1 done"]);
    n.assign(2, &[known("x", "v2", 10, &[7])], &[]).expect(&["evict x", "tell lost x", "fetch x from 7"]);
}

#[test]
fn a_doomed_copy_is_used_by_attempts_that_have_it_and_by_no_other() {
    let mut n = NodeScript::new(4, 100);
    n.assign(0, &[known("x", "v1", 10, &[])], &[]).arrived("x", None, "v1", 10);
    n.drop_replica("x").expect(&["fetch x from home", "tell has x", "start 0.1"]);
    n.assign(1, &[known("x", "v1", 10, &[])], &[]).expect(&["fetch private x from home"]);
    n.exited(0, &[]).expect(&["evict x", "tell lost x", "clean 0.1", "tell 0.1 done"]);
}

#[test]
fn an_object_larger_than_the_cache_is_read_for_one_attempt_only() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("big", "v1", 101, &[7]), known("x", "v1", 60, &[])], &[]);
    n.expect(&["fetch private big from home", "fetch x from home"]);
    n.arrived_private(0, 0, "v1", 101).arrived("x", None, "v1", 60).expect(&["tell has x", "start 0.1"]);
    n.exited(0, &[]).expect(&["clean 0.1", "tell 0.1 done"]);
    assert_eq!(n.outcomes(), [CacheOutcome::Direct, CacheOutcome::Miss]);
}

#[test]
fn a_cache_smaller_than_the_inputs_of_one_task_takes_what_fits() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("a", "v", 40, &[]), known("b", "v", 50, &[]), known("c", "v", 60, &[])], &[]);
    n.expect(&["fetch a from home", "fetch b from home", "fetch private c from home"]);
}

#[test]
fn inputs_are_reserved_whole_and_in_order() {
    let mut n = NodeScript::new(4, 100);
    let pair = |a, b| [known(a, "v", 40, &[]), known(b, "v", 40, &[])];
    n.assign(0, &pair("a", "b"), &[]).assign(1, &pair("c", "d"), &[]);
    n.expect(&["fetch a from home", "fetch b from home"]);
    // Smaller, but it came later.
    n.assign(2, &[known("e", "v", 20, &[])], &[]).expect(&[]);
    // All here: it may pass.
    n.arrived("a", None, "v", 40).assign(3, &[known("a", "v", 40, &[])], &[]);
    n.expect(&["tell has a", "start 3.1"]);
    n.arrived("b", None, "v", 40).exited(3, &[]).exited(0, &[]);
    // `a` was used last.
    let room = ["evict b", "tell lost b", "evict a", "tell lost a", "fetch c from home", "fetch d from home"];
    n.expect(
        &[
            &["tell has b", "start 0.1", "clean 3.1", "tell 3.1 done", "clean 0.1", "tell 0.1 done"][..],
            &room,
            &["fetch e from home"],
        ]
        .concat(),
    );
}

#[test]
fn those_who_pass_do_so_only_so_often() {
    let mut n = NodeScript::new(200, 100);
    n.assign(0, &[known("a", "v", 60, &[])], &[]).arrived("a", None, "v", 60);
    n.expect(&["fetch a from home", "tell has a", "start 0.1"]);
    n.assign(1, &[known("b", "v", 60, &[])], &[]).expect(&[]);
    for task in 2..66 {
        n.assign(task, &[known("a", "v", 60, &[])], &[]).expect(&[&format!("start {task}.1")]);
    }
    n.assign(66, &[known("a", "v", 60, &[])], &[]).expect(&[]);
}

#[test]
fn cancelled_in_every_state() {
    let mut n = NodeScript::new(1, 100);
    let ended = |task: u64| [format!("clean {task}.1"), format!("tell {task}.1 cancelled")];
    // Sizing.
    n.assign(0, &[unknown("x")], &[]).cancel(0).answer("x", "v", 1);
    n.expect(&["ask x", &ended(0)[0], &ended(0)[1]]);
    // Running, staging, blocked and queued.
    n.assign(1, &[], &["out"]).assign(2, &[known("a", "v", 60, &[])], &[]);
    n.assign(3, &[known("b", "v", 60, &[])], &[]).assign(4, &[], &[]);
    n.expect(&["start 1.1", "fetch a from home"]);
    for task in [4, 3, 2] {
        n.cancel(task).cancel(task).expect(&[&ended(task)[0], &ended(task)[1]]);
    }
    n.cancel(1).cancel(1).expect(&["kill 1.1"]);
    n.exit(1, Err(FailureKind::Signal(15)), &[], &[]).expect(&[&ended(1)[0], &ended(1)[1]]);
    // The transfer went on, its bytes may serve somebody.
    n.arrived("a", None, "v", 60).expect(&["tell has a"]);
    // Unknown here: say so, or the dispatcher waits for it.
    n.cancel(9).expect(&["tell 9.1 cancelled"]);
}

#[test]
fn cancelled_while_outputs_are_stored_or_land() {
    let mut n = NodeScript::with(1, 100, |config| config.home_streams_max = 1);
    n.assign(0, &[], &["a"]).exited(0, &[5]).cancel(0);
    n.expect(&["start 0.1", "store a in the cache", "halt 0.1"]);
    n.stored(0, 0, 5).expect(&["evict a", "tell lost a", "clean 0.1", "tell 0.1 cancelled"]);
    n.assign(1, &[], &["b", "c"]).exited(1, &[5, 5]).stored(1, 0, 5).stored(1, 1, 5);
    n.expect(&[
        "start 1.1",
        "store b in the cache",
        "store c in the cache",
        "tell has b",
        "tell has c",
        "tell 1.1 done",
        "land b from the cache",
    ]);
    // What has not set out stays, and what is on its way is stopped; here it arrives all the same.
    n.cancel(1).expect(&["evict c", "tell lost c", "halt 1.1"]);
    n.landed(1, 0, true).expect(&["tell has b", "clean 1.1", "tell 1.1 not home"]);
    n.assign(2, &[], &["d"]).exited(2, &[5]).stored(2, 0, 5);
    n.expect(&["start 2.1", "store d in the cache", "tell has d", "tell 2.1 done", "land d from the cache"]);
    n.cancel(2).expect(&["halt 2.1"]);
    n.landed(2, 0, false).expect(&["clean 2.1", "tell 2.1 not home", "evict d", "tell lost d"]);
}

#[test]
fn the_last_copy_of_an_output_stays_until_it_is_home() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["y"]).exited(0, &[60]).stored(0, 0, 60);
    n.expect(&["start 0.1", "store y in the cache", "tell has y", "tell 0.1 done", "land y from the cache"]);
    n.drop_replica("y").assign(1, &[known("x", "v", 60, &[])], &[]).expect(&[]);
    n.landed(0, 0, true);
    n.expect(&["tell has y", "clean 0.1", "tell 0.1 home", "evict y", "tell lost y", "fetch x from home"]);
}

#[test]
fn an_output_that_does_not_fit_lands_from_the_sandbox() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["y"]).exited(0, &[101]).stored(0, 0, 101);
    n.expect(&["start 0.1", "store y", "tell 0.1 done", "land y"]);
    n.landed(0, 0, false).expect(&["clean 0.1", "tell 0.1 not home"]);
}

#[test]
fn an_output_that_is_being_stored_is_not_taken_for_a_transfer() {
    let mut n = NodeScript::new(2, 100);
    n.assign(0, &[], &["y"]).exited(0, &[10]).expect(&["start 0.1", "store y in the cache"]);
    n.assign(1, &[known("y", "older", 10, &[])], &[]).expect(&["fetch private y from home"]);
    n.stored(0, 0, 10).arrived_private(1, 0, "older", 10);
    n.expect(&["tell has y", "tell 0.1 done", "land y from the cache", "start 1.1"]);
}

#[test]
fn a_written_input_fails_the_writer_and_the_attempts_that_run_with_it() {
    let mut n = NodeScript::new(3, 100);
    let x = || [known("x", "v", 10, &[])];
    n.assign(0, &x(), &[]).arrived("x", None, "v", 10).assign(1, &x(), &[]);
    n.expect(&["fetch x from home", "tell has x", "start 0.1", "start 1.1"]);
    n.exit(0, Ok(()), &[], &[0]).expect(&[
        "evict x",
        "tell lost x",
        "clean 0.1",
        "tell 0.1 failed InputModified",
    ]);
    n.assign(2, &x(), &[]).expect(&["fetch x from home"]);
    n.exited(1, &[]).expect(&["clean 1.1", "tell 1.1 failed InputModified"]);
    n.arrived("x", None, "v", 10).expect(&["tell has x", "start 2.1"]);
}

#[test]
fn attempts_that_ran_with_a_written_input_do_not_drop_the_fresh_copy() {
    let mut n = NodeScript::new(3, 100);
    let x = || [known("x", "v", 10, &[])];
    n.assign(0, &x(), &[]).arrived("x", None, "v", 10).assign(1, &x(), &[]);
    n.expect(&["fetch x from home", "tell has x", "start 0.1", "start 1.1"]);
    n.exit(0, Ok(()), &[], &[0]);
    n.expect(&["evict x", "tell lost x", "clean 0.1", "tell 0.1 failed InputModified"]);
    n.assign(2, &x(), &[]).arrived("x", None, "v", 10);
    n.expect(&["fetch x from home", "tell has x", "start 2.1"]);
    // It saw the old copy change, which is gone.
    n.exited(1, &[]).expect(&["clean 1.1", "tell 1.1 failed InputModified"]);
    n.exited(2, &[]).expect(&["clean 2.1", "tell 2.1 done"]);
}

#[test]
fn a_cancelled_writer_has_spoiled_the_copy_all_the_same() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("x", "v", 10, &[])], &[]).arrived("x", None, "v", 10).cancel(0);
    n.expect(&["fetch x from home", "tell has x", "start 0.1", "kill 0.1"]);
    n.exit(0, Err(FailureKind::Signal(15)), &[], &[0]);
    n.expect(&["evict x", "tell lost x", "clean 0.1", "tell 0.1 cancelled"]);
}

#[test]
fn a_damaged_copy_is_dropped_and_fetched_again() {
    let mut n = NodeScript::new(1, 100);
    let x = || [known("x", "v", 10, &[])];
    n.assign(0, &[], &[]).assign(1, &x(), &[]).arrived("x", None, "v", 10);
    n.expect(&["start 0.1", "fetch x from home", "tell has x"]);
    n.corrupt("x").corrupt("x").expect(&[
        "evict x",
        "tell lost x",
        "clean 1.1",
        "tell 1.1 failed InputModified",
    ]);
    n.assign(2, &x(), &[]).expect(&["fetch x from home"]);
}

#[test]
fn a_damaged_output_that_is_not_home_is_made_again() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["y"]).exited(0, &[10]).stored(0, 0, 10);
    n.expect(&["start 0.1", "store y in the cache", "tell has y", "tell 0.1 done", "land y from the cache"]);
    n.corrupt("y").landed(0, 0, false).expect(&["evict y", "tell lost y", "clean 0.1", "tell 0.1 not home"]);
    let last = n.core.unrecorded().last();
    let Some(NodeMessage::OutputsHome { result: Err(failure), .. }) = last else { panic!("{last:?}") };
    assert!(failure.kind.is_weather(), "it was the node's fault");
}

#[test]
fn an_output_damaged_while_another_is_stored_is_made_again() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["y", "z"]).exited(0, &[10, 10]).stored(0, 0, 10);
    n.expect(&["start 0.1", "store y in the cache", "store z in the cache"]);
    n.corrupt("y").stored(0, 1, 10);
    n.expect(&["evict y", "tell lost y", "evict z", "tell lost z", "clean 0.1", "tell 0.1 failed Node"]);
}

#[test]
fn more_bytes_than_announced_are_refused() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[known("x", "v", 10, &[])], &[]).arrived("x", None, "v", 11);
    n.expect(&["fetch x from home", "clean 0.1", "tell 0.1 failed InputChanged"]);
}

#[test]
fn duplicate_words_change_nothing() {
    let mut n = NodeScript::new(1, 100);
    n.assign(0, &[], &["y"]).assign(0, &[], &["y"]).recorded(0).recorded(5).expect(&["start 0.1"]);
    n.exited(0, &[1]).exited(0, &[1]).recorded(0).expect(&["store y in the cache"]);
    n.stored(0, 0, 1).recorded(0).expect(&["tell has y", "tell 0.1 done", "land y from the cache"]);
    n.missed("x", None, TransferErrorKind::Busy).corrupt("x").expect(&[]);
}

#[test]
fn reports_that_are_not_recorded_are_sent_again_reads_first() {
    let mut n = NodeScript::new(2, 100);
    n.assign(1, &[known("x", "v", 10, &[])], &[]).assign(0, &[], &[]).arrived("x", None, "v", 10);
    n.exited(0, &[]).expect(&[
        "fetch x from home",
        "start 0.1",
        "tell has x",
        "start 1.1",
        "clean 0.1",
        "tell 0.1 done",
    ]);
    let kinds: Vec<bool> = n.core.unrecorded().map(|m| matches!(m, NodeMessage::ReplicaAdded(_))).collect();
    assert_eq!(kinds, [true, false]);
    let Some(NodeMessage::ReplicaAdded(read)) = n.core.unrecorded().next() else { panic!("just seen") };
    assert_eq!(read.version, None, "what home said then is not what it says now");
    n.recorded(0).expect(&[]);
    assert_eq!(n.core.unrecorded().count(), 1);
}

#[test]
fn wide_tasks_hold_their_slots() {
    let mut n = NodeScript::new(3, 100);
    n.assign_for(0, 1, 2, &[], &[]).assign_for(1, 1, 2, &[], &[]).assign_for(2, 1, 1, &[], &[]);
    // In order: the small one does not starve the wide one.
    n.expect(&["start 0.1"]).exited(0, &[]).expect(&["clean 0.1", "tell 0.1 done", "start 1.1", "start 2.1"]);
}

#[test]
fn transfers_stay_within_the_limits() {
    let mut n = NodeScript::with(9, 100, |config| (config.transfers_max, config.home_streams_max) = (3, 1));
    let inputs: Vec<In> = ["a", "b", "c", "d", "e"].map(|name| known(name, "v", 1, &[7])).into();
    n.assign(0, &inputs, &[]).assign(1, &[known("f", "v", 1, &[]), known("g", "v", 1, &[])], &[]);
    n.expect(&["fetch a from 7", "fetch b from 7", "fetch f from home"]);
    n.arrived("f", None, "v", 1).expect(&["tell has f", "fetch g from home"]);
    n.arrived("a", Some(7), "v", 1).expect(&["tell has a", "fetch c from 7"]);
}

#[test]
fn a_restarted_executor_knows_what_it_holds() {
    let mut n = NodeScript::new(1, 100);
    let (x, y) = (n.object("x"), n.object("y"));
    let mut out = vec![];
    let bytes = |of: &str, size_bytes| Fetched { digest: digest_of(of), size_bytes, version: None };
    n.core.restore(x, bytes("v", 60), &mut out);
    n.core.restore(y, bytes("w", 60), &mut out);
    assert_eq!(n.core.held(), [(y, bytes("w", 60))], "the budget is smaller now");
    assert!(matches!(out[0], NodeAction::Evict { object } if object == x));
    n.assign(0, &[known("y", "w", 60, &[])], &[]).expect(&["start 0.1"]);
}

// ---------------------------------------------------------------- programs on a disk that is short of room

/// What is known of a disk where so much was free when the program began, and so much was written since.
fn written(free_bytes: u64, wrote_bytes: u64) -> DiskSeen {
    DiskSeen { free_bytes, is_full: false, wrote_bytes: Some(wrote_bytes), is_said: false }
}

#[test]
fn a_disk_that_a_program_and_its_neighbours_may_have_filled_is_no_failure_of_its_task() {
    let full = DiskSeen { is_full: true, ..written(100, 10) };
    let reported = DiskSeen { is_said: true, ..written(100, 10) };
    let uncounted = DiskSeen { wrote_bytes: None, ..written(100, 0) };
    let cases = [
        (written(100, 99), "ExitCode(1)"),
        (written(100, 100), "DiskShared"),
        (full, "DiskShared"),
        (reported, "DiskShared"),
        (uncounted, "ExitCode(1)"),
    ];
    for (disk, expected) in cases {
        let mut n = NodeScript::new(2, 0);
        n.assign(0, &[], &[]).assign(1, &[], &[]).expect(&["start 0.1", "start 1.1"]);
        n.failed_on(0, disk).expect(&["clean 0.1", &format!("tell 0.1 failed {expected}")]);
    }
}

#[test]
fn bytes_that_are_read_into_the_cache_meanwhile_take_room_as_well() {
    let mut n = NodeScript::new(2, 1000);
    n.assign(0, &[], &[]).assign(1, &[known("x", "v", 60, &[])], &[]);
    n.expect(&["start 0.1", "fetch x from home"]);
    n.failed_on(0, written(100, 40)).expect(&["tell cache of 60", "clean 0.1", "tell 0.1 failed DiskShared"]);
}

#[test]
fn fewer_programs_run_at_once_where_they_filled_the_disk() {
    let mut n = NodeScript::new(3, 0);
    (0..6).for_each(|task| _ = n.assign(task, &[], &[]));
    n.expect(&["start 0.1", "start 1.1", "start 2.1"]);
    // Two had room.
    n.failed_on(0, written(10, 10)).expect(&["clean 0.1", "tell 0.1 failed DiskShared"]);
    n.exited(1, &[]).expect(&["clean 1.1", "tell 1.1 done", "start 3.1"]);
    n.failed_on(2, written(10, 10)).expect(&["clean 2.1", "tell 2.1 failed DiskShared"]);
    n.exited(3, &[]).expect(&["clean 3.1", "tell 3.1 done", "start 4.1"]);
    // Programs take a second here: more are tried when some must have ended.
    n.wait(7).expect(&[]).wait(1).expect(&["start 5.1"]);
}

#[test]
fn an_attempt_that_is_to_run_alone_has_the_disk_to_itself() {
    let mut n = NodeScript::new(4, 1000);
    n.assign(0, &[known("x", "v", 100, &[])], &["y"]).arrived("x", None, "v", 100);
    n.expect(&["fetch x from home", "tell has x", "start 0.1"]);
    n.assign_alone(1, &[], &["z"]).expect(&[]);
    n.exited(0, &[10]).stored(0, 0, 10);
    n.expect(&["store y in the cache", "tell has y", "tell 0.1 done", "land y from the cache"]);
    // What the other one made is still on its way.
    n.landed(0, 0, true);
    n.expect(&[
        "tell has y",
        "clean 0.1",
        "tell 0.1 home",
        "evict x",
        "tell lost x",
        "evict y",
        "tell lost y",
        "tell cache of 0",
        "start 1.1",
    ]);
    // Nobody comes beside it, and nothing is read.
    n.assign(2, &[], &[]).assign(3, &[known("w", "v", 10, &[])], &[]).wait(60).expect(&[]);
    n.exited(1, &[10]).expect(&["store z", "tell cache of 62", "fetch w from home", "start 2.1"]);
}

#[test]
fn an_attempt_that_has_the_disk_to_itself_fails_for_itself_or_for_the_disk() {
    let full = DiskSeen { is_full: true, ..written(100, 10) };
    let reported = DiskSeen { is_said: true, ..written(100, 10) };
    for (disk, expected) in [
        (written(100, 99), "ExitCode(1)"),
        (reported, "ExitCode(1)"),
        (written(100, 100), "Node"),
        (full, "Node"),
    ] {
        let mut n = NodeScript::new(2, 0);
        n.assign_alone(0, &[], &[]).expect(&["start 0.1"]);
        n.failed_on(0, disk).expect(&["clean 0.1", &format!("tell 0.1 failed {expected}")]);
    }
}

#[test]
fn a_watched_program_gets_files_while_it_runs_and_they_stay_until_it_has_ended() {
    let mut n = NodeScript::new(2, 20);
    n.assign(0, &[], &[]).expect(&["start 0.1"]);
    n.named(0, &unknown("x")).expect(&["tell 0.1 opened x", "ask x"]);
    n.answer("x", "v1", 10).expect(&["fetch x from home"]);
    n.arrived("x", None, "v1", 10).expect(&["tell has x", "bring 0.1 x 0"]);
    // A second time it is here; another file comes from a peer.
    n.named(0, &known("x", "v1", 10, &[])).expect(&["tell 0.1 opened x", "bring 0.1 x 0"]);
    n.named(0, &known("y", "v1", 10, &[7])).expect(&["tell 0.1 opened y", "fetch y from 7"]);
    n.arrived("y", Some(7), "v1", 10).expect(&["tell has y", "bring 0.1 y 1"]);
    // The cache is full of what the program may have open: the next file is for it alone.
    n.named(0, &known("z", "v1", 10, &[7])).expect(&["tell 0.1 opened z", "fetch private z from home"]);
    n.arrived_private(0, 2, "v1", 10).expect(&["bring 0.1 z 2"]);
    n.exited_with(0, &["out"]);
    n.expect(&["tell 0.1 made out", "evict x", "tell lost x", "store out in the cache"]);
    n.stored(0, 0, 5).expect(&["tell has out", "tell 0.1 done", "land out from the cache"]);
    let remote = CacheOutcome::RemoteHit { from: ExecutorId(7) };
    assert_eq!(n.outcomes(), [CacheOutcome::Miss, remote, CacheOutcome::Direct]);
    n.landed(0, 0, true).expect(&["tell has out", "clean 0.1", "tell 0.1 home"]);
    n.recorded(0).expect(&[]);
    assert!(n.core.is_idle());
    n.core.sanity_check();
}

#[test]
fn what_a_watched_program_cannot_have_is_an_error_of_one_call() {
    let mut n = NodeScript::new(1, 20);
    n.assign(0, &[], &[]).expect(&["start 0.1"]);
    n.named(0, &known("x", "v1", 10, &[])).expect(&["tell 0.1 opened x", "fetch x from home"]);
    n.missed("x", None, TransferErrorKind::Unavailable).expect(&["bring 0.1 x not: of a test"]);
    // It may ask again, and end while it waits.
    n.named(0, &known("x", "v1", 10, &[])).expect(&["tell 0.1 opened x", "fetch x from home"]);
    n.exited(0, &[]);
    n.expect(&["clean 0.1", "tell 0.1 done"]);
    n.arrived("x", None, "v1", 10).expect(&["tell has x"]);
    n.core.sanity_check();
    assert_eq!(n.core.cache().reserved_bytes(), 0);
}
