//! Collectives: the way that the core chooses, beside the best of all in hindsight.
//!
//! In: a seed and a number. Out: [`Compared`], for one random case the predicted time of each way and the
//! time that each way took when it was carried out by the core's own state machine ([`Collectives`]) over
//! links that flows share ([`Fluid`]).
//!
//! Two things are hidden from the core: the real speed of the links (it sees [`N_PROBES`] transfers with
//! noise, some of which hung) and the real times at which files will exist (it sees their makers' times
//! with an error of some per cent).
//!
//! The model of a transfer: after the latency of its request (which varies), objects come one after the
//! other over the sender's outbound and the receiver's inbound link, each but the first after the cost per
//! object. A receiver sends an object on as soon as it has a piece, half a latency later per hop. The next
//! receiver cannot have the whole object sooner than that after the sender has it.
//!
//! Not here: disks and programs, which collectives share with tasks; [`eyas_sim::world`] models them.

use eyas_core::catalog::Catalog;
use eyas_core::collective::cost::{GatherCase, MulticastCase, PIECE_BYTES, ScatterCase, Streams, TREE_ARITY};
use eyas_core::collective::{
    BatchId, CarryConfig, Choice, CollectiveAction, CollectiveEvent, CollectiveKind, Collectives, Estimate,
    Item, LinkEstimator, LinkModel, Links, Observation, Outlook, Plan, Way, choose_gather, choose_multicast,
    choose_scatter, plan,
};
use eyas_core::event::Source;
use eyas_sim::fluid::{Fluid, ResourceId};
use eyas_terms::rng::Rng;
use eyas_terms::{CatalogLocation, ExecutorId, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// The number of transfers from which links are estimated.
pub const N_PROBES: u32 = 60;
/// Makers need up to this share more or less time than the core expects.
const MAKERS_SPREAD: f64 = 0.2;
const ARCHIVE_TREE: Way = Way::ArchiveTree { arity: TREE_ARITY };
const GATHER_WAYS: [Way; 5] =
    [Way::CollectiveGather, Way::AsyncArchives, Way::AsyncGather, Way::PlainFetches, ARCHIVE_TREE];
const MULTICAST_WAYS: [Way; 5] = [
    Way::PlainFetches,
    Way::Binomial,
    Way::Pipelined { arity: 1 },
    Way::Pipelined { arity: 2 },
    Way::Pipelined { arity: 4 },
];
const SCATTER_WAYS: [Way; 3] = [Way::Archives, Way::PlainFetches, ARCHIVE_TREE];

/// One file of a case.
#[derive(Clone, PartialEq, Debug)]
struct File {
    bytes: u64,
    at: ExecutorId,
    /// Seconds from the beginning until the file exists: the true time, and the time that the core expects.
    ready_s: f64,
    expected_s: f64,
}

/// A random case: the files that have to move, their targets, and the links.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub kind: CollectiveKind,
    pub n_nodes: u32,
    pub link: LinkModel,
    /// The links as estimated from probes.
    pub seen: Estimate,
    files: Vec<File>,
    streams: Streams,
    seed: u64,
}

/// One way of one case.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Tried {
    pub way: Way,
    pub predicted_s: f64,
    pub measured_s: f64,
}

/// The results of a case.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Compared {
    pub case: String,
    pub kind: CollectiveKind,
    pub chosen: Way,
    pub tried: Vec<Tried>,
}

impl Compared {
    pub fn find(&self, way: Way) -> Option<&Tried> {
        self.tried.iter().find(|t| t.way == way)
    }
    /// Measured time of the chosen way divided by the least of all ways; 1 is perfect.
    pub fn ratio(&self) -> f64 {
        self.ratio_of(self.chosen)
    }
    /// The same ratio for `way`; NaN where `way` does not apply.
    pub fn ratio_of(&self, way: Way) -> f64 {
        let best_s = self.tried.iter().map(|t| t.measured_s).fold(f64::INFINITY, f64::min);
        self.find(way).map_or(f64::NAN, |t| t.measured_s / best_s)
    }
    /// Predicted time divided by measured time of the chosen way.
    pub fn prediction(&self) -> f64 {
        self.find(self.chosen).map_or(f64::NAN, |t| t.predicted_s / t.measured_s)
    }
}

struct Draw(Rng);

