//! What programs print, for people who ask: of one task, of those that failed, of a whole run in order.
//!
//! What ended attempts printed is the driver's to add ([`Answer::Printed`], [`Answer::Prints`]). What a running program has
//! printed so far only its slot process knows, so its executor is asked ([`ToExecutor::Look`]) and the answer waits for it,
//! for a while.

use super::{Answer, Outside, Session};
use eyas_core::dispatcher::{RunState, TaskState};
use eyas_terms::{AttemptNo, ExecutorId, RunId, TaskId, Timestamp};
use eyas_wire::message::{
    Printed, PrintedPart, PrintedState, ReplyBody, TaskPrinted, ToExecutor, WhichTasks,
};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// How long an executor has to say what a program has printed so far.
const LOOK_NS: u64 = 5_000_000_000;
/// Tasks in one answer, each with at most what an attempt's report holds of its streams.
const TASKS_IN_ANSWER: usize = 64;
const NOTHING_KEPT: &str = "this cluster keeps nothing of what programs print (--no-event-log)";
/// Of what tasks of functions printed so much is kept at hand, of so many tasks.
const AT_HAND_BYTES_MAX: usize = 4 << 20;
const AT_HAND_MAX: usize = 1 << 14;
/// Tasks of a run that are looked at for one answer, so that nothing else waits for long.
const LOOKED_AT_MAX: usize = 100_000;

/// Adds what a running program has printed so far to what ended attempts printed. The attempt may have ended meanwhile; then
/// `asked` has it already.
pub fn with_live(mut asked: TaskPrinted, live: Option<Printed>) -> TaskPrinted {
    let is_there = |live: &Printed| asked.attempts.iter().any(|ended| ended.attempt == live.attempt);
    asked.attempts.extend(live.filter(|live| !is_there(live)));
    asked
}

/// What people have asked for.
#[derive(Default)]
pub(super) struct Prints {
    last_ask: u64,
    looks: BTreeMap<u64, Look>,
    /// The runs of which everything that their tasks print is kept.
    pub(super) whole: BTreeSet<RunId>,
    followers: Vec<EndsFollower>,
    listeners: Vec<Listener>,
    at_hand: AtHand,
}

/// A client that hears of each task of a run when it has ended.
struct EndsFollower {
    connection: u64,
    number: u64,
    run: RunId,
    /// Tasks that have ended and that the client has not heard of.
    untold: VecDeque<TaskId>,
}

/// A client that hears of the tasks of runs which are submitted for it.
struct Listener {
    connection: u64,
    /// The number of its request.
    number: u64,
    /// The number that it goes by.
    listener: u64,
}

/// What tasks of functions printed, in which their results come back: an answer need not wait for the disk to give it back. Everything
/// is on the disk, too, and is read from there where it is not here.
#[derive(Default)]
struct AtHand {
    /// `None`: the task had several attempts, which are put together on the disk.
    by_task: HashMap<TaskId, Option<Printed>>,
    /// The same tasks, and some that are gone, in the order in which they came.
    order: VecDeque<TaskId>,
    n_bytes: usize,
}

impl AtHand {
    /// An attempt has ended, and printed this.
    fn note(&mut self, printed: &Printed) {
        let task = printed.task;
        if printed.attempt != AttemptNo(1) {
            self.take(task);
            self.by_task.insert(task, None);
        } else if let Entry::Vacant(place) = self.by_task.entry(task) {
            place.insert(Some(printed.clone()));
            self.n_bytes += n_bytes(printed);
        }
        self.order.push_back(task);
        while self.n_bytes > AT_HAND_BYTES_MAX || self.order.len() > AT_HAND_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.take(oldest);
        }
    }

    /// What the task printed, if that is at hand.
    fn take(&mut self, task: TaskId) -> Option<Printed> {
        let printed = self.by_task.remove(&task)??;
        self.n_bytes -= n_bytes(&printed);
        Some(printed)
    }

    /// Adds to tasks what they printed. Gives whether nothing is missing then; if something is, nothing is added.
    fn add_to(&mut self, tasks: &mut [TaskPrinted]) -> bool {
        let is_whole = tasks
            .iter()
            .all(|asked| matches!(self.by_task.get(&asked.task), Some(Some(_))) && !asked.lacks_failure());
        for asked in tasks {
            let printed = self.take(asked.task).filter(|_| is_whole);
            asked.attempts.extend(printed);
        }
        is_whole
    }
}

