//! Random worlds: one placement policy against others, on machines and workloads that are drawn at random.
//!
//! In: a seed. Out: a [`World`] (a machine and the tasks of a workload), its description in words, and the
//! result of a policy in it. The same seed is the same world, on every machine; all compared policies get
//! the same world.
//!
//! Drawn are the following. All rates come from a logarithmic scale, so that each power of ten is as likely
//! as the next:
//!
//! | | |
//! |---|---|
//! | machine | nodes, slots, disks, links, home and one node's share of it, latencies, caches from scarce to plenty; in a quarter of the worlds some nodes are slow |
//! | hot | few files, read by all tasks |
//! | once | each file read by one task |
//! | local | as many reads per file as a locality says, in random order or in the order of files |
//! | skewed | few files are read often, most seldom |
//! | pairs | every file of one set with every file of another |
//! | blast | a few files that all tasks read, and one of its own for each |
//! | stages | layers of tasks, each of which reads what tasks of the layer before made, some of it by many |
//! | stream | tasks that come over time |
//!
//! Worlds are small, so that hundreds take minutes: at most [`TASKS_MAX`] tasks.
//!
//! Not here: which policies are compared and how the results are shown (`eyas-lab worlds`).

use eyas_core::network::NetworkUse;
use eyas_core::placement::{affinity, first_available, good_cache_compute, max_cache_hit, max_compute_util};
use eyas_sim::machine::{Costs, Faults, Machine};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::{ArrivingTasks, Compute, Sizes, Workload, links, template};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::Timestamp;
use eyas_terms::array::{Pattern, TaskArray};
use eyas_terms::rng::Rng;
use eyas_terms::run_file;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The policy that is compared with the others.
pub const PLACEMENT: &str = affinity::NAME;
/// The others: the policies of Raicu09.
pub const OTHERS: [&str; 4] =
    [first_available::NAME, max_cache_hit::NAME, max_compute_util::NAME, good_cache_compute::NAME];
/// Not a policy: the one of the others that was best in a world that differs only in how long its tasks
/// compute ([`World::nudged`]). No policy can know more than that, so its losses are chance.
pub const HINDSIGHT: &str = "hindsight";
/// The time that a task computes in a nudged world differs by at most this share.
const NUDGE: f64 = 0.01;
/// The number of tasks of a world, about.
pub const TASKS_MAX: u64 = 3000;

/// The kinds of workloads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Hot,
    Once,
    Local,
    Skewed,
    Pairs,
    Blast,
    Stages,
    Stream,
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::Hot,
        Kind::Once,
        Kind::Local,
        Kind::Skewed,
        Kind::Pairs,
        Kind::Blast,
        Kind::Stages,
        Kind::Stream,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Hot => "hot",
            Kind::Once => "once",
            Kind::Local => "local",
            Kind::Skewed => "skewed",
            Kind::Pairs => "pairs",
            Kind::Blast => "blast",
            Kind::Stages => "stages",
            Kind::Stream => "stream",
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Task {
    at_ns: u64,
    label: &'static str,
    inputs: Vec<String>,
    outputs: Vec<String>,
    compute_ns: u64,
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct World {
    pub seed: u64,
    pub kind: Kind,
    pub machine: Machine,
    /// Only that some nodes are slow.
    pub faults: Faults,
    tasks: Vec<Task>,
    sizes: FxHashMap<String, u64>,
    /// What `affinity` knows of the network.
    pub network: NetworkUse,
}

/// Draws from one seed.
struct Draw(Rng);

impl Draw {
    /// A number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        self.0.below(1 << 53) as f64 / (1u64 << 53) as f64
    }

    /// A number between the two, rounded to two digits. Each power of ten is as likely as the next.
    fn log(&mut self, low: f64, high: f64) -> f64 {
        let x = libm::exp(libm::log(low) + self.unit() * libm::log(high / low));
        let digit = libm::pow(10.0, libm::floor(libm::log10(x)) - 1.0);
        (libm::round(x / digit) * digit).clamp(low, high)
    }

    fn count(&mut self, low: u64, high: u64) -> u64 {
        (self.log(low as f64, high as f64).round() as u64).clamp(low, high)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len() as u64) as usize]
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.0.below(last as u64 + 1) as usize);
        }
    }
}

