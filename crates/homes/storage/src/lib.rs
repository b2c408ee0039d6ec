//! Home storage: where objects persistently live, behind one trait.
//!
//! Input: [`Location`]s. Output: bytes, [`Stat`]s and [`Error`]s that say whether trying again can help. Everything is
//! synchronous and meant for blocking threads; one adaptor serves many threads at once.
//!
//! * `kinds`: the list of all kinds of home, and below it an adaptor for each: [`FileHome`] (paths of this machine, local or
//!   shared), [`HttpHome`] (read only), buckets in clouds, commands of the user ([`Declared`]) and others. How to add one is said
//!   there. What a kind says about itself is in `kind`, and [`schemes`] are known in this crate only;
//! * [`canonical`]: what people write to the one text of a location;
//! * `wrappers`, each a [`Home`] around a [`Home`]: [`Retry`], [`Limited`], [`Chaos`];
//! * [`signed`]: what keeps the queries of signed URLs out of all texts;
//! * [`pattern`]: how a name matches a pattern of a shell, for listings and for other readers of users' patterns;
//! * [`Homes`] opens a home of each kind, puts the wrappers around it, and picks the home for a location.
//!
//! Invariants, checked by [`conformance`] for each adaptor:
//!   1. the [`Stat`] of an [`Opened`] belongs to the very bytes that its reader gives;
//!   2. a reader gives exactly the bytes asked for, or an error: never fewer in silence;
//!   3. a name appears at home only when all its bytes are there; a failed write leaves nothing behind.
//!
//! Why wrappers: retry, limits and injected faults are the same for every system, so no adaptor has code for them and
//! every adaptor gets them.
//!
//! A directory may be one object, too ([`Location::is_directory`]): its bytes are those that `eyas-folder` makes of it.
//!
//! Not here: digests, caches and which location to read from; `eyas-core` decides, `eyas-data` verifies.

pub mod canonical;
mod config;
pub mod conformance;
mod error;
mod homes;
mod kind;
mod kinds;
mod location;
mod parts;
pub mod pattern;
mod put;
mod scheme;
pub mod signed;
#[cfg(test)]
mod testserver;
mod tied;
mod tree;
mod version;
mod web;
mod wrappers;
mod xml;

pub use config::HomesConfig;
pub use error::{Error, ErrorKind, Result, Status};
pub use eyas_folder::{LeftOut, NOT_UTF8, NOWHERE, files_below};
pub use homes::{Homes, beginnings_with_places};
pub use kinds::command::{COMMANDS, Declared, PRESETS, declare};
pub use kinds::data::{DATA_CAPABILITIES, DataPlace, NewData, label_of, provide_data};
pub use kinds::file::near::file_system_of;
pub use kinds::file::{FileHome, free_bytes, url_of_path};
pub use kinds::http::HttpHome;
pub use location::Location;
pub use parts::PART_PREFIX;
pub use put::{Fence, Open, Part, Put};
pub use scheme::schemes;
pub use version::{Strength, Version};
pub use web::HttpConfig;
pub use wrappers::chaos::{Chaos, ChaosConfig, ChaosCounts};
pub use wrappers::limited::{Limited, Limits};
pub use wrappers::retry::{Retry, RetryConfig};

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a kind of home storage can do. Operations that are not declared answer `Unsupported`. There is a field for what
/// the code or the conformance suite asks, and for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the adaptor, for messages.
    pub name: &'static str,
    /// `open` without a range.
    pub read: bool,
    /// `open` with a range.
    pub read_range: bool,
    /// `stat`.
    pub stat: bool,
    /// `write`.
    pub write: bool,
    /// A written object appears at once, and replaces an older one at once.
    pub atomic_rename: bool,
    /// A later writer keeps an earlier one's object from appearing; see [`Put`]. Where it is not so, only the
    /// [`Fence`] does.
    pub fences: bool,
    /// `list`.
    pub list: bool,
    /// `remove`.
    pub remove: bool,
    /// `local_path` may answer, and `Opened::file` may be there.
    pub local_path: bool,
    /// A location that ends in `/` is a directory as one object.
    pub directories: bool,
    /// `rename`.
    pub rename: bool,
    /// There are directories without files: `make_directory` and `remove_directory`.
    pub make_directory: bool,
    /// Objects have permission bits: `mode` and `set_mode`.
    pub modes: bool,
}

/// What is known of an object without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Size of the whole object, also when only a range was opened.
    pub size_bytes: u64,
    /// Equal versions mean equal bytes, as far as the home can tell; see [`Strength`].
    pub version: Version,
}

