//! The cache directory keeps its promises: budget, digest, whole objects only, one owner.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use eyas_data::{Digest, Error, ErrorKind, LinkAbility, Status, Store, Stored, Usage};

const MIB: u64 = 1 << 20;

fn open(dir: &Path) -> Store {
    Store::open(dir, MIB).expect("the cache opens")
}

fn put(store: &Store, bytes: &[u8]) -> Result<Stored, Error> {
    let mut incoming = store.begin(store.reserve(bytes.len() as u64)?);
    incoming.append(bytes)?;
    incoming.finish(Some(Digest::of(bytes)))
}

fn n_incoming(dir: &Path) -> usize {
    fs::read_dir(dir.join("cache/incoming")).expect("incoming is there").count()
}

/// Everything that must hold between calls, for a store that nothing is arriving at.
fn sanity_check(store: &Store, dir: &Path) {
    assert_eq!(n_incoming(dir), 0, "nothing is left in incoming");
    assert_eq!(store.usage().reserved_bytes, 0, "all reservations ended");
    let held = store.scan();
    assert_eq!(store.usage().held_bytes, held.iter().map(|(_, size)| size).sum::<u64>());
    assert!(store.usage().held_bytes <= store.budget_bytes());
    let mut n_files = 0;
    for shelf in fs::read_dir(dir.join("cache/objects")).expect("objects is there") {
        n_files += fs::read_dir(shelf.expect("entry").path()).expect("shelf").count();
    }
    assert_eq!(n_files, held.len(), "the directory and the store agree");
    for (digest, size) in held {
        let meta = fs::metadata(store.path_of(&digest)).expect("a held object has a file");
        assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (size, 0o644));
        store.verify(&digest).expect("a held object has its digest");
    }
}

/// Writes through a name of an object, as a program could that runs as root.
fn scribble(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("chmod");
    let mut file = File::options().write(true).open(path).expect("open");
    file.seek(SeekFrom::Start(1)).expect("seek");
    file.write_all(b"!").expect("write");
}

#[test]
fn put_export_remove() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let stored = put(&store, b"some bytes").expect("stored");
    assert_eq!((stored.size, stored.already_held), (10, false));
    assert!(put(&store, b"some bytes").expect("stored again").already_held);
    sanity_check(&store, dir.path());

    assert_eq!(store.links_to(dir.path()).expect("tried"), LinkAbility::HardLink);
    let name = dir.path().join("input with a space");
    assert_eq!(store.export(&stored.digest, &name).expect("exported"), LinkAbility::HardLink);
    assert_eq!(fs::read(&name).expect("read"), b"some bytes");
    assert_eq!(store.export(&stored.digest, &name).expect_err("the name is taken").kind, ErrorKind::Io);

    assert_eq!(store.remove(&stored.digest).expect("removed"), 10);
    for error in [
        store.remove(&stored.digest).expect_err("gone"),
        store.export(&stored.digest, &dir.path().join("x")).expect_err("gone"),
        store.open_object(&stored.digest).map(drop).expect_err("gone"),
        store.verify(&stored.digest).expect_err("gone"),
    ] {
        assert_eq!(error.kind, ErrorKind::NotHeld);
    }
    assert_eq!(fs::read(&name).expect("a link outlives eviction"), b"some bytes");
    sanity_check(&store, dir.path());
}

#[test]
fn an_object_of_no_bytes() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = Store::open(dir.path(), 0).expect("a budget of nothing");
    let stored = put(&store, b"").expect("stored");
    assert_eq!((stored.digest, stored.size), (Digest::of(b""), 0));
    assert_eq!(store.open_object(&stored.digest).expect("held").1, 0);
    sanity_check(&store, dir.path());
    drop(store);
    assert_eq!(open(dir.path()).scan(), [(Digest::of(b""), 0)]);
}

#[test]
fn a_wrong_digest_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let mut incoming = store.begin(store.reserve(5).expect("free"));
    incoming.append(b"wrong").expect("written");
    let error = incoming.finish(Some(Digest::of(b"right"))).expect_err("refused");
    let (expected, found) = (Digest::of(b"right"), Digest::of(b"wrong"));
    assert_eq!(error.kind, ErrorKind::DigestMismatch { expected, found });
    assert_eq!(error.status(), Status::Temporary);
    assert!(
        error.to_string().contains(&expected.to_string()) && error.to_string().contains(&found.to_string())
    );
    assert_eq!(store.scan(), []);
    sanity_check(&store, dir.path());
}

