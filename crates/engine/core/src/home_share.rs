//! How much each executor may move from and to home storage: rate and streams go to the executors that use
//! them.
//!
//! A limit on home is for all executors together. [`HomeShares`] is the dispatcher's side. It divides the
//! limit among the executors that move bytes now, *max-min fairly* (no executor gets more while another one
//! that wants more has less), as a shared file system does. So a lone reader has nearly the whole limit.
//! [`HomeUse`] is an executor's side: it reports when a use begins and ends. Both sides take reports and the
//! time, and give messages for a driver to deliver.
//!
//! Invariant, checked by [`HomeShares::sanity_check`]: the shares that executors *hold* are together at most
//! the limit. An executor counts as holding the largest of the shares that it was sent and has not yet
//! acknowledged. So a share grows only by what others are known to have given back: neither a slow connection
//! nor a lost message makes the sum larger. There are three exceptions. Where the limit is smaller than one
//! unit for each executor, each has one unit. An executor that joins before others have made room has one
//! unit, too. An executor that was given up and comes back may still have older transfers, whose room other
//! executors have by now; these are no part of the sum.
//!
//! An idle executor keeps a small base share, which it uses while it asks for more; all base shares together
//! are [`RESERVE`] of the limit. An active executor that moved less than it might (because of a slow disk or
//! small files) is limited to a little more than that until it moves more, as long as others want what it leaves. What nobody
//! wants is divided evenly: an executor that rests between two reads then reads the second one no slower.
//!
//! Few messages are sent. A use ends [`LINGER_NS`] after its last transfer. Shares are planned at most every
//! [`PLAN_NS_MIN`], and so that at most a thousand executors a second are sent one. Shares among many
//! executors are rounded, and growth by less than a sixteenth waits. A silent executor keeps its share until
//! it is given up, as it may still be reading.
//!
//! Not here: which transfer of an executor comes next (`executor`), and the token bucket that limits the rate
//! (the driver). The simulator's home shares its rate max-min fairly at every moment; the messages here
//! approach that.

use eyas_terms::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One part in this many of the limit is for the base shares of idle executors.
const RESERVE: u64 = 32;
/// An executor is idle when nothing has moved for this long.
pub const LINGER_NS: u64 = 100_000_000;
/// An active executor reports this often how much it has moved.
pub const REPORT_NS: u64 = 500_000_000;
/// Bytes moved in less time than this say nothing about how much could have been moved.
const MEASURED_NS_MIN: u64 = 400_000_000;
/// Bytes move in pieces, so a rate below this cannot be distinguished from waiting for the next piece.
const CAP_MIN_BYTES_PER_S: u64 = 64 * 1024;
const PLAN_NS_MIN: u64 = 10_000_000;
/// Added to that time for each executor that was sent a new share in the last plan.
const PLAN_NS_PER_MESSAGE: u64 = 1_000_000;
/// With more active executors than this, shares are rounded down so that one more executor does not change
/// all shares.
const EXACT_N_MAX: usize = 16;

/// What home storage allows, for all executors of this dispatcher together.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct HomeLimits {
    pub bytes_per_s: Option<u64>,
    /// Transfers that may run at once.
    pub streams: Option<u32>,
}

/// The share of one executor. `None` and `u32::MAX` mean no limit.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct HomeShare {
    /// Counts the shares that this executor was sent, so that its answer says which of them it has received.
    pub number: u32,
    pub bytes_per_s: Option<u64>,
    pub streams: u32,
}

impl HomeShare {
    pub const UNLIMITED: HomeShare = HomeShare { number: 0, bytes_per_s: None, streams: u32::MAX };
}

impl HomeShare {
    fn bytes(self) -> u64 {
        self.bytes_per_s.unwrap_or(0)
    }

    /// The larger value of each field.
    fn or_more(self, other: HomeShare) -> HomeShare {
        HomeShare {
            number: self.number.max(other.number),
            bytes_per_s: self.bytes_per_s.max(other.bytes_per_s),
            streams: self.streams.max(other.streams),
        }
    }
}

/// How an executor uses home.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct HomeReport {
    pub active: bool,
    /// Bytes moved since the executor's start, in both directions.
    pub moved_bytes: u64,
    /// The share that the executor follows now. `streams` is larger than in the share that it was sent while
    /// older transfers still run.
    pub share: HomeShare,
}

