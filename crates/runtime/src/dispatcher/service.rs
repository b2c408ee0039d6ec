//! The dispatcher's loop. See the parent module.

use super::group::Group;
use super::place::PLACE_FILE;
use super::printed::Prints;
use super::provision::Provision;
use super::records::Record;
use super::{DispatcherError, DispatcherOptions};
use crate::clock;
use crate::eventlog::{self, EventLog};
use crate::net::Writer;
use eyas_core::dispatcher::{Dispatcher, RunState, TaskState};
use eyas_core::event::*;
use eyas_core::home_share::{HomeLimits, HomeShares};
use eyas_core::log::{EVENTS_FILE, Header, LOG_VERSION, PRINTED_FILE, PrintedLine};
use eyas_core::*;
use eyas_data::peer::{Ticket, TicketKey};
use eyas_journal::{ErrorKind, Health, Journal, Notice, Recovered, Seq};
use eyas_text::{line_of, shown};
use eyas_wire::identity::Identity;
use eyas_wire::message::*;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a permission to fetch from a peer lasts. A fetch may wait for hours behind those of other attempts, and one
/// that is refused then would fail an attempt for nothing; a permission is of no use without the secret.
const PERMIT_MS: u64 = 24 * 60 * 60 * 1000;
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// How often the core hears that time passed.
const TICK_NS: u64 = 1_000_000_000;
/// An executor's connection that was silent for so many heartbeats is taken to be broken.
const BEATS_MISSED_MAX: u64 = 8;
/// Inputs taken before anything is sent.
const BATCH_MAX: usize = 256;
/// Recorded ends that wait for company on their way to an executor, which only forgets by them; a tick sends fewer.
const RECORDED_BATCH: usize = 256;
/// How long the word that a run has ended waits for the event log; the journal has its ends already.
const LOGGED_MAX: Duration = Duration::from_secs(10);
/// How many log lines an explanation holds at most.
const EXPLAIN_LINES_MAX: usize = 200;

pub enum Input {
    Connected {
        connection: u64,
        peer: SocketAddr,
        hello: Hello,
        writer: Writer,
    },
    Disconnected {
        connection: u64,
    },
    FromExecutor {
        connection: u64,
        batch: Vec<FromExecutor>,
    },
    FromClient {
        connection: u64,
        request: Request,
    },
    FromMember {
        connection: u64,
        batch: Vec<FromMember>,
    },
    /// Our own connection to another dispatcher of the group is there.
    LinkUp {
        member: MemberId,
        writer: Writer,
    },
    /// Another dispatcher said where all of them are.
    Addresses {
        member: MemberId,
        addresses: Vec<String>,
        /// By its clock.
        now: Timestamp,
    },
    LinkDown {
        member: MemberId,
    },
    Tick,
    Stop {
        reason: String,
    },
}

/// What becomes true for others once the journal has it.
pub(super) enum Effect {
    RunAccepted {
        connection: u64,
        number: u64,
        run: RunId,
    },
    RunPrepared {
        connection: u64,
        number: u64,
        run: RunId,
    },
    /// Somebody asks for what is on its way to the disk already.
    AddedAgain {
        connection: u64,
        number: u64,
        run: RunId,
        token: String,
    },
    TaskEnded {
        task: TaskId,
        run: RunId,
        outcome: Ended,
        ack: Option<(ExecutorId, TaskId, AttemptNo)>,
    },
    TaskRevived {
        run: RunId,
    },
    AttemptGivenUp {
        task: TaskId,
        attempt: AttemptNo,
    },
}

#[derive(Clone, Copy)]
pub(super) enum Ended {
    Done,
    Failed,
    Cancelled,
}

pub(super) struct Connection {
    pub(super) writer: Writer,
    executor: Option<ExecutorId>,
    /// Collected during a batch, sent as one frame.
    out: Vec<ToExecutor>,
}

pub(super) struct ExecutorConnection {
    pub(super) connection: u64,
    pub(super) data_address: String,
    pub(super) data_id: u32,
    status: ExecutorStatus,
    heard: Timestamp,
}

/// A submission into a run that goes on.
struct Adding {
    addition: Addition,
    /// Its commit is on its way to the disk.
    sealed: bool,
}

/// What was added to a run with a token.
struct Added {
    digest: Digest,
    n_tasks: u64,
}

/// Ends that are durable, per run.
#[derive(Clone, Copy, Default)]
struct Durable {
    n_done: u64,
    n_failed: u64,
    n_cancelled: u64,
}

struct Watch {
    connection: u64,
    number: u64,
    run: RunId,
    interval_ns: u64,
    told: Timestamp,
}

pub struct Service {
    pub(super) options: DispatcherOptions,
    pub(super) dir: PathBuf,
    cluster: String,
    /// Of this process.
    incarnation: u64,
    /// Of the first process with this journal.
    journal_name: u64,
    /// The journal has been read back.
    has_begun: bool,
    started: Timestamp,
    pub(super) core: Dispatcher,
    journal: Journal,
    /// Submissions that were given up, of which the journal does not say so yet: they were open when the last process died, or
    /// it had no room.
    aborts_owed: Vec<RunId>,
    pub(super) log: Option<EventLog>,
    pub(super) prints: Prints,
    ticket_key: TicketKey,
    pub(super) connections: HashMap<u64, Connection>,
    pub(super) executors: BTreeMap<ExecutorId, ExecutorConnection>,
    /// Names outlive their executors: explanations speak of those too.
    pub(super) executor_names: BTreeMap<ExecutorId, String>,
    last_executor: u32,
    pub(super) next_run: u32,
    /// Who submits a run that is not committed yet.
    pub(super) submitting: BTreeMap<RunId, u64>,
    pub(super) refused: BTreeMap<RunId, String>,
    /// Submissions into runs, by the number of the submission.
    adding: BTreeMap<RunId, Adding>,
    /// Requests that wait until a submission into a run in parts is decided.
    pub(super) deferred: Vec<(u64, Request)>,
    /// One was: they are looked at again.
    decided: bool,
    /// What was added, by run and token.
    added: BTreeMap<(RunId, String), Added>,
    pub(super) effects: VecDeque<(Seq, Effect)>,
    /// Somebody waits for what was appended to the journal since the last commit.
    commit_now: bool,
    /// Digests and sizes of outputs that are on their way home, for the record of the task's end.
    outputs: HashMap<TaskId, Vec<(Digest, u64)>>,
    durable: BTreeMap<RunId, Durable>,
    watches: Vec<Watch>,
    warning: Option<String>,
    pub(super) provision: Provision,
    home_shares: HomeShares,
    /// Where this is one of several dispatchers.
    pub(super) group: Option<Group>,
    core_ticked: Timestamp,
    actions: Vec<Action>,
    /// Time passed since the last sending: nothing waits for company.
    ticked: bool,
    stop: Option<String>,
}

impl Service {
    pub fn new(
        options: DispatcherOptions,
        dir: PathBuf,
        identity: Identity,
        cluster: String,
        journal: Journal,
        incarnation: u64,
    ) -> Result<Service, DispatcherError> {
        let mut options = options;
        options.config.scope = cluster.clone();
        options.config.group = options.group.as_ref().map(|g| g.membership);
        let home_limits =
            HomeLimits { bytes_per_s: options.home_rate_bytes_per_s, streams: options.home_streams };
        // What home may give to all of them need not be found out.
        options.config.placement_config.affinity.home_bytes_per_s = home_limits.bytes_per_s.unwrap_or(0);
        let core = Dispatcher::new(options.config.clone()).map_err(DispatcherError::Config)?;
        let started = clock::now();
        let header = Header {
            eyas_event_log: LOG_VERSION,
            eyas_version: env!("CARGO_PKG_VERSION").into(),
            t: started,
            config: options.config.clone(),
            cluster: cluster.clone(),
        };
        let log = match options.event_log {
            true => Some(EventLog::open(&dir, &header).map_err(|source| DispatcherError::Dir {
                path: dir.join(EVENTS_FILE).display().to_string(),
                source,
            })?),
            false => None,
        };
        Ok(Service {
            ticket_key: TicketKey::from_secret(identity.secret()),
            group: options.group.as_ref().map(|g| Group::new(g.membership)),
            options,
            dir,
            cluster,
            incarnation,
            journal_name: 0,
            has_begun: false,
            started,
            core,
            journal,
            aborts_owed: vec![],
            log,
            prints: Prints::default(),
            connections: HashMap::new(),
            executors: BTreeMap::new(),
            executor_names: BTreeMap::new(),
            last_executor: 0,
            next_run: 1,
            submitting: BTreeMap::new(),
            refused: BTreeMap::new(),
            adding: BTreeMap::new(),
            deferred: vec![],
            decided: false,
            added: BTreeMap::new(),
            effects: VecDeque::new(),
            commit_now: false,
            outputs: HashMap::new(),
            durable: BTreeMap::new(),
            watches: vec![],
            warning: None,
            provision: Provision::default(),
            home_shares: HomeShares::new(home_limits),
            core_ticked: started,
            actions: vec![],
            ticked: false,
            stop: None,
        })
    }

