//! Programs of watched tasks: their calls that name a path stop, and a file that they name and that is not in their sandbox is brought.
//!
//! A filter (`eyas_runner::seccomp`) stops the calls of the program and of all that it starts. A thread of this process looks where a
//! path leads. What is there, or is outside the sandbox, the kernel does by itself. For a name below the sandbox that is missing, the
//! agent is asked for the file of that name at home, and a file without bytes is put in its place (a *stand-in*). When the
//! program opens it, runs it, or gives it another name, it gets a copy of the bytes first. So what is in the cache is never written to,
//! and a file is the same one for `stat` and for whoever has it open, as `cp` and `mv` look at that.
//!
//! When the program has ended, its sandbox has what was declared, stand-ins, and what the program made ([`Program::made`]).
//!
//! Not here: which bytes a file has and who has them (the core), and what becomes of what was made (`agent/undeclared.rs`).

use super::agent::{Input, Inputs};
use super::watched_files::{Answer, Copy, Entries, Entry, MadeFile};
use eyas_runner::calls::{Walk, open_again, open_path, path_at, path_of, seen_from_here};
use eyas_runner::seccomp::{Call, Kind, Listener};
use eyas_runner::watched::Door;
use eyas_text::shown_path;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Stand-ins of one program, and names in one directory that are shown.
const STAND_INS_MAX: usize = 200_000;
/// So many calls of a program may wait for files at once; further ones wait for them.
const WAITING_MAX: usize = 64;
/// So many errors are named in a task's report.
const NAMED_MAX: usize = 3;

/// The programs that are watched, by the numbers of their attempts among slot processes.
pub(super) struct Supervisors {
    folder: PathBuf,
    inputs: Inputs,
    programs: Arc<Mutex<HashMap<u64, Arc<Program>>>>,
    is_open: bool,
}

impl Supervisors {
    /// `folder`: this executor's own directory.
    pub(super) fn new(folder: PathBuf, inputs: Inputs) -> Supervisors {
        Supervisors { folder, inputs, programs: Arc::default(), is_open: false }
    }

    /// Where a slot process finds this one. From the first call on, this process listens there.
    ///
    /// # Errors
    /// The directory may not be written, or this process may have no more threads.
    pub(super) fn folder(&mut self) -> io::Result<&Path> {
        if !self.is_open {
            let door = Door::open(&self.folder)?;
            let (programs, inputs) = (self.programs.clone(), self.inputs.clone());
            std::thread::Builder::new().name("watch".into()).spawn(move || {
                if let Err(error) = serve(&door, &programs, &inputs) {
                    eyas_text::say!("eyas: programs cannot be watched any more: {error}");
                }
            })?;
            self.is_open = true;
        }
        Ok(&self.folder)
    }

    /// This executor's own directory, which no watched program is shown.
    pub(super) fn own_folder(&self) -> &Path {
        &self.folder
    }

    /// The program of an attempt that is over, if it was watched.
    pub(super) fn take(&self, key: u64) -> Option<Arc<Program>> {
        locked(&self.programs).remove(&key)
    }
}

fn serve(door: &Door, programs: &Mutex<HashMap<u64, Arc<Program>>>, inputs: &Inputs) -> io::Result<()> {
    loop {
        let Some(meeting) = door.next()? else { continue };
        let sandbox = meeting.sandbox.canonicalize().unwrap_or_else(|_| meeting.sandbox.clone());
        let key = meeting.key;
        let program = Arc::new(Program {
            key,
            sandbox,
            inputs: inputs.clone(),
            seen: Mutex::default(),
            filling: Mutex::default(),
        });
        locked(programs).insert(key, program.clone());
        std::thread::Builder::new().name("watched".into()).spawn(move || {
            let answered = meeting.listener().and_then(|listener| match listener {
                Some(listener) => program.answer_all(listener),
                None => Ok(()),
            });
            if let Err(error) = answered {
                program.note(format!("its calls could not be answered: {error}"));
            }
        })?;
    }
}

/// One watched program and all that it starts.
pub(super) struct Program {
    key: u64,
    sandbox: PathBuf,
    inputs: Inputs,
    seen: Mutex<SeenNames>,
    /// Held while a stand-in is made or gets bytes of its own.
    filling: Mutex<()>,
}

