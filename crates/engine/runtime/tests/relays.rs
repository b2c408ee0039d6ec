//! Executors behind a relay that speak nonsense, and relays that do.

use eyas_client::{Client, JoinFile};
use eyas_core::event::Offer;
use eyas_net::{self as net, FrameReader, Writer};
use eyas_runtime::dispatcher::{DispatcherOptions, run};
use eyas_runtime::relay::{self, RelayOptions};
use eyas_wire::identity::Join;
use eyas_wire::message::*;
use eyas_wire::relay::{Passed, RELAY_ITSELF};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `test` beside a dispatcher, and ends the dispatcher, which has to end well.
fn beside_dispatcher<F: Future<Output = ()>>(test: impl FnOnce(JoinFile) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let dispatcher = tokio::spawn(run(DispatcherOptions::local(dir.path())));
        let file = JoinFile::named(dir.path().join("join.json"));
        until(|| file.path().exists(), "the dispatcher").await;
        test(file.clone()).await;
        let mut client = Client::connect(&file.read().unwrap()).await.unwrap();
        client.ask(RequestBody::Shutdown).await.unwrap();
        timeout(PATIENCE, dispatcher).await.unwrap().unwrap().unwrap();
    });
}

async fn until(is_so: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn read(path: &Path) -> Join {
    Join::read(path).unwrap()
}

/// An executor that has been welcomed at this address.
async fn executor(join: &Join, address: &str, name: &str) -> (FrameReader, Writer) {
    let offer = Offer { name: name.into(), slots: 1, memory_bytes: 1, cache_bytes: 1, ..Offer::default() };
    let hello = ExecutorHello { offer, data_address: ":1".into(), data_id: 7, known_as: None, member: None };
    let (reader, writer, welcome) =
        net::enter(address, &join.identity, &Hello::Executor(hello)).await.unwrap();
    assert!(matches!(welcome, Welcome::Executor { .. }), "{welcome:?}");
    (reader, writer)
}

/// The dispatcher answers a status of this executor.
async fn is_heard(reader: &mut FrameReader, writer: &Writer) {
    writer.send(&vec![FromExecutor::Status(Box::default())]);
    let answered = async {
        loop {
            let batch = reader.next::<Vec<ToExecutor>>().await.unwrap().expect("the connection lasts");
            if batch.iter().any(|message| matches!(message, ToExecutor::Beat { .. })) {
                return;
            }
        }
    };
    timeout(PATIENCE, answered).await.expect("the dispatcher answers");
}

/// Everything until the other side ends the connection, which it has to do.
async fn is_ended(reader: &mut FrameReader) {
    let to_end = async { while let Ok(Some(_)) = reader.next_body().await {} };
    timeout(PATIENCE, to_end).await.expect("the connection ends");
}

#[test]
fn an_executor_that_speaks_nonsense_loses_its_own_connection_alone() {
    beside_dispatcher(|file| async move {
        let options =
            RelayOptions { target: file.read().unwrap(), listen: "127.0.0.1:0".into(), advertise: None };
        let relay = tokio::spawn(relay::run(options, std::future::pending()));
        until(|| !read(file.path()).relays.is_empty(), "the relay").await;
        let join = read(file.path());
        let at = &join.relays[0];
        let (mut good_reader, good) = executor(&join, at, "good").await;
        let (mut odd_reader, odd) = executor(&join, at, "odd").await;
        is_heard(&mut odd_reader, &odd).await;
        odd.send_body(&[0xff; 9]);
        is_ended(&mut odd_reader).await;
        is_heard(&mut good_reader, &good).await;
        // Whoever says nothing after the handshake is nobody's executor, and disturbs nobody.
        let (mut dumb_reader, dumb) = net::connect(at, &join.identity).await.unwrap();
        dumb.send_body(b"");
        is_ended(&mut dumb_reader).await;
        is_heard(&mut good_reader, &good).await;
        relay.abort();
        is_ended(&mut good_reader).await;
        until(|| read(file.path()).relays.is_empty(), "the end of the relay").await;
    });
}

#[test]
fn a_relay_that_speaks_nonsense_is_given_up_and_ends_no_other_member() {
    beside_dispatcher(|file| async move {
        let join = read(file.path());
        let (mut reader, writer) = executor(&join, &join.address, "direct").await;
        let peer = "127.0.0.1:9".parse().unwrap();
        let opened = Passed::Opened { peer, hello: b"" };
        for nonsense in
            [vec![(1, opened), (1, opened)], vec![(RELAY_ITSELF, opened)], vec![(RELAY_ITSELF, Passed::Ends)]]
        {
            let hello = Hello::Relay { address: "nowhere:1".into() };
            let (mut of_relay, as_relay, welcome) =
                net::enter(&join.address, &join.identity, &hello).await.unwrap();
            assert!(matches!(welcome, Welcome::Relay { .. }), "{welcome:?}");
            // Frames of a connection that nobody has opened are nobody's.
            as_relay.pass(77, Passed::Frame(&[0]));
            as_relay.pass(78, Passed::Closed);
            for (number, passed) in nonsense {
                as_relay.pass(number, passed);
            }
            is_ended(&mut of_relay).await;
            is_heard(&mut reader, &writer).await;
        }
        until(|| read(file.path()).relays.is_empty(), "the end of the relays").await;
    });
}
