//! What programs are shown of their inputs beside the bytes: when an input was modified, and its permissions.
//!
//! An object has the marks that its maker gave it, where a task made it; else those that its home says. Home's word counts as
//! soon as home has another version than the one that was made.

use crate::machine::umask;
use eyas_core::event::Known;
use eyas_folder::UNKNOWN_TIME_NS;
use eyas_storage::Version;
use eyas_terms::{HomeVersion, Marks, ObjectId};
use rustc_hash::FxHashMap;

/// So many objects are remembered whether they have a name or not.
const N_MIN: usize = 1024;

/// The marks of the objects of this node.
#[derive(Default)]
pub(super) struct Shown {
    of: FxHashMap<ObjectId, One>,
    /// How many were left when forgotten objects were left out the last time.
    n_left: usize,
}

struct One {
    modified_ns: Option<i64>,
    mode: Option<u32>,
    /// Home's version of it, if that is known.
    version: Option<HomeVersion>,
    /// Its maker gave it the marks.
    is_made: bool,
}

impl Shown {
    /// When the object was modified. `None`: nobody said anything about the object.
    pub(super) fn modified_ns(&self, object: ObjectId) -> Option<i64> {
        self.of.get(&object).map(|one| one.modified_ns.unwrap_or(UNKNOWN_TIME_NS))
    }

    /// The permission bits of the object, as far as they are known.
    pub(super) fn mode(&self, object: ObjectId) -> Option<u32> {
        self.of.get(&object)?.mode
    }

    /// The dispatcher knows this of the object.
    pub(super) fn learn(&mut self, object: ObjectId, known: &Known) {
        match known.marks {
            Some(marks) => {
                let version = Some(known.version.clone()).filter(|version| !version.stamp.is_empty());
                self.of.insert(object, One { version, ..One::made(marks) });
            }
            None => self.read(object, &known.version),
        }
    }

    /// A task of this node made the object.
    pub(super) fn made(&mut self, object: ObjectId, marks: Marks) {
        self.of.insert(object, One::made(marks));
    }

    /// Home has this version of the object.
    pub(super) fn read(&mut self, object: ObjectId, version: &HomeVersion) {
        if version.stamp.is_empty() {
            return;
        }
        match self.of.get_mut(&object) {
            // Said before, as with each task that reads the object.
            Some(one) if one.version.as_ref().is_some_and(|known| known.stamp == version.stamp) => {}
            Some(one) if one.is_made && one.version.as_ref().is_none_or(|made| made == version) => {
                one.version = Some(version.clone());
            }
            _ => {
                let (modified_ns, mode) = marks_of(version);
                let version = Some(version.clone());
                self.of.insert(object, One { modified_ns, mode, version, is_made: false });
            }
        }
    }

    /// Leaves out objects that have no name any more, if that is worth its cost.
    pub(super) fn forget(&mut self, is_named: impl Fn(ObjectId) -> bool) {
        if self.of.len() > N_MIN.max(2 * self.n_left) {
            self.of.retain(|object, _| is_named(*object));
            self.n_left = self.of.len();
        }
    }
}

impl One {
    fn made(marks: Marks) -> One {
        One { modified_ns: Some(marks.modified_ns), mode: Some(marks.mode), version: None, is_made: true }
    }
}

/// When home says that an object was modified, and its permission bits.
pub(super) fn marks_of(version: &HomeVersion) -> (Option<i64>, Option<u32>) {
    let version = Version::from_text(&*version.stamp);
    (version.modified_ns(), version.mode())
}

/// The permissions of an input that has these bits at home: as far as the mask allows, and its owner may write to it, because
/// programs copy the permissions of a file with its bytes, and a copy is theirs. `for_others`: the program runs as another user
/// than this process, who could not read a link otherwise.
pub(super) fn mode_of_input(at_home: Option<u32>, for_others: bool) -> u32 {
    let mode = (at_home.unwrap_or(0o666) & 0o777 | 0o600) & !umask();
    match for_others {
        // Nobody but the owner of the cache may write to it, whatever groups the other user is in.
        true if mode & 0o100 != 0 => mode & 0o755 | 0o555,
        true => mode & 0o644 | 0o444,
        false => mode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId(7);

    fn version(mtime_ns: i64) -> HomeVersion {
        HomeVersion { size_bytes: 1, stamp: format!("size=1;mtime_ns={mtime_ns}").into() }
    }

    #[test]
    fn what_its_maker_gave_an_object_counts_until_home_has_another_version() {
        let mut shown = Shown::default();
        assert_eq!(shown.modified_ns(OBJECT), None);
        shown.read(OBJECT, &HomeVersion { size_bytes: 1, stamp: "size=1;etag=x".into() });
        assert_eq!(shown.modified_ns(OBJECT), Some(UNKNOWN_TIME_NS));
        shown.made(OBJECT, Marks { modified_ns: 5, mode: 0o755 });
        // An object store says when it took the object.
        shown.read(OBJECT, &version(8));
        shown.read(OBJECT, &version(8));
        assert_eq!((shown.modified_ns(OBJECT), shown.mode(OBJECT)), (Some(5), Some(0o755)));
        shown.read(OBJECT, &version(9));
        assert_eq!((shown.modified_ns(OBJECT), shown.mode(OBJECT)), (Some(9), Some(0o644)));
        shown.read(OBJECT, &HomeVersion::default());
        assert_eq!(shown.modified_ns(OBJECT), Some(9));
    }

    #[test]
    fn permissions_of_inputs_are_those_of_other_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let usual = file.path().with_extension("usual");
        std::fs::write(&usual, "").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&usual).unwrap().permissions());
        std::fs::remove_file(&usual).unwrap();
        assert_eq!(mode_of_input(None, false), mode & 0o777);
        assert_eq!(mode_of_input(Some(0o444), false) & !umask(), mode_of_input(Some(0o644), false));
        assert_eq!(mode_of_input(Some(0o400), false), 0o600 & !umask());
        assert_eq!(mode_of_input(Some(0o700), true) & 0o577, 0o555);
        assert_eq!(mode_of_input(Some(0o666), true) & 0o577, 0o444);
    }
}
