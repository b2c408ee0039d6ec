//! What the dispatcher's live driver does around its state machine: connections, journal, acknowledgements.
//!
//! Written after `eyas-runtime`'s `dispatcher/service.rs`, rule by rule, without its I/O. In: messages and
//! times from the world. Out: messages collected per connection, records appended to the [`Journal`].
//!
//! Not here: clients (the world submits and cancels), tickets, status, logs for people.

use eyas_core::array::{TaskArray, TaskSpec};
use eyas_core::collective::BatchId;
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig, TaskState};
use eyas_core::event::*;
use eyas_core::group::split::Part;
use eyas_core::group::{LinkMessage, MemberLoad, Membership, RunLinks, home_of};
use eyas_core::pattern::RunPatterns;
use eyas_core::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// As in the live journal, plus what the checkers want to know of an end.
#[derive(Clone, Debug)]
pub enum Record {
    RunOpened { run: RunId, keep: bool, into: Option<RunId> },
    ArrayAdded { run: RunId, array: Arc<TaskArray> },
    RunCommitted { run: RunId },
    RunAborted { run: RunId },
    TaskEnded { task: TaskId, outcome: Outcome, outputs: Vec<(Digest, u64)> },
    TaskRevived { task: TaskId },
    AttemptGivenUp { task: TaskId, attempt: AttemptNo },
    CancelRequested { run: RunId, task: Option<TaskId> },
    RunLinked { run: RunId, links: RunLinks },
    RunPatterns { run: RunId, patterns: RunPatterns },
    RunPrepared { run: RunId },
}

/// What outlives a dispatcher. Only the first `n_durable` records surely do.
#[derive(Default)]
pub struct Journal {
    pub records: Vec<Record>,
    pub n_durable: usize,
    /// The processes that began with it; on the disk before they give anything out.
    pub began: Vec<u64>,
}

#[derive(Clone, Debug)]
pub enum ToNode {
    Prefetch {
        batch: BatchId,
        inputs: Vec<AssignedInput>,
        locations: Vec<String>,
    },
    CancelPrefetch {
        objects: Vec<ObjectId>,
    },
    Welcome {
        executor: ExecutorId,
        incarnation: u64,
        member: Option<MemberId>,
        now: Timestamp,
    },
    /// The node belongs to this member of the group.
    Redirected {
        member: MemberId,
    },
    /// It is to go there when it has nothing left.
    Redirect {
        member: MemberId,
    },
    /// The node has work of another dispatcher.
    NotMine,
    Assign {
        assignment: Box<Assignment>,
        spec: Box<TaskSpec>,
    },
    Cancel {
        task: TaskId,
        attempt: AttemptNo,
    },
    Recall {
        task: TaskId,
        attempt: AttemptNo,
    },
    Drop {
        objects: Vec<ObjectId>,
    },
    /// How these are called, and their bytes.
    Named {
        objects: Vec<(ObjectId, String, Option<Digest>)>,
    },
    Pong,
    Recorded {
        task: TaskId,
        attempt: AttemptNo,
    },
    RemoveParts {
        tasks: Vec<TaskId>,
    },
    /// Which node each executor is.
    Peers {
        peers: Vec<(ExecutorId, usize)>,
    },
}

#[derive(Clone, Debug)]
pub enum FromNode {
    Hello {
        offer: Box<Offer>,
        known_as: Option<(u64, ExecutorId)>,
        member: Option<MemberId>,
    },
    Node(NodeMessage),
    Drain,
    /// Its answer says that what came before was heard.
    Ping,
    Bye,
}

enum Effect {
    RunAccepted { run: RunId },
    RunPrepared { run: RunId },
    TaskEnded { task: TaskId, ack: Option<(ExecutorId, TaskId, AttemptNo)> },
    AttemptGivenUp { task: TaskId, attempt: AttemptNo },
}

pub struct Connection {
    pub node: usize,
    executor: Option<ExecutorId>,
    pub out: Vec<ToNode>,
}

/// What one dispatcher says to another one.
#[derive(Clone, Debug)]
pub enum ToMember {
    Said(Vec<LinkMessage>),
    Load(MemberLoad),
    InDoubt(Vec<RunId>),
    Decided { run: RunId, committed: bool },
}

