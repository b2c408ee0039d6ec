//! Active push (`Raicu09` §5.3): files of home that a user wants on nodes before any task reads them.
//!
//! A push is a run that wants files ([`Event::FilesWanted`](crate::event::Event::FilesWanted)). When the run is committed and a
//! node is there, the push begins. Each file goes through these steps:
//!
//! 1. One node, its *reader*, reads the file from home into its cache ([`Action::ReadHome`]), a few files at once. Readers take
//!    turns, so the readings of a push spread over all links from home. Where the file lies on a node's own disk, that node reads.
//! 2. What was read is multicast from there to the other nodes by the collectives ([`crate::collective`]). So home is asked
//!    for each byte once, however many nodes want it.
//!
//! A node is sent no more than its cache holds: each receiver has a budget, which is its cache when the push begins, and files
//! take from it in the order in which they were named. A file that finds no room in the budget is not sent there. Executors do
//! not evict what is in use; what they refuse for that reason is missing at the end, which says so.
//!
//! The push ends when every file was read or given up, and the last collective has ended. Then the catalog says what is where:
//! the record of the end counts replicas, and not what was sent ([`PushRecord`]). The run ends with its push.
//!
//! After a restart of the dispatcher a push that had not ended begins anew; what nodes hold by then is not sent again.
//!
//! Invariants, checked by `Pushes::check`:
//!   1. a push that goes on belongs to a run that has not ended;
//!   2. a file is read by an executor that is there, for a push that goes on;
//!   3. the collectives of a push are counted.
//!
//! Not here: which trees files go down (`collective`), and what executors evict.

use super::{Dispatcher, Executors, Residents};
use crate::catalog::Catalog;
use crate::collective::cost::{MulticastCase, Streams};
use crate::collective::plan::Item;
use crate::collective::{Case, CollectiveEvent, CollectiveId, choose_multicast};
use crate::event::{Action, TransferError, TransferErrorKind};
use eyas_terms::location::CatalogLocation;
use eyas_terms::{Digest, ExecutorId, MissingFile, ObjectId, PushRecord, RunId, Timestamp};
use eyas_text::size;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};

/// The files that one executor reads for pushes at once.
const READS_AT_ONCE: u32 = 4;
/// How often a file is read that could not be read for a reason which may pass.
const TRIES_MAX: u32 = 4;
/// So many files that are missing are named.
const MISSING_NAMED: usize = 100;

/// See the module.
#[derive(Default)]
pub(super) struct Pushes {
    of: BTreeMap<RunId, Push>,
    /// The pushes that have not ended.
    going: BTreeSet<RunId>,
    /// The files that are being read, and by whom.
    reads: BTreeMap<(ObjectId, RunId), ExecutorId>,
    of_collective: BTreeMap<CollectiveId, RunId>,
}

#[derive(Default)]
struct Push {
    /// Names of the nodes that want the files; none: all that are there when the push begins.
    nodes: Vec<String>,
    files: Vec<ObjectId>,
    /// The same files, when the push has begun.
    wanted: FxHashSet<ObjectId>,
    /// `None` before the push begins.
    receivers: Option<BTreeMap<ExecutorId, Receiver>>,
    began: Timestamp,
    /// The place of the first file that nobody was asked to read.
    next: usize,
    /// Files to be read once more, from the next tick on.
    again: BTreeSet<ObjectId>,
    tries: BTreeMap<ObjectId, Tries>,
    /// Files that were read and have not set out.
    read: Vec<ObjectId>,
    n_read: u64,
    /// Why files could not be read.
    failed: BTreeMap<ObjectId, String>,
    n_collectives: u32,
    is_cancelled: bool,
    record: Option<PushRecord>,
}

struct Receiver {
    name: String,
    /// Its cache when the push began.
    cache_bytes: u64,
    /// What this push may still bring there.
    left_bytes: u64,
    is_gone: bool,
    /// Files that are not there, and why, as far as that is known.
    lacks: BTreeMap<ObjectId, Lack>,
}

/// Why a file is not on a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The files before it in the push take the whole budget.
    Unfit,
    /// The node's cache refused it.
    Refused,
    /// It was there, and the cache dropped it again.
    Left,
}

