//! The executor's own directory: the cache, sandboxes, private copies of inputs, and notes of what is on its way home.
//!
//! The store's lock says that no other executor lives in the directory. So whatever an earlier process has left in it is
//! nobody's, and is removed before anything begins. Only the cache is kept, and the notes of files that were on their way home:
//! those files are removed there.

use super::{AttemptId, ExecutorError, ExecutorOptions};
use crate::executor::home_io::times_beside;
use crate::executor::landings::Landings;
use crate::executor::made::trees::{self, Trees};
use crate::executor::system_users::{check_folder, let_pass};
use eyas_data::{LinkAbility, Store};
use std::io;
use std::path::{Path, PathBuf};

/// What is in the directory when this process has taken it over.
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) store: Store,
    pub(super) sandboxes: PathBuf,
    pub(super) private: PrivateCopies,
    pub(super) trees: Trees,
    pub(super) landings: Landings,
    /// Temporary files that an earlier process has left at home.
    pub(super) left_at_home: Vec<PathBuf>,
}

/// Makes the directory that `options` names, unless it is there. Gives its one absolute path.
pub(super) fn make(options: &ExecutorOptions) -> Result<PathBuf, ExecutorError> {
    std::fs::create_dir_all(&options.dir).map_err(dir_error(options))?;
    options.dir.canonicalize().map_err(dir_error(options))
}

/// An error in the directory, with the path that the user gave.
pub(super) fn dir_error(options: &ExecutorOptions) -> impl Fn(io::Error) -> ExecutorError + Copy {
    |source| ExecutorError::Dir { path: options.dir.display().to_string(), source }
}

impl Directory {
    /// Takes over the directory `path`, which [`make`] gave. Errors: another executor lives there, or the disk refuses.
    pub(super) fn take_over(path: PathBuf, options: &ExecutorOptions) -> Result<Directory, ExecutorError> {
        let dir_error = dir_error(options);
        let for_others = options.system_users.is_some();
        let store = Store::open(&path, options.cache_bytes)?;
        let sandboxes = path.join("sandbox");
        let private = PrivateCopies { dir: path.join("private") };
        for dir in [&sandboxes, &private.dir] {
            own_dir(dir).map_err(dir_error)?;
        }
        if for_others {
            check_folder(&path).map_err(ExecutorError::Config)?;
            for dir in [&path, &sandboxes, &private.dir] {
                let_pass(dir).map_err(dir_error)?;
            }
        }
        let (landings, left_at_home) = Landings::open(&path).map_err(dir_error)?;
        eyas_runner::reaper::end_inhabitants(&sandboxes);
        eyas_runner::sandbox::clean_leftovers(&sandboxes, |_| false)?;
        private.clear().map_err(dir_error)?;
        say_how_inputs_are_linked(&path, store.links_to(&sandboxes)?);
        let trees = Trees::open(&path, for_others).map_err(dir_error)?;
        Ok(Directory { path, store, sandboxes, private, trees, landings, left_at_home })
    }
}

fn say_how_inputs_are_linked(path: &Path, links: LinkAbility) {
    match links {
        LinkAbility::HardLink => {}
        LinkAbility::Reflink => {
            eyas_text::say!("eyas: {}: hard links are refused, inputs are reflinked", path.display())
        }
        LinkAbility::Copy => {
            eyas_text::say!("eyas: {}: hard links are refused, inputs are copied", path.display())
        }
    }
}

/// A directory for this user alone, because inputs that others may not read lie in it.
fn own_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

/// Copies of inputs that one attempt has for itself, outside the cache.
pub(super) struct PrivateCopies {
    dir: PathBuf,
}

impl PrivateCopies {
    pub(super) fn path(&self, (task, attempt): AttemptId, input: u32) -> PathBuf {
        self.dir.join(format!("{task}-{attempt}-{input}"))
    }

    /// Removes one copy. A copy that is not there is as good as removed.
    pub(super) fn remove(&self, id: AttemptId, input: u32) {
        let path = self.path(id, input);
        trees::remove(&path);
        let _ = std::fs::remove_file(times_beside(&path));
    }

    /// Removes all copies of an attempt that is over.
    pub(super) fn remove_all(&self, id: AttemptId, n_inputs: u32) {
        for input in 0..n_inputs {
            let path = self.path(id, input);
            if path.exists() {
                self.remove(id, input);
            }
        }
    }

    /// Removes the copies that an earlier process has left.
    fn clear(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.dir)?.flatten() {
            trees::remove(&entry.path());
        }
        Ok(())
    }
}
