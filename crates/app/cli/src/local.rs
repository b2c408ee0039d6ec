//! A local cluster: the checks of what is asked for, and the options of its parts.

use crate::args::{ClusterArgs, NodeArgs, Nodes, PolicyArgs, ProvisionArgs};
use crate::fault::bad;
use crate::node::{check_eviction, check_memory, check_node};
use crate::print::{plural, size};
use crate::{Exit, Fault, equipment, provide};
use eyas_cluster::dirs::NODE;
use eyas_cluster::options::{DispatcherShape, NodeShape, ProviderShape};
use eyas_cluster::plan::{NodeSource, Plan, Shape, share_of_machine};
use eyas_cluster::values::by_name;
use eyas_cluster::{Cluster, StartError};
use eyas_core::dispatcher::{CollectiveMode, DispatcherConfig};
use eyas_core::placement;
use eyas_core::provisioning::{ProvisionConfig, Provisioner};
use eyas_runtime::executor::system_users::check_folder;
use eyas_tasklist::TaskList;
use eyas_terms::needs::{PARTS, in_parts};
use eyas_text::{shown, shown_path};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// First argument of a slot process.
pub const SLOT_ARGUMENT: &str = "__slot";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that the processes of a cluster run, where this process is another program. The first name counts.
pub fn name_program(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

/// The program that the processes of a cluster run: the one that was named, else this program, or the `eyas` beside another
/// program that starts clusters.
pub fn program() -> Result<PathBuf, Fault> {
    if let Some(named) = PROGRAM.get() {
        return Ok(named.clone());
    }
    let this = std::env::current_exe()?;
    if this.file_name().is_none_or(|name| name != "eyas-lab") {
        return Ok(this);
    }
    let eyas = this.with_file_name("eyas");
    match eyas.is_file() {
        true => Ok(eyas),
        false => Err(Fault::new(Exit::Other, format!("there is no `eyas` beside {}", shown_path(&this)))
            .hint("`make build` puts both into .venv/bin")),
    }
}

/// Checks the settings for dispatchers, which would otherwise be refused after a folder was made.
pub fn check_policy(policy: &PolicyArgs) -> Result<(), Fault> {
    let checked = placement::by_name(&policy.placement, &dispatcher_config(policy).placement_config);
    let named = by_name(&policy.cluster_resources).map(drop);
    checked.map(drop).and(named).map_err(|e| Fault::new(Exit::BadInput, e))
}

/// Checks the request for a local cluster before anything is made for it.
pub fn check(args: &ClusterArgs) -> Result<(), Fault> {
    faults(args).into_iter().next().map_or(Ok(()), Err)
}

fn check_provisioning(args: &ClusterArgs) -> Result<(), Fault> {
    let provisioner = Provisioner::new(provision_config(args.nodes, &args.provision, 1));
    provisioner.map(drop).map_err(|e| Fault::new(Exit::BadInput, e))
}

/// What is wrong with the name of a policy that stands behind the option of that name.
pub fn policy_fault(args: &ClusterArgs, option: &str) -> Option<Fault> {
    match option {
        "placement" => check_policy(&args.policy).err(),
        "eviction" => check_eviction(&args.node).err(),
        "provisioning" => check_provisioning(args).err(),
        _ => None,
    }
}

/// All that is wrong with the request for a local cluster.
pub fn faults(args: &ClusterArgs) -> Vec<Fault> {
    let ClusterArgs { profile: _, nodes, provision, dispatchers, dir: _, node, policy, provide } = args;
    let bad = |e: String| Fault::new(Exit::BadInput, e);
    let mut all: Vec<Fault> = check_provisioning(args).err().into_iter().collect();
    if nodes.are_fixed() && (provision.provisioning.is_some() || provision.idle_release.is_some()) {
        let message =
            format!("--provisioning and --idle-release have nothing to decide with --nodes {}", nodes.max);
        all.push(bad(message).hint("a range, such as --nodes 1..4, lets nodes come and go"));
    }
    if nodes.max < *dispatchers {
        let message =
            format!("{dispatchers} dispatchers need at least as many nodes, --nodes allows {}", nodes.max);
        all.push(bad(message).hint("each dispatcher has nodes of its own"));
    }
    if !policy.cluster_resources.is_empty() && *dispatchers > 1 {
        let message = format!("{dispatchers} dispatchers cannot share --cluster-resource");
        all.push(bad(message).hint("one dispatcher counts what the whole cluster has"));
    }
    if node.gpus.is_some() && !provide.is_elsewhere() && !nodes.are_fixed() && nodes.max > 1 {
        let message = "the gpus of this machine cannot be shared among nodes that come and go".into();
        all.push(bad(message).hint("give a number of nodes, such as --nodes 2"));
    }
    all.extend(check_policy(policy).err());
    all.extend(provide::faults(provide, *nodes, *dispatchers));
    let of_node = match provide.is_elsewhere() {
        // Its folders are other machines'.
        true => check_eviction(node),
        false => check_node(node),
    };
    all.extend(of_node.err());
    let memory = if provide.is_elsewhere() { node.memory } else { Some(size_of_node(args).1) };
    all.extend(memory.and_then(|memory| check_memory(node, memory).err()));
    all
}

/// Refuses tasks that are too large for every node that a cluster of this machine will have.
pub fn check_tasks(cluster: &ClusterArgs, list: &TaskList) -> Result<(), Fault> {
    Room::of(cluster)?.map_or(Ok(()), |room| room.check(list))
}

/// What each node of a cluster of this machine has for one task, and what all of them have together.
pub struct Room {
    slots: u32,
    /// Bytes; so many more are the cache's.
    memory: u64,
    cache_memory: u64,
    gpus: u32,
    of_node: BTreeMap<String, u32>,
    of_cluster: BTreeMap<String, u32>,
}

impl Room {
    /// `None`: the nodes are elsewhere, so nobody knows what they will have.
    pub fn of(cluster: &ClusterArgs) -> Result<Option<Room>, Fault> {
        if cluster.provide.is_elsewhere() {
            return Ok(None);
        }
        let (slots, memory) = size_of_node(cluster);
        let cache_memory = cluster.node.cache_memory;
        Ok(Some(Room {
            slots,
            memory: memory.saturating_sub(cache_memory),
            cache_memory,
            gpus: equipment::gpu_names(cluster.node.gpus, 0, cluster.nodes.max).len() as u32,
            of_node: by_name(&cluster.node.resources).map_err(bad)?,
            of_cluster: by_name(&cluster.policy.cluster_resources).map_err(bad)?,
        }))
    }

    /// Refuses tasks that are too large.
    pub fn check(&self, list: &TaskList) -> Result<(), Fault> {
        let Room { slots, memory, cache_memory, gpus, of_node, of_cluster } = self;
        let (slots, memory, gpus) = (*slots, *memory, *gpus);
        for array in &list.arrays {
            let task = &array.template;
            let needs = array.needs.as_deref();
            let gpu_parts = needs.map_or(0, |needs| needs.gpu_parts);
            let amounts = || needs.into_iter().flat_map(|needs| &needs.resources);
            let lacking = amounts().find(|(name, n)| {
                of_cluster.get(*name).or_else(|| of_node.get(*name)).is_none_or(|has| has < n)
            });
            let (needs, hint) = if task.cpus > slots {
                let needs = format!("{} cpus, and each node has {}", task.cpus, plural(slots.into(), "slot"));
                (
                    needs,
                    format!("--slots {} gives each node more, also more than it has processors", task.cpus),
                )
            } else if let Some(bytes) = task.memory_bytes.filter(|bytes| *bytes > memory) {
                let needs =
                    format!("{} of memory, and each node has {} for tasks", size(bytes), size(memory));
                let hint = match cache_memory {
                    0 => "--memory says how much each node has; with fewer --nodes each has more",
                    _ => {
                        "--memory says how much each node has, and --cache-memory what its cache takes of that"
                    }
                };
                (needs, hint.into())
            } else if gpu_parts > gpus * PARTS {
                let needs = format!("{} gpus, and each node has {gpus}", in_parts(gpu_parts.into()));
                (needs, "--gpus says how many each node has".into())
            } else if let Some((name, n)) = lacking {
                let place = match (of_cluster.get(name), of_node.get(name)) {
                    (Some(has), _) => format!("the whole cluster has {has}"),
                    (None, has) => format!("each node has {}", has.unwrap_or(&0)),
                };
                let hint =
                    "--resource NAME=N says what each node has, --cluster-resource what all have together";
                (format!("{n} of {}, and {place}", shown(name)), hint.into())
            } else {
                continue;
            };
            let id = array.fill(&task.id, 0);
            return Err(bad(format!("task {} needs {needs}", shown(&id))).hint(hint));
        }
        Ok(())
    }
}

/// Slots and bytes of memory of each node of this machine.
fn size_of_node(args: &ClusterArgs) -> (u32, u64) {
    let (slots, memory) = share_of_machine(args.nodes.max);
    (args.node.slots.unwrap_or(slots), args.node.memory.unwrap_or(memory))
}

/// Whether the user asked for a cluster of a certain shape.
pub fn is_shaped(cluster: &ClusterArgs) -> bool {
    let ClusterArgs { profile, nodes, provision, dispatchers, dir, node, policy, provide } = cluster;
    profile.is_some()
        || provide.is_elsewhere()
        || *nodes != Nodes::fixed(1)
        || *dispatchers != 1
        || provision.provisioning.is_some()
        || provision.idle_release.is_some()
        || dir.is_some()
        || node.slots.is_some()
        || node.memory.is_some()
        || node.gpus.is_some()
        || !node.resources.is_empty()
        || !policy.cluster_resources.is_empty()
        || !node.home_local.is_empty()
        || !node.system_users.is_empty()
        || provide.node_dir.is_some()
        || policy.home_streams.is_some()
        || policy.home_rate.is_some()
        || node.cache != 4 << 30
        || node.eviction != "lru"
        || policy.placement != placement::affinity::NAME
        || policy.collectives != CollectiveMode::Auto
}

pub fn dispatcher_config(policy: &PolicyArgs) -> DispatcherConfig {
    DispatcherConfig {
        placement: policy.placement.clone(),
        placement_config: placement::Config {
            window: policy.window,
            utilisation_threshold: policy.utilisation_threshold,
            affinity: placement::affinity::Config { network: policy.network, ..Default::default() },
            ..placement::Config::default()
        },
        lease_ns: policy.lease,
        collectives: policy.collectives,
        keep_runs: policy.keep_runs,
        resources: by_name(&policy.cluster_resources).unwrap_or_default(),
        ..DispatcherConfig::default()
    }
}

/// Starts the processes of a local cluster in `dir`.
pub fn start(args: &ClusterArgs, dir: &Path, embedded: bool) -> Result<Cluster, Fault> {
    Ok(Cluster::of_plan(&plan(args, dir, embedded)?)?)
}

/// The parts of a local cluster in `dir`, which is created.
pub fn plan(args: &ClusterArgs, dir: &Path, embedded: bool) -> Result<Plan, Fault> {
    check(args)?;
    let fail = |source: std::io::Error| StartError::Folder { dir: dir.to_path_buf(), source };
    let plan = shape(args, dir, embedded)?.plan().map_err(fail)?;
    if !args.node.system_users.is_empty() && !args.provide.is_elsewhere() && args.provide.node_dir.is_none() {
        let dir = plan.cluster_dir();
        check_folder(&dir.join(NODE)).map_err(|e| Fault::new(Exit::BadInput, e))?;
        // Programs reach the nodes' folders by this one.
        let_through(dir).map_err(fail)?;
    }
    Ok(plan)
}

/// The options of a local cluster in `dir` as options of its parts.
fn shape(args: &ClusterArgs, dir: &Path, embedded: bool) -> Result<Shape, Fault> {
    let (slots, memory) = size_of_node(args);
    let node = NodeArgs {
        slots: Some(slots),
        memory: Some(memory),
        home_local: args.node.home_local.iter().map(|d| d.canonicalize().unwrap_or(d.clone())).collect(),
        ..args.node.clone()
    };
    let provided = |node: &NodeArgs| {
        NodeSource::Provider(Box::new(ProviderShape {
            nodes: args.nodes,
            provisioning: args.provision.provisioning.clone(),
            idle_release_ns: args.provision.idle_release,
            lease_ns: Some(args.policy.lease),
            ..args.provide.shape_with(node)
        }))
    };
    let nodes = if args.provide.is_elsewhere() {
        provided(&args.node)
    } else if args.nodes.are_fixed() {
        let scratch = args.provide.shape().scratch_here()?;
        let of = |i| {
            let gpu_names = equipment::gpu_names(node.gpus, i, args.nodes.max);
            NodeShape { gpu_names, scratch: scratch.clone(), ..node.shape() }
        };
        NodeSource::Fixed((0..args.nodes.max).map(of).collect())
    } else {
        provided(&node)
    };
    let dispatcher = DispatcherShape {
        listen: args.provide.listens(),
        advertise: args.provide.advertise.clone(),
        ..args.policy.shape()
    };
    Ok(Shape {
        program: program()?,
        dir: dir.to_path_buf(),
        n_dispatchers: args.dispatchers,
        dispatcher,
        nodes,
        is_embedded: embedded,
    })
}

/// Lets others pass through a folder, and see no more of it than before.
fn let_through(dir: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(dir)?.permissions().mode() & 0o7777;
    std::fs::set_permissions(dir, Permissions::from_mode(mode | 0o011))
}

/// The settings that decide how many nodes a local cluster has. `slots` are those of one node.
pub fn provision_config(nodes: Nodes, args: &ProvisionArgs, slots: u32) -> ProvisionConfig {
    let default = ProvisionConfig::default();
    ProvisionConfig {
        policy: args.provisioning.clone().unwrap_or(default.policy),
        nodes_min: nodes.min,
        nodes_max: nodes.max,
        release_idle_ns: args.idle_release.or(default.release_idle_ns),
        slots_per_node: slots,
        // A local node is restarted within a moment, and still has its cache.
        warm_share: 0.0,
        ..default
    }
}

impl PolicyArgs {
    /// What these options make of a dispatcher.
    fn shape(&self) -> DispatcherShape {
        DispatcherShape {
            listen: None,
            advertise: None,
            placement: self.placement.clone(),
            window: self.window,
            utilisation_threshold: self.utilisation_threshold,
            collectives: self.collectives,
            network: self.network,
            lease_ns: self.lease,
            home_streams: self.home_streams,
            home_bytes_per_s: self.home_rate,
            resources: self.cluster_resources.clone(),
            no_event_log: self.no_event_log,
            keep_runs: self.keep_runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_option_is_given_a_cluster_has_no_shape_and_no_fault() {
        let cluster = ClusterArgs::by_default();
        assert!(!is_shaped(&cluster) && faults(&cluster).is_empty());
    }
}
