//! Directories as objects of a `file` home: read as the bytes that `eyas-folder` makes of them, and written from such.
//!
//! A directory is written beside its place, under a temporary name like a file's, flushed, and takes its place at once: by a rename, or,
//! where there is a directory already, by an exchange of the two. The old one is removed then. It is replaced as a whole: what
//! was in it and is not in the new one is gone, as with a file. Where a file system cannot exchange (NFS), the old one is
//! renamed first, and for a moment there is none; never half of one.
//!
//! A part that is a directory is renamed before it is removed, so that a writer that was stopped before its rename finds nothing,
//! as with files ([`crate::put`]).
//!
//! The version is a stamp of all names, sizes and times; asking for it looks at each file in the directory.

use super::{
    FileHome, READ, STAT, WRITE, create_directories, explain, free_bytes, not_a_file, of_name, path_of,
    sync_directory,
};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::parts::{gone, part_path, remove_part};
use crate::put::given_up;
use crate::version::Version;
use crate::{Fence, Location, Opened, Put, Stat};
use eyas_folder::{Modes, Packed, Times, Tree, unpack};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(crate) fn stat(location: &Location, path: &Path) -> Result<Stat> {
    Ok(stat_of(&look(STAT, location, path)?))
}

pub(crate) fn open(location: &Location, path: &Path, range: Option<Range<u64>>) -> Result<Opened> {
    let tree = look(READ, location, path)?;
    let stat = stat_of(&tree);
    let range = range.unwrap_or(0..stat.size_bytes);
    if range.start > range.end || range.end > stat.size_bytes {
        return Err(Error::range_outside(READ, location, &range, stat.size_bytes));
    }
    let times = tree.times().to_vec();
    let reader = DirectoryReader {
        packed: Packed::new(path, tree.clone()),
        tree,
        location: location.clone(),
        path: path.to_path_buf(),
        skip_bytes: range.start,
        left_bytes: range.end - range.start,
        is_checked: false,
    };
    Ok(Opened { location: location.clone(), stat, range, reader: Box::new(reader), file: None, times })
}

fn look(operation: &'static str, location: &Location, path: &Path) -> Result<Tree> {
    Tree::of(path).map_err(|error| match error {
        eyas_folder::Error::Io { path: within, source } if within.as_os_str().is_empty() => {
            explain(operation, location, path, source)
        }
        error => of_folder(operation, location, error),
    })
}

fn stat_of(tree: &Tree) -> Stat {
    let size_bytes = tree.size_bytes();
    Stat { size_bytes, version: Version::of_directory(size_bytes, tree.stamp()) }
}

fn of_folder(operation: &'static str, location: &Location, error: eyas_folder::Error) -> Error {
    use eyas_folder::Error as Folder;
    let said = error.to_string();
    match error {
        Folder::Io { path, source } if path.as_os_str().is_empty() => {
            Error::from_read(operation, location, source)
        }
        Folder::Io { path, source } => {
            let within = format!("{location}{}", path.display());
            Error::from_io(operation, within, source)
        }
        Folder::Refused { .. } | Folder::NotADirectory { .. } => not_a_file(operation, location, &said),
        Folder::Changed { .. } => Error::changed(operation, location, said),
        Folder::Damaged { .. } => Error::new(ErrorKind::Io, Status::Permanent, operation, location, said),
        Folder::GivenUp => given_up(operation, location, said),
    }
}

struct DirectoryReader {
    packed: Packed,
    tree: Tree,
    location: Location,
    path: PathBuf,
    /// Bytes before the wanted ones.
    skip_bytes: u64,
    left_bytes: u64,
    is_checked: bool,
}

impl DirectoryReader {
    fn read_packed(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.packed.read(buffer).map_err(|error| match error.downcast::<eyas_folder::Error>() {
            Ok(own) => of_folder(READ, &self.location, own).into(),
            Err(error) => Error::from_io(READ, &self.location, error).into(),
        })
    }
}

