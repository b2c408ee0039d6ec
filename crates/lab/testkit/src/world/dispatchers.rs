//! The dispatcher processes in a world: their messages, the ends that they report, how they are killed and restarted, and
//! their connections to each other.

use super::plans::PlanState;
use super::{MS, RENEWAL_NS, S, World};
use crate::happening::Ev;
use crate::process::{Journal, News, Process};
use eyas_core::dispatcher::{Dispatcher, DispatcherConfig, REVIVALS_MAX, TaskState};
use eyas_session::dispatcher::Record;
use eyas_terms::*;
use std::collections::{BTreeMap, BTreeSet};

/// One dispatcher, and what it owes.
pub(super) struct Member {
    pub process: Option<Process>,
    pub config: DispatcherConfig,
    pub journal: Journal,
    n_scheduled: usize,
    durable_at: u64,
    /// The journal's disk takes no writes until this time.
    pub full_until: Timestamp,
    n_processes: u64,
    /// Done tasks and their outputs, as far as the present process knows.
    pub done: BTreeMap<TaskId, Vec<(String, Digest)>>,
    /// How tasks ended last, and the runs that they belong to.
    pub outcomes: BTreeMap<TaskId, Outcome>,
    run_of: BTreeMap<TaskId, RunId>,
    /// Tasks that were reported to a client as done.
    pub promised: BTreeSet<TaskId>,
    /// The node and the attempt that ended each task.
    pub ended_by: BTreeMap<TaskId, (usize, AttemptNo)>,
    /// The inputs that the done tasks of a run have read, in this process's life.
    read: BTreeMap<(RunId, String), (Digest, TaskId)>,
    /// Since when each ready task has waited, and each executor has been idle.
    pub ready_since: BTreeMap<TaskId, Timestamp>,
    pub idle_since: BTreeMap<ExecutorId, Timestamp>,
    /// How far its clock is ahead of true time, and the latest time that it gave.
    ahead_ns: i64,
    given: Timestamp,
    /// When it is woken next, as it asked.
    pub wakes_at: Option<Timestamp>,
}

impl Member {
    pub(super) fn new(config: DispatcherConfig) -> Member {
        Member {
            process: None,
            config,
            journal: Journal::default(),
            n_scheduled: 0,
            durable_at: 0,
            full_until: Timestamp(0),
            n_processes: 0,
            done: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            run_of: BTreeMap::new(),
            promised: BTreeSet::new(),
            ended_by: BTreeMap::new(),
            read: BTreeMap::new(),
            ready_since: BTreeMap::new(),
            idle_since: BTreeMap::new(),
            ahead_ns: 0,
            given: Timestamp(0),
            wakes_at: None,
        }
    }

    /// Whether the dispatcher counts the task as done, or its run has ended and is forgotten.
    pub(super) fn is_done(&self, process: &Process, task: TaskId) -> bool {
        let run = self.run_of.get(&task).expect("it had a run when it ended");
        match process.core().work().has_task(task) {
            true => process.core().task_state(task) == TaskState::Done,
            false => process.journal().is_forgotten(*run),
        }
    }

    /// How tasks of the run have ended here.
    pub(super) fn ends_of(&self, run: RunId) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(move |(task, _)| self.run_of[*task] == run).map(|(_, outcome)| outcome)
    }

    /// A client was told that the tasks of this dispatcher are done; they are in its journal.
    pub(super) fn check_promised(&self, process: &Process) {
        for task in &self.promised {
            assert!(self.is_done(process, *task), "promise 1: {task:?} was done before the restart");
        }
    }
}

/// The connections of a world.
#[derive(Default)]
pub(super) struct Links {
    n_lives: u64,
    /// The dispatcher that each connection leads to.
    pub lives: BTreeMap<u64, usize>,
    /// By sender and receiver: the connection for messages of one dispatcher to another one, while it is up.
    pub between: BTreeMap<(usize, usize), u64>,
    pub cut_until: BTreeMap<(usize, usize), Timestamp>,
    /// When the last message of each connection and direction arrives.
    arrives: BTreeMap<(u64, bool), u64>,
}

impl Links {
    /// A new connection to dispatcher `m`.
    pub(super) fn connect(&mut self, m: usize) -> u64 {
        self.n_lives += 1;
        self.lives.insert(self.n_lives, m);
        self.n_lives
    }
}

