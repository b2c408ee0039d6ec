//! Reads a large object in several parts at once, and gives its bytes in their order.
//!
//! One connection seldom takes all that a network or a server can give. The first part comes with the request that opens the
//! object, so a small object costs no further request. The following parts are read ahead, each by a thread and an
//! `open` of its own, so every part has its own retries and its own place among the streams of [`crate::Limited`].
//!
//! Memory is bounded: at most `parts_at_once` parts are read ahead. Every part has to have the version of the first
//! one, otherwise the object changed under the reader, which is an error. The first error ends all parts. An object whose
//! version is not strong comes in one stream, because nothing would show that its parts belong together.
//!
//! A part never waits for its reader while it holds a place among the streams, so readers cannot keep each other waiting.
//!
//! Not here: which homes can open a first part ([`Home::open_first`]).

use crate::error::{Error, ErrorKind, Result, Status};
use crate::version::{Strength, Version};
use crate::{Home, Location, Opened, Stat};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

/// The size of a part.
const PART_BYTES: u64 = 8 << 20;
/// A part looks after so many bytes whether its reader is still there.
const STEP_BYTES: usize = 256 << 10;

/// Opens the whole object. Parts are read ahead if there are more than one and `parts_at_once` is at least 1.
pub(crate) fn open(home: &Arc<dyn Home>, location: &Location, parts_at_once: usize) -> Result<Opened> {
    open_by(home, location, parts_at_once, PART_BYTES)
}

fn open_by(
    home: &Arc<dyn Home>,
    location: &Location,
    parts_at_once: usize,
    part_bytes: u64,
) -> Result<Opened> {
    if parts_at_once == 0 {
        return home.open(location, None);
    }
    let first = home.open_first(location, part_bytes)?;
    let size_bytes = first.stat.size_bytes;
    if first.range == (0..size_bytes) {
        return Ok(first);
    }
    if first.stat.version.strength() != Strength::Strong {
        drop(first);
        return home.open(location, None);
    }
    let parts = Parts {
        home: home.clone(),
        location: location.clone(),
        stat: first.stat.clone(),
        next_at: first.range.end,
        part_bytes,
        parts_at_once,
        first: Some(first.reader),
        now: (Vec::new(), 0),
        ahead: VecDeque::new(),
        spare: Vec::new(),
        is_over: Arc::default(),
    };
    Ok(Opened {
        location: first.location,
        stat: first.stat,
        range: 0..size_bytes,
        reader: Box::new(parts),
        file: None,
        times: vec![],
    })
}

/// See the module.
struct Parts {
    home: Arc<dyn Home>,
    location: Location,
    stat: Stat,
    /// Where the next part begins that nobody reads yet.
    next_at: u64,
    part_bytes: u64,
    parts_at_once: usize,
    /// The first part, until its end.
    first: Option<Box<dyn Read + Send>>,
    /// The part whose bytes are given now, and how many of them were given.
    now: (Vec<u8>, usize),
    /// The parts that are being read or were read, in their order.
    ahead: VecDeque<Receiver<Result<Vec<u8>>>>,
    /// The memory of parts that were given.
    spare: Vec<Vec<u8>>,
    /// Nobody wants the parts any more.
    is_over: Arc<AtomicBool>,
}

impl Parts {
    /// Starts as many parts as there may be.
    fn read_ahead(&mut self) -> Result<()> {
        while self.ahead.len() < self.parts_at_once && self.next_at < self.stat.size_bytes {
            let end = self.stat.size_bytes.min(self.next_at + self.part_bytes);
            let range = self.next_at..end;
            let mut bytes = self.spare.pop().unwrap_or_default();
            // A part is far smaller than any address space.
            bytes.resize((range.end - range.start) as usize, 0);
            let (home, location, stat) = (self.home.clone(), self.location.clone(), self.stat.clone());
            let is_over = self.is_over.clone();
            let (sender, receiver) = sync_channel(1);
            let work = move || {
                let read = read_part(&*home, &location, &stat, range, &mut bytes, &is_over);
                // The reader may be gone.
                let _ = sender.send(read.map(|()| bytes));
            };
            std::thread::Builder::new()
                .name("part".into())
                .spawn(work)
                .map_err(|error| Error::from_io("read", &self.location, error))?;
            self.ahead.push_back(receiver);
            self.next_at = end;
        }
        Ok(())
    }