    /// Brings back what an earlier process had promised. Committed runs continue at the end, when all
    /// that had ended is known.
    /// `is_placed`: it is the directory that those processes had.
    pub fn recover(&mut self, recovered: Recovered, is_placed: bool) -> Result<(), DispatcherError> {
        let mut committed = vec![];
        let mut open = BTreeMap::new();
        let mut cancelled = vec![];
        let mut times: BTreeMap<RunId, (Timestamp, Option<Timestamp>)> = BTreeMap::new();
        let mut began = vec![];
        let path = self.dir.join("journal").display().to_string();
        let visited = recovered.try_for_each(|_, bytes| -> Result<(), String> {
            match Record::from_bytes(bytes)? {
                Record::RunOpened { run, name, keep, into } => {
                    self.next_run = self.next_run.max(run.0 + 1);
                    open.insert(run, ());
                    let whole = into.as_ref().map(|addition| addition.run);
                    self.adding.extend(into.map(|addition| (run, Adding { addition, sealed: false })));
                    self.feed(Event::RunOpened { run, name, keep, into: whole });
                }
                Record::ArrayAdded { run, array } => {
                    array.check()?;
                    self.feed(Event::ArrayAdded { run, array: std::sync::Arc::new(array.into_owned()) });
                }
                Record::RunCommitted { run } => {
                    open.remove(&run);
                    committed.push(run);
                }
                Record::RunAborted { run } => {
                    open.remove(&run);
                    self.adding.remove(&run);
                    self.refused.remove(&run);
                    self.forget_prepared(run);
                    self.feed(Event::RunAborted { run });
                }
                Record::TaskEnded { task, outcome, outputs } => {
                    let run = self.core.run_of(task);
                    self.count_durable(run, ended(&outcome));
                    self.feed(Event::TaskRestored { task, outcome, outputs });
                }
                Record::TaskRevived { task } => {
                    let run = self.core.run_of(task);
                    self.durable.entry(run).or_default().n_done -= 1;
                    self.feed(Event::TaskRevived { task });
                }
                Record::AttemptGivenUp { task, attempt } => {
                    self.feed(Event::AttemptGivenUp { task, attempt })
                }
                Record::CancelRequested { run, task } => cancelled.push((run, task)),
                Record::RunLinked { run, links } => self.on_linked(run, links.into_owned()),
                Record::RunPatterns { run, patterns } => {
                    let patterns = patterns.into_owned();
                    self.feed(Event::RunPatterns { run, patterns })
                }
                Record::RunPrepared { run } => {
                    open.remove(&run);
                    self.note_prepared(run);
                }
                Record::Began { incarnation, is_moved } => {
                    if is_moved {
                        began.clear();
                    }
                    began.push(incarnation);
                }
                Record::RunOpenedAt { run, at } => {
                    times.insert(run, (at, None));
                }
                Record::RunEndedAt { run, at } => {
                    if let Some((_, ended)) = times.get_mut(&run) {
                        *ended = Some(at);
                    }
                }
            }
            Ok(())
        })?;
        visited.map_err(|why| DispatcherError::Record { path, why })?;
        for run in open.into_keys() {
            self.adding.remove(&run);
            self.refused.remove(&run);
            self.aborts_owed.push(run);
            self.feed(Event::RunAborted { run });
        }
        for run in committed {
            self.forget_prepared(run);
            self.on_committed(run);
        }
        for (run, task) in cancelled {
            self.feed(Event::CancelRequested { run, task });
        }
        self.begin(began, is_placed);
        for (run, (opened, ended)) in times {
            self.feed(Event::RunRestored { run, opened, ended });
            if ended.is_none() {
                // Its last end may have been written, and this not.
                self.note_end_of(run);
            }
        }
        self.feed(Event::Recovered);
        Ok(())
    }

    fn note_end_of(&mut self, run: RunId) {
        if let Some(at) = self.core.find_run(run).and_then(|r| r.ended) {
            self.journal(&Record::RunEndedAt { run, at }, None);
        }
    }

    /// Gives this process its name. That is on the disk before anything is given out under it, so that whoever comes after
    /// this process knows what is its own.
    fn begin(&mut self, mut began: Vec<u64>, is_placed: bool) {
        // Later than all before, whatever the clock says.
        self.incarnation = began.last().map_or(self.incarnation, |last| self.incarnation.max(last + 1));
        let is_moved = !is_placed && !began.is_empty();
        if is_moved {
            // It may be meant so, or be a copy without that file, which nobody can tell apart.
            eyas_text::say!(
                "eyas: {dir} has a journal and no `{PLACE_FILE}`: its runs go on here, and tasks that executors of an earlier \
                 dispatcher have run again; where the journal was copied, see that the other dispatcher is gone for good, as \
                 both would run the same tasks",
                dir = eyas_text::shown_path(&self.dir)
            );
            began.clear();
        }
        began.push(self.incarnation);
        self.journal_name = began[0];
        self.journal(&Record::Began { incarnation: self.incarnation, is_moved }, None);
        // A disk that is full now takes it later, and the journal's notice warns of that. Were this process killed before,
        // executors with its work would wait for their lease in place of being taken over.
        let _ = self.journal.flush();
        self.has_begun = true;
        began.into_iter().for_each(|incarnation| self.feed(Event::Began { incarnation }));
    }

