//! One task's story in words.
//!
//! In: a [`TaskStory`], which holds the log's lines about one task and the names that they need. A live
//! dispatcher answers with one; [`story_from_dir`] makes the same from the directory of a run that ended.
//! Out: text as a colleague would tell it: what became of the task, where each attempt ran and why there,
//! where each input came from, where the time went, why an attempt or the task failed, or why it waits.
//!
//! | module | |
//! |---|---|
//! | `from_dir` | the story of a task, collected from the directory of a run |
//! | `history` | the story's lines in order: the task's attempts, and how each ended |
//! | `attempt` | one attempt in words |
//! | `file` | where pushes put a file |
//!
//! Not here: finding a task in a live cluster (`eyas-runtime`), printing (`eyas-cli`).

mod attempt;
mod file;
mod from_dir;
mod history;

pub use file::{FileStory, file_lines, file_story};
pub(crate) use from_dir::printed_lines;
pub use from_dir::story_from_dir;

use self::attempt::tell_attempt;
use self::history::{Attempt, History, Rerun};
use crate::lines::lost_sentence;
use crate::{calls, units};
use eyas_core::log::PrintedLine;
use eyas_terms::TaskPhase;
use eyas_terms::array::{Command, TaskSpec};
use eyas_terms::location::CatalogLocation;
use eyas_terms::*;
use eyas_text::{Shown, line_of, shown};
use std::collections::BTreeMap;
use std::fmt::Write;

/// All that is known of one task.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TaskStory {
    pub task: TaskId,
    /// The user's own name for it.
    pub user_id: String,
    pub run: RunId,
    pub state: TaskPhase,
    /// Why it waits, if it waits.
    pub reason: Option<String>,
    /// When it was submitted, if that is known.
    pub submitted: Option<Timestamp>,
    /// Lines of the event log that speak of it, oldest first. Others do no harm; joins and losses of its
    /// executors and headers of later lives make the story better.
    pub log_lines: Vec<String>,
    /// Names of executors, of the last dispatcher process.
    pub executors: BTreeMap<u32, String>,
    /// The dispatcher processes: when each began, and names of its executors. Empty: the lines themselves say when an executor's
    /// name changes.
    pub lives: Vec<(Timestamp, BTreeMap<u32, String>)>,
    /// Locations of objects.
    pub objects: BTreeMap<u32, String>,
    pub printed: Vec<PrintedLine>,
    /// The task in full, if it is known.
    pub spec: Option<TaskSpec>,
    /// Patterns that its stage takes part in, as sentences.
    pub patterns: Vec<String>,
}

/// Tells the story. Ends with a line end.
pub fn explain_lines(story: &TaskStory) -> String {
    let mut history = History::of(story);
    // The event log is ahead of the journal, and an end that the journal does not have may not be reported.
    if story.state == TaskPhase::Ending {
        history.ended = None;
    }
    let mut text = String::new();
    headline(story, &history, &mut text);
    if let Some(spec) = &story.spec {
        let command = match calls::without_call(&spec.command) {
            Some((before, n_bytes)) => {
                let before = command_line(&Command::Exec(before.to_vec()));
                format!("{before} and a packed call of {n_bytes} bytes")
            }
            None => command_line(&spec.command),
        };
        let _ = writeln!(text, "Command: {}", line_of(&command));
    }
    for pattern in &story.patterns {
        let _ = writeln!(text, "Pattern: {}.", line_of(pattern));
    }
    why_it_was_revived(story, &history, &mut text);
    where_it_was_rerun(&history, &mut text);
    for (i, attempt) in history.attempts.iter().enumerate() {
        text.push('\n');
        tell_attempt(story, &history, i, attempt, &mut text);
    }
    if let Some(lost) = &history.lacks {
        let _ = writeln!(text, "\nNote: {}.", lost_sentence(lost));
    }
    text
}

fn why_it_was_revived(story: &TaskStory, history: &History, text: &mut String) {
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
}

fn where_it_was_rerun(history: &History, text: &mut String) {
    for Rerun { executor, end, .. } in &history.reruns {
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
}

fn headline(story: &TaskStory, history: &History, text: &mut String) {
    let n = history.attempts.len() as u64;
    let _ = write!(text, "Task {} (number {}, run {}) ", shown(&story.user_id), story.task, story.run);
    let after = |t: Timestamp| match story.submitted {
        Some(submitted) => format!(", {} after it was submitted", units::duration(t.since_ns(submitted))),
        None => String::new(),
    };
    match (&history.ended, story.state) {
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
        (None, TaskPhase::Submitting) => {
            text.push_str("is not accepted yet: its submission is still arriving.\n")
        }
        (None, TaskPhase::Waiting | TaskPhase::Ready) => {
            let _ = match (&story.reason, story.state) {
                (Some(what), TaskPhase::Waiting) => writeln!(text, "waits for {}.", sentence(what)),
                (None, TaskPhase::Waiting) => writeln!(text, "waits for other tasks."),
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
            let at = history.attempts.last().map_or("an executor", |a| &a.executor_name);
            let what = match state {
                TaskPhase::Running => format!("is running on {at}"),
                TaskPhase::Landing => format!("ran well on {at}; its outputs are on their way home"),
                TaskPhase::Reserved if history.attempts.last().is_some_and(Attempt::is_alone) => format!(
                    "was given to {at} and has not started yet: the disk there may have been too full for it and others at \
                     once, so it waits until all others on {at} have ended, and runs alone"
                ),
                TaskPhase::Reserved => format!(
                    "was given to {at} and has not started yet: its inputs are on their way, or it waits for a slot"
                ),
                TaskPhase::Ending => format!("has ended on {at}, and waits for that to be in the journal"),
                TaskPhase::Done | TaskPhase::Failed | TaskPhase::Cancelled => {
                    format!("is {state}; the log has nothing about its end")
                }
                TaskPhase::Submitting | TaskPhase::Waiting | TaskPhase::Ready | TaskPhase::Unfinished => {
                    "had not ended when the log did".into()
                }
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
        FailureKind::CutOff => "ask for nodes with a longer `--walltime`",
        FailureKind::InputUnmakeable => {
            "the packed file may be damaged: try the same by hand, and submit again"
        }
        FailureKind::InputChanged => "submit again to use what is there now",
        FailureKind::InputModified => {
            "the program writes to its input or takes no links; let it work on a copy"
        }
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
