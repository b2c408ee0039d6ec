//! The content of a directory, examined without reading its files.

use crate::{DIRECTORY, END, Error, FILE, LINK, MAGIC, PROGRAM, Result};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A directory as it was when it was examined.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The entries in the order in which they are packed.
    pub(crate) entries: Vec<Entry>,
    /// When the directory, and each directory and file in it, was modified, in nanoseconds since 1970, in the order of the entries.
    times: Vec<i64>,
}

/// The time of a directory in it makes no other tree: a file that came and went is no change.
impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Tree {}

/// `name` is the entry's name in its own directory. `changed`: the last change of any kind; a file that was renamed to its place
/// brings the time `modified` along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    File { name: OsString, size_bytes: u64, modified: (i64, i64), changed: (i64, i64), is_program: bool },
    Link { name: OsString, target: OsString },
    Begin { name: OsString },
    End,
}

impl Tree {
    /// Examines everything in `directory`, which may be reached through a link; links in it are not followed.
    pub fn of(directory: &Path) -> Result<Tree> {
        let here = Path::new("");
        let metadata = fs::metadata(directory).map_err(Error::io(here))?;
        if !metadata.is_dir() {
            return Err(Error::NotADirectory { what: kind_of(&metadata) });
        }
        let mut entries = Vec::new();
        let mut times = vec![modified_ns(&metadata)];
        let mut path = PathBuf::new();
        // The names that are left in each open directory, the last name first.
        let mut open = vec![names_in(directory, here)?];
        while let Some(names) = open.last_mut() {
            let Some(name) = names.pop() else {
                open.pop();
                path.pop();
                entries.push(Entry::End);
                continue;
            };
            let depth = open.len() - 1;
            path.push(&name);
            let metadata = fs::symlink_metadata(directory.join(&path)).map_err(Error::io(&path))?;
            if metadata.is_dir() {
                times.push(modified_ns(&metadata));
                entries.push(Entry::Begin { name });
                open.push(names_in(&directory.join(&path), &path)?);
                continue;
            }
            let entry = look_at(directory, &path, name, &metadata, depth)?;
            if let Entry::File { .. } = entry {
                times.push(modified_ns(&metadata));
            }
            entries.push(entry);
            path.pop();
        }
        Ok(Tree { entries, times })
    }

    /// When the directory, and each directory and file in it, was modified, for [`crate::unpack`].
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Bytes of the object.
    pub fn size_bytes(&self) -> u64 {
        let of = |entry: &Entry| match entry {
            Entry::File { name, size_bytes, .. } => 5 + name.len() as u64 + 8 + size_bytes,
            Entry::Link { name, target } => 5 + name.len() as u64 + 4 + target.len() as u64,
            Entry::Begin { name } => 5 + name.len() as u64,
            Entry::End => 1,
        };
        MAGIC.len() as u64 + self.entries.iter().map(of).sum::<u64>()
    }

    /// The number of files in the directory and below.
    pub fn n_files(&self) -> u64 {
        self.entries.iter().filter(|entry| matches!(entry, Entry::File { .. })).count() as u64
    }

    /// The bytes of an entry that are not the bytes of a file.
    pub(crate) fn head(entry: &Entry) -> Vec<u8> {
        let begin = |letter: u8, name: &OsString| {
            let mut head = vec![letter];
            head.extend((name.len() as u32).to_le_bytes());
            head.extend(name.as_bytes());
            head
        };
        match entry {
            Entry::File { name, size_bytes, is_program, .. } => {
                let mut head = begin(if *is_program { PROGRAM } else { FILE }, name);
                head.extend(size_bytes.to_le_bytes());
                head
            }
            Entry::Link { name, target } => {
                let mut head = begin(LINK, name);
                head.extend((target.len() as u32).to_le_bytes());
                head.extend(target.as_bytes());
                head
            }
            Entry::Begin { name } => begin(DIRECTORY, name),
            Entry::End => vec![END],
        }
    }

