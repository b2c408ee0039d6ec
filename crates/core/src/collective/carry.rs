//! Carrying collectives out: which prefetch is issued next, and what happens when something does not come.
//!
//! In: [`Plan`]s, [`CollectiveEvent`]s, the time, and the [`Catalog`], which says who holds what (it is brought up to date
//! before the event is handed in). Out: [`CollectiveAction`]s. There is no I/O or clock here.
//!
//! A *want* is a receiver and an object. It is in exactly one of these states (drawing in `docs/states/collective.md`):
//! `held` (a collective gather waits for its last file) → `nowhere` (nobody has it) → `below` (the receiver that it shall
//! come from has not begun) → `ready` (its source is known, a stream is not free) → `issued` (part of a batch that an
//! executor was asked for) → gone: there, or given up.
//!
//! Invariants, checked by [`Collectives::sanity_check`]:
//!   1. no node receives more than `in_max` batches at once, and none sends more than `out_max`;
//!   2. what the source of a batch does not hold when it is issued is of one batch of the source's own, issued before, and in
//!      the order of that batch;
//!   3. following sources from want to want never comes back to the first (one outgoing edge each, tested before it is set;
//!      who holds the object has none, whatever its want says);
//!   4. what is ready is in a queue, and each queue waits for a stream that is taken.
//!
//! Why this cannot deadlock (`Zhang12` §V-D): a batch takes its stream at the receiver and the one at the source together
//! or neither, and by 2 it waits only for batches that have theirs. So of all issued batches the one at the head of each
//! chain reads what is there, and ends. (Where a source has dropped an object meanwhile, it says so or is late.) The paper lets files flow only from lower to higher nodes; here the order is the
//! order of issue, so that any node can be a parent of any other.
//!
//! Why a batch that is streamed keeps to one batch of its source, and to its order: otherwise the first of two objects may
//! wait for a node that waits for the second. Within that, all objects go down a tree in one request each: a node that asked
//! for each of many small files would wait out a latency for every few, at each of its children.
//!
//! Who is late: a batch that took `late_factor` times what was predicted plus a grace gets another source, if its own still
//! receives from somebody who has it all (so of a chain below a slow node, only the node's child moves and takes the rest
//! along), or if others hold it. Each failure or lateness counts; after `tries_max` the want is given up.
//!
//! Not here: what is worth a plan ([`super::choose`]); who finds space for the bytes (the executor, which may refuse).

use super::cost::SPLIT_OBJECTS_MIN;
use super::links::{Links, Observation};
use super::plan::{Item, Plan};
use super::{BatchId, Choice, CollectiveId, CollectiveKind, CollectiveRecord, Way};
use crate::catalog::Catalog;
use crate::event::{Source, TransferErrorKind};
use crate::types::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Sources named in a prefetch: the planned one, and others to try should it fail at once.
const SOURCES_MAX: usize = 3;
/// What a request that was split off takes at least, in latencies.
const ASKING_SHARE: f64 = 4.0;
/// Holders that are compared when a source is looked for.
const HOLDERS_SEEN: usize = 64;

#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct CarryConfig {
    /// Batches under way at once into a node, out of a node, and out of home; each at least 1.
    pub in_max: u32,
    pub out_max: u32,
    pub home_max: u32,
    /// A batch has at most so many objects, and ends with the object that reaches so many bytes.
    pub batch_objects_max: u32,
    pub batch_bytes_max: u64,
    /// Failures and latenesses after which a want is given up.
    pub tries_max: u8,
    /// A batch is late after `late_factor` times what was predicted, plus the grace; doubled with each try.
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

/// Into the state machine.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveEvent {
    /// The catalog has a new replica, wanted or not; so objects that are made are learnt of too.
    ReplicaAdded { executor: ExecutorId, object: ObjectId },
    /// An executor could not get an object of a batch from any of the sources it was given.
    PrefetchFailed { executor: ExecutorId, batch: BatchId, object: ObjectId, kind: TransferErrorKind },
    /// It is gone, and the catalog knows.
    ExecutorLost { executor: ExecutorId },
    /// The object will not exist: its maker failed.
    ObjectGone { object: ObjectId },
    /// Nobody needs what this collective brings any more.
    Abandoned { collective: CollectiveId },
    /// Time passed; at least about once a second while anything is live.
    Ticked,
}

/// Out of the state machine.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveAction {
    /// Get these objects, in this order, in one request to the best of these sources that has them. It replaces an earlier
    /// prefetch of the same object. A source that still receives an object sends on what comes.
    Prefetch { executor: ExecutorId, batch: BatchId, objects: Vec<ObjectId>, sources: Vec<Source> },
    /// Get these no more, unless an attempt needs them.
    CancelPrefetch { executor: ExecutorId, objects: Vec<ObjectId> },
    /// The last want is there or given up.
    Ended { record: CollectiveRecord },
}

