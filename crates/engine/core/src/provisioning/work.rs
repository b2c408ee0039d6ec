//! Predicted work: how many tasks there are of which predicted run time, and how fast work arrives.
//!
//! Predictions come from the dispatcher's `run_times`, by label. Tasks are put together in classes by the power of two of
//! their time, so what is sent and looked at does not grow with the number of labels.

use eyas_terms::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The length of one bin of the arrival rate.
const BIN_NS: u64 = 3_000_000_000;
/// The rate now is that of so many bins.
const N_BINS: usize = 10;
/// Three windows of so many bins show whether the rate changes steadily.
const N_BINS_OF_TREND: [usize; 2] = [N_BINS, 2 * N_BINS];
/// The last bin is not full.
const N_BINS_KEPT: usize = 3 * 2 * N_BINS + 1;

/// A whole node, in the parts that tasks take of it.
pub const NODE_PARTS: u64 = 1_000_000;

/// The part of a node that one task takes of which the node holds `n_per_node` at once; a task that is too large for the node
/// takes a whole one. Parts are rounded down, so that what fits together adds up to no more than a node.
pub fn part_of_node(n_per_node: u64) -> u64 {
    NODE_PARTS.checked_div(n_per_node).unwrap_or(NODE_PARTS)
}

/// `n` tasks whose predicted run times add up to `ns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WorkAhead {
    pub n: u64,
    pub ns: u64,
    /// What they take of nodes when all of them run at once; [`NODE_PARTS`] are one node.
    pub parts: u64,
}

impl WorkAhead {
    /// The mean predicted time of one of the tasks, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.ns as f64 / self.n.max(1) as f64
    }

    fn add(&mut self, n: u64, ns: u64, parts: u64) {
        self.n += n;
        self.ns = self.ns.saturating_add(ns);
        self.parts = self.parts.saturating_add(parts);
    }
}

/// Work that has arrived since a dispatcher began to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Arrived {
    pub n: u64,
    /// The sum of the tasks' predicted times, in microseconds.
    pub us: u64,
    /// The same with each task's time multiplied by the part of a node that it takes.
    pub node_us: u64,
}

impl Arrived {
    fn add(&mut self, other: Arrived) {
        self.n += other.n;
        self.us = self.us.saturating_add(other.us);
        self.node_us = self.node_us.saturating_add(other.node_us);
    }

    /// What has come since `before`. A dispatcher that was restarted counts from 0 again.
    fn since(self, before: Arrived) -> Arrived {
        Arrived {
            n: self.n.saturating_sub(before.n),
            us: self.us.saturating_sub(before.us),
            node_us: self.node_us.saturating_sub(before.node_us),
        }
    }
}

/// The predicted work of the tasks that wait for a node and of those that a node has, and the share of nodes of the
/// expected size that these tasks need. If tasks need a resource of which the whole cluster has little, only as many of
/// them count as may run at once.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Ready tasks of which something is predicted, the shortest class first, and of classes of one time those first that take
    /// the least of a node.
    pub queued: Vec<WorkAhead>,
    /// Tasks that some node has, likewise.
    pub running: Vec<WorkAhead>,
    /// Ready tasks of which nothing is predicted; their time is 0.
    pub queued_unknown: WorkAhead,
    /// Tasks that some node has and of which nothing is predicted, likewise.
    pub running_unknown: WorkAhead,
    /// Ready tasks for which a node of the expected size is too small. They are in none of the above.
    pub n_too_large: u64,
    /// All tasks that ever became ready at this dispatcher of which something was predicted at that time.
    pub arrived: Arrived,
}

/// Classes of tasks are by the power of two of their time, and of the part of a node that they take.
fn class_of(work: &WorkAhead) -> (u32, u32) {
    let power = |x: f64| (x.max(1.0) as u64).ilog2();
    (power(work.mean_ns()), power(work.parts as f64 / work.n.max(1) as f64))
}

fn add_to(classes: &mut Vec<WorkAhead>, work: WorkAhead) {
    if work.n == 0 {
        return;
    }
    match classes.binary_search_by_key(&class_of(&work), class_of) {
        Ok(at) => classes[at].add(work.n, work.ns, work.parts),
        Err(at) => classes.insert(at, work),
    }
}

