//! The data plane: who gets bytes, who does not and is told why, and what a broken transfer leaves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use eyas_data::bench::Tls;
use eyas_data::{
    ClientTls, Digest, Error, ErrorKind, FetchEnd, FetchItem, Incoming, PeerClient, PeerClientOptions,
    PeerServer, PeerServerOptions, Status, Store, Stored, Ticket, TicketKey,
};

const HOLDER: u32 = 7;
const REQUESTER: u32 = 9;
const BUDGET_BYTES: u64 = 256 << 20;
const NEVER: u64 = u64::MAX;

/// A holder and a requester with the same secret.
struct Pair {
    dir: tempfile::TempDir,
    key: TicketKey,
    holder: Store,
    requester: Store,
    server: PeerServer,
    client: PeerClient,
    corrupt: Arc<Mutex<Vec<Digest>>>,
}

fn key() -> TicketKey {
    TicketKey::from_secret(b"the cluster's secret")
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

impl Pair {
    fn new() -> Pair {
        Pair::with(PeerServerOptions::default(), PeerClientOptions::default())
    }

    fn with(mut options: PeerServerOptions, client: PeerClientOptions) -> Pair {
        let dir = tempfile::tempdir().expect("tempdir");
        let holder = Store::open(&dir.path().join("a"), BUDGET_BYTES).expect("opens");
        let requester = Store::open(&dir.path().join("b"), BUDGET_BYTES).expect("opens");
        let corrupt = Arc::new(Mutex::new(Vec::new()));
        let reports = Arc::clone(&corrupt);
        options.on_corrupt = Some(Arc::new(move |digest| reports.lock().expect("lock").push(digest)));
        let server = PeerServer::start(listener(), holder.clone(), key(), HOLDER, options).expect("starts");
        let client = PeerClient::new(key(), REQUESTER, client);
        Pair { dir, key: key(), holder, requester, server, client, corrupt }
    }

    fn ticket(&self, digest: Digest, size: u64) -> Ticket {
        Ticket::issue(&self.key, digest, size, HOLDER, REQUESTER, NEVER)
    }

    fn item(&self, ticket: Ticket) -> FetchItem {
        let reservation = self.requester.reserve(ticket.size).expect("free");
        FetchItem { ticket, into: self.requester.begin(reservation) }
    }

    fn fetch(&self, items: Vec<FetchItem>) -> Vec<FetchEnd> {
        fetch(&self.client, self.server.address(), items)
    }

    fn fetch_one(&self, ticket: Ticket) -> Result<Stored, Error> {
        only(self.fetch(vec![self.item(ticket)])).map_err(|(error, _)| error)
    }

    /// Nothing is left half done on the requester's side.
    fn sanity_check(&self) {
        assert_eq!(self.requester.usage().reserved_bytes, 0);
        let incoming = self.dir.path().join("b/cache/incoming");
        assert_eq!(fs::read_dir(incoming).expect("readable").count(), 0);
        for (digest, _) in self.requester.scan() {
            self.requester.verify(&digest).expect("whole");
        }
        poll("all streams to end", || self.server.n_streams() == 0);
    }
}

fn poll(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ready() {
        assert!(Instant::now() < deadline, "waited 30 s for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Fetches and checks that each item ended exactly once.
fn fetch(client: &PeerClient, address: SocketAddr, items: Vec<FetchItem>) -> Vec<FetchEnd> {
    let mut ends: Vec<Option<FetchEnd>> = items.iter().map(|_| None).collect();
    client.fetch(address, items, |index, end| {
        assert!(ends[index].replace(end).is_none(), "item {index} ended twice");
    });
    ends.into_iter().map(|end| end.expect("every item ends")).collect()
}

// Boxing what a test looks at once would only hide it.
#[allow(clippy::result_large_err)]
fn only(ends: Vec<FetchEnd>) -> Result<Stored, (Error, Option<Incoming>)> {
    match <[FetchEnd; 1]>::try_from(ends).expect("one item") {
        [FetchEnd::Stored(stored)] => Ok(stored),
        [FetchEnd::Failed { error, partial }] => Err((error, partial)),
    }
}

fn content(n: u64, size: usize) -> Vec<u8> {
    (0..size as u64).map(|i| ((i.wrapping_mul(2 * n + 1) >> 3) ^ n) as u8).collect()
}

fn put(store: &Store, bytes: &[u8]) -> Digest {
    let mut incoming = store.begin(store.reserve(bytes.len() as u64).expect("free"));
    incoming.append(bytes).expect("written");
    incoming.finish(None).expect("stored").digest
}

/// Flips a byte without leaving a trace in size or times, as a bad disk does.
fn rot(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).expect("root may write");
    let modified = file.metadata().and_then(|meta| meta.modified()).expect("mtime");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("write");
    file.set_modified(modified).expect("set");
}

fn make_writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("chmod");
}

fn tls() -> Tls {
    let made = rcgen::generate_simple_self_signed(vec!["eyas".to_string()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let private =
        rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private)
        .expect("a server configuration");
    let client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Tls {
        server: Arc::new(server),
        client: ClientTls { config: Arc::new(client), server_name: "eyas".try_into().expect("a name") },
    }
}

fn tls_pair(server: &Tls, client: &Tls) -> Pair {
    Pair::with(
        PeerServerOptions { tls: Some(Arc::clone(&server.server)), ..Default::default() },
        PeerClientOptions { tls: Some(client.client.clone()), ..Default::default() },
    )
}

fn fetch_all_sizes(pair: &Pair) {
    let sizes = [0, 1, 4095, 4096, 65_536, 65_537, 262_144, 262_145, 5_000_001];
    let contents: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| content(n as u64, *size)).collect();
    let digests: Vec<Digest> = contents.iter().map(|bytes| put(&pair.holder, bytes)).collect();
    // Twice: over a new connection and over one from the pool.
    for _ in 0..2 {
        let items = digests
            .iter()
            .zip(sizes)
            .map(|(digest, size)| pair.item(pair.ticket(*digest, size as u64)))
            .collect();
        for (end, digest) in pair.fetch(items).into_iter().zip(&digests) {
            let FetchEnd::Stored(stored) = end else { panic!("{end:?}") };
            assert_eq!(stored.digest, *digest);
        }
        for (digest, bytes) in digests.iter().zip(&contents) {
            assert_eq!(&fs::read(pair.requester.path_of(digest)).expect("read"), bytes);
            pair.requester.remove(digest).expect("held");
        }
        pair.sanity_check();
    }
}

#[test]
fn objects_of_all_sizes_signed() {
    fetch_all_sizes(&Pair::new());
}

#[test]
fn objects_of_all_sizes_encrypted() {
    let tls = tls();
    fetch_all_sizes(&tls_pair(&tls, &tls));
}

#[test]
fn many_small_objects_in_one_stream() {
    let pair = Pair::new();
    let digests: Vec<Digest> = (0..3000).map(|n| put(&pair.holder, &content(n, 100 + n as usize))).collect();
    let missing = 1234;
    pair.holder.remove(&digests[missing]).expect("held");
    let items = digests.iter().enumerate().map(|(n, digest)| pair.item(pair.ticket(*digest, 100 + n as u64)));
    for (n, end) in pair.fetch(items.collect()).into_iter().enumerate() {
        match end {
            FetchEnd::Stored(stored) => assert_eq!(stored.digest, digests[n]),
            FetchEnd::Failed { error, partial } => {
                assert_eq!(
                    (n, &error.kind, error.status()),
                    (missing, &ErrorKind::NotHeld, Status::Temporary)
                );
                assert_eq!(partial.expect("the reservation comes back").written(), 0);
            }
        }
    }
    pair.sanity_check();
}

#[test]
fn a_peer_without_the_secret_gets_nothing() {
    let pair = Pair::new();
    let digest = put(&pair.holder, b"secret bytes");
    let stranger = PeerClient::new(TicketKey::from_secret(b"guess"), REQUESTER, PeerClientOptions::default());
    let (error, partial) =
        only(fetch(&stranger, pair.server.address(), vec![pair.item(pair.ticket(digest, 12))]))
            .expect_err("refused");
    assert_eq!((error.kind.clone(), error.status()), (ErrorKind::WrongSecret, Status::Permanent));
    assert!(error.to_string().contains("does not have the secret of this cluster"), "{error}");
    drop(partial);
    pair.sanity_check();
}

#[test]
fn a_client_that_shows_no_proof_is_refused() {
    // By hand, since our own client notices the wrong secret first.
    let pair = Pair::new();
    let mut socket = TcpStream::connect(pair.server.address()).expect("connects");
    socket.write_all(b"eyasdata\x03\x00").expect("prefix");
    socket.write_all(&[5; 36]).expect("nonce and id");
    let mut hello = [0; 78];
    socket.read_exact(&mut hello).expect("the server proves itself first");
    socket.write_all(&hello[46..]).expect("its own proof played back");
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).expect("closed");
    assert_eq!(rest, [0], "not welcome, and nothing more");
}

#[test]
fn another_version_is_refused_in_words_on_both_sides() {
    let pair = Pair::new();
    let mut socket = TcpStream::connect(pair.server.address()).expect("connects");
    socket.write_all(b"eyasdata\x00\x00").expect("an older peer");
    let mut answer = Vec::new();
    // The server closes with our bytes read, so its own version arrives.
    socket.read_to_end(&mut answer).expect("closed");
    assert_eq!(&answer[..10], b"eyasdata\x03\x00");

    let old = listener();
    let address = old.local_addr().expect("bound");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut socket, _) = old.accept().expect("a client");
            socket.read_exact(&mut [0; 46]).expect("its hello");
            socket.write_all(b"eyasdata\x63\x00").expect("a newer server");
        });
        let ticket = pair.ticket(Digest::of(b"x"), 1);
        let (error, _) = only(fetch(&pair.client, address, vec![pair.item(ticket)])).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::WrongVersion { ours: 3, theirs: 99 });
        let text = error.to_string();
        assert!(text.contains("speaks version 99 of the data protocol, we speak 3"), "{text}");
    });
    pair.sanity_check();
}

