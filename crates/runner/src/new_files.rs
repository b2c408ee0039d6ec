//! What a program left in its sandbox that is no input and no output of its task.

use crate::protocol::{ByteString, NewFiles};
use crate::sandbox::Sandbox;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

/// Calls `found` with each new file, by its path in the sandbox.
fn each_new(
    sandbox: &Sandbox,
    declared: &[&[u8]],
    found: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut open = vec![PathBuf::new()];
    let mut n_seen = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(sandbox.path.join(&folder))? {
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
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                found(&path)?;
            }
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

/// The new files, in short; `None`: there are none. What cannot be looked at counts as none.
pub(crate) fn find<'a>(
    sandbox: &Sandbox,
    names: impl Iterator<Item = &'a ByteString>,
) -> Option<Box<NewFiles>> {
    if crate::sys::is_empty_dir(std::os::fd::AsFd::as_fd(&sandbox.fd)).unwrap_or(true) {
        return None;
    }
    let mut new = NewFiles::default();
    let _ = each_new(sandbox, &declared(names), &mut |path| {
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
    let mut files = vec![];
    each_new(sandbox, &declared(names), &mut |path| {
        files.push(path.to_owned());
        Ok(())
    })?;
    fs::create_dir_all(&all)?;
    for path in files {
        let to = all.join(&path);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::rename(sandbox.path.join(&path), to)?;
    }
    Ok(())
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
        collect(&sandbox, names.iter()).unwrap();
        assert!(find(&sandbox, names.iter()).is_none());
        for path in ["d/e/f", "new", "o/y"] {
            assert!(sandbox.path.join(".eyas-new").join(path).exists(), "{path}");
        }
    }
}
