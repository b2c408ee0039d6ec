//! The agent: owns the node's state machine and carries out what it says. See the parent module.

use super::landings::Landings;
use super::origins::Origins;
use super::rights::{LandingFence, Rights};
use super::slots::{Slots, WrittenBytes};
use super::watch::{Watch, Watched, Written};
use eyas_text::shown;
mod inputs;
mod link;
mod programs;

use super::{DataPlane, ExecutorError, ExecutorOptions, LastTry};
use crate::clock::{self, DispatchersClock};
use crate::descriptors;
use eyas_core::array::{Command, TaskSpec};
use eyas_core::cache::CacheConfig;
use eyas_core::event::*;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_core::home_share::{HomeShare, HomeUse};
use eyas_core::*;
use eyas_data::{ClientTls, Incoming, PeerClient, PeerClientOptions, PeerServer, PeerServerOptions};
use eyas_data::{Halt, LinkAbility, Store, Stored, Ticket, TicketKey};
use eyas_net::{self as net, NetError, Writer};
use eyas_runner::protocol as runner;
use eyas_session::executor::link::About;
use eyas_session::executor::{Book, DispatcherLink, Order, unless_dropped};
use eyas_storage::{Homes, HomesConfig};
use eyas_wire::identity::{Identity, Join};
use eyas_wire::message::*;
use link::RECONNECT_WAIT;
use programs::{JOIN_VARIABLE, RUN_VARIABLE, process_cpu_ns};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Transfers into this node at once, and from one peer.
const TRANSFERS_MAX: u32 = 64;
const TRANSFERS_PER_PEER_MAX: u32 = 16;
const HOME_STREAMS_MAX: u32 = 16;
const TICK: Duration = Duration::from_millis(50);
/// How long a program may wait behind another one while a slot is idle.
const STUCK_PATIENCE: Duration = Duration::from_millis(100);
/// How long the end of this process waits for its goodbye to leave.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);

/// And how long it waits for landings to remove what they have begun.
const LAST_LANDINGS_MAX: Duration = Duration::from_secs(2);

type AttemptId = (TaskId, AttemptNo);

pub enum Input {
    /// So much had all programs written when slot processes had come and gone so often.
    ProgramsWrote {
        bytes: u64,
        n_lives: u64,
    },
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
    /// Inputs of a program that has ended were read through, as somebody may have written to them.
    Looked {
        report: Box<runner::RunReport>,
        whole: Vec<Watched>,
    },
    /// Something that ran on a thread of its own is over.
    Event(NodeEvent),
    /// So is a transfer, before its end: the next source need not send these bytes again.
    BrokenOff {
        object: ObjectId,
        begun: Incoming,
        event: NodeEvent,
    },
    /// What was left at home by attempts of these tasks is gone.
    PartsRemoved {
        tasks: Vec<TaskId>,
    },
    /// A serving thread found an entry of the cache changed.
    FoundCorrupt(eyas_data::Digest),
    Stop {
        reason: String,
    },
}

