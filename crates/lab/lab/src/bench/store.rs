//! `eyas-lab bench cache`: objects into the cache directory, into a sandbox, and off again, beside the bare
//! file operations that these need at least.

use super::table::{Row, Table};
use super::{Common, failed, median};
use clap::Args;
use eyas_cli::{Exit, Fault};
use std::fs;
use std::path::Path;
use std::time::Instant;

#[derive(Args)]
pub struct CacheArgs {
    /// Number of objects of each round
    #[arg(short, long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..))]
    n: u32,
    /// Size of each object, in bytes
    #[arg(long, default_value_t = 10_000)]
    bytes: u32,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// The three operations in objects per second.
#[derive(Default)]
struct Rates {
    put: Vec<f64>,
    export: Vec<f64>,
    remove: Vec<f64>,
}

pub fn bench(args: &CacheArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let (mut ours, mut bare) = (Rates::default(), Rates::default());
        for round in 0..args.rounds {
            // Each round has a folder of its own: ext4 searches past the inodes of files that were just
            // deleted.
            bare_files(&dir.join(format!("bare{round}")), args, &mut bare)?;
            let rates = eyas_data::bench::store_rates(
                &dir.join(format!("store{round}")),
                args.n as usize,
                args.bytes.into(),
            )
            .map_err(failed)?;
            ours.put.push(rates.put_per_s);
            ours.export.push(rates.export_per_s);
            ours.remove.push(rates.remove_per_s);
        }
        let mut table = Table::new(format!("cache: {} objects of {} bytes", args.n, args.bytes));
        let rows = [
            ("into the cache, hashed", "create and write", &ours.put, &bare.put),
            ("into a sandbox", "link", &ours.export, &bare.export),
            ("off the cache", "unlink", &ours.remove, &bare.remove),
        ];
        for (what, reference, ours, bare) in rows {
            table.row(Row::new(what, median(ours), "/s").against(reference, median(bare)));
        }
        table.note(
            "The time from a task's placement to its start with a cached input is in `eyas-lab bench dispatch`.",
        );
        Ok(table)
    })
}

fn bare_files(dir: &Path, args: &CacheArgs, rates: &mut Rates) -> Result<(), Fault> {
    fs::create_dir_all(dir.join("links"))?;
    let bytes = vec![7u8; args.bytes as usize];
    let per_s = |begun: Instant| f64::from(args.n) / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for i in 0..args.n {
        fs::write(dir.join(i.to_string()), &bytes)?;
    }
    rates.put.push(per_s(begun));
    let begun = Instant::now();
    for i in 0..args.n {
        fs::hard_link(dir.join(i.to_string()), dir.join("links").join(i.to_string()))?;
    }
    rates.export.push(per_s(begun));
    fs::remove_dir_all(dir.join("links"))?;
    let begun = Instant::now();
    for i in 0..args.n {
        fs::remove_file(dir.join(i.to_string()))?;
    }
    rates.remove.push(per_s(begun));
    Ok(())
}
