//! The requester's side: fetches objects from one holder into the store.
//!
//! Requests are sent ahead of the answers, so that ten thousand small objects cost one round trip; the bytes
//! of unanswered requests stay below what the holder's socket buffers, so neither side can block on the other.
//!
//! Each item ends exactly once, stored or failed. A failed item gives back what is needed to go on: the
//! partial object of a broken transfer, which the next holder can complete.
//!
//! Not here: which holder to ask, and which to ask next.

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::connection::{Connection, Socket, Wire};
use super::{
    ANSWER_BYTES, Answer, PIECE_HEAD_BYTES, Request, TIMES_MAX, Ticket, TicketKey, VERDICT_BROKEN,
    VERDICT_CHANGED, VERDICT_INTACT, VERDICT_TIMED,
};
use crate::store::{BLOCK_BYTES, HashedBy, WRITE_BEHIND_BYTES_MIN, Watched};
use crate::{Error, ErrorKind, Incoming, Result, Stored};

/// Requests sent ahead: 256 × 109 bytes fit the smallest socket buffers in use.
const WINDOW: usize = 256;

/// Idle connections kept for one holder.
const IDLE_LINKS_MAX: usize = 4;

/// How long a client waits before it connects again to a holder with too many strangers.
const DOOR_WAIT: Duration = Duration::from_millis(20);

/// Up to this many bytes of an unwanted answer are read and discarded, to keep the connection.
const DRAIN_BYTES_MAX: u64 = 1 << 20;

/// When other nodes read what is received here, wait for at most this many bytes at a time, so that they can
/// be passed on at once.
const PASSED_ON_BYTES: usize = 64 << 10;

const OPERATION: &str = "fetch from a peer";

/// Encryption of the client's side.
#[derive(Clone)]
pub struct ClientTls {
    pub config: Arc<ClientConfig>,
    /// The name in holders' certificates.
    pub server_name: ServerName<'static>,
}

pub struct PeerClientOptions {
    pub connect_timeout: Duration,
    /// A transfer in which no byte moves for this long is given up.
    pub idle_timeout: Duration,
    pub tls: Option<ClientTls>,
    /// Large objects are hashed by a thread of their own. By default where there is a processor for it beside those of the sender, the
    /// receiver and the writer.
    pub hashes_apart: bool,
}

/// Processors that sending, receiving, writing and hashing occupy at the same time.
const PROCESSORS_OF_A_TRANSFER: usize = 4;

impl Default for PeerClientOptions {
    fn default() -> PeerClientOptions {
        PeerClientOptions {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            tls: None,
            hashes_apart: thread::available_parallelism().is_ok_and(|n| n.get() >= PROCESSORS_OF_A_TRANSFER),
        }
    }
}

/// One object to fetch. If `into` already has bytes, the transfer resumes after them.
#[derive(Debug)]
pub struct FetchItem {
    pub ticket: Ticket,
    pub into: Incoming,
}

/// How the fetch of one item ended.
#[derive(Debug)]
pub enum FetchEnd {
    /// Received, its digest verified, in the store.
    Stored(Stored),
    Failed {
        error: Error,
        /// What can be completed elsewhere: the reservation and all bytes received so far. `None` if they are
        /// worthless (wrong digest, a failed disk write).
        partial: Option<Incoming>,
    },
}

/// Fetches objects, reusing connections. Shared by threads; each fetch has a connection of its own.
pub struct PeerClient {
    key: TicketKey,
    client_id: u32,
    options: PeerClientOptions,
    idle: Mutex<HashMap<SocketAddr, Vec<IdleConnection>>>,
}

struct IdleConnection {
    since: Instant,
    peer: Peer,
}

/// An authenticated connection.
struct Peer {
    connection: Connection,
    server_id: u32,
    /// The connection has waited in the pool, so the holder may have closed it: a failure before any answer
    /// says nothing.
    reused: bool,
}

impl PeerClient {
    /// A client that presents itself to holders as `client_id`, which is the `requester_id` of its tickets.
    pub fn new(key: TicketKey, client_id: u32, options: PeerClientOptions) -> PeerClient {
        PeerClient { key, client_id, options, idle: Mutex::default() }
    }

