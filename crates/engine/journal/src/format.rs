//! Bytes of a journal file: header, record frames, batch markers, and a reader for them.
//!
//! ```text
//! file    = header frame*
//! header  = "eyasjrnl" | version u32 | kind u32 | seq u64 | records_n u64 | crc u32 | 0 u32    (40 bytes)
//! frame   = len u32 | crc u32 | body                                                        a record
//!         | 0xFFFF_FFFF u32 | crc u32 | own_offset u64 | synced_bytes u64 | next_seq u64      a batch marker
//! ```
//!
//! All numbers are little-endian. `kind` is 1 for a segment (`seq` is the number of its first record) and 2
//! for a snapshot (`seq` is the last record that it stands for, `records_n` the number of records in it). A
//! frame's CRC-32C is over `len`, body and the implied sequence number, in this order: a run of zeros is no
//! record, and a record that is displaced, doubled or missing does not fit. Magic and version keep their
//! place in every future version, so that a file of any version can be refused by its name.
//!
//! A batch begins with a marker, which says how much of this file was durable before the batch was written.
//! The marker distinguishes a torn write from damage. A bad frame *before* the `synced_bytes` of some later
//! marker had been acknowledged and is damage. Any other bad frame was never acknowledged and is cut off.
//! Looking only for valid records behind the bad frame would not do, because after a power loss the later
//! pages of one unfinished batch may be there and the earlier ones not.

use crate::crc::Crc;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// Format version that this code writes and reads.
pub const FORMAT_VERSION: u32 = 1;
/// Largest body of a record, in bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;

pub(crate) const HEADER_BYTES: u64 = 40;
pub(crate) const FRAME_BYTES: usize = 8;
pub(crate) const MARKER_BYTES: usize = FRAME_BYTES + 24;
const MAGIC: &[u8; 8] = b"eyasjrnl";
const MARKER_LEN: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Segment = 1,
    Snapshot = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub seq: u64,
    /// The number of records of a snapshot; 0 in a segment.
    pub records_n: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    NotAJournal,
    Version(u32),
    Damaged(&'static str),
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut out = [0; HEADER_BYTES as usize];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.kind as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.seq.to_le_bytes());
        out[24..32].copy_from_slice(&self.records_n.to_le_bytes());
        let crc = Crc::new().update(&out[..32]).finish();
        out[32..36].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Header, HeaderFault> {
        if &bytes[..8] != MAGIC {
            return Err(HeaderFault::NotAJournal);
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(HeaderFault::Version(version));
        }
        if Crc::new().update(&bytes[..32]).finish() != u32_at(bytes, 32) {
            return Err(HeaderFault::Damaged("the checksum of the file header does not fit"));
        }
        let kind = match u32_at(bytes, 12) {
            1 => Kind::Segment,
            2 => Kind::Snapshot,
            _ => return Err(HeaderFault::Damaged("the file header names an unknown kind")),
        };
        Ok(Header { kind, seq: u64_at(bytes, 16), records_n: u64_at(bytes, 24) })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The checksum of a record without the sequence number, so that the long part can be computed before
/// taking the lock that gives out the number.
pub(crate) fn begin_crc(body: &[u8]) -> Crc {
    let len = u32::try_from(body.len()).expect("caller checked BODY_BYTES_MAX");
    Crc::new().update(&len.to_le_bytes()).update(body)
}

/// Appends the frame of one record. `crc` comes from [`begin_crc`] of the same body.
pub(crate) fn push_record(out: &mut Vec<u8>, crc: Crc, seq: u64, body: &[u8]) {
    let crc = crc.update(&seq.to_le_bytes()).finish();
    out.reserve(FRAME_BYTES + body.len());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
}

/// The content of a batch marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The place of the marker itself in the file; a copy of the marker elsewhere is no marker.
    pub own_offset: u64,
    /// Bytes of this file that were durable when the batch was written; 0 if the journal does not sync.
    pub synced_bytes: u64,
    /// The number of the record that comes next.
    pub next_seq: u64,
}

