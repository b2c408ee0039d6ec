//! Everything that attempts printed, where it is wanted and the ends are not all of it: a file for each attempt, beside the log.
//!
//! The files are written by the log's thread and read by threads that answer clients. A file goes when a client has read it to its
//! end, or when its run is forgotten.

use eyas_terms::{AttemptNo, TaskId};
use eyas_wire::message::PrintedPart;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder in the dispatcher's.
const FOLDER: &str = "printed";
/// So many attempts of a task are dropped at once, the last ones; what others printed goes with the run.
const ATTEMPTS_MAX: u32 = 64;
/// A client gets so much at once.
const PART_BYTES: usize = 256 << 10;

fn path_of(dir: &Path, task: TaskId, attempt: AttemptNo) -> PathBuf {
    dir.join(FOLDER).join(format!("{task}-{attempt}"))
}

/// The writing end. It has the file of the last part open.
pub(super) struct Wholes {
    dir: PathBuf,
    last: Option<(PathBuf, File)>,
}

impl Wholes {
    pub(super) fn new(dir: &Path) -> Wholes {
        Wholes { dir: dir.to_path_buf(), last: None }
    }

    /// Writes a part to its place. A part that is there already is written once more.
    pub(super) fn write(&mut self, part: &PrintedPart) -> io::Result<()> {
        let path = path_of(&self.dir, part.task, part.attempt);
        let file = match self.last.take().filter(|(last, _)| *last == path && part.at > 0) {
            Some((_, file)) => file,
            None => {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.dir.join(FOLDER))?;
                File::options().create(true).write(true).truncate(false).mode(0o600).open(&path)?
            }
        };
        // The journal and the log need room, too.
        if !eyas_folder::has_room(&file, part.bytes.len() as u64) {
            return Err(ErrorKind::StorageFull.into());
        }
        file.write_all_at(&part.bytes, part.at)?;
        self.last = Some((path, file));
        Ok(())
    }

    /// Removes what tasks before `from` printed.
    pub(super) fn forget_before(&self, from: TaskId) {
        for entry in std::fs::read_dir(self.dir.join(FOLDER)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let task = name.to_str().and_then(|name| name.split_once('-')?.0.parse().ok());
            if task.is_some_and(|task| TaskId(task) < from) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// What the attempt printed from byte `at` on, a part of it; empty if nothing is kept there. `dir`: the dispatcher's.
pub fn read_part(dir: &Path, task: TaskId, attempt: AttemptNo, at: u64) -> Vec<u8> {
    let read = || {
        let file = File::open(path_of(dir, task, attempt))?;
        let left = file.metadata()?.len().saturating_sub(at);
        let mut bytes = vec![0; left.min(PART_BYTES as u64) as usize];
        file.read_exact_at(&mut bytes, at)?;
        Ok::<_, io::Error>(bytes)
    };
    read().unwrap_or_default()
}

/// Removes what the task's attempts up to this one printed.
pub(crate) fn drop_task(dir: &Path, task: TaskId, attempt: AttemptNo) {
    for earlier in attempt.0.saturating_sub(ATTEMPTS_MAX)..=attempt.0 {
        let _ = std::fs::remove_file(path_of(dir, task, AttemptNo(earlier)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_were_written_until_the_task_is_dropped_or_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut wholes = Wholes::new(dir.path());
        let part = |task, at: u64, bytes: &[u8]| PrintedPart {
            task: TaskId(task),
            attempt: AttemptNo(2),
            at,
            bytes: bytes.into(),
        };
        let long = vec![7; PART_BYTES];
        // The answer to the first part was lost, so that it came twice.
        for part in [part(1, 0, b"abc"), part(9, 0, b"x"), part(1, 0, b"abc"), part(1, 3, &long)] {
            wholes.write(&part).unwrap();
        }
        let read = |task, at| read_part(dir.path(), TaskId(task), AttemptNo(2), at);
        assert_eq!(read(1, 0), [b"abc", &long[3..]].concat());
        assert_eq!((read(1, PART_BYTES as u64), read(1, PART_BYTES as u64 + 3)), (vec![7; 3], vec![]));
        assert_eq!((read(2, 0), read(9, 0)), (vec![], b"x".to_vec()));
        wholes.forget_before(TaskId(9));
        assert_eq!((read(1, 0), read(9, 0)), (vec![], b"x".to_vec()));
        drop_task(dir.path(), TaskId(9), AttemptNo(2));
        assert_eq!(read(9, 0), b"");
        assert_eq!(std::fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 0);
    }
}
