//! `--provider slurm` and its like, and `--provider ray`: options of the command line as settings of a batch system or of Ray.

use crate::args::{NodeArgs, ProvideArgs, ProviderKind, listed_every};
use crate::{Exit, Fault};
use eyas_core::provisioning::blocks::BlockConfig;
use eyas_runtime::provider::{self, Batch, BatchSettings, Launch, Refusal, Share, check_python};
use std::path::PathBuf;
use std::time::Duration;

pub fn fault(refusal: Refusal) -> Fault {
    let fault = Fault::new(Exit::BadInput, refusal.text);
    match refusal.hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

/// The Python that has Parsl or Ray: the one that is named, else the one of the environment that this program is installed in, else that
/// of PATH.
fn python(args: &ProvideArgs) -> PathBuf {
    if let Some(python) = &args.python {
        return python.clone();
    }
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("python3"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "python3".into())
}

/// What is asked of the batch system for each node.
pub fn settings(args: &ProvideArgs, node: &NodeArgs) -> BatchSettings {
    BatchSettings {
        kind: args.provider.name().into(),
        queue: args.partition.clone().or(args.queue.clone()),
        account: args.account.clone(),
        walltime: args.walltime.map(Duration::from_nanos),
        nodes_per_job: args.nodes_per_job.unwrap_or(1),
        slots: node.slots,
        memory_bytes: node.memory,
        address: args.address.clone(),
        gpus: node.gpus.map(|gpus| gpus.to_string()),
        options: args.options.iter().map(|option| (option.name.clone(), option.value.clone())).collect(),
    }
}

/// Time between two listings of the nodes of Ray, where nothing else is said: it costs Ray less than a millisecond.
const RAY_LISTED_EVERY: Duration = Duration::from_secs(2);
/// Time between two submissions to Ray, which has no queue that could be flooded.
const RAY_SUBMIT_EVERY_NS: u64 = 100_000_000;

/// Checks that there is a Python with Parsl or Ray, and what it says of the options, before anything is made. To load Parsl takes a
/// part of a second, for which the first task would wait, so it is asked only where there is something that it may refuse.
pub fn check(args: &ProvideArgs, node: &NodeArgs) -> Result<(), Fault> {
    let python = python(args);
    check_python(&python, args.provider.name()).map_err(fault)?;
    let needs_nothing =
        matches!(args.provider, ProviderKind::Slurm | ProviderKind::GridEngine | ProviderKind::Ray);
    if needs_nothing && args.options.is_empty() && args.nodes_per_job.is_none_or(|n| n == 1) {
        return Ok(());
    }
    settings(args, node)
        .check(&python)
        .map_err(fault)?
        .into_iter()
        .next()
        .map_or(Ok(()), |wrong| Err(fault(wrong)))
}

pub fn block_config(cluster: &str, args: &ProvideArgs) -> BlockConfig {
    if args.provider == ProviderKind::Ray {
        let list_every = args.list_every.map_or(RAY_LISTED_EVERY, Duration::from_nanos);
        let config = provider::block_config(cluster, list_every, 1);
        return BlockConfig { submit_every_ns: RAY_SUBMIT_EVERY_NS, ..config };
    }
    provider::block_config(cluster, listed_every(args.list_every), args.nodes_per_job.unwrap_or(1))
}

pub fn source(
    cluster: &str,
    args: &ProvideArgs,
    node: &NodeArgs,
    launch: Launch,
    share: Share,
    log_dir: PathBuf,
) -> Batch {
    let settings = settings(args, node);
    with_settings(cluster, args, settings, launch, share, log_dir)
}

pub fn with_settings(
    cluster: &str,
    args: &ProvideArgs,
    settings: BatchSettings,
    launch: Launch,
    share: Share,
    log_dir: PathBuf,
) -> Batch {
    Batch::new(cluster, python(args), settings, launch, share, log_dir)
}

/// Options of a profile that Parsl or Ray does not take, in sentences. `Err`: there is nobody to ask, and why.
pub fn wrong_options(args: &ProvideArgs, node: &NodeArgs) -> Result<Vec<String>, Refusal> {
    let python = python(args);
    check_python(&python, args.provider.name())?;
    let wrong = settings(args, node).check(&python)?;
    Ok(wrong.into_iter().map(|refusal| refusal.to_string()).collect())
}
