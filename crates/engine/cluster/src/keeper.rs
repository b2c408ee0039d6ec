//! A keeper process removes an executor's folder when the executor is killed.
//!
//! The executor starts the keeper, in a session of its own, and holds a pipe to it. When the pipe closes, the executor is gone.
//! One that has cleared up by itself says so first, and the keeper touches nothing: by then the folder is the next executor's.
//! Otherwise the keeper removes the folder only if the folder's lock still names that executor. Where the folder is kept for the next
//! executor, the keeper leaves the cache in it and removes the rest.

use crate::dirs::nodes_dir_name;
use eyas_runtime::executor::scratch::Scratch;
use eyas_text::shown_path;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Slot processes and programs of an executor that was killed may write for a moment.
const TRIES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// The keeper of this process. Dropping it, as the end of the process does, makes the keeper do its work.
pub struct Keeper(ChildStdin);

impl Keeper {
    /// Nothing is left to do: the keeper ends, and does not look at the folder again.
    pub fn dismiss(mut self) {
        // Where the keeper is gone, nobody needs to hear it.
        let _ = self.0.write_all(b"done\n");
    }
}

/// Starts the keeper of this process, which becomes an executor with that folder: a process of this program whose first argument is
/// `argument`, and which then calls [`keep`] with the other two.
///
/// It is no child of this process, because an executor ends all children that are no slot processes. So call it before the executor
/// becomes the parent of its orphans.
pub fn start(argument: &str, dir: &Path) -> std::io::Result<Keeper> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(argument).arg(std::path::absolute(dir)?).arg(std::process::id().to_string());
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
    Ok(Keeper(lifeline))
}

/// What the keeper's process does: it waits until the executor with that folder and that number of its process is gone. Gives what
/// could not be done, in sentences.
pub fn keep(dir: &Path, pid: &str) -> Vec<String> {
    let mut said = vec![];
    // A pipe that cannot be read says as much as one that is closed.
    let _ = std::io::stdin().read_to_end(&mut said);
    if !said.is_empty() {
        return vec![];
    }
    if let Some(scratch) = pid.parse().ok().and_then(|pid| Scratch::of_killed(dir, pid)) {
        return leave(scratch);
    }
    if Scratch::is_at(dir) {
        // Another executor lives there by now.
        return vec![];
    }
    let lock = dir.join("cache").join("lock");
    let was_its_own = || {
        let holder = std::fs::read_to_string(&lock).ok();
        holder.is_some_and(|text| text.trim() == pid)
    };
    if !was_its_own() {
        return vec![];
    }
    eyas_runner::reaper::end_inhabitants(&dir.join("sandbox"));
    eyas_runtime::executor::sweep_home(dir);
    for _ in 1..TRIES_MAX {
        if eyas_runner::sandbox::remove_tree(dir).is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    remove_node_dir(dir)
}

/// The executor of this folder has ended, or was killed: what has to go from it goes. Gives what could not be done.
pub fn leave(scratch: Scratch) -> Vec<String> {
    let mut undone = vec![];
    let (dir, stays) = (scratch.dir().to_path_buf(), scratch.stays());
    for n in 1.. {
        match scratch.leave() {
            Err(_) if n < TRIES_MAX => std::thread::sleep(PAUSE),
            Err(e) => {
                undone.push(format!("eyas: {}: {e}", shown_path(&dir)));
                break;
            }
            Ok(()) => break,
        }
    }
    if !stays {
        undone.extend(remove_common_dir(&dir));
    }
    undone
}

/// The folder that nodes have theirs in where nobody named one: it goes with the last of them. Gives why it could not.
fn remove_common_dir(dir: &Path) -> Option<String> {
    let common = dir.parent()?;
    if common.file_name().is_some_and(|name| name.to_str() == Some(&nodes_dir_name()))
        && let Err(e) = std::fs::remove_dir(common)
        && !matches!(e.kind(), std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::NotFound)
    {
        return Some(cannot_remove(common, &e));
    }
    None
}

fn cannot_remove(dir: &Path, e: &dyn std::fmt::Display) -> String {
    format!("cannot remove {}: {e}", shown_path(dir))
}

/// Removes the folder of an executor that was told to leave nothing. Gives what could not be done.
pub fn remove_node_dir(dir: &Path) -> Vec<String> {
    let removed = eyas_runner::sandbox::remove_tree(dir);
    let undone = removed.err().map(|e| cannot_remove(dir, &e));
    undone.into_iter().chain(remove_common_dir(dir)).collect()
}
