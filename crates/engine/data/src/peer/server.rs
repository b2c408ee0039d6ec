//! The holder's side: accepts connections and serves objects of one store.
//!
//! One thread and one descriptor per connection. A client that has proved the secret is a *member*, any other
//! is a *stranger*. There are at most `strangers_max` strangers: when one more comes, the one that has been
//! connected longest is closed. A stranger that has not proved the secret within `hello_timeout`, however it
//! sends its bytes, is closed as well. So strangers never keep members out, and never take all descriptors.
//! Small objects are gathered into one write; large ones are sent from a mapping; objects that are still
//! arriving follow their writer.
//!
//! Not here: whether a holder should serve (tickets say so), and the removal of corrupt objects (`on_corrupt`
//! reports them to the executor, and the core decides).

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::connection::{Connection, Socket, Wire};
use super::{
    ANSWER_BYTES, Answer, Fault, PIECE_HEAD_BYTES, Request, TIMES_MAX, TicketKey, VERDICT_BROKEN,
    VERDICT_CHANGED, VERDICT_INTACT, VERDICT_TIMED, now_unix_ms,
};
use crate::error::is_shortage;
use crate::store::{ArrivalEnd, ArrivalReader, BLOCK_BYTES, Begun, WAIT_SLICE};
use crate::{Digest, Error, ErrorKind, Result, Store};

/// Up to this size an object is copied into the common write instead of being sent by itself.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Bytes given to the kernel per call when a large object is sent.
const SEND_BYTES: usize = 1 << 20;

/// How often strangers are checked for those that are over the time limit.
const STRANGERS_LOOK: Duration = Duration::from_millis(250);

/// How long accepting pauses when this process is out of descriptors or memory.
const SHORTAGE_WAIT: Duration = Duration::from_millis(20);

pub struct PeerServerOptions {
    /// Streams served at a time; one more is answered `Busy`.
    pub streams_max: usize,
    /// Connections of members at a time, including idle ones; one more is closed.
    pub connections_max: usize,
    /// Connections at a time that have not proved the secret; for one more, the oldest is closed. At least 1.
    pub strangers_max: usize,
    /// A connection in which no byte moves for this long is closed.
    pub idle_timeout: Duration,
    /// The longest that a client may wait for an object to begin to arrive.
    pub wait_max: Duration,
    /// An object that is passed on as it arrives is given up when none of its bytes arrive for this long.
    /// Below the `idle_timeout` of clients, so that clients receive the verdict instead of a timeout.
    pub arrival_idle_timeout: Duration,
    /// Limit for the whole hello, including the TLS handshake.
    pub hello_timeout: Duration,
    /// Encrypt. Without it (`signed` mode) peers still prove the secret and show tickets.
    pub tls: Option<Arc<ServerConfig>>,
    /// Called with each object that was found changed while it was requested, from a serving thread.
    pub on_corrupt: Option<Arc<dyn Fn(Digest) + Send + Sync>>,
    /// Milliseconds since the Unix epoch by the clock of the dispatcher that signs the tickets, as far as it
    /// is known here.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Default for PeerServerOptions {
    fn default() -> PeerServerOptions {
        PeerServerOptions {
            streams_max: 8,
            connections_max: 1024,
            strangers_max: 64,
            idle_timeout: Duration::from_secs(60),
            wait_max: Duration::from_secs(60),
            arrival_idle_timeout: Duration::from_secs(20),
            hello_timeout: Duration::from_secs(10),
            tls: None,
            on_corrupt: None,
            clock: Arc::new(now_unix_ms),
        }
    }
}

/// Serves a store until it is stopped or dropped.
pub struct PeerServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<Acceptor>,
}

struct Acceptor {
    thread: JoinHandle<()>,
    /// The listening socket, by which the accepting thread is woken.
    listener: TcpListener,
}

struct Shared {
    store: Store,
    key: TicketKey,
    server_id: u32,
    options: PeerServerOptions,
    n_streams: AtomicUsize,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
    connection_ended: Condvar,
}

/// All connected clients. Each one's thread shares the ownership of the descriptor.
#[derive(Default)]
struct Connections {
    /// By number, which is the order of arrival.
    strangers: BTreeMap<u64, Stranger>,
    members: HashMap<u64, Socket>,
    /// Strangers that were closed and whose threads have not ended yet.
    n_leaving: usize,
}

struct Stranger {
    socket: Socket,
    came: Instant,
}

impl Connections {
    fn n(&self) -> usize {
        self.strangers.len() + self.members.len() + self.n_leaving
    }

