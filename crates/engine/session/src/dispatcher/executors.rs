//! Executors, from the dispatcher's side: their hello, their messages, their silence and their goodbye.

use super::names::ExecutorNames;
use super::{HEARTBEAT_NS, Outside, Permission, Session, TICK_NS};
use eyas_core::dispatcher::TaskState;
use eyas_core::event::{AssignedInput, Assignment, AttemptReport, Event, NodeMessage};
use eyas_core::heard::CacheChanges;
use eyas_terms::{AttemptNo, ExecutorId, RunId, TaskId, Timestamp};
use eyas_text::{line_of, shown};
use eyas_wire::message::{
    AssignTask, ExecutorHello, ExecutorStatus, FromExecutor, Permit, Settings, ToExecutor, Welcome,
};
use eyas_wire::users::Principal;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// How long a permission to fetch from a peer lasts. A fetch may wait for hours behind those of other attempts, and one
/// that is refused then would fail an attempt for nothing; a permission is of no use without the secret.
const PERMIT_MS: u64 = 24 * 60 * 60 * 1000;
/// An executor's connection that was silent for so many heartbeats is taken to be broken.
const BEATS_MISSED_MAX: u64 = 8;
/// Vectors that are kept for later messages.
const SPARE_MAX: usize = 64;
/// Of the time between two ticks, so much counts as time in which executors could be heard.
const LISTENED_MAX_NS: u64 = TICK_NS;
/// Statuses that all executors without attempts may send in a second, together. With more executors than this they
/// speak less often than each second.
const IDLE_BEATS_PER_S: u64 = 2000;
/// An executor without attempts speaks so many times within its lease, at least.
const IDLE_BEATS_PER_LEASE: u64 = 4;

/// All executors that are there or may come back.
pub(super) struct Executors {
    pub(super) by_id: BTreeMap<ExecutorId, ExecutorConnection>,
    pub(super) names: ExecutorNames,
    /// The latest number that was given to one.
    last: u32,
    pub(super) listening: Listening,
    pub(super) sending: Sending,
}

impl Executors {
    pub(super) fn new(now: Timestamp) -> Executors {
        Executors {
            by_id: BTreeMap::new(),
            names: ExecutorNames::default(),
            last: 0,
            listening: Listening::new(now),
            sending: Sending::default(),
        }
    }
}

pub(super) struct Connection {
    pub(super) executor: Option<ExecutorId>,
    pub(super) principal: Principal,
    /// Collected for an executor, sent as one frame.
    pub(super) out: Vec<ToExecutor>,
    /// The connection is listed in [`Sending::due`], or in [`Sending::waiting`].
    pub(super) is_due: bool,
    pub(super) is_waiting: bool,
}

impl Connection {
    pub(super) fn of(principal: Principal) -> Connection {
        Connection { executor: None, principal, out: vec![], is_due: false, is_waiting: false }
    }
}

/// The connections of executors for which something is collected. With many executors, a look at all of them for each
/// sending would cost more than the sending.
#[derive(Default)]
pub(super) struct Sending {
    /// Something was collected since the last sending.
    pub(super) due: Vec<u64>,
    /// What is collected waits for the next tick.
    pub(super) waiting: Vec<u64>,
    /// Empty vectors for what is collected next. If each connection kept its own one, the memory of the largest
    /// message of each of thousands of executors would add up.
    spare: Vec<Vec<ToExecutor>>,
}

impl Sending {
    /// `out`, which is empty, may be used for another connection.
    pub(super) fn keep(&mut self, out: Vec<ToExecutor>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(out);
        }
    }
}

/// Where an executor serves its cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServedAt {
    pub(super) address: String,
    /// The executor's name on the data plane.
    pub(super) data_id: u32,
}

/// The time in which this dispatcher could hear its executors. Ticks come behind all messages that came before them; so
/// while a tick is late, messages wait that nobody has looked at, or this process does not run at all. Of such a wait
/// only the first part counts. Without that, a dispatcher that is held up for some seconds would take all its executors
/// for silent, and their coming back would hold it up again.
#[derive(Default)]
pub(super) struct Listening {
    /// Nanoseconds until the last tick.
    until_tick_ns: u64,
    ticked: Timestamp,
}

