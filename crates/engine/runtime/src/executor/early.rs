//! Small objects that came with home's first answer about them.
//!
//! Before an object is read its size has to be known, because room is reserved first. For a small object the question costs as
//! much as the bytes: a round trip, and on a server mostly the same work. Files of one folder are like each other, and folders
//! beside each other have files of the same kind. So once an object turned out to be small, the next ones there are asked for by
//! opening them. What is small indeed is kept here until the read that follows, which then needs no request.
//!
//! Where home can read several small objects in one request, that is done for those that wait to be asked about.
//!
//! What is kept is bounded in bytes. An object that is dropped, or that was not small after all, is read as ever.
//!
//! Not here: which objects are going to be read ([`eyas_core::executor`] says so).

use eyas_storage::{Error, Home, Location, Opened, Stat, Whole};
use eyas_terms::ObjectId;
use std::collections::{HashMap, VecDeque};
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects up to this size are small. A wrong guess costs home this much.
pub(super) const SMALL_BYTES_MAX: u64 = 64 << 10;
/// Bytes that are kept at most.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// Folders that are remembered; with more of them all are forgotten, and found again.
const FOLDERS_MAX: usize = 4096;
/// So many folders, that of the object and those above it, are taken to have objects of the same kind.
const FOLDERS_UP: usize = 3;

/// Numbers of what is kept no more that stay in the order before they are looked for.
const ORDER_SLACK: usize = 64;

/// See the module. All clones are one.
#[derive(Clone, Default)]
pub(super) struct Early(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Whether the last object that home was asked about in a folder, or below it, was small.
    folders: HashMap<String, bool>,
    kept: HashMap<ObjectId, KeptFile>,
    /// Numbers of what was kept, oldest first. Some of what was taken since are still among them.
    order: VecDeque<(u64, ObjectId)>,
    next_number: u64,
    kept_bytes: u64,
}

struct KeptFile {
    number: u64,
    location: Location,
    stat: Stat,
    bytes: Vec<u8>,
}

impl Early {
    /// Whether the object is likely to be small; `None`: nothing is known of its folder, nor of those above.
    pub(super) fn guess(&self, location: &Location) -> Option<bool> {
        let state = self.lock();
        folders_of(location).find_map(|folder| state.folders.get(folder).copied())
    }

    /// Home has said how large an object is.
    pub(super) fn note(&self, location: &Location, stat: &Stat) {
        let is_small = stat.size_bytes <= SMALL_BYTES_MAX;
        let mut state = self.lock();
        for folder in folders_of(location) {
            match state.folders.get_mut(folder) {
                Some(known) => *known = is_small,
                None => {
                    if state.folders.len() >= FOLDERS_MAX {
                        state.folders.clear();
                    }
                    state.folders.insert(folder.to_owned(), is_small);
                }
            }
        }
    }

    /// Size and version of the object. If it is small, its bytes are kept. Errors: those of [`Home::open`], and of its reader.
    pub(super) fn ask(&self, home: &dyn Home, object: ObjectId, location: &Location) -> Result<Stat, Error> {
        let mut opened = home.open_first(location, SMALL_BYTES_MAX)?;
        let stat = opened.stat.clone();
        self.note(location, &stat);
        // A directory is read with the times in it.
        let is_directory = !opened.times.is_empty();
        if !is_directory && stat.size_bytes <= SMALL_BYTES_MAX && opened.range == (0..stat.size_bytes) {
            let mut bytes = Vec::with_capacity(stat.size_bytes as usize + 1);
            opened
                .reader
                .read_to_end(&mut bytes)
                .map_err(|e| Error::from_read("read", location.as_str(), e))?;
            self.keep(object, location, Whole { stat: stat.clone(), bytes });
        }
        Ok(stat)
    }

    /// The whole object has come.
    pub(super) fn keep(&self, object: ObjectId, location: &Location, Whole { stat, bytes }: Whole) {
        self.note(location, &stat);
        let mut state = self.lock();
        state.remove(object);
        let number = state.next_number;
        state.next_number += 1;
        state.kept_bytes += bytes.len() as u64;
        state.order.push_back((number, object));
        state.kept.insert(object, KeptFile { number, location: location.clone(), stat, bytes });
        while state.kept_bytes > KEPT_BYTES_MAX
            && let Some((number, object)) = state.order.pop_front()
        {
            if state.is_kept(number, object) {
                state.remove(object);
            }
        }
        if state.order.len() > 2 * state.kept.len() + ORDER_SLACK {
            let mut order = std::mem::take(&mut state.order);
            order.retain(|(number, object)| state.is_kept(*number, *object));
            state.order = order;
        }
    }

