//! What the end of a program means for its task, in words for users.

use super::runner;
use eyas_core::array::TaskSpec;
use eyas_core::event::DiskSeen;
use eyas_core::{Failure, FailureKind};
use eyas_text::shown;

/// How a slot process begins to say which part of a pipe failed.
const PART: &str = "eyas: part ";

/// Whether the program ended well, and made the outputs that its task declares.
pub(super) fn result_of(report: &runner::RunReport, task: &TaskSpec) -> Result<(), Failure> {
    failure_of(report, task)?;
    for (state, (name, location)) in report.outputs.iter().zip(&task.outputs) {
        let what = match state {
            runner::OutputState::File { .. } | runner::OutputState::Directory { .. } => continue,
            runner::OutputState::Missing => "is not there".to_string(),
            runner::OutputState::NotAFile { what } => format!("is {what}"),
        };
        let message = format!(
            "the program ended well, but its declared output {name} (for {location}) {what}",
            name = shown(name),
            location = shown(location)
        );
        return Err(Failure { kind: FailureKind::OutputMissing, message });
    }
    Ok(())
}

/// Whether the program may have been ended by a signal that is meant for all processes of this node's job: batch systems send it
/// to programs and to this process, and which of them gets it first is a matter of chance.
pub(super) fn may_be_of_all(exit: &runner::ExitKind) -> bool {
    const SENT: [i32; 7] = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGKILL,
        libc::SIGXCPU,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ];
    match exit {
        runner::ExitKind::Signaled { signal, .. } => SENT.contains(signal),
        // As shells and many programs say it.
        runner::ExitKind::Exited(status) => SENT.contains(&(status - 128)),
        _ => false,
    }
}

/// What a program's own failure is where this node was told to end while it ran: weather, as the signal may have been the reason.
pub(super) fn of_ending_node(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::ExitCode(_) | FailureKind::Signal(_) | FailureKind::OutputMissing => {
            let message = format!("the node was told to end while the program ran; {}", failure.message);
            Failure { kind: FailureKind::Node, message }
        }
        _ => failure,
    }
}

/// Whether the program was killed, as the kernel does where memory is short.
pub(super) fn was_killed(exit: &runner::ExitKind) -> bool {
    match exit {
        runner::ExitKind::Signaled { signal, .. } => *signal == libc::SIGKILL,
        // As shells say it.
        runner::ExitKind::Exited(status) => *status == 128 + libc::SIGKILL,
        _ => false,
    }
}

/// The same for a program that was killed when the kernel ended a process for lack of memory.
pub(super) fn of_lack_of_memory(failure: Failure, node: &str) -> Failure {
    let message = format!(
        "{}; just then the kernel ended a process for lack of memory on the node {}: give the tasks the memory that they need \
         (`memory` in a list, --task-memory), so that fewer run at once",
        failure.message,
        shown(node)
    );
    Failure { message, ..failure }
}

/// Where a container could not be made, the failure says on which node.
pub(super) fn of_container(failure: Failure, report: &runner::RunReport, node: &str) -> Failure {
    match &report.exit {
        runner::ExitKind::NotStarted { kind: runner::NotStartedKind::NoContainer, .. } => {
            let message = format!("{} (the node is {})", failure.message, shown(node));
            Failure { message, ..failure }
        }
        _ => failure,
    }
}

