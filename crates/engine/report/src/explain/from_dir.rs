//! A task's story from the directory of a run: which task a name means, which lines of the log speak of it, and the state in
//! which the log leaves it.

use super::TaskStory;
use crate::error::{Error, ErrorKind};
use crate::fold::{Change, End, Fold};
use crate::lines::{Entry, find, name_of};
use eyas_core::event::*;
use eyas_core::log::{Line, PRINTED_FILE, PrintedLine, What, add_printed};
use eyas_core::pattern::{Evidence, stage_of_task};
use eyas_terms::TaskPhase;
use eyas_terms::array::{TaskArray, TaskSpec};
use eyas_terms::*;
use eyas_text::{shown, shown_path};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

/// The story of one task from the directory of a run, live or ended: `name` is the user's id or `#number`.
/// Where several tasks have the same id, the first one of `run` is meant, or of the newest run that has one.
pub fn story_from_dir(dir: &Path, name: &str, run: Option<RunId>) -> Result<TaskStory, Error> {
    let number = name.strip_prefix('#').and_then(|n| n.parse::<u64>().ok());
    let wanted = find_task(dir, name, number, run)?;
    let Some((task, run, submitted, spec, stage)) = wanted else {
        let of = run.map_or(String::new(), |run| format!(" of run {run}"));
        let context =
            format!("no task{of} is called {name} in the log in {}", shown_path(dir), name = shown(name));
        return Err(Error::new(ErrorKind::NoTask, "find the task", context));
    };
    let mut story = TaskStory {
        task,
        user_id: spec.id.clone(),
        run,
        submitted: Some(submitted),
        spec: Some(spec),
        ..TaskStory::default()
    };
    collect_lines(dir, &mut story, &stage)?;
    story.printed = printed_by(dir, task)?;
    Ok(story)
}

/// The last is the task's stage.
type FoundTask = (TaskId, RunId, Timestamp, TaskSpec, String);

fn find_task(
    dir: &Path,
    name: &str,
    number: Option<u64>,
    of: Option<RunId>,
) -> Result<Option<FoundTask>, Error> {
    // By submission; a later life repeats the same, and a refused submission leaves nothing.
    let mut found: BTreeMap<RunId, FoundTask> = BTreeMap::new();
    let mut id = String::new();
    let mut find = |base: u64, array: &TaskArray| match number {
        Some(n) => n.checked_sub(base).filter(|i| *i < u64::from(array.n_tasks)).map(|i| i as u32),
        None => (0..array.n_tasks).find(|i| {
            id.clear();
            array.fill_into(&array.template.id, *i, &mut id);
            id == name
        }),
    };
    let is_wanted = |line: &[u8]| {
        let numbers: [Option<&[u8]>; 2] = [Some(b"array_added"), Some(b"tasks_numbered")];
        Fold::takes_of_runs(line) || numbers.contains(&name_of(line))
    };
    let mut fold = Fold::of_runs();
    fold.read(dir, is_wanted, |_, entry, changes| {
        for change in changes {
            match change {
                Change::ArrayAdded { base, run, array, .. } => {
                    if let Some(i) = find(base, array) {
                        let task = TaskId(base + u64::from(i));
                        let stage = || stage_of_task(array, i);
                        found.entry(run).or_insert_with(|| (task, run, entry.t(), array.expand(i), stage()));
                    }
                }
                Change::RunAborted { run } => drop(found.remove(&run)),
                _ => {}
            }
        }
    })?;
    let is_of = |run: &RunId| of.is_none_or(|of| fold.runs.whole_of(*run) == of);
    Ok(found.into_iter().filter(|(run, _)| is_of(run)).map(|(_, found)| found).next_back())
}