// ---------------------------------------------------------------- an executor's side

/// Decides when an executor has something to report.
#[derive(Default, Debug)]
pub struct HomeUse {
    last_report: Option<(Timestamp, HomeReport)>,
    used: Option<Timestamp>,
}

impl HomeUse {
    /// What the dispatcher has to be sent now, if anything. To be called whenever an argument changes, and
    /// from time to time.
    ///
    /// * `n_streams`: transfers from and to home that are under way;
    /// * `share`: the share that was received last.
    pub fn report(
        &mut self,
        now: Timestamp,
        n_streams: u32,
        moved_bytes: u64,
        share: HomeShare,
    ) -> Option<HomeReport> {
        if n_streams > 0 {
            self.used = Some(now);
        }
        let active = self.used.is_some_and(|used| now.since_ns(used) < LINGER_NS);
        let share = HomeShare { streams: share.streams.max(n_streams), ..share };
        let report = HomeReport { active, moved_bytes, share };
        let is_news = self.last_report.is_none_or(|(at, last)| {
            (last.active, last.share) != (active, share) || active && now.since_ns(at) >= REPORT_NS
        });
        is_news.then(|| {
            self.last_report = Some((now, report));
            report
        })
    }

    /// Forgets what was reported, because the dispatcher that is connected now knows nothing yet.
    pub fn forget_report(&mut self) {
        self.last_report = None;
    }
}

// ---------------------------------------------------------------- the dispatcher's side

#[derive(Debug)]
struct NodeShare {
    active: bool,
    /// The share that the executor should have; it is sent as other executors make room. (The `number` means
    /// nothing here.)
    target: HomeShare,
    last_sent: HomeShare,
    /// The most that the executor may be using now.
    held: HomeShare,
    /// Streams beyond any share that the executor was sent: they belong to transfers that began before it was
    /// given up and came back.
    older_streams: u32,
    /// The executor has shown that it moves no more than this.
    cap_bytes_per_s: Option<u64>,
    /// Where the measurement began: when, and how many bytes had been moved. `None` while idle.
    measured: Option<(Timestamp, u64)>,
    /// The smallest rate that the executor was limited to since then.
    least_bytes_per_s: u64,
}

/// Divides among executors what home allows. See the module.
#[derive(Debug)]
pub struct HomeShares {
    limits: HomeLimits,
    nodes: BTreeMap<ExecutorId, NodeShare>,
    /// Something changed that shares depend on.
    unplanned: bool,
    /// When shares were planned last, and how long that plan lasts.
    planned: Timestamp,
    plan_ns: u64,
    /// Targets or room changed since shares were last sent.
    unsent: bool,
    /// A target is waiting for room.
    waiting: bool,
}

impl HomeShares {
    pub fn new(limits: HomeLimits) -> HomeShares {
        HomeShares {
            limits,
            nodes: BTreeMap::new(),
            unplanned: false,
            planned: Timestamp(0),
            plan_ns: 0,
            unsent: false,
            waiting: false,
        }
    }

    fn is_limited(&self) -> bool {
        self.limits != HomeLimits::default()
    }

    /// `executor` is connected (again). Returns its first share, which the driver must send before any other.
    pub fn joined(&mut self, executor: ExecutorId) -> HomeShare {
        if !self.is_limited() {
            return HomeShare::UNLIMITED;
        }
        // The executor may still use what it held before its connection broke.
        let before = self.nodes.remove(&executor).map(|node| (node.last_sent.number, node.held));
        let (bytes_free, _) = self.room(self.nodes.values().map(|node| node.held));
        let n = self.nodes.len() + 1;
        let base = HomeShare {
            number: before.map_or(1, |(number, _)| number + 1),
            bytes_per_s: self.limits.bytes_per_s.map(|all| base_of(all, n).min(bytes_free).max(1)),
            streams: self.limits.streams.map_or(u32::MAX, |_| 1),
        };
        let node = NodeShare {
            active: false,
            target: base,
            last_sent: base,
            held: before.map_or(base, |(_, held)| held.or_more(base)),
            older_streams: 0,
            cap_bytes_per_s: None,
            measured: None,
            least_bytes_per_s: 0,
        };
        self.nodes.insert(executor, node);
        self.unplanned = true;
        base
    }

