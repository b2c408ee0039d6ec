//! One dispatcher process of a world: the live dispatcher's session, with the world's journal, connections
//! and clients.
//!
//! All decisions and the whole protocol are `eyas-session`'s [`Session`] as it ships. This module has only
//! what is around a process: a journal in memory, for which the world says what is durable; messages, which
//! the world delivers; and clients, which submit and cancel with the requests that a live client sends.

mod strangers;

use eyas_core::dispatcher::{Dispatcher, DispatcherConfig, TaskState};
use eyas_core::event::*;
use eyas_session::dispatcher::{Answer, Input, Options, Outside, Permission, Record, Seq, Session, Survey};
use eyas_terms::array::{TaskArray, TaskSpec};
use eyas_terms::*;
use eyas_wire::message::*;
use eyas_wire::users::{UserKey, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Checks also compare the core's indexes with scans of everything.
static WITH_SCANS: AtomicBool = AtomicBool::new(true);

/// From now on the checks of dispatchers in this process go without scans of everything, which cost much of a world's time.
pub fn check_without_scans() {
    WITH_SCANS.store(false, Ordering::Relaxed);
}

fn check(core: &Dispatcher) {
    if WITH_SCANS.load(Ordering::Relaxed) {
        core.sanity_check();
    } else {
        core.sanity_check_without_scans();
    }
}

/// What outlives a dispatcher. Only the first `n_durable` records certainly survive.
#[derive(Default)]
pub struct Journal {
    /// All records that were ever appended, including those that [`Journal::clean`] made superfluous.
    pub records: Vec<Record<'static>>,
    pub n_durable: usize,
    /// Replaces the first `n_cleaned` records.
    cleaned: Vec<Record<'static>>,
    n_cleaned: usize,
    /// The journal is to be cleaned up to this record once all records before it are durable.
    clean_to: Option<usize>,
    /// The journal's disk takes no writes at present.
    pub is_full: bool,
}

impl Journal {
    /// The records that are read back, in order.
    fn read(&self) -> impl Iterator<Item = &Record<'static>> {
        self.cleaned.iter().chain(&self.records[self.n_cleaned..])
    }

    /// Cleans as the live driver does, with the session's own rule.
    fn clean(&mut self) {
        let Some(upto) = self.clean_to.take_if(|upto| *upto <= self.n_durable) else { return };
        let read = || self.cleaned.iter().chain(&self.records[self.n_cleaned..upto]);
        let mut survey = Survey::default();
        read().for_each(|record| survey.take(record));
        let (mut cleaning, mut kept) = (survey.end(), vec![]);
        let mut keep = |record: &Record<'_>| {
            kept.push(Record::from_bytes(&record.to_bytes()).expect("it was just written"));
            Ok::<(), Infallible>(())
        };
        let Ok(()) = read().try_for_each(|record| cleaning.take(record, &mut keep));
        let Ok(()) = cleaning.end(keep);
        (self.cleaned, self.n_cleaned) = (kept, upto);
    }

    /// Whether it was ever cleaned; how often is not kept.
    pub fn is_cleaned(&self) -> bool {
        self.n_cleaned > 0
    }

    /// Whether it records that `run` is forgotten.
    pub fn is_forgotten(&self, run: RunId) -> bool {
        self.records.iter().any(|r| matches!(r, Record::RunForgotten { run: of } if *of == run))
    }

    /// Whether the run of this name, which had that number, was accepted and is forgotten. A number may have been given before to
    /// a submission that was given up.
    pub fn was_forgotten_as(&self, run: RunId, name: &str) -> bool {
        let is_it = |r: &&Record| matches!(r, Record::RunOpened { run: of, .. } if *of == run);
        let last = self.records.iter().rev().find(is_it);
        matches!(last, Some(Record::RunOpened { name: of, .. }) if of == name) && self.is_forgotten(run)
    }

    /// Whether the submission `run` was committed.
    pub fn is_committed(&self, run: RunId) -> bool {
        self.records.iter().any(|r| matches!(r, Record::RunCommitted { run: of } if *of == run))
    }
}

