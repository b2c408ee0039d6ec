//! Batch systems: the jobs and the nodes of Slurm and Grid Engine, and what a process in a job learns of it.
//!
//! Each is one file that implements [`BatchSystem`]: it builds commands and reads what they print.
//!
//! Not here: jobs in which executors run. They are submitted through Parsl, which knows more batch systems than these
//! (`python/src/eyas/provision`). Why the hosts of a job are chosen is not here either.

#![forbid(unsafe_code)]

mod grid_engine;
mod host;
mod slurm;

pub use grid_engine::GridEngine;
pub use host::nodes_on;
pub use slurm::Slurm;

use eyas_text::{line_of, reason, shown_path};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Variables of the environment that say which hosts a job has: a folded list, or a file.
pub const HOSTS_OF_SLURM: &str = "SLURM_JOB_NODELIST";
pub const HOSTS_OF_GRID_ENGINE: &str = "PE_HOSTFILE";
pub const HOSTS_OF_PBS: &str = "PBS_NODEFILE";

/// A node of a batch system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchNode {
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
    pub all: &'a [BatchNode],
    /// Whether it may start elsewhere where these are not free.
    pub is_soft: bool,
}

/// How a job is submitted.
pub struct Job<'a> {
    /// The folder in which it starts and prints, into `stdout` and `stderr`.
    pub folder: &'a Path,
    /// What [`BatchSystem::aim`] said.
    pub aim: &'a [String],
    /// Options of the user.
    pub options: &'a [String],
    pub script: &'a str,
}

/// One kind of batch system, through its commands.
pub trait BatchSystem: Send + Sync {
    /// Its name for people.
    fn name(&self) -> &'static str;

    /// All nodes, by name.
    fn nodes(&self) -> Result<Vec<BatchNode>>;

    /// Options that aim a job at some hosts; none, where any host will do.
    fn aim(&self, target: &Target) -> Vec<String>;

    /// In words, what becomes of a job that was aimed so that it may start elsewhere.
    fn soft_words(&self) -> String;

    /// Whether options of a user say on which hosts a job may run.
    fn names_hosts(&self, options: &[String]) -> bool;

    /// What lines of a batch script begin with that are for it.
    fn directive(&self) -> &'static str;

    /// Submits a job; returns its number.
    fn submit(&self, job: &Job) -> Result<String>;

    /// Lets a job that has waited for a while start on any host, if it was aimed so that it may. One that has started is left as it is.
    fn release(&self, job: &str) {
        let _ = job;
    }

    /// * `user`: whose job it is.
    ///
    /// # Errors
    /// It does not answer; it may later.
    fn state(&self, job: &str, user: &str) -> Result<State>;

    /// Asks a job to end, or removes one that waits.
    fn cancel(&self, job: &str);

    /// The hosts of the job that this process is in, each with the job's slots there where they are told; one may stand several
    /// times. `None`: it is in none.
    ///
    /// # Errors
    /// One sentence: the list cannot be read.
    fn hosts_here(&self, env: Env<'_>) -> Option<std::result::Result<Vec<(String, Option<u32>)>, String>>;

    /// The slots of the host that this process is on, as its job has them. `None`: it is in no job, or nobody says it.
    fn slots_here(&self, env: Env<'_>) -> Option<u32>;

    /// When the job ends that this process is in. `None`: it is in none, or nothing is known of an end.
    fn times_here(&self, env: Env<'_>) -> Option<Times>;

    /// What the batch system calls the host that this process is on. `None`: it does not say it.
    fn node_here(&self, env: Env<'_>) -> Option<String>;
}

/// Reads a variable of the environment.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a variable of this process.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// When a job began and will be ended, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    pub start_s: Option<u64>,
    pub end_s: u64,
}

/// Which batch system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Slurm,
    GridEngine,
}

impl Kind {
    /// Grid Engine where its commands are there and its settings were read, and else Slurm.
    pub fn found() -> Kind {
        match eyas_host::programs("qsub").next().is_some() && std::env::var_os("SGE_ROOT").is_some() {
            true => Kind::GridEngine,
            false => Kind::Slurm,
        }
    }

    /// That of the job that this process is in, if it is in one.
    pub fn of_job(env: Env<'_>) -> Kind {
        if env("SGE_ROOT").is_some() { Kind::GridEngine } else { Kind::Slurm }
    }

    pub fn system(self) -> &'static dyn BatchSystem {
        match self {
            Kind::Slurm => &Slurm,
            Kind::GridEngine => &GridEngine,
        }
    }
}

/// Names that stand on the lines of a text; `#` begins a comment.
pub fn names_of_lines(text: &str) -> Vec<String> {
    let content = |line: &str| line.split('#').next().unwrap_or_default().trim().to_string();
    text.lines().map(content).filter(|line| !line.is_empty()).collect()
}

/// The names in a file that a batch system has written for a job. `Err`: one sentence.
pub fn names_of_file(path: &Path) -> std::result::Result<Vec<String>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("cannot read the nodes of this allocation in {}: {e}", shown_path(path)))?;
    Ok(names_of_lines(&text))
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// There is no such command.
    NoCommand,
    /// A job was refused.
    Job,
    /// A question was refused: asked again, it may be answered.
    Question,
    /// Anything else.
    Other,
}

/// Why a command of a batch system gave no answer.
#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// What the command said, its first word among it.
    pub said: String,
    /// One sentence.
    pub message: String,
    pub hint: Option<&'static str>,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Runs a command of a batch system. Passwords of the catalog's database do not travel with a job.
fn ask(system: &str, words: &[&str], input: Option<&str>, reason_of: fn(&str) -> &str) -> Result<String> {
    let failed = |kind, message| Error { kind, said: String::new(), message, hint: None };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_remove("EYAS_DATA").env_remove("PGPASSWORD");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        let what = format!("cannot run `{}`, a command of {system}: {}", words[0], reason(&error));
        failed(ErrorKind::NoCommand, what)
    })?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A command that does not read its script says why itself.
        let _ = stdin.write_all(text.as_bytes());
    }
    let done = child.wait_with_output().map_err(|error| failed(ErrorKind::Other, reason(&error)))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let kind = if input.is_some() { ErrorKind::Job } else { ErrorKind::Question };
    let message = format!("`{}` refused: {}", words[0], line_of(reason_of(&said)));
    Err(Error { kind, said, message, hint: None })
}
