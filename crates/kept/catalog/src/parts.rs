//! Parts of a file of a data set, each verified before it is given: what a program reads that opens the file where it is.
//!
//! The chaining values of the file's groups come from any site that gives some which make up the file's digest
//! ([`Groups::check`]). Then each group is compared with its value. A copy that gives other bytes is noted as bad, and the next
//! site is asked. Nothing that a site says is trusted.

use crate::access::Caller;
use crate::asking::{Loads, any_turn};
use crate::catalog::Catalog;
use crate::compared::{Began, Compared};
use crate::error::{Error, Result};
use crate::holding::Holding;
use crate::key::Key;
use crate::reading::{Holder, Readable, no_copy};
use crate::sealed::File;
use crate::sites::Site;
use eyas_data::{BLOCK_BYTES, Digest, GROUP_BYTES, Groups, n_groups};
use eyas_keeping::detours::Detours;
use eyas_keeping::sources::Load;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A catalog that was opened for somebody.
pub struct Access {
    pub catalog: Catalog,
    pub caller: Caller,
}

/// A catalog that was opened, and the sites that were reached.
pub struct Known {
    pub access: Access,
    sites: Mutex<HashMap<String, Arc<Mutex<Option<Arc<dyn Holding>>>>>>,
    loads: Loads,
    /// The site that gets what is written, and when it was chosen.
    target: Mutex<Option<(String, i64)>>,
    /// Sites that could not be reached: they are asked after all others.
    silent: Mutex<Detours<String>>,
}

/// How long sites may take to say what they are busy with.
const LOAD_WAIT_MAX: Duration = Duration::from_millis(300);

/// For how long the site that was chosen last gets what is written, in milliseconds.
const CHOSEN_FOR_MS: i64 = 10_000;

impl Known {
    pub fn new(access: Access) -> Known {
        let (sites, loads) = (Mutex::default(), Loads::new(any_turn()));
        Known { access, sites, loads, target: Mutex::default(), silent: Mutex::default() }
    }

    fn silent(&self) -> MutexGuard<'_, Detours<String>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A site, which stays reached.
    pub(crate) fn reach(&self, site: &str) -> Result<Arc<dyn Holding>> {
        let known = {
            let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
            sites.entry(site.into()).or_default().clone()
        };
        // Whoever wants another site does not wait for this one.
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reached) = &*known {
            return Ok(reached.clone());
        }
        let reached: Arc<dyn Holding> = self.access.catalog.holding(site)?.into();
        Ok(known.insert(reached).clone())
    }

    /// What a site is busy with. One that could not be reached a short time ago is not asked.
    fn load(&self, site: &str, now_ms: i64) -> Option<Load> {
        if self.silent().has(&site.to_owned(), now_ms) {
            return None;
        }
        let load = self.reach(site).and_then(|reached| reached.load());
        if let Err(Error::Unreached { .. }) = &load {
            self.silent().failed(site.to_owned(), now_ms);
        }
        load.ok()
    }

    /// Puts the sites with a copy into the order in which they are asked. A site that takes long to say what it is busy with is not
    /// waited for.
    pub(crate) fn put_in_order(
        self: &Arc<Known>,
        holders: &mut Vec<Holder>,
        is_near: &dyn Fn(&Holder) -> bool,
        now_ms: i64,
    ) {
        let of: Vec<(&str, bool)> = holders.iter().map(|holder| (&*holder.name, is_near(holder))).collect();
        let order = self.loads.order(&of, &|unheard| {
            let (said, heard) = channel();
            for site in unheard {
                // Until it answers, nobody else asks it for a while.
                self.loads.note(site, None);
                let (known, site, said) = (self.clone(), (*site).to_owned(), said.clone());
                thread::spawn(move || {
                    known.loads.note(&site, known.load(&site, now_ms));
                    // Nobody may wait for it any more.
                    _ = said.send(());
                });
            }
            drop(said);
            let asked = Instant::now();
            while heard.recv_timeout(LOAD_WAIT_MAX.saturating_sub(asked.elapsed())).is_ok() {}
        });
        let mut unordered: Vec<Option<Holder>> = std::mem::take(holders).into_iter().map(Some).collect();
        holders.extend(order.into_iter().filter_map(|n| unordered[n].take()));
    }

    /// The site that gets what is written, those that are `near` first. It is chosen anew every ten seconds.
    pub(crate) fn target(
        &self,
        near: &dyn Fn(&Site) -> bool,
        now_ms: i64,
    ) -> Result<(String, Arc<dyn Holding>)> {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((site, at_ms)) = &*target
            && (0..CHOSEN_FOR_MS).contains(&(now_ms - at_ms))
        {
            return Ok((site.clone(), self.reach(site)?));
        }
        let load = |site: &str| self.load(site, now_ms);
        let reach = |site: &str| Ok((site.to_owned(), self.reach(site)?));
        let found = self.access.catalog.first_reached(near, &load, &reach)?;
        *target = Some((found.0.clone(), now_ms));
        Ok(found)
    }

    /// The next one that asks has the site chosen anew.
    pub(crate) fn forget_target(&self) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A file for reading in parts, at one `site` only or at any. Copies on this machine come first: folders, and what `is_near` says of
    /// the host of a store.
    ///
    /// # Errors
    /// The caller has not got the right to read it, or there is none; the site has no good copy of it.
    pub fn parts(
        self: &Arc<Known>,
        key: &Key,
        path: &str,
        site: Option<&str>,
        is_near: &dyn Fn(&str) -> bool,
        now_ms: fn() -> i64,
    ) -> Result<PartReader> {
        let mut readable = self.access.catalog.readable(&self.access.caller, key, path)?;
        if let Some(site) = site {
            readable.holders.retain(|holder| holder.name == site);
            if readable.holders.is_empty() {
                return Err(no_copy(Some(site), key, path));
            }
        }
        self.put_in_order(&mut readable.holders, &|holder| holder.host().is_none_or(is_near), now_ms());
        let (key, groups) = (key.clone(), Mutex::new(None));
        let (read, whole_at, near) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(PartReader { known: self.clone(), key, readable, groups, now_ms, read, whole_at, near })
    }
}