    fn hashed_by(&self) -> HashedBy {
        if self.options.hashes_apart { HashedBy::Third } else { HashedBy::Writer }
    }

    /// Fetches all `items` from `holder` in one stream, calling `on_end` once for each, with its index.
    ///
    /// Items end in order unless they fail before they are requested. Error kinds to distinguish: `NotHeld`,
    /// `Busy`, `Corrupt`, `DigestMismatch`: try the next source. `Interrupted`, `Timeout`: the holder is
    /// gone. `Unreachable`: no connection to it can be made, or another executor is at its address. `Refused`,
    /// `WrongSecret`, `WrongVersion`: asking this holder again is of no use.
    ///
    /// An object that is still arriving at the holder is received as it comes; if the holder gives it up, the item
    /// ends with `NotHeld` and what was received. Items are announced in their store while they are received
    /// ([`Incoming::announce`]), so that this node serves them on.
    pub fn fetch(&self, holder: SocketAddr, items: Vec<FetchItem>, on_end: impl FnMut(usize, FetchEnd)) {
        self.fetch_waiting(holder, items, Duration::ZERO, on_end);
    }

    /// Like [`PeerClient::fetch`], but for each item the holder waits up to `wait` (to the millisecond, and
    /// no longer than its own limit) for an object that it neither holds nor receives, before it answers
    /// `NotHeld`. As items are answered in order, the items behind such an item wait with it.
    pub fn fetch_waiting(
        &self,
        holder: SocketAddr,
        items: Vec<FetchItem>,
        wait: Duration,
        mut on_end: impl FnMut(usize, FetchEnd),
    ) {
        let mut todo: Vec<Option<FetchItem>> = items.into_iter().map(Some).collect();
        let mut next = 0;
        let mut pooled = true;
        while next < todo.len() {
            let failed = match self.connect(holder, pooled) {
                Err(error) => Some(error),
                Ok(peer) => {
                    let reused = peer.reused;
                    let before = next;
                    match self.run(holder, peer, wait, &mut todo, &mut next, &mut on_end) {
                        Err(_) if reused && next == before => {
                            pooled = false;
                            None
                        }
                        Err(error) => Some(error),
                        Ok(()) => None,
                    }
                }
            };
            if let Some(error) = failed {
                for (index, item) in todo.iter_mut().enumerate().skip(next) {
                    if let Some(FetchItem { into, .. }) = item.take() {
                        on_end(index, FetchEnd::Failed { error: error.clone(), partial: Some(into) });
                    }
                }
                return;
            }
        }
    }