impl Listening {
    pub(super) fn new(now: Timestamp) -> Listening {
        Listening { until_tick_ns: 0, ticked: now }
    }

    /// Nanoseconds in which executors could be heard, up to `now`.
    pub(super) fn ns(&self, now: Timestamp) -> u64 {
        self.until_tick_ns + now.since_ns(self.ticked).min(LISTENED_MAX_NS)
    }

    pub(super) fn on_tick(&mut self, now: Timestamp) {
        *self = Listening { until_tick_ns: self.ns(now), ticked: now };
    }
}

pub(super) struct ExecutorConnection {
    pub(super) connection: u64,
    pub(super) served_at: Arc<ServedAt>,
    /// What this executor was told of others since it connected: where they serve their caches.
    pub(super) told: BTreeMap<ExecutorId, Arc<ServedAt>>,
    pub(super) status: ExecutorStatus,
    /// If nothing is heard until then, the connection counts as broken: a time of [`Listening`].
    pub(super) silent_at: u64,
}

impl<O: Outside> Session<O> {
    /// `Err`: the executor cannot stay, and the answer to its hello.
    pub(super) fn on_executor(
        &mut self,
        connection: u64,
        peer: SocketAddr,
        hello: ExecutorHello,
    ) -> Result<(), Welcome> {
        if let Some(instead) = self.turn_away(peer, &hello) {
            return Err(instead);
        }
        self.connections.insert(connection, Connection::of(Principal::Owner));
        let is_ours = hello.offer.owner == Some(self.options.incarnation);
        let known = hello.known_as.filter(|executor| is_ours && self.executors.by_id.contains_key(executor));
        let executor = known.unwrap_or_else(|| self.next_executor());
        let welcome = Welcome::Executor {
            executor,
            incarnation: self.options.incarnation,
            journal: self.journal_name,
            member: self.options.config.group.map(|g| g.me),
            now: self.now,
            settings: self.settings(),
        };
        self.outside.welcome(connection, welcome);
        let (name, slots) = (shown(&hello.offer.name).to_string(), hello.offer.slots);
        let held = match hello.offer.held.len() {
            0 => String::new(),
            1 => " and 1 file in its cache".into(),
            n => format!(" and {n} files in its cache"),
        };
        self.say(match (known, hello.offer.owner) {
            (None, None) => format!("eyas: executor {name} joined from {peer}, with {slots} slots{held}"),
            _ => format!("eyas: executor {name} is back, from {peer}, with {slots} slots"),
        });
        self.executors.names.insert(executor, hello.offer.name.clone());
        self.connect(executor, connection, peer, &hello);
        self.tell_peers_of(executor);
        self.feed(Event::ExecutorJoined { executor, offer: hello.offer });
        Ok(())
    }

    /// What an executor hears in place of a welcome, where it cannot stay.
    fn turn_away(&mut self, peer: SocketAddr, hello: &ExecutorHello) -> Option<Welcome> {
        if let Some((member, address)) = self.elsewhere(hello) {
            return Some(Welcome::Redirected { member, address });
        }
        if let Err(what) = hello.offer.check() {
            let reason = format!("it offers {what}, which is more than any machine has");
            self.say(format!("eyas: an executor from {peer} was refused: {}", line_of(&reason)));
            return Some(Welcome::Refused { reason });
        }
        if !self.core.is_own_work(&hello.offer) {
            let name = shown(&hello.offer.name);
            self.say(format!(
                "eyas: executor {name} from {peer} has work of another dispatcher and was sent away"
            ));
            return Some(Welcome::NotMine);
        }
        None
    }

    fn next_executor(&mut self) -> ExecutorId {
        let last = self.executors.last;
        self.executors.last = self.options.config.group.map_or(last + 1, |g| g.next_number(last));
        ExecutorId(self.executors.last)
    }

