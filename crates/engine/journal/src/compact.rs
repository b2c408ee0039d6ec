//! Compaction: a snapshot takes the place of the records that led to it.
//!
//! In: the records that describe the state after record C. Out: one snapshot file that stands for all
//! records up to C; the segments before it are removed. Appending goes on meanwhile.
//!
//! The snapshot is written under a temporary name, made durable, renamed, and the rename made durable,
//! before the first segment is removed. A crash before the rename leaves the journal as it was; a crash
//! after the rename leaves some superfluous segments, which recovery removes. Once the snapshot's name is
//! durable, the records that it stands for are no longer needed, and none is removed before that.

use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::format::{BODY_BYTES_MAX, HEADER_BYTES, Header, Kind, begin_crc, push_record};
use crate::{Compacted, Journal, Seq, Step, Sync};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The snapshot is written in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

impl Journal {
    /// Replaces all records up to and including `covers` by those that `write` passes to its argument.
    ///
    /// * `covers`: the last record whose effect is in the snapshot; later records stay and follow it.
    /// * `write`: passes the records on one at a time, in the order in which recovery hands them out.
    ///
    /// Blocks until the snapshot is durable and the old segments are removed (other threads may append
    /// meanwhile). First it waits until `covers` is durable. If it or `write` fails, the
    /// journal is as before.
    pub fn compact(
        &self,
        covers: Seq,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<Compacted> {
        let shared = &*self.shared;
        let mut snapshot_covers = self.snapshot_covers.lock().expect("no code panics while it compacts");
        let last = shared.lock().next_seq - 1;
        if covers.0 > last || *snapshot_covers > Some(covers.0) {
            let what = match *snapshot_covers {
                Some(before) if before > covers.0 => {
                    format!("record {covers} is already covered by the snapshot at {before}")
                }
                _ => format!("record {covers} does not exist yet (the last is {last})"),
            };
            return Err(Error::new(ErrorKind::Invalid { what }, "compact the journal", &shared.dir));
        }
        self.wait_durable(covers)?;

        let tmp_path = shared.dir.join(files::SNAPSHOT_TMP);
        let written = self.write_snapshot(&tmp_path, covers, write);
        let (records_n, snapshot_bytes) = written.inspect_err(|_| {
            // This gives the space back on a full disk; the next open would remove the file, too.
            let _ = files::remove(&tmp_path);
        })?;
        *snapshot_covers = Some(covers.0);
        self.remove_older_snapshots(covers);

        let mut state = shared.lock();
        let freed_before_bytes = state.dropped_bytes;
        state.stats.snapshot_bytes = snapshot_bytes;
        state.drop_upto = covers.0;
        shared.work.notify_one();
        while state.dropped_upto < covers.0 && !state.ended {
            state = shared.progress.wait(state).expect("as in Shared::lock");
        }
        let freed_bytes = state.dropped_bytes - freed_before_bytes;
        Ok(Compacted { records_n, snapshot_bytes, freed_bytes })
    }

    /// An old snapshot that cannot be removed is harmless: only the newest counts, and the next open
    /// removes the others.
    fn remove_older_snapshots(&self, covers: Seq) {
        let Ok(listing) = files::list(&self.shared.dir) else { return };
        for older in listing.snapshots.into_iter().filter(|&older| older < covers.0) {
            if self.shared.step(Step::SnapshotDrop).is_ok() {
                let _ = files::remove(&files::snapshot_path(&self.shared.dir, older));
            }
        }
    }

    /// Writes the snapshot and gives it its name, durably. Returns the number of its records and of its
    /// bytes.
    fn write_snapshot(
        &self,
        tmp_path: &Path,
        covers: Seq,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<(u64, u64)> {
        let shared = &*self.shared;
        let path = files::snapshot_path(&shared.dir, covers.0);
        let fail = |source: io::Error| Error::io("write a snapshot of the journal", &path, source);
        let synced = shared.options.sync == Sync::Fdatasync;

        files::remove(tmp_path).map_err(fail)?;
        shared.step(Step::SnapshotCreate).map_err(fail)?;
        let file = files::create_new(tmp_path).map_err(fail)?;
        let mut offset = HEADER_BYTES;
        let mut records_n = 0;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let write_piece = |piece: &mut Vec<u8>, offset: &mut u64| {
            shared.step(Step::SnapshotWrite)?;
            file.write_all_at(piece, *offset)?;
            *offset += piece.len() as u64;
            piece.clear();
            Ok(())
        };
        write(&mut |body| {
            if body.len() > BODY_BYTES_MAX {
                let kind = ErrorKind::TooLarge { body_bytes: body.len(), body_bytes_max: BODY_BYTES_MAX };
                return Err(Error::new(kind, "compact the journal", &shared.dir));
            }
            push_record(&mut piece, begin_crc(body), covers.0, body);
            records_n += 1;
            if piece.len() >= PIECE_BYTES {
                write_piece(&mut piece, &mut offset).map_err(fail)?;
            }
            Ok(())
        })?;
        write_piece(&mut piece, &mut offset).map_err(fail)?;
        let header = Header { kind: Kind::Snapshot, seq: covers.0, records_n };
        let finish = || {
            // The header is written last, because only now the number of records is known. The snapshot
            // counts only once it has its name.
            file.write_all_at(&header.encode(), 0)?;
            if synced {
                shared.step(Step::SnapshotSync)?;
                file.sync_all()?;
            }
            shared.step(Step::SnapshotRename)?;
            std::fs::rename(tmp_path, &path)?;
            if synced {
                shared.step(Step::SnapshotDirSync)?;
                files::sync_dir(&shared.dir)?;
            }
            Ok(())
        };
        finish().map_err(fail)?;
        Ok((records_n, offset))
    }
}
