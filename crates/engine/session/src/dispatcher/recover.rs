//! Restores, from the journal, what earlier processes of this dispatcher had accepted and recorded.
//!
//! The driver gives the journal's records in their order to [`Session::recover`], and calls [`Session::end_recovery`] then.

use super::{Adding, Ended, Outside, Record, Session, User};
use eyas_core::event::Event;
use eyas_terms::{RunId, TaskId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the records that were read so far said, and later ones may still change.
#[derive(Default)]
pub(super) struct Reading {
    committed: Vec<RunId>,
    open: BTreeSet<RunId>,
    cancelled: Vec<(RunId, Option<TaskId>)>,
    /// When runs were opened and ended.
    times: BTreeMap<RunId, (Timestamp, Option<Timestamp>)>,
    /// The processes that began with the journal.
    began: Vec<u64>,
    /// Those of them that gave nothing out.
    gave_nothing: BTreeSet<u64>,
    /// The numbers of tasks that the processes so far may have given out.
    n_taken: u64,
}

impl<O: Outside> Session<O> {
    /// Takes the next record of the journal. `Err`: what is wrong with it.
    pub fn recover(&mut self, now: Timestamp, record: Record<'_>) -> Result<(), String> {
        self.now = now;
        match record {
            Record::RunOpened { run, name, keep, into } => {
                self.next_run = self.next_run.max(run.0 + 1);
                self.reading.open.insert(run);
                let whole = into.as_ref().map(|addition| addition.run);
                self.submissions
                    .adding
                    .extend(into.map(|addition| (run, Adding { addition, sealed: false })));
                self.feed(Event::RunOpened { run, name, keep, into: whole });
            }
            Record::ArrayAdded { run, array } => {
                array.check()?;
                self.feed(Event::ArrayAdded { run, array: Arc::new(array.into_owned()) });
            }
            Record::FilesWanted { run, files, nodes } => {
                let (files, nodes) = (files.into_owned(), nodes.into_owned());
                self.feed(Event::FilesWanted { run, files, nodes });
            }
            Record::RunCommitted { run } => {
                self.reading.open.remove(&run);
                self.reading.committed.push(run);
            }
            Record::RunAborted { run } => {
                self.reading.open.remove(&run);
                self.submissions.give_up(run);
                self.forget_prepared(run);
                self.feed(Event::RunAborted { run });
            }
            Record::TaskEnded { task, outcome, outputs } => {
                let run = self.core.work().run_of(task);
                self.recording.count(run, Ended::from(&outcome));
                self.feed(Event::TaskRestored { task, outcome, outputs });
            }
            Record::TaskRevived { task } => {
                let run = self.core.work().run_of(task);
                self.recording.revive(run);
                self.feed(Event::TaskRevived { task });
            }
            Record::AttemptGivenUp { task, attempt } => self.feed(Event::AttemptGivenUp { task, attempt }),
            Record::CancelRequested { run, task } => self.reading.cancelled.push((run, task)),
            Record::RunLinked { run, links } => self.on_linked(run, links.into_owned()),
            Record::RunPatterns { run, patterns } => {
                let patterns = patterns.into_owned();
                self.feed(Event::RunPatterns { run, patterns })
            }
            Record::RunPrepared { run } => {
                self.reading.open.remove(&run);
                self.note_prepared(run);
            }
            Record::Began { incarnation, is_moved } => {
                if is_moved {
                    self.reading.began.clear();
                }
                self.reading.began.push(incarnation);
                self.number_beyond(self.reading.n_taken);
            }
            Record::GivesNothing { incarnation } => drop(self.reading.gave_nothing.insert(incarnation)),
            Record::GivesOut { incarnation } => drop(self.reading.gave_nothing.remove(&incarnation)),
            Record::RunForgotten { run } => {
                let of_it = |of: &RunId| {
                    *of == run || self.submissions.adding.get(of).is_some_and(|a| a.addition.run == run)
                };
                let gone: Vec<RunId> = self.reading.committed.iter().copied().filter(of_it).collect();
                for of in &gone {
                    self.submissions.adding.remove(of);
                    self.recording.durable.remove(of);
                }
                self.reading.committed.retain(|of| !gone.contains(of));
                self.reading.cancelled.retain(|(of, _)| *of != run);
                self.reading.times.remove(&run);
                self.forget_run(run);
            }
            Record::Numbered { next_run, n_tasks } => {
                self.next_run = self.next_run.max(next_run);
                // The journal was cleaned.
                self.forgetting.any = true;
                self.feed(Event::TasksNumbered { n_tasks });
            }
            Record::RunOpenedAt { run, at } => {
                self.reading.times.insert(run, (at, None));
            }
            Record::NumbersTaken { n_tasks } => self.reading.n_taken = self.reading.n_taken.max(n_tasks),
            Record::RunOwned { run, owner } => self.feed(Event::RunOwned { run, owner }),
            Record::RunPrintsWhole { run } => _ = self.prints.whole.insert(run),
            Record::UserSet { name, key, rights, weight } => {
                self.keep_user(name, User { key, rights, weight })
            }
            Record::UserRemoved { name } => self.drop_user(&name),
            Record::RunEndedAt { run, at } => {
                if let Some((_, ended)) = self.reading.times.get_mut(&run) {
                    *ended = Some(at);
                }
            }
        }
        Ok(())
    }

    /// The journal has been read to its end: committed runs go on. `is_placed`: it is where those processes had it. Gives
    /// whether it was brought here from elsewhere, so that nothing is known of what they had given out.
    pub fn end_recovery(&mut self, now: Timestamp, is_placed: bool) -> bool {
        self.now = now;
        self.tell_known_users();
        let Reading { committed, open, cancelled, times, began, gave_nothing, n_taken } =
            std::mem::take(&mut self.reading);
        for run in open {
            self.submissions.give_up(run);
            self.submissions.aborts_owed.push(run);
            self.feed(Event::RunAborted { run });
        }
        for run in committed {
            self.forget_prepared(run);
            self.on_committed(run);
        }
        for (run, task) in cancelled {
            self.feed(Event::CancelRequested { run, task });
        }
        let is_moved = self.begin(began, &gave_nothing, is_placed);
        self.number_beyond(n_taken);
        for (run, (opened, ended)) in times {
            self.feed(Event::RunRestored { run, opened, ended });
            if ended.is_none() {
                // Its last end may have been written, and this not.
                self.note_end_of(run);
            }
        }
        self.feed(Event::Recovered);
        if self.core.is_held() {
            // Were this process killed before it says otherwise, the next one takes over what executors have of those before.
            self.journal(&Record::GivesNothing { incarnation: self.options.incarnation }, None);
        }
        is_moved
    }

    /// A process begins, now or as the journal has it: its tasks have no numbers that the processes before it may have given out.
    fn number_beyond(&mut self, n_taken: u64) {
        if n_taken > 0 {
            self.feed(Event::TasksNumbered { n_tasks: n_taken });
        }
    }

    /// Gives this process its name. That is on the disk before anything is given out under it, so that whoever comes after
    /// this process knows what is its own.
    fn begin(&mut self, mut began: Vec<u64>, gave_nothing: &BTreeSet<u64>, is_placed: bool) -> bool {
        // Later than all before, whatever the clock says.
        if let Some(last) = began.last() {
            self.options.incarnation = self.options.incarnation.max(last + 1);
        }
        let is_moved = !is_placed && !began.is_empty();
        if is_moved {
            began.clear();
        }
        began.push(self.options.incarnation);
        self.journal_name = began[0];
        self.journal(&Record::Began { incarnation: self.options.incarnation, is_moved }, None);
        // A disk that is full now takes it later, and the journal's notice warns of that. Were this process killed before,
        // executors with its work would wait for their lease in place of being taken over.
        self.outside.flush();
        self.has_begun = true;
        for incarnation in began {
            let gave_nothing = gave_nothing.contains(&incarnation);
            self.feed(Event::Began { incarnation, gave_nothing });
        }
        is_moved
    }
}
