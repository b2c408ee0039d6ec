//! The measurements of a run: its nodes, its tasks, the links that its files crossed, and the times of the
//! steps.

use eyas_core::dispatcher::DispatcherConfig;
use eyas_report::fold::End;
use eyas_report::read::Requests;
use eyas_terms::needs::Equipment;
use eyas_terms::*;
use std::collections::BinaryHeap;

/// Transfers below this size show the cost of a request; larger ones show the rate of bytes.
const SMALL_BYTES: u64 = 64 << 10;

/// The measurements in a log of a run. Times are nanoseconds since the first submission, unless stated
/// otherwise.
#[derive(Clone, Debug)]
pub struct Measured {
    pub eyas_version: String,
    /// The dispatcher's configuration in its last life: placement policy and its options, lease and so on.
    pub config: DispatcherConfig,
    /// Dispatcher processes that wrote the log.
    pub n_lives: u32,
    pub n_tasks: u64,
    pub n_done: u64,
    pub n_failed: u64,
    pub n_cancelled: u64,
    /// Number of attempts that ended, well or not, as far as executors reported them.
    pub n_attempts: u64,
    /// Time from the first submission to the last end.
    pub makespan_ns: u64,
    pub nodes: Vec<MeasuredNode>,
    /// The sources of inputs.
    pub requests: Requests,
    /// Transfers from home to nodes: misses and direct reads.
    pub home_in: MeasuredTransfers,
    /// Transfers between nodes' caches.
    pub peer: MeasuredTransfers,
    /// Outputs on their way home; all outputs of one attempt are one transfer.
    pub home_out: MeasuredTransfers,
    /// Time from the dispatcher's decision until the executor knows it.
    pub dispatch: Spread,
    /// Time from the moment when an attempt had its inputs and a free slot until its program started. Empty
    /// if tasks hold several slots, because the log does not say which.
    pub start: Spread,
    /// Time from the start to the exit of the program.
    pub run: Spread,
    /// Time from the program's exit until the dispatcher knows it: hashing and storing outputs, and the
    /// message.
    pub report: Spread,
    /// The tasks, by position in the workload as it was submitted.
    pub tasks: Vec<TaskMeasured>,
}

impl Measured {
    /// Shares of requests answered locally, by a peer and by home, as in `Raicu09`; `None` without
    /// requests. A request that joined a transfer under way counts as a miss, see `eyas_report::metrics`.
    pub fn hit_ratios(&self) -> Option<(f64, f64, f64)> {
        let r = &self.requests;
        let total = r.total().n_requests;
        let share = |n: u64| n as f64 / total as f64;
        (total > 0).then(|| {
            let local = r.local_hit.n_requests + r.in_place.n_requests;
            let miss = r.joined.n_requests + r.miss.n_requests + r.direct.n_requests;
            (share(local), share(r.remote_hit.n_requests), share(miss))
        })
    }

    /// The number of slots of all nodes together.
    pub fn n_slots(&self) -> u64 {
        self.nodes.iter().map(|n| u64::from(n.slots)).sum()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredNode {
    pub name: String,
    pub slots: u32,
    pub memory_bytes: u64,
    pub cache_bytes: u64,
    pub cache_memory_bytes: u64,
    pub equipment: Equipment,
    /// Bytes in the node's cache when it first joined; if not 0, the run began with warm caches.
    pub held_bytes: u64,
    /// The time when the node joined; a time before the first submission counts as 0.
    pub joined: Timestamp,
    /// How often the node was lost or left.
    pub n_losses: u32,
}

/// Transfers of one kind.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MeasuredTransfers {
    pub n_transfers: u64,
    pub bytes: u64,
    /// Sum of the times from the request of each transfer until it had arrived, including the wait for
    /// other transfers.
    pub wait_ns: u64,
    /// The time for which at least one transfer was under way. The log does not say when a transfer began,
    /// so it is counted from the time when its attempt reached the executor.
    pub busy_ns: u64,
    /// Rates of single transfers of at least 64 KiB, bytes per second: 10th percentile, median, 90th.
    pub each_bytes_per_s: Option<[f64; 3]>,
    /// Median wait of smaller transfers: the cost of a request without its bytes.
    pub small_wait_ns: Option<u64>,
}

impl MeasuredTransfers {
    pub(super) fn of(mut transfers: Vec<Transfer>) -> MeasuredTransfers {
        transfers.sort_unstable_by_key(|t| t.begin_ns);
        let mut measured =
            MeasuredTransfers { n_transfers: transfers.len() as u64, ..MeasuredTransfers::default() };
        let mut covered_ns = 0;
        let (mut rates, mut small) = (vec![], vec![]);
        for t in &transfers {
            measured.bytes += t.bytes;
            measured.wait_ns += t.wait_ns;
            let end_ns = t.begin_ns.saturating_add(t.wait_ns);
            measured.busy_ns += end_ns.saturating_sub(covered_ns.max(t.begin_ns));
            covered_ns = covered_ns.max(end_ns);
            match t.bytes < SMALL_BYTES {
                true => small.push(t.wait_ns),
                false => rates.push(t.bytes as f64 / t.wait_ns.max(1) as f64 * 1e9),
            }
        }
        rates.sort_unstable_by(f64::total_cmp);
        small.sort_unstable();
        let at = |share: usize| rates[(rates.len() - 1) * share / 100];
        measured.each_bytes_per_s = (!rates.is_empty()).then(|| [at(10), at(50), at(90)]);
        measured.small_wait_ns = (!small.is_empty()).then(|| small[(small.len() - 1) / 2]);
        measured
    }
}

/// One transfer, as far as a log describes it.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub begin_ns: u64,
    pub wait_ns: u64,
    pub bytes: u64,
}

