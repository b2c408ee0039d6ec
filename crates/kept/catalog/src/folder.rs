//! A site's folder: objects by digest, and the seals of the data sets that it holds parts of.
//!
//! ```text
//! FOLDER/eyas-site.json            the site's name, the folder's number, and the catalog whose site it is
//! FOLDER/objects/ab/abcdef…        an object, read-only, named by its BLAKE3 digest
//! FOLDER/groups/abcdef…            the values of an object's groups, for who reads a part of it
//! FOLDER/incoming/                 what is being written
//! FOLDER/aside/abcdef…-BY          what is about to be removed, see [`Holding::set_aside`]
//! FOLDER/reads                     what readers have taken since somebody asked
//! FOLDER/seals/LABEL@3.json        the label, owner, tags and files of a version: enough to make the catalog anew
//! FOLDER/said/LABEL/               the same in the words of a store's users, see `said`
//! ```
//!
//! Objects come in batches: bytes are written and hashed, flushed to the disk, and only then take their places by rename. So an
//! object that is there after a power cut is whole. Nothing in the folder is trusted: whoever reads an object verifies it.

use crate::compared::{Began, Compared, MadeFile};
use crate::copying::{PIECE, copy_grouped, copy_with};
use crate::error::{Error, Result};
use crate::holding::{Arrivals, Aside, Condition, Holding, SitePlace};
use crate::key::Key;
use crate::reads;
use crate::sealed::Sealed;
use eyas_data::{Digest, Groups};
use eyas_folder::holes::Appending;
use eyas_text::shown_path;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

mod said;
pub use said::SaidBy;

const MARKER: &str = "eyas-site.json";
/// Objects of one batch, which are flushed to the disk together, and bytes after which a batch ends.
pub(crate) const BATCH_FILES: usize = 5000;
pub(crate) const BATCH_BYTES: u64 = 4 << 30;
/// When what was left in `incoming` is surely nobody's any more.
const OLD: Duration = Duration::from_secs(24 * 3600);
/// Objects of so many bytes have their groups kept; smaller ones are read through again.
const KEPT_FROM_BYTES: u64 = 8 << 20;
/// Objects of so many bytes are noted as compared; smaller ones are compared as quickly as that is looked up.
const NOTED_FROM_BYTES: u64 = 1 << 20;
/// Most objects of a site that are read at once. A disk that turns gains little by more.
const READERS_MAX: usize = 4;

