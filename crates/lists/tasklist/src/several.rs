//! Inputs that stand for several files: patterns (`data/*.txt`) and directories (`data/`, `s3://b/data/`), as they are at
//! home when the list is read.
//!
//! A pattern stands for the files that match it, a directory for all files below it, whatever their names. If
//! a file exists whose own name contains a `*`, that name means the file; a `file://` URL is never a pattern.
//! A pattern that matches nothing may be the name of a file that a task of the list writes; this is known at
//! the end of the list. Files that a task of the list would write into a directory, or that would match a
//! pattern, do not exist yet and would be missing without notice, so that is refused.
//!
//! A directory that a task of the list writes as a whole is no such input: it is one object, and the reader
//! waits for it.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::file::File;
use crate::glob::{self, glob, is_url_folder, stands_for_several};
use crate::line::Task;
use crate::list::{Expected, Refused, bad};
use crate::location;
use eyas_folder::{LeftOut, files_below};
use eyas_storage::PART_PREFIX;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The files that inputs of a list stand for; each input is looked up once.
pub(crate) struct Several<'a> {
    base_dir: &'a Path,
    base: String,
    patterns: HashMap<String, Option<Vec<String>>>,
    directories: HashMap<String, Vec<String>>,
    folders: HashMap<String, Vec<(String, String)>>,
    /// Locations of directories that tasks of the list write.
    written: HashSet<String>,
    pub expected: Expected,
}

