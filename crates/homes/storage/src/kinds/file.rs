//! `file` homes: paths of this machine, on its own disk or on a mounted shared file system.
//!
//! Reading takes size and version from the open handle and checks them again when the last byte is given.
//! So a file that is changed meanwhile gives `Changed` and never a mixture. Writing goes to a temporary
//! name in the same directory, is flushed to disk, and becomes visible by a rename.
//!
//! A temporary name (`parts.rs`) is created exclusively, so a file left behind by a dead process is never
//! written to, renamed or listed. It is removed by its writer, otherwise by a later writer of the same
//! object ([`Part::replaces`]), otherwise by a process that finds it noted ([`Home::remove_part`]). The
//! latter two also keep a writer that was stopped from taking an object's name.
//!
//! A location that ends in `/` is a directory as one object, see [`directory`].
//!
//! Not here: owner and extended attributes; objects are bytes with permission bits.

mod directory;
mod glob;
pub(crate) mod mounts;
pub(crate) mod near;

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::parts::{PART_PREFIX, part_path, parts_in, remove_part};
use crate::put::given_up;
use crate::version::Version;
use crate::{
    Capabilities, Fence, Home, HomesConfig, Listed, Listing, Location, Opened, Part, PartPlace, Put, Stat,
};
use eyas_folder::{OpenDirectory, holes, time_of};
use eyas_text::shown_path;
use mounts::PLACES;
use near::{NearFolders, has_own_inodes};
use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Large enough that a network file system gets whole requests, small enough for the CPU's cache.
const COPY_BYTES: usize = 256 * 1024;

pub(crate) const STAT: &str = "stat";
pub(crate) const READ: &str = "read";
pub(crate) const WRITE: &str = "write";
const LIST: &str = "list";
const REMOVE: &str = "remove";
const RENAME: &str = "rename";
const MAKE_DIRECTORY: &str = "make the directory";
const SET_MODE: &str = "change the permissions of";

const CAPABILITIES: Capabilities = Capabilities {
    name: "file",
    read: true,
    read_range: true,
    stat: true,
    write: true,
    atomic_rename: true,
    fences: true,
    list: true,
    remove: true,
    local_path: true,
    directories: true,
    rename: true,
    make_directory: true,
    modes: true,
};

/// The scheme of plain paths, and of URLs that name a path of this machine (RFC 8089).
pub(crate) struct Files;

impl Kind for Files {
    fn schemes(&self) -> &'static [&'static str] {
        &["file"]
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn schemes_are_urls(&self) -> bool {
        false
    }

    fn canonical(&self, url: Url<'_>, _out: &mut String) -> std::result::Result<Spelling, Refusal> {
        let path =
            url.rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(url.rest);
        if !path.starts_with('/') {
            let hint = "write file:///path, with three slashes";
            return Err(Refusal::new("does not name a file of this machine", hint));
        }
        match percent_decode(path) {
            Some(path) if path.contains('\0') => Err(Refusal::new("holds a NUL byte", None)),
            Some(path) => Ok(Spelling::Path(path)),
            None => {
                let hint = "write %25 for a percent sign, or the plain path";
                Err(Refusal::new("has a `%` that begins no escape", hint))
            }
        }
    }

    fn open(&self, config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(FileHome::new(config.home_local.clone())?))
    }
}

/// The URL of an absolute path, with all special characters percent-encoded.
pub fn url_of_path(path: &str) -> String {
    let mut url = String::from("file://");
    push_encoded(&mut url, path, is_path_mark, false);
    url
}

/// Homes whose files are reached by path.
#[derive(Debug, Default)]
pub struct FileHome {
    /// Directories on this node's own disk, without symbolic links in them.
    home_local: Vec<PathBuf>,
    /// By directory and epoch: the parts of earlier epochs that lay in the directory when it was first
    /// written to in that epoch. No process makes more of these, so one listing serves all writers there.
    old_parts: Mutex<HashMap<(PathBuf, u64), Vec<(Part, PathBuf)>>>,
    near: NearFolders,
}

impl FileHome {
    /// * `home_local`: directories on this node's own disk; files below them are used in place. Each has to
    ///   exist.
    pub fn new(home_local: Vec<PathBuf>) -> Result<FileHome> {
        let resolve = |directory: PathBuf| {
            fs::canonicalize(&directory)
                .map_err(|error| Error::from_io("use the local home", directory.display(), error))
        };
        let home_local = home_local.into_iter().map(resolve).collect::<Result<_>>()?;
        Ok(FileHome { home_local, ..FileHome::default() })
    }

    /// Removes the parts in `directory` that earlier writers of the same object left before `part`.
    pub(crate) fn remove_earlier(&self, directory: &Path, part: &Part) -> io::Result<()> {
        let is_earlier = |p: &Part| p.work == part.work && (p.epoch, p.number) < (part.epoch, part.number);
        let remove = |parts: &[(Part, PathBuf)]| -> io::Result<()> {
            for (_, path) in parts.iter().filter(|(p, _)| is_earlier(p)) {
                remove_part(path)?;
            }
            Ok(())
        };
        // A first try has predecessors only in earlier epochs.
        if part.number > 1 {
            return remove(&parts_in(directory)?);
        }
        let key = (directory.to_path_buf(), part.epoch);
        let mut known = self.old_parts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !known.contains_key(&key) {
            let mut parts = parts_in(directory)?;
            parts.retain(|(p, _)| p.epoch < part.epoch);
            known.retain(|(_, epoch), _| *epoch == part.epoch);
            known.insert(key.clone(), parts);
        }
        remove(&known[&key])
    }
}

