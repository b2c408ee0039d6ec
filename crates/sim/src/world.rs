//! A simulated cluster: the dispatcher, the executors and the provisioner of `eyas-core` on a virtual clock.
//!
//! In: a [`Machine`], [`Scheduling`], [`Faults`], a [`Workload`] and a seed. Out: a [`Summary`], or the sentence that says why
//! the workload never ends. The state machines decide; here is only what happens to what they ask for:
//!
//! | they ask for | here |
//! |---|---|
//! | a fetch from home | a flow through home, the node's share of it, the node's link and its disk |
//! | a fetch from a peer | a flow through the peer's disk and link and the node's link and disk |
//! | a fetch for one attempt only | the same without the node's disk: the program reads while it comes |
//! | a program | its cached inputs are read from the disk, it computes, its outputs are written to the disk |
//! | an output brought home | a flow through disk, link and home |
//! | a file of home, where the machine bounds opens | before its bytes flow it is opened, after all that were asked for before |
//! | a program in a scratch directory at home | before it reads, its directory is made, after all that were asked for before |
//! | a message | it arrives `message_ns` later |
//! | the dispatcher's time | it handles one event after the other; each task that it gives out takes `dispatch_ns` |
//! | nodes | each joins after a random delay between the machine's bounds, with an empty cache |
//!
//! Two worlds made from equal arguments write equal logs, on every machine: no wall clock, no hash order, no function of
//! the C library's mathematics.
//!
//! Not here: decisions (`eyas-core`); faults between the machines such as lost or late messages (`eyas-testkit`'s world, which
//! looks for broken promises, where this one looks at time).

use crate::agenda::Agenda;
use crate::fluid::{FlowId, Fluid, ResourceId};
use crate::machine::{Faults, Machine};
use crate::outcome::{Recorder, Summary};
use crate::workload::sanity::{Largest, Watch};
use crate::workload::{Compute, Sizes, Submission, Workload};
use eyas_core::array::TaskArray;
use eyas_core::cache::CacheConfig;
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::*;
use eyas_core::executor::{Executor, ExecutorConfig};
use eyas_core::log::{Header, LOG_VERSION, Line, What};
use eyas_core::provisioning::{Demand, NodeView, ProvisionAction, ProvisionConfig, Provisioner};
use eyas_core::rng::Rng;
use eyas_core::*;
use eyas_text::shown;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::sync::Arc;

const S: u64 = 1_000_000_000;
const RUN: RunId = RunId(1);
/// How long, and how often, a source is asked for what it is about to receive, as live.
const AWAIT_NS_MAX: u64 = 30 * S;
const AWAIT_STEP_NS: u64 = 5_000_000;
/// How often a receiver looks whether its source has sent on the last byte.
const SENT_ON_STEP_NS: u64 = 1_000_000;
/// When it is first said how far a watched transfer has come; then each time that it has gone on for twice as long.
const WATCH_NS_MIN: u64 = eyas_core::event::WATCH_NS_MIN;
/// How often the dispatcher hears that time passes, and provisioning looks.
const TICK_NS: u64 = S;
/// When all slots have been idle and no byte has moved for so long, a workload counts as one that never ends.
const STILL_NS: u64 = 3_600 * S;
/// A node's list of flows is looked through when it gets longer than that.
const FLOWS_MIN: usize = 64;
/// Memory is no limit here: more than any task declares.
const NODE_MEMORY_BYTES: u64 = u64::MAX >> 8;

/// Everything that is decided by somebody: the names of policies and their settings.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduling {
    pub dispatcher: DispatcherConfig,
    pub eviction: String,
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
        // A simulated cluster ends with its run: nobody comes who could use what is read once.
        let mut dispatcher = DispatcherConfig::default();
        dispatcher.placement_config.affinity.keeps_once = false;
        Scheduling {
            dispatcher,
            eviction: "lru".into(),
            provision: None,
            transfers_max: 64,
            transfers_per_peer_max: 8,
            home_streams_max: 16,
            inputs_in_turn: false,
            scratch_at_home: false,
        }
    }
}

/// Lives through one workload. `log` gets the event log of the run.
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
        // Here a program reads from home what it reads past the cache; live it is copied to the disk first.
        affinity.disk_bytes_per_s = machine.disk_bytes_per_s as u64;
    }
    let mut world = World::new(machine, &scheduling, faults, workload, seed, log)?;
    world.live()?;
    world.recorder.finish(world.now, world.n_events, world.n_losses)
}

type AttemptId = (TaskId, AttemptNo);

/// What a flow is for.
#[derive(Clone, Copy)]
enum Purpose {
    Fetch { node: u32, transfer: u32 },
    Read { node: u32, attempt: AttemptId },
    Write { node: u32, attempt: AttemptId },
    Land { node: u32, attempt: AttemptId, output: u32 },
}

impl Purpose {
    fn node(&self) -> u32 {
        match *self {
            Purpose::Fetch { node, .. }
            | Purpose::Read { node, .. }
            | Purpose::Write { node, .. }
            | Purpose::Land { node, .. } => node,
        }
    }
}

enum Ev {
    Submit,
    ToDispatcher {
        node: u32,
        messages: Vec<NodeMessage>,
    },
    ToNode {
        node: u32,
        events: Vec<NodeEvent>,
    },
    /// The dispatcher has time again.
    Dispatch,
    HomeAnswered {
        node: u32,
        object: ObjectId,
    },
    Fetched {
        node: u32,
        transfer: u32,
    },
    /// It is time to say how far a watched fetch has come.
    Moved {
        node: u32,
        transfer: u32,
        flow: FlowId,
    },
    /// Home has opened the file of a fetch.
    Opened {
        node: u32,
        transfer: u32,
    },
    /// Home has made the scratch directory of a program that now reads so many bytes.
    ScratchMade {
        node: u32,
        attempt: AttemptId,
        input_bytes: u64,
    },
    /// Home has created the file of an output.
    Created {
        node: u32,
        attempt: AttemptId,
        output: u32,
    },
    /// The source of a fetch is asked again whether it has begun to receive the object.
    Awaited {
        node: u32,
        transfer: u32,
    },
    /// All bytes that the source had to send on are sent, as far as it has them.
    SentOn {
        node: u32,
        transfer: u32,
    },
    Computed {
        node: u32,
        attempt: AttemptId,
    },
    Tick,
    /// The dispatcher asked to be told the time.
    Wake,
    /// Requested nodes are there.
    Join {
        n_nodes: u32,
    },
    Lose {
        node: u32,
    },
}

