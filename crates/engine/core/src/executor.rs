//! Executor: what one node does next with the attempts that it was given.
//!
//! Input: [`NodeEvent`]s and the current [`Timestamp`]. Output: [`NodeAction`]s for a driver to carry
//! out. There is no I/O, clock or lock here; `eyas-runtime` is the live driver.
//!
//! An attempt is in exactly one of these states (drawing in `docs/states/attempt.md`):
//! `sizing` (home is asked how big an input is) → `blocked` (its inputs do not fit beside what is pinned)
//! → `staging` (inputs pinned, some still moving) → `queued` (all here, waits for slots) → `running` →
//! `storing` (outputs are hashed) → `landing` (outputs travel home) → `ended` (reported, not yet recorded).
//!
//! Invariants, checked by [`Executor::sanity_check`]:
//!   1. an attempt from `staging` to `running` pins every input that it takes from the cache;
//!   2. cached plus reserved bytes never exceed the budget (the cache's own check), which is less than was asked for
//!      where the disk has less (the module `space`);
//!   3. no more transfers are under way than the limits allow, in total, per peer and from home;
//!   4. the inputs of one attempt are reserved all at once or not at all, so that two attempts cannot
//!      each hold half of what they need;
//!   5. per object there is at most one transfer into the cache; later attempts join it.
//!
//! Why attempts that wait for space may be overtaken, but not for ever: an attempt whose inputs are all here
//! costs nothing to let pass, but its pins may be what the waiting attempt waits for. After [`OVERTAKES_MAX`]
//! attempts have passed, none passes any more until the first waiting attempt has its space.
//!
//! Why an input may be read for one attempt only: which bytes an input must have is settled before they are
//! fetched (`Expect`). Other bytes of the same name which an attempt still needs stay in the cache, so the
//! new attempt reads its own copy. An input that fits no cache is read in the same way.
//!
//! An output that does not go home (`Assignment::staying`) is kept like an output on its way home, until the
//! dispatcher reports that no task will read it any more. Such files can be read only from peers, so an
//! attempt whose inputs of this kind do not fit here fails instead of reading its own copies.
//!
//! Why a failed program may get the disk to itself: nobody knows beforehand how much of the disk a program
//! needs, so two programs can fill it together although each alone would have had room. See the module
//! `space`.
//!
//! Not here: how bytes move and programs run (the driver), what is evicted ([`crate::eviction`]),
//! which attempt comes to this node ([`crate::dispatcher`]).

mod answers;
mod attempts;
mod ending;
mod making;
pub mod memory;
mod replicas;
mod serving;
mod slots;
mod space;
mod staging;
mod streams;
mod transfer_queue;
mod transfers;
mod watched;

use crate::cache::{Cache, CacheConfig, Reserve};
use crate::collective::BatchId;
use crate::event::*;
use crate::eviction::UnknownEviction;
use crate::eviction::stores::EXCHANGES;
use answers::HomeAnswers;
use attempts::Attempts;
use eyas_terms::needs::{Equipment, Needs};
use eyas_terms::*;
use memory::{Memory, MemoryConfig};
use rustc_hash::{FxHashMap, FxHashSet};
use slots::{Slots, Turn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use streams::{Streams, Uses};
use transfer_queue::{QueuePlace, TransferQueue};

/// How many attempts may pass an attempt that waits for cache space.
pub const OVERTAKES_MAX: u32 = 64;

/// The fixed properties of one executor.
#[derive(Clone, PartialEq, serde::Serialize, serde::Deserialize, Debug)]
pub struct ExecutorConfig {
    pub slots: u32,
    /// Gpus and named resources.
    #[serde(default)]
    pub equipment: Equipment,
    pub cache: CacheConfig,
    /// What of the cache is held in memory, too.
    #[serde(default)]
    pub memory: MemoryConfig,
    /// Transfers into this node under way at once.
    pub transfers_max: u32,
    /// How many of these may come from one peer.
    pub transfers_per_peer_max: u32,
    /// How many of these may be from or to home. Changed by [`NodeEvent::HomeShared`].
    pub home_streams_max: u32,
    /// An attempt's inputs are fetched one after the other instead of side by side, as by a wrapper around
    /// the program.
    pub inputs_in_turn: bool,
    /// Objects of up to so many bytes that come from one peer share a stream. They count to none of the limits above. 0: each
    /// object has a stream of its own.
    #[serde(default)]
    pub small_bytes_max: u64,
    /// So many of these may be under way from one peer at once. When they are so many, none begins until half of them have come:
    /// so they are asked for together, and not each as soon as another one has come, which would be a stream for each.
    #[serde(default)]
    pub small_per_peer_max: u32,
}

type AttemptId = (TaskId, AttemptNo);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Sizing,
    Blocked,
    Staging,
    Queued,
    Running,
    Storing,
    Landing,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// Not decided yet, because home has not answered.
    Unknown,
    /// Read from the cache; a hit or a transfer.
    Cache,
    /// A private copy, read from home for this attempt only.
    Private,
    /// Read where the file is.
    InPlace,
    /// Not read: what would be made of it is here, or it is read where that is made.
    Unneeded,
}

