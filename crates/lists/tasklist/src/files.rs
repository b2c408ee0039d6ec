//! The input files of a map: paths, patterns, URLs, and names from a list.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::lines::refuse_utf_16;
use crate::several::files_in;
use crate::{glob, location};
use eyas_folder::{LeftOut, NOT_UTF8};
use eyas_storage::pattern::has_wildcard;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Paths that come from a file or from standard input, one per line; they are never treated as patterns.
pub struct ListInput<'a> {
    pub reader: &'a mut dyn BufRead,
    /// For messages.
    pub origin: &'a str,
    /// Paths end in NUL bytes, not in line ends (`find -print0`).
    pub ends_in_nul: bool,
}

/// Whether a word is a URL, and not the name of a file that is there and is called `data:x`.
fn is_url(word: &str, base_dir: &Path) -> bool {
    location::is_url(word) && (word.contains("://") || fs::symlink_metadata(base_dir.join(word)).is_err())
}

/// A path that must exist as a file, or a URL, in the form in which it is read as such.
pub(crate) fn literal<'p>(path: &'p str, base: &Path) -> Result<Cow<'p, str>> {
    if is_url(path, base) {
        return Ok(Cow::Borrowed(path));
    }
    match fs::metadata(base.join(path)) {
        Ok(meta) if meta.is_dir() => Err(Error::invalid(format!("{} is a directory", shown(path)))
            .hint(format!("write '{}/*' for the files in it", path.trim_end_matches('/')))),
        Ok(_) => Ok(Cow::Owned(glob::as_file(path.to_owned()))),
        Err(e) => Err(Error::io(format!("cannot find {}", shown(path)), e)),
    }
}

/// A set of files that stands behind one word: an existing file or a URL, a pattern, a directory (all files in it), or `@FILE`, a
/// list with a path, URL or pattern on each line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileSet {
    /// Canonical locations, each once.
    pub locations: Vec<String>,
    /// Names of the same files as a user who stands in the base directory writes them.
    pub names: Vec<String>,
    /// The locations that were named more than once.
    pub repeated: Vec<String>,
}

/// The set that `word` stands for; an error for a set without files.
pub fn find_set(word: &str, base_dir: &Path) -> Result<FileSet> {
    let base = location::base_text(base_dir)?;
    let word = if word.len() > 1 { word.trim_end_matches('/') } else { word };
    let is_there = |path: &str| fs::symlink_metadata(base_dir.join(path)).is_ok();
    let found = match word.strip_prefix('@').filter(|_| !is_there(word)) {
        Some(list) => {
            let file = fs::File::open(base_dir.join(list))
                .map_err(|e| Error::io(format!("cannot read the list {}", shown(list)), e))?;
            let mut words = vec![];
            let mut reader = BufReader::new(file);
            let input = ListInput { reader: &mut reader, origin: list, ends_in_nul: false };
            read_list(input, &mut |path| {
                words.push(path.to_owned());
                Ok(())
            })?;
            if words.is_empty() {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("the list {} names no files", shown(list)),
                )
                .hint("write a path, a URL or a pattern on each line"));
            }
            find(&words, None, base_dir, &base, false)?
        }
        None if !is_url(word, base_dir) && base_dir.join(word).is_dir() => {
            find(&[format!("{word}/*")], None, base_dir, &base, false)?
        }
        None => find(&[word.to_owned()], None, base_dir, &base, false)?,
    };
    let mut set = FileSet::default();
    let mut seen = HashSet::new();
    for location in found {
        match seen.insert(location.clone()) {
            true => {
                set.names.push(location::path_of(&location, &base).to_owned());
                set.locations.push(location);
            }
            false if set.repeated.contains(&location) => {}
            false => set.repeated.push(location),
        }
    }
    Ok(set)
}

/// The name of the file at a canonical location, without the directories above it.
pub fn name_of_file(location: &str) -> Cow<'_, str> {
    location::file_name(location)
}