    /// The bytes of the object that came with the last answer about it. They are given once.
    pub(super) fn take(&self, object: ObjectId, location: &str) -> Option<Opened> {
        let kept = self.lock().remove(object)?;
        let KeptFile { location, stat, bytes, .. } =
            Some(kept).filter(|kept| kept.location.as_str() == location)?;
        let range = 0..stat.size_bytes;
        Some(Opened {
            location,
            stat,
            range,
            reader: Box::new(Cursor::new(bytes)),
            file: None,
            times: vec![],
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_kept(&self, number: u64, object: ObjectId) -> bool {
        self.kept.get(&object).is_some_and(|kept| kept.number == number)
    }

    fn remove(&mut self, object: ObjectId) -> Option<KeptFile> {
        let kept = self.kept.remove(&object)?;
        self.kept_bytes -= kept.bytes.len() as u64;
        Some(kept)
    }
}

/// The object's folder and the folders above it, as many as are remembered.
fn folders_of(location: &Location) -> impl Iterator<Item = &str> {
    let text = location.as_str();
    let home = text.find("://").map_or(0, |at| at + 3);
    let mut end = text.len();
    std::iter::from_fn(move || {
        end = home + text[home..end].rfind('/')?;
        Some(&text[..end])
    })
    .take(FOLDERS_UP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_storage::{Homes, HomesConfig};
    use std::path::Path;

    fn at(path: &Path) -> Location {
        Location::from_path(path).unwrap()
    }

    fn read(opened: Opened) -> Vec<u8> {
        let mut bytes = vec![];
        let mut reader = opened.reader;
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_small_object_comes_with_the_answer_and_is_given_once() {
        let dir = tempfile::tempdir().unwrap();
        let homes = Homes::new(HomesConfig::default()).unwrap();
        let (small, large) = (dir.path().join("small"), dir.path().join("large"));
        std::fs::write(&small, b"bytes").unwrap();
        std::fs::write(&large, vec![0; SMALL_BYTES_MAX as usize + 1]).unwrap();
        let early = Early::default();
        let (small, large) = (at(&small), at(&large));
        assert_eq!(early.guess(&small), None);
        let stat = early.ask(&**homes.get(&small), ObjectId(1), &small).unwrap();
        assert_eq!(stat, homes.stat(&small).unwrap());
        assert_eq!(early.guess(&large), Some(true), "files of one folder are like each other");
        let beside = at(&dir.path().parent().unwrap().join("other/file"));
        assert_eq!(early.guess(&beside), Some(true), "and so are those of the folders beside it");
        assert_eq!(early.guess(&"s3://bucket/small".parse().unwrap()), None);
        assert!(early.take(ObjectId(2), small.as_str()).is_none());
        let opened = early.take(ObjectId(1), small.as_str()).unwrap();
        assert_eq!((opened.stat.clone(), opened.range.clone()), (stat, 0..5));
        assert_eq!(read(opened), b"bytes");
        assert!(early.take(ObjectId(1), small.as_str()).is_none());
        // A wrong guess keeps nothing, and is not repeated.
        let stat = early.ask(&**homes.get(&large), ObjectId(1), &large).unwrap();
        assert_eq!(stat.size_bytes, SMALL_BYTES_MAX + 1);
        assert!(early.take(ObjectId(1), large.as_str()).is_none());
        assert_eq!(early.guess(&small), Some(false));
        // The number of an object that is forgotten may be another object's.
        early.ask(&**homes.get(&small), ObjectId(1), &small).unwrap();
        assert!(early.take(ObjectId(1), large.as_str()).is_none());
    }

    #[test]
    fn folders_end_at_their_home() {
        let folders =
            |text: &str| -> Vec<String> { folders_of(&text.parse().unwrap()).map(str::to_owned).collect() };
        assert_eq!(folders("s3://b/x/y"), ["s3://b/x", "s3://b"]);
        assert_eq!(folders("s3://b/1/2/3/4"), ["s3://b/1/2/3", "s3://b/1/2", "s3://b/1"]);
        assert_eq!(folders("/x/y"), ["/x", ""]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let early = Early::default();
        let dir = tempfile::tempdir().unwrap();
        let place = at(&dir.path().join("file"));
        std::fs::write(dir.path().join("file"), b"").unwrap();
        let stat = Homes::new(HomesConfig::default()).unwrap().stat(&place).unwrap();
        let bytes = vec![7; SMALL_BYTES_MAX as usize];
        let stat = Stat { size_bytes: SMALL_BYTES_MAX, ..stat };
        let n = 2 * (KEPT_BYTES_MAX / SMALL_BYTES_MAX) as u32;
        for object in 0..n {
            early.keep(ObjectId(object), &place, Whole { stat: stat.clone(), bytes: bytes.clone() });
            // The same number again replaces what was kept.
            early.keep(ObjectId(object), &place, Whole { stat: stat.clone(), bytes: bytes.clone() });
        }
        assert_eq!(early.lock().kept_bytes, KEPT_BYTES_MAX);
        let of = |state: &State| (state.order.len(), state.kept.len());
        let (n_order, n_kept) = of(&early.lock());
        assert!(n_order <= 2 * n_kept + ORDER_SLACK);
        assert!(early.take(ObjectId(n / 2 - 1), place.as_str()).is_none());
        let kept = early.take(ObjectId(n / 2), place.as_str()).unwrap();
        assert_eq!(read(kept), bytes);
        for object in 0..n {
            early.take(ObjectId(object), place.as_str());
        }
        let state = early.lock();
        assert_eq!((state.kept_bytes, state.kept.len()), (0, 0));
    }
}