impl Draw {
    /// A number in [0, 1).
    fn even(&mut self) -> f64 {
        self.0.below(1 << 53) as f64 / (1u64 << 53) as f64
    }
    /// A number between `low` and `high`; every factor is equally likely.
    fn log_even(&mut self, low: f64, high: f64) -> f64 {
        low * libm::pow(high / low, self.even())
    }
    /// A factor within `1 ± spread`; factors near 1 are likelier.
    fn about(&mut self, spread: f64) -> f64 {
        1.0 + spread * (self.even() + self.even() + self.even() - 1.5) / 1.5
    }
}

/// Case number `i` of a seed: 2 to 64 nodes, 1 to 10,000 files of 1 KB to 1 GB, latencies of 0.05 to 20 ms,
/// links of 10 MB/s to 3 GB/s.
pub fn case(seed: u64, i: u32) -> Case {
    let seed = Rng::new(seed ^ (u64::from(i) << 32)).next_u64();
    let mut draw = Draw(Rng::new(seed));
    let latency_s = draw.log_even(50e-6, 20e-3);
    let link = LinkModel {
        latency_s,
        per_object_s: draw.log_even(10e-6, 1e-3).min(latency_s),
        bandwidth_bytes_per_s: draw.log_even(10e6, 3e9),
    };
    let seen = probe(&link, &mut draw);
    let kind = match i % 10 {
        0..6 => CollectiveKind::Gather,
        6..9 => CollectiveKind::Multicast,
        _ => CollectiveKind::Scatter,
    };
    let n_nodes = draw.log_even(2.0, 65.0) as u32;
    let n_files = match kind {
        CollectiveKind::Multicast => draw.log_even(1.0, 9.0),
        _ => draw.log_even(1.0, 10_001.0),
    } as u32;
    let typical = draw.log_even(1e3, 1e9);
    let spread = [0.0, 0.5, 3.0][draw.0.below(3) as usize];
    let total_s = typical * f64::from(n_files) / link.bandwidth_bytes_per_s;
    // The makers' times: all done; each at a time of its own; in waves of a slot per node, of about the
    // same length.
    let staggered = draw.0.below(4);
    let span_s = total_s.max(latency_s * 10.0) * draw.log_even(0.1, 10.0);
    let n_sources = if kind == CollectiveKind::Gather { n_nodes.max(2) - 1 } else { 1 };
    let n_waves = n_files.div_ceil(n_sources);
    let files = (0..n_files)
        .map(|f| {
            let size = typical * if spread > 0.0 { libm::exp(spread * (draw.even() - 0.5)) } else { 1.0 };
            let ready_s = match (kind, staggered) {
                (CollectiveKind::Gather, 1 | 2) => span_s * draw.even(),
                (CollectiveKind::Gather, 3) => {
                    span_s * f64::from(f / n_sources + 1) / f64::from(n_waves) * draw.about(0.3)
                }
                _ => 0.0,
            };
            File {
                bytes: (size as u64).clamp(1_000, 1_000_000_000),
                at: ExecutorId(1 + f % n_sources),
                ready_s,
                expected_s: ready_s * draw.about(MAKERS_SPREAD),
            }
        })
        .collect();
    Case { kind, n_nodes: n_nodes.max(2), link, seen, files, streams: Streams::default(), seed }
}

/// The core's estimate of a link after some transfers, of which one in ten hung.
fn probe(link: &LinkModel, draw: &mut Draw) -> Estimate {
    let mut estimator = LinkEstimator::default();
    for _ in 0..N_PROBES {
        let n_objects = draw.log_even(1.0, 65.0) as u32;
        let bytes = draw.log_even(1e3, 1e8) as u64;
        let n_sharing = 1 + draw.0.below(4) as u32;
        let hung = if draw.even() < 0.1 { draw.log_even(2.0, 50.0) } else { 1.0 };
        let shared = bytes * u64::from(n_sharing);
        let duration_s = link.request_s(u64::from(n_objects), shared) * draw.about(0.2) * hung;
        let duration_ns = (duration_s * 1e9) as u64;
        estimator.observe(Observation { n_objects, bytes, duration_ns, n_sharing });
    }
    estimator.estimate()
}

impl Case {
    fn describe(&self) -> String {
        let bytes: u64 = self.files.iter().map(|f| f.bytes).sum();
        let ready_s = self.files.iter().map(|f| f.ready_s).fold(0.0, f64::max);
        format!(
            "{:?}: {} nodes, {} files, {:.3} MB, made within {ready_s:.3} s, {:.3} ms, {:.1} MB/s, {:.3} ms/file",
            self.kind,
            self.n_nodes,
            self.files.len(),
            bytes as f64 / 1e6,
            self.link.latency_s * 1e3,
            self.link.bandwidth_bytes_per_s / 1e6,
            self.link.per_object_s * 1e3
        )
    }

