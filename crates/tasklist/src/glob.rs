//! Which files match a pattern that a user writes as an input, in bytewise order of their names.
//!
//! One name matches by the rules of [`eyas_storage::pattern`]; `**` stands for any number of directories. Hidden names match only
//! where the pattern has a dot. Links to files count as files; `**` does not follow links to directories, so a circle cannot trap
//! it. Directories never match: a task reads files.
//!
//! A listing of home storage (`eyas_storage::Listing`) walks by the same rules, but for another purpose. It
//! gives locations, and may be empty. Here names stay as the user writes them, and for a pattern without a match the error names
//! the directory that was searched. A link that leads nowhere is a file in both, whose reader fails and says why. A name that is
//! not UTF-8 is left out and named on standard error; the tasks of the other files run.
//!
//! The objects that a URL with a pattern stands for are listed by their home.
//!
//! Why not the `glob` crate: it skips names that are not UTF-8 in silence.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::location::{self, RUN_FILE};
use eyas_core::location::MADE;
use eyas_storage::canonical::Url;
use eyas_storage::pattern::{has_wildcard, matches};
use eyas_storage::{Homes, HomesConfig, Listing};
use std::fs;
use std::path::Path;

/// Whether an input of a list is a pattern: a `[` alone is more often part of a name.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// A path that ends in `/`, or a path or URL that has a wildcard. Files of the run, and URLs of homes that cannot list, are
/// meant literally.
pub(crate) fn stands_for_several(text: &str) -> bool {
    if text.starts_with(MADE) {
        return false;
    }
    match location::is_url(text) {
        true => is_pattern(text) && is_url_pattern(text),
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
    let parts: Vec<&str> = pattern.split('/').collect();
    let n_literal = parts.iter().position(|part| has_wildcard(part)).unwrap_or(parts.len() - 1);
    let mut start: String = parts[..n_literal].iter().map(|part| format!("{part}/")).collect();
    let directory = base.join(&start);
    let mut walk = Walk { base, found: Vec::new(), n_directories: 0, n_odd: 0 };
    // `directory` ends in a slash, so this fails for everything that is no directory.
    fs::metadata(&directory).map_err(|e| {
        let directory = eyas_text::shown_path(&directory);
        Error::io(format!("no file matches {}: cannot look in {directory}", shown(pattern)), e)
    })?;
    walk.descend(&mut start, &parts[n_literal..])?;
    if walk.found.is_empty() {
        let directory = eyas_text::shown_path(&directory);
        if walk.n_odd > 0 {
            let message = format!(
                "no file matches {} but some whose name is not UTF-8, in {directory}",
                shown(pattern)
            );
            return Err(Error::invalid(message).hint("rename them"));
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

/// The objects that match, as canonical locations, listed by their home.
fn glob_url(pattern: &str, base: &Path) -> Result<Vec<String>> {
    let cannot = |e: eyas_storage::Error| {
        let kind = match e.kind() {
            eyas_storage::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("no file matches {}: {e}", shown(pattern)))
    };
    let listing = Listing::parse(pattern, base).map_err(cannot)?;
    let homes = Homes::new(HomesConfig::default()).map_err(cannot)?;
    let found = homes.list(&listing).map_err(cannot)?;
    if found.is_empty() {
        let message = format!("no file matches {}: looked in {}", shown(pattern), listing.directory());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    Ok(found.iter().map(|location| location.as_str().to_owned()).collect())
}

struct Walk<'a> {
    base: &'a Path,
    found: Vec<String>,
    /// Directories that matched although files were wanted.
    n_directories: usize,
    /// Names that matched and that no task can have.
    n_odd: usize,
}

impl Walk<'_> {
    /// `at` is empty or ends in `/`; `parts` is not empty.
    fn descend(&mut self, at: &mut String, parts: &[&str]) -> Result<()> {
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
                self.descend(at, rest)?;
            }
            at.truncate(n);
            return Ok(());
        }
        if part == "**" && !rest.is_empty() {
            self.descend(at, rest)?;
        }
        let directory = self.base.join(&at);
        let cannot = |e| Error::io(format!("cannot list {}", shown(&directory.to_string_lossy())), e);
        for entry in fs::read_dir(&directory).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let name = entry.file_name();
            let text = name.to_string_lossy();
            let is_hidden = text.starts_with('.') && !part.starts_with('.');
            if is_hidden || !(part == "**" || matches(part, &text)) {
                continue;
            }
            let kind = entry.file_type().map_err(cannot)?;
            let is_link = kind.is_symlink();
            let (is_dir, is_file) = match is_link {
                false => (kind.is_dir(), kind.is_file()),
                true => {
                    // A link that leads nowhere is taken for a file: its own task fails and says so, and no other.
                    let target = fs::metadata(entry.path());
                    let is_dir = target.as_ref().is_ok_and(fs::Metadata::is_dir);
                    (is_dir, target.map_or(true, |target| target.is_file()))
                }
            };
            let goes_on = is_dir && (part == "**" && !is_link || part != "**" && !rest.is_empty());
            let is_match = is_file && rest.is_empty();
            if is_dir && rest.is_empty() && part != "**" {
                self.n_directories += 1;
            }
            if !goes_on && !is_match {
                continue;
            }
            let Some(name) = name.to_str() else {
                self.n_odd += 1;
                eyas_text::say!(
                    "eyas: left out the file {} in {}: its name is not UTF-8, so no task could name it; rename it",
                    eyas_text::shown_bytes(name.as_encoded_bytes()),
                    shown(&directory.to_string_lossy())
                );
                continue;
            };
            at.push_str(name);
            if is_match {
                self.found.push(at.clone());
            } else {
                at.push('/');
                self.descend(at, if part == "**" { parts } else { rest })?;
            }
            at.truncate(n);
        }
        Ok(())
    }
}
