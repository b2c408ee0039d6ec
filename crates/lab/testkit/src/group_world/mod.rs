//! A simulated world of several dispatchers: uneven nodes, links that break, dispatchers and nodes that die.
//!
//! In: [`GroupOptions`]. Out: a [`Summary`], or a [`Violation`]. The state machines are the real ones, in the drivers of
//! [`crate::process`] and [`crate::node`]; network, programs, journals and time are models, and all chance comes from
//! the seed.
//!
//! Clients submit runs in parts, and add tasks to them, with the session of live clients. Their connections
//! break and they go away in the middle of it, and another client tries again. Some programs end only when
//! others have added what was promised. Executors look for their dispatcher at every address. While faults
//! come and go, nothing wrong may happen; then the faults stop, and every task has to end.
//!
//! Checked, over all members, by the numbers of the promises:
//!   1. a task that is said to be done has its outputs at home, is done after every restart of its dispatcher, and is not
//!      given out again unless a file that it left on a node was lost; an accepted run is not lost at any member, and neither is what
//!      was added to it; what is said twice with one token is added once;
//!   2. it is done by an attempt whose program was *this* task's, and every output has the bytes of a plain
//!      run;
//!   4. every task of every run, and all that was added to it, ends well, as nothing in this world makes one fail; what is refused is
//!      refused for a cause that is there, and what clashes with the run, is read in vain or waits for itself is refused.
//!
//! Where runs are forgotten, a run that is goes when all its tasks are done, and it goes everywhere: in the end all members know
//! the same runs.
//!
//! At no member two submissions into one run are open at a time; in the end nothing is in doubt anywhere, no file is kept on a node,
//! and each member knows the patterns that one dispatcher finds in the whole run.
//!
//! | module | has |
//! |---|---|
//! | `plans`, `clients` | the submissions, and the clients that make them |
//! | `dispatchers`, `nodes` | the surroundings of the real state machines |
//! | `checks` | the promises |
//!
//! Not here: wrong bytes, full caches, clients that cancel, the replay ([`crate::world`]).

mod checks;
mod clients;
mod dispatchers;
mod nodes;
mod options;
mod plans;

pub use options::GroupOptions;

use crate::build;
use crate::happening::AttemptId;
use crate::home::{digest_of, hash};
use crate::node::{Node, Stored};
use crate::process::{FromNode, Journal, News, Process, ToNode, sentences};
use crate::world::{NAMES_MIN, Summary, Violation};
use checks::{made, version_of};
use clients::{Asks, Client, Next, Parts};
use eyas_core::cache::CacheConfig;
use eyas_core::dispatcher::{CollectiveMode, Dispatcher, DispatcherConfig, TaskState};
use eyas_core::event::*;
use eyas_core::executor::ExecutorConfig;
use eyas_core::group::split::Part;
use eyas_core::group::{Membership, to_try};
use eyas_session::client::Input;
use eyas_session::executor::{Ended, Verdict};
use eyas_terms::array::{GatherHint, Hint, Hints, TaskArray, TaskSpec};
use eyas_terms::rng::Rng;
use eyas_terms::*;
use eyas_wire::message::{FromMember, ReplyBody, ToExecutor, Welcome};
use plans::{Kind, Plan, PlanState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const LEASE_NS: u64 = 15 * S;
/// How long after the last fault every task must have ended.
const LIVENESS_NS: u64 = 2_000 * S;
/// How long after the last end files may still be kept on nodes, and names of forgotten runs in memory.
const SETTLE_NS: u64 = 200 * S;
/// The most events of one world, so that a world that goes in circles ends.
const EVENTS_MAX: u64 = 3_000_000;
const LINES_KEPT: usize = 20_000;
const OUTPUT_BYTES: u64 = 10;

/// Lives through one world. Panics inside the machines become violations.
pub fn simulate(options: &GroupOptions) -> Result<Summary, Box<Violation>> {
    let mut world = World::new(options.clone());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let message = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        let tail = std::mem::take(&mut world.lines).into();
        Box::new(Violation { message: message.unwrap_or_default(), tail })
    })
}

