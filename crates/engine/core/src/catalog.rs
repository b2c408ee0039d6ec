//! Catalog: what the dispatcher knows of data objects and of their replicas, searchable by object and by
//! executor.
//!
//! In: locations when they are first named, facts when they become known, replicas as executors report them.
//! Out: [`ObjectId`]s, facts, and answers to the two questions `holders_of` and `objects_on`. The catalog is
//! authoritative only for names; what it says about nodes is a hint, because updates arrive in batches.
//!
//! Invariants, checked by [`Catalog::sanity_check`]:
//!   1. `executor` is among the holders of `object` if and only if `object` is among the objects on `executor`;
//!   2. only executors that have joined and not left hold anything;
//!   3. every object with a digest is found by that digest.
//!
//! Why so compact: 10⁵ objects on 10³ executors is small, 10⁷ pairs are not. Per pair, both directions
//! together cost under 24 bytes (the test `catalog_bytes_per_pair` checks that). Holders are stored by
//! [`Seat`]: three of them inside the object's record, more in a sorted list, very many (a database file that
//! went to every node) as one bit per seat, so that no update is linear in the holders. Facts that most
//! objects never get are stored apart.
//!
//! Objects can be forgotten ([`Catalog::forget`]). A number is never given again, as executors may still use
//! it. The memory of [`PAGE`] neighbouring objects is freed when all of them are forgotten.
//!
//! Order: holders come in the order of seats, objects in the order of ids; no caller ever sees hash order.
//!
//! Not here: which copy to fetch or to drop (`dispatcher`), what is pinned (`cache` on the node).

use crate::executor_set::{Seat, SeatSet, Seats, rank_in, seats_around, seats_in};
use eyas_terms::location::CatalogLocation;
use eyas_terms::{Digest, ExecutorId, HomeVersion, Marks, ObjectId, RunId};
use hashbrown::{HashSet, HashTable};
use rustc_hash::{FxBuildHasher, FxHasher};
use std::hash::{BuildHasher, Hash, Hasher};

/// The catalog. See the module.
#[derive(Default)]
pub struct Catalog {
    /// `None`: all objects of that page are forgotten.
    pages: Vec<Option<Box<Page>>>,
    n_objects: u32,
    by_name: HashTable<u32>,
    facts: Vec<Facts>,
    /// Free places in `facts`, left by forgotten objects.
    free_facts: Vec<u32>,
    /// Objects that have a digest; two locations with equal bytes both have an entry.
    by_digest: HashTable<u32>,
    seats: Seats,
    /// Per seat, the objects that it holds.
    on: Vec<HashSet<u32, FxBuildHasher>>,
    n_replicas: usize,
}

/// The number of objects with neighbouring numbers whose memory is freed together.
pub const PAGE: usize = 1024;

#[derive(Default)]
struct Page {
    /// The objects' locations one after the other; each object knows where its own ends, and it starts where
    /// the one before ends.
    names: String,
    objects: Vec<Object>,
    n_forgotten: u32,
}

struct Object {
    name_end: u32,
    /// Where the name within the run begins in the object's location, 0 for a file at home
    /// ([`CatalogLocation::name_at`]).
    name_at: u32,
    /// The latest run of which a task named the object, [`NO_RUN`] if none did, [`FORGOTTEN`] if the object
    /// is forgotten.
    named_by: u32,
    /// [`UNKNOWN_SIZE`] until the size is known.
    size_bytes: u64,
    /// Index into [`Catalog::facts`], [`NO_FACTS`] if the object has none.
    facts: u32,
    holders: Holders,
}

/// Facts that are known only of objects that somebody has read or checked.
#[derive(Default, Clone)]
struct Facts {
    digest: Option<Digest>,
    version: Option<HomeVersion>,
    checked_run: Option<RunId>,
    marks: Option<Marks>,
}

const UNKNOWN_SIZE: u64 = u64::MAX;
const NO_FACTS: u32 = u32::MAX;
const NO_RUN: u32 = 0;
const FORGOTTEN: u32 = u32::MAX;
const N_INLINE: usize = 3;
/// A holder list never becomes a bit set below this length.
const N_LIST: usize = 64;

