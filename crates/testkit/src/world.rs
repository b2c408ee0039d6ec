//! A simulated world: one dispatcher, some executors, and everything between them that can go wrong.
//!
//! In: [`Options`]. Out: a [`Summary`], or a [`Violation`] of a promise with the last lines of the trace.
//! The state machines are the real ones; network, disks, programs, journal and time are models. Events lie
//! in one queue ordered by time and then by the order in which they were made; all chance comes from the
//! seed. Two worlds with equal options have equal traces.
//!
//! First faults come and go and nothing wrong may happen (*safety*). Then the faults stop and every task has
//! to end (*liveness*).
//!
//! Checked, by the numbers of the promises:
//!   1. what was told to be done stays done over restarts, and its outputs are at home as recorded;
//!   2. a program sees bytes that home had during its run, and all tasks of a run that are done saw the
//!      same (one dispatcher life long: neither journal nor report says which bytes were read);
//!   3. the cache's own books; nothing that a program uses and no last copy is evicted;
//!   4. every task ends, has a reason while it waits, and fails only for what this world gives cause to;
//!   5. the recorded events, fed to fresh machines, give the same actions;
//!
//! tasks that are added to a run are in it or are not, all of them, and the run ends after them; and of files that stay on the
//! nodes: they are read as a task that was done has made them, are never asked of
//! home, are made again only when the last copy is gone, and are gone when the runs have ended.
//!
//! Not here: what the machines decide (`eyas-core`), real sockets and files (`eyas-runtime`'s tests).

use crate::build;
use crate::home::{Content, Home, digest_of, hash};
use crate::node::{AttemptId, Logged, Node, Stored};
use crate::options::Options;
use crate::process::{FromNode, Journal, NO_SPACE, News, Process, ToNode};
use eyas_core::array::{Hint, Hints, TaskArray};
use eyas_core::cache::{CacheConfig, ReplicaState};
use eyas_core::dispatcher::{CollectiveMode, Dispatcher, DispatcherConfig, REVIVALS_MAX, TaskState};
use eyas_core::event::*;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_core::rng::Rng;
use eyas_core::*;
use eyas_session::dispatcher::Record;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const LEASE_NS: u64 = 15 * S;
/// How long after the last fault everything has to have ended.
const LIVENESS_NS: u64 = 4_000 * S;
/// How long after the last end the files of a run may still lie on nodes: a lease, and a link that is cut.
const SETTLE_NS: u64 = 200 * S;
/// How long a node may have been idle and fit for a ready task before that has to have started.
const STARVES_NS: u64 = 120 * S;
/// Wrong clocks are up to so much ahead or behind of this.
const CLOCK_NS: u64 = 100_000 * S;
/// A restarted dispatcher goes on so long after the last time that its predecessor gave, at least: how often that is kept.
const RENEWAL_NS: u64 = 10 * S;
/// What the large nodes of an uneven world have.
const LARGE_MEMORY_BYTES: u64 = 5_000;
const LARGE_CACHE_BYTES: u64 = 1_000_000;
const LARGE_DISK_BYTES: u64 = 1_200_000;
const LINES_KEPT: usize = 20_000;
/// Events of a world, at most. The largest of a hundred thousand worlds had a tenth of these.
const EVENTS_MAX: u64 = 2_000_000;
/// Processor time of a world, at most. Most take a few milliseconds.
const CPU_S_MAX: f64 = 60.0;
/// How often a world's processor time is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How a world ended well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Over every event, with its time.
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

/// The last lines of a world's trace, which whoever waits for the world can read while it lives.
type Lines = Arc<Mutex<VecDeque<String>>>;

fn kept(lines: &Lines) -> Vec<String> {
    lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// Lives through one world. A panic inside the machines is a violation, and so is a machine that does not come back from
/// an event.
///
/// The world lives on a thread of its own, whose processor time is limited: that sees a loop inside a machine wherever it is,
/// without a counter in each, and a slow or busy computer does not look like one. The thread of a world that hangs is left
/// behind, as nothing can stop it; it ends with the process.
pub fn simulate(options: &Options) -> Result<Summary, Box<Violation>> {
    let lines = Lines::default();
    let (options, of_world) = (options.clone(), lines.clone());
    watch(lines, CPU_S_MAX, move || World::new(options, of_world).live())
}

fn watch<T: Send + 'static>(
    lines: Lines,
    cpu_s_max: f64,
    live: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Box<Violation>> {
    let violation = |message| Err(Box::new(Violation { message, tail: kept(&lines) }));
    let (ended, end) = mpsc::channel();
    let (told_id, id) = mpsc::channel();
    let body = move || {
        let _ = told_id.send(thread_id());
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(live));
        let _ = ended.send(result);
    };
    let thread = std::thread::Builder::new().name("world".into()).stack_size(64 << 20);
    thread.spawn(body).expect("a thread can be started");
    let id = id.recv().ok().flatten();
    loop {
        match end.recv_timeout(LOOK) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(panic)) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
                return violation(text.unwrap_or_default());
            }
            Err(RecvTimeoutError::Disconnected) => return violation("the world's thread is gone".into()),
            Err(RecvTimeoutError::Timeout) => {
                let used_s = id.as_deref().and_then(cpu_s).unwrap_or(0.0);
                if used_s > cpu_s_max {
                    return violation(format!(
                        "promise 4: the world hangs: it has used {used_s:.0} s of processor time, and the last event of \
                         its trace is not over"
                    ));
                }
            }
        }
    }
}

/// The calling thread, as Linux numbers it.
fn thread_id() -> Option<String> {
    let path = std::fs::read_link("/proc/thread-self").ok()?;
    Some(path.file_name()?.to_str()?.to_string())
}

/// Processor time that a thread of this process has used.
fn cpu_s(thread: &str) -> Option<f64> {
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name of the thread, in brackets, may hold anything. User and system time are the fields 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS_PER_S)
}

#[derive(Clone, Debug)]
pub enum Work {
    /// A watched fetch is half done.
    Moved {
        moved: InputMoved,
    },
    Ask {
        object: ObjectId,
    },
    /// The driver is to hear of bytes that are there.
    Word {
        object: ObjectId,
        digest: Digest,
        event: NodeEvent,
    },
    Fetch {
        target: Target,
        object: ObjectId,
        source: Source,
        known: Option<Known>,
        size_bytes: u64,
        began: Option<Content>,
    },
    /// A program writes what it needs for a while.
    Scratch {
        id: AttemptId,
    },
    Program {
        id: AttemptId,
    },
    Store {
        id: AttemptId,
        output: u32,
        object: ObjectId,
        cache_bytes: Option<u64>,
    },
    Land {
        id: AttemptId,
        output: u32,
        object: ObjectId,
        cached: bool,
    },
}

#[derive(Clone, Debug)]
pub enum Fault {
    KillNode(usize),
    Stop(usize),
    Continue(usize),
    Cut(usize),
    KillDispatcher,
    HomeDown,
    HomeUp,
    ChangeHome,
    Corrupt(usize),
    Cancel,
    Drain(usize),
    /// Something else takes a part of the disk, or gives it back.
    FillDisk(usize),
    FreeDisk(usize),
    /// The same under the journal.
    FillJournal,
    FreeJournal,
    /// Somebody wants a run to be forgotten. No fault, but it comes when it comes.
    Forget,
}

