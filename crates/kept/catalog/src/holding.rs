//! What the catalog asks of a site, wherever its objects lie.

use crate::copying::{beside, copy};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::sealed::Sealed;
use eyas_data::{BLOCK_BYTES, Digest, GROUP_BYTES, Groups, values_beside};
use eyas_folder::holes::Appending;
use eyas_keeping::sources::Load;
use eyas_text::shown_path;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The objects and seals of a site: a folder of this machine, or one that a store elsewhere serves.
///
/// Nothing that comes from a site is trusted: whoever reads an object verifies it.
pub trait Holding: Send + Sync {
    /// The name of the site.
    fn name(&self) -> &str;

    /// Which folder it is, whose, and how much room it had when it was reached.
    fn place(&self) -> &SitePlace;

    /// Makes it this catalog's; whether it was another one's, the caller has looked. Returns its `folder_id`.
    fn claim(&self, catalog: &str) -> Result<String>;

    /// Begins a batch of objects.
    fn batch(&self) -> Result<Box<dyn Arrivals + '_>>;

    /// The bytes of an object, unverified; `None`: it is not there.
    ///
    /// # Errors
    /// The site itself cannot be read, which says nothing about the object.
    fn open(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>>;

    /// The same for whoever makes a copy: it does not count as read.
    fn open_to_copy(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        self.open(digest)
    }

    /// A permit with which another site may fetch these objects from this one by itself; `None`: this site gives none.
    fn permit(&self, digests: &[Digest]) -> Result<Option<Permit>> {
        let _ = digests;
        Ok(None)
    }

    /// Has this site fetch objects from the one that has given a permit, and calls `found` with the number of each that came to an end:
    /// [`Condition::Good`] is kept here now, the others are not as they should be there. Nothing is said of an object that did not come.
    /// `Ok(false)`: this site cannot do that.
    ///
    /// # Errors
    /// The sites do not reach each other, or this one cannot keep the objects.
    fn fetch(
        &self,
        from: &Permit,
        digests: &[Digest],
        found: &mut dyn FnMut(usize, Condition),
    ) -> Result<bool> {
        let _ = (from, digests, found);
        Ok(false)
    }

    /// What the site is busy with now. Of a folder of this machine nobody keeps count.
    ///
    /// # Errors
    /// The site does not answer.
    fn load(&self) -> Result<Load> {
        Ok(Load::default())
    }

    /// Has a store know these users, and no others. A folder knows none: the system says who may read it.
    ///
    /// # Errors
    /// The store does not answer, or this is no key of whoever keeps the catalog.
    fn set_users(&self, users: &[StoreUser]) -> Result<()> {
        let _ = users;
        Ok(())
    }

    /// Notes bytes that a reader has taken of objects. Where the site counts them by itself, nothing is done.
    fn note_reads(&self, read: &HashMap<Digest, u64>) {
        let _ = read;
    }

    /// The bytes that readers have taken of each object since this was asked last. What is lost on the way is lost.
    ///
    /// # Errors
    /// The site cannot be read.
    fn take_reads(&self) -> Result<HashMap<Digest, u64>> {
        Ok(HashMap::new())
    }

    /// The chaining values of an object's groups ([`Groups`]), by whoever reads it through; `None`: it is not there. What they are worth,
    /// [`Groups::check`] says. There is none of an object of another size.
    ///
    /// # Errors
    /// The site cannot be read.
    fn groups(&self, digest: Digest, size_bytes: u64) -> Result<Option<Vec<[u8; 32]>>> {
        let Some(mut from) = self.open(digest)? else { return Ok(None) };
        match Groups::read(&mut *from, size_bytes) {
            Ok(groups) => Ok(Some(groups.values().to_vec())),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                Ok(Some(vec![]))
            }
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// A part of an object, unverified; it is shorter where the object ends before. `None`: the object is not there.
    fn read_at(&self, digest: Digest, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let Some(mut from) = self.open(digest)? else { return Ok(None) };
        let mut part = vec![];
        io::copy(&mut (&mut *from).take(range.start), &mut io::sink())
            .and_then(|_| (&mut *from).take(range.end.saturating_sub(range.start)).read_to_end(&mut part))
            .map_err(|error| self.broken(&error))?;
        Ok(Some(part))
    }

    /// Some blocks of an object's `n`-th group, and the values of what is beside them ([`Groups::is_part`]), both
    /// unverified. `None`: the object is not there.
    fn read_blocks(&self, digest: Digest, n: u64, blocks: Range<usize>) -> Result<Option<Blocks>> {
        // Somebody else may have said the number.
        let Some(end) = n.checked_add(1).and_then(|next| next.checked_mul(GROUP_BYTES)) else {
            return Ok(Some(Blocks { bytes: vec![], beside: vec![] }));
        };
        let group = self.read_at(digest, end - GROUP_BYTES..end)?;
        Ok(group.map(|group| Blocks::of_group(n, &group, blocks)))
    }

    /// The object itself, where it is a file of this machine, unverified.
    fn file(&self, digest: Digest) -> Result<Option<fs::File>> {
        let _ = digest;
        Ok(None)
    }

    /// What a failure to read says.
    fn broken(&self, error: &io::Error) -> Error {
        Error::Unreached { site: self.name().to_owned(), reason: error.to_string() }
    }

    /// Reads many objects through where they lie, and calls `found` with the number of each and its condition, in any order.
    ///
    /// # Errors
    /// The site cannot be read; objects that are not begun yet are not read then.
    fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()>;

    /// The objects that are there, by their names.
    fn objects(&self) -> Result<Vec<Digest>>;

    /// Takes objects out of their places, so that nobody finds them there, and keeps their bytes until [`Holding::settle`]. What is not
    /// there is no error.
    fn set_aside(&self, digests: &[Digest]) -> Result<()>;

    /// What is set aside, by whomever.
    fn aside(&self) -> Result<Vec<Aside>>;

    /// Ends what [`Holding::set_aside`] began: removes what is `unneeded`, and puts what is `needed` back where nothing has come to its
    /// place meanwhile. What is not there any more is no error.
    fn settle(&self, unneeded: &[Aside], needed: &[Aside]) -> Result<()>;

    /// Writes down what a version is ([`Sealed::text`]), so that the catalog can be made anew from the sites. Whether it was written:
    /// a seal of a version with other files is not overwritten.
    fn seal(&self, key: &Key, text: &[u8]) -> Result<bool>;

    /// Removes the seal of a version that was removed. Where there is none, that is no error.
    fn unseal(&self, key: &Key) -> Result<()>;

    /// The digest of the text of each seal that is there, by its key.
    fn seal_digests(&self) -> Result<HashMap<String, Digest>>;

    /// The keys of the seals that are there.
    fn seal_keys(&self) -> Result<Vec<String>> {
        Ok(self.seal_digests()?.into_keys().collect())
    }

    /// The versions of all seals that can be read, and why the others cannot.
    fn seals(&self) -> Result<(Vec<Sealed>, Vec<String>)>;
}

/// Somebody whom a store lets in beside those who have its own key.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoreUser {
    /// As the access lists of data sets name them.
    pub name: String,
    pub groups: Vec<String>,
    /// The digest of the certificate of which they prove to have the private key.
    pub key: [u8; 32],
}

/// What lets another site fetch certain objects from a site, for a few minutes.
#[derive(Debug, Clone)]
pub struct Permit {
    /// Where the site is reached.
    pub address: String,
    /// A key that opens these objects and nothing else.
    pub key: Vec<u8>,
}

/// Blocks of a group, and what is needed to verify them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    pub bytes: Vec<u8>,
    /// The values of what is beside them in the group ([`values_beside`]).
    pub beside: Vec<[u8; 32]>,
}

