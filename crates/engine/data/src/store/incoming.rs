//! An object on its way into the store: its bytes are written and hashed as they arrive, and it is kept only
//! if its digest is the expected one.

use super::arrival::Arrival;
use super::{
    ArrivalEnd, BLOCK_BYTES, OBJECT_MODE, Reservation, Shared, Stored, WRITE_BEHIND_BYTES_MIN, Watched,
    hash_into, mismatch, new_file, reflink, retry,
};
use crate::{Digest, Error, ErrorKind, Result};
use eyas_folder::{UNKNOWN_TIME_NS, holes, time_of};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::{fmt, thread};

/// Blocks between the thread that gets them and the thread that writes them.
const WRITE_BEHIND_BLOCKS: usize = 4;

/// Below this size, asking for a reflink costs more than copying.
const REFLINK_BYTES_MIN: u64 = 64 << 10;

/// An object that is arriving. Bytes are hashed as they are written; dropping it removes them.
pub struct Incoming {
    pub(super) reservation: Reservation,
    written: u64,
    /// Made at the first byte: ten thousand announced objects must not need ten thousand open files.
    open: Option<Box<OpenFile>>,
    /// A write failed, so the bytes on disk are not the bytes that were hashed.
    failed: bool,
    announced: Option<(Digest, Arc<Arrival>)>,
}

/// Which thread of [`Incoming::append_behind`] hashes.
#[derive(Clone, Copy)]
pub(crate) enum HashedBy {
    /// The thread that gets the blocks: reading a file takes less time than writing one.
    Source,
    /// The thread that writes: receiving from a socket takes longer, as the kernel's part of it happens
    /// there, too.
    Writer,
    /// A third thread, while the next block is written.
    Third,
}

/// Bytes in the file of an arriving object, counted among all such bytes of the store.
struct OnDisk {
    shared: Arc<Shared>,
    bytes: AtomicU64,
}

impl OnDisk {
    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shared.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.shared.arriving_bytes.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// Where the bytes of [`Incoming::append_behind`] go: to the file, to the readers behind the writer, and into
/// the hash.
struct Sink<'a> {
    file: &'a File,
    counted: &'a OnDisk,
    arrival: Option<Arc<Arrival>>,
    on_disk: Mutex<u64>,
    hasher: Mutex<&'a mut blake3::Hasher>,
}

impl Sink<'_> {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut on_disk = self.on_disk.lock().expect("only written under this lock");
        holes::append(self.file, bytes)?;
        self.counted.add(bytes.len() as u64);
        *on_disk += bytes.len() as u64;
        if let Some(arrival) = &self.arrival {
            arrival.update(|progress| progress.readable = *on_disk);
        }
        Ok(())
    }

    fn hash(&self, bytes: &[u8]) {
        self.hasher.lock().expect("only hashed under this lock").update(bytes);
    }
}

/// Takes the bytes of [`Incoming::append_behind`].
///
/// A second thread, started when it is given the first block, pays if the source is faster than storing. If
/// the source has to wait for its bytes anyway, the thread only costs wake-ups, and a transfer of the bytes
/// from one processor's cache to another's. So a source that has waited, and finds the writer idle, appends
/// here.
pub(crate) struct Behind<'scope, 'env> {
    scope: &'scope thread::Scope<'scope, 'env>,
    sink: &'env Sink<'env>,
    hashed_by: HashedBy,
    writer: Option<Writer<'scope>>,
    room_bytes: u64,
    n_bytes: u64,
    /// The number of bytes that exceeded the reservation; none of them was written.
    too_many: Option<u64>,
    failure: Option<io::Error>,
}

struct Writer<'scope> {
    full: mpsc::SyncSender<Vec<u8>>,
    /// Blocks that have been written.
    written: mpsc::Receiver<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    thread: thread::ScopedJoinHandle<'scope, io::Result<()>>,
}

impl Writer<'_> {
    fn join(self) -> io::Result<()> {
        drop(self.full);
        self.thread.join().expect("the writer does not panic")
    }
}