/// An object opened for reading. While it lives it holds its place in the stream limit of [`Limited`].
pub struct Opened {
    /// The location that was opened.
    pub location: Location,
    /// Taken from the opened handle or the answer itself, so it belongs to the bytes of `reader`.
    pub stat: Stat,
    /// The bytes that `reader` gives, from its first to its last.
    pub range: Range<u64>,
    /// Exactly the bytes of `range`, else an error ([`Error::from_read`] unpacks it).
    pub reader: Box<dyn Read + Send>,
    /// The file itself where there is one, for `copy_file_range` or a reflink of `range` instead of `reader`. Keep the
    /// `Opened` alive meanwhile and call [`Opened::check_unchanged`] afterwards. Its file offset means nothing.
    pub file: Option<Arc<File>>,
    /// Of a directory: the times of all that is in it, as [`eyas_folder::Tree::times`] gives them.
    pub times: Vec<i64>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({:?}, {:?}, {:?})", self.location, self.stat, self.range)
    }
}

impl Opened {
    /// After a copy through `file`: still the version that was opened? (`reader` checks this on its own.)
    pub fn check_unchanged(&self) -> Result<()> {
        match &self.file {
            Some(file) => kinds::file::check_unchanged(file, &self.location, &self.stat),
            None => Ok(()),
        }
    }
}

/// What a listing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// In order, each once.
    pub found: Vec<Location>,
    /// What is there, too, and cannot be brought.
    pub left_out: Vec<LeftOut>,
    /// The directories below one that is listed in which nothing is, by their names from there on; that one itself has an empty name.
    /// Only homes that have directories know them.
    pub empty: Vec<String>,
}

impl Listed {
    /// What has these names below a directory.
    pub(crate) fn of(directory: &Location, names: tree::Names) -> Listed {
        let mut listed = Listed { found: vec![], left_out: names.left_out, empty: names.empty };
        for name in &names.found {
            match directory.join(name) {
                Ok(location) => listed.found.push(location),
                Err(error) => listed.left_out.push(LeftOut::new(name, error)),
            }
        }
        listed.in_order()
    }

    fn in_order(mut self) -> Listed {
        self.found.sort_unstable();
        self.found.dedup();
        self.left_out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.left_out.dedup();
        self.empty.sort_unstable();
        self
    }
}

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Every file below this directory, hidden ones too. Links are followed, but not in circles.
    Under(Location),
    /// The files that match, by the rules of a shell: `*`, `?`, `[a-z]`, `[!a]`, and `**` for any number of directories.
    /// Hidden names match only a pattern that starts with a dot.
    Glob {
        /// Where a relative pattern starts; taken literally.
        directory: Location,
        /// Relative to `directory`, or an absolute path.
        pattern: String,
    },
}

impl Listing {
    /// A pattern if `text` has one of `*?[`, else the directory it names; relative to the absolute directory `base`.
    ///
    /// A URL is a pattern only where its home can list: elsewhere a `?` begins a query.
    pub fn parse(text: &str, base: &Path) -> Result<Listing> {
        if let Some(url) = canonical::Url::split(text) {
            return match url.split_pattern() {
                Some((directory, pattern)) => {
                    Ok(Listing::Glob { directory: Location::parse(&directory, base)?, pattern })
                }
                None => Ok(Listing::Under(Location::parse(text, base)?)),
            };
        }
        if !pattern::has_wildcard(text) {
            return Ok(Listing::Under(Location::parse(text, base)?));
        }
        Ok(Listing::Glob { directory: Location::from_path(base)?, pattern: text.to_owned() })
    }

    /// The directory, for choosing a home and for messages.
    pub fn directory(&self) -> &Location {
        match self {
            Listing::Under(directory) | Listing::Glob { directory, .. } => directory,
        }
    }
}

/// A part of an object, and the hosts that have it on their disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartPlace {
    pub range: Range<u64>,
    /// As the home calls them: names or addresses.
    pub hosts: Vec<String>,
}

/// A whole object that was read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    pub stat: Stat,
    pub bytes: Vec<u8>,
}

/// One kind of home storage. Calls block; every method may be called from many threads at once.
pub trait Home: Send + Sync {
    /// What this home can do.
    fn capabilities(&self) -> &'static Capabilities;

    /// Size and version of the object, without its bytes.
    fn stat(&self, location: &Location) -> Result<Stat>;

    /// The answer of [`Home::stat`] where that surely takes no longer than some microseconds. `None`: `stat` has to be
    /// asked, on a thread that may wait.
    fn stat_at_once(&self, location: &Location) -> Option<Stat> {
        let _ = location;
        None
    }

    /// Starts reading the whole object or `range` of it, which has to lie inside (`InvalidRange` otherwise).
    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened>;

    /// Starts reading the object from its first byte: all of it, or at least `most_bytes` of it where the home can leave the
    /// others for later `open`s without losing anything. [`Opened::range`] says which.
    fn open_first(&self, location: &Location, most_bytes: u64) -> Result<Opened> {
        let _ = most_bytes;
        self.open(location, None)
    }