/// What a node receives on its connection.
#[derive(Clone, Debug)]
pub enum ToNode {
    Welcome(Box<Welcome>),
    Says(Box<ToExecutor>),
}

/// What a dispatcher receives from a node.
#[derive(Clone, Debug)]
pub enum FromNode {
    Hello(Box<ExecutorHello>),
    Says(Box<FromExecutor>),
    /// A user asks the dispatcher to drain the node.
    Drain,
}

impl From<NodeMessage> for FromNode {
    fn from(message: NodeMessage) -> FromNode {
        FromNode::Says(Box::new(FromExecutor::Node(message)))
    }
}

/// The session's outside world: everything is kept for the world to see.
#[derive(Default)]
pub struct Shell {
    journal: Journal,
    /// Whether the journal was told not to wait for further records since somebody asked.
    is_hurried: bool,
    to_nodes: Vec<(u64, Vec<ToNode>)>,
    to_members: Vec<(MemberId, FromMember)>,
    answers: Vec<(u64, u64, Answer)>,
    closed: Vec<u64>,
    /// Everything that went into the core and came out of it, for the replay.
    log: Vec<(Timestamp, Event, Vec<Action>)>,
    ended: Vec<(TaskId, Outcome, Option<(ExecutorId, AttemptNo)>)>,
    revived: Vec<(TaskId, ObjectId)>,
    forgotten: Vec<RunId>,
    /// The event log may be cut before the line that opens this run.
    log_needed_from: Option<RunId>,
}

impl Shell {
    fn push(&mut self, record: &Record<'_>) -> Seq {
        // As on a disk, only the bytes are kept.
        self.journal.records.push(Record::from_bytes(&record.to_bytes()).expect("it was just written"));
        self.journal.records.len() as Seq
    }
}

impl Outside for Shell {
    fn append(&mut self, record: &Record<'_>) -> Result<Seq, String> {
        Ok(self.push(record))
    }

    fn try_append(&mut self, record: &Record<'_>) -> Result<Seq, String> {
        match self.journal.is_full {
            true => Err(NO_SPACE.into()),
            false => Ok(self.push(record)),
        }
    }

    fn commit(&mut self, now: bool) {
        self.is_hurried |= now;
    }

    fn flush(&mut self) {
        if !self.journal.is_full {
            self.journal.n_durable = self.journal.records.len();
        }
    }

    fn clean_journal(&mut self) {
        let n = self.journal.records.len();
        self.journal.clean_to.get_or_insert(n);
        self.journal.clean();
    }

    /// The world replays its whole log, so it is not cut.
    fn cut_log(&mut self, from_run: RunId, _: TaskId) {
        self.log_needed_from = Some(from_run);
    }

    /// Nothing reads over the network here.
    fn keep_queries(&mut self, _: Queries) -> Result<(), String> {
        Ok(())
    }

    fn welcome(&mut self, connection: u64, welcome: Welcome) {
        self.to_nodes.push((connection, vec![ToNode::Welcome(Box::new(welcome))]));
    }

    fn send(&mut self, connection: u64, batch: &mut Vec<ToExecutor>) {
        let batch = batch.drain(..).map(|message| ToNode::Says(Box::new(message)));
        self.to_nodes.push((connection, batch.collect()));
    }

    fn answer(&mut self, connection: u64, number: u64, answer: Answer) {
        self.answers.push((connection, number, answer));
    }

    fn tell_member(&mut self, member: MemberId, message: &FromMember) {
        self.to_members.push((member, message.clone()));
    }

    fn close(&mut self, connection: u64) {
        self.closed.push(connection);
    }

    fn permit(&self, permission: &Permission) -> Permit {
        Permit { expires_unix_ms: permission.expires_unix_ms, mac: [0; 32] }
    }

    fn know_users(&mut self, _: Vec<UserKey>) {}

    fn keep_addresses(&mut self, _: &[String]) {}

    fn log_event(&mut self, now: Timestamp, event: &Event) {
        if let Event::RunForgotten { run } = event {
            self.forgotten.push(*run);
        }
        self.log.push((now, event.clone(), vec![]));
    }

