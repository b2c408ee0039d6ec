//! What others may hear only after the journal has it: that a submission is accepted, that a task has ended, and that an
//! attempt was given up.

use super::forget::Asker;
use super::{Outside, Record, Seq, Session};
use eyas_core::dispatcher::EndCounts;
use eyas_core::event::Event;
use eyas_core::group::PartEnd;
use eyas_terms::{AttemptNo, Digest, ExecutorId, MemberId, Outcome, RunId, TaskId};
use eyas_wire::message::{ReplyBody, ToExecutor};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// What waits for a record to be durable.
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
        /// The attempt that ended it, if one did.
        by: Option<(ExecutorId, AttemptNo)>,
    },
    TaskRevived {
        run: RunId,
    },
    AttemptGivenUp {
        task: TaskId,
        attempt: AttemptNo,
    },
    GivesOut,
    NumbersTaken {
        n_tasks: u64,
    },
    RunForgotten {
        run: RunId,
        asker: Option<Asker>,
    },
    /// Another member asked for these ends of parts.
    SayEnded {
        member: MemberId,
        number: u64,
        parts: Vec<(RunId, PartEnd)>,
    },
}

#[derive(Clone, Copy)]
pub(super) enum Ended {
    Done,
    Failed,
    Cancelled,
}

impl From<&Outcome> for Ended {
    fn from(outcome: &Outcome) -> Ended {
        match outcome {
            Outcome::Done => Ended::Done,
            Outcome::Failed(_) => Ended::Failed,
            Outcome::Cancelled => Ended::Cancelled,
        }
    }
}

/// How soon the journal is to write what was appended.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Commit {
    /// With what comes next: a submission that is not committed yet, of which nothing is promised. Were it written by itself, its
    /// commit would wait for the disk twice.
    #[default]
    Later,
    /// With others that end about now.
    Soon,
    /// Somebody waits for it.
    Now,
}

/// What the journal is writing, and what waits until it is on the disk.
#[derive(Default)]
pub(super) struct Recording {
    /// What is done when the record of a number is durable, in the order of the numbers.
    effects: VecDeque<(Seq, Effect)>,
    pub(super) ends: BeingRecorded,
    /// How soon the journal is to write what was appended since the last commit.
    commit: Commit,
    /// Digests and sizes of outputs that are on their way home, for the record of the task's end.
    pub(super) outputs: HashMap<TaskId, Vec<(Digest, u64)>>,
    /// Ends that are durable, by run.
    pub(super) durable: BTreeMap<RunId, EndCounts>,
    /// The latest record that something waited for, and the latest that is on the disk.
    appended: Seq,
    durable_seq: Seq,
}

impl Recording {
    /// The journal has taken a record under this number, on which an effect may wait.
    pub(super) fn append(&mut self, seq: Seq, effect: Option<Effect>) {
        self.appended = seq;
        self.effects.extend(effect.map(|effect| (seq, effect)));
    }

    /// Has an effect wait for all that was appended so far. Gives it back where all of that is durable.
    fn wait(&mut self, effect: Effect) -> Option<Effect> {
        if self.appended <= self.durable_seq {
            return Some(effect);
        }
        self.hurry();
        self.effects.push_back((self.appended, effect));
        None
    }

    /// Has an effect wait for the same record as the latest that waits. One does.
    pub(super) fn wait_with_latest(&mut self, effect: Effect) {
        let seq = self.effects.back().expect("the commit waits for the disk").0;
        self.effects.push_back((seq, effect));
    }

    /// The journal has everything up to `durable` on the disk.
    fn note_durable(&mut self, durable: Seq) {
        self.durable_seq = self.durable_seq.max(durable);
    }

    /// The next effect whose record is not later than `durable`.
    fn next_due(&mut self, durable: Seq) -> Option<Effect> {
        let is_due = self.effects.front().is_some_and(|(seq, _)| *seq <= durable);
        is_due.then(|| self.effects.pop_front().expect("just seen").1)
    }

    /// The journal is to write what was appended, as somebody waits for it.
    pub(super) fn hurry(&mut self) {
        self.commit = Commit::Now;
    }

    /// How soon the journal is to write what was appended; asked at each settling.
    pub(super) fn take_commit(&mut self) -> Commit {
        std::mem::take(&mut self.commit)
    }

    pub(super) fn revive(&mut self, run: RunId) {
        self.durable.entry(run).or_default().n_done -= 1;
    }

    pub(super) fn count(&mut self, run: RunId, outcome: Ended) {
        let durable = self.durable.entry(run).or_default();
        match outcome {
            Ended::Done => durable.n_done += 1,
            Ended::Failed => durable.n_failed += 1,
            Ended::Cancelled => durable.n_cancelled += 1,
        }
    }
}

/// Ends of tasks that the journal is still writing.
#[derive(Default)]
pub(super) struct BeingRecorded {
    /// How many ends of each task: one that was done and runs again may end once more before the journal has its first end.
    tasks: HashMap<TaskId, u32>,
    /// The attempts that ended them. An attempt ends its task once.
    attempts: BTreeSet<(ExecutorId, TaskId, AttemptNo)>,
}

impl BeingRecorded {
    fn begin(&mut self, task: TaskId, by: Option<(ExecutorId, AttemptNo)>) {
        *self.tasks.entry(task).or_default() += 1;
        self.attempts.extend(by.map(|(executor, attempt)| (executor, task, attempt)));
    }

    /// The journal has this end.
    fn end(&mut self, task: TaskId, by: Option<(ExecutorId, AttemptNo)>) {
        if let Entry::Occupied(mut n_ends) = self.tasks.entry(task) {
            *n_ends.get_mut() -= 1;
            if *n_ends.get() == 0 {
                n_ends.remove();
            }
        }
        if let Some((executor, attempt)) = by {
            self.attempts.remove(&(executor, task, attempt));
        }
    }

