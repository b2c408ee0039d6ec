//! Objects ranked by the tasks that fetching them would serve, best first, with constant cost per change.
//!
//! In: objects with a number of tasks, a size and a [`Heat`]. Out: the objects of one heat from the best
//! [`bucket_of`] down; within a bucket, in the order in which the objects came into it.
//!
//! Why buckets and not an ordered set: a count changes with every task that enters or leaves, while the
//! best object is asked for much less often. A bucket spans a sixteenth of a doubling, so two scores that
//! differ by more than 7 % never swap, and small counts of objects of one size stay apart exactly.
//!
//! Invariants, checked by `Rank::sanity_check`: each list holds exactly the entries of its heat and bucket,
//! and a bit is set for each list that is not empty.

use eyas_terms::ObjectId;
use hashbrown::HashTable;

/// Where an object could come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heat {
    /// No executor holds the object or is reading it from home.
    Cold = 0,
    /// No executor holds the object, and at least one is reading it from home.
    Arriving = 1,
    /// At least one executor holds the object.
    Warm = 2,
}

const N_HEATS: usize = 3;
/// 16 buckets for each power of two of a `u64`.
const N_BUCKETS: usize = 1024;
const NIL: u32 = u32::MAX;
/// An empty rank keeps its memory if there is room for at most this many entries, because short queues
/// become empty all the time.
const FEW: usize = 256;