#[test]
fn more_than_was_reserved_is_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let mut incoming = store.begin(store.reserve(4).expect("free"));
    incoming.append(b"four").expect("fits");
    let error = incoming.append(b"5").expect_err("refused");
    assert_eq!(error.kind, ErrorKind::OverBudget { asked_bytes: 1, free_bytes: 0 });
    incoming.grow(1).expect("the budget has room");
    incoming.append(b"5").expect("fits now");
    assert_eq!(incoming.finish(None).expect("stored").digest, Digest::of(b"four5"));

    let error = store.reserve(MIB).expect_err("five bytes are held");
    assert_eq!(error.kind, ErrorKind::OverBudget { asked_bytes: MIB, free_bytes: MIB - 5 });
    drop(store.reserve(MIB - 5).expect("exactly the rest"));
    sanity_check(&store, dir.path());
}

#[test]
fn one_owner_of_a_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let error = Store::open(dir.path(), MIB).expect_err("in use");
    assert_eq!((error.kind.clone(), error.status()), (ErrorKind::InUse, Status::Permanent));
    let text = error.to_string();
    assert!(text.contains("is used by another executor (process "), "{text}");
    // What is still arriving keeps the directory too: its bytes are in it.
    let incoming = store.begin(store.reserve(1).expect("free"));
    drop(store);
    assert_eq!(Store::open(dir.path(), MIB).expect_err("in use").kind, ErrorKind::InUse);
    // An owner that is about to be gone is waited for, as a killed one may take a moment to go.
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(incoming);
    });
    open(dir.path());
    leaving.join().expect("it only dropped");
}

#[test]
fn a_restart_finds_what_is_whole_and_removes_the_rest() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let whole = put(&store, b"whole").expect("stored").digest;
    let written_to = put(&store, b"written to").expect("stored").digest;
    let cut = put(&store, b"cut short by a power failure").expect("stored").digest;
    let (path, cut_path) = (store.path_of(&written_to), store.path_of(&cut));
    drop(store);

    scribble(&path);
    File::options().write(true).open(&cut_path).expect("open").set_len(3).expect("cut");
    let objects = dir.path().join("cache/objects");
    fs::create_dir_all(objects.join("00")).expect("mkdir");
    fs::write(objects.join("00/notes.txt"), "x").expect("write");
    fs::create_dir(objects.join("00/folder")).expect("mkdir");
    fs::write(objects.join("00").join(Digest([7; 32]).to_string()), "x").expect("write");
    fs::write(dir.path().join("cache/incoming/17"), "half an obj").expect("write");

    let store = open(dir.path());
    // What was changed is found when it is hashed, before its first use.
    for changed in [written_to, cut] {
        assert_eq!(store.open_object(&changed).expect_err("changed").kind, ErrorKind::Corrupt);
        store.remove(&changed).expect("removed");
    }
    assert_eq!(store.scan(), [(whole, 5)]);
    // No digest as a name, a directory, and an object in the wrong directory.
    assert_eq!(fs::read_dir(objects.join("00")).expect("there").count(), 0);
    sanity_check(&store, dir.path());
}

#[test]
fn a_lowered_budget_grants_nothing_until_it_fits() {
    let dir = tempfile::tempdir().expect("tempdir");
    let digest = put(&open(dir.path()), b"ten bytes.").expect("stored").digest;
    let store = Store::open(dir.path(), 4).expect("opens");
    assert_eq!(
        store.reserve(1).expect_err("full").kind,
        ErrorKind::OverBudget { asked_bytes: 1, free_bytes: 0 }
    );
    store.remove(&digest).expect("removed");
    store.reserve(4).expect("fits now");
}

#[test]
fn a_write_through_a_link_is_noticed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let digest = put(&store, b"precious").expect("stored").digest;
    let link = dir.path().join("input");
    store.export(&digest, &link).expect("exported");
    assert!(!store.modified(&digest).expect("held"));

    scribble(&link);
    assert!(store.modified(&digest).expect("held"));
    assert_eq!(store.open_object(&digest).map(drop).expect_err("changed").kind, ErrorKind::Corrupt);
    let error = store.export(&digest, &dir.path().join("other")).expect_err("changed");
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(matches!(store.verify(&digest).expect_err("changed").kind, ErrorKind::DigestMismatch { .. }));

    // The same bytes, arriving anew, take the place of the spoilt copy.
    let stored = put(&store, b"precious").expect("stored");
    assert!(!stored.already_held);
    assert!(!store.modified(&digest).expect("held"));
    sanity_check(&store, dir.path());
}

