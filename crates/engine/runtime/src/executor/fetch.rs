//! Fetching objects from one peer, on a thread of its own.
//!
//! In: the objects wanted, with the bytes that an earlier source sent before it broke off. Out: each object
//! stored, or the reason why not and the bytes that have arrived so far.
//!
//! If an object's parts came from several peers and its digest is wrong, the last peer need not be at fault.
//! So the object is requested again from its beginning.
//!
//! Not here: which peer to ask, and which to ask next.

use eyas_data::{Error, ErrorKind, FetchEnd, FetchItem, Incoming, PeerClient, Store, Stored, Ticket};
use eyas_terms::ObjectId;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) struct Wanted {
    pub object: ObjectId,
    pub ticket: Ticket,
    /// The object's first bytes, from another source.
    pub begun: Option<Incoming>,
}

/// Why an object did not arrive, and its first bytes, if they can be used by the next source.
pub(super) struct Broken {
    pub error: Error,
    pub begun: Option<Incoming>,
}

/// Fetches all of `wanted` in one stream; see [`PeerClient::fetch_waiting`]. `on_end` is called once for each.
pub(super) fn fetch(
    client: &PeerClient,
    store: &Store,
    holder: SocketAddr,
    wait: Duration,
    mut wanted: Vec<Wanted>,
    mut on_end: impl FnMut(ObjectId, Result<Stored, Broken>),
) {
    while !wanted.is_empty() {
        let (mut asked, mut items) = (vec![], vec![]);
        for Wanted { object, ticket, begun } in std::mem::take(&mut wanted) {
            let is_resumed = begun.is_some();
            match begun.map_or_else(|| store.reserve(ticket.size).map(|space| store.begin(space)), Ok) {
                Ok(into) => {
                    asked.push((object, ticket, is_resumed));
                    items.push(FetchItem { ticket, into });
                }
                Err(error) => on_end(object, Err(Broken { error, begun: None })),
            }
        }
        client.fetch_waiting(holder, items, wait, |index, end| {
            let (object, ticket, is_resumed) = asked[index];
            match end {
                FetchEnd::Stored(stored) => on_end(object, Ok(stored)),
                FetchEnd::Failed { error, .. }
                    if is_resumed && matches!(error.kind, ErrorKind::DigestMismatch { .. }) =>
                {
                    wanted.push(Wanted { object, ticket, begun: None });
                }
                FetchEnd::Failed { error, partial } => {
                    let begun = partial.filter(|begun| begun.written() > 0);
                    on_end(object, Err(Broken { error, begun }));
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_data::{Digest, PeerClientOptions, PeerServer, PeerServerOptions, TicketKey};
    use std::net::TcpListener;
    use tempfile::TempDir;

    const REQUESTER: u32 = 9;
    const SIZE: usize = 3_000_000;

    fn key() -> TicketKey {
        TicketKey::from_secret(b"a secret for tests only")
    }

    struct Node {
        store: Store,
        _dir: TempDir,
    }

    impl Node {
        fn new() -> Node {
            let dir = TempDir::new().unwrap();
            Node { store: Store::open(dir.path(), 2 * SIZE as u64).unwrap(), _dir: dir }
        }

        fn begin(&self, bytes: &[u8]) -> Incoming {
            let mut incoming = self.store.begin(self.store.reserve(SIZE as u64).unwrap());
            incoming.append(bytes).unwrap();
            incoming
        }

        fn serve(&self, id: u32) -> PeerServer {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            PeerServer::start(listener, self.store.clone(), key(), id, PeerServerOptions::default()).unwrap()
        }
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|i| (i * 31 % 251) as u8).collect()
    }

    /// One object from one holder.
    fn fetch_one(
        server: &PeerServer,
        holder_id: u32,
        digest: Digest,
        node: &Node,
        begun: Option<Incoming>,
    ) -> Result<Stored, Box<Broken>> {
        let client = PeerClient::new(key(), REQUESTER, PeerClientOptions::default());
        let ticket = Ticket::issue(&key(), digest, SIZE as u64, holder_id, REQUESTER, u64::MAX);
        let wanted = vec![Wanted { object: ObjectId(0), ticket, begun }];
        let mut ends = vec![];
        fetch(&client, &node.store, server.address(), Duration::ZERO, wanted, |_, end| ends.push(end));
        assert_eq!(ends.len(), 1);
        ends.remove(0).map_err(Box::new)
    }

    #[test]
    fn a_transfer_that_a_broken_source_began_is_completed_by_the_next() {
        let content = content();
        let (broken, whole, node) = (Node::new(), Node::new(), Node::new());
        let digest = whole.begin(&content).finish(None).unwrap().digest;
        // Its own source gives up half way, so it does, too.
        let mut half = broken.begin(&content[..SIZE / 2]);
        half.announce(digest, SIZE as u64);
        let (first, second) = (broken.serve(1), whole.serve(2));
        let first_end = std::thread::scope(|scope| {
            let fetching = scope.spawn(|| fetch_one(&first, 1, digest, &node, None));
            while node.store.usage().reserved_bytes == 0 {
                std::thread::yield_now();
            }
            drop(half);
            fetching.join().unwrap()
        });
        let Err(broken_off) = first_end else { panic!("there was only half of it") };
        // Whether the first half, or nothing, came before the end: the rest comes from the second.
        let begun = broken_off.begun.unwrap_or_else(|| node.begin(&content[..1]));
        assert!(begun.written() <= SIZE as u64 / 2);
        let stored = fetch_one(&second, 2, digest, &node, Some(begun)).map_err(|b| b.error).unwrap();
        assert_eq!((stored.digest, stored.size), (digest, SIZE as u64));
        assert_eq!(node.store.usage().reserved_bytes, 0);
    }

    #[test]
    fn a_source_of_the_rest_is_not_blamed_for_wrong_first_bytes() {
        let content = content();
        let (whole, node) = (Node::new(), Node::new());
        let digest = whole.begin(&content).finish(None).unwrap().digest;
        let server = whole.serve(2);
        let wrong = node.begin(&[7; 1000]);
        let stored = fetch_one(&server, 2, digest, &node, Some(wrong)).map_err(|b| b.error).unwrap();
        assert_eq!(stored.digest, digest);
        assert_eq!(node.store.usage().reserved_bytes, 0);
    }
}
