//! The folder of an executor among the folders that a user's executors leave on a host.
//!
//! ```text
//! <root>/eyas-<uid>-<n>/owner.json   what this folder is; its lock says who lives there, its time when it was used last
//! <root>/eyas-<uid>-<n>/cache/...    see `eyas_data::Store`
//! ```
//!
//! An executor takes over the folder that was used last and in which nobody lives, with the cache in it, or makes one of its
//! own. So two executors never share a folder, and one that comes back to a host is warm, whichever cluster it belongs to.
//!
//! Each folder's file says how long it may be unused. An executor of the same user removes what is older, when it begins and from
//! time to time while it lives. It removes nothing that has no such file, that another user owns, or in which somebody lives.
//!
//! The lock is one of the kernel's and ends with the process that holds it, however that ends. Whoever has locked the file looks
//! whether the folder still has that very file, because a folder may be removed between the opening and the locking. Nobody locks
//! a folder only to look at it: an executor that begins at that moment would not take it over.

use crate::executor::sweep_home;
use eyas_text::shown_path;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const OWNER_FILE: &str = "owner.json";
const VERSION: u32 = 1;
/// What stays in a folder when its executor has ended.
const KEPT: [&str; 4] = [OWNER_FILE, "cache", "origins.jsonl", "landings"];
/// How often the time of a folder that is in use is set, and those beside it are looked at.
const TOUCH_EVERY: Duration = Duration::from_secs(10 * 60);
/// An empty folder without its file was left by a process that was killed between two steps, once it is so old.
const EMPTY_AGE: Duration = Duration::from_secs(60 * 60);

#[derive(Serialize, Deserialize)]
struct Owner {
    /// Version of this file.
    eyas: u32,
    /// The folder may be removed when it was unused for longer.
    keep_s: u64,
}

/// A folder that this process lives in. Dropping it ends that, and removes nothing.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    owner: File,
    keep: Duration,
}

/// The place of an executor's folder, and how long it may be unused.
#[derive(Clone, Debug)]
pub struct ScratchOptions {
    /// The folder of folders. It is made if necessary.
    pub root: PathBuf,
    /// Zero: nothing is taken over, and nothing stays.
    pub keep: Duration,
}

/// A folder that belongs to this user's executors, locked.
struct Locked {
    dir: PathBuf,
    owner: File,
    age: Age,
}

/// What the file of a folder says of its time.
struct Age {
    keep: Duration,
    unused: Duration,
}

impl Age {
    /// Whether the folder may be removed if nobody lives there.
    fn is_over(&self) -> bool {
        self.unused > self.keep || self.keep.is_zero()
    }
}

impl Scratch {
    /// Takes over the folder that was used last and is free, or makes one.
    pub fn claim(options: &ScratchOptions) -> io::Result<Scratch> {
        let ScratchOptions { root, keep } = options;
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let mut found: Vec<(Duration, PathBuf)> = match keep.is_zero() {
            true => vec![],
            false => own_dirs(root)?.into_iter().filter_map(|dir| Some((unused_for(&dir)?, dir))).collect(),
        };
        found.sort();
        for (_, dir) in found {
            if let Some(Locked { dir, owner, .. }) = lock(dir, |of| !of.is_over()) {
                write_owner(&owner, *keep)?;
                return Ok(Scratch { dir, owner, keep: *keep });
            }
        }
        for n in 1.. {
            let dir = root.join(format!("{}{n}", prefix()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            }
            // The file has its content and its lock before it has its name.
            let part = dir.join(format!("{OWNER_FILE}.part"));
            let made = || {
                let owner =
                    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&part)?;
                owner.lock()?;
                write_owner(&owner, *keep)?;
                fs::rename(&part, dir.join(OWNER_FILE))?;
                Ok(owner)
            };
            match made() {
                Ok(owner) => return Ok(Scratch { dir, owner, keep: *keep }),
                Err(e) => {
                    let _ = eyas_runner::sandbox::remove_tree(&dir);
                    return Err(e);
                }
            }
        }
        unreachable!("the numbers do not end")
    }

