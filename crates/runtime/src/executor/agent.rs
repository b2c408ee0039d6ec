//! The agent: owns the node's state machine and carries out what it says. See the parent module.

use super::fetch::{Broken, Wanted, fetch};
use super::landing::bring_home;
use super::objects::Book;
use super::slots::Slots;
use super::{DataPlane, ExecutorError, ExecutorOptions};
use crate::clock;
use crate::net::{self, NetError, Writer};
use eyas_core::array::Command;
use eyas_core::cache::CacheConfig;
use eyas_core::collective::BatchId;
use eyas_core::event::*;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_core::home_share::{HomeShare, HomeUse};
use eyas_core::*;
use eyas_data::{ClientTls, Incoming, PeerClient, PeerClientOptions, PeerServer, PeerServerOptions};
use eyas_data::{ErrorKind as DataErrorKind, LinkAbility, Store, Stored, Ticket, TicketKey};
use eyas_runner::protocol as runner;
use eyas_storage::{ErrorKind as StorageErrorKind, Homes, HomesConfig, Location, Version};
use eyas_wire::identity::{Identity, Join};
use eyas_wire::message::*;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Transfers into this node at once, and from one peer.
const TRANSFERS_MAX: u32 = 64;
const TRANSFERS_PER_PEER_MAX: u32 = 16;
const HOME_STREAMS_MAX: u32 = 16;
/// Objects up to this size share a stream with others; a larger one has its own.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// How long a peer is given to begin to receive what it shall send on.
const AWAIT_MAX: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(50);
/// How long a program may wait behind another one while a slot is idle.
const STUCK_PATIENCE: Duration = Duration::from_millis(100);
const RECONNECT_WAIT: Duration = Duration::from_millis(250);
/// Printed texts kept for a dispatcher that is away; the oldest go first.
const PRINTED_KEPT: usize = 1024;
/// How long words to the dispatcher wait for company while the slots have work. Waking it for each short
/// task costs several times what it does for the task.
const HOLD: Duration = Duration::from_millis(20);
/// So many words wait for no more.
const HOLD_N_MAX: usize = 128;
/// How long the end of this process waits for its goodbye to leave.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);

type AttemptId = (TaskId, AttemptNo);

pub enum Input {
    /// A connection is there; the dispatcher has not been greeted yet.
    Connected {
        reader: net::Reader,
        writer: Writer,
    },
    NotConnected {
        error: NetError,
    },
    Welcomed {
        welcome: Welcome,
        life: u64,
    },
    FromDispatcher {
        batch: Vec<ToExecutor>,
        life: u64,
    },
    Disconnected {
        life: u64,
    },
    Slot {
        index: usize,
        life: u64,
        reports: Vec<runner::SlotReport>,
    },
    SlotGone {
        index: usize,
        life: u64,
    },
    /// Something that ran on a thread of its own is over.
    Event(NodeEvent),
    /// So is a transfer, before its end: the next source need not send these bytes again.
    BrokenOff {
        object: ObjectId,
        begun: Incoming,
        event: NodeEvent,
    },
    /// A serving thread found an entry of the cache changed.
    FoundCorrupt(eyas_data::Digest),
    Stop {
        reason: String,
    },
}

/// Variables that a program gets which may add tasks to its run: the join file, and the run's number.
const JOIN_VARIABLE: &str = "EYAS_JOIN";
const RUN_VARIABLE: &str = "EYAS_RUN";

/// What the agent knows of an attempt beyond the state machine.
struct Context {
    spec: eyas_core::array::TaskSpec,
    run: RunId,
    inputs: Vec<ObjectId>,
    outputs: Vec<ObjectId>,
    key: u64,
    slot: Option<usize>,
    started: Option<Timestamp>,
    /// Where the outputs are until they are taken.
    sandbox: Option<PathBuf>,
    output_states: Vec<runner::OutputState>,
    /// Taken back from a slot to be run by another one.
    withdrawn: bool,
    run_spec: Option<runner::RunSpec>,
}

struct Link {
    writer: Writer,
    welcomed: bool,
    /// Changes of the cache since the hello, which listed what it held then.
    since_hello: Vec<NodeMessage>,
    out: Vec<FromExecutor>,
}

#[derive(Default)]
struct Counters {
    local_bytes: u64,
    peer_bytes: u64,
    home_read_bytes: u64,
    home_written_bytes: u64,
    program_cpu_ns: u64,
}

pub struct Agent {
    options: ExecutorOptions,
    dir: PathBuf,
    identity: Identity,
    inputs: mpsc::UnboundedSender<Input>,
    core: Executor,
    actions: Vec<NodeAction>,
    book: Book,
    store: Store,
    homes: Homes,
    /// What this executor keeps to, and what the dispatcher knows of its use.
    home_share: HomeShare,
    home_use: HomeUse,
    slots: Slots,
    _server: PeerServer,
    client: Arc<PeerClient>,
    data_id: u32,
    data_address: String,
    link: Option<Link>,
    life: u64,
    known_as: Option<(u64, ExecutorId)>,
    /// Whose it is, in a group of dispatchers, and where that was last.
    member: Option<MemberId>,
    address: Option<String>,
    /// Tries to connect in vain since it last was welcome.
    n_tries: u32,
    /// Where it goes when it has nothing left.
    going: Option<(MemberId, String)>,
    settings: Settings,
    clock_ahead_ns: i128,
    peers: HashMap<ExecutorId, (String, u32)>,
    permits: HashMap<(ObjectId, ExecutorId), Permit>,
    /// First bytes of objects whose source broke off, until the next one is asked or there is none.
    begun: HashMap<ObjectId, Incoming>,
    attempts: BTreeMap<AttemptId, Context>,
    by_key: HashMap<u64, AttemptId>,
    next_key: u64,
    counters: Counters,
    /// What programs printed while no dispatcher listened.
    printed: VecDeque<Printed>,
    last_contact: Instant,
    last_error: String,
    next_status: Instant,
    /// When the words that wait for company are sent at the latest.
    send_by: Option<Instant>,
    stop: Option<String>,
}

