//! Reruns: tasks that run again where their files are needed, in place of sending the files (`Zhang12` §V-F.5, which calls it
//! task replication; here a replica is always the copy of a file).
//!
//! For a program that unpacks or generates much data out of little, running it again is quicker than sending
//! its output. When a set of files is to be multicast, this module predicts how long the files' maker takes
//! at the same nodes. If that is clearly faster than every multicast tree (by the rule of
//! [`crate::collective::choose`]) over links that have been measured, the task is given to those nodes as
//! further attempts ([`Action::RerunTask`]). The task itself stays done: no task waits for these attempts,
//! and they are neither counted nor journalled. If they fail, files are fetched as usual.
//!
//! The files that a rerun makes become replicas only if their bytes are the same. Otherwise they are dropped,
//! and no task of that stage is rerun any more. So a program need not be deterministic, but then it gains
//! nothing here.
//!
//! Invariants: an executor's load includes its reruns; a rerun is cancelled when no task reads the files any
//! more, or when their maker runs again because its files were lost; reruns have attempt numbers of their
//! own.
//!
//! Not here: tasks that write home, that submit tasks, or whose own inputs are about to be dropped. They are not rerun. A done
//! task that runs again because its files were lost is revived (`revivals`), which is no rerun.

use super::{ArrayState, Dispatcher, End, Intermediates, RunTimes, Schedule, Workload};
use crate::collective::cost::MulticastCase;
use crate::collective::{Choice, CollectiveId, CollectiveKind, CollectiveRecord, RerunCase, Way};
use crate::event::{Action, Assignment, AttemptReport, Why};
use crate::placement::Stage;
use eyas_terms::{AttemptNo, ExecutorId, ObjectId, Outcome, TaskId, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The factor by which a rerun is assumed to take longer than the task took: another task may have had use
/// for its slot.
const RUN_FACTOR: f64 = 1.25;
/// What a program made is read once more to compute its digest; a file that is sent is hashed on its way.
const DIGEST_S_PER_BYTE: f64 = 1e-9;

/// The reruns under way, and what was learnt from earlier reruns.
#[derive(Default)]
pub(super) struct Reruns {
    live: BTreeMap<(TaskId, AttemptNo), Rerun>,
    collectives: BTreeMap<CollectiveId, CollectiveRecord>,
    /// How many reruns each task has been given so far.
    n_given: FxHashMap<TaskId, u32>,
    /// Stages in which a rerun failed or made other bytes.
    unsteady: BTreeSet<u32>,
    /// Actions that the driver has not been given yet.
    pub pending: Vec<Action>,
}

pub(super) struct Rerun {
    executor: ExecutorId,
    cpus: u32,
    memory_bytes: u64,
    outputs: Vec<ObjectId>,
    collective: CollectiveId,
    cancelling: bool,
}

/// The first attempt number of a rerun; revivals count in larger steps.
const FIRST_ATTEMPT: u32 = 1 << 15;

impl Reruns {
    /// Whether this attempt is a rerun on this executor.
    pub(super) fn has(&self, executor: ExecutorId, task: TaskId, attempt: AttemptNo) -> bool {
        self.live.get(&(task, attempt)).is_some_and(|rerun| rerun.executor == executor)
    }

    pub(super) fn count_end(&mut self, now: Timestamp, r: &Rerun, n_arrived: u32, bytes: u64) {
        let record = self.collectives.get_mut(&r.collective).expect("its rerun was live");
        record.n_arrived += n_arrived;
        record.arrived_bytes += bytes;
        record.ended = now;
        if self.live.values().all(|other| other.collective != r.collective) {
            let record = self.collectives.remove(&r.collective).expect("it was just changed");
            self.pending.push(Action::EndCollective { record });
        }
    }

    /// The executor is gone, or came back without knowing its reruns.
    pub(super) fn forget_on(&mut self, now: Timestamp, executor: ExecutorId) {
        let of_it = |(_, r): &(_, &Rerun)| r.executor == executor;
        let keys: Vec<_> = self.live.iter().filter(of_it).map(|(key, _)| *key).collect();
        for key in keys {
            let r = self.live.remove(&key).expect("it was just seen");
            self.count_end(now, &r, 0, 0);
        }
    }

    /// The maker of the files is revived, or nobody reads the files any more.
    pub(super) fn cancel(&mut self, task: TaskId) {
        let Reruns { live, pending, .. } = self;
        for ((_, attempt), r) in live.range_mut(attempts_of(task)) {
            if !std::mem::replace(&mut r.cancelling, true) {
                pending.push(Action::CancelAttempt { executor: r.executor, task, attempt: *attempt });
            }
        }
    }

    pub(super) fn of_task(&self, task: TaskId) -> impl Iterator<Item = &Rerun> {
        self.live.range(attempts_of(task)).map(|(_, r)| r)
    }

    /// Cpus and memory of an executor that reruns take; for the check of invariants.
    pub(super) fn load_on(&self, executor: ExecutorId) -> (u32, u64) {
        let of_it = self.live.values().filter(|r| r.executor == executor);
        of_it.fold((0, 0), |(cpus, memory), r| (cpus + r.cpus, memory + r.memory_bytes))
    }

    /// Whether a rerun of the task is under way on that executor.
    pub(super) fn is_at(&self, task: TaskId, executor: ExecutorId) -> bool {
        self.of_task(task).any(|r| r.executor == executor && !r.cancelling)
    }

    /// Whether a further attempt of `task` makes the same files again, and does nothing else, as far as is known.
    pub(super) fn may_rerun(&self, work: &mut Workload, intermediates: &Intermediates, task: TaskId) -> bool {
        let (at, i) = work.tasks.locate(task);
        let run = work.tasks.run_of(task);
        let ArrayState { array, stage, .. } = &work.tasks.arrays[at.0 as usize];
        let (array, stage) = (array.clone(), *stage);
        !array.template.dynamic
            && array.needs.is_none()
            && work.outputs_of(run, &array, i).iter().all(|object| intermediates.has(*object))
            && !self.unsteady.contains(&stage)
    }

    /// The time until reruns of `task` at `targets` have made the task's files there. `None`: the task cannot
    /// be rerun there.
    pub(super) fn rerun_case(
        &self,
        work: &mut Workload,
        run_times: &RunTimes,
        intermediates: &Intermediates,
        task: TaskId,
        targets: &[ExecutorId],
    ) -> Option<RerunCase> {
        let (at, i) = work.tasks.locate(task);
        let run = work.tasks.run_of(task);
        let ArrayState { array, stage, .. } = &work.tasks.arrays[at.0 as usize];
        let (array, stage) = (array.clone(), *stage);
        let outputs = work.outputs_of(run, &array, i);
        if !self.may_rerun(work, intermediates, task) || self.of_task(task).next().is_some() {
            return None;
        }
        let run_s = run_times.expected_ns(stage)? as f64 / 1e9;
        let (mut n_missing, mut bytes, mut largest_bytes) = (0, 0, 0);
        for object in work.inputs_of(run, &array, i) {
            if intermediates.files.get(&object).is_some_and(|file| file.n_readers < 2) {
                return None;
            }
            if targets.iter().all(|e| work.catalog.holds(*e, object)) {
                continue;
            }
            if work.catalog.n_holders(object) == 0 {
                return None; // all of them would read it from home
            }
            n_missing += 1;
            let size_bytes = work.catalog.size_bytes(object)?;
            bytes += size_bytes;
            largest_bytes = size_bytes.max(largest_bytes);
        }
        let n_receivers = targets.len() as u32;
        let case = MulticastCase { n_receivers, n_holders: 1, n_objects: n_missing, bytes, largest_bytes };
        let size_of = |o: &ObjectId| work.catalog.size_bytes(*o).unwrap_or(0);
        let made_bytes: u64 = outputs.iter().map(size_of).sum();
        Some(RerunCase {
            run_s: run_s * RUN_FACTOR,
            inputs: (n_missing > 0).then_some(case),
            digest_s: made_bytes as f64 * DIGEST_S_PER_BYTE,
        })
    }

    /// The task's run is forgotten. Until then its tasks may be rerun for readers at other dispatchers, and each rerun has another number.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.n_given.remove(&task);
    }
}

