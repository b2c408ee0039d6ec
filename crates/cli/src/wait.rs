//! `eyas wait`: follows what was submitted to its end.

use crate::args::JoinArgs;
use crate::connect::connect;
use crate::dirs::dir_of;
use crate::follow::follow;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, json};
use clap::Args;
use eyas_core::RunId;
use eyas_text::line_of;
use eyas_wire::message::{ClusterStatus, RunStatus};

#[derive(Args)]
pub struct WaitArgs {
    /// Print how the runs ended as JSON on standard output, and nothing else there; for programs
    #[arg(long)]
    pub json: bool,
    /// The run to wait for [default: all]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub join: JoinArgs,
}

pub fn wait(args: WaitArgs) -> Result<Exit, Fault> {
    let path = clusters::work_join(&args.join)?;
    client_runtime().block_on(async {
        let mut client = connect(&path).await?;
        let ClusterStatus { runs, warnings, .. } = client.status().await?;
        // The warning may be about a dispatcher that is away; its part of the run is waited for, however long
        // that takes.
        warnings.iter().for_each(|warning| eyas_text::say!("warning: {}", line_of(warning)));
        let runs = match args.run {
            Some(run) => vec![RunId(run)],
            // The runs under way and the newest run; the ends of older runs have been reported.
            None => {
                let newest = runs.last().map(|r| r.run);
                let is_wanted = |r: &&RunStatus| r.ended.is_none() || Some(r.run) == newest;
                runs.iter().filter(is_wanted).map(|r| r.run).collect()
            }
        };
        let mut worst = Exit::Good;
        let mut ends = vec![];
        for run in runs {
            let end = follow(connect(&path).await?, &path, run, None, None).await?;
            if end.exit != Exit::Good {
                worst = end.exit;
            }
            ends.push(end);
            if worst == Exit::Interrupted {
                break;
            }
        }
        if args.json {
            let dir = dir_of(&path);
            let runs: Vec<json::Run<'_>> = ends.iter().map(|end| end.as_json(dir.as_deref())).collect();
            json::write(&serde_json::json!({ "runs": runs }))?;
        }
        Ok(worst)
    })
}
