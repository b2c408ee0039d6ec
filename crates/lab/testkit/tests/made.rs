//! Objects that a node makes of packed ones, event by event.

use eyas_core::event::*;
use eyas_terms::*;
use eyas_testkit::script::{In, NodeScript, known, unknown};

/// The packed input and the one that is made of it.
fn pair(packed: In, made: In) -> [In; 2] {
    [In { making: Making::Packed, ..packed }, In { making: Making::Made, ..made }]
}

fn unknown_pair() -> [In; 2] {
    pair(unknown("p"), unknown("m"))
}

fn known_pair() -> [In; 2] {
    pair(known("p", "packed", 10, &[7]), known("m", "made", 30, &[]))
}

/// The packed object is here, and the made one is being made.
fn until_made(n: &mut NodeScript) {
    n.answer("p", "packed", 10).expect(&[]);
    n.answer("m", "packed", 10).expect(&["fetch p from home"]);
    n.arrived("p", None, "packed", 10).expect(&["tell has p", "make m of p"]);
}

#[test]
fn it_is_made_once_for_all_who_wait_for_it() {
    let mut n = NodeScript::new(2, 100);
    n.assign(0, &unknown_pair(), &[]).expect(&["ask p", "ask m"]);
    n.assign(1, &unknown_pair(), &[]).expect(&[]);
    until_made(&mut n);
    // It is larger than the packed one, as one knows now, and there is room for it.
    n.missed("m", None, TransferErrorKind::Larger { bytes: 30 }).expect(&["make m of p"]);
    n.arrived("m", None, "made", 30).expect(&["tell has m", "start 0.1", "start 1.1"]);
    n.exited(0, &[]).expect(&["clean 0.1", "tell 0.1 done"]);
    n.exited(1, &[]).expect(&["clean 1.1", "tell 1.1 done"]);
    assert_eq!(n.core.cache().used_bytes(), 40);
    n.assign(2, &known_pair(), &[]).expect(&["start 2.1"]);
    n.exited(2, &[]).expect(&["clean 2.1", "tell 2.1 done"]);
    // The packed object was not needed, so nothing is said of it.
    assert_eq!(n.outcomes(), [CacheOutcome::LocalHit]);
}

#[test]
fn the_packed_object_may_leave_and_the_made_one_serves() {
    let mut n = NodeScript::new(1, 40);
    n.assign(0, &known_pair(), &[]).expect(&["fetch p from 7"]);
    n.arrived("p", Some(7), "packed", 10).expect(&["tell has p", "make m of p"]);
    n.arrived("m", None, "made", 30).expect(&["tell has m", "start 0.1"]);
    n.exited(0, &[]).expect(&["clean 0.1", "tell 0.1 done"]);
    n.assign(1, &known_pair(), &[]).expect(&["start 1.1"]);
    n.assign(2, &[known("x", "x", 10, &[])], &[]).expect(&["evict p", "tell lost p", "fetch x from home"]);
    n.exited(1, &[]).expect(&["clean 1.1", "tell 1.1 done"]);
    n.missed("x", None, TransferErrorKind::Unavailable);
    n.expect(&["clean 2.1", "tell 2.1 failed InputUnavailable"]);
    n.assign(3, &known_pair(), &[]).expect(&["start 3.1"]);
    n.exited(3, &[]).expect(&["clean 3.1", "tell 3.1 done"]);
}

#[test]
fn what_is_larger_than_its_room_waits_for_more() {
    let mut n = NodeScript::new(2, 40);
    n.assign(0, &[known("x", "x", 20, &[])], &[]).expect(&["fetch x from home"]);
    n.arrived("x", None, "x", 20).expect(&["tell has x", "start 0.1"]);
    n.assign(1, &unknown_pair(), &[]).expect(&["ask p", "ask m"]);
    until_made(&mut n);
    n.missed("m", None, TransferErrorKind::Larger { bytes: 25 }).expect(&[]);
    assert_eq!(n.core.cache().reserved_bytes(), 0);
    n.exited(0, &[]);
    n.expect(&["clean 0.1", "tell 0.1 done", "evict x", "tell lost x", "tell has p", "make m of p"]);
    n.arrived("m", None, "made", 25).expect(&["tell has m", "start 1.1"]);
    n.exited(1, &[]).expect(&["clean 1.1", "tell 1.1 done"]);
}

#[test]
fn what_cannot_be_made_fails_all_who_wait() {
    let mut n = NodeScript::new(2, 100);
    n.assign(0, &unknown_pair(), &[]).expect(&["ask p", "ask m"]);
    n.assign(1, &unknown_pair(), &[]).expect(&[]);
    until_made(&mut n);
    n.missed("m", None, TransferErrorKind::Unmakeable);
    n.expect(&[
        "clean 0.1",
        "tell 0.1 failed InputUnmakeable",
        "clean 1.1",
        "tell 1.1 failed InputUnmakeable",
    ]);
    assert_eq!(n.core.cache().reserved_bytes(), 0);
    // The packed one is an object like others, and stays.
    assert_eq!(n.core.cache().used_bytes(), 10);
}

#[test]
fn what_fits_no_cache_is_made_for_one_attempt() {
    let mut n = NodeScript::new(1, 20);
    n.assign(0, &known_pair(), &[]).expect(&["fetch p from 7"]);
    n.arrived("p", Some(7), "packed", 10).expect(&["tell has p", "make m of p"]);
    n.arrived_private(0, 1, "made", 30).expect(&["start 0.1"]);
    n.exited(0, &[]).expect(&["clean 0.1", "tell 0.1 done"]);
}
