//! What a dispatcher says to many executors: nothing from each to each, and answers that tell idle ones to speak less.

use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::{AttemptReport, HeldObject, NodeMessage, Offer, Times};
use eyas_terms::{AttemptNo, Digest, ExecutorId, HomeVersion, Outcome, TaskId, Timestamp};
use eyas_testkit::build::{array_of, reads, task};
use eyas_testkit::process::{FromNode, Journal, Process, ToNode};
use eyas_wire::message::{ExecutorHello, ExecutorStatus, FromExecutor, ToExecutor};
use std::collections::{BTreeMap, VecDeque};

const S: u64 = 1_000_000_000;

fn config() -> DispatcherConfig {
    DispatcherConfig { lease_ns: 100 * S, ..DispatcherConfig::default() }
}

/// The executor of that number joins, with a connection of the same number.
fn join(process: &mut Process, now: Timestamp, number: u64, slots: u32, held: Vec<HeldObject>) {
    let offer = Offer {
        name: format!("n{number}"),
        slots,
        memory_bytes: 1 << 30,
        cache_bytes: 1 << 30,
        held,
        ..Offer::default()
    };
    let (data_address, data_id) = (format!("host{number}:1"), number as u32);
    let hello = ExecutorHello { offer, data_address, data_id, known_as: None, member: None };
    process.on_connected(number, number as usize);
    process.on_batch(now, number, vec![FromNode::Hello(Box::new(hello))]);
}

/// What was said since the last call, beside welcomes: to the connection of which number.
fn said(process: &mut Process, now: Timestamp) -> Vec<(u64, ToExecutor)> {
    let mut said = vec![];
    for (life, _, batch) in process.settle(now).to_nodes {
        for message in batch {
            if let ToNode::Says(message) = message {
                said.push((life, *message));
            }
        }
    }
    said
}

fn beat(process: &mut Process, now: Timestamp, number: u64) {
    let status = FromExecutor::Status(Box::<ExecutorStatus>::default());
    process.on_batch(now, number, vec![FromNode::Says(Box::new(status))]);
}

/// With a message from each to each, 54,000 executors that join would be sent a thousand million addresses.
#[test]
fn an_executor_learns_once_where_another_one_is_when_it_first_fetches_from_it() {
    let now = Timestamp(1);
    let placement = eyas_core::placement::max_compute_util::NAME.into();
    let config = DispatcherConfig { placement, ..config() };
    let mut process = Process::start(&config, 1, now, &mut Journal::default());
    let origin = Some(("x".to_string(), HomeVersion::default()));
    let x = HeldObject { digest: Digest([1; 32]), size_bytes: 10, origin };
    // The holder has no slot that fits, so readers run elsewhere.
    join(&mut process, now, 1, 1, vec![x]);
    for number in 2..=50 {
        join(&mut process, now, number, 2, vec![]);
    }
    let others = |(_, message): &(u64, ToExecutor)| matches!(message, ToExecutor::Peers { .. });
    assert!(!said(&mut process, now).iter().any(others), "nobody needs to know anybody");
    let arrays: Vec<_> = (0..3).map(|i| reads("x").cpus(2).priority(i).array()).collect();
    process.submit(now, &arrays, false).expect("nothing refuses it");
    process.on_durable(now, process.journal().records.len());
    let mut known_peers = vec![];
    let mut n_assigned = 0;
    for (life, message) in said(&mut process, now) {
        match message {
            ToExecutor::Peers { peers } => known_peers.extend(peers.into_iter().map(|peer| (life, peer))),
            ToExecutor::Assign(assign) => {
                n_assigned += 1;
                for source in &assign.assignment.inputs[0].sources {
                    let knows =
                        |(to, (of, ..)): &(u64, (ExecutorId, String, u32))| (*to, *of) == (life, *source);
                    assert_eq!(
                        known_peers.iter().filter(|peer| knows(peer)).count(),
                        1,
                        "{life} is sent to {source}"
                    );
                }
            }
            _ => {}
        }
    }
    assert!(n_assigned > 0, "the tasks are given out");
    assert!(
        known_peers.iter().any(|(_, peer)| *peer == (ExecutorId(1), "host1:1".into(), 1)),
        "{known_peers:?}"
    );
    assert!(known_peers.len() < 50 * 3, "{} addresses were sent", known_peers.len());
}

