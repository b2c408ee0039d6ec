//! What a dispatcher says to many executors: nothing from each to each, and answers that tell idle ones to speak less.

use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::{Held, Offer};
use eyas_core::{Digest, ExecutorId, HomeVersion, Timestamp};
use eyas_testkit::build::{reads, task};
use eyas_testkit::process::{FromNode, Journal, Process, ToNode};
use eyas_wire::message::{ExecutorHello, ExecutorStatus, FromExecutor, ToExecutor};

const S: u64 = 1_000_000_000;

fn config() -> DispatcherConfig {
    DispatcherConfig { lease_ns: 100 * S, ..DispatcherConfig::default() }
}

/// The executor of that number joins, with a connection of the same number.
fn join(process: &mut Process, now: Timestamp, number: u64, slots: u32, held: Vec<Held>) {
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
    let x = Held { digest: Digest([1; 32]), size_bytes: 10, origin };
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
    let mut told = vec![];
    let mut n_assigned = 0;
    for (life, message) in said(&mut process, now) {
        match message {
            ToExecutor::Peers { peers } => told.extend(peers.into_iter().map(|peer| (life, peer))),
            ToExecutor::Assign(assign) => {
                n_assigned += 1;
                for source in &assign.assignment.inputs[0].sources {
                    let knows =
                        |(to, (of, ..)): &(u64, (ExecutorId, String, u32))| (*to, *of) == (life, *source);
                    assert_eq!(
                        told.iter().filter(|peer| knows(peer)).count(),
                        1,
                        "{life} is sent to {source}"
                    );
                }
            }
            _ => {}
        }
    }
    assert!(n_assigned > 0, "the tasks are given out");
    assert!(told.iter().any(|(_, peer)| *peer == (ExecutorId(1), "host1:1".into(), 1)), "{told:?}");
    assert!(told.len() < 50 * 3, "{} addresses were told", told.len());
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
    now = now.plus_ns(9 * S);
    process.tick(now);
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
    let after = now.plus_ns(8 * S + S);
    for number in (1..=8000).filter(|number| *number != life) {
        beat(&mut process, now.plus_ns(S), number);
    }
    process.settle(after);
    process.tick(after);
    assert_eq!(process.settle(after).closed, [(life, life as usize)], "it alone is silent");
}
