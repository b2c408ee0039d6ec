//! `eyas home check`: what a home can do from this machine, tried, with latencies and bandwidths.

use crate::args::duration;
use crate::fault::bad;
use crate::print::{size, time};
use crate::{Exit, Fault, homes};
use clap::{Args, Subcommand};
use eyas_storage::{
    DataPlace, Error, ErrorKind, Homes, HomesConfig, Listing, Location, RetryConfig, Status, Strength,
};
use eyas_text::{line_of, plural};
use serde::Serialize;
use std::io::{self, Read};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct HomeArgs {
    #[command(subcommand)]
    verb: HomeVerb,
}

#[derive(Subcommand)]
enum HomeVerb {
    /// Try what a home can do, and measure it
    Check(CheckArgs),
}

#[derive(Args)]
struct CheckArgs {
    /// A directory in which files may be made for a moment; of a home that only reads, a file
    #[arg(value_name = "URL")]
    place: String,
    /// The size of the file with which the bandwidth is measured, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    size: u64,
    /// First end the uploads to there that never came to their end: parts that killed writers left in a bucket. Ends the
    /// uploads of writers that still live as well
    #[arg(long)]
    clean: bool,
    /// How long the first answer is waited for
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    wait: u64,
    /// Print one JSON value in place of text
    #[arg(long)]
    json: bool,
}

pub fn home(args: HomeArgs) -> Result<Exit, Fault> {
    match args.verb {
        HomeVerb::Check(args) => check(&args),
    }
}

/// One line of the table.
#[derive(Serialize)]
struct Row {
    what: &'static str,
    /// Whether it worked. `None`: this kind of home does not do it.
    works: Option<bool>,
    /// The shortest time of a request.
    latency_s: Option<f64>,
    bytes_per_s: Option<f64>,
    error: Option<String>,
}

#[derive(Serialize)]
struct Checked {
    home: &'static str,
    place: String,
    rows: Vec<Row>,
}

/// How often a request is repeated for its latency.
const N_REQUESTS: usize = 5;
const SMALL: &[u8] = b"eyas home check\n";

fn check(args: &CheckArgs) -> Result<Exit, Fault> {
    let homes = homes::open()?;
    let place = homes::location(&args.place)?;
    let can = homes.get(&place).capabilities();
    let mut checked = Checked { home: can.name, place: place.to_string(), rows: vec![] };
    // What is written there stays for good: a label is never given again.
    let is_kept = DataPlace::of(&place);
    if let Some(DataPlace { path, .. }) = &is_kept
        && (path.is_empty() || path.ends_with('/'))
    {
        return Err(bad(format!("{place} names no file"))
            .hint("name a file of a data set, such as data:LABEL/PATH: it is read, and nothing is written, as data sets stay"));
    }
    if let Err(silence) = wait_for_answer(&place, Duration::from_nanos(args.wait)) {
        checked.rows.push(Row { works: Some(false), error: Some(silence), ..Row::absent("answers") });
        checked.say(args.json)?;
        return Ok(Exit::TasksFailed);
    }
    if args.clean {
        let n_ended = homes.end_unfinished(&place).map_err(homes::fault)?;
        eyas_text::say!("ended {} that never came to their end", plural(n_ended, "upload"));
    }
    match can.write && is_kept.is_none() {
        true => writable(&homes, &place, args.size << 20, &mut checked.rows)?,
        false => {
            checked.rows.push(Row::absent("write"));
            readable(&homes, &place, &mut checked.rows);
        }
    }
    for (what, is_there) in [
        ("fences out an earlier writer", can.fences),
        ("directories as one object", can.directories),
        ("read in place on this node", can.local_path && homes.local_path(&place).is_some()),
    ] {
        let mut row = Row::absent(what);
        row.works = is_there.then_some(true);
        checked.rows.push(row);
    }
    let is_good = checked.rows.iter().all(|row| row.works != Some(false));
    checked.say(args.json)?;
    Ok(if is_good { Exit::Good } else { Exit::TasksFailed })
}

/// Waits until a home has said anything at all about a place, if only that it is not there. What a home refuses is found by the
/// requests that follow, which are tried again as all requests are; silence would make each of them wait for minutes.
///
/// # Errors
/// It is silent for longer than `wait`.
fn wait_for_answer(place: &Location, wait: Duration) -> Result<(), String> {
    let (answered, answer) = mpsc::channel();
    let place = place.clone();
    // It ends with this command at the latest: nothing can take a request back on which a library waits.
    thread::spawn(move || {
        let retries = RetryConfig { tries_max: 1, ..RetryConfig::default() };
        let said = Homes::new(HomesConfig { retries, ..HomesConfig::default() })
            .and_then(|homes| homes.stat(&place));
        _ = answered.send(said.map(drop));
    });
    match answer.recv_timeout(wait) {
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!(
            "nothing came within {}: neither an answer nor a refusal; look at the address, at a firewall on the way, and \
             whether the server is up, or wait longer with --wait",
            time(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
        )),
        _ => Ok(()),
    }
}

impl Row {
    fn absent(what: &'static str) -> Row {
        Row { what, works: None, latency_s: None, bytes_per_s: None, error: None }
    }
}

/// Tries one thing, some times, and adds its row. Gives the last result.
fn attempt<T>(
    rows: &mut Vec<Row>,
    what: &'static str,
    n_times: usize,
    n_bytes: u64,
    mut work: impl FnMut() -> Result<T, Error>,
) -> Option<T> {
    let mut row = Row::absent(what);
    let mut best = Duration::MAX;
    let mut last = None;
    for _ in 0..n_times {
        let began = Instant::now();
        match work() {
            Ok(value) => last = Some(value),
            Err(e) => {
                row.works = Some(false);
                row.error = Some(e.to_string());
                rows.push(row);
                return None;
            }
        }
        best = best.min(began.elapsed());
    }
    row.works = Some(true);
    match n_bytes {
        0 => row.latency_s = Some(best.as_secs_f64()),
        n => row.bytes_per_s = Some(n as f64 / best.as_secs_f64().max(1e-9)),
    }
    rows.push(row);
    last
}

