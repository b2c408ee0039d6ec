//! What is kept of a simulated run: the event log, the figures of the summary, and whether the run goes on.

use crate::outcome::{Recorder, Summary};
use eyas_core::event::{Action, Event};
use eyas_core::log::{Header, Line, What};
use eyas_terms::{Outcome, Timestamp};
use serde::Serialize;
use std::io::Write;

/// See the module.
pub(super) struct Record {
    pub recorder: Recorder,
    log: Option<Box<dyn Write>>,
    /// Why a line of the log could not be written: the first one.
    log_failure: Option<String>,
    /// The run has ended, or was refused.
    is_over: bool,
    /// Tasks that have ended.
    n_ended: u64,
    /// The last moment at which there was work under way, as far as anybody looked.
    last_work: Timestamp,
    /// Events that the simulation has handled.
    n_events: u64,
    /// Nodes that were lost.
    n_losses: u64,
    /// Nodes that were there until their walltime ended.
    n_walltimes_ended: u64,
}

impl Record {
    pub fn new(recorder: Recorder, log: Option<Box<dyn Write>>) -> Record {
        Record {
            recorder,
            log,
            log_failure: None,
            is_over: false,
            n_ended: 0,
            last_work: Timestamp(0),
            n_events: 0,
            n_losses: 0,
            n_walltimes_ended: 0,
        }
    }

    pub fn begin_log(&mut self, header: impl FnOnce() -> Header) -> Result<(), String> {
        match &mut self.log {
            Some(log) => write_line(log, &header()),
            None => Ok(()),
        }
    }

    pub fn log_event(&mut self, now: Timestamp, event: &Event) {
        self.log_line(now, || What::In(event.clone()));
    }

    pub fn log_action(&mut self, now: Timestamp, action: &Action) {
        self.log_line(now, || What::Out(action.clone()));
    }

    fn log_line(&mut self, now: Timestamp, what: impl FnOnce() -> What) {
        if let Some(log) = &mut self.log
            && let Err(failure) = write_line(log, &Line { t: now, what: what() })
        {
            self.log_failure.get_or_insert(failure);
        }
    }

    pub fn flush_log(&mut self) -> Result<(), String> {
        if let Some(failure) = self.log_failure.take() {
            return Err(failure);
        }
        match &mut self.log {
            Some(log) => log.flush().map_err(|e| format!("the event log cannot be written: {e}")),
            None => Ok(()),
        }
    }

    /// The simulation handles one more event.
    pub fn count_event(&mut self) {
        self.n_events += 1;
    }

    /// A node was lost.
    pub fn count_loss(&mut self) {
        self.n_losses += 1;
    }

    /// The walltime of a node that was still there has ended.
    pub fn count_walltime(&mut self) {
        self.n_walltimes_ended += 1;
    }

    /// A task that arrived at `arrived` has ended.
    pub fn task_ended(&mut self, now: Timestamp, arrived: Timestamp, outcome: &Outcome) {
        self.n_ended += 1;
        self.recorder.ended(now, arrived, outcome);
        self.saw_work(now);
    }

    /// A task that was done runs again.
    pub fn task_revived(&mut self) {
        self.n_ended -= 1;
        self.recorder.revived();
    }

    /// Tasks that have ended.
    pub fn n_ended(&self) -> u64 {
        self.n_ended
    }

    pub fn run_ended(&mut self) {
        self.is_over = true;
    }

    /// The dispatcher has refused the run, and says why.
    pub fn run_refused(&mut self, why: String) {
        self.recorder.refused(why);
        self.is_over = true;
    }

    /// Whether the run has ended, or was refused.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Work is under way.
    pub fn saw_work(&mut self, now: Timestamp) {
        self.last_work = now;
    }

    /// How long no work has been under way.
    pub fn still_ns(&self, now: Timestamp) -> u64 {
        now.since_ns(self.last_work)
    }

    pub fn finish(self, now: Timestamp) -> Result<Summary, String> {
        self.recorder.finish(now, self.n_events, (self.n_losses, self.n_walltimes_ended))
    }
}

fn write_line(log: &mut Box<dyn Write>, line: &impl Serialize) -> Result<(), String> {
    let failed = |e: String| format!("the event log cannot be written: {e}");
    serde_json::to_writer(&mut *log, line).map_err(|e| failed(e.to_string()))?;
    log.write_all(b"\n").map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preset;
    use crate::workload::all_pairs::{AllPairsConfig, all_pairs};
    use std::io;

    /// A disk that is full for a moment.
    struct FullOnce(bool);

    impl Write for FullOnce {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match std::mem::take(&mut self.0) {
                true => Err(io::Error::new(io::ErrorKind::StorageFull, "no space")),
                false => Ok(bytes.len()),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_the_log_lacks_is_an_error_in_the_end() {
        for is_full in [true, false] {
            let workload = all_pairs(AllPairsConfig { n: 2, item_bytes: 1, compute_ns: 1 }).unwrap();
            let recorder = Recorder::new(&workload, &preset("this-machine").unwrap());
            let mut record = Record::new(recorder, Some(Box::new(FullOnce(is_full))));
            record.log_event(Timestamp(0), &Event::Ticked);
            record.log_event(Timestamp(1), &Event::Ticked);
            assert_eq!(record.flush_log().is_err(), is_full);
        }
    }
}
