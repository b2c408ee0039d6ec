//! The cache directory of a node: immutable objects named by their digest, within a hard budget.
//!
//! ```text
//! <dir>/cache/lock                       held (flock) by the one process that uses the directory
//! <dir>/cache/objects/<2 hex>/<digest>   an object: complete, renamed into place
//! <dir>/cache/times/<digest>             the times in an object that is a directory
//! <dir>/cache/incoming/<n>               an object that is still arriving; removed at the next start
//! ```
//!
//! The directory is the truth: [`Store::open`] lists it by names and sizes, without hashing.
//!
//! Invariants:
//!   1. bytes held + bytes reserved <= budget, at every moment, for every interleaving of threads. (After a
//!      start with a lower budget, nothing is granted until the sum is within the budget);
//!   2. every object under `objects/` was hashed while it was written, or hashed in place by `adopt`;
//!   3. an object with another size or mtime than the store knows of is not handed out.
//!
//! Programs see objects as hard links, so they see the object's mtime and mode, and may write to it. What they are to see is set
//! when an object is linked ([`Store::show`]): the mtime that it has at home, and a mode with which copies that programs make
//! are as writable as other files. The store remembers both, and a write moves the mtime.
//!
//! A program can also set the mtime back. The process that runs programs watches which objects they open for
//! writing, and reports them: [`Store::condemn`] for an object that was written to, [`Store::doubt`] for an
//! object that may have been, which is then hashed before its next use. Nobody watched the objects while the
//! cache was closed, so each one that is found when it is opened is doubted, too.
//!
//! An object that is still arriving can be announced ([`Incoming::announce`]): peers then read the bytes that are
//! there ([`Store::await_arrival`]) and learn at the end whether the whole was verified.
//!
//! Nothing is flushed with fsync: an object that a cache loses in a power cut is fetched again.
//!
//! Not here: which object to evict, pins, where bytes come from. `remove` of an object that a sandbox still
//! links to frees budget but no disk; the core's pins keep that from happening.

mod arrival;
mod incoming;
mod memory;

use crate::{Digest, Error, ErrorKind, Halt, Result};
use arrival::{Arrival, Progress};
use eyas_folder::holes;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::{fmt, thread};

pub(crate) use arrival::{ArrivalEnd, ArrivalReader, Begun, Watched};
pub(crate) use incoming::HashedBy;
pub use incoming::Incoming;
pub use memory::InMemory;

/// Bytes moved per system call. It fits the second-level cache of a core, so that hashing a block that was
/// just read costs no memory traffic.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// From this size on, blocks are written by a second thread. Starting one costs some 50 µs, writing this much
/// 2 ms.
pub(crate) const WRITE_BEHIND_BYTES_MIN: u64 = 4 << 20;

/// Until somebody is shown the object.
const OBJECT_MODE: u32 = 0o644;

/// How long a killed owner may take to be gone; more than milliseconds only on a busy machine.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The longest time that a waiting thread sleeps before it checks whether somebody still wants it to wait.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(100);

/// A cache directory, open. Clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    /// `<dir>/cache`
    root: PathBuf,
    budget_bytes: u64,
    next_incoming: AtomicU64,
    /// Bytes on disk that belong to arriving objects.
    arriving_bytes: AtomicU64,
    state: Mutex<State>,
    /// Notified, with the lock of `state`, of each object that is announced or put into place while a thread
    /// waits.
    news: Condvar,
    /// Notified, with the lock of `state`, when the reading of a doubted object has ended.
    settled: Condvar,
    /// One lock for each directory under `objects/`, taken before `state`: a rename or unlink may wait long
    /// for a busy disk, and must not keep other threads from reserving and looking up. The value says whether
    /// the directory exists: it is made when needed, because a short run on a busy disk would wait longer for
    /// 256 directories than for its work.
    shelves: [Mutex<bool>; 256],
    /// Holds the flock for as long as the store, a reservation or an incoming object lives.
    _lock: File,
}

#[derive(Default)]
struct State {
    /// Looked up by digest only; the order of iteration never leaves this file unsorted.
    held: HashMap<Digest, HeldFile>,
    held_bytes: u64,
    reserved_bytes: u64,
    /// Objects whose times are kept, see [`Store::keep_times`].
    timed: HashSet<Digest>,
    /// Objects that are announced and have not ended.
    arriving: HashMap<Digest, Arc<Arrival>>,
    /// The number of threads that wait for `news`: a notification costs a system call, so it is sent only if
    /// a thread waits.
    n_waiting: usize,
    /// Doubted objects that a thread reads through at this moment.
    being_read: HashSet<Digest>,
}