#[test]
fn what_is_no_eyas_port_is_said_to_be_none() {
    let pair = Pair::new();
    let other = listener();
    let address = other.local_addr().expect("bound");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut socket, _) = other.accept().expect("a client");
            socket.write_all(b"220 mail.example.org ESMTP ready\r\n").expect("written");
        });
        let ticket = pair.ticket(Digest::of(b"x"), 1);
        let (error, _) = only(fetch(&pair.client, address, vec![pair.item(ticket)])).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Protocol);
    });
}

#[test]
fn tickets_that_are_not_good_get_nothing() {
    let pair = Pair::new();
    let digest = put(&pair.holder, b"twelve bytes");
    let good = pair.ticket(digest, 12);
    let absent = Digest::of(b"not there");
    let issue = |holder, requester, expires| Ticket::issue(&pair.key, digest, 12, holder, requester, expires);
    let mut flipped = good;
    flipped.mac[31] ^= 1;
    let forged = Ticket { digest: absent, ..good };
    let cases = [
        (flipped, "signature is wrong"),
        // The same answer whether the object is held or not.
        (forged, "signature is wrong"),
        (Ticket { expires_unix_ms: 5, ..good }, "signature is wrong"),
        (issue(HOLDER, REQUESTER, 1), "has expired"),
        (issue(HOLDER, REQUESTER + 1, NEVER), "for another executor"),
    ];
    for (ticket, reason) in cases {
        let error = pair.fetch_one(ticket).expect_err("refused");
        assert_eq!((error.kind.clone(), error.status()), (ErrorKind::Refused, Status::Permanent));
        assert!(error.to_string().contains(reason), "{error}");
    }
    // Another executor is at the holder's address, as in private networks that use the same addresses.
    let error = pair.fetch_one(issue(HOLDER + 1, REQUESTER, NEVER)).expect_err("it is not there");
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.to_string().contains("ticket is for holder 8"), "{error}");
    // A bad ticket among good ones costs the good ones nothing.
    let ends = pair.fetch(vec![pair.item(flipped), pair.item(good), pair.item(issue(HOLDER, REQUESTER, 1))]);
    let ok: Vec<bool> = ends.iter().map(|end| matches!(end, FetchEnd::Stored(_))).collect();
    assert_eq!(ok, [false, true, false]);
    drop(ends);
    pair.sanity_check();
}