impl World {
    /// Has a dispatcher's process do something, if there is one, and carries out what it wants.
    pub(super) fn with(&mut self, m: usize, act: impl FnOnce(&mut Process, Timestamp)) {
        let Some(mut process) = self.members[m].process.take() else { return };
        let now = self.clock_time(self.members[m].ahead_ns);
        assert!(now >= self.members[m].given, "the dispatcher's time goes back");
        self.members[m].given = now;
        // The process is not put back when something panics: the world ends then, and only its trace is used.
        act(&mut process, now);
        let News { ended, revived, forgotten, accepted, durable, to_nodes, to_members, to_clients, closed } =
            process.settle(now);
        let at = self.at(m);
        for run in forgotten {
            self.check_forgotten(m, run);
        }
        for (task, outcome, by) in ended {
            self.trace.add(format!("             {at}ended {task:?} {outcome:?}"));
            self.on_ended(m, &process, task, outcome, by);
        }
        for (task, lost) in revived {
            self.trace.add(format!("             {at}revived {task:?} for {lost:?}"));
            self.on_revived(m, &process, task, lost);
        }
        for run in accepted {
            for plan in self.plans.iter_mut().filter(|plan| plan.state == PlanState::Submitted(run)) {
                plan.state = PlanState::Accepted(run);
            }
        }
        for task in durable {
            self.on_durable_end(m, task);
        }
        let incarnation = process.incarnation();
        let wakes_at = process.wake_at().filter(|_| self.o.uneven);
        let n_records = process.journal().records.len();
        self.members[m].process = Some(process);
        // Like the live driver: as soon as it may be, never in the past.
        let ahead_ns = self.members[m].ahead_ns;
        let true_time = |at: Timestamp| Timestamp(at.0.saturating_add_signed(-ahead_ns));
        if let Some(at) = wakes_at.map(|at| true_time(at).max(self.calendar.now.plus_ns(1)))
            && self.members[m].wakes_at != Some(at)
        {
            self.members[m].wakes_at = Some(at);
            self.after(at.since_ns(self.calendar.now), Ev::Wake { m });
        }
        for (life, n, batch) in to_nodes {
            batch.iter().for_each(|message| self.check_message(m, n, message));
            let at = self.arrival(life, true);
            self.after(at, Ev::ToNode { n, life, batch });
        }
        for (member, message) in to_members {
            let (from, to) = (m, member.0 as usize);
            if let Some(life) = self.links.between.get(&(from, to)).copied() {
                let at = self.arrival(life, false);
                self.after(at, Ev::ToMember { from, to, life, message });
            }
        }
        for (life, number, body) in to_clients {
            let at = self.arrival(life, true);
            self.after(at, Ev::ToClient { life, number, body });
        }
        for (life, n) in closed {
            let at = self.arrival(life, true);
            self.after(at, Ev::NodeCut { n, life });
        }
        if n_records > self.members[m].n_scheduled {
            let takes = self.lasts(self.o.durable_ns_max);
            let member = &mut self.members[m];
            member.n_scheduled = n_records;
            member.durable_at = member.durable_at.max(self.calendar.now.0 + takes).max(member.full_until.0);
            let at = member.durable_at - self.calendar.now.0;
            self.after(at, Ev::Durable { incarnation, n: n_records });
        }
    }

    /// Which dispatcher did it, in worlds with several.
    fn at(&self, m: usize) -> String {
        if self.members.len() > 1 { format!("{m}: ") } else { String::new() }
    }

    /// When a message of one connection arrives: no message overtakes another one of the same connection.
    pub(super) fn arrival(&mut self, life: u64, back: bool) -> u64 {
        let takes = self.lasts(self.o.message_ns_max);
        let at = self.links.arrives.entry((life, back)).or_default();
        *at = (*at).max(self.calendar.now.0 + takes);
        *at - self.calendar.now.0
    }

    // ------------------------------------------------------------ ends