/// Reads parts of one file.
pub struct PartReader {
    known: Arc<Known>,
    key: Key,
    readable: Readable,
    groups: Mutex<Option<Arc<Groups>>>,
    now_ms: fn() -> i64,
    /// Bytes that each site gave and was not told of yet.
    read: Mutex<HashMap<String, u64>>,
    /// The site whose file the kernel reads by itself.
    whole_at: Mutex<Option<String>>,
    near: Mutex<Looked>,
}

/// The file on this machine that parts are read from.
#[derive(Clone, Default)]
enum Looked {
    #[default]
    NotYet,
    Found(Arc<Near>),
    /// There is none, or it is damaged.
    Nothing,
}

/// A file of this machine, whose parts are verified as they are read.
struct Near {
    site: String,
    file: fs::File,
    verified: Mutex<Verified>,
}

/// What was verified of a file, and until when it need not be verified again.
#[derive(Default)]
struct Verified {
    /// The file when its first part was verified.
    began: Option<Began>,
    /// A bit for each group that was right, and how many there are.
    groups: Vec<u64>,
    n_groups: u64,
    /// The file as it was when all of it was known to be right, and when that was looked up last.
    known: Option<(Began, Instant)>,
}

/// For how long a file that is known to be right is read without asking [`Compared`] again.
const KNOWN_FOR: Duration = Duration::from_secs(60);

impl Verified {
    /// Notes groups of the file as it is `now` that were right; `true`: all of them were, and the file has not changed since the first.
    fn add(&mut self, now: Began, wanted: &Range<u64>, n_all: u64) -> bool {
        if self.began.as_ref().is_none_or(|began| !began.is_same(&now)) {
            *self = Verified { began: Some(now), ..Verified::default() };
            self.groups.resize(n_all.div_ceil(64) as usize, 0);
        }
        for n in wanted.clone() {
            let (word, bit) = (&mut self.groups[(n / 64) as usize], 1 << (n % 64));
            self.n_groups += u64::from(*word & bit == 0);
            *word |= bit;
        }
        self.n_groups == n_all
    }
}

impl Near {
    /// Whether the file was compared as a whole lately, and has not changed since.
    fn is_known(&self, digest: Digest, compared: Option<&Compared>) -> bool {
        let Some(compared) = compared else { return false };
        let Ok(now) = Began::now(&self.file) else { return false };
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((then, at)) = &verified.known
            && then.is_same(&now)
            && at.elapsed() < KNOWN_FOR
        {
            return true;
        }
        verified.known = compared.knows(&self.file, digest).then(|| (now, Instant::now()));
        verified.known.is_some()
    }

    /// Reads groups and verifies each of them.
    fn read(
        &self,
        groups: &Groups,
        wanted: &Range<u64>,
        buffer: &mut [u8],
        compared: Option<&Compared>,
    ) -> bool {
        let before = Began::now(&self.file);
        for (n, group) in wanted.clone().zip(buffer.chunks_mut(GROUP_BYTES as usize)) {
            if self.file.read_exact_at(group, n * GROUP_BYTES).is_err() || !groups.is_group(n, group) {
                return false;
            }
        }
        let (Ok(before), Ok(after)) = (before, Began::now(&self.file)) else { return true };
        if !before.is_same(&after) {
            return true;
        }
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let are_all = verified.add(before, wanted, n_groups(groups.size_bytes()));
        if let (true, Some(compared), Some(began)) = (are_all, compared, &verified.began) {
            compared.note(&self.file, groups.digest(), began);
        }
        true
    }
}

