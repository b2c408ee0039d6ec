//! How much of its budget the cache uses where the disk under it has less.
//!
//! Input: what the driver measured ([`NodeEvent::SpaceMeasured`]), and transfers that ended with `NoSpace`.
//! Output: a budget for the cache, the objects that have to leave for it, and a report to the dispatcher.
//!
//! Two things lower the budget below what was asked for:
//!
//! * the *measured* room: bytes that the cache has on its file system plus bytes that are free there, less a
//!   part that is left to sandboxes and private files ([`spare_bytes`]). The budget follows every measurement
//!   down, and upwards if the rise is worth a report;
//! * the *refused* room, where the disk takes less than it says: a quota, a shortage of inodes, a file system
//!   that became read-only. When a write is refused, what is here and on its way is taken to be all that
//!   there is room for. That room grows again by a half for each [`PROBE_NS`] without a refusal: a trial
//!   costs a transfer, but no attempt.
//!
//! Programs write to the same disk, and nobody knows beforehand how much. A failed program does not count as
//! a failure of its task if there may have been no room for it and its neighbours
//! ([`FailureKind::DiskShared`]). *May* have been: whatever took the room may have given it back before
//! anybody looked, so a look at the disk proves nothing. There surely was room if all programs of the node
//! and all transfers have written less since the program began than was free then. Otherwise the cache is
//! halved, fewer programs run at once from then on ([`Space::programs_max`]), and the task is tried again.
//! After some such failures it has the disk to itself ([`Assignment::alone`]): no other program runs, no
//! transfer is under way, and the cache holds nothing that may leave it. The end of that attempt is the
//! task's own end, or the node's fault if its disk is full even so.
//!
//! An attempt whose inputs were refused goes back to wait for space. Inputs for the cache wait under the
//! lower budget; private inputs wait for the ends of all other attempts, so that such attempts go one at a
//! time. When there is no other attempt and nothing left to evict, the attempt fails as the node's fault, and
//! another node has a turn. It fails at once if its inputs are larger than the whole disk.

use super::{AttemptId, Executor, Plan, State};
use crate::event::{DiskSeen, NodeAction, NodeMessage};
use eyas_terms::{Failure, FailureKind, ObjectId, Timestamp};
use std::collections::BTreeMap;

/// After this long without a refusal a larger budget is tried.
const PROBE_NS: u64 = 2_000_000_000;
/// The part of the measured room that is left to sandboxes and private files: one byte in this many, up to
/// [`SPARE_BYTES_MAX`].
const SPARE_PART: u64 = 8;
const SPARE_BYTES_MAX: u64 = 1 << 30;
/// Programs are expected to have ended after this many times their mean run time. That long after a program
/// found no room, the number of programs at once is raised by one part in `PROGRAMS_PART`.
const PROBE_RUNS: u64 = 8;
const PROGRAMS_PART: u32 = 8;
/// A rise of the budget by less than one byte in this many is not reported.
const RISE_PART: u64 = 8;

#[derive(Debug)]
pub(super) struct Space {
    asked_bytes: u64,
    measured_bytes: Option<u64>,
    /// The size of the whole disk.
    disk_bytes: u64,
    refused: Option<Refused>,
    /// The number of programs that run at once, if more of them filled the disk.
    programs: Option<Programs>,
    /// Bytes of all transfers that have begun, and of those under way.
    begun_bytes: u64,
    moving_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Programs {
    n_max: u32,
    /// When this number was found or last raised.
    at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    bytes: u64,
    /// When this room was found or last raised.
    at: Timestamp,
}

impl Space {
    pub(super) fn new(asked_bytes: u64) -> Space {
        Space {
            asked_bytes,
            measured_bytes: None,
            disk_bytes: u64::MAX,
            refused: None,
            programs: None,
            begun_bytes: 0,
            moving_bytes: 0,
        }
    }

    /// How many programs may run at once.
    pub(super) fn programs_max(&self) -> u32 {
        self.programs.map_or(u32::MAX, |programs| programs.n_max)
    }

    pub(super) fn transfer_began(&mut self, size_bytes: u64) {
        self.begun_bytes += size_bytes;
        self.moving_bytes += size_bytes;
    }

