//! A cluster that stays: it is made whole, and it is told to end.
//!
//! What is missing is started, and what is there is taken over: the nodes of a dispatcher that was killed live on for the length of
//! their lease, and come back with what they run.

use crate::dirs::{node_dirs, node_name};
use crate::end;
use crate::kept::{self, NotKept};
use crate::plan::Plan;
use crate::processes::{ProcessError, Processes};
use crate::provide::{ProvideError, may_leave_blocks};
use crate::reach::PATIENCE;
use crate::remains::sweep_homes;
use crate::starting::{self, StartingError};
use eyas_client::{Choice, Client, JoinFile, Target};
use eyas_net::NetError;
use eyas_runtime::locks::{dispatcher_lock, holder_of};
use eyas_runtime::part::PartEnd;
use eyas_terms::NodeState;
use eyas_wire::identity::IdentityError;
use eyas_wire::message::ClusterStatus;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a node may take to join, besides the lease of one that was there before.
pub const JOIN_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// How long a dispatcher that was told to end may take until its join file is gone.
const DOWN_MAX: Duration = Duration::from_secs(10);
const DOWN_PAUSE: Duration = Duration::from_millis(10);

/// A cluster that is whole.
#[derive(Debug)]
pub struct Whole {
    /// How it is now.
    pub status: ClusterStatus,
    /// All its dispatchers were there before.
    pub was_up: bool,
    /// The nodes that were started.
    pub started: Vec<String>,
    /// What starts and ends nodes was started.
    pub has_started_provider: bool,
}

impl Whole {
    /// Whether nothing had to be started.
    pub fn was_whole(&self) -> bool {
        self.was_up && self.started.is_empty() && !self.has_started_provider
    }
}

/// What is waited for meanwhile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waited {
    /// A node of before is there, in the process of that number: it joins again, or ends within its lease.
    Node { name: String, pid: u32 },
    /// The nodes of before have to end before others are started in their folders.
    EndsOfNodes,
}

/// Why a cluster is not whole.
#[derive(Debug)]
pub enum NotWhole {
    Starting(StartingError),
    Process(ProcessError),
    Net(NetError),
    NotKept(NotKept),
    /// It is up, and not to be changed by these options.
    IsUp,
    /// The process of that number has its dispatcher's folder and does not answer.
    Silent {
        pid: u32,
    },
    /// It was killed, and its nodes came from this kind of provider, which these options do not name.
    KilledElsewhere {
        kind: String,
    },
    /// The process of that number, of before, starts and ends nodes and does not answer.
    SilentProvider {
        pid: u32,
    },
    /// The process of that number, of before, still uses the folder of a node.
    NodeStays {
        pid: u32,
        node: PathBuf,
    },
    /// A part ended before the cluster was whole.
    PartEnded {
        name: String,
        why: PartEnd,
    },
    /// A node has not joined in time. `of_before`: the process that has its folder, where that is none that was started now.
    NotJoined {
        name: String,
        of_before: Option<u32>,
        log: PathBuf,
    },
}

macro_rules! from {
    ($($error:ty => $made:expr),*) => {$(
        impl From<$error> for NotWhole {
            fn from(e: $error) -> NotWhole {
                $made(e.into())
            }
        }
    )*};
}
from! {
    StartingError => NotWhole::Starting,
    ProcessError => NotWhole::Process,
    NetError => NotWhole::Net,
    IdentityError => NotWhole::Net,
    NotKept => NotWhole::NotKept
}