    /// Takes the folder of an executor that was killed, whose process had that number; `None`: somebody else lives there by
    /// now, or it is gone.
    pub fn of_killed(dir: &Path, pid: u32) -> Option<Scratch> {
        // The lock of a killed process lasts until the last of its threads is gone.
        for _ in 0..40 {
            let holder = fs::read_to_string(dir.join("cache").join("lock")).ok()?;
            if holder.trim() != pid.to_string() {
                return None;
            }
            if let Some(Locked { dir, owner, age }) = lock(dir.to_path_buf(), |_| true) {
                return Some(Scratch { dir, owner, keep: age.keep });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }

    /// Whether the folder is one of this kind, whoever lives there.
    pub fn is_at(dir: &Path) -> bool {
        dir.join(OWNER_FILE).exists()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the folder stays when its executor has ended.
    pub fn stays(&self) -> bool {
        !self.keep.is_zero()
    }

    /// Sets the folder's time from now on as long as this process lives, and removes the folders beside it that were unused for
    /// too long, now and again and again. Both happen on a thread.
    pub fn begin(&self) -> io::Result<()> {
        let (owner, dir) = (self.owner.try_clone()?, self.dir.clone());
        std::thread::spawn(move || {
            loop {
                if let Some(root) = dir.parent() {
                    sweep(root);
                }
                std::thread::sleep(TOUCH_EVERY);
                touch(&owner);
            }
        });
        Ok(())
    }

    /// The executor has ended: of a folder that stays, everything but the cache is removed. Errors: the first thing that
    /// cannot be removed; the others are.
    pub fn leave(&self) -> Result<(), eyas_runner::Error> {
        let dir = &self.dir;
        eyas_runner::reaper::end_inhabitants(&dir.join("sandbox"));
        sweep_home(dir);
        if !self.stays() {
            return remove(dir);
        }
        let mut result = Ok(());
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !KEPT.iter().any(|kept| entry.file_name().to_str() == Some(kept)) {
                result = result.and(eyas_runner::sandbox::remove_tree(&entry.path()));
            }
        }
        touch(&self.owner);
        result
    }
}

/// Removes the folders of this user's executors in `root` that were unused for longer than they may be.
pub fn sweep(root: &Path) {
    for dir in own_dirs(root).unwrap_or_default() {
        if !dir.join(OWNER_FILE).exists() {
            let age = fs::metadata(&dir).ok().and_then(|meta| meta.modified().ok()).map(age_of);
            if age.is_some_and(|age| age > EMPTY_AGE) {
                // Fails unless it is empty.
                let _ = fs::remove_dir(&dir);
            }
            continue;
        }
        let Some(Locked { dir, owner: _owner, age }) = lock(dir, Age::is_over) else { continue };
        eyas_runner::reaper::end_inhabitants(&dir.join("sandbox"));
        sweep_home(&dir);
        let hours = age.unused.as_secs() / 3600;
        match remove(&dir) {
            Ok(()) if age.keep.is_zero() => {}
            Ok(()) => eyas_text::say!("eyas: removed {}, unused for {hours} h", shown_path(&dir)),
            Err(e) => eyas_text::say!("eyas: cannot remove {}: {e}", shown_path(&dir)),
        }
    }
}

/// Removes a folder, its file last: where that is interrupted, the next one goes on.
fn remove(dir: &Path) -> Result<(), eyas_runner::Error> {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name() != OWNER_FILE {
            eyas_runner::sandbox::remove_tree(&entry.path())?;
        }
    }
    eyas_runner::sandbox::remove_tree(dir)
}

/// What the names of this user's folders begin with.
fn prefix() -> String {
    format!("eyas-{}-", uid())
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The folders in `root` whose name and owner are right.
fn own_dirs(root: &Path) -> io::Result<Vec<PathBuf>> {
    let prefix = prefix();
    let mut found = vec![];
    for entry in fs::read_dir(root)?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        let is_ours = || fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && m.uid() == uid());
        if number.is_some_and(|n| n.parse::<u32>().is_ok()) && is_ours() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// How long the folder was unused, if it has its file.
fn unused_for(dir: &Path) -> Option<Duration> {
    let meta = fs::symlink_metadata(dir.join(OWNER_FILE)).ok()?;
    meta.is_file().then(|| meta.modified().ok().map(age_of))?
}

/// Zero for a time that is to come.
fn age_of(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}

/// `None`: somebody lives there, its time is not the one that is wanted, or it is no folder of an executor.
fn lock(dir: PathBuf, is_wanted: impl Fn(&Age) -> bool) -> Option<Locked> {
    let path = dir.join(OWNER_FILE);
    let owner = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&path).ok()?;
    if !is_wanted(&age_in(&owner)?) {
        return None;
    }
    match owner.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return None,
        Err(TryLockError::Error(e)) => {
            eyas_text::say!("eyas: {} cannot be locked, so it is not used: {e}", shown_path(&path));
            return None;
        }
    }
    let (held, named) = (owner.metadata().ok()?, fs::symlink_metadata(&path).ok()?);
    if (held.dev(), held.ino()) != (named.dev(), named.ino()) || held.uid() != uid() {
        return None;
    }
    // Somebody may have lived there until now.
    let age = age_in(&owner)?;
    is_wanted(&age).then_some(Locked { dir, owner, age })
}

/// `None`: it is no file of an executor's folder.
fn age_in(mut owner: &File) -> Option<Age> {
    let mut text = String::new();
    owner.rewind().ok()?;
    owner.read_to_string(&mut text).ok()?;
    let Owner { eyas, keep_s } = serde_json::from_slice(text.as_bytes()).ok()?;
    let unused = age_of(owner.metadata().ok()?.modified().ok()?);
    (eyas == VERSION).then(|| Age { keep: Duration::from_secs(keep_s), unused })
}

