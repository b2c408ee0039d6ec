//! A tree of directories and empty files with the names, sizes and times of data sets. Files get their bytes when they are opened first.
//!
//! A data set's directories are made when somebody names it, and a file when somebody names that; whoever opens one of the directories finds
//! all of the data set there. A file has holes for bytes until [`Skeleton::fill`] has written verified ones. Whoever reads a hole would read zeros, so every way to open a file has to come here
//! first; one that did not is found out ([`crate::watch`]).
//!
//! The numbers that the disk gives to directories and files tell which of them a program has found, by whatever name.

use crate::files::Options;
use crate::names::{AT, MODE_OF_PROGRAMS, Set, mode_of};
use crate::said::SaidFiles;
use crate::watch::{Early, Watch};
use eyas_catalog::{Access, Compared, File, Key, Known, OwnHost};
use eyas_data::n_groups;
use eyas_folder::holes;
use eyas_text::shown;
use rustix::fs::{Timespec, Timestamps, futimens};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// Groups that are brought at once, 4 MiB.
const GROUPS_AT_ONCE: u64 = 64;
/// How long notices of files that are opened are gathered.
const GATHERING: Duration = Duration::from_millis(20);
/// Labels that the root shows.
const LABELS_MAX: u64 = 100_000;

pub(crate) struct Skeleton {
    known: Arc<Known>,
    root: PathBuf,
    /// A directory in the root that is another one's.
    pub(crate) apart: String,
    device: u64,
    root_number: u64,
    names: Mutex<HashMap<String, Arc<Mutex<Name>>>>,
    /// Directories of data sets, by number: the name in the root above them, and whether all is in them.
    directories: RwLock<HashMap<u64, (Arc<str>, bool)>>,
    files: RwLock<HashMap<u64, Arc<Entry>>>,
    watch: Watch,
    n_made: AtomicU64,
    /// A directory beside the root, in which a file that is being made or filled has another name.
    filling: PathBuf,
    compared: Option<Arc<Compared>>,
    host: OwnHost,
    now_ms: fn() -> i64,
    pub(crate) said: SaidFiles,
}

/// What is there of a name in the root.
enum Name {
    Nothing,
    /// The directory, without what is in it.
    Top,
    /// The directories, and some files.
    Begun(Begun),
    All,
}

/// A data set whose files are made as they are named.
struct Begun {
    set: Set,
    /// The places of its files in the set, by path, of those that are not made yet.
    missing: BTreeMap<PathBuf, usize>,
    directories: Vec<PathBuf>,
    /// Those that are watched: some of their files are made.
    watched: HashSet<PathBuf>,
}

impl Begun {
    /// Where the `n`-th file belongs.
    fn path(&self, n: usize) -> PathBuf {
        self.directories[0].join(&self.set.files[n].path)
    }

    /// Makes the `n`-th file without its bytes, at a place from which it gets to its path.
    fn make_empty(&self, n: usize, at: &Path, path: &Path) -> io::Result<Entry> {
        let Set { key, committed_ms, files, site } = &self.set;
        let file = &files[n];
        let mode = mode_of(file);
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(at)?;
        made.set_permissions(fs::Permissions::from_mode(mode))?;
        made.set_len(file.size_bytes)?;
        set_times(&made, *committed_ms)?;
        Ok(Entry {
            number: made.metadata()?.ino(),
            key: key.clone(),
            site: site.clone(),
            file: file.clone(),
            path: path.to_owned(),
            changed_ms: *committed_ms,
            is_full: Mutex::new(file.size_bytes == 0),
            full_at: OnceLock::new(),
        })
    }
}

struct Entry {
    number: u64,
    key: Arc<Key>,
    site: Option<Arc<str>>,
    file: File,
    path: PathBuf,
    changed_ms: i64,
    is_full: Mutex<bool>,
    /// When its state changed last, once it is full: seconds and nanoseconds.
    full_at: OnceLock<(i64, i64)>,
}

/// What a program has found.
pub(crate) enum FoundEntry {
    /// Something that is not of the tree, or that needs nothing.
    Other,
    Root,
    /// A directory of a data set.
    Directory {
        is_complete: bool,
    },
    File {
        is_full: bool,
    },
}

