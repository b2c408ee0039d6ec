//! How long tasks take, by stage.
//!
//! Tasks with the same label in one run are a stage, and so are the tasks of one array without a label. The
//! mean of a stage follows its last [`MEMORY`] tasks. For a stage in which no task has ended, the mean of its
//! run is expected, and where no task of the run has ended, that of tasks with the same label in other runs.
//! One figure for a whole run would mix a stage of minutes with a stage of milliseconds: when there was only
//! one, gathers were predicted to take four times what they took.
//!
//! Two times are kept of each task: how long its program ran, and how long the task took its slot. The second one is longer
//! where inputs move while their task has its slot, and it is the one that says how many slots there have to be.
//!
//! Used to predict when the files of a gather will appear, and how much work is ready (provisioning).

use super::submissions::NO_RUN;
use crate::placement::{Lasts, TaskSize};
use crate::provisioning::work::Predicted;
use eyas_terms::RunId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The longest expected time is so many standard deviations above the mean.
const DEVIATIONS: u64 = 3;
/// The most labels that are remembered beyond their runs.
const LABELS_MAX: usize = 10_000;
/// The most sizes of tasks whose arrivals are counted as they are; those of others are rounded up to powers of two.
const SIZES_MAX: usize = 64;
/// A mean follows about this many tasks.
const MEMORY: u64 = 64;

#[derive(Clone, Copy, Default)]
struct Mean {
    n: u64,
    ns: u64,
    /// The mean of the squared distances from the mean, in square seconds.
    variance_s2: f64,
}

impl Mean {
    fn add(&mut self, ns: u64) {
        self.n += 1;
        let share = self.n.min(MEMORY);
        let before_s = (ns as f64 - self.ns as f64) / 1e9;
        self.ns = self.ns - self.ns / share + ns / share;
        let after_s = (ns as f64 - self.ns as f64) / 1e9;
        let squared_s2 = if self.n == 1 { 0.0 } else { before_s * after_s };
        self.variance_s2 += (squared_s2 - self.variance_s2) / share as f64;
    }

    /// The mean and three standard deviations. A few tasks do not show how much times vary: the deviation is
    /// taken to be at least a part of the mean that falls with their number, a quarter of it for one task.
    fn longest_ns(&self) -> Option<u64> {
        let deviation_ns = (self.variance_s2.max(0.0).sqrt() * 1e9) as u64;
        let deviation_ns = deviation_ns.max(self.ns / (4 * self.n.clamp(1, MEMORY)));
        (self.n > 0).then(|| self.ns.saturating_add(deviation_ns.saturating_mul(DEVIATIONS)))
    }

    fn get(self) -> Option<u64> {
        (self.n > 0).then_some(self.ns)
    }
}

/// The times of ended tasks.
#[derive(Clone, Copy, Default)]
struct Means {
    /// Of the program.
    run: Mean,
    /// For which the task took its slot.
    slot: Mean,
}

impl Means {
    fn add(&mut self, run_ns: u64, slot_ns: u64) {
        self.run.add(run_ns);
        self.slot.add(slot_ns);
    }
}

struct Stage {
    run: RunId,
    /// Its place in `RunTimes::labels`; `None`: it has no label, or there are too many.
    label: Option<u32>,
    means: Means,
    /// Its tasks by size, of which there is hardly ever more than one.
    counts: Vec<Count>,
    /// The longest expected time when the stage's queued tasks got their steps last; see `walltimes`.
    stepped: Option<Lasts>,
}

/// Tasks of one stage and one size.
struct Count {
    size: TaskSize,
    n_ready: u64,
    /// Tasks that an executor has.
    n_reserved: u64,
}

impl Stage {
    fn count(&mut self, size: TaskSize) -> &mut Count {
        let at = self.counts.iter().position(|count| count.size == size).unwrap_or_else(|| {
            self.counts.push(Count { size, n_ready: 0, n_reserved: 0 });
            self.counts.len() - 1
        });
        &mut self.counts[at]
    }