#[test]
fn an_object_whose_file_somebody_deleted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let digest = put(&store, b"deleted").expect("stored").digest;
    fs::remove_file(store.path_of(&digest)).expect("removed");
    assert!(store.modified(&digest).expect("held"));
    assert_eq!(store.open_object(&digest).map(drop).expect_err("gone").kind, ErrorKind::Corrupt);
    assert_eq!(store.export(&digest, &dir.path().join("x")).expect_err("gone").kind, ErrorKind::Corrupt);
    assert_eq!(store.remove(&digest).expect("its bytes come back"), 7);
    sanity_check(&store, dir.path());
}

#[test]
fn readers_that_meet_an_eviction_are_told_not_held() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let digest = Digest::of(b"comes and goes");
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|n| {
                let (store, name) = (&store, dir.path().join(format!("input {n}")));
                scope.spawn(move || {
                    for _ in 0..500 {
                        let opened = store.open_object(&digest).map(drop);
                        let exported =
                            store.export(&digest, &name).map(|_| fs::remove_file(&name).expect("ours"));
                        for error in [opened.err(), exported.err()].into_iter().flatten() {
                            assert_eq!(error.kind, ErrorKind::NotHeld, "{error}");
                        }
                    }
                })
            })
            .collect();
        while readers.iter().any(|reader| !reader.is_finished()) {
            put(&store, b"comes and goes").expect("stored");
            store.remove(&digest).expect("removed");
        }
    });
    sanity_check(&store, dir.path());
}

#[test]
fn adopting_an_output() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let output = dir.path().join("out");
    fs::write(&output, "result").expect("write");
    let inode = fs::metadata(&output).expect("there").ino();
    let stored = store.adopt(&output, store.reserve(6).expect("free")).expect("adopted");
    assert_eq!((stored.digest, stored.size), (Digest::of(b"result"), 6));
    assert!(!output.exists());
    let kept = fs::metadata(store.path_of(&stored.digest)).expect("there").ino();
    assert_eq!(kept, inode, "renamed, not copied");
    sanity_check(&store, dir.path());

    fs::write(&output, "larger than said").expect("write");
    let error = store.adopt(&output, store.reserve(6).expect("free")).expect_err("refused");
    assert!(matches!(error.kind, ErrorKind::OverBudget { asked_bytes: 16, free_bytes: 6 }));
    assert!(output.exists(), "a refused output stays where it is");

    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).expect("symlink");
    assert_eq!(
        store.adopt(&dir.path().join("link"), store.reserve(9).expect("free")).expect_err("no").kind,
        ErrorKind::Io
    );
    assert_eq!(store.adopt(dir.path(), store.reserve(9).expect("free")).expect_err("no").kind, ErrorKind::Io);
    sanity_check(&store, dir.path());
}

#[test]
fn an_output_that_is_a_link_to_an_input_is_copied() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let digest = put(&store, b"input").expect("stored").digest;
    let (input, output) = (dir.path().join("in"), dir.path().join("out"));
    store.export(&digest, &input).expect("exported");
    fs::hard_link(&input, &output).expect("what `ln in out` does");
    let stored = store.adopt(&output, store.reserve(5).expect("free")).expect("adopted");
    assert_eq!((stored.digest, stored.already_held), (digest, true));
    assert!(!output.exists());
    assert!(!store.modified(&digest).expect("held"));
    sanity_check(&store, dir.path());

    // The other name of a new output may be written to later; the object must not be.
    fs::write(&output, "two names").expect("write");
    fs::hard_link(&output, dir.path().join("other")).expect("link");
    let stored = store.adopt(&output, store.reserve(9).expect("free")).expect("adopted");
    fs::write(dir.path().join("other"), "overwritten").expect("write");
    store.verify(&stored.digest).expect("untouched");
}