#[derive(Clone, Copy)]
struct HeldFile {
    size: u64,
    mtime: Mtime,
    /// What [`Store::show`] was last asked for; `mtime` may be less exact, as the file system has it.
    shown: Option<(Mtime, u32)>,
    /// `false` for an object whose bytes are in doubt: it is hashed before its next use.
    checked: bool,
    /// How often the object was doubted, so that a hash from before the latest doubt does not clear that
    /// doubt.
    n_doubts: u32,
}

impl HeldFile {
    fn is_condemned(&self) -> bool {
        self.mtime == CONDEMNED
    }
}

/// A value that no file's mtime has, for an object that is not handed out whatever its file's mtime is.
const CONDEMNED: Mtime = Mtime { s: i64::MIN, ns: -1 };

#[derive(Clone, Copy, PartialEq, Eq)]
struct Mtime {
    s: i64,
    ns: i64,
}

impl Mtime {
    fn of(meta: &fs::Metadata) -> Mtime {
        Mtime { s: meta.mtime(), ns: meta.mtime_nsec() }
    }

    fn since_1970(ns: i64) -> Mtime {
        Mtime { s: ns.div_euclid(1_000_000_000), ns: ns.rem_euclid(1_000_000_000) }
    }
}

/// A complete object in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    pub digest: Digest,
    pub size: u64,
    /// The same bytes were held before; the new copy was dropped.
    pub already_held: bool,
}

/// How much of a budget is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of complete objects.
    pub held_bytes: u64,
    /// Bytes set aside by reservations that are still alive.
    pub reserved_bytes: u64,
}

/// How an object gets into a sandbox directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkAbility {
    /// One directory entry; nothing is copied.
    HardLink,
    /// A new file that shares its blocks until written to.
    Reflink,
    /// A new file with its own blocks.
    Copy,
}

