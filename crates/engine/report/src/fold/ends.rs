//! How tasks ended, by number.
//!
//! Tasks of a run end in nearly the order of their numbers, so ends stand in blocks of neighbours: a task costs 16 bytes and its share of
//! a block's place, in place of the 27 to 54 that a map by task takes.

use eyas_terms::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Tasks of one block.
const BLOCK: u64 = 16;

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum End {
    #[default]
    Not,
    Done,
    Failed,
    Cancelled,
}

impl End {
    pub(super) fn of(outcome: &Outcome) -> End {
        match outcome {
            Outcome::Done => End::Done,
            Outcome::Failed(_) => End::Failed,
            Outcome::Cancelled => End::Cancelled,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskEnd {
    pub t: Timestamp,
    /// [`End::Not`]: the task has no end.
    pub end: End,
    /// The life that last said so.
    pub life: u16,
}

#[derive(Debug, Default)]
pub(super) struct Ends {
    blocks: FxHashMap<u64, Box<[TaskEnd; BLOCK as usize]>>,
    n_ends: usize,
}

impl Ends {
    /// Tasks that have ended.
    pub fn len(&self) -> usize {
        self.n_ends
    }

    pub fn get(&self, task: TaskId) -> Option<&TaskEnd> {
        let end = &self.blocks.get(&(task.0 / BLOCK))?[(task.0 % BLOCK) as usize];
        Some(end).filter(|end| end.end != End::Not)
    }

    pub fn get_mut(&mut self, task: TaskId) -> Option<&mut TaskEnd> {
        let end = &mut self.blocks.get_mut(&(task.0 / BLOCK))?[(task.0 % BLOCK) as usize];
        Some(end).filter(|end| end.end != End::Not)
    }

    /// * `end`: not [`End::Not`].
    pub fn insert(&mut self, task: TaskId, end: TaskEnd) {
        let block = self.blocks.entry(task.0 / BLOCK).or_default();
        let place = &mut block[(task.0 % BLOCK) as usize];
        self.n_ends += usize::from(place.end == End::Not);
        *place = end;
    }

    pub fn remove(&mut self, task: TaskId) {
        if let Some(end) = self.get_mut(task) {
            *end = TaskEnd::default();
            self.n_ends -= 1;
        }
    }

    /// All ends, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &TaskEnd)> {
        self.blocks.iter().flat_map(|(block, ends)| {
            let numbered =
                ends.iter().enumerate().map(move |(i, end)| (TaskId(block * BLOCK + i as u64), end));
            numbered.filter(|(_, end)| end.end != End::Not)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn ends_are_as_in_a_map() {
        let (mut rng, mut ends, mut map) = (Rng::new(1), Ends::default(), BTreeMap::new());
        for t in 0..20_000 {
            let task = TaskId(rng.below(100) * (1 + 40 * rng.below(2)));
            match rng.below(3) {
                0 => {
                    ends.remove(task);
                    map.remove(&task);
                }
                _ => {
                    ends.insert(task, TaskEnd { t: Timestamp(t), end: End::Failed, life: 3 });
                    map.insert(task, Timestamp(t));
                }
            }
            assert_eq!(ends.get(task).map(|end| end.t), map.get(&task).copied());
            assert_eq!(ends.get_mut(task).map(|end| end.t), map.get(&task).copied());
            assert_eq!(ends.len(), map.len());
        }
        let all: BTreeMap<TaskId, Timestamp> = ends.iter().map(|(task, end)| (task, end.t)).collect();
        assert_eq!(all, map);
    }
}
