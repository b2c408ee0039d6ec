//! The writer thread: all pending records become one write and one `fdatasync` (group commit).
//!
//! In: the batch that [`crate::Journal::append`] fills under the lock. Out: files, `durable_seq`, notices.
//! Batches form by themselves: while the disk works on one batch the next one collects, so a slow disk
//! makes larger batches and not a longer queue. If no caller is in a hurry, [`Options::commit_interval`]
//! makes them larger still, because a sync costs processor time, too, as much for one record as for
//! hundreds.
//!
//! When the disk refuses, the batch stays in memory and is tried again, always the same bytes in the same
//! order, so nothing is lost or overtaken and nothing is acknowledged that is not durable:
//!   - a failed *write* (full disk) leaves a partial tail: it is cut off at the last durable byte and the
//!     next try writes at the same place;
//!   - a failed *fdatasync* is different. Linux may mark the pages clean although they never reached the
//!     disk, and a second `fdatasync` of the same file would then say that all is well. So that file is never
//!     written again: the batch goes, from memory, into a new segment. What the old one holds beyond its
//!     last durable byte is cut off if possible, and ignored by recovery if not.
//!
//! Not here: reading (`recover`), snapshots (`compact`).

use crate::error::{Error, ErrorKind};
use crate::files;
use crate::format::{HEADER_BYTES, Header, Kind, MARKER_BYTES, Marker};
use crate::recover::{Closed, Current, FoundState};
use crate::{Health, Notice, Options, Seq, Stall, Stats, Step, Sync};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

/// The state that the callers and the writer share.
pub(crate) struct Shared {
    pub dir: PathBuf,
    pub options: Options,
    /// See [`crate::Journal::call_before_writes`].
    pub before_write: OnceLock<Box<dyn Fn() -> std::result::Result<(), Failure> + Send + std::marker::Sync>>,
    state: Mutex<State>,
    /// The writer waits here for work.
    pub work: Condvar,
    /// Callers wait here for room in the batch.
    pub room: Condvar,
    /// Callers wait here for `durable_seq`, `dropped_upto`, a stall or the end.
    pub progress: Condvar,
}

pub(crate) struct State {
    /// The batch that is being collected: room for a marker, then frames. Empty if there is no record in
    /// it.
    pub pending: Vec<u8>,
    pub next_seq: u64,
    pub durable_seq: u64,
    /// Segments whose records all lie up to this number are to be removed; `dropped_upto`: these have been
    /// removed.
    pub drop_upto: u64,
    pub dropped_upto: u64,
    /// The next record must begin a segment.
    pub roll: bool,
    /// Bytes that removals have given back since the start.
    pub dropped_bytes: u64,
    pub stall: Option<Stall>,
    pub retry_now: bool,
    /// No more appends are accepted; the writer ends when it has written all records.
    pub closing: bool,
    /// The writer has ended.
    pub ended: bool,
    pub writer_sleeps: Sleeps,
    /// The pending records must not wait for [`Options::commit_interval`].
    pub commit_now: bool,
    pub stats: Stats,
}

/// Whether the writer waits for work.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Sleeps {
    No,
    /// The writer waits until [`Options::commit_interval`] after the last commit is over, then it looks for
    /// work by itself.
    Lingers,
    Idle,
}

impl Shared {
    pub fn new(dir: PathBuf, options: Options, found: &FoundState) -> Self {
        let mut stats = Stats { segments_n: found.closed.len() as u64, ..Stats::default() };
        stats.segment_bytes = found.closed.iter().map(|segment| segment.file_bytes).sum();
        if let Some(current) = &found.current {
            stats.segments_n += 1;
            stats.segment_bytes += current.good_bytes;
        }
        let state = State {
            pending: Vec::new(),
            next_seq: found.last_seq + 1,
            durable_seq: found.last_seq,
            drop_upto: 0,
            dropped_upto: 0,
            roll: false,
            dropped_bytes: 0,
            stall: None,
            retry_now: false,
            closing: false,
            ended: false,
            writer_sleeps: Sleeps::No,
            commit_now: false,
            stats,
        };
        Shared {
            dir,
            options,
            before_write: OnceLock::new(),
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            progress: Condvar::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the journal's state")
    }

    /// Calls the hook for fault tests with a step; the hook may make the step fail.
    pub fn step(&self, step: Step) -> io::Result<()> {
        self.options.on_step.as_ref().map_or(Ok(()), |hook| hook(step))
    }

    pub fn closed_error(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::Closed, operation, &self.dir)
    }
}

