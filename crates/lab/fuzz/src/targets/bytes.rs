//! What comes in bytes: frames of every peer, tickets, what slot processes and executors say, records of the journal.

use crate::{Rng, Target, arbitrary};
use eyas_data::{Digest, Ticket, TicketKey};
use eyas_runner::protocol::Decoder;
use eyas_runner::{SlotCommand, SlotReport};
use eyas_session::dispatcher::Record;
use eyas_wire::frame;
use eyas_wire::message::*;
use eyas_wire::relay::{self, Passed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// What can be in a frame; the first byte of an input says which is read.
const KINDS: u8 = 9;

pub struct Frames;

fn frame_of<T: DeserializeOwned + Serialize>(kind: u8, rng: &mut Rng) -> Option<Vec<u8>> {
    let mut bytes = vec![kind];
    frame::encode(&arbitrary::value::<T>(rng, false)?, &mut bytes);
    Some(bytes)
}

fn relayed(kind: u8, rng: &mut Rng) -> Vec<u8> {
    let (mut bytes, inner) = (vec![kind], frame::preamble());
    let peer = ([127, 0, 0, 1], rng.below(1 << 16) as u16).into();
    let all = [Passed::Opened { peer, hello: &inner }, Passed::Frame(&inner), Passed::Closed, Passed::Alive];
    relay::encode(rng.below(1 << 20) as u32, all[rng.below(all.len())], &mut bytes);
    bytes
}

/// What can be read can be written, and reads as the same.
fn read_as<T: DeserializeOwned + Serialize + Debug>(body: &[u8]) -> Option<T> {
    let message: T = frame::decode(body).ok()?;
    let mut out = vec![];
    frame::encode(&message, &mut out);
    // NaN is no equal of itself, so bytes are compared.
    let again: T = frame::decode(&out[4..]).expect("what was written is read");
    let mut twice = vec![];
    frame::encode(&again, &mut twice);
    assert!(out == twice, "a message reads as another: {message:?}");
    Some(message)
}

impl Target for Frames {
    fn name(&self) -> &'static str {
        "frames"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let kind = rng.below(usize::from(KINDS)) as u8;
        let frame = match kind {
            0 => frame_of::<Hello>(kind, rng),
            1 => frame_of::<Welcome>(kind, rng),
            2 => frame_of::<Vec<ToExecutor>>(kind, rng),
            3 => frame_of::<Vec<FromExecutor>>(kind, rng),
            4 => frame_of::<Vec<FromMember>>(kind, rng),
            5 => frame_of::<Request>(kind, rng),
            6 => frame_of::<Reply>(kind, rng),
            8 => Some(relayed(kind, rng)),
            _ => None,
        };
        frame.unwrap_or_else(|| [&[7], &frame::preamble()[..]].concat())
    }

    fn run(&mut self, bytes: &[u8]) {
        let Some((&kind, bytes)) = bytes.split_first() else { return };
        let Some((header, body)) = bytes.split_first_chunk::<4>() else { return };
        if kind % KINDS == 7 {
            if let Some(preamble) = bytes.first_chunk()
                && let Err(error) = frame::check_preamble(preamble)
            {
                super::texts::check_message(&error.to_string());
            }
            return;
        }
        // What is announced may be more than there is, which the reader of the connection sees to.
        let Ok(n_bytes) = frame::body_len(*header) else { return };
        let body = &body[..n_bytes.min(body.len())];
        match kind % KINDS {
            0 => drop(read_as::<Hello>(body)),
            1 => drop(read_as::<Welcome>(body)),
            2 => drop(read_as::<Vec<ToExecutor>>(body)),
            3 => drop(read_as::<Vec<FromExecutor>>(body)),
            4 => drop(read_as::<Vec<FromMember>>(body)),
            5 => {
                if let Some(Request { body: RequestBody::AddArray { array, .. }, .. }) = read_as(body) {
                    check_array(&array);
                }
            }
            6 => drop(read_as::<Reply>(body)),
            _ => {
                if let Ok((number, passed)) = relay::decode(body) {
                    let mut out = vec![];
                    relay::encode(number, passed, &mut out);
                    assert_eq!(relay::decode(&out[4..]).ok(), Some((number, passed)), "it reads as another");
                }
            }
        }
    }
}