impl Receiver {
    /// Files for which there was no room.
    fn n_unfit(&self) -> u64 {
        self.lacks.values().filter(|lack| **lack != Lack::Left).count() as u64
    }

    /// Why the file is not there, as a clause.
    fn why_lacking(&self, object: ObjectId, size_bytes: Option<u64>) -> String {
        let cache = size(self.cache_bytes);
        match self.lacks.get(&object) {
            Some(Lack::Unfit | Lack::Refused) if size_bytes.is_some_and(|bytes| bytes > self.cache_bytes) => {
                format!("its cache of {cache} has no room for it: the file is larger")
            }
            Some(Lack::Unfit) => {
                format!("its cache of {cache} has no room for it beside the files before it")
            }
            Some(Lack::Refused) => {
                format!("its cache of {cache} had no room for it beside what may not leave the cache")
            }
            Some(Lack::Left) => {
                format!("it arrived, and left the cache of {cache} again to make room for other files")
            }
            None => "it did not arrive".into(),
        }
    }
}

#[derive(Default)]
struct Tries {
    n: u32,
    /// Executors that had no room.
    no_room: BTreeSet<ExecutorId>,
}

impl Push {
    fn receivers(&self) -> impl Iterator<Item = (ExecutorId, &Receiver)> {
        let there = self.receivers.iter().flatten().filter(|(_, r)| !r.is_gone);
        there.map(|(executor, receiver)| (*executor, receiver))
    }

    /// Nobody has the file any more that was read, unless that has happened too often.
    fn read_once_more(&mut self, object: ObjectId) {
        self.n_read = self.n_read.saturating_sub(1);
        let tries = self.tries.entry(object).or_default();
        tries.n += 1;
        if tries.n < TRIES_MAX {
            self.again.insert(object);
        }
    }

    /// The nodes that were named and were not there when the push began.
    fn absent(&self) -> impl Iterator<Item = &String> {
        let is_there = |name: &String| self.receivers.iter().flatten().any(|(_, r)| r.name == *name);
        self.nodes.iter().filter(move |name| self.receivers.is_some() && !is_there(name))
    }

    /// How it stands: replicas are counted as the catalog has them.
    fn record(&self, run: RunId, catalog: &Catalog) -> PushRecord {
        let mut record = PushRecord {
            run,
            began: self.began,
            ended: None,
            is_cancelled: self.is_cancelled,
            n_files: self.files.len() as u64,
            n_read: self.n_read,
            n_nodes: self.receivers.as_ref().map_or(0, |r| r.len() as u32),
            ..PushRecord::default()
        };
        // Nodes that were named and were not there lack everything.
        record.n_wanted = record.n_files * (u64::from(record.n_nodes) + self.absent().count() as u64);
        for object in self.files.iter().filter(|object| catalog.is_known(**object)) {
            let n = self.receivers().filter(|(e, _)| catalog.holds(*e, *object)).count() as u64;
            // What a node had before and nobody has compared with home does not count.
            if catalog.checked_run(*object).is_some_and(|checked| checked >= run) {
                record.n_there += n;
                record.there_bytes += n * catalog.size_bytes(*object).unwrap_or(0);
            }
        }
        record.n_unfit = self.receivers().map(|(_, r)| r.n_unfit()).sum();
        record
    }

    /// The first pairs of a file and a node that are not there, with why.
    fn missing(&self, run: RunId, catalog: &Catalog) -> Vec<MissingFile> {
        let mut missing = vec![];
        for object in &self.files {
            if !catalog.is_known(*object) {
                continue;
            }
            let file = || catalog.location(*object).text().to_owned();
            if let Some(why) = self.failed.get(object) {
                missing.push(MissingFile { file: file(), node: String::new(), why: why.clone() });
            } else {
                let is_right = catalog.checked_run(*object).is_some_and(|checked| checked >= run);
                for (executor, r) in self.receivers.iter().flatten() {
                    if !r.is_gone && is_right && catalog.holds(*executor, *object) {
                        continue;
                    }
                    let why = match () {
                        () if r.is_gone => "the node left".into(),
                        () if self.is_cancelled => "the push was cancelled".into(),
                        () => r.why_lacking(*object, catalog.size_bytes(*object)),
                    };
                    missing.push(MissingFile { file: file(), node: r.name.clone(), why });
                    if missing.len() >= MISSING_NAMED {
                        return missing;
                    }
                }
            }
            if missing.len() >= MISSING_NAMED {
                return missing;
            }
        }
        for name in self.absent().take(MISSING_NAMED - missing.len()) {
            let why = "no node of this name was there when the push began";
            missing.push(MissingFile { file: String::new(), node: name.clone(), why: why.into() });
        }
        missing
    }
}

