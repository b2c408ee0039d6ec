//! The data plane of this node: it serves its cache to other executors, and fetches from theirs.
//!
//! Each stream has a thread of its own; the end of each object comes back as an event.

use super::input::{Input, Inputs};
use super::node::NodeState;
use super::{DataPlane, ExecutorError, ExecutorOptions};
use crate::address::by_ipv6;
use crate::clock;
use crate::descriptors;
use crate::executor::fetch::{Broken, Wanted, fetch};
use crate::executor::home_io::data_error;
use eyas_core::event::*;
use eyas_core::executor::Executor;
use eyas_data::{ClientTls, Incoming, PeerClient, PeerClientOptions, PeerServer, PeerServerOptions};
use eyas_data::{Store, Stored, Ticket, TicketKey};
use eyas_host::host_name;
use eyas_session::executor::orders::Permits;
use eyas_terms::*;
use eyas_wire::identity::Identity;
use eyas_wire::message::Permit;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Objects up to this size share a stream with others; a larger one has its own.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// How long to wait for a peer to begin to receive an object that it is to send on.
const AWAIT_MAX: Duration = Duration::from_secs(30);

/// A round trip is measured so many times, and waited for so long.
const N_PROBES: u32 = 10;
const PROBE_MAX: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Peers {
    /// Serves the cache until it is dropped.
    _server: PeerServer,
    client: Arc<PeerClient>,
    /// Where the cache is served.
    bound: SocketAddr,
    /// This executor's name on the data plane.
    data_id: u32,
    /// Where each executor serves its cache, and its name on the data plane.
    known: HashMap<ExecutorId, (String, u32)>,
    permits: HashMap<(ObjectId, ExecutorId), Permit>,
    /// First bytes of objects whose source broke off. They are kept until the next source is asked, or there is none.
    begun: HashMap<ObjectId, Incoming>,
    inputs: Inputs,
}

impl Peers {
    /// Begins to serve `store`, the cache of the executor that lives in `dir`. Tickets are judged by the clock of `node`.
    pub(super) fn serve(
        options: &ExecutorOptions,
        identity: &Identity,
        dir: &Path,
        store: &Store,
        node: &NodeState,
        inputs: Inputs,
    ) -> Result<Peers, ExecutorError> {
        let listen_error = |source| ExecutorError::Listen { address: options.data_listen.clone(), source };
        let listener = TcpListener::bind(&options.data_listen).or_else(|error| {
            match by_ipv6(&options.data_listen, &error) {
                Some(other) => TcpListener::bind(other),
                None => Err(error),
            }
        });
        let listener = listener.map_err(listen_error)?;
        let bound = listener.local_addr().map_err(listen_error)?;
        let data_id = data_id(dir, bound);
        let (server_tls, client_tls) = match options.data_plane {
            DataPlane::Signed => (None, None),
            DataPlane::Tls => (
                Some(identity.server_config()?),
                Some(ClientTls { config: identity.client_config()?, server_name: Identity::server_name() }),
            ),
        };
        let (ticket_clock, corrupt) = (node.clock.clone(), inputs.clone());
        let descriptors = descriptors::raise();
        let server_options = PeerServerOptions {
            streams_max: 64,
            connections_max: descriptors.share(4, 64, 1024),
            strangers_max: descriptors.share(16, 16, 128),
            clock: Arc::new(move || ticket_clock.now().0 / 1_000_000),
            tls: server_tls,
            on_corrupt: Some(Arc::new(move |digest| {
                let _ = corrupt.send(Input::FoundCorrupt(digest));
            })),
            ..PeerServerOptions::default()
        };
        let key = || TicketKey::from_secret(identity.secret());
        let server = PeerServer::start(listener, store.clone(), key(), data_id, server_options)?;
        let client_options = PeerClientOptions { tls: client_tls, ..PeerClientOptions::default() };
        Ok(Peers {
            _server: server,
            client: Arc::new(PeerClient::new(key(), data_id, client_options)),
            bound,
            data_id,
            known: HashMap::new(),
            permits: HashMap::new(),
            begun: HashMap::new(),
            inputs,
        })
    }

    pub(super) fn bound(&self) -> SocketAddr {
        self.bound
    }

    pub(super) fn data_id(&self) -> u32 {
        self.data_id
    }

    /// The address at which the cache is served, as a dispatcher is told. Without a host if any address of
    /// this node works.
    pub(super) fn data_address(&self) -> String {
        match self.bound.ip().is_unspecified() {
            true => format!(":{}", self.bound.port()),
            false => self.bound.to_string(),
        }
    }

    /// Executors serve their caches at these addresses, under these names.
    pub(super) fn meet(&mut self, peers: Vec<(ExecutorId, String, u32)>) {
        for (executor, address, data_id) in peers {
            self.known.insert(executor, (address, data_id));
        }
    }