    /// A transfer of which `size_bytes` were expected has written `written_bytes`. That is more if the file
    /// at home has grown.
    pub(super) fn transfer_ended(&mut self, size_bytes: u64, written_bytes: u64) {
        self.moving_bytes = self.moving_bytes.saturating_sub(size_bytes);
        self.begun_bytes += written_bytes.saturating_sub(size_bytes);
    }

    /// Bytes that transfers have written to the disk so far, at least.
    pub(super) fn read_bytes(&self) -> u64 {
        self.begun_bytes - self.moving_bytes
    }

    /// The largest cache that is possible: all of what was asked for, with the whole disk for the cache.
    pub(super) fn cache_bytes_max(&self) -> u64 {
        self.asked_bytes.min(self.disk_bytes - spare_bytes(self.disk_bytes))
    }

    fn budget_bytes(&self) -> u64 {
        let measured = self.measured_bytes.map_or(u64::MAX, |room| room - spare_bytes(room));
        let refused = self.refused.map_or(u64::MAX, |refused| refused.bytes);
        self.asked_bytes.min(measured).min(refused)
    }

    fn probe_programs(&mut self, now: Timestamp, n_slots: u32, run_ns_mean: u64) {
        let Some(programs) = self.programs else { return };
        if now.since_ns(programs.at) < PROBE_NS.max(run_ns_mean.saturating_mul(PROBE_RUNS)) {
            return;
        }
        let n_max = programs.n_max + (programs.n_max / PROGRAMS_PART).max(1);
        self.programs = (n_max < n_slots).then_some(Programs { n_max, at: now });
    }

    fn probe(&mut self, now: Timestamp) {
        let Some(refused) = &mut self.refused else { return };
        if now.since_ns(refused.at) < PROBE_NS {
            return;
        }
        // The addend lets the room grow from nothing, too.
        let more_bytes = (refused.bytes / 2).max(self.asked_bytes / 16).max(1);
        *refused = Refused { bytes: refused.bytes.saturating_add(more_bytes), at: now };
        if refused.bytes >= self.asked_bytes {
            self.refused = None;
        }
    }
}

/// The part of `room_bytes` that the cache leaves to sandboxes and private files, which lie on the same disk.
pub(super) fn spare_bytes(room_bytes: u64) -> u64 {
    (room_bytes / SPARE_PART).min(SPARE_BYTES_MAX)
}

impl Executor {
    /// See [`NodeEvent::SpaceMeasured`].
    pub(super) fn on_space_measured(&mut self, room_bytes: u64, disk_bytes: u64, out: &mut Vec<NodeAction>) {
        self.space.measured_bytes = Some(room_bytes);
        self.space.disk_bytes = disk_bytes;
        self.fit_budget(out);
    }

    /// The disk had no room for something, and the part that was written is removed again. The cache is to
    /// make room for `beside_bytes` that do not go into it.
    pub(super) fn on_no_space(&mut self, now: Timestamp, beside_bytes: u64, out: &mut Vec<NodeAction>) {
        let here = self.cache.used_bytes() + self.cache.reserved_bytes();
        let before = self.space.refused.map_or(u64::MAX, |refused| refused.bytes);
        let bytes = here.saturating_sub(beside_bytes).min(before);
        self.space.refused = Some(Refused { bytes, at: now });
        self.fit_budget(out);
    }

    /// As time passes, a larger budget is tried, and objects that had to stay leave when they may.
    pub(super) fn settle_space(&mut self, now: Timestamp, out: &mut Vec<NodeAction>) {
        // An attempt that has the disk to itself keeps it.
        if self.alone.is_none() {
            self.space.probe(now);
            self.space.probe_programs(now, self.config.slots, self.slots.run_ns_mean().unwrap_or(0));
        }
        self.fit_budget(out);
    }

