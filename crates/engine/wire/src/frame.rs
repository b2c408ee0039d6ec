//! Frames: `length u32 LE | postcard body`, after a fixed preamble that can be read by every version.
//!
//! Both sides send the preamble first inside TLS, so that an older or newer peer gets an error message
//! instead of garbage.

use serde::{Serialize, de::DeserializeOwned};

/// Changes whenever a message changes its meaning or layout.
pub const PROTOCOL: u16 = 30;

const MAGIC: [u8; 4] = *b"EYAS";
pub const PREAMBLE_BYTES: usize = 8;
/// Larger frames are refused unread: no member sends them, and their length would be allocated as memory.
pub const FRAME_BYTES_MAX: usize = 256 << 20;

#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub enum FrameError {
    #[error("the other side does not speak eyas (its first bytes are {0:02x?})")]
    NotEyas([u8; 4]),
    #[error(
        "the other side speaks protocol version {theirs}, this eyas speaks {PROTOCOL}; \
         install the same version of eyas on both"
    )]
    Version { theirs: u16 },
    #[error("a frame of {0} bytes is larger than the {FRAME_BYTES_MAX} bytes allowed")]
    TooLarge(usize),
    #[error("a frame cannot be read: {0}")]
    Garbled(String),
}

/// The eight bytes that open a connection in both directions.
pub fn preamble() -> [u8; PREAMBLE_BYTES] {
    preamble_of(PROTOCOL)
}

/// A preamble as another version would send it; tests use it to imitate an old peer.
pub fn preamble_of(protocol: u16) -> [u8; PREAMBLE_BYTES] {
    let mut p = [0; PREAMBLE_BYTES];
    p[..4].copy_from_slice(&MAGIC);
    p[4..6].copy_from_slice(&protocol.to_le_bytes());
    p
}

/// Checks the preamble of the other side.
pub fn check_preamble(p: &[u8; PREAMBLE_BYTES]) -> Result<(), FrameError> {
    let magic: [u8; 4] = p[..4].try_into().expect("four bytes");
    if magic != MAGIC {
        return Err(FrameError::NotEyas(magic));
    }
    match u16::from_le_bytes([p[4], p[5]]) {
        PROTOCOL => Ok(()),
        theirs => Err(FrameError::Version { theirs }),
    }
}

/// Appends `message` as one frame.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    encode_with(out, |out| {
        append(message, out).expect("messages hold nothing that postcard cannot write");
    });
}

/// Appends as one frame what `write` appends.
pub fn encode_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let n = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&n.to_le_bytes());
}

/// Appends the bytes of `value` in postcard's format. `Err`: the value has a part that this format lacks.
pub fn append<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> postcard::Result<()> {
    postcard::serialize_with_flavor(value, Tail(out))
}

/// The end of a vector, as a place for postcard to write to.
struct Tail<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Tail<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        match data {
            // Most of what postcard writes is a small number: one byte.
            [byte] => self.0.push(*byte),
            data => self.0.extend_from_slice(data),
        }
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// The body length that a header announces.
pub fn body_len(header: [u8; 4]) -> Result<usize, FrameError> {
    let n = u32::from_le_bytes(header) as usize;
    if n > FRAME_BYTES_MAX { Err(FrameError::TooLarge(n)) } else { Ok(n) }
}

/// Reads one frame's body.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(FrameError::Garbled(format!("{} bytes too many", rest.len()))),
        Err(e) => Err(FrameError::Garbled(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_peer_and_a_stranger_get_a_clear_refusal() {
        assert_eq!(check_preamble(&preamble()), Ok(()));
        let old = check_preamble(&preamble_of(0)).unwrap_err();
        let words = format!("protocol version 0, this eyas speaks {PROTOCOL}");
        assert!(old.to_string().contains(&words), "{old}");
        assert!(matches!(check_preamble(b"GET / HT"), Err(FrameError::NotEyas(_))));
    }

    #[test]
    fn frames_round_trip_and_garbage_is_refused() {
        let mut out = vec![];
        encode(&("hello".to_string(), 7u32), &mut out);
        encode(&("again".to_string(), 8u32), &mut out);
        let n = body_len(out[..4].try_into().unwrap()).unwrap();
        let (text, number): (String, u32) = decode(&out[4..4 + n]).unwrap();
        assert_eq!((text.as_str(), number), ("hello", 7));
        assert!(decode::<(String, u32)>(&out[4..4 + n - 1]).is_err());
        assert!(decode::<(String, u32)>(&out[4..]).is_err(), "two frames are not one");
        assert_eq!(body_len([0xff; 4]), Err(FrameError::TooLarge(u32::MAX as usize)));
    }
}
