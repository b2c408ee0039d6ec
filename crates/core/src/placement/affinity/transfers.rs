//! What is on its way, what that has taken so far, and where an input could come from.
//!
//! A *move* begins when an attempt is given out that lacks an input, and is over when the replica is there or no attempt
//! waits for it any more. It counts against its source from the beginning to the end.

use super::rank::Heat;
use super::*;

/// Milliseconds of a clock that wraps after 49 days: good for ages.
pub(super) fn wrapping_ms(at: Timestamp) -> u32 {
    (at.0 / 1_000_000) as u32
}

const MIB: u64 = 1 << 20;
/// What a copy is taken to need until one has been seen: 100 MB/s after 2 ms.
const COPY_LATENCY_NS: u64 = 2_000_000;
const COPY_NS_PER_MIB: u64 = 10_485_760;
/// What moves at that rate within that latency. Smaller objects take as long as one of this size, and say so much of the rate:
/// a file of a few bytes that came within 2 ms is no reason to expect one of a megabyte within minutes.
const SMALL_BYTES: u64 = MIB * COPY_LATENCY_NS / COPY_NS_PER_MIB;

pub(super) fn smooth(mean: &mut Option<u64>, value: u64) {
    *mean = Some(mean.map_or(value, |m| m - m / 16 + value / 16));
}

/// Concurrent reads are told apart by powers of two.
const LEVELS: usize = 20;
/// Of an earlier mean of a level.
const KEPT: f64 = 0.75;
/// Twice as many readers that get less than so many times as much together have all that home gives.
const GROWTH_MIN: f64 = 1.5;

/// What home gives to all who read there together, by how many read, learnt from how far reads came and how many shared it
/// meanwhile.
#[derive(Default)]
pub(super) struct HomeLoad {
    /// Bytes per second for all, by the logarithm of the number of reads under way.
    levels: [Option<f64>; LEVELS],
    /// The most that the reads of one node got together lately.
    node_max: f64,
    /// Reads under way, over time.
    pub reads_ns: u128,
    seen: Timestamp,
}

/// How far a transfer had come when it was looked at last.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub at: Timestamp,
    pub moved_bytes: u64,
    /// What [`HomeLoad::reads_ns`] was then.
    pub reads_ns: u128,
    /// How many its node read then, itself included.
    n_node: u32,
}

/// A read from home that has ended.
pub(super) struct Landed {
    pub mark: Mark,
    pub size_bytes: u64,
    /// How many its node read then, itself included.
    pub n_node: u32,
}

impl HomeLoad {
    /// Up to `now` there were `n_reads`.
    pub fn pass(&mut self, now: Timestamp, n_reads: u32) {
        self.reads_ns += u128::from(now.since_ns(self.seen)) * u128::from(n_reads);
        self.seen = self.seen.max(now);
    }

    pub fn mark(&self, now: Timestamp, moved_bytes: u64, n_node: u32) -> Mark {
        Mark { at: now, moved_bytes, reads_ns: self.reads_ns, n_node }
    }

    /// One read has come from `mark` to `moved_bytes` by `now`, in `took_ns`: less than has passed where messages took their part.
    /// `n_node`: how many its node reads now, itself included.
    pub fn learn(&mut self, mark: Mark, moved_bytes: u64, now: Timestamp, took_ns: u64, n_node: u32) {
        let ns = now.since_ns(mark.at);
        if ns == 0 || moved_bytes <= mark.moved_bytes {
            return;
        }
        let n_mean = ((self.reads_ns - mark.reads_ns) as f64 / ns as f64).max(1.0);
        let alone = (moved_bytes - mark.moved_bytes) as f64 * 1e9 / ns.min(took_ns.max(1)) as f64;
        let level = &mut self.levels[level_of(n_mean)];
        *level = Some(level.map_or(n_mean * alone, |mean| mean * KEPT + n_mean * alone * (1.0 - KEPT)));
        // What was seen once may not come again.
        // Those that have set out in between may not have begun.
        let node = alone * f64::from(mark.n_node.min(n_node).max(1));
        self.node_max = node.max(self.node_max - self.node_max / 64.0);
    }

    /// Whether nothing was learnt yet.
    pub fn is_empty(&self) -> bool {
        self.node_max == 0.0
    }