    fn on_ended(
        &mut self,
        m: usize,
        process: &Process,
        task: TaskId,
        outcome: Outcome,
        by: Option<(ExecutorId, AttemptNo)>,
    ) {
        let work = process.core().work();
        let (run, name) = (work.run_of(task), work.user_id(task));
        if let Outcome::Failed(failure) = &outcome {
            self.check_failure(process, task, failure);
        }
        self.members[m].outcomes.insert(task, outcome.clone());
        self.members[m].run_of.insert(task, run);
        self.account.ever_ended.insert(name.clone());
        if outcome != Outcome::Done {
            // It may run again for nobody when its run is forgotten.
            let is_forgotten = process.journal().is_forgotten(run) || self.is_forgotten(run);
            let is_caused =
                outcome == Outcome::Cancelled && is_forgotten && self.account.ever_done.contains(&name);
            let why =
                format!("promise 4: {name}, {task:?} of dispatcher {m}, ends without a cause: {outcome:?}");
            assert!(is_caused || !self.o.is_plain(), "{why}");
            return;
        }
        let (executor, attempt) = by.expect("promise 2: a task is done without an attempt");
        let n = process.node_of(executor).expect("the executor that ended a task is known");
        let witness = self.account.witnesses.get(&(m, n, task, attempt)).cloned();
        let witness = witness.unwrap_or_else(|| panic!("promise 2: {task:?} is done and never ran"));
        assert_eq!(
            witness.name, name,
            "promise 2: {task:?} of dispatcher {m} is done by an attempt on node {n} that ran something else"
        );
        assert!(!witness.spoiled, "promise 2: {task:?} is done, its input was changed while it ran");
        self.account.ever_done.insert(name);
        let member = &mut self.members[m];
        for (location, digest, in_place) in witness.seen {
            // Files that stay on the nodes may be made again, with other bytes.
            let stays = CatalogLocation::of(&location).stays();
            if in_place || stays || witness.incarnation != process.incarnation() {
                continue;
            }
            let first = *member.read.entry((run, location.clone())).or_insert((digest, task));
            assert_eq!(
                first.0, digest,
                "promise 2: {task:?} read other bytes of {location} than {:?}",
                first.1
            );
        }
        for (location, digest) in witness.outputs.iter().filter(|(l, _)| CatalogLocation::of(l).stays()) {
            self.account.made.entry(location.clone()).or_default().insert(*digest);
        }
        member.done.insert(task, witness.outputs);
        member.ended_by.insert(task, (n, attempt));
    }

    /// A done task runs again: allowed only if one of its files is gone that some task has yet to read, or cannot be reached.
    fn on_revived(&mut self, m: usize, process: &Process, task: TaskId, lost: ObjectId) {
        assert!(!self.o.loses_nothing(), "{task:?} runs again although nothing is ever lost");
        self.account.n_revivals += 1;
        let member = &mut self.members[m];
        member.done.remove(&task);
        member.promised.remove(&task);
        // It may have failed at the same moment.
        if !matches!(process.core().task_state(task), TaskState::Failed | TaskState::Cancelled) {
            member.outcomes.remove(&task);
        }
        let n_holders = process.core().work().catalog().n_holders(lost);
        let is_gone = n_holders == 0 || self.o.islands.is_some();
        assert!(is_gone, "{task:?} runs again for {lost:?}, which is there");
        let of_task = |r: &&Record| matches!(r, Record::TaskRevived { task: t } if *t == task);
        let n = process.journal().records.iter().filter(of_task).count();
        assert!(n <= 1 + REVIVALS_MAX as usize, "{task:?} has run again {n} times");
    }

    /// The end of a task is in the journal for good: its outputs are at home, and stay there.
    fn on_durable_end(&mut self, m: usize, task: TaskId) {
        let Some(outputs) = self.members[m].done.get(&task) else { return };
        for (location, digest) in outputs.iter().filter(|(l, _)| !CatalogLocation::of(l).stays()) {
            let at_home = self.home.find(location).map(|c| c.digest);
            assert_eq!(at_home, Some(*digest), "promise 1: {task:?} is done, {location} is not at home");
        }
        self.members[m].promised.insert(task);
    }

    // ------------------------------------------------------------ processes

