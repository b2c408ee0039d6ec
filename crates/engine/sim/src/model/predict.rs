//! From a machine, a workload and hit ratios to times: the model of Raicu09 §3.1 put together, as §6.6 uses it.
//!
//! The paper takes `R_l`, `R_c` and `R_s` as given, although they depend on how many read at once; it names
//! contention as the cause of its errors (§6.6). Here they are made from bandwidths, in two steps. An access that
//! is alone costs a latency and its bytes over the bandwidth that one reader gets. Then no resource can be busy for
//! more than all of the time: of home, links, disks and the dispatcher, the one that a task needs longest
//! bounds the rate (the asymptotic bounds of operational analysis: Denning and Buzen 1978), and what that adds to
//! a task is added to the accesses that go there ([`Prediction::costs`]), so that the equations hold with them.
//!
//! It is exact for no load and for overload, and too good between: where processors and a resource are
//! nearly as busy, they also wait for each other by chance. Transfers do not overlap with computing in a
//! slot, as in the paper; executors that fetch ahead can be faster than predicted.
//!
//! All numbers are `f64` and only added, multiplied, divided and compared, so that they are the same on every machine.

use super::{
    AccessCosts, HitRatios, Invalid, access_time_s, arrival_rate_max_per_s, efficiency, processor_time_s,
    uniform_workload_time_s,
};

/// A cluster and its home storage. Bandwidths may be infinite.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    pub n_nodes: u32,
    /// Slots; the paper's `N` is `n_nodes × processors_per_node`.
    pub processors_per_node: u32,
    /// Of one node's disk, reading, for all its processors together.
    pub local_bytes_per_s: f64,
    /// Of one node's link, each way.
    pub link_bytes_per_s: f64,
    /// Of home storage, for all readers together.
    pub home_bytes_per_s: f64,
    /// What home gives to one reader at most.
    pub home_reader_bytes_per_s: f64,
    /// Before the first byte.
    pub local_latency_s: f64,
    pub remote_latency_s: f64,
    pub home_latency_s: f64,
    /// What the dispatcher needs for one task, during which it does nothing else.
    pub dispatch_s: f64,
}

/// The mean task, and how many there are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// `K`
    pub n_tasks: u64,
    pub accesses_per_task: f64,
    /// Of one access.
    pub object_bytes: f64,
    /// Of one task on one processor of this machine. (The paper's `C` is per access.)
    pub compute_s: f64,
}

/// What there is not enough of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bottleneck {
    /// Nothing else: processors are busy all the time, or wait for accesses that are not slowed by others.
    Processors,
    LocalDisks,
    Links,
    Home,
    Dispatcher,
}

/// What to expect when all tasks are there from the beginning.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// Of a single access while the machine is busy with this workload.
    pub costs: AccessCosts,
    /// `TK` (equation 4), with what it waits for the dispatcher.
    pub task_s: f64,
    /// `T_N(D)` (equation 5).
    pub time_s: f64,
    /// `T_1(D)`: one processor alone, with the same misses and all hits local.
    pub time_on_one_s: f64,
    /// Equation 6.
    pub speedup: f64,
    /// Equation 7.
    pub efficiency: f64,
    /// As §5.3 has it: against all accesses being local hits, on the same machine.
    pub efficiency_against_local: f64,
    /// `A` of equation 9: what the machine can keep up with.
    pub arrivals_max_per_s: f64,
    pub bottleneck: Bottleneck,
    /// Bytes of all accesses together, by where they are served.
    pub local_bytes: f64,
    pub remote_bytes: f64,
    pub home_bytes: f64,
}

/// A time during which tasks arrive at one rate and find their data at one ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    pub duration_s: f64,
    pub arrivals_per_s: f64,
    pub ratios: HitRatios,
}

/// What to expect when tasks arrive over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArrivalsPrediction {
    pub n_tasks: f64,
    /// From the beginning to the end of the last task.
    pub time_s: f64,
    /// The same with no end of processors, and accesses that cost nothing (§5.1).
    pub ideal_s: f64,
    /// `ideal_s / time_s` (§5.1).
    pub efficiency: f64,
    /// Most tasks that wait at a time.
    pub queue_tasks_max: f64,
    /// From a task's arrival to its end, in the mean.
    pub response_s: f64,
    /// Equation 10 over all phases and what is worked off after them: the share of time that processors are busy.
    pub utilization: f64,
}

