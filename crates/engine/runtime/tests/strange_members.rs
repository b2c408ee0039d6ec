//! Members whose messages make no sense: the dispatcher reports that, and goes on for the others. And members
//! that are shut out by a crowd of strangers.

use eyas_client::{Client, JoinFile};
use eyas_core::event::{AttemptReport, InputReport, NodeMessage, Offer, ReplicaAdded, Times};
use eyas_net::{self as net, FrameReader, Writer};
use eyas_runtime::dispatcher::{DispatcherError, DispatcherOptions, run};
use eyas_terms::{AttemptNo, CacheOutcome, Digest, ObjectId, Outcome, TaskId, Timestamp};
use eyas_wire::identity::{Identity, Join};
use eyas_wire::message::*;
use eyas_wire::users::ClusterRights;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn options(dir: &Path) -> DispatcherOptions {
    DispatcherOptions { capture_head_bytes: 100, capture_tail_bytes: 100, ..DispatcherOptions::local(dir) }
}

async fn joined(join: &Join, offer: Offer) -> (FrameReader, Writer, Welcome) {
    let hello =
        ExecutorHello { offer, data_address: "127.0.0.1:1".into(), data_id: 7, known_as: None, member: None };
    net::enter(&join.address, &join.identity, &Hello::Executor(hello)).await.unwrap()
}

/// The last message of the dispatcher to the executor.
async fn shut_down(reader: &mut FrameReader) -> String {
    loop {
        for message in reader.next::<Vec<ToExecutor>>().await.unwrap().expect("a message") {
            if let ToExecutor::Shutdown { reason } = message {
                return reason;
            }
        }
    }
}

fn offer() -> Offer {
    Offer { name: "odd".into(), slots: 1, memory_bytes: 1 << 30, cache_bytes: 1 << 30, ..Offer::default() }
}

/// A dispatcher that answers, and its folder.
fn started() -> (tempfile::TempDir, JoinHandle<Result<(), DispatcherError>>) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_path_buf();
    let dispatcher = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(options(&at)))
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while !dir.path().join("join.json").exists() {
        assert!(Instant::now() < deadline && !dispatcher.is_finished(), "the dispatcher does not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    (dir, dispatcher)
}

#[test]
fn an_impossible_message_is_refused_and_ends_no_other_member() {
    let (dir, dispatcher) = started();
    let join_path = dir.path().join("join.json");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let join = Join::read(&join_path).unwrap();
        for (offer, expect) in [
            (Offer { slots: u32::MAX, ..offer() }, "4294967295 slots"),
            (Offer { cache_bytes: u64::MAX, ..offer() }, "a cache of 18446744073709551615 bytes"),
        ] {
            match joined(&join, offer).await {
                (_, _, Welcome::Refused { reason }) => assert!(reason.contains(expect), "{reason}"),
                (_, _, other) => panic!("{other:?}"),
            }
        }
        let input =
            InputReport { object: ObjectId(63), outcome: CacheOutcome::Miss, size_bytes: 1, wait_ns: 0 };
        let report = AttemptReport {
            task: TaskId(0),
            attempt: AttemptNo(1),
            outcome: Outcome::Done,
            times: Times::default(),
            inputs: vec![input],
            in_memory: vec![],
            outputs: vec![],
            cpu_ns: 0,
            rss_bytes_max: 0,
            left: None,
        };
        let added = ReplicaAdded {
            object: ObjectId(63),
            digest: Digest([1; 32]),
            size_bytes: 1,
            version: None,
            run: None,
            private: false,
        };
        // Of a task that nobody knows nothing is believed, and the end is only acknowledged.
        for (message, expect) in [
            (NodeMessage::ReplicaAdded(added), Some("object 63, which nobody named")),
            (NodeMessage::ReplicaDropped(ObjectId(u32::MAX)), Some("object 4294967295, which nobody named")),
            (NodeMessage::AttemptEnded { report: Arc::new(report) }, None),
        ] {
            let (mut reader, writer, welcome) = joined(&join, offer()).await;
            assert!(matches!(welcome, Welcome::Executor { .. }), "{welcome:?}");
            assert!(writer.send(&vec![FromExecutor::Node(message)]));
            if let Some(expect) = expect {
                let reason = shut_down(&mut reader).await;
                assert!(reason.contains(expect), "{reason}");
            }
        }
        let mut client = Client::connect(&JoinFile::named(join_path).read().unwrap()).await.unwrap();
        assert!(matches!(client.ask(RequestBody::Status).await.unwrap(), ReplyBody::Status(_)));
        client.ask(RequestBody::Shutdown).await.unwrap();
    });
    dispatcher.join().unwrap().unwrap();
}

/// A user of the cluster with all rights, and their first connection. `name`: theirs.
async fn user(owner: &mut Client, join: &Join, name: &str) -> (Identity, FrameReader, Writer) {
    let identity = join.identity.for_user().unwrap();
    let body = RequestBody::SetUser {
        name: name.into(),
        key: Some(identity.key().unwrap()),
        rights: Some(ClusterRights::ALL),
        weight: None,
    };
    assert!(matches!(owner.ask(body).await.unwrap(), ReplyBody::Users(_)));
    let hello = Hello::Client { name: name.into() };
    let (reader, writer, welcome) = net::enter(&join.address, &identity, &hello).await.unwrap();
    assert!(matches!(welcome, Welcome::Client { .. }), "{welcome:?}");
    (identity, reader, writer)
}