impl Read for DirectoryReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.skip_bytes > 0 {
            let mut skipped = [0; 16 << 10];
            let want = usize::try_from(self.skip_bytes).unwrap_or(usize::MAX).min(skipped.len());
            self.skip_bytes -= self.read_packed(&mut skipped[..want])? as u64;
        }
        let want = buffer.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        let n = if want == 0 { 0 } else { self.read_packed(&mut buffer[..want])? };
        self.left_bytes -= n as u64;
        // With the last bytes, because a caller that knows the size may never ask for more.
        if self.left_bytes == 0 && !self.is_checked {
            let now = look(READ, &self.location, &self.path)?;
            if now != self.tree {
                let change = Version::describe_change(&stat_of(&self.tree).version, &stat_of(&now).version);
                return Err(Error::changed(READ, &self.location, change).into());
            }
            self.is_checked = true;
        }
        Ok(n)
    }
}

/// Makes the directory at `location` of its bytes.
pub(crate) fn put(home: &FileHome, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
    let real = target_of(location)?;
    let fail = |error| Error::from_io(WRITE, location, error);
    let (Some(directory), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(not_a_file(WRITE, location, "it is the root of the file system"));
    };
    create_directories(directory).map_err(fail)?;
    let above = File::open(directory).ok();
    if let (Some(size_bytes), Some(free_bytes)) = (put.size_hint_bytes, above.as_ref().and_then(free_bytes))
        && size_bytes > free_bytes
    {
        return Err(fail(io::Error::from_raw_os_error(libc::ENOSPC)));
    }
    let temporary = Temporary::create(directory, name.as_bytes(), put).map_err(fail)?;
    let mut refused = None;
    let mut wanted = || match put.fence.may_go_on() {
        Ok(()) => true,
        Err(why) => {
            refused = Some(why);
            false
        }
    };
    let times = Times { known: put.times, otherwise: None };
    let made = unpack(body, &temporary.path, Modes::USUAL, times, true, &mut wanted);
    if let Some(why) = refused {
        return Err(given_up(WRITE, location, why));
    }
    made.map_err(|error| wrong_bytes(location, body, error))?;
    fs::set_permissions(&temporary.path, fs::Permissions::from_mode(temporary.mode)).map_err(fail)?;
    sync_directory(&temporary.path).map_err(fail)?;
    let stat = stat_of(&look(WRITE, location, &temporary.path)?);
    if put.part.replaces {
        home.remove_earlier(directory, &put.part).map_err(fail)?;
    }
    put.may_appear(location)?;
    temporary.appear_at(&real).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let why =
                "somebody removed the temporary directory: a later writer of the same object has taken over";
            given_up(WRITE, location, why.into())
        }
        _ => of_name(WRITE, location, &real, error),
    })?;
    sync_directory(directory).map_err(fail)?;
    Ok(stat)
}

/// At the end of the bytes, their source may know a better reason why they are wrong.
fn wrong_bytes(location: &Location, body: &mut dyn Read, error: eyas_folder::Error) -> Error {
    if matches!(error, eyas_folder::Error::Damaged { .. })
        && let Err(said) = io::copy(body, &mut io::sink())
    {
        return Error::from_read(WRITE, location, said);
    }
    of_folder(WRITE, location, error)
}

/// Where it really goes: through a symbolic link, and never in place of something that is no directory.
fn target_of(location: &Location) -> Result<PathBuf> {
    let path = path_of(WRITE, location)?;
    let is_link = match fs::symlink_metadata(path) {
        Err(_) => return Ok(path.to_path_buf()),
        Ok(metadata) => metadata.is_symlink(),
    };
    let real = if is_link {
        fs::canonicalize(path).map_err(|error| explain(WRITE, location, path, error))?
    } else {
        path.to_path_buf()
    };
    match fs::metadata(&real) {
        Ok(metadata) if !metadata.is_dir() => {
            Err(not_a_file(WRITE, location, "it is a file, and a directory is to be written there"))
        }
        _ => Ok(real),
    }
}

/// A directory that disappears with this value, or the one that it has replaced.
struct Temporary<'a> {
    path: PathBuf,
    /// Permission bits of the directory once it is whole. Until then only its owner may look into it.
    mode: u32,
    is_renamed: bool,
    fence: &'a dyn Fence,
}

