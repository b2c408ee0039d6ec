//! The event log, folded: what the lines so far say of runs, tasks, attempts and executors.
//!
//! In: the lines of one log, in order. Out: the state after each line, and the [`Change`]s that the line made. All that reads an
//! event log (report, table of tasks, explanation, export, resume, prediction) is a consumer of this fold, so the rules by which
//! lines become states stand here and nowhere else:
//!
//! | module | keeps |
//! |---|---|
//! | `runs` | runs, and submissions that were added to runs |
//! | `tasks` | the numbers of tasks, their arrays, and how tasks ended (in `ends`) |
//! | `executors` | which executor a number means, and when executors were there |
//! | `attempts` | which attempt a task has, and at which executor |
//! | `nodes` | what was decided about nodes |
//!
//! The rules that concern several of these are in this file. The fold follows an attempt as the dispatcher does: an attempt is
//! open from its `assign` until its end is reported, its executor is lost or comes back without it, or the task ends. A report on
//! an attempt that is not open any more is a [`Change::LateReport`] and changes nothing else. An attempt of a rerun is never a
//! task's attempt.
//!
//! A log may hold several lives of one dispatcher. Task numbers mean the same in all of them, executor and object numbers do not. A later
//! life begins with the submissions and ends that its journal kept, which are not counted twice; an end that the journal did not keep
//! has not happened. The first lines of a log may be cut off with forgotten runs; what stands in their place is read like any other line.
//!
//! Memory: the arrays as folded as they were logged, some 18 bytes per ended task, and the open attempts. A fold of one task
//! ([`Fold::of_task`]) or without tasks ([`Fold::of_runs`]) keeps no arrays, and ends and attempts of no other task.
//!
//! Not here: the grammar (`eyas_core::log`), files and torn lines ([`crate::lines`]), what readers make of it.

mod attempts;
mod ends;
mod executors;
mod nodes;
mod runs;
mod tasks;

pub use attempts::{Attempts, HeldAttempt, How};
pub use ends::End;
pub use executors::{ExecutorRecord, Executors};
pub use nodes::{Gone, NodeLoss, Nodes, NodesDecision, ProviderChange};
pub(crate) use runs::newest;
pub use runs::{RunRecord, Runs};
pub use tasks::{Array, Tasks};

use crate::error::Error;
use crate::lines::{Entry, Lines, name_of};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::{Action, Assignment, AttemptReport, Event, Offer};
use eyas_core::log::{Header, LostLines};
use eyas_tasklist::renew_locations;
use eyas_terms::array::TaskArray;
use eyas_terms::*;
use std::path::Path;
use std::sync::Arc;

/// One dispatcher process.
#[derive(Clone, Debug)]
pub struct Life {
    pub eyas_version: String,
    pub cluster: String,
    pub config: DispatcherConfig,
    pub began: Timestamp,
    /// Time of its last line.
    pub last: Timestamp,
}

