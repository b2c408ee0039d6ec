//! One task's story in words.
//!
//! In: a [`TaskStory`], which holds the log's lines about one task and the names that they need. A live
//! dispatcher answers with one; [`story_from_dir`] makes the same from the directory of a run that ended.
//! Out: text as a colleague would tell it: what became of the task, where each attempt ran and why there,
//! where each input came from, where the time went, why an attempt or the task failed, or why it waits.
//!
//! Not here: finding a task in a live cluster (`eyas-runtime`), printing (`eyas-cli`).

use crate::error::{Error, ErrorKind};
use crate::lines::{Entry, Lines, find};
use crate::read::sum;
use crate::units;
use eyas_core::array::{Command, TaskSpec};
use eyas_core::event::*;
use eyas_core::location::CatalogLocation;
use eyas_core::log::{Header, Line, PRINTED_FILE, PrintedLine, PrintedStream, What};
use eyas_core::pattern::stage_of_task;
use eyas_core::placement::Reason;
use eyas_core::types::*;
use eyas_text::{Shown, line_of, shown, shown_path};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

/// Lines of output that are shown of a failed attempt.
const OUTPUT_LINES_SHOWN: usize = 12;
/// Inputs that are named one by one.
const INPUTS_SHOWN: usize = 20;
/// Characters of each of their names.
const INPUT_CHARS_MAX: usize = 300;

/// All that is known of one task.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TaskStory {
    pub task: TaskId,
    /// The user's own name for it.
    pub user_id: String,
    pub run: RunId,
    /// One word: `submitting waiting ready reserved running landing done failed cancelled`.
    pub state: String,
    /// Why it waits, if it waits.
    pub reason: Option<String>,
    /// When it was submitted, if that is known.
    pub submitted: Option<Timestamp>,
    /// Lines of the event log that speak of it, oldest first. Others do no harm; joins and losses of its
    /// executors and headers of later lives make the story better.
    pub log_lines: Vec<String>,
    pub executors: BTreeMap<u32, String>,
    /// Locations of objects.
    pub objects: BTreeMap<u32, String>,
    pub printed: Vec<PrintedLine>,
    /// The task in full, if it is known.
    pub spec: Option<TaskSpec>,
    /// Patterns that its stage takes part in, as sentences.
    pub patterns: Vec<String>,
}

/// One attempt as the lines tell it.
#[derive(Default)]
struct Attempt {
    attempt: AttemptNo,
    executor: String,
    assigned: Option<Timestamp>,
    assignment: Option<Box<Assignment>>,
    report: Option<Arc<AttemptReport>>,
    /// Outputs home or not, and when.
    home: Option<(Timestamp, Result<(), Failure>)>,
    /// Why it was over, where that is not in the report.
    lost: Option<String>,
    cancel_asked: Option<Timestamp>,
    /// When it was over.
    over: Option<Timestamp>,
    /// By object, in this attempt's life.
    objects: BTreeMap<u32, String>,
    /// Executors that its inputs came from, in this attempt's life.
    peers: BTreeMap<u32, String>,
}

impl Attempt {
    fn is_alone(&self) -> bool {
        self.assignment.as_ref().is_some_and(|assignment| assignment.alone)
    }
}

/// What the event log says of one task, in order.
#[derive(Default)]
struct History {
    attempts: Vec<Attempt>,
    ended: Option<(Timestamp, Outcome)>,
    cancel_asked: bool,
    n_restarts: u32,
    /// Files that it had made and that were lost, so that it ran again, and when.
    lost: Vec<(Timestamp, ObjectId)>,
    /// Further attempts that only made copies of its files: where, and the end if the executor reported it.
    replicas: Vec<(AttemptNo, String, Option<Outcome>)>,
}

