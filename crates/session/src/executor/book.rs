//! Names of objects: an executor numbers them itself, so that its numbers outlive a dispatcher process.
//!
//! A dispatcher's numbers hold for one connection to one dispatcher process; the book translates. Equal bytes are one file of
//! the cache, whatever they are called: the book knows how many objects share each file.

use eyas_core::event::{Fetched, NodeEvent, TransferError, TransferErrorKind};
use eyas_core::{Digest, HomeVersion, ObjectId};
use std::collections::HashMap;

/// The location of an object that is held and of which only the digest is known.
const NAMELESS: &str = "digest:";

/// See the module.
#[derive(Default)]
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
}

impl Book {
    /// Of a process that finds `held` in its cache: digests and sizes. `origins`: which of it came from where, as an earlier
    /// process kept it. Gives the objects too, in the order of `held`.
    pub fn restore(
        held: &[(Digest, u64)],
        mut origins: HashMap<Digest, (String, HomeVersion)>,
    ) -> (Book, Vec<(ObjectId, Fetched)>) {
        let mut book = Book::default();
        let mut objects = vec![];
        for &(digest, size_bytes) in held {
            let (object, version) = match origins.remove(&digest) {
                Some((location, version)) if !book.by_location.contains_key(&location) => {
                    (book.intern(&location), Some(version))
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
        (book, objects)
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
        self.held().into_iter().filter(|(_, d)| *d == digest).map(|(object, _)| object).collect()
    }

    /// The objects whose bytes are in the cache, in the order of their numbers.
    pub fn held(&self) -> Vec<(ObjectId, Digest)> {
        let mut held: Vec<_> = self.digest_of.iter().map(|(object, digest)| (*object, *digest)).collect();
        held.sort();
        held
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
}

/// The event that says what became of bytes for the cache; a driver asks this when the event reaches it. `is_held` says whether the
/// cache has a file of these bytes.
///
/// Bytes that were stored a moment ago may be gone by then: another object had the same ones, the book did not know yet that this
/// object needs them too, and the other one was dropped. Then they count as not stored.
pub fn unless_dropped(event: NodeEvent, is_held: impl Fn(&Digest) -> bool) -> NodeEvent {
    let gone = || TransferError {
        kind: TransferErrorKind::Dropped,
        message: "another object of the same bytes was dropped from this node, and these with it".into(),
    };
    match event {
        NodeEvent::TransferEnded { target, source, result: Ok(bytes) } if !is_held(&bytes.digest) => {
            NodeEvent::TransferEnded { target, source, result: Err(gone()) }
        }
        NodeEvent::OutputStored { task, attempt, output, result: Ok(bytes) } if !is_held(&bytes.digest) => {
            NodeEvent::OutputStored { task, attempt, output, result: Err(gone()) }
        }
        event => event,
    }
}
