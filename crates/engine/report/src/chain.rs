//! Which task makes the files that a task reads, and the longest chain of such tasks.

use crate::measure::{Measure, tasks};
use crate::read::{End, SubmittedArray};
use eyas_terms::*;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// With more files than this, no task is known to wait for another one: the true times are not worth the
/// memory.
const FILES_MAX: u64 = 8_000_000;

/// The task that makes each file of a run, by a hash of the run and the file's location.
pub(crate) struct Makers(FxHashMap<u64, TaskId>);

impl Makers {
    pub fn of(m: &Measure) -> Makers {
        let mut makers = FxHashMap::default();
        let n_outputs = |s: &SubmittedArray| {
            Some(u64::from(s.n_tasks) * m.log.array_at(s.first)?.template.outputs.len() as u64)
        };
        if m.submissions.iter().filter_map(n_outputs).fold(0, u64::saturating_add) > FILES_MAX {
            return Makers(makers);
        }
        let mut text = String::new();
        for s in &m.submissions {
            let Some(array) = m.log.array_at(s.first) else { continue };
            for i in 0..s.n_tasks {
                for (_, location) in &array.template.outputs {
                    text.clear();
                    array.fill_into(location, i, &mut text);
                    makers.insert(key(s.run, &text), TaskId(s.first.0 + u64::from(i)));
                }
            }
        }
        Makers(makers)
    }

    /// The tasks that make inputs of `task`, in the order of the inputs.
    fn before(&self, m: &Measure, task: TaskId) -> Vec<TaskId> {
        if self.0.is_empty() {
            return vec![];
        }
        let submission = m.submissions[..m.submissions.partition_point(|s| s.first <= task)].last();
        let (Some(s), Some(array)) = (submission, m.log.array_at(task)) else {
            return vec![];
        };
        let (i, mut text) = ((task.0 - s.first.0) as u32, String::new());
        let maker = |location| {
            text.clear();
            array.fill_into(location, i, &mut text);
            self.0.get(&key(s.run, &text)).copied().filter(|maker| *maker != task)
        };
        array.template.inputs.iter().map(|(_, location)| location).filter_map(maker).collect()
    }

    /// The time when the last of the files that other tasks make for `task` was there, and the task that made
    /// it.
    pub fn ready(&self, m: &Measure, task: TaskId) -> Option<(Timestamp, TaskId)> {
        let there = |maker: TaskId| match m.log.end(maker) {
            (End::Not, _) => m.stop,
            (_, t) => t,
        };
        self.before(m, task).into_iter().map(|maker| (there(maker), maker)).max()
    }

    /// The longest time for which programs ran one after the other, each reading what the one before it made.
    pub fn longest_chain_ns(&self, m: &Measure) -> u64 {
        if self.0.is_empty() {
            return tasks(&m.submissions).map(|task| m.run_ns(task)).max().unwrap_or(0);
        }
        let mut longest = 0;
        // How long the longest chain that ends with a task took; a task that is looked at has none yet.
        let mut until: FxHashMap<TaskId, Option<u64>> = FxHashMap::default();
        for task in tasks(&m.submissions) {
            if until.contains_key(&task) {
                continue;
            }
            let mut path = vec![task];
            while let Some(&at) = path.last() {
                let makers = self.before(m, at);
                // A task on the path is no unknown one: a damaged log may hold a circle.
                until.entry(at).or_insert(None);
                if let Some(maker) = makers.iter().find(|maker| !until.contains_key(maker)) {
                    path.push(*maker);
                    continue;
                }
                path.pop();
                let before = makers.iter().filter_map(|maker| until.get(maker).copied().flatten()).max();
                let ns = m.run_ns(at).saturating_add(before.unwrap_or(0));
                until.insert(at, Some(ns));
                longest = longest.max(ns);
            }
        }
        longest
    }
}

fn key(run: RunId, location: &str) -> u64 {
    let mut hasher = FxHasher::default();
    (run, location).hash(&mut hasher);
    hasher.finish()
}