/// A site's folder on this machine.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    name: String,
    place: SitePlace,
    /// Where objects are noted that were made or verified here.
    compared: Option<Arc<Compared>>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Marker {
    site: String,
    /// A text that no other folder has. An earlier program wrote none.
    #[serde(default)]
    id: String,
    /// The catalog whose site it is.
    #[serde(default)]
    catalog: Option<String>,
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
        if !root.exists() {
            // Who may read a data set, the catalog says, and not whoever can look into the folder.
            let mut private = fs::DirBuilder::new();
            private.recursive(true).mode(0o700);
            private.create(root).map_err(|error| io_error("make the folder", root, &error))?;
        }
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
        // A disk may be full when the first object is set aside.
        for below in ["objects", "incoming", "aside", "seals"] {
            let path = root.join(below);
            fs::create_dir_all(&path).map_err(|error| io_error("make the folder", &path, &error))?;
        }
        mark(root, &Marker { site: name.into(), id: random_text()?, catalog: None })?;
        Folder::open(root)
    }

    /// Opens a site's folder.
    pub fn open(root: &Path) -> Result<Folder> {
        let Marker { site, id, catalog } = marker_of(root)?;
        let place =
            SitePlace { folder_id: id, catalog, free_bytes: free_bytes(root)?, rate_bytes_per_s: None };
        Ok(Folder { root: root.into(), name: site, place, compared: None })
    }

    /// The same folder, which notes the objects that are made or verified in it.
    pub(crate) fn remembering(self, compared: Option<Arc<Compared>>) -> Folder {
        Folder { compared, ..self }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The same folder as it is now.
    pub fn again(&self) -> Result<Folder> {
        Ok(Folder::open(&self.root)?.remembering(self.compared.clone()))
    }

    pub fn path_of(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.root.join("objects").join(&name[..2]).join(name)
    }

    fn verify_with(&self, digest: Digest, piece: &mut [u8]) -> Result<Condition> {
        let path = self.path_of(digest);
        let mut file = match open_object(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Condition::Missing),
            Err(error) if is_of_object(&error) => return Ok(Condition::Bad),
            Err(error) => return Err(io_error("read", &path, &error)),
        };
        let began = self.compared.as_ref().and_then(|compared| Some((compared, Began::now(&file).ok()?)));
        match copy_with(&mut file, &mut io::sink(), piece) {
            Ok((found, _)) if found != digest => Ok(Condition::Bad),
            Ok((_, size_bytes)) => {
                if let Some((compared, began)) = began.filter(|_| size_bytes >= NOTED_FROM_BYTES) {
                    compared.note(&file, digest, &began);
                }
                Ok(Condition::Good)
            }
            Err(error) if is_of_object(&error) => Ok(Condition::Bad),
            Err(error) => Err(io_error("read", &path, &error)),
        }
    }

    /// Removes what writers left that have ended, of objects that were never whole. A writer that may be of another machine, as its
    /// number says nothing here, has ended when nothing changed for `age`.
    pub fn clear_incoming(&self, age: Duration) -> Result<()> {
        let incoming = self.root.join("incoming");
        for entry in list(&incoming)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let changed = entry.metadata().and_then(|found| found.modified()).ok();
            let is_old = changed.and_then(|at| at.elapsed().ok()).is_some_and(|since| since >= age);
            let (has_ended, is_of_here) = writer_of(&name);
            if has_ended && (is_of_here || is_old || age.is_zero()) {
                let path = entry.path();
                remove_whatever(&path).map_err(|error| io_error("remove", &path, &error))?;
            }
        }
        Ok(())
    }

    /// Removes what this process has not written whole, for its end.
    pub fn clear_own_incoming(&self) {
        let own = format!("{}-{}-", std::process::id(), here());
        for entry in list(&self.root.join("incoming")).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&own) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Bytes of all objects that are there, and of those that are set aside.
    pub fn held_bytes(&self) -> Result<u64> {
        let sizes = self.objects()?.into_iter().map(|digest| self.size_of(digest).unwrap_or(0));
        let aside = self.aside()?.into_iter().map(|aside| self.size_aside(&aside));
        Ok(sizes.chain(aside).sum())
    }

    /// The size in bytes of an object that is set aside; 0: it is not there any more.
    pub fn size_aside(&self, aside: &Aside) -> u64 {
        fs::metadata(self.path_aside(aside)).map_or(0, |found| found.len())
    }

    /// Keeps the values of an object's groups. Without them, who reads a part of it reads it through.
    fn keep_groups(&self, groups: &Groups) {
        let path = self.root.join("groups").join(groups.digest().to_string());
        let part = self.root.join("incoming").join(format!("{}.part", writer_mark()));
        let _ = fs::create_dir_all(self.root.join("groups"));
        let written =
            fs::write(&part, groups.values().as_flattened()).and_then(|()| fs::rename(&part, &path));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
    }

    /// The names in a folder below the root, in any order; none where there is no such folder.
    fn names_in(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.root.join(folder);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(io_error("read", &path, &error)),
        };
        Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn path_aside(&self, aside: &Aside) -> PathBuf {
        self.root.join("aside").join(format!("{}-{}", aside.digest, aside.by))
    }

    /// The size of an object in bytes; `None`: it is not there.
    pub fn size_of(&self, digest: Digest) -> Option<u64> {
        fs::metadata(self.path_of(digest)).ok().map(|found| found.len())
    }

    /// The texts of the seals of all versions, by their keys; one that cannot be read, or on which users do not agree, has the reason.
    pub fn seal_texts(&self) -> Result<Vec<(String, std::result::Result<Vec<u8>, String>)>> {
        let mut texts = self.said_texts()?;
        texts.extend(self.settled_files()?.into_iter().map(|seal| (seal.key, seal.text)));
        Ok(texts.into_iter().collect())
    }

    fn seal_path(&self, key: &Key) -> PathBuf {
        self.root.join("seals").join(format!("{key}.json"))
    }

    /// Writes a seal, unless one of other files is there. Nothing is written where it says the same already.
    fn write_seal(&self, path: &Path, text: &[u8]) -> Result<bool> {
        let incoming = self.root.join("incoming");
        if path.is_dir() {
            remove_whatever(path).map_err(|error| io_error("remove", path, &error))?;
        }
        loop {
            match fs::read(path) {
                Ok(found) if found == text => return Ok(true),
                Ok(found) if is_of_other_files(&found, text) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if write_new(&incoming, path, text)? {
                        return Ok(true);
                    }
                    // Somebody else has written it meanwhile.
                }
                _ => return write_whole(&incoming, path, text).map(|()| true),
            }
        }
    }
}