    fn settings(&self) -> Settings {
        Settings {
            lease_ns: self.options.config.lease_ns,
            heartbeat_ns: HEARTBEAT_NS,
            capture_head_bytes: self.options.capture_head_bytes,
            capture_tail_bytes: self.options.capture_tail_bytes,
        }
    }

    /// The connection is this executor's from now on.
    fn connect(&mut self, executor: ExecutorId, connection: u64, peer: SocketAddr, hello: &ExecutorHello) {
        let data_address = match hello.data_address.strip_prefix(':') {
            Some(port) => SocketAddr::new(peer.ip(), port.parse().unwrap_or(0)).to_string(),
            None => hello.data_address.clone(),
        };
        let entry = ExecutorConnection {
            connection,
            served_at: Arc::new(ServedAt { address: data_address, data_id: hello.data_id }),
            told: BTreeMap::new(),
            status: ExecutorStatus::default(),
            silent_at: self.executors.listening.ns(self.now) + BEATS_MISSED_MAX * HEARTBEAT_NS,
        };
        if let Some(old) = self.executors.by_id.insert(executor, entry)
            && let Some(old) = self.connections.get_mut(&old.connection)
        {
            old.executor = None;
        }
        self.connections.get_mut(&connection).expect("the connection was just inserted").executor =
            Some(executor);
    }

    /// Where an executor of this dispatcher, or of another one of the group, serves its cache.
    fn find_served(&self, executor: ExecutorId) -> Option<&Arc<ServedAt>> {
        let ours = self.executors.by_id.get(&executor).map(|e| &e.served_at);
        ours.or_else(|| self.foreign_served(executor))
    }

    /// Before `executor` is sent to others for bytes, it is told where they serve their caches. It hears of no others:
    /// that would be a message from each to each.
    pub(super) fn tell_sources(&mut self, executor: ExecutorId, inputs: &[AssignedInput]) {
        self.tell_where(executor, inputs.iter().flat_map(|i| &i.sources));
    }