    fn items(&self) -> Vec<Item> {
        let item =
            |(i, f): (usize, &File)| Item { object: ObjectId(i as u32), size_bytes: f.bytes, at_home: false };
        self.files.iter().enumerate().map(item).collect()
    }

    /// The receivers: in a multicast or scatter, every node that is neither root nor source.
    fn receivers(&self) -> Vec<ExecutorId> {
        (0..self.n_nodes).filter(|e| *e != 1).map(ExecutorId).collect()
    }

    fn choose(&self) -> Choice {
        let outlook = Outlook { link: self.seen, makers_factor: 1.0 + MAKERS_SPREAD };
        let n_objects = self.files.len() as u64;
        let bytes = self.files.iter().map(|f| f.bytes).sum();
        match self.kind {
            CollectiveKind::Gather => {
                let sources: BTreeSet<ExecutorId> = self.files.iter().map(|f| f.at).collect();
                let files = self.files.iter().map(|f| (f.expected_s, f.bytes)).collect();
                let case = GatherCase::new(files, sources.len() as u32);
                choose_gather(&case, &outlook, &self.streams)
            }
            CollectiveKind::Scatter => {
                let n_receivers = self.receivers().len() as u32;
                let case = ScatterCase { n_receivers, n_objects, bytes, passes_on: true };
                choose_scatter(&case, &outlook, &self.streams)
            }
            CollectiveKind::Multicast | CollectiveKind::Replicate => {
                let n_receivers = self.receivers().len() as u32;
                let largest_bytes = self.files.iter().map(|f| f.bytes).max().unwrap_or(0);
                let case = MulticastCase { n_receivers, n_holders: 1, n_objects, bytes, largest_bytes };
                choose_multicast(&case, &outlook, &self.streams, None)
            }
        }
    }

    fn plan(&self, way: Way) -> Plan {
        let items = self.items();
        match self.kind {
            CollectiveKind::Gather => plan::gather(&items, ExecutorId(0), way),
            CollectiveKind::Scatter => {
                let receivers = self.receivers();
                let mut needs: Vec<(ExecutorId, Vec<Item>)> =
                    receivers.iter().map(|e| (*e, vec![])).collect();
                for (i, item) in items.into_iter().enumerate() {
                    needs[i % receivers.len()].1.push(item);
                }
                plan::scatter(&needs, way)
            }
            CollectiveKind::Multicast | CollectiveKind::Replicate => {
                plan::multicast(&items, &self.receivers(), &[ExecutorId(1)], way, |_| 0)
            }
        }
    }

    fn ways(&self) -> &'static [Way] {
        match self.kind {
            CollectiveKind::Gather => &GATHER_WAYS,
            CollectiveKind::Scatter => &SCATTER_WAYS,
            CollectiveKind::Multicast | CollectiveKind::Replicate => &MULTICAST_WAYS,
        }
    }
}

/// A case without chance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Even {
    pub kind: CollectiveKind,
    pub n_nodes: u32,
    pub n_files: u32,
    pub file_bytes: u64,
}

/// Files of one size over links that the core knows, all there from the beginning. The files of a gather
/// are spread evenly over the other nodes; otherwise all files are at one node.
pub fn even(of: Even, link: LinkModel) -> Case {
    let Even { kind, n_nodes, n_files, file_bytes } = of;
    let n_sources = if kind == CollectiveKind::Gather { n_nodes - 1 } else { 1 };
    let files = (0..n_files)
        .map(|f| File { bytes: file_bytes, at: ExecutorId(1 + f % n_sources), ready_s: 0.0, expected_s: 0.0 })
        .collect();
    Case { kind, n_nodes, link, seen: Estimate::exactly(link), files, streams: Streams::default(), seed: 1 }
}

/// The way that the core chooses for a case.
pub fn chosen(case: &Case) -> Way {
    case.choose().way
}

/// Carries a case out in one way: the seconds that the cost model expects, and the seconds that it takes.
pub fn carried_out(case: &Case, way: Way) -> Tried {
    let choice = case.choose();
    let predicted = choice.considered.iter().find(|c| c.0 == way);
    let predicted_s = predicted.map_or(f64::NAN, |c| c.1 as f64 * 1e-9);
    Tried { way, predicted_s, measured_s: carried_out_s(case, way) }
}