    /// `executor` was given up or has said goodbye.
    pub fn left(&mut self, executor: ExecutorId) {
        if self.nodes.remove(&executor).is_some() {
            self.unplanned = true;
            self.unsent = true;
        }
    }

    pub fn reported(&mut self, now: Timestamp, executor: ExecutorId, report: HomeReport) {
        let Some(node) = self.nodes.get_mut(&executor) else { return };
        // A report that was sent before the last share arrived says nothing about the shares in between.
        if report.share.number == node.last_sent.number && node.held != report.share {
            let more = report.share.streams.saturating_sub(node.held.streams);
            let beyond = report.share.streams.saturating_sub(node.last_sent.streams);
            node.older_streams = (node.older_streams + more).min(beyond);
            node.held = report.share;
            self.unsent |= self.waiting;
        }
        if node.active != report.active {
            node.active = report.active;
            node.cap_bytes_per_s = None;
            node.measured = None;
            self.unplanned = true;
        }
        if !node.active || self.limits.bytes_per_s.is_none() {
            return;
        }
        let rate = report.share.bytes_per_s.unwrap_or(u64::MAX);
        match node.measured {
            // A counter that went back belongs to another process.
            Some((since, moved)) if report.moved_bytes >= moved => {
                node.least_bytes_per_s = node.least_bytes_per_s.min(rate);
                let ns = now.since_ns(since);
                if ns < MEASURED_NS_MIN {
                    return;
                }
                let used = u128::from(report.moved_bytes - moved) * 1_000_000_000 / u128::from(ns);
                let used = u64::try_from(used).unwrap_or(u64::MAX);
                let cap = (used < node.least_bytes_per_s / 4 * 3)
                    .then(|| rounded(used / 2 * 3).max(CAP_MIN_BYTES_PER_S));
                self.unplanned |= node.cap_bytes_per_s != cap;
                node.cap_bytes_per_s = cap;
            }
            _ => {}
        }
        node.measured = Some((now, report.moved_bytes));
        node.least_bytes_per_s = rate;
    }

