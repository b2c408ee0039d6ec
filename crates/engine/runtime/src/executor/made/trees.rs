//! The trees that this node has made, and what was made and waits for room.
//!
//! ```text
//! <dir>/made/<n>   a tree; all of it is read-only
//! ```
//!
//! A tree is found only through this registry, so one that is half made has no name that anybody knows. Everything in
//! the folder is removed when an executor starts there: what is needed is made again of the packed files, which the cache
//! has kept.
//!
//! A program sees a tree through a symbolic link and shares it with others. Its modes forbid to write; a program of root,
//! or one that changes modes, can write all the same. So a tree is looked at again after programs that had it, by the
//! names, sizes and times of what is in it: as often as costs little ([`LOOKS_PART`]), and not in the way of a program.
//! What Python keeps in `__pycache__` does not count.

use crate::executor::system_users::let_pass;
use eyas_data::Halt;
use eyas_terms::{Digest, HomeVersion};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A file takes whole blocks of its disk.
const BLOCK_BYTES: u64 = 4096;
/// Results that wait for room at most; the oldest one goes first.
const ASIDE_MAX: usize = 4;
/// Looking at trees takes at most one part in this many of the time.
const LOOKS_PART: u32 = 20;
/// The directories of Python that may change.
const PYCACHE: &str = "__pycache__";

/// See the module. Clones share the registry.
#[derive(Clone)]
pub(in crate::executor) struct Trees {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    for_others: bool,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The tree of each digest.
    by_digest: BTreeMap<Digest, u64>,
    trees: BTreeMap<u64, Tree>,
    /// Results that wait for room, by the location of what was made; the oldest first.
    aside: Vec<(String, Aside)>,
}

struct Tree {
    made: Aside,
    /// Attempts that have it.
    n_users: u32,
    /// It left the cache while attempts had it.
    is_gone: bool,
    /// Not before this time it is looked at again.
    next_look: Option<Instant>,
}

/// A folder to make something in. It is removed unless it is kept.
pub(super) struct TreeFolder {
    pub path: PathBuf,
    number: u64,
    is_kept: bool,
}

impl TreeFolder {
    pub fn keep(mut self) -> (PathBuf, u64) {
        self.is_kept = true;
        (self.path.clone(), self.number)
    }
}

impl Drop for TreeFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            remove(&self.path);
        }
    }
}

/// What was made.
pub(super) struct Aside {
    path: PathBuf,
    number: u64,
    /// The file, if that is what was made.
    file: Option<PathBuf>,
    digest: Digest,
    size_bytes: u64,
    version: Option<HomeVersion>,
    stamp: u64,
}

impl Aside {
    /// The tree in a folder. It is read-only from now on.
    pub fn tree(
        (path, number): (PathBuf, u64),
        digest: Digest,
        version: Option<HomeVersion>,
        for_others: bool,
    ) -> io::Result<Aside> {
        protect(&path, for_others)?;
        let SeenTree { size_bytes, stamp } = SeenTree::of(&path)?;
        Ok(Aside { path, number, file: None, digest, size_bytes, version, stamp })
    }

