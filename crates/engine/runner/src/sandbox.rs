//! Sandbox directories: making, recycling, removing.
//!
//! A slot recycles a few directories instead of making one per task: on ext4, `mkdir` and `rmdir` per task
//! reduced the rate of `/bin/true` to a third. A directory is used again only if it is still the same
//! directory, with the same mode, and empty.
//!
//! Removal never follows a symbolic link, and uses a constant number of descriptors and no recursion:
//! directories more than one level down are first renamed to the top, so depth does not matter.

use crate::error::Error;
use crate::protocol::Account;
use crate::sys;
use rustix::fs::Mode;
use rustix::process::{getegid, geteuid};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Directories that wait for the next task; more are removed.
const N_FREE_MAX: usize = 4;
/// The beginning of the names of folders with links that a reader may still use, which [`crate::stage::Staged::leave_links`]
/// makes.
pub(crate) const DOUBT_PREFIX: &str = "doubt-";
const SANDBOX_MODE: libc::mode_t = 0o700;

/// One sandbox directory. Dropping it leaves the directory where it is.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub path: PathBuf,
    path_c: CString,
    pub fd: OwnedFd,
    id: (libc::dev_t, libc::ino_t),
    is_given: bool,
}

impl Sandbox {
    fn create(path: PathBuf) -> io::Result<Self> {
        let path_c = sys::c_string(path.as_os_str().as_bytes())?;
        sys::mkdir_at(libc::AT_FDCWD, &path_c, SANDBOX_MODE)?;
        let fd =
            sys::open_at(libc::AT_FDCWD, &path_c, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)?;
        let stat = sys::stat_fd(fd.as_fd())?;
        Ok(Self { path, path_c, fd, id: (stat.st_dev, stat.st_ino), is_given: false })
    }

    /// The account has the sandbox from now on, and nobody else but root. Until then it cannot reach anything in it.
    pub fn give(&mut self, account: &Account) -> io::Result<()> {
        sys::give(self.fd.as_fd(), account.uid, account.gid)?;
        self.is_given = true;
        Ok(())
    }

    /// No account has the sandbox any more.
    fn take_back(&mut self) {
        if std::mem::take(&mut self.is_given) {
            take_over(self.fd.as_fd());
        }
    }

    /// Whether this is still the directory that was made, under its name, with its mode.
    fn is_unchanged(&self) -> bool {
        sys::stat_at(libc::AT_FDCWD, &self.path_c, libc::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| {
            (stat.st_dev, stat.st_ino) == self.id && stat.st_mode == libc::S_IFDIR | SANDBOX_MODE
        })
    }
}

/// The sandboxes of one slot process.
#[derive(Debug)]
pub(crate) struct Pool {
    root: PathBuf,
    pid: u32,
    n_made: u64,
    free: Vec<Sandbox>,
}

impl Pool {
    /// `root` must exist; symbolic links in it are resolved once, here.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.canonicalize()?, pid: std::process::id(), n_made: 0, free: Vec::new() })
    }

    /// An empty directory.
    pub fn take(&mut self) -> io::Result<Sandbox> {
        while let Some(sandbox) = self.free.pop() {
            if sandbox.is_unchanged() {
                return Ok(sandbox);
            }
        }
        match Sandbox::create(self.new_path()) {
            // Somebody removed the folder, as cleaners of folders for temporary files do.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new().recursive(true).mode(SANDBOX_MODE).create(&self.root)?;
                Sandbox::create(self.new_path())
            }
            made => made,
        }
    }

    /// A path that was not used before, for a sandbox or a file of this slot process; [`clean_leftovers`] finds what is there.
    pub fn new_path(&mut self) -> PathBuf {
        self.n_made += 1;
        self.root.join(format!("s{}-{}", self.pid, self.n_made))
    }

    /// Empties the directory for the next task, or removes it. A directory that cannot be removed stays for
    /// [`clean_leftovers`].
    pub fn give_back(&mut self, mut sandbox: Sandbox) {
        sandbox.take_back();
        let unchanged = sandbox.is_unchanged();
        let empty = unchanged
            && (sys::is_empty_dir(sandbox.fd.as_fd()).unwrap_or(false)
                || empty_dir(sandbox.fd.as_fd()).is_ok());
        if empty && self.free.len() < N_FREE_MAX {
            self.free.push(sandbox);
        } else {
            // A task may have renamed its sandbox; its content is removed all the same.
            if !unchanged {
                let _ = empty_dir(sandbox.fd.as_fd());
            }
            let _ = remove_tree(&sandbox.path);
        }
    }

    /// Removes the free directories.
    pub fn clear(&mut self) {
        for sandbox in self.free.drain(..) {
            let _ = remove_tree(&sandbox.path);
        }
    }
}