    /// When [`Self::divide`] has something to do even without a report.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.unplanned.then_some(self.planned.plus_ns(self.plan_ns))
    }

    /// Gives the executors that must be sent a new share. To be called after reports, and at
    /// [`Self::wake_at`].
    pub fn divide(&mut self, now: Timestamp, out: &mut Vec<(ExecutorId, HomeShare)>) {
        if !self.is_limited() {
            return;
        }
        let n_before = out.len();
        // If the clock was set back, do not wait.
        let is_due = now < self.planned || now.since_ns(self.planned) >= self.plan_ns;
        let plans = self.unplanned && is_due;
        if plans {
            self.unplanned = false;
            self.unsent = true;
            self.plan();
        }
        if self.unsent {
            self.unsent = false;
            self.tell(out);
        }
        if plans {
            let n_told = (out.len() - n_before) as u64;
            self.planned = now;
            self.plan_ns = PLAN_NS_MIN.max(n_told * PLAN_NS_PER_MESSAGE);
        }
    }

    /// The bytes per second and the streams that are left when shares are held.
    fn room(&self, held: impl Iterator<Item = HomeShare>) -> (u64, u64) {
        let sum = |(bytes, streams): (u64, u64), share: HomeShare| {
            (bytes.saturating_add(share.bytes()), streams + u64::from(share.streams))
        };
        let (bytes, streams) = held.fold((0, 0), sum);
        let limits = self.limits;
        (
            limits.bytes_per_s.unwrap_or(0).saturating_sub(bytes),
            limits.streams.map_or(0, u64::from).saturating_sub(streams),
        )
    }

    fn plan(&mut self) {
        let n = self.nodes.len();
        let active = || self.nodes.values().filter(|node| node.active);
        let bytes = self.limits.bytes_per_s.map(|all| {
            let base = base_of(all, n).max(1);
            let mut wants: Vec<u64> = active()
                .map(|n| n.cap_bytes_per_s.map_or(u64::MAX, |cap| cap.saturating_sub(base)))
                .collect();
            let spare = all.saturating_sub(base * n as u64);
            let level = fair_level(spare, &mut wants);
            let wanted: u64 = wants.iter().map(|want| level.min(*want)).sum();
            let unwanted = (spare - wanted) / wants.len().max(1) as u64;
            let exact = |rate| if wants.len() > EXACT_N_MAX { rounded(rate) } else { rate };
            (base, exact(level), exact(unwanted))
        });
        let streams = self.limits.streams.map(|all| {
            let spare = u64::from(all).saturating_sub(n as u64);
            spare / active().count().max(1) as u64
        });
        for node in self.nodes.values_mut() {
            node.target = HomeShare {
                number: 0,
                bytes_per_s: bytes.map(|(base, level, unwanted)| match node.cap_bytes_per_s {
                    _ if !node.active => base,
                    Some(cap) => base + level.min(cap.saturating_sub(base)) + unwanted,
                    None => base + level + unwanted,
                }),
                streams: streams.map_or(u32::MAX, |more| 1 + if node.active { more as u32 } else { 0 }),
            };
        }
    }

    /// Sends smaller shares at once, and larger ones as far as there is room.
    fn tell(&mut self, out: &mut Vec<(ExecutorId, HomeShare)>) {
        let (mut bytes_free, mut streams_free) = self.room(self.nodes.values().map(|node| node.held));
        self.waiting = false;
        for (executor, node) in &mut self.nodes {
            let (target, last_sent) = (node.target, node.last_sent);
            let mut share = HomeShare {
                number: last_sent.number + 1,
                bytes_per_s: last_sent.bytes_per_s.min(target.bytes_per_s),
                streams: last_sent.streams.min(target.streams),
            };
            if target.bytes() - share.bytes() > share.bytes() / 16 {
                let more = target.bytes().saturating_sub(node.held.bytes());
                if more <= bytes_free {
                    bytes_free -= more;
                    share.bytes_per_s = target.bytes_per_s;
                } else {
                    self.waiting = true;
                }
            }
            if target.streams > share.streams {
                let more = u64::from(target.streams.saturating_sub(node.held.streams));
                if more <= streams_free {
                    streams_free -= more;
                    share.streams = target.streams;
                } else {
                    self.waiting = true;
                }
            }
            if (share.bytes_per_s, share.streams) != (last_sent.bytes_per_s, last_sent.streams) {
                node.last_sent = share;
                node.held = node.held.or_more(share);
                out.push((*executor, share));
            }
        }
    }

    /// Checks the module's invariant. For tests.
    pub fn sanity_check(&self) {
        let n = self.nodes.len() as u64;
        if let Some(all) = self.limits.bytes_per_s {
            let held: u64 = self.nodes.values().map(|node| node.held.bytes()).sum();
            assert!(held <= all.saturating_add(n), "{held} B/s held of {all}");
        }
        if let Some(all) = self.limits.streams {
            let given = |node: &NodeShare| u64::from(node.held.streams.saturating_sub(node.older_streams));
            let held: u64 = self.nodes.values().map(given).sum();
            assert!(held <= u64::from(all) + n, "{held} streams held of {all}");
        }
    }
}

/// The base share of an idle executor among `n`. It changes only when `n` passes a power of two, so that a
/// joining executor does not change all base shares.
fn base_of(all: u64, n: usize) -> u64 {
    all / RESERVE / (n as u64).next_power_of_two()
}

/// The level up to which each of `wants` is served, so that together they get at most `spare`.
fn fair_level(spare: u64, wants: &mut [u64]) -> u64 {
    wants.sort_unstable();
    let mut left = spare;
    for (i, want) in wants.iter().enumerate() {
        let level = left / (wants.len() - i) as u64;
        if *want >= level {
            return level;
        }
        left -= want;
    }
    // Every want is served in full.
    wants.last().copied().unwrap_or(spare)
}

