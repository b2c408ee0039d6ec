//! Carries collectives out: which prefetch is issued next, and what happens when an object does not come.
//!
//! In: [`Plan`]s, [`CollectiveEvent`]s, the time, and the [`Catalog`], which says which executor holds what
//! (it is updated before an event is passed in). Out: [`CollectiveAction`]s. There is no I/O or clock here.
//!
//! A *want* is a receiver and an object. It is in exactly one of these states (drawing in
//! `docs/states/collective.md`): `held` (a collective gather waits for its last file) → `nowhere` (no node
//! has the object) → `below` (the receiver that the object shall come from has not begun) → `ready` (the
//! source is known, but no stream is free) → `issued` (part of a batch that an executor was asked for) →
//! gone: the object has arrived, or the want was given up.
//!
//! Invariants, checked by [`Collectives::sanity_check`]:
//!   1. no node receives more than `in_max` batches at once, and none sends more than `out_max`;
//!   2. an object that the source of a batch does not hold when the batch is issued belongs to a batch of
//!      the source's own, which was issued before. Unless the batch goes up or down a tree of archives, this is the
//!      same batch for all such objects, and they are in its order;
//!   3. following sources from want to want never leads back to the first (each want has one outgoing edge,
//!      tested before it is set; a holder of the object has none, whatever its want says);
//!   4. every ready want is in a queue, and each queue waits for a stream that is taken.
//!
//! Why this cannot deadlock (`Zhang12` §V-D): a batch takes its streams at the receiver and at the source
//! together or takes neither, and by 2 it waits only for batches that have theirs. So of all issued batches,
//! the batch at the head of each chain reads objects that its source has, and ends. (If a source has dropped
//! an object meanwhile, it reports that, or the batch is late.) In the paper, files flow only from lower to
//! higher nodes. Here the order is the order of issue, so that any node can be a parent of any other.
//!
//! Why a streamed batch keeps to one batch of its source, and to that batch's order: otherwise the first of
//! two objects might wait for a node that waits for the second. Within that limit, all objects go down a tree
//! in one request each. A node that asked for many small files one by one would wait out a latency for every
//! few of them, at each of its children. The nodes of a tree of archives put together what comes by several batches.
//! Of one gather or scatter these all lead away from the root, so that no two nodes wait for each other.
//!
//! A tree of archives ([`Way::ArchiveTree`]) is made when all its objects exist, because their holders are known only
//! then. Its nodes get wants of their own, *relays*, for what they pass on. Nobody else needs these: a relay counts
//! neither in the collective's record nor for its end, and what is left of them at the end is cancelled. Where a
//! relay is given up, the node after it asks the node before it.
//!
//! Late batches: a batch that took `late_factor` times the predicted time plus a grace gets another source,
//! if its own source still receives from a node that has everything, or if other nodes hold the objects. (So
//! in a chain below a slow node, only the slow node's child moves, and takes the rest of the chain along.)
//! Each failure or lateness counts; after `tries_max` the want is given up.
//!
//! The child modules: `wants` (the states), `events` (what happens to wants), `batches` (what is asked for),
//! `check` (the invariants).
//!
//! Not here: what is worth a plan ([`super::choose`]), and who finds space for the bytes (the executor, which
//! may refuse).

mod batches;
mod check;
mod events;
mod wants;

use super::links::{Links, Observation};
use super::plan::{Item, Plan};
use super::{BatchId, Choice, CollectiveId, CollectiveKind, CollectiveRecord, Way};
use crate::catalog::Catalog;
use crate::event::{Source, TransferErrorKind};
use eyas_terms::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Sources named in a prefetch: the planned one, and others to try if it fails at once.
const SOURCES_MAX: usize = 3;
/// The time that a request which was split off takes at least, in latencies.
const ASKING_SHARE: f64 = 4.0;
/// The number of holders that are compared when a source is looked for.
const HOLDERS_SEEN: usize = 64;

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct CarryConfig {
    /// Batches that may be under way at once into a node, out of a node, and out of home; each at least 1.
    pub in_max: u32,
    pub out_max: u32,
    pub home_max: u32,
    /// A batch has at most this many objects, and ends with the object that brings it to this many bytes.
    pub batch_objects_max: u32,
    pub batch_bytes_max: u64,
    /// Failures and latenesses after which a want is given up.
    pub tries_max: u8,
    /// A batch is late after `late_factor` times the predicted time, plus the grace; doubled with each try.
    pub late_factor: f64,
    pub grace_ns: u64,
}

impl Default for CarryConfig {
    fn default() -> Self {
        CarryConfig {
            in_max: 4,
            out_max: 4,
            home_max: 16,
            batch_objects_max: 512,
            batch_bytes_max: 256 << 20,
            tries_max: 6,
            late_factor: 3.0,
            grace_ns: 1_000_000_000,
        }
    }
}