#[test]
fn filling_from_a_file() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = Store::open(dir.path(), 16 * MIB).expect("the cache opens");
    for size in [0, 1, 70_000, 600_000, 9_000_001] {
        let bytes: Vec<u8> = (0..size).map(|i: u32| ((i * 31) >> 3) as u8).collect();
        let path = dir.path().join("home");
        fs::write(&path, &bytes).expect("write");
        let mut incoming = store.begin(store.reserve(bytes.len() as u64).expect("free"));
        let n = incoming.fill_from_file(&File::open(&path).expect("open")).expect("filled");
        assert_eq!(n, bytes.len() as u64);
        assert_eq!(incoming.finish(None).expect("stored").digest, Digest::of(&bytes));
    }
    let mut incoming = store.begin(store.reserve(10).expect("free"));
    let error =
        incoming.fill_from_file(&File::open(dir.path().join("home")).expect("open")).expect_err("too large");
    assert!(matches!(error.kind, ErrorKind::OverBudget { .. }));
    drop(incoming);
    sanity_check(&store, dir.path());
}

/// Small deterministic generator: the test must not depend on anything but its own numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn the_budget_holds_under_concurrent_puts_and_removes() {
    const BUDGET_BYTES: u64 = 40_000;
    let dir = tempfile::tempdir().expect("tempdir");
    let store = Store::open(dir.path(), BUDGET_BYTES).expect("opens");
    let done = AtomicBool::new(false);
    let n_refused = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let Usage { held_bytes, reserved_bytes } = store.usage();
                assert!(held_bytes + reserved_bytes <= BUDGET_BYTES, "{held_bytes} + {reserved_bytes}");
            }
        });
        let workers: Vec<_> = (1..=4u64)
            .map(|seed| {
                let store = &store;
                scope.spawn(move || {
                    let mut rng = Rng(seed * 0x9e37_79b9);
                    let mut n_refused = 0;
                    for _ in 0..1500 {
                        // 32 contents for 4 threads: they meet at the same digests all the time.
                        let content = rng.below(32);
                        let bytes = vec![content as u8; 100 * content as usize];
                        match put(store, &bytes) {
                            Ok(stored) => assert_eq!(stored.size, bytes.len() as u64),
                            Err(error) => {
                                assert!(matches!(error.kind, ErrorKind::OverBudget { .. }), "{error}");
                                n_refused += 1;
                                let all = store.scan();
                                if !all.is_empty() {
                                    let (digest, _) = all[rng.below(all.len() as u64) as usize];
                                    // Another thread may have been faster.
                                    let _ = store.remove(&digest);
                                }
                            }
                        }
                    }
                    n_refused
                })
            })
            .collect();
        let n_refused: u32 = workers.into_iter().map(|worker| worker.join().expect("no panic")).sum();
        done.store(true, Ordering::Relaxed);
        watcher.join().expect("the budget was never exceeded");
        n_refused
    });
    assert!(n_refused > 0, "the budget was never reached, so nothing was tested");
    sanity_check(&store, dir.path());
}

