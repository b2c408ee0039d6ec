//! The results of a simulated run: the metrics of Raicu09 §5.1, with their formulas.
//!
//! | metric | formula |
//! |---|---|
//! | efficiency | ideal time / makespan; the ideal time is that of the arrivals, or the given bound |
//! | hit ratio | inputs found in the node's own cache / inputs; likewise peers and home |
//! | throughput | bytes that programs were given / time, in total, and the 99th percentile over seconds |
//! | response time | from a task's arrival to its end, waiting included |
//! | starved | slots that no task is given to, as far as tasks wait in the dispatcher's queue or behind full slots elsewhere, integrated over time |
//! | idle | slots that no task is given to, integrated over time |
//! | CPU hours | slots of the nodes that are there, integrated over time, idle or not |
//! | slowdown of an interval | (end of its last task − its beginning) / its length |
//!
//! An input that joined a transfer under way counts as found on the node, as in the live report. A task that runs again, because
//! a file that it made was lost, counts as done once; its response time counts at each of its ends.

use crate::machine::{Machine, is_default};
use crate::workload::Workload;
use eyas_core::collective::CollectiveRecord;
use eyas_core::event::{AttemptReport, InputReport, Source};
use eyas_terms::{CacheOutcome, Outcome, Timestamp};
use serde::{Deserialize, Serialize};

const S: u64 = 1_000_000_000;
/// Arrivals are looked at in intervals of so many seconds (the steps of the MI workload).
const INTERVAL_S: u64 = 60;
/// Most points of a series that is given out.
const POINTS_MAX: usize = 1_000;

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Summary {
    pub workload: String,
    pub machine: String,
    pub n_tasks: u64,
    pub n_done: u64,
    pub n_failed: u64,
    /// Why the first task failed that did, as text for people.
    pub failure: Option<String>,
    pub makespan_s: f64,
    pub ideal_s: f64,
    /// Inputs by where they came from.
    pub n_local: u64,
    pub n_peer: u64,
    pub n_home: u64,
    /// Inputs that their node made of a packed file, which is counted above.
    #[serde(default, skip_serializing_if = "is_default")]
    pub n_made: u64,
    /// Attempts all of whose inputs were on their node when they came there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub n_at_once: u64,
    /// Bytes that programs were given, by where they came from.
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
    /// Bytes of these that were in memory when the program began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_memory_bytes: u64,
    /// Bytes that were moved between nodes, from home, and to home.
    pub moved_peer_bytes: u64,
    pub moved_home_bytes: u64,
    pub landed_bytes: u64,
    /// Bytes of these, without landed ones, that crossed a link between two sites.
    #[serde(default, skip_serializing_if = "is_default")]
    pub moved_between_bytes: u64,
    pub response_mean_s: f64,
    pub response_p50_s: f64,
    pub response_p99_s: f64,
    pub response_max_s: f64,
    pub throughput_mean_bytes_per_s: f64,
    pub throughput_p99_bytes_per_s: f64,
    pub queue_max: u64,
    pub cpu_hours: f64,
    /// Slot seconds without a task while tasks queued elsewhere.
    #[serde(default)]
    pub starved_slot_s: f64,
    /// Slot seconds without a task, whether others queued or not.
    #[serde(default)]
    pub idle_slot_s: f64,
    /// Share of the slots that held a program, over time.
    pub utilisation: f64,
    pub n_nodes_max: u32,
    pub n_losses: u64,
    /// Nodes that had not left when their walltime ended.
    #[serde(default)]
    pub n_walltimes_ended: u64,
    /// Events that the simulation handled.
    pub n_events: u64,
    pub intervals: Vec<Interval>,
    pub series: Series,
    /// The collectives that have ended.
    #[serde(skip)]
    pub collectives: Vec<CollectiveRecord>,
}

impl Summary {
    /// Ideal time / makespan, in [0, 1].
    pub fn efficiency(&self) -> f64 {
        if self.makespan_s > 0.0 { self.ideal_s / self.makespan_s } else { 0.0 }
    }
    fn share(&self, n: u64) -> f64 {
        n as f64 / (self.n_local + self.n_peer + self.n_home).max(1) as f64
    }

    /// Share of inputs found on the node.
    pub fn local_ratio(&self) -> f64 {
        self.share(self.n_local)
    }
    pub fn peer_ratio(&self) -> f64 {
        self.share(self.n_peer)
    }
    pub fn home_ratio(&self) -> f64 {
        self.share(self.n_home)
    }
}

/// Tasks that arrived within one minute.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Interval {
    pub n_tasks: u64,
    pub last_end_s: f64,
    pub response_mean_s: f64,
    pub slowdown: f64,
}