#[derive(Debug)]
struct Input {
    plan: Plan,
    expect: Expect,
    /// Set once the bytes are here.
    outcome: Option<CacheOutcome>,
    size_bytes: u64,
    wait_ns: u64,
    /// It was held in memory when the program began.
    in_memory: bool,
}

/// Which bytes an input must have: one run reads one version of an object.
#[derive(Clone, PartialEq, Debug, Default)]
struct Expect {
    /// The bytes that the run has read before.
    known: Option<Known>,
    /// The version that home reports now; home is asked when no bytes are known.
    version: Option<HomeVersion>,
}

impl Expect {
    fn accepts(&self, held: &Fetched) -> bool {
        match &self.known {
            Some(known) => known.digest == held.digest,
            None => held.version.is_some() && held.version == self.version,
        }
    }
}

/// Which inputs of an attempt are an object: in the order of the objects, then of the inputs.
#[derive(Debug)]
struct InputsByObject(Vec<(ObjectId, u32)>);

impl InputsByObject {
    fn new(inputs: &[AssignedInput]) -> InputsByObject {
        let mut all: Vec<_> = inputs.iter().map(|input| input.object).zip(0..).collect();
        all.sort_unstable();
        InputsByObject(all)
    }

    /// The inputs that are `object`, ascending.
    fn of(&self, object: ObjectId) -> impl Iterator<Item = u32> {
        let from = self.0.partition_point(|(o, _)| *o < object);
        self.0[from..].iter().take_while(move |(o, _)| *o == object).map(|(_, input)| *input)
    }

    fn add(&mut self, object: ObjectId, input: u32) {
        let at = self.0.partition_point(|known| *known < (object, input));
        self.0.insert(at, (object, input));
    }
}

/// The state of a wanted object in this cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Here {
    /// The right bytes are here or on their way.
    Right,
    Absent,
    /// Other bytes are here, which no attempt needs.
    Stale,
    /// Other bytes are here and must stay for now, so the attempt reads its own copy from home.
    Taken,
}

#[derive(Debug)]
struct Attempt {
    assignment: Box<Assignment>,
    state: State,
    /// Order of arrival; decides which attempt reserves and starts first.
    seq: u64,
    inputs: Vec<Input>,
    by_object: InputsByObject,
    /// Inputs whose plan waits for an answer from home.
    n_unknown: u32,
    /// Inputs that are not here yet.
    n_missing: u32,
    pinned: bool,
    /// The disk had no room for a private copy of an input: the attempt goes on only when no other attempt
    /// holds any room.
    refused: bool,
    /// There was no room for the attempt although no other attempt held any.
    refused_alone: bool,
    /// Bytes that had been read into this node when the program was started.
    read_before_bytes: u64,
    overtaken: u32,
    cancelled: bool,
    /// Another copy of a file that the attempt made and that stays here has arrived from elsewhere meanwhile.
    outdone: bool,
    /// Input bytes that the running program uses were found to be wrong.
    spoiled: bool,
    /// There has been a reconnect since the attempt arrived, so home's answers to it may be out of date.
    is_older: bool,
    /// Objects read for this attempt only that were reported to the dispatcher.
    reported_private: Vec<(ObjectId, Digest)>,
    times: Times,
    cpu_ns: u64,
    rss_bytes_max: u64,
    left: Option<Box<LeftFiles>>,
    outputs: Vec<Output>,
    n_outputs_pending: u32,
    /// Messages to be repeated if the dispatcher comes back without having recorded them.
    reported: Vec<NodeMessage>,
    /// The gpus that its program has.
    gpus: Vec<u32>,
    /// Files that its program has named and about which the dispatcher is asked.
    opening: BTreeSet<String>,
    /// Where the inputs are that its program has named while it ran, by their numbers.
    added: BTreeMap<u32, watched::Added>,
}

