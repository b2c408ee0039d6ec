//! Which process uses a directory: the process that its lock file names, if it is alive.
//!
//! A cluster has three such files, all in the directory of a dispatcher, and each node has one in its cache.
//!
//! The lock is not tried: a process that starts at this moment must not find it taken by one that only looks.

use std::path::{Path, PathBuf};

/// The file of the program; those that stand on the same crates begin with it and `-`.
const PROGRAM: &str = "eyas";

/// The lock of a dispatcher: the journal's in its directory.
pub fn dispatcher_lock(dispatcher_dir: &Path) -> PathBuf {
    dispatcher_dir.join("journal").join("lock")
}

/// The lock of the provider, in the folder of the first dispatcher.
pub fn provider_lock(dispatcher_dir: &Path) -> PathBuf {
    dispatcher_dir.join("provider.lock")
}

/// The lock of whoever is starting the cluster, in the folder of its first dispatcher. It is the kernel's, and ends with its process.
pub fn start_lock(dispatcher_dir: &Path) -> PathBuf {
    dispatcher_dir.join("start.lock")
}

/// The process that holds the lock file, as far as that can be seen from outside.
pub fn holder_of(lock: &Path) -> Option<u32> {
    let pid: u32 = std::fs::read_to_string(lock).ok()?.trim().parse().ok()?;
    is_ours(pid).then_some(pid)
}

/// Whether the lock file names a process that is alive, whatever it is: more than [`holder_of`] needs, for those who remove things.
pub(crate) fn names_living(lock: &Path) -> bool {
    let text = std::fs::read_to_string(lock).unwrap_or_default();
    text.trim().parse().is_ok_and(is_alive)
}

fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // A process that has ended but was not waited for holds nothing.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    !after_name.trim_start().starts_with(['Z', 'X'])
}

/// Whether the process is alive and is an eyas process. The numbers of processes are used again.
fn is_ours(pid: u32) -> bool {
    // SAFETY: signal 0 only asks whether the process exists.
    if pid == 0 || unsafe { libc::kill(pid as i32, 0) } != 0 || !is_alive(pid) {
        return false;
    }
    let file_of = |link: &str| {
        let exe = std::fs::read_link(link).ok()?;
        let name = exe.file_name()?.to_string_lossy().into_owned();
        // The file may have been replaced by a newer one meanwhile.
        Some(name.trim_end_matches(" (deleted)").to_string())
    };
    let found = file_of(&format!("/proc/{pid}/exe"));
    // This process may be Python, or a test, whose clusters are processes of another program.
    found == file_of("/proc/self/exe")
        || found.is_some_and(|name| {
            name == PROGRAM || name.strip_prefix(PROGRAM).is_some_and(|of| of.starts_with('-'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_by_a_living_process_of_this_program_only() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        assert_eq!(holder_of(&lock), None);
        let own = std::process::id();
        for (text, held) in [(format!("{own}\n"), Some(own)), ("1\n".into(), None), ("x".into(), None)] {
            std::fs::write(&lock, text).unwrap();
            assert_eq!(holder_of(&lock), held);
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        std::fs::write(&lock, child.id().to_string()).unwrap();
        assert_eq!(holder_of(&lock), None, "another program");
        child.wait().unwrap();
    }
}
