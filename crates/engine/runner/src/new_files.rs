//! What a program left in its sandbox that is no input and no output of its task.
//!
//! Of these, [`collect`] brings files, empty directories, links that lead to a place among them as links, and other links to
//! files of the sandbox as the files. What is left then is named.

use crate::protocol::{ByteString, NewFiles};
use crate::sandbox::Sandbox;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// So many names are told.
const NAMES_MAX: usize = 3;
/// The longest name that is told whole.
const NAME_BYTES_MAX: usize = 200;
/// Entries of directories that are looked at; the count is of these.
const LOOKED_AT_MAX: u32 = 100_000;

/// An output of this name is the directory of all new files.
pub(crate) const ALL_NEW: &[u8] = b".eyas-new/";

/// Whether files of this name are nobody's results: hidden ones, and what Python compiles.
fn is_aside(name: &[u8]) -> bool {
    name.starts_with(b".") || name == b"__pycache__"
}

/// What is new, besides directories with something in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    File,
    Link,
    EmptyDirectory,
    /// A pipe, a socket, a device.
    Other,
}

/// Calls `found` with what is new, by its path in the sandbox.
fn each_new(
    sandbox: &Sandbox,
    declared: &[&[u8]],
    found: &mut dyn FnMut(&Path, Kind) -> io::Result<()>,
) -> io::Result<()> {
    let mut open = vec![PathBuf::new()];
    let mut n_seen = 0;
    while let Some(folder) = open.pop() {
        let mut is_empty = true;
        for entry in fs::read_dir(sandbox.path.join(&folder))? {
            is_empty = false;
            n_seen += 1;
            if n_seen > LOOKED_AT_MAX {
                return Ok(());
            }
            let entry = entry?;
            if is_aside(entry.file_name().as_bytes()) {
                continue;
            }
            let path = folder.join(entry.file_name());
            let bytes = path.as_os_str().as_bytes();
            if declared.binary_search(&bytes).is_ok() {
                continue;
            }
            let kind = entry.file_type()?;
            match kind {
                kind if kind.is_dir() => open.push(path),
                kind if kind.is_file() => found(&path, Kind::File)?,
                kind if kind.is_symlink() => found(&path, Kind::Link)?,
                _ => found(&path, Kind::Other)?,
            }
        }
        if is_empty && !folder.as_os_str().is_empty() {
            found(&folder, Kind::EmptyDirectory)?;
        }
    }
    Ok(())
}

/// Names of inputs and outputs as paths in the sandbox, sorted.
fn declared<'a>(names: impl Iterator<Item = &'a ByteString>) -> Vec<&'a [u8]> {
    let mut declared: Vec<&[u8]> = names.map(|name| name.strip_suffix(b"/").unwrap_or(name)).collect();
    declared.sort_unstable();
    declared
}

/// The new files, in short, and where all of them are an output, what else was left behind; `None`: there are none. What cannot be
/// looked at counts as none.
pub(crate) fn find<'a>(
    sandbox: &Sandbox,
    names: impl Iterator<Item = &'a ByteString>,
) -> Option<Box<NewFiles>> {
    if crate::sys::is_empty_dir(std::os::fd::AsFd::as_fd(&sandbox.fd)).unwrap_or(true) {
        return None;
    }
    let mut new = NewFiles::default();
    let declared = declared(names);
    let has_all = declared.contains(&&ALL_NEW[..ALL_NEW.len() - 1]);
    let _ = each_new(sandbox, &declared, &mut |path, kind| {
        if kind != Kind::File && !has_all {
            return Ok(());
        }
        new.n_files += 1;
        if new.names.len() < NAMES_MAX {
            let bytes = path.as_os_str().as_bytes();
            new.names.push(bytes[..bytes.len().min(NAME_BYTES_MAX)].to_vec().into());
        }
        Ok(())
    });
    new.names.sort();
    (new.n_files > 0).then(|| Box::new(new))
}

