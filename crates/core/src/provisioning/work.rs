//! Predicted work: how many tasks there are of which predicted run time, and how fast work arrives.
//!
//! Predictions come from the dispatcher's `run_times`, by label. Tasks are put together in classes by the power of two of
//! their time, so what is sent and looked at does not grow with the number of labels.

use crate::types::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The length of one bin of the arrival rate.
const BIN_NS: u64 = 3_000_000_000;
/// The rate now is that of so many bins; it is compared with as many bins before, twice.
const N_BINS: usize = 10;
/// Three half minutes show whether the rate changes steadily; the last bin is not full.
const N_BINS_KEPT: usize = 3 * N_BINS + 1;

/// `n` tasks whose predicted run times add up to `ns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    pub n: u64,
    pub ns: u64,
}

impl Work {
    /// The mean predicted time of one of the tasks, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.ns as f64 / self.n.max(1) as f64
    }
}

/// What is predicted of the tasks that wait for a node and of those that a node has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Ready tasks of which something is predicted, the shortest class first.
    pub queued: Vec<Work>,
    /// Tasks that some node has, likewise.
    pub running: Vec<Work>,
    /// All tasks that ever became ready at this dispatcher of which something was predicted at that time, and the sum of
    /// their predicted times in microseconds.
    pub n_arrived: u64,
    pub arrived_us: u64,
}

impl Predicted {
    /// Adds `n` tasks of `ns` each to classes.
    pub fn add(classes: &mut Vec<Work>, n: u64, ns: u64) {
        if n == 0 {
            return;
        }
        let class_of = |ns: f64| (ns.max(1.0) as u64).ilog2();
        let sum_ns = n.saturating_mul(ns);
        match classes.binary_search_by_key(&class_of(ns as f64), |work| class_of(work.mean_ns())) {
            Ok(at) => {
                classes[at].n += n;
                classes[at].ns = classes[at].ns.saturating_add(sum_ns);
            }
            Err(at) => classes.insert(at, Work { n, ns: sum_ns }),
        }
    }

    /// Adds what another dispatcher of a group predicts.
    pub fn merge(&mut self, other: &Predicted) {
        for (mine, others) in [(&mut self.queued, &other.queued), (&mut self.running, &other.running)] {
            for work in others {
                Predicted::add(mine, work.n, work.ns / work.n.max(1));
            }
        }
        self.n_arrived += other.n_arrived;
        self.arrived_us = self.arrived_us.saturating_add(other.arrived_us);
    }
}

/// The rate at which work arrives, over the last minute and a half.
///
/// The rate of half a minute is the median of its ten bins of three seconds, so that a submission of many tasks at once, which
/// fills one bin, is not taken for a rate. A rate that rises or falls over three half minutes is taken to go on by the lesser
/// of the two steps, to twice or half of what it is; a rate that has jumped once is taken to stay.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// The counters at the last look.
    last: Option<(u64, u64)>,
    /// When the last bin began.
    bin_began: Timestamp,
    /// Tasks and microseconds of work by bin, the newest last; the last one is not full.
    bins: VecDeque<(u64, u64)>,
}

impl Arrivals {
    /// Takes in the counters of [`Predicted`].
    pub fn note(&mut self, now: Timestamp, n_arrived: u64, arrived_us: u64) {
        let Some((n, us)) = self.last.replace((n_arrived, arrived_us)) else {
            self.bin_began = now;
            self.bins.push_back((0, 0));
            return;
        };
        let mut n_begun = now.since_ns(self.bin_began) / BIN_NS;
        self.bin_began = self.bin_began.plus_ns(n_begun * BIN_NS);
        n_begun = n_begun.min(N_BINS_KEPT as u64);
        for _ in 0..n_begun {
            self.bins.push_back((0, 0));
        }
        while self.bins.len() > N_BINS_KEPT {
            self.bins.pop_front();
        }
        // A dispatcher that was restarted counts from 0 again.
        let bin = self.bins.back_mut().expect("there is a bin since the first look");
        bin.0 += n_arrived.saturating_sub(n);
        bin.1 += arrived_us.saturating_sub(us);
    }

