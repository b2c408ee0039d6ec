//! The work of an executor's live driver around its session, which is the one that ships: files on disk, and what programs saw.
//!
//! Modelled on `eyas-runtime`'s `executor/agent.rs`. The world decides how long things take and how they end.

use crate::happening::{AttemptId, Ev};
use crate::process::{FromNode, ToNode};
use eyas_core::event::*;
use eyas_core::executor::ExecutorConfig;
use eyas_core::home_share::{HomeShare, HomeUse};
use eyas_core::lease::Lease;
use eyas_session::executor::link::About;
use eyas_session::executor::{Book, ExecutorSession, Order, Welcomed};
use eyas_terms::home_wait::HomeWait;
use eyas_terms::*;
use eyas_wire::message::{ExecutorStatus, FromExecutor, ToExecutor, Welcome};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How long a home is waited for, as where nobody says it.
const HOME_WAIT_NS: u64 = 300_000_000_000;

/// Bytes on a disk.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    pub digest: Digest,
    pub size_bytes: u64,
}

/// What the driver knows of an attempt, beside its session.
#[derive(Clone, Debug)]
pub struct Context {
    pub assignment: Assignment,
    /// The user's name for the task.
    pub name: String,
    pub outputs: Vec<String>,
    /// The bytes that the program was given, by input location; set when it started.
    pub seen: Vec<(String, Digest, bool)>,
    pub runs: bool,
    /// The gpus that its program was told of.
    pub gpus: Vec<u32>,
    /// It has not begun, and is taken back from its slot.
    pub withdrawn: bool,
    /// The signal that its node's programs got.
    pub signal: Option<i32>,
    /// What was free on the disk, and what programs had written, when its program began.
    pub free_bytes: u64,
    pub written_before_bytes: u64,
    /// Its program has found no room.
    pub had_no_room: bool,
}

/// Everything that went into the state machine, for the replay.
pub enum Logged {
    Restore(Vec<(ObjectId, Fetched)>, Vec<NodeAction>),
    Event(NodeEvent, Vec<NodeAction>),
    Reconnected,
    /// It went to another dispatcher.
    Moved,
}

/// From which places at home bytes came.
pub type Origins = HashMap<Digest, Vec<(String, HomeVersion)>>;

/// The directory that an executor of another cluster has left.
pub struct Folder {
    pub files: BTreeMap<Digest, u64>,
    pub origins: Origins,
    pub rotten: BTreeSet<Digest>,
}

/// Nodes stand in so many sites, in turn; round trips inside a site and between two, where a dispatcher asks for them.
const N_SITES: usize = 3;
const NEAR_NS: u64 = 100_000;
const FAR_NS: u64 = 20_000_000;

/// One node; its executor process comes and goes.
pub struct WorldNode {
    pub config: ExecutorConfig,
    pub memory_bytes: u64,
    /// Counts processes; work that an earlier process began does not concern the present one.
    pub epoch: u64,
    pub is_up: bool,
    pub is_draining: bool,
    /// Its dispatcher has asked it to end.
    pub is_ended: bool,
    /// The batch system has told its programs to end, and will end this process a moment later.
    pub is_signalled: bool,
    /// The time of its job, and when that ends.
    pub walltime: Option<(u64, Timestamp)>,
    /// Its name on the data plane.
    pub number: usize,
    pub session: ExecutorSession,
    /// The cache's directory: equal bytes are one file, whatever their names. The book says which object has
    /// which bytes.
    pub files: BTreeMap<Digest, u64>,
    /// Files of these whose bytes are others: damaged before this process found them. It reads them through before their
    /// first use.
    pub rotten: BTreeSet<Digest>,
    pub private: BTreeMap<(AttemptId, u32), Stored>,
    /// What it knows of the home that it waits for.
    pub homes: HomeWait,
    /// Bytes that other users have on the disk.
    pub others_bytes: u64,
    /// Bytes that running programs have written.
    pub scratch: BTreeMap<AttemptId, u64>,
    /// Bytes that programs have written so far.
    pub written_bytes: u64,
    /// How far its estimate of the dispatcher's clock is ahead.
    pub clock_ahead_ns: u64,
    pub contexts: BTreeMap<AttemptId, Context>,
    /// The dispatcher that gave out each attempt which this process ever had.
    pub giver_of: BTreeMap<AttemptId, usize>,
    /// The dispatcher that this process was sent to last, and how often it has looked for one without result.
    pub sent_to: Option<usize>,
    pub n_tries: usize,
    /// The connection to a dispatcher, while there is one.
    pub life: Option<u64>,
    /// Its dispatcher is to be asked to drain this node.
    pub asks_to_go: bool,
    /// Its share of home, the bytes that it has moved, and what was reported to its dispatcher about that.
    pub home_share: HomeShare,
    pub home_bytes: u64,
    pub home_use: HomeUse,
    pub peers: BTreeMap<ExecutorId, usize>,
    pub last_contact: Timestamp,
    /// How far the clock of its times is ahead of true time.
    pub ahead_ns: i64,
    /// Its right to let results appear at home.
    pub lease: Lease,
    /// The number of names of objects that are kept in any case.
    pub names_min: usize,
    /// The link stays broken until this time.
    pub cut_until: Timestamp,
    /// If the process is stopped: the events since then, in order.
    pub stopped: Option<Vec<Ev>>,
    pub log: Vec<(Timestamp, Logged)>,
}