/// Makes the cluster of a plan whole, and leaves it on its own. `say` is told what is waited for.
pub async fn make_whole(plan: &Plan, mut say: impl FnMut(Waited)) -> Result<Whole, NotWhole> {
    let _starting = starting::hold(&plan.dir)?;
    let dir = plan.cluster_dir();
    let file = JoinFile::new(plan.join_of(0), Choice::Own);
    let Some(dispatchers) = await_dispatchers(plan, &file).await else {
        return Err(NotWhole::Silent { pid: holder_of(&plan.lock_of(0)).unwrap_or_default() });
    };
    let was_up = dispatchers.is_empty();
    // The join file goes when a cluster ends in order.
    let killed = kept::provider(&plan.dir).filter(|_| !was_up && !plan.is_elsewhere && file.path().exists());
    if let Some(kind) = killed {
        return Err(NotWhole::KilledElsewhere { kind });
    }
    let mut cluster = Processes::default();
    cluster.start_dispatchers(plan, &dispatchers)?;
    let mut client = Client::connect(&file.read()?).await?;
    let mut has_started_provider = false;
    if plan.provider_args.is_none() {
        // Somebody else decides about the nodes of that cluster, and only the kept words say how its blocks are ended.
        let has_blocks = kept::words(&plan.dir).is_some_and(|words| may_leave_blocks(&words));
        if was_up && (has_blocks || client.status().await?.provisioner.is_some()) {
            return Err(NotWhole::IsUp);
        }
        kept::keep(&plan.dir, None)?;
    } else {
        // Whoever starts and ends nodes may have been killed alone, or may have outlived the dispatcher.
        let has_provider = has_provider(&mut client, plan).await?;
        if was_up && has_provider {
            return Err(NotWhole::IsUp);
        }
        if !has_provider {
            if !plan.is_elsewhere {
                await_free_nodes(dir, || say(Waited::EndsOfNodes)).await?;
            }
            kept::keep(&plan.dir, plan.provider_args.as_deref())?;
            cluster.start_provider(plan)?;
            has_started_provider = true;
        }
    }
    let started = fill(&mut client, &mut cluster, plan, say).await?;
    let status = await_whole(&mut client, &mut cluster, plan).await?;
    cluster.detach();
    Ok(Whole { status, was_up, started, has_started_provider })
}