impl Home for FileHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        let path = path_of(STAT, location)?;
        if location.is_directory() {
            return directory::stat(location, path);
        }
        let metadata = fs::metadata(path).map_err(|error| explain(STAT, location, path, error))?;
        self.near.note(path);
        stat_of(STAT, location, &metadata)
    }

    fn stat_at_once(&self, location: &Location) -> Option<Stat> {
        let path = location.path().filter(|_| !location.is_directory())?;
        stat_of(STAT, location, &self.near.look(path)?).ok()
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        let path = path_of(READ, location)?;
        if location.is_directory() {
            return directory::open(location, path, range);
        }
        // Without O_NONBLOCK opening a named pipe would wait for a writer; on regular files it changes
        // nothing.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|error| explain(READ, location, path, error))?;
        let metadata = file.metadata().map_err(|error| Error::from_io(READ, location, error))?;
        let stat = stat_of(READ, location, &metadata)?;
        let range = range.unwrap_or(0..stat.size_bytes);
        if range.start > range.end || range.end > stat.size_bytes {
            return Err(Error::range_outside(READ, location, &range, stat.size_bytes));
        }
        let file = Arc::new(file);
        let reader = FileReader {
            file: file.clone(),
            location: location.clone(),
            stat: stat.clone(),
            at: range.start,
            end: range.end,
        };
        Ok(Opened {
            location: location.clone(),
            stat,
            range,
            reader: Box::new(reader),
            file: Some(file),
            times: vec![],
        })
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        if location.is_directory() {
            return directory::put(self, location, body, put);
        }
        let size_hint_bytes = put.size_hint_bytes;
        let fail = |error| Error::from_io(WRITE, location, error);
        // An open directory keeps its path until the object has its name.
        let (real, _open) = match put.below {
            None => (target_of(location)?, None),
            Some(top) => {
                let (path, open) = target_below(location, top)?;
                (path, Some(open))
            }
        };
        let path = real.as_path();
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(not_a_file(WRITE, location, "it is a directory"));
        };
        if put.below.is_none() {
            create_directories(directory).map_err(fail)?;
        }
        let temporary = Temporary::create(directory, name.as_encoded_bytes(), put).map_err(fail)?;
        if let Some(size_bytes) = size_hint_bytes {
            reserve(&temporary.file, size_bytes).map_err(fail)?;
        }
        let mut buffer = vec![0; COPY_BYTES];
        let mut size_bytes: u64 = 0;
        loop {
            put.may_go_on(location)?;
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(Error::from_read(WRITE, location, error).with_context(
                        "failed at",
                        format!("reading byte {size_bytes} of what was to be written"),
                    ));
                }
            };
            holes::append(&temporary.file, &buffer[..n]).map_err(fail)?;
            size_bytes += n as u64;
        }
        if size_hint_bytes.is_some_and(|hint_bytes| hint_bytes > size_bytes) {
            // Gives back the space that was reserved beyond the end.
            temporary.file.set_len(size_bytes).map_err(fail)?;
        }
        temporary.file.set_permissions(fs::Permissions::from_mode(temporary.mode)).map_err(fail)?;
        if let Some(modified_ns) = put.modified_ns {
            temporary.file.set_modified(time_of(modified_ns)).map_err(fail)?;
        }
        temporary.file.sync_all().map_err(fail)?;
        // The metadata are read after the flush: only then has a network file system's server set the final
        // time.
        let metadata = temporary.file.metadata().map_err(fail)?;
        let mut stat = stat_of(WRITE, location, &metadata)?;
        if put.part.replaces {
            self.remove_earlier(directory, &put.part).map_err(fail)?;
        }
        put.may_appear(location)?;
        temporary.rename_to(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let why =
                    "somebody removed the temporary file: a later writer of the same object has taken over";
                given_up(WRITE, location, why.into())
            }
            _ => of_name(WRITE, location, path, error),
        })?;
        sync_directory(directory).map_err(fail)?;
        // The new name is a change of the file, too, and a handle of MooseFS has an earlier time even after the flush. By its
        // name the file has the final times.
        if let Ok(now) = fs::metadata(path)
            && (now.dev(), now.ino(), now.len()) == (metadata.dev(), metadata.ino(), metadata.len())
        {
            stat = stat_of(WRITE, location, &now)?;
        }
        Ok(stat)
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        let is_part =
            part.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PART_PREFIX.as_bytes()));
        if !is_part {
            return Ok(());
        }
        remove_part(part).map_err(|error| Error::from_io(REMOVE, part.display(), error))
    }

    fn remove_parts(&self, location: &Location, part: &Part) -> Result<()> {
        let Some(directory) = path_of(REMOVE, location)?.parent() else { return Ok(()) };
        match self.remove_earlier(directory, part) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(Error::from_io(REMOVE, directory.display(), error))
            }
            _ => Ok(()),
        }
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        let keep = |name: &str| !name.starts_with(PART_PREFIX);
        let listed = match listing {
            Listing::Under(directory) => glob::walk(path_of(LIST, directory)?, &keep)?,
            Listing::Glob { directory, pattern } => {
                path_of(LIST, directory)?;
                glob::glob(directory, pattern, &keep)?
            }
        };
        // Two `**` can reach one file in two ways.
        Ok(listed.in_order())
    }

    fn remove(&self, location: &Location) -> Result<()> {
        let path = path_of(REMOVE, location)?;
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(not_a_file(REMOVE, location, "it is a directory")),
            _ => fs::remove_file(path).map_err(|error| of_name(REMOVE, location, path, error)),
        }
    }

    /// A link is renamed itself, as by `mv`.
    fn rename(&self, from: &Location, to: &Location) -> Result<bool> {
        let (path, new) = (path_of(RENAME, from)?, path_of(RENAME, to)?);
        let fail = |error| Error::from_io(RENAME, from, error).with_context("new name", to);
        let is_directory = fs::symlink_metadata(path).map_err(fail)?.is_dir();
        if is_directory != from.is_directory() {
            let what = if is_directory { "it is a directory" } else { "it is no directory" };
            return Err(not_a_file(RENAME, from, what));
        }
        let (Some(old_above), Some(above)) = (path.parent(), new.parent()) else {
            return Err(not_a_file(RENAME, from, "the root has no other name"));
        };
        if is_directory && new.starts_with(path) {
            return Err(not_a_file(
                RENAME,
                from,
                "a directory cannot be moved below itself, or to its own name",
            ));
        }
        if is_directory && fs::symlink_metadata(new).is_ok() {
            return Err(not_a_file(
                RENAME,
                to,
                "there is something of the new name, and a directory replaces nothing",
            ));
        }
        create_directories(above).map_err(fail)?;
        match are_links_of_one_file(path, new) {
            true => fs::remove_file(path).map_err(fail)?,
            false => match fs::rename(path, new) {
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => return Ok(false),
                other => other.map_err(|error| match error.raw_os_error() {
                    Some(libc::EBUSY) if mounts::is_point(path) => of_name(RENAME, from, path, error),
                    Some(libc::EBUSY) => of_name(RENAME, to, new, error),
                    _ => fail(error),
                })?,
            },
        }
        sync_directory(above).and_then(|()| sync_directory(old_above)).map_err(fail)?;
        Ok(true)
    }

    fn make_directory(&self, location: &Location) -> Result<()> {
        let path = path_of(MAKE_DIRECTORY, location)?;
        create_directories(path).map_err(|error| Error::from_io(MAKE_DIRECTORY, location, error))
    }

    fn remove_directory(&self, location: &Location) -> Result<u64> {
        let path = path_of(REMOVE, location)?;
        let fail = |error| Error::from_io(REMOVE, location, error);
        if !fs::symlink_metadata(path).map_err(fail)?.is_dir() {
            return Err(not_a_file(REMOVE, location, "it is no directory"));
        }
        let n_files = count_files(path).map_err(fail)?;
        match fs::remove_dir_all(path) {
            Ok(()) => Ok(n_files),
            Err(error) => {
                let n_left = count_files(path).unwrap_or(n_files);
                Err(of_name(REMOVE, location, path, error).after_removing(n_files.saturating_sub(n_left)))
            }
        }
    }

    fn set_mode(&self, location: &Location, mode: u32) -> Result<()> {
        let path = path_of(SET_MODE, location)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777))
            .map_err(|error| Error::from_io(SET_MODE, location, error))
    }

    fn places(&self, location: &Location) -> Result<Vec<PartPlace>> {
        mounts::places(path_of(PLACES, location)?, location)
    }

    /// Links are resolved first: a link inside a local directory may lead to shared storage, and the other
    /// way round.
    fn local_path(&self, location: &Location) -> Option<PathBuf> {
        let path = location.path()?;
        if self.home_local.is_empty() {
            return None;
        }
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            // The file does not exist yet: an output is local if its directory is.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?)
            }
            Err(_) => return None,
        };
        self.home_local.iter().any(|local| real.starts_with(local)).then_some(real)
    }
}

