//! `eyas provider`: the process that starts and ends the nodes of a cluster.

use crate::args::{
    Gpus, JoinArgs, NodeArgs, Nodes, ProvideArgs, ProviderKind, ProvisionArgs, duration, nodes,
};
use crate::fault::bad;
use crate::provide::share_key;
use crate::provider_check::{self, ProviderCheckArgs};
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, local, walltime};
use clap::{Args, Subcommand};
use eyas_cluster::dirs::NODE;
use eyas_cluster::options::NodeShape;
use eyas_cluster::plan::executor_words;
use eyas_cluster::provide::shared_state;
use eyas_cluster::values::by_name;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::provisioning::ProvisionConfig;
use eyas_core::provisioning::blocks::BlockConfig;
use eyas_runtime::provider::{Local, ProviderOptions, Share, note_nothing_begun, run};
use eyas_terms::needs::Equipment;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Subcommand)]
pub enum ProviderVerb {
    /// Show what would be submitted for nodes, submit one probe, and say in words what is wrong with it
    Check(ProviderCheckArgs),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ProviderArgs {
    #[command(subcommand)]
    pub verb: Option<ProviderVerb>,
    #[command(flatten)]
    pub join: JoinArgs,
    /// The nodes' folders are made in it
    #[arg(long, value_name = "DIR", required = true)]
    pub dir: Option<PathBuf>,
    #[arg(long, value_parser = nodes, required = true)]
    pub nodes: Option<Nodes>,
    #[command(flatten)]
    pub provision: ProvisionArgs,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
    /// How long a dispatcher that does not answer is waited for, where nodes are elsewhere
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub lease: Option<u64>,
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// The process that starts and ends nodes.
pub fn provider(mut args: ProviderArgs) -> Result<Exit, Fault> {
    if let Some(ProviderVerb::Check(args)) = args.verb.take() {
        return provider_check::check(args);
    }
    let (Some(dir), Some(nodes)) = (args.dir.take(), args.nodes) else {
        return Err(bad("`eyas provider` needs --dir and --nodes"));
    };
    let target = clusters::work_join(&args.join)?.read()?;
    let join = target.path().to_path_buf();
    let slots = args.node.slots.unwrap_or(1);
    let gpus = match args.node.gpus {
        Some(Gpus::Number(n)) => n,
        // The first node that joins shows how many there are.
        Some(Gpus::Auto) | None => 0,
    };
    let resources = by_name(&args.node.resources).map_err(bad)?;
    let config = ProvisionConfig {
        memory_per_node: args.node.memory.unwrap_or(u64::MAX),
        equipment: Equipment { gpus, resources },
        ..local::provision_config(nodes, &args.provision, slots)
    };
    let log_dir = join.parent().unwrap_or(Path::new(".")).to_path_buf();
    let lock = eyas_runtime::locks::provider_lock(&log_dir);
    let until_stdin_closes = args.until_stdin_closes;
    let exe = std::env::current_exe()?;
    let shape = args.provide.shape_with(&args.node);
    let launch = shape.launch()?;
    let runtime = client_runtime();
    let result = match args.provide.provider {
        ProviderKind::Local => {
            let (to, node) = (join.clone(), NodeShape { scratch: shape.scratch_here()?, ..shape.node });
            let node_args = move |name: &str| executor_words(&to, &dir, name, &node);
            let source = Local::new(exe, log_dir, node_args);
            let blocks = Local::block_config(NODE);
            let options =
                ProviderOptions { target, lock, config, blocks, elsewhere: None, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
        ProviderKind::Ssh | ProviderKind::Allocation => {
            let hosts = shape.hosts()?.expect("these providers have hosts");
            let mut launch = launch;
            if args.provide.provider == ProviderKind::Allocation {
                launch.node_args.extend(walltime::words_of_grid_engine());
            }
            let n_hosts = hosts.names.len() as u32;
            let key = serde_json::to_string(target.join()).map_err(|e| Fault::new(Exit::Other, e))?;
            let start = move |name: &str| {
                let number = name.strip_prefix(NODE).and_then(|digits| digits.parse().ok());
                let number = number.ok_or_else(|| format!("{name} has no number"))?;
                hosts.start(name, number, &launch)
            };
            let source = Local::of_hosts(log_dir, key, start);
            let blocks = BlockConfig { number_max: n_hosts, ..Local::block_config(NODE) };
            let options =
                ProviderOptions { target, lock, config, blocks, elsewhere: None, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
        ProviderKind::Command => {
            let cluster = target.cluster().to_string();
            let share = Share::of(&shared_state()?, &cluster);
            let blocks = shape.block_config(&cluster);
            let source = shape.commands(&cluster, launch, share.clone(), log_dir)?;
            let lease_ns = args.lease.unwrap_or(DispatcherConfig::default().lease_ns);
            let elsewhere = Some((Duration::from_nanos(lease_ns), share));
            let options = ProviderOptions { target, lock, config, blocks, elsewhere, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
        _ => {
            let cluster = target.cluster().to_string();
            let share = Share::of(&shared_state()?, &cluster);
            // The Python process works in this folder. Where all is killed before it answers, the folder has to say whose it was.
            share_key(&share, &join)?;
            let blocks = shape.block_config(&cluster);
            let mut source = shape.batch(&cluster, launch, share.clone(), log_dir);
            if let Err(refusal) = source.open() {
                note_nothing_begun(&join, &share)?;
                return Err(Fault::new(Exit::BadInput, refusal));
            }
            let lease_ns = args.lease.unwrap_or(DispatcherConfig::default().lease_ns);
            let elsewhere = Some((Duration::from_nanos(lease_ns), share));
            let options = ProviderOptions { target, lock, config, blocks, elsewhere, until_stdin_closes };
            runtime.block_on(run(options, source))
        }
    };
    result.map(|()| Exit::Good).map_err(|e| Fault::new(Exit::Cluster, e))
}
