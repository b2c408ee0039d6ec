//! A simulated world of several dispatchers: uneven nodes, links that break, dispatchers and nodes that die.
//!
//! In: [`GroupOptions`]. Out: a [`Summary`], or a [`Violation`]. The state machines are the real ones, in the drivers of
//! [`crate::process`] and [`crate::node`]; network, programs, journals and time are models, and all chance comes from
//! the seed.
//!
//! A client submits each run in parts to all members, and again where one of them dies before the first has decided. Executors
//! look for their dispatcher at every address there is. While faults come and go nothing wrong may happen; then they
//! stop, and every task has to end.
//!
//! Checked, over all members, by the numbers of the promises:
//!   1. a task that is said to be done has its outputs at home, is done after every restart of its dispatcher, and is not
//!      given out again unless a file that it left on a node was lost; an accepted run is not lost at any member;
//!   2. it is done by an attempt whose program was *this* task's, and every output has the bytes of a plain run;
//!   4. every task of every run ends well, as nothing in this world makes one fail.
//!
//! In the end no file is kept on a node, and each member knows the patterns that one dispatcher finds in the whole run.
//!
//! Not here: wrong bytes, full caches, clients that cancel and add, the replay ([`crate::world`]; `tests/group.rs` has
//! tasks that are added to runs in parts).

use crate::build;
use crate::home::{digest_of, hash};
use crate::node::{AttemptId, Node, Stored};
use crate::process::{FromNode, Journal, News, Process, ToNode, sentences};
use crate::world::{Summary, Violation};
use eyas_core::array::{GatherHint, Hint, Hints, TaskArray, TaskSpec};
use eyas_core::cache::CacheConfig;
use eyas_core::dispatcher::{CollectiveMode, Dispatcher, DispatcherConfig, TaskState};
use eyas_core::event::*;
use eyas_core::executor::ExecutorConfig;
use eyas_core::group::split::{Part, split};
use eyas_core::group::{Membership, to_try};
use eyas_core::rng::Rng;
use eyas_core::*;
use eyas_wire::message::{FromMember, ToExecutor, Welcome};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const LEASE_NS: u64 = 15 * S;
/// How long after the last fault everything has to have ended.
const LIVENESS_NS: u64 = 2_000 * S;
/// How long after the last end files may still be kept on nodes.
const SETTLE_NS: u64 = 200 * S;
/// Events of one world, at most: a world that goes round in circles ends.
const EVENTS_MAX: u64 = 3_000_000;
const LINES_KEPT: usize = 20_000;
const OUTPUT_BYTES: u64 = 10;

/// Printed before a world begins; with the seed inside it says all.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupOptions {
    pub seed: u64,
    pub n_members: u32,
    /// Slots of each node.
    pub slots: Vec<u32>,
    /// Memory of each node.
    pub memory_bytes: Vec<u64>,
    /// Of the tasks, how many of a thousand ask for slots and memory that only some nodes have.
    pub task_is_large: u64,
    pub n_runs: u64,
    /// Tasks of each run, at most.
    pub n_tasks_max: u64,
    /// Of the outputs, how many of a thousand go home.
    pub output_lands: u64,
    pub program_ns_max: u64,
    pub transfer_ns_max: u64,
    pub message_ns_max: u64,
    pub durable_ns_max: u64,
    /// How often each of these happens before the faults are over.
    pub n_member_kills: u64,
    pub n_node_kills: u64,
    /// Of connections between nodes and dispatchers, and among dispatchers.
    pub n_node_cuts: u64,
    pub n_link_cuts: u64,
    /// How long a dispatcher stays away, or a connection broken, at most; beyond the lease nodes are lost.
    pub away_ns_max: u64,
    pub faults_until_ns: u64,
    /// Of each run: blocks of tasks that scatter, read one file together and gather. Where there are any, collectives are on.
    pub n_blocks: u64,
}

impl GroupOptions {
    /// No faults, and something to do.
    pub fn calm(seed: u64) -> GroupOptions {
        GroupOptions {
            n_member_kills: 0,
            n_node_kills: 0,
            n_node_cuts: 0,
            n_link_cuts: 0,
            ..GroupOptions::from_seed(seed)
        }
    }