#[derive(Clone, Debug, Default)]
struct Output {
    stored: Option<Fetched>,
    marks: Option<Marks>,
    cached: bool,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Transfer {
    object: ObjectId,
    size_bytes: u64,
    expect: Expect,
    /// Sources still to be tried, best first.
    sources: VecDeque<Source>,
    /// The source that the bytes are being read from now.
    active: Option<Source>,
    /// It shares the stream of other small objects from the same peer.
    shares: bool,
    /// The place in the queue of transfers, while this one waits to be begun.
    place: Option<QueuePlace>,
    /// The attempts that wait for the transfer, each with its input's number; the first one began it.
    waiters: Vec<(AttemptId, u32)>,
    /// The sources that were tried and how each ended, for the message of a failure.
    story: Vec<String>,
    /// The batch in which the dispatcher asked for the object, whether attempts wait for it or not.
    batch: Option<BatchId>,
    /// The first source may only be about to receive the object itself.
    awaits: bool,
    /// The dispatcher wants to know how the transfer proceeds.
    watched: bool,
    /// The object is made on this node, of this one, which is waited for.
    made_of: Option<ObjectId>,
}

/// One stage-out that waits for a home stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Landing {
    seq: u64,
    attempt: AttemptId,
    output: u32,
}

/// The state machine of one node. See the module's header.
pub struct Executor {
    config: ExecutorConfig,
    cache: Cache,
    memory: Memory,
    space: space::Space,
    attempts: Attempts,
    next_seq: u64,
    /// Attempts waiting for space, in order of arrival.
    blocked: BTreeMap<u64, AttemptId>,
    /// Attempts that hold pins, and attempts whose outputs are being stored or brought home. When there are
    /// none of either, no end can make room, so an attempt that waits for space waits without result.
    n_pinned: u32,
    n_storing: u32,
    /// How often an attempt gave up its pins for good.
    n_unpinned: u64,
    slots: Slots,
    home: HomeAnswers,
    /// Files of this node's own disk that are being read for other nodes, each with the run for which it was asked.
    serving: BTreeMap<ObjectId, RunId>,
    /// Each transfer is boxed: transfers are large, and a tree moves its values.
    transfers: BTreeMap<Target, Box<Transfer>>,
    /// Transfers that wait to be begun, in order.
    transfer_queue: TransferQueue,
    streams: Streams,
    landing_queue: BTreeSet<Landing>,
    /// Cached objects to be dropped as soon as no attempt needs them.
    doomed: BTreeSet<ObjectId>,
    /// The attempt that has the disk to itself, from `staging` to the end of its program.
    alone: Option<AttemptId>,
    /// Objects made here that do not go home, kept until the dispatcher asks to drop them.
    staying: FxHashSet<ObjectId>,
    /// What is known of each cached object's bytes.
    held: FxHashMap<ObjectId, Fetched>,
}

impl Executor {
    /// Prepares for another dispatcher, to which the node goes. Files that tasks made here and that do not go
    /// home stay available to readers. They are no longer protected from eviction, as the new dispatcher
    /// would never ask to drop them.
    #[allow(clippy::disallowed_methods, reason = "sorted before anyone sees it")]
    pub fn moved(&mut self) {
        let mut staying: Vec<ObjectId> = self.staying.drain().collect();
        staying.sort_unstable();
        staying.into_iter().for_each(|object| self.cache.release(object));
    }

    /// `Err` if there is no eviction policy of that name.
    pub fn new(config: ExecutorConfig) -> Result<Executor, UnknownEviction> {
        let cache = Cache::new(config.cache.clone())?;
        Ok(Executor {
            space: space::Space::new(config.cache.budget_bytes),
            memory: Memory::new(&config.memory, &config.cache)?,
            slots: Slots::new(&config.equipment),
            config,
            cache,
            n_pinned: 0,
            alone: None,
            n_unpinned: 0,
            n_storing: 0,
            attempts: Attempts::default(),
            next_seq: 0,
            blocked: BTreeMap::new(),
            home: HomeAnswers::default(),
            serving: BTreeMap::new(),
            transfers: BTreeMap::new(),
            transfer_queue: TransferQueue::default(),
            streams: Streams::default(),
            landing_queue: BTreeSet::new(),
            doomed: BTreeSet::new(),
            staying: FxHashSet::default(),
            held: FxHashMap::default(),
        })
    }

