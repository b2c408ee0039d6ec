//! A simulated world: one or several dispatchers, some executors, and everything between them that can go wrong.
//!
//! In: [`Options`]. Out: a [`Summary`], or a [`Violation`] of a promise with the last lines of the trace.
//! The state machines are the real ones; network, disks, programs, journals and time are models. Events lie
//! in one queue ordered by time and then by the order in which they were made; all chance comes from the
//! seed. Two worlds with equal options have equal traces.
//!
//! First faults come and go and nothing wrong may happen (*safety*). Then the faults stop and every task has
//! to end (*liveness*).
//!
//! Clients of one dispatcher say all that they have to say at one moment. Clients of several dispatchers submit runs in
//! parts, with the session of live clients: their connections break, and they go away in the middle of it, and another
//! client tries again. Executors look for their dispatcher at every address.
//!
//! Checked, by the numbers of the promises:
//!   1. a task that was reported as done stays done over restarts and is not given out again, and its outputs are at home as
//!      recorded; an accepted run is lost at no dispatcher, and neither is what was added to it; what is said twice with one
//!      token is added once;
//!   2. a done task's program was *this* task's; it saw bytes that home had during its run, and all tasks of a run that are
//!      done saw the same (one dispatcher life long: neither journal nor report says which bytes were read);
//!   3. the cache's own invariants; no object that a program uses and no last copy is evicted;
//!   4. every task ends, has a reason while it waits, and fails only for causes that exist in this world; what is refused is
//!      refused for a cause that is there;
//!   5. the recorded events, fed to fresh machines, give the same actions;
//!   6. whoever may do nothing is not heard (with users).
//!
//! The promise 7 is checked with real processes (`docs/promises.md`).
//!
//! Also checked: the tasks of an addition are in their run all together or not at all, and the run ends after them.
//! Files that stay on the nodes are read as a task that was done has made them, and home is never asked for them. They
//! are made again only when the last copy is gone, and they are gone when the runs have ended. In the end all dispatchers
//! know the same runs, nothing is in doubt, and each knows the patterns that a single one finds in the whole run.
//! Where nothing makes a task fail ([`Options::is_plain`]), each task of each run is done, and home is as after a plain run.
//!
//! | module | has |
//! |---|---|
//! | `plans` | the submissions |
//! | `calendar` | time, what is to happen, and the lines that say what did |
//! | `account` | what programs read and made, and how tasks ended |
//! | `clients`, `requests` | clients of several dispatchers, and of one |
//! | `dispatchers`, `nodes`, `programs` | the surroundings of the real state machines |
//! | `provider` | whoever brings nodes |
//! | `faults` | what goes wrong |
//! | `checks`, `ends` | the promises, while the world lives and when it is over |
//! | `watch` | the limit of a world |
//!
//! Not here: what the machines decide (`eyas-core`), real sockets and files (`eyas-runtime`'s tests).

mod account;
mod calendar;
mod checks;
mod clients;
mod dispatchers;
mod ends;
mod faults;
mod nodes;
mod plans;
mod programs;
mod provider;
mod requests;
mod watch;

use crate::happening::{Ev, Fault};
use crate::home::{Home, digest_of, hash};
use crate::node::{WorldNode, own_disk};
use crate::options::Options;
use crate::process::Journal;
use account::Account;
use calendar::{Calendar, Trace};
use clients::Clients;
use dispatchers::{Links, Member};
use eyas_core::cache::CacheConfig;
use eyas_core::dispatcher::{CollectiveMode, DispatcherConfig};
use eyas_core::executor::ExecutorConfig;
use eyas_core::executor::memory::MemoryConfig;
use eyas_core::group::Membership;
use eyas_session::dispatcher::Record;
use eyas_terms::needs::Equipment;
use eyas_terms::rng::Rng;
use eyas_terms::*;
use plans::{Additions, Plan, PlanState};
use provider::Provider;
use std::fmt::Write;
use std::time::Duration;
use watch::{Lines, watch};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const LEASE_NS: u64 = 15 * S;
/// How long after the last fault every task must have ended, and where nothing makes one fail.
const LIVENESS_NS: u64 = 4_000 * S;
const LIVENESS_PLAIN_NS: u64 = 2_000 * S;
/// Where runs are forgotten, nodes keep this many names of objects in any case. Worlds have few objects, and nodes
/// should often forget names.
const NAMES_MIN: usize = 8;
/// How long after the last end files of a run may remain on nodes: a lease, and a link that is cut.
const SETTLE_NS: u64 = 200 * S;
/// How long a node may be idle and fit for a ready task before that task must have started.
const STARVES_NS: u64 = 120 * S;
/// Wrong clocks are at most this much ahead or behind.
const CLOCK_NS: u64 = 100_000 * S;
/// A restarted dispatcher continues at least this long after the last time that its predecessor gave: how
/// often that time is kept.
const RENEWAL_NS: u64 = 10 * S;
/// The memory and cache of the large nodes of an uneven world.
const LARGE_MEMORY_BYTES: u64 = 5_000;
const LARGE_CACHE_BYTES: u64 = 1_000_000;
const LARGE_DISK_BYTES: u64 = 1_200_000;
const LINES_KEPT: usize = 20_000;
/// The most events of a world, and with several dispatchers. The largest of a hundred thousand worlds had a tenth of these.
const EVENTS_MAX: u64 = 2_000_000;
const EVENTS_OF_SEVERAL_MAX: u64 = 3_000_000;
/// The most processor time of a world. Most take a few milliseconds.
const CPU_S_MAX: f64 = 60.0;
/// How often a world's processor time is checked.
const LOOK: Duration = Duration::from_millis(500);