/// Device and number of a file.
type Inode = (u64, u64);

#[derive(Default)]
struct SeenNames {
    stand_ins: HashMap<Inode, StandIn>,
    /// Directories that have all names that home has there.
    complete: HashSet<Inode>,
    /// Directories of home.
    folders: HashSet<Inode>,
    /// What could not be had, as sentences: the first few, and how many.
    errors: Vec<String>,
    n_errors: u64,
}

/// A file of home whose place in the sandbox is taken by one without bytes.
#[derive(Clone)]
struct StandIn {
    /// Its name below the sandbox.
    name: PathBuf,
    /// The copy that is on this node, once the program has opened the file.
    copy: Option<Copy>,
    /// The sandbox has the bytes; this is when its file was changed last.
    full: Option<(i64, i64)>,
}

/// What becomes of a call.
enum AnswerToCall {
    Pass,
    Fail(i32),
}

/// What a path leads to.
struct FoundName {
    fd: OwnedFd,
    inode: Inode,
    is_folder: bool,
    is_stand_in: bool,
    is_set_id: bool,
}

impl Program {
    fn answer_all(self: &Arc<Self>, listener: Listener) -> io::Result<()> {
        let listener = Arc::new(listener);
        let waiting = Arc::new(());
        while let Some(call) = listener.next()? {
            let Some(path) = path_of(&call) else {
                // The kernel says what is wrong with it.
                listener.pass(&call);
                continue;
            };
            if !listener.is_valid(&call) {
                continue;
            }
            let found = self.find(&call, &path);
            if self.is_quick(&call, &path, found.as_ref()) {
                listener.pass(&call);
                continue;
            }
            if Arc::strong_count(&waiting) > WAITING_MAX {
                give(&listener, &call, self.answer(&call, &path, found));
                continue;
            }
            let (program, listener, waits) = (self.clone(), listener.clone(), waiting.clone());
            std::thread::Builder::new().name("call".into()).spawn(move || {
                give(&listener, &call, program.answer(&call, &path, found));
                drop(waits);
            })?;
        }
        Ok(())
    }

    fn find(&self, call: &Call, path: &Path) -> Option<FoundName> {
        let flags = match call.kind {
            Kind::Open(flags) => flags & libc::O_NOFOLLOW,
            Kind::Look { follows: false } | Kind::Change => libc::O_NOFOLLOW,
            _ => 0,
        };
        let fd = open_path(&seen_from_here(call, path), flags).ok()?;
        let of = rustix::fs::fstat(&fd).ok()?;
        let inode = (of.st_dev, of.st_ino);
        let kind = rustix::fs::FileType::from_raw_mode(of.st_mode);
        Some(FoundName {
            fd,
            inode,
            is_folder: kind.is_dir(),
            is_stand_in: self.seen().stand_ins.contains_key(&inode),
            is_set_id: kind.is_file() && of.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0,
        })
    }

    /// Whether the kernel can carry the call out at once.
    fn is_quick(&self, call: &Call, path: &Path, found: Option<&FoundName>) -> bool {
        let missing = || self.missing(call.pid, call.directory, path);
        match (call.kind, found) {
            (Kind::Make, _) => missing().is_none_or(|(name, is_last)| is_last && self.has_folder(&name)),
            (Kind::Change, Some(found)) => !found.is_stand_in && call.to.1 == 0,
            (Kind::Change, None) => call.to.1 == 0 && missing().is_none(),
            (Kind::Run, Some(found)) => !found.is_stand_in && !found.is_set_id,
            (Kind::Look { .. } | Kind::Enter, Some(_)) => true,
            (Kind::Open(_) | Kind::OpenBy, Some(found)) if found.is_folder => {
                self.seen().complete.contains(&found.inode) || self.name_of(found).is_none()
            }
            (Kind::Open(_) | Kind::OpenBy, Some(found)) => !found.is_stand_in,
            (kind, None) => {
                missing().is_none_or(|(name, is_last)| is_new(kind) && is_last && self.has_folder(&name))
            }
        }
    }

