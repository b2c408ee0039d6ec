//! A batch system as `eyas at-data` uses it: its nodes, and one job that is submitted, looked at and cancelled.

use crate::fault::bad;
use crate::{Exit, Fault};
use eyas_text::line_of;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A node of a batch system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: String,
    /// Its name, its host's name and its address, as far as they differ.
    pub names: Vec<String>,
    /// Whether jobs can start on it.
    pub takes_jobs: bool,
    /// Processors or slots that jobs have.
    pub n_busy: u32,
}

/// What a batch system says of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    Waits,
    Runs,
    /// It ended, and the batch system knows of nothing that went wrong.
    Ended,
    /// Something went wrong, in the batch system's words.
    Failed(String),
    /// The batch system knows of no such job any more.
    Gone,
}

/// Where a job should start.
pub struct Target<'a> {
    pub hosts: &'a [String],
    /// All hosts there are.
    pub all: &'a [Node],
    /// Whether it may start elsewhere where these are not free.
    pub is_soft: bool,
}

/// How a job is submitted.
pub struct Job<'a> {
    /// The folder in which it starts and prints, into `stdout` and `stderr`.
    pub folder: &'a Path,
    /// What [`Scheduler::aim`] said.
    pub aim: &'a [String],
    /// Options of the user.
    pub options: &'a [String],
    pub script: &'a str,
}

pub trait Scheduler: Send + Sync {
    /// Its name for people.
    fn name(&self) -> &'static str;

    /// All nodes, by name.
    fn nodes(&self) -> Result<Vec<Node>, Fault>;

    /// Options that aim a job at some hosts; none, where any host will do.
    fn aim(&self, target: &Target) -> Vec<String>;

    /// In words, what becomes of a job that was aimed so that it may start elsewhere.
    fn soft_words(&self) -> String;

    /// Whether options of a user say on which hosts a job may run.
    fn names_hosts(&self, options: &[String]) -> bool;

    /// What lines of a batch script begin with that are for it.
    fn directive(&self) -> &'static str;

    /// Submits a job; returns its number.
    fn submit(&self, job: &Job) -> Result<String, Fault>;

    /// Lets a job that has waited for a while start on any host, if it was aimed so that it may. One that has started is left as it is.
    fn release(&self, job: &str) {
        let _ = job;
    }

    /// # Errors
    /// It does not answer; it may later.
    fn state(&self, job: &str) -> Result<State, Fault>;

    /// Asks a job to end, or removes one that waits.
    fn cancel(&self, job: &str);
}

/// Why a command of a batch system gave no answer.
pub struct Refusal {
    /// What it said, its first word among it.
    pub said: String,
    pub fault: Fault,
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        refusal.fault
    }
}

/// Runs a command of a batch system. Passwords of the catalog's database do not travel with a job.
pub fn ask(
    system: &str,
    words: &[&str],
    input: Option<&str>,
    reason_of: fn(&str) -> &str,
) -> Result<String, Refusal> {
    let failed = |said: String, fault: Fault| Refusal { said, fault };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_remove("EYAS_DATA").env_remove("PGPASSWORD");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        let what = format!("cannot run `{}`, a command of {system}: {}", words[0], crate::print::reason(&error));
        let hint = "--mode late and --mode scheduled need the commands of Slurm or Grid Engine on the PATH; --mode local needs none";
        failed(String::new(), bad(what).hint(hint))
    })?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A command that does not read its script says why itself.
        let _ = stdin.write_all(text.as_bytes());
    }
    let done = child.wait_with_output().map_err(|error| failed(String::new(), error.into()))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let exit = if input.is_some() { Exit::BadInput } else { Exit::Cluster };
    let fault = Fault::new(exit, format!("`{}` refused: {}", words[0], line_of(reason_of(&said))));
    Err(failed(said, fault))
}
