//! Which executor a number means in each life, and when executors were there.

use eyas_core::event::Offer;
use eyas_terms::processors::ProcessorUse;
use eyas_terms::*;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub struct ExecutorRecord {
    pub name: String,
    pub slots: u32,
    pub cache_bytes: u64,
    pub cache_memory_bytes: u64,
    /// When it was there; the last one is open while it still is.
    pub present: Vec<(Timestamp, Option<Timestamp>)>,
    /// Of that: when its connection was broken. Most that are silent have ended and are only given up later.
    pub silent: Vec<(Timestamp, Option<Timestamp>)>,
    /// How often it was lost or left.
    pub n_losses: u32,
    /// How busy its processors were, each value from its time on.
    pub processors: Vec<(Timestamp, ProcessorUse)>,
    /// The life in which it was last welcomed.
    pub(crate) life: usize,
}

impl ExecutorRecord {
    /// Ends its silence, if it was silent.
    fn is_heard(&mut self, t: Timestamp) {
        if let Some((_, until @ None)) = self.silent.last_mut() {
            *until = Some(t);
        }
    }
}

#[derive(Debug, Default)]
pub struct Executors {
    records: Vec<ExecutorRecord>,
    /// Executors of this life.
    rows: FxHashMap<ExecutorId, usize>,
    /// Executors of this life that were lost: the last row of each.
    lost: FxHashMap<ExecutorId, usize>,
    /// Executors that were there when the last life ended and have not come back yet.
    away: BTreeSet<usize>,
}

impl Executors {
    /// All executors, by row. One that was lost and joins again has a second row.
    pub fn records(&self) -> &[ExecutorRecord] {
        &self.records
    }

    pub(crate) fn into_records(self) -> Vec<ExecutorRecord> {
        self.records
    }

    /// The row of an executor of this life that is not lost.
    pub fn find_row(&self, executor: ExecutorId) -> Option<usize> {
        self.rows.get(&executor).copied()
    }

    /// The name of an executor of this life, whether it is there or was lost.
    pub(super) fn find_name(&self, executor: ExecutorId) -> Option<&str> {
        let row = self.rows.get(&executor).or_else(|| self.lost.get(&executor))?;
        Some(&self.records[*row].name)
    }

    /// Whether the executor was welcomed in this life.
    pub(super) fn is_of_life(&self, row: usize, life: usize) -> bool {
        self.records[row].life == life
    }

    pub(super) fn begin_life(&mut self) {
        self.away.extend(self.rows.drain().map(|(_, row)| row));
        self.lost.clear();
    }

    /// The same executor connected again.
    pub(super) fn return_to(&mut self, row: usize, t: Timestamp, offer: &Offer) {
        let record = &mut self.records[row];
        record.is_heard(t);
        record.slots = offer.slots;
        record.cache_bytes = offer.cache_bytes;
        record.cache_memory_bytes = offer.cache_memory_bytes;
    }

    /// An executor under a number that is new in this life. Returns its row.
    ///
    /// * `before`: when the earlier life fell silent.
    pub(super) fn come(
        &mut self,
        t: Timestamp,
        life: usize,
        before: Timestamp,
        executor: ExecutorId,
        offer: &Offer,
    ) -> usize {
        let returns = self.away.iter().copied().find(|row| self.records[*row].name == offer.name);
        let row = match returns {
            Some(row) => {
                self.away.remove(&row);
                self.return_to(row, t, offer);
                let record = &mut self.records[row];
                // A process that was welcomed by an earlier dispatcher was there all the time; a new one was not.
                if offer.owner.is_none()
                    && let Some((_, left @ None)) = record.present.last_mut()
                {
                    *left = Some(before);
                    record.present.push((t, None));
                }
                record.life = life;
                row
            }
            None => {
                self.records.push(ExecutorRecord {
                    name: offer.name.clone(),
                    slots: offer.slots,
                    cache_bytes: offer.cache_bytes,
                    cache_memory_bytes: offer.cache_memory_bytes,
                    present: vec![(t, None)],
                    silent: vec![],
                    n_losses: 0,
                    processors: vec![],
                    life,
                });
                self.records.len() - 1
            }
        };
        self.rows.insert(executor, row);
        row
    }

    pub(super) fn note_processors(&mut self, t: Timestamp, executor: ExecutorId, used: ProcessorUse) {
        if let Some(row) = self.find_row(executor) {
            self.records[row].processors.push((t, used));
        }
    }

    pub(super) fn fall_silent(&mut self, t: Timestamp, executor: ExecutorId) {
        if let Some(row) = self.find_row(executor) {
            self.records[row].is_heard(t);
            self.records[row].silent.push((t, None));
        }
    }

    /// Returns the row of an executor that was there.
    pub(super) fn lose(&mut self, t: Timestamp, executor: ExecutorId) -> Option<usize> {
        let row = self.rows.remove(&executor)?;
        self.lost.insert(executor, row);
        let record = &mut self.records[row];
        record.is_heard(t);
        record.n_losses += 1;
        if let Some((_, left)) = record.present.last_mut() {
            left.get_or_insert(t);
        }
        Some(row)
    }

    /// Executors that have not come back left when their life fell silent.
    ///
    /// * `lasts`: time of the last line of each life.
    pub(super) fn close(&mut self, lasts: &[Timestamp]) {
        for &row in &self.away {
            let record = &mut self.records[row];
            if let Some((_, left)) = record.present.last_mut() {
                left.get_or_insert(lasts[record.life]);
            }
        }
    }
}
