//! Whether a program wrote to an input that it shares with the cache.
//!
//! Inputs are hard links to cached objects. A program that may write to them (a program of root, or one that
//! changes the mode) can also set the time stamps back, so a later look at the file does not show the write;
//! only reading the whole file would. Instead, the kernel is asked to report (inotify) each write and
//! truncation, by whatever name the file was opened. It also reports each closing of a descriptor that could
//! write, which is how writing through a memory mapping shows. Everything that a process did has been
//! reported when the process has been waited for.
//!
//! Making and removing links is not reported, so there are no reports if nothing was written. A task costs
//! one system call for each input and one at its end.
//!
//! Not here: what follows from a write ([`eyas_data::Store::condemn`], the core). Why not copies, and not the change
//! time of the file: `docs/decisions/0027-writes-to-inputs.md`.

use eyas_terms::Digest;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Objects that no attempt uses now and that stay watched, so that a link which a program kept elsewhere is
/// not forgotten at once.
const N_IDLE_MAX: usize = 256;
const BUFFER_BYTES: usize = 16 << 10;
const EVENT_BYTES: usize = size_of::<libc::inotify_event>();

/// One watched file. It is not the object: a fresh copy of the object is another file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Watched(i32);

/// What the kernel has reported of a file since an attempt began to use it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Written {
    No,
    /// The file was open for writing, but no write was seen; or some of the kernel's reports were lost.
    Perhaps,
    Yes,
}

struct Entry {
    digest: Digest,
    n_users: u32,
    written: Written,
}

pub struct Watch {
    fd: OwnedFd,
    entries: HashMap<Watched, Entry>,
    idle: VecDeque<Watched>,
    buffer: Box<[u8]>,
}

impl Watch {
    /// Errors: the system allows this user no more inotify instances (`fs.inotify.max_user_instances`), or
    /// does not have inotify.
    pub fn new() -> io::Result<Watch> {
        // SAFETY: no memory is involved; the descriptor is owned by nobody else.
        let fd = unsafe {
            match libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) {
                fd if fd >= 0 => OwnedFd::from_raw_fd(fd),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Ok(Watch { fd, entries: HashMap::new(), idle: VecDeque::new(), buffer })
    }

    /// An attempt is about to link the file `path`, the cached copy of `digest`.
    pub fn begin(&mut self, digest: Digest, path: &Path) -> io::Result<Watched> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mask = libc::IN_MODIFY | libc::IN_CLOSE_WRITE;
        // SAFETY: `path` is NUL-terminated.
        let watched = match unsafe { libc::inotify_add_watch(self.fd.as_raw_fd(), path.as_ptr(), mask) } {
            number if number >= 0 => Watched(number),
            _ => return Err(io::Error::last_os_error()),
        };
        let entry = self.entries.entry(watched).or_insert(Entry { digest, n_users: 0, written: Written::No });
        entry.n_users += 1;
        Ok(watched)
    }

    /// An attempt that had begun to use the file has ended.
    pub fn end(&mut self, watched: Watched) {
        let Some(entry) = self.entries.get_mut(&watched) else { return };
        entry.n_users -= 1;
        if entry.n_users > 0 {
            return;
        }
        self.idle.push_back(watched);
        while self.idle.len() > N_IDLE_MAX {
            let Some(oldest) = self.idle.pop_front() else { break };
            let in_use = self.entries.get(&oldest).is_some_and(|entry| entry.n_users > 0);
            if !in_use && !self.idle.contains(&oldest) && self.entries.remove(&oldest).is_some() {
                // SAFETY: no memory is involved. A file that is gone took its watch along.
                unsafe { libc::inotify_rm_watch(self.fd.as_raw_fd(), oldest.0) };
            }
        }
    }

    /// Whether the file was written to since it has been watched.
    pub fn written(&self, watched: Watched) -> Written {
        self.entries.get(&watched).map_or(Written::No, |entry| entry.written)
    }

    /// The file was read through and found whole, so earlier reports are settled.
    pub fn settle(&mut self, watched: Watched) {
        if let Some(entry) = self.entries.get_mut(&watched)
            && entry.written == Written::Perhaps
        {
            entry.written = Written::No;
        }
    }

    /// Takes in the kernel's reports. Gives the objects whose state changed.
    pub fn read(&mut self) -> Vec<(Digest, Written)> {
        let mut news = vec![];
        if self.entries.is_empty() {
            return news;
        }
        loop {
            // SAFETY: the kernel writes at most the given number of bytes into the buffer.
            let n_bytes =
                unsafe { libc::read(self.fd.as_raw_fd(), self.buffer.as_mut_ptr().cast(), BUFFER_BYTES) };
            let Ok(n_bytes) = usize::try_from(n_bytes) else { return news };
            let mut at = 0;
            while at + EVENT_BYTES <= n_bytes {
                // SAFETY: an event starts at each place that the lengths lead to, and lies inside what was read.
                let event: libc::inotify_event =
                    unsafe { self.buffer.as_ptr().add(at).cast::<libc::inotify_event>().read_unaligned() };
                at += EVENT_BYTES + event.len as usize;
                self.take(&event, &mut news);
            }
            if n_bytes == 0 {
                return news;
            }
        }
    }

    fn take(&mut self, event: &libc::inotify_event, news: &mut Vec<(Digest, Written)>) {
        if event.mask & libc::IN_Q_OVERFLOW != 0 {
            for entry in self.entries.values_mut() {
                note(entry, Written::Perhaps, news);
            }
            return;
        }
        let Some(entry) = self.entries.get_mut(&Watched(event.wd)) else { return };
        if event.mask & libc::IN_MODIFY != 0 {
            note(entry, Written::Yes, news);
        }
        if event.mask & libc::IN_CLOSE_WRITE != 0 {
            note(entry, Written::Perhaps, news);
        }
        if event.mask & libc::IN_IGNORED != 0 && entry.n_users == 0 {
            // The file is gone, and the number of its watch will not be used again.
            self.entries.remove(&Watched(event.wd));
        }
    }
}

