//! A hub: where stores that nobody can reach wait for those who want to reach them.
//!
//! ```text
//! catalog's side              hub                        store
//!                              ← Coming::Store            (this connection stays)
//!                                FromHub::Met           →
//! Coming::Knock              →
//!                                FromHub::Knock(7)      →
//!                              ← Coming::Answer(7)        (a new connection; then it takes TLS off)
//!                            ← FromHub::Through
//! (takes TLS off)
//! TLS with the store's keys, from end to end            ↔
//! ```
//!
//! * [`Hub`]: the process at an address that all sides reach.
//! * `out`: how a store keeps its connection to a hub, and answers who knocks there.
//! * `knock`: how the catalog's side gets a stream to a store.
//!
//! All connections prove with the hub's keys that they may come in. Then the two ends of a stream speak TLS with the keys of the
//! store, and the hub passes their bytes on. It has no key of the store: it can withhold a stream, and can neither read one nor use
//! the store.
//!
//! A store is known by a *meeting key*, which follows from the secret of its join file. So whoever has not got that file can neither
//! take the store's place nor knock at it, and two stores may have one name.
//!
//! Invariant: who knocks says nothing between `Knock` and `Through`, and a store nothing after `Answer` until the bytes of the other
//! end have come. So no byte without TLS is taken for one with TLS.

mod knock;
mod out;
mod relay;

pub(crate) use knock::knock;
pub use out::AtHub;

use eyas_net::{NetError, Stream, Writer};
use eyas_wire::identity::Identity;
use relay::relay;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Connections at a time that have not proved that they know the hub's join file.
const STRANGERS_MAX: usize = 16;
/// Stores at a time.
const STORES_MAX: usize = 256;
/// Streams at a time. Each has two sockets and two buffers.
const STREAMS_MAX: usize = 256;
/// How many knocks at one store may wait for its answer.
const KNOCKS_MAX: usize = 16;
/// How long a store may take to answer a knock.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often a store and its hub say that they are there.
const BEAT: Duration = Duration::from_secs(5);
/// After how long without a word a store and its hub give each other up.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What a hub knows a store by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct MeetingKey([u8; 32]);

impl MeetingKey {
    /// The one of the store with these keys, which do not follow from it.
    fn of(store: &Identity) -> MeetingKey {
        MeetingKey(blake3::derive_key("eyas 2026 key of a store at a hub", store.secret()))
    }
}

/// The first frame of whoever comes to a hub.
#[derive(Debug, Serialize, Deserialize)]
enum Coming {
    /// A store, which stays.
    Store { key: MeetingKey, name: String },
    /// Somebody wants a stream to the store of this key.
    Knock(MeetingKey),
    /// The store of this key brings the stream for the knock of this number.
    Answer(MeetingKey, u64),
}

/// From a hub.
#[derive(Debug, Serialize, Deserialize)]
enum FromHub {
    /// The store is known from now on.
    Met,
    /// Somebody has knocked at the store.
    Knock(u64),
    /// The next bytes are those of the store.
    Through,
    No(No),
    /// The hub is there.
    Beat,
}

/// Why a hub does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum No {
    /// No store of this key is connected.
    NotHere,
    /// The store is connected, and does not answer.
    Silent,
    /// Too many knock at the store.
    Busy,
    /// A store of this key is connected already.
    Taken,
    /// The hub has as many stores or streams as it takes.
    Full,
}

/// A store says that it is there.
#[derive(Debug, Serialize, Deserialize)]
struct Beat;

/// What a hub reports to who runs it.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    Came { store: &'a str, from: SocketAddr },
    Left { store: &'a str },
}

