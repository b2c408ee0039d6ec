//! What is known of a cluster, now and from the seconds before.

use eyas_core::{RunId, Timestamp};
use eyas_wire::message::{ClusterStatus, RunStatus};
use std::collections::{BTreeMap, VecDeque};

/// Seconds of history, one column of a chart each.
pub const HISTORY_S: usize = 600;
/// A rate is computed over this long.
const RATE_NS: u64 = 5_000_000_000;
pub const SECOND_NS: u64 = 1_000_000_000;

/// Totals over all runs at one time.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub at: Timestamp,
    pub n_ended: u64,
    /// Local, peers, home.
    pub bytes: [u64; 3],
}

/// One second of the charts.
#[derive(Clone, Copy, Default)]
pub struct Second {
    pub bytes_per_s: [f64; 3],
    pub tasks_per_s: f64,
    pub n_queued: u64,
}

/// What is known of the cluster, now and from before.
#[derive(Default)]
pub struct View {
    pub status: Option<Box<ClusterStatus>>,
    /// Why the last request was not answered.
    pub gone: Option<String>,
    /// How long ago the last answer came.
    pub silent_ns: u64,
    /// Totals of the last few seconds, for rates.
    pub recent: VecDeque<Totals>,
    /// Ended tasks of each run in the last few seconds.
    pub run_recent: BTreeMap<RunId, VecDeque<(Timestamp, u64)>>,
    pub last_second: Totals,
    pub seconds: VecDeque<Second>,
}

pub fn n_queued(run: &RunStatus) -> u64 {
    run.n_waiting + run.n_ready
}

impl View {
    pub fn take(&mut self, status: Box<ClusterStatus>) {
        self.gone = None;
        let restarted = self.status.as_ref().is_some_and(|old| old.started != status.started);
        if restarted {
            *self = View::default();
        }
        let mut totals = Totals { at: status.now, ..Totals::default() };
        for run in &status.runs {
            totals.n_ended += run.n_ended();
            for (sum, bytes) in totals.bytes.iter_mut().zip([run.local_bytes, run.peer_bytes, run.home_bytes])
            {
                *sum += bytes;
            }
            let marks = self.run_recent.entry(run.run).or_default();
            marks.push_back((status.now, run.n_ended()));
            while marks.len() > 2 && status.now.since_ns(marks[1].0) > RATE_NS {
                marks.pop_front();
            }
        }
        self.recent.push_back(totals);
        while self.recent.len() > 2 && totals.at.since_ns(self.recent[1].at) > RATE_NS {
            self.recent.pop_front();
        }
        if self.last_second.at == Timestamp(0) {
            self.last_second = totals;
        }
        let since_ns = totals.at.since_ns(self.last_second.at);
        // Answers come twice a second; an answer that is a little early still closes its second.
        if since_ns >= SECOND_NS - SECOND_NS / 10 {
            let second = Second {
                bytes_per_s: std::array::from_fn(|i| {
                    per_s(totals.bytes[i].saturating_sub(self.last_second.bytes[i]), since_ns)
                }),
                tasks_per_s: per_s(totals.n_ended.saturating_sub(self.last_second.n_ended), since_ns),
                n_queued: status.runs.iter().map(n_queued).sum(),
            };
            self.seconds.push_back(second);
            if self.seconds.len() > HISTORY_S {
                self.seconds.pop_front();
            }
            self.last_second = totals;
        }
        self.status = Some(status);
    }

    /// Bytes and tasks per second over the last few seconds.
    pub fn rates(&self) -> ([f64; 3], f64) {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else {
            return ([0.0; 3], 0.0);
        };
        let ns = last.at.since_ns(first.at);
        let bytes = std::array::from_fn(|i| per_s(last.bytes[i].saturating_sub(first.bytes[i]), ns));
        (bytes, per_s(last.n_ended.saturating_sub(first.n_ended), ns))
    }

    pub fn run_rate(&self, run: RunId) -> f64 {
        let marks = self.run_recent.get(&run);
        match marks.and_then(|m| Some((m.front()?, m.back()?))) {
            Some((first, last)) => per_s(last.1.saturating_sub(first.1), last.0.since_ns(first.0)),
            None => 0.0,
        }
    }
}

pub fn per_s(amount: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { amount as f64 * 1e9 / ns as f64 }
}

// ---------------------------------------------------------------- drawing