impl Agent {
    pub fn new(
        options: ExecutorOptions,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> Result<Agent, ExecutorError> {
        let mut options = options;
        // Programs that are told of it run elsewhere.
        options.join = std::path::absolute(&options.join).unwrap_or(options.join);
        let dir_error = |source| ExecutorError::Dir { path: options.dir.display().to_string(), source };
        std::fs::create_dir_all(&options.dir).map_err(dir_error)?;
        let dir = options.dir.canonicalize().map_err(dir_error)?;
        let join = Join::read(&options.join)?;
        let store = Store::open(&dir, options.cache_bytes)?;
        let sandboxes = dir.join("sandbox");
        let private = dir.join("private");
        for d in [&sandboxes, &private] {
            std::fs::create_dir_all(d).map_err(dir_error)?;
        }
        // The store's lock says that no other executor lives here, so what is left is nobody's.
        eyas_runner::sandbox::clean_leftovers(&sandboxes, |_| false)?;
        for entry in std::fs::read_dir(&private).map_err(dir_error)?.flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
        match store.links_to(&sandboxes)? {
            LinkAbility::HardLink => {}
            LinkAbility::Reflink => {
                eprintln!("eyas: {}: hard links are refused, inputs are reflinked", dir.display())
            }
            LinkAbility::Copy => {
                eprintln!("eyas: {}: hard links are refused, inputs are copied", dir.display())
            }
        }
        let core_config = ExecutorConfig {
            slots: options.slots,
            cache: CacheConfig {
                budget_bytes: options.cache_bytes,
                eviction: options.eviction.clone(),
                seed: u64::from(std::process::id()),
            },
            transfers_max: TRANSFERS_MAX,
            transfers_per_peer_max: TRANSFERS_PER_PEER_MAX,
            home_streams_max: HOME_STREAMS_MAX,
        };
        let mut core = Executor::new(core_config).map_err(|e| ExecutorError::Config(e.to_string()))?;
        let held: Vec<(Digest, u64)> = store.scan().into_iter().map(|(d, n)| (Digest(d.into()), n)).collect();
        let (book, held) = Book::open(&dir, &held).map_err(dir_error)?;
        let mut actions = vec![];
        for (object, bytes) in held {
            core.restore(object, bytes, &mut actions);
        }

        let listen_error = |source| ExecutorError::Listen { address: options.data_listen.clone(), source };
        let listener = TcpListener::bind(&options.data_listen).map_err(listen_error)?;
        let bound = listener.local_addr().map_err(listen_error)?;
        let data_address =
            if bound.ip().is_unspecified() { format!(":{}", bound.port()) } else { bound.to_string() };
        let key = TicketKey::from_secret(join.identity.secret());
        let data_id = data_id(&dir, bound);
        let corrupt = inputs.clone();
        let (server_tls, client_tls) = match options.data_plane {
            DataPlane::Signed => (None, None),
            DataPlane::Tls => (
                Some(join.identity.server_config()?),
                Some(ClientTls {
                    config: join.identity.client_config()?,
                    server_name: Identity::server_name(),
                }),
            ),
        };
        let server_options = PeerServerOptions {
            streams_max: 64,
            tls: server_tls,
            on_corrupt: Some(Arc::new(move |digest| {
                let _ = corrupt.send(Input::FoundCorrupt(digest));
            })),
            ..PeerServerOptions::default()
        };
        let server = PeerServer::start(
            listener,
            store.clone(),
            TicketKey::from_secret(join.identity.secret()),
            data_id,
            server_options,
        )?;
        let client_options = PeerClientOptions { tls: client_tls, ..PeerClientOptions::default() };
        let client = Arc::new(PeerClient::new(key, data_id, client_options));
        let homes =
            Homes::new(HomesConfig { home_local: options.home_local.clone(), ..HomesConfig::default() })?;
        let mut slot_config = runner::SlotConfig::new(&sandboxes);
        // The way to the secret is told only to programs that are to know it.
        let is_told = |name: &[u8]| [JOIN_VARIABLE, RUN_VARIABLE].iter().any(|v| v.as_bytes() == name);
        slot_config.base_env.retain(|(name, _)| !is_told(name));
        let slots = Slots::start(
            options.slots,
            options.exe.clone(),
            options.slot_args.clone(),
            slot_config,
            inputs.clone(),
        )?;
        let mut agent = Agent {
            dir,
            identity: join.identity,
            inputs,
            core,
            actions: vec![],
            book,
            store,
            homes,
            home_share: HomeShare::UNLIMITED,
            home_use: HomeUse::default(),
            slots,
            _server: server,
            client,
            data_id,
            data_address,
            link: None,
            life: 0,
            known_as: None,
            member: None,
            address: None,
            n_tries: 0,
            going: None,
            settings: Settings {
                lease_ns: 15_000_000_000,
                heartbeat_ns: 1_000_000_000,
                capture_head_bytes: 16 << 10,
                capture_tail_bytes: 16 << 10,
            },
            clock_ahead_ns: 0,
            peers: HashMap::new(),
            permits: HashMap::new(),
            begun: HashMap::new(),
            attempts: BTreeMap::new(),
            by_key: HashMap::new(),
            next_key: 1,
            counters: Counters::default(),
            printed: VecDeque::new(),
            last_contact: Instant::now(),
            last_error: String::new(),
            next_status: Instant::now(),
            send_by: None,
            stop: None,
            options,
        };
        agent.actions = actions;
        agent.carry_out();
        Ok(agent)
    }

    pub async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Input>) -> Result<(), ExecutorError> {
        self.connect(Duration::ZERO);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut batch = Vec::with_capacity(64);
        let mut result = Ok(());
        while self.stop.is_none() {
            batch.clear();
            tokio::select! {
                n = queue.recv_many(&mut batch, 256) => if n == 0 { break },
                _ = tick.tick() => {
                    if let Err(e) = self.on_tick() {
                        result = Err(e);
                        break;
                    }
                }
                _ = tokio::time::sleep_until(self.send_by.unwrap_or_else(Instant::now).into()),
                    if self.send_by.is_some() => self.flush(),
            }
            for input in batch.drain(..) {
                if let Err(e) = self.on_input(input) {
                    self.stop = Some(e.to_string());
                    result = Err(e);
                    break;
                }
            }
            self.carry_out();
            self.report_home();
            self.flush_or_hold();
        }
        self.flush();
        if let Some(reason) = self.stop.take()
            && let Some(link) = &self.link
        {
            link.writer.send(&vec![FromExecutor::Bye { reason }]);
        }
        self.book.flush();
        self.slots.stop().await;
        if let Some(Link { writer, .. }) = self.link.take() {
            let _ = tokio::time::timeout(LAST_WORDS_MAX, writer.finish()).await;
        }
        result
    }

    // ------------------------------------------------------------ the dispatcher

