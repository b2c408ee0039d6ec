//! Tasks that are added to a run while it goes on.
//!
//! A submission *into* a run is first collected as a run of its own, so that it is accepted whole or not at
//! all, like any other submission. When it is committed, its tasks become tasks of the other run, and from
//! then on nothing distinguishes them from the tasks that were there from the beginning. From its first task
//! on, the submission shares the run's names of files that stay on the nodes.
//!
//! While such a submission is open, its run does not end and drops no files: what the driver found when it asked
//! [`Dispatcher::why_not_added`] still holds when the submission is durable and committed.
//!
//! A search for circles is needed only where a file was promised. Added tasks may read what earlier tasks
//! write. An earlier task can read what an added task writes only if the file was promised: without a promise
//! the file would have had no writer, and the earlier submission would have been refused.
//!
//! A run that tasks are added to remembers until its end which task wrote which file at home, also when that
//! task is done, so that a second writer of the same file is refused. Other runs forget a writer as soon as
//! it ends.
//!
//! Tasks are added in parts to a run in parts (one that several dispatchers share). One part does not know
//! which files the other parts write, or whether these files are still there. So the client that splits the
//! submission asks all parts ([`Dispatcher::consult`]). One part may have ended while the run goes on; an
//! addition starts that part again.
//!
//! Not here: how a submission that is sent twice is recognised, and how one submission into a run in parts
//! waits for another (the driver does both, by the tokens of the submissions).

use super::intermediates::Intermediate;
use super::workload::FAILURES_KEPT;
use super::{Dispatcher, End, Intermediates, RunState, Workload, hash_of};
use crate::event::Action;
use eyas_terms::location::{CatalogLocation, Location};
use eyas_terms::{ObjectId, RunId, TaskId, Timestamp};
use eyas_text::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a run knows of the submissions into it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Additions {
    /// Submissions into the run that are neither committed nor given up.
    pub n_open: u32,
    /// The number of submissions that have become part of the run.
    pub n_added: u32,
    /// There was at least one submission into the run, so its writers are remembered.
    pub any: bool,
    /// Files that lost their last reader while a submission was open.
    pub unread: Vec<ObjectId>,
}

/// What is wrong with a file that an added task reads.
const DROPPED: &str = "was dropped when the last task that read it had ended; a run that is submitted with --keep keeps its \
                       files";
const NO_WRITER: &str = "no task of the run writes";

fn cannot_read(id: &str, location: &str, problem: &str) -> String {
    format!("task {id} reads {location}, which {problem}", id = shown(id), location = shown(location))
}

/// A task that has not ended, and the inputs that it may be waiting for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Upstream {
    pub id: String,
    /// Locations as users write them.
    pub inputs: Vec<String>,
}

/// Finds a circle of tasks that goes through one of the files `from`; gives a sentence about it. `upstream`
/// gives the task that makes a file, if that task has not ended.
pub fn find_circle(
    from: impl Iterator<Item = String>,
    upstream: impl Fn(&str) -> Option<Upstream>,
) -> Option<String> {
    let mut done: BTreeSet<String> = BTreeSet::new();
    for location in from {
        // The path from that file: the file, its maker, and the index of the maker's next input to look at.
        let mut path: Vec<(String, Upstream, usize)> = vec![];
        let mut next = Some(location);
        loop {
            if let Some(location) = next.take()
                && done.insert(location.clone())
                && let Some(maker) = upstream(&location)
            {
                path.push((location, maker, 0));
            }
            let Some((_, maker, k)) = path.last_mut() else { break };
            let Some(input) = maker.inputs.get(*k).cloned() else {
                path.pop();
                continue;
            };
            *k += 1;
            if let Some(at) = path.iter().position(|(location, _, _)| *location == input) {
                let mut names: Vec<String> =
                    path[at..].iter().map(|(_, m, _)| format!("{}", shown(&m.id))).collect();
                names.reverse();
                names.dedup();
                let names = names.join(", ");
                return Some(format!(
                    "tasks wait for each other in a circle, each reads what the one before it writes or promises: {names}"
                ));
            }
            next = Some(input);
        }
    }
    None
}