impl Schedule {
    /// Those of `targets` that have room to begin `task` now.
    pub(super) fn with_room(&self, work: &Workload, task: TaskId, targets: &[ExecutorId]) -> Vec<ExecutorId> {
        let size = work.tasks.size_of(task);
        let (array, _) = work.tasks.locate(task);
        let stage = work.tasks.arrays[array.0 as usize].stage;
        let lasts = self.lasts_of(task, stage, size);
        let fits = |e: &&ExecutorId| {
            let room = self.ready.queue.room(**e);
            room.is_some_and(|room| room.fits(Stage::Idle, size, lasts))
        };
        targets.iter().filter(fits).copied().collect()
    }
}

impl Dispatcher {
    /// Those of `targets` that have room to begin `task` now, and need not wait until one of its inputs is read for them.
    pub(super) fn able_to_rerun(&mut self, task: TaskId, targets: &[ExecutorId]) -> Vec<ExecutorId> {
        let (at, i) = self.work.tasks.locate(task);
        let run = self.work.tasks.run_of(task);
        let array = self.work.tasks.arrays[at.0 as usize].array.clone();
        let inputs = self.work.inputs_of(run, &array, i);
        let (work, executors) = (&self.work, &self.schedule.executors);
        let mut able = self.schedule.with_room(work, task, targets);
        able.retain(|e| self.residents.unread_inputs(work, executors, *e, run, &inputs).is_empty());
        able
    }