    /// A 64-bit number that changes when a name, a size, a file's time or a link changes.
    pub fn stamp(&self) -> u64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for entry in &self.entries {
            add(&Tree::head(entry));
            if let Entry::File { modified, changed, .. } = entry {
                for number in [modified.0, modified.1, changed.0, changed.1] {
                    add(&number.to_le_bytes());
                }
            }
        }
        hash
    }
}

pub(crate) fn set_time(path: &Path, modified_ns: i64) -> std::io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified_ns.div_euclid(1_000_000_000),
            tv_nsec: modified_ns.rem_euclid(1_000_000_000),
        },
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// What is shown as the time of something whose time is not known, in nanoseconds since 1970: a day in 2001, the same for everything,
/// and older than what programs make.
pub const UNKNOWN_TIME_NS: i64 = 1_000_000_000_000_000_000;

/// So many nanoseconds since 1970.
pub fn time_of(modified_ns: i64) -> SystemTime {
    let length = Duration::from_nanos(modified_ns.unsigned_abs());
    if modified_ns < 0 { SystemTime::UNIX_EPOCH - length } else { SystemTime::UNIX_EPOCH + length }
}

/// A time that no nanoseconds of 64 bits can say becomes the nearest that they can.
fn modified_ns(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

fn look_at(
    directory: &Path,
    path: &Path,
    name: OsString,
    metadata: &Metadata,
    depth: usize,
) -> Result<Entry> {
    let refused = |what: String| Error::Refused { path: path.to_path_buf(), what };
    if metadata.is_file() {
        return Ok(Entry::File {
            name,
            size_bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            is_program: metadata.mode() & 0o100 != 0,
        });
    }
    if !metadata.is_symlink() {
        return Err(refused(kind_of(metadata).to_owned()));
    }
    let target = fs::read_link(directory.join(path)).map_err(Error::io(path))?.into_os_string();
    match leads_out(target.as_bytes(), depth) {
        None => Ok(Entry::Link { name, target }),
        Some(why) => {
            let target = eyas_text::shown_bytes(target.as_bytes());
            Err(refused(format!("a symbolic link to {target}, which {why}")))
        }
    }
}

/// Why a symbolic link that is `depth` directories deep may lead out of the outermost directory; `None` if it
/// does not.
///
/// A `..` after a name would be resolved where that name leads, which may be another link.
pub fn leads_out(target: &[u8], depth: usize) -> Option<&'static str> {
    if target.starts_with(b"/") {
        return Some("is an absolute path: elsewhere it leads to something else");
    }
    let (mut n_up, mut is_down) = (0, false);
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if is_down => return Some("has a `..` behind a name, and may lead out of the directory"),
            b".." => n_up += 1,
            _ => is_down = true,
        }
    }
    (n_up > depth).then_some("leads out of the directory")
}

/// The names sorted by their bytes, the last one first.
fn names_in(directory: &Path, path: &Path) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io(path))? {
        names.push(entry.map_err(Error::io(path))?.file_name().into_vec());
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names.into_iter().map(OsString::from_vec).collect())
}

pub(crate) fn kind_of(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match kind {
        kind if kind.is_file() => "a file",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_links_lead() {
        for (target, depth, out) in [
            ("x", 0, false),
            ("a/b", 0, false),
            ("./a//b/.", 0, false),
            ("..", 1, false),
            ("../../x", 2, false),
            ("", 0, false),
            ("..", 0, true),
            ("../x", 0, true),
            ("../../x", 1, true),
            ("./../x", 0, true),
            ("a/..", 3, true),
            ("a/../x", 3, true),
            ("../a/../../x", 3, true),
            ("/", 3, true),
            ("/x", 3, true),
        ] {
            assert_eq!(leads_out(target.as_bytes(), depth).is_some(), out, "{target} {depth}");
        }
    }
}
