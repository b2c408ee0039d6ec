//! Which files of this machine were compared with their digest lately, so that the next command need not read them through again.
//!
//! One file of [`SLOTS`] records of the same size, which all processes of a user share without locks. A record says that a file, by the
//! number of its disk and its own, its size and its times, had the bytes of a digest at a moment of this boot. It has a sum of its own, so
//! one that two processes wrote at once counts as none; of two objects with the same slot the later one is remembered.
//!
//! A record counts for [`TRUSTED_FOR`]. Whatever writes to a file changes its times, and only the kernel sets the time of the change
//! (`ctime`), with two exceptions:
//!
//! * A program that has mapped the file into its memory may go on writing for as long as its pages have not been written to the disk, half a
//!   minute. So a file that changed within [`SETTLED_AFTER`] before it was compared is not remembered. An object that this process has made
//!   itself is remembered at once: it was hashed while it was written, and nobody else knew its name meanwhile ([`MadeFile`]).
//! * The disk itself, under the file system. That is what the time limit is for, and audits are.
//!
//! File systems of other machines may have other rules, so only those of disks are remembered ([`is_of_disk`]).

use eyas_data::Digest;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Records in the file; it has 1 MiB.
const SLOTS: u64 = 1 << 13;
/// For how long a file that was compared is not compared again.
const TRUSTED_FOR: Duration = Duration::from_secs(3600);
/// How long a file has not changed when it may be remembered.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

const RECORD_BYTES: usize = 128;
const SUM_BYTES: usize = 16;

/// The records of this user.
#[derive(Debug)]
pub struct Compared {
    records: File,
    /// The number that the kernel has given to this boot.
    boot: [u8; 16],
}

impl Compared {
    /// The records in a file, which is made where it is not there.
    ///
    /// # Errors
    /// The file cannot be written, belongs to somebody else, or can be written by others; or the kernel does not say which boot this is.
    pub fn open(path: &Path) -> io::Result<Compared> {
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let records = options.open(path)?;
        let found = records.metadata()?;
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0
        {
            return Err(io::Error::other("others than this user may write it"));
        }
        let boot = fs::read("/proc/sys/kernel/random/boot_id")?;
        let boot = Digest::of(&boot).0[..16].try_into().expect("a digest is longer");
        Ok(Compared { records, boot })
    }

    /// Whether a file was compared with this digest lately and has not changed since.
    pub fn knows(&self, file: &File, digest: Digest) -> bool {
        let mut found = [0; RECORD_BYTES];
        let Ok(of) = Of::file(file) else { return false };
        if self.records.read_exact_at(&mut found, place(digest)).is_err() {
            return false;
        }
        let Some(at_ns) = found[..8].try_into().ok().map(u64::from_le_bytes) else { return false };
        let is_same = found == self.record(digest, &of, at_ns);
        // A moment that has not come yet is another boot's, or damage.
        is_same && since_boot_ns().checked_sub(at_ns).is_some_and(|age| age < ns(TRUSTED_FOR))
    }

    /// Notes that a file has the bytes of this digest, where it was read through from `began` on.
    pub fn note(&self, file: &File, digest: Digest, began: &Began) {
        let Ok(of) = Of::file(file) else { return };
        if of != began.of || !began.is_settled || !is_of_disk(file) {
            return;
        }
        // Without it, the next command reads the file through again.
        let _ = self.records.write_all_at(&self.record(digest, &of, began.at_ns), place(digest));
    }

    /// Notes an object that this process has made, once it has its place.
    pub(crate) fn note_made(&self, file: &File, digest: Digest, made: &MadeFile) {
        let Ok(of) = Of::file(file) else { return };
        if MadeFile(of) == *made && is_of_disk(file) {
            // As above.
            let _ = self.records.write_all_at(&self.record(digest, &of, since_boot_ns()), place(digest));
        }
    }

    fn record(&self, digest: Digest, of: &Of, at_ns: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.extend(at_ns.to_le_bytes());
        bytes.extend(self.boot);
        bytes.extend(digest.as_bytes());
        for number in of.0 {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(RECORD_BYTES - SUM_BYTES, 0);
        let sum = Digest::of(&bytes);
        bytes.extend(&sum.as_bytes()[..SUM_BYTES]);
        bytes.try_into().expect("it has this size")
    }
}

/// A file that has just been written, before it gets its name.
pub(crate) struct MadeFile(Of);

impl MadeFile {
    /// # Errors
    /// The kernel does not say what the file is.
    pub(crate) fn now(file: &File) -> io::Result<MadeFile> {
        Of::file(file).map(MadeFile)
    }
}

impl PartialEq for MadeFile {
    /// A new name changes the state of a file, hence all but the time of that change is compared.
    fn eq(&self, other: &MadeFile) -> bool {
        self.0.0[..5] == other.0.0[..5]
    }
}

/// A file when somebody begins to read it through.
pub struct Began {
    of: Of,
    at_ns: u64,
    is_settled: bool,
}

impl Began {
    /// Whether it is the same file, and nobody has changed it.
    pub(crate) fn is_same(&self, other: &Began) -> bool {
        self.of == other.of
    }

