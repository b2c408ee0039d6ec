//! Whom a store lets in beside those who have its own key, and what they may do. It asks its own disk only, so the answer is the same while
//! the catalog is away.
//!
//! * Who: `users.json` in its folder, which whoever has the store's own key sets as a whole ([`Users::set`]). A key that is not in it opens
//!   nothing, also on connections that are there already.
//! * What: the seals in its folder. A user may read an object, or run programs on it, where the rights in a seal of a version with that
//!   object say so, and may read what they have brought themselves.
//!
//! A user's own seal gives nobody an object that the user has not got: it names what they may read or have brought, and nothing else.
//!
//! What is nobody's here anybody may say to be theirs, as the store does not know the catalog. Such a word stands beside those of others and
//! keeps none of them out; it gives way to what whoever has the store's own key seals ([`eyas_catalog::SaidBy`]).
//!
//! Source: the access control policy of each file server (`Wozniak06` §I, §III-C.1).

use eyas_catalog::{Acl, Error, Folder, Holding, Key, Result, Right, SaidBy, Sealed, StoreUser, rights_of};
use eyas_data::Digest;
use eyas_text::{shown, shown_path};
use eyas_wire::users::UserKey;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Objects whose bringers are known until a seal names them. With more, the oldest may have to wait for a repair's seal.
const BROUGHT_MAX: usize = 1_000_000;

/// The users of a store.
pub(crate) struct Users {
    path: PathBuf,
    known: RwLock<HashMap<UserKey, Arc<StoreUser>>>,
    /// `None`: the seals were not read yet. It is held while a seal is written, so that it says what the disk does.
    sets: Mutex<Option<Sets>>,
    brought: Mutex<HashSet<(String, Digest)>>,
}

/// What the seals say.
#[derive(Default)]
struct Sets {
    labels: HashMap<String, BTreeMap<SealPlace, Version>>,
    of_object: HashMap<Digest, HashSet<(String, SealPlace)>>,
}

/// The number of a version, and the user in whose words its seal is; `None`: of whoever has the store's own key.
type SealPlace = (Option<u32>, Option<SaidBy>);

struct Version {
    owner: String,
    acl: Acl,
    digests: Vec<Digest>,
}

impl Sets {
    fn read(folder: &Folder) -> Result<Sets> {
        let mut sets = Sets::default();
        for file in folder.seal_files()? {
            // One that cannot be read gives nobody a right.
            if let Some(sealed) = file.text.ok().and_then(|text| Sealed::of_text(&text).ok()) {
                sets.add(sealed, file.said);
            }
        }
        Ok(sets)
    }

    fn add(&mut self, sealed: Sealed, said: Option<SaidBy>) {
        let Key { label, version } = sealed.key;
        let place = (version, said);
        self.remove(&label, &place);
        let digests: Vec<Digest> = sealed.files.iter().map(|file| file.digest).collect();
        for digest in &digests {
            self.of_object.entry(*digest).or_default().insert((label.clone(), place.clone()));
        }
        let version = Version { owner: sealed.owner, acl: sealed.acl, digests };
        self.labels.entry(label).or_default().insert(place, version);
    }

    fn remove(&mut self, label: &str, place: &SealPlace) {
        let Some(of_label) = self.labels.get_mut(label) else { return };
        for digest in of_label.remove(place).map_or(vec![], |version| version.digests) {
            if let Some(seals) = self.of_object.get_mut(&digest) {
                seals.remove(&(label.to_owned(), place.clone()));
                if seals.is_empty() {
                    self.of_object.remove(&digest);
                }
            }
        }
    }

    /// Removes the seals of a label for which this holds.
    fn remove_where(&mut self, label: &str, is_gone: impl Fn(&SealPlace, &Version) -> bool) {
        let of_label = self.labels.get(label).into_iter().flatten();
        let gone: Vec<SealPlace> = of_label
            .filter(|(place, version)| is_gone(place, version))
            .map(|(place, _)| place.clone())
            .collect();
        gone.iter().for_each(|place| self.remove(label, place));
    }

