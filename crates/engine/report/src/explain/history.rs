//! The history of a task by the lines of its story: its attempts in order, and how each ended.
//!
//! The lines are excerpts. A live dispatcher gives those that name the task, and those that say what became of the executor that had
//! it, without headers and the joins of others. So the rules of [`crate::fold`], which needs a whole log, cannot be applied: an
//! attempt is recognised here by its number alone.

use super::TaskStory;
use crate::units;
use eyas_core::event::*;
use eyas_core::log::{Header, Line, LostLines, PrintedLine, What};
use eyas_terms::*;
use eyas_text::{line_of, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One attempt as the lines describe it.
#[derive(Default)]
pub(super) struct Attempt {
    pub attempt: AttemptNo,
    /// It was given out by a later dispatcher process than attempts with a lower number here.
    pub life: usize,
    pub executor: ExecutorId,
    /// As people call it.
    pub executor_name: String,
    pub assigned: Option<Timestamp>,
    pub assignment: Option<Box<Assignment>>,
    pub report: Option<Arc<AttemptReport>>,
    /// Outputs home or not, and when.
    pub home: Option<(Timestamp, Result<(), Failure>)>,
    /// Why the attempt was over, where its report does not say so.
    pub lost: Option<String>,
    pub cancel_asked: Option<Timestamp>,
    /// Since when its executor says nothing.
    pub silent: Option<Timestamp>,
    /// Why its executor was about to end, as a phrase after "because".
    pub leaving: Option<String>,
    /// When the attempt was over.
    pub over: Option<Timestamp>,
    /// By object, in this attempt's life.
    pub objects: BTreeMap<u32, String>,
    /// Files that its program named and that are none of the task's inputs.
    pub named: BTreeSet<u32>,
    /// Locations of the files that its program made and that are none of the task's outputs.
    pub made: Vec<String>,
    /// Executors that its inputs came from, in this attempt's life.
    pub peers: BTreeMap<u32, String>,
}

impl Attempt {
    pub fn is_alone(&self) -> bool {
        self.assignment.as_ref().is_some_and(|assignment| assignment.alone)
    }

    /// How long after its begin its executor fell silent, in nanoseconds; `None` where it is heard, or the begin is not known.
    pub fn silent_after_ns(&self) -> Option<u64> {
        Some(self.silent?.0.saturating_sub(self.assigned?.0))
    }

    /// No line yet says how the attempt ended.
    fn is_open(&self) -> bool {
        self.report.is_none() && self.lost.is_none()
    }
}

/// An attempt at a task that is done, which only made replicas of its files.
pub(super) struct Rerun {
    pub attempt: AttemptNo,
    /// The executor's name.
    pub executor: String,
    /// If the executor reported it.
    pub end: Option<Outcome>,
}

/// What the event log says of one task, in order.
#[derive(Default)]
pub(super) struct History {
    pub attempts: Vec<Attempt>,
    pub ended: Option<(Timestamp, Outcome)>,
    pub n_restarts: u32,
    /// Files that it had made and that were lost, so that it ran again, and when.
    pub lost: Vec<(Timestamp, ObjectId)>,
    pub reruns: Vec<Rerun>,
    /// What the log lacks.
    pub lacks: Option<LostLines>,
}

impl History {
    pub fn of(story: &TaskStory) -> History {
        let mut reader = StoryReader {
            story,
            history: History::default(),
            executor_names: story.executors.clone(),
            life: 0,
        };
        for text in &story.log_lines {
            let line = serde_json::from_slice::<Line>(text.as_bytes());
            if let Ok(Line { t, .. }) = &line {
                reader.enter_life(*t);
            }
            match line {
                Ok(Line { t, what: What::In(event) }) => reader.read_event(t, event),
                Ok(Line { t, what: What::Out(action) }) => reader.read_action(t, action),
                Ok(Line { what: What::Lost(lost), .. }) => {
                    let before = reader.history.lacks;
                    reader.history.lacks = Some(before.map_or(lost, |before| before.and(lost)));
                }
                Err(_) => reader.read_header(text),
            }
        }
        reader.history
    }

    /// What tells the `i`-th attempt from others that have the same number; empty if there are none. A dispatcher that was started
    /// again counts attempts anew, unless its journal says how far the one before had come.
    pub fn which(&self, i: usize) -> String {
        let a = &self.attempts[i];
        let is_same = |other: &&Attempt| other.attempt == a.attempt;
        let first = self.attempts.first().map_or(0, |first| first.life);
        match (self.attempts.iter().filter(is_same).count(), a.life - first) {
            (0 | 1, _) => String::new(),
            (_, 0) => " (before the dispatcher was started again)".into(),
            (_, 1) => " (after the dispatcher was started again)".into(),
            (_, n) => format!(" (after the dispatcher was started again {n} times)"),
        }
    }

    /// What the `i`-th attempt printed: of those with its number, the last one that was reported has printed last.
    pub fn printed_by<'a>(&self, i: usize, printed: &'a [PrintedLine]) -> Option<&'a PrintedLine> {
        let number = self.attempts[i].attempt;
        let is_later = |other: &&Attempt| other.attempt == number && other.report.is_some();
        let n_later = self.attempts[i + 1..].iter().filter(is_later).count();
        let mut of_number = printed.iter().filter(|line| line.attempt == number);
        of_number.clone().rev().nth(n_later).or_else(|| of_number.next())
    }

    /// The last attempt, if no line yet says how it or the task ended.
    fn open_attempt(&mut self) -> Option<&mut Attempt> {
        self.attempts.last_mut().filter(|a| a.is_open() && self.ended.is_none())
    }
}

