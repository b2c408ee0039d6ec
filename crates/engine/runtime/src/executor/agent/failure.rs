//! What the end of a program means for its task, in words for users.

use super::runner;
use eyas_core::event::DiskSeen;
use eyas_session::executor::Ended;
use eyas_terms::array::{CONTAINER_NAME, Command, TaskSpec};
use eyas_terms::{Failure, FailureKind};
use eyas_text::shown;

/// How a slot process begins to say which part of a pipe failed.
const PART: &str = "eyas: part ";

/// Takes the line that says which part of a pipe failed out of what the program printed: the failure says it.
pub(super) fn drop_part(printed: &mut runner::Captured) {
    let kept = if printed.tail.0.is_empty() { &mut printed.head.0 } else { &mut printed.tail.0 };
    let begin = kept.trim_ascii_end().iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if kept[begin..].starts_with(PART.as_bytes()) {
        printed.total_bytes -= (kept.len() - begin) as u64;
        kept.truncate(begin);
    }
}

/// Whether the program ended well, and made the outputs that its task declares. A program that takes no file with several links, as
/// inputs are, gets copies of them in another attempt.
pub(super) fn result_of(report: &runner::RunReport, task: &TaskSpec) -> Result<(), Failure> {
    own_result_of(report, task).map_err(|failure| match refuses_links(report) {
        false => failure,
        true => Failure {
            kind: FailureKind::InputModified,
            message: format!(
                "{}; the program takes no file that has several links, as its inputs have here, so the task is repeated with \
                 copies of its inputs",
                failure.message
            ),
        },
    })
}

/// Whether the program says that it takes no files like its inputs, which are links to files of the cache. `gzip`, `bzip2` and
/// `xz` say so.
fn refuses_links(report: &runner::RunReport) -> bool {
    let says_so = |kept: &[u8]| {
        let text = String::from_utf8_lossy(kept).to_lowercase();
        [" other link", "more than one hard link"].iter().any(|words| text.contains(words))
    };
    report.inputs.contains(&runner::LinkKind::HardLink)
        && (says_so(&report.stderr.head.0) || says_so(&report.stderr.tail.0))
}

