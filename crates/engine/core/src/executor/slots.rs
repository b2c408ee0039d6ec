//! The node's slots: which attempts wait for one, in order of arrival, and what the programs have that were handed to the runner.

use super::{Attempt, AttemptId};
use crate::event::Assignment;
use crate::means::{RUNS_SMOOTHED, smooth};
use eyas_terms::needs::{Equipment, Left, Needs, PARTS};
use std::collections::BTreeMap;

/// Short programs are handed to the runner ahead of time, so that a slot need not wait for a round trip
/// between two of them: about this much work per slot, and at most this many programs.
const AHEAD_NS: u64 = 20_000_000;
const AHEAD_MAX: u64 = 4;

/// See the module.
pub(super) struct Slots {
    /// Attempts with all inputs, in order of arrival.
    queued: BTreeMap<u64, AttemptId>,
    /// Thousandths of slots that programs have; programs that wait at the runner count, too.
    parts_used: u64,
    /// What no program has of gpus and named resources.
    left: Left,
    /// A program took a part of a slot: from then on none is handed to the runner ahead of time, because the runner
    /// starts at once whatever it is given.
    takes_parts: bool,
    n_running: u32,
    /// Smoothed run time of programs, by which short programs are recognised.
    run_ns_mean: Option<u64>,
}

/// What becomes of a queued attempt.
pub(super) enum Turn {
    /// It starts, and has these gpus.
    Starts { gpus: Vec<u32> },
    /// Something that it needs is taken; attempts that need nothing of that kind go on.
    Waits,
    /// There is no slot for it, nor for others.
    Full,
}

/// Thousandths of a slot that a program takes.
fn parts_of(assignment: &Assignment) -> u64 {
    let Assignment { cpus, needs, .. } = assignment;
    needs.as_ref().map_or(u64::from(*cpus) * u64::from(PARTS), |needs| needs.cpus_in_parts(*cpus))
}

impl Slots {
    pub fn new(equipment: &Equipment) -> Slots {
        Slots {
            queued: BTreeMap::new(),
            parts_used: 0,
            left: Left::all_of(equipment),
            takes_parts: false,
            n_running: 0,
            run_ns_mean: None,
        }
    }

    /// An attempt, the `seq`-th that arrived, has all its inputs.
    pub fn enqueue(&mut self, seq: u64, id: AttemptId) {
        self.queued.insert(seq, id);
    }

    /// The attempt does not wait any more, if it did.
    pub fn leave(&mut self, seq: u64) {
        self.queued.remove(&seq);
    }

    /// The first attempt that waits, of those that arrived as the `from`-th or later.
    pub fn next(&self, from: u64) -> Option<(u64, AttemptId)> {
        self.queued.range(from..).next().map(|(seq, id)| (*seq, *id))
    }

    /// Programs that were handed to the runner and have not ended.
    pub fn n_running(&self) -> u32 {
        self.n_running
    }

    /// Whether programs take parts of slots, so that each is to be started at once.
    pub fn takes_parts(&self) -> bool {
        self.takes_parts
    }

    /// Smoothed run time of programs; `None`: none has ended.
    pub fn run_ns_mean(&self) -> Option<u64> {
        self.run_ns_mean
    }

    /// How many programs of one slot each the runner may have beside those that fill the `n_slots` slots.
    pub fn n_ahead(&self, n_slots: u32) -> u32 {
        let per_slot = self.run_ns_mean.map_or(0, |ns| (AHEAD_NS / ns.max(1)).min(AHEAD_MAX));
        n_slots * per_slot as u32
    }

    /// Gives the queued attempt what it needs of the `n_slots` slots, and of `n_ahead` more, and takes it out of the queue, or says why
    /// not. `awaited`: what attempts before it wait for, which is kept for them.
    pub fn try_start(
        &mut self,
        (n_slots, n_ahead): (u32, u32),
        seq: u64,
        assignment: &Assignment,
        awaited: &mut Vec<Needs>,
    ) -> Turn {
        // A task that asks for more cpus than there are gets all of them; the dispatcher refuses such a
        // task earlier.
        let needs = assignment.needs.as_deref();
        let parts = parts_of(assignment);
        let n_slots = n_slots + if needs.is_some() || self.takes_parts { 0 } else { n_ahead };
        let fits = self.parts_used + parts <= u64::from(n_slots) * u64::from(PARTS) || self.parts_used == 0;
        if let Some(needs) = needs {
            if awaited.iter().any(|other| Left::compete(needs, other)) || !self.left.has(needs) {
                // What it waits for is kept for it; attempts that need nothing of that kind go on.
                awaited.push(needs.clone());
                return Turn::Waits;
            }
            self.takes_parts |= fits && needs.cpu_parts > 0;
        }
        if !fits {
            return Turn::Full;
        }
        let gpus = needs.map_or_else(Vec::new, |needs| self.left.take(needs).expect("there is room"));
        self.queued.remove(&seq);
        self.parts_used += parts;
        self.n_running += 1;
        Turn::Starts { gpus }
    }

    /// The program of an attempt has ended after `run_ns`, and gives back what it had.
    pub(super) fn ended(&mut self, attempt: &Attempt, run_ns: u64) {
        self.n_running -= 1;
        self.parts_used -= parts_of(&attempt.assignment);
        if let Some(needs) = &attempt.assignment.needs {
            self.left.give_back(needs, &attempt.gpus);
        }
        smooth(&mut self.run_ns_mean, run_ns, RUNS_SMOOTHED);
    }

    /// Panics unless `running` are the attempts whose programs have slots. For tests.
    pub(super) fn check<'a>(
        &self,
        equipment: &Equipment,
        running: impl Iterator<Item = &'a Attempt> + Clone,
    ) {
        assert_eq!(running.clone().count(), self.n_running as usize);
        assert_eq!(running.clone().map(|a| parts_of(&a.assignment)).sum::<u64>(), self.parts_used);
        let mut left = self.left.clone();
        for (needs, attempt) in running.filter_map(|a| Some((a.assignment.needs.as_deref()?, a))) {
            left.give_back(needs, &attempt.gpus);
        }
        assert_eq!(left, Left::all_of(equipment), "gpus and resources are held by programs");
    }

    /// Whether the attempt that arrived as the `seq`-th waits for a slot. For tests.
    pub fn has_queued(&self, seq: u64) -> bool {
        self.queued.contains_key(&seq)
    }
}