fn read_to_end(
    homes: &Homes,
    location: &Location,
    range: Option<std::ops::Range<u64>>,
) -> Result<u64, Error> {
    let mut opened = homes.open(location, range)?;
    io::copy(&mut opened.reader, &mut io::sink()).map_err(|e| Error::from_read("read", location, e))
}

fn writable(homes: &Homes, place: &Location, large_bytes: u64, rows: &mut Vec<Row>) -> Result<(), Fault> {
    let can = homes.get(place).capabilities();
    let directory = place.join(&format!("eyas-check-{}", std::process::id())).map_err(homes::fault)?;
    let name = |name: &str| directory.join(name).map_err(homes::fault);
    let (mut small, large) = (name("a file +%é")?, name("large")?);
    let write = |location: &Location, bytes: u64| {
        let mut body = io::repeat(b'x').take(bytes);
        homes.write(location, &mut body, Some(bytes))
    };
    let write_small = |to: &Location| homes.write(to, &mut &SMALL[..], Some(SMALL.len() as u64));
    let is_refused = |e: &Error| e.kind() == ErrorKind::InvalidName;
    if write_small(&small).is_err_and(|e| is_refused(&e)) {
        small = name("a file +%")?;
        rows.push(Row::absent("names beyond ASCII"));
    }
    attempt(rows, "write", N_REQUESTS, 0, || write_small(&small));
    if rows.last().is_some_and(|row| row.works == Some(false)) {
        // Nothing that follows could work; the place may be a file that is only read.
        readable(homes, place, rows);
        return Ok(());
    }
    let stat = attempt(rows, "stat", N_REQUESTS, 0, || homes.stat(&small));
    attempt(rows, "read", N_REQUESTS, 0, || read_to_end(homes, &small, None));
    if can.read_range {
        attempt(rows, "read a range", N_REQUESTS, 0, || read_to_end(homes, &small, Some(5..9)));
    } else {
        rows.push(Row::absent("read a range"));
    }
    if stat.as_ref().is_some_and(|stat| stat.version.strength() == Strength::Unknown) {
        // It is read anew for each run.
        rows.push(Row::absent("versions follow the object"));
    } else {
        attempt(rows, "versions follow the object", 1, 0, || {
            let after = homes.write(&small, &mut &b"other"[..], None)?;
            match stat.as_ref().is_some_and(|stat| stat.version == after.version) {
                true => Err(wrong(&small, "it has the same version after other bytes were written")),
                false => Ok(()),
            }
        });
    }
    if can.list {
        attempt(rows, "list", N_REQUESTS, 0, || {
            let listing = Listing::Glob { directory: directory.clone(), pattern: "a*".into() };
            match homes.list(&listing)?.found.contains(&small) {
                true => Ok(()),
                false => Err(wrong(&small, "a listing lacks it although it was written")),
            }
        });
    } else {
        rows.push(Row::absent("list"));
    }
    if large_bytes > 0 {
        let wrote = attempt(rows, "write, bandwidth", 1, large_bytes, || write(&large, large_bytes));
        if wrote.is_some() {
            attempt(rows, "read, bandwidth", 1, large_bytes, || read_to_end(homes, &large, None));
        }
    }
    if can.remove {
        attempt(rows, "remove", 1, 0, || homes.remove(&small));
        if large_bytes > 0 {
            // A large file that could not be written is not there.
            let _ = homes.remove(&large);
        }
        if let Some(path) = directory.path() {
            let _ = std::fs::remove_dir(path);
        }
    } else {
        rows.push(Row::absent("remove"));
    }
    Ok(())
}

fn wrong(location: &Location, reason: &str) -> Error {
    Error::new(ErrorKind::Io, Status::Permanent, "trust", location, reason)
}

/// Of a home that only reads, the place is a file.
fn readable(homes: &Homes, place: &Location, rows: &mut Vec<Row>) {
    let Some(stat) = attempt(rows, "stat", N_REQUESTS, 0, || homes.stat(place)) else { return };
    if stat.size_bytes > 0 && homes.get(place).capabilities().read_range {
        attempt(rows, "read a range", N_REQUESTS, 0, || read_to_end(homes, place, Some(0..1)));
    }
    attempt(rows, "read, bandwidth", 1, stat.size_bytes.max(1), || read_to_end(homes, place, None));
}

impl Checked {
    fn say(&self, as_json: bool) -> Result<(), Fault> {
        match as_json {
            true => crate::json::write(self),
            false => {
                self.print();
                Ok(())
            }
        }
    }

    fn print(&self) {
        show!("`{}` home at {}", self.home, line_of(&self.place));
        for row in &self.rows {
            let works = match row.works {
                None => "-",
                Some(true) => "yes",
                Some(false) => "FAILS",
            };
            let latency = row.latency_s.map(short).unwrap_or_default();
            let bandwidth =
                row.bytes_per_s.map(|rate| format!("{}/s", size(rate as u64))).unwrap_or_default();
            let error = row.error.as_deref().unwrap_or_default();
            let line = format!("  {:<30}{works:<7}{latency:>10}{bandwidth:>14}  {error}", row.what);
            show!("{}", line.trim_end());
        }
    }
}

/// `0.4 ms`, `12 ms`, `3.2 s`
fn short(s: f64) -> String {
    if s < 0.01 { format!("{:.1} ms", s * 1e3) } else { time((s * 1e9) as u64) }
}
