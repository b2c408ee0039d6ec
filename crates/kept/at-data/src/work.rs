//! The folders of a program: it works in one, and its outputs wait in the other.

use crate::error::Result;
use crate::program::Temporary;
use std::path::{Path, PathBuf};

/// The program works in `inside`, and outputs wait in `outputs`.
pub struct WorkFolder {
    pub inside: PathBuf,
    pub outputs: PathBuf,
    pub top: Temporary,
}

impl WorkFolder {
    /// Makes the folders below the folder for temporary files that `$TMPDIR` names.
    pub fn new() -> Result<WorkFolder> {
        WorkFolder::of(Temporary::new("at-data")?)
    }

    /// Makes the folders below another one; `hint` says how a user chooses that one.
    pub fn below(folder: &Path, hint: &str) -> Result<WorkFolder> {
        WorkFolder::of(Temporary::below(folder, "at-data", hint)?)
    }

    fn of(top: Temporary) -> Result<WorkFolder> {
        Ok(WorkFolder { inside: top.folder("work")?, outputs: top.folder("outputs")?, top })
    }
}