    /// A file in a folder, with the digest of its bytes.
    pub fn of_file(
        (path, number): (PathBuf, u64),
        file: &Path,
        version: Option<HomeVersion>,
        halt: &Halt,
    ) -> io::Result<Aside> {
        let mut hasher = blake3::Hasher::new();
        let mut bytes = fs::File::open(file)?;
        let mut block = vec![0; super::BLOCK_BYTES];
        let mut size_bytes = 0;
        loop {
            halt.check()?;
            match io::Read::read(&mut bytes, &mut block)? {
                0 => break,
                n => {
                    hasher.update(&block[..n]);
                    size_bytes += n as u64;
                }
            }
        }
        let digest = Digest(*hasher.finalize().as_bytes());
        Ok(Aside { path, number, file: Some(file.to_path_buf()), digest, size_bytes, version, stamp: 0 })
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn version(&self) -> Option<HomeVersion> {
        self.version.clone()
    }

    pub fn file(&self) -> Option<PathBuf> {
        self.file.clone()
    }

    pub fn remove(self) {
        remove(&self.path);
    }

    /// Moves it to `path`, where nothing is that anybody needs.
    pub fn move_to(self, path: &Path) -> io::Result<()> {
        remove(path);
        fs::rename(self.file.as_deref().unwrap_or(&self.path), path)?;
        if self.file.is_some() {
            remove(&self.path);
        }
        Ok(())
    }
}

impl Trees {
    /// For the executor that lives in `dir`. What an earlier one has left is removed, on a thread of its own.
    ///
    /// `for_others`: programs run as other system users. Then a tree is readable for whoever may enter its top folder.
    pub fn open(dir: &Path, for_others: bool) -> io::Result<Trees> {
        let dir = dir.join("made");
        let old = dir.with_extension("old");
        let make = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(&old)?;
        if dir.exists() {
            fs::rename(&dir, old.join(format!("{}", std::process::id())))?;
        }
        make(&dir)?;
        if for_others {
            let_pass(&dir)?;
        }
        std::thread::spawn(move || remove(&old));
        Ok(Trees {
            shared: Arc::new(Shared { dir, for_others, next: AtomicU64::new(1), state: Mutex::default() }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no thread panics while it has the registry")
    }

    /// A new folder to make something in.
    pub(super) fn begin(&self) -> io::Result<TreeFolder> {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let path = self.shared.dir.join(number.to_string());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(TreeFolder { path, number, is_kept: false })
    }

    /// Whether trees are for other system users, see [`Trees::open`].
    pub(super) fn are_for_others(&self) -> bool {
        self.shared.for_others
    }

    /// The folder of the executor.
    pub(super) fn node(&self) -> &Path {
        self.shared.dir.parent().expect("the trees have a folder of their own in it")
    }

    /// A name for something that is needed beside a folder of [`Trees::begin`].
    pub(super) fn beside(&self, work: &Path, what: &str) -> PathBuf {
        work.with_extension(what)
    }

    pub(super) fn put_aside(&self, location: &str, made: Aside) {
        let mut state = self.state();
        state.aside.push((location.to_string(), made));
        let oldest = (state.aside.len() > ASIDE_MAX).then(|| state.aside.remove(0));
        drop(state);
        if let Some((_, made)) = oldest {
            made.remove();
        }
    }

    pub(super) fn take_aside(&self, location: &str) -> Option<Aside> {
        let mut state = self.state();
        let at = state.aside.iter().position(|(of, _)| of == location)?;
        Some(state.aside.remove(at).1)
    }

    /// The tree is there for programs from now on. An equal one that is there stays.
    pub(super) fn add(&self, made: Aside) {
        let mut state = self.state();
        if state.by_digest.contains_key(&made.digest) {
            drop(state);
            return made.remove();
        }
        state.by_digest.insert(made.digest, made.number);
        let tree = Tree { n_users: 0, is_gone: false, next_look: None, made };
        state.trees.insert(tree.made.number, tree);
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.state().by_digest.contains_key(digest)
    }

    pub fn path_of(&self, digest: &Digest) -> Option<PathBuf> {
        let state = self.state();
        state.by_digest.get(digest).map(|number| state.trees[number].made.path.clone())
    }

    /// Bytes of all trees.
    pub fn held_bytes(&self) -> u64 {
        self.state().trees.values().map(|tree| tree.made.size_bytes).sum()
    }

    /// The tree leaves the cache. Its files stay until no attempt has it. `false`: there is none.
    pub fn remove(&self, digest: &Digest) -> bool {
        let mut state = self.state();
        let Some(number) = state.by_digest.remove(digest) else { return false };
        let tree = state.trees.get_mut(&number).expect("each digest has a tree");
        tree.is_gone = true;
        self.sweep(state, number);
        true
    }

    /// An attempt has the tree from now on; gives the number for [`Trees::release`].
    pub fn hold(&self, digest: &Digest) -> Option<u64> {
        let mut state = self.state();
        let number = *state.by_digest.get(digest)?;
        state.trees.get_mut(&number).expect("each digest has a tree").n_users += 1;
        Some(number)
    }

    pub fn release(&self, number: u64) {
        let mut state = self.state();
        if let Some(tree) = state.trees.get_mut(&number) {
            tree.n_users -= 1;
        }
        self.sweep(state, number);
    }

    /// Removes a tree that nobody needs, on a thread of its own.
    fn sweep(&self, mut state: MutexGuard<'_, State>, number: u64) {
        if state.trees.get(&number).is_some_and(|tree| tree.is_gone && tree.n_users == 0) {
            let tree = state.trees.remove(&number).expect("just seen");
            std::thread::spawn(move || tree.made.remove());
        }
    }

    /// Whether it is time to look at a tree again. Only one look at a time is due.
    pub fn take_due(&self, number: u64, now: Instant) -> bool {
        let mut state = self.state();
        let Some(tree) = state.trees.get_mut(&number).filter(|tree| !tree.is_gone) else { return false };
        let is_due = tree.next_look.is_none_or(|next| next <= now);
        if is_due {
            tree.next_look = Some(now + Duration::from_secs(3600));
        }
        is_due
    }

    /// Looks at a tree; gives its digest if it is not what was made.
    pub fn look(&self, number: u64) -> Option<Digest> {
        let (path, stamp, digest) = {
            let state = self.state();
            let made = &state.trees.get(&number)?.made;
            (made.path.clone(), made.stamp, made.digest)
        };
        let begun = Instant::now();
        let seen = SeenTree::of(&path);
        let mut state = self.state();
        let tree = state.trees.get_mut(&number).filter(|tree| !tree.is_gone)?;
        tree.next_look = Some(Instant::now() + begun.elapsed() * LOOKS_PART);
        seen.is_ok_and(|seen| seen.stamp != stamp).then_some(digest)
    }
}

/// What a look at a tree shows.
struct SeenTree {
    size_bytes: u64,
    /// A number that changes with names, kinds, sizes, times of files, and where links lead.
    stamp: u64,
}

impl SeenTree {
    fn of(root: &Path) -> io::Result<SeenTree> {
        let mut hasher = blake3::Hasher::new();
        let mut size_bytes = 0;
        walk(root, &mut |path, meta| {
            size_bytes += meta.len().next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
            hasher.update(path.as_os_str().as_bytes()).update(&[0]).update(&meta.mode().to_le_bytes());
            if meta.is_file() {
                for number in [meta.len().cast_signed(), meta.mtime(), meta.mtime_nsec()] {
                    hasher.update(&number.to_le_bytes());
                }
            } else if meta.is_symlink() {
                hasher.update(fs::read_link(path)?.as_os_str().as_bytes());
            }
            Ok(())
        })?;
        let bytes = *hasher.finalize().as_bytes();
        let stamp = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        Ok(SeenTree { size_bytes, stamp })
    }
}

/// Calls `each` for everything in `root`, in one order, without following links. What Python caches is passed over.
fn walk(root: &Path, each: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() && path.file_name().is_some_and(|name| name == PYCACHE) {
            continue;
        }
        each(&path, &meta)?;
        if meta.is_dir() {
            let mut below: Vec<PathBuf> =
                fs::read_dir(&path)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
            below.sort_unstable();
            left.extend(below.into_iter().rev());
        }
    }
    Ok(())
}

/// Takes away the rights to write to everything in `root`, and gives its owner the rights to read. Rights of others to read and to run
/// stay, as the programs of a container may become other users; `root` itself keeps everybody else of this machine out. Where it is
/// `for_others`, all may read what is in `root`, and its access list lets them in.
fn protect(root: &Path, for_others: bool) -> io::Result<()> {
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_symlink() {
            continue;
        }
        let is_dir = meta.is_dir();
        if is_dir {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
        let may_run = is_dir || meta.mode() & 0o100 != 0;
        let mode = match (for_others, may_run) {
            (true, _) if path == root => 0o550,
            (true, true) => 0o555,
            (true, false) => 0o444,
            (false, _) if path == root => 0o500,
            (false, true) => 0o500 | meta.mode() & 0o055,
            (false, false) => 0o400 | meta.mode() & 0o044,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Removes a file or a tree, whatever its modes and its depth are. What cannot be removed stays until the next start.
pub(in crate::executor) fn remove(root: &Path) {
    let _ = eyas_runner::sandbox::remove_tree(root);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(trees: &Trees, digest: u8) -> Aside {
        let work = trees.begin().unwrap();
        fs::create_dir(work.path.join("d")).unwrap();
        fs::write(work.path.join("d/x"), "x").unwrap();
        Aside::tree(work.keep(), Digest([digest; 32]), None, false).unwrap()
    }

    #[test]
    fn a_tree_stays_as_long_as_somebody_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let trees = Trees::open(dir.path(), false).unwrap();
        let digest = Digest([1; 32]);
        trees.add(made(&trees, 1));
        let path = trees.path_of(&digest).unwrap();
        assert_eq!(fs::metadata(path.join("d/x")).unwrap().permissions().mode() & 0o700, 0o400);
        let held = trees.hold(&digest).unwrap();
        assert!(trees.remove(&digest));
        assert!(!trees.has(&digest) && path.join("d/x").exists());
        // Another tree of the same digest is another one.
        trees.add(made(&trees, 1));
        assert_ne!(trees.path_of(&digest).unwrap(), path);
        trees.release(held);
        while path.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(trees.has(&digest) && !trees.remove(&Digest([2; 32])));
    }

    #[test]
    fn a_look_finds_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let trees = Trees::open(dir.path(), false).unwrap();
        let digest = Digest([1; 32]);
        trees.add(made(&trees, 1));
        let (path, number) = (trees.path_of(&digest).unwrap(), trees.hold(&digest).unwrap());
        assert!(trees.take_due(number, Instant::now()) && !trees.take_due(number, Instant::now()));
        assert_eq!(trees.look(number), None);
        let may_write = |path: &Path| {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
            before
        };
        let before = [path.join("d"), path.clone()].map(|path| (may_write(&path), path));
        fs::create_dir(path.join(PYCACHE)).unwrap();
        before.into_iter().for_each(|(before, path)| fs::set_permissions(path, before).unwrap());
        assert_eq!(trees.look(number), None, "what Python caches does not count");
        may_write(&path.join("d/x"));
        fs::write(path.join("d/x"), "y").unwrap();
        assert_eq!(trees.look(number), Some(digest));
    }

    #[test]
    fn what_an_earlier_executor_left_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let trees = Trees::open(dir.path(), false).unwrap();
        trees.add(made(&trees, 1));
        let path = trees.path_of(&Digest([1; 32])).unwrap();
        let again = Trees::open(dir.path(), false).unwrap();
        assert!(!path.exists() && !again.has(&Digest([1; 32])));
    }
}
