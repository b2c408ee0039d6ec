//! Which records of a journal are still needed.
//!
//! Records of submissions that were given up, and of runs that are forgotten, are not needed. The records that stay are
//! read back with the same result as all records: tasks keep their numbers, because a [`Record::Numbered`] stands where
//! tasks are missing, and no number is given a second time.
//!
//! In: all records of the journal, in their order, two times. Out: the records that take their place. The function looks
//! at nothing else, so it can run beside a session that goes on appending.

use super::Record;
use eyas_terms::{RunId, TaskId};
use std::collections::BTreeMap;

/// What belongs to which submission, as far as the journal has been read. A run's number may be given again where the first
/// submission with it was given up before anybody was answered, so submissions are counted.
#[derive(Default)]
struct Reading {
    n_submissions: usize,
    /// The latest submission with each number.
    by_number: BTreeMap<RunId, usize>,
    /// The first task of each array, and its submission.
    arrays: Vec<(TaskId, usize)>,
    n_tasks: u64,
    next_run: u32,
    /// See [`Record::NumbersTaken`].
    n_taken: u64,
}

impl Reading {
    /// Whether a record is about the dispatcher's processes or its users.
    fn is_of_no_run(record: &Record<'_>) -> bool {
        matches!(
            record,
            Record::Began { .. }
                | Record::GivesNothing { .. }
                | Record::GivesOut { .. }
                | Record::NumbersTaken { .. }
                | Record::UserSet { .. }
                | Record::UserRemoved { .. }
        )
    }

    /// The submission that `record` is about, if it is about one.
    fn take(&mut self, record: &Record<'_>) -> Option<usize> {
        let of_run = |run: &RunId| self.by_number.get(run).copied();
        match record {
            Record::RunOpened { run, .. } => {
                let submission = self.n_submissions;
                self.n_submissions += 1;
                self.by_number.insert(*run, submission);
                self.next_run = self.next_run.max(run.0 + 1);
                Some(submission)
            }
            Record::ArrayAdded { run, array } => {
                let submission = of_run(run)?;
                self.arrays.push((TaskId(self.n_tasks), submission));
                self.n_tasks += u64::from(array.n_tasks);
                Some(submission)
            }
            Record::RunCommitted { run }
            | Record::RunAborted { run }
            | Record::RunForgotten { run }
            | Record::CancelRequested { run, .. }
            | Record::RunLinked { run, .. }
            | Record::RunPrepared { run }
            | Record::RunOpenedAt { run, .. }
            | Record::RunEndedAt { run, .. }
            | Record::RunPatterns { run, .. }
            | Record::RunOwned { run, .. }
            | Record::FilesWanted { run, .. }
            | Record::RunPrintsWhole { run } => of_run(run),
            Record::TaskEnded { task, .. }
            | Record::TaskRevived { task }
            | Record::AttemptGivenUp { task, .. } => {
                let after = self.arrays.partition_point(|(base, _)| base <= task);
                after.checked_sub(1).map(|at| self.arrays[at].1)
            }
            Record::Numbered { next_run, n_tasks } => {
                self.next_run = self.next_run.max(*next_run);
                self.n_tasks = self.n_tasks.max(*n_tasks);
                None
            }
            Record::NumbersTaken { n_tasks } => {
                self.n_taken = self.n_taken.max(*n_tasks);
                None
            }
            Record::Began { .. } => {
                self.n_tasks = self.n_tasks.max(self.n_taken);
                None
            }
            Record::GivesNothing { .. }
            | Record::GivesOut { .. }
            | Record::UserSet { .. }
            | Record::UserRemoved { .. } => None,
        }
    }
}

/// The first reading: which submissions are gone.
#[derive(Default)]
pub struct Survey {
    reading: Reading,
    is_gone: Vec<bool>,
    /// The submission that each one adds to.
    into: Vec<Option<usize>>,
}

impl Survey {
    /// Takes the next record.
    pub fn take(&mut self, record: &Record<'_>) {
        let submission = self.reading.take(record);
        match (record, submission) {
            (Record::RunOpened { into, .. }, Some(_)) => {
                let into = into.as_ref().and_then(|addition| self.reading.by_number.get(&addition.run));
                self.into.push(into.copied());
                self.is_gone.push(false);
            }
            (Record::RunAborted { .. }, Some(gone)) => self.is_gone[gone] = true,
            (Record::RunForgotten { .. }, Some(gone)) => {
                let of_it = |at: &usize| *at == gone || self.into[*at] == Some(gone);
                (0..self.is_gone.len()).filter(of_it).for_each(|at| self.is_gone[at] = true);
            }
            _ => {}
        }
    }

    /// All records have been taken.
    pub fn end(self) -> Cleaning {
        Cleaning { is_gone: self.is_gone, reading: Reading::default(), n_tasks: 0, next_run: 1 }
    }
}

/// The second reading: what is kept.
pub struct Cleaning {
    is_gone: Vec<bool>,
    reading: Reading,
    /// As who reads what is kept has them so far.
    n_tasks: u64,
    next_run: u32,
}

