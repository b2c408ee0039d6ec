//! Nodes from elsewhere: what starts, lists and ends them, and who ends those of a provider that was killed.

use crate::dirs::user_folder;
use crate::kept::NotKept;
use crate::options::{ProviderKind, ProviderShape, Scratch, options_of};
use eyas_batch::env;
use eyas_core::provisioning::blocks::BlockConfig;
use eyas_runtime::provider::{
    self, Batch, BatchSettings, CommandLines, Commands, Haste, Hosts, Launch, Refusal, Share, Source,
    block_prefix, check_line, check_python, end_blocks, has_hole,
};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node's folder that the user named may be unused.
const SCRATCH_AGE_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;
/// Time between two listings, where nothing else is said.
const LISTED_EVERY: Duration = Duration::from_secs(15);
/// The same for the nodes of Ray, which costs Ray less than a millisecond.
const RAY_LISTED_EVERY: Duration = Duration::from_secs(2);
/// Time between two submissions to Ray, which has no queue that could be flooded.
const RAY_SUBMIT_EVERY_NS: u64 = 100_000_000;

#[derive(thiserror::Error, Debug)]
pub enum ProvideError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Refused(Refusal),
    #[error("{}", eyas_text::reason(.0))]
    Io(#[from] io::Error),
    #[error(transparent)]
    NotKept(#[from] NotKept),
}

impl From<Refusal> for ProvideError {
    fn from(refusal: Refusal) -> ProvideError {
        ProvideError::Refused(refusal)
    }
}

fn refused(text: impl Into<String>, hint: Option<&str>) -> Refusal {
    Refusal { text: text.into(), hint: hint.map(str::to_owned) }
}

impl ProviderShape {
    /// The hosts that nodes are on, where they are known by name.
    pub fn hosts(&self) -> Result<Option<Hosts>, Refusal> {
        let ssh = self.ssh.as_deref();
        let found = match (self.kind, &self.hosts) {
            (ProviderKind::Ssh, Some(path)) => Hosts::of_file(path, ssh.unwrap_or("ssh")),
            (ProviderKind::Ssh, None) => {
                let hint = "write the hosts into a file, one on a line, as ssh takes them";
                return Err(refused("--provider ssh needs --hosts FILE", Some(hint)));
            }
            (ProviderKind::Allocation, _) => Hosts::of_allocation(&env, ssh),
            _ => return Ok(None),
        };
        found.map(Some).map_err(|why| refused(why, None))
    }

    /// How long a node's folder may be unused before it is removed.
    fn scratch_age(&self) -> Duration {
        let default_ns = if self.node_dir.is_some() { SCRATCH_AGE_NS } else { 0 };
        Duration::from_nanos(self.scratch_age_ns.unwrap_or(default_ns))
    }

    /// Where nodes of this machine keep their caches, if the user says it.
    pub fn scratch_here(&self) -> Result<Option<Scratch>, ProvideError> {
        let Some(template) = self.node_dir.as_ref().filter(|_| !self.kind.is_elsewhere()) else {
            return Ok(None);
        };
        // The shell fills it in, as on nodes elsewhere.
        let line = format!("printf %s \"{}\"", Launch::in_double_quotes(template));
        let output = std::process::Command::new("/bin/sh").args(["-c", &line]).output()?;
        let dir = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || dir.is_empty() {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = if dir.is_empty() && why.is_empty() { "it is empty here".into() } else { why };
            return Err(refused(format!("--node-dir {template} is no folder: {}", why.trim()), None).into());
        }
        Ok(Some(Scratch { dir: std::path::absolute(dir)?, age: self.scratch_age() }))
    }

    /// All that is wrong with the three commands of the user.
    pub fn line_refusals(&self) -> Vec<Refusal> {
        let lines = [("start", &self.start), ("list", &self.list), ("stop", &self.stop)];
        let wrong = lines.into_iter().filter_map(|(which, given)| match given {
            Some(line) => line_refusal(which, line),
            None => Some(refused(
                format!("--provider command needs --{which}"),
                Some("it takes the three commands --start, --list and --stop"),
            )),
        });
        let mut all: Vec<Refusal> = wrong.collect();
        if let Some(start) = &self.start {
            if has_hole(start, "walltime") && self.walltime_ns.is_none() {
                let text = "--start has {walltime}, and nobody says how long a block may live";
                all.push(refused(text, Some("--walltime 1h does")));
            }
            if !has_hole(start, "script") && !has_hole(start, "join") {
                let text = "--start has neither {script} nor {join}, so it starts no executor";
                all.push(refused(text, Some("{script} is a file for /bin/sh that starts one")));
            }
        }
        all
    }

    fn command_lines(&self) -> Result<CommandLines, Refusal> {
        if let Some(refusal) = self.line_refusals().into_iter().next() {
            return Err(refusal);
        }
        let line = |given: &Option<String>| given.clone().expect("otherwise there is a refusal");
        Ok(CommandLines { start: line(&self.start), list: line(&self.list), stop: line(&self.stop) })
    }

    /// The program as nodes elsewhere find it.
    pub fn program(&self) -> io::Result<PathBuf> {
        self.program.clone().map_or_else(std::env::current_exe, Ok)
    }

    /// What nodes elsewhere run.
    pub fn launch(&self) -> io::Result<Launch> {
        Ok(Launch {
            exe: self.program()?,
            node_args: self.node.words(),
            node_dir: self.node_dir.clone(),
            scratch_age: self.scratch_age(),
            setup: self.setup.clone(),
            walltime: self.walltime_ns.map(Duration::from_nanos),
        })
    }

    /// The commands of the user that start nodes of this cluster.
    pub fn commands(
        &self,
        cluster: &str,
        launch: Launch,
        share: Share,
        log_dir: PathBuf,
    ) -> Result<Commands, Refusal> {
        Ok(Commands::new(cluster, self.command_lines()?, launch, share, log_dir))
    }

    /// The batch system, cloud or Ray that starts nodes of this cluster.
    pub fn batch(&self, cluster: &str, launch: Launch, share: Share, log_dir: PathBuf) -> Batch {
        Batch::new(cluster, self.python(), self.settings(), launch, share, log_dir)
    }

    /// How blocks of this cluster are asked for.
    pub fn block_config(&self, cluster: &str) -> BlockConfig {
        let list_every = self.list_every_ns.map(Duration::from_nanos);
        if self.kind == ProviderKind::Ray {
            let config = provider::block_config(cluster, list_every.unwrap_or(RAY_LISTED_EVERY), 1);
            return BlockConfig { submit_every_ns: RAY_SUBMIT_EVERY_NS, ..config };
        }
        let nodes_per_block = if self.kind.is_batch() { self.nodes_per_job.unwrap_or(1) } else { 1 };
        provider::block_config(cluster, list_every.unwrap_or(LISTED_EVERY), nodes_per_block)
    }

    /// What is asked of the batch system for each node.
    fn settings(&self) -> BatchSettings {
        BatchSettings {
            kind: self.kind.name().into(),
            queue: self.partition.clone().or(self.queue.clone()),
            account: self.account.clone(),
            walltime: self.walltime_ns.map(Duration::from_nanos),
            nodes_per_job: self.nodes_per_job.unwrap_or(1),
            slots: self.node.slots,
            memory_bytes: self.node.memory_bytes,
            address: self.address.clone(),
            gpus: self.node.gpus.map(|gpus| gpus.to_string()),
            options: self.options.iter().map(|option| (option.name.clone(), option.value.clone())).collect(),
        }
    }

    /// The Python that has Parsl or Ray: the one that is named, else the one of the environment that this program is installed in,
    /// else that of PATH.
    fn python(&self) -> PathBuf {
        if let Some(python) = &self.python {
            return python.clone();
        }
        let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("python3"));
        beside.filter(|path| path.exists()).unwrap_or_else(|| "python3".into())
    }

    /// Checks that there is a Python with Parsl or Ray, and what it says of the options, before anything is made. To load Parsl takes
    /// a part of a second, for which the first task would wait, so it is asked only where there is something that it may refuse.
    pub fn check_tools(&self) -> Result<(), Refusal> {
        if !self.kind.is_batch() {
            return Ok(());
        }
        check_python(&self.python(), self.kind.name())?;
        let needs_nothing =
            matches!(self.kind, ProviderKind::Slurm | ProviderKind::GridEngine | ProviderKind::Ray);
        if needs_nothing && self.options.is_empty() && self.nodes_per_job.is_none_or(|n| n == 1) {
            return Ok(());
        }
        self.settings().check(&self.python())?.into_iter().next().map_or(Ok(()), Err)
    }

    /// Options that Parsl or Ray does not take. `Err`: there is nobody to ask, and why.
    pub fn wrong_options(&self) -> Result<Vec<Refusal>, Refusal> {
        check_python(&self.python(), self.kind.name())?;
        self.settings().check(&self.python())
    }

    /// Where a provider was started with these words whose blocks may outlive it: its cluster's join file, and what it was like. The
    /// words begin with `provider`, in the place of a program's name.
    fn outlived(words: &[String]) -> Option<(PathBuf, ProviderShape)> {
        let options = options_of(words.strip_prefix(&["provider".to_string()])?)?;
        let value = |name: &str| options.iter().find(|(of, _)| *of == name).map(|(_, value)| *value);
        let (join, _, _) = (value("join")?, value("dir")?, value("nodes")?);
        let shape = ProviderShape::of_words(
            options.iter().copied().filter(|(name, _)| !matches!(*name, "join" | "dir")),
        )?;
        shape.kind.blocks_outlive().then(|| (join.into(), shape))
    }
}

