//! Predictions: a machine measured on a recorded run, and how long a workload takes on machines like it.
//!
//! In: what a run measured ([`Measured`]), workloads, cases. Out: a [`Machine`] with what each figure was taken from,
//! and for each [`Case`] a [`Prediction`]: the likeliest course, and a range.
//!
//! | figure | taken from |
//! |---|---|
//! | nodes, slots, cache | what executors offered |
//! | `home_client_bytes_per_s`, `home_bytes_per_s` | bytes between home and the nodes, and how many nodes moved some at the time; see `home` |
//! | `nic_bytes_per_s` | bytes between nodes / time in which the reader, and no other node, waited for some; where there were none, the given machine's |
//! | `message_ns` | median from a decision to the executor's knowing it |
//! | `task_overhead_ns` | mean from the moment when slot and inputs were there to the start of the program |
//! | compute time | run time of the program; its reading and writing are taken out as the simulated disk adds them |
//! | sites | what the log's transfers show of the network, as `eyas topology` does ([`Calibration::heed_network`]) |
//! | disk, time of a decision, latency of home | not in a log: the given machine's |
//!
//! The range is that of a few worlds with rates drawn from ± 20 %, speeds of programs from ± 10 %, and run times drawn
//! anew from those measured. Where the run does not say what one node alone gets from home, because home was saturated
//! whenever it was read, both ends of what is possible are lived through as well ([`Calibration::ends`]). The range says how
//! far the answer hangs on what is not known well, and is no confidence interval.
//!
//! Not here: reading logs and lists ([`crate::workload`]), text for people (`eyas-cli`).

mod home;

use self::home::{HomeFit, Rates};
use crate::machine::{Faults, Machine, Sites, preset};
use crate::outcome::Summary;
use crate::workload::trace::{Measured, TaskMeasured};
use crate::workload::{ArrivingTasks, Error, Workload};
use crate::world::{Scheduling, simulate};
use eyas_report::topology::{SiteLine, Topology};
use eyas_terms::needs::Equipment;
use eyas_terms::rng::Rng;
use rustc_hash::FxHashSet;

/// One node's rate from home is known when the fastest that it may be is less than so many times the slowest.
const KNOWN_WITHIN: f64 = 1.5;
/// A transfer of fewer bytes says more about latency than about a rate.
const SMALL_BYTES: u64 = 64 << 10;
/// Rates, and the speed of programs, are drawn from so much below the measured value to so much above it, as a share.
const RATE_SPREAD: f64 = 0.2;
const SPEED_SPREAD: f64 = 0.1;

/// What the run says about home storage when many nodes read at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HomeSeen {
    /// Too little was read to say anything.
    Nothing,
    /// `n_nodes` nodes at once got less than `n_nodes` times what one node gets: the limit of home has been seen.
    Shared { n_nodes: u32 },
    /// `n_nodes` nodes at once got `n_nodes` times what one node gets. Home may be able to give more; predictions assume that it is not.
    PerNode { n_nodes: u32 },
    /// It is known what `n_nodes` nodes at once got, and not what one of them gets alone; see [`Calibration::ends`].
    Together { n_nodes: u32 },
}

/// A machine as a run saw it.
#[derive(Clone, PartialEq, Debug)]
pub struct Calibration {
    pub machine: Machine,
    pub home: HomeSeen,
    /// Where the run does not say what one node alone gets from home: the machine with the slowest and the one with the
    /// fastest client that it may have been. `machine` lies between them.
    pub ends: Option<Box<[Machine; 2]>>,
    /// Whether copies between nodes were seen.
    pub peers: bool,
    /// The sites that the run's network had; see [`Calibration::heed_network`].
    pub sites: Option<SitesSeen>,
}

/// The round trip between two sites where the log has none: placement tells sites apart by round trips.
const FAR_LATENCY_NS: u64 = 20_000_000;