    /// Tries to reach the dispatcher, after `wait`, on a task of its own.
    fn connect(&self, wait: Duration) {
        let (inputs, path, fallback) =
            (self.inputs.clone(), self.options.join.clone(), self.identity.clone());
        let (member, known, n_tries) = (self.member, self.address.clone(), self.n_tries as usize);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // A restarted dispatcher has written a new address; while it is away there is no file.
            let address = match (Join::read(&path), known) {
                (Ok(join), known) => Ok(address_to_try(&join, member, known, n_tries)),
                (Err(_), Some(known)) => Ok(known),
                (Err(e), None) => Err(e),
            };
            let input = match address {
                Err(e) => Input::NotConnected { error: e.into() },
                Ok(address) => match net::connect(&address, &fallback).await {
                    Ok((reader, writer)) => Input::Connected { reader, writer },
                    Err(error) => Input::NotConnected { error },
                },
            };
            let _ = inputs.send(input);
        });
    }

    fn on_input(&mut self, input: Input) -> Result<(), ExecutorError> {
        match input {
            Input::Connected { reader, writer } => self.on_connected(reader, writer),
            Input::NotConnected { error } => {
                if matches!(error, NetError::NotAMember { .. }) && self.known_as.is_none() {
                    return Err(error.into());
                }
                self.last_error = error.to_string();
                self.n_tries += 1;
                self.connect(RECONNECT_WAIT);
            }
            Input::Welcomed { welcome, life } if life == self.life => return self.on_welcomed(welcome),
            Input::FromDispatcher { batch, life } if life == self.life => {
                self.last_contact = Instant::now();
                for message in batch {
                    self.on_message(message);
                }
            }
            Input::Disconnected { life } if life == self.life => {
                self.link = None;
                self.last_error = "the connection broke".into();
                self.connect(RECONNECT_WAIT);
            }
            Input::Slot { index, life, reports } if self.slots.is_current(index, life) => {
                for report in reports {
                    self.on_slot(index, report);
                }
            }
            Input::SlotGone { index, life } if self.slots.is_current(index, life) => {
                self.on_slot_gone(index)?
            }
            Input::Event(event) => self.on_event(event),
            Input::BrokenOff { object, begun, event } => {
                self.begun.insert(object, begun);
                self.on_event(event);
            }
            Input::FoundCorrupt(digest) => {
                for object in self.book.objects_with(Digest(digest.into())) {
                    self.found_damaged(object);
                }
            }
            Input::Stop { reason } => self.stop = Some(reason),
            // A word from an earlier connection or an earlier slot process.
            Input::Welcomed { .. }
            | Input::FromDispatcher { .. }
            | Input::Disconnected { .. }
            | Input::Slot { .. }
            | Input::SlotGone { .. } => {}
        }
        Ok(())
    }

    fn on_connected(&mut self, mut reader: net::Reader, writer: Writer) {
        self.life += 1;
        let life = self.life;
        let held = self.core.held().into_iter().map(|(object, bytes)| Held {
            digest: bytes.digest,
            size_bytes: bytes.size_bytes,
            // Home has no version of what stays on the nodes.
            origin: self.book.find_name(object).map(str::to_string).and_then(|name| {
                let version =
                    bytes.version.or_else(|| name.starts_with(RUN_FILE).then(HomeVersion::default))?;
                Some((name, version))
            }),
        });
        let offer = Offer {
            name: self.options.name.clone(),
            slots: self.options.slots,
            memory_bytes: self.options.memory_bytes,
            cache_bytes: self.options.cache_bytes,
            held: held.collect(),
            attempts: self.core.attempts(),
        };
        let hello = Hello::Executor(ExecutorHello {
            offer,
            data_address: self.data_address.clone(),
            data_id: self.data_id,
            known_as: self.known_as,
            member: self.member,
        });
        writer.send(&hello);
        self.link = Some(Link { writer, welcomed: false, since_hello: vec![], out: vec![] });
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            if let Ok(Some(welcome)) = reader.next::<Welcome>().await {
                if inputs.send(Input::Welcomed { welcome, life }).is_err() {
                    return;
                }
                while let Ok(Some(batch)) = reader.next::<Vec<ToExecutor>>().await {
                    if inputs.send(Input::FromDispatcher { batch, life }).is_err() {
                        return;
                    }
                }
            }
            let _ = inputs.send(Input::Disconnected { life });
        });
    }

    fn on_welcomed(&mut self, welcome: Welcome) -> Result<(), ExecutorError> {
        if let Welcome::Redirected { member, address } = welcome {
            self.redirect(member, address);
            return Ok(());
        }
        let Welcome::Executor { executor, incarnation, now, settings } = welcome else {
            let reason = match welcome {
                Welcome::Refused { reason } => reason,
                _ => "it took this executor for a client".into(),
            };
            return Err(NetError::Refused(reason).into());
        };
        if self.known_as.is_none_or(|(known, _)| known != incarnation) {
            self.book.forget_pairs();
            self.permits.clear();
        }
        self.known_as = Some((incarnation, executor));
        self.n_tries = 0;
        self.clock_ahead_ns = i128::from(now.0) - i128::from(clock::now().0);
        // Below that it is the message's way, not the clocks, that differs.
        if self.clock_ahead_ns.abs() < 100_000_000 {
            self.clock_ahead_ns = 0;
        }
        self.settings = settings;
        self.home_share.number = 0;
        self.home_use.forget_told();
        self.last_contact = Instant::now();
        self.next_status = Instant::now();
        let mut again = vec![];
        if let Some(link) = &mut self.link {
            link.welcomed = true;
            again.append(&mut link.since_hello);
            link.out.extend(self.printed.drain(..).map(|printed| FromExecutor::Printed(Box::new(printed))));
        }
        again.extend(self.core.unrecorded().cloned());
        for message in again {
            self.tell(message);
        }
        Ok(())
    }

    fn on_message(&mut self, message: ToExecutor) {
        match message {
            ToExecutor::Assign(assign) => self.on_assign(*assign),
            ToExecutor::Recall { task, attempt } => self.feed(NodeEvent::RecallRequested { task, attempt }),
            ToExecutor::Cancel { task, attempt } => self.feed(NodeEvent::CancelRequested { task, attempt }),
            ToExecutor::Prefetch { batch, inputs, locations, permits } => {
                self.on_prefetch(batch, inputs, &locations, permits)
            }
            ToExecutor::CancelPrefetch { objects } => {
                let objects = objects.into_iter().filter_map(|o| self.book.ours(o)).collect();
                self.feed(NodeEvent::PrefetchCancelled { objects });
            }
            ToExecutor::Named { objects } => {
                for (theirs, location, digest) in objects {
                    let ours = self.book.intern_known(&location, digest);
                    self.book.pair(ours, theirs);
                    if !self.core.cache().is_ready(ours) {
                        self.tell(NodeMessage::ReplicaDropped(ours));
                    }
                }
            }
            ToExecutor::Drop { objects } => {
                let objects = objects.into_iter().filter_map(|o| self.book.ours(o)).collect();
                self.feed(NodeEvent::DropRequested { objects });
            }
            ToExecutor::Recorded { ended } => {
                for (task, attempt) in ended {
                    self.feed(NodeEvent::EndRecorded { task, attempt });
                }
            }
            ToExecutor::Peers { peers } => {
                for (executor, address, data_id) in peers {
                    self.peers.insert(executor, (address, data_id));
                }
            }
            ToExecutor::Home(share) => {
                self.core.set_home_streams(share.streams.min(HOME_STREAMS_MAX));
                self.homes.set_limits(None, share.bytes_per_s);
                self.home_share = share;
            }
            ToExecutor::Beat => {}
            ToExecutor::Shutdown { reason } => self.stop = Some(reason),
            ToExecutor::Redirect { member, address } => {
                self.going = Some((member, address));
                self.go_elsewhere();
            }
        }
    }

    /// This executor belongs to another dispatcher of the group.
    fn redirect(&mut self, member: MemberId, address: String) {
        self.life += 1;
        self.link = None;
        self.member = Some(member);
        // Where it is not known, somebody who knows is asked after a while.
        let wait = if address.is_empty() { RECONNECT_WAIT } else { Duration::ZERO };
        self.n_tries = u32::from(address.is_empty());
        self.address = Some(address).filter(|a| !a.is_empty()).or(self.address.take());
        self.connect(wait);
    }

    /// Goes where it was told to go, once nothing is left to do here or to be recorded.
    fn go_elsewhere(&mut self) {
        if !self.core.attempts().is_empty() || !self.link.as_ref().is_some_and(|l| l.welcomed) {
            return;
        }
        let Some((member, address)) = self.going.take() else { return };
        self.flush();
        if let Some(link) = self.link.take() {
            let reason = format!("it goes to dispatcher {}, which has more to do", member.0 + 1);
            link.writer.send(&vec![FromExecutor::Bye { reason }]);
        }
        self.known_as = None;
        self.redirect(member, address);
    }

    fn on_assign(&mut self, assign: AssignTask) {
        let AssignTask { mut assignment, spec, permits } = assign;
        let id = (assignment.task, assignment.attempt);
        if self.attempts.contains_key(&id) {
            return;
        }
        self.adopt_inputs(&mut assignment.inputs, spec.inputs.iter().map(|(_, location)| location), permits);
        for (output, (_, location)) in assignment.outputs.iter_mut().zip(&spec.outputs) {
            let object = self.book.intern(location);
            self.book.pair(object, *output);
            *output = object;
        }
        let key = self.next_key;
        self.next_key += 1;
        self.by_key.insert(key, id);
        let context = Context {
            inputs: assignment.inputs.iter().map(|i| i.object).collect(),
            outputs: assignment.outputs.clone(),
            run: assignment.run,
            spec,
            key,
            slot: None,
            started: None,
            sandbox: None,
            output_states: vec![],
            withdrawn: false,
            run_spec: None,
        };
        self.attempts.insert(id, context);
        self.feed(NodeEvent::Assigned { assignment });
    }

    fn on_prefetch(
        &mut self,
        batch: BatchId,
        mut inputs: Vec<AssignedInput>,
        locations: &[String],
        permits: Vec<Permit>,
    ) {
        self.adopt_inputs(&mut inputs, locations.iter(), permits);
        self.feed(NodeEvent::PrefetchRequested { batch, inputs });
    }

    /// Gives inputs our numbers, and keeps the permissions to fetch them.
    fn adopt_inputs<'a>(
        &mut self,
        inputs: &mut [AssignedInput],
        locations: impl Iterator<Item = &'a String>,
        permits: Vec<Permit>,
    ) {
        let mut permits = permits.into_iter();
        for (input, location) in inputs.iter_mut().zip(locations) {
            let object = self.book.intern_known(location, input.known.as_ref().map(|k| k.digest));
            self.book.pair(object, input.object);
            input.object = object;
            if input.known.is_some() {
                for (source, permit) in input.sources.iter().zip(permits.by_ref()) {
                    self.permits.insert((object, *source), permit);
                }
            }
        }
    }

    // ------------------------------------------------------------ the core and its actions

    fn feed(&mut self, event: NodeEvent) {
        self.core.handle(self.dispatcher_now(), event, &mut self.actions);
    }

    /// Now, by the dispatcher's clock.
    fn dispatcher_now(&self) -> Timestamp {
        self.by_dispatcher(clock::now().0)
    }

    fn by_dispatcher(&self, unix_ns: u64) -> Timestamp {
        Timestamp((i128::from(unix_ns) + self.clock_ahead_ns).max(0) as u64)
    }

    fn on_event(&mut self, event: NodeEvent) {
        match &event {
            NodeEvent::TransferEnded { target, source, result: Ok(bytes) } => {
                match source {
                    Source::Home => self.counters.home_read_bytes += bytes.size_bytes,
                    Source::Peer(_) => self.counters.peer_bytes += bytes.size_bytes,
                }
                if let Target::Cache(object) = target {
                    self.book.set_digest(*object, bytes.digest);
                    if let Some(version) = &bytes.version {
                        self.book.note_origin(*object, bytes.digest, version);
                    }
                }
            }
            NodeEvent::TransferEnded {
                target: Target::Cache(object),
                source: Source::Peer(_),
                result: Err(error),
            } if error.kind == TransferErrorKind::Corrupt => {
                let location = self.book.location(*object);
                eprintln!(
                    "eyas: a peer's copy of `{location}` was refused, it is fetched from elsewhere: {}",
                    error.message
                );
            }
            NodeEvent::OutputStored { task, attempt, output, result: Ok(bytes) } => {
                if let Some(context) = self.attempts.get(&(*task, *attempt)) {
                    // Only what was asked to be cached is; the core knows, the store answers.
                    let object = context.outputs[*output as usize];
                    if self.store.find(&bytes.digest.0.into()).is_some()
                        && self.core.cache().state(object).is_some()
                    {
                        self.book.set_digest(object, bytes.digest);
                    }
                }
            }
            _ => {}
        }
        self.feed(event);
    }

    fn carry_out(&mut self) {
        // Small objects from one peer go in one stream.
        let mut fetches: BTreeMap<(ExecutorId, bool), Vec<(ObjectId, Known)>> = BTreeMap::new();
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    NodeAction::Fetch {
                        target: Target::Cache(object),
                        source: Source::Peer(peer),
                        known,
                        awaits,
                        ..
                    } => match known {
                        Some(known) => fetches.entry((peer, awaits)).or_default().push((object, known)),
                        None => self.fetch_failed(object, peer, "its digest is not known"),
                    },
                    action => self.act(action),
                }
            }
            for ((peer, awaits), objects) in std::mem::take(&mut fetches) {
                self.fetch_from_peer(peer, awaits, objects);
            }
        }
        self.begun.retain(|object, _| self.core.is_fetching(*object));
    }

    fn act(&mut self, action: NodeAction) {
        match action {
            NodeAction::AskHome { object } => self.ask_home(object),
            NodeAction::Fetch { target, object, known, size_bytes, .. } => {
                self.fetch_from_home(target, object, known, size_bytes)
            }
            NodeAction::Evict { object } => {
                if let Some(digest) = self.book.clear_digest(object) {
                    // An entry that is not there any more is as good as removed.
                    let _ = self.store.remove(&digest.0.into());
                }
            }
            NodeAction::Start { task, attempt, inputs, private_inputs } => {
                self.start((task, attempt), &inputs, private_inputs)
            }
            NodeAction::Kill { task, attempt } => {
                if let Some(context) = self.attempts.get_mut(&(task, attempt))
                    && let Some(slot) = context.slot
                {
                    // Were it on its way to another slot, it must not begin there.
                    context.run_spec = None;
                    self.slots.cancel(slot, context.key);
                }
            }
            NodeAction::StoreOutput { task, attempt, output, object: _, cache_bytes } => {
                self.store_output((task, attempt), output, cache_bytes)
            }
            NodeAction::Land { task, attempt, output, object, cached } => {
                self.land((task, attempt), output, object, cached)
            }
            NodeAction::CleanUp { task, attempt } => self.clean_up((task, attempt)),
            NodeAction::Tell { message } => self.tell(message),
        }
    }

    fn tell(&mut self, mut message: NodeMessage) {
        let about_cache = matches!(message, NodeMessage::ReplicaAdded(_) | NodeMessage::ReplicaDropped(_));
        if about_cache && let Some(link) = self.link.as_mut().filter(|l| !l.welcomed) {
            link.since_hello.push(message);
            return;
        }
        match &mut message {
            NodeMessage::ReplicaAdded(added) => match self.book.theirs(added.object) {
                Some(object) => added.object = object,
                // This dispatcher has not named it yet; the hello told of it.
                None => return,
            },
            NodeMessage::ReplicaDropped(object) => match self.book.theirs(*object) {
                Some(theirs) => *object = theirs,
                None => return,
            },
            NodeMessage::AttemptEnded { report } => {
                for input in &report.inputs {
                    if matches!(
                        input.outcome,
                        CacheOutcome::LocalHit | CacheOutcome::Joined | CacheOutcome::InPlace
                    ) {
                        self.counters.local_bytes += input.size_bytes;
                    }
                }
                let book = &self.book;
                report.inputs.retain_mut(|input| match book.theirs(input.object) {
                    Some(object) => {
                        input.object = object;
                        true
                    }
                    None => false,
                });
                if let Outcome::Failed(failure) = &mut report.outcome
                    && let Some(context) = self.attempts.get(&(report.task, report.attempt))
                {
                    explain_failure(failure, context);
                }
            }
            NodeMessage::PrefetchFailed { object, .. } => match self.book.theirs(*object) {
                Some(theirs) => *object = theirs,
                None => return,
            },
            NodeMessage::OutputsHome { .. } => {}
        }
        if let Some(link) = self.link.as_mut().filter(|l| l.welcomed) {
            link.out.push(FromExecutor::Node(message));
        }
    }

    /// Where home is limited, the dispatcher divides it by who uses it.
    fn report_home(&mut self) {
        // Before the first word of a dispatcher about its shares an answer would be to another one.
        if self.home_share.number == 0 {
            return;
        }
        let (n_streams, moved_bytes) = (self.core.n_home_streams(), self.homes.moved_bytes());
        if let Some(link) = self.link.as_mut().filter(|l| l.welcomed)
            && let Some(report) = self.home_use.report(clock::now(), n_streams, moved_bytes, self.home_share)
        {
            link.out.push(FromExecutor::Home(report));
        }
    }

    /// Sends what there is to say, now or, while the slots have more to do than this takes, a little later.
    fn flush_or_hold(&mut self) {
        let n_words = self.link.as_ref().map_or(0, |l| l.out.len());
        let busy = self.attempts.len() > 4 * self.options.slots as usize;
        if n_words == 0 {
            self.send_by = None;
        } else if !busy || n_words >= HOLD_N_MAX {
            self.flush();
        } else {
            self.send_by.get_or_insert_with(|| Instant::now() + HOLD);
        }
    }

    fn flush(&mut self) {
        self.send_by = None;
        if let Some(link) = self.link.as_mut().filter(|l| l.welcomed && !l.out.is_empty()) {
            link.writer.send(&link.out);
            link.out.clear();
        }
    }

    // ------------------------------------------------------------ transfers

    fn send_event(inputs: &mpsc::UnboundedSender<Input>, event: NodeEvent) {
        let _ = inputs.send(Input::Event(event));
    }

    fn ask_home(&mut self, object: ObjectId) {
        let (homes, inputs) = (self.homes.clone(), self.inputs.clone());
        let text = self.book.location(object).to_string();
        tokio::task::spawn_blocking(move || {
            let result = parse(&text).and_then(|location| {
                let in_place = homes.local_path(&location).is_some();
                let stat = homes.stat(&location).map_err(|e| home_error(&e))?;
                Ok(HomeAnswer { version: version_of(&stat), in_place })
            });
            Self::send_event(&inputs, NodeEvent::HomeAnswered { object, result });
        });
    }

    fn fetch_from_home(&mut self, target: Target, object: ObjectId, known: Option<Known>, size_bytes: u64) {
        // Home gives it from its beginning, into space of its own.
        self.begun.remove(&object);
        let (homes, inputs, store) = (self.homes.clone(), self.inputs.clone(), self.store.clone());
        let text = self.book.location(object).to_string();
        let private = match target {
            Target::Private { task, attempt, input } => Some(self.private_path((task, attempt), input)),
            Target::Cache(_) => None,
        };
        let by_file = self.home_share.bytes_per_s.is_none();
        tokio::task::spawn_blocking(move || {
            let read =
                || read_home(&homes, &store, &text, known.as_ref(), size_bytes, private.as_deref(), by_file);
            let result = match read() {
                // Perhaps it was only touched under our hands: the digest of another reading tells.
                Err(e) if e.kind == TransferErrorKind::Changed && known.is_some() => read(),
                result => result,
            };
            Self::send_event(&inputs, NodeEvent::TransferEnded { target, source: Source::Home, result });
        });
    }

    fn fetch_failed(&mut self, object: ObjectId, peer: ExecutorId, why: &str) {
        let error = TransferError { kind: TransferErrorKind::NotHeld, message: why.into() };
        let (target, source) = (Target::Cache(object), Source::Peer(peer));
        self.feed(NodeEvent::TransferEnded { target, source, result: Err(error) });
    }

    /// `awaits`: the peer may only be about to receive them.
    fn fetch_from_peer(&mut self, peer: ExecutorId, awaits: bool, objects: Vec<(ObjectId, Known)>) {
        let wait = if awaits { AWAIT_MAX } else { Duration::ZERO };
        let address = self.peers.get(&peer).and_then(|(address, data_id)| {
            let resolved: SocketAddr = address.to_socket_addrs().ok()?.next()?;
            Some((resolved, *data_id))
        });
        let Some((address, holder_id)) = address else {
            for (object, _) in objects {
                self.fetch_failed(object, peer, "its address is not known");
            }
            return;
        };
        let mut streams: Vec<Vec<Wanted>> = vec![vec![]];
        for (object, known) in objects {
            let Some(permit) = self.permits.get(&(object, peer)) else {
                self.fetch_failed(object, peer, "there is no permission to fetch there");
                continue;
            };
            let ticket = Ticket {
                digest: known.digest.0.into(),
                size: known.size_bytes,
                holder_id,
                requester_id: self.data_id,
                expires_unix_ms: permit.expires_unix_ms,
                mac: permit.mac,
            };
            let wanted = Wanted { object, ticket, begun: self.begun.remove(&object) };
            if known.size_bytes > SMALL_BYTES_MAX {
                streams.push(vec![wanted]);
            } else {
                streams[0].push(wanted);
            }
        }
        for stream in streams.into_iter().filter(|s| !s.is_empty()) {
            let (client, store, inputs) = (self.client.clone(), self.store.clone(), self.inputs.clone());
            tokio::task::spawn_blocking(move || {
                fetch(&client, &store, address, wait, stream, |object, end| {
                    let (result, begun) = match end {
                        Ok(Stored { digest, size, .. }) => {
                            let digest = Digest(digest.into());
                            (Ok(Fetched { digest, size_bytes: size, version: None }), None)
                        }
                        Err(Broken { error, begun }) => (Err(data_error(&error)), begun),
                    };
                    let (target, source) = (Target::Cache(object), Source::Peer(peer));
                    let event = NodeEvent::TransferEnded { target, source, result };
                    let _ = inputs.send(match begun {
                        Some(begun) => Input::BrokenOff { object, begun, event },
                        None => Input::Event(event),
                    });
                });
            });
        }
    }

    fn private_path(&self, (task, attempt): AttemptId, input: u32) -> PathBuf {
        self.dir.join("private").join(format!("{task}-{attempt}-{input}"))
    }

    // ------------------------------------------------------------ programs

    /// The cached bytes of `object` are not those that were stored.
    fn found_damaged(&mut self, object: ObjectId) {
        let location = self.book.location(object);
        eprintln!(
            "eyas: the cached copy of `{location}` was changed; it is dropped, the next task fetches it again"
        );
        self.feed(NodeEvent::FoundCorrupt { object });
    }

    /// Drops what was damaged since it was cached, and says so for the attempt that needed it. It is not
    /// the task's fault, so the attempt is repeated.
    fn refuse_damaged(&mut self, id: AttemptId, staged: &[Staged]) -> bool {
        let mut damaged = vec![];
        for staged in staged {
            if let Staged::Cached(object) = staged
                && let Some(digest) = self.book.digest(*object)
                && !damaged.contains(object)
                && self.store.open_object(&digest.0.into()).is_err()
            {
                damaged.push(*object);
            }
        }
        let Some(first) = damaged.first() else { return false };
        let name = self.book.location(*first);
        let message = format!("the cached copy of `{name}` was changed on this node's disk, and was dropped");
        for object in damaged {
            self.found_damaged(object);
        }
        self.feed(ended_before_start(id, Failure { kind: FailureKind::Node, message }));
        true
    }

    fn start(&mut self, id: AttemptId, staged: &[Staged], private_inputs: bool) {
        if self.refuse_damaged(id, staged) {
            return;
        }
        let context = &self.attempts[&id];
        let program = match &context.spec.command {
            // Nothing to run: the task is its inputs and outputs. Benchmarks use it.
            Command::Exec(argv) if argv.is_empty() => {
                let now = self.dispatcher_now();
                let n = context.outputs.len();
                let exit = Exit {
                    result: Ok(()),
                    started: now,
                    exited: now,
                    cpu_ns: 0,
                    rss_bytes_max: 0,
                    outputs: vec![None; n],
                    inputs_modified: vec![],
                    inputs_damaged: vec![],
                };
                return self.feed(NodeEvent::ProgramEnded { task: id.0, attempt: id.1, exit });
            }
            Command::Exec(argv) => runner::Program::Exec(argv.iter().map(|a| bytes(a)).collect()),
            Command::Shell(line) => runner::Program::Shell(bytes(line)),
        };
        let starts = |name: &str| match &context.spec.command {
            Command::Exec(argv) => {
                argv[0].strip_prefix("./").unwrap_or(&argv[0]) == name && argv[0].contains('/')
            }
            Command::Shell(line) => line.contains(&format!("./{name}")),
        };
        let mut inputs = vec![];
        for (i, ((name, location), staged)) in context.spec.inputs.iter().zip(staged).enumerate() {
            let source = match staged {
                Staged::Cached(object) => match self.book.digest(*object) {
                    Some(digest) => self.store.path_of(&digest.0.into()),
                    None => PathBuf::new(),
                },
                Staged::Private => self.private_path(id, i as u32),
                Staged::InPlace(_) => PathBuf::from(location),
            };
            let in_place = matches!(staged, Staged::InPlace(_));
            inputs.push(runner::Input {
                name: bytes(name),
                source: runner::ByteString::from(source.as_path()),
                // What lies at home must never be written through a link.
                mode: if private_inputs || in_place {
                    runner::InputMode::Copy
                } else {
                    runner::InputMode::Link
                },
                executable: starts(name),
            });
        }
        let mut env: Vec<_> = vec![
            (bytes("EYAS_TASK"), bytes(&context.spec.id)),
            (bytes("EYAS_ATTEMPT"), bytes(&id.1.to_string())),
        ];
        if context.spec.dynamic {
            env.push((bytes(JOIN_VARIABLE), runner::ByteString::from(self.options.join.as_path())));
            env.push((bytes(RUN_VARIABLE), bytes(&context.run.to_string())));
        }
        env.extend(context.spec.env.iter().map(|(k, v)| (bytes(k), bytes(v))));
        let spec = runner::RunSpec {
            key: context.key,
            program,
            env,
            inputs,
            outputs: context.spec.outputs.iter().map(|(name, _)| bytes(name)).collect(),
            walltime_ns: context.spec.walltime_ns,
            memory_bytes: context.spec.memory_bytes,
            capture: runner::CaptureLimits {
                head_bytes: self.settings.capture_head_bytes,
                tail_bytes: self.settings.capture_tail_bytes,
            },
            keep_sandbox: false,
        };
        let slot = self.slots.run(spec.clone());
        let context = self.attempts.get_mut(&id).expect("just seen");
        context.slot = Some(slot);
        context.run_spec = Some(spec);
    }

    fn on_slot(&mut self, index: usize, report: runner::SlotReport) {
        match report {
            runner::SlotReport::Ready { .. } => {}
            runner::SlotReport::Refused { message } => {
                self.stop = Some(format!("a slot cannot work: {message}"));
            }
            runner::SlotReport::Started { key, .. } => {
                let now = self.dispatcher_now();
                if let Some(context) = self.by_key.get(&key).and_then(|id| self.attempts.get_mut(id)) {
                    context.started = Some(now);
                }
            }
            runner::SlotReport::Ended(report) => self.on_ended(index, *report),
        }
    }

    fn on_ended(&mut self, index: usize, report: runner::RunReport) {
        self.slots.ended(index, report.key);
        let Some(&id) = self.by_key.get(&report.key) else { return };
        let (task, attempt) = id;
        let Some(context) = self.attempts.get_mut(&id) else { return };
        if std::mem::take(&mut context.withdrawn)
            && report.exit == runner::ExitKind::Cancelled
            && let Some(spec) = context.run_spec.clone()
        {
            context.slot = Some(self.slots.run(spec));
            return;
        }
        context.run_spec = None;
        context.started = None;
        context.sandbox = report.sandbox.as_ref().map(|s| s.as_path().to_path_buf());
        let mut result = failure_of(&report, context);
        for (state, (name, location)) in report.outputs.iter().zip(&context.spec.outputs) {
            if result.is_err() {
                break;
            }
            let what = match state {
                runner::OutputState::File { .. } => continue,
                runner::OutputState::Missing => "is not there".to_string(),
                runner::OutputState::NotAFile { what } => format!("is {what}"),
            };
            let message =
                format!("the program ended well, but its declared output `{name}` (for `{location}`) {what}");
            result = Err(Failure { kind: FailureKind::OutputMissing, message });
        }
        let outputs = report.outputs.iter().map(|state| match state {
            runner::OutputState::File { size_bytes, .. } => Some(*size_bytes),
            _ => None,
        });
        let outputs = outputs.collect();
        context.output_states = report.outputs;
        let inputs_damaged = self.inputs_damaged(id);
        let mut inputs_modified = report.inputs_modified;
        inputs_modified.extend(&inputs_damaged);
        if report.stdout.total_bytes + report.stderr.total_bytes > 0 {
            let printed =
                Printed { task, attempt, stdout: captured(report.stdout), stderr: captured(report.stderr) };
            match self.link.as_mut().filter(|l| l.welcomed) {
                Some(link) => link.out.push(FromExecutor::Printed(Box::new(printed))),
                None => {
                    if self.printed.len() == PRINTED_KEPT {
                        self.printed.pop_front();
                    }
                    self.printed.push_back(printed);
                }
            }
        }
        let cpu_ns = report.usage.cpu_user_ns + report.usage.cpu_system_ns;
        self.counters.program_cpu_ns += cpu_ns;
        let unix = |t: u64| {
            if t == 0 { Timestamp(0) } else { self.by_dispatcher(t + report.times.realtime_base_ns) }
        };
        let exit = Exit {
            result,
            started: unix(report.times.spawned_ns),
            exited: unix(report.times.exited_ns),
            cpu_ns,
            rss_bytes_max: report.usage.process_rss_max_bytes.max(report.usage.tree_rss_max_bytes),
            outputs,
            inputs_modified,
            inputs_damaged,
        };
        self.feed(NodeEvent::ProgramEnded { task, attempt, exit });
    }

    /// Inputs whose cached copy somebody has written to, as the cache's seal shows. The slot process notices
    /// only a change of the very file that it linked, while the program ran.
    fn inputs_damaged(&self, id: AttemptId) -> Vec<u32> {
        let mut damaged = vec![];
        for (i, object) in self.attempts[&id].inputs.iter().enumerate() {
            let i = i as u32;
            if let Some(digest) = self.book.digest(*object)
                && self.store.modified(&digest.0.into()).unwrap_or(false)
            {
                damaged.push(i);
            }
        }
        damaged
    }

    /// A slot process ended of itself: what it had is repeated elsewhere, a new one takes its place.
    fn on_slot_gone(&mut self, index: usize) -> Result<(), ExecutorError> {
        for key in self.slots.replace(index)? {
            let Some(&(task, attempt)) = self.by_key.get(&key) else { continue };
            let message = "the process that ran it on this node ended".to_string();
            let failure = Failure { kind: FailureKind::Node, message };
            self.feed(ended_before_start((task, attempt), failure));
        }
        Ok(())
    }

    // ------------------------------------------------------------ outputs

    fn output_path(&self, id: AttemptId, output: u32) -> Option<(PathBuf, u64)> {
        let context = self.attempts.get(&id)?;
        match context.output_states.get(output as usize)? {
            runner::OutputState::File { path, n_links, .. } => {
                Some((context.sandbox.as_ref()?.join(path.as_path()), *n_links))
            }
            _ => None,
        }
    }

    fn store_output(&mut self, id: AttemptId, output: u32, cache_bytes: Option<u64>) {
        let (task, attempt) = id;
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        let path = self.output_path(id, output);
        tokio::task::spawn_blocking(move || {
            let result = match path {
                None => Err(temporary("the output is gone")),
                Some((path, n_links)) => keep_output(&store, &path, n_links, cache_bytes),
            };
            Self::send_event(&inputs, NodeEvent::OutputStored { task, attempt, output, result });
        });
    }

    fn land(&mut self, id: AttemptId, output: u32, object: ObjectId, cached: bool) {
        let (task, attempt) = id;
        let path = match (cached, self.book.digest(object)) {
            (true, Some(digest)) => Some(self.store.path_of(&digest.0.into())),
            _ => self.output_path(id, output).map(|(path, _)| path),
        };
        let cached_as = if cached { self.book.digest(object) } else { None };
        let (homes, inputs) = (self.homes.clone(), self.inputs.clone());
        let text = self.book.location(object).to_string();
        if let Some(size) = path.as_ref().and_then(|p| p.metadata().ok()).map(|m| m.len()) {
            self.counters.home_written_bytes += size;
        }
        tokio::task::spawn_blocking(move || {
            let result = match path {
                None => Err(temporary("the output is gone")),
                Some(path) => bring_home(&homes, &text, &path, cached_as),
            };
            if let (Err(error), Some(digest)) = (&result, cached_as)
                && error.kind == TransferErrorKind::Corrupt
            {
                let _ = inputs.send(Input::FoundCorrupt(digest.0.into()));
            }
            Self::send_event(&inputs, NodeEvent::OutputLanded { task, attempt, output, result });
        });
    }

    fn clean_up(&mut self, id: AttemptId) {
        let Some(context) = self.attempts.remove(&id) else { return };
        self.by_key.remove(&context.key);
        if let (Some(slot), Some(_)) = (context.slot, &context.sandbox) {
            self.slots.release(slot, context.key);
        }
        for i in 0..context.inputs.len() as u32 {
            let path = self.private_path(id, i);
            if path.exists() {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    // ------------------------------------------------------------ time

    fn on_tick(&mut self) -> Result<(), ExecutorError> {
        if self.going.is_some() {
            self.go_elsewhere();
        }
        let lease = Duration::from_nanos(self.settings.lease_ns);
        if self.link.is_none() && self.last_contact.elapsed() > lease {
            return Err(ExecutorError::LeaseEnded {
                lease_s: lease.as_secs(),
                last: self.last_error.clone(),
            });
        }
        if self.link.as_ref().is_some_and(|l| l.welcomed) && self.last_contact.elapsed() > lease {
            // The network swallowed it: treat the connection as broken and make a new one.
            self.link = None;
            self.life += 1;
            self.last_contact = Instant::now();
            self.connect(Duration::ZERO);
        }
        if let Some((slot, key)) = self.slots.find_stuck(STUCK_PATIENCE)
            && let Some(context) = self.by_key.get(&key).and_then(|id| self.attempts.get_mut(id))
            && !context.withdrawn
        {
            context.withdrawn = true;
            self.slots.cancel(slot, key);
        }
        self.feed(NodeEvent::Ticked);
        if Instant::now() >= self.next_status {
            self.next_status = Instant::now() + Duration::from_nanos(self.settings.heartbeat_ns);
            self.book.flush();
            let status = self.status();
            if let Some(link) = self.link.as_mut().filter(|l| l.welcomed) {
                link.out.push(FromExecutor::Status(Box::new(status)));
            }
        }
        Ok(())
    }

    fn status(&self) -> ExecutorStatus {
        let running = self.attempts.iter().filter_map(|(id, c)| Some((id.0, id.1, c.started?)));
        let (own, _) = clock::cpu_ns();
        ExecutorStatus {
            running: running.collect(),
            n_waiting: self.attempts.len() as u32 - self.core.n_running().min(self.attempts.len() as u32),
            cache_used_bytes: self.core.cache().used_bytes(),
            cache_n_objects: self.core.cache().n_objects() as u64,
            local_bytes: self.counters.local_bytes,
            peer_bytes: self.counters.peer_bytes,
            home_read_bytes: self.counters.home_read_bytes,
            home_written_bytes: self.counters.home_written_bytes,
            own_cpu_ns: own + self.slots.pids().iter().map(|pid| process_cpu_ns(*pid)).sum::<u64>(),
            program_cpu_ns: self.counters.program_cpu_ns,
        }
    }
}

/// Where to look for the dispatcher: first where it was, then where the join file says, in a group also at others, which
/// know where it is now.
fn address_to_try(join: &Join, member: Option<MemberId>, known: Option<String>, n_tries: usize) -> String {
    if join.members.is_empty() && member.is_none() {
        return join.address.clone();
    }
    let theirs = member.and_then(|m| join.members.get(m.0 as usize)).filter(|a| !a.is_empty());
    let mut all: Vec<&String> = known.iter().chain(theirs).chain([&join.address]).collect();
    all.extend(join.members.iter().filter(|a| !a.is_empty()));
    all[n_tries % all.len()].clone()
}

/// The end of an attempt whose program did not run, or of which nothing more is known.
fn ended_before_start((task, attempt): AttemptId, failure: Failure) -> NodeEvent {
    let exit = Exit {
        result: Err(failure),
        started: Timestamp(0),
        exited: Timestamp(0),
        cpu_ns: 0,
        rss_bytes_max: 0,
        outputs: vec![],
        inputs_modified: vec![],
        inputs_damaged: vec![],
    };
    NodeEvent::ProgramEnded { task, attempt, exit }
}

/// Processor time of another process of ours, without its children.
fn process_cpu_ns(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks * 10_000_000
}

fn bytes(text: &str) -> runner::ByteString {
    runner::ByteString(text.as_bytes().to_vec())
}

fn captured(c: runner::Captured) -> Captured {
    Captured { head: c.head.0, tail: c.tail.0, total_bytes: c.total_bytes }
}

/// A name on the data plane that no other executor of the cluster has, as good as surely.
fn data_id(dir: &Path, bound: SocketAddr) -> u32 {
    let text = format!("{} {} {bound} {}", super::host_name(), dir.display(), clock::now().0);
    let hash = blake3::hash(text.as_bytes());
    u32::from_le_bytes(hash.as_bytes()[..4].try_into().expect("four bytes"))
}

pub(super) fn parse(text: &str) -> Result<Location, TransferError> {
    Location::parse(text, Path::new("/")).map_err(|e| home_error(&e))
}

pub(super) fn version_of(stat: &eyas_storage::Stat) -> HomeVersion {
    HomeVersion { size_bytes: stat.size_bytes, stamp: stat.version.text().to_string() }
}

pub(super) fn temporary(message: &str) -> TransferError {
    TransferError { kind: TransferErrorKind::Temporary, message: message.into() }
}

pub(super) fn home_error(e: &eyas_storage::Error) -> TransferError {
    let kind = match e.kind() {
        StorageErrorKind::Changed => TransferErrorKind::Changed,
        StorageErrorKind::NoSpace => TransferErrorKind::NoSpace,
        _ if e.status() == eyas_storage::Status::Permanent => TransferErrorKind::Unavailable,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: e.to_string() }
}

fn data_error(e: &eyas_data::Error) -> TransferError {
    let kind = match e.kind {
        DataErrorKind::NotHeld => TransferErrorKind::NotHeld,
        DataErrorKind::Busy => TransferErrorKind::Busy,
        DataErrorKind::Corrupt | DataErrorKind::DigestMismatch { .. } => TransferErrorKind::Corrupt,
        DataErrorKind::NoSpace => TransferErrorKind::NoSpace,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: e.to_string() }
}

/// Reads an object from home into the cache or into a private file, hashing on the way.
///
/// Where the digest is known it alone says whether home's bytes changed: a task that runs twice writes the same bytes twice,
/// and the second time with another stamp. A size that is another one needs no reading.
fn read_home(
    homes: &Homes,
    store: &Store,
    text: &str,
    known: Option<&Known>,
    size_bytes: u64,
    private: Option<&Path>,
    by_file: bool,
) -> Result<Fetched, TransferError> {
    let location = parse(text)?;
    let mut opened = homes.open(&location, None).map_err(|e| home_error(&e))?;
    let version = version_of(&opened.stat);
    let other = known.filter(|k| !k.version.stamp.is_empty() && k.version != version);
    let new_version = opened.stat.version.clone();
    let changed = || {
        let message = match other {
            Some(known) => {
                let old = Version::from_text(known.version.stamp.clone());
                let change = Version::describe_change(&old, &new_version);
                format!("`{text}` changed since this run first read it ({change})")
            }
            None => format!(
                "`{text}` has other bytes than this run read before, with the same size and time stamp"
            ),
        };
        TransferError { kind: TransferErrorKind::Changed, message }
    };
    if other.is_some_and(|known| known.size_bytes != version.size_bytes) {
        return Err(changed());
    }
    let expected = known.map(|k| k.digest);
    let fetched = match private {
        Some(path) => {
            let mut file = File::create(path).map_err(|e| disk_error("make a private copy", &e))?;
            let mut hasher = blake3::Hasher::new();
            let mut buffer = vec![0; 256 << 10];
            let mut size_bytes = 0;
            loop {
                let n = match opened.reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => n,
                    Err(e) => return Err(home_error(&eyas_storage::Error::from_read("read", text, e))),
                };
                hasher.update(&buffer[..n]);
                file.write_all(&buffer[..n]).map_err(|e| disk_error("make a private copy", &e))?;
                size_bytes += n as u64;
            }
            let digest = Digest(*hasher.finalize().as_bytes());
            if expected.is_some_and(|e| e != digest) {
                return Err(changed());
            }
            Fetched { digest, size_bytes, version: Some(version) }
        }
        None => {
            let size = version.size_bytes;
            if size > size_bytes {
                let message =
                    format!("`{text}` grew from {size_bytes} to {size} bytes while it was being read");
                return Err(TransferError { kind: TransferErrorKind::Changed, message });
            }
            let reservation = store.reserve(size).map_err(|e| data_error(&e))?;
            let mut incoming = store.begin(reservation);
            match &opened.file {
                Some(file) if by_file => {
                    incoming.fill_from_file(file).map_err(|e| data_error(&e))?;
                    if expected.is_none() {
                        opened.check_unchanged().map_err(|e| home_error(&e))?;
                    }
                }
                _ => {
                    let mut buffer = vec![0; 256 << 10];
                    loop {
                        match opened.reader.read(&mut buffer) {
                            Ok(0) => break,
                            Ok(n) => incoming.append(&buffer[..n]).map_err(|e| data_error(&e))?,
                            Err(e) => {
                                return Err(home_error(&eyas_storage::Error::from_read("read", text, e)));
                            }
                        }
                    }
                }
            }
            let stored = incoming.finish(expected.map(|d| d.0.into())).map_err(|e| match e.kind {
                DataErrorKind::DigestMismatch { .. } => changed(),
                _ => data_error(&e),
            })?;
            Fetched { digest: Digest(stored.digest.into()), size_bytes: stored.size, version: Some(version) }
        }
    };
    Ok(fetched)
}

fn disk_error(operation: &str, e: &std::io::Error) -> TransferError {
    let kind = match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => TransferErrorKind::NoSpace,
        _ => TransferErrorKind::Temporary,
    };
    TransferError { kind, message: format!("cannot {operation} on this node: {e}") }
}

