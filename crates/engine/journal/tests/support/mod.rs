//! Helpers of the journal's tests: journals with known records, copies of directories, deadlines.
#![allow(dead_code)] // each test file uses its own part of this

use eyas_journal::{Error, Journal, Options, Recovered, Sync};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Options for reading, and for tests in which only the process may die: nothing waits for the disk.
pub fn unsynced() -> Options {
    Options { sync: Sync::None, ..Options::default() }
}

/// Small segments, so that a few records make several of them.
pub fn small_segments(segment_bytes: u64) -> Options {
    Options { segment_bytes, ..Options::default() }
}

pub fn collect(recovered: Recovered) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let mut records = Vec::new();
    recovered.for_each(|seq, body| records.push((seq.0, body.to_vec())))?;
    Ok(records)
}

/// A directory in memory if the machine has one: thousands of crashed copies would be too much work for a
/// disk.
pub fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Opens, reads everything and closes.
pub fn read_all(dir: &Path) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let (journal, recovered) = Journal::open(dir, unsynced())?;
    let records = collect(recovered);
    drop(journal);
    records
}

/// Body of record `seq`: recognisable, and of a length that varies.
pub fn body(seq: u64) -> Vec<u8> {
    let mut body = seq.to_le_bytes().to_vec();
    body.resize(8 + (seq * 7 % 61) as usize, (seq % 251) as u8);
    body
}

pub fn numbered(seqs: impl IntoIterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
    seqs.into_iter().map(|seq| (seq, body(seq))).collect()
}

/// Files of a journal whose name begins with `prefix`, in the order of their numbers.
pub fn files(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    paths.sort();
    paths
}

pub fn copy_dir(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for path in files(from, "").into_iter().filter(|path| path.is_file()) {
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Waits until `condition` holds; panics after half a minute.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