/// Means over `step_s` seconds each.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Series {
    pub step_s: u64,
    /// Bytes per second that the arriving tasks want to read.
    pub demand: Vec<f64>,
    pub local: Vec<f64>,
    pub peer: Vec<f64>,
    pub home: Vec<f64>,
    pub queue: Vec<f64>,
    pub nodes: Vec<f64>,
    pub busy_slots: Vec<f64>,
}

/// Counts while the run is simulated.
pub(crate) struct Recorder {
    summary: Summary,
    slots_per_node: u32,
    read_bytes_per_task: f64,
    /// Why the dispatcher refused the run.
    refused: Option<String>,
    last_end: Timestamp,
    response_ns_sum: f64,
    /// How many response times there were of each size: eight steps per octave of nanoseconds.
    responses: Vec<u64>,
    response_ns_max: u64,
    busy_ns: f64,
    slot_ns: f64,
    nodes_since: Timestamp,
    n_nodes: u32,
    starved: Starved,
    /// By second: bytes read locally, from peers and from home; arrivals; and queue, nodes and busy slots at its end.
    bytes: Vec<[u64; 3]>,
    arrivals: Vec<u64>,
    samples: Vec<(u64, u32, u32)>,
    /// By minute of arrival: tasks, last end, sum of responses.
    intervals: Vec<(u64, u64, f64)>,
}

/// Keeps the maximum relative error of a quantile below 9 %: eight steps per octave.
fn bucket(ns: u64) -> usize {
    let ns = ns.max(8);
    let octave = 63 - ns.leading_zeros();
    (octave as usize) * 8 + ((ns >> (octave - 3)) & 7) as usize
}

/// The middle of a bucket, in seconds.
fn bucket_s(i: usize) -> f64 {
    let (octave, step) = ((i / 8) as i32, (i % 8) as f64);
    (8.5 + step) / 8.0 * 2f64.powi(octave) * 1e-9
}

impl Recorder {
    pub fn new(workload: &Workload, machine: &Machine) -> Recorder {
        Recorder {
            summary: Summary {
                workload: workload.name.clone(),
                machine: machine.name.clone(),
                ideal_s: workload.ideal_ns as f64 * 1e-9,
                ..Summary::default()
            },
            slots_per_node: machine.slots_per_node,
            read_bytes_per_task: workload.read_bytes as f64 / workload.n_tasks.max(1) as f64,
            refused: None,
            last_end: Timestamp(0),
            response_ns_sum: 0.0,
            responses: vec![0; 64 * 8],
            response_ns_max: 0,
            busy_ns: 0.0,
            slot_ns: 0.0,
            nodes_since: Timestamp(0),
            n_nodes: 0,
            starved: Starved::default(),
            bytes: vec![],
            arrivals: vec![],
            samples: vec![],
            intervals: vec![],
        }
    }

    pub fn arrived(&mut self, at: Timestamp, n_tasks: u64) {
        self.summary.n_tasks += n_tasks;
        *entry(&mut self.arrivals, at.0 / S) += n_tasks;
        entry(&mut self.intervals, at.0 / S / INTERVAL_S).0 += n_tasks;
    }

    /// A program ran from `started` to `now`.
    pub fn ran(&mut self, started: Timestamp, now: Timestamp) {
        let ns = now.since_ns(started);
        self.busy_ns += ns as f64;
    }

    pub fn reported(&mut self, report: &AttemptReport) {
        let s = &mut self.summary;
        let second = entry(&mut self.bytes, report.times.exited.0 / S);
        let is_here =
            |input: &InputReport| matches!(input.outcome, CacheOutcome::LocalHit | CacheOutcome::InPlace);
        s.n_at_once += u64::from(!report.inputs.is_empty() && report.inputs.iter().all(is_here));
        let in_memory = report.in_memory.iter().filter_map(|i| report.inputs.get(*i as usize));
        s.in_memory_bytes += in_memory.map(|input| input.size_bytes).sum::<u64>();
        for input in &report.inputs {
            let bytes = input.size_bytes;
            let (n, total, kind) = match input.outcome {
                CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace => {
                    (&mut s.n_local, &mut s.local_bytes, 0)
                }
                CacheOutcome::Made => (&mut s.n_made, &mut s.local_bytes, 0),
                CacheOutcome::RemoteHit { .. } => (&mut s.n_peer, &mut s.peer_bytes, 1),
                CacheOutcome::Miss | CacheOutcome::Direct => (&mut s.n_home, &mut s.home_bytes, 2),
            };
            *n += 1;
            *total += bytes;
            second[kind] += bytes;
        }
    }

