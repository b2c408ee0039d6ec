//! Relays: connections of many executors that come on one connection ([`eyas_wire::relay`]).
//!
//! Each executor behind a relay has a connection of its own for the loop and the session, which know no relays. The join
//! file names the relays that are there.

use super::arrival::{Arrival, Line};
use eyas_net::{FrameReader, NetError, Writer};
use eyas_session::dispatcher::Input;
use eyas_text::{line_of, say};
use eyas_wire::frame::{self, FrameError};
use eyas_wire::identity::{IdentityError, Join};
use eyas_wire::message::{FromExecutor, Hello, Welcome};
use eyas_wire::relay::{self, Passed, RELAY_ITSELF};
use eyas_wire::users::Visitor;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

/// A relay of which nothing was heard for this long is taken to be gone. It speaks several times as often.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// After a restart the relays of the process before stay in the join file for this long. Without them all executors would
/// come to the dispatcher itself, before the first relay is back.
const EXPECTED: Duration = Duration::from_secs(10);

/// The relays, as the join file names them.
pub(super) struct Relays {
    lease_ns: u64,
    path: PathBuf,
    known: Mutex<Known>,
    /// The join file. `None`: the dispatcher ends, and there is no file any more.
    join: Mutex<Option<Join>>,
}

struct Known {
    /// Where executors reach the relays that are there.
    connected: BTreeMap<u64, String>,
    /// Where they reached those that may come back.
    expected: BTreeSet<String>,
}

impl Relays {
    /// * `lease_ns`: how long executors wait for a dispatcher;
    /// * `path`: of the dispatcher's join file, which says `join`;
    /// * `before`: the relays of the process before.
    pub fn new(lease_ns: u64, path: &Path, join: Join, before: Vec<String>) -> Arc<Relays> {
        let known = Known { connected: BTreeMap::new(), expected: before.into_iter().collect() };
        let has_expected = !known.expected.is_empty();
        let path = path.to_path_buf();
        let all = Arc::new(Relays { lease_ns, path, known: Mutex::new(known), join: Mutex::new(Some(join)) });
        if has_expected {
            let all = all.clone();
            tokio::spawn(async move {
                tokio::time::sleep(EXPECTED).await;
                all.change(|known| known.expected.clear());
            });
        }
        all
    }

    /// The relays that the join file at `path` names, if there is one.
    pub fn named_in(path: &Path) -> Vec<String> {
        Join::read(path).map_or(vec![], |join| join.relays)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("only map operations happen under this lock")
    }

    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Known)) {
        change(&mut self.lock());
        let all = self.clone();
        tokio::task::spawn_blocking(move || all.write().unwrap_or_else(|e| say!("eyas: {e}")));
    }

    /// Writes the join file. Whoever writes last writes what is so then.
    pub fn write(&self) -> Result<(), IdentityError> {
        let mut join = self.join.lock().expect("nothing panics with it");
        let Some(join) = join.as_mut() else { return Ok(()) };
        let known = self.lock();
        let all: BTreeSet<&String> = known.connected.values().chain(&known.expected).collect();
        join.relays = all.into_iter().cloned().collect();
        drop(known);
        join.write(&self.path)
    }

    /// The dispatcher ends: the join file is not written any more.
    pub fn end(&self) {
        *self.join.lock().expect("nothing panics with it") = None;
    }

    /// One relay's connection, from its welcome to its end.
    ///
    /// * `at`: the relay's address on this connection;
    /// * `address`: where executors reach it.
    pub async fn serve(
        self: Arc<Self>,
        connection: u64,
        at: SocketAddr,
        address: String,
        (reader, writer): (FrameReader, Writer),
        arrivals: Sender<Arrival>,
    ) {
        let (line, mut closed) = Line::own(writer.clone());
        if arrivals.send(Arrival::RelayCame { connection, line }).await.is_err() {
            return;
        }
        writer.send(&Welcome::Relay { lease_ns: self.lease_ns });
        let shown = line_of(&address).to_string();
        say!("eyas: a relay for executors joined from {at}, which reach it at {shown}");
        self.change(|known| drop(known.connected.insert(connection, address)));
        let mut relay = Relay { connection, at, writer, arrivals, open: BTreeSet::new() };
        let why = tokio::select! {
            why = relay.read_all(reader) => why,
            _ = &mut closed => return,
        };
        say!(
            "eyas: the relay at {shown} is gone, with {} executors behind it: {}",
            relay.open.len(),
            line_of(&why)
        );
        self.change(|known| drop(known.connected.remove(&connection)));
        relay.lose_all().await;
    }
}