#[test]
fn executors_without_work_speak_less_often_the_more_there_are_and_do_not_count_as_silent() {
    let idle_ns = |process: &mut Process, now, number| {
        beat(process, now, number);
        let said = said(process, now);
        let answers = said.into_iter().filter_map(|(life, message)| match message {
            ToExecutor::Beat { idle_ns } if life == number => Some(idle_ns),
            _ => None,
        });
        answers.collect::<Vec<_>>()
    };
    let mut now = Timestamp(S);
    let mut process = Process::start(&config(), 1, now, &mut Journal::default());
    for number in 1..=2000 {
        join(&mut process, now, number, 1, vec![]);
    }
    process.settle(now);
    assert_eq!(idle_ns(&mut process, now, 1), [S], "so few may all speak every second");
    for number in 2001..=8000 {
        join(&mut process, now, number, 1, vec![]);
    }
    process.settle(now);
    assert_eq!(idle_ns(&mut process, now, 1), [4 * S], "2,000 of 8,000 in a second");
    for number in 2..=8000 {
        beat(&mut process, now, number);
    }
    process.settle(now);

    // 9 s of silence, which is more than 8 heartbeats of an executor with work and less than a few of these.
    for _ in 0..9 {
        now = now.plus_ns(S);
        process.tick(now);
    }
    assert_eq!(process.settle(now).closed, [], "an executor without work need not have spoken yet");
    let run = process.submit(now, &[task("t").array()], false).expect("nothing refuses it");
    process.on_durable(now, process.journal().records.len());
    let given = said(&mut process, now).into_iter().find_map(|(life, message)| match message {
        ToExecutor::Assign(assign) => Some((life, assign.assignment.run)),
        _ => None,
    });
    let (life, of) = given.expect("the task is given to somebody");
    assert_eq!(of, run);
    // It says nothing, although it has work now; the others speak.
    for number in (1..=8000).filter(|number| *number != life) {
        beat(&mut process, now, number);
    }
    process.settle(now);
    let mut closed = vec![];
    for _ in 0..9 {
        now = now.plus_ns(S);
        process.tick(now);
        closed.extend(process.settle(now).closed);
    }
    assert_eq!(closed, [(life, life as usize)], "it alone is silent");
}

/// A dispatcher that was stopped, or that was busy, finds what executors have said only when it looks.
#[test]
fn a_dispatcher_that_was_held_up_takes_nobody_for_silent_who_could_not_be_heard() {
    let mut now = Timestamp(S);
    let mut process = Process::start(&config(), 1, now, &mut Journal::default());
    for number in 1..=20 {
        join(&mut process, now, number, 2, vec![]);
    }
    process.submit(now, &[array_of(40, &task("t"))], false).expect("nothing refuses it");
    process.on_durable(now, process.journal().records.len());
    let n_given = said(&mut process, now).iter().filter(|(_, m)| matches!(m, ToExecutor::Assign(_))).count();
    assert_eq!(n_given, 40, "all have work");
    for _ in 0..3 {
        now = now.plus_ns(60 * S);
        process.tick(now);
        assert_eq!(process.settle(now).closed, [], "it did not look for a minute");
    }
    let mut closed = vec![];
    for _ in 0..8 {
        now = now.plus_ns(S);
        process.tick(now);
        closed.extend(process.settle(now).closed);
    }
    assert_eq!(closed.len(), 20, "now it looked, and nobody spoke");
}

