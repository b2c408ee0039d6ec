//! Which files match a pattern that a user writes as an input, in bytewise order of their names.
//!
//! One name matches by the rules of [`eyas_storage::pattern`]; `**` stands for any number of directories. Hidden names match only
//! where the pattern has a dot. Links count as what they lead to; `**` does not enter one that leads back to a directory around
//! it. Directories never match: a task reads files.
//!
//! A listing of home storage (`eyas_storage::Listing`) walks by the same rules, but for another purpose. It
//! gives locations, and may be empty. Here names stay as the user writes them, and for a pattern without a match the error names
//! the directory that was searched. A link that leads nowhere is a file in both, whose reader fails and says why. What no task can
//! have, such as a name that is not UTF-8, is left out and named on standard error; the tasks of the other files run.
//!
//! The objects that a URL with a pattern stands for are listed by their home. What a home lists under a name that no file of a task
//! can have (`..`, or an empty part below a directory) is left out and named, too.
//!
//! Why not the `glob` crate: it skips names that are not UTF-8 in silence.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::location::{self, RUN_FILE};
use eyas_folder::{Above, Kind, LeftOut, NOT_UTF8, look, why_not_below};
use eyas_storage::canonical::Url;
use eyas_storage::pattern::{has_wildcard, matches};
use eyas_storage::{Homes, HomesConfig, Listed, Listing, Location};
use eyas_terms::location::MADE;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether an input of a list is a pattern: a `[` alone is more often part of a name.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// A path or URL that ends in `/` or has a wildcard. Files of the run, and URLs of homes that cannot list, are meant
/// literally.
pub(crate) fn stands_for_several(text: &str) -> bool {
    if text.starts_with(MADE) {
        return false;
    }
    match location::is_url(text) {
        true => is_pattern(text) && is_url_pattern(text) || is_url_folder(text),
        false => (text.ends_with('/') || is_pattern(text)) && !text.starts_with(RUN_FILE),
    }
}

