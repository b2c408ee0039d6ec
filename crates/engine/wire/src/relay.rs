//! What a relay and its dispatcher say: the frames of many executors, on one connection.
//!
//! After [`crate::message::Hello::Relay`] and its welcome each frame has the body `number u32 LE | kind u8 | rest`. The relay
//! numbers the connections of executors, from 1 on, and gives no number again on the same connection to the dispatcher. The
//! rest of a frame that is passed on is its body, as it came.

use crate::frame::{self, FrameError};
use serde::Serialize;
use std::net::SocketAddr;

/// The number in frames that are about the relay itself.
pub const RELAY_ITSELF: u32 = 0;
/// `number` and `kind`.
const HEAD_BYTES: usize = 5;

/// What is said of the connection with a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed<'a> {
    /// From the relay: an executor has connected from this address. `hello`: the body of its first frame.
    Opened { peer: SocketAddr, hello: &'a [u8] },
    /// The body of a frame, on its way to the executor or to the dispatcher.
    Frame(&'a [u8]),
    /// From the dispatcher: the connection is to be ended, once what was said before has left. From the relay, once for each
    /// connection: it has ended.
    Closed,
    /// Of the relay itself: it is there. The dispatcher answers with the same.
    Alive,
    /// From the dispatcher, of the relay itself: the dispatcher ends, and so does the relay.
    Ends,
}

/// Appends this as one frame.
pub fn encode(number: u32, passed: Passed<'_>, out: &mut Vec<u8>) {
    let (kind, rest) = match passed {
        Passed::Opened { hello, .. } => (0, hello),
        Passed::Frame(body) => (1, body),
        Passed::Closed => (2, &[][..]),
        Passed::Alive => (3, &[][..]),
        Passed::Ends => (4, &[][..]),
    };
    as_frame(number, kind, out, |out| {
        if let Passed::Opened { peer, .. } = passed {
            frame::append(&peer, out).expect("an address can be written");
        }
        out.extend_from_slice(rest);
    });
}

/// Appends [`Passed::Frame`] of a message whose body is not written yet.
pub fn encode_message<T: Serialize>(number: u32, message: &T, out: &mut Vec<u8>) {
    as_frame(number, 1, out, |out| {
        frame::append(message, out).expect("messages hold nothing that postcard cannot write");
    });
}

fn as_frame(number: u32, kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    frame::encode_with(out, |out| {
        out.extend_from_slice(&number.to_le_bytes());
        out.push(kind);
        write(out);
    });
}

/// Whether a frame of an executor, with this body, says nothing but how the executor is. It begins with the number of
/// messages and the kind of the first.
pub fn is_status(body: &[u8]) -> bool {
    body.starts_with(&[1, 1])
}

/// Reads the body of one frame.
pub fn decode(body: &[u8]) -> Result<(u32, Passed<'_>), FrameError> {
    let garbled = |why: &str| FrameError::Garbled(format!("what a relay passes on {why}"));
    let (head, rest) = body.split_at_checked(HEAD_BYTES).ok_or_else(|| garbled("has no number"))?;
    let number = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let passed = match (head[4], rest) {
        (0, rest) => {
            let (peer, hello) = postcard::take_from_bytes(rest).map_err(|_| garbled("has no address"))?;
            Passed::Opened { peer, hello }
        }
        (1, body) => Passed::Frame(body),
        (2, []) => Passed::Closed,
        (3, []) => Passed::Alive,
        (4, []) => Passed::Ends,
        _ => return Err(garbled("is of no kind that this version knows")),
    };
    Ok((number, passed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FromExecutor;
    use eyas_core::event::NodeMessage;
    use eyas_terms::ObjectId;

    fn body(frames: &[u8]) -> &[u8] {
        let n = frame::body_len(frames[..4].try_into().unwrap()).unwrap();
        assert_eq!(frames.len(), 4 + n);
        &frames[4..]
    }

    #[test]
    fn what_is_passed_on_is_read_as_it_was_written() {
        let peer = "[::1]:7".parse().unwrap();
        for passed in [
            Passed::Opened { peer, hello: b"hello" },
            Passed::Frame(b"abc"),
            Passed::Frame(b""),
            Passed::Closed,
            Passed::Alive,
            Passed::Ends,
        ] {
            let mut out = vec![];
            encode(70_000, passed, &mut out);
            assert_eq!(decode(body(&out)).unwrap(), (70_000, passed));
        }
        let (mut whole, mut inner) = (vec![], vec![]);
        encode_message(7, &("text", 9_u64), &mut whole);
        frame::append(&("text", 9_u64), &mut inner).unwrap();
        assert_eq!(decode(body(&whole)).unwrap(), (7, Passed::Frame(&inner)));
    }

    #[test]
    fn a_status_is_known_by_its_first_bytes() {
        let body = |batch: Vec<FromExecutor>| {
            let mut body = vec![];
            frame::append(&batch, &mut body).unwrap();
            body
        };
        let status = || FromExecutor::Status(Box::default());
        let bye = || FromExecutor::Bye { reason: "x".into() };
        assert!(is_status(&body(vec![status()])));
        assert!(
            !is_status(&body(vec![bye()])) && !is_status(&body(vec![status(), bye()])) && !is_status(&[])
        );
        assert!(!is_status(&body(vec![FromExecutor::Node(NodeMessage::ReplicaDropped(ObjectId(1)))])));
    }

    #[test]
    fn garbage_is_refused() {
        for bad in [&[][..], &[1, 0, 0, 0], &[1, 0, 0, 0, 9], &[1, 0, 0, 0, 2, 0], &[1, 0, 0, 0, 0, 77]] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }
}
