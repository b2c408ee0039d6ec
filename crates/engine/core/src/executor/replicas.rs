//! What the cache holds after an event: pins are given back, copies are dropped, and both are reported to the
//! dispatcher.

use super::{AttemptId, Executor, Plan, State};
use crate::event::{Fetched, NodeAction, NodeMessage, ReplicaAdded};
use eyas_terms::{Failure, FailureKind, ObjectId};

impl Executor {
    pub(super) fn unpin_all(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        if !std::mem::take(&mut attempt.pinned) {
            return;
        }
        self.n_pinned -= 1;
        self.alone = self.alone.filter(|alone| *alone != id);
        self.n_unpinned += 1;
        let mut objects: Vec<ObjectId> = attempt
            .inputs
            .iter()
            .zip(&attempt.assignment.inputs)
            .filter(|(input, _)| input.plan == Plan::Cache)
            .map(|(_, assigned)| assigned.object)
            .collect();
        objects.sort_unstable();
        objects.dedup();
        for object in objects {
            self.cache.unpin(object);
            self.drop_if_doomed(object, out);
        }
    }

    /// Drops bytes that an earlier attempt left here under the name of an output.
    pub(super) fn drop_earlier(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        if self.staying.remove(&object) {
            self.cache.release(object);
        }
        if self.cache.remove(object).is_ok() {
            self.evicted(object, out);
        }
        self.doomed.remove(&object);
    }

    pub(super) fn evicted(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        self.held.remove(&object);
        self.memory.left_cache(object, out);
        out.push(NodeAction::Evict { object });
        out.push(NodeAction::Tell { message: NodeMessage::ReplicaDropped(object) });
    }

    /// An object has come into the cache, or an attempt asks for it again: if it is there, it may go into memory, too.
    pub(super) fn take_into_memory(&mut self, object: ObjectId, is_again: bool, out: &mut Vec<NodeAction>) {
        if let Some(size_bytes) = self.cache.size_bytes(object).filter(|_| self.cache.is_ready(object)) {
            self.memory.requested(object, size_bytes, is_again, out);
        }
    }

    pub(super) fn drop_if_doomed(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        if !self.doomed.contains(&object) {
            return;
        }
        if self.cache.state(object).is_none() {
            self.doomed.remove(&object);
        } else if self.cache.remove(object).is_ok() {
            self.doomed.remove(&object);
            self.evicted(object, out);
        }
    }

    /// Drops a replica whose bytes are wrong, so that no program starts with them any more.
    pub(super) fn drop_corrupt(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        if !self.cache.is_ready(object) {
            return;
        }
        let was_kept = self.cache.is_kept(object);
        self.staying.remove(&object);
        self.cache.forget_corrupt(object);
        self.doomed.remove(&object);
        self.evicted(object, out);
        self.attempts.change_each(|a| {
            if was_kept && matches!(a.state, State::Storing | State::Landing) {
                // This was the only copy of an output, so the task has to make it again.
                let outputs = a.outputs.iter_mut().zip(&a.assignment.outputs);
                for (output, _) in outputs.filter(|(o, of)| o.cached && **of == object) {
                    let message = "an output was damaged on this node before it was home".into();
                    output.failure.get_or_insert(Failure { kind: FailureKind::Node, message });
                }
            }
            // A program that runs with the wrong bytes counts as failed when it ends.
            let mut inputs = a.inputs.iter().zip(&a.assignment.inputs);
            a.spoiled |=
                a.state == State::Running && inputs.any(|(i, s)| i.plan == Plan::Cache && s.object == object);
        });
        // Attempts that are queued with the wrong bytes are staged again.
        let again: Vec<AttemptId> = self
            .attempts
            .in_order()
            .filter(|(_, a)| {
                a.pinned
                    && matches!(a.state, State::Staging | State::Queued)
                    && a.inputs
                        .iter()
                        .zip(&a.assignment.inputs)
                        .any(|(i, s)| i.plan == Plan::Cache && s.object == object)
            })
            .map(|(id, _)| id)
            .collect();
        for id in again {
            let message = "a cached copy of an input was found damaged and dropped".into();
            self.fail(id, Failure { kind: FailureKind::InputModified, message }, out);
        }
    }

    /// Reports a replica. `by`: the attempt whose reports, after a reconnect, include this one again.
    pub(super) fn report_replica(
        &mut self,
        by: Option<AttemptId>,
        object: ObjectId,
        bytes: &Fetched,
        private: bool,
        out: &mut Vec<NodeAction>,
    ) {
        let run = by.and_then(|id| self.attempts.get(&id)).map(|attempt| attempt.assignment.run);
        let added = ReplicaAdded {
            object,
            digest: bytes.digest,
            size_bytes: bytes.size_bytes,
            version: bytes.version.clone(),
            run: run.filter(|_| bytes.version.is_some()),
            private,
        };
        let message = NodeMessage::ReplicaAdded(added);
        match by {
            Some(id) => self.tell(id, message, out),
            None => out.push(NodeAction::Tell { message }),
        }
    }
}