/// The files that match `pattern`, written as the pattern is: relative to `base` or absolute.
///
/// If nothing is found, the error names the directory that was searched.
pub(crate) fn glob(pattern: &str, base: &Path) -> Result<Vec<String>> {
    if is_url_pattern(pattern) {
        return glob_url(pattern, base);
    }
    let mut parts: Vec<&str> = pattern.split('/').collect();
    // Several of them mean what one means, and would look at each directory once for each way to share it among them.
    parts.dedup_by(|part, before| *part == "**" && part == before);
    let n_literal = parts.iter().position(|part| has_wildcard(part)).unwrap_or(parts.len() - 1);
    let mut start: String = parts[..n_literal].iter().map(|part| format!("{part}/")).collect();
    let directory = base.join(&start);
    let mut walk = Walk { base, found: Vec::new(), n_directories: 0, left_out: Vec::new() };
    // `directory` ends in a slash, so this fails for everything that is no directory.
    fs::metadata(&directory).map_err(|e| {
        let directory = eyas_text::shown_path(&directory);
        Error::io(format!("no file matches {}: cannot look in {directory}", shown(pattern)), e)
    })?;
    walk.descend(&mut start, &parts[n_literal..], None)?;
    LeftOut::say_all(&walk.left_out);
    if walk.found.is_empty() {
        let directory = eyas_text::shown_path(&directory);
        if !walk.left_out.is_empty() {
            let message = format!("no file matches {} but what was left out, in {directory}", shown(pattern));
            return Err(Error::invalid(message));
        }
        let also = match walk.n_directories {
            0 => String::new(),
            n => format!(" (it matches {n} directories, but a task needs files)"),
        };
        let message = format!("no file matches {}: looked in {directory}{also}", shown(pattern));
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    for name in &mut walk.found {
        *name = as_file(std::mem::take(name));
    }
    // Two paths through `**` may lead to one file.
    walk.found.sort_unstable();
    walk.found.dedup();
    Ok(walk.found)
}

/// The name of a file so that it is read as one, whatever it begins with: `run:`, `data:`, a `~`.
pub(crate) fn as_file(name: String) -> String {
    let first = name.split('/').next().unwrap_or_default();
    match first.contains(':') || first.starts_with('~') {
        true => format!("./{name}"),
        false => name,
    }
}

/// Whether the text is a URL that stands for several files.
pub(crate) fn is_url_pattern(text: &str) -> bool {
    Url::split(text).is_some_and(Url::is_pattern)
}

/// Whether the text is a URL that ends in `/` and stands for all objects below it.
pub(crate) fn is_url_folder(text: &str) -> bool {
    text.ends_with('/') && Url::split(text).is_some_and(Url::is_folder)
}

/// The objects below such a URL: their paths as seen from it, and their canonical locations.
pub(crate) fn below_url(folder: &str, base: &Path) -> Result<Vec<(String, String)>> {
    let directory = Location::parse(folder, base).map_err(|e| no_file(folder, &e))?;
    let name_of = |location: &Location| location.name_below(&directory).unwrap_or_default();
    list_url(folder, &Listing::Under(directory.clone()), &name_of)
}

/// The objects that match, as canonical locations, listed by their home.
fn glob_url(pattern: &str, base: &Path) -> Result<Vec<String>> {
    let listing = Listing::parse(pattern, base).map_err(|e| no_file(pattern, &e))?;
    let found = list_url(pattern, &listing, &|location| location.file_name())?;
    Ok(found.into_iter().map(|(_, location)| location).collect())
}

fn no_file(text: &str, error: &eyas_storage::Error) -> Error {
    let kind = match error.kind() {
        eyas_storage::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("no file matches {}: {error}", shown(text)))
}

/// The objects that a listing finds: their names in the sandbox as `name_of` makes them, and their locations. `text`: what the user
/// wrote.
fn list_url(
    text: &str,
    listing: &Listing,
    name_of: &dyn Fn(&Location) -> String,
) -> Result<Vec<(String, String)>> {
    let homes = Homes::new(HomesConfig::default()).map_err(|e| no_file(text, &e))?;
    let Listed { found: listed, mut left_out, .. } = homes.list(listing).map_err(|e| no_file(text, &e))?;
    let mut found = vec![];
    for location in &listed {
        let name = name_of(location);
        match why_no_input(&name, location.as_str()) {
            None => found.push((name, location.as_str().to_owned())),
            Some(why) => left_out.push(LeftOut::new(location.as_str(), why)),
        }
    }
    LeftOut::say_all(&left_out);
    if found.is_empty() {
        let but = if left_out.is_empty() { "" } else { " but what was left out" };
        let message = format!("no file matches {}{but}: looked in {}", shown(text), listing.directory());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    Ok(found)
}

/// Why an object cannot be an input that has this name in the sandbox.
fn why_no_input(name: &str, location: &str) -> Option<String> {
    match why_not_below(name.as_bytes()) {
        Some(why) => Some(format!("no file of a task can have the name {}, which {why}", shown(name))),
        None => {
            location::push_location(&mut String::new(), location, "").err().map(|error| error.to_string())
        }
    }
}

struct Walk<'a> {
    base: &'a Path,
    found: Vec<String>,
    /// Directories that matched although files were wanted.
    n_directories: usize,
    /// What matched and no task can have.
    left_out: Vec<LeftOut>,
}

impl Walk<'_> {
    /// `at` is empty or ends in `/`; `parts` is not empty. `above`: `None` where the walk starts.
    fn descend(&mut self, at: &mut String, parts: &[&str], above: Option<&Above<'_>>) -> Result<()> {
        let (part, rest) = (parts[0], &parts[1..]);
        let n = at.len();
        if !has_wildcard(part) {
            at.push_str(part);
            if rest.is_empty() {
                if fs::metadata(self.base.join(&at)).is_ok_and(|meta| meta.is_file()) {
                    self.found.push(at.clone());
                }
            } else if fs::metadata(self.base.join(&at)).is_ok_and(|meta| meta.is_dir()) {
                at.push('/');
                self.descend(at, rest, above)?;
            }
            at.truncate(n);
            return Ok(());
        }
        if part == "**" && !rest.is_empty() {
            self.descend(at, rest, above)?;
        }
        let directory = self.base.join(&at);
        let cannot = |e| Error::io(format!("cannot list {}", shown(&directory.to_string_lossy())), e);
        let listing = Above::of(&directory).and_then(|here| Ok((here, fs::read_dir(&directory)?)));
        let (here, entries) = match (listing, above) {
            (Ok((here, entries)), Some(above)) => (above.enter(here.here()), entries),
            (Ok(found), None) => found,
            (Err(error), Some(_)) => {
                self.left_out.push(LeftOut::new(at, format!("cannot list it: {error}")));
                return Ok(());
            }
            (Err(error), None) => return Err(cannot(error)),
        };
        for entry in entries {
            let entry = entry.map_err(cannot)?;
            let name = entry.file_name();
            let text = name.to_string_lossy();
            let is_hidden = text.starts_with('.') && !part.starts_with('.');
            if is_hidden || !(part == "**" || matches(part, &text)) {
                continue;
            }
            // What a pattern names itself is entered in any case.
            let around = (part == "**").then_some(&here);
            let kind = look(&entry, around).map_err(cannot)?;
            let is_last = rest.is_empty();
            let left_out = |why: &str| LeftOut::of_bytes(entry.path().as_os_str().as_bytes(), why);
            match (kind, name.to_str()) {
                (Kind::File | Kind::Nowhere, _) if !is_last => {}
                (Kind::Directory(_), _) if is_last && part != "**" => self.n_directories += 1,
                (Kind::Neither(why), _) => {
                    if is_last || part == "**" {
                        self.left_out.push(left_out(&why));
                    }
                }
                (_, None) => self.left_out.push(left_out(NOT_UTF8)),
                // A link that leads nowhere is taken for a file: its own task fails and says so, and no other.
                (Kind::File | Kind::Nowhere, Some(name)) => self.found.push(format!("{at}{name}")),
                (Kind::Directory(_), Some(name)) => {
                    at.push_str(name);
                    at.push('/');
                    self.descend(at, if part == "**" { parts } else { rest }, Some(&here))?;
                    at.truncate(n);
                }
            }
        }
        Ok(())
    }
}
