//! What the paths of stopped calls ([`crate::seccomp`]) mean: read from the memory of the process that makes the call, and followed as the
//! kernel would, as far as there is something.

use crate::seccomp::{Call, Listener};
use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// The longest path that the kernel takes.
const PATH_MAX: usize = libc::PATH_MAX as usize;
const PAGE: usize = 4096;
/// Programs that run one another by their first lines, as the kernel has it.
pub const SCRIPTS_MAX: u32 = 5;
/// Symbolic links on the way to a file, as the kernel has it.
const LINKS_MAX: u32 = 40;

/// A walk along a path through the directories and links of the program's view, as far as there is something.
pub struct Walk<'a> {
    root: &'a Path,
    /// A name in the root that is no data set's.
    apart: &'a str,
    /// Where a relative path begins.
    begin: PathBuf,
    pid: u32,
}

/// How far a walk came.
pub struct Walked<T> {
    /// It came to a name in the root.
    pub passes_root: bool,
    pub stopped: Option<T>,
    /// What is not there, as seen from the root, with the names behind it on the path; `None`: all is there, or it is not below the root.
    pub missing: Option<PathBuf>,
    /// Behind these names the path leads back by `..`, so they are directories, and the path does not end with them.
    pub leads_back: bool,
}

impl<'a> Walk<'a> {
    /// A walk along a path of `call`. `apart`: a name in the root with which nothing is to be done.
    pub fn new(root: &'a Path, apart: &'a str, call: &Call) -> Walk<'a> {
        Walk::from(root, apart, call.pid, call.directory)
    }

    /// The same of a path that the process `pid` means from this directory of its.
    pub fn from(root: &'a Path, apart: &'a str, pid: u32, directory: RawFd) -> Walk<'a> {
        let begin = match directory {
            libc::AT_FDCWD => format!("/proc/{pid}/cwd"),
            fd => format!("/proc/{pid}/fd/{fd}"),
        };
        let begin = fs::read_link(begin).ok().filter(|path| path.is_absolute()).unwrap_or_else(|| "/".into());
        Walk { root, apart, begin, pid }
    }

    /// Calls `at_missing` with what is missing below the root on the way, as seen from there; an error stops the walk.
    pub fn go<T>(&self, path: &Path, at_missing: &mut dyn FnMut(&Path) -> Result<(), T>) -> Walked<T> {
        let mut walked = Walked { passes_root: false, stopped: None, missing: None, leads_back: false };
        let mut here = if path.is_absolute() { PathBuf::from("/") } else { self.begin.clone() };
        let mut rest: VecDeque<OsString> = VecDeque::new();
        let push = |rest: &mut VecDeque<OsString>, path: &Path| {
            for (n, part) in path.components().enumerate() {
                match part {
                    Component::Normal(name) => rest.insert(n, name.to_owned()),
                    Component::ParentDir => rest.insert(n, "..".into()),
                    _ => rest.insert(n, ".".into()),
                }
            }
        };
        push(&mut rest, path);
        let mut n_links = 0;
        while let Some(name) = rest.pop_front() {
            match name.as_bytes() {
                b"." => continue,
                b".." => {
                    here.pop();
                    continue;
                }
                b"self" if here == Path::new("/proc") => {
                    here.push(self.pid.to_string());
                    continue;
                }
                _ => {}
            }
            walked.passes_root |= here == self.root && name.to_str().is_some_and(|name| name != self.apart);
            here.push(&name);
            let mut found = fs::symlink_metadata(&here);
            if let (true, Err(_), Ok(below)) = (walked.passes_root, &found, here.strip_prefix(self.root)) {
                if let Err(stopped) = at_missing(below) {
                    walked.stopped = Some(stopped);
                    return walked;
                }
                found = fs::symlink_metadata(&here);
            }
            match found {
                Ok(found) if found.is_symlink() => {
                    n_links += 1;
                    let Some(target) = fs::read_link(&here).ok().filter(|_| n_links <= LINKS_MAX) else {
                        return walked;
                    };
                    here.pop();
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    push(&mut rest, &target);
                }
                Ok(_) => {}
                Err(_) => {
                    let Ok(below) = here.strip_prefix(self.root) else { return walked };
                    let back = rest.iter().position(|name| name == "..");
                    let names = rest.iter().take(back.unwrap_or(rest.len())).filter(|name| *name != ".");
                    walked.missing = Some(names.fold(below.to_owned(), |path, name| path.join(name)));
                    walked.leads_back = back.is_some();
                    return walked;
                }
            }
        }
        walked
    }
}

