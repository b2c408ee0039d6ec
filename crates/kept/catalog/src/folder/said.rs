//! What users of a store have sealed there and whoever has the store's own key has not.
//!
//! ```text
//! FOLDER/said/LABEL/3.OWNER.WRITER.json        version 3 of LABEL, as OWNER's, in the words of the user WRITER
//! ```
//!
//! A store does not know the catalog, so it cannot tell whose a label is, nor whether there is such a version. So such a seal stands beside
//! those of other users and keeps none of them out. What whoever has the store's own key seals takes their place: all of the same version,
//! and all that give the label to another owner.
//!
//! An owner's own word is kept, as that of a catalog's keeper is: a seal with other files does not take its place, as the catalog may have
//! been restored from a backup that is older.

use super::{Folder, Result, io_error, is_of_other_files, list, remove_whatever, write_whole};
use crate::key::Key;
use crate::sealed::Sealed;
use eyas_data::Digest;
use eyas_text::shown_path;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Whose a version is, and who says so. Users are known by a digest of their names, which may have any characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaidBy {
    owner: String,
    writer: String,
}

impl SaidBy {
    pub(super) fn new(owner: &str, writer: &str) -> SaidBy {
        let mark = |name: &str| Digest::of(name.as_bytes()).to_string()[..32].to_owned();
        SaidBy { owner: mark(owner), writer: mark(writer) }
    }

    /// Whether the owner says it, and nobody else.
    pub fn is_owners(&self) -> bool {
        self.owner == self.writer
    }
}

/// A seal as the folder has it.
#[derive(Debug)]
pub struct SealFile {
    /// As seals are named.
    pub key: String,
    /// `None`: it is of whoever has the folder, or the store's own key.
    pub said: Option<SaidBy>,
    /// The text, or why it cannot be read.
    pub text: std::result::Result<Vec<u8>, String>,
}

/// A file with what a user has said of a version.
pub(super) struct SaidSeal {
    pub(super) version: u32,
    pub(super) by: SaidBy,
    pub(super) path: PathBuf,
}

impl Folder {
    /// Writes down what a user says of a version. Gives the places that say so now; `None`: the user, or whoever has the store's own key,
    /// has sealed the same version with other files.
    ///
    /// Where a seal has the same files, in whosever words, it is written anew, so that all of them give the same rights.
    pub fn seal_as(&self, writer: &str, sealed: &Sealed, text: &[u8]) -> Result<Option<Vec<Option<SaidBy>>>> {
        let key = &sealed.key;
        let settled = self.seal_path(key);
        if settled.exists() {
            return Ok(self.write_seal(&settled, text)?.then(|| vec![None]));
        }
        let by = SaidBy::new(&sealed.owner, writer);
        let mut of_version = self.said_of(&key.label)?;
        of_version.retain(|said| Some(said.version) == key.version && said.by.owner == by.owner);
        let mut same = vec![];
        for said in of_version {
            match fs::read(&said.path) {
                Ok(found) if !is_of_other_files(&found, text) => same.push(said),
                Ok(_) if said.by == by => return Ok(None),
                _ => {}
            }
        }
        if same.is_empty() {
            let of_label = self.root.join("said").join(&key.label);
            fs::create_dir_all(&of_label).map_err(|error| io_error("make the folder", &of_label, &error))?;
            let (version, SaidBy { owner, writer }) = (key.version.unwrap_or(1), &by);
            let path = of_label.join(format!("{version}.{owner}.{writer}.json"));
            return Ok(self.write_seal(&path, text)?.then(|| vec![Some(by)]));
        }
        for said in &same {
            write_whole(&self.root.join("incoming"), &said.path, text)?;
        }
        Ok(Some(same.into_iter().map(|said| Some(said.by)).collect()))
    }

    /// All seals of the folder.
    pub fn seal_files(&self) -> Result<Vec<SealFile>> {
        let mut seals = self.settled_files()?;
        seals.extend(self.said_files()?);
        Ok(seals)
    }

    /// Those that no user has written.
    pub(super) fn settled_files(&self) -> Result<Vec<SealFile>> {
        let mut paths: Vec<PathBuf> =
            list(&self.root.join("seals"))?.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let files = paths.into_iter().map(|path| {
            let key = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            SealFile { key, said: None, text: text_of(&path) }
        });
        Ok(files.collect())
    }

