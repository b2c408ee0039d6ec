//! The processes of a local cluster: one dispatcher or several and several executors, each a process of its own on this machine.
//!
//! The processes are started from one binary. They end when they are asked to, or, for an embedded cluster,
//! when the process that started them is gone: each holds the reading end of a pipe that only that process
//! can write to.

use crate::dirs::node_dirs;
use crate::plan::Plan;
use eyas_runtime::locks::holder_of;
use eyas_runtime::part::{Part, PartEnd, PartError, in_words};
use eyas_runtime::provider::left_by;
use eyas_wire::identity::Join;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The name of the part that starts and ends nodes, see [`eyas_runtime::provider`].
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
/// How long nodes that ended with what started them are given before others take their place.
const NODES_LEAVE: Duration = Duration::from_secs(2);

#[derive(thiserror::Error, Debug)]
pub enum ProcessError {
    #[error(transparent)]
    Start(#[from] PartError),
    #[error("{} ended before it was ready: {why}", in_words(part))]
    Ended { part: String, why: PartEnd },
    #[error("{} did not answer within {waited_s} s; see {}", in_words(part), eyas_text::shown_path(log))]
    NoAnswer { part: String, waited_s: u64, log: PathBuf },
}

/// Processes that were started together.
#[derive(Default)]
pub struct Processes {
    members: Vec<Member>,
    /// The node that ended last.
    last_node: Option<String>,
    /// What the provider was started with.
    provider: Option<ProviderStart>,
    n_provider_restarts: u32,
    /// When it was found to be killed, until it is started again.
    provider_killed: Option<Instant>,
    /// When all parts were asked to end, and when nobody wanted to wait for that any longer.
    stopping: Option<Instant>,
    hurrying: Option<Instant>,
}

struct Member {
    part: Part,
    is_node: bool,
}

impl Member {
    fn is_provider(&self) -> bool {
        self.part.name() == PROVIDER
    }

    /// How the part ended, if it has. A dispatcher or provider that ended in order was asked to, and nothing that it printed is the
    /// reason.
    fn why_it_ended(&mut self) -> Option<PartEnd> {
        match self.part.status() {
            Some(status) if status.success() && !self.is_node => {
                Some(PartEnd::Seen("somebody asked it to end".into()))
            }
            _ => self.part.find_end(),
        }
    }
}

struct ProviderStart {
    exe: PathBuf,
    log_dir: PathBuf,
    args: Vec<String>,
    tied: bool,
    blocks_outlive: bool,
}

impl Processes {
    /// Starts all parts and waits until the dispatchers answer, and know each other.
    pub fn start(plan: &Plan) -> Result<Processes, ProcessError> {
        let mut all = Processes::default();
        all.start_dispatchers(plan, &(0..plan.dispatchers.len()).collect::<Vec<_>>())?;
        for i in 0..plan.executor_args.len() {
            all.start_node(plan, i)?;
        }
        all.start_provider(plan)?;
        Ok(all)
    }