/// Of a dispatcher that is one of several, as in `eyas-runtime`'s `dispatcher/group.rs`.
pub struct Group {
    pub membership: Membership,
    /// Who can be reached.
    pub links: BTreeSet<MemberId>,
    /// What is to be sent, to whom.
    pub out: Vec<(MemberId, ToMember)>,
    loads: BTreeMap<MemberId, MemberLoad>,
    /// Submissions that a client is making.
    pub submitting: BTreeSet<RunId>,
    /// Prepared here; the first member says what becomes of them.
    pub in_doubt: BTreeSet<RunId>,
}

impl Group {
    fn new(membership: Membership) -> Group {
        Group {
            membership,
            links: BTreeSet::new(),
            out: vec![],
            loads: BTreeMap::new(),
            submitting: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
        }
    }
}

/// One dispatcher process.
pub struct Service {
    pub incarnation: u64,
    pub core: Dispatcher,
    pub connections: BTreeMap<u64, Connection>,
    /// The connection and the node of each executor.
    executors: BTreeMap<ExecutorId, (u64, usize)>,
    next_executor: u32,
    next_run: u32,
    effects: VecDeque<(usize, Effect)>,
    refused: Vec<RunId>,
    /// Submissions that were open when the last process died: the journal says that they are over before it has another.
    aborts_owed: Vec<RunId>,
    /// Submissions that are durable.
    pub committed: BTreeSet<RunId>,
    /// Digests and sizes of outputs of attempts whose end is not recorded yet.
    outputs: BTreeMap<TaskId, Vec<(Digest, u64)>>,
    /// Everything that went in and came out, for the replay.
    pub log: Vec<(Timestamp, Event, Vec<Action>)>,
    /// Tasks that ended since the world last looked, with the attempt that ended them.
    pub ended: Vec<(TaskId, Outcome, Option<(ExecutorId, AttemptNo)>)>,
    /// Tasks that were done and have to run again, since the world last looked.
    pub revived: Vec<(TaskId, ObjectId)>,
    /// Runs that became durable since the world last looked.
    pub accepted: Vec<RunId>,
    /// Ends that became durable since the world last looked.
    pub durable: Vec<TaskId>,
    /// Where this is one of several dispatchers.
    pub group: Option<Group>,
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

impl Service {
    /// The patterns of `run` that this process has reported.
    pub fn found_in(&self, run: RunId) -> Vec<String> {
        sentences(self.actions(), run)
    }

    /// Collectives that are over, and for which something was brought.
    pub fn n_collectives(&self) -> u64 {
        let brought = |a: &&Action| matches!(a, Action::EndCollective { record } if record.n_arrived > 0);
        self.actions().filter(brought).count() as u64
    }

    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.log.iter().flat_map(|(_, _, actions)| actions)
    }

    pub fn new(config: &DispatcherConfig, incarnation: u64) -> Service {
        Service {
            incarnation,
            core: Dispatcher::new(config.clone()).expect("the options name a policy"),
            connections: BTreeMap::new(),
            executors: BTreeMap::new(),
            next_executor: 0,
            next_run: 1,
            effects: VecDeque::new(),
            refused: vec![],
            aborts_owed: vec![],
            committed: BTreeSet::new(),
            outputs: BTreeMap::new(),
            log: vec![],
            ended: vec![],
            revived: vec![],
            accepted: vec![],
            durable: vec![],
            group: config.group.map(Group::new),
        }
    }

