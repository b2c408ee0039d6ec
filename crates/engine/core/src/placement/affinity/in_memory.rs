//! Which executors have an object in memory, as far as the reports of attempts show it.
//!
//! In: the inputs that were in memory when a program began. Out: the executors on which an object is in memory, and how many bytes of
//! some objects. An executor does not report what leaves its memory. So an object counts as in memory until a report says
//! otherwise, the copy is dropped, or objects that were seen in memory later take the whole of what the executor may hold there. A
//! wrong guess costs a task a read from the disk, as if nothing was known.

use crate::executor_set::Seat;
use eyas_terms::ObjectId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Default)]
pub(super) struct InMemory {
    /// By object: the seats of the executors that have it in memory.
    seats: FxHashMap<ObjectId, BTreeSet<Seat>>,
    /// Executors on which something was seen in memory.
    seen: FxHashMap<Seat, SeenObjects>,
}

/// What was seen in memory on one executor.
#[derive(Default)]
struct SeenObjects {
    n_noted: u64,
    bytes: u64,
    /// For each object: when it was seen last, counted in objects, and its bytes.
    objects: FxHashMap<ObjectId, (u64, u64)>,
    /// The objects, the one that was seen first of all at the front.
    by_age: BTreeMap<u64, ObjectId>,
}

impl InMemory {
    /// Whether nothing is known to be in memory anywhere.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// A program on `seat` found `object` of `size_bytes` in memory, where at most `budget_bytes` of objects are held.
    pub fn note(&mut self, seat: Seat, object: ObjectId, size_bytes: u64, budget_bytes: u64) {
        self.remove(seat, object);
        let seen = self.seen.entry(seat).or_default();
        seen.n_noted += 1;
        seen.bytes += size_bytes;
        seen.objects.insert(object, (seen.n_noted, size_bytes));
        seen.by_age.insert(seen.n_noted, object);
        self.seats.entry(object).or_default().insert(seat);
        while let Some(seen) = self.seen.get(&seat).filter(|seen| seen.bytes > budget_bytes) {
            let (_, oldest) = seen.by_age.first_key_value().expect("something takes the bytes");
            self.remove(seat, *oldest);
        }
    }

    /// `object` is not in memory on `seat`.
    pub fn remove(&mut self, seat: Seat, object: ObjectId) {
        let Some(seen) = self.seen.get_mut(&seat) else { return };
        let Some((noted, size_bytes)) = seen.objects.remove(&object) else { return };
        seen.by_age.remove(&noted);
        seen.bytes -= size_bytes;
        if seen.objects.is_empty() {
            self.seen.remove(&seat);
        }
        let seats = self.seats.get_mut(&object).expect("both directions are kept");
        seats.remove(&seat);
        if seats.is_empty() {
            self.seats.remove(&object);
        }
    }

    /// The executor on `seat` is gone.
    pub fn leave(&mut self, seat: Seat) {
        let objects: Vec<ObjectId> =
            self.seen.get(&seat).map(|seen| seen.objects.keys().copied().collect()).unwrap_or_default();
        objects.into_iter().for_each(|object| self.remove(seat, object));
    }

    /// The executors that have `object` in memory, in the order of seats.
    pub fn seats_of(&self, object: ObjectId) -> impl Iterator<Item = Seat> + '_ {
        self.seats.get(&object).into_iter().flatten().copied()
    }

    /// Bytes of `objects` that are in memory on `seat`.
    pub fn bytes_on(&self, seat: Seat, objects: impl Iterator<Item = ObjectId>) -> u64 {
        let seen = self.seen.get(&seat);
        objects.filter_map(|object| seen?.objects.get(&object)).map(|(_, size_bytes)| size_bytes).sum()
    }

    pub fn heap_bytes(&self) -> usize {
        const ENTRY: usize = 2 * (size_of::<ObjectId>() + 2 * size_of::<u64>());
        self.seen.values().map(|seen| size_of::<SeenObjects>() + seen.objects.len() * ENTRY).sum()
    }

    /// Checks that both directions say the same, and the sums. For tests.
    pub fn sanity_check(&self) {
        let n: usize = self.seats.values().map(BTreeSet::len).sum();
        assert_eq!(n, self.seen.values().map(|seen| seen.objects.len()).sum::<usize>());
        for (seat, seen) in &self.seen {
            assert_eq!(seen.bytes, seen.objects.values().map(|(_, bytes)| bytes).sum::<u64>());
            assert_eq!(seen.by_age.len(), seen.objects.len());
            for (noted, object) in &seen.by_age {
                assert_eq!(seen.objects[object].0, *noted);
                assert!(self.seats[object].contains(seat));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_first_makes_way_for_what_was_seen_last() {
        let mut memory = InMemory::default();
        let on = |memory: &InMemory, seat: u32| -> Vec<u32> {
            (0..9).filter(|o| memory.seats_of(ObjectId(*o)).any(|s| s == Seat(seat))).collect()
        };
        for object in [1, 2, 3, 1] {
            memory.note(Seat(4), ObjectId(object), 10, 30);
        }
        memory.note(Seat(5), ObjectId(2), 10, 30);
        assert_eq!((on(&memory, 4), on(&memory, 5)), (vec![1, 2, 3], vec![2]));
        // 2 was seen before 1, which was seen again.
        memory.note(Seat(4), ObjectId(7), 10, 30);
        assert_eq!(on(&memory, 4), [1, 3, 7]);
        assert_eq!(memory.bytes_on(Seat(4), [1, 2, 7].map(ObjectId).into_iter()), 20);
        memory.sanity_check();
        // The budget has shrunk; what does not fit at all is not there.
        memory.note(Seat(4), ObjectId(8), 10, 15);
        memory.note(Seat(5), ObjectId(8), 31, 30);
        assert_eq!((on(&memory, 4), on(&memory, 5)), (vec![8], vec![]));
        memory.sanity_check();
        memory.remove(Seat(4), ObjectId(8));
        memory.remove(Seat(9), ObjectId(8));
        assert!(memory.is_empty());
        memory.note(Seat(1), ObjectId(1), 1, 9);
        memory.leave(Seat(1));
        assert!(memory.is_empty());
        memory.sanity_check();
    }
}
