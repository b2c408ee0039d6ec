//! Measures a folder's file system: one stream, several streams, and small files.

use crate::print::reason;
use crate::{Exit, Fault, tmpfs};
use eyas_text::shown_path;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// At most this much is written, and for at most this long.
const BYTES_MAX: u64 = 512 << 20;
const TIME_MAX: Duration = Duration::from_secs(3);
const BLOCK_BYTES: usize = 1 << 20;
const N_FILES_MAX: usize = 500;
const FILE_BYTES: usize = 4096;
/// The number of readers at once, each of a part of the file.
pub const N_READERS: usize = 4;

/// The figures of a folder. The kernel is asked to drop the file from memory before it is read.
#[derive(Serialize)]
pub struct Folder {
    pub path: PathBuf,
    pub is_in_memory: bool,
    /// One stream, until the bytes are on the disk.
    pub write_bytes_per_s: f64,
    pub read_bytes_per_s: f64,
    /// [`N_READERS`] at once, added up.
    pub readers_bytes_per_s: f64,
    /// Files of 4 KiB that one process makes.
    pub files_per_s: f64,
    /// Seconds until such a file is opened and read; the median.
    pub open_s: f64,
}

/// A folder inside another folder; it is removed at the end.
pub struct Own(PathBuf);

impl Own {
    pub fn new(parent: &Path) -> Result<Own, Fault> {
        let path = parent.join(format!(".eyas-bench-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Own(path)),
            Err(e) => {
                let message = format!("cannot make a folder in {}: {}", shown_path(parent), reason(&e));
                Err(Fault::new(Exit::BadInput, message)
                    .hint("name a folder that is there and that you may write to"))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Measures the file system of `parent`, which takes some seconds.
///
/// Errors: nothing can be written there; the file system failed or is full.
pub fn measure(parent: &Path) -> Result<Folder, Fault> {
    let own = Own::new(parent)?;
    let fail = |e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot measure {}: {}", shown_path(parent), reason(&e)))
    };
    let path = own.path().join("large");
    let (n_bytes, write_bytes_per_s) = write(&path).map_err(fail)?;
    let read_bytes_per_s = read(&path, n_bytes, 1).map_err(fail)?;
    let readers_bytes_per_s = read(&path, n_bytes, N_READERS as u64).map_err(fail)?;
    fs::remove_file(&path).map_err(fail)?;
    let (files_per_s, open_s) = small_files(own.path()).map_err(fail)?;
    Ok(Folder {
        path: parent.to_path_buf(),
        is_in_memory: tmpfs::is_in_memory(parent),
        write_bytes_per_s,
        read_bytes_per_s,
        readers_bytes_per_s,
        files_per_s,
        open_s,
    })
}

/// Writes the file; gives the bytes written, and the bytes per second.
fn write(path: &Path) -> std::io::Result<(u64, f64)> {
    let mut file = File::create_new(path)?;
    // Not zeros, because some file systems do not store them.
    let mut state = 1u64;
    let block: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(BLOCK_BYTES)
    .collect();
    let (begun, mut n_bytes) = (Instant::now(), 0u64);
    while n_bytes < BYTES_MAX && (begun.elapsed() < TIME_MAX || n_bytes == 0) {
        file.write_all(&block)?;
        n_bytes += BLOCK_BYTES as u64;
        // Otherwise all of it might wait in memory until the end.
        if n_bytes.is_multiple_of(64 * BLOCK_BYTES as u64) {
            file.sync_data()?;
        }
    }
    file.sync_data()?;
    Ok((n_bytes, n_bytes as f64 / begun.elapsed().as_secs_f64()))
}

/// Bytes per second of `n_readers`, each reading its part of a file of `n_bytes`.
fn read(path: &Path, n_bytes: u64, n_readers: u64) -> std::io::Result<f64> {
    let file = File::open(path)?;
    forget(&file);
    let part_bytes = n_bytes / n_readers;
    let begun = Instant::now();
    let part = |n: u64| -> std::io::Result<u64> {
        let file = File::open(path)?;
        let (mut block, mut at) = (vec![0; BLOCK_BYTES], n * part_bytes);
        while at < (n + 1) * part_bytes && begun.elapsed() < TIME_MAX {
            match file.read_at(&mut block, at)? {
                0 => break,
                n_read => at += n_read as u64,
            }
        }
        Ok(at - n * part_bytes)
    };
    let n_read: u64 = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..n_readers).map(|n| scope.spawn(move || part(n))).collect();
        parts.into_iter().map(|p| p.join().expect("a reader does not panic")).sum::<std::io::Result<u64>>()
    })?;
    Ok(n_read as f64 / begun.elapsed().as_secs_f64())
}

/// Files made per second, and seconds until one of them is opened and read.
fn small_files(dir: &Path) -> std::io::Result<(f64, f64)> {
    let bytes = [7; FILE_BYTES];
    let path = |n: usize| dir.join(n.to_string());
    let (begun, mut n_files) = (Instant::now(), 0);
    while n_files < N_FILES_MAX && (begun.elapsed() < TIME_MAX || n_files == 0) {
        fs::write(path(n_files), bytes)?;
        n_files += 1;
    }
    let files_per_s = n_files as f64 / begun.elapsed().as_secs_f64();
    let mut times = vec![];
    let begun = Instant::now();
    for n in 0..n_files {
        let file = File::open(path(n))?;
        file.sync_data()?;
        forget(&file);
        drop(file);
        let opened = Instant::now();
        File::open(path(n))?.read_to_end(&mut Vec::with_capacity(FILE_BYTES))?;
        times.push(opened.elapsed().as_secs_f64());
        if begun.elapsed() > TIME_MAX {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    Ok((files_per_s, times[times.len() / 2]))
}

/// Asks the kernel to drop the file from memory.
fn forget(file: &File) {
    // SAFETY: advice on an open file, which changes no bytes. What it answers does not matter.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_measured_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let folder = measure(dir.path()).unwrap();
        for value in [
            folder.write_bytes_per_s,
            folder.read_bytes_per_s,
            folder.readers_bytes_per_s,
            folder.files_per_s,
        ] {
            assert!(value.is_finite() && value > 0.0, "{value}");
        }
        assert!(folder.open_s > 0.0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let fault = measure(&dir.path().join("absent")).err().unwrap();
        assert!(fault.message.contains("absent"), "{}", fault.message);
    }
}