    fn give(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.read_ahead()?;
        if let Some(first) = &mut self.first {
            match first.read(buffer) {
                // Its place among the streams is free for a part from here on.
                Ok(0) => self.first = None,
                other => return other.map_err(|error| Error::from_read("read", &self.location, error)),
            }
        }
        while self.now.1 == self.now.0.len() {
            let Some(next) = self.ahead.pop_front() else { return Ok(0) };
            let lost = || {
                let reason = "the thread that read a part of it ended";
                Error::new(ErrorKind::Io, Status::Temporary, "read", &self.location, reason)
            };
            let bytes = next.recv().map_err(|_| lost())??;
            self.spare.push(std::mem::replace(&mut self.now, (bytes, 0)).0);
            self.read_ahead()?;
        }
        let (bytes, given) = &mut self.now;
        let n = buffer.len().min(bytes.len() - *given);
        buffer[..n].copy_from_slice(&bytes[*given..*given + n]);
        *given += n;
        Ok(n)
    }
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.give(buffer).map_err(|error| {
            self.is_over.store(true, Ordering::Relaxed);
            error.into()
        })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Fills `bytes` with the part at `range`, which has to be of the version that was opened.
fn read_part(
    home: &dyn Home,
    location: &Location,
    stat: &Stat,
    range: Range<u64>,
    bytes: &mut [u8],
    is_over: &AtomicBool,
) -> Result<()> {
    let given_up = || {
        let reason = "its other parts are not wanted any more";
        Error::new(ErrorKind::GivenUp, Status::Permanent, "read", location, reason)
    };
    if is_over.load(Ordering::Relaxed) {
        return Err(given_up());
    }
    let mut opened = home.open(location, Some(range)).map_err(|error| match error.kind() {
        // It was that long when it was opened.
        ErrorKind::InvalidRange => Error::changed("read", location, error.to_string()),
        _ => error,
    })?;
    if opened.stat != *stat {
        let difference = Version::describe_change(&stat.version, &opened.stat.version);
        return Err(Error::changed("read", location, difference));
    }
    for step in bytes.chunks_mut(STEP_BYTES) {
        if is_over.load(Ordering::Relaxed) {
            return Err(given_up());
        }
        opened.reader.read_exact(step).map_err(|error| Error::from_read("read", location, error))?;
    }
    // Whoever reads a body to its end gives its connection back for the next part.
    match opened.reader.read(&mut [0; 1]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Error::changed("read", location, "a part of it is longer than was asked for".into())),
        Err(error) => Err(Error::from_read("read", location, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testserver::{Fault, TestServer};
    use crate::{Homes, HomesConfig, HttpConfig, RetryConfig};
    use std::time::Duration;

    const PART: u64 = 100_000;

    fn homes(streams_max: Option<u32>) -> Homes {
        Homes::new(HomesConfig {
            http: HttpConfig { proxy_from_env: false, ..HttpConfig::default() },
            retries: RetryConfig { wait_first: Duration::from_micros(1), ..RetryConfig::default() },
            streams_max,
            ..HomesConfig::default()
        })
        .unwrap()
    }

    fn bytes(n: u32) -> Vec<u8> {
        (0..n).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
    }

    #[test]
    fn parts_come_in_their_order_whatever_their_number() {
        let server = TestServer::start();
        let location = server.url("x");
        for streams_max in [None, Some(1), Some(2)] {
            let homes = homes(streams_max);
            for size in [0, 1, 99_999, 100_000, 100_001, 200_000, 1_234_567] {
                server.put(&location, bytes(size));
                let mut opened = open_by(homes.get(&location), &location, 4, PART).unwrap();
                assert_eq!(opened.range, 0..u64::from(size));
                let mut read = Vec::new();
                opened.reader.read_to_end(&mut read).unwrap();
                assert!(read == bytes(size), "{size} bytes with {streams_max:?} streams");
                assert_eq!(opened.reader.read(&mut [0; 1]).unwrap(), 0);
                drop(opened);
                assert_eq!(homes.n_streams(), 0);
            }
        }
    }

    #[test]
    fn a_part_that_breaks_is_read_on_and_a_server_without_ranges_is_read_at_once() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, bytes(1_000_000));
        // With 30,000 bytes of each answer, parts come in pieces.
        for fault in [Fault::Truncate(30_000), Fault::NoRanges, Fault::Chunked] {
            server.set_fault(fault);
            let homes = homes(None);
            let mut opened = open_by(homes.get(&location), &location, 3, PART).unwrap();
            let mut read = Vec::new();
            opened.reader.read_to_end(&mut read).unwrap();
            assert!(read == bytes(1_000_000), "{fault:?}");
        }
    }

    #[test]
    fn an_object_without_a_version_comes_in_one_stream() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, bytes(1_000_000));
        server.set_fault(Fault::NoVersion);
        let homes = homes(None);
        let mut opened = open_by(homes.get(&location), &location, 2, PART).unwrap();
        opened.reader.read_exact(&mut [0; 10]).unwrap();
        server.put(&location, vec![0; 1_000_000]);
        let mut read = Vec::new();
        opened.reader.read_to_end(&mut read).unwrap();
        assert!(read == bytes(1_000_000)[10..], "all of it is of the state that was opened");
    }

    #[test]
    fn an_object_that_changes_between_its_parts_is_noticed() {
        let server = TestServer::start();
        let location = server.url("x");
        server.put(&location, bytes(1_000_000));
        let homes = homes(None);
        let mut opened = open_by(homes.get(&location), &location, 2, PART).unwrap();
        opened.reader.read_exact(&mut [0; 10]).unwrap();
        server.put(&location, bytes(1_000_000));
        let error = opened.reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(Error::from_read("read", "", error).kind(), ErrorKind::Changed);
        drop(opened);
        // It has become shorter than its parts.
        let mut opened = open_by(homes.get(&location), &location, 2, PART).unwrap();
        server.put(&location, bytes(150_000));
        let error = opened.reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(Error::from_read("read", "", error).kind(), ErrorKind::Changed);
    }
}
