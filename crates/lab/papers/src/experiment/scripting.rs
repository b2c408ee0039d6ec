//! The evaluation of Zhang12: its patterns over many nodes (figure 9), Montage through shared storage
//! (figure 1), BLAST on more and more cores (figure 12), and the resources that its applications use (table
//! I).
//!
//! | | what is simulated |
//! |---|---|
//! | [`curves`] | multicast, scatter and gather by the core's own state machine over links that flows share ([`super::collectives`]); reduce as a tree of tasks in the simulated cluster |
//! | [`montage`] | the shape of Montage on 512 cores with all files through home, and with files on the nodes |
//! | [`blast`] | the shape of BLAST with a query file for 16 cores, on 256 cores and more |
//! | [`resources`] | what the shapes compute, read and write |
//!
//! The machine is that of [`super::stealing`], because the paper says little of its own. What the paper
//! leaves out is assumed: the link's latency and bandwidth are those of the preset; a file costs 0.1 ms
//! within a request; a scatter and a gather move 64 MB, one file per node; a reduce reads 20 MB of integers
//! per second, in parts of 16. The dispatcher takes 25 µs for a task, as ours does live (`eyas-lab bench
//! dispatch`), and not the time that Falkon took.

use super::collectives::{Even, carried_out, chosen, even};
use super::stealing;
use crate::workload::shapes::{Shape, ShapeConfig, shape};
use eyas_core::collective::{CollectiveKind, LinkModel, Way};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::placement::first_available;
use eyas_sim::machine::{Faults, Machine};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::{ArrivingTasks, Compute, Sizes, Workload, template};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::Timestamp;
use eyas_terms::array::{Column, Pattern, Piece, TaskArray};
use eyas_terms::run_file;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const MB: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// The numbers of nodes of figure 9; the text names the last one.
pub const NODES: [u32; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// Bytes that a scatter or a gather moves, on any number of nodes.
const FIXED_BYTES: u64 = 64 * MB;
/// The number of inputs of a part of a reduce, and the rate at which its program reads.
const REDUCE_ARITY: u32 = 16;
const REDUCE_BYTES_PER_S: u64 = 20 * MB;
/// The numbers of cores of figure 12, without its last two: each of them would be simulated for minutes.
pub const BLAST_CORES: [u32; 3] = [256, 1024, 4096];

fn dispatched_as_ours(machine: Machine) -> Machine {
    Machine { dispatch_ns: 25_000, ..machine }
}

/// The link between two nodes.
pub fn link() -> LinkModel {
    let machine = stealing::machine();
    LinkModel {
        latency_s: 2.0 * machine.message_ns as f64 * 1e-9,
        per_object_s: 1e-4,
        bandwidth_bytes_per_s: machine.nic_bytes_per_s,
    }
}

// ---------------------------------------------------------------- figure 9

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern9 {
    Multicast,
    Scatter,
    Gather,
    Reduce,
}

impl Pattern9 {
    pub const ALL: [Pattern9; 4] =
        [Pattern9::Multicast, Pattern9::Scatter, Pattern9::Gather, Pattern9::Reduce];

    pub fn name(self) -> &'static str {
        match self {
            Pattern9::Multicast => "multicast",
            Pattern9::Scatter => "scatter",
            Pattern9::Gather => "gather",
            Pattern9::Reduce => "reduce",
        }
    }

    /// The sizes that vary beside the number of nodes: of the file, of all files together, or of the file
    /// at each node.
    pub fn sizes(self) -> &'static [u64] {
        match self {
            Pattern9::Multicast => &[MB, 10 * MB, 100 * MB],
            Pattern9::Scatter | Pattern9::Gather => &[FIXED_BYTES],
            Pattern9::Reduce => &[1_000, MB, 16 * MB],
        }
    }

    /// The way that stands beside the chosen one: the paper's tree of whole files for a multicast; for a scatter and a
    /// gather no tree, but a request for each node. `None` for a reduce, which consists of tasks.
    fn way_beside(self) -> Option<(CollectiveKind, Way)> {
        match self {
            Pattern9::Multicast => Some((CollectiveKind::Multicast, Way::Binomial)),
            Pattern9::Scatter => Some((CollectiveKind::Scatter, Way::Archives)),
            Pattern9::Gather => Some((CollectiveKind::Gather, Way::CollectiveGather)),
            Pattern9::Reduce => None,
        }
    }
}

