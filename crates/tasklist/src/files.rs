//! The input files of a map: paths, patterns, URLs, and names from a list.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::map::ListInput;
use crate::{glob, location};
use eyas_storage::pattern::has_wildcard;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// A path that must exist as a file, or a URL.
pub(crate) fn literal<'p>(path: &'p str, base: &Path) -> Result<&'p str> {
    if location::is_url(path) {
        return Ok(path);
    }
    match fs::metadata(base.join(path)) {
        Ok(meta) if meta.is_dir() => Err(Error::invalid(format!("{} is a directory", shown(path)))
            .hint(format!("write '{}/*' for the files in it", path.trim_end_matches('/')))),
        Ok(_) => Ok(path),
        Err(e) => Err(Error::io(format!("cannot find {}", shown(path)), e)),
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
    let mut add = |path: &str| -> Result<()> {
        let mut location = String::new();
        location::push_location(&mut location, path, base)?;
        if !distinct || seen.insert(location.clone()) {
            files.push(location);
        }
        Ok(())
    };
    for path in paths {
        let is_pattern = has_wildcard(path)
            && !location::is_url(path)
            && fs::symlink_metadata(base_dir.join(path)).is_err();
        if is_pattern {
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
            add(found?)?;
        }
    }
    if let Some(list) = list {
        read_list(list, &mut |path| add(literal(path, base_dir)?))?;
    }
    if files.is_empty() {
        return Err(
            Error::new(ErrorKind::NotFound, "there are no input files").hint("name files, or use a range")
        );
    }
    Ok(files)
}

fn read_list(list: ListInput<'_>, add: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let end = if list.ends_in_nul { 0 } else { b'\n' };
    let mut buffer = Vec::new();
    let mut number = 0;
    loop {
        buffer.clear();
        number += 1;
        let at = |e: Error| e.origin(list.origin).at(number, None);
        if list.reader.read_until(end, &mut buffer).map_err(|e| at(Error::io("cannot read the list", e)))?
            == 0
        {
            return Ok(());
        }
        if buffer.last() == Some(&end) {
            buffer.pop();
        }
        match std::str::from_utf8(&buffer) {
            Ok("") => {}
            Ok(path) => add(path).map_err(at)?,
            Err(_) => {
                let name = eyas_text::shown_bytes(&buffer);
                return Err(at(Error::invalid(format!(
                    "the name {name} is not UTF-8, so no task could name it"
                ))));
            }
        }
    }
}