/// Chooses a way for a case, and carries out all of them.
pub fn compare(case: &Case) -> Compared {
    let choice = case.choose();
    let predicted_s = |way: Way| {
        let of = choice.considered.iter().find(|c| c.0 == way);
        of.map_or(f64::NAN, |c| c.1 as f64 * 1e-9)
    };
    let tried = case
        .ways()
        .iter()
        .map(|&way| Tried { way, predicted_s: predicted_s(way), measured_s: carried_out_s(case, way) })
        .collect();
    Compared { case: case.describe(), kind: case.kind, chosen: choice.way, tried }
}

// ---------------------------------------------------------------- carrying out

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happens {
    /// A file is made.
    Made(u32),
    /// Without a collective the reader's attempt begins when all its inputs are there.
    Begin,
    /// The next object of a batch may flow, as far as the network goes.
    Next(BatchId),
    /// The receiver of an object has a piece to send on.
    Piece(ExecutorId, ObjectId),
    /// The last piece of an object has come from a node that had that piece only shortly before.
    Arrived(BatchId),
    Tick,
}

struct Moving {
    executor: ExecutorId,
    source: ExecutorId,
    objects: VecDeque<ObjectId>,
    /// The bytes of the first object that follow the piece under way.
    rest_bytes: u64,
}

/// The network and the executors on it, as far as a collective sees them.
struct Network<'a> {
    case: &'a Case,
    fluid: Fluid<BatchId>,
    inbound: Vec<ResourceId>,
    outbound: Vec<ResourceId>,
    catalog: Catalog,
    core: Collectives,
    agenda: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    n_noted: u64,
    moving: BTreeMap<BatchId, Moving>,
    /// Receivers that have had the first piece of an object for half a latency, the time until a node that
    /// asked earlier gets it.
    pieces: BTreeSet<(ExecutorId, ObjectId)>,
    /// Receivers that have had the first piece for less than that.
    fresh: BTreeSet<(ExecutorId, ObjectId)>,
    /// Batches that wait for their source's first piece, or for its last.
    wait_first: BTreeMap<(ExecutorId, ObjectId), Vec<BatchId>>,
    wait_last: BTreeMap<(ExecutorId, ObjectId), Vec<BatchId>>,
    draw: Draw,
    /// Nodes send on what they still receive.
    streams: bool,
    now_ns: u64,
    ended_ns: Option<u64>,
}

fn ns(s: f64) -> u64 {
    (s * 1e9) as u64
}

/// Seconds until the last object is where it was wanted.
fn carried_out_s(case: &Case, way: Way) -> f64 {
    let mut catalog = Catalog::new();
    for e in 0..case.n_nodes {
        catalog.executor_joined(ExecutorId(e));
    }
    for i in 0..case.files.len() {
        catalog.intern(CatalogLocation::Home(&format!("{i}")));
    }
    let is_plain_gather = way == Way::PlainFetches && case.kind != CollectiveKind::Multicast;
    let config = CarryConfig {
        in_max: if is_plain_gather { case.streams.plain_max } else { case.streams.in_max },
        out_max: case.streams.out_max,
        batch_objects_max: case.streams.batch_objects_max,
        ..CarryConfig::default()
    };
    let mut core = Collectives::new(config);
    core.set_links(Links { peer: case.seen.likely, home: case.seen.likely });
    let mut fluid = Fluid::new(0.002);
    let mut ends = || (0..case.n_nodes).map(|_| fluid.add(case.link.bandwidth_bytes_per_s)).collect();
    let (inbound, outbound) = (ends(), ends());
    let mut network = Network {
        case,
        fluid,
        inbound,
        outbound,
        catalog,
        core,
        agenda: BinaryHeap::new(),
        n_noted: 0,
        moving: BTreeMap::new(),
        pieces: BTreeSet::new(),
        fresh: BTreeSet::new(),
        wait_first: BTreeMap::new(),
        wait_last: BTreeMap::new(),
        // All ways see the same random latencies.
        draw: Draw(Rng::new(case.seed)),
        streams: way.streams(),
        now_ns: 0,
        ended_ns: None,
    };
    network.run(way)
}

