//! A process of a cluster, or of one node: started with its output in a log, asked to end, and how it ended.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A process of the cluster.
pub struct Part {
    name: String,
    process: Child,
    /// Closing it ends the part.
    lifeline: Option<ChildStdin>,
    log: PathBuf,
}

impl Part {
    /// Starts `exe` with `args`; its output goes to `NAME.log` in `log_dir`. A part that is `tied` ends with
    /// this process.
    pub fn start(
        exe: &Path,
        log_dir: &Path,
        name: &str,
        args: &[String],
        tied: bool,
    ) -> Result<Part, PartError> {
        let log = log_dir.join(format!("{name}.log"));
        let start = || -> std::io::Result<Child> {
            let mut command = Command::new(exe);
            command.args(args);
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&log)?;
            command.stdout(Stdio::null()).stderr(file);
            if tied {
                command.arg("--until-stdin-closes").stdin(Stdio::piped());
            } else {
                command.stdin(Stdio::null());
            }
            // The part has its own process group: a ^C at the terminal is for us to handle, not for the
            // parts.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            // A part may outlive the script that started us. A lock or a pipe of the script's is not for it.
            eyas_runner::reaper::close_inherited(&mut command);
            command.spawn()
        };
        let mut process = start().map_err(|source| PartError { part: name.into(), source })?;
        let lifeline = process.stdin.take();
        Ok(Part { name: name.into(), process, lifeline, log })
    }

    /// Writes a line to the standard input of a part that is tied.
    pub fn write_line(&mut self, line: &str) -> std::io::Result<()> {
        let Some(stdin) = &mut self.lifeline else { return Ok(()) };
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the part prints goes there.
    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The status of the process that has ended; `None` if it still runs, or cannot be asked.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Whether it is known that the process still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Sends a signal to a process that has not ended.
    pub fn signal(&mut self, number: i32) {
        if self.find_end().is_none() {
            // SAFETY: sending a signal to a child that has not been waited for.
            unsafe { libc::kill(self.process.id() as i32, number) };
        }
    }

    /// How the part ended; `None` if it still runs.
    pub fn find_end(&mut self) -> Option<PartEnd> {
        let status = self.status()?;
        // A signal is the reason for the end, whatever the part printed before.
        let said = status.code().and_then(|_| last_words(&self.log));
        Some(said.unwrap_or_else(|| PartEnd::Seen(status.to_string())))
    }

    /// Closes the standard input of a part that is tied, whose end it is.
    pub fn let_go(&mut self) {
        drop(self.lifeline.take());
    }

    pub fn ask_to_end(&mut self) {
        self.let_go();
        self.signal(libc::SIGTERM);
    }

    /// Waits for the part's end until `deadline`, and then forces it.
    pub fn wait_until(&mut self, deadline: Instant) {
        while Instant::now() < deadline && self.runs() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a part of a cluster ended, as it stands in a sentence about the part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartEnd {
    /// The part's own error.
    Said(String),
    /// The last line of a part that named no error, or how its process ended.
    Seen(String),
}

impl PartEnd {
    /// The end of a part whose log is `text`; `None`: it says nothing.
    fn in_log(text: &str) -> Option<PartEnd> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        // A hint comes after the error that it belongs to.
        let last = lines.rev().find(|line| !line.starts_with("hint: "))?;
        Some(match last.strip_prefix("error: ") {
            Some(error) => PartEnd::Said(error.into()),
            None => PartEnd::Seen(last.into()),
        })
    }
}

impl fmt::Display for PartEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (PartEnd::Said(why) | PartEnd::Seen(why)) = self;
        f.write_str(why)
    }
}

/// A part of a cluster in a sentence: `the provider`, but `node2`.
pub fn in_words(part: &str) -> String {
    match part.ends_with(|last: char| last.is_ascii_digit()) {
        true => part.into(),
        false => format!("the {part}"),
    }
}

#[derive(thiserror::Error, Debug)]
#[error("cannot start {}: {source}", in_words(part))]
pub struct PartError {
    part: String,
    pub source: std::io::Error,
}

/// What a part's log says last.
fn last_words(log: &Path) -> Option<PartEnd> {
    PartEnd::in_log(&std::fs::read_to_string(log).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_part_is_its_reason_without_word_and_hint() {
        let said = "node2 joined\nerror: the disk is full\nhint: remove something\n\n";
        assert_eq!(PartEnd::in_log(said), Some(PartEnd::Said("the disk is full".into())));
        assert_eq!(PartEnd::in_log("a\n  \nlost 3\n"), Some(PartEnd::Seen("lost 3".into())));
        assert_eq!(PartEnd::in_log("\n"), None);
        assert_eq!(in_words("node2"), "node2");
    }
}
