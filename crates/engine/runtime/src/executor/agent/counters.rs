//! What this executor has moved and computed since its start.

use eyas_core::event::{AttemptReport, Source};
use eyas_terms::CacheOutcome;

#[derive(Default)]
pub(super) struct Counters {
    /// Bytes of inputs that attempts found on this node, or at a home that is this node's own disk.
    pub(super) local_bytes: u64,
    pub(super) peer_bytes: u64,
    pub(super) home_read_bytes: u64,
    pub(super) home_written_bytes: u64,
    pub(super) program_cpu_ns: u64,
}

impl Counters {
    /// An input has arrived.
    pub(super) fn fetched(&mut self, source: Source, size_bytes: u64) {
        match source {
            Source::Home => self.home_read_bytes += size_bytes,
            Source::Peer(_) => self.peer_bytes += size_bytes,
        }
    }

    /// An attempt has ended.
    pub(super) fn attempt_ended(&mut self, report: &AttemptReport) {
        let is_local = |outcome: CacheOutcome| {
            matches!(
                outcome,
                CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace | CacheOutcome::Made
            )
        };
        let local = report.inputs.iter().filter(|input| is_local(input.outcome));
        self.local_bytes += local.map(|input| input.size_bytes).sum::<u64>();
    }
}

/// Processor time of another process of ours, without its children.
pub(super) fn process_cpu_ns(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks * 10_000_000
}