/// Moves all new files into the directory [`ALL_NEW`], which is an output.
pub(crate) fn collect<'a>(sandbox: &Sandbox, names: impl Iterator<Item = &'a ByteString>) -> io::Result<()> {
    let all = sandbox.path.join(Path::new(std::ffi::OsStr::from_bytes(&ALL_NEW[..ALL_NEW.len() - 1])));
    let root = fs::canonicalize(&sandbox.path)?;
    let (mut files, mut links) = (vec![], vec![]);
    each_new(sandbox, &declared(names), &mut |path, kind| {
        match kind {
            Kind::File | Kind::EmptyDirectory => files.push(path.to_owned()),
            Kind::Link => {
                let real = fs::canonicalize(sandbox.path.join(path)).ok();
                let inside = real.and_then(|real| real.strip_prefix(&root).ok().map(Path::to_owned));
                links.extend(inside.map(|inside| (path.to_owned(), inside)));
            }
            Kind::Other => {}
        }
        Ok(())
    })?;
    fs::create_dir_all(&all)?;
    let bring = |path: &Path| {
        let to = all.join(path);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::rename(sandbox.path.join(path), to)?;
        remove_emptied(&sandbox.path, path);
        io::Result::Ok(())
    };
    files.iter().try_for_each(|path| bring(path))?;
    for (path, inside) in links {
        let (from, to) = (sandbox.path.join(&path), all.join(&path));
        let brought = all.join(&inside);
        let shown = if fs::symlink_metadata(&brought).is_ok() { brought } else { sandbox.path.join(&inside) };
        if shown != all && shown.starts_with(&all) && leads_straight(&fs::read_link(&from)?, &path) {
            bring(&path)?;
        } else if shown.is_file() {
            fs::create_dir_all(to.parent().unwrap_or(&all))?;
            fs::copy(shown, to)?;
            fs::remove_file(from)?;
            remove_emptied(&sandbox.path, &path);
        }
    }
    Ok(())
}

/// Whether a directory output may keep a link at `path` that leads there: it is relative, and `..` stands only at its beginning, and does
/// not lead out.
fn leads_straight(target: &Path, path: &Path) -> bool {
    let n_up = target.components().take_while(|part| *part == Component::ParentDir).count();
    let is_plain = |part| matches!(part, Component::Normal(_));
    n_up < path.components().count() && target.components().skip(n_up).all(is_plain)
}

/// Removes the directories above `path` that have nothing in them any more.
fn remove_emptied(sandbox: &Path, path: &Path) {
    for folder in path.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty()) {
        if fs::remove_dir(sandbox.join(folder)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Pool;

    #[test]
    fn what_is_declared_or_hidden_is_not_new() {
        let base = tempfile::tempdir().unwrap();
        let sandbox = Pool::new(base.path()).unwrap().take().unwrap();
        for (path, folder) in [
            ("in", ""),
            ("o/x", "o"),
            ("o/y", "o"),
            ("whole/z", "whole"),
            (".hidden", ""),
            ("__pycache__/a", "__pycache__"),
            ("new", ""),
            ("d/e/f", "d/e"),
        ] {
            fs::create_dir_all(sandbox.path.join(folder)).unwrap();
            fs::write(sandbox.path.join(path), "").unwrap();
        }
        std::os::unix::fs::symlink("in", sandbox.path.join("link")).unwrap();
        let names: Vec<ByteString> = ["in", "o/x", "whole/"].map(ByteString::from).into();
        let new = find(&sandbox, names.iter()).unwrap();
        assert_eq!((new.n_files, new.names), (3, ["d/e/f", "new", "o/y"].map(ByteString::from).to_vec()));
        for (link, to) in [("o/same", "y"), ("here", "d/e/f"), ("folder", "d"), ("away", "/")] {
            std::os::unix::fs::symlink(to, sandbox.path.join(link)).unwrap();
        }
        fs::create_dir_all(sandbox.path.join("empty/one")).unwrap();
        let names: Vec<ByteString> = ["in", "o/x", "whole/", ".eyas-new/"].map(ByteString::from).into();
        collect(&sandbox, names.iter()).unwrap();
        let left = find(&sandbox, names.iter()).unwrap();
        assert_eq!((left.n_files, left.names), (1, ["away"].map(ByteString::from).to_vec()));
        let all = sandbox.path.join(".eyas-new");
        for link in ["o/same", "here", "folder"] {
            assert!(all.join(link).is_symlink() && all.join(link).exists(), "{link}");
        }
        assert!(all.join("link").is_file() && !all.join("link").is_symlink());
        assert!(all.join("empty/one").is_dir());
        for path in ["d/e/f", "new", "o/y"] {
            assert!(sandbox.path.join(".eyas-new").join(path).exists(), "{path}");
        }
    }
}
