//! How long tasks take, by stage.
//!
//! Tasks with the same label in one run are a stage, and so are the tasks of one array without a label. The
//! mean of a stage follows its last [`MEMORY`] tasks. For a stage in which no task has ended, the mean of its
//! run is expected. One figure for a whole run would mix a stage of minutes with a stage of milliseconds:
//! gathers were predicted to take four times what they took.
//!
//! Used to predict when the files of a gather will appear, and how much work is ready (provisioning).

use super::submissions::NO_RUN;
use crate::placement::Lasts;
use crate::types::RunId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The longest expected time is so many standard deviations above the mean.
const DEVIATIONS: u64 = 3;
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

struct Stage {
    run: RunId,
    mean: Mean,
    /// The number of ready tasks of the stage.
    n_ready: u64,
    /// The longest expected time when the stage's queued tasks got their steps last; see `walltimes`.
    stepped: Option<Lasts>,
}

#[derive(Default)]
pub(super) struct RunTimes {
    stages: Vec<Stage>,
    /// Free places in `stages`, left by runs that are forgotten.
    free: Vec<u32>,
    by_label: FxHashMap<(RunId, String), u32>,
    runs: BTreeMap<RunId, Mean>,
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
            let new = Stage { run, mean: Mean::default(), n_ready: 0, stepped: None };
            match self.free.pop() {
                Some(free) => self.stages[free as usize] = new,
                None => self.stages.push(new),
            }
        }
        stage
    }

    /// Counts `n` more ready tasks of a stage.
    pub fn ready(&mut self, stage: u32, n: u64) {
        self.stages[stage as usize].n_ready += n;
    }

    /// A task of a stage is no longer ready.
    pub fn not_ready(&mut self, stage: u32) {
        self.stages[stage as usize].n_ready -= 1;
    }

    /// A task of a stage has run for `ns` nanoseconds.
    pub fn ran(&mut self, stage: u32, ns: u64) {
        let stage = &mut self.stages[stage as usize];
        stage.mean.add(ns);
        self.runs.entry(stage.run).or_default().add(ns);
    }

    /// The expected run time of a task of a stage; `None` if no task of its run has ended.
    pub fn expected_ns(&self, stage: u32) -> Option<u64> {
        let stage = &self.stages[stage as usize];
        stage.mean.get().or_else(|| self.runs.get(&stage.run)?.get())
    }

    /// The time that a task of a stage takes at most, as far as its ended tasks show: the mean and three
    /// standard deviations. `None` if no task of the stage has ended: other stages say nothing about it.
    pub fn longest_ns(&self, stage: u32) -> Option<u64> {
        self.stages[stage as usize].mean.longest_ns()
    }

    /// Whether queued tasks of a stage are to get their steps anew: their longest expected time is in a higher step than
    /// before, or at least two steps lower.
    pub fn has_other_step(&self, stage: u32) -> bool {
        let stage = &self.stages[stage as usize];
        let now = stage.mean.longest_ns().map(Lasts::of_ns);
        match (stage.stepped, now) {
            (Some(before), Some(now)) => now > before || before.steps_above(now) > 1,
            (before, now) => before != now,
        }
    }

    /// Queued tasks of these stages have got their steps anew.
    pub fn stepped(&mut self, of: impl Fn(u32) -> bool) {
        for (_, stage) in (0..).zip(&mut self.stages).filter(|(at, _)| of(*at)) {
            stage.stepped = stage.mean.longest_ns().map(Lasts::of_ns);
        }
    }

    /// The shortest of the longest expected times of all stages that have ready tasks; `None` if there are none, or
    /// if nothing is known of one of them.
    pub fn shortest_ready_ns(&self) -> Option<u64> {
        let ready = self.stages.iter().filter(|s| s.n_ready > 0);
        let longest = ready.map(|s| s.mean.longest_ns());
        longest.reduce(|a, b| a.zip(b).map(|(a, b)| a.min(b))).flatten()
    }

    /// The expected run time of a ready task, averaged over the ready tasks whose stage has an expectation.
    pub fn expected_ready_ns(&self) -> Option<u64> {
        let ready = (0..).zip(&self.stages).filter(|(_, s)| s.n_ready > 0);
        let known = ready.filter_map(|(stage, s)| Some((s.n_ready, self.expected_ns(stage)?)));
        let (n, sum_ns) =
            known.fold((0, 0), |(n, sum), (k, ns)| (n + k, sum + u128::from(k) * u128::from(ns)));
        (n > 0).then(|| (sum_ns / u128::from(n)) as u64)
    }

    pub fn n_ready(&self) -> u64 {
        self.stages.iter().map(|s| s.n_ready).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_its_own_mean_and_a_new_one_that_of_its_run() {
        let mut times = RunTimes::default();
        let (long, short, other) =
            (times.stage(RunId(1), "long"), times.stage(RunId(1), ""), times.stage(RunId(2), "long"));
        assert_eq!(times.stage(RunId(1), "long"), long);
        assert_ne!(times.stage(RunId(1), ""), short);
        assert_eq!(times.expected_ns(long), None);
        (0..4).for_each(|_| times.ran(long, 1000));
        assert_eq!((times.expected_ns(long), times.expected_ns(short)), (Some(1000), Some(1000)));
        (0..4).for_each(|_| times.ran(short, 10));
        assert_eq!((times.expected_ns(long), times.expected_ns(short)), (Some(1000), Some(10)));
        assert_eq!(times.expected_ns(other), None);
        times.ready(long, 1);
        times.ready(short, 9);
        times.ready(other, 5);
        assert_eq!(times.expected_ready_ns(), Some(109));
        times.not_ready(long);
        assert_eq!((times.expected_ready_ns(), times.n_ready()), (Some(10), 14));
        (0..9).for_each(|_| times.not_ready(short));
        times.forget(RunId(1));
        assert_eq!((times.free.len(), times.by_label.len(), times.runs.len()), (3, 1, 0));
        let again = times.stage(RunId(3), "long");
        assert!(again != other && times.stages.len() == 4, "its place was taken before");
        assert_eq!(times.expected_ns(again), None);
    }
}