/// A place in the machine, taken by one node after the other.
#[derive(Clone, Copy)]
struct Place {
    disk: ResourceId,
    link_in: ResourceId,
    link_out: ResourceId,
    /// The node's share of home.
    client: ResourceId,
    speed: f64,
}

struct Program {
    started: Timestamp,
    output_bytes: u64,
}

struct Node {
    core: Executor,
    place: u32,
    slots_idle: u32,
    /// Slots' worth of tasks that the dispatcher has given it, as the dispatcher knows.
    cpus_given: u32,
    /// Programs that were handed over ahead of a slot.
    handed: VecDeque<(AttemptId, u64)>,
    programs: FxHashMap<AttemptId, Program>,
    /// Those that go on, and some that have ended.
    flows: Vec<FlowId>,
    /// At that many flows those that have ended are thrown out.
    flows_max: usize,
    /// Objects that are coming into the cache.
    receiving: BTreeSet<ObjectId>,
    draining: bool,
}

struct Transfer {
    target: Target,
    source: Source,
    object: ObjectId,
    flow: Option<FlowId>,
    size_bytes: u64,
    /// Until then the source may only be about to receive it.
    patience_ends: Timestamp,
    /// The dispatcher wants to know how it comes along.
    watched: bool,
    since: Timestamp,
}

/// Tasks that were submitted together: one array of the dispatcher's.
struct Batch {
    at: Timestamp,
    array: Arc<TaskArray>,
    compute: Compute,
}

/// Operations of one kind that home carries out one after the other, in the order in which they are asked for.
struct Operations {
    each_ns: Option<u64>,
    free_at: u64,
}

impl Operations {
    fn new(per_s: Option<f64>) -> Operations {
        Operations { each_ns: per_s.map(|n| (S as f64 / n) as u64), free_at: 0 }
    }

    /// When one that is asked for now is done. `None`: there is no limit.
    fn done_at(&mut self, now: Timestamp) -> Option<u64> {
        self.free_at = self.free_at.max(now.0) + self.each_ns?;
        Some(self.free_at)
    }
}

