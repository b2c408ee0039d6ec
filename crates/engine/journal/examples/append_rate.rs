//! Prints how many records a second the journal takes in a directory.
//!
//! `cargo run --release -p eyas-journal --example append_rate -- DIR [RECORDS [BODY_BYTES]]`

use eyas_journal::{Sync, bench};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: append_rate DIR [RECORDS [BODY_BYTES]]")?);
    let records_n = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let body_bytes = args.next().map_or(Ok(200), |text| text.parse())?;
    for sync in [Sync::Fdatasync, Sync::None] {
        for producers_n in [1, 4] {
            let dir = dir.join(format!("append-rate-{}-{sync:?}-{producers_n}", std::process::id()));
            let rate = bench::append_rate(&dir, sync, records_n, body_bytes, producers_n)?;
            std::fs::remove_dir_all(&dir)?;
            println!(
                "sync={sync:?} producers={producers_n} records={records_n} body_bytes={body_bytes}: \
                 {:.0} records/s, {:.0} MB/s, {} fdatasyncs ({:.0} records each), alone {:.0} µs, \
                 replay {:.0} records/s",
                rate.records_per_s,
                rate.body_bytes_per_s / 1e6,
                rate.fdatasyncs_n,
                records_n as f64 / rate.fdatasyncs_n.max(1) as f64,
                rate.commit_alone_ns as f64 / 1e3,
                rate.replay_records_per_s,
            );
        }
    }
    Ok(())
}
