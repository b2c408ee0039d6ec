//! What an executor's live driver does around its state machine: names of objects, files on disk, the link.
//!
//! Written after `eyas-runtime`'s `executor/agent.rs` and `executor/objects.rs`. How long things take and
//! how they end is the world's to say.

use crate::service::{FromNode, ToNode};
use eyas_core::event::*;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_core::lease::Lease;
use eyas_core::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub type AttemptId = (TaskId, AttemptNo);

const NAMELESS: &str = "digest:";

/// Names of objects, as the live executor keeps them.
#[derive(Default)]
pub struct Book {
    locations: Vec<String>,
    by_location: BTreeMap<String, ObjectId>,
    theirs: BTreeMap<ObjectId, ObjectId>,
    ours: BTreeMap<ObjectId, ObjectId>,
    nameless: BTreeMap<Digest, ObjectId>,
}

impl Book {
    pub fn intern(&mut self, location: &str) -> ObjectId {
        if let Some(object) = self.by_location.get(location) {
            return *object;
        }
        let object = ObjectId(self.locations.len() as u32);
        self.locations.push(location.into());
        self.by_location.insert(location.into(), object);
        object
    }

    /// As [`Self::intern`], but bytes that lie here without a name get this one.
    fn intern_known(&mut self, location: &str, digest: Option<Digest>) -> ObjectId {
        if let Some(digest) = digest
            && !self.by_location.contains_key(location)
            && let Some(object) = self.nameless.remove(&digest)
        {
            self.by_location.remove(&self.locations[object.0 as usize]);
            self.locations[object.0 as usize] = location.into();
            self.by_location.insert(location.into(), object);
            return object;
        }
        self.intern(location)
    }

    pub fn location(&self, object: ObjectId) -> &str {
        &self.locations[object.0 as usize]
    }

    fn find_name(&self, object: ObjectId) -> Option<&str> {
        Some(self.location(object)).filter(|l| !l.starts_with(NAMELESS))
    }

    fn is_run_file(&self, object: ObjectId) -> bool {
        self.location(object).starts_with(RUN_FILE)
    }

    fn pair(&mut self, ours: ObjectId, theirs: ObjectId) {
        self.theirs.insert(ours, theirs);
        self.ours.insert(theirs, ours);
    }
}

/// One file of the cache.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    pub digest: Digest,
    pub size_bytes: u64,
}

/// What the driver knows of an attempt.
#[derive(Clone, Debug)]
pub struct Context {
    pub run: RunId,
    /// Which dispatcher process assigned it.
    pub incarnation: u64,
    pub assignment: Assignment,
    pub outputs: Vec<String>,
    /// What the program was given, by input location; set when it started.
    pub seen: Vec<(String, Digest, bool)>,
    pub runs: bool,
    pub killed: bool,
    /// Its outputs need not come home any more.
    pub halted: bool,
    /// What was free on the disk, and what programs had written, when its program began.
    pub free_bytes: u64,
    pub written_before_bytes: u64,
    /// Its program has found no room.
    pub had_no_room: bool,
}

pub struct Link {
    pub life: u64,
    pub welcomed: bool,
    /// Told between the hello and its answer.
    pub since_hello: Vec<NodeMessage>,
    pub out: Vec<FromNode>,
}

/// Everything that went into the state machine, for the replay.
pub enum Logged {
    Restore(ObjectId, Fetched, Vec<NodeAction>),
    Event(NodeEvent, Vec<NodeAction>),
    Reconnected,
}