    fn said_files(&self) -> Result<Vec<SealFile>> {
        let mut seals = vec![];
        for label in self.said_labels()? {
            for said in self.said_of(&label)? {
                let key = Key { label: label.clone(), version: Some(said.version) }.to_string();
                seals.push(SealFile { key, said: Some(said.by), text: text_of(&said.path) });
            }
        }
        Ok(seals)
    }

    /// The seals that only users have written, by their keys: one for each version on which they agree, and else the reason.
    pub(super) fn said_texts(&self) -> Result<BTreeMap<String, std::result::Result<Vec<u8>, String>>> {
        let mut by_key: BTreeMap<String, Vec<SealFile>> = BTreeMap::new();
        for seal in self.said_files()? {
            by_key.entry(seal.key.clone()).or_default().push(seal);
        }
        let agreed = by_key.into_iter().map(|(key, seals)| {
            let text = agreed(seals).unwrap_or_else(|| {
                Err(format!(
                    "{key}: users of the store have written down different versions under this key, and whoever keeps the catalog has \
                     sealed none of them"
                ))
            });
            (key, text)
        });
        Ok(agreed.collect())
    }

    /// The keys of what only users have sealed.
    pub(super) fn said_keys(&self) -> Result<Vec<String>> {
        let mut keys = vec![];
        for label in self.said_labels()? {
            let said = self.said_of(&label)?.into_iter();
            keys.extend(
                said.map(|said| Key { label: label.clone(), version: Some(said.version) }.to_string()),
            );
        }
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    /// Whether the owner of a version has said that it has other files.
    pub(super) fn is_denied_by_owner(&self, said: &[SaidSeal], sealed: &Sealed, text: &[u8]) -> bool {
        let own = SaidBy::new(&sealed.owner, &sealed.owner);
        let own = said.iter().find(|said| Some(said.version) == sealed.key.version && said.by == own);
        own.and_then(|own| fs::read(&own.path).ok()).is_some_and(|found| is_of_other_files(&found, text))
    }

    /// Removes what users have said of a version, and, with `owner`, of all versions of its label that they gave to others.
    pub(super) fn drop_said(&self, said: &[SaidSeal], key: &Key, owner: Option<&str>) -> Result<()> {
        let owner = owner.map(|owner| SaidBy::new(owner, owner).owner);
        let is_other = |said: &SaidSeal| owner.as_ref().is_some_and(|owner| *owner != said.by.owner);
        for said in said.iter().filter(|said| Some(said.version) == key.version || is_other(said)) {
            remove_whatever(&said.path).map_err(|error| io_error("remove", &said.path, &error))?;
        }
        Ok(())
    }

    fn said_labels(&self) -> Result<Vec<String>> {
        let mut labels = self.names_in("said")?;
        labels.sort();
        Ok(labels)
    }

    /// What users have said of the versions of a label, in the order of its files' names.
    pub(super) fn said_of(&self, label: &str) -> Result<Vec<SaidSeal>> {
        let path = self.root.join("said").join(label);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(io_error("read", &path, &error)),
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let said = paths.into_iter().filter_map(|path| {
            let mut parts = path.file_name()?.to_str()?.strip_suffix(".json")?.split('.');
            let version = parts.next()?.parse().ok()?;
            let by = SaidBy { owner: parts.next()?.to_owned(), writer: parts.next()?.to_owned() };
            Some(SaidSeal { version, by, path })
        });
        Ok(said.collect())
    }
}

fn text_of(path: &Path) -> std::result::Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", shown_path(path)))
}

/// The text on which users agree; `None`: there is none. Where they mean one owner, what the owner says is taken.
fn agreed(seals: Vec<SealFile>) -> Option<std::result::Result<Vec<u8>, String>> {
    let owner = seals.first()?.said.as_ref()?.owner.clone();
    if seals.iter().any(|seal| seal.said.as_ref().is_some_and(|said| said.owner != owner)) {
        return None;
    }
    let of_owner = seals.iter().position(|seal| seal.said.as_ref().is_some_and(SaidBy::is_owners));
    if let Some(n) = of_owner {
        return seals.into_iter().nth(n).map(|seal| seal.text);
    }
    let text = seals[0].text.as_ref();
    let differs = |seal: &SealFile| match (text, seal.text.as_ref()) {
        (Ok(one), Ok(other)) => is_of_other_files(one, other),
        _ => true,
    };
    if seals.iter().skip(1).any(differs) {
        return None;
    }
    seals.into_iter().next().map(|seal| seal.text)
}