/// The message for a submission into `run`, which has ended.
pub fn has_ended(run: RunId) -> String {
    format!("run {run} has ended; submit a run of its own")
}

/// The message for a task `id` that cannot be added because nobody writes `location`, which it reads.
pub fn nobody_writes(id: &str, location: &str) -> String {
    cannot_read(id, location, NO_WRITER)
}

/// The message for a task `id` that cannot be added because `location`, which it reads, was dropped.
pub fn was_dropped(id: &str, location: &str) -> String {
    cannot_read(id, location, DROPPED)
}

impl Workload {
    /// Begins the submission `run` into `whole`. If `whole` does not exist, is not committed or has ended,
    /// the submission does not begin, and all later events of it are ignored.
    pub(super) fn open_addition(&mut self, now: Timestamp, run: RunId, name: String, whole: RunId) {
        if self.why_closed(whole).is_some() {
            return;
        }
        let state = self.run_mut(whole);
        state.additions.n_open += 1;
        // Only a part of a run in parts can have ended here. If the submission is given up, the part ends
        // again.
        state.begin_again();
        let is_first = !std::mem::replace(&mut state.additions.any, true);
        let (scope, keep) = (state.scope.clone(), state.keep);
        let addition = RunState { name, keep, scope, opened: now, into: Some(whole), ..RunState::default() };
        self.runs.insert(run, addition);
        if is_first {
            self.remember_writers(whole);
        }
    }

    /// The reason why nothing can be added to `run`; `None` if tasks can be added.
    pub fn why_closed(&self, run: RunId) -> Option<String> {
        match self.runs.get(&run) {
            None => Some(format!("there is no run {run}")),
            Some(r) if r.into.is_some() => Some(format!("{run} is no run of its own")),
            Some(r) if r.cancelled => Some(format!("run {run} was cancelled")),
            // This part of a run in parts has ended, but other parts may go on.
            Some(r) if r.ended.is_some() && r.linked.is_none() => Some(has_ended(run)),
            // After a restart the journal is read before runs are committed again.
            Some(_) => None,
        }
    }

    /// Whether `task`, which has ended well, is still known as the writer of its files at home.
    pub(super) fn is_remembered(&self, task: TaskId) -> bool {
        self.tasks.end_of(task) == End::Done
            && self.runs.get(&self.tasks.run_of(task)).is_some_and(|r| self.remembers(r) && r.ended.is_none())
    }

    fn remembers(&self, run: &RunState) -> bool {
        let whole = run.into.and_then(|whole| self.runs.get(&whole)).unwrap_or(run);
        whole.additions.any
    }

    /// The task that stands in the way of another one of `run` that writes the file `at_home`.
    pub(super) fn find_writer(&self, run: RunId, at_home: &str) -> Option<TaskId> {
        let whole = |run: RunId| self.runs.get(&run).and_then(|r| r.into).unwrap_or(run);
        self.tasks.makers_of(at_home).find(|maker| match self.tasks.end_of(*maker) {
            End::Not => true,
            End::Done => whole(self.tasks.run_of(*maker)) == whole(run),
            End::Failed | End::Cancelled => false,
        })
    }

    /// Tasks of `run` that were done before anything was added to it had been forgotten.
    fn remember_writers(&mut self, run: RunId) {
        let mut text = String::new();
        for id in self.runs[&run].arrays.clone() {
            let a = &self.tasks.arrays[id.0 as usize];
            if a.array.template.outputs.is_empty() {
                continue;
            }
            let (array, base) = (a.array.clone(), a.base);
            for i in (0..array.n_tasks).filter(|i| self.tasks.arrays[id.0 as usize].ends.get(*i) == End::Done)
            {
                for (_, pattern) in &array.template.outputs {
                    if let Location::Home(at_home) = array.locate(pattern, i, &mut text) {
                        let entry = (hash_of(at_home), TaskId(base.0 + u64::from(i)));
                        self.tasks.makers.insert_unique(entry.0, entry, |entry| entry.0);
                    }
                }
            }
        }
    }