    /// The one entrance. Appends to `out` what the driver has to do, in this order.
    pub fn handle(&mut self, now: Timestamp, event: NodeEvent, out: &mut Vec<NodeAction>) {
        match event {
            NodeEvent::Assigned { assignment } => self.on_assigned(now, assignment, out),
            NodeEvent::CancelRequested { task, attempt } => self.on_cancel(now, (task, attempt), out),
            NodeEvent::RecallRequested { task, attempt } => {
                let id = (task, attempt);
                let waits = |a: &Attempt| {
                    matches!(a.state, State::Sizing | State::Blocked | State::Staging | State::Queued)
                };
                if self.attempts.get(&id).is_some_and(waits) {
                    self.end(id, Outcome::Cancelled, out);
                }
            }
            NodeEvent::DropRequested { objects } => self.drop_all(&objects, out),
            NodeEvent::PrefetchRequested { batch, inputs, awaits } => {
                let awaits = awaits || inputs.len() == 1;
                for input in inputs {
                    self.prefetch(batch, awaits, &input, out);
                }
            }
            NodeEvent::ReadRequested { object, run } => self.on_read_requested(object, run, out),
            NodeEvent::PrefetchCancelled { objects } => {
                for object in &objects {
                    if let Some(transfer) = self.transfers.get_mut(&Target::Cache(*object)) {
                        transfer.batch = None;
                    }
                }
                self.forget_abandoned();
            }
            NodeEvent::HomeAnswered { object, result } => self.on_home_answered(now, object, result, out),
            NodeEvent::TransferMoved { moved } => {
                let transfer = self.transfers.get(&moved.target);
                if transfer.is_some_and(|t| t.active == Some(moved.source) && t.watched) {
                    out.push(NodeAction::Tell { message: NodeMessage::InputMoved(moved) });
                }
            }
            NodeEvent::TransferEnded { target, source, result } => {
                self.on_transfer_ended(now, target, source, result, out)
            }
            NodeEvent::ProgramEnded { task, attempt, exit } => {
                self.on_program_ended(now, (task, attempt), exit, out)
            }
            NodeEvent::FileOpened { task, attempt, location } => {
                self.on_file_opened((task, attempt), location, out)
            }
            NodeEvent::FilesMade { task, attempt, locations } => {
                self.tell((task, attempt), NodeMessage::FilesMade { task, attempt, locations }, out)
            }
            NodeEvent::InputAdded { task, attempt, location, input } => {
                self.on_input_added(now, (task, attempt), location, input, out)
            }
            NodeEvent::OutputStored { task, attempt, output, marks, result } => {
                self.on_output_stored((task, attempt), (output, marks), now, result, out)
            }
            NodeEvent::OutputLanded { task, attempt, output, result } => {
                self.on_output_landed((task, attempt), output, result, out)
            }
            NodeEvent::FoundCorrupt { object } => self.drop_corrupt(object, out),
            NodeEvent::EndRecorded { task, attempt } => {
                self.forget_ended(task, attempt);
            }
            NodeEvent::EndForgotten { task, attempt } => {
                if let Some(a) = self.forget_ended(task, attempt) {
                    let stays = |object: &ObjectId| self.staying.contains(object);
                    let made: Vec<_> = a.assignment.outputs.iter().copied().filter(stays).collect();
                    self.drop_all(&made, out);
                }
            }
            NodeEvent::SpaceMeasured { room_bytes, disk_bytes } => {
                self.on_space_measured(room_bytes, disk_bytes, out)
            }
            NodeEvent::MemoryAnswered { object, result } => self.memory.answered(now, object, result, out),
            NodeEvent::MemoryMeasured { room_bytes } => self.memory.measured(room_bytes, out),
            NodeEvent::HomeShared { streams } => self.config.home_streams_max = streams.max(1),
            NodeEvent::Ticked => self.forget_answers(),
        }
        self.settle_space(now, out);
        self.memory.probe(now, out);
        self.progress(now, out);
    }

    /// Forgets an attempt that is over.
    fn forget_ended(&mut self, task: TaskId, attempt: AttemptNo) -> Option<Box<Attempt>> {
        let is_over = self.attempts.get(&(task, attempt)).is_some_and(|a| a.state == State::Ended);
        if is_over { self.attempts.remove(&(task, attempt)) } else { None }
    }

    /// Removes these objects from the cache, each as soon as nothing uses it.
    fn drop_all(&mut self, objects: &[ObjectId], out: &mut Vec<NodeAction>) {
        for &object in objects {
            if self.staying.remove(&object) {
                self.cache.release(object);
            }
            self.doomed.insert(object);
            self.drop_if_doomed(object, out);
        }
    }

