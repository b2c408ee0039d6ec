//! Brings one output home: reads it here, hashes it on the way, and writes it there under a temporary name. A
//! directory travels as one object, and home makes a directory of it again.
//!
//! An output with the same bytes as an input shares its cached copy, which a program may write to at any
//! moment, also after it was checked. So exactly the bytes that are sent are hashed, and a wrong digest at
//! the end keeps home from taking any of them.
//!
//! Not here: which output goes when ([`eyas_core::executor`]), and how home takes it (`eyas-storage`).

use super::home_io::{
    Source, by_programs, disk_error, home_error, open_object, open_output, parse, version_of,
};
use eyas_core::event::{TransferError, TransferErrorKind};
use eyas_runner::Account;
use eyas_storage::{Fence, Homes, Part, Put};
use eyas_terms::{Digest, HomeVersion};
use eyas_text::shown;
use std::io::{self, Read};
use std::path::Path;

/// The properties of one landing.
pub struct Landing<'a> {
    /// Permission bits that the program gave the file, where they are known.
    pub mode: Option<u32>,
    /// When the program modified the file, in nanoseconds since 1970, where that is known.
    pub modified_ns: Option<i64>,
    /// Of a directory that is in the cache: the times of all that is in it.
    pub times: Vec<i64>,
    pub part: Part,
    pub fence: &'a dyn Fence,
    /// The system user who owns the sandbox that the output is in. `None`: it is in the cache, or in a sandbox of this process's user.
    pub owner: Option<&'a Account>,
    /// Whose rights count at home. `None`: those of this process.
    pub writer: Option<&'a Account>,
}

/// Writes the file or directory `path` to `home`, and gives the version that home reports then.
///
/// * `expected`: the digest that was recorded for it, if there is one.
///
/// Errors: `Corrupt` if the bytes sent have another digest than `expected`; home then takes none of them, and
/// keeps what it had. `GivenUp` if the fence of `landing` refused. Otherwise home's error.
pub fn bring_home(
    homes: &Homes,
    home: &str,
    path: &Path,
    expected: Option<Digest>,
    landing: Landing,
) -> Result<HomeVersion, TransferError> {
    let output = match landing.owner {
        Some(account) => open_output(path, account),
        None => open_object(path),
    };
    let output = output.map_err(|e| disk_error("read the output", &e))?;
    bring(homes, home, output, expected, landing)
}

/// As [`bring_home`], of an output that is open, with its size in bytes.
fn bring(
    homes: &Homes,
    home: &str,
    output: Source,
    expected: Option<Digest>,
    landing: Landing,
) -> Result<HomeVersion, TransferError> {
    let location = parse(home)?;
    let Source { bytes: source, size_bytes, times } = output;
    let mut body = Verified { source, hasher: blake3::Hasher::new(), expected, wrong: false, failed: None };
    let Landing { mode, modified_ns, times: kept, part, fence, owner: _, writer } = landing;
    let times = if kept.is_empty() { times } else { kept };
    let size_hint_bytes = Some(size_bytes);
    let put = Put { size_hint_bytes, mode, modified_ns, times: &times, part, below: None, fence };
    if writer.is_some() && location.is_by_programs_of_machine() {
        return Err(TransferError { kind: TransferErrorKind::Unavailable, message: by_programs(home) });
    }
    let written = {
        // Only a path is a matter of this machine's rights.
        let _acting = writer
            .filter(|_| location.path().is_some())
            .map(Account::act)
            .transpose()
            .map_err(|e| disk_error("act as the user of a task", &e))?;
        homes.put(&location, &mut body, &put)
    };
    if body.wrong {
        let message = format!(
            "the bytes for {home} are not those that were cached; the copy on this node was changed",
            home = shown(home)
        );
        return Err(TransferError { kind: TransferErrorKind::Corrupt, message });
    }
    // An interrupted read is repeated, so an error of the output counts only where the whole failed.
    let stat = written.map_err(|e| body.failed.unwrap_or_else(|| home_error(&e)))?;
    Ok(version_of(&stat))
}

