//! Rates of the store and the data plane, next to what this machine can do.
//!
//! The figures of one machine mean something only as ratios, measured in turns within one run. So each
//! function measures one thing once; the caller alternates the functions and takes medians. All of them use
//! loopback and `dir`.
//!
//! Traps: ext4 does not reuse an inode within 5 s of its deletion and searches past each such inode, so
//! creating files right after deleting ten thousand measures that search. And a virtual machine may have to
//! fetch fresh memory from its host for page cache, which is several times slower than writing to it.
//!
//! Not here: printing, and judging the figures.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::peer::{FetchEnd, FetchItem, PeerClient, PeerServer, Ticket, TicketKey};
use crate::{ClientTls, Digest, Error, PeerClientOptions, PeerServerOptions, Result, Store};

const OPERATION: &str = "measure";
const HOLDER_ID: u32 = 1;
const REQUESTER_ID: u32 = 2;

/// What one measurement took.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub wall: Duration,
    /// Processor time of the whole process, both ends: on a machine that is busy with other work this is
    /// still comparable where `wall` is not.
    pub cpu: Duration,
}

impl Cost {
    /// `amount` per second of wall-clock time.
    pub fn rate_per_s(&self, amount: u64) -> f64 {
        amount as f64 / self.wall.as_secs_f64()
    }
}

/// Rates of the cache directory, in objects per second.
#[derive(Debug, Clone, Copy)]
pub struct StoreRates {
    pub put_per_s: f64,
    pub export_per_s: f64,
    pub remove_per_s: f64,
}

/// Encryption of both ends.
#[derive(Clone)]
pub struct Tls {
    pub server: std::sync::Arc<rustls::ServerConfig>,
    pub client: ClientTls,
}

/// One TCP stream over loopback, one sender and one receiver that touch no byte: what `iperf3` measures.
pub fn tcp_stream(total_bytes: u64) -> Result<Cost> {
    const WRITE_BYTES: usize = 128 << 10;
    let fail = |e| Error::net(OPERATION, "one TCP stream on loopback", e);
    let listener = listen()?;
    let mut sender = TcpStream::connect(listener.local_addr().map_err(fail)?).map_err(fail)?;
    let (mut receiver, _) = listener.accept().map_err(fail)?;
    let mut block = vec![0; WRITE_BYTES];
    let meter = Meter::start();
    thread::scope(|scope| {
        let sending = scope.spawn(move || -> io::Result<()> {
            let block = vec![7; WRITE_BYTES];
            let mut remaining = total_bytes;
            while remaining > 0 {
                let n = block.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
                sender.write_all(&block[..n])?;
                remaining -= n as u64;
            }
            Ok(())
        });
        while receiver.read(&mut block).map_err(fail)? > 0 {}
        sending.join().expect("the sender does not panic").map_err(fail)
    })?;
    Ok(meter.stop())
}

struct Meter {
    wall: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Meter {
        Meter { wall: Instant::now(), cpu: cpu_time() }
    }

    fn stop(&self) -> Cost {
        Cost { wall: self.wall.elapsed(), cpu: cpu_time() - self.cpu }
    }
}

/// Processor time that this process has used so far.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that lives through the call. This clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Two stores under one directory, a holder's and a requester's, with a server and a client between them.
pub struct Pair {
    pub holder: Store,
    pub requester: Store,
    key: TicketKey,
    server: PeerServer,
    client: PeerClient,
    next_content: u64,
}

impl Pair {
    /// `dir` is used for both caches, of `budget_bytes` each. The caller removes it.
    pub fn new(dir: &Path, budget_bytes: u64, tls: Option<Tls>) -> Result<Pair> {
        let holder = Store::open(&dir.join("holder"), budget_bytes)?;
        let requester = Store::open(&dir.join("requester"), budget_bytes)?;
        let key = TicketKey::from_secret(b"a secret for measuring only");
        let (server_tls, client_tls) = tls.map(|tls| (tls.server, tls.client)).unzip();
        let options = PeerServerOptions { tls: server_tls, ..Default::default() };
        let server = PeerServer::start(listen()?, holder.clone(), key.clone(), HOLDER_ID, options)?;
        let options = PeerClientOptions { tls: client_tls, ..Default::default() };
        let client = PeerClient::new(key.clone(), REQUESTER_ID, options);
        Ok(Pair { holder, requester, key, server, client, next_content: 0 })
    }

