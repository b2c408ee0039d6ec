//! Puts inputs into a sandbox, and examines the outputs.
//!
//! Inputs are hard links to cached objects. If the file system refuses (another file system, too many links,
//! no permission), they are reflinks or copies. A linked input shares its inode with the cache, and its mode does
//! not stop a program that writes to it. So the cached object is compared before and after the task.
//! The executor, which watches the objects, finds the changes that this comparison cannot see
//! (`executor/watch.rs` in `eyas-runtime`).
//!
//! A program sees an input with the time that it has at home. A link shows the time of the cached object, which the executor
//! has set to that; what is made here gets it here.
//!
//! A directory (its name ends in `/`) is made anew for each task, from the object or from a directory at
//! home; no other task shares it.
//!
//! Where the program runs as a system user of its own, what is made here is that user's, and a cached object stays root's:
//! the program reads it through its link, and can neither write to it nor change its mode. The user gets the sandbox when
//! it is ready (`Sandbox::give`), so no process of the user can be in the way before. From then on names in it are
//! followed only with the rights of the user.
//!
//! A sandbox is open to its owner alone: an input that others may not read at home is not readable on a node. Its
//! inputs have the permissions that they have at home, reduced by the mask of the process, and their owner may write to them:
//! programs copy permissions with their files, and a copy is theirs.

use crate::account::ReadAs;
use crate::protocol::{Account, ByteString, Input, InputMode, LinkKind, OutputState, SetupKind};
use crate::sandbox::{DOUBT_PREFIX, Sandbox};
use crate::sys;
use eyas_folder::{Modes, Packed, Times, Tree, UNKNOWN_TIME_NS, holes, time_of, unpack};
use eyas_text::shown_bytes;
use rustix::fs::{AtFlags, CWD};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// Bytes copied between two checks of whether the copy is still wanted.
const COPY_BLOCK_BYTES: u64 = 16 << 20;

/// Distinguishes an untouched cached object from a changed one without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (libc::dev_t, libc::ino_t),
    size_bytes: i64,
    modified: (i64, i64),
    mode: libc::mode_t,
}

impl Stamp {
    fn of(stat: &libc::stat) -> Self {
        Self {
            inode: (stat.st_dev, stat.st_ino),
            size_bytes: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            mode: stat.st_mode,
        }
    }
}

/// Inputs as they were put into a sandbox.
#[derive(Debug, Default)]
pub struct Staged {
    pub kinds: Vec<LinkKind>,
    stamps: Vec<Option<(CString, Stamp)>>,
}

impl Staged {
    /// Indexes of hard-linked inputs whose cached object has changed since.
    pub fn modified(&self) -> Vec<u32> {
        let changed = |(source, before): &(CString, Stamp)| {
            sys::stat_at(libc::AT_FDCWD, source, 0).map_or(true, |stat| Stamp::of(&stat) != *before)
        };
        let stamps = self.stamps.iter().enumerate();
        stamps.filter_map(|(i, stamp)| stamp.as_ref().is_some_and(changed).then_some(i as u32)).collect()
    }

    /// Gives each cached object that was linked one more name, in `root`. After a restart, its number of
    /// links shows that it may have been written to unseen.
    pub fn leave_links(&self, root: &std::path::Path) {
        for (i, (source, _)) in self.stamps.iter().flatten().enumerate() {
            let name = root.join(format!("{DOUBT_PREFIX}{}-{i}", std::process::id()));
            // An object that is gone needs no mark.
            let _ = rustix::fs::linkat(CWD, source, CWD, name, AtFlags::empty());
        }
    }
}

/// Why a sandbox was not prepared.
#[derive(Debug)]
pub enum Unprepared {
    /// The sandbox is no longer wanted.
    GivenUp,
    Failed(SetupError),
}

impl From<SetupError> for Unprepared {
    fn from(error: SetupError) -> Self {
        Self::Failed(error)
    }
}

/// Why a sandbox could not be prepared.
#[derive(Debug)]
pub struct SetupError {
    pub kind: SetupKind,
    pub message: String,
}