fn tell_attempts(story: &TaskStory) -> History {
    let mut history = History::default();
    let mut names = story.executors.clone();
    let mut ids: Vec<ExecutorId> = vec![]; // of each attempt
    let name = |names: &BTreeMap<u32, String>, id: ExecutorId| match names.get(&id.0) {
        Some(name) if !name.is_empty() => format!("{name}", name = shown(name)),
        _ => format!("executor {id}"),
    };
    for text in &story.log_lines {
        let Ok(line) = serde_json::from_str::<Line>(text) else {
            // A header: another dispatcher process goes on.
            history.n_restarts +=
                u32::from(serde_json::from_str::<Header>(text).is_ok() && !history.attempts.is_empty());
            continue;
        };
        let open = |history: &History| {
            history.attempts.last().is_some_and(|a| a.report.is_none() && a.lost.is_none())
                && history.ended.is_none()
        };
        match line.what {
            What::Out(Action::Assign { executor, assignment }) if assignment.task == story.task => {
                if open(&history) {
                    let how = match history.n_restarts {
                        0 => "its executor was lost or came back without it",
                        _ => "the dispatcher was restarted and nobody had it any more",
                    };
                    history.attempts.last_mut().expect("an open attempt").lost = Some(how.into());
                }
                let mut objects = story.objects.clone();
                if let Some(spec) = &story.spec {
                    let inputs = assignment.inputs.iter().zip(&spec.inputs);
                    objects.extend(inputs.map(|(a, (_, location))| (a.object.0, location.clone())));
                }
                history.ended = None;
                ids.push(executor);
                history.attempts.push(Attempt {
                    attempt: assignment.attempt,
                    executor: name(&names, executor),
                    assigned: Some(line.t),
                    assignment: Some(assignment),
                    objects,
                    ..Attempt::default()
                });
            }
            What::Out(Action::ReplicateTask { executor, assignment }) if assignment.task == story.task => {
                history.replicas.push((assignment.attempt, name(&names, executor), None))
            }
            What::In(Event::AttemptEnded { report, .. })
                if report.task == story.task
                    && history.replicas.iter().any(|(attempt, ..)| *attempt == report.attempt) =>
            {
                let of_it = history.replicas.iter_mut().filter(|(attempt, ..)| *attempt == report.attempt);
                of_it.for_each(|(_, _, end)| *end = Some(report.outcome.clone()));
            }
            What::In(Event::ExecutorJoined { executor, offer }) => {
                names.insert(executor.0, offer.name.clone());
                let has = offer.attempts.iter().find(|(task, _)| *task == story.task);
                match (history.attempts.last_mut(), has) {
                    (Some(a), Some((_, attempt))) if a.attempt == *attempt && a.report.is_none() => {
                        a.lost = None;
                        a.executor = name(&names, executor);
                        *ids.last_mut().expect("one per attempt") = executor;
                    }
                    (Some(a), None)
                        if ids.last() == Some(&executor) && a.report.is_none() && a.home.is_none() =>
                    {
                        a.lost.get_or_insert("its executor came back without it".into());
                        a.over.get_or_insert(line.t);
                    }
                    _ => {}
                }
            }
            What::In(Event::ExecutorLost { executor, reason }) if ids.last() == Some(&executor) => {
                if let Some(a) = history.attempts.last_mut().filter(|_| history.ended.is_none()) {
                    let landed = a.home.is_some() || a.report.as_ref().is_some_and(|r| r.outputs.is_empty());
                    if !landed {
                        a.lost.get_or_insert(format!("its executor was lost: {}", line_of(&reason)));
                        a.over = Some(line.t);
                    }
                }
            }
            What::Out(Action::ForgetExecutor { executor })
                if ids.last() == Some(&executor) && open(&history) =>
            {
                let a = history.attempts.last_mut().expect("an open attempt");
                a.lost = Some("its executor fell silent and did not come back in time".into());
                a.over = Some(line.t);
            }
            What::In(Event::AttemptEnded { executor, report }) if report.task == story.task => {
                let known = history.attempts.last().is_some_and(|a| a.attempt == report.attempt);
                if !known {
                    // Its assignment is not among the lines; the report is worth telling all the same.
                    ids.push(executor);
                    history.attempts.push(Attempt {
                        attempt: report.attempt,
                        executor: name(&names, executor),
                        objects: story.objects.clone(),
                        ..Attempt::default()
                    });
                }
                if let Some(a) =
                    history.attempts.last_mut().filter(|a| a.report.is_none() && a.lost.is_none())
                {
                    for input in &report.inputs {
                        if let CacheOutcome::RemoteHit { from } = input.outcome {
                            a.peers.insert(from.0, name(&names, from));
                        }
                    }
                    a.report = Some(report);
                    a.over = Some(line.t);
                }
            }
            What::In(Event::OutputsHome { task, attempt, result, .. }) if task == story.task => {
                if let Some(a) =
                    history.attempts.last_mut().filter(|a| a.attempt == attempt && a.home.is_none())
                {
                    a.home = Some((line.t, result));
                    a.over = Some(line.t);
                }
            }
            What::In(Event::CancelRequested { run, task }) => {
                history.cancel_asked |= run == story.run && task.is_none_or(|t| t == story.task);
            }
            What::Out(Action::CancelAttempt { task, attempt, .. }) if task == story.task => {
                if let Some(a) = history.attempts.last_mut().filter(|a| a.attempt == attempt) {
                    a.cancel_asked = Some(line.t);
                }
            }
            What::Out(Action::EndTask { task, outcome }) if task == story.task => {
                history.ended = Some((line.t, outcome));
            }
            What::Out(Action::ReviveTask { task, lost }) if task == story.task => {
                history.ended = None;
                history.lost.push((line.t, lost));
            }
            What::In(Event::TaskRestored { task, outcome, .. }) if task == story.task => {
                history.ended.get_or_insert((line.t, outcome));
            }
            _ => {}
        }
    }
    history
}