impl<'a> Several<'a> {
    pub fn new(base_dir: &'a Path, base: String) -> Several<'a> {
        let (patterns, directories, folders) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (written, expected) = (HashSet::new(), Expected::default());
        Several { base_dir, base, patterns, directories, folders, written, expected }
    }

    /// Notes which directories `task` writes. Mistakes in them are reported when the task is added to the
    /// list.
    pub fn learn(&mut self, task: &Task<'_>) {
        for file in task.outputs.iter().filter(|file| file.location.ends_with('/')) {
            let mut location = String::new();
            if location::push_location(&mut location, &file.location, &self.base).is_ok() {
                self.written.insert(location);
            }
        }
    }

    /// Whether `task` reads a directory that no noted task writes.
    pub fn reads_directory(&self, task: &Task<'_>) -> bool {
        let reads = |text: &str| text.ends_with('/') && stands_for_several(text) && !self.is_written(text);
        task.inputs.iter().any(|file| reads(&file.location))
    }

    fn is_written(&self, text: &str) -> bool {
        let mut location = String::new();
        !self.written.is_empty()
            && location::push_location(&mut location, text, &self.base).is_ok()
            && self.written.contains(&location)
    }

    /// Whether an input of a list of commands names a directory that is there.
    pub fn is_directory(&self, text: &str) -> bool {
        !location::is_url(text) && !text.starts_with(location::RUN_FILE) && self.base_dir.join(text).is_dir()
    }

    /// Replaces inputs that stand for several files by these files.
    pub fn expand(&mut self, task: &mut Task<'_>, number: u64) -> std::result::Result<(), Refused> {
        if !task.inputs.iter().any(|file| stands_for_several(&file.location)) {
            return Ok(());
        }
        let mut inputs = Vec::with_capacity(task.inputs.len());
        for file in std::mem::take(&mut task.inputs) {
            let text = file.location.as_ref();
            if !stands_for_several(text) || text.ends_with('/') && self.is_written(text) {
                inputs.push(file);
            } else if is_url_folder(text) {
                let below = self.below_url(text).map_err(|e| bad(text, e.field("inputs")))?;
                let name = file.name.unwrap_or_else(|| location::file_name(text).into_owned().into());
                let name = name.trim_end_matches('/');
                inputs.extend(below.iter().map(|(below, location)| File {
                    name: Some(format!("{name}/{below}").into()),
                    location: location.clone().into(),
                }));
            } else if let Some(directory) = text.strip_suffix('/') {
                self.push_directory(&mut inputs, file.name.as_deref(), directory, number)
                    .map_err(|e| bad(text, e.field("inputs")))?;
            } else if let Some(found) = self.find(text, number).map_err(|e| bad(text, e.field("inputs")))? {
                let name_of = |location: &str| {
                    let own = location::file_name(location);
                    file.name.as_ref().map(|name| Cow::Owned(format!("{name}/{own}")))
                };
                inputs.extend(found.into_iter().map(|l| File { name: name_of(&l), location: l.into() }));
            } else {
                inputs.push(file);
            }
        }
        task.inputs = inputs;
        Ok(())
    }

    /// The files that match; `None`: the text is meant literally.
    pub fn find(&mut self, text: &str, number: u64) -> Result<Option<Vec<String>>> {
        if let Some(known) = self.patterns.get(text) {
            return Ok(known.clone());
        }
        let found = match fs::symlink_metadata(self.base_dir.join(text)) {
            Ok(_) => None,
            Err(_) => match glob(text, self.base_dir) {
                Ok(found) => Some(found),
                Err(e) => {
                    let mut location = String::new();
                    location::push_location(&mut location, text, &self.base)?;
                    let e = e.field("inputs").at(number, None);
                    self.expected.unmatched.push((location, e));
                    None
                }
            },
        };
        self.patterns.insert(text.to_owned(), found.clone());
        Ok(found)
    }

    fn push_directory(
        &mut self,
        inputs: &mut Vec<File<'_>>,
        name: Option<&str>,
        directory: &str,
        number: u64,
    ) -> Result<()> {
        let name = match name {
            Some(name) => name.strip_suffix('/').unwrap_or(name).to_owned(),
            None => directory.rsplit('/').next().unwrap_or(directory).to_owned(),
        };
        if matches!(name.as_str(), "" | "." | "..") {
            let text = format!("{directory}/");
            return Err(Error::invalid(format!(
                "the directory {} gives no name in the sandbox",
                shown(&text)
            ))
            .hint("write an object: {\"name in the sandbox\": \"directory/\"}"));
        }
        inputs.extend(self.below(directory, number)?.iter().map(|below| File {
            name: Some(format!("{name}/{below}").into()),
            location: format!("{directory}/{below}").into(),
        }));
        Ok(())
    }

    /// The paths of all objects below a URL, as seen from it, and their locations.
    pub fn below_url(&mut self, folder: &str) -> Result<&[(String, String)]> {
        if !self.folders.contains_key(folder) {
            self.folders.insert(folder.to_owned(), glob::below_url(folder, self.base_dir)?);
        }
        Ok(&self.folders[folder])
    }

    /// The paths of all files below a directory, as seen from it.
    pub fn below(&mut self, directory: &str, number: u64) -> Result<&[String]> {
        if !self.directories.contains_key(directory) {
            let found = files_in(directory, self.base_dir)?;
            let mut location = String::new();
            location::push_location(&mut location, &format!("{directory}/x"), &self.base)?;
            location.pop();
            self.expected.directories.push((location, number, format!("{directory}/")));
            self.directories.insert(directory.to_owned(), found);
        }
        Ok(&self.directories[directory])
    }
}

/// The paths of all files below a directory, as seen from it, in order; an error if there are none. What is left out is named.
pub(crate) fn files_in(directory: &str, base_dir: &Path) -> Result<Vec<String>> {
    let directory = format!("{directory}/");
    let text = shown(&directory);
    // Files that another run is just bringing home are not included.
    let mut is_part = |_: &Path, name: &OsStr| name.as_bytes().starts_with(PART_PREFIX.as_bytes());
    let below = files_below(&base_dir.join(&directory), &mut is_part)
        .map_err(|e| Error::io(format!("cannot list the directory {text}"), e))?;
    LeftOut::say_all(&below.left_out);
    let mut found = below.files;
    if found.is_empty() {
        let but = if below.left_out.is_empty() { "" } else { " but what was left out" };
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no file in the directory {text}{but}"),
        ));
    }
    found.sort_unstable();
    Ok(found)
}
