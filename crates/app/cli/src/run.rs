//! `eyas run`: a list of tasks or of commands, or a workflow, on a cluster.

use crate::args::{ClusterArgs, ProvideArgs, ResumeArgs};
use crate::data::check_outputs;
use crate::environment::{EnvArgs, WatchArgs};
use crate::help::{self, EXIT_STATUS};
use crate::programs;
use crate::replaces::{self, ReplaceArgs};
use crate::resume::Origin;
use crate::running::{RunRequest, may_print, nothing_to_do, run_list, say_hints, what_is_left};
use crate::workflow::{ListFile, WorkflowArgs};
use crate::{Exit, Fault};
use clap::Args;
use eyas_client::JoinFile;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    mut_args(|arg| help::short(arg, &["commands", "env", "resume", "dry-run", "json", "join", "nodes", "slots", "cache", "provider"])),
    after_help = help::MORE,
    after_long_help = EXIT_STATUS
)]
pub struct RunArgs {
    /// A task list, or `-` for standard input; a list of commands (.txt), each a line for the shell; or a workflow: WfCommons WfFormat, Pegasus YAML or DAX, Makeflow, a Swift script
    #[arg(value_name = "TASKS")]
    pub tasks: PathBuf,
    #[command(flatten)]
    pub files: WorkflowArgs,
    #[command(flatten)]
    pub replace: ReplaceArgs,
    /// Join file of a cluster that is up [default: a cluster of its own, for this run]
    #[arg(long, value_name = "FILE", env = "EYAS_JOIN")]
    pub join: Option<PathBuf>,
    /// Print how the run ended as JSON on standard output, and nothing else there; for programs
    #[arg(long, conflicts_with = "dry_run")]
    pub json: bool,
    /// Do not drop files that stay on the nodes (`run:`) when the last task that reads them has ended
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub env: EnvArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// When the run has ended well, write its tasks into this file with the files that watched programs were seen to read and
    /// make, for a further `eyas run FILE`; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub to_list: Option<PathBuf>,
    #[command(flatten)]
    pub resume: ResumeArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
}

pub fn run(args: RunArgs) -> Result<Exit, Fault> {
    let cluster = ClusterArgs { provide: args.provide, ..args.cluster };
    let join = args.join.map(JoinFile::named);
    let file = ListFile::find(&args.tasks, &args.files)?;
    let mut list = file.read()?;
    args.env.add_to(&mut list)?;
    args.watch.add_to(&mut list)?;
    // A user who writes lines for a shell wants to see their output.
    let prints = may_print(file.is_of_commands() && !args.json, &cluster);
    let left = what_is_left(list, Origin::File(args.tasks.clone()), &args.resume, join.as_ref())?;
    let Some(request) = left else { return nothing_to_do(args.json) };
    let request = RunRequest { keep: args.keep, prints, declare: args.to_list, ..request };
    let is_here = join.is_none() && !cluster.provide.is_elsewhere();
    check_outputs(&request.list, is_here)?;
    programs::check(&request.list, is_here)?;
    replaces::check(&request.list, args.replace, args.files.stand_ins, is_here, Some(&args.tasks))?;
    say_hints(&request.list)?;
    run_list(request, join.as_ref(), &cluster, args.json)
}
