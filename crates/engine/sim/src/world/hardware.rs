//! What the machine is made of, and what flows through it: home, links, disks and memory.
//!
//! A node takes a place in the machine and leaves it to the next one. Each flow is in the list of the node that it is for,
//! because it ends with that node.

use super::AttemptId;
use crate::fluid::{FlowId, Fluid, ResourceId};
use crate::machine::{Faults, Machine};
use eyas_terms::rng::Rng;
use eyas_terms::{ObjectId, Timestamp};
use std::collections::BTreeSet;

/// Ended flows are taken out of a node's list when the list has so many entries, or more.
const FLOWS_MIN: usize = 64;

/// What a flow is for.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Fetch {
        node: u32,
        transfer: u32,
    },
    Read {
        node: u32,
        attempt: AttemptId,
    },
    Write {
        node: u32,
        attempt: AttemptId,
    },
    /// A file of a node's disk comes into its memory, too.
    Hold {
        node: u32,
        object: ObjectId,
    },
    Land {
        node: u32,
        output: LandedOutput,
    },
}

/// An output on its way home.
#[derive(Clone, Copy)]
pub(super) struct LandedOutput {
    pub attempt: AttemptId,
    /// Its place among the outputs of the task.
    pub output: u32,
    pub object: ObjectId,
}

/// The site of home.
pub(super) const HOME_SITE: u32 = 0;

/// A place in the machine, taken by one node after the other.
#[derive(Clone, Copy)]
pub(super) struct NodePlace {
    pub number: u32,
    /// The place's site; 0 where there is only one.
    pub site: u32,
    pub disk: ResourceId,
    pub memory: ResourceId,
    pub link_in: ResourceId,
    pub link_out: ResourceId,
    /// The node's share of home.
    pub client: ResourceId,
    pub speed: f64,
}

/// The flows of one node.
pub(super) struct Flows {
    /// All flows that go on, and some that have ended.
    flows: Vec<FlowId>,
    /// At so many entries the ended flows are taken out.
    n_max: usize,
}

impl Flows {
    pub fn new() -> Flows {
        Flows { flows: vec![], n_max: FLOWS_MIN }
    }
}

/// Operations of one kind that home carries out one after the other, in the order in which they are asked for.
struct Operations {
    each_ns: Option<u64>,
    free_at: u64,
}

impl Operations {
    fn new(per_s: Option<f64>) -> Operations {
        Operations { each_ns: per_s.map(|n| (super::S as f64 / n) as u64), free_at: 0 }
    }

    /// When an operation that is asked for now is done. `None`: there is no limit.
    fn done_at(&mut self, now: Timestamp) -> Option<u64> {
        self.free_at = self.free_at.max(now.0) + self.each_ns?;
        Some(self.free_at)
    }
}

/// See the module.
pub(super) struct Hardware<'a> {
    pub machine: &'a Machine,
    fluid: Fluid<Purpose>,
    pub home: ResourceId,
    /// Home's operations, which take time only where the machine limits them: opening a file, and making a scratch directory.
    opens: Operations,
    scratch: Operations,
    /// The links between sites, row by row: from, to.
    between: Vec<ResourceId>,
    n_sites: u32,
    places: Vec<NodePlace>,
    places_free: BTreeSet<u32>,
}

