//! A simulated cluster: the dispatcher, the executors and the provisioner of `eyas-core` on a virtual clock.
//!
//! In: a [`Machine`], [`Scheduling`], [`Faults`], a [`Workload`] and a seed. Out: a [`Summary`], or the sentence that says why
//! the workload never ends. The state machines of the core decide. This module only models how their requests are carried out:
//!
//! | request | model |
//! |---|---|
//! | a fetch from home | a flow through home, the node's share of it, the node's link and its disk |
//! | a fetch from a peer | a flow through the peer's disk and link and the node's link and disk; where the machine has free senders, without the peer's; where it limits how many copies a node sends at once, after its turn has come |
//! | a fetch for one attempt only | the same without the node's disk: the program reads the bytes while they come |
//! | a program | its cached inputs are read from the disk, it computes, its outputs are written to the disk |
//! | an output brought home | a flow through disk, link and home |
//! | a file of home, where the machine limits opens | before its bytes flow, home opens it, after all files that were asked for before |
//! | a program in a scratch directory at home | before it reads, home makes its directory, after all directories that were asked for before |
//! | a message | it arrives `message_ns` later |
//! | the dispatcher's time | the dispatcher handles one event after the other; each task that it gives out takes `dispatch_ns` |
//! | nodes | each joins after a random delay between the machine's bounds, with an empty cache; where the machine has a walltime, a node says so when it joins, and ends a little before it is over, as live |
//!
//! Two worlds made from equal arguments write equal logs, on every machine: no wall clock, no hash order, no function of
//! the C library's mathematics.
//!
//! | module | has |
//! |---|---|
//! | `desk` | the dispatcher, what waits for it, and what it says |
//! | `nodes`, with `programs` | executors, their slots and what runs there |
//! | `transfers` | what is on its way into nodes |
//! | `hardware` | the machine's places, and what flows through it |
//! | `supply` | where nodes come from, and when they are lost |
//! | `work` | what is submitted, and how large and long it is |
//! | `time`, `record` | what happens when; what is kept of it |
//!
//! [`World`] has one of each and knows what concerns more than one of them.
//!
//! Not here: decisions (`eyas-core`); faults between the machines such as lost or late messages (`eyas-testkit`'s world, which
//! looks for broken promises, where this one looks at time).

mod desk;
mod hardware;
mod nodes;
mod record;
mod supply;
mod time;
mod transfers;
mod work;

use crate::machine::{Faults, Machine};
use crate::outcome::{Recorder, Summary};
use crate::workload::{Sizes, Workload};
use desk::Desk;
use eyas_core::dispatcher::{DispatcherConfig, TaskState, stop_before_ns};
use eyas_core::event::*;
use eyas_core::eviction::stores::EXCHANGES;
use eyas_core::heard::CacheChanges;
use eyas_core::log::{Header, LOG_VERSION};
use eyas_core::provisioning::{ProvisionAction, ProvisionConfig};
use eyas_terms::rng::Rng;
use eyas_terms::*;
use eyas_text::shown;
use hardware::{Hardware, LandedOutput, Purpose};
use nodes::{Nodes, Reads, node_core};
use record::Record;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::Write;
use supply::Supply;
use time::{Ev, Time};
use transfers::{Ask, Ended, Making, Transfers};
use work::ArrivingWork;

const S: u64 = 1_000_000_000;
const RUN: RunId = RunId(1);
/// How often the dispatcher hears that time passes, and provisioning looks.
const TICK_NS: u64 = S;
/// When all slots have been idle and no byte has moved for so long, a workload counts as one that never ends.
const STILL_NS: u64 = 3_600 * S;
/// Memory is no limit here: more than any task declares.
const NODE_MEMORY_BYTES: u64 = u64::MAX >> 8;

type AttemptId = (TaskId, AttemptNo);