    /// `notices` come on a way of their own, which is never full: the journal must not wait for the loop
    /// while the loop waits for the journal.
    pub async fn run(
        mut self,
        mut queue: mpsc::Receiver<Input>,
        mut notices: mpsc::UnboundedReceiver<Notice>,
    ) -> Result<(), DispatcherError> {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.stop.is_none() {
            batch.clear();
            let core_at = self.core.wake_at();
            let wake_at = core_at.into_iter().chain(self.home_shares.wake_at()).min();
            let sleep = Duration::from_nanos(wake_at.map_or(0, |at| at.since_ns(clock::now())));
            tokio::select! {
                biased;
                Some(notice) = notices.recv() => self.on_notice(notice),
                n = queue.recv_many(&mut batch, BATCH_MAX) => if n == 0 { break },
                () = tokio::time::sleep(sleep), if wake_at.is_some() => {
                    if core_at.is_some_and(|at| at <= clock::now()) {
                        self.feed(Event::Ticked);
                    }
                }
            }
            for input in batch.drain(..) {
                self.on_input(input);
            }
            self.take_deferred();
            self.end_drained();
            self.share_home();
            self.commit();
            self.tell_watchers();
            self.flush();
        }
        let reason = self.stop.take().unwrap_or_default();
        eyas_text::say!("eyas: the dispatcher ends: {}", line_of(&reason));
        for connection in self.connections.values_mut().filter(|c| c.executor.is_some()) {
            connection.out.push(ToExecutor::Shutdown { reason: reason.clone() });
        }
        self.flush();
        let writers: Vec<Writer> = self.connections.drain().map(|(_, c)| c.writer).collect();
        let _ = self.journal.flush();
        drop(self.log.take());
        // The last frames should leave before the process does; one deadline for all peers that do not read.
        let leave = async {
            for writer in writers {
                writer.finish().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(500), leave).await;
        Ok(())
    }

    fn on_input(&mut self, input: Input) {
        match input {
            Input::Connected { connection, peer, hello, writer } => {
                self.connections.insert(connection, Connection { writer, executor: None, out: vec![] });
                match hello {
                    Hello::Executor(hello) => self.on_executor(connection, peer, hello),
                    Hello::Client { .. } => {
                        let (incarnation, now) = (self.incarnation, clock::now());
                        let members = self.group.as_ref().map_or(vec![], |g| g.addresses().to_vec());
                        let welcome = Welcome::Client { incarnation, now, members };
                        self.connections[&connection].writer.send(&welcome);
                    }
                    Hello::Member { member, n_members, addresses } => {
                        self.on_member(connection, member, n_members, addresses)
                    }
                }
            }
            Input::Disconnected { connection } => self.on_disconnected(connection),
            Input::FromExecutor { connection, batch } => {
                let Some(executor) = self.connections.get(&connection).and_then(|c| c.executor) else {
                    return;
                };
                self.on_executor_batch(executor, connection, batch);
            }
            Input::FromClient { connection, request } => self.on_request(connection, request),
            Input::FromMember { connection, batch } => self.on_member_batch(connection, batch),
            Input::LinkUp { member, writer } => self.on_link_up(member, writer),
            Input::LinkDown { member } => self.on_link_down(member),
            Input::Addresses { member, addresses, now } => {
                self.learn_clock(member, now);
                self.learn_addresses(member, &addresses);
            }
            Input::Tick => self.on_tick(),
            Input::Stop { reason } => self.stop = Some(reason),
        }
    }

    // ------------------------------------------------------------ the core and its actions

    /// One event into the core; its actions are carried out at once.
    pub(super) fn feed(&mut self, event: Event) {
        self.feed_acking(event, None);
    }

    /// As [`Self::feed`]; a task that ends by this event is acknowledged to the executor named.
    fn feed_acking(&mut self, event: Event, ack: Option<(ExecutorId, TaskId, AttemptNo)>) {
        let now = clock::now();
        let mut actions = std::mem::take(&mut self.actions);
        if let Some(log) = &mut self.log {
            log.event(now, &event);
        }
        self.core.handle(now, event, &mut actions);
        if let Some(log) = &mut self.log {
            actions.iter().for_each(|action| log.action(now, action));
        }
        for action in actions.drain(..) {
            self.carry_out(action, ack);
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, action: Action, ack: Option<(ExecutorId, TaskId, AttemptNo)>) {
        match action {
            Action::Assign { executor, assignment } | Action::ReplicateTask { executor, assignment } => {
                self.assign(executor, assignment)
            }
            Action::CancelAttempt { executor, task, attempt } => {
                self.tell(executor, ToExecutor::Cancel { task, attempt })
            }
            Action::RecallAttempt { executor, task, attempt } => {
                self.tell(executor, ToExecutor::Recall { task, attempt })
            }
            Action::NameObjects { executor, objects } => {
                let catalog = self.core.catalog();
                let named = |o: ObjectId| (o, catalog.location(o).to_string(), catalog.digest(o));
                let objects = objects.into_iter().map(named).collect();
                self.tell(executor, ToExecutor::Named { objects })
            }
            Action::DropReplicas { executor, objects } => self.tell(executor, ToExecutor::Drop { objects }),
            Action::Prefetch { executor, batch, inputs } => {
                let locations = inputs.iter().map(|i| self.core.location(i.object).to_string()).collect();
                let permits = self.permits(executor, &inputs);
                self.tell(executor, ToExecutor::Prefetch { batch, inputs, locations, permits });
            }
            Action::CancelPrefetch { executor, objects } => {
                self.tell(executor, ToExecutor::CancelPrefetch { objects })
            }
            // They are for the event log.
            Action::FoundPattern { .. } | Action::EndCollective { .. } => {}
            Action::RemoveParts { executor, attempts } => {
                let told = |(task, attempt)| {
                    let outputs = self.core.task_spec(task).outputs.into_iter();
                    let at_home = outputs.map(|(_, location)| location).filter(|l| !l.starts_with(RUN_FILE));
                    (task, attempt, at_home.collect())
                };
                let attempts = attempts.into_iter().map(told).collect();
                self.tell(executor, ToExecutor::RemoveParts { attempts });
            }
            Action::EndTask { task, outcome } => {
                let run = self.core.run_of(task);
                let ended = ended(&outcome);
                let outputs =
                    self.outputs.remove(&task).filter(|_| outcome == Outcome::Done).unwrap_or_default();
                let record = Record::TaskEnded { task, outcome, outputs };
                let ack = ack.filter(|(_, acked, _)| *acked == task);
                let effect = Effect::TaskEnded { task, run, outcome: ended, ack };
                self.journal(&record, Some(effect));
            }
            Action::ReviveTask { task, .. } => {
                let run = self.core.run_of(task);
                self.journal(&Record::TaskRevived { task }, Some(Effect::TaskRevived { run }));
            }
            Action::RecordGivenUp { task, attempt } => {
                let effect = Effect::AttemptGivenUp { task, attempt };
                self.journal(&Record::AttemptGivenUp { task, attempt }, Some(effect));
            }
            Action::RefuseRun { run, message } => {
                self.refused.insert(run, message);
            }
            Action::EndRun { run } => {
                // What is read back ended before.
                if self.has_begun {
                    self.note_end_of(run);
                }
                self.commit_now = true;
            }
            Action::ForgetExecutor { executor } => {
                eyas_text::say!(
                    "eyas: executor {} did not come back and is given up",
                    self.name_of(executor)
                );
                if let Some(e) = self.executors.remove(&executor)
                    && let Some(c) = self.connections.get_mut(&e.connection)
                    && c.executor == Some(executor)
                {
                    c.executor = None;
                }
                self.home_shares.left(executor);
            }
            Action::TellMember { member, messages } => self.tell_member(member, FromMember::Said(messages)),
            Action::SendAway { executor, member } => self.send_away(executor, member),
        }
    }

    fn assign(&mut self, executor: ExecutorId, assignment: Box<Assignment>) {
        let spec = self.core.task_spec(assignment.task);
        self.tell_foreign_peers(executor, &assignment.inputs);
        let permits = self.permits(executor, &assignment.inputs);
        self.tell(executor, ToExecutor::Assign(Box::new(AssignTask { assignment, spec, permits })));
    }

    /// The permission of `executor` to fetch each input from each of its sources, in order.
    fn permits(&self, executor: ExecutorId, inputs: &[AssignedInput]) -> Vec<Permit> {
        let mut permits = vec![];
        let requester_id = self.executors.get(&executor).map_or(0, |e| e.data_id);
        for input in inputs {
            let Some(known) = &input.known else { continue };
            for source in &input.sources {
                let digest = eyas_data::Digest::from(known.digest.0);
                let expires_unix_ms = self.clock_of(*source).0 / 1_000_000 + PERMIT_MS;
                let ours = self.executors.get(source).map(|e| e.data_id);
                let holder_id = ours.or_else(|| self.foreign_data_id(*source)).unwrap_or(0);
                let (key, size) = (&self.ticket_key, known.size_bytes);
                let ticket = Ticket::issue(key, digest, size, holder_id, requester_id, expires_unix_ms);
                permits.push(Permit { expires_unix_ms, mac: ticket.mac });
            }
        }
        permits
    }

    /// Appends a record; its effect waits until it is durable. A journal that is full makes the loop wait:
    /// nothing more is accepted until the disk takes what there is.
    pub(super) fn journal(&mut self, record: &Record<'_>, effect: Option<Effect>) {
        let bytes = record.to_bytes();
        self.commit_now |= !matches!(record, Record::TaskEnded { .. });
        let seq = match self.journal.append_uncommitted(&bytes) {
            Ok(seq) => seq,
            Err(_) => match self.journal.append_waiting(&bytes) {
                Ok(seq) => seq,
                Err(e) => {
                    self.stop = Some(format!("the journal takes no more: {e}"));
                    return;
                }
            },
        };
        if let Some(effect) = effect {
            self.effects.push_back((seq, effect));
        }
    }

    /// Has what was appended written, at once where a run ended or somebody waits for an answer; while tasks
    /// end one after the other, the ends of some go together.
    fn commit(&mut self) {
        if std::mem::take(&mut self.commit_now) {
            self.journal.commit();
        } else {
            self.journal.commit_soon();
        }
    }

    /// Appends a record of a submission that is not complete. When the journal has no room for it because
    /// the disk refuses, the submission is refused: waiting would silence the dispatcher for everybody.
    pub(super) fn journal_submission(&mut self, run: RunId, record: &Record<'_>) -> bool {
        // A later restart reads the journal in this order: what was given up has to be over before somebody else writes the
        // same files.
        while let Some(owed) = self.aborts_owed.last().copied() {
            if !self.append_submission(run, &Record::RunAborted { run: owed }) {
                return false;
            }
            self.aborts_owed.pop();
        }
        self.append_submission(run, record)
    }

    fn append_submission(&mut self, run: RunId, record: &Record<'_>) -> bool {
        let bytes = record.to_bytes();
        let appended = loop {
            match self.journal.append(&bytes) {
                Err(e) if e.kind == ErrorKind::Full && matches!(self.journal.health(), Health::Good) => {
                    // The disk is only slow.
                    std::thread::sleep(Duration::from_millis(1));
                }
                appended => break appended,
            }
        };
        if let Err(e) = &appended {
            let why = match self.journal.health() {
                Health::Stalled(stall) => stall.to_string(),
                Health::Good | Health::Closed => e.to_string(),
            };
            self.refused.insert(run, format!("the dispatcher cannot keep this submission: {why}"));
        }
        appended.is_ok()
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Durable(durable) => {
                while self.effects.front().is_some_and(|(seq, _)| *seq <= durable) {
                    let (_, effect) = self.effects.pop_front().expect("just seen");
                    self.take_effect(effect);
                }
            }
            Notice::Stalled(stall) => self.warning = Some(format!("the journal waits: {stall}")),
            Notice::Resumed => self.warning = None,
        }
    }

    fn take_effect(&mut self, effect: Effect) {
        match effect {
            Effect::RunAccepted { connection, number, run } => {
                self.submitting.remove(&run);
                let (whole, n_tasks) = self.on_committed(run);
                self.reply(connection, number, ReplyBody::RunAccepted { run: whole, n_tasks, again: false });
                self.tell_decided(run);
            }
            Effect::AddedAgain { connection, number, run, token } => {
                let body = match self.added.get(&(run, token)) {
                    Some(known) => ReplyBody::RunAccepted { run, n_tasks: known.n_tasks, again: true },
                    None => ReplyBody::Refused { reason: "who submitted this first gave it up".into() },
                };
                self.reply(connection, number, body);
            }
            Effect::RunPrepared { connection, number, run } => self.on_prepared(connection, number, run),
            Effect::AttemptGivenUp { task, attempt } => self.feed(Event::AttemptGivenUp { task, attempt }),
            Effect::TaskRevived { run } => self.durable.entry(run).or_default().n_done -= 1,
            Effect::TaskEnded { run, outcome, ack, .. } => {
                self.count_durable(run, outcome);
                if let Some((executor, task, attempt)) = ack {
                    self.acknowledge(executor, task, attempt);
                }
            }
        }
    }

    /// The submission `run` is durable. Gives the run that its tasks are in now, and how many they are.
    pub(super) fn on_committed(&mut self, run: RunId) -> (RunId, u64) {
        self.decided = true;
        let n_tasks = self.core.find_run(run).map_or(0, |r| r.n_tasks);
        self.feed(Event::RunCommitted { run });
        let Some(Adding { addition: Addition { run: whole, token, digest }, .. }) = self.adding.remove(&run)
        else {
            return (run, n_tasks);
        };
        self.added.insert((whole, token), Added { digest, n_tasks });
        // Read back from the journal: ends of its tasks.
        let ended = self.durable.remove(&run).unwrap_or_default();
        let durable = self.durable.entry(whole).or_default();
        durable.n_done += ended.n_done;
        durable.n_failed += ended.n_failed;
        durable.n_cancelled += ended.n_cancelled;
        (whole, n_tasks)
    }

    fn count_durable(&mut self, run: RunId, outcome: Ended) {
        let durable = self.durable.entry(run).or_default();
        match outcome {
            Ended::Done => durable.n_done += 1,
            Ended::Failed => durable.n_failed += 1,
            Ended::Cancelled => durable.n_cancelled += 1,
        }
    }

    fn acknowledge(&mut self, executor: ExecutorId, task: TaskId, attempt: AttemptNo) {
        let Some(out) = self.out(executor) else { return };
        if let Some(ToExecutor::Recorded { ended }) = out.last_mut() {
            ended.push((task, attempt));
        } else {
            out.push(ToExecutor::Recorded { ended: vec![(task, attempt)] });
        }
    }

    // ------------------------------------------------------------ executors

    fn on_executor(&mut self, connection: u64, peer: SocketAddr, hello: ExecutorHello) {
        if let Some((member, address)) = self.elsewhere(&hello) {
            let c = self.connections.get_mut(&connection).expect("the connection was just inserted");
            c.writer.send(&Welcome::Redirected { member, address });
            return;
        }
        if let Err(what) = hello.offer.check() {
            let c = self.connections.get_mut(&connection).expect("the connection was just inserted");
            let reason = format!("it offers {what}, which is more than any machine has");
            eyas_text::say!("eyas: an executor from {peer} was refused: {}", line_of(&reason));
            c.writer.send(&Welcome::Refused { reason });
            return;
        }
        if !self.core.is_own_work(&hello.offer) {
            let c = self.connections.get_mut(&connection).expect("the connection was just inserted");
            c.writer.send(&Welcome::NotMine);
            let name = shown(&hello.offer.name);
            eyas_text::say!(
                "eyas: executor {name} from {peer} has work of another dispatcher and was sent away"
            );
            return;
        }
        let is_ours = hello.offer.owner == Some(self.incarnation);
        let known = hello.known_as.filter(|executor| is_ours && self.executors.contains_key(executor));
        let executor = match known {
            Some(executor) => executor,
            None => {
                let group = self.options.config.group;
                self.last_executor =
                    group.map_or(self.last_executor + 1, |g| g.next_number(self.last_executor));
                ExecutorId(self.last_executor)
            }
        };
        let data_address = match hello.data_address.strip_prefix(':') {
            Some(port) => SocketAddr::new(peer.ip(), port.parse().unwrap_or(0)).to_string(),
            None => hello.data_address.clone(),
        };
        let settings = Settings {
            lease_ns: self.options.config.lease_ns,
            heartbeat_ns: HEARTBEAT_NS,
            capture_head_bytes: self.options.capture_head_bytes,
            capture_tail_bytes: self.options.capture_tail_bytes,
        };
        let welcome = Welcome::Executor {
            executor,
            incarnation: self.incarnation,
            journal: self.journal_name,
            member: self.options.config.group.map(|g| g.me),
            now: clock::now(),
            settings,
        };
        let c = self.connections.get_mut(&connection).expect("the connection was just inserted");
        c.writer.send(&welcome);
        c.executor = Some(executor);
        self.executor_names.insert(executor, hello.offer.name.clone());
        let (name, slots) = (shown(&hello.offer.name), hello.offer.slots);
        match (known, hello.offer.owner) {
            (None, None) => eyas_text::say!("eyas: executor {name} joined from {peer}, with {slots} slots"),
            _ => eyas_text::say!("eyas: executor {name} is back, from {peer}, with {slots} slots"),
        }
        let entry = ExecutorConnection {
            connection,
            data_address: data_address.clone(),
            data_id: hello.data_id,
            status: ExecutorStatus::default(),
            heard: clock::now(),
        };
        if let Some(old) = self.executors.insert(executor, entry)
            && let Some(old) = self.connections.get_mut(&old.connection)
        {
            old.executor = None;
        }
        let peers = self.executors.iter().map(|(id, e)| (*id, e.data_address.clone(), e.data_id)).collect();
        self.tell(executor, ToExecutor::Peers { peers });
        let others: Vec<ExecutorId> = self.executors.keys().copied().filter(|e| *e != executor).collect();
        for other in others {
            self.tell(
                other,
                ToExecutor::Peers { peers: vec![(executor, data_address.clone(), hello.data_id)] },
            );
        }
        let share = self.home_shares.joined(executor);
        self.tell(executor, ToExecutor::Home(share));
        self.tell_peers_of(executor);
        self.feed(Event::ExecutorJoined { executor, offer: hello.offer });
    }

    pub(super) fn on_disconnected(&mut self, connection: u64) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        self.watches.retain(|w| w.connection != connection);
        self.deferred.retain(|(c, _)| *c != connection);
        self.provision.left(connection);
        self.prints.left(connection);
        self.member_gone(connection);
        if let Some(executor) = gone.executor
            && self.executors.get(&executor).is_some_and(|e| e.connection == connection)
        {
            eyas_text::say!("eyas: executor {} fell silent", self.name_of(executor));
            self.feed(Event::ExecutorSilent { executor });
        }
        // A submission whose client vanished is not half accepted.
        let orphans: Vec<RunId> =
            self.submitting.iter().filter(|(_, c)| **c == connection).map(|(run, _)| *run).collect();
        for run in orphans {
            self.abort(run);
        }
    }

