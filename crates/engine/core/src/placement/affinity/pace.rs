//! Executors that are not equally fast.
//!
//! In: how long programs ran on which executor, against the mean of their stage. Out: whether an executor leaves the last
//! tasks to faster ones ([`Affinity::leaves_to_faster`]). It does so as long as these will have run all that is queued
//! before it would have run one task, with a margin, as what is learnt is rough and tasks differ. It waits no longer for
//! them than that takes, so no task starves that only it can run.

use super::Affinity;
use crate::executor_set::Seat;
use crate::placement::Room;
use eyas_terms::{ExecutorId, Timestamp};

/// So many programs have to end on an executor before its pace counts.
const RUNS_MIN: u32 = 5;
/// The pace follows about so many programs.
const MEMORY: u32 = 16;
/// One program counts at most as so many times as long as others, or as short: tasks of one stage differ.
const RATIO_MAX: f64 = 4.0;
/// The faster executors have to be done in this part of the time of one task here.
const DONE_PART: f64 = 0.5;
/// There is no tail while so many tasks per slot are queued, or more.
const TAIL_TASKS_PER_SLOT: u64 = 8;
/// Whether a faster executor could run the tasks is asked of so many of the fastest.
const FASTEST_MAX: usize = 8;

/// How long programs run on one executor.
pub(super) struct Pace {
    /// Against the mean of their stages.
    ratio: f64,
    n_runs: u32,
    /// With fewer tasks queued than this, they are left to faster executors.
    tail_tasks: f64,
    /// For at most so long.
    leaves_ns: f64,
    since: Option<Timestamp>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { ratio: 1.0, n_runs: 0, tail_tasks: 0.0, leaves_ns: 0.0, since: None }
    }
}

impl Pace {
    fn learn(&mut self, ratio: f64) {
        self.n_runs = self.n_runs.saturating_add(1);
        self.ratio +=
            (ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX) - self.ratio) / f64::from(self.n_runs.min(MEMORY) + 1);
    }

    /// At least 1: how many times as long programs run here as elsewhere.
    pub fn slowness(&self) -> f64 {
        self.ratio.max(1.0)
    }
}

/// When the paces were compared last.
#[derive(Default)]
pub(super) struct Compared {
    at: Timestamp,
    is_old: bool,
}

impl Affinity {
    /// A program ran on `executor`; the mean of its stage is `stage_ns`.
    pub(super) fn learn_pace(&mut self, executor: ExecutorId, run_ns: u64, stage_ns: u64) {
        if let Some(&seat) = self.executors.seat_of.get(&executor) {
            self.executors.at_mut(seat).pace.learn(run_ns.max(1) as f64 / stage_ns.max(1) as f64);
            self.paces.is_old = true;
        }
    }

    /// Computes anew which executors leave how many of the last tasks to faster ones.
    pub(super) fn compare_paces(&mut self, now: Timestamp) {
        let is_tail = (self.tasks.len() as u64) < TAIL_TASKS_PER_SLOT * self.executors.n_slots_total;
        if !self.paces.is_old
            || !is_tail
            || now.since_ns(self.paces.at) < self.asking.every_ns(&self.executors)
        {
            return;
        }
        self.paces = Compared { at: now, is_old: false };
        let run_ns = self.times.run_ns_expected();
        let seats = (0..).map(Seat).zip(&self.executors.by_seat);
        let mut all: Vec<(f64, Seat, Room)> =
            seats.filter_map(|(seat, m)| m.as_ref().map(|m| (m.pace.ratio * run_ns, seat, m.room))).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // The tasks that the faster executors run in a nanosecond, and their slots.
        let (mut rate, mut slots) = (0.0, 0.0);
        for (i, &(ns, seat, room)) in all.iter().enumerate() {
            let is_as_able = |(_, _, faster): &(f64, Seat, Room)| {
                !faster.rests
                    && faster.slots_total >= room.slots_total
                    && faster.memory_total_bytes >= room.memory_total_bytes
                    && faster.never & !room.never == 0
                    && faster.left == room.left
            };
            let leaves = rate > 0.0 && all[..i].iter().take(FASTEST_MAX).any(is_as_able);
            let pace = &mut self.executors.at_mut(seat).pace;
            pace.leaves_ns = DONE_PART * ns;
            pace.tail_tasks = match leaves && pace.n_runs >= RUNS_MIN {
                true => (pace.leaves_ns - slots / rate) * rate,
                false => 0.0,
            };
            rate += f64::from(room.slots_total) / ns.max(1.0);
            slots += f64::from(room.slots_total);
        }
    }

    /// Whether faster executors will have run all that is queued before `seat` would have run one task.
    pub(super) fn leaves_to_faster(&mut self, now: Timestamp, seat: Seat) -> bool {
        let n_queued = self.tasks.len() as f64;
        let pace = &mut self.executors.at_mut(seat).pace;
        if n_queued >= pace.tail_tasks {
            pace.since = None;
            return false;
        }
        let since = *pace.since.get_or_insert(now);
        let rest_ns = pace.leaves_ns - now.since_ns(since) as f64;
        if rest_ns > 0.0 {
            self.asking.note_due(now, rest_ns);
        }
        rest_ns > 0.0
    }
}