impl Pushes {
    /// Whether the run has to wait for its push.
    pub(super) fn is_going(&self, run: RunId) -> bool {
        self.going.contains(&run)
    }

    /// The run is forgotten, or its submission was given up. Gives the files that it wanted.
    pub(super) fn forget(&mut self, run: RunId) -> Vec<ObjectId> {
        self.going.remove(&run);
        self.reads.retain(|(_, of), _| *of != run);
        self.of_collective.retain(|_, of| *of != run);
        self.of.remove(&run).map(|push| push.files).unwrap_or_default()
    }

    /// Whether the file is being read for a push.
    pub(super) fn is_read(&self, object: ObjectId) -> bool {
        self.reads_of(object).next().is_some()
    }

    fn reads_of(&self, object: ObjectId) -> impl Iterator<Item = (RunId, ExecutorId)> + '_ {
        let range = (object, RunId(0))..=(object, RunId(u32::MAX));
        self.reads.range(range).map(|((_, run), executor)| (*run, *executor))
    }

    /// A collective has ended.
    pub(super) fn collective_ended(&mut self, collective: CollectiveId) {
        if let Some(push) = self.of_collective.remove(&collective).and_then(|run| self.of.get_mut(&run)) {
            push.n_collectives -= 1;
        }
    }

    /// Read back from the journal: the push had ended.
    pub(super) fn had_ended(&mut self, run: RunId) {
        self.going.remove(&run);
    }

    /// The executor has left (`is_gone`), or came back after its connection broke and may not know what it was asked.
    pub(super) fn executor_left(&mut self, executor: ExecutorId, is_gone: bool) {
        for (_, push) in self.of.iter_mut().filter(|(run, _)| self.going.contains(run)) {
            if let Some(r) = push.receivers.as_mut().and_then(|receivers| receivers.get_mut(&executor)) {
                r.is_gone |= is_gone;
            }
        }
        let broken = self.reads.iter().filter(|(_, reader)| **reader == executor);
        for (object, run) in broken.map(|(read, _)| *read).collect::<Vec<_>>() {
            self.reads.remove(&(object, run));
            if let Some(push) = self.of.get_mut(&run) {
                push.again.insert(object);
            }
        }
    }

    /// The executor's cache had no room for the file.
    pub(super) fn refused(&mut self, executor: ExecutorId, object: ObjectId) {
        self.note(executor, object, Some(Lack::Refused));
    }

    /// The file is on the executor now.
    pub(super) fn arrived(&mut self, executor: ExecutorId, object: ObjectId) {
        self.note(executor, object, None);
    }

    /// The file was on the executor, and is not any more.
    pub(super) fn left(&mut self, executor: ExecutorId, object: ObjectId) {
        self.note(executor, object, Some(Lack::Left));
    }

    /// What has become of a file at a node that may want it.
    fn note(&mut self, executor: ExecutorId, object: ObjectId, lack: Option<Lack>) {
        for run in &self.going {
            let Some(push) = self.of.get_mut(run).filter(|push| push.wanted.contains(&object)) else {
                continue;
            };
            let Some(receiver) = push.receivers.as_mut().and_then(|r| r.get_mut(&executor)) else { continue };
            match lack {
                Some(lack) => _ = receiver.lacks.insert(object, lack),
                None => _ = receiver.lacks.remove(&object),
            }
        }
    }

    /// An executor has read the file for `run`, or knows from home that what it has is right. `is_used`: these are the bytes
    /// that the dispatcher knows under this name.
    pub(super) fn was_read(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        run: RunId,
        is_used: bool,
    ) -> bool {
        let answered = |(of, reader): &(RunId, ExecutorId)| *reader == executor && *of <= run;
        let of: Vec<RunId> = self.reads_of(object).filter(answered).map(|read| read.0).collect();
        for run in &of {
            self.reads.remove(&(object, *run));
            let Some(push) = self.of.get_mut(run) else { continue };
            push.again.remove(&object);
            match is_used {
                true => {
                    push.n_read += 1;
                    push.read.push(object);
                }
                false => {
                    let why = "a run that goes on has read other bytes under this name";
                    push.failed.insert(object, why.into());
                }
            }
        }
        !of.is_empty()
    }

    /// An executor could not read the file.
    pub(super) fn not_read(&mut self, executor: ExecutorId, object: ObjectId, error: &TransferError) {
        let of: Vec<RunId> =
            self.reads_of(object).filter(|read| read.1 == executor).map(|read| read.0).collect();
        for run in of {
            self.reads.remove(&(object, run));
            let Some(push) = self.of.get_mut(&run) else { continue };
            let tries = push.tries.entry(object).or_default();
            match error.kind {
                TransferErrorKind::NoSpace | TransferErrorKind::Larger { .. } => {
                    tries.no_room.insert(executor);
                    if let Some(receiver) = push.receivers.as_mut().and_then(|r| r.get_mut(&executor)) {
                        receiver.lacks.insert(object, Lack::Refused);
                    }
                }
                // No other node will find it.
                TransferErrorKind::Unavailable => tries.n = TRIES_MAX,
                _ => tries.n += 1,
            }
            if tries.n >= TRIES_MAX {
                push.failed.insert(object, error.message.clone());
            } else {
                push.again.insert(object);
            }
        }
    }

    pub(super) fn check(&self, executors: &Executors) {
        for run in &self.going {
            let push = &self.of[run];
            let n = self.of_collective.values().filter(|of| *of == run).count();
            assert_eq!(n as u32, push.n_collectives, "collectives of the push of {run:?}");
        }
        for ((object, run), executor) in &self.reads {
            assert!(executors.by_id.contains_key(executor), "{object:?} is read by nobody");
            assert!(self.going.contains(run), "{object:?} is read for nobody");
        }
    }
}