    /// An executor's name, for people.
    fn name_of(&self, executor: ExecutorId) -> String {
        self.executor_names.get(&executor).map_or(format!("{executor}"), |name| shown(name).to_string())
    }

    fn lose(&mut self, executor: ExecutorId, reason: String) {
        eyas_text::say!("eyas: executor {} left: {}", self.name_of(executor), line_of(&reason));
        if let Some(e) = self.executors.remove(&executor)
            && let Some(c) = self.connections.get_mut(&e.connection)
        {
            c.executor = None;
        }
        self.home_shares.left(executor);
        self.feed(Event::ExecutorLost { executor, reason });
    }

    /// Tells new shares of home storage, where that is due.
    fn share_home(&mut self) {
        let mut told = vec![];
        self.home_shares.divide(clock::now(), &mut told);
        for (executor, share) in told {
            self.tell(executor, ToExecutor::Home(share));
        }
    }

    /// What in the message cannot be. Tasks of which this dispatcher does not know are old ones, see [`Self::on_told`].
    fn find_nonsense(&self, executor: ExecutorId, message: &FromExecutor) -> Option<String> {
        let event = match message {
            FromExecutor::Node(NodeMessage::ReplicaAdded(replica)) => {
                Event::ReplicasChanged { executor, added: vec![replica.clone()], dropped: vec![] }
            }
            FromExecutor::Node(NodeMessage::ReplicaDropped(object)) => {
                Event::ReplicasChanged { executor, added: vec![], dropped: vec![*object] }
            }
            FromExecutor::Node(NodeMessage::AttemptEnded { report }) if self.core.has_task(report.task) => {
                Event::AttemptEnded { executor, report: report.clone() }
            }
            FromExecutor::Node(NodeMessage::PrefetchFailed { batch, object, kind }) => {
                Event::PrefetchFailed { executor, batch: *batch, object: *object, kind: *kind }
            }
            FromExecutor::Node(NodeMessage::CacheResized { cache_bytes }) => {
                Event::CacheResized { executor, cache_bytes: *cache_bytes }
            }
            _ => return None,
        };
        self.core.find_nonsense(&event)
    }

