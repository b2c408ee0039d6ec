//! Names of executors, for people. Explanations speak also of executors that have left, so a name outlives its executor, but no
//! longer than the runs that were opened while the executor was there: the memory of a dispatcher need not grow with the
//! executors that have come and gone.

use eyas_terms::{ExecutorId, RunId};
use std::collections::{BTreeMap, BTreeSet};

struct Name {
    name: String,
    /// For an executor that has left: the first run that cannot speak of it.
    unknown_from: Option<RunId>,
}

/// See the module.
#[derive(Default)]
pub(super) struct ExecutorNames {
    names: BTreeMap<ExecutorId, Name>,
    /// Executors that have left, in the order in which their names may be forgotten.
    left: BTreeSet<(RunId, ExecutorId)>,
}

impl ExecutorNames {
    /// The executor is there (again), under this name.
    pub(super) fn insert(&mut self, executor: ExecutorId, name: String) {
        if let Some(Name { unknown_from: Some(run), .. }) =
            self.names.insert(executor, Name { name, unknown_from: None })
        {
            self.left.remove(&(run, executor));
        }
    }

    /// The executor has left; `next_run` is the number that the next run gets.
    pub(super) fn left(&mut self, executor: ExecutorId, next_run: RunId) {
        let Some(name) = self.names.get_mut(&executor) else { return };
        if let Some(before) = name.unknown_from.replace(next_run) {
            self.left.remove(&(before, executor));
        }
        self.left.insert((next_run, executor));
    }

    /// All runs with a smaller number than `first_run` are forgotten.
    pub(super) fn forget(&mut self, first_run: RunId) {
        while let Some((unknown_from, executor)) = self.left.first().copied()
            && unknown_from <= first_run
        {
            self.left.remove(&(unknown_from, executor));
            self.names.remove(&executor);
        }
    }

    pub(super) fn get(&self, executor: ExecutorId) -> Option<&str> {
        self.names.get(&executor).map(|name| name.name.as_str())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ExecutorId, &str)> {
        self.names.iter().map(|(executor, name)| (*executor, name.name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(names: &ExecutorNames) -> Vec<(u32, &str)> {
        names.iter().map(|(executor, name)| (executor.0, name)).collect()
    }

    #[test]
    fn a_name_is_kept_as_long_as_its_executor_or_a_run_that_may_speak_of_it() {
        let mut names = ExecutorNames::default();
        names.insert(ExecutorId(1), "a".into());
        names.insert(ExecutorId(2), "b".into());
        names.insert(ExecutorId(3), "c".into());
        names.left(ExecutorId(1), RunId(5));
        names.left(ExecutorId(2), RunId(5));
        names.insert(ExecutorId(2), "b".into());
        names.forget(RunId(4));
        assert_eq!(known(&names), [(1, "a"), (2, "b"), (3, "c")]);
        names.forget(RunId(5));
        assert_eq!(known(&names), [(2, "b"), (3, "c")]);
        names.forget(RunId(1000));
        assert_eq!(known(&names), [(2, "b"), (3, "c")]);
    }

    #[test]
    fn names_do_not_grow_with_the_runs_that_were_done() {
        let mut names = ExecutorNames::default();
        for number in 1..=1000 {
            names.insert(ExecutorId(number), format!("n{number}"));
            names.left(ExecutorId(number), RunId(number + 1));
            names.forget(RunId(number.saturating_sub(9)));
            assert!(names.names.len() <= 10 && names.left.len() == names.names.len());
        }
    }
}
