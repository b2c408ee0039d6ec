//! An executor's process: the core's node state machine with slots, a cache directory and transfers
//! around it.
//!
//! One async task (the *agent*) owns the state machine. Slot processes, transfer threads and the connection to
//! the dispatcher only send it [`Input`]s. Bytes move on blocking threads, programs run in slot
//! processes, so the agent never waits.
//!
//! When the connection breaks, the agent goes on with the work that it has. It reads the join file again and
//! connects anew (a restarted dispatcher may have another address), and repeats what the dispatcher has not recorded.
//! When no dispatcher answers for the length of the lease, the executor ends itself.
//!
//! Not here: which transfer or program comes next ([`eyas_core::executor`]), how a program is run
//! (`eyas-runner`), how bytes are kept and sent (`eyas-data`).

mod agent;
mod early;
mod fetch;
mod home_io;
mod home_wait;
mod landing;
mod landings;
mod made;
mod origins;
mod processors;
mod rights;
pub mod scratch;
mod shown;
mod slots;
mod supervisor;
pub mod system_users;
mod watch;
mod watched_files;

use crate::{own_folder, parent};
use agent::{Agent, Input};
use eyas_client::Target;
use eyas_net as net;
use eyas_terms::needs::Equipment;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How an executor is started.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    pub target: Target,
    /// Cache, sandboxes and segment files of this node; on a local disk.
    pub dir: PathBuf,
    pub name: String,
    pub slots: u32,
    pub cache_bytes: u64,
    /// Memory that tasks may declare, together, and that holds files of the cache.
    pub memory_bytes: u64,
    /// So much of it holds files of the cache.
    pub cache_memory_bytes: u64,
    /// Gpus and named resources of this node.
    pub equipment: Equipment,
    /// The names by which programs know the gpus; as many as `equipment` has.
    pub gpu_names: Vec<String>,
    pub eviction: String,
    /// `host:port` to serve the cache on; port 0 picks a free one.
    pub data_listen: String,
    pub data_plane: DataPlane,
    /// Directories that are this node's own disk: nothing in them is copied.
    pub home_local: Vec<PathBuf>,
    /// Directories of which this node alone has the files on its own disk, or few nodes: nothing in them is copied here, and the
    /// dispatcher learns of them.
    pub home_on: Vec<PathBuf>,
    /// The names and addresses by which storage may know this machine.
    pub hosts: Vec<String>,
    /// This binary, from which slot processes are started, and the arguments that make it a slot process.
    pub exe: PathBuf,
    pub slot_args: Vec<String>,
    /// End when standard input closes: the parent process is gone.
    pub until_stdin_closes: bool,
    /// When the batch system ends this process, if it does.
    pub walltime: Option<Walltime>,
    /// After SIGTERM, programs have this long to end.
    pub grace: Duration,
    /// A home that is away is waited for this long.
    pub home_wait: Duration,
    /// What runs the programs of tasks that have a container, see [`eyas_runner::ContainerKind::Command`]. `None`: bubblewrap or
    /// Apptainer, as the image wants.
    pub container_command: Option<Vec<String>>,
    /// The shell for lines that choose none. `None`: bash if it is here.
    pub line_shell: Option<eyas_text::Shell>,
    /// Programs run as system users of their own. `None`: as that of this process.
    pub system_users: Option<system_users::SystemUsers>,
}

/// The time of a process that a batch system ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Walltime {
    /// The time of the whole job.
    pub whole: Duration,
    pub ends: Instant,
}

/// Protection of transfers between executors. Peers always prove the secret and show tickets, and
/// digests are always verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPlane {
    /// Encrypted.
    Tls,
    /// Not encrypted: for a trusted network, and between processes of one machine.
    Signed,
}

#[derive(thiserror::Error, Debug)]
pub enum ExecutorError {
    #[error(transparent)]
    Net(#[from] net::NetError),
    #[error(transparent)]
    Identity(#[from] eyas_wire::identity::IdentityError),
    #[error(transparent)]
    Data(#[from] eyas_data::Error),
    #[error(transparent)]
    Runner(#[from] eyas_runner::Error),
    #[error(transparent)]
    Storage(#[from] eyas_storage::Error),
    #[error("cannot use the directory {}: {source}", eyas_text::shown_path(Path::new(path)))]
    Dir { path: String, source: std::io::Error },
    #[error("cannot serve the cache on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    #[error("{0}")]
    Config(String),
    #[error("no dispatcher answered for {lease_s} s; {last}")]
    LeaseEnded { lease_s: u64, last: LastTry },
}

/// The outcome of the last try to reach the dispatcher.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum LastTry {
    /// It may go on for longer than the lease.
    #[default]
    UnderWay,
    Failed(String),
}

impl std::fmt::Display for LastTry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LastTry::UnderWay => f.write_str("a try to connect is still without an answer"),
            LastTry::Failed(why) => write!(f, "the last try: {why}"),
        }
    }
}

/// Runs an executor until the dispatcher ends it, its lease or its walltime ends, or it is asked to stop. SIGTERM asks it to
/// leave within its grace period, and so does SIGUSR2, by which Grid Engine announces the end of a job with `-notify`. A second one of
/// these, or SIGINT, asks it to leave at once.
pub async fn run(options: ExecutorOptions) -> Result<(), ExecutorError> {
    let (inputs, queue) = mpsc::unbounded_channel::<Input>();
    // Old kernels refuse this; there, the processes that a killed slot process leaves behind have no parent
    // that ends them.
    if let Err(e) = eyas_runner::reaper::become_reaper() {
        eprintln!("eyas: programs may outlive a slot process that is killed: {e}");
    }
    let agent = Agent::new(options.clone(), inputs.clone())?;
    use tokio::signal::unix::SignalKind;
    for kind in [SignalKind::terminate(), SignalKind::user_defined2(), SignalKind::interrupt()] {
        if let Ok(mut signals) = tokio::signal::unix::signal(kind) {
            let inputs = inputs.clone();
            tokio::spawn(async move {
                if kind != SignalKind::interrupt() {
                    signals.recv().await;
                    let name = if kind == SignalKind::terminate() { "SIGTERM" } else { "SIGUSR2" };
                    let _ = inputs.send(Input::Leave { reason: format!("it was told to stop ({name})") });
                }
                signals.recv().await;
                let _ = inputs.send(Input::Stop { reason: "the executor was told to stop".into() });
            });
        }
    }
    let stopped = inputs.clone();
    own_folder::when_gone(vec![options.dir.clone()], move |reason| {
        let _ = stopped.send(Input::Stop { reason });
    });
    if options.until_stdin_closes {
        let inputs = inputs.clone();
        parent::when_gone(move || {
            let reason = "the process that started the executor is gone".into();
            let _ = inputs.send(Input::Stop { reason });
        });
    }
    crate::run_beside_io(agent.run(queue)).await
}

/// Removes what an executor that was killed in `dir` has left at home. Call it before removing that directory
/// or giving it up; an executor that still runs there is left alone.
pub fn sweep_home(dir: &Path) {
    landings::Landings::sweep_dir(dir);
}