/// The distribution of compute times: all the same, or between a half and twice as long.
struct WorkTimes {
    ns: f64,
    even: bool,
}

impl WorkTimes {
    fn draw(&self, draw: &mut Draw) -> u64 {
        let factor = if self.even { 1.0 } else { 0.5 * libm::pow(4.0, draw.unit()) };
        (self.ns * factor) as u64
    }
}

impl World {
    pub fn from_seed(seed: u64) -> World {
        World::drawn(seed, None)
    }

    /// The world of a seed, but with tasks in stages, and what a stage makes for another one stays on the nodes. (In other worlds
    /// all files go home.)
    pub fn staying(seed: u64) -> World {
        let mut world = World::drawn(seed, Some(Kind::Stages));
        let read: FxHashSet<String> = world.tasks.iter().flat_map(|t| &t.inputs).cloned().collect();
        let made = world.tasks.iter().flat_map(|t| &t.outputs).filter(|f| read.contains(*f)).cloned();
        let named: FxHashMap<String, String> =
            made.map(|f| (run_file(&f), f)).map(|(to, f)| (f, to)).collect();
        for name in world.tasks.iter_mut().flat_map(|t| t.inputs.iter_mut().chain(&mut t.outputs)) {
            if let Some(named) = named.get(name) {
                name.clone_from(named);
            }
        }
        let sizes = std::mem::take(&mut world.sizes).into_iter();
        world.sizes = sizes.map(|(f, bytes)| (named.get(&f).cloned().unwrap_or(f), bytes)).collect();
        world
    }

    fn drawn(seed: u64, kind: Option<Kind>) -> World {
        let mut draw = Draw(Rng::new(seed ^ 0x5eed_0f30_71d5));
        // The states of neighbouring seeds are close, but the numbers made from them have nothing in common.
        draw.0.next_u64();
        let any = draw.one_of(&Kind::ALL);
        let kind = kind.unwrap_or(any);
        let nodes = draw.count(2, 128) as u32;
        let slots_per_node = draw.one_of(&[1, 1, 2, 4, 8]);
        let home_bytes_per_s = draw.log(5e6, 50e9);
        let client = draw.log(10e6, 5e9);
        let mut machine = Machine {
            name: format!("world-{seed}"),
            nodes,
            slots_per_node,
            equipment: Default::default(),
            cache_bytes_per_node: 0,
            cache_memory_bytes_per_node: 0,
            memory_bytes_per_s: 10e9,
            disk_bytes_per_s: draw.log(30e6, 5e9),
            nic_bytes_per_s: draw.log(10e6, 3e9),
            home_bytes_per_s,
            home_client_bytes_per_s: client.min(home_bytes_per_s),
            home_latency_ns: draw.log(1e5, 2e7) as u64,
            message_ns: draw.log(5e4, 5e6) as u64,
            dispatch_ns: draw.log(1e4, 5e5) as u64,
            task_overhead_ns: draw.one_of(&[0, 900_000]),
            node_delay_min_ns: 0,
            node_delay_max_ns: 0,
            walltime_ns: None,
            speed: 1.0,
            costs: Costs::default(),
            sites: None,
            cut_links: None,
        };
        let n_slots = u64::from(nodes) * u64::from(slots_per_node);
        let waves = draw.log(1.0, 25.0);
        let n_tasks = ((n_slots as f64 * waves) as u64).clamp(8, TASKS_MAX);
        let file_bytes = draw.log(1e5, 5e8);
        let work = WorkTimes { ns: draw.log(1e6, 1e10), even: draw.one_of(&[true, false]) };
        let mut made = MadeWorkflow { draw, work, file_bytes, tasks: vec![], sizes: FxHashMap::default() };
        made.draw_tasks(kind, n_tasks, n_slots);
        let MadeWorkflow { mut draw, tasks, sizes, .. } = made;
        // The cache has room for a part of all files up to all of them, and always for what one node needs
        // at the same time.
        let total: u64 = sizes.values().sum();
        let most =
            tasks.iter().map(|t| t.inputs.iter().chain(&t.outputs).map(|f| sizes[f]).sum::<u64>()).max();
        let least = most.unwrap_or(0).saturating_mul(4 * u64::from(slots_per_node));
        let share = draw.one_of(&[0.5, 1.0, 2.0, 8.0]);
        let cache = (total as f64 * share / f64::from(nodes)) as u64;
        let stages = matches!(kind, Kind::Stages);
        machine.cache_bytes_per_node = cache.max(least).max(if stages { total } else { 0 });
        let mut faults = Faults::default();
        if draw.one_of(&[false, false, false, true]) {
            (faults.slow_share, faults.slow_speed) = (draw.log(0.1, 0.5), draw.log(0.2, 0.8));
        }
        World { seed, kind, machine, faults, tasks, sizes, network: NetworkUse::default() }
    }

