//! Rates of a journal on the disk that a directory is on; used by `eyas-lab bench journal`.
//!
//! In: a directory, the number and size of the records, the number of threads. Out: [`AppendRate`].

use crate::{Journal, Options, Result, Sync};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

/// The results of [`append_rate`].
#[derive(Clone, Copy, Debug)]
pub struct AppendRate {
    pub records_n: u64,
    pub body_bytes: usize,
    pub producers_n: usize,
    /// Time from the first append until the last record was durable.
    pub elapsed_ns: u64,
    pub records_per_s: f64,
    /// Bytes of bodies per second, without the bytes that the files have in addition.
    pub body_bytes_per_s: f64,
    pub fdatasyncs_n: u64,
    /// Median time of one record that is appended and waited for while nothing else goes on.
    pub commit_alone_ns: u64,
    /// The rate of opening the journal again and reading all records, with a warm page cache.
    pub replay_records_per_s: f64,
}

/// Appends `records_n` records of `body_bytes` each from `producers_n` threads (at least 1) and waits until
/// all are durable.
///
/// `dir` has to be a directory for this purpose alone; the journal is left in it.
pub fn append_rate(
    dir: &Path,
    sync: Sync,
    records_n: u64,
    body_bytes: usize,
    producers_n: usize,
) -> Result<AppendRate> {
    const ALONE_N: usize = 51;
    let producers_n = producers_n.max(1);
    let (journal, _) = Journal::open(dir, Options { sync, ..Options::default() })?;
    let body = vec![0xA5; body_bytes];

    let mut alone_ns = Vec::with_capacity(ALONE_N);
    for _ in 0..ALONE_N {
        let start = Instant::now();
        journal.wait_durable(journal.append_waiting(&body)?)?;
        alone_ns.push(elapsed_ns(start));
    }
    alone_ns.sort_unstable();

    let before = journal.stats();
    let failed = Mutex::new(None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for producer in 0..producers_n as u64 {
            let (journal, body, failed) = (&journal, &body, &failed);
            let share_n =
                records_n / producers_n as u64 + u64::from(producer < records_n % producers_n as u64);
            scope.spawn(move || {
                for _ in 0..share_n {
                    if let Err(error) = journal.append_waiting(body) {
                        failed.lock().expect("no producer panics").get_or_insert(error);
                        return;
                    }
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().expect("no producer panics") {
        return Err(error);
    }
    journal.flush()?;
    let append_ns = elapsed_ns(start);
    let elapsed_s = append_ns as f64 / 1e9;
    let fdatasyncs_n = journal.stats().fdatasyncs_n - before.fdatasyncs_n;
    journal.close()?;

    let start = Instant::now();
    let (journal, recovered) = Journal::open(dir, Options { sync, ..Options::default() })?;
    let replayed_n = recovered.records_n;
    recovered.for_each(|_, body| {
        std::hint::black_box(body);
    })?;
    let replay_s = elapsed_ns(start) as f64 / 1e9;
    journal.close()?;
    Ok(AppendRate {
        records_n,
        body_bytes,
        producers_n,
        elapsed_ns: append_ns,
        records_per_s: records_n as f64 / elapsed_s,
        body_bytes_per_s: records_n as f64 * body_bytes as f64 / elapsed_s,
        fdatasyncs_n,
        commit_alone_ns: alone_ns[ALONE_N / 2],
        replay_records_per_s: replayed_n as f64 / replay_s,
    })
}

fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