fn n_bytes(Printed { stdout, stderr, .. }: &Printed) -> usize {
    [stdout, stderr].iter().map(|stream| stream.head.len() + stream.tail.len()).sum()
}

/// Somebody who waits for what a running program has printed.
struct Look {
    connection: u64,
    number: u64,
    task: TaskId,
    executor: ExecutorId,
    asked: Timestamp,
}

impl Prints {
    /// A client's connection is gone.
    pub(super) fn left(&mut self, connection: u64) {
        self.looks.retain(|_, look| look.connection != connection);
        self.followers.retain(|follower| follower.connection != connection);
        self.listeners.retain(|listener| listener.connection != connection);
    }

    /// A client listens, under one number at a time.
    pub(super) fn listen(&mut self, listener: u64, connection: u64, number: u64) {
        self.listeners.retain(|other| other.connection != connection);
        self.listeners.push(Listener { connection, number, listener });
    }

    /// Whether a client hears of each end of a task of this run.
    pub(super) fn is_followed(&self, run: RunId) -> bool {
        self.followers.iter().any(|follower| follower.run == run)
    }

    /// The end of a task is durable.
    pub(super) fn note_end(&mut self, run: RunId, task: TaskId) {
        self.followers.iter_mut().filter(|f| f.run == run).for_each(|f| f.untold.push_back(task));
    }
}

impl<O: Outside> Session<O> {
    pub(super) fn on_logs(&mut self, connection: u64, number: u64, task: TaskId) {
        let state = self.core.task_state(task);
        if let TaskState::Reserved { executor, attempt, landing: false } = state {
            let ask = self.prints.last_ask + 1;
            if self.is_connected(executor) {
                self.prints.last_ask = ask;
                let look = Look { connection, number, task, executor, asked: self.now };
                self.prints.looks.insert(ask, look);
                return self.tell(executor, ToExecutor::Look { ask, task, attempt });
            }
        }
        self.answer_logs(connection, number, task, None);
    }

    /// An executor said what an ended attempt has printed.
    pub(super) fn on_printed(&mut self, printed: Box<Printed>) {
        let (work, task) = (self.core.work(), printed.task);
        if work.has_task(task)
            && self.prints.whole.contains(&work.run_of(task))
            && (work.find_end(task).is_none() || self.recording.ends.has_task(task))
        {
            self.prints.at_hand.note(&printed);
        }
        self.outside.log_printed(printed);
    }

    /// A part of what a program printed came from its executor. It is kept for a task that is known, and whose executor this is.
    pub(super) fn on_printed_part(&mut self, executor: ExecutorId, part: PrintedPart) {
        let PrintedPart { task, attempt, .. } = part;
        let is_current = self.core.work().has_task(task)
            && matches!(
                self.core.task_state(task),
                TaskState::Reserved { executor: e, attempt: a, .. } if (e, a) == (executor, attempt)
            );
        match self.executors.by_id.get(&executor).map(|e| e.connection) {
            Some(connection) if is_current && self.options.keeps_log => {
                self.outside.keep_printed(connection, part)
            }
            _ => self.tell(executor, ToExecutor::PrintedKept { task, attempt, upto: None }),
        }
    }

