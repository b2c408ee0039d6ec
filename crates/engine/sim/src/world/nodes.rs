//! The nodes that are there, and what each has: an executor of the core, slots, and what flows for it.

mod programs;

pub(super) use self::programs::Reads;

use self::programs::Slots;
use super::hardware::{Flows, Hardware, NodePlace, Purpose};
use super::record::Record;
use crate::fluid::{FlowId, ResourceId};
use crate::machine::Machine;
use eyas_core::cache::CacheConfig;
use eyas_core::dispatcher::Dispatcher;
use eyas_core::event::{NodeEvent, NotHeldInMemory};
use eyas_core::executor::memory::MemoryConfig;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_terms::{ExecutorId, NodeState, ObjectId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct SimNode {
    /// As the dispatcher numbers it.
    pub number: u32,
    pub core: Executor,
    pub place: NodePlace,
    pub slots: Slots,
    /// Slots that the tasks need which the dispatcher has given to this node and not seen end.
    cpus_given: u32,
    pub flows: Flows,
    /// Objects that are coming into the cache.
    receiving: BTreeSet<ObjectId>,
    /// Objects that have just come into the cache, so that memory still has their bytes.
    fresh: BTreeSet<ObjectId>,
    /// Objects that come from the disk into memory.
    coming: BTreeMap<ObjectId, FlowId>,
}

impl SimNode {
    /// Whether the object is coming into the cache.
    pub fn is_receiving(&self, object: ObjectId) -> bool {
        self.receiving.contains(&object)
    }

    /// Where the node reads the object that it holds.
    pub fn place_of(&self, object: ObjectId) -> ResourceId {
        if self.core.memory().holds(object) { self.place.memory } else { self.place.disk }
    }

    /// The object is to be held in memory. Gives the answer if it is there at once.
    pub fn hold(
        &mut self,
        object: ObjectId,
        bytes: u64,
        now: Timestamp,
        hardware: &mut Hardware<'_>,
    ) -> Option<NodeEvent> {
        if self.fresh.remove(&object) {
            return Some(NodeEvent::MemoryAnswered { object, result: Ok(()) });
        }
        let purpose = Purpose::Hold { node: self.number, object };
        let flow = hardware.begin(now, &mut self.flows, bytes, &[self.place.disk], purpose);
        self.coming.insert(object, flow);
        None
    }

    /// The object comes into memory no more: it is there (`Ok`), because it was read from the disk by itself or by the program that
    /// reads it now, or it is not to be there.
    pub fn end_coming(
        &mut self,
        object: ObjectId,
        result: Result<(), NotHeldInMemory>,
        now: Timestamp,
        hardware: &mut Hardware<'_>,
    ) -> Option<NodeEvent> {
        hardware.break_off(now, self.coming.remove(&object)?);
        Some(NodeEvent::MemoryAnswered { object, result })
    }

    /// The object has come into the cache just now.
    pub fn came(&mut self, object: ObjectId) {
        self.fresh.insert(object);
    }

    /// What came into the cache is not in memory any more, unless it is held there.
    pub fn end_fresh(&mut self) {
        self.fresh.clear();
    }

    /// The object begins to come into the cache.
    pub fn begin_receiving(&mut self, object: ObjectId) {
        self.receiving.insert(object);
    }

    /// The object has come into the cache, or comes no more.
    pub fn end_receiving(&mut self, object: ObjectId) {
        self.receiving.remove(&object);
    }
}

/// See the module.
pub(super) struct Nodes {
    slots_per_node: u32,
    /// By executor number. `None`: the node has left.
    nodes: Vec<Option<Box<SimNode>>>,
    n_there: u32,
}

impl Nodes {
    pub fn new(machine: &Machine) -> Nodes {
        Nodes { slots_per_node: machine.slots_per_node, nodes: vec![], n_there: 0 }
    }

    pub fn n_there(&self) -> u32 {
        self.n_there
    }

    /// The number of the node that joins next.
    pub fn next_number(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub fn join(&mut self, core: Executor, place: NodePlace) {
        let number = self.next_number();
        self.nodes.push(Some(Box::new(SimNode {
            number,
            core,
            place,
            slots: Slots::new(self.slots_per_node),
            cpus_given: 0,
            flows: Flows::new(),
            receiving: BTreeSet::new(),
            fresh: BTreeSet::new(),
            coming: BTreeMap::new(),
        })));
        self.n_there += 1;
    }

    pub fn leave(&mut self, number: u32) -> Option<Box<SimNode>> {
        let node = self.nodes[number as usize].take()?;
        self.n_there -= 1;
        Some(node)
    }

    /// The node, unless it has left.
    pub fn find(&self, number: u32) -> Option<&SimNode> {
        self.nodes[number as usize].as_deref()
    }

    pub fn find_mut(&mut self, number: u32) -> Option<&mut SimNode> {
        self.nodes[number as usize].as_deref_mut()
    }

    pub fn is_there(&self, number: u32) -> bool {
        self.find(number).is_some()
    }

    /// Nodes that were asked to leave and may do so, by the same rule as live: the dispatcher needs nothing of them any more,
    /// and each attempt's end has been acknowledged.
    pub fn drained(&self, now: Timestamp, dispatcher: &Dispatcher) -> Vec<u32> {
        let draining = dispatcher.executors().filter(|(.., state)| *state == NodeState::Draining);
        let drained = draining.map(|(executor, ..)| executor).filter(|executor| {
            let is_idle = self.find(executor.0).is_some_and(|node| node.core.is_idle());
            is_idle && dispatcher.may_leave(now, *executor)
        });
        drained.map(|executor| executor.0).collect()
    }

    pub fn n_busy_slots(&self) -> u32 {
        self.nodes.iter().flatten().map(|node| self.slots_per_node - node.slots.n_idle()).sum()
    }

    /// Whether `peer` has `object`, or sends on what it still receives of it.
    pub fn serves(&self, peer: ExecutorId, object: ObjectId, awaits: bool) -> bool {
        let Some(node) = self.find(peer.0) else { return false };
        node.core.cache().is_ready(object) || awaits && node.is_receiving(object)
    }

    /// Changes how many slots the tasks need that the dispatcher has given to a node, if the node is there.
    pub fn count_given(&mut self, node: ExecutorId, record: &mut Record, change: impl FnOnce(u32) -> u32) {
        let slots = self.slots_per_node;
        if let Some(held) = self.find_mut(node.0) {
            held.cpus_given = change(held.cpus_given);
            record.recorder.given(node.0, Some((slots, held.cpus_given)));
        }
    }
}

pub(super) fn node_core(
    machine: &Machine,
    scheduling: &super::Scheduling,
    seed: u64,
) -> Result<Executor, String> {
    let cache = CacheConfig {
        budget_bytes: machine.cache_bytes_per_node,
        eviction: scheduling.eviction.clone(),
        seed,
        groups: scheduling.groups,
    };
    let config = ExecutorConfig {
        equipment: machine.equipment.clone(),
        slots: machine.slots_per_node,
        cache,
        transfers_max: scheduling.transfers_max,
        transfers_per_peer_max: scheduling.transfers_per_peer_max,
        home_streams_max: scheduling.home_streams_max,
        inputs_in_turn: scheduling.inputs_in_turn,
        // Here each transfer is a flow by itself.
        small_bytes_max: 0,
        small_per_peer_max: 0,
        memory: MemoryConfig { budget_bytes: machine.cache_memory_bytes_per_node, ..MemoryConfig::default() },
    };
    Executor::new(config).map_err(|e| e.to_string())
}
