//! All-Pairs, `Raicu09` §5.3: every element of a set A with every element of a set B.
//!
//! The script of figure 34 submits row by row, `foreach $i in A`, `foreach $j in B`, all at once. Each task
//! reads two items of 12 MB. A and B are two sets, because only then does the shared file system have to
//! give 12 GB once for 500×500 and 24 GB for 1000×1000 (table 2). Compute times: 1 s and 0.1 s on the 200
//! processors of `tg-anl`, 4 s on Blue Gene/P and SiCortex, whose processors are "about 1/4 the speed".
//!
//! A row is one folded array with the item of A in its template and the item of B as its index, so a
//! million tasks need a thousand templates. Nothing here is random, so there is no seed.

use super::*;
use eyas_core::array::Piece;

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

#[cfg(test)]
mod tests {
    use super::testing::all;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_pair_comes_once_row_by_row_with_the_bytes_of_table_2() {
        let workload = all_pairs(AllPairsConfig { n: 500, ..AllPairsConfig::default() }).unwrap();
        assert_eq!(workload.n_tasks, 250_000);
        // Table 2: 6,000 GB from local disks, and 12 GB once from the shared file system.
        assert_eq!(workload.read_bytes, 6_000_000 * MB);
        let tasks = all(workload);
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
}
