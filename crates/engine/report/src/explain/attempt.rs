//! One attempt in words: why it ran where it ran, where its inputs came from, where the time went, how it ended.

use super::history::{Attempt, History};
use super::{TaskStory, sentence};
use crate::read::sum;
use crate::{calls, units};
use eyas_core::event::*;
use eyas_core::log::{PrintedLine, PrintedStream};
use eyas_core::placement::Reason;
use eyas_terms::*;
use eyas_text::{line_of, size};
use std::fmt::Write;

/// Lines of output that are shown of a failed attempt.
const OUTPUT_LINES_SHOWN: usize = 12;
/// Inputs that are named one by one.
const INPUTS_SHOWN: usize = 20;
/// Characters of each of their names.
const INPUT_CHARS_MAX: usize = 300;

pub(super) fn tell_attempt(story: &TaskStory, history: &History, i: usize, a: &Attempt, text: &mut String) {
    let is_last = i + 1 == history.attempts.len();
    let _ = writeln!(text, "Attempt {} on {}{}", a.attempt, a.executor_name, history.which(i));
    if let Some(assignment) = &a.assignment {
        why_there(&assignment.why, &a.executor_name, text);
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
        what_it_made(a, text);
        where_time_went(story, history, i, a, report, text);
    }
    how_it_ended(history, is_last, a, text);
    let failed = match (&a.report, &a.home) {
        (Some(report), _) if matches!(report.outcome, Outcome::Failed(_)) => true,
        (_, Some((_, Err(_)))) => true,
        _ => false,
    };
    if failed {
        match history.printed_by(i, &story.printed) {
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
    for (input, i) in shown.iter().zip(0..) {
        let waited = units::duration(input.wait_ns);
        let from = match input.outcome {
            CacheOutcome::LocalHit => "in the node's cache already".to_string(),
            CacheOutcome::RemoteHit { from } => {
                format!("from the cache of {} in {waited}", a.peers[&from.0])
            }
            CacheOutcome::Joined => format!("another task was fetching it; waited {waited} for that"),
            CacheOutcome::Miss => format!("from home in {waited}"),
            CacheOutcome::Direct => format!("from home in {waited}, for this attempt only"),
            CacheOutcome::Made => format!("made on this node in {waited}"),
            CacheOutcome::InPlace => "read in place, home is the node's own disk".to_string(),
        };
        let from = match report.in_memory.contains(&i) {
            true => format!("{from}; in memory when the program began"),
            false => from,
        };
        let from = match a.named.contains(&input.object.0) {
            true => format!("{from}; named by the program, not declared"),
            false => from,
        };
        let text_of_size = size(input.size_bytes);
        let _ = writeln!(text, "    {:<width$}  {text_of_size:>10}  {from}", name(input.object));
    }
    if report.inputs.len() > INPUTS_SHOWN {
        let rest = &report.inputs[INPUTS_SHOWN..];
        let bytes = sum(rest.iter().map(|i| i.size_bytes));
        let _ = writeln!(text, "    and {} more, {}", rest.len(), size(bytes));
    }
}

/// The files that nobody declared.
fn what_it_made(a: &Attempt, text: &mut String) {
    if a.made.is_empty() {
        return;
    }
    text.push_str("  Made, and not declared:\n");
    for location in a.made.iter().take(INPUTS_SHOWN) {
        let _ = writeln!(text, "    {}", line_of(location).at_most(INPUT_CHARS_MAX));
    }
    if a.made.len() > INPUTS_SHOWN {
        let _ = writeln!(text, "    and {} more", a.made.len() - INPUTS_SHOWN);
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
            n => format!(", at most {} of memory", size(n)),
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
                        size(bytes)
                    ),
                };
            }
        },
        (None, None) if a.cancel_asked.is_some() => {
            text.push_str("  It was asked to stop; its executor has not answered.\n");
        }
        (None, None) if history.ended.is_none() => {
            text.push_str("  It has not ended yet.\n");
            if let Some(after_ns) = a.silent_after_ns() {
                let _ = writeln!(
                    text,
                    "  {} fell silent {} after the attempt began. If it does not come back in time, the task is tried again.",
                    a.executor_name,
                    units::duration(after_ns)
                );
            }
            if let Some(why) = &a.leaving {
                let _ = writeln!(text, "  {} is about to end because {why}.", a.executor_name);
            }
        }
        (None, None) => {}
    }
}

fn what_it_printed(printed: &PrintedLine, text: &mut String) {
    let mut any = false;
    for (name, stream) in [("standard error", &printed.stderr), ("standard output", &printed.stdout)] {
        let lines = last_lines(stream);
        if lines.is_empty() || calls::is_answer(&stream.head.0) {
            continue;
        }
        any = true;
        let _ = writeln!(text, "  The end of its {name} ({} in all):", size(stream.total_bytes));
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
    let (head, tail) = (&stream.head.0[..], &stream.tail.0[..]);
    let gap = match stream.total_bytes > (head.len() + tail.len()) as u64 {
        true if head.ends_with(b"\n") => "…\n",
        true => "\n…\n",
        false => "",
    };
    let whole = [head, gap.as_bytes(), tail].concat();
    let whole = String::from_utf8_lossy(&whole);
    let lines: Vec<&str> = whole.trim_end().lines().collect();
    let from = lines.len().saturating_sub(OUTPUT_LINES_SHOWN);
    lines[from..].iter().map(|line| line_of(&line.replace('\t', "    ")).to_string()).collect()
}