    /// Takes over an object that a restarted executor found in its cache directory and whose origin it knows.
    pub fn restore(&mut self, object: ObjectId, bytes: Fetched, out: &mut Vec<NodeAction>) {
        let mut evicted = vec![];
        if self.cache.insert_ready(object, bytes.size_bytes, &mut evicted) != Reserve::Granted {
            evicted.push(object);
        }
        for object in evicted {
            self.evicted(object, out);
        }
        if self.cache.is_ready(object) {
            self.held.insert(object, bytes);
        }
    }

    /// Attempts whose end the dispatcher has not recorded, for the next hello.
    pub fn attempts(&self) -> Vec<(TaskId, AttemptNo)> {
        self.attempts.ids()
    }

    /// The reports about attempts that are not recorded yet, to be repeated after a reconnect. Reports of
    /// what was read come first, because the dispatcher judges the ends by them.
    ///
    /// The bytes are reported again, home's versions are not: a version counts as what home says now, and
    /// what home said before the connection broke may be older than what other executors have reported since.
    pub fn unrecorded(&self) -> impl Iterator<Item = NodeMessage> {
        let opening = self.attempts.in_order().flat_map(|((task, attempt), a)| {
            let opened = move |location: &String| {
                let location = location.clone();
                NodeMessage::FileOpened { task, attempt, location }
            };
            a.opening.iter().map(opened)
        });
        let reported = self.attempts.in_order().flat_map(|(_, a)| &a.reported);
        let is_read = |m: &&NodeMessage| matches!(m, NodeMessage::ReplicaAdded(_));
        let again = reported.clone().filter(is_read).chain(reported.filter(move |m| !is_read(m)));
        again
            .map(|message| match message {
                NodeMessage::ReplicaAdded(added) => {
                    NodeMessage::ReplicaAdded(ReplicaAdded { version: None, run: None, ..added.clone() })
                }
                message => message.clone(),
            })
            .chain(opening)
    }

    /// A connection has been made anew, with the same dispatcher or with one that was restarted. Other
    /// executors may have reported newer answers of home meanwhile, so home is asked again whenever an input
    /// is to be checked.
    pub fn reconnected(&mut self) {
        self.home.outdate();
        self.attempts.change_each(|attempt| attempt.is_older = true);
        // A dispatcher that still wants these asks again.
        self.serving.clear();
    }

    /// Everything in the cache, in id order.
    #[allow(clippy::disallowed_methods, reason = "sorted before anyone sees it")]
    pub fn held(&self) -> Vec<(ObjectId, Fetched)> {
        let mut held: Vec<_> = self.held.iter().map(|(o, f)| (*o, f.clone())).collect();
        held.sort_by_key(|(object, _)| *object);
        held
    }

    /// Forgets what home said of objects that nothing here needs, once there are many such answers. Should an object be needed
    /// again, home is asked again, as after a reconnect.
    fn forget_answers(&mut self) {
        if self.home.are_many() {
            let needed = self.needed_objects();
            let cache = &self.cache;
            self.home.retain(|object| needed.contains(&object) || cache.state(object).is_some());
        }
    }

    /// Objects that something here speaks of, beside what is ready in the cache: inputs and outputs of attempts that are not
    /// recorded as ended, transfers, questions to home.
    #[allow(clippy::disallowed_methods, reason = "sorted before anyone sees it")]
    pub fn needed_objects(&self) -> BTreeSet<ObjectId> {
        let mut needed: BTreeSet<ObjectId> = self.home.asked().chain(self.doomed.iter().copied()).collect();
        needed.extend(self.staying.iter().copied().chain(self.serving.keys().copied()));
        needed.extend(self.transfers.values().map(|transfer| transfer.object));
        for Assignment { inputs, outputs, .. } in self.attempts.in_order().map(|(_, a)| &*a.assignment) {
            needed.extend(inputs.iter().map(|input| input.object).chain(outputs.iter().copied()));
        }
        needed
    }

