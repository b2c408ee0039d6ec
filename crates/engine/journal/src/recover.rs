//! Opening: find the snapshot and the segments, cut a torn tail, hand out the records.
//!
//! In: a directory. Out: the place where the writer goes on, and a [`Recovered`] that streams the records.
//!
//! Which records count:
//!   1. the records of the newest snapshot, which stands for all records up to its number C;
//!   2. after C, the records of each segment up to where the next segment begins. Bytes beyond that were
//!      being written when the disk failed; they were never acknowledged, and were written again in the
//!      next segment.
//!
//! Only the last segment may have a torn tail, so only this segment is read through while opening; all
//! others are checked when the records are handed out. An error at that time is as final as one while
//! opening.

use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::format::{
    FORMAT_VERSION, HEADER_BYTES, Header, HeaderFault, Item, Kind, RecordReader, was_durable,
};
use crate::{Seq, Sync};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A segment that is no longer written to.
pub(crate) struct Closed {
    pub path: PathBuf,
    /// The last record that counts in the segment.
    pub last_seq: u64,
    pub file_bytes: u64,
}

/// The segment that new records go to.
pub(crate) struct Current {
    pub file: File,
    pub path: PathBuf,
    pub first_seq: u64,
    /// The last durable record in the segment; `first_seq - 1` if there is none.
    pub last_seq: u64,
    /// The number of durable bytes; bytes of the file beyond them do not count.
    pub good_bytes: u64,
    /// The segment ends with a marker, so damage anywhere before it can be distinguished from a torn write.
    pub sealed: bool,
}

/// The state that the writer starts from.
pub(crate) struct FoundState {
    pub closed: Vec<Closed>,
    pub current: Option<Current>,
    pub last_seq: u64,
}

/// One file to hand out: the records after `after` up to `upto`, in the first `end_bytes` bytes.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    kind: Kind,
    seq: u64,
    after: u64,
    upto: u64,
    end_bytes: Option<u64>,
}

/// The records that earlier processes left in the journal, to be read once with [`Recovered::for_each`].
#[derive(Debug)]
pub struct Recovered {
    /// The number of records that [`Recovered::for_each`] will hand out, including those of the snapshot.
    pub records_n: u64,
    /// The number of these records that come from a snapshot.
    pub snapshot_records_n: u64,
    /// The number of the last record; 0 if there never was one.
    pub last_seq: Seq,
    /// Bytes of an unfinished write that were cut off; nothing in them had been acknowledged.
    pub truncated_bytes: u64,
    /// The file that the bytes were cut from, and its length now.
    pub truncated_at: Option<(PathBuf, u64)>,
    parts: Vec<Part>,
}

impl Recovered {
    /// Calls `visit` with each record in order. Memory: one record and a read buffer.
    ///
    /// A record of a snapshot comes with the number of the last record that the snapshot stands for. Must
    /// be called before the first [`crate::Journal::compact`], which removes the files read here.
    ///
    /// Fails with [`ErrorKind::Corrupt`] at the first damaged byte; the records before it have been handed
    /// out.
    pub fn for_each(self, mut visit: impl FnMut(Seq, &[u8])) -> Result<()> {
        let result: std::result::Result<(), Stop<std::convert::Infallible>> = self.walk(|seq, body| {
            visit(seq, body);
            Ok(())
        });
        result.map_err(|stop| match stop {
            Stop::Journal(error) => error,
            Stop::Visitor(never) => match never {},
        })
    }

    /// As [`Recovered::for_each`], but stops at the first error of `visit`, which is the inner result.
    pub fn try_for_each<E>(
        self,
        visit: impl FnMut(Seq, &[u8]) -> std::result::Result<(), E>,
    ) -> Result<std::result::Result<(), E>> {
        match self.walk(visit) {
            Ok(()) => Ok(Ok(())),
            Err(Stop::Visitor(error)) => Ok(Err(error)),
            Err(Stop::Journal(error)) => Err(error),
        }
    }

