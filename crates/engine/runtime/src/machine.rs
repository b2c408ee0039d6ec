//! How much memory this machine has.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The mask of this process, which its programs have, too.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let said = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        said.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

/// The size of a page of memory.
pub fn page_bytes() -> u64 {
    // SAFETY: a plain query without arguments in memory.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64
}

/// Memory in bytes that processes here may use together: that of the machine, or less where a control group bounds it, as in a
/// container or a job.
pub fn memory_bytes() -> u64 {
    // SAFETY: plain queries without arguments in memory.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let of_machine = (pages.max(0) as u64).saturating_mul(size.max(0) as u64);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_folders(&groups, Path::new("/sys/fs/cgroup"))
        .iter()
        .flat_map(|folder| ["memory.max", "memory.limit_in_bytes"].map(|name| folder.join(name)))
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok())
        .fold(of_machine, u64::min)
}

/// Memory in bytes that this process could take now without another one's having to give it back: what is free, and what the kernel
/// can free by forgetting copies of files.
pub fn memory_room_bytes() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let folders = group_folders(&groups, Path::new("/sys/fs/cgroup"));
    let of_machine = std::fs::read_to_string("/proc/meminfo").ok();
    let of_machine =
        of_machine.and_then(|text| value_of(&text, "MemAvailable:")).map_or(u64::MAX, |kib| kib << 10);
    folders.iter().filter_map(|folder| room_of_group(folder)).fold(of_machine, u64::min)
}

/// The number that follows this word at the beginning of a line.
fn value_of(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.split_whitespace().next()?.parse().ok())
}

/// What is left of the memory that a control group may have, if it is bounded.
fn room_of_group(folder: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let number = |names: [&str; 2]| names.into_iter().find_map(|name| read(name)?.trim().parse::<u64>().ok());
    let most = number(["memory.max", "memory.limit_in_bytes"])?;
    let used = number(["memory.current", "memory.usage_in_bytes"])?;
    let stat = read("memory.stat")?;
    let files = |words: [&str; 2]| words.into_iter().find_map(|word| value_of(&stat, word)).unwrap_or(0);
    let copies =
        files(["total_inactive_file ", "inactive_file "]) + files(["total_active_file ", "active_file "]);
    Some(most.saturating_sub(used.saturating_sub(copies)))
}

/// The folders of the control groups that bound the memory of a process, the innermost first.
///
/// groups : the process's `/proc/PID/cgroup`. root : where control groups are mounted. A container may see its own group there in
/// place of the path that its processes have, so the root is always among them.
fn group_folders(groups: &str, root: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for line in groups.lines() {
        let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':'))
        else {
            continue;
        };
        let mount = match controllers {
            "" => root.to_path_buf(),
            _ if controllers.split(',').any(|name| name == "memory") => root.join("memory"),
            _ => continue,
        };
        let below = Path::new(path.trim_start_matches('/'));
        // A group outside of what is mounted here is written with `..`.
        let below = if below.components().all(|part| matches!(part, Component::Normal(_))) {
            below
        } else {
            Path::new("")
        };
        found.extend(below.ancestors().map(|part| mount.join(part)));
    }
    found
}

/// How long after the kernel has ended a process for lack of memory a program that was killed may have been that process.
const KILLED_WITHIN: Duration = Duration::from_secs(3);

/// Processes that the kernel has ended for lack of memory: in the control group that bounds this process, or on the machine.
pub struct MemoryKills {
    file: Option<PathBuf>,
    count: u64,
    changed: Option<Instant>,
}

impl MemoryKills {
    pub fn of_this_process() -> MemoryKills {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let files = group_folders(&groups, Path::new("/sys/fs/cgroup")).into_iter();
        let files =
            files.flat_map(|folder| ["memory.events", "memory.oom_control"].map(|name| folder.join(name)));
        let mut files = files.chain([PathBuf::from("/proc/vmstat")]);
        let file = files.find(|file| count_of_kills(file).is_some());
        let count = file.as_deref().and_then(count_of_kills).unwrap_or(0);
        MemoryKills { file, count, changed: None }
    }

    /// Looks whether there are more. Called now and then, so that what is found when a program was killed is not of long ago.
    pub fn look(&mut self, now: Instant) {
        let count = self.file.as_deref().and_then(count_of_kills).unwrap_or(self.count);
        if count > self.count {
            self.changed = Some(now);
        }
        self.count = count;
    }

    /// Whether a program that was killed by now may have been ended by the kernel for lack of memory.
    pub fn is_recent(&mut self, now: Instant) -> bool {
        self.look(now);
        self.changed.is_some_and(|at| now.duration_since(at) < KILLED_WITHIN)
    }
}

fn count_of_kills(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_bound_memory_from_the_innermost_to_the_root() {
        let folders = |groups: &str| group_folders(groups, Path::new("/cg"));
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(folders("0::/a/b\n"), paths(&["/cg/a/b", "/cg/a", "/cg"]));
        let old = "5:cpu,cpuacct:/x\n4:memory:/job\n";
        assert_eq!(folders(old), paths(&["/cg/memory/job", "/cg/memory"]));
        assert_eq!(folders("0::/../other\n"), paths(&["/cg"]));
        assert_eq!(folders("nonsense"), paths(&[]));
    }

    #[test]
    fn copies_of_files_are_room_in_a_group() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(room_of_group(dir.path()), None);
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 300\ninactive_file 100\nactive_file 50\nunevictable 450\n");
        assert_eq!(room_of_group(dir.path()), Some(250));
        write("memory.max", "max\n");
        assert_eq!(room_of_group(dir.path()), None, "it is not bounded");
    }

    #[test]
    fn a_kill_by_the_kernel_is_recent_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.events");
        let write = |n: u32| {
            std::fs::write(&file, format!("low 0\noom 7\noom_kill {n}\noom_group_kill 9\n")).unwrap()
        };
        write(2);
        let mut kills = MemoryKills { file: Some(file.clone()), count: 2, changed: None };
        let begin = Instant::now();
        assert!(!kills.is_recent(begin));
        write(3);
        assert!(kills.is_recent(begin) && kills.is_recent(begin + KILLED_WITHIN / 2));
        assert!(!kills.is_recent(begin + KILLED_WITHIN));
    }
}