impl<'a> Temporary<'a> {
    fn create(directory: &Path, name: &[u8], put: &Put<'a>) -> io::Result<Temporary<'a>> {
        loop {
            let path = part_path(directory, name, &put.part);
            put.fence.part_begins(&path);
            match DirBuilder::new().mode(0o777).create(&path) {
                Ok(()) => {
                    let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
                    return Ok(Temporary { path, mode, is_renamed: false, fence: put.fence });
                }
                Err(error) => {
                    put.fence.part_ended(&path);
                    if error.kind() != io::ErrorKind::AlreadyExists {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Takes the place of `target`, which is nothing or a directory.
    fn appear_at(mut self, target: &Path) -> io::Result<()> {
        loop {
            if fs::symlink_metadata(target).is_err() {
                match fs::rename(&self.path, target) {
                    Ok(()) => {
                        self.is_renamed = true;
                        return Ok(());
                    }
                    // Somebody has made it meanwhile.
                    Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {}
                    Err(error) => return Err(error),
                }
            }
            // What was there has the temporary name afterwards, and goes with it.
            let Err(error) = exchange(&self.path, target) else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOSYS | libc::ENOTSUP) => return self.replace(target),
                // Somebody has taken it away meanwhile.
                Some(libc::ENOENT) if fs::symlink_metadata(&self.path).is_ok() => {}
                _ => return Err(error),
            }
        }
    }

    /// Where the file system cannot exchange.
    fn replace(&mut self, target: &Path) -> io::Result<()> {
        // Asked before anything is moved away.
        fs::symlink_metadata(&self.path)?;
        let old = gone(&self.path);
        fs::rename(target, &old)?;
        match fs::rename(&self.path, target) {
            Ok(()) => Ok(()),
            Err(error) => {
                // Only to where there is nothing: of a directory a rename replaces an empty one.
                let _ = fs::symlink_metadata(target).is_err() && fs::rename(&old, target).is_ok();
                Err(error)
            }
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_renamed && remove_part(&self.path).is_err() {
            // The part stays noted: the next reader of the note tries again.
            return;
        }
        self.fence.part_ended(&self.path);
    }
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) =
        (CString::new(one.as_os_str().as_bytes())?, CString::new(other.as_os_str().as_bytes())?);
    // By number: old C libraries do not have the function.
    // SAFETY: both names end in NUL and live through the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Home, Part};
    use std::os::unix::fs::symlink;
    use std::sync::Mutex;

    struct Scene {
        dir: tempfile::TempDir,
        home: FileHome,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { dir: tempfile::tempdir().unwrap(), home: FileHome::default() }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("home/x")
        }

        fn location(&self) -> Location {
            Location::parse(&format!("{}/", self.path().display()), Path::new("/")).unwrap()
        }

        /// The bytes of a directory with these files, and a link to the first.
        fn bytes(&self, files: &[(&str, &str)]) -> Vec<u8> {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            symlink(files[0].0, dir.path().join("~link")).unwrap();
            let mut bytes = vec![];
            Packed::new(dir.path(), Tree::of(dir.path()).unwrap()).read_to_end(&mut bytes).unwrap();
            bytes
        }

        fn put(&self, mut bytes: &[u8], fence: &dyn Fence, epoch: u64, number: u32) -> Result<Stat> {
            let part = Part { work: 7, epoch, number, replaces: true };
            let put = Put {
                size_hint_bytes: Some(bytes.len() as u64),
                mode: None,
                modified_ns: None,
                times: &[],
                part,
                below: None,
                fence,
            };
            self.home.put(&self.location(), &mut bytes, &put)
        }

        fn read(&self) -> Vec<u8> {
            let mut bytes = vec![];
            self.home.open(&self.location(), None).unwrap().reader.read_to_end(&mut bytes).unwrap();
            bytes
        }

        /// All that is at home, beside the directory too.
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.dir.path().join("home")).unwrap();
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    #[test]
    fn what_is_written_is_what_is_read_and_takes_the_place_of_what_was_there() {
        let scene = Scene::new();
        for files in [&[("a", "one"), ("sub/deep/b", "two")][..], &[("c", "")], &[("a", "1"), ("z/z", "2")]] {
            let bytes = scene.bytes(files);
            let stat = scene.put(&bytes, &crate::Open, 1, 1).unwrap();
            assert_eq!(stat.size_bytes, bytes.len() as u64);
            assert_eq!(scene.home.stat(&scene.location()).unwrap(), stat);
            assert_eq!(scene.read(), bytes);
            assert_eq!(scene.names(), ["x"]);
        }
        let mode = fs::metadata(scene.path()).unwrap().permissions().mode() & 0o777;
        fs::create_dir(scene.dir.path().join("usual")).unwrap();
        assert_eq!(mode, fs::metadata(scene.dir.path().join("usual")).unwrap().permissions().mode() & 0o777);
        for from in [1, 11, 30] {
            let bytes = scene.read();
            let mut opened = scene.home.open(&scene.location(), Some(from..bytes.len() as u64 - 1)).unwrap();
            let mut some = vec![];
            opened.reader.read_to_end(&mut some).unwrap();
            assert_eq!(some, bytes[from as usize..bytes.len() - 1]);
        }
    }

    #[test]
    fn where_directories_cannot_be_exchanged_the_old_one_goes_first() {
        let scene = Scene::new();
        scene.put(&scene.bytes(&[("a", "old")]), &crate::Open, 1, 1).unwrap();
        let put = Put::simple(None);
        let mut temporary = Temporary::create(scene.path().parent().unwrap(), b"x", &put).unwrap();
        fs::write(temporary.path.join("b"), "new").unwrap();
        temporary.replace(&scene.path()).unwrap();
        drop(temporary);
        assert_eq!(scene.names(), ["x"]);
        assert_eq!(fs::read(scene.path().join("b")).unwrap(), b"new");
        assert!(!scene.path().join("a").exists());
    }

    #[test]
    fn bytes_of_no_directory_and_readers_that_fail_change_nothing() {
        struct Fails<'a>(&'a [u8]);
        impl Read for Fails<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                match self.0.read(&mut buffer[..1])? {
                    0 => Err(io::ErrorKind::ConnectionReset.into()),
                    n => Ok(n),
                }
            }
        }
        let scene = Scene::new();
        let old = scene.bytes(&[("a", "old")]);
        scene.put(&old, &crate::Open, 1, 1).unwrap();
        let new = scene.bytes(&[("a", "new"), ("sub/b", "new")]);
        let error = scene.home.write(&scene.location(), &mut Fails(&new), None).unwrap_err();
        assert_eq!(error.status(), Status::Temporary, "{error}");
        let mut out = new.clone();
        out[16] = b'/';
        for bytes in [&b"hello"[..], b"", &new[..new.len() - 1], &[&new[..], b"x"].concat(), &out] {
            let error = scene.put(bytes, &crate::Open, 1, 2).unwrap_err();
            assert!(error.to_string().contains("not the bytes of a directory"), "{error}");
            assert_eq!((scene.read(), scene.names()), (old.clone(), vec!["x".to_owned()]));
        }
        assert!(!scene.dir.path().join("home/b").exists());
    }

