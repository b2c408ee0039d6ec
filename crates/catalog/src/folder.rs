//! A site's folder: objects by digest, and the seals of the data sets that it holds parts of.
//!
//! ```text
//! FOLDER/eyas-site.json            the site's name
//! FOLDER/objects/ab/abcdef…        an object, read-only, named by its BLAKE3 digest
//! FOLDER/incoming/                 what is being written
//! FOLDER/seals/LABEL@3.json        the label, owner, tags and files of a version: enough to make the catalog anew
//! ```
//!
//! Objects come in batches: bytes are written and hashed, flushed to the disk, and only then take their places by rename. So an
//! object that is there after a power cut is whole. Nothing in the folder is trusted: whoever reads an object verifies it.

use crate::error::{Error, Result};
use crate::key::Key;
use crate::sealed::{File, Sealed};
use crate::tags::Tag;
use eyas_data::Digest;
use eyas_text::shown_path;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

const MARKER: &str = "eyas-site.json";
/// Objects of one batch, which are flushed to the disk together, and bytes after which a batch ends.
pub(crate) const BATCH_FILES: usize = 5000;
pub(crate) const BATCH_BYTES: u64 = 4 << 30;
/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;
/// Most objects of a site that are read at once. A disk that turns gains little by more.
const READERS_MAX: usize = 4;

/// A site's folder on this machine.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    name: String,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Marker {
    site: String,
}

/// What an object in the folder turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Good,
    /// Other bytes than its digest says.
    Bad,
    Missing,
}

/// What a seal says of a version.
#[derive(serde::Serialize, serde::Deserialize)]
struct Seal {
    key: String,
    owner: String,
    created_ms: i64,
    copies: u32,
    tags: std::collections::BTreeMap<String, String>,
    files: Vec<SealedFile>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct SealedFile {
    path: String,
    size_bytes: u64,
    digest: String,
    is_executable: bool,
}

fn io_error(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::Conflict(format!("cannot {what} {}: {error}", shown_path(path)))
}

impl Folder {
    /// Makes a folder a site's, or opens it if it is that site's already.
    ///
    /// # Errors
    /// It belongs to another site, has other files in it, or cannot be written.
    pub fn make(root: &Path, name: &str) -> Result<Folder> {
        fs::create_dir_all(root).map_err(|error| io_error("make the folder", root, &error))?;
        let is_empty = fs::read_dir(root).map_err(|error| io_error("read", root, &error))?.next().is_none();
        let marker = root.join(MARKER);
        match fs::read(&marker) {
            Ok(_) => {
                let folder = Folder::open(root)?;
                return match folder.name == name {
                    true => Ok(folder),
                    false => Err(Error::Conflict(format!(
                        "{} belongs to the site `{}`, not to `{name}`: choose another folder",
                        shown_path(root),
                        folder.name
                    ))),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_empty => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Conflict(format!(
                    "{} has files in it that are no site's: choose an empty folder",
                    shown_path(root)
                )));
            }
            Err(error) => return Err(io_error("read", &marker, &error)),
        }
        for below in ["objects", "incoming", "seals"] {
            let path = root.join(below);
            fs::create_dir_all(&path).map_err(|error| io_error("make the folder", &path, &error))?;
        }
        let text = serde_json::to_string(&Marker { site: name.into() }).expect("a name can be written");
        write_whole(root, &marker, text.as_bytes())?;
        Folder::open(root)
    }

    /// Opens a site's folder.
    pub fn open(root: &Path) -> Result<Folder> {
        let marker = root.join(MARKER);
        let text = fs::read(&marker).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NotFound(format!("{} is no site's folder", shown_path(root))),
            _ => io_error("read", &marker, &error),
        })?;
        let marker: Marker = serde_json::from_slice(&text)
            .map_err(|error| Error::Conflict(format!("{} is damaged: {error}", shown_path(&marker))))?;
        Ok(Folder { root: root.into(), name: marker.site })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path_of(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.root.join("objects").join(&name[..2]).join(name)
    }