    /// A world drawn from its seed.
    pub fn from_seed(seed: u64) -> GroupOptions {
        let mut rng = Rng::new(seed ^ 0x6772_6f75_7073_2121);
        let r = &mut rng;
        fn one_of<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
            of[rng.below(of.len() as u64) as usize]
        }
        /// Most faults are absent in most worlds.
        fn perhaps(rng: &mut Rng, of_1000: u64, max: u64) -> u64 {
            if rng.below(1000) < of_1000 { 1 + rng.below(max) } else { 0 }
        }
        let n_members = one_of(r, &[2, 2, 2, 3, 4]);
        let n_nodes = u64::from(n_members) + r.below(4);
        GroupOptions {
            seed,
            n_members,
            slots: (0..n_nodes).map(|_| one_of(r, &[1, 1, 2, 6])).collect(),
            memory_bytes: vec![1000; n_nodes as usize],
            task_is_large: 0,
            n_runs: 1 + r.below(2),
            n_tasks_max: one_of(r, &[10, 40, 100]),
            output_lands: one_of(r, &[200, 600, 1000]),
            program_ns_max: one_of(r, &[20 * MS, 500 * MS, 3 * S]),
            transfer_ns_max: one_of(r, &[MS, 100 * MS, S]),
            message_ns_max: one_of(r, &[MS, 20 * MS, 300 * MS]),
            durable_ns_max: one_of(r, &[0, 10 * MS, 500 * MS]),
            n_member_kills: perhaps(r, 800, 6),
            n_node_kills: perhaps(r, 300, 5),
            n_node_cuts: perhaps(r, 500, 10),
            n_link_cuts: perhaps(r, 500, 10),
            away_ns_max: one_of(r, &[S, 4 * S, 25 * S]),
            faults_until_ns: one_of(r, &[5 * S, 30 * S]),
            n_blocks: one_of(&mut Rng::new(seed ^ 0x626c_6f63_6b73), &[0, 1, 2]),
        }
    }

    /// How many faults of each kind there are.
    fn faults(&self) -> [u64; 4] {
        [self.n_member_kills, self.n_node_kills, self.n_node_cuts, self.n_link_cuts]
    }

    /// What can be added to a world.
    pub const KINDS: [&str; 1] = ["uneven"];

    /// The same world with one of [`GroupOptions::KINDS`] added. `None`: there is no such kind.
    ///
    /// `uneven`: nodes and tasks differ much in slots and memory, and there may be fewer nodes than dispatchers. So most
    /// dispatchers have tasks that none of their own nodes is large enough for.
    pub fn with(self, kind: &str) -> Option<GroupOptions> {
        let mut rng = Rng::new(self.seed ^ 0x756e_6576_656e_2067);
        let r = &mut rng;
        if kind != "uneven" {
            return None;
        }
        let n_nodes = 1 + r.below(u64::from(self.n_members) + 3);
        let mut one_of = |of: &[u64]| of[r.below(of.len() as u64) as usize];
        let slots = (0..n_nodes).map(|_| one_of(&[1, 1, 2, 8]) as u32).collect();
        let memory_bytes = (0..n_nodes).map(|_| one_of(&[1000, 1000, 2000, 8000])).collect();
        // A node that nobody has seen for longer than tasks wait for a larger one is rightly taken not to be there.
        let away_ns_max = self.away_ns_max.min(4 * S);
        Some(GroupOptions {
            slots,
            memory_bytes,
            task_is_large: one_of(&[50, 200, 600]),
            away_ns_max,
            ..self
        })
    }
}

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
    Store { id: AttemptId, output: u32, object: ObjectId, cache_bytes: Option<u64> },
    Land { id: AttemptId, output: u32, object: ObjectId, cached: bool },
}

#[derive(Clone, Debug)]
enum Fault {
    KillMember(usize),
    KillNode(usize),
    CutNode(usize),
    CutLink(usize, usize),
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
    /// A node, or a dispatcher, notices that their connection is gone.
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
    LinkDown {
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
    Client {
        plan: usize,
    },
    Fault(Fault),
    FaultsOver,
}

/// How far a submission in parts is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlanState {
    Waits,
    /// The first `n` members have their parts.
    Opened(RunId, usize),
    Committing(RunId),
    Accepted(RunId),
}

struct Plan {
    arrays: Vec<TaskArray>,
    parts: Vec<Part>,
    state: PlanState,
}

struct Member {
    process: Option<Process>,
    config: DispatcherConfig,
    journal: Journal,
    n_scheduled: usize,
    durable_at: u64,
    n_processes: u64,
    /// Tasks that somebody was told are done.
    promised: BTreeSet<TaskId>,
}