    #[test]
    fn a_file_where_a_directory_goes_and_the_reverse_are_refused() {
        let scene = Scene::new();
        fs::create_dir(scene.dir.path().join("home")).unwrap();
        fs::write(scene.path(), "a file").unwrap();
        let error = scene.put(&scene.bytes(&[("a", "new")]), &crate::Open, 1, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAFile);
        assert!(
            error.to_string().ends_with("it is a file, and a directory is to be written there"),
            "{error}"
        );
        assert_eq!(fs::read(scene.path()).unwrap(), b"a file");
        assert_eq!(scene.home.stat(&scene.location()).unwrap_err().kind(), ErrorKind::NotAFile);
        fs::remove_file(scene.path()).unwrap();
        assert_eq!(scene.home.stat(&scene.location()).unwrap_err().kind(), ErrorKind::NotFound);
        // Through a link, as a shell would.
        fs::create_dir(scene.dir.path().join("elsewhere")).unwrap();
        symlink("../elsewhere", scene.path()).unwrap();
        scene.put(&scene.bytes(&[("a", "new")]), &crate::Open, 1, 1).unwrap();
        assert_eq!(fs::read(scene.dir.path().join("elsewhere/a")).unwrap(), b"new");
        assert!(fs::symlink_metadata(scene.path()).unwrap().is_symlink());
        let file = Location::from_path(&scene.path()).unwrap();
        assert_eq!(scene.home.write(&file, &mut &b"x"[..], None).unwrap_err().kind(), ErrorKind::NotAFile);
    }

