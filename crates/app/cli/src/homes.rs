//! Home storage, for the commands that users type: where a word points, and what may go wrong there.

use crate::dirs::working;
use crate::print::{rate_of, size};
use crate::{Exit, Fault};
use eyas_storage::{Error, ErrorKind, Homes, HomesConfig, Listing, Location};
use eyas_text::{line_of, plural, shown};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// Objects that one command reads or writes at the same time.
pub const N_STREAMS: usize = 8;

/// All homes, with the usual retries.
pub fn open() -> Result<Homes, Fault> {
    Homes::new(HomesConfig::default()).map_err(fault)
}

/// A failure at home as the end of a command.
pub fn fault(error: Error) -> Fault {
    let exit = match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidName | ErrorKind::NotAFile | ErrorKind::Unsupported => {
            Exit::BadInput
        }
        ErrorKind::GivenUp => Exit::Interrupted,
        _ => Exit::Other,
    };
    Fault::new(exit, error)
}

/// The location that a word names.
pub fn location(word: &str) -> Result<Location, Fault> {
    Location::parse(word, &working()?).map_err(fault)
}

/// What a word lists: a pattern, or all files below a directory. What is there under this very name is no pattern.
pub fn listing(word: &str) -> Result<Listing, Fault> {
    if std::fs::symlink_metadata(word).is_ok() {
        return Ok(Listing::Under(location(word)?));
    }
    Listing::parse(word, &working()?).map_err(fault)
}

/// Does `work` for the numbers below `n`, several at once. The first failure ends it.
pub fn each(n: usize, work: &(dyn Fn(usize) -> Result<(), Fault> + Sync)) -> Result<(), Fault> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Fault>> = Mutex::default();
    let run = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return;
            }
            if let Err(fault) = work(i) {
                next.store(n, Ordering::Relaxed);
                failed.lock().expect("no holder panics").get_or_insert(fault);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..N_STREAMS.min(n) {
            scope.spawn(run);
        }
        run();
    });
    match failed.into_inner().expect("no holder panics") {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}

/// Does something with each of `n` names, whatever becomes of the others: what is wrong with one of several is said, and they are
/// counted at the end. `done`: what could not be done with them.
pub fn each_by_itself(
    n: usize,
    done: &str,
    work: &(dyn Fn(usize) -> Result<(), Error> + Sync),
) -> Result<(), Fault> {
    let n_failed = AtomicUsize::new(0);
    each(n, &|i| match work(i) {
        Ok(()) => Ok(()),
        Err(error) if n == 1 => Err(fault(error)),
        Err(error) => {
            eyas_text::say!("eyas: {error}");
            n_failed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    })?;
    match n_failed.into_inner() {
        0 => Ok(()),
        k => Err(Fault::new(Exit::Other, format!("{k} of {} could not be {done}", plural(n as u64, "name")))),
    }
}

/// How far a copy is: a live line on a terminal, and nothing elsewhere.
pub struct Moving {
    began: Instant,
    last: Mutex<Instant>,
    n_objects: usize,
    n_done: AtomicU64,
    n_bytes: AtomicU64,
    is_live: bool,
    /// What is being moved.
    under_way: Mutex<BTreeSet<Location>>,
}

/// For so long nothing may move before the live line says so, and where there is none, a line of its own.
const STILL_LIVE: Duration = Duration::from_secs(5);
const STILL_SAID: Duration = Duration::from_secs(30);

impl Moving {
    pub fn new(n_objects: usize) -> Moving {
        let now = Instant::now();
        Moving {
            began: now,
            last: Mutex::new(now),
            n_objects,
            n_done: AtomicU64::new(0),
            n_bytes: AtomicU64::new(0),
            is_live: eyas_text::stderr_is_terminal(),
            under_way: Mutex::default(),
        }
    }

    /// Does `work`, which moves objects, and says while it does when nothing moves.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let (is_over, ended) = mpsc::channel::<()>();
            scope.spawn(move || self.say_what_stands(&ended));
            let done = work();
            drop(is_over);
            done
        })
    }

    fn say_what_stands(&self, ended: &mpsc::Receiver<()>) {
        let moved = || (self.n_bytes.load(Ordering::Relaxed), self.n_done.load(Ordering::Relaxed));
        let (mut last, mut since, mut is_said) = (moved(), Instant::now(), false);
        while ended.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let now = moved();
            if now != last {
                (last, since, is_said) = (now, Instant::now(), false);
            }
            let still = since.elapsed();
            let under_way = self.under_way.lock().expect("no holder panics");
            let Some(one) = under_way.first() else { continue };
            let waits = format!("nothing has moved for {} s: {}", still.as_secs(), named(one));
            if self.is_live && still >= STILL_LIVE {
                let _ = eyas_text::redraw_line(&format!("{}, {waits}", self.line()));
            } else if !self.is_live && still >= STILL_SAID && !std::mem::replace(&mut is_said, true) {
                eyas_text::say!("note: {waits}; who stays silent is asked a few times more");
            }
        }
    }

    /// This object is being moved.
    pub fn begin(&self, location: &Location) {
        self.under_way.lock().expect("no holder panics").insert(location.clone());
    }

    /// It is no more.
    pub fn leave(&self, location: &Location) {
        self.under_way.lock().expect("no holder panics").remove(location);
    }

    /// `n` more bytes of an object have moved.
    pub fn moved(&self, n: u64) {
        self.n_bytes.fetch_add(n, Ordering::Relaxed);
        if !self.is_live {
            return;
        }
        let mut last = self.last.lock().expect("no holder panics");
        if last.elapsed() >= Duration::from_millis(200) {
            *last = Instant::now();
            let _ = eyas_text::redraw_line(&self.line());
        }
    }

    /// One object more is complete.
    pub fn done(&self) {
        self.n_done.fetch_add(1, Ordering::Relaxed);
    }

    fn line(&self) -> String {
        let bytes = self.n_bytes.load(Ordering::Relaxed);
        let n_done = self.n_done.load(Ordering::Relaxed);
        let files = format!("{n_done} of {}", crate::print::plural(self.n_objects as u64, "file"));
        match bytes {
            // What is renamed moves no bytes.
            0 => files,
            bytes => format!("{files}, {}, {}", size(bytes), rate_of(bytes, self.began.elapsed())),
        }
    }

    /// Says what was moved.
    pub fn end(&self) {
        if self.is_live {
            let _ = eyas_text::clear_line();
        }
        eyas_text::say!("{}", self.line());
    }
}

/// A word that is no URL and no path of a file is a directory by its end.
pub fn names_a_directory(word: &str) -> bool {
    word.ends_with('/') || std::path::Path::new(word).is_dir()
}

/// A location for a line of output.
pub fn named(location: &Location) -> String {
    match location.path() {
        Some(_) => line_of(location.as_str()).to_string(),
        None => location.to_string(),
    }
}

/// The object that has the very name of a pattern which matches nothing.
pub fn called(homes: &Homes, word: &str) -> Result<Location, Fault> {
    let location = location(word).ok().filter(|location| homes.stat(location).is_ok());
    location.ok_or_else(|| nothing(word))
}

/// What is wrong with a word that should have named something.
pub fn nothing(word: &str) -> Fault {
    let fault = Fault::new(Exit::BadInput, format!("nothing matches {}", shown(word)));
    match eyas_storage::pattern::has_wildcard(word) {
        true => fault.hint("in a pattern, [*], [?] and [[] stand for these characters themselves"),
        false => fault,
    }
}