struct World<'a> {
    machine: &'a Machine,
    scheduling: &'a Scheduling,
    faults: &'a Faults,
    now: Timestamp,
    agenda: Agenda<Ev>,
    fluid: Fluid<Purpose>,
    home: ResourceId,
    /// Operations of home, where the machine bounds them.
    home_opens: Operations,
    home_scratch: Operations,
    rng: Rng,
    core: Dispatcher,
    inbox: VecDeque<Event>,
    free_at: u64,
    dispatch_due: bool,
    /// When the dispatcher is told the time because it asked for that.
    wake_due: Option<Timestamp>,
    provisioner: Option<Provisioner>,
    n_pending: u32,
    n_wanted: u32,
    places: Vec<Place>,
    places_free: BTreeSet<u32>,
    /// By executor number; `None`: it has left.
    nodes: Vec<Option<Box<Node>>>,
    n_nodes: u32,
    transfers: Vec<Option<Transfer>>,
    transfers_free: Vec<u32>,
    submissions: std::iter::Peekable<Box<dyn Iterator<Item = Submission>>>,
    watch: Watch,
    /// By the dispatcher's number of the array.
    batches: Vec<Batch>,
    next_task: u64,
    sizes: Sizes,
    /// By object, as the catalog numbers them.
    size_of: Vec<Option<u64>>,
    /// Of all versions at home.
    stamp: Arc<str>,
    recorder: Recorder,
    log: Option<Box<dyn Write>>,
    ended: bool,
    n_ended: u64,
    still_since: Timestamp,
    n_events: u64,
    n_losses: u64,
    actions: Vec<Action>,
    /// Kept for their memory, as the two above.
    outbox: Vec<(u32, Vec<NodeEvent>)>,
    node_actions: Vec<NodeAction>,
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
        let core = Dispatcher::new(scheduling.dispatcher.clone())?;
        let provisioner = match &scheduling.provision {
            Some(config) => Some(Provisioner::new(ProvisionConfig {
                nodes_max: config.nodes_max.min(machine.nodes),
                slots_per_node: machine.slots_per_node,
                ..config.clone()
            })?),
            None => None,
        };
        // Tried once here, so that a bad name is said before anything runs.
        node_core(machine, scheduling, 0)?;
        let mut fluid = Fluid::new(0.02);
        let home = fluid.add(machine.home_bytes_per_s);
        let mut rng = Rng::new(seed);
        let mut places = vec![];
        for _ in 0..machine.nodes {
            let slow = (rng.below(1 << 20) as f64) < faults.slow_share * f64::from(1 << 20);
            let speed = if slow { faults.slow_speed } else { 1.0 };
            places.push(Place {
                disk: fluid.add(machine.disk_bytes_per_s * speed),
                link_in: fluid.add(machine.nic_bytes_per_s),
                link_out: fluid.add(machine.nic_bytes_per_s),
                client: fluid.add(machine.home_client_bytes_per_s),
                speed: machine.speed * speed,
            });
        }
        let recorder = Recorder::new(&workload, machine);
        let dispatcher = &scheduling.dispatcher;
        let caches = placement::by_name(&dispatcher.placement, &dispatcher.placement_config)?.uses_caches();
        let largest = Largest {
            slots: machine.slots_per_node,
            memory_bytes: NODE_MEMORY_BYTES,
            cache_bytes: if caches { machine.cache_bytes_per_node } else { 0 },
        };
        let watch = Watch::new(&workload, largest).map_err(|e| e.to_string())?;
        Ok(World {
            machine,
            scheduling,
            faults,
            now: Timestamp(0),
            agenda: Agenda::new(),
            fluid,
            home,
            home_opens: Operations::new(machine.costs.home_opens_per_s),
            home_scratch: Operations::new(machine.costs.home_scratch_per_s),
            rng,
            core,
            inbox: VecDeque::new(),
            free_at: 0,
            dispatch_due: false,
            wake_due: None,
            provisioner,
            n_pending: 0,
            n_wanted: machine.nodes,
            places_free: (0..machine.nodes).collect(),
            places,
            nodes: vec![],
            n_nodes: 0,
            transfers: vec![],
            transfers_free: vec![],
            submissions: workload.submissions.peekable(),
            watch,
            batches: vec![],
            next_task: 0,
            sizes: workload.sizes,
            size_of: vec![],
            stamp: "simulated".into(),
            recorder,
            log,
            ended: false,
            n_ended: 0,
            still_since: Timestamp(0),
            n_events: 0,
            n_losses: 0,
            actions: vec![],
            outbox: vec![],
            node_actions: vec![],
            flows_ended: vec![],
        })
    }

    fn live(&mut self) -> Result<(), String> {
        if let Some(log) = &mut self.log {
            let header = Header {
                eyas_event_log: LOG_VERSION,
                eyas_version: env!("CARGO_PKG_VERSION").into(),
                t: Timestamp(0),
                config: self.scheduling.dispatcher.clone(),
                cluster: format!("simulated {}", self.machine.name),
            };
            write_line(log, &header)?;
        }
        self.tell_core(Event::RunOpened { run: RUN, name: "simulated".into(), keep: false, into: None });
        if self.provisioner.is_none() {
            self.join(self.machine.nodes)?;
        }
        match self.submissions.peek().map(|first| first.at.0) {
            Some(at_ns) => self.schedule(at_ns, Ev::Submit),
            None => return Err("the workload has no task; give it at least one".into()),
        }
        self.schedule(0, Ev::Tick);
        while !self.ended {
            let next_event = self.agenda.next_ns();
            let next_flow = self.fluid.next_ns();
            let Some(at_ns) = next_event.into_iter().chain(next_flow).min() else {
                return Err("nothing will ever happen again, and there are tasks left".into());
            };
            self.now = Timestamp(at_ns);
            if next_flow == Some(at_ns) {
                let mut ended = std::mem::take(&mut self.flows_ended);
                self.fluid.advance(at_ns, &mut ended);
                for purpose in ended.drain(..) {
                    self.n_events += 1;
                    self.on_flow_ended(purpose)?;
                }
                self.flows_ended = ended;
                continue;
            }
            let (_, event) = self.agenda.pop().expect("it was just seen");
            self.n_events += 1;
            self.on_event(event)?;
        }
        if let Some(log) = &mut self.log {
            log.flush().map_err(|e| format!("the event log cannot be written: {e}"))?;
        }
        Ok(())
    }

    fn schedule(&mut self, at_ns: u64, ev: Ev) {
        self.agenda.put(at_ns, ev);
    }

    fn on_event(&mut self, ev: Ev) -> Result<(), String> {
        match ev {
            Ev::Submit => self.submit()?,
            Ev::ToDispatcher { node, messages } => {
                if self.nodes[node as usize].is_some() {
                    self.on_messages(ExecutorId(node), messages);
                }
            }
            Ev::ToNode { node, events } => {
                for event in events {
                    self.tell_node(node, event)?;
                }
            }
            Ev::Dispatch => {
                self.dispatch_due = false;
                self.dispatch();
            }
            Ev::HomeAnswered { node, object } => {
                let result = match self.size_of(object) {
                    Some(size_bytes) => {
                        Ok(HomeAnswer { version: self.version_of(size_bytes), in_place: false })
                    }
                    None => Err(TransferError {
                        kind: TransferErrorKind::Unavailable,
                        message: format!("{} does not exist", shown(self.core.location(object).text())),
                    }),
                };
                self.tell_node(node, NodeEvent::HomeAnswered { object, result })?;
            }
            Ev::Fetched { node, transfer } => self.on_fetched(node, transfer)?,
            Ev::Opened { node, transfer } | Ev::Awaited { node, transfer } => self.fetch(node, transfer),
            Ev::ScratchMade { node, attempt, input_bytes } => {
                if self.nodes[node as usize].as_ref().is_some_and(|n| n.programs.contains_key(&attempt)) {
                    self.read(node, attempt, input_bytes);
                }
            }
            Ev::Created { node, attempt, output } => {
                if self.nodes[node as usize].is_some() {
                    self.land(node, attempt, output);
                }
            }
            Ev::Moved { node, transfer, flow } => self.on_moved(node, transfer, flow)?,
            Ev::SentOn { node, transfer } => self.on_flow_ended(Purpose::Fetch { node, transfer })?,
            Ev::Computed { node, attempt } => self.on_computed(node, attempt)?,
            Ev::Tick => self.on_tick()?,
            Ev::Wake => {
                self.wake_due = None;
                if self.core.wake_at().is_some_and(|at| at <= self.now) {
                    self.tell_core(Event::Ticked);
                }
            }
            Ev::Join { n_nodes } => {
                self.n_pending -= n_nodes;
                self.join(n_nodes)?;
                if let Some(provisioner) = &mut self.provisioner {
                    provisioner.request_ended(self.now, n_nodes, true);
                }
            }
            Ev::Lose { node } => self.lose(node),
        }
        Ok(())
    }

    // ------------------------------------------------------------ the dispatcher

    fn submit(&mut self) -> Result<(), String> {
        // What comes at once is there before anything of it starts, as live.
        let is_first = self.batches.is_empty();
        while let Some(next) = self.submissions.peek() {
            if next.at > self.now {
                let at_ns = next.at.0;
                if is_first {
                    self.tell_core(Event::RunStarted { run: RUN });
                }
                self.schedule(at_ns, Ev::Submit);
                return Ok(());
            }
            let next = self.submissions.next().expect("it was just seen");
            self.watch.check(&next, &self.sizes).map_err(|e| e.to_string())?;
            let Submission { at, array, compute } = next;
            self.next_task += u64::from(array.n_tasks);
            self.recorder.arrived(at, u64::from(array.n_tasks));
            self.batches.push(Batch { at, array: array.clone(), compute });
            self.tell_core(Event::ArrayAdded { run: RUN, array });
        }
        self.watch.finish().map_err(|e| e.to_string())?;
        self.tell_core(Event::RunCommitted { run: RUN });
        Ok(())
    }

    fn on_messages(&mut self, executor: ExecutorId, messages: Vec<NodeMessage>) {
        let (mut added, mut dropped) = (vec![], vec![]);
        for message in messages {
            match message {
                NodeMessage::ReplicaAdded(replica) => {
                    if !dropped.is_empty() {
                        let (added, dropped) = (std::mem::take(&mut added), std::mem::take(&mut dropped));
                        self.tell_core(Event::ReplicasChanged { executor, added, dropped });
                    }
                    added.push(replica);
                }
                NodeMessage::ReplicaDropped(object) => dropped.push(object),
                other => {
                    if !added.is_empty() || !dropped.is_empty() {
                        let (added, dropped) = (std::mem::take(&mut added), std::mem::take(&mut dropped));
                        self.tell_core(Event::ReplicasChanged { executor, added, dropped });
                    }
                    self.tell_core(match other {
                        NodeMessage::AttemptEnded { report } => Event::AttemptEnded { executor, report },
                        NodeMessage::OutputsHome { task, attempt, result } => {
                            Event::OutputsHome { executor, task, attempt, result }
                        }
                        NodeMessage::PrefetchFailed { batch, object, kind } => {
                            Event::PrefetchFailed { executor, batch, object, kind }
                        }
                        NodeMessage::CacheResized { cache_bytes } => {
                            Event::CacheResized { executor, cache_bytes }
                        }
                        NodeMessage::InputMoved(moved) => Event::InputMoved { executor, moved },
                        NodeMessage::PartsRemoved { tasks } => Event::PartsRemoved { executor, tasks },
                        NodeMessage::ReplicaAdded(_) | NodeMessage::ReplicaDropped(_) => {
                            unreachable!("handled above")
                        }
                    });
                }
            }
        }
        if !added.is_empty() || !dropped.is_empty() {
            self.tell_core(Event::ReplicasChanged { executor, added, dropped });
        }
    }

    fn tell_core(&mut self, event: Event) {
        self.inbox.push_back(event);
        self.dispatch();
    }

    /// Handles what has come, as far as the dispatcher has time.
    fn dispatch(&mut self) {
        while self.free_at <= self.now.0
            && let Some(event) = self.inbox.pop_front()
        {
            self.handle(event);
        }
        if !self.inbox.is_empty() && !self.dispatch_due {
            self.dispatch_due = true;
            self.schedule(self.free_at, Ev::Dispatch);
        }
        if self.wake_due.is_none()
            && self.inbox.is_empty()
            && let Some(at) = self.core.wake_at()
        {
            self.wake_due = Some(at);
            self.schedule(at.0.max(self.now.0), Ev::Wake);
        }
    }

    fn handle(&mut self, event: Event) {
        if self.log.is_some() {
            self.write_log(What::In(event.clone()));
        }
        // Who hears that the end of its attempt is on record.
        let recorded = match &event {
            Event::AttemptEnded { executor, report } => {
                self.recorder.reported(report);
                let (batch, _) = self.batch_of(report.task);
                let cpus = batch.array.template.cpus;
                self.count_given(*executor, |given| given - cpus);
                let lands = report.outcome == eyas_core::Outcome::Done && self.core.lands(report.task);
                (!lands).then_some((*executor, report.task, report.attempt))
            }
            Event::OutputsHome { executor, task, attempt, .. } => Some((*executor, *task, *attempt)),
            _ => None,
        };
        let mut actions = std::mem::take(&mut self.actions);
        self.core.handle(self.now, event, &mut actions);
        let mut n_assigned = 0;
        for action in &actions {
            if let Action::Assign { executor, assignment } = action {
                n_assigned += 1;
                self.count_given(*executor, |given| given + assignment.cpus);
            }
        }
        self.recorder.queues(self.now, self.core.n_ready());
        self.free_at = self.now.0 + n_assigned * self.machine.dispatch_ns;
        let at_ns = self.free_at + self.machine.message_ns;
        // Messages to one node travel together.
        let mut out = std::mem::take(&mut self.outbox);
        let mut send = |node: ExecutorId, event: NodeEvent| match out
            .iter_mut()
            .rev()
            .take(8)
            .find(|(n, _)| *n == node.0)
        {
            Some((_, events)) => events.push(event),
            None => out.push((node.0, vec![event])),
        };
        if let Some((executor, task, attempt)) = recorded {
            send(executor, NodeEvent::EndRecorded { task, attempt });
        }
        for action in actions.drain(..) {
            if let Some(log) = &mut self.log {
                let _ = write_line(log, &Line { t: self.now, what: What::Out(action.clone()) });
            }
            match action {
                Action::Assign { executor, assignment } | Action::ReplicateTask { executor, assignment } => {
                    send(executor, NodeEvent::Assigned { assignment })
                }
                Action::CancelAttempt { executor, task, attempt } => {
                    send(executor, NodeEvent::CancelRequested { task, attempt })
                }
                Action::RecallAttempt { executor, task, attempt } => {
                    send(executor, NodeEvent::RecallRequested { task, attempt })
                }
                Action::DropReplicas { executor, objects } => {
                    send(executor, NodeEvent::DropRequested { objects })
                }
                Action::EndTask { task, outcome } => {
                    self.n_ended += 1;
                    self.still_since = self.now;
                    let at = self.batch_of(task).0.at;
                    self.recorder.ended(self.now, at, &outcome);
                }
                Action::ReviveTask { .. } => self.n_ended -= 1,
                Action::EndRun { .. } => self.ended = true,
                Action::RefuseRun { message, .. } => {
                    self.recorder.refused = Some(message);
                    self.ended = true;
                }
                Action::Prefetch { executor, batch, inputs } => {
                    send(executor, NodeEvent::PrefetchRequested { batch, inputs })
                }
                Action::CancelPrefetch { executor, objects } => {
                    send(executor, NodeEvent::PrefetchCancelled { objects })
                }
                Action::FoundPattern { .. } | Action::EndCollective { .. } => {}
                // Simulated clusters keep all runs.
                Action::ForgetRun { .. } => {}
                // Its connection was forgotten when it was lost.
                // Its executors know the dispatcher's numbers.
                Action::NameObjects { .. } | Action::ForgetExecutor { .. } => {}
                // No executor is lost here.
                Action::RemoveParts { .. } | Action::ShareHome { .. } => {}
                // There is no journal.
                Action::RecordGivenUp { task, attempt } => {
                    self.inbox.push_back(Event::AttemptGivenUp { task, attempt })
                }
                // There is one dispatcher.
                Action::TellMember { .. } | Action::SendAway { .. } => {}
            }
        }
        self.actions = actions;
        for (node, events) in out.drain(..) {
            self.schedule(at_ns, Ev::ToNode { node, events });
        }
        self.outbox = out;
    }

    /// The tasks that the dispatcher has given to a node have changed, if it is there.
    fn count_given(&mut self, node: ExecutorId, change: impl FnOnce(u32) -> u32) {
        if let Some(held) = self.nodes[node.0 as usize].as_mut() {
            held.cpus_given = change(held.cpus_given);
            self.recorder.given(node.0, Some((self.machine.slots_per_node, held.cpus_given)));
        }
    }

    fn write_log(&mut self, what: What) {
        if let Some(log) = &mut self.log {
            let _ = write_line(log, &Line { t: self.now, what });
        }
    }

    fn on_tick(&mut self) -> Result<(), String> {
        self.tell_core(Event::Ticked);
        self.recorder.sample(self.now, self.core.n_ready(), self.n_nodes, self.busy_slots());
        if self.provisioner.is_some() {
            self.provision()?;
        } else if self.n_nodes + self.n_pending < self.n_wanted {
            // Lost ones are replaced.
            let n_nodes = self.n_wanted - self.n_nodes - self.n_pending;
            self.request(n_nodes);
        }
        // A program may compute for months, and a node may be awaited for days: both are work that goes on.
        let is_still = self.fluid.n_flows() == 0
            && self.submissions.peek().is_none()
            && self.n_pending == 0
            && self.busy_slots() == 0;
        if !is_still {
            self.still_since = self.now;
        }
        if self.now.since_ns(self.still_since) > STILL_NS {
            return Err(format!(
                "the workload never ends: {} of {} tasks have ended, and nothing has happened for an hour; {}",
                self.n_ended,
                self.next_task,
                self.why_still()
            ));
        }
        self.schedule(self.now.0 + TICK_NS, Ev::Tick);
        Ok(())
    }

    fn why_still(&self) -> String {
        if self.n_nodes == 0 {
            return "no node is there; see the provisioning policy and its bounds".into();
        }
        let waiting = (0..self.next_task).map(TaskId).find_map(|task| match self.core.task_state(task) {
            eyas_core::dispatcher::TaskState::Ready { reason } => Some(reason.unwrap_or_default()),
            eyas_core::dispatcher::TaskState::Waiting { n_missing } => {
                Some(format!("{n_missing} of its inputs are not made"))
            }
            _ => None,
        });
        format!("the first one that waits: {}", waiting.unwrap_or_else(|| "none".into()))
    }

    fn busy_slots(&self) -> u32 {
        let n_slots = self.machine.slots_per_node;
        self.nodes.iter().flatten().map(|n| n_slots - n.slots_idle).sum()
    }

    // ------------------------------------------------------------ nodes come and go

    fn provision(&mut self) -> Result<(), String> {
        let mut views = vec![];
        let demand = self.core.demand(self.n_pending, &mut views);
        // As live: an executor knows its cache best.
        let cached_bytes = |view: &NodeView| {
            let node = self.nodes[view.executor.0 as usize].as_ref();
            node.map_or(0, |node| node.core.cache().used_bytes())
        };
        let nodes: Vec<NodeView> =
            demand.nodes.iter().map(|view| NodeView { cached_bytes: cached_bytes(view), ..*view }).collect();
        let demand = Demand { nodes: &nodes, ..demand };
        let mut out = vec![];
        self.provisioner.as_mut().expect("the caller looked").decide(self.now, &demand, &mut out);
        for action in out {
            match action {
                ProvisionAction::Request { n_nodes } => self.request(n_nodes),
                ProvisionAction::Release { executor } => {
                    self.tell_core(Event::ExecutorDraining { executor });
                    if let Some(node) = self.nodes[executor.0 as usize].as_mut() {
                        node.draining = true;
                    }
                }
            }
        }
        // Who has drained goes.
        let gone: Vec<u32> = (0..self.nodes.len() as u32)
            .filter(|n| {
                self.nodes[*n as usize].as_ref().is_some_and(|node| node.draining && node.core.is_idle())
            })
            .collect();
        for node in gone {
            self.leave(node);
            let reason = "it was released".into();
            self.tell_core(Event::ExecutorLost { executor: ExecutorId(node), reason });
        }
        Ok(())
    }

    fn request(&mut self, n_nodes: u32) {
        let spread = self.machine.node_delay_max_ns - self.machine.node_delay_min_ns;
        let delay_ns = self.machine.node_delay_min_ns + self.rng.below(spread + 1);
        self.n_pending += n_nodes;
        self.schedule(self.now.0 + delay_ns, Ev::Join { n_nodes });
    }

    fn join(&mut self, n_nodes: u32) -> Result<(), String> {
        for _ in 0..n_nodes {
            let Some(place) = self.places_free.pop_first() else { return Ok(()) };
            let number = self.nodes.len() as u32;
            let core = node_core(self.machine, self.scheduling, u64::from(number))?;
            self.nodes.push(Some(Box::new(Node {
                core,
                place,
                slots_idle: self.machine.slots_per_node,
                cpus_given: 0,
                handed: VecDeque::new(),
                programs: FxHashMap::default(),
                flows: vec![],
                flows_max: FLOWS_MIN,
                receiving: BTreeSet::new(),
                draining: false,
            })));
            self.n_nodes += 1;
            self.recorder.nodes(self.now, self.n_nodes);
            self.recorder.given(number, Some((self.machine.slots_per_node, 0)));
            let offer = Offer {
                name: format!("node{number}"),
                slots: self.machine.slots_per_node,
                memory_bytes: NODE_MEMORY_BYTES,
                cache_bytes: self.machine.cache_bytes_per_node,
                ..Offer::default()
            };
            self.tell_core(Event::ExecutorJoined { executor: ExecutorId(number), offer });
            if self.faults.losses_per_node_hour > 0.0 {
                // Exponential, by its inverse; the logarithm is not the C library's.
                let u = (self.rng.below(1 << 53) as f64 + 1.0) / (1u64 << 53) as f64;
                let hours = -libm::log(u) / self.faults.losses_per_node_hour;
                let at_ns = self.now.0.saturating_add((hours * 3600e9) as u64);
                self.schedule(at_ns, Ev::Lose { node: number });
            }
        }
        Ok(())
    }

    /// The process is gone, and with it everything it had and did.
    fn lose(&mut self, node: u32) {
        if self.nodes[node as usize].is_none() {
            return;
        }
        self.n_losses += 1;
        self.leave(node);
        self.tell_core(Event::ExecutorSilent { executor: ExecutorId(node) });
    }

    fn leave(&mut self, number: u32) {
        let node = self.nodes[number as usize].take().expect("the caller looked");
        self.places_free.insert(node.place);
        self.n_nodes -= 1;
        self.recorder.nodes(self.now, self.n_nodes);
        self.recorder.given(number, None);
        let mut flows = node.flows;
        flows.sort_unstable();
        for flow in flows {
            self.fluid.cancel(self.now.0, flow);
        }
        // Copies that others were taking from it break off.
        let broken: Vec<u32> = (0..self.transfers.len() as u32)
            .filter(|i| {
                self.transfers[*i as usize]
                    .as_ref()
                    .is_some_and(|t| t.source == Source::Peer(ExecutorId(number)) && t.flow.is_some())
            })
            .collect();
        for i in broken {
            let flow =
                self.transfers[i as usize].as_mut().and_then(|t| t.flow.take()).expect("it was just seen");
            if let Some(Purpose::Fetch { node, .. }) = self.fluid.tag(flow) {
                self.fluid.cancel(self.now.0, flow);
                self.schedule(self.now.0 + self.machine.message_ns, Ev::Fetched { node, transfer: i });
            }
        }
    }

    // ------------------------------------------------------------ one node

    fn tell_node(&mut self, number: u32, event: NodeEvent) -> Result<(), String> {
        let mut actions = std::mem::take(&mut self.node_actions);
        let (mut events, mut messages) = (VecDeque::new(), vec![]);
        let mut next = Some(event);
        while let Some(event) = next {
            let Some(node) = self.nodes[number as usize].as_mut() else { break };
            node.core.handle(self.now, event, &mut actions);
            for action in actions.drain(..) {
                self.act(number, action, &mut events, &mut messages);
            }
            next = events.pop_front();
        }
        self.node_actions = actions;
        if !messages.is_empty() {
            let at_ns = self.now.0 + self.machine.message_ns;
            self.schedule(at_ns, Ev::ToDispatcher { node: number, messages });
        }
        Ok(())
    }

    fn act(
        &mut self,
        number: u32,
        action: NodeAction,
        events: &mut VecDeque<NodeEvent>,
        messages: &mut Vec<NodeMessage>,
    ) {
        match action {
            NodeAction::AskHome { object } => {
                self.schedule(
                    self.now.0 + self.machine.home_latency_ns,
                    Ev::HomeAnswered { node: number, object },
                );
            }
            NodeAction::Fetch { target, object, source, size_bytes, awaits, watched, .. } => {
                let slot = self.transfers_free.pop().unwrap_or_else(|| {
                    self.transfers.push(None);
                    self.transfers.len() as u32 - 1
                });
                let patience_ends = self.now.plus_ns(if awaits { AWAIT_NS_MAX } else { 0 });
                let since = self.now;
                let transfer = Transfer {
                    target,
                    source,
                    object,
                    flow: None,
                    size_bytes,
                    patience_ends,
                    watched,
                    since,
                };
                self.transfers[slot as usize] = Some(transfer);
                let opened = if source == Source::Home { self.home_opens.done_at(self.now) } else { None };
                match opened {
                    Some(at_ns) => self.schedule(at_ns, Ev::Opened { node: number, transfer: slot }),
                    None => self.fetch(number, slot),
                }
            }
            NodeAction::Start { task, attempt, inputs, .. } => {
                let bytes: u64 = inputs
                    .iter()
                    .map(|input| match input {
                        Staged::Cached(object) | Staged::InPlace(object) => {
                            self.size_of(*object).unwrap_or(0)
                        }
                        Staged::Private => 0,
                    })
                    .sum();
                let node = self.nodes[number as usize].as_mut().expect("it acts");
                if node.slots_idle > 0 {
                    node.slots_idle -= 1;
                    self.start(number, (task, attempt), bytes);
                } else {
                    node.handed.push_back(((task, attempt), bytes));
                }
            }
            NodeAction::Kill { task, attempt } => self.kill(number, (task, attempt), events),
            NodeAction::StoreOutput { task, attempt, output, object, .. } => {
                let bytes = self.size_of(object).unwrap_or(0);
                let result = Ok(Fetched { digest: digest_of(object), size_bytes: bytes, version: None });
                events.push_back(NodeEvent::OutputStored { task, attempt, output, result });
            }
            NodeAction::Land { task, attempt, output, object, .. } => {
                self.recorder.landed_bytes += self.size_of(object).unwrap_or(0);
                let attempt = (task, attempt);
                match self.home_opens.done_at(self.now) {
                    Some(at_ns) => self.schedule(at_ns, Ev::Created { node: number, attempt, output }),
                    None => self.land(number, attempt, output),
                }
            }
            NodeAction::Evict { .. }
            | NodeAction::DropPrivate { .. }
            | NodeAction::CleanUp { .. }
            | NodeAction::Halt { .. } => {}
            NodeAction::Tell { message } => messages.push(message),
        }
    }

    /// Brings an output home. Its cost there is taken for the whole way: home is the slowest part of it.
    fn land(&mut self, number: u32, attempt: AttemptId, output: u32) {
        let place = self.place_of(number);
        let object = self.output_of(attempt.0, output);
        let bytes = self.size_of(object).unwrap_or(0) as f64 * self.machine.costs.home_write;
        let crossed = [place.disk, place.link_out, place.client, self.home];
        self.flow(number, bytes as u64, &crossed, Purpose::Land { node: number, attempt, output });
    }

    fn place_of(&self, number: u32) -> Place {
        self.places[self.nodes[number as usize].as_ref().expect("it acts").place as usize]
    }

    fn flow(&mut self, number: u32, bytes: u64, crossed: &[ResourceId], purpose: Purpose) -> FlowId {
        let flow = self.fluid.begin(self.now.0, bytes, crossed, purpose);
        let node = self.nodes[number as usize].as_mut().expect("it acts");
        node.flows.push(flow);
        if node.flows.len() >= node.flows_max {
            node.flows.retain(|flow| self.fluid.tag(*flow).is_some());
            node.flows_max = FLOWS_MIN.max(2 * node.flows.len());
        }
        flow
    }

    /// Whether `peer` has `object`, or sends on what it still receives of it.
    fn serves(&self, peer: ExecutorId, object: ObjectId, awaits: bool) -> bool {
        let Some(node) = self.nodes[peer.0 as usize].as_ref() else { return false };
        node.core.cache().is_ready(object) || awaits && node.receiving.contains(&object)
    }

    fn fetch(&mut self, number: u32, slot: u32) {
        let Some(Transfer { target, source, object, size_bytes, patience_ends, watched, .. }) =
            self.transfers[slot as usize]
        else {
            return;
        };
        if self.nodes[number as usize].is_none() {
            return;
        }
        let awaits = self.now < patience_ends;
        let to = self.place_of(number);
        let cached = matches!(target, Target::Cache(_));
        let crossed: Option<Vec<ResourceId>> = match source {
            Source::Home if cached => Some(vec![self.home, to.client, to.link_in, to.disk]),
            Source::Home => Some(vec![self.home, to.client, to.link_in]),
            Source::Peer(peer) => {
                let from = self.nodes[peer.0 as usize].as_ref().filter(|_| self.serves(peer, object, awaits));
                from.map(|p| {
                    let from = self.places[p.place as usize];
                    vec![from.disk, from.link_out, to.link_in, to.disk]
                })
            }
        };
        match crossed {
            Some(crossed) => {
                let flow =
                    self.flow(number, size_bytes, &crossed, Purpose::Fetch { node: number, transfer: slot });
                self.transfers[slot as usize].as_mut().expect("just made").flow = Some(flow);
                if watched {
                    let at_ns = self.now.0 + WATCH_NS_MIN;
                    self.schedule(at_ns, Ev::Moved { node: number, transfer: slot, flow });
                }
                if cached {
                    self.nodes[number as usize].as_mut().expect("it asks").receiving.insert(object);
                }
            }
            None if awaits => {
                self.schedule(self.now.0 + AWAIT_STEP_NS, Ev::Awaited { node: number, transfer: slot })
            }
            // It has gone from there: one question and its answer.
            None => self.schedule(
                self.now.0 + 2 * self.machine.message_ns,
                Ev::Fetched { node: number, transfer: slot },
            ),
        }
    }

    fn on_moved(&mut self, number: u32, transfer: u32, flow: FlowId) -> Result<(), String> {
        let Some(Transfer { target, source, object, size_bytes, since, .. }) =
            self.transfers[transfer as usize]
        else {
            return Ok(());
        };
        let Some(left) = self.fluid.left(self.now.0, flow).filter(|_| self.nodes[number as usize].is_some())
        else {
            return Ok(());
        };
        let moving_ns = self.now.since_ns(since);
        let moved_bytes = size_bytes.saturating_sub(left as u64);
        let moved = InputMoved { target, object, source, moved_bytes, size_bytes, moving_ns, is_all: false };
        let at_ns = self.now.0 + moving_ns.max(WATCH_NS_MIN);
        self.schedule(at_ns, Ev::Moved { node: number, transfer, flow });
        self.tell_node(number, NodeEvent::TransferMoved { moved })
    }

    fn on_flow_ended(&mut self, purpose: Purpose) -> Result<(), String> {
        let number = purpose.node();
        match purpose {
            Purpose::Fetch { node, transfer } => {
                // The latency of its first byte is paid at its end: it makes no difference to the others.
                let Transfer { source, object, .. } =
                    *self.transfers[transfer as usize].as_ref().expect("it is under way");
                if let Source::Peer(peer) = source
                    && self.nodes[peer.0 as usize].as_ref().is_some_and(|n| n.receiving.contains(&object))
                {
                    // It was sent on while it came: the last byte cannot be here before it is there.
                    self.schedule(self.now.0 + SENT_ON_STEP_NS, Ev::SentOn { node, transfer });
                    return Ok(());
                }
                let latency_ns = match source {
                    Source::Home => self.machine.home_latency_ns,
                    Source::Peer(_) => 2 * self.machine.message_ns,
                };
                self.schedule(self.now.0 + latency_ns, Ev::Fetched { node, transfer });
                Ok(())
            }
            Purpose::Read { attempt, .. } => {
                self.compute(number, attempt);
                Ok(())
            }
            Purpose::Write { attempt, .. } => self.program_ended(number, attempt),
            Purpose::Land { attempt, output, .. } => {
                let object = self.output_of(attempt.0, output);
                let bytes = self.size_of(object).unwrap_or(0);
                let (task, attempt) = attempt;
                let result = Ok(self.version_of(bytes));
                self.tell_node(number, NodeEvent::OutputLanded { task, attempt, output, result })
            }
        }
    }

    fn on_fetched(&mut self, number: u32, transfer: u32) -> Result<(), String> {
        let ended = self.transfers[transfer as usize].take().expect("each transfer ends once");
        self.transfers_free.push(transfer);
        let Transfer { target, source, object, flow, .. } = ended;
        let result = match (flow, source) {
            (Some(_), _) => {
                if let Some(node) = self.nodes[number as usize].as_mut() {
                    node.receiving.remove(&object);
                }
                let bytes = self.size_of(object).unwrap_or(0);
                self.recorder.moved(source, bytes);
                let version = (source == Source::Home).then(|| self.version_of(bytes));
                Ok(Fetched { digest: digest_of(object), size_bytes: bytes, version })
            }
            (None, _) => Err(TransferError {
                kind: TransferErrorKind::NotHeld,
                message: "the peer does not have it any more".into(),
            }),
        };
        self.tell_node(number, NodeEvent::TransferEnded { target, source, result })
    }

    fn start(&mut self, number: u32, attempt: AttemptId, input_bytes: u64) {
        let (batch, i) = self.batch_of(attempt.0);
        let mut output_bytes = 0;
        let template = &batch.array.template;
        for (_, pattern) in &template.outputs {
            output_bytes += self.sizes.of(&batch.array.fill(pattern, i)).unwrap_or(0);
        }
        let now = self.now;
        let node = self.nodes[number as usize].as_mut().expect("it acts");
        node.programs.insert(attempt, Program { started: now, output_bytes });
        let made = if self.scheduling.scratch_at_home { self.home_scratch.done_at(self.now) } else { None };
        match made {
            Some(at_ns) => self.schedule(at_ns, Ev::ScratchMade { node: number, attempt, input_bytes }),
            None => self.read(number, attempt, input_bytes),
        }
    }

    /// The program reads what is cached, then computes.
    fn read(&mut self, number: u32, attempt: AttemptId, input_bytes: u64) {
        let disk = self.place_of(number).disk;
        if input_bytes > 0 {
            self.flow(number, input_bytes, &[disk], Purpose::Read { node: number, attempt });
        } else {
            self.compute(number, attempt);
        }
    }

    fn compute(&mut self, number: u32, attempt: AttemptId) {
        if self.nodes[number as usize].as_ref().is_none_or(|n| !n.programs.contains_key(&attempt)) {
            return;
        }
        let (batch, i) = self.batch_of(attempt.0);
        let speed = self.place_of(number).speed;
        let compute_ns = (batch.compute.of(i) as f64 / speed) as u64;
        let at_ns = self.now.0 + self.machine.task_overhead_ns + compute_ns;
        self.schedule(at_ns, Ev::Computed { node: number, attempt });
    }

    fn on_computed(&mut self, number: u32, attempt: AttemptId) -> Result<(), String> {
        let Some(node) = self.nodes[number as usize].as_ref() else { return Ok(()) };
        let Some(program) = node.programs.get(&attempt) else { return Ok(()) };
        if program.output_bytes > 0 {
            let bytes = (program.output_bytes as f64 * self.machine.costs.disk_write) as u64;
            let disk = self.place_of(number).disk;
            self.flow(number, bytes, &[disk], Purpose::Write { node: number, attempt });
            return Ok(());
        }
        self.program_ended(number, attempt)
    }

    fn program_ended(&mut self, number: u32, attempt: AttemptId) -> Result<(), String> {
        let Some(node) = self.nodes[number as usize].as_mut() else { return Ok(()) };
        let Some(program) = node.programs.remove(&attempt) else { return Ok(()) };
        let started = program.started;
        self.free_slot(number);
        let (batch, i) = self.batch_of(attempt.0);
        let outputs = &batch.array.template.outputs;
        let outputs =
            outputs.iter().map(|(_, p)| Some(self.sizes.of(&batch.array.fill(p, i)).unwrap_or(0))).collect();
        let exit = Exit {
            result: Ok(()),
            started,
            exited: self.now,
            cpu_ns: batch.compute.of(i),
            rss_bytes_max: 0,
            outputs,
            inputs_modified: vec![],
            inputs_damaged: vec![],
            disk: None,
        };
        self.recorder.ran(started, self.now);
        let (task, attempt) = attempt;
        self.tell_node(number, NodeEvent::ProgramEnded { task, attempt, exit })
    }

    fn kill(&mut self, number: u32, attempt: AttemptId, events: &mut VecDeque<NodeEvent>) {
        let now = self.now;
        let node = self.nodes[number as usize].as_mut().expect("it acts");
        let handed = node.handed.iter().position(|(id, _)| *id == attempt);
        if let Some(at) = handed {
            node.handed.remove(at);
        } else if node.programs.remove(&attempt).is_some() {
            // What it was reading or writing goes on without it, as a page cache would.
            self.free_slot(number);
        } else {
            return;
        }
        let exit = Exit {
            result: Err(Failure { kind: FailureKind::Signal(9), message: "it was ended".into() }),
            started: now,
            exited: now,
            cpu_ns: 0,
            rss_bytes_max: 0,
            outputs: vec![],
            inputs_modified: vec![],
            inputs_damaged: vec![],
            disk: None,
        };
        let (task, attempt) = attempt;
        events.push_back(NodeEvent::ProgramEnded { task, attempt, exit });
    }

    /// The next program that was handed over takes the slot.
    fn free_slot(&mut self, number: u32) {
        let node = self.nodes[number as usize].as_mut().expect("it acts");
        match node.handed.pop_front() {
            Some((attempt, bytes)) => self.start(number, attempt, bytes),
            None => node.slots_idle += 1,
        }
    }

    // ------------------------------------------------------------ looking up

    fn batch_of(&self, task: TaskId) -> (&Batch, u32) {
        let (array, i) = self.core.locate(task);
        (&self.batches[array.0 as usize], i)
    }

    fn version_of(&self, size_bytes: u64) -> HomeVersion {
        HomeVersion { size_bytes, stamp: self.stamp.clone() }
    }

    fn output_of(&mut self, task: TaskId, output: u32) -> ObjectId {
        let location = &self.core.task_spec(task).outputs[output as usize].1;
        self.core.catalog().find(CatalogLocation::of(location)).expect("an output that lands is known")
    }

    fn size_of(&mut self, object: ObjectId) -> Option<u64> {
        let i = object.0 as usize;
        while self.size_of.len() <= i {
            let next = ObjectId(self.size_of.len() as u32);
            self.size_of.push(self.sizes.of(&self.core.location(next).written().text()));
        }
        self.size_of[i]
    }
}

fn node_core(machine: &Machine, scheduling: &Scheduling, seed: u64) -> Result<Executor, String> {
    let cache = CacheConfig {
        budget_bytes: machine.cache_bytes_per_node,
        eviction: scheduling.eviction.clone(),
        seed,
    };
    let config = ExecutorConfig {
        slots: machine.slots_per_node,
        cache,
        transfers_max: scheduling.transfers_max,
        transfers_per_peer_max: scheduling.transfers_per_peer_max,
        home_streams_max: scheduling.home_streams_max,
        inputs_in_turn: scheduling.inputs_in_turn,
    };
    Executor::new(config).map_err(|e| e.to_string())
}

/// Stands for the bytes: objects here never change.
fn digest_of(object: ObjectId) -> Digest {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&object.0.to_le_bytes());
    Digest(digest)
}

fn write_line(log: &mut Box<dyn Write>, line: &impl Serialize) -> Result<(), String> {
    let failed = |e: String| format!("the event log cannot be written: {e}");
    serde_json::to_writer(&mut *log, line).map_err(|e| failed(e.to_string()))?;
    log.write_all(b"\n").map_err(|e| failed(e.to_string()))
}
