//! The files of a directory tree that a listing asks for: all of them, or those that match a pattern.
//!
//! One name matches by the rules of [`pattern`](crate::pattern); `**` stands for any number of directories. Hidden names match
//! only where the pattern has a dot. Links count as what they lead to; one that leads back to a directory around it is not
//! entered. What matches and can be no file of a task is named as left out.
//!
//! `eyas_tasklist` walks by the same rules for the inputs of task lists, but to another end. A listing gives locations, and tells
//! what is there: it may be empty. A task list gives names as its user writes them, and refuses that, as a task less would be a
//! mistake. A link that leads nowhere matches a pattern as a file in both, so that whoever reads it gets an error.
//!
//! Not here: `{a,b}`; braces belong to the templates of commands.

use crate::error::{Error, ErrorKind, Result};
use crate::location::Location;
use crate::pattern::{has_wildcard, matches, parts_of};
use crate::{LeftOut, Listed};
use eyas_folder::{Above, Kind, NOT_UTF8, files_below, look};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LIST: &str = "list";

/// All files below `directory` whose own name `keep` accepts, unsorted.
pub(crate) fn walk(directory: &Path, keep: &dyn Fn(&str) -> bool) -> Result<Listed> {
    let below = files_below(directory, &mut |_, name| !keep(&name.to_string_lossy()))
        .map_err(|error| Error::from_io(LIST, directory.display(), error))?;
    let mut listed = Listed { found: vec![], left_out: below.left_out, empty: below.empty };
    for name in below.files {
        listed.found.push(Location::from_path(&directory.join(name))?);
    }
    Ok(listed)
}

/// The files that match `pattern` below `directory`, unsorted.
pub(crate) fn glob(directory: &Location, pattern: &str, keep: &dyn Fn(&str) -> bool) -> Result<Listed> {
    let parts = parts_of(pattern);
    // The literal beginning goes through `Location`, which resolves leading `..` against the directory.
    let n_literal = parts.iter().position(|part| has_wildcard(part)).unwrap_or(parts.len());
    let root = if pattern.starts_with('/') { "/" } else { directory.as_str() };
    let literal = parts[..n_literal].join("/");
    let start = match literal.is_empty() {
        true => Location::from_path(Path::new(root))?,
        false => Location::parse(&format!("./{literal}"), Path::new(root))?,
    };
    let mut listed = Listed::default();
    let start = Path::new(start.as_str());
    descend(start, &parts[n_literal..], None, keep, &mut listed)?;
    Ok(listed)
}

/// `above`: `None` where the walk starts.
fn descend(
    at: &Path,
    parts: &[&str],
    above: Option<&Above<'_>>,
    keep: &dyn Fn(&str) -> bool,
    out: &mut Listed,
) -> Result<()> {
    let Some((&part, rest)) = parts.split_first() else {
        let name = at.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if keep(name) && fs::metadata(at).is_ok_and(|metadata| metadata.is_file()) {
            out.found.push(Location::from_path(at)?);
        }
        return Ok(());
    };
    if !has_wildcard(part) {
        return descend(&at.join(part), rest, above, keep, out);
    }
    if part == "**" {
        // No directory at all also counts, and what follows need not exist right here.
        descend(at, rest, above.or(Some(&Above::none())), keep, out)?;
    }
    let is_start = above.is_none();
    let listing = Above::of(at).and_then(|here| Ok((here, fs::read_dir(at)?)));
    let (here, entries) = match listing.map_err(|error| Error::from_io(LIST, at.display(), error)) {
        Ok(listing) => listing,
        // A literal part after a wildcard need not exist everywhere; where the walk starts it has to.
        Err(error) if error.kind() == ErrorKind::NotFound && !is_start => return Ok(()),
        Err(error) if !is_start => {
            out.left_out.push(LeftOut::of_bytes(at.as_os_str().as_bytes(), error));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let here = match above {
        Some(above) => above.enter(here.here()),
        None => here,
    };
    for entry in entries {
        let entry = entry.map_err(|error| Error::from_io(LIST, at.display(), error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let text = name.to_string_lossy();
        let is_hidden = text.starts_with('.') && !part.starts_with('.');
        if is_hidden || !keep(&text) || !(part == "**" || matches(part, &text)) {
            continue;
        }
        let is_last = rest.is_empty();
        // What a pattern names itself is entered in any case.
        let around = (part == "**").then_some(&here);
        let kind = look(&entry, around).map_err(|error| Error::from_io(LIST, path.display(), error))?;
        let left_out = |why: &str| LeftOut::of_bytes(path.as_os_str().as_bytes(), why);
        match kind {
            Kind::File | Kind::Nowhere if !is_last => {}
            Kind::Directory(_) if is_last && part != "**" => {}
            Kind::Neither(why) => {
                if is_last || part == "**" {
                    out.left_out.push(left_out(&why));
                }
            }
            _ if name.to_str().is_none() => out.left_out.push(left_out(NOT_UTF8)),
            Kind::Directory(_) => {
                descend(&path, if part == "**" { parts } else { rest }, Some(&here), keep, out)?;
            }
            // A link that leads nowhere is listed as a file: its reader gets a clear error, instead of one task less.
            Kind::File | Kind::Nowhere => out.found.push(Location::from_path(&path)?),
        }
    }
    Ok(())
}