/// Who reads a file for a push.
enum FindsReader {
    Reader(ExecutorId),
    /// All that could read it are busy.
    Later,
    /// No receiver has room for it.
    Nobody,
}

/// * `n_reads`: the files that each executor reads now.
/// * `place`: the file's place in the push; readers take turns by it.
fn find_reader(
    push: &Push,
    executors: &Executors,
    residents: &Residents,
    catalog: &Catalog,
    n_reads: &BTreeMap<ExecutorId, u32>,
    object: ObjectId,
    place: usize,
) -> FindsReader {
    let n_at = |executor: ExecutorId| n_reads.get(&executor).copied().unwrap_or(0);
    let refused = push.tries.get(&object);
    if let Some(owner) = residents.reader(executors, object) {
        // Nobody else can read it.
        if refused.is_some_and(|tries| tries.no_room.contains(&owner)) {
            return FindsReader::Nobody;
        }
        let is_free = n_at(owner) < READS_AT_ONCE;
        return if is_free { FindsReader::Reader(owner) } else { FindsReader::Later };
    }
    let bytes = catalog.size_bytes(object).unwrap_or(1).max(1);
    let able: Vec<(usize, ExecutorId)> = push
        .receivers()
        .enumerate()
        .filter(|(_, (executor, r))| {
            (r.left_bytes >= bytes || catalog.holds(*executor, object))
                && refused.is_none_or(|tries| !tries.no_room.contains(executor))
        })
        .map(|(at, (executor, _))| (at, executor))
        .collect();
    let n_receivers = push.receivers().count();
    let is_there = |e: ExecutorId| executors.by_id.get(&e).is_some_and(|e| e.is_connected());
    let free = able.iter().filter(|(_, e)| is_there(*e) && n_at(*e) < READS_AT_ONCE);
    let best = free.min_by_key(|(at, e)| {
        (!catalog.holds(*e, object), n_at(*e), (*at + n_receivers - place % n_receivers) % n_receivers)
    });
    match best {
        Some((_, executor)) => FindsReader::Reader(*executor),
        None if able.is_empty() => FindsReader::Nobody,
        None => FindsReader::Later,
    }
}

