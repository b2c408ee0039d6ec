//! The dispatcher's side of the control plane: what is owed to clients, executors and other dispatchers, around the core's state
//! machine.
//!
//! A [`Session`] takes [`Input`]s with the time; what it does, it does through [`Outside`]. After some inputs its driver calls
//! [`Session::settle`], which sends what was collected for each executor as one frame.
//!
//! In which order: a submission is accepted, and the end of a task is told to anybody, only when the journal says that it is
//! durable ([`Input::Durable`]). Until then it is an [`ends::Effect`] that waits.
//!
//! | module | owes |
//! |---|---|
//! | [`submissions`] | that a submission is accepted as a whole, once, and only when it is durable |
//! | [`parts`] | the same for a run that several dispatchers have parts of |
//! | [`ends`] | that an end counts, and is acknowledged, when it is durable |
//! | [`executors`] | hello, messages, permits, silence and goodbye of executors |
//! | [`members`] | what one dispatcher of a group tells the others |
//! | [`forget`], [`forget_parts`], [`clean`], [`names`] | that memory and journal need not grow with the runs that have ended |
//! | [`provision`] | that a node which was asked to leave ends when it has nothing left |
//! | [`users`] | that nobody does what they have no right to |
//! | [`requests`], [`status`], [`prints`] | answers to clients |
//! | [`recover`] | that a later process of the same journal owes what this one did |

mod clean;
mod ends;
mod executors;
mod forget;
mod forget_parts;
mod members;
mod names;
mod outside;
mod parts;
mod prints;
mod provision;
mod records;
mod recover;
mod requests;
mod status;
mod submissions;
mod users;

pub use clean::{Cleaning, Survey};
pub use outside::{Answer, Outside, Permission, Seq};
pub use prints::with_live;
pub use records::Record;

use ends::{Commit, Effect, Ended, Recording};
use executors::{Connection, Executors};
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig};
use eyas_core::event::*;
use eyas_terms::*;
use eyas_text::{line_of, shown};
use eyas_wire::message::*;
use eyas_wire::users::{Principal, Visitor};
use forget::Forgetting;
use forget_parts::ForgettingParts;
use members::Group;
use prints::Prints;
use provision::Provision;
use recover::Reading;
use status::Watch;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use submissions::{Adding, Submissions};
use users::{User, Users};

/// How often an executor says that it is there.
pub const HEARTBEAT_NS: u64 = 1_000_000_000;
/// Recorded ends that wait for company on their way to an executor, which only forgets by them; a tick sends fewer.
const RECORDED_BATCH: usize = 256;
/// How often the core hears that time passed.
const TICK_NS: u64 = 1_000_000_000;