#[derive(Clone, Debug)]
enum Work {
    Ask { object: ObjectId },
    Fetch { target: Target, object: ObjectId, source: Source, known: Option<Known> },
    Program { id: AttemptId },
    Store { id: AttemptId, output: u32, cache_bytes: Option<u64> },
    Land { id: AttemptId, output: u32, object: ObjectId, cached: bool },
}

#[derive(Clone, Debug)]
enum Fault {
    KillMember(usize),
    KillNode(usize),
    CutNode(usize),
    CutLink(usize, usize),
    CutClients(usize),
    /// Somebody wants a run to be forgotten.
    Forget,
}

#[derive(Clone, Debug)]
enum Ev {
    Tick,
    NodeTick {
        n: usize,
        epoch: u64,
    },
    StartNode {
        n: usize,
    },
    StartMember {
        m: usize,
    },
    Connect {
        n: usize,
        epoch: u64,
    },
    /// A node or a dispatcher notices that their connection is gone.
    NodeCut {
        n: usize,
        life: u64,
    },
    Cut {
        m: usize,
        life: u64,
    },
    ToNode {
        n: usize,
        life: u64,
        batch: Vec<ToNode>,
    },
    FromNode {
        m: usize,
        life: u64,
        batch: Vec<FromNode>,
    },
    /// A dispatcher tries to reach another one.
    LinkTry {
        from: usize,
        to: usize,
    },
    MemberLost {
        from: usize,
        to: usize,
        life: u64,
    },
    ToMember {
        from: usize,
        to: usize,
        life: u64,
        message: FromMember,
    },
    Durable {
        m: usize,
        incarnation: u64,
        n: usize,
    },
    Done {
        n: usize,
        epoch: u64,
        work: Work,
    },
    /// A client submits the plan, or asks what became of it.
    Plan {
        plan: usize,
    },
    ClientConnect {
        c: u64,
        m: usize,
    },
    ClientCut {
        life: u64,
    },
    FromClient {
        m: usize,
        life: u64,
        number: u64,
        body: Asks,
    },
    ToClient {
        life: u64,
        number: u64,
        body: ReplyBody,
    },
    ClientNext {
        c: u64,
        next: Next,
    },
    /// A client has split its submission.
    Split {
        c: u64,
        parts: Parts,
    },
    Fault(Fault),
    FaultsOver,
}

struct Member {
    process: Option<Process>,
    config: DispatcherConfig,
    journal: Journal,
    n_scheduled: usize,
    durable_at: u64,
    n_processes: u64,
    /// Tasks that were reported to a client as done, and their runs.
    promised: BTreeMap<TaskId, RunId>,
}

/// An attempt's assignment, as its node has it.
#[derive(Clone, Debug)]
struct Given {
    member: usize,
    /// The user's name for the task, with its run.
    name: String,
    outputs: Vec<(String, Digest)>,
}

/// Where a node looks for its dispatcher.
#[derive(Clone, Copy, Default)]
struct Search {
    known: Option<usize>,
    n_tries: usize,
}

struct World {
    o: GroupOptions,
    rng: Rng,
    now: Timestamp,
    queue: BTreeMap<(u64, u64), Ev>,
    next_seq: u64,
    n_events: u64,
    lines: VecDeque<String>,
    trace_hash: u64,
    members: Vec<Member>,
    nodes: Vec<Node>,
    searches: Vec<Search>,
    next_life: u64,
    /// The node and the dispatcher of each connection.
    lives: BTreeMap<u64, (usize, usize)>,
    /// By sender and receiver: the connection for messages in that direction, while it is up.
    links: BTreeMap<(usize, usize), u64>,
    links_cut_until: BTreeMap<(usize, usize), Timestamp>,
    /// When the last message of each connection and direction arrives.
    arrives: BTreeMap<(u64, bool), u64>,
    plans: Vec<Plan>,
    /// Tasks that end only when all additions to a run are decided, and tasks that promised files, each with
    /// its plan.
    holds: BTreeMap<String, usize>,
    promises: BTreeMap<String, (usize, Vec<String>)>,
    clients: BTreeMap<u64, Client>,
    next_client: u64,
    /// The client and the dispatcher of each connection.
    client_lives: BTreeMap<u64, (u64, usize)>,
    clients_cut_until: BTreeMap<usize, Timestamp>,
    /// Tasks that have ended well, also if they run again.
    ever_done: BTreeSet<String>,
    /// Assignments of the present process of each node.
    given: BTreeMap<(usize, TaskId, AttemptNo), Given>,
    /// The task of each member's attempts, by member and node. A report of an attempt may come when its node
    /// has another process.
    ran: BTreeMap<(usize, usize, TaskId, AttemptNo), String>,
    home: BTreeMap<String, Digest>,
    n_revivals: u64,
    over_since: Option<Timestamp>,
    faults: bool,
}