impl Drop for PartReader {
    fn drop(&mut self) {
        self.note_reads();
    }
}

impl PartReader {
    /// Tells the sites what was read of the file: whenever somebody has closed it, and in the end.
    pub fn note_reads(&self) {
        let read = std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner));
        for (site, n_bytes) in read {
            if let Ok(reached) = self.known.reach(&site) {
                reached.note_reads(&HashMap::from([(self.readable.file.digest, n_bytes)]));
            }
        }
    }

    /// Counts the file as read through: the kernel reads it by itself, and nobody knows how much of it.
    pub fn count_whole(&self) {
        let site = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(site) = site {
            self.count(&site, self.readable.file.size_bytes);
        }
    }

    fn count(&self, site: &str, n_bytes: u64) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match read.get_mut(site) {
            Some(sum) => *sum += n_bytes,
            None => {
                read.insert(site.to_owned(), n_bytes);
            }
        }
    }

    pub fn file(&self) -> &File {
        &self.readable.file
    }

    /// The bytes of these groups, which are the file's.
    ///
    /// # Errors
    /// No site gives them: why the last one did not.
    pub fn read(&self, wanted: Range<u64>) -> Result<Vec<u8>> {
        let groups = self.groups()?;
        let bytes = groups.range(wanted.start).start..groups.range(wanted.end.saturating_sub(1)).end;
        if bytes.is_empty() {
            return Ok(vec![]);
        }
        self.ask_each("the part", bytes.end - bytes.start, |from| {
            let Some(part) = from.read_at(self.readable.file.digest, bytes.clone())? else { return Ok(None) };
            let is_good = wanted.clone().all(|n| {
                let Range { start, end } = groups.range(n);
                let (start, end) = (start - bytes.start, end - bytes.start);
                let group = part.get(start as usize..end as usize);
                group.is_some_and(|group| groups.is_group(n, group))
            });
            Ok((is_good && part.len() as u64 == bytes.end - bytes.start).then_some(part))
        })
    }

    /// Reads bytes of the file from a folder of this machine, verified, into a buffer; they are from the place on that is given. `None`:
    /// [`PartReader::read`] has to be asked, as no folder has the file, its copy is damaged, or fewer bytes than a group are wanted of a file
    /// that nobody has verified. `compared`: which files need not be verified again.
    pub fn read_near(
        &self,
        wanted: &Range<u64>,
        compared: Option<&Compared>,
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        let File { digest, size_bytes, .. } = self.readable.file;
        let wanted = wanted.start..wanted.end.min(size_bytes);
        let near = self.near()?;
        let is_known = near.is_known(digest, compared);
        let groups = wanted.start / GROUP_BYTES..wanted.end.div_ceil(GROUP_BYTES);
        let read = match is_known {
            true => wanted.clone(),
            false => groups.start * GROUP_BYTES..(groups.end * GROUP_BYTES).min(size_bytes),
        };
        if wanted.is_empty() || (!is_known && wanted.end - wanted.start < GROUP_BYTES.min(size_bytes)) {
            return None;
        }
        buffer.resize(usize::try_from(read.end - read.start).ok()?, 0);
        let is_right = match is_known {
            // Whoever writes to it meanwhile shows afterwards.
            true => near.file.read_exact_at(buffer, read.start).is_ok() && near.is_known(digest, compared),
            false => self.groups().is_ok_and(|values| near.read(&values, &groups, buffer, compared)),
        };
        if !is_right {
            *self.near.lock().unwrap_or_else(PoisonError::into_inner) = Looked::Nothing;
            return None;
        }
        self.count(&near.site, wanted.end - wanted.start);
        Some((wanted.start - read.start) as usize)
    }

    /// The file of the copy that is read first, where that is in a folder of this machine.
    fn near(&self) -> Option<Arc<Near>> {
        let mut near = self.near.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*near, Looked::NotYet) {
            let find = || {
                let holder = self.readable.holders.first().filter(|holder| !holder.is_store)?;
                let file = self.known.reach(&holder.name).ok()?.file(self.readable.file.digest).ok()??;
                Some(Arc::new(Near { site: holder.name.clone(), file, verified: Mutex::default() }))
            };
            *near = find().map_or(Looked::Nothing, Looked::Found);
        }
        match &*near {
            Looked::Found(near) => Some(near.clone()),
            _ => None,
        }
    }

    /// A few bytes within one group, without the rest of it: whole blocks, or up to the end of the file.
    ///
    /// # Errors
    /// As [`PartReader::read`].
    pub fn read_blocks(&self, wanted: Range<u64>) -> Result<Vec<u8>> {
        let groups = self.groups()?;
        let n = wanted.start / GROUP_BYTES;
        if groups.values().is_empty() || wanted.is_empty() {
            let group = self.read(n..n + 1)?;
            let place = |at: u64| group.len().min((at - n * GROUP_BYTES) as usize);
            return Ok(group[place(wanted.start)..place(wanted.end)].to_vec());
        }
        let block = |at: u64| ((at - n * GROUP_BYTES) / BLOCK_BYTES) as usize;
        let blocks = block(wanted.start)..block(wanted.end + BLOCK_BYTES - 1);
        self.ask_each("the part", wanted.end - wanted.start, |from| {
            let Some(part) = from.read_blocks(self.readable.file.digest, n, blocks.clone())? else {
                return Ok(None);
            };
            let is_good = part.bytes.len() as u64 == wanted.end - wanted.start
                && groups.is_part(n, blocks.start * BLOCK_BYTES as usize, &part.bytes, &part.beside);
            Ok(is_good.then_some(part.bytes))
        })
    }

    /// Whether the copy that is read first is at a store.
    pub fn is_elsewhere(&self) -> bool {
        self.readable.holders.first().is_some_and(|holder| holder.is_store)
    }

    /// The file itself, where a folder of this machine has it and `is_right` says so, for which [`PartReader::is_whole`] is.
    pub fn whole(&self, is_right: &dyn Fn(&fs::File) -> bool) -> Option<fs::File> {
        let File { digest, .. } = self.readable.file;
        self.readable.holders.iter().filter(|holder| !holder.is_store).find_map(|holder| {
            let file = self.known.reach(&holder.name).and_then(|reached| reached.file(digest)).ok()??;
            let is_taken = is_right(&file);
            if is_taken {
                *self.whole_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(holder.name.clone());
            }
            is_taken.then_some(file)
        })
    }

    /// Whether a file has the right bytes: it was compared lately, or it is compared now.
    pub fn is_whole(&self, compared: Option<&Compared>, file: &fs::File) -> bool {
        let File { digest, size_bytes, .. } = self.readable.file;
        if compared.is_some_and(|compared| compared.knows(file, digest)) {
            return true;
        }
        let began = Began::now(file);
        let is_whole = Groups::read_file(file, size_bytes).is_ok_and(|groups| groups.digest() == digest);
        if let (true, Some(compared), Ok(began)) = (is_whole, compared, began) {
            compared.note(file, digest, &began);
        }
        is_whole
    }

    /// The groups of the file; they are asked for once.
    fn groups(&self) -> Result<Arc<Groups>> {
        let mut known = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(groups) = &*known {
            return Ok(groups.clone());
        }
        let File { digest, size_bytes, .. } = self.readable.file;
        let groups = match Groups::check(digest, size_bytes, vec![]) {
            // A file of one group needs no values.
            Some(groups) => groups,
            None => self.ask_each("the file", 0, |from| {
                let values = from.groups(digest, size_bytes)?;
                Ok(values.and_then(|values| Groups::check(digest, size_bytes, values)))
            })?,
        };
        Ok(known.insert(Arc::new(groups)).clone())
    }

    /// A site drops what no data set needs, so that a copy is missing says nothing about the site once the data set is removed.
    fn require_there(&self) -> Result<()> {
        let Access { catalog, caller } = &self.known.access;
        match catalog.readable(caller, &self.key, &self.readable.file.path) {
            Err(Error::NotFound(_)) => {
                Err(Error::NotFound(format!("the data set `{}` has been removed meanwhile", self.key)))
            }
            _ => Ok(()),
        }
    }

    /// What the first site gives of which something good comes; one that gives nothing has no good copy. `n_bytes` count as read there.
    fn ask_each<T>(
        &self,
        what: &str,
        n_bytes: u64,
        ask: impl Fn(&dyn Holding) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut last = None;
        let mut holders: Vec<&Holder> = self.readable.holders.iter().collect();
        holders.sort_by_cached_key(|holder| self.known.silent().has(&holder.name, (self.now_ms)()));
        for holder in holders {
            let site = &holder.name;
            let answer = self.known.reach(site).and_then(|reached| ask(&*reached));
            match answer {
                Err(Error::Unreached { .. }) => self.known.silent().failed(site.clone(), (self.now_ms)()),
                _ => self.known.silent().worked(site),
            }
            match answer {
                Ok(Some(good)) => {
                    self.count(site, n_bytes);
                    return Ok(good);
                }
                Ok(None) => {
                    self.require_there()?;
                    let why = format!(
                        "the copy at the site `{site}` is damaged or missing: {what} is not as its digest says"
                    );
                    last = Some(Error::Conflict(why));
                    let digest = self.readable.file.digest;
                    let catalog = &self.known.access.catalog;
                    catalog.note_bad(holder, digest, (self.now_ms)());
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            let why =
                "no site has a good copy of it; `eyas data audit` takes copies back that are right again";
            Error::NotFound(why.into())
        }))
    }
}