    fn drop_stranger(&mut self, connection: u64) {
        if let Some(stranger) = self.strangers.remove(&connection) {
            // The stranger's thread wakes, closes the descriptor and ends. If the peer has closed it already,
            // that is just as good.
            let _ = stranger.socket.shutdown(Shutdown::Both);
            self.n_leaving += 1;
        }
    }

    fn drop_oldest_stranger(&mut self) {
        if let Some((&oldest, _)) = self.strangers.first_key_value() {
            self.drop_stranger(oldest);
        }
    }

    fn drop_late_strangers(&mut self, limit: Duration) {
        while let Some((&oldest, stranger)) = self.strangers.first_key_value()
            && stranger.came.elapsed() >= limit
        {
            self.drop_stranger(oldest);
        }
    }
}

impl PeerServer {
    /// Serves `store` on `listener` as holder `server_id`.
    pub fn start(
        listener: TcpListener,
        store: Store,
        key: TicketKey,
        server_id: u32,
        options: PeerServerOptions,
    ) -> Result<PeerServer> {
        let fail = |e| Error::io("serve the cache to peers", "the listening socket", e);
        let address = listener.local_addr().map_err(fail)?;
        // A peer may be gone between the report that it is there and its acceptance.
        listener.set_nonblocking(true).map_err(fail)?;
        let shared = Arc::new(Shared {
            store,
            key,
            server_id,
            options,
            n_streams: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            connection_ended: Condvar::new(),
        });
        let accepting = listener.try_clone().map_err(fail)?;
        let thread = thread::Builder::new()
            .name("peer-accept".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || accept(&shared, &accepting)
            })
            .map_err(fail)?;
        Ok(PeerServer { shared, address, acceptor: Some(Acceptor { thread, listener }) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Streams being served now.
    pub fn n_streams(&self) -> usize {
        self.shared.n_streams.load(Ordering::Relaxed)
    }

    /// Closes the port, cuts all connections, also those in the middle of an object, and waits for their threads.
    pub fn stop(&mut self) {
        let Some(Acceptor { thread, listener }) = self.acceptor.take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        // SAFETY: the listener is open until the end of this function. std has no shutdown for listeners; on Linux
        // it wakes `accept`.
        unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        // A panic of the acceptor has been reported by the panic hook; connections are cut all the same.
        let _ = thread.join();
        let mut connections = self.shared.connections();
        connections.drop_late_strangers(Duration::ZERO);
        for socket in connections.members.values() {
            // An error means that the peer has closed it already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        while connections.n() > 0 {
            connections = self.shared.connection_ended.wait(connections).expect("see Shared::connections");
        }
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().expect("only map operations happen under this lock")
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let PeerServerOptions { connections_max, strangers_max, hello_timeout, .. } = shared.options;
    for connection in 0u64.. {
        let socket = loop {
            let accepted = wait_readable(listener, STRANGERS_LOOK).and_then(|()| listener.accept());
            if shared.stopping.load(Ordering::SeqCst) {
                return;
            }
            shared.connections().drop_late_strangers(hello_timeout);
            match accepted {
                Ok((socket, _)) => break Socket::new(socket),
                Err(e) if e.raw_os_error().is_some_and(is_shortage) => {
                    shared.connections().drop_oldest_stranger();
                    thread::sleep(SHORTAGE_WAIT);
                }
                // No client came, or one left again.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
                Err(_) => thread::sleep(SHORTAGE_WAIT),
            }
        };
        {
            let mut connections = shared.connections();
            while connections.strangers.len() >= strangers_max.max(1) {
                connections.drop_oldest_stranger();
            }
            // The threads of closed strangers take a moment to end.
            while connections.n_leaving > strangers_max {
                let waited = shared.connection_ended.wait_timeout(connections, STRANGERS_LOOK);
                connections = waited.expect("see Shared::connections").0;
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
            }
            let stranger = Stranger { socket: socket.clone(), came: Instant::now() };
            connections.strangers.insert(connection, stranger);
        }
        // The place is given back also when serving panics, or when no thread can be started.
        let place = ConnectionPlace { shared: Arc::clone(shared), connection };
        let _ = thread::Builder::new().name("peer-serve".into()).stack_size(512 << 10).spawn(move || {
            // The end of a connection is for the client to report: it knows which objects it did not get.
            let _ = serve(&place, socket, connections_max);
        });
    }
}

/// Waits until a client can be accepted. May also return without one.
fn wait_readable(listener: &TcpListener, at_most: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout_ms = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one pollfd, alive through the call, whose descriptor is open.
    match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The place of one connection in [`Connections`].
struct ConnectionPlace {
    shared: Arc<Shared>,
    connection: u64,
}

impl ConnectionPlace {
    /// The stranger has proved the secret. `false`: it was closed before, or there are too many members.
    fn become_member(&self, members_max: usize) -> bool {
        let mut connections = self.shared.connections();
        let has_room = connections.members.len() < members_max;
        match connections.strangers.remove(&self.connection) {
            Some(Stranger { socket, .. }) if has_room => {
                connections.members.insert(self.connection, socket);
                true
            }
            Some(_) => {
                connections.n_leaving += 1;
                false
            }
            None => false,
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut connections = self.shared.connections();
        let was_here = connections.strangers.remove(&self.connection).is_some()
            || connections.members.remove(&self.connection).is_some();
        connections.n_leaving -= usize::from(!was_here);
        drop(connections);
        self.shared.connection_ended.notify_all();
    }
}

/// A stream being served; counted while it lives.
struct Stream<'a>(&'a AtomicUsize);

impl<'a> Stream<'a> {
    fn start(n_streams: &'a AtomicUsize, streams_max: usize) -> Option<Stream<'a>> {
        let one_more = |n| (n < streams_max).then_some(n + 1);
        n_streams.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Stream(n_streams))
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(place: &ConnectionPlace, socket: Socket, members_max: usize) -> Result<()> {
    const OPERATION: &str = "serve a peer";
    let shared = &*place.shared;
    let options = &shared.options;
    let lost = |e| Error::net(OPERATION, "the connection broke", e);
    let wire = match &options.tls {
        None => Wire::Plain(socket),
        Some(config) => {
            let connection = ServerConnection::new(Arc::clone(config))
                .map_err(|e| Error::new(ErrorKind::Protocol, OPERATION, e.to_string()))?;
            Wire::TlsServer(Box::new(StreamOwned::new(connection, socket)))
        }
    };
    let mut connection = Connection::new(wire, options.hello_timeout).map_err(lost)?;
    let client_id = connection.welcome(&shared.key, shared.server_id)?;
    if !place.become_member(members_max) {
        return Err(Error::new(ErrorKind::Busy, OPERATION, "there are too many connections"));
    }
    connection.set_idle_timeout(options.idle_timeout).map_err(lost)?;

    let mut out = Vec::with_capacity(2 * BLOCK_BYTES);
    let mut stream = None;
    // The last time when the client was waited for. A request that was sent ahead has arrived no earlier than
    // that, and must not expire because the requests before it took their time.
    let mut asked_unix_ms = (options.clock)();
    loop {
        // Everything is sent before we wait for the client, which may be waiting for it.
        if connection.buffered() < Request::ENCODED_BYTES || out.len() >= BLOCK_BYTES {
            connection.send(&out).map_err(lost)?;
            out.clear();
        }
        let request = match connection.wait(Request::ENCODED_BYTES).and_then(|waited| {
            if waited {
                asked_unix_ms = (options.clock)();
            }
            connection.take()
        }) {
            Ok(bytes) => Request::decode(&bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && connection.buffered() == 0 => return Ok(()),
            Err(e) => return Err(lost(e)),
        };
        if stream.is_none() {
            stream = Stream::start(&shared.n_streams, options.streams_max);
        }
        answer(shared, &mut connection, &mut out, (client_id, asked_unix_ms), &request, &mut stream)?;
        if request.last {
            connection.send(&out).map_err(lost)?;
            out.clear();
            stream = None;
        }
    }
}

/// Puts the answer to one request into `out`, or sends it if it is large. An error ends the connection.
///
/// * `asked_unix_ms`: the moment by which the ticket is judged.
fn answer<'a>(
    shared: &'a Shared,
    connection: &mut Connection,
    out: &mut Vec<u8>,
    (client_id, asked_unix_ms): (u32, u64),
    request: &Request,
    stream: &mut Option<Stream<'a>>,
) -> Result<()> {
    let ticket = &request.ticket;
    let refusal = match ticket.fault(&shared.key, shared.server_id, client_id, asked_unix_ms) {
        Some(Fault::Forged) => Some(Answer::TicketForged),
        Some(Fault::OtherHolder | Fault::OtherRequester) => Some(Answer::TicketForOther),
        Some(Fault::Expired) => Some(Answer::TicketExpired),
        // A request that would wait for its object needs a stream only when there are bytes to send.
        None if stream.is_none() && request.wait_ms == 0 => Some(Answer::Busy),
        None if request.offset.checked_add(request.len).is_none_or(|end| end > ticket.size) => {
            Some(Answer::BadRange)
        }
        None => None,
    };
    if let Some(refusal) = refusal {
        put_answer(out, refusal, 0);
        return Ok(());
    }
    let mut opened = shared.store.open_object(&ticket.digest);
    if matches!(&opened, Err(error) if error.kind == ErrorKind::NotHeld) {
        match begun(shared, connection, out, request, stream)? {
            Begun::Absent => {}
            Begun::Held => opened = shared.store.open_object(&ticket.digest),
            Begun::Arriving(_) if stream.is_none() => {
                put_answer(out, Answer::Busy, 0);
                return Ok(());
            }
            Begun::Arriving(arrival) if arrival.size() == ticket.size => {
                return pass_on(shared, connection, out, request, &arrival);
            }
            Begun::Arriving(_) => {
                put_answer(out, Answer::BadRange, 0);
                return Ok(());
            }
        }
    }
    let file = match opened {
        Ok(_) if stream.is_none() => {
            put_answer(out, Answer::Busy, 0);
            return Ok(());
        }
        Ok((file, size)) if size == ticket.size => file,
        // The size is signed with the digest; a ticket with a wrong combination is the dispatcher's mistake.
        Ok(_) => {
            put_answer(out, Answer::BadRange, 0);
            return Ok(());
        }
        Err(error) => {
            let answer = match error.kind {
                ErrorKind::NotHeld => Answer::NotHeld,
                ErrorKind::Corrupt | ErrorKind::DigestMismatch { .. } => {
                    corrupt(shared, ticket.digest);
                    Answer::Corrupt
                }
                _ => Answer::Failed,
            };
            put_answer(out, answer, 0);
            return Ok(());
        }
    };

    put_answer(out, Answer::Sending, request.len);
    let sent = if request.len <= SMALL_BYTES_MAX {
        let start = out.len();
        out.resize(start + usize::try_from(request.len).expect("at most SMALL_BYTES_MAX"), 0);
        file.read_exact_at(&mut out[start..], request.offset)
    } else {
        let sent = connection
            .send(out)
            .and_then(|()| connection.keep_send_queue_short())
            .and_then(|()| send_range(&mut connection.wire, &file, request));
        out.clear();
        sent
    };
    let intact = shared.store.unchanged(&ticket.digest, &file);
    if !intact {
        corrupt(shared, ticket.digest);
    }
    // Announced bytes cannot be taken back: the connection ends, and the client tries elsewhere.
    sent.map_err(|e| Error::net("send an object", ticket.digest.to_string(), e))?;
    put_verdict(out, shared, &ticket.digest, if intact { VERDICT_INTACT } else { VERDICT_CHANGED });
    Ok(())
}

/// Puts the verdict, and the times of an intact object that has some.
fn put_verdict(out: &mut Vec<u8>, shared: &Shared, digest: &Digest, verdict: u8) {
    let times = if verdict == VERDICT_INTACT { shared.store.times_of(digest) } else { vec![] };
    match u32::try_from(times.len()) {
        Ok(n) if n > 0 && n <= TIMES_MAX => {
            out.push(VERDICT_TIMED);
            out.extend(n.to_le_bytes());
            out.extend(times.iter().flat_map(|time| time.to_le_bytes()));
        }
        _ => out.push(verdict),
    }
}

/// Whether an object that is not held has begun to arrive, or begins within the time that the client is
/// willing to wait. While it waits, the connection holds no stream; afterwards `stream` is `None` if no other
/// was free.
fn begun<'a>(
    shared: &'a Shared,
    connection: &mut Connection,
    out: &mut Vec<u8>,
    request: &Request,
    stream: &mut Option<Stream<'a>>,
) -> Result<Begun> {
    let Request { ticket, offset, .. } = request;
    let begun = shared.store.await_arrival(&ticket.digest, *offset, Instant::now(), || false);
    if !matches!(begun, Begun::Absent) || request.wait_ms == 0 {
        return Ok(begun);
    }
    // The client may need the earlier answers before it can send us the object.
    connection.send(out).map_err(|e| Error::net("serve a peer", "the connection broke", e))?;
    out.clear();
    *stream = None;
    let wait = Duration::from_millis(request.wait_ms.into()).min(shared.options.wait_max);
    let wanted = || !shared.stopping.load(Ordering::Relaxed) && !connection.hung_up();
    let begun = shared.store.await_arrival(&ticket.digest, *offset, Instant::now() + wait, wanted);
    *stream = Stream::start(&shared.n_streams, shared.options.streams_max);
    Ok(begun)
}

/// Sends an object while it arrives, and then the verdict. An error ends the connection.
fn pass_on(
    shared: &Shared,
    connection: &mut Connection,
    out: &mut Vec<u8>,
    request: &Request,
    arrival: &ArrivalReader,
) -> Result<()> {
    let fail = |e| Error::net("pass an object on", request.ticket.digest.to_string(), e);
    put_answer(out, Answer::Streaming, request.len);
    connection.keep_send_queue_short().and_then(|()| connection.send(out)).map_err(fail)?;
    out.clear();
    let mut at = request.offset;
    let end = request.offset + request.len;
    let mut last_move = Instant::now();
    let verdict = loop {
        let seen = arrival.wait((at < end).then_some(at), WAIT_SLICE);
        let upto = seen.readable.min(end);
        if at < upto
            && let Some(file) = &seen.file
        {
            let n = BLOCK_BYTES.min(usize::try_from(upto - at).unwrap_or(BLOCK_BYTES));
            connection.send_piece(&piece_head(n), file, at, n).map_err(fail)?;
            at += n as u64;
            last_move = Instant::now();
            continue;
        }
        match seen.end {
            Some(ArrivalEnd::Stored) => break VERDICT_INTACT,
            Some(ArrivalEnd::Corrupt) => break VERDICT_CHANGED,
            Some(ArrivalEnd::GivenUp) => break VERDICT_BROKEN,
            None => {}
        }
        if last_move.elapsed() >= shared.options.arrival_idle_timeout
            || shared.stopping.load(Ordering::Relaxed)
            || connection.hung_up()
        {
            break VERDICT_BROKEN;
        }
    };
    out.extend_from_slice(&piece_head(0));
    put_verdict(out, shared, &request.ticket.digest, verdict);
    Ok(())
}

fn piece_head(n: usize) -> [u8; PIECE_HEAD_BYTES] {
    u32::try_from(n).expect("at most BLOCK_BYTES").to_le_bytes()
}

fn corrupt(shared: &Shared, digest: Digest) {
    if let Some(tell) = &shared.options.on_corrupt {
        tell(digest);
    }
}

fn put_answer(out: &mut Vec<u8>, answer: Answer, len: u64) {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[0] = answer as u8;
    bytes[1..].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&bytes);
}

fn send_range(wire: &mut Wire, file: &File, request: &Request) -> io::Result<()> {
    if let Wire::Plain(socket) = wire {
        return Mapping::new(file, request.offset, request.len)?.send(socket.stream());
    }
    // TLS reads the bytes in this process, where a mapping of a file that shrinks would cause a SIGBUS.
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = request.offset;
    let end = request.offset + request.len;
    while at < end {
        let n = BLOCK_BYTES.min(usize::try_from(end - at).unwrap_or(BLOCK_BYTES));
        file.read_exact_at(&mut block[..n], at)?;
        wire.write_all(&block[..n])?;
        at += n as u64;
    }
    wire.flush()
}

/// A mapped range of a file that is to be sent. Only the kernel reads it, so a file that shrinks meanwhile
/// causes an EFAULT of `send`, not a signal.
struct Mapping {
    start: *mut libc::c_void,
    /// From the page boundary to the end of the range.
    mapped_bytes: usize,
    skip_bytes: usize,
}

impl Mapping {
    fn new(file: &File, offset: u64, len: u64) -> io::Result<Mapping> {
        // SAFETY: no pointers are involved.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned() as u64;
        let skip = offset % page_bytes;
        let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let mapped_bytes = usize::try_from(len + skip).map_err(too_large)?;
        let map_offset = libc::off_t::try_from(offset - skip).map_err(too_large)?;
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked. `len` is not 0.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                map_offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was just mapped. This is advice (read ahead), so its failure changes nothing.
        unsafe { libc::madvise(start, mapped_bytes, libc::MADV_SEQUENTIAL) };
        let skip_bytes = usize::try_from(skip).expect("less than a page");
        Ok(Mapping { start, mapped_bytes, skip_bytes })
    }

    fn send(&self, socket: &TcpStream) -> io::Result<()> {
        let mut at = self.skip_bytes;
        while at < self.mapped_bytes {
            let n = SEND_BYTES.min(self.mapped_bytes - at);
            // SAFETY: `at..at + n` lies within the mapping, which lives as long as `self`. Its bytes may change
            // or vanish meanwhile: only the kernel looks at them, and answers with EFAULT.
            let sent = unsafe { libc::send(socket.as_raw_fd(), self.start.add(at), n, libc::MSG_NOSIGNAL) };
            match usize::try_from(sent) {
                Ok(sent) => at += sent,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, unmapped once.
        unsafe { libc::munmap(self.start, self.mapped_bytes) };
    }
}