    /// # Errors
    /// The kernel does not say what the file is.
    pub fn now(file: &File) -> io::Result<Began> {
        let of = Of::file(file)?;
        let [.., mtime, mtime_ns, ctime, ctime_ns] = of.0;
        let changed = [(mtime, mtime_ns), (ctime, ctime_ns)];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_settled = changed.iter().all(|(seconds, ns)| {
            let at = Duration::new(*seconds, *ns as u32);
            now.checked_sub(at).is_some_and(|age| age >= SETTLED_AFTER)
        });
        Ok(Began { of, at_ns: since_boot_ns(), is_settled })
    }
}

/// Which file it is, and its size and times: disk, number, size, seconds and nanoseconds of `mtime` and `ctime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Of([u64; 7]);

impl Of {
    fn file(file: &File) -> io::Result<Of> {
        let of = file.metadata()?;
        let times = [of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()].map(|time| time as u64);
        let [mtime, mtime_ns, ctime, ctime_ns] = times;
        Ok(Of([of.dev(), of.ino(), of.size(), mtime, mtime_ns, ctime, ctime_ns]))
    }
}

fn place(digest: Digest) -> u64 {
    let slot = u64::from(u16::from_le_bytes([digest.0[0], digest.0[1]])) % SLOTS;
    slot * RECORD_BYTES as u64
}

fn ns(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// The time since this machine was started, which nobody can set.
fn since_boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whether the file system is one of a disk of this machine that is known to keep the times of changes.
fn is_of_disk(file: &File) -> bool {
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    // The type of this number depends on the machine.
    #[allow(clippy::unnecessary_cast)]
    rustix::fs::fstatfs(file).is_ok_and(|found| [EXT, XFS, BTRFS, F2FS].contains(&(found.f_type as i64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;

    /// A file that was last changed long ago, as the kernel would have it; only the test can say so of `ctime`.
    fn settled(file: &File) -> Began {
        Began { is_settled: true, ..Began::now(file).unwrap() }
    }

    #[test]
    fn a_file_is_known_until_it_changes() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (path, records) = (dir.path().join("x"), dir.path().join("a/b/records"));
        fs::write(&path, "text").unwrap();
        let (file, digest) = (File::open(&path).unwrap(), Digest::of(b"text"));
        let compared = Compared::open(&records).unwrap();
        assert!(!compared.knows(&file, digest));
        compared.note(&file, digest, &Began::now(&file).unwrap());
        assert!(!compared.knows(&file, digest), "it changed a moment ago");
        compared.note(&file, digest, &settled(&file));
        if !is_of_disk(&file) {
            assert!(!compared.knows(&file, digest), "this file system may have other rules");
            return;
        }
        assert!(compared.knows(&file, digest));
        assert!(
            Compared::open(&records).unwrap().knows(&File::open(&path).unwrap(), digest),
            "other processes"
        );
        assert!(!compared.knows(&file, Digest::of(b"other")));
        // Whoever changes a byte and sets the time back is found out by the time of the change.
        let times = FileTimes::new().set_modified(file.metadata().unwrap().modified().unwrap());
        let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        writer.write_all_at(b"T", 0).unwrap();
        writer.set_times(times).unwrap();
        assert!(!compared.knows(&file, digest));
        // A file that changes while it is compared is not remembered.
        let began = settled(&file);
        std::thread::sleep(Duration::from_millis(20));
        writer.write_all_at(b"t", 0).unwrap();
        compared.note(&file, digest, &began);
        assert!(!compared.knows(&file, digest));
        // Nor for ever, nor beyond this boot, nor what is damaged.
        let began = settled(&file);
        let old = Began { at_ns: began.at_ns.saturating_sub(ns(TRUSTED_FOR)), ..settled(&file) };
        compared.note(&file, digest, &old);
        assert!(!compared.knows(&file, digest));
        compared.note(&file, digest, &Began { at_ns: began.at_ns + ns(TRUSTED_FOR), ..settled(&file) });
        assert!(!compared.knows(&file, digest));
        compared.note(&file, digest, &began);
        assert!(compared.knows(&file, digest));
        assert!(!Compared { boot: [0; 16], ..Compared::open(&records).unwrap() }.knows(&file, digest));
        compared.records.write_all_at(b"x", place(digest) + 70).unwrap();
        assert!(!compared.knows(&file, digest));
    }

    /// An object counts from the moment that it has its name, and no longer than until it changes.
    #[test]
    fn what_was_made_here_is_known_at_once() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let compared = Compared::open(&dir.path().join("records")).unwrap();
        let (part, whole) = (dir.path().join("part"), dir.path().join("whole"));
        fs::write(&part, "text").unwrap();
        let (made, digest) = (MadeFile::now(&File::open(&part).unwrap()).unwrap(), Digest::of(b"text"));
        std::thread::sleep(Duration::from_millis(20));
        fs::rename(&part, &whole).unwrap();
        let file = File::open(&whole).unwrap();
        if !is_of_disk(&file) {
            return;
        }
        compared.note_made(&file, digest, &made);
        assert!(compared.knows(&file, digest));
        std::thread::sleep(Duration::from_millis(20));
        fs::OpenOptions::new().write(true).open(&whole).unwrap().write_all_at(b"T", 0).unwrap();
        assert!(!compared.knows(&file, digest), "its time of change is another one");
        compared.note_made(&file, digest, &made);
        assert!(!compared.knows(&file, digest), "it was written to after it had been made");
    }

    #[test]
    fn records_that_others_may_write_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records");
        drop(Compared::open(&path).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Compared::open(&path).is_err());
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(Compared::open(&path).is_err());
    }
}
