//! Unpacks archives into directory trees.
//!
//! Nothing is written outside the tree: names that lead out of it are refused, and so are names below a symbolic link that does.
//! A symbolic link itself is unpacked as it is, wherever it leads. The permissions to read and to execute and the times
//! are kept. Owners, devices and pipes are not kept.
//!
//! How large and how deep a tree becomes is bounded ([`Bounds`]), because an archive of a few bytes can say any number. Each
//! directory is looked at once, so that the depth of a tree costs little.

use eyas_data::Halt;
use eyas_folder::holes::Appending;
use eyas_folder::time_of;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// Directories in each other at most.
const DEPTH_MAX: usize = 256;
/// The longest name of an entry; the system takes 4,096 bytes for a whole path.
const NAME_BYTES_MAX: usize = 3 << 10;
/// Entries at most.
const ENTRIES_MAX: u64 = 5_000_000;
/// What an entry takes in a tree at least.
const ENTRY_BYTES: u64 = 4096;
/// Where a node's cache is smaller, an archive may still become so many times as large as it is.
const EXPANSION_MAX: u64 = 100;
/// So much of the disk is left free, or one part in this many of what is free where that is less.
const SPARE_BYTES: u64 = 64 << 20;
const SPARE_PART: u64 = 8;
/// The free room is looked at again behind so many bytes.
const LOOK_BYTES: u64 = 16 << 20;

/// What may still be made of one packed file.
pub(super) struct Bounds<'a> {
    halt: &'a Halt,
    /// On the disk that is written to.
    disk: File,
    spare_bytes: u64,
    packed_bytes: u64,
    cache_bytes: u64,
    bytes: u64,
    look_at_bytes: u64,
    n_entries: u64,
    /// What is made is the root of a container, where absolute links begin.
    pub is_root: bool,
}

impl<'a> Bounds<'a> {
    pub fn new(halt: &'a Halt, dir: &Path, packed_bytes: u64, cache_bytes: u64) -> io::Result<Bounds<'a>> {
        let disk = File::open(dir)?;
        let spare_bytes = (free_on(&disk) / SPARE_PART).min(SPARE_BYTES);
        let (bytes, look_at_bytes, n_entries) = (0, 0, 0);
        let is_root = false;
        Ok(Bounds {
            halt,
            disk,
            spare_bytes,
            packed_bytes,
            cache_bytes,
            bytes,
            look_at_bytes,
            n_entries,
            is_root,
        })
    }

    /// A new entry.
    fn entry(&mut self, name: &Path) -> io::Result<()> {
        let shown = || {
            let name = name.to_string_lossy();
            eyas_text::shown(name.get(..80).unwrap_or(&name)).to_string()
        };
        if name.as_os_str().len() > NAME_BYTES_MAX {
            return Err(damaged(&format!(
                "the name of its entry that begins with {} is longer than {NAME_BYTES_MAX} bytes",
                shown()
            )));
        }
        if name.components().count() > DEPTH_MAX {
            return Err(damaged(&format!(
                "its entry that begins with {} lies deeper than {DEPTH_MAX} directories",
                shown()
            )));
        }
        self.n_entries += 1;
        if self.n_entries > ENTRIES_MAX {
            return Err(damaged(&format!(
                "it has more than {ENTRIES_MAX} entries; pack them as several archives"
            )));
        }
        self.take(ENTRY_BYTES)
    }

    /// So many bytes will be written. Errors: it would be more than may be, or than the disk has room for.
    pub fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.halt.check()?;
        self.bytes = self.bytes.saturating_add(bytes);
        let most_bytes = self.cache_bytes.max(self.packed_bytes.saturating_mul(EXPANSION_MAX));
        if self.bytes > most_bytes {
            return Err(damaged(&format!(
                "it becomes larger than {most_bytes} bytes, which is as large as the node's cache or {EXPANSION_MAX} times its own \
                 {} bytes; give the nodes more cache (--cache), or unpack it in the task",
                self.packed_bytes
            )));
        }
        if self.bytes >= self.look_at_bytes {
            if free_on(&self.disk) < bytes.saturating_add(self.spare_bytes) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            self.look_at_bytes = self.bytes.saturating_add(LOOK_BYTES);
        }
        Ok(())
    }

