//! Folders that are kept in memory: what nodes cache there takes memory from the programs.

use crate::print::size;
use eyas_storage::file_system_of;
use eyas_text::shown_path;
use std::path::Path;

/// The kinds of file systems that keep their files in memory (`statfs`).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Warns if `dir`, or the place where it will be made, is in memory. `cache_bytes`: the most that all nodes
/// together may cache there.
pub fn say_so(dir: &Path, cache_bytes: u64) {
    if dir.ancestors().find(|at| at.exists()).is_some_and(is_in_memory) {
        eyas_text::say!(
            "note: {} is in memory (tmpfs): what is cached there, up to {}, and the files of running programs count as \
             memory; --dir DIR, or EYAS_STATE, names a folder on a disk",
            shown_path(dir),
            size(cache_bytes)
        );
    }
}

/// Whether the folder is on a file system that keeps its files in memory.
pub fn is_in_memory(dir: &Path) -> bool {
    file_system_of(dir).is_some_and(|kind| IN_MEMORY.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every mount that the kernel lists as in memory is recognised.
    #[test]
    fn what_the_kernel_lists_as_in_memory_is_found() {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        for line in mounts.lines() {
            let mut words = line.split(' ');
            let (Some(_), Some(at), Some(kind)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            // A later mount may lie over this one.
            let is_last = mounts.lines().filter(|l| l.split(' ').nth(1) == Some(at)).count() == 1;
            if is_last
                && Path::new(at).is_dir()
                && ["tmpfs", "ext4", "xfs", "btrfs", "overlay"].contains(&kind)
            {
                assert_eq!(is_in_memory(Path::new(at)), kind == "tmpfs", "{line}");
            }
        }
        assert!(!is_in_memory(Path::new("/no/such/folder")));
    }
}