/// What is wrong with one of the three commands: `which` is `start`, `list` or `stop`.
pub fn line_refusal(which: &str, line: &str) -> Option<Refusal> {
    let e = check_line(which, line).err()?;
    Some(match e.split_once("\nhint: ") {
        Some((message, hint)) => refused(message, Some(hint)),
        None => refused(e, None),
    })
}

/// This user's folder for state, which nodes elsewhere mount as well.
pub fn shared_state() -> Result<PathBuf, Refusal> {
    user_folder("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        refused("neither XDG_STATE_HOME nor HOME is set, so there is no folder that nodes can read", None)
    })
}

/// Whether blocks may outlive the provider that was started with these words.
pub fn may_leave_blocks(words: &[String]) -> bool {
    ProviderShape::outlived(words).is_some()
}

/// Ends the blocks of a cluster whose provider was killed; `words` are what it was started with. Gives a sentence for each block that
/// may be left. `haste` is given what cuts off its commands.
pub(crate) fn end_left(
    words: &[String],
    cluster: &str,
    haste: &mut dyn FnMut(Haste),
) -> Result<Vec<String>, ProvideError> {
    let Some((join, shape)) = ProviderShape::outlived(words) else { return Ok(vec![]) };
    let dir = join.parent().unwrap_or(Path::new(".")).to_path_buf();
    let share = Share::of(&shared_state()?, cluster);
    let launch = shape.launch()?;
    let prefix = block_prefix(cluster);
    let left = if shape.kind.is_batch() {
        // The Python process works in the folder, which may be gone.
        std::fs::create_dir_all(share.dir())?;
        let source = shape.batch(cluster, launch, share.clone(), dir.clone());
        haste(source.haste());
        end_blocks(source, &prefix, &dir)
    } else {
        let source = shape.commands(cluster, launch, share.clone(), dir.clone())?;
        haste(source.haste());
        end_blocks(source, &prefix, &dir)
    };
    share.remove();
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_provider_tell_whether_its_blocks_may_outlive_it() {
        let may =
            |words: &[&str]| may_leave_blocks(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        let provider = ["provider", "--join", "/c/join.json", "--dir", "/c", "--nodes", "0..2"];
        let with = |more: &[&str]| may(&[&provider[..], more].concat());
        assert!(with(&["--provider=command", "--start=a", "--list=b", "--stop=c", "--cache", "1073741824"]));
        assert!(with(&["--provider=slurm", "--walltime=3600000ms"]));
        assert!(!with(&["--provider=local"]) && !with(&["--provider=ssh", "--hosts=h"]) && !with(&[]));
        assert!(!with(&["--provider=command", "--unknown"]));
        assert!(
            !may(&["provider", "--provider=command"]) && !may(&["up", "--provider=command"]) && !may(&[])
        );
    }
}
