//! Runs that are forgotten: their tasks, and the names of files that no other run has named since.
//!
//! A dispatcher that runs for months remembers its last runs. [`KeepRuns`] says how many, or for how long;
//! users may also name runs to forget. A run can be forgotten when it has ended and no executor is still
//! asked to remove what the run's lost attempts may have left at home ([`Dispatcher::why_kept`]).
//!
//! In: the time ([`Event::Ticked`]), and the journal's confirmation that a run is forgotten
//! ([`Event::RunForgotten`]), live or read back after a restart. Out: [`Action::ForgetRun`] for each run
//! whose time has come, and [`Action::DropReplicas`] for cached files whose names are forgotten.
//!
//! A file's name is forgotten with the latest run that named it, but not while an earlier run goes on: tasks
//! of that run may have named the file, too, and may be about to read it. Such names are *stale*; they go
//! when that run has ended. A run in parts has ended when all its parts have: until then a task of an ended part
//! may run again for another part's reader.
//!
//! Numbers of tasks and objects are never given again. Numbers of arrays are known only inside the
//! dispatcher, so the arrays that stay are renumbered without gaps.
//!
//! In a group of dispatchers the first member decides. It forgets a run in parts when all parts have ended
//! ([`Event::AllPartsEnded`]); the others forget their parts because it did. By then no task of any part is
//! needed any more: each has ended once, and a task that runs again serves only tasks of the same run.
//!
//! Not here: the journal's records of the run and how members ask each other (`eyas_session`), and the run's
//! lines in the event log.