    /// The same machine and files, but each task computes for up to 1 % more or less than here. `chance`
    /// picks one of all such worlds.
    pub fn nudged(&self, chance: u64) -> World {
        let mut draw = Draw(Rng::new(self.seed ^ chance.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        draw.0.next_u64();
        let mut world = self.clone();
        for task in &mut world.tasks {
            task.compute_ns = (task.compute_ns as f64 * (1.0 - NUDGE + 2.0 * NUDGE * draw.unit())) as u64;
        }
        world
    }

    pub fn n_tasks(&self) -> u64 {
        self.tasks.len() as u64
    }

    pub fn compute_mean_s(&self) -> f64 {
        self.tasks.iter().map(|t| t.compute_ns as f64 / 1e9).sum::<f64>() / self.tasks.len().max(1) as f64
    }

    /// The number of files, including those that tasks make, and their size together.
    pub fn files(&self) -> (u64, u64) {
        (self.sizes.len() as u64, self.sizes.values().sum())
    }

    pub fn workload(&self) -> Workload {
        let mut submissions = vec![];
        for (i, task) in self.tasks.iter().enumerate() {
            let patterns = |list: &[String]| list.iter().map(Pattern::literal).collect();
            let id = Pattern::literal(format!("{i}"));
            let template = template(id, task.label, patterns(&task.inputs), patterns(&task.outputs));
            let array = TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None };
            submissions.push(ArrivingTasks {
                at: Timestamp(task.at_ns),
                array: Arc::new(array),
                compute: Compute::Same(task.compute_ns),
            });
        }
        let sizes = Sizes::Each(self.sizes.clone());
        let submissions = match self.kind {
            Kind::Stages => links::in_order(submissions, &sizes).expect("layers have no circles"),
            _ => submissions,
        };
        Workload {
            name: format!("world-{}", self.seed),
            n_tasks: self.n_tasks(),
            ideal_ns: self.tasks.iter().map(|t| t.at_ns).max().unwrap_or(0),
            read_bytes: self.tasks.iter().flat_map(|t| &t.inputs).map(|f| self.sizes[f]).sum(),
            sizes,
            submissions: Box::new(submissions.into_iter()),
        }
    }

    /// Simulates the world under one policy. `Err`: the run did not end, or did not end well.
    pub fn run(&self, placement: &str) -> Result<Summary, String> {
        let mut scheduling = Scheduling::default();
        scheduling.dispatcher.placement = placement.into();
        scheduling.dispatcher.placement_config.affinity.network = self.network;
        let summary = simulate(&self.machine, &scheduling, &self.faults, self.workload(), self.seed, None);
        let summary = summary.map_err(|e| format!("world {} under {placement}: {e}", self.seed))?;
        match summary.n_failed {
            0 => Ok(summary),
            n => Err(format!(
                "world {} under {placement}: {n} of {} tasks failed, the first: {}",
                self.seed,
                summary.n_tasks,
                summary.failure.unwrap_or_default()
            )),
        }
    }
}

struct MadeWorkflow {
    draw: Draw,
    work: WorkTimes,
    file_bytes: f64,
    tasks: Vec<Task>,
    sizes: FxHashMap<String, u64>,
}

impl MadeWorkflow {
    fn file(&mut self, name: String, factor: f64) -> String {
        let bytes = ((self.file_bytes * factor) as u64).max(1);
        self.sizes.entry(name.clone()).or_insert(bytes);
        name
    }