    fn may(&self, user: &StoreUser, digest: Digest, right: Right) -> bool {
        let seals = self.of_object.get(&digest).into_iter().flatten();
        let mut versions = seals.filter_map(|(label, place)| self.labels.get(label)?.get(place));
        versions.any(|version| version.may(user, right))
    }

    /// By what it is judged who may seal a version of a label as this owner's: the newest version that whoever has the store's own key or
    /// that owner has sealed. What others have said gives nobody a right to say more.
    ///
    /// `Err`: the label is another owner's.
    fn judge(&self, label: &str, owner: &str) -> std::result::Result<Option<&Version>, ()> {
        let of_label = || self.labels.get(label).into_iter().flatten();
        let settled = of_label().rev().find(|((_, said), _)| said.is_none());
        if settled.is_some_and(|(_, version)| version.owner != owner) {
            return Err(());
        }
        let is_judge = |((_, said), version): &(&SealPlace, &Version)| {
            version.owner == owner && said.as_ref().is_none_or(SaidBy::is_owners)
        };
        Ok(of_label().rev().find(is_judge).map(|(_, version)| version))
    }
}

impl Version {
    fn may(&self, user: &StoreUser, right: Right) -> bool {
        rights_of(&user.name, &user.groups, &self.owner, &self.acl).has(right)
    }
}

