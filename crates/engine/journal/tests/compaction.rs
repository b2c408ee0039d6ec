//! Compaction: a crash between any two steps, and a refusal of any step, leaves a valid journal.

mod support;

use eyas_journal::{Compacted, Error, ErrorKind, Journal, Options, Seq, Step};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::*;

/// Bodies of a snapshot; none of them is also the body of a record.
fn snapshot() -> Vec<Vec<u8>> {
    (0..5u8).map(|n| format!("snapshot part {n}").into_bytes()).collect()
}

/// The records that recovery hands out after a compaction that covers `covers`, with records up to `last`.
fn compacted(covers: u64, last: u64) -> Vec<(u64, Vec<u8>)> {
    snapshot().into_iter().map(|body| (covers, body)).chain(numbered(covers + 1..=last)).collect()
}

fn compact<B: AsRef<[u8]>>(
    journal: &Journal,
    covers: Seq,
    records: impl IntoIterator<Item = B>,
) -> Result<Compacted, Error> {
    journal.compact(covers, |push| records.into_iter().try_for_each(|body| push(body.as_ref())))
}

fn append(journal: &Journal, seqs: impl IntoIterator<Item = u64>) {
    for seq in seqs {
        assert_eq!(journal.append(&body(seq)).unwrap(), Seq(seq));
        journal.flush().unwrap();
    }
}

#[test]
fn a_snapshot_replaces_what_it_covers_and_keeps_what_follows() {
    for (covers, last) in [(0, 0), (0, 9), (5, 9), (9, 9)] {
        let root = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(root.path(), small_segments(200)).unwrap();
        append(&journal, 1..=last);
        let segments_before_n = files(root.path(), "segment-").len();
        let done = compact(&journal, Seq(covers), snapshot()).unwrap();
        assert_eq!(done.records_n, 5);
        let segments_n = files(root.path(), "segment-").len();
        assert_eq!(done.freed_bytes > 0, segments_n < segments_before_n);
        if covers == last {
            assert_eq!((segments_n, journal.stats().segment_bytes), (0, 0));
        }
        drop(journal);
        assert_eq!(read_all(root.path()).unwrap(), compacted(covers, last));

        // Numbers continue, and a second compaction replaces the first.
        let (journal, recovered) = Journal::open(root.path(), small_segments(200)).unwrap();
        assert_eq!((recovered.snapshot_records_n, recovered.records_n), (5, 5 + last - covers));
        append(&journal, last + 1..=last + 4);
        compact(&journal, Seq(last + 3), snapshot()).unwrap();
        assert_eq!(files(root.path(), "snapshot").len(), 1);
        journal.close().unwrap();
        assert_eq!(read_all(root.path()).unwrap(), compacted(last + 3, last + 4));
    }
}

#[test]
fn an_open_journal_can_be_read_and_compacted_to_a_part_of_itself() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), small_segments(200)).unwrap();
    append(&journal, 1..=9);
    let read = |upto: u64| {
        let mut records = vec![];
        journal.read(Seq(upto)).unwrap().for_each(|seq, body| records.push((seq.0, body.to_vec()))).unwrap();
        records
    };
    assert_eq!(read(6), numbered(1..=6));
    // Every other record is still needed.
    let done = journal.compact(Seq(6), |push| {
        let keep = |seq: Seq, body: &[u8]| if seq.0.is_multiple_of(2) { push(body) } else { Ok(()) };
        journal.read(Seq(6))?.try_for_each(keep)?
    });
    assert_eq!(done.unwrap().records_n, 3);
    append(&journal, 10..=12);
    let kept = [2, 4, 6].map(|n| (6, body(n))).into_iter().chain(numbered(7..=12)).collect::<Vec<_>>();
    assert_eq!(read(12), kept);
    // A `write` that fails in the middle leaves the journal as it was.
    let failed = journal.compact(Seq(11), |push| {
        push(b"one")?;
        journal.wait_durable(Seq(99))
    });
    assert!(failed.is_err());
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), kept);
}

