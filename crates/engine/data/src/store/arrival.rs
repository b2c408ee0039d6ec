//! An object that is announced before it is whole: its readers wait here for the bytes behind its writer.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The result of [`Store::await_arrival`].
pub(crate) enum Begun {
    Held,
    Arriving(ArrivalReader),
    Absent,
}

/// An announced object: its progress, for those who read behind its writer.
pub(super) struct Arrival {
    /// Bytes of the whole object.
    size: u64,
    progress: Mutex<Progress>,
    moved: Condvar,
    /// While there are no readers, the writer need not hurry to put small pieces on disk.
    n_readers: AtomicUsize,
}

#[derive(Clone)]
pub(crate) struct Progress {
    /// The number of bytes, from the start, that can be read from `file`.
    pub(crate) readable: u64,
    /// `None` before the first byte.
    pub(crate) file: Option<Arc<File>>,
    pub(crate) end: Option<ArrivalEnd>,
    n_waiting: usize,
}

/// How an arrival ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivalEnd {
    /// The whole object was verified and is in the store.
    Stored,
    /// The object is complete, but its digest is not the announced one.
    Corrupt,
    /// The object was given up; the bytes that could be read so far may be good.
    GivenUp,
}

impl Arrival {
    /// An object of `size` bytes, the first `readable` of which are in `file`.
    pub(super) fn new(size: u64, readable: u64, file: Option<Arc<File>>) -> Arrival {
        Arrival {
            size,
            progress: Mutex::new(Progress { readable, file, end: None, n_waiting: 0 }),
            moved: Condvar::new(),
            n_readers: AtomicUsize::new(0),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("only assignments happen under this lock")
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress();
        change(&mut progress);
        if progress.n_waiting > 0 {
            self.moved.notify_all();
        }
    }
}

/// Reads an object behind its writer.
pub(crate) struct ArrivalReader(Arc<Arrival>);

impl ArrivalReader {
    pub(super) fn new(arrival: Arc<Arrival>) -> ArrivalReader {
        arrival.n_readers.fetch_add(1, Ordering::Relaxed);
        ArrivalReader(arrival)
    }

    pub(crate) fn size(&self) -> u64 {
        self.0.size
    }

    /// Waits for bytes beyond `offset` (`None`: for the end only) or the end, at most `timeout`.
    pub(crate) fn wait(&self, offset: Option<u64>, timeout: Duration) -> Progress {
        let mut progress = self.0.progress();
        progress.n_waiting += 1;
        let waiting = |p: &mut Progress| p.end.is_none() && offset.is_none_or(|at| p.readable <= at);
        let slept = self.0.moved.wait_timeout_while(progress, timeout, waiting);
        let mut progress = slept.expect("see Arrival::progress").0;
        progress.n_waiting -= 1;
        progress.clone()
    }
}

impl Drop for ArrivalReader {
    fn drop(&mut self) {
        self.0.n_readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says whether an announced object is being read while it arrives.
#[derive(Clone, Default)]
pub(crate) struct Watched(pub(super) Option<Arc<Arrival>>);

impl Watched {
    pub(crate) fn now(&self) -> bool {
        self.0.as_ref().is_some_and(|arrival| arrival.n_readers.load(Ordering::Relaxed) > 0)
    }
}