    fn log_action(&mut self, _: Timestamp, action: &Action) {
        match action {
            Action::EndTask { task, outcome, by } => self.ended.push((*task, outcome.clone(), *by)),
            Action::ReviveTask { task, lost } => self.revived.push((*task, *lost)),
            _ => {}
        }
        self.log.last_mut().expect("actions come of events").2.push(action.clone());
    }

    fn log_printed(&mut self, _: Box<Printed>) {}

    fn log_failure(&mut self, _: TaskId, _: &Failure) {}

    fn keep_printed(&mut self, _: u64, _: PrintedPart) {}

    fn log_settled(&mut self, _: bool) {}

    fn n_log_lines_lost(&self) -> u64 {
        0
    }

    fn usage(&self) -> (u64, u64) {
        (0, 0)
    }

    fn say(&mut self, _: String) {}
}

/// The effects of a process since the world looked last.
#[derive(Default)]
pub struct News {
    /// Tasks that ended, with the attempt that ended them.
    pub ended: Vec<(TaskId, Outcome, Option<(ExecutorId, AttemptNo)>)>,
    /// Tasks that were done and have to run again.
    pub revived: Vec<(TaskId, ObjectId)>,
    /// Runs that were forgotten, or that the journal named as forgotten when it was read.
    pub forgotten: Vec<RunId>,
    /// Submissions that were reported to clients as accepted.
    pub accepted: Vec<RunId>,
    /// Ends that became durable, except those of tasks that run again.
    pub durable: Vec<TaskId>,
    /// Per connection, with the node that has it.
    pub to_nodes: Vec<(u64, usize, Vec<ToNode>)>,
    pub to_members: Vec<(MemberId, FromMember)>,
    /// Replies to clients of the world: connection, number of the request, reply.
    pub to_clients: Vec<(u64, u64, ReplyBody)>,
    /// Connections of nodes that the dispatcher has ended.
    pub closed: Vec<(u64, usize)>,
}

/// Worlds have few tasks, and in many of them a journal should be cleaned.
const CLEAN_AFTER_TASKS: u64 = 5;
/// The error of the disk under a full journal.
pub const NO_SPACE: &str = "no space left on the disk";
/// Users who share the cluster, where they do.
const USERS: [&str; 3] = ["ada", "bo", "cy"];
/// Numbers of clients' connections begin here; the world's own connections have smaller numbers.
const CLIENTS: u64 = 1 << 40;