    /// Decides what kind of failure a failed program is, given what is known of the disk.
    pub(super) fn judge_disk(
        &mut self,
        now: Timestamp,
        id: AttemptId,
        failure: Failure,
        disk: Option<DiskSeen>,
        out: &mut Vec<NodeAction>,
    ) -> Failure {
        let attempt = &self.attempts[&id];
        let may_be_the_disk = matches!(
            failure.kind,
            FailureKind::ExitCode(_)
                | FailureKind::Signal(_)
                | FailureKind::OutputMissing
                | FailureKind::Node
        );
        let Some(disk) = disk.filter(|_| may_be_the_disk) else { return failure };
        let read_bytes = self.space.begun_bytes - attempt.read_before_bytes;
        let written_bytes = disk.wrote_bytes.map(|wrote_bytes| wrote_bytes + read_bytes);
        let may_have_filled = written_bytes.is_none_or(|bytes| bytes >= disk.free_bytes);
        let is_alone = attempt.assignment.alone;
        let is_short = match is_alone {
            false => disk.is_full || disk.is_said || may_have_filled && written_bytes.is_some(),
            // A program may report a full disk that is not this one.
            true => disk.is_full || may_have_filled && (written_bytes.is_some() || disk.is_said),
        };
        if !is_short {
            return failure;
        }
        self.on_no_space(now, self.cache.used_bytes().div_ceil(2), out);
        let message = failure.message;
        if is_alone {
            let message = format!(
                "the disk of this node was full when the program failed, although it had the disk to itself: {message}"
            );
            return Failure { kind: FailureKind::Node, message };
        }
        // The programs that go on running had room.
        let n_max = self.slots.n_running().min(self.space.programs_max()).max(1);
        if n_max < self.config.slots {
            self.space.programs = Some(Programs { n_max, at: now });
        }
        let message = match disk.is_full {
            true if failure.kind == FailureKind::Node => message,
            true => format!("the disk of this node was full when the program failed: {message}"),
            false => format!(
                "the disk of this node, where {} bytes were free, may have had no room for this program and others at once: \
                 {message}",
                disk.free_bytes
            ),
        };
        Failure { kind: FailureKind::DiskShared, message }
    }

    /// Evicts from the cache all objects that need not stay there.
    pub(super) fn empty_cache(&mut self, now: Timestamp, out: &mut Vec<NodeAction>) {
        let evictable_bytes = self.cache.evictable_bytes();
        if evictable_bytes > 0 {
            self.on_no_space(now, evictable_bytes, out);
        }
    }

    fn fit_budget(&mut self, out: &mut Vec<NodeAction>) {
        let (wanted, current) = (self.space.budget_bytes(), self.cache.budget_bytes());
        let rises =
            wanted > current && (wanted == self.space.asked_bytes || wanted - current > current / RISE_PART);
        if wanted >= current && !rises && !self.cache.is_over() {
            return;
        }
        let budget_bytes = if rises { wanted } else { wanted.min(current) };
        let mut evicted = vec![];
        self.cache.set_budget(budget_bytes, &mut evicted);
        for object in evicted {
            self.evicted(object, out);
        }
        if budget_bytes != current {
            out.push(NodeAction::Tell { message: NodeMessage::CacheResized { cache_bytes: budget_bytes } });
        }
    }

    /// The bytes of disk that an attempt's inputs take at least, if the attempt has the whole disk and the
    /// cache has its full budget. A file under several names is in the cache once; it is copied for each name
    /// if the cache cannot hold it.
    fn needs_bytes(&self, id: AttemptId) -> u64 {
        let attempt = &self.attempts[&id];
        let inputs = attempt.inputs.iter().zip(&attempt.assignment.inputs);
        let mut copied_bytes = 0;
        // By object: its size, and how often it would be copied. Inputs that stay on the nodes are read only
        // from the cache.
        let mut cached: BTreeMap<ObjectId, (u64, u64)> = BTreeMap::new();
        for (input, assigned) in inputs.filter(|(input, _)| input.plan != Plan::InPlace) {
            if assigned.direct {
                copied_bytes += input.size_bytes;
            } else {
                let (size_bytes, n_copies) = cached.entry(assigned.object).or_default();
                *size_bytes = input.size_bytes;
                *n_copies += u64::from(!assigned.stays);
            }
        }
        let cache_bytes = self.space.cache_bytes_max();
        let mut cached_bytes: u64 = cached.values().map(|c| c.0).sum();
        let mut may_be_copied: Vec<(u64, u64)> = cached.into_values().filter(|c| c.1 > 0).collect();
        may_be_copied.sort_unstable();
        while cached_bytes > cache_bytes {
            let Some((size_bytes, n_copies)) = may_be_copied.pop() else { break };
            cached_bytes -= size_bytes;
            copied_bytes += size_bytes * n_copies;
        }
        cached_bytes + copied_bytes
    }