impl Network<'_> {
    fn run(&mut self, way: Way) -> f64 {
        for (i, file) in self.case.files.iter().enumerate() {
            if file.ready_s > 0.0 {
                self.note(ns(file.ready_s), Happens::Made(i as u32));
            } else {
                self.catalog.add_replica(file.at, ObjectId(i as u32));
            }
        }
        let last_s = self.case.files.iter().map(|f| f.ready_s).fold(0.0, f64::max);
        self.note(if way == Way::PlainFetches { ns(last_s) } else { 0 }, Happens::Begin);
        self.note(1_000_000_000, Happens::Tick);
        let plan = self.case.plan(way);
        while self.ended_ns.is_none() {
            let noted = self.agenda.peek().map(|Reverse((at, ..))| *at);
            match (self.fluid.next_ns(), noted) {
                (Some(flow), at) if at.is_none_or(|at| flow <= at) => {
                    self.now_ns = flow;
                    let mut ended = vec![];
                    self.fluid.advance(flow, &mut ended);
                    for batch in ended {
                        self.on_flowed(batch);
                    }
                }
                _ => {
                    let Reverse((at, _, what)) = self.agenda.pop().expect("a tick is always noted");
                    self.now_ns = at;
                    self.on(what, &plan);
                }
            }
        }
        self.ended_ns.unwrap_or(0) as f64 * 1e-9
    }

    fn note(&mut self, at_ns: u64, what: Happens) {
        self.n_noted += 1;
        self.agenda.push(Reverse((at_ns, self.n_noted, what)));
    }

    fn on(&mut self, what: Happens, plan: &Plan) {
        match what {
            Happens::Made(file) => {
                let at = self.case.files[file as usize].at;
                self.replica(at, ObjectId(file));
            }
            Happens::Begin => {
                let mut out = vec![];
                self.core.begin(Timestamp(self.now_ns), plan, None, &self.catalog, &mut out);
                self.carry(out);
            }
            Happens::Next(batch) => self.flow(batch),
            Happens::Piece(executor, object) => {
                self.fresh.remove(&(executor, object));
                self.pieces.insert((executor, object));
                for batch in self.wait_first.remove(&(executor, object)).unwrap_or_default() {
                    self.flow(batch);
                }
            }
            Happens::Arrived(batch) => self.on_arrived(batch),
            Happens::Tick => {
                // Long collectives need no tick in each second.
                self.note(self.now_ns + (self.now_ns / 100).max(1_000_000_000), Happens::Tick);
                self.tell(CollectiveEvent::Ticked);
            }
        }
    }

    fn tell(&mut self, event: CollectiveEvent) {
        let mut out = vec![];
        self.core.handle(Timestamp(self.now_ns), event, &self.catalog, &mut out);
        self.carry(out);
    }

    fn replica(&mut self, executor: ExecutorId, object: ObjectId) {
        self.catalog.add_replica(executor, object);
        self.tell(CollectiveEvent::ReplicaAdded { executor, object });
        let waiting = self.wait_last.remove(&(executor, object)).unwrap_or_default();
        let piece_ns = ns(self.piece_s(object) + self.case.link.latency_s / 2.0);
        for batch in waiting {
            self.note(self.now_ns + piece_ns, Happens::Arrived(batch));
        }
    }

    fn piece_s(&self, object: ObjectId) -> f64 {
        self.case.link.bytes_s(PIECE_BYTES.min(self.case.files[object.0 as usize].bytes))
    }

    fn carry(&mut self, actions: Vec<CollectiveAction>) {
        for action in actions {
            match action {
                CollectiveAction::Prefetch { executor, batch, objects, sources, .. } => {
                    let Source::Peer(source) = sources[0] else { panic!("nothing is at home") };
                    self.moving
                        .insert(batch, Moving { executor, source, objects: objects.into(), rest_bytes: 0 });
                    let latency_s = self.case.link.latency_s * self.draw.about(0.2);
                    self.note(self.now_ns + ns(latency_s), Happens::Next(batch));
                }
                // Objects that are asked of another source now still come from the first source, too; the
                // first arrival counts.
                CollectiveAction::CancelPrefetch { .. } | CollectiveAction::AllExist { .. } => {}
                CollectiveAction::Ended { .. } => self.ended_ns = Some(self.now_ns),
            }
        }
    }

    /// Starts the flow of the next object of a batch, if its source has a piece of the object.
    fn flow(&mut self, id: BatchId) {
        let Some(batch) = self.moving.get(&id) else { return };
        let (executor, source, object) = (batch.executor, batch.source, batch.objects[0]);
        let has = |pair: (ExecutorId, ObjectId)| {
            self.pieces.contains(&pair) || self.catalog.holds(source, object) && !self.fresh.contains(&pair)
        };
        if !has((source, object)) {
            return self.wait_first.entry((source, object)).or_default().push(id);
        }
        // The first piece flows apart from the rest only if nodes send on what they still receive.
        let bytes = self.case.files[object.0 as usize].bytes;
        let first_bytes = if self.streams { bytes.min(PIECE_BYTES) } else { bytes };
        self.moving.get_mut(&id).expect("it was just read").rest_bytes = bytes - first_bytes;
        self.begin_flow(id, executor, source, first_bytes);
    }

    fn begin_flow(&mut self, id: BatchId, executor: ExecutorId, source: ExecutorId, bytes: u64) {
        let through = [self.outbound[source.0 as usize], self.inbound[executor.0 as usize]];
        self.fluid.begin(self.now_ns, bytes, &through, id);
    }

    fn on_flowed(&mut self, id: BatchId) {
        let batch = self.moving.get_mut(&id).expect("what flows was moving");
        let (executor, from) = (batch.executor, (batch.source, batch.objects[0]));
        let rest_bytes = std::mem::take(&mut batch.rest_bytes);
        if self.streams && !self.pieces.contains(&(executor, from.1)) && self.fresh.insert((executor, from.1))
        {
            // Half of a request's latency is the way to the next receiver.
            self.note(self.now_ns + ns(self.case.link.latency_s / 2.0), Happens::Piece(executor, from.1));
        }
        if rest_bytes > 0 {
            return self.begin_flow(id, executor, from.0, rest_bytes);
        }
        if self.catalog.holds(from.0, from.1) {
            self.on_arrived(id);
        } else {
            self.wait_last.entry(from).or_default().push(id);
        }
    }

    fn on_arrived(&mut self, id: BatchId) {
        let batch = self.moving.get_mut(&id).expect("what arrives was moving");
        let executor = batch.executor;
        let Some(object) = batch.objects.pop_front() else { return };
        if batch.objects.is_empty() {
            self.moving.remove(&id);
        } else {
            let pause_ns = ns(self.case.link.per_object_s);
            self.note(self.now_ns + pause_ns, Happens::Next(id));
        }
        self.replica(executor, object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_the_same_each_time_and_every_way_ends() {
        for i in [0, 3, 6, 7, 9] {
            let (a, b) = (case(1, i), case(1, i));
            assert_eq!(a, b);
            if a.files.len() > 200 {
                continue;
            }
            let compared = compare(&a);
            assert_eq!(compared, compare(&b));
            assert!(compared.tried.iter().all(|t| t.measured_s > 0.0 && t.predicted_s.is_finite()));
            assert!(compared.ratio() >= 1.0);
        }
    }

    #[test]
    fn what_is_carried_out_takes_what_the_network_needs() {
        // 100 MB to 16 nodes at 1 Gbit/s (the table of speeds of the issue): 0.8 s and a little.
        let link = LinkModel { latency_s: 1e-3, per_object_s: 1e-4, bandwidth_bytes_per_s: 125e6 };
        let file = File { bytes: 100_000_000, at: ExecutorId(1), ready_s: 0.0, expected_s: 0.0 };
        let streams = Streams::default();
        let kind = CollectiveKind::Multicast;
        let seen = Estimate::exactly(link);
        let case = Case { kind, n_nodes: 17, link, seen, files: vec![file], streams, seed: 1 };
        let took = |way| carried_out_s(&case, way);
        let (chain, binomial, flat) =
            (took(Way::Pipelined { arity: 1 }), took(Way::Binomial), took(Way::PlainFetches));
        assert!((0.8..0.9).contains(&chain), "{chain}");
        assert!((4.0..4.1).contains(&binomial), "{binomial}");
        assert!((12.8..12.9).contains(&flat), "{flat}");
        // 4,000 files of 100 KB from 16 nodes: 3.2 s is what the root's link needs.
        let files = (0..4_000).map(|i| File {
            bytes: 100_000,
            at: ExecutorId(1 + i % 16),
            ready_s: 0.0,
            expected_s: 0.0,
        });
        let case = Case { kind: CollectiveKind::Gather, files: files.collect(), ..case };
        let took = |way| carried_out_s(&case, way);
        let (gather, plain) = (took(Way::CollectiveGather), took(Way::PlainFetches));
        assert!((3.2..3.3).contains(&gather), "{gather}");
        assert!((7.0..7.4).contains(&plain), "{plain}");
    }
}