/// One point of figure 9. Times are in seconds.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Point {
    pub pattern: Pattern9,
    pub bytes: u64,
    pub nodes: u32,
    /// The way that the core chooses; the fields below give the time that it takes and the time that the
    /// core's cost model expects.
    pub way: String,
    pub seconds: f64,
    pub expected_s: Option<f64>,
    /// The time of the same bytes in the way that stands beside.
    pub beside_s: Option<f64>,
    /// The time by the paper's model with our link.
    pub papers_model_s: f64,
}

/// The model of §VI-A1, with `a` = latency, `b` = 1 / bandwidth, `c` = the cost of a file. As printed, a
/// multicast takes (a + b) S log N. A latency times bytes cannot be meant, so here the factor is a + b S.
pub fn papers_model_s(pattern: Pattern9, bytes: u64, nodes: u32, link: &LinkModel) -> f64 {
    let (n, s) = (f64::from(nodes), bytes as f64);
    let (a, b) = (link.latency_s, 1.0 / link.bandwidth_bytes_per_s);
    let rounds = libm::log2(n);
    match pattern {
        Pattern9::Multicast => rounds * (a + b * s),
        Pattern9::Scatter | Pattern9::Gather => {
            rounds * a + (n - 1.0) / n * s * b + (n - 2.0) * link.per_object_s
        }
        // For a reduce, `c` is the program's time per byte; each node works on its own part.
        Pattern9::Reduce => rounds * a + s / REDUCE_BYTES_PER_S as f64,
    }
}

/// All points that figure 9 has, by pattern, bytes and nodes.
pub fn points() -> Vec<(Pattern9, u64, u32)> {
    let mut list = vec![];
    for pattern in Pattern9::ALL {
        for &bytes in pattern.sizes() {
            list.extend(NODES.map(|nodes| (pattern, bytes, nodes)));
        }
    }
    list
}

pub fn point(pattern: Pattern9, bytes: u64, nodes: u32) -> Result<Point, String> {
    let link = link();
    let papers_model_s = papers_model_s(pattern, bytes, nodes, &link);
    let Some((kind, beside)) = pattern.way_beside() else {
        let [own_s, straight_s] = [reduce_s(bytes, nodes, 1)?, reduce_s(bytes, nodes, REDUCE_ARITY)?];
        let seconds = own_s.min(straight_s);
        let way = match seconds == own_s {
            true => format!("each file by itself, then parts of {REDUCE_ARITY}"),
            false => format!("parts of {REDUCE_ARITY}"),
        };
        return Ok(Point {
            pattern,
            bytes,
            nodes,
            way,
            seconds,
            expected_s: None,
            beside_s: None,
            papers_model_s,
        });
    };
    let (n_files, file_bytes) = match pattern {
        Pattern9::Multicast => (1, bytes),
        _ => (nodes - 1, bytes / u64::from(nodes - 1)),
    };
    let case = even(Even { kind, n_nodes: nodes, n_files, file_bytes }, link);
    let way = chosen(&case);
    let ours = carried_out(&case, way);
    let beside_s = if way == beside { ours.measured_s } else { carried_out(&case, beside).measured_s };
    Ok(Point {
        pattern,
        bytes,
        nodes,
        way: way.to_string(),
        seconds: ours.measured_s,
        expected_s: ours.predicted_s.is_finite().then_some(ours.predicted_s),
        beside_s: Some(beside_s),
        papers_model_s,
    })
}

