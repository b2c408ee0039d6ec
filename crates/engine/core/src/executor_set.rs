//! Executors as small dense numbers, so that a set of them is a few machine words.
//!
//! In: [`ExecutorId`]s, which only ever grow while executors come and go. Out: a [`Seat`] for each executor
//! that is here now. An executor that joins takes the lowest free seat and keeps it until it leaves. So seats
//! stay below the largest number of executors ever present at once, and they are the same in every replay. As
//! long as no executor has left, seats are in the order of joining.
//!
//! Why: each placement asks which of the free executors hold an object. With seats that is an AND of two rows
//! of `n_executors / 64` words.

use eyas_terms::ExecutorId;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The dense number of an executor that is here now. Ties between executors go to the lowest seat.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seat(pub u32);

/// Which executor has which seat.
#[derive(Default, Clone, Debug)]
pub struct Seats {
    seat_of: FxHashMap<ExecutorId, Seat>,
    who: Vec<Option<ExecutorId>>,
    free: BTreeSet<u32>,
}

impl Seats {
    /// The seat of `executor`, the lowest free one if it has none yet.
    pub fn join(&mut self, executor: ExecutorId) -> Seat {
        if let Some(&seat) = self.seat_of.get(&executor) {
            return seat;
        }
        let seat = match self.free.pop_first() {
            Some(free) => Seat(free),
            None => {
                self.who.push(None);
                Seat(self.who.len() as u32 - 1)
            }
        };
        self.who[seat.0 as usize] = Some(executor);
        self.seat_of.insert(executor, seat);
        seat
    }

    /// Frees the seat of `executor`.
    pub fn leave(&mut self, executor: ExecutorId) -> Option<Seat> {
        let seat = self.seat_of.remove(&executor)?;
        self.who[seat.0 as usize] = None;
        self.free.insert(seat.0);
        Some(seat)
    }

    pub fn find(&self, executor: ExecutorId) -> Option<Seat> {
        self.seat_of.get(&executor).copied()
    }

    /// The executor on `seat`.
    pub fn who(&self, seat: Seat) -> Option<ExecutorId> {
        self.who.get(seat.0 as usize).copied().flatten()
    }

    /// One more than the highest seat ever taken.
    pub fn n_seats(&self) -> usize {
        self.who.len()
    }

    pub fn heap_bytes(&self) -> usize {
        self.who.capacity() * size_of::<Option<ExecutorId>>()
            + self.seat_of.capacity() * (size_of::<(ExecutorId, Seat)>() + 1)
            + self.free.len() * 8
    }
}

/// A set of seats: one bit each, and their number.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct SeatSet {
    words: Vec<u64>,
    len: u32,
}

impl SeatSet {
    /// `false`: it was in the set already.
    pub fn insert(&mut self, seat: Seat) -> bool {
        let (word, bit) = split(seat);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.len += u32::from(new);
        new
    }

    /// `false`: it was not in the set.
    pub fn remove(&mut self, seat: Seat) -> bool {
        let (word, bit) = split(seat);
        let had = self.contains(seat);
        if had {
            self.words[word] &= !bit;
            self.len -= 1;
        }
        had
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
        self.len = 0;
    }

    pub fn set(&mut self, seat: Seat, member: bool) {
        if member {
            self.insert(seat)
        } else {
            self.remove(seat)
        };
    }

    #[inline]
    pub fn contains(&self, seat: Seat) -> bool {
        has(&self.words, seat)
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Seats, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Seat> + '_ {
        seats_in(&self.words)
    }

    pub fn heap_bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

#[inline]
fn split(seat: Seat) -> (usize, u64) {
    (seat.0 as usize / 64, 1 << (seat.0 % 64))
}

/// Whether the bit of `seat` is set; rows shorter than the seat do not have it.
#[inline]
pub(crate) fn has(row: &[u64], seat: Seat) -> bool {
    let (word, bit) = split(seat);
    row.get(word).is_some_and(|w| w & bit != 0)
}

/// The first seat from `from` on, once around, that is in all three rows.
#[inline]
pub(crate) fn next_common3(a: &[u64], b: &[u64], c: &[u64], from: Seat) -> Option<Seat> {
    let n = a.len().min(b.len()).min(c.len());
    let (first, bit) = split(from);
    let seat_in = |i: usize, mask: u64| {
        let word = a[i] & b[i] & c[i] & mask;
        (word != 0).then(|| Seat(i as u32 * 64 + word.trailing_zeros()))
    };
    let begun = if first < n { seat_in(first, !(bit - 1)) } else { None };
    begun
        .or_else(|| (first + 1..n).find_map(|i| seat_in(i, u64::MAX)))
        .or_else(|| (0..n.min(first + 1)).find_map(|i| seat_in(i, u64::MAX)))
}

/// The seats whose bits are set, ascending.
pub(crate) fn seats_in(row: &[u64]) -> impl Iterator<Item = Seat> + '_ {
    row.iter()
        .enumerate()
        .flat_map(|(i, &word)| seats_in_word(word).map(move |bit| Seat(i as u32 * 64 + bit)))
}

