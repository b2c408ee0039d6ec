//! Executor: what one node does next with the attempts it was given.
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
//!   2. cached plus reserved bytes never exceed the budget (the cache's own check);
//!   3. no more transfers are under way than the limits allow, in total, per peer and from home;
//!   4. the inputs of one attempt are reserved all at once or not at all, so that two attempts cannot
//!      each hold half of what they need;
//!   5. per object there is at most one transfer into the cache; later attempts join it.
//!
//! Why attempts that wait for space may be overtaken, but not for ever: an attempt whose inputs are all
//! here costs nothing to let pass, but its pins may be what keeps the waiting one waiting. After
//! [`OVERTAKES_MAX`] of them nobody passes any more until the first one has its space.
//!
//! Why an input may be read for one attempt only: what its bytes have to be is settled before they are
//! taken (`Expect`). Other bytes of that name which somebody still needs stay in the cache, so this attempt
//! reads its own copy; so do inputs that fit no cache.
//!
//! What a task makes and does not go home (`Assignment::staying`) is kept like an output on its way home, until the
//! dispatcher says that nobody will read it any more. There is no other place to read it from than peers, so an
//! attempt whose inputs of this kind do not fit here fails instead of reading its own copies.
//!
//! Not here: how bytes move and programs run (the driver), what is evicted ([`crate::eviction`]),
//! which attempt comes to this node ([`crate::dispatcher`]).

use crate::cache::{Cache, CacheConfig, ReplicaState, Reserve};
use crate::collective::BatchId;
use crate::event::*;
use crate::eviction::UnknownEviction;
use crate::types::*;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many attempts may pass one that waits for cache space.
pub const OVERTAKES_MAX: u32 = 64;

/// Programs that are short are handed to the runner ahead of time, so that a slot need not wait for a round
/// trip between two of them: about so much work per slot, of at most so many programs.
const AHEAD_NS: u64 = 20_000_000;
const AHEAD_MAX: u64 = 4;

/// The fixed properties of one executor.
#[derive(Clone, PartialEq, serde::Serialize, serde::Deserialize, Debug)]
pub struct ExecutorConfig {
    pub slots: u32,
    pub cache: CacheConfig,
    /// Transfers into this node under way at once.
    pub transfers_max: u32,
    /// Of these, from one peer.
    pub transfers_per_peer_max: u32,
    /// Of these, from or to home. Changed by [`Executor::set_home_streams`].
    pub home_streams_max: u32,
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
    /// Not decided: home has not answered yet.
    Unknown,
    /// From the cache; a hit or a transfer.
    Cache,
    /// A private copy, read from home for this attempt only.
    Private,
    /// Read where it is.
    InPlace,
}

#[derive(Debug)]
struct Input {
    plan: Plan,
    expect: Expect,
    /// Set once the bytes are here.
    outcome: Option<CacheOutcome>,
    size_bytes: u64,
    wait_ns: u64,
}

/// What the bytes of an input have to be: one run reads one version of an object.
#[derive(Clone, PartialEq, Debug, Default)]
struct Expect {
    /// What the run read before.
    known: Option<Known>,
    /// What home says now; asked when nothing is known.
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

/// What is here of a wanted object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Here {
    /// The right bytes, or on their way.
    Right,
    Absent,
    /// Other bytes that nobody needs.
    Stale,
    /// Other bytes that must stay for now: the attempt reads its own from home.
    Taken,
}

/// A question to home that is not answered yet.
#[derive(Debug, Default)]
struct Asking {
    /// The newest run that it was asked for.
    run: RunId,
    waiters: Vec<(AttemptId, u32)>,
    /// Of newer runs: home may have changed since the question was asked, it is asked again.
    later: Vec<(AttemptId, u32)>,
}

#[derive(Debug)]
struct Attempt {
    assignment: Assignment,
    state: State,
    /// Order of arrival; decides who reserves and starts first.
    seq: u64,
    inputs: Vec<Input>,
    /// Inputs whose plan waits for an answer from home.
    n_unknown: u32,
    /// Inputs that are not here yet.
    n_missing: u32,
    pinned: bool,
    overtaken: u32,
    cancelled: bool,
    /// Bytes that it runs with were found changed.
    spoiled: bool,
    /// Objects read for this attempt only, of which the dispatcher was told.
    told_private: Vec<(ObjectId, Digest)>,
    times: Times,
    cpu_ns: u64,
    rss_bytes_max: u64,
    outputs: Vec<Output>,
    n_outputs_pending: u32,
    /// Messages to repeat if the dispatcher comes back without having recorded them.
    told: Vec<NodeMessage>,
}

#[derive(Clone, Debug, Default)]
struct Output {
    stored: Option<Fetched>,
    cached: bool,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Transfer {
    object: ObjectId,
    size_bytes: u64,
    expect: Expect,
    /// Still to be tried, best first.
    sources: VecDeque<Source>,
    /// Where it is being read from now.
    active: Option<Source>,
    /// Whose attempts wait for it: attempt and input number, the first one began it.
    waiters: Vec<(AttemptId, u32)>,
    /// What was tried and how it ended, for the failure's story.
    story: Vec<String>,
    /// The dispatcher asked for it in this batch, whether attempts wait or not.
    batch: Option<BatchId>,
    /// Its first source may only be about to receive it.
    awaits: bool,
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
    attempts: BTreeMap<AttemptId, Attempt>,
    next_seq: u64,
    /// Attempts waiting for space, in order of arrival.
    blocked: BTreeMap<u64, AttemptId>,
    /// Attempts with all inputs, in order of arrival.
    queued: BTreeMap<u64, AttemptId>,
    /// Attempts that hold pins, and attempts whose outputs are being stored or brought home: when both
    /// are none, waiting for space is in vain.
    n_pinned: u32,
    n_storing: u32,
    slots_used: u32,
    n_running: u32,
    /// Smoothed run time of programs, to tell short ones.
    run_ns_mean: Option<u64>,
    /// What home said of an object, and in which run.
    home: FxHashMap<ObjectId, (RunId, HomeAnswer)>,
    /// Who waits for home's answer.
    asking: BTreeMap<ObjectId, Asking>,
    transfers: BTreeMap<Target, Transfer>,
    /// Transfers that wait for a place, in order.
    transfer_queue: VecDeque<Target>,
    n_active: u32,
    n_active_by_peer: BTreeMap<ExecutorId, u32>,
    n_home_streams: u32,
    landing_queue: BTreeSet<Landing>,
    /// Cached objects to be dropped as soon as nobody needs them.
    doomed: BTreeSet<ObjectId>,
    /// Objects made here that do not go home, kept until the dispatcher has them dropped.
    staying: FxHashSet<ObjectId>,
    /// What is known of each cached object's bytes.
    held: FxHashMap<ObjectId, Fetched>,
}

impl Executor {
    /// `Err` when the eviction policy's name is unknown.
    pub fn new(config: ExecutorConfig) -> Result<Executor, UnknownEviction> {
        let cache = Cache::new(config.cache.clone())?;
        Ok(Executor {
            config,
            cache,
            n_pinned: 0,
            n_storing: 0,
            attempts: BTreeMap::new(),
            next_seq: 0,
            blocked: BTreeMap::new(),
            queued: BTreeMap::new(),
            slots_used: 0,
            n_running: 0,
            run_ns_mean: None,
            home: FxHashMap::default(),
            asking: BTreeMap::new(),
            transfers: BTreeMap::new(),
            transfer_queue: VecDeque::new(),
            n_active: 0,
            n_active_by_peer: BTreeMap::new(),
            n_home_streams: 0,
            landing_queue: BTreeSet::new(),
            doomed: BTreeSet::new(),
            staying: FxHashSet::default(),
            held: FxHashMap::default(),
        })
    }

