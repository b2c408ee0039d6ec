//! All-Pairs, `Raicu09` §5.3: every element of a set A with every element of a set B.
//!
//! The script of figure 34 submits row by row, `foreach $i in A`, `foreach $j in B`, all at once. Each task
//! reads two items of 12 MB. A and B are two sets, because only then does the shared file system have to
//! give 12 GB once for 500×500 and 24 GB for 1000×1000 (table 2). Compute times: 1 s and 0.1 s on the 200
//! processors of `tg-anl`, 4 s on Blue Gene/P and SiCortex, whose processors are "about 1/4 the speed".
//!
//! A row is one folded array with the item of A in its template and the item of B as its index, so a
//! million tasks need a thousand templates. Nothing here is random, so there is no seed.
//!
//! [`tiled`] is the same work as `eyas pairs` has it: the tiles of [`eyas_pairs`], each a task that reads all items of its
//! pairs and computes as long as all its pairs.

use super::{ArrivingTasks, Compute, Error, MB, SECOND_NS, Sizes, Workload, at_least_one, template};
use eyas_pairs::{Item, Shape, Tile};
use eyas_terms::Timestamp;
use eyas_terms::array::{GatherHint, Hint, Hints, Pattern, Piece, TaskArray, Template};
use std::sync::Arc;

#[derive(Clone, PartialEq, Debug)]
pub struct AllPairsConfig {
    /// Items in each of the two sets.
    pub n: u32,
    pub item_bytes: u64,
    pub compute_ns: u64,
}

impl Default for AllPairsConfig {
    fn default() -> Self {
        AllPairsConfig { n: 500, item_bytes: 12 * MB, compute_ns: SECOND_NS }
    }
}

pub fn all_pairs(config: AllPairsConfig) -> Result<Workload, Error> {
    let AllPairsConfig { n, item_bytes, compute_ns } = config;
    at_least_one("the number of items in a set", u64::from(n))?;
    let literal = |text: String| Piece::Literal(text);
    let row = move |i: u32| {
        let item_a = Pattern::literal(format!("a{i}"));
        let item_b = Pattern(vec![literal("b".into()), Piece::Index]);
        let id = Pattern(vec![literal(format!("{i}-")), Piece::Index]);
        let array = TaskArray {
            n_tasks: n,
            first_index: 0,
            template: template(id, "pair", vec![item_a, item_b], vec![]),
            columns: vec![],
            needs: None,
        };
        ArrivingTasks { at: Timestamp(0), array: Arc::new(array), compute: Compute::Same(compute_ns) }
    };
    let n_tasks = u64::from(n) * u64::from(n);
    Ok(Workload {
        name: format!("allpairs-{n}"),
        n_tasks,
        ideal_ns: 0,
        read_bytes: n_tasks.saturating_mul(2).saturating_mul(item_bytes),
        sizes: Sizes::Same(item_bytes),
        submissions: Box::new((0..n).map(row)),
    })
}

/// How the program of a tile comes to the items of each pair after the tile's task has them on its node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rereads {
    /// An item is read from the disk once in a tile, and then from memory (the page cache).
    Memory,
    /// Each pair reads both of its items from the disk, which gives so many bytes per second to one processor while all
    /// processors of its node read.
    Disk { bytes_per_s: f64 },
}

