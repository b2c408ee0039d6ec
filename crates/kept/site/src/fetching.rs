//! A store that copies objects from another one, by the permit of that one.
//!
//! All objects are asked for at once, and come one after the other. Each is hashed while it is written, and kept only with the bytes
//! that its digest says. What came whole before a connection broke is kept.

use crate::protocol::{Ask, QUEUED_BYTES, SILENCE_MAX, Tell};
use crate::remote::in_words;
use crate::store::{Answering, Stopped, Store, TakenRoom};
use bytes::Bytes;
use eyas_catalog::{Condition, Holding};
use eyas_data::Digest;
use eyas_net::FrameReader;
use eyas_wire::identity::Identity;
use std::io::{self, Read};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::time::timeout;

impl Answering<'_> {
    /// Copies objects from the store at an address, and says of each that came what it is.
    pub(crate) fn fetch(&mut self, address: &str, key: &[u8], digests: &[Digest]) -> Result<(), Stopped> {
        let store = self.store();
        let identity: Identity =
            serde_json::from_slice(key).map_err(|error| format!("the permit is damaged: {error}"))?;
        let handle = self.handle().clone();
        let connected = handle.block_on(eyas_net::connect(address, &identity)).map_err(in_words);
        let (reader, writer) =
            connected.map_err(|reason| format!("it does not reach {address}: {reason}"))?;
        let mut batch = store.folder.batch()?;
        let mut taken = TakenRoom::new(store);
        let mut coming = Coming {
            handle,
            reader,
            store,
            taken: &mut taken,
            piece: Bytes::new(),
            end: None,
            waits_since: None,
        };
        let mut came = vec![];
        let mut asked = digests.iter();
        let mut n_asked = 0;
        for (n, digest) in digests.iter().enumerate() {
            // So that small objects do not wait for each other.
            while n_asked < n + ASKED_AHEAD
                && let Some(next) = asked.next()
            {
                writer.send(&Ask::Copy(*next));
                n_asked += 1;
            }
            coming.begin();
            let added = batch.add(&mut coming);
            let end = coming.end.take();
            match (added, end) {
                (Ok((found, _)), Some(End::Whole)) if found == *digest => {
                    coming.taken.complete(*digest);
                    came.push((n, Condition::Good));
                }
                (Ok(_), Some(End::Whole)) => {
                    batch.undo().map_err(|error| error.to_string())?;
                    coming.taken.undo();
                    came.push((n, Condition::Bad));
                }
                (Err(_), Some(End::Missing)) => {
                    batch.undo().map_err(|error| error.to_string())?;
                    coming.taken.undo();
                    came.push((n, Condition::Missing));
                }
                // The other store is gone, or says that it cannot go on.
                (Err(_), Some(End::Broken)) => {
                    batch.undo().map_err(|error| error.to_string())?;
                    coming.taken.undo();
                    break;
                }
                // This folder cannot be written, or there is no room for more.
                (Err(error), _) => return Err(Stopped::Failed(error.to_string())),
                (Ok(_), _) => return Err(Stopped::Failed("an object ended without its end".into())),
            }
        }
        batch.keep().map_err(|error| error.to_string())?;
        store.count_held(taken.n_bytes());
        for (n, condition) in came {
            let n = u32::try_from(n).expect("a request has fewer");
            self.send(&Tell::Found(n, condition.into()))?;
        }
        Ok(())
    }
}

/// Objects that are asked for before the one that comes is complete.
const ASKED_AHEAD: usize = 64;
const _: () = assert!(ASKED_AHEAD * 100 < QUEUED_BYTES, "they fit into what a sender queues");

/// How an object ended.
#[derive(Debug, Clone, Copy)]
enum End {
    Whole,
    /// The other store has not got it.
    Missing,
    Broken,
}

/// The bytes of the object that comes.
struct Coming<'a, 'b> {
    handle: Handle,
    reader: FrameReader,
    store: &'b Store,
    taken: &'a mut TakenRoom<'b>,
    piece: Bytes,
    end: Option<End>,
    /// Since when the other store has no place for this one, which keeps a place of its own meanwhile.
    waits_since: Option<Instant>,
}

impl Coming<'_, '_> {
    fn begin(&mut self) {
        self.taken.begin();
        self.piece.clear();
        self.end = None;
    }

    /// The next piece; `None` at the end.
    fn next(&mut self) -> Option<Bytes> {
        loop {
            let next = self.handle.block_on(async { timeout(SILENCE_MAX, self.reader.next::<Tell>()).await });
            let is_waiting = matches!(next, Ok(Ok(Some(Tell::Waits | Tell::Beat))));
            self.waits_since = match next {
                Ok(Ok(Some(Tell::Waits))) => Some(Instant::now()),
                _ => self.waits_since.filter(|_| is_waiting),
            };
            let is_too_long = self.waits_since.is_some_and(|since| since.elapsed() >= SILENCE_MAX);
            self.end = match next {
                Ok(Ok(Some(Tell::Beat | Tell::Waits))) if !is_too_long => continue,
                Ok(Ok(Some(Tell::Piece(piece)))) => return Some(piece),
                Ok(Ok(Some(Tell::Done))) => Some(End::Whole),
                Ok(Ok(Some(Tell::Missing))) => Some(End::Missing),
                _ => Some(End::Broken),
            };
            return None;
        }
    }
}

impl Read for Coming<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.end {
                None => {}
                Some(End::Whole) => return Ok(0),
                Some(_) => return Err(io::Error::other("the object did not come")),
            }
            if let Some(piece) = self.next() {
                self.store.slow_down(piece.len());
                self.taken.take(piece.len() as u64)?;
                self.piece = piece;
            }
        }
        let n = into.len().min(self.piece.len());
        into[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}