impl Machine {
    /// The same machine as the simulator's, for the model.
    pub fn of(machine: &crate::machine::Machine) -> Machine {
        let s = |ns: u64| ns as f64 * 1e-9;
        Machine {
            n_nodes: machine.nodes,
            processors_per_node: machine.slots_per_node,
            local_bytes_per_s: machine.disk_bytes_per_s,
            link_bytes_per_s: machine.nic_bytes_per_s,
            home_bytes_per_s: machine.home_bytes_per_s,
            home_reader_bytes_per_s: machine.home_client_bytes_per_s,
            local_latency_s: 0.0,
            remote_latency_s: s(2 * machine.message_ns),
            home_latency_s: s(2 * machine.home_latency_ns),
            dispatch_s: s(machine.dispatch_ns),
        }
    }

    /// `N`
    pub fn n_processors(&self) -> u32 {
        self.n_nodes * self.processors_per_node
    }

    /// Refuses what no machine can be.
    pub fn check(&self) -> Result<(), Invalid> {
        let positive = [
            ("the number of nodes", f64::from(self.n_nodes)),
            ("the number of processors per node", f64::from(self.processors_per_node)),
            ("the bandwidth of a local disk", self.local_bytes_per_s),
            ("the bandwidth of a link", self.link_bytes_per_s),
            ("the bandwidth of home", self.home_bytes_per_s),
            ("the bandwidth of home for one reader", self.home_reader_bytes_per_s),
        ];
        for (what, value) in positive {
            if value.is_nan() || value <= 0.0 {
                return Err(Invalid { what, value, must: "be more than 0" });
            }
        }
        for (what, value) in [
            ("the latency of a local disk", self.local_latency_s),
            ("the latency of another node", self.remote_latency_s),
            ("the latency of home", self.home_latency_s),
            ("the time of a dispatch", self.dispatch_s),
        ] {
            check_finite(what, value)?;
        }
        Ok(())
    }

    /// `R_l`, `R_c` and `R_s` of one access that is alone.
    ///
    /// A remote access is read from the holder's disk and passes two links, of which the slowest counts.
    pub fn costs_alone(&self, object_bytes: f64) -> AccessCosts {
        let remote_bytes_per_s = self.link_bytes_per_s.min(self.local_bytes_per_s);
        let home_bytes_per_s =
            self.home_bytes_per_s.min(self.home_reader_bytes_per_s).min(self.link_bytes_per_s);
        AccessCosts {
            local_s: self.local_latency_s + object_bytes / self.local_bytes_per_s,
            remote_s: self.remote_latency_s + object_bytes / remote_bytes_per_s,
            home_s: self.home_latency_s + object_bytes / home_bytes_per_s,
        }
    }
}

impl Workload {
    /// Refuses what no workload can be.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.n_tasks == 0 {
            return Err(Invalid { what: "the number of tasks", value: 0.0, must: "be more than 0" });
        }
        check_finite("the number of accesses of a task", self.accesses_per_task)?;
        check_finite("the size of an object", self.object_bytes)?;
        check_finite("the computing time of a task", self.compute_s)
    }
}

pub(super) fn check_finite(what: &'static str, value: f64) -> Result<(), Invalid> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(Invalid { what, value, must: "be a number of at least 0" })
    }
}

/// The mean task on a busy machine.
struct Task {
    costs: AccessCosts,
    task_s: f64,
    bottleneck: Bottleneck,
}