/// What an attempt was given, by the node that has it.
#[derive(Clone, Debug)]
struct Given {
    member: usize,
    /// As the user named the task, with its run.
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
    /// By sender and receiver: the connection on which the one tells the other, while it is up.
    links: BTreeMap<(usize, usize), u64>,
    links_cut_until: BTreeMap<(usize, usize), Timestamp>,
    /// When the last message of each connection and direction arrives.
    arrives: BTreeMap<(u64, bool), u64>,
    /// The node that an executor is, as whoever sends to it was told.
    peers: BTreeMap<ExecutorId, usize>,
    plans: Vec<Plan>,
    /// By the present process of each node.
    given: BTreeMap<(usize, TaskId, AttemptNo), Given>,
    /// What each member's attempts ran, by member and node. A word of it may come when its node is another process.
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
                // Nothing in this world is a task's own fault.
                losses_max: 10_000,
                weather_max: 10_000,
                ..DispatcherConfig::default()
            };
            Member {
                process: None,
                config,
                journal: Journal::default(),
                n_scheduled: 0,
                durable_at: 0,
                n_processes: 0,
                promised: BTreeSet::new(),
            }
        };
        let node = |(n, (slots, memory_bytes)): (usize, (&u32, &u64))| {
            let cache =
                CacheConfig { budget_bytes: 1_000_000, eviction: "lru".into(), seed: o.seed + n as u64 };
            let executor = ExecutorConfig {
                slots: *slots,
                cache,
                transfers_max: 8,
                transfers_per_peer_max: 2,
                home_streams_max: 1 + rng.below(4) as u32,
                inputs_in_turn: false,
            };
            Node { number: n, ..Node::new(executor, *memory_bytes) }
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
            peers: BTreeMap::new(),
            plans: vec![],
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

    /// How long a message of one connection takes: none overtakes another of the same connection.
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
                let kept = self.files_kept();
                if kept.is_empty() {
                    break;
                }
                assert!(
                    self.now.since_ns(since) < SETTLE_NS,
                    "files of runs that have ended are kept: {kept:?}"
                );
            }
        }
        self.check_end()
    }

    fn begin(&mut self) {
        for i in 0..9 {
            self.home.insert(format!("in/{i}"), digest_of(&format!("in {i}")));
        }
        for plan in 0..self.o.n_runs as usize {
            let arrays = self.make_run(plan);
            let parts = split(&arrays, self.o.n_members).expect("the workflow is sound");
            self.plans.push(Plan { arrays, parts, state: PlanState::Waits });
            let at = self.upto(self.o.faults_until_ns / 2);
            self.after(at, Ev::Client { plan });
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
                    _ => Fault::CutLink(m, to),
                };
                self.after(at, Ev::Fault(fault));
            }
        }
        self.after(self.o.faults_until_ns, Ev::FaultsOver);
    }

    /// Tasks that read files of home and of tasks before them, at whatever member those are.
    fn make_run(&mut self, plan: usize) -> Vec<TaskArray> {
        let mut made: Vec<String> = vec![];
        let mut arrays = vec![];
        for i in 0..1 + self.rng.below(self.o.n_tasks_max) {
            let mut task = build::task(&format!("p{plan}t{i}"));
            if self.o.task_is_large > 0 && self.rng.below(1000) < self.o.task_is_large {
                // Some node is large enough, wherever it is.
                let n = self.rng.below(self.o.slots.len() as u64) as usize;
                let cpus = 1 + self.rng.below(u64::from(self.o.slots[n])) as u32;
                task = task.cpus(cpus).memory(self.rng.below(self.o.memory_bytes[n] + 1));
            }
            for _ in 0..self.rng.below(4) {
                let location = match made.len() as u64 {
                    n if n > 0 && self.rng.below(4) > 0 => made[self.rng.below(n) as usize].clone(),
                    _ => format!("in/{}", self.rng.below(9)),
                };
                if !task.inputs.contains(&location) {
                    task = task.reads(&location);
                }
            }
            for output in 0..self.rng.below(3) {
                let location = match self.rng.below(1000) < self.o.output_lands {
                    true => format!("out/p{plan}t{i}o{output}"),
                    false => format!("{RUN_FILE}t{i}o{output}"),
                };
                task = task.writes(&location);
                made.push(location);
            }
            arrays.push((*task.array()).clone());
        }
        let mut rng = Rng::new(self.o.seed ^ (plan as u64) << 32 ^ 0x7061_7274);
        for block in 0..self.o.n_blocks {
            arrays.extend(make_block(&mut rng, &format!("p{plan}b{block}")));
        }
        arrays
    }

    /// Promise of the design, beside those of the worlds: whatever is done at which dispatcher, each knows the patterns that one
    /// dispatcher finds in the whole run.
    fn check_patterns(&self) {
        for plan in &self.plans {
            let PlanState::Accepted(run) = plan.state else { continue };
            let expected = patterns_of_one(&plan.arrays);
            for (m, member) in self.members.iter().enumerate() {
                let Some(process) = &member.process else { continue };
                assert_eq!(process.found_in(run), expected, "the patterns of run {run} at member {m}");
            }
        }
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
            Ev::LinkDown { from, to, life } => {
                if self.links.get(&(from, to)) == Some(&life) {
                    self.links.remove(&(from, to));
                    let member = MemberId(to as u32);
                    self.with(from, |process, now| process.on_link_down(now, member));
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
            Ev::Client { plan } => self.on_client(plan),
            Ev::Fault(fault) => self.on_fault(fault),
            Ev::FaultsOver => self.faults = false,
        }
    }

    /// One step of a client that submits a run, or the next try at it.
    fn on_client(&mut self, plan: usize) {
        let takes = self.lasts(self.o.message_ns_max);
        let all_up = self.members.iter().all(|m| m.process.is_some());
        match self.plans[plan].state {
            // The first member gives the number.
            PlanState::Waits if all_up => self.take_part(plan, None, 0),
            PlanState::Waits => self.after(S, Ev::Client { plan }),
            PlanState::Opened(run, n) if n < self.members.len() => self.take_part(plan, Some(run), n),
            PlanState::Opened(run, _) => {
                let is_prepared =
                    |m: &Member| m.process.as_ref().is_some_and(|s| s.in_doubt().contains(&run));
                if !self.members[1..].iter().all(is_prepared) {
                    // They are on their way to the disk; who dies before is noticed in `kill_member`.
                    return self.after(takes + MS, Ev::Client { plan });
                }
                self.plans[plan].state = PlanState::Committing(run);
                let mut done = Ok(());
                self.with(0, |process, now| done = process.commit(now, run));
                done.expect("promise 4: a submission is refused that clashes with nothing");
            }
            PlanState::Committing(_) | PlanState::Accepted(_) => {}
        }
    }

    /// Member `m` gets its part of the run, which has this number if the first member has given it one.
    fn take_part(&mut self, plan: usize, run: Option<RunId>, m: usize) {
        let part = self.plans[plan].parts[m].clone();
        let mut taken = Err(String::new());
        self.with(m, |process, now| taken = process.take_part(now, run, &part));
        match (taken, run) {
            (Ok(run), _) => {
                self.plans[plan].state = PlanState::Opened(run, m + 1);
                let takes = self.lasts(self.o.message_ns_max);
                self.after(takes, Ev::Client { plan });
            }
            // Its own earlier try is in doubt there; when that is decided it is tried again.
            (Err(_), Some(run)) => self.give_up(plan, run),
            (Err(_), None) => self.after(S, Ev::Client { plan }),
        }
    }

    /// A client whose submission broke off leaves all members, and tries again later.
    fn give_up(&mut self, plan: usize, run: RunId) {
        for m in 0..self.members.len() {
            self.with(m, |process, now| process.client_gone(now, run));
        }
        self.plans[plan].state = PlanState::Waits;
        self.after(S, Ev::Client { plan });
    }

    // ------------------------------------------------------------ dispatchers

    fn with(&mut self, m: usize, act: impl FnOnce(&mut Process, Timestamp)) {
        let Some(mut process) = self.members[m].process.take() else { return };
        act(&mut process, self.now);
        let News { ended, revived, accepted, durable, to_nodes, to_members, closed } =
            process.settle(self.now);
        for (task, outcome, by) in ended {
            self.trace(format!("             {m}: ended {task:?} {outcome:?}"));
            self.check_ended(m, &process, task, &outcome, by);
        }
        for (task, lost) in revived {
            self.trace(format!("             {m}: revived {task:?} for {lost:?}"));
            self.members[m].promised.remove(&task);
            self.n_revivals += 1;
        }
        for run in accepted {
            self.plans.iter_mut().filter(|p| p.state == PlanState::Committing(run)).for_each(|plan| {
                plan.state = PlanState::Accepted(run);
            });
        }
        for task in durable {
            self.check_durable(m, &process, task);
        }
        let (incarnation, n_records) = (process.incarnation(), process.journal().records.len());
        self.members[m].process = Some(process);
        for (life, n, batch) in to_nodes {
            for message in &batch {
                self.check_message(m, n, message);
            }
            let at = self.arrival(life, true);
            self.after(at, Ev::ToNode { n, life, batch });
        }
        for (member, message) in to_members {
            let (from, to) = (m, member.0 as usize);
            if let Some(life) = self.links.get(&(from, to)).copied() {
                let at = self.arrival(life, false);
                self.after(at, Ev::ToMember { from, to, life, message });
            }
        }
        for (life, n) in closed {
            let at = self.arrival(life, true);
            self.after(at, Ev::NodeCut { n, life });
        }
        if n_records > self.members[m].n_scheduled {
            let takes = self.lasts(self.o.durable_ns_max);
            let member = &mut self.members[m];
            let n = n_records;
            member.n_scheduled = n;
            member.durable_at = member.durable_at.max(self.now.0 + takes);
            let at = member.durable_at - self.now.0;
            self.after(at, Ev::Durable { m, incarnation, n });
        }
    }

    fn on_start_member(&mut self, m: usize) {
        let member = &mut self.members[m];
        if member.process.is_some() {
            return;
        }
        member.n_processes += 1;
        // Names of processes differ over all members, as times do.
        let incarnation = member.n_processes * u64::from(self.o.n_members) + m as u64;
        let process = Process::start(&member.config, incarnation, self.now, &mut member.journal);
        for task in &member.promised {
            let state = process.core().task_state(*task);
            assert_eq!(
                state,
                TaskState::Done,
                "promise 1: {task:?} of member {m} was done before the restart"
            );
        }
        for plan in &mut self.plans {
            let (PlanState::Accepted(run) | PlanState::Committing(run)) = plan.state else { continue };
            let is_there = process.core().find_run(run).is_some();
            let accepted = matches!(plan.state, PlanState::Accepted(_));
            assert!(is_there || !accepted, "promise 1: member {m} has lost {run:?}");
            if m == 0 {
                // Its client asks what became of it.
                let is_accepted = process.core().is_accepted(run);
                assert!(is_accepted || !accepted, "promise 1: the first member has lost {run:?}");
                plan.state = if is_accepted { PlanState::Accepted(run) } else { PlanState::Waits };
            }
        }
        self.members[m].process = Some(process);
        self.with(m, |_, _| ());
        for plan in 0..self.plans.len() {
            if m == 0 && self.plans[plan].state == PlanState::Waits {
                self.after(S, Ev::Client { plan });
            }
        }
    }

    fn kill_member(&mut self, m: usize) {
        let Some(process) = self.members[m].process.take() else { return };
        let connections: Vec<(u64, usize)> = process.connections().collect();
        self.members[m].journal = process.into_journal();
        let member = &self.members[m];
        let n_durable = member.journal.n_durable;
        let n_more = (member.journal.records.len() - n_durable) as u64;
        let kept = n_durable + self.upto(n_more) as usize;
        let member = &mut self.members[m];
        member.journal.records.truncate(kept);
        member.journal.n_durable = kept;
        member.n_scheduled = kept;
        for (life, n) in connections {
            let takes = self.upto(self.o.message_ns_max);
            self.after(takes, Ev::NodeCut { n, life });
        }
        for other in (0..self.members.len()).filter(|other| *other != m) {
            if let Some(life) = self.links.remove(&(m, other)) {
                self.after(S / 5, Ev::LinkTry { from: m, to: other });
                let takes = self.upto(self.o.message_ns_max);
                self.after(takes, Ev::Cut { m: other, life });
            }
            if let Some(life) = self.links.get(&(other, m)).copied() {
                let takes = self.upto(self.o.message_ns_max);
                self.after(takes, Ev::LinkDown { from: other, to: m, life });
            }
        }
        for plan in 0..self.plans.len() {
            if let PlanState::Opened(run, _) = self.plans[plan].state {
                self.give_up(plan, run);
            }
        }
        let away = self.lasts(self.o.away_ns_max);
        self.after(away, Ev::StartMember { m });
    }

    fn on_link_try(&mut self, from: usize, to: usize) {
        if self.links.contains_key(&(from, to)) {
            return;
        }
        let is_cut = self.links_cut_until.get(&(from, to)).is_some_and(|until| *until > self.now);
        if is_cut || self.members[from].process.is_none() || self.members[to].process.is_none() {
            return self.after(S / 5, Ev::LinkTry { from, to });
        }
        let life = self.next_life;
        self.links.insert((from, to), life);
        self.next_life += 1;
        let (theirs, ours, n) = (MemberId(to as u32), MemberId(from as u32), self.members.len() as u32);
        self.with(to, |process, now| process.on_member_connected(now, life, ours, n));
        self.with(from, |process, now| process.on_link_up(now, theirs));
    }

    // ------------------------------------------------------------ nodes

    fn on_start_node(&mut self, n: usize) {
        if self.nodes[n].is_up {
            return;
        }
        let actions = self.nodes[n].start(self.now, false);
        self.searches[n] = Search::default();
        self.given.retain(|(of, _, _), _| *of != n);
        let epoch = self.nodes[n].epoch;
        self.act(n, actions);
        self.after(MS, Ev::Connect { n, epoch });
        self.after(S, Ev::NodeTick { n, epoch });
    }

    fn stop_node(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if !node.is_up {
            return;
        }
        node.is_up = false;
        if let Some(life) = node.disconnect() {
            let takes = self.lasts(3 * S).max(self.o.message_ns_max);
            let (_, m) = self.lives[&life];
            self.after(takes, Ev::Cut { m, life });
        }
        let away = self.lasts(10 * S);
        self.after(away, Ev::StartNode { n });
    }

    fn on_connect(&mut self, n: usize, epoch: u64) {
        let node = &self.nodes[n];
        if !node.is_up || node.epoch != epoch || node.life.is_some() {
            return;
        }
        if node.cut_until > self.now {
            let wait = node.cut_until.since_ns(self.now).max(S / 4);
            return self.after(wait, Ev::Connect { n, epoch });
        }
        let all: Vec<usize> = (0..self.members.len()).collect();
        let Search { known, n_tries } = self.searches[n];
        let theirs = node.link.member().map(|m| m.0 as usize);
        let m = *to_try(known.as_ref(), theirs.as_ref(), &all[0], all.iter(), n_tries);
        if self.members[m].process.is_none() {
            self.searches[n].n_tries += 1;
            return self.after(S / 4, Ev::Connect { n, epoch });
        }
        let life = self.next_life;
        self.next_life += 1;
        self.lives.insert(life, (n, m));
        self.members[m].process.as_mut().expect("just seen").on_connected(life, n);
        let hello = self.nodes[n].connect(life);
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { m, life, batch: vec![hello] });
    }

    fn on_to_node(&mut self, n: usize, life: u64, batch: Vec<ToNode>) {
        let (_, m) = self.lives[&life];
        for message in batch {
            if self.nodes[n].life != Some(life) {
                return;
            }
            match &message {
                ToNode::Welcome(welcome) => match &**welcome {
                    Welcome::Executor { executor, .. } => {
                        self.searches[n].n_tries = 0;
                        self.peers.insert(*executor, n);
                    }
                    turned_away => {
                        // It leaves, and looks where it was sent, or further.
                        let search = &mut self.searches[n];
                        (search.known, search.n_tries) = match turned_away {
                            Welcome::Redirected { member, .. } => (Some(member.0 as usize), 0),
                            _ => (search.known, search.n_tries + 1),
                        };
                        self.nodes[n].events_of(self.now, message);
                        let epoch = self.nodes[n].epoch;
                        self.after(MS, Ev::Cut { m, life });
                        return self.after(S / 4, Ev::Connect { n, epoch });
                    }
                },
                ToNode::Says(said) => {
                    if let ToExecutor::Assign(assign) = &**said {
                        let id = (assign.assignment.task, assign.assignment.attempt);
                        if !self.nodes[n].contexts.contains_key(&id) {
                            let name = self.name_of(&assign.spec);
                            self.given.insert((n, id.0, id.1), Given { member: m, name, outputs: vec![] });
                        }
                    }
                }
            }
            self.nodes[n].last_contact = self.now;
            for event in self.nodes[n].events_of(self.now, message) {
                self.feed(n, event);
            }
        }
        self.go_elsewhere(n);
        self.flush_node(n);
        if self.nodes[n].is_ended {
            self.stop_node(n);
        }
    }

    /// A node that is to go to another dispatcher says goodbye when nothing is left.
    fn go_elsewhere(&mut self, n: usize) {
        let Some((member, life, words)) = self.nodes[n].go() else { return };
        let epoch = self.nodes[n].epoch;
        self.searches[n] = Search { known: Some(member.0 as usize), n_tries: 0 };
        let (_, m) = self.lives[&life];
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { m, life, batch: words });
        let at = self.arrival(life, false);
        self.after(at, Ev::Cut { m, life });
        self.after(MS, Ev::Connect { n, epoch });
    }

    fn on_node_tick(&mut self, n: usize, epoch: u64) {
        let node = &self.nodes[n];
        if !node.is_up || node.epoch != epoch {
            return;
        }
        if node.life.is_none() && self.now.since_ns(node.last_contact) > LEASE_NS {
            return self.stop_node(n);
        }
        self.after(S, Ev::NodeTick { n, epoch });
        self.nodes[n].beat();
        self.feed(n, NodeEvent::Ticked);
        self.go_elsewhere(n);
        self.flush_node(n);
    }

    fn flush_node(&mut self, n: usize) {
        let Some((life, batch)) = self.nodes[n].take_words() else { return };
        let (_, m) = self.lives[&life];
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { m, life, batch });
    }

    fn feed(&mut self, n: usize, event: NodeEvent) {
        let actions = self.nodes[n].feed(self.now, event);
        self.act(n, actions);
    }

    fn act(&mut self, n: usize, actions: Vec<NodeAction>) {
        let epoch = self.nodes[n].epoch;
        let transfer_ns_max = self.o.transfer_ns_max;
        for action in actions {
            self.trace(format!("             node {n} {action:?}"));
            let (takes_max, work) = match action {
                NodeAction::AskHome { object } => (transfer_ns_max / 4, Work::Ask { object }),
                NodeAction::Fetch { target, object, source, known, .. } => {
                    (transfer_ns_max, Work::Fetch { target, object, source, known })
                }
                NodeAction::Evict { object } => {
                    self.nodes[n].store.remove(&object);
                    self.nodes[n].book.clear_digest(object);
                    continue;
                }
                NodeAction::Start { task, attempt, inputs, .. } => {
                    self.start(n, (task, attempt), &inputs);
                    (self.o.program_ns_max, Work::Program { id: (task, attempt) })
                }
                NodeAction::Kill { task, attempt } => {
                    let Some(context) = self.nodes[n].contexts.get_mut(&(task, attempt)) else { continue };
                    context.killed = true;
                    (MS, Work::Program { id: (task, attempt) })
                }
                NodeAction::DropPrivate { task, attempt, input } => {
                    self.nodes[n].private.remove(&((task, attempt), input));
                    continue;
                }
                NodeAction::Halt { .. } => continue,
                NodeAction::StoreOutput { task, attempt, output, object, cache_bytes } => {
                    let id = (task, attempt);
                    (transfer_ns_max / 8, Work::Store { id, output, object, cache_bytes })
                }
                NodeAction::Land { task, attempt, output, object, cached } => {
                    (transfer_ns_max, Work::Land { id: (task, attempt), output, object, cached })
                }
                NodeAction::CleanUp { task, attempt } => {
                    let node = &mut self.nodes[n];
                    node.contexts.remove(&(task, attempt));
                    node.private.retain(|(id, _), _| *id != (task, attempt));
                    continue;
                }
                NodeAction::Tell { message } => {
                    self.nodes[n].tell(message);
                    continue;
                }
            };
            let takes = self.lasts(takes_max);
            self.after(takes, Ev::Done { n, epoch, work });
        }
    }

    /// A program begins: what it makes follows from its task and the bytes that it reads.
    fn start(&mut self, n: usize, id: AttemptId, staged: &[Staged]) {
        let node = &mut self.nodes[n];
        let context = node.contexts.get_mut(&id).expect("what starts was assigned");
        context.runs = true;
        let mut seen = vec![];
        for (i, (staged, input)) in staged.iter().zip(&context.assignment.inputs).enumerate() {
            let digest = match staged {
                Staged::Cached(object) => node.store.get(object).map(|s| s.digest),
                Staged::Private | Staged::InPlace(_) => node.private.get(&(id, i as u32)).map(|s| s.digest),
            };
            let location = node.book.location(input.object);
            seen.push(digest.unwrap_or_else(|| panic!("promise 2: {id:?} starts without {location}")));
        }
        let outputs = context.outputs.clone();
        let given = self.given.get_mut(&(n, id.0, id.1)).expect("what starts was given");
        let made = outputs.iter().enumerate().map(|(i, l)| (l.clone(), made(&given.name, &seen, i)));
        given.outputs = made.collect();
        self.ran.insert((given.member, n, id.0, id.1), given.name.clone());
    }

    /// Something that a node began is over.
    fn on_done(&mut self, n: usize, work: Work) {
        let error = |kind, message: &str| TransferError { kind, message: message.into() };
        let event = match work {
            Work::Ask { object } => {
                let location = self.nodes[n].book.location(object);
                assert!(!location.starts_with(RUN_FILE), "home is asked for {location}");
                let result = match self.home.get(location) {
                    Some(digest) => Ok(HomeAnswer { version: version_of(*digest), in_place: false }),
                    None => Err(error(TransferErrorKind::Unavailable, "it does not exist")),
                };
                NodeEvent::HomeAnswered { object, result }
            }
            Work::Fetch { target, object, source, known } => {
                let found = match source {
                    Source::Home => {
                        let location = self.nodes[n].book.location(object);
                        self.home.get(location).map(|digest| (*digest, Some(version_of(*digest))))
                    }
                    Source::Peer(peer) => {
                        let holder = self.peers.get(&peer).map(|p| &self.nodes[*p]).filter(|h| h.is_up);
                        let digest = known.as_ref().map(|k| k.digest);
                        let held = holder.and_then(|h| h.store.values().find(|s| Some(s.digest) == digest));
                        held.map(|s| (s.digest, None))
                    }
                };
                let result = match found {
                    Some((digest, _)) if known.as_ref().is_some_and(|k| k.digest != digest) => {
                        Err(error(TransferErrorKind::Changed, "it has other bytes"))
                    }
                    Some((digest, version)) => Ok(Fetched { digest, size_bytes: OUTPUT_BYTES, version }),
                    None => Err(error(TransferErrorKind::NotHeld, "it is not there")),
                };
                if let Ok(bytes) = &result {
                    let node = &mut self.nodes[n];
                    match target {
                        Target::Cache(object) => {
                            node.store
                                .insert(object, Stored { digest: bytes.digest, size_bytes: OUTPUT_BYTES });
                        }
                        Target::Private { task, attempt, input } => {
                            let stored = Stored { digest: bytes.digest, size_bytes: OUTPUT_BYTES };
                            node.private.insert(((task, attempt), input), stored);
                        }
                    }
                }
                NodeEvent::TransferEnded { target, source, result }
            }
            Work::Program { id } => {
                let Some(context) = self.nodes[n].contexts.get_mut(&id).filter(|c| c.runs) else { return };
                context.runs = false;
                let failure = Failure { kind: FailureKind::Signal(15), message: String::new() };
                let exit = Exit {
                    result: if context.killed { Err(failure) } else { Ok(()) },
                    started: self.now,
                    exited: self.now,
                    cpu_ns: 0,
                    rss_bytes_max: 0,
                    outputs: vec![Some(OUTPUT_BYTES); context.outputs.len()],
                    inputs_damaged: vec![],
                    inputs_modified: vec![],
                    disk: None,
                };
                NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit }
            }
            Work::Store { id, output, object, cache_bytes } => {
                let (_, digest) = self.given[&(n, id.0, id.1)].outputs[output as usize];
                if cache_bytes.is_some() {
                    self.nodes[n].store.insert(object, Stored { digest, size_bytes: OUTPUT_BYTES });
                    self.nodes[n].book.set_digest(object, digest);
                }
                let result = Ok(Fetched { digest, size_bytes: OUTPUT_BYTES, version: None });
                NodeEvent::OutputStored { task: id.0, attempt: id.1, output, result }
            }
            Work::Land { id, output, object, cached } => {
                let (location, digest) = self.given[&(n, id.0, id.1)].outputs[output as usize].clone();
                assert!(!location.starts_with(RUN_FILE), "{location} goes home");
                let held = self.nodes[n].store.get(&object).map(|s| s.digest);
                assert!(!cached || held == Some(digest), "promise 3: the last copy of {location} is gone");
                self.home.insert(location, digest);
                NodeEvent::OutputLanded { task: id.0, attempt: id.1, output, result: Ok(version_of(digest)) }
            }
        };
        self.feed(n, event);
        self.go_elsewhere(n);
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
            Fault::CutLink(from, to) => {
                let lasts = self.lasts(self.o.away_ns_max);
                self.links_cut_until.insert((from, to), self.now.plus_ns(lasts));
                if let Some(life) = self.links.get(&(from, to)).copied() {
                    self.after(0, Ev::LinkDown { from, to, life });
                }
            }
        }
    }

    // ------------------------------------------------------------ checks

    /// The task's name over all runs.
    fn name_of(&self, spec: &TaskSpec) -> String {
        spec.id.clone()
    }

    fn check_message(&self, m: usize, n: usize, message: &ToNode) {
        if let ToNode::Says(said) = message
            && let ToExecutor::Assign(assign) = &**said
        {
            let task = assign.assignment.task;
            let is_done = self.members[m].promised.contains(&task);
            assert!(!is_done, "promise 1: {task:?} of member {m} is done, and node {n} gets it");
        }
    }

    fn check_ended(
        &self,
        m: usize,
        process: &Process,
        task: TaskId,
        outcome: &Outcome,
        by: Option<(ExecutorId, AttemptNo)>,
    ) {
        let name = process.core().user_id(task);
        assert_eq!(
            *outcome,
            Outcome::Done,
            "promise 4: {name}, {task:?} of member {m}, ends without a cause"
        );
        let (executor, attempt) = by.expect("promise 2: a task is done without an attempt");
        let n = process.node_of(executor).expect("the executor that ended a task is known");
        let ran = self.ran.get(&(m, n, task, attempt));
        assert_eq!(
            ran,
            Some(&name),
            "promise 2: {task:?} of member {m} is done by an attempt on node {n} that ran something else"
        );
    }

    fn check_durable(&mut self, m: usize, process: &Process, task: TaskId) {
        if process.core().task_state(task) != TaskState::Done {
            return; // it runs again since
        }
        self.members[m].promised.insert(task);
        for (_, location) in process.core().task_spec(task).outputs {
            let is_home = location.starts_with(RUN_FILE) || self.home.contains_key(&location);
            let name = process.core().user_id(task);
            assert!(is_home, "promise 1: {name} of member {m} is done, {location} is not at home");
        }
    }

    fn files_kept(&self) -> Vec<String> {
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.is_up);
        up.flat_map(|(n, node)| {
            let kept = node.store.keys().filter(|o| node.core.cache().is_kept(**o));
            kept.map(move |o| format!("{} on node {n}", node.book.location(*o)))
        })
        .collect()
    }

    fn is_over(&self) -> bool {
        let ended = |m: &Member, run: RunId| {
            let found = m.process.as_ref().and_then(|s| s.core().find_run(run));
            let is_written = |s: &Process| s.journal().n_durable == s.journal().records.len();
            found.is_some_and(|r| r.ended.is_some()) && m.process.as_ref().is_some_and(is_written)
        };
        self.plans.iter().all(|plan| match plan.state {
            PlanState::Accepted(run) => self.members.iter().all(|m| ended(m, run)),
            _ => false,
        })
    }

    fn what_is_left(&self) -> String {
        let mut text = String::new();
        for (m, member) in self.members.iter().enumerate() {
            let Some(process) = &member.process else {
                let _ = writeln!(text, "  member {m} is away");
                continue;
            };
            for task in (0..).map(TaskId).take_while(|t| process.core().has_task(*t)) {
                let state = process.core().task_state(task);
                if state != TaskState::Done {
                    let waits = process.core().waits_for(task);
                    let _ = writeln!(
                        text,
                        "  member {m}: {task:?} {}: {state:?}; {waits}",
                        process.core().user_id(task)
                    );
                }
            }
            let doubts = process.in_doubt();
            let _ = writeln!(text, "  member {m}: in doubt {doubts:?}");
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let attempts = node.core.attempts();
            let _ = writeln!(
                text,
                "  node {n}: up {}, of {:?}, attempts {attempts:?}",
                node.is_up,
                node.link.member()
            );
        }
        for plan in &self.plans {
            let _ = writeln!(text, "  plan {:?}", plan.state);
        }
        text
    }

    fn check_end(&mut self) -> Summary {
        self.check_patterns();
        let mut wanted = BTreeMap::new();
        for i in 0..9 {
            wanted.insert(format!("in/{i}"), digest_of(&format!("in {i}")));
        }
        for plan in &self.plans {
            let mut files = wanted.clone();
            for spec in plan.arrays.iter().map(|array| array.expand(0)) {
                let inputs: Vec<Digest> = spec.inputs.iter().map(|(_, l)| files[l]).collect();
                let name = self.name_of(&spec);
                for (i, (_, location)) in spec.outputs.iter().enumerate() {
                    files.insert(location.clone(), made(&name, &inputs, i));
                }
            }
            wanted.extend(files.into_iter().filter(|(l, _)| !l.starts_with(RUN_FILE)));
        }
        assert_eq!(self.home, wanted, "promise 2: home is as after a plain run");
        let mut n_done = 0;
        for process in self.members.iter().filter_map(|m| m.process.as_ref()) {
            n_done += process.core().runs().map(|(_, r)| r.n_done).sum::<u64>();
        }
        let n_tasks: u64 = self.plans.iter().flat_map(|p| &p.arrays).map(|a| u64::from(a.n_tasks)).sum();
        assert_eq!(n_done, n_tasks, "promise 4: each task is done once");
        // Executors that change sides take files along and keep them; caches have room for all files.
        if self.o.faults() == [0; 4] {
            assert_eq!(self.n_revivals, 0, "nothing is made again where nothing is lost");
        }
        Summary {
            trace_hash: self.trace_hash,
            n_events: self.n_events,
            n_done,
            n_failed: 0,
            n_cancelled: 0,
            n_revivals: self.n_revivals,
            n_collectives: self
                .members
                .iter()
                .filter_map(|m| m.process.as_ref())
                .map(Process::n_collectives)
                .sum(),
        }
    }
}

