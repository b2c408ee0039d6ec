//! What the kernel asks of the file system, and the answers.

use crate::groups::{Backing, KeptGroups, OpenFile, OpenFiles, Opened, Stamp};
use crate::names::{AT, Kind, MODE_OF_PROGRAMS, NameNode, Names, ROOT, Set, mode_of};
use crate::said::SaidFiles;
use eyas_catalog::{Access, Compared, Error, File, Key, Known, OwnHost};
use fuser::{
    BackgroundSession, BackingId, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request, Session,
};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{getegid, geteuid};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// What was said once holds until the end: versions never change, and a name means one version.
const FOR_EVER: Duration = Duration::from_secs(3600 * 24 * 365);
/// Labels that the root shows.
const LABELS_MAX: u64 = 100_000;
/// Requests that are answered at a time.
const THREADS: usize = 4;
/// Files of this machine up to this size are compared as a whole when they are opened first.
const WHOLE_MAX_BYTES: u64 = 1 << 30;
/// For how long a file that was compared as a whole is opened without comparing it again.
const COMPARED_FOR: Duration = Duration::from_secs(60);
/// How many file systems may lie on one another where the kernel passes reads through.
const STACKED_MAX: u32 = 2;
/// Most bytes that the kernel asks for ahead.
const AHEAD_BYTES: u32 = 1 << 20;

/// How the file system is made.
pub struct Options {
    /// What its root is: a data set, or with `None` all of them, by their labels.
    pub key: Option<Key>,
    /// A directory in the root in which nothing is, so that another one can be mounted there.
    pub empty: Option<String>,
    /// Memory for parts of files, in bytes.
    pub memory_bytes: u64,
    /// Which files of this machine were compared as a whole lately; `None`: each command compares them anew.
    pub compared: Option<Arc<Compared>>,
    /// This machine, as stores may call it.
    pub host: OwnHost,
    /// The time in milliseconds since 1970.
    pub now_ms: fn() -> i64,
}

/// What the kernel calls an open file that it reads by itself, and one for whose parts it asks.
const THROUGH: FileHandle = FileHandle(0);
const IN_PARTS: FileHandle = FileHandle(1);

/// The names in a directory, with numbers and kinds.
type Listed = Vec<(u64, FileType, String)>;

/// The data sets of a catalog as files.
pub struct DataFiles {
    known: Arc<Known>,
    names: RwLock<Names>,
    opened: Mutex<OpenFiles>,
    /// The names of the directories that are being listed, as they were when listing began.
    listed: Mutex<HashMap<u64, Arc<Listed>>>,
    n_listed: AtomicU64,
    kept: KeptGroups,
    compared: Option<Arc<Compared>>,
    host: OwnHost,
    now_ms: fn() -> i64,
    /// Files of which it was said that they cannot be read.
    said: SaidFiles,
    owner: (u32, u32),
    /// Whether the kernel reads files of this machine by itself.
    passes_through: AtomicBool,
}

impl DataFiles {
    /// # Errors
    /// The data set that shall be the root is not there.
    pub fn new(access: Access, options: Options) -> eyas_catalog::Result<DataFiles> {
        let mut names = match &options.key {
            Some(key) => Names::of_set(&Set::of(&access.catalog, &access.caller, key, None)?),
            None => Names::of_labels(),
        };
        if let Some(name) = &options.empty {
            names.add_directory(ROOT, name, (options.now_ms)());
        }
        Ok(DataFiles {
            known: Arc::new(Known::new(access)),
            names: RwLock::new(names),
            opened: Mutex::default(),
            listed: Mutex::default(),
            n_listed: AtomicU64::new(0),
            kept: KeptGroups::new(options.memory_bytes),
            compared: options.compared,
            host: options.host,
            now_ms: options.now_ms,
            said: SaidFiles::default(),
            owner: (geteuid().as_raw(), getegid().as_raw()),
            passes_through: AtomicBool::new(false),
        })
    }