    /// What each of `n_reads` would get, on a node with `n_node` of them. `None`: so many more than were ever seen may be too many.
    pub fn forecast(&self, n_reads: u32, n_node: u32) -> Option<f64> {
        let node = self.node_max / f64::from(n_node.max(1));
        let n = f64::from(n_reads.max(1));
        let at = level_of(n);
        let each = |all: f64| (all / n).min(node);
        if let Some(all) = self.levels[at..].iter().flatten().next() {
            return Some(each(*all));
        }
        let highest = (0..at).rev().find(|l| self.levels[*l].is_some())?;
        let all = self.levels[highest].unwrap_or_default();
        let before = (0..highest).rev().find(|l| self.levels[*l].is_some());
        let grows = before.is_none_or(|before| {
            let least = (before..highest).fold(1.0, |least, _| least * GROWTH_MIN);
            all >= self.levels[before].unwrap_or_default() * least
        });
        match grows {
            // One power of two more is tried.
            true if at == highest + 1 => Some((all / (1u64 << highest) as f64).min(node)),
            true => None,
            false => Some(each(all)),
        }
    }
}

fn level_of(n: f64) -> usize {
    // The logarithm of 2 n² is twice that of n, and one more.
    let squared = (2.0 * n.max(1.0) * n.max(1.0)) as u64;
    (squared.ilog2() as usize / 2).min(LEVELS - 1)
}

/// Where tasks are still to come, a copy is taken to be read so often at least.
const USES_OUT_OF_SIGHT: f64 = 4.0;

impl Affinity {
    /// How long moving `object` takes at that rate.
    fn time_ns(&self, catalog: &Catalog, object: ObjectId, ns_per_mib: u64) -> u64 {
        let size_bytes = self.size_of(catalog, object).max(SMALL_BYTES);
        u64::try_from(u128::from(ns_per_mib) * u128::from(size_bytes) / u128::from(MIB)).unwrap_or(u64::MAX)
    }