impl Blocks {
    /// Blocks of a group that has these bytes; fewer where it ends before them.
    pub fn of_group(n: u64, group: &[u8], blocks: Range<usize>) -> Blocks {
        let place = |block: usize| group.len().min(block.saturating_mul(BLOCK_BYTES as usize));
        let (start, end) = (place(blocks.start), place(blocks.end).max(place(blocks.start)));
        Blocks { bytes: group[start..end].to_vec(), beside: values_beside(n, group, &(start..end)) }
    }
}

/// A site as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SitePlace {
    /// A text that no other folder of a site has, so that one is not taken for another of the same name.
    pub folder_id: String,
    /// The catalog whose site it is; `None`: none's yet.
    pub catalog: Option<String>,
    /// Bytes that it has room for.
    pub free_bytes: u64,
    /// Most bytes of objects that it sends and receives per second; `None`: it has no limit.
    pub rate_bytes_per_s: Option<u64>,
}

/// An object that is set aside.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Aside {
    pub digest: Digest,
    /// Who set it aside: a text that nobody else uses, so that none ends what another one has begun later.
    pub by: String,
}

/// Objects that come to a site together. What is dropped before [`Arrivals::keep`] leaves nothing.
pub trait Arrivals {
    /// Writes an object; returns its digest and size in bytes.
    fn add(&mut self, from: &mut dyn Read) -> io::Result<(Digest, u64)>;