/// Opens an object; `None`: there is nothing of its name.
fn open_object(path: &Path) -> io::Result<Option<fs::File>> {
    // A pipe without a writer is opened at once, too, and is then seen to be no file.
    let opened =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Its owner should be able to read it. That somebody else may not says nothing about it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_ours(path) => {
            Err(io::ErrorKind::InvalidData.into())
        }
        Err(error) => Err(error),
    }
}

fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// Whether an error says that this object is lost, and nothing about the site: a disk that cannot give its bytes back, something
/// else in its place.
fn is_of_object(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ELOOP | libc::ENXIO | libc::ENOTDIR))
        || error.kind() == io::ErrorKind::InvalidData
}

/// Removes a file, or what has taken its place.
fn remove_whatever(path: &Path) -> io::Result<()> {
    let removed = fs::symlink_metadata(path).and_then(|found| match found.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    });
    match removed {
        // Another repair may have removed it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Gives what is set aside its place again, if there is nothing in it.
fn put_back(aside: &Path, place: &Path) -> Result<()> {
    let explain = |error: io::Error| io_error("put back", place, &error);
    match fs::hard_link(aside, place) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && !aside.exists() => return Ok(()),
        // A file system without links, or no file: whoever verifies it will say so.
        Err(_) if fs::symlink_metadata(place).is_err() => {
            return match fs::rename(aside, place) {
                // Another repair has put it back meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !aside.exists() => Ok(()),
                renamed => renamed.map_err(explain),
            };
        }
        Err(error) => return Err(explain(error)),
    }
    remove_whatever(aside).map_err(explain)
}

/// Whether a folder is that of a site.
pub(crate) fn is_site(root: &Path) -> bool {
    root.join(MARKER).is_file()
}

fn marker_of(root: &Path) -> Result<Marker> {
    let path = root.join(MARKER);
    let text = fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound(format!("{} is no site's folder", shown_path(root))),
        _ => io_error("read", &path, &error),
    })?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::Conflict(format!("{} is damaged: {error}", shown_path(&path))))
}

fn mark(root: &Path, marker: &Marker) -> Result<()> {
    let text = serde_json::to_string(marker).expect("names can be written");
    write_whole(root, &root.join(MARKER), text.as_bytes())
}

