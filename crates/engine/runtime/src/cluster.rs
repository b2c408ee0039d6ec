//! A local cluster: one dispatcher or several and several executors, each a process of its own on this machine.
//!
//! The processes are started from one binary. They end when they are asked to, or, for an embedded cluster,
//! when the process that started them is gone: each holds the reading end of a pipe that only that process
//! can write to.

use crate::locks::{dispatcher_lock, provider_lock};
use eyas_wire::identity::Join;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The name of the part that starts and ends nodes, see [`crate::provider`].
pub const PROVIDER: &str = "provider";

/// How long a part may take to end before it is killed.
const ENDS_MAX: Duration = Duration::from_secs(10);
/// The same of the provider, whose blocks are ended by commands of a batch system.
pub const PROVIDER_ENDS_MAX: Duration = Duration::from_secs(90);
/// The same of both, when nobody wants to wait.
const ENDS_IN_HASTE_MAX: Duration = Duration::from_secs(2);
const PROVIDER_ENDS_IN_HASTE_MAX: Duration = Duration::from_secs(8);
/// So often a provider that was killed is started again.
const PROVIDER_RESTARTS_MAX: u32 = 3;

/// Processes that were started together.
#[derive(Default)]
pub struct LocalCluster {
    pub join: PathBuf,
    parts: Vec<Part>,
    /// What the provider was started with.
    provider: Option<ProviderStart>,
    n_provider_restarts: u32,
    /// When it was found to be killed, until it is started again.
    provider_killed: Option<Instant>,
    /// When all parts were asked to end, and when nobody wanted to wait for that any longer.
    stopping: Option<Instant>,
    hurrying: Option<Instant>,
}

struct ProviderStart {
    exe: PathBuf,
    log_dir: PathBuf,
    args: Vec<String>,
    tied: bool,
}

/// A process of the cluster.
pub struct Part {
    name: String,
    is_node: bool,
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
    ) -> Result<Part, ClusterError> {
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
            command.spawn()
        };
        let mut process = start().map_err(|source| ClusterError::Start { part: name.into(), source })?;
        let lifeline = process.stdin.take();
        Ok(Part { name: name.into(), is_node: false, process, lifeline, log })
    }

    /// Writes a line to the standard input of a part that is tied.
    pub fn write_line(&mut self, line: &str) -> std::io::Result<()> {
        let Some(stdin) = &mut self.lifeline else { return Ok(()) };
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How the part ended; `None` if it still runs.
    pub fn find_end(&mut self) -> Option<PartEnd> {
        match self.process.try_wait() {
            // A signal is the reason for the end, whatever the part printed before.
            Ok(Some(status)) if status.code().is_none() => Some(PartEnd::Seen(status.to_string())),
            Ok(Some(status)) => {
                Some(last_words(&self.log).unwrap_or_else(|| PartEnd::Seen(status.to_string())))
            }
            _ => None,
        }
    }

    /// The same; a dispatcher or provider that ended in order was asked to, and nothing that it printed is the reason.
    fn why_it_ended(&mut self) -> Option<PartEnd> {
        match self.process.try_wait() {
            Ok(Some(status)) if status.success() && !self.is_node => {
                Some(PartEnd::Seen("somebody asked it to end".into()))
            }
            _ => self.find_end(),
        }
    }

    /// Closes the standard input of a part that is tied, whose end it is.
    pub fn let_go(&mut self) {
        drop(self.lifeline.take());
    }

    pub fn ask_to_end(&mut self) {
        self.let_go();
        if self.find_end().is_none() {
            // SAFETY: sending a signal to a child that has not been waited for.
            unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        }
    }

    /// Waits for the part's end until `deadline`, and then forces it.
    pub fn wait_until(&mut self, deadline: Instant) {
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
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
pub enum ClusterError {
    #[error("cannot start {}: {source}", in_words(part))]
    Start { part: String, source: std::io::Error },
    #[error("{} ended before it was ready: {why}", in_words(part))]
    Ended { part: String, why: PartEnd },
    #[error(
        "{} did not answer within {waited_s} s; see {}",
        in_words(part),
        eyas_text::shown_path(std::path::Path::new(log))
    )]
    NoAnswer { part: String, waited_s: u64, log: String },
}

/// What to start: arguments for each part, after the binary.
pub struct Plan {
    pub exe: PathBuf,
    /// The directory of the first dispatcher; it also has the parts' logs.
    pub dir: PathBuf,
    /// Directory and arguments of each dispatcher.
    pub dispatchers: Vec<(PathBuf, Vec<String>)>,
    /// One list per node.
    pub executor_args: Vec<Vec<String>>,
    /// Arguments of the provider, where nodes come and go.
    pub provider_args: Option<Vec<String>>,
    /// Parts end when this process ends.
    pub embedded: bool,
    /// Nodes that find no dispatcher for this long end.
    pub lease_ns: u64,
}