/// Removes a file or a directory with everything in it. It is no error if nothing is there. Continues after
/// entries that cannot be removed (mount points, immutable files), and then reports the first of them.
pub fn remove_tree(path: &Path) -> Result<(), Error> {
    let remove = || {
        let path = sys::c_string(path.as_os_str().as_bytes())?;
        match sys::stat_at(libc::AT_FDCWD, &path, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFDIR => {
                let dir = open_for_removal(libc::AT_FDCWD, &path)?;
                empty_dir(dir.as_fd())?;
                sys::unlink_at(libc::AT_FDCWD, &path, libc::AT_REMOVEDIR)
            }
            Ok(_) => sys::unlink_at(libc::AT_FDCWD, &path, 0),
            Err(error) => Err(error),
        }
    };
    match remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system("remove", path.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// After a crash of the executor: removes the sandboxes in `root` whose slot process is not `alive`. Returns
/// how many. Other entries of `root` are left alone, except the marks that slot processes leave when their
/// executor is gone.
pub fn clean_leftovers(root: &Path, alive: impl Fn(u32) -> bool) -> Result<u32, Error> {
    let failed = |error| Error::system("list the sandboxes in", root.display().to_string(), error);
    let mut n_removed = 0;
    for entry in std::fs::read_dir(root).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let is_doubt = name.to_str().is_some_and(|name| name.starts_with(DOUBT_PREFIX));
        if is_doubt || slot_pid_of(&name).is_some_and(|pid| !alive(pid)) {
            remove_tree(&root.join(name))?;
            n_removed += 1;
        }
    }
    Ok(n_removed)
}

/// The slot process in a sandbox name `s<pid>-<n>`.
pub fn slot_pid_of(name: &OsStr) -> Option<u32> {
    let (pid, number) = name.to_str()?.strip_prefix('s')?.split_once('-')?;
    number.parse::<u64>().ok()?;
    pid.parse().ok()
}

fn open_for_removal(parent: libc::c_int, name: &CStr) -> io::Result<OwnedFd> {
    let open = || sys::open_at(parent, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0);
    let dir = match open() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: `name` is NUL-terminated. It was found to be a directory before, so it is no link.
            sys::check(unsafe { libc::fchmodat(parent, name.as_ptr(), 0o700, 0) })?;
            open()
        }
        other => other,
    }?;
    let stat = sys::stat_fd(dir.as_fd())?;
    if stat.st_uid != geteuid().as_raw() {
        take_over(dir.as_fd());
    } else if stat.st_mode & 0o700 != 0o700 {
        // A failure shows when the entries are removed.
        let _ = rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o700));
    }
    Ok(dir)
}

/// Keeps the owner of a directory, another user, from adding to it while it is emptied. Only root succeeds, and only root may remove
/// what is another user's.
fn take_over(dir: BorrowedFd<'_>) {
    // A failure shows when the entries are removed.
    let _ = rustix::fs::fchown(dir, Some(geteuid()), Some(getegid()));
    let _ = rustix::fs::fchmod(dir, Mode::from_raw_mode(SANDBOX_MODE));
}

/// Removes everything in `top`. The caller ensures that no entries are added at the same time.
pub(crate) fn empty_dir(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut n_moved = 0;
    remove_entries(top, |name| {
        if remove_simple(top, name)? {
            return Ok(());
        }
        let dir = open_for_removal(top.as_raw_fd(), name)?;
        remove_entries(dir.as_fd(), |inner| {
            if remove_simple(dir.as_fd(), inner)? {
                return Ok(());
            }
            // Moving a directory rewrites its `..`, for which it has to be writable.
            drop(open_for_removal(dir.as_raw_fd(), inner)?);
            move_to_top(dir.as_fd(), inner, top, &mut n_moved)
        })?;
        sys::unlink_at(top.as_raw_fd(), name, libc::AT_REMOVEDIR)
    })
}

