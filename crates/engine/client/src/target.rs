//! Which cluster a client works with: its join file, who chose that, and what the file said when it was read.
//!
//! A join file is read once for what is done with a cluster. It is read again where nobody answers any more: a dispatcher that was
//! restarted has written another address.

use eyas_wire::identity::{IdentityError, Join};
use std::fmt;
use std::path::{Path, PathBuf};

/// Who chose a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A user, by the path of its join file.
    Named,
    /// A command whose user named none, among the clusters of this machine.
    Found,
    /// This process, which started the cluster for itself.
    Own,
}

/// The path of a join file, which has not been read yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinFile {
    path: PathBuf,
    choice: Choice,
}

impl JoinFile {
    pub fn new(path: PathBuf, choice: Choice) -> JoinFile {
        JoinFile { path, choice }
    }

    /// The file that a user named.
    pub fn named(path: PathBuf) -> JoinFile {
        JoinFile::new(path, Choice::Named)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// The cluster, as the file says now. Errors: as of [`Join::read`].
    pub fn read(&self) -> Result<Target, IdentityError> {
        Ok(Target { file: self.clone(), join: Join::read(&self.path)? })
    }
}

/// A cluster whose join file was read.
#[derive(Clone)]
pub struct Target {
    file: JoinFile,
    join: Join,
}

impl Target {
    /// The file that was read, for whoever has to read it again.
    pub fn file(&self) -> &JoinFile {
        &self.file
    }

    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// What the file said when it was read.
    pub fn join(&self) -> &Join {
        &self.join
    }

    /// The cluster's id.
    pub fn cluster(&self) -> &str {
        &self.join.cluster
    }

    /// The dispatcher's folder on the dispatcher's machine, which may be another one.
    pub fn dir(&self) -> &Path {
        Path::new(&self.join.dir)
    }

    /// The dispatcher's folder, if it is on this machine.
    pub fn dir_here(&self) -> Option<&Path> {
        Some(self.dir()).filter(|dir| dir.is_dir())
    }
}

impl fmt::Debug for Target {
    /// Without the cluster's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.file).finish()
    }
}