/// The seats that hold one object, ascending.
enum Holders {
    Few { len: u8, seats: [Seat; N_INLINE] },
    List(Vec<Seat>),
    Bits(Box<SeatSet>),
}

/// The holders of one object as they are stored, for callers that combine rows of bits.
pub(crate) enum HoldersView<'a> {
    List(&'a [Seat]),
    Words(&'a [u64]),
}

impl Holders {
    const NONE: Holders = Holders::Few { len: 0, seats: [Seat(0); N_INLINE] };

    #[inline]
    fn view(&self) -> HoldersView<'_> {
        match self {
            Holders::Few { len, seats } => HoldersView::List(&seats[..*len as usize]),
            Holders::List(list) => HoldersView::List(list),
            Holders::Bits(set) => HoldersView::Words(set.words()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Holders::Few { len, .. } => *len as usize,
            Holders::List(list) => list.len(),
            Holders::Bits(set) => set.len(),
        }
    }

    fn contains(&self, seat: Seat) -> bool {
        match self {
            Holders::Bits(set) => set.contains(seat),
            Holders::List(list) => list.binary_search(&seat).is_ok(),
            Holders::Few { len, seats } => seats[..*len as usize].contains(&seat),
        }
    }

    /// `n_seats` decides when bits take less room than a list. The seat must not be in the set yet.
    fn insert(&mut self, seat: Seat, n_seats: usize) {
        match self {
            Holders::Few { len, seats } => {
                let n = *len as usize;
                let at = seats[..n].partition_point(|s| *s < seat);
                if n < N_INLINE {
                    seats.copy_within(at..n, at + 1);
                    seats[at] = seat;
                    *len += 1;
                } else {
                    let mut list = Vec::with_capacity(N_INLINE + 3);
                    list.extend_from_slice(seats);
                    list.insert(at, seat);
                    *self = Holders::List(list);
                }
            }
            Holders::List(list) => {
                let at = list.partition_point(|s| *s < seat);
                if list.len() == list.capacity() {
                    // The list grows by a quarter instead of doubling: there are many lists, and most grow
                    // slowly.
                    list.reserve_exact(2 + list.len() / 4);
                }
                list.insert(at, seat);
                if list.len() > N_LIST.max(n_seats / 32) {
                    let mut set = SeatSet::default();
                    list.iter().rev().for_each(|&s| {
                        set.insert(s);
                    });
                    *self = Holders::Bits(Box::new(set));
                }
            }
            Holders::Bits(set) => {
                set.insert(seat);
            }
        }
    }

    /// The seat must be in the set.
    fn remove(&mut self, seat: Seat, n_seats: usize) {
        match self {
            Holders::Few { len, seats } => {
                let n = *len as usize;
                let at = seats[..n].partition_point(|s| *s < seat);
                seats.copy_within(at + 1..n, at);
                *len -= 1;
            }
            Holders::List(list) => {
                let at = list.partition_point(|s| *s < seat);
                list.remove(at);
                // The border is one below the inline size, so that an object at the border does not change
                // its form with every update.
                if list.len() < N_INLINE {
                    let mut seats = [Seat(0); N_INLINE];
                    seats[..list.len()].copy_from_slice(list);
                    *self = Holders::Few { len: list.len() as u8, seats };
                }
            }
            Holders::Bits(set) => {
                set.remove(seat);
                if set.len() < N_LIST.max(n_seats / 32) / 2 {
                    *self = Holders::List(set.iter().collect());
                }
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Holders::Few { .. } => 0,
            Holders::List(list) => list.capacity() * size_of::<Seat>(),
            Holders::Bits(set) => size_of::<SeatSet>() + set.heap_bytes(),
        }
    }
}

fn hash_name(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}

fn hash_digest(digest: &Digest) -> u64 {
    let mut hasher = FxHasher::default();
    digest.0[..8].hash(&mut hasher);
    hasher.finish()
}

impl Catalog {
    pub fn new() -> Catalog {
        Catalog::default()
    }

    // ---- objects and their facts

    /// The id of the object at `location`; a new id if the location was never named before.
    pub fn intern(&mut self, location: CatalogLocation<'_>) -> ObjectId {
        if let Some(object) = self.find(location) {
            return object;
        }
        let id = self.n_objects;
        self.n_objects = id.checked_add(1).expect("fewer than 2^32 objects");
        if (id as usize).is_multiple_of(PAGE) {
            self.pages.push(Some(Box::default()));
        }
        let page = self.pages.last_mut().expect("there is one").get_or_insert_default();
        page.names.push_str(location.text());
        page.objects.push(Object {
            name_end: u32::try_from(page.names.len()).expect("locations of a page take less than 4 GiB"),
            name_at: location.name_at(),
            named_by: NO_RUN,
            size_bytes: UNKNOWN_SIZE,
            facts: NO_FACTS,
            holders: Holders::NONE,
        });
        let pages = &self.pages;
        self.by_name.insert_unique(hash_name(location.text()), id, |&i| hash_name(text_at(pages, i)));
        ObjectId(id)
    }

    /// The id of the object at `location`, if the location was named and the object is not forgotten.
    pub fn find(&self, location: CatalogLocation<'_>) -> Option<ObjectId> {
        let is_it = |i: &u32| text_at(&self.pages, *i) == location.text();
        self.by_name.find(hash_name(location.text()), is_it).map(|&id| ObjectId(id))
    }

    /// Where the object is. The location's text was parsed when it was first named.
    pub fn location(&self, object: ObjectId) -> CatalogLocation<'_> {
        CatalogLocation::parsed(text_at(&self.pages, object.0), self.object(object).name_at)
    }

    /// The number of objects that were ever named, including forgotten ones.
    pub fn n_objects(&self) -> usize {
        self.n_objects as usize
    }

    /// Whether the object was named and is not forgotten. No other method may be called with an unknown
    /// object.
    pub fn is_known(&self, object: ObjectId) -> bool {
        let page = self.pages.get(object.0 as usize / PAGE).and_then(|page| page.as_deref());
        let known = page.and_then(|page| page.objects.get(object.0 as usize % PAGE));
        known.is_some_and(|known| known.named_by != FORGOTTEN)
    }

    /// The latest of the runs of which a task named the object.
    pub fn named_by(&self, object: ObjectId) -> Option<RunId> {
        Some(self.object(object).named_by).filter(|run| *run != NO_RUN).map(RunId)
    }

    /// Notes that a task of `run` names the object.
    pub fn name(&mut self, object: ObjectId, run: RunId) {
        let record = self.object_mut(object);
        record.named_by = record.named_by.max(run.0);
    }

    /// Forgets that the submission `run`, which is given up, named the object. Its number may be given again.
    pub fn unname(&mut self, object: ObjectId, run: RunId) {
        let record = self.object_mut(object);
        if record.named_by == run.0 {
            record.named_by = NO_RUN;
        }
    }

    /// Forgets the object: its number means nothing any more, and its location gets a new number when it is
    /// named again. No executor may hold the object. Gives the page of numbers that is now forgotten as a
    /// whole, if there is one.
    pub fn forget(&mut self, object: ObjectId) -> Option<u32> {
        assert_eq!(self.n_holders(object), 0, "{object:?} has replicas");
        self.set_digest(object, None);
        let hash = hash_name(self.location(object).text());
        if let Ok(entry) = self.by_name.find_entry(hash, |&i| i == object.0) {
            entry.remove();
        }
        let record = self.object_mut(object);
        record.named_by = FORGOTTEN;
        let facts = std::mem::replace(&mut record.facts, NO_FACTS);
        if facts != NO_FACTS {
            self.facts[facts as usize] = Facts::default();
            self.free_facts.push(facts);
        }
        let slot = &mut self.pages[object.0 as usize / PAGE];
        let page = slot.as_mut().expect("the object was known");
        page.n_forgotten += 1;
        if page.n_forgotten as usize == PAGE {
            *slot = None;
            return Some(object.0 / PAGE as u32);
        }
        None
    }

    #[inline]
    fn object(&self, object: ObjectId) -> &Object {
        object_at(&self.pages, object.0)
    }

    #[inline]
    fn object_mut(&mut self, object: ObjectId) -> &mut Object {
        let page = self.pages[object.0 as usize / PAGE].as_mut().expect("the object is not forgotten");
        &mut page.objects[object.0 as usize % PAGE]
    }

    pub fn size_bytes(&self, object: ObjectId) -> Option<u64> {
        Some(self.object(object).size_bytes).filter(|&s| s != UNKNOWN_SIZE)
    }

    pub fn set_size_bytes(&mut self, object: ObjectId, size_bytes: Option<u64>) {
        self.object_mut(object).size_bytes = size_bytes.unwrap_or(UNKNOWN_SIZE);
    }

    pub fn digest(&self, object: ObjectId) -> Option<Digest> {
        self.facts_of(object)?.digest
    }

    pub fn set_digest(&mut self, object: ObjectId, digest: Option<Digest>) {
        let old = self.digest(object);
        if old == digest {
            return;
        }
        if let Some(old) = old
            && let Ok(entry) = self.by_digest.find_entry(hash_digest(&old), |&i| i == object.0)
        {
            entry.remove();
        }
        self.facts_mut(object).digest = digest;
        if let Some(digest) = digest {
            let pages = &self.pages;
            let hash_of = |&i: &u32| {
                let facts = &self.facts[object_at(pages, i).facts as usize];
                facts.digest.as_ref().map_or(0, hash_digest)
            };
            self.by_digest.insert_unique(hash_digest(&digest), object.0, hash_of);
        }
    }

    /// The version that home reported when the object was last read.
    pub fn version(&self, object: ObjectId) -> Option<&HomeVersion> {
        self.facts_of(object)?.version.as_ref()
    }

    pub fn set_version(&mut self, object: ObjectId, version: Option<HomeVersion>) {
        let facts = self.facts_mut(object);
        // The first version is that of what was made. Another one has its own marks.
        if facts.version.is_some() && facts.version != version {
            facts.marks = None;
        }
        facts.version = version;
    }

    /// What the task gave the object that made it, as long as home has no later version of it.
    pub fn marks(&self, object: ObjectId) -> Option<Marks> {
        self.facts_of(object)?.marks
    }

    pub fn set_marks(&mut self, object: ObjectId, marks: Option<Marks>) {
        self.facts_mut(object).marks = marks;
    }

    /// The run in which home was last asked whether the object has changed.
    pub fn checked_run(&self, object: ObjectId) -> Option<RunId> {
        self.facts_of(object)?.checked_run
    }

    pub fn set_checked_run(&mut self, object: ObjectId, run: Option<RunId>) {
        self.facts_mut(object).checked_run = run;
    }

    /// All objects known to have these bytes, ascending.
    pub fn objects_with_digest(&self, digest: Digest) -> Vec<ObjectId> {
        let mut found: Vec<ObjectId> = self
            .by_digest
            .iter_hash(hash_digest(&digest))
            .map(|&i| ObjectId(i))
            .filter(|&o| self.digest(o) == Some(digest))
            .collect();
        found.sort_unstable();
        found
    }

    fn facts_of(&self, object: ObjectId) -> Option<&Facts> {
        // There are fewer facts than objects, so `NO_FACTS` is beyond the end.
        self.facts.get(self.object(object).facts as usize)
    }

    fn facts_mut(&mut self, object: ObjectId) -> &mut Facts {
        if self.object(object).facts == NO_FACTS {
            let free = self.free_facts.pop().unwrap_or_else(|| {
                self.facts.push(Facts::default());
                self.facts.len() as u32 - 1
            });
            self.object_mut(object).facts = free;
        }
        let at = self.object(object).facts;
        &mut self.facts[at as usize]
    }

    // ---- executors and replicas

    /// Gives `executor` a seat; replicas are only recorded for executors that have one.
    pub fn executor_joined(&mut self, executor: ExecutorId) -> Seat {
        let seat = self.seats.join(executor);
        if self.on.len() <= seat.0 as usize {
            self.on.resize_with(seat.0 as usize + 1, HashSet::default);
        }
        seat
    }

    /// Forgets `executor` and its replicas; gives the objects that it held, ascending.
    pub fn executor_left(&mut self, executor: ExecutorId) -> Vec<ObjectId> {
        let objects = self.objects_on(executor);
        let Some(seat) = self.seats.leave(executor) else { return objects };
        let n_seats = self.seats.n_seats();
        for object in &objects {
            self.object_mut(*object).holders.remove(seat, n_seats);
        }
        self.n_replicas -= objects.len();
        self.on[seat.0 as usize] = HashSet::default();
        objects
    }

    #[inline]
    pub fn seat(&self, executor: ExecutorId) -> Option<Seat> {
        self.seats.find(executor)
    }

    /// `true`: this replica was not known before. `false`: it was, or `executor` has no seat (a late report).
    pub fn add_replica(&mut self, executor: ExecutorId, object: ObjectId) -> bool {
        let Some(seat) = self.seats.find(executor) else { return false };
        let n_seats = self.seats.n_seats();
        let holders = &mut self.object_mut(object).holders;
        if holders.contains(seat) {
            return false;
        }
        holders.insert(seat, n_seats);
        self.on[seat.0 as usize].insert(object.0);
        self.n_replicas += 1;
        true
    }

    /// `true`: there was such a replica. `false`: there was none.
    pub fn drop_replica(&mut self, executor: ExecutorId, object: ObjectId) -> bool {
        let Some(seat) = self.seats.find(executor) else { return false };
        if !self.on[seat.0 as usize].remove(&object.0) {
            return false;
        }
        let n_seats = self.seats.n_seats();
        self.object_mut(object).holders.remove(seat, n_seats);
        self.n_replicas -= 1;
        true
    }

    /// The executors that hold `object`, in the order of seats.
    pub fn holders_of(&self, object: ObjectId) -> impl Iterator<Item = ExecutorId> + '_ {
        let (list, words): (&[Seat], &[u64]) = match self.object(object).holders.view() {
            HoldersView::List(list) => (list, &[]),
            HoldersView::Words(words) => (&[], words),
        };
        list.iter()
            .copied()
            .chain(seats_in(words))
            .map(|s| self.seats.who(s).expect("only the seated hold replicas"))
    }

    /// How many holders of `object` come before `executor`; `None` if `executor` is no holder.
    pub(crate) fn holder_rank(&self, object: ObjectId, executor: ExecutorId) -> Option<usize> {
        let seat = self.seats.find(executor)?;
        match self.object(object).holders.view() {
            HoldersView::List(list) => list.binary_search(&seat).ok(),
            HoldersView::Words(words) => rank_in(words, seat),
        }
    }

    /// All holders of `object` in the order of seats, once around, starting after the first `n_before`.
    pub(crate) fn holders_from(
        &self,
        object: ObjectId,
        n_before: usize,
    ) -> impl Iterator<Item = ExecutorId> + '_ {
        let (list, words): (&[Seat], &[u64]) = match self.object(object).holders.view() {
            HoldersView::List(list) => (list, &[]),
            HoldersView::Words(words) => (&[], words),
        };
        let (before, after) = list.split_at(n_before.min(list.len()));
        let listed = after.iter().chain(before).copied();
        let who = |s| self.seats.who(s).expect("only the seated hold replicas");
        listed.chain(seats_around(words, n_before)).map(who)
    }

    #[inline]
    pub(crate) fn holders_view(&self, object: ObjectId) -> HoldersView<'_> {
        self.object(object).holders.view()
    }

    pub fn n_holders(&self, object: ObjectId) -> usize {
        self.object(object).holders.len()
    }

    /// [`Catalog::holds`] for many objects and one executor; its cost does not depend on the number of
    /// holders.
    #[inline]
    pub(crate) fn seat_holds(&self, seat: Seat, object: ObjectId) -> bool {
        self.on[seat.0 as usize].contains(&object.0)
    }

    /// [`Catalog::holds`] by way of the object, for one object and many executors.
    #[inline]
    pub(crate) fn is_held_by(&self, object: ObjectId, seat: Seat) -> bool {
        self.object(object).holders.contains(seat)
    }

    pub fn holds(&self, executor: ExecutorId, object: ObjectId) -> bool {
        self.seats.find(executor).is_some_and(|seat| self.object(object).holders.contains(seat))
    }

    /// The objects that `executor` holds, ascending; sorted on each call.
    pub fn objects_on(&self, executor: ExecutorId) -> Vec<ObjectId> {
        let Some(seat) = self.seats.find(executor) else { return Vec::new() };
        let mut objects: Vec<ObjectId> = self.on[seat.0 as usize].iter().map(|&o| ObjectId(o)).collect();
        objects.sort_unstable();
        objects
    }

    /// The number of (object, holder) pairs.
    pub fn n_replicas(&self) -> usize {
        self.n_replicas
    }

    // ---- accounts

    /// Heap bytes held, including the text of version stamps.
    pub fn heap_bytes(&self) -> usize {
        let stamps = self.facts.iter().filter_map(|f| f.version.as_ref()).map(|v| v.stamp.len());
        let pages = self.pages.iter().flatten().map(|page| {
            size_of::<Page>()
                + page.names.capacity()
                + page.objects.capacity() * (size_of::<Object>() - size_of::<Holders>())
        });
        pages.sum::<usize>()
            + self.pages.capacity() * size_of::<Option<Box<Page>>>()
            + self.by_name.allocation_size()
            + (self.facts.capacity() * size_of::<Facts>() + self.free_facts.capacity() * size_of::<u32>())
            + stamps.sum::<usize>()
            + self.by_digest.allocation_size()
            + self.seats.heap_bytes()
            + self.replica_bytes()
    }

    /// The part of [`Catalog::heap_bytes`] that (object, holder) pairs take, both directions.
    pub fn replica_bytes(&self) -> usize {
        let of_page = |page: &Page| {
            page.objects.capacity() * size_of::<Holders>()
                + page.objects.iter().map(|o| o.holders.heap_bytes()).sum::<usize>()
        };
        self.pages.iter().flatten().map(|page| of_page(page)).sum::<usize>()
            + self.on.capacity() * size_of::<HashSet<u32, FxBuildHasher>>()
            + self.on.iter().map(HashSet::allocation_size).sum::<usize>()
    }

    /// Panics when an invariant of the module's header does not hold.
    pub fn sanity_check(&self) {
        let mut n_pairs = 0;
        let mut n_known = 0;
        for id in (0..self.n_objects).map(ObjectId).filter(|id| self.is_known(*id)) {
            n_known += 1;
            let holders: Vec<_> = self.holders_of(id).collect();
            assert_eq!(holders.len(), self.n_holders(id), "{id:?}");
            let seats: Vec<_> = holders.iter().map(|&e| self.seats.find(e)).collect();
            assert!(seats.is_sorted_by(|a, b| a < b), "{id:?}: {seats:?}");
            for seat in seats.into_iter().flatten() {
                assert!(self.on[seat.0 as usize].contains(&id.0), "{id:?} {seat:?}");
                n_pairs += 1;
            }
            assert_eq!(self.find(self.location(id)), Some(id));
            if let Some(digest) = self.digest(id) {
                assert!(self.objects_with_digest(digest).contains(&id));
            }
        }
        assert_eq!(n_known, self.by_name.len());
        assert_eq!(n_pairs, self.n_replicas);
        assert_eq!(n_pairs, self.on.iter().map(HashSet::len).sum::<usize>());
        assert_eq!(self.by_digest.len(), self.facts.iter().filter(|f| f.digest.is_some()).count());
    }
}