/// Inputs of the state machine.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveEvent {
    /// The catalog has a new replica, wanted or not. So objects that tasks make become known here, too.
    ReplicaAdded { executor: ExecutorId, object: ObjectId },
    /// An executor could not get an object of a batch from any of the sources it was given.
    PrefetchFailed { executor: ExecutorId, batch: BatchId, object: ObjectId, kind: TransferErrorKind },
    /// The executor is gone, and the catalog knows that.
    ExecutorLost { executor: ExecutorId },
    /// The object will not exist: its maker failed.
    ObjectGone { object: ObjectId },
    /// Nobody needs what this collective brings any more.
    Abandoned { collective: CollectiveId },
    /// Time passed; sent at least about once a second while a collective is live.
    Ticked,
}

/// Outputs of the state machine.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveAction {
    /// Get these objects, in this order, in one request to the best of these sources that has them. This
    /// replaces an earlier prefetch of the same object. A source that still receives an object sends on the
    /// bytes that arrive. `awaits`: the first source is about to receive what it does not have, and is waited for.
    Prefetch {
        executor: ExecutorId,
        batch: BatchId,
        objects: Vec<ObjectId>,
        sources: Vec<Source>,
        awaits: bool,
    },
    /// Stop fetching these objects, unless an attempt needs them.
    CancelPrefetch { executor: ExecutorId, objects: Vec<ObjectId> },
    /// All objects of the collective exist now, so that it is known how much is left to be moved.
    AllExist { collective: CollectiveId, left: Left },
    /// The collective's last want has arrived or was given up.
    Ended { record: CollectiveRecord },
}

/// What is left to be moved of a collective.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug, Default)]
pub struct Left {
    /// Pairs of receiver and object, and their bytes.
    pub n_objects: u32,
    pub bytes: u64,
    /// Nodes that they come from, as far as known.
    pub n_sources: u32,
    /// The bytes that all collectives together have to move into or out of the busiest of its nodes, by those that this
    /// one has to move into or out of one node; at least 1.
    pub crowd: f64,
}

type Pair = (ExecutorId, ObjectId);
/// Wants of one receiver that are ready to come from one source. Older collectives come first, then receivers
/// in the order of the plan (their ranks), so that the large parts of a tree begin before the small ones.
type QueueId = (CollectiveId, u32, ExecutorId, Source);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Held,
    Nowhere,
    Below(ExecutorId),
    Ready(Source),
    Issued(BatchId, Source),
}

impl State {
    /// The node that the object comes from, as far as that is known.
    fn source(self) -> Option<Source> {
        match self {
            State::Held | State::Nowhere => None,
            State::Below(executor) => Some(Source::Peer(executor)),
            State::Ready(source) | State::Issued(_, source) => Some(source),
        }
    }
}

struct Want {
    item: Item,
    /// The parent as planned; if that parent leaves, the want gets the parent's own parent.
    parent: Option<ExecutorId>,
    state: State,
    way: Way,
    /// The receiver was asked for the object and has not said that it cannot get it, so the object may be
    /// coming although the want is not issued now.
    asked: bool,
    n_tries: u8,
    /// Sources that failed.
    avoid: Vec<ExecutorId>,
    /// The receiver's place in the first plan that named it.
    rank: u32,
    /// All collectives that need the object, in the order in which they asked.
    collectives: Vec<CollectiveId>,
}

impl Want {
    fn new(item: Item, parent: Option<ExecutorId>, way: Way, collective: CollectiveId) -> Want {
        let collectives = vec![collective];
        Want {
            item,
            parent,
            state: State::Held,
            way,
            asked: false,
            n_tries: 0,
            avoid: vec![],
            rank: 0,
            collectives,
        }
    }
}

struct Batch {
    collective: CollectiveId,
    executor: ExecutorId,
    source: Source,
    objects: Vec<ObjectId>,
    deadline: Timestamp,
    /// The source serves one such batch at a time, in the rounds of a binomial tree.
    in_rounds: bool,
    /// The batch of the source itself that brings the objects which the source did not have when this batch
    /// was issued; of several, the one that may take longest.
    above: Option<BatchId>,
    issued: Timestamp,
    /// The number of objects asked for, and how many of them have arrived; `bytes` of all.
    n_asked: u32,
    n_arrived: u32,
    bytes: u64,
    /// Batches that the receiver or the source (whichever has more) had under way when this batch was issued.
    n_sharing: u32,
}

