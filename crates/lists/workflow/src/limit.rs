//! The limit of the text that a small file may stand for.
//!
//! In every format a short text can stand for a long one many times over: through variables, aliases, names
//! in catalogs, or the category of many rules. The text that a file stands for is counted as it grows. A
//! file that stands for far more than any workflow needs is refused with its place, long before memory is
//! short. A large file may stand for more.

use crate::error::{Error, ErrorKind, Result};

/// The bytes that any file may stand for.
const BYTES_FREE: u64 = 128 << 20;
/// The further bytes that are allowed for each byte of the file.
const BYTES_PER_BYTE: u64 = 4;
/// Memory of a piece of text, in addition to its characters.
pub(crate) const PIECE_BYTES: u64 = 32;
/// Memory of a task, or of a task's use of a file, in addition to its text.
pub(crate) const ITEM_BYTES: u64 = 64;

/// An allowance of bytes that counts down to zero.
pub(crate) struct Allowance {
    left: u64,
    max: u64,
}

impl Allowance {
    /// The allowance of a file of `n_bytes`.
    pub fn of_file(n_bytes: usize) -> Allowance {
        Allowance::of(BYTES_PER_BYTE.saturating_mul(n_bytes as u64).saturating_add(BYTES_FREE))
    }

    /// The allowance of text that is made from something that takes `n_bytes` in memory.
    pub fn made_of(n_bytes: u64) -> Allowance {
        Allowance::of(BYTES_PER_BYTE.saturating_mul(n_bytes).max(BYTES_FREE))
    }

    fn of(max: u64) -> Allowance {
        Allowance { left: max, max }
    }

    /// Takes `n_bytes`; `what` begins the message if the allowance is used up.
    pub fn take(&mut self, n_bytes: u64, what: &str) -> Result<()> {
        match self.left.checked_sub(n_bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let message = format!(
                    "{what} more than {} MiB of text, which is more than a file of this size may stand for",
                    self.max >> 20
                );
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}