/// The distribution of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    pub n: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

impl Spread {
    pub(super) fn of(mut list: Vec<u64>) -> Spread {
        list.sort_unstable();
        let Some(last) = list.len().checked_sub(1) else { return Spread::default() };
        let sum: u128 = list.iter().map(|ns| u128::from(*ns)).sum();
        Spread {
            n: list.len() as u64,
            mean_ns: (sum / list.len() as u128) as u64,
            p50_ns: list[last / 2],
            p99_ns: list[last * 99 / 100],
        }
    }
}

/// One task. Values that come from an attempt are 0 if no attempt ended well.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TaskMeasured {
    pub end: End,
    pub submitted: Timestamp,
    /// The time when the task reached its last state, with its outputs at home.
    pub ended: Timestamp,
    pub assigned: Timestamp,
    pub received: Timestamp,
    pub inputs_ready: Timestamp,
    pub started: Timestamp,
    pub exited: Timestamp,
    /// The time when the report of the program's end reached the dispatcher.
    pub reported: Timestamp,
    /// Index into [`Measured::nodes`].
    pub node: u32,
    pub cpus: u32,
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub home_bytes: u64,
    /// The longest wait for one input from a peer; `home_wait_ns`: from home.
    pub peer_wait_ns: u64,
    pub home_wait_ns: u64,
    pub output_bytes: u64,
    /// Bytes of the outputs that went home.
    pub landed_bytes: u64,
    pub cpu_ns: u64,
}

impl TaskMeasured {
    /// Time from the start to the exit of the program.
    pub fn run_ns(&self) -> u64 {
        self.exited.since_ns(self.started)
    }
    /// Bytes of all inputs, wherever they were.
    pub fn read_bytes(&self) -> u64 {
        self.local_bytes + self.peer_bytes + self.home_bytes
    }
    pub(super) fn has_run(&self) -> bool {
        self.exited > self.started
    }
}

/// For each task, the time from the moment when inputs and a slot were there to the start of the program.
/// The slot is assumed to be the one of the node that was free first.
pub(super) fn starts(tasks: &[TaskMeasured], nodes: &[MeasuredNode]) -> Vec<u64> {
    if tasks.iter().any(|t| t.cpus != 1) {
        return vec![];
    }
    let mut by_start: Vec<&TaskMeasured> = tasks.iter().filter(|t| t.has_run()).collect();
    by_start.sort_unstable_by_key(|t| t.started);
    let free = |n: &MeasuredNode| (0..n.slots).map(|_| std::cmp::Reverse(Timestamp(0))).collect();
    let mut slots: Vec<BinaryHeap<std::cmp::Reverse<Timestamp>>> = nodes.iter().map(free).collect();
    let mut gap = |t: &TaskMeasured| {
        let slots = slots.get_mut(t.node as usize)?;
        let free = slots.pop()?.0;
        slots.push(std::cmp::Reverse(t.exited));
        Some(t.started.since_ns(free.max(t.inputs_ready)))
    };
    by_start.into_iter().filter_map(&mut gap).collect()
}
