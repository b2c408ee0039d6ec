//! The origins of the cached bytes, in a small file beside the cache, so that a restarted executor knows
//! where its objects came from.

use super::home_io::private_file;
use eyas_core::event::Fetched;
use eyas_session::executor::Book;
use eyas_tasklist::renewed_location;
use eyas_terms::{Digest, HomeVersion, ObjectId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

const ORIGINS_FILE: &str = "origins.jsonl";

#[derive(Serialize, Deserialize)]
struct Origin {
    digest: Digest,
    location: String,
    version: HomeVersion,
}

/// See the module.
pub struct Origins {
    out: BufWriter<File>,
}

impl Origins {
    /// Opens the origins file in `dir`, and makes the book of the objects that are `held`.
    pub fn open(
        dir: &Path,
        held: &[(Digest, u64)],
    ) -> std::io::Result<(Origins, Book, Vec<(ObjectId, Fetched)>)> {
        let path: PathBuf = dir.join(ORIGINS_FILE);
        // A file that changed at home has a later line, which counts.
        let mut latest: BTreeMap<String, (Digest, HomeVersion)> = BTreeMap::new();
        if let Ok(file) = File::open(&path) {
            // A killed executor leaves a torn last line, which costs one origin.
            for line in BufReader::new(file).lines().map_while(Result::ok) {
                if let Ok(o) = serde_json::from_slice::<Origin>(line.as_bytes()) {
                    let location = renewed_location(&o.location).unwrap_or(o.location);
                    latest.insert(location, (o.digest, o.version));
                }
            }
        }
        let mut known: HashMap<Digest, Vec<(String, HomeVersion)>> = HashMap::new();
        for (location, (digest, version)) in latest {
            known.entry(digest).or_default().push((location, version));
        }
        let (book, objects) = Book::restore(held, known);
        let fresh = path.with_extension("tmp");
        let mut origins = Origins { out: BufWriter::new(private_file(&fresh)?) };
        for (object, bytes) in &objects {
            if let Some(version) = &bytes.version {
                origins.note(book.location(*object), bytes.digest, version);
            }
        }
        origins.out.flush()?;
        std::fs::rename(&fresh, &path)?;
        Ok((origins, book, objects))
    }

    /// Notes the origin of bytes, so that it is known after a restart.
    pub fn note(&mut self, location: &str, digest: Digest, version: &HomeVersion) {
        let origin = Origin { digest, location: location.to_string(), version: version.clone() };
        // A full disk costs the name, not the object.
        let _ = serde_json::to_writer(&mut self.out, &origin);
        let _ = self.out.write_all(b"\n");
    }

    pub fn flush(&mut self) {
        let _ = self.out.flush();
    }
}