/// What a line changed. An attempt is named by `at`, its position among all attempts of the log that were a task's own.
#[derive(Debug)]
pub enum Change<'a> {
    /// Tasks were submitted. `base`: number of the first. `replaces`: an earlier life gave these numbers to other tasks.
    ArrayAdded { base: u64, run: RunId, array: &'a Arc<TaskArray>, replaces: bool },
    /// A submission broke off or was refused.
    RunAborted { run: RunId },
    /// An executor is there under a number that this life had not seen.
    ExecutorCame { row: usize, offer: &'a Offer },
    /// An executor is gone.
    ExecutorLost { row: usize },
    /// A task has an attempt. Without `assignment`, a restarted dispatcher took it over from an executor.
    AttemptBegan {
        at: usize,
        t: Timestamp,
        task: TaskId,
        attempt: AttemptNo,
        row: usize,
        assignment: Option<&'a Assignment>,
    },
    /// A restarted dispatcher found that another executor has the attempt.
    AttemptMoved { at: usize, row: usize },
    /// The executor reported the end of a task's attempt.
    AttemptReported { at: usize, held: HeldAttempt, report: &'a AttemptReport },
    /// The executor reported the end of an attempt that its task no longer has, for example after the task was cancelled.
    LateReport { held: HeldAttempt, report: &'a AttemptReport },
    /// The outputs of an attempt are at home.
    OutputsHome { task: TaskId },
    /// Nobody has the attempt any more, since `t`.
    AttemptOver { at: usize, t: Timestamp, how: How },
    /// `t`: the best that the log says; an end that only the journal kept was the last that the earlier life did. `restored`: digests and
    /// sizes of the outputs, where only the journal kept the end.
    TaskEnded { task: TaskId, t: Timestamp, outcome: &'a Outcome, restored: Option<&'a [(Digest, u64)]> },
    /// It was done, and runs again.
    TaskRevived { task: TaskId },
    /// The journal did not keep these ends, so they have not happened.
    EndsForgotten { tasks: Vec<TaskId> },
}

/// Of which tasks a fold keeps attempts and ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Scope {
    All,
    /// Of one task, and of the submission that it came with.
    Task(TaskId, RunId),
    None,
}

impl Scope {
    fn has(self, task: TaskId) -> bool {
        match self {
            Scope::All => true,
            Scope::Task(only, _) => task == only,
            Scope::None => false,
        }
    }
}

/// What the lines so far say.
#[derive(Debug)]
pub struct Fold {
    pub lives: Vec<Life>,
    pub runs: Runs,
    pub tasks: Tasks,
    pub executors: Executors,
    pub attempts: Attempts,
    pub nodes: Nodes,
    /// What the log lacks.
    pub lost: Option<LostLines>,
    scope: Scope,
    /// When the life before this one fell silent.
    before: Timestamp,
}

impl Fold {
    fn new(scope: Scope) -> Fold {
        Fold {
            lives: vec![],
            runs: Runs::default(),
            tasks: Tasks::new(scope == Scope::All),
            executors: Executors::default(),
            attempts: Attempts::default(),
            nodes: Nodes::default(),
            lost: None,
            scope,
            before: Timestamp(0),
        }
    }

    /// Keeps all that a log says.
    pub fn whole() -> Fold {
        Fold::new(Scope::All)
    }

    /// Keeps attempts and ends of `task` only, which came with the submission `run`.
    pub fn of_task(task: TaskId, run: RunId) -> Fold {
        Fold::new(Scope::Task(task, run))
    }

    /// Keeps no arrays, attempts and ends.
    pub fn of_runs() -> Fold {
        Fold::new(Scope::None)
    }

    /// Whether a line says something of runs.
    pub fn takes_of_runs(line: &[u8]) -> bool {
        const NAMES: [&[u8]; 6] =
            [b"run_opened", b"run_started", b"run_committed", b"run_aborted", b"refuse_run", b"end_run"];
        name_of(line).is_some_and(|name| NAMES.contains(&name))
    }

    /// Whether a line says something that a fold takes. Other lines need not be parsed.
    pub fn takes(line: &[u8]) -> bool {
        const NAMES: [&[u8]; 14] = [
            b"array_added",
            b"tasks_numbered",
            b"task_restored",
            b"task_revived",
            b"revive_task",
            b"end_task",
            b"executor_joined",
            b"executor_silent",
            b"executor_lost",
            b"forget_executor",
            b"assign",
            b"nodes_decided",
            b"attempt_ended",
            b"outputs_home",
        ];
        Fold::takes_of_runs(line) || name_of(line).is_some_and(|name| NAMES.contains(&name))
    }

    /// Folds the log in the dispatcher's directory `dir`, and gives `each` line to a consumer with what it changed.
    ///
    /// * `wanted`: lines that do not pass are not parsed and change nothing, see [`Lines::next_if`].
    ///
    /// Returns whether the log ends in the middle of a line. Errors: no such file, no event log, a line that the grammar does not know.
    pub fn read(
        &mut self,
        dir: &Path,
        wanted: impl Fn(&[u8]) -> bool,
        mut each: impl FnMut(&Fold, &Entry, Vec<Change<'_>>),
    ) -> Result<bool, Error> {
        let mut lines = Lines::open(dir)?;
        while let Some(mut entry) = lines.next_if(&wanted)? {
            if let Entry::In(_, Event::ArrayAdded { array, .. }) = &mut entry {
                // An older version may have written it.
                renew_locations(Arc::make_mut(array));
            }
            let changes = self.take(&entry);
            each(self, &entry, changes);
        }
        self.close();
        Ok(lines.is_torn())
    }

    /// Takes the next line. The changes are in the order in which they happened; the fold's state is that after all of them.
    pub fn take<'a>(&mut self, entry: &'a Entry) -> Vec<Change<'a>> {
        let mut changes = vec![];
        match entry {
            Entry::Header(header) => self.begin_life(header),
            Entry::In(t, event) => {
                self.saw(*t);
                self.on_event(*t, event, &mut changes);
            }
            Entry::Out(t, action) => {
                self.saw(*t);
                self.on_action(*t, action, &mut changes);
            }
            Entry::Lost(t, lost) => {
                self.saw(*t);
                self.lost = Some(self.lost.map_or(*lost, |before| before.and(*lost)));
            }
        }
        changes
    }

    /// Time of the last line.
    pub fn last(&self) -> Timestamp {
        self.lives.last().map_or(Timestamp(0), |life| life.last)
    }

    fn life(&self) -> usize {
        self.lives.len().saturating_sub(1)
    }

    fn saw(&mut self, t: Timestamp) {
        if let Some(life) = self.lives.last_mut() {
            life.last = life.last.max(t);
        }
    }

    fn begin_life(&mut self, header: &Header) {
        self.before = self.last();
        self.tasks.begin_life();
        self.executors.begin_life();
        self.attempts.begin_life();
        self.nodes.begin_life();
        self.lives.push(Life {
            eyas_version: header.eyas_version.clone(),
            cluster: header.cluster.clone(),
            config: header.config.clone(),
            began: header.t,
            last: header.t,
        });
    }

    /// The log has ended. A life that ended while it was still recovering leaves what it did not come to.
    fn close(&mut self) {
        self.tasks.keep_earlier();
        let lasts: Vec<Timestamp> = self.lives.iter().map(|life| life.last).collect();
        self.executors.close(&lasts);
    }

    fn on_event<'a>(&mut self, t: Timestamp, event: &'a Event, changes: &mut Vec<Change<'a>>) {
        match event {
            Event::RunOpened { run, name, into, .. } => self.runs.open(t, *run, name, *into),
            Event::ArrayAdded { run, array } => {
                let (base, replaces) = self.tasks.add(t, *run, self.runs.whole_of(*run), array);
                self.runs.add_tasks(*run, array.n_tasks);
                changes.push(Change::ArrayAdded { base, run: *run, array, replaces });
            }
            Event::TasksNumbered { n_tasks } => self.tasks.forget_until(*n_tasks),
            Event::RunStarted { run } => self.runs.start(t, *run),
            Event::RunCommitted { run } => {
                let whole = self.runs.commit(t, *run);
                self.tasks.move_to_run(*run, whole);
                self.forget_unkept_ends(whole, changes);
            }
            Event::RunAborted { run } => self.abort(*run, changes),
            Event::TaskRestored { task, outcome, outputs } => {
                self.on_restored(*task, outcome, outputs, changes)
            }
            Event::TaskRevived { task } => self.on_revived(*task, changes),
            Event::ExecutorJoined { executor, offer } => self.on_joined(t, *executor, offer, changes),
            Event::ExecutorSilent { executor } => self.executors.fall_silent(t, *executor),
            Event::ExecutorLost { executor, reason } => {
                self.nodes.note_loss(t, *executor, Some(reason), &self.executors);
                self.on_lost(t, *executor, changes);
            }
            Event::ExecutorDraining { executor } => self.nodes.note_sent_away(*executor),
            Event::ExecutorLeaving { executor, reason, .. } => self.nodes.note_announced(*executor, reason),
            Event::AttemptEnded { executor, report } => self.on_attempt_ended(t, *executor, report, changes),
            Event::OutputsHome { executor, task, attempt, result } => {
                let Some(row) = self.executors.find_row(*executor) else { return };
                let Some(held) = self.attempts.find_landing(*task, *attempt, row) else { return };
                if result.is_ok() {
                    changes.push(Change::OutputsHome { task: *task });
                }
                let how = if result.is_ok() { How::Done } else { How::Failed };
                if held.at.is_some() {
                    self.end_attempt(*task, t, how, changes);
                }
                self.attempts.forget_left(*task, *attempt);
            }
            Event::NodesDecided { decision } => self.nodes.note(decision, &self.executors),
            Event::ProcessorsUsed { executor, used } => self.executors.note_processors(t, *executor, *used),
            Event::NodesExpected { node } => self.nodes.note_provider(t, node.is_some()),
            Event::ReplicasChanged { .. }
            | Event::FilesWanted { .. }
            | Event::CancelRequested { .. }
            | Event::PrefetchFailed { .. }
            | Event::CacheResized { .. }
            | Event::InputMoved { .. }
            | Event::PartsRemoved { .. }
            | Event::PlacesFound { .. }
            | Event::HomeNotRead { .. }
            | Event::PeersProbed { .. }
            | Event::PeerUnreachable { .. }
            | Event::FileOpened { .. }
            | Event::FilesMade { .. }
            | Event::HomeUsed { .. }
            | Event::Ticked
            | Event::Recovered
            | Event::RunForgotten { .. }
            | Event::AllPartsEnded { .. }
            | Event::Began { .. }
            | Event::GivesOut
            | Event::AttemptGivenUp { .. }
            | Event::RunRestored { .. }
            | Event::RunLinked { .. }
            | Event::RunPatterns { .. }
            | Event::RunOwned { .. }
            | Event::WeightSet { .. }
            | Event::MemberConnected { .. }
            | Event::MemberSilent { .. }
            | Event::MemberTold { .. }
            | Event::MemberLoadChanged { .. } => {}
        }
    }

    fn on_action<'a>(&mut self, t: Timestamp, action: &'a Action, changes: &mut Vec<Change<'a>>) {
        match action {
            Action::Assign { executor, assignment } => self.on_assigned(t, *executor, assignment, changes),
            Action::EndTask { task, outcome, .. } => {
                self.end_attempt(*task, t, How::of_end(outcome), changes);
                self.end_task(t, *task, outcome, None, changes);
            }
            Action::ReviveTask { task, .. } => self.on_revived(*task, changes),
            Action::RefuseRun { run, .. } => self.abort(*run, changes),
            Action::EndRun { run } => self.runs.end(t, *run),
            Action::ForgetExecutor { executor } => {
                self.nodes.note_loss(t, *executor, None, &self.executors);
                self.on_lost(t, *executor, changes);
            }
            Action::SendAway { executor, .. } => self.nodes.note_sent_away(*executor),
            Action::DrainExecutor { executor, reason } => self.nodes.note_announced(*executor, reason),
            // A rerun makes files anew and is no attempt at its task, which is done.
            Action::RerunTask { .. }
            | Action::CancelAttempt { .. }
            | Action::RecallAttempt { .. }
            | Action::ForgetAttempt { .. }
            | Action::NameObjects { .. }
            | Action::DropReplicas { .. }
            | Action::RemoveParts { .. }
            | Action::FindPlaces { .. }
            | Action::ReadHome { .. }
            | Action::ProbePeers { .. }
            | Action::AddInput { .. }
            | Action::AdmitOutputs { .. }
            | Action::ShareHome { .. }
            | Action::RecordGivenUp { .. }
            | Action::RecordGivesOut
            | Action::ForgetRun { .. }
            | Action::Prefetch { .. }
            | Action::CancelPrefetch { .. }
            | Action::FoundPattern { .. }
            | Action::EndCollective { .. }
            | Action::BeginPhase { .. }
            | Action::BeginPush { .. }
            | Action::EndPush { .. }
            | Action::TellMember { .. } => {}
        }
    }

    fn abort(&mut self, run: RunId, changes: &mut Vec<Change<'_>>) {
        self.runs.abort(run);
        changes.push(Change::RunAborted { run });
    }

    // ------------------------------------------------------------ executors

    fn on_joined<'a>(
        &mut self,
        t: Timestamp,
        executor: ExecutorId,
        offer: &'a Offer,
        changes: &mut Vec<Change<'a>>,
    ) {
        if let Some(row) = self.executors.find_row(executor) {
            self.executors.return_to(row, t, offer);
            for task in self.attempts.not_offered(row, &offer.attempts) {
                self.end_attempt(task, t, How::Lost, changes);
            }
            self.attempts.forget_left_at(row, &offer.attempts);
            return;
        }
        let row = self.executors.come(t, self.life(), self.before, executor, offer);
        changes.push(Change::ExecutorCame { row, offer });
        for &(task, attempt) in &offer.attempts {
            if self.scope.has(task) {
                self.take_over(t, row, task, attempt, changes);
            }
        }
    }

    /// An executor came and has an attempt already: a restarted dispatcher takes it over if the task needs one.
    fn take_over(
        &mut self,
        t: Timestamp,
        row: usize,
        task: TaskId,
        attempt: AttemptNo,
        changes: &mut Vec<Change<'_>>,
    ) {
        let is_ended = self.tasks.end(task).0 != End::Not;
        let is_numbered = self.scope != Scope::All || self.tasks.find(task).is_some();
        match self.attempts.of(task) {
            // This life may have given the task to another node under the same number.
            Some(held)
                if !is_ended
                    && held.attempt == attempt
                    && (held.row == row || !self.executors.is_of_life(held.row, self.life())) =>
            {
                self.attempts.move_to(task, row, t);
                let moved = held.at.filter(|_| held.row != row);
                changes.extend(moved.map(|at| Change::AttemptMoved { at, row }));
            }
            None if !is_ended && is_numbered => {
                let at = self.attempts.begin(task, attempt, row, t);
                changes.push(Change::AttemptBegan { at, t, task, attempt, row, assignment: None });
            }
            _ => self.attempts.leave(task, attempt, row, t),
        }
    }

    fn on_lost(&mut self, t: Timestamp, executor: ExecutorId, changes: &mut Vec<Change<'_>>) {
        let Some(row) = self.executors.lose(t, executor) else { return };
        for task in self.attempts.not_offered(row, &[]) {
            self.end_attempt(task, t, How::Lost, changes);
        }
        self.attempts.forget_left_at(row, &[]);
        changes.push(Change::ExecutorLost { row });
    }

    // ------------------------------------------------------------ attempts

    fn on_assigned<'a>(
        &mut self,
        t: Timestamp,
        executor: ExecutorId,
        assignment: &'a Assignment,
        changes: &mut Vec<Change<'a>>,
    ) {
        let (task, attempt) = (assignment.task, assignment.attempt);
        if !self.scope.has(task) {
            return;
        }
        let Some(row) = self.executors.find_row(executor) else { return };
        // The dispatcher was restarted, and nobody had the attempt any more.
        self.end_attempt(task, self.before, How::Lost, changes);
        // A task that is given out has not ended, whatever an earlier life said.
        self.tasks.revive(task);
        let at = self.attempts.begin(task, attempt, row, t);
        changes.push(Change::AttemptBegan { at, t, task, attempt, row, assignment: Some(assignment) });
    }

    fn on_attempt_ended<'a>(
        &mut self,
        t: Timestamp,
        executor: ExecutorId,
        report: &'a AttemptReport,
        changes: &mut Vec<Change<'a>>,
    ) {
        let (task, attempt) = (report.task, report.attempt);
        let Some(row) = self.executors.find_row(executor) else { return };
        let Some(held) = self.attempts.find(task, attempt, row).filter(|held| !held.is_landing) else {
            return;
        };
        // The outputs of a program that ended well are on their way home.
        let lands = report.outcome == Outcome::Done && !report.outputs.is_empty();
        if lands {
            self.attempts.land(task, attempt);
        }
        match held.at {
            Some(at) => changes.push(Change::AttemptReported { at, held, report }),
            None => changes.push(Change::LateReport { held, report }),
        }
        if !lands {
            if held.at.is_some() {
                self.end_attempt(task, t, How::of_report(&report.outcome), changes);
            }
            self.attempts.forget_left(task, attempt);
        }
    }

    /// Ends the attempt that a task has, if it has one.
    fn end_attempt(&mut self, task: TaskId, t: Timestamp, how: How, changes: &mut Vec<Change<'_>>) {
        if let Some(held) = self.attempts.end(task) {
            changes.extend(held.at.map(|at| Change::AttemptOver { at, t, how }));
        }
    }

    // ------------------------------------------------------------ tasks

    fn end_task<'a>(
        &mut self,
        t: Timestamp,
        task: TaskId,
        outcome: &'a Outcome,
        restored: Option<&'a [(Digest, u64)]>,
        changes: &mut Vec<Change<'a>>,
    ) {
        // The log of a dispatcher says of each task first that it was submitted.
        let is_numbered = self.scope != Scope::All || self.tasks.is_numbered(task);
        if self.scope.has(task) && is_numbered {
            self.tasks.end_task(task, t, End::of(outcome), self.life());
            changes.push(Change::TaskEnded { task, t, outcome, restored });
        }
    }

    fn on_revived(&mut self, task: TaskId, changes: &mut Vec<Change<'_>>) {
        if self.scope.has(task) {
            self.tasks.revive(task);
            changes.push(Change::TaskRevived { task });
        }
    }

    fn on_restored<'a>(
        &mut self,
        task: TaskId,
        outcome: &'a Outcome,
        outputs: &'a [(Digest, u64)],
        changes: &mut Vec<Change<'a>>,
    ) {
        self.end_attempt(task, self.before, How::of_report(outcome), changes);
        if !self.tasks.confirm_end(task, self.life()) {
            // The journal kept it and the log did not: it was the last that the life before did.
            self.end_task(self.before, task, outcome, Some(outputs), changes);
        }
    }

    /// Ends in `run` that an earlier life logged and its journal did not keep have not happened.
    fn forget_unkept_ends(&mut self, run: RunId, changes: &mut Vec<Change<'_>>) {
        let life = self.life();
        if life == 0 {
            return;
        }
        let (tasks, all_ended) = match self.scope {
            Scope::All => self.tasks.forget_unkept_ends(run, life),
            Scope::Task(task, of) if self.runs.whole_of(of) == run => {
                (self.tasks.forget_unkept_end(task, life), false)
            }
            _ => return,
        };
        if !all_ended {
            self.runs.reopen(run);
        }
        if !tasks.is_empty() {
            changes.push(Change::EndsForgotten { tasks });
        }
    }
}