impl Dispatcher {
    pub(super) fn on_files_wanted(&mut self, run: RunId, files: Vec<String>, nodes: Vec<String>) {
        if self.work.runs.get(&run).is_none_or(|r| r.committed || r.into.is_some()) {
            return;
        }
        let push = self.pushes.of.entry(run).or_default();
        push.nodes = nodes;
        for file in &files {
            let location = CatalogLocation::of(file);
            // Files that stay on the nodes are where tasks made them.
            if location.stays() {
                continue;
            }
            let object = self.work.catalog.intern(location);
            self.work.catalog.name(object, run);
            push.files.push(object);
        }
        self.pushes.going.insert(run);
    }

    /// How the push of a run stands, or how it ended; `None`: the run has no push, or it ended in an earlier process.
    pub fn push_of(&self, run: RunId) -> Option<PushRecord> {
        let push = self.pushes.of.get(&run)?;
        match &push.record {
            Some(record) => Some(record.clone()),
            None if self.pushes.going.contains(&run) => Some(push.record(run, &self.work.catalog)),
            None => None,
        }
    }

    /// A report of a replica has been dealt with; see [`Pushes::was_read`].
    pub(super) fn push_was_read(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        digest: Digest,
        run: RunId,
    ) {
        if !self.pushes.is_read(object) || !self.work.catalog.is_known(object) {
            return;
        }
        let is_used = self.work.catalog.digest(object) == Some(digest);
        if self.pushes.was_read(executor, object, run, is_used) && is_used {
            self.work.raise_checked_run(object, run);
        }
    }

    /// The user wants the run to end: what has arrived stays.
    pub(super) fn cancel_push(&mut self, run: RunId) {
        let Some(push) = self.pushes.of.get_mut(&run).filter(|_| self.pushes.going.contains(&run)) else {
            return;
        };
        push.is_cancelled = true;
        push.next = push.files.len();
        push.again.clear();
        push.read.clear();
        self.pushes.reads.retain(|(_, of), _| *of != run);
        let of_it = self.pushes.of_collective.iter().filter(|(_, of)| **of == run);
        let abandoned = of_it.map(|(collective, _)| CollectiveEvent::Abandoned { collective: *collective });
        self.moves.pending.extend(abandoned);
    }

    /// Begins pushes, has files read, and sends on what was read.
    pub(super) fn go_on_pushing(&mut self, now: Timestamp, ticked: bool, out: &mut Vec<Action>) {
        if self.pushes.going.is_empty() || self.schedule.attempts.hold_until.is_some() {
            return;
        }
        let going: Vec<RunId> = self.pushes.going.iter().copied().collect();
        for run in going {
            if self.work.runs.get(&run).is_some_and(|r| r.committed) {
                self.begin_push(now, run, out);
                if ticked {
                    self.find_lost_on_the_way(run);
                }
                self.read_for_push(run, ticked, out);
                self.send_what_was_read(now, run);
            }
        }
    }

    fn begin_push(&mut self, now: Timestamp, run: RunId, out: &mut Vec<Action>) {
        let push = self.pushes.of.get_mut(&run).expect("it goes on");
        if push.receivers.is_some() || push.is_cancelled {
            return;
        }
        let is_wanted = |name: &String| push.nodes.is_empty() || push.nodes.contains(name);
        let there = self.schedule.executors.by_id.iter().filter(|(_, e)| e.is_connected());
        let receivers: BTreeMap<ExecutorId, Receiver> = there
            .filter(|(_, e)| is_wanted(&e.offer.name))
            .map(|(executor, e)| {
                let (name, cache_bytes) = (e.offer.name.clone(), e.offer.cache_bytes);
                let (left_bytes, lacks) = (cache_bytes, BTreeMap::new());
                (*executor, Receiver { name, cache_bytes, left_bytes, is_gone: false, lacks })
            })
            .collect();
        // A push without nodes waits for one.
        if !receivers.is_empty() {
            push.files.retain(|object| push.wanted.insert(*object));
            let (executors, objects) = (receivers.keys().copied().collect(), push.files.clone());
            out.push(Action::BeginPush { run, executors, objects });
            push.receivers = Some(receivers);
            push.began = now;
        }
    }

