//! Runs, and submissions that were added to runs.

use eyas_terms::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    pub name: String,
    pub opened: Timestamp,
    /// When its tasks could start: all of it had arrived, or it had been started before that.
    pub committed: Option<Timestamp>,
    /// All of the submission has arrived.
    pub is_complete: bool,
    pub ended: Option<Timestamp>,
    pub n_tasks: u64,
    /// The submission broke off or was refused; none of its tasks exist.
    pub aborted: bool,
}

impl RunRecord {
    /// Its tasks exist.
    pub fn is_accepted(&self) -> bool {
        self.committed.is_some() && !self.aborted
    }
}

#[derive(Debug, Default)]
pub struct Runs {
    records: BTreeMap<RunId, RunRecord>,
    /// Submissions that are added to a run, and to which.
    into: BTreeMap<RunId, RunId>,
}

impl Runs {
    /// All runs, and the submissions to runs that are not complete yet.
    pub fn records(&self) -> &BTreeMap<RunId, RunRecord> {
        &self.records
    }

    pub(crate) fn into_records(self) -> BTreeMap<RunId, RunRecord> {
        self.records
    }

    /// The run that a submission is added to; the submission itself where it is a run.
    pub fn whole_of(&self, run: RunId) -> RunId {
        self.into.get(&run).copied().unwrap_or(run)
    }

    /// Whether the tasks of a submission exist.
    pub fn is_accepted(&self, submission: RunId) -> bool {
        match self.records.get(&submission) {
            Some(record) => record.committed.is_some(),
            None => self.into.contains_key(&submission),
        }
    }

    /// The run that was submitted last.
    pub fn newest(&self) -> Option<RunId> {
        newest(&self.records)
    }

    pub(super) fn open(&mut self, t: Timestamp, run: RunId, name: &str, into: Option<RunId>) {
        self.into.extend(into.map(|whole| (run, whole)));
        let fresh = || RunRecord { opened: t, ..RunRecord::default() };
        let record = self.records.entry(run).or_insert_with(fresh);
        record.name = name.to_owned();
        record.n_tasks = 0;
        record.aborted = false;
    }

    pub(super) fn add_tasks(&mut self, run: RunId, n_tasks: u32) {
        self.records.entry(run).or_default().n_tasks += u64::from(n_tasks);
    }

    pub(super) fn start(&mut self, t: Timestamp, run: RunId) {
        self.records.entry(run).or_default().committed.get_or_insert(t);
    }

    /// Returns the run whose tasks those of the submission are from now on.
    pub(super) fn commit(&mut self, t: Timestamp, run: RunId) -> RunId {
        match self.into.get(&run).copied() {
            Some(whole) => {
                let added = self.records.remove(&run).unwrap_or_default();
                self.records.entry(whole).or_default().n_tasks += added.n_tasks;
                whole
            }
            None => {
                let record = self.records.entry(run).or_default();
                record.committed.get_or_insert(t);
                record.is_complete = true;
                run
            }
        }
    }

    pub(super) fn abort(&mut self, run: RunId) {
        self.records.entry(run).or_default().aborted = true;
    }

    pub(super) fn end(&mut self, t: Timestamp, run: RunId) {
        self.records.entry(run).or_default().ended.get_or_insert(t);
    }

    /// Some of its ends have not happened.
    pub(super) fn reopen(&mut self, run: RunId) {
        if let Some(record) = self.records.get_mut(&run) {
            record.ended = None;
        }
    }
}

/// The run of `records` that was submitted last.
pub(crate) fn newest(records: &BTreeMap<RunId, RunRecord>) -> Option<RunId> {
    records.iter().rev().find(|(_, record)| record.is_accepted()).map(|(run, _)| *run)
}
