//! Programs see data sets without a file system of ours: a tree of empty files is mounted, and a file gets its bytes when a program opens it.
//!
//! Calls that name a path stop until they are answered here ([`crate::seccomp`]). The path is resolved as the kernel would, and what is
//! found or missing tells what is to be done ([`crate::skeleton`]): a data set's names are made, a file is filled. Then the kernel carries
//! the call out. A file that is read is opened here and given to the program, so that a program that changes the path in the meantime
//! cannot get a file without its bytes.
//!
//! Answers that need no more than names are given by one thread in turn; what brings bytes has a thread of its own.

use crate::files::Options;
use crate::keeper::Keeper;
use crate::seccomp::{Call, Filter, Kind, Listener};
use crate::skeleton::{FoundEntry, Skeleton};
use eyas_catalog::Access;
use eyas_text::say;
use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// The longest path that the kernel takes.
const PATH_MAX: usize = libc::PATH_MAX as usize;
const PAGE: usize = 4096;
/// Symbolic links on the way to a file, as the kernel has it.
const LINKS_MAX: u32 = 40;
/// Programs that run one another by their first lines, as the kernel has it.
const SCRIPTS_MAX: u32 = 5;

/// The supervisor of a program.
pub struct Notified {
    skeleton: Arc<Skeleton>,
}

impl Notified {
    /// Begins to answer for the process that will put the filter on.
    ///
    /// * `view`: a directory in which is nothing but that of [`Options::empty`]; the tree is made in it.
    /// * `at`: where the program sees the tree.
    /// * `keeper`: what ends the program where this process is killed.
    ///
    /// # Errors
    /// The directory is not there, or this process may have no more open files or threads.
    pub fn begin(
        access: Access,
        options: Options,
        view: &Path,
        at: &Path,
        keeper: Arc<Keeper>,
    ) -> io::Result<(Notified, Filter)> {
        let skeleton = Arc::new(Skeleton::new(access, options, view)?);
        let (filter, from) = Filter::new()?;
        let watched = skeleton.clone();
        thread::Builder::new().name("watch".into()).spawn(move || watched.watch())?;
        let answers = Answers { skeleton: skeleton.clone(), at: at.to_owned() };
        thread::Builder::new().name("calls".into()).spawn(move || {
            if let Err(error) = answers.give_all(&from, &keeper) {
                say!("the calls of the program cannot be answered any more: {error}");
            }
        })?;
        Ok((Notified { skeleton }, filter))
    }

    /// How many files could not be read by a program that wanted to.
    pub fn n_unread(&self) -> usize {
        self.skeleton.n_unread()
    }
}

#[derive(Clone)]
struct Answers {
    skeleton: Arc<Skeleton>,
    at: PathBuf,
}

/// What becomes of a call.
enum Answer {
    Pass,
    Fail(i32),
    Give(OwnedFd, i32),
}

fn give(listener: &Listener, call: &Call, answer: Answer) {
    match answer {
        Answer::Pass => listener.pass(call),
        Answer::Fail(errno) => listener.fail(call, errno),
        Answer::Give(file, flags) => listener.give(call, &file, flags),
    }
}

/// Whether an answer may take longer than other calls should wait for.
fn is_slow(call: &Call, opened: Option<&Opened>) -> bool {
    match (opened.map(|opened| &opened.found), call.kind) {
        (None, _) | (_, Kind::Run) => true,
        (Some(FoundEntry::Other | FoundEntry::Directory { is_complete: true }), _) => false,
        (Some(FoundEntry::Root | FoundEntry::File { .. }), Kind::Look { .. }) => false,
        (Some(FoundEntry::Directory { .. }), kind) => kind != Kind::Look { follows: false },
        (Some(FoundEntry::File { is_full }), _) => !is_full,
        (Some(FoundEntry::Root), _) => true,
    }
}

/// What a path leads to.
struct Opened {
    fd: OwnedFd,
    found: FoundEntry,
    number: u64,
    /// It is no pipe, device or directory.
    is_file: bool,
}