    /// Files that were read, and that no node has any more although some are to get them: they are read once more.
    fn find_lost_on_the_way(&mut self, run: RunId) {
        let push = self.pushes.of.get_mut(&run).expect("it goes on");
        if push.n_collectives == 0 {
            return;
        }
        let catalog = &self.work.catalog;
        let is_lost =
            |object: &&ObjectId| catalog.n_holders(**object) == 0 && self.moves.collectives.awaits(**object);
        let lost: Vec<ObjectId> = push.files[..push.next].iter().filter(is_lost).copied().collect();
        for object in lost {
            let size_bytes = self.work.catalog.size_bytes(object).unwrap_or(0);
            for receiver in push.receivers.iter_mut().flat_map(|r| r.values_mut()) {
                if receiver.lacks.get(&object) != Some(&Lack::Unfit) {
                    receiver.left_bytes += size_bytes;
                }
            }
            push.read_once_more(object);
            self.moves.pending.push(CollectiveEvent::ObjectGone { object });
        }
    }

    fn read_for_push(&mut self, run: RunId, ticked: bool, out: &mut Vec<Action>) {
        let push = self.pushes.of.get_mut(&run).expect("it goes on");
        if push.receivers.is_none() {
            return;
        }
        let mut n_reads: BTreeMap<ExecutorId, u32> = BTreeMap::new();
        for executor in self.pushes.reads.values() {
            *n_reads.entry(*executor).or_default() += 1;
        }
        let mut again = if ticked { std::mem::take(&mut push.again) } else { BTreeSet::new() };
        loop {
            let (object, is_new) = match again.pop_first() {
                Some(object) => (object, false),
                None if push.next < push.files.len() => (push.files[push.next], true),
                None => break,
            };
            if push.receivers().next().is_none() {
                push.failed.insert(object, "all nodes that wanted it have left".into());
                push.next += usize::from(is_new);
                continue;
            }
            let place = push.next;
            let (executors, catalog) = (&self.schedule.executors, &self.work.catalog);
            match find_reader(push, executors, &self.residents, catalog, &n_reads, object, place) {
                FindsReader::Reader(executor) => {
                    *n_reads.entry(executor).or_default() += 1;
                    self.pushes.reads.insert((object, run), executor);
                    out.push(Action::ReadHome { executor, object, run });
                }
                FindsReader::Later => {
                    if !is_new {
                        push.again.insert(object);
                    }
                    push.again.append(&mut again);
                    break;
                }
                FindsReader::Nobody => {
                    for receiver in push.receivers.iter_mut().flat_map(|r| r.values_mut()) {
                        receiver.lacks.entry(object).or_insert(Lack::Unfit);
                    }
                }
            }
            push.next += usize::from(is_new);
        }
    }

    /// Multicasts the files that were read. Files that are on the same nodes and go to the same nodes travel together.
    fn send_what_was_read(&mut self, now: Timestamp, run: RunId) {
        let push = self.pushes.of.get_mut(&run).expect("it goes on");
        let read = std::mem::take(&mut push.read);
        let mut sets: BTreeMap<(Vec<ExecutorId>, Vec<ExecutorId>), Vec<Item>> = BTreeMap::new();
        for object in read {
            let size_bytes = self.work.catalog.size_bytes(object).unwrap_or(0);
            let without: Vec<ExecutorId> = self.residents.without_copy(object).collect();
            let holders: Vec<ExecutorId> =
                self.work.catalog.holders_of(object).filter(|e| !without.contains(e)).collect();
            let mut targets = vec![];
            for (executor, receiver) in push.receivers.iter_mut().flatten().filter(|(_, r)| !r.is_gone) {
                let is_there = holders.contains(executor);
                if is_there || receiver.left_bytes >= size_bytes {
                    receiver.left_bytes = receiver.left_bytes.saturating_sub(size_bytes);
                    // A file that lies on the node's own disk is there.
                    if !is_there && !without.contains(executor) {
                        targets.push(*executor);
                    }
                } else {
                    receiver.lacks.insert(object, Lack::Unfit);
                }
            }
            if holders.is_empty() {
                // Its reader's cache has dropped it, or the reader has left.
                push.read_once_more(object);
            } else if !targets.is_empty() {
                let item = Item { object, size_bytes, at_home: false };
                sets.entry((holders, targets)).or_default().push(item);
            }
        }
        for ((holders, targets), items) in sets {
            self.multicast_pushed(now, run, &holders, &targets, &items);
        }
    }

