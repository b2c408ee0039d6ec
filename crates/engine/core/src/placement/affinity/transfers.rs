//! The inputs that are on their way, their progress, and the sources that an input could come from.
//!
//! A *move* begins when an attempt that lacks an input is given out. It is over when the replica has
//! arrived or no attempt waits for it any more. The move counts against its source from the beginning to
//! the end.

use super::home::{Landed, NodeReads, Reads};
use super::learnt::{COPY_LATENCY_NS, COPY_NS_PER_MIB, MIB, SMALL_BYTES};
use super::near::Nearby;
use super::rank::Heat;
use super::reads::{Arriving, Direct};
use super::seated::Coming;
use super::uploads::UPLOAD_PARTS;
use super::{Affinity, Attempt, Walk, is_made, spread};
use crate::catalog::Catalog;
use crate::event::{InputMoved, InputReport, Source, Target};
use crate::executor_set::Seat;
use crate::placement::queue::{Queue, Route};
use crate::placement::{QueueKey, ReadyTask, TaskSize};
use eyas_terms::{ExecutorId, ObjectId, TaskId, Timestamp};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// If home delivers at least this share of what the disk gives, the disk is taken to be the limit.
const DISK_BOUND: f64 = 0.7;
/// If a node gets less than this share of what it could take, home is full, and one more read slows all
/// others: the time of that read counts `FULL_COST` times.
const FULL_SHARE: f64 = 0.5;
const FULL_COST: f64 = 2.0;
/// Where the user limits home, a read is taken to get its share of the limit until it has moved for so long: the share that a
/// node gets at first is smaller.
const SHARE_GROWS_S: f64 = 0.5;
/// The first copies are given this part of the time that a read from home takes. Only then is the object read from home instead.
const FIRST_COPY_PART: f64 = 0.25;
/// The factor if it is not known whether home is full and others are reading.
const SHARED_COST: f64 = 1.25;
/// What is in the cache is read from home only if that is so many times as quick: programs seldom all read at the same time.
const PAST_DISK_MARGIN: f64 = 1.5;
/// As long as tasks are still to come, a replica is assumed to be read at least this often.
const USES_OUT_OF_SIGHT: f64 = 4.0;

/// An attempt's sources are not all equally fast, so the part of a source is counted this many times: a
/// source of half of the bytes counts like a source of all of them.
const UPLOAD_MARGIN: u128 = 2;

impl Affinity {
    /// The time that moving `object` takes at that rate.
    fn time_ns(&self, catalog: &Catalog, object: ObjectId, ns_per_mib: u64) -> u64 {
        let size_bytes = self.size_of(catalog, object).max(SMALL_BYTES);
        u64::try_from(u128::from(ns_per_mib) * u128::from(size_bytes) / u128::from(MIB)).unwrap_or(u64::MAX)
    }

    /// The time that a task has to wait before an object that it lacks is copied to `seat` for it.
    pub(super) fn steal_after_ns(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> f64 {
        if let Some(copy_ns) = self.copy_by_site_ns(catalog, seat, object) {
            return copy_ns * self.config.steal_after_copies;
        }
        let copy_ns = match self.times.copy_ns_per_mib {
            Some(rate) => self.time_ns(catalog, object, rate),
            None => self.config.copy_ns.min(COPY_LATENCY_NS + self.time_ns(catalog, object, COPY_NS_PER_MIB)),
        };
        copy_ns as f64 * self.config.steal_after_copies
    }

    /// The rate that each read from home would get, given all `reads` and `n_node` reads on its node, past
    /// the cache or into it. `None`: unknown.
    pub(super) fn home_rate(&self, reads: Reads, n_node: u32, direct: bool) -> Option<f64> {
        // Reads through the disk get no more from home than reads past it.
        let past = if direct { self.home.direct_load.forecast(reads, n_node) } else { None };
        let into = || self.home.load.forecast(reads, n_node);
        let seen = past.or_else(|| if self.home.direct_load.is_empty() || !direct { into() } else { None });
        match self.config.home_bytes_per_s {
            0 => seen,
            limit => Some(seen.unwrap_or(f64::MAX).min(limit as f64 / reads.n.max(1.0))),
        }
    }

    /// The time that a program takes to read `object` from its node's disk while the other slots do the
    /// same. 0: reading past the cache would save nothing.
    fn disk_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        if self.config.disk_bytes_per_s == 0 {
            return 0.0;
        }
        let slots = self.executors.n_slots_total as f64 / self.executors.seats.len().max(1) as f64;
        self.size_of(catalog, object) as f64 * 1e9 * slots.max(1.0) / self.config.disk_bytes_per_s as f64
    }