#[test]
fn a_flipped_byte_is_refused_by_the_receiver() {
    let pair = Pair::new();
    for size in [100, 300_000] {
        let digest = put(&pair.holder, &content(1, size));
        rot(&pair.holder.path_of(&digest), 50);
        let (error, partial) =
            only(pair.fetch(vec![pair.item(pair.ticket(digest, size as u64))])).expect_err("refused");
        let ErrorKind::DigestMismatch { expected, found } = error.kind else { panic!("{error}") };
        assert!(expected == digest && found != digest);
        assert!(partial.is_none(), "wrong bytes are not resumed");
        assert_eq!(pair.requester.find(&digest), None);
    }
    pair.sanity_check();
}

#[test]
fn a_holder_notices_that_its_copy_was_written_to() {
    let pair = Pair::new();
    let digest = put(&pair.holder, b"precious");
    make_writable(&pair.holder.path_of(&digest));
    fs::write(pair.holder.path_of(&digest), "spoilt!!").expect("write");
    let error = pair.fetch_one(pair.ticket(digest, 8)).expect_err("refused");
    assert_eq!((error.kind.clone(), error.status()), (ErrorKind::Corrupt, Status::Temporary));
    assert_eq!(*pair.corrupt.lock().expect("lock"), [digest]);
    pair.sanity_check();
}