/// The sites of a run's network.
#[derive(Clone, PartialEq, Debug)]
pub struct SitesSeen {
    /// The number of nodes of each, home's site first.
    pub n_nodes: Vec<usize>,
    /// `None`: nothing large has crossed, so predictions are made as if all nodes were in one place.
    pub between_bytes_per_s: Option<f64>,
}

impl Calibration {
    /// Puts the sites that the run's log shows into the machine. A simulated machine has sites of equal sizes with equal links and home
    /// in the first one, so the links have the median of the rates that were seen between two sites or from home to a far one, and
    /// nodes and home's readers have the rates of the site where home is quickest.
    pub fn heed_network(&mut self, topology: &Topology) {
        if topology.sites.len() < 2 {
            return;
        }
        let best = |rates: &mut dyn Iterator<Item = Option<f64>>| rates.flatten().max_by(f64::total_cmp);
        let of_home = |site: &Vec<String>| {
            let lines = topology.home.iter().filter(|line| site.contains(&line.node));
            best(&mut lines.map(|line| line.seen.best_bytes_per_s))
        };
        let rates: Vec<Option<f64>> = topology.sites.iter().map(of_home).collect();
        let at_home = (0..rates.len()).max_by(|a, b| {
            let rate = |site: usize| rates[site].unwrap_or(0.0);
            rate(*a).total_cmp(&rate(*b)).then(b.cmp(a))
        });
        let at_home = at_home.unwrap_or(0);
        let is_between = |line: &&SiteLine| line.a != line.b;
        let mut between: Vec<f64> = topology
            .between_sites
            .iter()
            .filter(is_between)
            .filter_map(|line| line.seen.best_bytes_per_s)
            .collect();
        let far = rates.iter().enumerate().filter(|(site, _)| *site != at_home);
        between.extend(far.filter_map(|(_, rate)| *rate));
        between.sort_unstable_by(f64::total_cmp);
        let between_bytes_per_s = between.get(between.len() / 2).copied();
        let inside = topology.between_sites.iter().filter(|line| line.a == line.b);
        let inside = best(&mut inside.map(|line| line.seen.best_bytes_per_s));
        let mut n_nodes = vec![topology.sites[at_home].len()];
        n_nodes.extend(
            topology.sites.iter().enumerate().filter(|(n, _)| *n != at_home).map(|(_, site)| site.len()),
        );
        if let Some(between_bytes_per_s) = between_bytes_per_s {
            let latency = topology
                .between_sites
                .iter()
                .filter(is_between)
                .filter_map(|line| line.seen.latency_ns)
                .min();
            let ends = self.ends.iter_mut().flat_map(|ends| ends.iter_mut());
            for machine in ends.chain([&mut self.machine]) {
                machine.nic_bytes_per_s = inside.unwrap_or(machine.nic_bytes_per_s).max(between_bytes_per_s);
                let client = rates[at_home].unwrap_or(machine.home_client_bytes_per_s);
                machine.home_client_bytes_per_s = machine.home_client_bytes_per_s.max(client);
                machine.home_bytes_per_s = machine.home_bytes_per_s.max(machine.home_client_bytes_per_s);
                machine.nic_bytes_per_s = machine.nic_bytes_per_s.max(machine.home_client_bytes_per_s);
                machine.sites = Some(Sites {
                    n: topology.sites.len() as u32,
                    between_bytes_per_s,
                    between_latency_ns: latency.unwrap_or(FAR_LATENCY_NS) / 2,
                });
            }
        }
        self.sites = Some(SitesSeen { n_nodes, between_bytes_per_s });
    }
}

