//! Which blocks of a cluster were ended by its earlier providers.
//!
//! A batch system may list a block for a while after it was told to end it. The next provider of the same cluster must not wait for
//! nodes of such a block. Blocks are numbered, and a provider ends all of its blocks at once, so one number says it all:
//! all blocks up to that number were ended. It stands in a file in the folder of the first dispatcher. A provider that is killed writes
//! none, because its blocks are there to be taken over.

use crate::files::replace;
use std::path::{Path, PathBuf};

fn file(dispatcher_dir: &Path) -> PathBuf {
    dispatcher_dir.join("provider.ended")
}

/// All blocks up to this number were ended; 0: none of them, as far as is known.
pub(super) fn ended_max(dispatcher_dir: &Path) -> u32 {
    let text = std::fs::read_to_string(file(dispatcher_dir)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Notes that all blocks up to this number are being ended.
pub(super) fn note(dispatcher_dir: &Path, number: u32) {
    if number <= ended_max(dispatcher_dir) {
        return;
    }
    let path = file(dispatcher_dir);
    // Without the note the next provider waits in vain for a while, if it is started at once.
    if let Err(e) = replace(&path, format!("{number}\n").as_bytes()) {
        eyas_text::say!("cannot write {}: {e}", eyas_text::shown_path(&path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_only_grows_and_a_file_that_is_no_number_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ended_max(dir.path()), 0);
        note(dir.path(), 7);
        note(dir.path(), 3);
        assert_eq!(ended_max(dir.path()), 7);
        std::fs::write(file(dir.path()), "seven").unwrap();
        assert_eq!(ended_max(dir.path()), 0);
        note(dir.path(), 8);
        assert_eq!(ended_max(dir.path()), 8);
    }
}