/// The time of a tree of tasks over a file of `bytes` at each node; each part makes one number.
///
/// First each node makes its file, which takes so long that no node makes two. The time is measured from
/// the end of the last of these tasks.
///
/// * `first`: the number of files that a leaf reads. With 1 no file moves; with [`REDUCE_ARITY`] it is what a task with
///   `"reduce": 16` becomes.
fn reduce_s(bytes: u64, nodes: u32, first: u32) -> Result<f64, String> {
    const MAKE_NS: u64 = 100 * S;
    assert!(nodes.is_power_of_two(), "{nodes} nodes");
    const NUMBER_BYTES: u64 = 8;
    let machine = dispatched_as_ours(Machine { nodes, slots_per_node: 1, ..stealing::machine() });
    let index = |text: &str| Pattern(vec![Piece::Literal(text.into()), Piece::Index]);
    let compute = |bytes: u64| (bytes as f64 / REDUCE_BYTES_PER_S as f64 * S as f64) as u64;
    let lived = |with_tree: bool| -> Result<f64, String> {
        let mut sizes = FxHashMap::default();
        let mut submissions = vec![];
        let mut add = |n: u32, id: &str, program: &str, inputs: Vec<Pattern>, out: &str, columns, ns| {
            let template = template(index(id), program, inputs, vec![index(out)]);
            let array = TaskArray { n_tasks: n, first_index: 0, template, columns, needs: None };
            submissions.push(ArrivingTasks {
                at: Timestamp(0),
                array: Arc::new(array),
                compute: Compute::Same(ns),
            });
        };
        sizes.extend((0..nodes).map(|i| (run_file(format_args!("part-0-{i}")), bytes)));
        add(nodes, "make-", "make", vec![], &run_file("part-0-"), vec![], MAKE_NS);
        let (mut n_parts, mut level, mut arity, mut part_bytes) = (nodes, 0, first, bytes);
        while with_tree && (n_parts > 1 || level == 0) {
            // Nodes and arity are powers of two: all parts of a level are equal.
            let n_tasks = n_parts / arity;
            let mut columns = vec![Column::default(); arity as usize];
            for part in 0..n_parts {
                let column = &mut columns[(part % arity) as usize];
                if !column.push(&run_file(format_args!("part-{level}-{part}"))) {
                    return Err("the names of the parts have more than 4 GiB".into());
                }
            }
            let inputs = (0..arity).map(Pattern::column).collect();
            let (id, out) = (format!("level-{level}-"), run_file(format_args!("part-{}-", level + 1)));
            let ns = compute(part_bytes * u64::from(arity));
            add(n_tasks, &id, "min", inputs, &out, columns, ns);
            n_parts = n_tasks;
            level += 1;
            sizes.extend((0..n_parts).map(|i| (run_file(format_args!("part-{level}-{i}")), NUMBER_BYTES)));
            (arity, part_bytes) = (REDUCE_ARITY.min(n_parts), NUMBER_BYTES);
        }
        let n_tasks = submissions.iter().map(|s| u64::from(s.array.n_tasks)).sum();
        let workload = Workload {
            name: "reduce".into(),
            n_tasks,
            ideal_ns: 0,
            read_bytes: u64::from(nodes) * bytes,
            sizes: Sizes::Each(sizes),
            submissions: Box::new(submissions.into_iter()),
        };
        done(simulate(&machine, &Scheduling::default(), &Faults::default(), workload, super::SEED, None)?)
            .map(|s| s.makespan_s)
    };
    Ok(lived(true)? - lived(false)?)
}

fn done(summary: Summary) -> Result<Summary, String> {
    match summary.n_done == summary.n_tasks {
        true => Ok(summary),
        false => Err(format!("a task failed: {}", summary.failure.unwrap_or_default())),
    }
}

/// All of figure 9.
pub fn curves() -> Result<Vec<Point>, String> {
    points().into_iter().map(|(pattern, bytes, nodes)| point(pattern, bytes, nodes)).collect()
}

// ---------------------------------------------------------------- figure 1

/// How the time of all cores is spent, as shares of it.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct CoreTime {
    pub what: String,
    pub makespan_s: f64,
    /// A program computes.
    pub computing: f64,
    /// A task holds the core and waits for its inputs, or reads or writes.
    pub moving: f64,
    /// No task holds the core.
    pub idle: f64,
    /// Bytes from home and to home.
    pub home_bytes: f64,
}