    /// An executor said what a program has printed so far.
    pub(super) fn on_looked(&mut self, executor: ExecutorId, ask: u64, has_begun: bool, printed: Printed) {
        if self.prints.looks.get(&ask).is_none_or(|look| look.executor != executor) {
            return;
        }
        let Some(Look { connection, number, task, .. }) = self.prints.looks.remove(&ask) else { return };
        let printed = Printed { task, ..printed };
        self.answer_logs(connection, number, task, Some((has_begun, printed)));
    }

    /// Answers for those executors that do not.
    pub(super) fn end_looks(&mut self) {
        let now = self.now;
        let is_late = |look: &Look| now.since_ns(look.asked) > LOOK_NS || !self.is_connected(look.executor);
        let late: Vec<u64> =
            self.prints.looks.iter().filter(|(_, look)| is_late(look)).map(|(ask, _)| *ask).collect();
        for ask in late {
            let Some(Look { connection, number, task, .. }) = self.prints.looks.remove(&ask) else {
                continue;
            };
            self.answer_logs(connection, number, task, None);
        }
    }

    /// `live`: whether its program has begun, and what that has printed so far.
    fn answer_logs(&mut self, connection: u64, number: u64, task: TaskId, live: Option<(bool, Printed)>) {
        let (state, reason) = match self.core.task_state(task) {
            TaskState::Submitting => (PrintedState::Queued, None),
            TaskState::Waiting { .. } => (PrintedState::Queued, Some(self.core.waits_for(task))),
            TaskState::Ready { reason } => {
                (PrintedState::Queued, self.why_ready(self.without_names(connection, reason)))
            }
            TaskState::Reserved { landing: true, .. } => (PrintedState::Running, None),
            TaskState::Reserved { .. } => match &live {
                Some((true, _)) => (PrintedState::Running, None),
                Some((false, _)) => (PrintedState::Given, None),
                None => (PrintedState::Silent, None),
            },
            TaskState::Done => (PrintedState::Done, None),
            TaskState::Failed => (PrintedState::Failed, None),
            TaskState::Cancelled => (PrintedState::Cancelled, None),
        };
        let live = live.filter(|(has_begun, _)| *has_begun && !state.is_over()).map(|(_, printed)| printed);
        let asked = TaskPrinted {
            task,
            run: self.core.work().run_of(task),
            user_id: self.core.work().user_id(task),
            state,
            reason,
            ..TaskPrinted::default()
        };
        let asked = self.with_failure(asked);
        let keeps_it = !asked.state.is_over() || self.options.keeps_log;
        self.answer_printed(connection, number, keeps_it, Answer::Printed { asked, live });
    }

    pub(super) fn on_prints(
        &mut self,
        connection: u64,
        number: u64,
        run: Option<RunId>,
        which: WhichTasks,
        from: u64,
    ) {
        let newest = || {
            let seen = |(run, r): &(RunId, &RunState)| r.committed && self.may_see(connection, *run);
            self.core.work().runs().filter(seen).map(|(run, _)| run).last()
        };
        let found = run.or_else(newest).filter(|run| self.core.work().find_run(*run).is_some());
        let Some(run) = found else {
            let reason = run.map_or("nothing was submitted".into(), |run| self.no_run(run));
            return self.refuse(connection, number, reason);
        };
        let (mut tasks, mut next, mut is_early) = (vec![], None, false);
        for (n, task) in self.core.work().tasks_of(run, from).enumerate() {
            let at = from + n as u64;
            if tasks.len() == TASKS_IN_ANSWER || n == LOOKED_AT_MAX {
                next = Some(at);
                break;
            }
            // What it printed is in the file when its end is durable.
            let ended = self.ended_task(run, task).filter(|_| !self.recording.ends.has_task(task));
            match ended {
                Some(ended) if which == WhichTasks::Ended || ended.state == PrintedState::Failed => {
                    tasks.push(ended);
                }
                Some(_) => {}
                None if which == WhichTasks::Ended => {
                    (next, is_early) = (Some(at), true);
                    break;
                }
                None => {}
            }
        }
        let keeps_it = tasks.is_empty() || self.options.keeps_log;
        self.answer_printed(connection, number, keeps_it, Answer::Prints { run, tasks, next, is_early });
    }

