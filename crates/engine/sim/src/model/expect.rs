//! The model of Raicu09 §3.1 with what §6.6 names as its errors: contention, caches that fill, and caches that are too small.
//!
//! [`predict`](super::predict::predict) takes one hit ratio for the whole workload and knows how long a resource is busy. Here:
//!
//! * **A workload is cut into slices.** Its objects are read in random order, so a first reading is likely at the beginning and
//!   rare at the end: at place `x` of an order in which each object stands `L` times, a reading is a first one with the chance
//!   `(1 − x)^(L − 1)`. The mean over all `x` is `1/L`, the paper's ideal. Home may be too slow for the first slices only.
//! * **Caches have a size.** An object that was read before is there if it was read within the last `y` of the order, where `y` is as
//!   long as the caches hold what is read in it: so many different objects as fit.
//! * **A byte that is fetched takes the disk twice:** it is written there, and the program reads it. A fetch is one flow
//!   through home, a link and a disk, so it takes as long as the slowest of them and not their sum.
//! * **Programs wait for each other** at the disk and the link of their node, at home and at the dispatcher. How much depends on
//!   chance, and there are two ends, both of which occur: programs that never meet but by chance (mean value analysis of a
//!   closed network, in the approximation of Schweitzer 1979), and programs of a node that all do the same at the same time, as
//!   equal programs do that began together. The expectation is the middle of both; [`Expected`] has the ends, too.
//! * **A node may have to make a file** of what it fetches, such as to uncompress it, one file at a time ([`Making`]).
//!
//! Not here: transfers that overlap with computing in a slot, failures, and placement: readings that could be local are.
//!
//! All numbers are `f64` and only added, multiplied, divided and compared, so that they are the same on every machine.

use super::predict::{Bottleneck, Machine, check_finite, ratio_of};
use super::{HitRatios, Invalid, efficiency, speedup};

/// A workload is cut into so many parts.
const SLICES: u32 = 40;
/// Steps in which the length of a cycle is looked for; each halves the distance, or more.
const STEPS: u32 = 200;
/// Steps of the time in which tasks arrive, and after it.
const TIME_STEPS: u32 = 4_000;

/// The mean task, and how many there are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelWork {
    /// `K`
    pub n_tasks: u64,
    pub accesses_per_task: f64,
    /// What is fetched for one access that is not local.
    pub object_bytes: f64,
    /// Computing of one task on one processor of this machine, without reading.
    pub compute_s: f64,
    /// What a slot is with each task besides: messages, and the start of the program.
    pub overhead_s: f64,
    pub reuse: Reuse,
    pub making: Option<Making>,
}

/// Where accesses find their data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reuse {
    /// Nothing is kept on nodes: each access reads home, and not the node's disk.
    NoCaches,
    /// The same ratios all the time.
    Ratios(HitRatios),
    /// So many different objects, each read equally often, in random order, kept in caches of so many bytes for all nodes together.
    Objects { n_objects: u64, cache_bytes: f64 },
}

/// What a node makes of an object that it has fetched, before programs can read it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Making {
    pub made_bytes: f64,
    /// On one processor, beside the slots. A node makes one file at a time.
    pub compute_s: f64,
}

/// What to expect when all tasks are there from the beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Expected {
    /// `T_N(D)`, the middle of both ends.
    pub time_s: f64,
    /// Where programs meet by chance only.
    pub by_chance_s: f64,
    /// Where the programs of a node keep in step.
    pub in_step_s: f64,
    /// `T_1(D)`: one processor alone, with the same misses and all hits local.
    pub time_on_one_s: f64,
    /// Equation 6.
    pub speedup: f64,
    /// Equation 7.
    pub efficiency: f64,
    /// Of the whole workload.
    pub ratios: HitRatios,
    /// `TK` (equation 4) of the mean task.
    pub task_s: f64,
    /// Equation 9: what the machine can keep up with.
    pub arrivals_max_per_s: f64,
    /// The share of the time that each resource is busy, the busiest first.
    pub busy: Vec<(Bottleneck, f64)>,
    /// Bytes from home, between nodes, and from the nodes' own disks to programs.
    pub home_bytes: f64,
    pub remote_bytes: f64,
    pub local_bytes: f64,
}