/// Reads through; at the end it gives an error if the bytes do not have the expected digest.
struct Verified<R> {
    source: R,
    hasher: blake3::Hasher,
    expected: Option<Digest>,
    wrong: bool,
    /// Why the output could last not be read on this node.
    failed: Option<TransferError>,
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer);
        let n = read.inspect_err(|e| self.failed = Some(disk_error("read the output", e)))?;
        self.hasher.update(&buffer[..n]);
        let ends = n == 0 && !buffer.is_empty();
        if ends && self.expected.is_some_and(|e| e.0 != *self.hasher.finalize().as_bytes()) {
            self.wrong = true;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the output was damaged on this node"));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_storage::HomesConfig;
    use std::fs;
    use std::path::PathBuf;

    /// A landing without a rival.
    fn free() -> Landing<'static> {
        Landing {
            mode: None,
            modified_ns: None,
            times: vec![],
            part: Part::default(),
            fence: &eyas_storage::Open,
            owner: None,
            writer: None,
        }
    }

    /// Larger than any one read on the way.
    const N_BYTES: usize = (4 << 20) + 3;

    struct Scene {
        dir: tempfile::TempDir,
        homes: Homes,
        bytes: Vec<u8>,
    }

    impl Scene {
        fn new() -> Scene {
            let bytes = (0..N_BYTES).map(|i| (i % 251) as u8).collect();
            let homes = Homes::new(HomesConfig::default()).unwrap();
            Scene { dir: tempfile::tempdir().unwrap(), homes, bytes }
        }

        fn at_home(&self) -> PathBuf {
            self.dir.path().join("home/result")
        }

        /// Brings `bytes` home as an output that was cached as `self.bytes`.
        fn bring(&self, bytes: &[u8]) -> Result<HomeVersion, TransferError> {
            let output = self.dir.path().join("output");
            fs::write(&output, bytes).unwrap();
            let expected = Digest(*blake3::hash(&self.bytes).as_bytes());
            bring_home(&self.homes, self.at_home().to_str().unwrap(), &output, Some(expected), free())
        }

        fn names_at_home(&self) -> Vec<String> {
            let Ok(entries) = fs::read_dir(self.dir.path().join("home")) else { return vec![] };
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    #[test]
    fn the_right_bytes_arrive() {
        let scene = Scene::new();
        let version = scene.bring(&scene.bytes).unwrap();
        assert_eq!(version.size_bytes, N_BYTES as u64);
        assert_eq!(fs::read(scene.at_home()).unwrap(), scene.bytes);
        assert_eq!(scene.names_at_home(), ["result"]);
    }

    #[test]
    fn a_wrong_byte_anywhere_keeps_all_of_it_from_home() {
        for wrong_at in [0, N_BYTES / 2, N_BYTES - 1] {
            let scene = Scene::new();
            let mut bytes = scene.bytes.clone();
            bytes[wrong_at] ^= 1;
            let error = scene.bring(&bytes).unwrap_err();
            assert_eq!(error.kind, TransferErrorKind::Corrupt);
            assert!(error.message.contains("home/result"), "{}", error.message);
            assert_eq!(scene.names_at_home(), [""; 0], "byte {wrong_at}");
        }
    }

    #[test]
    fn bytes_too_few_or_too_many_are_wrong_too() {
        let scene = Scene::new();
        for bytes in [&scene.bytes[..N_BYTES - 1], &[&scene.bytes[..], b"x"].concat(), b""] {
            assert_eq!(scene.bring(bytes).unwrap_err().kind, TransferErrorKind::Corrupt);
            assert_eq!(scene.names_at_home(), [""; 0]);
        }
    }

    #[test]
    fn an_older_file_at_home_stays_when_the_new_bytes_are_wrong() {
        let scene = Scene::new();
        scene.bring(&scene.bytes).unwrap();
        assert_eq!(scene.bring(b"other").unwrap_err().kind, TransferErrorKind::Corrupt);
        assert_eq!(fs::read(scene.at_home()).unwrap(), scene.bytes);
        assert_eq!(scene.names_at_home(), ["result"]);
    }

    /// A directory, and the bytes that it is as one object.
    fn directory(scene: &Scene) -> (PathBuf, Vec<u8>) {
        let made = scene.dir.path().join("sandbox/made");
        fs::create_dir_all(made.join("sub")).unwrap();
        fs::write(made.join("a"), &scene.bytes).unwrap();
        fs::write(made.join("sub/b"), "b").unwrap();
        let mut bytes = vec![];
        super::open_object(&made).unwrap().bytes.read_to_end(&mut bytes).unwrap();
        (made, bytes)
    }

    #[test]
    fn a_directory_comes_home_from_where_it_was_made_and_from_the_cache() {
        let scene = Scene::new();
        let (made, bytes) = directory(&scene);
        let digest = Digest(*blake3::hash(&bytes).as_bytes());
        let store = eyas_data::Store::open(&scene.dir.path().join("cache"), 1 << 24).unwrap();
        let (halt, size_bytes) = (eyas_data::Halt::default(), bytes.len() as u64);
        for cache_bytes in [None, Some(size_bytes)] {
            let kept =
                super::super::home_io::keep_output(&store, &made, 1, cache_bytes, None, &halt).unwrap();
            assert_eq!((kept.digest, kept.size_bytes), (digest, size_bytes));
        }
        let too_small =
            super::super::home_io::keep_output(&store, &made, 1, Some(size_bytes - 1), None, &halt);
        assert!(too_small.is_err(), "it takes no more than was asked for");
        for from in [made, store.path_of(&digest.0.into())] {
            let home = scene.dir.path().join("home/made/");
            let version =
                bring_home(&scene.homes, home.to_str().unwrap(), &from, Some(digest), free()).unwrap();
            assert_eq!(version.size_bytes, size_bytes);
            assert_eq!(fs::read(home.join("a")).unwrap(), scene.bytes);
            assert_eq!(fs::read(home.join("sub/b")).unwrap(), b"b");
            assert_eq!(scene.names_at_home(), ["made"]);
        }
    }

    #[test]
    fn a_wrong_byte_anywhere_keeps_all_of_a_directory_from_home_and_is_called_what_it_is() {
        let scene = Scene::new();
        let (_, bytes) = directory(&scene);
        let digest = Digest(*blake3::hash(&bytes).as_bytes());
        let home = scene.dir.path().join("home/made/");
        let last = bytes.len() - 1;
        for wrong_at in [0, 11, 12, 16, 20, 25, N_BYTES / 2, last - 12, last - 1, last] {
            let mut wrong = bytes.clone();
            wrong[wrong_at] ^= 1;
            let output = scene.dir.path().join("output");
            fs::write(&output, wrong).unwrap();
            let error = bring_home(&scene.homes, home.to_str().unwrap(), &output, Some(digest), free());
            assert_eq!(error.unwrap_err().kind, TransferErrorKind::Corrupt, "byte {wrong_at}");
            assert_eq!(scene.names_at_home(), [""; 0], "byte {wrong_at}");
        }
    }

    #[test]
    fn an_output_that_was_never_cached_has_no_digest_to_match() {
        let scene = Scene::new();
        let output = scene.dir.path().join("output");
        fs::write(&output, b"any").unwrap();
        bring_home(&scene.homes, scene.at_home().to_str().unwrap(), &output, None, free()).unwrap();
        assert_eq!(fs::read(scene.at_home()).unwrap(), b"any");
    }

    /// Each byte comes after an interruption; in the end reading fails if `breaks` is set.
    struct Halting {
        bytes: Vec<u8>,
        n_read: usize,
        is_next: bool,
        breaks: bool,
    }

    impl Read for Halting {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.is_next = !self.is_next;
            if self.is_next {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match self.bytes.get(self.n_read) {
                Some(byte) => {
                    buffer[0] = *byte;
                    self.n_read += 1;
                    Ok(1)
                }
                None if self.breaks => Err(io::Error::from_raw_os_error(libc::EIO)),
                None => Ok(0),
            }
        }
    }

    #[test]
    fn an_interrupted_read_is_no_error_and_a_broken_disk_is_not_homes() {
        for breaks in [false, true] {
            let scene = Scene::new();
            let source = Halting { bytes: b"any".to_vec(), n_read: 0, is_next: false, breaks };
            let output = Source { bytes: Box::new(source), size_bytes: 3, times: vec![] };
            let result = bring(&scene.homes, scene.at_home().to_str().unwrap(), output, None, free());
            match result {
                Ok(_) => assert_eq!((breaks, fs::read(scene.at_home()).unwrap()), (false, b"any".to_vec())),
                Err(error) => {
                    assert_eq!((breaks, error.kind), (true, TransferErrorKind::Temporary), "{error:?}")
                }
            }
        }
    }

    #[test]
    fn an_output_that_is_gone_and_a_home_that_refuses_are_not_called_corrupt() {
        let scene = Scene::new();
        let gone = scene.dir.path().join("gone");
        let home = scene.at_home();
        let error = bring_home(&scene.homes, home.to_str().unwrap(), &gone, None, free()).unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Temporary);
        fs::write(scene.dir.path().join("home"), b"a file where a directory should be").unwrap();
        assert_ne!(scene.bring(&scene.bytes).unwrap_err().kind, TransferErrorKind::Corrupt);
    }
}