/// Tells the story. Ends with a line end.
pub fn explain_lines(story: &TaskStory) -> String {
    let mut history = tell_attempts(story);
    // The event log is ahead of the journal, and an end that the journal does not have may not be told.
    if story.state == "ending" {
        history.ended = None;
    }
    let mut text = String::new();
    headline(story, &history, &mut text);
    if let Some(spec) = &story.spec {
        let _ = writeln!(text, "Command: {}", line_of(&command_line(&spec.command)));
    }
    for pattern in &story.patterns {
        let _ = writeln!(text, "Pattern: {}.", line_of(pattern));
    }
    for (t, lost) in &history.lost {
        let after = story.submitted.map_or(String::new(), |s| {
            format!(" {} after it was submitted,", units::duration(t.since_ns(s)))
        });
        let file = story.objects.get(&lost.0).map(|l| CatalogLocation::of(l).written().text());
        let file = file.map(|file| format!("{}", shown(&file)));
        let file = file.unwrap_or("a file that it had made".into());
        let _ = writeln!(
            text,
            "It was done and runs again:{after} no node had {file} any more, which other tasks still have to read."
        );
    }
    for (_, executor, end) in &history.replicas {
        let end = match end {
            Some(Outcome::Done) => "ended well",
            Some(Outcome::Failed(_)) => "failed, which does no harm: its files are copied",
            Some(Outcome::Cancelled) => "was ended, because the files were no longer needed",
            None => "was not heard of again",
        };
        let _ = writeln!(
            text,
            "It also ran on {executor}, where its files were needed, because that was predicted to be quicker than to send \
             them; that {end}."
        );
    }
    for (i, attempt) in history.attempts.iter().enumerate() {
        text.push('\n');
        tell_attempt(story, &history, i, attempt, &mut text);
    }
    text
}

