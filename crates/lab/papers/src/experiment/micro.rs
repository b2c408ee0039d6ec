//! The micro-benchmarks of Raicu09 §4.2 and §4.3, figures 7 to 14: files of one size, each read once, or
//! read and written.
//!
//! In: a [`Cell`] (configuration, read or read and write, size of a file, nodes). Out: [`Measured`], by
//! [`run`]; [`cells`] lists those that the figures need.
//!
//! | configuration | here |
//! | configuration | how it is simulated |
//! |---|---|
//! | [`Config::LocalDisk`] | one node, extrapolated linearly, as in figures 10 and 11 |
//! | [`Config::Persistent`] | the programs read home alone: no dispatcher, no messages |
//! | [`Config::Fa`], [`Config::FaWrapper`] | `first-available`; with the wrapper each task makes and removes a scratch directory at home |
//! | [`Config::Fca0`], [`Config::Fca100`] | the paper's first-cache-available, which knows where files are but places tasks without looking at it; here `max-compute-util` with a window of one task |
//! | [`Config::Mcu0`], [`Config::Mcu100`] | `max-compute-util` |
//!
//! At 0 % locality caches are cold. At 100 % every file was read once before: the same tasks run twice, and
//! the second pass is measured. The second pass is submitted after the end of the first, which a run of the
//! first pass alone determines.
//!
//! Throughput counts bytes read and bytes written. The paper does not say so, but only then its 6.3 Gb/s of
//! read and write without data-aware scheduling can be above its 5.7 Gb/s of reading.
//!
//! The measurements that the machine is fitted to are listed at [`machine`].

use super::paper;
use eyas_core::placement::{first_available, max_compute_util};
use eyas_sim::machine::{Costs, Faults, Machine, preset};
use eyas_sim::workload::{ArrivingTasks, Compute, Sizes, Workload, template};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::Timestamp;
use eyas_terms::array::{Column, Pattern, Piece, TaskArray};
use eyas_terms::rng::Rng;
use eyas_terms::run_file;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const MBIT: f64 = 1e6 / 8.0;
const GBIT: f64 = 1e9 / 8.0;
const S: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;

/// Sizes of files, in bytes, and numbers of nodes (§4.2).
pub const SIZES: [u64; 8] = [1, 1_000, 10_000, 100_000, MB, 10 * MB, 100 * MB, 1_000 * MB];
pub const NODES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The file size of figures 12 and 13.
pub const LARGE_BYTES: u64 = 100 * MB;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Config {
    LocalDisk,
    Persistent,
    Fa,
    FaWrapper,
    Fca0,
    Fca100,
    Mcu0,
    Mcu100,
}

impl Config {
    /// The configurations of figures 12 and 13, which leave the wrapper out, in the paper's order.
    pub const LARGE: [Config; 7] = [
        Config::LocalDisk,
        Config::Persistent,
        Config::Fa,
        Config::Fca0,
        Config::Fca100,
        Config::Mcu0,
        Config::Mcu100,
    ];

    pub fn what(self) -> &'static str {
        match self {
            Config::LocalDisk => "model (local disk)",
            Config::Persistent => "model (persistent storage)",
            Config::Fa => "FA",
            Config::FaWrapper => "FA + wrapper",
            Config::Fca0 => "first-cache-available, 0 % locality",
            Config::Fca100 => "first-cache-available, 100 % locality",
            Config::Mcu0 => "MCU, 0 % locality",
            Config::Mcu100 => "MCU, 100 % locality",
        }
    }

    fn is_warm(self) -> bool {
        matches!(self, Config::Fca100 | Config::Mcu100)
    }
}

/// One experiment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct Cell {
    pub config: Config,
    /// Each program also writes a file of the same size.
    pub writes: bool,
    pub file_bytes: u64,
    pub nodes: u32,
}

/// The results of one experiment.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Measured {
    #[serde(flatten)]
    pub cell: Cell,
    pub n_tasks: u64,
    pub seconds: f64,
    pub tasks_per_s: f64,
    /// Bytes read and written per second, in megabits as in the paper.
    pub mbit_per_s: f64,
}

/// `tg-anl` as it was measured in §4.2, with one executor of one slot per node (§4.1).
///
/// | what | from |
/// |---|---|
/// | a node's disk, 1.19 Gb/s | "the read throughput 76Gb/s" of 64 nodes |
/// | a byte written takes a disk as long as 5.1 read ones | read and write "approaches 25GB/s" of 64 nodes, which has to mean Gb/s |
/// | home, 3,420 Mb/s, and 427 Mb/s for one client | "tops out at 3420 Mb/s"; "8 nodes are enough to saturate the 8 I/O servers" |
/// | a byte written takes home as long as 5.1 read ones | read and write "tops out at 1123Mb/s" |
/// | home opens 321 files per second | fitted: "75% of its peak bandwidth with files as small as 1MB" |
/// | home makes 21 scratch directories per second | "the best throughput that can be achieved by 64 concurrent nodes with small files is 21 tasks/sec" |
/// | an open of a local file, 1 ms | figure 7: local disk is "more than twice as fast" in all cases, and home answers after 1 ms twice; an upper bound |
pub fn machine(nodes: u32) -> Machine {
    let base = preset("tg-anl-64-2008").expect("it is listed");
    let home_peak = 3420.0 * MBIT;
    // If r bytes are read and r written and both are counted, the rate is 2 r / (r + cost r) of the reading
    // rate.
    let write_cost = |both: f64, read: f64| 2.0 * read / both - 1.0;
    Machine {
        name: "tg-anl-micro".into(),
        nodes,
        slots_per_node: 1,
        disk_bytes_per_s: 76.0 / 64.0 * GBIT,
        home_bytes_per_s: home_peak,
        home_client_bytes_per_s: home_peak / 8.0,
        costs: Costs {
            home_opens_per_s: Some(0.75 * home_peak / MB as f64),
            home_scratch_per_s: Some(21.0),
            disk_write: write_cost(25.0, 76.0),
            home_write: write_cost(1123.0, 3420.0),
            ..Costs::default()
        },
        ..base
    }
}