impl Plan {
    /// The join file of the dispatcher at that position in the plan.
    pub fn join_of(&self, dispatcher: usize) -> PathBuf {
        self.dispatchers[dispatcher].0.join(crate::dispatcher::JOIN_FILE)
    }

    /// The lock of the part that starts and ends nodes, see [`crate::locks::holder_of`].
    pub fn provider_lock(&self) -> PathBuf {
        provider_lock(&self.dir)
    }

    /// The lock of that dispatcher's directory, see [`crate::locks::holder_of`].
    pub fn lock_of(&self, dispatcher: usize) -> PathBuf {
        dispatcher_lock(&self.dispatchers[dispatcher].0)
    }
}

impl LocalCluster {
    /// Starts all parts and waits until the dispatchers answer, and know each other.
    pub fn start(plan: &Plan) -> Result<LocalCluster, ClusterError> {
        let mut cluster = LocalCluster::default();
        cluster.join = plan.join_of(0);
        cluster.start_dispatchers(plan, &(0..plan.dispatchers.len()).collect::<Vec<_>>())?;
        for i in 0..plan.executor_args.len() {
            cluster.start_node(plan, i)?;
        }
        cluster.start_provider(plan)?;
        Ok(cluster)
    }

    /// Starts these dispatchers of the plan, and waits until they answer and all know each other.
    pub fn start_dispatchers(&mut self, plan: &Plan, which: &[usize]) -> Result<(), ClusterError> {
        for i in which {
            let (part, join) = (self.parts.len(), plan.join_of(*i));
            let name = if *i == 0 { "dispatcher".to_string() } else { format!("dispatcher{}", i + 1) };
            let stale = written_at(&join);
            self.launch(plan, &name, &plan.dispatchers[*i].1)?;
            self.wait_for(part, || written_at(&join).is_some_and(|at| Some(at) != stale))?;
        }
        if plan.dispatchers.len() > 1 && !which.is_empty() {
            let first = plan.join_of(0);
            let knows_all =
                || Join::read(&first).is_ok_and(|join| join.members.iter().all(|m| !m.is_empty()));
            self.wait_for(0, knows_all)?;
        }
        Ok(())
    }

    /// Starts the node at that position in the plan.
    pub fn start_node(&mut self, plan: &Plan, i: usize) -> Result<(), ClusterError> {
        self.launch(plan, &format!("node{}", i + 1), &plan.executor_args[i])?;
        self.parts.last_mut().expect("it was just started").is_node = true;
        Ok(())
    }

    /// Starts the provider, which starts and ends nodes, if the plan has one.
    pub fn start_provider(&mut self, plan: &Plan) -> Result<(), ClusterError> {
        let Some(args) = &plan.provider_args else { return Ok(()) };
        let (exe, log_dir) = (plan.exe.clone(), plan.dir.clone());
        self.provider = Some(ProviderStart { exe, log_dir, args: args.clone(), tied: plan.embedded });
        self.launch(plan, PROVIDER, args)
    }

    /// How the provider ended, and for how long that is known, if somebody killed it and it may be started again.
    pub fn find_killed_provider(&mut self) -> Option<(String, Duration)> {
        if self.n_provider_restarts >= PROVIDER_RESTARTS_MAX {
            return None;
        }
        let part = self.parts.iter_mut().find(|part| part.name == PROVIDER)?;
        match part.process.try_wait() {
            Ok(Some(status)) if status.code().is_none() => {
                Some((status.to_string(), self.provider_killed.get_or_insert_with(Instant::now).elapsed()))
            }
            _ => None,
        }
    }

    /// What the provider was started with, after the program.
    pub fn provider_words(&self) -> Option<&[String]> {
        self.provider.as_ref().map(|start| &start.args[..])
    }

    /// Starts a provider again that was killed.
    pub fn restart_provider(&mut self) -> Result<(), ClusterError> {
        let Some(ProviderStart { exe, log_dir, args, tied }) = &self.provider else { return Ok(()) };
        let part = Part::start(exe, log_dir, PROVIDER, args, *tied)?;
        self.n_provider_restarts += 1;
        self.provider_killed = None;
        self.parts.retain(|part| part.name != PROVIDER);
        self.parts.push(part);
        Ok(())
    }

    /// Whether blocks may be there that the provider does not know, or did not end: it was killed at least once.
    pub fn may_have_left_blocks(&self) -> bool {
        let has_ended_all = |start: &ProviderStart| crate::provider::left_by(&start.log_dir).is_some();
        self.n_provider_restarts > 0 || self.provider.as_ref().is_some_and(|start| !has_ended_all(start))
    }

