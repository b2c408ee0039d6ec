//! Checks of the promises while the world lives.

use super::dispatchers::Member;
use super::{STARVES_NS, World};
use crate::happening::{AttemptId, Ev, NodeWork};
use crate::node::Stored;
use crate::options::Options;
use crate::process::{Process, ToNode};
use eyas_core::cache::ReplicaState;
use eyas_core::dispatcher::TaskState;
use eyas_core::event::*;
use eyas_terms::needs::{Equipment, PARTS};
use eyas_terms::*;
use eyas_wire::message::ToExecutor;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

impl World {
    /// Checks that a failure has a cause in this world.
    pub(super) fn check_failure(&self, process: &Process, task: TaskId, failure: &Failure) {
        let o = &self.o;
        let bad_transfers = o.transfer_fails + o.n_home_outages > 0;
        let run_id = process.core().work().run_of(task);
        let run = process.core().work().find_run(run_id).expect("its run is known");
        let is_caused = match failure.kind {
            FailureKind::ExitCode(_) => o.task_fails > 0,
            FailureKind::InputUnavailable => {
                let any_failed = run.ends.n_failed + run.ends.n_cancelled > 1 || self.any_failed(run_id);
                any_failed || bad_transfers || o.n_home_changes > 0
            }
            FailureKind::InputChanged => o.n_home_changes > 0 || o.outputs_differ,
            FailureKind::StageOut => bad_transfers,
            FailureKind::Node => bad_transfers || self.is_disk_tight(),
            FailureKind::ExecutorLost | FailureKind::InputLost => {
                // That nodes do not reach each other fails no task, where each node is large enough for each task.
                let reached = Options { islands: None, ..o.clone() };
                let fit_everywhere = o.task_is_wide + o.task_has_memory == 0 && !o.resources;
                !reached.loses_nothing() || self.is_tight() || o.islands.is_some() && !fit_everywhere
            }
            FailureKind::CutOff => o.walltime_ns_max > 0,
            FailureKind::NeverFits if o.provided && !o.resources => {
                self.is_too_large_for_provided(process, task)
            }
            FailureKind::NeverFits => {
                o.task_is_wide + o.task_has_memory > 0 || self.is_tight() || o.resources
            }
            // Damage is weather, like many other things, and only the last failure is named.
            FailureKind::InputModified => o.task_writes_input + o.n_corruptions > 0 || o.warm,
            // When a disk refuses bytes, the cache is smaller for a while.
            FailureKind::CacheFull => self.is_tight() || o.transfer_fails > 0,
            FailureKind::CacheTooSmall => self.is_tight(),
            FailureKind::DiskTooSmall => self.is_disk_tight(),
            // In the end the task is tried with the disk to itself.
            FailureKind::DiskShared => false,
            _ => false,
        };
        assert!(is_caused, "promise 4: {task:?} fails without a cause in this world: {failure:?}");
    }

    /// Whether a task of the run has ended without being done, at any of several dispatchers.
    fn any_failed(&self, run: RunId) -> bool {
        let several = self.members.iter().filter(|_| self.members.len() > 1);
        several.flat_map(|member| member.ends_of(run)).any(|outcome| *outcome != Outcome::Done)
    }

    /// Whether some cache may be too small for a task, or for the files that have to stay.
    pub(super) fn is_tight(&self) -> bool {
        self.o.cache_bytes < 1_000_000 * self.o.scale() || self.o.disk_bytes > 0 || self.has_made_much()
    }

    /// Whether the files that stay on the nodes might together fill most of some cache.
    pub(super) fn has_made_much(&self) -> bool {
        let largest = |digests: &BTreeSet<Digest>| digests.iter().map(|d| self.output_bytes(*d)).max();
        let made_bytes: u64 = self.account.made.values().filter_map(largest).sum();
        self.nodes.iter().any(|node| made_bytes >= node.config.cache.budget_bytes / 4 * 3)
    }