/// Names in the sandbox and canonical locations of the files that `word`, an input of several tasks, stands for: a file or a URL,
/// the files that match a pattern, under their own names, or all files below a directory, below its name.
pub fn shared(word: &str, base_dir: &Path) -> Result<Vec<(String, String)>> {
    let base = location::base_text(base_dir)?;
    let at = |path: &str| -> Result<String> {
        let mut location = String::new();
        let path = match location::is_url(path) {
            true => Cow::Borrowed(path),
            false => Cow::Owned(glob::as_file(path.to_owned())),
        };
        location::push_location(&mut location, &path, &base)?;
        Ok(location)
    };
    if !is_url(word, base_dir) && base_dir.join(word).is_dir() {
        let directory = word.trim_end_matches('/');
        let whole = fs::canonicalize(base_dir.join(word))
            .map_err(|e| Error::io(format!("cannot find {}", shown(word)), e))?;
        let own = directory.rsplit('/').next().unwrap_or(directory);
        let name = match own {
            "" | "." | ".." => whole.file_name().and_then(|name| name.to_str()),
            own => Some(own),
        };
        let Some(name) = name else {
            return Err(Error::invalid(format!(
                "the directory {} gives no name in the sandbox",
                shown(word)
            ))
            .hint("name a directory in it"));
        };
        let below = files_in(directory, base_dir)?;
        return below
            .iter()
            .map(|file| Ok((format!("{name}/{file}"), at(&format!("{directory}/{file}"))?)))
            .collect();
    }
    if is_url(word, base_dir) && glob::is_url_folder(word) {
        let whole = at(word)?;
        let name = location::file_name(&whole);
        let below = glob::below_url(word, base_dir)?;
        return Ok(below.into_iter().map(|(file, at)| (format!("{name}/{file}"), at)).collect());
    }
    let found = match is_pattern(word, base_dir) {
        true => glob::glob(word, base_dir)?,
        false => vec![literal(word, base_dir)?.into_owned()],
    };
    let input = |path: &String| {
        let location = at(path)?;
        Ok((location::file_name(&location).into_owned(), location))
    };
    found.iter().map(input).collect()
}

/// Whether a word stands for the files that match it.
fn is_pattern(word: &str, base_dir: &Path) -> bool {
    match is_url(word, base_dir) {
        true => glob::is_url_pattern(word),
        false => has_wildcard(word) && fs::symlink_metadata(base_dir.join(word)).is_err(),
    }
}

/// Canonical locations of all files in the order of `paths`, each only once if they are to be `distinct`.
/// `base` is the text of `base_dir`.
pub(crate) fn find(
    paths: &[String],
    list: Option<ListInput<'_>>,
    base_dir: &Path,
    base: &str,
    distinct: bool,
) -> Result<Vec<String>> {
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    // What is there as a file is one, whatever its name begins with.
    let mut add = |path: &str| -> Result<()> {
        let mut location = String::new();
        let path = match location::is_url(path) {
            true => Cow::Borrowed(path),
            false => Cow::Owned(glob::as_file(path.to_owned())),
        };
        location::push_location(&mut location, &path, base)?;
        if !distinct || seen.insert(location.clone()) {
            files.push(location);
        }
        Ok(())
    };
    for path in paths {
        if is_pattern(path, base_dir) {
            for found in glob::glob(path, base_dir)? {
                add(&found)?;
            }
        } else {
            let found = literal(path, base_dir).map_err(|e| match e.kind {
                ErrorKind::NotFound => {
                    e.hint("a map is over files; words are values of a parameter, such as --param NAME=A,B,C")
                }
                _ => e,
            });
            add(&found?)?;
        }
    }
    let mut n_left_out = 0;
    if let Some(list) = list {
        n_left_out = read_list(list, &mut |path| add(&literal(path, base_dir)?))?;
    }
    if files.is_empty() {
        let but = if n_left_out > 0 { " but what was left out" } else { "" };
        let message = format!("there are no input files{but}");
        return Err(Error::new(ErrorKind::NotFound, message).hint("name files, or use a range"));
    }
    Ok(files)
}

/// Calls `add` with each name of a list. Gives the number of names that are left out and named on standard error: no task could
/// have them.
fn read_list(list: ListInput<'_>, add: &mut dyn FnMut(&str) -> Result<()>) -> Result<usize> {
    let end = if list.ends_in_nul { 0 } else { b'\n' };
    let mut buffer = Vec::new();
    let mut number = 0;
    let mut n_left_out = 0;
    loop {
        buffer.clear();
        number += 1;
        let at = |e: Error| e.origin(list.origin).at(number, None);
        if list.reader.read_until(end, &mut buffer).map_err(|e| at(Error::io("cannot read the list", e)))?
            == 0
        {
            return Ok(n_left_out);
        }
        if number == 1 && !list.ends_in_nul {
            refuse_utf_16(&buffer).map_err(at)?;
        }
        if buffer.last() == Some(&end) {
            buffer.pop();
        }
        match std::str::from_utf8(&buffer) {
            Ok("") => {}
            Ok(path) => add(path).map_err(at)?,
            Err(_) => {
                LeftOut::of_bytes(&buffer, NOT_UTF8).say(n_left_out);
                n_left_out += 1;
            }
        }
    }
}