    fn walk<E>(
        self,
        mut visit: impl FnMut(Seq, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), Stop<E>> {
        for part in self.parts {
            let fail = |source| Error::io("read the journal", &part.path, source);
            let (file, header, file_bytes) = open_file(&part.path, part.kind, part.seq)?;
            let end_bytes = part.end_bytes.unwrap_or(file_bytes);
            let mut reader = RecordReader::new(file, &header, end_bytes).map_err(fail)?;
            let mut read_n = 0;
            while part.kind == Kind::Snapshot || reader.next_seq <= part.upto {
                match reader.next().map_err(fail)? {
                    Item::Record(seq) => {
                        read_n += 1;
                        if part.kind == Kind::Snapshot || seq > part.after {
                            visit(Seq(seq), &reader.body).map_err(Stop::Visitor)?;
                        }
                    }
                    Item::End => break,
                    Item::Bad(what) => return Err(Error::corrupt(&part.path, reader.offset, what).into()),
                }
            }
            let complete = match part.kind {
                Kind::Snapshot => read_n == header.records_n,
                Kind::Segment => reader.next_seq > part.upto,
            };
            if !complete {
                return Err(
                    Error::corrupt(&part.path, reader.offset, "records are missing at its end").into()
                );
            }
        }
        Ok(())
    }
}

/// The reason why [`Recovered::walk`] ended early.
enum Stop<E> {
    Journal(Error),
    Visitor(E),
}

impl<E> From<Error> for Stop<E> {
    fn from(error: Error) -> Self {
        Stop::Journal(error)
    }
}

/// Opens a file and checks that its header agrees with its name. Also gives its length in bytes.
fn open_file(path: &Path, kind: Kind, seq: u64) -> Result<(File, Header, u64)> {
    let fail = |source| Error::io("read the journal", path, source);
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(fail)?;
    let file_bytes = file.metadata().map_err(fail)?.len();
    let mut bytes = [0; HEADER_BYTES as usize];
    if file_bytes < HEADER_BYTES {
        return Err(Error::corrupt(path, file_bytes, "the file ends inside its header"));
    }
    file.read_exact(&mut bytes).map_err(fail)?;
    let header = Header::decode(&bytes).map_err(|fault| match fault {
        HeaderFault::NotAJournal => Error::new(ErrorKind::NotAJournal, "read the journal", path),
        HeaderFault::Version(found) => {
            let kind = ErrorKind::Version { found, supported: FORMAT_VERSION };
            Error::new(kind, "read the journal", path)
        }
        HeaderFault::Damaged(what) => Error::corrupt(path, 0, what),
    })?;
    if header.kind != kind || header.seq != seq {
        return Err(Error::corrupt(path, 0, "the file header does not fit the file's name"));
    }
    Ok((file, header, file_bytes))
}

/// Whether a file is what a crash leaves of a segment that was being created: the beginning of its header
/// and then nothing or zeros, and no marker that shows that the segment had been complete.
fn is_stillborn(path: &Path, first_seq: u64) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    (&mut file).take(HEADER_BYTES).read_to_end(&mut head)?;
    let expected = Header { kind: Kind::Segment, seq: first_seq, records_n: 0 }.encode();
    let good_n = head.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
    let is_partial = good_n < expected.len() && head[good_n..].iter().all(|&byte| byte == 0);
    Ok(is_partial && !was_durable(&mut file, 0)?)
}

/// The records up to `upto` of a directory that this process has open; all of them are durable. The
/// directory must not be compacted before they have been read.
pub(crate) fn read(dir: &Path, upto: u64) -> Result<Recovered> {
    let listing = files::list(dir).map_err(|source| Error::io("read the journal", dir, source))?;
    let mut parts = vec![];
    let mut snapshot_records_n = 0;
    let covers = listing.snapshots.last().copied().unwrap_or(0);
    if !listing.snapshots.is_empty() {
        let path = files::snapshot_path(dir, covers);
        snapshot_records_n = open_file(&path, Kind::Snapshot, covers)?.1.records_n;
        parts.push(Part { path, kind: Kind::Snapshot, seq: covers, after: 0, upto: covers, end_bytes: None });
    }
    let ends = listing.segments.iter().skip(1).map(|next| next - 1).chain([u64::MAX]);
    for (&seq, last) in listing.segments.iter().zip(ends) {
        let last = last.min(upto);
        if last > covers && seq <= last {
            let path = files::segment_path(dir, seq);
            parts.push(Part { path, kind: Kind::Segment, seq, after: covers, upto: last, end_bytes: None });
        }
    }
    Ok(Recovered {
        records_n: snapshot_records_n + upto.saturating_sub(covers),
        snapshot_records_n,
        last_seq: Seq(upto),
        truncated_bytes: 0,
        truncated_at: None,
        parts,
    })
}

