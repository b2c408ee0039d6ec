//! `eyas-lab bench homes`: a large object and many small ones from S3 into a cache, beside `rclone copy` into a folder.
//!
//! Both read the same objects from the same server by turns, with the same number of objects at the same time. A round's
//! files are removed before the next one. The time of `rclone` has its start in it, some tenths of a second. It compares the bytes with the checksum of S3 where that is one, and eyas
//! makes a digest of its own.
//!
//! Not here: the server. The objects are written below the place first, and are removed at the end.

use super::table::{Row, Table};
use super::{Common, failed, median, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_data::{Halt, Store};
use eyas_storage::{Homes, HomesConfig, Location};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// So that no two objects have the same bytes.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Args)]
pub struct HomesArgs {
    /// A place in a bucket, such as s3://BUCKET/bench, with the server in AWS_ENDPOINT_URL
    #[arg(value_name = "URL")]
    place: String,
    /// Number of rounds; each has all measurements, one after the other
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    /// Size of the large object, MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=65536))]
    large: u64,
    /// Number of small objects, of 10 KB each
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    small: u32,
    /// Small objects that either side reads at the same time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    streams: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &HomesArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let bad = |error: eyas_storage::Error| Fault::new(Exit::BadInput, error);
        let place: Location = args.place.parse().map_err(bad)?;
        let homes = Homes::new(HomesConfig::default()).map_err(bad)?;
        let large_bytes = args.large << 20;
        let large = vec![(place.join("large/object").map_err(bad)?, large_bytes)];
        let name = |n: u32| place.join(&format!("small/{n:06}"));
        let small = (0..args.small).map(|n| Ok((name(n)?, SMALL_BYTES))).collect::<Result<Vec<_>, _>>();
        let small: Vec<Object> = small.map_err(bad)?;
        let streams = args.streams as usize;
        note(&format!("writing the objects below {place}"));
        each(&large, 1, &|n, object| write(&homes, n, object))?;
        each(&small, streams, &|n, object| write(&homes, n, object))?;
        let measured = (0..args.rounds).map(|round| {
            let of = |objects: &[Object], folder: &str| -> Result<(f64, f64), Fault> {
                let ours = by_eyas(&homes, &dir.join("cache"), objects, streams)?;
                let theirs = by_rclone(&place, folder, &dir.join("copy"), streams)?;
                Ok((ours, theirs))
            };
            let (large, small) = (of(&large, "large")?, of(&small, "small")?);
            note(&format!(
                "round {}: large {:.2} s, rclone {:.2} s; small {:.2} s, rclone {:.2} s",
                round + 1,
                large.0,
                large.1,
                small.0,
                small.1
            ));
            Ok([large, small])
        });
        let measured = measured.collect::<Result<Vec<_>, Fault>>();
        for (location, _) in large.iter().chain(&small) {
            homes.remove(location).map_err(failed)?;
        }
        let measured = measured?;
        let rates = |which: usize, amount: f64| {
            let of = |time: fn(&(f64, f64)) -> f64| -> Vec<f64> {
                measured.iter().map(|round| amount / time(&round[which])).collect()
            };
            let (ours, theirs) = (of(|times| times.0), of(|times| times.1));
            let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
            (median(&ours), median(&theirs), median(&ratios))
        };
        let mut table = Table::new("homes: from S3 into a cache, digest verified, beside rclone copy");
        let (ours, theirs, ratio) = rates(0, args.large as f64);
        let row = Row::new(format!("one object of {} MiB", args.large), ours, "MiB/s");
        table.row(row.against_by("rclone", theirs, ratio).target("ratio 0.70", "1.00"));
        let (ours, theirs, ratio) = rates(1, f64::from(args.small));
        let row = Row::new(format!("{} objects of 10 KB, {} at once", args.small, args.streams), ours, "/s");
        table.row(row.against_by("rclone", theirs, ratio).target("ratio 0.80", "1.20"));
        Ok(table)
    })
}

