//! The agent: owns the node's state machine and carries out its actions. See the parent module.
//!
//! [`Input`]s come in through one queue, and each of them leads to calls of the state machine. What the state machine asks for is
//! carried out before the next inputs are looked at; work that takes time has a thread of its own and reports by an [`Input`].
//!
//! The fields of [`Agent`] are its table of contents: each is a structure of the child module that has its name or says what it
//! is for, and what concerns only one of them is a method of that structure. A method of the agent passes an input or an action
//! on, or needs several of these structures; the methods about programs are in `programs`.

mod attempts;
mod connection;
mod counters;
mod directory;
mod failure;
mod home;
mod input;
mod launch;
mod leaving;
mod memory;
mod node;
mod objects;
mod peers;
mod printing;
mod programs;
mod space;
mod undeclared;
mod writes;

pub use self::input::{Input, Inputs};

use self::attempts::Attempts;
use self::connection::Connection;
use self::counters::{Counters, process_cpu_ns};
use self::directory::{Directory, PrivateCopies};
use self::failure::explain_failure;
use self::home::{Home, HomeRead, HomeWrite, why_not_asked};
use self::launch::is_for_adders;
use self::leaving::Leaving;
use self::memory::Memory;
use self::node::NodeState;
use self::objects::Objects;
use self::peers::{Peers, fetch_failed};
use self::printing::Printing;
use self::space::Space;
use self::writes::Writes;
use super::processors::Looks;
use super::slots::Slots;
use super::supervisor::Supervisors;
use super::{DataPlane, ExecutorError, ExecutorOptions, LastTry, system_users};
use crate::machine::{self, MemoryKills};
use crate::{clock, descriptors};
use eyas_core::cache::CacheConfig;
use eyas_core::event::*;
use eyas_core::executor::ExecutorConfig;
use eyas_core::executor::memory::MemoryConfig;
use eyas_data::Halt;
use eyas_net::{self as net, NetError, Writer};
use eyas_runner::protocol as runner;
use eyas_session::executor::link::About;
use eyas_session::executor::{AttemptId, NAMES_MIN, Order};
use eyas_terms::array::TaskSpec;
use eyas_terms::processors::ProcessorUse;
use eyas_terms::*;
use eyas_text::shown;
use eyas_wire::message::*;
use eyas_wire::users::Principal;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Transfers into this node at once, and from one peer.
const TRANSFERS_MAX: u32 = 64;
const TRANSFERS_PER_PEER_MAX: u32 = 16;
const HOME_STREAMS_MAX: u32 = 16;
/// Objects up to this size come from a peer many at a time.
const SMALL_BYTES_MAX: u64 = 64 << 10;
const SMALL_PER_PEER_MAX: u32 = 256;
const TICK: Duration = Duration::from_millis(50);

/// The agent. See the module's header.
pub struct Agent {
    node: NodeState,
    objects: Objects,
    /// Where files of the cache are held in memory.
    memory: Option<Memory>,
    private: PrivateCopies,
    home: Home,
    peers: Peers,
    connection: Connection,
    attempts: Attempts,
    slots: Slots,
    /// Programs whose files are not declared.
    supervisors: Supervisors,
    /// The names by which programs know the gpus of this node.
    gpu_names: Vec<String>,
    /// What runs programs in containers; `None`: what is usual.
    container_command: Option<Vec<String>>,
    /// The shell for lines that choose none.
    line_shell: Option<eyas_text::Shell>,
    writes: Writes,
    space: Space,
    printing: Printing,
    counters: Counters,
    /// Stops everything that threads of this process do.
    halt: Halt,
    leaving: Leaving,
    /// Where programs have system users of their own.
    system_users: Option<system_users::Pool>,
    /// For work that reports later.
    inputs: Inputs,
    memory_kills: MemoryKills,
    /// `None` while a thread looks.
    looks: Option<Box<Looks>>,
    /// How busy the processors are, as the dispatcher was told last.
    processors: Option<ProcessorUse>,
    /// Why this executor ends, once it does.
    stop: Option<String>,
}

