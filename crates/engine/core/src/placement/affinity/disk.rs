//! What the programs on a node have still to read from its disk.
//!
//! In: what each given attempt will read from its node's cache. Out: the time until one more program there has read an
//! object from the disk ([`Affinity::disk_wait_ns`]). Programs that run at the same time share the disk, so what is in the
//! cache may come sooner from home.
//!
//! Used only where reading past the cache spares the disk ([`Config::disk_bytes_per_s`](super::Config)).

use super::Affinity;
use crate::executor_set::Seat;
use eyas_terms::{TaskId, Timestamp};

/// What one disk has still to give.
#[derive(Clone, Copy, Default)]
pub(super) struct DiskLoad {
    at: Timestamp,
    rest_bytes: f64,
    /// What all attempts read that have not ended. No more than that can be left.
    given_bytes: u64,
}

impl DiskLoad {
    fn rest_at(&self, now: Timestamp, bytes_per_s: f64) -> f64 {
        let read_bytes = now.since_ns(self.at) as f64 * bytes_per_s / 1e9;
        (self.rest_bytes - read_bytes).clamp(0.0, self.given_bytes as f64)
    }

    fn give(&mut self, now: Timestamp, bytes_per_s: f64, bytes: u64) {
        self.rest_bytes = self.rest_at(now, bytes_per_s) + bytes as f64;
        self.at = now;
        self.given_bytes += bytes;
    }
}

/// What an attempt reads from the disk of its node.
pub(super) struct DiskRead {
    seat: Seat,
    session: u32,
    bytes: u64,
}

impl Affinity {
    /// What the disk of `seat` gives. Where programs are slow, the disk is taken to be as slow.
    pub(super) fn disk_rate(&self, seat: Seat) -> f64 {
        self.config.disk_bytes_per_s as f64 / self.executors.at(seat).pace.slowness()
    }

    /// The program of `task` is going to read `bytes` from the cache of `seat`.
    pub(super) fn begin_disk(&mut self, now: Timestamp, seat: Seat, task: TaskId, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let rate = self.disk_rate(seat);
        let seated = self.executors.at_mut(seat);
        seated.disk.give(now, rate, bytes);
        let session = seated.session;
        self.disk_reads.insert(task, DiskRead { seat, session, bytes });
    }

    /// The attempt of `task` has ended.
    pub(super) fn end_disk(&mut self, task: TaskId) {
        let Some(DiskRead { seat, session, bytes }) = self.disk_reads.remove(&task) else { return };
        if let Some(seated) = self.executors.by_seat[seat.0 as usize].as_mut()
            && seated.session == session
        {
            seated.disk.given_bytes -= bytes;
        }
    }

    /// The time until one more program on `seat` has read `bytes` from the disk there.
    pub(super) fn disk_wait_ns(&self, now: Timestamp, seat: Seat, bytes: u64) -> f64 {
        let rate = self.disk_rate(seat);
        (self.executors.at(seat).disk.rest_at(now, rate) + bytes as f64) * 1e9 / rate
    }
}