/// Waits until all nodes have joined which are there without work, and until whoever starts the others has.
async fn await_whole(
    client: &mut Client,
    cluster: &mut Processes,
    plan: &Plan,
) -> Result<ClusterStatus, NotWhole> {
    loop {
        let status = client.status().await?;
        let has_provisioner = plan.provider_args.is_none() || status.provisioner.is_some();
        // How long a queue of nodes elsewhere is, nobody knows.
        let has_nodes = plan.is_elsewhere || connected(&status).count() >= plan.nodes_min as usize;
        if has_provisioner && has_nodes {
            return Ok(status);
        }
        if let Some((name, why)) = cluster.find_ended() {
            return Err(NotWhole::PartEnded { name, why });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether somebody starts and ends nodes. One who has lost the dispatcher comes back to it, or ends.
async fn has_provider(client: &mut Client, plan: &Plan) -> Result<bool, NotWhole> {
    let deadline = Instant::now() + JOIN_MAX + Duration::from_nanos(plan.lease_ns);
    loop {
        if client.status().await?.provisioner.is_some() {
            return Ok(true);
        }
        let Some(pid) = holder_of(&plan.provider_lock()) else { return Ok(false) };
        if Instant::now() > deadline {
            return Err(NotWhole::SilentProvider { pid });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The dispatchers whose directories no process has.
fn missing_dispatchers(plan: &Plan) -> Vec<usize> {
    (0..plan.dispatchers.len()).filter(|i| holder_of(&plan.lock_of(*i)).is_none()).collect()
}

/// Waits until the first dispatcher answers, which may just have been started, or a dispatcher is missing: one that has
/// just been killed may take a moment to be gone. Gives those that are missing, or `None` if neither came.
async fn await_dispatchers(plan: &Plan, file: &JoinFile) -> Option<Vec<usize>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let missing = missing_dispatchers(plan);
        if !missing.is_empty() {
            return Some(missing);
        }
        if let Ok(target) = file.read()
            && Client::connect(&target).await.is_ok()
        {
            return Some(missing);
        }
        if Instant::now() > deadline {
            return None;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn connected(status: &ClusterStatus) -> impl Iterator<Item = &str> {
    status.executors.iter().filter(|e| e.state != NodeState::Silent).map(|e| e.name.as_str())
}

/// Starts the nodes of `plan` that are not there, and waits until all have joined. One that is there, from before the
/// dispatcher was killed, joins by itself or ends when its lease does; then another one takes its place. Gives the names of those that
/// were started.
async fn fill(
    client: &mut Client,
    cluster: &mut Processes,
    plan: &Plan,
    mut say: impl FnMut(Waited),
) -> Result<Vec<String>, NotWhole> {
    let dir = plan.cluster_dir();
    let names = (1..=plan.executor_args.len() as u32).map(node_name);
    let mut missing: BTreeMap<String, usize> = names.enumerate().map(|(i, name)| (name, i)).collect();
    let deadline = Instant::now() + JOIN_MAX + Duration::from_nanos(plan.lease_ns);
    let (mut started, mut taken_over) = (vec![], BTreeMap::new());
    loop {
        let status = client.status().await?;
        for name in connected(&status) {
            missing.remove(name);
        }
        if missing.is_empty() {
            break;
        }
        for (name, i) in &missing {
            let holder = holder_of(&dir.join(name).join("cache/lock"));
            if started.contains(name) {
                if let Some(why) = cluster.end_of(name) {
                    return Err(NotWhole::PartEnded { name: name.clone(), why });
                }
            } else if let Some(pid) = holder {
                if taken_over.insert(name.clone(), pid).is_none() {
                    say(Waited::Node { name: name.clone(), pid });
                }
            } else {
                cluster.start_node(plan, *i)?;
                started.push(name.clone());
            }
        }
        if Instant::now() > deadline {
            let (name, _) = missing.pop_first().expect("some are missing");
            let of_before = taken_over.remove(&name).filter(|_| !started.contains(&name));
            let log = plan.dir.join(format!("{name}.log"));
            return Err(NotWhole::NotJoined { name, of_before, log });
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(started)
}

/// Where nodes come and go, those of before end with the part that started them. `waits` is called once if they are waited for.
async fn await_free_nodes(dir: &Path, mut waits: impl FnMut()) -> Result<(), NotWhole> {
    let deadline = Instant::now() + JOIN_MAX;
    let mut has_said = false;
    loop {
        let held = |node: &PathBuf| holder_of(&node.join("cache/lock"));
        let nodes = node_dirs(dir);
        let Some((node, pid)) = nodes.iter().find_map(|node| Some((node, held(node)?))) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            return Err(NotWhole::NodeStays { pid, node: node.clone() });
        }
        if !std::mem::replace(&mut has_said, true) {
            waits();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A cluster that has ended.
#[derive(Debug)]
pub struct Ended {
    /// It had been killed, and what was left of it was ended.
    pub was_killed: bool,
    /// Tasks that had not ended; the same cluster goes on with them when it is started again.
    pub n_unfinished: u64,
}

/// Why a cluster has not ended, or not all of it.
#[derive(Debug)]
pub enum NotEnded {
    /// Nobody answers, and nothing says how what is left of the cluster is ended.
    Nobody(NetError),
    Net(NetError),
    /// The process of that number still ends nodes.
    StillEnding {
        pid: u32,
    },
    /// What may be left, in sentences.
    Left(Vec<String>),
    Provide(ProvideError),
}

/// Tells a cluster to end, and waits for its dispatcher and for what starts nodes. Of one whose dispatcher and provider were killed, the
/// nodes are ended. `slow` is called where that takes long, with how long it is waited for.
pub async fn end_standing(target: &Target, slow: impl FnOnce(Duration)) -> Result<Ended, NotEnded> {
    let path = target.path();
    let mut client = match Client::connect(target).await {
        Ok(client) => client,
        Err(e @ (NetError::Connect { .. } | NetError::NoAnswer { .. })) => {
            let dir = target.dir();
            if holder_of(&dispatcher_lock(dir)).is_some() || !kept::is_kept(dir) {
                return Err(NotEnded::Nobody(e));
            }
            end_provided(dir, target.cluster(), slow)?;
            let _ = std::fs::remove_file(path);
            return Ok(Ended { was_killed: true, n_unfinished: 0 });
        }
        Err(e) => return Err(NotEnded::Net(e)),
    };
    let n_unfinished = match client.status().await {
        Ok(status) => status.runs.iter().map(|r| r.n_tasks - r.n_ended()).sum(),
        Err(_) => 0,
    };
    client.shut_down().await.map_err(NotEnded::Net)?;
    // The join file goes when the dispatcher does.
    let deadline = Instant::now() + DOWN_MAX;
    while path.exists() && Instant::now() < deadline {
        tokio::time::sleep(DOWN_PAUSE).await;
    }
    // A local cluster's nodes lie beside its dispatcher.
    if let Some(dir) = path.parent().and_then(Path::parent) {
        sweep_homes(dir);
    }
    if let Some(dir) = target.dir_here() {
        end_provided(dir, target.cluster(), slow)?;
    }
    Ok(Ended { was_killed: false, n_unfinished })
}

/// Waits for the provider of a cluster that was told to end, or ends what one that was killed has left.
fn end_provided(dispatcher_dir: &Path, cluster: &str, slow: impl FnOnce(Duration)) -> Result<(), NotEnded> {
    end::await_provider(dispatcher_dir, slow).map_err(|pid| NotEnded::StillEnding { pid })?;
    let left = end::end_kept(dispatcher_dir, cluster).map_err(NotEnded::Provide)?;
    if left.is_empty() { Ok(()) } else { Err(NotEnded::Left(left)) }
}