/// 128 bits that nobody can guess, in hexadecimal digits.
pub(crate) fn random_text() -> Result<String> {
    let bytes: [u8; 16] =
        eyas_data::random_bytes().map_err(|error| Error::Failed(format!("no random number: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Bytes that this user may still write to the disk of a folder. One that does not say has room.
fn free_bytes(root: &Path) -> Result<u64> {
    let folder = fs::File::open(root).map_err(|error| io_error("open", root, &error))?;
    Ok(eyas_storage::free_bytes(&folder).unwrap_or(u64::MAX))
}

fn list(path: &Path) -> Result<fs::ReadDir> {
    fs::read_dir(path).map_err(|error| io_error("read", path, &error))
}

impl Holding for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> &SitePlace {
        &self.place
    }

    fn claim(&self, catalog: &str) -> Result<String> {
        let marker = marker_of(&self.root)?;
        let id = if marker.id.is_empty() { random_text()? } else { marker.id };
        let claimed = Marker { site: marker.site, id: id.clone(), catalog: Some(catalog.into()) };
        mark(&self.root, &claimed).map(|()| id)
    }

    fn batch(&self) -> Result<Box<dyn Arrivals + '_>> {
        // A folder that was restored from a backup may lack its empty ones.
        let path = self.root.join("incoming");
        fs::create_dir_all(&path).map_err(|error| io_error("make the folder", &path, &error))?;
        // What writers of another machine may have left is of no use to anybody after a day.
        self.clear_incoming(OLD)?;
        let mark = writer_mark();
        Ok(Box::new(Batch { folder: self, mark, n_begun: 0, written: vec![] }))
    }

    fn open(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        Ok(self.file(digest)?.map(|file| Box::new(file) as Box<dyn Read>))
    }

    /// They are kept in the folder since the object was made, or since somebody has asked for them, as reading a large object through
    /// for each of its parts takes long. What is kept is compared with the digest, like what comes from elsewhere.
    fn groups(&self, digest: Digest, size_bytes: u64) -> Result<Option<Vec<[u8; 32]>>> {
        let path = self.root.join("groups").join(digest.to_string());
        let kept = fs::read(&path).ok().map(|kept| kept.as_chunks().0.to_vec());
        if let Some(kept) = kept.filter(|kept| Groups::check(digest, size_bytes, kept.clone()).is_some()) {
            return Ok(Some(kept));
        }
        let Some(file) = self.file(digest)? else { return Ok(None) };
        let groups = match Groups::read_file(&file, size_bytes) {
            Ok(groups) => groups,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof || is_of_object(&error) => {
                return Ok(Some(vec![]));
            }
            Err(error) => return Err(io_error("read", &self.path_of(digest), &error)),
        };
        if groups.digest() == digest && size_bytes >= KEPT_FROM_BYTES {
            self.keep_groups(&groups);
        }
        Ok(Some(groups.values().to_vec()))
    }

    fn file(&self, digest: Digest) -> Result<Option<fs::File>> {
        let path = self.path_of(digest);
        match open_object(&path) {
            Ok(found) => Ok(found),
            // What cannot be read is no copy.
            Err(error) if is_of_object(&error) => Ok(None),
            Err(error) => Err(io_error("read", &path, &error)),
        }
    }

    fn read_at(&self, digest: Digest, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let path = self.path_of(digest);
        let Some(file) = self.file(digest)? else { return Ok(None) };
        let mut part = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
        let mut n_read = 0;
        while n_read < part.len() {
            match file.read_at(&mut part[n_read..], range.start + n_read as u64) {
                Ok(0) => break,
                Ok(n) => n_read += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_of_object(&error) => return Ok(None),
                Err(error) => return Err(io_error("read", &path, &error)),
            }
        }
        part.truncate(n_read);
        Ok(Some(part))
    }

    fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()> {
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

    fn note_reads(&self, read: &HashMap<Digest, u64>) {
        reads::append(&self.root.join("reads"), read);
    }

    fn take_reads(&self) -> Result<HashMap<Digest, u64>> {
        let file = self.root.join("reads");
        let taken = self.root.join("incoming").join(format!("{}-reads", writer_mark()));
        reads::take(&file, &taken).map_err(|error| io_error("take away", &file, &error))
    }

    fn objects(&self) -> Result<Vec<Digest>> {
        let mut found = vec![];
        for folder in list(&self.root.join("objects"))?.flatten() {
            for entry in list(&folder.path())?.flatten() {
                found.extend(entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok()));
            }
        }
        found.sort();
        Ok(found)
    }

    fn set_aside(&self, digests: &[Digest]) -> Result<()> {
        if digests.is_empty() {
            return Ok(());
        }
        let to = self.root.join("aside");
        fs::create_dir_all(&to).map_err(|error| io_error("make the folder", &to, &error))?;
        let by = random_text()?;
        for digest in digests {
            let path = self.path_of(*digest);
            match fs::rename(&path, self.path_aside(&Aside { digest: *digest, by: by.clone() })) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(|error| io_error("remove", &path, &error))?,
            }
        }
        Ok(())
    }

    fn aside(&self) -> Result<Vec<Aside>> {
        let names = self.names_in("aside")?.into_iter();
        let aside_of = |name: String| {
            let (digest, by) = name.split_once('-')?;
            Some(Aside { digest: digest.parse().ok()?, by: by.to_owned() })
        };
        Ok(names.filter_map(aside_of).collect())
    }

    fn settle(&self, unneeded: &[Aside], needed: &[Aside]) -> Result<()> {
        for aside in needed {
            put_back(&self.path_aside(aside), &self.path_of(aside.digest))?;
        }
        for aside in unneeded {
            let path = self.path_aside(aside);
            remove_whatever(&path).map_err(|error| io_error("remove", &path, &error))?;
            if !self.path_of(aside.digest).exists() {
                let _ = fs::remove_file(self.root.join("groups").join(aside.digest.to_string()));
            }
        }
        Ok(())
    }

    /// What users have said of the version gives way to it.
    fn seal(&self, key: &Key, text: &[u8]) -> Result<bool> {
        let said = self.said_of(&key.label)?;
        let sealed = Sealed::of_text(text).ok().filter(|_| !said.is_empty());
        if sealed.as_ref().is_some_and(|sealed| self.is_denied_by_owner(&said, sealed, text)) {
            return Ok(false);
        }
        let is_written = self.write_seal(&self.seal_path(key), text)?;
        if is_written {
            self.drop_said(&said, key, sealed.as_ref().map(|sealed| sealed.owner.as_str()))?;
        }
        Ok(is_written)
    }

    fn seal_keys(&self) -> Result<Vec<String>> {
        let names = list(&self.root.join("seals"))?.flatten().map(|entry| entry.file_name());
        let settled = names.filter_map(|name| Some(name.to_str()?.strip_suffix(".json")?.to_owned()));
        let mut keys = self.said_keys()?;
        keys.extend(settled);
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    fn unseal(&self, key: &Key) -> Result<()> {
        let path = self.seal_path(key);
        remove_whatever(&path).map_err(|error| io_error("remove", &path, &error))?;
        self.drop_said(&self.said_of(&key.label)?, key, None)
    }

    /// What only users have sealed has a digest that no text has: it is to be sealed.
    fn seal_digests(&self) -> Result<HashMap<String, Digest>> {
        let mut digests: HashMap<String, Digest> =
            self.said_keys()?.into_iter().map(|key| (key, Digest([0; 32]))).collect();
        for seal in self.settled_files()? {
            if let Ok(text) = seal.text {
                digests.insert(seal.key, Digest::of(&text));
            }
        }
        Ok(digests)
    }

    fn seals(&self) -> Result<(Vec<Sealed>, Vec<String>)> {
        let (mut versions, mut unreadable) = (vec![], vec![]);
        for (key, text) in self.seal_texts()? {
            match text
                .and_then(|text| Sealed::of_text(&text).map_err(|reason| format!("{key}.json: {reason}")))
            {
                Ok(version) => versions.push(version),
                Err(reason) => unreadable.push(reason),
            }
        }
        Ok((versions, unreadable))
    }
}

static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// A text for the names of what this process writes where others do, such as in a site's `incoming`: its number, where that is its
/// own, and how many such texts it had before. [`has_ended`] says of it whether the process is gone.
pub fn writer_mark() -> String {
    format!("{}-{}-{:x}", std::process::id(), here(), WRITTEN.fetch_add(1, Ordering::Relaxed))
}

/// Whether no process has the number of the writer with such a mark, and whether the writer is of this start of this machine.
fn writer_of(mark: &str) -> (bool, bool) {
    let mut parts = mark.split('-');
    let writer = parts.next().and_then(|writer| writer.parse::<u32>().ok());
    let has_ended = writer.is_some_and(|writer| !Path::new(&format!("/proc/{writer}")).exists());
    (has_ended, parts.next() == Some(here()))
}

/// Whether the writer with such a mark ([`writer_mark`], and what may stand behind it) was a process of this machine that is gone.
pub fn has_ended(mark: &str) -> bool {
    writer_of(mark) == (true, true)
}

/// A text for the start of this machine and the view of processes that this one has: within them a process's number is one process's.
fn here() -> &'static str {
    static HERE: OnceLock<String> = OnceLock::new();
    HERE.get_or_init(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let mut digest = Digest::of(format!("{boot}{}", space.display()).as_bytes()).to_string();
        digest.truncate(12);
        digest
    })
}