/// The machine that a run was on. `Err`: the run says too little, in one sentence.
pub fn calibrate(measured: &Measured) -> Result<Calibration, String> {
    let base = preset("this-machine")?;
    let Some(slots) = measured.nodes.iter().map(|n| n.slots).max() else {
        return Err("the run had no node".into());
    };
    let peer = Nodes::fetching_from_peers(measured).alone_bytes_per_s();
    let made = |rates: Option<Rates>| {
        let client = rates.map_or(base.home_client_bytes_per_s, |r| r.client);
        Machine {
            name: "as measured".into(),
            nodes: measured.nodes.len() as u32,
            slots_per_node: slots.max(1),
            cache_bytes_per_node: measured.nodes.iter().map(|n| n.cache_bytes).min().unwrap_or(0),
            cache_memory_bytes_per_node: measured
                .nodes
                .iter()
                .map(|n| n.cache_memory_bytes)
                .min()
                .unwrap_or(0),
            equipment: Equipment::most_of(measured.nodes.iter().map(|n| &n.equipment)),
            nic_bytes_per_s: peer.unwrap_or(base.nic_bytes_per_s).max(client),
            home_bytes_per_s: rates.map_or(base.home_bytes_per_s, |r| r.home).max(client),
            home_client_bytes_per_s: client,
            message_ns: measured.dispatch.p50_ns,
            task_overhead_ns: match measured.start.n {
                0 => base.task_overhead_ns,
                _ => measured.start.mean_ns,
            },
            ..base.clone()
        }
    };
    let (mut home, mut ends, mut rates) = (HomeSeen::Nothing, None, None);
    if let Some(fit) = HomeFit::of(&home::uses(&measured.tasks)) {
        let (n_nodes, known) = (fit.n_nodes, fit.fastest.client < KNOWN_WITHIN * fit.slowest.client);
        home = match known {
            false => HomeSeen::Together { n_nodes },
            true if fit.is_shared => HomeSeen::Shared { n_nodes },
            true => HomeSeen::PerNode { n_nodes },
        };
        if !known {
            ends = Some(Box::new([made(Some(fit.slowest)), made(Some(fit.fastest))]));
        }
        rates = Some(if known { fit.best } else { fit.between() });
    }
    let machine = made(rates);
    machine.check()?;
    Ok(Calibration { machine, home, ends, peers: peer.is_some(), sites: None })
}

/// Nodes that wait for bytes of each other, over time.
struct Nodes {
    /// Of all nodes: bytes, and time in which they waited.
    bytes: u64,
    waited_ns: u64,
    /// `[n - 1]`: while `n` nodes waited: for how long, and what they got in that time.
    levels: Vec<(u64, f64)>,
}

impl Nodes {
    fn fetching_from_peers(measured: &Measured) -> Nodes {
        // Of each node: begin, end, bytes of each wait.
        let mut waits: Vec<Vec<(u64, u64, u64)>> = vec![vec![]; measured.nodes.len()];
        for t in &measured.tasks {
            let (bytes, wait_ns) = (t.peer_bytes, t.peer_wait_ns);
            if bytes >= SMALL_BYTES && wait_ns > 0 {
                waits[t.node as usize].push((t.received.0, t.received.0 + wait_ns, bytes));
            }
        }
        let (mut all, mut turns) = (Nodes { bytes: 0, waited_ns: 0, levels: vec![] }, vec![]);
        for list in &mut waits {
            list.sort_unstable();
            let mut busy: Vec<(u64, u64, u64)> = vec![];
            for &(begin, end, bytes) in list.iter() {
                match busy.last_mut().filter(|last| begin <= last.1) {
                    Some(last) => *last = (last.0, last.1.max(end), last.2 + bytes),
                    None => busy.push((begin, end, bytes)),
                }
            }
            for (begin, end, bytes) in busy {
                all.bytes += bytes;
                all.waited_ns += end - begin;
                let rate = bytes as f64 / (end - begin) as f64;
                turns.push((begin, 1i32, rate));
                turns.push((end, -1, -rate));
            }
        }
        // At one moment, ends come before beginnings.
        turns.sort_by_key(|turn| (turn.0, turn.1));
        let (mut n_now, mut rate_now, mut since) = (0i32, 0.0, 0);
        for (at, change, rate) in turns {
            if n_now > 0 {
                let level = n_now as usize - 1;
                all.levels.resize(all.levels.len().max(level + 1), (0, 0.0));
                all.levels[level].0 += at - since;
                all.levels[level].1 += rate_now * (at - since) as f64;
            }
            n_now += change;
            rate_now = if n_now == 0 { 0.0 } else { rate_now + rate };
            since = at;
        }
        all
    }