fn headline(story: &TaskStory, history: &History, text: &mut String) {
    let n = history.attempts.len() as u64;
    let _ = write!(text, "Task {} (number {}, run {}) ", shown(&story.user_id), story.task, story.run);
    let after = |t: Timestamp| match story.submitted {
        Some(submitted) => format!(", {} after it was submitted", units::duration(t.since_ns(submitted))),
        None => String::new(),
    };
    match (&history.ended, story.state.as_str()) {
        (Some((t, Outcome::Done)), _) => {
            let _ = write!(text, "is done{}", after(*t));
            if n > 1 {
                let _ = write!(text, "; it took {}", units::plural(n, "attempt"));
            }
            text.push_str(".\n");
        }
        (Some((t, Outcome::Failed(failure))), _) => {
            let tried = if n == 0 {
                " without having run".into()
            } else {
                format!(" after {}", units::plural(n, "attempt"))
            };
            let _ = writeln!(text, "failed{tried}{}.", after(*t));
            let _ = writeln!(text, "Why: {}.", sentence(&failure.message));
            if let Some(hint) = hint(failure.kind) {
                let _ = writeln!(text, "hint: {hint}");
            }
        }
        (Some((t, Outcome::Cancelled)), _) => {
            let ran = if n == 0 { ", before it had been given to an executor" } else { "" };
            let _ = writeln!(text, "was cancelled{}{ran}.", after(*t));
        }
        (None, "submitting") => text.push_str("is not accepted yet: its submission is still arriving.\n"),
        (None, "waiting" | "ready") => {
            let _ = match (&story.reason, story.state.as_str()) {
                (Some(what), "waiting") => writeln!(text, "waits for {}.", sentence(what)),
                (None, "waiting") => writeln!(text, "waits for other tasks."),
                (Some(reason), _) => writeln!(text, "waits in the queue: {}.", sentence(reason)),
                (None, _) => writeln!(text, "waits in the queue."),
            };
            if n > 0 {
                let _ = writeln!(
                    text,
                    "It was tried {} already.",
                    if n == 1 { "once".into() } else { format!("{n} times") }
                );
            }
        }
        (None, state) => {
            let at = history.attempts.last().map_or("an executor", |a| &a.executor);
            let what = match state {
                "running" => format!("is running on {at}"),
                "landing" => format!("ran well on {at}; its outputs are on their way home"),
                "reserved" if history.attempts.last().is_some_and(Attempt::is_alone) => format!(
                    "was given to {at} and has not started yet: the disk there may have been too full for it and others at \
                     once, so it waits until all others on {at} have ended, and runs alone"
                ),
                "reserved" => format!(
                    "was given to {at} and has not started yet: its inputs are on their way, or it waits for a slot"
                ),
                "ending" => format!("has ended on {at}, and waits for that to be in the journal"),
                "done" | "failed" | "cancelled" => format!("is {state}; the log has nothing about its end"),
                _ => "had not ended when the log did".into(),
            };
            let _ = writeln!(text, "{what}.");
            if let Some(reason) = &story.reason {
                let _ = writeln!(text, "Why: {}.", sentence(reason));
            }
        }
    }
    if history.n_restarts > 0 {
        let _ = writeln!(
            text,
            "The dispatcher was restarted {} meanwhile.",
            match history.n_restarts {
                1 => "once".into(),
                n => format!("{n} times"),
            }
        );
    }
}

/// On one line, without the full stop that the caller sets.
fn sentence(text: &str) -> Shown<'_> {
    line_of(text.trim_end().trim_end_matches('.'))
}

fn hint(kind: FailureKind) -> Option<&'static str> {
    Some(match kind {
        FailureKind::Walltime => "give it a longer `walltime`, or see below where its time went",
        FailureKind::Memory => "give it more `memory`",
        FailureKind::NotStarted => {
            "the program must exist on the nodes; a path is taken as it is, a bare name is looked up in PATH"
        }
        FailureKind::OutputMissing => {
            "the program ended well and did not write this file; compare its arguments with the declared outputs"
        }
        FailureKind::NeverFits => "ask for less, or add a larger executor",
        FailureKind::InputChanged => "submit again to use what is there now",
        FailureKind::InputModified => "the program writes to its input; let it work on a copy",
        _ => return None,
    })
}

fn command_line(command: &Command<String>) -> String {
    let quoted = |word: &String| {
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%{}".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    match command {
        Command::Exec(argv) => argv.iter().map(quoted).collect::<Vec<_>>().join(" "),
        Command::Shell(line) => format!("sh -c {}", quoted(line)),
    }
}

