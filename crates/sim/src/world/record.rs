//! What is kept of a simulated run: the event log, the figures of the summary, and whether the run goes on.

use crate::outcome::{Recorder, Summary};
use eyas_core::Timestamp;
use eyas_core::event::{Action, Event};
use eyas_core::log::{Header, Line, What};
use serde::Serialize;
use std::io::Write;

/// See the module.
pub(super) struct Record {
    pub recorder: Recorder,
    log: Option<Box<dyn Write>>,
    /// Why a line of the log could not be written: the first one.
    log_failure: Option<String>,
    /// The run has ended, or was refused.
    pub is_over: bool,
    /// Tasks that have ended.
    pub n_ended: u64,
    /// Since then nothing has happened.
    pub still_since: Timestamp,
    pub n_events: u64,
    pub n_losses: u64,
}

impl Record {
    pub fn new(recorder: Recorder, log: Option<Box<dyn Write>>) -> Record {
        Record {
            recorder,
            log,
            log_failure: None,
            is_over: false,
            n_ended: 0,
            still_since: Timestamp(0),
            n_events: 0,
            n_losses: 0,
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

    pub fn finish(self, now: Timestamp) -> Result<Summary, String> {
        self.recorder.finish(now, self.n_events, self.n_losses)
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
