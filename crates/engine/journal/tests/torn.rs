//! Invariants 1 and 3: whatever end of the file a crash leaves, recovery gives a prefix with all
//! acknowledged records; damage elsewhere is an error.

mod support;

use eyas_journal::{ErrorKind, Journal, Options, Seq, Step};
use proptest::prelude::*;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use support::*;

/// The end of the last segment when this record had been acknowledged.
struct Acked {
    seq: u64,
    segment: std::path::PathBuf,
    file_bytes: u64,
}

/// Appends batches of these sizes, each acknowledged before the next. Leaves the directory as `kill -9`
/// would.
fn write_batches(dir: &Path, batches: &[Vec<Vec<u8>>], segment_bytes: u64) -> Vec<Acked> {
    let live = memory_dir();
    let (journal, _) = Journal::open(live.path(), small_segments(segment_bytes)).unwrap();
    let mut acked = Vec::new();
    for batch in batches {
        for body in batch {
            journal.append(body).unwrap();
        }
        journal.flush().unwrap();
        let last = files(live.path(), "segment-").pop().unwrap();
        acked.push(Acked {
            seq: journal.last_seq().0,
            file_bytes: fs::metadata(&last).unwrap().len(),
            segment: dir.join(last.file_name().unwrap()),
        });
    }
    copy_dir(live.path(), dir);
    acked
}

fn bodies() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let body = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..40),
        // Bytes that could be mistaken for frames and markers.
        1 => prop::collection::vec(prop_oneof![Just(0u8), Just(0xFFu8)], 0..80),
    ];
    prop::collection::vec(prop::collection::vec(body, 1..5), 1..6)
}

#[derive(Clone, Copy, Debug)]
enum Tail {
    Cut,
    /// The file keeps its length, but its end never reached the disk.
    Zeros,
    Garbage,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cut the last segment at each of its bytes, in three ways.
    #[test]
    fn any_end_recovers_a_prefix_with_all_acknowledged(
        batches in bodies(),
        garbage in prop::collection::vec(any::<u8>(), 1..100),
        roll in any::<bool>(),
    ) {
        let root = memory_dir();
        let (whole, crashed) = (root.path().join("whole"), root.path().join("crashed"));
        let acked = write_batches(&whole, &batches, if roll { 150 } else { 1 << 20 });
        let all: Vec<Vec<u8>> = batches.into_iter().flatten().collect();
        let last = files(&whole, "segment-").pop().unwrap();
        let file_bytes = fs::metadata(&last).unwrap().len();
        for cut in 0..=file_bytes {
            for tail in [Tail::Cut, Tail::Zeros, Tail::Garbage] {
                copy_dir(&whole, &crashed);
                let file = OpenOptions::new().write(true).open(crashed.join(last.file_name().unwrap())).unwrap();
                file.set_len(cut).unwrap();
                match tail {
                    Tail::Cut => {}
                    Tail::Zeros => file.set_len(file_bytes).unwrap(),
                    // In the header, a garbled segment cannot be distinguished from a foreign file.
                    Tail::Garbage if cut < 40 => continue,
                    Tail::Garbage => file.write_all_at(&garbage, cut).unwrap(),
                }
                let records = read_all(&crashed).unwrap();
                let got: Vec<_> = records.iter().map(|(_, body)| body.clone()).collect();
                prop_assert_eq!(&got[..], &all[..got.len()], "{:?} at {}", tail, cut);
                prop_assert!(records.iter().map(|(seq, _)| *seq).eq(1..=got.len() as u64));
                let must_n = acked
                    .iter()
                    .filter(|ack| ack.segment.file_name() != last.file_name() || ack.file_bytes <= cut)
                    .map(|ack| ack.seq)
                    .max()
                    .unwrap_or(0);
                prop_assert!(got.len() as u64 >= must_n, "{:?} at {}: {} of {}", tail, cut, got.len(), must_n);

                // And the journal goes on from there.
                let (journal, recovered) = Journal::open(&crashed, unsynced()).unwrap();
                prop_assert_eq!(recovered.truncated_bytes, 0);
                let seq = journal.append(b"after").unwrap();
                journal.close().unwrap();
                let records = read_all(&crashed).unwrap();
                prop_assert_eq!(records.len(), got.len() + 1);
                prop_assert_eq!(records.last().unwrap(), &(seq.0, b"after".to_vec()));
            }
        }
    }