    /// Waits until something exists that the part with that number makes.
    fn wait_for(&mut self, part: usize, is_there: impl Fn() -> bool) -> Result<(), ClusterError> {
        let waited = Duration::from_secs(30);
        let deadline = Instant::now() + waited;
        while !is_there() {
            let part = &mut self.parts[part];
            if let Some(why) = part.find_end() {
                return Err(ClusterError::Ended { part: part.name.clone(), why });
            }
            if Instant::now() > deadline {
                let log = part.log.display().to_string();
                return Err(ClusterError::NoAnswer {
                    part: part.name.clone(),
                    waited_s: waited.as_secs(),
                    log,
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn launch(&mut self, plan: &Plan, name: &str, args: &[String]) -> Result<(), ClusterError> {
        self.parts.push(Part::start(&plan.exe, &plan.dir, name, args, plan.embedded)?);
        Ok(())
    }

    pub fn pids(&self) -> Vec<(String, u32)> {
        self.parts.iter().map(|p| (p.name.clone(), p.pid())).collect()
    }

    /// A part that ended, and how, if there is one. A dispatcher that ended explains most, so it
    /// comes first.
    pub fn find_ended(&mut self) -> Option<(String, PartEnd)> {
        let mut ended = |nodes: bool| {
            let mut parts = self.parts.iter_mut().filter(|part| part.is_node == nodes);
            parts.find_map(|part| Some((part.name.clone(), part.why_it_ended()?)))
        };
        ended(false).or_else(|| ended(true))
    }

    /// How the part with that name ended, if it has.
    pub fn end_of(&mut self, name: &str) -> Option<PartEnd> {
        self.parts.iter_mut().find(|part| part.name == name)?.find_end()
    }

    /// Forgets the nodes that have ended. Gives their names, and how they ended.
    pub fn take_ended_nodes(&mut self) -> Vec<(String, PartEnd)> {
        let mut ended = vec![];
        self.parts.retain_mut(|part| match part.find_end().filter(|_| part.is_node) {
            Some(why) => {
                ended.push((part.name.clone(), why));
                false
            }
            None => true,
        });
        ended
    }

    /// Whether there is still a node, or a provider that starts nodes.
    pub fn has_nodes(&self) -> bool {
        self.parts.iter().any(|part| part.is_node || part.name == PROVIDER)
    }

    /// Leaves the parts running on their own.
    pub fn detach(mut self) {
        self.parts.clear();
    }

    /// Ends all parts and waits for them: executors say goodbye first, then the dispatcher ends.
    pub fn stop(&mut self) {
        self.ask_to_end();
        while !self.have_ended() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks all parts to end; [`Self::have_ended`] says when they have.
    pub fn ask_to_end(&mut self) {
        for part in &mut self.parts {
            part.ask_to_end();
        }
        self.stopping.get_or_insert_with(Instant::now);
    }

    /// Nobody wants to wait any longer for parts that were asked to end. The provider cuts off what its commands do.
    pub fn hurry(&mut self) {
        for part in self.parts.iter_mut().filter(|part| part.name == PROVIDER) {
            if part.find_end().is_none() {
                // SAFETY: sending a signal to a child that has not been waited for.
                unsafe { libc::kill(part.process.id() as i32, libc::SIGINT) };
            }
        }
        self.hurrying.get_or_insert_with(Instant::now);
    }

    /// Whether all parts have ended that were asked to. One that takes too long is killed.
    pub fn have_ended(&mut self) -> bool {
        let (stopping, hurrying) = (self.stopping, self.hurrying);
        self.parts.retain_mut(|part| {
            let (patience, in_haste) = match part.name == PROVIDER {
                true => (PROVIDER_ENDS_MAX, PROVIDER_ENDS_IN_HASTE_MAX),
                false => (ENDS_MAX, ENDS_IN_HASTE_MAX),
            };
            let is_late = stopping.is_some_and(|begun| begun.elapsed() >= patience)
                || hurrying.is_some_and(|begun| begun.elapsed() >= in_haste);
            if is_late {
                part.kill();
            }
            matches!(part.process.try_wait(), Ok(None))
        });
        self.parts.is_empty()
    }

    /// Whether the provider is there, or has not been waited for.
    pub fn has_provider(&self) -> bool {
        self.parts.iter().any(|part| part.name == PROVIDER)
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        if !self.parts.is_empty() {
            self.stop();
        }
    }
}

/// When the file was written. The file of a dispatcher that was killed stays until the next one starts.
fn written_at(join: &Path) -> Option<SystemTime> {
    join.metadata().and_then(|m| m.modified()).ok()
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
        let why = PartEnd::in_log(said).unwrap();
        let error = ClusterError::Ended { part: PROVIDER.into(), why };
        assert_eq!(error.to_string(), "the provider ended before it was ready: the disk is full");
        assert_eq!(PartEnd::in_log("a\n  \nlost 3\n"), Some(PartEnd::Seen("lost 3".into())));
        assert_eq!(PartEnd::in_log("\n"), None);
        assert_eq!(in_words("node2"), "node2");
    }
}