    /// Brings back what an earlier process had promised.
    pub fn recover(&mut self, now: Timestamp, journal: &mut Journal) {
        let (mut committed, mut open, mut cancelled) = (vec![], vec![], vec![]);
        for record in journal.records.clone() {
            match record {
                Record::RunOpened { run, keep, into } => {
                    self.next_run = self.next_run.max(run.0 + 1);
                    open.push(run);
                    self.feed(now, journal, Event::RunOpened { run, name: String::new(), keep, into });
                }
                Record::RunAborted { run } => {
                    open.retain(|r| *r != run);
                    self.forget_prepared(run);
                    self.feed(now, journal, Event::RunAborted { run });
                }
                Record::ArrayAdded { run, array } => {
                    self.feed(now, journal, Event::ArrayAdded { run, array })
                }
                Record::RunCommitted { run } => {
                    open.retain(|r| *r != run);
                    committed.push(run);
                }
                Record::TaskEnded { task, outcome, outputs } => {
                    self.feed(now, journal, Event::TaskRestored { task, outcome, outputs })
                }
                Record::TaskRevived { task } => self.feed(now, journal, Event::TaskRevived { task }),
                Record::AttemptGivenUp { task, attempt } => {
                    self.feed(now, journal, Event::AttemptGivenUp { task, attempt })
                }
                Record::CancelRequested { run, task } => cancelled.push((run, task)),
                Record::RunLinked { run, links } => self.feed(now, journal, Event::RunLinked { run, links }),
                Record::RunPatterns { run, patterns } => {
                    self.feed(now, journal, Event::RunPatterns { run, patterns })
                }
                Record::RunPrepared { run } => {
                    open.retain(|r| *r != run);
                    self.in_doubt().insert(run);
                }
            }
        }
        for run in open {
            self.aborts_owed.push(run);
            self.feed(now, journal, Event::RunAborted { run });
        }
        for run in committed {
            self.forget_prepared(run);
            self.feed(now, journal, Event::RunCommitted { run });
            self.committed.insert(run);
        }
        for (run, task) in cancelled {
            self.feed(now, journal, Event::CancelRequested { run, task });
        }
        let refused = std::mem::take(&mut self.refused);
        let was_accepted = refused.iter().find(|run| self.committed.contains(run));
        assert_eq!(was_accepted, None, "a recovered run is refused");
        journal.began.push(self.incarnation);
        for incarnation in journal.began.clone() {
            self.feed(now, journal, Event::Began { incarnation });
        }
        self.feed(now, journal, Event::Recovered);
    }

    /// Before another submission writes the same files: a later restart reads in this order.
    fn pay_aborts(&mut self, journal: &mut Journal) {
        let owed = std::mem::take(&mut self.aborts_owed);
        journal.records.extend(owed.into_iter().map(|run| Record::RunAborted { run }));
    }

    fn next_submission(&mut self, journal: &mut Journal) -> RunId {
        self.pay_aborts(journal);
        self.next_run += 1;
        RunId(self.next_run - 1)
    }

    /// Opens, fills and closes a submission. It is accepted when its record is durable. `None`: refused.
    /// `streams`: its tasks may start before it is complete.
    pub fn submit(
        &mut self,
        now: Timestamp,
        journal: &mut Journal,
        arrays: &[Arc<TaskArray>],
        keep: bool,
        streams: bool,
    ) -> Option<RunId> {
        let run = self.next_submission(journal);
        journal.records.push(Record::RunOpened { run, keep, into: None });
        self.feed(now, journal, Event::RunOpened { run, name: format!("run {run}"), keep, into: None });
        for (i, array) in arrays.iter().enumerate() {
            if streams && i == arrays.len() / 2 {
                self.feed(now, journal, Event::RunStarted { run });
            }
            journal.records.push(Record::ArrayAdded { run, array: array.clone() });
            self.feed(now, journal, Event::ArrayAdded { run, array: array.clone() });
        }
        if self.refused.contains(&run) {
            self.refused.retain(|r| *r != run);
            self.abort(now, journal, run);
            return None;
        }
        journal.records.push(Record::RunCommitted { run });
        self.effects.push_back((journal.records.len(), Effect::RunAccepted { run }));
        Some(run)
    }

