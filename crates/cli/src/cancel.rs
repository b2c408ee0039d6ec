//! `eyas cancel`: ends tasks.

use crate::args::{JoinArgs, task_name};
use crate::print::plural;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters};
use clap::Args;
use eyas_client::Client;
use eyas_core::RunId;
use eyas_wire::message::TaskName;
use std::io::Write;

#[derive(Args)]
pub struct CancelArgs {
    /// Task ids, or #N for task numbers
    #[arg(value_name = "TASK", required_unless_present_any = ["run", "all"])]
    pub tasks: Vec<String>,
    /// All tasks of this run that have not ended
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// All tasks that have not ended
    #[arg(long, conflicts_with_all = ["run", "tasks"])]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

pub fn cancel(args: CancelArgs) -> Result<Exit, Fault> {
    let path = clusters::look_join(&args.join)?;
    let names = args.tasks.iter().map(|t| task_name(t)).collect::<Result<Vec<_>, _>>()?;
    let n = client_runtime().block_on(async {
        let mut client = Client::connect(&path).await?;
        let mut n = 0;
        let run = args.run.map(RunId);
        let wanted: Vec<Option<TaskName>> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for task in wanted {
            n += client.cancel(run, task).await?;
        }
        Ok::<u64, Fault>(n)
    })?;
    writeln!(eyas_text::stdout(), "{} cancelled", plural(n, "task"))?;
    Ok(Exit::Good)
}
