//! Events to come, in the order of their times. Events of one moment come in the order in which they were put here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events of type `E`, with times in nanoseconds.
pub struct Agenda<E> {
    n_put: u64,
    heap: BinaryHeap<Reverse<Entry<E>>>,
}

struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { n_put: 0, heap: BinaryHeap::new() }
    }
}

impl<E> Agenda<E> {
    pub fn put(&mut self, at_ns: u64, event: E) {
        self.n_put += 1;
        self.heap.push(Reverse(Entry { at_ns, number: self.n_put, event }));
    }

    /// When the next event comes.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_ns)
    }

    /// The next event, and when it comes.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_put() {
        let mut agenda = Agenda::default();
        for (at_ns, event) in [(5, "c"), (1, "a"), (5, "d"), (2, "b")] {
            agenda.put(at_ns, event);
        }
        assert_eq!(agenda.next_ns(), Some(1));
        let all: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(all, [(1, "a"), (2, "b"), (5, "c"), (5, "d")]);
    }
}
