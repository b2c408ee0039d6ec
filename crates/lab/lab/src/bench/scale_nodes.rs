//! One process of emulated executors of `eyas-lab bench scale`.
//!
//! An emulated executor is the executor's state machine (`eyas_core::executor`) with its session
//! (`eyas_session::executor`) on a real connection, as in a real executor. It has no files, no slot processes and
//! no data plane: each program ends well as soon as it starts. All executors of the process share one thread.
//!
//! The process writes a line to standard output whenever its numbers change: [`ProcessNumbers`] as JSON.

use super::failed;
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::cache::CacheConfig;
use eyas_core::event::{self, NodeAction, NodeEvent, NodeMessage};
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_net::{FrameReader, Writer};
use eyas_runtime::clock;
use eyas_session::executor::link::About;
use eyas_session::executor::pace::{Beats, Retry};
use eyas_session::executor::places::place_to_try;
use eyas_session::executor::{Book, DispatcherLink, NAMES_MIN, Order, Welcomed};
use eyas_terms::{AttemptNo, TaskId, Timestamp};
use eyas_wire::identity::Join;
use eyas_wire::message::*;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// As in a real executor, whose slots and streams are counted by this.
const HOME_STREAMS_MAX: u32 = 16;
/// How often the numbers are written, if they changed.
const SAY_EVERY: Duration = Duration::from_millis(10);
/// Executors that connect at the same time. Nodes have processors of their own; thousands of handshakes at once on these
/// would all take longer than a handshake may.
const CONNECTING_MAX: usize = 16;
/// How long what was read of the join file is used.
const JOIN_AGE_MAX: Duration = Duration::from_millis(20);

#[derive(Args)]
pub struct NodesArgs {
    /// The dispatcher's join file
    #[arg(long, value_name = "FILE")]
    join: PathBuf,
    /// The number of the first executor, for its name
    #[arg(long)]
    first: u32,
    #[arg(short, long)]
    n: u32,
    #[arg(long, default_value_t = 2)]
    slots: u32,
    /// The address of this machine from which all connect
    #[arg(long)]
    source: Ipv4Addr,
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// The numbers of one process.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Deserialize, Debug)]
pub struct ProcessNumbers {
    /// The newest process of the dispatcher that any executor here was welcomed by.
    pub incarnation: u64,
    /// Executors that this process of the dispatcher has welcomed, and whose connection lasts.
    pub n_welcomed: u32,
    /// Executors that were told to end, and have.
    pub n_ended: u32,
    /// Connections that did not come about, since the start.
    pub n_failed: u64,
    /// Connections that ended after a welcome, since the start.
    pub n_broken: u64,
}

enum Input {
    Connected { node: usize, reader: FrameReader, writer: Writer },
    NotConnected { node: usize },
    Welcomed { node: usize, life: u64, welcome: Welcome },
    Heard { node: usize, life: u64, batch: Vec<ToExecutor> },
    Gone { node: usize, life: u64 },
}

pub fn emulate(args: &NodesArgs) -> Result<Exit, Fault> {
    eyas_runtime::descriptors::raise();
    if args.until_stdin_closes {
        eyas_runtime::parent::when_gone(|| std::process::exit(0));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(args))
}

async fn run(args: &NodesArgs) -> Result<Exit, Fault> {
    let (inputs, mut queue) = mpsc::unbounded_channel();
    let mut all = Nodes::new(args, inputs)?;
    (0..all.nodes.len()).for_each(|node| all.connect(node, Duration::ZERO));
    let mut say = tokio::time::interval(SAY_EVERY);
    say.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut batch = vec![];
    let mut said = ProcessNumbers::default();
    loop {
        tokio::select! {
            _ = queue.recv_many(&mut batch, 1024) => {}
            _ = say.tick() => {
                if all.seen != said {
                    said = all.seen;
                    let line = serde_json::to_string(&said).map_err(failed)?;
                    let mut out = eyas_text::raw_unless_terminal();
                    writeln!(out, "{line}")?;
                    out.flush()?;
                }
            }
        }
        for input in batch.drain(..) {
            all.take(input)?;
        }
        all.beat();
    }
}

/// All executors of this process.
struct Nodes {
    nodes: Vec<EmulatedNode>,
    door: Arc<Door>,
    inputs: mpsc::UnboundedSender<Input>,
    /// When to look whether the status of which executor is due.
    beats: BinaryHeap<Reverse<(Timestamp, usize)>>,
    seen: ProcessNumbers,
}

/// One emulated executor.
struct EmulatedNode {
    about: About,
    core: Executor,
    book: Book,
    link: DispatcherLink,
    writer: Option<Writer>,
    /// Counts connections, so that a late message of an earlier one is recognised.
    life: u64,
    attempts: BTreeSet<(TaskId, AttemptNo)>,
    actions: Vec<NodeAction>,
    beats: Beats,
    /// When it is looked next whether a status is due.
    wakes_at: Option<Timestamp>,
    retry: Retry,
    /// Tries without a welcome.
    n_tries: usize,
    has_ended: bool,
}

/// The way to the dispatcher, which all executors here share.
struct Door {
    source: IpAddr,
    join: PathBuf,
    config: Config,
    /// The join file, as it was read at that time.
    known: Mutex<(Instant, Option<Join>)>,
    connecting: Semaphore,
}

type Config = Arc<eyas_net::ClientConfig>;

impl Door {
    /// Where an executor tries to connect; `None` while there is no join file.
    fn place(&self, who: u32, n_tries: usize) -> Option<String> {
        let mut known = self.known.lock().expect("nobody panics with it");
        if known.0.elapsed() > JOIN_AGE_MAX {
            *known = (Instant::now(), Join::read(&self.join).ok());
        }
        let join = known.1.as_ref()?;
        Some(place_to_try(u64::from(who), &join.relays, &join.address, n_tries).to_owned())
    }
}

impl Nodes {
    fn new(args: &NodesArgs, inputs: mpsc::UnboundedSender<Input>) -> Result<Nodes, Fault> {
        let join = Join::read(&args.join).map_err(failed)?;
        let config = join.identity.client_config().map_err(failed)?;
        let known = Mutex::new((Instant::now(), Some(join)));
        let connecting = Semaphore::new(CONNECTING_MAX);
        let door = Door { source: args.source.into(), join: args.join.clone(), config, known, connecting };
        let nodes = (args.first..args.first + args.n).map(|number| EmulatedNode::new(number, args.slots));
        Ok(Nodes {
            nodes: nodes.collect::<Result<_, _>>()?,
            door: Arc::new(door),
            inputs,
            beats: BinaryHeap::new(),
            seen: ProcessNumbers::default(),
        })
    }