#[inline]
fn object_at(pages: &[Option<Box<Page>>], i: u32) -> &Object {
    &pages[i as usize / PAGE].as_ref().expect("the object is not forgotten").objects[i as usize % PAGE]
}

fn text_at(pages: &[Option<Box<Page>>], i: u32) -> &str {
    let page = pages[i as usize / PAGE].as_ref().expect("the object is not forgotten");
    let i = i as usize % PAGE;
    let start = if i == 0 { 0 } else { page.objects[i - 1].name_end };
    &page.names[start as usize..page.objects[i].name_end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn catalog(n_executors: u32, n_objects: u32) -> Catalog {
        let mut catalog = Catalog::new();
        (0..n_executors).for_each(|e| {
            catalog.executor_joined(ExecutorId(e));
        });
        (0..n_objects).for_each(|o| {
            catalog.intern(CatalogLocation::Home(&format!("sky/{o}.fits")));
        });
        catalog
    }

    #[test]
    fn a_location_keeps_its_id() {
        let mut catalog = catalog(0, 1000);
        assert_eq!(catalog.intern(CatalogLocation::Home("sky/7.fits")), ObjectId(7));
        assert_eq!(
            (catalog.find(CatalogLocation::Home("sky/999.fits")), catalog.find(CatalogLocation::Home("sky"))),
            (Some(ObjectId(999)), None)
        );
        assert_eq!(catalog.location(ObjectId(0)), CatalogLocation::Home("sky/0.fits"));
        assert_eq!(catalog.n_objects(), 1000);
    }

    #[test]
    fn facts_can_be_learnt_and_forgotten() {
        let mut catalog = catalog(1, 3);
        let (a, b, c) = (ObjectId(0), ObjectId(1), ObjectId(2));
        let same = Digest([7; 32]);
        catalog.set_digest(b, Some(same));
        catalog.set_digest(a, Some(same));
        catalog.set_digest(c, Some(Digest([8; 32])));
        assert_eq!(catalog.objects_with_digest(same), [a, b]);
        catalog.set_digest(a, Some(Digest([9; 32])));
        catalog.set_digest(c, None);
        assert_eq!(catalog.objects_with_digest(same), [b]);
        assert_eq!((catalog.digest(c), catalog.size_bytes(a)), (None, None));
        catalog.set_size_bytes(a, Some(0));
        catalog.set_version(a, Some(HomeVersion { size_bytes: 0, stamp: "x".into() }));
        catalog.set_checked_run(a, Some(RunId(3)));
        assert_eq!((catalog.size_bytes(a), catalog.checked_run(a)), (Some(0), Some(RunId(3))));
        assert_eq!(catalog.version(a).map(|v| &*v.stamp), Some("x"));
        assert_eq!((catalog.version(b), catalog.checked_run(b)), (None, None));
        catalog.sanity_check();
    }

    #[test]
    fn what_is_forgotten_gets_another_number_and_its_page_goes() {
        let mut catalog = catalog(1, 3 * PAGE as u32);
        let same = Digest([7; 32]);
        for o in (0..3 * PAGE as u32).map(ObjectId) {
            catalog.name(o, RunId(1 + o.0 % 2));
            catalog.set_digest(o, Some(same));
        }
        let bytes = catalog.heap_bytes();
        let (kept, middle) = (ObjectId(5), PAGE as u32..2 * PAGE as u32);
        (0..PAGE as u32)
            .chain(middle)
            .map(ObjectId)
            .filter(|o| *o != kept)
            .for_each(|o| _ = catalog.forget(o));
        catalog.sanity_check();
        assert!(catalog.heap_bytes() < bytes, "{} of {bytes}", catalog.heap_bytes());
        assert_eq!(catalog.pages.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
        assert!(catalog.is_known(kept) && !catalog.is_known(ObjectId(6)));
        assert!(!catalog.is_known(ObjectId(PAGE as u32)) && !catalog.is_known(ObjectId(u32::MAX)));
        assert_eq!((catalog.location(kept).text(), catalog.named_by(kept)), ("sky/5.fits", Some(RunId(2))));
        assert_eq!(catalog.objects_with_digest(same).len(), PAGE + 1);
        assert_eq!(catalog.find(CatalogLocation::Home("sky/6.fits")), None);
        let again = catalog.intern(CatalogLocation::Home("sky/6.fits"));
        assert_eq!((again, catalog.digest(again)), (ObjectId(3 * PAGE as u32), None));
        assert_eq!(catalog.named_by(again), None);
        // Its former place among the facts is used again.
        let n_facts = catalog.facts.len();
        catalog.set_digest(again, Some(same));
        assert_eq!(catalog.facts.len(), n_facts);
        catalog.sanity_check();
    }

    #[test]
    fn who_has_not_joined_holds_nothing() {
        let mut catalog = catalog(1, 2);
        assert!(!catalog.add_replica(ExecutorId(5), ObjectId(0)));
        assert!(catalog.add_replica(ExecutorId(0), ObjectId(1)));
        assert!(!catalog.add_replica(ExecutorId(0), ObjectId(1)), "it is no news");
        assert_eq!(catalog.executor_left(ExecutorId(0)), [ObjectId(1)]);
        assert!(!catalog.add_replica(ExecutorId(0), ObjectId(1)), "a late report");
        assert_eq!((catalog.n_replicas(), catalog.n_holders(ObjectId(1))), (0, 0));
    }

    /// A figure of the results table, counted and not timed.
    #[test]
    fn catalog_bytes_per_pair() {
        for (n_replicas, bytes_max) in [(2, 24), (3, 24), (5, 24), (20, 24)] {
            let mut catalog = catalog(1000, 100_000);
            for object in 0..100_000u32 {
                for r in 0..n_replicas {
                    catalog.add_replica(ExecutorId((object * 7 + r * 331) % 1000), ObjectId(object));
                }
            }
            let per_pair = catalog.replica_bytes() / catalog.n_replicas();
            assert!(per_pair <= bytes_max, "{per_pair} bytes per pair at {n_replicas} replicas");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// Against two plain sets, over all three forms of a holder set and reuse of seats.
        #[test]
        fn both_directions_agree(ops in prop::collection::vec((0..10u8, 0..150u32, 0..4u32), 1..900)) {
            let mut catalog = catalog(150, 4);
            let mut pairs: BTreeSet<(u32, u32)> = BTreeSet::new();
            let mut here: BTreeSet<u32> = (0..150).collect();
            for (kind, e, o) in ops {
                let (executor, object) = (ExecutorId(e), ObjectId(o));
                match kind {
                    0 => {
                        let held: Vec<_> = (0..4).filter(|&o| pairs.contains(&(e, o))).map(ObjectId).collect();
                        prop_assert_eq!(catalog.executor_left(executor), held);
                        pairs.retain(|p| p.0 != e);
                        here.remove(&e);
                    }
                    1 | 2 => {
                        catalog.executor_joined(executor);
                        here.insert(e);
                    }
                    3 | 4 => prop_assert_eq!(catalog.drop_replica(executor, object), pairs.remove(&(e, o))),
                    _ => prop_assert_eq!(
                        catalog.add_replica(executor, object),
                        here.contains(&e) && pairs.insert((e, o))
                    ),
                }
            }
            catalog.sanity_check();
            for o in 0..4 {
                let mut holders: Vec<_> = catalog.holders_of(ObjectId(o)).map(|e| e.0).collect();
                holders.sort_unstable();
                prop_assert_eq!(holders, pairs.iter().filter(|p| p.1 == o).map(|p| p.0).collect::<Vec<_>>());
                let in_order: Vec<_> = catalog.holders_of(ObjectId(o)).collect();
                for (rank, holder) in in_order.iter().enumerate() {
                    prop_assert_eq!(catalog.holder_rank(ObjectId(o), *holder), Some(rank));
                    let around = in_order[rank..].iter().chain(&in_order[..rank]);
                    prop_assert!(catalog.holders_from(ObjectId(o), rank).eq(around.copied()));
                }
            }
            for e in 0..150 {
                let objects: Vec<_> = catalog.objects_on(ExecutorId(e)).iter().map(|o| o.0).collect();
                prop_assert_eq!(&objects, &pairs.iter().filter(|p| p.0 == e).map(|p| p.1).collect::<Vec<_>>());
                prop_assert!(objects.iter().all(|&o| catalog.holds(ExecutorId(e), ObjectId(o))));
            }
        }
    }
}
