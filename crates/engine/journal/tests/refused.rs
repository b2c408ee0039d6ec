//! A disk that refuses: no record is acknowledged that is not durable, none is lost or overtaken, and the
//! journal goes on afterwards.

mod support;

use eyas_journal::{ErrorKind, Health, Journal, Notice, Options, Seq, Status, Step, Sync};
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::*;

/// The steps that are refused, changed by the test while the journal runs.
#[derive(Clone, Default)]
struct Refused(Arc<Mutex<Vec<(Step, io::ErrorKind)>>>);

impl Refused {
    fn set(&self, refused: &[(Step, io::ErrorKind)]) {
        *self.0.lock().unwrap() = refused.to_vec();
    }

    fn hook(&self) -> Box<dyn Fn(Step) -> io::Result<()> + Send + std::marker::Sync> {
        let refused = self.clone();
        Box::new(move |step| match refused.0.lock().unwrap().iter().find(|(refused, _)| *refused == step) {
            Some((_, kind)) => Err((*kind).into()),
            None => Ok(()),
        })
    }
}

fn options(refused: &Refused) -> Options {
    // The journal tries again only when asked to, so that the tests decide what happens when.
    Options { on_step: Some(refused.hook()), retry_interval: Duration::from_secs(3600), ..Options::default() }
}

fn is_stalled(journal: &Journal) -> bool {
    matches!(journal.health(), Health::Stalled(_))
}

#[test]
fn each_refused_step_stalls_keeps_the_order_and_goes_on() {
    for step in [Step::BatchWrite, Step::BatchSync, Step::SegmentCreate, Step::DirSync] {
        for before_n in [0, 3] {
            let root = tempfile::tempdir().unwrap();
            let refused = Refused::default();
            let mut options = options(&refused);
            if matches!(step, Step::SegmentCreate | Step::DirSync) {
                options.segment_bytes = 1; // each batch needs a segment
            }
            let (journal, _) = Journal::open(root.path(), options).unwrap();
            for seq in 1..=before_n {
                journal.append(&body(seq)).unwrap();
            }
            journal.flush().unwrap();
            refused.set(&[(step, io::ErrorKind::StorageFull)]);
            journal.append(&body(before_n + 1)).unwrap();
            let error = journal.flush().unwrap_err();
            assert_eq!((&error.kind, error.status()), (&ErrorKind::Stalled, Status::Persistent));
            assert_eq!(journal.durable_seq(), Seq(before_n));
            // A record that comes meanwhile waits behind the refused one.
            journal.append(&body(before_n + 2)).unwrap();
            // A crash now leaves the acknowledged records, and perhaps those that were being written.
            let crashed = root.path().join("crashed");
            std::fs::create_dir(&crashed).unwrap();
            for path in files(root.path(), "segment-") {
                std::fs::copy(&path, crashed.join(path.file_name().unwrap())).unwrap();
            }
            let records = read_all(&crashed).unwrap();
            assert!(records.len() as u64 >= before_n, "{step:?}");
            assert_eq!(records, numbered(1..=records.len() as u64));

            let tries_n = || match journal.health() {
                Health::Stalled(stall) => stall.tries_n,
                other => panic!("{other:?}"),
            };
            let before = tries_n();
            journal.retry();
            eventually("another try", || tries_n() > before);
            assert_eq!(journal.durable_seq(), Seq(before_n));

            refused.set(&[]);
            journal.retry();
            eventually("the disk works again", || !is_stalled(&journal));
            journal.append(&body(before_n + 3)).unwrap();
            journal.close().unwrap();
            assert_eq!(read_all(root.path()).unwrap(), numbered(1..=before_n + 3), "{step:?}");
        }
    }
}

/// After a failed `fdatasync` the pages may be gone although the file looks complete: the batch goes into
/// another segment.
#[test]
fn a_file_whose_fdatasync_failed_is_never_written_again() {
    let root = tempfile::tempdir().unwrap();
    let refused = Refused::default();
    let (journal, _) = Journal::open(root.path(), options(&refused)).unwrap();
    journal.append(&body(1)).unwrap();
    journal.flush().unwrap();
    let first = files(root.path(), "segment-").pop().unwrap();
    let acked_bytes = std::fs::read(&first).unwrap();
    refused.set(&[(Step::BatchSync, io::ErrorKind::Other)]);
    journal.append(&body(2)).unwrap();
    journal.flush().unwrap_err();
    refused.set(&[]);
    journal.retry();
    eventually("the disk works again", || !is_stalled(&journal));
    journal.flush().unwrap();
    assert_eq!(std::fs::read(&first).unwrap(), acked_bytes);
    assert_eq!(files(root.path(), "segment-").len(), 2);
    journal.close().unwrap();

    // Recovery would ignore the old tail even if the tail had not been cut off.
    let mut with_tail = acked_bytes;
    with_tail.extend_from_slice(&[0xFF; 100]);
    std::fs::write(&first, with_tail).unwrap();
    assert_eq!(read_all(root.path()).unwrap(), numbered(1..=2));
}