impl Agent {
    /// Takes the directory over, finds out what the cache holds, begins to serve it, and starts the slot processes. There
    /// is no connection to the dispatcher yet.
    pub fn new(options: ExecutorOptions, inputs: Inputs) -> Result<Agent, ExecutorError> {
        // Programs that get the join file's path run in other directories.
        let join = std::path::absolute(options.target.path());
        let join = join.unwrap_or_else(|_| options.target.path().to_path_buf());
        if options.cache_memory_bytes > 0 && options.cache_memory_bytes >= options.memory_bytes {
            return Err(ExecutorError::Config(no_memory_left(&options)));
        }
        let path = directory::make(&options)?;
        let identity = options.target.join().identity.clone();
        let system_users = options.system_users.clone();
        let system_users =
            system_users.map(|users| system_users::Pool::new(users, identity.secret())).transpose();
        let system_users = system_users.map_err(ExecutorError::Config)?;
        let directory = Directory::take_over(path, &options)?;
        let mut node = NodeState::new(core_config(&options))?;
        let (objects, book, held) = Objects::open(&directory, &options, inputs.clone())?;
        node.session.restore(book, held);
        let Directory { path, store, sandboxes, private, trees, landings, left_at_home } = directory;
        let peers = Peers::serve(&options, &identity, &path, &store, &node, inputs.clone())?;
        let halt = Halt::default();
        let home = Home::open(
            &options,
            landings,
            left_at_home,
            identity.secret(),
            inputs.clone(),
            halt.clone(),
            trees,
        )?;
        let writes = Writes::start(&path);
        let slots = start_slots(&options, &sandboxes, inputs.clone())?;
        let nearby = home::nearby(&options);
        let about = About {
            nearby,
            name: options.name,
            slots: options.slots,
            memory_bytes: options.memory_bytes - options.cache_memory_bytes,
            cache_memory_bytes: options.cache_memory_bytes,
            equipment: options.equipment,
            cache_bytes: options.cache_bytes,
            data_address: peers.data_address(),
            data_id: peers.data_id(),
            walltime: None,
        };
        let mut agent = Agent {
            memory: (options.cache_memory_bytes > 0).then(|| Memory::start(store.clone(), inputs.clone())),
            node,
            objects,
            private,
            home,
            peers,
            connection: Connection::new(about, identity, join, inputs.clone()),
            attempts: Attempts::default(),
            slots,
            supervisors: Supervisors::new(path, inputs.clone()),
            gpu_names: options.gpu_names,
            container_command: options.container_command,
            line_shell: options.line_shell,
            writes,
            space: Space::new(inputs.clone()),
            inputs,
            printing: Printing::default(),
            counters: Counters::default(),
            halt,
            leaving: Leaving::new(options.walltime, options.grace),
            memory_kills: MemoryKills::of_this_process(),
            looks: Some(Box::new(Looks::of_this_process())),
            processors: None,
            system_users,
            stop: None,
        };
        eyas_text::say!(
            "eyas: executor {} serves its cache on {} and joins with {}",
            shown(&agent.connection.about().name),
            agent.peers.bound(),
            eyas_text::shown_path(agent.connection.join())
        );
        if let Ok((room_bytes, disk_bytes)) = store.room_bytes() {
            agent.node.feed(NodeEvent::SpaceMeasured { room_bytes, disk_bytes });
        }
        agent.carry_out();
        Ok(agent)
    }

