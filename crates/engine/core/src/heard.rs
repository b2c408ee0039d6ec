//! What an executor reports, in the form in which the dispatcher's state machine receives it.
//!
//! An executor reports each change of its cache separately. The dispatcher receives changes that arrived
//! together as one event, which keeps its place before the report that follows them: the report of an
//! attempt's end comes after the reports of what the attempt read. If one object changed several times, only
//! the last change counts. The session of a live dispatcher and the simulator both receive executors'
//! messages through this module.

use crate::event::{Event, NodeMessage, ReplicaAdded};
use eyas_terms::*;

/// Consecutive changes of one executor's cache.
#[derive(Default)]
pub struct CacheChanges {
    added: Vec<ReplicaAdded>,
    dropped: Vec<ObjectId>,
}

impl CacheChanges {
    /// Takes `message` if it is a change of the cache. Gives back any other message: the core must get
    /// [`Self::take`] before it.
    pub fn collect(&mut self, message: NodeMessage) -> Option<NodeMessage> {
        match message {
            NodeMessage::ReplicaAdded(replica) => {
                self.dropped.retain(|object| *object != replica.object);
                self.added.push(replica);
                None
            }
            NodeMessage::ReplicaDropped(object) => {
                self.added.retain(|replica| replica.object != object);
                self.dropped.push(object);
                None
            }
            other => Some(other),
        }
    }

    /// The changes that were collected since the last call, if there are any.
    pub fn take(&mut self, executor: ExecutorId) -> Option<Event> {
        if self.added.is_empty() && self.dropped.is_empty() {
            return None;
        }
        let (added, dropped) = (std::mem::take(&mut self.added), std::mem::take(&mut self.dropped));
        Some(Event::ReplicasChanged { executor, added, dropped })
    }
}

impl NodeMessage {
    /// As [`Event::reported`].
    pub fn reported(&self) -> Option<(TaskId, AttemptNo)> {
        match self {
            NodeMessage::AttemptEnded { report } => Some((report.task, report.attempt)),
            NodeMessage::OutputsHome { task, attempt, .. } => Some((*task, *attempt)),
            _ => None,
        }
    }

    /// The event for a message that came alone.
    pub fn heard_from(self, executor: ExecutorId) -> Event {
        match self {
            NodeMessage::AttemptEnded { report } => Event::AttemptEnded { executor, report },
            NodeMessage::OutputsHome { task, attempt, result } => {
                Event::OutputsHome { executor, task, attempt, result }
            }
            NodeMessage::ReplicaAdded(replica) => {
                Event::ReplicasChanged { executor, added: vec![replica], dropped: vec![] }
            }
            NodeMessage::ReplicaDropped(object) => {
                Event::ReplicasChanged { executor, added: vec![], dropped: vec![object] }
            }
            NodeMessage::PrefetchFailed { batch, object, kind } => {
                Event::PrefetchFailed { executor, batch, object, kind }
            }
            NodeMessage::CacheResized { cache_bytes } => Event::CacheResized { executor, cache_bytes },
            NodeMessage::InputMoved(moved) => Event::InputMoved { executor, moved },
            NodeMessage::PlacesFound { asked, placed } => Event::PlacesFound { executor, asked, placed },
            NodeMessage::HomeNotRead { object, error } => Event::HomeNotRead { executor, object, error },
            NodeMessage::PeersProbed { round_trips } => Event::PeersProbed { executor, round_trips },
            NodeMessage::PartsRemoved { tasks } => Event::PartsRemoved { executor, tasks },
            NodeMessage::PeerUnreachable { peer } => Event::PeerUnreachable { executor, peer },
            NodeMessage::FileOpened { task, attempt, location } => {
                Event::FileOpened { executor, task, attempt, location }
            }
            NodeMessage::FilesMade { task, attempt, locations } => {
                Event::FilesMade { executor, task, attempt, locations }
            }
        }
    }
}

impl Event {
    /// The attempt whose end this event reports. The executor keeps its report until nothing of it is left to
    /// record ([`crate::event::NodeEvent::EndRecorded`]).
    pub fn reported(&self) -> Option<(ExecutorId, TaskId, AttemptNo)> {
        match self {
            Event::AttemptEnded { executor, report } => Some((*executor, report.task, report.attempt)),
            Event::OutputsHome { executor, task, attempt, .. } => Some((*executor, *task, *attempt)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXECUTOR: ExecutorId = ExecutorId(1);

    fn replica(object: u32) -> ReplicaAdded {
        ReplicaAdded {
            object: ObjectId(object),
            digest: Digest([0; 32]),
            size_bytes: 1,
            version: None,
            run: None,
            private: false,
        }
    }

    #[test]
    fn changes_go_together_and_the_last_one_of_an_object_counts() {
        let mut changes = CacheChanges::default();
        assert_eq!(changes.take(EXECUTOR), None);
        for message in [
            NodeMessage::ReplicaAdded(replica(1)),
            NodeMessage::ReplicaDropped(ObjectId(2)),
            NodeMessage::ReplicaAdded(replica(3)),
            NodeMessage::ReplicaDropped(ObjectId(1)),
            NodeMessage::ReplicaAdded(replica(2)),
        ] {
            assert_eq!(changes.collect(message), None);
        }
        let report = NodeMessage::CacheResized { cache_bytes: 7 };
        assert_eq!(changes.collect(report.clone()), Some(report));
        let (added, dropped) = (vec![replica(3), replica(2)], vec![ObjectId(1)]);
        assert_eq!(
            changes.take(EXECUTOR),
            Some(Event::ReplicasChanged { executor: EXECUTOR, added, dropped })
        );
        assert_eq!(changes.take(EXECUTOR), None);
    }
}