/// Reads a story's lines into a history.
struct StoryReader<'a> {
    story: &'a TaskStory,
    history: History,
    /// In the life that was read last.
    executor_names: BTreeMap<u32, String>,
    /// Which life that is, counted from anywhere.
    life: usize,
}

impl StoryReader<'_> {
    /// The names of executors are those of the dispatcher process that wrote the line of time `t`.
    fn enter_life(&mut self, t: Timestamp) {
        let n_begun = self.story.lives.partition_point(|(began, _)| *began <= t);
        // Headers of lives stand among the lines of some stories only.
        self.life = if self.story.lives.is_empty() { self.history.n_restarts as usize } else { n_begun };
        let Some((_, names)) = n_begun.checked_sub(1).and_then(|life| self.story.lives.get(life)) else {
            return;
        };
        let is_last = n_begun == self.story.lives.len();
        self.executor_names = if is_last { self.story.executors.clone() } else { BTreeMap::new() };
        self.executor_names.extend(names.clone());
    }

    /// A header says that another dispatcher process goes on.
    fn read_header(&mut self, text: &str) {
        if !self.history.attempts.is_empty() && serde_json::from_slice::<Header>(text.as_bytes()).is_ok() {
            self.history.n_restarts += 1;
        }
    }

    fn read_event(&mut self, t: Timestamp, event: Event) {
        let this = self.story.task;
        match event {
            Event::ExecutorJoined { executor, offer } => self.on_executor_joined(t, executor, &offer),
            Event::ExecutorLost { executor, reason } => self.on_executor_lost(t, executor, &reason),
            Event::ExecutorSilent { executor } => {
                if let Some(a) = self.history.open_attempt().filter(|a| a.executor == executor) {
                    a.silent = Some(t);
                }
            }
            Event::ExecutorLeaving { executor, reason, .. } => {
                if let Some(a) = self.history.open_attempt().filter(|a| a.executor == executor) {
                    a.leaving = Some(line_of(&reason).to_string());
                }
            }
            Event::AttemptEnded { executor, report } if report.task == this => {
                self.on_attempt_ended(t, executor, report);
            }
            Event::OutputsHome { task, attempt, result, .. } if task == this => {
                self.on_outputs_home(t, attempt, result);
            }
            Event::FilesMade { task, attempt, locations, .. } if task == this => {
                if let Some(a) = self.history.attempts.last_mut().filter(|a| a.attempt == attempt) {
                    a.made = locations;
                }
            }
            Event::TaskRestored { task, outcome, .. } if task == this => {
                self.history.ended.get_or_insert((t, outcome));
            }
            _ => {}
        }
    }

    fn read_action(&mut self, t: Timestamp, action: Action) {
        let this = self.story.task;
        match action {
            Action::Assign { executor, assignment } if assignment.task == this => {
                self.on_assigned(t, executor, assignment);
            }
            Action::RerunTask { executor, assignment } if assignment.task == this => {
                let executor = self.name_of(executor);
                self.history.reruns.push(Rerun { attempt: assignment.attempt, executor, end: None });
            }
            Action::ForgetExecutor { executor } => self.on_executor_forgotten(t, executor),
            Action::CancelAttempt { task, attempt, .. } if task == this => {
                if let Some(a) = self.history.attempts.last_mut().filter(|a| a.attempt == attempt) {
                    a.cancel_asked = Some(t);
                }
            }
            Action::AddInput { task, attempt, location, input: Ok(input), .. } if task == this => {
                if let Some(a) = self.history.attempts.last_mut().filter(|a| a.attempt == attempt) {
                    a.objects.insert(input.object.0, location);
                    a.named.insert(input.object.0);
                }
            }
            Action::EndTask { task, outcome, .. } if task == this => self.history.ended = Some((t, outcome)),
            Action::ReviveTask { task, lost } if task == this => {
                self.history.ended = None;
                self.history.lost.push((t, lost));
            }
            _ => {}
        }
    }

    fn on_assigned(&mut self, t: Timestamp, executor: ExecutorId, assignment: Box<Assignment>) {
        let how = match self.history.n_restarts {
            0 => "its executor was lost or came back without it",
            _ => "the dispatcher was restarted and nobody had it any more",
        };
        if let Some(before) = self.history.open_attempt() {
            before.lost = Some(how.into());
        }
        let mut objects = self.story.objects.clone();
        if let Some(spec) = &self.story.spec {
            let inputs = assignment.inputs.iter().zip(&spec.inputs);
            objects.extend(inputs.map(|(a, (_, location))| (a.object.0, location.clone())));
        }
        self.history.ended = None;
        self.history.attempts.push(Attempt {
            attempt: assignment.attempt,
            life: self.life,
            executor,
            executor_name: self.name_of(executor),
            assigned: Some(t),
            assignment: Some(assignment),
            objects,
            ..Attempt::default()
        });
    }

    /// An executor joins, again or for the first time. It may bring the last attempt along, under another number than before.
    fn on_executor_joined(&mut self, t: Timestamp, executor: ExecutorId, offer: &Offer) {
        self.executor_names.insert(executor.0, offer.name.clone());
        let name = self.name_of(executor);
        let Some(a) = self.history.attempts.last_mut() else { return };
        let attempt_there = offer.attempts.iter().find(|(task, _)| *task == self.story.task);
        match attempt_there {
            Some((_, attempt)) if a.attempt == *attempt && a.report.is_none() => {
                (a.lost, a.silent) = (None, None);
                (a.executor, a.executor_name) = (executor, name);
            }
            None if a.executor == executor && a.report.is_none() && a.home.is_none() => {
                a.lost.get_or_insert("its executor came back without it".into());
                a.over.get_or_insert(t);
            }
            _ => {}
        }
    }

    fn on_executor_lost(&mut self, t: Timestamp, executor: ExecutorId, reason: &str) {
        if self.history.ended.is_some() {
            return;
        }
        let Some(a) = self.history.attempts.last_mut().filter(|a| a.executor == executor) else { return };
        let landed = a.home.is_some() || a.report.as_ref().is_some_and(|r| r.outputs.is_empty());
        if !landed {
            a.lost.get_or_insert(format!("its executor was lost: {}", line_of(reason)));
            a.over = Some(t);
        }
    }

    fn on_executor_forgotten(&mut self, t: Timestamp, executor: ExecutorId) {
        if let Some(a) = self.history.open_attempt().filter(|a| a.executor == executor) {
            let when = match a.silent_after_ns() {
                Some(after_ns) => format!(" {} after the attempt began", units::duration(after_ns)),
                None => String::new(),
            };
            let within = match a.silent {
                Some(silent) => format!("within {}", units::duration(t.0.saturating_sub(silent.0))),
                None => "in time".into(),
            };
            a.lost = Some(format!("its executor fell silent{when} and did not come back {within}"));
            a.over = Some(t);
        }
    }

    fn on_attempt_ended(&mut self, t: Timestamp, executor: ExecutorId, report: Arc<AttemptReport>) {
        let mut reruns =
            self.history.reruns.iter_mut().filter(|rerun| rerun.attempt == report.attempt).peekable();
        if reruns.peek().is_some() {
            return reruns.for_each(|rerun| rerun.end = Some(report.outcome.clone()));
        }
        if self.history.attempts.last().is_none_or(|a| a.attempt != report.attempt) {
            // The assignment is not among the lines; the report is shown all the same.
            self.history.attempts.push(Attempt {
                attempt: report.attempt,
                life: self.life,
                executor,
                executor_name: self.name_of(executor),
                objects: self.story.objects.clone(),
                ..Attempt::default()
            });
        }
        let sources = report.inputs.iter().filter_map(|input| match input.outcome {
            CacheOutcome::RemoteHit { from } => Some((from.0, self.name_of(from))),
            _ => None,
        });
        let peers: BTreeMap<u32, String> = sources.collect();
        if let Some(a) = self.history.attempts.last_mut().filter(|a| a.is_open()) {
            a.peers.extend(peers);
            a.report = Some(report);
            a.over = Some(t);
        }
    }

    fn on_outputs_home(&mut self, t: Timestamp, attempt: AttemptNo, result: Result<(), Failure>) {
        let last = self.history.attempts.last_mut();
        if let Some(a) = last.filter(|a| a.attempt == attempt && a.home.is_none()) {
            a.home = Some((t, result));
            a.over = Some(t);
        }
    }

    fn name_of(&self, executor: ExecutorId) -> String {
        match self.executor_names.get(&executor.0) {
            Some(name) if !name.is_empty() => shown(name).to_string(),
            _ => format!("executor {executor}"),
        }
    }
}
