//! Providers: executors that come when there is work and go when there is none.
//!
//! A provider asks the dispatcher for its demand every [`LOOK`], lets [`eyas_core::provisioning`] decide, requests nodes in
//! blocks and has idle ones drained. Where nodes come from is a [`Source`]: this machine ([`local`]) is the first one. A provider
//! ends when the dispatcher's connection does, and its nodes with it.
//!
//! Nodes are numbered; the lowest free number comes first, so that a node that comes back finds the cache that the last one of
//! its number left.
//!
//! Executors that somebody else started help, but are neither counted nor released here.
//!
//! Not here: how many nodes there should be.

mod local;
mod nodes;

pub use local::Local;

use crate::cluster::wait_for_stdin_to_close;
use eyas_client::Client;
use eyas_core::Timestamp;
use eyas_core::provisioning::{ProvisionConfig, Provisioner};
use eyas_net::NetError;
use nodes::Nodes;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How often the dispatcher is asked.
const LOOK: Duration = Duration::from_millis(250);
/// How long nodes are given to leave in order at the end.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Names a block, as its source does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub String);

/// How far a block is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// Requested; it has no nodes yet.
    Queued,
    Running,
    /// It is over, and why.
    Ended(String),
}

/// Nodes that come and go together: a job of a batch system, a process of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub id: BlockId,
    pub state: BlockState,
    pub n_nodes: u32,
    /// When whoever lends them takes the nodes back.
    pub ends_at: Option<Timestamp>,
}

/// Where nodes come from.
pub trait Source {
    /// How many nodes a block may have.
    fn nodes_per_block(&self) -> u32;

    /// Requests a block with a node of each of these numbers. `Err`: why there is none.
    fn request(&mut self, numbers: &[u32]) -> Result<BlockId, String>;

    /// All blocks that were requested and not forgotten, those that have ended among them. One question, however many there are.
    fn list(&mut self) -> Vec<Block>;

    /// Has the nodes of a block end in order, which takes a while.
    fn ask_to_end(&mut self, block: &BlockId);

    /// Ends what is left of a block, and forgets it.
    fn cancel(&mut self, block: &BlockId);

    /// Ends all blocks: in order as far as that goes by the deadline, then at once.
    fn end_all(&mut self, deadline: Instant);
}

/// How a provider is started.
pub struct ProviderOptions {
    pub join: PathBuf,
    /// A node's name, by its number from 1.
    pub node_name: fn(u32) -> String,
    pub config: ProvisionConfig,
    /// End when standard input closes: the parent process is gone.
    pub until_stdin_closes: bool,
}

#[derive(thiserror::Error, Debug)]
pub enum ProviderError {
    #[error("{0}")]
    Config(String),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("no node can be started: {name} ended before it joined: {why}")]
    NoNode { name: String, why: String },
    #[error("cannot listen to signals: {0}")]
    Signal(std::io::Error),
}

/// Runs until the dispatcher is gone or somebody says stop.
pub async fn run(options: ProviderOptions, source: impl Source) -> Result<(), ProviderError> {
    let (stop, mut stopped) = mpsc::channel::<()>(1);
    if options.until_stdin_closes {
        let stop = stop.clone();
        std::thread::spawn(move || {
            wait_for_stdin_to_close();
            let _ = stop.blocking_send(());
        });
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(ProviderError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ProviderError::Signal)?;
    let provisioner = Provisioner::new(options.config).map_err(ProviderError::Config)?;
    let mut client = Client::connect(&options.join).await?;
    let mut nodes = Nodes::new(source, options.node_name, provisioner);
    let mut interval = tokio::time::interval(LOOK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let result = loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stopped.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
        }
        match look(&mut client, &mut nodes).await {
            Ok(()) => {}
            // It ends before us.
            Err(ProviderError::Net(_)) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    nodes.end_all(Instant::now() + LEAVE_MAX);
    result
}

/// Asks what there is to do, and does what follows.
async fn look<S: Source>(client: &mut Client, nodes: &mut Nodes<S>) -> Result<(), ProviderError> {
    let status = client.demand(nodes.describe()).await?;
    for executor in nodes.follow(&status, Instant::now())? {
        // One that has just been lost is refused; it leaves the list by itself.
        match client.drain(executor).await {
            Ok(()) | Err(NetError::Refused(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