/// A time in which tasks arrive at one rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arrivals {
    pub duration_s: f64,
    pub per_s: f64,
}

/// What to expect when tasks arrive over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExpectedArrivals {
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
    /// Equation 10, over the whole time.
    pub utilization: f64,
}

/// A number of this kind counts one by one up to here.
const ACCESSES_MAX: f64 = (1u64 << 53) as f64;

impl ModelWork {
    /// Refuses what no workload can be.
    pub fn check(&self) -> Result<(), Invalid> {
        let must = "be more than 0";
        if self.n_tasks == 0 {
            return Err(Invalid { what: "the number of tasks", value: 0.0, must });
        }
        check_finite("the number of accesses of a task", self.accesses_per_task)?;
        if self.n_accesses() > ACCESSES_MAX {
            let (what, value) = ("the number of accesses of all tasks", self.n_accesses());
            return Err(Invalid { what, value, must: "be at most 2 to the power of 53" });
        }
        check_finite("the size of an object", self.object_bytes)?;
        check_finite("the computing time of a task", self.compute_s)?;
        check_finite("the overhead of a task", self.overhead_s)?;
        if let Reuse::Objects { n_objects, cache_bytes } = self.reuse {
            check_finite("the size of the caches", cache_bytes)?;
            if n_objects == 0 {
                return Err(Invalid { what: "the number of objects", value: 0.0, must });
            }
        }
        if let Some(making) = self.making {
            check_finite("the size of what is made", making.made_bytes)?;
            check_finite("the time of making", making.compute_s)?;
        }
        Ok(())
    }

    fn n_accesses(&self) -> f64 {
        self.n_tasks as f64 * self.accesses_per_task
    }

    /// What one object takes of a cache.
    fn cached_bytes(&self) -> f64 {
        self.object_bytes + self.making.map_or(0.0, |making| making.made_bytes)
    }

    /// The ratios of each slice.
    fn slices(&self) -> Vec<HitRatios> {
        let Reuse::Objects { n_objects, cache_bytes } = self.reuse else {
            let ratios = if let Reuse::Ratios(ratios) = self.reuse { ratios } else { HitRatios::HOME_ONLY };
            return vec![ratios];
        };
        let order = Order::new(self.n_accesses(), n_objects as f64);
        let fit = if self.cached_bytes() > 0.0 { cache_bytes / self.cached_bytes() } else { f64::INFINITY };
        let kept = order.window_of(fit);
        let middle = |slice: u32| (f64::from(slice) + 0.5) / f64::from(SLICES);
        let miss = |slice| order.first_share(middle(slice).min(kept));
        (0..SLICES)
            .map(|slice| HitRatios::new(1.0 - miss(slice), 0.0).unwrap_or(HitRatios::HOME_ONLY))
            .collect()
    }
}

/// An order in which some objects stand `copies` times, and the others once more.
struct Order {
    copies: u64,
    /// Objects of either kind.
    n_few: f64,
    n_more: f64,
    n_accesses: f64,
}

impl Order {
    fn new(n_accesses: f64, n_objects: f64) -> Order {
        // Objects that nobody reads do not count.
        let n_objects = n_objects.min(n_accesses).max(1.0);
        let copies = ((n_accesses / n_objects) as u64).max(1);
        let n_more = (n_accesses - copies as f64 * n_objects).max(0.0);
        Order { copies, n_few: n_objects - n_more, n_more, n_accesses }
    }