/// What a session is told, beside the time.
pub enum Input {
    Connected {
        connection: u64,
        peer: SocketAddr,
        hello: Hello,
        visitor: Visitor,
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
    MemberReached {
        member: MemberId,
    },
    /// Another dispatcher said where all of them are.
    Addresses {
        member: MemberId,
        addresses: Vec<String>,
        /// By its clock.
        now: Timestamp,
    },
    MemberLost {
        member: MemberId,
    },
    /// The journal has everything up to this on the disk.
    Durable(Seq),
    /// The journal's disk takes nothing, and why; or it takes something again.
    JournalStalled(Option<String>),
    /// The time has come that [`Session::wake_at`] asked for.
    Woken,
    /// Comes a few times a second.
    Tick,
    Stop {
        reason: String,
    },
}

/// How a session is made.
#[derive(Clone, Debug)]
pub struct Options {
    pub config: DispatcherConfig,
    /// Kept of each of a program's two output streams, from its start and from its end.
    pub capture_head_bytes: u32,
    pub capture_tail_bytes: u32,
    /// There is an event log, and what programs print is kept.
    pub keeps_log: bool,
    /// Of this process: larger than those of all earlier ones with the same journal, as far as its driver knows them.
    pub incarnation: u64,
    pub cluster: String,
    /// The journal is cleaned when so many tasks are forgotten that it still speaks of, and no fewer than are kept.
    pub clean_after_tasks: u64,
}

/// One dispatcher process. See the module.
pub struct Session<O> {
    outside: O,
    options: Options,
    /// Of the first process with this journal.
    journal_name: u64,
    /// What was read of the journal, until all of it was.
    reading: Reading,
    /// The journal has been read back.
    has_begun: bool,
    started: Timestamp,
    /// Of the input that is being taken.
    now: Timestamp,
    core: Dispatcher,
    prints: Prints,
    connections: BTreeMap<u64, Connection>,
    executors: Executors,
    next_run: u32,
    submissions: Submissions,
    users: Users,
    recording: Recording,
    watches: Vec<Watch>,
    warning: Option<String>,
    provision: Provision,
    forgetting: Forgetting,
    forgetting_parts: ForgettingParts,
    /// Where this is one of several dispatchers.
    group: Option<Group>,
    core_ticked: Timestamp,
    actions: Vec<Action>,
    /// Time passed since the last sending: nothing waits for company.
    ticked: bool,
    stop: Option<String>,
}

impl<O: Outside> Session<O> {
    /// `Err`: a sentence about what is wrong with the options.
    pub fn new(options: Options, outside: O, now: Timestamp) -> Result<Session<O>, String> {
        let mut options = options;
        options.config.scope = options.cluster.clone();
        // What home may give to all of them need not be found out.
        options.config.placement_config.affinity.home_bytes_per_s =
            options.config.home_limits.bytes_per_s.unwrap_or(0);
        Ok(Session {
            core: Dispatcher::new(options.config.clone())?,
            group: options.config.group.map(Group::new),
            outside,
            options,
            journal_name: 0,
            reading: Reading::default(),
            has_begun: false,
            started: now,
            now,
            prints: Prints::default(),
            connections: BTreeMap::new(),
            executors: Executors::new(now),
            next_run: 1,
            submissions: Submissions::default(),
            users: Users::default(),
            recording: Recording::default(),
            watches: vec![],
            warning: None,
            provision: Provision::default(),
            forgetting: Forgetting::default(),
            forgetting_parts: ForgettingParts::default(),
            core_ticked: now,
            actions: vec![],
            ticked: false,
            stop: None,
        })
    }

    /// As this process has them.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The options, as the core has them.
    pub fn config(&self) -> &DispatcherConfig {
        &self.options.config
    }

    /// Of this process, as the journal has it since [`Self::end_recovery`].
    pub fn incarnation(&self) -> u64 {
        self.options.incarnation
    }

    pub fn core(&self) -> &Dispatcher {
        &self.core
    }

    pub fn outside(&self) -> &O {
        &self.outside
    }

    pub fn outside_mut(&mut self) -> &mut O {
        &mut self.outside
    }

    /// The process is gone; what it had outside outlives it.
    pub fn into_outside(self) -> O {
        self.outside
    }

    /// The executor whose connection this is.
    pub fn executor_on(&self, connection: u64) -> Option<ExecutorId> {
        self.connections.get(&connection)?.executor
    }

    /// Submissions in parts that are prepared here, and of which the first member has not said what became of them.
    pub fn in_doubt(&self) -> Vec<RunId> {
        self.group.iter().flat_map(|group| group.in_doubt.iter().copied()).collect()
    }

    /// Why the dispatcher is to end, if it is.
    pub fn stops(&self) -> Option<&str> {
        self.stop.as_deref()
    }

    /// When [`Input::Woken`] is due.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.core.wake_at()
    }