/// How a world ended well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// A hash over every event, with its time.
    pub trace_hash: u64,
    pub n_events: u64,
    pub n_done: u64,
    pub n_failed: u64,
    pub n_cancelled: u64,
    /// Ends taken back because a file was lost.
    pub n_revivals: u64,
    /// Collectives of the last dispatcher processes that brought something.
    pub n_collectives: u64,
    /// Tasks that were added to runs which went on, and submissions that were refused: with several dispatchers.
    pub n_added: u64,
    pub n_refused: u64,
}

/// A promise was broken, or a machine panicked.
#[derive(Clone, Debug)]
pub struct Violation {
    pub message: String,
    /// The last events, oldest first.
    pub tail: Vec<String>,
}

/// Lives through one world. A panic inside the machines is a violation, and so is a machine that does not
/// return from an event.
///
/// The world lives on a thread of its own, whose processor time is limited. That detects a loop inside a
/// machine wherever it is, without a counter in each, and a slow or busy computer does not look like one. The
/// thread of a world that hangs is left behind, as nothing can stop it; it ends with the process.
pub fn simulate(options: &Options) -> Result<Summary, Box<Violation>> {
    let lines = Lines::default();
    let (options, of_world) = (options.clone(), lines.clone());
    watch(lines, CPU_S_MAX, move || World::new(options, of_world).live())
}

struct World {
    o: Options,
    rng: Rng,
    calendar: Calendar,
    trace: Trace,
    home: Home,
    nodes: Vec<WorldNode>,
    members: Vec<Member>,
    links: Links,
    clients: Clients,
    plans: Vec<Plan>,
    additions: Additions,
    account: Account,
    /// Since when everything has ended, while files are dropped.
    over_since: Option<Timestamp>,
    provider: Provider,
    faults: bool,
}

/// The options of the world's dispatchers, apart from their group.
fn config_of(o: &Options) -> DispatcherConfig {
    let placement = o.placement_at_nodes.map_or_else(|| o.placement.clone(), String::from);
    let mut config = DispatcherConfig { placement, ..DispatcherConfig::default() };
    config.placement_config.window = o.window;
    config.placement_config.affinity.look_ahead = o.window;
    config.placement_config.affinity.network = o.network;
    config.placement_config.first_input_queued_max = o.window;
    config.placement_config.tasks_per_decision = o.tasks_per_decision;
    config.lease_ns = LEASE_NS;
    config.home_limits = o.home_limits;
    config.keep_runs = o.keep_runs;
    if o.linked {
        config.collectives = if o.n_blocks == 0 { CollectiveMode::Off } else { CollectiveMode::Auto };
    }
    if o.is_plain() {
        // No failure is a task's own fault here.
        (config.losses_max, config.weather_max) = (10_000, 10_000);
    }
    if o.reruns {
        config.collectives = CollectiveMode::TaskRerun;
    }
    if o.archive_trees && config.collectives != CollectiveMode::Off {
        config.collectives = CollectiveMode::ArchiveTree;
    }
    config
}

