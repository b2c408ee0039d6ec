//! Where nodes come from: how many are requested and released, when they are there, and when they are lost.

use super::nodes::Nodes;
use super::time::{Ev, Time};
use crate::machine::{Faults, Machine};
use eyas_core::dispatcher::Dispatcher;
use eyas_core::provisioning::decision::Decision;
use eyas_core::provisioning::work::Predicted;
use eyas_core::provisioning::{Demand, NodeView, ProvisionAction, ProvisionConfig, Provisioner};
use eyas_terms::Timestamp;
use eyas_terms::rng::Rng;

/// See the module.
pub(super) struct Supply<'a> {
    machine: &'a Machine,
    losses_per_node_hour: f64,
    rng: Rng,
    /// `None`: all nodes are there from the beginning, and lost ones are replaced.
    provisioner: Option<Provisioner>,
    /// Nodes that were requested and are not there.
    n_pending: u32,
}

impl<'a> Supply<'a> {
    pub fn new(
        machine: &'a Machine,
        faults: &Faults,
        config: Option<&ProvisionConfig>,
        rng: Rng,
    ) -> Result<Supply<'a>, String> {
        let provisioner = config.map(|config| {
            Provisioner::new(ProvisionConfig {
                nodes_max: config.nodes_max.min(machine.nodes),
                slots_per_node: machine.slots_per_node,
                equipment: machine.equipment.clone(),
                ..config.clone()
            })
        });
        Ok(Supply {
            machine,
            losses_per_node_hour: faults.losses_per_node_hour,
            rng,
            provisioner: provisioner.transpose()?,
            n_pending: 0,
        })
    }

    /// Nodes that are there from the beginning.
    pub fn n_first(&self) -> u32 {
        if self.provisioner.is_none() { self.machine.nodes } else { 0 }
    }

    pub fn is_pending(&self) -> bool {
        self.n_pending > 0
    }

    /// Requests nodes, or says which are to be released.
    pub fn decide(&mut self, now: Timestamp, core: &Dispatcher, nodes: &Nodes) -> Vec<ProvisionAction> {
        let Some(provisioner) = &mut self.provisioner else {
            let n_there = nodes.n_there() + self.n_pending;
            // Lost nodes are replaced.
            let n_nodes = self.machine.nodes.saturating_sub(n_there);
            return if n_nodes > 0 { vec![ProvisionAction::Request { n_nodes }] } else { vec![] };
        };
        let (mut views, mut predicted) = (vec![], Predicted::default());
        let demand = core.demand(&provisioner.node(), self.n_pending, |_| true, &mut views, &mut predicted);
        // As live, the executor itself says how much its cache holds.
        let cached_bytes =
            |view: &NodeView| nodes.find(view.executor.0).map_or(0, |node| node.core.cache().used_bytes());
        let views: Vec<NodeView> =
            demand.nodes.iter().map(|view| NodeView { cached_bytes: cached_bytes(view), ..*view }).collect();
        let demand = Demand { nodes: &views, ..demand };
        let mut actions = vec![];
        provisioner.decide(now, &demand, &mut actions);
        actions
    }

    /// What was decided since the last call.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        self.provisioner.as_mut().map(Provisioner::take_decisions).unwrap_or_default()
    }

    /// The nodes join after a random delay between the machine's bounds.
    pub fn request(&mut self, n_nodes: u32, time: &mut Time) {
        let spread = self.machine.node_delay_max_ns - self.machine.node_delay_min_ns;
        let delay_ns = self.machine.node_delay_min_ns + self.rng.below(spread + 1);
        self.n_pending += n_nodes;
        time.after(delay_ns, Ev::Join { n_nodes });
    }

    /// Requested nodes join now.
    pub fn come(&mut self, n_nodes: u32) {
        self.n_pending -= n_nodes;
    }

    /// Requested nodes have joined.
    pub fn came(&mut self, now: Timestamp, n_nodes: u32) {
        if let Some(provisioner) = &mut self.provisioner {
            provisioner.request_ended(now, n_nodes, true);
        }
    }

    /// Draws when a node that joins now is lost, if nodes are lost at all.
    pub fn draw_loss(&mut self, node: u32, time: &mut Time) {
        if self.losses_per_node_hour > 0.0 {
            // The inverse of the exponential distribution. The logarithm is not the C library's, which differs between machines.
            let u = (self.rng.below(1 << 53) as f64 + 1.0) / (1u64 << 53) as f64;
            let hours = -libm::log(u) / self.losses_per_node_hour;
            time.at(time.now.0.saturating_add((hours * 3600e9) as u64), Ev::Lose { node });
        }
    }
}
