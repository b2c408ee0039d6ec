//! The folder in which a program works, and which vanishes with its command.

use super::super::put::random;
use crate::print::reason;
use crate::{Exit, Fault};
use eyas_text::{say, shown_path};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder that vanishes with this command: the program works in `inside`, and outputs wait in `outputs`.
pub struct Work {
    pub inside: PathBuf,
    pub outputs: PathBuf,
    pub top: PathBuf,
}

impl Work {
    /// Makes the folders below the folder for temporary files that `$TMPDIR` names.
    pub fn new() -> Result<Work, Fault> {
        Work::below(&std::env::temp_dir(), "the variable TMPDIR names another folder for temporary files")
    }

    /// Makes the folders below another one; `hint` says how a user chooses that one.
    pub fn below(folder: &Path, hint: &str) -> Result<Work, Fault> {
        let top = folder.join(format!("eyas-at-data-{}-{:016x}", std::process::id(), random()?));
        let work = Work { inside: top.join("work"), outputs: top.join("outputs"), top };
        let make = |path: &Path| {
            fs::DirBuilder::new().mode(0o700).create(path).map_err(|error| {
                Fault::new(
                    Exit::Other,
                    format!("cannot make the folder {}: {}", shown_path(path), reason(&error)),
                )
                .hint(hint)
            })
        };
        make(&work.top)?;
        make(&work.inside)?;
        make(&work.outputs)?;
        Ok(work)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if eyas_runner::sandbox::remove_tree(&self.top).is_err() {
            say!("the folder {} could not be removed", shown_path(&self.top));
        }
    }
}

/// Removes a folder in which another thread may still make files.
pub fn remove_in_use(top: &Path) {
    for _ in 0..100 {
        if eyas_runner::sandbox::remove_tree(top).is_ok() && !top.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
