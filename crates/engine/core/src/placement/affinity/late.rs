//! Attempts that wait for a slow transfer, and whose tasks would begin sooner if they were placed anew.
//!
//! An attempt is late if what it waits for will take longer than one of these:
//!   1. **Nothing**: another executor has all its inputs, and an open slot that no queued task takes.
//!   2. **A copy**, several times over: what it waits for comes from home, and executors that have it by now are
//!      free to serve it.
//!   3. **Home, past the cache**: what it waits for comes from home by way of the disk, and home turned out to give more
//!      than the disk.
//!
//! A task is named at most once while anything moves, so that it does not go round in circles, unless thousands of others
//! were named after it.

use super::rank::Heat;
use super::seated::Coming;
use super::uploads::UPLOAD_PARTS;
use super::{Affinity, Attempt, spread};
use crate::catalog::Catalog;
use crate::event::Source;
use crate::executor_set::Seat;
use eyas_terms::{ObjectId, TaskId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// A transfer that takes no longer than this is waited for.
const LATE_NS: f64 = 100_000_000.0;
/// Attempts are looked at no more often than this.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// A copy has to be this many times as quick: the task waits for it a second time, and the bytes that have come are lost.
const COPIES_WAITED: f64 = 4.0;

/// When so many tasks have been named, those that were named before the last so many are forgotten.
const NAMED_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Late {
    named: FxHashSet<TaskId>,
    named_before: FxHashSet<TaskId>,
    looked_at: Timestamp,
}

impl Late {
    pub fn name(&mut self, tasks: &[TaskId]) {
        if self.named.len() >= NAMED_MAX {
            self.named_before = std::mem::take(&mut self.named);
        }
        self.named.extend(tasks);
    }

    #[cfg(test)]
    pub fn n_named(&self) -> usize {
        self.named.len() + self.named_before.len()
    }

    pub fn has_named(&self, task: TaskId) -> bool {
        self.named.contains(&task) || self.named_before.contains(&task)
    }
}

/// What the attempts that were named in one look will use.
#[derive(Default)]
struct Used {
    cpus: FxHashMap<Seat, u32>,
    copies: FxHashMap<ObjectId, BTreeSet<Seat>>,
}

impl Affinity {
    #[allow(clippy::disallowed_methods, reason = "the attempts are sorted")]
    pub(super) fn late_attempts(&mut self, catalog: &Catalog, now: Timestamp) -> Vec<TaskId> {
        if self.attempts.is_empty() {
            self.late.named.clear();
            self.late.named_before.clear();
            return vec![];
        }
        if now.since_ns(self.late.looked_at) < LOOK_EVERY_NS.max(self.asking.every_ns(&self.executors)) {
            return vec![];
        }
        self.late.looked_at = now;
        let is_new = |(task, a): &(&TaskId, &Attempt)| {
            a.n_direct == 0 && !a.waits.is_empty() && !self.late.has_named(**task)
        };
        let mut tasks: Vec<TaskId> = self.attempts.iter().filter(is_new).map(|(task, _)| *task).collect();
        tasks.sort_unstable();
        let mut used = Used::default();
        tasks.retain(|task| self.would_begin_sooner(catalog, now, *task, &mut used));
        self.late.name(&tasks);
        tasks
    }

    fn would_begin_sooner(&self, catalog: &Catalog, now: Timestamp, task: TaskId, used: &mut Used) -> bool {
        let attempt = &self.attempts[&task];
        // The executor may have left, or left and come back.
        let Some(&seat) = self.executors.seat_of.get(&attempt.executor) else { return false };
        let coming = |object: &ObjectId| self.executors.at(seat).coming.get(object);
        let rests = attempt.waits.iter().filter_map(|o| {
            let rest_ns = self.transfer_rest_ns(catalog, now, *o, coming(o)?)?;
            Some((rest_ns, *o))
        });
        let Some((rest_ns, slowest)) = rests.max_by(|a, b| a.0.total_cmp(&b.0)) else { return false };
        if rest_ns < LATE_NS {
            return false;
        }
        if let Some(holder) = self.open_holder(catalog, seat, attempt, used) {
            *used.cpus.entry(holder).or_default() += attempt.size.cpus;
            return true;
        }
        if self.is_sooner_past_cache(catalog, seat, attempt, slowest, rest_ns) {
            return true;
        }
        let is_replaceable = |o: &ObjectId| {
            coming(o).is_some_and(|c| c.source == Source::Home)
                && !self.spared.contains(*o)
                && self.heat(catalog, *o) == Heat::Warm
        };
        let copy_ns = COPIES_WAITED * self.copy_use_ns(catalog, slowest);
        attempt.waits.iter().all(is_replaceable)
            && self.times.copy_ns_per_mib.is_some()
            && copy_ns < rest_ns
            && self.takes_copy(catalog, seat, slowest, used)
    }

    /// Whether what an attempt waits for would come sooner past the cache. `rest_ns`: the time until the slowest of it is in the cache.
    fn is_sooner_past_cache(
        &self,
        catalog: &Catalog,
        seat: Seat,
        attempt: &Attempt,
        slowest: ObjectId,
        rest_ns: f64,
    ) -> bool {
        let seated = self.executors.at(seat);
        let from_home = |o: &ObjectId| seated.coming.get(o).is_some_and(|c| c.source == Source::Home);
        if self.near.has_sites()
            || !self.has_read_past_cache()
            || !attempt.waits.iter().all(from_home)
            || !self.is_past_cache(catalog, seat, slowest)
            || !self.is_home_above_disk(catalog, seat, slowest)
        {
            return false;
        }
        let bytes = attempt.waits.iter().map(|o| self.size_of(catalog, *o)).sum::<u64>() as f64;
        let n_node = seated.home_reads.len() as u32;
        self.home_rate(self.home.all(), n_node, true).is_some_and(|rate| {
            bytes * 1e9 / rate.max(1.0) + LATE_NS < rest_ns + bytes * 1e9 / self.disk_rate(seat)
        })
    }

    /// The time that a transfer under way still needs. `None`: nothing is known of it.
    fn transfer_rest_ns(
        &self,
        catalog: &Catalog,
        now: Timestamp,
        object: ObjectId,
        coming: &Coming,
    ) -> Option<f64> {
        let passed_ns = now.since_ns(coming.begun_at) as f64;
        let size_bytes = self.size_of(catalog, object);
        let rest_ns = match (coming.source, coming.mark.moved_bytes) {
            (Source::Peer(_), _) => {
                let copy_ns = self.times.copy_ns_per_mib.map_or(0.0, |_| self.copy_use_ns(catalog, object));
                return Some(if passed_ns < copy_ns { copy_ns - passed_ns } else { passed_ns });
            }
            (Source::Home, 0) => {
                size_bytes as f64 * 1e9 / self.home_rate(self.home.all(), 1, false)?.max(1.0) - passed_ns
            }
            (Source::Home, moved_bytes) => {
                let took_ns = coming.mark.at.since_ns(coming.begun_at) as f64;
                let rest_bytes = size_bytes.saturating_sub(moved_bytes) as f64;
                rest_bytes * took_ns / moved_bytes as f64 - now.since_ns(coming.mark.at) as f64
            }
        };
        Some(rest_ns.max(0.0))
    }

    /// Another executor than `seat` that has all inputs of an attempt and an open slot for it.
    fn open_holder(&self, catalog: &Catalog, seat: Seat, attempt: &Attempt, used: &Used) -> Option<Seat> {
        let rarest = attempt.inputs.iter().min_by_key(|o| (catalog.n_holders(**o), **o))?;
        let cpus = attempt.size.cpus.max(1);
        let mut found = None;
        self.visit_holders(catalog, *rarest, spread(seat, *rarest), |holder| {
            let seated = self.executors.at(holder);
            let is_open = holder != seat
                && seated.n_open >= cpus + used.cpus.get(&holder).copied().unwrap_or(0)
                && seated.room.fits(super::super::Stage::Idle, attempt.size, attempt.lasts)
                && attempt.inputs.iter().all(|o| catalog.is_held_by(*o, holder));
            found = is_open.then_some(holder);
            if is_open { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    /// Whether a holder of `object` is free to serve `seat`, beside what it was promised in this look.
    fn takes_copy(&self, catalog: &Catalog, seat: Seat, object: ObjectId, used: &mut Used) -> bool {
        let takers = used.copies.entry(object).or_default();
        if takers.contains(&seat) {
            return true;
        }
        let mut n_free = 0;
        self.visit_holders(catalog, object, spread(seat, object), |holder| {
            let free = self.uploads.full.saturating_sub(self.uploads.of(holder));
            n_free += if holder == seat { 0 } else { free.div_ceil(UPLOAD_PARTS) as usize };
            if n_free > takers.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let is_free = n_free > takers.len();
        if is_free {
            takers.insert(seat);
        }
        is_free
    }
}