    /// Puts `n_objects` new objects of `object_bytes` into the holder's store, so that they are in page cache. One
    /// object alone is also flushed to disk: writing it back must not fall into what is measured.
    pub fn fill(&mut self, n_objects: usize, object_bytes: u64) -> Result<Vec<Digest>> {
        let digests: Vec<Digest> = (0..n_objects)
            .map(|_| {
                self.next_content += 1;
                put(&self.holder, self.next_content, object_bytes)
            })
            .collect::<Result<_>>()?;
        if let [digest] = digests[..] {
            let (file, _) = self.holder.open_object(&digest)?;
            file.sync_all().map_err(|e| Error::io(OPERATION, digest.to_string(), e))?;
        }
        Ok(digests)
    }

    /// Fetches `digests` in one call, verified, into the requester's store, where they stay.
    pub fn fetch(&self, digests: &[Digest]) -> Result<Cost> {
        let items: Vec<FetchItem> = digests
            .iter()
            .map(|digest| {
                let size = self.holder.find(digest).unwrap_or(0);
                let ticket = Ticket::issue(&self.key, *digest, size, HOLDER_ID, REQUESTER_ID, u64::MAX);
                Ok(FetchItem { ticket, into: self.requester.begin(self.requester.reserve(size)?) })
            })
            .collect::<Result<_>>()?;
        let mut failure = None;
        let meter = Meter::start();
        self.client.fetch(self.server.address(), items, |_, end| {
            if let FetchEnd::Failed { error, .. } = end {
                failure = Some(error);
            }
        });
        let cost = meter.stop();
        failure.map_or(Ok(cost), Err)
    }
}

/// Puts, exports (as links under `dir`) and removes `n_objects` objects of `object_bytes` each.
pub fn store_rates(dir: &Path, n_objects: usize, object_bytes: u64) -> Result<StoreRates> {
    let fail = |e| Error::io(OPERATION, dir.display().to_string(), e);
    let store = Store::open(&dir.join("store"), n_objects as u64 * object_bytes)?;
    let sandbox = dir.join("sandbox");
    std::fs::create_dir_all(&sandbox).map_err(fail)?;
    let per_s = |start: Instant| n_objects as f64 / start.elapsed().as_secs_f64();

    let start = Instant::now();
    let digests: Vec<Digest> =
        (0..n_objects as u64).map(|content| put(&store, content, object_bytes)).collect::<Result<_>>()?;
    let put_per_s = per_s(start);

    let start = Instant::now();
    for (n, digest) in digests.iter().enumerate() {
        store.export(digest, &sandbox.join(n.to_string()))?;
    }
    let export_per_s = per_s(start);

    std::fs::remove_dir_all(&sandbox).map_err(fail)?;
    let start = Instant::now();
    for digest in &digests {
        store.remove(digest)?;
    }
    Ok(StoreRates { put_per_s, export_per_s, remove_per_s: per_s(start) })
}

/// Stores an object of `object_bytes` that differs for each `content`.
fn put(store: &Store, content: u64, object_bytes: u64) -> Result<Digest> {
    let mut incoming = store.begin(store.reserve(object_bytes)?);
    let mut block = vec![0u8; usize::try_from(object_bytes.min(1 << 20)).expect("at most 1 MiB")];
    let mut remaining = object_bytes;
    while remaining > 0 {
        let n = block.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        // Eight bytes make each block, and so each object, different; hashing costs the same for all contents.
        let mark = (content << 32 | remaining >> 20).to_le_bytes();
        let marked = mark.len().min(n);
        block[..marked].copy_from_slice(&mark[..marked]);
        incoming.append(&block[..n])?;
        remaining -= n as u64;
    }
    Ok(incoming.finish(None)?.digest)
}

fn listen() -> Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .map_err(|e| Error::io(OPERATION, "listening on loopback", e))
}