/// All settings of a simulated run that a user may choose: the names of policies, and limits.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduling {
    pub dispatcher: DispatcherConfig,
    pub eviction: String,
    /// Whether what leaves a cache takes its file group with it.
    pub groups: bool,
    /// `None`: all nodes are there from the beginning and stay.
    pub provision: Option<ProvisionConfig>,
    /// Transfers into one node at once, of these from one peer, and of these from home.
    pub transfers_max: u32,
    pub transfers_per_peer_max: u32,
    pub home_streams_max: u32,
    /// A task's inputs come one after the other.
    pub inputs_in_turn: bool,
    /// Each program runs in a scratch directory at home, made and removed for it, as by the wrapper scripts of Raicu09 §4.3.
    pub scratch_at_home: bool,
}

impl Default for Scheduling {
    fn default() -> Scheduling {
        // A simulated cluster ends with its run, so no later run can use a file that this run reads once.
        let mut dispatcher = DispatcherConfig::default();
        dispatcher.placement_config.affinity.keeps_once = false;
        Scheduling {
            dispatcher,
            eviction: "lru".into(),
            groups: true,
            provision: None,
            transfers_max: 64,
            transfers_per_peer_max: 8,
            home_streams_max: 16,
            inputs_in_turn: false,
            scratch_at_home: false,
        }
    }
}

/// Simulates one workload from its first event to the end of its run. The event log of the run is written to `log`.
///
/// `Err` says in one sentence what is wrong with the arguments, why the dispatcher refused the run, or why the workload never ends.
pub fn simulate(
    machine: &Machine,
    scheduling: &Scheduling,
    faults: &Faults,
    workload: Workload,
    seed: u64,
    log: Option<Box<dyn Write>>,
) -> Result<Summary, String> {
    machine.check()?;
    faults.check()?;
    let mut scheduling = scheduling.clone();
    let affinity = &mut scheduling.dispatcher.placement_config.affinity;
    if !affinity.keeps_once && affinity.disk_bytes_per_s == 0 {
        // A simulated program reads a file that is not cached from home. A live one reads a copy on the node's disk.
        affinity.disk_bytes_per_s = machine.disk_bytes_per_s as u64;
    }
    let mut world = World::new(machine, &scheduling, faults, workload, seed, log)?;
    world.live()?;
    world.record.finish(world.time.now)
}

/// Files that are pushed to all nodes of a simulated cluster before any task reads them.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Pushed {
    pub n_files: u64,
    pub file_bytes: u64,
}

/// Simulates a push (`Raicu09` §5.3) to all nodes of `machine`, from the moment at which the last of them has joined.
///
/// `Err` says in one sentence what is wrong with the arguments, or why the push never ends.
pub fn simulate_push(
    machine: &Machine,
    scheduling: &Scheduling,
    faults: &Faults,
    pushed: Pushed,
    seed: u64,
    log: Option<Box<dyn Write>>,
) -> Result<PushRecord, String> {
    machine.check()?;
    faults.check()?;
    if pushed.n_files == 0 || scheduling.provision.is_some() {
        return Err("a push needs at least one file, and nodes that stay (provisioning static)".into());
    }
    let workload = Workload {
        name: "push".into(),
        // Nothing is submitted; a workload without tasks would be refused.
        n_tasks: 1,
        ideal_ns: 0,
        read_bytes: pushed.n_files.saturating_mul(pushed.file_bytes),
        sizes: Sizes::Same(pushed.file_bytes),
        submissions: Box::new(std::iter::empty()),
    };
    let mut world = World::new(machine, scheduling, faults, workload, seed, log)?;
    world.begin()?;
    while world.nodes.n_there() < machine.nodes {
        world.step()?;
    }
    let files = (0..pushed.n_files).map(|n| format!("/pushed/{n}")).collect();
    world.tell_core(Event::FilesWanted { run: RUN, files, nodes: vec![] });
    world.tell_core(Event::RunCommitted { run: RUN });
    while !world.record.is_over() {
        world.step()?;
    }
    world.record.flush_log()?;
    Ok(world.desk.core().push_of(RUN).expect("its run is known"))
}

struct World<'a> {
    machine: &'a Machine,
    scheduling: &'a Scheduling,
    time: Time,
    hardware: Hardware<'a>,
    desk: Desk,
    supply: Supply<'a>,
    nodes: Nodes,
    transfers: Transfers,
    work: ArrivingWork,
    record: Record,
    /// An empty list, kept so that its memory is used again.
    node_actions: Vec<NodeAction>,
    /// The same of flows.
    flows_ended: Vec<Purpose>,
}