    /// Keeps no counts of a size of which there are no tasks any more, unless it is the only one.
    fn drop_unused(&mut self, size: TaskSize) {
        if self.counts.len() > 1 {
            self.counts.retain(|count| count.size != size || count.n_ready + count.n_reserved > 0);
        }
    }

    fn n_ready(&self) -> u64 {
        self.counts.iter().map(|count| count.n_ready).sum()
    }
}

#[derive(Default)]
pub(super) struct RunTimes {
    stages: Vec<Stage>,
    /// Free places in `stages`, left by runs that are forgotten.
    free: Vec<u32>,
    by_label: FxHashMap<(RunId, String), u32>,
    runs: BTreeMap<RunId, Means>,
    /// The means of labels over all runs, and where a label is among them.
    labels: Vec<Means>,
    label_ids: FxHashMap<String, u32>,
    /// Tasks that became ready while a time in a slot was expected of them, and the sum of these times in microseconds, by size.
    arrived: BTreeMap<TaskSize, (u64, u64)>,
}

impl RunTimes {
    /// The stage of an array of `run` with that label.
    pub fn stage(&mut self, run: RunId, label: &str) -> u32 {
        let next = self.free.last().copied().unwrap_or(self.stages.len() as u32);
        let stage = match label {
            "" => next,
            label => *self.by_label.entry((run, label.to_owned())).or_insert(next),
        };
        if stage == next {
            let label = self.label_id(label);
            let new = Stage { run, label, means: Means::default(), counts: vec![], stepped: None };
            match self.free.pop() {
                Some(free) => self.stages[free as usize] = new,
                None => self.stages.push(new),
            }
        }
        stage
    }

    fn label_id(&mut self, label: &str) -> Option<u32> {
        if let Some(id) = self.label_ids.get(label) {
            return Some(*id);
        }
        if label.is_empty() || self.labels.len() >= LABELS_MAX {
            return None;
        }
        self.labels.push(Means::default());
        let id = self.labels.len() as u32 - 1;
        self.label_ids.insert(label.to_owned(), id);
        Some(id)
    }

    /// Counts `n` more ready tasks of a stage.
    pub fn ready(&mut self, stage: u32, size: TaskSize, n: u64) {
        self.stages[stage as usize].count(size).n_ready += n;
        if let Some(ns) = self.expected_slot_ns(stage) {
            let size = if self.arrived.len() < SIZES_MAX { size } else { rounded(size) };
            let (n_arrived, arrived_us) = self.arrived.entry(size).or_default();
            *n_arrived += n;
            *arrived_us = arrived_us.saturating_add(n.saturating_mul(ns / 1000));
        }
    }

    /// A task of a stage is no longer ready.
    pub fn not_ready(&mut self, stage: u32, size: TaskSize) {
        let stage = &mut self.stages[stage as usize];
        stage.count(size).n_ready -= 1;
        stage.drop_unused(size);
    }

    /// Sizes of all ready tasks, wherever they wait.
    pub fn ready_sizes(&self) -> BTreeSet<TaskSize> {
        let counts = self.stages.iter().flat_map(|stage| &stage.counts);
        counts.filter(|count| count.n_ready > 0).map(|count| count.size).collect()
    }

    /// An executor has one more task of a stage.
    pub fn reserved(&mut self, stage: u32, size: TaskSize) {
        self.stages[stage as usize].count(size).n_reserved += 1;
    }

    /// An executor has one task less of a stage.
    pub fn not_reserved(&mut self, stage: u32, size: TaskSize) {
        let stage = &mut self.stages[stage as usize];
        stage.count(size).n_reserved -= 1;
        stage.drop_unused(size);
    }

