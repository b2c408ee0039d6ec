//! The data plane: executors serve their stores to each other over TCP.
//!
//! ```text
//! client                                server (the holder)
//! magic, version, nonce_c, client id →
//!                                     ← magic, version, nonce_s, server id, proof_s
//! proof_c                            →
//!                                     ← welcome
//! request: ticket, range, wait, last? →                        (many, without waiting)
//!                                     ← status, length, bytes, verdict       (in order)
//! ```
//!
//! A proof is a keyed BLAKE3 over role, version, both nonces and both ids. So a peer without the cluster's
//! secret gets no further than the first line, and a recorded connection cannot be replayed. Magic and
//! version come first in all versions, so that an old peer gets an error message and not a closed connection.
//!
//! A request carries a [`Ticket`] from the dispatcher. The ticket is checked before the store is looked at:
//! without a valid ticket, the answer does not reveal whether the object exists. A ticket is judged by the
//! earliest moment at which its request can have arrived, so that no ticket expires in a pipeline.
//!
//! The last byte of an answer is the holder's verdict, given after the last byte of the object was sent: it
//! reports if the object changed while it was sent. The receiver hashes what it stores in any case. Behind the verdict come
//! the times in the object, where it is a directory of which the holder knows them.
//!
//! An object that is still arriving at the holder is sent on as it arrives: status `Streaming`, and the bytes
//! in pieces, each after its length, ended by an empty piece. The verdict is given when the holder has
//! verified the whole object. If the holder gives its own transfer up, the pieces end early with the verdict
//! `Broken`: the client keeps the bytes that it has, and may continue from there with another holder. After
//! the verdict `Changed` (the holder's bytes had another digest) the client discards its bytes. Bytes that
//! are passed on are unverified, so wrong bytes can travel down a chain; each receiver hashes them, and each
//! discards them. A client that has all bytes trusts its own hash rather than a `Broken`.
//!
//! A request may say how long the holder shall *wait* for an object that it neither holds nor receives, so
//! that all receivers of a chain or tree can be started at once. The wait ends when the first wanted byte is
//! there, after `wait_max` of the holder, when the client hangs up, and when the server stops. It occupies a
//! connection and its thread, but no stream. Requests of one connection are answered in order, so requests
//! behind a waiting one wait, too. Holders that wait for each other in a circle all answer `NotHeld` in the
//! end. An arrival in which no byte moves for `arrival_idle_timeout` is answered `Broken`, so that no circle
//! of half-received objects lasts either.
//!
//! A *stream* is a connection that is being served; an idle one in a pool does not count. A holder that serves
//! `streams_max` streams answers `Busy` at once instead of letting the client wait behind them.
//!
//! Encryption is the caller's choice. With TLS configurations the same bytes travel inside TLS. Without them
//! (`signed` mode), an attacker on the path can read and cut connections, but cannot start one, and a changed
//! bit is found by the digest.
//!
//! Why blocking threads: a node has a few streams, not thousands, and each is limited by copying memory.
//! Why the sender maps large objects instead of `sendfile`: measured on loopback (GB/s, 1 GiB in page cache, two
//! cores): mapped + send 2.2 to 4.3, read + write 2.4, splice 1.9 to 2.3, sendfile 1.4 to 2.0. What is passed on while it arrives
//! is another matter: its pages are in the processor's cache, and many nodes on one machine share its processors. There
//! `sendfile` saves both copies: 16 streams of 100 MB between network namespaces took their senders 0.31 s instead of 0.54 s.
//!
//! Why the receiver of a large object only receives, and a second thread hashes and writes, and why the sender's
//! queue is short: processor time and GB/s of 1 GiB over loopback, one run on two cores (a stream whose bytes
//! nobody looks at: 0.43 s, 2.6):
//!
//! | | usual queue | at most 64 KiB unsent |
//! |---|---|---|
//! | one thread | | 0.70 s, 1.6 |
//! | receive and hash; write | 0.99 s, 1.5 | 0.87 s, 1.7 |
//! | receive and write; hash | | 0.90 s, 1.6 |
//! | receive; hash and write | 0.95 s, 1.4 | 0.72 s, 2.2 |
//!
//! From four processors on, a third thread hashes. There the second one limited a stream: 1.96 GB/s beside 3.67 GB/s of a
//! stream whose bytes nobody looks at, on 16 processors. What the third thread brings was not measured yet.
//!
//! All this holds when bytes arrive faster than they can be stored. A receiver that has waited for bytes, or
//! that passes them on, stores them itself: a second thread would only add a wake-up and a transfer between
//! processors' caches for each piece. Such a receiver is woken when a piece is there (`SO_RCVLOWAT`), not for
//! each packet.
//!
//! Limiting `SO_SNDBUF` to 256 KiB instead was nearly as good, but it also limits the bytes on the wire, and
//! at 32 KiB the receiver's delayed acknowledgements held a stream to 2 MB/s.