    fn multicast_pushed(
        &mut self,
        now: Timestamp,
        run: RunId,
        holders: &[ExecutorId],
        targets: &[ExecutorId],
        items: &[Item],
    ) {
        let case = MulticastCase {
            n_receivers: targets.len() as u32,
            n_holders: holders.len() as u32,
            n_objects: items.len() as u64,
            bytes: items.iter().map(|item| item.size_bytes).sum(),
            largest_bytes: items.iter().map(|item| item.size_bytes).max().unwrap_or(0),
        };
        // Other files of the push use the same links at the same time: a tree that is quicker for a few of them sends everything
        // over the links of its inner nodes several times. So the way is that of the whole push at once.
        let push = self.pushes.of.get_mut(&run).expect("it goes on");
        let n_files = push.files.len() as u64;
        let whole = MulticastCase {
            n_objects: n_files,
            bytes: (case.bytes / case.n_objects).saturating_mul(n_files),
            ..case
        };
        let (outlook, streams) = (self.moves.outlook(), Streams::default());
        let mut of_whole = choose_multicast(&whole, &outlook, &streams, None);
        of_whole.insist();
        let mut choice = choose_multicast(&case, &outlook, &streams, None);
        choice.take(of_whole.way);
        // The nodes stand in a ring, and each tree goes round it from its root on. So the trees of all readers together ask the
        // same of each link; trees that all ended at one node would leave its link idle.
        let places: BTreeMap<ExecutorId, u64> =
            push.receivers.iter().flatten().map(|(e, _)| *e).zip(0..).collect();
        let place = |e: &ExecutorId| places.get(e).copied().unwrap_or(0);
        let (root, n) = (holders.first().map_or(0, place), places.len().max(1) as u64);
        let plan = self.plan_multicast(items, targets, holders, choice.way, |e| (place(&e) + n - root) % n);
        let id = self.moves.begin_chosen(&self.work, now, &plan, choice, Case::Multicast(case));
        self.pushes.of_collective.insert(id, run);
        self.pushes.of.get_mut(&run).expect("it goes on").n_collectives += 1;
    }

    /// Ends the pushes of which nothing is under way any more, and with them their runs.
    pub(super) fn end_pushes(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let is_over = |run: &&RunId| {
            let push = &self.pushes.of[*run];
            (push.receivers.is_some() || push.is_cancelled)
                && self.work.runs.get(run).is_some_and(|r| r.committed)
                && push.next == push.files.len()
                && push.again.is_empty()
                && push.read.is_empty()
                && push.n_collectives == 0
        };
        let over: Vec<RunId> = self.pushes.going.iter().filter(is_over).copied().collect();
        for run in over {
            if self.pushes.reads.keys().any(|(_, of)| *of == run) {
                continue;
            }
            let push = self.pushes.of.get_mut(&run).expect("it goes on");
            let mut record = push.record(run, &self.work.catalog);
            record.ended = Some(now);
            record.missing = push.missing(run, &self.work.catalog);
            push.record = Some(record.clone());
            // Only the end is of interest from now on, and the names of the files.
            (push.receivers, push.tries, push.failed) = (None, BTreeMap::new(), BTreeMap::new());
            push.wanted = FxHashSet::default();
            self.pushes.going.remove(&run);
            out.push(Action::EndPush { record: Box::new(record) });
            self.check_run_end(now, run, out);
        }
    }
}