/// What the executor of that connection is given by `said`.
fn given(said: &[(u64, ToExecutor)], number: u64) -> Vec<(TaskId, AttemptNo)> {
    let assigned = said.iter().filter_map(|(life, message)| match message {
        ToExecutor::Assign(assign) if *life == number => {
            Some((assign.assignment.task, assign.assignment.attempt))
        }
        _ => None,
    });
    assigned.collect()
}

/// Tasks that take no time at all would be given out ahead by the million: each costs memory until it has ended, and the
/// reports of all executors wait for each other.
#[test]
fn the_more_executors_there_are_the_fewer_tasks_each_is_given_ahead() {
    let placement = eyas_core::placement::first_available::NAME.to_string();
    let mut held = BTreeMap::new();
    for n_executors in [100, 1000] {
        let now = Timestamp(S);
        let config = DispatcherConfig { placement: placement.clone(), ..config() };
        let mut process = Process::start(&config, 1, now, &mut Journal::default());
        for number in 1..=n_executors {
            join(&mut process, now, number, 1, vec![]);
        }
        process.submit(now, &[array_of(200_000, &task("t"))], false).expect("nothing refuses it");
        process.on_durable(now, process.journal().records.len());
        let mut here = VecDeque::from(given(&said(&mut process, now), 1));
        assert_eq!(here.len(), 2, "one for the slot and one ahead, as no run time is known");
        let mut n_held = vec![];
        for _ in 0..600 {
            let (task, attempt) = here.pop_front().expect("it always has some");
            let report = AttemptReport {
                task,
                attempt,
                outcome: Outcome::Done,
                times: Times { received: now, inputs_ready: now, started: now, exited: now },
                inputs: vec![],
                in_memory: vec![],
                outputs: vec![],
                cpu_ns: 0,
                rss_bytes_max: 0,
                left: None,
            };
            let message = FromExecutor::Node(NodeMessage::AttemptEnded { report: report.into() });
            process.on_batch(now, 1, vec![FromNode::Says(Box::new(message))]);
            here.extend(given(&said(&mut process, now), 1));
            n_held.push(here.len());
        }
        assert_eq!(n_held[0], 1 + 64, "the most that an executor gets that has run one task");
        held.insert(n_executors, n_held.into_iter().max());
    }
    assert_eq!(held[&100], Some(1 + 512), "the most that one executor gets");
    assert_eq!(held[&1000], Some(1 + 65), "a thousandth of what all may get together");
}

/// The only holder of the file cannot run these tasks. `affinity` copies a file for a task that has waited as long as a
/// copy takes, so at first it gives nothing out, although 199 executors are idle. Time alone brings the tasks to them.
#[test]
fn tasks_that_read_one_file_of_another_node_are_not_given_out_at_first_and_then_one_after_the_other() {
    let mut now = Timestamp(S);
    let placement = eyas_core::placement::affinity::NAME.into();
    let config = DispatcherConfig { placement, ..config() };
    let mut process = Process::start(&config, 1, now, &mut Journal::default());
    let origin = Some(("x".to_string(), HomeVersion::default()));
    let x = HeldObject { digest: Digest([1; 32]), size_bytes: 10, origin };
    join(&mut process, now, 1, 1, vec![x]);
    for number in 2..=200 {
        join(&mut process, now, number, 2, vec![]);
    }
    let arrays: Vec<_> = (0..200).map(|i| reads("x").cpus(2).priority(i).array()).collect();
    process.submit(now, &arrays, false).expect("nothing refuses it");
    process.on_durable(now, process.journal().records.len());
    let mut n_given = vec![];
    for _ in 0..10 {
        let said = said(&mut process, now);
        n_given.push((1..=200).map(|number| given(&said, number).len()).sum::<usize>());
        now = process.wake_at().expect("the dispatcher knows when it has to look again");
        process.wake(now);
    }
    assert_eq!(n_given[0], 0, "no task has waited yet");
    assert!(n_given[1..].iter().all(|n| *n > 0), "{n_given:?}");
}