/// Has each call that arrives answered, with its path, until all programs have ended. A call whose path cannot be read passes: the kernel
/// says what is wrong with it. `at_unreadable` gives the error of one whose memory this process may not read.
///
/// # Errors
/// The kernel refuses, or `answer` does.
pub fn each_call(
    listener: &Listener,
    mut at_unreadable: impl FnMut(&Call) -> Option<i32>,
    mut answer: impl FnMut(Call, PathBuf) -> io::Result<()>,
) -> io::Result<()> {
    while let Some(call) = listener.next()? {
        match read_path(call.pid, call.path) {
            Ok(path) if listener.is_valid(&call) => answer(call, path)?,
            // Whoever made the call is gone.
            Ok(_) => {}
            Err(Some(libc::EPERM)) => match at_unreadable(&call) {
                Some(errno) => listener.fail(&call, errno),
                None => listener.pass(&call),
            },
            Err(_) => listener.pass(&call),
        }
    }
    Ok(())
}

/// A path of the program as this process has to name it.
pub fn seen_from_here(call: &Call, path: &Path) -> PathBuf {
    let pid = call.pid;
    if let Ok(rest) = path.strip_prefix("/proc/self") {
        return Path::new("/proc").join(pid.to_string()).join(rest);
    }
    if let Ok(rest) = path.strip_prefix("/proc/thread-self") {
        return Path::new("/proc").join(pid.to_string()).join(rest);
    }
    let from = match (path.is_absolute(), call.directory) {
        (true, _) => {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            match fs::read_link(&root) {
                Ok(link) if link != Path::new("/") => root,
                _ => return path.to_owned(),
            }
        }
        (false, libc::AT_FDCWD) => PathBuf::from(format!("/proc/{pid}/cwd")),
        (false, fd) => PathBuf::from(format!("/proc/{pid}/fd/{fd}")),
    };
    // Not `join`, for which an absolute path stands alone.
    let mut text = from.into_os_string();
    text.push("/");
    text.push(path);
    text.into()
}

/// Opens a path without any right to what is there.
pub fn open_path(path: &Path, flags: i32) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the text ends in a NUL byte and lives until the call is over.
    owned(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC | flags) })
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has just been opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens what a descriptor without any right to it is of.
pub fn open_again(fd: &OwnedFd, flags: i32) -> io::Result<OwnedFd> {
    let flags = flags & !(libc::O_NOFOLLOW | libc::O_CREAT | libc::O_NOCTTY | libc::O_PATH) | libc::O_CLOEXEC;
    let path = CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    // SAFETY: the text ends in a NUL byte and lives until the call is over.
    owned(unsafe { libc::open(path.as_ptr(), flags) })
}

/// The program that the first line of this one says to run it with.
pub fn interpreter_of(program: &OwnedFd) -> Option<PathBuf> {
    let mut head = [0; 256];
    let mut file = fs::File::from(open_again(program, libc::O_RDONLY | libc::O_NONBLOCK).ok()?);
    let n = file.read(&mut head).ok()?;
    let line = head[..n].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let name = line.split(|byte| *byte == b' ' || *byte == b'\t').next()?;
    (!name.is_empty()).then(|| OsString::from_vec(name.to_vec()).into())
}

/// The path at this place in the memory of a process; `None`: there is none, or it is empty.
pub fn path_at(pid: u32, place: u64) -> Option<PathBuf> {
    read_path(pid, place).ok()
}

/// `Err`: the number of the kernel's error, or there is no path.
fn read_path(pid: u32, place: u64) -> Result<PathBuf, Option<i32>> {
    let mut text = vec![0; PATH_MAX];
    // Memory may end with a page.
    let first = (PAGE - place as usize % PAGE).min(PATH_MAX);
    let local = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: PATH_MAX };
    let part = |at: u64, len: usize| libc::iovec { iov_base: at as usize as *mut _, iov_len: len };
    let remote = [part(place, first), part(place + first as u64, PATH_MAX - first)];
    // SAFETY: the kernel writes at most as many bytes as there is room for, and checks the other side itself.
    let n = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, remote.as_ptr(), 2, 0) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error().raw_os_error())?;
    let end = text[..n].iter().position(|byte| *byte == 0).filter(|end| *end > 0).ok_or(None)?;
    text.truncate(end);
    Ok(OsString::from_vec(text).into())
}
