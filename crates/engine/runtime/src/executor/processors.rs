//! How busy this node's processors are, and with whose programs, as the kernel counts it.
//!
//! In: `/proc`. Out: a [`ProcessorUse`] for each look but the first. The processors are those that this process may run on,
//! so a job of a batch system that has some of a machine's processors looks at these alone.
//!
//! Processor time of eyas is that of this process, of all processes called `eyas` or `eyas-...` of the same user, and of all that these
//! have started: several nodes, their dispatcher and the commands of users may share a machine. Everything else that the
//! processors did is others' time, that of other virtual machines (*steal*) among it.
//!
//! A process that ends leaves its time to the one that waits for it, so a tree's sum only grows while its root lives.
//!
//! Not here: when a look is worth a message ([`ProcessorUse::is_news`]).

use eyas_terms::processors::ProcessorUse;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// At most one part in this many of a processor's time goes into looks.
const PART_MAX: u32 = 300;
/// In less time, ticks of the kernel's clock are too few.
const SPAN_MIN: Duration = Duration::from_millis(900);

/// The root of a tree of processes: its number, and when it began, as numbers are given again.
type Root = (u32, u64);

/// What the kernel had counted at one time, in ticks.
struct Counts {
    at: Instant,
    used: u64,
    all: u64,
    own: BTreeMap<Root, u64>,
}

/// Looks at the processors now and then.
pub struct Looks {
    machine: u64,
    n_processors: u32,
    /// The processors that this process may run on.
    allowed: Vec<usize>,
    last: Option<Counts>,
    /// The next look is not before.
    next: Instant,
}

impl Looks {
    pub fn of_this_process() -> Looks {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (eyas_host::host_name(), boot).hash(&mut hasher);
        Looks {
            machine: hasher.finish(),
            n_processors: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            allowed: allowed_processors(),
            last: None,
            next: Instant::now(),
        }
    }

    /// Looks, unless the last look was a moment ago or took too long. `None`: there is nothing new to say.
    pub fn look(&mut self) -> Option<ProcessorUse> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let (used, all) = count(&stat, &self.allowed);
        let counts = Counts { at: now, used, all, own: own_ticks(&processes(), is_root()) };
        self.next = now + SPAN_MIN.max(now.elapsed() * PART_MAX);
        let seen = self.last.as_ref().and_then(|last| compare(last, &counts));
        self.last = Some(counts);
        let (used_permille, others_permille) = seen?;
        let (machine, n_processors) = (self.machine, self.n_processors);
        Some(ProcessorUse { machine, n_processors, used_permille, others_permille })
    }
}

/// In thousandths, what was used from one look to the next, and what of it by others; `None`: too few ticks.
fn compare(before: &Counts, now: &Counts) -> Option<(u32, u32)> {
    let all = now.all.saturating_sub(before.all);
    if all == 0 || now.at.saturating_duration_since(before.at) < SPAN_MIN {
        return None;
    }
    let used = now.used.saturating_sub(before.used).min(all);
    // A root that was not there before has begun since.
    let grown =
        |(root, ticks): (&Root, &u64)| ticks.saturating_sub(before.own.get(root).copied().unwrap_or(0));
    let own: u64 = now.own.iter().map(grown).sum();
    let permille = |ticks: u64| (ticks * 1000 / all) as u32;
    Some((permille(used), permille(used.saturating_sub(own))))
}

/// Used ticks and all ticks of these processors, from `/proc/stat`.
fn count(stat: &str, allowed: &[usize]) -> (u64, u64) {
    let (mut used, mut all) = (0, 0);
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let Some(Ok(number)) = name.strip_prefix("cpu").map(str::parse::<usize>) else { continue };
        if !allowed.contains(&number) {
            continue;
        }
        // user, nice, system, idle, iowait, irq, softirq, steal; what guests use is in the first two.
        let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let sum: u64 = ticks.iter().sum();
        all += sum;
        used += sum - ticks.iter().skip(3).take(2).sum::<u64>();
    }
    (used, all)
}

/// A process, from its `/proc/PID/stat`.
struct Process {
    parent: u32,
    began: u64,
    /// Of itself, and of those of its children that have ended and that it has waited for.
    ticks: u64,
    /// Whether its name is one of eyas.
    is_eyas: bool,
}

impl Process {
    fn parse(stat: &str) -> Option<Process> {
        let (head, tail) = stat.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let words: Vec<&str> = tail.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let ticks = (11..15).map(number).sum::<Option<u64>>()?;
        let parent = number(1)? as u32;
        Some(Process {
            parent,
            began: number(19)?,
            ticks,
            is_eyas: name == "eyas" || name.starts_with("eyas-"),
        })
    }
}