impl Answers {
    fn give_all(self, from: &OwnedFd, keeper: &Keeper) -> io::Result<()> {
        let Some(listener) = Listener::receive(from)? else { return Ok(()) };
        // Without it, the kernel answers when this process is killed.
        let _ = keeper.hold(&listener);
        let listener = Arc::new(listener);
        while let Some(call) = listener.next()? {
            let Some(path) = path_of(&call) else {
                // The kernel says what is wrong with it.
                listener.pass(&call);
                continue;
            };
            if !listener.is_valid(&call) {
                continue;
            }
            let opened = self.open(&call, &path);
            if opened.is_none() && !self.may_be_ours(&call, &path) {
                listener.pass(&call);
                continue;
            }
            if !is_slow(&call, opened.as_ref()) {
                give(&listener, &call, self.answer(&call, &path, opened));
                continue;
            }
            let (answers, listener) = (self.clone(), listener.clone());
            let answer = move || give(&listener, &call, answers.answer(&call, &path, opened));
            thread::Builder::new().name("call".into()).spawn(answer)?;
        }
        Ok(())
    }

    /// Whether a path that leads to nothing could lead to a data set. Most do not, as when a program looks for a library in one directory
    /// after the other.
    fn may_be_ours(&self, call: &Call, path: &Path) -> bool {
        Walk::new(self, call).go(path, &mut |_| Ok::<_, ()>(())).passes_root
    }

    fn answer(&self, call: &Call, path: &Path, opened: Option<Opened>) -> Answer {
        let opened = match opened {
            Some(opened) => Some(opened),
            None => match self.make(call, path) {
                Err(errno) => return Answer::Fail(errno),
                Ok(()) => self.open(call, path),
            },
        };
        let Some(opened) = opened else { return Answer::Pass };
        let Opened { fd, found, number, .. } = &opened;
        let is_file = matches!(found, FoundEntry::File { .. });
        let done = match (found, call.kind) {
            (_, Kind::Run) => self.fill_program(&opened, 0),
            (FoundEntry::Root, Kind::Look { .. })
            | (FoundEntry::Directory { .. }, Kind::Look { follows: false }) => Ok(()),
            (FoundEntry::Directory { is_complete: false }, Kind::Look { .. }) => self.skeleton.begin(*number),
            (FoundEntry::Root | FoundEntry::Directory { is_complete: false }, _) => {
                self.skeleton.complete(*number)
            }
            (FoundEntry::File { .. }, Kind::Open(flags)) if !is_read(flags) => Ok(()),
            (FoundEntry::File { .. }, Kind::Open(_) | Kind::OpenBy) => self.skeleton.fill(*number),
            _ => Ok(()),
        };
        match (done, call.kind) {
            (Err(errno), _) => Answer::Fail(errno),
            (Ok(()), Kind::Open(flags)) if is_file && is_read(flags) && flags & NOT_GIVEN == 0 => {
                open_again(fd, flags).map_or(Answer::Pass, |file| Answer::Give(file, flags))
            }
            (Ok(()), _) => Answer::Pass,
        }
    }

    /// Fills a program, and what its first line says that runs it.
    fn fill_program(&self, program: &Opened, n_before: u32) -> Result<(), i32> {
        let Opened { fd, found, number, is_file } = program;
        if !is_file {
            return Ok(());
        }
        if matches!(found, FoundEntry::File { .. }) {
            self.skeleton.fill(*number)?;
        }
        let mut head = [0; 256];
        let n = open_again(fd, libc::O_RDONLY | libc::O_NONBLOCK)
            .and_then(|file| fs::File::from(file).read(&mut head))
            .unwrap_or(0);
        let Some(line) = head[..n].strip_prefix(b"#!") else { return Ok(()) };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let program = line.split(|byte| *byte == b' ' || *byte == b'\t').next().unwrap_or_default();
        let path = Path::new(OsStr::from_bytes(program));
        if n_before >= SCRIPTS_MAX || !path.starts_with(&self.at) {
            return Ok(());
        }
        if let Ok(below) = path.strip_prefix(&self.at) {
            self.skeleton.make(below)?;
        }
        match open_path(path, 0).ok().and_then(|fd| self.opened(fd)) {
            Some(opened) => self.fill_program(&opened, n_before + 1),
            None => Ok(()),
        }
    }

    /// What the path of a call leads to now.
    fn open(&self, call: &Call, path: &Path) -> Option<Opened> {
        let flags = match call.kind {
            Kind::Open(flags) => flags & libc::O_NOFOLLOW,
            Kind::Look { follows: false } => libc::O_NOFOLLOW,
            _ => 0,
        };
        open_path(&seen_from_here(call, path), flags).ok().and_then(|fd| self.opened(fd))
    }

