//! `eyas wait`: follows what was submitted to its end.

use crate::args::JoinArgs;
use crate::connect::connect;
use crate::dirs::dir_of;
use crate::follow::follow;
use crate::print::plural;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, clusters, given, json};
use clap::Args;
use eyas_terms::RunId;
use eyas_text::line_of;
use eyas_wire::message::{ClusterStatus, RunStatus};

#[derive(Args)]
pub struct WaitArgs {
    /// Print how the runs ended as JSON on standard output, and nothing else there; for programs
    #[arg(long)]
    pub json: bool,
    /// The run to wait for [default: those under way that were submitted from this folder, and the newest of them; all where none was]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// Wait for all runs of the cluster
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
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
                let of_here = match dir_of(&path).filter(|_| !args.all) {
                    Some(dir) => given::from_here(&dir),
                    None => vec![],
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
                let newest = meant.last().map(|r| r.run);
                let is_wanted = |r: &&&RunStatus| r.ended.is_none() || Some(r.run) == newest;
                meant.iter().filter(is_wanted).map(|r| r.run).collect()
            }
        };
        if let [_, _, ..] = runs[..] {
            let names: Vec<String> = runs.iter().map(RunId::to_string).collect();
            eyas_text::say!("waiting for runs {}", names.join(", "));
        }
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
