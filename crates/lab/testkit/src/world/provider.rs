//! Somebody who brings the one node that is large enough for many tasks: when tasks are ready, and within a time that is longer
//! than the dispatcher waits for a node that nobody promised. It asks the dispatcher as a live provider does, by the same
//! request; it is killed and comes back.

use super::{S, World};
use crate::happening::{Ev, Fault};
use crate::node::WorldNode;
use crate::process::Process;
use eyas_terms::needs::{PARTS, Size};
use eyas_terms::*;
use eyas_wire::message::Provisioner;
use std::collections::BTreeMap;

/// How often it asks, at most, and at least.
const ASK_NS: (u64, u64) = (S / 4, 2 * S);
/// The longest that a node takes to come.
const COMES_NS: u64 = 40 * S;
/// The longest that it is away. After two minutes the dispatcher expects nothing of it.
const AWAY_NS: u64 = 90 * S;
/// The longest that it is away after the dispatcher was started again: whoever starts one starts both.
const AWAY_AT_START_NS: u64 = 10 * S;

/// The provider of a world that has one.
#[derive(Default)]
pub(super) struct Provider {
    /// The process of each dispatcher that it is connected with, and its connection.
    connections: BTreeMap<usize, (u64, u64)>,
    /// It was killed, and comes back then.
    away_until: Timestamp,
    /// The node was requested and is not there yet.
    is_coming: bool,
}

impl World {
    /// The node that only the provider starts, in worlds that have one.
    pub(super) fn provided_node(&self) -> Option<usize> {
        self.o.provided.then(|| self.nodes.len() - 1)
    }

    pub(super) fn provided_size(&self, n: usize) -> Size {
        let WorldNode { config, memory_bytes, .. } = &self.nodes[n];
        Size::of_node(config.slots, *memory_bytes, &config.equipment)
    }

    pub(super) fn on_ask_demand(&mut self) {
        let Some(n) = self.provided_node() else { return };
        let pause = ASK_NS.0 + self.upto(ASK_NS.1 - ASK_NS.0);
        self.after(pause, Ev::AskDemand);
        if self.calendar.now < self.provider.away_until || self.members.iter().all(|m| m.process.is_none()) {
            return;
        }
        let is_up = self.nodes[n].is_up;
        let provisioner = Provisioner {
            n_pending: u32::from(self.provider.is_coming && !is_up),
            node: self.provided_size(n),
            ..Provisioner::default()
        };
        // Of all dispatchers together.
        let mut n_ready = 0;
        for m in 0..self.members.len() {
            let before = self.provider.connections.get(&m).copied();
            let (mut answer, provisioner) = (None, provisioner.clone());
            self.with(m, |process, now| {
                let incarnation = process.incarnation();
                let connection = before.filter(|(of, _)| *of == incarnation).map(|(_, life)| life);
                let (life, demand) = process.ask_demand(now, connection, provisioner);
                answer = Some(((incarnation, life), demand.n_ready));
            });
            if let Some((connection, n)) = answer {
                self.provider.connections.insert(m, connection);
                n_ready += n;
            }
        }
        if n_ready > 0 && !is_up && !self.provider.is_coming {
            self.provider.is_coming = true;
            let takes = self.lasts(COMES_NS);
            self.after(takes, Ev::StartNode { n });
        }
        if n_ready == 0 && is_up && self.chance(100) {
            self.on(Ev::Fault(Fault::Drain(n)));
        }
    }

    /// The node has come, so that it may be requested again when it is gone.
    pub(super) fn provided_node_came(&mut self, n: usize) {
        if self.provided_node() == Some(n) {
            self.provider.is_coming = false;
        }
    }

    pub(super) fn kill_provider(&mut self) {
        // Whoever starts a cluster says that it is up when its provider has asked for the first time.
        let is_known = |(m, (of, _)): (&usize, &(u64, u64))| {
            self.members[*m].process.as_ref().is_some_and(|process| process.incarnation() == *of)
        };
        let n_known = self.provider.connections.iter().filter(|connection| is_known(*connection)).count();
        let has_asked = n_known > 0 && self.members.iter().filter(|m| m.process.is_some()).count() == n_known;
        let away = self.upto(if has_asked { AWAY_NS } else { AWAY_AT_START_NS });
        self.provider.away_until = self.calendar.now.plus_ns(away);
        for (m, (incarnation, life)) in std::mem::take(&mut self.provider.connections) {
            self.with(m, |process, now| {
                if process.incarnation() == incarnation {
                    process.on_disconnected(now, life);
                }
            });
        }
    }

    /// The faults are over.
    pub(super) fn provider_is_back(&mut self) {
        self.provider.away_until = self.calendar.now;
    }

    /// Whoever starts the dispatcher again starts the provider with it.
    pub(super) fn start_provider_with_dispatcher(&mut self) {
        self.provider.away_until = self.provider.away_until.min(self.calendar.now.plus_ns(AWAY_AT_START_NS));
    }

    /// Whether a task that was found to be too large for every node is so, as far as this world's provider knows.
    pub(super) fn is_too_large_for_provided(&self, process: &Process, task: TaskId) -> bool {
        let Some(n) = self.provided_node() else { return true };
        let spec = process.core().work().task_spec(task);
        let size = Size {
            cpu_parts: u64::from(spec.cpus.max(1)) * u64::from(PARTS),
            memory_bytes: spec.memory_bytes.unwrap_or(0),
            ..Size::default()
        };
        self.provided_size(n).holds(&size) == 0
    }
}