impl Predicted {
    /// Adds `n` queued tasks of `ns` each, of which a node holds `n_per_node`.
    pub fn add_queued(&mut self, n: u64, ns: Option<u64>, n_per_node: u64) {
        let parts = n.saturating_mul(part_of_node(n_per_node));
        match ns {
            _ if n_per_node == 0 => self.n_too_large += n,
            Some(ns) => add_to(&mut self.queued, WorkAhead { n, ns: n.saturating_mul(ns), parts }),
            None => self.queued_unknown.add(n, 0, parts),
        }
    }

    /// Adds `n` tasks that nodes have. One that is too large for a node of the expected size takes a whole node.
    pub fn add_running(&mut self, n: u64, ns: Option<u64>, n_per_node: u64) {
        let parts = n.saturating_mul(part_of_node(n_per_node));
        match ns {
            Some(ns) => add_to(&mut self.running, WorkAhead { n, ns: n.saturating_mul(ns), parts }),
            None => self.running_unknown.add(n, 0, parts),
        }
    }

    /// Adds `n` tasks that have arrived, with `us` microseconds of work in all.
    pub fn add_arrived(&mut self, n: u64, us: u64, n_per_node: u64) {
        let node_us = u128::from(us) * u128::from(part_of_node(n_per_node)) / u128::from(NODE_PARTS);
        self.arrived.add(Arrived { n, us, node_us: node_us as u64 });
    }

    /// Adds what another dispatcher of a group predicts.
    pub fn merge(&mut self, other: &Predicted) {
        for (mine, others) in [(&mut self.queued, &other.queued), (&mut self.running, &other.running)] {
            others.iter().for_each(|work| add_to(mine, *work));
        }
        let (queued, running) = (other.queued_unknown, other.running_unknown);
        self.queued_unknown.add(queued.n, 0, queued.parts);
        self.running_unknown.add(running.n, 0, running.parts);
        self.n_too_large += other.n_too_large;
        self.arrived.add(other.arrived);
    }

    /// What tasks that nodes have take of nodes, in parts.
    pub fn running_parts(&self) -> u64 {
        self.running.iter().fold(self.running_unknown.parts, |sum, work| sum.saturating_add(work.parts))
    }

    /// What queued tasks would take of nodes, in parts.
    pub fn queued_parts(&self) -> u64 {
        self.queued.iter().fold(self.queued_unknown.parts, |sum, work| sum.saturating_add(work.parts))
    }
}

/// The rate at which work arrives, over the last three minutes.
///
/// The rate of half a minute is the median of its ten bins of three seconds, so that a submission of many tasks at once, which
/// fills one bin, is not taken for a rate. A rate that rises or falls over three half minutes, or over three minutes, is taken to
/// go on by the lesser of the two steps, to twice or half of what it is; a rate that has jumped once is taken to stay. Minutes
/// are looked at, too, because a rate that rises once a minute is even for every other half minute.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// The counters at the last look.
    last: Option<Arrived>,
    /// When the last bin began.
    bin_began: Timestamp,
    /// By bin, the newest last; the last one is not full.
    bins: VecDeque<Arrived>,
}

impl Arrivals {
    /// Takes in the counters of [`Predicted`].
    pub fn note(&mut self, now: Timestamp, arrived: Arrived) {
        let Some(before) = self.last.replace(arrived) else {
            self.bin_began = now;
            self.bins.push_back(Arrived::default());
            return;
        };
        let mut n_begun = now.since_ns(self.bin_began) / BIN_NS;
        self.bin_began = self.bin_began.plus_ns(n_begun * BIN_NS);
        n_begun = n_begun.min(N_BINS_KEPT as u64);
        for _ in 0..n_begun {
            self.bins.push_back(Arrived::default());
        }
        while self.bins.len() > N_BINS_KEPT {
            self.bins.pop_front();
        }
        self.bins.back_mut().expect("there is a bin since the first look").add(arrived.since(before));
    }

    /// Nodes, in parts, that tasks will keep busy at the rate which is expected in `ahead_ns` from now.
    pub fn busy_parts(&self, ahead_ns: u64) -> u64 {
        // Microseconds of nodes per nanosecond.
        (self.rate(ahead_ns) * 1e3 * NODE_PARTS as f64) as u64
    }