    /// What is expected of all tasks that are ready or at an executor. `n_per_node`: how many tasks of a size one node holds, 0
    /// if it is too small. `n_more`: how many more tasks of a size may run at once, as far as the whole cluster limits it.
    /// Left out are the tasks of a stage and size that nodes have which are not the provisioner's (`n_elsewhere`), and of so many
    /// queued ones those that such nodes have room for (`n_fit`).
    pub fn predict(
        &self,
        into: &mut Predicted,
        n_per_node: impl Fn(TaskSize) -> u64,
        n_more: impl Fn(TaskSize) -> u64,
        n_elsewhere: impl Fn(u32, TaskSize) -> u64,
        mut n_fit: impl FnMut(u32, TaskSize, u64) -> u64,
    ) {
        *into = Predicted::default();
        let mut sizes: BTreeMap<TaskSize, (u64, u64)> = BTreeMap::new();
        for (at, stage) in (0..).zip(&self.stages) {
            for Count { size, n_ready, n_reserved } in
                stage.counts.iter().filter(|c| c.n_ready + c.n_reserved > 0)
            {
                let (n_per_node, n_more) =
                    sizes.entry(*size).or_insert_with(|| (n_per_node(*size), n_more(*size)));
                let n_queued = (*n_ready).min(*n_more);
                *n_more -= n_queued;
                let n_queued = n_queued - n_fit(at, *size, n_queued);
                let ns = self.expected_slot_ns(at);
                into.add_running(n_reserved.saturating_sub(n_elsewhere(at, *size)), ns, *n_per_node);
                into.add_queued(n_queued, ns, *n_per_node);
            }
        }
        for (size, (n, us)) in &self.arrived {
            into.add_arrived(*n, *us, n_per_node(*size));
        }
    }

    /// A task of a stage has run for `run_ns` nanoseconds, and has taken its slot for `slot_ns`.
    pub fn ran(&mut self, stage: u32, run_ns: u64, slot_ns: u64) {
        let stage = &mut self.stages[stage as usize];
        stage.means.add(run_ns, slot_ns);
        self.runs.entry(stage.run).or_default().add(run_ns, slot_ns);
        if let Some(label) = stage.label {
            self.labels[label as usize].add(run_ns, slot_ns);
        }
    }

    /// The expected run time of a task of a stage; `None` if no task of its run and none with its label has ended.
    pub fn expected_ns(&self, stage: u32) -> Option<u64> {
        self.expected(stage, |means| means.run)
    }

    /// The time for which a task of a stage is expected to take its slot, likewise.
    fn expected_slot_ns(&self, stage: u32) -> Option<u64> {
        self.expected(stage, |means| means.slot)
    }

    fn expected(&self, stage: u32, of: impl Fn(Means) -> Mean) -> Option<u64> {
        let stage = &self.stages[stage as usize];
        let of_run = || of(*self.runs.get(&stage.run)?).get();
        let of_label = || of(self.labels[stage.label? as usize]).get();
        of(stage.means).get().or_else(of_run).or_else(of_label)
    }

    /// The time that a task of a stage takes at most, as far as its ended tasks show: the mean and three
    /// standard deviations. `None` if no task of the stage has ended: other stages say nothing about it.
    pub fn longest_ns(&self, stage: u32) -> Option<u64> {
        self.stages[stage as usize].means.run.longest_ns()
    }

    /// Whether queued tasks of a stage are to get their steps anew: their longest expected time is in a higher step than
    /// before, or at least two steps lower.
    pub fn has_other_step(&self, stage: u32) -> bool {
        let stage = &self.stages[stage as usize];
        let now = stage.means.run.longest_ns().map(Lasts::of_ns);
        match (stage.stepped, now) {
            (Some(before), Some(now)) => now > before || before.steps_above(now) > 1,
            (before, now) => before != now,
        }
    }

    /// Queued tasks of these stages have got their steps anew.
    pub fn stepped(&mut self, of: impl Fn(u32) -> bool) {
        for (_, stage) in (0..).zip(&mut self.stages).filter(|(at, _)| of(*at)) {
            stage.stepped = stage.means.run.longest_ns().map(Lasts::of_ns);
        }
    }

