//! eyas-journal: an append-only log of opaque records that survives `kill -9` and power loss.
//!
//! The dispatcher writes submissions, completions and cancellations here before it acknowledges them
//! (promise 1: no finished work is lost). In: bytes. Out: the same bytes, in the same order, after any crash.
//!
//! ```no_run
//! # fn main() -> eyas_journal::Result<()> {
//! use eyas_journal::{Journal, Options};
//! let (journal, recovered) = Journal::open("state/journal".as_ref(), Options::default())?;
//! recovered.for_each(|seq, body| println!("{seq}: {} bytes", body.len()))?;
//! let seq = journal.append(b"task 41 is done")?;
//! journal.wait_durable(seq)?;
//! # Ok(()) }
//! ```
//!
//! Records are numbered from 1 without gaps ([`Seq`]); compaction and restarts do not renumber them.
//!
//! Invariants (tests in `tests/`):
//!   1. recovery gives exactly a prefix of the appended records, with every record that
//!      [`Journal::durable_seq`] ever covered;
//!   2. a record is acknowledged only after an `fdatasync` of all bytes up to its end succeeded (with
//!      [`Sync::Fdatasync`]), and its file's name is durable, too;
//!   3. a torn end is cut off and reported; damage anywhere else is an error that names file and byte, and so is an end
//!      without records that were durable when a process opened or closed the journal;
//!   4. at most one process has a directory open.
//!
//! Why one writer thread: a sync costs the same for one record and for a thousand, so all records that
//! arrive while the disk is busy go into the next batch. Callers of [`Journal::append`] only copy bytes.
//!
//! Memory: two batches of at most [`Options::buffer_bytes_max`] each, however many records there are.
//!
//! Code map: `format` bytes of a file · `files` names, lock · `recover` opening and reading · `writer`
//! group commit and what happens when the disk refuses · `compact` snapshots · `bench` rates.
//!
//! Not here: the meaning of the records, the choice of when to compact.

#![forbid(unsafe_code)]

pub mod bench;
mod compact;
mod crc;
mod error;
mod files;
mod format;
mod recover;
mod writer;

pub use error::{Error, ErrorKind, Result, Status};
pub use format::{BODY_BYTES_MAX, FORMAT_VERSION};
pub use recover::Recovered;

use format::{FRAME_BYTES, MARKER_BYTES, begin_crc, push_record};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use writer::Failure;
use writer::{Shared, Sleeps, State, Writer};

/// Number of a record: 1 for the first ever appended; 0 stands for "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The promise of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// The record survives the end of the process and, as far as the disk tells the truth, a power loss.
    Fdatasync,
    /// The record survives only the end of the process. A power loss may cut off acknowledged records, too;
    /// recovery then reports the end as truncated and not as damage.
    None,
}

/// A report of the journal about itself, sent by its writer thread and in order.
#[derive(Clone, Debug)]
pub enum Notice {
    /// All records up to this one are durable.
    Durable(Seq),
    /// The disk refuses writes; records wait in memory and are tried again. Sent once for each stall.
    Stalled(Stall),
    /// The disk works again. Sent before the [`Notice::Durable`] of the records that had waited.
    Resumed,
}

/// A stall: the failed operation, its time and its reason.
#[derive(Clone, Debug)]
pub struct Stall {
    /// The failed operation, as an infinitive: "write a batch to the journal".
    pub operation: &'static str,
    pub path: PathBuf,
    /// The kind of error of the last try, like `message`; [`io::ErrorKind::StorageFull`] is the usual one.
    pub error_kind: io::ErrorKind,
    pub message: String,
    pub since: Instant,
    pub tries_n: u32,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The same for each try.
        let Stall { operation, path, message, .. } = self;
        write!(f, "cannot {operation} ({}): {message}", path.display())
    }
}

/// How soon waiting records are wanted on the disk.
#[derive(Clone, Copy, PartialEq)]
enum Urgency {
    Now,
    Soon,
}

/// State of the journal.
#[derive(Clone, Debug)]
pub enum Health {
    Good,
    Stalled(Stall),
    Closed,
}