/// Montage on 512 cores: through home as in figure 1; the same where home takes 11 ms for a file (table
/// VII: 1,319 files in 14.7 s, 3,883 in 44.6 s); and with files on the nodes under our default. Through
/// home, a node moves as many files at a time as it has cores.
pub fn montage() -> Result<Vec<CoreTime>, String> {
    let machine = dispatched_as_ours(Machine { nodes: 128, ..stealing::machine() });
    let per_file = Machine { home_latency_ns: 5_500_000, ..machine.clone() };
    let through_home = |what: &str, machine: &Machine| {
        let dispatcher =
            DispatcherConfig { placement: first_available::NAME.into(), ..DispatcherConfig::default() };
        let scheduling =
            Scheduling { dispatcher, home_streams_max: machine.slots_per_node, ..Scheduling::default() };
        core_time(what, machine, &scheduling, true)
    };
    Ok(vec![
        through_home("all files through home", &machine)?,
        through_home("all files through home, 11 ms for a file", &per_file)?,
        core_time("files on the nodes, our default", &per_file, &Scheduling::default(), false)?,
    ])
}

fn core_time(
    what: &str,
    machine: &Machine,
    scheduling: &Scheduling,
    through_home: bool,
) -> Result<CoreTime, String> {
    let config = ShapeConfig { through_home, ..ShapeConfig::default() };
    let compute_s = resources_of(Shape::Montage, &config)?.compute_s;
    let workload = shape(Shape::Montage, &config).map_err(|e| e.to_string())?;
    let s = done(simulate(machine, scheduling, &Faults::default(), workload, super::SEED, None)?)?;
    let all_s = s.cpu_hours * 3600.0;
    let (computing, idle) = (compute_s / machine.speed / all_s, s.idle_slot_s / all_s);
    Ok(CoreTime {
        what: what.into(),
        makespan_s: s.makespan_s,
        computing,
        moving: (1.0 - computing - idle).max(0.0),
        idle,
        home_bytes: (s.moved_home_bytes + s.landed_bytes) as f64,
    })
}

// ---------------------------------------------------------------- figure 12

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Scaled {
    pub cores: u32,
    pub n_tasks: u64,
    pub makespan_s: f64,
    /// Seconds that programs compute, divided by all core seconds.
    pub computing: f64,
    pub home_bytes: f64,
    pub peer_bytes: f64,
}

/// mtcBLAST on `cores` cores with one query file per 16 cores. One of 64 nodes has no tasks, as in the
/// paper.
pub fn blast(cores: u32) -> Result<Scaled, String> {
    let nodes = cores / 4 / 64 * 63;
    let machine = dispatched_as_ours(Machine { nodes, ..stealing::machine() });
    let config = ShapeConfig { n_queries: cores / 16, ..ShapeConfig::default() };
    let used = resources_of(Shape::Blast, &config)?;
    let workload = shape(Shape::Blast, &config).map_err(|e| e.to_string())?;
    let s =
        done(simulate(&machine, &Scheduling::default(), &Faults::default(), workload, super::SEED, None)?)?;
    Ok(Scaled {
        cores,
        n_tasks: s.n_tasks,
        makespan_s: s.makespan_s,
        computing: used.compute_s / (s.cpu_hours * 3600.0),
        home_bytes: (s.moved_home_bytes + s.landed_bytes) as f64,
        peer_bytes: s.moved_peer_bytes as f64,
    })
}

// ---------------------------------------------------------------- table I

/// The resources that all tasks of an application use together.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Resources {
    pub shape: String,
    pub n_tasks: u64,
    pub compute_s: f64,
    /// Bytes of different files, read or written.
    pub file_bytes: f64,
    /// Bytes with each reading and each writing counted.
    pub touched_bytes: f64,
}

impl Resources {
    pub fn compute_s_per_task(&self) -> f64 {
        self.compute_s / self.n_tasks as f64
    }
    /// Megabytes of different files per second of computing.
    pub fn mb_per_compute_s(&self) -> f64 {
        self.file_bytes / 1e6 / self.compute_s
    }
}