    /// Copies `range` of an object to `sink` without storing it. **Not verified**: a part has no digest.
    pub fn fetch_range(
        &self,
        holder: SocketAddr,
        ticket: &Ticket,
        range: Range<u64>,
        sink: &mut dyn Write,
    ) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        let request = Request { ticket: *ticket, offset: range.start, len, wait_ms: 0, last: true };
        let mut pooled = true;
        loop {
            let mut peer = self.connect(holder, pooled)?;
            let asked = peer
                .connection
                .send(&request.encode())
                .and_then(|()| peer.connection.wait(ANSWER_BYTES).map(drop));
            match asked {
                Err(_) if peer.reused => pooled = false,
                Err(e) => return Err(lost(holder, e)),
                Ok(()) => {
                    let mut payload = match read_answer(&mut peer.connection, holder, len)? {
                        Ok(payload) => payload,
                        Err(error) => {
                            self.keep(holder, peer);
                            return Err(error);
                        }
                    };
                    read_payload(
                        &mut peer.connection,
                        holder,
                        &mut payload,
                        &Watched::default(),
                        |bytes, _| {
                            sink.write_all(bytes)
                                .map_err(|e| Error::io(OPERATION, "writing what was fetched", e))
                        },
                    )?;
                    let verdict = read_verdict(&mut peer.connection, holder)?;
                    self.keep(holder, peer);
                    return match verdict {
                        Verdict::Intact { .. } if payload.left == 0 => Ok(()),
                        Verdict::Intact { .. } | Verdict::Broken => Err(given_up(holder)),
                        Verdict::Changed => Err(changed(holder)),
                    };
                }
            }
        }
    }

    /// Works through `todo[*next..]` on one connection. `Ok` with items left: continue with another
    /// connection. `Err`: the holder is gone; the item that was being received is still in `todo`.
    fn run(
        &self,
        holder: SocketAddr,
        mut peer: Peer,
        wait: Duration,
        todo: &mut [Option<FetchItem>],
        next: &mut usize,
        on_end: &mut impl FnMut(usize, FetchEnd),
    ) -> Result<()> {
        let sendable = |item: &FetchItem| check_item(item, peer.server_id, holder);
        for (index, slot) in todo.iter_mut().enumerate().skip(*next) {
            if let Some(error) = slot.as_ref().and_then(|item| sendable(item).err()) {
                let partial = slot.take().map(|item| item.into);
                on_end(index, FetchEnd::Failed { error, partial });
            }
        }
        let Some(last) = todo.iter().rposition(Option::is_some) else {
            *next = todo.len();
            self.keep(holder, peer);
            return Ok(());
        };
        let connection = &mut peer.connection;
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let mut asked = *next;
        let mut n_in_flight = 0;
        let mut out = Vec::with_capacity(WINDOW * Request::ENCODED_BYTES);
        while *next <= last {
            if n_in_flight <= WINDOW / 2 && asked <= last {
                out.clear();
                while n_in_flight < WINDOW && asked <= last {
                    if let Some(FetchItem { ticket, into }) = &todo[asked] {
                        let offset = into.written();
                        let len = ticket.size - offset;
                        let request = Request { ticket: *ticket, offset, len, wait_ms, last: asked == last };
                        out.extend_from_slice(&request.encode());
                        n_in_flight += 1;
                    }
                    asked += 1;
                }
                connection.send(&out).map_err(|e| lost(holder, e))?;
            }
            let index = *next;
            if let Some(item) = &mut todo[index] {
                let received = if wait.is_zero() {
                    let answer = read_answer(connection, holder, item.rest())?;
                    receive(connection, holder, item, answer, self.hashed_by())?
                } else {
                    // The holder may be silent for as long as it was asked to wait, in addition.
                    let idle = self.options.idle_timeout;
                    connection.set_idle_timeout(idle + wait).map_err(|e| lost(holder, e))?;
                    let answer = read_answer(connection, holder, item.rest())?;
                    connection.set_idle_timeout(idle).map_err(|e| lost(holder, e))?;
                    receive(connection, holder, item, answer, self.hashed_by())?
                };
                n_in_flight -= 1;
                let FetchItem { ticket, into } = todo[index].take().expect("it was there above");
                let (end, link_is_usable) = match received {
                    Received::All { times } => match into.finish_timed(ticket.digest, &times) {
                        Ok(stored) => (FetchEnd::Stored(stored), true),
                        Err(error) => (FetchEnd::Failed { error, partial: None }, true),
                    },
                    Received::Refused(error) => (FetchEnd::Failed { error, partial: Some(into) }, true),
                    Received::Worthless { error, link_is_usable } => {
                        if error.kind == ErrorKind::Corrupt {
                            into.condemn();
                        }
                        (FetchEnd::Failed { error, partial: None }, link_is_usable)
                    }
                };
                *next += 1;
                on_end(index, end);
                if !link_is_usable {
                    return Ok(());
                }
            } else {
                *next += 1;
            }
        }
        *next = todo.len();
        self.keep(holder, peer);
        Ok(())
    }

    fn connect(&self, holder: SocketAddr, pooled: bool) -> Result<Peer> {
        if pooled && let Some(peer) = self.find_idle(holder) {
            return Ok(peer);
        }
        let give_up_at = Instant::now() + self.options.connect_timeout;
        loop {
            let socket = self.reach(holder)?;
            match self.greet(holder, socket) {
                // The holder is alive, but closed the connection before it knew who we are, because too many
                // strangers were connected. It has to be asked again, as nothing is known yet about the
                // objects.
                Err(error) if error.kind == ErrorKind::Interrupted && Instant::now() < give_up_at => {
                    thread::sleep(DOOR_WAIT);
                }
                result => return result,
            }
        }
    }

    fn reach(&self, holder: SocketAddr) -> Result<TcpStream> {
        TcpStream::connect_timeout(&holder, self.options.connect_timeout).map_err(|e| {
            let mut error = connecting(holder, e);
            if matches!(error.kind, ErrorKind::Interrupted | ErrorKind::Timeout) {
                error.kind = ErrorKind::Unreachable;
            }
            error
        })
    }

    fn greet(&self, holder: SocketAddr, socket: TcpStream) -> Result<Peer> {
        let options = &self.options;
        let socket = Socket::new(socket);
        let wire = match &options.tls {
            None => Wire::Plain(socket),
            Some(ClientTls { config, server_name }) => {
                let connection = ClientConnection::new(Arc::clone(config), server_name.clone())
                    .map_err(|e| Error::new(ErrorKind::Protocol, OPERATION, e.to_string()))?;
                Wire::TlsClient(Box::new(StreamOwned::new(connection, socket)))
            }
        };
        let mut connection =
            Connection::new(wire, options.idle_timeout).map_err(|e| connecting(holder, e))?;
        let server_id = connection.greet(&self.key, self.client_id).map_err(|mut error| {
            error.context = format!("{holder}: {}", error.context);
            error
        })?;
        Ok(Peer { connection, server_id, reused: false })
    }

    fn find_idle(&self, holder: SocketAddr) -> Option<Peer> {
        let mut idle = self.idle();
        self.close_old(&mut idle);
        let IdleConnection { peer, .. } = idle.get_mut(&holder)?.pop()?;
        Some(Peer { reused: true, ..peer })
    }

    fn keep(&self, holder: SocketAddr, peer: Peer) {
        let mut idle = self.idle();
        self.close_old(&mut idle);
        let connections = idle.entry(holder).or_default();
        if connections.len() < IDLE_LINKS_MAX && peer.connection.buffered() == 0 {
            connections.push(IdleConnection { since: Instant::now(), peer });
        }
    }

    /// Holders close idle connections, too; a connection is replaced well before that.
    fn close_old(&self, idle: &mut HashMap<SocketAddr, Vec<IdleConnection>>) {
        let limit = self.options.idle_timeout / 2;
        idle.retain(|_, connections| {
            connections.retain(|connection| connection.since.elapsed() < limit);
            !connections.is_empty()
        });
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<SocketAddr, Vec<IdleConnection>>> {
        self.idle.lock().expect("only map operations happen under this lock")
    }
}