    pub(super) fn on_start_dispatcher(&mut self, m: usize) {
        self.start_provider_with_dispatcher();
        let mut ahead_ns = self.wrong_clock();
        let given = self.members[m].given;
        if self.o.clocks && given > Timestamp(0) {
            ahead_ns += given.plus_ns(RENEWAL_NS).since_ns(self.clock_time(ahead_ns)) as i64;
        }
        let now = self.clock_time(ahead_ns);
        let n_dispatchers = self.o.n_dispatchers;
        let member = &mut self.members[m];
        member.read.clear();
        member.ready_since.clear();
        member.idle_since.clear();
        member.ahead_ns = ahead_ns;
        member.n_processes += 1;
        // The incarnations of processes differ between all dispatchers, as times do.
        let incarnation = member.n_processes * n_dispatchers + m as u64;
        let process = Process::start(&member.config, incarnation, now, &mut member.journal);
        member.check_promised(&process);
        let mut done = std::mem::take(&mut member.done);
        done.retain(|task, _| member.is_done(&process, *task));
        member.done = done;
        match self.members.len() {
            1 => self.see_after_restart(&process),
            _ => self.check_restarted(m, &process),
        }
        self.members[m].process = Some(process);
        self.with(m, |_, _| ());
    }

    pub(super) fn set_full(&mut self, m: usize, is_full: bool) {
        match self.members[m].process {
            Some(_) => self.with(m, |process, now| process.set_full(now, is_full)),
            None => self.members[m].journal.is_full = is_full,
        }
    }

    pub(super) fn kill_dispatcher(&mut self, m: usize) {
        let Some(process) = self.members[m].process.take() else { return };
        replay_dispatcher(&process);
        let connections: Vec<(u64, usize)> = process.connections().collect();
        let mut journal = process.into_journal();
        let n_durable = journal.n_durable as u64;
        let kept = (n_durable + self.upto(journal.records.len() as u64 - n_durable)) as usize;
        journal.records.truncate(kept);
        journal.n_durable = kept;
        self.members[m].journal = journal;
        self.members[m].n_scheduled = kept;
        for (life, n) in connections {
            let takes = self.upto(self.o.message_ns_max);
            self.after(takes, Ev::NodeCut { n, life });
        }
        for other in (0..self.members.len()).filter(|other| *other != m) {
            if let Some(life) = self.links.between.remove(&(m, other)) {
                self.after(S / 5, Ev::LinkTry { from: m, to: other });
                let takes = self.upto(self.o.message_ns_max);
                self.after(takes, Ev::Cut { life });
            }
            if let Some(life) = self.links.between.get(&(other, m)).copied() {
                let takes = self.upto(self.o.message_ns_max);
                self.after(takes, Ev::MemberLost { from: other, to: m, life });
            }
        }
        for life in self.clients.lives_at(m) {
            let takes = self.upto(self.o.message_ns_max);
            self.after(takes, Ev::ClientCut { life });
        }
        let away = if self.o.linked {
            self.lasts(self.o.away_ns_max)
        } else {
            let max = [50 * MS, 3 * S, 20 * S][self.rng.below(3) as usize];
            self.upto(max)
        };
        self.after(away, Ev::StartDispatcher { m });
    }

    // ------------------------------------------------------------ connections among dispatchers

    pub(super) fn on_link_try(&mut self, from: usize, to: usize) {
        if self.links.between.contains_key(&(from, to)) {
            return;
        }
        let is_cut = self.links.cut_until.get(&(from, to)).is_some_and(|until| *until > self.calendar.now);
        if is_cut || self.members[from].process.is_none() || self.members[to].process.is_none() {
            return self.after(S / 5, Ev::LinkTry { from, to });
        }
        let life = self.links.connect(to);
        self.links.between.insert((from, to), life);
        let (theirs, ours, n) = (MemberId(to as u32), MemberId(from as u32), self.members.len() as u32);
        self.with(to, |process, now| process.on_member_connected(now, life, ours, n));
        self.with(from, |process, now| process.on_member_reached(now, theirs));
    }

    pub(super) fn on_member_lost(&mut self, from: usize, to: usize, life: u64) {
        if self.links.between.get(&(from, to)) == Some(&life) {
            self.links.between.remove(&(from, to));
            let member = MemberId(to as u32);
            self.with(from, |process, now| process.on_member_lost(now, member));
            self.with(to, |process, now| process.on_disconnected(now, life));
            self.after(S / 5, Ev::LinkTry { from, to });
        }
    }
}

/// What went into a dispatcher is fed to a fresh one, which must say the same.
pub(super) fn replay_dispatcher(process: &Process) {
    let mut core = Dispatcher::new(process.config().clone()).expect("it was made before");
    for (now, event, actions) in process.log() {
        let mut again = vec![];
        core.handle(*now, event.clone(), &mut again);
        assert_eq!(&again, actions, "promise 5: the dispatcher decides otherwise on {event:?}");
    }
}