    /// What is known of a number.
    fn node<T>(&self, number: u64, of: impl FnOnce(&NameNode) -> T) -> Result<T, Errno> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(number).map(of).ok_or(Errno::ENOENT)
    }

    fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        let (uid, gid) = self.owner;
        self.node(number, |node| {
            let changed = UNIX_EPOCH + Duration::from_millis(node.changed_ms.max(0) as u64);
            let (kind, perm, size, nlink) = match &node.kind {
                Kind::Labels(_) | Kind::Site(..) | Kind::Directory(_) => {
                    (FileType::Directory, MODE_OF_PROGRAMS, 0, 2)
                }
                Kind::File(_, file, _) => (FileType::RegularFile, mode_of(file), file.size_bytes, 1),
            };
            FileAttr {
                ino: INodeNo(number),
                size,
                blocks: size.div_ceil(512),
                atime: changed,
                mtime: changed,
                ctime: changed,
                crtime: changed,
                kind,
                perm: perm as u16,
                nlink,
                uid,
                gid,
                rdev: 0,
                blksize: 1 << 16,
                flags: 0,
            }
        })
    }

    fn find(&self, parent: u64, name: &str) -> Result<u64, Errno> {
        let site = {
            let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(number) = names.child(parent, name) {
                return Ok(number);
            }
            match names.get(parent).map(|above| &above.kind) {
                Some(Kind::Labels(_)) => None,
                Some(Kind::Site(site, _)) => Some(site.clone()),
                _ => return Err(Errno::ENOENT),
            }
        };
        let Access { catalog, caller } = &self.known.access;
        if let (None, Some(named)) = (&site, name.strip_prefix(AT)) {
            catalog
                .require_site(named)
                .map_err(|error| Errno::from_i32(self.said.errno_of_site(named, &error)))?;
            return Ok(self.names.write().unwrap_or_else(PoisonError::into_inner).add_site(name, named));
        }
        let key: Key = name.parse().map_err(|_| Errno::ENOENT)?;
        let set = Set::of(catalog, caller, &key, site).map_err(|error| self.explain(ROOT, name, &error))?;
        Ok(self.names.write().unwrap_or_else(PoisonError::into_inner).add_key(parent, name, &set))
    }

    fn opened(&self, number: u64) -> Result<Arc<OpenFile>, Errno> {
        if let Some(file) = self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(number) {
            return Ok(file);
        }
        let (key, file, site) = match self.node(number, |node| node.kind.clone())? {
            Kind::File(key, file, site) => (key, file, site),
            Kind::Labels(_) | Kind::Site(..) | Kind::Directory(_) => return Err(Errno::EISDIR),
        };
        let is_near = |host: &str| self.host.is(host);
        let parts = self.known.parts(&key, &file.path, site.as_deref(), &is_near, self.now_ms);
        let parts = parts.map_err(|error| self.cannot_read(number, &error))?;
        let opened = Arc::new(OpenFile::new(number, parts));
        Ok(self.opened.lock().unwrap_or_else(PoisonError::into_inner).put(number, opened))
    }

    /// The file for the kernel itself, where it is on this machine: it is compared with its digest here, as a whole, and the kernel
    /// reads it without asking again. A large one is compared in parts, as they are read, unless it was compared lately.
    ///
    /// Whoever opens it later has it compared again where it has changed, or where the last time is long ago ([`Compared`]).
    ///
    /// # Errors
    /// A program has the file open, and the file has other bytes now.
    fn backing(&self, file: &OpenFile, reply: &ReplyOpen) -> eyas_catalog::Result<Option<Arc<BackingId>>> {
        let File { digest, size_bytes, .. } = *file.parts.file();
        let compared = self.compared.as_deref();
        let is_large = size_bytes > WHOLE_MAX_BYTES;
        let mut opened = file.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let Opened { backing, n_through, n_in_parts } = &mut *opened;
        if let Backing::Of(_, whole, stamp, compared_at) = backing
            && (Stamp::of(whole) != Some(*stamp) || compared_at.elapsed() >= COMPARED_FOR)
        {
            let now = Stamp::of(whole);
            if is_large && *n_through == 0 {
                *backing = Backing::Untried;
            } else if let Some(now) = now
                && file.parts.is_whole(compared, whole)
            {
                // Its times change, too, when its data set is removed: the bytes stay as long as it is open here.
                (*stamp, *compared_at) = (now, Instant::now());
            } else if *n_through == 0 {
                // The kernel reads one file or none under a name: another copy is read in parts.
                *backing = Backing::Never;
            } else {
                let why = "the copy that a program has open was changed meanwhile, and another one can be read when the program has \
                           closed it";
                return Err(Error::Conflict(why.into()));
            }
        }
        // The kernel does not read a file by itself that somebody still reads in parts.
        if matches!(backing, Backing::Untried)
            && *n_in_parts == 0
            && self.passes_through.load(Ordering::Relaxed)
        {
            let is_right = |whole: &fs::File| match is_large {
                true => compared.is_some_and(|compared| compared.knows(whole, digest)),
                false => file.parts.is_whole(compared, whole),
            };
            let found = file.parts.whole(&is_right).and_then(|whole| {
                let id = reply.open_backing(&whole);
                // Only root may have the kernel do so.
                self.passes_through.fetch_and(id.is_ok(), Ordering::Relaxed);
                let stamp = Stamp::of(&whole)?;
                Some(Backing::Of(Arc::new(id.ok()?), whole, stamp, Instant::now()))
            });
            // A large one may be known to be right later.
            *backing = found.unwrap_or(if is_large { Backing::Untried } else { Backing::Never });
        }
        Ok(match backing {
            Backing::Of(id, ..) => {
                *n_through += 1;
                Some(id.clone())
            }
            Backing::Untried | Backing::Never => {
                *n_in_parts += 1;
                None
            }
        })
    }

    /// The number of an error for the program. What no number can say is printed, once for each file.
    fn explain(&self, number: u64, name: &str, error: &Error) -> Errno {
        Errno::from_i32(self.said.errno(number, name, number == ROOT, error))
    }

    /// The same for a file that the program may know.
    fn cannot_read(&self, number: u64, error: &Error) -> Errno {
        let name = self.node(number, |node| match &node.kind {
            Kind::File(key, file, _) => format!("{key}/{}", file.path),
            Kind::Labels(_) | Kind::Site(..) | Kind::Directory(_) => String::new(),
        });
        self.explain(number, &name.unwrap_or_default(), error)
    }

    /// The names in a directory, with numbers and kinds.
    fn list(&self, number: u64) -> Result<Listed, Errno> {
        let mut found = self.node(number, |node| {
            vec![
                (number, FileType::Directory, ".".to_owned()),
                (node.parent, FileType::Directory, "..".to_owned()),
            ]
        })?;
        let (known, is_labels) = {
            let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
            let (children, is_labels) = match &names.get(number).ok_or(Errno::ENOENT)?.kind {
                Kind::Labels(children) => (children, true),
                Kind::Site(_, children) | Kind::Directory(children) => (children, false),
                Kind::File(..) => return Err(Errno::ENOTDIR),
            };
            let kind = |number: u64| match names.get(number).map(|node| &node.kind) {
                Some(Kind::File(..)) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            let known: Vec<_> =
                children.iter().map(|(name, &number)| (number, kind(number), name.clone())).collect();
            (known, is_labels)
        };
        if is_labels {
            let Access { catalog, caller } = &self.known.access;
            let sets =
                catalog.find(caller, None, LABELS_MAX).map_err(|error| self.explain(ROOT, "/", &error))?;
            let labels: HashSet<&str> = sets.iter().map(|set| &*set.label).collect();
            // The directory for others, and none of the names with a version that were looked up.
            let own = known.iter().filter(|(_, _, name)| !labels.contains(&**name) && !name.contains('@'));
            found.extend(own.cloned());
            let known: HashMap<&str, u64> =
                known.iter().map(|(number, _, name)| (&**name, *number)).collect();
            for (n, set) in sets.iter().enumerate() {
                // A number that no name has yet.
                let number = known.get(&*set.label).copied().unwrap_or((1 << 40) + n as u64);
                found.push((number, FileType::Directory, set.label.clone()));
            }
        } else {
            found.extend(known);
        }
        Ok(found)
    }
}