    fn task(&mut self, label: &'static str, inputs: Vec<String>, outputs: Vec<String>) {
        let compute_ns = self.work.draw(&mut self.draw);
        self.tasks.push(Task { at_ns: 0, label, inputs, outputs, compute_ns });
    }

    fn draw_tasks(&mut self, kind: Kind, n_tasks: u64, n_slots: u64) {
        match kind {
            Kind::Hot => {
                let n_files = self.draw.count(1, 6);
                for i in 0..n_tasks {
                    let file = self.file(format!("hot{}", i % n_files), 1.0);
                    self.task("read", vec![file], vec![]);
                }
            }
            Kind::Once => {
                for i in 0..n_tasks {
                    let file = self.file(format!("f{i}"), 1.0);
                    self.task("read", vec![file], vec![]);
                }
            }
            Kind::Local => self.local(n_tasks),
            Kind::Skewed => {
                let n_files = (n_tasks as f64 / self.draw.log(2.0, 20.0)).ceil().max(1.0);
                let (n_inputs, power) = (self.draw.one_of(&[1, 1, 2, 3]), self.draw.log(1.5, 6.0));
                for _ in 0..n_tasks {
                    let mut reads = BTreeSet::new();
                    for _ in 0..n_inputs {
                        reads.insert((libm::pow(self.draw.unit(), power) * n_files) as u64);
                    }
                    let inputs = reads.into_iter().map(|f| self.file(format!("f{f}"), 1.0)).collect();
                    self.task("read", inputs, vec![]);
                }
            }
            Kind::Pairs => {
                let n = (n_tasks as f64).sqrt().ceil().max(2.0) as u64;
                for i in 0..n {
                    for j in 0..n_tasks.div_ceil(n) {
                        let inputs = vec![self.file(format!("a{i}"), 1.0), self.file(format!("b{j}"), 1.0)];
                        self.task("compare", inputs, vec![]);
                    }
                }
            }
            Kind::Blast => {
                let (n_files, own) = (self.draw.count(1, 3), self.draw.log(0.001, 0.3));
                for i in 0..n_tasks {
                    let mut inputs = vec![self.file(format!("q{i}"), own)];
                    inputs.extend((0..n_files).map(|f| self.file(format!("db{f}"), 1.0)));
                    self.task("search", inputs, vec![]);
                }
            }
            Kind::Stages => self.stages(n_tasks),
            Kind::Stream => {
                self.local(n_tasks);
                // Tasks arrive about as fast as all slots could compute them, or half or twice as fast.
                let factor = self.draw.log(0.5, 2.0);
                for (i, task) in self.tasks.iter_mut().enumerate() {
                    task.at_ns = (i as f64 * (self.work.ns + 1e6) / n_slots as f64 * factor) as u64;
                }
            }
        }
    }

    fn local(&mut self, n_tasks: u64) {
        let locality = self.draw.log(1.2, 40.0);
        let n_files = ((n_tasks as f64 / locality).ceil() as u64).max(1);
        let n_inputs = self.draw.one_of(&[1, 1, 1, 2]);
        let mut reads: Vec<u64> = (0..n_tasks * n_inputs).map(|i| i % n_files).collect();
        match self.draw.one_of(&[true, true, false]) {
            true => self.draw.shuffle(&mut reads),
            false => reads.sort_unstable(),
        }
        for part in reads.chunks(n_inputs as usize) {
            let part: BTreeSet<u64> = part.iter().copied().collect();
            let inputs = part.into_iter().map(|f| self.file(format!("f{f}"), 1.0)).collect();
            self.task("read", inputs, vec![]);
        }
    }