    fn answer(&self, call: &Call, path: &Path, found: Option<FoundName>) -> AnswerToCall {
        match self.try_answer(call, path, found) {
            Ok(answer) => answer,
            Err(errno) => AnswerToCall::Fail(errno),
        }
    }

    fn try_answer(&self, call: &Call, path: &Path, found: Option<FoundName>) -> Result<AnswerToCall, i32> {
        match call.kind {
            Kind::Make => {
                self.make_parents(call.pid, call.directory, path)?;
                return Ok(AnswerToCall::Pass);
            }
            Kind::Open(flags) if found.is_none() && flags & libc::O_CREAT != 0 => {
                self.make_parents(call.pid, call.directory, path)?;
                if is_new(call.kind) {
                    return Ok(AnswerToCall::Pass);
                }
            }
            Kind::Change if call.to.1 != 0 => {
                if let Some(to) = path_at(call.pid, call.to.1) {
                    self.make_parents(call.pid, call.to.0, &to)?;
                }
            }
            _ => {}
        }
        let found = match found {
            Some(found) => Some(found),
            None => {
                if let Some(name) = self.missing_last(call.pid, call.directory, path)? {
                    let opens = match call.kind {
                        Kind::Look { .. } | Kind::Enter => false,
                        Kind::Open(flags) => flags & libc::O_EXCL == 0,
                        _ => true,
                    };
                    self.place(&name, opens)?;
                }
                self.find(call, path)
            }
        };
        let Some(found) = found else { return Ok(AnswerToCall::Pass) };
        if found.is_folder && call.kind == Kind::Change && self.seen().folders.contains(&found.inode) {
            // Not all that home has there is here. Programs that are told so copy what is below, and thus open it.
            return Err(libc::EXDEV);
        }
        if found.is_folder {
            if matches!(call.kind, Kind::Open(_) | Kind::OpenBy) {
                self.complete(&found)?;
            }
            return Ok(AnswerToCall::Pass);
        }
        if call.kind == Kind::Run && found.is_set_id && !rustix::process::geteuid().is_root() {
            // What it starts would have no more rights than it has itself, and go wrong in some other way.
            self.note(format!(
                "it runs {}, which gains the rights of another user: a watched program may not",
                shown_path(path)
            ));
            return Err(libc::EPERM);
        }
        if !found.is_stand_in && !self.seen().stand_ins.contains_key(&found.inode) {
            return Ok(AnswerToCall::Pass);
        }
        match call.kind {
            Kind::Open(flags) if flags & libc::O_TRUNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY => {
                // Nothing of it is read, so the name is the program's own from here on, unless it has read it before.
                let mut seen = self.seen();
                if seen.stand_ins.get(&found.inode).is_some_and(|of| of.copy.is_none()) {
                    seen.stand_ins.remove(&found.inode);
                    return Ok(AnswerToCall::Pass);
                }
                drop(seen);
                self.fill(&found)?;
                Ok(AnswerToCall::Pass)
            }
            Kind::Open(flags) if flags & libc::O_PATH != 0 => Ok(AnswerToCall::Pass),
            Kind::Open(_) | Kind::OpenBy | Kind::Run | Kind::Change => {
                self.fill(&found)?;
                Ok(AnswerToCall::Pass)
            }
            Kind::Look { .. } | Kind::Enter | Kind::Make => Ok(AnswerToCall::Pass),
        }
    }

    // ------------------------------------------------------------ names

    /// The name below the sandbox that a path leads to or through, where nothing is there; and whether the path ends with it.
    fn missing(&self, pid: u32, directory: i32, path: &Path) -> Option<(PathBuf, bool)> {
        let walk = Walk::from(&self.sandbox, "", pid, directory);
        let walked = walk.go(path, &mut |_| Ok::<(), ()>(()));
        let name = walked.missing.filter(|name| name.to_str().is_some_and(|name| !name.is_empty()))?;
        Some((name, !walked.leads_back))
    }

