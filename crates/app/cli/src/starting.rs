//! One process at a time starts a cluster in a folder.
//!
//! Two that start the same cluster at the same instant would each find nothing there, and the dispatcher of one would be taken for
//! the other's. The lock is the kernel's: it ends with the process that holds it, however that ends.

use crate::{Exit, Fault};
use eyas_runtime::locks::start_lock;
use eyas_text::{line_of, shown_path};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// A start that takes no longer than this is waited for.
const WAIT_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The right to start the cluster with that folder of its first dispatcher, while the file is open. Errors: another process is
/// starting it, or the folder cannot be used.
pub fn hold(dispatcher_dir: &Path) -> Result<File, Fault> {
    let path = start_lock(dispatcher_dir);
    let fail = |e: std::io::Error| Fault::new(Exit::Other, format!("cannot use {}: {e}", shown_path(&path)));
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(is_being_started(dispatcher_dir, &path)),
            Err(TryLockError::Error(e)) => return Err(fail(e)),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(file)
}

fn is_being_started(dispatcher_dir: &Path, lock: &Path) -> Fault {
    let pid = std::fs::read_to_string(lock).unwrap_or_default();
    let dir = dispatcher_dir.parent().unwrap_or(dispatcher_dir);
    let message =
        format!("process {} is just starting a cluster in {}", line_of(pid.trim()), shown_path(dir));
    Fault::new(Exit::Cluster, message)
        .hint("`eyas status` shows the cluster once it is up; --dir DIR is for another one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_right_to_start_a_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let held = hold(dir.path()).unwrap();
        let fault = hold(dir.path()).unwrap_err();
        let expect = format!("process {} is just starting a cluster in ", std::process::id());
        assert!(fault.message.starts_with(&expect), "{}", fault.message);
        drop(held);
        hold(dir.path()).unwrap();
    }
}