impl<'a> Hardware<'a> {
    /// `rng` draws which places are slow.
    pub fn new(machine: &'a Machine, faults: &Faults, scratch_at_home: bool, rng: &mut Rng) -> Hardware<'a> {
        let mut fluid = Fluid::new(0.02);
        let home = fluid.add(machine.home_bytes_per_s);
        let mut places = vec![];
        for number in 0..machine.nodes {
            let slow = (rng.below(1 << 20) as f64) < faults.slow_share * f64::from(1 << 20);
            let speed = if slow { faults.slow_speed } else { 1.0 };
            places.push(NodePlace {
                number,
                site: machine.sites.map_or(0, |sites| number % sites.n),
                disk: fluid.add(machine.disk_bytes_per_s * speed),
                memory: fluid.add(machine.memory_bytes_per_s * speed),
                link_in: fluid.add(machine.nic_bytes_per_s),
                link_out: fluid.add(machine.nic_bytes_per_s),
                client: fluid.add(machine.home_client_bytes_per_s),
                speed: machine.speed * speed,
            });
        }
        let n_sites = machine.sites.map_or(1, |sites| sites.n);
        let between_bytes_per_s = machine.sites.map_or(f64::MAX, |sites| sites.between_bytes_per_s);
        let n_links = if n_sites > 1 { n_sites * n_sites } else { 0 };
        let between = (0..n_links).map(|_| fluid.add(between_bytes_per_s)).collect();
        let scratch_per_s = machine.costs.home_scratch_per_s.filter(|_| scratch_at_home);
        Hardware {
            machine,
            fluid,
            home,
            opens: Operations::new(machine.costs.home_opens_per_s),
            scratch: Operations::new(scratch_per_s),
            between,
            n_sites,
            places,
            places_free: (0..machine.nodes).collect(),
        }
    }

    /// A place for a node that comes, if one is free.
    pub fn take_place(&mut self) -> Option<NodePlace> {
        self.places_free.pop_first().map(|number| self.places[number as usize])
    }

    /// The node is gone: its place is free, and its flows end.
    pub fn give_back(&mut self, now: Timestamp, place: NodePlace, flows: Flows) {
        self.places_free.insert(place.number);
        let mut flows = flows.flows;
        flows.sort_unstable();
        for flow in flows {
            self.fluid.cancel(now.0, flow);
        }
    }

    /// The link that leads from one site to another. `None`: it is the same site.
    pub fn between(&self, from: u32, to: u32) -> Option<ResourceId> {
        (from != to).then(|| self.between[(from * self.n_sites + to) as usize])
    }

    /// How long a node in the place `reader` takes to know that it does not reach one in the place `holder`. `None`: it does.
    pub fn cut_ns(&self, reader: &NodePlace, holder: &NodePlace) -> Option<u64> {
        let links = self.machine.cut_links.as_ref()?;
        links.cuts(reader.number, holder.number).then_some(links.notice_ns)
    }

    /// When home has opened or created a file that is asked for now. `None`: at once.
    pub fn opened_at(&mut self, now: Timestamp) -> Option<u64> {
        self.opens.done_at(now)
    }

    /// When home has made a program's scratch directory. `None`: at once, or there is none.
    pub fn scratch_made_at(&mut self, now: Timestamp) -> Option<u64> {
        self.scratch.done_at(now)
    }

    /// Begins a flow of `bytes` through the resources `crossed`. `flows` are those of the node that it belongs to.
    pub fn begin(
        &mut self,
        now: Timestamp,
        flows: &mut Flows,
        bytes: u64,
        crossed: &[ResourceId],
        purpose: Purpose,
    ) -> FlowId {
        let flow = self.fluid.begin(now.0, bytes, crossed, purpose);
        flows.flows.push(flow);
        if flows.flows.len() >= flows.n_max {
            flows.flows.retain(|flow| self.fluid.tag(*flow).is_some());
            flows.n_max = FLOWS_MIN.max(2 * flows.flows.len());
        }
        flow
    }

    /// Ends a flow, if it goes on, and says what it was for.
    pub fn break_off(&mut self, now: Timestamp, flow: FlowId) -> Option<Purpose> {
        let purpose = self.fluid.tag(flow)?;
        self.fluid.cancel(now.0, flow);
        Some(purpose)
    }

    pub fn goes_on(&self, flow: FlowId) -> bool {
        self.fluid.tag(flow).is_some()
    }

    /// Bytes that a flow has still to move, if it goes on.
    pub fn left(&self, now: Timestamp, flow: FlowId) -> Option<f64> {
        self.fluid.left(now.0, flow)
    }

    pub fn is_still(&self) -> bool {
        self.fluid.n_flows() == 0
    }

    /// When the next flow ends, or changes its rate.
    pub fn next_ns(&mut self) -> Option<u64> {
        self.fluid.next_ns()
    }

    /// Moves all flows up to `now`, and adds the purposes of those that ended to `ended`.
    pub fn advance(&mut self, now: Timestamp, ended: &mut Vec<Purpose>) {
        self.fluid.advance(now.0, ended);
    }
}