/// What passes the check that a dispatcher makes can be expanded.
fn check_array(array: &eyas_terms::array::TaskArray) {
    match array.check() {
        Ok(()) => {
            let n = array.n_tasks;
            for i in (0..n.min(100)).chain(n.saturating_sub(3)..n) {
                let _ = array.expand(i);
            }
        }
        Err(why) => super::texts::check_message(&why),
    }
}

/// A ticket that was changed in any bit opens nothing.
pub struct Tickets {
    key: TicketKey,
}

impl Tickets {
    pub fn new() -> Tickets {
        Tickets { key: TicketKey::from_secret(b"the cluster's secret") }
    }

    fn good(&self) -> Ticket {
        Ticket::issue(&self.key, Digest([7; 32]), 1000, 3, 4, 5000)
    }
}

impl Target for Tickets {
    fn name(&self) -> &'static str {
        "tickets"
    }

    fn make(&self, _: &mut Rng) -> Vec<u8> {
        postcard::to_stdvec(&self.good()).expect("a ticket is bytes")
    }

    fn run(&mut self, bytes: &[u8]) {
        let Ok(ticket) = postcard::from_bytes::<Ticket>(bytes) else { return };
        for (holder, requester, now) in [(3, 4, 4999), (3, 4, 5000), (4, 4, 0), (3, 3, 0), (3, 4, u64::MAX)] {
            match ticket.verify(&self.key, holder, requester, now) {
                Ok(()) => {
                    assert!(ticket == self.good() && (holder, requester, now) == (3, 4, 4999), "{ticket:?}");
                }
                Err(error) => super::texts::check_message(&error.to_string()),
            }
        }
    }
}

/// Both directions between an executor and a slot process.
pub struct Slots;

impl Target for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = vec![rng.below(2) as u8];
        for _ in 0..1 + rng.below(3) {
            let done = match bytes[0] {
                0 => arbitrary::value::<SlotCommand>(rng, false)
                    .map(|message| eyas_runner::protocol::encode_frame(&message, &mut bytes)),
                _ => arbitrary::value::<SlotReport>(rng, false)
                    .map(|message| eyas_runner::protocol::encode_frame(&message, &mut bytes)),
            };
            drop(done);
        }
        bytes
    }

    fn run(&mut self, bytes: &[u8]) {
        let Some((&kind, bytes)) = bytes.split_first() else { return };
        let mut reader = Decoder::new();
        for piece in bytes.chunks(bytes.len().div_ceil(3).max(1)) {
            reader.extend(piece);
            loop {
                let is_there = match kind % 2 {
                    0 => reader.next_message::<SlotCommand>().map(|m| m.is_some()),
                    _ => reader.next_message::<SlotReport>().map(|m| m.is_some()),
                };
                match is_there {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return super::texts::check_message(&error.to_string()),
                }
            }
        }
    }
}

/// Records of the dispatcher's journal.
pub struct Records;

impl Target for Records {
    fn name(&self) -> &'static str {
        "records"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        arbitrary::value::<Record<'static>>(rng, false).map_or_else(Vec::new, |record| record.to_bytes())
    }

    fn run(&mut self, bytes: &[u8]) {
        match Record::from_bytes(bytes) {
            Ok(record) => {
                let again = Record::from_bytes(&record.to_bytes()).expect("what was written is read");
                assert!(record.to_bytes() == again.to_bytes(), "a record reads as another");
                if let Record::ArrayAdded { array, .. } = &record {
                    check_array(array);
                }
            }
            Err(why) => super::texts::check_message(&why),
        }
    }
}