    pub fn moved(&mut self, source: Source, bytes: u64, is_between: bool) {
        self.summary.moved_between_bytes += if is_between { bytes } else { 0 };
        match source {
            Source::Peer(_) => self.summary.moved_peer_bytes += bytes,
            Source::Home => self.summary.moved_home_bytes += bytes,
        }
    }

    /// An output of `bytes` was sent home.
    pub fn landed(&mut self, bytes: u64) {
        self.summary.landed_bytes += bytes;
    }

    pub fn collective_ended(&mut self, record: CollectiveRecord) {
        self.summary.collectives.push(record);
    }

    /// The dispatcher has refused the run, and says why.
    pub fn refused(&mut self, why: String) {
        self.refused = Some(why);
    }

    pub fn ended(&mut self, now: Timestamp, arrived: Timestamp, outcome: &Outcome) {
        match outcome {
            Outcome::Done => self.summary.n_done += 1,
            Outcome::Failed(failure) => {
                self.summary.n_failed += 1;
                self.summary.failure.get_or_insert_with(|| failure.message.clone());
            }
            Outcome::Cancelled => {}
        }
        self.last_end = now;
        let ns = now.since_ns(arrived);
        self.response_ns_sum += ns as f64;
        self.response_ns_max = self.response_ns_max.max(ns);
        self.responses[bucket(ns)] += 1;
        let interval = entry(&mut self.intervals, arrived.0 / S / INTERVAL_S);
        interval.1 = now.0;
        interval.2 += ns as f64;
    }

    /// A task that was done runs again.
    pub fn revived(&mut self) {
        self.summary.n_done -= 1;
    }

    /// From `now` on there are so many nodes.
    pub fn nodes(&mut self, now: Timestamp, n_nodes: u32) {
        let slots = f64::from(self.n_nodes) * f64::from(self.slots_per_node);
        self.slot_ns += slots * now.since_ns(self.nodes_since) as f64;
        self.nodes_since = now;
        self.n_nodes = n_nodes;
        self.summary.n_nodes_max = self.summary.n_nodes_max.max(n_nodes);
    }

    /// Node `node` has so many slots and was given tasks for so many of them; `None`: it is gone.
    pub fn given(&mut self, node: u32, slots: Option<(u32, u32)>) {
        self.starved.given(node, slots);
    }

    /// So many tasks queue in the dispatcher; what [`Recorder::given`] said holds from now on, too.
    pub fn queues(&mut self, now: Timestamp, n_ready: u64) {
        self.starved.step(now, n_ready);
    }

    pub fn sample(&mut self, now: Timestamp, n_ready: u64, n_nodes: u32, busy: u32) {
        self.summary.queue_max = self.summary.queue_max.max(n_ready);
        *entry(&mut self.samples, now.0 / S) = (n_ready, n_nodes, busy);
    }

    fn response_quantile_s(&self, q: f64) -> f64 {
        let n: u64 = self.responses.iter().sum();
        let mut below = 0;
        for (i, count) in self.responses.iter().enumerate() {
            below += count;
            if below as f64 >= q * n as f64 && below > 0 {
                return bucket_s(i);
            }
        }
        0.0
    }