    /// Whether an end of this task is being written.
    pub(super) fn has_task(&self, task: TaskId) -> bool {
        self.tasks.contains_key(&task)
    }

    /// Whether it is being written that this attempt ended its task.
    fn has_attempt(&self, executor: ExecutorId, task: TaskId, attempt: AttemptNo) -> bool {
        self.attempts.contains(&(executor, task, attempt))
    }

    /// Whether an end is being written that an attempt of this executor made.
    pub(super) fn has_of(&self, executor: ExecutorId) -> bool {
        let first = (executor, TaskId(0), AttemptNo(0));
        self.attempts.range(first..).next().is_some_and(|(of, ..)| *of == executor)
    }
}

impl<O: Outside> Session<O> {
    /// Appends a record; its effect waits until it is durable. A journal that is full makes everything wait:
    /// nothing more is accepted until the disk takes what there is.
    pub(super) fn journal(&mut self, record: &Record<'_>, effect: Option<Effect>) -> Option<Seq> {
        let commit = match record {
            Record::RunOpened { .. }
            | Record::RunOwned { .. }
            | Record::RunPrintsWhole { .. }
            | Record::RunOpenedAt { .. } => Commit::Later,
            Record::TaskEnded { .. } => Commit::Soon,
            _ => Commit::Now,
        };
        self.recording.commit = self.recording.commit.max(commit);
        match self.outside.append(record) {
            Ok(seq) => {
                self.recording.append(seq, effect);
                Some(seq)
            }
            Err(why) => {
                self.stop = Some(format!("the journal takes no more: {why}"));
                None
            }
        }
    }

    /// Has `effect` wait for all that was appended so far.
    pub(super) fn when_durable(&mut self, effect: Effect) {
        if let Some(effect) = self.recording.wait(effect) {
            self.take_effect(effect);
        }
    }

    /// The core has ended a task; `by`: the attempt that ended it, if one did.
    pub(super) fn record_end(&mut self, task: TaskId, outcome: Outcome, by: Option<(ExecutorId, AttemptNo)>) {
        let outputs =
            self.recording.outputs.remove(&task).filter(|_| outcome == Outcome::Done).unwrap_or_default();
        if let Outcome::Failed(failure) = &outcome {
            self.outside.log_failure(task, failure);
        }
        let (run, ended) = (self.core.work().run_of(task), Ended::from(&outcome));
        let effect = Effect::TaskEnded { task, run, outcome: ended, by };
        if self.journal(&Record::TaskEnded { task, outcome, outputs }, Some(effect)).is_some() {
            self.recording.ends.begin(task, by);
        }
        // Who hears of each end may have more to do once it is heard, and nothing of the run is left to give out until then.
        if self.prints.is_followed(run)
            && self.core.work().find_run(run).is_some_and(|r| r.tasks.n_ready == 0)
        {
            self.recording.hurry();
        }
    }

    /// The journal has everything up to `durable` on the disk.
    pub(super) fn on_durable(&mut self, durable: Seq) {
        self.recording.note_durable(durable);
        while let Some(effect) = self.recording.next_due(durable) {
            self.take_effect(effect);
        }
    }

    fn take_effect(&mut self, effect: Effect) {
        match effect {
            Effect::RunAccepted { connection, number, run } => {
                self.submissions.submitting.remove(&run);
                self.submissions.sealed.remove(&run);
                let (whole, n_tasks) = self.on_committed(run);
                self.reply(connection, number, ReplyBody::RunAccepted { run: whole, n_tasks, again: false });
                self.tell_decided(run);
            }
            Effect::AddedAgain { connection, number, run, token } => {
                let body = match self.submissions.added.get(&(run, token)) {
                    Some(known) => ReplyBody::RunAccepted { run, n_tasks: known.n_tasks(), again: true },
                    None => ReplyBody::Refused { reason: "who submitted this first gave it up".into() },
                };
                self.reply(connection, number, body);
            }
            Effect::RunPrepared { connection, number, run } => self.on_prepared(connection, number, run),
            Effect::AttemptGivenUp { task, attempt } => self.feed(Event::AttemptGivenUp { task, attempt }),
            Effect::GivesOut => self.feed(Event::GivesOut),
            Effect::NumbersTaken { n_tasks } => self.submissions.ahead.taken = n_tasks,
            Effect::RunForgotten { run, asker } => self.on_forgotten(run, asker),
            Effect::SayEnded { member, number, parts } => self.say_ended(member, number, parts),
            Effect::TaskRevived { run } => self.recording.revive(run),
            Effect::TaskEnded { task, run, outcome, by } => {
                self.recording.ends.end(task, by);
                self.recording.count(run, outcome);
                self.prints.note_end(run, task);
                if let Some((executor, attempt)) = by {
                    self.acknowledge(executor, task, attempt);
                }
            }
        }
    }

    /// What the executor said of this attempt has not to be recorded. It may also have said again, after a reconnect, what the
    /// journal is still writing: then it is acknowledged when that is durable.
    pub(super) fn let_go(&mut self, executor: ExecutorId, task: TaskId, attempt: AttemptNo) {
        if !self.recording.ends.has_attempt(executor, task, attempt) {
            self.acknowledge(executor, task, attempt);
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

    pub(super) fn note_end_of(&mut self, run: RunId) {
        if let Some(at) = self.core.work().find_run(run).and_then(|r| r.ended) {
            self.journal(&Record::RunEndedAt { run, at }, None);
        }
    }
}