    fn on_executor_batch(&mut self, executor: ExecutorId, connection: u64, batch: Vec<FromExecutor>) {
        if let Some(e) = self.executors.get_mut(&executor) {
            e.heard = clock::now();
        }
        if let Some(what) = batch.iter().find_map(|message| self.find_nonsense(executor, message)) {
            let reason = format!("the executor speaks of {what}");
            self.tell(executor, ToExecutor::Shutdown { reason: reason.clone() });
            return self.lose(executor, reason);
        }
        let (mut added, mut dropped) = (vec![], vec![]);
        for message in batch {
            // Changes of the cache go together, but keep their place before the reports that follow them.
            match message {
                FromExecutor::Node(NodeMessage::ReplicaAdded(replica)) => {
                    dropped.retain(|object| *object != replica.object);
                    added.push(replica);
                    continue;
                }
                FromExecutor::Node(NodeMessage::ReplicaDropped(object)) => {
                    added.retain(|replica| replica.object != object);
                    dropped.push(object);
                    continue;
                }
                _ => {}
            }
            if !added.is_empty() || !dropped.is_empty() {
                let (added, dropped) = (std::mem::take(&mut added), std::mem::take(&mut dropped));
                self.feed(Event::ReplicasChanged { executor, added, dropped });
            }
            match message {
                FromExecutor::Node(NodeMessage::AttemptEnded { report }) => {
                    // Not of an attempt that was given up and comes back late.
                    let is_current = self.core.has_task(report.task)
                        && matches!(
                            self.core.task_state(report.task),
                            TaskState::Reserved { executor: e, attempt: a, .. }
                                if (e, a) == (executor, report.attempt)
                        );
                    if is_current && !report.outputs.is_empty() {
                        let outputs = report.outputs.iter().map(|o| (o.digest, o.size_bytes)).collect();
                        self.outputs.insert(report.task, outputs);
                    }
                    self.on_told(executor, report.task, report.attempt, |executor| Event::AttemptEnded {
                        executor,
                        report,
                    });
                }
                FromExecutor::Node(NodeMessage::OutputsHome { task, attempt, result }) => {
                    self.on_told(executor, task, attempt, |executor| Event::OutputsHome {
                        executor,
                        task,
                        attempt,
                        result,
                    });
                }
                FromExecutor::Node(NodeMessage::PrefetchFailed { batch, object, kind }) => {
                    self.feed(Event::PrefetchFailed { executor, batch, object, kind })
                }
                FromExecutor::Node(NodeMessage::CacheResized { cache_bytes }) => {
                    self.feed(Event::CacheResized { executor, cache_bytes })
                }
                FromExecutor::Node(NodeMessage::InputMoved(moved)) => {
                    self.feed(Event::InputMoved { executor, moved })
                }
                FromExecutor::Node(NodeMessage::PartsRemoved { tasks }) => {
                    self.feed(Event::PartsRemoved { executor, tasks })
                }
                // They were taken above.
                FromExecutor::Node(NodeMessage::ReplicaAdded(_) | NodeMessage::ReplicaDropped(_)) => {}
                FromExecutor::Status(status) => {
                    if let Some(e) = self.executors.get_mut(&executor) {
                        e.status = *status;
                    }
                    self.tell(executor, ToExecutor::Beat);
                }
                FromExecutor::Home(report) => self.home_shares.reported(clock::now(), executor, report),
                FromExecutor::Printed(printed) => {
                    if let Some(log) = &self.log {
                        log.printed(printed);
                    }
                }
                FromExecutor::Looked { ask, has_begun, printed } => {
                    self.on_looked(executor, ask, has_begun, *printed)
                }
                FromExecutor::Bye { reason } => {
                    self.remember_peer(executor);
                    self.lose(executor, reason);
                    return;
                }
            }
        }
        if !added.is_empty() || !dropped.is_empty() {
            self.feed(Event::ReplicasChanged { executor, added, dropped });
        }
        let _ = connection;
    }