/// A file system of 1 MiB, if we may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("tempdir");
        let target = std::ffi::CString::new(dir.path().to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: all strings are NUL-terminated and live through the call.
        let mounted = unsafe {
            libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=1m".as_ptr().cast())
        };
        if mounted != 0 {
            eprintln!("not tested: mounting a small file system needs root");
            return None;
        }
        Some(SmallDisk(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let target = std::ffi::CString::new(self.0.path().to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: the string is NUL-terminated and lives through the call.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_is_told_apart_and_leaves_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.path();
    let store = Store::open(path, 8 * MIB).expect("opens");
    let kept = put(&store, &[1; 100_000]).expect("fits").digest;

    let mut incoming = store.begin(store.reserve(4 * MIB).expect("within the budget"));
    let block = vec![2; 300_000];
    let error = (0..10).find_map(|_| incoming.append(&block).err()).expect("the disk is full");
    assert_eq!((error.kind.clone(), error.status()), (ErrorKind::NoSpace, Status::Temporary));
    assert!(incoming.append(b"x").is_err() && incoming.finish(None).is_err(), "a failed object stays failed");
    sanity_check(&store, path);

    // Large enough to be written by a second thread.
    let outside = tempfile::tempdir().expect("tempdir");
    let home = outside.path().join("home");
    fs::write(&home, vec![5; 6 << 20]).expect("write");
    let mut incoming = store.begin(store.reserve(6 * MIB).expect("free"));
    let error = incoming.fill_from_file(&File::open(&home).expect("open")).expect_err("full");
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(incoming.finish(None).is_err());
    sanity_check(&store, path);

    let output = outside.path().join("out");
    fs::write(&output, vec![3; 2 << 20]).expect("write");
    let error = store.adopt(&output, store.reserve(2 * MIB).expect("free")).expect_err("full");
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(output.exists(), "an output that could not be adopted stays");
    sanity_check(&store, path);
    store.verify(&kept).expect("what was there is whole");
    put(&store, &[4; 200_000]).expect("there is room again");
}

#[test]
fn across_file_systems_objects_are_copied() {
    let Some(disk) = SmallDisk::mount() else { return };
    let other = disk.0.path();
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    assert_ne!(store.links_to(other).expect("tried"), LinkAbility::HardLink);
    assert_eq!(n_incoming(dir.path()), 0);
    assert_eq!(fs::read_dir(other).expect("readable").count(), 0);

    let digest = put(&store, b"travels").expect("stored").digest;
    let copy = other.join("in");
    assert_eq!(store.export(&digest, &copy).expect("exported"), LinkAbility::Copy);
    assert_eq!(fs::read(&copy).expect("read"), b"travels");
    assert_eq!(fs::metadata(&copy).expect("there").permissions().mode() & 0o777, 0o644);

    fs::write(other.join("out"), "result").expect("write");
    let stored = store.adopt(&other.join("out"), store.reserve(6).expect("free")).expect("adopted");
    assert_eq!(stored.digest, Digest::of(b"result"));
    assert!(!other.join("out").exists());
    sanity_check(&store, dir.path());
}

#[test]
fn what_was_written_to_is_not_handed_out_whatever_its_time_says() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let written = put(&store, b"written").expect("stored").digest;
    let doubted = put(&store, b"doubted").expect("stored").digest;
    store.condemn(&written);
    assert_eq!(store.open_object(&written).expect_err("condemned").kind, ErrorKind::Corrupt);
    assert!(store.modified(&written).expect("held"));
    assert!(store.verify(&written).is_ok(), "its bytes were set back");
    assert_eq!(store.open_object(&written).expect_err("still").kind, ErrorKind::Corrupt);
    // The same bytes once more take its place.
    assert!(!put(&store, b"written").expect("stored").already_held);
    store.open_object(&written).expect("fresh");

    store.doubt(&doubted);
    assert!(store.is_doubted(&doubted));
    store.open_object(&doubted).expect("hashed, and whole");
    assert!(!store.is_doubted(&doubted));
    let path = store.path_of(&doubted);
    let times = fs::metadata(&path).expect("there").modified().expect("a time");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
    fs::write(&path, b"DOUBTED").expect("write");
    fs::File::options().write(true).open(&path).expect("open").set_modified(times).expect("time");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
    assert!(!store.modified(&doubted).expect("held"), "its time does not show it");
    store.doubt(&doubted);
    assert_eq!(store.open_object(&doubted).expect_err("other bytes").kind, ErrorKind::Corrupt);
    store.remove(&doubted).expect("removed");
    sanity_check(&store, dir.path());
}

#[test]
fn an_object_shows_the_time_and_the_mode_that_it_is_asked_for() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let digest = put(&store, b"shown").expect("stored").digest;
    let seen = || {
        let meta = fs::metadata(store.path_of(&digest)).expect("there");
        (meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), meta.permissions().mode() & 0o777)
    };
    assert_eq!(seen(), (eyas_folder::UNKNOWN_TIME_NS, 0o644));
    assert!(!store.show(&digest, Some(-5), 0o755, false).expect("held"), "others see it as it is");
    assert_eq!(seen(), (eyas_folder::UNKNOWN_TIME_NS, 0o644));
    assert!(store.show(&digest, Some(-5), 0o755, true).expect("held"));
    assert_eq!(seen(), (-5, 0o755));
    assert!(store.show(&digest, Some(-5), 0o755, false).expect("held"));
    assert!(store.show(&digest, None, 0o755, false).expect("held"), "whatever its time is");
    assert!(!store.show(&digest, Some(-5), 0o644, false).expect("held"), "another mode");
    // What is shown is no write, and a write shows.
    store.open_object(&digest).expect("whole");
    assert!(!store.modified(&digest).expect("held"));
    scribble(&store.path_of(&digest));
    assert!(store.modified(&digest).expect("held"));
    assert!(!store.show(&digest, Some(7), 0o644, true).expect("held"), "what was written to is not hidden");
    assert!(store.modified(&digest).expect("held"));
}

