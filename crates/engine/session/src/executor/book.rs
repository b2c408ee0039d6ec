//! Numbers of objects: an executor gives its own, so that its numbers outlive a dispatcher process.
//!
//! A dispatcher's numbers hold for one connection to one dispatcher process; the book translates. Equal bytes are one file of
//! the cache, whatever they are called: the book knows how many objects share each file.
//!
//! A name is forgotten, with the dispatcher's number of the object, when its bytes are not in the cache and nothing
//! on this node needs the object ([`eyas_core::executor::Executor::needed_objects`]). This is never wrong, whatever
//! is on its way at that moment:
//!
//! * The messages with which the dispatcher gives work to do (an assignment, a prefetch, the names of what a hello
//!   listed) say the location with each number. So the object is named anew, with a new number of ours and the same
//!   number of the dispatcher.
//! * The messages without a location (to drop objects, to cancel prefetches) ask for nothing if the object is neither
//!   in the cache nor on its way, and a transfer that is on its way needs its object. Without a name they are not
//!   heard, which is the same.
//! * What this node tells is translated when it is told. It is about objects that are in the cache or leave it at
//!   that moment, about transfers, and about attempts. An attempt needs its objects until the dispatcher has
//!   recorded its end, so its reports can be repeated after a reconnect.
//! * Between a hello and its welcome, changes of the cache wait to be told. Nothing is forgotten then. If the
//!   dispatcher then names an object that was in the hello and has left the cache since, the executor answers, under the
//!   new number, that the object is gone.
//! * A later event of the driver about an object that is forgotten finds nothing in the state machine to change: no
//!   number of ours is given twice.
//!
//! What is lost is home's last answer about the object. Home is asked again if the object is named again.