/// How many seats of `row` come before `seat`; `None` if `seat` is not in it.
pub(crate) fn rank_in(row: &[u64], seat: Seat) -> Option<usize> {
    let (word, bit) = split(seat);
    let before: u32 = row[..word.min(row.len())].iter().map(|w| w.count_ones()).sum();
    has(row, seat).then(|| (before + (row[word] & (bit - 1)).count_ones()) as usize)
}

/// All seats of `row` once around, starting after the first `n_before`; none if there are no more than that.
pub(crate) fn seats_around(row: &[u64], n_before: usize) -> impl Iterator<Item = Seat> + '_ {
    let (mut n_left, mut from) = (n_before, row.len());
    for (i, word) in row.iter().enumerate() {
        let n = word.count_ones() as usize;
        if n_left < n {
            from = i;
            break;
        }
        n_left -= n;
    }
    // The bits of that word from there on; they come first.
    let mut first = row.get(from).copied().unwrap_or(0);
    (0..n_left).for_each(|_| first &= first.wrapping_sub(1));
    let n_words = if first == 0 { 0 } else { row.len() };
    let words = (0..=n_words).filter(move |_| n_words > 0).map(move |i| match i {
        0 => (from, first),
        i if i == n_words => (from, row[from] & !first),
        i => ((from + i) % n_words, row[(from + i) % n_words]),
    });
    words.flat_map(|(i, word)| seats_in_word(word).map(move |bit| Seat(i as u32 * 64 + bit)))
}

/// The numbers of the bits that are set, ascending.
fn seats_in_word(word: u64) -> impl Iterator<Item = u32> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_seat_is_taken() {
        let mut seats = Seats::default();
        for id in 10..13 {
            seats.join(ExecutorId(id));
        }
        assert_eq!(seats.join(ExecutorId(11)), Seat(1), "joining twice changes nothing");
        assert_eq!(seats.leave(ExecutorId(11)), Some(Seat(1)));
        assert_eq!(seats.leave(ExecutorId(10)), Some(Seat(0)));
        assert_eq!(seats.leave(ExecutorId(10)), None);
        assert_eq!(seats.join(ExecutorId(99)), Seat(0));
        assert_eq!((seats.who(Seat(0)), seats.who(Seat(1))), (Some(ExecutorId(99)), None));
        assert_eq!(seats.n_seats(), 3);
    }

    #[test]
    fn once_around_from_any_of_them() {
        let seats = [3, 5, 63, 64, 200].map(Seat);
        let mut set = SeatSet::default();
        seats.iter().for_each(|s| set.set(*s, true));
        for n_before in 0..seats.len() {
            let mut expected = seats;
            expected.rotate_left(n_before);
            assert_eq!(seats_around(set.words(), n_before).collect::<Vec<_>>(), expected);
            assert_eq!(rank_in(set.words(), seats[n_before]), Some(n_before));
        }
        assert_eq!(seats_around(set.words(), 5).next(), None);
        assert_eq!(seats_around(&[], 0).next(), None);
        assert_eq!((rank_in(set.words(), Seat(4)), rank_in(set.words(), Seat(999))), (None, None));
    }

    #[test]
    fn a_set_counts_its_members_once() {
        let mut set = SeatSet::default();
        for seat in [3, 200, 3, 64] {
            set.insert(Seat(seat));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [Seat(3), Seat(64), Seat(200)]);
        assert!(!set.remove(Seat(4000)) && set.remove(Seat(3)));
        assert_eq!(
            (set.len(), next_common3(set.words(), &[u64::MAX, 1], &[u64::MAX; 3], Seat(0))),
            (2, Some(Seat(64)))
        );
    }
}