impl<'a> World<'a> {
    fn new(
        machine: &'a Machine,
        scheduling: &'a Scheduling,
        faults: &'a Faults,
        workload: Workload,
        seed: u64,
        log: Option<Box<dyn Write>>,
    ) -> Result<World<'a>, String> {
        let mut rng = Rng::new(seed);
        let desk = Desk::new(machine, scheduling.dispatcher.clone())?;
        let hardware = Hardware::new(machine, faults, scheduling.scratch_at_home, &mut rng);
        let supply = Supply::new(machine, faults, scheduling.provision.as_ref(), rng)?;
        // An executor is made once here, so that a bad name is reported before anything runs.
        node_core(machine, scheduling, 0)?;
        let record = Record::new(Recorder::new(&workload, machine), log);
        Ok(World {
            machine,
            scheduling,
            time: Time::new(),
            hardware,
            desk,
            supply,
            nodes: Nodes::new(machine),
            transfers: Transfers::default(),
            work: ArrivingWork::new(workload, machine, scheduling)?,
            record,
            node_actions: vec![],
            flows_ended: vec![],
        })
    }

    fn live(&mut self) -> Result<(), String> {
        self.begin()?;
        match self.work.next_at() {
            Some(at) => self.time.at(at.0, Ev::Submit),
            None => return Err("the workload has no task; give it at least one".into()),
        }
        while !self.record.is_over() {
            self.step()?;
        }
        self.record.flush_log()
    }

    /// The run is opened, and nodes come.
    fn begin(&mut self) -> Result<(), String> {
        let (machine, scheduling) = (self.machine, self.scheduling);
        self.record.begin_log(|| Header {
            eyas_event_log: LOG_VERSION,
            eyas_version: env!("CARGO_PKG_VERSION").into(),
            t: Timestamp(0),
            config: scheduling.dispatcher.clone(),
            cluster: format!("simulated {}", machine.name),
            is_cut: false,
        })?;
        self.tell_core(Event::RunOpened { run: RUN, name: "simulated".into(), keep: false, into: None });
        self.join(self.supply.n_first())?;
        self.time.at(0, Ev::Tick);
        Ok(())
    }

    /// What happens next.
    fn step(&mut self) -> Result<(), String> {
        let next_event = self.time.next_ns();
        let next_flow = self.hardware.next_ns();
        let Some(at_ns) = next_event.into_iter().chain(next_flow).min() else {
            return Err("nothing will ever happen again, and there are tasks left".into());
        };
        self.time.now = Timestamp(at_ns);
        if next_flow == Some(at_ns) {
            let mut flows_ended = std::mem::take(&mut self.flows_ended);
            self.hardware.advance(self.time.now, &mut flows_ended);
            for purpose in flows_ended.drain(..) {
                self.record.count_event();
                self.on_flow_ended(purpose);
            }
            self.flows_ended = flows_ended;
            return Ok(());
        }
        let ev = self.time.pop().expect("it was just seen");
        self.record.count_event();
        self.on_event(ev)
    }

    fn on_event(&mut self, ev: Ev) -> Result<(), String> {
        match ev {
            Ev::Submit => self.submit()?,
            Ev::ToDispatcher { node, messages } => {
                if self.nodes.is_there(node) {
                    self.on_messages(ExecutorId(node), messages);
                }
            }
            Ev::ToNode { node, events } => {
                for event in events {
                    self.tell_node(node, event);
                }
            }
            Ev::Dispatch => self.desk.on_free(&mut self.time, &self.work, &mut self.nodes, &mut self.record),
            Ev::Wake => self.desk.on_woken(&mut self.time, &self.work, &mut self.nodes, &mut self.record),
            Ev::HomeAnswered { node, object } => self.on_home_answered(node, object),
            Ev::Fetched { node, transfer } => self.on_fetched(node, transfer),
            Ev::Opened { node, transfer } | Ev::Awaited { node, transfer } => {
                self.transfers.begin(node, transfer, &mut self.time, &mut self.hardware, &mut self.nodes)
            }
            Ev::Moved { node, transfer, flow } => {
                let (time, hardware) = (&mut self.time, &self.hardware);
                let moved = self.transfers.on_moved(node, transfer, flow, time, hardware, &self.nodes);
                if let Some(event) = moved {
                    self.tell_node(node, event);
                }
            }
            Ev::SentOn { node, transfer } => self.on_flow_ended(Purpose::Fetch { node, transfer }),
            Ev::ScratchMade { node, attempt, input_bytes } => {
                if let Some(node) = self.nodes.find_mut(node)
                    && node.slots.has(attempt)
                {
                    node.read(attempt, input_bytes, &mut self.time, &mut self.hardware, &self.work);
                }
            }
            Ev::Computed { node: number, attempt } => {
                let Some(node) = self.nodes.find_mut(number) else { return Ok(()) };
                let (time, hardware) = (&mut self.time, &mut self.hardware);
                let ended = node.on_computed(attempt, time, hardware, &self.work, &mut self.record);
                if let Some(event) = ended {
                    self.tell_node(number, event);
                }
            }
            Ev::Created { node, output } => self.bring_home(node, output),
            Ev::Probed { node, round_trips } => {
                if self.nodes.is_there(node) {
                    self.tell_core(Event::PeersProbed { executor: ExecutorId(node), round_trips });
                }
            }
            Ev::Tick => self.on_tick()?,
            Ev::Join { n_nodes } => {
                self.supply.come(n_nodes);
                self.join(n_nodes)?;
                self.supply.came(self.time.now, n_nodes);
            }
            Ev::Lose { node } => {
                // The executor's process is gone, with its cache and its programs.
                if self.leave(node) {
                    self.record.count_loss();
                    self.tell_core(Event::ExecutorSilent { executor: ExecutorId(node) });
                }
            }
            Ev::WalltimeEnds { node } => {
                // As live, the executor stops what still runs and says why it ends.
                if self.leave(node) {
                    self.record.count_walltime();
                    let walltime_s = self.machine.walltime_ns.unwrap_or_default() as f64 / S as f64;
                    let reason = format!("its walltime of {walltime_s} s is over");
                    self.tell_core(Event::ExecutorLost { executor: ExecutorId(node), reason });
                }
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------ the dispatcher

    fn tell_core(&mut self, event: Event) {
        self.desk.tell(event, &mut self.time, &self.work, &mut self.nodes, &mut self.record);
    }

    fn on_messages(&mut self, executor: ExecutorId, messages: Vec<NodeMessage>) {
        let mut changes = CacheChanges::default();
        for message in messages {
            if let Some(other) = changes.collect(message) {
                if let Some(event) = changes.take(executor) {
                    self.tell_core(event);
                }
                self.tell_core(other.heard_from(executor));
            }
        }
        if let Some(event) = changes.take(executor) {
            self.tell_core(event);
        }
    }

    fn submit(&mut self) -> Result<(), String> {
        // As live, a submission that comes as a whole is complete before any of its tasks starts.
        let is_first = !self.work.has_begun();
        while let Some(at) = self.work.next_at() {
            if at > self.time.now {
                if is_first {
                    self.tell_core(Event::RunStarted { run: RUN });
                }
                self.time.at(at.0, Ev::Submit);
                return Ok(());
            }
            let array = self.work.take_next(&mut self.record.recorder)?;
            self.tell_core(Event::ArrayAdded { run: RUN, array });
        }
        self.work.finish()?;
        self.tell_core(Event::RunCommitted { run: RUN });
        Ok(())
    }

    fn on_tick(&mut self) -> Result<(), String> {
        self.tell_core(Event::Ticked);
        let (n_ready, n_nodes) = (self.desk.core().n_ready(), self.nodes.n_there());
        self.record.recorder.sample(self.time.now, n_ready, n_nodes, self.nodes.n_busy_slots());
        self.provision();
        // A program may compute for months, and a node may be awaited for days: both are work that goes on.
        let is_still = self.hardware.is_still()
            && self.work.next_at().is_none()
            && !self.supply.is_pending()
            && self.nodes.n_busy_slots() == 0;
        if !is_still {
            self.record.saw_work(self.time.now);
        }
        if self.record.still_ns(self.time.now) > STILL_NS {
            return Err(format!(
                "the workload never ends: {} of {} tasks have ended, and nothing has happened for an hour; {}",
                self.record.n_ended(),
                self.work.n_tasks(),
                self.why_still()
            ));
        }
        self.time.after(TICK_NS, Ev::Tick);
        Ok(())
    }

    fn why_still(&self) -> String {
        if self.nodes.n_there() == 0 {
            return "no node is there; see the provisioning policy and its bounds".into();
        }
        let tasks = (0..self.work.n_tasks()).map(TaskId);
        let waiting = tasks.into_iter().find_map(|task| match self.desk.core().task_state(task) {
            TaskState::Ready { reason } => Some(reason.unwrap_or_default()),
            TaskState::Waiting { n_missing } => Some(format!("{n_missing} of its inputs are not made")),
            _ => None,
        });
        format!("the first one that waits: {}", waiting.unwrap_or_else(|| "none".into()))
    }

    // ------------------------------------------------------------ nodes come and go

    fn provision(&mut self) {
        let actions = self.supply.decide(self.time.now, self.desk.core(), &self.nodes);
        for decision in self.supply.take_decisions() {
            self.tell_core(Event::NodesDecided { decision: Box::new(decision) });
        }
        for action in actions {
            match action {
                ProvisionAction::Request { n_nodes } => self.supply.request(n_nodes, &mut self.time),
                ProvisionAction::Release { executor } => self.tell_core(Event::ExecutorDraining { executor }),
            }
        }
        for node in self.nodes.drained(self.time.now, self.desk.core()) {
            self.leave(node);
            let reason = "it was released".into();
            self.tell_core(Event::ExecutorLost { executor: ExecutorId(node), reason });
        }
    }

    /// As many nodes join as there are places for.
    fn join(&mut self, n_nodes: u32) -> Result<(), String> {
        for _ in 0..n_nodes {
            let Some(place) = self.hardware.take_place() else { return Ok(()) };
            let number = self.nodes.next_number();
            self.nodes.join(node_core(self.machine, self.scheduling, u64::from(number))?, place);
            let slots = self.machine.slots_per_node;
            self.record.recorder.nodes(self.time.now, self.nodes.n_there());
            self.record.recorder.given(number, Some((slots, 0)));
            let offer = Offer {
                name: format!("node{number}"),
                slots,
                memory_bytes: NODE_MEMORY_BYTES,
                cache_bytes: self.machine.cache_bytes_per_node,
                cache_memory_bytes: self.machine.cache_memory_bytes_per_node,
                equipment: self.machine.equipment.clone(),
                walltime: self.machine.walltime_ns.map(|ns| Walltime { whole_ns: ns, left_ns: ns }),
                exchanges: self.scheduling.eviction == EXCHANGES,
                ..Offer::default()
            };
            if let Some(ns) = self.machine.walltime_ns {
                self.time.after(ns.saturating_sub(stop_before_ns(ns)), Ev::WalltimeEnds { node: number });
            }
            self.tell_core(Event::ExecutorJoined { executor: ExecutorId(number), offer });
            self.supply.draw_loss(number, &mut self.time);
        }
        Ok(())
    }

    /// The node is gone. `false`: it was gone before.
    fn leave(&mut self, number: u32) -> bool {
        let Some(node) = self.nodes.leave(number) else { return false };
        self.record.recorder.nodes(self.time.now, self.nodes.n_there());
        self.record.recorder.given(number, None);
        self.hardware.give_back(self.time.now, node.place, node.flows);
        self.transfers.break_off(number, &mut self.time, &mut self.hardware, &mut self.nodes);
        true
    }

    // ------------------------------------------------------------ one node

    /// Gives an event to a node's executor, if the node is there, and carries out what the executor asks for.
    fn tell_node(&mut self, number: u32, event: NodeEvent) {
        let mut actions = std::mem::take(&mut self.node_actions);
        let (mut events, mut messages) = (VecDeque::new(), vec![]);
        let mut next = Some(event);
        while let Some(event) = next {
            let Some(node) = self.nodes.find_mut(number) else { break };
            node.core.handle(self.time.now, event, &mut actions);
            for action in actions.drain(..) {
                self.act(number, action, &mut events, &mut messages);
            }
            next = events.pop_front();
        }
        if let Some(node) = self.nodes.find_mut(number) {
            node.end_fresh();
        }
        self.node_actions = actions;
        if !messages.is_empty() {
            self.time.after(self.machine.message_ns, Ev::ToDispatcher { node: number, messages });
        }
    }

    /// Carries out one action of a node's executor. Adds to `events` what the executor hears at once because of it, and to
    /// `messages` what the executor says to the dispatcher.
    fn act(
        &mut self,
        number: u32,
        action: NodeAction,
        events: &mut VecDeque<NodeEvent>,
        messages: &mut Vec<NodeMessage>,
    ) {
        match action {
            NodeAction::AskHome { object, .. } => {
                self.time.after(self.machine.home_latency_ns, Ev::HomeAnswered { node: number, object });
            }
            NodeAction::Fetch { target, object, source, size_bytes, awaits, watched, packed, .. } => {
                let making = |is_packed_here| Making { bytes: size_bytes, is_packed_here };
                let (size_bytes, made) = match (packed, source) {
                    // The packed file is read, too.
                    (Some(packed), _) => (size_bytes + self.size_of(packed), Some(making(true))),
                    (None, Source::Home) => match self.work.packed_bytes(self.desk.core(), object) {
                        Some(packed_bytes) => (packed_bytes, Some(making(false))),
                        None => (size_bytes, None),
                    },
                    (None, Source::Peer(_)) => (size_bytes, None),
                };
                let ask = Ask { target, source, object, size_bytes, awaits, watched, made };
                self.transfers.ask(number, ask, &mut self.time, &mut self.hardware, &mut self.nodes);
            }
            NodeAction::Start { task, attempt, inputs, .. } => {
                let mut reads = Reads::default();
                for input in &inputs {
                    let (Staged::Cached(object) | Staged::InPlace(object)) = *input else { continue };
                    let bytes = self.size_of(object);
                    let node = self.nodes.find_mut(number).expect("it acts");
                    events.extend(node.end_coming(object, Ok(()), self.time.now, &mut self.hardware));
                    match node.core.memory().holds(object) {
                        true => reads.memory_bytes += bytes,
                        false => reads.disk_bytes += bytes,
                    }
                }
                let node = self.nodes.find_mut(number).expect("it acts");
                node.hand_over((task, attempt), reads, &mut self.time, &mut self.hardware, &self.work);
            }
            NodeAction::HoldInMemory { object } => {
                let bytes = self.size_of(object);
                let node = self.nodes.find_mut(number).expect("it acts");
                events.extend(node.hold(object, bytes, self.time.now, &mut self.hardware));
            }
            NodeAction::LeaveMemory { object } => {
                let node = self.nodes.find_mut(number).expect("it acts");
                let gone = Err(NotHeldInMemory::Gone);
                events.extend(node.end_coming(object, gone, self.time.now, &mut self.hardware));
            }
            NodeAction::Kill { task, attempt } => {
                let node = self.nodes.find_mut(number).expect("it acts");
                let (time, hardware) = (&mut self.time, &mut self.hardware);
                events.extend(node.kill((task, attempt), time, hardware, &self.work));
            }
            NodeAction::StoreOutput { task, attempt, output, object, .. } => {
                let size_bytes = self.size_of(object);
                let result = Ok(Fetched { digest: digest_of(object), size_bytes, version: None });
                self.nodes.find_mut(number).expect("it acts").came(object);
                events.push_back(NodeEvent::OutputStored { task, attempt, output, marks: None, result });
            }
            NodeAction::Land { task, attempt, output, object, .. } => {
                let size_bytes = self.size_of(object);
                self.record.recorder.landed(size_bytes);
                let output = LandedOutput { attempt: (task, attempt), output, object };
                match self.hardware.opened_at(self.time.now) {
                    Some(at_ns) => self.time.at(at_ns, Ev::Created { node: number, output }),
                    None => self.bring_home(number, output),
                }
            }
            NodeAction::Evict { .. }
            | NodeAction::DropPrivate { .. }
            | NodeAction::Bring { .. }
            | NodeAction::CleanUp { .. }
            | NodeAction::Halt { .. } => {}
            NodeAction::Tell { message } => messages.push(message),
        }
    }

    fn bring_home(&mut self, number: u32, output: LandedOutput) {
        let size_bytes = self.size_of(output.object);
        if let Some(node) = self.nodes.find_mut(number) {
            node.bring_home(output, size_bytes, &self.time, &mut self.hardware);
        }
    }

    fn on_flow_ended(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Fetch { node, transfer } => {
                let (time, hardware) = (&mut self.time, &mut self.hardware);
                self.transfers.on_flow_ended(node, transfer, time, hardware, &mut self.nodes);
            }
            Purpose::Read { node, attempt } => {
                if let Some(node) = self.nodes.find_mut(node) {
                    node.read_memory(attempt, &mut self.time, &mut self.hardware, &self.work);
                }
            }
            Purpose::Hold { node: number, object } => {
                let Some(node) = self.nodes.find_mut(number) else { return };
                if let Some(event) = node.end_coming(object, Ok(()), self.time.now, &mut self.hardware) {
                    self.tell_node(number, event);
                }
            }
            Purpose::Write { node: number, attempt } => {
                let Some(node) = self.nodes.find_mut(number) else { return };
                let (time, hardware) = (&mut self.time, &mut self.hardware);
                let ended = node.on_written(attempt, time, hardware, &self.work, &mut self.record);
                if let Some(event) = ended {
                    self.tell_node(number, event);
                }
            }
            Purpose::Land { node, output } => {
                let LandedOutput { attempt: (task, attempt), output, object } = output;
                let size_bytes = self.size_of(object);
                let result = Ok(self.work.version_of(size_bytes));
                self.tell_node(node, NodeEvent::OutputLanded { task, attempt, output, result })
            }
        }
    }

    fn on_home_answered(&mut self, node: u32, object: ObjectId) {
        let result = match self.work.size_of(self.desk.core(), object) {
            Some(size_bytes) => Ok(HomeAnswer { version: self.work.version_of(size_bytes), in_place: false }),
            None => Err(TransferError {
                kind: TransferErrorKind::Unavailable,
                message: format!("{} does not exist", shown(self.desk.core().work().location(object).text())),
            }),
        };
        self.tell_node(node, NodeEvent::HomeAnswered { object, result });
    }

    fn on_fetched(&mut self, number: u32, transfer: u32) {
        let Ended { target, source, object, is_here, is_cut, is_between, moved_bytes } =
            self.transfers.end(number, transfer, &mut self.nodes);
        let result = if is_here {
            let size_bytes = self.size_of(object);
            if let Some(moved_bytes) = moved_bytes {
                self.record.recorder.moved(source, moved_bytes, is_between);
            }
            if let Some(node) = self.nodes.find_mut(number) {
                node.came(object);
            }
            let version = (source == Source::Home).then(|| self.work.version_of(size_bytes));
            Ok(Fetched { digest: digest_of(object), size_bytes, version })
        } else {
            let (kind, message) = match is_cut {
                true => (TransferErrorKind::Unreachable, "the peer is not reached from here"),
                false => (TransferErrorKind::NotHeld, "the peer does not have it any more"),
            };
            Err(TransferError { kind, message: message.into() })
        };
        self.tell_node(number, NodeEvent::TransferEnded { target, source, result });
    }

    fn size_of(&mut self, object: ObjectId) -> u64 {
        self.work.size_of(self.desk.core(), object).unwrap_or(0)
    }
}

/// The digest of an object. Simulated objects have no bytes and never change, so their numbers are enough.
fn digest_of(object: ObjectId) -> Digest {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&object.0.to_le_bytes());
    Digest(digest)
}
