//! `eyas executor`: the part that runs tasks on one node.

use crate::args::{JoinArgs, NodeArgs, duration};
use crate::print::reason;
use crate::runtimes::{serve, service_runtime};
use crate::{Exit, Fault, clusters, declared, dirs, equipment, local, node, probe, provide, tmpfs, walltime};
use clap::Args;
use eyas_client::JoinFile;
use eyas_cluster::dirs::nodes_dir_name;
use eyas_cluster::keeper;
use eyas_runtime::executor::scratch::{Scratch, ScratchOptions};
use eyas_runtime::executor::{DataPlane, ExecutorError, ExecutorOptions};
use eyas_text::shown_path;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// First argument of the process that removes the folder of an executor that was killed; the folder and the executor's process follow.
pub const KEEPER_ARGUMENT: &str = "__keeper";

#[derive(Args)]
pub struct ExecutorArgs {
    #[command(flatten)]
    pub join: JoinArgs,
    /// Cache and sandboxes, on a disk of this node [default: a folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// What people call it [default: the host's name]
    #[arg(long)]
    pub name: Option<String>,
    /// A name or address of this machine, as storage that knows where its files lie calls it, or a rule `[[home-on]]` of
    /// eyas.toml (may be given more than once) [default: --name, and the host's name and addresses]
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub node: NodeArgs,
    /// Address to serve the cache on [default: any, or loopback when the dispatcher is on loopback]
    #[arg(long, value_name = "HOST:PORT")]
    pub data_listen: Option<String>,
    /// tls: encrypted; signed: tickets and digests only, for a trusted network [default: signed on loopback, else tls]
    #[arg(long, value_name = "HOW", value_parser = ["tls", "signed"])]
    pub data_plane: Option<String>,
    /// Remove the directory at the end
    #[arg(long, requires = "dir", conflicts_with = "scratch")]
    pub remove_dir: bool,
    /// A folder of folders, on a disk of this node: one that an earlier executor of yours has left there is used again, with
    /// its cache, or a new one is made; --dir becomes a link to it
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Folders there that were unused for longer are removed; 0: none is used again, and this one is removed at the end
    #[arg(long, value_name = "TIME", requires = "scratch", default_value = "7d", value_parser = duration)]
    pub scratch_age: u64,
    /// Only look around, for `eyas provider check`
    #[arg(long, hide = true)]
    pub probe: bool,
    /// How long the batch system lets this executor live, from its start on; no task is begun that would not end in time
    /// [default: what Slurm says in the job's environment]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub walltime: Option<u64>,
    /// When that time ends, in seconds since 1970 [default: after --walltime]
    #[arg(long, value_name = "SECONDS", requires = "walltime")]
    pub walltime_end: Option<u64>,
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

pub fn executor(args: ExecutorArgs) -> Result<Exit, Fault> {
    if args.probe {
        return probe::look_around(
            &args.node,
            args.scratch.as_deref(),
            args.dir.as_deref(),
            args.join.join.as_deref(),
        );
    }
    node::check_node(&args.node)?;
    let memory = args.node.memory.unwrap_or_else(eyas_runtime::machine::memory_bytes);
    node::check_memory(&args.node, memory)?;
    let scratch = args.scratch.as_ref().map(|root| scratch_of(root, &args)).transpose()?;
    let own_dir = match &scratch {
        Some(scratch) => Some(scratch.dir().to_path_buf()),
        None => args.dir.clone(),
    };
    let file = match &args.join.join {
        Some(join) if join == Path::new("-") => {
            JoinFile::named(provide::join_from_stdin(own_dir.as_deref())?)
        }
        _ => clusters::work_join(&args.join)?,
    };
    let target = file.read()?;
    let address = &target.join().address;
    let on_loopback = is_loopback(address);
    let data_plane = match args.data_plane.as_deref() {
        Some("tls") => DataPlane::Tls,
        Some(_) => DataPlane::Signed,
        None if on_loopback => DataPlane::Signed,
        None => DataPlane::Tls,
    };
    let data_listen = args.data_listen.unwrap_or_else(|| listens_for(address, on_loopback).into());
    let dir = match own_dir {
        Some(dir) => dir,
        None => dirs::state_dir()?.join(format!("executor-{}", std::process::id())),
    };
    // For the nodes of a local cluster this has been reported already.
    if !args.until_stdin_closes {
        tmpfs::say_so(&std::path::absolute(&dir)?, args.node.cache);
    }
    let system_users = node::system_users(&args.node).map_err(|e| Fault::new(Exit::BadInput, e))?;
    let gpu_names = match args.node.gpu_names.is_empty() {
        true => equipment::gpu_names(args.node.gpus, 0, 1),
        false => args.node.gpu_names,
    };
    let equipment =
        equipment::of_node(&gpu_names, &args.node.resources).map_err(|e| Fault::new(Exit::BadInput, e))?;
    let remove = dir.clone();
    let name = args.name.unwrap_or_else(eyas_host::host_name);
    let hosts = match args.hosts.is_empty() {
        true => eyas_host::names_of_host(&name),
        false => args.hosts,
    };
    let home_on = declared::own_directories(&hosts)?;
    let options = ExecutorOptions {
        target,
        dir,
        name,
        slots: args.node.slots.unwrap_or_else(provide::processors),
        cache_bytes: args.node.cache,
        cache_memory_bytes: args.node.cache_memory,
        memory_bytes: memory,
        equipment,
        gpu_names,
        eviction: args.node.eviction,
        data_listen,
        data_plane,
        home_local: args.node.home_local,
        home_on,
        hosts,
        exe: std::env::current_exe()?,
        slot_args: vec![local::SLOT_ARGUMENT.into()],
        until_stdin_closes: args.until_stdin_closes,
        walltime: walltime::of(args.walltime, args.walltime_end),
        grace: Duration::from_nanos(args.node.grace),
        home_wait: Duration::from_nanos(args.node.home_wait),
        container_command: args
            .node
            .container_command
            .map(|command| command.split_whitespace().map(str::to_owned).collect()),
        line_shell: args.node.line_shell,
        system_users,
    };
    let keeper = (args.remove_dir || scratch.is_some())
        .then(|| keeper::start(KEEPER_ARGUMENT, &remove))
        .transpose()?;
    if let Some(scratch) = &scratch {
        scratch.begin()?;
    }
    let runtime = service_runtime()?;
    let result = serve(&runtime, eyas_runtime::executor::run(options));
    // A thread that hangs in a system call, for example on a network file system that is away, must not keep
    // the process alive.
    runtime.shutdown_background();
    // Where it could not begin, the directory may be another executor's.
    let was_ours = matches!(&result, Ok(()) | Err(ExecutorError::LeaseEnded { .. } | ExecutorError::Net(_)));
    let undone = match scratch {
        Some(scratch) => Some(keeper::leave(scratch)),
        None if args.remove_dir && was_ours => Some(keeper::remove_node_dir(&remove)),
        None => None,
    };
    undone.iter().flatten().for_each(|sentence| eyas_text::say!("{sentence}"));
    if let Some(keeper) = keeper.filter(|_| undone.is_some_and(|undone| undone.is_empty())) {
        keeper.dismiss();
    }
    result.map(|()| Exit::Good).map_err(|e| Fault::new(Exit::Cluster, e))
}

/// Whether a dispatcher's address is one for its own machine alone.
pub fn is_loopback(address: &str) -> bool {
    ["127.", "[::1]", "localhost:"].iter().any(|begin| address.starts_with(begin))
}

/// Where a part of a cluster listens, so that others reach it by the kind of address by which it reaches the dispatcher.
pub fn listens_for(address: &str, on_loopback: bool) -> &'static str {
    match (on_loopback, address.starts_with('[')) {
        (true, false) => "127.0.0.1:0",
        (true, true) => "[::1]:0",
        (false, false) => "0.0.0.0:0",
        (false, true) => "[::]:0",
    }
}

