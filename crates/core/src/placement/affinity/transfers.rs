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

fn smooth(mean: &mut Option<u64>, value: u64) {
    *mean = Some(mean.map_or(value, |m| m - m / 16 + value / 16));
}

/// What home gives to all who read there together, learnt from how long reads took and how many shared it meanwhile.
#[derive(Default)]
pub(super) struct HomeLoad {
    /// The most seen lately.
    pub bytes_per_s: Option<f64>,
    /// Reads under way, over time.
    pub reads_ns: u128,
    seen: Timestamp,
}

/// A read from home that has ended.
pub(super) struct Landed {
    since: Timestamp,
    /// What [`HomeLoad::reads_ns`] was then.
    reads_ns: u128,
    size_bytes: u64,
}

impl HomeLoad {
    /// Up to `now` there were `n_reads`.
    pub fn pass(&mut self, now: Timestamp, n_reads: u32) {
        self.reads_ns += u128::from(now.since_ns(self.seen)) * u128::from(n_reads);
        self.seen = self.seen.max(now);
    }

    pub fn learn(&mut self, landed: Landed, now: Timestamp) {
        let ns = now.since_ns(landed.since).max(1) as f64;
        let n_mean = (self.reads_ns - landed.reads_ns) as f64 / ns;
        let rate = n_mean.max(1.0) * landed.size_bytes as f64 * 1e9 / ns;
        // A few readers do not see all that it could give.
        self.bytes_per_s = Some(self.bytes_per_s.map_or(rate, |most| rate.max(most - (most - rate) / 64.0)));
    }
}

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

    /// Whether a byte from home would take little longer than one from a peer if all executors read there at once. What
    /// a few readers see says little: when all act on it, home is slow long before anybody notices.
    pub(super) fn home_is_quick(&self) -> bool {
        match (self.home_ns_per_mib, self.home_load.bytes_per_s, self.copy_ns_per_mib) {
            (Some(seen_ns), Some(rate), Some(copy_ns)) => {
                let home_ns = (seen_ns as f64).max(self.is_member.len() as f64 * MIB as f64 * 1e9 / rate);
                home_ns <= copy_ns as f64 * self.config.home_quick
            }
            _ => false,
        }
    }

    /// Whether whoever reads `object` from home should have ended long ago.
    fn is_late(&self, catalog: &Catalog, now: Timestamp, object: ObjectId) -> bool {
        let Some(arriving) = self.arriving.get(&object) else { return false };
        let expected_ns = self.home_ns_per_mib.map_or(0, |rate| self.time_ns(catalog, object, rate));
        let wait_ns = (expected_ns as f64 * self.config.await_reads) as u64;
        // All who read share home: the more there are, the longer each may take. Without this, a slow home that everybody
        // reads from is read again and again by those who gave up waiting, and gets slower still.
        // They all end at about the same time: the last ones had to share with those that are done.
        let n_reads = self.n_home_reads.max(arriving.n_reads);
        let least_ns = self.config.await_ns.saturating_mul(u64::from(n_reads.max(1)));
        now.since_ns(arriving.since) > wait_ns.max(least_ns)
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
            return Some(source);
        }
        let max = self.config.home_reads_max;
        if max > 0 && self.n_home_reads >= max {
            return None;
        }
        let may_read = match heat {
            Heat::Cold => true,
            Heat::Arriving => self.home_is_quick() || self.is_late(catalog, now, object),
            Heat::Warm => self.home_is_quick(),
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
        for i in 0..self.tasks.inputs(group).len() {
            let object = self.tasks.inputs(group)[i].object;
            if catalog.is_held_by(object, seat) {
                routes.push(Route { object, source: None });
                continue;
            }
            waits.push(object);
            if let Some(coming) = self.member_mut(seat).coming.get_mut(&object) {
                coming.tasks.push(key.task);
                routes.push(Route { object, source: None });
                continue;
            }
            let planned = moves.iter().find(|(o, _)| *o == object).map(|(_, source)| *source);
            let source = planned.unwrap_or(Source::Home);
            routes.push(Route { object, source: Some(source) });
            self.home_load.pass(now, self.n_home_reads);
            let mut coming = Coming {
                source,
                session: 0,
                since: now,
                reads_ns: self.home_load.reads_ns,
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
                    self.arriving.entry(object).or_insert(Arriving { n: 0, since: now, n_reads }).n += 1;
                    self.reheat(catalog, object);
                }
            }
            self.member_mut(seat).coming.insert(object, coming);
            let start = self.tasks.place_among(object, group);
            self.walk_readers(catalog, seat, object, start, Walk::Coming);
        }
        if !waits.is_empty() {
            let member = self.member_mut(seat);
            member.moving.n_attempts += 1;
            member.moving.cpus += cpus;
            member.n_moves = member.n_moves.wrapping_add(1);
            self.attempts.insert(key.task, Attempt { executor, cpus, waits });
        }
    }

    /// `object` is on `seat` now; `true`: it had set out.
    pub(super) fn land(&mut self, catalog: &Catalog, seat: Seat, object: ObjectId) -> bool {
        let Some(coming) = self.member_mut(seat).coming.remove(&object) else { return false };
        if coming.source == Source::Home {
            let size_bytes = self.size_of(catalog, object);
            self.landed.push(Landed { since: coming.since, reads_ns: coming.reads_ns, size_bytes });
        }
        for task in &coming.tasks {
            let Some(attempt) = self.attempts.get_mut(task) else { continue };
            attempt.waits.retain(|o| *o != object);
            if attempt.waits.is_empty() {
                let cpus = attempt.cpus;
                self.attempts.remove(task);
                self.stop_moving(seat, cpus);
            }
        }
        self.stop_using(catalog, object, &coming);
        true
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
                    if *n == self.config.uploads_max && !self.none_free.is_empty() {
                        self.freed.push(from);
                    }
                    *n -= 1;
                }
            }
            Source::Home => {
                self.n_home_reads -= 1;
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
                self.stop_using(catalog, object, &c);
            }
        }
        self.stir();
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