    /// `run` has ended: nothing is added to it any more.
    pub(super) fn forget_writers(&mut self, run: RunId) {
        let state = self.run_mut(run);
        if !std::mem::take(&mut state.additions.any) {
            return;
        }
        let state = &self.runs[&run];
        for id in state.arrays.clone() {
            let a = &self.tasks.arrays[id.0 as usize];
            let (base, n) = (a.base, if a.array.template.outputs.is_empty() { 0 } else { a.array.n_tasks });
            for i in 0..n {
                if self.tasks.arrays[id.0 as usize].ends.get(i) == End::Done {
                    self.tasks.forget_maker(TaskId(base.0 + u64::from(i)));
                }
            }
        }
    }
}

impl Intermediates {
    fn is_promised(&self, work: &Workload, location: CatalogLocation<'_>) -> bool {
        work.catalog.find(location).is_some_and(|object| self.find_promise(work, object) == Some(Ok(())))
    }

    /// The task that makes `location` (written as users of `run` write it), or else a task that has promised
    /// to add that maker; `None` if that task has ended or there is none.
    pub fn upstream(&self, work: &Workload, run: RunId, location: &str) -> Option<Upstream> {
        let mut text = location.to_owned();
        let scoped = work.scope_of(run).put_into(&mut text);
        let (maker, _) =
            self.maker_or_promiser(work, scoped).filter(|(task, _)| work.tasks.end_of(*task) == End::Not)?;
        let (array, i) = work.tasks.locate(maker);
        let array = &work.tasks.arrays[array.0 as usize].array;
        let inputs = array.template.inputs.iter().map(|(_, l)| array.fill(l, i)).collect();
        Some(Upstream { id: work.tasks.user_id(maker), inputs })
    }

    /// The task that makes the file at `location`, with `false`, or the task that promised the file last,
    /// with `true`. Either may have ended.
    pub(super) fn maker_or_promiser(
        &self,
        work: &Workload,
        location: CatalogLocation<'_>,
    ) -> Option<(TaskId, bool)> {
        if let CatalogLocation::Home(at_home) = location {
            return work.tasks.find_maker(at_home).map(|maker| (maker, false));
        }
        let object = work.catalog.find(location)?;
        let maker = self.files.get(&object).and_then(|file| file.maker);
        let promiser = || self.promises.get(&object)?.last().map(|task| (*task, true));
        maker.map(|maker| (maker, false)).or_else(promiser)
    }

    /// Finds a circle through the promised files that the submission `run` writes or promises again; gives a
    /// sentence about it.
    fn find_promised_circle(&self, work: &Workload, run: RunId) -> Option<String> {
        let scope = work.scope_of(run);
        let of_run = |object: &ObjectId| match work.catalog.location(*object) {
            CatalogLocation::Run(file) => file.is_of(scope),
            CatalogLocation::Home(_) => false,
        };
        let promised = self.promises.keys().filter(|object| of_run(object));
        let is_new = |task: TaskId| work.tasks.run_of(task) == run;
        let written = promised.filter(|object| {
            let maker = self.files.get(object).and_then(|file| file.maker);
            let holders = &self.promises[*object];
            maker.is_some_and(is_new) || holders.iter().any(|holder| is_new(*holder))
        });
        let written = written.map(|object| work.catalog.location(*object).written().to_string());
        find_circle(written, |location| self.upstream(work, run, location))
    }
}