    /// The one door. Appends to `out` what the driver has to do, in this order.
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
            NodeEvent::DropRequested { objects } => {
                for object in objects {
                    if self.staying.remove(&object) {
                        self.cache.release(object);
                    }
                    self.doomed.insert(object);
                    self.drop_if_doomed(object, out);
                }
            }
            NodeEvent::PrefetchRequested { batch, inputs } => {
                // Several objects of one request come from a source that has them.
                let awaits = inputs.len() == 1;
                for input in inputs {
                    self.prefetch(batch, awaits, &input, out);
                }
            }
            NodeEvent::PrefetchCancelled { objects } => {
                for object in &objects {
                    if let Some(transfer) = self.transfers.get_mut(&Target::Cache(*object)) {
                        transfer.batch = None;
                    }
                }
                self.forget_abandoned();
            }
            NodeEvent::HomeAnswered { object, result } => self.on_home_answered(now, object, result, out),
            NodeEvent::TransferEnded { target, source, result } => {
                self.on_transfer_ended(now, target, source, result, out)
            }
            NodeEvent::ProgramEnded { task, attempt, exit } => {
                self.on_program_ended((task, attempt), exit, out)
            }
            NodeEvent::OutputStored { task, attempt, output, result } => {
                self.on_output_stored((task, attempt), output, result, out)
            }
            NodeEvent::OutputLanded { task, attempt, output, result } => {
                self.on_output_landed((task, attempt), output, result, out)
            }
            NodeEvent::FoundCorrupt { object } => self.drop_corrupt(object, out),
            NodeEvent::EndRecorded { task, attempt } => {
                if let Some(a) = self.attempts.get(&(task, attempt))
                    && a.state == State::Ended
                {
                    self.attempts.remove(&(task, attempt));
                }
            }
            NodeEvent::Ticked => {}
        }
        self.progress(now, out);
    }

    /// What a restarted executor found in its cache directory and knows the origin of.
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

    /// Attempts that the dispatcher has not recorded as ended, for the next hello.
    pub fn attempts(&self) -> Vec<(TaskId, AttemptNo)> {
        self.attempts.keys().copied().collect()
    }

    /// What was told about attempts that are not recorded yet, to be told again after a reconnect.
    /// What was read comes first: by that the dispatcher judges the ends.
    pub fn unrecorded(&self) -> impl Iterator<Item = &NodeMessage> {
        let told = || self.attempts.values().flat_map(|a| &a.told);
        let is_read = |m: &&NodeMessage| matches!(m, NodeMessage::ReplicaAdded(_));
        told().filter(is_read).chain(told().filter(move |m| !is_read(m)))
    }

    /// Everything in the cache, in id order.
    #[allow(clippy::disallowed_methods, reason = "sorted before anyone sees it")]
    pub fn held(&self) -> Vec<(ObjectId, Fetched)> {
        let mut held: Vec<_> = self.held.iter().map(|(o, f)| (*o, f.clone())).collect();
        held.sort_by_key(|(object, _)| *object);
        held
    }

    /// This node's share of the streams that home storage allows; at least 1.
    pub fn set_home_streams(&mut self, streams_max: u32) {
        self.config.home_streams_max = streams_max.max(1);
    }

    /// Transfers from and to home that are under way.
    pub fn n_home_streams(&self) -> u32 {
        self.n_home_streams
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Programs handed to the runner and not ended.
    pub fn n_running(&self) -> u32 {
        self.n_running
    }

    pub fn is_idle(&self) -> bool {
        self.attempts.is_empty()
    }

    // ------------------------------------------------------------ arrival and staging

    fn on_assigned(&mut self, now: Timestamp, assignment: Assignment, out: &mut Vec<NodeAction>) {
        let id = (assignment.task, assignment.attempt);
        if self.attempts.contains_key(&id) {
            return; // a reconnect may repeat an assignment
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let n = assignment.inputs.len();
        let mut attempt = Attempt {
            assignment,
            state: State::Sizing,
            seq,
            inputs: Vec::with_capacity(n),
            n_unknown: 0,
            n_missing: 0,
            pinned: false,
            overtaken: 0,
            cancelled: false,
            spoiled: false,
            told_private: vec![],
            times: Times { received: now, ..Times::default() },
            cpu_ns: 0,
            rss_bytes_max: 0,
            outputs: vec![],
            n_outputs_pending: 0,
            told: vec![],
        };
        let mut ask = vec![];
        for (i, input) in attempt.assignment.inputs.iter().enumerate() {
            let (plan, size_bytes, expect) = self.plan(input, attempt.assignment.run);
            if plan == Plan::Unknown {
                attempt.n_unknown += 1;
                ask.push((input.object, i as u32));
            }
            attempt.inputs.push(Input { plan, expect, outcome: None, size_bytes, wait_ns: 0 });
        }
        let (unknown, run) = (attempt.n_unknown, attempt.assignment.run);
        self.attempts.insert(id, attempt);
        for (object, i) in ask {
            let asking = self.asking.entry(object).or_insert_with(|| {
                out.push(NodeAction::AskHome { object });
                Asking { run, ..Asking::default() }
            });
            if run > asking.run { &mut asking.later } else { &mut asking.waiters }.push((id, i));
        }
        if unknown == 0 {
            self.reserve_or_block(now, id, out);
        }
    }

    /// How an input will come here, its size and what it has to be, where that is known.
    fn plan(&self, input: &AssignedInput, run: RunId) -> (Plan, u64, Expect) {
        let answered = self.home.get(&input.object);
        if let (false, Some(known)) = (input.check_home, &input.known) {
            let plan = match answered {
                Some((_, answer)) if answer.in_place => Plan::InPlace,
                _ if input.direct => Plan::Private,
                _ => Plan::Cache,
            };
            return (plan, known.size_bytes, Expect { known: Some(known.clone()), version: None });
        }
        match answered {
            Some((asked_run, answer)) if *asked_run >= run => Self::plan_from(input, answer),
            _ => (Plan::Unknown, 0, Expect::default()),
        }
    }

    fn plan_from(input: &AssignedInput, answer: &HomeAnswer) -> (Plan, u64, Expect) {
        let plan = match (answer.in_place, input.direct) {
            (true, _) => Plan::InPlace,
            (false, true) => Plan::Private,
            (false, false) => Plan::Cache,
        };
        // What an earlier run knew holds while home's version is the same.
        let known = input.known.clone().filter(|k| k.version == answer.version);
        let version = answer.version.clone();
        (plan, version.size_bytes, Expect { known, version: Some(version) })
    }

    fn on_home_answered(
        &mut self,
        now: Timestamp,
        object: ObjectId,
        result: Result<HomeAnswer, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let asking = self.asking.remove(&object).unwrap_or_default();
        let newest = |waiters: &[(AttemptId, u32)]| {
            waiters.iter().filter_map(|(id, _)| self.attempts.get(id)).map(|a| a.assignment.run).max()
        };
        if let Some(run) = newest(&asking.later) {
            self.asking.insert(object, Asking { run, waiters: asking.later, later: vec![] });
            out.push(NodeAction::AskHome { object });
        }
        match result {
            Ok(answer) => {
                if asking.waiters.is_empty() {
                    return;
                }
                self.home.insert(object, (asking.run, answer.clone()));
                for (id, i) in asking.waiters {
                    let Some(attempt) = self.attempts.get_mut(&id) else { continue };
                    let assigned = &attempt.assignment.inputs[i as usize];
                    let input = &mut attempt.inputs[i as usize];
                    (input.plan, input.size_bytes, input.expect) = Self::plan_from(assigned, &answer);
                    attempt.n_unknown -= 1;
                    if attempt.n_unknown == 0 {
                        self.reserve_or_block(now, id, out);
                    }
                }
            }
            Err(error) => {
                for (id, _) in asking.waiters {
                    self.fail(id, failure_of(&error), out);
                }
            }
        }
    }

    /// All plans are known: take the space for everything that has to come, or wait for it.
    fn reserve_or_block(&mut self, now: Timestamp, id: AttemptId, out: &mut Vec<NodeAction>) {
        let needs_space = self.attempts[&id]
            .inputs
            .iter()
            .zip(&self.attempts[&id].assignment.inputs)
            .any(|(input, a)| input.plan == Plan::Cache && self.cache.state(a.object).is_none());
        let must_wait = match self.blocked.first_key_value() {
            None => false,
            Some(_) if needs_space => true,
            Some((_, first)) => self.attempts[first].overtaken >= OVERTAKES_MAX,
        };
        if must_wait || !self.try_reserve(now, id, out) {
            let attempt = self.attempts.get_mut(&id).expect("attempt is here");
            attempt.state = State::Blocked;
            self.blocked.insert(attempt.seq, id);
        } else if let Some((_, first)) = self.blocked.first_key_value() {
            self.attempts.get_mut(first).expect("blocked attempt is here").overtaken += 1;
        }
    }

    /// Pins what is here, reserves what is not, and starts the transfers; all or nothing.
    fn try_reserve(&mut self, now: Timestamp, id: AttemptId, out: &mut Vec<NodeAction>) -> bool {
        let attempt = &self.attempts[&id];
        let mut wanted: Vec<(ObjectId, u64, Here)> = attempt
            .inputs
            .iter()
            .zip(&attempt.assignment.inputs)
            .filter(|(input, _)| input.plan == Plan::Cache)
            .map(|(input, a)| (a.object, input.size_bytes, self.look(a.object, &input.expect)))
            .collect();
        wanted.sort_unstable_by_key(|w| (w.0, w.1));
        wanted.dedup_by_key(|w| w.0);
        let mut private: Vec<ObjectId> = wanted.iter().filter(|w| w.2 == Here::Taken).map(|w| w.0).collect();
        wanted.retain(|w| w.2 != Here::Taken);
        for (object, ..) in wanted.iter().filter(|w| w.2 == Here::Stale) {
            self.cache.remove(*object).expect("stale bytes are held by nobody");
            self.evicted(*object, out);
        }
        // Pin first, so that making room for one input does not evict another.
        for (object, ..) in &wanted {
            self.cache.pin(*object);
        }
        let mut absent: Vec<(ObjectId, u64)> =
            wanted.iter().filter(|w| w.2 != Here::Right).map(|w| (w.0, w.1)).collect();
        let mut missing_bytes: u64 = absent.iter().map(|w| w.1).sum();
        if missing_bytes > self.cache.available_bytes() {
            let others_end = self.n_pinned > 0 || self.n_storing > 0 || self.cache.reserved_bytes() > 0;
            let ever = absent.iter().filter(|w| w.1 <= self.cache.budget_bytes()).map(|w| w.1).sum::<u64>();
            if others_end && ever > self.cache.available_bytes() {
                for (object, ..) in wanted {
                    self.cache.unpin(object);
                }
                return false;
            }
            // Nobody else's ending can make room: the largest are read for this attempt only. What home does not
            // have cannot be read so.
            let inputs = self.attempts[&id].assignment.inputs.iter();
            let staying: FxHashSet<ObjectId> = inputs.filter(|i| i.stays).map(|i| i.object).collect();
            let staying_bytes: u64 = absent.iter().filter(|w| staying.contains(&w.0)).map(|w| w.1).sum();
            if staying_bytes > self.cache.available_bytes() {
                for (object, ..) in wanted {
                    self.cache.unpin(object);
                }
                let message = format!(
                    "{staying_bytes} bytes of inputs that are only on nodes do not fit into the {} bytes of this \
                     node's cache, of which {} can be had now; give the nodes more cache",
                    self.cache.budget_bytes(),
                    self.cache.available_bytes()
                );
                self.fail(id, Failure { kind: FailureKind::CacheFull, message }, out);
                return true;
            }
            absent.sort_unstable_by_key(|w| (!staying.contains(&w.0), w.1, w.0));
            while missing_bytes > self.cache.available_bytes() {
                let (object, size_bytes) = absent.pop().expect("nothing missing needs no room");
                missing_bytes -= size_bytes;
                self.cache.unpin(object);
                private.push(object);
            }
        }
        let mut evicted = vec![];
        for (object, size_bytes) in absent {
            let granted = self.cache.reserve(object, size_bytes, &mut evicted);
            assert_eq!(granted, Reserve::Granted, "the sum fits, so each part does");
        }
        for object in evicted {
            self.evicted(object, out);
        }
        self.n_pinned += 1;
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        attempt.state = State::Staging;
        attempt.pinned = true;
        let (mut fetches, mut confirmed) = (vec![], vec![]);
        for i in 0..attempt.inputs.len() {
            let object = attempt.assignment.inputs[i].object;
            let input = &mut attempt.inputs[i];
            if input.plan == Plan::Cache && private.contains(&object) {
                input.plan = Plan::Private;
            }
            match input.plan {
                Plan::Unknown => unreachable!("every plan is known before space is taken"),
                Plan::InPlace => input.outcome = Some(CacheOutcome::InPlace),
                Plan::Cache if self.cache.is_ready(object) => {
                    input.outcome = Some(CacheOutcome::LocalHit);
                    self.cache.touch(object);
                    if attempt.assignment.inputs[i].check_home {
                        let version = input.expect.version.clone();
                        confirmed.push((object, Fetched { version, ..self.held[&object].clone() }));
                    }
                }
                Plan::Cache => {
                    attempt.n_missing += 1;
                    fetches.push((Target::Cache(object), i as u32));
                }
                Plan::Private => {
                    attempt.n_missing += 1;
                    let (task, attempt) = id;
                    fetches.push((Target::Private { task, attempt, input: i as u32 }, i as u32));
                }
            }
        }
        let unreachable = fetches.iter().find(|(target, i)| {
            let input = &self.attempts[&id].assignment.inputs[*i as usize];
            let private = matches!(target, Target::Private { .. });
            input.stays && !self.transfers.contains_key(target) && (private || input.sources.is_empty())
        });
        if let Some(&(_, i)) = unreachable {
            // Space was taken for transfers that never begin.
            for (target, _) in &fetches {
                if let Target::Cache(object) = target
                    && !self.transfers.contains_key(target)
                    && self.cache.state(*object) == Some(ReplicaState::Creating)
                {
                    self.cache.abort(*object);
                }
            }
            let message = format!("no node that can be reached has input {} any more", i + 1);
            self.fail(id, Failure { kind: FailureKind::InputLost, message }, out);
            return true;
        }
        for (target, i) in fetches {
            self.want(target, id, i);
        }
        // The whole run is held to these bytes: the dispatcher has to know which they are.
        for (object, bytes) in confirmed {
            self.tell_replica(Some(id), object, &bytes, out);
        }
        self.start_when_ready(now, id);
        true
    }

    /// What is here of `object`, for an attempt that does not pin it yet.
    fn look(&self, object: ObjectId, expect: &Expect) -> Here {
        match self.cache.state(object) {
            None => Here::Absent,
            Some(ReplicaState::Ready) if self.doomed.contains(&object) => Here::Taken,
            Some(ReplicaState::Ready) if expect.accepts(&self.held[&object]) => Here::Right,
            Some(ReplicaState::Ready) if self.cache.n_pins(object) > 0 || self.cache.is_kept(object) => {
                Here::Taken
            }
            Some(ReplicaState::Ready) => Here::Stale,
            // It may also be an output that is being stored.
            Some(ReplicaState::Creating) => match self.transfers.get(&Target::Cache(object)) {
                Some(transfer) if transfer.expect == *expect && !self.doomed.contains(&object) => Here::Right,
                _ => Here::Taken,
            },
        }
    }

    /// Joins the transfer to `target`, or queues it.
    fn want(&mut self, target: Target, id: AttemptId, input: u32) {
        if let Some(transfer) = self.transfers.get_mut(&target) {
            transfer.waiters.push((id, input));
            return;
        }
        let attempt = &self.attempts[&id];
        let assigned = &attempt.assignment.inputs[input as usize];
        let expect = attempt.inputs[input as usize].expect.clone();
        let mut sources: VecDeque<Source> = assigned.sources.iter().map(|e| Source::Peer(*e)).collect();
        if expect.known.is_none() || matches!(target, Target::Private { .. }) {
            // Peers can only be asked for bytes with a known digest.
            sources.clear();
        }
        if !assigned.stays {
            sources.push_back(Source::Home);
        }
        let transfer = Transfer {
            object: assigned.object,
            size_bytes: attempt.inputs[input as usize].size_bytes,
            expect,
            sources,
            active: None,
            waiters: vec![(id, input)],
            story: vec![],
            batch: None,
            awaits: false,
        };
        self.transfers.insert(target, transfer);
        self.transfer_queue.push_back(target);
    }

    /// Brings an object here for attempts to come: space is taken from what may be evicted, or it is refused.
    fn prefetch(&mut self, batch: BatchId, awaits: bool, input: &AssignedInput, out: &mut Vec<NodeAction>) {
        let AssignedInput { object, known: Some(known), sources, stays, .. } = input else {
            return self.prefetch_failed(batch, input.object, TransferErrorKind::Unavailable, out);
        };
        let expect = Expect { known: Some(known.clone()), version: None };
        let mut sources: VecDeque<Source> = sources.iter().map(|e| Source::Peer(*e)).collect();
        if !stays {
            sources.push_back(Source::Home);
        }
        let target = Target::Cache(*object);
        match self.look(*object, &expect) {
            Here::Right => {
                // There, or on its way: then it is asked for where the dispatcher says now.
                if let Some(transfer) = self.transfers.get_mut(&target) {
                    (transfer.batch, transfer.awaits) = (Some(batch), awaits);
                    if transfer.active.is_none() {
                        transfer.sources = sources;
                    }
                }
            }
            Here::Absent => {
                let mut evicted = vec![];
                let granted = self.cache.reserve(*object, known.size_bytes, &mut evicted);
                for object in evicted {
                    self.evicted(object, out);
                }
                if granted != Reserve::Granted {
                    return self.prefetch_failed(batch, *object, TransferErrorKind::NoSpace, out);
                }
                let transfer = Transfer {
                    object: *object,
                    size_bytes: known.size_bytes,
                    expect,
                    sources,
                    active: None,
                    waiters: vec![],
                    story: vec![],
                    batch: Some(batch),
                    awaits,
                };
                self.transfers.insert(target, transfer);
                self.transfer_queue.push_back(target);
            }
            Here::Stale | Here::Taken => {
                self.prefetch_failed(batch, *object, TransferErrorKind::Temporary, out)
            }
        }
    }

    fn prefetch_failed(
        &mut self,
        batch: BatchId,
        object: ObjectId,
        kind: TransferErrorKind,
        out: &mut Vec<NodeAction>,
    ) {
        out.push(NodeAction::Tell { message: NodeMessage::PrefetchFailed { batch, object, kind } });
    }

    fn on_transfer_ended(
        &mut self,
        now: Timestamp,
        target: Target,
        source: Source,
        result: Result<Fetched, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(transfer) = self.transfers.get_mut(&target) else { return };
        if transfer.active != Some(source) {
            return;
        }
        transfer.active = None;
        self.n_active -= 1;
        match source {
            Source::Home => self.n_home_streams -= 1,
            Source::Peer(peer) => {
                *self.n_active_by_peer.get_mut(&peer).expect("an active transfer from a peer is counted") -= 1
            }
        }
        let result = match result {
            Ok(bytes) if matches!(target, Target::Cache(_)) && bytes.size_bytes > transfer.size_bytes => {
                let message =
                    format!("it has {} bytes, {} were expected", bytes.size_bytes, transfer.size_bytes);
                Err(TransferError { kind: TransferErrorKind::Changed, message })
            }
            result => result,
        };
        match result {
            Ok(bytes) => {
                let transfer = self.transfers.remove(&target).expect("just seen");
                let known = transfer.expect.known.as_ref();
                if let Target::Cache(object) = target {
                    self.cache.commit(object, bytes.size_bytes);
                    let known_version = known.map(|k| k.version.clone()).filter(|v| !v.stamp.is_empty());
                    let version = bytes.version.clone().or(known_version);
                    self.held.insert(object, Fetched { version, ..bytes.clone() });
                    if let Some(version) = &bytes.version
                        && let Some((_, answer)) = self.home.get_mut(&object)
                    {
                        answer.version = version.clone();
                    }
                    self.tell_replica(transfer.waiters.first().map(|w| w.0), object, &bytes, out);
                } else if let Target::Private { task, attempt: attempt_no, .. } = target
                    && let Some(version) = &bytes.version
                {
                    self.home.entry(transfer.object).and_modify(|(_, a)| a.version = version.clone());
                    if known.is_none()
                        && let Some(attempt) = self.attempts.get_mut(&(task, attempt_no))
                    {
                        // The whole run is held to what its first reader saw. Taken back when the attempt
                        // has ended, as nobody else can have this copy.
                        attempt.told_private.push((transfer.object, bytes.digest));
                        self.tell_replica(Some((task, attempt_no)), transfer.object, &bytes, out);
                    }
                }
                let first = match (source, target) {
                    (_, Target::Private { .. }) => CacheOutcome::Direct,
                    (Source::Peer(from), _) => CacheOutcome::RemoteHit { from },
                    (Source::Home, _) => CacheOutcome::Miss,
                };
                for (n, (id, i)) in transfer.waiters.iter().enumerate() {
                    let Some(attempt) = self.attempts.get_mut(id) else { continue };
                    let input = &mut attempt.inputs[*i as usize];
                    input.outcome = Some(if n == 0 { first } else { CacheOutcome::Joined });
                    input.size_bytes = bytes.size_bytes;
                    input.wait_ns = now.since_ns(attempt.times.received);
                    attempt.n_missing -= 1;
                    self.start_when_ready(now, *id);
                }
                if let Target::Cache(object) = target {
                    self.drop_if_doomed(object, out);
                }
            }
            Err(error) => {
                transfer.story.push(match source {
                    Source::Peer(peer) => format!("executor {peer} ({})", error.message),
                    Source::Home => format!("home ({})", error.message),
                });
                let hopeless = matches!(error.kind, TransferErrorKind::Changed | TransferErrorKind::NoSpace);
                let is_wanted = !transfer.waiters.is_empty() || transfer.batch.is_some();
                if !hopeless && !transfer.sources.is_empty() && is_wanted {
                    self.transfer_queue.push_back(target);
                    return;
                }
                let transfer = self.transfers.remove(&target).expect("just seen");
                let failure = Failure {
                    message: if transfer.story.len() > 1 {
                        format!("{}; tried {}", error.message, transfer.story.join(", "))
                    } else {
                        error.message.clone()
                    },
                    ..failure_of(&error)
                };
                for (id, input) in &transfer.waiters {
                    let mut failure = failure.clone();
                    let stays = |a: &Attempt| a.assignment.inputs[*input as usize].stays;
                    if failure.kind == FailureKind::InputUnavailable
                        && self.attempts.get(id).is_some_and(stays)
                    {
                        failure.kind = FailureKind::InputLost;
                    }
                    self.fail(*id, failure, out);
                }
                if let Some(batch) = transfer.batch {
                    self.prefetch_failed(batch, transfer.object, error.kind, out);
                }
                if let Target::Cache(object) = target {
                    self.cache.abort(object);
                    self.doomed.remove(&object);
                }
            }
        }
    }

    // ------------------------------------------------------------ running

    fn start_when_ready(&mut self, now: Timestamp, id: AttemptId) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        if attempt.state == State::Staging && attempt.n_missing == 0 {
            attempt.state = State::Queued;
            attempt.times.inputs_ready = now;
            self.queued.insert(attempt.seq, id);
        }
    }

    fn on_program_ended(&mut self, id: AttemptId, exit: Exit, out: &mut Vec<NodeAction>) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if attempt.state != State::Running {
            return;
        }
        self.n_running -= 1;
        self.slots_used -= attempt.assignment.cpus;
        attempt.times.started = exit.started;
        attempt.times.exited = exit.exited;
        attempt.cpu_ns = exit.cpu_ns;
        attempt.rss_bytes_max = exit.rss_bytes_max;
        let run_ns = exit.exited.since_ns(exit.started);
        self.run_ns_mean = Some(self.run_ns_mean.map_or(run_ns, |m| m - m / 8 + run_ns / 8));

        let of_cache = |i: &&u32| attempt.inputs[**i as usize].plan == Plan::Cache;
        let wrote = exit.inputs_modified.iter().any(|i| of_cache(&i));
        let damaged: Vec<ObjectId> = exit
            .inputs_damaged
            .iter()
            .filter(of_cache)
            .map(|i| attempt.assignment.inputs[*i as usize].object)
            .collect();
        self.unpin_all(id, out);
        let attempt = &self.attempts[&id];
        let (cancelled, spoiled) = (attempt.cancelled, attempt.spoiled);
        for object in damaged {
            self.drop_corrupt(object, out);
        }
        if cancelled {
            self.end(id, Outcome::Cancelled, out);
        } else if wrote || spoiled {
            let message = match wrote {
                true => "the program wrote to one of its inputs; the cached copy was dropped",
                false => "an input was found changed while the program ran; the cached copy was dropped",
            };
            self.fail(id, Failure { kind: FailureKind::InputModified, message: message.into() }, out);
        } else if let Err(failure) = exit.result {
            self.fail(id, failure, out);
        } else if exit.outputs.is_empty() {
            self.end(id, Outcome::Done, out);
        } else {
            let attempt = self.attempts.get_mut(&id).expect("attempt is here");
            attempt.state = State::Storing;
            self.n_storing += 1;
            attempt.outputs = vec![Output::default(); exit.outputs.len()];
            attempt.n_outputs_pending = exit.outputs.len() as u32;
            let objects = attempt.assignment.outputs.clone();
            for (i, size) in exit.outputs.iter().enumerate() {
                let (size, object) = (size.unwrap_or(0), objects[i]);
                let stays = self.attempts[&id].assignment.staying.binary_search(&(i as u32)).is_ok();
                if stays {
                    self.drop_earlier(object, out);
                }
                let mut evicted = vec![];
                let free = self.cache.state(object).is_none();
                let cached =
                    free && matches!(self.cache.reserve(object, size, &mut evicted), Reserve::Granted);
                for object in evicted {
                    self.evicted(object, out);
                }
                let budget_bytes = self.cache.budget_bytes();
                let available_bytes = self.cache.available_bytes();
                let attempt = self.attempts.get_mut(&id).expect("attempt is here");
                attempt.outputs[i].cached = cached;
                if stays && !cached {
                    // It is hashed all the same, and the attempt fails when all are.
                    let message = format!(
                        "output {} with {size} bytes stays on the nodes and does not fit into the {budget_bytes} bytes \
                         of this node's cache, of which {available_bytes} can be had now; give the nodes more cache",
                        i + 1
                    );
                    attempt.outputs[i].failure = Some(Failure { kind: FailureKind::CacheFull, message });
                }
                let (task, attempt, output) = (id.0, id.1, i as u32);
                let cache_bytes = cached.then_some(size);
                out.push(NodeAction::StoreOutput { task, attempt, output, object, cache_bytes });
            }
        }
    }

    fn on_output_stored(
        &mut self,
        id: AttemptId,
        output: u32,
        result: Result<Fetched, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let object = attempt.assignment.outputs[output as usize];
        let slot = &mut attempt.outputs[output as usize];
        match result {
            Ok(bytes) => {
                if slot.cached {
                    self.cache.commit(object, bytes.size_bytes);
                    // The last copy until it is home.
                    self.cache.keep(object);
                    self.held.insert(object, bytes.clone());
                }
                slot.stored = Some(bytes);
            }
            Err(error) => {
                if slot.cached {
                    self.cache.abort(object);
                    slot.cached = false;
                }
                let kind = if error.kind == TransferErrorKind::NoSpace {
                    FailureKind::Node
                } else {
                    FailureKind::OutputMissing
                };
                slot.failure.get_or_insert(Failure { kind, message: error.message });
            }
        }
        attempt.n_outputs_pending -= 1;
        if attempt.n_outputs_pending > 0 {
            return;
        }
        if let Some(failure) = attempt.outputs.iter().find_map(|o| o.failure.clone()) {
            self.forget_outputs(id, out);
            self.fail(id, failure, out);
            return;
        }
        if attempt.cancelled {
            self.forget_outputs(id, out);
            self.end(id, Outcome::Cancelled, out);
            return;
        }
        let lands: Vec<u32> = (0..attempt.outputs.len() as u32)
            .filter(|output| attempt.assignment.staying.binary_search(output).is_err())
            .collect();
        attempt.state = State::Landing;
        attempt.n_outputs_pending = lands.len() as u32;
        let seq = attempt.seq;
        for output in &attempt.assignment.staying {
            self.staying.insert(attempt.assignment.outputs[*output as usize]);
        }
        let nothing_lands = lands.is_empty();
        for output in lands {
            self.landing_queue.insert(Landing { seq, attempt: id, output });
        }
        for (i, o) in self.attempts[&id].outputs.clone().iter().enumerate() {
            if let (true, Some(bytes)) = (o.cached, &o.stored) {
                let object = self.attempts[&id].assignment.outputs[i];
                self.tell_replica(Some(id), object, bytes, out);
            }
        }
        let report = self.report(id, Outcome::Done);
        self.tell(id, NodeMessage::AttemptEnded { report }, out);
        self.take_back_private(id, out);
        if nothing_lands {
            self.attempts.get_mut(&id).expect("attempt is here").state = State::Ended;
            self.n_storing -= 1;
            out.push(NodeAction::CleanUp { task: id.0, attempt: id.1 });
        }
    }

    /// Bytes under the name of an output that an earlier attempt left here.
    fn drop_earlier(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        if self.staying.remove(&object) {
            self.cache.release(object);
        }
        if self.cache.remove(object).is_ok() {
            self.evicted(object, out);
        }
        self.doomed.remove(&object);
    }

    fn on_output_landed(
        &mut self,
        id: AttemptId,
        output: u32,
        result: Result<HomeVersion, TransferError>,
        out: &mut Vec<NodeAction>,
    ) {
        self.n_home_streams -= 1;
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let object = attempt.assignment.outputs[output as usize];
        let run = attempt.assignment.run;
        let slot = &mut attempt.outputs[output as usize];
        if slot.cached {
            self.cache.release(object);
        }
        match result {
            Ok(version) => {
                if slot.cached {
                    if let Some(held) = self.held.get_mut(&object) {
                        held.version = Some(version.clone());
                        let bytes = held.clone();
                        self.tell_replica(Some(id), object, &bytes, out);
                    }
                    self.home.insert(object, (run, HomeAnswer { version, in_place: false }));
                }
            }
            Err(error) => {
                let failure = Failure { kind: FailureKind::StageOut, message: error.message };
                slot.failure.get_or_insert(failure);
            }
        }
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        attempt.n_outputs_pending -= 1;
        self.end_when_landed(id, out);
        self.drop_if_doomed(object, out);
    }

    fn end_when_landed(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        if attempt.n_outputs_pending > 0 {
            return;
        }
        let result = match attempt.outputs.iter().find_map(|o| o.failure.clone()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        };
        attempt.state = State::Ended;
        self.n_storing -= 1;
        if result.is_err() {
            self.forget_staying(id, out);
        }
        out.push(NodeAction::CleanUp { task: id.0, attempt: id.1 });
        self.tell(id, NodeMessage::OutputsHome { task: id.0, attempt: id.1, result }, out);
    }

    /// Outputs that have not set out for home stay here.
    fn stop_landing(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let queued: Vec<Landing> = self.landing_queue.iter().filter(|l| l.attempt == id).copied().collect();
        for landing in queued {
            self.landing_queue.remove(&landing);
            let attempt = self.attempts.get_mut(&id).expect("attempt is here");
            let object = attempt.assignment.outputs[landing.output as usize];
            let output = &mut attempt.outputs[landing.output as usize];
            let message = "the attempt was ended before its outputs were home".into();
            output.failure = Some(Failure { kind: FailureKind::StageOut, message });
            attempt.n_outputs_pending -= 1;
            if output.cached {
                self.cache.release(object);
                self.doomed.insert(object);
                self.drop_if_doomed(object, out);
            }
        }
        self.end_when_landed(id, out);
    }

    fn on_cancel(&mut self, now: Timestamp, id: AttemptId, out: &mut Vec<NodeAction>) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            // Unknown here: say that it ended, so that the dispatcher does not wait for it.
            let (task, attempt) = id;
            let report = AttemptReport {
                task,
                attempt,
                outcome: Outcome::Cancelled,
                times: Times { received: now, ..Times::default() },
                inputs: vec![],
                outputs: vec![],
                cpu_ns: 0,
                rss_bytes_max: 0,
            };
            out.push(NodeAction::Tell { message: NodeMessage::AttemptEnded { report } });
            return;
        };
        if attempt.cancelled {
            return;
        }
        attempt.cancelled = true;
        match attempt.state {
            State::Sizing | State::Blocked | State::Staging | State::Queued => {
                self.end(id, Outcome::Cancelled, out)
            }
            State::Running => out.push(NodeAction::Kill { task: id.0, attempt: id.1 }),
            State::Landing => self.stop_landing(id, out),
            // Storing ends as cancelled.
            State::Storing | State::Ended => {}
        }
    }

    fn fail(&mut self, id: AttemptId, failure: Failure, out: &mut Vec<NodeAction>) {
        self.end(id, Outcome::Failed(failure), out);
    }

    /// The attempt is over without outputs to bring home: release what it holds and report.
    fn end(&mut self, id: AttemptId, outcome: Outcome, out: &mut Vec<NodeAction>) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if attempt.state == State::Ended {
            return;
        }
        let (seq, state) = (attempt.seq, attempt.state);
        self.n_storing -= u32::from(state == State::Storing);
        self.blocked.remove(&seq);
        self.queued.remove(&seq);
        self.unpin_all(id, out);
        if matches!(state, State::Sizing | State::Blocked | State::Staging) {
            self.stop_waiting(id);
        }
        let report = self.report(id, outcome);
        self.attempts.get_mut(&id).expect("attempt is here").state = State::Ended;
        out.push(NodeAction::CleanUp { task: id.0, attempt: id.1 });
        self.tell(id, NodeMessage::AttemptEnded { report }, out);
        self.take_back_private(id, out);
    }

    /// Copies that only this attempt could read are gone with it.
    fn take_back_private(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        for (object, digest) in std::mem::take(&mut attempt.told_private) {
            if self.held.get(&object).is_none_or(|held| held.digest != digest) {
                self.tell(id, NodeMessage::ReplicaDropped(object), out);
            }
        }
    }

    /// Takes the attempt out of every list of waiters.
    fn stop_waiting(&mut self, id: AttemptId) {
        for asking in self.asking.values_mut() {
            asking.waiters.retain(|(waiter, _)| *waiter != id);
            asking.later.retain(|(waiter, _)| *waiter != id);
        }
        // Transfers go on: their bytes may serve the next attempt. Only this one stops waiting, and a
        // private copy that nobody waits for and that has not begun is not begun.
        for transfer in self.transfers.values_mut() {
            transfer.waiters.retain(|(waiter, _)| *waiter != id);
        }
        self.forget_abandoned();
    }

    /// Transfers that nobody wants and that have not begun are not begun.
    fn forget_abandoned(&mut self) {
        let abandoned: Vec<Target> = self
            .transfers
            .iter()
            .filter(|(_, t)| t.active.is_none() && t.waiters.is_empty() && t.batch.is_none())
            .map(|(target, _)| *target)
            .collect();
        for target in abandoned {
            self.transfers.remove(&target);
            self.transfer_queue.retain(|t| *t != target);
            if let Target::Cache(object) = target {
                self.cache.abort(object);
            }
        }
    }

    fn report(&self, id: AttemptId, outcome: Outcome) -> AttemptReport {
        let a = &self.attempts[&id];
        let inputs = a.inputs.iter().zip(&a.assignment.inputs).filter_map(|(input, assigned)| {
            Some(InputReport {
                object: assigned.object,
                outcome: input.outcome?,
                size_bytes: input.size_bytes,
                wait_ns: input.wait_ns,
            })
        });
        let outputs = a.outputs.iter().enumerate().filter_map(|(i, o)| {
            let s = o.stored.as_ref()?;
            Some(OutputReport { output: i as u32, digest: s.digest, size_bytes: s.size_bytes })
        });
        AttemptReport {
            task: id.0,
            attempt: id.1,
            outcome,
            times: a.times,
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            cpu_ns: a.cpu_ns,
            rss_bytes_max: a.rss_bytes_max,
        }
    }

    // ------------------------------------------------------------ what may happen next

    /// Gives freed space, streams and slots to whoever waits for them, in order.
    fn progress(&mut self, now: Timestamp, out: &mut Vec<NodeAction>) {
        while let Some((&seq, &id)) = self.blocked.first_key_value() {
            if !self.try_reserve(now, id, out) {
                break;
            }
            self.blocked.remove(&seq);
        }
        self.begin_transfers(out);
        self.begin_landings(out);
        let ahead_per_slot = self.run_ns_mean.map_or(0, |ns| (AHEAD_NS / ns.max(1)).min(AHEAD_MAX));
        let extra = self.config.slots * ahead_per_slot as u32;
        while let Some((&seq, &id)) = self.queued.first_key_value() {
            let attempt = self.attempts.get_mut(&id).expect("queued attempt is here");
            // A task that asks for more than there is gets all there is; the dispatcher refuses it earlier.
            let cpus = attempt.assignment.cpus;
            let fits = self.slots_used + cpus <= self.config.slots + extra || self.slots_used == 0;
            if !fits {
                break;
            }
            self.queued.remove(&seq);
            attempt.state = State::Running;
            attempt.times.started = now;
            self.slots_used += cpus;
            self.n_running += 1;
            let inputs = attempt
                .inputs
                .iter()
                .zip(&attempt.assignment.inputs)
                .map(|(input, assigned)| match input.plan {
                    Plan::Cache => Staged::Cached(assigned.object),
                    Plan::InPlace => Staged::InPlace(assigned.object),
                    Plan::Private | Plan::Unknown => Staged::Private,
                })
                .collect();
            let private_inputs = attempt.assignment.private_inputs;
            out.push(NodeAction::Start { task: id.0, attempt: id.1, inputs, private_inputs });
        }
    }

    /// Whether a copy of the object is to come into the cache: from a source that was asked, or from the next.
    pub fn is_fetching(&self, object: ObjectId) -> bool {
        self.transfers.contains_key(&Target::Cache(object))
    }

    fn begin_transfers(&mut self, out: &mut Vec<NodeAction>) {
        let mut i = 0;
        while i < self.transfer_queue.len() && self.n_active < self.config.transfers_max {
            let target = self.transfer_queue[i];
            let transfer = self.transfers.get_mut(&target).expect("queued transfer is here");
            let (by_peer, per_peer_max) = (&self.n_active_by_peer, self.config.transfers_per_peer_max);
            let home_has_room = self.n_home_streams < self.config.home_streams_max;
            let peers_left = transfer.sources.iter().any(|s| matches!(s, Source::Peer(_)));
            let choice = transfer.sources.iter().position(|source| match source {
                Source::Peer(peer) => by_peer.get(peer).copied().unwrap_or(0) < per_peer_max,
                // Home is the last resort: a busy peer is waited for, shared storage is left alone.
                Source::Home => !peers_left && home_has_room,
            });
            let Some(choice) = choice else {
                i += 1;
                continue;
            };
            let source = transfer.sources.remove(choice).expect("position is in range");
            self.transfer_queue.remove(i);
            transfer.active = Some(source);
            self.n_active += 1;
            match source {
                Source::Home => self.n_home_streams += 1,
                Source::Peer(peer) => *self.n_active_by_peer.entry(peer).or_default() += 1,
            }
            out.push(NodeAction::Fetch {
                target,
                object: transfer.object,
                source,
                known: transfer.expect.known.clone(),
                size_bytes: transfer.size_bytes,
                awaits: std::mem::take(&mut transfer.awaits) && source != Source::Home,
            });
        }
    }

    fn begin_landings(&mut self, out: &mut Vec<NodeAction>) {
        while self.n_home_streams < self.config.home_streams_max {
            let Some(landing) = self.landing_queue.pop_first() else { return };
            let (task, attempt) = landing.attempt;
            let a = &self.attempts[&landing.attempt];
            let object = a.assignment.outputs[landing.output as usize];
            let cached = a.outputs[landing.output as usize].cached;
            self.n_home_streams += 1;
            out.push(NodeAction::Land { task, attempt, output: landing.output, object, cached });
        }
    }

    // ------------------------------------------------------------ the cache

    fn unpin_all(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = self.attempts.get_mut(&id).expect("attempt is here");
        if !std::mem::take(&mut attempt.pinned) {
            return;
        }
        self.n_pinned -= 1;
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

    fn evicted(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        self.held.remove(&object);
        out.push(NodeAction::Evict { object });
        out.push(NodeAction::Tell { message: NodeMessage::ReplicaDropped(object) });
    }

    fn drop_if_doomed(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
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

    /// The bytes are wrong: nobody may start with them any more.
    fn drop_corrupt(&mut self, object: ObjectId, out: &mut Vec<NodeAction>) {
        if !self.cache.is_ready(object) {
            return;
        }
        let was_kept = self.cache.is_kept(object);
        self.staying.remove(&object);
        self.cache.forget_corrupt(object);
        self.doomed.remove(&object);
        self.evicted(object, out);
        for a in self.attempts.values_mut() {
            if was_kept && a.state == State::Landing {
                // The only copy of an output: the task has to make it again.
                let outputs = a.outputs.iter_mut().zip(&a.assignment.outputs);
                for (output, _) in outputs.filter(|(o, of)| o.cached && **of == object) {
                    let message = "an output was damaged on this node before it was home".into();
                    output.failure.get_or_insert(Failure { kind: FailureKind::Node, message });
                }
            }
            // Whoever runs with it has failed when it ends.
            let mut inputs = a.inputs.iter().zip(&a.assignment.inputs);
            a.spoiled |=
                a.state == State::Running && inputs.any(|(i, s)| i.plan == Plan::Cache && s.object == object);
        }
        // Whoever is queued with it is tried again.
        let again: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, a)| {
                a.pinned
                    && matches!(a.state, State::Staging | State::Queued)
                    && a.inputs
                        .iter()
                        .zip(&a.assignment.inputs)
                        .any(|(i, s)| i.plan == Plan::Cache && s.object == object)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in again {
            let message = "a cached copy of an input was found damaged and dropped".into();
            self.fail(id, Failure { kind: FailureKind::InputModified, message }, out);
        }
    }

    fn forget_outputs(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let attempt = &self.attempts[&id];
        let cached: Vec<ObjectId> = attempt
            .outputs
            .iter()
            .zip(&attempt.assignment.outputs)
            .filter(|(o, _)| o.cached)
            .map(|(_, object)| *object)
            .collect();
        for object in cached {
            self.staying.remove(&object);
            self.cache.release(object);
            self.doomed.insert(object);
            self.drop_if_doomed(object, out);
        }
    }

    /// What an attempt made that has failed after all does not stay.
    fn forget_staying(&mut self, id: AttemptId, out: &mut Vec<NodeAction>) {
        let assignment = &self.attempts[&id].assignment;
        let objects: Vec<ObjectId> =
            assignment.staying.iter().map(|output| assignment.outputs[*output as usize]).collect();
        for object in objects {
            if self.staying.remove(&object) {
                self.cache.release(object);
                self.doomed.insert(object);
                self.drop_if_doomed(object, out);
            }
        }
    }

    fn tell(&mut self, id: AttemptId, message: NodeMessage, out: &mut Vec<NodeAction>) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.told.push(message.clone());
        }
        out.push(NodeAction::Tell { message });
    }

    /// `by`: the attempt on whose account it is told again after a reconnect.
    fn tell_replica(
        &mut self,
        by: Option<AttemptId>,
        object: ObjectId,
        bytes: &Fetched,
        out: &mut Vec<NodeAction>,
    ) {
        let added = ReplicaAdded {
            object,
            digest: bytes.digest,
            size_bytes: bytes.size_bytes,
            version: bytes.version.clone(),
        };
        let message = NodeMessage::ReplicaAdded(added);
        match by {
            Some(id) => self.tell(id, message, out),
            None => out.push(NodeAction::Tell { message }),
        }
    }

    /// Checks the invariants of the module's header; panics when one is broken. For tests.
    pub fn sanity_check(&self) {
        self.cache.sanity_check();
        let active = self.transfers.values().filter(|t| t.active.is_some()).count();
        assert_eq!(active, self.n_active as usize, "active transfers are counted");
        assert!(self.n_active <= self.config.transfers_max);
        for (peer, n) in &self.n_active_by_peer {
            let real = self.transfers.values().filter(|t| t.active == Some(Source::Peer(*peer))).count();
            assert_eq!(real, *n as usize, "transfers from executor {peer} are counted");
            assert!(*n <= self.config.transfers_per_peer_max);
        }
        let running = self.attempts.values().filter(|a| a.state == State::Running);
        assert_eq!(running.clone().count(), self.n_running as usize);
        assert_eq!(running.map(|a| a.assignment.cpus).sum::<u32>(), self.slots_used);
        for (id, attempt) in &self.attempts {
            assert_eq!(attempt.state == State::Blocked, self.blocked.contains_key(&attempt.seq), "{id:?}");
            assert_eq!(attempt.state == State::Queued, self.queued.contains_key(&attempt.seq), "{id:?}");
            if matches!(attempt.state, State::Staging | State::Queued) {
                for (input, assigned) in attempt.inputs.iter().zip(&attempt.assignment.inputs) {
                    if input.plan == Plan::Cache {
                        assert!(self.cache.n_pins(assigned.object) > 0, "{id:?} pins its inputs");
                    }
                }
            }
        }
        for (target, transfer) in &self.transfers {
            let queued = self.transfer_queue.iter().filter(|t| *t == target).count();
            assert_eq!(queued, usize::from(transfer.active.is_none()), "a transfer is active or queued once");
        }
    }
}

fn failure_of(error: &TransferError) -> Failure {
    let kind = match error.kind {
        TransferErrorKind::Changed => FailureKind::InputChanged,
        TransferErrorKind::NoSpace => FailureKind::Node,
        _ => FailureKind::InputUnavailable,
    };
    Failure { kind, message: error.message.clone() }
}