impl World {
    fn new(o: GroupOptions) -> World {
        let mut rng = Rng::new(o.seed);
        let member = |m| {
            let group = Some(Membership { me: MemberId(m), n_members: o.n_members });
            let config = DispatcherConfig {
                group,
                lease_ns: LEASE_NS,
                collectives: if o.n_blocks == 0 { CollectiveMode::Off } else { CollectiveMode::Auto },
                // In this world no failure is a task's own fault.
                losses_max: 10_000,
                weather_max: 10_000,
                keep_runs: o.keep_runs,
                ..DispatcherConfig::default()
            };
            Member {
                process: None,
                config,
                journal: Journal::default(),
                n_scheduled: 0,
                durable_at: 0,
                n_processes: 0,
                promised: BTreeMap::new(),
            }
        };
        let node = |(n, (slots, memory_bytes)): (usize, (&u32, &u64))| {
            let cache = CacheConfig {
                budget_bytes: 1_000_000,
                eviction: "lru".into(),
                seed: o.seed + n as u64,
                groups: true,
            };
            let executor = ExecutorConfig {
                equipment: Default::default(),
                slots: *slots,
                cache,
                transfers_max: 8,
                transfers_per_peer_max: 2,
                home_streams_max: 1 + rng.below(4) as u32,
                inputs_in_turn: false,
                small_bytes_max: 0,
                small_per_peer_max: 0,
            };
            let node = Node::new(executor, *memory_bytes);
            // Worlds have few files.
            let names_min = if o.keep_runs.is_some() { NAMES_MIN } else { node.names_min };
            Node { number: n, names_min, ..node }
        };
        let nodes: Vec<Node> = o.slots.iter().zip(&o.memory_bytes).enumerate().map(node).collect();
        World {
            members: (0..o.n_members).map(member).collect(),
            searches: vec![Search::default(); nodes.len()],
            nodes,
            rng,
            now: Timestamp(S),
            queue: BTreeMap::new(),
            next_seq: 0,
            n_events: 0,
            lines: VecDeque::new(),
            trace_hash: 0,
            next_life: 1,
            lives: BTreeMap::new(),
            links: BTreeMap::new(),
            links_cut_until: BTreeMap::new(),
            arrives: BTreeMap::new(),
            plans: vec![],
            holds: BTreeMap::new(),
            promises: BTreeMap::new(),
            clients: BTreeMap::new(),
            next_client: 1,
            client_lives: BTreeMap::new(),
            clients_cut_until: BTreeMap::new(),
            ever_done: BTreeSet::new(),
            given: BTreeMap::new(),
            ran: BTreeMap::new(),
            home: BTreeMap::new(),
            n_revivals: 0,
            over_since: None,
            faults: true,
            o,
        }
    }

    // ------------------------------------------------------------ chance and the queue

    fn upto(&mut self, max: u64) -> u64 {
        self.rng.below(max + 1)
    }

    /// A duration of at least 1 µs; most are short, few as long as `max`.
    fn lasts(&mut self, max: u64) -> u64 {
        let part = 1 + self.rng.below(8);
        1_000 + self.upto(max / part)
    }