impl SetupError {
    pub fn new(what: String, error: &io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => SetupKind::NoSpace,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => SetupKind::PermissionDenied,
            Some(libc::EEXIST | libc::ENOTDIR | libc::EISDIR | libc::ENAMETOOLONG) => SetupKind::BadName,
            _ if error.kind() == io::ErrorKind::InvalidInput => SetupKind::BadName,
            _ => SetupKind::Other,
        };
        Self { kind, message: format!("{what}: {error}") }
    }
}

/// Makes the parent directories of all names and puts the inputs in place, as long as the sandbox is
/// `wanted`. What is made belongs to `account`, if there is one.
pub fn prepare(
    sandbox: &Sandbox,
    inputs: &[Input],
    outputs: &[ByteString],
    account: Option<&Account>,
    wanted: &mut dyn FnMut() -> bool,
) -> Result<Staged, Unprepared> {
    let mut staged = Staged::default();
    let mut parent_made: &[u8] = b"";
    let dir = sandbox.fd.as_raw_fd();
    for input in inputs {
        let failed = |error: &io::Error| {
            SetupError::new(format!("cannot place input {}", shown_bytes(&input.name.0)), error)
        };
        let (bare, is_directory) = bare(&input.name);
        let name = checked_name(bare, "input")?;
        make_parents(dir, bare, account, &mut parent_made).map_err(|error| failed(&error))?;
        let source = sys::c_string(&input.source).map_err(|error| failed(&error))?;
        let stat = sys::stat_at(libc::AT_FDCWD, &source, 0).map_err(|error| SetupError {
            kind: if error.kind() == io::ErrorKind::NotFound {
                SetupKind::SourceMissing
            } else {
                SetupKind::Other
            },
            message: format!(
                "cannot place input {}: its cached copy {}: {error}",
                shown_bytes(&input.name.0),
                shown_bytes(&input.source.0)
            ),
        })?;
        let placed = match is_directory {
            true if input.mode == InputMode::Shared => share(dir, &name, &source),
            true => place_directory(sandbox, bare, &stat, input, account, wanted),
            false => place(dir, &name, &source, input, account, wanted),
        };
        let Some(kind) = placed.map_err(|error| failed(&error))? else {
            return Err(Unprepared::GivenUp);
        };
        staged.kinds.push(kind);
        staged.stamps.push((kind == LinkKind::HardLink).then(|| (source, Stamp::of(&stat))));
    }
    for output in outputs {
        let (bare, _) = bare(output);
        checked_name(bare, "output")?;
        make_parents(dir, bare, account, &mut parent_made).map_err(|error| {
            SetupError::new(
                format!("cannot make the directory of output {output}", output = shown_bytes(&output.0)),
                &error,
            )
        })?;
    }
    Ok(staged)
}

/// The name without a final `/`, and whether it is the name of a directory.
fn bare(name: &[u8]) -> (&[u8], bool) {
    match name.strip_suffix(b"/") {
        Some(bare) => (bare, true),
        None => (name, false),
    }
}

/// Links to a directory that others share. It is read-only by mode.
fn share(dir: RawFd, name: &CStr, source: &CStr) -> io::Result<Option<LinkKind>> {
    // SAFETY: both names are NUL-terminated.
    sys::check(unsafe { libc::symlinkat(source.as_ptr(), dir, name.as_ptr()) })?;
    Ok(Some(LinkKind::SymbolicLink))
}

