//! A task's story from the directory of a run: which task a name means, which lines of the log speak of it, and the state in
//! which the log leaves it.

use super::TaskStory;
use crate::error::{Error, ErrorKind};
use crate::lines::{Entry, Lines, find};
use eyas_core::array::TaskSpec;
use eyas_core::event::*;
use eyas_core::log::{Line, PRINTED_FILE, PrintedLine, What};
use eyas_core::pattern::{Evidence, stage_of_task};
use eyas_core::types::*;
use eyas_text::{shown, shown_path};
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
        return Err(Error::new(ErrorKind::NoTask, "explain the task", context));
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
type Found = (TaskId, RunId, Timestamp, TaskSpec, String);

fn find_task(dir: &Path, name: &str, number: Option<u64>, of: Option<RunId>) -> Result<Option<Found>, Error> {
    // Submissions into runs, and into which.
    let mut into: BTreeMap<RunId, RunId> = BTreeMap::new();
    let mut lines = Lines::open(dir)?;
    // By run; a later life tells the same again, and a refused submission leaves nothing.
    let mut found: BTreeMap<RunId, Found> = BTreeMap::new();
    let (mut next_task, mut id) = (0u64, String::new());
    let wanted = |text: &[u8]| {
        let head = &text[..text.len().min(64)];
        let words = [&b"array_added"[..], b"run_aborted", b"refuse_run", b"run_opened", b"tasks_numbered"];
        words.iter().any(|n| find(head, n).is_some())
    };
    while let Some(entry) = lines.next_if(wanted)? {
        match entry {
            Entry::Header(_) => next_task = 0,
            Entry::In(_, Event::TasksNumbered { n_tasks }) => next_task = next_task.max(n_tasks),
            Entry::In(t, Event::ArrayAdded { run, array }) => {
                let hit = match number {
                    Some(n) => {
                        n.checked_sub(next_task).filter(|i| *i < u64::from(array.n_tasks)).map(|i| i as u32)
                    }
                    None => (0..array.n_tasks).find(|i| {
                        id.clear();
                        array.fill_into(&array.template.id, *i, &mut id);
                        id == name
                    }),
                };
                if let Some(i) = hit {
                    let task = TaskId(next_task + u64::from(i));
                    found
                        .entry(run)
                        .or_insert_with(|| (task, run, t, array.expand(i), stage_of_task(&array, i)));
                }
                next_task += u64::from(array.n_tasks);
            }
            Entry::In(_, Event::RunAborted { run }) | Entry::Out(_, Action::RefuseRun { run, .. }) => {
                found.remove(&run);
            }
            Entry::In(_, Event::RunOpened { run, into: Some(whole), .. }) => {
                into.insert(run, whole);
            }
            _ => {}
        }
    }
    let is_of = |run: &RunId| of.is_none_or(|of| into.get(run).unwrap_or(run) == &of);
    Ok(found.into_iter().filter(|(run, _)| is_of(run)).map(|(_, found)| found).next_back())
}

/// Fills in lines, names and state.
fn collect_lines(dir: &Path, story: &mut TaskStory, stage: &str) -> Result<(), Error> {
    let needle = format!("\"task\":{}", story.task);
    let mut lines = Lines::open(dir)?;
    let mut collector = Collector::new(story, stage);
    while let Some(entry) = lines.next_if(|text| may_concern(text, needle.as_bytes()))? {
        match entry {
            Entry::Header(_) => collector.begin_life(|| lines.text().into_owned()),
            Entry::In(t, event) => collector.take_event(t, event),
            Entry::Out(t, action) => collector.take_action(t, action),
        }
    }
    collector.finish();
    Ok(())
}