    pub fn finish(
        mut self,
        now: Timestamp,
        n_events: u64,
        (n_losses, n_walltimes_ended): (u64, u64),
    ) -> Result<Summary, String> {
        if let Some(message) = self.refused {
            return Err(message);
        }
        self.nodes(now, self.n_nodes);
        let n_ended = self.responses.iter().sum::<u64>().max(1);
        let (p50, p99) = (self.response_quantile_s(0.5), self.response_quantile_s(0.99));
        let mut s = self.summary;
        s.makespan_s = self.last_end.0 as f64 * 1e-9;
        s.response_mean_s = self.response_ns_sum / n_ended as f64 * 1e-9;
        (s.response_p50_s, s.response_p99_s) = (p50, p99);
        s.response_max_s = self.response_ns_max as f64 * 1e-9;
        let bytes = s.local_bytes + s.peer_bytes + s.home_bytes;
        s.throughput_mean_bytes_per_s = bytes as f64 / s.makespan_s.max(1e-9);
        let mut seconds: Vec<u64> = self.bytes.iter().map(|b| b.iter().sum()).collect();
        seconds.sort_unstable();
        let at = (seconds.len() * 99 / 100).min(seconds.len().saturating_sub(1));
        s.throughput_p99_bytes_per_s = seconds.get(at).copied().unwrap_or(0) as f64;
        self.starved.step(now, 0);
        s.starved_slot_s = self.starved.slot_ns as f64 * 1e-9;
        s.idle_slot_s = self.starved.idle_ns as f64 * 1e-9;
        s.cpu_hours = self.slot_ns * 1e-9 / 3600.0;
        s.utilisation = if self.slot_ns > 0.0 { self.busy_ns / self.slot_ns } else { 0.0 };
        (s.n_events, s.n_losses, s.n_walltimes_ended) = (n_events, n_losses, n_walltimes_ended);
        s.intervals = (0u64..)
            .zip(&self.intervals)
            .map(|(i, (n_tasks, last_end, sum))| {
                let last_end_s = *last_end as f64 * 1e-9;
                let began_s = (i * INTERVAL_S) as f64;
                Interval {
                    n_tasks: *n_tasks,
                    last_end_s,
                    response_mean_s: sum / (*n_tasks).max(1) as f64 * 1e-9,
                    slowdown: ((last_end_s - began_s) / INTERVAL_S as f64).max(0.0),
                }
            })
            .collect();
        let n_seconds = (self.last_end.0 / S) as usize + 1;
        let step = n_seconds.div_ceil(POINTS_MAX).max(1);
        let mean = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let point = |at: usize| {
                let end = (at + step).min(n_seconds);
                (at..end).map(of).sum::<f64>() / (end - at) as f64
            };
            (0..n_seconds).step_by(step).map(point).collect()
        };
        let bytes_of = |i: usize, kind: usize| self.bytes.get(i).map_or(0.0, |b| b[kind] as f64);
        let sample = |i: usize| self.samples.get(i).copied().unwrap_or_default();
        s.series = Series {
            step_s: step as u64,
            demand: mean(&|i| self.arrivals.get(i).copied().unwrap_or(0) as f64 * self.read_bytes_per_task),
            local: mean(&|i| bytes_of(i, 0)),
            peer: mean(&|i| bytes_of(i, 1)),
            home: mean(&|i| bytes_of(i, 2)),
            queue: mean(&|i| sample(i).0 as f64),
            nodes: mean(&|i| f64::from(sample(i).1)),
            busy_slots: mean(&|i| f64::from(sample(i).2)),
        };
        Ok(s)
    }
}

/// Slots without a task while tasks queue.
#[derive(Default)]
struct Starved {
    /// By node: slots without a task, and slots' worth of tasks behind full slots.
    of_node: Vec<(u64, u64)>,
    /// The sums of both over all nodes.
    n_idle: u64,
    n_behind: u64,
    since: Timestamp,
    /// How many slots have starved since `since`.
    n_starved: u64,
    slot_ns: u128,
    /// The same for slots without a task, whether others queue or not.
    n_idle_since: u64,
    idle_ns: u128,
}

impl Starved {
    fn given(&mut self, node: u32, slots: Option<(u32, u32)>) {
        let new = slots.map_or((0, 0), |(has, given)| {
            (u64::from(has.saturating_sub(given)), u64::from(given.saturating_sub(has)))
        });
        let old = std::mem::replace(entry(&mut self.of_node, u64::from(node)), new);
        self.n_idle = self.n_idle + new.0 - old.0;
        self.n_behind = self.n_behind + new.1 - old.1;
    }

    fn step(&mut self, now: Timestamp, n_ready: u64) {
        self.slot_ns += u128::from(self.n_starved) * u128::from(now.since_ns(self.since));
        self.idle_ns += u128::from(self.n_idle_since) * u128::from(now.since_ns(self.since));
        self.since = now;
        self.n_idle_since = self.n_idle;
        self.n_starved = self.n_idle.min(n_ready + self.n_behind);
    }
}

/// Element `i`, made with everything before it where it is not there yet.
fn entry<T: Default + Clone>(all: &mut Vec<T>, i: u64) -> &mut T {
    let i = i as usize;
    if i >= all.len() {
        all.resize(i + 1, T::default());
    }
    &mut all[i]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_starve_as_far_as_tasks_queue() {
        let mut s = Starved::default();
        s.given(0, Some((4, 1)));
        s.given(2, Some((4, 6)));
        s.step(Timestamp(10), 0);
        s.step(Timestamp(20), 9);
        assert_eq!(s.slot_ns, 20, "two tasks waited behind full slots");
        s.given(2, None);
        s.step(Timestamp(30), 0);
        assert_eq!(s.slot_ns, 20 + 30, "three slots could have had one of nine");
        s.step(Timestamp(90), 0);
        assert_eq!(s.slot_ns, 20 + 30);
    }

    #[test]
    fn quantiles_are_within_nine_per_cent() {
        for ns in [8u64, 100, 12_345, 1_000_000, 3_100_000_000, 1 << 50] {
            let s = bucket_s(bucket(ns));
            assert!((s * 1e9 / ns as f64 - 1.0).abs() < 0.09, "{ns}: {s}");
        }
    }
}