impl Store {
    /// Opens the cache under `dir`, creating it if necessary, and lists its objects.
    ///
    /// Leftovers of interrupted transfers are removed, and so is whatever under `objects/` cannot be a complete object.
    ///
    /// Errors: `InUse` if another process, or another `Store` in this one, has the directory.
    pub fn open(dir: &Path, budget_bytes: u64) -> Result<Store> {
        const OPERATION: &str = "open the cache";
        let root = dir.join("cache");
        let fail = |path: &Path, e| Error::io(OPERATION, path.display().to_string(), e);

        let create = |path: &Path| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| fail(path, e))
        };
        let (objects, incoming, times) = (root.join("objects"), root.join("incoming"), root.join("times"));
        create(&objects)?;
        create(&incoming)?;
        create(&times)?;

        let lock_path = root.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|e| fail(&lock_path, e))?;
        take(&lock).map_err(|e| match e {
            TryLockError::WouldBlock => {
                let owner = io::read_to_string(&lock).unwrap_or_default();
                let owner = owner.trim().parse::<u32>().map(|pid| format!(" (process {pid})"));
                Error::new(
                    ErrorKind::InUse,
                    OPERATION,
                    format!(
                        "{} is used by another executor{}; give each executor its own directory",
                        root.display(),
                        owner.unwrap_or_default()
                    ),
                )
            }
            TryLockError::Error(e) => fail(&lock_path, e),
        })?;
        lock.set_len(0)
            .and_then(|()| (&lock).write_all(format!("{}\n", std::process::id()).as_bytes()))
            .map_err(|e| fail(&lock_path, e))?;

        for entry in fs::read_dir(&incoming).map_err(|e| fail(&incoming, e))? {
            let path = entry.map_err(|e| fail(&incoming, e))?.path();
            fs::remove_file(&path).map_err(|e| fail(&path, e))?;
        }
        let mut state = State::default();
        let mut there = [false; 256];
        for prefix in 0..=u8::MAX {
            let shelf = objects.join(format!("{prefix:02x}"));
            there[usize::from(prefix)] =
                scan_shelf(&shelf, prefix, &mut state).map_err(|e| fail(&shelf, e))?;
        }
        for entry in fs::read_dir(&times).map_err(|e| fail(&times, e))? {
            let entry = entry.map_err(|e| fail(&times, e))?;
            let of: Option<Digest> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            match of.filter(|digest| state.held.contains_key(digest)) {
                Some(digest) => _ = state.timed.insert(digest),
                None => fs::remove_file(entry.path()).map_err(|e| fail(&entry.path(), e))?,
            }
        }
        Ok(Store {
            shared: Arc::new(Shared {
                root,
                budget_bytes,
                next_incoming: AtomicU64::new(0),
                arriving_bytes: AtomicU64::new(0),
                state: Mutex::new(state),
                news: Condvar::new(),
                settled: Condvar::new(),
                shelves: there.map(Mutex::new),
                _lock: lock,
            }),
        })
    }

    /// All objects held and their sizes in bytes, ordered by digest. Costs no I/O.
    pub fn scan(&self) -> Vec<(Digest, u64)> {
        let mut all: Vec<_> = self.state().held.iter().map(|(digest, held)| (*digest, held.size)).collect();
        all.sort_unstable();
        all
    }

    pub fn budget_bytes(&self) -> u64 {
        self.shared.budget_bytes
    }

    /// How much of the budget is taken; both figures are of one moment.
    pub fn usage(&self) -> Usage {
        let state = self.state();
        Usage { held_bytes: state.held_bytes, reserved_bytes: state.reserved_bytes }
    }

    /// The room of the file system: bytes that this cache has there, complete or arriving, plus bytes that
    /// are free; 0 if it takes no writes, or if the folder is gone and cannot be made. And the size of the
    /// whole file system.
    pub fn room_bytes(&self) -> io::Result<(u64, u64)> {
        let root = &self.shared.root;
        let path = std::ffi::CString::new(root.as_os_str().as_bytes())?;
        let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: the path ends in NUL, and `stat` is a valid place for the answer, for which zeros are valid, too.
        let (result, stat) = unsafe { (libc::statvfs(path.as_ptr(), stat.as_mut_ptr()), stat.assume_init()) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::NotFound if self.shared.make_again(root).is_err() => Ok((0, u64::MAX)),
                io::ErrorKind::NotFound => self.room_bytes(),
                _ => Err(error),
            };
        }
        if stat.f_blocks == 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this file system does not say its size"));
        }
        let disk_bytes = stat.f_blocks * stat.f_frsize;
        if stat.f_flag & libc::ST_RDONLY != 0 {
            return Ok((0, disk_bytes));
        }
        // Read after the free bytes: bytes written in between are counted twice rather than not at all.
        let here = self.state().held_bytes + self.shared.arriving_bytes.load(Ordering::Relaxed);
        Ok((here + stat.f_bavail * stat.f_frsize, disk_bytes))
    }

    /// Size in bytes of a held object.
    pub fn find(&self, digest: &Digest) -> Option<u64> {
        self.state().held.get(digest).map(|held| held.size)
    }

    /// The path of the object, whether it is held or not.
    pub fn path_of(&self, digest: &Digest) -> PathBuf {
        self.shared.path_of(digest)
    }

    /// Sets `bytes` of the budget aside until the reservation is dropped or turned into an object.
    ///
    /// Errors: `OverBudget` when held + reserved + `bytes` would exceed the budget.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation> {
        self.shared.take(bytes)?;
        Ok(Reservation { shared: Arc::clone(&self.shared), bytes, halt: Halt::default() })
    }

    /// Starts an object of at most the reserved size. No file is made before the first byte.
    pub fn begin(&self, reservation: Reservation) -> Incoming {
        assert!(Arc::ptr_eq(&self.shared, &reservation.shared), "the reservation is of another store");
        Incoming::new(reservation)
    }

    /// Moves the file `path` into the cache: hashes it, gives it an object's mode, renames it. It keeps its mtime.
    ///
    /// When the file is on another file system, or has other names (a program may have linked its input to its
    /// output), it is copied and `path` is removed. The caller guarantees that nobody writes to it any more;
    /// a change while it is hashed is noticed and refused.
    ///
    /// Errors: `OverBudget` if the file is larger than the reservation; `Io` if it is no regular file.
    pub fn adopt(&self, path: &Path, reservation: Reservation) -> Result<Stored> {
        const OPERATION: &str = "move a file into the cache";
        let fail = |e| Error::io(OPERATION, path.display().to_string(), e);
        let mut incoming = self.begin(reservation);

        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(fail)?;
        let before = file.metadata().map_err(fail)?;
        if !before.is_file() {
            return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        incoming.room_for(before.len())?;

        if before.nlink() > 1 {
            return self.adopt_copy(path, &file, incoming);
        }
        let digest = hash_file(&file, &incoming.reservation.halt).map_err(fail)?;
        let after = file.metadata().map_err(fail)?;
        if (before.len(), Mtime::of(&before)) != (after.len(), Mtime::of(&after)) {
            return Err(fail(io::Error::new(io::ErrorKind::ResourceBusy, "it changed while it was read")));
        }
        file.set_permissions(fs::Permissions::from_mode(OBJECT_MODE)).map_err(fail)?;
        match self.shared.place(path, &file, digest, before.len(), &mut incoming.reservation) {
            Ok(stored) => Ok(stored),
            Err(e) if e.raw_os_error() == Some(libc::EXDEV) => self.adopt_copy(path, &file, incoming),
            Err(e) => Err(fail(e)),
        }
    }

    fn adopt_copy(&self, path: &Path, file: &File, mut incoming: Incoming) -> Result<Stored> {
        incoming.fill_from_file(file)?;
        let stored = incoming.finish(None)?;
        fs::remove_file(path)
            .map_err(|e| Error::io("move a file into the cache", path.display().to_string(), e))?;
        Ok(stored)
    }

    /// Makes the object appear as the new file `path`: hard link, else reflink, else copy.
    ///
    /// Errors: `NotHeld`; `Corrupt` if the object was changed since it was stored; `Io` if `path` exists.
    pub fn export(&self, digest: &Digest, path: &Path) -> Result<LinkAbility> {
        const OPERATION: &str = "put an object into a sandbox";
        self.check(digest, OPERATION)?;
        let object = self.path_of(digest);
        let fail = |e| Error::io(OPERATION, format!("{digest} as {}", path.display()), e);
        match fs::hard_link(&object, path) {
            Ok(()) => Ok(LinkAbility::HardLink),
            // Another file system, a file system or kernel that refuses links, or too many of them.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EXDEV | libc::EPERM | libc::EMLINK | libc::EOPNOTSUPP)
                ) =>
            {
                let (from, _) = self.open_object(digest)?;
                let to = new_file(path, OBJECT_MODE).map_err(fail)?;
                if reflink(&from, &to) {
                    return Ok(LinkAbility::Reflink);
                }
                holes::copy(&from, &to, u64::MAX, &mut || true).map_err(|e| {
                    // Best effort: half a file must not look like an input, and the error is returned anyway.
                    let _ = fs::remove_file(path);
                    fail(e)
                })?;
                Ok(LinkAbility::Copy)
            }
            Err(e) => {
                // The object may have been evicted between the check and the link.
                self.check(digest, OPERATION)?;
                Err(fail(e))
            }
        }
    }

    /// How objects can be put into `sandbox_dir`, found by trying; the executor reports it once.
    pub fn links_to(&self, sandbox_dir: &Path) -> Result<LinkAbility> {
        let fail =
            |e| Error::io("try links into the sandbox directory", sandbox_dir.display().to_string(), e);
        let name = format!("probe-{}", self.shared.next_incoming.fetch_add(1, Ordering::Relaxed));
        let here = self.shared.root.join("incoming").join(&name);
        let there = sandbox_dir.join(format!(".eyas-{}-{name}", std::process::id()));
        let try_all = || {
            let from = new_file(&here, OBJECT_MODE)?;
            if fs::hard_link(&here, &there).is_ok() {
                return Ok(LinkAbility::HardLink);
            }
            (&from).write_all(&[0; 4096])?;
            let to = new_file(&there, OBJECT_MODE)?;
            Ok(if reflink(&from, &to) { LinkAbility::Reflink } else { LinkAbility::Copy })
        };
        let ability = try_all().map_err(fail);
        for path in [here, there] {
            // Either may not exist; the answer does not depend on it.
            let _ = fs::remove_file(path);
        }
        ability
    }

    /// Opens a held object for reading.
    ///
    /// Errors: `NotHeld`; `Corrupt` if it was changed since it was stored.
    pub fn open_object(&self, digest: &Digest) -> Result<(File, u64)> {
        const OPERATION: &str = "read an object";
        let mut held = self.held(digest, OPERATION)?;
        if !held.checked {
            self.settle(digest, &Halt::default())?;
            held = self.held(digest, OPERATION)?;
        }
        let file = File::open(self.path_of(digest)).map_err(|e| self.gone(digest, OPERATION, e))?;
        self.intact(digest, &held, || file.metadata(), OPERATION)?;
        Ok((file, held.size))
    }

    /// Waits until the object is held, or is arriving and has bytes beyond `offset`, but no longer than `deadline`
    /// and `worth_waiting`, which is asked every [`WAIT_SLICE`].
    pub(crate) fn await_arrival(
        &self,
        digest: &Digest,
        offset: u64,
        deadline: Instant,
        worth_waiting: impl Fn() -> bool,
    ) -> Begun {
        loop {
            let arrival = {
                let mut state = self.state();
                let left = deadline.saturating_duration_since(Instant::now());
                let known =
                    |state: &State| state.held.contains_key(digest) || state.arriving.contains_key(digest);
                if !known(&state) && !left.is_zero() {
                    state.n_waiting += 1;
                    let slept = self.shared.news.wait_timeout(state, left.min(WAIT_SLICE));
                    state = slept.expect("see Shared::state").0;
                    state.n_waiting -= 1;
                }
                if state.held.contains_key(digest) {
                    return Begun::Held;
                }
                state.arriving.get(digest).map(Arc::clone)
            };
            if let Some(arrival) = arrival {
                let reader = ArrivalReader::new(arrival);
                let left = deadline.saturating_duration_since(Instant::now());
                match reader.wait(Some(offset), left.min(WAIT_SLICE)) {
                    Progress { end: None, readable, .. }
                        if readable > offset || readable == reader.size() =>
                    {
                        return Begun::Arriving(reader);
                    }
                    // The object is held now, or is gone and perhaps announced anew.
                    Progress { end: Some(_), .. } => continue,
                    Progress { end: None, .. } => {}
                }
            }
            if Instant::now() >= deadline || !worth_waiting() {
                return Begun::Absent;
            }
        }
    }

    /// Whether `file`, opened by [`Store::open_object`], is still what was stored.
    pub(crate) fn unchanged(&self, digest: &Digest, file: &File) -> bool {
        // Evicted while it was read: an unlinked file keeps its bytes, and the receiver hashes them. A
        // file that cannot be examined may be whole, and the receiver hashes that, too.
        let held = self.state().held.get(digest).copied();
        held.is_none_or(|held| {
            let seen = self.intact(digest, &held, || file.metadata(), "");
            !matches!(seen, Err(Error { kind: ErrorKind::Corrupt, .. }))
        })
    }

    /// Whether the object was changed or removed since it was stored. Looks only at size and mtime.
    pub fn modified(&self, digest: &Digest) -> Result<bool> {
        const OPERATION: &str = "look at an object";
        let held = self.held(digest, OPERATION)?;
        let path = self.path_of(digest);
        match self.intact(digest, &held, || fs::metadata(&path), OPERATION) {
            Ok(()) => Ok(false),
            Err(e) if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::NotHeld) => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// The object was written to: it is not handed out any more, whatever its mtime says. The caller removes
    /// it.
    pub fn condemn(&self, digest: &Digest) {
        if let Some(held) = self.state().held.get_mut(digest) {
            held.mtime = CONDEMNED;
        }
    }

    /// The object may have been written to: it is hashed before its next use.
    pub fn doubt(&self, digest: &Digest) {
        if let Some(held) = self.state().held.get_mut(digest) {
            held.checked = false;
            held.n_doubts += 1;
        }
    }

    /// Whether a doubt is open, see [`Store::doubt`]. About bytes that are known to be wrong there is none.
    pub fn is_doubted(&self, digest: &Digest) -> bool {
        self.state().held.get(digest).is_some_and(|held| !held.checked && !held.is_condemned())
    }

    /// Reads the object through and compares its digest. An object with other bytes is condemned.
    ///
    /// Errors: `NotHeld`; `DigestMismatch`, naming both. The object stays; the caller removes it.
    pub fn verify(&self, digest: &Digest) -> Result<()> {
        self.verify_until(digest, &Halt::default())
    }

    fn verify_until(&self, digest: &Digest, halt: &Halt) -> Result<()> {
        const OPERATION: &str = "verify an object";
        let before = self.held(digest, OPERATION)?;
        let path = self.path_of(digest);
        let found = File::open(&path)
            .and_then(|file| hash_file(&file, halt))
            .map_err(|e| self.gone(digest, OPERATION, e))?;
        if found != *digest {
            self.condemn(digest);
            return Err(mismatch(*digest, found, OPERATION));
        }
        if let Some(held) = self.state().held.get_mut(digest) {
            held.checked = held.n_doubts == before.n_doubts;
        }
        Ok(())
    }

    /// Removes an object and gives its bytes back to the budget. Returns its size in bytes.
    pub fn remove(&self, digest: &Digest) -> Result<u64> {
        const OPERATION: &str = "remove an object";
        let path = self.path_of(digest);
        // An open file keeps its blocks, so a large file's blocks are freed after the lock is released.
        let keep = File::open(&path);
        let held = {
            let _shelf = self.shared.shelf(digest);
            let held = self.state().held.remove(digest).ok_or_else(|| not_held(digest, OPERATION))?;
            match fs::remove_file(&path) {
                Ok(()) => {}
                // Another program removed the file. The entry was wrong, and is removed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    self.state().held.insert(*digest, held);
                    return Err(Error::io(OPERATION, digest.to_string(), e));
                }
            }
            held
        };
        drop(keep);
        if self.state().timed.remove(digest) {
            let _ = fs::remove_file(self.shared.times_path(digest));
        }
        self.state().held_bytes -= held.size;
        Ok(held.size)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn held(&self, digest: &Digest, operation: &'static str) -> Result<HeldFile> {
        self.state().held.get(digest).copied().ok_or_else(|| not_held(digest, operation))
    }

    /// Hashes an object that is in doubt, once for all threads that need it now. Without a doubt it costs nothing.
    ///
    /// Errors: `NotHeld`; `Corrupt`: the bytes differ, so somebody wrote to it; `Io`, also when `halt` is set.
    pub fn settle(&self, digest: &Digest, halt: &Halt) -> Result<()> {
        const OPERATION: &str = "verify an object";
        {
            let mut state = self.state();
            loop {
                let held = state.held.get(digest).ok_or_else(|| not_held(digest, OPERATION))?;
                if held.is_condemned() {
                    let why = format!("{digest} was written to after it was stored");
                    return Err(Error::new(ErrorKind::Corrupt, OPERATION, why));
                }
                if held.checked {
                    return Ok(());
                }
                if state.being_read.insert(*digest) {
                    break;
                }
                halt.check().map_err(|e| Error::io(OPERATION, digest.to_string(), e))?;
                state = self.shared.settled.wait_timeout(state, WAIT_SLICE).expect("see Shared::state").0;
            }
        }
        let result = self.verify_until(digest, halt).map_err(|e| match e.kind {
            ErrorKind::DigestMismatch { .. } => Error::new(ErrorKind::Corrupt, e.operation, e.context),
            _ => e,
        });
        self.state().being_read.remove(digest);
        self.shared.settled.notify_all();
        result
    }

    /// Checks that the object is held and as it was stored; hashes it first if it is in doubt.
    fn check(&self, digest: &Digest, operation: &'static str) -> Result<()> {
        let held = self.held(digest, operation)?;
        if !held.checked {
            self.settle(digest, &Halt::default())?;
        }
        let path = self.path_of(digest);
        self.intact(digest, &held, || fs::metadata(&path), operation)
    }

    /// `Corrupt` unless size and mtime are those that the store knows of. `held` was found before `look` is called.
    fn intact(
        &self,
        digest: &Digest,
        held: &HeldFile,
        look: impl Fn() -> io::Result<fs::Metadata>,
        operation: &'static str,
    ) -> Result<()> {
        let found = || look().map_err(|e| self.gone(digest, operation, e));
        if intact(digest, held, &found()?, operation).is_ok() {
            return Ok(());
        }
        // The object may have been shown anew in between.
        let _shelf = self.shared.shelf(digest);
        intact(digest, &self.held(digest, operation)?, &found()?, operation)
    }

    /// Whether programs that get a link to the object see it as modified at `modified_ns` (since 1970; `None`: whenever) and with
    /// this mode. `may_change`: nobody sees the object now, so that it can be changed to be so.
    pub fn show(
        &self,
        digest: &Digest,
        modified_ns: Option<i64>,
        mode: u32,
        may_change: bool,
    ) -> Result<bool> {
        const OPERATION: &str = "show an object to a program";
        let wanted = |held: &HeldFile| (modified_ns.map_or(held.mtime, Mtime::since_1970), mode);
        let held = self.held(digest, OPERATION)?;
        if held.is_condemned() || held.shown == Some(wanted(&held)) {
            return Ok(true);
        }
        if !may_change {
            return Ok(false);
        }
        let _shelf = self.shared.shelf(digest);
        let held = self.held(digest, OPERATION)?;
        let path = self.path_of(digest);
        let change = || {
            let (mtime, mode) = wanted(&held);
            let before = fs::metadata(&path)?;
            if intact(digest, &held, &before, OPERATION).is_err() {
                // What is wrong with it is found by those who look for that.
                return Ok(None);
            }
            if before.mode() & 0o7777 != mode {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            if held.mtime == mtime {
                return Ok(Some(mtime));
            }
            set_mtime(&path, mtime)?;
            fs::metadata(&path).map(|after| Some(Mtime::of(&after)))
        };
        let changed = change().map_err(|e| self.gone(digest, OPERATION, e))?;
        let shown = changed.is_some().then(|| wanted(&held));
        if let (Some(mtime), Some(held)) = (changed, self.state().held.get_mut(digest))
            && !held.is_condemned()
        {
            (held.mtime, held.shown) = (mtime, shown);
        }
        Ok(changed.is_some())
    }

    /// Keeps the times in an object that is a directory for as long as the object is here. In nanoseconds since 1970, in the
    /// order of [`eyas_folder::Tree::times`].
    pub fn keep_times(&self, digest: &Digest, times: &[i64]) -> io::Result<()> {
        self.shared.keep_times(digest, times)
    }

    /// What [`Store::keep_times`] kept; empty if nothing was.
    pub fn times_of(&self, digest: &Digest) -> Vec<i64> {
        if !self.state().timed.contains(digest) {
            return vec![];
        }
        let bytes = fs::read(self.shared.times_path(digest)).unwrap_or_default();
        bytes.chunks_exact(8).map(|time| i64::from_le_bytes(time.try_into().expect("8 bytes"))).collect()
    }

    /// The error for an object whose file cannot be opened: it was evicted meanwhile, deleted by another
    /// program, or worse.
    fn gone(&self, digest: &Digest, operation: &'static str, e: io::Error) -> Error {
        if e.kind() != io::ErrorKind::NotFound {
            return Error::io(operation, digest.to_string(), e);
        }
        match self.find(digest) {
            None => not_held(digest, operation),
            Some(_) => {
                let why = format!("the file of {digest} was removed by somebody else");
                Error::new(ErrorKind::Corrupt, operation, why)
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("root", &self.shared.root).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Only arithmetic and single system calls happen under the lock, so a panic there is a bug to stop
        // at.
        self.state.lock().expect("no thread panicked while it held the store")
    }

    fn shelf(&self, digest: &Digest) -> MutexGuard<'_, bool> {
        self.shelves[usize::from(digest.0[0])].lock().expect("no thread panicked while it held a shelf")
    }

    /// Makes a directory of the cache again, which was removed meanwhile. Where what the cache lies in is gone, too, nothing is made:
    /// whoever removed that wants nothing there.
    fn make_again(&self, path: &Path) -> io::Result<()> {
        self.root.parent().map_or(Ok(()), |around| fs::metadata(around).map(drop))?;
        fs::create_dir_all(path)
    }

    fn times_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("times").join(digest.to_string())
    }

    fn keep_times(&self, digest: &Digest, times: &[i64]) -> io::Result<()> {
        let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
        let number = self.next_incoming.fetch_add(1, Ordering::Relaxed);
        let part = self.root.join("incoming").join(format!("times-{number}"));
        fs::write(&part, bytes).and_then(|()| fs::rename(&part, self.times_path(digest))).inspect_err(
            |_| {
                let _ = fs::remove_file(&part);
            },
        )?;
        self.state().timed.insert(*digest);
        Ok(())
    }

    fn path_of(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        let mut path = PathBuf::with_capacity(self.root.as_os_str().len() + 80);
        path.push(&self.root);
        path.push("objects");
        path.push(&name[..2]);
        path.push(&name);
        path
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let mut state = self.state();
        let used_bytes = state.held_bytes + state.reserved_bytes;
        let free_bytes = self.budget_bytes.saturating_sub(used_bytes);
        if bytes > free_bytes {
            let budget = self.budget_bytes;
            return Err(Error::new(
                ErrorKind::OverBudget { asked_bytes: bytes, free_bytes },
                "reserve cache space",
                format!("{bytes} bytes are asked for, {free_bytes} of the budget of {budget} are free"),
            ));
        }
        state.reserved_bytes += bytes;
        Ok(())
    }

    /// Renames `from` to the object's path and enters it; drops `from` if the object is held already.
    fn place(
        &self,
        from: &Path,
        file: &File,
        digest: Digest,
        size: u64,
        reservation: &mut Reservation,
    ) -> io::Result<Stored> {
        let to = self.path_of(&digest);
        let mtime = Mtime::of(&file.metadata()?);
        // Taken so that a `remove` of the same digest happens entirely before or after this.
        let mut shelf_is_there = self.shelf(&digest);
        let before = self.state().held.get(&digest).copied();
        // What is in doubt gives way to bytes that were hashed on their way in.
        let whole = |held: &HeldFile| {
            held.checked && fs::metadata(&to).is_ok_and(|meta| intact(&digest, held, &meta, "").is_ok())
        };
        let already_held = before.as_ref().is_some_and(whole);
        if already_held {
            fs::remove_file(from)?;
        } else {
            if !*shelf_is_there {
                fs::create_dir_all(to.parent().expect("an object lies on a shelf"))?;
                *shelf_is_there = true;
            }
            match fs::rename(from, &to) {
                // The folder was removed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.make_again(to.parent().expect("an object lies on a shelf"))?;
                    fs::rename(from, &to)?;
                }
                placed => placed?,
            }
            let mut state = self.state();
            state.held.insert(digest, HeldFile { size, mtime, shown: None, checked: true, n_doubts: 0 });
            if state.n_waiting > 0 {
                self.news.notify_all();
            }
            // A copy that was written to is replaced within the bytes of the budget that it has.
            if before.is_none() {
                state.held_bytes += size;
                state.reserved_bytes -= size;
                reservation.bytes -= size;
            }
        }
        Ok(Stored { digest, size, already_held })
    }
}

