//! Programs see data sets without a file system of ours: a tree of empty files is mounted, and a file gets its bytes when a program opens it.
//!
//! Calls that name a path stop until they are answered here ([`eyas_runner::seccomp`]). The path is resolved as the kernel would, and what is
//! found or missing tells what is to be done ([`crate::skeleton`]): a data set's names are made, a file is filled. Then the kernel carries
//! the call out. A file that is read is opened here and given to the program, so that a program that changes the path in the meantime
//! cannot get a file without its bytes.
//!
//! Answers that need no more than names are given by one thread in turn; what brings bytes has a thread of its own.

use crate::files::Options;
use crate::keeper::Keeper;
use crate::skeleton::{FoundEntry, Skeleton};
use eyas_catalog::Access;
use eyas_runner::calls::{
    SCRIPTS_MAX, Walk, each_call, interpreter_of, open_again, open_path, seen_from_here,
};
use eyas_runner::seccomp::{Call, Filter, Kind, Listener};
use eyas_text::say;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

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
        each_call(
            &listener,
            |_| None,
            |call, path| {
                let opened = self.open(&call, &path);
                if opened.is_none() && !self.may_be_ours(&call, &path) {
                    listener.pass(&call);
                    return Ok(());
                }
                if !is_slow(&call, opened.as_ref()) {
                    give(&listener, &call, self.answer(&call, &path, opened));
                    return Ok(());
                }
                let (answers, listener) = (self.clone(), listener.clone());
                let answer = move || give(&listener, &call, answers.answer(&call, &path, opened));
                thread::Builder::new().name("call".into()).spawn(answer).map(drop)
            },
        )
    }

    /// Whether a path that leads to nothing could lead to a data set. Most do not, as when a program looks for a library in one directory
    /// after the other.
    fn may_be_ours(&self, call: &Call, path: &Path) -> bool {
        self.walk(call).go(path, &mut |_| Ok::<_, ()>(())).passes_root
    }

    fn walk<'a>(&'a self, call: &Call) -> Walk<'a> {
        Walk::new(&self.at, &self.skeleton.apart, call)
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
        let Some(path) = interpreter_of(fd) else { return Ok(()) };
        if n_before >= SCRIPTS_MAX || !path.starts_with(&self.at) {
            return Ok(());
        }
        if let Ok(below) = path.strip_prefix(&self.at) {
            self.skeleton.make(below)?;
        }
        match open_path(&path, 0).ok().and_then(|fd| self.opened(fd)) {
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
        self.walk(call).go(path, &mut |below| self.skeleton.make(below)).stopped.map_or(Ok(()), Err)
    }
}

/// Flags of an open call for which the kernel has to open the file itself.
const NOT_GIVEN: i32 = libc::O_PATH | libc::O_DIRECTORY;

fn is_read(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_RDONLY && flags & (libc::O_TRUNC | libc::O_EXCL) == 0
}
