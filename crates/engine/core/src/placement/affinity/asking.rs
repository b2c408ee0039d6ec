//! Which executors are asked for a task, and when they are all asked again.

use super::seated::Executors;
use crate::executor_set::{Seat, SeatSet};
use eyas_terms::Timestamp;

/// How often all executors that found no work are asked again, since a task that has waited long enough may
/// be copied for: this long per executor, within bounds.
const ASK_ALL_NS_EACH: u64 = 100_000;
const ASK_ALL_NS_MIN: u64 = 5_000_000;
const ASK_ALL_NS_MAX: u64 = 100_000_000;

#[derive(Default)]
pub(super) struct Asking {
    /// Executors that may have a hit.
    pub has_hits: SeatSet,
    /// Executors that may find a task with inputs to move and have not been asked since something changed
    /// for them.
    pub to_ask: SeatSet,
    /// Executors that have not been asked in this round. The next round begins when all executors with room
    /// have been asked and something has changed since.
    pub not_asked: SeatSet,
    /// Something has changed since all executors were last asked again, so some of their answers may differ
    /// now.
    pub changed: bool,
    /// The earliest time at which an answer given since then changes without any event.
    due: Option<Timestamp>,
    /// The time when all executors were last asked again because the interval was over.
    all_asked_at: Timestamp,
    /// The seat at which the search for an executor that moves data goes on, so that caches fill evenly.
    pub turn: u32,
}

impl Asking {
    /// At first every answer may differ from the one before.
    pub fn new() -> Asking {
        Asking { changed: true, ..Asking::default() }
    }

    pub fn joined(&mut self, seat: Seat) {
        self.not_asked.insert(seat);
    }

    pub fn left(&mut self, seat: Seat) {
        self.has_hits.remove(seat);
        self.to_ask.remove(seat);
        self.not_asked.remove(seat);
    }

    /// Asks again all executors that may be given a task with inputs to move.
    pub fn all_again(&mut self, seats: &SeatSet) {
        self.changed = true;
        self.to_ask.clone_from(seats);
        if self.not_asked.is_empty() {
            self.not_asked.clone_from(seats);
        }
    }

    /// Records that an answer changes with time alone, `after_ns` from now.
    pub fn note_due(&mut self, now: Timestamp, after_ns: f64) {
        let at = now.plus_ns(after_ns.clamp(0.0, 1e18) as u64 + 1_000_000);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Whether `wait_ns` have passed since `since`. If not, notes when they will have.
    pub fn is_past(&mut self, now: Timestamp, since: Timestamp, wait_ns: u64) -> bool {
        let passed_ns = now.since_ns(since);
        if passed_ns <= wait_ns {
            self.note_due(now, (wait_ns - passed_ns) as f64);
        }
        passed_ns > wait_ns
    }

    /// How often all executors are asked again, in nanoseconds.
    pub fn every_ns(&self, executors: &Executors) -> u64 {
        (executors.seats.len() as u64 * ASK_ALL_NS_EACH).clamp(ASK_ALL_NS_MIN, ASK_ALL_NS_MAX)
    }

    /// Begins anew if the interval is over and some answers may differ now: the executors that have not been
    /// asked yet are asked with the newest knowledge anyway, the others only after the interval.
    pub fn begins_anew(&mut self, now: Timestamp, executors: &Executors) -> bool {
        let is_due = self.changed || self.due.is_some_and(|due| due <= now);
        let begins = is_due && now.since_ns(self.all_asked_at) >= self.every_ns(executors);
        if begins {
            self.all_asked_at = now;
            self.all_again(&executors.seats);
            self.changed = false;
            self.due = None;
        }
        begins
    }

    /// An executor with room that has not been asked since something changed, or not in this round.
    pub fn next(&self, executors: &Executors) -> Option<Seat> {
        let among = |seats| executors.next_among(seats, self.turn);
        among(&self.to_ask).or_else(|| among(&self.not_asked))
    }

    /// When to ask again although nothing else has happened.
    pub fn wake_at(&self, executors: &Executors) -> Option<Timestamp> {
        let soonest = self.all_asked_at.plus_ns(self.every_ns(executors));
        match self.changed || self.next(executors).is_some() {
            true => Some(soonest),
            false => self.due.map(|due| due.max(soonest)),
        }
    }
}