/// Objects that come together.
struct Batch<'a> {
    folder: &'a Folder,
    mark: String,
    n_begun: usize,
    written: Vec<Written>,
}

/// An object that was written and has not got its place yet.
struct Written {
    path: PathBuf,
    digest: Digest,
    /// Of a large object.
    groups: Option<Groups>,
    made: Option<MadeFile>,
}

impl Arrivals for Batch<'_> {
    fn add(&mut self, from: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let path = self.folder.root.join("incoming").join(format!("{}-{}", self.mark, self.n_begun));
        let to = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        self.n_begun += 1;
        // What fails half-way is removed with the rest.
        self.written.push(Written { path, digest: Digest([0; 32]), groups: None, made: None });
        let groups = copy_grouped(from, &mut Appending(&to))?;
        to.set_permissions(fs::Permissions::from_mode(0o444))?;
        let written = self.written.last_mut().expect("it was pushed");
        let (digest, size_bytes) = (groups.digest(), groups.size_bytes());
        written.digest = digest;
        if size_bytes >= NOTED_FROM_BYTES {
            written.made = MadeFile::now(&to).ok();
        }
        written.groups = (size_bytes >= KEPT_FROM_BYTES).then_some(groups);
        Ok((digest, size_bytes))
    }

    fn undo(&mut self) -> io::Result<()> {
        self.written.pop().map_or(Ok(()), |written| fs::remove_file(written.path))
    }

    fn keep(mut self: Box<Self>) -> io::Result<()> {
        let root = fs::File::open(&self.folder.root)?;
        sync_disk(&root)?;
        for Written { path, digest, groups, made } in std::mem::take(&mut self.written) {
            let target = self.folder.path_of(digest);
            let folder = target.parent().expect("objects lie in folders");
            match fs::rename(&path, &target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(folder)?;
                    fs::rename(&path, &target)?;
                }
                // Something that is no object is in its place.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    remove_whatever(&target)?;
                    fs::rename(&path, &target)?;
                }
                other => other?,
            }
            if let Some(groups) = groups {
                self.folder.keep_groups(&groups);
            }
            if let (Some(compared), Some(made)) = (&self.folder.compared, made)
                && let Ok(Some(file)) = open_object(&target)
            {
                compared.note_made(&file, digest, &made);
            }
        }
        sync_disk(&root)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for written in &self.written {
            let _ = fs::remove_file(&written.path);
        }
    }
}