type Pair = (ExecutorId, ObjectId);
/// Wants of one receiver that are ready to come from one source. Older collectives come first, then receivers in the order
/// of the plan (their ranks), so that the large parts of a tree begin before the small ones.
type QueueId = (CollectiveId, u32, ExecutorId, Source);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Held,
    Nowhere,
    Below(ExecutorId),
    Ready(Source),
    Issued(BatchId, Source),
}

struct Want {
    item: Item,
    /// As planned; inherits the parent's parent when that one leaves.
    parent: Option<ExecutorId>,
    state: State,
    way: Way,
    /// Its executor was asked for it and has not said that it cannot: it may be coming although it is not issued now.
    asked: bool,
    n_tries: u8,
    /// Sources that failed.
    avoid: Vec<ExecutorId>,
    /// Its receiver's place in the first plan that named it.
    rank: u32,
    /// All that need it, the first to ask first.
    collectives: Vec<CollectiveId>,
}

struct Batch {
    collective: CollectiveId,
    executor: ExecutorId,
    source: Source,
    objects: Vec<ObjectId>,
    deadline: Timestamp,
    /// One such batch per source at a time: the rounds of a binomial tree.
    in_rounds: bool,
    /// The source's own batch, which brings what it did not have yet.
    above: Option<BatchId>,
    issued: Timestamp,
    /// What it asked for, and how much of that has arrived; `bytes` of all.
    n_asked: u32,
    n_arrived: u32,
    bytes: u64,
    /// Batches that its receiver or its source had under way when it was issued, whichever has more.
    n_sharing: u32,
}

struct Live {
    kind: CollectiveKind,
    way: Way,
    began: Timestamp,
    choice: Option<Choice>,
    /// All that it wanted, and how many of these are neither there nor given up.
    wants: Vec<Pair>,
    n_left: u32,
    n_arrived: u32,
    arrived_bytes: u64,
    n_moved: u32,
    n_receivers: u32,
    /// What a collective gather waits for.
    unmade: BTreeSet<ObjectId>,
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
    /// Receivers that wait below one; may name some that do so no more.
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
    /// Batches of binomial trees, by where they come from and by where they go.
    n_in_rounds: BTreeMap<(CollectiveId, Source), u32>,
    n_into: BTreeMap<(CollectiveId, ExecutorId), u32>,
    /// Ready wants by source.
    n_queued: BTreeMap<Source, u32>,
    /// Wants that failed everywhere and are tried again at the next tick.
    retry: BTreeSet<Pair>,
    /// Batches that came whole, from peers that had all of it.
    observed: Vec<Observation>,
}

impl Collectives {
    pub fn new(config: CarryConfig) -> Collectives {
        Collectives { config, ..Collectives::default() }
    }

    /// What transfers are measured against; see [`super::LinkEstimator`].
    pub fn set_links(&mut self, links: Links) {
        self.links = links;
    }

    /// A number for a collective that is not used yet.
    pub fn next_id(&mut self) -> CollectiveId {
        self.n_begun += 1;
        CollectiveId(self.n_begun - 1)
    }