    pub async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Input>) -> Result<(), ExecutorError> {
        self.connection.connect(None, Duration::ZERO);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut batch = Vec::with_capacity(64);
        let mut result = Ok(());
        while self.stop.is_none() {
            batch.clear();
            let send_by = self.connection.send_by();
            tokio::select! {
                n = queue.recv_many(&mut batch, 256) => if n == 0 { break },
                _ = tick.tick() => {
                    if let Err(e) = self.on_tick() {
                        result = Err(e);
                        break;
                    }
                }
                _ = tokio::time::sleep_until(send_by.unwrap_or_else(Instant::now).into()),
                    if send_by.is_some() => self.connection.flush(&mut self.node.session),
            }
            for input in batch.drain(..) {
                if let Err(e) = self.on_input(input) {
                    self.stop = Some(e.to_string());
                    result = Err(e);
                    break;
                }
            }
            if self.connection.take_due_status(self.node.session.attempts().is_empty()) {
                self.on_heartbeat();
            }
            self.carry_out();
            // Programs start before the dispatcher hears what it need not know for that.
            self.slots.flush();
            self.report_home();
            self.connection.flush_or_hold(&mut self.node.session);
        }
        self.connection.flush(&mut self.node.session);
        if let Some(reason) = self.stop.as_ref().filter(|_| result.is_ok()) {
            eyas_text::say!("eyas: this executor ends: {}", eyas_text::line_of(reason));
        }
        self.halt.stop();
        self.objects.flush_origins();
        self.slots.stop().await;
        self.home.await_landings().await;
        // When the dispatcher hears this, it gives out at once what programs here held and what they were to write.
        if let Some(reason) = self.stop.take() {
            self.connection.say_bye(reason);
        }
        self.connection.finish().await;
        result
    }

    // ------------------------------------------------------------ what the agent hears

    fn on_input(&mut self, input: Input) -> Result<(), ExecutorError> {
        match input {
            Input::Connected { reader, writer } => {
                self.connection.about_mut().walltime = self.leaving.offered();
                self.connection.on_connected(reader, writer, &mut self.node.session)
            }
            Input::NotConnected { error } => self.connection.on_not_connected(error, &self.node.session)?,
            Input::Welcomed { welcome, life } if self.connection.is_current(life) => {
                self.on_welcome(welcome)?
            }
            Input::FromDispatcher { batch, life } if self.connection.is_current(life) => {
                self.connection.was_heard();
                batch.into_iter().for_each(|message| self.on_message(message));
            }
            Input::Disconnected { life } if self.connection.is_current(life) => {
                self.connection.on_disconnected(&mut self.node.session)
            }
            Input::Slot { index, life, reports } if self.slots.is_current(index, life) => {
                reports.into_iter().for_each(|report| self.on_slot(index, report));
            }
            Input::SlotGone { index, life } if self.slots.is_current(index, life) => {
                self.on_slot_gone(index)?
            }
            Input::ProcessorsSeen { looks, seen } => self.on_processors_seen(looks, seen),
            Input::ProgramsWrote { bytes, n_lives } => self.space.programs_wrote(bytes, n_lives),
            Input::Looked { report, whole } => {
                self.writes.settle(whole);
                self.take_end(*report, false);
            }
            Input::FileNamed { key, name, reply } => self.on_file_named(key, &name, reply),
            Input::EntryNamed { key, name, reply } => self.on_entry_named(key, &name, reply),
            Input::FolderNamed { key, name, reply } => self.on_folder_named(key, &name, reply),
            Input::FilesFound { key, exit, made } => self.on_files_found(key, exit, made),
            Input::LookedBefore { start } => self.start_after_look(&start),
            Input::Allowed { start, refusal } => self.start_if_allowed(*start, refusal),
            Input::EndHeld { report } => self.take_end(*report, true),
            Input::Event(event) => self.on_event(event),
            Input::BrokenOff { object, begun, event } => {
                self.peers.keep_begun(object, begun);
                self.on_event(event);
            }
            Input::PartsRemoved { tasks } => self.tell(NodeMessage::PartsRemoved { tasks }),
            Input::PlacesFound { asked, placed } => self.tell(NodeMessage::PlacesFound { asked, placed }),
            Input::PeersProbed { round_trips } => self.tell(NodeMessage::PeersProbed { round_trips }),
            Input::AskAlone(objects) => self.home.ask_alone(objects),
            Input::FoundCorrupt(digest) => {
                self.objects.drop_all_damaged(Digest(digest.into()), &mut self.node)
            }
            Input::Stop { reason } => self.stop = Some(reason),
            Input::Leave { reason } => self.on_leave(reason),
            // A late message of an earlier connection or an earlier slot process.
            Input::Welcomed { .. }
            | Input::FromDispatcher { .. }
            | Input::Disconnected { .. }
            | Input::Slot { .. }
            | Input::SlotGone { .. } => {}
        }
        Ok(())
    }

    /// The dispatcher has answered the hello.
    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), ExecutorError> {
        let before = self.node.session.link().incarnation();
        let answer = self.connection.on_welcome(welcome, &mut self.node)?;
        let Some(again) = answer else { return Ok(()) };
        if self.node.session.link().incarnation() != before {
            self.peers.forget_permits();
        }
        self.home.was_welcomed(self.connection.settings().lease_ns);
        self.processors = None;
        let ended = self.printing.was_welcomed(&mut self.node.session);
        self.end_printed(ended);
        self.announce_leaving();
        for message in again {
            self.tell(message);
        }
        Ok(())
    }

    fn on_message(&mut self, message: ToExecutor) {
        match self.node.session.hear(message) {
            Order::Feed(events) => {
                for event in events {
                    if let NodeEvent::EndRecorded { task, attempt }
                    | NodeEvent::EndForgotten { task, attempt } = event
                    {
                        self.printing.recorded((task, attempt));
                    }
                    self.node.feed(event);
                }
            }
            Order::Begin { assignment, spec, permits, principal, prints_whole } => {
                self.peers.permit(permits);
                self.begin(assignment, (spec, prints_whole), principal);
            }
            Order::Admit { task, attempt, outputs } => self.on_admitted((task, attempt), outputs),
            Order::Prefetch { permits, event } => {
                self.peers.permit(permits);
                if let NodeEvent::InputAdded { input: Ok(input), .. } = &event {
                    self.objects.learn(std::slice::from_ref(&**input));
                }
                self.node.feed(event);
            }
            Order::ShareHome { share, event } => {
                self.node.feed(event);
                self.home.set_share(share);
            }
            Order::MeetPeers(peers) => self.peers.meet(peers),
            Order::LearnQueries(queries) => _ = eyas_storage::signed::learn(queries.0),
            Order::ProbePeers(peers) => self.peers.probe(peers),
            Order::RemoveParts(attempts) => {
                self.home.remove_parts(attempts, self.node.session.link().incarnation())
            }
            Order::FindPlaces(objects) => self.home.find_places(objects),
            Order::Look { ask, task, attempt } => {
                let (slots, session) = (&mut self.slots, &mut self.node.session);
                self.printing.ask(ask, (task, attempt), &self.attempts, slots, session)
            }
            Order::SendPrinted { task, attempt, upto } => {
                let ended = self.printing.kept((task, attempt), upto, &mut self.node.session);
                self.end_printed(ended);
            }
            Order::RenewLease { idle_ns } => {
                self.connection.status_answered(idle_ns);
                self.home.rights.was_answered();
            }
            Order::Move => self.connection.go_elsewhere(&mut self.node.session),
            Order::End { reason } => self.stop = Some(reason),
        }
    }

    fn begin(&mut self, assignment: Box<Assignment>, spec: (TaskSpec, bool), principal: Principal) {
        let account = self.system_users.as_mut().map(|pool| pool.account(&principal));
        self.objects.learn(&assignment.inputs);
        let id = (assignment.task, assignment.attempt);
        self.attempts.begin(id, spec, (principal, account), self.halt.child());
        self.node.feed(NodeEvent::Assigned { assignment });
    }

    /// Work on a thread of its own is over.
    fn on_event(&mut self, event: NodeEvent) {
        let event = self.node.session.settle(event, |digest| self.objects.holds(digest));
        let book = self.node.session.book();
        match &event {
            NodeEvent::TransferEnded { target, source: Source::Home, .. } => self.home.read_ended(*target),
            NodeEvent::MemoryAnswered { object, .. } => {
                self.memory.iter_mut().for_each(|memory| memory.answered(*object))
            }
            NodeEvent::HomeAnswered { object, result } => {
                if let Ok(answer) = result {
                    self.objects.shown.read(*object, &answer.version);
                }
                self.home.ask_ended(*object);
            }
            _ => {}
        }
        match &event {
            NodeEvent::TransferEnded { target, source, result: Ok(bytes) } => {
                let made = matches!(target, Target::Cache(object) if MadeLocation::of(book.location(*object)).is_some());
                if !made || *source != Source::Home {
                    self.counters.fetched(*source, bytes.size_bytes);
                }
                if let Target::Cache(object) = target {
                    self.objects.came(*object, bytes, book);
                }
            }
            NodeEvent::TransferEnded {
                target: Target::Cache(object),
                source: Source::Peer(_),
                result: Err(error),
            } if error.kind == TransferErrorKind::Corrupt => {
                eyas_text::say!(
                    "eyas: a peer's copy of {location} was refused, it is fetched from elsewhere: {}",
                    error.message,
                    location = shown(book.location(*object))
                );
            }
            NodeEvent::OutputStored { task, attempt, output, marks, result: Ok(_) } => {
                if let Some(object) = self.cached_output((*task, *attempt), *output) {
                    self.objects.made(object, *marks);
                }
            }
            NodeEvent::OutputLanded { task, attempt, output, result: Ok(version) } => {
                if let Some(object) = self.cached_output((*task, *attempt), *output) {
                    self.objects.landed(object, version, book);
                }
            }
            _ => {}
        }
        self.node.feed(event);
    }

    /// The object of an output that is kept in the cache.
    fn cached_output(&self, id: AttemptId, output: u32) -> Option<ObjectId> {
        self.node.session.attempts().find(id)?.find_cached_output(output)
    }

    // ------------------------------------------------------------ the actions of the state machine

    fn carry_out(&mut self) {
        // Small objects from one peer go in one stream.
        let mut fetches: BTreeMap<(ExecutorId, bool), Vec<(ObjectId, Known)>> = BTreeMap::new();
        loop {
            while let Some(action) = self.node.session.next_action() {
                match action {
                    NodeAction::Fetch {
                        target: Target::Cache(object),
                        source: Source::Peer(peer),
                        known,
                        awaits,
                        ..
                    } => match known {
                        Some(known) => fetches.entry((peer, awaits)).or_default().push((object, known)),
                        None => {
                            let kind = TransferErrorKind::NotHeld;
                            fetch_failed(&mut self.node, object, peer, kind, "its digest is not known");
                        }
                    },
                    action => self.act(action),
                }
            }
            // Only what cannot even be requested leads to further actions.
            if fetches.is_empty() {
                break;
            }
            for ((peer, awaits), objects) in std::mem::take(&mut fetches) {
                self.peers.fetch(peer, awaits, objects, &self.objects.store, &mut self.node);
            }
        }
        self.home.begin_asks();
        self.peers.forget_unwanted(self.node.session.core());
    }

    fn act(&mut self, action: NodeAction) {
        match action {
            NodeAction::AskHome { object, reads } => {
                let location = self.node.book().location(object).to_string();
                // This process may know more of such a home than a user may hear of: the refusal comes before the question.
                let is_of_users = self.system_users.is_some()
                    && self.attempts.are_of_users(object, self.node.session.attempts());
                let refused = if is_of_users { why_not_asked(&location) } else { None };
                let answer = match refused {
                    Some(error) => Some(NodeEvent::HomeAnswered { object, result: Err(error) }),
                    None => self.home.ask(object, location, reads),
                };
                if let Some(answer) = answer {
                    self.node.feed(answer);
                }
            }
            NodeAction::Fetch { target, object, known, size_bytes, watched, packed, .. } => {
                self.read_home(target, object, known, size_bytes, watched, packed)
            }
            NodeAction::Evict { object } => {
                if let Some(digest) = self.node.session.evict(object) {
                    self.objects.remove(digest);
                }
            }
            NodeAction::HoldInMemory { object } => {
                let file = self.node.book().digest(object).filter(|digest| self.objects.is_file(digest));
                if let Some(memory) = &mut self.memory {
                    memory.hold(object, file);
                }
            }
            NodeAction::LeaveMemory { object } => {
                if let Some(memory) = &mut self.memory {
                    memory.leave(object);
                }
            }
            NodeAction::Start { task, attempt, inputs, private_inputs, gpus } => {
                self.start((task, attempt), inputs, private_inputs, gpus)
            }
            NodeAction::Kill { task, attempt } => self.kill((task, attempt)),
            NodeAction::Halt { task, attempt } => {
                if let Some(attempt) = self.attempts.find((task, attempt)) {
                    attempt.halt.stop();
                }
            }
            NodeAction::StoreOutput { task, attempt, output, object: _, cache_bytes } => {
                self.store_output((task, attempt), output, cache_bytes)
            }
            NodeAction::Land { task, attempt, output, object, cached } => {
                self.land((task, attempt), output, object, cached)
            }
            NodeAction::DropPrivate { task, attempt, input } => self.private.remove((task, attempt), input),
            NodeAction::Bring { task, attempt, location, brought } => {
                self.bring((task, attempt), &location, brought)
            }
            NodeAction::CleanUp { task, attempt } => self.clean_up((task, attempt)),
            NodeAction::Tell { message } => self.tell(message),
        }
    }

    fn read_home(
        &mut self,
        target: Target,
        object: ObjectId,
        known: Option<Known>,
        size_bytes: u64,
        is_watched: bool,
        packed: Option<ObjectId>,
    ) {
        // Home sends an object from its beginning, into space of its own.
        self.peers.forget_begun(object);
        let private = match target {
            Target::Private { task, attempt, input } => {
                if let Some(of) = self.attempts.find_mut((task, attempt)) {
                    of.n_private = of.n_private.max(input + 1);
                }
                Some(self.private.path((task, attempt), input))
            }
            Target::Cache(_) => None,
        };
        let location = self.node.book().location(object).to_string();
        let packed = packed.and_then(|packed| self.node.book().digest(packed));
        let reader = match (&self.system_users, target) {
            (None, _) => None,
            (_, Target::Private { task, attempt, .. }) => self
                .attempts
                .find((task, attempt))
                .map_or_else(|| Some(system_users::nobody()), |a| a.at_home()),
            (_, Target::Cache(object)) => self.attempts.reader_of(object, self.node.session.attempts()),
        };
        let read =
            HomeRead { target, object, location, known, size_bytes, private, is_watched, packed, reader };
        self.home.read(read, self.objects.store.clone());
    }

    fn store_output(&mut self, id: AttemptId, output: u32, cache_bytes: Option<u64>) {
        let Some(attempt) = self.attempts.find(id) else { return };
        let (at, halt) = (attempt.output_path(output), attempt.halt.clone());
        let (marks, account) = (attempt.output_marks(output), attempt.account().cloned());
        self.objects.keep_output(id, (output, marks), at, cache_bytes, account, halt);
    }

    fn land(&mut self, id: AttemptId, output: u32, object: ObjectId, is_cached: bool) {
        let Some((attempt, known)) = self.attempts.find(id).zip(self.node.session.attempts().find(id)) else {
            return;
        };
        let cached_as = if is_cached { self.node.book().digest(object) } else { None };
        let path = match cached_as {
            Some(digest) => Some(self.objects.path_of(digest)),
            None => attempt.output_path(output).map(|(path, _)| path),
        };
        self.counters.home_written_bytes += attempt.output_bytes(output, path.as_deref()).unwrap_or(0);
        self.home.write(HomeWrite {
            id,
            output,
            location: self.node.book().location(object).to_string(),
            path,
            cached_as,
            mode: attempt.output_mode(output),
            marks: attempt.output_marks(output),
            times: cached_as.map_or(vec![], |digest| self.objects.store.times_of(&digest.0.into())),
            incarnation: known.incarnation,
            is_repeated: known.is_repeated,
            owner: attempt.account().filter(|_| cached_as.is_none()).cloned(),
            writer: attempt.at_home(),
            halt: attempt.halt.clone(),
        });
    }

    /// Sends a message of the state machine to the dispatcher.
    fn tell(&mut self, mut message: NodeMessage) {
        if let NodeMessage::AttemptEnded { report } = &mut message {
            self.complete(report);
        }
        // The size of the cache and what the cache may hold are reported together.
        let status = matches!(message, NodeMessage::CacheResized { .. }).then(|| self.status());
        self.node.session.tell(message);
        if let Some(status) = status {
            self.node.session.say(FromExecutor::Status(Box::new(status)));
        }
    }

    /// Counts an attempt that has ended, and names in its report what the state machine knows only by number.
    fn complete(&mut self, report: &mut Arc<AttemptReport>) {
        self.counters.attempt_ended(report);
        // The state machine keeps the report, too, so changing it means copying it.
        if matches!(report.outcome, Outcome::Failed(_))
            && let Some(attempt) = self.attempts.find((report.task, report.attempt))
            && let Outcome::Failed(failure) = &mut Arc::make_mut(report).outcome
        {
            explain_failure(failure, &attempt.spec);
        }
    }

    // ------------------------------------------------------------ time

    fn on_tick(&mut self) -> Result<(), ExecutorError> {
        self.connection.on_tick(&mut self.node.session)?;
        if self.stop.is_none() {
            self.stop = self.leaving.find_end();
        }
        self.withdraw_stuck();
        self.home.end_unwanted(self.node.session.core());
        self.node.feed(NodeEvent::Ticked);
        self.node.session.forget_names(NAMES_MIN);
        self.objects.forget_shown(self.node.session.book());
        Ok(())
    }

    /// Does the work of one heartbeat, and reports this executor's status.
    fn on_heartbeat(&mut self) {
        self.objects.flush_origins();
        self.memory_kills.look(Instant::now());
        let n_stopped = self.slots.wake_stopped();
        if n_stopped > 0 {
            eyas_text::say!(
                "eyas: {n_stopped} stopped slot processes of this node go on; to pause a node, stop its executor"
            );
        }
        self.look_at_processors();
        self.objects.remove_again(&self.node.session);
        if let Some(memory) = &self.memory {
            memory.measure();
        }
        self.space.measure(&self.objects.store, &self.objects.trees, self.slots.pids());
        let status = self.status();
        if self.node.session.say(FromExecutor::Status(Box::new(status))) {
            self.home.rights.asked();
        }
    }

    /// Looks at the processors, on a thread of its own: there may be many processes to list.
    fn look_at_processors(&mut self) {
        let Some(mut looks) = self.looks.take() else { return };
        let inputs = self.inputs.clone();
        tokio::task::spawn_blocking(move || {
            let seen = looks.look();
            let _ = inputs.send(Input::ProcessorsSeen { looks, seen });
        });
    }

    fn on_processors_seen(&mut self, looks: Box<Looks>, seen: Option<ProcessorUse>) {
        self.looks = Some(looks);
        if let Some(seen) = seen.filter(|seen| seen.is_news(self.processors.as_ref()))
            && self.node.session.link().is_welcomed()
        {
            self.node.session.say(FromExecutor::Processors(seen));
            self.processors = Some(seen);
        }
    }

    /// Where home is limited, reports to the dispatcher how this executor uses it.
    fn report_home(&mut self) {
        if self.node.session.link().is_welcomed()
            && let Some(report) = self.home.find_report(self.node.session.core().n_home_streams())
        {
            self.node.session.say(FromExecutor::Home(report));
        }
    }

    fn status(&self) -> ExecutorStatus {
        let (core, counters) = (self.node.session.core(), &self.counters);
        let n_attempts = self.node.session.attempts().len() as u32;
        let (own, _) = clock::cpu_ns();
        ExecutorStatus {
            running: self.attempts.running(),
            n_waiting: n_attempts - core.n_running().min(n_attempts),
            cache_used_bytes: core.cache().used_bytes(),
            cache_n_objects: core.cache().n_objects() as u64,
            memory_used_bytes: core.memory().used_bytes(),
            memory_bytes: core.memory().budget_bytes(),
            local_bytes: counters.local_bytes,
            peer_bytes: counters.peer_bytes,
            home_read_bytes: counters.home_read_bytes,
            home_written_bytes: counters.home_written_bytes,
            own_cpu_ns: own + self.slots.pids().iter().map(|pid| process_cpu_ns(*pid)).sum::<u64>(),
            program_cpu_ns: counters.program_cpu_ns,
            away: self.home.away(),
        }
    }
}