    /// Begins a submission into `whole` and fills it. `Err`: why it is refused.
    pub fn open_addition(
        &mut self,
        now: Timestamp,
        journal: &mut Journal,
        whole: RunId,
        arrays: &[Arc<TaskArray>],
    ) -> Result<RunId, String> {
        if let Some(why) = self.core.why_closed(whole) {
            return Err(why);
        }
        let run = self.next_submission(journal);
        let into = Some(whole);
        journal.records.push(Record::RunOpened { run, keep: false, into });
        self.feed(now, journal, Event::RunOpened { run, name: String::new(), keep: false, into });
        for array in arrays {
            journal.records.push(Record::ArrayAdded { run, array: array.clone() });
            self.feed(now, journal, Event::ArrayAdded { run, array: array.clone() });
            if self.refused.contains(&run) {
                self.refused.retain(|r| *r != run);
                self.abort(now, journal, run);
                return Err("two tasks write one file".into());
            }
        }
        Ok(run)
    }

    /// Completes what [`Self::open_addition`] began; it is accepted when its record is durable.
    pub fn commit_addition(
        &mut self,
        now: Timestamp,
        journal: &mut Journal,
        run: RunId,
    ) -> Result<(), String> {
        if let Some(why) = self.core.why_not_added(run) {
            self.abort(now, journal, run);
            return Err(why);
        }
        journal.records.push(Record::RunCommitted { run });
        self.effects.push_back((journal.records.len(), Effect::RunAccepted { run }));
        Ok(())
    }

    /// Who submits it has gone away.
    pub fn abort(&mut self, now: Timestamp, journal: &mut Journal, run: RunId) {
        journal.records.push(Record::RunAborted { run });
        self.feed(now, journal, Event::RunAborted { run });
    }

    pub fn cancel(&mut self, now: Timestamp, journal: &mut Journal, run: RunId, task: Option<TaskId>) {
        journal.records.push(Record::CancelRequested { run, task });
        self.feed(now, journal, Event::CancelRequested { run, task });
    }

    pub fn feed(&mut self, now: Timestamp, journal: &mut Journal, event: Event) {
        self.feed_acking(now, journal, event, None);
    }

    fn feed_acking(
        &mut self,
        now: Timestamp,
        journal: &mut Journal,
        event: Event,
        ack: Option<(ExecutorId, TaskId, AttemptNo)>,
    ) {
        let mut actions = vec![];
        self.core.handle(now, event.clone(), &mut actions);
        self.core.sanity_check();
        for action in &actions {
            self.carry_out(journal, action.clone(), ack);
        }
        self.log.push((now, event, actions));
    }

    fn carry_out(
        &mut self,
        journal: &mut Journal,
        action: Action,
        ack: Option<(ExecutorId, TaskId, AttemptNo)>,
    ) {
        match action {
            Action::Assign { executor, assignment } | Action::ReplicateTask { executor, assignment } => {
                let spec = Box::new(self.core.task_spec(assignment.task));
                self.tell(executor, ToNode::Assign { assignment, spec });
            }
            Action::CancelAttempt { executor, task, attempt } => {
                self.tell(executor, ToNode::Cancel { task, attempt })
            }
            Action::RecallAttempt { executor, task, attempt } => {
                self.tell(executor, ToNode::Recall { task, attempt })
            }
            Action::NameObjects { executor, objects } => {
                let catalog = self.core.catalog();
                let named = |o: &ObjectId| (*o, catalog.location(*o).to_string(), catalog.digest(*o));
                let objects = objects.iter().map(named).collect();
                self.tell(executor, ToNode::Named { objects })
            }
            Action::DropReplicas { executor, objects } => self.tell(executor, ToNode::Drop { objects }),
            Action::Prefetch { executor, batch, inputs } => {
                let locations = inputs.iter().map(|i| self.core.location(i.object).to_string()).collect();
                self.tell(executor, ToNode::Prefetch { batch, inputs, locations });
            }
            Action::CancelPrefetch { executor, objects } => {
                self.tell(executor, ToNode::CancelPrefetch { objects })
            }
            Action::RemoveParts { executor, attempts } => {
                let tasks = attempts.into_iter().map(|(task, _)| task).collect();
                self.tell(executor, ToNode::RemoveParts { tasks })
            }
            Action::FoundPattern { .. } | Action::EndCollective { .. } => {}
            Action::EndTask { task, outcome } => {
                let outputs =
                    self.outputs.remove(&task).filter(|_| outcome == Outcome::Done).unwrap_or_default();
                journal.records.push(Record::TaskEnded { task, outcome: outcome.clone(), outputs });
                let ack = ack.filter(|(_, acked, _)| *acked == task);
                self.effects.push_back((journal.records.len(), Effect::TaskEnded { task, ack }));
                self.ended.push((task, outcome, ack.map(|(e, _, a)| (e, a))));
            }
            Action::ReviveTask { task, lost } => {
                journal.records.push(Record::TaskRevived { task });
                self.revived.push((task, lost));
            }
            Action::RecordGivenUp { task, attempt } => {
                journal.records.push(Record::AttemptGivenUp { task, attempt });
                self.effects.push_back((journal.records.len(), Effect::AttemptGivenUp { task, attempt }));
            }
            Action::RefuseRun { run, .. } => self.refused.push(run),
            Action::EndRun { .. } => {}
            Action::TellMember { member, messages } => self.tell_member(member, ToMember::Said(messages)),
            Action::SendAway { executor, member } => self.tell(executor, ToNode::Redirect { member }),
            Action::ForgetExecutor { executor } => {
                if let Some((life, _)) = self.executors.remove(&executor)
                    && let Some(c) = self.connections.get_mut(&life)
                    && c.executor == Some(executor)
                {
                    c.executor = None;
                }
            }
        }
    }