fn drawn_nodes(o: &Options, rng: &mut Rng) -> Vec<WorldNode> {
    let node = |n| {
        let cache = CacheConfig {
            budget_bytes: o.cache_bytes / (1 + rng.below(2)),
            eviction: o.eviction.clone(),
            seed: o.seed + n,
            groups: true,
        };
        let executor = ExecutorConfig {
            equipment: Default::default(),
            slots: 1 + rng.below(o.slots_max) as u32,
            cache,
            transfers_max: 1 + rng.below(8) as u32,
            transfers_per_peer_max: 1 + rng.below(3) as u32,
            home_streams_max: 1 + rng.below(4) as u32,
            inputs_in_turn: false,
            small_bytes_max: 200 * (o.seed % 2),
            small_per_peer_max: 1 + (o.seed / 2 % 3) as u32,
            memory: memory_of(o, n),
        };
        WorldNode::new(executor, 1000 * (1 + rng.below(4)))
    };
    (0..o.n_nodes).map(node).collect()
}

/// In some worlds, nodes hold a part of their caches in memory, too.
fn memory_of(o: &Options, n: u64) -> MemoryConfig {
    let budget_bytes = if (o.seed + n).is_multiple_of(3) { o.cache_bytes / 4 } else { 0 };
    MemoryConfig { budget_bytes, page_bytes: 16 }
}

/// Nodes of given sizes.
fn sized_nodes(o: &Options, rng: &mut Rng) -> Vec<WorldNode> {
    let node = |(n, (slots, memory_bytes)): (u64, &(u32, u64))| {
        let cache = CacheConfig {
            budget_bytes: o.cache_bytes,
            eviction: o.eviction.clone(),
            seed: o.seed + n,
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
            memory: Default::default(),
        };
        WorldNode::new(executor, *memory_bytes)
    };
    (0..).zip(&o.node_sizes).map(node).collect()
}

/// Many small nodes with many slots, and few that are large, as on clusters that grew over the years.
fn make_uneven(o: &Options, nodes: &mut [WorldNode]) {
    let mut rng = Rng::new(o.seed ^ 0x756e_6576_656e_2121);
    let n_large = 1 + rng.below(2);
    for (n, node) in nodes.iter_mut().rev().enumerate() {
        let is_large = (n as u64) < n_large;
        if is_large {
            // If the only node that is large enough for some tasks has no room, they are tried one after the
            // other, with rests of a minute: they end, but not within the time of a world.
            node.config.cache.budget_bytes = node.config.cache.budget_bytes.max(LARGE_CACHE_BYTES);
        }
        node.memory_bytes = if is_large { LARGE_MEMORY_BYTES } else { 1000 * (1 + rng.below(2)) };
        node.config.slots = match (is_large, rng.below(4)) {
            (true, _) => 1,
            (false, 0) => 1,
            (false, _) => o.slots_max as u32 + 1,
        };
        let config = node.config.clone();
        *node = WorldNode::new(config, node.memory_bytes);
    }
}

impl World {
    fn new(o: Options, lines: Lines) -> World {
        let mut rng = Rng::new(o.seed);
        let mut nodes = if o.linked { sized_nodes(&o, &mut rng) } else { drawn_nodes(&o, &mut rng) };
        let mut config = config_of(&o);
        if o.resources {
            let rng = &mut Rng::new(o.seed ^ 0x7265_736f_7572_6365);
            config.resources = [("licence".to_string(), 1 + rng.below(3) as u32)].into();
            for node in &mut nodes {
                let boards = rng.below(3) as u32;
                let resources = [("board".to_string(), boards)].into_iter().filter(|(_, n)| *n > 0).collect();
                node.config.equipment = Equipment { gpus: rng.below(4) as u32, resources };
                *node = WorldNode::new(node.config.clone(), node.memory_bytes);
            }
        }
        if o.uneven {
            make_uneven(&o, &mut nodes);
        }
        for (n, node) in nodes.iter_mut().enumerate() {
            node.number = n;
            if o.keep_runs.is_some() {
                node.names_min = NAMES_MIN;
            }
        }
        let n_members = o.n_dispatchers as u32;
        let members = (0..n_members).map(|m| {
            let group = (n_members > 1).then_some(Membership { me: MemberId(m), n_members });
            Member::new(DispatcherConfig { group, ..config.clone() })
        });
        World {
            rng,
            calendar: Calendar::new(),
            trace: Trace::new(lines),
            home: Home::new(o.file_bytes.is_some()),
            nodes,
            members: members.collect(),
            links: Links::default(),
            clients: Clients::default(),
            plans: vec![],
            additions: Additions::default(),
            account: Account::default(),
            over_since: None,
            provider: Provider::default(),
            faults: true,
            o,
        }
    }

    // ------------------------------------------------------------ chance

    /// From 0 to `max`.
    fn upto(&mut self, max: u64) -> u64 {
        self.rng.below(max + 1)
    }

    /// A duration of at least 1 µs; most are short, few as long as `max`.
    fn lasts(&mut self, max: u64) -> u64 {
        let part = 1 + self.rng.below(8);
        1_000 + self.upto(max / part)
    }

