//! `eyas-lab bench journal`: records made durable, beside plain appends to one file with one `fdatasync`.

use super::table::{Row, Table};
use super::{Common, failed};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_journal::{Sync, bench::append_rate};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

#[derive(Args)]
pub struct JournalArgs {
    /// Number of records
    #[arg(short, long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Size of each record, in bytes
    #[arg(long, default_value_t = 200)]
    bytes: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &JournalArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let (n, bytes) = (u64::from(args.n), args.bytes as usize);
        let mut table = Table::new(format!("journal: {n} records of {bytes} bytes"));
        let plain = plain_appends(&dir.join("plain"), n, bytes)?;
        let sync_us = plain_syncs_us(&dir.join("syncs"), bytes)?;
        for (sync, what) in [(Sync::Fdatasync, "fdatasync"), (Sync::None, "no sync")] {
            for producers in [1, 4] {
                let dir = dir.join(format!("{sync:?}-{producers}"));
                let rate = append_rate(&dir, sync, n, bytes, producers).map_err(failed)?;
                let name = format!("{what}, {producers} producer{}", if producers == 1 { "" } else { "s" });
                table.row(Row::new(name, rate.records_per_s, "/s").against("plain appends", plain));
                if producers == 1 {
                    let alone =
                        Row::new("  one record alone, median", rate.commit_alone_ns as f64 / 1e3, "µs");
                    table.row(match sync {
                        Sync::Fdatasync => alone.against("write and fdatasync", sync_us),
                        Sync::None => alone,
                    });
                    table.row(Row::new("  read back", rate.replay_records_per_s, "/s"));
                }
            }
        }
        Ok(table)
    })
}

/// Records a second through a buffer into one file, synchronised once at the end.
fn plain_appends(path: &Path, n: u64, bytes: usize) -> Result<f64, Fault> {
    let body = vec![0xA5; bytes];
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let begun = Instant::now();
    for _ in 0..n {
        file.write_all(&body)?;
    }
    file.flush()?;
    file.get_ref().sync_data()?;
    Ok(n as f64 / begun.elapsed().as_secs_f64())
}

/// Median of a write followed by an `fdatasync`.
fn plain_syncs_us(path: &Path, bytes: usize) -> Result<f64, Fault> {
    let body = vec![0xA5; bytes];
    let mut file = File::create(path)?;
    let mut times_us = vec![];
    for _ in 0..51 {
        let begun = Instant::now();
        file.write_all(&body)?;
        file.sync_data()?;
        times_us.push(begun.elapsed().as_nanos() as f64 / 1e3);
    }
    Ok(super::median(&times_us))
}
