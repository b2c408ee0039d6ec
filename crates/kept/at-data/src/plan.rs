//! What travels between the command that waits and the job: a plan there, a report back. Both are files of one folder that only
//! their user may read, as the plan has the keys of stores.

use crate::error::{Error, ErrorKind, Result};
use eyas_catalog::{CarriedFile, CarriedSite, is_plain_path};
use eyas_data::Digest;
use eyas_text::{reason, shown_path};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a job does.
#[derive(Serialize, Deserialize)]
pub struct Plan {
    pub inputs: Vec<PlannedInput>,
    /// What the program makes, and its path in the new data set.
    pub outputs: Vec<(PathBuf, PathBuf)>,
    pub command: Vec<String>,
    /// Where a program that is named by a path is looked for.
    pub here: PathBuf,
    /// Where the outputs go.
    pub gathered: PathBuf,
    pub sites: BTreeMap<String, CarriedSite>,
    /// The names that the scheduler has for the host of each site.
    pub hosts_of: BTreeMap<String, BTreeSet<String>>,
    /// The host that was chosen when the job was submitted, where names are not resolved again on arrival.
    pub settled_for: Option<String>,
    /// Stores that may take the outputs, with the names that the scheduler has for the hosts from which each may take them.
    pub targets: BTreeMap<String, (CarriedSite, BTreeSet<String>)>,
}

impl Plan {
    /// # Errors
    /// A name in it leads out of the program's folder. A store gets plans from elsewhere.
    pub fn check_names(&self) -> Result<()> {
        let outputs = self.outputs.iter().flat_map(|(name, path)| [name.as_path(), path]);
        let files = self.inputs.iter().flat_map(|input| &input.files).map(|file| Path::new(&file.path));
        let mut names = self.inputs.iter().map(|input| input.name.as_path()).chain(outputs).chain(files);
        match names.find(|name| !name.to_str().is_some_and(is_plain_path)) {
            None => Ok(()),
            Some(name) => Err(Error::input(format!(
                "the plan names {}, which leads out of the program's folder",
                shown_path(name)
            ))),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub struct PlannedInput {
    /// The name that the program knows.
    pub name: PathBuf,
    /// `/adk@1/frames as frames`
    pub text: String,
    /// Whether it is a file; otherwise it is a directory of all files.
    pub is_file: bool,
    pub files: Vec<CarriedFile>,
}

/// How a job ended.
#[derive(Serialize, Deserialize)]
pub struct Report {
    /// The name that the scheduler has for the host.
    pub host: String,
    /// Where each input came from.
    pub fetched: Vec<Fetched>,
    /// The store that has taken the outputs, and the files; `None`: the outputs are where the plan says.
    pub kept: Option<(String, Vec<CarriedFile>)>,
    /// Copies that turned out to be damaged.
    pub damaged: Vec<(String, Digest)>,
    /// Why no data set can be made, with the exit status of the command that waits.
    pub fault: Option<(i32, String, Option<String>)>,
}

#[derive(Serialize, Deserialize)]
pub struct Fetched {
    pub text: String,
    pub sites: BTreeSet<String>,
    /// Bytes from sites on the job's host, and from others.
    pub near_bytes: u64,
    pub far_bytes: u64,
}

/// Writes a file that only its user may read, and that appears whole.
pub fn write<T: Serialize>(path: &Path, what: &T) -> Result<()> {
    let part = path.with_extension("part");
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let written = written.and_then(|mut file| {
        file.write_all(&serde_json::to_vec(what)?)?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    written.map_err(|error| {
        Error::new(ErrorKind::Other, format!("cannot write {}: {}", shown_path(path), reason(&error)))
    })
}

pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let cannot =
        |why: String| Error::new(ErrorKind::Other, format!("cannot read {}: {why}", shown_path(path)));
    let bytes = fs::read(path).map_err(|error| cannot(reason(&error)))?;
    serde_json::from_slice(&bytes).map_err(|error| cannot(error.to_string()))
}