/// Whether the program ended well.
fn failure_of(report: &runner::RunReport, task: &TaskSpec) -> Result<(), Failure> {
    use runner::{ExitKind, NotStartedKind, SetupKind};
    let with_last_words = |text: String| {
        let mut last = last_lines(&report.stderr);
        let part = last.next_if(|line| line.starts_with(PART)).map(|line| line.replacen("eyas: ", "", 1));
        let text = match part {
            Some(part) => format!("{text}: {part}"),
            None => text,
        };
        let words = last.next().or_else(|| last_lines(&report.stdout).next());
        match words {
            Some(line) => format!("{text}; its last words: {line}"),
            None => text,
        }
    };
    let (kind, message) = match &report.exit {
        ExitKind::Exited(0) => return Ok(()),
        ExitKind::Exited(code) => {
            (FailureKind::ExitCode(*code), with_last_words(format!("the program ended with status {code}")))
        }
        ExitKind::Signaled { signal, core } => {
            let core = if *core { ", core dumped" } else { "" };
            let text = format!("the program was ended by signal {signal} ({}{core})", signal_name(*signal));
            (FailureKind::Signal(*signal), with_last_words(text))
        }
        ExitKind::OverWalltime => {
            let limit = task.walltime_ns.unwrap_or(0) as f64 / 1e9;
            (
                FailureKind::Walltime,
                format!("the program ran longer than its walltime of {limit} s and was ended"),
            )
        }
        ExitKind::OverMemory { peak_bytes } => {
            let limit = task.memory_bytes.unwrap_or(0);
            let text = format!(
                "the program used {} of memory, more than its limit of {}, and was ended",
                mebibytes(*peak_bytes),
                mebibytes(limit)
            );
            (FailureKind::Memory, text)
        }
        // The state machine did not ask for it, or it would know the attempt as cancelled.
        ExitKind::Cancelled => (FailureKind::Node, "the program was ended on this node".to_string()),
        ExitKind::NotStarted { kind: NotStartedKind::NoResources, message } => {
            (FailureKind::Node, message.clone())
        }
        ExitKind::NotStarted { message, .. } => (FailureKind::NotStarted, message.clone()),
        ExitKind::SetupFailed { kind: SetupKind::BadName, message } => {
            (FailureKind::NotStarted, message.clone())
        }
        ExitKind::SetupFailed { message, .. } => (FailureKind::Node, message.clone()),
    };
    Err(Failure { kind, message })
}

/// Replaces numbers in the failure's message by names, as the state machine knows only numbers.
pub(super) fn explain_failure(failure: &mut Failure, task: &TaskSpec) {
    if failure.kind == FailureKind::InputModified && task.inputs.len() == 1 {
        failure.message = format!(
            "the program wrote to its input {}; the cached copy was dropped and the task is repeated with a private copy",
            shown(&task.inputs[0].0)
        );
    }
}

/// What is known of the disk of a sandbox whose program failed or could not be started.
/// `written_before_bytes`: the bytes that programs of this node had written before.
pub(super) fn disk_of(report: &runner::RunReport, written_before_bytes: u64) -> Option<DiskSeen> {
    use runner::{ExitKind, SetupKind};
    if matches!(report.exit, ExitKind::SetupFailed { kind: SetupKind::NoSpace, .. }) {
        return Some(DiskSeen { free_bytes: 0, is_full: true, wrote_bytes: None, is_said: true });
    }
    // If the free bytes are not known, nothing follows from the written bytes.
    let wrote_bytes = report.all_written_bytes.zip(report.free_bytes);
    Some(DiskSeen {
        free_bytes: report.free_bytes?,
        is_full: report.disk_was_full,
        wrote_bytes: wrote_bytes.map(|(all, _)| all.saturating_sub(written_before_bytes)),
        is_said: is_said_full(report),
    })
}

/// Whether the program's output, or the way it ended, shows that there was no room. Writing to a page of a
/// mapped file for which the disk has no room is a bus error.
fn is_said_full(report: &runner::RunReport) -> bool {
    const SAYINGS: [&[u8]; 3] = [b"no space left on device", b"disk quota exceeded", b"errno 28"];
    let says = |text: &[u8]| {
        let text = text.to_ascii_lowercase();
        SAYINGS.iter().any(|saying| text.windows(saying.len()).any(|words| words == *saying))
    };
    let streams = [&report.stderr, &report.stdout];
    matches!(report.exit, runner::ExitKind::Signaled { signal: libc::SIGBUS, .. })
        || streams.into_iter().any(|stream| says(&stream.head.0) || says(&stream.tail.0))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The last two lines that say something, the last one first.
fn last_lines(captured: &runner::Captured) -> std::iter::Peekable<std::vec::IntoIter<String>> {
    let kept = if captured.tail.0.is_empty() { &captured.head.0 } else { &captured.tail.0 };
    let text = String::from_utf8_lossy(kept);
    let shortened = |line: &str| {
        let short: String = line.chars().take(200).collect();
        if short.len() < line.len() { format!("{short}…") } else { short }
    };
    let lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty()).take(2);
    lines.map(shortened).collect::<Vec<_>>().into_iter().peekable()
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGABRT => "SIGABRT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGXCPU => "SIGXCPU",
        _ => "see kill -l",
    }
}