    /// Connects after `wait`, on a task of its own.
    fn connect(&self, node: usize, wait: Duration) {
        let (inputs, door) = (self.inputs.clone(), self.door.clone());
        let (who, n_tries) = (self.nodes[node].about.data_id, self.nodes[node].n_tries);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _turn = door.connecting.acquire().await;
            let connected = match door.place(who, n_tries) {
                Some(at) => eyas_net::connect_from(Some(door.source), &at, door.config.clone()).await.ok(),
                None => None,
            };
            let _ = inputs.send(match connected {
                Some((reader, writer)) => Input::Connected { node, reader, writer },
                None => Input::NotConnected { node },
            });
        });
    }

    fn take(&mut self, input: Input) -> Result<(), Fault> {
        let (number, life) = match &input {
            Input::Connected { node, .. } | Input::NotConnected { node } => (*node, self.nodes[*node].life),
            Input::Welcomed { node, life, .. }
            | Input::Heard { node, life, .. }
            | Input::Gone { node, life } => (*node, *life),
        };
        let node = &mut self.nodes[number];
        if node.life != life {
            return Ok(());
        }
        match input {
            Input::Connected { reader, writer, .. } => {
                node.life += 1;
                writer.send(&Hello::Executor(node.link.connect(&node.core, &node.book, &node.about)));
                node.writer = Some(writer);
                tokio::spawn(listen(number, node.life, reader, self.inputs.clone()));
            }
            Input::NotConnected { .. } => {
                self.seen.n_failed += 1;
                node.n_tries += 1;
                let wait = Duration::from_nanos(node.retry.failed());
                self.connect(number, wait);
            }
            Input::Welcomed { welcome, .. } => {
                node.on_welcome(welcome)?;
                node.flush();
                let incarnation = node.link.incarnation();
                if incarnation > self.seen.incarnation {
                    (self.seen.incarnation, self.seen.n_welcomed) = (incarnation, 0);
                }
                self.seen.n_welcomed += u32::from(incarnation == self.seen.incarnation);
                self.say_status(number, Timestamp(clock::monotonic_ns()));
            }
            Input::Heard { batch, .. } => {
                for message in batch {
                    node.hear(message);
                }
                node.flush();
                if node.has_ended {
                    self.seen.n_ended += 1;
                    self.seen.n_welcomed -= 1;
                    node.end();
                } else {
                    self.say_status(number, Timestamp(clock::monotonic_ns()));
                }
            }
            Input::Gone { .. } => {
                let was_welcomed = node.link.is_welcomed();
                self.seen.n_broken += u64::from(was_welcomed);
                if was_welcomed && node.link.incarnation() == self.seen.incarnation {
                    self.seen.n_welcomed -= 1;
                }
                node.link.disconnect();
                node.writer = None;
                node.life += 1;
                let wait = Duration::from_nanos(node.retry.failed());
                self.connect(number, wait);
            }
        }
        Ok(())
    }

    /// Sends each status that is due.
    fn beat(&mut self) {
        let now = Timestamp(clock::monotonic_ns());
        while let Some(Reverse((at, number))) = self.beats.peek().copied().filter(|due| due.0.0 <= now) {
            self.beats.pop();
            if self.nodes[number].wakes_at == Some(at) {
                self.nodes[number].wakes_at = None;
                self.say_status(number, now);
            }
        }
    }

    /// Sends the status of an executor if it is due, and sees that the next one is sent in time.
    fn say_status(&mut self, number: usize, now: Timestamp) {
        let node = &mut self.nodes[number];
        if !node.link.is_welcomed() {
            return;
        }
        let is_idle = node.attempts.is_empty();
        if node.beats.take_due(now, is_idle) {
            node.feed(NodeEvent::Ticked);
            node.link.forget_names(&node.core, &mut node.book, NAMES_MIN);
            node.link.say(FromExecutor::Status(Box::default()));
            node.flush();
        }
        let due = node.beats.due(is_idle).unwrap_or(now);
        if node.wakes_at.is_none_or(|at| due < at) {
            node.wakes_at = Some(due);
            self.beats.push(Reverse((due, number)));
        }
    }
}

