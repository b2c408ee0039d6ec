//! Needs beside whole cpus and memory: which sets of them there are, what of them each executor and the whole
//! cluster has left, and who waits for them ([decision 0039](../../../../../docs/decisions/0039-resources.md)).
//!
//! Each different set of needs has a number, which placement knows ([`NeedsId`]). What an executor has left is
//! written into its [`Room`] as one bit per number. So a task without needs costs nothing here, and placement looks
//! at needs as it looks at slots.
//!
//! A task holds what it needs from the moment at which it is given to an executor until its program has ended. The
//! executor checks its own part again when it starts a program.
//!
//! A set of needs can be passed by others for ever: a task that needs four gpus waits while tasks that need one gpu
//! come and go. After [`PASSED_MAX`] younger tasks have passed the oldest task of a set, one node is kept for it.
//!
//! Invariants, checked by [`Schedule::check_resources`]: the counts equal their recomputation from the attempts,
//! and no amount of the whole cluster is held more often than it is there.

use super::{Dispatcher, ExecutorState, Executors, Schedule, Workload};
use crate::placement::{NeedsId, QueueKey, Room, TaskSize};
use eyas_terms::array::TaskArray;
use eyas_terms::needs::{Equipment, Left, Needs, PARTS, Size, in_parts};
use eyas_terms::{ExecutorId, RunId};
use eyas_text::shown;
use std::collections::BTreeMap;

/// How many younger tasks may pass a task because they need less.
pub(super) const PASSED_MAX: u32 = 64;

/// One set of needs.
struct Set {
    needs: Needs,
    /// Its part that a node has.
    of_node: Needs,
    /// Its part that the whole cluster has.
    of_cluster: BTreeMap<String, u32>,
    /// Attempts that hold it, on all executors.
    n_held: u32,
    /// Younger tasks that passed the oldest task which needs it, since a task got it last.
    n_passed: u32,
}

/// All sets of needs; number `i` is at place `i - 1`.
#[derive(Default)]
pub(super) struct Resources {
    /// Named resources that the whole cluster has.
    in_cluster: BTreeMap<String, u32>,
    sets: Vec<Set>,
    /// The sets that what the whole cluster has left is too little for.
    cluster_lacks: u64,
    /// A node that is kept for a set of needs which was passed too often.
    kept: Option<(NeedsId, ExecutorId)>,
}

impl Resources {
    pub(super) fn new(in_cluster: BTreeMap<String, u32>) -> Resources {
        Resources { in_cluster, ..Resources::default() }
    }

    /// Whether no run has tasks with needs.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The needs with that number.
    pub(super) fn get(&self, id: NeedsId) -> Option<&Needs> {
        self.set(id).map(|set| &set.needs)
    }

    /// What a node has of the needs with that number, for the node's own books.
    pub(super) fn of_node(&self, id: NeedsId) -> Option<Box<Needs>> {
        self.set(id).map(|set| &set.of_node).filter(|needs| !needs.is_empty()).cloned().map(Box::new)
    }

    fn set(&self, id: NeedsId) -> Option<&Set> {
        self.sets.get(usize::from(id.0).checked_sub(1)?)
    }

    fn numbered(&self) -> impl Iterator<Item = (NeedsId, &Set)> {
        (1..).map(NeedsId).zip(&self.sets)
    }

    fn new_set(&self, needs: &Needs) -> Set {
        let (of_cluster, resources) =
            needs.resources.clone().into_iter().partition(|(name, _)| self.in_cluster.contains_key(name));
        let of_node = Needs { resources, ..needs.clone() };
        Set { needs: needs.clone(), of_node, of_cluster, n_held: 0, n_passed: 0 }
    }

    /// Computes `cluster_lacks` anew; `true`: it changed.
    fn settle_cluster(&mut self) -> bool {
        let mut lacks = 0;
        for (id, set) in self.numbered().filter(|(_, set)| !set.of_cluster.is_empty()) {
            let held = |name: &String| {
                let of =
                    |s: &Set| u64::from(s.n_held) * u64::from(s.of_cluster.get(name).copied().unwrap_or(0));
                self.sets.iter().map(of).sum::<u64>()
            };
            let has = |(name, n): (&String, &u32)| {
                held(name) + u64::from(*n) <= self.in_cluster.get(name).copied().unwrap_or(0).into()
            };
            if !set.of_cluster.iter().all(has) {
                lacks |= id.bit();
            }
        }
        std::mem::replace(&mut self.cluster_lacks, lacks) != lacks
    }