/// Blocks of a large object are hashed in their order, and all of them before the digest is compared.
#[test]
fn a_large_object_is_right_or_refused_whichever_thread_hashes() {
    for hashes_apart in [false, true] {
        let options = PeerClientOptions { hashes_apart, ..Default::default() };
        let pair = Pair::with(PeerServerOptions::default(), options);
        for size in [4 << 20, (4 << 20) + 1, 33 << 20] {
            let bytes = content(size as u64, size);
            let digest = put(&pair.holder, &bytes);
            pair.fetch_one(pair.ticket(digest, size as u64)).expect("stored");
            assert!(fs::read(pair.requester.path_of(&digest)).expect("held") == bytes);
            let path = pair.holder.path_of(&digest);
            make_writable(&path);
            fs::File::options().write(true).open(&path).expect("opens").write_all(b"x").expect("written");
            let other = Ticket::issue(&pair.key, digest, size as u64, HOLDER, REQUESTER, NEVER);
            pair.requester.remove(&digest).expect("removed");
            let error = pair.fetch_one(other).expect_err("refused");
            assert_eq!(error.kind, ErrorKind::Corrupt, "{size} bytes, apart: {hashes_apart}");
        }
        pair.sanity_check();
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_kills_nobody() {
    let pair = Pair::new();
    let size = 64 << 20;
    let digest = put(&pair.holder, &content(3, size));
    let path = pair.holder.path_of(&digest);
    make_writable(&path);
    let ticket = pair.ticket(digest, size as u64);
    // The sink stops reading after the first block until the file is cut: the rest cannot be in flight by then.
    struct Cut<'a>(&'a Path, bool);
    impl Write for Cut<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !std::mem::replace(&mut self.1, true) {
                fs::File::options().write(true).open(self.0)?.set_len(4096)?;
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let whole = 0..size as u64;
    let error = pair
        .client
        .fetch_range(pair.server.address(), &ticket, whole, &mut Cut(&path, false))
        .expect_err("cut short");
    assert_eq!(error.kind, ErrorKind::Interrupted);
    poll("the holder to say so", || *pair.corrupt.lock().expect("lock") == [digest]);
    let other = put(&pair.holder, b"still serving");
    pair.fetch_one(pair.ticket(other, 13)).expect("the holder lives");
    pair.sanity_check();
}

#[test]
fn ranges() {
    let pair = Pair::new();
    let bytes = content(5, 300_000);
    let digest = put(&pair.holder, &bytes);
    let ticket = pair.ticket(digest, 300_000);
    for range in [0..0, 0..1, 4097..4099, 100_000..299_999, 299_999..300_000, 300_000..300_000, 0..300_000] {
        let mut got = Vec::new();
        pair.client.fetch_range(pair.server.address(), &ticket, range.clone(), &mut got).expect("fetched");
        assert!(got == bytes[range.start as usize..range.end as usize], "{range:?}");
    }
    for range in [0..300_001, 300_000..300_001, 1..u64::MAX] {
        let error = pair
            .client
            .fetch_range(pair.server.address(), &ticket, range, &mut Vec::new())
            .expect_err("no such range");
        assert_eq!(error.kind, ErrorKind::Refused);
    }
    pair.sanity_check();
}

/// Passes `limit_bytes` of a holder's answers on, then cuts: a holder that is killed in the middle.
fn dying_holder(real: SocketAddr, limit_bytes: u64) -> (SocketAddr, thread::JoinHandle<()>) {
    let proxy = listener();
    let address = proxy.local_addr().expect("bound");
    let handle = thread::spawn(move || {
        let (client, _) = proxy.accept().expect("a client");
        let server = TcpStream::connect(real).expect("the holder");
        let (mut from_client, mut to_server) =
            (client.try_clone().expect("clone"), server.try_clone().expect("clone"));
        let forward = thread::spawn(move || {
            // Ends when either side is cut below.
            let _ = std::io::copy(&mut from_client, &mut to_server);
        });
        std::io::copy(&mut (&server).take(limit_bytes), &mut &client).expect("passed on");
        for socket in [client, server] {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        forward.join().expect("no panic");
    });
    (address, handle)
}

#[test]
fn a_transfer_that_is_cut_is_resumed_where_it_was() {
    // Below and above the size from which a second thread writes.
    for size in [3_000_000, 10_000_000] {
        cut_and_resume(size);
    }
}

fn cut_and_resume(size: usize) {
    let pair = Pair::new();
    let bytes = content(11, size);
    let digest = put(&pair.holder, &bytes);
    // 79 bytes of hello and 9 of the answer come first.
    let (address, proxy) = dying_holder(pair.server.address(), 88 + 1_000_001);
    let ticket = pair.ticket(digest, size as u64);
    let (error, partial) = only(fetch(&pair.client, address, vec![pair.item(ticket)])).expect_err("cut");
    proxy.join().expect("no panic");
    assert_eq!((error.kind.clone(), error.status()), (ErrorKind::Interrupted, Status::Temporary));
    let into = partial.expect("what arrived is kept");
    assert_eq!(into.written(), 1_000_001, "to the byte");

    let stored = only(pair.fetch(vec![FetchItem { ticket, into }])).map_err(|(e, _)| e).expect("resumed");
    assert_eq!(stored.digest, digest);
    assert!(fs::read(pair.requester.path_of(&digest)).expect("read") == bytes);
    pair.sanity_check();
}

#[test]
fn when_a_holder_dies_every_item_ends() {
    let mut pair = Pair::new();
    let digests: Vec<Digest> = (0..50).map(|n| put(&pair.holder, &content(n, 100_000))).collect();
    let items = |pair: &Pair| digests.iter().map(|digest| pair.item(pair.ticket(*digest, 100_000))).collect();
    let (address, proxy) = dying_holder(pair.server.address(), 88 + 1_234_567);
    let ends = fetch(&pair.client, address, items(&pair));
    proxy.join().expect("no panic");
    let n_stored = ends.iter().take_while(|end| matches!(end, FetchEnd::Stored(_))).count();
    assert_eq!(n_stored, 12);
    for end in &ends[n_stored..] {
        let FetchEnd::Failed { error, partial: Some(_) } = end else { panic!("{end:?}") };
        assert_eq!(error.kind, ErrorKind::Interrupted);
    }
    drop(ends);
    pair.sanity_check();

    pair.server.stop();
    let (error, _) = only(pair.fetch(vec![pair.item(pair.ticket(digests[20], 100_000))])).expect_err("gone");
    assert_eq!((error.kind.clone(), error.status()), (ErrorKind::Unreachable, Status::Temporary));
    pair.sanity_check();
}

#[test]
fn a_connection_that_the_holder_closed_while_it_was_idle_is_made_anew() {
    let mut pair = Pair::new();
    let digest = put(&pair.holder, b"object");
    pair.fetch_one(pair.ticket(digest, 6)).expect("fetched");
    pair.requester.remove(&digest).expect("held");
    let address = pair.server.address();
    pair.server.stop();
    // The old port again, as an executor that restarts would take it.
    let again = TcpListener::bind(address).expect("the port is free again");
    pair.server = PeerServer::start(again, pair.holder.clone(), key(), HOLDER, PeerServerOptions::default())
        .expect("starts");
    pair.fetch_one(pair.ticket(digest, 6)).expect("fetched over a new connection");
    pair.sanity_check();
}

#[test]
fn a_silent_holder_is_given_up() {
    let options = PeerClientOptions { idle_timeout: Duration::from_millis(100), ..Default::default() };
    let pair = Pair::with(PeerServerOptions::default(), options);
    // Accepts by its backlog, and never says a word.
    let silent = listener();
    let address = silent.local_addr().expect("bound");
    let (error, _) = only(fetch(&pair.client, address, vec![pair.item(pair.ticket(Digest::of(b"x"), 1))]))
        .expect_err("given up");
    assert_eq!((error.kind.clone(), error.status()), (ErrorKind::Timeout, Status::Temporary));
}

#[test]
fn a_silent_client_is_dropped() {
    let options = PeerServerOptions { hello_timeout: Duration::from_millis(100), ..Default::default() };
    let pair = Pair::with(options, PeerClientOptions::default());
    let mut socket = TcpStream::connect(pair.server.address()).expect("connects");
    assert_eq!(socket.read(&mut [0]).expect("closed by the holder"), 0);
}

#[test]
fn streams_are_limited_by_the_holder() {
    let options = PeerServerOptions { streams_max: 1, ..Default::default() };
    let pair = Pair::with(options, PeerClientOptions::default());
    let size = 64 << 20;
    let large = put(&pair.holder, &content(1, size));
    let small = put(&pair.holder, b"small");

    /// Holds the stream open until the other fetch was refused.
    struct Gate<'a>(&'a Pair, Ticket, bool);
    impl Write for Gate<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !std::mem::replace(&mut self.2, true) {
                let error = self.0.fetch_one(self.1).expect_err("one stream only");
                assert_eq!((error.kind.clone(), error.status()), (ErrorKind::Busy, Status::Temporary));
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut gate = Gate(&pair, pair.ticket(small, 5), false);
    let ticket = pair.ticket(large, size as u64);
    pair.client.fetch_range(pair.server.address(), &ticket, 0..size as u64, &mut gate).expect("fetched");
    assert!(gate.2);
    poll("the stream to end", || pair.server.n_streams() == 0);
    pair.fetch_one(pair.ticket(small, 5)).expect("idle connections hold no stream");
    pair.sanity_check();
}

#[test]
fn the_same_object_fetched_by_many_at_once() {
    let pair = Pair::new();
    let size = 2_000_000;
    let digest = put(&pair.holder, &content(1, size));
    let ticket = pair.ticket(digest, size as u64);
    let n_new = thread::scope(|scope| {
        let fetches: Vec<_> = (0..6).map(|_| scope.spawn(|| pair.fetch_one(ticket))).collect();
        let stored = fetches.into_iter().map(|fetch| fetch.join().expect("no panic").expect("fetched"));
        stored.filter(|stored| !stored.already_held).count()
    });
    assert_eq!(n_new, 1, "one copy is kept");
    assert_eq!(pair.requester.usage().held_bytes, size as u64);
    pair.sanity_check();
}

#[test]
fn a_certificate_of_another_cluster_is_refused() {
    let pair = tls_pair(&tls(), &tls());
    let digest = put(&pair.holder, b"x");
    let error = pair.fetch_one(pair.ticket(digest, 1)).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.to_string().contains("certificate"), "{error}");
    pair.sanity_check();
}

#[test]
fn a_crowd_of_strangers_keeps_no_member_out() {
    let options = PeerServerOptions { strangers_max: 4, ..Default::default() };
    let pair = Pair::with(options, PeerClientOptions::default());
    let content = b"for members only".to_vec();
    let digest = put(&pair.holder, &content);
    let crowd: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(pair.server.address()).expect("it listens")).collect();
    for _ in 0..5 {
        let stored = pair.fetch_one(pair.ticket(digest, content.len() as u64)).expect("a member is served");
        assert_eq!(stored.digest, digest);
        pair.requester.remove(&digest).expect("it is there");
    }
    // The clients that came first had to go.
    let mut first = &crowd[0];
    first.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    assert_eq!(first.read(&mut [0]).expect("closed, not silent"), 0);
    pair.sanity_check();
}

#[test]
fn a_stranger_cannot_stretch_the_hello() {
    let options = PeerServerOptions { hello_timeout: Duration::from_millis(300), ..Default::default() };
    let pair = Pair::with(options, PeerClientOptions::default());
    let mut drip = TcpStream::connect(pair.server.address()).expect("it listens");
    drip.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    let deadline = Instant::now() + Duration::from_secs(60);
    // Each pause is shorter than the limit; the hello is longer than what these bytes make of it in that time.
    for byte in b"eyasdata".iter().chain(&[2, 0]).chain(std::iter::repeat(&7)) {
        assert!(Instant::now() < deadline, "it is still listened to");
        if drip.write_all(&[*byte]).is_err() {
            return;
        }
        match drip.read(&mut [0]) {
            Ok(0) => return,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(_) => panic!("a stranger is answered"),
            Err(_) => return,
        }
    }
}

#[test]
fn tickets_are_judged_by_the_clock_of_whoever_signs_them() {
    let now = Arc::new(std::sync::atomic::AtomicU64::new(5_000));
    let clock = Arc::clone(&now);
    let options = PeerServerOptions {
        clock: Arc::new(move || clock.load(std::sync::atomic::Ordering::SeqCst)),
        ..Default::default()
    };
    let pair = Pair::with(options, PeerClientOptions::default());
    let content = b"until six".to_vec();
    let (digest, size) = (put(&pair.holder, &content), content.len() as u64);
    let ticket = Ticket::issue(&pair.key, digest, size, HOLDER, REQUESTER, 6_000);
    pair.fetch_one(ticket).expect("this machine's clock does not matter");
    pair.requester.remove(&digest).expect("it is there");
    now.store(6_000, std::sync::atomic::Ordering::SeqCst);
    // On a connection of its own: on the other one its request might count as sent ahead.
    let client = PeerClient::new(key(), REQUESTER, PeerClientOptions::default());
    let ends = fetch(&client, pair.server.address(), vec![pair.item(ticket)]);
    let (error, _) = only(ends).expect_err("it has expired");
    assert_eq!(error.kind, ErrorKind::Refused);
    pair.sanity_check();
}

#[test]
fn no_ticket_expires_in_a_pipeline() {
    // A clock that goes on by an hour whenever it is looked at.
    let hours = std::sync::atomic::AtomicU64::new(0);
    let options = PeerServerOptions {
        clock: Arc::new(move || hours.fetch_add(1, std::sync::atomic::Ordering::SeqCst)),
        ..Default::default()
    };
    let pair = Pair::with(options, PeerClientOptions::default());
    let items: Vec<FetchItem> = (0..100u32)
        .map(|i| {
            let content = vec![i as u8; 50];
            let digest = put(&pair.holder, &content);
            // Good when the connection is greeted and when its first request comes, and not for a hundred looks.
            pair.item(Ticket::issue(&pair.key, digest, 50, HOLDER, REQUESTER, 20))
        })
        .collect();
    let ends = pair.fetch(items);
    assert_eq!(ends.len(), 100);
    for end in ends {
        assert!(matches!(end, FetchEnd::Stored(_)), "{end:?}");
    }
}

#[test]
fn the_times_in_a_directory_come_with_it() {
    let pair = Pair::new();
    let (small, large) = (content(1, 3_000), content(2, 9_000_000));
    let timed = [put(&pair.holder, &small), put(&pair.holder, &large)];
    let plain = put(&pair.holder, b"a file");
    let times = [5, -5, i64::MAX];
    timed.iter().for_each(|digest| pair.holder.keep_times(digest, &times).expect("kept"));
    let tickets = [(timed[0], 3_000), (plain, 6), (timed[1], 9_000_000)].map(|(d, n)| pair.ticket(d, n));
    let ends = pair.fetch(tickets.iter().map(|ticket| pair.item(*ticket)).collect());
    assert!(ends.iter().all(|end| matches!(end, FetchEnd::Stored(_))));
    assert!(timed.iter().all(|digest| pair.requester.times_of(digest) == times));
    assert!(pair.requester.times_of(&plain).is_empty());
    pair.sanity_check();
}
