//! A keeper process removes an executor's folder when the executor is killed.
//!
//! The executor starts the keeper, in a session of its own, and holds a pipe to it. When the pipe closes, the executor is gone.
//! The keeper removes the folder only if the folder's lock still names that executor. Where the folder is kept for the next
//! executor, the keeper leaves the cache in it and removes the rest.

use crate::node;
use eyas_runtime::executor::scratch::Scratch;
use eyas_text::shown_path;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

/// First argument of such a process; the folder and the executor's process follow.
pub const ARGUMENT: &str = "__keeper";
/// Slot processes and programs of an executor that was killed may write for a moment.
const TRIES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// Starts the keeper of this process, which becomes an executor with that folder. It ends after the value that is given is dropped.
///
/// It is no child of this process, because an executor ends all children that are no slot processes. So call it before the executor
/// becomes the parent of its orphans.
pub fn start(dir: &Path) -> std::io::Result<ChildStdin> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ARGUMENT).arg(std::path::absolute(dir)?).arg(std::process::id().to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/");
    // SAFETY: all three calls are safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            match libc::fork() {
                -1 => Err(std::io::Error::last_os_error()),
                0 => Ok(()),
                _ => libc::_exit(0),
            }
        });
    }
    let mut child = command.spawn()?;
    let lifeline = child.stdin.take().expect("it is a pipe");
    child.wait()?;
    Ok(lifeline)
}

/// The keeper's process.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    let (Some(dir), Some(pid)) = (words.next().map(PathBuf::from), words.next()) else {
        return ExitCode::FAILURE;
    };
    eyas_runtime::parent::wait_for_stdin_to_close();
    let number = pid.to_str().and_then(|pid| pid.parse().ok());
    if let Some(scratch) = number.and_then(|pid| Scratch::of_killed(&dir, pid)) {
        leave(scratch);
        return ExitCode::SUCCESS;
    }
    if Scratch::is_at(&dir) {
        // Another executor lives there by now.
        return ExitCode::SUCCESS;
    }
    let lock = dir.join("cache").join("lock");
    let was_its_own = || {
        let holder = std::fs::read_to_string(&lock).ok();
        holder.is_some_and(|text| Some(text.trim()) == pid.to_str())
    };
    if was_its_own() {
        eyas_runner::reaper::end_inhabitants(&dir.join("sandbox"));
        eyas_runtime::executor::sweep_home(&dir);
        for _ in 1..TRIES_MAX {
            if eyas_runner::sandbox::remove_tree(&dir).is_ok() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        remove_node_dir(&dir);
    }
    ExitCode::SUCCESS
}

/// The executor of this folder has ended, or was killed: what has to go from it goes.
pub fn leave(scratch: Scratch) {
    let (dir, stays) = (scratch.dir().to_path_buf(), scratch.stays());
    for n in 1.. {
        match scratch.leave() {
            Err(_) if n < TRIES_MAX => std::thread::sleep(PAUSE),
            Err(e) => {
                eyas_text::say!("eyas: {}: {e}", shown_path(&dir));
                break;
            }
            Ok(()) => break,
        }
    }
    if !stays {
        remove_common_dir(&dir);
    }
}

/// The folder that nodes have theirs in where nobody named one: it goes with the last of them.
pub fn remove_common_dir(dir: &Path) {
    let Some(common) = dir.parent() else { return };
    if common.file_name().is_some_and(|name| name.to_str() == Some(&node::nodes_dir_name()))
        && let Err(e) = std::fs::remove_dir(common)
        && !matches!(e.kind(), std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::NotFound)
    {
        eyas_text::say!("cannot remove {}: {e}", shown_path(common));
    }
}

/// Removes the folder of an executor that was told to leave nothing.
pub fn remove_node_dir(dir: &Path) {
    if let Err(e) = eyas_runner::sandbox::remove_tree(dir) {
        eyas_text::say!("cannot remove {}: {e}", shown_path(dir));
    }
    remove_common_dir(dir);
}
