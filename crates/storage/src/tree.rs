//! Listings of homes that are asked for one directory at a time: all files below one, or those that match a pattern.
//!
//! The rules are those of a shell, as with paths: `*` stops at a `/`, `**` stands for any number of directories, and hidden
//! names match only where the pattern has a dot.

use crate::error::{Error, ErrorKind, Result, Status};
use crate::pattern::{has_wildcard, matches};
use eyas_folder::is_one_name;

/// The names directly in one directory, without the directories above it.
#[derive(Debug, Default)]
pub(crate) struct Children {
    pub files: Vec<String>,
    pub directories: Vec<String>,
}

/// A home that can say what is in a directory.
pub(crate) trait Tree {
    /// What is in a directory and begins with `begins`; names that begin otherwise may be given, too.
    ///
    /// * `directory`: empty, or a name below the place of the listing that ends in `/`.
    ///
    /// Errors: `NotFound` for a directory that is not there.
    fn children(&self, directory: &str, begins: &str) -> Result<Children>;
}

/// The names of all files below the place of the listing, unsorted. A name that leads elsewhere is given as it is: whoever makes a path
/// of it has to look at it. What a home calls a directory under such a name is not entered, and given like a file.
pub(crate) fn walk(tree: &dyn Tree) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut pending = vec![String::new()];
    while let Some(directory) = pending.pop() {
        let children = match tree.children(&directory, "") {
            // It was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && !directory.is_empty() => continue,
            other => other?,
        };
        found.extend(children.files.iter().map(|name| format!("{directory}{name}")));
        for name in &children.directories {
            let below = format!("{directory}{name}/");
            match is_one_name(name.as_bytes()) {
                true => pending.push(below),
                false => found.push(below),
            }
        }
    }
    Ok(found)
}

/// The names of the files that match `pattern`, unsorted, some perhaps twice.
pub(crate) fn glob(tree: &dyn Tree, pattern: &str) -> Result<Vec<String>> {
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let mut found = Vec::new();
    descend(tree, "", &parts, true, &mut found)?;
    Ok(found)
}

/// `at` is empty or ends in `/`.
fn descend(tree: &dyn Tree, at: &str, parts: &[&str], is_start: bool, found: &mut Vec<String>) -> Result<()> {
    let Some((&part, rest)) = parts.split_first() else { return Ok(()) };
    if !has_wildcard(part) && !rest.is_empty() {
        return descend(tree, &format!("{at}{part}/"), rest, is_start, found);
    }
    if part == "**" && !rest.is_empty() {
        // No directory at all counts as well.
        descend(tree, at, rest, is_start, found)?;
    }
    let begins = match part {
        "**" => "",
        _ => &part[..part.find(['*', '?', '[']).unwrap_or(part.len())],
    };
    let children = match tree.children(at, begins) {
        // A literal part behind a wildcard need not be everywhere; where the walk starts it has to be.
        Err(error) if error.kind() == ErrorKind::NotFound && !is_start => return Ok(()),
        other => other?,
    };
    if let Some(name) = children.files.iter().chain(&children.directories).find(|name| name.contains('/')) {
        let reason = "home lists it as one name in a directory, and it is a path";
        return Err(Error::new(ErrorKind::InvalidName, Status::Permanent, "list", name, reason));
    }
    let fits = |name: &str| {
        let is_hidden = name.starts_with('.') && !part.starts_with('.');
        !is_hidden && (part == "**" || matches(part, name))
    };
    if rest.is_empty() {
        found.extend(children.files.iter().filter(|name| fits(name)).map(|name| format!("{at}{name}")));
    }
    if part == "**" || !rest.is_empty() {
        for name in children.directories.iter().filter(|name| fits(name)) {
            let parts = if part == "**" { parts } else { rest };
            descend(tree, &format!("{at}{name}/"), parts, false, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of names.
    struct Names(&'static [&'static str]);

    impl Tree for Names {
        fn children(&self, directory: &str, begins: &str) -> Result<Children> {
            let mut children = Children::default();
            let below: Vec<&str> = self.0.iter().filter_map(|name| name.strip_prefix(directory)).collect();
            if below.is_empty() {
                return Err(Error::new(ErrorKind::NotFound, Status::Permanent, "list", directory, "no"));
            }
            for name in below.into_iter().filter(|name| name.starts_with(begins)) {
                match name.split_once('/') {
                    Some((directory, _)) => children.directories.push(directory.into()),
                    None => children.files.push(name.into()),
                }
            }
            children.directories.dedup();
            Ok(children)
        }
    }

    #[test]
    fn names_are_found_as_in_a_shell() {
        let tree = Names(&[".h", "a.fa", "b.fa", "b/.x/c.fa", "b/c.fa", "b/d/e.fa", "b/d/e.txt", "f/c.fa"]);
        let check = |pattern: &str, expect: &[&str]| {
            let mut found = glob(&tree, pattern).unwrap();
            found.sort();
            found.dedup();
            assert_eq!(found, expect, "{pattern}");
        };
        check("*.fa", &["a.fa", "b.fa"]);
        check("*/c.fa", &["b/c.fa", "f/c.fa"]);
        check("b/*", &["b/c.fa"]);
        check("b/?/*.t*", &["b/d/e.txt"]);
        check("**/*.fa", &["a.fa", "b.fa", "b/c.fa", "b/d/e.fa", "f/c.fa"]);
        check("**", &["a.fa", "b.fa", "b/c.fa", "b/d/e.fa", "b/d/e.txt", "f/c.fa"]);
        check("b/.x/*", &["b/.x/c.fa"]);
        check(".*", &[".h"]);
        check("a.fa", &["a.fa"]);
        check("none*", &[]);
        assert_eq!(glob(&tree, "none/*").unwrap_err().kind(), ErrorKind::NotFound);
        let mut all = walk(&tree).unwrap();
        all.sort();
        assert_eq!(all, tree.0);
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_entered() {
        struct Odd;
        impl Tree for Odd {
            fn children(&self, directory: &str, _: &str) -> Result<Children> {
                assert!(matches!(directory, "" | "d/"), "{directory} was entered");
                let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
                Ok(match directory {
                    "" => Children {
                        files: names(&["x", "../y"]),
                        directories: names(&["d", "..", ".", "", "../up"]),
                    },
                    _ => Children { files: names(&["z"]), directories: vec![] },
                })
            }
        }
        let mut all = walk(&Odd).unwrap();
        all.sort();
        assert_eq!(all, ["../", "../up/", "../y", "./", "/", "d/z", "x"]);
        assert_eq!(glob(&Odd, "*").unwrap_err().kind(), ErrorKind::InvalidName);
    }
}