    /// Whether some disk may have no room for the inputs of one task, or for those that are read for one
    /// attempt alone.
    pub(super) fn is_disk_tight(&self) -> bool {
        // Each task alone fits there, apart from files that stay on the nodes.
        let fits_alone = self.o.scratch_bytes_max > 0 && self.o.n_layers_max == 0 && !self.o.small;
        let is_small = self.o.disk_bytes < 100 * self.o.object_bytes_max || self.o.n_disk_fills > 0;
        self.o.disk_bytes > 0 && (is_small || self.o.scratch_bytes_max > 0) && !fits_alone
    }

    /// Files of ended runs that are still on nodes although no task will read them.
    pub(super) fn files_left(&self) -> Option<String> {
        let processes = || self.members.iter().filter_map(|member| member.process.as_ref());
        let is_left = |location: CatalogLocation<'_>| {
            let is_kept =
                |process: &Process, run| process.core().work().find_run(run).is_some_and(|r| r.keep);
            let kept = |run: RunId| processes().any(|process| is_kept(process, run));
            matches!(location, CatalogLocation::Run(file) if !file.run().is_some_and(kept))
        };
        // Executors that change sides take files along, and the next dispatcher keeps them until space is needed.
        let are_all_dropped = self.members.len() == 1;
        let mut text = String::new();
        for (m, member) in self.members.iter().enumerate() {
            let Some(process) = &member.process else { continue };
            let catalog = process.core().work().catalog();
            for object in (0..catalog.n_objects() as u32).map(ObjectId).filter(|o| catalog.is_known(*o)) {
                if are_all_dropped && is_left(catalog.location(object)) && catalog.n_holders(object) > 0 {
                    let holders: Vec<ExecutorId> = catalog.holders_of(object).collect();
                    let location = catalog.location(object);
                    let _ = writeln!(text, "  {location} in the catalog of dispatcher {m}, on {holders:?}");
                }
            }
            for name in process.core().names_of_forgotten_runs() {
                let _ =
                    writeln!(text, "  the name {name} of a forgotten run in the catalog of dispatcher {m}");
            }
        }
        // A cache that outlived its executor holds bytes without names; they are removed when space is
        // needed.
        let all = self.o.loses_nothing() && are_all_dropped;
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            for (object, _) in node.session.book().held() {
                let location = node.session.book().location(object);
                if is_left(CatalogLocation::of(location))
                    && (all || node.session.core().cache().is_kept(object))
                {
                    let _ = writeln!(text, "  {location} on node {n}");
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// Checks that the file of a done task is not written again by another attempt, wherever that attempt was
    /// meanwhile.
    pub(super) fn check_landing(&self, n: usize, id: AttemptId, location: &str) {
        let giver = &self.members[self.nodes[n].giver_of[&id]];
        if self.o.n_stops == 0 || !giver.promised.contains(&id.0) {
            return;
        }
        let by = giver.ended_by.get(&id.0);
        assert!(
            by.is_none_or(|by| *by == (n, id.1)),
            "promise 2: {location} is written by {id:?} on node {n} after {by:?} had done the task"
        );
    }

    pub(super) fn check_eviction(&self, n: usize, object: ObjectId, ended: &[AttemptId]) {
        let node = &self.nodes[n];
        for (id, context) in node.contexts.iter().filter(|(id, c)| c.runs && !ended.contains(id)) {
            for (i, input) in context.assignment.inputs.iter().enumerate() {
                let is_private = node.private.contains_key(&(*id, i as u32)) || context.seen[i].2;
                assert!(
                    input.object != object || is_private,
                    "promise 3: {object:?} is evicted on node {n}, and {id:?} runs with it"
                );
            }
        }
    }

    /// Checks that disk and book agree.
    pub(super) fn check_store(&self, n: usize) {
        let node = &self.nodes[n];
        let held: BTreeMap<ObjectId, Fetched> = node.session.core().held().into_iter().collect();
        for (object, state, size_bytes) in node.session.core().cache().iter() {
            if state == ReplicaState::Ready {
                let stored = node.stored(object);
                let expect = Some(Stored { digest: held[&object].digest, size_bytes });
                assert_eq!(stored, expect, "node {n}: {object:?} lies on disk as the cache says");
            }
        }
        let in_book = node.session.book().held();
        for (object, _) in &in_book {
            assert!(
                node.session.core().cache().is_ready(*object),
                "node {n}: {object:?} lies on disk and is in no book"
            );
        }
        // The event about bytes that have just been stored may be on its way.
        let mut of_objects: BTreeSet<Digest> = in_book.into_iter().map(|(_, digest)| digest).collect();
        of_objects.extend(self.calendar.to_come().filter_map(|ev| match ev {
            Ev::Done { n: of, epoch, work: NodeWork::Word { digest, .. } } => {
                ((*of, *epoch) == (n, node.epoch)).then_some(*digest)
            }
            _ => None,
        }));
        let left = node.files.keys().find(|digest| !of_objects.contains(digest));
        assert_eq!(left, None, "node {n}: bytes lie on disk that no object has");
    }

    pub(super) fn check_reasons(&self, m: usize) {
        let Some(process) = &self.members[m].process else { return };
        for task in process.core().work().tasks() {
            match process.core().task_state(task) {
                TaskState::Ready { reason: None } => panic!("promise 4: {task:?} waits without a reason"),
                TaskState::Waiting { n_missing: 0 } => panic!("promise 4: {task:?} waits for nothing"),
                _ => {}
            }
        }
    }

    /// A program starts on node `n` with these gpus: checks that nothing is used by more programs than it is for, on
    /// the node and in the whole cluster.
    pub(super) fn check_resources(&mut self, n: usize, id: AttemptId, gpus: Vec<u32>) {
        if !self.o.resources {
            return;
        }
        self.nodes[n].contexts.get_mut(&id).expect("it starts").gpus = gpus;
        let node = &self.nodes[n];
        let running = || node.contexts.values().filter(|c| c.runs);
        let needs = || running().filter_map(|c| Some((c.assignment.needs.as_deref()?, c)));
        for (needs, context) in needs() {
            let n_gpus = needs.gpu_parts.div_ceil(PARTS) as usize;
            assert_eq!(context.gpus.len(), n_gpus, "{id:?} has the gpus that it needs");
        }
        for gpu in 0..node.config.equipment.gpus {
            let here = needs().filter(|(_, c)| c.gpus.contains(&gpu));
            let parts: u32 = here.map(|(needs, _)| needs.gpu_parts.min(PARTS)).sum();
            assert!(parts <= PARTS, "gpu {gpu} of node {n} is used {parts} thousandths");
        }
        assert!(running().flat_map(|c| &c.gpus).all(|gpu| *gpu < node.config.equipment.gpus));
        for (name, has) in &node.config.equipment.resources {
            let held: u32 = needs().filter_map(|(needs, _)| needs.resources.get(name)).sum();
            assert!(held <= *has, "{held} of {has} {name} of node {n} are used");
        }
        // Who was given up while it could not be reached may run on for a moment.
        let giver = self.nodes[n].giver_of[&id];
        let Member { process: Some(process), config, .. } = &self.members[giver] else { return };
        if self.o.n_link_cuts + self.o.n_dispatcher_kills + self.o.n_stops > 0 {
            return;
        }
        // Each dispatcher has these for its own tasks.
        for (name, has) in &config.resources {
            // Programs end with their executor.
            let nodes = self.nodes.iter().filter(|node| node.is_up);
            let tasks = nodes
                .flat_map(|node| node.contexts.iter().filter(|(id, c)| c.runs && node.giver_of[id] == giver));
            let needs = tasks.filter_map(|((task, _), _)| process.core().work().needs_of(*task));
            let held: u32 = needs.filter_map(|needs| needs.resources.get(name)).sum();
            assert!(held <= *has, "{held} of {has} {name} of the cluster are used");
        }
    }

    /// Checks that a ready task starts if a node has been idle and large enough for it for a while. Some
    /// policies keep a task for the node that has its files: such tasks may wait as long as that node, or any
    /// other that is large enough, has work.
    pub(super) fn check_starving(&mut self, m: usize) {
        let Member { process: Some(process), config, ready_since, idle_since, .. } = &self.members[m] else {
            return;
        };
        let core = process.core();
        let now = self.calendar.now;
        let mut idle: BTreeMap<ExecutorId, Timestamp> = BTreeMap::new();
        let mut large: Vec<(ExecutorId, u32, u64)> = vec![];
        let mut equipped: BTreeMap<ExecutorId, Equipment> = BTreeMap::new();
        let in_cluster = core.cluster_resources();
        for (executor, offer, _, state) in core.executors() {
            // A node with an end may have too little time. That one with time enough gets the task is checked event by event, by
            // `tests/walltimes.rs`; after the faults no node has an end.
            if state != NodeState::Connected || offer.walltime.is_some() {
                continue;
            }
            large.push((executor, offer.slots, offer.memory_bytes));
            equipped.insert(executor, offer.equipment.clone());
            if core.is_idle(executor) {
                idle.insert(executor, idle_since.get(&executor).copied().unwrap_or(now));
            }
        }
        let any_will_do =
            matches!(config.placement.as_str(), "affinity" | "first-available" | "max-compute-util");
        let mut ready = BTreeMap::new();
        for task in core.work().tasks() {
            let TaskState::Ready { reason: Some(reason) } = core.task_state(task) else { continue };
            // A task that the policy does not look at waits for the tasks before it.
            if reason.contains("before it in the queue") || reason.contains("just restarted") {
                continue;
            }
            let since = ready_since.get(&task).copied().unwrap_or(now);
            ready.insert(task, since);
            let spec = core.work().task_spec(task);
            // What the whole cluster has may be in use elsewhere.
            let needs = core.work().needs_of(task);
            let is_shared = |name: &String| in_cluster.iter().any(|(shared, ..)| shared == name);
            if needs.is_some_and(|needs| needs.resources.keys().any(is_shared)) {
                continue;
            }
            let fits = |(executor, slots, memory): &&(ExecutorId, u32, u64)| {
                *slots >= spec.cpus
                    && *memory >= spec.memory_bytes.unwrap_or(0)
                    && needs.is_none_or(|needs| equipped[executor].holds(needs))
            };
            let waits =
                |(executor, ..): &(ExecutorId, u32, u64)| idle.get(executor).map(|at| (*at).max(since));
            let of_each: Vec<Option<Timestamp>> = large.iter().filter(fits).map(waits).collect();
            let room_since = match any_will_do {
                true => of_each.iter().flatten().min().copied(),
                false if of_each.iter().all(Option::is_some) => of_each.iter().flatten().max().copied(),
                false => None,
            };
            if let Some(at) = room_since {
                assert!(
                    !reason.starts_with("no executor has") || reason.contains(" kept for "),
                    "promise 4: {task:?} is said to wait since `{reason}`, and a node is idle that fits"
                );
                assert!(
                    now.since_ns(at) < STARVES_NS,
                    "promise 4: {task:?} does not start, and a node that fits has been idle since {at:?}: {reason}"
                );
            }
        }
        self.members[m].ready_since = ready;
        self.members[m].idle_since = idle;
    }

    /// A dispatcher sends this to a node: a done task is not given out again, unless for its readers.
    pub(super) fn check_message(&self, m: usize, n: usize, message: &ToNode) {
        if let ToNode::Says(said) = message
            && let ToExecutor::Assign(assign) = &**said
        {
            let task = assign.assignment.task;
            let is_done =
                self.members[m].promised.contains(&task) && !self.o.reruns && self.o.islands.is_none();
            assert!(!is_done, "promise 1: {task:?} of dispatcher {m} is done, and node {n} gets it");
        }
    }
}