/// Fills in lines, names and state.
fn collect_lines(dir: &Path, story: &mut TaskStory, stage: &str) -> Result<(), Error> {
    let needle = format!("\"task\":{}", story.task);
    let submission = story.run;
    let mut fold = Fold::of_task(story.task, submission);
    let mut collector = Collector { story, stage, submission };
    let is_wanted = |line: &[u8]| may_concern(line, needle.as_bytes());
    fold.read(dir, is_wanted, |fold, entry, changes| collector.take(fold, entry, &changes))?;
    collector.finish(&fold);
    Ok(())
}

/// Whether a line of the log speaks of the task, or of executors, patterns, runs or cancelling in general.
///
/// * `needle`: how lines name the task.
fn may_concern(text: &[u8], needle: &[u8]) -> bool {
    const NAMES: [&[u8]; 8] = [
        b"executor_joined",
        b"executor_silent",
        b"executor_leaving",
        b"executor_lost",
        b"forget_executor",
        b"found_pattern",
        b"cancel_requested",
        b"run_",
    ];
    // The number may be the beginning of a longer one.
    if find(text, needle).is_some_and(|at| !text.get(at + needle.len()).is_some_and(u8::is_ascii_digit)) {
        return true;
    }
    let head = &text[..text.len().min(96)];
    NAMES.iter().any(|name| find(head, name).is_some())
}

/// Collects the lines of a log that belong to a task's story.
struct Collector<'a> {
    story: &'a mut TaskStory,
    stage: &'a str,
    /// The submission that the task came with.
    submission: RunId,
}