use eyas_core::event::{Fetched, NodeEvent, TransferError, TransferErrorKind};
use eyas_terms::{Digest, HomeVersion, ObjectId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The number of names that are kept whether anything needs them or not: to forget so few would cost more than it
/// gives.
pub const NAMES_MIN: usize = 8_192;
/// The location of an object whose name is forgotten, as in a message about bytes that come late.
const FORGOTTEN: &str = "a file that is not needed here any more";
/// The location of an object that is held and of which only the digest is known.
const NAMELESS: &str = "digest:";

/// See the module.
#[derive(Default)]
pub struct Book {
    locations: HashMap<ObjectId, Arc<str>>,
    by_location: HashMap<Arc<str>, ObjectId>,
    /// The next number of an object. No number is given a second time, because the driver may still speak of an
    /// object that is forgotten.
    next: u32,
    /// The number of names that were left when unneeded ones were forgotten the last time.
    n_left: usize,
    /// The dispatcher's number of each of ours, and back.
    theirs: HashMap<ObjectId, ObjectId>,
    ours: HashMap<ObjectId, ObjectId>,
    /// Files of the cache by object, and how many objects share each.
    digest_of: HashMap<ObjectId, Digest>,
    n_users: HashMap<Digest, u32>,
    nameless: HashMap<Digest, ObjectId>,
}

impl Book {
    /// Of a process that finds `held` in its cache: digests and sizes. `origins`: from which places the bytes of each came, as
    /// an earlier process kept it; no place stands there twice. Gives the objects too, in the order of `held`: several where
    /// equal bytes have several names.
    pub fn restore(
        held: &[(Digest, u64)],
        mut origins: HashMap<Digest, Vec<(String, HomeVersion)>>,
    ) -> (Book, Vec<(ObjectId, Fetched)>) {
        let mut book = Book::default();
        let mut objects = vec![];
        for &(digest, size_bytes) in held {
            let names = origins.remove(&digest).unwrap_or_default();
            let mut found: Vec<(ObjectId, Option<HomeVersion>)> =
                names.into_iter().map(|(name, version)| (book.intern(&name), Some(version))).collect();
            if found.is_empty() {
                let object = book.intern(&format!("{NAMELESS}{digest}"));
                book.nameless.insert(digest, object);
                found.push((object, None));
            }
            for (object, version) in found {
                book.set_digest(object, digest);
                objects.push((object, Fetched { digest, size_bytes, version }));
            }
        }
        (book, objects)
    }

    pub fn intern(&mut self, location: &str) -> ObjectId {
        if let Some(object) = self.by_location.get(location) {
            return *object;
        }
        let object = ObjectId(self.next);
        self.next += 1;
        self.name(object, location);
        object
    }

    fn name(&mut self, object: ObjectId, location: &str) {
        let location: Arc<str> = location.into();
        self.locations.insert(object, location.clone());
        self.by_location.insert(location, object);
    }

    /// How many objects have a name.
    pub fn n_names(&self) -> usize {
        self.locations.len()
    }

    /// Whether so many names have come since the last [`Self::forget_names`] that another call is worth its cost.
    /// `n_min`: this many names are kept in any case.
    pub fn has_grown(&self, n_min: usize) -> bool {
        self.n_names() > n_min.max(2 * self.n_left)
    }

    /// Forgets the names and pairs of all objects but those that are `needed` or whose bytes are in the cache.
    pub fn forget_names(&mut self, needed: &BTreeSet<ObjectId>) {
        let Book { locations, by_location, theirs, ours, digest_of, .. } = self;
        let is_needed = |object: &ObjectId| needed.contains(object) || digest_of.contains_key(object);
        locations.retain(|object, _| is_needed(object));
        by_location.retain(|_, object| is_needed(object));
        theirs.retain(|object, _| is_needed(object));
        ours.retain(|_, object| is_needed(object));
        self.n_left = self.locations.len();
        if self.locations.capacity() > 4 * self.n_left.max(NAMES_MIN) {
            self.locations.shrink_to(2 * self.n_left);
            self.by_location.shrink_to(2 * self.n_left);
            self.theirs.shrink_to(2 * self.n_left);
            self.ours.shrink_to(2 * self.n_left);
        }
    }

    /// As [`Self::intern`], but when the bytes are known and lie here without a name, they get this one.
    pub fn intern_known(&mut self, location: &str, digest: Option<Digest>) -> ObjectId {
        if let Some(digest) = digest
            && !self.by_location.contains_key(location)
            && let Some(object) = self.nameless.remove(&digest)
            && self.digest_of.get(&object) == Some(&digest)
        {
            let nameless = self.location(object).to_string();
            self.by_location.remove(nameless.as_str());
            self.name(object, location);
            return object;
        }
        self.intern(location)
    }

    /// Whether the object is not forgotten.
    pub fn has_name(&self, object: ObjectId) -> bool {
        self.locations.contains_key(&object)
    }

    /// For people and for home: the location, or words in its place when it is forgotten.
    pub fn location(&self, object: ObjectId) -> &str {
        self.locations.get(&object).map_or(FORGOTTEN, |location| location)
    }

    /// The location, unless only the digest is known or the name is forgotten.
    pub fn find_name(&self, object: ObjectId) -> Option<&str> {
        let location: &str = self.locations.get(&object)?;
        Some(location).filter(|l| !l.starts_with(NAMELESS))
    }

    /// The dispatcher calls `ours` `theirs`.
    pub fn pair(&mut self, ours: ObjectId, theirs: ObjectId) {
        // The dispatcher may have forgotten the object and named it anew: then its number of before means nothing.
        if let Some(before) = self.theirs.insert(ours, theirs).filter(|before| *before != theirs) {
            self.ours.remove(&before);
        }
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
        message: "these bytes were dropped from this node together with another object of the same bytes"
            .into(),
    };
    match event {
        NodeEvent::TransferEnded { target, source, result: Ok(bytes) } if !is_held(&bytes.digest) => {
            NodeEvent::TransferEnded { target, source, result: Err(gone()) }
        }
        NodeEvent::OutputStored { task, attempt, output, marks, result: Ok(bytes) }
            if !is_held(&bytes.digest) =>
        {
            NodeEvent::OutputStored { task, attempt, output, marks, result: Err(gone()) }
        }
        event => event,
    }
}
