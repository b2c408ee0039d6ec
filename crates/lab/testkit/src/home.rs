//! Home storage in a simulated world: locations, and every version that each ever had.
//!
//! Bytes are modelled by their digest. A digest is made from what the bytes came from, so equal digests
//! mean equal bytes here too.

use eyas_terms::{Digest, HomeVersion, Timestamp};
use std::collections::BTreeMap;

/// One version of one location, current from `since` until the next one.
#[derive(Clone, PartialEq, Debug)]
pub struct Content {
    pub since: Timestamp,
    pub digest: Digest,
    pub version: HomeVersion,
}

/// See the module.
#[derive(Default)]
pub struct Home {
    contents: BTreeMap<String, Vec<Content>>,
    n_writes: u64,
    /// Equal bytes are one version, as in stores that name versions by what is in them; else each write makes another one.
    names_bytes: bool,
    /// While this is set, home answers no requests.
    pub is_down: bool,
    /// The present second, and the requests that home has taken in it.
    taken: (u64, u64),
}

impl Home {
    /// See the field.
    pub fn new(names_bytes: bool) -> Home {
        Home { names_bytes, ..Home::default() }
    }

    /// Replaces what is at `location`; gives the new version.
    pub fn write(&mut self, now: Timestamp, location: &str, digest: Digest, size_bytes: u64) -> HomeVersion {
        self.n_writes += 1;
        let stamp = if self.names_bytes { digest.to_string() } else { format!("w{}", self.n_writes) };
        let version = HomeVersion { size_bytes, stamp: stamp.into() };
        let content = Content { since: now, digest, version: version.clone() };
        self.contents.entry(location.into()).or_default().push(content);
        version
    }

    /// Whether home takes one more request now, of at most so many in a second.
    pub fn takes(&mut self, now: Timestamp, max: u64) -> bool {
        let second = now.0 / 1_000_000_000;
        if self.taken.0 != second {
            self.taken = (second, 0);
        }
        let takes = self.taken.1 < max;
        self.taken.1 += u64::from(takes);
        takes
    }

    /// The present version.
    pub fn find(&self, location: &str) -> Option<&Content> {
        self.contents.get(location)?.last()
    }

    /// All versions that were ever there, the present one last.
    pub fn all(&self, location: &str) -> &[Content] {
        self.contents.get(location).map_or(&[], Vec::as_slice)
    }

    /// Whether `digest` was at `location` at any moment from `since` until now.
    pub fn had(&self, location: &str, digest: Digest, since: Timestamp) -> bool {
        let Some(all) = self.contents.get(location) else { return false };
        let ends = all.iter().skip(1).map(|c| c.since).chain([Timestamp(u64::MAX)]);
        all.iter().zip(ends).any(|(content, end)| content.digest == digest && end >= since)
    }

    pub fn locations(&self) -> impl Iterator<Item = &str> {
        self.contents.keys().map(String::as_str)
    }
}

/// The digest of bytes that came from `what`: no real hash of bytes, but equally distinct.
pub fn digest_of(what: &str) -> Digest {
    let mut digest = [0; 32];
    for (i, part) in digest.chunks_mut(8).enumerate() {
        part.copy_from_slice(&hash(i as u64, what.as_bytes()).to_le_bytes());
    }
    Digest(digest)
}

/// FNV-1a with a final mix, the same on every machine.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let h = bytes.iter().fold(start, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
