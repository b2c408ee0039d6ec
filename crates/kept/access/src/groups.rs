//! Verified groups of files: how many are read at once, and how many are kept.
//!
//! A group is [`eyas_data::GROUP_BYTES`]. A program that reads on where it stopped gets twice as many groups at once each time, up
//! to [`AHEAD_MAX`]; one that reads here and there gets what it asked for. The groups that were used longest ago are dropped first.
//!
//! Where the file is at a store, the first few bytes that are read of a group come without the rest of it, and the group when it is
//! read a second time: over a network a group takes longer than the round trip.

use eyas_catalog::{Compared, PartReader, Result};
use eyas_data::{BLOCK_BYTES, GROUP_BYTES, n_groups};
use fuser::BackingId;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Most groups that are read at once, 4 MiB.
const AHEAD_MAX: u64 = 64;

/// Most bytes that come without the rest of their group.
const FEW_BYTES: u64 = 16 << 10;

/// A file that was opened.
pub(crate) struct OpenFile {
    number: u64,
    pub(crate) parts: PartReader,
    pub(crate) opened: Mutex<Opened>,
    reading: Mutex<Reading>,
}

/// Files that were opened, by number. Some that nobody has open any more stay, so that who comes again need not have them compared
/// again; each may hold a file of this machine.
#[derive(Default)]
pub(crate) struct OpenFiles {
    known: HashMap<u64, (Arc<OpenFile>, u64)>,
    idle: VecDeque<u64>,
}

/// Most files that stay.
const IDLE_MAX: usize = 256;

impl OpenFiles {
    pub(crate) fn get(&self, number: u64) -> Option<Arc<OpenFile>> {
        self.known.get(&number).map(|(file, _)| file.clone())
    }

    /// Adds a file; if it is known, that one counts.
    pub(crate) fn put(&mut self, number: u64, file: Arc<OpenFile>) -> Arc<OpenFile> {
        self.known.entry(number).or_insert((file, 0)).0.clone()
    }

    /// Somebody has it open, once more; if another one is known meanwhile, that one counts.
    pub(crate) fn hold(&mut self, number: u64, file: Arc<OpenFile>) -> Arc<OpenFile> {
        let (file, n_open) = self.known.entry(number).or_insert((file, 0));
        *n_open += 1;
        file.clone()
    }

    /// Somebody has closed it.
    pub(crate) fn let_go(&mut self, number: u64) {
        let Some((_, n_open)) = self.known.get_mut(&number) else { return };
        *n_open = n_open.saturating_sub(1);
        if *n_open > 0 {
            return;
        }
        self.idle.push_back(number);
        while self.idle.len() > IDLE_MAX
            && let Some(oldest) = self.idle.pop_front()
        {
            // It may have been opened again, or stand behind in the queue once more.
            let is_idle = self.known.get(&oldest).is_some_and(|(_, n_open)| *n_open == 0);
            if is_idle && !self.idle.contains(&oldest) {
                self.known.remove(&oldest);
            }
        }
    }
}

/// How programs have a file open.
#[derive(Default)]
pub(crate) struct Opened {
    /// The file on this machine that the kernel reads by itself.
    pub(crate) backing: Backing,
    /// How often it is open in this way.
    pub(crate) n_through: u64,
    /// How often it is open so that the kernel asks for each part.
    pub(crate) n_in_parts: u64,
}

/// A file of this machine that the kernel may read by itself.
#[derive(Default)]
pub(crate) enum Backing {
    #[default]
    Untried,
    /// It was right when it was compared, and has not changed since where its stamp is the same.
    Of(Arc<BackingId>, fs::File, Stamp, Instant),
    /// The kernel asks for each part.
    Never,
}

/// Size and times of a file: they change with its bytes, unless its disk changes them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64, i64, i64, i64, i64);

