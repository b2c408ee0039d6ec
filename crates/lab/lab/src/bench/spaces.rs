//! Machines of a network on this machine for benchmarks: namespaces on a bridge, with links of a given rate.
//!
//! Both ends of each link are shaped (token bucket), so a machine has the rate once in and once out. Commands that run in a
//! namespace know all machines by name (`x0`, `x1`, ...) and address. The disk and the processors are this machine's.
//!
//! Dropping the value removes the namespaces; a signal that ends this process kills what was started, and removes all, too.

use super::failed;
use eyas_cli::{Exit, Fault};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "eyas-bench";
/// Bytes that a link may send at once after silence. With fewer, the timer of the bucket would limit the
/// rate.
const BURST: &str = "256kb";
/// The longest wait for a server to answer. A JVM beside ten others needs its time on two processors.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Runs a command with the hosts file `$0` under the host's name `$1`, which the tools of Globus look up. `ip netns exec` would
/// hide the control groups of this machine.
const AS_HOST: &str = "mount --bind \"$0\" /etc/hosts && hostname \"$1\" && shift && exec \"$@\"";

pub fn address_of(machine: u32) -> Ipv4Addr {
    let [high, low] = u16::try_from(machine + 10).expect("a few machines").to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// Machines in namespaces.
pub struct Spaces {
    hosts: PathBuf,
    n_machines: u32,
    cleaner: Cleaner,
}

impl Spaces {
    /// Makes the network. `dir`: a folder of the benchmark's own, which a signal removes. `link_mbit`: the rate of each link, in
    /// each direction, in Mbit/s (10⁶ bits).
    pub fn make(dir: &Path, n_machines: u32, link_mbit: u64) -> Result<Spaces, Fault> {
        // SAFETY: no arguments, no effects.
        if unsafe { libc::geteuid() } != 0 {
            return Err(Fault::new(Exit::Other, "this benchmark makes network namespaces, so it needs root"));
        }
        remove_left_overs();
        let cleaner = Cleaner::start(dir)?;
        let hosts = dir.join("hosts");
        let known: String = (0..n_machines).map(|n| format!("{} x{n}\n", address_of(n))).collect();
        std::fs::write(&hosts, format!("127.0.0.1 localhost\n{known}"))?;
        let spaces = Spaces { hosts, n_machines, cleaner };
        let bridge = name(&"bridge");
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for n in 0..n_machines {
            let (namespace, end) = (name(&n), format!("ve{n}"));
            ip(&["netns", "add", &namespace])?;
            ip(&[
                "-n", &bridge, "link", "add", &end, "type", "veth", "peer", "name", "eth0", "netns",
                &namespace,
            ])?;
            ip(&["-n", &bridge, "link", "set", &end, "master", "br0", "up"])?;
            ip(&["-n", &namespace, "addr", "add", &format!("{}/16", address_of(n)), "dev", "eth0"])?;
            ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            let rate = format!("{link_mbit}mbit");
            for (namespace, device) in [(&namespace, "eth0"), (&bridge, end.as_str())] {
                let shaper = ["tbf", "rate", &rate, "burst", BURST, "latency", "50ms"];
                let arguments = [&["-n", namespace, "qdisc", "add", "dev", device, "root"], &shaper[..]];
                tool("tc", &arguments.concat())?;
            }
        }
        Ok(spaces)
    }

    /// A command on a machine. Its process id is that of `program`.
    pub fn command(&self, machine: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", name(&machine)));
        command.args(["unshare", "--uts", "--mount", "sh", "-c", AS_HOST]).arg(&self.hosts);
        command.arg(format!("x{machine}")).arg(program);
        // SAFETY: the closure only calls functions that are safe after a fork, and `set` is initialised by sigemptyset before
        // it is used. The signals that the cleaner waits for are blocked in this process, and would stay so in the command.
        unsafe {
            command.pre_exec(|| {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
                Ok(())
            });
        }
        command
    }

    /// A signal that ends this process kills that child, too.
    pub fn watch(&self, pid: u32) {
        self.cleaner.shared.pids().push(pid);
    }

    /// This child has been waited for.
    pub fn forget(&self, pid: u32) {
        self.cleaner.shared.pids().retain(|other| *other != pid);
    }

    /// Waits for ever if a signal has come: the cleaner has killed all children, and is about to end this process. Talking to the
    /// children would only give errors.
    pub fn stop_if_interrupted(&self) {
        while self.cleaner.shared.interrupted.load(Ordering::SeqCst) {
            thread::park();
        }
    }

    /// Bytes that all machines have received over their links so far, headers included.
    pub fn received_bytes(&self) -> Result<u64, Fault> {
        (0..self.n_machines).try_fold(0, |sum, n| {
            let said = tool("ip", &["-n", &name(&n), "-s", "-j", "link", "show", "dev", "eth0"])?;
            let said: serde_json::Value = serde_json::from_str(&said).map_err(failed)?;
            let bytes = said[0]["stats64"]["rx"]["bytes"].as_u64();
            bytes.map(|bytes| sum + bytes).ok_or_else(|| failed("`ip` does not say what a link has received"))
        })
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        self.stop_if_interrupted();
        remove_namespaces(|pid| pid == std::process::id());
    }
}

/// A process on a machine; dropping it ends the process.
pub struct Part<'a> {
    spaces: &'a Spaces,
    name: String,
    log: PathBuf,
    child: Child,
}