    /// Begins a batch of objects.
    pub fn batch(&self) -> Result<Batch<'_>> {
        let path = self.root.join("incoming");
        fs::create_dir_all(&path).map_err(|error| io_error("make the folder", &path, &error))?;
        let mark = format!(
            "{}-{:x}",
            std::process::id(),
            BATCHES.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        );
        Ok(Batch { folder: self, mark, written: vec![] })
    }

    /// Reads an object through and compares it with its name.
    pub fn verify(&self, digest: Digest) -> Result<Condition> {
        self.verify_with(digest, &mut vec![0; PIECE])
    }

    /// Reads many objects through, several at a time, and calls `found` with the number of each and its condition, in any order.
    ///
    /// # Errors
    /// The site cannot be read; objects that are not begun yet are not read then.
    pub fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()> {
        let n_threads = thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX);
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let read = |sender: mpsc::Sender<(usize, Result<Condition>)>| {
            let mut piece = vec![0; PIECE];
            while !has_failed.load(Ordering::Relaxed) {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(digest) = digests.get(n) else { return };
                let condition = self.verify_with(*digest, &mut piece);
                has_failed.fetch_or(condition.is_err(), Ordering::Relaxed);
                // Nobody receives after a failure.
                let _ = sender.send((n, condition));
            }
        };
        thread::scope(|scope| {
            for _ in 0..n_threads {
                let sender = sender.clone();
                scope.spawn(|| read(sender));
            }
            drop(sender);
            receiver.iter().try_for_each(|(n, condition)| condition.map(|condition| found(n, condition)))
        })
    }

    fn verify_with(&self, digest: Digest, piece: &mut [u8]) -> Result<Condition> {
        let path = self.path_of(digest);
        let mut file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Condition::Missing),
            Err(error) => return Err(io_error("read", &path, &error)),
        };
        match copy_with(&mut file, &mut io::sink(), piece) {
            Ok((found, _)) => Ok(if found == digest { Condition::Good } else { Condition::Bad }),
            // A disk that cannot give the bytes back has lost them.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(Condition::Bad),
            Err(error) => Err(io_error("read", &path, &error)),
        }
    }

    /// Copies an object to `target`, which appears whole or not at all.
    ///
    /// # Errors
    /// The object is not there, or its bytes are not what its name says; then nothing appears.
    pub fn get(&self, digest: Digest, target: &Path, is_executable: bool) -> Result<()> {
        let path = self.path_of(digest);
        let mut from = fs::File::open(&path).map_err(|error| io_error("read", &path, &error))?;
        let part = beside(target);
        let mode = if is_executable { 0o777 } else { 0o666 };
        let mut options = fs::OpenOptions::new();
        let mut to = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&part)
            .map_err(|error| io_error("write", &part, &error))?;
        let cannot_copy = |error: io::Error| {
            let (from, to) = (shown_path(&path), shown_path(target));
            Error::Conflict(format!("cannot copy {from} to {to}: {error}"))
        };
        let copied =
            copy(&mut from, &mut to).map_err(cannot_copy).and_then(|(found, _)| match found == digest {
                true => fs::rename(&part, target).map_err(|error| io_error("write", target, &error)),
                false => Err(Error::Conflict(format!(
                    "the copy at the site `{}` is damaged: {} has other bytes than its digest says",
                    self.name,
                    shown_path(&path)
                ))),
            });
        if copied.is_err() {
            let _ = fs::remove_file(&part);
        }
        copied
    }

    pub fn remove(&self, digest: Digest) -> Result<()> {
        let path = self.path_of(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &path, &error)),
            _ => Ok(()),
        }
    }

    /// The objects that are there, by their names.
    pub fn objects(&self) -> Result<Vec<Digest>> {
        let root = self.root.join("objects");
        let mut found = vec![];
        let list = |path: &Path| fs::read_dir(path).map_err(|error| io_error("read", path, &error));
        for folder in list(&root)?.flatten() {
            for entry in list(&folder.path())?.flatten() {
                found.extend(entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Writes down what a version is, so that the catalog can be made anew from the sites. Nothing is written where the folder
    /// says the same already.
    pub fn seal(&self, sealed: &Sealed) -> Result<()> {
        let seal = Seal {
            key: sealed.key.to_string(),
            owner: sealed.owner.clone(),
            created_ms: sealed.created_ms,
            copies: sealed.copies,
            tags: sealed.tags.iter().map(|tag| (tag.name.clone(), tag.value.clone())).collect(),
            files: sealed
                .files
                .iter()
                .map(|file| SealedFile {
                    path: file.path.clone(),
                    size_bytes: file.size_bytes,
                    digest: file.digest.to_string(),
                    is_executable: file.is_executable,
                })
                .collect(),
        };
        let text = serde_json::to_vec_pretty(&seal).expect("a seal can be written");
        let path = self.root.join("seals").join(format!("{}.json", sealed.key));
        match fs::read(&path) {
            Ok(found) if found == text => Ok(()),
            _ => write_whole(&self.root.join("incoming"), &path, &text),
        }
    }

    /// The versions of all seals that can be read, and why the others cannot.
    pub fn seals(&self) -> Result<(Vec<Sealed>, Vec<String>)> {
        let root = self.root.join("seals");
        let (mut versions, mut unreadable) = (vec![], vec![]);
        let entries = fs::read_dir(&root).map_err(|error| io_error("read", &root, &error))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            match fs::read(&path).map_err(|error| error.to_string()).and_then(|text| read_seal(&text)) {
                Ok(version) => versions.push(version),
                Err(reason) => unreadable.push(format!("{}: {reason}", shown_path(&path))),
            }
        }
        Ok((versions, unreadable))
    }
}

fn read_seal(text: &[u8]) -> std::result::Result<Sealed, String> {
    let seal: Seal = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let key: Key = seal.key.parse().map_err(|error: Error| error.to_string())?;
    let files = seal.files.into_iter().map(|file| {
        let digest: Digest =
            file.digest.parse().map_err(|error: eyas_data::DigestParseError| error.to_string())?;
        Ok(File { path: file.path, size_bytes: file.size_bytes, digest, is_executable: file.is_executable })
    });
    let tags =
        seal.tags.into_iter().map(|(name, value)| Tag::new(name, value).map_err(|error| error.to_string()));
    Ok(Sealed {
        key,
        owner: seal.owner,
        created_ms: seal.created_ms,
        copies: seal.copies,
        tags: tags.collect::<std::result::Result<_, String>>()?,
        files: files.collect::<std::result::Result<_, String>>()?,
    })
}

static BATCHES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Objects that come together. What is dropped before [`Batch::keep`] leaves nothing.
pub struct Batch<'a> {
    folder: &'a Folder,
    mark: String,
    written: Vec<(PathBuf, Digest)>,
}

impl Batch<'_> {
    /// Writes an object; returns its digest and size in bytes.
    pub fn add(&mut self, from: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let path = self.folder.root.join("incoming").join(format!("{}-{}", self.mark, self.written.len()));
        let mut to = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        // What fails half-way is removed with the rest.
        self.written.push((path, Digest([0; 32])));
        let (digest, size) = copy(from, &mut to)?;
        to.set_permissions(fs::Permissions::from_mode(0o444))?;
        self.written.last_mut().expect("it was pushed").1 = digest;
        Ok((digest, size))
    }

    /// Writes an object that is to have this digest. `Ok(false)`: the bytes were others, or could not be read; nothing is kept of them.
    pub fn add_copy(&mut self, from: &mut dyn Read, digest: Digest) -> io::Result<bool> {
        let mut from = Remembering { from, failed: false };
        let added = self.add(&mut from);
        if from.failed || added.as_ref().is_ok_and(|(found, _)| *found != digest) {
            let (path, _) = self.written.pop().expect("it was just written");
            fs::remove_file(path)?;
            return Ok(false);
        }
        added.map(|_| true)
    }

    /// Flushes all objects to the disk; then they take their places.
    pub fn keep(mut self) -> io::Result<()> {
        let root = fs::File::open(&self.folder.root)?;
        sync_disk(&root)?;
        for (path, digest) in std::mem::take(&mut self.written) {
            let target = self.folder.path_of(digest);
            let folder = target.parent().expect("objects lie in folders");
            match fs::rename(&path, &target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(folder)?;
                    fs::rename(&path, &target)?;
                }
                other => other?,
            }
        }
        sync_disk(&root)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for (path, _) in &self.written {
            let _ = fs::remove_file(path);
        }
    }
}