/// The number of files that each node reads: enough that the beginning and the end of a run are a small
/// part of it.
fn files_per_node(file_bytes: u64) -> u32 {
    if file_bytes >= LARGE_BYTES { 20 } else { 50 }
}

/// The tasks of one pass or of two; the second pass, if any, is submitted at `warmed_at_ns`. Files are
/// named by number, so that each pass reads the same files.
fn workload(cell: &Cell, warmed_at_ns: Option<u64>) -> Workload {
    let n_tasks = cell.nodes * files_per_node(cell.file_bytes);
    let index = |text: &str| Pattern(vec![Piece::Literal(text.into()), Piece::Index]);
    // The second pass has another order than the first, so that a file's reader does not come to the file's
    // holder by chance.
    let mut order: Vec<u32> = (0..n_tasks).collect();
    if warmed_at_ns.is_some() {
        let mut rng = Rng::new(super::SEED);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
    }
    let pass = |at_ns: u64, name: &str, writes: bool, order: Option<&[u32]>| {
        // Outputs under diffusion stay on the nodes; outputs under persistent storage go home.
        let lands = matches!(cell.config, Config::Fa | Config::FaWrapper | Config::Persistent);
        let out = format!("{name}-out");
        let outputs = if writes { vec![index(&if lands { out } else { run_file(out) })] } else { vec![] };
        let mut files = Column::default();
        for i in order.unwrap_or_default() {
            assert!(files.push(&format!("file{i}")), "some thousand names are far from 4 GiB");
        }
        let (input, columns) = match order {
            Some(_) => (Pattern::column(0), vec![files]),
            None => (index("file"), vec![]),
        };
        let template = template(index(name), "read", vec![input], outputs);
        let array = TaskArray { n_tasks, first_index: 0, template, columns, needs: None };
        ArrivingTasks { at: Timestamp(at_ns), array: Arc::new(array), compute: Compute::Same(0) }
    };
    let submissions = match warmed_at_ns {
        None => vec![pass(0, "t", cell.writes, None)],
        Some(at_ns) => vec![pass(0, "warm", false, None), pass(at_ns, "t", cell.writes, Some(&order))],
    };
    let n_tasks = u64::from(n_tasks) * submissions.len() as u64;
    Workload {
        name: "micro".into(),
        n_tasks,
        ideal_ns: 0,
        read_bytes: n_tasks * cell.file_bytes,
        sizes: Sizes::Same(cell.file_bytes),
        submissions: Box::new(submissions.into_iter()),
    }
}

fn scheduling(config: Config) -> Scheduling {
    let placement = match config {
        Config::Persistent | Config::Fa | Config::FaWrapper => first_available::NAME,
        _ => max_compute_util::NAME,
    };
    let mut scheduling = paper::scheduling(placement);
    scheduling.scratch_at_home = config == Config::FaWrapper;
    if matches!(config, Config::Fca0 | Config::Fca100) {
        scheduling.dispatcher.placement_config.window = 1;
    }
    scheduling
}

/// Simulates one experiment. `Err` is one sentence for users.
pub fn run(cell: &Cell) -> Result<Measured, String> {
    let n_tasks = u64::from(cell.nodes * files_per_node(cell.file_bytes));
    let each_bytes = cell.file_bytes as f64 * if cell.writes { 2.0 } else { 1.0 };
    let measured = |seconds: f64| Measured {
        cell: *cell,
        n_tasks,
        seconds,
        tasks_per_s: n_tasks as f64 / seconds,
        mbit_per_s: n_tasks as f64 * each_bytes / seconds / MBIT,
    };
    let mut machine = machine(cell.nodes);
    if cell.config == Config::LocalDisk {
        let written = if cell.writes { cell.file_bytes as f64 * machine.costs.disk_write } else { 0.0 };
        let read_s = (cell.file_bytes as f64 + written) / machine.disk_bytes_per_s;
        return Ok(measured(f64::from(files_per_node(cell.file_bytes)) * (LOCAL_OPEN_S + read_s)));
    }
    if cell.config == Config::Persistent {
        (machine.dispatch_ns, machine.message_ns) = (0, 0);
    }
    let scheduling = scheduling(cell.config);
    let lived = |warmed_at_ns| {
        let summary = simulate(
            &machine,
            &scheduling,
            &Faults::default(),
            workload(cell, warmed_at_ns),
            super::SEED,
            None,
        )?;
        match summary.n_done == summary.n_tasks {
            true => Ok(summary.makespan_s),
            false => Err(format!("{cell:?}: a task failed: {}", summary.failure.unwrap_or_default())),
        }
    };
    if !cell.config.is_warm() {
        return Ok(measured(lived(None)?));
    }
    let warming = Cell { writes: false, ..*cell };
    let warm_s =
        simulate(&machine, &scheduling, &Faults::default(), workload(&warming, None), super::SEED, None)?
            .makespan_s;
    let warmed_at_s = warm_s.ceil() as u64 + 1;
    Ok(measured(lived(Some(warmed_at_s * S))? - warmed_at_s as f64))
}

