//! What provisioning is told: the nodes, and how much work there is for the provisioner's own ones.
//!
//! A provisioner counts only nodes of its own. So work that other nodes do, which somebody has started by hand, asks for none of
//! them: a task that such a node has is not counted, and neither is a task that waits while such a node has room for it. As many
//! tasks as fit that room at once are left out; the others are counted, as such nodes may be busy for long.

use super::{Dispatcher, ExecutorState, Resources, Schedule};
use crate::placement::{Lasts, Stage, TaskSize};
use crate::provisioning::work::{NODE_PARTS, Predicted, part_of_node};
use crate::provisioning::{Demand, NodeView};
use eyas_terms::needs::Size;
use eyas_terms::{ExecutorId, NodeState};
use std::collections::BTreeMap;

/// A task's stage, and what it takes of a node.
pub(super) type TaskKind = (u32, TaskSize);

/// How many tasks there are of which kind. A node has tasks of few kinds at a time.
#[derive(Default)]
pub(super) struct KindCounts(Vec<(TaskKind, u64)>);

impl KindCounts {
    pub(super) fn of(kinds: impl Iterator<Item = TaskKind>) -> KindCounts {
        let mut counts = KindCounts::default();
        kinds.for_each(|kind| counts.add(kind));
        counts
    }

    pub(super) fn add(&mut self, kind: TaskKind) {
        match self.0.iter_mut().find(|(of, _)| *of == kind) {
            Some((_, n)) => *n += 1,
            None => self.0.push((kind, 1)),
        }
    }

    pub(super) fn remove(&mut self, kind: TaskKind) {
        let place = self.0.iter().position(|(of, _)| *of == kind).expect("it was counted");
        self.0[place].1 -= 1;
        if self.0[place].1 == 0 {
            self.0.swap_remove(place);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (TaskKind, u64)> + '_ {
        self.0.iter().copied()
    }

    /// In the order of the kinds.
    pub(super) fn counts(&self) -> BTreeMap<TaskKind, u64> {
        self.iter().collect()
    }
}

/// The nodes that are not the provisioner's.
#[derive(Default)]
struct Elsewhere {
    /// Tasks that they have, by stage and size.
    held: BTreeMap<TaskKind, u64>,
    /// What is left of those that take tasks.
    left: Vec<(ExecutorId, Size)>,
}

impl Schedule {
    fn elsewhere(&self, is_own: impl Fn(&str) -> bool) -> Elsewhere {
        let mut elsewhere = Elsewhere::default();
        for (&executor, e) in self.executors.by_id.iter().filter(|(_, e)| !is_own(&e.offer.name)) {
            let mut left = e.offer.size();
            for (kind, n) in e.kinds.iter() {
                *elsewhere.held.entry(kind).or_default() += n;
                left.take(&self.executors.resources.full_size(kind.1), n);
            }
            if e.node_state() == NodeState::Connected {
                elsewhere.left.push((executor, left));
            }
        }
        elsewhere
    }

    /// How many of `n` ready tasks of a stage and size these nodes have room for now, which is taken.
    fn take_room(&self, left: &mut [(ExecutorId, Size)], stage: u32, size: TaskSize, n: u64) -> u64 {
        let lasts = Lasts::of_ns(self.run_times.longest_ns(stage).unwrap_or(0));
        let full_size = self.executors.resources.full_size(size);
        let mut n_left = n;
        for (executor, left) in left {
            let fits = |id| self.ready.queue.room(id).is_some_and(|room| room.fits(Stage::Idle, size, lasts));
            if n_left > 0 && fits(*executor) {
                let n_here = left.holds(&full_size).min(n_left);
                left.take(&full_size, n_here);
                n_left -= n_here;
            }
        }
        n - n_left
    }
}

impl Resources {
    /// Slots of an executor that its tasks take: of two tasks that fill its memory, each takes half of its slots.
    fn busy_slots(&self, e: &ExecutorState) -> u32 {
        let (slots, n_assigned) = (e.offer.slots, e.assigned.len() as u32);
        if e.cpus_assigned == n_assigned && e.memory_assigned == 0 && e.needs_held.is_empty() {
            return n_assigned.min(slots);
        }
        let node = e.offer.size();
        let parts = e.kinds.iter().map(|((_, size), n)| n * part_of_node(node.holds(&self.full_size(size))));
        let parts: u64 = parts.sum();
        (parts.min(NODE_PARTS) * u64::from(slots)).div_ceil(NODE_PARTS) as u32
    }
}

impl Dispatcher {
    /// What provisioning needs to know, with `n_pending` nodes requested of which each is expected to be of size `node`.
    /// `is_own`: whether a node of that name is the provisioner's. `nodes` and `predicted` are filled and lent to the answer. Silent
    /// nodes count, as their work is not yet given up; draining nodes count until they have left.
    pub fn demand<'a>(
        &self,
        node: &Size,
        n_pending: u32,
        is_own: impl Fn(&str) -> bool,
        nodes: &'a mut Vec<NodeView>,
        predicted: &'a mut Predicted,
    ) -> Demand<'a> {
        let schedule = &self.schedule;
        nodes.clear();
        let shortest_ns = schedule.shortest_ready_ns();
        nodes.extend(schedule.executors.by_id.iter().map(|(&executor, e)| NodeView {
            executor,
            slots: e.offer.slots,
            n_assigned: e.assigned.len() as u32,
            busy_slots: schedule.executors.resources.busy_slots(e),
            idle_since: e.assigned.is_empty().then_some(e.last_ended),
            cached_bytes: 0,
            sole_bytes: 0,
            ends: e.ends.as_ref().map(|ends| ends.at),
            block: None,
            leaves: e.draining && e.ends.is_some(),
            has_no_time: schedule.executors.walltimes.has_no_time(e, shortest_ns),
        }));
        let n_per_node = |size| node.holds(&schedule.executors.resources.full_size(size));
        let resources = &schedule.executors.resources;
        let Elsewhere { held, mut left } = schedule.elsewhere(is_own);
        let mut n_fit = 0;
        let fit = |stage, size, n| {
            let n = schedule.take_room(&mut left, stage, size, n);
            n_fit += n;
            n
        };
        let has = |stage, size| held.get(&(stage, size)).copied().unwrap_or(0);
        let n_more = |size: TaskSize| resources.n_more_in_cluster(size.needs);
        schedule.run_times.predict(predicted, n_per_node, n_more, has, fit);
        Demand {
            n_ready: schedule.ready.n_tasks - n_fit,
            n_running: schedule.attempts.reserved.len() as u64 - held.values().sum::<u64>(),
            predicted,
            n_pending,
            nodes,
        }
    }
}