enum Received {
    /// `times`: see [`crate::Store::keep_times`].
    All { times: Vec<i64> },
    /// The holder refuses to send the object, or cannot send it.
    Refused(Error),
    /// The bytes that arrived are of no use.
    Worthless { error: Error, link_is_usable: bool },
}

/// Errors that are known before anything is sent.
fn check_item(item: &FetchItem, server_id: u32, holder: SocketAddr) -> Result<()> {
    let FetchItem { ticket, into } = item;
    if ticket.holder_id != server_id {
        let why = format!("the ticket is for holder {}, at {holder} is {server_id}", ticket.holder_id);
        return Err(Error::new(ErrorKind::Unreachable, OPERATION, why));
    }
    if into.written() > ticket.size {
        let why = format!("{} bytes of {} are there already", into.written(), ticket.size);
        return Err(Error::new(ErrorKind::Refused, OPERATION, why));
    }
    Ok(())
}

impl FetchItem {
    /// Bytes that are still to be fetched.
    fn rest(&self) -> u64 {
        self.ticket.size - self.into.written()
    }
}

/// The part of an answer's payload that is still to come.
struct Payload {
    /// Bytes left of everything that was announced.
    left: u64,
    /// Bytes left of the current piece; `None` for an answer that is one piece.
    piece: Option<u64>,
}

impl Payload {
    /// How many bytes come next without a piece head between them, at most [`BLOCK_BYTES`]; 0 at the end.
    fn next(&mut self, connection: &mut Connection) -> std::io::Result<usize> {
        let run = match &mut self.piece {
            None => self.left,
            Some(piece) => {
                if *piece == 0 {
                    let head: [u8; PIECE_HEAD_BYTES] = connection.take()?;
                    *piece = u64::from(u32::from_le_bytes(head));
                    if *piece > self.left {
                        return Err(std::io::Error::new(
                            std::io::ErrorKind::InvalidData,
                            "a piece is longer than what was announced",
                        ));
                    }
                }
                *piece
            }
        };
        Ok(BLOCK_BYTES.min(usize::try_from(run).unwrap_or(BLOCK_BYTES)))
    }