fn own_result_of(report: &runner::RunReport, task: &TaskSpec) -> Result<(), Failure> {
    failure_of(report, task)?;
    for (state, (name, location)) in report.outputs.iter().zip(&task.outputs) {
        let what = match state {
            runner::OutputState::File { .. } | runner::OutputState::Directory { .. } => continue,
            runner::OutputState::Missing if names(&task.command, name) => "is not there".to_string(),
            runner::OutputState::Missing => {
                "is not there, and the command does not name it: in a map, {out} stands for its name"
                    .to_string()
            }
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

/// Whether a command has this name in it.
fn names(command: &Command<String>, name: &str) -> bool {
    match command {
        Command::Exec(words) => words.iter().any(|word| word.contains(name)),
        Command::Shell(line) => line.contains(name),
    }
}

/// How a program ended, for the session to judge.
pub(super) fn ended(exit: &runner::ExitKind) -> Ended {
    match exit {
        runner::ExitKind::Signaled { signal, .. } => Ended::Signaled(*signal),
        runner::ExitKind::Exited(status) => Ended::Exited(*status),
        runner::ExitKind::Unanswered { status } => Ended::Exited((*status).max(1)),
        runner::ExitKind::Cancelled => Ended::Cancelled,
        _ => Ended::Other,
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

/// The slot process of a program was ended by a signal each time that it ran the program, so often that others are hardly the reason.
pub(super) fn of_ended_slots(signal: i32, n_times: u32) -> Failure {
    let message = format!(
        "its slot's process was ended by signal {signal} ({}) each of the {n_times} times that it ran the program, which most likely \
         ended it",
        signal_name(signal)
    );
    Failure { kind: FailureKind::Signal(signal), message }
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
        match last.next().map(|line| (first_line(&report.stderr), line)) {
            Some((Some(first), last)) if first != last => {
                format!("{text}; its first words: {first}; its last words: {last}")
            }
            Some((_, last)) => format!("{text}; its last words: {last}"),
            None => match last_lines(&report.stdout).next() {
                Some(last) => format!("{text}; its last words: {last}"),
                None => text,
            },
        }
    };
    let (kind, message) = match &report.exit {
        ExitKind::Exited(0) => return Ok(()),
        ExitKind::Exited(code) => {
            (FailureKind::ExitCode(*code), with_last_words(format!("the program ended with status {code}")))
        }
        ExitKind::Unanswered { status } => {
            let text = format!("the program ended without an answer, with status {status}");
            // No status of a program that has failed is 0.
            (FailureKind::ExitCode((*status).max(1)), with_last_words(text))
        }
        ExitKind::HungUp => {
            let text = "the program closed its connection to its slot, so it could not answer, and was ended";
            (FailureKind::ExitCode(1), with_last_words(text.into()))
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
    let is_ended = matches!(report.exit, ExitKind::Exited(_));
    let is_contained = task.inputs.iter().any(|(name, _)| name == CONTAINER_NAME);
    let message = match is_ended && is_contained && wants_other_user(report) {
        true => format!("{message}; {ONE_USER}"),
        false => message,
    };
    let message = match is_ended && stumbled_over_a_return(report) {
        true => format!(
            "{message}; a line of a script ends in a carriage return (\\r), as in files of Windows: {}",
            eyas_runner::TAKE_RETURNS_OUT
        ),
        false => message,
    };
    Err(Failure { kind, message })
}

/// Why `su` and its like fail in containers.
const ONE_USER: &str = "a program in a container has one user for all that it does, so `su`, `sudo` and the bits setuid and setgid \
                        have no effect there: run the command itself";

/// Whether the program says that it could not become another user, as `su`, `sudo` and their like do.
fn wants_other_user(report: &runner::RunReport) -> bool {
    const SAID: [&str; 9] = [
        "must be suid",
        "must be setuid",
        "effective uid is not 0",
        "set groups",
        "setgroups",
        "set user id",
        "setuid",
        "set group id",
        "setgid",
    ];
    last_lines(&report.stderr).next().is_some_and(|line| {
        let line = line.to_lowercase();
        SAID.iter().any(|words| line.contains(words))
    })
}

/// Whether the program says that it looked for something whose name ends in a carriage return, as `env` and shells do of scripts with
/// lines of Windows, or that it got such an option.
fn stumbled_over_a_return(report: &runner::RunReport) -> bool {
    let missing = [": not found", "command not found", "no such file"];
    // As it is printed, and as `env` and bash write it.
    let names = ["\r:", "\r'", "\r’", "\\r'", "\\r’"];
    let says_so = |line: &str| {
        let low = line.to_lowercase();
        let lacks = missing.iter().any(|words| low.contains(words));
        lacks && names.iter().any(|name| line.contains(name))
            || low.contains("option") && line.ends_with("-\r")
    };
    [&report.stderr.head.0, &report.stderr.tail.0]
        .into_iter()
        .any(|kept| String::from_utf8_lossy(kept).split('\n').any(says_so))
}

/// Replaces numbers in the failure's message by names, as the state machine knows only numbers.
pub(super) fn explain_failure(failure: &mut Failure, task: &TaskSpec) {
    let wrote = failure.message.starts_with("the program wrote to ");
    if failure.kind == FailureKind::InputModified && wrote && task.inputs.len() == 1 {
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

const PYTHON: &str = "Traceback (most recent call last)";

/// The last two lines that say what was wrong, the last one first; where none does, the last lines with words.
fn last_lines(captured: &runner::Captured) -> std::iter::Peekable<std::vec::IntoIter<String>> {
    let kept = if captured.tail.0.is_empty() { &captured.head.0 } else { &captured.tail.0 };
    let text = String::from_utf8_lossy(kept);
    let lines = || text.split('\n').rev().map(plain).filter(|line| !line.is_empty());
    let mut last: Vec<String> = lines().filter(|line| !is_of_trace(line)).take(2).collect();
    if last.is_empty() {
        last = lines().take(2).collect();
    }
    last.iter().map(|line| shortened(line)).collect::<Vec<_>>().into_iter().peekable()
}

/// The first line that says what was wrong; none where Python's traces begin, whose last line says it.
fn first_line(captured: &runner::Captured) -> Option<String> {
    let text = String::from_utf8_lossy(&captured.head.0);
    // A line that is not whole is none.
    let whole = if captured.tail.0.is_empty() { text.len() } else { text.rfind('\n').unwrap_or(0) };
    let says = |line: &String| line.starts_with(PYTHON) || !is_of_trace(line) && !line.starts_with(PART);
    let first = text[..whole].split('\n').map(plain).find(says);
    first.filter(|line| !line.starts_with(PYTHON)).map(|line| shortened(&line))
}

fn shortened(line: &str) -> String {
    let short: String = line.chars().take(200).collect();
    if short.len() < line.len() { format!("{short}…") } else { short }
}

/// A line as a terminal leaves it: what was written over is gone, and so are colours.
fn plain(line: &str) -> String {
    let line = line.trim_end().rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default();
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let behind = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';' || c == ':');
        match behind.strip_prefix(['m', 'K']) {
            Some(behind) => text += behind,
            None => text.extend(["\u{1b}[", part]),
        }
    }
    text.trim().to_owned()
}

/// Whether a line has no words, or says where a program was and not what was wrong.
fn is_of_trace(line: &str) -> bool {
    const BEGINNINGS: [&str; 5] =
        [PYTHON, "note: run with `RUST_BACKTRACE", "Execution halted", "Node.js v", "... "];
    let is_frame = |mark: &str, next: fn(char) -> bool| {
        line.strip_prefix(mark).is_some_and(|rest| rest.starts_with(next))
    };
    !line.contains(char::is_alphanumeric)
        || is_frame("#", |c| c.is_ascii_digit())
        || line.starts_with("at ") && line.ends_with(')')
        || line.ends_with("acktrace:")
        || line.ends_with("Backtrace for this error:")
        || BEGINNINGS.iter().any(|words| line.starts_with(words))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn report(exit: runner::ExitKind, stderr: &str, input: runner::LinkKind) -> runner::RunReport {
        let stderr = runner::Captured {
            head: runner::ByteString(stderr.as_bytes().to_vec()),
            tail: runner::ByteString(vec![]),
            total_bytes: stderr.len() as u64,
        };
        runner::RunReport {
            key: 1,
            exit,
            times: runner::Times::default(),
            usage: runner::Usage::default(),
            stdout: runner::Captured::default(),
            stderr,
            printed_at: None,
            outputs: vec![],
            inputs: vec![input],
            free_bytes: None,
            disk_was_full: false,
            written_bytes: None,
            all_written_bytes: None,
            inputs_modified: vec![],
            n_leftovers_killed: 0,
            n_unkillable: 0,
            new_files: None,
            sandbox: None,
            kept: false,
        }
    }

    #[test]
    fn a_script_with_lines_of_windows_is_said_to_be_one() {
        let task = TaskSpec::new("t".into(), Command::Shell("./a".into()));
        let said = |text: &str| {
            let report = report(runner::ExitKind::Exited(127), text, runner::LinkKind::Copy);
            result_of(&report, &task).unwrap_err().message
        };
        for text in [
            "/usr/bin/env: ‘python3\\r’: No such file or directory\n/usr/bin/env: use -[v]S to pass options in shebang lines\n",
            "/usr/bin/env: 'python3\\r': No such file or directory\n",
            "env: can't execute 'python3\r': No such file or directory\n",
            "./a: 2: foo\r: not found\n",
            "a.sh: line 2: $'foo\\r': command not found\n",
            "Unknown option: -\r\nusage: python3\n",
            "/bin/sh: 0: Illegal option -\r\n",
        ] {
            let message = said(text);
            assert!(message.contains("carriage return (\\r)") && message.contains("sed -i"), "{message}");
        }
        for text in ["10 %\r20 %\rfoo: not found\n", "foo: not found\r\n", "no option\r\n", "a\r: wrong\n"] {
            assert!(!said(text).contains("carriage"), "{text}");
        }
    }

    #[test]
    fn a_program_that_takes_no_links_gets_copies() {
        use runner::{ExitKind, LinkKind};
        let task = TaskSpec::new("t".into(), Command::Shell("gzip a".into()));
        let said = [
            "gzip: a has 1 other link -- file ignored\n",
            "bzip2: Input file a has 2 other links.\n",
            "xz: a: Input file has more than one hard link, skipping\n",
        ];
        for said in said {
            let failure = |input| result_of(&report(ExitKind::Exited(2), said, input), &task).unwrap_err();
            assert_eq!(failure(LinkKind::HardLink).kind, FailureKind::InputModified, "{said}");
            assert!(failure(LinkKind::HardLink).message.contains("with copies of its inputs"));
            assert_eq!(failure(LinkKind::Copy).kind, FailureKind::ExitCode(2), "it is tried once");
        }
        assert!(result_of(&report(ExitKind::Exited(0), said[0], LinkKind::HardLink), &task).is_ok());
    }

    #[test]
    fn the_first_and_the_last_words_say_what_was_wrong() {
        let task = TaskSpec::new("t".into(), Command::Shell("./a".into()));
        let said = |text: &str| {
            let report = report(runner::ExitKind::Exited(2), text, runner::LinkKind::Copy);
            let message = result_of(&report, &task).unwrap_err().message;
            message.strip_prefix("the program ended with status 2").unwrap().to_owned()
        };
        let lines = |n: usize| (1..=n).map(|i| format!("line {i}\n")).collect::<String>();
        let python = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    f()\n\
                      ValueError: no star\n";
        let fortran = "At line 5 of file a.f90 (unit = 10)\nFortran runtime error: Cannot open file 'in'\n\n\
                       Error termination. Backtrace:\n#0  0x7f1 in open\n#1  0x55 in main\n#2  0x7f ???\n";
        let signal = "\nProgram received signal SIGSEGV: Segmentation fault - invalid memory reference.\n\n\
                      Backtrace for this error:\n#0  0x7f3\n";
        let java = "Exception in thread \"main\" java.lang.Error: bad\n\tat A.f(A.java:5)\n\tat A.main(A.java:2)\n\t... 3 more\n";
        let rust = "thread 'main' panicked at a.rs:2:5:\nindex out of bounds\n\
                    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        let first_and_last =
            |first: &str, last: &str| format!("; its first words: {first}; its last words: {last}");
        for (text, expected) in [
            (lines(1), "; its last words: line 1".into()),
            (lines(2), first_and_last("line 1", "line 2")),
            (lines(3), first_and_last("line 1", "line 3")),
            (lines(50), first_and_last("line 1", "line 50")),
            (" \n".into(), String::new()),
            ("same\nsame\n".into(), "; its last words: same".into()),
            ("-----\nabort: 3\n-----\n".into(), "; its last words: abort: 3".into()),
            ("=====\n".into(), "; its last words: =====".into()),
            (python.into(), "; its last words: ValueError: no star".into()),
            (format!("a warning\n{python}"), first_and_last("a warning", "ValueError: no star")),
            (
                fortran.into(),
                first_and_last(
                    "At line 5 of file a.f90 (unit = 10)",
                    "Fortran runtime error: Cannot open file 'in'",
                ),
            ),
            (
                signal.into(),
                "; its last words: Program received signal SIGSEGV: Segmentation fault - invalid \
                              memory reference."
                    .into(),
            ),
            (java.into(), "; its last words: Exception in thread \"main\" java.lang.Error: bad".into()),
            (rust.into(), first_and_last("thread 'main' panicked at a.rs:2:5:", "index out of bounds")),
            ("\r  1 %\r 50 %\r 99 %\r\nno room\n".into(), first_and_last("99 %", "no room")),
            ("\r  1 %\r 50 %\r     \rno room\n".into(), "; its last words: no room".into()),
            (
                "\u{1b}[1;31merror\u{1b}[0m: no \u{1b}[38;5;9mstar\u{1b}[K\n".into(),
                "; its last words: error: no star".into(),
            ),
            ("\u{1b}[2Jgone\n".into(), "; its last words: \u{1b}[2Jgone".into()),
            ("x".repeat(300) + "\nend", first_and_last(&("x".repeat(200) + "…"), "end")),
        ] {
            assert_eq!(said(&text), expected, "{text}");
        }
        // The first line is not taken for whole where its end was not kept.
        let mut cut = report(runner::ExitKind::Exited(2), "a line that goes", runner::LinkKind::Copy);
        cut.stderr.tail = runner::ByteString(b"on\nthe end\n".to_vec());
        assert!(result_of(&cut, &task).unwrap_err().message.ends_with("status 2; its last words: the end"));
    }

    #[test]
    fn a_part_of_a_pipe_is_named_once() {
        let part = "eyas: part 1 of the 2 of a pipe, false, ended with status 1\n";
        let text = format!("own words\n{part}");
        let mut report = report(runner::ExitKind::Exited(1), &text, runner::LinkKind::Copy);
        let task = TaskSpec::new("t".into(), Command::Shell("false | cat".into()));
        let failure = result_of(&report, &task).unwrap_err();
        assert!(failure.message.contains("part 1 of the 2 of a pipe"), "{}", failure.message);
        drop_part(&mut report.stderr);
        assert_eq!((&report.stderr.head.0[..], report.stderr.total_bytes), (&b"own words\n"[..], 10));
        drop_part(&mut report.stderr);
        assert_eq!(report.stderr.total_bytes, 10);
    }
}