/// One node; its executor process comes and goes.
pub struct Node {
    pub config: ExecutorConfig,
    pub memory_bytes: u64,
    /// Counts processes; what an earlier one began is nothing to the present one.
    pub epoch: u64,
    pub is_up: bool,
    pub is_draining: bool,
    pub core: Executor,
    pub book: Book,
    pub store: BTreeMap<ObjectId, Stored>,
    pub private: BTreeMap<(AttemptId, u32), Stored>,
    /// What others have on the disk.
    pub others_bytes: u64,
    /// What programs that run have on the disk.
    pub scratch: BTreeMap<AttemptId, u64>,
    /// All that programs have written.
    pub written_bytes: u64,
    /// Its estimate of the dispatcher's clock is ahead by so much.
    pub clock_ahead_ns: u64,
    pub contexts: BTreeMap<AttemptId, Context>,
    pub link: Option<Link>,
    pub known_as: Option<(u64, ExecutorId)>,
    /// Whose it is, in a group of dispatchers.
    pub member: Option<MemberId>,
    /// Where it goes once its last attempt has ended.
    pub going: Option<MemberId>,
    pub peers: BTreeMap<ExecutorId, usize>,
    pub last_contact: Timestamp,
    /// By how much the clock that its times are of is ahead of true time.
    pub ahead_ns: i64,
    /// Its right to let results appear at home.
    pub lease: Lease,
    /// The link stays broken until then.
    pub cut_until: Timestamp,
    /// The process is stopped, and what happened to it since, in order.
    pub stopped: Option<Vec<crate::world::Ev>>,
    pub log: Vec<(Timestamp, Logged)>,
}

impl Node {
    pub fn new(config: ExecutorConfig, memory_bytes: u64) -> Node {
        Node {
            core: Executor::new(config.clone()).expect("the options name a policy"),
            config,
            memory_bytes,
            epoch: 0,
            is_up: false,
            is_draining: false,
            book: Book::default(),
            store: BTreeMap::new(),
            private: BTreeMap::new(),
            others_bytes: 0,
            scratch: BTreeMap::new(),
            written_bytes: 0,
            clock_ahead_ns: 0,
            contexts: BTreeMap::new(),
            link: None,
            known_as: None,
            member: None,
            going: None,
            peers: BTreeMap::new(),
            last_contact: Timestamp(0),
            ahead_ns: 0,
            lease: Lease::default(),
            cut_until: Timestamp(0),
            stopped: None,
            log: vec![],
        }
    }

    /// A new process takes the place of the old one and scans what lies in its cache.
    pub fn start(&mut self, now: Timestamp, cache_survives: bool) -> Vec<NodeAction> {
        let old_store = std::mem::take(&mut self.store);
        let old_held: BTreeMap<ObjectId, Fetched> = self.core.held().into_iter().collect();
        let old_book = std::mem::take(&mut self.book);
        let fresh = Node::new(self.config.clone(), self.memory_bytes);
        let (epoch, cut_until, others_bytes) = (self.epoch + 1, self.cut_until, self.others_bytes);
        *self = Node { epoch, cut_until, others_bytes, is_up: true, last_contact: now, ..fresh };
        let mut out = vec![];
        if !cache_survives {
            return out;
        }
        let files: BTreeSet<Digest> = old_store.values().map(|s| s.digest).collect();
        for digest in files {
            let of = |o: &&ObjectId| old_store[*o].digest == digest;
            let size_bytes =
                old_store.values().find(|s| s.digest == digest).expect("it has a file").size_bytes;
            let named = old_store.keys().filter(of).find_map(|o| {
                let version = old_held.get(o)?.version.clone()?;
                Some((old_book.find_name(*o)?.to_string(), version))
            });
            let (object, version) = match named {
                Some((location, version)) if !self.book.by_location.contains_key(&location) => {
                    (self.book.intern(&location), Some(version))
                }
                _ => {
                    let object = self.book.intern(&format!("{NAMELESS}{digest}"));
                    self.book.nameless.insert(digest, object);
                    (object, None)
                }
            };
            self.store.insert(object, Stored { digest, size_bytes });
            let bytes = Fetched { digest, size_bytes, version };
            let mut actions = vec![];
            self.core.restore(object, bytes.clone(), &mut actions);
            out.extend(actions.iter().cloned());
            self.log.push((now, Logged::Restore(object, bytes, actions)));
        }
        out
    }

    /// One event into the state machine; what the driver has to do comes back.
    pub fn feed(&mut self, now: Timestamp, event: NodeEvent) -> Vec<NodeAction> {
        let mut actions = vec![];
        self.core.handle(now, event.clone(), &mut actions);
        self.core.sanity_check();
        self.log.push((now, Logged::Event(event, actions.clone())));
        actions
    }

