//! The decisions of the four policies by scanning every task and every executor.
//!
//! In: the same facts as [`Window`](super::Window) gets, as plain collections. Out: what `choice` must give, bit for
//! bit. Slow on purpose: each line follows the headers of the policies; nothing is shared with the indexes but
//! the vocabulary. Only tests and benchmarks ask it.

use super::{Mode, Pick, ReadyTask, Room, Stage, Unplaced};
use crate::catalog::Catalog;
use eyas_terms::ExecutorId;
use std::cmp::Reverse;

/// A policy as two rules and its `m`.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    FirstAvailable,
    MaxCacheHit,
    MaxComputeUtil,
    GoodCacheCompute { utilisation_threshold: f64 },
}

/// Everything that a decision may depend on.
pub struct Scan<'a> {
    /// In queue order.
    pub tasks: Vec<&'a ReadyTask>,
    pub catalog: &'a Catalog,
    /// Executors that have joined, in the order of seats once around from the one whose turn it is.
    pub executors: Vec<(ExecutorId, Room)>,
}

fn room_of(room: &Room, stage: Stage) -> u32 {
    if stage == Stage::Idle { room.idle_rank() } else { room.ahead }
}

impl Scan<'_> {
    pub fn place(&self, rule: Rule, n_tasks_max: usize) -> Result<(ExecutorId, Vec<Pick>), Unplaced> {
        let n_total: u64 = self.executors.iter().map(|(_, r)| u64::from(r.slots_total)).sum();
        let n_idle: u64 = self.executors.iter().map(|(_, r)| u64::from(r.slots_idle)).sum();
        let (idle, ahead) = match rule {
            Rule::FirstAvailable => (Mode::FirstAvailable, Mode::FirstAvailable),
            Rule::MaxCacheHit => (Mode::MaxCacheHit, Mode::MaxCacheHit),
            Rule::MaxComputeUtil => (Mode::MaxComputeUtil, Mode::MaxComputeUtil),
            Rule::GoodCacheCompute { utilisation_threshold: t } => {
                let below = ((n_total - n_idle) as f64) < t * n_total as f64;
                (if below { Mode::MaxComputeUtil } else { Mode::MaxCacheHit }, Mode::MaxCacheHit)
            }
        };
        for (stage, mode) in [(Stage::Idle, idle), (Stage::Ahead, ahead)] {
            if let Some((executor, room)) = self.notify(stage, mode) {
                return Ok((executor, self.pick_up(executor, room, stage, mode, n_tasks_max)));
            }
        }
        let Some(head) = self.tasks.first() else { return Err(Unplaced::NothingReady) };
        let (task, cpus, memory_bytes) = (head.key.task, head.cpus, head.memory_bytes);
        Err(if self.executors.is_empty() {
            Unplaced::NoExecutor
        } else if self.executors.iter().all(|(_, r)| r.idle_rank() == 0 && r.ahead == 0) {
            Unplaced::NoneFree
        } else if [Stage::Idle, Stage::Ahead].iter().any(|s| !self.fitting(head, *s).is_empty())
            && let Some(executor) = self.best_holders(head).into_iter().min_by_key(|e| self.catalog.seat(*e))
        {
            Unplaced::WaitingForHolder { task, executor }
        } else {
            Unplaced::NothingFits { task, cpus, memory_bytes }
        })
    }

    fn hits(&self, task: &ReadyTask, executor: ExecutorId) -> u32 {
        task.inputs.iter().filter(|&&o| self.catalog.holds(executor, o)).count() as u32
    }

    /// Hit rate times 840, so that all fractions up to eighths are whole numbers.
    fn rate(&self, task: &ReadyTask, executor: ExecutorId) -> u32 {
        let (hits, n) = (self.hits(task, executor), task.inputs.len() as u32);
        match n {
            0 => 840,
            1..=8 => 840 * hits / n,
            _ if hits == 0 => 0,
            _ => 105 * (8 * hits / n).max(1),
        }
    }

    fn best_holders(&self, task: &ReadyTask) -> Vec<ExecutorId> {
        let most = self.executors.iter().map(|(e, _)| self.hits(task, *e)).max().unwrap_or(0);
        let ids = self.executors.iter().map(|(e, _)| *e);
        ids.filter(|e| most > 0 && self.hits(task, *e) == most).collect()
    }

    fn fitting(&self, task: &ReadyTask, stage: Stage) -> Vec<(ExecutorId, Room)> {
        let fits = |r: &Room| r.fits(stage, task.size(), task.lasts);
        self.executors.iter().filter(|(_, r)| fits(r)).copied().collect()
    }

    fn next_free(&self, task: &ReadyTask, stage: Stage) -> Option<(ExecutorId, Room)> {
        // `min_by_key` gives the first of equals, which is the next in turn.
        self.fitting(task, stage).into_iter().min_by_key(|(_, r)| Reverse(room_of(r, stage)))
    }

    /// Figure 4.
    fn notify(&self, stage: Stage, mode: Mode) -> Option<(ExecutorId, Room)> {
        let head_fitting = || self.tasks.iter().find(|t| !self.fitting(t, stage).is_empty());
        match mode {
            Mode::FirstAvailable => self.next_free(head_fitting()?, stage),
            Mode::MaxComputeUtil => {
                let head = head_fitting()?;
                let candidates =
                    self.fitting(head, stage).into_iter().filter(|(e, _)| self.hits(head, *e) > 0);
                candidates
                    .min_by_key(|(e, r)| Reverse((self.hits(head, *e), room_of(r, stage))))
                    .or_else(|| self.next_free(head, stage))
            }
            Mode::MaxCacheHit => {
                let own = |t: &ReadyTask, e: ExecutorId| self.best_holders(t).contains(&e);
                let head = self.tasks.first()?;
                let of_head = if self.best_holders(head).is_empty() {
                    self.next_free(head, stage)
                } else {
                    let holders = self.fitting(head, stage).into_iter().filter(|(e, _)| own(head, *e));
                    holders.min_by_key(|(_, r)| Reverse(room_of(r, stage)))
                };
                let awaited = || {
                    let awaited = self.executors.iter().copied().filter(|(e, r)| {
                        self.tasks.iter().any(|t| r.fits(stage, t.size(), t.lasts) && own(t, *e))
                    });
                    awaited.min_by_key(|(_, r)| Reverse(room_of(r, stage)))
                };
                let cold = || {
                    let is_cold = |t: &&&ReadyTask| self.best_holders(t).is_empty();
                    self.tasks.iter().filter(is_cold).find_map(|t| self.next_free(t, stage))
                };
                of_head.or_else(awaited).or_else(cold)
            }
        }
    }

    /// Figure 5.
    fn pick_up(
        &self,
        executor: ExecutorId,
        room: Room,
        stage: Stage,
        mode: Mode,
        n_tasks_max: usize,
    ) -> Vec<Pick> {
        let may_hit = |t: &&&ReadyTask| match mode {
            Mode::FirstAvailable => false,
            Mode::MaxComputeUtil => true,
            Mode::MaxCacheHit => t.inputs.is_empty() || self.best_holders(t).contains(&executor),
        };
        let mut hits: Vec<&ReadyTask> = self.tasks.iter().filter(may_hit).copied().collect();
        hits.retain(|t| self.rate(t, executor) > 0);
        hits.sort_by_key(|t| (Reverse(self.rate(t, executor)), t.key));
        let may_rest = |t: &&&ReadyTask| mode != Mode::MaxCacheHit || self.best_holders(t).is_empty();
        let rest: Vec<&ReadyTask> = self.tasks.iter().filter(may_rest).copied().collect();
        let mut picks = Vec::new();
        for (candidates, look) in [(hits, true), (rest, false)] {
            let mut left = room;
            for task in candidates {
                if picks.len() < n_tasks_max && left.fits(stage, task.size(), task.lasts) {
                    left = left.after(stage, task.size());
                    let n_hits = if look { self.hits(task, executor) } else { 0 };
                    picks.push(Pick {
                        key: task.key,
                        n_hits,
                        n_inputs: task.inputs.len() as u32,
                        rule: super::Rule::Paper(mode),
                        stage,
                    });
                }
            }
            if !picks.is_empty() {
                break;
            }
        }
        picks
    }
}