    /// Takes one input, which came at `now`.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        self.now = now;
        match input {
            Input::Connected { connection, peer, hello, visitor } => {
                self.on_connected(connection, peer, hello, visitor)
            }
            Input::Disconnected { connection } => self.on_disconnected(connection),
            Input::FromExecutor { connection, batch } => {
                let Some(executor) = self.connections.get(&connection).and_then(|c| c.executor) else {
                    return;
                };
                self.on_executor_batch(executor, batch);
            }
            Input::FromClient { connection, request } => self.on_request(connection, request),
            Input::FromMember { connection, batch } => self.on_member_batch(connection, batch),
            Input::MemberReached { member } => self.on_member_reached(member),
            Input::MemberLost { member } => self.on_member_lost(member),
            Input::Addresses { member, addresses, now } => {
                self.learn_clock(member, now);
                self.learn_addresses(member, &addresses);
            }
            Input::Durable(seq) => self.on_durable(seq),
            Input::JournalStalled(why) => {
                self.warning = why.map(|stall| format!("the journal waits: {stall}"))
            }
            Input::Woken => {
                if self.core.wake_at().is_some_and(|at| at <= now) {
                    self.feed(Event::Ticked);
                }
            }
            Input::Tick => self.on_tick(),
            Input::Stop { reason } => self.stop = Some(reason),
        }
    }

    /// All inputs that were there have been taken: what waited for that is done, and what was collected is sent.
    pub fn settle(&mut self, now: Timestamp) {
        self.now = now;
        self.take_deferred();
        self.end_drained();
        match self.recording.take_commit() {
            Commit::Now => self.outside.commit(true),
            Commit::Soon => self.outside.commit(false),
            Commit::Later => {}
        }
        self.tell_watchers();
        self.tell_followers();
        self.send_all();
    }

    /// Tells all executors that this dispatcher ends.
    pub fn say_goodbye(&mut self) {
        let reason = self.stop.clone().unwrap_or_default();
        self.say(format!("eyas: the dispatcher ends: {}", line_of(&reason)));
        for executor in self.executors.by_id.keys().copied().collect::<Vec<_>>() {
            self.tell(executor, ToExecutor::Shutdown { reason: reason.clone() });
        }
        self.send_all();
        self.outside.flush();
    }

    fn on_connected(&mut self, connection: u64, peer: SocketAddr, hello: Hello, visitor: Visitor) {
        if let Err(instead) = self.let_in(connection, peer, hello, visitor) {
            // Nothing more is heard on a connection that was not let in.
            self.outside.welcome(connection, instead);
            self.outside.close(connection);
        }
    }

    /// Takes a connection in and welcomes it. `Err`: it is not let in, and the answer to its hello.
    fn let_in(
        &mut self,
        connection: u64,
        peer: SocketAddr,
        hello: Hello,
        visitor: Visitor,
    ) -> Result<(), Welcome> {
        let principal = self.principal_behind(visitor).map_err(|reason| Welcome::Refused { reason })?;
        match (hello, &principal) {
            (Hello::Client { .. }, _) => {
                let members = self.group.as_ref().map_or(vec![], |g| g.addresses().to_vec());
                let incarnation = self.options.incarnation;
                self.connections.insert(connection, Connection::of(principal));
                self.outside.welcome(connection, Welcome::Client { incarnation, now: self.now, members });
                Ok(())
            }
            (Hello::Executor(hello), Principal::Owner) => self.on_executor(connection, peer, hello),
            (Hello::Member { member, n_members, addresses }, Principal::Owner) => {
                self.on_member(connection, member, n_members, addresses)
            }
            // Its driver keeps relays to itself, and asks here about those alone for which it has no place.
            (Hello::Relay { .. }, Principal::Owner) => {
                let reason = "a relay belongs to a single dispatcher, and this one is of a group: executors go to the \
                              dispatchers of a group themselves";
                Err(Welcome::Refused { reason: reason.into() })
            }
            (Hello::Executor(_) | Hello::Member { .. } | Hello::Relay { .. }, Principal::User(name)) => {
                let reason = format!(
                    "this is the join file of user {}, which opens the cluster to their commands; nodes, relays and dispatchers \
                     need the cluster's own",
                    shown(name)
                );
                Err(Welcome::Refused { reason })
            }
            (Hello::Executor(_) | Hello::Member { .. } | Hello::Relay { .. }, Principal::Nobody) => {
                Err(Welcome::Refused { reason: "the key of this connection is nobody's".into() })
            }
        }
    }

    fn on_disconnected(&mut self, connection: u64) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        self.outside.close(connection);
        self.watches.retain(|w| w.connection != connection);
        self.submissions.deferred.retain(|(c, _)| *c != connection);
        self.provision.left(self.now, connection);
        self.prints.left(connection);
        self.forgetting_parts.left(connection);
        self.member_gone(connection);
        if let Some(executor) = gone.executor {
            self.on_silent(executor, connection);
        }
        // A submission whose client vanished is not half accepted.
        let orphans = self.submissions.orphans_of(connection);
        for run in orphans {
            self.abort(run);
        }
    }

    fn on_tick(&mut self) {
        self.executors.listening.on_tick(self.now);
        // Every tick the core hears is in the log, as it may change what it does later; so they are few.
        if self.now.since_ns(self.core_ticked) >= TICK_NS {
            self.core_ticked = self.now;
            self.leave_the_silent();
            self.expect_no_nodes();
            self.feed(Event::Ticked);
            self.tell_load();
            self.ask_doubts();
            self.ask_ended();
            self.follow_forgotten();
        }
        self.end_looks();
        self.ticked = true;
    }

    // ------------------------------------------------------------ the core and its actions

    /// One event into the core; its actions are carried out at once.
    fn feed(&mut self, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        self.outside.log_event(self.now, &event);
        self.core.handle(self.now, event, &mut actions);
        actions.iter().for_each(|action| self.outside.log_action(self.now, action));
        for action in actions.drain(..) {
            self.carry_out(action);
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Assign { executor, assignment } | Action::RerunTask { executor, assignment } => {
                self.assign(executor, assignment)
            }
            Action::CancelAttempt { executor, task, attempt } => {
                self.tell(executor, ToExecutor::Cancel { task, attempt })
            }
            Action::RecallAttempt { executor, task, attempt } => {
                self.tell(executor, ToExecutor::Recall { task, attempt })
            }
            Action::NameObjects { executor, objects } => {
                let catalog = self.core.work().catalog();
                let named = |o: ObjectId| (o, catalog.location(o).text().to_owned(), catalog.digest(o));
                let objects = objects.into_iter().map(named).collect();
                self.tell(executor, ToExecutor::Named { objects })
            }
            Action::DropReplicas { executor, objects } => self.tell(executor, ToExecutor::Drop { objects }),
            Action::Prefetch { executor, batch, inputs, awaits } => {
                let location = |i: &AssignedInput| self.core.work().location(i.object).text().to_owned();
                let locations = inputs.iter().map(location).collect();
                self.tell_sources(executor, &inputs);
                let permits = self.permits(executor, &inputs);
                self.tell(executor, ToExecutor::Prefetch { batch, inputs, locations, permits, awaits });
            }
            Action::AddInput { executor, task, attempt, location, input } => {
                let inputs = input.as_ref().map_or(&[][..], |input| std::slice::from_ref(&**input));
                self.tell_sources(executor, inputs);
                let permits = self.permits(executor, inputs);
                self.tell(executor, ToExecutor::AddInput { task, attempt, location, input, permits });
            }
            Action::AdmitOutputs { executor, task, attempt, outputs } => {
                self.tell(executor, ToExecutor::AdmitOutputs { task, attempt, outputs })
            }
            Action::ShareHome { executor, share } => self.tell(executor, ToExecutor::Home(share)),
            Action::CancelPrefetch { executor, objects } => {
                self.tell(executor, ToExecutor::CancelPrefetch { objects })
            }
            Action::FindPlaces { executor, objects } => {
                let located = |o: ObjectId| (o, self.core.work().location(o).text().to_owned());
                let objects = objects.into_iter().map(located).collect();
                self.tell(executor, ToExecutor::FindPlaces { objects });
            }
            Action::ReadHome { executor, object, run } => {
                let location = self.core.work().location(object).text().to_owned();
                self.tell(executor, ToExecutor::ReadHome { object, location, run });
            }
            Action::ProbePeers { executor, peers } => {
                self.tell_where(executor, &peers);
                self.tell(executor, ToExecutor::ProbePeers { peers });
            }
            // They are for the event log.
            Action::FoundPattern { .. }
            | Action::EndCollective { .. }
            | Action::BeginPhase { .. }
            | Action::BeginPush { .. }
            | Action::EndPush { .. } => {}
            Action::RemoveParts { executor, attempts } => {
                let told = |(task, attempt)| {
                    let outputs = self.core.work().task_spec(task).outputs.into_iter();
                    let outputs = outputs.map(|(_, location)| location);
                    let at_home = outputs.filter(|location| !CatalogLocation::of(location).stays());
                    (task, attempt, at_home.collect())
                };
                let attempts = attempts.into_iter().map(told).collect();
                self.tell(executor, ToExecutor::RemoveParts { attempts });
            }
            Action::EndTask { task, outcome, by } => self.record_end(task, outcome, by),
            Action::ForgetAttempt { executor, task, attempt } => self.let_go(executor, task, attempt),
            Action::ReviveTask { task, .. } => {
                let run = self.core.work().run_of(task);
                self.journal(&Record::TaskRevived { task }, Some(Effect::TaskRevived { run }));
            }
            Action::RecordGivenUp { task, attempt } => {
                let effect = Effect::AttemptGivenUp { task, attempt };
                self.journal(&Record::AttemptGivenUp { task, attempt }, Some(effect));
            }
            Action::RecordGivesOut => {
                let record = Record::GivesOut { incarnation: self.options.incarnation };
                self.journal(&record, Some(Effect::GivesOut));
            }
            Action::RefuseRun { run, message } => {
                self.submissions.refused.insert(run, message);
            }
            Action::EndRun { run } => {
                // A run whose end is read from the journal ended in an earlier process.
                if self.has_begun {
                    self.note_end_of(run);
                }
                self.recording.hurry();
            }
            Action::ForgetRun { run } => self.record_forgotten(run, None),
            Action::DrainExecutor { executor, reason } => self.drain(executor, reason),
            Action::ForgetExecutor { executor } => self.forget(executor),
            Action::TellMember { member, messages } => self.tell_member(member, &FromMember::Said(messages)),
            Action::SendAway { executor, member } => self.send_away(executor, member),
        }
    }

    // ------------------------------------------------------------ sending

    fn say(&mut self, line: String) {
        self.outside.say(line);
    }

    fn reply(&mut self, connection: u64, number: u64, body: ReplyBody) {
        self.answer(connection, number, Answer::Now(body));
    }

    fn refuse(&mut self, connection: u64, number: u64, reason: String) {
        self.reply(connection, number, ReplyBody::Refused { reason });
    }

    fn answer(&mut self, connection: u64, number: u64, answer: Answer) {
        if self.connections.contains_key(&connection) {
            self.outside.answer(connection, number, answer);
        }
    }

    /// Sends what was collected. Recorded ends alone wait for company until the next tick.
    fn send_all(&mut self) {
        let mut due = std::mem::take(&mut self.executors.sending.due);
        if self.ticked {
            due.append(&mut self.executors.sending.waiting);
            due.sort_unstable();
            due.dedup();
        } else {
            due.sort_unstable();
        }
        for number in due.drain(..) {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            connection.is_due = false;
            let can_wait = matches!(&connection.out[..], [ToExecutor::Recorded { ended }] if ended.len() < RECORDED_BATCH);
            if can_wait && !self.ticked {
                if !std::mem::replace(&mut connection.is_waiting, true) {
                    self.executors.sending.waiting.push(number);
                }
                continue;
            }
            if self.ticked {
                connection.is_waiting = false;
            }
            if !connection.out.is_empty() {
                self.outside.send(number, &mut connection.out);
                connection.out.clear();
                self.executors.sending.keep(std::mem::take(&mut connection.out));
            }
        }
        self.executors.sending.due = due;
        self.outside.log_settled(std::mem::take(&mut self.ticked));
    }
}