    /// The rate of a window of `n` bins that ended `ago` bins before the last full one, in microseconds of nodes per nanosecond.
    fn rate_of(&self, ago: usize, n: usize) -> f64 {
        let n_full = self.bins.len().saturating_sub(1);
        // Bins from before the first look count as empty.
        let mut us: Vec<u64> = vec![0; n.saturating_sub(n_full.saturating_sub(ago))];
        us.extend(self.bins.iter().rev().skip(1 + ago).take(n).map(|bin| bin.node_us));
        us.sort_unstable();
        // The lower one of the two in the middle: where a rate jumps, no window has a rate between the two.
        us[(n - 1) / 2] as f64 / BIN_NS as f64
    }

    /// The steady change of the rate as three windows of `n` bins show it, in the rate's unit per nanosecond.
    fn rise(&self, n: usize) -> f64 {
        if self.bins.len() <= 3 * n {
            return 0.0;
        }
        let rates = [0, n, 2 * n].map(|ago| self.rate_of(ago, n));
        let steps = [rates[0] - rates[1], rates[1] - rates[2]];
        let least = if steps[0].abs() < steps[1].abs() { steps[0] } else { steps[1] };
        if steps[0] * steps[1] > 0.0 { least / (n as u64 * BIN_NS) as f64 } else { 0.0 }
    }

    /// The rate that is expected in `ahead_ns` from now.
    fn rate(&self, ahead_ns: u64) -> f64 {
        let rate = self.rate_of(0, N_BINS);
        let rises = N_BINS_OF_TREND.map(|n| self.rise(n));
        let steepest = if rises[0].abs() > rises[1].abs() { rises[0] } else { rises[1] };
        let rise = if rises[0] * rises[1] < 0.0 { 0.0 } else { steepest };
        // The rate is that of the middle of its half minute.
        let ahead_ns = (N_BINS as u64 * BIN_NS) as f64 / 2.0 + ahead_ns as f64;
        (rate + rise * ahead_ns).clamp(rate / 2.0, rate * 2.0)
    }

