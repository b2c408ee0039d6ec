//! The packed file while something is made of it: from this node's cache, or from home.

use super::Shop;
use crate::executor::home_io::{self, data_error, disk_error, given_up, home_error, parse, version_of};
use eyas_core::event::{TransferError, TransferErrorKind};
use eyas_data::{Halt, Store};
use eyas_runner::Account;
use eyas_storage::Homes;
use eyas_terms::{Digest, HomeVersion, RUN_FILE};
use eyas_text::shown;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// Reads the packed file, and hashes it if its digest is not known.
pub(super) struct Packed<'a> {
    location: &'a str,
    bytes: Box<dyn Read + 'a>,
    from: From<'a>,
    halt: &'a Halt,
    /// Why the file could not be read, if that is why nothing is made.
    pub failed: Option<TransferError>,
}

enum From<'a> {
    Cache { digest: Digest, path: PathBuf },
    Home { homes: &'a Homes, reader: Option<&'a Account>, hasher: Box<blake3::Hasher>, version: HomeVersion },
}

impl<'a> Packed<'a> {
    pub fn open(
        shop: &Shop<'a>,
        location: &'a str,
        cached: Option<Digest>,
    ) -> Result<Packed<'a>, TransferError> {
        let halt = shop.halt;
        if let Some(digest) = cached {
            let held: eyas_data::Digest = digest.0.into();
            let (file, _) = shop.store.open_object(&held).map_err(|e| data_error(&e))?;
            let from = From::Cache { digest, path: shop.store.path_of(&held) };
            return Ok(Packed { location, bytes: Box::new(file), from, halt, failed: None });
        }
        if location.starts_with(RUN_FILE) {
            let message = format!("{} is not on this node any more", shown(location));
            return Err(TransferError { kind: TransferErrorKind::NotHeld, message });
        }
        let (bytes, version) = open_at_home(shop.homes, location, shop.reader)?;
        let from = From::Home { homes: shop.homes, reader: shop.reader, hasher: Box::default(), version };
        Ok(Packed { location, bytes, from, halt, failed: None })
    }

    /// The file on this node's disk, if it is there.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.from {
            From::Cache { path, .. } => Some(path.clone()),
            From::Home { .. } => None,
        }
    }

    /// How large the file is.
    pub fn size_bytes(&self, store: &Store) -> u64 {
        match &self.from {
            From::Cache { digest, .. } => store.find(&digest.0.into()).unwrap_or(0),
            From::Home { version, .. } => version.size_bytes,
        }
    }

    /// Home's version of the file, if it was read from home just now.
    pub fn version(&self) -> Option<HomeVersion> {
        match &self.from {
            From::Home { version, .. } => Some(version.clone()),
            // What belongs to a run has one version only; see `Home::ask`.
            From::Cache { .. } if self.location.starts_with(RUN_FILE) => Some(of_run()),
            From::Cache { .. } => None,
        }
    }

    fn read_error(&self, e: io::Error) -> TransferError {
        match &self.from {
            From::Cache { .. } => disk_error("read the packed file", &e),
            From::Home { .. } => home_error(&eyas_storage::Error::from_read("read", self.location, e)),
        }
    }

    /// Begins once more.
    pub fn rewind(&mut self) -> io::Result<()> {
        match &mut self.from {
            From::Cache { path, .. } => self.bytes = Box::new(File::open(path)?),
            From::Home { homes, reader, hasher, version } => {
                match open_at_home(homes, self.location, *reader) {
                    Ok((bytes, now)) => {
                        (self.bytes, *version) = (bytes, now);
                        **hasher = blake3::Hasher::new();
                    }
                    Err(error) => {
                        self.failed = Some(error);
                        return Err(io::Error::other("it cannot be read"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The digest of the whole file. What has not been read of it is read now.
    pub fn digest(&mut self) -> Result<Digest, TransferError> {
        if let Err(e) = io::copy(self, &mut io::sink()) {
            let failed = self.failed.take();
            return Err(failed.unwrap_or_else(|| match self.halt.is_stopped() {
                true => given_up(),
                false => self.read_error(e),
            }));
        }
        Ok(match &self.from {
            From::Cache { digest, .. } => *digest,
            From::Home { hasher, .. } => Digest(*hasher.finalize().as_bytes()),
        })
    }
}

/// The version of everything that is made of a file of a run.
pub(in crate::executor) fn of_run() -> HomeVersion {
    HomeVersion { size_bytes: 0, stamp: "run".into() }
}

fn open_at_home<'a>(
    homes: &Homes,
    location: &str,
    reader: Option<&Account>,
) -> Result<(Box<dyn Read + 'a>, HomeVersion), TransferError> {
    let opened = home_io::open_at_home(homes, &parse(location)?, reader)?;
    let version = version_of(&opened.stat);
    Ok((Box::new(opened.reader), version))
}

impl Read for Packed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.halt.check()?;
        match self.bytes.read(buffer) {
            Ok(n) => {
                if let From::Home { hasher, .. } = &mut self.from {
                    hasher.update(&buffer[..n]);
                }
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            Err(e) => {
                let text = e.to_string();
                self.failed = Some(self.read_error(e));
                Err(io::Error::other(text))
            }
        }
    }
}