    /// What lies in the cache, and what lies beside it on the same disk.
    pub fn bytes_on_disk(&self) -> (u64, u64) {
        let cached = self.store.values().map(|s| s.size_bytes).sum();
        let private: u64 = self.private.values().map(|s| s.size_bytes).sum();
        (cached, private + self.scratch.values().sum::<u64>() + self.others_bytes)
    }

    pub fn hello(&self) -> FromNode {
        let held = self.core.held().into_iter().map(|(object, bytes)| Held {
            digest: bytes.digest,
            size_bytes: bytes.size_bytes,
            origin: self
                .book
                .find_name(object)
                .map(str::to_string)
                .zip(bytes.version.or_else(|| self.book.is_run_file(object).then(HomeVersion::default))),
        });
        let offer = Offer {
            name: String::new(),
            slots: self.config.slots,
            memory_bytes: self.memory_bytes,
            cache_bytes: self.config.cache.budget_bytes,
            held: held.collect(),
            attempts: self.core.attempts(),
            owner: self.known_as.map(|(incarnation, _)| incarnation),
        };
        FromNode::Hello { offer: Box::new(offer), known_as: self.known_as, member: self.member }
    }

    pub fn on_welcome(
        &mut self,
        now: Timestamp,
        executor: ExecutorId,
        incarnation: u64,
        member: Option<MemberId>,
    ) {
        self.member = member;
        if self.known_as.is_none_or(|(known, _)| known != incarnation) {
            self.going = None;
            self.book.theirs.clear();
            self.book.ours.clear();
        }
        self.known_as = Some((incarnation, executor));
        self.core.reconnected();
        self.log.push((now, Logged::Reconnected));
        let mut again: Vec<NodeMessage> = self.core.unrecorded().collect();
        if let Some(link) = &mut self.link {
            link.welcomed = true;
            // An attempt may have ended since the hello, and what it read was told on the connection before.
            again.append(&mut link.since_hello);
            if self.is_draining {
                link.out.push(FromNode::Drain);
            }
        }
        for message in again {
            self.tell(message);
        }
        let cache_bytes = self.core.cache().budget_bytes();
        if cache_bytes != self.config.cache.budget_bytes {
            self.tell(NodeMessage::CacheResized { cache_bytes });
        }
    }

