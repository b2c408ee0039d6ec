//! Ends the processes that a killed slot process leaves behind: the executor is the reaper above it.
//!
//! A slot process ends the processes that its program started; a killed slot process cannot. The program
//! itself dies with it. But the processes that the program started become the executor's children, even if
//! they called `setsid` or forked twice, because the executor is the nearest reaper above them. So every
//! child of the executor that is no slot process is a stray.
//!
//! If executor and slot process are killed together, nobody is left to do this. The next executor in the same
//! directory finds such processes by their environment, which names a sandbox of that directory.

use crate::{sys, tree};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time between two checks of processes that take a moment to die.
const PAUSE: Duration = Duration::from_millis(1);
/// How often it is looked for the environment of a process that has none.
const EXEC_LOOKS: u32 = 10;

/// Orphans below this process become its children from now on.
pub fn become_reaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Has the kernel end this process by a signal when `parent`, which has started it, is gone; a parent that is gone already ends it at once.
/// For a process between its fork and its program: it makes plain system calls only. The program may be one for which the kernel forgets
/// this, as it has other rights.
pub fn end_with(parent: u32, signal: i32) {
    // SAFETY: plain calls that may be made between fork and exec.
    unsafe {
        // Until the program begins, the parent's handlers are here, too, and would take the signal for their own.
        libc::signal(signal, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
        // Of a parent that was gone before, nothing is heard.
        if libc::getppid().unsigned_abs() != parent {
            libc::_exit(1);
        }
    }
}

/// Has a command end with this process, see [`end_with`].
pub fn ends_with(command: &mut Command, parent: u32, signal: i32) {
    // SAFETY: plain system calls, after which the new process goes on as it was.
    unsafe {
        command.pre_exec(move || {
            end_with(parent, signal);
            Ok(())
        });
    }
}

/// Has a command begin with its standard streams alone: what else is open here is not for it.
pub fn close_others(command: &mut Command) {
    // SAFETY: see `keep_streams_alone`.
    unsafe {
        command.pre_exec(keep_streams_alone);
    }
}

/// The same, except on a kernel before Linux 5.11, which does not know how: there the command keeps what our parent had open.
pub fn close_inherited(command: &mut Command) {
    // SAFETY: see `keep_streams_alone`.
    unsafe {
        command.pre_exec(|| keep_streams_alone().or(Ok(())));
    }
}

/// For a process that is about to begin another program. A plain system call, after which this one goes on as it was. What is open
/// stays so until the other program begins.
fn keep_streams_alone() -> std::io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Ends all children of this process except `slots`, and the processes that these leave in turn. Returns how
/// many did not go within `give_up_after`: they wait in the kernel, and die when they return from there.
pub fn end_strays(slots: &[u32], give_up_after: Duration) -> usize {
    let give_up = Instant::now() + give_up_after;
    loop {
        let is_slot = |pid: &i32| slots.contains(&pid.unsigned_abs());
        let mut strays = tree::children_of(std::process::id());
        strays.retain(|pid| !is_slot(pid));
        for &pid in &strays {
            // A child that has not been waited for keeps its number, so the signal cannot reach another
            // process.
            sys::kill(pid, libc::SIGKILL);
        }
        // The processes that they have started become our children only when they are dead.
        strays.retain(|&pid| !is_reaped(pid));
        // One that is traced dies when its tracer has, which may be below it.
        for pid in strays.iter().flat_map(|&stray| tree::all_below(stray.unsigned_abs())) {
            sys::kill(pid, libc::SIGKILL);
        }
        if strays.is_empty() && tree::children_of(std::process::id()).iter().all(is_slot) {
            return 0;
        }
        if Instant::now() >= give_up {
            return strays.len();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends processes whose environment says that they belong to a sandbox in `root`. Call it when no other
/// process can run programs there. Returns how many there were.
pub fn end_inhabitants(root: &Path) -> usize {
    let mut needle = b"EYAS_SANDBOX=".to_vec();
    needle.extend_from_slice(root.as_os_str().as_bytes());
    needle.push(b'/');
    let mut n_ended = 0;
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    for entry in processes.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if pid.unsigned_abs() == std::process::id() {
            continue;
        }
        let Some(environment) = environment_of(&entry.path()) else { continue };
        if environment.split(|b| *b == 0).any(|variable| variable.starts_with(&needle)) {
            n_ended += usize::from(sys::kill(pid, libc::SIGKILL));
        }
    }
    n_ended
}

/// The environment of a process, whose folder in `/proc` this is. `None`: it cannot be read, as another user's, which is not ours.
fn environment_of(process: &Path) -> Option<Vec<u8>> {
    let read = || std::fs::read(process.join("environ")).ok();
    // In the moment in which a process becomes another program, it has none. A thread of the kernel has no program either.
    for _ in 0..EXEC_LOOKS {
        let environment = read()?;
        if !environment.is_empty() || std::fs::read_link(process.join("exe")).is_err() {
            return Some(environment);
        }
        std::thread::sleep(PAUSE);
    }
    read()
}

/// Whether the child is dead and has been waited for, now or before.
fn is_reaped(pid: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: `status` is a valid place.
    let found = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG | libc::__WALL) };
    found != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_command_begins_with_its_standard_streams_alone() {
        let file = File::open("/dev/null").unwrap();
        // SAFETY: both are open, and nothing else has the new number. The copy stays open in programs that are started.
        let open = unsafe { libc::dup(file.as_raw_fd()) };
        let told = |close: bool| {
            let mut command = Command::new("readlink");
            command.arg(format!("/proc/self/fd/{open}"));
            if close {
                close_others(&mut command);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        assert_eq!(told(false), "/dev/null\n");
        assert_eq!(told(true), "");
        // SAFETY: it is ours.
        unsafe { libc::close(open) };
    }
}