mod client;
mod connection;
mod server;

pub use client::{ClientTls, FetchEnd, FetchItem, PeerClient, PeerClientOptions};
pub use server::{PeerServer, PeerServerOptions};

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::{Digest, Error, ErrorKind, Result};

/// Version of the protocol in this crate; peers must agree on it exactly.
pub const PROTOCOL_VERSION: u16 = 3;

/// The keys of the data plane, derived from the cluster's secret.
#[derive(Clone)]
pub struct TicketKey {
    ticket: [u8; 32],
    hello: [u8; 32],
}

impl TicketKey {
    /// Derives the keys. The secret must be one that cannot be guessed (32 random bytes), not a password.
    pub fn from_secret(secret: &[u8]) -> TicketKey {
        TicketKey {
            ticket: blake3::derive_key("eyas 2026-11-21 data plane: ticket v1", secret),
            hello: blake3::derive_key("eyas 2026-11-21 data plane: hello v1", secret),
        }
    }

    fn proof(&self, role: Role, hello: &Hello) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.hello);
        hasher.update(&[role as u8]);
        hasher.update(&PROTOCOL_VERSION.to_le_bytes());
        hasher.update(&hello.client_nonce);
        hasher.update(&hello.server_nonce);
        hasher.update(&hello.client_id.to_le_bytes());
        hasher.update(&hello.server_id.to_le_bytes());
        hasher.finalize()
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Role {
    Client = 1,
    Server = 2,
}

/// What both sides have sent before they prove that they know the secret.
struct Hello {
    client_nonce: [u8; 32],
    server_nonce: [u8; 32],
    client_id: u32,
    server_id: u32,
}

/// The dispatcher's permission for one executor to fetch one object from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    pub digest: Digest,
    /// Bytes of the object.
    pub size: u64,
    pub holder_id: u32,
    pub requester_id: u32,
    /// Milliseconds since the Unix epoch, by the clock of the dispatcher that signed the ticket. Holders
    /// learn that clock when they are welcomed, see [`PeerServerOptions::clock`].
    pub expires_unix_ms: u64,
    pub mac: [u8; 32],
}

impl Ticket {
    pub(crate) const ENCODED_BYTES: usize = 32 + 8 + 4 + 4 + 8 + 32;

    /// Signs a ticket.
    pub fn issue(
        key: &TicketKey,
        digest: Digest,
        size: u64,
        holder_id: u32,
        requester_id: u32,
        expires_unix_ms: u64,
    ) -> Ticket {
        let mut ticket = Ticket { digest, size, holder_id, requester_id, expires_unix_ms, mac: [0; 32] };
        ticket.mac = *ticket.expected_mac(key).as_bytes();
        ticket
    }

