//! `eyas submit`: hands work to a cluster that is up, and returns. With `--into`, [`crate::add`] does it.

use crate::add::{Asked, add};
use crate::args::{JoinArgs, ResumeArgs};
use crate::connect::connect;
use crate::data::check_outputs;
use crate::environment::{EnvArgs, WatchArgs};
use crate::help::{self, EXIT_STATUS};
use crate::print::plural;
use crate::replaces::{self, ReplaceArgs};
use crate::resume::Origin;
use crate::running::{RunRequest, nothing_to_do, say_hints, submit_to, what_is_left};
use crate::runtimes::client_runtime;
use crate::workflow::{ListFile, WorkflowArgs};
use crate::{Exit, Fault, clusters, json};
use clap::Args;
use eyas_terms::RunId;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    mut_args(|arg| help::short(arg, &["into", "commands", "env", "resume", "dry-run", "json", "join"])),
    after_help = help::MORE,
    after_long_help = EXIT_STATUS
)]
pub struct SubmitArgs {
    /// A task list, or `-` for standard input; a list of commands (.txt), each a line for the shell; or a workflow: WfCommons WfFormat, Pegasus YAML or DAX, Makeflow, a Swift script
    #[arg(value_name = "TASKS")]
    pub tasks: PathBuf,
    /// Print the run's number as JSON on standard output, for programs
    #[arg(long, conflicts_with = "dry_run")]
    pub json: bool,
    /// Do not drop files that stay on the nodes (`run:`) when the last task that reads them has ended
    #[arg(long)]
    pub keep: bool,
    /// Add the tasks to this run, which has not ended. They may read its `run:` files, and the run ends when they have
    /// ended, too. `new`: a run of its own [default: within a task that may add tasks, its run; else a run of its own]
    #[arg(long, value_name = "RUN", env = "EYAS_RUN", hide_env_values = true)]
    pub into: Option<Into>,
    /// With --into, a name for these tasks: under one name, tasks are added only once [default: within a task, a digest
    /// of the list]
    #[arg(long, value_name = "NAME")]
    pub token: Option<String>,
    #[command(flatten)]
    pub files: WorkflowArgs,
    #[command(flatten)]
    pub replace: ReplaceArgs,
    #[command(flatten)]
    pub env: EnvArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub resume: ResumeArgs,
    #[command(flatten)]
    pub join: JoinArgs,
}

/// The run that tasks are added to; `None`: a new one.
#[derive(Clone, Copy, Debug)]
pub struct Into(pub Option<RunId>);

impl std::str::FromStr for Into {
    type Err = String;
    fn from_str(text: &str) -> Result<Into, String> {
        match text.parse::<u32>() {
            Ok(run) => Ok(Into(Some(RunId(run)))),
            Err(_) if text == "new" => Ok(Into(None)),
            Err(_) => Err("write the number of a run, or `new`".into()),
        }
    }
}

pub fn submit(args: SubmitArgs) -> Result<Exit, Fault> {
    let file = clusters::work_join(&args.join)?;
    if let Some(run) = args.into.and_then(|into| into.0) {
        refuse_with_into(&args)?;
        let SubmitArgs { tasks, files, env, watch, replace, token, json, .. } = &args;
        let (watch, replace, token) = (*watch, *replace, token.as_deref());
        let asked = Asked { tasks, files, env, watch, replace, token, json: *json };
        return add(&asked, &file, run);
    }
    let mut list = ListFile::find(&args.tasks, &args.files)?.read()?;
    args.env.add_to(&mut list)?;
    args.watch.add_to(&mut list)?;
    let tasks = args.tasks.clone();
    let left = what_is_left(list, Origin::File(args.tasks), &args.resume, Some(&file))?;
    let Some(request) = left else { return nothing_to_do(args.json) };
    let request = RunRequest { keep: args.keep, ..request };
    check_outputs(&request.list, false)?;
    replaces::check(&request.list, args.replace, args.files.stand_ins, false, Some(&tasks))?;
    say_hints(&request.list)?;
    client_runtime().block_on(async {
        let mut client = connect(&file).await?;
        let run = submit_to(&mut client, &request).await.map_err(may_be_accepted)?;
        let n_tasks = request.list.n_tasks;
        match args.json {
            true => json::write(&json::Submitted { run, n_tasks, again: false })?,
            false => writeln!(eyas_text::stdout(), "run {run}: {} accepted", plural(n_tasks, "task"))?,
        }
        Ok(Exit::Good)
    })
}

/// A client that loses the dispatcher during a submission does not know whether it was accepted.
fn may_be_accepted(fault: Fault) -> Fault {
    match fault.exit == Exit::Cluster && fault.hint.is_none() {
        true => fault.hint(
            "the tasks may have been accepted all the same: see `eyas status` when the dispatcher is back, before you submit \
             them again",
        ),
        false => fault,
    }
}

/// Options that have nothing to say about tasks that are added to a run.
fn refuse_with_into(args: &SubmitArgs) -> Result<(), Fault> {
    if args.resume.resume.is_some() || args.resume.dry_run {
        let message = "what is added to a run that goes on is not resumed";
        return Err(Fault::new(Exit::BadInput, message).hint("leave out --resume and --dry-run, or --into"));
    }
    if args.keep {
        let message = "whether `run:` files are kept is said when a run begins";
        return Err(Fault::new(Exit::BadInput, message).hint("leave out --keep"));
    }
    Ok(())
}
