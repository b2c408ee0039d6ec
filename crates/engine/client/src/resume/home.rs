//! Reads what is at home, for the comparison with what earlier runs made.

use super::FoundFile;
use eyas_storage::{ErrorKind, Homes, HomesConfig, Location};
use eyas_terms::Digest;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Files at home that are read at the same time.
const STREAMS: usize = 8;
/// How often a long reading of files is reported.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Reads files at home, several at once, and reports it if that takes long.
pub struct HomeReader<F> {
    homes: Homes,
    /// Is called now and then with the number of files and of bytes that were read.
    report: F,
    n_files: AtomicU64,
    n_bytes: AtomicU64,
    last_report: Mutex<Instant>,
}

impl<F: Fn(u64, u64) + Sync> HomeReader<F> {
    /// `report` is called every five seconds with the number of files and of bytes that were read.
    pub fn new(report: F) -> eyas_storage::Result<HomeReader<F>> {
        let homes = Homes::new(HomesConfig::default())?;
        let last_report = Mutex::new(Instant::now());
        Ok(HomeReader { homes, report, n_files: AtomicU64::new(0), n_bytes: AtomicU64::new(0), last_report })
    }

    /// The files at these locations, in their order.
    pub fn look_at(&self, locations: &[String]) -> Vec<FoundFile> {
        let next = AtomicUsize::new(0);
        let found: Vec<Mutex<FoundFile>> = locations.iter().map(|_| Mutex::new(FoundFile::Missing)).collect();
        let work = || {
            let mut buffer = vec![0; 256 << 10];
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(location) = locations.get(n) else { break };
                *found[n].lock().expect("no holder panics") = self.digest_of(location, &mut buffer);
                self.n_files.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..STREAMS.min(locations.len()) {
                scope.spawn(work);
            }
            work();
        });
        found.into_iter().map(|one| one.into_inner().expect("no holder panics")).collect()
    }

    fn digest_of(&self, location: &str, buffer: &mut [u8]) -> FoundFile {
        let missing = |e: &eyas_storage::Error| match e.kind() {
            ErrorKind::NotFound => FoundFile::Missing,
            _ => FoundFile::Unreadable,
        };
        let parsed = Location::parse(location, Path::new("/"));
        let mut opened = match parsed.and_then(|location| self.homes.open(&location, None)) {
            Ok(opened) => opened,
            Err(e) => return missing(&e),
        };
        let mut hasher = blake3::Hasher::new();
        loop {
            match opened.reader.read(buffer) {
                Ok(0) => return FoundFile::Bytes(Digest(*hasher.finalize().as_bytes())),
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    self.n_bytes.fetch_add(n as u64, Ordering::Relaxed);
                    self.report_progress();
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return FoundFile::Unreadable,
            }
        }
    }

    fn report_progress(&self) {
        let Ok(mut last_report) = self.last_report.try_lock() else { return };
        if last_report.elapsed() >= REPORT_EVERY {
            *last_report = Instant::now();
            (self.report)(self.n_files.load(Ordering::Relaxed), self.n_bytes.load(Ordering::Relaxed));
        }
    }
}