fn task_under_load(machine: &Machine, workload: &Workload, ratios: HitRatios) -> Task {
    let alone = machine.costs_alone(workload.object_bytes);
    let n = workload.accesses_per_task;
    let alone_s = workload.compute_s + n * access_time_s(alone, ratios);
    let (bytes, n_nodes) = (n * workload.object_bytes, f64::from(machine.n_nodes));
    // For how long one task keeps all of a resource busy, and which accesses do it.
    let demands = [
        (
            Bottleneck::LocalDisks,
            bytes * (ratios.local + ratios.remote) / (machine.local_bytes_per_s * n_nodes),
            [1.0, 1.0, 0.0],
        ),
        (
            Bottleneck::Links,
            bytes * (ratios.remote + ratios.home) / (machine.link_bytes_per_s * n_nodes),
            [0.0, 1.0, 1.0],
        ),
        (Bottleneck::Home, bytes * ratios.home / machine.home_bytes_per_s, [0.0, 0.0, 1.0]),
        (Bottleneck::Dispatcher, machine.dispatch_s, [0.0; 3]),
    ];
    let n_processors = f64::from(machine.n_processors());
    let (mut task_s, mut bottleneck, mut which) = (alone_s, Bottleneck::Processors, [0.0; 3]);
    for (resource, demand_s, accesses) in demands {
        if demand_s * n_processors > task_s {
            (task_s, bottleneck, which) = (demand_s * n_processors, resource, accesses);
        }
    }
    // How much longer than alone, spread over the accesses that go there.
    let n_there = n * (which[0] * ratios.local + which[1] * ratios.remote + which[2] * ratios.home);
    let more_s = if n_there > 0.0 { (task_s - alone_s) / n_there } else { 0.0 };
    let costs = AccessCosts {
        local_s: alone.local_s + which[0] * more_s,
        remote_s: alone.remote_s + which[1] * more_s,
        home_s: alone.home_s + which[2] * more_s,
    };
    Task { costs, task_s, bottleneck }
}

/// What to expect of a workload whose tasks are all there from the beginning, at these hit ratios.
///
/// As a whole: neither the filling of caches nor the end, when there are fewer tasks than processors, is in it.
pub fn predict(machine: &Machine, workload: &Workload, ratios: HitRatios) -> Result<Prediction, Invalid> {
    machine.check()?;
    workload.check()?;
    let n_processors = machine.n_processors();
    let time_of = |task_s| uniform_workload_time_s(task_s, workload.n_tasks, n_processors);
    let Task { costs, task_s, bottleneck } = task_under_load(machine, workload, ratios);
    let time_s = time_of(task_s);
    let one = Machine { n_nodes: 1, processors_per_node: 1, ..*machine };
    let alone_s = task_under_load(&one, workload, ratios.on_one_node()).task_s;
    let time_on_one_s = uniform_workload_time_s(alone_s, workload.n_tasks, 1);
    let speedup = ratio_of(time_on_one_s, time_s, f64::from(n_processors));
    let local_s = time_of(task_under_load(machine, workload, HitRatios::LOCAL_ONLY).task_s);
    let processor_s = processor_time_s([task_s * workload.n_tasks as f64]);
    let bytes = workload.n_tasks as f64 * workload.accesses_per_task * workload.object_bytes;
    Ok(Prediction {
        costs,
        task_s,
        time_s,
        time_on_one_s,
        speedup,
        efficiency: efficiency(speedup, n_processors),
        efficiency_against_local: ratio_of(local_s, time_s, 1.0),
        arrivals_max_per_s: arrival_rate_max_per_s(n_processors, 1.0, processor_s, workload.n_tasks),
        bottleneck,
        local_bytes: bytes * ratios.local,
        remote_bytes: bytes * ratios.remote,
        home_bytes: bytes * ratios.home,
    })
}

/// `a / b`, and `if_none` for tasks that take no time at all.
pub(super) fn ratio_of(a: f64, b: f64, if_none: f64) -> f64 {
    if b > 0.0 { a / b } else { if_none }
}

