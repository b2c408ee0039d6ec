//! A signal to long work that it is no longer wanted. Code that reads, hashes or copies checks it between two
//! blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops work. Clones share it; it cannot be taken back.
#[derive(Clone, Default, Debug)]
pub struct Halt {
    own: Arc<AtomicBool>,
    /// The parent's signal, which also stops this work.
    of_all: Arc<AtomicBool>,
}

impl Halt {
    /// A signal that is set with `self`, and can also be set on its own.
    pub fn child(&self) -> Halt {
        Halt { own: Arc::default(), of_all: Arc::clone(&self.own) }
    }

    pub fn stop(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.own.load(Ordering::Relaxed) || self.of_all.load(Ordering::Relaxed)
    }

    /// An error when it is stopped, which becomes [`crate::ErrorKind::GivenUp`].
    pub fn check(&self) -> std::io::Result<()> {
        if self.is_stopped() { Err(std::io::Error::other(Halted)) } else { Ok(()) }
    }
}

/// The error of work that was stopped.
#[derive(Debug, thiserror::Error)]
#[error("it is not wanted any more")]
pub(crate) struct Halted;
