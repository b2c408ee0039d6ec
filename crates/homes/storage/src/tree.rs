//! Listings of homes that are asked for one directory at a time: all files below one, or those that match a pattern.
//!
//! The rules are those of a shell, as with paths: `*` stops at a `/`, `**` stands for any number of directories, and hidden
//! names match only where the pattern has a dot.

use crate::LeftOut;
use crate::error::{ErrorKind, Result, Status};
use crate::pattern::{has_wildcard, matches, parts_of};
use eyas_folder::is_one_name;

/// The names directly in one directory, without the directories above it.
#[derive(Debug, Default)]
pub(crate) struct Children {
    pub files: Vec<String>,
    pub directories: Vec<String>,
    /// What is neither, with the reason. The names need not be whole.
    pub left_out: Vec<(String, String)>,
}

/// The names that a listing found, from its place on.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub found: Vec<String>,
    pub left_out: Vec<LeftOut>,
    /// Directories in which nothing is; the place of the listing itself has an empty name.
    pub empty: Vec<String>,
}

impl Names {
    /// Notes what is left out of the directory `at`.
    fn leave_out(&mut self, at: &str, name: &str, why: impl ToString) {
        self.left_out.push(LeftOut::new(&format!("{at}{name}"), why));
    }
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
pub(crate) fn walk(tree: &dyn Tree) -> Result<Names> {
    let mut names = Names::default();
    let mut pending = vec![String::new()];
    while let Some(directory) = pending.pop() {
        let children = match tree.children(&directory, "") {
            // It was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && !directory.is_empty() => continue,
            // The others can be brought all the same.
            Err(error) if error.status() == Status::Permanent && !directory.is_empty() => {
                names.leave_out(&directory, "", error);
                continue;
            }
            other => other?,
        };
        if children.files.is_empty() && children.directories.is_empty() && children.left_out.is_empty() {
            names.empty.push(directory.trim_end_matches('/').to_owned());
        }
        names.found.extend(children.files.iter().map(|name| format!("{directory}{name}")));
        for (name, why) in children.left_out {
            names.leave_out(&directory, &name, why);
        }
        for name in &children.directories {
            let below = format!("{directory}{name}/");
            match is_one_name(name.as_bytes()) {
                true => pending.push(below),
                false => names.found.push(below),
            }
        }
    }
    Ok(names)
}

/// The names of the files that match `pattern`, unsorted, some perhaps twice.
pub(crate) fn glob(tree: &dyn Tree, pattern: &str) -> Result<Names> {
    let parts = parts_of(pattern);
    let mut names = Names::default();
    descend(tree, "", &parts, true, &mut names)?;
    Ok(names)
}

/// `at` is empty or ends in `/`.
fn descend(tree: &dyn Tree, at: &str, parts: &[&str], is_start: bool, names: &mut Names) -> Result<()> {
    let Some((&part, rest)) = parts.split_first() else { return Ok(()) };
    if !has_wildcard(part) && !rest.is_empty() {
        return descend(tree, &format!("{at}{part}/"), rest, is_start, names);
    }
    if part == "**" && !rest.is_empty() {
        // No directory at all counts as well.
        descend(tree, at, rest, is_start, names)?;
    }
    let begins = match part {
        "**" => "",
        _ => &part[..part.find(['*', '?', '[']).unwrap_or(part.len())],
    };
    let mut children = match tree.children(at, begins) {
        // A literal part behind a wildcard need not be everywhere; where the walk starts it has to be.
        Err(error) if error.kind() == ErrorKind::NotFound && !is_start => return Ok(()),
        // The others can be brought all the same.
        Err(error) if error.status() == Status::Permanent && !is_start => {
            names.leave_out(at, "", error);
            return Ok(());
        }
        other => other?,
    };
    let fits = |name: &str| {
        let is_hidden = name.starts_with('.') && !part.starts_with('.');
        !is_hidden && (part == "**" || matches(part, name))
    };
    let is_path = |name: &&String| name.contains('/');
    for name in children.files.iter().chain(&children.directories).filter(is_path) {
        names.leave_out(at, name, "home lists it as one name in a directory, and it is a path");
    }
    children.files.retain(|name| !is_path(&name));
    children.directories.retain(|name| !is_path(&name));
    if rest.is_empty() {
        names.found.extend(children.files.iter().filter(|name| fits(name)).map(|name| format!("{at}{name}")));
    }
    if rest.is_empty() || part == "**" {
        for (name, why) in children.left_out.iter().filter(|(name, _)| fits(name)) {
            names.leave_out(at, name, why);
        }
    }
    if part == "**" || !rest.is_empty() {
        for name in children.directories.iter().filter(|name| fits(name)) {
            let parts = if part == "**" { parts } else { rest };
            descend(tree, &format!("{at}{name}/"), parts, false, names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

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
            let mut found = glob(&tree, pattern).unwrap().found;
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
        check("**/**/**", &["a.fa", "b.fa", "b/c.fa", "b/d/e.fa", "b/d/e.txt", "f/c.fa"]);
        check("b/.x/*", &["b/.x/c.fa"]);
        check(".*", &[".h"]);
        check("a.fa", &["a.fa"]);
        check("none*", &[]);
        assert_eq!(glob(&tree, "none/*").unwrap_err().kind(), ErrorKind::NotFound);
        let mut all = walk(&tree).unwrap().found;
        all.sort();
        assert_eq!(all, tree.0);
    }

    #[test]
    fn several_double_stars_look_at_each_directory_as_often_as_one() {
        struct Deep(std::sync::atomic::AtomicUsize);
        impl Tree for Deep {
            fn children(&self, directory: &str, _: &str) -> Result<Children> {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let is_last = directory.len() == 24;
                let directories = if is_last { vec![] } else { vec!["d".into()] };
                Ok(Children { files: vec!["f".into()], directories, ..Children::default() })
            }
        }
        let looks = |pattern: &str| {
            let tree = Deep(std::sync::atomic::AtomicUsize::new(0));
            assert_eq!(glob(&tree, pattern).unwrap().found.len(), 13, "{pattern}");
            tree.0.into_inner()
        };
        assert_eq!(looks("**/**/**/**/f*"), looks("**/f*"));
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_entered() {
        struct Odd;
        impl Tree for Odd {
            fn children(&self, directory: &str, _: &str) -> Result<Children> {
                assert!(matches!(directory, "" | "d/" | "e/" | "e/f/"), "{directory} was entered");
                let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
                Ok(match directory {
                    "" => Children {
                        files: names(&["x", "../y"]),
                        directories: names(&["d", "e", "..", ".", "", "../up"]),
                        ..Children::default()
                    },
                    "e/" => Children { directories: names(&["f"]), ..Children::default() },
                    "e/f/" => Children::default(),
                    _ => Children {
                        files: names(&["z"]),
                        left_out: vec![("s".into(), "it is a socket".into())],
                        ..Children::default()
                    },
                })
            }
        }
        let mut all = walk(&Odd).unwrap().found;
        all.sort();
        assert_eq!(all, ["../", "../up/", "../y", "./", "/", "d/z", "x"]);
        assert_eq!(walk(&Odd).unwrap().left_out, [LeftOut::new("d/s", "it is a socket")]);
        assert_eq!(walk(&Odd).unwrap().empty, ["e/f"]);
        let super::Names { found, left_out, .. } = glob(&Odd, "*").unwrap();
        assert_eq!(found, ["x"]);
        let left_out: Vec<&str> = left_out.iter().map(|left_out| left_out.name.as_str()).collect();
        assert_eq!(left_out, ["`../y`", "`../up`"]);
    }
}