impl<'a> Part<'a> {
    /// `command` is one that `spaces` made. What it prints goes to `log`.
    pub fn start(
        spaces: &'a Spaces,
        name: &str,
        command: &mut Command,
        log: PathBuf,
    ) -> Result<Part<'a>, Fault> {
        let out = std::fs::File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .spawn()
            .map_err(|e| failed(format!("cannot start {name}: {e}")))?;
        spaces.watch(child.id());
        Ok(Part { spaces, name: name.into(), log, child })
    }

    /// An error, with the last lines that it printed, if the process has ended.
    pub fn check(&mut self) -> Result<(), Fault> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Err(failed(format!("{} ended with {status}: {}", self.name, last.join("; "))))
    }

    /// Kills the process at once: it cannot write or say anything any more.
    pub fn kill(self) {
        // SAFETY: no memory is involved. The process is a child that nobody has waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGKILL) };
    }

    /// Waits until `is_ready`.
    pub fn wait(&mut self, is_ready: &dyn Fn() -> Result<bool, Fault>) -> Result<(), Fault> {
        let begun = Instant::now();
        while !is_ready()? {
            self.check()?;
            if begun.elapsed() > PATIENCE {
                return Err(failed(format!("{} was not ready after {} s", self.name, PATIENCE.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.spaces.stop_if_interrupted();
        // SAFETY: no memory is involved. The process is a child that nobody has waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        let begun = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if begun.elapsed() > Duration::from_secs(10) {
                // It hangs. If it cannot be killed either, nobody can do more.
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.spaces.forget(self.child.id());
    }
}

/// Processor time of the machine, in ticks.
pub struct Busy {
    busy: u64,
    all: u64,
}

impl Busy {
    pub fn now() -> Busy {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = stat.lines().next().unwrap_or_default();
        // The columns are user nice system idle iowait irq softirq steal; the columns after these are
        // contained in them.
        let ticks: Vec<u64> = first.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        let all = ticks.iter().sum();
        Busy { busy: all - ticks.iter().skip(3).take(2).sum::<u64>(), all }
    }

    pub fn share_since(&self, before: &Busy) -> f64 {
        (self.busy - before.busy) as f64 / (self.all - before.all).max(1) as f64
    }
}

fn name(of: &dyn std::fmt::Display) -> String {
    format!("{NAME}-{}-{of}", std::process::id())
}

/// Removes nodes, namespaces and files when a signal ends this process.
struct Cleaner {
    shared: Arc<CleanerShared>,
}

struct CleanerShared {
    interrupted: AtomicBool,
    pids: Mutex<Vec<u32>>,
}

impl CleanerShared {
    fn pids(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.pids.lock().expect("only pushes happen under this lock")
    }
}

impl Cleaner {
    fn start(dir: &Path) -> Result<Cleaner, Fault> {
        let shared = Arc::new(CleanerShared { interrupted: AtomicBool::new(false), pids: Mutex::default() });
        // SAFETY: `set` is initialised by sigemptyset before it is used. The mask is changed in this
        // thread, from which the one that waits and all later ones inherit it.
        let set = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            set
        };
        let cleaner = Cleaner { shared: Arc::clone(&shared) };
        let dir = dir.to_path_buf();
        thread::Builder::new().name("bench-clean".into()).spawn(move || {
            let mut signal = 0;
            // SAFETY: both variables are alive through the call.
            while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
            shared.interrupted.store(true, Ordering::SeqCst);
            for pid in shared.pids().iter() {
                // SAFETY: no memory is involved. The processes are children that nobody has waited for.
                unsafe { libc::kill((*pid).cast_signed(), libc::SIGKILL) };
            }
            remove_namespaces(|pid| pid == std::process::id());
            // A node may still be ending; files that it leaves are in the folder for temporary files.
            let _ = eyas_runner::sandbox::remove_tree(&dir);
            std::process::exit(Exit::Interrupted.code().into());
        })?;
        Ok(cleaner)
    }
}

fn ip(arguments: &[&str]) -> Result<(), Fault> {
    tool("ip", arguments).map(drop)
}

/// Runs a tool of iproute2 and gives its output.
fn tool(program: &str, arguments: &[&str]) -> Result<String, Fault> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().map_err(|e| {
        failed(format!("cannot run `{program}`: {e}")).hint("`ip` and `tc` are in the package iproute2")
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("`{program} {}` failed: {}", arguments.join(" "), said.trim())))
}

/// Removes the namespaces of benchmarks that have ended.
fn remove_left_overs() {
    remove_namespaces(|pid| !Path::new(&format!("/proc/{pid}")).exists());
}

/// Removes the namespaces of those benchmarks (by process id) for which `whose` is true, as far as
/// possible.
fn remove_namespaces(whose: impl Fn(u32) -> bool) {
    let Ok(list) = tool("ip", &["netns", "list"]) else { return };
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        let pid = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('-')?.split('-').next());
        if pid.and_then(|pid| pid.parse().ok()).is_some_and(&whose) {
            // The next benchmark tries again.
            let _ = ip(&["netns", "del", name]);
        }
    }
}