    /// Copies bytes whose number is not known before.
    pub fn copy(&mut self, from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
        let mut block = vec![0; super::BLOCK_BYTES];
        loop {
            let n = match from.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.take(n as u64)?;
            to.write_all(&block[..n])?;
        }
    }
}

/// How the bytes of an archive begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Plain,
    Gzip,
    Zstd,
    Zip,
}

impl Kind {
    pub fn of(bytes: &mut impl BufRead) -> io::Result<Kind> {
        let begin = bytes.fill_buf()?;
        match begin {
            [0x1f, 0x8b, ..] => Ok(Kind::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Kind::Zstd),
            [b'P', b'K', 3 | 5, 4 | 6, ..] => Ok(Kind::Zip),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(not_supported("xz")),
            [b'B', b'Z', b'h', ..] => Err(not_supported("bzip2")),
            [] => Err(damaged("it is empty")),
            _ => Ok(Kind::Plain),
        }
    }
}

fn not_supported(what: &str) -> io::Error {
    damaged(&format!("it is compressed with {what}, which eyas does not know; compress it with gzip or zstd"))
}

pub(super) fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Makes the tree of a tar archive in the folder `into`.
pub(super) fn untar(bytes: impl BufRead, kind: Kind, into: &Path, bounds: &mut Bounds<'_>) -> io::Result<()> {
    with_plain(bytes, kind, |bytes| untar_plain(bytes, into, bounds))
}

fn free_on(disk: &File) -> u64 {
    eyas_storage::free_bytes(disk).unwrap_or(u64::MAX)
}

/// Calls `read` with the bytes of a tar archive that may be compressed.
pub(super) fn with_plain(
    mut bytes: impl BufRead,
    kind: Kind,
    read: impl FnOnce(&mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    match kind {
        Kind::Plain => read(&mut bytes),
        Kind::Gzip => read(&mut flate2::bufread::MultiGzDecoder::new(bytes)),
        Kind::Zstd => read(&mut zstd::stream::read::Decoder::with_buffer(bytes)?),
        Kind::Zip => Err(damaged("it is a zip archive; say `zip`")),
    }
}

fn untar_plain(bytes: &mut dyn Read, into: &Path, bounds: &mut Bounds<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(bytes);
    let mut tree = Tree::new(into, bounds)?;
    let mut n_entries = 0u64;
    for entry in archive.entries()? {
        n_entries += 1;
        tree.unpack(&mut entry?)?;
    }
    if n_entries == 0 {
        return Err(damaged("there is nothing in it"));
    }
    // The checksum of what it is compressed with stands behind the archive's own end.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

/// Makes the tree of a zip archive in the folder `into`.
pub(super) fn unzip(bytes: File, into: &Path, bounds: &mut Bounds<'_>) -> io::Result<()> {
    let mut archive = zip::ZipArchive::new(io::BufReader::new(bytes))?;
    let mut tree = Tree::new(into, bounds)?;
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i)?;
        let name = entry.name().unwrap_or_default().into_owned();
        let name = plain(Path::new(&name))?;
        if entry.is_dir() {
            tree.make(&name)?;
            continue;
        }
        tree.bounds.entry(&name)?;
        if entry.is_symlink() {
            let mut target = vec![];
            entry.by_ref().take(4096).read_to_end(&mut target)?;
            symlink(std::ffi::OsStr::from_bytes(&target), tree.place(&name)?)?;
            continue;
        }
        let mode = 0o600 | entry.unix_mode().unwrap_or(0) & 0o111;
        let exact = entry.extra_data_fields().find_map(|field| match field {
            zip::ExtraField::ExtendedTimestamp(times) => times.mod_time(),
            _ => None,
        });
        let modified_s = exact.map(i64::from).or_else(|| entry.last_modified().as_ref().map(seconds_of));
        let file = File::options().write(true).create_new(true).mode(mode).open(tree.place(&name)?)?;
        tree.bounds.copy(&mut entry, &mut Appending(&file))?;
        if let Some(seconds) = modified_s {
            file.set_modified(time_of(seconds.saturating_mul(1_000_000_000)))?;
        }
    }
    match archive.is_empty() {
        true => Err(damaged("there is nothing in it")),
        false => Ok(()),
    }
}