#[test]
fn segments_before_a_new_one_can_be_freed_while_records_come() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    assert_eq!(journal.begin_segment().unwrap(), Seq(0));
    append(&journal, 1..=9);
    let covers = journal.begin_segment().unwrap();
    assert_eq!((covers, journal.begin_segment().unwrap()), (Seq(9), Seq(9)));
    append(&journal, 10..=12);
    let before = journal.stats().segment_bytes;
    let done = compact(&journal, covers, snapshot()).unwrap();
    assert!(done.freed_bytes > 0 && journal.stats().segment_bytes < before);
    append(&journal, 13..=13);
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), compacted(9, 13));
}

#[test]
fn an_empty_snapshot_and_a_repeated_one_are_fine() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    append(&journal, 1..=3);
    compact(&journal, Seq(3), Vec::<Vec<u8>>::new()).unwrap();
    compact(&journal, Seq(3), snapshot()).unwrap();
    append(&journal, 4..=4);
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), compacted(3, 4));
}

#[test]
fn a_snapshot_of_the_future_or_of_the_past_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    append(&journal, 1..=3);
    assert!(matches!(compact(&journal, Seq(4), snapshot()).unwrap_err().kind, ErrorKind::Invalid { .. }));
    compact(&journal, Seq(3), snapshot()).unwrap();
    assert!(matches!(compact(&journal, Seq(2), snapshot()).unwrap_err().kind, ErrorKind::Invalid { .. }));
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), compacted(3, 3));
}

#[test]
fn a_snapshot_never_gets_ahead_of_what_is_durable() {
    let root = tempfile::tempdir().unwrap();
    let hook = |step| match step {
        Step::BatchSync => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    };
    let (journal, _) =
        Journal::open(root.path(), Options { on_step: Some(Box::new(hook)), ..Options::default() }).unwrap();
    let seq = journal.append(&body(1)).unwrap();
    assert_eq!(compact(&journal, seq, snapshot()).unwrap_err().kind, ErrorKind::Stalled);
    assert!(files(root.path(), "snapshot").is_empty());
}

/// A crash before a step leaves the directory as it is before that step: each such copy has to be one of
/// the two states.
#[test]
fn a_crash_between_any_two_steps_leaves_the_old_or_the_new_state() {
    for covers in [4, 8] {
        let root = tempfile::tempdir().unwrap();
        let (dir, images) = (root.path().join("journal"), root.path().join("images"));
        std::fs::create_dir(&images).unwrap();
        let armed = Arc::new(AtomicBool::new(false));
        let steps = Arc::new(Mutex::new(Vec::new()));
        let hook = {
            let (dir, images) = (dir.clone(), images.clone());
            let (armed, steps) = (Arc::clone(&armed), Arc::clone(&steps));
            move |step: Step| -> io::Result<()> {
                if armed.load(Ordering::SeqCst) {
                    let mut steps = steps.lock().unwrap();
                    copy_dir(&dir, &images.join(steps.len().to_string()));
                    steps.push(step);
                }
                Ok(())
            }
        };
        let (journal, _) =
            Journal::open(&dir, Options { on_step: Some(Box::new(hook)), ..small_segments(150) }).unwrap();
        append(&journal, 1..=1);
        compact(&journal, Seq(1), ["an older snapshot"]).unwrap();
        append(&journal, 2..=8);
        armed.store(true, Ordering::SeqCst);
        compact(&journal, Seq(covers), snapshot()).unwrap();
        append(&journal, 9..=9);
        armed.store(false, Ordering::SeqCst);
        drop(journal);

        let steps = steps.lock().unwrap();
        for expected in [Step::SnapshotCreate, Step::SnapshotWrite, Step::SnapshotSync, Step::SnapshotRename]
        {
            assert!(steps.contains(&expected), "{expected:?}");
        }
        for expected in [Step::SnapshotDirSync, Step::SnapshotDrop, Step::SegmentDrop] {
            assert!(steps.contains(&expected), "{expected:?}");
        }
        let old: Vec<_> = [(1, b"an older snapshot".to_vec())].into_iter().chain(numbered(2..=8)).collect();
        let renamed_at = steps.iter().position(|step| *step == Step::SnapshotDirSync).unwrap();
        for (n, step) in steps.iter().enumerate() {
            let image = images.join(n.to_string());
            let records = read_all(&image).unwrap();
            if n < renamed_at {
                assert_eq!(records, old, "before {step:?}");
            } else {
                assert!(
                    records == compacted(covers, 8) || records == compacted(covers, 9),
                    "before {step:?}"
                );
            }
            goes_on(&image, records);
        }
    }
}

