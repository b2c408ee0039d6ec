//! Bytes between home storage, the cache and private files, hashed on the way; and errors in the words of the core.

use eyas_core::event::*;
use eyas_core::*;
use eyas_data::{ErrorKind as DataErrorKind, Store};
use eyas_storage::{ErrorKind as StorageErrorKind, Homes, Location, Version};
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;

pub(super) fn parse(text: &str) -> Result<Location, TransferError> {
    Location::parse(text, Path::new("/")).map_err(|e| home_error(&e))
}

pub(super) fn version_of(stat: &eyas_storage::Stat) -> HomeVersion {
    HomeVersion { size_bytes: stat.size_bytes, stamp: stat.version.text().into() }
}

pub(super) fn temporary(message: &str) -> TransferError {
    TransferError { kind: TransferErrorKind::Temporary, message: message.into() }
}

pub(super) fn home_error(e: &eyas_storage::Error) -> TransferError {
    let kind = match e.kind() {
        StorageErrorKind::Changed => TransferErrorKind::Changed,
        StorageErrorKind::NoSpace => TransferErrorKind::NoSpace,
        _ if e.status() == eyas_storage::Status::Permanent => TransferErrorKind::Unavailable,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: e.to_string() }
}

pub(super) fn data_error(e: &eyas_data::Error) -> TransferError {
    let kind = match e.kind {
        DataErrorKind::NotHeld => TransferErrorKind::NotHeld,
        DataErrorKind::Busy => TransferErrorKind::Busy,
        DataErrorKind::Corrupt | DataErrorKind::DigestMismatch { .. } => TransferErrorKind::Corrupt,
        DataErrorKind::NoSpace => TransferErrorKind::NoSpace,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: e.to_string() }
}

/// Reads an object from home into the cache or into a private file, hashing on the way.
///
/// Where the digest is known it alone says whether home's bytes changed: a task that runs twice writes the same bytes twice,
/// and the second time with another stamp. A size that is another one needs no reading.
pub(super) fn read_home(
    homes: &Homes,
    store: &Store,
    text: &str,
    known: Option<&Known>,
    size_bytes: u64,
    private: Option<&Path>,
    by_file: bool,
) -> Result<Fetched, TransferError> {
    let location = parse(text)?;
    let mut opened = homes.open(&location, None).map_err(|e| home_error(&e))?;
    let version = version_of(&opened.stat);
    let other = known.filter(|k| !k.version.stamp.is_empty() && k.version != version);
    let new_version = opened.stat.version.clone();
    let changed = || {
        let message = match other {
            Some(known) => {
                let old = Version::from_text(known.version.stamp.to_string());
                let change = Version::describe_change(&old, &new_version);
                format!("`{text}` changed since this run first read it ({change})")
            }
            None => format!(
                "`{text}` has other bytes than this run read before, with the same size and time stamp"
            ),
        };
        TransferError { kind: TransferErrorKind::Changed, message }
    };
    if other.is_some_and(|known| known.size_bytes != version.size_bytes) {
        return Err(changed());
    }
    let expected = known.map(|k| k.digest);
    let fetched = match private {
        Some(path) => {
            let mut file = File::create(path).map_err(|e| disk_error("make a private copy", &e))?;
            let mut hasher = blake3::Hasher::new();
            let mut buffer = vec![0; 256 << 10];
            let mut size_bytes = 0;
            loop {
                let n = match opened.reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => n,
                    Err(e) => return Err(home_error(&eyas_storage::Error::from_read("read", text, e))),
                };
                hasher.update(&buffer[..n]);
                file.write_all(&buffer[..n]).map_err(|e| disk_error("make a private copy", &e))?;
                size_bytes += n as u64;
            }
            let digest = Digest(*hasher.finalize().as_bytes());
            if expected.is_some_and(|e| e != digest) {
                return Err(changed());
            }
            Fetched { digest, size_bytes, version: Some(version) }
        }
        None => {
            let size = version.size_bytes;
            if size > size_bytes {
                let message =
                    format!("`{text}` grew from {size_bytes} to {size} bytes while it was being read");
                return Err(TransferError { kind: TransferErrorKind::Changed, message });
            }
            let reservation = store.reserve(size).map_err(|e| data_error(&e))?;
            let mut incoming = store.begin(reservation);
            match &opened.file {
                Some(file) if by_file => {
                    incoming.fill_from_file(file).map_err(|e| data_error(&e))?;
                    if expected.is_none() {
                        opened.check_unchanged().map_err(|e| home_error(&e))?;
                    }
                }
                _ => {
                    let mut buffer = vec![0; 256 << 10];
                    loop {
                        match opened.reader.read(&mut buffer) {
                            Ok(0) => break,
                            Ok(n) => incoming.append(&buffer[..n]).map_err(|e| data_error(&e))?,
                            Err(e) => {
                                return Err(home_error(&eyas_storage::Error::from_read("read", text, e)));
                            }
                        }
                    }
                }
            }
            let stored = incoming.finish(expected.map(|d| d.0.into())).map_err(|e| match e.kind {
                DataErrorKind::DigestMismatch { .. } => changed(),
                _ => data_error(&e),
            })?;
            Fetched { digest: Digest(stored.digest.into()), size_bytes: stored.size, version: Some(version) }
        }
    };
    Ok(fetched)
}

pub(super) fn disk_error(operation: &str, e: &std::io::Error) -> TransferError {
    let kind = match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => TransferErrorKind::NoSpace,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: format!("cannot {operation} on this node: {e}") }
}

/// Hashes an output and moves it into the cache, or only hashes it.
pub(super) fn keep_output(
    store: &Store,
    path: &Path,
    n_links: u64,
    cache_bytes: Option<u64>,
) -> Result<Fetched, TransferError> {
    let fetched = |stored: eyas_data::Stored| Fetched {
        digest: Digest(stored.digest.into()),
        size_bytes: stored.size,
        version: None,
    };
    match cache_bytes {
        Some(size) => {
            let reservation = store.reserve(size).map_err(|e| data_error(&e))?;
            if n_links > 1 {
                // Somebody else can still write to this file.
                let file = File::open(path).map_err(|e| disk_error("read an output", &e))?;
                let mut incoming = store.begin(reservation);
                incoming.fill_from_file(&file).map_err(|e| data_error(&e))?;
                return incoming.finish(None).map(fetched).map_err(|e| data_error(&e));
            }
            store.adopt(path, reservation).map(fetched).map_err(|e| data_error(&e))
        }
        None => {
            let mut file = File::open(path).map_err(|e| disk_error("read an output", &e))?;
            let mut hasher = blake3::Hasher::new();
            let size_bytes =
                std::io::copy(&mut file, &mut hasher).map_err(|e| disk_error("read an output", &e))?;
            Ok(Fetched { digest: Digest(*hasher.finalize().as_bytes()), size_bytes, version: None })
        }
    }
}