/// What the agent knows of an attempt beyond the state machine.
struct Context {
    spec: TaskSpec,
    run: RunId,
    inputs: Vec<ObjectId>,
    outputs: Vec<ObjectId>,
    key: u64,
    slot: Option<usize>,
    started: Option<Timestamp>,
    /// Where the outputs are until they are taken.
    sandbox: Option<PathBuf>,
    output_states: Vec<runner::OutputState>,
    /// Outputs that were put into the cache, by position.
    cached_outputs: Vec<u32>,
    /// Taken back from a slot to be run by another one.
    withdrawn: bool,
    run_spec: Option<runner::RunSpec>,
    /// What was known of the bytes that programs had written when it was handed to a slot.
    written_before_bytes: u64,
    /// Inputs that are linked into its sandbox.
    watched: Vec<(u32, Watched)>,
    /// The dispatcher process that gave it.
    incarnation: u64,
    repeated: bool,
    /// Stops the hashing and landing of its outputs.
    halt: Halt,
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
    origins: Origins,
    store: Store,
    homes: Homes,
    /// Whether results may appear at home, and what of them lies there half.
    rights: Rights,
    landings: Landings,
    /// Stops everything that threads of this process do.
    halt: Halt,
    /// What this executor keeps to, and what the dispatcher knows of its use.
    home_share: HomeShare,
    home_use: HomeUse,
    slots: Slots,
    /// `None`: the system does not tell who writes to inputs, so they are copied.
    watch: Option<Watch>,
    _server: PeerServer,
    client: Arc<PeerClient>,
    about: About,
    /// What is said to the dispatcher, and the way on which it leaves.
    link: DispatcherLink,
    writer: Option<Writer>,
    life: u64,
    /// Where the dispatcher was last, in a group of them.
    address: Option<String>,
    /// Tries to connect in vain since it last was welcome.
    n_tries: u32,
    settings: Settings,
    dispatchers_clock: DispatchersClock,
    /// Cached bytes that nobody needs and that the disk would not let go of.
    unremoved: Vec<Digest>,
    /// The room on the cache's disk is being looked at.
    is_measuring: Arc<AtomicBool>,
    peers: HashMap<ExecutorId, (String, u32)>,
    permits: HashMap<(ObjectId, ExecutorId), Permit>,
    /// First bytes of objects whose source broke off, until the next one is asked or there is none.
    begun: HashMap<ObjectId, Incoming>,
    written: WrittenBytes,
    /// How many slot processes have taken the place of another one.
    n_slot_lives: u64,
    attempts: BTreeMap<AttemptId, Context>,
    by_key: HashMap<u64, AttemptId>,
    next_key: u64,
    counters: Counters,
    /// Who wants to know what a program has printed so far, by the key of its attempt.
    looks: HashMap<u64, Vec<u64>>,
    /// What programs printed while no dispatcher listened.
    printed: VecDeque<Printed>,
    last_contact: Instant,
    last_try: LastTry,
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
            own_dir(d).map_err(dir_error)?;
        }
        let (landings, left_at_home) = Landings::open(&dir).map_err(dir_error)?;
        // The store's lock says that no other executor lives here, so what is left is nobody's.
        eyas_runner::reaper::end_inhabitants(&sandboxes);
        eyas_runner::sandbox::clean_leftovers(&sandboxes, |_| false)?;
        for entry in std::fs::read_dir(&private).map_err(dir_error)?.flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
        match store.links_to(&sandboxes)? {
            LinkAbility::HardLink => {}
            LinkAbility::Reflink => {
                eyas_text::say!("eyas: {}: hard links are refused, inputs are reflinked", dir.display())
            }
            LinkAbility::Copy => {
                eyas_text::say!("eyas: {}: hard links are refused, inputs are copied", dir.display())
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
            inputs_in_turn: false,
        };
        let mut core = Executor::new(core_config).map_err(|e| ExecutorError::Config(e.to_string()))?;
        let held: Vec<(Digest, u64)> = store.scan().into_iter().map(|(d, n)| (Digest(d.into()), n)).collect();
        let (origins, book, held) = Origins::open(&dir, &held).map_err(dir_error)?;
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
        let dispatchers_clock = DispatchersClock::default();
        let ticket_clock = dispatchers_clock.clone();
        let descriptors = descriptors::raise();
        let server_options = PeerServerOptions {
            streams_max: 64,
            connections_max: descriptors.share(4, 64, 1024),
            strangers_max: descriptors.share(16, 16, 128),
            clock: Arc::new(move || ticket_clock.now().0 / 1_000_000),
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
        if !left_at_home.is_empty() {
            let (homes, landings) = (homes.clone(), landings.clone());
            tokio::task::spawn_blocking(move || landings.sweep(&homes, &left_at_home));
        }
        let watch = Watch::new()
            .inspect_err(|e| {
                eprintln!(
                    "eyas: {}: the system does not tell who writes to files ({e}), so inputs are copied; raise \
                     fs.inotify.max_user_instances to have them linked",
                    dir.display()
                )
            })
            .ok();
        let mut slot_config = runner::SlotConfig::new(&sandboxes);
        // The way to the secret is told only to programs that are to know it.
        let is_told = |name: &[u8]| [JOIN_VARIABLE, RUN_VARIABLE].iter().any(|v| v.as_bytes() == name);
        slot_config.descriptors_max = Some(descriptors.before);
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
            origins,
            store,
            homes,
            rights: Rights::default(),
            landings,
            halt: Halt::default(),
            home_share: HomeShare::UNLIMITED,
            home_use: HomeUse::default(),
            slots,
            watch,
            _server: server,
            client,
            about: About {
                name: options.name.clone(),
                slots: options.slots,
                memory_bytes: options.memory_bytes,
                cache_bytes: options.cache_bytes,
                data_address,
                data_id,
            },
            link: DispatcherLink::default(),
            writer: None,
            life: 0,
            address: None,
            n_tries: 0,
            settings: Settings {
                lease_ns: 15_000_000_000,
                heartbeat_ns: 1_000_000_000,
                capture_head_bytes: 16 << 10,
                capture_tail_bytes: 16 << 10,
            },
            dispatchers_clock,
            unremoved: vec![],
            is_measuring: Arc::default(),
            peers: HashMap::new(),
            permits: HashMap::new(),
            begun: HashMap::new(),
            written: WrittenBytes::default(),
            n_slot_lives: 0,
            attempts: BTreeMap::new(),
            by_key: HashMap::new(),
            next_key: 1,
            counters: Counters::default(),
            looks: HashMap::new(),
            printed: VecDeque::new(),
            last_contact: Instant::now(),
            last_try: LastTry::default(),
            next_status: Instant::now(),
            send_by: None,
            stop: None,
            options,
        };
        agent.actions = actions;
        eyas_text::say!(
            "eyas: executor {} serves its cache on {bound} and joins with {}",
            shown(&agent.options.name),
            eyas_text::shown_path(&agent.options.join)
        );
        if let Ok((room_bytes, disk_bytes)) = agent.store.room_bytes() {
            agent.feed(NodeEvent::SpaceMeasured { room_bytes, disk_bytes });
        }
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
        if let Some(reason) = self.stop.as_ref().filter(|_| result.is_ok()) {
            eyas_text::say!("eyas: this executor ends: {}", eyas_text::line_of(reason));
        }
        if let Some(reason) = self.stop.take()
            && let Some(writer) = &self.writer
        {
            writer.send(&vec![FromExecutor::Bye { reason }]);
        }
        self.halt.stop();
        self.origins.flush();
        let landings = self.landings.clone();
        self.slots.stop().await;
        await_end(&landings).await;
        if let Some(writer) = self.writer.take() {
            let _ = tokio::time::timeout(LAST_WORDS_MAX, writer.finish()).await;
        }
        result
    }

    // ------------------------------------------------------------ the dispatcher

    fn on_input(&mut self, input: Input) -> Result<(), ExecutorError> {
        match input {
            Input::Connected { reader, writer } => self.on_connected(reader, writer),
            Input::NotConnected { error } => {
                if matches!(error, NetError::NotAMember { .. }) && self.link.known_as().is_none() {
                    return Err(error.into());
                }
                self.last_try = LastTry::Failed(error.to_string());
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
                let lease_s = self.settings.lease_ns / 1_000_000_000;
                eyas_text::say!(
                    "eyas: the connection to the dispatcher broke; trying again for up to {lease_s} s"
                );
                self.disconnect();
                self.last_try = LastTry::Failed("the connection broke".into());
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
            Input::ProgramsWrote { bytes, n_lives } if n_lives == self.n_slot_lives => {
                self.written.saw(bytes)
            }
            Input::ProgramsWrote { .. } => {}
            Input::Looked { report, whole } => {
                if let Some(watch) = &mut self.watch {
                    whole.into_iter().for_each(|watched| watch.settle(watched));
                }
                self.take_end(*report);
            }
            Input::Event(event) => self.on_event(event),
            Input::BrokenOff { object, begun, event } => {
                self.begun.insert(object, begun);
                self.on_event(event);
            }
            Input::PartsRemoved { tasks } => self.tell(NodeMessage::PartsRemoved { tasks }),
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

    fn on_message(&mut self, message: ToExecutor) {
        let has_attempt = |task, attempt| self.attempts.contains_key(&(task, attempt));
        let order = self.link.hear(message, &self.core, &mut self.book, HOME_STREAMS_MAX, has_attempt);
        match order {
            Order::Feed(events) => events.into_iter().for_each(|event| self.feed(event)),
            Order::Begin { assignment, spec, permits } => {
                self.permits.extend(permits);
                self.begin(assignment, spec);
            }
            Order::Prefetch { permits, event } => {
                self.permits.extend(permits);
                self.feed(event);
            }
            Order::ShareHome { share, event } => {
                self.feed(event);
                self.homes.set_limits(None, share.bytes_per_s);
                self.home_share = share;
            }
            Order::MeetPeers(peers) => {
                for (executor, address, data_id) in peers {
                    self.peers.insert(executor, (address, data_id));
                }
            }
            Order::RemoveParts(attempts) => self.remove_parts(attempts),
            Order::Look { ask, task, attempt } => self.look(ask, (task, attempt)),
            Order::RenewLease => self.rights.was_answered(),
            Order::Move => self.go_elsewhere(),
            Order::End { reason } => self.stop = Some(reason),
        }
    }

    fn begin(&mut self, assignment: Box<Assignment>, spec: TaskSpec) {
        let id = (assignment.task, assignment.attempt);
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
            cached_outputs: vec![],
            withdrawn: false,
            run_spec: None,
            written_before_bytes: 0,
            watched: vec![],
            incarnation: self.link.incarnation(),
            repeated: assignment.repeated,
            halt: self.halt.child(),
        };
        self.attempts.insert(id, context);
        self.feed(NodeEvent::Assigned { assignment });
    }

    // ------------------------------------------------------------ the core and its actions

    fn feed(&mut self, event: NodeEvent) {
        self.core.handle(self.dispatcher_now(), event, &mut self.actions);
    }

    /// Now, by the dispatcher's clock.
    fn dispatcher_now(&self) -> Timestamp {
        self.dispatchers_clock.now()
    }

    fn on_event(&mut self, event: NodeEvent) {
        let event = match self.is_for_cache(&event) {
            true => unless_dropped(event, |digest| self.store.find(&digest.0.into()).is_some()),
            false => event,
        };
        match &event {
            NodeEvent::TransferEnded { target, source, result: Ok(bytes) } => {
                match source {
                    Source::Home => self.counters.home_read_bytes += bytes.size_bytes,
                    Source::Peer(_) => self.counters.peer_bytes += bytes.size_bytes,
                }
                if let Target::Cache(object) = target {
                    self.book.set_digest(*object, bytes.digest);
                    if let Some(version) = &bytes.version {
                        self.origins.note(self.book.location(*object), bytes.digest, version);
                    }
                }
            }
            NodeEvent::TransferEnded {
                target: Target::Cache(object),
                source: Source::Peer(_),
                result: Err(error),
            } if error.kind == TransferErrorKind::Corrupt => {
                let location = self.book.location(*object);
                eyas_text::say!(
                    "eyas: a peer's copy of {location} was refused, it is fetched from elsewhere: {}",
                    error.message,
                    location = shown(location)
                );
            }
            NodeEvent::OutputStored { task, attempt, output, result: Ok(bytes) } => {
                if let Some(context) = self.attempts.get(&(*task, *attempt))
                    && context.cached_outputs.contains(output)
                {
                    self.book.set_digest(context.outputs[*output as usize], bytes.digest);
                }
            }
            _ => {}
        }
        self.feed(event);
    }

    /// The bytes that came were to be kept in the cache.
    fn is_for_cache(&self, event: &NodeEvent) -> bool {
        match event {
            NodeEvent::TransferEnded { target, .. } => matches!(target, Target::Cache(_)),
            NodeEvent::OutputStored { task, attempt, output, .. } => {
                let context = self.attempts.get(&(*task, *attempt));
                context.is_some_and(|context| context.cached_outputs.contains(output))
            }
            _ => false,
        }
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
            NodeAction::Fetch { target, object, known, size_bytes, watched, .. } => {
                self.fetch_from_home(target, object, known, size_bytes, watched)
            }
            NodeAction::Evict { object } => {
                if let Some(digest) = self.book.clear_digest(object) {
                    self.remove(digest);
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
            NodeAction::Halt { task, attempt } => {
                if let Some(context) = self.attempts.get(&(task, attempt)) {
                    context.halt.stop();
                }
            }
            NodeAction::StoreOutput { task, attempt, output, object: _, cache_bytes } => {
                self.store_output((task, attempt), output, cache_bytes)
            }
            NodeAction::Land { task, attempt, output, object, cached } => {
                self.land((task, attempt), output, object, cached)
            }
            NodeAction::DropPrivate { task, attempt, input } => {
                // One that is not there any more is as good as removed.
                let _ = std::fs::remove_file(self.private_path((task, attempt), input));
            }
            NodeAction::CleanUp { task, attempt } => self.clean_up((task, attempt)),
            NodeAction::Tell { message } => self.tell(message),
        }
    }

    // ------------------------------------------------------------ time

    fn on_tick(&mut self) -> Result<(), ExecutorError> {
        if self.link.is_going() {
            self.go_elsewhere();
        }
        let lease = Duration::from_nanos(self.settings.lease_ns);
        if !self.link.is_connected() && self.last_contact.elapsed() > lease {
            return Err(ExecutorError::LeaseEnded { lease_s: lease.as_secs(), last: self.last_try.clone() });
        }
        if self.link.is_welcomed() && self.last_contact.elapsed() > lease {
            // The network swallowed it: treat the connection as broken and make a new one.
            self.disconnect();
            self.last_try = LastTry::Failed("the dispatcher fell silent".into());
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
            self.origins.flush();
            let n_stopped = self.slots.wake_stopped();
            if n_stopped > 0 {
                eyas_text::say!(
                    "eyas: {n_stopped} stopped slot processes of this node go on; to pause a node, stop its executor"
                );
            }
            for digest in std::mem::take(&mut self.unremoved) {
                // Fetched again meanwhile, it is of use.
                let is_of_use = |object: &ObjectId| self.core.cache().state(*object).is_some();
                if !self.book.objects_with(digest).iter().any(is_of_use) {
                    self.remove(digest);
                }
            }
            self.measure_space();
            let status = self.status();
            if self.link.say(FromExecutor::Status(Box::new(status))) {
                self.rights.asked();
            }
        }
        Ok(())
    }

    /// Removes bytes from the cache. What a disk that takes no writes keeps is tried again later.
    fn remove(&mut self, digest: Digest) {
        match self.store.remove(&digest.0.into()) {
            Ok(_) => {}
            // As good as removed.
            Err(e) if e.kind == eyas_data::ErrorKind::NotHeld => {}
            Err(_) => self.unremoved.push(digest),
        }
    }

    /// Looks at the room on the cache's disk, on a thread of its own: a disk may be slow to say.
    fn measure_space(&self) {
        if self.is_measuring.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, inputs, is_measuring) =
            (self.store.clone(), self.inputs.clone(), self.is_measuring.clone());
        let (slots, n_lives) = (self.slots.pids(), self.n_slot_lives);
        tokio::task::spawn_blocking(move || {
            if let Ok((room_bytes, disk_bytes)) = store.room_bytes() {
                Self::send_event(&inputs, NodeEvent::SpaceMeasured { room_bytes, disk_bytes });
            }
            if let Some(bytes) = eyas_runner::tree::written_by_slots(slots) {
                let _ = inputs.send(Input::ProgramsWrote { bytes, n_lives });
            }
            is_measuring.store(false, Ordering::Release);
        });
    }

    pub(super) fn status(&self) -> ExecutorStatus {
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

/// Landings that were told to stop remove what they have at home so far; one that hangs leaves it for the next start.
async fn await_end(landings: &Landings) {
    let deadline = Instant::now() + LAST_LANDINGS_MAX;
    while landings.n_under_way() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A directory for this user alone, as inputs that others may not read lie in it.
fn own_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

fn bytes(text: &str) -> runner::ByteString {
    runner::ByteString(text.as_bytes().to_vec())
}

/// A name on the data plane that no other executor of the cluster has, as good as surely.
fn data_id(dir: &Path, bound: SocketAddr) -> u32 {
    let text = format!("{} {} {bound} {}", super::host_name(), dir.display(), clock::now().0);
    let hash = blake3::hash(text.as_bytes());
    u32::from_le_bytes(hash.as_bytes()[..4].try_into().expect("four bytes"))
}