impl Dispatcher {
    /// The reason why the submission `run`, which is complete, cannot be added to its run; `None` if it can
    /// be added. Also `None` for a run that is no submission into another one.
    pub fn why_not_added(&self, run: RunId) -> Option<String> {
        let state = self.work.runs.get(&run)?;
        let whole = state.into?;
        if let Some(why) = self.work.why_closed(whole) {
            return Some(why);
        }
        if state.linked.is_some() {
            return None; // the client that split the submission has asked all parts
        }
        let mut text = String::new();
        for a in state.arrays.iter().map(|id| &self.work.tasks.arrays[id.0 as usize]).filter(|a| a.reads_run)
        {
            for i in 0..a.array.n_tasks {
                for (_, pattern) in &a.array.template.inputs {
                    let location = self.work.location_into(run, &a.array, pattern, i, &mut text);
                    if !location.stays() {
                        continue;
                    }
                    let file =
                        self.work.catalog.find(location).and_then(|o| self.intermediates.files.get(&o));
                    let problem = match file {
                        Some(file) if file.dropped => DROPPED,
                        Some(Intermediate { maker: Some(_), .. }) => continue,
                        _ if self.intermediates.is_promised(&self.work, location) => continue,
                        _ => NO_WRITER,
                    };
                    let id = a.array.fill(&a.array.template.id, i);
                    return Some(cannot_read(&id, &location.written().text(), problem));
                }
            }
        }
        self.intermediates.find_promised_circle(&self.work, run)
    }

    /// The task that makes `location` (written as users of `run` write it), or else a task that has promised
    /// to add that maker; `None` if that task has ended or there is none.
    pub fn upstream(&self, run: RunId, location: &str) -> Option<Upstream> {
        self.intermediates.upstream(&self.work, run, location)
    }

    /// Turns the tasks of the submission `run`, which is complete and durable, into tasks of `whole`.
    pub(super) fn add(&mut self, now: Timestamp, run: RunId, whole: RunId, out: &mut Vec<Action>) {
        let Some(added) = self.work.runs.remove(&run) else { return };
        for id in &added.arrays {
            self.work.tasks.arrays[id.0 as usize].run = whole;
        }
        let state = self.work.run_mut(whole);
        state.additions.n_added += 1;
        state.tasks.n_tasks += added.tasks.n_tasks;
        state.arrays.extend(&added.arrays);
        // Tasks of the submission that had ended before a restart.
        state.ends.add(&added.ends);
        state.failures.extend(added.failures);
        let n_surplus = state.failures.len().saturating_sub(FAILURES_KEPT);
        state.failures.drain(..n_surplus);
        let (is_cancelled, started) = (state.cancelled, state.started);
        self.exchange.link_added(
            &mut self.work,
            &mut self.intermediates,
            &self.waits,
            run,
            whole,
            added.linked,
        );
        self.adopt_all_orphans(now, &added.arrays, out);
        for id in &added.arrays {
            let a = &self.work.tasks.arrays[id.0 as usize];
            let n = if a.reads_run || a.writes_run { a.array.n_tasks } else { 0 };
            let base = a.base;
            (0..n).for_each(|i| self.moves.learn_writes(&mut self.work, TaskId(base.0 + u64::from(i))));
        }
        if started {
            self.enqueue(now, whole, &added.arrays, out);
            self.settle_intermediates(now, whole, &added.arrays, out);
            self.exchange.settle(&self.work, run, whole);
            self.moves.report_patterns(&mut self.work, &mut self.exchange, whole, added.patterns, out);
        }
        if is_cancelled {
            self.on_cancel(now, whole, None, out);
        }
        self.close_addition(now, whole, out);
    }

    /// A submission into `whole` is no longer open.
    pub(super) fn close_addition(&mut self, now: Timestamp, whole: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.work.runs.get_mut(&whole) else { return };
        state.additions.n_open -= 1;
        if state.additions.n_open > 0 {
            return;
        }
        let (unread, committed) = (std::mem::take(&mut state.additions.unread), state.committed);
        self.drop_unread(&unread, out);
        if committed {
            self.end_promises_to(now, whole, out);
        }
        self.check_run_end(now, whole, out);
    }
}