/// The place at home that is on the own disk of the node with this number.
pub fn own_disk(number: usize) -> String {
    format!("own/{number}")
}

impl WorldNode {
    pub fn new(config: ExecutorConfig, memory_bytes: u64) -> WorldNode {
        WorldNode {
            session: WorldNode::session_of(&config),
            config,
            memory_bytes,
            epoch: 0,
            is_up: false,
            is_draining: false,
            is_ended: false,
            is_signalled: false,
            walltime: None,
            number: 0,
            files: BTreeMap::new(),
            rotten: BTreeSet::new(),
            private: BTreeMap::new(),
            homes: HomeWait::new(HOME_WAIT_NS),
            others_bytes: 0,
            scratch: BTreeMap::new(),
            written_bytes: 0,
            clock_ahead_ns: 0,
            contexts: BTreeMap::new(),
            giver_of: BTreeMap::new(),
            sent_to: None,
            n_tries: 0,
            life: None,
            asks_to_go: false,
            home_share: HomeShare::UNLIMITED,
            home_bytes: 0,
            home_use: HomeUse::default(),
            peers: BTreeMap::new(),
            last_contact: Timestamp(0),
            ahead_ns: 0,
            lease: Lease::default(),
            names_min: eyas_session::executor::NAMES_MIN,
            cut_until: Timestamp(0),
            stopped: None,
            log: vec![],
        }
    }

    /// A new process replaces the old one and scans the cache's directory, which may be another executor's.
    pub fn start(&mut self, now: Timestamp, cache_survives: bool, other: Option<Folder>) -> Vec<NodeAction> {
        let files = std::mem::take(&mut self.files);
        let old_held: BTreeMap<ObjectId, Fetched> = self.session.core().held().into_iter().collect();
        let old = std::mem::replace(&mut self.session, WorldNode::session_of(&self.config));
        let fresh = WorldNode::new(self.config.clone(), self.memory_bytes);
        let (epoch, cut_until, others_bytes) = (self.epoch + 1, self.cut_until, self.others_bytes);
        let (number, names_min) = (self.number, self.names_min);
        *self = WorldNode {
            names_min,
            epoch,
            cut_until,
            others_bytes,
            number,
            is_up: true,
            last_contact: now,
            ..fresh
        };
        if let Some(Folder { files, origins, rotten }) = other {
            self.rotten = rotten;
            return self.restore(now, files, origins);
        }
        if !cache_survives {
            return vec![];
        }
        let named = |(object, digest): (ObjectId, Digest)| {
            let version = old_held.get(&object)?.version.clone()?;
            Some((digest, (old.book().find_name(object)?.to_string(), version)))
        };
        let mut origins = Origins::new();
        for (digest, origin) in old.book().held().into_iter().filter_map(named) {
            origins.entry(digest).or_default().push(origin);
        }
        self.restore(now, files, origins)
    }

    fn restore(&mut self, now: Timestamp, files: BTreeMap<Digest, u64>, origins: Origins) -> Vec<NodeAction> {
        let held: Vec<(Digest, u64)> = files.iter().map(|(digest, bytes)| (*digest, *bytes)).collect();
        self.files = files;
        let (book, objects) = Book::restore(&held, origins);
        self.session.restore(book, objects.clone());
        let actions = self.take_actions();
        self.log.push((now, Logged::Restore(objects, actions.clone())));
        actions
    }

    /// One event into the state machine; what the driver has to do comes back.
    pub fn feed(&mut self, now: Timestamp, event: NodeEvent) -> Vec<NodeAction> {
        self.session.feed(now, event.clone());
        let actions = self.take_actions();
        self.session.core().sanity_check();
        self.log.push((now, Logged::Event(event, actions.clone())));
        actions
    }

    fn session_of(config: &ExecutorConfig) -> ExecutorSession {
        ExecutorSession::new(config.clone()).expect("the options name a policy")
    }

