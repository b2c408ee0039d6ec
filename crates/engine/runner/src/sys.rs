//! Small wrappers around system calls that the other modules share.

use rustix::process::{Gid, Uid};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Turns the -1 of a system call into an error.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes that programs may write to the file system of `fd`, and whether it has too little room to count:
/// less than one byte in 64 and less than 16 MiB, or no further file. That small reserve is not included in
/// the bytes: it is used by things that are not counted, such as folders, parts of blocks, and eyas's own
/// files. `None`: the file system does not say.
pub fn room(fd: RawFd) -> Option<(u64, bool)> {
    let mut stat = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `stat` is a valid place, and all zeros is a valid value should the call fail.
    let (result, stat) = unsafe { (libc::fstatvfs(fd, stat.as_mut_ptr()), stat.assume_init()) };
    if result != 0 || stat.f_blocks == 0 {
        return None;
    }
    let enough_blocks = (stat.f_blocks / 64).min((16 << 20) / stat.f_frsize.max(1));
    // A file system without a table of files says 0 of 0.
    let no_file_left = stat.f_files > 0 && stat.f_favail == 0;
    let free_blocks = stat.f_bavail.saturating_sub(enough_blocks);
    Some((free_blocks * stat.f_frsize, stat.f_bavail < enough_blocks || no_file_left))
}

pub fn timeval_ns(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
}

/// `getrusage` of `RUSAGE_SELF` or `RUSAGE_CHILDREN`.
pub fn usage_of(whom: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::zeroed();
    // SAFETY: `usage` is a valid place, and all zeros is a valid value should the call fail.
    unsafe {
        libc::getrusage(whom, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// CPU time of this process and the children that it has waited for.
pub fn cpu_ns() -> u64 {
    let both = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(usage_of);
    both.iter().map(|usage| timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime)).sum()
}

/// A path for a system call; refuses NUL bytes.
pub fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the name holds a NUL byte"))
}

pub fn open_at(dir: RawFd, path: &CStr, flags: libc::c_int, mode: libc::mode_t) -> io::Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated; the result is a descriptor that nobody else owns.
    unsafe {
        let fd = check(libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode as libc::c_uint))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// `stat` of `path` relative to `dir`; `flags` as `fstatat` takes them.
pub fn stat_at(dir: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: `path` is NUL-terminated and `stat` is a valid place; it is filled when the call succeeds.
    unsafe {
        check(libc::fstatat(dir, path.as_ptr(), stat.as_mut_ptr(), flags))?;
        Ok(stat.assume_init())
    }
}

pub fn stat_fd(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: `stat` is a valid place; it is filled when the call succeeds.
    unsafe {
        check(libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()))?;
        Ok(stat.assume_init())
    }
}

pub fn mkdir_at(dir: RawFd, path: &CStr, mode: libc::mode_t) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::mkdirat(dir, path.as_ptr(), mode) }).map(drop)
}

pub fn unlink_at(dir: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::unlinkat(dir, path.as_ptr(), flags) }).map(drop)
}

/// Makes a user and a group the owners of an open file.
pub fn give(file: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    Ok(rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Makes a user and a group the owners of `path`, and not of what a link there leads to.
pub fn give_at(dir: RawFd, path: &CStr, (uid, gid): (u32, u32)) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::fchownat(dir, path.as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW) }).map(drop)
}

/// Returns whether a process existed that could get the signal.
pub fn kill(pid: libc::pid_t, signal: libc::c_int) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// Names in a directory, block by block, without `.` and `..`. Bounded memory for directories of any size.
pub struct DirBlocks<'a> {
    dir: BorrowedFd<'a>,
    buffer: Box<[u64; 4096]>,
    filled_bytes: usize,
    at: usize,
}

impl<'a> DirBlocks<'a> {
    /// Starts from the first entry, wherever `dir` was before.
    pub fn new(dir: BorrowedFd<'a>) -> io::Result<Self> {
        rewind(dir)?;
        Ok(Self { dir, buffer: Box::new([0; 4096]), filled_bytes: 0, at: 0 })
    }

    pub fn next_name(&mut self) -> io::Result<Option<CString>> {
        loop {
            if self.at >= self.filled_bytes {
                self.filled_bytes = read_entries(self.dir, &mut self.buffer[..])?;
                self.at = 0;
                if self.filled_bytes == 0 {
                    return Ok(None);
                }
            }
            let (name, next) = entry_at(&self.buffer[..], self.at);
            self.at = next;
            if name != c"." && name != c".." {
                return Ok(Some(name.to_owned()));
            }
        }
    }
}

/// Whether a directory has no entries. Three system calls for an empty one, no allocation.
pub fn is_empty_dir(dir: BorrowedFd<'_>) -> io::Result<bool> {
    rewind(dir)?;
    // Large enough for one entry with the longest name.
    let mut buffer = [0u64; 40];
    loop {
        let filled_bytes = read_entries(dir, &mut buffer)?;
        if filled_bytes == 0 {
            return Ok(true);
        }
        let mut at = 0;
        while at < filled_bytes {
            let (name, next) = entry_at(&buffer, at);
            if name != c"." && name != c".." {
                return Ok(false);
            }
            at = next;
        }
    }
}

fn rewind(dir: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0)).map(drop)?)
}

fn read_entries(dir: BorrowedFd<'_>, buffer: &mut [u64]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most the given number of bytes into `buffer`.
    let filled_bytes = unsafe {
        libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), size_of_val(buffer))
    };
    if filled_bytes < 0 { Err(io::Error::last_os_error()) } else { Ok(filled_bytes as usize) }
}

/// The entry that starts at byte `at` of a block of `linux_dirent64`, and where the next one starts.
fn entry_at(buffer: &[u64], at: usize) -> (&CStr, usize) {
    const RECORD_LENGTH: usize = 16;
    const NAME: usize = 19;
    // SAFETY: any u64 is eight valid bytes.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), size_of_val(buffer)) };
    let length = usize::from(u16::from_ne_bytes([bytes[at + RECORD_LENGTH], bytes[at + RECORD_LENGTH + 1]]));
    let name = CStr::from_bytes_until_nul(&bytes[at + NAME..at + length]).unwrap_or(c"");
    (name, at + length)
}