    /// What one node gets while no other waits; where that never lasted, while any number does. Bytes per second.
    fn alone_bytes_per_s(&self) -> Option<f64> {
        let mean = (self.waited_ns > 0).then(|| self.bytes as f64 / self.waited_ns as f64 * 1e9);
        self.lasting().find(|(n, _)| *n == 1).map(|(_, rate)| rate).or(mean)
    }

    /// Levels that lasted for a fiftieth of the time: number of nodes, and what they got together in bytes per second.
    fn lasting(&self) -> impl Iterator<Item = (u32, f64)> {
        let total: u64 = self.levels.iter().map(|(ns, _)| ns).sum();
        let rate = |(ns, bytes): &(u64, f64)| bytes / *ns as f64 * 1e9;
        let lasts = move |(ns, _): &(u64, f64)| *ns > 0 && *ns >= total / 50;
        (1u32..)
            .zip(&self.levels)
            .filter(move |(_, level)| lasts(level))
            .map(move |(n, level)| (n, rate(level)))
    }
}

/// How long each program of a run would have taken with a processor for itself, where its nodes shared
/// `n_processors`, in nanoseconds by position.
///
/// While more programs run than there are processors, each gets its share (processor sharing), as far as processors were
/// busy with them at all: programs that sleep or wait for files share nothing. Never less than the processor time that it
/// used has passed.
pub fn alone_ns(measured: &Measured, n_processors: u32) -> Vec<u64> {
    let tasks = &measured.tasks;
    let n_processors = f64::from(n_processors.max(1));
    let mut turns: Vec<(u64, i64, usize)> = vec![];
    for (i, t) in tasks.iter().enumerate().filter(|(_, t)| t.exited > t.started) {
        let cpus = i64::from(t.cpus.max(1));
        turns.push((t.started.0, cpus, i));
        turns.push((t.exited.0, -cpus, i));
    }
    turns.sort_unstable_by_key(|turn| (turn.0, turn.1));
    // Time that a program with one processor of its own would have had since the beginning.
    let (mut n_running, mut n_busy, mut served_ns, mut since) = (0i64, 0.0, 0.0, 0u64);
    let (mut at_start, mut alone) = (vec![0.0; tasks.len()], vec![0; tasks.len()]);
    for (at, change, i) in turns {
        let (task, crowd) = (&tasks[i], (n_running as f64 / n_processors).max(1.0));
        let busy = f64::clamp(n_busy / n_processors, 0.0, 1.0);
        served_ns += (1.0 - busy * (1.0 - 1.0 / crowd)) * (at - since) as f64;
        (n_running, since) = (n_running + change, at);
        let used = task.cpu_ns as f64 / task.run_ns() as f64;
        match change > 0 {
            true => (at_start[i], n_busy) = (served_ns, n_busy + used),
            false => {
                n_busy -= used;
                let had_ns = (served_ns - at_start[i]).round() as u64;
                alone[i] = had_ns.max(task.cpu_ns).min(task.run_ns());
            }
        }
    }
    alone
}

/// One line of a table of predictions.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub nodes: u32,
    pub cache_bytes: u64,
    pub placement: String,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    pub case: Case,
    /// The result with all values as they were measured.
    pub summary: Summary,
    /// The results of the fastest and of the slowest world; the likeliest one is among these worlds.
    pub makespan_s: (f64, f64),
}

impl Prediction {
    /// Nodes that are paid for, from the beginning to the end.
    pub fn node_hours(&self, slots_per_node: u32) -> f64 {
        self.summary.cpu_hours / f64::from(slots_per_node.max(1))
    }
}

