//! One process at a time starts a cluster in a folder.
//!
//! Two that start the same cluster at the same instant would each find nothing there, and the dispatcher of one would be taken for
//! the other's. The lock is the kernel's: it ends with the process that holds it, however that ends.

use eyas_runtime::locks::start_lock;
use eyas_text::{line_of, shown_path};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A start that takes no longer than this is waited for.
const WAIT_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

#[derive(thiserror::Error, Debug)]
pub enum StartingError {
    #[error("process {} is just starting a cluster in {}", line_of(pid), shown_path(dir))]
    Held { pid: String, dir: PathBuf },
    #[error(
        "the name of the folder {} is not UTF-8, so the parts of a cluster could not tell each other of it",
        shown_path(dir)
    )]
    NotUtf8 { dir: PathBuf },
    #[error("cannot use {}: {source}", shown_path(path))]
    Unusable { path: PathBuf, source: io::Error },
}

/// The right to start the cluster with that folder of its first dispatcher, while the file is open. Errors: another process is
/// starting it, or the folder cannot be used.
pub fn hold(dispatcher_dir: &Path) -> Result<File, StartingError> {
    if dispatcher_dir.to_str().is_none() {
        return Err(StartingError::NotUtf8 { dir: dispatcher_dir.parent().unwrap_or(dispatcher_dir).into() });
    }
    let path = start_lock(dispatcher_dir);
    let fail = |source: io::Error| StartingError::Unusable { path: path.clone(), source };
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let pid = std::fs::read_to_string(&path).unwrap_or_default().trim().into();
                let dir = dispatcher_dir.parent().unwrap_or(dispatcher_dir).into();
                return Err(StartingError::Held { pid, dir });
            }
            Err(TryLockError::Error(e)) => return Err(fail(e)),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn one_at_a_time_has_the_right_to_start_a_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let held = hold(dir.path()).unwrap();
        let error = hold(dir.path()).unwrap_err().to_string();
        let expect = format!("process {} is just starting a cluster in ", std::process::id());
        assert!(error.starts_with(&expect), "{error}");
        drop(held);
        hold(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_whose_name_is_no_text_is_refused() {
        let dir = Path::new(std::ffi::OsStr::from_bytes(b"/tmp/st\xff/dispatcher"));
        let error = hold(dir).unwrap_err().to_string();
        assert!(error.starts_with("the name of the folder `/tmp/st\\xff` is not UTF-8"), "{error}");
    }
}
