//! Programs of watched tasks: their calls that name a path stop, and a file that they name and that is not in their sandbox is brought.
//!
//! A filter (`eyas_runner::seccomp`) stops the calls of the program and of all that it starts. A thread of this process looks where a
//! path leads. What is there, or is outside the sandbox, the kernel does by itself. For a name below the sandbox that is missing, the
//! agent is asked for the file of that name at home, and a file without bytes is put in its place (a *stand-in*). When the
//! program opens it, runs it, or gives it another name, it gets a copy of the bytes first. So what is in the cache is never written to,
//! and a file is the same one for `stat` and for whoever has it open, as `cp` and `mv` look at that.
//!
//! A name is brought once: what the program has removed or renamed stays away. A stand-in is known by the number of its file, and has a
//! second name beside the sandbox, so that no other file gets its number when the program removes it.
//!
//! When the program has ended, its sandbox has what was declared, stand-ins, and what the program made ([`Program::made`]).
//!
//! Not here: which bytes a file has and who has them (the core), and what becomes of what was made (`agent/undeclared.rs`).

use super::agent::{Input, Inputs};
use super::watched_files::{Answer, Copy, Entries, Entry, MadeFile};
use eyas_runner::calls::{
    SCRIPTS_MAX, Walk, each_call, interpreter_of, open_again, open_path, path_at, seen_from_here,
};
use eyas_runner::seccomp::{Call, Kind, Listener};
use eyas_runner::watched::{Door, Meeting};
use eyas_runner::{ByteString, RunSpec};
use eyas_text::shown_path;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
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

/// When a stand-in was modified that a program may just be emptying: nothing has this time by itself.
const EMPTYING: Duration = Duration::new(1, 234_567_890);

/// The programs that are watched, by the numbers of their attempts among slot processes.
pub(super) struct Supervisors {
    folder: PathBuf,
    inputs: Inputs,
    programs: Programs,
    is_open: bool,
}

type Programs = Arc<Mutex<HashMap<u64, KnownProgram>>>;

/// A program that is to be watched.
struct KnownProgram {
    declared: Arc<Declared>,
    /// It has begun.
    program: Option<Arc<Program>>,
}

/// The files that its task declares.
#[derive(Default)]
pub(super) struct Declared {
    /// Names below the sandbox, and where the bytes lie on this node.
    pub(super) inputs: Vec<(PathBuf, PathBuf)>,
    /// Names below the sandbox. What home has there is of an earlier run, and nothing of it is shown.
    pub(super) outputs: Vec<PathBuf>,
}

impl Declared {
    pub(super) fn of(spec: &RunSpec) -> Declared {
        // Not the `/` at the end of a directory's name.
        let name = |name: &ByteString| name.as_path().components().collect::<PathBuf>();
        let inputs = spec.inputs.iter().map(|input| (name(&input.name), input.source.as_path().to_owned()));
        Declared { inputs: inputs.collect(), outputs: spec.outputs.iter().map(name).collect() }
    }

    fn is_output(&self, path: &Path) -> bool {
        self.outputs.iter().any(|output| path.starts_with(output))
    }
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

    /// A program will be started that is to be watched.
    pub(super) fn expect(&self, spec: &RunSpec) {
        let known = KnownProgram { declared: Arc::new(Declared::of(spec)), program: None };
        locked(&self.programs).insert(spec.key, known);
    }

    /// This executor's own directory, which no watched program is shown.
    pub(super) fn own_folder(&self) -> &Path {
        &self.folder
    }

    /// The program of an attempt that is over, if it was watched.
    pub(super) fn take(&self, key: u64) -> Option<Arc<Program>> {
        locked(&self.programs).remove(&key)?.program
    }
}