/// Calls `remove` on the entries of `dir` until there are none; gives up when a whole pass removes nothing.
fn remove_entries(dir: BorrowedFd<'_>, mut remove: impl FnMut(&CStr) -> io::Result<()>) -> io::Result<()> {
    loop {
        let (mut n_seen, mut n_removed, mut first_error) = (0u64, 0u64, None);
        let mut names = sys::DirBlocks::new(dir)?;
        while let Some(name) = names.next_name()? {
            n_seen += 1;
            match remove(&name) {
                Ok(()) => n_removed += 1,
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        match first_error {
            _ if n_seen == 0 => return Ok(()),
            Some(error) if n_removed == 0 => return Err(error),
            _ => {}
        }
    }
}

/// Removes a file, a link or an empty directory. `false`: it is a directory that is not empty.
fn remove_simple(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    let not_unlinked = match sys::unlink_at(dir.as_raw_fd(), name, 0) {
        Ok(()) => return Ok(true),
        Err(error) => error,
    };
    match not_unlinked.raw_os_error() {
        Some(libc::ENOENT) => return Ok(true),
        Some(libc::EISDIR | libc::EPERM | libc::EACCES) => {}
        _ => return Err(not_unlinked),
    }
    match sys::unlink_at(dir.as_raw_fd(), name, libc::AT_REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOTEMPTY | libc::EEXIST) => Ok(false),
            Some(libc::ENOTDIR) => Err(not_unlinked),
            _ => Err(error),
        },
    }
}

fn move_to_top(from: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>, n_moved: &mut u64) -> io::Result<()> {
    loop {
        *n_moved += 1;
        let target = sys::c_string(format!(".removing-{n_moved}").as_bytes())?;
        // SAFETY: both names are NUL-terminated.
        let moved =
            unsafe { libc::renameat(from.as_raw_fd(), name.as_ptr(), top.as_raw_fd(), target.as_ptr()) };
        match sys::check(moved) {
            Ok(_) => return Ok(()),
            // The task used that very name; an empty directory is replaced, other entries are skipped.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR)) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn removes_hostile_trees_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c/.removing-1/x")).unwrap();
        fs::create_dir_all(tree.join(".removing-1/q/r")).unwrap();
        symlink(&outside, tree.join("a/b/link")).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        for i in 0..3000 {
            fs::write(tree.join(format!("a/b/file {i} with a name that fills blocks")), "").unwrap();
        }
        for dir in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(tree.join(dir), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("precious").exists());
        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(fs::symlink_metadata(&tree).is_err() && outside.join("precious").exists());
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn removes_trees_deeper_than_a_path_can_be() {
        let base = tempfile::tempdir().unwrap();
        let tree = base.path().join("deep");
        fs::create_dir(&tree).unwrap();
        let open =
            |fd: libc::c_int, name: &CStr| sys::open_at(fd, name, libc::O_RDONLY | libc::O_DIRECTORY, 0);
        let mut dir = open(libc::AT_FDCWD, &sys::c_string(tree.as_os_str().as_bytes()).unwrap()).unwrap();
        let name = sys::c_string(&[b'd'; 100]).unwrap();
        for _ in 0..2000 {
            sys::mkdir_at(dir.as_raw_fd(), &name, 0o700).unwrap();
            dir = open(dir.as_raw_fd(), &name).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn leftovers_of_dead_slots_go() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("doubt-10-1"), "").unwrap();
        for name in ["s10-1", "s11-1", "s11-22", "sother", "s12-x", "keep"] {
            fs::create_dir_all(base.path().join(name).join("inner")).unwrap();
        }
        assert_eq!(clean_leftovers(base.path(), |pid| pid == 10).unwrap(), 3);
        let mut left: Vec<_> = fs::read_dir(base.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["keep", "s10-1", "s12-x", "sother"]);
    }

    #[test]
    fn a_pool_reuses_only_what_is_unchanged() {
        let base = tempfile::tempdir().unwrap();
        let mut pool = Pool::new(base.path()).unwrap();
        let sandbox = pool.take().unwrap();
        let first = sandbox.path.clone();
        fs::create_dir_all(first.join("x/y")).unwrap();
        pool.give_back(sandbox);
        let sandbox = pool.take().unwrap();
        assert_eq!(sandbox.path, first);
        assert!(sys::is_empty_dir(sandbox.fd.as_fd()).unwrap());
        fs::set_permissions(&first, fs::Permissions::from_mode(0o777)).unwrap();
        pool.give_back(sandbox);
        assert!(!first.exists());
        let sandbox = pool.take().unwrap();
        assert_ne!(sandbox.path, first);
        let second = sandbox.path.clone();
        fs::remove_dir(&second).unwrap();
        pool.give_back(sandbox);
        assert_ne!(pool.take().unwrap().path, second);
    }

    #[test]
    fn a_pool_whose_folder_was_removed_makes_it_again() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("node/sandbox");
        fs::create_dir_all(&root).unwrap();
        let mut pool = Pool::new(&root).unwrap();
        let sandbox = pool.take().unwrap();
        pool.give_back(sandbox);
        fs::remove_dir_all(base.path().join("node")).unwrap();
        for _ in 0..2 {
            assert!(pool.take().unwrap().path.is_dir(), "one that was free is gone, too");
        }
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