    /// Layers of tasks. The files of the last layer go home; the others stay on the nodes.
    fn stages(&mut self, n_tasks: u64) {
        const LABELS: [&str; 4] = ["first", "second", "third", "fourth"];
        let n_layers = self.draw.count(2, 4);
        let mut left = n_tasks;
        let mut before: Vec<String> = vec![];
        for layer in 0..n_layers {
            let n = match layer + 1 == n_layers {
                true => left,
                false => self.draw.count(1, (left / 2).max(1)),
            }
            .max(1);
            left = left.saturating_sub(n);
            // Each task reads some files of the layer before: one, a few, or many.
            let reads = self.draw.one_of(&[1, 1, 2, 8, 64]);
            let all_read = self.draw.one_of(&[false, false, false, true]).then(|| self.draw.count(1, 3));
            let size = self.draw.log(0.01, 1.0);
            let made: Vec<String> = (0..n)
                .map(|i| self.file(format!("l{layer}-{i}"), if layer + 1 == n_layers { 0.001 } else { size }))
                .collect();
            for (i, output) in made.iter().enumerate() {
                let mut inputs = BTreeSet::new();
                if before.is_empty() {
                    inputs.insert(self.file(format!("in{i}"), size));
                } else {
                    for k in 0..reads {
                        inputs.insert(before[(i * reads + k) % before.len()].clone());
                    }
                }
                for f in 0..all_read.unwrap_or(0) {
                    inputs.insert(self.file(format!("db{layer}-{f}"), 1.0));
                }
                self.task(LABELS[layer as usize], inputs.into_iter().collect(), vec![output.clone()]);
            }
            before = made;
        }
    }
}

/// The makespan of a world under our policy and under each of the others.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    pub makespan_s: f64,
    pub others_s: Vec<f64>,
}

impl Compared {
    /// The best of the others, by its position among them, and its makespan.
    pub fn best(&self) -> (usize, f64) {
        let all = self.others_s.iter().copied().enumerate();
        all.min_by(|a, b| a.1.total_cmp(&b.1)).expect("it is compared with somebody")
    }

    /// Our makespan divided by the best of the others'; above 1, ours took longer.
    pub fn ratio(&self) -> f64 {
        self.makespan_s / self.best().1.max(1e-9)
    }
}

/// One world under `placement`, which may be [`HINDSIGHT`], and under `others`.
pub fn compare(world: &World, placement: &str, others: &[String]) -> Result<Compared, String> {
    let all_s = |world: &World| -> Result<Vec<f64>, String> {
        others.iter().map(|other| Ok(world.run(other)?.makespan_s)).collect()
    };
    let others_s = all_s(world)?;
    let makespan_s = match placement {
        HINDSIGHT => {
            let seen = Compared { makespan_s: 0.0, others_s: all_s(&world.nudged(1))? };
            others_s[seen.best().0]
        }
        _ => world.run(placement)?.makespan_s,
    };
    Ok(Compared { makespan_s, others_s })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_sim::workload::all_tasks;

    #[test]
    fn a_nudged_world_differs_by_its_compute_times_only() {
        let world = World::from_seed(3);
        let nudged = world.nudged(1);
        assert_eq!(nudged, world.nudged(1));
        assert_ne!(nudged, world.nudged(2));
        assert_eq!((&nudged.machine, &nudged.faults), (&world.machine, &world.faults));
        assert_eq!(nudged.sizes, world.sizes);
        for (a, b) in world.tasks.iter().zip(&nudged.tasks) {
            assert!(b.compute_ns.abs_diff(a.compute_ns) <= a.compute_ns / 100 + 1);
            assert_eq!(Task { compute_ns: a.compute_ns, ..b.clone() }, *a);
        }
    }

    #[test]
    fn hindsight_is_never_better_than_the_best_and_mostly_as_good() {
        let others = OTHERS.map(String::from);
        let ratios: Vec<f64> = (0..20)
            .map(|seed| compare(&World::from_seed(seed), HINDSIGHT, &others).unwrap().ratio())
            .collect();
        assert!(ratios.iter().all(|r| *r >= 1.0), "{ratios:?}");
        assert!(ratios.iter().filter(|r| **r < 1.05).count() >= 15, "{ratios:?}");
    }

    #[test]
    fn a_seed_is_a_world_and_all_kinds_come() {
        let mut seen = BTreeSet::new();
        for seed in 0..60 {
            let world = World::from_seed(seed);
            assert_eq!(world, World::from_seed(seed));
            assert_eq!(world.machine.check(), Ok(()));
            let tasks = all_tasks(world.workload());
            assert_eq!(tasks.len() as u64, world.n_tasks());
            assert!(world.n_tasks() <= TASKS_MAX + TASKS_MAX / 10, "seed {seed}: {}", world.n_tasks());
            seen.insert(world.kind);
        }
        assert_eq!(seen.len(), Kind::ALL.len(), "{seen:?}");
    }
}
