//! A view of the machine's files without `/proc`, for threads that follow names of users.
//!
//! Names below `/proc` lead past the rights on the way to a file: `/proc/self/fd/7` is whatever this process has open, and
//! `/proc/PID/cwd` the folder in which a process stands. The kernel allows that to a thread of this process and to whoever has
//! `CAP_SYS_PTRACE`, whatever ids count for files. A check of a name before it is opened comes too early, as its links may change. So
//! a thread that acts as a user is in a mount namespace in which each `/proc` is covered.

use crate::sys;
use eyas_folder::place_of_mount;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;

/// The namespaces with and without `/proc`.
struct Namespaces {
    usual: OwnedFd,
    without: OwnedFd,
}

fn namespaces() -> io::Result<&'static Namespaces> {
    static MADE: OnceLock<Result<Namespaces, (Option<i32>, String)>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let made = thread::spawn(make).join().unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        made.map_err(|error| (error.raw_os_error(), error.to_string()))
    });
    made.as_ref().map_err(|(code, text)| match code {
        Some(code) => io::Error::from_raw_os_error(*code),
        None => io::Error::other(text.clone()),
    })
}

/// Makes them, in a thread that ends with it.
fn make() -> io::Result<Namespaces> {
    let own = || Ok::<_, io::Error>(OwnedFd::from(fs::File::open("/proc/thread-self/ns/mnt")?));
    let usual = own()?;
    // SAFETY: no memory is involved. Only this thread is concerned.
    sys::check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let without = own()?;
    // What is mounted later is seen here, too, and what is mounted here is not seen elsewhere.
    mount(None, c"/", None, libc::MS_SLAVE | libc::MS_REC)?;
    for place in places_of_proc(&fs::read("/proc/thread-self/mountinfo")?) {
        let place = sys::c_string(&place.into_os_string().into_vec())?;
        let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        mount(Some(c"tmpfs"), &place, Some(c"size=4k,mode=0000"), flags)?;
    }
    Ok(Namespaces { usual, without })
}

fn mount(
    kind: Option<&std::ffi::CStr>,
    at: &std::ffi::CStr,
    options: Option<&std::ffi::CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let text = |text: Option<&std::ffi::CStr>| text.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: all texts end in a NUL byte and live until the call is over.
    let result = unsafe { libc::mount(text(kind), at.as_ptr(), text(kind), flags, text(options).cast()) };
    sys::check(result).map(drop)
}

/// Where file systems of the kind `proc` are, by a text like `/proc/self/mountinfo`.
fn places_of_proc(mounts: &[u8]) -> Vec<PathBuf> {
    let lines = mounts.split(|byte| *byte == b'\n');
    let place = |line: &[u8]| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let kind = words.iter().position(|word| *word == b"-").and_then(|at| words.get(at + 1))?;
        (*kind == b"proc").then(|| place_of_mount(words.get(4).unwrap_or(&&b""[..])))
    };
    lines.filter_map(place).collect()
}

/// This thread sees no `/proc`, until it is dropped. It may be nested. Relative paths lead nowhere meanwhile.
#[must_use]
pub(crate) struct WithoutProc {
    /// Whether it is not nested: then it comes back.
    is_outer: bool,
    /// The folder in which this process stands, to come back to, if it is there.
    stood: Option<OwnedFd>,
    namespaces: &'static Namespaces,
}

thread_local! {
    static DEPTH: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl WithoutProc {
    /// Errors: this process lacks `CAP_SYS_ADMIN`, or is in a container that allows no mounts.
    pub(crate) fn enter() -> io::Result<WithoutProc> {
        let namespaces = namespaces()?;
        let is_outer = DEPTH.get() == 0;
        let mut stood = None;
        if is_outer {
            stood = fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_PATH)
                .open(".")
                .ok()
                .map(OwnedFd::from);
            go(&namespaces.without)?;
        }
        DEPTH.set(DEPTH.get() + 1);
        Ok(WithoutProc { is_outer, stood, namespaces })
    }
}

impl Drop for WithoutProc {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if self.is_outer {
            go(&self.namespaces.usual).expect("a thread may go back to where it was");
        }
        if let Some(stood) = &self.stood {
            // Where it fails, the thread stands in the root.
            let _ = rustix::process::fchdir(stood);
        }
    }
}

/// Moves this thread into a mount namespace. What other threads see stays as it is.
fn go(to: &OwnedFd) -> io::Result<()> {
    // A thread that shares its root and its folder with others may not move. One that was started meanwhile shares them.
    // SAFETY: no memory is involved.
    sys::check(unsafe { libc::unshare(libc::CLONE_FS) })?;
    sys::check(unsafe { libc::setns(to.as_raw_fd(), libc::CLONE_NEWNS) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_proc_is_found_wherever_it_is() {
        let text = b"22 1 0:20 / /proc rw,nosuid - proc proc rw\n23 1 0:21 / /sys rw - sysfs sysfs rw\n\
                     40 1 0:20 / /host\\040of/proc rw shared:3 - proc none rw\n";
        assert_eq!(places_of_proc(text), [Path::new("/proc"), Path::new("/host of/proc")]);
    }

    #[test]
    fn proc_is_gone_for_this_thread_and_comes_back() {
        if rustix::process::geteuid().as_raw() != 0 {
            return;
        }
        let file = fs::File::open("/etc/passwd").unwrap();
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let stood = std::env::current_dir().unwrap();
        assert!(fs::read(&own).is_ok());
        let outer = WithoutProc::enter().unwrap();
        assert!(fs::read(&own).is_err() && fs::read("/dev/fd/0").is_err());
        assert!(fs::read("/etc/passwd").is_ok(), "the rest is there");
        assert!(thread::spawn(|| fs::read("/proc/self/status").is_err()).join().unwrap());
        drop(WithoutProc::enter().unwrap());
        assert!(fs::read(&own).is_err(), "the inner one has ended, and not this one");
        drop(outer);
        assert!(fs::read(&own).is_ok());
        assert_eq!(std::env::current_dir().unwrap(), stood);
    }
}
