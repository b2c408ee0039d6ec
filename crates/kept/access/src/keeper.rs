//! Ends a program whose calls nobody answers any more.
//!
//! Where the supervisor of a program is killed, the kernel lets each call that waits for it fail with `ENOSYS`, and the program would go on
//! with that. So a second process, the keeper, holds the listener as well: then the calls go on waiting. When the supervisor is gone, the
//! keeper ends all processes of the view that both share with the program, and then itself. Where the supervisor ends as it should, it says
//! so before. What the supervisor would have removed at its end is removed, too. With FUSE there is no listener, and the same processes end.

use eyas_runner::seccomp::{Listener, checked, receive, send};
use eyas_text::say;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::c_uint;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long the keeper ends processes that make calls after the supervisor is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at processes that take a moment to die.
const PAUSE: Duration = Duration::from_millis(1);

/// The supervisor's side. The keeper ends with it.
pub struct Keeper(OwnedFd);

impl Keeper {
    /// Begins a keeper for the view of this process ([`crate::enter`]). Has to be called before the process has other threads.
    /// `clean` is called in the keeper where the supervisor was killed, when no process of the view is left.
    ///
    /// # Errors
    /// There can be no more processes or open files.
    pub fn begin(clean: impl FnOnce()) -> io::Result<Keeper> {
        let [ours, its] = eyas_runner::seccomp::pair()?;
        // SAFETY: this process has one thread, so the new one may do whatever this one may.
        let child = unsafe { libc::fork() };
        checked(child)?;
        if child > 0 {
            drop(its);
            // SAFETY: the status is not asked for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            return Ok(Keeper(ours));
        }
        drop(ours);
        // Neither the keys of the terminal nor whoever waits for the children of this process shall reach it.
        // SAFETY: plain calls.
        unsafe {
            libc::setsid();
            if libc::fork() != 0 {
                libc::_exit(0);
            }
        }
        keep(&its, clean);
        // SAFETY: nothing of the process that it was a copy of is to be done.
        unsafe { libc::_exit(0) }
    }

    /// The keeper holds the listener from now on.
    pub(crate) fn hold(&self, listener: &Listener) -> io::Result<()> {
        send(self.0.as_raw_fd(), Some(listener.as_raw_fd()))
    }

    /// The program has ended, or is ended otherwise: the keeper goes. It is gone afterwards.
    pub fn let_go(&self) {
        if send(self.0.as_raw_fd(), None).is_ok() {
            let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience));
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// What the keeper does.
fn keep(from: &OwnedFd, clean: impl FnOnce()) {
    leave_files(from.as_raw_fd());
    let mut listener = None;
    loop {
        match receive(from) {
            Ok(Some((_, Some(fd)))) => listener = Some(Listener::of(fd)),
            Ok(Some((_, None))) => return,
            // The supervisor is gone without a word.
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let n_ended = end_view();
    if n_ended > 0 {
        say!("eyas access was killed, so the program that it ran has been ended");
    }
    // Those are left that have gone to a view of their own.
    let began = Instant::now();
    while let Some(left) = PATIENCE.checked_sub(began.elapsed())
        && let Some(listener) = &listener
        && let Ok(Some(call)) = listener.next_within(Some(left))
    {
        // The process waits, so the number is its own.
        kill(call.pid);
    }
    clean();
}

/// Closes all files but one and the stream for messages, so that nobody waits for the keeper's end.
fn leave_files(but: RawFd) {
    // SAFETY: plain calls; nobody uses these files here.
    unsafe {
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        libc::dup2(nothing, 0);
        libc::dup2(nothing, 1);
        let close =
            |first: RawFd, last: c_uint| libc::syscall(libc::SYS_close_range, first as c_uint, last, 0);
        if but > 3 {
            close(3, but as c_uint - 1);
        }
        close(but + 1, c_uint::MAX);
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"eyas-keeper".as_ptr());
    }
}

fn kill(pid: u32) {
    let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
}

/// Ends all other processes that see the files of the machine as this one does; how many there were.
fn end_view() -> usize {
    let view_of = |process: &str| fs::read_link(PathBuf::from("/proc").join(process).join("ns/mnt")).ok();
    let (Some(own), own_pid) = (view_of("self"), std::process::id()) else { return 0 };
    let mut n_ended = 0;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let Ok(processes) = fs::read_dir("/proc") else { break };
        let names = processes.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let pids = names.filter_map(|name| name.parse::<u32>().ok());
        // One that has ended sees nothing any more.
        let others: Vec<u32> =
            pids.filter(|pid| *pid != own_pid && view_of(&pid.to_string()).as_ref() == Some(&own)).collect();
        if others.is_empty() {
            break;
        }
        for pid in &others {
            kill(*pid);
        }
        n_ended = n_ended.max(others.len());
        thread::sleep(PAUSE);
    }
    n_ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where nobody lets it go, it waits; and it is gone as soon as somebody does.
    #[test]
    fn a_keeper_goes_when_it_is_let_go() {
        let [ours, its] = eyas_runner::seccomp::pair().unwrap();
        // Not a process of its own, as this one has threads.
        let kept = thread::spawn(move || match receive(&its) {
            Ok(Some((_, None))) => drop(its),
            other => panic!("{other:?}"),
        });
        let keeper = Keeper(ours);
        thread::sleep(Duration::from_millis(20));
        assert!(!kept.is_finished());
        keeper.let_go();
        kept.join().unwrap();
    }
}