/// Brings stores and those who want to reach them together.
pub struct Hub {
    met: Mutex<Met>,
    n_streams: AtomicUsize,
    tell: Box<dyn Fn(Seen<'_>) + Send + Sync>,
}

#[derive(Default)]
struct Met {
    stores: HashMap<MeetingKey, Present>,
    /// Knocks that wait for the store's answer.
    knocks: HashMap<u64, Knocking>,
    n_knocks: u64,
}

/// A store that is connected.
struct Present {
    writer: Writer,
    /// Knocks that wait for its answer.
    n_waiting: usize,
}

struct Knocking {
    key: MeetingKey,
    answer: oneshot::Sender<TcpStream>,
}

impl Hub {
    /// `tell` hears of each store that comes or goes.
    pub fn new(tell: Box<dyn Fn(Seen<'_>) + Send + Sync>) -> Hub {
        Hub { met: Mutex::default(), n_streams: AtomicUsize::new(0), tell }
    }

    /// Serves those who have the join file with this identity, until the future is dropped.
    ///
    /// # Errors
    /// The identity is damaged.
    pub async fn serve(self: Arc<Hub>, listener: TcpListener, identity: &Identity) -> Result<(), NetError> {
        let config = identity.server_config()?;
        let hub = self;
        let serve = move |_, peer, stream| hub.clone().meet(peer, stream);
        eyas_net::keep_door_of_streams(listener, config, STRANGERS_MAX, serve).await;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn meet(self: Arc<Hub>, peer: SocketAddr, mut stream: Stream) {
        match stream.first::<Coming>().await {
            Ok(Some(Coming::Store { key, name })) => self.keep(key, &name, peer, stream).await,
            Ok(Some(Coming::Knock(key))) => match self.knock(key).await {
                Ok(answered) => {
                    let _counted = answered.counted;
                    if stream.send(&FromHub::Through).await.is_ok() {
                        relay(stream.into_tcp(), answered.stream).await;
                    }
                }
                Err(no) => {
                    let _ = stream.send(&FromHub::No(no)).await;
                }
            },
            Ok(Some(Coming::Answer(key, number))) => self.answer(key, number, stream),
            Ok(None) | Err(_) => {}
        }
    }

    /// Keeps the connection of a store until the store is gone.
    async fn keep(&self, key: MeetingKey, name: &str, from: SocketAddr, mut stream: Stream) {
        // It is what people hear of the store.
        if eyas_catalog::check_label(name).is_err() {
            return;
        }
        let name = name.to_owned();
        let refusal = {
            let met = self.lock();
            match met.stores.contains_key(&key) {
                true => Some(No::Taken),
                false => (met.stores.len() >= STORES_MAX).then_some(No::Full),
            }
        };
        if let Some(no) = refusal {
            let _ = stream.send(&FromHub::No(no)).await;
            return;
        }
        let (mut reader, writer) = stream.split();
        {
            // Another one of its key may have come in between.
            let mut met = self.lock();
            if met.stores.contains_key(&key) {
                writer.send(&FromHub::No(No::Taken));
                return;
            }
            writer.send(&FromHub::Met);
            met.stores.insert(key, Present { writer: writer.clone(), n_waiting: 0 });
        }
        (self.tell)(Seen::Came { store: &name, from });
        let _gone = Gone { hub: self, key, name };
        let beats = async {
            while writer.send(&FromHub::Beat) {
                tokio::time::sleep(BEAT).await;
            }
        };
        let heard =
            async { while let Ok(Ok(Some(Beat))) = timeout(SILENCE_MAX, reader.next::<Beat>()).await {} };
        tokio::select! {
            () = beats => {}
            () = heard => {}
        }
    }

    /// Has a store asked for a stream, and waits for it.
    async fn knock(&self, key: MeetingKey) -> Result<Answered<'_>, No> {
        let counted = Counted::of(&self.n_streams).ok_or(No::Full)?;
        let (answer, answered) = oneshot::channel();
        let number = {
            let met = &mut *self.lock();
            let present = met.stores.get_mut(&key).ok_or(No::NotHere)?;
            if present.n_waiting >= KNOCKS_MAX {
                return Err(No::Busy);
            }
            met.n_knocks += 1;
            present.n_waiting += 1;
            present.writer.send(&FromHub::Knock(met.n_knocks));
            met.knocks.insert(met.n_knocks, Knocking { key, answer });
            met.n_knocks
        };
        let waited = timeout(ANSWER_MAX, answered).await;
        let met = &mut *self.lock();
        met.knocks.remove(&number);
        let is_here =
            met.stores.get_mut(&key).map(|present| present.n_waiting = present.n_waiting.saturating_sub(1));
        match waited {
            Ok(Ok(stream)) => Ok(Answered { stream, counted }),
            _ if is_here.is_none() => Err(No::NotHere),
            _ => Err(No::Silent),
        }
    }

    /// Gives a store's stream to the one who knocked. Whoever knocked may have given up.
    fn answer(&self, key: MeetingKey, number: u64, stream: Stream) {
        let met = &mut *self.lock();
        if met.knocks.get(&number).is_some_and(|knocking| knocking.key == key)
            && let Some(knocking) = met.knocks.remove(&number)
        {
            let _ = knocking.answer.send(stream.into_tcp());
        }
    }
}

/// The stream of a store that has answered.
struct Answered<'a> {
    stream: TcpStream,
    counted: Counted<'a>,
}

/// One of the streams of a hub.
struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    /// `None`: there are as many as the hub takes.
    fn of(n_streams: &AtomicUsize) -> Option<Counted<'_>> {
        let counted = Counted(n_streams);
        // Where there are too many, this one is taken off again when it is dropped.
        (n_streams.fetch_add(1, Ordering::Relaxed) < STREAMS_MAX).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Forgets a store when its connection is over.
struct Gone<'a> {
    hub: &'a Hub,
    key: MeetingKey,
    name: String,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        {
            let mut met = self.hub.lock();
            met.stores.remove(&self.key);
            met.knocks.retain(|_, knocking| knocking.key != self.key);
        }
        (self.hub.tell)(Seen::Left { store: &self.name });
    }
}