impl Marker {
    pub fn encode(&self) -> [u8; MARKER_BYTES] {
        let mut out = [0; MARKER_BYTES];
        out[..4].copy_from_slice(&MARKER_LEN.to_le_bytes());
        out[8..16].copy_from_slice(&self.own_offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.synced_bytes.to_le_bytes());
        out[24..32].copy_from_slice(&self.next_seq.to_le_bytes());
        let crc = Self::crc(&out);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The marker in the first bytes of `bytes`, if there is one and it belongs at `offset`.
    fn decode(bytes: &[u8], offset: u64) -> Option<Marker> {
        let bytes = bytes.get(..MARKER_BYTES)?;
        let marker = Marker {
            own_offset: u64_at(bytes, 8),
            synced_bytes: u64_at(bytes, 16),
            next_seq: u64_at(bytes, 24),
        };
        let fits = u32_at(bytes, 0) == MARKER_LEN
            && marker.own_offset == offset
            && Self::crc(bytes) == u32_at(bytes, 4);
        fits.then_some(marker)
    }

    fn crc(bytes: &[u8]) -> u32 {
        Crc::new().update(&bytes[..4]).update(&bytes[8..MARKER_BYTES]).finish()
    }
}

/// One step of a [`RecordReader`].
pub(crate) enum Item {
    /// A record with this number; its bytes are in [`RecordReader::body`].
    Record(u64),
    End,
    /// No frame begins at [`RecordReader::offset`]; the text says why.
    Bad(&'static str),
}

/// Reads the frames of one file in order. Memory: one record and a read buffer.
pub(crate) struct RecordReader {
    file: BufReader<File>,
    /// The place where the next frame begins; after [`Item::Bad`], where the bad frame begins.
    pub offset: u64,
    /// Number of the next record.
    pub next_seq: u64,
    /// All records have the same number, as in snapshots.
    same_seq: bool,
    end: u64,
    /// Whether the last frame was a batch marker.
    pub after_marker: bool,
    pub body: Vec<u8>,
}

impl RecordReader {
    /// Reads frames from after the header up to `end` (bytes from the start of the file).
    pub fn new(mut file: File, header: &Header, end: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(HEADER_BYTES))?;
        Ok(RecordReader {
            file: BufReader::with_capacity(256 << 10, file),
            offset: HEADER_BYTES,
            next_seq: header.seq,
            same_seq: header.kind == Kind::Snapshot,
            end,
            after_marker: false,
            body: Vec::new(),
        })
    }

    pub fn next(&mut self) -> io::Result<Item> {
        loop {
            let left_bytes = self.end - self.offset;
            if left_bytes == 0 {
                return Ok(Item::End);
            }
            if left_bytes < FRAME_BYTES as u64 {
                return Ok(Item::Bad("the file ends inside the head of a record"));
            }
            let mut head = [0; FRAME_BYTES];
            self.file.read_exact(&mut head)?;
            let len = u32_at(&head, 0);
            if len == MARKER_LEN {
                let mut bytes = [0; MARKER_BYTES];
                if left_bytes < MARKER_BYTES as u64 {
                    return Ok(Item::Bad("the file ends inside a batch marker"));
                }
                bytes[..FRAME_BYTES].copy_from_slice(&head);
                self.file.read_exact(&mut bytes[FRAME_BYTES..])?;
                match Marker::decode(&bytes, self.offset) {
                    Some(marker) if marker.next_seq == self.next_seq => {}
                    Some(_) => return Ok(Item::Bad("records are missing before this batch marker")),
                    None => return Ok(Item::Bad("the checksum of a batch marker does not fit")),
                }
                self.offset += MARKER_BYTES as u64;
                self.after_marker = true;
                continue;
            }
            if len as usize > BODY_BYTES_MAX {
                return Ok(Item::Bad("the length of a record is impossible"));
            }
            if u64::from(len) > left_bytes - FRAME_BYTES as u64 {
                return Ok(Item::Bad("the file ends inside a record"));
            }
            self.body.resize(len as usize, 0);
            self.file.read_exact(&mut self.body)?;
            let seq = self.next_seq;
            if begin_crc(&self.body).update(&seq.to_le_bytes()).finish() != u32_at(&head, 4) {
                return Ok(Item::Bad("the checksum of a record does not fit"));
            }
            self.offset += (FRAME_BYTES + self.body.len()) as u64;
            self.after_marker = false;
            if !self.same_seq {
                self.next_seq += 1;
            }
            return Ok(Item::Record(seq));
        }
    }
}

/// Whether some marker at or after `from` proves that byte `bad_offset` had been durable.
pub(crate) fn was_durable(file: &mut File, bad_offset: u64) -> io::Result<bool> {
    const CHUNK_BYTES: usize = 1 << 20;
    let mut offset = file.seek(SeekFrom::Start(bad_offset))?;
    let mut window = Vec::with_capacity(CHUNK_BYTES + MARKER_BYTES);
    loop {
        let read_bytes = file.take(CHUNK_BYTES as u64).read_to_end(&mut window)?;
        if read_bytes == 0 {
            return Ok(false);
        }
        let starts_n = (window.len() + 1).saturating_sub(MARKER_BYTES);
        for at in 0..starts_n {
            if window[at] != 0xFF {
                continue;
            }
            if let Some(marker) = Marker::decode(&window[at..], offset + at as u64)
                && marker.synced_bytes > bad_offset
            {
                return Ok(true);
            }
        }
        window.drain(..starts_n);
        offset += starts_n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_comes_back_and_a_flipped_bit_does_not() {
        let header = Header { kind: Kind::Snapshot, seq: 7, records_n: 3 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for bit in 0..36 * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_marker_counts_only_in_its_own_place() {
        let marker = Marker { own_offset: 40, synced_bytes: 40, next_seq: 1 };
        assert_eq!(Marker::decode(&marker.encode(), 40), Some(marker));
        assert_eq!(Marker::decode(&marker.encode(), 41), None);
        assert_eq!(Marker::decode(&marker.encode()[..31], 40), None);
    }
}
