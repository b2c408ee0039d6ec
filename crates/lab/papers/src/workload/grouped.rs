//! Tasks whose inputs are groups: a table and its index, a trajectory and its topology, the small files of one folder.
//!
//! Each task reads all files of one group, chosen at random, and no task reads a part of a group. So a cache that holds a part of
//! a group holds bytes that are worth little: the task has to fetch the rest all the same, and until then nobody reads them.
//! Miceli10 (conclusions) leaves such correlated access to future work; Doraimani08 found it in practice.

use eyas_sim::workload::{
    ArrivingTasks, Compute, Error, MB, MS_NS, SECOND_NS, Sizes, Workload, at_least_one, template,
};
use eyas_terms::Timestamp;
use eyas_terms::array::{Column, Part, Pattern, Piece, TaskArray};
use eyas_terms::rng::Rng;
use std::fmt::Write;
use std::sync::Arc;

#[derive(Clone, PartialEq, Debug)]
pub struct GroupedConfig {
    pub n_tasks: u32,
    pub n_groups: u32,
    pub files_per_group: u32,
    pub file_bytes: u64,
    pub compute_ns: u64,
    /// Tasks arrive at this rate; all at once, tasks of one group would be run together.
    pub tasks_per_s: u32,
}

impl Default for GroupedConfig {
    fn default() -> Self {
        GroupedConfig {
            n_tasks: 20_000,
            n_groups: 400,
            files_per_group: 2,
            file_bytes: 10 * MB,
            compute_ns: 50 * MS_NS,
            tasks_per_s: 20,
        }
    }
}

pub fn grouped(seed: u64, config: &GroupedConfig) -> Result<Workload, Error> {
    let GroupedConfig { n_tasks, n_groups, files_per_group, file_bytes, compute_ns, tasks_per_s } = *config;
    at_least_one("the number of groups", u64::from(n_groups))?;
    at_least_one("the number of files of a group", u64::from(files_per_group))?;
    at_least_one("the number of tasks", u64::from(n_tasks))?;
    at_least_one("the number of tasks in a second", u64::from(tasks_per_s))?;
    let group = || Piece::Column { column: 0, part: Part::Whole };
    let file = |m: u32| Pattern(vec![Piece::Literal("g".into()), group(), Piece::Literal(format!("/{m}"))]);
    let inputs = (0..files_per_group).map(file).collect();
    let template = template(Pattern(vec![Piece::Index]), "read", inputs, vec![]);
    let (mut rng, mut begin) = (Rng::new(seed), 0);
    let arrays = std::iter::from_fn(move || {
        let n = tasks_per_s.min(n_tasks - begin);
        if n == 0 {
            return None;
        }
        let (mut column, mut text) = (Column::default(), String::new());
        for _ in 0..n {
            text.clear();
            let _ = write!(text, "{}", rng.below(u64::from(n_groups)));
            assert!(column.push(&text), "an array's numbers fit a column");
        }
        column.shrink_to_fit();
        let array = TaskArray {
            n_tasks: n,
            first_index: u64::from(begin),
            template: template.clone(),
            columns: vec![column],
            needs: None,
        };
        let at = Timestamp(u64::from(begin / tasks_per_s) * SECOND_NS);
        begin += n;
        Some(ArrivingTasks { at, array: Arc::new(array), compute: Compute::Same(compute_ns) })
    });
    let read_bytes = u64::from(n_tasks) * u64::from(files_per_group);
    Ok(Workload {
        name: format!("grouped-{files_per_group}"),
        n_tasks: u64::from(n_tasks),
        ideal_ns: u64::from((n_tasks - 1) / tasks_per_s) * SECOND_NS,
        read_bytes: read_bytes.saturating_mul(file_bytes),
        sizes: Sizes::Same(file_bytes),
        submissions: Box::new(arrays),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_sim::workload::all_tasks;

    #[test]
    fn a_task_reads_all_files_of_one_group() {
        let config = GroupedConfig { n_tasks: 10_000, n_groups: 7, files_per_group: 3, ..Default::default() };
        let tasks = all_tasks(grouped(1, &config).unwrap());
        assert_eq!(tasks.len(), 10_000);
        let mut seen = std::collections::BTreeSet::new();
        for (_, reads, _) in &tasks {
            let group = reads[0].split_once('/').unwrap().0;
            assert_eq!(*reads, [0, 1, 2].map(|m| format!("{group}/{m}")));
            seen.insert(group.to_owned());
        }
        assert_eq!(seen.len(), 7);
        assert_eq!(tasks, all_tasks(grouped(1, &config).unwrap()));
        assert!(grouped(1, &GroupedConfig { n_groups: 0, ..config }).is_err());
    }
}