/// `None`: it was given up. `stat` is that of the source. If another input has already made the directory,
/// this input is put into it.
fn place_directory(
    sandbox: &Sandbox,
    name: &[u8],
    stat: &libc::stat,
    input: &Input,
    account: Option<&Account>,
    wanted: &mut dyn FnMut() -> bool,
) -> io::Result<Option<LinkKind>> {
    let reader = account.filter(|_| input.at_home);
    match sys::mkdir_at(sandbox.fd.as_raw_fd(), &sys::c_string(name)?, 0o700) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let into = sandbox.path.join(OsStr::from_bytes(name));
    let source = input.source.as_path();
    let mut unpacked = |bytes: &mut dyn Read, known: &[i64]| {
        let times = Times { known, otherwise: Some(UNKNOWN_TIME_NS) };
        unpack(bytes, &into, Modes::USUAL, times, false, wanted)
    };
    let unpacked = match stat.st_mode & libc::S_IFMT {
        libc::S_IFDIR => {
            let tree = {
                let _acting = reader.map(Account::act).transpose()?;
                Tree::of(source)
            };
            tree.and_then(|tree| {
                let times = tree.times().to_vec();
                let bytes = Packed::new(source, tree);
                let mut bytes = ReadAs { account: reader.cloned(), bytes };
                unpacked(&mut bytes, &times)
            })
        }
        _ => unpacked(&mut File::open(source)?, &input.times),
    };
    match unpacked {
        Ok(()) => {
            account.map_or(Ok(()), |account| give_tree(&into, account))?;
            Ok(Some(LinkKind::Copy))
        }
        Err(eyas_folder::Error::GivenUp) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `None`: it was given up.
fn place(
    dir: RawFd,
    name: &CStr,
    source: &CStr,
    input: &Input,
    account: Option<&Account>,
    wanted: &mut dyn FnMut() -> bool,
) -> io::Result<Option<LinkKind>> {
    if input.mode == InputMode::Link && !input.executable {
        // SAFETY: both names are NUL-terminated.
        let linked = unsafe { libc::linkat(libc::AT_FDCWD, source.as_ptr(), dir, name.as_ptr(), 0) };
        match sys::check(linked) {
            Ok(_) => return Ok(Some(LinkKind::HardLink)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EXDEV | libc::EPERM | libc::EMLINK | libc::EOPNOTSUPP | libc::ENOSYS) => {}
                _ => return Err(error),
            },
        }
    }
    copy(source, dir, name, input, account, wanted)
}

/// Copies by reference if the file system supports that, else byte by byte inside the kernel.
fn copy(
    source: &CStr,
    dir: RawFd,
    name: &CStr,
    input: &Input,
    account: Option<&Account>,
    wanted: &mut dyn FnMut() -> bool,
) -> io::Result<Option<LinkKind>> {
    let from = {
        let _acting = account.filter(|_| input.at_home).map(Account::act).transpose()?;
        File::from(sys::open_at(libc::AT_FDCWD, source, libc::O_RDONLY, 0)?)
    };
    let about = from.metadata()?;
    let mut mode = input.permissions.unwrap_or(about.mode() & 0o777 | 0o600);
    if input.executable {
        // Whoever may read it may run it.
        mode |= (mode & 0o444) >> 2;
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let to = File::from(sys::open_at(dir, name, flags, mode)?);
    account.map_or(Ok(()), |account| sys::give(to.as_fd(), account.uid, account.gid))?;
    let kind = match rustix::fs::ioctl_ficlone(&to, &from) {
        Ok(()) => LinkKind::Reflink,
        Err(_) if holes::copy(&from, &to, COPY_BLOCK_BYTES, wanted)? => LinkKind::Copy,
        Err(_) => return Ok(None),
    };
    to.set_modified(input.modified_ns.map_or_else(|| about.modified(), |ns| Ok(time_of(ns)))?)?;
    Ok(Some(kind))
}

/// Refuses names that could lead out of the sandbox.
fn checked_name(name: &[u8], what: &str) -> Result<CString, SetupError> {
    let bad = |reason: &str| SetupError {
        kind: SetupKind::BadName,
        message: format!("{what} name {} {reason}", shown_bytes(name)),
    };
    if let Some(why) = eyas_folder::why_not_below(name) {
        return Err(bad(why));
    }
    CString::new(name).map_err(|_| bad("holds a NUL byte"))
}

/// Makes the directories above `name`, except those of the previous name, which are `made`.
fn make_parents<'a>(
    dir: RawFd,
    name: &'a [u8],
    account: Option<&Account>,
    made: &mut &'a [u8],
) -> io::Result<()> {
    let Some(end) = name.iter().rposition(|&b| b == b'/') else { return Ok(()) };
    let parent = &name[..end];
    if parent == *made {
        return Ok(());
    }
    let ends = parent.iter().enumerate().filter(|&(_, &b)| b == b'/').map(|(i, _)| i);
    for end in ends.chain([parent.len()]) {
        let parent = sys::c_string(&parent[..end])?;
        match sys::mkdir_at(dir, &parent, 0o700) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
            Ok(()) => account.map_or(Ok(()), |a| sys::give_at(dir, &parent, (a.uid, a.gid)))?,
        }
    }
    *made = parent;
    Ok(())
}