/// A step that changes files, in the sense of [`Options::on_step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    SegmentCreate,
    BatchWrite,
    BatchSync,
    DirSync,
    SegmentDrop,
    Seal,
    SnapshotCreate,
    SnapshotWrite,
    SnapshotSync,
    SnapshotRename,
    SnapshotDirSync,
    SnapshotDrop,
}

/// The options of a journal.
pub struct Options {
    pub sync: Sync,
    /// A segment ends with the batch that reaches this size.
    pub segment_bytes: u64,
    /// The most bytes of records that may wait for the disk, in addition to as many that are being written.
    /// A single larger record is accepted when no record waits.
    pub buffer_bytes_max: usize,
    /// The least time between two commits that no caller asked for; with zero, every waiting record is
    /// committed at once.
    pub commit_interval: Duration,
    /// Time between tries while stalled.
    pub retry_interval: Duration,
    /// Called from the writer thread. It may append and ask; it must not wait for durability, compact or
    /// close.
    pub on_notice: Option<Box<dyn Fn(Notice) + Send + std::marker::Sync>>,
    /// For fault tests: called before each step, which fails with the error that it returns.
    pub on_step: Option<Box<dyn Fn(Step) -> io::Result<()> + Send + std::marker::Sync>>,
}

impl Default for Options {
    /// `fdatasync`, segments of 64 MiB, a buffer of 16 MiB, commits without a pause, a try each second, no
    /// callbacks.
    fn default() -> Self {
        Options {
            sync: Sync::Fdatasync,
            segment_bytes: 64 << 20,
            buffer_bytes_max: 16 << 20,
            commit_interval: Duration::ZERO,
            retry_interval: Duration::from_secs(1),
            on_notice: None,
            on_step: None,
        }
    }
}

/// Counts since the journal was opened, and present sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub appended_n: u64,
    pub batches_n: u64,
    /// Group commits that were made durable with one `fdatasync` each.
    pub fdatasyncs_n: u64,
    pub written_bytes: u64,
    pub segments_n: u64,
    /// Size of all segments, which a compaction could save.
    pub segment_bytes: u64,
    /// Size of the snapshot of the last compaction by this process; 0 before the first.
    pub snapshot_bytes: u64,
}

/// The results of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    pub records_n: u64,
    pub snapshot_bytes: u64,
    pub freed_bytes: u64,
}

/// More than so many bytes do not wait for a commit. The disk works while more of a large submission comes.
const UNCOMMITTED_BYTES_MAX: usize = 1 << 20;

/// An open journal. Threads share it by reference. Dropping it writes the pending records, as
/// [`Journal::close`] does.
pub struct Journal {
    shared: Arc<Shared>,
    /// The last record that the newest snapshot covers; the lock also keeps compactions apart.
    snapshot_covers: Mutex<Option<u64>>,
    writer: Option<JoinHandle<()>>,
    /// The lock of the directory, held for as long as files may be written.
    lock: File,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("dir", &self.shared.dir).field("health", &self.health()).finish()
    }
}

/// Calls `visit` with the records in `dir`, in their order, up to the first that cannot be read, such as one whose write broke off.
/// Nothing in the directory is changed or taken, so what a process writes there at the same time may be missing.
///
/// Fails where the directory or a file of it cannot be read; records before that have been handed out.
pub fn look(dir: &Path, visit: impl FnMut(Seq, &[u8])) -> Result<()> {
    // Nobody knows here how many there are, so an end looks as if others were missing.
    match recover::read(dir, u64::MAX / 2)?.for_each(visit) {
        Err(error) if matches!(error.kind, ErrorKind::Corrupt { .. }) => Ok(()),
        done => done,
    }
}