    /// Gives reruns of `task`, which is done, to `targets`.
    pub(super) fn rerun_task(
        &mut self,
        now: Timestamp,
        task: TaskId,
        targets: &[ExecutorId],
        choice: Option<Choice>,
    ) {
        let (at, i) = self.work.tasks.locate(task);
        let run = self.work.tasks.run_of(task);
        let array = self.work.tasks.arrays[at.0 as usize].array.clone();
        let (inputs, outputs) = (self.work.inputs_of(run, &array, i), self.work.outputs_of(run, &array, i));
        let (cpus, memory_bytes) = (array.template.cpus, array.template.memory_bytes.unwrap_or(0));
        let collective = self.moves.collectives.next_id();
        let record = CollectiveRecord {
            collective,
            kind: CollectiveKind::Multicast,
            way: Way::TaskRerun,
            began: now,
            ready: Some(now),
            ended: now,
            choice,
            n_receivers: targets.len() as u32,
            n_wanted: (targets.len() * outputs.len()) as u32,
            n_arrived: 0,
            arrived_bytes: 0,
            n_moved: 0,
        };
        self.reruns.collectives.insert(collective, record);
        for &executor in targets {
            let n = self.reruns.n_given.entry(task).or_default();
            let attempt = AttemptNo(FIRST_ATTEMPT + *n % FIRST_ATTEMPT);
            *n += 1;
            let assigned =
                inputs.iter().map(|object| self.assigned_input(now, executor, run, *object, None)).collect();
            let why = Why {
                policy: self.config.placement.clone().into(),
                n_hits: inputs.iter().filter(|o| self.work.catalog.holds(executor, **o)).count() as u32,
                n_inputs: inputs.len() as u32,
                n_slots_active: self.schedule.ready.queue.n_slots_active() as u32,
                n_slots: self.schedule.ready.queue.n_slots_total() as u32,
                n_queued: self.schedule.ready.n_tasks,
                ..Why::default()
            };
            let assignment = Assignment {
                task,
                attempt,
                run,
                cpus,
                inputs: assigned,
                outputs: outputs.clone(),
                staying: (0..outputs.len() as u32).collect(),
                private_inputs: false,
                repeated: false,
                alone: false,
                needs: None,
                why,
            };
            let rerun = Rerun {
                executor,
                cpus,
                memory_bytes,
                outputs: outputs.clone(),
                collective,
                cancelling: false,
            };
            self.reruns.live.insert((task, attempt), rerun);
            self.schedule.change_load(&self.work, executor, |e| {
                e.cpus_assigned += cpus;
                e.memory_assigned += memory_bytes;
            });
            self.reruns.pending.push(Action::RerunTask { executor, assignment: Box::new(assignment) });
        }
    }

    /// An attempt that no task waits for has ended. If it was a rerun, the files that it made become replicas
    /// or are dropped. `false`: it was no rerun, but a late report of an attempt that was given up.
    pub(super) fn on_rerun_ended(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        report: &AttemptReport,
        out: &mut Vec<Action>,
    ) -> bool {
        let key = (report.task, report.attempt);
        if self.reruns.live.get(&key).is_none_or(|r| r.executor != executor) {
            return false;
        }
        let r = self.reruns.live.remove(&key).expect("it was just seen");
        self.schedule.change_load(&self.work, executor, |e| {
            e.last_ended = now;
            e.cpus_assigned -= r.cpus;
            e.memory_assigned -= r.memory_bytes;
        });
        let (mut n_arrived, mut bytes) = (0, 0);
        let mut useless = vec![];
        // A rerun whose files arrived from elsewhere in the meantime reports that it was cancelled.
        // Weather says nothing of the task.
        let mut as_hoped = match &report.outcome {
            Outcome::Done | Outcome::Cancelled => true,
            Outcome::Failed(failure) => failure.kind.is_weather() || r.cancelling,
        };
        if report.outcome == Outcome::Done {
            for made in &report.outputs {
                let Some(&object) = r.outputs.get(made.output as usize) else { continue };
                let is_wanted = self.work.tasks.end_of(report.task) == End::Done
                    && self.intermediates.files.get(&object).is_some_and(|file| !file.dropped);
                let is_same = self.work.catalog.digest(object) == Some(made.digest);
                as_hoped &= is_same || !is_wanted;
                if is_wanted && is_same {
                    self.add_replica(executor, object);
                    n_arrived += 1;
                    bytes += made.size_bytes;
                } else {
                    useless.push(object);
                }
            }
        }
        if !as_hoped {
            let (array, _) = self.work.tasks.locate(report.task);
            self.reruns.unsteady.insert(self.work.tasks.arrays[array.0 as usize].stage);
        }
        if !useless.is_empty() {
            out.push(Action::DropReplicas { executor, objects: useless });
        }
        r.outputs.iter().for_each(|object| self.reach.stir(*object));
        self.reruns.count_end(now, &r, n_arrived, bytes);
        true
    }
}

fn attempts_of(task: TaskId) -> std::ops::RangeInclusive<(TaskId, AttemptNo)> {
    (task, AttemptNo(0))..=(task, AttemptNo(u32::MAX))
}