/// What happens, and when it is dealt with.
#[derive(Clone, Debug)]
pub enum Ev {
    Tick,
    /// The dispatcher asked to be woken.
    Wake,
    NodeTick {
        n: usize,
        epoch: u64,
    },
    StartNode {
        n: usize,
    },
    StartDispatcher,
    Connect {
        n: usize,
        epoch: u64,
    },
    /// The node notices that its connection is gone.
    NodeCut {
        n: usize,
        life: u64,
    },
    /// The dispatcher does.
    Cut {
        life: u64,
    },
    ToNode {
        n: usize,
        life: u64,
        batch: Vec<ToNode>,
    },
    FromNode {
        life: u64,
        batch: Vec<FromNode>,
    },
    Durable {
        incarnation: u64,
        n: usize,
    },
    Done {
        n: usize,
        epoch: u64,
        work: Work,
    },
    Submit {
        plan: usize,
    },
    /// Whoever adds tasks to a run has sent them all, or goes away before.
    Complete {
        plan: usize,
        run: RunId,
        goes_away: bool,
    },
    Fault(Fault),
    FaultsOver,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlanState {
    Waits,
    /// Into a run; it is being filled.
    Opened(RunId),
    Submitted(RunId),
    Accepted(RunId),
    Refused,
}

struct Plan {
    arrays: Vec<Arc<TaskArray>>,
    keep: bool,
    state: PlanState,
    /// The tasks are added to the run of this plan.
    into: Option<usize>,
    /// It has to be refused: it writes what another task does, or reads what nobody writes.
    is_bad: bool,
}

/// What an attempt's program was given, and what it made.
#[derive(Clone, Debug, Default)]
struct Witness {
    seen: Vec<(String, Digest, bool)>,
    outputs: Vec<(String, Digest)>,
    /// Which dispatcher process had assigned it.
    incarnation: u64,
    /// An input was changed under it while it ran.
    spoiled: bool,
}

struct World {
    o: Options,
    rng: Rng,
    now: Timestamp,
    queue: BTreeMap<(u64, u64), Ev>,
    next_seq: u64,
    n_events: u64,
    lines: Lines,
    trace_hash: u64,
    config: DispatcherConfig,
    home: Home,
    nodes: Vec<Node>,
    process: Option<Process>,
    journal: Journal,
    n_scheduled: usize,
    durable_at: u64,
    /// The journal's disk takes nothing until then.
    full_until: Timestamp,
    next_incarnation: u64,
    next_life: u64,
    /// When the last message of each connection and direction arrives.
    arrives: BTreeMap<(u64, bool), u64>,
    plans: Vec<Plan>,
    run_since: BTreeMap<RunId, Timestamp>,
    witnesses: BTreeMap<(usize, TaskId, AttemptNo), Witness>,
    /// Done tasks and their outputs, as far as the dispatcher that lives knows.
    done: BTreeMap<TaskId, Vec<(String, Digest)>>,
    /// How tasks ended last, and of which run they are.
    outcomes: BTreeMap<TaskId, Outcome>,
    run_of: BTreeMap<TaskId, RunId>,
    /// Tasks that somebody was told are done.
    promised: BTreeSet<TaskId>,
    /// On which node and by which attempt.
    ended_by: BTreeMap<TaskId, (usize, AttemptNo)>,
    /// What the done tasks of a run have read, in this dispatcher's life.
    read: BTreeMap<(RunId, String), (Digest, TaskId)>,
    /// What tasks that were done have written to files that stay on the nodes, by location.
    made: BTreeMap<String, BTreeSet<Digest>>,
    n_revivals: u64,
    /// Since when everything has ended, while files are dropped.
    over_since: Option<Timestamp>,
    /// Since when each ready task has waited, and each executor has been idle.
    ready_since: BTreeMap<TaskId, Timestamp>,
    idle_since: BTreeMap<ExecutorId, Timestamp>,
    /// By how much the dispatcher's clock is ahead of true time, and the latest time that a dispatcher gave.
    ahead_ns: i64,
    given: Timestamp,
    /// When the dispatcher is woken next.
    wakes_at: Option<Timestamp>,
    /// Cached objects that once were found damaged.
    damaged: BTreeSet<(usize, ObjectId)>,
    faults: bool,
}

/// Many small nodes with many slots, and few that are large, as on clusters that grew over the years.
fn make_uneven(o: &Options, nodes: &mut [Node]) {
    let mut rng = Rng::new(o.seed ^ 0x756e_6576_656e_2121);
    let n_large = 1 + rng.below(2);
    for (n, node) in nodes.iter_mut().rev().enumerate() {
        let is_large = (n as u64) < n_large;
        if is_large {
            // Where the only node that is large enough for some tasks has no room, they are tried one after the other, with
            // rests of a minute: they end, but not in the time that a world has.
            node.config.cache.budget_bytes = node.config.cache.budget_bytes.max(LARGE_CACHE_BYTES);
        }
        node.memory_bytes = if is_large { LARGE_MEMORY_BYTES } else { 1000 * (1 + rng.below(2)) };
        node.config.slots = match (is_large, rng.below(4)) {
            (true, _) => 1,
            (false, 0) => 1,
            (false, _) => o.slots_max as u32 + 1,
        };
        let config = node.config.clone();
        *node = Node::new(config, node.memory_bytes);
    }
}

impl World {
    fn new(o: Options, lines: Lines) -> World {
        let mut rng = Rng::new(o.seed);
        let placement = o.placement_at_nodes.map_or_else(|| o.placement.clone(), String::from);
        let mut config = DispatcherConfig { placement, ..DispatcherConfig::default() };
        config.placement_config.window = o.window;
        config.placement_config.affinity.look_ahead = o.window;
        config.placement_config.first_input_queued_max = o.window;
        config.placement_config.tasks_per_decision = o.tasks_per_decision;
        config.lease_ns = LEASE_NS;
        config.home_limits = o.home_limits;
        config.keep_runs = o.keep_runs;
        if o.replicates {
            config.collectives = CollectiveMode::TaskReplication;
        }
        let nodes = (0..o.n_nodes).map(|n| {
            let cache = CacheConfig {
                budget_bytes: o.cache_bytes / (1 + rng.below(2)),
                eviction: o.eviction.clone(),
                seed: o.seed + n,
            };
            let executor = ExecutorConfig {
                slots: 1 + rng.below(o.slots_max) as u32,
                cache,
                transfers_max: 1 + rng.below(8) as u32,
                transfers_per_peer_max: 1 + rng.below(3) as u32,
                home_streams_max: 1 + rng.below(4) as u32,
                inputs_in_turn: false,
            };
            Node::new(executor, 1000 * (1 + rng.below(4)))
        });
        let mut nodes: Vec<Node> = nodes.collect();
        if o.uneven {
            make_uneven(&o, &mut nodes);
        }
        nodes.iter_mut().enumerate().for_each(|(n, node)| node.number = n);
        World {
            rng,
            now: Timestamp(S),
            queue: BTreeMap::new(),
            next_seq: 0,
            n_events: 0,
            lines,
            trace_hash: 0,
            config,
            home: Home::default(),
            nodes,
            process: None,
            journal: Journal::default(),
            n_scheduled: 0,
            durable_at: 0,
            full_until: Timestamp(0),
            next_incarnation: 1,
            next_life: 1,
            arrives: BTreeMap::new(),
            plans: vec![],
            run_since: BTreeMap::new(),
            witnesses: BTreeMap::new(),
            done: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            run_of: BTreeMap::new(),
            promised: BTreeSet::new(),
            ended_by: BTreeMap::new(),
            read: BTreeMap::new(),
            made: BTreeMap::new(),
            n_revivals: 0,
            over_since: None,
            ready_since: BTreeMap::new(),
            idle_since: BTreeMap::new(),
            wakes_at: None,
            ahead_ns: 0,
            given: Timestamp(0),
            damaged: BTreeSet::new(),
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
        let local = hash(self.o.seed, format!("local {i}").as_bytes()) % 1000 < self.o.in_place;
        format!("{}{i}", if local { "local/" } else { "in/" })
    }

    /// The bytes that are made from `what`: a digest and a size. Where files are equal, few have bytes of their own.
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

    /// What a clock says that is so much ahead of true time.
    fn told_by(&self, ahead_ns: i64) -> Timestamp {
        Timestamp(self.now.0.saturating_add_signed(ahead_ns))
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
        self.queue.insert((self.now.0 + ns, self.next_seq), ev);
        self.next_seq += 1;
    }

    fn trace(&mut self, line: String) {
        self.trace_hash = hash(self.trace_hash, line.as_bytes());
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn live(&mut self) -> Summary {
        self.begin();
        let limit = S + self.o.faults_until_ns;
        while let Some(((t, _), ev)) = self.queue.pop_first() {
            assert!(t <= limit + LIVENESS_NS, "promise 4: not everything ended\n{}", self.what_is_left());
            self.now = Timestamp(t);
            self.n_events += 1;
            assert!(self.n_events <= EVENTS_MAX, "promise 4: {EVENTS_MAX} events and no end");
            let mut line = String::new();
            let _ = write!(line, "{:>12.6} {ev:?}", t as f64 / S as f64);
            self.trace(line);
            let is_tick = matches!(ev, Ev::Tick);
            self.on(ev);
            if is_tick && !self.faults && self.is_over() {
                let since = *self.over_since.get_or_insert(self.now);
                if self.files_left().is_none() {
                    break;
                }
                let waited = self.now.since_ns(since);
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
        for plan in 0..self.o.n_runs as usize {
            let workflow = self.o.n_layers_max > 0;
            let keep = workflow && self.chance(self.o.run_is_kept);
            let arrays = if workflow { self.make_workflow(plan) } else { self.make_run(plan) };
            self.plans.push(Plan { arrays, keep, state: PlanState::Waits, into: None, is_bad: false });
            let at = self.upto(self.o.faults_until_ns / 2);
            self.after(at, Ev::Submit { plan });
        }
        if self.o.n_additions_max > 0 {
            self.plan_additions();
        }
        self.after(0, Ev::StartDispatcher);
        for n in 0..self.nodes.len() {
            let at = self.upto(2 * S);
            self.after(at, Ev::StartNode { n });
        }
        self.after(S, Ev::Tick);
        let n_nodes = self.o.n_nodes;
        let kinds: [(u64, fn(usize) -> Fault); 12] = [
            (self.o.n_node_kills, Fault::KillNode),
            (self.o.n_stops, Fault::Stop),
            (self.o.n_link_cuts, Fault::Cut),
            (self.o.n_dispatcher_kills, |_| Fault::KillDispatcher),
            (self.o.n_home_outages, |_| Fault::HomeDown),
            (self.o.n_home_changes, |_| Fault::ChangeHome),
            (self.o.n_corruptions, Fault::Corrupt),
            (self.o.n_cancels, |_| Fault::Cancel),
            (self.o.n_drains, Fault::Drain),
            (self.o.n_disk_fills, Fault::FillDisk),
            (self.o.n_journal_fills, |_| Fault::FillJournal),
            (self.o.n_forgets, |_| Fault::Forget),
        ];
        for (count, fault) in kinds {
            for _ in 0..count {
                let at = self.upto(self.o.faults_until_ns);
                let n = self.rng.below(n_nodes) as usize;
                self.after(at, Ev::Fault(fault(n)));
            }
        }
        self.after(self.o.faults_until_ns, Ev::FaultsOver);
    }

    fn make_run(&mut self, plan: usize) -> Vec<Arc<TaskArray>> {
        let n_tasks = 1 + self.rng.below(self.o.n_tasks_max);
        let mut made: Vec<String> = vec![];
        let mut arrays = vec![];
        for i in 0..n_tasks {
            let mut task = build::task(&format!("p{plan}t{i}"));
            for _ in 0..self.rng.below(4) {
                let location = self.object();
                task = task.reads(&location);
            }
            if !made.is_empty() && self.chance(self.o.task_depends) {
                let location = made[self.rng.below(made.len() as u64) as usize].clone();
                task = task.reads(&location);
            }
            for output in 0..self.rng.below(3) {
                let location = format!("out/p{plan}t{i}o{output}");
                task = task.writes(&location);
                made.push(location);
            }
            if self.chance(self.o.task_is_wide) {
                task = task.cpus(1 + self.rng.below(self.o.slots_max + 1) as u32);
            }
            if self.chance(self.o.task_has_memory) {
                task = task.memory(500 * (1 + self.rng.below(9)));
            }
            if self.chance(self.o.task_has_priority) {
                task = task.priority(self.rng.below(3) as i32 - 1);
            }
            task = task.retries(self.rng.below(4) as u32);
            arrays.push(task.array());
        }
        arrays
    }

    /// Layers of tasks; each reads files of earlier layers and some of home. Different runs use equal names.
    fn make_workflow(&mut self, plan: usize) -> Vec<Arc<TaskArray>> {
        // Readers may be submitted before the makers.
        let shuffled = self.chance(300);
        let output_lands = self.o.output_lands;
        let n_layers = 1 + self.rng.below(self.o.n_layers_max);
        let mut layers: Vec<Vec<String>> = vec![];
        let mut tasks = vec![];
        for layer in 0..n_layers {
            let mut made = vec![];
            for i in 0..1 + self.rng.below(self.o.layer_tasks_max) {
                let mut task = build::task(&format!("p{plan}l{layer}t{i}"));
                if layer == 0 || self.chance(200) {
                    let location = self.object();
                    task = task.reads(&location);
                }
                for _ in 0..if layer > 0 { 1 + self.rng.below(self.o.fan_in_max) } else { 0 } {
                    let from = if self.chance(800) { layer - 1 } else { self.rng.below(layer) };
                    let files = &layers[from as usize];
                    if !files.is_empty() {
                        let location = files[self.rng.below(files.len() as u64) as usize].clone();
                        task = task.reads(&location);
                    }
                }
                for output in 0..1 + self.rng.below(self.o.fan_out_max) {
                    let location = match self.chance(output_lands) {
                        true => format!("out/p{plan}l{layer}t{i}o{output}"),
                        false => run_file(format_args!("l{layer}t{i}o{output}")),
                    };
                    task = task.writes(&location);
                    made.push(location);
                }
                if self.chance(self.o.task_is_wide) {
                    task = task.cpus(1 + self.rng.below(self.o.slots_max + 1) as u32);
                }
                if self.chance(self.o.task_has_priority) {
                    task = task.priority(self.rng.below(3) as i32 - 1);
                }
                if self.o.uneven && self.chance(self.o.task_has_memory) {
                    task = task.memory(500 * (1 + self.rng.below(9)));
                }
                if self.o.replicates {
                    task = task.hints(Hints { multicast: Hint::Always, ..Hints::default() });
                }
                tasks.push(task.retries(self.rng.below(4) as u32));
            }
            layers.push(made);
        }
        if shuffled {
            for i in (1..tasks.len()).rev() {
                let j = self.rng.below(i as u64 + 1) as usize;
                tasks.swap(i, j);
            }
        }
        tasks.iter().map(|task| task.array()).collect()
    }

    /// Tasks that are added to runs later. They read files of the run, also such that are dropped by then.
    fn plan_additions(&mut self) {
        let mut rng = Rng::new(self.o.seed ^ 0x0061_6464_6974_696f);
        for whole in 0..self.plans.len() {
            let outputs = self.plans[whole].arrays.iter().flat_map(|a| a.expand(0).outputs);
            let files: Vec<String> = outputs.map(|o| o.1).filter(|l| Location::of(l).stays()).collect();
            for n in 0..rng.below(self.o.n_additions_max + 1) {
                let is_bad = rng.below(8) == 0 && !files.is_empty();
                let mut own = files.clone();
                let mut tasks = vec![];
                for i in 0..1 + rng.below(6) {
                    let mut task = build::task(&format!("p{whole}a{n}t{i}"));
                    for _ in 0..rng.below(3) {
                        if !own.is_empty() {
                            task = task.reads(&own[rng.below(own.len() as u64) as usize]);
                        }
                    }
                    if rng.below(2) == 0 {
                        let object = rng.below(self.o.n_objects);
                        task = task.reads(&self.object_name(object));
                    }
                    let location = match rng.below(1000) < self.o.output_lands {
                        true => format!("out/p{whole}a{n}t{i}"),
                        false => run_file(format_args!("a{n}t{i}")),
                    };
                    if Location::of(&location).stays() {
                        own.push(location.clone());
                    }
                    tasks.push(task.writes(&location).retries(rng.below(4) as u32));
                }
                if is_bad {
                    let file = &files[rng.below(files.len() as u64) as usize];
                    tasks.push(match rng.below(2) {
                        0 => build::task("second").writes(file),
                        _ => build::task("vain").reads(&run_file("nobody")),
                    });
                }
                let plan = self.plans.len();
                self.plans.push(Plan {
                    arrays: tasks.iter().map(build::Task::array).collect(),
                    keep: false,
                    state: PlanState::Waits,
                    into: Some(whole),
                    is_bad,
                });
                self.after(rng.below(self.o.faults_until_ns), Ev::Submit { plan });
            }
        }
    }

    fn change_home(&mut self, location: &str) {
        let n = self.rng.next_u64();
        let size_bytes = self.upto(self.o.object_bytes_max);
        let (digest, size_bytes) = self.bytes_of(&format!("{location} {n}"), size_bytes);
        self.home.write(self.now, location, digest, size_bytes);
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
            Ev::Wake => {
                if self.wakes_at == Some(self.now) {
                    self.wakes_at = None;
                    self.with_process(|process, now| process.wake(now));
                }
            }
            Ev::Tick => {
                self.after(S, Ev::Tick);
                self.with_process(|process, now| process.tick(now));
                self.check_reasons();
                self.check_starving();
                for plan in 0..self.plans.len() {
                    // A client whose dispatcher went away submits again.
                    if self.plans[plan].state == PlanState::Waits && !self.faults {
                        self.submit(plan);
                    }
                }
            }
            Ev::NodeTick { n, epoch } => self.on_node_tick(n, epoch),
            Ev::StartNode { n } => self.on_start_node(n),
            Ev::StartDispatcher => self.on_start_dispatcher(),
            Ev::Connect { n, epoch } => self.on_connect(n, epoch),
            Ev::NodeCut { n, life } => {
                let node = &mut self.nodes[n];
                if node.life == Some(life) {
                    node.disconnect();
                    let (epoch, wait) = (node.epoch, node.cut_until.since_ns(self.now));
                    self.after(wait + S / 4, Ev::Connect { n, epoch });
                }
            }
            Ev::Cut { life } => self.with_process(|process, now| process.on_disconnected(now, life)),
            Ev::ToNode { n, life, batch } => {
                for message in batch {
                    if self.nodes[n].life != Some(life) {
                        return;
                    }
                    self.nodes[n].last_contact = self.now;
                    let now = self.clock_of(n);
                    for event in self.nodes[n].events_of(now, message) {
                        self.feed(n, event);
                    }
                    if self.nodes[n].is_ended {
                        self.flush_node(n);
                        return self.stop_node(n);
                    }
                }
                self.flush_node(n);
            }
            Ev::FromNode { life, batch } => {
                self.with_process(|process, now| process.on_batch(now, life, batch))
            }
            Ev::Durable { incarnation, n } => {
                if self.process.as_ref().is_some_and(|s| s.incarnation() == incarnation) {
                    self.with_process(|process, now| process.on_durable(now, n));
                }
            }
            Ev::Done { n, epoch, work } => {
                if self.nodes[n].is_up && self.nodes[n].epoch == epoch {
                    self.on_done(n, work);
                    self.flush_node(n);
                }
            }
            Ev::Submit { plan } => self.submit(plan),
            Ev::Complete { plan, run, goes_away } => self.complete(plan, run, goes_away),
            Ev::Fault(fault) => self.on_fault(fault),
            Ev::FaultsOver => {
                self.faults = false;
                self.home.is_down = false;
            }
        }
    }

    fn submit(&mut self, plan: usize) {
        if self.plans[plan].state != PlanState::Waits || self.process.is_none() {
            return;
        }
        if let Some(whole) = self.plans[plan].into {
            return self.open_addition(plan, whole);
        }
        let keep = self.plans[plan].keep;
        let arrays = self.plans[plan].arrays.clone();
        let mut run = Err(String::new());
        self.with_process(|process, now| run = process.submit(now, &arrays, keep));
        self.plans[plan].state = match run {
            Ok(run) => {
                self.run_since.insert(run, self.now);
                PlanState::Submitted(run)
            }
            // Who is refused as the journal is full tries again later.
            Err(why) if why.contains(NO_SPACE) => return self.after(S, Ev::Submit { plan }),
            Err(why) => panic!("promise 4: a submission is refused that clashes with nothing: {why}"),
        };
    }

    fn open_addition(&mut self, plan: usize, whole: usize) {
        let whole = match self.plans[whole].state {
            PlanState::Accepted(run) => run,
            PlanState::Refused => {
                self.plans[plan].state = PlanState::Refused;
                return;
            }
            // Later; when the faults are over every tick tries it.
            _ => return,
        };
        let arrays = self.plans[plan].arrays.clone();
        let mut opened = Err(String::new());
        let token = format!("plan {plan}");
        self.with_process(|process, now| opened = process.open_addition(now, whole, &token, &arrays));
        match opened {
            Ok(run) => {
                self.plans[plan].state = PlanState::Opened(run);
                let goes_away = self.fault(200);
                let takes = self.lasts(3 * S);
                self.after(takes, Ev::Complete { plan, run, goes_away });
            }
            Err(why) if why.contains(NO_SPACE) => self.after(S, Ev::Submit { plan }),
            Err(why) => self.refused(plan, &why),
        }
    }

    fn complete(&mut self, plan: usize, run: RunId, goes_away: bool) {
        if self.plans[plan].state != PlanState::Opened(run) || self.process.is_none() {
            return;
        }
        if goes_away {
            self.with_process(|process, now| process.client_gone(now, run));
            self.plans[plan].state = PlanState::Waits;
            let wait = self.lasts(5 * S);
            return self.after(wait, Ev::Submit { plan });
        }
        let mut done = Ok(());
        self.with_process(|process, now| done = process.commit(now, run));
        match done {
            Ok(()) => {
                assert!(!self.plans[plan].is_bad, "tasks are added that clash with the run's");
                self.plans[plan].state = PlanState::Submitted(run);
            }
            Err(why) => self.refused(plan, &why),
        }
    }

    /// Tasks cannot be added to a run: it is over, a file is gone that they read, or they clash with others.
    fn refused(&mut self, plan: usize, why: &str) {
        let late = ["has ended", "was cancelled", "was dropped", "was forgotten"];
        let is_late = late.iter().any(|part| why.contains(part));
        assert!(is_late || self.plans[plan].is_bad, "tasks are not added: {why}");
        self.plans[plan].state = PlanState::Refused;
    }

    // ------------------------------------------------------------ the dispatcher

    fn with_process(&mut self, act: impl FnOnce(&mut Process, Timestamp)) {
        let Some(mut process) = self.process.take() else { return };
        let now = self.told_by(self.ahead_ns);
        assert!(now >= self.given, "the dispatcher's time goes back");
        self.given = now;
        // Put back when something panics? The world ends then, and only its trace is looked at.
        act(&mut process, now);
        let News { ended, revived, accepted, durable, to_nodes, closed, .. } = process.settle(now);
        for (task, outcome, by) in ended {
            self.trace(format!("             ended {task:?} {outcome:?}"));
            self.on_ended(&process, task, outcome, by);
        }
        for (task, lost) in revived {
            self.trace(format!("             revived {task:?} for {lost:?}"));
            self.on_revived(&process, task, lost);
        }
        for run in accepted {
            for plan in &mut self.plans {
                if plan.state == PlanState::Submitted(run) {
                    plan.state = PlanState::Accepted(run);
                }
            }
        }
        for task in durable {
            if let Some(outputs) = self.done.get(&task) {
                self.promised.insert(task);
                for (location, digest) in outputs.iter().filter(|(l, _)| !CatalogLocation::of(l).stays()) {
                    let at_home = self.home.find(location).map(|c| c.digest);
                    assert_eq!(
                        at_home,
                        Some(*digest),
                        "promise 1: {task:?} is done, {location} is not at home"
                    );
                }
            }
        }
        let incarnation = process.incarnation();
        let wakes_at = process.wake_at().filter(|_| self.o.uneven);
        let n_records = process.journal().records.len();
        self.process = Some(process);
        // As the live driver: as soon as it may be, never in the past.
        let true_time = |at: Timestamp| Timestamp(at.0.saturating_add_signed(-self.ahead_ns));
        if let Some(at) = wakes_at.map(|at| true_time(at).max(self.now.plus_ns(1)))
            && self.wakes_at != Some(at)
        {
            self.wakes_at = Some(at);
            self.after(at.since_ns(self.now), Ev::Wake);
        }
        for (life, n, batch) in to_nodes {
            let at = self.arrival(life, true);
            self.after(at, Ev::ToNode { n, life, batch });
        }
        for (life, n) in closed {
            let at = self.arrival(life, true);
            self.after(at, Ev::NodeCut { n, life });
        }
        if n_records > self.n_scheduled {
            self.n_scheduled = n_records;
            let takes = self.lasts(self.o.durable_ns_max);
            self.durable_at = self.durable_at.max(self.now.0 + takes).max(self.full_until.0);
            let n = self.n_scheduled;
            self.after(self.durable_at - self.now.0, Ev::Durable { incarnation, n });
        }
    }

    /// How long a message of one connection takes: none overtakes another of the same connection.
    fn arrival(&mut self, life: u64, to_node: bool) -> u64 {
        let takes = self.lasts(self.o.message_ns_max);
        let at = self.arrives.entry((life, to_node)).or_default();
        *at = (*at).max(self.now.0 + takes);
        *at - self.now.0
    }

    fn on_ended(
        &mut self,
        process: &Process,
        task: TaskId,
        outcome: Outcome,
        by: Option<(ExecutorId, AttemptNo)>,
    ) {
        if let Outcome::Failed(failure) = &outcome {
            self.check_failure(process, task, failure);
        }
        self.outcomes.insert(task, outcome.clone());
        self.run_of.insert(task, process.core().run_of(task));
        if outcome != Outcome::Done {
            return;
        }
        let (executor, attempt) = by.expect("promise 2: a task is done without an attempt");
        let n = process.node_of(executor).expect("the executor that ended a task is known");
        let witness = self.witnesses.get(&(n, task, attempt)).cloned();
        let witness = witness.unwrap_or_else(|| panic!("promise 2: {task:?} is done and never ran"));
        assert!(!witness.spoiled, "promise 2: {task:?} is done, its input was changed while it ran");
        let run = process.core().run_of(task);
        for (location, digest, in_place) in witness.seen {
            // Files that stay on the nodes may be made again, with other bytes.
            let stays = CatalogLocation::of(&location).stays();
            if in_place || stays || witness.incarnation != process.incarnation() {
                continue;
            }
            let first = *self.read.entry((run, location.clone())).or_insert((digest, task));
            assert_eq!(
                first.0, digest,
                "promise 2: {task:?} read other bytes of {location} than {:?}",
                first.1
            );
        }
        for (location, digest) in witness.outputs.iter().filter(|(l, _)| CatalogLocation::of(l).stays()) {
            self.made.entry(location.clone()).or_default().insert(*digest);
        }
        self.done.insert(task, witness.outputs);
        self.ended_by.insert(task, (n, attempt));
    }

    /// Nothing fails that this world gives no cause to.
    fn check_failure(&self, process: &Process, task: TaskId, failure: &Failure) {
        let o = &self.o;
        let bad_transfers = o.transfer_fails + o.n_home_outages > 0;
        let run = process.core().find_run(process.core().run_of(task)).expect("its run is known");
        let is_caused = match failure.kind {
            FailureKind::ExitCode(_) => o.task_fails > 0,
            FailureKind::InputUnavailable => {
                run.n_failed + run.n_cancelled > 1 || bad_transfers || o.n_home_changes > 0
            }
            FailureKind::InputChanged => o.n_home_changes > 0 || o.outputs_differ,
            FailureKind::StageOut => bad_transfers,
            FailureKind::Node => bad_transfers || self.is_disk_tight(),
            FailureKind::ExecutorLost | FailureKind::InputLost => !o.loses_nothing() || self.is_tight(),
            FailureKind::NeverFits => o.task_is_wide + o.task_has_memory > 0 || self.is_tight(),
            // Damage is weather, like much else, and what is named is only the last of it.
            FailureKind::InputModified => o.task_writes_input + o.n_corruptions > 0,
            // A disk that refuses bytes makes the cache smaller for a while.
            FailureKind::CacheFull => self.is_tight() || o.transfer_fails > 0,
            FailureKind::CacheTooSmall => self.is_tight(),
            FailureKind::DiskTooSmall => self.is_disk_tight(),
            // It is tried with the disk to itself in the end.
            FailureKind::DiskShared => false,
            _ => false,
        };
        assert!(is_caused, "promise 4: {task:?} fails without a cause in this world: {failure:?}");
    }

    /// Some cache may be too small for a task, or for what has to stay.
    fn is_tight(&self) -> bool {
        self.o.cache_bytes < 1_000_000 || self.o.disk_bytes > 0 || self.has_made_much()
    }

    /// What tasks have made so far to stay on the nodes might fill most of some cache, all of it together.
    fn has_made_much(&self) -> bool {
        let largest = |digests: &BTreeSet<Digest>| digests.iter().map(|d| self.output_bytes(*d)).max();
        let made_bytes: u64 = self.made.values().filter_map(largest).sum();
        self.nodes.iter().any(|node| made_bytes >= node.config.cache.budget_bytes / 4 * 3)
    }

    /// Some disk may have no room for the inputs of one task, or for those that are read for one attempt alone.
    fn is_disk_tight(&self) -> bool {
        // Each task fits alone there, but for what stays on the nodes.
        let fits_alone = self.o.scratch_bytes_max > 0 && self.o.n_layers_max == 0 && !self.o.small;
        let is_small = self.o.disk_bytes < 100 * self.o.object_bytes_max || self.o.n_disk_fills > 0;
        self.o.disk_bytes > 0 && (is_small || self.o.scratch_bytes_max > 0) && !fits_alone
    }

    /// A task that was done runs again: only when a file of it is gone that somebody has yet to read.
    fn on_revived(&mut self, process: &Process, task: TaskId, lost: ObjectId) {
        assert!(!self.o.loses_nothing(), "{task:?} runs again although nothing is ever lost");
        self.n_revivals += 1;
        self.done.remove(&task);
        self.outcomes.remove(&task);
        self.promised.remove(&task);
        let n_holders = process.core().catalog().n_holders(lost);
        assert_eq!(n_holders, 0, "{task:?} runs again for {lost:?}, which is there");
        let of_task = |r: &&Record| matches!(r, Record::TaskRevived { task: t } if *t == task);
        let n = process.journal().records.iter().filter(of_task).count();
        assert!(n <= 1 + REVIVALS_MAX as usize, "{task:?} has run again {n} times");
    }

    /// Whether the dispatcher has it that the task is done, or that its run has ended and is forgotten.
    fn is_done(&self, process: &Process, task: TaskId) -> bool {
        match process.core().has_task(task) {
            true => process.core().task_state(task) == TaskState::Done,
            false => {
                let run = self.run_of.get(&task).expect("it had a run when it ended");
                process.journal().is_forgotten(*run)
            }
        }
    }

    /// Files of runs that have ended and that are still on nodes although nobody will read them.
    fn files_left(&self) -> Option<String> {
        let Some(process) = &self.process else { return None };
        let is_left = |location: CatalogLocation<'_>| {
            let kept = |run: RunId| process.core().find_run(run).is_some_and(|r| r.keep);
            matches!(location, CatalogLocation::Run(file) if !file.run().is_some_and(kept))
        };
        let mut text = String::new();
        let catalog = process.core().catalog();
        for object in (0..catalog.n_objects() as u32).map(ObjectId).filter(|o| catalog.is_known(*o)) {
            if is_left(catalog.location(object)) && catalog.n_holders(object) > 0 {
                let holders: Vec<ExecutorId> = catalog.holders_of(object).collect();
                let _ = writeln!(text, "  {} in the catalog, on {holders:?}", catalog.location(object));
            }
        }
        // A cache that outlived its executor holds bytes without names; they go when space is needed.
        let all = self.o.loses_nothing();
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            for (object, _) in node.book.held() {
                let location = node.book.location(object);
                if is_left(CatalogLocation::of(location)) && (all || node.core.cache().is_kept(object)) {
                    let _ = writeln!(text, "  {location} on node {n}");
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }

    fn on_start_dispatcher(&mut self) {
        let incarnation = self.next_incarnation;
        self.next_incarnation += 1;
        self.read.clear();
        self.ready_since.clear();
        self.idle_since.clear();
        self.ahead_ns = self.wrong_clock();
        if self.o.clocks && self.given > Timestamp(0) {
            let behind_ns = self.given.plus_ns(RENEWAL_NS).since_ns(self.told_by(self.ahead_ns));
            self.ahead_ns += behind_ns as i64;
        }
        let now = self.told_by(self.ahead_ns);
        let process = Process::start(&self.config, incarnation, now, &mut self.journal);
        for task in &self.promised {
            assert!(self.is_done(&process, *task), "promise 1: {task:?} was done before the restart");
        }
        let done: BTreeSet<TaskId> =
            self.done.keys().copied().filter(|task| self.is_done(&process, *task)).collect();
        self.done.retain(|task, _| done.contains(task));
        for plan in &mut self.plans {
            if let PlanState::Opened(_) = plan.state {
                plan.state = PlanState::Waits;
            }
            if let PlanState::Submitted(run) | PlanState::Accepted(run) = plan.state {
                let is_there = process.journal().is_committed(run);
                assert!(
                    is_there || matches!(plan.state, PlanState::Submitted(_)),
                    "promise 1: {run:?} is lost"
                );
                plan.state = if is_there { PlanState::Accepted(run) } else { PlanState::Waits };
            }
        }
        self.process = Some(process);
        self.with_process(|_, _| ());
    }

    fn set_full(&mut self, is_full: bool) {
        match self.process {
            Some(_) => self.with_process(|process, now| process.set_full(now, is_full)),
            None => self.journal.is_full = is_full,
        }
    }

    fn kill_dispatcher(&mut self) {
        let Some(process) = self.process.take() else { return };
        self.replay_dispatcher(&process);
        let connections: Vec<(u64, usize)> = process.connections().collect();
        self.journal = process.into_journal();
        let kept = self.journal.n_durable as u64
            + self.upto((self.journal.records.len() - self.journal.n_durable) as u64);
        self.journal.records.truncate(kept as usize);
        self.journal.n_durable = kept as usize;
        self.n_scheduled = kept as usize;
        for (life, n) in connections {
            let takes = self.upto(self.o.message_ns_max);
            self.after(takes, Ev::NodeCut { n, life });
        }
        let away = *[50 * MS, 3 * S, 20 * S].get(self.rng.below(3) as usize).expect("three of them");
        let away = self.upto(away);
        self.after(away, Ev::StartDispatcher);
    }

    // ------------------------------------------------------------ the nodes

    fn on_start_node(&mut self, n: usize) {
        if self.nodes[n].is_up {
            return;
        }
        let survives = self.chance(self.o.cache_survives);
        let ahead_ns = self.wrong_clock();
        let now = self.told_by(ahead_ns);
        let actions = self.nodes[n].start(now, survives);
        self.nodes[n].ahead_ns = ahead_ns;
        self.nodes[n].last_contact = self.now;
        self.set_clock(n);
        let epoch = self.nodes[n].epoch;
        self.act(n, actions, true);
        self.after(MS, Ev::Connect { n, epoch });
        self.after(S, Ev::NodeTick { n, epoch });
    }

    fn stop_node(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if !node.is_up {
            return;
        }
        node.is_up = false;
        node.stopped = None;
        let life = node.disconnect();
        self.replay_node(n);
        if let Some(life) = life {
            let takes = self.lasts(3 * S);
            self.after(takes.max(self.o.message_ns_max), Ev::Cut { life });
        }
        let away = self.lasts(10 * S);
        self.after(away, Ev::StartNode { n });
    }

    fn on_connect(&mut self, n: usize, epoch: u64) {
        let node = &mut self.nodes[n];
        if !node.is_up || node.epoch != epoch || node.life.is_some() {
            return;
        }
        if node.cut_until > self.now || self.process.is_none() {
            let wait = node.cut_until.since_ns(self.now).max(S / 4);
            self.after(wait, Ev::Connect { n, epoch });
            return;
        }
        self.set_clock(n);
        let node = &mut self.nodes[n];
        let life = self.next_life;
        self.next_life += 1;
        self.process.as_mut().expect("just seen").on_connected(life, n);
        let hello = node.connect(life);
        node.lease.connected(LEASE_NS);
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { life, batch: vec![hello] });
    }

    fn on_node_tick(&mut self, n: usize, epoch: u64) {
        let node = &mut self.nodes[n];
        if !node.is_up || node.epoch != epoch {
            return;
        }
        node.beat();
        if self.o.n_stops > 0 && node.link.is_welcomed() {
            node.lease.asked(self.now);
        }
        let is_lost = node.life.is_none() && self.now.since_ns(node.last_contact) > LEASE_NS;
        let leaves = node.is_draining && node.core.is_idle() && node.link.is_welcomed();
        if is_lost {
            return self.stop_node(n);
        }
        if leaves {
            self.nodes[n].say_bye();
            self.flush_node(n);
            return self.stop_node(n);
        }
        self.after(S, Ev::NodeTick { n, epoch });
        self.feed(n, NodeEvent::Ticked);
        self.measure_space(n);
        self.flush_node(n);
    }

    /// The size of a node's disk; 0: larger than anything here.
    fn disk_of(&self, n: usize) -> u64 {
        let is_large = self.o.uneven && self.nodes[n].memory_bytes == LARGE_MEMORY_BYTES;
        match self.o.disk_bytes {
            0 => 0,
            disk_bytes if is_large => disk_bytes.max(LARGE_DISK_BYTES),
            disk_bytes => disk_bytes,
        }
    }

    /// As the live executor does once a second.
    fn measure_space(&mut self, n: usize) {
        if self.disk_of(n) > 0 {
            let (_, beside) = self.nodes[n].bytes_on_disk();
            let room_bytes = self.disk_of(n).saturating_sub(beside);
            let disk_bytes = self.disk_of(n);
            self.feed(n, NodeEvent::SpaceMeasured { room_bytes, disk_bytes });
        }
    }

    /// What is free on the disk of a node.
    fn free_bytes(&self, n: usize) -> u64 {
        let (cached, beside) = self.nodes[n].bytes_on_disk();
        self.disk_of(n).saturating_sub(cached + beside)
    }

    /// Whether so many bytes more lie on the disk of a node, but for what they replace there.
    fn has_space(&self, n: usize, more_bytes: u64) -> bool {
        let (cached, beside) = self.nodes[n].bytes_on_disk();
        self.disk_of(n) == 0 || cached + beside + more_bytes <= self.disk_of(n)
    }

    fn flush_node(&mut self, n: usize) {
        let now = self.clock_of(n);
        self.nodes[n].report_home(now);
        let Some((life, batch)) = self.nodes[n].take_words() else { return };
        let at = self.arrival(life, false);
        self.after(at, Ev::FromNode { life, batch });
    }

    fn feed(&mut self, n: usize, event: NodeEvent) {
        let corrupt = match &event {
            NodeEvent::FoundCorrupt { .. } => true,
            NodeEvent::ProgramEnded { exit, .. } => !exit.inputs_modified.is_empty(),
            _ => false,
        };
        let now = self.clock_of(n);
        let actions = self.nodes[n].feed(now, event);
        self.act(n, actions, corrupt);
    }

    /// Now, as the node believes.
    fn clock_of(&self, n: usize) -> Timestamp {
        self.told_by(self.nodes[n].ahead_ns).plus_ns(self.nodes[n].clock_ahead_ns)
    }

    /// What the node takes for the dispatcher's clock is wrong by another amount.
    fn set_clock(&mut self, n: usize) {
        if self.o.clock_ahead_ns_max > 0 {
            self.nodes[n].clock_ahead_ns = self.upto(self.o.clock_ahead_ns_max);
        }
    }

    /// Carries out what a state machine wants. `corrupt`: bytes may go although somebody needs them.
    fn act(&mut self, n: usize, actions: Vec<NodeAction>, corrupt: bool) {
        let ended: Vec<AttemptId> = actions
            .iter()
            .filter_map(|a| match a {
                NodeAction::CleanUp { task, attempt } => Some((*task, *attempt)),
                _ => None,
            })
            .collect();
        let epoch = self.nodes[n].epoch;
        let transfer_ns_max = self.o.transfer_ns_max;
        for action in actions {
            self.trace(format!("             node {n} {action:?}"));
            match action {
                NodeAction::AskHome { object } => {
                    let takes = self.lasts(transfer_ns_max / 4);
                    self.after(takes, Ev::Done { n, epoch, work: Work::Ask { object } });
                }
                NodeAction::Fetch { target, object, source, known, size_bytes, watched, .. } => {
                    let takes = self.lasts(transfer_ns_max);
                    if watched {
                        let (moved_bytes, moving_ns) = (size_bytes / 2, takes / 2);
                        let moved = InputMoved {
                            target,
                            object,
                            source,
                            moved_bytes,
                            size_bytes,
                            moving_ns,
                            is_all: false,
                        };
                        self.after(takes / 2, Ev::Done { n, epoch, work: Work::Moved { moved } });
                    }
                    let began = self.home.find(self.nodes[n].book.location(object)).cloned();
                    let work = Work::Fetch { target, object, source, known, size_bytes, began };
                    self.after(takes, Ev::Done { n, epoch, work });
                }
                NodeAction::Evict { object } => {
                    if !corrupt {
                        self.check_eviction(n, object, &ended);
                    }
                    self.nodes[n].evict(object);
                }
                NodeAction::Start { task, attempt, inputs, .. } => {
                    self.start((n, epoch), (task, attempt), &inputs)
                }
                NodeAction::Kill { task, attempt } => {
                    if let Some(context) = self.nodes[n].contexts.get_mut(&(task, attempt)) {
                        context.killed = true;
                        let takes = self.lasts(MS);
                        self.after(takes, Ev::Done { n, epoch, work: Work::Program { id: (task, attempt) } });
                    }
                }
                NodeAction::Halt { task, attempt } => {
                    if let Some(context) = self.nodes[n].contexts.get_mut(&(task, attempt)) {
                        context.halted = true;
                    }
                }
                NodeAction::StoreOutput { task, attempt, output, object, cache_bytes } => {
                    let takes = self.lasts(transfer_ns_max / 8);
                    let work = Work::Store { id: (task, attempt), output, object, cache_bytes };
                    self.after(takes, Ev::Done { n, epoch, work });
                }
                NodeAction::Land { task, attempt, output, object, cached } => {
                    let takes = self.lasts(transfer_ns_max);
                    let work = Work::Land { id: (task, attempt), output, object, cached };
                    self.after(takes, Ev::Done { n, epoch, work });
                }
                NodeAction::DropPrivate { task, attempt, input } => {
                    self.nodes[n].private.remove(&((task, attempt), input));
                }
                NodeAction::CleanUp { task, attempt } => {
                    let node = &mut self.nodes[n];
                    node.contexts.remove(&(task, attempt));
                    node.private.retain(|(id, _), _| *id != (task, attempt));
                    node.scratch.remove(&(task, attempt));
                }
                NodeAction::Tell { message } => self.nodes[n].tell(message),
            }
        }
        self.check_store(n);
    }

    fn start(&mut self, (n, epoch): (usize, u64), id: AttemptId, staged: &[Staged]) {
        self.nodes[n].contexts.get_mut(&id).expect("what starts was assigned").runs = true;
        let node = &self.nodes[n];
        let context = &node.contexts[&id];
        let mut seen = vec![];
        for (i, (staged, input)) in staged.iter().zip(&context.assignment.inputs).enumerate() {
            let location = node.book.location(input.object).to_string();
            let digest = match staged {
                Staged::Cached(object) => node.stored(*object).map(|s| s.digest),
                Staged::Private => node.private.get(&(id, i as u32)).map(|s| s.digest),
                Staged::InPlace(_) => self.home.find(&location).map(|c| c.digest),
            };
            let digest = digest.unwrap_or_else(|| panic!("promise 2: {id:?} starts without {location}"));
            seen.push((location, digest, matches!(staged, Staged::InPlace(_))));
        }
        let since = self.run_since[&context.run];
        for (location, digest, _) in &seen {
            let had = match CatalogLocation::of(location).stays() {
                true => self.made.get(location).is_some_and(|made| made.contains(digest)),
                false => self.home.had(location, *digest, since),
            };
            assert!(had, "promise 2: {id:?} starts with bytes of {location} that home did not have then");
        }
        let outputs = context.outputs.iter().map(|l| {
            let differs = self.o.outputs_differ || self.o.staying_differ && CatalogLocation::of(l).stays();
            let how = if differs { format!("{n} {epoch} {id:?}") } else { String::new() };
            (l.clone(), self.bytes_of(&format!("{l} by task {how}"), 0).0)
        });
        let incarnation = context.incarnation;
        let witness = Witness { seen: seen.clone(), outputs: outputs.collect(), incarnation, spoiled: false };
        self.nodes[n].contexts.get_mut(&id).expect("seen above").seen = seen;
        self.witnesses.insert((n, id.0, id.1), witness);
        let takes = self.lasts(self.o.program_ns_max);
        if self.o.scratch_bytes_max > 0 {
            let free_bytes = self.free_bytes(n);
            let node = &mut self.nodes[n];
            let context = node.contexts.get_mut(&id).expect("seen above");
            (context.free_bytes, context.written_before_bytes) = (free_bytes, node.written_bytes);
            self.after(takes / 4, Ev::Done { n, epoch, work: Work::Scratch { id } });
        }
        self.after(takes, Ev::Done { n, epoch, work: Work::Program { id } });
    }

    /// Something that a node began is over.
    fn on_done(&mut self, n: usize, work: Work) {
        let error = |kind, message: &str| TransferError { kind, message: message.into() };
        let event = match work {
            Work::Ask { object } => {
                let location = self.nodes[n].book.location(object).to_string();
                assert!(!CatalogLocation::of(&location).stays(), "home is asked for {location}");
                let in_place = location.starts_with("local/");
                let result = match self.home.find(&location) {
                    _ if self.home.is_down => Err(error(TransferErrorKind::Temporary, "home is down")),
                    Some(content) => Ok(HomeAnswer { version: content.version.clone(), in_place }),
                    None => Err(error(TransferErrorKind::Unavailable, "it does not exist")),
                };
                NodeEvent::HomeAnswered { object, result }
            }
            Work::Moved { moved } => NodeEvent::TransferMoved { moved },
            Work::Fetch { target, object, source, known, size_bytes, began } => {
                let result = match source {
                    _ if self.fault(self.o.transfer_fails) => {
                        let kinds = [
                            TransferErrorKind::NotHeld,
                            TransferErrorKind::Busy,
                            TransferErrorKind::Corrupt,
                            TransferErrorKind::Temporary,
                            TransferErrorKind::NoSpace,
                        ];
                        Err(error(kinds[self.rng.below(5) as usize], "bad luck"))
                    }
                    Source::Home => {
                        self.read_home(n, object, known.as_ref(), (size_bytes, target), began.as_ref())
                    }
                    Source::Peer(peer) => {
                        let holder = self.nodes[n].peers.get(&peer).map(|p| &self.nodes[*p]);
                        let holder = holder.filter(|h| h.is_up && h.stopped.is_none());
                        let held = holder.zip(known).and_then(|(h, known)| h.serves(known.digest));
                        held.map(|s| Fetched { digest: s.digest, size_bytes: s.size_bytes, version: None })
                            .ok_or_else(|| error(TransferErrorKind::NotHeld, "it is not there"))
                    }
                };
                let result = result.and_then(|bytes| match self.has_space(n, bytes.size_bytes) {
                    true => Ok(bytes),
                    false => Err(error(TransferErrorKind::NoSpace, "the disk is full")),
                });
                if let Ok(bytes) = &result {
                    let node = &mut self.nodes[n];
                    if source == Source::Home {
                        node.home_bytes += bytes.size_bytes;
                    }
                    let stored = Stored { digest: bytes.digest, size_bytes: bytes.size_bytes };
                    match target {
                        Target::Cache(object) => {
                            node.place(&stored);
                            let event = NodeEvent::TransferEnded { target, source, result };
                            return self.pass_word(n, object, stored.digest, event);
                        }
                        Target::Private { task, attempt, input } => {
                            node.private.insert(((task, attempt), input), stored);
                        }
                    }
                }
                NodeEvent::TransferEnded { target, source, result }
            }
            Work::Word { object, event, .. } => self.nodes[n].take_word(object, event),
            Work::Scratch { id } => return self.write_scratch(n, id),
            Work::Program { id } => return self.end_program(n, id),
            Work::Store { id, output, object, cache_bytes } => {
                let (_, digest) = self.witnesses[&(n, id.0, id.1)].outputs[output as usize];
                let size_bytes = self.output_bytes(digest);
                let has_space = cache_bytes.is_none() || self.has_space(n, size_bytes);
                let is_kept = !self.fault(self.o.transfer_fails / 4) && has_space;
                let result = match is_kept {
                    true => Ok(Fetched { digest, size_bytes, version: None }),
                    false => Err(error(TransferErrorKind::NoSpace, "the disk is full")),
                };
                let event = NodeEvent::OutputStored { task: id.0, attempt: id.1, output, result };
                if is_kept && cache_bytes.is_some() {
                    self.nodes[n].written_bytes += size_bytes;
                    self.nodes[n].place(&Stored { digest, size_bytes });
                    return self.pass_word(n, object, digest, event);
                }
                event
            }
            Work::Land { id, output, object, cached } => {
                let (location, digest) = self.witnesses[&(n, id.0, id.1)].outputs[output as usize].clone();
                assert!(!CatalogLocation::of(&location).stays(), "{location} goes home");
                let held = self.nodes[n].stored(object).map(|s| s.digest);
                let is_there = !cached || held == Some(digest);
                let was_damaged = self.damaged.contains(&(n, object));
                assert!(is_there || was_damaged, "promise 3: the last copy of {location} is gone");
                let node = &self.nodes[n];
                // What was told to stop may be at home a moment before it hears of it.
                let halted = node.contexts.get(&id).is_some_and(|c| c.halted);
                let has_fence = self.o.n_stops > 0;
                if has_fence && !halted && is_there && !node.lease.holds(self.now) {
                    // Right before the name would appear: until the dispatcher has said that the attempt is still wanted.
                    let epoch = node.epoch;
                    let work = Work::Land { id, output, object, cached };
                    return self.after(S / 5, Ev::Done { n, epoch, work });
                }
                let result = if !is_there {
                    Err(error(TransferErrorKind::Corrupt, "the stored output was damaged"))
                } else if halted && (has_fence || self.fault(800)) {
                    Err(error(TransferErrorKind::GivenUp, "it is not wanted any more"))
                } else if self.home.is_down || self.fault(self.o.transfer_fails / 4) {
                    Err(error(TransferErrorKind::Temporary, "it does not arrive"))
                } else {
                    self.check_landing(n, id, &location);
                    let size_bytes = self.output_bytes(digest);
                    Ok(self.home.write(self.now, &location, digest, size_bytes))
                };
                NodeEvent::OutputLanded { task: id.0, attempt: id.1, output, result }
            }
        };
        self.feed(n, event);
    }

    /// The driver hears of bytes that were stored for the cache: at once, or after a moment in which others may be dropped.
    fn pass_word(&mut self, n: usize, object: ObjectId, digest: Digest, event: NodeEvent) {
        if !self.o.equal {
            let event = self.nodes[n].take_word(object, event);
            return self.feed(n, event);
        }
        let (epoch, takes) = (self.nodes[n].epoch, self.lasts(20 * MS));
        self.after(takes, Ev::Done { n, epoch, work: Work::Word { object, digest, event } });
    }

    /// The file of a task that is done is not written again by another attempt at it, wherever that was meanwhile.
    fn check_landing(&self, n: usize, id: AttemptId, location: &str) {
        if self.o.n_stops == 0 || !self.promised.contains(&id.0) {
            return;
        }
        let by = self.ended_by.get(&id.0);
        assert!(
            by.is_none_or(|by| *by == (n, id.1)),
            "promise 2: {location} is written by {id:?} on node {n} after {by:?} had done the task"
        );
    }

    fn output_bytes(&self, digest: Digest) -> u64 {
        u64::from(digest.0[0]) * self.o.object_bytes_max / 256
    }

    /// As the live executor reads: the version is looked at first, and again at the end.
    fn read_home(
        &mut self,
        n: usize,
        object: ObjectId,
        known: Option<&Known>,
        (size_bytes, target): (u64, Target),
        began: Option<&Content>,
    ) -> Result<Fetched, TransferError> {
        let error = |kind, message: &str| Err(TransferError { kind, message: message.into() });
        if self.home.is_down {
            return error(TransferErrorKind::Temporary, "home is down");
        }
        let content = match (began, self.home.find(self.nodes[n].book.location(object))) {
            // Results land by a rename: who reads the old file meanwhile reads all of it.
            (Some(began), Some(now)) if began.digest == now.digest => began,
            (None, _) | (_, None) => return error(TransferErrorKind::Unavailable, "it does not exist"),
            _ => return error(TransferErrorKind::Changed, "it changed while it was read"),
        };
        if known.is_some_and(|k| k.digest != content.digest) {
            return error(TransferErrorKind::Changed, "it changed since this run first read it");
        }
        if matches!(target, Target::Cache(_)) && content.version.size_bytes > size_bytes {
            return error(TransferErrorKind::Changed, "it grew");
        }
        Ok(Fetched {
            digest: content.digest,
            size_bytes: content.version.size_bytes,
            version: Some(content.version.clone()),
        })
    }

    /// What a task's program writes: some much, most little.
    fn scratch_bytes(&self, task: TaskId) -> u64 {
        let drawn = hash(self.o.seed, format!("scratch {}", task.0).as_bytes());
        (self.o.scratch_bytes_max >> (drawn % 4)).max(1)
    }

    fn write_scratch(&mut self, n: usize, id: AttemptId) {
        let (bytes, free_bytes) = (self.scratch_bytes(id.0), self.free_bytes(n));
        let node = &mut self.nodes[n];
        let Some(context) = node.contexts.get_mut(&id).filter(|c| c.runs) else { return };
        node.written_bytes += bytes.min(free_bytes);
        node.scratch.insert(id, bytes.min(free_bytes));
        context.had_no_room = bytes > free_bytes;
        if context.had_no_room {
            let (epoch, takes) = (node.epoch, self.lasts(10 * MS));
            self.after(takes, Ev::Done { n, epoch, work: Work::Program { id } });
        }
    }

    fn end_program(&mut self, n: usize, id: AttemptId) {
        let Some(context) = self.nodes[n].contexts.get_mut(&id).filter(|c| c.runs) else { return };
        context.runs = false;
        let context = context.clone();
        let failed = self.fault(self.o.task_fails) || context.had_no_room;
        // It leaves nothing behind, so who looks now may find room.
        self.nodes[n].scratch.remove(&id);
        let (mut inputs_modified, mut written) = (vec![], None);
        if !context.assignment.private_inputs && self.fault(self.o.task_writes_input) {
            for (i, input) in context.assignment.inputs.iter().enumerate() {
                let (location, digest, _) = &context.seen[i];
                // Only what is linked from the cache can be written to.
                if self.nodes[n].private.contains_key(&(id, i as u32)) || location.starts_with("local/") {
                    continue;
                }
                if self.nodes[n].stored(input.object).is_some_and(|s| s.digest == *digest) {
                    let digest = *digest;
                    inputs_modified.extend(self.linked_inputs(n, id, digest));
                    self.spoil(n, digest);
                    written = Some(digest);
                    break;
                }
            }
        }
        let failure = |kind| Err(Failure { kind, message: String::new() });
        let result = if context.killed {
            failure(FailureKind::Signal(15))
        } else if failed {
            failure(FailureKind::ExitCode(1))
        } else {
            Ok(())
        };
        let outputs = &self.witnesses[&(n, id.0, id.1)].outputs;
        let sizes = outputs.iter().map(|(_, digest)| Some(self.output_bytes(*digest))).collect();
        let now = self.clock_of(n);
        let exit = Exit {
            result,
            started: now,
            exited: now,
            cpu_ns: 0,
            rss_bytes_max: 0,
            outputs: sizes,
            inputs_damaged: inputs_modified.clone(),
            inputs_modified,
            disk: (self.o.scratch_bytes_max > 0).then(|| DiskSeen {
                free_bytes: context.free_bytes,
                is_full: self.free_bytes(n) == 0,
                wrote_bytes: Some(self.nodes[n].written_bytes - context.written_before_bytes),
                is_said: false,
            }),
        };
        self.feed(n, NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit });
        // What else has these bytes has lost them, too.
        if let Some(digest) = written {
            self.find_corrupt(n, digest);
        }
    }

    /// Which inputs of an attempt are links to the cached file of these bytes.
    fn linked_inputs(&self, n: usize, id: AttemptId, digest: Digest) -> Vec<u32> {
        let node = &self.nodes[n];
        let context = &node.contexts[&id];
        let is_link = |i: &u32| {
            let (_, seen, in_place) = &context.seen[*i as usize];
            *seen == digest && !in_place && !node.private.contains_key(&(id, *i))
        };
        match context.assignment.private_inputs {
            true => vec![],
            false => (0..context.seen.len() as u32).filter(is_link).collect(),
        }
    }

    /// A cached file changes on disk; whoever runs with a link to it has wrong bytes.
    fn spoil(&mut self, n: usize, digest: Digest) {
        let running = self.nodes[n].contexts.iter().filter(|(_, c)| c.runs).map(|(id, _)| *id);
        for id in running.collect::<Vec<_>>() {
            if !self.linked_inputs(n, id, digest).is_empty() {
                self.witnesses.get_mut(&(n, id.0, id.1)).expect("it runs").spoiled = true;
            }
        }
    }

    /// The driver sees that a cached file is not what it was: all objects of these bytes are lost.
    fn find_corrupt(&mut self, n: usize, digest: Digest) {
        for object in self.nodes[n].book.objects_with(digest) {
            self.damaged.insert((n, object));
            self.feed(n, NodeEvent::FoundCorrupt { object });
        }
    }

    // ------------------------------------------------------------ faults

    fn on_fault(&mut self, fault: Fault) {
        match fault {
            Fault::KillNode(n) => self.stop_node(n),
            Fault::Stop(n) => {
                if !self.nodes[n].is_up || self.nodes[n].stopped.is_some() {
                    return;
                }
                let lasts = S + self.upto(self.o.stop_ns_max);
                self.after(lasts, Ev::Fault(Fault::Continue(n)));
                self.nodes[n].stopped = Some(vec![]);
                // Nothing is heard of it, until the dispatcher gives the connection up.
                if let Some(life) = self.nodes[n].life
                    && lasts > 3 * S
                {
                    let takes = S + self.upto(2 * S);
                    self.after(takes, Ev::Cut { life });
                    self.after(takes + MS, Ev::NodeCut { n, life });
                }
            }
            Fault::Continue(n) => {
                let waiting = self.nodes[n].stopped.take().unwrap_or_default();
                for ev in waiting {
                    self.on(ev);
                }
            }
            Fault::Cut(n) => {
                let lasts = self.lasts(self.o.cut_ns_max);
                let node = &mut self.nodes[n];
                node.cut_until = self.now.plus_ns(lasts);
                if let Some(life) = node.life {
                    self.after(0, Ev::NodeCut { n, life });
                    let takes = self.lasts(3 * S);
                    self.after(takes, Ev::Cut { life });
                }
            }
            Fault::KillDispatcher => self.kill_dispatcher(),
            Fault::HomeDown => {
                self.home.is_down = true;
                let lasts = self.lasts(5 * S);
                self.after(lasts, Ev::Fault(Fault::HomeUp));
            }
            Fault::HomeUp => self.home.is_down = false,
            Fault::ChangeHome => {
                let location = self.object();
                self.change_home(&location);
            }
            Fault::Corrupt(n) => {
                let held = self.nodes[n].book.held();
                if self.nodes[n].is_up && !held.is_empty() {
                    let (_, digest) = held[self.rng.below(held.len() as u64) as usize];
                    self.spoil(n, digest);
                    self.find_corrupt(n, digest);
                    self.flush_node(n);
                }
            }
            Fault::Cancel => {
                let accepted = |p: &Plan| match p.state {
                    PlanState::Accepted(run) if p.into.is_none() => Some(run),
                    _ => None,
                };
                let runs: Vec<RunId> = self.plans.iter().filter_map(accepted).collect();
                if runs.is_empty() {
                    return;
                }
                let run = runs[self.rng.below(runs.len() as u64) as usize];
                let whole = self.chance(200);
                let pick = self.rng.next_u64();
                self.with_process(|process, now| {
                    let core = process.core();
                    let of_run: Vec<TaskId> = core.tasks().filter(|t| core.run_of(*t) == run).collect();
                    if of_run.is_empty() {
                        return; // it is forgotten
                    }
                    let task = (!whole).then(|| of_run[(pick % of_run.len() as u64) as usize]);
                    process.cancel(now, run, task);
                });
            }
            Fault::FillDisk(n) => {
                self.nodes[n].others_bytes = self.upto(self.disk_of(n));
                let lasts = self.lasts(60 * S);
                self.after(lasts, Ev::Fault(Fault::FreeDisk(n)));
            }
            Fault::FreeDisk(n) => self.nodes[n].others_bytes = 0,
            Fault::Forget => {
                let pick = self.rng.next_u64();
                self.with_process(|process, now| {
                    let runs: Vec<RunId> = process.core().runs().map(|(run, _)| run).collect();
                    if let Some(run) = runs.get((pick % runs.len().max(1) as u64) as usize) {
                        process.forget(now, *run);
                    }
                });
            }
            Fault::FillJournal => {
                let lasts = self.lasts(30 * S);
                self.full_until = self.full_until.max(self.now.plus_ns(lasts));
                self.set_full(true);
                self.after(lasts, Ev::Fault(Fault::FreeJournal));
            }
            Fault::FreeJournal => {
                if self.now >= self.full_until {
                    self.set_full(false);
                }
            }
            Fault::Drain(n) => {
                let node = &mut self.nodes[n];
                node.is_draining = true;
                node.asks_to_go = true;
                self.flush_node(n);
            }
        }
    }

    // ------------------------------------------------------------ checks

    fn check_eviction(&self, n: usize, object: ObjectId, ended: &[AttemptId]) {
        let node = &self.nodes[n];
        for (id, context) in node.contexts.iter().filter(|(id, c)| c.runs && !ended.contains(id)) {
            for (i, input) in context.assignment.inputs.iter().enumerate() {
                let is_private = node.private.contains_key(&(*id, i as u32)) || context.seen[i].2;
                assert!(
                    input.object != object || is_private,
                    "promise 3: {object:?} is evicted on node {n}, and {id:?} runs with it"
                );
            }
        }
    }

    /// Disk and books agree.
    fn check_store(&self, n: usize) {
        let node = &self.nodes[n];
        let held: BTreeMap<ObjectId, Fetched> = node.core.held().into_iter().collect();
        for (object, state, size_bytes) in node.core.cache().iter() {
            if state == ReplicaState::Ready {
                let stored = node.stored(object);
                let expect = Some(Stored { digest: held[&object].digest, size_bytes });
                assert_eq!(stored, expect, "node {n}: {object:?} lies on disk as the cache says");
            }
        }
        let in_book = node.book.held();
        for (object, _) in &in_book {
            assert!(
                node.core.cache().is_ready(*object),
                "node {n}: {object:?} lies on disk and is in no book"
            );
        }
        // Of what has just been stored the word may be on its way.
        let mut of_objects: BTreeSet<Digest> = in_book.into_iter().map(|(_, digest)| digest).collect();
        of_objects.extend(self.queue.values().filter_map(|ev| match ev {
            Ev::Done { n: of, epoch, work: Work::Word { digest, .. } } => {
                ((*of, *epoch) == (n, node.epoch)).then_some(*digest)
            }
            _ => None,
        }));
        let left = node.files.keys().find(|digest| !of_objects.contains(digest));
        assert_eq!(left, None, "node {n}: bytes lie on disk that no object has");
    }

    fn check_reasons(&self) {
        let Some(process) = &self.process else { return };
        for task in process.core().tasks() {
            match process.core().task_state(task) {
                TaskState::Ready { reason: None } => panic!("promise 4: {task:?} waits without a reason"),
                TaskState::Waiting { n_missing: 0 } => panic!("promise 4: {task:?} waits for nothing"),
                _ => {}
            }
        }
    }

    /// A ready task starts if a node has been idle and large enough for it for a while. Some policies keep a task for the
    /// node that has its files: these may wait for as long as that, or any other that is large enough, has something to do.
    fn check_starving(&mut self) {
        let Some(process) = &self.process else { return };
        let core = process.core();
        let now = self.now;
        let mut idle: BTreeMap<ExecutorId, Timestamp> = BTreeMap::new();
        let mut large: Vec<(ExecutorId, u32, u64)> = vec![];
        for (executor, offer, _, presence) in core.executors() {
            if presence != "connected" {
                continue;
            }
            large.push((executor, offer.slots, offer.memory_bytes));
            if core.is_idle(executor) {
                idle.insert(executor, self.idle_since.get(&executor).copied().unwrap_or(now));
            }
        }
        let any_will_do =
            matches!(self.config.placement.as_str(), "affinity" | "first-available" | "max-compute-util");
        let mut ready = BTreeMap::new();
        for task in core.tasks() {
            let TaskState::Ready { reason: Some(reason) } = core.task_state(task) else { continue };
            // Who is not looked at waits for those before it.
            if reason.contains("before it in the queue") || reason.contains("just restarted") {
                continue;
            }
            let since = self.ready_since.get(&task).copied().unwrap_or(now);
            ready.insert(task, since);
            let spec = core.task_spec(task);
            let fits = |(_, slots, memory): &&(ExecutorId, u32, u64)| {
                *slots >= spec.cpus && *memory >= spec.memory_bytes.unwrap_or(0)
            };
            let waits =
                |(executor, ..): &(ExecutorId, u32, u64)| idle.get(executor).map(|at| (*at).max(since));
            let of_each: Vec<Option<Timestamp>> = large.iter().filter(fits).map(waits).collect();
            let room_since = match any_will_do {
                true => of_each.iter().flatten().min().copied(),
                false if of_each.iter().all(Option::is_some) => of_each.iter().flatten().max().copied(),
                false => None,
            };
            if let Some(at) = room_since {
                assert!(
                    !reason.starts_with("no executor has"),
                    "promise 4: {task:?} is said to wait since `{reason}`, and a node is idle that fits"
                );
                assert!(
                    now.since_ns(at) < STARVES_NS,
                    "promise 4: {task:?} does not start, and a node that fits has been idle since {at:?}: {reason}"
                );
            }
        }
        self.ready_since = ready;
        self.idle_since = idle;
    }

    fn is_over(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let all_in =
            self.plans.iter().all(|p| matches!(p.state, PlanState::Accepted(_) | PlanState::Refused));
        all_in
            && process.core().runs().all(|(_, r)| r.ended.is_some())
            && process.journal().n_durable == process.journal().records.len()
    }

    fn what_is_left(&self) -> String {
        let Some(process) = &self.process else { return "there is no dispatcher".into() };
        let mut text = String::new();
        for task in process.core().tasks() {
            let state = process.core().task_state(task);
            if !matches!(state, TaskState::Done | TaskState::Failed | TaskState::Cancelled) {
                let _ = writeln!(text, "  {task:?}: {state:?}");
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(text, "  node {n}: up {}, attempts {:?}", node.is_up, node.core.attempts());
        }
        for plan in &self.plans {
            let _ = writeln!(text, "  plan {:?}", plan.state);
        }
        text
    }

    fn check_end(&mut self) -> Summary {
        let process = self.process.take().expect("the dispatcher lives at the end");
        self.replay_dispatcher(&process);
        for n in 0..self.nodes.len() {
            if self.nodes[n].is_up {
                self.replay_node(n);
            }
        }
        let mut last_writer: BTreeMap<String, Digest> = BTreeMap::new();
        for (task, outputs) in &self.done {
            assert!(self.is_done(&process, *task), "promise 1");
            last_writer.extend(outputs.iter().filter(|(l, _)| !CatalogLocation::of(l).stays()).cloned());
        }
        for (location, digest) in last_writer {
            let at_home = self.home.find(&location).map(|c| c.digest);
            assert_eq!(at_home, Some(digest), "promise 1: {location} is at home as recorded");
        }
        let n_ended = |f: fn(&Outcome) -> bool| self.outcomes.values().filter(|o| f(o)).count() as u64;
        Summary {
            trace_hash: self.trace_hash,
            n_events: self.n_events,
            n_done: n_ended(|o| matches!(o, Outcome::Done)),
            n_failed: n_ended(|o| matches!(o, Outcome::Failed(_))),
            n_cancelled: n_ended(|o| matches!(o, Outcome::Cancelled)),
            n_revivals: self.n_revivals,
            n_collectives: process.n_collectives(),
            n_added: 0,
            n_refused: 0,
        }
    }

    fn replay_dispatcher(&self, process: &Process) {
        let mut core = Dispatcher::new(process.config().clone()).expect("it was made before");
        for (now, event, actions) in process.log() {
            let mut again = vec![];
            core.handle(*now, event.clone(), &mut again);
            assert_eq!(&again, actions, "promise 5: the dispatcher decides otherwise on {event:?}");
        }
    }

    fn replay_node(&self, n: usize) {
        let mut core = Executor::new(self.nodes[n].config.clone()).expect("it was made before");
        for (now, logged) in &self.nodes[n].log {
            let mut again = vec![];
            let actions = match logged {
                Logged::Restore(object, bytes, actions) => {
                    core.restore(*object, bytes.clone(), &mut again);
                    actions
                }
                Logged::Reconnected => {
                    core.reconnected();
                    continue;
                }
                Logged::Event(event, actions) => {
                    core.handle(*now, event.clone(), &mut again);
                    actions
                }
            };
            assert_eq!(&again, actions, "promise 5: node {n} decides otherwise");
        }
    }
}

/// The records of a journal that tell of ends, for tests that restart a dispatcher by hand.
pub fn ends(journal: &Journal) -> impl Iterator<Item = (TaskId, &Outcome)> {
    journal.records.iter().filter_map(|r| match r {
        Record::TaskEnded { task, outcome, .. } => Some((*task, outcome)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_that_hangs_is_a_violation_with_its_trace() {
        let lines = Lines::default();
        lines.lock().unwrap().push_back("the last event".into());
        let hangs = || {
            let mut n = 0u64;
            loop {
                n = std::hint::black_box(n.wrapping_add(1));
            }
        };
        let violation = watch::<()>(lines, 0.2, hangs).expect_err("it hangs");
        assert!(violation.message.contains("hangs"), "{}", violation.message);
        assert_eq!(violation.tail, ["the last event"]);
    }

    #[test]
    fn a_world_that_panics_is_a_violation_with_its_trace() {
        let lines = Lines::default();
        lines.lock().unwrap().push_back("the last event".into());
        let violation = watch::<()>(lines, 60.0, || panic!("a promise")).expect_err("it panics");
        assert_eq!((violation.message.as_str(), violation.tail.len()), ("a promise", 1));
    }
}
