//! What programs of watched tasks ask for and make: files that nobody declared, as the agent and the supervisors of programs name them
//! to each other.

use eyas_core::event::Exit;
use eyas_runner::{ByteString, OutputState};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

/// What home has under a name. `None`: nothing; `Err`: why it is not known, as a sentence.
pub(super) type Answer<T> = Result<Option<T>, String>;

/// The copy on this node of a file that a program has opened.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) path: PathBuf,
    pub(super) modified_ns: Option<i64>,
    pub(super) mode: Option<u32>,
}

/// What is in a directory at home, by name.
pub(super) type Entries = BTreeMap<String, Entry>;

#[derive(Clone, Debug)]
pub(super) enum Entry {
    Folder,
    File { size_bytes: u64, modified: Option<SystemTime>, mode: Option<u32> },
}

/// A file that the program made.
#[derive(Debug)]
pub(super) struct MadeFile {
    /// Its name below the sandbox.
    pub(super) name: String,
    /// Where it really is, which differs where the name is a link.
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    pub(super) mode: u32,
    pub(super) modified_ns: i64,
    pub(super) n_links: u64,
}

impl MadeFile {
    /// The ways to say an output of a watched program that slot processes say of declared ones.
    pub(super) fn state(self) -> OutputState {
        let MadeFile { path, size_bytes, mode, modified_ns, n_links, .. } = self;
        OutputState::File { path: ByteString::from(path.as_path()), size_bytes, mode, modified_ns, n_links }
    }
}

/// The end of a watched program whose new files wait to be admitted.
pub(super) struct FoundFiles {
    pub(super) exit: Box<Exit>,
    pub(super) made: Vec<MadeFile>,
    pub(super) locations: Vec<String>,
}