    /// Measures how long a round trip to each of these executors takes: a connection is made there and closed, a few times,
    /// and the shortest counts. A peer that does not answer is left out of the report.
    pub(super) fn probe(&self, peers: Vec<ExecutorId>) {
        let found = |peer: ExecutorId| Some((peer, self.find_address(peer)?.0));
        let found: Vec<(ExecutorId, SocketAddr)> = peers.into_iter().filter_map(found).collect();
        let inputs = self.inputs.clone();
        thread::spawn(move || {
            let connect_ns = |address: &SocketAddr| {
                let begun = Instant::now();
                TcpStream::connect_timeout(address, PROBE_MAX).ok()?;
                Some(begun.elapsed().as_nanos() as u64)
            };
            let shortest = |(peer, address): (ExecutorId, SocketAddr)| {
                Some((peer, (0..N_PROBES).map_while(|_| connect_ns(&address)).min()?))
            };
            let round_trips = found.into_iter().filter_map(shortest).collect();
            let _ = inputs.send(Input::PeersProbed { round_trips });
        });
    }

    pub(super) fn permit(&mut self, permits: Permits) {
        self.permits.extend(permits);
    }

    /// Permits name executors by the numbers of one dispatcher process, and now there is another process.
    pub(super) fn forget_permits(&mut self) {
        self.permits.clear();
    }

    /// A transfer of `object` broke off after these bytes.
    pub(super) fn keep_begun(&mut self, object: ObjectId, begun: Incoming) {
        self.begun.insert(object, begun);
    }

    pub(super) fn forget_begun(&mut self, object: ObjectId) {
        self.begun.remove(&object);
    }

    /// Forgets the first bytes of objects that no source will be asked for any more.
    pub(super) fn forget_unwanted(&mut self, core: &Executor) {
        self.begun.retain(|object, _| core.is_fetching(*object));
    }

    /// Fetches `objects` from `peer`. An object that cannot even be requested fails at once.
    ///
    /// * `awaits`: the peer may only be about to receive the objects.
    pub(super) fn fetch(
        &mut self,
        peer: ExecutorId,
        awaits: bool,
        objects: Vec<(ObjectId, Known)>,
        store: &Store,
        node: &mut NodeState,
    ) {
        let wait = if awaits { AWAIT_MAX } else { Duration::ZERO };
        let Some((address, holder_id)) = self.find_address(peer) else {
            let (kind, why) = match self.known.get(&peer) {
                None => (TransferErrorKind::NotHeld, "its address is not known".into()),
                Some((name, _)) => {
                    (TransferErrorKind::Unreachable, format!("nothing is known here of the name in {name}"))
                }
            };
            for (object, _) in objects {
                fetch_failed(node, object, peer, kind, &why);
            }
            return;
        };
        let mut streams: Vec<Vec<Wanted>> = vec![vec![]];
        for (object, known) in objects {
            let Some(permit) = self.permits.get(&(object, peer)) else {
                fetch_failed(
                    node,
                    object,
                    peer,
                    TransferErrorKind::NotHeld,
                    "there is no permission to fetch there",
                );
                continue;
            };
            let ticket = Ticket {
                digest: known.digest.0.into(),
                size: known.size_bytes,
                holder_id,
                requester_id: self.data_id,
                expires_unix_ms: permit.expires_unix_ms,
                mac: permit.mac,
            };
            let wanted = Wanted { object, ticket, begun: self.begun.remove(&object) };
            if known.size_bytes > SMALL_BYTES_MAX {
                streams.push(vec![wanted]);
            } else {
                streams[0].push(wanted);
            }
        }
        for stream in streams.into_iter().filter(|s| !s.is_empty()) {
            self.open_stream(peer, address, wait, stream, store);
        }
    }

    fn find_address(&self, peer: ExecutorId) -> Option<(SocketAddr, u32)> {
        let (address, data_id) = self.known.get(&peer)?;
        let resolved: SocketAddr = address.to_socket_addrs().ok()?.next()?;
        Some((resolved, *data_id))
    }

    /// Fetches everything in `wanted` one after the other, on a thread of its own.
    fn open_stream(
        &self,
        peer: ExecutorId,
        address: SocketAddr,
        wait: Duration,
        wanted: Vec<Wanted>,
        store: &Store,
    ) {
        let (client, store, inputs) = (self.client.clone(), store.clone(), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            fetch(&client, &store, address, wait, wanted, |object, end| {
                let (result, begun) = match end {
                    Ok(Stored { digest, size, .. }) => {
                        let digest = Digest(digest.into());
                        (Ok(Fetched { digest, size_bytes: size, version: None }), None)
                    }
                    Err(Broken { error, begun }) => (Err(data_error(&error)), begun),
                };
                let (target, source) = (Target::Cache(object), Source::Peer(peer));
                let event = NodeEvent::TransferEnded { target, source, result };
                let _ = inputs.send(match begun {
                    Some(begun) => Input::BrokenOff { object, begun, event },
                    None => Input::Event(event),
                });
            });
        });
    }
}

/// The peer was not asked for `object`, and why.
pub(super) fn fetch_failed(
    node: &mut NodeState,
    object: ObjectId,
    peer: ExecutorId,
    kind: TransferErrorKind,
    why: &str,
) {
    let error = TransferError { kind, message: why.into() };
    let (target, source) = (Target::Cache(object), Source::Peer(peer));
    node.feed(NodeEvent::TransferEnded { target, source, result: Err(error) });
}

/// A name on the data plane that almost certainly no other executor of the cluster has.
fn data_id(dir: &Path, bound: SocketAddr) -> u32 {
    let text = format!("{} {} {bound} {}", host_name(), dir.display(), clock::now().0);
    let hash = blake3::hash(text.as_bytes());
    u32::from_le_bytes(hash.as_bytes()[..4].try_into().expect("four bytes"))
}