    /// How long a task has to wait before what it lacks is copied for it.
    pub(super) fn steal_after_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        let copy_ns = match self.copy_ns_per_mib {
            Some(rate) => self.time_ns(catalog, object, rate),
            None => self.config.copy_ns.min(COPY_LATENCY_NS + self.time_ns(catalog, object, COPY_NS_PER_MIB)),
        };
        copy_ns as f64 * self.config.steal_after_copies
    }

    /// What each of `n` reads from home would get, on a node with `n_node` of them, past the cache or into it. `None`: nobody
    /// knows.
    fn home_rate(&self, n: u32, n_node: u32, direct: bool) -> Option<f64> {
        // Through the disk home gives no more than past it.
        let past = if direct { self.direct_load.forecast(n, n_node) } else { None };
        let into = || self.home_load.forecast(n, n_node);
        let seen = past.or_else(|| if self.direct_load.is_empty() || !direct { into() } else { None });
        match self.config.home_bytes_per_s {
            0 => seen,
            limit => Some(seen.unwrap_or(f64::MAX).min(limit as f64 / f64::from(n.max(1)))),
        }
    }

    /// How long a program takes to read `object` from the disk of its node, with others there that do the same; 0: that is
    /// nothing to be saved.
    fn disk_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        if self.config.disk_bytes_per_s == 0 {
            return 0.0;
        }
        let slots = self.n_slots_total as f64 / self.is_member.len().max(1) as f64;
        self.size_of(catalog, object) as f64 * 1e9 * slots.max(1.0) / self.config.disk_bytes_per_s as f64
    }

    /// How long it would take from now until a program on `seat` has read `object` from home, past the cache or through it;
    /// `None`: nobody knows.
    fn home_ns(&self, catalog: &Catalog, seat: Seat, object: ObjectId, direct: bool) -> Option<f64> {
        let size_bytes = self.size_of(catalog, object).max(1) as f64;
        let n_node = self.member(seat).n_home_reads + 1;
        // Those of one node take turns at the disk in either way.
        let n_slots = if direct { self.member(seat).room.slots_total } else { 0 };
        let rate = self.home_rate(self.n_home_reads + 1, n_node.max(n_slots), direct)?;
        let disk_ns = if direct { 0.0 } else { self.disk_ns(catalog, object) };
        Some((size_bytes * 1e9 / rate.max(1.0)).max(disk_ns) + disk_ns)
    }

    /// How long a copy takes, until a program has read it there.
    pub(super) fn copy_use_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        let disk_ns = self.disk_ns(catalog, object);
        self.copy_ns(catalog, object).max(disk_ns) + disk_ns
    }

    /// Whether what home gives is better read past the cache of `seat`, each time, than kept there.
    pub(super) fn is_past_cache(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        if self.config.disk_bytes_per_s == 0
            || self.heat(catalog, object) == Heat::Warm && catalog.version(object).is_none()
        {
            return false;
        }
        let disk_ns = self.disk_ns(catalog, object);
        // If all did so: what one saves others may have to wait for.
        let n_slots = self.member(seat).room.slots_total;
        let rate = |n| self.home_rate(n, n_slots, true);
        let n_all = u32::try_from(self.n_slots_total).unwrap_or(u32::MAX);
        let least = if self.all_in_sight { 1.0 } else { USES_OUT_OF_SIGHT };
        let n_readers = (self.tasks.n_tasks_reading(object) as f64).max(least);
        let Some(rate) = rate(n_all).or_else(|| rate(self.n_home_reads + 1)) else { return n_readers <= 1.0 };
        let direct_ns = self.size_of(catalog, object) as f64 * 1e9 / rate.max(1.0);
        // How often what is read into the cache is of use: to all who can have a copy sooner than home gives it, else to the
        // tasks that this node gets of them.
        let n_each = self.tasks.len() as f64 / self.is_member.len().max(1) as f64;
        let n_uses = match self.copy_use_ns(catalog, object) < direct_ns {
            true => n_readers,
            false => n_readers.min(n_each).max(least),
        };
        let first_ns = if catalog.seat_holds(seat, object) { 0.0 } else { direct_ns.max(disk_ns) + disk_ns };
        direct_ns <= first_ns / n_uses + disk_ns
    }

    /// Whether a program on `seat` has `object` sooner from home, past the cache, than by a copy of what others hold.
    pub(super) fn is_past_copies(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        self.is_past_cache(catalog, seat, object)
            && self
                .home_ns(catalog, seat, object, true)
                .is_some_and(|ns| ns < self.copy_use_ns(catalog, object))
    }

    fn copy_ns(&self, catalog: &Catalog, object: ObjectId) -> f64 {
        let rate = self.copy_ns_per_mib.unwrap_or(COPY_NS_PER_MIB);
        self.time_ns(catalog, object, rate) as f64
    }

    /// How many rounds of copies it takes until all who may want `object` have it, when so many have it now.
    fn rounds(&self, object: ObjectId, n_holders: usize) -> f64 {
        let wanted = (self.tasks.n_tasks_reading(object) as usize).min(self.is_member.len()).max(1);
        let mut n = n_holders.max(1);
        let mut rounds = 1.0;
        while n * (1 + self.config.uploads_max as usize) < wanted {
            n *= 1 + self.config.uploads_max as usize;
            rounds += 1.0;
        }
        rounds
    }

    /// Whether reading `object` from home is quicker than to wait for a copy of what others hold, all of whom serve, or are
    /// about to have.
    pub(super) fn home_is_quicker(
        &self,
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
            // Little is lost if all who may begin at once are too many.
            let is_known = catalog.size_bytes(object).is_some() || self.n_sizes > 0;
            return self.n_home_reads == 0
                || is_known
                    && size_bytes.saturating_mul(u64::from(self.n_home_reads) + 1)
                        <= self.config.blind_bytes;
        };
        let here_ns = match self.arriving.get(&object) {
            Some(arriving) if n_holders == 0 => {
                // As long as it takes those who read now, where nothing has been heard of it.
                let rate = self.home_rate(self.n_home_reads, 1, false).unwrap_or(f64::MAX);
                let like_others_ns = size_bytes as f64 * 1e9 / rate.max(1.0);
                self.rest_ns(catalog, now, object, arriving).unwrap_or(like_others_ns)
            }
            _ => 0.0,
        };
        let copies_ns = (self.rounds(object, n_holders) - 1.0) * self.copy_ns(catalog, object);
        home_ns <= here_ns + copies_ns + self.copy_use_ns(catalog, object)
    }

    /// Until an arriving object is there, by how it has come along; `None`: nothing is known of that.
    fn rest_ns(
        &self,
        catalog: &Catalog,
        now: Timestamp,
        object: ObjectId,
        arriving: &Arriving,
    ) -> Option<f64> {
        let size_bytes = self.size_of(catalog, object);
        let (at, moved_bytes, rate) = arriving.progress?;
        let rest_ns = size_bytes.saturating_sub(moved_bytes) as f64 * 1e9 / rate.max(1.0);
        Some((rest_ns - now.since_ns(at) as f64).max(0.0))
    }

    /// Whether whoever reads `object` from home should have ended long ago.
    fn is_late(&mut self, catalog: &Catalog, now: Timestamp, object: ObjectId) -> bool {
        let Some(arriving) = self.arriving.get(&object) else { return false };
        // All who read share home: the more there are, the longer each may take. Without this, a slow home that everybody
        // reads from is read again and again by those who gave up waiting, and gets slower still.
        // They all end at about the same time: the last ones had to share with those that are done.
        let n_reads = self.n_home_reads.max(arriving.n_reads);
        let least_ns = self.config.await_ns.saturating_mul(u64::from(n_reads.max(1)));
        // What has come along is awaited by what that predicts, from then on.
        if let Some((at, moved_bytes, rate)) = arriving.progress {
            let size_bytes = self.size_of(catalog, object);
            let rest_ns = size_bytes.saturating_sub(moved_bytes) as f64 * 1e9 / rate.max(1.0);
            let wait_ns = (rest_ns * self.config.await_reads).min(1e18) as u64;
            return self.is_past(now, at, wait_ns.max(least_ns));
        }
        let expected_ns = self.home_ns_per_mib.map_or(0, |rate| self.time_ns(catalog, object, rate));
        let wait_ns = (expected_ns as f64 * self.config.await_reads) as u64;
        let since = arriving.since;
        self.is_past(now, since, wait_ns.max(least_ns))
    }

    /// Whether so much time has passed since then.
    fn is_past(&mut self, now: Timestamp, since: Timestamp, wait_ns: u64) -> bool {
        let passed_ns = now.since_ns(since);
        if passed_ns <= wait_ns {
            self.note_due(now, (wait_ns - passed_ns) as f64);
        }
        passed_ns > wait_ns
    }

    /// Where `seat`, which lacks it, could have `object` from now. What is found is for one attempt, whose inputs may
    /// all come from the same place: only attempts that are under way already count against that.
    pub(super) fn route(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        seat: Seat,
        object: ObjectId,
    ) -> Option<Source> {
        let heat = self.heat(catalog, object);
        if heat == Heat::Warm
            && let Some(source) = self.free_holder(catalog, seat, object)
        {
            // Home may be the quicker one all the same, if both are known.
            let home_ns = self.copy_ns_per_mib.and(self.home_ns(catalog, seat, object, false));
            let is_quicker = self.is_past_copies(catalog, seat, object)
                || home_ns.is_some_and(|ns| ns * self.config.home_quick < self.copy_use_ns(catalog, object));
            let is_at_home = catalog.version(object).is_some();
            return Some(if is_quicker && is_at_home { Source::Home } else { source });
        }
        let max = self.config.home_reads_max;
        if max > 0 && self.n_home_reads >= max {
            return None;
        }
        let may_read = match heat {
            Heat::Cold => true,
            Heat::Arriving => {
                self.home_is_quicker(catalog, now, seat, object) || self.is_late(catalog, now, object)
            }
            Heat::Warm => {
                catalog.version(object).is_some() && self.home_is_quicker(catalog, now, seat, object)
            }
        };
        may_read.then_some(Source::Home)
    }

    /// Whether all holders of `object` are known to be in use.
    pub(super) fn is_busy(&mut self, catalog: &Catalog, object: ObjectId) -> bool {
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

    /// Whoever holds something may have become free to serve.
    pub(super) fn forget_busy(&mut self) {
        self.busy.clear();
        self.none_free.clear();
        self.freed.clear();
    }

    /// The least loaded holder that may serve one attempt more.
    fn free_holder(&mut self, catalog: &Catalog, seat: Seat, object: ObjectId) -> Option<Source> {
        if self.is_busy(catalog, object) {
            return None;
        }
        let mut n_busy = 0;
        let mut best: Option<(u32, Seat)> = None;
        self.visit_holders(catalog, object, spread(seat, object), |holder| {
            let n = self.uploads[holder.0 as usize];
            n_busy += usize::from(n >= self.config.uploads_max);
            if n < self.config.uploads_max && holder != seat && best.is_none_or(|(least, _)| n < least) {
                best = Some((n, holder));
                if n == 0 {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        if best.is_none() && n_busy > 0 {
            if n_busy >= BUSY_HOLDERS_MIN {
                self.busy.insert(object);
            } else {
                self.none_free.insert(object, self.freed.len() as u32);
            }
        }
        best.map(|(_, holder)| Source::Peer(self.member(holder).id))
    }

    /// Whether `object` is read past the cache of `seat`: nobody has it and no other task in sight reads it, or home is quicker
    /// than the disk.
    fn passes_by(&self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        !self.config.keeps_once
            && self.all_in_sight
            && self.tasks.n_tasks_reading(object) <= 1
            && self.heat(catalog, object) == Heat::Cold
            || self.is_past_cache(catalog, seat, object)
    }

    /// A route for each input of `group` that `seat` lacks; `false`: there is none for one of them.
    pub(super) fn plan_for(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, group: u32) -> bool {
        let mut plan = std::mem::take(&mut self.plan);
        plan.moves.clear();
        plan.task = Some(self.tasks.head(group).0);
        for i in 0..self.tasks.inputs(group).len() {
            let object = self.tasks.inputs(group)[i].object;
            if self.member(seat).has(catalog, seat, object) {
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

    /// The head task of a group is given to `executor`: what it lacks sets out.
    pub(super) fn set_out(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        executor: ExecutorId,
        key: QueueKey,
        routes: &mut Vec<Route>,
    ) {
        let (Some(&seat), Some(group)) = (self.seat_of.get(&executor), self.tasks.group_of(key)) else {
            return;
        };
        let moves = match self.plan.task == Some(key.task) {
            true => std::mem::take(&mut self.plan.moves),
            false => vec![],
        };
        self.plan.task = None;
        let class = self.tasks.group(group).class as usize;
        let cpus = self.tasks.classes[class].cpus;
        let mut waits = vec![];
        let mut n_direct = 0;
        for i in 0..self.tasks.inputs(group).len() {
            let object = self.tasks.inputs(group)[i].object;
            let is_here = catalog.is_held_by(object, seat);
            let planned = moves.iter().find(|(o, _)| *o == object).map(|(_, source)| *source);
            let from_home = planned.is_none_or(|source| source == Source::Home);
            let is_coming = self.member(seat).coming.contains_key(&object);
            if from_home && !is_coming && self.passes_by(catalog, seat, object) {
                routes.push(Route { object, source: Some(Source::Home), direct: true, watched: true });
                self.home_load.pass(now, self.n_home_reads);
                self.n_home_reads += 1;
                self.n_direct += 1;
                self.streamed.insert(object);
                let n_node = self.reads_of(seat, 1);
                let mark = self.home_load.mark(now, 0, n_node);
                self.direct.entry(key.task).or_default().push(Direct { seat, object, mark, is_hit: is_here });
                n_direct += u32::from(!is_here);
                continue;
            }
            if is_here {
                routes.push(Route { object, source: None, direct: false, watched: false });
                continue;
            }
            waits.push(object);
            if let Some(coming) = self.member_mut(seat).coming.get_mut(&object) {
                coming.tasks.push(key.task);
                routes.push(Route { object, source: None, direct: false, watched: false });
                continue;
            }
            let source = planned.unwrap_or(Source::Home);
            let watched = source == Source::Home;
            routes.push(Route { object, source: Some(source), direct: false, watched });
            self.home_load.pass(now, self.n_home_reads);
            let n_node = self.reads_of(seat, i32::from(watched));
            let mut coming = Coming {
                source,
                session: 0,
                mark: self.home_load.mark(now, 0, n_node),
                begun_for: key.task,
                tasks: vec![key.task],
            };
            match source {
                Source::Peer(from) => {
                    if let Some(&from) = self.seat_of.get(&from) {
                        self.uploads[from.0 as usize] += 1;
                        coming.session = self.member(from).session;
                    }
                }
                Source::Home => {
                    self.n_home_reads += 1;
                    let n_reads = self.n_home_reads;
                    let arriving = Arriving { n: 0, since: now, n_reads, progress: None };
                    self.arriving.entry(object).or_insert(arriving).n += 1;
                    self.reheat(catalog, object);
                }
            }
            self.member_mut(seat).coming.insert(object, coming);
            let start = self.tasks.place_among(object, group);
            self.walk_readers(catalog, seat, object, start, Walk::Coming);
        }
        if !waits.is_empty() || n_direct > 0 {
            let member = self.member_mut(seat);
            member.moving.n_attempts += 1;
            member.moving.cpus += cpus;
            member.n_moves = member.n_moves.wrapping_add(1);
            self.attempts.insert(key.task, Attempt { executor, cpus, waits, n_direct });
        }
    }

    /// `object` is on `seat` now; `true`: it had set out.
    pub(super) fn land(&mut self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        let Some(coming) = self.member_mut(seat).coming.remove(&object) else { return false };
        if coming.source == Source::Home {
            let size_bytes = self.size_of(catalog, object);
            let n_node = self.reads_of(seat, 0);
            self.reads_of(seat, -1);
            self.landed.push(Landed { mark: coming.mark, size_bytes, n_node });
        }
        for task in &coming.tasks {
            let Some(attempt) = self.attempts.get_mut(task) else { continue };
            attempt.waits.retain(|o| *o != object);
            if attempt.waits.is_empty() && attempt.n_direct == 0 {
                let cpus = attempt.cpus;
                self.attempts.remove(task);
                self.stop_moving(seat, cpus);
            }
        }
        self.stop_using(catalog, object, &coming);
        true
    }

    /// `seat` reads so many objects more from home; how many those are then.
    fn reads_of(&mut self, seat: Seat, more: i32) -> u32 {
        let Some(member) = self.members[seat.0 as usize].as_mut() else { return 0 };
        member.n_home_reads = member.n_home_reads.saturating_add_signed(more);
        member.n_home_reads
    }

    fn stop_moving(&mut self, seat: Seat, cpus: u32) {
        let moving = &mut self.member_mut(seat).moving;
        moving.n_attempts -= 1;
        moving.cpus -= cpus;
    }

    /// A move is over.
    pub(super) fn stop_using(&mut self, catalog: &Catalog, object: ObjectId, coming: &Coming) {
        match coming.source {
            Source::Peer(from) => {
                if let Some(&from) = self.seat_of.get(&from)
                    && self.member(from).session == coming.session
                {
                    let n = &mut self.uploads[from.0 as usize];
                    self.changed = true;
                    if *n == self.config.uploads_max && !self.none_free.is_empty() {
                        self.freed.push(from);
                    }
                    *n -= 1;
                }
            }
            Source::Home => {
                self.n_home_reads -= 1;
                self.changed = true;
                if let Some(arriving) = self.arriving.get_mut(&object) {
                    arriving.n -= 1;
                    if arriving.n == 0 {
                        self.arriving.remove(&object);
                    }
                }
                self.reheat(catalog, object);
            }
        }
    }

    /// The attempt is over: nothing moves for it any more.
    pub(super) fn forget_attempt(&mut self, catalog: &Catalog, task: TaskId) {
        if let Some(reads) = self.direct.remove(&task) {
            self.n_home_reads -= reads.len() as u32;
            self.n_direct -= reads.len() as u32;
            for read in reads {
                self.reads_of(read.seat, -1);
            }
            self.stir();
        }
        let Some(attempt) = self.attempts.remove(&task) else { return };
        let Some(&seat) = self.seat_of.get(&attempt.executor) else { return };
        self.stop_moving(seat, attempt.cpus);
        for object in attempt.waits {
            let coming = &mut self.member_mut(seat).coming;
            let Some(c) = coming.get_mut(&object) else { continue };
            c.tasks.retain(|t| *t != task);
            if c.tasks.is_empty()
                && let Some(c) = coming.remove(&object)
            {
                self.reads_of(seat, -i32::from(c.source == Source::Home));
                self.stop_using(catalog, object, &c);
            }
        }
        self.stir();
    }

    /// A watched read from home has come so far.
    pub(super) fn watch(&mut self, catalog: &Catalog, now: Timestamp, seat: Seat, moved: &InputMoved) {
        self.home_load.pass(now, self.n_home_reads);
        let size_bytes = self.size_of(catalog, moved.object);
        let n_node = self.reads_of(seat, 0);
        if let Target::Cache(object) = moved.target
            && moved.source == Source::Home
            && let Some(coming) =
                self.members[seat.0 as usize].as_mut().and_then(|m| m.coming.get_mut(&object))
            && coming.source == Source::Home
        {
            let (mark, moved_bytes) = (coming.mark, moved.moved_bytes.min(size_bytes));
            self.home_load.learn(mark, moved_bytes, now, moved.moving_ns, n_node);
            coming.mark = self.home_load.mark(now, moved_bytes, n_node);
            if let Some(arriving) = self.arriving.get_mut(&object) {
                let rate = moved.moved_bytes as f64 * 1e9 / moved.moving_ns.max(1) as f64;
                if arriving.progress.is_none_or(|(_, before, _)| moved_bytes >= before) {
                    arriving.progress = Some((now, moved_bytes, rate));
                }
            }
            self.stir();
        }
        if let Target::Private { task, .. } = moved.target
            && let Some(reads) = self.direct.get_mut(&task)
            && let Some(at) = reads.iter().position(|read| read.object == moved.object && read.seat == seat)
        {
            let Direct { mark, is_hit, .. } = reads[at];
            self.direct_load.reads_ns = self.home_load.reads_ns;
            self.direct_load.learn(mark, moved.moved_bytes, now, moved.moving_ns, n_node);
            reads[at].mark = self.home_load.mark(now, moved.moved_bytes, n_node);
            if moved.is_all {
                reads.swap_remove(at);
                if reads.is_empty() {
                    self.direct.remove(&task);
                }
                self.n_home_reads -= 1;
                self.n_direct -= 1;
                self.reads_of(seat, -1);
                if !is_hit
                    && let Some(attempt) = self.attempts.get_mut(&task)
                    && {
                        attempt.n_direct -= 1;
                        attempt.n_direct == 0 && attempt.waits.is_empty()
                    }
                {
                    let cpus = attempt.cpus;
                    self.attempts.remove(&task);
                    self.stop_moving(seat, cpus);
                }
            }
            self.stir();
        }
    }

    pub(super) fn learn_time(&mut self, catalog: &Catalog, input: &InputReport) {
        let size_bytes = input.size_bytes.max(SMALL_BYTES);
        let rate = u128::from(input.wait_ns) * u128::from(MIB) / u128::from(size_bytes);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        match input.outcome {
            CacheOutcome::Miss => smooth(&mut self.home_ns_per_mib, rate),
            _ => smooth(&mut self.copy_ns_per_mib, rate),
        }
        self.n_sizes += 1;
        self.sum_sizes += u128::from(input.size_bytes);
        let mean = ((self.sum_sizes / u128::from(self.n_sizes)) as u64).max(1);
        if mean.abs_diff(self.size_bytes_assumed) > self.size_bytes_assumed / 10 {
            self.size_bytes_assumed = mean;
            let size_of = |object| catalog.size_bytes(object).unwrap_or(mean);
            for class in &mut self.tasks.classes {
                class.single.resize(size_of);
                class.multi.resize(size_of);
            }
            for member in self.members.iter_mut().flatten() {
                member.tell();
                member.near.iter_mut().flatten().for_each(|rank| rank.resize(size_of));
            }
        }
    }

    /// `object` turned out to be read without being cached: it is no reason to be anywhere.
    pub(super) fn open_up(&mut self, catalog: &Catalog, object: ObjectId) {
        if catalog.n_holders(object) > 0 || !self.open.insert(object) {
            return;
        }
        let mut groups: Vec<u32> = self.tasks.groups_around(object, 0).collect();
        groups.sort_unstable();
        let mut again = vec![];
        for group in groups {
            let class = &self.tasks.classes[self.tasks.group(group).class as usize];
            let inputs: Vec<ObjectId> = self.tasks.inputs(group).iter().map(|e| e.object).collect();
            for (task, entered_ms) in self.tasks.tasks_of(group) {
                let key = QueueKey { priority: class.priority, task };
                let (cpus, memory_bytes) = (class.cpus, class.memory_bytes);
                let (inputs, first_input) = (inputs.clone(), None);
                again.push((entered_ms, ReadyTask { key, inputs, first_input, cpus, memory_bytes }));
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
