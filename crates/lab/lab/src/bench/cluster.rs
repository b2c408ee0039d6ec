//! A real cluster for a benchmark, and its costs: processes of this binary, with TLS over loopback.

use super::failed;
use eyas_cli::args::{ClusterArgs, NodeArgs, Nodes, PolicyArgs, ProvisionArgs};
use eyas_cli::{Exit, Fault, local};
use eyas_client::Client;
use eyas_runtime::part::in_words;
use eyas_terms::array::{Command, Pattern, Piece, TaskArray, Template};
use eyas_wire::message::{ClusterStatus, Keep, ReplyBody, RequestBody, RunStatus};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The options of a cluster.
pub struct Shape {
    pub nodes: u32,
    pub slots: u32,
    pub cache_bytes: u64,
    pub placement: String,
    pub event_log: bool,
    pub dispatchers: u32,
}

pub struct Cluster {
    own: eyas_cluster::Cluster,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

/// The costs of one run.
pub struct RunCost {
    pub wall_ns: u64,
    pub dispatcher_cpu_ns: u64,
    /// Processor time of dispatcher, executors, slots and programs.
    pub all_cpu_ns: u64,
    pub dispatcher_rss_bytes: u64,
}

impl RunCost {
    pub fn rate_per_s(&self, n_tasks: u64) -> f64 {
        n_tasks as f64 * 1e9 / self.wall_ns as f64
    }
}

impl Cluster {
    /// Starts the processes in `dir` and waits until all nodes have joined.
    pub fn start(dir: &Path, shape: &Shape) -> Result<Cluster, Fault> {
        Cluster::start_changed(dir, shape, |_| ())
    }