impl Skeleton {
    /// A tree in a directory, without any data set yet.
    pub(crate) fn new(access: Access, options: Options, root: &Path) -> io::Result<Skeleton> {
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        let found = fs::metadata(root)?;
        let filling = root.with_file_name("filling");
        fs::DirBuilder::new().mode(0o700).create(&filling)?;
        Ok(Skeleton {
            known: Arc::new(Known::new(access)),
            root: root.to_owned(),
            apart: options.empty.unwrap_or_default(),
            device: found.dev(),
            root_number: found.ino(),
            names: Mutex::default(),
            directories: RwLock::default(),
            files: RwLock::default(),
            watch: Watch::new()?,
            n_made: AtomicU64::new(0),
            filling,
            compared: options.compared,
            host: options.host,
            now_ms: options.now_ms,
            said: SaidFiles::default(),
        })
    }

    /// What a file or directory of the machine is here.
    pub(crate) fn found(&self, of: &libc::stat) -> FoundEntry {
        if of.st_dev != self.device {
            return FoundEntry::Other;
        }
        if of.st_ino == self.root_number {
            return FoundEntry::Root;
        }
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = files.get(&of.st_ino) {
            // Where it is being filled, it is not full yet.
            return FoundEntry::File { is_full: entry.is_full.try_lock().is_ok_and(|is_full| *is_full) };
        }
        match self.directories.read().unwrap_or_else(PoisonError::into_inner).get(&of.st_ino) {
            Some((_, is_complete)) => FoundEntry::Directory { is_complete: *is_complete },
            None => FoundEntry::Other,
        }
    }

    /// Makes all that is in the root, or in the data set that has a directory.
    ///
    /// # Errors
    /// It cannot be made: the number for the program.
    pub(crate) fn complete(&self, number: u64) -> Result<(), i32> {
        if number == self.root_number {
            return self.list();
        }
        let Some(name) = self.name_above(number) else { return Ok(()) };
        self.with(&name, |begun| self.make_rest(&name, begun))
    }

    /// Makes the directories of the data set that has this one, so that it looks as it will look when it is complete.
    ///
    /// # Errors
    /// They cannot be made: the number for the program.
    pub(crate) fn begin(&self, number: u64) -> Result<(), i32> {
        self.name_above(number).map_or(Ok(()), |name| self.with(&name, |_| Ok(false)))
    }

    /// The name in the root above a directory.
    fn name_above(&self, number: u64) -> Option<Arc<str>> {
        let directories = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        directories.get(&number).map(|(name, _)| name.clone())
    }

    /// Makes the directories of all labels.
    fn list(&self) -> Result<(), i32> {
        let Access { catalog, caller } = &self.known.access;
        let found = catalog.find(caller, None, LABELS_MAX);
        let sets = found.map_err(|error| self.said.errno(0, "/", true, &error))?;
        for set in sets.iter().filter(|set| set.label != self.apart) {
            let name = self.name(&set.label);
            let mut is_there = name.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(*is_there, Name::Nothing) {
                let made = self.make_directory(&set.label.as_str().into(), &self.root.join(&set.label));
                made.map_err(|error| self.cannot_write(&error))?;
                *is_there = Name::Top;
            }
        }
        Ok(())
    }