const SMALL_BYTES: u64 = 10_000;

/// A location and the size of its object.
type Object = (Location, u64);

/// Does `work` for each object, several at once. The first failure is the result.
fn each(
    objects: &[Object],
    streams: usize,
    work: &(dyn Fn(usize, &Object) -> Result<(), Fault> + Sync),
) -> Result<(), Fault> {
    let next = AtomicUsize::new(0);
    let run = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(object) = objects.get(n) else { return Ok(()) };
            work(n, object).inspect_err(|_| next.store(objects.len(), Ordering::Relaxed))?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..streams.min(objects.len())).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no reader panics"))
    })
}

fn write(homes: &Homes, n: usize, (location, size_bytes): &Object) -> Result<(), Fault> {
    let mut bytes = Noise { state: SEED ^ n as u64 }.take(*size_bytes);
    homes.write(location, &mut bytes, Some(*size_bytes)).map(drop).map_err(failed)
}

/// Bytes that no program can make smaller (xorshift64, Marsaglia 2003).
struct Noise {
    state: u64,
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        for piece in buffer.chunks_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            piece.copy_from_slice(&self.state.to_le_bytes()[..piece.len()]);
        }
        Ok(buffer.len())
    }
}

/// Seconds that eyas takes to have all objects in a new cache.
fn by_eyas(homes: &Homes, dir: &Path, objects: &[Object], streams: usize) -> Result<f64, Fault> {
    let budget_bytes = objects.iter().map(|(_, size)| size).sum::<u64>() + (1 << 20);
    let store = Store::open(dir, budget_bytes).map_err(failed)?;
    let halt = Halt::default();
    let start = Instant::now();
    each(objects, streams, &|_, (location, size_bytes)| {
        let mut opened = homes.open(location, None).map_err(failed)?;
        let reservation = store.reserve(*size_bytes).map_err(failed)?;
        let mut incoming = store.begin(reservation.until(&halt));
        let mut buffer = vec![0; 256 << 10];
        loop {
            match opened.reader.read(&mut buffer).map_err(failed)? {
                0 => break,
                n => incoming.append(&buffer[..n]).map_err(failed)?,
            }
        }
        incoming.finish(None).map(drop).map_err(failed)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    drop(store);
    eyas_runner::sandbox::remove_tree(dir).map_err(failed)?;
    Ok(seconds)
}

/// Seconds that `rclone copy` takes for the same objects.
fn by_rclone(place: &Location, folder: &str, dir: &Path, streams: usize) -> Result<f64, Fault> {
    let from = place.join(folder).map_err(failed)?;
    let from = from.as_str().split_once("://").map_or(from.as_str(), |(_, rest)| rest);
    let mut command = Command::new("rclone");
    command.args(["copy", &format!("bench:{from}")]).arg(dir);
    command.args(["--transfers", &streams.to_string(), "--checkers", &streams.to_string()]);
    // rclone calls S3 by the scheme of its locations.
    for (name, value) in [("TYPE", place.scheme()), ("PROVIDER", "Other"), ("ENV_AUTH", "true")] {
        command.env(format!("RCLONE_CONFIG_BENCH_{name}"), value);
    }
    // Its version 1.60 ends with an error where this is set.
    command.env_remove("AWS_CA_BUNDLE");
    let endpoint = std::env::var("AWS_ENDPOINT_URL_S3").or_else(|_| std::env::var("AWS_ENDPOINT_URL"));
    command.env("RCLONE_CONFIG_BENCH_ENDPOINT", endpoint.unwrap_or_default());
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        Fault::new(Exit::Other, format!("cannot start `rclone`, which is the reference: {error}"))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Fault::new(Exit::Other, format!("`rclone copy` failed: {}", said.trim())));
    }
    eyas_runner::sandbox::remove_tree(dir).map_err(failed)?;
    Ok(seconds)
}