    /// Begins to tell a client of the tasks of a run, each when it has ended.
    pub(super) fn on_follow_ends(&mut self, connection: u64, number: u64, run: RunId) {
        if self.core.work().find_run(run).is_none() {
            let reason = self.no_run(run);
            return self.refuse(connection, number, reason);
        }
        if !self.options.keeps_log {
            return self.refuse(connection, number, NOTHING_KEPT.into());
        }
        let has_ended = |task: &TaskId| {
            self.core.work().find_end(*task).is_some() && !self.recording.ends.has_task(*task)
        };
        let untold = self.core.work().tasks_of(run, 0).filter(has_ended).collect();
        self.prints.followers.push(EndsFollower { connection, number, run, untold });
    }

    /// A run was submitted on a connection for a listener, who follows it where both are the same user.
    pub(super) fn tell_listener(&mut self, connection: u64, listener: u64, run: RunId) {
        let user = self.principal_of(connection);
        let is_theirs =
            |other: &&Listener| other.listener == listener && self.principal_of(other.connection) == user;
        if let Some(Listener { connection, number, .. }) = self.prints.listeners.iter().find(is_theirs) {
            self.on_follow_ends(*connection, *number, run);
        }
    }

    /// Tells clients of the tasks that have ended since they heard last.
    pub(super) fn tell_followers(&mut self) {
        let mut followers = std::mem::take(&mut self.prints.followers);
        followers.retain_mut(|follower| {
            let EndsFollower { connection, number, run, .. } = *follower;
            let Some(state) = self.core.work().find_run(run) else {
                let reason = self.no_run(run);
                self.refuse(connection, number, reason);
                return false;
            };
            let durable = self.recording.durable.get(&run).copied().unwrap_or_default();
            let is_over = state.ended.is_some() && durable.n() == state.tasks.n_tasks;
            while !follower.untold.is_empty() || is_over {
                let n = follower.untold.len().min(TASKS_IN_ANSWER);
                let some = follower.untold.drain(..n);
                let mut tasks: Vec<TaskPrinted> =
                    some.filter_map(|task| self.ended_task(run, task)).collect();
                let is_last = is_over && follower.untold.is_empty();
                let (next, is_early) = ((!is_last).then_some(0), !is_last);
                let answer = match self.prints.at_hand.add_to(&mut tasks) {
                    true => Answer::Now(ReplyBody::Prints { run, tasks, next, is_early }),
                    false => Answer::Prints { run, tasks, next, is_early },
                };
                self.answer(connection, number, answer);
                if is_last {
                    return false;
                }
            }
            true
        });
        self.prints.followers = followers;
    }

    /// A task that has ended, without what it printed; `None`: it runs again.
    fn ended_task(&self, run: RunId, task: TaskId) -> Option<TaskPrinted> {
        let state = match self.core.work().find_end(task)? {
            TaskState::Done => PrintedState::Done,
            TaskState::Failed => PrintedState::Failed,
            _ => PrintedState::Cancelled,
        };
        let user_id = self.core.work().user_id(task);
        Some(self.with_failure(TaskPrinted { task, run, user_id, state, ..TaskPrinted::default() }))
    }

    /// Adds why a task failed, where that is still in memory.
    fn with_failure(&self, mut asked: TaskPrinted) -> TaskPrinted {
        if asked.state == PrintedState::Failed
            && let Some(failure) = self.core.work().failure_of(asked.task)
        {
            asked.fail(failure);
        }
        asked
    }

    fn answer_printed(&mut self, connection: u64, number: u64, keeps_it: bool, answer: Answer) {
        if keeps_it {
            return self.answer(connection, number, answer);
        }
        self.refuse(connection, number, NOTHING_KEPT.into());
    }
}