    /// The first `n` records are on disk.
    pub fn on_durable(&mut self, now: Timestamp, journal: &mut Journal, n: usize) {
        journal.n_durable = journal.n_durable.max(n);
        while self.effects.front().is_some_and(|(at, _)| *at <= n) {
            let (at, effect) = self.effects.pop_front().expect("just seen");
            match effect {
                Effect::RunAccepted { run } => {
                    self.accepted.push(run);
                    self.committed.insert(run);
                    self.feed(now, journal, Event::RunCommitted { run });
                    self.tell_decided(run);
                }
                Effect::RunPrepared { run } => self.on_prepared(run),
                Effect::AttemptGivenUp { task, attempt } => {
                    self.feed(now, journal, Event::AttemptGivenUp { task, attempt })
                }
                Effect::TaskEnded { task, ack } => {
                    // One that runs again since has another end, which will be durable later.
                    let revived = |r: &Record| matches!(r, Record::TaskRevived { task: t } if *t == task);
                    if !journal.records[at..].iter().any(revived) {
                        self.durable.push(task);
                    }
                    if let Some((executor, task, attempt)) = ack {
                        self.tell(executor, ToNode::Recorded { task, attempt });
                    }
                }
            }
        }
    }

    pub fn on_connected(&mut self, life: u64, node: usize) {
        self.connections.insert(life, Connection { node, executor: None, out: vec![] });
    }

    pub fn on_disconnected(&mut self, now: Timestamp, journal: &mut Journal, life: u64) {
        let Some(gone) = self.connections.remove(&life) else { return };
        if let Some(executor) = gone.executor
            && self.executors.get(&executor).is_some_and(|(l, _)| *l == life)
        {
            self.feed(now, journal, Event::ExecutorSilent { executor });
        }
    }

    fn on_hello(
        &mut self,
        now: Timestamp,
        journal: &mut Journal,
        life: u64,
        offer: Offer,
        known_as: Option<(u64, ExecutorId)>,
        member: Option<MemberId>,
    ) {
        if let Some(member) = self.elsewhere(&offer, member) {
            let c = self.connections.get_mut(&life).expect("who says hello is connected");
            return c.out.push(ToNode::Redirected { member });
        }
        if !self.core.is_own_work(&offer) {
            return self
                .connections
                .get_mut(&life)
                .expect("who says hello is connected")
                .out
                .push(ToNode::NotMine);
        }
        let known = known_as.filter(|(i, e)| *i == self.incarnation && self.executors.contains_key(e));
        let executor = match known {
            Some((_, executor)) => executor,
            None => {
                let last = self.next_executor;
                self.next_executor = self.group.as_ref().map_or(last + 1, |g| g.membership.next_number(last));
                ExecutorId(self.next_executor)
            }
        };
        let c = self.connections.get_mut(&life).expect("who says hello is connected");
        c.executor = Some(executor);
        let node = c.node;
        let member = self.group.as_ref().map(|g| g.membership.me);
        c.out.push(ToNode::Welcome { executor, incarnation: self.incarnation, member, now });
        if let Some((old, _)) = self.executors.insert(executor, (life, node))
            && old != life
            && let Some(old) = self.connections.get_mut(&old)
        {
            old.executor = None;
        }
        let peers = self.executors.iter().map(|(id, (_, node))| (*id, *node)).collect();
        self.tell(executor, ToNode::Peers { peers });
        for other in self.executors.keys().copied().filter(|e| *e != executor).collect::<Vec<_>>() {
            self.tell(other, ToNode::Peers { peers: vec![(executor, node)] });
        }
        self.feed(now, journal, Event::ExecutorJoined { executor, offer });
    }