/// See [`crate::Homes::make_directory_below`]. `to`: where that is.
pub(crate) fn make_directory_below(top: &Path, name: &str, to: &Location) -> Result<()> {
    let made = create_directories(top).and_then(|()| match name {
        "" => Ok(()),
        name => eyas_folder::open_parent(top, &Path::new(name).join("x")).map(drop),
    });
    made.map_err(|error| Error::from_io(MAKE_DIRECTORY, to, error))
}

/// Whether two names are two hard links of one file: a rename of one to the other is defined to do nothing, and both would stay. One name
/// in two spellings, of a directory or of letters, is no such pair.
fn are_links_of_one_file(path: &Path, new: &Path) -> bool {
    let about = |path| fs::symlink_metadata(path).map(|of| (of.dev(), of.ino(), of.nlink()));
    let is_one_file = matches!((about(path), about(new)), (Ok(one), Ok(other)) if one == other && one.2 > 1);
    let above = |path: &Path| path.parent().and_then(|above| fs::canonicalize(above).ok());
    let is_one_name = || {
        let names = path.file_name().zip(new.file_name());
        above(path) == above(new) && names.is_none_or(|(one, other)| one.eq_ignore_ascii_case(other))
    };
    is_one_file && !is_one_name()
}

/// Gives `at..end` of an open file by positioned reads, so the handle can be shared.
struct FileReader {
    file: Arc<File>,
    location: Location,
    stat: Stat,
    at: u64,
    end: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        if want == 0 {
            // Files of the kernel, as under `/proc`, say that they have none.
            let has_more = self.stat.size_bytes == 0
                && !buffer.is_empty()
                && self.file.read_at(&mut [0; 1], 0).is_ok_and(|n| n > 0);
            return match has_more {
                false => Ok(0),
                true => {
                    let difference = "it has more than the 0 B that it said; a copy by `cat` has them".into();
                    Err(Error::changed(READ, &self.location, difference).into())
                }
            };
        }
        let n = match self.file.read_at(&mut buffer[..want], self.at) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => return Err(Error::from_io(READ, &self.location, error).into()),
        };
        self.at += n as u64;
        if n == 0 || self.at == self.end {
            // The check comes with the last bytes, because a caller that knows the size may never ask for
            // more.
            check_unchanged(&self.file, &self.location, &self.stat)?;
        }
        if n == 0 {
            // The file is shorter, but size and time are the same: a network file system with a stale
            // cache.
            let reason = format!("it ended at byte {} of {}", self.at, self.stat.size_bytes);
            let error = Error::new(ErrorKind::Io, Status::Temporary, READ, &self.location, reason);
            return Err(error.into());
        }
        Ok(n)
    }
}

pub(crate) fn check_unchanged(file: &File, location: &Location, stat: &Stat) -> Result<()> {
    let metadata = file.metadata().map_err(|error| Error::from_io(READ, location, error))?;
    // What is done to the name of an open file is no change of its bytes.
    let now = Version::of_file(metadata.size(), modified_ns(&metadata), None, metadata.mode());
    if !now.contradicts(&stat.version) {
        return Ok(());
    }
    Err(Error::changed(READ, location, Version::describe_change(&stat.version, &now)))
}

/// A file that is removed with this value unless it was renamed to its final name.
struct Temporary<'a> {
    file: File,
    path: PathBuf,
    /// The permission bits of the complete file. Until then only its owner may read it.
    mode: u32,
    is_renamed: bool,
    fence: &'a dyn Fence,
}