/// Hashes an output and moves it into the cache, or only hashes it.
fn keep_output(
    store: &Store,
    path: &Path,
    n_links: u64,
    cache_bytes: Option<u64>,
) -> Result<Fetched, TransferError> {
    let fetched = |stored: eyas_data::Stored| Fetched {
        digest: Digest(stored.digest.into()),
        size_bytes: stored.size,
        version: None,
    };
    match cache_bytes {
        Some(size) => {
            let reservation = store.reserve(size).map_err(|e| data_error(&e))?;
            if n_links > 1 {
                // Somebody else can still write to this file.
                let file = File::open(path).map_err(|e| disk_error("read an output", &e))?;
                let mut incoming = store.begin(reservation);
                incoming.fill_from_file(&file).map_err(|e| data_error(&e))?;
                return incoming.finish(None).map(fetched).map_err(|e| data_error(&e));
            }
            store.adopt(path, reservation).map(fetched).map_err(|e| data_error(&e))
        }
        None => {
            let mut file = File::open(path).map_err(|e| disk_error("read an output", &e))?;
            let mut hasher = blake3::Hasher::new();
            let size_bytes =
                std::io::copy(&mut file, &mut hasher).map_err(|e| disk_error("read an output", &e))?;
            Ok(Fetched { digest: Digest(*hasher.finalize().as_bytes()), size_bytes, version: None })
        }
    }
}