impl State {
    pub fn health(&self) -> Health {
        match (&self.stall, self.ended) {
            (Some(stall), _) => Health::Stalled(stall.clone()),
            (None, true) => Health::Closed,
            (None, false) => Health::Good,
        }
    }
}

/// A failed step of the writer.
pub struct Failure {
    /// As an infinitive: "write a batch to the journal".
    pub operation: &'static str,
    pub path: PathBuf,
    pub error: io::Error,
}

impl Failure {
    fn at(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
        let path = path.to_owned();
        move |error| Failure { operation, path, error }
    }
}

/// The writer's next work.
enum WriterWork {
    /// Begin a segment.
    Roll,
    Drop {
        upto: u64,
    },
    Commit {
        is_last_try: bool,
    },
    End,
}

pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    closed: Vec<Closed>,
    current: Option<Current>,
    /// The batch that is being written or waits to be tried again, and its last record.
    batch: Vec<u8>,
    batch_last_seq: u64,
    durable_seq: u64,
    retry_at: Option<Instant>,
    /// Before this time the next batch is committed only if a caller wants it now.
    linger_until: Option<Instant>,
}

/// Marks the writer as ended however it ends, so that no caller waits for it for ever.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closing = true;
        state.ended = true;
        drop(state);
        self.0.room.notify_all();
        self.0.progress.notify_all();
    }
}

impl<'a> Writer<'a> {
    pub fn new(shared: &'a Shared, found: FoundState) -> Self {
        Writer {
            shared,
            closed: found.closed,
            current: found.current,
            batch: Vec::new(),
            batch_last_seq: found.last_seq,
            durable_seq: found.last_seq,
            retry_at: None,
            linger_until: None,
        }
    }

    /// The main loop of the writer thread.
    pub fn run(mut self) {
        let _ended = Ended(self.shared);
        loop {
            match self.next_work() {
                WriterWork::Drop { upto } => self.drop_covered(upto),
                WriterWork::Roll => self.roll(),
                WriterWork::Commit { is_last_try } => match self.commit() {
                    Ok(()) => self.on_committed(),
                    Err(failure) => {
                        self.on_failed(failure);
                        if is_last_try {
                            return;
                        }
                    }
                },
                WriterWork::End => {
                    self.seal();
                    return;
                }
            }
        }
    }