/// Whether a line of the log speaks of the task, or of executors, patterns, runs or cancelling in general.
///
/// * `needle`: how lines name the task.
fn may_concern(text: &[u8], needle: &[u8]) -> bool {
    const NAMES: [&[u8]; 6] = [
        b"executor_joined",
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

/// Collects the lines of a log that belong to a task's story, and keeps in mind where they leave the task.
struct Collector<'a> {
    story: &'a mut TaskStory,
    stage: &'a str,
    /// The executor that has the task's attempt.
    holder: Option<ExecutorId>,
    /// The attempt ended well, and its outputs are on their way home.
    landing: bool,
    end: Option<Outcome>,
    reruns: Vec<AttemptNo>,
    /// The submission that the task came with is accepted.
    committed: bool,
    /// The run that the submission was added to; the submission itself where it is a run.
    whole: RunId,
    n_lives: u32,
}

impl<'a> Collector<'a> {
    fn new(story: &'a mut TaskStory, stage: &'a str) -> Self {
        let whole = story.run;
        Collector {
            story,
            stage,
            holder: None,
            landing: false,
            end: None,
            reruns: vec![],
            committed: false,
            whole,
            n_lives: 0,
        }
    }

    fn keep(&mut self, t: Timestamp, what: What) {
        let line = serde_json::to_string(&Line { t, what }).expect("log lines have string keys");
        self.story.log_lines.push(line);
    }

    /// A dispatcher process begins. `header`: its line.
    fn begin_life(&mut self, header: impl FnOnce() -> String) {
        self.n_lives += 1;
        if self.n_lives > 1 && self.holder.is_some() {
            self.story.log_lines.push(header());
        }
    }

    fn take_event(&mut self, t: Timestamp, event: Event) {
        let task = self.story.task;
        let is_kept = match &event {
            Event::ExecutorJoined { .. } => return self.on_executor_joined(t, event),
            Event::ExecutorLost { executor, .. } => self.take_from(*executor),
            Event::RunOpened { run, into, .. } => {
                if let Some(whole) = into.filter(|_| *run == self.story.run) {
                    self.whole = whole;
                }
                false
            }
            Event::RunStarted { run } | Event::RunCommitted { run } => {
                self.committed |= *run == self.story.run;
                false
            }
            Event::CancelRequested { run, .. } => self.is_of_run(*run),
            Event::TaskRestored { task: of, outcome, .. } if *of == task => {
                self.end = Some(outcome.clone());
                true
            }
            Event::AttemptEnded { report, .. } if report.task == task => {
                self.on_attempt_ended(report);
                true
            }
            Event::OutputsHome { task: of, .. } => *of == task,
            _ => false,
        };
        if is_kept {
            self.keep(t, What::In(event));
        }
    }

    fn take_action(&mut self, t: Timestamp, action: Action) {
        let task = self.story.task;
        let is_kept = match &action {
            Action::FoundPattern { run, evidence } => {
                self.on_pattern(*run, evidence);
                false
            }
            Action::ForgetExecutor { executor } => self.take_from(*executor),
            Action::Assign { executor, assignment } if assignment.task == task => {
                (self.holder, self.landing, self.end) = (Some(*executor), false, None);
                true
            }
            Action::RerunTask { assignment, .. } if assignment.task == task => {
                self.reruns.push(assignment.attempt);
                true
            }
            Action::EndTask { task: of, outcome } if *of == task => {
                (self.holder, self.end) = (None, Some(outcome.clone()));
                true
            }
            Action::ReviveTask { task: of, .. } if *of == task => {
                self.end = None;
                true
            }
            Action::CancelAttempt { task: of, .. } => *of == task,
            _ => false,
        };
        if is_kept {
            self.keep(t, What::Out(action));
        }
    }

    /// All names of executors are learnt; the line is kept where the task's attempt comes back or an executor has a new name.
    fn on_executor_joined(&mut self, t: Timestamp, event: Event) {
        let Event::ExecutorJoined { executor, offer } = event else { return };
        let has_task = offer.attempts.iter().any(|(of, _)| *of == self.story.task);
        let returns = has_task || self.holder == Some(executor);
        let renamed = self.story.executors.get(&executor.0).is_some_and(|name| *name != offer.name);
        self.story.executors.entry(executor.0).or_insert(offer.name.clone());
        if returns {
            self.holder = has_task.then_some(executor);
        }
        if returns || renamed {
            let offer = Offer { held: vec![], ..offer };
            self.keep(t, What::In(Event::ExecutorJoined { executor, offer }));
        }
    }

    /// The executor is gone. `true`: it had the task's attempt.
    fn take_from(&mut self, executor: ExecutorId) -> bool {
        self.holder.take_if(|holder| *holder == executor).is_some()
    }

    fn on_attempt_ended(&mut self, report: &AttemptReport) {
        if !self.reruns.contains(&report.attempt) {
            self.landing = report.outcome == Outcome::Done && !report.outputs.is_empty();
            self.holder = self.holder.filter(|_| self.landing);
        }
    }

    fn on_pattern(&mut self, run: RunId, evidence: &Evidence) {
        let sentence = evidence.to_string();
        let is_news = !self.story.patterns.contains(&sentence);
        if self.is_of_run(run) && evidence.concerns(self.stage) && is_news {
            self.story.patterns.push(sentence);
        }
    }

    fn is_of_run(&self, run: RunId) -> bool {
        run == self.story.run || run == self.whole
    }

    /// The log has ended: this is what it says of the task's state.
    fn finish(self) {
        let state = match (self.end, self.holder) {
            (Some(Outcome::Done), _) => "done",
            (Some(Outcome::Failed(_)), _) => "failed",
            (Some(Outcome::Cancelled), _) => "cancelled",
            (None, Some(_)) if self.landing => "landing",
            (None, Some(_)) => "unfinished",
            (None, None) if self.committed => "ready",
            (None, None) => "submitting",
        };
        self.story.state = state.into();
        self.story.run = self.whole;
        if state == "ready" {
            self.story.reason = Some("no executor had it when the log ended".into());
        }
    }
}

/// What a task's attempts printed; nothing when there is no such file.
fn printed_by(dir: &Path, task: TaskId) -> Result<Vec<PrintedLine>, Error> {
    let mut found = vec![];
    printed_lines(dir, |of| of == task, |line| found.push(line))?;
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
        // A torn line may stand before this one; what follows it is lost with it.
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
