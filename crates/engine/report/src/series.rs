//! Time series of a report: rates of bytes, the queue, nodes and slots over time.

use crate::bins::Bins;
use crate::measure::{Measure, tasks};
use crate::read::{How, sum};
use serde::{Deserialize, Serialize};

/// The number of bins of a time series.
const N_BINS: usize = 300;

/// Time series. Each has one value per bin: the mean over the bin.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Series {
    /// Width of a bin; the first one begins with the window.
    pub bin_ns: u64,
    /// Input bytes of the tasks that arrived: the throughput needed to keep up with arrivals.
    pub demand_gbps: Vec<f64>,
    /// Bytes of inputs as they reached programs: local reads while the program ran, other reads while the
    /// attempt waited for them.
    pub cache_local_gbps: Vec<f64>,
    pub cache_remote_gbps: Vec<f64>,
    pub home_gbps: Vec<f64>,
    /// Bytes of outputs on their way home.
    pub home_out_gbps: Vec<f64>,
    /// Submitted tasks that no executor has.
    pub n_queued: Vec<f64>,
    pub n_nodes: Vec<f64>,
    pub n_slots: Vec<f64>,
    /// Slots with a running program; divided by `n_slots` it is the share of slots in use.
    pub n_slots_busy: Vec<f64>,
}

/// The time series of a report.
pub(crate) fn series(m: &Measure) -> Series {
    let span_ns = m.stop.since_ns(m.start);
    if span_ns == 0 {
        return Series::default();
    }
    let bin_ns = span_ns.div_ceil(N_BINS as u64);
    let n_bins = span_ns.div_ceil(bin_ns) as usize;
    let new = || Bins::new(m.start, bin_ns, n_bins);
    let (mut demand, mut local, mut remote, mut home, mut out) = (new(), new(), new(), new(), new());
    let (mut queued, mut nodes, mut slots, mut busy) = (new(), new(), new(), new());
    for s in &m.submissions {
        let last = |task| m.last_attempt.get(&task).map_or(0, |at| m.log.attempts[*at].input_bytes());
        let bytes = sum(tasks(std::slice::from_ref(s)).map(last));
        demand.spread(s.submitted, s.submitted, bytes as f64);
    }
    for a in m.attempts() {
        if a.received.0 > 0 {
            let ready = if a.inputs_ready.0 > 0 { a.inputs_ready } else { a.received };
            let until = |wait_ns: u64| a.received.plus_ns(wait_ns).min(ready.max(a.received));
            remote.spread(a.received, until(a.peer_wait_ns), a.peer_bytes as f64);
            home.spread(a.received, until(a.home_wait_ns), a.home_bytes as f64);
            let read_from = if a.started.0 > 0 { a.started } else { ready };
            local.spread(read_from, a.exited.max(read_from), a.local_bytes as f64);
        }
        if a.started.0 > 0 && a.exited > a.started {
            busy.hold(a.started, a.exited, f64::from(a.cpus));
        }
        if a.how == How::Done && a.exited.0 > 0 {
            out.spread(a.exited, a.over.max(a.exited), a.landed_bytes() as f64);
        }
    }
    for (t, change) in m.queue_changes() {
        queued.hold(t, m.stop, change as f64);
    }
    for e in &m.log.executors {
        for (from, to) in m.presence(e) {
            nodes.hold(from, to, 1.0);
            slots.hold(from, to, f64::from(e.slots));
        }
    }
    // Bytes per nanosecond are gigabytes per second.
    let gbps = |bins: Bins| bins.means().into_iter().map(|x| x * 8.0).collect();
    Series {
        bin_ns,
        demand_gbps: gbps(demand),
        cache_local_gbps: gbps(local),
        cache_remote_gbps: gbps(remote),
        home_gbps: gbps(home),
        home_out_gbps: gbps(out),
        n_queued: queued.means(),
        n_nodes: nodes.means(),
        n_slots: slots.means(),
        n_slots_busy: busy.means(),
    }
}
