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
//! All connections prove with the hub's keys that they may come in, and the hub's keys are in the join file of each of its stores. So
//! no store, and nobody at one address, may have all streams, and a stream on which nothing is said ends. Then the two ends of a stream speak TLS with the keys of the
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
use relay::{Patience, relay};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Connections at a time that have not proved that they know the hub's join file.
const STRANGERS_MAX: usize = 16;
/// Stores at a time, and those that come from one address.
const STORES_MAX: usize = 256;
const STORES_OF_ADDRESS_MAX: usize = 128;
/// Streams at a time. Each has two sockets and two buffers.
const STREAMS_MAX: usize = 256;
/// Streams at a time of one store: some more than the requests that a store serves, so that it hears of those who wait.
const STREAMS_OF_STORE_MAX: usize = 80;
/// Streams at a time of those who knock from one address.
const STREAMS_OF_ADDRESS_MAX: usize = 160;
/// What is said of a stream before it is ended.
const PATIENCE: Patience = Patience { first: Duration::from_secs(10), silence: Duration::from_secs(60) };
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
pub enum HubReport<'a> {
    Came { store: &'a str, from: SocketAddr },
    Left { store: &'a str },
}

/// Brings stores and those who want to reach them together.
pub struct Hub {
    met: Mutex<Met>,
    tell: Box<dyn Fn(HubReport<'_>) + Send + Sync>,
}

#[derive(Default)]
struct Met {
    stores: HashMap<MeetingKey, Present>,
    /// Knocks that wait for the store's answer.
    knocks: HashMap<u64, Knocking>,
    n_knocks: u64,
    streams: Streams,
}

/// How many streams there are: in all, of each store, and of those who have knocked from each address.
#[derive(Default)]
struct Streams {
    n: usize,
    of_store: HashMap<MeetingKey, usize>,
    of_address: HashMap<IpAddr, usize>,
}

impl Streams {
    /// Counts one more.
    fn begin(&mut self, key: MeetingKey, from: IpAddr) -> Result<(), No> {
        if self.n >= STREAMS_MAX {
            return Err(No::Full);
        }
        let n_of_store = self.of_store.get(&key).copied().unwrap_or(0);
        let n_of_address = self.of_address.get(&from).copied().unwrap_or(0);
        if n_of_store >= STREAMS_OF_STORE_MAX || n_of_address >= STREAMS_OF_ADDRESS_MAX {
            return Err(No::Busy);
        }
        self.n += 1;
        self.of_store.insert(key, n_of_store + 1);
        self.of_address.insert(from, n_of_address + 1);
        Ok(())
    }

    fn end(&mut self, key: MeetingKey, from: IpAddr) {
        self.n -= 1;
        less(&mut self.of_store, key);
        less(&mut self.of_address, from);
    }
}

fn less<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, of: K) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// A store that is connected.
struct Present {
    writer: Writer,
    from: IpAddr,
    /// Knocks that wait for its answer.
    n_waiting: usize,
}

struct Knocking {
    key: MeetingKey,
    answer: oneshot::Sender<TcpStream>,
}

impl Hub {
    /// `tell` hears of each store that comes or goes.
    pub fn new(tell: Box<dyn Fn(HubReport<'_>) + Send + Sync>) -> Hub {
        Hub { met: Mutex::default(), tell }
    }

    /// Serves those who have the join file with this identity, until the future is dropped.
    ///
    /// # Errors
    /// The identity is damaged.
    pub async fn serve(self: Arc<Hub>, listener: TcpListener, identity: &Identity) -> Result<(), NetError> {
        let config = identity.server_config()?;
        let hub = self;
        let serve = move |peer, stream, coming| hub.clone().meet(peer, stream, coming);
        eyas_net::keep_door_of_streams(listener, config, STRANGERS_MAX, serve).await;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn meet(self: Arc<Hub>, peer: SocketAddr, mut stream: Stream, coming: Coming) {
        match coming {
            Coming::Store { key, name } => self.keep(key, &name, peer, stream).await,
            Coming::Knock(key) => match self.knock(key, peer.ip()).await {
                Ok(answered) => {
                    let _counted = answered.counted;
                    if stream.send(&FromHub::Through).await.is_ok() {
                        relay(stream.into_tcp(), answered.stream, PATIENCE).await;
                    }
                }
                Err(no) => {
                    let _ = stream.send(&FromHub::No(no)).await;
                }
            },
            Coming::Answer(key, number) => self.answer(key, number, stream),
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
            let n_from_there = met.stores.values().filter(|store| store.from == from.ip()).count();
            let is_full = met.stores.len() >= STORES_MAX || n_from_there >= STORES_OF_ADDRESS_MAX;
            match met.stores.contains_key(&key) {
                true => Some(No::Taken),
                false => is_full.then_some(No::Full),
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
            met.stores.insert(key, Present { writer: writer.clone(), from: from.ip(), n_waiting: 0 });
        }
        (self.tell)(HubReport::Came { store: &name, from });
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
    async fn knock(&self, key: MeetingKey, from: IpAddr) -> Result<Answered<'_>, No> {
        let (answer, answered) = oneshot::channel();
        let (number, counted) = {
            let met = &mut *self.lock();
            let present = met.stores.get_mut(&key).ok_or(No::NotHere)?;
            if present.n_waiting >= KNOCKS_MAX {
                return Err(No::Busy);
            }
            met.streams.begin(key, from)?;
            met.n_knocks += 1;
            present.n_waiting += 1;
            present.writer.send(&FromHub::Knock(met.n_knocks));
            met.knocks.insert(met.n_knocks, Knocking { key, answer });
            (met.n_knocks, Counted { hub: self, key, from })
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
struct Counted<'a> {
    hub: &'a Hub,
    key: MeetingKey,
    from: IpAddr,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.hub.lock().streams.end(self.key, self.from);
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
        (self.hub.tell)(HubReport::Left { store: &self.name });
    }
}

#[cfg(test)]
mod tests {
    use super::knock::come;
    use super::*;
    use crate::{Remote, Store, StoreOptions};
    use eyas_catalog::Folder;
    use eyas_wire::identity::Join;
    use std::time::Instant;
    use tokio::sync::mpsc;

    /// A store that brings a stream for each knock, and says nothing on any of them.
    async fn answer_silently(hub: Join, key: MeetingKey, is_met: oneshot::Sender<()>) {
        let mut silent = vec![];
        let mut store = come(&hub).await.unwrap();
        store.send(&Coming::Store { key, name: "silent".into() }).await.unwrap();
        assert!(matches!(store.next().await.unwrap(), Some(FromHub::Met)));
        is_met.send(()).unwrap();
        while let Ok(Some(said)) = store.next::<FromHub>().await {
            if let FromHub::Knock(number) = said {
                let mut stream = come(&hub).await.unwrap();
                stream.send(&Coming::Answer(key, number)).await.unwrap();
                silent.push(stream);
            }
        }
    }

    #[test]
    fn who_holds_the_join_file_of_one_store_keeps_nobody_from_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (hub_identity, identity) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let hub = Join::new(address, "hub".into(), String::new(), hub_identity.clone());
        let hub_itself = Arc::new(Hub::new(Box::new(|_| {})));
        runtime.spawn(async move { hub_itself.serve(listener, &hub_identity).await });

        let store =
            Arc::new(Store::new(Folder::make(dir.path(), "good").unwrap(), StoreOptions::default()).unwrap());
        let (tell, mut told) = mpsc::unbounded_channel();
        runtime.spawn({
            let (hub, identity) = (hub.clone(), identity.clone());
            async move { store.serve_through(&hub, &identity, &move |now| drop(tell.send(now.clone()))).await }
        });
        assert_eq!(runtime.block_on(told.recv()), Some(AtHub::Connected));

        let silent = MeetingKey([7; 32]);
        let (met, is_met) = oneshot::channel();
        runtime.spawn(answer_silently(hub.clone(), silent, met));
        runtime.block_on(is_met).unwrap();
        let streams = runtime.block_on(async {
            let mut streams = vec![];
            for _ in 0..=STREAMS_MAX {
                let mut stream = come(&hub).await.unwrap();
                stream.send(&Coming::Knock(silent)).await.unwrap();
                if matches!(stream.next().await.unwrap(), Some(FromHub::Through)) {
                    streams.push(stream);
                }
            }
            // These do not even say what they want.
            for _ in 0..2 * STRANGERS_MAX {
                streams.push(come(&hub).await.unwrap());
            }
            streams
        });
        assert_eq!(streams.len(), STREAMS_OF_STORE_MAX + 2 * STRANGERS_MAX);

        let mut join = Join::new("there".into(), "good".into(), String::new(), identity);
        (join.store, join.through) = (Some("good".into()), Some(Box::new(hub)));
        let began = Instant::now();
        let remote = Remote::connect(&serde_json::to_string(&join).unwrap()).unwrap();
        assert_eq!(remote.address(), "there");
        assert!(began.elapsed() < ANSWER_MAX, "{:?}", began.elapsed());
    }

    #[test]
    fn streams_are_counted_until_they_end() {
        let (mut streams, near) = (Streams::default(), IpAddr::from([10, 0, 0, 1]));
        let key = |n: usize| MeetingKey([n as u8; 32]);
        for n in 0..STREAMS_OF_ADDRESS_MAX {
            streams.begin(key(n / STREAMS_OF_STORE_MAX), near).unwrap();
        }
        assert_eq!(streams.begin(key(9), near), Err(No::Busy), "one address");
        let far = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(streams.begin(key(0), far), Err(No::Busy), "one store");
        for n in STREAMS_OF_ADDRESS_MAX..STREAMS_MAX {
            streams.begin(key(n), far).unwrap();
        }
        assert_eq!(streams.begin(key(9), far), Err(No::Full));
        streams.end(key(0), near);
        streams.begin(key(9), near).unwrap();
        streams.end(key(9), near);
        for n in 1..STREAMS_OF_ADDRESS_MAX {
            streams.end(key(n / STREAMS_OF_STORE_MAX), near);
        }
        assert!(!streams.of_store.contains_key(&key(0)) && !streams.of_address.contains_key(&near));
    }
}