/// What to expect when tasks arrive over time: equation 9 says how fast they are worked off in each phase, what is
/// too much waits, and time goes on after the last phase until nothing waits (with that phase's ratios).
///
/// Tasks are a fluid here, so that arrivals within a phase are even. Of `workload`, `n_tasks` is not used: the phases
/// say how many there are. Without phases everything is 0, and the efficiency 1.
pub fn predict_arrivals(
    machine: &Machine,
    workload: &Workload,
    phases: &[Phase],
) -> Result<ArrivalsPrediction, Invalid> {
    machine.check()?;
    Workload { n_tasks: 1, ..*workload }.check()?;
    let n_processors = f64::from(machine.n_processors());
    let (mut arrivals_s, mut n_tasks, mut queue, mut queue_max) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    // Task seconds of waiting, and processor seconds of work.
    let (mut waiting, mut work) = (0.0, 0.0);
    let (mut drain_s, mut last_task_s) = (0.0, 0.0);
    for (i, phase) in phases.iter().enumerate() {
        check_finite("the duration of a phase", phase.duration_s)?;
        check_finite("the arrival rate of a phase", phase.arrivals_per_s)?;
        let task_s = task_under_load(machine, workload, phase.ratios).task_s;
        // Tasks that take no time are worked off at once.
        let served_per_s = if task_s > 0.0 { n_processors / task_s } else { f64::INFINITY };
        let mut pass = |duration_s: f64, arrivals_per_s: f64| {
            let growth_per_s = arrivals_per_s - served_per_s;
            // The queue is a line that ends at 0.
            let until_empty_s = if growth_per_s < 0.0 { queue / -growth_per_s } else { f64::INFINITY };
            let waiting_s = duration_s.min(until_empty_s);
            let after = if waiting_s > 0.0 { (queue + growth_per_s * waiting_s).max(0.0) } else { queue };
            let arrived = arrivals_per_s * duration_s;
            waiting += (queue + after) / 2.0 * waiting_s;
            work += (queue + arrived - if until_empty_s <= duration_s { 0.0 } else { after }) * task_s;
            queue = if until_empty_s <= duration_s { 0.0 } else { after };
            queue_max = queue_max.max(queue);
        };
        pass(phase.duration_s, phase.arrivals_per_s);
        arrivals_s += phase.duration_s;
        n_tasks += phase.arrivals_per_s * phase.duration_s;
        if i + 1 == phases.len() && n_tasks > 0.0 {
            last_task_s = task_s;
            drain_s = queue / served_per_s;
            waiting += queue / 2.0 * drain_s;
            work += queue * task_s;
        }
    }
    // The last task's own time; it does not wait when there is no queue.
    let time_s = arrivals_s + drain_s + last_task_s;
    let ideal_s = arrivals_s + if n_tasks > 0.0 { workload.compute_s } else { 0.0 };
    Ok(ArrivalsPrediction {
        n_tasks,
        time_s,
        ideal_s,
        efficiency: ratio_of(ideal_s, time_s, 1.0),
        queue_tasks_max: queue_max,
        response_s: ratio_of(waiting + work, n_tasks, 0.0),
        utilization: ratio_of(work, time_s * n_processors, 0.0),
    })
}

/// How far predictions are from what was measured, as §6.6 sums it up (there: mean and median 5 %, standard
/// deviation 5 %, worst 29 %).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErrorSummary {
    pub n: usize,
    pub mean: f64,
    pub median: f64,
    /// Of all of them, not estimated from a sample.
    pub standard_deviation: f64,
    pub worst: f64,
}

/// `|predicted − measured| / measured`; `measured` is more than 0.
pub fn relative_error(predicted: f64, measured: f64) -> f64 {
    (predicted - measured).abs() / measured
}

impl ErrorSummary {
    /// Of pairs (predicted, measured). `None` without pairs.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let mut errors: Vec<f64> = pairs.iter().map(|&(p, m)| relative_error(p, m)).collect();
        errors.sort_by(f64::total_cmp);
        let n = errors.len();
        let worst = *errors.last()?;
        let mean = errors.iter().sum::<f64>() / n as f64;
        let variance = errors.iter().map(|e| (e - mean) * (e - mean)).sum::<f64>() / n as f64;
        let median = (errors[(n - 1) / 2] + errors[n / 2]) / 2.0;
        Some(ErrorSummary { n, mean, median, standard_deviation: variance.sqrt(), worst })
    }
}

#[cfg(test)]
mod tests;