fn resources_of(of: Shape, config: &ShapeConfig) -> Result<Resources, String> {
    let workload = shape(of, config).map_err(|e| e.to_string())?;
    let (mut compute_s, mut file_bytes, mut touched_bytes) = (0.0, 0.0, 0.0);
    let mut seen = FxHashSet::default();
    for s in workload.submissions {
        for i in 0..s.array.n_tasks {
            compute_s += s.compute.of(i) as f64 * 1e-9;
            for (_, at) in s.array.template.inputs.iter().chain(&s.array.template.outputs) {
                let location = s.array.fill(at, i);
                let bytes = workload.sizes.of(&location).unwrap_or(0) as f64;
                touched_bytes += bytes;
                file_bytes += if seen.insert(location) { bytes } else { 0.0 };
            }
        }
    }
    Ok(Resources { shape: of.name().into(), n_tasks: workload.n_tasks, compute_s, file_bytes, touched_bytes })
}

/// The resources of the three applications, in the order of table I.
pub fn resources() -> Result<Vec<Resources>, String> {
    [Shape::Montage, Shape::Cybershake, Shape::Blast]
        .into_iter()
        .map(|of| resources_of(of, &ShapeConfig::default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_scale_and_the_way_that_is_chosen_is_no_slower_than_the_papers() {
        for pattern in Pattern9::ALL {
            for &bytes in pattern.sizes() {
                let all: Vec<Point> =
                    [64, 512].map(|nodes| point(pattern, bytes, nodes).expect("it was simulated")).into();
                for p in &all {
                    assert!(p.seconds > 0.0, "{p:?}");
                    assert!(p.beside_s.is_none_or(|s| p.seconds <= 1.02 * s), "{p:?}");
                }
                // Eight times the nodes must take less than six times the time.
                assert!(all[1].seconds < 6.0 * all[0].seconds, "{all:?}");
            }
        }
    }

    #[test]
    fn the_papers_model_is_as_printed() {
        let link = LinkModel { latency_s: 0.001, per_object_s: 1e-4, bandwidth_bytes_per_s: 1e8 };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(papers_model_s(Pattern9::Multicast, 100_000_000, 8, &link), 3.0 * 1.001);
        near(papers_model_s(Pattern9::Gather, 100_000_000, 8, &link), 0.003 + 0.875 + 6e-4);
        near(papers_model_s(Pattern9::Reduce, 20_000_000, 8, &link), 0.003 + 1.0);
    }

    #[test]
    fn montage_through_home_is_bound_by_moving_files_and_on_the_nodes_by_computing() {
        let all = montage().expect("it ends");
        let [_, home, nodes] = &all[..] else { panic!("three: {all:?}") };
        for of in &all {
            assert!((of.computing + of.moving + of.idle - 1.0).abs() < 0.01, "{of:?}");
        }
        assert!(home.moving > nodes.moving && home.makespan_s > nodes.makespan_s, "{all:?}");
        assert!(home.home_bytes > 4.0 * nodes.home_bytes, "{all:?}");
    }

    #[test]
    fn applications_are_in_the_order_of_table_1() {
        let all = resources().expect("they can be drawn");
        let [montage, cybershake, blast] = &all[..] else { panic!("three: {all:?}") };
        let in_order = |values: [f64; 3]| assert!(values.is_sorted_by(|a, b| a < b), "{values:?}");
        in_order([montage, cybershake, blast].map(Resources::compute_s_per_task));
        in_order([cybershake, blast, montage].map(Resources::mb_per_compute_s));
    }

    #[test]
    fn blast_on_more_cores_with_more_queries_takes_about_as_long() {
        let (few, more) = (blast(256).expect("it ends"), blast(1024).expect("it ends"));
        assert_eq!([few.n_tasks, more.n_tasks], [16, 64].map(|n_queries| 63 + n_queries * 64));
        assert!(more.makespan_s < 1.6 * few.makespan_s, "{few:?} {more:?}");
    }
}