/// Flushes the file system that a folder lies on.
fn sync_disk(folder: &fs::File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

/// Whether two seals are of versions with other files. One that is damaged is of none.
fn is_of_other_files(there: &[u8], new: &[u8]) -> bool {
    match (Sealed::of_text(there), Sealed::of_text(new)) {
        (Ok(there), Ok(new)) => there.files != new.files,
        _ => false,
    }
}

/// Writes a small file that must not be there yet, so that it appears whole; whether it was not.
fn write_new(incoming: &Path, target: &Path, bytes: &[u8]) -> Result<bool> {
    let part = incoming.join(format!("{}.new", writer_mark()));
    write_whole(incoming, &part, bytes)?;
    let linked = fs::hard_link(&part, target);
    let is_there = matches!(&linked, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
    if linked.is_err() && !is_there {
        // A file system without links.
        return fs::rename(&part, target).map(|()| true).map_err(|error| io_error("write", target, &error));
    }
    fs::remove_file(&part).map_err(|error| io_error("remove", &part, &error))?;
    Ok(!is_there)
}

/// The same for a file that may be there.
fn write_whole(incoming: &Path, target: &Path, bytes: &[u8]) -> Result<()> {
    let explain = |error: io::Error| io_error("write", target, &error);
    let part = incoming.join(format!("{}.part", writer_mark()));
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
    fn what_is_no_file_is_no_copy() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(&dir.path().join("site"), "here").unwrap();
        let digests: Vec<Digest> = (0..50).map(|n| Digest::of(format!("{n}").as_bytes())).collect();
        // A directory where an object belongs.
        fs::create_dir_all(folder.path_of(digests[7])).unwrap();
        let mut bad = vec![];
        let mut found = |n, condition| match condition {
            Condition::Bad => bad.push(n),
            other => assert_eq!(other, Condition::Missing),
        };
        folder.verify_all(&digests, &mut found).unwrap();
        assert_eq!(bad, [7]);
        // It makes way for a good one.
        let mut batch = folder.batch().unwrap();
        batch.add(&mut "7".as_bytes()).unwrap();
        batch.keep().unwrap();
        folder
            .verify_all(&digests[7..8], &mut |_, condition| assert_eq!(condition, Condition::Good))
            .unwrap();
    }
}
