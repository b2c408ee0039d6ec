//! The files of a directory tree that a listing asks for: all of them, or those that match a pattern.
//!
//! One name matches by the rules of [`pattern`](crate::pattern); `**` stands for any number of directories. Hidden names match
//! only where the pattern has a dot. Links to files count as files; links to directories are entered only where the pattern
//! names them, never by `**`, so a circle cannot trap the walk.
//!
//! `eyas_tasklist` walks by the same rules for the inputs of task lists, but to another end. A listing gives locations, and tells
//! what is there: it may be empty, and a link that leads nowhere is in it as a file, so that whoever reads it gets an error. A
//! task list gives names as its user writes them, and refuses both, as a task less or a task without its file would be a mistake.
//!
//! Not here: `{a,b}`; braces belong to the templates of commands.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::location::Location;
use crate::pattern::{has_wildcard, matches};
use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = "list";

/// All files below `directory` whose own name `keep` accepts, unsorted.
pub(crate) fn walk(directory: &Path, keep: &dyn Fn(&str) -> bool, out: &mut Vec<Location>) -> Result<()> {
    let mut pending = vec![directory.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in entries(&directory)? {
            let entry = entry?;
            if entry.is_directory && !entry.is_link {
                pending.push(entry.path);
            } else if entry.is_file && keep(entry.name()?) {
                out.push(Location::from_path(&entry.path)?);
            }
        }
    }
    Ok(())
}

/// The files that match `pattern` below `directory`, unsorted.
pub(crate) fn glob(
    directory: &Location,
    pattern: &str,
    keep: &dyn Fn(&str) -> bool,
    out: &mut Vec<Location>,
) -> Result<()> {
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    // The literal beginning goes through `Location`, which resolves leading `..` against the directory.
    let n_literal = parts.iter().position(|part| has_wildcard(part)).unwrap_or(parts.len());
    let root = if pattern.starts_with('/') { "/" } else { directory.as_str() };
    let literal = parts[..n_literal].join("/");
    let start = match literal.is_empty() {
        true => Location::from_path(Path::new(root))?,
        false => Location::parse(&format!("./{literal}"), Path::new(root))?,
    };
    descend(Path::new(start.as_str()), &parts[n_literal..], true, keep, out)
}

fn descend(
    at: &Path,
    parts: &[&str],
    is_start: bool,
    keep: &dyn Fn(&str) -> bool,
    out: &mut Vec<Location>,
) -> Result<()> {
    let Some((&part, rest)) = parts.split_first() else {
        let name = at.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if keep(name) && fs::metadata(at).is_ok_and(|metadata| metadata.is_file()) {
            out.push(Location::from_path(at)?);
        }
        return Ok(());
    };
    if !has_wildcard(part) {
        return descend(&at.join(part), rest, is_start, keep, out);
    }
    if part == "**" {
        // No directory at all also counts, and what follows need not exist right here.
        descend(at, rest, false, keep, out)?;
    }
    let listing = match entries(at) {
        Ok(listing) => listing,
        // A literal part after a wildcard need not exist everywhere; where the walk starts it has to.
        Err(error) if error.kind() == ErrorKind::NotFound && !is_start => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in listing {
        let entry = entry?;
        let text = entry.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if text.starts_with('.') && !part.starts_with('.') {
            continue;
        }
        if part == "**" {
            if entry.is_directory && !entry.is_link {
                descend(&entry.path, parts, false, keep, out)?;
            } else if rest.is_empty() && entry.is_file && keep(entry.name()?) {
                out.push(Location::from_path(&entry.path)?);
            }
        } else if matches(part, &text) {
            if rest.is_empty() {
                if entry.is_file && keep(entry.name()?) {
                    out.push(Location::from_path(&entry.path)?);
                }
            } else if entry.is_directory {
                descend(&entry.path, rest, false, keep, out)?;
            }
        }
    }
    Ok(())
}

struct Entry {
    path: PathBuf,
    is_file: bool,
    is_directory: bool,
    is_link: bool,
}

impl Entry {
    /// A file that matches but has no name in UTF-8 must not be left out in silence.
    fn name(&self) -> Result<&str> {
        self.path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            let reason = "its name is not UTF-8, so no task could name it";
            Error::new(ErrorKind::InvalidName, Status::Permanent, LIST, self.path.to_string_lossy(), reason)
        })
    }
}

fn entries(directory: &Path) -> Result<impl Iterator<Item = Result<Entry>>> {
    let shown = directory.to_path_buf();
    let listing =
        fs::read_dir(directory).map_err(|error| Error::from_io(LIST, directory.display(), error))?;
    Ok(listing.map(move |entry| {
        let entry = entry.map_err(|error| Error::from_io(LIST, shown.display(), error))?;
        let kind = entry.file_type().map_err(|error| Error::from_io(LIST, entry.path().display(), error))?;
        let (mut is_file, mut is_directory) = (kind.is_file(), kind.is_dir());
        if kind.is_symlink() {
            // A link that leads nowhere is listed as a file: its reader gets a clear error, instead of one task less.
            let target = fs::metadata(entry.path());
            is_directory = target.as_ref().is_ok_and(fs::Metadata::is_dir);
            is_file = target.map_or(true, |target| target.is_file());
        }
        Ok(Entry { path: entry.path(), is_file, is_directory, is_link: kind.is_symlink() })
    }))
}