/// Passes on what the dispatcher says on one connection.
async fn listen(node: usize, life: u64, mut reader: FrameReader, inputs: mpsc::UnboundedSender<Input>) {
    if let Ok(Some(welcome)) = reader.next::<Welcome>().await {
        let _ = inputs.send(Input::Welcomed { node, life, welcome });
        while let Ok(Some(batch)) = reader.next::<Vec<ToExecutor>>().await {
            if inputs.send(Input::Heard { node, life, batch }).is_err() {
                return;
            }
        }
    }
    let _ = inputs.send(Input::Gone { node, life });
}

impl EmulatedNode {
    fn new(number: u32, slots: u32) -> Result<EmulatedNode, Fault> {
        let cache_bytes = 1 << 30;
        let config = ExecutorConfig {
            slots,
            equipment: Default::default(),
            cache: CacheConfig {
                budget_bytes: cache_bytes,
                eviction: "lru".into(),
                seed: u64::from(number),
                groups: true,
            },
            transfers_max: 64,
            transfers_per_peer_max: 16,
            home_streams_max: HOME_STREAMS_MAX,
            inputs_in_turn: false,
            small_bytes_max: 0,
            small_per_peer_max: 0,
            memory: Default::default(),
        };
        Ok(EmulatedNode {
            about: About {
                name: format!("emulated-{number}"),
                slots,
                equipment: Default::default(),
                memory_bytes: 1 << 30,
                cache_bytes,
                cache_memory_bytes: 0,
                data_address: ":7".into(),
                data_id: number,
                walltime: None,
                nearby: Default::default(),
            },
            core: Executor::new(config).map_err(failed)?,
            book: Book::default(),
            link: DispatcherLink::default(),
            writer: None,
            life: 0,
            attempts: BTreeSet::new(),
            actions: vec![],
            beats: Beats::new(1_000_000_000),
            wakes_at: None,
            retry: Retry::new(u64::from(number)),
            n_tries: 0,
            has_ended: false,
        })
    }

    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), Fault> {
        match self.link.welcome(welcome, &mut self.core, &mut self.book, &self.about) {
            Welcomed::Taken { settings, again, .. } => {
                self.beats = Beats::new(settings.heartbeat_ns);
                self.retry.succeeded();
                self.n_tries = 0;
                for message in again {
                    self.link.tell(&self.book, message);
                }
                Ok(())
            }
            Welcomed::Elsewhere(why) => Err(failed(why)),
            Welcomed::Redirected(..) => Err(failed("a single dispatcher sends nobody away")),
            Welcomed::Refused(reason) => Err(failed(reason)),
        }
    }

    fn hear(&mut self, message: ToExecutor) {
        let attempts = &self.attempts;
        let has_attempt = |task, attempt| attempts.contains(&(task, attempt));
        match self.link.hear(message, &self.core, &mut self.book, HOME_STREAMS_MAX, has_attempt) {
            Order::Feed(events) => events.into_iter().for_each(|event| self.feed(event)),
            Order::Begin { assignment, .. } => {
                self.attempts.insert((assignment.task, assignment.attempt));
                self.feed(NodeEvent::Assigned { assignment });
            }
            Order::Prefetch { event, .. } | Order::ShareHome { event, .. } => self.feed(event),
            Order::RemoveParts(attempts) => {
                let tasks = attempts.into_iter().map(|(task, ..)| task).collect();
                self.link.tell(&self.book, NodeMessage::PartsRemoved { tasks });
            }
            Order::LearnQueries(_) => {}
            Order::ProbePeers(peers) => {
                let round_trips = peers.into_iter().map(|peer| (peer, 100_000)).collect();
                self.link.tell(&self.book, NodeMessage::PeersProbed { round_trips });
            }
            Order::FindPlaces(objects) => {
                let asked = objects.into_iter().map(|(object, _)| object).collect();
                self.link.tell(&self.book, NodeMessage::PlacesFound { asked, placed: vec![] });
            }
            Order::Look { ask, .. } => {
                let printed = Box::default();
                self.link.say(FromExecutor::Looked { ask, has_begun: false, printed });
            }
            // There are no transfers, no home, no output and no other dispatcher.
            Order::MeetPeers(_) | Order::Move | Order::SendPrinted { .. } | Order::Admit { .. } => {}
            Order::RenewLease { idle_ns } => self.beats.answered(idle_ns),
            Order::End { .. } => self.has_ended = true,
        }
    }

    /// One event into the state machine. Whatever program it starts has ended well at once.
    fn feed(&mut self, event: NodeEvent) {
        let now = clock::now();
        let mut actions = std::mem::take(&mut self.actions);
        self.core.handle(now, event, &mut actions);
        let mut next = 0;
        while next < actions.len() {
            match &actions[next] {
                NodeAction::Start { task, attempt, .. } => {
                    let (task, attempt) = (*task, *attempt);
                    let exit = event::Exit {
                        result: Ok(()),
                        started: now,
                        exited: now,
                        cpu_ns: 0,
                        rss_bytes_max: 0,
                        left: None,
                        found: vec![],
                        outputs: vec![],
                        inputs_modified: vec![],
                        inputs_damaged: vec![],
                        disk: None,
                    };
                    self.core.handle(now, NodeEvent::ProgramEnded { task, attempt, exit }, &mut actions);
                }
                NodeAction::CleanUp { task, attempt } => {
                    self.attempts.remove(&(*task, *attempt));
                }
                NodeAction::Tell { message } => {
                    self.link.tell(&self.book, message.clone());
                }
                // Tasks of this benchmark have no files.
                _ => {}
            }
            next += 1;
        }
        actions.clear();
        self.actions = actions;
    }

    fn flush(&mut self) {
        let words = self.link.take_words();
        if let Some(writer) = self.writer.as_ref().filter(|_| !words.is_empty()) {
            writer.send(&words);
        }
    }

    /// Says goodbye, as an executor that was told to end.
    fn end(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.send(&vec![FromExecutor::Bye { reason: "the dispatcher ended it".into() }]);
        }
        self.link.disconnect();
        self.life += 1;
    }
}
