//! Names of objects: this executor numbers them itself, so that its numbers outlive a dispatcher process.
//!
//! A dispatcher's numbers hold for one connection to one dispatcher process; the book translates. What a
//! cached object is called and which version of it home had is also kept in a small file beside the
//! cache, so that a restarted executor knows the origin of what it holds.

use eyas_core::event::Fetched;
use eyas_core::{Digest, HomeVersion, ObjectId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

const ORIGINS_FILE: &str = "origins.jsonl";
/// The location of an object that is held and of which only the digest is known.
const NAMELESS: &str = "digest:";

#[derive(Serialize, Deserialize)]
struct Origin {
    digest: Digest,
    location: String,
    version: HomeVersion,
}

pub struct Book {
    locations: Vec<String>,
    by_location: HashMap<String, ObjectId>,
    /// The dispatcher's number of each of ours, and back.
    theirs: HashMap<ObjectId, ObjectId>,
    ours: HashMap<ObjectId, ObjectId>,
    /// Files of the cache by object, and how many objects share each.
    digest_of: HashMap<ObjectId, Digest>,
    n_users: HashMap<Digest, u32>,
    nameless: HashMap<Digest, ObjectId>,
    origins: BufWriter<File>,
}

impl Book {
    /// Opens the origins file in `dir`; returns what it says of objects that are `held`, by digest.
    pub fn open(dir: &Path, held: &[(Digest, u64)]) -> std::io::Result<(Book, Vec<(ObjectId, Fetched)>)> {
        let path: PathBuf = dir.join(ORIGINS_FILE);
        let mut known: HashMap<Digest, (String, HomeVersion)> = HashMap::new();
        if let Ok(file) = File::open(&path) {
            // A torn last line is what a killed executor leaves; it is one origin less.
            for line in BufReader::new(file).lines().map_while(Result::ok) {
                if let Ok(o) = serde_json::from_str::<Origin>(&line) {
                    known.insert(o.digest, (o.location, o.version));
                }
            }
        }
        let fresh = path.with_extension("tmp");
        let mut book = Book {
            locations: vec![],
            by_location: HashMap::new(),
            theirs: HashMap::new(),
            ours: HashMap::new(),
            digest_of: HashMap::new(),
            n_users: HashMap::new(),
            nameless: HashMap::new(),
            origins: BufWriter::new(File::create(&fresh)?),
        };
        let mut objects = vec![];
        for &(digest, size_bytes) in held {
            let (object, version) = match known.remove(&digest) {
                Some((location, version)) if !book.by_location.contains_key(&location) => {
                    let object = book.intern(&location);
                    book.note_origin(object, digest, &version);
                    (object, Some(version))
                }
                _ => {
                    let object = book.intern(&format!("{NAMELESS}{digest}"));
                    book.nameless.insert(digest, object);
                    (object, None)
                }
            };
            book.set_digest(object, digest);
            objects.push((object, Fetched { digest, size_bytes, version }));
        }
        book.origins.flush()?;
        std::fs::rename(&fresh, &path)?;
        Ok((book, objects))
    }

    pub fn intern(&mut self, location: &str) -> ObjectId {
        if let Some(object) = self.by_location.get(location) {
            return *object;
        }
        let object = ObjectId(self.locations.len() as u32);
        self.locations.push(location.to_string());
        self.by_location.insert(location.to_string(), object);
        object
    }

    /// As [`Self::intern`], but when the bytes are known and lie here without a name, they get this one.
    pub fn intern_known(&mut self, location: &str, digest: Option<Digest>) -> ObjectId {
        if let Some(digest) = digest
            && !self.by_location.contains_key(location)
            && let Some(object) = self.nameless.remove(&digest)
            && self.digest_of.get(&object) == Some(&digest)
        {
            self.by_location.remove(&self.locations[object.0 as usize]);
            self.locations[object.0 as usize] = location.to_string();
            self.by_location.insert(location.to_string(), object);
            return object;
        }
        self.intern(location)
    }

    pub fn location(&self, object: ObjectId) -> &str {
        &self.locations[object.0 as usize]
    }

    /// The location, unless only the digest is known.
    pub fn find_name(&self, object: ObjectId) -> Option<&str> {
        Some(self.location(object)).filter(|l| !l.starts_with(NAMELESS))
    }

    /// The dispatcher calls `ours` `theirs`.
    pub fn pair(&mut self, ours: ObjectId, theirs: ObjectId) {
        self.theirs.insert(ours, theirs);
        self.ours.insert(theirs, ours);
    }

    /// Another dispatcher process: its numbers are not known yet.
    pub fn forget_pairs(&mut self) {
        self.theirs.clear();
        self.ours.clear();
    }

    pub fn theirs(&self, ours: ObjectId) -> Option<ObjectId> {
        self.theirs.get(&ours).copied()
    }

    pub fn ours(&self, theirs: ObjectId) -> Option<ObjectId> {
        self.ours.get(&theirs).copied()
    }

    pub fn digest(&self, object: ObjectId) -> Option<Digest> {
        self.digest_of.get(&object).copied()
    }

    pub fn objects_with(&self, digest: Digest) -> Vec<ObjectId> {
        let mut found: Vec<_> =
            self.digest_of.iter().filter(|(_, d)| **d == digest).map(|(o, _)| *o).collect();
        found.sort();
        found
    }

    /// `object`'s bytes are in the cache as `digest`.
    pub fn set_digest(&mut self, object: ObjectId, digest: Digest) {
        if self.digest_of.insert(object, digest) != Some(digest) {
            *self.n_users.entry(digest).or_default() += 1;
        }
    }

    /// `object` left the cache. Returns the file to delete, if no other object has the same bytes.
    pub fn clear_digest(&mut self, object: ObjectId) -> Option<Digest> {
        let digest = self.digest_of.remove(&object)?;
        let n = self.n_users.get_mut(&digest)?;
        *n -= 1;
        if *n > 0 {
            return None;
        }
        self.n_users.remove(&digest);
        self.nameless.remove(&digest);
        Some(digest)
    }

    /// Remembers over a restart where the bytes came from.
    pub fn note_origin(&mut self, object: ObjectId, digest: Digest, version: &HomeVersion) {
        let origin = Origin { digest, location: self.location(object).to_string(), version: version.clone() };
        // A full disk costs the name, not the object.
        let _ = serde_json::to_writer(&mut self.origins, &origin);
        let _ = self.origins.write_all(b"\n");
    }

    pub fn flush(&mut self) {
        let _ = self.origins.flush();
    }
}
