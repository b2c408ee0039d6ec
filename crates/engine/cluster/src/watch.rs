//! A run that goes on is watched to its end, and with it the parts of a cluster that was started for it.
//!
//! A dispatcher that goes away is waited for, as it may be restarted, unless it is part of a cluster of this process.

use crate::Cluster;
use crate::processes::{PROVIDER, ProcessError};
use crate::reach::{Reaching, Step, Unreached, Waits};
use eyas_client::{Client, Target};
use eyas_net::NetError;
use eyas_runtime::part::PartEnd;
use eyas_terms::RunId;
use eyas_wire::message::{Reply, ReplyBody, RequestBody, RunStatus};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Interval;

/// How often a connection may break before a first answer comes on it.
const LOST_MAX: u32 = 5;
/// How often a client checks whether the parts of its embedded cluster are alive.
pub const WATCH_PARTS: Duration = Duration::from_millis(500);
/// How often, and how many times, the parts are looked at when the dispatcher is lost: the connection of a process that was killed
/// may end before the process has.
pub const LOOK_AGAIN: Duration = Duration::from_millis(50);
pub const LOOKS_MAX: u32 = 10;

/// What happens to a run that is watched.
#[derive(Debug)]
pub enum Event {
    /// How the run is now. It is over if it has ended.
    Run(Box<RunStatus>),
    /// The connection broke, and is made again.
    Lost(NetError),
    /// The dispatcher does not answer, and is waited for.
    Waits(Waits),
    /// The dispatcher answers again.
    Back,
    /// A node ended; the run goes on with the others.
    NodeEnded { name: String, why: PartEnd },
    /// What starts and ends nodes was killed in this way, and is started again.
    ProviderRestarted { how: String },
}

/// Why a run cannot be watched any longer.
#[derive(Debug)]
pub enum Broken {
    /// The connection to the dispatcher broke, too often or for good.
    Lost(NetError),
    /// The dispatcher of a cluster of this process is gone, with the part that has ended, if one has.
    OwnLost { error: NetError, ended: Option<(String, PartEnd)> },
    /// The dispatcher does not come back.
    Unreached(Unreached),
    /// The dispatcher does not know the run, or does not show it.
    Refused(String),
    /// A part ended without which the cluster cannot go on. `blocks_outlive`: its nodes are blocks that go on.
    PartEnded { name: String, why: PartEnd, blocks_outlive: bool },
    /// All nodes have ended.
    NoNode { last: String },
    /// A part could not be started again.
    Process(ProcessError),
}

/// A run that is watched.
pub struct Watch<'a> {
    client: Client,
    run: RunId,
    interval_ns: u64,
    /// The number of the request whose answers are reports of the run.
    request: u64,
    /// The cluster of this process that the run is on.
    cluster: Option<&'a mut Cluster>,
    look: Interval,
    /// The connection broke.
    reaching: Option<Reaching>,
    n_lost: u32,
    /// What was seen at once, and is given one by one, and what comes after it.
    seen: VecDeque<Event>,
    broken: Option<Broken>,
}

impl Cluster {
    /// Finds which nodes have ended: work goes on with the others. Errors: it cannot go on without any node, nor without a dispatcher or
    /// the provider that starts nodes. A provider that was killed is started again. `tell` is told what has happened.
    pub fn look_after_parts(&mut self, mut tell: impl FnMut(Event)) -> Result<(), Broken> {
        let Cluster { processes, dir, .. } = self;
        let ended = processes.take_ended_nodes();
        let killed = processes.find_killed_provider();
        match (processes.find_ended(), killed) {
            (Some((name, _)), Some((how, since))) if name == PROVIDER => {
                if processes.is_room_for_nodes(dir, since) {
                    tell(Event::ProviderRestarted { how });
                    processes.restart_provider().map_err(Broken::Process)?;
                }
            }
            (Some((name, why)), _) => {
                let blocks_outlive = processes.blocks_outlive();
                return Err(Broken::PartEnded { name, why, blocks_outlive });
            }
            (None, _) => {}
        }
        ended.into_iter().for_each(|(name, why)| tell(Event::NodeEnded { name, why }));
        let last = processes.last_of_all_nodes();
        last.map_or(Ok(()), |last| Err(Broken::NoNode { last: last.into() }))
    }
}

