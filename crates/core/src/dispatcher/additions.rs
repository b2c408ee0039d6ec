//! Tasks that are added to a run while it goes on.
//!
//! A submission *into* a run is collected as a run of its own, so that it is taken whole or not at all like any other;
//! when it is committed its tasks become the other run's, and nothing tells them from those that were there from the
//! beginning. It shares the names of files that stay on the nodes from its first task on.
//!
//! While such a submission is open, its run does not end and drops no files: what the driver found when it asked
//! [`Dispatcher::why_not_added`] still holds when the submission is durable and committed.
//!
//! Circles need a search only where something was promised: what is added may read what earlier tasks write, but no earlier
//! task can read what it writes (its file would have had no writer, and its own submission would have been refused).
//!
//! A run that tasks are added to remembers who wrote which file at home, also when that task is done, until the run
//! ends: the second writer of a file is refused. Other runs forget a writer when it ends.
//!
//! A run in parts (several dispatchers) is added to in parts, too. What one part cannot know of the others (who writes what, whether
//! it is still there) whoever splits the submission asks all of them ([`Dispatcher::consult`]); one part may have ended while the
//! run goes on, and begins again.
//!
//! Not here: that a submission is sent twice, that one submission into a run in parts waits for the other (the driver
//! knows them by their tokens).

use super::attempts::FAILURES_KEPT;
use super::intermediates::Intermediate;
use super::*;
use eyas_text::shown;

/// What a run knows of submissions into it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Additions {
    /// Submissions that are neither committed nor given up.
    pub n_open: u32,
    /// Submissions that have become part of the run.
    pub n_added: u32,
    /// There was one: writers are remembered.
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

/// A task that has not ended, and what it waits for at most.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Upstream {
    pub id: String,
    /// As users write them.
    pub inputs: Vec<String>,
}