/// The seconds from 1970 to a date of a zip archive, which says nothing of time zones.
fn seconds_of(date: &zip::DateTime) -> i64 {
    // Years begin in March, so that the day that some have more is their last one.
    let (year, month) = (i64::from(date.year()), i64::from(date.month()));
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = years / 4 - years / 100 + years / 400;
    let days = 365 * years + leap_days + (153 * months + 2) / 5 + i64::from(date.day()) - 719_469;
    let (hours, minutes) = (i64::from(date.hour()), i64::from(date.minute()));
    ((days * 24 + hours) * 60 + minutes) * 60 + i64::from(date.second())
}

/// The name without `.` and without the root before it. Errors: it leads out.
pub(super) fn plain(path: &Path) -> io::Result<PathBuf> {
    let mut name = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(leads_out(path)),
        }
    }
    Ok(name)
}

fn leads_out(path: &Path) -> io::Error {
    damaged(&format!("its entry {} leads out of it", shown(path)))
}

fn shown(path: &Path) -> String {
    eyas_text::shown_bytes(path.as_os_str().as_bytes()).to_string()
}

/// Directories whose place is remembered.
const KNOWN_MAX: usize = 10_000;

/// A tree that is being made of entries.
pub(super) struct Tree<'a, 'b> {
    bounds: &'a mut Bounds<'b>,
    /// Where the tree's directories really are, by their names in the archive; the tree itself is always among them.
    known: HashMap<PathBuf, PathBuf>,
    whole: PathBuf,
}

impl<'a, 'b> Tree<'a, 'b> {
    pub fn new(into: &Path, bounds: &'a mut Bounds<'b>) -> io::Result<Tree<'a, 'b>> {
        let mut tree = Tree { bounds, known: HashMap::new(), whole: into.canonicalize()? };
        tree.forget();
        Ok(tree)
    }

    /// Where a directory really is; `None`: it is not there. Errors: it is outside of the tree, by a symbolic link.
    pub fn find(&mut self, name: &Path) -> io::Result<Option<PathBuf>> {
        self.walk(name, false)
    }

    /// The same, for a directory that is made if it is not there.
    fn make(&mut self, name: &Path) -> io::Result<PathBuf> {
        self.walk(name, true)?.ok_or_else(|| {
            damaged(&format!("its entry {} lies below something that is no directory", shown(name)))
        })
    }