    /// What is left on a node whose attempts hold sets of needs as counted in `held`.
    fn left_of(&self, equipment: &Equipment, held: &BTreeMap<NeedsId, u32>) -> Left {
        let mut left = Left::all_of(equipment);
        let mut sets: Vec<(&Needs, u32)> =
            held.iter().filter_map(|(id, n)| Some((&self.set(*id)?.of_node, *n))).collect();
        // Larger ones first: then they are packed as tightly as the node packs them, or more tightly.
        sets.sort_by_key(|(needs, _)| std::cmp::Reverse(needs.gpu_parts));
        for (needs, n) in sets {
            for _ in 0..n {
                if left.take(needs).is_none() {
                    return Left::default();
                }
            }
        }
        left
    }

    /// Thousandths of slots that attempts on the executor hold beside whole slots.
    fn odd_parts_held(&self, e: &ExecutorState) -> u32 {
        let parts = e.needs_held.iter().filter_map(|(id, n)| Some(self.set(*id)?.needs.odd_cpu_parts() * n));
        parts.fold(0, u32::saturating_add)
    }

    /// The slots that such parts take.
    pub(super) fn slots_in_parts(&self, e: &ExecutorState) -> u32 {
        self.odd_parts_held(e).div_ceil(PARTS)
    }

    /// Writes into `room` what the executor has left. The room's other fields are those of an executor without such
    /// needs.
    pub(super) fn settle_room(&self, executor: ExecutorId, e: &ExecutorState, room: &mut Room) {
        let parts_held = self.odd_parts_held(e);
        let n_slots = parts_held.div_ceil(PARTS);
        let idle = room.slots_idle.min(e.offer.slots);
        // Attempts that need a part of a cpu are not counted among the cpus that are taken.
        room.slots_idle = idle.saturating_sub(n_slots);
        room.moves = room.moves.min(e.offer.slots.saturating_sub(n_slots));
        let part_left = if idle >= n_slots { n_slots * PARTS - parts_held } else { 0 };
        room.has_part = part_left > 0 && !room.rests;
        let left = self.left_of(&e.offer.equipment, &e.needs_held);
        for (id, set) in self.numbered() {
            let odd = set.needs.odd_cpu_parts();
            let n_cpus = set.needs.cpu_parts / PARTS + u32::from(odd > part_left);
            let has_cpus = odd == 0 || n_cpus <= room.slots_idle && !room.rests;
            if !has_cpus || !left.has(&set.of_node) {
                room.lacks |= id.bit();
            }
            let is_too_small = e.offer.slots < set.needs.cpu_parts.div_ceil(PARTS);
            if is_too_small || !e.offer.equipment.holds(&set.of_node) {
                room.never |= id.bit();
            }
        }
        room.lacks |= self.cluster_lacks;
        let Some((kept, node)) = self.kept else { return };
        let Some(claimant) = self.set(kept) else { return };
        for (id, set) in self.numbered().filter(|(id, _)| *id != kept) {
            let of_cluster = set.of_cluster.keys().any(|name| claimant.of_cluster.contains_key(name));
            let of_node = executor == node && Left::compete(&claimant.of_node, &set.of_node);
            if of_cluster || of_node {
                room.lacks |= id.bit();
            }
        }
        if executor == node && self.cluster_lacks & kept.bit() == 0 && left.has(&claimant.of_node) {
            // Slots or memory are what is missing, so nobody else gets any here.
            room.lacks |= !kept.bit();
        }
    }

    /// What a task with these needs asks of the whole cluster and can never get: the name, how much of it, and how much
    /// there is. `None`: nothing.
    fn cluster_lacks_for_ever(&self, needs: NeedsId) -> Option<(&str, u32, u32)> {
        let mut asked =
            self.set(needs)?.of_cluster.iter().map(|(name, n)| (&**name, *n, self.in_cluster[name]));
        asked.find(|(_, n, has)| has < n)
    }

