//! eyas-cluster: a cluster of this machine as a value that is started, watched and ended.
//!
//! It says nothing to people, listens to no signals and ends no process but those that it started. What happens is given as values
//! ([`watch::Event`], errors), and a caller who has to say something meanwhile hands in a closure.
//!
//! | module | |
//! |---|---|
//! | [`plan`] | what a cluster is to be like, and a command line for each of its processes |
//! | [`options`], [`values`] | what each part is to be like, and the same in words of its command line |
//! | [`provide`] | nodes from elsewhere: what starts, lists and ends them |
//! | [`processes`] | the processes: started, looked after, ended |
//! | [`reach`], [`watch`] | a connection that waits for a dispatcher; a run that is watched to its end |
//! | [`standing`] | a cluster that stays: made whole, and told to end |
//! | [`end`], [`kept`] | what a provider that is gone may have left, and what is kept of how it was started |
//! | [`known`], [`given`] | the clusters of this machine, and who gave them their runs |
//! | [`starting`], [`keeper`], [`remains`] | who may start a cluster in a folder; what is removed after it |
//! | [`dirs`] | the folders of a cluster |
//! | [`users`] | a user who is let in, with a key of their own |
//!
//! Not here: what users may write, and what is wrong with it.

pub mod dirs;
pub mod end;
pub mod given;
pub mod keeper;
pub mod kept;
pub mod known;
pub mod options;
pub mod plan;
pub mod processes;
pub mod provide;
pub mod reach;
pub mod remains;
pub mod standing;
pub mod starting;
pub mod users;
pub mod values;
pub mod watch;

use eyas_client::{Choice, Client, JoinFile, Target};
use eyas_net::NetError;
use eyas_wire::identity::IdentityError;
use plan::{Plan, Shape};
use processes::{ProcessError, Processes};
use starting::StartingError;
use std::path::{Path, PathBuf};

#[derive(thiserror::Error, Debug)]
pub enum StartError {
    #[error("cannot use the directory {}: {}", eyas_text::shown_path(dir), eyas_text::reason(source))]
    Folder { dir: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Starting(#[from] StartingError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// A cluster that this process started. It ends where it is dropped.
pub struct Cluster {
    processes: Processes,
    target: Target,
    dir: PathBuf,
}

impl Cluster {
    /// Starts the processes of a cluster, and waits until its dispatchers answer; its nodes may join a moment later.
    pub fn start(shape: &Shape) -> Result<Cluster, StartError> {
        let plan = shape.plan().map_err(|source| StartError::Folder { dir: shape.dir.clone(), source })?;
        Cluster::of_plan(&plan)
    }

    /// The same, where the plan was made before.
    pub fn of_plan(plan: &Plan) -> Result<Cluster, StartError> {
        let _starting = starting::hold(&plan.dir)?;
        let processes = Processes::start(plan)?;
        let target = JoinFile::new(plan.join_of(0), Choice::Own).read()?;
        Ok(Cluster { processes, target, dir: plan.cluster_dir().to_path_buf() })
    }

    /// The cluster for clients.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The cluster's folder, an absolute path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of the first dispatcher, which also has the logs of all parts.
    pub fn dispatcher_dir(&self) -> PathBuf {
        dirs::dispatcher_dir(&self.dir)
    }

    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    pub fn processes_mut(&mut self) -> &mut Processes {
        &mut self.processes
    }

    pub async fn connect(&self) -> Result<Client, NetError> {
        Client::connect(&self.target).await
    }

    /// Ends all parts and waits for that; for a cluster whose nodes are processes of this machine. [`Self::end`] is for any.
    pub fn stop(mut self) {
        self.processes.stop();
    }
}