/// Makes the account the owner of a directory and of all that is in it, which nobody but root can reach.
fn give_tree(root: &std::path::Path, account: &Account) -> io::Result<()> {
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        if std::fs::symlink_metadata(&path)?.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
        let path = sys::c_string(path.as_os_str().as_bytes())?;
        sys::give_at(libc::AT_FDCWD, &path, (account.uid, account.gid))?;
    }
    Ok(())
}

/// The state of a declared output, as `account` sees it. Its name was accepted by [`prepare`]; no process of the task is alive,
/// but other processes of the account may be.
pub fn inspect_output(sandbox: &Sandbox, name: &ByteString, account: Option<&Account>) -> OutputState {
    let _acting = match account.map(Account::act).transpose() {
        Ok(acting) => acting,
        Err(error) => return OutputState::NotAFile { what: format!("unreadable ({error})") },
    };
    if let (bare, true) = bare(name) {
        return inspect_directory(sandbox, bare);
    }
    let Ok(name_c) = sys::c_string(name) else { return OutputState::Missing };
    let found = sys::stat_at(sandbox.fd.as_raw_fd(), &name_c, libc::AT_SYMLINK_NOFOLLOW);
    let not_a_file = |what: &str| OutputState::NotAFile { what: what.to_owned() };
    match found {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            OutputState::Missing
        }
        Err(error) => OutputState::NotAFile { what: format!("unreadable ({error})") },
        Ok(stat) => match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG if !name.contains(&b'/') => file_state(name.clone(), &stat),
            libc::S_IFREG | libc::S_IFLNK => inspect_through_links(sandbox, name),
            libc::S_IFDIR => not_a_file("a directory; a location that ends in `/` takes all of it"),
            libc::S_IFIFO => not_a_file("a named pipe"),
            libc::S_IFSOCK => not_a_file("a socket"),
            _ => not_a_file("a device"),
        },
    }
}

/// The state of an output that was declared as a directory.
fn inspect_directory(sandbox: &Sandbox, name: &[u8]) -> OutputState {
    let not_one = |what: &str| OutputState::NotAFile { what: what.to_owned() };
    let resolved = match sandbox.path.join(OsStr::from_bytes(name)).canonicalize() {
        Ok(path) => path,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            return OutputState::Missing;
        }
        Err(error) => return OutputState::NotAFile { what: format!("unreadable ({error})") },
    };
    let Ok(inside) = resolved.strip_prefix(&sandbox.path) else {
        return not_one("a symbolic link out of the sandbox");
    };
    if inside.as_os_str().is_empty() {
        return not_one("a symbolic link to the whole sandbox");
    }
    match Tree::of(&resolved) {
        Ok(tree) => OutputState::Directory { path: inside.into(), size_bytes: tree.size_bytes() },
        Err(eyas_folder::Error::NotADirectory { what }) => OutputState::NotAFile {
            what: format!("{what}, and a location that ends in `/` is for a directory"),
        },
        Err(error) => OutputState::NotAFile { what: format!("a directory that cannot be taken: {error}") },
    }
}

fn inspect_through_links(sandbox: &Sandbox, name: &ByteString) -> OutputState {
    let not_a_file = |what: &str| OutputState::NotAFile { what: what.to_owned() };
    let resolved = match sandbox.path.join(name.as_path()).canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return not_a_file("a symbolic link to nothing");
        }
        Err(error) => return OutputState::NotAFile { what: format!("a symbolic link ({error})") },
    };
    let Ok(inside) = resolved.strip_prefix(&sandbox.path) else {
        return not_a_file("a symbolic link out of the sandbox");
    };
    let path = ByteString::from(inside);
    let stat = sys::c_string(inside.as_os_str().as_bytes())
        .and_then(|inside| sys::stat_at(sandbox.fd.as_raw_fd(), &inside, libc::AT_SYMLINK_NOFOLLOW));
    match stat {
        Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFREG => file_state(path, &stat),
        _ => not_a_file("a symbolic link to something that is no file"),
    }
}

// The number of links is narrower on some machines.
#[allow(clippy::unnecessary_cast)]
fn file_state(path: ByteString, stat: &libc::stat) -> OutputState {
    OutputState::File {
        path,
        size_bytes: stat.st_size as u64,
        mode: stat.st_mode & 0o7777,
        modified_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec),
        n_links: stat.st_nlink as u64,
    }
}