impl Stamp {
    pub(crate) fn of(file: &fs::File) -> Option<Stamp> {
        let of = file.metadata().ok()?;
        Some(Stamp(of.size(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()))
    }
}

/// How a file is being read. Whoever reads from a site holds it, so that nothing is read twice at a time.
struct Reading {
    /// The group behind those that were read last.
    next: u64,
    /// How many groups are read at once.
    n_ahead: u64,
    /// A bit for each group that a few bytes were read of without the rest.
    begun: Vec<u64>,
}

impl Reading {
    /// Notes that a few bytes of a group are read without the rest; `false`: the program reads on where it stopped, or has been in
    /// the group before, so the group itself is wanted.
    fn begin(&mut self, n: u64) -> bool {
        let (word, bit) = ((n / 64) as usize, 1 << (n % 64));
        if n == self.next {
            return false;
        }
        if self.begun.len() <= word {
            self.begun.resize(word + 1, 0);
        }
        let is_first = self.begun[word] & bit == 0;
        self.begun[word] |= bit;
        is_first
    }
}

impl OpenFile {
    pub(crate) fn new(number: u64, parts: PartReader) -> OpenFile {
        let reading = Mutex::new(Reading { next: 0, n_ahead: 1, begun: vec![] });
        OpenFile { number, parts, opened: Mutex::default(), reading }
    }

    /// Somebody has closed it, who had it open for the kernel itself or in parts.
    pub(crate) fn close(&self, was_through: bool) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let Opened { n_through, n_in_parts, .. } = &mut *opened;
        let n = if was_through { n_through } else { n_in_parts };
        *n = n.saturating_sub(1);
    }

    /// Gives so many bytes from a place on, or fewer where the file ends. Where the file is on this machine, they go through memory of this
    /// thread only; `compared` has the files that need not be verified.
    pub(crate) fn give(
        &self,
        kept: &KeptGroups,
        compared: Option<&Compared>,
        start: u64,
        n_bytes: u64,
        give: impl FnOnce(&[u8]),
    ) -> Result<()> {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let wanted = start..start.saturating_add(n_bytes).min(self.parts.file().size_bytes);
        BUFFER.with_borrow_mut(|buffer| match self.parts.read_near(&wanted, compared, buffer) {
            Some(first) => {
                give(&buffer[first..first + (wanted.end - wanted.start) as usize]);
                Ok(())
            }
            None => self.read(kept, start, n_bytes).map(|bytes| give(&bytes)),
        })
    }

    /// So many bytes from a place on, or fewer where the file ends.
    fn read(&self, kept: &KeptGroups, start: u64, n_bytes: u64) -> Result<Vec<u8>> {
        let size_bytes = self.parts.file().size_bytes;
        let end = start.saturating_add(n_bytes).min(size_bytes);
        if let Some(few) = self.few(kept, start, end)? {
            return Ok(few);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(end.saturating_sub(start)).unwrap_or(0));
        let mut at = start;
        while at < end {
            let n = at / GROUP_BYTES;
            let group = self.group(kept, n, end.div_ceil(GROUP_BYTES))?;
            let first = n * GROUP_BYTES;
            let part = (at - first) as usize..(end - first).min(group.len() as u64) as usize;
            at = first + part.end as u64;
            bytes.extend_from_slice(&group[part]);
        }
        Ok(bytes)
    }

    /// A few bytes of a file at a store, where that is all that is wanted of their group now. The kernel keeps them.
    fn few(&self, kept: &KeptGroups, start: u64, end: u64) -> Result<Option<Vec<u8>>> {
        let n = start / GROUP_BYTES;
        let is_few = start.is_multiple_of(BLOCK_BYTES)
            && start < end
            && self.parts.file().size_bytes > GROUP_BYTES
            && end - start <= FEW_BYTES
            && end <= (n + 1) * GROUP_BYTES
            && (end.is_multiple_of(BLOCK_BYTES) || end == self.parts.file().size_bytes)
            && self.parts.is_elsewhere();
        let is_wanted = || self.reading.lock().unwrap_or_else(PoisonError::into_inner).begin(n);
        if !is_few || kept.has(self.number, n) || !is_wanted() {
            return Ok(None);
        }
        self.parts.read_blocks(start..end).map(Some)
    }