/// A circle of tasks that goes through one of the files `from`, in a sentence. `upstream` gives who makes a file, if that
/// has still to be done.
pub fn find_circle(
    from: impl Iterator<Item = String>,
    upstream: impl Fn(&str) -> Option<Upstream>,
) -> Option<String> {
    let mut done: BTreeSet<String> = BTreeSet::new();
    for location in from {
        // The way from there: who makes a file, and which of their inputs have not been looked at.
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

/// Why nothing is added to `run`, which is over.
pub fn has_ended(run: RunId) -> String {
    format!("run {run} has ended; submit a run of its own")
}

/// Why the task `id` cannot be added, which reads `location`: nobody writes that.
pub fn nobody_writes(id: &str, location: &str) -> String {
    cannot_read(id, location, NO_WRITER)
}

/// Why the task `id` cannot be added, which reads `location`: it is gone.
pub fn was_dropped(id: &str, location: &str) -> String {
    cannot_read(id, location, DROPPED)
}

impl Dispatcher {
    /// A submission `run` into `whole` begins. Into a run that is not there, not committed, or over, it never begins: what
    /// comes of it is ignored.
    pub(super) fn open_addition(&mut self, now: Timestamp, run: RunId, name: String, whole: RunId) {
        if self.why_closed(whole).is_some() {
            return;
        }
        let state = self.run_mut(whole);
        state.additions.n_open += 1;
        // Only of a run in parts; this part has ended again if nothing comes of it.
        state.begin_again();
        let is_first = !std::mem::replace(&mut state.additions.any, true);
        let (scope, keep) = (state.scope.clone(), state.keep);
        let addition = RunState { name, keep, scope, opened: now, into: Some(whole), ..RunState::default() };
        self.runs.insert(run, addition);
        if is_first {
            self.remember_writers(whole);
        }
    }

    /// Why nothing can be added to `run`, if nothing can.
    pub fn why_closed(&self, run: RunId) -> Option<String> {
        match self.runs.get(&run) {
            None => Some(format!("there is no run {run}")),
            Some(r) if r.into.is_some() => Some(format!("{run} is no run of its own")),
            Some(r) if r.cancelled => Some(format!("run {run} was cancelled")),
            // Of a run in parts, others may go on.
            Some(r) if r.ended.is_some() && r.linked.is_none() => Some(has_ended(run)),
            // After a restart the journal is read before runs are committed again.
            Some(_) => None,
        }
    }

    /// Why the submission `run`, which is complete, cannot be added to its run, if it cannot. Not for other runs.
    pub fn why_not_added(&self, run: RunId) -> Option<String> {
        let state = self.runs.get(&run)?;
        let whole = state.into?;
        if let Some(why) = self.why_closed(whole) {
            return Some(why);
        }
        if state.linked.is_some() {
            return None; // whoever split it has asked all parts
        }
        let mut text = String::new();
        for a in state.arrays.iter().map(|id| &self.tasks.arrays[id.0 as usize]).filter(|a| a.reads_run) {
            for i in 0..a.array.n_tasks {
                for (_, pattern) in &a.array.template.inputs {
                    let location = self.location_into(run, &a.array, pattern, i, &mut text);
                    if !location.stays() {
                        continue;
                    }
                    let file = self.catalog.find(location).and_then(|o| self.intermediates.files.get(&o));
                    let problem = match file {
                        Some(file) if file.dropped => DROPPED,
                        Some(Intermediate { maker: Some(_), .. }) => continue,
                        _ if self.is_promised(location) => continue,
                        _ => NO_WRITER,
                    };
                    let id = a.array.fill(&a.array.template.id, i);
                    return Some(cannot_read(&id, &location.written().text(), problem));
                }
            }
        }
        self.find_promised_circle(run)
    }

    fn is_promised(&self, location: CatalogLocation<'_>) -> bool {
        self.catalog.find(location).is_some_and(|object| self.find_promise(object) == Some(Ok(())))
    }

    /// Who makes `location`, as users of `run` write it, if that task has not ended: the task itself, or one that promises
    /// to add it.
    pub fn upstream(&self, run: RunId, location: &str) -> Option<Upstream> {
        let mut text = location.to_owned();
        let scoped = self.scope_of(run).put_into(&mut text);
        let (maker, _) =
            self.maker_or_promiser(scoped).filter(|(task, _)| self.tasks.end_of(*task) == End::Not)?;
        let (array, i) = self.tasks.locate(maker);
        let array = &self.tasks.arrays[array.0 as usize].array;
        let inputs = array.template.inputs.iter().map(|(_, l)| array.fill(l, i)).collect();
        Some(Upstream { id: self.tasks.user_id(maker), inputs })
    }

    /// Who makes the file at `location`, or (`true`) has promised it last; ended or not.
    pub(super) fn maker_or_promiser(&self, location: CatalogLocation<'_>) -> Option<(TaskId, bool)> {
        if let CatalogLocation::Home(at_home) = location {
            return self.tasks.find_maker(at_home).map(|maker| (maker, false));
        }
        let object = self.catalog.find(location)?;
        let maker = self.intermediates.files.get(&object).and_then(|file| file.maker);
        let promiser = || self.intermediates.promises.get(&object)?.last().map(|task| (*task, true));
        maker.map(|maker| (maker, false)).or_else(promiser)
    }

    /// A circle through what the submission `run` writes that was promised: a sentence.
    fn find_promised_circle(&self, run: RunId) -> Option<String> {
        let scope = self.scope_of(run);
        let of_run = |object: &ObjectId| match self.catalog.location(*object) {
            CatalogLocation::Run(file) => file.is_of(scope),
            CatalogLocation::Home(_) => false,
        };
        let promised = self.intermediates.promises.keys().filter(|object| of_run(object));
        let is_new = |task: TaskId| self.tasks.run_of(task) == run;
        let written = promised.filter(|object| {
            let maker = self.intermediates.files.get(object).and_then(|file| file.maker);
            let holders = &self.intermediates.promises[*object];
            maker.is_some_and(is_new) || holders.iter().any(|holder| is_new(*holder))
        });
        let written = written.map(|object| self.catalog.location(*object).written().to_string());
        find_circle(written, |location| self.upstream(run, location))
    }

    /// The submission `run` is complete and durable: its tasks become those of `whole`.
    pub(super) fn add(&mut self, now: Timestamp, run: RunId, whole: RunId, out: &mut Vec<Action>) {
        let Some(added) = self.runs.remove(&run) else { return };
        for id in &added.arrays {
            self.tasks.arrays[id.0 as usize].run = whole;
        }
        let state = self.run_mut(whole);
        state.additions.n_added += 1;
        state.n_tasks += added.n_tasks;
        state.arrays.extend(&added.arrays);
        // What had ended before a restart.
        state.n_done += added.n_done;
        state.n_failed += added.n_failed;
        state.n_cancelled += added.n_cancelled;
        state.failures.extend(added.failures);
        let n_surplus = state.failures.len().saturating_sub(FAILURES_KEPT);
        state.failures.drain(..n_surplus);
        let (is_cancelled, started) = (state.cancelled, state.started);
        self.link_added(run, whole, added.linked);
        self.adopt_all_orphans(now, &added.arrays, out);
        for id in &added.arrays {
            let a = &self.tasks.arrays[id.0 as usize];
            let n = if a.reads_run || a.writes_run { a.array.n_tasks } else { 0 };
            let base = a.base;
            (0..n).for_each(|i| self.learn_writes(TaskId(base.0 + u64::from(i))));
        }
        if started {
            self.enqueue(now, whole, &added.arrays, out);
            self.settle_intermediates(now, whole, &added.arrays, out);
            self.settle_exchange(run, whole);
            self.report_patterns(whole, added.patterns, out);
        }
        if is_cancelled {
            self.on_cancel(now, whole, None, out);
        }
        self.close_addition(now, whole, out);
    }

    /// A submission into `whole` is no longer open.
    pub(super) fn close_addition(&mut self, now: Timestamp, whole: RunId, out: &mut Vec<Action>) {
        let Some(state) = self.runs.get_mut(&whole) else { return };
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