/// What a relay that is there has, from the dispatcher's side.
struct Relay {
    connection: u64,
    at: SocketAddr,
    writer: Writer,
    arrivals: Sender<Arrival>,
    /// The numbers of connections that the relay has not said to be closed.
    open: BTreeSet<u32>,
}

/// The loop has ended.
struct LoopEnded;

impl Relay {
    /// Gives why it is over.
    async fn read_all(&mut self, mut reader: FrameReader) -> String {
        loop {
            let body = match timeout(SILENCE_MAX, reader.next_body()).await {
                Ok(Ok(Some(body))) => body,
                Ok(Ok(None)) => return "it closed the connection".into(),
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return format!("nothing was heard of it for {} s", SILENCE_MAX.as_secs()),
            };
            match self.take(body).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return NetError::from(error).to_string(),
                Err(LoopEnded) => return "the dispatcher ends".into(),
            }
        }
    }

    /// Takes one frame of the relay. Inner errors: the relay itself speaks nonsense.
    async fn take(&mut self, body: &[u8]) -> Result<Result<(), FrameError>, LoopEnded> {
        let (number, passed) = match relay::decode(body) {
            Ok(passed) => passed,
            Err(error) => return Ok(Err(error)),
        };
        match passed {
            Passed::Opened { peer, hello } => {
                if number == RELAY_ITSELF || !self.open.insert(number) {
                    let why = format!("the relay opens connection {number}, which it has opened before");
                    return Ok(Err(FrameError::Garbled(why)));
                }
                self.open(number, peer, hello).await?;
            }
            Passed::Frame(body) => match frame::decode::<Vec<FromExecutor>>(body) {
                Ok(batch) => {
                    let connection = self.connection_of(number);
                    self.send(Input::FromExecutor { connection, batch }).await?;
                }
                // As a connection of its own would be: it is over for both sides.
                Err(_) => {
                    self.writer.pass(number, Passed::Closed);
                    self.send(Input::Disconnected { connection: self.connection_of(number) }).await?;
                }
            },
            Passed::Closed => {
                if self.open.remove(&number) {
                    self.send(Input::Disconnected { connection: self.connection_of(number) }).await?;
                }
            }
            Passed::Alive => drop(self.writer.pass(RELAY_ITSELF, Passed::Alive)),
            Passed::Ends => return Ok(Err(FrameError::Garbled("a relay ends no dispatcher".into()))),
        }
        Ok(Ok(()))
    }

    async fn open(&mut self, number: u32, peer: SocketAddr, hello: &[u8]) -> Result<(), LoopEnded> {
        let writer = self.writer.behind(number);
        let hello = match frame::decode::<Hello>(hello) {
            Ok(hello @ Hello::Executor(_)) => hello,
            Ok(_) => {
                let reason = "this is the address of a relay, which is for executors alone; the dispatcher's join file has \
                              the address for commands";
                writer.send(&Welcome::Refused { reason: reason.into() });
                writer.close();
                return Ok(());
            }
            Err(_) => {
                writer.close();
                return Ok(());
            }
        };
        let arrival = Arrival::Connected {
            connection: self.connection_of(number),
            peer: self.seen_from_here(peer),
            hello,
            visitor: Visitor::Member,
            line: Line::behind_relay(writer),
        };
        self.arrivals.send(arrival).await.map_err(|_| LoopEnded)
    }

    /// The numbers of the door's own connections are far below.
    fn connection_of(&self, number: u32) -> u64 {
        (self.connection << 32) | u64::from(number)
    }

    /// An executor on the relay's own machine is where the relay is.
    fn seen_from_here(&self, peer: SocketAddr) -> SocketAddr {
        match peer.ip().is_loopback() {
            true => SocketAddr::new(self.at.ip(), peer.port()),
            false => peer,
        }
    }

    async fn send(&self, input: Input) -> Result<(), LoopEnded> {
        self.arrivals.send(Arrival::Session(input)).await.map_err(|_| LoopEnded)
    }

    /// The relay is gone, and with it the connections of all executors behind it.
    async fn lose_all(self) {
        for number in &self.open {
            let lost = Input::Disconnected { connection: self.connection_of(*number) };
            if self.send(lost).await.is_err() {
                return;
            }
        }
        let _ = self.arrivals.send(Arrival::RelayLeft { connection: self.connection }).await;
    }
}
