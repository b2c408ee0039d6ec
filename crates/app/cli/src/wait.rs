//! `eyas wait`: follows what was submitted to its end.

use crate::args::JoinArgs;
use crate::connect::connect;
use crate::follow::{End, follow};
use crate::print::plural;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, json};
use clap::Args;
use eyas_cluster::given;
use eyas_terms::RunId;
use eyas_text::line_of;
use eyas_wire::message::{ClusterStatus, RunStatus};
use std::path::Path;

#[derive(Args)]
pub struct WaitArgs {
    /// Print how the runs ended as JSON on standard output, and nothing else there; for programs
    #[arg(long)]
    pub json: bool,
    /// The run to wait for [default: those submitted from this folder since the last `eyas wait` here, and those of them that are under
    /// way; if there is none, the newest; all under way where none was submitted from here]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// Wait for all runs of the cluster
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

pub fn wait(args: WaitArgs) -> Result<Exit, Fault> {
    let file = clusters::work_join(&args.join)?;
    client_runtime().block_on(async {
        let mut client = connect(&file).await?;
        let dir = client.target().dir_here().map(Path::to_path_buf);
        let ClusterStatus { runs, warnings, .. } = client.status().await?;
        // The warning may be about a dispatcher that is away; its part of the run is waited for, however long
        // that takes.
        warnings.iter().for_each(|warning| eyas_text::say!("warning: {}", line_of(warning)));
        let runs = match args.run {
            Some(run) => vec![RunId(run)],
            // The runs under way, and those that ended since somebody waited here: how quickly a run ends makes no difference.
            None => {
                let (of_here, unsaid) = match &dir {
                    Some(dir) if args.all => (vec![], given::not_waited_for(dir)),
                    Some(dir) => (given::from_here(dir), given::not_waited_for(dir)),
                    None => (vec![], vec![]),
                };
                let is_of_here = |r: &&RunStatus| of_here.contains(&r.run);
                let (mine, others): (Vec<&RunStatus>, Vec<&RunStatus>) = runs.iter().partition(is_of_here);
                let (meant, others) = if mine.is_empty() { (others, vec![]) } else { (mine, others) };
                let n_others = others.iter().filter(|r| r.ended.is_none()).count() as u64;
                if n_others > 0 {
                    eyas_text::say!(
                        "note: {} from elsewhere not waited for (--all waits for all)",
                        if n_others == 1 {
                            "a run is".into()
                        } else {
                            format!("{} are", plural(n_others, "run"))
                        }
                    );
                }
                let is_open = |r: &RunStatus| r.ended.is_none() || unsaid.contains(&r.run);
                let newest = meant.last().map(|r| r.run);
                // Where it is not known what was said before, the newest run may be the one that is meant.
                let is_sure = !of_here.is_empty() && meant.iter().any(|r| is_open(r));
                let is_wanted = |r: &&&RunStatus| is_open(r) || !is_sure && Some(r.run) == newest;
                meant.iter().filter(is_wanted).map(|r| r.run).collect()
            }
        };
        let are_several = runs.len() > 1;
        if are_several {
            let names: Vec<String> = runs.iter().map(RunId::to_string).collect();
            eyas_text::say!("waiting for runs {}", names.join(", "));
        }
        let mut worst = Exit::Good;
        let mut ends = vec![];
        for run in runs {
            if are_several {
                eyas_text::say!("run {run}:");
            }
            let end = follow(connect(&file).await?, run, None, None).await?;
            if end.exit != Exit::Good {
                worst = end.exit;
            }
            ends.push(end);
            if worst == Exit::Interrupted {
                break;
            }
        }
        if args.json {
            let runs: Vec<json::Run<'_>> = ends.iter().map(End::as_json).collect();
            json::write(&serde_json::json!({ "runs": runs }))?;
        }
        Ok(worst)
    })
}