    pub fn on_batch(&mut self, now: Timestamp, journal: &mut Journal, life: u64, batch: Vec<FromNode>) {
        let (mut added, mut dropped) = (vec![], vec![]);
        for message in batch {
            let Some(c) = self.connections.get(&life) else { return };
            if let FromNode::Hello { offer, known_as, member } = message {
                self.on_hello(now, journal, life, *offer, known_as, member);
                continue;
            }
            let Some(executor) = c.executor else { return };
            match message {
                FromNode::Node(NodeMessage::ReplicaAdded(replica)) => {
                    dropped.retain(|object| *object != replica.object);
                    added.push(replica);
                    continue;
                }
                FromNode::Node(NodeMessage::ReplicaDropped(object)) => {
                    added.retain(|replica: &ReplicaAdded| replica.object != object);
                    dropped.push(object);
                    continue;
                }
                _ => {}
            }
            if !added.is_empty() || !dropped.is_empty() {
                let (added, dropped) = (std::mem::take(&mut added), std::mem::take(&mut dropped));
                self.feed(now, journal, Event::ReplicasChanged { executor, added, dropped });
            }
            match message {
                FromNode::Node(NodeMessage::AttemptEnded { report }) => {
                    let (task, attempt) = (report.task, report.attempt);
                    // Not of an attempt that was given up and comes back late.
                    let is_current = matches!(
                        self.core.has_task(task).then(|| self.core.task_state(task)),
                        Some(TaskState::Reserved { executor: e, attempt: a, .. }) if (e, a) == (executor, attempt)
                    );
                    if is_current && !report.outputs.is_empty() {
                        let outputs = report.outputs.iter().map(|o| (o.digest, o.size_bytes)).collect();
                        self.outputs.insert(task, outputs);
                    }
                    let event = Event::AttemptEnded { executor, report };
                    self.on_told(now, journal, executor, task, attempt, event);
                }
                FromNode::Node(NodeMessage::OutputsHome { task, attempt, result }) => {
                    let event = Event::OutputsHome { executor, task, attempt, result };
                    self.on_told(now, journal, executor, task, attempt, event);
                }
                FromNode::Ping => self.tell(executor, ToNode::Pong),
                FromNode::Drain => self.feed(now, journal, Event::ExecutorDraining { executor }),
                FromNode::Bye => {
                    self.executors.remove(&executor);
                    self.connections.get_mut(&life).expect("it is connected").executor = None;
                    let reason = "it said goodbye".into();
                    self.feed(now, journal, Event::ExecutorLost { executor, reason });
                    return;
                }
                FromNode::Node(NodeMessage::InputMoved(moved)) => {
                    self.feed(now, journal, Event::InputMoved { executor, moved })
                }
                FromNode::Node(NodeMessage::PrefetchFailed { batch, object, kind }) => {
                    self.feed(now, journal, Event::PrefetchFailed { executor, batch, object, kind })
                }
                FromNode::Node(NodeMessage::CacheResized { cache_bytes }) => {
                    self.feed(now, journal, Event::CacheResized { executor, cache_bytes })
                }
                FromNode::Node(NodeMessage::PartsRemoved { tasks }) => {
                    self.feed(now, journal, Event::PartsRemoved { executor, tasks })
                }
                FromNode::Hello { .. } | FromNode::Node(_) => {}
            }
        }
        if (!added.is_empty() || !dropped.is_empty())
            && let Some(executor) = self.connections.get(&life).and_then(|c| c.executor)
        {
            self.feed(now, journal, Event::ReplicasChanged { executor, added, dropped });
        }
    }