/// A machine and a workload to predict for.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    pub machine: &'a Machine,
    /// Where something is not known: the slowest and the fastest machine that it may be. Otherwise empty.
    pub ends: &'a [Machine],
    pub scheduling: &'a Scheduling,
    pub faults: &'a Faults,
    /// The work; `Some`: with run times drawn anew.
    pub workload: &'a dyn Fn(Option<&mut Rng>) -> Result<Workload, Error>,
    /// Worlds that the range is taken from, beside the likeliest one.
    pub n_worlds: u32,
    pub seed: u64,
}

impl Question<'_> {
    /// Simulates one case several times. `Err` says in one sentence why the case is impossible or never ends.
    pub fn answer(&self, case: &Case) -> Result<Prediction, String> {
        let mut scheduling = self.scheduling.clone();
        scheduling.dispatcher.placement = case.placement.clone();
        let of_case = |machine: &Machine| Machine {
            nodes: case.nodes,
            cache_bytes_per_node: case.cache_bytes,
            ..machine.clone()
        };
        let machine = of_case(self.machine);
        let ends: Vec<Machine> = self.ends.iter().map(of_case).collect();
        let made = |rng: Option<&mut Rng>| (self.workload)(rng).map_err(|e| e.to_string());
        let lived = |machine: &Machine, rng: Option<&mut Rng>, seed: u64| {
            simulate(machine, &scheduling, self.faults, made(rng)?, seed, None)
        };
        let summary = lived(&machine, None, self.seed)?;
        let (mut least, mut most) = (summary.makespan_s, summary.makespan_s);
        let mut widen = |s: Summary| (least, most) = (least.min(s.makespan_s), most.max(s.makespan_s));
        // Many nodes on few processors hinder each other, so the fastest end is also tried at its fastest.
        if let ([slowest, fastest], true) = (&ends[..], self.n_worlds > 0) {
            let quick = with_factors(fastest, [1.0 + RATE_SPREAD; 3], 1.0 + SPEED_SPREAD);
            for end in [slowest, fastest, &quick] {
                widen(lived(end, None, self.seed)?);
            }
        }
        for world in 1..=u64::from(self.n_worlds) {
            // All cases are simulated with the same draws, so that cases differ by what they are and not by luck.
            let seed = self.seed.wrapping_add(world);
            let mut rng = Rng::new(seed);
            let base = if ends.is_empty() { &machine } else { &ends[world as usize % ends.len()] };
            let other = disturbed(base, &mut rng);
            widen(lived(&other, Some(&mut rng), seed)?);
        }
        Ok(Prediction { case: case.clone(), summary, makespan_s: (least, most) })
    }
}

fn disturbed(machine: &Machine, rng: &mut Rng) -> Machine {
    let mut factor = |spread: f64| {
        let u = rng.below(1 << 53) as f64 / (1u64 << 53) as f64;
        1.0 + spread * (2.0 * u - 1.0)
    };
    let rates = [factor(RATE_SPREAD), factor(RATE_SPREAD), factor(RATE_SPREAD)];
    with_factors(machine, rates, factor(SPEED_SPREAD))
}

/// `rates`: of home, of links between nodes, of disks.
fn with_factors(machine: &Machine, rates: [f64; 3], speed: f64) -> Machine {
    let [home, nic, disk] = rates;
    Machine {
        home_bytes_per_s: machine.home_bytes_per_s * home,
        home_client_bytes_per_s: machine.home_client_bytes_per_s * home,
        nic_bytes_per_s: machine.nic_bytes_per_s * nic,
        disk_bytes_per_s: machine.disk_bytes_per_s * disk,
        speed: machine.speed * speed,
        ..machine.clone()
    }
}

/// Bytes of all the different files that tasks read: caches that hold as much together never evict.
pub fn distinct_read_bytes(workload: Workload) -> u64 {
    let mut seen = FxHashSet::default();
    let mut total = 0u64;
    for ArrivingTasks { array, .. } in workload.submissions {
        for (_, pattern) in &array.template.inputs {
            for i in 0..array.n_tasks {
                let location = array.fill(pattern, i);
                let bytes = workload.sizes.of(&location).unwrap_or(0);
                total = total.saturating_add(if seen.insert(location) { bytes } else { 0 });
            }
        }
    }
    total
}

