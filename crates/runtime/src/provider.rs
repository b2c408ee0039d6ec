//! The local provider: executors on this machine that come when there is work and go when there is none.
//!
//! It asks the dispatcher for its demand every [`LOOK`], lets [`eyas_core::provisioning`] decide, starts executor
//! processes and has idle ones drained. It ends when the dispatcher's connection does, and its nodes with it: each
//! holds the reading end of a pipe that only this process can write to, so none stays behind when it is killed.
//!
//! Nodes are numbered; the lowest free number comes first. A node's cache stays on disk when it goes, and is what the
//! node of that number begins with when it comes back: on one machine there is nobody else to leave the room
//! to, and the budgets of `nodes_max` nodes are spoken for anyway.
//!
//! Executors that somebody else started help, but are neither counted nor released here.
//!
//! Not here: how many nodes there should be.

use crate::cluster::{ClusterError, Part, wait_for_stdin_to_close};
use eyas_client::Client;
use eyas_core::provisioning::{Demand, NodeView, ProvisionAction, ProvisionConfig, Provisioner};
use eyas_core::{ExecutorId, Timestamp};
use eyas_net::NetError;
use eyas_wire::message::{self, DemandStatus};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How often the dispatcher is asked.
const LOOK: Duration = Duration::from_millis(250);
/// A node that has not joined by then is given up.
const JOIN_MAX: Duration = Duration::from_secs(60);
/// After so many nodes in a row that could not start, with none there, there is no point in going on.
const FAILURES_MAX: u32 = 3;
/// How long nodes are given to leave in order at the end.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// How a provider is started.
pub struct ProviderOptions {
    pub join: PathBuf,
    pub exe: PathBuf,
    /// Where the nodes' logs go.
    pub log_dir: PathBuf,
    /// A node's name, by its number from 1.
    pub node_name: fn(u32) -> String,
    /// The arguments of its executor, after the binary.
    pub node_args: Box<dyn Fn(u32) -> Vec<String>>,
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

/// A node of ours.
struct Node {
    part: Part,
    started: Instant,
    /// Since it has joined.
    executor: Option<ExecutorId>,
}

impl Node {
    /// What the dispatcher says of it; `None` before it has joined. One that the dispatcher has given up, or that said
    /// goodbye a moment ago, is there until its process has ended, but takes nothing.
    fn view(&mut self, status: &DemandStatus) -> Option<NodeView> {
        let executor = self.executor?;
        let known = status.nodes.iter().find(|(view, _)| view.executor == executor);
        if known.is_none() {
            self.part.ask_to_end();
        }
        let gone =
            NodeView { executor, slots: 0, n_assigned: 1, idle_since: None, cached_bytes: 0, sole_bytes: 0 };
        Some(known.map_or(gone, |(view, _)| *view))
    }
}

struct Provider {
    options: ProviderOptions,
    provisioner: Provisioner,
    client: Client,
    nodes: BTreeMap<u32, Node>,
    /// Nodes in a row that ended before they had joined.
    n_failures: u32,
}

/// Runs until the dispatcher is gone or somebody says stop.
pub async fn run(options: ProviderOptions) -> Result<(), ProviderError> {
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
    let provisioner = Provisioner::new(options.config.clone()).map_err(ProviderError::Config)?;
    let client = Client::connect(&options.join).await?;
    let mut provider = Provider { options, provisioner, client, nodes: BTreeMap::new(), n_failures: 0 };
    let mut interval = tokio::time::interval(LOOK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let result = loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stopped.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
        }
        match provider.look().await {
            Ok(()) => {}
            // It ends before us.
            Err(ProviderError::Net(_)) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    provider.end();
    result
}

impl Provider {
    async fn look(&mut self) -> Result<(), ProviderError> {
        let n_pending = self.n_pending();
        let config = self.provisioner.config();
        let provisioner = message::Provisioner {
            policy: config.policy.clone(),
            nodes_min: config.nodes_min,
            nodes_max: config.nodes_max,
            n_pending,
        };
        let status = self.client.demand(provisioner).await?;
        self.note_joined(&status);
        self.note_ended(status.now)?;
        let views: Vec<NodeView> = self.nodes.values_mut().filter_map(|node| node.view(&status)).collect();
        let demand = Demand {
            n_ready: status.n_ready,
            n_running: status.n_running,
            task_ns_mean: status.task_ns_mean,
            n_pending: self.n_pending(),
            nodes: &views,
        };
        let mut actions = vec![];
        self.provisioner.decide(status.now, &demand, &mut actions);
        for action in actions {
            match action {
                ProvisionAction::Request { n_nodes } => {
                    for _ in 0..n_nodes {
                        self.start(&status)?;
                    }
                }
                ProvisionAction::Release { executor } => {
                    // One that has just been lost is refused; it leaves the list by itself.
                    match self.client.drain(executor).await {
                        Ok(()) | Err(NetError::Refused(_)) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
        }
        Ok(())
    }

    fn n_pending(&self) -> u32 {
        self.nodes.values().filter(|n| n.executor.is_none()).count() as u32
    }

    fn start(&mut self, status: &DemandStatus) -> Result<(), ProviderError> {
        // A node that was lost keeps its name until its lease is over.
        let is_free = |i: &u32| {
            let name = (self.options.node_name)(*i);
            !self.nodes.contains_key(i) && !status.nodes.iter().any(|(_, known)| *known == name)
        };
        let number = (1..).find(is_free).expect("numbers do not end");
        let name = (self.options.node_name)(number);
        let args = (self.options.node_args)(number);
        match Part::start(&self.options.exe, &self.options.log_dir, &name, &args, true) {
            Ok(part) => {
                self.nodes.insert(number, Node { part, started: Instant::now(), executor: None });
                Ok(())
            }
            Err(ClusterError::Start { source, .. }) => self.failed(status.now, name, source.to_string()),
            Err(e) => self.failed(status.now, name, e.to_string()),
        }
    }

    /// Finds the executors of nodes that have joined, by their names.
    fn note_joined(&mut self, status: &DemandStatus) {
        for (number, node) in self.nodes.iter_mut().filter(|(_, n)| n.executor.is_none()) {
            let name = (self.options.node_name)(*number);
            if let Some((view, _)) = status.nodes.iter().find(|(_, known)| *known == name) {
                node.executor = Some(view.executor);
                self.n_failures = 0;
                self.provisioner.request_ended(status.now, 1, true);
            }
        }
    }

    /// Forgets nodes whose processes have ended.
    fn note_ended(&mut self, now: Timestamp) -> Result<(), ProviderError> {
        let mut ended = vec![];
        for (number, node) in &mut self.nodes {
            if let Some(why) = node.part.find_end() {
                ended.push((*number, why));
            } else if node.executor.is_none() && node.started.elapsed() > JOIN_MAX {
                ended.push((*number, format!("it did not join within {} s", JOIN_MAX.as_secs())));
            }
        }
        for (number, why) in ended {
            let mut node = self.nodes.remove(&number).expect("it was just seen");
            node.part.kill();
            if node.executor.is_none() {
                self.failed(now, (self.options.node_name)(number), why)?;
            }
        }
        Ok(())
    }

    fn failed(&mut self, now: Timestamp, name: String, why: String) -> Result<(), ProviderError> {
        eyas_text::say!("{name} could not be started: {why}");
        self.provisioner.request_ended(now, 1, false);
        self.n_failures += 1;
        if self.n_failures >= FAILURES_MAX && self.nodes.values().all(|n| n.executor.is_none()) {
            return Err(ProviderError::NoNode { name, why });
        }
        Ok(())
    }

    /// Ends all nodes and waits for them.
    fn end(&mut self) {
        for node in self.nodes.values_mut() {
            node.part.ask_to_end();
        }
        let deadline = Instant::now() + LEAVE_MAX;
        for node in self.nodes.values_mut() {
            node.part.wait_until(deadline);
        }
        self.nodes.clear();
    }
}