    /// The failure of an attempt whose files that stay on the nodes (`what`, together `needs_bytes`) have no
    /// room in the cache.
    pub(super) fn cache_full(&self, what: &str, needs_bytes: u64) -> Failure {
        let max_bytes = self.space.cache_bytes_max();
        if needs_bytes > max_bytes {
            let message = format!(
                "{what} with {needs_bytes} bytes stay on the nodes, and the cache of this node has at most {max_bytes}; \
                 give the nodes more cache"
            );
            return Failure { kind: FailureKind::CacheTooSmall, message };
        }
        let message = format!(
            "{what} with {needs_bytes} bytes stay on the nodes and do not fit into the {} bytes of this node's cache, of \
             which {} can be had now; give the nodes more cache",
            self.cache.budget_bytes(),
            self.cache.available_bytes()
        );
        Failure { kind: FailureKind::CacheFull, message }
    }

    /// The failure of an attempt whose inputs are larger than the disk, before anything is read for it.
    pub(super) fn why_disk_too_small(&self, id: AttemptId) -> Option<Failure> {
        let disk_bytes = self.space.disk_bytes;
        let sizes = self.attempts[&id].inputs.iter().map(|input| input.size_bytes);
        if sizes.sum::<u64>() <= disk_bytes {
            return None;
        }
        let needs = self.needs_bytes(id);
        let message = format!(
            "the inputs of this task take {needs} bytes, and the whole disk of the node has {disk_bytes}"
        );
        (needs > disk_bytes).then_some(Failure { kind: FailureKind::DiskTooSmall, message })
    }

    /// The failure of an attempt whose inputs have no room although no other attempt waits for room. Running
    /// programs may have taken the room. If they can have, the task is tried again, in the end with the disk
    /// to itself.
    pub(super) fn why_no_room(&self, id: AttemptId, refused: &str) -> Failure {
        let needs = self.needs_bytes(id);
        let keeps = self.cache.used_bytes();
        let message = format!(
            "the disk of the node has no room for the {needs} bytes of this task's inputs beside the {keeps} bytes \
             that its cache holds: {refused}"
        );
        let kind = match self.attempts[&id].assignment.alone {
            true => FailureKind::Node,
            false => FailureKind::DiskShared,
        };
        Failure { kind, message }
    }

    /// Whether an attempt whose private copy was refused may find room later: another attempt will give up
    /// some of the disk, or has done so while the copy was on its way.
    pub(super) fn may_find_room(&mut self, id: AttemptId) -> bool {
        let is_alone = self.n_pinned <= 1;
        let Some(attempt) = self.attempts.get_mut(&id) else { return false };
        !std::mem::replace(&mut attempt.refused_alone, is_alone) || !is_alone
    }