    /// The same with other options, which `change` sets.
    pub fn start_changed(
        dir: &Path,
        shape: &Shape,
        change: impl FnOnce(&mut ClusterArgs),
    ) -> Result<Cluster, Fault> {
        let mut args = ClusterArgs {
            profile: None,
            provide: Default::default(),
            nodes: Nodes::fixed(shape.nodes),
            provision: ProvisionArgs::default(),
            dispatchers: shape.dispatchers,
            dir: Some(dir.to_path_buf()),
            node: NodeArgs {
                grace: 0,
                home_wait: 0,
                container_command: None,
                line_shell: None,
                gpus: None,
                resources: vec![],
                gpu_names: vec![],
                slots: Some(shape.slots),
                cache: shape.cache_bytes,
                memory: None,
                cache_memory: 0,
                eviction: "lru".into(),
                home_local: vec![],
                system_users: vec![],
            },
            policy: PolicyArgs {
                keep_runs: None,
                cluster_resources: vec![],
                collectives: eyas_core::dispatcher::CollectiveMode::Auto,
                network: eyas_core::network::NetworkUse::Off,
                placement: shape.placement.clone(),
                window: 3200,
                utilisation_threshold: 0.8,
                home_streams: None,
                home_rate: None,
                lease: 60_000_000_000,
                no_event_log: !shape.event_log,
            },
        };
        change(&mut args);
        let own = local::start(&args, dir, true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(own.connect())?;
        let mut cluster = Cluster { own, client, runtime };
        let deadline = Instant::now() + Duration::from_secs(30);
        while cluster.status()?.executors.len() < shape.nodes as usize {
            if let Some((name, why)) = cluster.own.processes_mut().find_ended() {
                return Err(Fault::new(Exit::Cluster, format!("{} ended: {why}", in_words(&name))));
            }
            if Instant::now() > deadline {
                return Err(Fault::new(Exit::Cluster, "the executors did not join within 30 s"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(cluster)
    }

    pub fn status(&mut self) -> Result<ClusterStatus, Fault> {
        Ok(self.runtime.block_on(self.client.status())?)
    }

    /// Submits `arrays` as one run and waits for its end; every task has to end well. The clock runs from
    /// the commit of the submission until the dispatcher reports that the last end is durable.
    pub fn run(&mut self, arrays: &[Arc<TaskArray>]) -> Result<RunCost, Fault> {
        let before = self.status()?.own_cpu_ns;
        let all_before = self.tree_cpu_ns();
        let (client, parts) = (&mut self.client, self.own.processes_mut());
        let ended = || {
            let (name, why) = parts.find_ended()?;
            Some(format!("{} ended: {why}", in_words(&name)))
        };
        let (status, wall_ns) = self.runtime.block_on(run(client, ended, arrays))?;
        let after = self.status()?;
        if status.n_done != status.n_tasks {
            let why = status.failures.last().map_or("for no reason given", |(_, why)| why.as_str());
            let n = status.n_tasks - status.n_done;
            return Err(Fault::new(
                Exit::Other,
                format!("{n} tasks of the benchmark did not end well: {why}"),
            ));
        }
        Ok(RunCost {
            wall_ns,
            dispatcher_cpu_ns: after.own_cpu_ns - before,
            all_cpu_ns: self.tree_cpu_ns() - all_before,
            dispatcher_rss_bytes: after.own_rss_bytes,
        })
    }

    /// The status after the executors' counters, which come with their heartbeats, include everything that
    /// ended before this call.
    pub fn settled_status(&mut self) -> Result<ClusterStatus, Fault> {
        let heartbeat = Duration::from_millis(1200);
        std::thread::sleep(heartbeat);
        self.status()
    }

    /// Processor time of all parts and of their children, including children that have ended.
    fn tree_cpu_ns(&self) -> u64 {
        let roots: Vec<u32> = self.own.processes().pids().iter().map(|(_, pid)| *pid).collect();
        tree_cpu_ns(&roots)
    }

    /// Ends all parts; gives the dispatcher's folder with the complete event log.
    pub fn stop(self) -> PathBuf {
        let dir = self.own.dispatcher_dir();
        self.own.stop();
        dir
    }
}

fn nonsense() -> Fault {
    Fault::new(Exit::Cluster, "the dispatcher's answer makes no sense")
}

/// Submits `arrays` as one run and waits for its end. Gives the run's last status, and the nanoseconds from the
/// commit until the dispatcher reported the last end. `ended` says which process ended too early, if one did.
pub async fn run(
    client: &mut Client,
    mut ended: impl FnMut() -> Option<String>,
    arrays: &[Arc<TaskArray>],
) -> Result<(RunStatus, u64), Fault> {
    let ReplyBody::RunOpened { run, .. } =
        client.ask(RequestBody::OpenRun { name: "bench".into(), keep: Keep::default(), into: None }).await?
    else {
        return Err(nonsense());
    };
    for array in arrays {
        client.send(RequestBody::AddArray { run, array: array.clone() })?;
    }
    let begun = Instant::now();
    let ReplyBody::RunAccepted { .. } = client.ask(RequestBody::CommitRun { run }).await? else {
        return Err(nonsense());
    };
    let watch = client.send(RequestBody::WatchRun { run, interval_ns: 1_000_000_000 })?;
    loop {
        // The dispatcher reports once a second; if a part has ended, no report would ever come.
        let reply = match tokio::time::timeout(Duration::from_secs(10), client.reply(watch)).await {
            Ok(reply) => reply?,
            Err(_) => match ended() {
                Some(why) => return Err(failed(why)),
                None => continue,
            },
        };
        match reply {
            ReplyBody::Run(status) if status.ended.is_some() => {
                return Ok((*status, begun.elapsed().as_nanos() as u64));
            }
            ReplyBody::Run(_) => {}
            ReplyBody::Refused { reason } => return Err(failed(reason)),
            _ => return Err(nonsense()),
        }
    }
}

/// Processor time in ns of the processes `roots`, of their descendants, and of all processes that these
/// have waited for.
pub fn tree_cpu_ns(roots: &[u32]) -> u64 {
    // SAFETY: a plain query.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut ticks: HashMap<u32, u64> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name may contain any characters, also brackets and spaces.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<u64> = rest.split_whitespace().skip(1).map(|f| f.parse().unwrap_or(0)).collect();
        if let (Some(parent), Some(used)) = (fields.first(), fields.get(10..14)) {
            children.entry(*parent as u32).or_default().push(pid);
            ticks.insert(pid, used.iter().sum());
        }
    }
    let mut to_do = roots.to_vec();
    let mut sum = 0;
    while let Some(pid) = to_do.pop() {
        sum += ticks.get(&pid).copied().unwrap_or(0);
        to_do.extend(children.remove(&pid).unwrap_or_default());
    }
    sum * (1_000_000_000 / ticks_per_s)
}

/// `n_tasks` tasks of one command that is the same for all, without files.
pub fn plain_array(n_tasks: u32, command: &[&str]) -> TaskArray {
    let command = Command::Exec(command.iter().map(|word| Pattern::literal(*word)).collect());
    TaskArray { n_tasks, first_index: 0, template: template(command, vec![]), columns: vec![], needs: None }
}

/// A template with nothing but a command and inputs.
pub fn template(command: Command<Pattern>, inputs: Vec<(Pattern, Pattern)>) -> Template {
    Template { inputs, ..Template::new(Pattern(vec![Piece::Literal("t".into()), Piece::Index]), command) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_this_process_has_used_some_time() {
        let own = std::process::id();
        let begun = Instant::now();
        let mut sum = 0u64;
        while tree_cpu_ns(&[own]) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "no processor time is seen");
            sum = (0..1_000_000u64).fold(sum, |a, b| a.wrapping_mul(31).wrapping_add(b));
        }
        assert_eq!(tree_cpu_ns(&[u32::MAX]), 0);
        std::hint::black_box(sum);
    }
}
