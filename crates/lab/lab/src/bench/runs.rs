//! `eyas-lab bench runs`: the needs of a dispatcher that has done many runs and forgotten most of them.
//!
//! One cluster does a few runs and another one many, and both keep the same number. Then memory, journal,
//! event log and the time until a restarted dispatcher answers should be the same. Tasks start nothing.

use super::cluster::{Cluster, Shape, plain_array};
use super::table::{Row, Table};
use super::{Common, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::dispatcher::KeepRuns;
use eyas_core::log::EVENTS_FILE;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct RunsArgs {
    /// Number of runs of the first cluster
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    many: u32,
    /// Number of runs of the second cluster, which the first one is compared with
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    few: u32,
    /// Number of tasks of each run
    #[arg(short, long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Number of ended runs that a dispatcher keeps
    #[arg(long, default_value_t = 5)]
    keep: u32,
    #[command(flatten)]
    common: Common,
}

/// The needs of a cluster after its runs.
struct Need {
    rss_bytes: u64,
    journal_bytes: u64,
    log_bytes: u64,
    restart_s: f64,
}

pub fn bench(args: &RunsArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let few = live(args, args.few, &dir.join("few"))?;
        let many = live(args, args.many, &dir.join("many"))?;
        let title = format!(
            "runs: {} runs of {} tasks beside {}, of which {} are kept",
            args.many, args.n, args.few, args.keep
        );
        let mut table = Table::new(title);
        let of: [(&str, f64, f64, &str); 4] = [
            ("dispatcher memory", many.rss_bytes as f64 / 1e6, few.rss_bytes as f64 / 1e6, "MB"),
            ("journal", many.journal_bytes as f64 / 1e6, few.journal_bytes as f64 / 1e6, "MB"),
            ("event log", many.log_bytes as f64 / 1e6, few.log_bytes as f64 / 1e6, "MB"),
            ("restart until it answers", many.restart_s, few.restart_s, "s"),
        ];
        for (what, many, few, unit) in of {
            table.row(Row::new(what, many, unit).against("few runs", few).target("ratio 2", "1.2"));
        }
        Ok(table)
    })
}

fn live(args: &RunsArgs, n_runs: u32, dir: &Path) -> Result<Need, Fault> {
    note(&format!("{n_runs} runs of {} tasks", args.n));
    let shape = Shape {
        nodes: 1,
        slots: 2,
        cache_bytes: 64 << 20,
        placement: eyas_core::placement::affinity::NAME.into(),
        event_log: true,
        dispatchers: 1,
    };
    let keep = Some(KeepRuns { n_runs: Some(args.keep), age_ns: None });
    let start = || Cluster::start_changed(dir, &shape, |cluster| cluster.policy.keep_runs = keep);
    let mut cluster = start()?;
    let array = [Arc::new(plain_array(args.n, &[]))];
    for _ in 0..n_runs {
        cluster.run(&array)?;
    }
    // Runs are forgotten once a second, and the journal is cleaned by a thread.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut status = cluster.status()?;
    while status.runs.len() > args.keep as usize && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
        status = cluster.status()?;
    }
    std::thread::sleep(Duration::from_secs(2));
    let rss_bytes = cluster.status()?.own_rss_bytes;
    let folder = cluster.stop();
    let journal_bytes = bytes_in(&folder.join("journal"))?;
    let log_bytes = folder.join(EVENTS_FILE).metadata()?.len();
    let begun = Instant::now();
    let again = start()?;
    let restart_s = begun.elapsed().as_secs_f64();
    again.stop();
    Ok(Need { rss_bytes, journal_bytes, log_bytes, restart_s })
}

/// The bytes of all files in `dir`, which has no folders in it.
fn bytes_in(dir: &Path) -> Result<u64, Fault> {
    let mut bytes = 0;
    for file in std::fs::read_dir(dir)? {
        bytes += file?.metadata()?.len();
    }
    Ok(bytes)
}