fn tell_attempt(story: &TaskStory, history: &History, i: usize, a: &Attempt, text: &mut String) {
    let is_last = i + 1 == history.attempts.len();
    let _ = writeln!(text, "Attempt {} on {}", a.attempt, a.executor);
    if let Some(assignment) = &a.assignment {
        why_there(&assignment.why, &a.executor, text);
        if assignment.private_inputs {
            text.push_str(
                "  It got private copies of its inputs, because an earlier attempt wrote to one.\n",
            );
        }
        if a.is_alone() {
            text.push_str(
                "  Nothing else ran there meanwhile, because earlier attempts may have failed for want of room on a disk.\n",
            );
        }
    }
    if let Some(report) = &a.report {
        where_inputs_came_from(a, report, text);
        where_time_went(story, history, i, a, report, text);
    }
    how_it_ended(history, is_last, a, text);
    let failed = match (&a.report, &a.home) {
        (Some(report), _) if matches!(report.outcome, Outcome::Failed(_)) => true,
        (_, Some((_, Err(_)))) => true,
        _ => false,
    };
    if failed {
        match story.printed.iter().find(|p| p.attempt == a.attempt) {
            Some(printed) => what_it_printed(printed, text),
            None if a.report.as_ref().is_some_and(|r| r.times.started.0 > 0) => {
                text.push_str("  It printed nothing.\n");
            }
            None => {}
        }
    }
}

fn why_there(why: &Why, executor: &str, text: &mut String) {
    let n = u64::from(why.n_inputs);
    let has = match (why.n_hits, why.n_inputs) {
        (_, 0) => "it has no inputs".to_string(),
        (0, 1) => format!("its input was not in the cache of {executor}"),
        (1, 1) => format!("its input was in the cache of {executor}"),
        (0, _) => format!("none of its {n} inputs was in the cache of {executor}"),
        (hits, inputs) if hits == inputs => format!("all {n} inputs were in the cache of {executor}"),
        (1, _) => format!("1 of its {n} inputs was in the cache of {executor}"),
        (hits, _) => format!("{hits} of its {n} inputs were in the cache of {executor}"),
    };
    let policy = line_of(&why.policy).to_string();
    let rule = match policy.as_str() {
        "first-available" => {
            "`first-available` takes the first executor with room and looks at no cache".to_string()
        }
        "max-cache-hit" => {
            format!("{has}; `max-cache-hit` was in force, which puts tasks where most of their data is")
        }
        "max-compute-util" => format!(
            "{has}; `max-compute-util` was in force, which keeps every slot busy and then looks at caches"
        ),
        other => match why.reason {
            Some(reason) => format!("{has}; `{other}` {}", rule_of(reason)),
            None => format!("{has}; placed by `{other}`"),
        },
    };
    let _ = writeln!(text, "  Why there: {rule}.");
    let _ = writeln!(
        text,
        "  At that time {} of {} slots were busy and {} queued.",
        units::count(why.n_slots_active.into()),
        units::count(why.n_slots.into()),
        match why.n_queued {
            1 => "1 task was".into(),
            n => format!("{} tasks were", units::count(n)),
        }
    );
    if why.ahead {
        text.push_str("  Its slots were full: the task was given ahead, so that its inputs could move while another computed.\n");
    }
}

/// A rule of `affinity` or `first-input`, to follow its name.
fn rule_of(reason: Reason) -> String {
    match reason {
        Reason::AllHere => "gives tasks to executors that hold all they need, the oldest first".into(),
        Reason::NoInputs => "gives tasks without inputs to whoever has room, the oldest first".into(),
        Reason::Brings { n_tasks: 0 | 1 } => {
            "fetched what it lacked, as nothing else there waited for more".into()
        }
        Reason::Brings { n_tasks } => format!(
            "fetched what it lacked, as {} queued tasks waited for just that there",
            units::count(n_tasks.into())
        ),
        Reason::Seed => "let the executor begin here, as nothing queued was near to what it held".into(),
        Reason::Oldest => "gave it out because it was among the oldest in the queue".into(),
        Reason::Copied { waited_ms } => format!(
            "copied what others hold, as none of them had come to it in {:.1} s",
            f64::from(waited_ms) / 1000.0
        ),
        Reason::FirstHere => "queued it where its first input was when it became ready".into(),
        Reason::Dealt => "queued it at the node whose turn it was, as nobody held its first input".into(),
        Reason::Stolen { from } => {
            format!("let the idle node take it from its neighbour, executor {from}, where it was queued")
        }
    }
}

