//! `eyas forget`: has a cluster forget runs that have ended.

use crate::args::JoinArgs;
use crate::print::plural;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters};
use clap::Args;
use eyas_client::Client;
use eyas_terms::RunId;
use std::io::Write;

#[derive(Args)]
pub struct ForgetArgs {
    /// Numbers of runs, as `eyas status` shows them
    #[arg(value_name = "RUN", required_unless_present = "all")]
    pub runs: Vec<u32>,
    /// All runs that have ended
    #[arg(long, conflicts_with = "runs")]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

pub fn forget(args: ForgetArgs) -> Result<Exit, Fault> {
    let target = clusters::look_join(&args.join)?.read()?;
    let n = client_runtime().block_on(async {
        let mut client = Client::connect(&target).await?;
        let mut runs: Vec<RunId> = args.runs.iter().copied().map(RunId).collect();
        if args.all {
            let status = client.status().await?;
            runs = status.runs.iter().filter(|run| run.ended.is_some()).map(|run| run.run).collect();
        }
        runs.sort_unstable();
        runs.dedup();
        let n = runs.len() as u64;
        client.forget(runs).await?;
        Ok::<u64, Fault>(n)
    })?;
    writeln!(eyas_text::stdout(), "{} forgotten", plural(n, "run"))?;
    Ok(Exit::Good)
}