/// A reader that remembers whether reading failed, so that it can be told from a failure to write.
struct Remembering<'a> {
    from: &'a mut dyn Read,
    failed: bool,
}

impl Read for Remembering<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(piece);
        self.failed |= read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        read
    }
}

/// Copies and hashes; returns the digest and how many bytes there were.
fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<(Digest, u64)> {
    copy_with(from, to, &mut vec![0; PIECE])
}

fn copy_with(from: &mut dyn Read, to: &mut dyn Write, piece: &mut [u8]) -> io::Result<(Digest, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut size = 0;
    loop {
        match from.read(piece) {
            Ok(0) => return Ok((Digest(*hasher.finalize().as_bytes()), size)),
            Ok(n) => {
                hasher.update(&piece[..n]);
                to.write_all(&piece[..n])?;
                size += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Flushes the file system that a folder lies on.
fn sync_disk(folder: &fs::File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `folder` lives.
    match unsafe { libc::syncfs(folder.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A name for what is being written, in the same directory, so that a rename puts it into its place.
pub(crate) fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let short: String = name.chars().take(40).collect();
    target.with_file_name(format!(".{short}.{}.part", std::process::id()))
}

/// Writes a small file so that it appears whole.
fn write_whole(incoming: &Path, target: &Path, bytes: &[u8]) -> Result<()> {
    let explain = |error: io::Error| io_error("write", target, &error);
    let part = incoming.join(format!(
        ".{}.{}.part",
        target.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    let mut file = fs::File::create(&part).map_err(explain)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(explain)?;
    fs::rename(&part, target).map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects of which each third is damaged and each third is gone are told apart, each by its number.
    #[test]
    fn many_objects_are_verified_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(&dir.path().join("site"), "here").unwrap();
        let mut batch = folder.batch().unwrap();
        // Some are larger than what is read at once.
        let text = |n: usize| format!("{n}").repeat(if n.is_multiple_of(10) { 200_000 } else { n });
        let digests: Vec<Digest> = (0..120).map(|n| batch.add(&mut text(n).as_bytes()).unwrap().0).collect();
        batch.keep().unwrap();
        for (n, digest) in digests.iter().enumerate() {
            let path = folder.path_of(*digest);
            match n % 3 {
                1 => {
                    fs::remove_file(&path).unwrap();
                    fs::write(&path, text(n) + "!").unwrap();
                }
                2 => fs::remove_file(&path).unwrap(),
                _ => {}
            }
        }
        let mut found = vec![None; digests.len()];
        folder
            .verify_all(&digests, &mut |n, condition| assert_eq!(found[n].replace(condition), None))
            .unwrap();
        for (n, condition) in found.into_iter().enumerate() {
            let kinds = [Condition::Good, Condition::Bad, Condition::Missing];
            assert_eq!(condition, Some(kinds[n % 3]), "{n}");
        }
        folder.verify_all(&[], &mut |_, _| panic!("there is none")).unwrap();
    }

    #[test]
    fn a_site_that_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(&dir.path().join("site"), "here").unwrap();
        let digests: Vec<Digest> = (0..50).map(|n| Digest::of(format!("{n}").as_bytes())).collect();
        // A directory where an object belongs.
        fs::create_dir_all(folder.path_of(digests[7])).unwrap();
        let error = folder.verify_all(&digests, &mut |_, _| {}).unwrap_err().to_string();
        assert!(error.contains("cannot read"), "{error}");
    }
}