/// Why there can be no such executor.
fn no_memory_left(options: &ExecutorOptions) -> String {
    format!(
        "--cache-memory takes {} bytes of this node's memory, which has {}, and leaves nothing to tasks; give a smaller \
         --cache-memory, or a larger --memory",
        options.cache_memory_bytes, options.memory_bytes
    )
}

fn core_config(options: &ExecutorOptions) -> ExecutorConfig {
    ExecutorConfig {
        slots: options.slots,
        equipment: options.equipment.clone(),
        cache: CacheConfig {
            budget_bytes: options.cache_bytes,
            eviction: options.eviction.clone(),
            seed: u64::from(std::process::id()),
            groups: true,
        },
        memory: MemoryConfig { budget_bytes: options.cache_memory_bytes, page_bytes: machine::page_bytes() },
        transfers_max: TRANSFERS_MAX,
        transfers_per_peer_max: TRANSFERS_PER_PEER_MAX,
        home_streams_max: HOME_STREAMS_MAX,
        inputs_in_turn: false,
        small_bytes_max: SMALL_BYTES_MAX,
        small_per_peer_max: SMALL_PER_PEER_MAX,
    }
}

/// Starts the slot processes, which make their sandboxes in `sandboxes`.
fn start_slots(options: &ExecutorOptions, sandboxes: &Path, inputs: Inputs) -> Result<Slots, ExecutorError> {
    let mut config = runner::SlotConfig::new(sandboxes);
    config.descriptors_max = Some(descriptors::raise().before);
    // Only programs that may add tasks get the variables that lead to the secret, even if this process has
    // them itself.
    config.base_env.retain(|(name, _)| !is_for_adders(name));
    if options.system_users.is_some() {
        config.base_env.retain(|(name, _)| system_users::is_for_others(name));
    }
    Ok(Slots::start(options.slots, options.exe.clone(), options.slot_args.clone(), config, inputs)?)
}