    fn took(&mut self, bytes: usize) {
        self.left -= bytes as u64;
        if let Some(piece) = &mut self.piece {
            *piece -= bytes as u64;
        }
    }
}

/// The number of bytes, at most `most`, to wait for.
fn least(watched: &Watched, most: usize) -> usize {
    if watched.now() { most.min(PASSED_ON_BYTES) } else { most }
}

/// Receives what follows `answer` into `item`; a large object is hashed by `hashed_by`. `Err`: the connection broke.
fn receive(
    connection: &mut Connection,
    holder: SocketAddr,
    item: &mut FetchItem,
    answer: Result<Payload>,
    hashed_by: HashedBy,
) -> Result<Received> {
    let mut payload = match answer {
        Ok(payload) => payload,
        Err(error) => return Ok(Received::Refused(error)),
    };
    let FetchItem { ticket, into } = item;
    into.announce(ticket.digest, ticket.size);
    let watched = into.watched();
    if payload.left >= WRITE_BEHIND_BYTES_MIN {
        let received = into.append_behind(hashed_by, |behind| {
            loop {
                let most = payload.next(connection).map_err(|e| lost(holder, e))?;
                if most == 0 {
                    return Ok(());
                }
                let waited = connection.wait(least(&watched, most));
                // A node that passes bytes on already uses one processor for two transfers.
                let here = waited.as_ref().is_ok_and(|&waited| waited || watched.now()) && behind.is_idle();
                let appended = if here {
                    let bytes = connection.buffer(most);
                    let appended = behind.append_here(bytes);
                    let n = bytes.len();
                    payload.took(n);
                    connection.consume(n);
                    appended
                } else if let Some(mut block) = behind.spare() {
                    // The part of a block that did arrive is kept: a resume must not request it again.
                    connection.take_block(most, &mut block);
                    payload.took(block.len());
                    behind.append(block)
                } else {
                    false
                };
                waited.map_err(|e| lost(holder, e))?;
                if !appended {
                    return Ok(());
                }
            }
        });
        return Ok(match received {
            Ok(arrived) => {
                arrived?;
                verdict(connection, holder, &payload)?
            }
            Err(error) => Received::Worthless { error, link_is_usable: false },
        });
    }
    let mut failed = None;
    read_payload(connection, holder, &mut payload, &watched, |bytes, left| {
        if failed.is_none() {
            failed = into.append(bytes).err();
        }
        match &failed {
            Some(error) if left > DRAIN_BYTES_MAX => Err(error.clone()),
            _ => Ok(()),
        }
    })
    .or_else(|error| if failed.is_some() { Ok(()) } else { Err(error) })?;
    if let Some(error) = failed {
        let link_is_usable =
            payload.left == 0 && payload.piece.is_none() && read_verdict(connection, holder).is_ok();
        return Ok(Received::Worthless { error, link_is_usable });
    }
    verdict(connection, holder, &payload)
}

/// Reads the holder's verdict. In the end, the receiver's own hash decides.
fn verdict(connection: &mut Connection, holder: SocketAddr, payload: &Payload) -> Result<Received> {
    Ok(match read_verdict(connection, holder)? {
        // The holder could not keep what it passed on; our digest decides whether the bytes are good.
        Verdict::Intact { times } if payload.left == 0 => Received::All { times },
        Verdict::Broken if payload.left == 0 => Received::All { times: vec![] },
        Verdict::Intact { .. } | Verdict::Broken => Received::Refused(given_up(holder)),
        Verdict::Changed => Received::Worthless { error: changed(holder), link_is_usable: true },
    })
}