    fn on_told(
        &mut self,
        now: Timestamp,
        journal: &mut Journal,
        executor: ExecutorId,
        task: TaskId,
        attempt: AttemptNo,
        event: Event,
    ) {
        if !self.core.has_task(task) {
            self.tell(executor, ToNode::Recorded { task, attempt });
            return;
        }
        let ack = (executor, task, attempt);
        let n_effects = self.effects.len();
        self.feed_acking(now, journal, event, Some(ack));
        let mut ends = self.effects.iter().skip(n_effects);
        let recorded = ends.any(|(_, e)| matches!(e, Effect::TaskEnded { ack: Some(a), .. } if *a == ack));
        let landing = matches!(
            self.core.task_state(task),
            TaskState::Reserved { executor: e, attempt: a, landing: true } if e == executor && a == attempt
        );
        if !recorded && !landing {
            self.tell(executor, ToNode::Recorded { task, attempt });
        }
    }

    // ------------------------------------------------------------ of several

    fn in_doubt(&mut self) -> &mut BTreeSet<RunId> {
        &mut self.group.as_mut().expect("a part of a run is in a group").in_doubt
    }

    fn forget_prepared(&mut self, run: RunId) {
        if let Some(group) = &mut self.group {
            group.in_doubt.remove(&run);
        }
    }

    fn elsewhere(&mut self, offer: &Offer, told: Option<MemberId>) -> Option<MemberId> {
        let ours = self.core.load();
        let group = self.group.as_mut()?;
        let me = group.membership.me;
        let there =
            group.loads.iter().map(|(member, load)| (*member, load.n_slots)).chain([(me, ours.n_slots)]);
        let member = home_of(me, told, there);
        if told.is_none()
            && let Some(load) = group.loads.get_mut(&member)
        {
            load.n_slots += u64::from(offer.slots);
        }
        Some(member).filter(|member| *member != me)
    }

    pub fn tell_member(&mut self, member: MemberId, message: ToMember) {
        if let Some(group) = self.group.as_mut().filter(|group| group.links.contains(&member)) {
            group.out.push((member, message));
        }
    }

