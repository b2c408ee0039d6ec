//! A word to long work that it is not wanted any more. Whoever reads, hashes or copies looks between two blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells work to stop. Clones share it; it cannot be taken back.
#[derive(Clone, Default, Debug)]
pub struct Halt {
    own: Arc<AtomicBool>,
    /// Stops this work with all other.
    of_all: Arc<AtomicBool>,
}

impl Halt {
    /// Stops with `self`, and also on its own.
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

/// Why work ended that was told to stop.
#[derive(Debug, thiserror::Error)]
#[error("it is not wanted any more")]
pub(crate) struct Halted;
