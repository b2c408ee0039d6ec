//! Bounded capture of one output stream: its first and last bytes and its length. A task may also have the
//! whole stream copied into a file. A stream that is wanted whole has a spool, which is a file only if the ends are not all
//! of it.

use crate::protocol::{ByteString, CaptureLimits, Captured};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The buffers are kept from task to task; they grow to the limits only when a task prints that much.
#[derive(Default)]
pub struct Capture {
    head: Vec<u8>,
    /// A ring once it has reached `tail_max`; `oldest` is then its start.
    tail: Vec<u8>,
    oldest: usize,
    head_max: usize,
    tail_max: usize,
    total_bytes: u64,
    copy: Option<File>,
    /// Why the copy is incomplete.
    copy_error: Option<io::Error>,
    spool: Option<Spool>,
}

/// Where the whole stream goes, once it is longer than its ends. Dropping it removes the file.
struct Spool {
    path: PathBuf,
    file: Option<File>,
}

impl Spool {
    /// Adds `bytes`, or what was printed `before` them and then the bytes.
    fn push(&mut self, before: impl FnOnce() -> Captured, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let options = File::options().write(true).create_new(true).mode(0o600).open(&self.path);
                let file = none.insert(options?);
                let before = before();
                file.write_all(&before.head.0)?;
                file.write_all(&before.tail.0)?;
                file
            }
        };
        // Programs and the cache need room, too.
        if !eyas_folder::has_room(file, bytes.len() as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_all(bytes)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Capture {
    /// Begins a new capture; all bytes that arrive also go into `copy`, and into a file at `spool` if they are more than the ends.
    pub fn reset(&mut self, limits: CaptureLimits, copy: Option<File>, spool: Option<PathBuf>) {
        (self.copy, self.copy_error) = (copy, None);
        self.spool = spool.map(|path| Spool { path, file: None });
        self.head.clear();
        self.tail.clear();
        self.oldest = 0;
        self.head_max = limits.head_bytes as usize;
        self.tail_max = limits.tail_bytes as usize;
        self.total_bytes = 0;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let is_more = self.total_bytes + bytes.len() as u64 > (self.head_max + self.tail_max) as u64;
        if let Some(mut spool) = self.spool.take()
            && (!is_more || spool.push(|| self.so_far(), bytes).is_ok())
        {
            self.spool = Some(spool);
        }
        self.total_bytes += bytes.len() as u64;
        if let Some(copy) = &mut self.copy
            && let Err(error) = copy.write_all(bytes)
        {
            (self.copy, self.copy_error) = (None, Some(error));
        }
        let (first, mut rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(first);
        if rest.len() >= self.tail_max {
            self.tail.clear();
            self.oldest = 0;
            rest = &rest[rest.len() - self.tail_max..];
        }
        let (grow, wrap) = rest.split_at(rest.len().min(self.tail_max - self.tail.len()));
        self.tail.extend_from_slice(grow);
        let (until_end, from_start) = wrap.split_at(wrap.len().min(self.tail.len() - self.oldest));
        self.tail[self.oldest..self.oldest + until_end.len()].copy_from_slice(until_end);
        self.tail[..from_start.len()].copy_from_slice(from_start);
        if !wrap.is_empty() {
            self.oldest = (self.oldest + wrap.len()) % self.tail_max;
        }
    }

    /// Closes the copy; the error says why the copy is incomplete.
    pub fn end_copy(&mut self) -> Option<io::Error> {
        self.copy = None;
        self.copy_error.take()
    }

    /// The file with the whole stream, which is the caller's from here on. `None`: the ends are the whole, or it is not wanted, or the
    /// disk had no room for it.
    pub fn take_spool(&mut self) -> Option<PathBuf> {
        let mut spool = self.spool.take()?;
        spool.file.take().map(|_| std::mem::take(&mut spool.path))
    }

    /// The bytes that are kept so far; more may arrive.
    pub fn so_far(&self) -> Captured {
        let mut tail = Vec::with_capacity(self.tail.len());
        tail.extend_from_slice(&self.tail[self.oldest..]);
        tail.extend_from_slice(&self.tail[..self.oldest]);
        let head = ByteString(self.head.clone());
        Captured { head, tail: ByteString(tail), total_bytes: self.total_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_ends_of_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..1000u32).map(|i| (i * 7 % 251) as u8).collect();
        for (head, tail) in [(0, 0), (10, 0), (0, 10), (16, 48), (500, 500), (5000, 10), (10, 5000)] {
            for piece in [1, 7, 13, 64, 999, 1000] {
                for length in [0, 5, 60, 64, 65, 999, 1000] {
                    let mut capture = Capture::default();
                    let spool = dir.path().join("spool");
                    let limits = CaptureLimits { head_bytes: head, tail_bytes: tail };
                    capture.reset(limits, None, Some(spool.clone()));
                    whole[..length].chunks(piece).for_each(|chunk| capture.push(chunk));
                    let got = capture.so_far();
                    let head_end = length.min(head as usize);
                    let tail_start = head_end.max(length.saturating_sub(tail as usize));
                    assert_eq!(got.head.0, whole[..head_end]);
                    assert_eq!(got.tail.0, whole[tail_start..length], "{head} {tail} {piece} {length}");
                    assert_eq!(got.total_bytes, length as u64);
                    let is_spooled = length as u32 > head + tail;
                    assert_eq!(capture.take_spool(), is_spooled.then(|| spool.clone()));
                    assert_eq!(std::fs::read(&spool).ok(), is_spooled.then(|| whole[..length].to_vec()));
                    let _ = std::fs::remove_file(&spool);
                }
            }
        }
    }

    #[test]
    fn a_spool_that_nobody_takes_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::default();
        let limits = CaptureLimits { head_bytes: 2, tail_bytes: 2 };
        capture.reset(limits, None, Some(dir.path().join("spool")));
        capture.push(b"longer than four bytes");
        assert!(dir.path().join("spool").exists());
        capture.reset(limits, None, None);
        assert!(!dir.path().join("spool").exists());
        // Where no file can be made, the ends are kept all the same.
        capture.reset(limits, None, Some(dir.path().join("nowhere/spool")));
        capture.push(b"abcdef");
        assert_eq!((capture.take_spool(), capture.so_far().total_bytes), (None, 6));
    }
}