fn keyed(users: Vec<StoreUser>) -> HashMap<UserKey, Arc<StoreUser>> {
    users.into_iter().map(|user| (UserKey(user.key), Arc::new(user))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Users {
    /// The users of the store in a folder.
    ///
    /// # Errors
    /// Its list is there and cannot be read.
    pub(crate) fn of_folder(root: &Path) -> Result<Users> {
        let path = root.join("users.json");
        let bad = |reason: String| {
            Error::Conflict(format!(
                "cannot read {}, which says whom the store lets in: {reason}; remove it, and the store lets in only who has its own \
                 key, until the next `eyas data repair` of the catalog writes it again",
                shown_path(&path)
            ))
        };
        let known = match fs::read(&path) {
            Ok(text) => keyed(serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => return Err(bad(error.to_string())),
        };
        let (sets, brought) = (Mutex::default(), Mutex::default());
        Ok(Users { path, known: RwLock::new(known), sets, brought })
    }

    /// Lets in these from now on, and no others. They are on the disk when this returns.
    pub(crate) fn set(&self, users: Vec<StoreUser>) -> io::Result<()> {
        // Who is taken away is refused from now on, whatever becomes of the file.
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        *known = keyed(users.clone());
        // Whoever gets a name later has brought nothing yet.
        lock(&self.brought).retain(|(name, _)| users.iter().any(|user| user.name == *name));
        let part = self.path.with_extension("part");
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(&serde_json::to_vec(&users).expect("users are plain"))?;
        file.sync_all()?;
        fs::rename(&part, &self.path)?;
        self.path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
    }

    pub(crate) fn keys(&self) -> Vec<UserKey> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Whose key it is now.
    pub(crate) fn of(&self, key: &UserKey) -> Option<Arc<StoreUser>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn with_sets<T>(&self, folder: &Folder, ask: impl FnOnce(&mut Sets) -> T) -> Result<T> {
        let mut sets = lock(&self.sets);
        if sets.is_none() {
            *sets = Some(Sets::read(folder)?);
        }
        Ok(ask(sets.as_mut().expect("they were just read")))
    }

    /// The first of the objects to which the user has not got the right.
    pub(crate) fn lacking(
        &self,
        folder: &Folder,
        user: &StoreUser,
        right: Right,
        digests: &[Digest],
    ) -> Result<Option<Digest>> {
        self.with_sets(folder, |sets| {
            let brought = lock(&self.brought);
            let has_brought = |digest: Digest| brought.contains(&(user.name.clone(), digest));
            let mut digests = digests.iter().copied();
            digests.find(|digest| !sets.may(user, *digest, right) && !has_brought(*digest))
        })
    }

    /// The user has sent all bytes of these objects.
    pub(crate) fn note_brought(&self, user: &StoreUser, digests: impl IntoIterator<Item = Digest>) {
        let mut brought = lock(&self.brought);
        if brought.len() >= BROUGHT_MAX {
            brought.clear();
        }
        brought.extend(digests.into_iter().map(|digest| (user.name.clone(), digest)));
    }

    /// Writes a seal of whoever has the store's own key, and knows what it says from then on. Whether it was written, see
    /// [`Holding::seal`].
    pub(crate) fn seal(&self, folder: &Folder, sealed: Sealed, text: &[u8]) -> Result<bool> {
        let mut sets = lock(&self.sets);
        let is_written = folder.seal(&sealed.key, text)?;
        if let (true, Some(sets)) = (is_written, &mut *sets) {
            let is_gone = |(number, said): &SealPlace, version: &Version| {
                said.is_some() && (*number == sealed.key.version || version.owner != sealed.owner)
            };
            sets.remove_where(&sealed.key.label, is_gone);
            sets.add(sealed, None);
        }
        Ok(is_written)
    }

    /// Writes a seal in a user's words, see [`Folder::seal_as`].
    pub(crate) fn seal_as(
        &self,
        folder: &Folder,
        user: &StoreUser,
        sealed: &Sealed,
        text: &[u8],
    ) -> Result<bool> {
        let mut sets = lock(&self.sets);
        let Some(places) = folder.seal_as(&user.name, sealed, text)? else { return Ok(false) };
        if let Some(sets) = &mut *sets {
            places.into_iter().for_each(|said| sets.add(sealed.clone(), said));
        }
        Ok(true)
    }

    pub(crate) fn unseal(&self, folder: &Folder, key: &Key) -> Result<()> {
        let mut sets = lock(&self.sets);
        folder.unseal(key)?;
        if let Some(sets) = &mut *sets {
            sets.remove_where(&key.label, |(number, _), _| *number == key.version);
        }
        Ok(())
    }

    /// Why a user may not write this seal; `None`: they may.
    pub(crate) fn why_not_seal(
        &self,
        folder: &Folder,
        user: &StoreUser,
        sealed: &Sealed,
    ) -> Result<Option<String>> {
        let may_not = self.with_sets(folder, |sets| match sets.judge(&sealed.key.label, &sealed.owner) {
            Err(()) => true,
            Ok(None) => sealed.owner != user.name,
            Ok(Some(known)) => {
                let changes_rights = known.acl != sealed.acl;
                !(known.may(user, Right::Write) || known.may(user, Right::Admin))
                    || (changes_rights && !known.may(user, Right::Admin))
            }
        })?;
        let who = shown(&user.name);
        if may_not {
            let label = &sealed.key.label;
            return Ok(Some(format!(
                "{who} may not say here what the data set `{label}` is, or who may do what with it"
            )));
        }
        let digests: Vec<Digest> = sealed.files.iter().map(|file| file.digest).collect();
        let lacking = self.lacking(folder, user, Right::Read, &digests)?;
        Ok(lacking.map(|digest| {
            format!(
                "{who} has neither brought the object {digest} of `{}` to this store nor may read it here",
                sealed.key
            )
        }))
    }

    /// The keys of the seals of data sets of which the user has any right, as the files are named.
    pub(crate) fn keys_for(&self, folder: &Folder, user: &StoreUser) -> Result<HashSet<String>> {
        self.with_sets(folder, |sets| {
            let all = [Right::Read, Right::Write, Right::List, Right::Admin, Right::Execute];
            let visible = |version: &Version| all.iter().any(|right| version.may(user, *right));
            let seals =
                sets.labels.iter().flat_map(|(label, seals)| seals.iter().map(move |seal| (label, seal)));
            let seen = seals.filter(|(_, (_, version))| visible(version));
            seen.map(|(label, ((version, _), _))| Key { label: label.clone(), version: *version }.to_string())
                .collect()
        })
    }
}