    /// Flips each byte of each file: recovery gives an error that names the file, or only unacknowledged
    /// records are missing.
    #[test]
    fn a_flipped_byte_never_loses_a_record_that_a_later_batch_proves(batches in bodies(), roll in any::<bool>()) {
        let root = memory_dir();
        let (whole, damaged) = (root.path().join("whole"), root.path().join("damaged"));
        let acked = write_batches(&whole, &batches, if roll { 150 } else { 1 << 20 });
        let all: Vec<Vec<u8>> = batches.into_iter().flatten().collect();
        // A marker or a segment follows every batch but the last.
        let proven_n = if acked.len() < 2 { 0 } else { acked[acked.len() - 2].seq as usize };
        for path in files(&whole, "segment-") {
            for at in 0..fs::metadata(&path).unwrap().len() {
                copy_dir(&whole, &damaged);
                let path = damaged.join(path.file_name().unwrap());
                let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
                match read_all(&damaged) {
                    Ok(records) => {
                        let got: Vec<_> = records.into_iter().map(|(_, body)| body).collect();
                        prop_assert_eq!(&got[..], &all[..got.len()]);
                        prop_assert!(got.len() >= proven_n, "byte {}: {} of {}", at, got.len(), proven_n);
                    }
                    Err(error) => {
                        prop_assert_eq!(&error.path, &path);
                        match error.kind {
                            ErrorKind::Corrupt { offset, .. } => prop_assert!(offset <= at),
                            ErrorKind::NotAJournal | ErrorKind::Version { .. } => prop_assert!(at < 12),
                            other => prop_assert!(false, "{other:?}"),
                        }
                    }
                }
            }
        }
    }
}

/// Leaves exactly two batches, record 1 and records 2 to 199, as `kill -9` would; with `third` also record
/// 200. Returns the segment with its second batch damaged, and where: a page of zeros behind its first
/// records.
fn write_with_hole(dir: &Path, third: bool) -> (std::path::PathBuf, u64) {
    let live = tempfile::tempdir().unwrap();
    // While the disk works on the first batch, which lasts until the gate opens, all other records become
    // the second batch.
    let (opens, gate) = mpsc::channel();
    let (arrives, arrived) = mpsc::channel();
    let gate = Mutex::new(gate);
    let arrives = Mutex::new(arrives);
    let hook = move |step| {
        if step == Step::SegmentCreate {
            arrives.lock().unwrap().send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
        }
        Ok(())
    };
    let options = Options { on_step: Some(Box::new(hook)), ..Options::default() };
    let (journal, _) = Journal::open(live.path(), options).unwrap();
    journal.append(&body(1)).unwrap();
    arrived.recv().unwrap();
    for seq in 2..200 {
        journal.append(&body(seq)).unwrap();
    }
    opens.send(()).unwrap();
    journal.flush().unwrap();
    assert_eq!(journal.stats().batches_n, 2);
    if third {
        journal.append(&body(200)).unwrap();
        journal.flush().unwrap();
    }
    copy_dir(live.path(), dir);
    let path = files(dir, "segment-").pop().unwrap();
    let hole = 40 + 32 + 8 + body(1).len() as u64 + 200;
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[0; 512], hole).unwrap();
    (path, hole)
}

/// A power loss may keep the later pages of an unfinished batch and lose the earlier ones.
#[test]
fn a_hole_in_an_unfinished_batch_is_torn_and_not_damage() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    let (segment, hole) = write_with_hole(&dir, false);
    let (_journal, recovered) = Journal::open(&dir, Options::default()).unwrap();
    let (path, file_bytes) = recovered.truncated_at.clone().unwrap();
    assert_eq!(path, segment);
    assert_eq!(fs::metadata(&path).unwrap().len(), file_bytes);
    assert!(recovered.truncated_bytes > 512 && file_bytes <= hole);
    let records = collect(recovered).unwrap();
    assert_eq!(records, numbered(1..=records.len() as u64));
    assert!(!records.is_empty() && records.len() < 199);
}

#[test]
fn the_same_hole_is_damage_when_a_later_batch_proves_it_had_been_durable() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    let (segment, hole) = write_with_hole(&dir, true);
    let before = fs::read(&segment).unwrap();
    let error = Journal::open(&dir, Options::default()).unwrap_err();
    assert!(
        matches!(error.kind, ErrorKind::Corrupt { offset, .. } if offset <= hole && offset > 40),
        "{error:?}"
    );
    assert_eq!(error.path, segment);
    assert!(error.to_string().contains("is damaged at byte"), "{error}");
    assert_eq!(fs::read(&segment).unwrap(), before, "a refused file is left as it is");
}

#[test]
fn damage_in_the_last_batch_is_seen_after_a_clean_end() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    journal.append(&body(1)).unwrap();
    journal.close().unwrap();
    let path = files(root.path(), "segment-").pop().unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"!", 40 + 32 + 8 + 3).unwrap();
    let error = read_all(root.path()).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Corrupt { offset: 72, .. }), "{error:?}");
}

#[test]
fn opening_and_closing_adds_nothing() {
    let root = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        Journal::open(root.path(), Options::default()).unwrap().0.close().unwrap();
    }
    assert_eq!(files(root.path(), "segment-").len(), 0);
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    journal.append(b"").unwrap();
    journal.close().unwrap();
    let path = files(root.path(), "segment-").pop().unwrap();
    let before = fs::read(&path).unwrap();
    for _ in 0..3 {
        Journal::open(root.path(), Options::default()).unwrap().0.close().unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(read_all(root.path()).unwrap(), [(1, Vec::new())]);
}