    fn chance(&mut self, of_1000: u64) -> bool {
        self.rng.below(1000) < of_1000
    }

    /// A fault that happens while there are faults.
    fn fault(&mut self, of_1000: u64) -> bool {
        self.faults && of_1000 > 0 && self.chance(of_1000)
    }

    fn object(&mut self) -> String {
        let i = self.rng.below(self.o.n_objects);
        self.object_name(i)
    }

    fn object_name(&self, i: u64) -> String {
        let chance = |what: &str| hash(self.o.seed, format!("{what} {i}").as_bytes());
        if chance("owned") % 1000 < self.o.owned {
            return format!("{}/{i}", own_disk((chance("owner") % self.o.n_nodes) as usize));
        }
        format!("{}{i}", if chance("local") % 1000 < self.o.in_place { "local/" } else { "in/" })
    }

    /// The bytes that are made from `what`: a digest and a size. In worlds with equal files, few files have
    /// bytes of their own.
    fn bytes_of(&self, what: &str, size_bytes: u64) -> (Digest, u64) {
        match self.o.equal {
            true => {
                let digest = digest_of(&format!("equal {}", hash(self.o.seed, what.as_bytes()) % 4));
                (digest, self.output_bytes(digest))
            }
            false => (digest_of(what), size_bytes),
        }
    }

    // ------------------------------------------------------------ clocks

    /// The time of a clock that is this much ahead of true time.
    fn clock_time(&self, ahead_ns: i64) -> Timestamp {
        Timestamp(self.calendar.now.0.saturating_add_signed(ahead_ns))
    }

    /// A wall clock, as a process finds it when it starts.
    fn wrong_clock(&mut self) -> i64 {
        if !self.o.clocks {
            return 0;
        }
        let off = [0, S / 2, 5 * S, 3_600 * S, 86_400 * S][self.rng.below(5) as usize] as i64;
        CLOCK_NS as i64 + if self.rng.below(2) == 0 { off } else { -off }
    }

    // ------------------------------------------------------------ the queue

    fn after(&mut self, ns: u64, ev: Ev) {
        self.calendar.add(ns, ev);
    }

    fn live(&mut self) -> Summary {
        self.begin();
        let patience_ns = if self.o.is_plain() { LIVENESS_PLAIN_NS } else { LIVENESS_NS };
        let limit = S + self.o.faults_until_ns + patience_ns;
        let events_max = if self.members.len() > 1 { EVENTS_OF_SEVERAL_MAX } else { EVENTS_MAX };
        while let Some(ev) = self.calendar.next() {
            let t = self.calendar.now.0;
            assert!(t <= limit, "promise 4: not everything ended\n{}", self.what_is_left());
            assert!(self.calendar.n_events <= events_max, "promise 4: {events_max} events and no end");
            let mut line = String::new();
            let _ = write!(line, "{:>12.6} {ev:?}", t as f64 / S as f64);
            self.trace.add(line);
            let is_tick = matches!(ev, Ev::Tick);
            self.on(ev);
            if is_tick && !self.faults && self.is_over() {
                let since = *self.over_since.get_or_insert(self.calendar.now);
                if self.files_left().is_none() {
                    break;
                }
                let waited = self.calendar.now.since_ns(since);
                let left = || self.files_left().unwrap_or_default();
                assert!(waited < SETTLE_NS, "files of runs that have ended are left\n{}", left());
            }
        }
        self.check_end()
    }

    fn begin(&mut self) {
        for i in 0..self.o.n_objects {
            let location = self.object_name(i);
            self.change_home(&location);
        }
        self.make_plans();
        for m in 0..self.members.len() {
            let at = if self.members.len() > 1 { self.upto(S / 2) } else { 0 };
            self.after(at, Ev::StartDispatcher { m });
            for to in (0..self.members.len()).filter(|to| *to != m) {
                self.after(S / 10, Ev::LinkTry { from: m, to });
            }
        }
        for n in 0..self.nodes.len() {
            let at = self.upto(2 * S);
            if self.provided_node() != Some(n) {
                self.after(at, Ev::StartNode { n });
            }
        }
        if self.o.provided {
            self.after(S, Ev::AskDemand);
        }
        self.after(S, Ev::Tick);
        self.draw_faults();
        self.after(self.o.faults_until_ns, Ev::FaultsOver);
    }

