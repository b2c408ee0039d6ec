//! The name of immutable bytes: their BLAKE3 digest.
//!
//! Written as 64 lower-case hex digits, which is also the file name of the object in the cache. Upper case is
//! refused, so that one digest has one spelling and one file.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// BLAKE3 digest of an object's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0u8; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        f.pad(std::str::from_utf8(&text).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// The text is not 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: 64 lower-case hex digits are expected")]
pub struct DigestParseError(String);

impl FromStr for Digest {
    type Err = DigestParseError;

    fn from_str(text: &str) -> Result<Digest, DigestParseError> {
        let value = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let parse = || {
            let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
            let mut digest = [0u8; 32];
            for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
                *byte = value(pair[0])? << 4 | value(pair[1])?;
            }
            Some(Digest(digest))
        };
        parse().ok_or_else(|| DigestParseError(text.chars().take(80).collect()))
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }
}

impl From<Digest> for [u8; 32] {
    fn from(digest: Digest) -> [u8; 32] {
        digest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let digest = Digest::of(b"eyas");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        // The test vector for no bytes, from the BLAKE3 reference.
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Digest::of(b"").to_string(), empty);
    }

    #[test]
    fn one_spelling_only() {
        let digest = Digest::of(b"eyas").to_string();
        for wrong in
            ["", "af13", &digest[1..], &digest.to_uppercase(), &format!("{digest}0"), &"g".repeat(64)]
        {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
