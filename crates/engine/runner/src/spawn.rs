//! Starting one program.
//!
//! This is what `posix_spawn` does inside (`clone` with `CLONE_VM | CLONE_VFORK`, and a separate stack for
//! the child), without its per-call stack mapping and 64 signal queries, and with one thing that
//! `posix_spawn` cannot do: `PR_SET_PDEATHSIG`, so that a program dies with a slot process that is killed.
//!
//! The child shares our memory until it executes the program; it makes plain system calls only, allocates
//! nothing and cannot unwind. We sleep meanwhile. All signal dispositions are the default ones in the slot
//! process, so no handler can run in the child.

use crate::account::become_forever;
use crate::protocol::Account;
use crate::seccomp::Filter;
use crate::sys;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

const STACK_BYTES: usize = 64 << 10;

/// What every program of a slot gets: its standard streams, and a stack to start on.
pub struct Spawner {
    stack: *mut libc::c_void,
    null: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

struct Request {
    program: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    sandbox: RawFd,
    streams: [RawFd; 3],
    kept: Option<RawFd>,
    filter: *const Filter,
    account: Option<Ids>,
    errno: libc::c_int,
}

/// The ids of an [`Account`].
struct Ids {
    uid: u32,
    gid: u32,
    groups: *const u32,
    n_groups: usize,
}

impl Spawner {
    /// `stdout`, `stderr`: where programs write to; descriptors above 2.
    pub fn new(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        let null = sys::open_at(libc::AT_FDCWD, c"/dev/null", libc::O_RDWR, 0)?;
        // SAFETY: a fresh anonymous mapping; nothing else is touched.
        let stack = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                STACK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if stack == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { stack, null, stdout, stderr })
    }

    /// The streams belong to the account from now on, so that its programs may open them by name, as `/dev/stderr`.
    pub fn give_streams(&self, account: &Account) -> io::Result<()> {
        [&self.stdout, &self.stderr]
            .into_iter()
            .try_for_each(|fd| sys::give(fd.as_fd(), account.uid, account.gid))
    }

    /// Undoes what a program did to the streams it shares with the next one, such as O_NONBLOCK.
    pub fn reset_streams(&self) {
        for fd in [&self.stdout, &self.stderr] {
            // SAFETY: no memory is involved.
            unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, 0) };
        }
    }

    /// Starts `program` in a new process group with `sandbox` as its working directory. When this returns
    /// a process id, the program is executing. The error is that of `execve` (or of what precedes it).
    ///
    /// * `argv` and `envp`: NULL-terminated arrays of NUL-terminated strings.
    /// * `kept`: a further descriptor that the program has, by the same number.
    /// * `filter`: what stops calls of the program until a supervisor has answered.
    /// * `account`: the system user that the program runs as, without capabilities. `None`: that of this process.
    pub fn spawn(
        &self,
        program: &CStr,
        argv: &[*const libc::c_char],
        envp: &[*const libc::c_char],
        sandbox: RawFd,
        kept: Option<RawFd>,
        filter: Option<&Filter>,
        account: Option<&Account>,
    ) -> io::Result<libc::pid_t> {
        assert!(argv.last().is_some_and(|p| p.is_null()) && envp.last().is_some_and(|p| p.is_null()));
        let mut request = Request {
            program: program.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            sandbox,
            streams: [self.null.as_raw_fd(), self.stdout.as_raw_fd(), self.stderr.as_raw_fd()],
            kept,
            filter: filter.map_or(std::ptr::null(), std::ptr::from_ref),
            account: account.map(|Account { uid, gid, groups, .. }| Ids {
                uid: *uid,
                gid: *gid,
                groups: groups.as_ptr(),
                n_groups: groups.len(),
            }),
            errno: 0,
        };
        let request_ptr: *mut Request = &mut request;
        // SAFETY: the child runs `child_main` on its own stack while CLONE_VFORK keeps this thread, the only
        // one, asleep; `request` and what it points to outlive that time.
        let pid = unsafe {
            let stack_top = self.stack.byte_add(STACK_BYTES);
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            sys::check(libc::clone(child_main, stack_top, flags, request_ptr.cast()))?
        };
        if account.is_some() {
            // While the child shared our memory and was another user's process, the kernel kept that user's other processes
            // from looking into it. It goes on doing so until it is told that the time is over.
            // SAFETY: no memory is involved.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        }
        // SAFETY: the child has left our memory; the place is ours again. Volatile, because the compiler
        // does not know who wrote to it.
        let errno = unsafe { (&raw const (*request_ptr).errno).read_volatile() };
        if errno == 0 {
            return Ok(pid);
        }
        // SAFETY: reaps the child that has just ended without a program.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        Err(io::Error::from_raw_os_error(errno))
    }
}

extern "C" fn child_main(request: *mut libc::c_void) -> libc::c_int {
    let request = request.cast::<Request>();
    // SAFETY: `request` is the one of `spawn`, which sleeps. Only async-signal-safe calls follow.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for (target, fd) in (*request).streams.iter().enumerate() {
            if libc::dup2(*fd, target as libc::c_int) < 0 {
                (*request).errno = *libc::__errno_location();
                libc::_exit(127);
            }
        }
        if libc::fchdir((*request).sandbox) < 0 {
            (*request).errno = *libc::__errno_location();
            libc::_exit(127);
        }
        if let Some(kept) = (*request).kept {
            libc::fcntl(kept, libc::F_SETFD, 0);
        }
        if let Some(Ids { uid, gid, groups, n_groups }) = &(*request).account {
            (*request).errno = become_forever(*uid, *gid, *groups, *n_groups);
            if (*request).errno != 0 {
                libc::_exit(127);
            }
            // A change of ids takes this back.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        // The last of all: from here on calls wait.
        if let Some(filter) = (*request).filter.as_ref()
            && let Err(error) = filter.put_on()
        {
            (*request).errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            libc::_exit(127);
        }
        libc::execve((*request).program, (*request).argv, (*request).envp);
        (*request).errno = *libc::__errno_location();
        libc::_exit(127)
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unused now.
        unsafe { libc::munmap(self.stack, STACK_BYTES) };
    }
}