#[test]
fn a_stall_is_reported_once_and_its_end_before_the_acknowledgement() {
    let root = tempfile::tempdir().unwrap();
    let refused = Refused::default();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let on_notice = move |notice| {
        hears.lock().unwrap().push(match notice {
            Notice::Durable(seq) => format!("durable {seq}"),
            Notice::Stalled(stall) => format!("stalled: {}", stall.operation),
            Notice::Resumed => "resumed".to_owned(),
        });
    };
    let (journal, _) =
        Journal::open(root.path(), Options { on_notice: Some(Box::new(on_notice)), ..options(&refused) })
            .unwrap();
    journal.append(b"a").unwrap();
    journal.flush().unwrap();
    refused.set(&[(Step::BatchWrite, io::ErrorKind::StorageFull)]);
    journal.append(b"b").unwrap();
    eventually("a stall", || is_stalled(&journal));
    journal.retry();
    eventually("two tries", || matches!(journal.health(), Health::Stalled(stall) if stall.tries_n >= 2));
    refused.set(&[]);
    journal.retry();
    eventually("the disk works again", || !is_stalled(&journal));
    journal.close().unwrap();
    let expected = ["durable 1", "stalled: write a batch to the journal", "resumed", "durable 2"];
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[test]
fn a_full_buffer_says_so_at_once_and_the_waiting_append_waits() {
    let root = tempfile::tempdir().unwrap();
    let refused = Refused::default();
    let (journal, _) =
        Journal::open(root.path(), Options { buffer_bytes_max: 1000, ..options(&refused) }).unwrap();
    refused.set(&[(Step::BatchWrite, io::ErrorKind::StorageFull)]);
    let mut appended_n = 1;
    journal.append(&[1; 100]).unwrap();
    eventually("a stall", || is_stalled(&journal));
    let error = loop {
        match journal.append(&[1; 100]) {
            Ok(_) => appended_n += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((&error.kind, error.status()), (&ErrorKind::Full, Status::Temporary));
    assert_eq!(appended_n, 1 + (1000 - 32) / 108);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| journal.append_waiting(&[2; 100]).unwrap());
        refused.set(&[]);
        journal.retry();
        assert_eq!(waiting.join().unwrap(), Seq(appended_n + 1));
    });
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap().len() as u64, appended_n + 1);
}

#[test]
fn closing_on_a_disk_that_refuses_says_that_records_were_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let refused = Refused::default();
    let (journal, _) = Journal::open(root.path(), options(&refused)).unwrap();
    journal.append(&body(1)).unwrap();
    journal.flush().unwrap();
    refused.set(&[(Step::BatchWrite, io::ErrorKind::StorageFull)]);
    journal.append(&body(2)).unwrap();
    assert_eq!(journal.close().unwrap_err().kind, ErrorKind::Stalled);
    assert_eq!(read_all(root.path()).unwrap(), numbered(1..=1));
}

#[test]
fn impossible_requests_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    assert!(matches!(journal.wait_durable(Seq(1)).unwrap_err().kind, ErrorKind::Invalid { .. }));
    let large = vec![0; eyas_journal::BODY_BYTES_MAX + 1];
    assert!(matches!(journal.append(&large).unwrap_err().kind, ErrorKind::TooLarge { .. }));
    journal.wait_durable(Seq(0)).unwrap();
}

#[test]
fn many_threads_wait_for_their_own_records_and_share_the_syncs() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    let bodies_sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..20u64 {
                    let seq = journal.append(&n.to_le_bytes()).unwrap();
                    bodies_sum.fetch_add(n, Ordering::Relaxed);
                    journal.wait_durable(seq).unwrap();
                    assert!(journal.durable_seq() >= seq);
                }
            });
        }
    });
    let stats = journal.stats();
    assert_eq!(stats.appended_n, 160);
    assert!(stats.fdatasyncs_n <= 160);
    journal.close().unwrap();
    let records = read_all(root.path()).unwrap();
    let sum: u64 = records.iter().map(|(_, body)| u64::from_le_bytes(body[..].try_into().unwrap())).sum();
    assert_eq!((records.len(), sum), (160, bodies_sum.into_inner()));
}

