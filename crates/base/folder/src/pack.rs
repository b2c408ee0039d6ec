//! The bytes of a directory, one after the other.

use crate::tree::{Entry, Tree};
use crate::{Error, MAGIC, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A reader of a directory's bytes. It gives exactly [`Tree::size_bytes`] bytes. If the directory no longer
/// agrees with the tree, reading fails with [`Error::Changed`] inside the `io::Error`.
#[derive(Debug)]
pub struct Packed {
    directory: PathBuf,
    tree: Tree,
    /// The index of the next entry.
    at: usize,
    /// The path of the previous entry, relative to the directory; a directory's path until it ends.
    path: PathBuf,
    /// Bytes to be given before the bytes of `file`.
    head: Vec<u8>,
    n_given: usize,
    file: Option<(File, u64)>,
}

impl Packed {
    /// `tree` must be the tree of `directory`.
    pub fn new(directory: &Path, tree: Tree) -> Packed {
        let (directory, path) = (directory.to_path_buf(), PathBuf::new());
        Packed { directory, tree, at: 0, path, head: MAGIC.to_vec(), n_given: 0, file: None }
    }

    /// Moves to the next entry. `false`: there is none.
    fn advance(&mut self) -> Result<bool> {
        if self.file.take().is_some() {
            self.path.pop();
        }
        let Some(entry) = self.tree.entries.get(self.at) else { return Ok(false) };
        self.at += 1;
        (self.head, self.n_given) = (Tree::head(entry), 0);
        match entry {
            Entry::Begin { name } => self.path.push(name),
            Entry::End => {
                self.path.pop();
            }
            Entry::Link { .. } => {}
            Entry::File { name, size_bytes, modified, .. } => {
                self.path.push(name);
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(self.directory.join(&self.path))
                    .map_err(Error::io(&self.path))?;
                let now = file.metadata().map_err(Error::io(&self.path))?;
                if now.size() != *size_bytes || (now.mtime(), now.mtime_nsec()) != *modified || !now.is_file()
                {
                    return Err(Error::Changed { path: self.path.clone() });
                }
                self.file = Some((file, *size_bytes));
            }
        }
        Ok(true)
    }
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut n = 0;
        // Fill the buffer as far as possible: a directory may consist of many small files.
        while n < buffer.len() {
            let rest = &self.head[self.n_given..];
            if !rest.is_empty() {
                let some = rest.len().min(buffer.len() - n);
                buffer[n..n + some].copy_from_slice(&rest[..some]);
                (self.n_given, n) = (self.n_given + some, n + some);
                continue;
            }
            if let Some((file, left)) = &mut self.file
                && *left > 0
            {
                let want = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len() - n);
                match file.read(&mut buffer[n..n + want]) {
                    Ok(0) => return Err(Error::Changed { path: self.path.clone() }.into()),
                    Ok(some) => (*left, n) = (*left - some as u64, n + some),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(Error::io(&self.path)(e).into()),
                }
            } else if !self.advance()? {
                break;
            }
        }
        Ok(n)
    }
}