/// The five leading binary digits of `rate`, so that a small change of demand changes nothing.
fn rounded(rate: u64) -> u64 {
    rate & !(rate.checked_ilog2().map_or(0, |log| (1u64 << log.saturating_sub(4)) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const MS: u64 = 1_000_000;

    /// Executors, and connections that keep the order of what is said and nothing else.
    struct World {
        now: Timestamp,
        shares: HomeShares,
        executors: BTreeMap<ExecutorId, Executor>,
        n_told: usize,
    }

    #[derive(Default)]
    struct Executor {
        home_use: HomeUse,
        share: Option<HomeShare>,
        n_streams: u32,
        moved_bytes: u64,
        /// The rate that the executor's disk allows.
        speed: Option<u64>,
        inbox: VecDeque<HomeShare>,
        outbox: VecDeque<HomeReport>,
    }

    impl World {
        fn new(bytes_per_s: Option<u64>, streams: Option<u32>, n: u32) -> World {
            let shares = HomeShares::new(HomeLimits { bytes_per_s, streams });
            let mut w = World { now: Timestamp(0), shares, executors: BTreeMap::new(), n_told: 0 };
            (1..=n).for_each(|e| w.join(e));
            w.run(1000);
            w
        }

        /// Also again, after its connection broke.
        fn join(&mut self, e: u32) {
            let base = self.shares.joined(ExecutorId(e));
            let executor = self.executors.entry(ExecutorId(e)).or_default();
            executor.home_use.forget_report();
            executor.outbox.clear();
            executor.inbox = [base].into();
        }

        fn leave(&mut self, e: u32) {
            self.executors.remove(&ExecutorId(e));
            self.shares.left(ExecutorId(e));
        }

        fn read(&mut self, e: u32, n_streams: u32) {
            if let Some(executor) = self.executors.get_mut(&ExecutorId(e)) {
                // Not beyond what it was allowed; but older transfers go on.
                let max = executor.share.map_or(0, |s| s.streams).max(executor.n_streams);
                executor.n_streams = n_streams.min(max);
            }
        }

        fn divide(&mut self) {
            let mut out = vec![];
            self.shares.divide(self.now, &mut out);
            self.n_told += out.len();
            for (e, share) in out {
                self.executors.get_mut(&e).expect("only those who are here").inbox.push_back(share);
            }
            self.shares.sanity_check();
        }

        /// One message to `e`, or from it.
        fn deliver(&mut self, e: u32, to: bool) {
            let Some(executor) = self.executors.get_mut(&ExecutorId(e)) else { return };
            if to {
                if let Some(share) = executor.inbox.pop_front() {
                    executor.share = Some(share);
                }
            } else if let Some(report) = executor.outbox.pop_front() {
                self.shares.reported(self.now, ExecutorId(e), report);
            }
        }

        fn pass(&mut self, ns: u64) {
            self.now = self.now.plus_ns(ns);
            for executor in self.executors.values_mut() {
                let Some(share) = executor.share else { continue };
                if executor.n_streams > 0 {
                    let rate = share.bytes_per_s.unwrap_or(0).min(executor.speed.unwrap_or(u64::MAX));
                    executor.moved_bytes += (u128::from(rate) * u128::from(ns) / 1_000_000_000) as u64;
                }
                let (now, n_streams, moved) = (self.now, executor.n_streams, executor.moved_bytes);
                executor.outbox.extend(executor.home_use.report(now, n_streams, moved, share));
            }
        }

        /// `ms` milliseconds in which every message arrives within one.
        fn run(&mut self, ms: u64) {
            for _ in 0..ms {
                self.pass(MS);
                let numbers: Vec<u32> = self.executors.keys().map(|e| e.0).collect();
                for e in numbers {
                    for _ in 0..8 {
                        self.deliver(e, false);
                        self.deliver(e, true);
                    }
                }
                self.divide();
            }
        }

        fn rate(&self, e: u32) -> u64 {
            self.executors[&ExecutorId(e)].share.unwrap().bytes_per_s.unwrap()
        }

        fn streams(&self, e: u32) -> u32 {
            self.executors[&ExecutorId(e)].share.unwrap().streams
        }

        /// The shares that executors follow, together.
        fn kept(&self) -> (u64, u64) {
            let shares = || self.executors.values().filter_map(|e| Some((e.share?, e.n_streams)));
            (
                shares().map(|(s, _)| s.bytes_per_s.unwrap_or(0)).sum(),
                shares().map(|(s, n)| u64::from(s.streams.max(n))).sum(),
            )
        }
    }

    const RATE: u64 = 100_000_000;

    #[test]
    fn a_lone_reader_gets_nearly_all_within_milliseconds() {
        let mut w = World::new(Some(RATE), Some(16), 4);
        assert!(w.rate(1) < RATE / 100);
        w.read(1, 1);
        w.run(5);
        assert!(w.rate(1) > RATE / 32 * 31, "{}", w.rate(1));
        assert_eq!(w.streams(1), 13, "all but one each for the others");
        // A second one: half each.
        w.read(2, 1);
        w.run(25);
        assert_eq!(w.rate(1), w.rate(2));
        assert!(w.rate(1) > RATE / 2 / 32 * 31);
        // The first ends: the second has it all, once that is sure.
        w.read(1, 0);
        w.run(LINGER_NS / MS + 25);
        assert!(w.rate(2) > RATE / 32 * 31);
        assert!(w.rate(1) < RATE / 100);
    }

    #[test]
    fn without_limits_nobody_hears_anything() {
        let mut w = World::new(None, None, 3);
        assert_eq!(w.executors[&ExecutorId(1)].share, Some(HomeShare::UNLIMITED));
        w.read(1, 1);
        w.run(2000);
        assert_eq!(w.n_told, 0);
    }

    #[test]
    fn who_cannot_use_its_share_leaves_it_to_others() {
        let mut w = World::new(Some(RATE), None, 2);
        w.executors.get_mut(&ExecutorId(1)).unwrap().speed = Some(RATE / 10);
        w.read(1, 1);
        w.read(2, 1);
        w.run(2000);
        assert!(w.rate(2) > RATE / 100 * 80, "{}", w.rate(2));
        assert!(w.rate(1) > RATE / 10, "it is not held below what it can");
        // Its disk recovers.
        w.executors.get_mut(&ExecutorId(1)).unwrap().speed = None;
        w.run(2000);
        assert_eq!(w.rate(1), w.rate(2));
    }

    #[test]
    fn who_rests_between_reads_has_what_nobody_wants() {
        let mut w = World::new(Some(RATE), None, 2);
        // Each file takes 50 ms to come, and 50 ms to unpack.
        let files = |w: &mut World, readers: &[u32]| {
            for _ in 0..40 {
                readers.iter().for_each(|e| w.read(*e, 1));
                w.run(50);
                readers.iter().for_each(|e| w.read(*e, 0));
                w.run(50);
            }
        };
        files(&mut w, &[1]);
        assert!(w.rate(1) > RATE / 32 * 31, "{}", w.rate(1));
        files(&mut w, &[1, 2]);
        // Growth by less than a sixteenth waits.
        assert!(w.rate(1).min(w.rate(2)) > RATE / 2 / 16 * 15, "{} and {}", w.rate(1), w.rate(2));
        // A reader that does not rest wants it.
        w.read(2, 1);
        for _ in 0..40 {
            w.read(1, 1);
            w.run(20);
            w.read(1, 0);
            w.run(80);
        }
        assert!(w.rate(2) > RATE / 100 * 60, "{}", w.rate(2));
    }

    #[test]
    fn a_lost_reader_gives_its_share_back_and_a_silent_one_keeps_it() {
        let mut w = World::new(Some(RATE), None, 3);
        w.read(1, 1);
        w.run(50);
        let silent = w.executors.remove(&ExecutorId(1)).unwrap();
        w.read(2, 1);
        let before = w.rate(2);
        for _ in 0..500 {
            w.pass(MS);
            w.deliver(2, false);
            // What the silent executor is sent goes nowhere.
            let mut out = vec![];
            w.shares.divide(w.now, &mut out);
            assert!(out.iter().all(|(e, _)| *e == ExecutorId(1)), "{out:?}");
            w.shares.sanity_check();
        }
        assert_eq!(w.rate(2), before, "the first one may be reading still");
        drop(silent);
        w.leave(1);
        w.run(20);
        assert!(w.rate(2) > RATE / 32 * 31);
    }

    #[test]
    fn restless_readers_are_no_flood_of_messages() {
        let n = 400;
        let mut w = World::new(Some(RATE), Some(64), n);
        w.n_told = 0;
        // Each of them begins and ends some 4 times a second.
        for ms in 0..2000u32 {
            for e in (1..=n).filter(|e| (e * 7 + ms) % 125 == 0) {
                w.read(e, (e + ms / 125) % 2);
            }
            w.run(1);
        }
        assert!(w.n_told <= 2 * 2100, "{} messages in two seconds", w.n_told);
    }

    #[test]
    fn many_readers_get_the_same_and_leave_little() {
        for n in [5, 16, 17, 33, 100, 333] {
            let mut w = World::new(Some(RATE), None, n);
            (1..=n).for_each(|e| w.read(e, 1));
            w.run(1500);
            let rates: Vec<u64> = (1..=n).map(|e| w.rate(e)).collect();
            assert!(rates.iter().all(|r| *r == rates[0]), "{rates:?}");
            assert!(w.kept().0 > RATE / 100 * 90, "{} of {RATE} with {n}", w.kept().0);
        }
    }

    #[test]
    fn fair_levels() {
        let level = |spare, wants: &[u64]| fair_level(spare, &mut wants.to_vec());
        assert_eq!(level(100, &[u64::MAX]), 100);
        assert_eq!(level(100, &[u64::MAX, 10]), 90);
        assert_eq!(level(100, &[u64::MAX, 10, 60]), 45);
        assert_eq!(level(100, &[20, 10]), 20);
        assert_eq!(level(100, &[]), 100);
        assert_eq!((rounded(0), rounded(31), rounded(33), rounded(1023)), (0, 31, 32, 992));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read(u32, u32),
        Pass(u64),
        Deliver(u32, bool),
        Divide,
        Reconnect(u32),
        Leave(u32),
        Speed(u32, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let e = || 1u32..6;
        prop_oneof![
            3 => (e(), 0u32..5).prop_map(|(e, n)| Step::Read(e, n)),
            3 => (0u64..200).prop_map(|ms| Step::Pass(ms * MS)),
            8 => (e(), any::<bool>()).prop_map(|(e, to)| Step::Deliver(e, to)),
            4 => Just(Step::Divide),
            1 => e().prop_map(Step::Reconnect),
            1 => e().prop_map(Step::Leave),
            1 => (e(), 1u64..1 << 30).prop_map(|(e, speed)| Step::Speed(e, speed)),
        ]
    }

    proptest! {
        /// However late messages arrive and whatever breaks, executors never keep to more than the limit; and when all
        /// is well again, whoever reads has its fair part of it.
        #[test]
        fn the_limit_is_kept_and_shares_become_fair(
            rate in prop_oneof![Just(RATE), 1u64..200, 1000u64..1 << 40],
            streams in 1u32..40,
            n in 1u32..6,
            steps in proptest::collection::vec(step(), 0..300),
        ) {
            let mut w = World::new(Some(rate), Some(streams), n);
            for step in steps {
                match step {
                    Step::Read(e, n) => w.read(e, n),
                    Step::Pass(ns) => w.pass(ns),
                    Step::Deliver(e, to) => w.deliver(e, to),
                    Step::Divide => w.divide(),
                    Step::Reconnect(e) => w.join(e),
                    Step::Leave(e) => w.leave(e),
                    Step::Speed(e, speed) => {
                        if let Some(executor) = w.executors.get_mut(&ExecutorId(e)) {
                            executor.speed = Some(speed);
                        }
                    }
                }
                let (bytes, streams_kept) = w.kept();
                let n = w.executors.len() as u64;
                prop_assert!(bytes <= rate + n, "{} B/s kept of {}", bytes, rate);
                prop_assert!(streams_kept <= u64::from(streams) + n);
                w.shares.sanity_check();
            }
            w.join(7);
            w.executors.values_mut().for_each(|e| (e.n_streams, e.speed) = (0, None));
            w.run(1000);
            w.read(7, 1);
            w.run(2000);
            let n = w.executors.len() as u64;
            prop_assert!(w.rate(7) + n >= rate / 32 * 30, "{} of {}", w.rate(7), rate);
            prop_assert_eq!(u64::from(w.streams(7)), 1 + u64::from(streams).saturating_sub(n));
            let reading: Vec<u32> = w.executors.keys().map(|e| e.0).collect();
            reading.iter().for_each(|e| w.read(*e, 1));
            w.run(2000);
            let rates: Vec<u64> = reading.iter().map(|e| w.rate(*e)).collect();
            prop_assert!(rates.iter().all(|r| r.abs_diff(rates[0]) <= 1), "{:?}", rates);
        }
    }
}