/// The work of [`all_pairs`] in tiles, which are chosen for `machine`. Beside tiles, the program is the same.
pub fn tiled(
    config: AllPairsConfig,
    machine: &eyas_pairs::Machine,
    rereads: Rereads,
) -> Result<Workload, Error> {
    let AllPairsConfig { n, item_bytes, compute_ns } = config;
    at_least_one("the number of items in a set", u64::from(n))?;
    let sizes = vec![item_bytes; n as usize];
    let sizes = eyas_pairs::Sizes::two(&sizes, &sizes);
    let tiling = eyas_pairs::plan(&sizes, machine)
        .map_err(|refusal| Error::config(format!("the pairs do not fit that machine: {refusal:?}")))?;
    let priorities: Vec<i32> = (0..tiling.tiles.len()).map(|k| tiling.priority(k)).collect();
    let tiles = tiling.tiles;
    let n_read: u64 = tiles.iter().map(|tile| tile.items(Shape::Two).len() as u64).sum();
    let n_tasks = tiles.len() as u64;
    let task = move |(k, tile): (usize, Tile)| {
        let items = tile.items(Shape::Two);
        let n_pairs = tile.n_pairs(Shape::Two);
        let again_ns = match rereads {
            Rereads::Memory => 0,
            Rereads::Disk { bytes_per_s } => {
                let n_again = (2 * n_pairs).saturating_sub(items.len() as u64);
                ((n_again * item_bytes) as f64 / bytes_per_s * 1e9) as u64
            }
        };
        let location = |item: &Item| match item {
            Item::A(i) => Pattern::literal(format!("a{i}")),
            Item::B(i) => Pattern::literal(format!("b{i}")),
        };
        let id = Pattern::literal(format!("tile-{k}"));
        let template = Template {
            priority: priorities[k],
            hints: Hints { multicast: Hint::Once, scatter: Hint::Never, gather: GatherHint::Never },
            ..template(id, "tile", items.iter().map(location).collect(), vec![])
        };
        let array = TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None };
        let compute = Compute::Same(n_pairs * compute_ns + again_ns);
        ArrivingTasks { at: Timestamp(0), array: Arc::new(array), compute }
    };
    Ok(Workload {
        name: format!("allpairs-{n}-tiles"),
        n_tasks,
        ideal_ns: 0,
        read_bytes: n_read.saturating_mul(item_bytes),
        sizes: Sizes::Same(item_bytes),
        submissions: Box::new(tiles.into_iter().enumerate().map(task)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::all_tasks;
    use std::collections::BTreeSet;

    #[test]
    fn each_pair_comes_once_row_by_row_with_the_bytes_of_table_2() {
        let workload = all_pairs(AllPairsConfig { n: 500, ..AllPairsConfig::default() }).unwrap();
        assert_eq!(workload.n_tasks, 250_000);
        // Table 2: 6,000 GB from local disks, and 12 GB once from the shared file system.
        assert_eq!(workload.read_bytes, 6_000_000 * MB);
        let tasks = all_tasks(workload);
        let files: BTreeSet<&String> = tasks.iter().flat_map(|t| &t.1).collect();
        assert_eq!(files.len() as u64 * 12 * MB, 12_000 * MB);
        for (k, task) in tasks.iter().enumerate() {
            assert_eq!(task.1, [format!("a{}", k / 500), format!("b{}", k % 500)]);
        }
    }

    #[test]
    fn a_million_tasks_hold_no_bytes_per_task() {
        let workload = all_pairs(AllPairsConfig { n: 1000, ..AllPairsConfig::default() }).unwrap();
        let arrays: Vec<ArrivingTasks> = workload.submissions.collect();
        assert_eq!(arrays.len(), 1000);
        assert_eq!(arrays.iter().map(|s| s.array.heap_bytes()).sum::<usize>(), 0);
    }

    #[test]
    fn empty_sets_are_refused() {
        let error = all_pairs(AllPairsConfig { n: 0, ..AllPairsConfig::default() }).err().unwrap();
        assert!(error.to_string().contains("at least 1"), "{error}");
    }

    #[test]
    fn tiles_compute_all_pairs_and_read_each_item_a_few_times() {
        let config = AllPairsConfig { n: 100, ..AllPairsConfig::default() };
        let machine = eyas_pairs::Machine {
            n_nodes: 10,
            n_slots: 2,
            cache_bytes: 50_000 * MB,
            pair_ns: SECOND_NS,
            tile_ns_max: eyas_pairs::TILE_NS_MAX,
        };
        let sum = |workload: Workload| {
            workload.submissions.map(|task| match task.compute {
                Compute::Same(ns) => ns * u64::from(task.array.n_tasks),
                Compute::Each(_) => unreachable!("all tasks of an array take the same time"),
            })
        };
        let of_tiles: u64 = sum(tiled(config.clone(), &machine, Rereads::Memory).unwrap()).sum();
        assert_eq!(of_tiles, sum(all_pairs(config.clone()).unwrap()).sum::<u64>());
        let read_bytes = tiled(config.clone(), &machine, Rereads::Memory).unwrap().read_bytes;
        // Blocks alone read each item 4 or 5 times; openings, and the small tiles that are kept back for the end, read more.
        assert!(read_bytes * 5 < all_pairs(config.clone()).unwrap().read_bytes, "{read_bytes}");
        // What is read from the disk again costs time: 24 MB for each pair, less what the task itself reads.
        let disk = Rereads::Disk { bytes_per_s: 24e6 };
        let with_disk: u64 = sum(tiled(config, &machine, disk).unwrap()).sum();
        let rest_ns = (10_000 * 24 * MB - read_bytes) / 24 * 1000;
        assert!(with_disk.abs_diff(of_tiles + rest_ns) < 1_000_000_000, "{with_disk} {of_tiles} {rest_ns}");
    }
}