    fn name(&self, name: &str) -> Arc<Mutex<Name>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.entry(name.to_owned()).or_insert_with(|| Arc::new(Mutex::new(Name::Nothing))).clone()
    }

    /// Makes what a path below the root leads to, where a data set has it: the directories of that data set, and the file.
    ///
    /// # Errors
    /// It cannot be made: the number for the program.
    pub(crate) fn make(&self, path: &Path) -> Result<(), i32> {
        let mut parts = path.components();
        let mut next = || parts.next().and_then(|name| name.as_os_str().to_str());
        let Some(mut name) = next().map(str::to_owned) else { return Ok(()) };
        if let Some(site) = name.strip_prefix(AT) {
            if !self.make_site(&name, site)? {
                return Ok(());
            }
            let Some(label) = next() else { return Ok(()) };
            name = format!("{name}/{label}");
        }
        let below = parts.as_path();
        self.with(&name, |begun| {
            if let Some(n) = begun.missing.get(below).copied() {
                self.make_file(begun, n)?;
                begun.missing.remove(below);
            }
            Ok(false)
        })
    }

    /// Makes the directory of a site, if there is one.
    fn make_site(&self, name: &str, site: &str) -> Result<bool, i32> {
        let known = self.name(name);
        let mut is_there = known.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*is_there, Name::Nothing) {
            if let Err(error) = self.known.access.catalog.require_site(site) {
                return match self.said.errno_of_site(site, &error) {
                    libc::ENOENT => Ok(false),
                    errno => Err(errno),
                };
            }
            let path = self.root.join(name);
            let made = make_directory(&path).and_then(|()| fs::metadata(&path));
            let number = made.map_err(|error| self.cannot_write(&error))?.ino();
            // It shows the data sets that were named below it.
            let mut directories = self.directories.write().unwrap_or_else(PoisonError::into_inner);
            directories.insert(number, (name.into(), true));
            *is_there = Name::All;
        }
        Ok(true)
    }

    /// Has something made of the data set that has this name in the root, or below a site in the root, if there is one and it is not complete. `make` says whether
    /// it is complete then.
    fn with(&self, name: &str, make: impl FnOnce(&mut Begun) -> io::Result<bool>) -> Result<(), i32> {
        let (site, label) = match name.strip_prefix(AT).and_then(|name| name.split_once('/')) {
            Some((site, label)) => (Some(Arc::from(site)), label),
            None => (None, name),
        };
        let Ok(key) = label.parse::<Key>() else { return Ok(()) };
        if name == self.apart {
            return Ok(());
        }
        let known = self.name(name);
        let mut is_there = known.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*is_there, Name::Nothing | Name::Top) {
            let Access { catalog, caller } = &self.known.access;
            let set = match Set::of(catalog, caller, &key, site) {
                Ok(set) => set,
                Err(error) => {
                    return match self.said.errno(0, name, true, &error) {
                        libc::ENOENT => Ok(()),
                        errno => Err(errno),
                    };
                }
            };
            let begun = self.make_directories(name, set, matches!(*is_there, Name::Top));
            *is_there = Name::Begun(begun.map_err(|error| self.cannot_write(&error))?);
        }
        if let Name::Begun(begun) = &mut *is_there
            && make(begun).map_err(|error| self.cannot_write(&error))?
        {
            *is_there = Name::All;
        }
        Ok(())
    }

    fn cannot_write(&self, error: &io::Error) -> i32 {
        self.said
            .say(0, &format!("the names of data sets cannot be made in {}: {error}", self.root.display()));
        libc::EIO
    }

    fn make_directory(&self, name: &Arc<str>, path: &Path) -> io::Result<()> {
        make_directory(path)?;
        let number = fs::metadata(path)?.ino();
        let mut directories = self.directories.write().unwrap_or_else(PoisonError::into_inner);
        directories.insert(number, (name.clone(), false));
        Ok(())
    }

    fn make_directories(&self, name: &str, set: Set, has_top: bool) -> io::Result<Begun> {
        let (top, name) = (self.root.join(name), Arc::from(name));
        if !has_top {
            self.make_directory(&name, &top)?;
        }
        let mut directories = vec![top.clone()];
        let mut known: HashSet<&Path> = HashSet::from([Path::new("")]);
        for file in &set.files {
            let above = Path::new(&file.path).ancestors().skip(1);
            let missing: Vec<&Path> = above.take_while(|directory| known.insert(*directory)).collect();
            for directory in missing.into_iter().rev() {
                let path = top.join(directory);
                self.make_directory(&name, &path)?;
                directories.push(path);
            }
        }
        // Not before, as making a directory changes the one above.
        for directory in &directories {
            set_times(&fs::File::open(directory)?, set.committed_ms)?;
        }
        let missing = set.files.iter().enumerate().map(|(n, file)| (file.path.clone().into(), n)).collect();
        Ok(Begun { set, missing, directories, watched: HashSet::new() })
    }

    /// Makes one file of a data set.
    fn make_file(&self, begun: &mut Begun, n: usize) -> io::Result<()> {
        let path = begun.path(n);
        let directory = path.parent().expect("it is in a directory of the data set");
        self.move_in(&mut self.files.write().unwrap_or_else(PoisonError::into_inner), begun, n, &path)?;
        begun.watched.insert(directory.to_owned());
        set_times(&fs::File::open(directory)?, begun.set.committed_ms)
    }

    /// Makes a file elsewhere and gives it its name: in a directory that is watched, making it would look like opening it.
    fn move_in(
        &self,
        files: &mut HashMap<u64, Arc<Entry>>,
        begun: &Begun,
        n: usize,
        path: &Path,
    ) -> io::Result<()> {
        let part = self.filling.join(format!("new-{}", self.n_made.fetch_add(1, Ordering::Relaxed)));
        let entry = begun.make_empty(n, &part, path)?;
        let (number, directory) = (entry.number, path.parent().unwrap_or(path));
        // Whoever finds it has to come here first.
        let is_empty = entry.file.size_bytes == 0;
        files.insert(number, Arc::new(entry));
        let watched = path.file_name().filter(|_| !is_empty).map(|name| (name, number));
        self.watch.add(directory, watched.into_iter())?;
        fs::rename(&part, path)
    }

    /// Makes all files of a data set that are not there. `true`: it is complete.
    fn make_rest(&self, name: &str, begun: &mut Begun) -> io::Result<bool> {
        // Who finds one of the files meanwhile waits until all of them are known and watched.
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let mut below: HashMap<PathBuf, Vec<(OsString, u64)>> = HashMap::new();
        while let Some((_, n)) = begun.missing.pop_first() {
            let path = begun.path(n);
            let directory = path.parent().expect("it is in a directory of the data set");
            if begun.watched.contains(directory) {
                self.move_in(&mut files, begun, n, &path)?;
                continue;
            }
            let entry = begun.make_empty(n, &path, &path)?;
            if let (true, Some(name)) = (entry.file.size_bytes > 0, path.file_name()) {
                below.entry(directory.to_owned()).or_default().push((name.to_owned(), entry.number));
            }
            files.insert(entry.number, Arc::new(entry));
        }
        // Only now, as making a file changes its directory, and is no opening that counts.
        for directory in &begun.directories {
            let watched = below.remove(directory).unwrap_or_default();
            self.watch.add(directory, watched.iter().map(|(name, number)| (&**name, *number)))?;
            let made = fs::File::open(directory)?;
            made.set_permissions(fs::Permissions::from_mode(MODE_OF_PROGRAMS))?;
            set_times(&made, begun.set.committed_ms)?;
        }
        let mut directories = self.directories.write().unwrap_or_else(PoisonError::into_inner);
        let own = directories.values_mut().filter(|(above, _)| &**above == name);
        own.for_each(|(_, is_complete)| *is_complete = true);
        Ok(true)
    }

    /// Gives a file of [`FoundEntry::File`] its bytes, each verified. Whoever comes in the meantime waits.
    ///
    /// # Errors
    /// No site gives them, or they cannot be written: the number for the program.
    pub(crate) fn fill(&self, number: u64) -> Result<(), i32> {
        let entry = self.files.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
        let Some(entry) = entry else { return Ok(()) };
        let mut is_full = entry.is_full.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_full {
            return Ok(());
        }
        self.write(&entry)?;
        *is_full = true;
        Ok(())
    }

    fn write(&self, entry: &Entry) -> Result<(), i32> {
        let Entry { number, key, site, file, path, .. } = entry;
        let name = format!("{key}/{}", file.path);
        let unwritten = |error: io::Error| {
            self.said.say(
                *number,
                &format!("`{name}` cannot be read: it cannot be written to {}: {error}", path.display()),
            );
            libc::EIO
        };
        let is_near = |host: &str| self.host.is(host);
        let parts = self.known.parts(key, &file.path, site.as_deref(), &is_near, self.now_ms);
        let parts = parts.map_err(|error| self.said.errno(*number, &name, false, &error))?;
        let to = open_to_fill(path, &self.filling.join(number.to_string())).map_err(unwritten)?;
        let filled = (|| {
            if let Some(whole) = parts.whole(&|whole| parts.is_whole(self.compared.as_deref(), whole)) {
                let copied = holes::copy(&whole, &to, u64::MAX, &mut || true);
                let copied = copied.and_then(|_| whole.metadata()).map(|whole| whole.len());
                let is_all = |n: u64| {
                    if n == file.size_bytes { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
                };
                return copied.and_then(is_all).map_err(unwritten);
            }
            let n_all = n_groups(file.size_bytes);
            let mut n = 0;
            let mut at = 0;
            while n < n_all {
                let end = (n + GROUPS_AT_ONCE).min(n_all);
                let bytes =
                    parts.read(n..end).map_err(|error| self.said.errno(*number, &name, false, &error))?;
                holes::write_at(&to, &bytes, at).map_err(unwritten)?;
                at += bytes.len() as u64;
                n = end;
            }
            Ok(())
        })();
        if filled.is_err() {
            // Nothing of it stays.
            let _ = to.set_len(0).and_then(|()| to.set_len(file.size_bytes));
        }
        set_times(&to, entry.changed_ms).map_err(unwritten)?;
        filled?;
        // Whoever watches sees by it that all bytes are there.
        fs::set_permissions(path, fs::Permissions::from_mode(mode_of(file))).map_err(unwritten)?;
        let full = to.metadata().map_err(unwritten)?;
        let _ = entry.full_at.set((full.ctime(), full.ctime_nsec()));
        Ok(())
    }

    /// How many files could not be read. Those count, too, that were opened before they had their bytes, by a call that did not come here:
    /// the program may have read zeros. So do those that somebody has changed by their own path, which is not the one that programs see.
    pub(crate) fn n_unread(&self) -> usize {
        let Early { numbers, has_lost } = self.watch.early();
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        for entry in numbers.iter().filter_map(|number| files.get(number)) {
            let name = format!("{}/{}", entry.key, entry.file.path);
            self.said.say(entry.number, &format!("{} was opened before its bytes were there", shown(&name)));
        }
        for entry in files.values() {
            let Some(full_at) = entry.full_at.get() else { continue };
            let found = fs::symlink_metadata(&entry.path).map(|found| (found.ctime(), found.ctime_nsec()));
            if found.ok() != Some(*full_at) {
                let name = format!("{}/{}", entry.key, entry.file.path);
                self.said.say(entry.number, &format!("{} was changed while the program ran", shown(&name)));
            }
        }
        if has_lost {
            let text =
                "files were opened faster than they could be watched, so some may have been opened too early";
            self.said.say(u64::MAX, text);
        }
        self.said.n()
    }

    /// Takes in what is seen of files that are opened, as long as this process lives.
    pub(crate) fn watch(&self) {
        while self.watch.wait() {
            // Many at once take less time. The kernel keeps as many as come in seconds.
            thread::sleep(GATHERING);
            self.watch.take();
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    // Files come into it; later nobody writes to it.
    fs::DirBuilder::new().mode(0o755).create(path)
}

/// Opens a file for its bytes. That happens by a second name in a directory that nobody watches, so that each opening that is seen is
/// another one.
fn open_to_fill(path: &Path, second: &Path) -> io::Result<fs::File> {
    fs::hard_link(path, second)?;
    let opened = fs::OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(second);
    fs::remove_file(second)?;
    opened
}

/// Sets when a file was changed.
fn set_times(file: &fs::File, changed_ms: i64) -> io::Result<()> {
    let changed_ms = changed_ms.max(1);
    let changed = Timespec { tv_sec: changed_ms / 1000, tv_nsec: (changed_ms % 1000) * 1_000_000 };
    Ok(futimens(file, &Timestamps { last_access: Timespec::default(), last_modification: changed })?)
}