    fn take_actions(&mut self) -> Vec<NodeAction> {
        std::iter::from_fn(|| self.session.next_action()).collect()
    }

    /// Whether the program of an attempt is to end.
    pub fn is_killed(&self, id: AttemptId) -> bool {
        self.session.attempts().find(id).is_some_and(|attempt| attempt.is_killed)
    }

    /// The cached bytes of an object.
    pub fn stored(&self, object: ObjectId) -> Option<Stored> {
        let digest = self.session.book().digest(object)?;
        let size_bytes = *self.files.get(&digest)?;
        Some(Stored { digest, size_bytes })
    }

    /// The cached bytes with this digest, which a requester gets.
    pub fn serves(&self, digest: Digest) -> Option<Stored> {
        self.files.get(&digest).map(|size_bytes| Stored { digest, size_bytes: *size_bytes })
    }

    /// Bytes for the cache are complete; the state machine does not know yet.
    pub fn place(&mut self, stored: &Stored) {
        self.files.insert(stored.digest, stored.size_bytes);
        // A damaged file with this digest is replaced.
        self.rotten.remove(&stored.digest);
    }

    /// An event about bytes for the cache reaches the driver; the bytes may be gone again.
    pub fn take_word(&mut self, event: NodeEvent) -> NodeEvent {
        self.session.settle(event, |digest| self.files.contains_key(digest))
    }

    /// An object leaves the cache.
    pub fn evict(&mut self, object: ObjectId) {
        if let Some(digest) = self.session.evict(object) {
            self.files.remove(&digest).expect("what the book has is there");
            self.rotten.remove(&digest);
        }
    }

    /// Bytes in the cache, and bytes beside it on the same disk.
    pub fn bytes_on_disk(&self) -> (u64, u64) {
        let cached = self.files.values().sum();
        let private: u64 = self.private.values().map(|s| s.size_bytes).sum();
        (cached, private + self.scratch.values().sum::<u64>() + self.others_bytes)
    }

    fn about(&self, now: Timestamp) -> About {
        let left = |(whole_ns, ends): (u64, Timestamp)| Walltime { whole_ns, left_ns: ends.since_ns(now) };
        About {
            name: format!("node-{}", self.number),
            slots: self.config.slots,
            memory_bytes: self.memory_bytes,
            equipment: self.config.equipment.clone(),
            cache_bytes: self.config.cache.budget_bytes,
            cache_memory_bytes: 0,
            data_address: String::new(),
            data_id: self.number as u32,
            walltime: self.walltime.map(left),
            nearby: Nearby { own: vec![own_disk(self.number)], ..Nearby::default() },
        }
    }

    /// The node has a connection at `now`, by true time; gives its first message.
    pub fn connect(&mut self, now: Timestamp, life: u64) -> FromNode {
        self.life = Some(life);
        let about = self.about(now);
        FromNode::Hello(Box::new(self.session.connect(&about)))
    }

    /// The node's connection is gone; gives the connection that it had.
    pub fn disconnect(&mut self) -> Option<u64> {
        self.session.disconnect();
        self.life.take()
    }

    /// The messages that it has to send now, and on which connection.
    pub fn take_words(&mut self) -> Option<(u64, Vec<FromNode>)> {
        let life = self.life.filter(|_| self.session.link().is_welcomed())?;
        let mut words = to_batch(self.session.take_words());
        if std::mem::take(&mut self.asks_to_go) {
            words.push(FromNode::Drain);
        }
        (!words.is_empty()).then_some((life, words))
    }

    /// It goes to another dispatcher, if it is to and has no work left: the connection that it leaves, and its last messages
    /// there.
    pub fn go(&mut self, now: Timestamp) -> Option<(u64, Vec<FromNode>)> {
        let (member, _, words) = self.session.go()?;
        self.log.push((now, Logged::Moved));
        (self.sent_to, self.n_tries) = (Some(member.0 as usize), 0);
        let life = self.life.take().expect("it was welcomed");
        Some((life, to_batch(words)))
    }

    /// The events for the state machine that a message consists of. If there is no connection after it, the node was turned
    /// away, and looks elsewhere.
    pub fn events_of(&mut self, now: Timestamp, message: ToNode) -> Vec<NodeEvent> {
        match message {
            ToNode::Welcome(welcome) => {
                self.on_first(now, *welcome);
                vec![]
            }
            ToNode::Says(message) => self.on_message(*message),
        }
    }