    fn opened(&self, fd: OwnedFd) -> Option<Opened> {
        // SAFETY: zero is a value of each of its fields.
        let mut of: libc::stat = unsafe { zeroed() };
        // SAFETY: the descriptor is open, and the kernel writes where it may.
        let status = unsafe { libc::fstat(fd.as_raw_fd(), &mut of) };
        let is_file = of.st_mode & libc::S_IFMT == libc::S_IFREG;
        (status == 0).then(|| Opened { fd, found: self.skeleton.found(&of), number: of.st_ino, is_file })
    }

    /// Makes what a path leads through of data sets.
    fn make(&self, call: &Call, path: &Path) -> Result<(), i32> {
        Walk::new(self, call).go(path, &mut |below| self.skeleton.make(below)).stopped.map_or(Ok(()), Err)
    }
}

/// Flags of an open call for which the kernel has to open the file itself.
const NOT_GIVEN: i32 = libc::O_PATH | libc::O_DIRECTORY;

fn is_read(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_RDONLY && flags & (libc::O_TRUNC | libc::O_EXCL) == 0
}

/// A walk along a path through the directories and links of the program's view, as far as there is something.
struct Walk<'a> {
    root: &'a Path,
    /// A name in the root that is no data set's.
    apart: &'a str,
    /// Where a relative path begins.
    begin: PathBuf,
    pid: u32,
}

struct Walked<T> {
    /// It came to a name in the root of the data sets.
    passes_root: bool,
    stopped: Option<T>,
}

impl<'a> Walk<'a> {
    fn new(answers: &'a Answers, call: &Call) -> Walk<'a> {
        let begin = match call.directory {
            libc::AT_FDCWD => format!("/proc/{}/cwd", call.pid),
            fd => format!("/proc/{}/fd/{fd}", call.pid),
        };
        let begin = fs::read_link(begin).ok().filter(|path| path.is_absolute()).unwrap_or_else(|| "/".into());
        Walk { root: &answers.at, apart: &answers.skeleton.apart, begin, pid: call.pid }
    }

    /// Calls `at_missing` with what is missing below the root on the way, as seen from there; an error stops the walk.
    fn go<T>(&self, path: &Path, at_missing: &mut dyn FnMut(&Path) -> Result<(), T>) -> Walked<T> {
        let mut walked = Walked { passes_root: false, stopped: None };
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
                Err(_) => return walked,
            }
        }
        walked
    }
}

/// A path of the program as this process has to name it.
fn seen_from_here(call: &Call, path: &Path) -> PathBuf {
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

fn open_path(path: &Path, flags: i32) -> io::Result<OwnedFd> {
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
fn open_again(fd: &OwnedFd, flags: i32) -> io::Result<OwnedFd> {
    let flags = flags & !(libc::O_NOFOLLOW | libc::O_CREAT | libc::O_NOCTTY | libc::O_PATH) | libc::O_CLOEXEC;
    let path = CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    // SAFETY: the text ends in a NUL byte and lives until the call is over.
    owned(unsafe { libc::open(path.as_ptr(), flags) })
}

/// The path of a call, from the program's memory; `None`: there is none, or it is empty.
fn path_of(call: &Call) -> Option<PathBuf> {
    let mut text = vec![0; PATH_MAX];
    // Memory may end with a page.
    let first = (PAGE - call.path as usize % PAGE).min(PATH_MAX);
    let local = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: PATH_MAX };
    let part = |at: u64, len: usize| libc::iovec { iov_base: at as usize as *mut _, iov_len: len };
    let remote = [part(call.path, first), part(call.path + first as u64, PATH_MAX - first)];
    // SAFETY: the kernel writes at most as many bytes as there is room for, and checks the other side itself.
    let n = unsafe { libc::process_vm_readv(call.pid as libc::pid_t, &local, 1, remote.as_ptr(), 2, 0) };
    let n = usize::try_from(n).ok()?;
    let end = text[..n].iter().position(|byte| *byte == 0)?;
    text.truncate(end);
    (end > 0).then(|| OsString::from_vec(text).into())
}