/// Whoever has no key any more is not heard, over whichever connection: an open one, and one that went through the door before the
/// key was taken back and says hello after that.
#[test]
fn a_user_whose_key_is_taken_back_is_not_heard_any_more() {
    let (dir, dispatcher) = started();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let join = Join::read(&dir.path().join("join.json")).unwrap();
        let mut owner =
            Client::connect(&JoinFile::named(dir.path().join("join.json")).read().unwrap()).await.unwrap();
        let (identity, mut reader, writer) = user(&mut owner, &join, "mal").await;
        let (mut at_door, at_door_writer) = net::connect(&join.address, &identity).await.unwrap();
        let remove = RequestBody::RemoveUser { name: "mal".into() };
        assert!(matches!(owner.ask(remove).await.unwrap(), ReplyBody::Users(_)));
        writer.send(&Request { number: 1, body: RequestBody::Shutdown });
        at_door_writer.send(&Hello::Client { name: "mal".into() });
        at_door_writer.send(&Request { number: 1, body: RequestBody::Shutdown });
        // Nothing is said to an open connection, and its end is its own.
        assert!(!matches!(reader.next::<Reply>().await, Ok(Some(_))));
        if let Ok(Some(welcome)) = at_door.next::<Welcome>().await {
            let Welcome::Refused { reason } = welcome else { panic!("{welcome:?}") };
            assert!(reason.contains("key was taken back"), "{reason}");
            assert!(!matches!(at_door.next::<Reply>().await, Ok(Some(_))));
        }
        assert!(net::connect(&join.address, &identity).await.is_err(), "the door lets them in");
        // The cluster is as it was.
        let ReplyBody::Users(users) = owner.ask(RequestBody::Users).await.unwrap() else { panic!() };
        assert_eq!(users.iter().map(|user| &*user.name).collect::<Vec<_>>(), [""]);
        owner.ask(RequestBody::Shutdown).await.unwrap();
    });
    dispatcher.join().unwrap().unwrap();
}

#[test]
fn a_member_that_is_shut_out_before_its_welcome_comes_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let identity = Identity::generate().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // A crowd makes it close the first connections when their greeting is over for the other side.
        let door = net::keep_door(
            listener,
            identity.server_config().unwrap(),
            8,
            |connection, _, _, writer| async move {
                if connection > 3 {
                    writer.send(&Welcome::Client {
                        incarnation: connection,
                        now: Timestamp(0),
                        members: vec![],
                    });
                    writer.finish().await;
                }
            },
        );
        let door = tokio::spawn(door);
        let hello = Hello::Client { name: "late".into() };
        let (_, _, welcome) = net::enter(&address, &identity, &hello).await.unwrap();
        assert!(matches!(welcome, Welcome::Client { incarnation: 4, .. }), "{welcome:?}");
        door.abort();
    });
}

/// An accepted member is no stranger any more: no connection stays open without a task that reads it.
#[test]
fn a_member_that_is_let_in_while_strangers_have_to_go_is_heard() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let identity = Arc::new(Identity::generate().unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let config = identity.server_config().unwrap();
        // As in a dispatcher, whose service answers.
        let answering = Arc::new(Mutex::new(vec![]));
        let door = net::keep_door(listener, config, 2, move |connection, _, mut reader, writer| {
            let answering = answering.clone();
            async move {
                let Ok(Some(Hello::Client { name })) = reader.first::<Hello>().await else { return };
                answering.lock().unwrap().push(writer.clone());
                writer.send(&Welcome::Client {
                    incarnation: connection,
                    now: Timestamp(0),
                    members: vec![name],
                });
                while let Ok(Some(asked)) = reader.next::<u64>().await {
                    writer.send(&(asked + 1));
                }
            }
        });
        let door = tokio::spawn(door);
        let crowd_at = address.clone();
        let crowd = tokio::spawn(async move {
            loop {
                let _ = tokio::net::TcpStream::connect(&crowd_at).await;
            }
        });
        let members = (0..4).map(|k| {
            let (identity, address) = (identity.clone(), address.clone());
            tokio::spawn(async move {
                for i in 0..400 {
                    let hello = Hello::Client { name: format!("{k}.{i}") };
                    let (mut reader, writer, _) = net::enter(&address, &identity, &hello).await.unwrap();
                    writer.send(&7_u64);
                    let answer = tokio::time::timeout(Duration::from_secs(20), reader.next::<u64>()).await;
                    // It may be shut out, but is never left without a word.
                    assert!(answer.expect("somebody listens").is_ok_and(|a| a.is_none_or(|a| a == 8)));
                }
            })
        });
        for member in members.collect::<Vec<_>>() {
            member.await.unwrap();
        }
        crowd.abort();
        door.abort();
    });
}