impl<'a> Watch<'a> {
    /// Begins to watch a run over this connection; reports come at most every `interval_ns`. `cluster`: the one of this process that
    /// the run is on.
    pub fn begin(
        mut client: Client,
        run: RunId,
        interval_ns: u64,
        cluster: Option<&'a mut Cluster>,
    ) -> Result<Watch<'a>, NetError> {
        let request = client.watch(run, interval_ns)?;
        let look = tokio::time::interval(WATCH_PARTS);
        Ok(Watch {
            client,
            run,
            interval_ns,
            request,
            cluster,
            look,
            reaching: None,
            n_lost: 0,
            seen: VecDeque::new(),
            broken: None,
        })
    }

    /// The cluster, as it was last reached.
    pub fn target(&self) -> &Target {
        self.client.target()
    }

    /// Whether the run is on a cluster of this process.
    pub fn is_own(&self) -> bool {
        self.cluster.is_some()
    }

    /// Whether there is no connection now.
    pub fn is_lost(&self) -> bool {
        self.reaching.is_some()
    }

    pub fn run(&self) -> RunId {
        self.run
    }

    /// Has all tasks of the run end.
    pub fn cancel(&mut self) {
        // Where the connection is broken, what comes next says so.
        let _ = self.client.send(RequestBody::Cancel { run: Some(self.run), task: None });
    }

    /// The next thing that happens. Nothing is lost where this is dropped before it is done.
    pub async fn next(&mut self) -> Result<Event, Broken> {
        loop {
            if let Some(event) = self.seen.pop_front() {
                return Ok(event);
            }
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            if let Some(reaching) = &mut self.reaching {
                match reaching.next().await.map_err(Broken::Unreached)? {
                    Step::Waits(waits) => return Ok(Event::Waits(waits)),
                    Step::There(client) => self.go_on_with(*client),
                }
                continue;
            }
            tokio::select! {
                reply = self.client.next() => match reply {
                    Ok(reply) => self.hear(reply),
                    Err(error) if self.is_own() => return Err(self.own_lost(error).await),
                    // The dispatcher accepts us and closes the connection, again and again.
                    Err(error) if self.n_lost == LOST_MAX => return Err(Broken::Lost(error)),
                    Err(error) => {
                        self.n_lost += 1;
                        self.reaching = Some(Reaching::new(self.target().file().clone()));
                        return Ok(Event::Lost(error));
                    }
                },
                _ = self.look.tick(), if self.cluster.is_some() => self.look_after_parts(),
            }
        }
    }

    fn hear(&mut self, reply: Reply) {
        self.n_lost = 0;
        match reply.body {
            ReplyBody::Run(status) if reply.number == self.request => {
                self.seen.push_back(Event::Run(status));
            }
            ReplyBody::Refused { reason } => self.broken = Some(Broken::Refused(reason)),
            _ => {}
        }
    }

    /// The dispatcher is back.
    fn go_on_with(&mut self, client: Client) {
        self.client = client;
        self.reaching = None;
        self.seen.push_back(Event::Back);
        // Where this fails, the connection is broken again, which the next reply says.
        if let Ok(request) = self.client.watch(self.run, self.interval_ns) {
            self.request = request;
        }
    }

    fn look_after_parts(&mut self) {
        let Some(cluster) = self.cluster.as_deref_mut() else { return };
        let seen = &mut self.seen;
        self.broken = cluster.look_after_parts(|event| seen.push_back(event)).err();
    }

    async fn own_lost(&mut self, error: NetError) -> Broken {
        for _ in 0..LOOKS_MAX {
            let ended = self.cluster.as_mut().and_then(|cluster| cluster.processes.find_ended());
            if ended.is_some() {
                return Broken::OwnLost { error, ended };
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Broken::OwnLost { error, ended: None }
    }
}