    /// Starts these dispatchers of the plan, and waits until they answer and all know each other.
    pub fn start_dispatchers(&mut self, plan: &Plan, which: &[usize]) -> Result<(), ProcessError> {
        for i in which {
            let (member, join) = (self.members.len(), plan.join_of(*i));
            let name = if *i == 0 { "dispatcher".to_string() } else { format!("dispatcher{}", i + 1) };
            let stale = written_at(&join);
            self.launch(plan, &name, &plan.dispatchers[*i].1)?;
            self.wait_for(member, || written_at(&join).is_some_and(|at| Some(at) != stale))?;
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
    pub fn start_node(&mut self, plan: &Plan, i: usize) -> Result<(), ProcessError> {
        self.launch(plan, &format!("node{}", i + 1), &plan.executor_args[i])?;
        self.members.last_mut().expect("it was just started").is_node = true;
        Ok(())
    }

    /// Starts the provider, which starts and ends nodes, if the plan has one.
    pub fn start_provider(&mut self, plan: &Plan) -> Result<(), ProcessError> {
        let Some(args) = &plan.provider_args else { return Ok(()) };
        self.provider = Some(ProviderStart {
            exe: plan.exe.clone(),
            log_dir: plan.dir.clone(),
            args: args.clone(),
            tied: plan.embedded,
            blocks_outlive: plan.blocks_outlive,
        });
        self.launch(plan, PROVIDER, args)
    }

    fn launch(&mut self, plan: &Plan, name: &str, args: &[String]) -> Result<(), ProcessError> {
        let part = Part::start(&plan.exe, &plan.dir, name, args, plan.embedded)?;
        self.members.push(Member { part, is_node: false });
        Ok(())
    }

    /// Waits until something exists that the part with that number makes.
    fn wait_for(&mut self, member: usize, is_there: impl Fn() -> bool) -> Result<(), ProcessError> {
        let waited = Duration::from_secs(30);
        let deadline = Instant::now() + waited;
        while !is_there() {
            let part = &mut self.members[member].part;
            if let Some(why) = part.find_end() {
                return Err(ProcessError::Ended { part: part.name().into(), why });
            }
            if Instant::now() > deadline {
                return Err(ProcessError::NoAnswer {
                    part: part.name().into(),
                    waited_s: waited.as_secs(),
                    log: part.log().into(),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    // ------------------------------------------------------------ while they run

    pub fn pids(&self) -> Vec<(String, u32)> {
        self.members.iter().map(|member| (member.part.name().into(), member.part.pid())).collect()
    }

    /// A part that ended, and how, if there is one. A dispatcher that ended explains most, so it
    /// comes first.
    pub fn find_ended(&mut self) -> Option<(String, PartEnd)> {
        let mut ended = |nodes: bool| {
            let mut some = self.members.iter_mut().filter(|member| member.is_node == nodes);
            some.find_map(|member| Some((member.part.name().into(), member.why_it_ended()?)))
        };
        ended(false).or_else(|| ended(true))
    }

    /// How the part with that name ended, if it has.
    pub fn end_of(&mut self, name: &str) -> Option<PartEnd> {
        self.members.iter_mut().find(|member| member.part.name() == name)?.part.find_end()
    }

    /// Forgets the nodes that have ended. Gives their names, and how they ended.
    pub fn take_ended_nodes(&mut self) -> Vec<(String, PartEnd)> {
        let mut ended: Vec<(String, PartEnd)> = vec![];
        self.members.retain_mut(|member| match member.part.find_end().filter(|_| member.is_node) {
            Some(why) => {
                ended.push((member.part.name().into(), why));
                false
            }
            None => true,
        });
        if let Some((name, _)) = ended.last() {
            self.last_node = Some(name.clone());
        }
        ended
    }

    /// The last node, if there were some and all have ended, and nobody starts others.
    pub fn last_of_all_nodes(&self) -> Option<&str> {
        self.last_node.as_deref().filter(|_| !self.has_nodes())
    }

    /// Whether there is still a node, or a provider that starts nodes.
    fn has_nodes(&self) -> bool {
        self.members.iter().any(|member| member.is_node || member.is_provider())
    }

    /// How the provider ended, and for how long that is known, if somebody killed it and it may be started again.
    pub fn find_killed_provider(&mut self) -> Option<(String, Duration)> {
        if self.n_provider_restarts >= PROVIDER_RESTARTS_MAX {
            return None;
        }
        let member = self.members.iter_mut().find(|member| member.is_provider())?;
        let status = member.part.status().filter(|status| status.code().is_none())?;
        Some((status.to_string(), self.provider_killed.get_or_insert_with(Instant::now).elapsed()))
    }

    /// Whether a provider that was killed so long ago may be started again. `dir`: of the cluster. Nodes that ended with it may need a
    /// moment for that; blocks elsewhere go on, and are taken over.
    pub fn is_room_for_nodes(&self, dir: &Path, since: Duration) -> bool {
        let is_held = |node: PathBuf| holder_of(&node.join("cache/lock")).is_some();
        self.blocks_outlive() || since >= NODES_LEAVE && !node_dirs(dir).into_iter().any(is_held)
    }

    /// Starts a provider again that was killed.
    pub fn restart_provider(&mut self) -> Result<(), ProcessError> {
        let Some(ProviderStart { exe, log_dir, args, tied, .. }) = &self.provider else { return Ok(()) };
        let part = Part::start(exe, log_dir, PROVIDER, args, *tied)?;
        self.n_provider_restarts += 1;
        self.provider_killed = None;
        self.members.retain(|member| !member.is_provider());
        self.members.push(Member { part, is_node: false });
        Ok(())
    }

    /// What the provider was started with, after the program.
    pub fn provider_words(&self) -> Option<&[String]> {
        self.provider.as_ref().map(|start| &start.args[..])
    }

    /// Whether the provider's blocks go on where it is killed.
    pub fn blocks_outlive(&self) -> bool {
        self.provider.as_ref().is_some_and(|start| start.blocks_outlive)
    }

    /// Leaves the parts running on their own.
    pub fn detach(mut self) {
        self.members.clear();
    }

    // ------------------------------------------------------------ their end

    /// Ends all parts and waits for them: executors say goodbye first, then the dispatcher ends.
    pub fn stop(&mut self) {
        self.ask_to_end();
        while !self.have_ended() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks all parts to end; [`Self::have_ended`] says when they have.
    pub fn ask_to_end(&mut self) {
        for member in &mut self.members {
            member.part.ask_to_end();
        }
        self.stopping.get_or_insert_with(Instant::now);
    }

    /// Nobody wants to wait any longer for parts that were asked to end. The provider cuts off what its commands do.
    pub fn hurry(&mut self) {
        for member in self.members.iter_mut().filter(|member| member.is_provider()) {
            member.part.signal(libc::SIGINT);
        }
        self.hurrying.get_or_insert_with(Instant::now);
    }

    /// Whether all parts have ended that were asked to. One that takes too long is killed.
    pub fn have_ended(&mut self) -> bool {
        let (stopping, hurrying) = (self.stopping, self.hurrying);
        self.members.retain_mut(|member| {
            let (patience, in_haste) = match member.is_provider() {
                true => (PROVIDER_ENDS_MAX, PROVIDER_ENDS_IN_HASTE_MAX),
                false => (ENDS_MAX, ENDS_IN_HASTE_MAX),
            };
            let is_late = stopping.is_some_and(|begun| begun.elapsed() >= patience)
                || hurrying.is_some_and(|begun| begun.elapsed() >= in_haste);
            if is_late {
                member.part.kill();
            }
            member.part.runs()
        });
        self.members.is_empty()
    }

    /// Whether the provider is there, or has not been waited for.
    pub fn has_provider(&self) -> bool {
        self.members.iter().any(Member::is_provider)
    }

    /// Whether blocks may be there that the provider does not know, or did not end: it was killed at least once.
    pub fn may_have_left_blocks(&self) -> bool {
        let has_ended_all = |start: &ProviderStart| left_by(&start.log_dir).is_some();
        self.blocks_outlive()
            && (self.n_provider_restarts > 0
                || self.provider.as_ref().is_some_and(|start| !has_ended_all(start)))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if !self.members.is_empty() {
            self.stop();
        }
    }
}

/// When the file was written. The file of a dispatcher that was killed stays until the next one starts.
fn written_at(join: &Path) -> Option<SystemTime> {
    join.metadata().and_then(|m| m.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_ended_too_early_is_named_in_words() {
        let why = PartEnd::Said("the disk is full".into());
        let error = ProcessError::Ended { part: PROVIDER.into(), why };
        assert_eq!(error.to_string(), "the provider ended before it was ready: the disk is full");
    }
}
