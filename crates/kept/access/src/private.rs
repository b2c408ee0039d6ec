//! A view of the machine's files that only this process and what it starts have.
//!
//! The kernel's mount namespaces give it, without root through a namespace of users in which this user keeps its number. The new
//! root is a file system in memory, in which each name of the machine's root is mounted where it was, and one more directory is
//! made. With the last process in it the view is gone, however that process ends.

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{getegid, geteuid};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null;

/// Where the new root is put together. Each machine has it, and what is in it is seen again in the end.
const BASE: &str = "/tmp";

/// So many descriptors are closed where the kernel does not close all at once.
const DESCRIPTORS_MAX: libc::c_int = 4096;

/// Gives this process a view of its own, in which the directory `/name` is there. Has to be called before the process has other
/// threads.
///
/// # Errors
/// The machine does not allow it, and for which step.
pub fn enter(name: &str) -> io::Result<()> {
    let here = std::env::current_dir()?;
    step("make a view of its own", leave_the_others())?;
    // What is mounted from now on stays here.
    step("keep its mounts to itself", mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE))?;
    if !Path::new("/").join(name).is_dir() {
        put_together(name)?;
        std::env::set_current_dir(&here)?;
    }
    Ok(())
}

/// Shows a directory at another place, which has to be a directory, too.
///
/// # Errors
/// One of them is not there.
fn bind(from: &Path, to: &Path) -> io::Result<()> {
    mount(Some(from), to, None, libc::MS_BIND)
}

/// The same where `to` is below what this process itself serves by FUSE. A child that does not hold the server's end does it: killed
/// in this moment, this process would wait for its own answer for ever, because the end closes with its last thread only.
///
/// # Errors
/// One of them is not there, or no process can be started.
pub fn bind_below_own(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (text(from)?, text(to)?);
    // SAFETY: between `fork` and `_exit` are plain system calls, and all texts were made before.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: as above; the child ends here.
        unsafe {
            // By its number: older C libraries do not have it.
            if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
                (0..DESCRIPTORS_MAX).for_each(|fd| _ = libc::close(fd));
            }
            let done = libc::mount(from.as_ptr(), to.as_ptr(), null(), libc::MS_BIND, null());
            libc::_exit(if done == 0 { 0 } else { *libc::__errno_location() });
        }
    }
    let mut status = 0;
    // SAFETY: the place is valid. Nobody else waits for this child.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the process that was to do it was killed")),
    }
}

/// The same as [`bind`], and nothing can be written there.
///
/// # Errors
/// One of them is not there.
pub fn bind_read_only(from: &Path, to: &Path) -> io::Result<()> {
    bind(from, to)?;
    let flags = rustix::fs::statvfs(to)?.f_flag.bits();
    // What somebody with more rights has forbidden there stays so, or the kernel refuses.
    let kept = [
        (libc::ST_NOSUID, libc::MS_NOSUID),
        (libc::ST_NODEV, libc::MS_NODEV),
        (libc::ST_NOEXEC, libc::MS_NOEXEC),
        (libc::ST_NOATIME, libc::MS_NOATIME),
        (libc::ST_NODIRATIME, libc::MS_NODIRATIME),
        (libc::ST_RELATIME, libc::MS_RELATIME),
    ];
    let kept = kept.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, flag)| all | flag);
    mount(None, to, None, libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | kept)
}

/// Takes away what was shown at a place, and below it, also where programs still are in it.
pub fn unbind(at: &Path) {
    // Where nothing is there, nothing is to be done.
    let _ = unmount(at, UnmountFlags::DETACH);
}

fn step<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("this process cannot {what}: {error}")))
}

fn leave_the_others() -> io::Result<()> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let others = if uid == 0 { 0 } else { libc::CLONE_NEWUSER };
    // SAFETY: a plain call.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS | others) })?;
    if uid != 0 {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    Ok(())
}

/// Makes a root with all that is in the present one, and a directory `name`.
fn put_together(name: &str) -> io::Result<()> {
    let base = Path::new(BASE);
    step("make a file system in memory", mount(Some(Path::new("tmpfs")), base, Some("tmpfs"), 0))?;
    let (new, old) = (base.join("new"), base.join("old"));
    fs::create_dir(&new)?;
    fs::create_dir(&old)?;
    // Only what is a mount can become a root.
    bind(&new, &new)?;
    step("change its root", pivot(base, &old))?;
    std::env::set_current_dir("/")?;
    let (new, old) = (PathBuf::from("/new"), PathBuf::from("/old"));
    for entry in fs::read_dir(&old)? {
        let entry = entry?;
        let (from, to) = (entry.path(), new.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        match kind.is_dir() {
            true => fs::create_dir(&to)?,
            false => drop(fs::File::create(&to)?),
        }
        let shown = mount(Some(&from), &to, None, libc::MS_BIND | libc::MS_REC);
        step(&format!("show {}", from.display()), shown)?;
    }
    fs::create_dir(new.join(name))?;
    std::env::set_current_dir(&new)?;
    // The old root comes to lie over the new one, and is taken away.
    step("change its root", pivot(Path::new("."), Path::new(".")))?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    // What a program wrote there would be lost; it shall be told so.
    let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
    step("protect its root", mount(None, Path::new("/"), None, read_only))
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn mount(from: Option<&Path>, to: &Path, kind: Option<&str>, flags: libc::c_ulong) -> io::Result<()> {
    let from = from.map(text).transpose()?;
    let kind = kind.map(|kind| text(Path::new(kind))).transpose()?;
    let to = text(to)?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
    // SAFETY: all texts live until the call is over and end in a NUL byte; the others may be null.
    checked(unsafe { libc::mount(pointer(&from), to.as_ptr(), pointer(&kind), flags, null()) })
}

fn pivot(new: &Path, old: &Path) -> io::Result<()> {
    Ok(rustix::process::pivot_root(new, old)?)
}

fn checked(status: libc::c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