    /// The time from now until a program on `seat` has read `object` from home, past the cache or through
    /// it. `None`: unknown.
    fn home_ns(&self, catalog: &Catalog, seat: Seat, object: ObjectId, direct: bool) -> Option<f64> {
        let size_bytes = self.size_of(catalog, object).max(1) as f64;
        let n_node = self.executors.at(seat).home_reads.len() as u32 + 1;
        // Past the cache, the slots of one node share its link, as otherwise they share its disk, where
        // `disk_ns` counts them.
        let n_slots = if direct { self.executors.at(seat).room.slots_total } else { 0 };
        let rate = self.home_rate(self.one_more(seat), n_node.max(n_slots), direct)?;
        let disk_ns = if direct { 0.0 } else { self.disk_ns(catalog, object) };
        Some((size_bytes * 1e9 / rate.max(1.0)).max(disk_ns) + disk_ns)
    }

    /// The time that a copy takes, including the time until a program has read it from the disk.
    pub(super) fn copy_use_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        let disk_ns = self.disk_ns(catalog, object);
        self.copy_ns(catalog, object).max(disk_ns) + disk_ns
    }

    /// The same, but until a copy has been seen, a node is assumed to copy no faster than it ever read from
    /// home. Where the user limits home, what a node read says nothing of copies.
    pub(super) fn copy_at_worst_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        let copy_ns = self.copy_use_ns(catalog, object);
        let is_limited = self.config.home_bytes_per_s > 0;
        match self.times.copy_ns_per_mib.is_none() && !self.home.load.is_empty() && !is_limited {
            true => copy_ns.max(self.size_of(catalog, object) as f64 * 1e9 / self.home.load.node_max),
            false => copy_ns,
        }
    }

    /// Whether reading `object` from home past the cache of `seat` each time is better than keeping it
    /// there.
    pub(super) fn is_past_cache(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        if self.config.disk_bytes_per_s == 0
            || self.spared.contains(object)
            || self.heat(catalog, object) == Heat::Warm && catalog.version(object).is_none()
        {
            return false;
        }
        if self.is_to_try() {
            return true;
        }
        // The rate is the one that remains if all do so, because time that one executor saves may be time
        // that the others have to wait.
        let n_slots = self.executors.at(seat).room.slots_total;
        let rate = |reads| self.home_rate(reads, n_slots, true);
        let all =
            Reads { n: self.executors.n_slots_total as f64, n_nodes: self.executors.seats.len() as f64 };
        match rate(all).or_else(|| rate(self.one_more(seat))) {
            Some(rate) => self.spares_disk(catalog, seat, object, rate),
            None => self.n_uses(object) <= 1.0,
        }
    }

    /// Whether home gives more than the disks, even if all executors read from home at the same time.
    pub(super) fn is_home_above_disk(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        let n_slots = self.executors.at(seat).room.slots_total;
        let all =
            Reads { n: self.executors.n_slots_total as f64, n_nodes: self.executors.seats.len() as f64 };
        self.home_rate(all, n_slots, true).is_some_and(|rate| {
            self.size_of(catalog, object) as f64 * 1e9 / rate.max(1.0) <= self.disk_ns(catalog, object)
        })
    }

    /// How often `object` will be read, as far as the queue shows.
    fn n_uses(&self, object: ObjectId) -> f64 {
        let least = if self.all_in_sight { 1.0 } else { USES_OUT_OF_SIGHT };
        (self.tasks.n_tasks_reading(object) as f64).max(least)
    }

    /// Whether it is quicker to read `object` from home each time, at that rate, than through the cache of
    /// `seat`.
    fn spares_disk(&self, catalog: &Catalog, seat: Seat, object: ObjectId, rate: f64) -> bool {
        let disk_ns = self.disk_ns(catalog, object);
        let direct_ns = self.size_of(catalog, object) as f64 * 1e9 / rate.max(1.0);
        // The number of tasks that a cached replica serves: all readers if a copy is there sooner than home
        // gives the object, otherwise this node's part of the readers.
        let n_readers = self.n_uses(object);
        let least = if self.all_in_sight { 1.0 } else { USES_OUT_OF_SIGHT };
        let n_each = self.tasks.len() as f64 / self.executors.seats.len().max(1) as f64;
        let n_uses = match self.copy_use_ns(catalog, object) < direct_ns {
            true => n_readers,
            false => n_readers.min(n_each).max(least),
        };
        let first_ns = if catalog.seat_holds(seat, object) { 0.0 } else { direct_ns.max(disk_ns) + disk_ns };
        direct_ns <= first_ns / n_uses + disk_ns
    }

    /// Whether to try reading past the cache: no object was read past a cache yet, and home gives about
    /// what a disk takes. Then one executor reads past its cache, to see whether home gives more. That
    /// costs little, as the disk would not be quicker.
    fn is_to_try(&self) -> bool {
        let is_bound = self.home.load.node_max >= DISK_BOUND * self.config.disk_bytes_per_s as f64;
        is_bound && self.home.direct_load.is_empty() && self.home.n_direct == 0
    }

    /// Whether it was seen what home gives past the caches.
    pub(super) fn has_read_past_cache(&self) -> bool {
        !self.home.direct_load.is_empty()
    }

    /// Whether a program on `seat` gets `object` sooner from home, past the cache, than by a copy from
    /// another executor.
    pub(super) fn is_past_copies(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        self.is_past_cache(catalog, seat, object)
            && self
                .home_ns(catalog, seat, object, true)
                .is_some_and(|ns| ns < self.copy_use_ns(catalog, object))
    }

    fn copy_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        let rate = self.times.copy_ns_per_mib.unwrap_or(COPY_NS_PER_MIB);
        self.time_ns(catalog, object, rate) as f64
    }

    /// The number of rounds of copies until all executors that may want `object` have it, if `n_holders`
    /// have it now.
    fn rounds(&self, object: ObjectId, n_holders: usize) -> f64 {
        let wanted = (self.tasks.n_tasks_reading(object) as usize).min(self.executors.seats.len()).max(1);
        let mut n = n_holders.max(1);
        let mut rounds = 1.0;
        while n * (1 + self.config.uploads_max as usize) < wanted {
            n *= 1 + self.config.uploads_max as usize;
            rounds += 1.0;
        }
        rounds
    }

    /// Whether reading `object` from home is quicker than waiting for a copy. The holders are all busy
    /// serving, or are about to have the object.
    pub(super) fn home_is_quicker(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        object: ObjectId,
    ) -> bool {
        let n_holders = catalog.n_holders(object);
        let size_bytes = self.size_of(catalog, object);
        let ways = [true, false].map(|direct| match direct && !self.is_past_cache(catalog, seat, object) {
            true => None,
            false => self.home_ns(catalog, seat, object, direct),
        });
        let Some(home_ns) = ways.into_iter().flatten().min_by(f64::total_cmp) else {
            // The loss is small if all executors that may begin at the same time turn out to be too many.
            let is_known = catalog.size_bytes(object).is_some() || self.sizes.is_known();
            return self.home.n == 0
                || is_known
                    && size_bytes.saturating_mul(u64::from(self.home.n) + 1) <= self.config.blind_bytes;
        };
        // How long a copy takes is about to be seen.
        if let (true, None, Some(first_copy_at)) =
            (n_holders > 0, self.times.copy_ns_per_mib, self.times.first_copy_at)
        {
            let rest_ns = home_ns * FIRST_COPY_PART - now.since_ns(first_copy_at) as f64;
            if rest_ns > 0.0 {
                self.asking.note_due(now, rest_ns);
                return false;
            }
        }
        let n_levels = self.home.load.n_levels();
        // It is unknown what a second node would get from home. That is worth knowing, unless copies are
        // known to be quicker.
        let is_first = n_levels == 1 && self.one_more(seat).n_nodes <= 2.0;
        // If home already gives all it has, one more read delays all other reads. Whether home does so is
        // not always known.
        let home_ns = home_ns
            * match self.home.n {
                0 => 1.0,
                _ if self.is_home_full(seat) => FULL_COST,
                _ if n_levels > 1 || is_first => 1.0,
                _ => SHARED_COST,
            };
        let here_ns = match self.home.arriving.get(&object) {
            Some(arriving) if n_holders == 0 => {
                // Without a report, the object is assumed to come as fast as all present reads do.
                let rate = self.home_rate(self.home.all(), 1, false).unwrap_or(f64::MAX);
                let like_others_ns = size_bytes as f64 * 1e9 / rate.max(1.0);
                self.rest_ns(catalog, now, object, arriving).unwrap_or(like_others_ns)
            }
            _ => 0.0,
        };
        // Where home gives each node all that the node takes, the nodes' links may be the limit of both
        // reads and copies.
        let is_node_bound = self.home.load.is_node_bound(self.one_more(seat).n_nodes);
        let copy_ns = match is_first || is_node_bound {
            true => self.copy_at_worst_ns(catalog, object),
            false => self.copy_use_ns(catalog, object),
        };
        let round_ns = if is_node_bound { copy_ns } else { self.copy_ns(catalog, object) };
        let copies_ns = (self.rounds(object, n_holders) - 1.0) * round_ns;
        home_ns <= here_ns + copies_ns + copy_ns
    }

    /// Whether each node that reads from home gets clearly less than it could take, because all share what
    /// home gives.
    fn is_home_full(&self, seat: Seat) -> bool {
        let n_nodes = self.one_more(seat).n_nodes;
        let node = self.home.load.node_max;
        let limit = self.config.home_bytes_per_s as f64;
        limit > 0.0 && limit < n_nodes * node
            || self.home.load.total(n_nodes).is_some_and(|all| all / n_nodes < FULL_SHARE * node)
    }

    /// Learns from the reads that have landed since the last call.
    pub(super) fn settle_landed(&mut self, now: Timestamp) {
        if self.home.landed.is_empty() {
            return;
        }
        let landed = std::mem::take(&mut self.home.landed);
        // Nodes that have no reads left were still reading until then.
        let seats: BTreeSet<Seat> = landed.iter().map(|l| l.seat).collect();
        let is_done = |seat: &&Seat| {
            self.executors.by_seat[seat.0 as usize].as_ref().is_none_or(|m| m.home_reads.is_empty())
        };
        let n_done = seats.iter().filter(is_done).count() as f64;
        let Reads { n, n_nodes } = self.home.all();
        let all = Reads { n: n + landed.len() as f64, n_nodes: n_nodes + n_done };
        landed.iter().for_each(|landed| self.home.load.learn_landed(landed, now, all));
    }

    /// The reads from home that are under way now, with one more on `seat`.
    fn one_more(&self, seat: Seat) -> Reads {
        self.home.one_more(self.executors.at(seat))
    }

    /// The time that an arriving object still needs, by its progress so far; `None`: no progress was
    /// reported.
    fn rest_ns(
        &self,
        catalog: &Catalog,
        now: Timestamp,
        object: ObjectId,
        arriving: &Arriving,
    ) -> Option<f64> {
        let size_bytes = self.size_of(catalog, object);
        let (at, moved_bytes, mut rate) = arriving.progress?;
        if (moved_bytes as f64) < rate * SHARE_GROWS_S {
            rate = rate.max(self.config.home_bytes_per_s as f64 / self.home.all().n.max(1.0));
        }
        let rest_ns = size_bytes.saturating_sub(moved_bytes) as f64 * 1e9 / rate.max(1.0);
        Some((rest_ns - now.since_ns(at) as f64).max(0.0))
    }

    /// Whether the executors that read `object` from home should have ended long ago.
    fn is_late(&mut self, catalog: &Catalog, now: Timestamp, object: ObjectId) -> bool {
        let Some(arriving) = self.home.arriving.get(&object) else { return false };
        // All readers share home: the more there are, the longer each may take. Without this rule,
        // executors that gave up waiting would read from a slow home again and again, and make it slower
        // still. All reads end at about the same time, so the last ones had to share home with those that
        // are already done.
        let n_reads = self.home.n.max(arriving.n_reads);
        let least_ns = self.config.await_ns.saturating_mul(u64::from(n_reads.max(1)));
        // For a read with a report, the remaining time is predicted by its progress, counted from the
        // report.
        if let Some((at, moved_bytes, rate)) = arriving.progress {
            let size_bytes = self.size_of(catalog, object);
            let rest_ns = size_bytes.saturating_sub(moved_bytes) as f64 * 1e9 / rate.max(1.0);
            let wait_ns = (rest_ns * self.config.await_reads).min(1e18) as u64;
            return self.asking.is_past(now, at, wait_ns.max(least_ns));
        }
        let expected_ns = self.times.home_ns_per_mib.map_or(0, |rate| self.time_ns(catalog, object, rate));
        let wait_ns = (expected_ns as f64 * self.config.await_reads) as u64;
        let since = arriving.since;
        self.asking.is_past(now, since, wait_ns.max(least_ns))
    }

    /// The source from which `seat`, which lacks `object`, could get it now. The result is meant for one
    /// attempt, whose inputs may all come from the same source: only attempts that are already under way
    /// count against the source's cap.
    pub(super) fn route(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        object: ObjectId,
    ) -> Option<Source> {
        let heat = self.heat(catalog, object);
        let is_spared = self.spared.contains(object);
        match self.near_source(catalog, seat, object, heat) {
            Nearby::From(source) => return Some(source),
            Nearby::Wait => return None,
            Nearby::Unknown => {}
        }
        if heat == Heat::Warm
            && let Some(source) = self.free_holder(catalog, seat, object)
        {
            if is_spared {
                return Some(source);
            }
            // Home may still be quicker, if both times are known.
            let home_ns = self.times.copy_ns_per_mib.and(self.home_ns(catalog, seat, object, false));
            let is_quicker = self.is_past_copies(catalog, seat, object)
                || home_ns.is_some_and(|ns| ns * self.config.home_quick < self.copy_use_ns(catalog, object));
            let is_at_home = catalog.version(object).is_some();
            return Some(if is_quicker && is_at_home { Source::Home } else { source });
        }
        let max = self.config.home_reads_max;
        if max > 0 && self.home.n >= max {
            return None;
        }
        let may_read = match heat {
            Heat::Cold => true,
            Heat::Arriving => {
                !is_spared && self.home_is_quicker(catalog, now, seat, object)
                    || self.is_late(catalog, now, object)
            }
            Heat::Warm => {
                !is_spared
                    && catalog.version(object).is_some()
                    && self.home_is_quicker(catalog, now, seat, object)
            }
        };
        may_read.then_some(Source::Home)
    }

    /// The least loaded holder that may serve one more attempt.
    fn free_holder(&mut self, catalog: &Catalog, seat: Seat, object: ObjectId) -> Option<Source> {
        if self.uploads.is_busy(catalog, object) {
            return None;
        }
        let n_max = self.uploads.full;
        let mut n_busy = 0;
        let mut best: Option<(u32, Seat)> = None;
        self.visit_holders(catalog, object, spread(seat, object), |holder| {
            let n = self.uploads.of(holder);
            n_busy += usize::from(n >= n_max);
            if n < n_max && holder != seat && best.is_none_or(|(least, _)| n < least) {
                best = Some((n, holder));
                if n == 0 {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        if best.is_none() {
            self.uploads.note_busy(object, n_busy);
        }
        best.map(|(_, holder)| Source::Peer(self.executors.at(holder).id))
    }

    /// Whether `object` is read past the cache of `seat`: no executor has it and no other task in sight
    /// reads it, or home is quicker than the disk.
    fn passes_by(&self, catalog: &Catalog, now: Timestamp, seat: Seat, object: ObjectId) -> bool {
        !self.config.keeps_once
            && self.all_in_sight
            && self.tasks.n_tasks_reading(object) <= 1
            && self.heat(catalog, object) == Heat::Cold
            || self.is_past_cache(catalog, seat, object)
            || self.is_past_disk(catalog, now, seat, object)
    }

    /// Whether a program on `seat` gets `object`, which is in the cache there, clearly sooner from home than from the disk,
    /// which other programs read as well. Not where there are sites: what a node there can get from home is known of its site only.
    fn is_past_disk(&self, catalog: &Catalog, now: Timestamp, seat: Seat, object: ObjectId) -> bool {
        if self.config.disk_bytes_per_s == 0
            || self.near.has_sites()
            || !catalog.seat_holds(seat, object)
            || catalog.version(object).is_none()
            || self.spared.contains(object)
        {
            return false;
        }
        let n_node = self.executors.at(seat).home_reads.len() as u32 + 1;
        let size_bytes = self.size_of(catalog, object).max(1);
        let cost = if self.is_home_full(seat) { FULL_COST } else { 1.0 };
        self.home_rate(self.one_more(seat), n_node, true).is_some_and(|rate| {
            let home_ns = size_bytes as f64 * 1e9 / rate.max(1.0);
            PAST_DISK_MARGIN * cost * home_ns < self.disk_wait_ns(now, seat, size_bytes)
        })
    }

    /// Plans a route for each input of `bundle` that `seat` lacks; `false`: there is no route for one of
    /// them.
    pub(super) fn plan_for(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, bundle: u32) -> bool {
        let mut plan = std::mem::take(&mut self.plan);
        plan.moves.clear();
        self.near.begin_plan();
        plan.task = Some(self.tasks.head(bundle).0);
        for i in 0..self.tasks.inputs(bundle).len() {
            let object = self.tasks.inputs(bundle)[i].object;
            if self.executors.at(seat).has(catalog, seat, object) {
                continue;
            }
            match self.route(catalog, now, seat, object) {
                Some(source) => plan.moves.push((object, source)),
                None => {
                    plan.task = None;
                    break;
                }
            }
        }
        let routed = plan.task.is_some();
        self.plan = plan;
        routed
    }

    /// Gives the head task of a bundle to `executor`: the inputs that it lacks set out.
    pub(super) fn set_out(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        executor: ExecutorId,
        key: QueueKey,
        routes: &mut Vec<Route>,
    ) {
        let (Some(&seat), Some(bundle)) = (self.executors.seat_of.get(&executor), self.tasks.bundle_of(key))
        else {
            return;
        };
        let moves = match self.plan.task == Some(key.task) {
            true => std::mem::take(&mut self.plan.moves),
            false => vec![],
        };
        self.plan.task = None;
        let class = &self.tasks.classes[self.tasks.bundle(bundle).class as usize];
        let (size, lasts) = (class.size, class.lasts);
        let copied = moves.iter().filter(|(_, source)| *source != Source::Home);
        let copied_bytes =
            copied.map(|(object, _)| self.size_of(catalog, *object).max(1)).sum::<u64>().max(1);
        self.note_recent(seat, bundle);
        let mut waits = vec![];
        let mut n_direct = 0;
        for i in 0..self.tasks.inputs(bundle).len() {
            let object = self.tasks.inputs(bundle)[i].object;
            let is_here = catalog.is_held_by(object, seat);
            let planned = moves.iter().find(|(o, _)| *o == object).map(|(_, source)| *source);
            let source = planned.unwrap_or(Source::Home);
            let is_coming = self.executors.at(seat).coming.contains_key(&object);
            if source == Source::Home && !is_coming && self.passes_by(catalog, now, seat, object) {
                routes.push(Route { object, source: Some(source), direct: true, watched: true });
                self.begin_direct(now, seat, key.task, object, is_here);
                n_direct += u32::from(!is_here);
                continue;
            }
            if is_here {
                routes.push(Route { object, source: None, direct: false, watched: false });
                continue;
            }
            waits.push(object);
            if let Some(coming) = self.executors.at_mut(seat).coming.get_mut(&object) {
                coming.tasks.push(key.task);
                routes.push(Route { object, source: None, direct: false, watched: false });
                continue;
            }
            let watched = source == Source::Home;
            routes.push(Route { object, source: Some(source), direct: false, watched });
            let weight = self.upload_weight(catalog, object, copied_bytes);
            self.begin_coming(catalog, now, seat, object, Coming::for_task(key.task, source, weight));
            let start = self.tasks.place_among(object, bundle);
            self.walk_readers(catalog, seat, object, start, Walk::Coming);
        }
        self.mark_reads_together(seat, key.task, &waits);
        if self.config.disk_bytes_per_s > 0 {
            let is_direct = |object| routes.iter().any(|route| route.object == object && route.direct);
            let inputs = self.tasks.inputs(bundle).iter().map(|e| e.object);
            let cached_bytes = inputs.filter(|o| !is_direct(*o)).map(|o| self.size_of(catalog, o)).sum();
            self.begin_disk(now, seat, key.task, cached_bytes);
        }
        if !waits.is_empty() || n_direct > 0 {
            self.executors.begin_moving(seat, size.cpus);
            let inputs = self.tasks.inputs(bundle).iter().map(|e| e.object).collect();
            let is_making = false;
            self.attempts
                .insert(key.task, Attempt { executor, size, lasts, inputs, waits, n_direct, is_making });
            self.settle_attempt(catalog, seat, key.task);
        }
    }

    /// `task` reads `object` from home past the cache of `seat`; `is_hit`: the cache has the object.
    fn begin_direct(&mut self, now: Timestamp, seat: Seat, task: TaskId, object: ObjectId, is_hit: bool) {
        self.home.load.pass(now, self.home.n);
        self.streamed.insert(object);
        let mark = self.home.begin(now, self.executors.at_mut(seat), object);
        self.home.begin_direct(task, Direct { seat, object, mark, is_hit });
    }

    /// `object` sets out for the cache of `seat`.
    fn begin_coming(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        object: ObjectId,
        mut coming: Coming,
    ) {
        self.home.load.pass(now, self.home.n);
        coming.begun_at = now;
        let mut from = None;
        match coming.source {
            Source::Peer(peer) => {
                self.times.first_copy_at.get_or_insert(now);
                from = self.executors.seat_of.get(&peer).copied();
                if let Some(from) = from {
                    self.uploads.begin(from, coming.weight);
                    coming.session = self.executors.at(from).session;
                }
            }
            Source::Home => {
                coming.mark = self.home.begin(now, self.executors.at_mut(seat), object);
                self.home.begin_arriving(now, object);
                self.reheat(catalog, object);
            }
        }
        self.executors.at_mut(seat).coming.insert(object, coming);
        self.spared.set_out(object, seat);
        if self.near.site(seat).is_some() {
            self.near.set_out(object, self.size_of(catalog, object), seat, from);
            self.site_gains(catalog, seat, object);
        }
    }

    /// How much of what a holder may serve at once the copy of `object` takes, for a task to which `copied_bytes` are copied.
    fn upload_weight(&self, catalog: &Catalog, object: ObjectId, copied_bytes: u64) -> u32 {
        let part =
            UPLOAD_MARGIN * u128::from(self.size_of(catalog, object).max(1)) * u128::from(UPLOAD_PARTS);
        part.div_ceil(u128::from(copied_bytes)).min(u128::from(UPLOAD_PARTS)) as u32
    }

    /// The inputs of a task set out together, so each read counts all of them as reads of its node. `waits`: those that come
    /// into the cache.
    fn mark_reads_together(&mut self, seat: Seat, task: TaskId, waits: &[ObjectId]) {
        let n_node = self.executors.at(seat).home_reads.len() as u32;
        for object in waits {
            if let Some(coming) = self.executors.at_mut(seat).coming.get_mut(object)
                && coming.begun_for == task
            {
                coming.mark.n_node = n_node;
            }
        }
        self.home.direct.get_mut(&task).into_iter().flatten().for_each(|read| read.mark.n_node = n_node);
    }

    /// Records that `object` is on `seat` now; `true`: it had set out before.
    pub(super) fn land(&mut self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        let Some(coming) = self.executors.at_mut(seat).coming.remove(&object) else { return false };
        self.spared.stopped(object, seat);
        self.near.landed(object, seat);
        if coming.source == Source::Home {
            let size_bytes = self.size_of(catalog, object);
            let node = self.node_reads(catalog, seat, size_bytes);
            self.home.end_at(self.executors.at_mut(seat), object);
            let is_large = |o: &ObjectId| self.size_of(catalog, *o) >= SMALL_BYTES;
            let is_beside_large =
                size_bytes < SMALL_BYTES && self.executors.at(seat).home_reads.iter().any(is_large);
            self.home.landed.push(Landed { seat, mark: coming.mark, size_bytes, node, is_beside_large });
        }
        for task in &coming.tasks {
            let Some(attempt) = self.attempts.get_mut(task) else { continue };
            attempt.waits.retain(|o| *o != object);
            self.settle_attempt(catalog, seat, *task);
        }
        self.stop_using(catalog, object, &coming);
        true
    }

    /// Less than before may be on its way for the attempt of `task` on `seat`.
    fn settle_attempt(&mut self, catalog: &Catalog, seat: Seat, task: TaskId) {
        let Some(attempt) = self.attempts.get_mut(&task).filter(|attempt| attempt.n_direct == 0) else {
            return;
        };
        let cpus = attempt.size.cpus;
        if attempt.waits.is_empty() {
            let is_making = attempt.is_making;
            self.attempts.remove(&task);
            self.executors.stop_moving(seat, cpus, is_making);
        } else if !attempt.is_making && attempt.waits.iter().all(|object| is_made(catalog, *object)) {
            // The packed file is an input as well: where the node lacks it, it is among those that the attempt waits for.
            attempt.is_making = true;
            self.executors.begin_making(seat, cpus);
        }
    }

    /// The reads from home of `seat`, as a read that has moved `moved_bytes` counts them.
    fn node_reads(&self, catalog: &Catalog, seat: Seat, moved_bytes: u64) -> NodeReads {
        let moved_bytes = moved_bytes.max(1);
        let reads = self.executors.by_seat[seat.0 as usize].iter().flat_map(|m| &m.home_reads);
        let alike = |o: &ObjectId| self.size_of(catalog, *o).min(moved_bytes) as f64 / moved_bytes as f64;
        NodeReads { n: reads.clone().count() as u32, n_alike: reads.map(alike).sum() }
    }

    /// Gives back what a move that is over has used: its source's capacity, or its place among home's
    /// reads.
    pub(super) fn stop_using(&mut self, catalog: &Catalog, object: ObjectId, coming: &Coming) {
        match coming.source {
            Source::Peer(from) => {
                if let Some(&from) = self.executors.seat_of.get(&from)
                    && self.executors.at(from).session == coming.session
                {
                    self.uploads.end(from, coming.weight);
                    self.asking.changed = true;
                }
            }
            Source::Home => {
                self.home.end(coming.mark);
                self.asking.changed = true;
                self.home.end_arriving(object);
                self.reheat(catalog, object);
            }
        }
    }

    /// Forgets an attempt that has ended: nothing moves for it any more.
    pub(super) fn forget_attempt(&mut self, catalog: &Catalog, task: TaskId) {
        self.end_disk(task);
        if let Some(reads) = self.home.direct.remove(&task) {
            for read in reads {
                self.home.end_direct(read.mark);
                if let Some(seated) = self.executors.by_seat[read.seat.0 as usize].as_mut() {
                    self.home.end_at(seated, read.object);
                }
            }
            self.asking.all_again(&self.executors.seats);
        }
        let Some(attempt) = self.attempts.remove(&task) else { return };
        let Some(&seat) = self.executors.seat_of.get(&attempt.executor) else { return };
        self.executors.stop_moving(seat, attempt.size.cpus, attempt.is_making);
        for object in attempt.waits {
            let coming = &mut self.executors.at_mut(seat).coming;
            let Some(c) = coming.get_mut(&object) else { continue };
            c.tasks.retain(|t| *t != task);
            if c.tasks.is_empty()
                && let Some(c) = coming.remove(&object)
            {
                if c.source == Source::Home {
                    self.home.end_at(self.executors.at_mut(seat), object);
                }
                self.spared.stopped(object, seat);
                self.near.stopped(object, seat);
                self.stop_using(catalog, object, &c);
                self.site_may_lose(catalog, seat, object);
            }
        }
        self.asking.all_again(&self.executors.seats);
    }

    /// Learns from a progress report of a watched read from home.
    pub(super) fn watch(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, moved: &InputMoved) {
        self.home.load.pass(now, self.home.n);
        let all = self.home.all();
        let size_bytes = self.size_of(catalog, moved.object);
        if moved.source == Source::Home {
            self.see_home(seat, moved);
        }
        if let Target::Cache(object) = moved.target
            && moved.source == Source::Home
            && let Some(mark) = self
                .executors
                .at(seat)
                .coming
                .get(&object)
                .filter(|c| c.source == Source::Home)
                .map(|c| c.mark)
        {
            let moved_bytes = moved.moved_bytes.min(size_bytes);
            let node = self.node_reads(catalog, seat, moved_bytes.saturating_sub(mark.moved_bytes));
            let sharing = self.home.load.sharing(mark, now, moved.moving_ns, all);
            self.home.load.learn(mark, moved_bytes, now, moved.moving_ns, node, all, sharing);
            let mark = self.home.load.mark(mark, now, moved_bytes, node.n);
            self.executors.at_mut(seat).coming.get_mut(&object).expect("it was there").mark = mark;
            if let Some(arriving) = self.home.arriving.get_mut(&object) {
                let rate = moved.moved_bytes as f64 * 1e9 / moved.moving_ns.max(1) as f64;
                if arriving.progress.is_none_or(|(_, before, _)| moved_bytes >= before) {
                    arriving.progress = Some((now, moved_bytes, rate));
                }
            }
            self.asking.all_again(&self.executors.seats);
        }
        if let Target::Private { task, .. } = moved.target
            && let Some(reads) = self.home.direct.get(&task)
            && let Some(at) = reads.iter().position(|read| read.object == moved.object && read.seat == seat)
        {
            let Direct { mark, is_hit, .. } = reads[at];
            let node = self.node_reads(catalog, seat, moved.moved_bytes.saturating_sub(mark.moved_bytes));
            let sharing = self.home.load.sharing(mark, now, moved.moving_ns, all);
            self.home.direct_load.learn(mark, moved.moved_bytes, now, moved.moving_ns, node, all, sharing);
            let reads = self.home.direct.get_mut(&task).expect("it was there");
            reads[at].mark = self.home.load.mark(mark, now, moved.moved_bytes, node.n);
            if moved.is_all {
                reads.swap_remove(at);
                if reads.is_empty() {
                    self.home.direct.remove(&task);
                }
                self.home.end_direct(mark);
                self.home.end_at(self.executors.at_mut(seat), moved.object);
                if !is_hit && let Some(attempt) = self.attempts.get_mut(&task) {
                    attempt.n_direct -= 1;
                    self.settle_attempt(catalog, seat, task);
                }
            }
            self.asking.all_again(&self.executors.seats);
        }
    }

    pub(super) fn learn_size(&mut self, catalog: &Catalog, input: &InputReport) {
        if self.sizes.learn(input.size_bytes) {
            let mean = self.sizes.assumed_bytes;
            let size_of = |object| catalog.size_bytes(object).unwrap_or(mean);
            for class in &mut self.tasks.classes {
                class.single.resize(size_of);
                class.multi.resize(size_of);
            }
            for seated in self.executors.by_seat.iter_mut().flatten() {
                seated.apply_rank_updates();
                seated.near.iter_mut().flatten().for_each(|rank| rank.resize(size_of));
            }
        }
    }

    /// `object` turned out to be read without being cached, so it is no reason to place a task anywhere.
    /// Its readers are queued again without it.
    pub(super) fn mark_never_cached(&mut self, catalog: &Catalog, object: ObjectId) {
        if catalog.n_holders(object) > 0 || !self.never_cached.insert(object) {
            return;
        }
        let mut bundles: Vec<u32> = self.tasks.bundles_around(object, 0).collect();
        bundles.sort_unstable();
        let mut again = vec![];
        for bundle in bundles {
            let class = &self.tasks.classes[self.tasks.bundle(bundle).class as usize];
            let inputs: Vec<ObjectId> = self.tasks.inputs(bundle).iter().map(|e| e.object).collect();
            for (task, entered_ms) in self.tasks.tasks_of(bundle) {
                let key = QueueKey { priority: class.priority, task };
                let TaskSize { cpus, memory_bytes, needs } = class.size;
                let (inputs, first_input, lasts) = (inputs.clone(), None, class.lasts);
                let task = ReadyTask { key, inputs, first_input, cpus, memory_bytes, needs, lasts };
                again.push((entered_ms, task));
            }
        }
        for (_, task) in &again {
            self.leave(catalog, task.key);
        }
        for (entered_ms, task) in &again {
            self.enter_at(catalog, *entered_ms, task);
        }
    }
}