impl<'scope> Behind<'scope, '_> {
    /// Whether everything that was given to the writer has been written.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.writer.as_mut().is_none_or(|writer| {
            writer.spare.extend(writer.written.try_iter());
            writer.spare.len() == WRITE_BEHIND_BLOCKS
        })
    }

    /// Writes and hashes `bytes` in this thread, when the writer [is idle](Behind::is_idle). False: storing has failed.
    pub(crate) fn append_here(&mut self, bytes: &[u8]) -> bool {
        if !self.fits(bytes) {
            return false;
        }
        // Readers behind us need the bytes on disk, and nobody waits for the digest.
        match self.sink.write(bytes) {
            Ok(()) => {
                self.sink.hash(bytes);
                true
            }
            Err(error) => {
                self.failure = Some(error);
                false
            }
        }
    }

    /// A block to fill for [`Behind::append`]; waits until one is free. `None`: storing has failed.
    pub(crate) fn spare(&mut self) -> Option<Vec<u8>> {
        if self.writer.is_none() {
            match self.start() {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => {
                    self.failure = Some(error);
                    return None;
                }
            }
        }
        let writer = self.writer.as_mut().expect("started above");
        // The writer closes the channel when it fails.
        writer.spare.pop().or_else(|| writer.written.recv().ok())
    }

    /// Gives a block to the writer. False: storing has failed.
    pub(crate) fn append(&mut self, block: Vec<u8>) -> bool {
        if !self.fits(&block) {
            return false;
        }
        if let HashedBy::Source = self.hashed_by {
            self.sink.hash(&block);
        }
        self.writer.as_ref().is_some_and(|writer| writer.full.send(block).is_ok())
    }

    fn start(&self) -> io::Result<Writer<'scope>> {
        let (full, to_write) = mpsc::sync_channel::<Vec<u8>>(WRITE_BEHIND_BLOCKS);
        let (done, written) = mpsc::channel();
        let (sink, hashed_by) = (self.sink, self.hashed_by);
        let next = match hashed_by {
            HashedBy::Third => self.start_hashing(done)?,
            HashedBy::Source | HashedBy::Writer => done,
        };
        let write_all = move || {
            for block in to_write {
                sink.write(&block)?;
                if let HashedBy::Writer = hashed_by {
                    sink.hash(&block);
                }
                // Fails when no further block is needed.
                let _ = next.send(block);
            }
            Ok(())
        };
        let thread = thread::Builder::new().name("cache-write".into()).spawn_scoped(self.scope, write_all)?;
        Ok(Writer { full, written, spare: vec![Vec::new(); WRITE_BEHIND_BLOCKS], thread })
    }

    /// Starts a thread that hashes the blocks which it is given, and gives them on to `done`. The scope waits for its end.
    fn start_hashing(&self, done: mpsc::Sender<Vec<u8>>) -> io::Result<mpsc::Sender<Vec<u8>>> {
        let (written, to_hash) = mpsc::channel::<Vec<u8>>();
        let sink = self.sink;
        let hash_all = move || {
            for block in to_hash {
                sink.hash(&block);
                let _ = done.send(block);
            }
        };
        thread::Builder::new().name("cache-hash".into()).spawn_scoped(self.scope, hash_all)?;
        Ok(written)
    }

    fn fits(&mut self, bytes: &[u8]) -> bool {
        let n_bytes = bytes.len() as u64;
        if self.n_bytes + n_bytes > self.room_bytes {
            self.too_many = Some(n_bytes);
            return false;
        }
        self.n_bytes += n_bytes;
        true
    }
}

struct OpenFile {
    /// Shared with the readers behind the writer.
    file: Arc<File>,
    path: PathBuf,
    hasher: blake3::Hasher,
    on_disk: OnDisk,
}

impl Incoming {
    pub(super) fn new(reservation: Reservation) -> Incoming {
        Incoming { reservation, written: 0, open: None, failed: false, announced: None }
    }

    /// Bytes that have arrived; a resumed transfer continues from there.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Lets peers read the object, announced as `digest` of `size` bytes, while it arrives. They see how it
    /// ends: put into place, found to have another digest, or dropped.
    ///
    /// [`crate::PeerClient`] announces what it receives. Code that fills an `Incoming` from elsewhere and
    /// knows its digest before may call this at any time. If one object arrives several times at once, the
    /// first arrival is the one that is read; for an object that is held nothing happens.
    pub fn announce(&mut self, digest: Digest, size: u64) {
        if self.announced.is_some() {
            return;
        }
        let shared = &self.reservation.shared;
        let mut state = shared.state();
        if state.held.contains_key(&digest) || state.arriving.contains_key(&digest) {
            return;
        }
        let file = self.open.as_ref().map(|open| Arc::clone(&open.file));
        let arrival = Arc::new(Arrival::new(size, self.written, file));
        state.arriving.insert(digest, Arc::clone(&arrival));
        if state.n_waiting > 0 {
            shared.news.notify_all();
        }
        drop(state);
        self.announced = Some((digest, arrival));
    }

    pub(crate) fn watched(&self) -> Watched {
        Watched(self.announced.as_ref().map(|(_, arrival)| Arc::clone(arrival)))
    }

    /// Drops an object whose bytes are known to be wrong, and informs those who read it while it arrived.
    pub(crate) fn condemn(mut self) {
        self.end_arrival(ArrivalEnd::Corrupt);
    }

