//! An executor leaves: files that only it holds are copied to nodes that stay.
//!
//! It may end when the copies exist or have taken too long. A file that was not copied is made again
//! (`revivals`).

use super::{Dispatcher, End, Executors, Intermediate, Intermediates, Moves, Workload};
use eyas_terms::{ExecutorId, ObjectId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How long a leaving executor waits for other nodes to copy the files that only it holds.
const RESCUE_NS_MAX: u64 = 60_000_000_000;

/// An executor that was told to leave.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub since: Timestamp,
    /// Files that other nodes were asked to copy.
    pub copies_asked: BTreeSet<ObjectId>,
}

impl Intermediates {
    /// Whether `object` would be lost with `executor`: the file stays on the nodes, is still wanted, and no
    /// executor that stays has it.
    pub(super) fn is_only_on(
        &self,
        work: &Workload,
        executors: &Executors,
        executor: ExecutorId,
        object: ObjectId,
    ) -> bool {
        let Some(Intermediate { maker: Some(maker), n_readers, .. }) = self.files.get(&object) else {
            return false;
        };
        let is_kept =
            || work.runs.get(&work.tasks.run_of(*maker)).is_some_and(|run| run.keep && run.ended.is_none());
        let stays =
            |e: ExecutorId| e != executor && executors.by_id.get(&e).is_some_and(|e| e.is_connected());
        work.tasks.end_of(*maker) == End::Done
            && (*n_readers > 0 || is_kept())
            && work.catalog.holds(executor, object)
            && !work.catalog.holders_of(object).any(stays)
    }

    /// Has files that only a leaving executor holds copied to nodes that stay and have room. A copy there is
    /// an ordinary cache entry. Where no node has room, or the copy is evicted, the file's maker runs again.
    pub(super) fn rescue(
        &self,
        work: &Workload,
        executors: &mut Executors,
        moves: &mut Moves,
        now: Timestamp,
        executor: ExecutorId,
    ) {
        if self.files.is_empty() {
            return;
        }
        let Some(Leaving { copies_asked, .. }) =
            executors.by_id.get(&executor).and_then(|e| e.leaving.as_ref())
        else {
            return;
        };
        let mut sole = work.catalog.objects_on(executor);
        sole.retain(|object| {
            !copies_asked.contains(object) && self.is_only_on(work, executors, executor, *object)
        });
        // Bytes sent to each node; the node that was sent least is next.
        let mut nodes = executors.receivers_of_rescue();
        let mut wanted: BTreeMap<ExecutorId, Vec<ObjectId>> = BTreeMap::new();
        for &object in &sole {
            let size_bytes = work.catalog.size_bytes(object).unwrap_or(0);
            let fits = |(_, (sent, room)): &(&ExecutorId, &mut (u64, u64))| *sent + size_bytes <= *room;
            let Some((target, (sent, _))) =
                nodes.iter_mut().filter(fits).min_by_key(|(id, (sent, _))| (*sent, **id))
            else {
                continue;
            };
            *sent += size_bytes;
            wanted.entry(*target).or_default().push(object);
        }
        for (target, objects) in wanted {
            if let Some(leaving) = executors.by_id.get_mut(&executor).and_then(|e| e.leaving.as_mut()) {
                leaving.copies_asked.extend(&objects);
            }
            moves.copy_to(work, now, target, &objects, false);
        }
    }
}

impl Dispatcher {
    /// Whether a leaving executor may end: it has no attempt, and the copies that other nodes were asked for
    /// exist or have taken too long.
    pub fn may_leave(&self, now: Timestamp, executor: ExecutorId) -> bool {
        let Some(e) = self.schedule.executors.by_id.get(&executor) else { return true };
        let waits = |leaving: &Leaving| {
            now.since_ns(leaving.since) < RESCUE_NS_MAX
                && leaving.copies_asked.iter().any(|object| {
                    self.intermediates.is_only_on(&self.work, &self.schedule.executors, executor, *object)
                })
        };
        e.assigned.is_empty() && !e.leaving.as_ref().is_some_and(waits)
    }
}