    pub(super) fn can_ever_have(&self, needs: NeedsId) -> bool {
        self.cluster_lacks_for_ever(needs).is_none()
    }

    /// Whether what the whole cluster has left is enough for one more task with these needs.
    pub(super) fn cluster_has(&self, needs: NeedsId) -> bool {
        self.cluster_lacks & needs.bit() == 0
    }

    /// What a task of that size takes of a node.
    pub(super) fn full_size(&self, size: TaskSize) -> Size {
        let of_node = self.set(size.needs).map(|set| &set.of_node);
        Size {
            cpu_parts: match of_node {
                Some(needs) if needs.cpu_parts > 0 => needs.cpu_parts.into(),
                _ => u64::from(size.cpus.max(1)) * u64::from(PARTS),
            },
            memory_bytes: size.memory_bytes,
            gpu_parts: of_node.map_or(0, |needs| needs.gpu_parts),
            resources: of_node.map_or_else(BTreeMap::new, |needs| needs.resources.clone()),
        }
    }

    /// How many more tasks with these needs may run at once for what the whole cluster has left.
    pub(super) fn n_more_in_cluster(&self, needs: NeedsId) -> u64 {
        let Some(set) = self.set(needs) else { return u64::MAX };
        let left = |(name, n): (&String, &u32)| {
            let held =
                |s: &Set| u64::from(s.n_held) * u64::from(s.of_cluster.get(name).copied().unwrap_or(0));
            let held: u64 = self.sets.iter().map(held).sum();
            u64::from(self.in_cluster[name]).saturating_sub(held) / u64::from(*n).max(1)
        };
        set.of_cluster.iter().map(left).min().unwrap_or(u64::MAX)
    }

    /// Whether the executor is kept for tasks with other needs than these.
    pub(super) fn is_kept_from(&self, executor: ExecutorId, needs: NeedsId) -> bool {
        self.kept.is_some_and(|(kept, node)| node == executor && kept != needs)
    }

    /// The slots of the smallest executor that can run a task of that size: its cpus, rounded up.
    pub(super) fn n_slots_for(&self, size: TaskSize) -> u32 {
        let parts = self.set(size.needs).map_or(0, |set| set.needs.cpu_parts);
        size.cpus.max(parts.div_ceil(PARTS)).max(1)
    }

    /// Whether an executor is large enough for a task of that size when it has no other task.
    pub(super) fn is_able(&self, e: &ExecutorState, size: TaskSize) -> bool {
        e.offer.slots >= self.n_slots_for(size)
            && e.offer.memory_bytes >= size.memory_bytes
            && self.set(size.needs).is_none_or(|set| e.offer.equipment.holds(&set.of_node))
    }

    /// The needs of a task in words, after its slots and memory.
    pub(super) fn needs_in_words(&self, id: NeedsId) -> String {
        let Some(needs) = self.get(id) else { return String::new() };
        let mut words = String::new();
        if needs.gpu_parts > 0 {
            words += &format!(" and {} of its gpus", in_parts(needs.gpu_parts.into()));
        }
        for (name, n) in &needs.resources {
            words += &format!(" and {n} of {}", shown(name));
        }
        words
    }

    /// The resources of the whole cluster: name, how many there are, how many tasks hold.
    pub fn cluster_resources(&self) -> Vec<(String, u32, u32)> {
        let held = |name: &String| {
            let of = |s: &Set| s.n_held * s.of_cluster.get(name).copied().unwrap_or(0);
            self.sets.iter().map(of).sum()
        };
        self.in_cluster.iter().map(|(name, n)| (name.clone(), *n, held(name))).collect()
    }
}