/// A part of the budget that is set aside. Dropping the reservation gives it back.
pub struct Reservation {
    shared: Arc<Shared>,
    bytes: u64,
    /// Stops the work that fills this reservation.
    halt: Halt,
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Work that fills this reservation is given up, between two blocks, when `halt` is set.
    pub fn until(self, halt: &Halt) -> Reservation {
        let mut reservation = self;
        reservation.halt = halt.clone();
        reservation
    }

    /// Sets `more_bytes` aside in addition, for a source whose size was not known before.
    pub fn grow(&mut self, more_bytes: u64) -> Result<()> {
        self.shared.take(more_bytes)?;
        self.bytes += more_bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.state().reserved_bytes -= self.bytes;
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} bytes)", self.bytes)
    }
}

/// Takes the lock of a cache. A killed owner holds it until the last of its threads is gone.
fn take(lock: &File) -> std::result::Result<(), TryLockError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOCK_PAUSE),
            result => return result,
        }
    }
}

fn not_held(digest: &Digest, operation: &'static str) -> Error {
    Error::new(ErrorKind::NotHeld, operation, format!("{digest} is not in this cache"))
}

fn mismatch(expected: Digest, found: Digest, operation: &'static str) -> Error {
    Error::new(
        ErrorKind::DigestMismatch { expected, found },
        operation,
        format!("its digest should be {expected} and is {found}"),
    )
}