fn write_owner(mut owner: &File, keep: Duration) -> io::Result<()> {
    // What is shorter than a second is still something.
    let keep_s = keep.as_secs() + u64::from(keep.subsec_nanos() > 0);
    let text = serde_json::to_string(&Owner { eyas: VERSION, keep_s })?;
    owner.rewind()?;
    owner.set_len(0)?;
    owner.write_all(text.as_bytes())
}

fn touch(owner: &File) {
    // Where it fails, the folder seems to be older than it is.
    let _ = owner.set_modified(SystemTime::now());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn claim(root: &Path, keep: Duration) -> Scratch {
        Scratch::claim(&ScratchOptions { root: root.into(), keep }).unwrap()
    }

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn age(dir: &Path, by: Duration) {
        let owner = File::options().write(true).open(dir.join(OWNER_FILE)).unwrap();
        owner.set_modified(SystemTime::now() - by).unwrap();
    }

    #[test]
    fn a_folder_that_is_free_is_taken_over_and_one_that_is_not_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("of all");
        let first = claim(&root, DAY);
        fs::create_dir(first.dir().join("cache")).unwrap();
        fs::write(first.dir().join("join.json"), "key").unwrap();
        let second = claim(&root, DAY);
        assert_ne!(first.dir(), second.dir());
        let (one, two) = (first.dir().to_path_buf(), second.dir().to_path_buf());
        first.leave().unwrap();
        drop(first);
        assert_eq!(names(&one), ["cache", "owner.json"], "the key is gone, the cache is not");
        assert_eq!(claim(&root, DAY).dir(), one);
        drop(second);
        // The one that was used last.
        age(&one, Duration::from_secs(100));
        let third = claim(&root, DAY);
        assert_eq!((third.dir(), names(&root).len()), (two.as_path(), 2));
        assert_eq!(claim(&root, DAY).dir(), one);
    }

    #[test]
    fn what_was_unused_for_too_long_goes_unless_somebody_lives_there_or_it_is_not_ours() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let [old, young, used] = [claim(root, DAY), claim(root, 9 * DAY), claim(root, DAY)];
        for scratch in [&old, &young, &used] {
            fs::create_dir_all(scratch.dir().join("cache/objects")).unwrap();
            age(scratch.dir(), 3 * DAY);
        }
        // Others' things, of which some look like ours.
        let foreign = root.join(format!("eyas-{}-77", uid()));
        fs::create_dir_all(foreign.join("thesis")).unwrap();
        let strange = root.join(format!("eyas-{}-78", uid()));
        fs::create_dir(&strange).unwrap();
        fs::write(strange.join(OWNER_FILE), "{\"eyas\":\"a bird\"}").unwrap();
        let link = root.join(format!("eyas-{}-79", uid()));
        std::os::unix::fs::symlink(old.dir(), &link).unwrap();
        fs::create_dir(root.join("home")).unwrap();
        let gone = old.dir().to_path_buf();
        drop((old, young));
        sweep(root);
        assert!(!gone.exists());
        assert_eq!(names(root).len(), 6, "{:?}", names(root));
        // An expired one is not taken over either.
        age(used.dir(), 3 * DAY);
        let was_used = used.dir().to_path_buf();
        drop(used);
        let taken = claim(root, DAY);
        assert!(taken.dir() != was_used && taken.dir() != foreign && taken.dir() != strange);
    }

    #[test]
    fn to_look_for_old_folders_keeps_no_executor_from_its_own() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let young = claim(root, DAY).dir().to_path_buf();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    sweep(root);
                }
            });
            let taken: BTreeSet<PathBuf> = (0..300).map(|_| claim(root, DAY).dir().to_path_buf()).collect();
            over.store(true, Ordering::Relaxed);
            assert_eq!(taken, BTreeSet::from([young]));
        });
    }

    #[test]
    fn nothing_stays_of_a_folder_that_is_kept_for_no_time() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let kept = claim(root, DAY);
        let warm = kept.dir().to_path_buf();
        kept.leave().unwrap();
        drop(kept);
        let one = claim(root, Duration::ZERO);
        assert_ne!(one.dir(), warm, "it takes nothing over");
        let killed = one.dir().to_path_buf();
        drop(one);
        claim(root, Duration::ZERO).leave().unwrap();
        sweep(root);
        assert!(warm.exists() && !killed.exists());
        assert_eq!(names(root).len(), 1);
    }

    #[test]
    fn the_folder_of_a_killed_executor_is_its_keepers_only_until_another_one_has_it() {
        let root = tempfile::tempdir().unwrap();
        let scratch = claim(root.path(), DAY);
        let dir = scratch.dir().to_path_buf();
        fs::create_dir(dir.join("cache")).unwrap();
        fs::write(dir.join("cache/lock"), "4711\n").unwrap();
        assert!(Scratch::of_killed(&dir, 4711).is_none(), "it is alive");
        drop(scratch);
        assert!(Scratch::of_killed(&dir, 4712).is_none());
        assert!(Scratch::of_killed(&dir, 4711).is_some());
    }
}
