//! Objects that are passed on while they arrive: who gets what, when, and what a break in the middle leaves.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use eyas_data::{
    Digest, Error, ErrorKind, FetchEnd, FetchItem, Incoming, PeerClient, PeerClientOptions, PeerServer,
    PeerServerOptions, Store, Stored, Ticket, TicketKey,
};

const BUDGET_BYTES: u64 = 256 << 20;
/// For what has to come: longer than any machine needs.
const LONG: Duration = Duration::from_secs(30);

fn key() -> TicketKey {
    TicketKey::from_secret(b"the cluster's secret")
}

/// A member: a store that is served and that fetches.
struct Node {
    id: u32,
    dir: tempfile::TempDir,
    store: Store,
    server: PeerServer,
    client: PeerClient,
}

impl Node {
    fn new(id: u32) -> Node {
        Node::with(id, PeerServerOptions::default())
    }

    fn with(id: u32, options: PeerServerOptions) -> Node {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = Store::open(dir.path(), BUDGET_BYTES).expect("opens");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = PeerServer::start(listener, store.clone(), key(), id, options).expect("starts");
        let client = {
            // Both ways to hash are tried on any machine.
            let options =
                PeerClientOptions { hashes_apart: id.is_multiple_of(2), ..PeerClientOptions::default() };
            PeerClient::new(key(), id, options)
        };
        Node { id, dir, store, server, client }
    }