#[test]
fn damage_in_an_earlier_segment_and_a_missing_one_are_named() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    write_batches(&dir, &(1..=9).map(|seq| vec![body(seq)]).collect::<Vec<_>>(), 100);
    let segments = files(&dir, "segment-");
    assert!(segments.len() >= 4, "{segments:?}");
    let second_bytes = fs::metadata(&segments[1]).unwrap().len();
    let file = OpenOptions::new().write(true).open(&segments[1]).unwrap();
    file.set_len(second_bytes - 1).unwrap();
    let error = read_all(&dir).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Corrupt { .. }), "{error:?}");
    assert_eq!(error.path, segments[1]);

    fs::remove_file(&segments[0]).unwrap();
    let error = read_all(&dir).unwrap_err();
    assert!(error.to_string().contains("the segment with record 1 is missing"), "{error}");
}

#[test]
fn another_version_and_a_foreign_file_are_refused_by_name() {
    for (version, word) in [(0u32, "older"), (2, "newer"), (77, "newer")] {
        let root = tempfile::tempdir().unwrap();
        write_batches(&root.path().join("journal"), &[vec![body(1)]], 1 << 20);
        let dir = root.path().join("journal");
        let path = files(&dir, "segment-").pop().unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&version.to_le_bytes(), 8).unwrap();
        let error = read_all(&dir).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Version { found: version, supported: 1 });
        assert!(error.to_string().contains(word), "{error}");
    }
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("segment-00000000000000000001.log"), [b'x'; 100]).unwrap();
    assert_eq!(read_all(root.path()).unwrap_err().kind, ErrorKind::NotAJournal);
}

#[test]
fn a_second_opener_learns_which_process_has_the_directory() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    let error = Journal::open(root.path(), Options::default()).unwrap_err();
    let pid = std::process::id();
    assert_eq!(error.kind, ErrorKind::InUse { pid: Some(pid) });
    assert_eq!(error.to_string(), format!("another dispatcher (pid {pid}) uses {}", root.path().display()));
    drop(journal);
    Journal::open(root.path(), Options::default()).unwrap();
}

#[test]
fn records_are_handed_out_one_at_a_time_and_the_reader_may_stop() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options { segment_bytes: 1 << 20, ..unsynced() }).unwrap();
    let record = vec![7; 1000];
    for _ in 0..20_000 {
        journal.append_waiting(&record).unwrap();
    }
    journal.close().unwrap();
    let (_journal, recovered) = Journal::open(root.path(), unsynced()).unwrap();
    assert_eq!((recovered.records_n, recovered.last_seq), (20_000, Seq(20_000)));
    let mut seen_n = 0;
    let stopped = recovered.try_for_each(|seq, body| {
        assert_eq!(body, record);
        seen_n += 1;
        if seq.0 == 15_000 { Err("enough") } else { Ok(()) }
    });
    assert_eq!((stopped.unwrap(), seen_n), (Err("enough"), 15_000));
}

#[test]
fn an_end_that_was_durable_when_the_journal_was_closed_is_not_taken_for_a_torn_one() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(root.path(), Options::default()).unwrap();
    for seq in 1..=20 {
        journal.append(&body(seq)).unwrap();
    }
    journal.close().unwrap();
    let segment = files(root.path(), "segment-").pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    type Damage = fn(&[u8]) -> Option<Vec<u8>>;
    let kinds: [(&str, Damage); 5] = [
        ("zeros", |whole| Some(vec![0; whole.len()])),
        ("empty", |_| Some(vec![])),
        ("gone", |_| None),
        ("half", |whole| Some(whole[..whole.len() / 2].to_vec())),
        ("a part of its header", |whole| Some(whole[..7].to_vec())),
    ];
    for (name, damage) in kinds {
        let left = damage(&whole);
        match &left {
            Some(bytes) => fs::write(&segment, bytes).unwrap(),
            None => fs::remove_file(&segment).unwrap(),
        }
        let error = Journal::open(root.path(), Options::default()).unwrap_err();
        assert!(error.to_string().contains("record 20 was durable"), "{name}: {error}");
        assert_eq!(fs::read(&segment).ok(), left, "{name}: it is left as it was found");
        fs::write(&segment, &whole).unwrap();
    }
    let (journal, recovered) = Journal::open(root.path(), Options::default()).unwrap();
    assert_eq!(collect(recovered).unwrap(), numbered(1..=20));
    // A later record that a power loss cuts off is a torn end as before: nobody has noted that it was durable.
    journal.append(&body(21)).unwrap();
    journal.flush().unwrap();
    let copy = root.path().join("copy");
    copy_dir(root.path(), &copy);
    fs::write(files(&copy, "segment-").pop().unwrap(), &whole).unwrap();
    let (_, recovered) = Journal::open(&copy, Options::default()).unwrap();
    assert_eq!(collect(recovered).unwrap(), numbered(1..=20));
}
