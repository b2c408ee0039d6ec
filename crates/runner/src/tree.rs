//! The processes below a process: finds them, and the memory that they hold.

use std::cell::OnceCell;
use std::fs;

thread_local! {
    /// Whether `/proc/PID/task/TID/children` exists (a kernel option that nearly all kernels have).
    static HAS_CHILDREN_FILES: OnceCell<bool> = const { OnceCell::new() };
}

/// Direct children of `pid`, zombies included. Empty when the process is gone.
pub fn children_of(pid: u32) -> Vec<i32> {
    let has_files = HAS_CHILDREN_FILES
        .with(|has| *has.get_or_init(|| fs::exists("/proc/thread-self/children").unwrap_or(false)));
    if !has_files {
        return children_by_scan(pid);
    }
    let mut children = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return children };
    for thread in threads.flatten() {
        if let Ok(list) = fs::read_to_string(thread.path().join("children")) {
            children.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    children
}

/// For kernels without children files: looks at every process of the machine.
fn children_by_scan(parent: u32) -> Vec<i32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count fields from its end: state, parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Memory of all processes below this one, in bytes. Resident sets are summed first, which counts shared
/// pages several times. Only if that sum exceeds `limit_bytes`, the more expensive proportional sets decide.
pub fn memory_below(pid: u32, limit_bytes: u64) -> u64 {
    let mut all = children_of(pid);
    let mut next = 0;
    while next < all.len() {
        let more = children_of(all[next] as u32);
        all.extend(more);
        next += 1;
    }
    let resident: u64 = all.iter().filter_map(|&pid| resident_bytes(pid)).sum();
    if resident <= limit_bytes || all.len() < 2 {
        return resident;
    }
    all.iter().filter_map(|&pid| proportional_bytes(pid).or_else(|| resident_bytes(pid))).sum()
}

/// Bytes that all programs below these slot processes have written, whether they have ended or not: to files,
/// pipes and sockets. `None` if the kernel does not count them.
pub fn written_by_slots(slots: impl IntoIterator<Item = u32>) -> Option<u64> {
    let mut all: Vec<i32> = slots.into_iter().map(|pid| pid as i32).collect();
    let mut next = 0;
    while next < all.len() {
        let more = children_of(all[next] as u32);
        all.extend(more);
        next += 1;
    }
    // The bytes of a process that has ended meanwhile are counted at the process that waited for it,
    // whichever is read first.
    all.iter()
        .rev()
        .filter_map(|pid| written_bytes(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?))
        .reduce(|a, b| a + b)
}

/// The bytes in a process's `io` file, which counts the process itself and all children that it has waited
/// for. The first of the two figures lacks what is written through memory maps, the second what is written to
/// file systems in memory.
pub fn written_bytes(io: &str) -> Option<u64> {
    let figure = |name: &str| io.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    Some(figure("wchar:")?.max(figure("write_bytes:")?))
}

fn resident_bytes(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    // SAFETY: no memory is involved.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * page_bytes)
}

fn proportional_bytes(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