    /// Whether `requester_id` may fetch this from `holder_id` at `now_unix_ms`.
    ///
    /// Errors: `Refused`, with the reason in words.
    pub fn verify(&self, key: &TicketKey, holder_id: u32, requester_id: u32, now_unix_ms: u64) -> Result<()> {
        let why = match self.fault(key, holder_id, requester_id, now_unix_ms) {
            None => return Ok(()),
            Some(Fault::Forged) => "its signature is wrong".into(),
            Some(Fault::OtherHolder) => format!("it is for holder {}, this is {holder_id}", self.holder_id),
            Some(Fault::OtherRequester) => {
                format!("it is for requester {}, not {requester_id}", self.requester_id)
            }
            Some(Fault::Expired) => format!("it expired {} ms ago", now_unix_ms - self.expires_unix_ms),
        };
        Err(Error::new(ErrorKind::Refused, "accept a ticket", why))
    }

    /// The signature is checked first, and in constant time: nothing else is revealed about a forged ticket.
    fn fault(&self, key: &TicketKey, holder_id: u32, requester_id: u32, now_unix_ms: u64) -> Option<Fault> {
        // `blake3::Hash` compares in constant time.
        if self.expected_mac(key) != blake3::Hash::from_bytes(self.mac) {
            Some(Fault::Forged)
        } else if self.holder_id != holder_id {
            Some(Fault::OtherHolder)
        } else if self.requester_id != requester_id {
            Some(Fault::OtherRequester)
        } else if now_unix_ms >= self.expires_unix_ms {
            Some(Fault::Expired)
        } else {
            None
        }
    }

    fn expected_mac(&self, key: &TicketKey) -> blake3::Hash {
        blake3::keyed_hash(&key.ticket, &self.encode()[..Self::ENCODED_BYTES - 32])
    }

    fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        let mut put = Put { bytes: &mut bytes };
        put.put(&self.digest.0);
        put.put(&self.size.to_le_bytes());
        put.put(&self.holder_id.to_le_bytes());
        put.put(&self.requester_id.to_le_bytes());
        put.put(&self.expires_unix_ms.to_le_bytes());
        put.put(&self.mac);
        bytes
    }

    fn decode(take: &mut Take<'_>) -> Ticket {
        Ticket {
            digest: Digest(take.take()),
            size: u64::from_le_bytes(take.take()),
            holder_id: u32::from_le_bytes(take.take()),
            requester_id: u32::from_le_bytes(take.take()),
            expires_unix_ms: u64::from_le_bytes(take.take()),
            mac: take.take(),
        }
    }
}

/// Why a ticket is not valid.
enum Fault {
    Forged,
    OtherHolder,
    OtherRequester,
    Expired,
}

/// One request on the wire.
struct Request {
    ticket: Ticket,
    offset: u64,
    len: u64,
    /// How long the holder shall wait for an object that it neither holds nor receives.
    wait_ms: u32,
    /// No further request of the same fetch follows, so the holder may free the stream.
    last: bool,
}

impl Request {
    const ENCODED_BYTES: usize = Ticket::ENCODED_BYTES + 8 + 8 + 4 + 1;

    fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        let mut put = Put { bytes: &mut bytes };
        put.put(&self.ticket.encode());
        put.put(&self.offset.to_le_bytes());
        put.put(&self.len.to_le_bytes());
        put.put(&self.wait_ms.to_le_bytes());
        put.put(&[u8::from(self.last)]);
        bytes
    }

    fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Request {
        let mut take = Take { bytes };
        Request {
            ticket: Ticket::decode(&mut take),
            offset: u64::from_le_bytes(take.take()),
            len: u64::from_le_bytes(take.take()),
            wait_ms: u32::from_le_bytes(take.take()),
            last: take.take::<1>()[0] != 0,
        }
    }
}

/// First byte of an answer; its payload length follows (8 bytes, 0 unless `Sending` or `Streaming`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Answer {
    Sending = 0,
    NotHeld = 1,
    Busy = 2,
    Corrupt = 3,
    TicketForged = 4,
    TicketForOther = 5,
    TicketExpired = 6,
    BadRange = 7,
    Failed = 8,
    /// Like `Sending`, but the bytes come in pieces while the holder receives them.
    Streaming = 9,
}