#[test]
fn times_in_a_directory_are_kept_as_long_as_the_object() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let digest = put(&store, b"a directory").expect("stored").digest;
    assert!(store.times_of(&digest).is_empty());
    store.keep_times(&digest, &[5, i64::MIN, -1]).expect("kept");
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.times_of(&digest), [5, i64::MIN, -1]);
    store.remove(&digest).expect("removed");
    assert!(store.times_of(&digest).is_empty());
    assert_eq!(fs::read_dir(dir.path().join("cache/times")).expect("there").count(), 0);
    store.keep_times(&digest, &[5]).expect("kept");
    drop(store);
    open(dir.path());
    assert_eq!(fs::read_dir(dir.path().join("cache/times")).expect("there").count(), 0, "it is of no object");
}

#[test]
fn holes_stay_holes_on_the_way_into_the_store() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = Store::open(dir.path(), 1 << 30).expect("opened");
    let source = dir.path().join("sparse");
    let file = File::options().read(true).write(true).create_new(true).open(&source).expect("made");
    file.set_len(32 << 20).expect("a hole");
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 32 << 20).expect("written");
    let mut by_file = store.begin(store.reserve(64 << 20).expect("free"));
    by_file.fill_from_file(&file).expect("read");
    let stored = by_file.finish(None).expect("stored");
    let kib = |digest| fs::metadata(store.path_of(digest)).expect("there").blocks() / 2;
    assert!(kib(&stored.digest) < 1024, "{} KiB", kib(&stored.digest));
    store.verify(&stored.digest).expect("whole");
    store.remove(&stored.digest).expect("removed");
    let mut by_pieces = store.begin(store.reserve(64 << 20).expect("free"));
    fs::read(&source)
        .expect("read")
        .chunks(200_000)
        .for_each(|piece| by_pieces.append(piece).expect("stored"));
    assert_eq!(by_pieces.finish(None).expect("stored").digest, stored.digest);
    assert!(kib(&stored.digest) < 2048, "{} KiB", kib(&stored.digest));
    store.verify(&stored.digest).expect("whole");
}

#[test]
fn objects_of_an_earlier_process_are_hashed_before_their_first_use() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let whole = put(&store, b"whole").expect("stored").digest;
    let changed = put(&store, b"changed").expect("stored").digest;
    let again = put(&store, b"again").expect("stored").digest;
    drop(store);
    // Nobody watches, and the times are set back.
    for (digest, bytes) in [(changed, b"CHANGED".as_slice()), (again, b"AGAIN")] {
        let path = open(dir.path()).path_of(&digest);
        let times = fs::metadata(&path).expect("there").modified().expect("a time");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        fs::write(&path, bytes).expect("write");
        fs::File::options().write(true).open(&path).expect("open").set_modified(times).expect("time");
    }
    let store = open(dir.path());
    assert!([whole, changed, again].iter().all(|digest| store.is_doubted(digest)), "nothing shows it");
    let halt = eyas_data::Halt::default();
    // Many threads need it at the same time.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| store.settle(&whole, &halt).expect("whole"));
        }
    });
    assert!(!store.is_doubted(&whole));
    assert_eq!(store.settle(&changed, &halt).expect_err("other bytes").kind, ErrorKind::Corrupt);
    assert_eq!(store.open_object(&changed).expect_err("other bytes").kind, ErrorKind::Corrupt);
    assert!(!store.is_doubted(&changed), "it is known to be wrong");
    // Bytes that were hashed on their way in take the place of what is in doubt.
    assert!(!put(&store, b"again").expect("stored").already_held);
    store.open_object(&again).expect("fresh");
    store.remove(&changed).expect("removed");
    sanity_check(&store, dir.path());
}

#[test]
fn storing_ends_when_it_is_told_to() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = Store::open(dir.path(), u64::MAX).expect("opened");
    let huge = dir.path().join("huge");
    fs::File::create(&huge).expect("create").set_len(1 << 40).expect("a file without blocks");
    let all = eyas_data::Halt::default();
    for stop_all in [false, true] {
        let halt = all.child();
        let reservation = store.reserve(1 << 40).expect("free").until(&halt);
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| store.adopt(&huge, reservation));
            std::thread::sleep(std::time::Duration::from_millis(20));
            if stop_all {
                all.stop()
            } else {
                halt.stop()
            }
            assert_eq!(storing.join().expect("no panic").expect_err("stopped").kind, ErrorKind::GivenUp);
        });
    }
    assert!(huge.exists());
    assert_eq!(store.usage().reserved_bytes, 0);
}
