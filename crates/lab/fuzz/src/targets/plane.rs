//! The data plane: strangers' bytes at a holder, and a conversation between members with changes on the way.

use crate::{Rng, Target};
use eyas_data::{
    Digest, FetchEnd, FetchItem, PeerClient, PeerClientOptions, PeerServer, PeerServerOptions, Store, Ticket,
    TicketKey,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const HOLDER: u32 = 7;
const REQUESTER: u32 = 9;
const BUDGET_BYTES: u64 = 64 << 20;
/// Above the small objects that share a stream, and below.
const SIZES: [usize; 3] = [0, 1000, 300_000];
/// Short: where a length was changed, one side waits for bytes that never come.
const PATIENCE: Duration = Duration::from_millis(150);
const TRIES: usize = 5;

/// An input is, by its first byte, what a stranger sends, or a list of changes of four bytes each: direction and kind,
/// place, value.
pub struct DataPlane {
    inner: Option<Running>,
}

struct Running {
    _dir: TempDir,
    key: TicketKey,
    requester: Store,
    server: PeerServer,
    objects: Vec<(Digest, u64)>,
}

impl Running {
    fn start() -> Running {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let key = TicketKey::from_secret(b"the cluster's secret");
        let open = |name: &str| Store::open(&dir.path().join(name), BUDGET_BYTES).expect("it opens");
        let (holder, requester) = (open("a"), open("b"));
        let objects = SIZES
            .iter()
            .map(|&size| {
                let mut incoming = holder.begin(holder.reserve(size as u64).expect("room"));
                let bytes: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
                incoming.append(&bytes).expect("room");
                let stored = incoming.finish(None).expect("it is stored");
                (stored.digest, stored.size)
            })
            .collect();
        let options = PeerServerOptions {
            idle_timeout: PATIENCE,
            wait_max: PATIENCE / 4,
            arrival_idle_timeout: PATIENCE / 2,
            hello_timeout: PATIENCE,
            ..PeerServerOptions::default()
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = PeerServer::start(listener, holder, key.clone(), HOLDER, options).expect("it starts");
        Running { _dir: dir, key, requester, server, objects }
    }

    /// How many of the objects arrive over a way that makes these changes.
    fn fetch_through(&mut self, changes: &[(bool, Change)]) -> usize {
        let address = self.server.address();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let by_way_of = listener.local_addr().expect("it is bound");
        let of = |to_server: bool| {
            let of_it = changes.iter().filter(|(to, _)| *to == to_server);
            of_it.map(|(_, change)| *change).collect::<Vec<_>>()
        };
        let (there, back) = (of(true), of(false));
        thread::scope(|scope| {
            scope.spawn(move || {
                let Ok((client, _)) = listener.accept() else { return };
                let Ok(server) = TcpStream::connect(address) else { return };
                let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else {
                    return;
                };
                let there = thread::spawn(move || relay(client_too, server_too, there));
                relay(server, client, back);
                let _ = there.join();
            });
            self.fetch(by_way_of)
        })
    }

    /// Fetches all objects by way of `address`; gives how many arrived.
    fn fetch(&self, address: SocketAddr) -> usize {
        let options = PeerClientOptions {
            connect_timeout: PATIENCE * 10,
            idle_timeout: PATIENCE,
            ..PeerClientOptions::default()
        };
        let client = PeerClient::new(self.key.clone(), REQUESTER, options);
        let items = self
            .objects
            .iter()
            .map(|&(digest, size)| FetchItem {
                ticket: Ticket::issue(&self.key, digest, size, HOLDER, REQUESTER, u64::MAX),
                into: self.requester.begin(self.requester.reserve(size).expect("room")),
            })
            .collect();
        let mut n_stored = 0;
        client.fetch(address, items, |i, end| match end {
            FetchEnd::Stored(stored) => {
                assert_eq!((stored.digest, stored.size), self.objects[i], "other bytes are taken for these");
                n_stored += 1;
            }
            FetchEnd::Failed { error, .. } => super::texts::check_message(&error.to_string()),
        });
        for (digest, _) in &self.objects {
            let _ = self.requester.remove(digest);
        }
        assert_eq!(self.requester.usage().reserved_bytes, 0, "a reservation is left behind");
        n_stored
    }
}

impl DataPlane {
    pub fn new() -> DataPlane {
        DataPlane { inner: None }
    }
}

#[derive(Clone, Copy)]
struct Change {
    kind: u8,
    at: usize,
    value: u8,
}

/// Hands on what comes, with changes; ends when either side does.
fn relay(mut from: TcpStream, mut to: TcpStream, changes: Vec<Change>) {
    let (mut at, mut buffer) = (0, vec![0; 64 << 10]);
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..n].to_vec();
        let mut is_cut = false;
        for change in changes.iter().rev().filter(|c| (at..at + n).contains(&c.at)) {
            let here = (change.at - at).min(bytes.len());
            match change.kind {
                0 if here < bytes.len() => bytes[here] ^= change.value.max(1),
                1 => bytes.insert(here, change.value),
                2 if here < bytes.len() => _ = bytes.remove(here),
                3 => {
                    bytes.truncate(here);
                    is_cut = true;
                }
                _ => {}
            }
        }
        at += n;
        if to.write_all(&bytes).is_err() || is_cut {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

impl Target for DataPlane {
    fn name(&self) -> &'static str {
        "data-plane"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        if rng.one_in(3) {
            let mut bytes = vec![0];
            bytes.extend_from_slice(b"eyasdata\x02\x00");
            bytes.extend((0..rng.below(300)).map(|_| rng.next_u64() as u8));
            return bytes;
        }
        let mut bytes = vec![1];
        for _ in 0..1 + rng.below(3) {
            // Around the hello and the first request and answer, or anywhere.
            let at = if rng.one_in(3) { rng.below(65_536) } else { rng.below(300) };
            bytes.extend_from_slice(&[rng.next_u64() as u8, at as u8, (at >> 8) as u8, rng.next_u64() as u8]);
        }
        bytes
    }

    fn run(&mut self, bytes: &[u8]) {
        let running = self.inner.get_or_insert_with(Running::start);
        let Some((&kind, bytes)) = bytes.split_first() else { return };
        let address = running.server.address();
        if kind % 2 == 0 {
            let Ok(mut stream) = TcpStream::connect(address) else { return };
            let _ = stream.set_read_timeout(Some(PATIENCE * 4));
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let mut answer = vec![];
            let _ = stream.take(1 << 20).read_to_end(&mut answer);
            assert!(answer.len() < 200, "a stranger was told {} bytes", answer.len());
            return;
        }
        let changes: Vec<(bool, Change)> = bytes
            .chunks_exact(4)
            .map(|c| {
                let at = usize::from(c[1]) | usize::from(c[2]) << 8;
                (c[0] & 4 == 0, Change { kind: c[0] & 3, at, value: c[3] })
            })
            .collect();
        // On a busy machine even what was not changed may come later than anybody waits for.
        let n_tries = if changes.is_empty() { TRIES } else { 1 };
        let n_stored = (0..n_tries).map(|_| running.fetch_through(&changes)).find(|n| *n == SIZES.len());
        if changes.is_empty() {
            assert_eq!(n_stored, Some(SIZES.len()), "what was not changed has to arrive");
        }
    }
}