    /// Tells an executor where these others serve their caches, unless it knows.
    pub(super) fn tell_where<'a>(
        &mut self,
        executor: ExecutorId,
        others: impl IntoIterator<Item = &'a ExecutorId>,
    ) {
        let mut peers = vec![];
        for source in others {
            let Some(served_at) = self.find_served(*source).cloned() else { continue };
            let Some(e) = self.executors.by_id.get_mut(&executor) else { return };
            if e.told.get(source) != Some(&served_at) {
                peers.push((*source, served_at.address.clone(), served_at.data_id));
                e.told.insert(*source, served_at);
            }
        }
        if !peers.is_empty() {
            self.tell(executor, ToExecutor::Peers { peers });
        }
    }

    /// The executor's connection is gone. It may come back until its lease ends.
    pub(super) fn on_silent(&mut self, executor: ExecutorId, connection: u64) {
        if self.executors.by_id.get(&executor).is_some_and(|e| e.connection == connection) {
            self.say(format!("eyas: executor {} fell silent", self.name_of(executor)));
            self.feed(Event::ExecutorSilent { executor });
        }
    }

    /// A connection on which an executor has said nothing for long counts as broken.
    pub(super) fn leave_the_silent(&mut self) {
        let listened_ns = self.executors.listening.ns(self.now);
        let is_silent = |e: &&ExecutorConnection| listened_ns > e.silent_at;
        let silent: Vec<u64> =
            self.executors.by_id.values().filter(is_silent).map(|e| e.connection).collect();
        for connection in silent {
            self.on_disconnected(connection);
        }
    }

    /// The core has given up an executor that did not come back.
    pub(super) fn forget(&mut self, executor: ExecutorId) {
        self.say(format!("eyas: executor {} did not come back and is given up", self.name_of(executor)));
        self.disconnect(executor);
        self.forget_names();
    }

    /// No names stay of executors that have left and of which no known run can speak.
    pub(super) fn forget_names(&mut self) {
        self.executors.names.forget(self.first_run());
    }

    fn disconnect(&mut self, executor: ExecutorId) {
        self.executors.names.left(executor, RunId(self.next_run));
        if let Some(e) = self.executors.by_id.remove(&executor)
            && let Some(c) = self.connections.get_mut(&e.connection)
            && c.executor == Some(executor)
        {
            c.executor = None;
        }
    }

    /// An executor's name, for people.
    pub(super) fn name_of(&self, executor: ExecutorId) -> String {
        self.executors.names.get(executor).map_or(format!("{executor}"), |name| shown(name).to_string())
    }

    pub(super) fn lose(&mut self, executor: ExecutorId, reason: String) {
        self.say(format!("eyas: executor {} left: {}", self.name_of(executor), line_of(&reason)));
        self.disconnect(executor);
        self.feed(Event::ExecutorLost { executor, reason });
        self.forget_names();
    }

    /// What in the message cannot be. Tasks of which this dispatcher does not know are old ones, see [`Self::on_told`].
    pub(super) fn find_nonsense(&self, message: &FromExecutor) -> Option<String> {
        let FromExecutor::Node(message) = message else { return None };
        let is_old = message.reported().is_some_and(|(task, _)| !self.core.work().has_task(task));
        if is_old { None } else { self.core.work().find_nonsense_in_message(message) }
    }

    /// How often an executor without attempts has to speak.
    pub(super) fn idle_ns(&self) -> u64 {
        let n_ns = self.executors.by_id.len() as u64 * 1_000_000_000;
        (n_ns / IDLE_BEATS_PER_S).min(self.options.config.lease_ns / IDLE_BEATS_PER_LEASE).max(HEARTBEAT_NS)
    }

    pub(super) fn on_executor_batch(&mut self, executor: ExecutorId, batch: Vec<FromExecutor>) {
        self.take_executor_batch(executor, batch);
        // After the batch it is known whether the executor has attempts.
        let beats_ns = BEATS_MISSED_MAX * HEARTBEAT_NS;
        let patience_ns = match self.core.has_attempts(executor) {
            true => beats_ns,
            false => beats_ns.max(5 * self.idle_ns() / 2),
        };
        if let Some(e) = self.executors.by_id.get_mut(&executor) {
            e.silent_at = self.executors.listening.ns(self.now) + patience_ns;
        }
    }

    fn take_executor_batch(&mut self, executor: ExecutorId, batch: Vec<FromExecutor>) {
        if let Some(what) = batch.iter().find_map(|message| self.find_nonsense(message)) {
            let reason = format!("the executor speaks of {what}");
            self.tell(executor, ToExecutor::Shutdown { reason: reason.clone() });
            return self.lose(executor, reason);
        }
        let mut changes = CacheChanges::default();
        for message in batch {
            let message = match message {
                FromExecutor::Node(message) => match changes.collect(message) {
                    Some(other) => FromExecutor::Node(other),
                    None => continue,
                },
                other => other,
            };
            if let Some(event) = changes.take(executor) {
                self.feed(event);
            }
            match message {
                FromExecutor::Node(message) => self.on_node_message(executor, message),
                FromExecutor::Status(status) => {
                    if let Some(e) = self.executors.by_id.get_mut(&executor) {
                        e.status = *status;
                    }
                    let idle_ns = self.idle_ns();
                    self.tell(executor, ToExecutor::Beat { idle_ns });
                }
                FromExecutor::Home(report) => self.feed(Event::HomeUsed { executor, report }),
                FromExecutor::Processors(used) => self.feed(Event::ProcessorsUsed { executor, used }),
                FromExecutor::Printed(printed) => self.on_printed(printed),
                FromExecutor::PrintedPart(part) => self.on_printed_part(executor, part),
                FromExecutor::Looked { ask, has_begun, printed } => {
                    self.on_looked(executor, ask, has_begun, *printed)
                }
                FromExecutor::Leaving { within_ns, reason } => {
                    self.feed(Event::ExecutorLeaving { executor, within_ns, reason })
                }
                FromExecutor::Bye { reason } => {
                    self.remember_peer(executor);
                    self.lose(executor, reason);
                    return;
                }
            }
        }
        if let Some(event) = changes.take(executor) {
            self.feed(event);
        }
    }

    /// What is no change of the cache.
    fn on_node_message(&mut self, executor: ExecutorId, message: NodeMessage) {
        if let NodeMessage::AttemptEnded { report } = &message {
            self.keep_outputs(executor, report);
        }
        let event = message.heard_from(executor);
        match event.reported() {
            Some((_, task, attempt)) => self.on_told(executor, task, attempt, event),
            None => self.feed(event),
        }
    }

    /// What the attempt wrote is needed again when its end is recorded.
    fn keep_outputs(&mut self, executor: ExecutorId, report: &AttemptReport) {
        if report.outputs.is_empty() {
            return;
        }
        // An attempt that was given up may come back late: its outputs do not count.
        let is_current = self.core.work().has_task(report.task)
            && matches!(
                self.core.task_state(report.task),
                TaskState::Reserved { executor: e, attempt: a, .. } if (e, a) == (executor, report.attempt)
            );
        if is_current {
            let outputs = report.outputs.iter().map(|o| (o.digest, o.size_bytes)).collect();
            self.recording.outputs.insert(report.task, outputs);
        }
    }

    /// An executor reported on an attempt: the core hears it, and says by its actions what of that is to be recorded.
    fn on_told(&mut self, executor: ExecutorId, task: TaskId, attempt: AttemptNo, event: Event) {
        if !self.core.work().has_task(task) {
            self.tell(executor, ToExecutor::Forgotten { ended: vec![(task, attempt)] });
            return;
        }
        self.feed(event);
    }

    pub(super) fn assign(&mut self, executor: ExecutorId, assignment: Box<Assignment>) {
        // From now on it has to speak as often as one that has work.
        if let Some(e) = self.executors.by_id.get_mut(&executor) {
            let by_work = self.executors.listening.ns(self.now) + BEATS_MISSED_MAX * HEARTBEAT_NS;
            e.silent_at = e.silent_at.min(by_work);
        }
        let spec = self.core.work().task_spec(assignment.task);
        self.tell_sources(executor, &assignment.inputs);
        let permits = self.permits(executor, &assignment.inputs);
        let principal = Principal::of_run(self.core.owner_of(assignment.run));
        let prints_whole = self.prints.whole.contains(&assignment.run);
        let assign = AssignTask { assignment, spec, permits, principal, prints_whole };
        self.tell(executor, ToExecutor::Assign(Box::new(assign)));
    }

    /// The permission of `executor` to fetch each input from each of its sources, in order.
    pub(super) fn permits(&self, executor: ExecutorId, inputs: &[AssignedInput]) -> Vec<Permit> {
        let mut permits = vec![];
        let requester_id = self.executors.by_id.get(&executor).map_or(0, |e| e.served_at.data_id);
        for input in inputs {
            let Some(known) = &input.known else { continue };
            for source in &input.sources {
                let permission = Permission {
                    digest: known.digest,
                    size_bytes: known.size_bytes,
                    holder_id: self.find_served(*source).map_or(0, |served_at| served_at.data_id),
                    requester_id,
                    expires_unix_ms: self.clock_of(*source).0 / 1_000_000 + PERMIT_MS,
                };
                permits.push(self.outside.permit(&permission));
            }
        }
        permits
    }

    pub(super) fn tell(&mut self, executor: ExecutorId, message: ToExecutor) {
        if let Some(out) = self.out(executor) {
            out.push(message);
        }
    }

    /// What is collected for the executor; it is sent with the next sending.
    pub(super) fn out(&mut self, executor: ExecutorId) -> Option<&mut Vec<ToExecutor>> {
        let number = self.executors.by_id.get(&executor)?.connection;
        let connection = self.connections.get_mut(&number)?;
        if !std::mem::replace(&mut connection.is_due, true) {
            self.executors.sending.due.push(number);
        }
        if connection.out.capacity() == 0
            && let Some(spare) = self.executors.sending.spare.pop()
        {
            connection.out = spare;
        }
        Some(&mut connection.out)
    }

    pub(super) fn is_connected(&self, executor: ExecutorId) -> bool {
        self.executors.by_id.get(&executor).is_some_and(|e| self.connections.contains_key(&e.connection))
    }
}