impl<'a> Temporary<'a> {
    fn create(directory: &Path, name: &[u8], put: &Put<'a>) -> io::Result<Temporary<'a>> {
        loop {
            let path = part_path(directory, name, &put.part);
            put.fence.part_begins(&path);
            // The bits that the umask leaves of 0o666 are the usual permissions of this process's files.
            match OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path) {
                Ok(file) => {
                    let usual = file.metadata()?.permissions().mode() & 0o777;
                    let mode = put.mode.map_or(usual, |mode| mode & 0o777);
                    file.set_permissions(fs::Permissions::from_mode(0o600))?;
                    return Ok(Temporary { file, path, mode, is_renamed: false, fence: put.fence });
                }
                Err(error) => {
                    put.fence.part_ended(&path);
                    if error.kind() != io::ErrorKind::AlreadyExists {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn rename_to(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_renamed && remove_part(&self.path).is_err() {
            // The part stays noted: a reader of the note tries again.
            return;
        }
        self.fence.part_ended(&self.path);
    }
}

/// Reserves space without changing the size, if the file system can do so; only a lack of space is a
/// failure.
fn reserve(file: &File, size_bytes: u64) -> io::Result<()> {
    let Ok(length) = libc::off_t::try_from(size_bytes) else {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    };
    if length == 0 {
        return Ok(());
    }
    // The free space is checked first, because a reservation that does not fit takes all free space before
    // it fails, and others would find the disk full meanwhile.
    if free_bytes(file).is_some_and(|free_bytes| size_bytes > free_bytes) {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    // SAFETY: the descriptor is open for the whole call, and the call touches no memory of ours.
    if unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, length) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Err(error),
        _ => Ok(()),
    }
}

/// The bytes that this user may still write to the file system of `file`; `None` if the file system does
/// not report it.
pub fn free_bytes(file: &File) -> Option<u64> {
    // SAFETY: the structure is plain numbers, for which zero is a value; the descriptor is open; the call
    // fills it.
    let (rc, about, is_root) = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(file.as_raw_fd(), &mut about), about, libc::geteuid() == 0)
    };
    if rc != 0 || about.f_blocks == 0 {
        return None;
    }
    let blocks = if is_root { about.f_bfree } else { about.f_bavail };
    Some(blocks.saturating_mul(about.f_frsize))
}

/// Like `create_dir_all`, but each new directory's entry is flushed to disk.
pub(crate) fn create_directories(directory: &Path) -> io::Result<()> {
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let parent = directory.parent();
    if let Some(parent) = parent {
        create_directories(parent)?;
    }
    match fs::create_dir(directory) {
        // Another writer has created the directory meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
        other => other?,
    }
    parent.map_or(Ok(()), sync_directory)
}

/// All that is below a directory and no directory itself.
fn count_files(directory: &Path) -> io::Result<u64> {
    let mut n_files = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        n_files += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(n_files)
}

pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // Some network file systems cannot flush a directory, and one may be writable but not readable. The rename
        // itself has succeeded, so this must not fail a finished write.
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOTSUP | libc::ENOSYS | libc::EACCES | libc::EPERM) => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    }
}

/// The real target of a write: behind a symbolic link, as in the redirection of a shell, and never in place
/// of something that is no file (an output named `/dev/null` must not replace the device).
fn target_of(location: &Location) -> Result<PathBuf> {
    let path = path_of(WRITE, location)?;
    let fail = |error| explain(WRITE, location, path, error);
    match fs::symlink_metadata(path) {
        Err(_) => Ok(path.to_path_buf()),
        Ok(metadata) if metadata.is_symlink() => {
            let real = fs::canonicalize(path).map_err(fail)?;
            stat_of(WRITE, location, &fs::metadata(&real).map_err(fail)?)?;
            Ok(real)
        }
        Ok(metadata) => stat_of(WRITE, location, &metadata).map(|_| path.to_path_buf()),
    }
}

/// The target of a write whose name below `top` comes from outside, by a path that leads through no link, and the open directory that
/// the path begins with.
fn target_below(location: &Location, top: &Path) -> Result<(PathBuf, OpenDirectory)> {
    let path = path_of(WRITE, location)?;
    let fail = |error| Error::from_io(WRITE, location, error);
    let outside =
        || Error::new(ErrorKind::InvalidName, Status::Permanent, WRITE, location, "it lies elsewhere");
    let name = path.strip_prefix(top).map_err(|_| outside())?;
    create_directories(top).map_err(fail)?;
    let open = eyas_folder::open_parent(top, name).map_err(fail)?;
    let target = open.path().join(name.file_name().ok_or_else(outside)?);
    match fs::symlink_metadata(&target) {
        Err(_) => Ok((target, open)),
        Ok(metadata) if metadata.is_symlink() => {
            let reason = "there is a symbolic link of this name, and what it leads to may lie elsewhere";
            Err(Error::new(ErrorKind::InvalidName, Status::Permanent, WRITE, location, reason))
        }
        Ok(metadata) => stat_of(WRITE, location, &metadata).map(|_| (target, open)),
    }
}

pub(crate) fn path_of<'a>(operation: &'static str, location: &'a Location) -> Result<&'a Path> {
    location.path().ok_or_else(|| {
        Error::unsupported(operation, location, CAPABILITIES.name).with_context("scheme", location.scheme())
    })
}

pub(crate) fn not_a_file(operation: &'static str, location: &Location, reason: &str) -> Error {
    Error::new(ErrorKind::NotAFile, Status::Permanent, operation, location, reason)
}

fn stat_of(operation: &'static str, location: &Location, metadata: &Metadata) -> Result<Stat> {
    if metadata.is_dir() {
        return Err(not_a_file(operation, location, "it is a directory"));
    }
    if !metadata.is_file() {
        return Err(not_a_file(operation, location, "it is not a regular file"));
    }
    let size_bytes = metadata.size();
    let changed_ns = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    let inode = location
        .path()
        .filter(|path| has_own_inodes(metadata.dev(), path))
        .map(|_| (metadata.ino(), changed_ns));
    Ok(Stat {
        size_bytes,
        version: Version::of_file(size_bytes, modified_ns(metadata), inode, metadata.mode()),
    })
}