/// See the module.
pub struct Process {
    /// The files that the next run wants on nodes.
    pub wants: Vec<String>,
    session: Session<Shell>,
    /// The nodes that are connected.
    nodes: BTreeMap<u64, usize>,
    /// The node of each executor, including executors that have left.
    executors: BTreeMap<ExecutorId, usize>,
    /// Clients of the world; other clients send everything at once, and receive the answers at once.
    clients: BTreeSet<u64>,
    n_clients: u64,
    n_requests: u64,
    /// The submission that each client makes.
    submissions: BTreeMap<u64, RunId>,
    /// The connections of users who wait until their submissions are accepted.
    users: BTreeMap<u64, (&'static str, UserKey)>,
    /// The connections of users whose submissions are accepted, and who are still connected.
    settled_users: Vec<(u64, &'static str, UserKey)>,
    durable: Vec<TaskId>,
    /// Open submissions into runs in parts, each with its run, up to `n_log_seen` in the log.
    adding: BTreeMap<RunId, RunId>,
    n_log_seen: usize,
}

impl Process {
    /// Starts a process, which reads the journal.
    pub fn start(
        config: &DispatcherConfig,
        incarnation: u64,
        now: Timestamp,
        journal: &mut Journal,
    ) -> Process {
        let options = Options {
            config: config.clone(),
            capture_head_bytes: 0,
            capture_tail_bytes: 0,
            keeps_log: true,
            incarnation,
            cluster: config.scope.clone(),
            clean_after_tasks: CLEAN_AFTER_TASKS,
        };
        let mut shell = Shell { journal: std::mem::take(journal), ..Shell::default() };
        shell.journal.clean_to = None; // the process that was cleaning it was killed
        let n_records = shell.journal.records.len();
        let records: Vec<Record<'static>> = shell.journal.read().cloned().collect();
        let mut session = Session::new(options, shell, now).expect("the options name a policy");
        for record in records {
            session.recover(now, record).expect("it was written by a session");
        }
        session.end_recovery(now, true);
        if session.outside().journal.is_cleaned() {
            // The cleaned journal must lead to the same state as the whole one.
            let shell = Shell::default();
            let mut whole =
                Session::new(session.options().clone(), shell, now).expect("the options name a policy");
            for record in &session.outside().journal.records[..n_records] {
                whole.recover(now, record.clone()).expect("it was written by a session");
            }
            whole.end_recovery(now, true);
            assert_same(session.core(), whole.core());
        }
        let shell = session.outside();
        for (_, _, actions) in &shell.log {
            let was_refused =
                |a: &Action| matches!(a, Action::RefuseRun { run, .. } if shell.journal.is_committed(*run));
            assert!(!actions.iter().any(was_refused), "a recovered run is refused");
        }
        let mut process = Process {
            wants: vec![],
            session,
            nodes: BTreeMap::new(),
            executors: BTreeMap::new(),
            clients: BTreeSet::new(),
            n_clients: 0,
            n_requests: 0,
            submissions: BTreeMap::new(),
            users: BTreeMap::new(),
            settled_users: vec![],
            durable: vec![],
            adding: BTreeMap::new(),
            n_log_seen: 0,
        };
        process.note_additions();
        process
    }

    /// Looks at the core's events since the last call: into a run in parts there is one submission at a time,
    /// because a member's answer about files holds only until that submission is decided.
    fn note_additions(&mut self) {
        if self.config().group.is_none() {
            return;
        }
        // Events that are read back come in another order.
        let is_recovery = self.n_log_seen == 0;
        let events = self.session.outside().log[self.n_log_seen..].iter().map(|(_, event, _)| event);
        let mut adding = std::mem::take(&mut self.adding);
        let check = |adding: &BTreeMap<RunId, RunId>| {
            let runs: BTreeSet<RunId> = adding.values().copied().collect();
            assert_eq!(runs.len(), adding.len(), "two submissions into one run are open: {adding:?}");
        };
        for event in events {
            match event {
                Event::RunOpened { run, into: Some(whole), .. } => {
                    adding.insert(*run, *whole);
                    if !is_recovery {
                        check(&adding);
                    }
                }
                Event::RunCommitted { run } | Event::RunAborted { run } => _ = adding.remove(run),
                // With what was added to it. The journal is read to its end before that is committed.
                Event::RunForgotten { run } => adding.retain(|_, whole| whole != run),
                _ => {}
            }
        }
        check(&adding);
        self.adding = adding;
        self.n_log_seen = self.session.outside().log.len();
    }

    /// The process is killed; its journal stays as it is.
    pub fn into_journal(self) -> Journal {
        self.session.into_outside().journal
    }

    pub fn journal(&self) -> &Journal {
        &self.session.outside().journal
    }

    /// Whether the journal was told to write at once since the last call.
    pub fn take_hurry(&mut self) -> bool {
        std::mem::take(&mut self.session.outside_mut().is_hurried)
    }

    pub fn core(&self) -> &Dispatcher {
        self.session.core()
    }

    /// The options of the core, for the replay.
    pub fn config(&self) -> &DispatcherConfig {
        self.session.config()
    }

    pub fn incarnation(&self) -> u64 {
        self.session.incarnation()
    }

    pub fn wake_at(&self) -> Option<Timestamp> {
        self.session.wake_at()
    }

    /// Everything that went into the state machine and came out of it.
    pub fn log(&self) -> &[(Timestamp, Event, Vec<Action>)] {
        &self.session.outside().log
    }

    /// The run with which a live event log would begin now; the first one if the log would still be whole.
    pub fn log_needed_from(&self) -> RunId {
        self.session.outside().log_needed_from.unwrap_or(RunId(1))
    }

    /// The node that an executor is or was.
    pub fn node_of(&self, executor: ExecutorId) -> Option<usize> {
        self.executors.get(&executor).copied()
    }

    /// Connections of nodes, and of which ones.
    pub fn connections(&self) -> impl Iterator<Item = (u64, usize)> {
        self.nodes.iter().map(|(life, n)| (*life, *n))
    }

    /// Submissions in parts for which this member does not know yet whether they were accepted.
    pub fn in_doubt(&self) -> Vec<RunId> {
        self.session.in_doubt()
    }

    /// The patterns of `run` that this process has reported.
    pub fn found_in(&self, run: RunId) -> Vec<String> {
        sentences(self.actions(), run)
    }

    /// Collectives that are over and that brought something.
    pub fn n_collectives(&self) -> u64 {
        let brought = |a: &&Action| matches!(a, Action::EndCollective { record } if record.n_arrived > 0);
        self.actions().filter(brought).count() as u64
    }

    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.log().iter().flat_map(|(_, _, actions)| actions)
    }

    /// Handles one input; the invariants are checked after each.
    fn handle(&mut self, now: Timestamp, input: Input) {
        self.session.handle(now, input);
        check(self.session.core());
    }

    /// All inputs of this moment have been handled: gives their effects.
    pub fn settle(&mut self, now: Timestamp) -> News {
        self.session.settle(now);
        check(self.session.core());
        self.note_additions();
        let shell = self.session.outside_mut();
        let sent = std::mem::take(&mut shell.to_nodes);
        let mut news = News {
            ended: std::mem::take(&mut shell.ended),
            revived: std::mem::take(&mut shell.revived),
            forgotten: std::mem::take(&mut shell.forgotten),
            durable: std::mem::take(&mut self.durable),
            to_members: std::mem::take(&mut shell.to_members),
            ..News::default()
        };
        let mut closed = std::mem::take(&mut shell.closed);
        for (connection, number, answer) in std::mem::take(&mut shell.answers) {
            if self.clients.contains(&connection) {
                let Answer::Now(body) = answer else { panic!("{answer:?} is no answer to a submission") };
                news.to_clients.push((connection, number, body));
            } else if let Answer::Now(ReplyBody::RunAccepted { .. }) = answer {
                news.accepted.extend(self.submissions.get(&connection));
                let user = self.users.remove(&connection);
                self.settled_users.extend(user.map(|(name, key)| (connection, name, key)));
            }
        }
        for (life, batch) in sent {
            let Some(n) = self.nodes.get(&life).copied() else { continue };
            for message in &batch {
                match message {
                    ToNode::Welcome(welcome) => match &**welcome {
                        Welcome::Executor { executor, .. } => _ = self.executors.insert(*executor, n),
                        // A node that is turned away ends the connection itself when it hears that.
                        _ => closed.retain(|gone| *gone != life),
                    },
                    ToNode::Says(_) => {}
                }
            }
            news.to_nodes.push((life, n, batch));
        }
        for life in closed {
            news.closed.extend(self.nodes.remove(&life).map(|n| (life, n)));
        }
        news
    }

    pub fn tick(&mut self, now: Timestamp) {
        self.handle(now, Input::Tick);
    }

    /// The journal's disk becomes full, or has room again.
    pub fn set_full(&mut self, now: Timestamp, is_full: bool) {
        self.session.outside_mut().journal.is_full = is_full;
        self.handle(now, Input::JournalStalled(is_full.then(|| NO_SPACE.into())));
    }

    pub fn wake(&mut self, now: Timestamp) {
        self.handle(now, Input::Woken);
    }

    /// The first `n` records are on the disk.
    pub fn on_durable(&mut self, now: Timestamp, n: usize) {
        let journal = &mut self.session.outside_mut().journal;
        let before = journal.n_durable.min(n);
        journal.n_durable = journal.n_durable.max(n);
        journal.clean();
        for (at, record) in journal.records[..n].iter().enumerate().skip(before) {
            let Record::TaskEnded { task, .. } = record else { continue };
            // A task that has begun to run again has another end, which will be durable later.
            let is_revived = |r: &Record| matches!(r, Record::TaskRevived { task: t } if t == task);
            if !journal.records[at..].iter().any(is_revived) {
                self.durable.push(*task);
            }
        }
        self.handle(now, Input::Durable(n as Seq));
    }

    // ------------------------------------------------------------ nodes

    /// The node `n` has a connection; its hello comes later.
    pub fn on_connected(&mut self, life: u64, n: usize) {
        self.nodes.insert(life, n);
    }

    pub fn on_disconnected(&mut self, now: Timestamp, life: u64) {
        self.nodes.remove(&life);
        self.clients.remove(&life);
        self.handle(now, Input::Disconnected { connection: life });
    }

    pub fn on_batch(&mut self, now: Timestamp, life: u64, batch: Vec<FromNode>) {
        let mut said = vec![];
        for message in batch {
            if !self.nodes.contains_key(&life) {
                return;
            }
            match message {
                FromNode::Says(message) => said.push(*message),
                FromNode::Hello(hello) => {
                    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
                    let hello = Hello::Executor(*hello);
                    self.handle(
                        now,
                        Input::Connected { connection: life, peer, hello, visitor: Visitor::Member },
                    );
                }
                FromNode::Drain => {
                    self.say(now, life, &mut said);
                    if let Some(executor) = self.session.executor_on(life) {
                        let client = self.connect_client(now);
                        self.request(now, client, RequestBody::Drain { executor });
                    }
                }
            }
        }
        self.say(now, life, &mut said);
    }

    fn say(&mut self, now: Timestamp, life: u64, said: &mut Vec<FromExecutor>) {
        let batch = std::mem::take(said);
        if !batch.is_empty() {
            self.handle(now, Input::FromExecutor { connection: life, batch });
        }
    }

    // ------------------------------------------------------------ clients

    /// The number of a connection that nobody has yet.
    fn next_client(&mut self) -> u64 {
        self.n_clients += 1;
        CLIENTS + self.n_clients
    }

    fn connect_client(&mut self, now: Timestamp) -> u64 {
        self.connect_as(now, Visitor::Member)
    }

    fn connect_as(&mut self, now: Timestamp, visitor: Visitor) -> u64 {
        let connection = self.next_client();
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 2));
        let hello = Hello::Client { name: String::new() };
        self.handle(now, Input::Connected { connection, peer, hello, visitor });
        connection
    }

    /// A client of the world has a connection.
    pub fn on_client_connected(&mut self, now: Timestamp, life: u64) {
        self.clients.insert(life);
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 2));
        let hello = Hello::Client { name: String::new() };
        self.handle(now, Input::Connected { connection: life, peer, hello, visitor: Visitor::Member });
    }

    /// A client sends a request.
    pub fn on_request(&mut self, now: Timestamp, life: u64, number: u64, body: RequestBody) {
        if self.clients.contains(&life) {
            self.handle(now, Input::FromClient { connection: life, request: Request { number, body } });
        }
    }

    /// Whoever starts nodes asks what there is to do. `connection`: its connection, if it has one; a new one otherwise. Gives the
    /// connection and the answer.
    pub fn ask_demand(
        &mut self,
        now: Timestamp,
        connection: Option<u64>,
        provisioner: Provisioner,
    ) -> (u64, DemandStatus) {
        let client = connection.unwrap_or_else(|| self.connect_client(now));
        match self.request(now, client, RequestBody::Demand { provisioner }) {
            Some(ReplyBody::Demand(status)) => (client, *status),
            answer => panic!("the demand is asked for, and the answer is {answer:?}"),
        }
    }

    /// A request that is answered at once.
    fn request(&mut self, now: Timestamp, connection: u64, body: RequestBody) -> Option<ReplyBody> {
        self.n_requests += 1;
        let number = self.n_requests;
        self.handle(now, Input::FromClient { connection, request: Request { number, body } });
        let mut answers = self.session.outside().answers.iter();
        match answers.find(|(c, n, _)| (*c, *n) == (connection, number)) {
            Some((_, _, Answer::Now(body))) => Some(body.clone()),
            Some((_, _, answer)) => panic!("{answer:?} is no answer to a submission"),
            None => None,
        }
    }

    /// Like [`Self::request`]; a refusal is an error.
    fn ask(&mut self, now: Timestamp, client: u64, body: RequestBody) -> Result<Option<ReplyBody>, String> {
        match self.request(now, client, body) {
            Some(ReplyBody::Refused { reason }) => Err(reason),
            answer => Ok(answer),
        }
    }

    /// A client opens a submission. `Err`: why it is refused.
    fn open(&mut self, now: Timestamp, client: u64, body: RequestBody) -> Result<RunId, String> {
        match self.ask(now, client, body)? {
            Some(ReplyBody::RunOpened { run, .. }) => {
                self.submissions.insert(client, run);
                Ok(run)
            }
            answer => panic!("a submission is opened, and the answer is {answer:?}"),
        }
    }

    fn fill(
        &mut self,
        now: Timestamp,
        client: u64,
        run: RunId,
        arrays: impl Iterator<Item = Arc<TaskArray>>,
    ) -> Result<(), String> {
        for array in arrays {
            self.ask(now, client, RequestBody::AddArray { run, array })?;
        }
        Ok(())
    }

    /// A client submits a run. It is accepted when its record is durable. `Err`: why it is refused.
    pub fn submit(&mut self, now: Timestamp, arrays: &[Arc<TaskArray>], keep: bool) -> Result<RunId, String> {
        let client = self.connect_client(now);
        self.submit_by(now, client, arrays, keep)
    }

    /// One of a few users submits a run; which one, `n` says.
    pub fn submit_as(
        &mut self,
        now: Timestamp,
        n: u64,
        arrays: &[Arc<TaskArray>],
        keep: bool,
    ) -> Result<RunId, String> {
        let n = n % USERS.len() as u64;
        let (name, key) = (USERS[n as usize], UserKey([n as u8; 32]));
        let owner = self.connect_client(now);
        let set = RequestBody::SetUser {
            name: name.into(),
            key: Some(key),
            rights: None,
            weight: Some(1 + n as u32),
        };
        // The journal may have the user from an earlier process.
        if let Err(why) = self.ask(now, owner, set)
            && !why.contains("already")
        {
            return Err(why);
        }
        let connection = self.connect_as(now, Visitor::Other(key));
        let run = self.submit_by(now, connection, arrays, keep)?;
        self.users.insert(connection, (name, key));
        Ok(run)
    }

    fn submit_by(
        &mut self,
        now: Timestamp,
        client: u64,
        arrays: &[Arc<TaskArray>],
        keep: bool,
    ) -> Result<RunId, String> {
        let run = self.open(
            now,
            client,
            RequestBody::OpenRun {
                name: "a run".into(),
                keep: Keep { files: keep, printed: false },
                into: None,
            },
        )?;
        let filled = self.fill(now, client, run, arrays.iter().cloned());
        let wants = std::mem::take(&mut self.wants);
        let filled = filled.and_then(|()| match wants.is_empty() {
            true => Ok(None),
            false => {
                let files = Arc::new(wants);
                self.ask(now, client, RequestBody::WantFiles { run, files, nodes: vec![] })
            }
        });
        let done = filled.and_then(|_| self.ask(now, client, RequestBody::CommitRun { run }));
        if done.is_err() {
            self.client_gone(now, run);
        }
        done.map(|_| run)
    }

    /// A client begins a submission into `whole` and fills it. `Err`: why it is refused.
    pub fn open_addition(
        &mut self,
        now: Timestamp,
        whole: RunId,
        token: &str,
        arrays: &[Arc<TaskArray>],
    ) -> Result<RunId, String> {
        let client = self.connect_client(now);
        let into = Addition { run: whole, token: token.into(), digest: Digest::default() };
        let run = self.open(
            now,
            client,
            RequestBody::OpenRun { name: String::new(), keep: Keep::default(), into: Some(into) },
        )?;
        let filled = self.fill(now, client, run, arrays.iter().cloned());
        if filled.is_err() {
            self.client_gone(now, run);
        }
        filled.map(|()| run)
    }

    fn client_of(&self, run: RunId) -> Option<u64> {
        self.submissions.iter().rev().find(|(_, of)| **of == run).map(|(client, _)| *client)
    }

    /// The client of the submission has sent everything; the submission is accepted when its record is
    /// durable.
    pub fn commit(&mut self, now: Timestamp, run: RunId) -> Result<(), String> {
        let client = self.client_of(run).expect("it was opened by a client");
        self.ask(now, client, RequestBody::CommitRun { run }).map(|_| ())
    }

    /// The client of the submission goes away.
    pub fn client_gone(&mut self, now: Timestamp, run: RunId) {
        if let Some(client) = self.client_of(run) {
            self.submissions.remove(&client);
            self.handle(now, Input::Disconnected { connection: client });
        }
    }

    pub fn cancel(&mut self, now: Timestamp, run: RunId, task: Option<TaskId>) {
        let client = self.connect_client(now);
        let task = task.map(TaskName::Number);
        self.request(now, client, RequestBody::Cancel { run: Some(run), task });
    }

    /// A client asks to forget a run, which is refused while the run goes on.
    pub fn forget(&mut self, now: Timestamp, run: RunId) {
        let client = self.connect_client(now);
        self.request(now, client, RequestBody::Forget { runs: vec![run] });
    }

    // ------------------------------------------------------------ other dispatchers

    /// Our connection to another member is up.
    pub fn on_member_reached(&mut self, now: Timestamp, member: MemberId) {
        self.handle(now, Input::MemberReached { member });
    }

    pub fn on_member_lost(&mut self, now: Timestamp, member: MemberId) {
        self.handle(now, Input::MemberLost { member });
    }

    /// Another member has connected to us.
    pub fn on_member_connected(&mut self, now: Timestamp, life: u64, member: MemberId, n_members: u32) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 3));
        let hello = Hello::Member { member, n_members, addresses: vec![] };
        self.handle(now, Input::Connected { connection: life, peer, hello, visitor: Visitor::Member });
    }

    pub fn on_member(&mut self, now: Timestamp, life: u64, message: FromMember) {
        self.handle(now, Input::FromMember { connection: life, batch: vec![message] });
    }
}

