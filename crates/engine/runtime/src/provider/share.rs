//! The folder that blocks elsewhere read: the key to the cluster, and a script and what it printed for each block.
//!
//! It lies in the user's folder for state, which nodes and the dispatcher's machine must both mount. It is small, it goes when the
//! cluster ends, and a script that finds no key there ends at once.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Clone, Debug)]
pub struct Share {
    dir: PathBuf,
}

impl Share {
    /// The folder of the cluster with that id in `state`, the user's folder for state. It is made by [`Self::refresh`].
    pub fn of(state: &Path, cluster: &str) -> Share {
        Share { dir: Share::all_in(state).join(cluster) }
    }

    /// The folder of all these folders.
    pub(super) fn all_in(state: &Path) -> PathBuf {
        state.join("eyas")
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The copy of the join file.
    pub fn join(&self) -> PathBuf {
        self.dir.join("join.json")
    }

    pub(super) fn script(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.sh"))
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    /// Copies the join file as it is now: a dispatcher that was started again has another address.
    pub fn refresh(&self, join: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let content = for_nodes(std::fs::read(join)?);
        if std::fs::read(self.join()).is_ok_and(|known| known == content) {
            return Ok(());
        }
        self.write("join.json", &content, 0o600)
    }

    /// Writes a file of the folder; whoever reads it sees all of it or what was there before.
    pub(super) fn write(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        let part = self.dir.join(format!(".{name}.part"));
        let _ = std::fs::remove_file(&part);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&part)?;
        file.write_all(content)?;
        drop(file);
        std::fs::rename(&part, self.dir.join(name))
    }

    /// Whether the script of a block is there.
    pub(super) fn has_scripts(&self) -> bool {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().extension().is_some_and(|end| end == "sh"))
    }

    /// Removes the files of a block.
    pub(super) fn forget(&self, name: &str) {
        let _ = std::fs::remove_file(self.script(name));
        let _ = std::fs::remove_file(self.log(name));
    }

    /// Removes the folder: the cluster has ended.
    pub fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A join file without what only processes on the dispatcher's machine can use.
fn for_nodes(content: Vec<u8>) -> Vec<u8> {
    let Ok(mut join) = serde_json::from_slice::<serde_json::Value>(&content) else { return content };
    match join.as_object_mut().and_then(|join| join.remove("address_here")) {
        Some(_) => serde_json::to_vec_pretty(&join).unwrap_or(content),
        None => content,
    }
}