    /// The shortest of the longest expected times of all stages that have ready tasks; `None` if there are none, or
    /// if nothing is known of one of them.
    pub fn shortest_ready_ns(&self) -> Option<u64> {
        let ready = self.stages.iter().filter(|s| s.n_ready() > 0);
        let longest = ready.map(|s| s.means.run.longest_ns());
        longest.reduce(|a, b| a.zip(b).map(|(a, b)| a.min(b))).flatten()
    }

    pub fn n_ready(&self) -> u64 {
        self.stages.iter().map(Stage::n_ready).sum()
    }

    /// Forgets a run and its stages; none of their tasks may be ready.
    pub fn forget(&mut self, run: RunId) {
        let of_run = (0..).zip(&self.stages).filter(|(_, stage)| stage.run == run).map(|(at, _)| at);
        self.free.extend(of_run.collect::<Vec<u32>>());
        self.free.iter().for_each(|at| self.stages[*at as usize].run = NO_RUN);
        self.by_label.retain(|(of, _), _| *of != run);
        self.runs.remove(&run);
    }
}

/// The next size whose numbers are powers of two.
fn rounded(TaskSize { cpus, memory_bytes, needs }: TaskSize) -> TaskSize {
    let memory_bytes = memory_bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
    TaskSize { cpus: cpus.checked_next_power_of_two().unwrap_or(u32::MAX), memory_bytes, needs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::NeedsId;
    use crate::provisioning::work::{Arrived, NODE_PARTS, WorkAhead};

    const ONE: TaskSize = TaskSize { cpus: 1, memory_bytes: 0, needs: NeedsId::NONE };

    /// What is predicted of tasks of which a node holds two at once.
    fn predicted(times: &RunTimes) -> Predicted {
        let mut predicted = Predicted::default();
        times.predict(&mut predicted, |_| 2, |_| u64::MAX, |_, _| 0, |_, _, _| 0);
        predicted
    }

    #[test]
    fn a_stage_has_its_own_mean_and_a_new_one_that_of_its_run() {
        let mut times = RunTimes::default();
        let (long, short, other) =
            (times.stage(RunId(1), "long"), times.stage(RunId(1), ""), times.stage(RunId(2), "long"));
        assert_eq!(times.stage(RunId(1), "long"), long);
        assert_ne!(times.stage(RunId(1), ""), short);
        assert_eq!(times.expected_ns(long), None);
        (0..4).for_each(|_| times.ran(long, 1000, 1000));
        assert_eq!((times.expected_ns(long), times.expected_ns(short)), (Some(1000), Some(1000)));
        (0..4).for_each(|_| times.ran(short, 10, 10));
        assert_eq!((times.expected_ns(long), times.expected_ns(short)), (Some(1000), Some(10)));
        assert_eq!(times.expected_ns(other), Some(1000), "a label means the same in each run");
        times.ready(long, ONE, 1);
        times.ready(short, ONE, 9);
        times.ready(other, ONE, 5);
        let queued = |times: &RunTimes| {
            predicted(times).queued.iter().map(|work| (work.n, work.ns)).collect::<Vec<_>>()
        };
        assert_eq!(queued(&times), [(9, 90), (6, 6000)]);
        times.not_ready(long, ONE);
        assert_eq!((queued(&times), times.n_ready()), (vec![(9, 90), (5, 5000)], 14));
        (0..9).for_each(|_| times.not_ready(short, ONE));
        times.forget(RunId(1));
        assert_eq!((times.free.len(), times.by_label.len(), times.runs.len()), (3, 1, 0));
        let again = times.stage(RunId(3), "long");
        assert!(again != other && times.stages.len() == 4, "its place was taken before");
        assert_eq!(times.expected_ns(again), Some(1000));
        let unlabelled = times.stage(RunId(3), "");
        assert_eq!(times.expected_ns(unlabelled), None);
    }

    #[test]
    fn work_is_the_time_for_which_tasks_take_their_slots() {
        let mut times = RunTimes::default();
        let stage = times.stage(RunId(1), "a");
        times.ran(stage, 1_000, 5_000);
        times.ready(stage, ONE, 2);
        assert_eq!(times.expected_ns(stage), Some(1_000));
        assert_eq!(times.longest_ns(stage), Some(1_750), "of the program");
        assert_eq!(predicted(&times).queued.iter().map(|work| work.ns).collect::<Vec<_>>(), [10_000]);
        assert_eq!(predicted(&times).arrived.us, 10);
    }

    #[test]
    fn what_arrives_is_counted_once_something_is_known_of_it() {
        let mut times = RunTimes::default();
        let stage = times.stage(RunId(1), "a");
        times.ready(stage, ONE, 5);
        assert_eq!(predicted(&times).queued_unknown, WorkAhead { n: 5, ns: 0, parts: 5 * NODE_PARTS / 2 });
        times.ran(stage, 4_000_000, 4_000_000);
        times.ready(stage, ONE, 3);
        times.not_ready(stage, ONE);
        times.reserved(stage, ONE);
        let seen = predicted(&times);
        assert_eq!(seen.arrived, Arrived { n: 3, us: 12_000, node_us: 6_000 });
        assert_eq!((seen.running[0].n, seen.queued[0].n, seen.queued_unknown.n), (1, 7, 0));
        times.not_reserved(stage, ONE);
        assert_eq!(predicted(&times).running, []);
    }

    #[test]
    fn tasks_of_one_label_and_several_sizes_take_different_parts_of_a_node() {
        let mut times = RunTimes::default();
        let (stage, two) = (times.stage(RunId(1), "a"), TaskSize { cpus: 2, ..ONE });
        let (vast, licensed) = (TaskSize { cpus: 99, ..ONE }, TaskSize { needs: NeedsId(1), ..ONE });
        times.ran(stage, 1_000_000, 1_000_000);
        for (size, n) in [(ONE, 10), (two, 10), (vast, 3), (licensed, 8)] {
            times.ready(stage, size, n);
        }
        let mut predicted = Predicted::default();
        let n_more = |size: TaskSize| if size == licensed { 5 } else { u64::MAX };
        let n_per_node = |size: TaskSize| if size == vast { 0 } else { 4 / u64::from(size.cpus) };
        times.predict(&mut predicted, n_per_node, n_more, |_, _| 0, |_, _, _| 0);
        let parts: u64 = predicted.queued.iter().map(|work| work.parts).sum();
        assert_eq!(parts, NODE_PARTS * (10 + 2 * 10 + 5) / 4);
        assert_eq!(predicted.n_too_large, 3);
        // Others have one of those that run, and room for the vast ones and for one of those that take two cpus.
        times.not_ready(stage, ONE);
        times.reserved(stage, ONE);
        let fit = |_, size, n: u64| if size == vast { n } else { n.min(u64::from(size == two)) };
        times.predict(&mut predicted, n_per_node, n_more, |_, size| u64::from(size == ONE), fit);
        assert_eq!((predicted.queued_parts(), predicted.running), (NODE_PARTS * (9 + 2 * 9 + 5) / 4, vec![]));
        assert_eq!(predicted.n_too_large, 0);
    }

    #[test]
    fn arrivals_of_many_sizes_are_counted_by_few() {
        let mut times = RunTimes::default();
        let stage = times.stage(RunId(1), "a");
        times.ran(stage, 1_000_000, 1_000_000);
        for memory_bytes in 0..10_000 {
            times.ready(stage, TaskSize { memory_bytes, ..ONE }, 1);
            times.not_ready(stage, TaskSize { memory_bytes, ..ONE });
        }
        assert!(times.arrived.len() < 100 && times.stages[stage as usize].counts.len() < 2);
        assert_eq!(times.arrived.values().map(|(n, _)| n).sum::<u64>(), 10_000);
    }
}