/// `Corrupt` unless size and mtime are those of `held`.
fn intact(digest: &Digest, held: &HeldFile, meta: &fs::Metadata, operation: &'static str) -> Result<()> {
    if meta.len() == held.size && Mtime::of(meta) == held.mtime {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        operation,
        format!("{digest} was written to after it was stored ({} bytes then, {} now)", held.size, meta.len()),
    ))
}

/// Lists one of the 256 directories under `objects/` into `state`, and removes files that are no complete
/// objects. Returns whether the directory exists.
fn scan_shelf(shelf: &Path, prefix: u8, state: &mut State) -> io::Result<bool> {
    let entries = match fs::read_dir(shelf) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let meta = entry.metadata()?;
        let name: Option<Digest> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        match name.filter(|digest| meta.is_file() && digest.0[0] == prefix) {
            Some(digest) => {
                let (size, mtime) = (meta.len(), Mtime::of(&meta));
                state.held.insert(digest, HeldFile { size, mtime, shown: None, checked: false, n_doubts: 0 });
                state.held_bytes += size;
            }
            None if meta.is_dir() => fs::remove_dir_all(&path)?,
            None => fs::remove_file(&path)?,
        }
    }
    Ok(true)
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

fn set_mtime(path: &Path, mtime: Mtime) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let times = [
        // To those who watch a file, a change of its mtime alone counts as a write to it, and a change of both times does not.
        libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        libc::timespec { tv_sec: mtime.s, tv_nsec: mtime.ns },
    ];
    // SAFETY: the name is NUL-terminated, and `times` is the array of two that the call reads.
    match unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes `to` share the blocks of `from`; false where the file systems cannot.
fn reflink(from: &File, to: &File) -> bool {
    // SAFETY: both descriptors are open for the length of the call; FICLONE takes a descriptor by value.
    unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) == 0 }
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Hashes `file` from its current position to its end, unless it is told to stop. Returns the bytes read.
fn hash_into(hasher: &mut blake3::Hasher, mut file: &File, halt: &Halt) -> io::Result<u64> {
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut block = vec![0; size.clamp(1, BLOCK_BYTES)];
    let mut total = 0;
    loop {
        halt.check()?;
        let n = retry(|| file.read(&mut block))?;
        if n == 0 {
            return Ok(total);
        }
        hasher.update(&block[..n]);
        total += n as u64;
    }
}

fn hash_file(file: &File, halt: &Halt) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    hash_into(&mut hasher, file, halt)?;
    Ok(Digest(*hasher.finalize().as_bytes()))
}
