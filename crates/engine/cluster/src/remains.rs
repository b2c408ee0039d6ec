//! What runs leave behind on this machine: caches, sandboxes and files at home that nobody needs any more.

use crate::dirs::node_dirs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Removes what killed nodes have left at home, as no later node may do it.
pub fn sweep_homes(dir: &Path) {
    node_dirs(dir).iter().for_each(|node| eyas_runtime::executor::sweep_home(node));
}

/// Removes caches and sandboxes of an embedded run. All nodes are removed at once, because some file systems
/// take milliseconds for each file (ext4 that discards blocks as they become free). `slow` is called where it takes long.
pub fn remove_nodes(dir: &Path, slow: impl FnOnce()) {
    let (removed, left) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for node in node_dirs(dir) {
            let removed = removed.clone();
            scope.spawn(move || {
                let _ = eyas_runner::sandbox::remove_tree(&node);
                drop(removed);
            });
        }
        drop(removed);
        if left.recv_timeout(Duration::from_secs(3)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            slow();
        }
    });
}

/// Keeps the folders of the latest few embedded runs, and removes the caches of runs that were killed. `slow` is called with the
/// folder of a run where that takes long.
pub fn forget_old_runs(newest: &Path, slow: impl Fn(&Path)) {
    const RUNS_KEPT: usize = 20;
    let Some(entries) = newest.parent().and_then(|p| std::fs::read_dir(p).ok()) else { return };
    let mut runs: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p != newest).collect();
    runs.sort();
    for (age, old) in runs.iter().rev().enumerate() {
        // The folder's name contains the process id of the command that runs it.
        let pid = old.file_name().and_then(|n| n.to_str()?.rsplit_once('-')?.1.parse::<i32>().ok());
        // SAFETY: signal 0 only asks whether the process exists.
        let alive = pid.is_some_and(|pid| unsafe { libc::kill(pid, 0) } == 0);
        if !alive {
            sweep_homes(old);
        }
        match (alive, age < RUNS_KEPT) {
            (true, _) => {}
            (false, true) => remove_nodes(old, || slow(old)),
            (false, false) => drop(eyas_runner::sandbox::remove_tree(old)),
        }
    }
}