impl Cleaning {
    /// Takes the next record, and gives those that are kept to `keep`. `Err` is that of `keep`.
    pub fn take<E>(
        &mut self,
        record: &Record<'_>,
        mut keep: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let base = self.reading.n_tasks;
        let is_kept = match (self.reading.take(record), record) {
            (Some(submission), _) => !self.is_gone[submission],
            (None, record) => Reading::is_of_no_run(record),
        };
        if !is_kept {
            return Ok(());
        }
        match record {
            Record::RunOpened { run, .. } => self.next_run = self.next_run.max(run.0 + 1),
            Record::ArrayAdded { array, .. } => {
                if base > self.n_tasks {
                    keep(&Record::Numbered { next_run: self.next_run, n_tasks: base })?;
                }
                self.n_tasks = base + u64::from(array.n_tasks);
            }
            Record::Began { .. } => self.n_tasks = self.n_tasks.max(self.reading.n_taken),
            _ => {}
        }
        keep(record)
    }

    /// All records have been taken a second time.
    pub fn end<E>(self, mut keep: impl FnMut(&Record<'_>) -> Result<(), E>) -> Result<(), E> {
        let Reading { n_tasks, next_run, .. } = self.reading;
        if n_tasks > self.n_tasks || next_run > self.next_run {
            keep(&Record::Numbered { next_run, n_tasks })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::array::{Command, Pattern, TaskArray, Template};
    use eyas_terms::{AttemptNo, Outcome, Timestamp};
    use eyas_wire::message::Addition;
    use std::borrow::Cow;
    use std::convert::Infallible;

    fn clean(records: &[Record<'static>]) -> Vec<Record<'static>> {
        let mut survey = Survey::default();
        records.iter().for_each(|record| survey.take(record));
        let (mut cleaning, mut kept) = (survey.end(), vec![]);
        let mut keep = |record: &Record<'_>| {
            kept.push(Record::from_bytes(&record.to_bytes()).unwrap());
            Ok::<(), Infallible>(())
        };
        records.iter().for_each(|record| cleaning.take(record, &mut keep).unwrap());
        cleaning.end(keep).unwrap();
        kept
    }

    fn opened(run: u32, into: Option<u32>) -> Record<'static> {
        let digest = Default::default();
        let into = into.map(|run| Addition { run: RunId(run), token: "t".into(), digest });
        Record::RunOpened { run: RunId(run), name: "a run".into(), keep: false, into }
    }

    fn added(run: u32, n_tasks: u32) -> Record<'static> {
        let template = Template::new(Pattern::default(), Command::Exec(vec![]));
        let array = TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None };
        Record::ArrayAdded { run: RunId(run), array: Cow::Owned(array) }
    }

    fn ended(task: u64) -> Record<'static> {
        Record::TaskEnded { task: TaskId(task), outcome: Outcome::Done, outputs: vec![] }
    }

    #[test]
    fn forgotten_runs_go_with_what_was_added_to_them_and_numbers_stay() {
        let began = Record::Began { incarnation: 7, is_moved: false };
        let committed = |run| Record::RunCommitted { run: RunId(run) };
        let kept = [opened(3, None), added(3, 2), committed(3), ended(6)];
        let mut records = vec![began.clone(), opened(1, None), added(1, 2), committed(1)];
        // The second submission adds to the first run.
        records.extend([opened(2, Some(1)), added(2, 3), committed(2), ended(4)]);
        records.extend(kept.clone());
        records.extend([ended(0), Record::AttemptGivenUp { task: TaskId(1), attempt: AttemptNo(1) }]);
        records.extend([Record::RunEndedAt { run: RunId(1), at: Timestamp(9) }]);
        assert_eq!(clean(&records), records, "nothing is forgotten");
        records.push(Record::RunForgotten { run: RunId(1) });
        let numbered = Record::Numbered { next_run: 4, n_tasks: 5 };
        let [opening, tasks, ..] = kept.clone();
        let mut wanted = vec![began, opening, numbered, tasks];
        wanted.extend(kept[2..].iter().cloned());
        assert_eq!(clean(&records), wanted);
        assert_eq!(clean(&wanted), wanted, "a second time nothing is left to do");
    }

    #[test]
    fn a_number_that_is_given_again_is_another_submission() {
        let mut records = vec![opened(1, None), added(1, 4), Record::RunAborted { run: RunId(1) }];
        records.extend([opened(1, None), added(1, 2), Record::RunCommitted { run: RunId(1) }, ended(5)]);
        let numbered = Record::Numbered { next_run: 2, n_tasks: 4 };
        let mut wanted = vec![records[3].clone(), numbered];
        wanted.extend(records[4..].iter().cloned());
        assert_eq!(clean(&records), wanted);
        records.push(Record::RunForgotten { run: RunId(1) });
        assert_eq!(clean(&records), [Record::Numbered { next_run: 2, n_tasks: 6 }]);
    }
}