/// What the program's end means for the task.
fn failure_of(report: &runner::RunReport, context: &Context) -> Result<(), Failure> {
    use runner::{ExitKind, NotStartedKind, SetupKind};
    let with_last_words = |text: String| {
        let last = last_line(&report.stderr).or_else(|| last_line(&report.stdout));
        match last {
            Some(line) => format!("{text}; its last words: {line}"),
            None => text,
        }
    };
    let (kind, message) = match &report.exit {
        ExitKind::Exited(0) => return Ok(()),
        ExitKind::Exited(code) => {
            (FailureKind::ExitCode(*code), with_last_words(format!("the program ended with status {code}")))
        }
        ExitKind::Signaled { signal, core } => {
            let core = if *core { ", core dumped" } else { "" };
            let text = format!("the program was ended by signal {signal} ({}{core})", signal_name(*signal));
            (FailureKind::Signal(*signal), with_last_words(text))
        }
        ExitKind::OverWalltime => {
            let limit = context.spec.walltime_ns.unwrap_or(0) as f64 / 1e9;
            (
                FailureKind::Walltime,
                format!("the program ran longer than its walltime of {limit} s and was ended"),
            )
        }
        ExitKind::OverMemory { peak_bytes } => {
            let limit = context.spec.memory_bytes.unwrap_or(0);
            let text = format!(
                "the program used {} of memory, more than its limit of {}, and was ended",
                mebibytes(*peak_bytes),
                mebibytes(limit)
            );
            (FailureKind::Memory, text)
        }
        // Nobody asked through the state machine, which would have marked it cancelled.
        ExitKind::Cancelled => (FailureKind::Node, "the program was ended on this node".to_string()),
        ExitKind::NotStarted { kind: NotStartedKind::NoResources, message } => {
            (FailureKind::Node, message.clone())
        }
        ExitKind::NotStarted { message, .. } => (FailureKind::NotStarted, message.clone()),
        ExitKind::SetupFailed { kind: SetupKind::BadName, message } => {
            (FailureKind::NotStarted, message.clone())
        }
        ExitKind::SetupFailed { message, .. } => (FailureKind::Node, message.clone()),
    };
    Err(Failure { kind, message })
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn last_line(captured: &runner::Captured) -> Option<String> {
    let kept = if captured.tail.0.is_empty() { &captured.head.0 } else { &captured.tail.0 };
    let text = String::from_utf8_lossy(kept);
    let line = text.lines().rev().find(|l| !l.trim().is_empty())?.trim();
    let short: String = line.chars().take(200).collect();
    Some(if short.len() < line.len() { format!("{short}…") } else { short })
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGABRT => "SIGABRT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGXCPU => "SIGXCPU",
        _ => "see kill -l",
    }
}

/// Names the things that the state machine only knows by number.
fn explain_failure(failure: &mut Failure, context: &Context) {
    if failure.kind == FailureKind::InputModified && context.spec.inputs.len() == 1 {
        failure.message = format!(
            "the program wrote to its input `{}`; the cached copy was dropped and the task is repeated with a private copy",
            context.spec.inputs[0].0
        );
    }
}