    /// The chance that what is read was not read within the last `window` (a share of the order).
    fn first_share(&self, window: f64) -> f64 {
        let (few, more) = (self.n_few * self.copies as f64, self.n_more * (self.copies + 1) as f64);
        let all = few + more;
        if all <= 0.0 {
            return 1.0;
        }
        let others = power(1.0 - window, self.copies - 1);
        (few * others + more * others * (1.0 - window)) / all
    }

    /// The different objects in such a window.
    fn different(&self, window: f64) -> f64 {
        let absent = power(1.0 - window, self.copies);
        self.n_few * (1.0 - absent) + self.n_more * (1.0 - absent * (1.0 - window))
    }

    /// The longest window whose objects are at most `fit`.
    fn window_of(&self, fit: f64) -> f64 {
        if fit >= self.n_few + self.n_more || self.n_accesses <= 0.0 {
            return 1.0;
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.different(middle) < fit {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// `base` to the power of `n`, without the mathematics of the C library.
fn power(mut base: f64, mut n: u64) -> f64 {
    let mut product = 1.0;
    while n > 0 {
        if n % 2 == 1 {
            product *= base;
        }
        base *= base;
        n /= 2;
    }
    product
}

/// For how long the mean task needs each resource, if nobody else does.
#[derive(Clone, Copy)]
struct Demands {
    /// Computing, messages and latencies: whatever no other task disturbs.
    alone_s: f64,
    compute_s: f64,
    link_s: f64,
    home_s: f64,
    write_s: f64,
    read_s: f64,
    /// The disk's part of making, and the rest of it.
    making_disk_s: f64,
    making_s: f64,
    dispatch_s: f64,
}

impl Demands {
    fn of(machine: &Machine, work: &ModelWork, ratios: HitRatios) -> Demands {
        let n = work.accesses_per_task;
        let (bytes, fetched) = (work.object_bytes, ratios.remote() + ratios.home());
        let (local, caches) = (ratios.local(), work.reuse != Reuse::NoCaches);
        let latency_s = local * machine.local_latency_s
            + ratios.remote() * machine.remote_latency_s
            + ratios.home() * machine.home_latency_s;
        let reader_bytes_per_s = machine.link_bytes_per_s.min(machine.home_reader_bytes_per_s);
        let read_bytes = work.making.map_or(bytes, |making| making.made_bytes);
        // Another node's disk gives what is fetched from there.
        let read_bytes = if caches { read_bytes + ratios.remote() * bytes } else { 0.0 };
        let made = work.making.filter(|_| caches).map(|making| (ratios.home() + ratios.remote(), making));
        Demands {
            alone_s: work.compute_s + work.overhead_s + n * latency_s,
            compute_s: work.compute_s,
            link_s: n
                * (ratios.remote() * bytes / machine.link_bytes_per_s
                    + ratios.home() * bytes / reader_bytes_per_s),
            home_s: n * ratios.home() * bytes / machine.home_bytes_per_s,
            write_s: if caches { n * fetched * bytes / machine.local_bytes_per_s } else { 0.0 },
            read_s: n * read_bytes / machine.local_bytes_per_s,
            making_disk_s: made.map_or(0.0, |(share, making)| {
                n * share * (bytes + making.made_bytes) / machine.local_bytes_per_s
            }),
            making_s: made.map_or(0.0, |(share, making)| n * share * making.compute_s),
            dispatch_s: machine.dispatch_s,
        }
    }

    /// How long a slot is with the mean task, from one to the next.
    fn cycle_s(&self, machine: &Machine, in_step: bool) -> f64 {
        let (n, p) = (f64::from(machine.n_processors()), f64::from(machine.processors_per_node));
        let (others, others_of_node) = ((n - 1.0) / n, (p - 1.0) / p);
        let mut cycle_s = self.alone_s
            + self.link_s.max(self.write_s)
            + self.read_s
            + self.making_disk_s
            + self.making_s
            + self.dispatch_s;
        if cycle_s <= 0.0 {
            return 0.0;
        }
        let mut at_home_s = self.home_s;
        let mut at_dispatcher_s = self.dispatch_s;
        let (mut at_link_s, mut write_s, mut read_s) = (self.link_s, self.write_s, self.read_s);
        let (mut making_disk_s, mut at_maker_s) = (self.making_disk_s, self.making_s + self.making_disk_s);
        for _ in 0..STEPS {
            if in_step {
                (at_link_s, write_s, read_s) = (p * self.link_s, p * self.write_s, p * self.read_s);
            } else {
                // Who comes finds what the others have there at the time.
                let met = |time_s: f64| 1.0 + others_of_node * p * time_s / cycle_s;
                let at_disk = met(read_s + write_s + making_disk_s);
                at_link_s = self.link_s * met(at_link_s);
                (write_s, read_s) = (self.write_s * at_disk, self.read_s * at_disk);
                making_disk_s = self.making_disk_s * at_disk;
                at_maker_s = (self.making_s + making_disk_s) * met(at_maker_s);
            }
            at_home_s = self.home_s * (1.0 + others * n * at_home_s / cycle_s);
            at_dispatcher_s = self.dispatch_s * (1.0 + others * n * at_dispatcher_s / cycle_s);
            let fetch_s = at_link_s.max(write_s).max(at_home_s);
            let next_s = if in_step && self.making_s > 0.0 {
                // One file is made after the other, while the programs of the node use its disk.
                let one_s = self.making_s + self.making_disk_s;
                let through_s = self.alone_s + fetch_s + read_s + self.making_s + p * self.making_disk_s;
                (through_s + at_dispatcher_s).max(p * (one_s + self.read_s + self.write_s))
            } else {
                self.alone_s + fetch_s + read_s + at_maker_s + at_dispatcher_s
            };
            cycle_s = (cycle_s + next_s) / 2.0;
        }
        cycle_s
    }

    /// The share of the time that each resource is busy, where a slot takes `cycle_s` for a task.
    fn busy(&self, machine: &Machine, cycle_s: f64) -> [(Bottleneck, f64); 5] {
        let (n, p) = (f64::from(machine.n_processors()), f64::from(machine.processors_per_node));
        let share = |demand_s: f64, n: f64| ratio_of(n * demand_s, cycle_s, 0.0).min(1.0);
        [
            (Bottleneck::Processors, share(self.compute_s, 1.0)),
            (Bottleneck::LocalDisks, share(self.read_s + self.write_s + self.making_disk_s, p)),
            (Bottleneck::Links, share(self.link_s, p)),
            (Bottleneck::Home, share(self.home_s, n)),
            (Bottleneck::Dispatcher, share(self.dispatch_s, n)),
        ]
    }
}

/// The time of a slot for the mean task of each slice, by chance and in step.
fn cycles(machine: &Machine, work: &ModelWork, slices: &[HitRatios]) -> Vec<(Demands, f64, f64)> {
    let of = |ratios: &HitRatios| {
        let demands = Demands::of(machine, work, *ratios);
        (demands, demands.cycle_s(machine, false), demands.cycle_s(machine, true))
    };
    slices.iter().map(of).collect()
}

/// What to expect of a workload whose tasks are all there from the beginning.
pub fn expect(machine: &Machine, work: &ModelWork) -> Result<Expected, Invalid> {
    machine.check()?;
    work.check()?;
    let slices = work.slices();
    let n_slices = slices.len() as f64;
    let n_processors = machine.n_processors();
    let tasks_of_slot = work.n_tasks as f64 / f64::from(n_processors) / n_slices;
    let all = cycles(machine, work, &slices);
    let by_chance_s: f64 = all.iter().map(|cycle| cycle.1 * tasks_of_slot).sum();
    let in_step_s: f64 = all.iter().map(|cycle| cycle.2 * tasks_of_slot).sum();
    let time_s = (by_chance_s + in_step_s) / 2.0;
    let one = Machine { n_nodes: 1, processors_per_node: 1, ..*machine };
    let on_one: Vec<HitRatios> = slices.iter().map(|ratios| ratios.on_one_node()).collect();
    let tasks_of_one = work.n_tasks as f64 / n_slices;
    let time_on_one_s: f64 = cycles(&one, work, &on_one).iter().map(|cycle| cycle.1 * tasks_of_one).sum();
    let mean = |of: fn(HitRatios) -> f64| slices.iter().map(|ratios| of(*ratios)).sum::<f64>() / n_slices;
    let ratios = HitRatios::new(mean(HitRatios::local), mean(HitRatios::remote))?;
    let mut busy: Vec<(Bottleneck, f64)> = vec![];
    for (demands, by_chance_s, in_step_s) in &all {
        let cycle_s = (by_chance_s + in_step_s) / 2.0;
        // Of the whole time.
        let weight = ratio_of(cycle_s * tasks_of_slot, time_s, 1.0 / n_slices);
        for (i, (resource, share)) in demands.busy(machine, cycle_s).into_iter().enumerate() {
            if busy.len() <= i {
                busy.push((resource, 0.0));
            }
            busy[i].1 += share * weight;
        }
    }
    busy.sort_by(|a, b| b.1.total_cmp(&a.1));
    let bytes = work.n_accesses() * work.object_bytes;
    let sp = if time_s > 0.0 { speedup(time_on_one_s, time_s) } else { f64::from(n_processors) };
    Ok(Expected {
        time_s,
        by_chance_s,
        in_step_s,
        time_on_one_s,
        speedup: sp,
        efficiency: efficiency(sp, n_processors),
        ratios,
        task_s: time_s * f64::from(n_processors) / work.n_tasks as f64,
        arrivals_max_per_s: ratio_of(work.n_tasks as f64, time_s, f64::INFINITY),
        busy,
        home_bytes: bytes * ratios.home(),
        remote_bytes: bytes * ratios.remote(),
        local_bytes: bytes * ratios.local(),
    })
}

/// What to expect when tasks arrive over time (§6.6 leaves that to future work): in each moment the machine works off what has
/// arrived as fast as it can at the hit ratio that the caches have by then; the rest waits.
///
/// Tasks are a fluid, so that arrivals within a phase are even. Of `work`, `n_tasks` is not used: the phases say how many there
/// are. `Err` also where no task arrives.
pub fn expect_arrivals(
    machine: &Machine,
    work: &ModelWork,
    phases: &[Arrivals],
) -> Result<ExpectedArrivals, Invalid> {
    machine.check()?;
    for phase in phases {
        check_finite("the duration of a phase", phase.duration_s)?;
        check_finite("the arrival rate of a phase", phase.per_s)?;
    }
    let arriving_s: f64 = phases.iter().map(|phase| phase.duration_s).sum();
    let n_tasks: f64 = phases.iter().map(|phase| phase.duration_s * phase.per_s).sum();
    let work = ModelWork { n_tasks: n_tasks as u64, ..*work };
    work.check()?;
    let n_processors = f64::from(machine.n_processors());
    let all = cycles(machine, &work, &work.slices());
    let cycle_of = |done: f64| {
        let slice = ((done / n_tasks * all.len() as f64) as usize).min(all.len() - 1);
        ((all[slice].1 + all[slice].2) / 2.0).max(f64::MIN_POSITIVE)
    };
    // A step is a part of the arrivals, or of what it takes to work off all of it.
    let whole_s: f64 =
        all.iter().map(|c| (c.1 + c.2) / 2.0 * n_tasks / n_processors / all.len() as f64).sum();
    let step_s = (arriving_s.max(whole_s) / f64::from(TIME_STEPS)).max(f64::MIN_POSITIVE);
    let (mut now_s, mut queue, mut done, mut queue_max) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    // Task seconds of waiting and of being worked on.
    let (mut waited, mut worked, mut last_task_s) = (0.0f64, 0.0f64, 0.0f64);
    let mut pass = |duration_s: f64, per_s: f64, queue: &mut f64| {
        let cycle_s = cycle_of(done);
        let able = duration_s * n_processors / cycle_s;
        let served = able.min(*queue + per_s * duration_s);
        waited += *queue * duration_s;
        worked += served * cycle_s;
        *queue += per_s * duration_s - served;
        done += served;
        queue_max = queue_max.max(*queue);
        last_task_s = cycle_s;
        // Time that is left of the step when the queue is empty.
        if able > 0.0 { served / able } else { 0.0 }
    };
    for phase in phases {
        let n_steps = (phase.duration_s / step_s).min(f64::from(TIME_STEPS)).max(1.0) as u32;
        for _ in 0..n_steps {
            pass(phase.duration_s / f64::from(n_steps), phase.per_s, &mut queue);
        }
        now_s += phase.duration_s;
    }
    for _ in 0..100 * TIME_STEPS {
        if queue <= n_tasks * 1e-12 {
            break;
        }
        now_s += step_s * pass(step_s, 0.0, &mut queue);
    }
    let time_s = now_s + last_task_s;
    let ideal_s = arriving_s + work.compute_s;
    Ok(ExpectedArrivals {
        n_tasks,
        time_s,
        ideal_s,
        efficiency: ratio_of(ideal_s, time_s, 1.0),
        queue_tasks_max: queue_max,
        response_s: (waited + worked) / n_tasks,
        utilization: ratio_of(worked, time_s * n_processors, 0.0).min(1.0),
    })
}

/// A change of the machine, and the time that the same work then takes.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// Such as `twice the nodes`.
    pub what: &'static str,
    pub time_s: f64,
}

/// What each resource would bring if there were twice as much of it, the best first.
pub fn changes(machine: &Machine, work: &ModelWork) -> Result<Vec<Change>, Invalid> {
    let cache = |factor: f64| match work.reuse {
        Reuse::Objects { n_objects, cache_bytes } => {
            Reuse::Objects { n_objects, cache_bytes: factor * cache_bytes }
        }
        other => other,
    };
    let m = *machine;
    let of_nodes = ModelWork { reuse: cache(2.0), ..*work };
    let twice = [
        ("twice the nodes", Machine { n_nodes: m.n_nodes.saturating_mul(2), ..m }, of_nodes),
        ("twice the cache on each node", m, of_nodes),
        ("disks of twice the rate", Machine { local_bytes_per_s: 2.0 * m.local_bytes_per_s, ..m }, *work),
        (
            "links of twice the rate",
            Machine {
                link_bytes_per_s: 2.0 * m.link_bytes_per_s,
                home_reader_bytes_per_s: 2.0 * m.home_reader_bytes_per_s,
                ..m
            },
            *work,
        ),
        ("home of twice the rate", Machine { home_bytes_per_s: 2.0 * m.home_bytes_per_s, ..m }, *work),
        ("half the time for a dispatch", Machine { dispatch_s: m.dispatch_s / 2.0, ..m }, *work),
        ("tasks that compute half as long", m, ModelWork { compute_s: work.compute_s / 2.0, ..*work }),
    ];
    let mut all = vec![];
    for (what, machine, work) in twice {
        all.push(Change { what, time_s: expect(&machine, &work)?.time_s });
    }
    all.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACHINE: Machine = Machine {
        n_nodes: 4,
        processors_per_node: 2,
        local_bytes_per_s: 100e6,
        link_bytes_per_s: 125e6,
        home_bytes_per_s: 400e6,
        home_reader_bytes_per_s: 125e6,
        local_latency_s: 0.0,
        remote_latency_s: 0.0,
        home_latency_s: 0.0,
        dispatch_s: 0.0,
    };

    fn work(n_tasks: u64, reuse: Reuse) -> ModelWork {
        let (object_bytes, compute_s, overhead_s) = (10e6, 1.0, 0.0);
        ModelWork {
            n_tasks,
            accesses_per_task: 1.0,
            object_bytes,
            compute_s,
            overhead_s,
            reuse,
            making: None,
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn one_processor_waits_for_nobody() {
        let one = Machine { n_nodes: 1, processors_per_node: 1, ..MACHINE };
        let e = expect(&one, &work(10, Reuse::Ratios(HitRatios::LOCAL_ONLY))).unwrap();
        // 1 s, and 10 MB from a disk of 100 MB/s.
        assert!(close(e.time_s, 11.0) && close(e.speedup, 1.0) && close(e.efficiency, 1.0), "{e:?}");
        let e = expect(&one, &work(10, Reuse::NoCaches)).unwrap();
        assert!(close(e.time_s, 10.8) && e.home_bytes == 1e8, "{e:?}");
        // A fetch takes as long as the slowest part of its way, here the disk; then the program reads it.
        let e = expect(&one, &work(10, Reuse::Ratios(HitRatios::HOME_ONLY))).unwrap();
        assert!(close(e.time_s, 12.0), "{e:?}");
    }

    #[test]
    fn two_programs_of_a_node_meet_by_chance_or_in_step() {
        let node = Machine { n_nodes: 1, ..MACHINE };
        let e = expect(&node, &work(2, Reuse::Ratios(HitRatios::LOCAL_ONLY))).unwrap();
        assert!(close(e.in_step_s, 1.2), "both read at once: {e:?}");
        // Mean value analysis by hand: the other one is at the disk for R of 1 + R, and R = 0.1 (1 + R / (1 + R)).
        let met = (e.by_chance_s - 1.0) / e.by_chance_s;
        assert!(close(e.by_chance_s, 1.0 + 0.1 * (1.0 + met)), "{e:?}");
        assert!(close(e.time_s, (e.in_step_s + e.by_chance_s) / 2.0));
    }

    #[test]
    fn a_saturated_home_bounds_the_time_and_is_what_to_change() {
        let many = Machine { n_nodes: 400, ..MACHINE };
        let w = work(100_000, Reuse::NoCaches);
        let e = expect(&many, &w).unwrap();
        // 10 MB of each task at 400 MB/s.
        assert!((e.time_s - 2_500.0).abs() < 25.0, "{e:?}");
        assert_eq!(e.busy[0].0, Bottleneck::Home);
        assert_eq!(changes(&many, &w).unwrap()[0].what, "home of twice the rate");
        let few = work(100_000, Reuse::Ratios(HitRatios::LOCAL_ONLY));
        assert_eq!(changes(&MACHINE, &few).unwrap()[0].what, "twice the nodes");
    }

    #[test]
    fn caches_fill_and_what_does_not_fit_is_read_again() {
        let ratios = |n_tasks, n_objects, cache_bytes| {
            expect(&MACHINE, &work(n_tasks, Reuse::Objects { n_objects, cache_bytes })).unwrap().ratios
        };
        for (n_tasks, n_objects) in [(1_000, 1_000), (1_380, 1_000), (30_000, 1_000)] {
            let ideal = 1.0 - n_objects as f64 / n_tasks as f64;
            let all = ratios(n_tasks, n_objects, 1e15).local();
            assert!((all - ideal).abs() < 2e-3, "{all} beside {ideal}");
            assert_eq!(ratios(n_tasks, n_objects, 0.0).local(), 0.0);
        }
        // Half of the objects fit: about half of the later readings find theirs.
        let half = ratios(100_000, 1_000, 500.0 * 10e6).local();
        assert!((half - 0.5).abs() < 0.02, "{half}");
    }

    #[test]
    fn a_node_makes_one_file_after_the_other() {
        let node = Machine { n_nodes: 1, ..MACHINE };
        let making = Some(Making { made_bytes: 0.0, compute_s: 5.0 });
        let w = ModelWork { making, object_bytes: 0.0, ..work(100, Reuse::Ratios(HitRatios::HOME_ONLY)) };
        let e = expect(&node, &w).unwrap();
        assert!(close(e.in_step_s, 500.0), "{e:?}");
        assert!((450.0..560.0).contains(&e.by_chance_s), "{e:?}");
        // Without caches each program does that itself, in its own time.
        let e = expect(&node, &ModelWork { reuse: Reuse::NoCaches, ..w }).unwrap();
        assert!(close(e.time_s, 50.0), "{e:?}");
    }

    #[test]
    fn tasks_that_come_slowly_do_not_wait_and_a_burst_does() {
        let w = work(0, Reuse::Ratios(HitRatios::LOCAL_ONLY));
        let slow = expect_arrivals(&MACHINE, &w, &[Arrivals { duration_s: 1_000.0, per_s: 1.0 }]).unwrap();
        assert!(slow.queue_tasks_max < 1.0 && slow.efficiency > 0.99, "{slow:?}");
        assert!((0.12..0.2).contains(&slow.utilization), "{slow:?}");
        // 8 processors do about 7 in a second.
        let burst = [Arrivals { duration_s: 10.0, per_s: 100.0 }, Arrivals { duration_s: 500.0, per_s: 0.0 }];
        let e = expect_arrivals(&MACHINE, &w, &burst).unwrap();
        assert!((900.0..960.0).contains(&e.queue_tasks_max) && e.response_s > 50.0, "{e:?}");
        let all = expect(&MACHINE, &work(1_000, w.reuse)).unwrap();
        let drained = expect_arrivals(&MACHINE, &w, &burst[..1]).unwrap();
        assert!((drained.time_s / all.time_s - 1.0).abs() < 0.02, "{drained:?} beside {all:?}");
        let none = expect_arrivals(&MACHINE, &w, &[]).unwrap_err().to_string();
        assert_eq!(none, "the number of tasks is 0; it must be more than 0");
    }

    #[test]
    fn more_accesses_than_can_be_counted_are_refused() {
        let reuse = Reuse::Objects { n_objects: 1, cache_bytes: 1e9 };
        let error = expect(&MACHINE, &work(u64::MAX, reuse)).unwrap_err().to_string();
        assert!(error.starts_with("the number of accesses of all tasks is 18446744073709552000"), "{error}");
        expect(&MACHINE, &work(1 << 50, reuse)).unwrap();
    }

    proptest! {
        #[test]
        fn more_of_anything_never_takes_longer_and_no_resource_is_overbooked(
            n_nodes in 1u32..300, p in 1u32..5, compute_ms in 0u32..3_000, n_objects in 1u64..5_000, cache_mb in 0u32..100_000,
        ) {
            let machine = Machine { n_nodes, processors_per_node: p, dispatch_s: 1e-3, ..MACHINE };
            let cache_bytes = f64::from(cache_mb) * 1e6;
            let w = ModelWork {
                compute_s: f64::from(compute_ms) / 1e3,
                ..work(10_000, Reuse::Objects { n_objects, cache_bytes })
            };
            let e = expect(&machine, &w).unwrap();
            prop_assert!(e.time_s > 0.0 && e.efficiency <= 1.0 + 1e-6, "{e:?}");
            for change in changes(&machine, &w).unwrap() {
                prop_assert!(change.time_s <= e.time_s * 1.001, "{change:?} beside {e:?}");
            }
            // What is read at home and what all processors compute takes its time.
            let least_s = (e.home_bytes / machine.home_bytes_per_s)
                .max(10_000.0 * w.compute_s / f64::from(machine.n_processors()));
            prop_assert!(e.time_s >= least_s * 0.999, "{e:?}");
        }
    }
}