    /// An executor told of an attempt: the core hears it, and the executor hears when it is recorded.
    fn on_told(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        event: impl FnOnce(ExecutorId) -> Event,
    ) {
        if !self.core.has_task(task) {
            self.acknowledge(executor, task, attempt);
            return;
        }
        let ack = (executor, task, attempt);
        let n_effects = self.effects.len();
        self.feed_acking(event(executor), Some(ack));
        let awaits = |effect: &Effect| matches!(effect, Effect::TaskEnded { ack: Some(a), .. } if *a == ack);
        let recorded = self.effects.iter().skip(n_effects).any(|(_, effect)| awaits(effect));
        let landing = matches!(
            self.core.task_state(task),
            TaskState::Reserved { executor: e, attempt: a, landing: true } if e == executor && a == attempt
        );
        // Nothing to record (the attempt will be repeated, or was given up): it need not be told again.
        // Unless it was told again after a reconnect, while the journal still writes what was told first.
        if !recorded && !landing && !self.effects.iter().any(|(_, effect)| awaits(effect)) {
            self.acknowledge(executor, task, attempt);
        }
    }

    // ------------------------------------------------------------ clients

    fn on_request(&mut self, connection: u64, request: Request) {
        let number = request.number;
        match &request.body {
            RequestBody::OpenRun { .. } => return self.on_open(connection, request),
            RequestBody::JoinRun { .. } => return self.on_join_run(connection, request),
            _ => {}
        }
        match request.body {
            // They were taken above.
            RequestBody::OpenRun { .. } | RequestBody::JoinRun { .. } => {}
            RequestBody::AddArray { run, array } => {
                if self.submitting.get(&run) != Some(&connection) || self.refused.contains_key(&run) {
                    return;
                }
                if let Err(why) = array.check() {
                    self.refused.insert(run, format!("a group of tasks is malformed: {why}"));
                    return;
                }
                if self.journal_submission(run, &Record::ArrayAdded { run, array: Cow::Borrowed(&array) }) {
                    self.feed(Event::ArrayAdded { run, array });
                }
                if let Some(reason) = self.refused.get(&run).cloned() {
                    self.reply(connection, number, ReplyBody::Refused { reason });
                }
            }
            RequestBody::CommitRun { run } => {
                if self.submitting.get(&run) != Some(&connection) {
                    let reason = format!("run {run} is not being submitted by this client");
                    self.reply(connection, number, ReplyBody::Refused { reason });
                } else if let Some(reason) =
                    self.refused.remove(&run).or_else(|| self.core.why_not_added(run))
                {
                    self.abort(run);
                    self.reply(connection, number, ReplyBody::Refused { reason });
                } else {
                    if let Some(adding) = self.adding.get_mut(&run) {
                        adding.sealed = true;
                    }
                    let effect = Effect::RunAccepted { connection, number, run };
                    self.journal(&Record::RunCommitted { run }, Some(effect));
                }
            }
            RequestBody::AbortRun { run } => {
                if self.submitting.get(&run) == Some(&connection) {
                    self.abort(run);
                }
            }
            RequestBody::Status => {
                let status = self.status();
                self.reply_when_logged(connection, number, ReplyBody::Status(Box::new(status)));
            }
            RequestBody::WatchRun { run, interval_ns } => {
                if self.core.find_run(run).is_none() {
                    self.reply(
                        connection,
                        number,
                        ReplyBody::Refused { reason: format!("there is no run {run}") },
                    );
                    return;
                }
                let status = self.run_status(run);
                let over = status.ended.is_some();
                self.tell_of_run(connection, number, status);
                if !over {
                    self.watches.push(Watch { connection, number, run, interval_ns, told: clock::now() });
                }
            }
            RequestBody::Cancel { run, task } => self.on_cancel(connection, number, run, task),
            RequestBody::Explain { run, task } => match self.find(run, &task) {
                Ok(task) => self.explain(connection, number, task),
                Err(reason) => self.reply(connection, number, ReplyBody::Refused { reason }),
            },
            RequestBody::Logs { run, task } => match self.find(run, &task) {
                Ok(task) => self.on_logs(connection, number, task),
                Err(reason) => self.reply(connection, number, ReplyBody::Refused { reason }),
            },
            RequestBody::Prints { run, which, from } => self.on_prints(connection, number, run, which, from),
            RequestBody::Shutdown => {
                self.reply(connection, number, ReplyBody::ShuttingDown);
                self.stop = Some("the cluster was shut down".into());
            }
            RequestBody::Demand { provisioner } => self.on_demand(connection, number, provisioner),
            RequestBody::Drain { executor } => self.on_drain(connection, number, executor),
            RequestBody::Consult { run, array } => self.on_consult(connection, number, run, &array),
            RequestBody::Upstream { run, locations } => {
                let upstream = |l: &String| Some((l.clone(), self.core.upstream(run, l)?));
                let found = locations.iter().filter_map(upstream).collect();
                self.reply(connection, number, ReplyBody::Upstream(found));
            }
            RequestBody::LinkRun { run, links, patterns } => {
                self.on_link_run(connection, number, run, links, patterns)
            }
            RequestBody::PrepareRun { run } => self.on_prepare_run(connection, number, run),
        }
    }

    fn on_open(&mut self, connection: u64, request: Request) {
        let Request { number, body: RequestBody::OpenRun { name, keep, into } } = request else { return };
        if let Some(reason) = self.why_not_opened() {
            return self.reply(connection, number, ReplyBody::Refused { reason });
        }
        let mut was_over = false;
        if let Some(addition) = &into {
            if self.is_answered(connection, number, addition) {
                return;
            }
            let whole = addition.run;
            if self.is_in_parts(whole) && self.adding.values().any(|a| a.addition.run == whole) {
                let body = RequestBody::OpenRun { name, keep, into };
                return self.deferred.push((connection, Request { number, body }));
            }
            was_over = self.is_over(whole);
        }
        let run = RunId(self.next_run);
        self.next_run += 1;
        self.open(connection, run, name, keep, into);
        self.reply(connection, number, ReplyBody::RunOpened { run, was_over });
    }

    /// A submission begins: of a run, of a part of one, or into one.
    pub(super) fn open(
        &mut self,
        connection: u64,
        run: RunId,
        name: String,
        keep: bool,
        into: Option<Addition>,
    ) {
        self.submitting.insert(run, connection);
        let whole = into.as_ref().map(|addition| addition.run);
        self.journal(&Record::RunOpened { run, name: name.clone(), keep, into: into.clone() }, None);
        self.adding.extend(into.map(|addition| (run, Adding { addition, sealed: false })));
        self.feed(Event::RunOpened { run, name, keep, into: whole });
        if whole.is_none() {
            let at = self.core.find_run(run).expect("it was just opened").opened;
            self.journal(&Record::RunOpenedAt { run, at }, None);
        }
    }

    /// Whether all tasks of `run` that are here have ended for good.
    pub(super) fn is_over(&self, run: RunId) -> bool {
        self.core.find_run(run).is_some_and(|r| r.ended.is_some())
    }

    /// What the submission `run` adds to, if it is not a run of its own.
    pub(super) fn addition_of(&self, run: RunId) -> Option<&Addition> {
        self.adding.get(&run).map(|adding| &adding.addition)
    }

    /// Requests that waited for what has been decided now.
    fn take_deferred(&mut self) {
        if std::mem::take(&mut self.decided) {
            for (connection, request) in std::mem::take(&mut self.deferred) {
                self.on_request(connection, request);
            }
        }
    }

