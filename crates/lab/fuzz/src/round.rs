//! Inputs one after the other, and what becomes of them.

use crate::{Target, input, watch};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};

/// Runs of a reader that [`shrink`] may take.
const SHRINK_RUNS_MAX: usize = 3000;

/// Of any thread: a reader may have some of its own.
static LAST_PANIC: Mutex<Option<Panic>> = Mutex::new(None);

fn take_panic() -> Option<Panic> {
    LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[derive(Clone, Debug, PartialEq)]
pub struct Panic {
    pub message: String,
    /// `file:line`, which tells one finding from another.
    pub place: String,
}

/// Panics are kept instead of printed.
pub fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic".into());
        let place = info.location().map_or_else(String::new, |l| format!("{}:{}", l.file(), l.line()));
        let mut last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        last.get_or_insert(Panic { message, place });
    }));
}

/// Lets `target` read `bytes`.
pub fn read(target: &mut dyn Target, bytes: &[u8]) -> Result<(), Panic> {
    take_panic();
    let result = panic::catch_unwind(AssertUnwindSafe(|| target.run(bytes)));
    match (result, take_panic()) {
        (Ok(()), None) => Ok(()),
        (_, Some(panic)) => Err(panic),
        (Err(_), None) => Err(Panic { message: "a panic".into(), place: String::new() }),
    }
}

/// Input `number` of `target`, which is number `index` of all: made, read, and given back if that panicked.
pub fn one(target: &mut dyn Target, index: usize, seed: u64, number: u64) -> Result<(), (Vec<u8>, Panic)> {
    watch::begin(index, number);
    let bytes = input(target, seed, number);
    // What the input itself takes is not its reader's.
    watch::again();
    let result = read(target, &bytes);
    watch::end();
    result.map_err(|panic| (bytes, panic))
}

/// A shorter input with the same panic.
pub fn shrink(target: &mut dyn Target, bytes: Vec<u8>, panic: &Panic) -> Vec<u8> {
    let mut best = bytes;
    let mut n_runs = 0;
    let mut piece = best.len().div_ceil(2);
    while piece > 0 && n_runs < SHRINK_RUNS_MAX {
        let mut at = 0;
        while at < best.len() && n_runs < SHRINK_RUNS_MAX {
            let mut shorter = best.clone();
            shorter.drain(at..(at + piece).min(best.len()));
            n_runs += 1;
            watch::again();
            match read(target, &shorter) {
                Err(other) if other.place == panic.place => best = shorter,
                _ => at += piece,
            }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    best
}