    #[test]
    fn a_change_while_reading_is_noticed() {
        let scene = Scene::new();
        scene.put(&scene.bytes(&[("a", "one"), ("b", "two")]), &crate::Open, 1, 1).unwrap();
        type Change = fn(&Path);
        let changes: [Change; 4] = [
            |at| fs::write(at.join("c"), "more").unwrap(),
            |at| fs::remove_file(at.join("c")).unwrap(),
            |at| fs::write(at.join("a"), "longer").unwrap(),
            |at| fs::rename(at.join("b"), at.join("bb")).unwrap(),
        ];
        for change in changes {
            let mut opened = scene.home.open(&scene.location(), None).unwrap();
            let before = opened.stat.version.clone();
            change(&scene.path());
            let error = opened.reader.read_to_end(&mut vec![]).unwrap_err();
            let error = Error::from_read(READ, "", error);
            assert!(matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound), "{error}");
            assert_ne!(scene.home.stat(&scene.location()).unwrap().version, before);
        }
    }

    /// The notes of a writer, and the actions of others while the writer waits for leave.
    struct Notes<'a> {
        parts: Mutex<Vec<PathBuf>>,
        may_go_on: bool,
        meanwhile: &'a (dyn Fn() + Sync),
    }

    impl Fence for Notes<'_> {
        fn may_go_on(&self) -> std::result::Result<(), String> {
            if self.may_go_on { Ok(()) } else { Err("it was cancelled".into()) }
        }

        fn may_appear(&self) -> std::result::Result<(), String> {
            (self.meanwhile)();
            Ok(())
        }

        fn part_begins(&self, part: &Path) {
            self.parts.lock().unwrap().push(part.to_path_buf());
        }

        fn part_ended(&self, part: &Path) {
            self.parts.lock().unwrap().retain(|p| p != part);
        }
    }

    #[test]
    fn a_writer_that_was_stopped_before_the_name_appears_comes_too_late() {
        for is_there in [false, true] {
            let scene = Scene::new();
            let (first, second) = (scene.bytes(&[("a", "first")]), scene.bytes(&[("a", "second")]));
            if is_there {
                scene.put(&scene.bytes(&[("old", "")]), &crate::Open, 1, 1).unwrap();
            }
            let meanwhile = || drop(scene.put(&second, &crate::Open, 1, 2).unwrap());
            let stopped = Notes { parts: Mutex::default(), may_go_on: true, meanwhile: &meanwhile };
            let error = scene.put(&first, &stopped, 1, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::GivenUp, "{error}");
            assert_eq!((scene.read(), scene.names()), (second.clone(), vec!["x".to_owned()]));
            assert!(stopped.parts.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn a_refused_writer_leaves_the_old_one_and_what_a_killed_one_leaves_is_removed() {
        let scene = Scene::new();
        let (old, new) = (scene.bytes(&[("a", "old")]), scene.bytes(&[("a", "new")]));
        scene.put(&old, &crate::Open, 1, 1).unwrap();
        let refused = Notes { parts: Mutex::default(), may_go_on: false, meanwhile: &|| () };
        assert_eq!(scene.put(&new, &refused, 1, 2).unwrap_err().kind(), ErrorKind::GivenUp);
        assert_eq!((scene.read(), scene.names()), (old.clone(), vec!["x".to_owned()]));

        let part = Part { work: 7, epoch: 1, number: 2, replaces: true };
        let killed = |n: u32| part_path(scene.path().parent().unwrap(), b"x", &Part { number: n, ..part });
        for path in [killed(1), killed(2), gone(&killed(3))] {
            fs::create_dir_all(path.join("sub")).unwrap();
            fs::write(path.join("sub/half"), "ha").unwrap();
        }
        scene.home.remove_parts(&scene.location(), &Part { number: 4, ..part }).unwrap();
        assert_eq!(scene.names(), ["x"]);
        let noted = killed(5);
        fs::create_dir_all(noted.join("sub")).unwrap();
        fs::create_dir_all(gone(&noted).join("sub")).unwrap();
        scene.home.remove_part(&noted).unwrap();
        scene.home.remove_part(&noted).unwrap();
        assert_eq!(scene.names(), ["x"]);
    }
}