/// Nanoseconds since 1970; the type is wide enough for any time that a file can have.
fn modified_ns(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// The error of a call that gives `path` to another object, or takes it away. On a mount point no such call can work.
fn of_name(operation: &'static str, location: &Location, path: &Path, error: io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EBUSY) && mounts::is_point(path) {
        let reason = "it is a mount point, and the system lets nothing else have its name; name another place, or \
                      mount the folder that it is in";
        return Error::new(ErrorKind::NotAFile, Status::Permanent, operation, location, reason)
            .with_source(error);
    }
    Error::from_io(operation, location, error)
}

/// Says more than "no such file" if a symbolic link is the cause.
pub(crate) fn explain(operation: &'static str, location: &Location, path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound
        && let Ok(target) = fs::read_link(path)
    {
        let reason = format!("it is a symbolic link to {}, which is not there", shown_path(&target));
        return Error::new(ErrorKind::NotFound, Status::Permanent, operation, location, reason)
            .with_source(error);
    }
    Error::from_io(operation, location, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::part_named;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    fn at(path: &Path) -> Location {
        Location::from_path(path).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn conformance() {
        let dir = tempfile::tempdir().unwrap();
        crate::conformance::run(&FileHome::default(), &at(dir.path()));
    }

    #[test]
    fn a_file_that_says_it_is_empty_and_is_not_is_not_read_as_empty() {
        let home = FileHome::default();
        let mut opened = home.open(&at(Path::new("/proc/version")), None).unwrap();
        let error = opened.reader.read_to_end(&mut vec![]).unwrap_err().to_string();
        assert!(error.contains("more than the 0 B that it said"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("empty"), "").unwrap();
        let mut opened = home.open(&at(&dir.path().join("empty")), None).unwrap();
        assert_eq!(opened.reader.read_to_end(&mut vec![]).unwrap(), 0);
    }

    #[test]
    fn of_two_links_of_a_file_the_renamed_one_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let home = FileHome::default();
        fs::write(path("one"), "bytes").unwrap();
        fs::hard_link(path("one"), path("two")).unwrap();
        assert!(home.rename(&at(&path("one")), &at(&path("two"))).unwrap());
        assert_eq!(names(dir.path()), ["two"]);
        // One name in two spellings is one link.
        fs::hard_link(path("two"), path("three")).unwrap();
        symlink(".", path("here")).unwrap();
        for same in ["two", "here/two"] {
            assert!(home.rename(&at(&path("two")), &at(&path(same))).unwrap());
            assert_eq!(names(dir.path()), ["here", "three", "two"], "{same}");
        }
        assert_eq!(fs::read(path("two")).unwrap(), b"bytes");
    }

    #[test]
    fn a_file_of_equal_size_and_date_that_is_put_in_place_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("x"), dir.path().join("other"));
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let make = |path: &Path, bytes: &str| {
            fs::write(path, bytes).unwrap();
            File::options().write(true).open(path).unwrap().set_modified(date).unwrap();
        };
        let home = FileHome::default();
        make(&path, "one");
        make(&other, "two");
        let before = home.stat(&at(&path)).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_ne!(home.stat(&at(&path)).unwrap(), before);
        // Whoever reads the old file meanwhile reads all of it.
        let mut opened = home.open(&at(&path), None).unwrap();
        make(&other, "six");
        fs::rename(&other, &path).unwrap();
        let mut text = String::new();
        opened.reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "two");
        // In a directory as one object, too.
        let folder = || Location::parse(&format!("{}/", dir.path().display()), Path::new("/")).unwrap();
        let before = home.stat(&folder()).unwrap();
        make(&other, "ten");
        fs::rename(&other, &path).unwrap();
        assert_ne!(home.stat(&folder()).unwrap(), before);
    }

    #[test]
    fn what_is_no_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let home = FileHome::default();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("dir")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        symlink("circle", path("circle")).unwrap();
        fs::write(path("file"), "x").unwrap();
        let pipe = std::ffi::CString::new(path("pipe").to_str().unwrap()).unwrap();
        // SAFETY: the pointer is to a NUL-terminated string that lives across the call.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let long = "x".repeat(300);
        for (name, kind, words) in [
            ("dir", ErrorKind::NotAFile, "it is a directory"),
            ("dangling", ErrorKind::NotFound, "a symbolic link to `nowhere`, which is not there"),
            ("circle", ErrorKind::InvalidName, "circle"),
            ("pipe", ErrorKind::NotAFile, "not a regular file"),
            ("file/x", ErrorKind::NotFound, "not a directory"),
            (&long, ErrorKind::InvalidName, "too long"),
        ] {
            for error in
                [home.stat(&at(&path(name))).unwrap_err(), home.open(&at(&path(name)), None).err().unwrap()]
            {
                assert_eq!((error.kind(), error.status()), (kind, Status::Permanent), "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
        }
        assert_eq!(
            home.write(&at(&path("dir")), &mut &b""[..], None).unwrap_err().kind(),
            ErrorKind::NotAFile
        );
        assert_eq!(
            home.write(&at(Path::new("/")), &mut &b""[..], None).unwrap_err().kind(),
            ErrorKind::NotAFile
        );
        // A file must not replace anything that is no file; a link to a file leads to that file.
        assert_eq!(
            home.write(&at(&path("pipe")), &mut &b""[..], None).unwrap_err().kind(),
            ErrorKind::NotAFile
        );
        let error = home.write(&at(Path::new("/dev/null")), &mut &b""[..], None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAFile, "{error}");
        let error = home.write(&at(&path("dangling")), &mut &b""[..], None).unwrap_err();
        assert!(error.to_string().contains("`nowhere`, which is not there"), "{error}");
        symlink("file", path("link")).unwrap();
        home.write(&at(&path("link")), &mut &b"through"[..], None).unwrap();
        assert_eq!(fs::read(path("file")).unwrap(), b"through");
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        assert_eq!(home.remove(&at(&path("dir"))).unwrap_err().kind(), ErrorKind::NotAFile);
        assert_eq!(
            home.write(&at(&path("file/x")), &mut &b""[..], None).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn the_longest_name_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let location = at(&dir.path().join("x".repeat(255)));
        FileHome::default().write(&location, &mut &b"abc"[..], Some(3)).unwrap();
        assert_eq!(fs::read(location.path().unwrap()).unwrap(), b"abc");
    }

    #[test]
    fn a_change_while_reading_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let home = FileHome::default();
        let change = |with: &dyn Fn()| {
            fs::write(&path, vec![1; 1000]).unwrap();
            let mut opened = home.open(&at(&path), None).unwrap();
            let mut head = [0; 10];
            opened.reader.read_exact(&mut head).unwrap();
            with();
            let error = opened.reader.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(Error::from_read(READ, "", error).kind(), ErrorKind::Changed);
            assert_eq!(opened.check_unchanged().unwrap_err().kind(), ErrorKind::Changed);
        };
        let open = || OpenOptions::new().write(true).open(&path).unwrap();
        let later = SystemTime::now() + Duration::from_secs(5);
        change(&|| open().set_len(500).unwrap());
        change(&|| open().set_len(2000).unwrap());
        change(&|| {
            open().write_all_at(&[2; 1000], 0).unwrap();
            open().set_modified(later).unwrap();
        });
        // A replaced file is another file: the open one is still complete.
        fs::write(&path, "old").unwrap();
        let mut opened = home.open(&at(&path), None).unwrap();
        home.write(&at(&path), &mut &b"newer"[..], None).unwrap();
        assert_eq!(io::read_to_string(&mut opened.reader).unwrap(), "old");
    }

    #[test]
    fn a_failed_write_leaves_the_old_object_and_nothing_else() {
        struct Fails(u32);
        impl Read for Fails {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                buffer.fill(1);
                if self.0 < 4 { Ok(buffer.len()) } else { Err(io::ErrorKind::ConnectionReset.into()) }
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "old").unwrap();
        let error = FileHome::default().write(&at(&path), &mut Fails(0), None).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Io, Status::Temporary));
        assert_eq!(names(dir.path()), ["x"]);
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    /// Records the notes of a writer, and holds the answer that the writer gets.
    #[derive(Default)]
    struct Notes {
        parts: Mutex<Vec<PathBuf>>,
        refused_between: bool,
        refused_at_the_end: bool,
        /// Called while the writer waits for permission to let the name appear.
        meanwhile: Option<Box<dyn Fn() + Sync + Send>>,
    }

    impl Fence for Notes {
        fn may_go_on(&self) -> std::result::Result<(), String> {
            if self.refused_between { Err("it was cancelled".into()) } else { Ok(()) }
        }

        fn may_appear(&self) -> std::result::Result<(), String> {
            if let Some(meanwhile) = &self.meanwhile {
                meanwhile();
            }
            if self.refused_at_the_end { Err("its lease is over".into()) } else { Ok(()) }
        }

        fn part_begins(&self, part: &Path) {
            self.parts.lock().unwrap().push(part.to_path_buf());
        }

        fn part_ended(&self, part: &Path) {
            self.parts.lock().unwrap().retain(|p| p != part);
        }
    }

    fn put<'a>(fence: &'a dyn Fence, epoch: u64, number: u32) -> Put<'a> {
        let part = Part { work: 7, epoch, number, replaces: true };
        Put { size_hint_bytes: None, mode: None, modified_ns: None, times: &[], part, below: None, fence }
    }

    #[test]
    fn a_refused_writer_leaves_the_old_object_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "old").unwrap();
        for (refused_between, refused_at_the_end) in [(true, false), (false, true)] {
            let notes = Notes { refused_between, refused_at_the_end, ..Notes::default() };
            let error =
                FileHome::default().put(&at(&path), &mut &b"new"[..], &put(&notes, 1, 1)).unwrap_err();
            assert_eq!((error.kind(), error.status()), (ErrorKind::GivenUp, Status::Permanent), "{error}");
            assert_eq!(names(dir.path()), ["x"]);
            assert_eq!(fs::read(&path).unwrap(), b"old");
            assert!(notes.parts.into_inner().unwrap().is_empty());
        }
    }

    /// The first writer is stopped after it got permission; the second one writes; then the first one goes
    /// on.
    #[test]
    fn a_writer_that_was_stopped_before_the_name_appears_comes_too_late() {
        for (first, second) in [((1, 1), (1, 2)), ((1, 1), (2, 1)), ((1, 3), (2, 1))] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x");
            let meanwhile = {
                let path = path.clone();
                move || {
                    let put = put(&crate::Open, second.0, second.1);
                    FileHome::default().put(&at(&path), &mut &b"second"[..], &put).unwrap();
                }
            };
            let stopped = Notes { meanwhile: Some(Box::new(meanwhile)), ..Notes::default() };
            let put = put(&stopped, first.0, first.1);
            let error = FileHome::default().put(&at(&path), &mut &b"first"[..], &put).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::GivenUp, "{error}");
            assert_eq!(names(dir.path()), ["x"]);
            assert_eq!(fs::read(&path).unwrap(), b"second");
        }
    }

    #[test]
    fn parts_of_later_writers_and_of_other_work_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let part = |work: u64, epoch: u64, number: u32| {
            let name = format!("{PART_PREFIX}{work:016x}-{epoch:016x}-{number:08x}-{:016x}", 9);
            fs::write(dir.path().join(&name), "half").unwrap();
            name
        };
        let kept = [part(7, 5, 3), part(7, 6, 1), part(8, 1, 1)];
        part(7, 5, 1);
        part(7, 4, 9);
        let home = FileHome::default();
        home.put(&at(&path), &mut &b"whole"[..], &put(&crate::Open, 5, 2)).unwrap();
        let mut expected: Vec<String> = kept.to_vec();
        expected.push("x".into());
        expected.sort();
        assert_eq!(names(dir.path()), expected);
        // The same without an object, and without such a directory.
        part(7, 5, 2);
        home.remove_parts(&at(&path), &put(&crate::Open, 5, 3).part).unwrap();
        assert_eq!(names(dir.path()), expected);
        home.remove_parts(&at(&dir.path().join("no/x")), &put(&crate::Open, 5, 3).part).unwrap();
        home.remove_parts(&at(&path.join("y")), &put(&crate::Open, 5, 3).part).unwrap();
        // A first try looks once for parts that earlier epochs left.
        part(8, 0, 2);
        let first = |work: u64| Put {
            part: Part { work, ..put(&crate::Open, 5, 1).part },
            ..put(&crate::Open, 5, 1)
        };
        home.put(&at(&dir.path().join("y")), &mut &b"whole"[..], &first(8)).unwrap();
        assert!(!names(dir.path()).iter().any(|n| n.contains("0000000000000008-0000000000000001")));
        assert!(!names(dir.path()).iter().any(|n| n.contains("0000000000000008-0000000000000000")));
    }

    #[test]
    fn leftovers_are_hidden_and_removed_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let home = FileHome::default();
        let notes = Notes::default();
        let seen = |dir: &Path| names(dir).into_iter().find(|n| n.starts_with(PART_PREFIX));
        let (noted, found) = (Arc::new(Mutex::new(None)), dir.path().to_path_buf());
        let look = {
            let noted = noted.clone();
            move || *noted.lock().unwrap() = seen(&found)
        };
        let notes = Notes { meanwhile: Some(Box::new(look)), ..notes };
        home.put(&at(&dir.path().join("x")), &mut &b"whole"[..], &put(&notes, 1, 1)).unwrap();
        let name = noted.lock().unwrap().clone().expect("a part lies there while it is written");
        assert_eq!(part_named(&name), Some(Part { work: 7, epoch: 1, number: 1, replaces: false }));
        // A writer that was killed leaves the file.
        let left = dir.path().join(name);
        fs::write(&left, "half").unwrap();
        assert_eq!(home.list(&Listing::Under(at(dir.path()))).unwrap().found, [at(&dir.path().join("x"))]);
        home.remove_part(&dir.path().join("x")).unwrap();
        home.remove_part(&left).unwrap();
        home.remove_part(&left).unwrap();
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[test]
    fn the_object_has_the_mode_it_is_given_and_its_part_has_none_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let mode_of = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777;
        for mode in [0o600, 0o640, 0o755, 0o444] {
            let part_mode = Arc::new(Mutex::new(0));
            let look = {
                let (part_mode, dir) = (part_mode.clone(), dir.path().to_path_buf());
                move || {
                    let name = names(&dir).into_iter().find(|n| n.starts_with(PART_PREFIX)).unwrap();
                    *part_mode.lock().unwrap() =
                        fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o7777;
                }
            };
            let growing = Growing(look, 0);
            let put = Put { mode: Some(mode), ..Put::simple(None) };
            FileHome::default().put(&at(&dir.path().join("x")), &mut { growing }, &put).unwrap();
            assert_eq!((mode_of("x"), *part_mode.lock().unwrap()), (mode, 0o600));
        }
    }

    /// Calls the function when the reader is asked for its second block.
    struct Growing<F: Fn()>(F, u32);

    impl<F: Fn()> Read for Growing<F> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1 == 2 {
                (self.0)();
            }
            buffer[0] = 1;
            Ok(usize::from(self.1 < 3))
        }
    }

    #[test]
    fn a_hint_that_was_too_large_costs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("y");
        let stat = FileHome::default().write(&at(&path), &mut &b"abc"[..], Some(1 << 20)).unwrap();
        assert_eq!((stat.size_bytes, fs::metadata(&path).unwrap().len()), (3, 3));
        assert!(fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20);
    }

    /// Runs `body` in a thread with a mount name space of its own; `false`: this user may not have one.
    fn in_own_mounts(body: impl FnOnce() + Send) -> bool {
        std::thread::scope(|scope| {
            let run = move || {
                // SAFETY: changes only the calling thread; the strings are NUL-terminated literals.
                let is_private = unsafe {
                    libc::unshare(libc::CLONE_NEWNS) == 0
                        && libc::mount(
                            c"none".as_ptr(),
                            c"/".as_ptr(),
                            std::ptr::null(),
                            libc::MS_REC | libc::MS_PRIVATE,
                            std::ptr::null(),
                        ) == 0
                };
                if is_private {
                    body();
                }
                is_private
            };
            scope.spawn(run).join().unwrap()
        })
    }

    #[test]
    fn a_disk_that_is_too_small() {
        struct Untouched;
        impl Read for Untouched {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("nothing may be read when there is no space");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let target = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        let ran = in_own_mounts(|| {
            // SAFETY: all strings are NUL-terminated and live across the call.
            let rc = unsafe {
                let (kind, options) = (c"tmpfs".as_ptr(), c"size=64k".as_ptr());
                libc::mount(kind, target.as_ptr(), kind, 0, options.cast())
            };
            assert_eq!(rc, 0, "{}", io::Error::last_os_error());
            let location = at(&dir.path().join("x"));
            let error = FileHome::default().write(&location, &mut Untouched, Some(1 << 20)).unwrap_err();
            assert_eq!((error.kind(), error.status()), (ErrorKind::NoSpace, Status::Persistent), "{error}");
            let error =
                FileHome::default().write(&location, &mut io::repeat(1).take(1 << 20), None).unwrap_err();
            assert_eq!((error.kind(), error.status()), (ErrorKind::NoSpace, Status::Persistent), "{error}");
            assert!(names(dir.path()).is_empty());
        });
        if !ran {
            eprintln!("not run: a small file system can only be mounted by root");
        }
    }

    #[test]
    fn nothing_takes_the_name_of_a_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["file", "folder", "free"].map(|name| dir.path().join(name));
        let [file, folder, free] = &paths;
        fs::write(file, "old").unwrap();
        fs::create_dir(folder).unwrap();
        fs::write(free, "free").unwrap();
        let ran = in_own_mounts(|| {
            for path in [file, folder] {
                let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
                // SAFETY: the name is NUL-terminated and lives across the call.
                let rc = unsafe {
                    let name = name.as_ptr();
                    libc::mount(name, name, std::ptr::null(), libc::MS_BIND, std::ptr::null())
                };
                assert_eq!(rc, 0, "{}", io::Error::last_os_error());
            }
            let home = FileHome::default();
            let as_one = Location::parse(&format!("{}/", folder.display()), Path::new("/")).unwrap();
            let mut packed = vec![];
            home.open(&as_one, None).unwrap().reader.read_to_end(&mut packed).unwrap();
            for refused in [
                home.write(&at(file), &mut &b"new"[..], None).map(drop),
                home.write(&as_one, &mut &packed[..], None).map(drop),
                home.remove(&at(file)),
                home.rename(&at(file), &at(&dir.path().join("new"))).map(drop),
                home.rename(&at(free), &at(file)).map(drop),
            ] {
                let error = refused.unwrap_err();
                assert_eq!(
                    (error.kind(), error.status()),
                    (ErrorKind::NotAFile, Status::Permanent),
                    "{error}"
                );
                assert!(error.to_string().contains("it is a mount point"), "{error}");
            }
            assert_eq!(names(dir.path()), ["file", "folder", "free"]);
            assert_eq!(fs::read(file).unwrap(), b"old");
        });
        if !ran {
            eprintln!("not run: only root can mount");
        }
    }

    #[test]
    fn an_unreadable_file_is_permission_denied() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let check = || {
            // SAFETY: the plain system call, unlike the libc function, changes the calling thread only.
            unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
            let home = FileHome::default();
            let error = home.open(&at(&path), None).err().unwrap();
            assert_eq!((error.kind(), error.status()), (ErrorKind::PermissionDenied, Status::Permanent));
            assert_eq!(home.stat(&at(&path)).unwrap().size_bytes, 6);
        };
        std::thread::scope(|scope| scope.spawn(check).join().unwrap());
    }

    #[test]
    fn local_is_what_really_lies_below() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for name in ["mine", "mine-too", "elsewhere"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("x"), "x").unwrap();
        }
        symlink(root.join("elsewhere"), root.join("mine/link")).unwrap();
        symlink(root.join("mine"), root.join("elsewhere/link")).unwrap();
        let home = FileHome::new(vec![root.join("mine")]).unwrap();
        let local = |name: &str| home.local_path(&at(&root.join(name)));
        assert_eq!(local("mine/x"), Some(root.join("mine/x")));
        assert_eq!(local("mine/not-yet"), Some(root.join("mine/not-yet")));
        assert_eq!(local("elsewhere/link/x"), Some(root.join("mine/x")));
        assert_eq!(local("mine/link/x"), None);
        assert_eq!(local("mine-too/x"), None);
        assert_eq!(local("mine/../elsewhere/x"), None);
        assert_eq!(home.local_path(&"http://h/x".parse().unwrap()), None);
        assert_eq!(FileHome::new(vec![root.join("none")]).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn globs_find_what_a_shell_finds() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base [1]");
        for name in
            ["a.fits", "b.fits", ".h.fits", "c.txt", "s/d.fits", "s/t/e.fits", ".g/f.fits", "-x y'\n.fits"]
        {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        symlink("..", base.join("s/up")).unwrap();
        symlink("gone", base.join("z.fits")).unwrap();
        let found = |pattern: &str| -> Vec<String> {
            let listing = Listing::parse(pattern, &base).unwrap();
            let list = FileHome::default().list(&listing).unwrap().found;
            list.iter()
                .map(|location| {
                    location.path().unwrap().strip_prefix(&base).unwrap().to_str().unwrap().to_owned()
                })
                .collect()
        };
        assert_eq!(found("*.fits"), ["-x y'\n.fits", "a.fits", "b.fits", "z.fits"]);
        assert_eq!(found("./[!a].fits"), ["b.fits", "z.fits"]);
        assert_eq!(found("*/*.fits"), ["s/d.fits"]);
        assert_eq!(
            found("**/*.fits"),
            ["-x y'\n.fits", "a.fits", "b.fits", "s/d.fits", "s/t/e.fits", "z.fits"]
        );
        assert_eq!(found("**/t/*.fits"), ["s/t/e.fits"]);
        assert_eq!(found("**/**/e.fits"), ["s/t/e.fits"]);
        assert_eq!(found(".*"), [".h.fits"]);
        assert_eq!(found("s/../?.txt"), ["s/../c.txt"]);
        assert_eq!(found("*.none"), [""; 0]);
        assert_eq!(found("*/t/*"), ["s/t/e.fits"]);
        // A link is followed where it leads to no directory around it.
        let above = ["-x y'\n.fits", ".g/f.fits", ".h.fits", "a.fits", "b.fits", "c.txt", "z.fits"];
        let linked = |skipped: &[&str]| -> Vec<String> {
            let above =
                above.iter().filter(|name| !skipped.contains(name)).map(|name| format!("s/up/{name}"));
            ["s/d.fits", "s/t/e.fits"].map(str::to_owned).into_iter().chain(above).collect()
        };
        assert_eq!(found("s/**"), linked(&[".g/f.fits", ".h.fits"]));
        assert_eq!(found("s"), linked(&["z.fits"]));
        let listed = FileHome::default().list(&Listing::parse("s", &base).unwrap()).unwrap();
        let left_out: Vec<&str> =
            listed.left_out.iter().filter_map(|left_out| left_out.name.rsplit("/s/up/").next()).collect();
        assert_eq!(left_out, ["s`", "z.fits`"]);
        let missing = Listing::parse("nowhere/*.x", &base).unwrap();
        assert_eq!(FileHome::default().list(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
