//! The parts of a large object: how they are read from a source, and sent, several at once.

use crate::error::{Error, Result};
use crate::{Location, Put};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

const WRITE: &str = "write";

/// Larger objects are sent in parts of this size. S3 wants at least 5 MiB, Google a multiple of 256 KiB.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// Parts of one object that are on their way at the same time.
const PARTS_AT_ONCE: usize = 3;

/// The next bytes of a source, fewer than `want_bytes` only at its end. `before_bytes` were read already.
pub(crate) fn read_part(
    location: &Location,
    body: &mut dyn Read,
    want_bytes: usize,
    before_bytes: u64,
    put: &Put,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut block = vec![0; 256 << 10];
    while bytes.len() < want_bytes {
        put.may_go_on(location)?;
        let want = block.len().min(want_bytes - bytes.len());
        match body.read(&mut block[..want]) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&block[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let at = before_bytes + bytes.len() as u64;
                let context = format!("reading byte {at} of what was to be written");
                return Err(Error::from_read(WRITE, location, error).with_context("failed at", context));
            }
        }
    }
    Ok(bytes)
}

/// Sends `first`, which is a whole part, and what follows it in `body`, several parts at once. Gives the size of all, and what
/// `send` gave for each.
///
/// * `parts_of_one_size`: how many parts are as large as the first one; as many are then twice as large, and so on.
/// * `send`: sends one part, by its number from 1. It tries again by itself.
pub(crate) fn send_parts<T: Send>(
    location: &Location,
    first: Vec<u8>,
    body: &mut dyn Read,
    put: &Put,
    parts_of_one_size: u32,
    send: &(dyn Fn(u32, &[u8]) -> Result<T> + Sync),
) -> Result<(u64, Vec<T>)> {
    let part_bytes = |number: u32| PART_BYTES << ((number - 1) / parts_of_one_size).min(6);
    let sent: Mutex<BTreeMap<u32, T>> = Mutex::default();
    let failed: Mutex<Option<Error>> = Mutex::default();
    let has_failed = || lock(&failed).is_some();
    let mut size_bytes: u64 = 0;
    let (sender, receiver) = sync_channel::<(u32, Vec<u8>)>(0);
    let receiver = Mutex::new(receiver);
    let read = std::thread::scope(|scope| {
        // The channel is owned by the parts' reader, so that the threads end when it does.
        let sender = sender;
        for _ in 0..PARTS_AT_ONCE {
            scope.spawn(|| {
                while let Some((number, bytes)) = next_part(&receiver) {
                    // After a failure parts are taken and dropped, so that their reader does not wait for ever.
                    if has_failed() {
                        continue;
                    }
                    match send(number, &bytes) {
                        Ok(told) => drop(lock(&sent).insert(number, told)),
                        Err(error) => drop(lock(&failed).get_or_insert(error)),
                    }
                }
            });
        }
        let mut number = 0;
        let mut bytes = first;
        loop {
            number += 1;
            size_bytes += bytes.len() as u64;
            let is_last = bytes.len() < part_bytes(number);
            // The threads end after this loop, not before.
            let _ = sender.send((number, bytes));
            if is_last || has_failed() {
                return Ok(());
            }
            bytes = read_part(location, body, part_bytes(number + 1), size_bytes, put)?;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    read?;
    let sent = sent.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((size_bytes, sent.into_values().collect()))
}

fn next_part(parts: &Mutex<Receiver<(u32, Vec<u8>)>>) -> Option<(u32, Vec<u8>)> {
    lock(parts).recv().ok()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