    fn after(&mut self, ns: u64, ev: Ev) {
        self.queue.insert((self.now.0 + ns, self.next_seq), ev);
        self.next_seq += 1;
    }

    /// When a message of one connection arrives: no message overtakes another one of the same connection.
    fn arrival(&mut self, life: u64, back: bool) -> u64 {
        let takes = self.lasts(self.o.message_ns_max);
        let at = self.arrives.entry((life, back)).or_default();
        *at = (*at).max(self.now.0 + takes);
        *at - self.now.0
    }

    fn trace(&mut self, line: String) {
        self.trace_hash = hash(self.trace_hash, line.as_bytes());
        if self.lines.len() == LINES_KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    fn live(&mut self) -> Summary {
        self.begin();
        let limit = S + self.o.faults_until_ns + LIVENESS_NS;
        while let Some(((t, _), ev)) = self.queue.pop_first() {
            assert!(t <= limit, "promise 4: not everything ended\n{}", self.what_is_left());
            self.now = Timestamp(t);
            self.n_events += 1;
            assert!(self.n_events < EVENTS_MAX, "promise 4: no end of events\n{}", self.what_is_left());
            let mut line = String::new();
            let _ = write!(line, "{:>12.6} {ev:?}", t as f64 / S as f64);
            self.trace(line);
            let is_tick = matches!(ev, Ev::Tick);
            self.on(ev);
            if is_tick && !self.faults && self.is_over() {
                let since = *self.over_since.get_or_insert(self.now);
                let (kept, named) = (self.files_kept(), self.names_left());
                if kept.is_empty() && named.is_empty() {
                    break;
                }
                assert!(
                    self.now.since_ns(since) < SETTLE_NS,
                    "files of runs that have ended are kept: {kept:?}, names of forgotten runs are known: {named:?}"
                );
            }
        }
        self.check_end()
    }

    fn begin(&mut self) {
        for i in 0..9 {
            self.home.insert(format!("in/{i}"), digest_of(&format!("in {i}")));
        }
        self.make_plans();
        for plan in 0..self.plans.len() {
            let at = self.upto(self.o.faults_until_ns / 2);
            self.after(at, Ev::Plan { plan });
        }
        for m in 0..self.members.len() {
            let at = self.upto(S / 2);
            self.after(at, Ev::StartMember { m });
            for to in (0..self.members.len()).filter(|to| *to != m) {
                self.after(S / 10, Ev::LinkTry { from: m, to });
            }
        }
        for n in 0..self.nodes.len() {
            let at = self.upto(2 * S);
            self.after(at, Ev::StartNode { n });
        }
        self.after(S, Ev::Tick);
        let (members, nodes) = (self.members.len() as u64, self.nodes.len() as u64);
        for (kind, count) in self.o.faults().into_iter().enumerate() {
            for _ in 0..count {
                let at = self.upto(self.o.faults_until_ns);
                let m = self.rng.below(members) as usize;
                let n = self.rng.below(nodes) as usize;
                let to = (m + 1 + self.rng.below(members - 1) as usize) % members as usize;
                let fault = match kind {
                    0 => Fault::KillMember(m),
                    1 => Fault::KillNode(n),
                    2 => Fault::CutNode(n),
                    3 => Fault::CutLink(m, to),
                    _ => Fault::CutClients(m),
                };
                self.after(at, Ev::Fault(fault));
            }
        }
        for _ in 0..self.o.n_forgets {
            // Also when all has ended.
            let at = self.upto(2 * self.o.faults_until_ns);
            self.after(at, Ev::Fault(Fault::Forget));
        }
        self.after(self.o.faults_until_ns, Ev::FaultsOver);
    }

    // ------------------------------------------------------------ events

    fn on(&mut self, ev: Ev) {
        match ev {
            Ev::Tick => {
                self.after(S, Ev::Tick);
                for m in 0..self.members.len() {
                    self.with(m, |process, now| process.tick(now));
                }
            }
            Ev::NodeTick { n, epoch } => self.on_node_tick(n, epoch),
            Ev::StartNode { n } => self.on_start_node(n),
            Ev::StartMember { m } => self.on_start_member(m),
            Ev::Connect { n, epoch } => self.on_connect(n, epoch),
            Ev::NodeCut { n, life } => {
                let node = &mut self.nodes[n];
                if node.life == Some(life) {
                    node.disconnect();
                    let (epoch, wait) = (node.epoch, node.cut_until.since_ns(self.now));
                    self.after(wait + S / 4, Ev::Connect { n, epoch });
                }
            }
            Ev::Cut { m, life } => self.with(m, |process, now| process.on_disconnected(now, life)),
            Ev::ToNode { n, life, batch } => self.on_to_node(n, life, batch),
            Ev::FromNode { m, life, batch } => {
                self.with(m, |process, now| process.on_batch(now, life, batch))
            }
            Ev::LinkTry { from, to } => self.on_link_try(from, to),
            Ev::MemberLost { from, to, life } => {
                if self.links.get(&(from, to)) == Some(&life) {
                    self.links.remove(&(from, to));
                    let member = MemberId(to as u32);
                    self.with(from, |process, now| process.on_member_lost(now, member));
                    self.with(to, |process, now| process.on_disconnected(now, life));
                    self.after(S / 5, Ev::LinkTry { from, to });
                }
            }
            Ev::ToMember { from, to, life, message } => {
                if self.links.get(&(from, to)) == Some(&life) {
                    self.with(to, |process, now| process.on_member(now, life, message));
                }
            }
            Ev::Durable { m, incarnation, n } => {
                if self.members[m].process.as_ref().is_some_and(|s| s.incarnation() == incarnation) {
                    self.with(m, |process, now| process.on_durable(now, n));
                }
            }
            Ev::Done { n, epoch, work } => {
                if self.nodes[n].is_up && self.nodes[n].epoch == epoch {
                    self.on_done(n, work);
                    self.flush_node(n);
                }
            }
            Ev::Plan { plan } => self.on_plan(plan),
            Ev::ClientConnect { c, m } => self.on_client_connect(c, m),
            Ev::ClientCut { life } => self.on_client_cut(life),
            Ev::FromClient { m, life, number, body } => self.on_client_said(m, life, number, body),
            Ev::ToClient { life, number, body } => self.on_to_client(life, number, body),
            Ev::ClientNext { c, next } => self.on_client_next(c, next),
            Ev::Split { c, parts } => self.tell_client(c, Input::Split(parts.0)),
            Ev::Fault(fault) => self.on_fault(fault),
            Ev::FaultsOver => self.faults = false,
        }
    }

    // ------------------------------------------------------------ faults

    fn on_fault(&mut self, fault: Fault) {
        match fault {
            Fault::KillMember(m) => self.kill_member(m),
            Fault::KillNode(n) => self.stop_node(n),
            Fault::CutNode(n) => {
                let lasts = self.lasts(self.o.away_ns_max);
                let node = &mut self.nodes[n];
                node.cut_until = self.now.plus_ns(lasts);
                if let Some(life) = node.life {
                    self.after(0, Ev::NodeCut { n, life });
                    let takes = self.lasts(3 * S);
                    let (_, m) = self.lives[&life];
                    self.after(takes, Ev::Cut { m, life });
                }
            }
            Fault::CutClients(m) => self.cut_clients(m),
            Fault::Forget => {
                let pick = self.rng.next_u64();
                let is_known = |plan: &&Plan| plan.into.is_none() && plan.is_accepted();
                let runs: Vec<RunId> = self.plans.iter().filter(is_known).filter_map(Plan::run).collect();
                if let Some(run) = runs.get((pick % runs.len().max(1) as u64) as usize).copied() {
                    self.with(0, |process, now| process.forget(now, run));
                }
            }
            Fault::CutLink(from, to) => {
                let lasts = self.lasts(self.o.away_ns_max);
                self.links_cut_until.insert((from, to), self.now.plus_ns(lasts));
                if let Some(life) = self.links.get(&(from, to)).copied() {
                    self.after(0, Ev::MemberLost { from, to, life });
                }
            }
        }
    }
}