    /// The first message on a connection.
    fn on_first(&mut self, now: Timestamp, welcome: Welcome) {
        let about = self.about(now);
        match self.session.welcome(welcome, &about) {
            Welcomed::Taken { now: theirs, again, .. } => {
                self.n_tries = 0;
                // A smaller difference is due to the message's travel time, not to the clocks.
                let ours_ns = now.0 - self.clock_ahead_ns;
                if theirs.0.abs_diff(ours_ns) >= 1_000_000_000 {
                    self.ahead_ns += theirs.0 as i64 - ours_ns as i64;
                }
                self.log.push((now, Logged::Reconnected));
                self.asks_to_go = self.is_draining;
                self.home_share.number = 0;
                self.home_use.forget_report();
                for message in again {
                    self.tell(message);
                }
            }
            Welcomed::Elsewhere(_) => (self.life, self.n_tries) = (None, self.n_tries + 1),
            Welcomed::Redirected(member, _) => {
                (self.life, self.sent_to, self.n_tries) = (None, Some(member.0 as usize), 0);
            }
            Welcomed::Refused(reason) => panic!("a node is refused: {reason}"),
        }
    }

    fn on_message(&mut self, message: ToExecutor) -> Vec<NodeEvent> {
        match self.session.hear(message) {
            Order::Feed(events) => return events,
            Order::Begin { assignment, spec, .. } => {
                let id = (assignment.task, assignment.attempt);
                let giver = self.session.link().member().map_or(0, |member| member.0 as usize);
                self.giver_of.insert(id, giver);
                let context = Context {
                    assignment: (*assignment).clone(),
                    name: spec.id.clone(),
                    outputs: spec.outputs.iter().map(|(_, location)| location.clone()).collect(),
                    seen: vec![],
                    runs: false,
                    gpus: vec![],
                    withdrawn: false,
                    signal: None,
                    free_bytes: 0,
                    written_before_bytes: 0,
                    had_no_room: false,
                };
                self.contexts.insert(id, context);
                return vec![NodeEvent::Assigned { assignment }];
            }
            Order::Prefetch { event, .. } => return vec![event],
            // Programs of worlds are not watched.
            Order::Admit { .. } => {}
            Order::ShareHome { share, event } => {
                self.home_share = share;
                return vec![event];
            }
            Order::RenewLease { .. } => self.lease.was_answered(),
            // No home of this world has unfinished files.
            Order::RemoveParts(attempts) => {
                let tasks = attempts.into_iter().map(|(task, ..)| task).collect();
                self.tell(NodeMessage::PartsRemoved { tasks });
            }
            Order::LearnQueries(_) => {}
            Order::ProbePeers(peers) => {
                let site = |number: usize| number % N_SITES;
                let round_trip_ns = |peer: &ExecutorId| match self.peers.get(peer) {
                    Some(number) if site(*number) != site(self.number) => FAR_NS,
                    _ => NEAR_NS,
                };
                let round_trips = peers.into_iter().map(|peer| (peer, round_trip_ns(&peer))).collect();
                self.tell(NodeMessage::PeersProbed { round_trips });
            }
            Order::FindPlaces(objects) => {
                let asked = objects.into_iter().map(|(object, _)| object).collect();
                self.tell(NodeMessage::PlacesFound { asked, placed: vec![] });
            }
            Order::MeetPeers(peers) => {
                self.peers.extend(peers.into_iter().map(|(executor, _, node)| (executor, node as usize)));
            }
            // The code that drives this node calls `go` after each batch.
            Order::Move => {}
            // The output of programs is never asked for.
            // Programs of worlds print nothing.
            Order::Look { .. } | Order::SendPrinted { .. } => {}
            Order::End { .. } => self.is_ended = true,
        }
        vec![]
    }

    /// Sends its status, as it does every second.
    pub fn beat(&mut self) {
        self.session.say(FromExecutor::Status(Box::<ExecutorStatus>::default()));
        self.session.forget_names(self.names_min);
    }

    /// Reports how the node uses home, if home is limited and there is news.
    pub fn report_home(&mut self, now: Timestamp) {
        // Before the dispatcher's first share, a report would answer another dispatcher's share.
        if self.home_share.number > 0 && self.session.link().is_welcomed() {
            let n_streams = self.session.core().n_home_streams();
            let report = self.home_use.report(now, n_streams, self.home_bytes, self.home_share);
            report.into_iter().for_each(|report| {
                self.session.say(FromExecutor::Home(report));
            });
        }
    }

    /// The node leaves of its own accord.
    pub fn say_bye(&mut self) {
        self.session.say(FromExecutor::Bye { reason: "it leaves".into() });
    }

    /// Sends a message of the node's state machine.
    pub fn tell(&mut self, message: NodeMessage) {
        self.session.tell(message);
    }
}

fn to_batch(words: Vec<FromExecutor>) -> Vec<FromNode> {
    words.into_iter().map(|word| FromNode::Says(Box::new(word))).collect()
}