/// One task writes many files, each of which another one reads, all together with one file; one task gathers what they make.
/// Which of it is a collective is wished for in half of the blocks.
fn make_block(rng: &mut Rng, name: &str) -> Vec<TaskArray> {
    let n = 8 + rng.below(8);
    let hints = match rng.below(2) {
        0 => Hints::default(),
        _ => Hints { multicast: Hint::Always, scatter: Hint::Always, gather: GatherHint::Always },
    };
    let file = |kind: &str, i: u64| format!("{RUN_FILE}{name}/{kind}{i}");
    let mut split = build::task(&format!("{name}split")).label(&format!("{name}split"));
    let mut merge = build::task(&format!("{name}merge")).label(&format!("{name}merge")).hints(hints);
    let query = build::task(&format!("{name}query")).writes(&file("query", 0));
    let mut tasks = vec![];
    for i in 0..n {
        split = split.writes(&file("part", i));
        merge = merge.reads(&file("found", i));
        // Some go to a stage of their own.
        let label = format!("{name}{}", if rng.below(4) == 0 { "scan" } else { "search" });
        let reader = build::task(&format!("{name}read{i}")).label(&label).hints(hints);
        tasks.push(reader.reads(&file("part", i)).reads(&file("query", 0)).writes(&file("found", i)));
    }
    // Makers come before readers.
    let tasks = [query, split].into_iter().chain(tasks).chain([merge.writes(&format!("out/{name}"))]);
    tasks.map(|task| (*task.array()).clone()).collect()
}

/// The patterns that a dispatcher finds which has all of these tasks, as sentences in order.
fn patterns_of_one(arrays: &[TaskArray]) -> Vec<String> {
    let mut core = Dispatcher::new(DispatcherConfig::default()).expect("a known policy");
    let run = RunId(1);
    let mut out = vec![];
    let mut feed = |event| core.handle(Timestamp(S), event, &mut out);
    feed(Event::RunOpened { run, name: String::new(), keep: false, into: None });
    for array in arrays {
        feed(Event::ArrayAdded { run, array: array.clone().into() });
    }
    feed(Event::RunCommitted { run });
    sentences(out.iter(), run)
}

/// What a task makes of its inputs.
fn made(name: &str, inputs: &[Digest], output: usize) -> Digest {
    digest_of(&format!("{name} {inputs:?} {output}"))
}

fn version_of(digest: Digest) -> HomeVersion {
    HomeVersion { size_bytes: OUTPUT_BYTES, stamp: digest.to_string().into() }
}