    /// Whether somebody who wants to add tasks to a run has got an answer, or will get one, without a submission.
    fn is_answered(&mut self, connection: u64, number: u64, wanted: &Addition) -> bool {
        let Addition { run, token, digest } = wanted;
        let is_same = |a: &Adding| (a.addition.run, &a.addition.token) == (*run, token);
        let adding = self.adding.iter().find(|(_, a)| is_same(a));
        let adding = adding.map(|(first, a)| (*first, a.sealed, a.addition.digest));
        let known = self.added.get(&(*run, token.clone())).map(|a| (a.n_tasks, a.digest));
        let earlier = known.map(|k| k.1).or(adding.map(|a| a.2));
        let answer = match (earlier, known, adding) {
            (Some(other), _, _) if other != *digest => {
                let reason = format!(
                    "the token {token} was used to add other tasks to run {run}",
                    token = shown(token)
                );
                ReplyBody::Refused { reason }
            }
            (_, Some((n_tasks, _)), _) => ReplyBody::RunAccepted { run: *run, n_tasks, again: true },
            (_, None, Some((_, true, _))) => {
                // Its commit is not durable yet.
                let seq = self.effects.back().expect("the commit waits for the disk").0;
                let again = Effect::AddedAgain { connection, number, run: *run, token: token.clone() };
                self.effects.push_back((seq, again));
                return true;
            }
            (_, None, unsealed) => {
                // The same client, whose connection broke, and that is not known yet.
                unsealed.into_iter().for_each(|(first, _, _)| self.abort(first));
                match self.core.why_closed(*run) {
                    Some(reason) => ReplyBody::Refused { reason },
                    None if self.submitting.contains_key(run) => {
                        ReplyBody::Refused { reason: format!("run {run} is being submitted itself") }
                    }
                    None => return false,
                }
            }
        };
        self.reply(connection, number, answer);
        true
    }

    pub(super) fn abort(&mut self, run: RunId) {
        self.decided = true;
        self.submitting.remove(&run);
        self.adding.remove(&run);
        self.refused.remove(&run);
        // Without its commit no run comes back, but until this is in the journal its tasks still have their outputs' names.
        if self.journal.append(&Record::RunAborted { run }.to_bytes()).is_err() {
            self.aborts_owed.push(run);
        }
        self.feed(Event::RunAborted { run });
        self.tell_decided(run);
    }

    fn on_cancel(&mut self, connection: u64, number: u64, run: Option<RunId>, task: Option<TaskName>) {
        let task = match task.map(|name| self.find(run, &name)).transpose() {
            Ok(task) => task,
            Err(reason) => return self.reply(connection, number, ReplyBody::Refused { reason }),
        };
        let runs: Vec<RunId> = match (task, run) {
            (Some(task), _) => vec![self.core.run_of(task)],
            (None, Some(run)) if self.core.find_run(run).is_some() => vec![run],
            (None, Some(run)) => {
                let reason = format!("there is no run {run}");
                return self.reply(connection, number, ReplyBody::Refused { reason });
            }
            (None, None) => self.core.runs().filter(|(_, r)| r.ended.is_none()).map(|(id, _)| id).collect(),
        };
        let left = |core: &Dispatcher, run: &RunId| {
            let r = core.find_run(*run).expect("runs are never forgotten");
            r.n_ready + r.n_waiting + r.n_reserved
        };
        let mut n_tasks = 0;
        for run in runs {
            n_tasks += if task.is_some() { 1 } else { left(&self.core, &run) };
            self.journal(&Record::CancelRequested { run, task }, None);
            self.feed(Event::CancelRequested { run, task });
        }
        self.reply(connection, number, ReplyBody::Cancelled { n_tasks });
    }

    fn find(&self, run: Option<RunId>, name: &TaskName) -> Result<TaskId, String> {
        match name {
            TaskName::Number(task) if self.core.has_task(*task) => Ok(*task),
            TaskName::Number(task) => Err(format!("there is no task number {task}")),
            TaskName::User(id) => self.core.find_task(run, id).ok_or_else(|| match run {
                Some(run) => format!("run {run} has no task {id}", id = shown(id)),
                None => format!("no run has a task {id}", id = shown(id)),
            }),
        }
    }

    fn explain(&mut self, connection: u64, number: u64, task: TaskId) {
        let (state, reason) = match self.core.task_state(task) {
            TaskState::Waiting { .. } => ("waiting", Some(self.core.waits_for(task))),
            TaskState::Ready { reason } => ("ready", reason),
            TaskState::Reserved { landing: true, .. } => ("landing", None),
            TaskState::Reserved { executor, attempt, .. } => {
                let running = self
                    .executors
                    .get(&executor)
                    .is_some_and(|e| e.status.running.iter().any(|(t, a, _)| (*t, *a) == (task, attempt)));
                (if running { "running" } else { "reserved" }, None)
            }
            // Nobody is told of an end before the journal has it.
            TaskState::Done | TaskState::Failed | TaskState::Cancelled if self.is_being_recorded(task) => {
                ("ending", None)
            }
            TaskState::Done => ("done", None),
            TaskState::Failed => ("failed", None),
            TaskState::Cancelled => ("cancelled", None),
            TaskState::Submitting => ("submitting", None),
        };
        let mut explained = Explained {
            task,
            run: self.core.run_of(task),
            user_id: self.core.user_id(task),
            state: state.into(),
            reason,
            executors: self.executor_names.iter().map(|(id, n)| (*id, n.clone())).collect(),
            patterns: self.core.patterns_of(task).iter().map(|e| e.to_string()).collect(),
            ..Explained::default()
        };
        let spec = self.core.task_spec(task);
        for (_, location) in spec.inputs.iter().chain(&spec.outputs) {
            if let Some(object) = self.core.catalog().find(location) {
                explained.objects.push((object, location.clone()));
            }
        }
        explained.submitted = self.core.find_run(explained.run).map(|r| r.opened);
        explained.spec = Some(spec);
        self.answer_from_disk(connection, number, move |dir| {
            explained.log_lines = lines_about(&dir.join(EVENTS_FILE), task);
            explained.printed = printed_by(&dir.join(PRINTED_FILE), task);
            ReplyBody::Explained(Box::new(explained))
        });
    }

    /// Answers from the log files on a thread of its own, after everything so far is in them.
    fn answer_from_disk(
        &mut self,
        connection: u64,
        number: u64,
        answer: impl FnOnce(&Path) -> ReplyBody + Send + 'static,
    ) {
        let flushed = self.log.as_mut().map(EventLog::flush);
        let dir = self.dir.clone();
        let Some(c) = self.connections.get(&connection) else { return };
        let writer = c.writer.clone();
        tokio::task::spawn_blocking(move || {
            if let Some(flushed) = flushed {
                let _ = flushed.recv();
            }
            writer.send(&Reply { number, body: answer(&dir) });
        });
    }

    /// Whether the task has ended, and the journal does not have that yet.
    fn is_being_recorded(&self, task: TaskId) -> bool {
        let is_its = |effect: &Effect| matches!(effect, Effect::TaskEnded { task: t, .. } if *t == task);
        self.effects.iter().any(|(_, effect)| is_its(effect))
    }

    // ------------------------------------------------------------ status

    fn run_status(&self, run: RunId) -> RunStatus {
        let r: &RunState = self.core.find_run(run).expect("the run was looked up");
        let durable = self.durable.get(&run).copied().unwrap_or_default();
        let n_ended = durable.n_done + durable.n_failed + durable.n_cancelled;
        let known = r.n_done + r.n_failed + r.n_cancelled;
        let n_running: usize = self
            .executors
            .iter()
            .map(|(id, e)| {
                let running = e.status.running.iter();
                running
                    .filter(|(t, a, _)| self.core.has_attempt(*id, *t, *a) && self.core.run_of(*t) == run)
                    .count()
            })
            .sum();
        let n_running = (n_running as u64).min(r.n_reserved - r.n_landing);
        RunStatus {
            run,
            name: r.name.clone(),
            n_tasks: r.n_tasks,
            n_waiting: r.n_waiting,
            n_ready: r.n_ready,
            n_reserved: r.n_reserved - r.n_landing - n_running,
            n_running,
            // Ended, but not durable yet: not told as an end.
            n_landing: r.n_landing + known.saturating_sub(n_ended),
            n_done: durable.n_done,
            n_failed: durable.n_failed,
            n_cancelled: durable.n_cancelled,
            local_bytes: r.local_bytes,
            peer_bytes: r.peer_bytes,
            home_bytes: r.home_bytes,
            opened: r.opened,
            ended: r.ended.filter(|_| n_ended == r.n_tasks),
            failures: self.durable_failures(r, durable.n_failed),
            n_nodes: self.n_nodes(),
        }
    }