    /// The event that a message is for the state machine, if it is one.
    pub fn event_of(&mut self, now: Timestamp, message: ToNode) -> Option<NodeEvent> {
        Some(match message {
            ToNode::Assign { mut assignment, spec } => {
                let id = (assignment.task, assignment.attempt);
                if self.contexts.contains_key(&id) {
                    return None;
                }
                for (input, (_, location)) in assignment.inputs.iter_mut().zip(&spec.inputs) {
                    let object = self.book.intern_known(location, input.known.as_ref().map(|k| k.digest));
                    self.book.pair(object, input.object);
                    input.object = object;
                }
                for (output, (_, location)) in assignment.outputs.iter_mut().zip(&spec.outputs) {
                    let object = self.book.intern(location);
                    self.book.pair(object, *output);
                    *output = object;
                }
                let context = Context {
                    run: assignment.run,
                    incarnation: self.known_as.map_or(0, |(incarnation, _)| incarnation),
                    assignment: (*assignment).clone(),
                    outputs: spec.outputs.iter().map(|(_, location)| location.clone()).collect(),
                    seen: vec![],
                    runs: false,
                    killed: false,
                    halted: false,
                    free_bytes: 0,
                    written_before_bytes: 0,
                    had_no_room: false,
                };
                self.contexts.insert(id, context);
                NodeEvent::Assigned { assignment }
            }
            ToNode::Cancel { task, attempt } => NodeEvent::CancelRequested { task, attempt },
            ToNode::Recall { task, attempt } => NodeEvent::RecallRequested { task, attempt },
            ToNode::Prefetch { batch, mut inputs, locations } => {
                for (input, location) in inputs.iter_mut().zip(&locations) {
                    let ours = self.book.intern(location);
                    self.book.pair(ours, input.object);
                    input.object = ours;
                }
                NodeEvent::PrefetchRequested { batch, inputs }
            }
            ToNode::CancelPrefetch { objects } => NodeEvent::PrefetchCancelled {
                objects: objects.iter().filter_map(|o| self.book.ours.get(o).copied()).collect(),
            },
            ToNode::Named { objects } => {
                for (theirs, location, digest) in objects {
                    let ours = self.book.intern_known(&location, digest);
                    self.book.pair(ours, theirs);
                    if !self.core.cache().is_ready(ours) {
                        self.tell(NodeMessage::ReplicaDropped(ours));
                    }
                }
                return None;
            }
            ToNode::Drop { objects } => NodeEvent::DropRequested {
                objects: objects.iter().filter_map(|o| self.book.ours.get(o).copied()).collect(),
            },
            ToNode::Recorded { task, attempt } => NodeEvent::EndRecorded { task, attempt },
            ToNode::Pong => {
                self.lease.was_answered();
                return None;
            }
            // No home here has halves of files.
            ToNode::RemoveParts { tasks } => {
                self.tell(NodeMessage::PartsRemoved { tasks });
                return None;
            }
            ToNode::Peers { peers } => {
                self.peers.extend(peers);
                return None;
            }
            ToNode::Welcome { executor, incarnation, member, now: theirs } => {
                // Below that it is the message's way, not the clocks, that differs.
                let ours_ns = now.0 - self.clock_ahead_ns;
                if theirs.0.abs_diff(ours_ns) >= 1_000_000_000 {
                    self.ahead_ns += theirs.0 as i64 - ours_ns as i64;
                }
                self.on_welcome(now, executor, incarnation, member);
                return None;
            }
            ToNode::Redirected { member } => {
                self.member = Some(member);
                self.link = None;
                return None;
            }
            ToNode::Redirect { member } => {
                self.going = Some(member);
                return None;
            }
            // Whoever drives this node has it look for its own dispatcher.
            ToNode::NotMine => {
                self.link = None;
                return None;
            }
        })
    }

    /// Translates a message into the dispatcher's numbers and puts it on the link, if there is one.
    pub fn tell(&mut self, mut message: NodeMessage) {
        if let Some(link) = self.link.as_mut().filter(|l| !l.welcomed) {
            link.since_hello.push(message);
            return;
        }
        let theirs = &self.book.theirs;
        match &mut message {
            NodeMessage::ReplicaAdded(added) => match theirs.get(&added.object) {
                Some(object) => added.object = *object,
                None => return,
            },
            NodeMessage::ReplicaDropped(object) => match theirs.get(object) {
                Some(theirs) => *object = *theirs,
                None => return,
            },
            NodeMessage::AttemptEnded { report } => {
                Arc::make_mut(report).inputs.retain_mut(|input| match theirs.get(&input.object) {
                    Some(object) => {
                        input.object = *object;
                        true
                    }
                    None => false,
                })
            }
            NodeMessage::PrefetchFailed { object, .. } => match theirs.get(object) {
                Some(theirs) => *object = *theirs,
                None => return,
            },
            NodeMessage::InputMoved(moved) => match theirs.get(&moved.object) {
                Some(object) => {
                    moved.object = *object;
                    if let Target::Cache(ours) = &mut moved.target {
                        *ours = *object;
                    }
                }
                None => return,
            },
            NodeMessage::OutputsHome { .. }
            | NodeMessage::CacheResized { .. }
            | NodeMessage::PartsRemoved { .. } => {}
        }
        if let Some(link) = self.link.as_mut().filter(|l| l.welcomed) {
            link.out.push(FromNode::Node(message));
        }
    }
}

impl Book {
    /// The object left the cache; bytes without a name are then nothing any more.
    pub fn forget_nameless(&mut self, object: ObjectId) {
        self.nameless.retain(|_, o| *o != object);
    }
}