struct Live {
    kind: CollectiveKind,
    way: Way,
    began: Timestamp,
    choice: Option<Choice>,
    /// All wants, and how many of them have neither arrived nor been given up.
    wants: Vec<Pair>,
    n_left: u32,
    n_arrived: u32,
    arrived_bytes: u64,
    n_moved: u32,
    n_receivers: u32,
    /// Wanted objects that no node has and that are not to be had from outside either.
    unmade: BTreeSet<ObjectId>,
    /// All wanted objects exist since then.
    ready: Option<Timestamp>,
    /// What nodes of a tree of archives pass on and has not arrived there; none of these is among `wants`.
    relays: BTreeSet<Pair>,
}

/// See the module.
#[derive(Default)]
pub struct Collectives {
    config: CarryConfig,
    links: Links,
    n_begun: u32,
    n_batches: u64,
    live: BTreeMap<CollectiveId, Live>,
    wants: BTreeMap<Pair, Want>,
    /// Receivers by object.
    wanting: FxHashMap<ObjectId, BTreeSet<ExecutorId>>,
    /// Receivers that wait below a want; may name some that no longer do so.
    below: FxHashMap<Pair, Vec<ExecutorId>>,
    queues: BTreeMap<QueueId, VecDeque<ObjectId>>,
    /// Queues that may be served, and those that wait for a stream.
    open: BTreeSet<QueueId>,
    blocked_in: BTreeMap<ExecutorId, Vec<QueueId>>,
    blocked_out: BTreeMap<Source, Vec<QueueId>>,
    batches: BTreeMap<BatchId, Batch>,
    deadlines: BTreeSet<(Timestamp, BatchId)>,
    n_in: FxHashMap<ExecutorId, u32>,
    n_out: BTreeMap<Source, u32>,
    /// Batches of binomial trees, counted by source and by receiver.
    n_in_rounds: BTreeMap<(CollectiveId, Source), u32>,
    n_into: BTreeMap<(CollectiveId, ExecutorId), u32>,
    /// Ready wants by source.
    n_queued: BTreeMap<Source, u32>,
    /// The bytes that are to be moved into and out of nodes, of wants whose source is known.
    bytes_into: BTreeMap<ExecutorId, u64>,
    bytes_from: BTreeMap<Source, u64>,
    /// Wants that failed everywhere, to be tried again at the next tick.
    retry: BTreeSet<Pair>,
    /// Measurements of batches that arrived whole, from peers that had all objects.
    observed: Vec<Observation>,
}

impl Collectives {
    pub fn new(config: CarryConfig) -> Collectives {
        Collectives { config, ..Collectives::default() }
    }

    /// The links by which the time of transfers is judged; see [`super::LinkEstimator`].
    pub fn set_links(&mut self, links: Links) {
        self.links = links;
    }

    /// A number for a collective that has not been used yet.
    pub fn next_id(&mut self) -> CollectiveId {
        self.n_begun += 1;
        CollectiveId(self.n_begun - 1)
    }

