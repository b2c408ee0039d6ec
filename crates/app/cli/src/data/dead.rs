//! What an `eyas mount` leaves that was killed: a directory that answers nothing until somebody takes the mount away.

use crate::Fault;
use crate::fault::bad;
use eyas_text::shown_path;
use std::fs;
use std::path::Path;

/// # Errors
/// There is a mount at the path, or above it, whose program is gone.
pub fn refuse_dead(path: &Path) -> Result<(), Fault> {
    let is_dead = |path: &Path| fs::metadata(path).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN));
    let absolute = std::path::absolute(path)?;
    // The outermost one is the mount.
    let Some(at) = absolute.ancestors().filter(|path| is_dead(path)).last() else { return Ok(()) };
    let message = format!(
        "{} is a mount whose program is gone, such as an `eyas mount` that was killed",
        shown_path(at)
    );
    Err(bad(message).hint(format!("`fusermount3 -u {0}` takes it away, or `umount {0}`", at.display())))
}