    /// Begins to carry out a plan. `choice`: what was predicted, for the record. What receivers hold already is not
    /// wanted; a plan of which nothing is left ends at once.
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
            if plan.way == Way::CollectiveGather
                && !want.item.at_home
                && catalog.n_holders(want.item.object) == 0
            {
                live.unmade.insert(want.item.object);
            }
            let mut new = Want {
                item: want.item,
                parent: want.parent,
                state: State::Held,
                way: plan.way,
                asked: false,
                n_tries: 0,
                avoid: vec![],
                rank,
                collectives: vec![],
            };
            let known = self.wants.entry(pair).or_insert_with(|| {
                self.wanting.entry(pair.1).or_default().insert(pair.0);
                new.collectives.reserve_exact(1);
                new
            });
            if known.collectives.last() == Some(&id) {
                continue; // named twice in one plan
            }
            known.collectives.push(id);
            live.wants.push(pair);
        }
        live.n_left = live.wants.len() as u32;
        live.n_receivers = ranks.len() as u32;
        let starts = if live.unmade.is_empty() { live.wants.clone() } else { vec![] };
        self.live.insert(id, live);
        self.place_held(starts, catalog);
        self.end_if_done(now, id, out);
        self.issue(now, catalog, out);
        id
    }

    /// The one door for all that happens later.
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
                self.made(object, catalog);
            }
            CollectiveEvent::Abandoned { collective } => self.on_abandoned(now, collective, catalog, out),
            CollectiveEvent::Ticked => self.on_ticked(now, catalog, out),
        }
        self.issue(now, catalog, out);
    }

    pub fn n_live(&self) -> usize {
        self.live.len()
    }

    /// Whether a collective has yet to bring the object somewhere, or waits for it to be made.
    pub fn awaits(&self, object: ObjectId) -> bool {
        self.wanting.contains_key(&object) || self.live.values().any(|live| live.unmade.contains(&object))
    }

    /// What the batches that have ended since the last call say of the links between nodes. Left out are those that failed
    /// in part, and those whose source was still receiving: their time is that of the whole way.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observed)
    }

    // ------------------------------------------------------------ events

    fn on_replica_added(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        object: ObjectId,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        if !self.wanting.contains_key(&object) {
            return;
        }
        let pair = (executor, object);
        self.observe(now, pair);
        if let Some(want) = self.leave(pair) {
            for id in &want.collectives {
                let Some(live) = self.live.get_mut(id) else { continue };
                live.n_left -= 1;
                live.n_arrived += 1;
                live.arrived_bytes += want.item.size_bytes;
                self.end_if_done(now, *id, out);
            }
        }
        self.made(object, catalog);
        for receiver in self.receivers_of(object) {
            if self.wants.get(&(receiver, object)).is_some_and(|w| w.state == State::Nowhere) {
                self.place((receiver, object), catalog);
            }
        }
        self.place_below(pair, catalog);
    }

    /// An object has arrived, perhaps the last one of its batch.
    fn observe(&mut self, now: Timestamp, pair: Pair) {
        let Some(State::Issued(id, source)) = self.wants.get(&pair).map(|w| w.state) else { return };
        let batch = self.batches.get_mut(&id).expect("an issued want has a batch");
        batch.n_arrived += 1;
        if batch.n_arrived == batch.n_asked && batch.above.is_none() && source != Source::Home {
            // Those that came after it count, too.
            let at_end = self.n_in[&pair.0].max(self.n_out[&source]);
            self.observed.push(Observation {
                n_objects: batch.n_asked,
                bytes: batch.bytes,
                duration_ns: now.since_ns(batch.issued),
                n_sharing: batch.n_sharing.max(at_end),
            });
        }
    }

    /// Collective gathers wait for it no more.
    fn made(&mut self, object: ObjectId, catalog: &Catalog) {
        let mut begun = vec![];
        for live in self.live.values_mut() {
            if live.unmade.remove(&object) && live.unmade.is_empty() {
                begun.extend_from_slice(&live.wants);
            }
        }
        self.place_held(begun, catalog);
    }

    fn place_held(&mut self, pairs: Vec<Pair>, catalog: &Catalog) {
        for pair in pairs {
            if self.wants.get(&pair).is_some_and(|w| w.state == State::Held) {
                self.place(pair, catalog);
            }
        }
    }

    fn on_failed(
        &mut self,
        now: Timestamp,
        pair: Pair,
        batch: BatchId,
        kind: TransferErrorKind,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        // Of a batch that was replaced: the other one is still under way.
        let Some(State::Issued(current, source)) = self.wants.get(&pair).map(|w| w.state) else { return };
        if current != batch {
            return;
        }
        self.unissue(pair);
        let want = self.wants.get_mut(&pair).expect("it was just read");
        want.asked = false;
        want.n_tries += 1;
        let is_final = match kind {
            TransferErrorKind::NoSpace
            | TransferErrorKind::Changed
            | TransferErrorKind::Unavailable
            | TransferErrorKind::GivenUp => true,
            TransferErrorKind::NotHeld
            | TransferErrorKind::Busy
            | TransferErrorKind::Corrupt
            | TransferErrorKind::Temporary
            | TransferErrorKind::Dropped
            | TransferErrorKind::Shortage => want.n_tries >= self.config.tries_max,
        };
        if let Source::Peer(peer) = source {
            want.avoid.push(peer);
        }
        if is_final {
            self.give_up(now, pair, catalog, out);
        } else {
            self.count_moved(pair);
            self.place(pair, catalog);
        }
    }

    fn on_executor_lost(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let first = (executor, ObjectId(0));
        let last = (executor, ObjectId(u32::MAX));
        let received: Vec<Pair> = self.wants.range(first..=last).map(|(pair, _)| *pair).collect();
        for pair in received {
            // Nobody is there to be told to cancel.
            self.wants.get_mut(&pair).expect("it was just seen").asked = false;
            self.give_up(now, pair, catalog, out);
        }
        let source = Source::Peer(executor);
        let mut moving: Vec<Pair> = vec![];
        for batch in self.batches.values().filter(|b| b.source == source) {
            moving.extend(batch.objects.iter().map(|o| (batch.executor, *o)));
        }
        for pair in &moving {
            self.unissue(*pair);
        }
        self.queues.retain(|id, _| id.2 != executor);
        let queued: Vec<QueueId> = self.queues.keys().filter(|q| q.3 == source).copied().collect();
        for id in queued {
            let objects = self.queues.remove(&id).unwrap_or_default();
            moving.extend(objects.into_iter().map(|o| (id.2, o)));
        }
        for pair in moving {
            if self.wants.get(&pair).is_some_and(|w| matches!(w.state, State::Nowhere | State::Ready(_))) {
                self.count_moved(pair);
                self.place(pair, catalog);
            }
        }
        self.blocked_in.remove(&executor);
        self.blocked_out.remove(&source);
        self.n_in.remove(&executor);
        self.n_out.remove(&source);
        self.n_queued.remove(&source);
    }

    fn on_abandoned(
        &mut self,
        now: Timestamp,
        id: CollectiveId,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let Some(live) = self.live.get_mut(&id) else { return };
        live.n_left = 0;
        let pairs = std::mem::take(&mut live.wants);
        let n_wanted = pairs.len() as u32;
        let mut cancelled: BTreeMap<ExecutorId, Vec<ObjectId>> = BTreeMap::new();
        let mut orphans = vec![];
        for pair in pairs {
            let Some(want) = self.wants.get_mut(&pair) else { continue };
            want.collectives.retain(|c| *c != id);
            if !want.collectives.is_empty() {
                if want.state == State::Held {
                    self.place(pair, catalog);
                }
                continue;
            }
            if want.asked {
                cancelled.entry(pair.0).or_default().push(pair.1);
            }
            if let Some(want) = self.leave(pair) {
                orphans.push((pair, want.parent));
            }
        }
        for (pair, parent) in orphans {
            self.rehang(pair, parent, catalog);
        }
        out.extend(
            cancelled
                .into_iter()
                .map(|(executor, objects)| CollectiveAction::CancelPrefetch { executor, objects }),
        );
        self.end(now, id, n_wanted, out);
    }

    fn on_ticked(&mut self, now: Timestamp, catalog: &Catalog, out: &mut Vec<CollectiveAction>) {
        for pair in std::mem::take(&mut self.retry) {
            if self.wants.get(&pair).is_some_and(|w| w.state == State::Nowhere) {
                self.place(pair, catalog);
            }
        }
        let late: Vec<BatchId> =
            self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, batch)| *batch).collect();
        // Former sources of what was moved just now: those below are judged by what was.
        let mut moved: BTreeMap<Pair, Source> = BTreeMap::new();
        for id in late {
            let Some(batch) = self.batches.get(&id) else { continue };
            let (executor, source, objects) = (batch.executor, batch.source, batch.objects.clone());
            for object in objects {
                let pair = (executor, object);
                let want = self.wants.get_mut(&pair).expect("what is issued is wanted");
                want.n_tries += 1;
                if want.n_tries >= self.config.tries_max {
                    self.give_up(now, pair, catalog, out);
                    continue;
                }
                let may_move = match source {
                    Source::Home => false,
                    Source::Peer(parent) => {
                        let above = match self.wants.get(&(parent, object)).map(|w| w.state) {
                            Some(State::Issued(_, above)) => Some(above),
                            _ => moved.get(&(parent, object)).copied(),
                        };
                        match above {
                            // The parent still receives: it is at fault if its own source has everything.
                            Some(Source::Peer(above)) => catalog.holds(above, object),
                            Some(Source::Home) => true,
                            None => !self.wants.contains_key(&(parent, object)),
                        }
                    }
                };
                if may_move
                    && let Source::Peer(parent) = source
                    && let Some(state @ State::Ready(_)) = self.find_source(pair, Some(parent), catalog)
                {
                    self.unissue(pair);
                    self.wants.get_mut(&pair).expect("it was just read").avoid.push(parent);
                    moved.insert(pair, source);
                    self.count_moved(pair);
                    self.set_state(pair, state);
                }
            }
            if let Some(batch) = self.batches.get(&id) {
                // What stays gets more time.
                let n_tries = batch.objects.iter().filter_map(|o| self.wants.get(&(executor, *o)));
                let n_tries = n_tries.map(|w| w.n_tries).max().unwrap_or(0);
                let deadline = now.plus_ns(self.patience_ns(batch, n_tries));
                let batch = self.batches.get_mut(&id).expect("it was just read");
                self.deadlines.remove(&(batch.deadline, id));
                batch.deadline = deadline;
                self.deadlines.insert((deadline, id));
            }
        }
    }

    // ------------------------------------------------------------ wants

    fn receivers_of(&self, object: ObjectId) -> Vec<ExecutorId> {
        self.wanting.get(&object).map_or(vec![], |r| r.iter().copied().collect())
    }

    /// Finds out where a want comes from and queues it there.
    fn place(&mut self, pair: Pair, catalog: &Catalog) {
        if let Some(state) = self.find_source(pair, None, catalog) {
            return self.set_state(pair, state);
        }
        let Some(want) = self.wants.get_mut(&pair) else { return };
        if !want.avoid.is_empty() {
            // All that have it failed: they are asked again later, as often as tries are left.
            want.avoid.clear();
            self.retry.insert(pair);
        }
        self.set_state(pair, State::Nowhere);
    }

    fn set_state(&mut self, pair: Pair, state: State) {
        let Some(want) = self.wants.get_mut(&pair) else { return };
        if let State::Ready(old) = want.state
            && let Some(n) = self.n_queued.get_mut(&old)
        {
            *n = n.saturating_sub(1);
        }
        want.state = state;
        want.asked |= matches!(state, State::Issued(..));
        match state {
            State::Below(parent) => self.below.entry((parent, pair.1)).or_default().push(pair.0),
            State::Ready(source) => {
                let id = (want.collectives[0], want.rank, pair.0, source);
                *self.n_queued.entry(source).or_default() += 1;
                let queue = self.queues.entry(id).or_default();
                queue.push_back(pair.1);
                // A queue that is blocked is tried too; it is blocked again at once.
                self.open.insert(id);
            }
            State::Held | State::Nowhere | State::Issued(..) => {}
        }
    }

    /// `Ready` or `Below`; `None`: nobody whom it may come from. Never `except`.
    fn find_source(&self, pair: Pair, except: Option<ExecutorId>, catalog: &Catalog) -> Option<State> {
        let (receiver, object) = pair;
        let want = self.wants.get(&pair)?;
        let streams = matches!(want.way, Way::Pipelined { .. });
        let may = |e: &ExecutorId| *e != receiver && Some(*e) != except && !want.avoid.contains(e);
        let through = |e: ExecutorId| -> Option<State> {
            let state = self.wants.get(&(e, object))?.state;
            if state == State::Held || self.leads_to(e, receiver, object, catalog) {
                None
            } else if streams && matches!(state, State::Issued(..)) {
                Some(State::Ready(Source::Peer(e)))
            } else {
                Some(State::Below(e))
            }
        };
        if let Some(parent) = want.parent.filter(may) {
            if catalog.holds(parent, object) {
                return Some(State::Ready(Source::Peer(parent)));
            }
            if let Some(state) = through(parent) {
                return Some(state);
            }
        }
        let load = |e: &ExecutorId| {
            let source = Source::Peer(*e);
            let count = |m: &BTreeMap<Source, u32>| m.get(&source).copied().unwrap_or(0);
            (count(&self.n_out) + count(&self.n_queued), *e)
        };
        let holders = catalog.holders_of(object).filter(may).take(HOLDERS_SEEN);
        if let Some(holder) = holders.min_by_key(load) {
            return Some(State::Ready(Source::Peer(holder)));
        }
        let others = self.wanting.get(&object).into_iter().flatten().copied().filter(may);
        // Somebody who is about to read home counts, so that home is read once.
        let will_have = |e: &ExecutorId| {
            let state = self.wants.get(&(*e, object)).map(|w| w.state);
            matches!(state, Some(State::Issued(..) | State::Ready(Source::Home)))
        };
        if let Some(state) = others.filter(will_have).take(HOLDERS_SEEN).find_map(through) {
            return Some(state);
        }
        want.item.at_home.then_some(State::Ready(Source::Home))
    }

    /// Whether `from` gets the object, over however many others, from `to`.
    ///
    /// A holder gets it from nobody. Its want may still be here: the catalog has all replicas of a message at once, and this
    /// hears of them one by one. Two that were planned below each other, and hold what both wanted, would be a circle until
    /// then. The walk passes each receiver at most once, so it is over after as many steps as there are receivers; a way
    /// that is longer is a circle, and nobody joins one.
    fn leads_to(&self, from: ExecutorId, to: ExecutorId, object: ObjectId, catalog: &Catalog) -> bool {
        let n_receivers = self.wanting.get(&object).map_or(0, BTreeSet::len);
        let mut at = from;
        for _ in 0..=n_receivers {
            if at == to {
                return true;
            }
            if catalog.holds(at, object) {
                return false;
            }
            at = match self.wants.get(&(at, object)).map(|w| w.state) {
                Some(State::Below(e) | State::Ready(Source::Peer(e)) | State::Issued(_, Source::Peer(e))) => {
                    e
                }
                _ => return false,
            };
        }
        true
    }

    /// Those that waited for `pair` look again: it begins, is there, or will not come.
    fn place_below(&mut self, pair: Pair, catalog: &Catalog) {
        for receiver in self.below.remove(&pair).unwrap_or_default() {
            let child = (receiver, pair.1);
            if self.wants.get(&child).is_some_and(|w| w.state == State::Below(pair.0)) {
                self.place(child, catalog);
            }
        }
    }

    /// Takes a want out of everything.
    fn leave(&mut self, pair: Pair) -> Option<Want> {
        self.unissue(pair);
        let want = self.wants.remove(&pair)?;
        if let State::Ready(source) = want.state
            && let Some(n) = self.n_queued.get_mut(&source)
        {
            *n = n.saturating_sub(1);
        }
        if let Some(receivers) = self.wanting.get_mut(&pair.1) {
            receivers.remove(&pair.0);
            if receivers.is_empty() {
                self.wanting.remove(&pair.1);
            }
        }
        self.retry.remove(&pair);
        Some(want)
    }

    fn give_up(&mut self, now: Timestamp, pair: Pair, catalog: &Catalog, out: &mut Vec<CollectiveAction>) {
        let Some(want) = self.wants.get(&pair) else { return };
        if want.asked {
            out.push(CollectiveAction::CancelPrefetch { executor: pair.0, objects: vec![pair.1] });
        }
        let want = self.leave(pair).expect("it was just read");
        self.rehang(pair, want.parent, catalog);
        let mut begun = vec![];
        for id in want.collectives {
            if let Some(live) = self.live.get_mut(&id) {
                live.n_left -= 1;
                // Nobody tells us any more when it is made.
                if live.unmade.remove(&pair.1) && live.unmade.is_empty() {
                    begun.extend_from_slice(&live.wants);
                }
                self.end_if_done(now, id, out);
            }
        }
        self.place_held(begun, catalog);
    }

    /// `gone` will not have the object: its children get its parent.
    fn rehang(&mut self, gone: Pair, parent: Option<ExecutorId>, catalog: &Catalog) {
        let (executor, object) = gone;
        for receiver in self.receivers_of(object) {
            let child = (receiver, object);
            let want = self.wants.get_mut(&child).expect("it is among those that want it");
            if want.parent == Some(executor) {
                want.parent = parent;
            }
            let streamed = matches!(want.state, State::Issued(_, s) if s == Source::Peer(executor));
            let hangs = streamed || want.state == State::Below(executor);
            if hangs && !catalog.holds(executor, object) {
                if streamed {
                    self.unissue(child);
                }
                self.count_moved(child);
                self.place(child, catalog);
            }
        }
        self.below.remove(&gone);
    }

    fn count_moved(&mut self, pair: Pair) {
        let Some(want) = self.wants.get(&pair) else { return };
        for id in &want.collectives {
            if let Some(live) = self.live.get_mut(id) {
                live.n_moved += 1;
            }
        }
    }

    // ------------------------------------------------------------ batches

    fn out_max(&self, source: Source) -> u32 {
        if source == Source::Home { self.config.home_max } else { self.config.out_max }
    }

    /// Serves queues as far as streams are free.
    fn issue(&mut self, now: Timestamp, catalog: &Catalog, out: &mut Vec<CollectiveAction>) {
        // A queue that was served goes behind the others, so that sources take turns.
        let mut again = BTreeSet::new();
        while !self.open.is_empty() || !again.is_empty() {
            let Some(id) = self.open.pop_first() else {
                self.open = std::mem::take(&mut again);
                continue;
            };
            let (collective, _, receiver, source) = id;
            if self.n_in.get(&receiver).copied().unwrap_or(0) >= self.config.in_max {
                self.blocked_in.entry(receiver).or_default().push(id);
                continue;
            }
            let way = self.live.get(&collective).map_or(Way::Archives, |l| l.way);
            let in_rounds = way == Way::Binomial;
            let in_round = self.n_in_rounds.get(&(collective, source)).copied().unwrap_or(0);
            if self.n_out.get(&source).copied().unwrap_or(0) >= self.out_max(source)
                || (in_rounds && in_round > 0)
            {
                self.blocked_out.entry(source).or_default().push(id);
                continue;
            }
            if in_rounds
                && let Source::Peer(peer) = source
                && self.n_into.contains_key(&(collective, peer))
            {
                // It has some of it: all goes on together when all is there.
                self.blocked_in.entry(peer).or_default().push(id);
                continue;
            }
            let one_by_one = matches!(way, Way::PlainFetches | Way::AsyncGather);
            let n_max = if one_by_one { 1 } else { self.batch_len(id, in_rounds) };
            let objects = self.take_batch(id, n_max, catalog);
            if self.queues.get(&id).is_some_and(|q| !q.is_empty()) {
                again.insert(id);
            } else {
                self.queues.remove(&id);
            }
            if !objects.is_empty() {
                self.issue_batch(now, id, objects, in_rounds, catalog, out);
            }
        }
    }

    /// Objects that the next batch of a queue may have. Requests get shorter towards the end, so that all streams of the
    /// receiver end at about the same time, but not so short that asking takes a good part of them.
    fn batch_len(&self, id: QueueId, in_rounds: bool) -> usize {
        let n_max = self.config.batch_objects_max as usize;
        let (collective, rank, receiver, source) = id;
        let Some(first) = self.queues.get(&id).and_then(VecDeque::front).filter(|_| !in_rounds) else {
            return n_max;
        };
        let size_bytes = self.wants.get(&(receiver, *first)).map_or(0, |w| w.item.size_bytes);
        let link = if source == Source::Home { &self.links.home } else { &self.links.peer };
        let n_streams = self.config.in_max as usize;
        let each_s = link.per_object_s + n_streams as f64 * link.bytes_s(size_bytes);
        let worth_asking = (ASKING_SHARE * link.latency_s / each_s.max(1e-9)).ceil() as usize;
        let from = (collective, rank, receiver, Source::Peer(ExecutorId(0)));
        let of_receiver = self.queues.range(from..=(collective, rank, receiver, Source::Home));
        let n_left: usize = of_receiver.map(|(_, queue)| queue.len()).sum();
        n_left.div_ceil(2 * n_streams).max(worth_asking).max(SPLIT_OBJECTS_MIN as usize).min(n_max)
    }

    /// What of a queue can be asked for in one request. What cannot come from there any more is placed anew.
    fn take_batch(&mut self, id: QueueId, n_max: usize, catalog: &Catalog) -> Vec<ObjectId> {
        let (.., receiver, source) = id;
        let (mut objects, mut bytes) = (vec![], 0u64);
        // Of what is streamed: the source's batch, and how far it was followed.
        let mut followed: Option<(BatchId, usize)> = None;
        while objects.len() < n_max && bytes < self.config.batch_bytes_max {
            let Some(object) = self.queues.get_mut(&id).and_then(VecDeque::pop_front) else { break };
            let pair = (receiver, object);
            let Some(want) = self.wants.get(&pair).filter(|w| w.state == State::Ready(source)) else {
                continue;
            };
            let is_there = match source {
                Source::Home => true,
                Source::Peer(peer) => catalog.holds(peer, object),
            };
            if is_there {
                bytes = bytes.saturating_add(want.item.size_bytes);
                // At once: it may stand in the queue twice.
                self.set_state(pair, State::Issued(BatchId(self.n_batches), source));
                objects.push(object);
                continue;
            }
            let Source::Peer(peer) = source else { continue };
            let above = match self.wants.get(&(peer, object)).map(|w| w.state) {
                Some(State::Issued(above, _)) if matches!(want.way, Way::Pipelined { .. }) => above,
                _ => {
                    self.place(pair, catalog);
                    if self.wants.get(&pair).is_some_and(|w| w.state == State::Ready(source)) {
                        // The planned source again, which has nothing: let the next tick see.
                        self.set_state(pair, State::Nowhere);
                        self.retry.insert(pair);
                    }
                    continue;
                }
            };
            let at = self.batches[&above].objects.iter().position(|o| *o == object);
            let at = at.expect("an issued want is in its batch");
            if followed.is_some_and(|(batch, last)| batch != above || at < last) {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.push_front(object);
                }
                break;
            }
            followed = Some((above, at));
            bytes = bytes.saturating_add(want.item.size_bytes);
            self.set_state(pair, State::Issued(BatchId(self.n_batches), source));
            objects.push(object);
        }
        objects
    }

    fn issue_batch(
        &mut self,
        now: Timestamp,
        id: QueueId,
        objects: Vec<ObjectId>,
        in_rounds: bool,
        catalog: &Catalog,
        out: &mut Vec<CollectiveAction>,
    ) {
        let (collective, _, executor, source) = id;
        let batch_id = BatchId(self.n_batches);
        self.n_batches += 1;
        *self.n_in.entry(executor).or_default() += 1;
        *self.n_out.entry(source).or_default() += 1;
        if in_rounds {
            *self.n_in_rounds.entry((collective, source)).or_default() += 1;
            *self.n_into.entry((collective, executor)).or_default() += 1;
        }
        let n_tries = objects.iter().map(|o| self.wants[&(executor, *o)].n_tries).max().unwrap_or(0);
        let above = objects.iter().find_map(|o| match source {
            Source::Peer(peer) if !catalog.holds(peer, *o) => match self.wants.get(&(peer, *o))?.state {
                State::Issued(above, _) => Some(above),
                _ => None,
            },
            _ => None,
        });
        let n_sharing = self.n_in[&executor].max(self.n_out[&source]);
        let mut batch = Batch {
            collective,
            executor,
            source,
            deadline: now,
            in_rounds,
            above,
            issued: now,
            n_asked: objects.len() as u32,
            n_arrived: 0,
            bytes: objects.iter().map(|o| self.wants[&(executor, *o)].item.size_bytes).sum(),
            n_sharing,
            objects,
        };
        batch.deadline = now.plus_ns(self.patience_ns(&batch, n_tries));
        // Who streams from a node cannot be ahead of it.
        if let Some(above) = above.and_then(|above| self.batches.get(&above)) {
            batch.deadline = batch.deadline.max(above.deadline);
        }
        let first = batch.objects[0];
        let mut sources = vec![source];
        let others = catalog.holders_of(first).map(Source::Peer);
        let others = others.filter(|s| *s != source && *s != Source::Peer(executor));
        sources.extend(others.take(SOURCES_MAX - 1));
        if source != Source::Home && self.wants[&(executor, first)].item.at_home {
            sources.push(Source::Home);
        }
        let objects = batch.objects.clone();
        self.deadlines.insert((batch.deadline, batch_id));
        self.batches.insert(batch_id, batch);
        out.push(CollectiveAction::Prefetch { executor, batch: batch_id, objects: objects.clone(), sources });
        for object in objects {
            self.place_below((executor, object), catalog);
        }
    }

    /// How long a batch may take before it is late.
    fn patience_ns(&self, batch: &Batch, n_tries: u8) -> u64 {
        let link = if batch.source == Source::Home { &self.links.home } else { &self.links.peer };
        let bytes = batch.objects.iter().filter_map(|o| self.wants.get(&(batch.executor, *o)));
        let bytes = bytes.map(|w| w.item.size_bytes).fold(0, u64::saturating_add);
        let at = |m: Option<&u32>| m.copied().unwrap_or(1);
        let sharing = at(self.n_in.get(&batch.executor)).max(at(self.n_out.get(&batch.source)));
        let predicted_s =
            link.request_s(batch.objects.len() as u64, bytes.saturating_mul(u64::from(sharing)));
        let patience_ns = self.config.grace_ns as f64 + self.config.late_factor * predicted_s * 1e9;
        (patience_ns * f64::from(1u32 << n_tries.min(16))) as u64
    }

    /// An issued want is issued no more (it is `Nowhere` then); the batch's streams are free when it was the last.
    fn unissue(&mut self, pair: Pair) {
        let Some(want) = self.wants.get_mut(&pair) else { return };
        let State::Issued(id, source) = want.state else { return };
        want.state = State::Nowhere;
        let batch = self.batches.get_mut(&id).expect("an issued want has a batch");
        batch.objects.retain(|o| *o != pair.1);
        if !batch.objects.is_empty() {
            return;
        }
        let batch = self.batches.remove(&id).expect("it was just read");
        self.deadlines.remove(&(batch.deadline, id));
        let free = |n: Option<&mut u32>| {
            if let Some(n) = n {
                *n -= 1;
            }
        };
        free(self.n_in.get_mut(&pair.0));
        free(self.n_out.get_mut(&source));
        if batch.in_rounds {
            take_one(&mut self.n_in_rounds, (batch.collective, source));
            take_one(&mut self.n_into, (batch.collective, pair.0));
        }
        self.open.extend(self.blocked_in.remove(&pair.0).unwrap_or_default());
        self.open.extend(self.blocked_out.remove(&source).unwrap_or_default());
    }

    // ------------------------------------------------------------ ends

    fn end_if_done(&mut self, now: Timestamp, id: CollectiveId, out: &mut Vec<CollectiveAction>) {
        if let Some(live) = self.live.get(&id).filter(|l| l.n_left == 0) {
            let n_wanted = live.wants.len() as u32;
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

    /// Checks the module's invariants; panics when one is broken. For tests. The catalog's replicas have all been handed in.
    pub fn sanity_check(&self, catalog: &Catalog) {
        let (mut n_in, mut n_out) = (BTreeMap::<_, u32>::new(), BTreeMap::<_, u32>::new());
        for (id, batch) in &self.batches {
            *n_in.entry(batch.executor).or_default() += 1;
            *n_out.entry(batch.source).or_default() += 1;
            assert!(self.deadlines.contains(&(batch.deadline, *id)));
            for object in &batch.objects {
                let state = self.wants[&(batch.executor, *object)].state;
                assert_eq!(state, State::Issued(*id, batch.source));
            }
            assert!(batch.above.is_none_or(|above| above < *id), "{id:?} waits for a later batch");
        }
        assert_eq!(self.deadlines.len(), self.batches.len());
        assert!(n_in.iter().all(|(e, n)| *n <= self.config.in_max && self.n_in[e] == *n));
        assert!(n_out.iter().all(|(s, n)| *n <= self.out_max(*s) && self.n_out[s] == *n));
        assert_eq!(self.n_in.values().sum::<u32>() as usize, self.batches.len());
        assert_eq!(self.n_out.values().sum::<u32>() as usize, self.batches.len());
        assert!(self.open.is_empty());
        for (pair, want) in &self.wants {
            assert!(self.wanting[&pair.1].contains(&pair.0));
            assert!(
                !want.collectives.is_empty() && want.collectives.iter().all(|c| self.live.contains_key(c))
            );
            match want.state {
                State::Issued(id, _) => assert!(self.batches[&id].objects.contains(&pair.1)),
                State::Below(parent) => {
                    assert!(self.wants.contains_key(&(parent, pair.1)), "{pair:?} waits for nobody");
                    assert!(!self.leads_to(parent, pair.0, pair.1, catalog), "{pair:?} waits for itself");
                    assert!(self.below[&(parent, pair.1)].contains(&pair.0));
                }
                State::Ready(source) => {
                    let mut queues = self.queues.iter().filter(|(id, _)| (id.2, id.3) == (pair.0, source));
                    let (id, _) = queues.find(|(_, q)| q.contains(&pair.1)).expect("what is ready is queued");
                    let waits_in = self.blocked_in.values().any(|b| b.contains(id));
                    let waits_out = self.blocked_out.get(&source).is_some_and(|b| b.contains(id));
                    assert!(waits_in || waits_out, "{pair:?} waits for no stream");
                }
                State::Held | State::Nowhere => {}
            }
        }
        for (executor, blocked) in &self.blocked_in {
            let is_full = self.n_in.get(executor) == Some(&self.config.in_max);
            let is_in_round = |id: &QueueId| self.n_into.contains_key(&(id.0, *executor));
            assert!(is_full || blocked.iter().all(is_in_round));
        }
        for (source, blocked) in &self.blocked_out {
            let is_full = self.n_out.get(source) == Some(&self.out_max(*source));
            let is_in_round = |id: &QueueId| self.n_in_rounds.contains_key(&(id.0, *source));
            assert!(is_full || blocked.iter().all(is_in_round));
        }
        let n_left: u32 = self.live.values().map(|l| l.n_left).sum();
        assert_eq!(n_left as usize, self.wants.values().map(|w| w.collectives.len()).sum::<usize>());
    }
}

/// Counts one less, and forgets what is counted no more.
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