    /// Makes the directories that a path leads through and back from, as far as home has them. Gives what is missing then.
    fn missing_last(&self, pid: u32, directory: i32, path: &Path) -> Result<Option<PathBuf>, i32> {
        let mut before = None;
        loop {
            match self.missing(pid, directory, path) {
                Some((name, false)) if before.as_ref() != Some(&name) => {
                    self.place(&name, false)?;
                    before = Some(name);
                }
                Some((_, false)) | None => return Ok(None),
                Some((name, true)) => return Ok(Some(name)),
            }
        }
    }

    fn has_folder(&self, name: &Path) -> bool {
        name.parent().is_none_or(|parent| self.sandbox.join(parent).is_dir())
    }

    /// The name below the sandbox of a directory; `None`: it is elsewhere.
    fn name_of(&self, found: &FoundName) -> Option<PathBuf> {
        let path = fs::read_link(format!("/proc/self/fd/{}", found.fd.as_raw_fd())).ok()?;
        path.strip_prefix(&self.sandbox).ok().map(Path::to_owned)
    }

    /// Makes the directories above a name, as far as home has them.
    fn make_parents(&self, pid: u32, directory: i32, path: &Path) -> Result<(), i32> {
        let Some(name) = self.missing_last(pid, directory, path)? else { return Ok(()) };
        match name.parent().filter(|_| !self.has_folder(&name)) {
            Some(parent) => self.place(parent, false),
            None => Ok(()),
        }
    }

    // ------------------------------------------------------------ what home has

    /// Puts what home has under this name into the sandbox: a stand-in, or a directory. `opens`: the program opens it.
    fn place(&self, name: &Path, opens: bool) -> Result<(), i32> {
        if opens && let Some(copy) = self.ask_file(name)? {
            let of = fs::metadata(&copy.path).map_err(|error| self.refuse(&copy.path, &error))?;
            let modified = copy.modified_ns.map(time_of);
            return self.stand_in(name, of.len(), modified, copy.mode, Some(copy));
        }
        match self.ask("looked for", name, |name, reply| Input::EntryNamed { key: self.key, name, reply })? {
            Some(Entry::Folder) => self.make_folder(name),
            Some(Entry::File { size_bytes, modified, mode }) => {
                self.stand_in(name, size_bytes, modified, mode, None)
            }
            None => Ok(()),
        }
    }