impl Journal {
    /// Opens the journal in `dir`, creates both if absent, and takes the directory for this process.
    ///
    /// All records of [`Recovered`] are durable by then. Fails with [`ErrorKind::InUse`],
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Version`], [`ErrorKind::NotAJournal`] or [`ErrorKind::Io`].
    pub fn open(dir: &Path, options: Options) -> Result<(Journal, Recovered)> {
        files::create_dir(dir)?;
        let lock = files::lock(dir)?;
        let (found, recovered) = recover::recover(dir, options.sync)?;
        let fail = |source| Error::io("open the journal", dir, source);
        let snapshot_covers = files::list(dir).map_err(fail)?.snapshots.pop();
        let shared = Arc::new(Shared::new(dir.to_owned(), options, &found));
        let for_writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || Writer::new(&for_writer, found).run())
            .map_err(|source| Error::io("start the journal's thread", dir, source))?;
        let journal =
            Journal { shared, snapshot_covers: Mutex::new(snapshot_covers), writer: Some(writer), lock };
        Ok((journal, recovered))
    }

    /// Adds a record and returns its number. Copies the bytes and never waits for the disk.
    ///
    /// Fails with [`ErrorKind::Full`] when too many bytes wait for the disk (the disk is slow or refuses).
    /// The caller then stops accepting work, which is what a dispatcher with an event loop needs. A thread
    /// that can wait uses [`Journal::append_waiting`].
    pub fn append(&self, body: &[u8]) -> Result<Seq> {
        self.push(body, false, true)
    }

    /// As [`Journal::append`], but the record waits for the next [`Journal::commit`] or
    /// [`Journal::commit_soon`], so that many records go to the disk with one sync. The record is written
    /// earlier when the disk is at work anyway, or when a mebibyte waits.
    pub fn append_uncommitted(&self, body: &[u8]) -> Result<Seq> {
        self.push(body, false, false)
    }

    /// As [`Journal::append`], but waits for room, for as long as the disk refuses.
    pub fn append_waiting(&self, body: &[u8]) -> Result<Seq> {
        self.push(body, true, true)
    }

    /// Has the writer thread call this before it writes a batch, when no further record comes into the batch: what its records speak
    /// of can be brought to the disk before them. Where it fails, the journal stalls as if the batch could not be written. It must not
    /// wait for the journal. The first call counts.
    pub fn call_before_writes(
        &self,
        call: impl Fn() -> std::result::Result<(), Failure> + Send + std::marker::Sync + 'static,
    ) {
        let _ = self.shared.before_write.set(Box::new(call));
    }

    /// Asks for all records appended so far to be written now; does not wait for that.
    pub fn commit(&self) {
        let state = self.shared.lock();
        if !state.pending.is_empty() {
            self.wake(state, Urgency::Now);
        }
    }

    /// Asks for all records appended so far to be written at once if the last commit is
    /// [`Options::commit_interval`] ago, otherwise when that time has passed. Does not wait for that.
    pub fn commit_soon(&self) {
        let state = self.shared.lock();
        if !state.pending.is_empty() {
            self.wake(state, Urgency::Soon);
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, State>, urgency: Urgency) {
        state.commit_now |= urgency == Urgency::Now;
        let wake = match state.writer_sleeps {
            Sleeps::No => false,
            Sleeps::Lingers => urgency == Urgency::Now,
            Sleeps::Idle => true,
        };
        if wake {
            state.writer_sleeps = Sleeps::No;
            drop(state);
            self.shared.work.notify_one();
        }
    }

    fn push(&self, body: &[u8], wait: bool, commit: bool) -> Result<Seq> {
        const OPERATION: &str = "append to the journal";
        if body.len() > BODY_BYTES_MAX {
            let kind = ErrorKind::TooLarge { body_bytes: body.len(), body_bytes_max: BODY_BYTES_MAX };
            return Err(Error::new(kind, OPERATION, &self.shared.dir));
        }
        let crc = begin_crc(body);
        let shared = &*self.shared;
        let mut state = shared.lock();
        loop {
            if state.closing {
                return Err(shared.closed_error(OPERATION));
            }
            let bytes = state.pending.len() + FRAME_BYTES + body.len();
            if state.pending.is_empty() || bytes <= shared.options.buffer_bytes_max {
                break;
            }
            // Records that no caller has committed yet may take up the room.
            state.commit_now = true;
            shared.work.notify_one();
            if !wait {
                return Err(Error::new(ErrorKind::Full, OPERATION, &shared.dir));
            }
            state = shared.room.wait(state).expect("as in Shared::lock");
        }
        if state.pending.is_empty() {
            state.pending.resize(MARKER_BYTES, 0);
        }
        let seq = state.next_seq;
        state.next_seq += 1;
        state.stats.appended_n += 1;
        push_record(&mut state.pending, crc, seq, body);
        if commit || state.pending.len() >= UNCOMMITTED_BYTES_MAX {
            self.wake(state, Urgency::Now);
        }
        Ok(Seq(seq))
    }

    /// Number of the last appended record.
    pub fn last_seq(&self) -> Seq {
        Seq(self.shared.lock().next_seq - 1)
    }

    /// The last durable record: all records up to it are durable. The number never goes back.
    pub fn durable_seq(&self) -> Seq {
        Seq(self.shared.lock().durable_seq)
    }

    /// Begins a new segment. Returns the last record of the segments before it: a compaction up to that
    /// record frees all of them.
    pub fn begin_segment(&self) -> Result<Seq> {
        let mut state = self.shared.lock();
        state.roll = true;
        self.shared.work.notify_one();
        while state.roll && !state.ended {
            state = self.shared.progress.wait(state).expect("as in Shared::lock");
        }
        match state.roll {
            true => Err(self.shared.closed_error("begin a segment of the journal")),
            false => Ok(Seq(state.durable_seq)),
        }
    }

    /// The records up to `upto`, including those of a snapshot, as recovery would hand them out. Waits
    /// until they are durable. They must be read before the next [`Journal::compact`].
    pub fn read(&self, upto: Seq) -> Result<Recovered> {
        self.wait_durable(upto)?;
        recover::read(&self.shared.dir, upto.0)
    }

    /// The error for a record that its reader does not understand.
    pub fn cannot_read(&self, why: &str) -> Error {
        let what = format!("a record cannot be read: {why}");
        Error::new(ErrorKind::Invalid { what }, "read the journal", &self.shared.dir)
    }

    /// Waits until the record is durable, for as long as the disk works.
    ///
    /// Fails with [`ErrorKind::Stalled`] when the disk refuses: the record is kept and tried again, and
    /// waiting again is allowed. Fails with [`ErrorKind::Invalid`] for a number that was not given out.
    pub fn wait_durable(&self, seq: Seq) -> Result<()> {
        const OPERATION: &str = "wait for the journal";
        let shared = &*self.shared;
        self.commit();
        let mut state = shared.lock();
        if seq.0 >= state.next_seq {
            let what = format!("record {seq} does not exist yet");
            return Err(Error::new(ErrorKind::Invalid { what }, OPERATION, &shared.dir));
        }
        while state.durable_seq < seq.0 {
            if let Some(stall) = &state.stall {
                return Err(Error {
                    kind: ErrorKind::Stalled,
                    operation: OPERATION,
                    path: stall.path.clone(),
                    source: Some(io::Error::new(stall.error_kind, stall.message.clone())),
                });
            }
            if state.ended {
                return Err(shared.closed_error(OPERATION));
            }
            state = shared.progress.wait(state).expect("as in Shared::lock");
        }
        Ok(())
    }

    /// Waits until all appended records are durable; see [`Journal::wait_durable`].
    pub fn flush(&self) -> Result<()> {
        self.wait_durable(self.last_seq())
    }

    /// Whether the disk accepts records.
    pub fn health(&self) -> Health {
        self.shared.lock().health()
    }

    /// Tries the refused write again now, without waiting for [`Options::retry_interval`]. Does not wait
    /// for the result.
    pub fn retry(&self) {
        let mut state = self.shared.lock();
        if state.stall.is_some() {
            state.retry_now = true;
            self.shared.work.notify_one();
        }
    }

    pub fn stats(&self) -> Stats {
        self.shared.lock().stats
    }

    /// Writes the pending records, with one more try if the disk refuses, and releases the directory.
    ///
    /// Fails with [`ErrorKind::Stalled`] if records were left that are not durable. These records are lost,
    /// and none of them had been acknowledged.
    pub fn close(mut self) -> Result<()> {
        self.end();
        self.flush()
    }

    fn end(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
        self.shared.room.notify_all();
        // A writer that panicked has printed the reason, and has marked the journal as ended.
        let _ = writer.join();
        if self.shared.options.sync == Sync::Fdatasync {
            files::set_reached(&self.shared.dir, self.durable_seq().0);
        }
        // The lock is released explicitly, because a child between `fork` and `exec` has a copy of the
        // descriptor. Closing ours would not release the lock.
        let _ = self.lock.unlock();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}