    /// The tasks that are expected to arrive within `over_ns` from now.
    pub fn expected(&self, over_ns: u64) -> Work {
        let n_full = self.bins.len().saturating_sub(1);
        let full = |from: usize, to: usize| {
            // Bins from before the first look count as empty.
            let mut us: Vec<u64> = vec![0; (to - from).saturating_sub(n_full.saturating_sub(from))];
            us.extend(self.bins.iter().rev().skip(1 + from).take(to - from).map(|(_, us)| *us));
            us.sort_unstable();
            (us[us.len() / 2 - 1] + us[us.len() / 2]) as f64 / 2.0 / BIN_NS as f64
        };
        let rate = full(0, N_BINS);
        let recent = self.bins.iter().rev().take(N_BINS + 1);
        let (n, us) = recent.fold((0, 0), |(n, us), bin| (n + bin.0, us + bin.1));
        if rate <= 0.0 || n == 0 || us == 0 {
            return Work::default();
        }
        let half_ns = (N_BINS as u64 * BIN_NS) as f64;
        let rise = if n_full >= 3 * N_BINS {
            let before = full(N_BINS, 2 * N_BINS);
            let steps = [rate - before, before - full(2 * N_BINS, 3 * N_BINS)];
            let least = if steps[0].abs() < steps[1].abs() { steps[0] } else { steps[1] };
            if steps[0] * steps[1] > 0.0 { least / half_ns } else { 0.0 }
        } else {
            0.0
        };
        // The rate is that of the middle of its half minute, and wanted for the middle of the time to come.
        let ahead_ns = (half_ns + over_ns as f64) / 2.0;
        let rate = (rate + rise * ahead_ns).max(rate / 2.0).min(rate * 2.0);
        // Microseconds per nanosecond, times nanoseconds.
        let work_us = rate * over_ns as f64;
        Work { n: (work_us * n as f64 / us as f64) as u64, ns: (work_us * 1e3) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// The expectation for the next 10 s after `seconds` in each of which `rate` says how many tasks of 1 s arrive.
    fn after(seconds: u64, rate: impl Fn(u64) -> u64) -> Work {
        expected_after(seconds, 10, rate)
    }

    fn expected_after(seconds: u64, over_s: u64, rate: impl Fn(u64) -> u64) -> Work {
        let (mut arrivals, mut n) = (Arrivals::default(), 0);
        for second in 0..=seconds {
            n += rate(second);
            arrivals.note(Timestamp(second * S), n, n * 1_000_000);
        }
        arrivals.expected(over_s * S)
    }

    #[test]
    fn an_even_rate_is_expected_to_stay() {
        assert_eq!(after(300, |_| 5), Work { n: 50, ns: 50 * S });
        assert_eq!(after(31, |_| 5).n, 50, "half a minute is enough");
        assert_eq!(after(12, |_| 5), Work::default(), "a few seconds are not");
    }

    #[test]
    fn a_burst_is_no_rate() {
        assert_eq!(after(100, |second| if second == 55 { 100_000 } else { 0 }), Work::default());
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
    fn a_dispatcher_that_counts_anew_takes_nothing_away() {
        let mut arrivals = Arrivals::default();
        for second in 0..200 {
            let n = if second < 100 { 5 * second } else { 5 * (second - 100) };
            arrivals.note(Timestamp(second * S), n, n * 1_000_000);
        }
        assert_eq!(arrivals.expected(10 * S).n, 50);
    }

    #[test]
    fn classes_are_few_and_keep_sums() {
        let mut classes = vec![];
        for ns in (1..2000).rev() {
            Predicted::add(&mut classes, 3, ns * 1_000_000);
        }
        assert!(classes.len() < 15, "{classes:?}");
        assert_eq!(classes.iter().map(|work| work.n).sum::<u64>(), 3 * 1999);
        assert_eq!(classes.iter().map(|work| work.ns).sum::<u64>(), 3 * (1999 * 2000 / 2) * 1_000_000);
        assert!(classes.is_sorted_by(|a, b| a.mean_ns() < b.mean_ns()));
        let mut whole = Predicted { queued: classes.clone(), ..Predicted::default() };
        whole.merge(&Predicted { queued: classes, n_arrived: 7, ..Predicted::default() });
        assert_eq!((whole.queued.iter().map(|work| work.n).sum::<u64>(), whole.n_arrived), (6 * 1999, 7));
    }
}
