//! Makes a directory again from its bytes.

use crate::below::{flush_directory, is_one_name};
use crate::tree::{leads_out, set_time, time_of};
use crate::{
    DIRECTORY, END, Error, FILE, LINK, MAGIC, NAME_BYTES_MAX, PROGRAM, Result, TARGET_BYTES_MAX, holes,
};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 256 << 10;
/// Up to this many files are flushed one by one; if there are more, their whole file system is flushed.
const FLUSHED_SINGLY_MAX: u64 = 256;

/// Permissions of the files and directories that are made, reduced by the process's mask.
#[derive(Debug, Clone, Copy)]
pub struct Modes {
    pub file: u32,
    pub program: u32,
    pub directory: u32,
}

impl Modes {
    /// The permissions that programs usually ask for.
    pub const USUAL: Modes = Modes { file: 0o666, program: 0o777, directory: 0o777 };
}

/// When the directory, and each directory and file in it, was modified, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Times<'a> {
    /// As [`crate::Tree::times`] gives them.
    pub known: &'a [i64],
    /// The time of what is beyond their end. `None`: the time at which it is made.
    pub otherwise: Option<i64>,
}

impl Times<'_> {
    /// Everything has the time at which it is made.
    pub const NOW: Times<'static> = Times { known: &[], otherwise: None };

    fn next(&mut self) -> Option<i64> {
        let Some((first, rest)) = self.known.split_first() else { return self.otherwise };
        self.known = rest;
        Some(*first)
    }
}

/// Makes the files and directories that the bytes describe in `into`, an existing directory that nobody else
/// writes to. Reads all bytes to their end. On an error, what was made stays.
///
/// * `flush`: everything made is on the disk when this returns; the entry of `into` in the directory above
///   need not be.
/// * `wanted` is called again and again; `false` ends the work.
pub fn unpack(
    bytes: &mut dyn Read,
    into: &Path,
    modes: Modes,
    times: Times<'_>,
    flush: bool,
    wanted: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let mut unpacking = Unpacking {
        bytes: BufReader::with_capacity(BUFFER_BYTES, bytes),
        into,
        path: PathBuf::new(),
        modes,
        times,
        flush,
        n_files: 0,
        wanted,
    };
    unpacking.run()?;
    if flush {
        unpacking.flush_all().map_err(Error::io(Path::new("")))?;
    }
    Ok(())
}

struct Unpacking<'a> {
    bytes: BufReader<&'a mut dyn Read>,
    into: &'a Path,
    /// The path of the directory that is being filled.
    path: PathBuf,
    modes: Modes,
    /// Of what is still to be made.
    times: Times<'a>,
    flush: bool,
    n_files: u64,
    wanted: &'a mut dyn FnMut() -> bool,
}