/// Reads the head of an answer. Outer error: the connection; inner: the holder's refusal.
fn read_answer(
    connection: &mut Connection,
    holder: SocketAddr,
    expected_len: u64,
) -> Result<Result<Payload>> {
    let head: [u8; ANSWER_BYTES] = connection.take().map_err(|e| lost(holder, e))?;
    let len = u64::from_le_bytes(*head.last_chunk().expect("the answer ends in its length"));
    let say = |kind, why: &str| Ok(Err(Error::new(kind, OPERATION, format!("{holder} {why}"))));
    match Answer::decode(head[0]) {
        Some(Answer::Sending) if len == expected_len => Ok(Ok(Payload { left: len, piece: None })),
        Some(Answer::Streaming) if len == expected_len => Ok(Ok(Payload { left: len, piece: Some(0) })),
        Some(Answer::NotHeld) => say(ErrorKind::NotHeld, "does not hold the object"),
        Some(Answer::Busy) => say(ErrorKind::Busy, "serves as many streams as it may"),
        Some(Answer::Corrupt) => say(ErrorKind::Corrupt, "found its copy changed since it was stored"),
        Some(Answer::TicketForged) => say(ErrorKind::Refused, "says that the ticket's signature is wrong"),
        Some(Answer::TicketForOther) => {
            say(ErrorKind::Refused, "says that the ticket is for another executor")
        }
        Some(Answer::TicketExpired) => say(ErrorKind::Refused, "says that the ticket has expired"),
        Some(Answer::BadRange) => say(ErrorKind::Refused, "says that the object has no such range"),
        Some(Answer::Failed) => say(ErrorKind::Interrupted, "could not read the object"),
        Some(Answer::Sending | Answer::Streaming) | None => {
            Err(Error::new(ErrorKind::Protocol, OPERATION, format!("{holder} gave an answer that is none")))
        }
    }
}

/// Passes the payload to `use_bytes` in blocks, each with the number of bytes that are left after it. Stops
/// at the first error of `use_bytes`.
fn read_payload(
    connection: &mut Connection,
    holder: SocketAddr,
    payload: &mut Payload,
    watched: &Watched,
    mut use_bytes: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    loop {
        let most = payload.next(connection).map_err(|e| lost(holder, e))?;
        if most == 0 {
            return Ok(());
        }
        let waited = connection.wait(least(watched, most));
        // The part of a block that did arrive is kept: a resume must not request it again.
        let bytes = connection.buffer(most);
        let n = bytes.len();
        payload.took(n);
        use_bytes(bytes, payload.left)?;
        connection.consume(n);
        waited.map_err(|e| lost(holder, e))?;
    }
}

enum Verdict {
    /// `times`: see [`crate::Store::keep_times`].
    Intact {
        times: Vec<i64>,
    },
    Changed,
    Broken,
}

fn read_verdict(connection: &mut Connection, holder: SocketAddr) -> Result<Verdict> {
    match connection.take::<1>().map_err(|e| lost(holder, e))? {
        [VERDICT_INTACT] => Ok(Verdict::Intact { times: vec![] }),
        [VERDICT_TIMED] => {
            let n = u32::from_le_bytes(connection.take().map_err(|e| lost(holder, e))?).min(TIMES_MAX);
            let mut time = || connection.take().map(i64::from_le_bytes).map_err(|e| lost(holder, e));
            Ok(Verdict::Intact { times: (0..n).map(|_| time()).collect::<Result<_>>()? })
        }
        [VERDICT_CHANGED] => Ok(Verdict::Changed),
        [VERDICT_BROKEN] => Ok(Verdict::Broken),
        _ => Err(Error::new(ErrorKind::Protocol, OPERATION, format!("{holder} gave a verdict that is none"))),
    }
}

fn changed(holder: SocketAddr) -> Error {
    let why = format!("{holder} found its copy changed while it sent it");
    Error::new(ErrorKind::Corrupt, OPERATION, why)
}

fn given_up(holder: SocketAddr) -> Error {
    let why = format!("{holder} was still receiving the object, and gave it up");
    Error::new(ErrorKind::NotHeld, OPERATION, why)
}

fn connecting(holder: SocketAddr, e: std::io::Error) -> Error {
    Error::net(OPERATION, format!("connecting to {holder}"), e)
}

fn lost(holder: SocketAddr, e: std::io::Error) -> Error {
    Error::net(OPERATION, format!("the connection to {holder} broke"), e)
}
