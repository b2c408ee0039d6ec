//! What the executors serve to each other, and which objects nobody is free to serve.

use super::holds;
use crate::catalog::Catalog;
use crate::executor_set::Seat;
use eyas_terms::ObjectId;
use rustc_hash::{FxHashMap, FxHashSet};

/// An object with at least this many busy holders is remembered as busy until all executors are asked
/// again.
const BUSY_HOLDERS_MIN: usize = 16;
/// The copies of one attempt share the link of the node that they go to. So each source serves a part of
/// the attempt, as large as its part of the bytes. Parts are counted in this unit of an attempt.
pub(super) const UPLOAD_PARTS: u32 = 64;

pub(super) struct Uploads {
    /// By seat: the attempts that the executor copies inputs for, each counted by the part of its copies
    /// that come from this executor. The list stands beside the executors, not in them, because one choice
    /// reads the entries of many executors.
    by_seat: Vec<u32>,
    /// The load at which an executor serves no more attempts.
    pub full: u32,
    /// Objects with many holders, all of which serve as many attempts as they may.
    busy: FxHashSet<ObjectId>,
    /// Objects with fewer holders, all of which served as many attempts as they may when `freed` had this
    /// length.
    none_free: FxHashMap<ObjectId, u32>,
    freed: Vec<Seat>,
}

impl Uploads {
    /// `n_max`: the attempts that one executor serves at once.
    pub fn new(n_max: u32) -> Uploads {
        let full = n_max.saturating_mul(UPLOAD_PARTS);
        let (busy, none_free) = Default::default();
        Uploads { by_seat: vec![], full, busy, none_free, freed: vec![] }
    }

    pub fn joined(&mut self, seat: Seat) {
        let i = seat.0 as usize;
        if i >= self.by_seat.len() {
            self.by_seat.resize(i + 1, 0);
        }
        self.by_seat[i] = 0;
        self.none_free.clear();
    }

    #[inline]
    pub fn of(&self, seat: Seat) -> u32 {
        self.by_seat[seat.0 as usize]
    }

    pub fn begin(&mut self, seat: Seat, weight: u32) {
        self.by_seat[seat.0 as usize] += weight;
    }

    pub fn end(&mut self, seat: Seat, weight: u32) {
        let n = &mut self.by_seat[seat.0 as usize];
        let was_full = *n >= self.full;
        *n -= weight;
        if was_full && *n < self.full && !self.none_free.is_empty() {
            self.freed.push(seat);
        }
    }

    /// Whether all holders of `object` are known to serve as many attempts as they may.
    pub fn is_busy(&mut self, catalog: &Catalog, object: ObjectId) -> bool {
        if self.busy.contains(&object) {
            return true;
        }
        let Some(n_seen) = self.none_free.get_mut(&object) else { return false };
        let freed = &self.freed[*n_seen as usize..];
        let is_busy = !freed.iter().any(|seat| holds(catalog, *seat, object));
        match is_busy {
            true => *n_seen = self.freed.len() as u32,
            false => drop(self.none_free.remove(&object)),
        }
        is_busy
    }

    /// Of `object`, `n_busy` holders were found, and each serves as many attempts as it may.
    pub fn note_busy(&mut self, object: ObjectId, n_busy: usize) {
        if n_busy >= BUSY_HOLDERS_MIN {
            self.busy.insert(object);
        } else if n_busy > 0 {
            self.none_free.insert(object, self.freed.len() as u32);
        }
    }

    /// One more executor holds `object`.
    pub fn appeared(&mut self, object: ObjectId) {
        self.none_free.remove(&object);
    }

    /// Forgets which holders were busy, as any of them may be free to serve again.
    pub fn forget_busy(&mut self) {
        self.busy.clear();
        self.none_free.clear();
        self.freed.clear();
    }
}