/// The process that removes the folder of an executor that was killed.
pub fn keep_main() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    let (Some(dir), Some(pid)) = (words.next().map(PathBuf::from), words.next()) else {
        return ExitCode::FAILURE;
    };
    let undone = keeper::keep(&dir, &pid.to_string_lossy());
    undone.iter().for_each(|sentence| eyas_text::say!("{sentence}"));
    ExitCode::SUCCESS
}

/// The folder of an executor among those in `root`. `--dir`, if it is given, becomes a link to it.
fn scratch_of(root: &Path, args: &ExecutorArgs) -> Result<Scratch, Fault> {
    let options = ScratchOptions { root: root.into(), keep: Duration::from_nanos(args.scratch_age) };
    let fail = |what: &str, dir: &Path, e: std::io::Error| {
        Fault::new(Exit::Cluster, format!("cannot {what} {}: {}", shown_path(dir), reason(&e)))
    };
    if !args.node.system_users.is_empty() {
        // A folder that is made only now has to let others pass.
        std::fs::create_dir_all(root).map_err(|e| fail("make", root, e))?;
    }
    if root.file_name().is_some_and(|name| name.to_str() == Some(&nodes_dir_name())) {
        let hint = "--node-dir names another folder on the nodes";
        dirs::make_among_others(root).map_err(|why| Fault::new(Exit::Cluster, why).hint(hint))?;
    }
    let scratch = Scratch::claim(&options).map_err(|e| fail("use the folder for caches", root, e))?;
    if let Some(link) = &args.dir {
        let make = || {
            if std::fs::symlink_metadata(link).is_ok_and(|meta| meta.is_symlink()) {
                std::fs::remove_file(link)?;
            }
            std::os::unix::fs::symlink(scratch.dir(), link)
        };
        make().map_err(|e| fail("make the link", link, e))?;
    }
    Ok(scratch)
}