    /// How many small objects [`Home::read_several`] can be asked for where `location` is; 0: it cannot.
    fn several_max(&self, location: &Location) -> usize {
        let _ = location;
        0
    }

    /// Reads whole objects of at most `most_bytes` each, in one request. All of them are on the host of the first one. What does
    /// not come in this way, for whatever reason, is `None`: asked for by itself, it comes or the error says why not.
    fn read_several(&self, locations: &[Location], most_bytes: u64) -> Result<Vec<Option<Whole>>> {
        let _ = most_bytes;
        Ok(vec![None; locations.len()])
    }

    /// Makes an object of all that `body` gives, replacing an older one. Parent directories are created. When this
    /// returns the object is durable under its name; when it fails, an older object is untouched.
    ///
    /// Errors: `GivenUp` when the fence of `put` refused.
    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat>;

    /// Whether this process can write there, as far as it knows that without a word from the home: this kind of home takes
    /// objects, and there are credentials.
    fn may_write(&self, location: &Location) -> Result<()> {
        match self.capabilities().write {
            true => Ok(()),
            false => Err(Error::unsupported("write", location, self.capabilities().name)),
        }
    }

    /// [`Home::put`] without rivals.
    fn write(&self, location: &Location, body: &mut dyn Read, size_hint_bytes: Option<u64>) -> Result<Stat> {
        self.put(location, body, &Put::simple(size_hint_bytes))
    }

    /// Removes a temporary object that a writer has [noted](Fence::part_begins) and that no writer is writing now. Nothing
    /// there is no error.
    fn remove_part(&self, part: &Path) -> Result<()> {
        let _ = part;
        Ok(())
    }

    /// Removes the temporary objects of earlier writers of `location` than `part`, which may not write it any more. Nothing there,
    /// or no place where it could be, is no error.
    fn remove_parts(&self, location: &Location, part: &Part) -> Result<()> {
        let _ = (location, part);
        Ok(())
    }

    /// Ends the writings of objects at or below `place` that never came to their end and that this home keeps, as the parts of an
    /// upload, also those of writers that still live. Gives their number.
    fn end_unfinished(&self, place: &Location) -> Result<u64> {
        let _ = place;
        Ok(0)
    }

    /// The locations of all files that match, sorted, none twice. No match is an empty list; a directory that is not
    /// there, or that may not be read, is an error.
    fn list(&self, listing: &Listing) -> Result<Listed>;

    /// Removes one object. `NotFound` when there is none.
    fn remove(&self, location: &Location) -> Result<()>;

    /// Gives an object another name at this home, at once; its bytes stay where they are. An older object of that name is replaced,
    /// and parent directories are created. Where `from` ends in `/` it is a directory with all that is below it, which replaces
    /// nothing.
    ///
    /// Gives `false`, and has changed nothing, where this home cannot do that with these two.
    fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        let _ = (from, to);
        Ok(false)
    }

    /// Makes a directory, and those above it. One that is there is no error.
    fn make_directory(&self, location: &Location) -> Result<()> {
        Err(Error::unsupported("make the directory", location, self.capabilities().name))
    }

    /// Removes a directory with all that is below it. Links are removed, and not what they lead to. Gives the number of files, as it
    /// was before. `NotFound` when there is none. An error knows how many are gone ([`Error::n_removed`]).
    fn remove_directory(&self, location: &Location) -> Result<u64> {
        Err(Error::unsupported("remove the directory", location, self.capabilities().name))
    }

    /// The permission bits of an object, where it has any.
    fn mode(&self, location: &Location) -> Result<Option<u32>> {
        Ok(self.stat(location)?.version.mode())
    }

    /// Changes the permission bits of an object or a directory.
    ///
    /// * `mode`: at most `0o777`.
    fn set_mode(&self, location: &Location, mode: u32) -> Result<()> {
        let _ = mode;
        Err(Error::unsupported("change the permissions of", location, self.capabilities().name))
    }

    /// On which hosts the object lies, where the home knows that ([`beginnings_with_places`]): its parts in order. An empty list: it
    /// does not know.
    fn places(&self, location: &Location) -> Result<Vec<PartPlace>> {
        let _ = location;
        Ok(vec![])
    }

    /// The path of the object where home is this node's own disk, so that nothing need be copied.
    fn local_path(&self, location: &Location) -> Option<PathBuf> {
        let _ = location;
        None
    }
}

/// The next number of a seeded stream: SplitMix64 (Steele, Lea and Flood 2014), a pure function of its input.
pub(crate) fn splitmix64(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stable 64-bit hash (FNV-1a): equal on every machine and in every release, so it may be stored.
pub(crate) fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