    fn next_work(&mut self) -> WriterWork {
        let shared = self.shared;
        let mut state = shared.lock();
        loop {
            if state.drop_upto > state.dropped_upto {
                return WriterWork::Drop { upto: state.drop_upto };
            }
            self.linger_until = self.linger_until.filter(|&until| Instant::now() < until);
            if self.batch.is_empty() {
                if state.roll {
                    return WriterWork::Roll;
                }
                let in_time = self.linger_until.is_none() || state.commit_now || state.closing;
                if !state.pending.is_empty() && in_time {
                    state.commit_now = false;
                    // The emptied batch is used again, so that nothing is allocated in the long run.
                    std::mem::swap(&mut self.batch, &mut state.pending);
                    self.batch_last_seq = state.next_seq - 1;
                    shared.room.notify_all();
                    return WriterWork::Commit { is_last_try: state.closing };
                }
                if state.closing {
                    return WriterWork::End;
                }
            } else if state.retry_now || state.closing || self.retry_at.is_some_and(|at| Instant::now() >= at)
            {
                state.retry_now = false;
                return WriterWork::Commit { is_last_try: state.closing };
            }
            let wake_at = if self.batch.is_empty() { self.linger_until } else { self.retry_at };
            state.writer_sleeps = if wake_at.is_some() { Sleeps::Lingers } else { Sleeps::Idle };
            state = match wake_at {
                None => shared.work.wait(state).expect("as in Shared::lock"),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    shared.work.wait_timeout(state, left).expect("as in Shared::lock").0
                }
            };
            state.writer_sleeps = Sleeps::No;
        }
    }

    /// Makes one try to write the batch durably. After a failure the files are as good as before.
    fn commit(&mut self) -> Result<(), Failure> {
        if let Some(call) = self.shared.before_write.get() {
            call()?;
        }
        // A segment is named by its first record, so an empty one needs no successor.
        let is_full = |current: &mut Current| {
            current.good_bytes >= self.shared.options.segment_bytes && current.last_seq >= current.first_seq
        };
        if let Some(full) = self.current.take_if(is_full) {
            self.close(full);
        }
        match self.current.take() {
            Some(current) => self.commit_to(current, false),
            None => {
                let current = self.create_segment()?;
                self.commit_to(current, true)
            }
        }
    }

    /// Creates a segment for the records after the durable ones; its header is not yet written.
    fn create_segment(&self) -> Result<Current, Failure> {
        let first_seq = self.durable_seq + 1;
        let path = files::segment_path(&self.shared.dir, first_seq);
        let create = || {
            self.shared.step(Step::SegmentCreate)?;
            // A file of this name is from a try that failed: the file begins with a record that is not
            // durable.
            files::remove(&path)?;
            files::create_new(&path)
        };
        let file = create().map_err(Failure::at("create a journal segment", &path))?;
        Ok(Current { file, path, first_seq, last_seq: self.durable_seq, good_bytes: 0, sealed: false })
    }

    fn commit_to(&mut self, mut current: Current, is_new: bool) -> Result<(), Failure> {
        let synced = self.shared.options.sync == Sync::Fdatasync;
        let start_bytes = if is_new { HEADER_BYTES } else { current.good_bytes };
        let marker = Marker {
            own_offset: start_bytes,
            synced_bytes: if synced { current.good_bytes } else { 0 },
            next_seq: self.durable_seq + 1,
        };
        self.batch[..MARKER_BYTES].copy_from_slice(&marker.encode());

        let write = |file: &File| {
            self.shared.step(Step::BatchWrite)?;
            if is_new {
                let header = Header { kind: Kind::Segment, seq: current.first_seq, records_n: 0 };
                file.write_all_at(&header.encode(), 0)?;
            }
            file.write_all_at(&self.batch, start_bytes)
        };
        if let Err(error) = write(&current.file) {
            let failure = Failure::at("write a batch to the journal", &current.path)(error);
            // Cutting the partial tail off also gives its space back. If this fails as well, the segment is
            // left.
            if is_new || current.file.set_len(current.good_bytes).is_err() {
                self.abandon(current);
            } else {
                self.current = Some(current);
            }
            return Err(failure);
        }
        if synced {
            let sync = || {
                self.shared.step(Step::BatchSync)?;
                current.file.sync_data()?;
                if is_new {
                    self.shared.step(Step::DirSync)?;
                    files::sync_dir(&self.shared.dir)?;
                }
                Ok(())
            };
            if let Err(error) = sync() {
                let failure = Failure::at("make a batch of the journal durable", &current.path)(error);
                self.abandon(current);
                return Err(failure);
            }
        }
        current.good_bytes = start_bytes + self.batch.len() as u64;
        current.last_seq = self.batch_last_seq;
        current.sealed = false;
        self.current = Some(current);
        Ok(())
    }

    /// Never writes this segment again; see the module's header for why.
    fn abandon(&mut self, current: Current) {
        if current.last_seq < current.first_seq {
            // No record in the file is durable. If the file cannot be removed now, it is removed before its
            // successor is created.
            let _ = files::remove(&current.path);
        } else {
            // This only tidies up: recovery ignores all bytes beyond the place where the next segment
            // begins.
            let _ = current.file.set_len(current.good_bytes);
            self.close(current);
        }
    }

    fn close(&mut self, current: Current) {
        let Current { path, last_seq, good_bytes, .. } = current;
        self.closed.push(Closed { path, last_seq, file_bytes: good_bytes });
    }

    fn on_committed(&mut self) {
        self.durable_seq = self.batch_last_seq;
        self.retry_at = None;
        let interval = self.shared.options.commit_interval;
        self.linger_until = (!interval.is_zero()).then(|| Instant::now() + interval);
        let mut state = self.shared.lock();
        state.durable_seq = self.durable_seq;
        let was_stalled = state.stall.take().is_some();
        state.stats.batches_n += 1;
        if self.shared.options.sync == Sync::Fdatasync {
            state.stats.fdatasyncs_n += 1;
        }
        state.stats.written_bytes += self.batch.len() as u64;
        self.update_sizes(&mut state);
        drop(state);
        self.shared.progress.notify_all();
        self.batch.clear();
        if was_stalled {
            self.notify(Notice::Resumed);
        }
        self.notify(Notice::Durable(Seq(self.durable_seq)));
    }

    fn on_failed(&mut self, failure: Failure) {
        let now = Instant::now();
        self.retry_at = Some(now + self.shared.options.retry_interval);
        let mut state = self.shared.lock();
        let before = state.stall.take();
        let stall = Stall {
            operation: failure.operation,
            path: failure.path,
            error_kind: failure.error.kind(),
            message: failure.error.to_string(),
            since: before.as_ref().map_or(now, |before| before.since),
            tries_n: before.as_ref().map_or(0, |before| before.tries_n) + 1,
        };
        state.stall = Some(stall.clone());
        self.update_sizes(&mut state);
        drop(state);
        self.shared.progress.notify_all();
        if before.is_none() {
            self.notify(Notice::Stalled(stall));
        }
    }

    /// Called without the lock, so that the callback may append and ask.
    fn notify(&self, notice: Notice) {
        if let Some(on_notice) = &self.shared.options.on_notice {
            on_notice(notice);
        }
    }

    fn update_sizes(&self, state: &mut State) {
        let current_bytes = self.current.as_ref().map(|current| current.good_bytes);
        state.stats.segments_n = self.closed.len() as u64 + u64::from(current_bytes.is_some());
        state.stats.segment_bytes =
            self.closed.iter().map(|segment| segment.file_bytes).sum::<u64>() + current_bytes.unwrap_or(0);
    }

    /// Ends the current segment, so that the records so far have segments of their own.
    fn roll(&mut self) {
        if let Some(full) = self.current.take_if(|current| current.last_seq >= current.first_seq) {
            self.close(full);
        }
        self.shared.lock().roll = false;
        self.shared.progress.notify_all();
    }

    /// Removes the segments that a snapshot replaces, oldest first, so that a crash leaves no gap.
    fn drop_covered(&mut self, upto: u64) {
        if let Some(covered) = self.current.take_if(|current| current.last_seq <= upto) {
            self.close(covered);
        }
        let mut dropped_bytes = 0;
        while let Some(segment) = self.closed.first().filter(|segment| segment.last_seq <= upto) {
            let removed = self.shared.step(Step::SegmentDrop).and_then(|()| files::remove(&segment.path));
            if removed.is_err() {
                // Harmless: recovery ignores and removes the segment, and the next compaction tries again.
                break;
            }
            dropped_bytes += self.closed.remove(0).file_bytes;
        }
        let mut state = self.shared.lock();
        state.dropped_upto = upto;
        state.dropped_bytes += dropped_bytes;
        self.update_sizes(&mut state);
        drop(state);
        self.shared.progress.notify_all();
    }

    /// Ends the segment with a marker: it proves that the last batch was durable, so that later damage in it
    /// cannot be taken for a torn write. Without it nothing is lost, hence no error.
    fn seal(&mut self) {
        let Some(current) = self.current.take_if(|current| !current.sealed) else { return };
        if self.shared.options.sync == Sync::None {
            return;
        }
        let marker = Marker {
            own_offset: current.good_bytes,
            synced_bytes: current.good_bytes,
            next_seq: self.durable_seq + 1,
        };
        let written = self
            .shared
            .step(Step::Seal)
            .and_then(|()| current.file.write_all_at(&marker.encode(), current.good_bytes))
            .and_then(|()| current.file.sync_data());
        if written.is_err() {
            let _ = current.file.set_len(current.good_bytes);
        }
    }
}