    fn make_folder(&self, name: &Path) -> Result<(), i32> {
        for folder in
            name.ancestors().filter(|folder| !folder.as_os_str().is_empty()).collect::<Vec<_>>().iter().rev()
        {
            let path = self.sandbox.join(folder);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    let of =
                        made.and_then(|()| path.metadata()).map_err(|error| self.refuse(folder, &error))?;
                    self.seen().folders.insert((of.dev(), of.ino()));
                }
            }
        }
        Ok(())
    }

    fn stand_in(
        &self,
        name: &Path,
        size_bytes: u64,
        modified: Option<SystemTime>,
        mode: Option<u32>,
        copy: Option<Copy>,
    ) -> Result<(), i32> {
        let _guard = locked(&self.filling);
        if self.seen().stand_ins.len() >= STAND_INS_MAX {
            self.note(format!(
                "it names more than {STAND_INS_MAX} files of home: declare a directory, or fewer"
            ));
            return Err(libc::ENFILE);
        }
        let path = self.sandbox.join(name);
        let make = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let file = match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                made => made?,
            };
            file.set_len(size_bytes)?;
            let of = file.metadata()?;
            let stand_in = StandIn { name: name.to_owned(), copy, full: None };
            self.seen().stand_ins.insert((of.dev(), of.ino()), stand_in);
            file.set_permissions(Permissions::from_mode(mode.unwrap_or(0o644)))?;
            modified.map_or(Ok(()), |time| file.set_times(FileTimes::new().set_modified(time)))
        };
        make().map_err(|error| self.refuse(name, &error))
    }

    /// The directory gets all names that home has there.
    fn complete(&self, folder: &FoundName) -> Result<(), i32> {
        let Some(name) = self.name_of(folder) else { return Ok(()) };
        if self.seen().complete.contains(&folder.inode) {
            return Ok(());
        }
        let entries = self.ask_folder(&name)?.unwrap_or_default();
        if !entries.is_empty() {
            self.seen().folders.insert(folder.inode);
        }
        for (entry, what) in entries {
            let name = name.join(entry);
            match what {
                Entry::Folder => self.make_folder(&name)?,
                Entry::File { size_bytes, modified, mode } => {
                    self.stand_in(&name, size_bytes, modified, mode, None)?
                }
            }
        }
        self.seen().complete.insert(folder.inode);
        Ok(())
    }

    /// The copy on this node of the file for which this stands in.
    fn copy_of(&self, inode: Inode) -> Result<Copy, i32> {
        let stand_in = self.seen().stand_ins.get(&inode).cloned().ok_or(libc::ENOENT)?;
        if let Some(copy) = stand_in.copy {
            return Ok(copy);
        }
        let copy = self.ask_file(&stand_in.name)?.ok_or_else(|| {
            self.note(format!("{} is not at home any more", shown_path(&stand_in.name)));
            libc::ENOENT
        })?;
        if let Some(of) = self.seen().stand_ins.get_mut(&inode) {
            of.copy = Some(copy.clone());
        }
        Ok(copy)
    }

    /// The sandbox gets the bytes for which this stands in.
    fn fill(&self, found: &FoundName) -> Result<(), i32> {
        let copy = self.copy_of(found.inode)?;
        let _guard = locked(&self.filling);
        if self.seen().stand_ins.get(&found.inode).is_none_or(|of| of.full.is_some()) {
            return Ok(());
        }
        let here = PathBuf::from(format!("/proc/self/fd/{}", found.fd.as_raw_fd()));
        let fill = || {
            let of = fs::metadata(&here)?;
            fs::set_permissions(&here, Permissions::from_mode(0o600))?;
            let mut to = File::from(open_again(&found.fd, libc::O_WRONLY)?);
            let n_bytes = io::copy(&mut File::open(&copy.path)?, &mut to)?;
            to.set_len(n_bytes)?;
            to.set_permissions(of.permissions())?;
            if let Ok(time) = of.modified() {
                to.set_times(FileTimes::new().set_modified(time))?;
            }
            let of = to.metadata()?;
            if let Some(stand_in) = self.seen().stand_ins.get_mut(&found.inode) {
                stand_in.full = Some((of.ctime(), of.ctime_nsec()));
            }
            io::Result::Ok(())
        };
        fill().map_err(|error| self.refuse(&copy.path, &error))
    }

    fn ask_file(&self, name: &Path) -> Result<Option<Copy>, i32> {
        self.ask("read", name, |name, reply| Input::FileNamed { key: self.key, name, reply })
    }

    fn ask_folder(&self, name: &Path) -> Result<Option<Entries>, i32> {
        self.ask("listed", name, |name, reply| Input::FolderNamed { key: self.key, name, reply })
    }

    /// Asks the agent. Where it does not answer, the attempt is over.
    fn ask<T>(
        &self,
        what: &str,
        name: &Path,
        input: impl FnOnce(String, Sender<Answer<T>>) -> Input,
    ) -> Result<Option<T>, i32> {
        // A name that is not UTF-8 is nowhere at home.
        let Some(text) = name.to_str() else { return Ok(None) };
        let (reply, answer) = channel();
        self.inputs.send(input(text.to_owned(), reply)).map_err(|_| libc::EIO)?;
        answer.recv().map_err(|_| libc::EIO)?.map_err(|why| {
            self.note(format!("{} cannot be {what}: {why}", shown_path(name)));
            libc::EIO
        })
    }

    // ------------------------------------------------------------ what is said of it

    fn seen(&self) -> MutexGuard<'_, SeenNames> {
        locked(&self.seen)
    }

    fn note(&self, error: String) {
        let mut seen = self.seen();
        if !seen.errors.contains(&error) {
            seen.n_errors += 1;
            if seen.errors.len() < NAMED_MAX {
                seen.errors.push(error);
            }
        }
    }

    fn refuse(&self, path: &Path, error: &io::Error) -> i32 {
        self.note(format!("{}: {error}", shown_path(path)));
        error.raw_os_error().unwrap_or(libc::EIO)
    }

    /// What the program could not have, as a sentence.
    pub(super) fn errors(&self) -> Option<String> {
        let seen = self.seen();
        let n_more = seen.n_errors - seen.errors.len() as u64;
        let more = if n_more > 0 { format!("; and {n_more} more") } else { String::new() };
        (!seen.errors.is_empty()).then(|| format!("{}{more}", seen.errors.join("; ")))
    }

    /// The files that the program has made. `declared`: the names of inputs and outputs.
    ///
    /// # Errors
    /// Why what it left is not to be kept, as a sentence.
    pub(super) fn made(&self, declared: &HashSet<String>) -> Result<Vec<MadeFile>, String> {
        let mut made = vec![];
        let mut folders = vec![PathBuf::new()];
        let look = |error: io::Error| format!("what the program made cannot be looked at: {error}");
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.sandbox.join(&folder)).map_err(look)? {
                let entry = entry.map_err(look)?;
                let path = folder.join(entry.file_name());
                let Some(name) = path.to_str().map(str::to_owned) else {
                    return Err(format!(
                        "the program made {}, whose name is not UTF-8: no home can have it under that name",
                        shown_path(&path)
                    ));
                };
                let is_aside = path.file_name().is_some_and(|last| last == "__pycache__");
                if is_aside || name.starts_with(".eyas-") || declared.contains(&name) {
                    continue;
                }
                let kind = entry.file_type().map_err(look)?;
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() || kind.is_symlink() {
                    made.extend(self.made_at(name, &path, kind.is_symlink())?);
                }
            }
        }
        made.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(made)
    }

    fn made_at(&self, name: String, path: &Path, is_link: bool) -> Result<Option<MadeFile>, String> {
        let Ok(real) = self.sandbox.join(path).canonicalize() else { return Ok(None) };
        // A link that leads elsewhere is none of what it made.
        let Ok(below) = real.strip_prefix(&self.sandbox) else { return Ok(None) };
        let look = |error: io::Error| format!("{} cannot be looked at: {error}", shown_path(path));
        let of = fs::metadata(&real).map_err(look)?;
        if !of.is_file() {
            return Ok(None);
        }
        if let Some(stand_in) = self.seen().stand_ins.get(&(of.dev(), of.ino())).cloned() {
            let is_there = stand_in.name == path;
            match (&stand_in.full, &stand_in.copy) {
                (None, _) if is_there => return Ok(None),
                (None, _) => {
                    return Err(format!(
                        "the program moved {} to {} without opening it: a directory that is moved takes only files along that were opened",
                        shown_path(&stand_in.name),
                        shown_path(path)
                    ));
                }
                (Some(at), _) if is_there && *at == (of.ctime(), of.ctime_nsec()) => return Ok(None),
                (Some(_), Some(copy)) => {
                    let is_same = is_same(&real, &copy.path).map_err(look)?;
                    if !is_same {
                        return Err(format!(
                            "the program changed {} in place: a task that runs twice would change it twice, so it has to write to another name",
                            shown_path(&stand_in.name)
                        ));
                    }
                    if is_there {
                        return Ok(None);
                    }
                }
                (Some(_), None) => {}
            }
        }
        Ok(Some(MadeFile {
            name,
            path: below.to_owned(),
            size_bytes: of.len(),
            mode: of.mode() & 0o777,
            modified_ns: of.mtime() * 1_000_000_000 + of.mtime_nsec(),
            // What has another name too is copied, not moved.
            n_links: if is_link { of.nlink() + 1 } else { of.nlink() },
        }))
    }
}

/// Whether the call makes a file, and nothing is read of one that was there before.
fn is_new(kind: Kind) -> bool {
    matches!(kind, Kind::Open(flags) if flags & libc::O_CREAT != 0 && flags & (libc::O_TRUNC | libc::O_EXCL) == libc::O_TRUNC)
}

fn give(listener: &Listener, call: &Call, answer: AnswerToCall) {
    match answer {
        AnswerToCall::Pass => listener.pass(call),
        AnswerToCall::Fail(errno) => listener.fail(call, errno),
    }
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let digest = |path: &Path| -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(hasher.finalize())
    };
    Ok(digest(one)? == digest(other)?)
}

fn time_of(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { SystemTime::UNIX_EPOCH - span } else { SystemTime::UNIX_EPOCH + span }
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
