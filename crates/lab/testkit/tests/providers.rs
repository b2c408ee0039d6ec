//! Tasks that wait for a node which a provider may bring: how long they do after the provider is gone.

use eyas_core::dispatcher::{DispatcherConfig, TaskState};
use eyas_core::event::Offer;
use eyas_terms::needs::{Equipment, Size};
use eyas_terms::*;
use eyas_testkit::build::task;
use eyas_testkit::process::{FromNode, Journal, Process};
use eyas_wire::message::{ExecutorHello, FromExecutor, Provisioner};

const S: u64 = 1_000_000_000;

fn at(s: u64) -> Timestamp {
    Timestamp(s * S)
}

/// What a provider says that brings nodes of four slots.
fn provisioner() -> Provisioner {
    Provisioner { node: Size::of_node(4, 1 << 30, &Equipment::default()), ..Provisioner::default() }
}

/// A process with a node of one slot, a provider that has asked at second 1, and a task of four cpus. Gives the provider's connection.
fn begun() -> (Process, u64) {
    let mut process = Process::start(&DispatcherConfig::default(), 1, at(1), &mut Journal::default());
    process.on_connected(1, 0);
    let offer = Offer { slots: 1, memory_bytes: 1 << 30, cache_bytes: 1 << 30, ..Offer::default() };
    let hello =
        ExecutorHello { offer, data_address: "host:1".into(), data_id: 1, known_as: None, member: None };
    process.on_batch(at(1), 1, vec![FromNode::Hello(Box::new(hello))]);
    let (provider, _) = process.ask_demand(at(1), None, provisioner());
    process.submit(at(1), &[task("t").cpus(4).array()], false).expect("nothing refuses it");
    process.on_durable(at(1), process.journal().records.len());
    process.settle(at(1));
    (process, provider)
}

/// Time passes until second `until`, with a tick each second; gives when the task ended, if it did.
fn pass(process: &mut Process, from: u64, until: u64) -> Option<u64> {
    (from..=until).find(|s| {
        let beat = FromExecutor::Status(Box::default());
        process.on_batch(at(*s), 1, vec![FromNode::Says(Box::new(beat))]);
        process.tick(at(*s));
        process.settle(at(*s));
        process.core().task_state(TaskId(0)) == TaskState::Failed
    })
}

#[test]
fn a_task_waits_while_there_is_a_provider_and_two_minutes_longer() {
    let (mut process, provider) = begun();
    assert_eq!(pass(&mut process, 2, 300), None, "the provider is connected");
    process.on_disconnected(at(300), provider);
    // Two minutes, and the 15 s of a task that fits no node.
    let ended = pass(&mut process, 301, 600);
    let ended = ended.unwrap_or_else(|| panic!("{:?}", process.core().task_state(TaskId(0))));
    assert!((300 + 120 + 15..=300 + 120 + 15 + 3).contains(&ended), "{ended}");
}

#[test]
fn a_provider_that_comes_back_in_time_is_not_missed() {
    let (mut process, mut provider) = begun();
    for round in 0..3 {
        let gone = 10 + round * 110;
        process.on_disconnected(at(gone), provider);
        assert_eq!(pass(&mut process, gone + 1, gone + 100), None, "it may come back");
        (provider, _) = process.ask_demand(at(gone + 100), None, provisioner());
        assert_eq!(pass(&mut process, gone + 101, gone + 109), None);
    }
}