fn serve(door: &Door, programs: &Programs, inputs: &Inputs) -> io::Result<()> {
    loop {
        let Some(meeting) = door.next()? else { continue };
        let key = meeting.key;
        let declared = locked(programs).get(&key).map(|known| known.declared.clone());
        // Otherwise its attempt is over.
        let Some(declared) = declared else { continue };
        let program = Arc::new(Program::new(&meeting, declared, inputs.clone()));
        if let Some(known) = locked(programs).get_mut(&key) {
            known.program = Some(program.clone());
        }
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
    /// A directory beside the sandbox, with a second name of each stand-in.
    held: PathBuf,
    declared: Arc<Declared>,
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
    /// Names that the sandbox has had from home: declared inputs, stand-ins and directories. Where nothing is now, the program has
    /// removed it.
    brought: HashSet<PathBuf>,
    /// Those of them that are directories.
    folders: HashSet<PathBuf>,
    /// Directories that have had all names that home has there.
    complete: HashSet<PathBuf>,
    /// Declared inputs, and what is in those that are directories, as the program found them. `None`: it is no file.
    inputs: HashMap<PathBuf, Option<InputState>>,
    n_held: u64,
    /// What could not be had, as sentences: the first few, and how many.
    errors: Vec<String>,
    n_errors: u64,
}

/// A file of home whose place in the sandbox is taken by one without bytes.
#[derive(Clone)]
struct StandIn {
    /// Its name below the sandbox.
    name: PathBuf,
    size_bytes: u64,
    /// The copy that is on this node, once the program has opened the file.
    copy: Option<Copy>,
    /// The sandbox has the bytes; this is when its file was changed last.
    full: Option<(i64, i64)>,
    /// The program has emptied it, or was about to: then it was modified at [`EMPTYING`], and it is a stand-in still.
    is_emptied: bool,
    held: HeldNumber,
}

/// What keeps the number of a stand-in from other files.
#[derive(Clone)]
enum HeldNumber {
    /// Its second name.
    Name(PathBuf),
    /// Where files can have no second name.
    Open(Arc<File>),
}

impl HeldNumber {
    fn metadata(&self) -> io::Result<fs::Metadata> {
        match self {
            HeldNumber::Name(path) => fs::symlink_metadata(path),
            HeldNumber::Open(file) => file.metadata(),
        }
    }
}

/// A declared input when the program began.
#[derive(Clone, Copy, PartialEq)]
struct InputState {
    inode: Inode,
    size_bytes: u64,
    modified: (i64, i64),
}

impl InputState {
    fn of(of: &fs::Metadata) -> InputState {
        InputState {
            inode: (of.dev(), of.ino()),
            size_bytes: of.len(),
            modified: (of.mtime(), of.mtime_nsec()),
        }
    }
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
    /// The program of this slot process, whose sandbox has its declared inputs.
    fn new(meeting: &Meeting, declared: Arc<Declared>, inputs: Inputs) -> Program {
        let sandbox = meeting.sandbox.canonicalize().unwrap_or_else(|_| meeting.sandbox.clone());
        let key = meeting.key;
        // The name of a sandbox, so that it goes with those that a killed executor leaves behind.
        let held = sandbox.with_file_name(format!("s{}-{key}", std::process::id()));
        let mut seen = SeenNames::default();
        let mut inputs_left: Vec<_> = declared.inputs.iter().map(|(name, _)| name.clone()).collect();
        while let Some(name) = inputs_left.pop() {
            let at = sandbox.join(&name);
            let of = fs::symlink_metadata(&at).ok();
            if of.as_ref().is_some_and(fs::Metadata::is_dir) {
                let entries = fs::read_dir(at).into_iter().flatten().flatten();
                inputs_left.extend(entries.map(|entry| name.join(entry.file_name())));
            }
            seen.brought.insert(name.clone());
            seen.inputs.insert(name, of.filter(fs::Metadata::is_file).map(|of| InputState::of(&of)));
        }
        let (seen, filling) = (Mutex::new(seen), Mutex::default());
        Program { key, sandbox, held, declared, inputs, seen, filling }
    }

    fn answer_all(self: &Arc<Self>, listener: Listener) -> io::Result<()> {
        let listener = Arc::new(listener);
        let waiting = Arc::new(());
        let unreadable = |_: &Call| {
            self.note(
                "one of its processes keeps its memory from others, so it cannot be seen what it opens: declare the files of this task".into(),
            );
            Some(libc::EACCES)
        };
        each_call(&listener, unreadable, |call, path| {
            let found = self.find(&call, &path);
            if self.is_quick(&call, &path, found.as_ref()) {
                listener.pass(&call);
                return Ok(());
            }
            if Arc::strong_count(&waiting) > WAITING_MAX {
                give(&listener, &call, self.answer(&call, &path, found));
                return Ok(());
            }
            let (program, listener, waits) = (self.clone(), listener.clone(), waiting.clone());
            let answer = move || {
                give(&listener, &call, program.answer(&call, &path, found));
                drop(waits);
            };
            std::thread::Builder::new().name("call".into()).spawn(answer).map(drop)
        })
    }

    fn find(&self, call: &Call, path: &Path) -> Option<FoundName> {
        let flags = match call.kind {
            Kind::Open(flags) => flags & libc::O_NOFOLLOW,
            Kind::Look { follows: false } | Kind::Change | Kind::Remove => libc::O_NOFOLLOW,
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
            is_stand_in: self.is_stand_in(inode),
            is_set_id: kind.is_file() && of.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0,
        })
    }

    fn is_stand_in(&self, inode: Inode) -> bool {
        self.seen().stand_ins.get(&inode).is_some_and(|of| !of.is_emptied)
    }

    /// Whether the kernel can carry the call out at once.
    fn is_quick(&self, call: &Call, path: &Path, found: Option<&FoundName>) -> bool {
        let missing = || self.missing(call.pid, call.directory, path);
        match (call.kind, found) {
            (Kind::Make, _) => missing().is_none_or(|(name, is_last)| is_last && self.has_folder(&name)),
            (Kind::Change, Some(found)) => !found.is_stand_in && call.to.1 == 0,
            (Kind::Change, None) => call.to.1 == 0 && missing().is_none(),
            (Kind::Run, Some(found)) => {
                !found.is_stand_in && !found.is_set_id && self.name_of(found).is_none()
            }
            (Kind::Look { .. } | Kind::Enter, Some(_)) => true,
            (Kind::Open(_) | Kind::OpenBy | Kind::Remove, Some(found)) if found.is_folder => {
                self.name_of(found).is_none_or(|name| self.seen().complete.contains(&name))
            }
            (Kind::Remove, Some(_)) => true,
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
            // It may make a file: the rules are in the program's memory.
            Kind::OpenBy if found.is_none() => self.make_parents(call.pid, call.directory, path)?,
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
                        Kind::Look { .. } | Kind::Enter | Kind::Remove => false,
                        Kind::Open(flags) => flags & libc::O_EXCL == 0,
                        _ => true,
                    };
                    self.place(&name, opens)?;
                }
                self.find(call, path)
            }
        };
        let Some(found) = found else { return Ok(AnswerToCall::Pass) };
        if found.is_folder {
            match call.kind {
                // Not all that home has there is here. Programs that are told so copy what is below, and thus open it.
                Kind::Change
                    if self.name_of(&found).is_some_and(|name| self.seen().folders.contains(&name)) =>
                {
                    return Err(libc::EXDEV);
                }
                // A directory that is removed has to be seen to be empty.
                Kind::Open(_) | Kind::OpenBy | Kind::Remove => self.complete(&found)?,
                _ => {}
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
        if self.is_stand_in(found.inode) {
            self.give_bytes(call, &found)?;
        }
        if call.kind == Kind::Run {
            self.bring_interpreter(call, &found, 0)?;
        }
        Ok(AnswerToCall::Pass)
    }

    /// Makes a stand-in ready for what the call does with it.
    fn give_bytes(&self, call: &Call, found: &FoundName) -> Result<(), i32> {
        match call.kind {
            // Nothing of it is read, so it is the program's own from here on, unless it has read it before.
            Kind::Open(flags) if flags & libc::O_TRUNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY => {
                if !self.empty(found)? {
                    self.fill(found)?;
                }
            }
            Kind::Open(flags) if flags & libc::O_PATH != 0 => {}
            Kind::Open(_) | Kind::OpenBy | Kind::Run | Kind::Change => self.fill(found)?,
            Kind::Look { .. } | Kind::Enter | Kind::Make | Kind::Remove => {}
        }
        Ok(())
    }

    /// The kernel opens what the first line of a program says without a call that stops.
    fn bring_interpreter(&self, call: &Call, program: &FoundName, n_before: u32) -> Result<(), i32> {
        let Some(path) = interpreter_of(&program.fd).filter(|_| n_before < SCRIPTS_MAX) else {
            return Ok(());
        };
        let call = Call { kind: Kind::Open(libc::O_RDONLY), directory: libc::AT_FDCWD, to: (0, 0), ..*call };
        self.try_answer(&call, &path, self.find(&call, &path))?;
        match self.find(&call, &path).filter(|found| self.name_of(found).is_some()) {
            Some(found) => self.bring_interpreter(&call, &found, n_before + 1),
            None => Ok(()),
        }
    }

    /// Empties a stand-in whose bytes have not been asked for. The kernel does so, too, unless the program may not open the file after
    /// all; then it has the time that it gets here. `false`: the bytes have been asked for.
    fn empty(&self, found: &FoundName) -> Result<bool, i32> {
        let _guard = locked(&self.filling);
        let mut seen = self.seen();
        let Some(of) = seen.stand_ins.get_mut(&found.inode).filter(|of| of.copy.is_none()) else {
            return Ok(false);
        };
        let empty = || {
            let file = File::from(open_again(&found.fd, libc::O_WRONLY)?);
            file.set_len(0)?;
            file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + EMPTYING))
        };
        empty().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        of.is_emptied = true;
        // The file is the program's own, so it may have its number, and no name but that of the program.
        if let HeldNumber::Name(path) = &of.held {
            let _ = fs::remove_file(path);
        }
        Ok(true)
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
        if self.declared.is_output(name) || self.is_removed(name) {
            return Ok(());
        }
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

    /// Whether the program has removed this, or a directory above it.
    fn is_removed(&self, name: &Path) -> bool {
        let brought = |path: &&Path| self.seen().brought.contains(*path);
        name.ancestors().filter(brought).any(|path| self.sandbox.join(path).symlink_metadata().is_err())
    }

    fn make_folder(&self, name: &Path) -> Result<(), i32> {
        let _guard = locked(&self.filling);
        self.make_folders(name).map_err(|error| self.refuse(name, &error))
    }

    fn make_folders(&self, name: &Path) -> io::Result<()> {
        let mut folders: Vec<_> = name.ancestors().filter(|folder| !folder.as_os_str().is_empty()).collect();
        while let Some(folder) = folders.pop() {
            if self.seen().brought.contains(folder) {
                continue;
            }
            match fs::create_dir(self.sandbox.join(folder)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    let mut seen = self.seen();
                    seen.brought.insert(folder.to_owned());
                    seen.folders.insert(folder.to_owned());
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
        if self.seen().brought.contains(name) {
            return Ok(());
        }
        if self.seen().stand_ins.len() >= STAND_INS_MAX {
            self.note(format!(
                "it names more than {STAND_INS_MAX} files of home: declare a directory, or fewer"
            ));
            return Err(libc::ENFILE);
        }
        let path = self.sandbox.join(name);
        let make = || {
            if let Some(parent) = name.parent() {
                self.make_folders(parent)?;
            }
            let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let file = match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                made => made?,
            };
            file.set_len(size_bytes)?;
            file.set_permissions(Permissions::from_mode(mode.unwrap_or(0o644)))?;
            let time = modified.map_or_else(|| file.metadata()?.modified(), Ok)?;
            file.set_times(FileTimes::new().set_modified(time).set_accessed(time))?;
            let of = file.metadata()?;
            let held = self.hold(&path)?;
            let stand_in =
                StandIn { name: name.to_owned(), size_bytes, copy, full: None, is_emptied: false, held };
            let mut seen = self.seen();
            seen.stand_ins.insert((of.dev(), of.ino()), stand_in);
            seen.brought.insert(name.to_owned());
            Ok(())
        };
        make().map_err(|error| self.refuse(name, &error))
    }

    /// Keeps the number of a stand-in.
    fn hold(&self, path: &Path) -> io::Result<HeldNumber> {
        let mut seen = self.seen();
        if seen.n_held == 0 {
            fs::DirBuilder::new().mode(0o700).create(&self.held)?;
        }
        seen.n_held += 1;
        let held = self.held.join(seen.n_held.to_string());
        match fs::hard_link(path, &held) {
            Ok(()) => Ok(HeldNumber::Name(held)),
            Err(_) => Ok(HeldNumber::Open(Arc::new(open_path(path, libc::O_NOFOLLOW)?.into()))),
        }
    }

    /// The directory gets all names that home has there.
    fn complete(&self, folder: &FoundName) -> Result<(), i32> {
        let Some(name) = self.name_of(folder) else { return Ok(()) };
        if self.seen().complete.contains(&name) {
            return Ok(());
        }
        let entries = self.ask_folder(&name)?.unwrap_or_default();
        if !entries.is_empty() {
            self.seen().folders.insert(name.clone());
        }
        for (entry, what) in entries {
            let name = name.join(entry);
            if self.declared.is_output(&name) {
                continue;
            }
            match what {
                Entry::Folder => self.make_folder(&name)?,
                Entry::File { size_bytes, modified, mode } => {
                    self.stand_in(&name, size_bytes, modified, mode, None)?
                }
            }
        }
        self.seen().complete.insert(name);
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
        if self.seen().stand_ins.get(&found.inode).is_none_or(|of| of.full.is_some() || of.is_emptied) {
            return Ok(());
        }
        let here = PathBuf::from(format!("/proc/self/fd/{}", found.fd.as_raw_fd()));
        let fill = || {
            let of = fs::metadata(&here)?;
            let stand_in = self.seen().stand_ins.get(&found.inode).cloned();
            if let Some(stand_in) = stand_in.filter(|stand_in| was_opened(&of, stand_in.size_bytes)) {
                self.note(opened_without_bytes(&stand_in.name));
            }
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
            let name = if text.is_empty() { Path::new(".") } else { name };
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

    /// The files that the program has made, besides declared outputs.
    ///
    /// # Errors
    /// Why what it left is not to be kept, as a sentence.
    pub(super) fn made(&self) -> Result<Vec<MadeFile>, String> {
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
                if is_aside || name.starts_with(".eyas-") || self.declared.outputs.contains(&path) {
                    continue;
                }
                let kind = entry.file_type().map_err(look)?;
                if kind.is_dir() {
                    folders.push(path);
                } else if self.is_as_declared(&path)? {
                    continue;
                } else if kind.is_file() || kind.is_symlink() {
                    made.extend(self.made_at(name, &path, kind.is_symlink())?);
                }
            }
        }
        made.sort_by(|a, b| a.name.cmp(&b.name));
        self.check_unopened()?;
        Ok(made)
    }

    /// Whether the program has opened none of the stand-ins that have no bytes.
    fn check_unopened(&self) -> Result<(), String> {
        for of in self.seen().stand_ins.values().filter(|of| of.full.is_none() && !of.is_emptied) {
            if of.held.metadata().is_ok_and(|file| was_opened(&file, of.size_bytes)) {
                return Err(opened_without_bytes(&of.name));
            }
        }
        Ok(())
    }

    /// Whether this is a declared input, or is in one, and has the bytes with which the program began.
    fn is_as_declared(&self, path: &Path) -> Result<bool, String> {
        let before = match self.seen().inputs.get(path) {
            None => return Ok(false),
            Some(None) => return Ok(true),
            Some(Some(before)) => *before,
        };
        let at = self.sandbox.join(path);
        let look = |error: io::Error| format!("{} cannot be looked at: {error}", shown_path(path));
        let of = fs::symlink_metadata(&at).map_err(look)?;
        let now = InputState::of(&of);
        if now == before {
            return Ok(true);
        }
        let input = self.declared.inputs.iter().find(|(name, _)| name == path);
        if input.is_some_and(|(_, source)| of.is_file() && is_same(&at, source).unwrap_or(false)) {
            return Ok(true);
        }
        match input.is_some() && now.inode == before.inode {
            true => Err(changed_in_place(path)),
            false => Ok(false),
        }
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
            let was_emptied = of.modified().map_err(look)? != SystemTime::UNIX_EPOCH + EMPTYING;
            match (&stand_in.full, &stand_in.copy) {
                (None, _) if stand_in.is_emptied && (was_emptied || !is_there) => {}
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
                        return Err(changed_in_place(&stand_in.name));
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

impl Drop for Program {
    fn drop(&mut self) {
        if self.seen().n_held > 0
            && let Err(error) = eyas_runner::sandbox::remove_tree(&self.held)
        {
            eyas_text::say!("eyas: {error}");
        }
    }
}

/// Whether a stand-in without bytes was read, or has another size. Who opens one gets its bytes first, unless the path was changed in the
/// program's memory after it was looked at. Then the program has read zeros, and the file has another time of access than it was made with.
fn was_opened(stand_in: &fs::Metadata, size_bytes: u64) -> bool {
    (stand_in.atime(), stand_in.atime_nsec()) > (stand_in.mtime(), stand_in.mtime_nsec())
        || stand_in.len() != size_bytes
}

fn opened_without_bytes(name: &Path) -> String {
    format!(
        "the program opened {} before its bytes were there: one of its threads changed the path while another one opened it",
        shown_path(name)
    )
}

fn changed_in_place(name: &Path) -> String {
    format!(
        "the program changed {} in place: a task that runs twice would change it twice, so it has to write to another name",
        shown_path(name)
    )
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
