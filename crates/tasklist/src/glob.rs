//! Which files match a pattern that a user writes as an input, in bytewise order of their names.
//!
//! One name matches by the rules of [`eyas_storage::pattern`]; `**` stands for any number of directories. Hidden names match only
//! where the pattern has a dot. Links to files count as files; `**` does not follow links to directories, so a circle cannot trap
//! it. Directories never match: a task reads files.
//!
//! A listing of home storage (`eyas_storage::Listing`) walks by the same rules, but for another purpose. It
//! gives locations, and may be empty or contain links that lead nowhere. Here names stay as the user writes
//! them, and both cases are mistakes of the list: for a pattern without a match the error names the directory
//! that was searched, and a link that leads nowhere is refused.
//!
//! The objects that a URL with a pattern stands for are listed by their home.
//!
//! Why not the `glob` crate: it silently skips names that are not UTF-8, and a missing task is worse than an
//! error.

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
    let mut walk = Walk { base, found: Vec::new(), n_directories: 0 };
    // `directory` ends in a slash, so this fails for everything that is no directory.
    fs::metadata(&directory).map_err(|e| {
        let directory = eyas_text::shown_path(&directory);
        Error::io(format!("no file matches {}: cannot look in {directory}", shown(pattern)), e)
    })?;
    walk.descend(&mut start, &parts[n_literal..])?;
    if walk.found.is_empty() {
        let directory = eyas_text::shown_path(&directory);
        let also = match walk.n_directories {
            0 => String::new(),
            n => format!(" (it matches {n} directories, but a task needs files)"),
        };
        let message = format!("no file matches {}: looked in {directory}{also}", shown(pattern));
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    // Two paths through `**` may lead to one file.
    walk.found.sort_unstable();
    walk.found.dedup();
    Ok(walk.found)
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
                    let target = fs::metadata(entry.path()).map_err(|e| {
                        Error::io(
                            format!("the link {} leads nowhere", shown(&entry.path().to_string_lossy())),
                            e,
                        )
                    })?;
                    (target.is_dir(), target.is_file())
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
                return Err(Error::invalid(format!(
                    "the name {} in {} is not UTF-8, so no task could name it",
                    shown(&text),
                    shown(&directory.to_string_lossy())
                ))
                .hint("rename the file, or choose a pattern that leaves it out"));
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