impl Schedule {
    /// The number of the set of needs of an array's tasks. `Err`: there are too many different sets.
    pub(super) fn number_needs(&mut self, work: &Workload, array: &TaskArray) -> Result<NeedsId, String> {
        let Some(needs) = array.needs.as_deref().filter(|needs| !needs.is_empty()) else {
            return Ok(NeedsId::NONE);
        };
        if let Some((id, _)) = self.executors.resources.numbered().find(|(_, set)| set.needs == *needs) {
            return Ok(id);
        }
        let set = self.executors.resources.new_set(needs);
        let id = if self.executors.resources.sets.len() + 1 < NeedsId::N_MAX {
            self.executors.resources.sets.push(set);
            NeedsId(self.executors.resources.sets.len() as u8)
        } else {
            let is_live = |run: &RunId| work.runs.get(run).is_some_and(|r| r.ended.is_none());
            let mut used: u64 = 0;
            for a in work.tasks.arrays.iter().filter(|a| is_live(&a.run)) {
                used |= a.needs.bit();
            }
            let free =
                self.executors.resources.numbered().find(|(id, set)| used & id.bit() == 0 && set.n_held == 0);
            let Some((id, _)) = free else {
                return Err(format!(
                    "the tasks of all runs together need more than {} different sets of gpus and resources",
                    NeedsId::N_MAX - 1
                ));
            };
            self.executors.resources.sets[usize::from(id.0) - 1] = set;
            // What was found out of the tasks that had this number.
            self.executors.walltimes.fresh.clear();
            id
        };
        self.executors.resources.settle_cluster();
        self.update_rooms(work);
        Ok(id)
    }

    fn update_rooms(&mut self, work: &Workload) {
        for executor in self.executors.by_id.keys().copied().collect::<Vec<_>>() {
            self.update_room(work, executor);
        }
    }

    /// An attempt on `executor` begins (`true`) or ends to hold its needs. A beginning comes after the executor's load is
    /// changed, because rooms are computed from both.
    pub(super) fn hold(&mut self, work: &Workload, executor: ExecutorId, needs: NeedsId, holds: bool) {
        if needs.is_none() {
            return;
        }
        if let Some(e) = self.executors.by_id.get_mut(&executor) {
            let n = e.needs_held.entry(needs).or_default();
            *n = if holds { *n + 1 } else { n.saturating_sub(1) };
            if *n == 0 {
                e.needs_held.remove(&needs);
            }
        }
        let set = &mut self.executors.resources.sets[usize::from(needs.0) - 1];
        set.n_held = if holds { set.n_held + 1 } else { set.n_held - 1 };
        if !set.of_cluster.is_empty() && self.executors.resources.settle_cluster() {
            self.update_rooms(work);
        } else {
            self.update_room(work, executor);
        }
    }

    /// An attempt ends whose executor is gone, or whose load the caller counts anew.
    pub(super) fn hold_elsewhere(&mut self, work: &Workload, needs: NeedsId) {
        if needs.is_none() {
            return;
        }
        let set = &mut self.executors.resources.sets[usize::from(needs.0) - 1];
        set.n_held -= 1;
        if !set.of_cluster.is_empty() && self.executors.resources.settle_cluster() {
            self.update_rooms(work);
        }
    }

    /// A task with needs is given out: counts whom it passes.
    pub(super) fn note_passed(&mut self, work: &Workload, key: QueueKey, needs: NeedsId) {
        if needs.is_none() {
            return;
        }
        let given = usize::from(needs.0) - 1;
        self.executors.resources.sets[given].n_passed = 0;
        let mut changed = self.executors.resources.kept.take_if(|(id, _)| *id == needs).is_some();
        for i in 0..self.executors.resources.sets.len() {
            let (set, other) = (&self.executors.resources.sets[i], &self.executors.resources.sets[given]);
            if i == given || !Left::compete(&set.needs, &other.needs) {
                continue;
            }
            let id = NeedsId(i as u8 + 1);
            let Some(first) = self.ready.queue.first_with(id).filter(|first| *first < key) else { continue };
            self.executors.resources.sets[i].n_passed += 1;
            if self.executors.resources.sets[i].n_passed >= PASSED_MAX
                && self.executors.resources.kept.is_none()
            {
                self.executors.resources.kept =
                    self.executors.node_to_keep(work.tasks.size_of(first.task)).map(|node| (id, node));
                changed |= self.executors.resources.kept.is_some();
            }
        }
        if changed {
            self.update_rooms(work);
        }
    }

    /// Gives up keeping a node that nobody needs any more, or that is gone.
    pub(super) fn settle_kept(&mut self, work: &Workload) {
        let Some((id, node)) = self.executors.resources.kept else { return };
        let is_there = self.executors.by_id.get(&node).is_some_and(ExecutorState::is_connected);
        // Whoever needs it may be a user whose turn it is not now.
        let is_needed = || self.run_times.ready_sizes().iter().any(|size| size.needs == id);
        if !is_there || !is_needed() {
            self.executors.resources.kept = None;
            self.update_rooms(work);
        }
    }