    /// Begins to carry out a plan. `choice`: what was predicted, for the record. Objects that receivers
    /// already hold are not wanted; a plan of which nothing is left ends at once.
    pub fn begin(
        &mut self,
        now: Timestamp,
        plan: &Plan,
        choice: Option<Choice>,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) -> CollectiveId {
        let id = self.next_id();
        let mut live = Live {
            kind: plan.kind,
            way: plan.way,
            began: now,
            choice,
            wants: vec![],
            n_left: 0,
            n_arrived: 0,
            arrived_bytes: 0,
            n_moved: 0,
            n_receivers: 0,
            unmade: BTreeSet::new(),
            ready: None,
            relays: BTreeSet::new(),
        };
        let wanted = plan
            .wants
            .iter()
            .filter(|w| catalog.seat(w.executor).is_some() && !catalog.holds(w.executor, w.item.object));
        let mut ranks: BTreeMap<ExecutorId, u32> = BTreeMap::new();
        for want in wanted {
            let n_ranks = ranks.len() as u32;
            let rank = *ranks.entry(want.executor).or_insert(n_ranks);
            let pair = (want.executor, want.item.object);
            if !want.item.at_home && catalog.n_holders(want.item.object) == 0 {
                live.unmade.insert(want.item.object);
            }
            match self.wants.entry(pair) {
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    if known.collectives.last() == Some(&id) {
                        continue; // named twice in one plan
                    }
                    known.collectives.push(id);
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(Want { rank, ..Want::new(want.item, want.parent, plan.way, id) });
                    self.wanting.entry(pair.1).or_default().insert(pair.0);
                }
            }
            live.wants.push(pair);
        }
        live.n_left = live.wants.len() as u32;
        live.n_receivers = ranks.len() as u32;
        let is_ready = live.unmade.is_empty();
        live.ready = is_ready.then_some(now);
        self.live.insert(id, live);
        if is_ready || !plan.way.waits_for_all() {
            self.place_held(vec![id], catalog);
        }
        if is_ready {
            self.all_exist(id, out);
        }
        self.end_if_done(now, id, catalog, out);
        self.issue(now, catalog, out);
        id
    }

    /// The one entrance for all that happens later.
    pub fn handle(
        &mut self,
        now: Timestamp,
        event: CollectiveEvent,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        if self.live.is_empty() {
            return;
        }
        match event {
            CollectiveEvent::ReplicaAdded { executor, object } => {
                self.on_replica_added(now, executor, object, catalog, out)
            }
            CollectiveEvent::PrefetchFailed { executor, batch, object, kind } => {
                self.on_failed(now, (executor, object), batch, kind, catalog, out)
            }
            CollectiveEvent::ExecutorLost { executor } => self.on_executor_lost(now, executor, catalog, out),
            CollectiveEvent::ObjectGone { object } => {
                for executor in self.receivers_of(object) {
                    self.give_up(now, (executor, object), catalog, out);
                }
                let ready = self.made(now, object);
                self.place_held(ready.clone(), catalog);
                ready.into_iter().for_each(|id| self.all_exist(id, out));
            }
            CollectiveEvent::Abandoned { collective } => self.on_abandoned(now, collective, catalog, out),
            CollectiveEvent::Ticked => self.on_ticked(now, catalog, out),
        }
        self.issue(now, catalog, out);
    }

    pub fn n_live(&self) -> usize {
        self.live.len()
    }

    /// Whether a collective has yet to bring the object somewhere, or waits until the object is made.
    pub fn awaits(&self, object: ObjectId) -> bool {
        self.wanting.contains_key(&object) || self.live.values().any(|live| live.unmade.contains(&object))
    }

    /// What the batches that have ended since the last call say of the links between nodes. Left out are
    /// batches that failed in part, and batches whose source was still receiving, because their time is the
    /// time of the whole path.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observed)
    }

    /// All that the collective wants exists, or can be had from outside.
    pub(super) fn all_exist(&self, id: CollectiveId, out: &mut Vec<CollectiveAction>) {
        let Some(live) = self.live.get(&id) else { return };
        let (mut left, mut sources) = (Left { n_objects: live.n_left, ..Left::default() }, BTreeSet::new());
        let (mut into, mut from) = (BTreeMap::<ExecutorId, u64>::new(), BTreeMap::<Source, u64>::new());
        let relays = live.relays.iter().map(|pair| (pair, false));
        for (pair, is_wanted) in live.wants.iter().map(|pair| (pair, true)).chain(relays) {
            let Some(want) = self.wants.get(pair) else { continue };
            let bytes = want.item.size_bytes;
            *into.entry(pair.0).or_default() += bytes;
            if let Some(source) = want.state.source() {
                *from.entry(source).or_default() += bytes;
            }
            if is_wanted {
                left.bytes += bytes;
                sources.insert(want.state.source());
            }
        }
        left.n_sources = sources.len() as u32;
        let all_into = into.keys().filter_map(|e| self.bytes_into.get(e));
        let all_from = from.keys().filter_map(|s| self.bytes_from.get(s));
        let most = into.values().chain(from.values()).max().copied().unwrap_or(0);
        let most_of_all = all_into.chain(all_from).max().copied().unwrap_or(0);
        left.crowd = (most_of_all as f64 / most.max(1) as f64).max(1.0);
        out.push(CollectiveAction::AllExist { collective: id, left });
    }

    // ------------------------------------------------------------ ends

    fn end_if_done(
        &mut self,
        now: Timestamp,
        id: CollectiveId,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        if let Some(live) = self.live.get_mut(&id).filter(|l| l.n_left == 0) {
            let n_wanted = live.wants.len() as u32;
            let relays = std::mem::take(&mut live.relays).into_iter().collect();
            self.cancel(id, relays, catalog, out);
            self.end(now, id, n_wanted, out);
        }
    }

    fn end(&mut self, now: Timestamp, id: CollectiveId, n_wanted: u32, out: &mut Vec<CollectiveAction>) {
        let live = self.live.remove(&id).expect("it ends once");
        let record = CollectiveRecord {
            collective: id,
            kind: live.kind,
            way: live.way,
            began: live.began,
            ready: live.ready,
            ended: now,
            choice: live.choice,
            n_receivers: live.n_receivers,
            n_wanted,
            n_arrived: live.n_arrived,
            arrived_bytes: live.arrived_bytes,
            n_moved: live.n_moved,
        };
        out.push(CollectiveAction::Ended { record });
    }
}

/// Lowers a sum, and removes it when it is zero.
fn take_bytes<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, bytes: u64) {
    if let Entry::Occupied(mut sum) = sums.entry(key) {
        *sum.get_mut() = sum.get().saturating_sub(bytes);
        if *sum.get() == 0 {
            sum.remove();
        }
    }
}

/// Lowers a count by one, and removes it when it is zero.
fn take_one<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(n) = counts.get_mut(&key) {
        *n -= 1;
        if *n == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