fn processes() -> HashMap<u32, Process> {
    let mut line = [0; 1024];
    let of = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let n = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        // Names of processes may be any bytes.
        Some((pid, Process::parse(&String::from_utf8_lossy(&line[..n]))?))
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of).collect()
}

/// Whether a process is this one, or one of eyas of the same user.
fn is_root() -> impl Fn(u32, &Process) -> bool {
    let own = std::process::id();
    let user = rustix::process::geteuid().as_raw();
    let is_ours = move |pid: u32| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|m| m.uid() == user);
    move |pid, process| pid == own || process.is_eyas && is_ours(pid)
}

/// Ticks of the trees below processes of eyas, by their highest one.
fn own_ticks(
    processes: &HashMap<u32, Process>,
    is_root: impl Fn(u32, &Process) -> bool,
) -> BTreeMap<Root, u64> {
    let mut trees: BTreeMap<Root, u64> = BTreeMap::new();
    for (pid, process) in processes {
        let (mut at, mut root, mut n_steps) = (Some((*pid, process)), None, 0);
        // Processes come and go while they are listed, so parents may make a circle.
        while let Some((pid, process)) = at.filter(|_| n_steps < 1000) {
            if is_root(pid, process) {
                root = Some((pid, process.began));
            }
            n_steps += 1;
            at = processes.get(&process.parent).map(|parent| (process.parent, parent));
        }
        if let Some(root) = root {
            *trees.entry(root).or_default() += process.ticks;
        }
    }
    trees
}

/// The processors that this process may run on.
fn allowed_processors() -> Vec<usize> {
    // SAFETY: the set is plain data of the size that is given, and the call writes nothing beyond it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let done = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        if done == 0 { Some(set) } else { None }
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    match set {
        // SAFETY: each number is within the set.
        Some(set) => all.filter(|number| unsafe { libc::CPU_ISSET(*number, &set) }).collect(),
        None => all.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_processors_count_and_waiting_is_no_use() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\n\
                    cpu0 10 1 5 70 4 1 1 8 3 0\n\
                    cpu1 100 0 0 0 0 0 0 0 0 0\n\
                    intr 1 2 3\n";
        assert_eq!(count(stat, &[0]), (26, 100));
        assert_eq!(count(stat, &[0, 1]), (126, 200));
        assert_eq!(count(stat, &[7]), (0, 0));
    }

    #[test]
    fn names_of_processes_may_hold_anything() {
        let stat = "42 (eyas-x) y (z) S 7 42 42 0 -1 4194304 1 2 3 4 100 20 3000 400 20 0 1 0 12345 9 9";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.parent, process.ticks, process.began), (7, 3520, 12345));
        assert!(process.is_eyas && Process::parse("42 (eyas").is_none());
    }

    fn process(parent: u32, ticks: u64, is_eyas: bool) -> Process {
        Process { parent, began: 0, ticks, is_eyas }
    }

    #[test]
    fn what_eyas_started_is_its_own() {
        let all = HashMap::from([
            (1, process(0, 1000, false)),
            (10, process(1, 1, true)),
            (11, process(10, 20, true)),
            (12, process(11, 300, false)),
            (20, process(1, 4000, false)),
            // A circle, as lists of processes that change meanwhile may have.
            (30, process(31, 7, false)),
            (31, process(30, 7, false)),
        ]);
        let own = own_ticks(&all, |_, process| process.is_eyas);
        assert_eq!(own, BTreeMap::from([((10, 0), 321)]));
    }

    #[test]
    fn others_have_what_eyas_has_not_used() {
        let begin = Instant::now();
        let counts = |s: u64, used: u64, own: &[(Root, u64)]| {
            let at = begin + Duration::from_secs(s);
            Counts { at, used, all: 200 * s, own: own.iter().copied().collect() }
        };
        let before = counts(0, 0, &[((1, 0), 50), ((2, 0), 900)]);
        // One tree has gone on, one has gone, one has begun.
        let now = counts(1, 190, &[((1, 0), 80), ((3, 7), 10)]);
        assert_eq!(compare(&before, &now), Some((950, 750)));
        assert_eq!(compare(&before, &counts(0, 190, &[])), None);
        assert_eq!(compare(&before, &counts(1, 10, &[((3, 7), 90)])), Some((50, 0)), "ticks are coarse");
    }

    #[test]
    fn this_machine_is_seen() {
        let mut looks = Looks::of_this_process();
        assert!(looks.n_processors >= 1 && !looks.allowed.is_empty());
        assert_eq!(looks.look(), None, "there is nothing to compare with yet");
        let own = own_ticks(&processes(), is_root());
        assert!(own.keys().any(|(pid, _)| *pid == std::process::id()), "{own:?}");
    }
}