    fn chain(n: u32) -> Vec<Node> {
        (0..n).map(Node::new).collect()
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn begin(&self, size: usize) -> Incoming {
        self.store.begin(self.store.reserve(size as u64).expect("free"))
    }

    /// An object that this node says it is receiving.
    fn announced(&self, bytes: &[u8]) -> (Digest, Incoming) {
        let digest = Digest::of(bytes);
        let mut incoming = self.begin(bytes.len());
        incoming.announce(digest, bytes.len() as u64);
        (digest, incoming)
    }

    fn put(&self, bytes: &[u8]) -> Digest {
        let mut incoming = self.begin(bytes.len());
        incoming.append(bytes).expect("written");
        incoming.finish(None).expect("stored").digest
    }

    fn ticket(&self, from: &Node, digest: Digest, size: usize) -> Ticket {
        Ticket::issue(&key(), digest, size as u64, from.id, self.id, u64::MAX)
    }

    fn fetch(
        &self,
        from: &Node,
        digest: Digest,
        size: usize,
        wait: Duration,
    ) -> Result<Stored, Box<(Error, Option<Incoming>)>> {
        self.go_on(from, digest, size, wait, self.begin(size))
    }

    fn go_on(
        &self,
        from: &Node,
        digest: Digest,
        size: usize,
        wait: Duration,
        into: Incoming,
    ) -> Result<Stored, Box<(Error, Option<Incoming>)>> {
        let items = vec![FetchItem { ticket: self.ticket(from, digest, size), into }];
        let mut ends = Vec::new();
        self.client.fetch_waiting(from.address(), items, wait, |_, end| ends.push(end));
        match <[FetchEnd; 1]>::try_from(ends).expect("one item, one end") {
            [FetchEnd::Stored(stored)] => Ok(stored),
            [FetchEnd::Failed { error, partial }] => Err(Box::new((error, partial))),
        }
    }

    fn bytes_of(&self, digest: &Digest) -> Vec<u8> {
        fs::read(self.store.path_of(digest)).expect("held")
    }

    /// Bytes on disk of what is arriving here.
    fn arrived_bytes(&self) -> u64 {
        let entries = fs::read_dir(self.incoming_dir()).expect("readable");
        // An entry that has just been renamed away is no longer arriving.
        entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum()
    }

    fn incoming_dir(&self) -> PathBuf {
        self.dir.path().join("cache/incoming")
    }

    /// Nothing is half done, nothing held is wrong, nothing is being served.
    fn sanity_check(&self) {
        assert_eq!(self.store.usage().reserved_bytes, 0);
        assert_eq!(fs::read_dir(self.incoming_dir()).expect("readable").count(), 0);
        for (digest, _) in self.store.scan() {
            self.store.verify(&digest).expect("whole");
        }
        poll("all streams to end", || self.server.n_streams() == 0);
    }
}

fn poll(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !ready() {
        assert!(Instant::now() < deadline, "waited {LONG:?} for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn content(n: u64, size: usize) -> Vec<u8> {
    (0..size as u64).map(|i| ((i.wrapping_mul(2 * n + 1) >> 3) ^ n) as u8).collect()
}

/// Below and above the size from which a second thread writes.
const SIZES: [usize; 2] = [1_000_001, 9_000_001];

#[test]
fn a_chain_that_starts_before_there_is_a_byte() {
    for size in SIZES {
        let nodes = Node::chain(4);
        let bytes = content(1, size);
        let (digest, mut arriving) = nodes[0].announced(&bytes);
        thread::scope(|scope| {
            // The last first: each waits for one that does not even know of the object yet.
            for pair in nodes.windows(2).rev() {
                scope.spawn(move || {
                    let stored = pair[1].fetch(&pair[0], digest, size, LONG).map_err(|e| e.0);
                    assert_eq!(stored.expect("fetched").digest, digest);
                });
            }
            arriving.append(&bytes[..size / 2]).expect("written");
            poll("the half at the end of the chain", || nodes[3].arrived_bytes() == size as u64 / 2);
            assert!(nodes[1..].iter().all(|node| node.store.find(&digest).is_none()));
            arriving.append(&bytes[size / 2..]).expect("written");
            poll("all bytes at the end of the chain", || nodes[3].arrived_bytes() == size as u64);
            arriving.finish(Some(digest)).expect("stored");
        });
        for node in &nodes {
            assert!(node.bytes_of(&digest) == bytes);
            node.sanity_check();
        }
    }
}

#[test]
fn a_source_that_gives_up_leaves_what_can_be_resumed_elsewhere() {
    for size in SIZES {
        let nodes = Node::chain(4);
        let bytes = content(2, size);
        let (digest, mut arriving) = nodes[0].announced(&bytes);
        assert_eq!(nodes[3].put(&bytes), digest);
        arriving.append(&bytes[..size / 2]).expect("written");
        let failed = thread::scope(|scope| {
            let last = scope.spawn(|| nodes[2].fetch(&nodes[1], digest, size, LONG));
            let middle = scope.spawn(|| nodes[1].fetch(&nodes[0], digest, size, LONG));
            poll("the half at the end", || nodes[2].arrived_bytes() == size as u64 / 2);
            drop(arriving);
            let failed = *middle.join().expect("no panic").expect_err("given up");
            // Those behind it go on if it goes on: here it does, at another holder.
            let partial = failed.1.expect("what arrived is kept");
            assert_eq!((failed.0.kind, partial.written()), (ErrorKind::NotHeld, size as u64 / 2));
            nodes[1]
                .go_on(&nodes[3], digest, size, Duration::ZERO, partial)
                .map_err(|e| e.0)
                .expect("resumed");
            last.join().expect("no panic")
        });
        assert_eq!(failed.map_err(|e| e.0).expect("it never noticed").digest, digest);
        assert!(nodes[2].bytes_of(&digest) == bytes);

        // And one that is not resumed ends those behind it as well.
        nodes[1].store.remove(&digest).expect("held");
        nodes[2].store.remove(&digest).expect("held");
        let (_, mut arriving) = nodes[0].announced(&bytes);
        arriving.append(&bytes[..100]).expect("written");
        thread::scope(|scope| {
            let last = scope.spawn(|| nodes[2].fetch(&nodes[1], digest, size, LONG));
            let middle = scope.spawn(|| nodes[1].fetch(&nodes[0], digest, size, LONG).map_err(|e| e.0));
            poll("some bytes at the end", || nodes[2].arrived_bytes() > 0);
            drop(arriving);
            assert_eq!(middle.join().expect("no panic").expect_err("given up").kind, ErrorKind::NotHeld);
            let (error, partial) = *last.join().expect("no panic").expect_err("given up");
            assert_eq!((error.kind, partial.expect("kept").written()), (ErrorKind::NotHeld, 100));
        });
        nodes.iter().for_each(Node::sanity_check);
    }
}

#[test]
fn a_corrupt_source_leaves_nothing() {
    for size in SIZES {
        let nodes = Node::chain(3);
        let mut bytes = content(3, size);
        let (digest, mut arriving) = nodes[0].announced(&bytes);
        bytes[size / 3] ^= 1;
        thread::scope(|scope| {
            let fetches: Vec<_> = [(1, 0), (2, 1)]
                .map(|(to, from)| {
                    let nodes = &nodes;
                    scope.spawn(move || nodes[to].fetch(&nodes[from], digest, size, LONG))
                })
                .into();
            arriving.append(&bytes).expect("written");
            poll("all bytes at the end", || nodes[2].arrived_bytes() == size as u64);
            arriving.finish(Some(digest)).expect_err("not what was announced");
            for fetch in fetches {
                let (error, partial) = *fetch.join().expect("no panic").expect_err("corrupt");
                assert_eq!(error.kind, ErrorKind::Corrupt);
                assert!(partial.is_none(), "wrong bytes are not resumed");
            }
        });
        nodes.iter().for_each(Node::sanity_check);
    }
}

#[test]
fn another_object_than_the_announced_is_no_success_for_those_behind() {
    let nodes = Node::chain(2);
    let (digest, mut arriving) = nodes[0].announced(b"what was expected");
    thread::scope(|scope| {
        let fetch = scope.spawn(|| nodes[1].fetch(&nodes[0], digest, 17, LONG));
        arriving.append(b"what has come in.").expect("written");
        poll("it to be passed on", || nodes[1].arrived_bytes() == 17);
        arriving.finish(None).expect("stored as what it is");
        let (error, partial) = *fetch.join().expect("no panic").expect_err("corrupt");
        assert!(error.kind == ErrorKind::Corrupt && partial.is_none());
    });
    nodes.iter().for_each(Node::sanity_check);
}

#[test]
fn with_all_bytes_there_the_own_digest_decides() {
    let nodes = Node::chain(2);
    let bytes = content(4, 300_000);
    let (digest, mut arriving) = nodes[0].announced(&bytes);
    thread::scope(|scope| {
        let fetch = scope.spawn(|| nodes[1].fetch(&nodes[0], digest, bytes.len(), LONG));
        arriving.append(&bytes).expect("written");
        poll("all bytes", || nodes[1].arrived_bytes() == bytes.len() as u64);
        // As if its disk had failed at the last moment.
        drop(arriving);
        assert_eq!(fetch.join().expect("no panic").map_err(|e| e.0).expect("whole").digest, digest);
    });
    nodes.iter().for_each(Node::sanity_check);
}

#[test]
fn what_never_comes_is_not_held() {
    let nodes = Node::chain(2);
    let digest = Digest::of(b"never");
    for wait in [Duration::ZERO, Duration::from_millis(30)] {
        // Announced without a byte is not arriving.
        for announced in [false, true] {
            let mut incoming = nodes[0].begin(5);
            if announced {
                incoming.announce(digest, 5);
            }
            let started = Instant::now();
            let (error, partial) = *nodes[1].fetch(&nodes[0], digest, 5, wait).expect_err("nobody has it");
            assert_eq!((error.kind, partial.expect("kept").written()), (ErrorKind::NotHeld, 0));
            assert!(started.elapsed() >= wait);
        }
    }
    nodes.iter().for_each(Node::sanity_check);
}

#[test]
fn a_holder_limits_how_long_it_is_waited_for() {
    let options = PeerServerOptions { wait_max: Duration::from_millis(20), ..Default::default() };
    let (holder, node) = (Node::with(0, options), Node::new(1));
    let (error, _) = *node.fetch(&holder, Digest::of(b"x"), 1, Duration::MAX / 4).expect_err("not for ever");
    assert_eq!(error.kind, ErrorKind::NotHeld);
    node.sanity_check();
}

#[test]
fn waiting_in_a_circle_ends() {
    let nodes = Node::chain(3);
    let digest = Digest::of(b"nobody has it");
    thread::scope(|scope| {
        for to in 0..3 {
            let nodes = &nodes;
            scope.spawn(move || {
                let from = &nodes[(to + 2) % 3];
                let ended = nodes[to].fetch(from, digest, 5, Duration::from_millis(50));
                assert_eq!(ended.expect_err("nobody has it").0.kind, ErrorKind::NotHeld);
            });
        }
    });
    nodes.iter().for_each(Node::sanity_check);
}

#[test]
fn waiting_holds_no_stream_and_passing_on_does() {
    let (holder, node) =
        (Node::with(0, PeerServerOptions { streams_max: 1, ..Default::default() }), Node::new(1));
    let other = holder.put(b"something else");
    let bytes = content(5, 200_000);
    let digest = Digest::of(&bytes);
    thread::scope(|scope| {
        let fetch = scope.spawn(|| node.fetch(&holder, digest, bytes.len(), LONG));
        // However the two are interleaved, the one that waits is in nobody's way.
        for _ in 0..20 {
            poll("the one stream", || match node.fetch(&holder, other, 14, Duration::ZERO) {
                Ok(_) => true,
                Err(failed) if failed.0.kind == ErrorKind::Busy => false,
                Err(failed) => panic!("{}", failed.0),
            });
            node.store.remove(&other).expect("held");
        }
        poll("the stream to be free", || holder.server.n_streams() == 0);
        let mut arriving = holder.begin(bytes.len());
        arriving.announce(digest, bytes.len() as u64);
        arriving.append(&bytes[..1000]).expect("written");
        poll("the first bytes", || node.arrived_bytes() == 1000);
        let (error, _) = *node.fetch(&holder, other, 14, Duration::ZERO).expect_err("one stream only");
        assert_eq!(error.kind, ErrorKind::Busy);
        arriving.append(&bytes[1000..]).expect("written");
        arriving.finish(Some(digest)).expect("stored");
        fetch.join().expect("no panic").map_err(|e| e.0).expect("fetched");
    });
    node.sanity_check();
    holder.sanity_check();
}

#[test]
fn an_arrival_on_which_nothing_moves_is_given_up() {
    let options = PeerServerOptions { arrival_idle_timeout: Duration::from_millis(50), ..Default::default() };
    let (holder, node) = (Node::with(0, options), Node::new(1));
    let bytes = content(6, 100_000);
    let (digest, mut arriving) = holder.announced(&bytes);
    arriving.append(&bytes[..77_777]).expect("written");
    let (error, partial) = *node.fetch(&holder, digest, bytes.len(), LONG).expect_err("given up");
    assert_eq!((error.kind, partial.expect("kept").written()), (ErrorKind::NotHeld, 77_777));
    drop(arriving);
    node.sanity_check();
    holder.sanity_check();
}

#[test]
fn what_comes_by_another_way_ends_the_wait() {
    let nodes = Node::chain(2);
    let digest = Digest::of(b"made here");
    thread::scope(|scope| {
        let fetch = scope.spawn(|| nodes[1].fetch(&nodes[0], digest, 9, LONG).map_err(|e| e.0));
        assert_eq!(nodes[0].put(b"made here"), digest);
        assert_eq!(fetch.join().expect("no panic").expect("fetched").digest, digest);
    });
    nodes.iter().for_each(Node::sanity_check);
}

#[test]
fn a_server_that_stops_keeps_nobody_waiting() {
    let mut holder = Node::new(0);
    let node = Node::new(1);
    let digest = Digest::of(b"never");
    thread::scope(|scope| {
        let (ticket, address, into) = (node.ticket(&holder, digest, 5), holder.address(), node.begin(5));
        let client = &node.client;
        let fetch = scope.spawn(move || {
            let mut kind = None;
            client.fetch_waiting(address, vec![FetchItem { ticket, into }], LONG * 100, |_, end| {
                if let FetchEnd::Failed { error, .. } = end {
                    kind = Some(error.kind);
                }
            });
            kind
        });
        holder.server.stop();
        let kind = fetch.join().expect("no panic");
        let ends = [ErrorKind::Interrupted, ErrorKind::NotHeld, ErrorKind::Unreachable];
        assert!(kind.as_ref().is_some_and(|kind| ends.contains(kind)), "{kind:?}");
    });
    node.sanity_check();
}

/// A small generator, so that a failure is the same failure each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn many_children_of_one_arriving_object_get_the_same_bytes() {
    for seed in 0..24 {
        let mut random = Random(seed);
        let size = [0, 1, 70_000, 1_000_000, 6_000_000][random.below(5)];
        let bytes = content(seed, size);
        let digest = Digest::of(&bytes);
        let nodes = Node::chain(6);
        // A random tree: node n has a parent among those before it, and some bytes already.
        let plan: Vec<(usize, usize)> =
            (1..6).map(|n| (random.below(n), if size == 0 { 0 } else { random.below(size) / 3 })).collect();
        thread::scope(|scope| {
            for (n, (parent, has_bytes)) in plan.into_iter().enumerate() {
                let (node, parent, bytes) = (&nodes[n + 1], &nodes[parent], &bytes);
                let mut into = node.begin(size);
                into.append(&bytes[..has_bytes]).expect("written");
                scope.spawn(move || {
                    let ended = node.go_on(parent, digest, size, LONG, into).map_err(|e| e.0);
                    assert_eq!(ended.expect("fetched").digest, digest, "seed {seed}");
                });
            }
            let (_, mut arriving) = nodes[0].announced(&bytes);
            let mut at = 0;
            while at < size {
                let n = (1 + random.below(200_000)).min(size - at);
                arriving.append(&bytes[at..at + n]).expect("written");
                at += n;
            }
            arriving.finish(Some(digest)).expect("stored");
        });
        for node in &nodes {
            assert!(node.bytes_of(&digest) == bytes, "seed {seed}");
            node.sanity_check();
        }
    }
}

#[test]
fn ranges_of_what_is_arriving() {
    let nodes = Node::chain(2);
    let bytes = content(7, 500_000);
    let (digest, mut arriving) = nodes[0].announced(&bytes);
    arriving.append(&bytes[..400_000]).expect("written");
    let ticket = nodes[1].ticket(&nodes[0], digest, bytes.len());
    let fetch = |range: std::ops::Range<u64>| {
        let mut got = Vec::new();
        nodes[1].client.fetch_range(nodes[0].address(), &ticket, range, &mut got).map(|()| got)
    };
    let error = fetch(450_000..460_000).expect_err("not there yet");
    assert_eq!(error.kind, ErrorKind::NotHeld);
    let error = fetch(0..500_001).expect_err("no such range");
    assert_eq!(error.kind, ErrorKind::Refused);
    thread::scope(|scope| {
        let reading = scope.spawn(|| fetch(100_000..300_000));
        // The verdict is about the whole, so it comes with the whole.
        poll("the range to be served", || nodes[0].server.n_streams() == 1);
        arriving.append(&bytes[400_000..]).expect("written");
        arriving.finish(Some(digest)).expect("stored");
        assert!(reading.join().expect("no panic").expect("fetched") == bytes[100_000..300_000]);
    });
    nodes.iter().for_each(Node::sanity_check);
}