/// Reads a directory that is already locked, and prepares its end for writing.
pub(crate) fn recover(dir: &Path, sync: Sync) -> Result<(FoundState, Recovered)> {
    let fail = |source| Error::io("open the journal", dir, source);
    files::remove(&dir.join(files::SNAPSHOT_TMP)).map_err(fail)?;
    let listing = files::list(dir).map_err(fail)?;

    let mut parts = Vec::new();
    let mut snapshot_records_n = 0;
    let covers = listing.snapshots.last().copied();
    if let Some(covers) = covers {
        let path = files::snapshot_path(dir, covers);
        let (_, header, _) = open_file(&path, Kind::Snapshot, covers)?;
        snapshot_records_n = header.records_n;
        parts.push(Part { path, kind: Kind::Snapshot, seq: covers, after: 0, upto: covers, end_bytes: None });
        for &older in &listing.snapshots[..listing.snapshots.len() - 1] {
            files::remove(&files::snapshot_path(dir, older)).map_err(fail)?;
        }
    }
    let covers = covers.unwrap_or(0);

    // A crash between the rename of a snapshot and the removal of its segments leaves segments that the
    // snapshot replaces.
    let mut segments = listing.segments;
    while segments.len() >= 2 && segments[1] <= covers + 1 {
        files::remove(&files::segment_path(dir, segments.remove(0))).map_err(fail)?;
    }

    // What a power loss may cut off was not durable before. Without syncs, nothing is.
    let reached = if sync == Sync::Fdatasync { files::reached(dir) } else { 0 };
    let lost = |path: &Path, offset, last_seq| {
        let what = format!("record {reached} was durable, and the last one that is there is {last_seq}");
        Error::corrupt(path, offset, what)
    };
    let mut truncated_bytes = 0;
    let mut truncated_at = None;
    let mut current = None;
    while let Some(&first_seq) = segments.last() {
        let path = files::segment_path(dir, first_seq);
        let fail = |source| Error::io("read the journal", &path, source);
        if is_stillborn(&path, first_seq).map_err(fail)? {
            if first_seq <= reached {
                return Err(lost(&path, 0, first_seq - 1));
            }
            truncated_bytes += std::fs::metadata(&path).map_err(fail)?.len();
            files::remove(&path).map_err(fail)?;
            truncated_at = Some((path, 0));
            segments.pop();
            continue;
        }
        let (mut file, header, file_bytes) = open_file(&path, Kind::Segment, first_seq)?;
        let mut reader =
            RecordReader::new(file.try_clone().map_err(fail)?, &header, file_bytes).map_err(fail)?;
        let bad = loop {
            match reader.next().map_err(fail)? {
                Item::Record(_) => {}
                Item::End => break None,
                Item::Bad(what) => break Some(what),
            }
        };
        let good_bytes = reader.offset;
        if reader.next_seq <= reached {
            return Err(lost(&path, good_bytes, reader.next_seq - 1));
        }
        if let Some(what) = bad {
            if was_durable(&mut file, good_bytes).map_err(fail)? {
                return Err(Error::corrupt(&path, good_bytes, what));
            }
            file.set_len(good_bytes).map_err(fail)?;
            truncated_bytes += file_bytes - good_bytes;
            truncated_at = Some((path.clone(), good_bytes));
        }
        let last_seq = reader.next_seq - 1;
        current = Some(Current { file, path, first_seq, last_seq, good_bytes, sealed: reader.after_marker });
        break;
    }

    if current.is_none() && covers < reached {
        return Err(lost(&files::segment_path(dir, covers + 1), 0, covers));
    }
    if let Some(&first) = segments.first()
        && first > covers + 1
    {
        let what = format!("the segment with record {} is missing before it", covers + 1);
        return Err(Error::corrupt(&files::segment_path(dir, first), 0, what));
    }
    let mut closed = Vec::new();
    for pair in segments.windows(2) {
        let path = files::segment_path(dir, pair[0]);
        let (file, _, file_bytes) = open_file(&path, Kind::Segment, pair[0])?;
        if sync == Sync::Fdatasync {
            file.sync_data().map_err(|source| Error::io("make the journal durable", &path, source))?;
        }
        let upto = pair[1] - 1;
        parts.push(Part {
            path: path.clone(),
            kind: Kind::Segment,
            seq: pair[0],
            after: covers,
            upto,
            end_bytes: None,
        });
        closed.push(Closed { path, last_seq: upto, file_bytes });
    }
    let mut last_seq = covers;
    // A last segment that the snapshot covers completely is not used any more: the next record would not
    // follow its last one.
    if let Some(done) = current.take_if(|current| current.last_seq <= covers && covers > 0) {
        files::remove(&done.path).map_err(fail)?;
    }
    if let Some(current) = &current {
        // Records of an unfinished batch may be complete and are handed out, so they have to be made
        // durable first.
        if sync == Sync::Fdatasync {
            let fail = |source| Error::io("make the journal durable", &current.path, source);
            current.file.sync_all().map_err(fail)?;
        }
        last_seq = current.last_seq;
        parts.push(Part {
            path: current.path.clone(),
            kind: Kind::Segment,
            seq: current.first_seq,
            after: covers,
            upto: current.last_seq,
            end_bytes: Some(current.good_bytes),
        });
    }
    if sync == Sync::Fdatasync {
        files::sync_dir(dir).map_err(fail)?;
        files::set_reached(dir, last_seq);
    }
    let recovered = Recovered {
        records_n: snapshot_records_n + (last_seq - covers),
        snapshot_records_n,
        last_seq: Seq(last_seq),
        truncated_bytes,
        truncated_at,
        parts,
    };
    Ok((FoundState { closed, current, last_seq }, recovered))
}