    /// The `n`-th group; those before `end` are wanted, too.
    fn group(&self, kept: &KeptGroups, n: u64, end: u64) -> Result<Arc<[u8]>> {
        if let Some(group) = kept.get(self.number, n) {
            return Ok(group);
        }
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever held it before may have brought it.
        if let Some(group) = kept.get(self.number, n) {
            return Ok(group);
        }
        reading.n_ahead = if n == reading.next { (reading.n_ahead * 2).min(AHEAD_MAX) } else { 1 };
        let n_wanted = (end - n).max(reading.n_ahead).min(kept.most_groups());
        let end = (n + n_wanted).min(n_groups(self.parts.file().size_bytes));
        let bytes = self.parts.read(n..end)?;
        let mut first = None;
        for (group, bytes) in (n..end).zip(bytes.chunks(GROUP_BYTES as usize)) {
            let bytes: Arc<[u8]> = bytes.into();
            first.get_or_insert_with(|| bytes.clone());
            kept.put(self.number, group, bytes);
        }
        reading.next = end;
        Ok(first.unwrap_or_else(|| Arc::new([])))
    }
}

/// Groups of all files, in a bounded memory.
pub(crate) struct KeptGroups {
    most_bytes: u64,
    groups: Mutex<Groups>,
}

#[derive(Default)]
struct Groups {
    /// By file and group, with when it was used last.
    known: HashMap<(u64, u64), (Arc<[u8]>, u64)>,
    by_use: BTreeMap<u64, (u64, u64)>,
    n_uses: u64,
    n_bytes: u64,
}

impl KeptGroups {
    pub(crate) fn new(most_bytes: u64) -> KeptGroups {
        KeptGroups { most_bytes, groups: Mutex::default() }
    }

    /// Most groups that may be brought at once, so that the first is still there when the last one comes.
    fn most_groups(&self) -> u64 {
        (self.most_bytes / GROUP_BYTES / 4).max(1)
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, file: u64, group: u64) -> Option<Arc<[u8]>> {
        let groups = &mut *self.lock();
        let (bytes, used) = groups.known.get_mut(&(file, group))?;
        groups.by_use.remove(used);
        groups.n_uses += 1;
        *used = groups.n_uses;
        groups.by_use.insert(groups.n_uses, (file, group));
        Some(bytes.clone())
    }

    fn has(&self, file: u64, group: u64) -> bool {
        self.lock().known.contains_key(&(file, group))
    }

    fn put(&self, file: u64, group: u64, bytes: Arc<[u8]>) {
        let groups = &mut *self.lock();
        groups.n_uses += 1;
        groups.n_bytes += bytes.len() as u64;
        groups.by_use.insert(groups.n_uses, (file, group));
        if let Some((before, used)) = groups.known.insert((file, group), (bytes, groups.n_uses)) {
            groups.n_bytes -= before.len() as u64;
            groups.by_use.remove(&used);
        }
        while groups.n_bytes > self.most_bytes
            && let Some((_, oldest)) = groups.by_use.pop_first()
            && let Some((dropped, _)) = groups.known.remove(&oldest)
        {
            groups.n_bytes -= dropped.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_was_used_longest_ago_goes() {
        let kept = KeptGroups::new(30);
        let bytes = |n: u8| -> Arc<[u8]> { vec![n; 10].into() };
        for n in 0..3 {
            kept.put(1, n, bytes(n as u8));
        }
        assert_eq!(kept.get(1, 0), Some(bytes(0)));
        kept.put(2, 0, bytes(9));
        assert_eq!(kept.get(1, 1), None, "it was used longest ago");
        assert!(kept.get(1, 0).is_some() && kept.get(1, 2).is_some() && kept.get(2, 0).is_some());
        // What is put again counts once.
        kept.put(2, 0, bytes(8));
        assert_eq!(kept.get(2, 0), Some(bytes(8)));
        let groups = kept.lock();
        assert_eq!((groups.n_bytes, groups.by_use.len(), groups.known.len()), (30, 3, 3));
    }
}