/// Asserts that both know the same runs and the same tasks, and how these ended.
fn assert_same(cleaned: &Dispatcher, whole: &Dispatcher) {
    let tasks = |core: &Dispatcher| -> Vec<(TaskId, RunId, TaskSpec, Option<TaskState>)> {
        // The tasks of submissions that were given up have no run.
        let tasks = core.work().tasks().filter(|t| core.work().find_run(core.work().run_of(*t)).is_some());
        tasks.map(|t| (t, core.work().run_of(t), core.work().task_spec(t), core.work().find_end(t))).collect()
    };
    assert_eq!(tasks(cleaned), tasks(whole), "promise 1: tasks of a cleaned journal");
    let runs = |core: &Dispatcher| -> Vec<_> {
        core.work()
            .runs()
            .map(|(run, r)| {
                (run, r.tasks.n_tasks, r.ends.n_done, r.ends.n_failed, r.ends.n_cancelled, r.opened, r.ended)
            })
            .collect()
    };
    assert_eq!(runs(cleaned), runs(whole), "promise 1: runs of a cleaned journal");
}

/// The patterns of `run` among these, as sentences in order.
pub fn sentences<'a>(actions: impl Iterator<Item = &'a Action>, run: RunId) -> Vec<String> {
    let found = actions.filter_map(|action| match action {
        Action::FoundPattern { run: of, evidence } if *of == run => Some(evidence.to_string()),
        _ => None,
    });
    let mut found: Vec<String> = found.collect();
    found.sort();
    found
}