use super::{Dispatcher, DispatcherConfig, Exchange, Leftovers, Ready, RunState, Workload, submissions};
use crate::collective::CollectiveEvent;
use crate::event::Action;
use crate::group::PartEnd;
use eyas_terms::location::CatalogLocation;
use eyas_terms::{ArrayId, ExecutorId, MemberId, ObjectId, RunId, TaskId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Which ended runs are kept. Without a limit all runs are kept.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct KeepRuns {
    /// Keep this many of the runs that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_runs: Option<u32>,
    /// Keep runs that ended no longer ago than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<u64>,
}

#[derive(Default)]
pub(super) struct Forgotten {
    /// Runs for which the journal is recording that they are forgotten.
    being_recorded: BTreeSet<RunId>,
    /// Objects that a forgotten run named, and that may be forgotten when no run needs them.
    stale: BTreeSet<ObjectId>,
    /// The largest number of a run that this process has forgotten.
    newest: Option<RunId>,
}

impl Forgotten {
    /// Perhaps no run that is known has named the object.
    pub(super) fn may_be_stale(&mut self, object: ObjectId) {
        self.stale.insert(object);
    }

    /// Whether `run` is forgotten, as far as this process can know: it may have had that from the journal.
    pub(super) fn is_forgotten(&self, work: &Workload, run: RunId) -> bool {
        self.newest.is_some_and(|newest| run <= newest) && !work.runs.contains_key(&run)
    }

    /// Asks the driver to forget the runs whose time has come, beginning with those that ended first. A run
    /// that keeps its files is itself kept.
    pub(super) fn forget_old_runs(
        &mut self,
        work: &Workload,
        config: &DispatcherConfig,
        exchange: &Exchange,
        leftovers: &Leftovers,
        now: Timestamp,
        out: &mut Vec<Action>,
    ) {
        let Some(KeepRuns { n_runs, age_ns }) = config.keep_runs else { return };
        if exchange.group.is_some_and(|group| group.me != MemberId(0)) {
            return;
        }
        let ended = work.runs.iter().filter(|(run, r)| !r.keep && !self.being_recorded.contains(run));
        let mut ended: Vec<(Timestamp, RunId)> =
            ended.filter_map(|(run, r)| Some((r.whole_ended()?, *run))).collect();
        ended.sort_unstable();
        let n_surplus = n_runs.map_or(0, |n| ended.len().saturating_sub(n as usize));
        let is_old = |at: Timestamp| age_ns.is_some_and(|age| now.since_ns(at) > age);
        for (i, (at, run)) in ended.into_iter().enumerate() {
            if (i < n_surplus || is_old(at)) && leftovers.why_kept(work, run).is_none() {
                self.being_recorded.insert(run);
                out.push(Action::ForgetRun { run });
            }
        }
    }

    /// The submission of `task` is given up: no other run may have named its outputs and promised files.
    pub(super) fn forget_names(&mut self, work: &mut Workload, task: TaskId) {
        let (array, i) = work.tasks.locate(task);
        let run = work.tasks.arrays[array.0 as usize].run;
        let array = work.tasks.arrays[array.0 as usize].array.clone();
        let mut text = String::new();
        for (_, pattern) in &array.template.outputs {
            let location = work.location_into(run, &array, pattern, i, &mut text);
            let Some(object) = work.catalog.find(location) else { continue };
            // An older run may have named a file at home, too.
            if location.stays() {
                work.catalog.unname(object, run);
            }
            self.stale.insert(object);
        }
        for promised in &array.template.promises {
            text.clone_from(promised);
            let location = work.scope_of(run).put_into(&mut text);
            self.stale.extend(work.catalog.find(location));
        }
    }
}

impl RunState {
    /// The run, or this part of it, goes on after it had ended.
    pub(super) fn begin_again(&mut self) {
        self.ended = None;
        self.all_parts_ended = None;
    }

    /// When the whole run ended, as far as this dispatcher knows.
    pub fn whole_ended(&self) -> Option<Timestamp> {
        if self.linked.is_some() { self.ended.and(self.all_parts_ended) } else { self.ended }
    }
}

impl Leftovers {
    /// Why this dispatcher, if it is the one that decides, cannot forget `run` now, as a sentence; `None` if it
    /// can.
    pub fn why_kept(&self, work: &Workload, run: RunId) -> Option<String> {
        self.why_part_kept(work, run).or_else(|| {
            let is_whole = work.runs[&run].whole_ended().is_some();
            (!is_whole).then(|| format!("run {run} has not ended at all dispatchers"))
        })
    }

    /// Why what this dispatcher has of `run` cannot be forgotten now: a sentence.
    pub fn why_part_kept(&self, work: &Workload, run: RunId) -> Option<String> {
        let Some(state) = work.runs.get(&run) else { return Some(format!("there is no run {run}")) };
        if state.ended.is_none() {
            return Some(format!("run {run} has not ended"));
        }
        if self.iter().any(|(task, _)| work.tasks.run_of(task) == run) {
            return Some(format!(
                "an executor has yet to remove what attempts of run {run} that were lost have left at home"
            ));
        }
        None
    }

    /// How the part of `run` that is here ended, if it has. `None` also while other members read its files:
    /// tasks that made them may have to run again.
    pub fn find_part_end(&self, work: &Workload, exchange: &Exchange, run: RunId) -> Option<PartEnd> {
        let state = work.runs.get(&run)?;
        let range = (run, ObjectId(0))..=(run, ObjectId(u32::MAX));
        let is_read = exchange.is_any_exported(range);
        let is_over = !is_read && self.why_part_kept(work, run).is_none();
        is_over.then(|| PartEnd { n_added: state.additions.n_added, ended: state.ended.expect("it is over") })
    }
}

impl Workload {
    pub(super) fn on_all_parts_ended(&mut self, run: RunId, at: Timestamp) {
        if let Some(state) = self.runs.get_mut(&run).filter(|r| r.ended.is_some() && r.linked.is_some()) {
            state.all_parts_ended = Some(at);
        }
    }
}

impl Ready {
    /// Removes the arrays `gone`; the remaining arrays are numbered anew without gaps.
    fn close_up(&mut self, work: &mut Workload, gone: &[ArrayId]) {
        if gone.is_empty() {
            return;
        }
        let mut is_gone = vec![false; work.tasks.arrays.len()];
        gone.iter().for_each(|id| is_gone[id.0 as usize] = true);
        let mut next = 0;
        let numbers: Vec<ArrayId> = is_gone
            .iter()
            .map(|gone| {
                let number = ArrayId(next);
                next += u32::from(!gone);
                number
            })
            .collect();
        let mut here = is_gone.iter();
        work.tasks.arrays.retain(|_| !*here.next().expect("one for each"));
        let mut here = is_gone.iter();
        work.tasks.bases.retain(|_| !*here.next().expect("one for each"));
        work.tasks.located.set(0);
        for id in work.runs.values_mut().flat_map(|run| &mut run.arrays) {
            *id = numbers[id.0 as usize];
        }
        for segment in self.backlog.segments_mut() {
            segment.array = numbers[segment.array.0 as usize];
        }
    }
}

impl Dispatcher {
    /// Why this dispatcher, if it is the one that decides, cannot forget `run` now, as a sentence; `None` if it
    /// can.
    pub fn why_kept(&self, run: RunId) -> Option<String> {
        self.leftovers.why_kept(&self.work, run)
    }

    /// Why what this dispatcher has of `run` cannot be forgotten now: a sentence.
    pub fn why_part_kept(&self, run: RunId) -> Option<String> {
        self.leftovers.why_part_kept(&self.work, run)
    }

    /// How the part of `run` that is here ended, if it has. `None` also while other members read its files:
    /// tasks that made them may have to run again.
    pub fn find_part_end(&self, run: RunId) -> Option<PartEnd> {
        self.leftovers.find_part_end(&self.work, &self.exchange, run)
    }

    /// Runs in parts whose part here has ended, while this dispatcher does not know that of the other parts.
    pub fn runs_ended_in_part(&self) -> impl Iterator<Item = (RunId, PartEnd)> + '_ {
        let open = self.work.runs.iter().filter(|(_, r)| r.ended.is_some() && r.whole_ended().is_none());
        open.filter_map(|(run, _)| {
            Some((*run, self.leftovers.find_part_end(&self.work, &self.exchange, *run)?))
        })
    }

    pub(super) fn on_run_forgotten(&mut self, run: RunId, out: &mut Vec<Action>) {
        // When events are read back from the journal, submissions into the run are not part of it yet.
        let into: Vec<RunId> =
            self.work.runs.iter().filter(|(_, r)| r.into == Some(run)).map(|(added, _)| *added).collect();
        let mut arrays = vec![];
        for run in into.into_iter().chain([run]) {
            if self.work.runs.get(&run).is_none_or(|r| r.started && r.ended.is_none()) {
                continue;
            }
            arrays.extend(self.forget_tasks(run));
            self.pushes.forget(run).into_iter().for_each(|object| self.forgotten.may_be_stale(object));
            for object in self.exchange.forget_crossing(&self.work, run) {
                self.intermediates.files.remove(&object);
                self.intermediates.orphans.remove(&object);
                self.forgotten.stale.insert(object);
            }
            self.reach.couriers.forget_run(&self.exchange, run);
            self.schedule.run_times.forget(run);
            self.work.runs.remove(&run);
            self.forgotten.newest = self.forgotten.newest.max(Some(run));
        }
        self.forgotten.being_recorded.remove(&run);
        self.schedule.ready.close_up(&mut self.work, &arrays);
        self.forget_stale(out);
    }

    /// Forgets everything about the tasks of `run` except its arrays, which are returned.
    fn forget_tasks(&mut self, run: RunId) -> Vec<ArrayId> {
        let arrays = self.work.runs[&run].arrays.clone();
        let mut text = String::new();
        for id in &arrays {
            let a = &self.work.tasks.arrays[id.0 as usize];
            let (base, array) = (a.base, a.array.clone());
            for promised in &array.template.promises {
                text.clone_from(promised);
                let location = self.work.scope_of(run).put_into(&mut text);
                let Some(object) = self.work.catalog.find(location) else { continue };
                self.intermediates.promises.remove(&object);
                self.intermediates.orphans.remove(&object);
                self.forgotten.stale.insert(object);
            }
            for i in 0..array.n_tasks {
                let task = TaskId(base.0 + u64::from(i));
                self.work.tasks.forget_maker(task);
                self.given_up.forget(task);
                self.schedule.attempts.histories.remove(&task);
                self.intermediates.revivals.remove(&task);
                self.reruns.forget(task);
                self.reach.couriers.forget(task);
                for (_, pattern) in array.template.inputs.iter().chain(&array.template.outputs) {
                    let location = self.work.location_into(run, &array, pattern, i, &mut text);
                    let Some(object) = self.work.catalog.find(location) else { continue };
                    self.forgotten.stale.insert(object);
                    if location.stays() {
                        self.intermediates.files.remove(&object);
                        self.intermediates.orphans.remove(&object);
                    }
                }
            }
        }
        let mut failed_makers = std::mem::take(&mut self.waits.failed_makers);
        failed_makers.retain(|task| self.work.tasks.run_of(*task) != run);
        self.waits.failed_makers = failed_makers;
        arrays
    }

    /// Forgets the stale names that no unfinished run can still use.
    pub(super) fn forget_stale(&mut self, out: &mut Vec<Action>) {
        if self.forgotten.stale.is_empty() {
            return;
        }
        let oldest = self.work.runs.iter().find(|(_, r)| r.whole_ended().is_none()).map(|(run, _)| *run);
        let crossing = self.exchange.crossing();
        let mut drops: BTreeMap<ExecutorId, Vec<ObjectId>> = BTreeMap::new();
        for object in std::mem::take(&mut self.forgotten.stale) {
            let run = self.work.catalog.named_by(object).unwrap_or(submissions::NO_RUN);
            if self.work.runs.contains_key(&run) {
                continue; // the name goes with that run
            }
            let is_in_mind = crossing.contains(&object)
                || self.schedule.attempts.arriving.contains_key(&object)
                || self.residents.is_read(object)
                || self.pushes.is_read(object)
                || self.intermediates.mentions(object);
            if is_in_mind || oldest.is_some_and(|oldest| oldest < run) {
                self.forgotten.stale.insert(object);
                continue;
            }
            if self.moves.collectives.awaits(object) {
                // The collective learns at once that the object is gone; the name goes the next time.
                self.moves.pending.push(CollectiveEvent::ObjectGone { object });
                self.forgotten.stale.insert(object);
                continue;
            }
            self.residents.forget_object(object);
            self.two_mark.stores.forget(object);
            for holder in self.work.catalog.holders_of(object).collect::<Vec<_>>() {
                self.drop_replica(holder, object);
                drops.entry(holder).or_default().push(object);
            }
            if let Some(page) = self.work.catalog.forget(object) {
                self.moves.patterns.forget_page(page);
            }
        }
        self.intermediates.n_room_made += u64::from(!drops.is_empty());
        for (executor, objects) in drops {
            out.push(Action::DropReplicas { executor, objects });
        }
    }

    /// Names in the catalog of files that no known run has: files that stay on the nodes, and files at home that
    /// a task of a forgotten run was the last to name. For tests.
    pub fn names_of_forgotten_runs(&self) -> Vec<String> {
        let objects = (0..self.work.catalog.n_objects() as u32).map(ObjectId);
        let known = objects.filter(|object| self.work.catalog.is_known(*object));
        let crossing = self.exchange.crossing();
        let is_left = |object: &ObjectId| {
            let run = match self.work.catalog.location(*object) {
                CatalogLocation::Run(file) => Some(file.run().unwrap_or(submissions::NO_RUN)),
                // Members may speak of the file for an earlier run that is known.
                CatalogLocation::Home(_) if crossing.contains(object) => None,
                CatalogLocation::Home(_) => self.work.catalog.named_by(*object),
            };
            run.is_some_and(|run| !self.work.runs.contains_key(&run))
        };
        known.filter(is_left).map(|object| self.work.catalog.location(object).text().to_owned()).collect()
    }

    /// Panics when something of a forgotten run is left. For tests.
    pub(super) fn check_forgotten(&self) {
        for a in &self.work.tasks.arrays {
            assert!(
                a.run == submissions::NO_RUN || self.work.runs.contains_key(&a.run),
                "{:?} is gone",
                a.run
            );
        }
        let tasks = self
            .schedule
            .attempts
            .histories
            .keys()
            .chain(self.waits.n_missing.keys())
            .chain(self.intermediates.revivals.keys());
        let makers = self.intermediates.files.values().filter_map(|file| file.maker.as_ref());
        for task in tasks.chain(makers).chain(self.work.tasks.makers.iter().map(|(_, task)| task)) {
            assert!(self.work.tasks.has_task(*task), "{task:?} is forgotten");
        }
        let files = self
            .intermediates
            .files
            .keys()
            .chain(self.schedule.attempts.making.keys())
            .chain(self.schedule.attempts.arriving.keys());
        for object in files.chain(self.schedule.attempts.reserved.values().flat_map(|r| &r.outputs)) {
            assert!(self.work.catalog.is_known(*object), "{object:?} is forgotten");
        }
        for object in self.exchange.crossing() {
            assert!(self.work.catalog.is_known(object), "{object:?} is forgotten, and crosses");
        }
    }
}