/// A file system of one MiB that is taken away again at the end.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(path).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(SmallDisk(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A real full disk, partial writes included. Needs the right to mount; the tests above need no rights.
#[test]
fn a_full_disk_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(root.path()) else {
        eprintln!("not run: mounting a tmpfs needs root");
        return;
    };
    let dir = root.path().join("journal");
    let ballast = root.path().join("ballast");
    std::fs::write(&ballast, vec![1; 600 << 10]).unwrap();
    for sync in [Sync::Fdatasync, Sync::None] {
        let retry_interval = Duration::from_millis(5);
        let (journal, recovered) =
            Journal::open(&dir, Options { sync, retry_interval, ..Options::default() }).unwrap();
        let mut seq = recovered.last_seq.0;
        while !is_stalled(&journal) {
            seq += 1;
            journal.append(&body(seq)).unwrap();
            if seq.is_multiple_of(50) {
                // The flush fails when the disk is full, which the loop notices.
                let _ = journal.flush();
            }
        }
        let Health::Stalled(stall) = journal.health() else { unreachable!("nobody made room") };
        assert_eq!(stall.error_kind, io::ErrorKind::StorageFull);
        assert!(journal.durable_seq() < journal.last_seq());
        // Between two tries the partial batch is cut off, which gives its space to other users of the disk.
        eventually("the partial batch is cut off", || {
            let on_disk_bytes = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len();
            files(&dir, "segment-").iter().map(on_disk_bytes).sum::<u64>() == journal.stats().segment_bytes
        });
        for _ in 0..100 {
            seq += 1;
            journal.append(&body(seq)).unwrap();
        }
        if sync == Sync::Fdatasync {
            std::fs::OpenOptions::new().write(true).open(&ballast).unwrap().set_len(300 << 10).unwrap();
        } else {
            std::fs::remove_file(&ballast).unwrap();
        }
        eventually("the journal goes on by itself", || !is_stalled(&journal));
        journal.flush().unwrap();
        journal.close().unwrap();
        assert_eq!(read_all(&dir).unwrap(), numbered(1..=seq));
    }
}

#[test]
fn uncommitted_records_share_one_sync_and_wait_for_it() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    for seq in 1..=100 {
        assert_eq!(journal.append_uncommitted(&body(seq)).unwrap(), Seq(seq));
    }
    journal.commit();
    eventually("the records are durable", || journal.durable_seq() == Seq(100));
    // More than one sync is possible: until it sleeps for the first time, the writer takes the records that
    // are there.
    assert!(journal.stats().fdatasyncs_n < 20, "{:?}", journal.stats());
    journal.append_uncommitted(&body(101)).unwrap();
    journal.flush().unwrap();
    journal.append_uncommitted(&body(102)).unwrap();
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), numbered(1..=102));
}

#[test]
fn a_commit_now_does_not_wait_for_the_interval_and_one_soon_does() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { commit_interval: Duration::from_secs(3600), ..Options::default() };
    let (journal, _) = Journal::open(root.path(), options).unwrap();
    journal.append_uncommitted(&body(1)).unwrap();
    journal.commit_soon();
    eventually("the first record is durable", || journal.durable_seq() == Seq(1));
    journal.append_uncommitted(&body(2)).unwrap();
    journal.commit_soon();
    assert_eq!(journal.durable_seq(), Seq(1));
    journal.append(&body(3)).unwrap();
    eventually("the others are durable", || journal.durable_seq() == Seq(3));
    assert_eq!(journal.stats().fdatasyncs_n, 2);
    journal.append_uncommitted(&body(4)).unwrap();
    journal.commit_soon();
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), numbered(1..=4));
}

#[test]
fn a_record_that_is_wanted_soon_is_durable_after_the_interval() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { commit_interval: Duration::from_millis(20), ..Options::default() };
    let (journal, _) = Journal::open(root.path(), options).unwrap();
    for seq in 1..=3 {
        journal.append_uncommitted(&body(seq)).unwrap();
        journal.commit_soon();
    }
    eventually("all are durable", || journal.durable_seq() == Seq(3));
}

#[test]
fn a_buffer_full_of_uncommitted_records_empties_itself() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { buffer_bytes_max: 256, ..Options::default() };
    let (journal, _) = Journal::open(root.path(), options).unwrap();
    for seq in 1..=100 {
        while let Err(error) = journal.append_uncommitted(&body(seq)) {
            assert_eq!(error.kind, ErrorKind::Full);
            eventually("there is room", || journal.durable_seq() == Seq(seq - 1));
        }
    }
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), numbered(1..=100));
}