/// The bucket of a score in tasks per byte, on a logarithmic scale; larger is better.
pub(super) fn bucket_of(n_tasks: u32, size_bytes: u64) -> u16 {
    let score = (u128::from(n_tasks) << 40) / u128::from(size_bytes.max(1));
    let score = u64::try_from(score).unwrap_or(u64::MAX).max(1);
    let log2 = score.ilog2();
    let part = if log2 >= 4 { score >> (log2 - 4) } else { score << (4 - log2) } & 15;
    (log2 * 16 + part as u32) as u16
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub object: ObjectId,
    pub n_tasks: u32,
    pub bucket: u16,
    pub heat: Heat,
    next: u32,
    prev: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Rank {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_object: HashTable<u32>,
    lists: [Lists; N_HEATS],
}

/// The first entry of each bucket; lists are circular.
#[derive(Default)]
struct Lists {
    heads: Vec<u32>,
    occupied: [u64; N_BUCKETS / 64],
}

impl Lists {
    /// The best bucket that is not empty, at or below `at`.
    fn best(&self, at: usize) -> Option<usize> {
        let (word, bit) = (at / 64, at % 64);
        let masked = self.occupied[word] & (u64::MAX >> (63 - bit));
        if masked != 0 {
            return Some(word * 64 + masked.ilog2() as usize);
        }
        (0..word).rev().find(|&w| self.occupied[w] != 0).map(|w| w * 64 + self.occupied[w].ilog2() as usize)
    }
}

#[inline]
fn hash(object: ObjectId) -> u64 {
    u64::from(object.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Rank {
    pub fn len(&self) -> usize {
        self.by_object.len()
    }

    fn find(&self, object: ObjectId) -> Option<u32> {
        self.by_object.find(hash(object), |&i| self.entries[i as usize].object == object).copied()
    }

    pub fn get(&self, object: ObjectId) -> Option<&Entry> {
        self.find(object).map(|i| &self.entries[i as usize])
    }

    /// Ranks `object` with `n_tasks`; with 0 the object is removed.
    pub fn set(&mut self, object: ObjectId, n_tasks: u32, size_bytes: u64, heat: Heat) {
        match n_tasks {
            0 => self.remove(object),
            _ => self.put(self.find(object), object, n_tasks, size_bytes, heat),
        }
    }

    /// Ranks `object` with `by` more tasks than before; `by` is at least 1.
    pub fn add(&mut self, object: ObjectId, by: u32, size_bytes: u64, heat: Heat) {
        let at = self.find(object);
        let n_tasks = at.map_or(0, |i| self.entries[i as usize].n_tasks);
        self.put(at, object, n_tasks.saturating_add(by), size_bytes, heat);
    }

    fn put(&mut self, at: Option<u32>, object: ObjectId, n_tasks: u32, size_bytes: u64, heat: Heat) {
        let bucket = bucket_of(n_tasks, size_bytes);
        match at {
            Some(i) => {
                let entry = &mut self.entries[i as usize];
                entry.n_tasks = n_tasks;
                if (entry.bucket, entry.heat) != (bucket, heat) {
                    self.unlink(i);
                    let entry = &mut self.entries[i as usize];
                    (entry.bucket, entry.heat) = (bucket, heat);
                    self.link(i);
                }
            }
            None => {
                let entry = Entry { object, n_tasks, bucket, heat, next: NIL, prev: NIL };
                let i = match self.free.pop() {
                    Some(i) => {
                        self.entries[i as usize] = entry;
                        i
                    }
                    None => {
                        self.entries.push(entry);
                        self.entries.len() as u32 - 1
                    }
                };
                let entries = &self.entries;
                self.by_object.insert_unique(hash(object), i, |&i| hash(entries[i as usize].object));
                self.link(i);
            }
        }
    }

    /// Moves `object`, if it is ranked, to the objects of another heat.
    pub fn set_heat(&mut self, object: ObjectId, heat: Heat) {
        if let Some(i) = self.find(object)
            && self.entries[i as usize].heat != heat
        {
            self.unlink(i);
            self.entries[i as usize].heat = heat;
            self.link(i);
        }
    }

    pub fn remove(&mut self, object: ObjectId) {
        let found = self.by_object.find_entry(hash(object), |&i| self.entries[i as usize].object == object);
        if let Ok(found) = found {
            let (i, _) = found.remove();
            self.unlink(i);
            self.free.push(i);
            if self.by_object.is_empty() {
                // Ranks come and go with workloads, so an empty rank that was large gives its memory back.
                match self.entries.capacity() > FEW {
                    true => *self = Rank::default(),
                    false => {
                        self.entries.clear();
                        self.free.clear();
                    }
                }
            }
        }
    }

    fn link(&mut self, i: u32) {
        let Entry { bucket, heat, .. } = self.entries[i as usize];
        let lists = &mut self.lists[heat as usize];
        if lists.heads.is_empty() {
            lists.heads = vec![NIL; N_BUCKETS];
        }
        let head = &mut lists.heads[bucket as usize];
        if *head == NIL {
            *head = i;
            lists.occupied[bucket as usize / 64] |= 1 << (bucket % 64);
            (self.entries[i as usize].next, self.entries[i as usize].prev) = (i, i);
            return;
        }
        let (first, last) = (*head, self.entries[*head as usize].prev);
        (self.entries[i as usize].next, self.entries[i as usize].prev) = (first, last);
        self.entries[last as usize].next = i;
        self.entries[first as usize].prev = i;
    }

    fn unlink(&mut self, i: u32) {
        let Entry { bucket, heat, next, prev, .. } = self.entries[i as usize];
        let lists = &mut self.lists[heat as usize];
        let head = &mut lists.heads[bucket as usize];
        if next == i {
            *head = NIL;
            lists.occupied[bucket as usize / 64] &= !(1 << (bucket % 64));
            return;
        }
        if *head == i {
            *head = next;
        }
        self.entries[prev as usize].next = next;
        self.entries[next as usize].prev = prev;
    }

    /// The best object of one heat.
    pub fn first(&self, heat: Heat) -> Option<Entry> {
        self.first_below(heat, N_BUCKETS - 1)
    }

    fn first_below(&self, heat: Heat, at: usize) -> Option<Entry> {
        let lists = &self.lists[heat as usize];
        let bucket = lists.best(at)?;
        Some(self.entries[lists.heads[bucket] as usize])
    }

    /// The next object after `entry`, equal or worse. `entry` must not have changed since it was returned.
    pub fn after(&self, entry: &Entry) -> Option<Entry> {
        let lists = &self.lists[entry.heat as usize];
        if entry.next != lists.heads[entry.bucket as usize] {
            return Some(self.entries[entry.next as usize]);
        }
        self.first_below(entry.heat, (entry.bucket as usize).checked_sub(1)?)
    }

    /// Ranks all objects anew, because their sizes differ from those assumed.
    pub fn resize(&mut self, size_of: impl Fn(ObjectId) -> u64) {
        for i in 0..self.entries.len() as u32 {
            let Entry { object, n_tasks, heat, .. } = self.entries[i as usize];
            if self.find(object) == Some(i) {
                self.set(object, n_tasks, size_of(object), heat);
            }
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.free.capacity() * 4
            + self.by_object.allocation_size()
            + self.lists.iter().map(|l| l.heads.capacity() * 4).sum::<usize>()
    }

    /// All ranked objects with their number of tasks and heat, by object. Panics when an invariant does not
    /// hold.
    pub fn sanity_check(&self) -> std::collections::BTreeMap<ObjectId, (u32, Heat)> {
        let mut all = std::collections::BTreeMap::new();
        for heat in [Heat::Cold, Heat::Arriving, Heat::Warm] {
            let (mut at, mut bucket) = (self.first(heat), u16::MAX);
            while let Some(entry) = at {
                assert!(entry.heat == heat && entry.bucket <= bucket);
                bucket = entry.bucket;
                assert!(self.find(entry.object).is_some());
                assert!(all.insert(entry.object, (entry.n_tasks, heat)).is_none());
                at = self.after(&entry);
            }
        }
        assert_eq!(all.len(), self.len());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(rank: &Rank, heat: Heat) -> Vec<u32> {
        let mut found = vec![];
        let mut at = rank.first(heat);
        while let Some(entry) = at {
            found.push(entry.object.0);
            at = rank.after(&entry);
        }
        found
    }

    #[test]
    fn the_most_tasks_per_byte_come_first_and_equals_in_order_of_coming() {
        let mut rank = Rank::default();
        for (object, n_tasks, size_bytes) in [(1, 2, 100), (2, 3, 100), (3, 3, 100), (4, 1, 10), (5, 3, 1000)]
        {
            rank.set(ObjectId(object), n_tasks, size_bytes, Heat::Cold);
        }
        assert_eq!(order(&rank, Heat::Cold), [4, 2, 3, 1, 5]);
        rank.set_heat(ObjectId(2), Heat::Warm);
        rank.set(ObjectId(1), 30, 100, Heat::Cold);
        rank.set(ObjectId(4), 0, 10, Heat::Cold);
        assert_eq!((order(&rank, Heat::Cold), order(&rank, Heat::Warm)), (vec![1, 3, 5], vec![2]));
        rank.resize(|_| 1);
        assert_eq!(order(&rank, Heat::Cold), [1, 3, 5]);
        rank.sanity_check();
    }

    #[test]
    fn small_counts_of_one_size_have_buckets_of_their_own() {
        for size_bytes in [1, 1000, 10_000_000, 24 << 20] {
            assert!((1..16).all(|n| bucket_of(n, size_bytes) < bucket_of(n + 1, size_bytes)), "{size_bytes}");
        }
        assert!(bucket_of(1, u64::MAX) <= bucket_of(u32::MAX, 1));
        assert!((bucket_of(u32::MAX, 0) as usize) < N_BUCKETS);
    }
}