fn where_inputs_came_from(a: &Attempt, report: &AttemptReport, text: &mut String) {
    if report.inputs.is_empty() {
        return;
    }
    text.push_str("  Inputs:\n");
    let name = |object: ObjectId| match a.objects.get(&object.0) {
        Some(location) => line_of(location).at_most(INPUT_CHARS_MAX).to_string(),
        None => format!("object {object}"),
    };
    let shown = &report.inputs[..report.inputs.len().min(INPUTS_SHOWN)];
    let width = shown.iter().map(|i| name(i.object).chars().count()).max().unwrap_or(0).min(60);
    for input in shown {
        let waited = units::duration(input.wait_ns);
        let from = match input.outcome {
            CacheOutcome::LocalHit => "in the node's cache already".to_string(),
            CacheOutcome::RemoteHit { from } => {
                format!("from the cache of {} in {waited}", a.peers[&from.0])
            }
            CacheOutcome::Joined => format!("another task was fetching it; waited {waited} for that"),
            CacheOutcome::Miss => format!("from home in {waited}"),
            CacheOutcome::Direct => format!("from home in {waited}, for this attempt only"),
            CacheOutcome::InPlace => "read in place, home is the node's own disk".to_string(),
        };
        let size = units::bytes(input.size_bytes);
        let _ = writeln!(text, "    {:<width$}  {size:>10}  {from}", name(input.object));
    }
    if report.inputs.len() > INPUTS_SHOWN {
        let rest = &report.inputs[INPUTS_SHOWN..];
        let bytes = sum(rest.iter().map(|i| i.size_bytes));
        let _ = writeln!(text, "    and {} more, {}", rest.len(), units::bytes(bytes));
    }
}

fn where_time_went(
    story: &TaskStory,
    history: &History,
    i: usize,
    a: &Attempt,
    report: &AttemptReport,
    text: &mut String,
) {
    let t = &report.times;
    let mut parts: Vec<String> = vec![];
    let (queued_since, again) = match i.checked_sub(1).map(|previous| &history.attempts[previous]) {
        None => (story.submitted, ""),
        Some(previous) => (previous.over, " again"),
    };
    if let (Some(since), Some(assigned)) = (queued_since, a.assigned) {
        match assigned.since_ns(since) {
            0 => {}
            ns => parts.push(format!("queued{again} {}", units::duration(ns))),
        }
    }
    if let Some(assigned) = a.assigned
        && t.inputs_ready.0 > 0
        && !report.inputs.is_empty()
    {
        parts.push(format!("staging inputs {}", units::duration(t.inputs_ready.since_ns(assigned))));
    }
    if t.started.0 > 0 {
        let ready = if t.inputs_ready.0 > 0 { t.inputs_ready } else { t.received };
        let waited_ns = t.started.since_ns(ready);
        if waited_ns > 0 {
            parts.push(format!("waiting for a slot {}", units::duration(waited_ns)));
        }
        let cpu = units::duration(report.cpu_ns);
        let memory = match report.rss_bytes_max {
            0 => String::new(),
            n => format!(", at most {} of memory", units::bytes(n)),
        };
        parts.push(format!(
            "running {} ({cpu} of processor time{memory})",
            units::duration(t.exited.since_ns(t.started))
        ));
    }
    if let Some((at, Ok(()))) = &a.home
        && t.exited.0 > 0
    {
        parts.push(format!("bringing outputs home {}", units::duration(at.since_ns(t.exited))));
    }
    if !parts.is_empty() {
        let _ = writeln!(text, "  Time: {}.", parts.join(", "));
    }
}

