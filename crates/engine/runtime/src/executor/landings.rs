//! Notes, on the node's own disk, of the temporary files that this node has at home.
//!
//! An executor that is killed leaves such files at home. The next executor in the same directory removes them, or else
//! the process that removes the directory does.
//!
//! The executor writes a line `+<path>` before it makes such a file, and `-<path>` when the file is gone. It does not flush
//! these lines. So a node that loses its power may leave a temporary file at home, which the next attempt of the task removes
//! ([`eyas_storage::Part::replaces`]).

use eyas_storage::{Homes, HomesConfig};
use eyas_text::shown_path;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

const FILE: &str = "landings";
/// A longer file is written anew when nothing is under way.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The notes of one node. Clones share them.
#[derive(Clone)]
pub struct Landings(Arc<Mutex<Notes>>);

struct Notes {
    file: File,
    n_bytes: u64,
    under_way: BTreeSet<PathBuf>,
}

impl Landings {
    /// Also gives the parts that an earlier process has left. The notes belong to this process as long as it
    /// has them open.
    pub fn open(dir: &Path) -> io::Result<(Landings, Vec<PathBuf>)> {
        let file =
            OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(dir.join(FILE))?;
        // The notes of earlier versions could be read by everybody who could reach them.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        // A process that sweeps this directory is done in a moment.
        file.lock()?;
        Landings::read(file)
    }

    fn read(file: File) -> io::Result<(Landings, Vec<PathBuf>)> {
        let mut left = BTreeSet::new();
        for line in BufReader::new(&file).split(b'\n').map_while(Result::ok) {
            match line.split_first() {
                Some((b'+', part)) => left.extend(decode(part)),
                Some((b'-', part)) => left.retain(|p| Some(p) != decode(part).as_ref()),
                // A torn last line: what it was to announce had not begun.
                _ => {}
            }
        }
        let n_bytes = file.metadata()?.len();
        let notes = Notes { file, n_bytes, under_way: left.clone() };
        Ok((Landings(Arc::new(Mutex::new(notes))), left.into_iter().collect()))
    }

    pub fn begin(&self, part: &Path) {
        let mut notes = self.notes();
        notes.under_way.insert(part.to_path_buf());
        notes.write(b'+', part);
    }

    pub fn end(&self, part: &Path) {
        let mut notes = self.notes();
        notes.under_way.remove(part);
        notes.write(b'-', part);
        if notes.under_way.is_empty() && notes.n_bytes > FILE_BYTES_MAX && notes.file.set_len(0).is_ok() {
            notes.n_bytes = 0;
        }
    }

    pub fn n_under_way(&self) -> usize {
        self.notes().under_way.len()
    }

    /// Removes what an earlier process has left. A part that cannot be removed stays noted for the next
    /// start.
    pub fn sweep(&self, homes: &Homes, left: &[PathBuf]) {
        for part in left {
            match homes.remove_part(part) {
                Ok(()) => self.end(part),
                Err(error) => {
                    eprintln!("eyas: an unfinished output of an earlier executor is left at home: {error}")
                }
            }
        }
    }

    /// Removes what an executor that was killed in `dir` has left at home, when `dir` is of no more use. An
    /// executor that still runs has the notes open, and removes its own parts.
    pub fn sweep_dir(dir: &Path) {
        let file = OpenOptions::new().read(true).append(true).open(dir.join(FILE));
        let Some(file) = file.ok().filter(|file| file.try_lock().is_ok()) else { return };
        if let Ok((landings, left)) = Landings::read(file)
            && !left.is_empty()
        {
            match Homes::new(HomesConfig::default()) {
                Ok(homes) => landings.sweep(&homes, &left),
                Err(e) => eyas_text::say!("eyas: {}: {e}", shown_path(dir)),
            }
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Notes {
    fn write(&mut self, sign: u8, part: &Path) {
        let mut line = vec![sign];
        line.extend(encode(part));
        line.push(b'\n');
        // A full disk costs the note; then only a later attempt of the task removes the part.
        if self.file.write_all(&line).is_ok() {
            self.n_bytes += line.len() as u64;
        }
    }
}

/// A path may contain any byte but NUL: newlines, which end a note, and the escape character itself are
/// written as two digits.
fn encode(path: &Path) -> Vec<u8> {
    let mut out = vec![];
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\n' | b'%' => out.extend(format!("%{byte:02x}").bytes()),
            byte => out.push(*byte),
        }
    }
    out
}

fn decode(text: &[u8]) -> Option<PathBuf> {
    let mut out = vec![];
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' {
            let digits = [*bytes.next()?, *bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            out.push(*byte);
        }
    }
    Some(PathBuf::from(OsString::from_vec(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_that_a_killed_process_left_is_removed_by_the_next() {
        let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let part = |name: &str| home.path().join(format!(".eyas-part-{name}"));
        let odd = part("a\nb %25");
        let (landings, left) = Landings::open(dir.path()).unwrap();
        assert!(left.is_empty());
        for (path, ends) in [(part("1"), true), (odd.clone(), false), (part("2"), false)] {
            landings.begin(&path);
            std::fs::write(&path, "half").unwrap();
            if ends {
                landings.end(&path);
            }
        }
        let stranger = part("of another cluster");
        std::fs::write(&stranger, "half").unwrap();
        drop(landings);

        let (landings, left) = Landings::open(dir.path()).unwrap();
        assert_eq!(left, [part("2"), odd.clone()]);
        assert_eq!(landings.n_under_way(), 2);
        let homes = Homes::new(HomesConfig::default()).unwrap();
        // One of them is on its way anew already; it is not what was left.
        landings.begin(&part("3"));
        std::fs::write(part("3"), "half").unwrap();
        landings.sweep(&homes, &left);
        assert_eq!(landings.n_under_way(), 1);
        assert!(!odd.exists() && !part("2").exists());
        assert!(stranger.exists() && part("3").exists() && part("1").exists());
        drop(landings);
        assert_eq!(Landings::open(dir.path()).unwrap().1, [part("3")]);
    }

    #[test]
    fn a_directory_is_swept_only_when_its_executor_is_gone() {
        let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let part = home.path().join(".eyas-part-1");
        Landings::sweep_dir(dir.path());
        assert!(!dir.path().join(FILE).exists());
        let (landings, _) = Landings::open(dir.path()).unwrap();
        landings.begin(&part);
        std::fs::write(&part, "half").unwrap();
        Landings::sweep_dir(dir.path());
        assert!(part.exists());
        drop(landings);
        Landings::sweep_dir(dir.path());
        assert!(!part.exists());
        assert!(Landings::open(dir.path()).unwrap().1.is_empty());
    }

    #[test]
    fn the_notes_do_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let (landings, _) = Landings::open(dir.path()).unwrap();
        let part = PathBuf::from("x".repeat(4000));
        for _ in 0..1000 {
            landings.begin(&part);
            landings.end(&part);
        }
        assert!(std::fs::metadata(dir.path().join(FILE)).unwrap().len() < FILE_BYTES_MAX + 10_000);
    }
}