/// A crashed journal that was opened again can be appended to and compacted, and has no leftovers.
fn goes_on(dir: &Path, mut records: Vec<(u64, Vec<u8>)>) {
    assert!(files(dir, "snapshot").len() <= 1);
    let (journal, recovered) = Journal::open(dir, small_segments(150)).unwrap();
    let last = recovered.last_seq.0;
    append(&journal, last + 1..=last + 1);
    journal.close().unwrap();
    records.push((last + 1, body(last + 1)));
    assert_eq!(read_all(dir).unwrap(), records);
}

#[test]
fn a_refused_step_leaves_the_journal_usable() {
    for refused in [
        Step::SnapshotCreate,
        Step::SnapshotWrite,
        Step::SnapshotSync,
        Step::SnapshotRename,
        Step::SnapshotDirSync,
        Step::SnapshotDrop,
        Step::SegmentDrop,
    ] {
        let root = tempfile::tempdir().unwrap();
        let armed = Arc::new(AtomicBool::new(false));
        let hook = {
            let armed = Arc::clone(&armed);
            move |step| match step == refused && armed.load(Ordering::SeqCst) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        };
        let options = Options { on_step: Some(Box::new(hook)), ..small_segments(150) };
        let (journal, _) = Journal::open(root.path(), options).unwrap();
        append(&journal, 1..=2);
        compact(&journal, Seq(2), ["an older snapshot"]).unwrap();
        append(&journal, 3..=8);
        armed.store(true, Ordering::SeqCst);
        let result = compact(&journal, Seq(6), snapshot());
        // Removing superfluous files may fail without harm.
        assert_eq!(result.is_ok(), matches!(refused, Step::SnapshotDrop | Step::SegmentDrop), "{refused:?}");
        assert!(!root.path().join("snapshot.tmp").exists());
        armed.store(false, Ordering::SeqCst);
        append(&journal, 9..=9);

        let crashed = tempfile::tempdir().unwrap();
        copy_dir(root.path(), &crashed.path().join("image"));
        let records = read_all(&crashed.path().join("image")).unwrap();
        let old: Vec<_> = [(2, b"an older snapshot".to_vec())].into_iter().chain(numbered(3..=9)).collect();
        assert!(records == old || records == compacted(6, 9), "{refused:?}");

        compact(&journal, Seq(6), snapshot()).unwrap();
        journal.close().unwrap();
        assert_eq!(read_all(root.path()).unwrap(), compacted(6, 9), "{refused:?}");
        assert_eq!(files(root.path(), "snapshot").len(), 1);
    }
}

#[test]
fn a_damaged_snapshot_is_an_error_and_not_an_empty_journal() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    append(&journal, 1..=3);
    compact(&journal, Seq(3), snapshot()).unwrap();
    journal.close().unwrap();
    let path = files(root.path(), "snapshot").pop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        // The last four bytes of the header mean nothing.
        if (36..40).contains(&at) {
            continue;
        }
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(read_all(root.path()).unwrap_err().path, path, "byte {at}");
        std::fs::write(&path, &bytes[..at]).unwrap();
        assert_eq!(read_all(root.path()).unwrap_err().path, path, "cut at {at}");
    }
}

#[test]
fn appending_goes_on_while_a_snapshot_is_written() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), small_segments(2000)).unwrap();
    append(&journal, 1..=20);
    let covers = journal.last_seq();
    let during = snapshot().into_iter().enumerate().map(|(n, part)| {
        let seq = 21 + n as u64;
        append(&journal, seq..=seq);
        part
    });
    compact(&journal, covers, during).unwrap();
    journal.close().unwrap();
    assert_eq!(read_all(root.path()).unwrap(), compacted(20, 25));
}