    fn opens_runs(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.membership.me == MemberId(0))
    }

    pub fn on_link_up(&mut self, now: Timestamp, journal: &mut Journal, member: MemberId) {
        self.group.as_mut().expect("it has members").links.insert(member);
        self.feed(now, journal, Event::MemberConnected { member });
        self.ask_and_tell();
    }

    pub fn on_link_down(&mut self, now: Timestamp, journal: &mut Journal, member: MemberId) {
        let group = self.group.as_mut().expect("it has members");
        group.loads.remove(&member);
        if group.links.remove(&member) {
            self.feed(now, journal, Event::MemberSilent { member });
        }
    }

    /// From time to time: what is in doubt is asked for, and the load told.
    pub fn ask_and_tell(&mut self) {
        let load = self.core.load();
        let Some(group) = &self.group else { return };
        let runs: Vec<RunId> = group.in_doubt.iter().copied().collect();
        for member in group.links.clone() {
            self.tell_member(member, ToMember::Load(load.clone()));
        }
        if !runs.is_empty() {
            self.tell_member(MemberId(0), ToMember::InDoubt(runs));
        }
    }

    pub fn on_member(&mut self, now: Timestamp, journal: &mut Journal, member: MemberId, message: ToMember) {
        match message {
            ToMember::Said(messages) => self.feed(now, journal, Event::MemberTold { member, messages }),
            ToMember::Load(load) => {
                self.group.as_mut().expect("it has members").loads.insert(member, load.clone());
                self.feed(now, journal, Event::MemberLoadChanged { member, load });
            }
            ToMember::InDoubt(runs) => {
                for run in runs {
                    let is_open = self.group.as_ref().is_some_and(|group| group.submitting.contains(&run));
                    if self.opens_runs() && !is_open {
                        let committed = self.core.is_accepted(run);
                        self.tell_member(member, ToMember::Decided { run, committed });
                    }
                }
            }
            ToMember::Decided { run, committed } => {
                if !self.in_doubt().remove(&run) {
                    return;
                }
                if committed {
                    journal.records.push(Record::RunCommitted { run });
                    self.committed.insert(run);
                    self.feed(now, journal, Event::RunCommitted { run });
                } else {
                    self.abort(now, journal, run);
                }
            }
        }
    }

    fn tell_decided(&mut self, run: RunId) {
        let Some(group) = &mut self.group else { return };
        group.submitting.remove(&run);
        if self.opens_runs() {
            let committed = self.core.is_accepted(run);
            for member in self.group.as_ref().expect("just seen").links.clone() {
                self.tell_member(member, ToMember::Decided { run, committed });
            }
        }
    }

    /// The number that the next run has, at the member that opens runs.
    pub fn next_run(&self) -> RunId {
        RunId(self.next_run)
    }

    /// Takes a part of a run, to its end; at other members than the first it is prepared then. `Err`: it is refused, as for
    /// files that a submission in doubt writes, too.
    pub fn take_part(
        &mut self,
        now: Timestamp,
        journal: &mut Journal,
        run: RunId,
        part: &Part,
    ) -> Result<(), String> {
        if self.in_doubt().remove(&run) {
            // The first member gives the number again: it was killed before it had the other run for sure.
            self.abort(now, journal, run);
        }
        if self.core.find_run(run).is_some() {
            return Err(format!("run {run} cannot have a part here"));
        }
        self.next_run = self.next_run.max(run.0 + 1);
        self.group.as_mut().expect("it has members").submitting.insert(run);
        self.pay_aborts(journal);
        journal.records.push(Record::RunOpened { run, keep: false, into: None });
        self.feed(now, journal, Event::RunOpened { run, name: String::new(), keep: false, into: None });
        journal.records.push(Record::RunLinked { run, links: part.links.clone() });
        self.feed(now, journal, Event::RunLinked { run, links: part.links.clone() });
        let patterns = part.patterns.clone();
        journal.records.push(Record::RunPatterns { run, patterns: patterns.clone() });
        self.feed(now, journal, Event::RunPatterns { run, patterns });
        for array in &part.arrays {
            let array = Arc::new(array.clone());
            journal.records.push(Record::ArrayAdded { run, array: array.clone() });
            self.feed(now, journal, Event::ArrayAdded { run, array });
        }
        if self.refused.contains(&run) {
            self.refused.retain(|refused| *refused != run);
            return Err("two tasks write one file".into());
        }
        if !self.opens_runs() {
            journal.records.push(Record::RunPrepared { run });
            self.effects.push_back((journal.records.len(), Effect::RunPrepared { run }));
        }
        Ok(())
    }

    fn on_prepared(&mut self, run: RunId) {
        let group = self.group.as_mut().expect("it has members");
        if group.submitting.remove(&run) {
            group.in_doubt.insert(run);
        }
    }

    /// All parts are prepared.
    pub fn commit_run(&mut self, journal: &mut Journal, run: RunId) {
        journal.records.push(Record::RunCommitted { run });
        self.effects.push_back((journal.records.len(), Effect::RunAccepted { run }));
    }

    /// Its client has gone away: what is not prepared, or committed, is given up.
    pub fn client_gone(&mut self, now: Timestamp, journal: &mut Journal, run: RunId) {
        let group = self.group.as_mut().expect("it has members");
        if group.submitting.remove(&run) {
            self.abort(now, journal, run);
            self.tell_decided(run);
        }
    }

    fn tell(&mut self, executor: ExecutorId, message: ToNode) {
        if let Some((life, _)) = self.executors.get(&executor)
            && let Some(c) = self.connections.get_mut(life)
        {
            c.out.push(message);
        }
    }

    /// The node that an executor is, while it is known.
    pub fn node_of(&self, executor: ExecutorId) -> Option<usize> {
        self.executors.get(&executor).map(|(_, node)| *node)
    }
}