/// Of predictions that differ in nodes alone, fewest first: the one after which further nodes stop paying. They pay
/// while they make the work faster by at least the factor by which they make it dearer, which is to be twice as fast with
/// four times the nodes.
pub fn knee(by_nodes: &[&Prediction]) -> usize {
    let pays = |pair: &[&Prediction]| {
        let faster = pair[0].summary.makespan_s / pair[1].summary.makespan_s;
        faster * faster >= f64::from(pair[1].case.nodes) / f64::from(pair[0].case.nodes)
    };
    by_nodes.windows(2).take_while(|pair| pays(pair)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::all_pairs::{AllPairsConfig, all_pairs};
    use crate::workload::trace::{MeasuredNode, MeasuredTransfers, Spread};
    use eyas_terms::Timestamp;

    const S: u64 = 1_000_000_000;

    fn measured(n_nodes: u32, tasks: Vec<TaskMeasured>) -> Measured {
        let node = |i: u32| MeasuredNode {
            cache_memory_bytes: 0,
            equipment: Equipment::default(),
            name: format!("node{i}"),
            slots: 1,
            memory_bytes: 1 << 30,
            cache_bytes: 1 << 30,
            held_bytes: 0,
            joined: Timestamp(0),
            n_losses: 0,
        };
        Measured {
            eyas_version: "0.1.0".into(),
            config: Default::default(),
            n_lives: 1,
            n_tasks: tasks.len() as u64,
            n_done: tasks.len() as u64,
            n_failed: 0,
            n_cancelled: 0,
            n_attempts: tasks.len() as u64,
            makespan_ns: 100 * S,
            nodes: (0..n_nodes).map(node).collect(),
            requests: Default::default(),
            home_in: MeasuredTransfers::default(),
            peer: MeasuredTransfers::default(),
            home_out: MeasuredTransfers::default(),
            dispatch: Spread { n: 1, mean_ns: 9, p50_ns: 200_000, p99_ns: 9 },
            start: Spread { n: 1, mean_ns: 2_000_000, p50_ns: 9, p99_ns: 9 },
            run: Spread::default(),
            report: Spread::default(),
            tasks,
        }
    }

    /// A task on `node` that waits for 10 MB from `begin_s` for `wait_s`.
    fn fetches(node: u32, begin_s: u64, wait_s: u64) -> TaskMeasured {
        TaskMeasured {
            node,
            cpus: 1,
            received: Timestamp(begin_s * S),
            home_bytes: 10_000_000,
            home_wait_ns: wait_s * S,
            ..TaskMeasured::default()
        }
    }

    fn check_home(n_nodes: u32, tasks: Vec<TaskMeasured>, client: f64, home: f64, seen: HomeSeen) {
        let c = calibrate(&measured(n_nodes, tasks)).unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.03;
        assert!(near(c.machine.home_client_bytes_per_s, client), "{c:?}");
        assert!(near(c.machine.home_bytes_per_s, home), "{c:?}");
        assert_eq!((c.home, c.ends), (seen, None));
        assert_eq!((c.machine.message_ns, c.machine.task_overhead_ns), (200_000, 2_000_000));
    }

    #[test]
    fn home_that_gives_each_node_the_same_is_per_node() {
        let mut tasks: Vec<TaskMeasured> = (0..4).map(|n| fetches(n, 0, 4)).collect();
        tasks.extend((0..4).map(|i| fetches(0, 10 + 10 * i, 4)));
        check_home(4, tasks, 2.5e6, 10e6, HomeSeen::PerNode { n_nodes: 4 });
    }

    #[test]
    fn what_one_node_gets_alone_is_a_range_where_all_always_read_together() {
        let tasks = (0..4).map(|n| fetches(n, 0, 4)).collect();
        let c = calibrate(&measured(4, tasks)).unwrap();
        assert_eq!(c.home, HomeSeen::Together { n_nodes: 4 });
        let [slowest, fastest] = *c.ends.expect("it is not known");
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.15;
        assert!(near(slowest.home_client_bytes_per_s, 2.5e6), "{slowest:?}");
        assert!(near(fastest.home_client_bytes_per_s, 10e6), "{fastest:?}");
        assert!(near(slowest.home_bytes_per_s, 10e6) && near(fastest.home_bytes_per_s, 10e6));
        let between = c.machine.home_client_bytes_per_s;
        assert!(slowest.home_client_bytes_per_s < between && between < fastest.home_client_bytes_per_s);
    }

    #[test]
    fn two_transfers_of_one_node_share_what_it_gets() {
        let tasks = vec![fetches(0, 0, 8), fetches(0, 0, 8)];
        check_home(1, tasks, 2.5e6, 2.5e6, HomeSeen::PerNode { n_nodes: 1 });
    }

    #[test]
    fn home_that_many_nodes_share_has_a_limit() {
        // Alone 10 MB/s for a long time, four together no more than 10 MB/s.
        let mut tasks: Vec<TaskMeasured> = (0..20).map(|i| fetches(0, 10 * i, 1)).collect();
        tasks.extend((0..4).map(|n| fetches(n, 300, 4)));
        check_home(4, tasks, 10e6, 10e6, HomeSeen::Shared { n_nodes: 4 });
    }

    #[test]
    fn programs_that_shared_processors_would_have_been_faster_alone() {
        let program = |start: u64, end: u64, cpu: u64| TaskMeasured {
            cpus: 1,
            started: Timestamp(start * S),
            exited: Timestamp(end * S),
            cpu_ns: cpu * S,
            ..TaskMeasured::default()
        };
        // Three on two processors for 6 s, then one alone for 2 s.
        let m = measured(3, vec![program(0, 6, 4), program(0, 6, 4), program(0, 8, 6)]);
        assert_eq!(alone_ns(&m, 2), [4 * S, 4 * S, 6 * S]);
        assert_eq!(alone_ns(&m, 8), [6 * S, 6 * S, 8 * S], "nothing was shared");
        let m = measured(3, vec![program(0, 6, 0), program(0, 6, 0), program(0, 6, 0)]);
        assert_eq!(alone_ns(&m, 2), [6 * S; 3], "they slept");
    }

    #[test]
    fn a_prediction_lies_in_its_range_and_more_nodes_are_faster_until_the_knee() {
        let machine = Machine {
            home_bytes_per_s: 50e6,
            home_client_bytes_per_s: 50e6,
            ..preset("this-machine").unwrap()
        };
        let pairs = |_: Option<&mut Rng>| {
            all_pairs(AllPairsConfig { n: 20, item_bytes: 5_000_000, compute_ns: S / 10 })
        };
        let question = Question {
            machine: &machine,
            ends: &[],
            scheduling: &Scheduling::default(),
            faults: &Faults::default(),
            workload: &pairs,
            n_worlds: 3,
            seed: 1,
        };
        let case = |nodes| Case { nodes, cache_bytes: 1 << 30, placement: "good-cache-compute".into() };
        let answers: Vec<Prediction> =
            [1, 2, 4, 256].iter().map(|n| question.answer(&case(*n)).unwrap()).collect();
        for a in &answers {
            let (least, most) = a.makespan_s;
            assert!(least <= a.summary.makespan_s && a.summary.makespan_s <= most && least < most);
            assert_eq!(a.summary.n_done, 400);
        }
        assert_eq!(distinct_read_bytes(pairs(None).unwrap()), 2 * 20 * 5_000_000);
        assert!(answers[0].summary.makespan_s > answers[1].summary.makespan_s);
        let list: Vec<&Prediction> = answers.iter().collect();
        assert_eq!(knee(&list), 2, "256 nodes for 40 s of computing behind a slow home");
        assert_eq!(question.answer(&case(2)).unwrap(), answers[1], "the same again");
    }
}