    /// Panics when an invariant of the header is broken.
    pub(super) fn check_resources(&self) {
        for (id, set) in self.executors.resources.numbered() {
            let held = self.attempts.reserved.values().filter(|r| r.needs == id).count();
            assert_eq!(held, set.n_held as usize, "{id:?}");
        }
        for (executor, e) in &self.executors.by_id {
            let mut held: BTreeMap<NeedsId, u32> = BTreeMap::new();
            for r in e.assigned.keys().map(|task| &self.attempts.reserved[task]) {
                if !r.needs.is_none() {
                    *held.entry(r.needs).or_default() += 1;
                }
            }
            assert_eq!(e.needs_held, held, "{executor:?}");
        }
        for (name, n, held) in self.executors.resources.cluster_resources() {
            assert!(held <= n, "{held} of {n} {name} are held");
        }
    }
}

impl Executors {
    /// The node that is large enough for a task of that size and on which fewest attempts hold needs.
    fn node_to_keep(&self, size: TaskSize) -> Option<ExecutorId> {
        let able = self.by_id.iter().filter(|(_, e)| e.is_connected() && self.resources.is_able(e, size));
        able.min_by_key(|(id, e)| (e.needs_held.values().sum::<u32>(), **id)).map(|(id, _)| *id)
    }

    /// What a task of that size lacks beside slots and memory wherever it is put, in words; `None`: nothing.
    pub(super) fn why_unequipped(&self, id: NeedsId) -> Option<String> {
        let set = self.resources.set(id)?;
        if let Some((name, n, has)) = self.resources.cluster_lacks_for_ever(id) {
            return Some(format!("the task needs {n} of {}; the whole cluster has {has}", shown(name)));
        }
        let offers = || self.by_id.values().filter(|e| e.moving_to.is_none()).map(|e| &e.offer);
        if offers().next().is_none() || offers().any(|offer| offer.equipment.holds(&set.of_node)) {
            return None;
        }
        let gpus = set.of_node.gpu_parts;
        let largest = offers().max_by_key(|offer| offer.equipment.gpus)?;
        if gpus > largest.equipment.gpus * PARTS {
            let (needs, name) = (in_parts(gpus.into()), shown(&largest.name));
            let needs = if gpus == PARTS { "1 gpu".into() } else { format!("{needs} gpus") };
            return Some(match largest.equipment.gpus {
                0 => format!("the task needs {needs}; no node has a gpu"),
                has => format!("the task needs {needs}; the largest node, {name}, has {has}"),
            });
        }
        for (name, n) in &set.of_node.resources {
            let largest = offers().max_by_key(|offer| offer.equipment.amount(name))?;
            let (has, node, name) = (largest.equipment.amount(name), shown(&largest.name), shown(name));
            if has == 0 {
                return Some(format!("the task needs {n} of {name}; neither a node nor the cluster has it"));
            }
            if has < *n {
                return Some(format!("the task needs {n} of {name}; the largest node, {node}, has {has}"));
            }
        }
        Some("no node has all gpus and resources that the task needs together".into())
    }
}

impl Dispatcher {
    /// What each executor, by id, and what the whole cluster holds: gpus in thousandths, and named resources.
    pub fn resources_held(&self, executor: ExecutorId) -> Needs {
        let mut sum = Needs::default();
        let held = self.schedule.executors.by_id.get(&executor).map(|e| &e.needs_held);
        for (id, n) in held.into_iter().flatten() {
            if let Some(set) = self.schedule.executors.resources.set(*id) {
                sum.gpu_parts += set.of_node.gpu_parts * n;
                for (name, amount) in &set.of_node.resources {
                    *sum.resources.entry(name.clone()).or_default() += amount * n;
                }
            }
        }
        sum
    }

    /// The resources of the whole cluster: name, how many there are, how many tasks hold.
    pub fn cluster_resources(&self) -> Vec<(String, u32, u32)> {
        self.schedule.executors.resources.cluster_resources()
    }
}
