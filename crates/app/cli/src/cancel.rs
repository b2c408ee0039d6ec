//! `eyas cancel`: ends tasks.

use crate::args::{JoinArgs, task_name};
use crate::print::plural;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, json};
use clap::Args;
use eyas_client::Client;
use eyas_cluster::given;
use eyas_terms::{RunId, TaskPhase};
use eyas_text::shown;
use eyas_wire::message::TaskName;
use serde::Serialize;
use std::io::Write;

#[derive(Args)]
pub struct CancelArgs {
    /// Task ids, or #N for task numbers
    #[arg(value_name = "TASK", required_unless_present_any = ["run", "all"])]
    pub tasks: Vec<String>,
    /// All tasks of this run that have not ended; with tasks, the run that they belong to [default: the newest run of this folder
    /// that has such a task, else the newest of all]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// All tasks that have not ended
    #[arg(long, conflicts_with_all = ["run", "tasks"])]
    pub all: bool,
    /// Print what was cancelled as JSON on standard output, for programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

/// What a cancellation did.
#[derive(Serialize, Default)]
struct Cancelled {
    n_cancelled: u64,
    /// The named tasks that had ended before.
    had_ended: Vec<HadEnded>,
}

#[derive(Serialize)]
struct HadEnded {
    id: String,
    run: RunId,
    state: TaskPhase,
}

pub fn cancel(args: CancelArgs) -> Result<Exit, Fault> {
    let file = clusters::look_join(&args.join)?;
    let names = args.tasks.iter().map(|t| task_name(t)).collect::<Result<Vec<_>, _>>()?;
    let target = file.read()?;
    let run = args.run.map(RunId);
    let runs = match run {
        Some(run) => vec![Some(run)],
        None => given::from_here(target.dir()).into_iter().map(Some).chain([None]).collect(),
    };
    let cancelled = client_runtime().block_on(async {
        let mut client = Client::connect(&target).await?;
        let mut cancelled = Cancelled::default();
        if names.is_empty() {
            cancelled.n_cancelled = client.cancel(run, None).await?;
        }
        for name in names {
            let (n, run) = cancel_task(&mut client, &runs, &name).await?;
            cancelled.n_cancelled += n;
            if n == 0 {
                let task = client.explain(run, name).await?;
                cancelled.had_ended.push(HadEnded { id: task.user_id, run: task.run, state: task.state });
            }
        }
        Ok::<Cancelled, Fault>(cancelled)
    })?;
    if args.json {
        json::write(&cancelled)?;
        return Ok(Exit::Good);
    }
    for HadEnded { id, run, state } in &cancelled.had_ended {
        eyas_text::say!("note: task {} of run {run} had ended before: it is {state}", shown(id));
    }
    if let (0, Some(run), []) = (cancelled.n_cancelled, run, &args.tasks[..]) {
        eyas_text::say!("note: all tasks of run {run} had ended before");
    }
    writeln!(eyas_text::stdout(), "{} cancelled", plural(cancelled.n_cancelled, "task"))?;
    Ok(Exit::Good)
}

/// Cancels a task of the first of these runs that has it. Gives the number of tasks that had not ended, and that run.
async fn cancel_task(
    client: &mut Client,
    runs: &[Option<RunId>],
    name: &TaskName,
) -> Result<(u64, Option<RunId>), Fault> {
    let mut refused = None;
    for run in runs {
        match client.cancel(*run, Some(name.clone())).await.map_err(Fault::from) {
            // The last try is of all runs, so its error is the one to show.
            Err(fault) if fault.exit == Exit::BadInput => refused = Some(fault),
            n => return Ok((n?, *run)),
        }
    }
    Err(refused.expect("there is a run to try"))
}