/// A second doubt is reported again, because the first one may be settled elsewhere by now. A file that was
/// written to stays so.
fn note(entry: &mut Entry, written: Written, news: &mut Vec<(Digest, Written)>) {
    if entry.written != Written::Yes {
        entry.written = written;
        news.push((entry.digest, written));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::io::Write;
    use std::os::fd::AsRawFd;

    struct Scene {
        dir: tempfile::TempDir,
        watch: Watch,
    }

    const DIGEST: Digest = Digest([7; 32]);

    impl Scene {
        fn new() -> Scene {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("object"), vec![1; 10_000]).unwrap();
            Scene { dir, watch: Watch::new().unwrap() }
        }

        fn object(&self) -> std::path::PathBuf {
            self.dir.path().join("object")
        }

        /// What `program` does to another name of the object, which then gets its old time back.
        fn after(&mut self, program: impl FnOnce(&Path)) -> Written {
            let link = self.dir.path().join("link");
            let watched = self.watch.begin(DIGEST, &self.object()).unwrap();
            let before = fs::metadata(self.object()).unwrap();
            let (accessed, modified) = (before.accessed().unwrap(), before.modified().unwrap());
            fs::hard_link(self.object(), &link).unwrap();
            program(&link);
            // Both, as `touch -r` does: the kernel calls the setting of the one alone a modification. Opened for reading,
            // as setting times needs no more for its owner.
            let times = fs::FileTimes::new().set_accessed(accessed).set_modified(modified);
            File::open(self.object()).unwrap().set_times(times).unwrap();
            fs::remove_file(&link).unwrap();
            let news = self.watch.read();
            let written = self.watch.written(watched);
            self.watch.end(watched);
            assert_eq!(news.last(), (written > Written::No).then_some(&(DIGEST, written)));
            written
        }
    }

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn every_way_to_write_is_reported_and_nothing_else() {
        let reads = |path: &Path| drop(fs::read(path).unwrap());
        assert_eq!(Scene::new().after(reads), Written::No);
        let renames = |path: &Path| {
            fs::rename(path, path.with_extension("x")).unwrap();
            fs::rename(path.with_extension("x"), path).unwrap();
        };
        assert_eq!(Scene::new().after(renames), Written::No);
        assert_eq!(Scene::new().after(|path| open(path).write_all(b"x").unwrap()), Written::Yes);
        assert_eq!(Scene::new().after(|path| open(path).set_len(5).unwrap()), Written::Yes);
        assert_eq!(Scene::new().after(|path| drop(open(path))), Written::Perhaps);
        let truncates = |path: &Path| {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: the path is NUL-terminated.
            assert_eq!(unsafe { libc::truncate(path.as_ptr(), 7) }, 0);
        };
        assert_eq!(Scene::new().after(truncates), Written::Yes);
        let maps = |path: &Path| {
            let file = open(path);
            // SAFETY: a fresh shared mapping of a file that is long enough, used and removed here.
            unsafe {
                let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
                let at = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, file.as_raw_fd(), 0);
                assert_ne!(at, libc::MAP_FAILED);
                drop(file);
                at.cast::<u8>().write_volatile(99);
                libc::munmap(at, 4096);
            }
        };
        assert_eq!(Scene::new().after(maps), Written::Perhaps);
    }

    #[test]
    fn a_write_is_remembered_for_all_users_of_the_file_and_a_fresh_copy_is_clean() {
        let mut scene = Scene::new();
        let object = scene.object();
        let first = scene.watch.begin(DIGEST, &object).unwrap();
        let second = scene.watch.begin(DIGEST, &object).unwrap();
        assert_eq!(first, second);
        open(&object).write_all(b"x").unwrap();
        assert_eq!(scene.watch.read(), [(DIGEST, Written::Yes)]);
        scene.watch.end(first);
        assert_eq!(scene.watch.written(second), Written::Yes);
        scene.watch.settle(second);
        assert_eq!(scene.watch.written(second), Written::Yes, "what was written was written");
        fs::remove_file(&object).unwrap();
        fs::write(&object, "fresh").unwrap();
        let fresh = scene.watch.begin(DIGEST, &object).unwrap();
        assert_ne!(fresh, second);
        scene.watch.read();
        assert_eq!(scene.watch.written(fresh), Written::No);
    }

    #[test]
    fn few_watches_are_kept_for_unused_files() {
        let mut scene = Scene::new();
        for i in 0..2 * N_IDLE_MAX {
            let path = scene.dir.path().join(i.to_string());
            fs::write(&path, "x").unwrap();
            let watched = scene.watch.begin(DIGEST, &path).unwrap();
            scene.watch.end(watched);
            scene.watch.read();
        }
        assert!(scene.watch.entries.len() <= N_IDLE_MAX + 1, "{}", scene.watch.entries.len());
        assert!(scene.watch.idle.len() <= N_IDLE_MAX);
        // One that is used again and again stays, however often it was put down.
        let path = scene.dir.path().join("0");
        for _ in 0..2 * N_IDLE_MAX {
            let watched = scene.watch.begin(DIGEST, &path).unwrap();
            scene.watch.end(watched);
        }
        assert!(scene.watch.idle.len() <= N_IDLE_MAX);
        let used = scene.watch.begin(DIGEST, &path).unwrap();
        open(&path).write_all(b"x").unwrap();
        scene.watch.read();
        assert_eq!(scene.watch.written(used), Written::Yes);
    }
}
