//! Queries of signed URLs, which the journal must not have: in a file of their own beside it.
//!
//! ```text
//! <dir>/queries.sealed   a nonce, and the queries encrypted with a key of the cluster (ChaCha20-Poly1305)
//! ```
//!
//! The key comes from the cluster's secret, which is in `identity.json` in the same directory. So whoever copies journal and logs, to ask
//! for help or to keep them, gives no query away; a new process of the dispatcher reads them all.

use eyas_data::random_bytes;
use eyas_wire::message::Queries;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "queries.sealed";

pub(super) struct KeptQueries {
    path: PathBuf,
    key: [u8; 32],
    known: BTreeSet<String>,
}

impl KeptQueries {
    /// What earlier processes of this directory kept. Errors: there is a file that cannot be read, or that has another key.
    pub fn open(dir: &Path, secret: &[u8]) -> io::Result<KeptQueries> {
        let (path, key) = (dir.join(FILE), blake3::derive_key("eyas 2026 queries of signed URLs", secret));
        let mut kept = KeptQueries { path, key, known: BTreeSet::new() };
        match fs::read(&kept.path) {
            Ok(sealed) => {
                let damaged = || io::Error::other(format!("{FILE} is damaged, or is another cluster's"));
                kept.known = kept.unseal(sealed).ok_or_else(damaged)?;
                Ok(kept)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(kept),
            Err(error) => Err(error),
        }
    }

    /// Keeps queries on the disk. Gives those that are new.
    pub fn add(&mut self, Queries(queries): Queries) -> io::Result<Queries> {
        let mut fresh: Vec<String> =
            queries.into_iter().filter(|query| !self.known.contains(query)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        if fresh.is_empty() {
            return Ok(Queries(fresh));
        }
        self.known.extend(fresh.iter().cloned());
        let written = self.seal().and_then(|sealed| self.write(&sealed));
        if written.is_err() {
            fresh.iter().for_each(|query| _ = self.known.remove(query));
        }
        written.map(|()| Queries(fresh))
    }

    pub fn all(&self) -> Queries {
        Queries(self.known.iter().cloned().collect())
    }

    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(
            UnboundKey::new(&CHACHA20_POLY1305, &self.key).expect("the key is as long as keys are"),
        )
    }

    fn seal(&self) -> io::Result<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = random_bytes()?;
        let mut text = postcard::to_stdvec(&self.known).map_err(io::Error::other)?;
        let nonce_again = Nonce::assume_unique_for_key(nonce);
        let sealed = self.cipher().seal_in_place_append_tag(nonce_again, Aad::empty(), &mut text);
        sealed.map_err(|_| io::Error::other("it cannot be encrypted"))?;
        Ok([&nonce[..], &text].concat())
    }

    fn unseal(&self, mut sealed: Vec<u8>) -> Option<BTreeSet<String>> {
        let (nonce, text) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        postcard::from_bytes(self.cipher().open_in_place(nonce, Aad::empty(), text).ok()?).ok()
    }

    fn write(&self, sealed: &[u8]) -> io::Result<()> {
        let fresh = self.path.with_extension("tmp");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(sealed)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        File::open(self.path.parent().expect("it lies in a directory"))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_next_process_has_them_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let queries = |texts: &[&str]| Queries(texts.iter().map(|text| (*text).to_owned()).collect());
        let mut first = KeptQueries::open(dir.path(), b"secret").unwrap();
        assert_eq!(first.add(queries(&["sig=b", "sig=a", "sig=b"])).unwrap(), queries(&["sig=a", "sig=b"]));
        assert_eq!(first.add(queries(&["sig=a", "sig=c"])).unwrap(), queries(&["sig=c"]));
        let second = KeptQueries::open(dir.path(), b"secret").unwrap();
        assert_eq!(second.all(), queries(&["sig=a", "sig=b", "sig=c"]));
        let path = dir.path().join(FILE);
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(4).any(|some| some == b"sig="));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(KeptQueries::open(dir.path(), b"another").is_err());
        fs::write(&path, b"short").unwrap();
        assert!(KeptQueries::open(dir.path(), b"secret").is_err());
        assert!(!format!("{:?}", second.all()).contains("sig"));
    }
}