    /// Takes back the object that was added last.
    fn undo(&mut self) -> io::Result<()>;

    /// Flushes all objects to the disk; then they take their places.
    fn keep(self: Box<Self>) -> io::Result<()>;
}

/// What an object of a site turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Good,
    /// Other bytes than its digest says.
    Bad,
    Missing,
}

/// How an attempt to copy an object from a site ended.
pub(crate) enum CopyEnd {
    Whole,
    /// The copy is not what it should be, for this reason.
    Damaged(Error),
    /// The site cannot be read now, which says nothing about the copy.
    Away(Error),
}

/// Copies an object that was opened at a site, by a function that copies and hashes bytes and returns their digest.
///
/// # Errors
/// What the function says where it was not reading that failed.
fn give(
    site: &str,
    opened: Result<Option<Box<dyn Read + '_>>>,
    digest: Digest,
    copy: &mut dyn FnMut(&mut dyn Read) -> io::Result<Digest>,
) -> io::Result<CopyEnd> {
    let damaged = |what: &str| {
        Ok(CopyEnd::Damaged(Error::Conflict(format!("the copy at the site `{site}` is {what}"))))
    };
    let mut bytes = match opened {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return damaged("missing"),
        Err(error) => return Ok(CopyEnd::Away(error)),
    };
    let mut bytes = Remembering::new(&mut *bytes);
    match (copy(&mut bytes), bytes.failure) {
        (Ok(found), _) if found == digest => Ok(CopyEnd::Whole),
        (Ok(_), _) => damaged("damaged: it has other bytes than its digest says"),
        // A disk that cannot give the bytes back has lost them.
        (Err(_), Some(failure)) if failure.raw_os_error() == Some(libc::EIO) => {
            damaged("damaged: its disk cannot read it")
        }
        (Err(_), Some(failure)) => {
            Ok(CopyEnd::Away(Error::Unreached { site: site.to_owned(), reason: failure.to_string() }))
        }
        (Err(error), None) => Err(error),
    }
}

/// Copies an object of a site into a batch. Where it is not whole, nothing is kept of it.
///
/// # Errors
/// The batch cannot be written.
pub(crate) fn add_copy(to: &mut dyn Arrivals, from: &dyn Holding, digest: Digest) -> io::Result<CopyEnd> {
    let mut has_begun = false;
    let given = give(from.name(), from.open_to_copy(digest), digest, &mut |bytes| {
        has_begun = true;
        to.add(bytes).map(|(found, _)| found)
    })?;
    if has_begun && !matches!(given, CopyEnd::Whole) {
        to.undo()?;
    }
    Ok(given)
}

/// Copies an object of a site to `target`, which appears whole or not at all.
///
/// # Errors
/// `target` cannot be written.
pub(crate) fn get(from: &dyn Holding, digest: Digest, target: &Path, is_executable: bool) -> Result<CopyEnd> {
    let part = beside(target);
    let mode = if is_executable { 0o777 } else { 0o666 };
    let written = give(from.name(), from.open(digest), digest, &mut |bytes| {
        let to = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&part)?;
        copy(bytes, &mut Appending(&to)).map(|(found, _)| found)
    });
    let written = written.and_then(|given| {
        if matches!(given, CopyEnd::Whole) {
            fs::rename(&part, target)?;
        }
        Ok(given)
    });
    if !matches!(written, Ok(CopyEnd::Whole)) {
        let _ = fs::remove_file(&part);
    }
    written.map_err(|error| Error::Conflict(format!("cannot write {}: {error}", shown_path(target))))
}

/// A reader that keeps why reading failed, so that it can be told from a failure to write.
pub(crate) struct Remembering<'a> {
    from: &'a mut dyn Read,
    pub(crate) failure: Option<io::Error>,
}

impl<'a> Remembering<'a> {
    pub(crate) fn new(from: &'a mut dyn Read) -> Remembering<'a> {
        Remembering { from, failure: None }
    }
}

impl Read for Remembering<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self.from.read(piece) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
            other => other,
        }
    }
}

/// How sites are reached that are not folders of this machine.
pub trait Reach: Send + Sync {
    /// The site of this name, whose store has this join file.
    ///
    /// # Errors
    /// It does not answer, or is another site.
    fn reach(&self, site: &str, join: &str) -> Result<Box<dyn Holding>>;

    /// A new join file for a user of the store that has this one, and the digest of the user's key.
    ///
    /// # Errors
    /// Users cannot reach that store.
    fn key_for(&self, join: &str, user: &str) -> Result<(String, [u8; 32])> {
        let _ = (join, user);
        Err(Error::Conflict("this program makes no keys of users".into()))
    }
}
