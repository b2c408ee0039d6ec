//! The processes below a process: finds them, and the memory that they hold.

use std::cell::OnceCell;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

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

/// All processes below `pid`, those nearest to it first.
pub fn all_below(pid: u32) -> Vec<i32> {
    let mut all = children_of(pid);
    let mut next = 0;
    while next < all.len() {
        let more = children_of(all[next] as u32);
        all.extend(more);
        next += 1;
    }
    all
}

/// Whether a process is there and has not ended: a zombie runs no more.
pub fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// What the kernel says of a child of this process, which has one thread. The files stay open: to find them in `/proc` each time took
/// longer than what a short task does.
pub struct ChildFiles {
    pid: i32,
    stat: File,
    /// The children of the child's first thread, and those of this process. `None`: this kernel does not say them.
    children: Option<(File, File)>,
}

impl ChildFiles {
    /// `None`: the child is gone.
    pub fn open(pid: i32) -> Option<ChildFiles> {
        let stat = File::open(format!("/proc/{pid}/stat")).ok()?;
        let children = File::open(format!("/proc/{pid}/task/{pid}/children")).ok();
        Some(ChildFiles { pid, stat, children: children.zip(File::open("/proc/thread-self/children").ok()) })
    }

    /// Processor time of the child so far, in clock ticks: in user and in system mode. `None`: it is gone.
    pub fn ticks(&self) -> Option<(u64, u64)> {
        let [user, system, ..] = self.fields()?;
        Some((user, system))
    }

    /// Whether the child is the only process below this one. `false`: it may have children, of one thread or of another.
    pub fn is_alone(&self) -> bool {
        let Some((children, own)) = &self.children else { return false };
        // What a thread leaves when it ends, another one has. So the threads are counted first. What a process leaves, this one has.
        self.fields().is_some_and(|[.., n_threads]| n_threads == 1)
            && read_again(children, &mut [0; 1]).is_ok_and(str::is_empty)
            && read_again(own, &mut [0; 32]).is_ok_and(|own| own.trim_end().parse() == Ok(self.pid))
    }

    /// The 14th, the 15th and the 20th field of all.
    fn fields(&self) -> Option<[u64; 3]> {
        let mut text = [0; 1024];
        let stat = read_again(&self.stat, &mut text).ok()?;
        // As in `parent_of`.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let (user, system) = (fields.next()?, fields.next()?);
        let n_threads = fields.nth(4)?;
        Some([user.parse().ok()?, system.parse().ok()?, n_threads.parse().ok()?])
    }
}

/// What a file of `/proc` says now, as far as there is room for it.
fn read_again<'a>(file: &File, room: &'a mut [u8]) -> io::Result<&'a str> {
    let n = file.read_at(room, 0)?;
    std::str::from_utf8(&room[..n]).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether the process is on its way to its end, or gone.
pub fn is_exiting(pid: i32) -> bool {
    /// `PF_EXITING`, which the kernel sets before it closes a process's files.
    const EXITING: u32 = 4;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let flags = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(6)?.parse::<u32>().ok());
    flags.is_none_or(|flags| flags & EXITING != 0)
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

/// Memory of processes, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Memory {
    /// What they hold for themselves.
    pub held_bytes: u64,
    /// Pages of files that they map. The kernel takes these back when it needs room; those that are changed it writes to their file.
    pub of_files_bytes: u64,
}

/// Memory of all processes below this one. Resident sets are summed first, which counts shared pages several times, and pages of
/// files as held. Only if that sum exceeds `limit_bytes`, the more expensive proportional sets decide.
pub fn memory_below(pid: u32, limit_bytes: u64) -> Memory {
    let all = all_below(pid);
    let resident: u64 = all.iter().filter_map(|&pid| resident_bytes(pid)).sum();
    if resident <= limit_bytes {
        return Memory { held_bytes: resident, of_files_bytes: 0 };
    }
    let exact = |&pid: &i32| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
        let resident = || Some(Memory { held_bytes: resident_bytes(pid)?, of_files_bytes: 0 });
        rollup.and_then(|rollup| memory_in(&rollup)).or_else(resident)
    };
    all.iter().filter_map(exact).fold(Memory::default(), |a, b| Memory {
        held_bytes: a.held_bytes + b.held_bytes,
        of_files_bytes: a.of_files_bytes + b.of_files_bytes,
    })
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

/// What a process's `smaps_rollup` says. Kernels before 5.9 do not say how much of the proportional set is of files; then only
/// unchanged pages that no other process maps are known not to be held.
fn memory_in(rollup: &str) -> Option<Memory> {
    let figure = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    let all = figure("Pss:")?;
    let of_files_bytes = figure("Pss_File:").or_else(|| figure("Private_Clean:")).unwrap_or(0).min(all);
    Some(Memory { held_bytes: all - of_files_bytes, of_files_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_child_is_alone_until_it_or_this_process_has_another_one() {
        let script = "read a; sleep 1000 & read b; kill $!; wait; read c";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let files = ChildFiles::open(child.id() as i32).unwrap();
        let mut input = child.stdin.take().unwrap();
        let becomes = |alone: bool| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while files.is_alone() != alone {
                assert!(Instant::now() < deadline, "it is not known that alone is {alone}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        becomes(true);
        input.write_all(b"\n").unwrap();
        becomes(false);
        input.write_all(b"\n").unwrap();
        becomes(true);
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!files.is_alone());
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(files.is_alone() && files.ticks().is_some());
        drop(input);
        child.wait().unwrap();
        assert!(!files.is_alone() && files.ticks().is_none(), "it is gone");
    }

    #[test]
    fn pages_of_files_are_not_held() {
        let rollup = "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss: 300 kB\nPss: 250 kB\nPss_Anon: 40 kB\nPss_File: 200 kB\n\
                      Pss_Shmem: 10 kB\nShared_Clean: 100 kB\nShared_Dirty: 0 kB\nPrivate_Clean: 60 kB\nPrivate_Dirty: 140 kB\n";
        let kb = |held: u64, file: u64| Some(Memory { held_bytes: held << 10, of_files_bytes: file << 10 });
        assert_eq!(memory_in(rollup), kb(50, 200));
        let earlier = rollup.replace("Pss_File", "Other");
        assert_eq!(memory_in(&earlier), kb(190, 60));
        assert_eq!(memory_in("Rss: 300 kB\n"), None);
    }
}