fn how_it_ended(history: &History, is_last: bool, a: &Attempt, text: &mut String) {
    let ended = history.ended.as_ref().filter(|_| is_last).map(|(_, outcome)| outcome);
    let again = |text: &mut String, weather: bool| {
        if is_last && history.ended.is_some() {
            return;
        }
        text.push_str(match weather {
            true => "  That was not the task's fault: it is tried again without using up `retries`.\n",
            false => "  It had `retries` left and is tried again.\n",
        });
    };
    let fail = |text: &mut String, failure: &Failure| {
        let _ = writeln!(text, "  It failed: {}.", sentence(&failure.message));
        again(text, failure.kind.is_weather());
    };
    if let Some((_, Err(failure))) = &a.home {
        text.push_str("  The program ended well, its outputs did not get home.\n");
        return fail(text, failure);
    }
    match (&a.report, &a.lost) {
        (_, Some(why)) => {
            let _ = writeln!(text, "  It ended without a result: {}.", sentence(why));
            again(text, true);
        }
        (Some(report), None) => match (&report.outcome, ended) {
            (Outcome::Failed(failure), _) => fail(text, failure),
            (Outcome::Cancelled, _) => text.push_str("  It was cancelled on the way.\n"),
            (Outcome::Done, Some(Outcome::Failed(failure))) => {
                text.push_str("  The program ended well, and the attempt does not count.\n");
                let _ = writeln!(text, "  It failed: {}.", sentence(&failure.message));
            }
            (Outcome::Done, _) => {
                let bytes = sum(report.outputs.iter().map(|o| o.size_bytes));
                let n = report.outputs.len() as u64;
                let _ = match n {
                    0 => writeln!(text, "  It ended well."),
                    _ => writeln!(
                        text,
                        "  It ended well and made {}, {}.",
                        units::plural(n, "output"),
                        units::bytes(bytes)
                    ),
                };
            }
        },
        (None, None) if a.cancel_asked.is_some() => {
            text.push_str("  It was asked to stop; its executor has not answered.\n");
        }
        (None, None) if history.ended.is_none() => text.push_str("  It has not ended yet.\n"),
        (None, None) => {}
    }
}

fn what_it_printed(printed: &PrintedLine, text: &mut String) {
    let mut any = false;
    for (name, stream) in [("standard error", &printed.stderr), ("standard output", &printed.stdout)] {
        let lines = last_lines(stream);
        if lines.is_empty() {
            continue;
        }
        any = true;
        let _ = writeln!(text, "  The end of its {name} ({} in all):", units::bytes(stream.total_bytes));
        for line in lines {
            let _ = writeln!(text, "    | {line}");
        }
    }
    if !any {
        text.push_str("  It printed nothing.\n");
    }
}