const ANSWER_BYTES: usize = 9;

impl Answer {
    fn decode(byte: u8) -> Option<Answer> {
        use Answer::*;
        [
            Sending,
            NotHeld,
            Busy,
            Corrupt,
            TicketForged,
            TicketForOther,
            TicketExpired,
            BadRange,
            Failed,
            Streaming,
        ]
        .into_iter()
        .find(|answer| *answer as u8 == byte)
    }
}

/// Verdict after the payload.
const VERDICT_INTACT: u8 = 0;
const VERDICT_CHANGED: u8 = 1;
/// Intact, and the times in the object follow, which is a directory: their number (4 bytes), and 8 bytes for each.
const VERDICT_TIMED: u8 = 3;
/// More times than any directory has that is an object.
const TIMES_MAX: u32 = 1 << 24;
/// Only after a stream of pieces: the holder did not receive the whole object, or could not keep it.
const VERDICT_BROKEN: u8 = 2;

/// Before each piece of an answer that streams: its length, at most [`crate::store::BLOCK_BYTES`].
const PIECE_HEAD_BYTES: usize = 4;

struct Put<'a> {
    bytes: &'a mut [u8],
}

impl Put<'_> {
    fn put(&mut self, part: &[u8]) {
        let (head, tail) = std::mem::take(&mut self.bytes).split_at_mut(part.len());
        head.copy_from_slice(part);
        self.bytes = tail;
    }
}

struct Take<'a> {
    bytes: &'a [u8],
}

impl Take<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self.bytes.split_first_chunk().expect("the caller has the whole message");
        self.bytes = tail;
        *head
    }
}

/// Now, by this machine's clock, in milliseconds since the Unix epoch.
fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_one_holder_one_requester_and_a_time() {
        let key = TicketKey::from_secret(b"secret");
        let ticket = Ticket::issue(&key, Digest::of(b"x"), 1, 3, 4, 1000);
        let reason = |ticket: &Ticket, key: &TicketKey, holder, requester, now| {
            ticket.verify(key, holder, requester, now).expect_err("refused").context
        };
        assert!(ticket.verify(&key, 3, 4, 999).is_ok());
        assert_eq!(reason(&ticket, &key, 3, 4, 1000), "it expired 0 ms ago");
        assert_eq!(reason(&ticket, &key, 2, 4, 0), "it is for holder 3, this is 2");
        assert_eq!(reason(&ticket, &key, 3, 5, 0), "it is for requester 4, not 5");
        let other = TicketKey::from_secret(b"other");
        assert_eq!(reason(&ticket, &other, 3, 4, 0), "its signature is wrong");
    }

    #[test]
    fn every_field_of_a_ticket_is_signed() {
        let key = TicketKey::from_secret(b"secret");
        let ticket = Ticket::issue(&key, Digest::of(b"x"), 1, 3, 4, 1000);
        for at in 0..Ticket::ENCODED_BYTES {
            let mut bytes = ticket.encode();
            bytes[at] ^= 1;
            let forged = Ticket::decode(&mut Take { bytes: &bytes });
            let error = forged.verify(&key, 3, 4, 0).expect_err("refused");
            assert_eq!(error.context, "its signature is wrong", "byte {at}");
        }
    }

    #[test]
    fn messages_survive_the_wire() {
        let key = TicketKey::from_secret(b"secret");
        let ticket = Ticket::issue(&key, Digest::of(b"x"), 7, 3, 4, 1000);
        let back = Request::decode(&Request { ticket, offset: 2, len: 5, wait_ms: 3, last: true }.encode());
        assert_eq!((back.ticket, back.offset, back.len, back.wait_ms, back.last), (ticket, 2, 5, 3, true));
        for byte in 0..=u8::MAX {
            assert_eq!(Answer::decode(byte).map(|a| a as u8), (byte <= 9).then_some(byte));
        }
    }
}