    /// Transfers from and to home that are under way.
    pub fn n_home_streams(&self) -> u32 {
        self.streams.n_home()
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Whether the cache is one of the stores that exchange objects.
    pub fn exchanges(&self) -> bool {
        self.config.cache.eviction == EXCHANGES
    }

    /// What of the cache is held in memory, too.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Programs that were handed to the runner and have not ended.
    pub fn n_running(&self) -> u32 {
        self.slots.n_running()
    }

    /// Whether programs take parts of slots here, so that each is to be started at once.
    pub fn takes_parts(&self) -> bool {
        self.slots.takes_parts()
    }

    pub fn is_idle(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Gives freed space, streams and slots to the attempts that wait for them, in order.
    fn progress(&mut self, now: Timestamp, out: &mut Vec<NodeAction>) {
        while let Some((&seq, &id)) = self.blocked.first_key_value() {
            if !self.try_reserve(now, id, out) {
                break;
            }
            self.blocked.remove(&seq);
        }
        self.begin_transfers(out);
        self.begin_landings(out);
        let n_slots = (self.config.slots, self.slots.n_ahead(self.config.slots));
        let mut from = 0;
        let mut awaited: Vec<Needs> = vec![];
        while let Some((seq, id)) = self.slots.next(from) {
            // Transfers under way also need room on the disk; they are waited for, and no new one begins.
            let waits_for_room = self.alone == Some(id) && self.streams.n_active() > 0;
            if waits_for_room || self.slots.n_running() >= self.space.programs_max() {
                break;
            }
            if self.alone == Some(id) {
                self.empty_cache(now, out);
            }
            let read_before_bytes = self.space.read_bytes();
            let attempt = self.attempts.get_mut(&id).expect("queued attempt is here");
            let gpus = match self.slots.try_start(n_slots, seq, &attempt.assignment, &mut awaited) {
                Turn::Starts { gpus } => gpus,
                Turn::Waits => {
                    from = seq + 1;
                    continue;
                }
                Turn::Full => break,
            };
            attempt.gpus = gpus.clone();
            attempt.state = State::Running;
            attempt.times.started = now;
            attempt.read_before_bytes = read_before_bytes;
            for (input, assigned) in attempt.inputs.iter_mut().zip(&attempt.assignment.inputs) {
                input.in_memory = input.plan == Plan::Cache && self.memory.holds(assigned.object);
            }
            let inputs = attempt
                .inputs
                .iter()
                .zip(&attempt.assignment.inputs)
                .map(|(input, assigned)| match input.plan {
                    Plan::Cache => Staged::Cached(assigned.object),
                    Plan::InPlace => Staged::InPlace(assigned.object),
                    Plan::Unneeded => Staged::Unneeded,
                    Plan::Private | Plan::Unknown => Staged::Private,
                })
                .collect();
            let private_inputs = attempt.assignment.private_inputs;
            out.push(NodeAction::Start { task: id.0, attempt: id.1, inputs, private_inputs, gpus });
        }
    }

    fn tell(&mut self, id: AttemptId, message: NodeMessage, out: &mut Vec<NodeAction>) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.reported.push(message.clone());
        }
        out.push(NodeAction::Tell { message });
    }

    /// Checks the invariants of the module's header; panics when one is broken. For tests.
    pub fn sanity_check(&self) {
        self.cache.sanity_check();
        self.memory.sanity_check(&self.cache);
        let uses = |t: &Transfer| Some(Uses::of(t.active?, t.shares, t.made_of.is_some()));
        let active = self.transfers.iter().filter_map(|(target, t)| Some((*target, uses(t)?))).collect();
        self.streams.check(&self.config, &active);
        let running = self.attempts.in_order().map(|(_, a)| a).filter(|a| a.state == State::Running);
        self.slots.check(&self.config.equipment, running);
        for (id, attempt) in self.attempts.in_order() {
            assert_eq!(attempt.state == State::Blocked, self.blocked.contains_key(&attempt.seq), "{id:?}");
            assert_eq!(attempt.state == State::Queued, self.slots.has_queued(attempt.seq), "{id:?}");
            if matches!(attempt.state, State::Staging | State::Queued) {
                for (input, assigned) in attempt.inputs.iter().zip(&attempt.assignment.inputs) {
                    if input.plan == Plan::Cache {
                        assert!(self.cache.n_pins(assigned.object) > 0, "{id:?} pins its inputs");
                    }
                }
            }
        }
        if let Some(id) = self.alone {
            assert!(self.attempts[&id].pinned && self.n_pinned == 1, "{id:?} has the disk to itself");
        }
        for (target, transfer) in &self.transfers {
            let places = self.transfer_queue.places_of(*target);
            assert_eq!(places.len(), usize::from(transfer.active.is_none()), "it is active or queued once");
            assert_eq!(places.first().copied(), transfer.place, "a transfer knows its place");
            let line = places.first().map(|place| place.line());
            assert!(line.is_none_or(|line| line == self.line_of(transfer)), "it stands in its line");
        }
    }
}