/// The last lines of a stream.
fn last_lines(stream: &PrintedStream) -> Vec<String> {
    let kept = (stream.head.len() + stream.tail.len()) as u64;
    let gap = match stream.total_bytes > kept {
        true if stream.head.ends_with('\n') => "…\n",
        true => "\n…\n",
        false => "",
    };
    let whole = format!("{}{gap}{}", stream.head, stream.tail);
    let lines: Vec<&str> = whole.trim_end().lines().collect();
    let from = lines.len().saturating_sub(OUTPUT_LINES_SHOWN);
    lines[from..].iter().map(|line| line_of(&line.replace('\t', "    ")).to_string()).collect()
}

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
    let task = story.task;
    let needle = format!("\"task\":{task}");
    let about = |text: &[u8]| {
        find(text, needle.as_bytes())
            .is_some_and(|at| !text.get(at + needle.len()).is_some_and(u8::is_ascii_digit))
    };
    let wanted = |text: &[u8]| {
        let head = &text[..text.len().min(96)];
        about(text)
            || [
                &b"executor_joined"[..],
                b"executor_lost",
                b"forget_executor",
                b"found_pattern",
                b"cancel_requested",
                b"run_",
            ]
            .iter()
            .any(|n| find(head, n).is_some())
    };
    let mut lines = Lines::open(dir)?;
    let (mut has, mut committed, mut ended) = (None::<ExecutorId>, false, None::<Outcome>);
    let mut replicas: Vec<AttemptNo> = vec![];
    let (mut landing, mut n_lives) = (false, 0);
    // The run that it was added to, if it was.
    let mut whole = story.run;
    let line_of = |t: Timestamp, what: What, story: &mut TaskStory| {
        story.log_lines.push(serde_json::to_string(&Line { t, what }).expect("log lines have string keys"));
    };
    while let Some(entry) = lines.next_if(wanted)? {
        match entry {
            Entry::Header(_) => {
                n_lives += 1;
                if n_lives > 1 && has.is_some() {
                    let text = lines.text().into_owned();
                    story.log_lines.push(text);
                }
            }
            Entry::Out(_, Action::FoundPattern { run, evidence }) => {
                let takes_part = evidence.concerns(stage);
                let sentence = evidence.to_string();
                if (run == story.run || run == whole) && takes_part && !story.patterns.contains(&sentence) {
                    story.patterns.push(sentence);
                }
            }
            Entry::In(t, Event::ExecutorJoined { executor, offer }) => {
                let returns = offer.attempts.iter().any(|(of, _)| *of == task) || has == Some(executor);
                let renamed = story.executors.get(&executor.0).is_some_and(|name| *name != offer.name);
                story.executors.entry(executor.0).or_insert(offer.name.clone());
                if returns || renamed {
                    if returns {
                        has = offer.attempts.iter().any(|(of, _)| *of == task).then_some(executor);
                    }
                    let offer = Offer { held: vec![], ..offer };
                    line_of(t, What::In(Event::ExecutorJoined { executor, offer }), story);
                }
            }
            Entry::In(t, Event::ExecutorLost { executor, reason }) => {
                if has == Some(executor) {
                    has = None;
                    line_of(t, What::In(Event::ExecutorLost { executor, reason }), story);
                }
            }
            Entry::Out(t, Action::ForgetExecutor { executor }) => {
                if has == Some(executor) {
                    has = None;
                    line_of(t, What::Out(Action::ForgetExecutor { executor }), story);
                }
            }
            Entry::In(_, Event::RunOpened { run, into: Some(other), .. }) if run == story.run => {
                whole = other
            }
            Entry::In(_, Event::RunStarted { run } | Event::RunCommitted { run }) => {
                committed |= run == story.run
            }
            Entry::In(t, event @ Event::CancelRequested { run, .. }) => {
                if run == story.run || run == whole {
                    line_of(t, What::In(event), story);
                }
            }
            Entry::In(t, Event::TaskRestored { task: of, outcome, outputs }) => {
                if of == task {
                    ended = Some(outcome.clone());
                    line_of(t, What::In(Event::TaskRestored { task, outcome, outputs }), story);
                }
            }
            Entry::Out(t, action) => {
                match &action {
                    Action::Assign { executor, assignment } if assignment.task == task => {
                        (has, landing, ended) = (Some(*executor), false, None);
                    }
                    Action::ReplicateTask { assignment, .. } if assignment.task == task => {
                        replicas.push(assignment.attempt)
                    }
                    Action::EndTask { task: of, outcome } if *of == task => {
                        (has, ended) = (None, Some(outcome.clone()));
                    }
                    Action::ReviveTask { task: of, .. } if *of == task => ended = None,
                    Action::CancelAttempt { task: of, .. } if *of == task => {}
                    _ => continue,
                }
                line_of(t, What::Out(action), story);
            }
            Entry::In(t, event) => {
                match &event {
                    Event::AttemptEnded { report, .. }
                        if report.task == task && replicas.contains(&report.attempt) => {}
                    Event::AttemptEnded { report, .. } if report.task == task => {
                        landing = report.outcome == Outcome::Done && !report.outputs.is_empty();
                        has = has.filter(|_| landing);
                    }
                    Event::OutputsHome { task: of, .. } if *of == task => {}
                    _ => continue,
                }
                line_of(t, What::In(event), story);
            }
        }
    }
    story.state = match (ended, has) {
        (Some(Outcome::Done), _) => "done",
        (Some(Outcome::Failed(_)), _) => "failed",
        (Some(Outcome::Cancelled), _) => "cancelled",
        (None, Some(_)) if landing => "landing",
        (None, Some(_)) => "unfinished",
        (None, None) if committed => "ready",
        (None, None) => "submitting",
    }
    .into();
    story.run = whole;
    if story.state == "ready" {
        story.reason = Some("no executor had it when the log ended".into());
    }
    Ok(())
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