    /// The tasks that are expected to arrive within `over_ns` from now.
    pub fn expected(&self, over_ns: u64) -> WorkAhead {
        let mut recent = Arrived::default();
        self.bins.iter().rev().take(N_BINS + 1).for_each(|bin| recent.add(*bin));
        if self.bins.is_empty() || recent.n == 0 || recent.node_us == 0 {
            return WorkAhead::default();
        }
        let node_us = self.rate(over_ns / 2) * over_ns as f64;
        // Tasks are expected to be like those of the last half minute.
        let like = |recent_sum: u64| node_us * recent_sum as f64 / recent.node_us as f64;
        let n_at_once = node_us * recent.n as f64 / recent.us.max(1) as f64;
        WorkAhead {
            n: like(recent.n) as u64,
            ns: (like(recent.us) * 1e3) as u64,
            parts: (n_at_once * NODE_PARTS as f64) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// `n` tasks of 1 s that take half a node each.
    fn of_1_s(n: u64) -> Arrived {
        Arrived { n, us: n * 1_000_000, node_us: n * 500_000 }
    }

    /// The expectation for the next 10 s after `seconds` in each of which `rate` says how many tasks of 1 s arrive.
    fn after(seconds: u64, rate: impl Fn(u64) -> u64) -> WorkAhead {
        expected_after(seconds, 10, rate)
    }

    fn expected_after(seconds: u64, over_s: u64, rate: impl Fn(u64) -> u64) -> WorkAhead {
        let (mut arrivals, mut n) = (Arrivals::default(), 0);
        for second in 0..=seconds {
            n += rate(second);
            arrivals.note(Timestamp(second * S), of_1_s(n));
        }
        arrivals.expected(over_s * S)
    }

    #[test]
    fn an_even_rate_is_expected_to_stay() {
        assert_eq!(after(300, |_| 5), WorkAhead { n: 50, ns: 50 * S, parts: 25 * NODE_PARTS });
        assert_eq!(after(31, |_| 5).n, 50, "half a minute is enough");
        assert_eq!(after(12, |_| 5), WorkAhead::default(), "a few seconds are not");
    }

    #[test]
    fn a_burst_is_no_rate() {
        assert_eq!(after(100, |second| if second == 55 { 100_000 } else { 0 }), WorkAhead::default());
        assert_eq!(after(300, |second| if second == 280 { 100_000 } else { 5 }).ns, 50 * S);
    }

    #[test]
    fn a_rising_rate_is_expected_to_rise_and_a_falling_one_to_fall() {
        let (rises, falls) = (after(240, |second| second / 10), after(240, |second| 30 - second / 10));
        // 24 and 6 tasks per second arrive at the end.
        assert!((235..=255).contains(&rises.n), "{rises:?}");
        assert!((50..=70).contains(&falls.n), "{falls:?}");
        let jumps = expected_after(210, 100, |second| if second < 180 { 1 } else { 100 });
        assert_eq!(jumps.n, 100 * 100, "a jump is no trend");
        let soars = expected_after(210, 200, |second| 1 << (second / 20));
        let rate = expected_after(210, 200, |second| if second < 180 { 0 } else { 1 << (second / 20) });
        assert_eq!(soars.n, 2 * rate.n, "at most twice the rate of the last half minute");
    }

    #[test]
    fn a_rate_that_rises_once_a_minute_is_taken_to_rise_at_every_moment() {
        let rate = |second: u64| (100.0 * 1.3f64.powi((second / 60) as i32)) as u64;
        for second in 240..300 {
            let mut arrivals = Arrivals::default();
            let mut n = 0;
            for now in 0..=second {
                n += rate(now);
                arrivals.note(Timestamp(now * S), of_1_s(n));
            }
            // Each task of 1 s takes half a node.
            let (busy, then) = (arrivals.busy_parts(45 * S) / NODE_PARTS, rate(second + 45) / 2);
            // Until half of the half minute is of the new rate, the old one counts.
            assert!(busy * 10 >= then * 6 && busy * 10 <= then * 14, "{busy} nodes for {then} at {second}");
        }
        assert_eq!(Arrivals::default().busy_parts(S), 0);
    }

    #[test]
    fn a_dispatcher_that_counts_anew_takes_nothing_away() {
        let mut arrivals = Arrivals::default();
        for second in 0..200 {
            let n = if second < 100 { 5 * second } else { 5 * (second - 100) };
            arrivals.note(Timestamp(second * S), of_1_s(n));
        }
        assert_eq!(arrivals.expected(10 * S).n, 50);
    }

    #[test]
    fn classes_are_few_and_keep_sums() {
        let mut predicted = Predicted::default();
        for ns in (1..2000).rev() {
            predicted.add_queued(3, Some(ns * 1_000_000), 2);
            predicted.add_queued(1, Some(ns * 1_000_000), 16);
        }
        let classes = &predicted.queued;
        assert!(classes.len() < 30, "{classes:?}");
        assert_eq!(classes.iter().map(|work| work.n).sum::<u64>(), 4 * 1999);
        assert_eq!(classes.iter().map(|work| work.ns).sum::<u64>(), 4 * (1999 * 2000 / 2) * 1_000_000);
        assert_eq!(predicted.queued_parts(), 1999 * NODE_PARTS * 3 / 2 + 1999 * NODE_PARTS / 16);
        assert!(classes.is_sorted_by_key(class_of));
        let mut whole = predicted.clone();
        whole.merge(&Predicted { arrived: of_1_s(7), n_too_large: 2, ..predicted });
        assert_eq!(whole.queued.iter().map(|work| work.n).sum::<u64>(), 8 * 1999);
        assert_eq!((whole.arrived.n, whole.n_too_large, whole.queued.len()), (7, 2, whole.queued.len()));
    }

    #[test]
    fn three_tasks_that_share_a_node_take_no_more_than_it() {
        let mut predicted = Predicted::default();
        predicted.add_queued(3, None, 3);
        assert_eq!(predicted.queued_parts().div_ceil(NODE_PARTS), 1);
        predicted.add_queued(4, None, 0);
        predicted.add_running(1, None, 0);
        assert_eq!((predicted.n_too_large, predicted.queued_unknown.n), (4, 3));
        assert_eq!(predicted.running_parts(), NODE_PARTS);
    }
}