    fn walk(&mut self, name: &Path, makes: bool) -> io::Result<Option<PathBuf>> {
        if self.known.len() > KNOWN_MAX {
            self.forget();
        }
        let from = name.ancestors().find(|above| self.known.contains_key(*above)).unwrap_or(Path::new(""));
        let (mut at, mut found) = (from.to_path_buf(), self.known[from].clone());
        for part in name.strip_prefix(from).unwrap_or(name).components() {
            at.push(part);
            found.push(part);
            match fs::symlink_metadata(&found) {
                Ok(meta) if meta.is_dir() => {}
                Ok(meta) if meta.is_symlink() => {
                    let target = match self.bounds.is_root {
                        true => follow(&self.whole, &found),
                        false => found.canonicalize().ok(),
                    };
                    let Some(target) = target else { return Ok(None) };
                    if !target.starts_with(&self.whole) {
                        return Err(leads_out(&at));
                    }
                    if !target.is_dir() {
                        return Ok(None);
                    }
                    found = target;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound && makes => {
                    self.bounds.entry(&at)?;
                    fs::create_dir(&found)?;
                }
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => return Ok(None),
            }
            self.known.insert(at.clone(), found.clone());
        }
        Ok(Some(found))
    }

    /// Where an entry goes that is no directory. What was there is gone.
    fn place(&mut self, name: &Path) -> io::Result<PathBuf> {
        let Some(last) = name.file_name() else { return Err(damaged("an entry has no name")) };
        let at = self.make(name.parent().unwrap_or(Path::new("")))?.join(last);
        match fs::symlink_metadata(&at) {
            Ok(meta) if meta.is_dir() => {
                Err(damaged(&format!("its entry {} is a directory, too", shown(name))))
            }
            _ => {
                self.remove(&at);
                Ok(at)
            }
        }
    }

    /// Removes what is there.
    pub fn remove(&mut self, at: &Path) {
        match fs::symlink_metadata(at) {
            Ok(meta) if meta.is_file() => drop(fs::remove_file(at)),
            Ok(_) => {
                super::trees::remove(at);
                self.forget();
            }
            Err(_) => {}
        }
    }

    /// A directory may be elsewhere now.
    pub fn forget(&mut self) {
        self.known.clear();
        self.known.insert(PathBuf::new(), self.whole.clone());
    }

    /// Puts an entry in, unless it is a device or a pipe.
    pub fn unpack<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> io::Result<()> {
        self.bounds.halt.check()?;
        let kind = entry.header().entry_type();
        let is_passed_over = kind.is_character_special()
            || kind.is_block_special()
            || kind.is_fifo()
            || kind.is_pax_global_extensions()
            || kind.is_pax_local_extensions();
        let name = plain(&entry.path()?)?;
        if is_passed_over || name.as_os_str().is_empty() {
            return Ok(());
        }
        // In the oldest form of archives, a directory is known by its name alone.
        let is_old_directory = entry.header().as_ustar().is_none() && entry.path_bytes().ends_with(b"/");
        if kind.is_dir() || is_old_directory {
            // What comes behind it has to be put in, whatever rights the archive gives.
            return self.make(&name).map(drop);
        }
        self.bounds.entry(&name)?;
        if kind.is_symlink() || kind.is_hard_link() {
            let target = entry.link_name()?.filter(|target| !target.as_os_str().is_empty());
            let leads_nowhere = || damaged(&format!("its link {} leads nowhere", shown(&name)));
            let target = target.ok_or_else(leads_nowhere)?;
            if kind.is_symlink() {
                return symlink(&target, self.place(&name)?);
            }
            let target = plain(&target)?;
            let (Some(last), parent) = (target.file_name(), target.parent().unwrap_or(Path::new(""))) else {
                return Err(leads_nowhere());
            };
            let of = self.find(parent)?.ok_or_else(leads_nowhere)?.join(last);
            let meta = fs::symlink_metadata(&of).map_err(|_| leads_nowhere())?;
            // A tree is as large as all its names.
            self.bounds.take(meta.len())?;
            if target == name {
                return Ok(());
            }
            return fs::hard_link(of, self.place(&name)?);
        }
        self.bounds.take(entry.size())?;
        entry.unpack(self.place(&name)?).map(drop).map_err(|e| {
            let is_short = super::causes(&e).any(|cause| cause.to_string() == "failed to write entire file");
            let it_ends = || damaged(&format!("it ends within its entry {}", shown(&name)));
            if is_short { it_ends() } else { e }
        })
    }
}

/// Links that lead to each other at most.
const LINKS_MAX: usize = 40;

/// Where the symbolic link `link` leads for a program whose root is `root`, which may be outside where it says `..` too often. `None`:
/// nowhere.
fn follow(root: &Path, link: &Path) -> Option<PathBuf> {
    let parts_of = |path: &Path| -> Vec<PathBuf> {
        path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect()
    };
    let mut left = parts_of(link.strip_prefix(root).ok()?);
    let (mut at, mut n_links) = (root.to_path_buf(), 0);
    while let Some(part) = left.pop() {
        match part.components().next()? {
            Component::RootDir => at = root.to_path_buf(),
            Component::ParentDir => _ = at.pop(),
            Component::Normal(name) => {
                let next = at.join(name);
                if fs::symlink_metadata(&next).ok()?.is_symlink() {
                    n_links += 1;
                    if n_links > LINKS_MAX {
                        return None;
                    }
                    left.extend(parts_of(&fs::read_link(&next).ok()?));
                } else {
                    at = next;
                }
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A tar archive with one entry of this name and kind.
    fn tar_of(name: &str, kind: tar::EntryType, link: &str, more: Option<(&str, &[u8])>) -> Vec<u8> {
        let mut archive = tar::Builder::new(vec![]);
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o755);
        if !link.is_empty() {
            header.set_link_name(link).unwrap();
        }
        // By hand, as the builder refuses names that lead out.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, io::empty()).unwrap();
        if let Some((name, content)) = more {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            archive.append_data(&mut header, name, content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn untar_all(bytes: &[u8], into: &Path) -> io::Result<()> {
        let mut bytes = io::BufReader::new(bytes);
        let kind = Kind::of(&mut bytes)?;
        untar(bytes, kind, into, &mut Bounds::new(&Halt::default(), into, 1 << 20, 0)?)
    }

    #[test]
    fn nothing_is_written_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (into, outside) = (dir.path().join("into"), dir.path().join("outside"));
        fs::create_dir(&into).unwrap();
        fs::create_dir(&outside).unwrap();
        let file = tar::EntryType::Regular;
        assert!(untar_all(&tar_of("../x", file, "", None), &into).is_err());
        assert!(untar_all(&tar_of("a/../../x", file, "", None), &into).is_err());
        let through = tar_of("d", tar::EntryType::Symlink, outside.to_str().unwrap(), Some(("d/x", b"out")));
        assert!(untar_all(&through, &into).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!dir.path().join("x").exists());
    }

    #[test]
    fn the_end_of_a_compressed_archive_counts() {
        let dir = tempfile::tempdir().unwrap();
        let tar = tar_of("d/", tar::EntryType::Directory, "", Some(("d/run", b"#!/bin/sh\n")));
        let mut gz = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        gz.write_all(&tar).unwrap();
        let gz = gz.finish().unwrap();
        let zst = zstd::stream::encode_all(&tar[..], 1).unwrap();
        for (i, whole) in [&tar, &gz, &zst].into_iter().enumerate() {
            let into = dir.path().join(i.to_string());
            fs::create_dir(&into).unwrap();
            untar_all(whole, &into).unwrap();
            assert_eq!(fs::metadata(into.join("d/run")).unwrap().permissions().mode() & 0o111, 0o111);
        }
        let mut torn = gz.clone();
        torn.truncate(gz.len() - 4);
        let mut flipped = gz.clone();
        *flipped.last_mut().unwrap() ^= 1;
        *flipped.iter_mut().rev().nth(5).unwrap() ^= 1;
        for bad in [torn, flipped, b"no archive at all".to_vec(), vec![]] {
            let into = tempfile::tempdir().unwrap();
            assert!(untar_all(&bad, into.path()).is_err());
        }
        let xz = untar_all(b"\xfd7zXZ\0", dir.path()).unwrap_err().to_string();
        assert!(xz.contains("compressed with xz"), "{xz}");
    }

    /// A tar archive with the entries that `fill` gives.
    #[test]
    fn dates_of_zip_archives() {
        let date = |y, m, d, h, min, s| zip::DateTime::from_date_and_time(y, m, d, h, min, s).unwrap();
        assert_eq!(seconds_of(&date(1980, 1, 1, 0, 0, 0)), 315_532_800);
        assert_eq!(seconds_of(&date(2000, 2, 29, 23, 59, 58)), 951_868_798);
        assert_eq!(seconds_of(&date(2026, 11, 28, 7, 40, 0)), 1_795_851_600);
    }

    fn tar_with(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut archive = tar::Builder::new(vec![]);
        fill(&mut archive);
        archive.into_inner().unwrap()
    }

    fn append(archive: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, link: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o755);
        match link {
            "" => archive.append_data(&mut header, name, io::empty()).unwrap(),
            link => archive.append_link(&mut header, name, link).unwrap(),
        }
    }

    #[test]
    fn links_stay_in_the_tree() {
        use tar::EntryType::{Directory, Link, Regular, Symlink};
        let dir = tempfile::tempdir().unwrap();
        let (into, outside) = (dir.path().join("into"), dir.path().join("outside"));
        fs::create_dir(&into).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        let good = tar_with(|archive| {
            append(archive, Directory, "usr/bin", "");
            append(archive, Symlink, "bin", "usr/bin");
            append(archive, Regular, "bin/tool", "");
            append(archive, Link, "bin/same", "usr/bin/tool");
            // What was a directory by a link is one of its own now.
            append(archive, Symlink, "d", "usr");
            append(archive, Regular, "d/x", "");
            append(archive, Symlink, "d", "bin");
            append(archive, Regular, "d/y", "");
        });
        untar_all(&good, &into).unwrap();
        for name in ["usr/bin/tool", "usr/bin/same", "usr/x", "usr/bin/y"] {
            assert!(into.join(name).is_file(), "{name}");
        }
        let secret = outside.join("secret");
        for target in ["../outside/secret", "link/secret", secret.to_str().unwrap()] {
            let bad = tar_with(|archive| {
                append(archive, Symlink, "link", outside.to_str().unwrap());
                append(archive, Link, "got", target);
            });
            assert!(untar_all(&bad, &into).is_err(), "{target}");
            assert!(!into.join("got").exists(), "{target}");
        }
    }

    #[test]
    fn in_a_root_links_begin_at_the_root() {
        use tar::EntryType::{Directory, Regular, Symlink};
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        let image = tar_with(|archive| {
            append(archive, Directory, "opt/real", "");
            append(archive, Symlink, "opt/now", "/opt/real");
            append(archive, Symlink, "opt/up", "../opt/now");
            append(archive, Symlink, "circle", "/circle");
            append(archive, Regular, "opt/now/a", "");
            append(archive, Regular, "opt/up/b", "");
        });
        let untar_root = |bytes: &[u8]| {
            let halt = Halt::default();
            let mut bounds = Bounds::new(&halt, &into, 1 << 20, 0).unwrap();
            bounds.is_root = true;
            untar(bytes, Kind::Plain, &into, &mut bounds)
        };
        untar_root(&image).unwrap();
        assert!(into.join("opt/real/a").is_file() && into.join("opt/real/b").is_file());
        let bad = tar_with(|archive| append(archive, Regular, "circle/x", ""));
        assert!(untar_root(&bad).is_err());
    }

    #[test]
    fn depth_names_and_bytes_are_bounded() {
        let why = |bytes: &[u8]| {
            let into = tempfile::tempdir().unwrap();
            untar_all(bytes, into.path()).unwrap_err().to_string()
        };
        let deep = |n: usize| {
            tar_with(|archive| {
                let mut name = String::new();
                for _ in 0..n {
                    name += "d/";
                    append(archive, tar::EntryType::Directory, &name, "");
                }
            })
        };
        assert!(why(&deep(1000)).contains("lies deeper than 256 directories"));
        let into = tempfile::tempdir().unwrap();
        untar_all(&deep(256), into.path()).unwrap();
        let long = vec!["d".repeat(200); 20].join("/");
        let long = tar_with(|archive| append(archive, tar::EntryType::Regular, &long, ""));
        assert!(why(&long).contains("is longer than 3072 bytes"));

        // The same bytes by many names.
        let twice = tar_with(|archive| {
            let mut header = tar::Header::new_gnu();
            header.set_size(9 << 20);
            archive.append_data(&mut header, "x", io::repeat(0).take(9 << 20)).unwrap();
            (0..12).for_each(|n| append(archive, tar::EntryType::Link, &format!("l{n}"), "x"));
        });
        let bomb = why(&zstd::stream::encode_all(&twice[..], 1).unwrap());
        assert!(bomb.contains("larger than 104857600 bytes"), "{bomb}");
        let into = tempfile::tempdir().unwrap();
        let mut zip = zip::ZipWriter::new(File::create_new(into.path().join("z")).unwrap());
        zip.start_file("x", zip::write::SimpleFileOptions::default()).unwrap();
        io::copy(&mut io::repeat(0).take(3 << 20), &mut zip).unwrap();
        zip.finish().unwrap();
        let of = |packed_bytes| Bounds::new(Box::leak(Box::default()), into.path(), packed_bytes, 0).unwrap();
        let unzip_to = |name: &str, bounds: &mut Bounds<'_>| {
            fs::create_dir(into.path().join(name)).unwrap();
            unzip(File::open(into.path().join("z")).unwrap(), &into.path().join(name), bounds)
        };
        assert!(unzip_to("a", &mut of(1 << 14)).unwrap_err().to_string().contains("larger than"));
        unzip_to("b", &mut of(1 << 15)).unwrap();
    }
}