impl Unpacking<'_> {
    fn run(&mut self) -> Result<()> {
        if self.take::<{ MAGIC.len() }>()? != *MAGIC {
            return Err(Error::Damaged { why: "they begin otherwise" });
        }
        // The last name in each open directory, and the directory's time.
        let mut last: Vec<Vec<u8>> = vec![vec![]];
        let mut open_times = vec![self.times.next()];
        while !last.is_empty() {
            let [letter] = self.take()?;
            if letter == END {
                if let Some(time) = open_times.pop().flatten() {
                    set_time(&self.into.join(&self.path), time).map_err(Error::io(&self.path))?;
                }
                if self.flush && self.n_files <= FLUSHED_SINGLY_MAX {
                    let at = self.into.join(&self.path);
                    flush_directory(&at).map_err(Error::io(&self.path))?;
                }
                last.pop();
                self.path.pop();
                continue;
            }
            let name = self.take_text(NAME_BYTES_MAX)?;
            check_name(&name, last.last().expect("one is open"))?;
            let depth = last.len() - 1;
            *last.last_mut().expect("one is open") = name.clone();
            let name = OsString::from_vec(name);
            let path = self.path.join(name);
            match letter {
                FILE => self.make_file(&path, self.modes.file)?,
                PROGRAM => self.make_file(&path, self.modes.program)?,
                LINK => self.make_link(&path, depth)?,
                DIRECTORY => {
                    let made = DirBuilder::new().mode(self.modes.directory).create(self.into.join(&path));
                    made.map_err(Error::io(&path))?;
                    self.path = path;
                    last.push(vec![]);
                    open_times.push(self.times.next());
                }
                _ => return Err(Error::Damaged { why: "there is something of an unknown kind" }),
            }
            if !(self.wanted)() {
                return Err(Error::GivenUp);
            }
        }
        match self.bytes.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(Error::Damaged { why: "they go on behind its end" }),
            Err(e) => Err(Error::io(Path::new(""))(e)),
        }
    }

    fn make_file(&mut self, path: &Path, mode: u32) -> Result<()> {
        let mut left = u64::from_le_bytes(self.take()?);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.into.join(path))
            .map_err(Error::io(path))?;
        while left > 0 {
            let some = match self.bytes.fill_buf() {
                Ok([]) => return Err(ends()),
                Ok(some) => &some[..some.len().min(usize::try_from(left).unwrap_or(usize::MAX))],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io(Path::new(""))(e)),
            };
            holes::append(&file, some).map_err(Error::io(path))?;
            let n = some.len();
            self.bytes.consume(n);
            left -= n as u64;
            if !(self.wanted)() {
                return Err(Error::GivenUp);
            }
        }
        if let Some(time) = self.times.next() {
            file.set_modified(time_of(time)).map_err(Error::io(path))?;
        }
        self.n_files += 1;
        if self.flush && self.n_files <= FLUSHED_SINGLY_MAX {
            file.sync_all().map_err(Error::io(path))?;
        }
        Ok(())
    }

    fn make_link(&mut self, path: &Path, depth: usize) -> Result<()> {
        let target = self.take_text(TARGET_BYTES_MAX)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Damaged { why: "a link leads nowhere" });
        }
        if leads_out(&target, depth).is_some() {
            return Err(Error::Damaged { why: "a link leads out of it" });
        }
        symlink(OsString::from_vec(target), self.into.join(path)).map_err(Error::io(path))
    }

    fn flush_all(&self) -> io::Result<()> {
        let directory = File::open(self.into)?;
        if self.n_files > FLUSHED_SINGLY_MAX {
            rustix::fs::syncfs(&directory)?;
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        match self.bytes.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && e.raw_os_error().is_none() => Err(ends()),
            Err(e) => Err(Error::io(Path::new(""))(e)),
        }
    }

    fn take_text(&mut self, bytes_max: usize) -> Result<Vec<u8>> {
        let n = u32::from_le_bytes(self.take()?) as usize;
        if n > bytes_max {
            return Err(Error::Damaged { why: "a name in it is too long" });
        }
        let mut text = vec![0; n];
        match self.bytes.read_exact(&mut text) {
            Ok(()) => Ok(text),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && e.raw_os_error().is_none() => Err(ends()),
            Err(e) => Err(Error::io(Path::new(""))(e)),
        }
    }
}

/// Gives the owner of a directory and of those below it all rights to them.
fn make_writable(directory: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(directory)?.permissions().mode();
    fs::set_permissions(directory, fs::Permissions::from_mode(mode | 0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

fn ends() -> Error {
    Error::Damaged { why: "they end in its middle" }
}

fn check_name(name: &[u8], before: &[u8]) -> Result<()> {
    let why = match name {
        b"" | b"." | b".." => "a name in it is none",
        _ if !is_one_name(name) => "a name in it is a path",
        _ if name <= before => "its names are not in order",
        _ => return Ok(()),
    };
    Err(Error::Damaged { why })
}

/// Removes a directory with everything in it, directories that nobody may write included, or a file. It is no error if nothing is
/// there.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => match fs::remove_dir_all(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                make_writable(path).and_then(|()| fs::remove_dir_all(path))
            }
            removed => removed,
        },
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Uid;
    use std::os::unix::fs::chown;

    const NOBODY: u32 = 65_534;

    #[test]
    fn directories_that_nobody_may_write_are_removed_by_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("shut/deep")).unwrap();
        fs::write(top.join("shut/deep/file"), "x").unwrap();
        let all = [dir.path(), &top, &top.join("shut"), &top.join("shut/deep"), &top.join("shut/deep/file")];
        // Root may write anywhere, so another user removes them where the test runs as root.
        let is_root = all.iter().all(|path| chown(path, Some(NOBODY), None).is_ok());
        for shut in ["shut/deep", "shut", ""] {
            fs::set_permissions(top.join(shut), fs::Permissions::from_mode(0o500)).unwrap();
        }
        let removed = std::thread::spawn(move || {
            if is_root {
                // It changes this thread alone.
                rustix::thread::set_thread_res_uid(None, Uid::from_raw(NOBODY), None).unwrap();
            }
            remove(&top).map(|()| top.exists())
        });
        assert!(!removed.join().unwrap().unwrap());
    }
}