impl Collector<'_> {
    fn take(&mut self, fold: &Fold, entry: &Entry, changes: &[Change<'_>]) {
        match entry {
            // A dispatcher process goes on with an attempt that an earlier process began.
            Entry::Header(header) => {
                self.story.lives.push((header.t, BTreeMap::new()));
                if fold.lives.len() > 1 && fold.attempts.of(self.story.task).is_some() {
                    self.keep(header);
                }
            }
            Entry::In(t, Event::ExecutorJoined { executor, offer }) => {
                self.on_executor_joined(*t, *executor, offer, changes);
            }
            Entry::In(t, event) => {
                if self.is_kept_event(fold, event, changes) {
                    self.keep(&Line { t: *t, what: What::In(event.clone()) });
                }
            }
            Entry::Out(_, Action::FoundPattern { run, evidence }) => self.on_pattern(fold, *run, evidence),
            Entry::Lost(t, lost) => self.keep(&Line { t: *t, what: What::Lost(*lost) }),
            Entry::Out(t, action) => {
                if self.is_kept_action(action, changes) {
                    self.keep(&Line { t: *t, what: What::Out(action.clone()) });
                }
            }
        }
    }

    fn keep(&mut self, line: &impl Serialize) {
        self.story.log_lines.push(serde_json::to_string(line).expect("log lines have string keys"));
    }

    fn is_kept_event(&self, fold: &Fold, event: &Event, changes: &[Change<'_>]) -> bool {
        let task = self.story.task;
        match event {
            Event::ExecutorLost { .. } => has_ended_attempt(changes),
            Event::ExecutorSilent { executor } | Event::ExecutorLeaving { executor, .. } => {
                let row = fold.executors.find_row(*executor);
                row.is_some() && fold.attempts.of(task).map(|held| held.row) == row
            }
            Event::CancelRequested { run, .. } => self.is_of_run(fold, *run),
            Event::TaskRestored { task: of, .. } | Event::OutputsHome { task: of, .. } => *of == task,
            Event::AttemptEnded { report, .. } => report.task == task,
            Event::FilesMade { task: of, .. } => *of == task,
            _ => false,
        }
    }

    fn is_kept_action(&self, action: &Action, changes: &[Change<'_>]) -> bool {
        let task = self.story.task;
        match action {
            Action::ForgetExecutor { .. } => has_ended_attempt(changes),
            Action::Assign { assignment, .. } | Action::RerunTask { assignment, .. } => {
                assignment.task == task
            }
            Action::EndTask { task: of, .. }
            | Action::ReviveTask { task: of, .. }
            | Action::AddInput { task: of, .. }
            | Action::CancelAttempt { task: of, .. } => *of == task,
            _ => false,
        }
    }

    /// The name of the executor is noted. The line is kept where the task's attempt comes back or is over.
    fn on_executor_joined(
        &mut self,
        t: Timestamp,
        executor: ExecutorId,
        offer: &Offer,
        changes: &[Change<'_>],
    ) {
        let has_task = offer.attempts.iter().any(|(of, _)| *of == self.story.task);
        if let Some((_, names)) = self.story.lives.last_mut() {
            names.insert(executor.0, offer.name.clone());
        }
        if has_task || has_ended_attempt(changes) {
            let offer = Offer { held: vec![], ..offer.clone() };
            self.keep(&Line { t, what: What::In(Event::ExecutorJoined { executor, offer }) });
        }
    }

    fn on_pattern(&mut self, fold: &Fold, run: RunId, evidence: &Evidence) {
        let sentence = evidence.to_string();
        let is_news = !self.story.patterns.contains(&sentence);
        if self.is_of_run(fold, run) && evidence.concerns(self.stage) && is_news {
            self.story.patterns.push(sentence);
        }
    }

    /// The run of the task, or the submission that it came with.
    fn is_of_run(&self, fold: &Fold, run: RunId) -> bool {
        run == self.submission || run == fold.runs.whole_of(self.submission)
    }

    /// The log has ended: this is what it says of the task's state.
    fn finish(self, fold: &Fold) {
        let state = match (fold.tasks.end(self.story.task).0, fold.attempts.of(self.story.task)) {
            (End::Done, _) => TaskPhase::Done,
            (End::Failed, _) => TaskPhase::Failed,
            (End::Cancelled, _) => TaskPhase::Cancelled,
            (End::Not, Some(held)) if held.is_landing => TaskPhase::Landing,
            (End::Not, Some(_)) => TaskPhase::Unfinished,
            (End::Not, None) if fold.runs.is_accepted(self.submission) => TaskPhase::Ready,
            (End::Not, None) => TaskPhase::Submitting,
        };
        self.story.state = state;
        self.story.run = fold.runs.whole_of(self.submission);
        if state == TaskPhase::Ready {
            self.story.reason = Some("no executor had it when the log ended".into());
        }
    }
}

/// Whether the task lost its attempt with the line that made these changes.
fn has_ended_attempt(changes: &[Change<'_>]) -> bool {
    changes.iter().any(|change| matches!(change, Change::AttemptOver { .. }))
}

/// What a task's attempts printed; nothing when there is no such file.
fn printed_by(dir: &Path, task: TaskId) -> Result<Vec<PrintedLine>, Error> {
    let mut found = vec![];
    printed_lines(dir, |of| of == task, |line| add_printed(&mut found, line))?;
    Ok(found)
}

/// Gives `take` what the attempts of the `wanted` tasks printed, in the order in which they ended.
pub(crate) fn printed_lines(
    dir: &Path,
    wanted: impl Fn(TaskId) -> bool,
    mut take: impl FnMut(PrintedLine),
) -> Result<(), Error> {
    let path = dir.join(PRINTED_FILE);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(ErrorKind::Open, &path, e)),
    };
    let (mut reader, mut line) = (std::io::BufReader::new(file), vec![]);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(|e| Error::io(ErrorKind::Read, &path, e))? == 0 {
            return Ok(());
        }
        // A torn line may stand before this one; the rest of its line is lost with it.
        let digits = line.strip_prefix(b"{\"task\":").unwrap_or_default();
        let n_digits = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        let task = std::str::from_utf8(&digits[..n_digits]).ok().and_then(|n| n.parse().ok());
        if task.is_some_and(|task| wanted(TaskId(task)))
            && let Ok(printed) = serde_json::from_slice(&line)
        {
            take(printed);
        }
    }
}