impl Filesystem for DataFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel cannot do is done without.
        let _ = config.set_max_readahead(AHEAD_BYTES);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_PARALLEL_DIROPS);
        let passes_through = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(STACKED_MAX).is_ok();
        self.passes_through.store(passes_through, Ordering::Relaxed);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = name.to_str().ok_or(Errno::ENOENT).and_then(|name| self.find(parent.0, name));
        match found.and_then(|number| self.attributes(number)) {
            Ok(attributes) => reply.entry(&FOR_EVER, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number.0) {
            Ok(attributes) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let file = match self.opened(number.0) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let file = self.opened.lock().unwrap_or_else(PoisonError::into_inner).hold(number.0, file);
        match self.backing(&file, &reply) {
            Ok(Some(backing)) => {
                file.parts.count_whole();
                reply.opened_passthrough(THROUGH, FopenFlags::empty(), &backing);
            }
            // What the kernel has of the file is right for ever.
            Ok(None) => reply.opened(IN_PARTS, FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => {
                self.opened.lock().unwrap_or_else(PoisonError::into_inner).let_go(number.0);
                reply.error(self.cannot_read(number.0, &error));
            }
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut reply = Some(reply);
        let read = self.opened(number.0).and_then(|file| {
            let mut give = |bytes: &[u8]| reply.take().into_iter().for_each(|reply| reply.data(bytes));
            file.give(&self.kept, self.compared.as_deref(), offset, u64::from(size), &mut give)
                .map_err(|error| self.cannot_read(number.0, &error))
        });
        if let (Err(error), Some(reply)) = (read, reply) {
            reply.error(error);
        }
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let file = {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            let file = opened.get(number.0);
            opened.let_go(number.0);
            file
        };
        if let Some(file) = &file {
            file.close(handle == THROUGH);
        }
        reply.ok();
        if let Some(file) = file {
            file.parts.note_reads();
        }
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(number.0) {
            Ok(all) => {
                let handle = self.n_listed.fetch_add(1, Ordering::Relaxed);
                self.listed.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(all));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        reply.ok();
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned();
        let Some(all) = listed else { return reply.error(Errno::EBADF) };
        let rest = all.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX));
        for (n, (number, kind, name)) in rest {
            if reply.add(INodeNo(*number), n as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

/// A file system that is mounted, until this is dropped.
pub struct Mount {
    session: BackgroundSession,
    said: SaidFiles,
}

impl Mount {
    /// How many files could not be read by a program that wanted to.
    pub fn n_unread(&self) -> usize {
        self.said.n()
    }

    /// Whether somebody else has taken it away.
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Takes it away from a directory, also where programs still are in it: they see errors from then on.
    pub fn end(self, directory: &Path) {
        // Where it fails, dropping the session tries in its own way.
        let _ = unmount(directory, UnmountFlags::DETACH);
    }
}

/// Mounts the file system at a directory, and answers the kernel from other threads from then on.
///
/// # Errors
/// There is no `/dev/fuse`, this user may not mount, or the directory is not there.
pub fn mount(files: DataFiles, directory: &Path) -> io::Result<Mount> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
        MountOption::FSName("eyas".into()),
        MountOption::Subtype("eyas".into()),
    ];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let said = files.said.clone();
    let session = Session::new(files, directory, &config)?.spawn()?;
    Ok(Mount { session, said })
}