    fn change_home(&mut self, location: &str) {
        let (digest, size_bytes) = match self.home.find(location) {
            None if self.o.linked => self.bytes_of(location, 0),
            _ => {
                let n = self.rng.next_u64();
                let size_bytes = self.upto(self.o.object_bytes_max);
                self.bytes_of(&format!("{location} {n}"), size_bytes)
            }
        };
        let size_bytes = self.o.file_bytes.unwrap_or(size_bytes);
        self.home.write(self.calendar.now, location, digest, size_bytes);
    }

    // ------------------------------------------------------------ events

    /// The node that an event happens to.
    fn node_of(ev: &Ev) -> Option<usize> {
        match ev {
            Ev::NodeTick { n, .. }
            | Ev::Connect { n, .. }
            | Ev::NodeCut { n, .. }
            | Ev::ToNode { n, .. }
            | Ev::Done { n, .. }
            | Ev::Fault(Fault::Corrupt(n) | Fault::Drain(n)) => Some(*n),
            _ => None,
        }
    }

    fn on(&mut self, ev: Ev) {
        if let Some(n) = Self::node_of(&ev)
            && let Some(waiting) = &mut self.nodes[n].stopped
        {
            waiting.push(ev);
            return;
        }
        match ev {
            Ev::Wake { m } => {
                if self.members[m].wakes_at == Some(self.calendar.now) {
                    self.members[m].wakes_at = None;
                    self.with(m, |process, now| process.wake(now));
                }
            }
            Ev::Tick => {
                self.after(S, Ev::Tick);
                for m in 0..self.members.len() {
                    self.with(m, |process, now| process.tick(now));
                    self.check_reasons(m);
                    self.check_starving(m);
                }
                for plan in 0..self.plans.len() {
                    // A client whose dispatcher went away submits again.
                    if self.members.len() == 1 && self.plans[plan].state == PlanState::Waits && !self.faults {
                        self.submit(plan);
                    }
                }
            }
            Ev::NodeTick { n, epoch } => self.on_node_tick(n, epoch),
            Ev::StartNode { n } => self.on_start_node(n),
            Ev::StartDispatcher { m } => self.on_start_dispatcher(m),
            Ev::AskDemand => self.on_ask_demand(),
            Ev::Connect { n, epoch } => self.on_connect(n, epoch),
            Ev::NodeCut { n, life } => {
                let node = &mut self.nodes[n];
                if node.life == Some(life) {
                    node.disconnect();
                    let (epoch, wait) = (node.epoch, node.cut_until.since_ns(self.calendar.now));
                    self.after(wait + S / 4, Ev::Connect { n, epoch });
                }
            }
            Ev::Cut { life } => {
                let m = self.links.lives[&life];
                self.with(m, |process, now| process.on_disconnected(now, life));
            }
            Ev::ToNode { n, life, batch } => self.on_to_node(n, life, batch),
            Ev::FromNode { life, batch } => {
                let m = self.links.lives[&life];
                self.with(m, |process, now| process.on_batch(now, life, batch));
            }
            Ev::LinkTry { from, to } => self.on_link_try(from, to),
            Ev::MemberLost { from, to, life } => self.on_member_lost(from, to, life),
            Ev::ToMember { from, to, life, message } => {
                if self.links.between.get(&(from, to)) == Some(&life) {
                    self.with(to, |process, now| process.on_member(now, life, message));
                }
            }
            Ev::Durable { incarnation, n } => {
                let m = (incarnation % self.o.n_dispatchers) as usize;
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
            Ev::Submit { plan } if self.members.len() > 1 => self.try_plan(plan),
            Ev::Submit { plan } => self.submit(plan),
            Ev::Complete { plan, run, goes_away } => self.complete(plan, run, goes_away),
            Ev::ClientConnect { c, m } => self.on_client_connect(c, m),
            Ev::ClientCut { life } => self.on_client_cut(life),
            Ev::FromClient { life, number, body } => self.on_client_said(life, number, body),
            Ev::ToClient { life, number, body } => self.on_to_client(life, number, body),
            Ev::ClientNext { c, next } => self.on_client_next(c, next),
            Ev::Split { c, parts } => self.on_split(c, parts),
            Ev::Fault(fault) => self.on_fault(fault),
            Ev::FaultsOver => {
                self.faults = false;
                self.provider_is_back();
                self.home.is_down = false;
            }
        }
    }
}

/// The records of a journal about ends, for tests that restart a dispatcher by hand.
pub fn ends(journal: &Journal) -> impl Iterator<Item = (TaskId, &Outcome)> {
    journal.records.iter().filter_map(|r| match r {
        Record::TaskEnded { task, outcome, .. } => Some((*task, outcome)),
        _ => None,
    })
}