/// The time to open a file on a local disk, at most.
const LOCAL_OPEN_S: f64 = 1e-3;

/// The experiments that figures 7 to 14 need.
pub fn cells() -> Vec<Cell> {
    let mut list = vec![];
    for writes in [false, true] {
        for file_bytes in SIZES {
            // Figures 7 to 11.
            for config in [Config::LocalDisk, Config::Persistent] {
                list.extend(NODES.map(|nodes| Cell { config, writes, file_bytes, nodes }));
            }
            // Figure 14.
            for config in [Config::Fa, Config::FaWrapper] {
                list.push(Cell { config, writes, file_bytes, nodes: 64 });
            }
        }
        // Figures 12 and 13.
        for config in Config::LARGE {
            list.extend(NODES.map(|nodes| Cell { config, writes, file_bytes: LARGE_BYTES, nodes }));
        }
    }
    list.sort();
    list.dedup();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(config: Config, writes: bool, file_bytes: u64, nodes: u32) -> Measured {
        run(&Cell { config, writes, file_bytes, nodes }).expect("it ends")
    }

    #[test]
    fn the_list_has_each_cell_once_and_all_that_the_figures_need() {
        let list = cells();
        assert_eq!(list.len(), 2 * (8 * 7 * 2 + 2 * 8 + 5 * 7 - 1));
        for config in Config::LARGE {
            for nodes in NODES {
                assert!(list.contains(&Cell { config, writes: true, file_bytes: LARGE_BYTES, nodes }));
            }
        }
    }

    #[test]
    fn local_disk_is_more_than_twice_as_fast_as_home_from_one_node() {
        for writes in [false, true] {
            for bytes in SIZES {
                let ratio = at(Config::LocalDisk, writes, bytes, 1).mbit_per_s
                    / at(Config::Persistent, writes, bytes, 1).mbit_per_s;
                assert!(ratio > 2.0, "{bytes} bytes, writes {writes}: {ratio}");
            }
        }
    }

    #[test]
    fn home_is_saturated_by_eight_nodes_and_small_files_do_not_fill_it() {
        let read = |bytes, nodes| at(Config::Persistent, false, bytes, nodes).mbit_per_s;
        let (eight, all) = (read(LARGE_BYTES, 8), read(LARGE_BYTES, 64));
        assert!(all / eight < 1.06 && (3300.0..3421.0).contains(&all), "{eight} {all}");
        let small = read(MB, 64) / 3420.0;
        assert!((0.65..0.80).contains(&small), "{small}");
        let both = at(Config::Persistent, true, 1_000 * MB, 64).mbit_per_s;
        assert!((1000.0..1180.0).contains(&both), "{both}");
    }

    #[test]
    fn diffusion_comes_close_to_local_disks_and_the_order_is_the_papers() {
        for writes in [false, true] {
            let all = Config::LARGE.map(|config| at(config, writes, LARGE_BYTES, 64).mbit_per_s);
            let [local, home, fa, fca_0, fca_100, mcu_0, mcu_100] = all;
            assert!(mcu_100 <= local && mcu_100 > 0.94 * local, "{all:?}");
            assert!(fca_100 > home && fca_100 < mcu_100, "{all:?}");
            assert!(fa <= 1.02 * home && fa > 0.9 * home, "{all:?}");
            // With cold caches the rate is that of home; written files stay on the nodes.
            for cold in [fca_0, mcu_0] {
                assert!(if writes { cold > home } else { cold <= 1.02 * home }, "{all:?}");
            }
        }
    }

    #[test]
    fn the_wrapper_costs_an_order_of_magnitude_for_small_files_and_nothing_for_large_ones() {
        for bytes in [1, 10_000, MB] {
            let (without, with) = (at(Config::Fa, false, bytes, 64), at(Config::FaWrapper, false, bytes, 64));
            assert!((18.0..=21.5).contains(&with.tasks_per_s), "{with:?}");
            assert!(without.tasks_per_s / with.tasks_per_s > 8.0, "{without:?} {with:?}");
        }
        let ratio = at(Config::FaWrapper, false, LARGE_BYTES, 64).seconds
            / at(Config::Fa, false, LARGE_BYTES, 64).seconds;
        assert!(ratio < 1.05, "{ratio}");
    }
}