    /// Lets an attempt whose inputs found no space wait for it once more, at its former place in the order.
    pub(super) fn wait_for_space(&mut self, id: AttemptId, is_private: bool, out: &mut Vec<NodeAction>) {
        let Some(attempt) = self.attempts.get(&id).filter(|a| a.state == State::Staging) else { return };
        let seq = attempt.seq;
        self.unpin_all(id, out);
        self.stop_waiting(id);
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        attempt.refused |= is_private;
        attempt.n_missing = 0;
        for (i, (input, assigned)) in attempt.inputs.iter_mut().zip(&attempt.assignment.inputs).enumerate() {
            if input.outcome.take().is_some() && input.plan == Plan::Private {
                let (task, attempt) = id;
                out.push(NodeAction::DropPrivate { task, attempt, input: i as u32 });
            }
            // The input was private only because the cache had no room for it at that time.
            if input.plan == Plan::Private && !assigned.direct {
                input.plan = Plan::Cache;
            }
        }
        attempt.state = State::Blocked;
        self.blocked.insert(seq, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheConfig;
    use crate::event::Fetched;
    use crate::executor::{ExecutorConfig, NodeEvent};
    use eyas_terms::Digest;

    const MIB: u64 = 1 << 20;

    fn executor(budget_bytes: u64) -> Executor {
        let cache = CacheConfig { budget_bytes, eviction: "lru".into(), seed: 1, groups: true };
        Executor::new(ExecutorConfig {
            equipment: Default::default(),
            slots: 1,
            cache,
            memory: Default::default(),
            transfers_max: 4,
            transfers_per_peer_max: 4,
            home_streams_max: 4,
            inputs_in_turn: false,
            small_bytes_max: 0,
            small_per_peer_max: 0,
        })
        .unwrap()
    }

    fn hold(executor: &mut Executor, object: u32, size_bytes: u64) {
        let mut out = vec![];
        let bytes = Fetched { digest: Digest([object as u8; 32]), size_bytes, version: None };
        executor.restore(ObjectId(object), bytes, &mut out);
        assert_eq!(out, []);
    }

    fn measured(executor: &mut Executor, now_s: u64, room_bytes: u64) -> Vec<NodeAction> {
        let mut out = vec![];
        let now = Timestamp(now_s * 1_000_000_000);
        executor.handle(now, NodeEvent::SpaceMeasured { room_bytes, disk_bytes: 1 << 40 }, &mut out);
        executor.sanity_check();
        out
    }

    fn resized(cache_bytes: u64) -> NodeAction {
        NodeAction::Tell { message: NodeMessage::CacheResized { cache_bytes } }
    }

    #[test]
    fn a_disk_with_room_changes_nothing() {
        let mut executor = executor(100 * MIB);
        assert_eq!(measured(&mut executor, 0, 200 * MIB), []);
        assert_eq!(executor.cache().budget_bytes(), 100 * MIB);
    }

    #[test]
    fn a_smaller_disk_lowers_the_budget_evicts_and_is_told() {
        let mut executor = executor(100 * MIB);
        for object in 0..5 {
            hold(&mut executor, object, 10 * MIB);
        }
        let dropped = |object| {
            let object = ObjectId(object);
            [NodeAction::Evict { object }, NodeAction::Tell { message: NodeMessage::ReplicaDropped(object) }]
        };
        let mut expected = dropped(0).to_vec();
        expected.extend(dropped(1));
        expected.push(resized(35 * MIB));
        assert_eq!(measured(&mut executor, 0, 40 * MIB), expected);
        // A small rise is not reported, a large one is, and the budget never exceeds what was asked for.
        assert_eq!(measured(&mut executor, 1, 42 * MIB), []);
        assert_eq!(measured(&mut executor, 2, 80 * MIB), [resized(70 * MIB)]);
        assert_eq!(measured(&mut executor, 3, 1 << 40), [resized(100 * MIB)]);
    }

    #[test]
    fn what_must_stay_leaves_later() {
        let mut executor = executor(100 * MIB);
        hold(&mut executor, 0, 60 * MIB);
        executor.cache.pin(ObjectId(0));
        assert_eq!(measured(&mut executor, 0, 40 * MIB), [resized(35 * MIB)]);
        assert_eq!((executor.cache().free_bytes(), executor.cache().available_bytes()), (0, 0));
        executor.cache.unpin(ObjectId(0));
        let mut out = vec![];
        executor.handle(Timestamp(1), NodeEvent::Ticked, &mut out);
        assert!(out.contains(&NodeAction::Evict { object: ObjectId(0) }), "{out:?}");
        executor.sanity_check();
    }

    #[test]
    fn a_disk_that_refuses_more_than_it_says_is_tried_again_later() {
        let mut executor = executor(64 * MIB);
        hold(&mut executor, 0, 16 * MIB);
        let mut out = vec![];
        executor.on_no_space(Timestamp(0), 0, &mut out);
        assert_eq!(out, [resized(16 * MIB)], "what is here is what fits");
        assert_eq!(measured(&mut executor, 1, 1 << 40), [], "whatever the disk says");
        let mut budgets = vec![];
        for second in 1..60 {
            executor.handle(Timestamp(second * 1_000_000_000), NodeEvent::Ticked, &mut out);
            budgets.push(executor.cache().budget_bytes() / MIB);
        }
        budgets.dedup();
        assert_eq!(budgets, [16, 24, 36, 54, 64]);
        assert!(executor.cache().is_ready(ObjectId(0)));
    }
}