    /// The latest failures that may be told: `n_failed` of the run's are durable, and they become so in order.
    fn durable_failures(&self, run: &RunState, n_failed: u64) -> Vec<(String, String)> {
        let n_told = run.failures.len().saturating_sub((run.n_failed - n_failed) as usize);
        let told = run.failures.iter().take(n_told);
        told.map(|(task, failure)| (self.core.user_id(*task), failure.message.clone())).collect()
    }

    /// What the executor said last that its cache holds.
    pub(super) fn cached_bytes(&self, executor: ExecutorId) -> u64 {
        self.executors.get(&executor).map_or(0, |e| e.status.cache_used_bytes)
    }

    /// What the executor said last of itself, but for programs whose end it has told since.
    fn status_of(&self, executor: ExecutorId) -> ExecutorStatus {
        let mut status = self.executors.get(&executor).map(|e| e.status.clone()).unwrap_or_default();
        status.running.retain(|(task, attempt, _)| self.core.has_attempt(executor, *task, *attempt));
        status
    }

    fn status(&self) -> ClusterStatus {
        let executors = self.core.executors().map(|(id, offer, n_assigned, state)| ExecutorLine {
            executor: id,
            name: offer.name.clone(),
            slots: offer.slots,
            n_assigned: n_assigned as u32,
            cache_bytes: offer.cache_bytes,
            state: state.into(),
            status: self.status_of(id),
        });
        let (own, children) = clock::cpu_ns();
        let lost = self.log.as_ref().map_or(0, EventLog::n_lost);
        let lost = (lost > 0).then(|| format!("{lost} lines of the event log could not be written"));
        ClusterStatus {
            cluster: self.cluster.clone(),
            now: clock::now(),
            started: self.started,
            placement: self.options.config.placement.clone(),
            runs: self
                .core
                .runs()
                .filter(|(_, r)| r.committed)
                .map(|(run, _)| self.run_status(run))
                .collect(),
            executors: executors.collect(),
            own_cpu_ns: own + children,
            own_rss_bytes: clock::rss_bytes(),
            warnings: self
                .warning
                .iter()
                .cloned()
                .chain(lost)
                .chain(self.group_warning())
                .chain(self.core.short_of_space())
                .chain(self.core.resting())
                .collect(),
            provisioner: self.provision.shown(),
        }
    }

    fn tell_watchers(&mut self) {
        if self.watches.is_empty() {
            return;
        }
        let now = clock::now();
        let mut watches = std::mem::take(&mut self.watches);
        watches.retain_mut(|watch| {
            let durable = self.durable.get(&watch.run).copied().unwrap_or_default();
            let n_ended = durable.n_done + durable.n_failed + durable.n_cancelled;
            let over =
                self.core.find_run(watch.run).is_some_and(|r| r.ended.is_some() && n_ended == r.n_tasks);
            if !over && now.since_ns(watch.told) < watch.interval_ns {
                return true;
            }
            watch.told = now;
            if self.core.find_run(watch.run).is_none() {
                let reason = format!("the submission of run {} was given up", watch.run);
                self.reply(watch.connection, watch.number, ReplyBody::Refused { reason });
                return false;
            }
            let status = self.run_status(watch.run);
            self.tell_of_run(watch.connection, watch.number, status);
            !over
        });
        self.watches = watches;
    }

    /// That a run has ended is told when the log says so, too: whoever hears it may read the log next.
    fn tell_of_run(&mut self, connection: u64, number: u64, status: RunStatus) {
        let over = status.ended.is_some();
        let body = ReplyBody::Run(Box::new(status));
        match over {
            true => self.reply_when_logged(connection, number, body),
            false => self.reply(connection, number, body),
        }
    }

    // ------------------------------------------------------------ time and sending

    fn on_tick(&mut self) {
        let now = clock::now();
        let silent: Vec<u64> = self
            .executors
            .values()
            .filter(|e| now.since_ns(e.heard) > BEATS_MISSED_MAX * HEARTBEAT_NS)
            .map(|e| e.connection)
            .collect();
        let connected: HashSet<u64> = self.connections.keys().copied().collect();
        for connection in silent.into_iter().filter(|c| connected.contains(c)) {
            self.on_disconnected(connection);
        }
        // Every tick the core hears is in the log, as it may change what it does later; so they are few.
        if now.since_ns(self.core_ticked) >= TICK_NS {
            self.core_ticked = now;
            self.feed(Event::Ticked);
            self.tell_load();
            self.ask_doubts();
        }
        self.end_looks();
        self.ticked = true;
        if let Some(log) = &mut self.log {
            log.hand_over();
        }
    }

    fn out(&mut self, executor: ExecutorId) -> Option<&mut Vec<ToExecutor>> {
        let connection = self.executors.get(&executor)?.connection;
        Some(&mut self.connections.get_mut(&connection)?.out)
    }

    pub(super) fn tell(&mut self, executor: ExecutorId, message: ToExecutor) {
        if let Some(out) = self.out(executor) {
            out.push(message);
        }
    }

    pub(super) fn reply(&self, connection: u64, number: u64, body: ReplyBody) {
        if let Some(c) = self.connections.get(&connection) {
            c.writer.send(&Reply { number, body });
        }
    }

    /// As [`Self::reply`], once everything so far is in the event log. A log whose disk hangs delays the reply by
    /// [`LOGGED_MAX`] and no more.
    fn reply_when_logged(&mut self, connection: u64, number: u64, body: ReplyBody) {
        let Some(flushed) = self.log.as_mut().map(EventLog::flush) else {
            return self.reply(connection, number, body);
        };
        let Some(writer) = self.connections.get(&connection).map(|c| c.writer.clone()) else { return };
        tokio::task::spawn_blocking(move || {
            let _ = flushed.recv_timeout(LOGGED_MAX);
            writer.send(&Reply { number, body });
        });
    }

    fn flush(&mut self) {
        for connection in self.connections.values_mut().filter(|c| !c.out.is_empty()) {
            let can_wait = matches!(&connection.out[..], [ToExecutor::Recorded { ended }] if ended.len() < RECORDED_BATCH);
            if can_wait && !self.ticked {
                continue;
            }
            connection.writer.send(&connection.out);
            connection.out.clear();
        }
        self.ticked = false;
        if let Some(log) = self.log.as_mut().filter(|log| log.is_piece()) {
            log.hand_over();
        }
    }
}

fn ended(outcome: &Outcome) -> Ended {
    match outcome {
        Outcome::Done => Ended::Done,
        Outcome::Failed(_) => Ended::Failed,
        Outcome::Cancelled => Ended::Cancelled,
    }
}

/// The event log's lines that speak of one task.
pub fn lines_about(path: &Path, task: TaskId) -> Vec<String> {
    let needle = format!("\"task\":{task}");
    let Ok(file) = std::fs::File::open(path) else { return vec![] };
    let mut found = vec![];
    for line in std::io::BufReader::new(file).lines().map_while(Result::ok) {
        let Some(at) = line.find(&needle) else { continue };
        let whole_number = !line[at + needle.len()..].starts_with(|c: char| c.is_ascii_digit());
        if whole_number && found.len() < EXPLAIN_LINES_MAX {
            found.push(line);
        }
    }
    found
}

/// What a task's attempts printed.
pub fn printed_by(path: &Path, task: TaskId) -> Vec<Printed> {
    let prefix = format!("{{\"task\":{task},");
    let Ok(file) = std::fs::File::open(path) else { return vec![] };
    let lines = std::io::BufReader::new(file).lines().map_while(Result::ok);
    let lines = lines.filter(|line| line.starts_with(&prefix));
    lines
        .filter_map(|line| serde_json::from_str::<PrintedLine>(&line).ok())
        .map(|l| eventlog::to_message(&l))
        .collect()
}