    fn end_arrival(&mut self, end: ArrivalEnd) {
        if let Some((digest, arrival)) = self.announced.take() {
            self.reservation.shared.state().arriving.remove(&digest);
            arrival.update(|progress| progress.end = Some(end));
        }
    }

    /// See [`Reservation::grow`].
    pub fn grow(&mut self, more_bytes: u64) -> Result<()> {
        self.reservation.grow(more_bytes)
    }

    /// Appends `bytes`.
    ///
    /// Errors: `OverBudget` beyond the reservation, and nothing is written; `NoSpace` on a full disk. After a
    /// failed write the object can only be dropped.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.reservation.halt.check().map_err(|e| Error::io("store an object", "its bytes", e))?;
        self.room_for(bytes.len() as u64)?;
        let open = self.open_file()?;
        open.hasher.update(bytes);
        let result = holes::append(&open.file, bytes);
        if result.is_ok() {
            open.on_disk.add(bytes.len() as u64);
        }
        self.written_or_failed(bytes.len() as u64, result)
    }

    /// Appends the blocks that `source` gives to the [`Behind`] it is called with, which can write in a
    /// second thread, so that a large object does not take the sum of all steps. `hashed_by` says which
    /// thread has the time to hash.
    ///
    /// Outer error: storing, as in [`Incoming::append`]. Inner error: the error of `source`; all bytes before
    /// it are kept. `source` shall end when it finds that storing has failed.
    pub(crate) fn append_behind(
        &mut self,
        hashed_by: HashedBy,
        source: impl FnOnce(&mut Behind) -> Result<()>,
    ) -> Result<Result<()>> {
        let room_bytes = self.reservation.bytes - self.written;
        let on_disk = self.written;
        let arrival = self.watched().0;
        let OpenFile { file, hasher, on_disk: counted, .. } = self.open_file()?;
        let sink = Sink { file, counted, arrival, on_disk: Mutex::new(on_disk), hasher: Mutex::new(hasher) };
        let (source, n_bytes, too_many, result) = thread::scope(|scope| {
            let mut behind = Behind {
                scope,
                sink: &sink,
                hashed_by,
                writer: None,
                room_bytes,
                n_bytes: 0,
                too_many: None,
                failure: None,
            };
            let source = source(&mut behind);
            let Behind { writer, n_bytes, too_many, failure, .. } = behind;
            let joined = writer.map_or(Ok(()), Writer::join);
            (source, n_bytes, too_many, failure.map_or(joined, Err))
        });
        self.written_or_failed(n_bytes, result)?;
        too_many.map_or(Ok(()), |bytes| self.room_for(bytes))?;
        Ok(source)
    }

    /// Appends the whole of `from`, starting at its beginning. Returns the bytes appended.
    ///
    /// A large file is shared by reflink if the file system supports that. Then the clone is read and hashed,
    /// so that the digest is of the bytes stored even if `from` changes meanwhile.
    pub fn fill_from_file(&mut self, from: &File) -> Result<u64> {
        let fail = |e| Error::io("read a file into the cache", "the source", e);
        let size = from.metadata().map_err(fail)?.len();
        self.room_for(size)?;
        let halt = self.reservation.halt.clone();
        if self.written == 0 && size >= REFLINK_BYTES_MIN {
            let open = self.open_file()?;
            if reflink(from, &open.file) {
                let result = hash_into(&mut open.hasher, &open.file, &halt);
                let bytes = result.as_ref().copied().unwrap_or(0);
                open.on_disk.add(bytes);
                // The source may have grown since its size was read.
                let fits = self.room_for(bytes);
                self.failed |= fits.is_err();
                fits?;
                self.written_or_failed(bytes, result.map(drop))?;
                return Ok(bytes);
            }
        }
        // Read and write are faster than copy_file_range here: the bytes have to be read for hashing anyway,
        // and a block that is still in the second-level cache is hashed and copied from there.
        let mut at = 0;
        let mut read = |block: &mut Vec<u8>| {
            block.resize(BLOCK_BYTES.min(usize::try_from(size).unwrap_or(BLOCK_BYTES).max(1)), 0);
            halt.check().map_err(fail)?;
            let n = retry(|| from.read_at(block, at)).map_err(fail)?;
            block.truncate(n);
            at += n as u64;
            Ok(n > 0)
        };
        if size >= WRITE_BEHIND_BYTES_MIN {
            self.append_behind(HashedBy::Source, |behind| {
                while let Some(mut block) = behind.spare()
                    && read(&mut block)?
                    && behind.append(block)
                {}
                Ok(())
            })??;
        } else {
            let mut block = Vec::new();
            while read(&mut block)? {
                self.append(&block)?;
            }
        }
        Ok(at)
    }

    /// As [`Incoming::finish`]. `times`: see [`Store::keep_times`]; empty if there are none.
    pub fn finish_timed(self, expected: Digest, times: &[i64]) -> Result<Stored> {
        if !times.is_empty() {
            // Before peers may ask for the object. An object without its times is whole all the same.
            let _ = self.reservation.shared.keep_times(&expected, times);
        }
        self.finish(Some(expected))
    }

    /// Completes the object and puts it into place.
    ///
    /// Errors: `DigestMismatch` if the digest is not `expected`; then the bytes are removed.
    pub fn finish(mut self, expected: Option<Digest>) -> Result<Stored> {
        const OPERATION: &str = "store an object";
        if self.failed {
            return Err(Error::new(ErrorKind::Interrupted, OPERATION, "an earlier write failed"));
        }
        self.open_file()?;
        let open = self.open.take().expect("opened above");
        let digest = Digest(*open.hasher.finalize().as_bytes());
        let result = match expected {
            Some(expected) if expected != digest => Err(mismatch(expected, digest, OPERATION)),
            // A write after this shows by another time.
            _ => open
                .file
                .set_modified(time_of(UNKNOWN_TIME_NS))
                .and_then(|()| {
                    let shared = Arc::clone(&self.reservation.shared);
                    shared.place(&open.path, &open.file, digest, self.written, &mut self.reservation)
                })
                .map_err(|e| Error::io(OPERATION, digest.to_string(), e)),
        };
        if result.is_err() {
            discard(&open);
        }
        let announced = self.announced.as_ref().map(|(digest, _)| *digest);
        self.end_arrival(match &result {
            Ok(_) if announced.is_some_and(|announced| announced != digest) => ArrivalEnd::Corrupt,
            Ok(_) => ArrivalEnd::Stored,
            Err(Error { kind: ErrorKind::DigestMismatch { .. }, .. }) => ArrivalEnd::Corrupt,
            Err(_) => ArrivalEnd::GivenUp,
        });
        result
    }

    /// Whether `more_bytes` fit into what is left of the reservation.
    pub(super) fn room_for(&self, more_bytes: u64) -> Result<()> {
        let free_bytes = self.reservation.bytes - self.written;
        if more_bytes <= free_bytes {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::OverBudget { asked_bytes: more_bytes, free_bytes },
            "store an object",
            format!(
                "it has at least {}, and {} reserved for it: it grew meanwhile",
                in_words(self.written + more_bytes),
                match self.reservation.bytes {
                    1 => "1 byte was".into(),
                    n => format!("{n} bytes were"),
                }
            ),
        ))
    }

    fn open_file(&mut self) -> Result<&mut OpenFile> {
        const OPERATION: &str = "store an object";
        if self.failed {
            return Err(Error::new(ErrorKind::Interrupted, OPERATION, "an earlier write failed"));
        }
        if self.open.is_none() {
            let shared = &self.reservation.shared;
            let n = shared.next_incoming.fetch_add(1, Ordering::Relaxed);
            let path = shared.root.join("incoming").join(n.to_string());
            let file = match new_file(&path, OBJECT_MODE) {
                // The folder was removed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => shared
                    .make_again(&shared.root.join("incoming"))
                    .and_then(|()| new_file(&path, OBJECT_MODE)),
                made => made,
            };
            let file = file.map_err(|e| Error::io(OPERATION, path.display().to_string(), e))?;
            let file = Arc::new(file);
            let on_disk = OnDisk { shared: Arc::clone(shared), bytes: AtomicU64::new(0) };
            if let Some((_, arrival)) = &self.announced {
                arrival.update(|progress| progress.file = Some(Arc::clone(&file)));
            }
            self.open = Some(Box::new(OpenFile { file, path, hasher: blake3::Hasher::new(), on_disk }));
        }
        Ok(self.open.as_mut().expect("opened above"))
    }

    fn written_or_failed(&mut self, bytes: u64, result: io::Result<()>) -> Result<()> {
        match result {
            Ok(()) => {
                self.written += bytes;
                if let Some((_, arrival)) = &self.announced {
                    arrival.update(|progress| progress.readable = self.written);
                }
                Ok(())
            }
            Err(e) => {
                self.failed = true;
                let root = self.reservation.shared.root.display().to_string();
                Err(Error::io("store an object", root, e))
            }
        }
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            discard(&open);
        }
        self.end_arrival(ArrivalEnd::GivenUp);
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({} of at most {} bytes)", self.written, self.reservation.bytes)
    }
}

/// `1 byte`, `2 bytes`
fn in_words(bytes: u64) -> String {
    if bytes == 1 { "1 byte".into() } else { format!("{bytes} bytes") }
}

/// Removes an unfinished file. If that fails, the next start removes it.
fn discard(open: &OpenFile) {
    let _ = fs::remove_file(&open.path);
}
