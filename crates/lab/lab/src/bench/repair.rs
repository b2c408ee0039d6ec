//! `eyas-lab bench repair`: one of four sites is lost for good, and the copies that it had are made anew elsewhere.
//!
//! Four stores (`eyas store`) and the machine of the catalog are in network namespaces of their own, each behind one shaped
//! link. Every file has two copies. The process of one store is killed, and `eyas data repair` is timed as a whole command. Stores
//! copy from each other, and a link carries its rate in both directions at the same time: so three stores could make three times the bytes of
//! a link. Bytes that pass the machine of the catalog are counted at its link. The same objects are fetched by `rsync` from one of the
//! stores to that machine, before the loss and after it.

use super::spaces::{Busy, Part, Spaces, address_of};
use super::table::{Row, Table};
use super::{Common, failed, note};
use clap::Args;
use eyas_catalog::Catalog;
use eyas_cli::{Exit, Fault, local};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Args)]
pub struct RepairArgs {
    /// Megabytes of all files together, of each of which there are two copies; half of them has lost one afterwards
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(4..=1_000_000))]
    megabytes: u64,
    /// Kilobytes of each file
    #[arg(long, default_value_t = 8000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    file: u64,
    /// Rate of each machine's link, in Mbit/s in each direction
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    link: u64,
    #[command(flatten)]
    common: Common,
}

/// Stores, on the machines 1 to 4. The catalog is used on machine 0.
const N_STORES: u32 = 4;
/// The store that is lost.
const LOST: u32 = 4;
/// The store from which `rsync` fetches.
const SERVES: u32 = 1;
const RSYNC_PORT: u16 = 8730;
const NOW: i64 = 1_800_000_000_000;

pub fn bench(args: &RepairArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let scene = Scene { dir, spaces: Spaces::make(dir, N_STORES + 1, args.link)? };
        let mut stores = (1..=N_STORES).map(|n| scene.store(n)).collect::<Result<Vec<Part<'_>>, Fault>>()?;
        let n_files = scene.put_all(args)?;
        note("making the second copies");
        let first = scene.repair()?;
        let mut rsync = vec![scene.rsync("before")?];
        note("one site is lost");
        stores.remove(LOST as usize - 1).kill();
        let second = scene.repair()?;
        rsync.push(scene.rsync("after")?);
        if second.n_short > 0 || second.copied_bytes == 0 {
            return Err(failed(format!(
                "the repair made {} bytes of copies and left {} files short",
                second.copied_bytes, second.n_short
            )));
        }
        let link = args.link as f64 / 8.0;
        let mut table = Table::new(format!(
            "{n_files} files of {} kB with two copies at {N_STORES} stores; links of {} Mbit/s",
            args.file, args.link
        ));
        let row = Row::new("copies made anew after the loss of one site", second.rate(), "MB/s");
        table.row(row.target("0.60", "0.90").against("the link", link));
        table.row(Row::new("  bytes of these copies", second.copied_bytes as f64 / 1e6, "MB"));
        table.row(Row::new("  bytes into and out of the catalog's machine", second.link_bytes as f64 / 1e6, "MB"));
        table.row(Row::new("  the whole command", second.wall_s, "s"));
        table.row(Row::new("  processors busy", 100.0 * second.busy, "%"));
        table.row(Row::new("second copies of all files made", first.rate(), "MB/s").against("the link", link));
        match rsync.into_iter().collect::<Option<Vec<f64>>>() {
            Some(rates) => {
                let row = Row::new("the copies after the loss once more", second.rate(), "MB/s");
                let mean = rates.iter().sum::<f64>() / rates.len() as f64;
                table.row(row.against("rsync from one store to the catalog's machine", mean));
            }
            None => table.note("A comparison with `rsync` is left out: it is not installed."),
        }
        table.note(
            "Three stores make copies at the same time, each over its own link. Rates are of the bytes of objects; headers of the \
             network take about 5 % of a link.",
        );
        Ok(table)
    })
}

/// The machines, and the folder that has all their files.
struct Scene<'a> {
    dir: &'a Path,
    spaces: Spaces,
}

/// What a repair did.
struct Repaired {
    copied_bytes: u64,
    n_short: usize,
    /// Bytes that passed the link of the catalog's machine, in both directions together.
    link_bytes: u64,
    wall_s: f64,
    /// Share of all processors that was busy, other programs on this machine included.
    busy: f64,
}

impl Repaired {
    /// In MB/s.
    fn rate(&self) -> f64 {
        self.copied_bytes as f64 / 1e6 / self.wall_s
    }
}

impl Scene<'_> {
    /// `eyas` on a machine.
    fn eyas(&self, machine: u32) -> Result<Command, Fault> {
        let mut command = self.spaces.command(machine, local::program()?);
        command.env("EYAS_DATA", self.url()).current_dir(self.dir);
        Ok(command)
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.dir.join("catalog.db").display())
    }

    fn store(&self, n: u32) -> Result<Part<'_>, Fault> {
        let name = format!("s{n}");
        let folder = self.dir.join(&name);
        let mut command = self.eyas(n)?;
        command.args(["store", "--name", &name, "--listen", &format!("{}:0", address_of(n)), "--dir"]);
        command.arg(&folder);
        let log = self.dir.join(format!("{name}.log"));
        let mut part = Part::start(&self.spaces, &format!("the store {name}"), &mut command, log)?;
        let join = folder.join("join.json");
        part.wait(&|| Ok(join.exists()))?;
        Ok(part)
    }

    /// Runs `eyas data` on the machine of the catalog; what it printed.
    fn data(&self, words: &[&str]) -> Result<Vec<u8>, Fault> {
        let done = self.eyas(0)?.arg("data").args(words).stdin(Stdio::null()).output().map_err(failed)?;
        self.spaces.stop_if_interrupted();
        match done.status.code() {
            // A repair that leaves files short says so with the other one.
            Some(0 | 1) if !done.stdout.is_empty() || done.status.success() => Ok(done.stdout),
            _ => Err(failed(format!(
                "`eyas data {}` ended with {}: {}",
                words.join(" "),
                done.status,
                String::from_utf8_lossy(&done.stderr).trim()
            ))),
        }
    }

    /// Makes a catalog of the stores, and puts a quarter of the files at each; how many files there are.
    fn put_all(&self, args: &RepairArgs) -> Result<u64, Fault> {
        drop(Catalog::init(&self.url(), NOW).map_err(failed)?);
        let n_each = (args.megabytes * 1000 / args.file / u64::from(N_STORES)).max(1);
        for n in 1..=N_STORES {
            let name = format!("s{n}");
            note(&format!("putting files at the store {name}"));
            self.data(&["site", "--join", &format!("{name}/join.json")])?;
            let folder = self.dir.join("files");
            fs::create_dir(&folder)?;
            let mut bytes = vec![0; args.file as usize * 1000];
            for file in 0..n_each {
                let seed = u64::from(n) << 32 | file;
                blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
                fs::write(folder.join(file.to_string()), &bytes)?;
            }
            self.data(&["put", "files", "--label", &format!("of-{name}"), "--site", &name, "--copies", "2"])?;
            fs::remove_dir_all(folder)?;
        }
        Ok(n_each * u64::from(N_STORES))
    }

    fn repair(&self) -> Result<Repaired, Fault> {
        let link_bytes = self.link_bytes()?;
        let (busy, begun) = (Busy::now(), Instant::now());
        let said = self.data(&["repair", "--json"])?;
        let (wall_s, busy) = (begun.elapsed().as_secs_f64(), Busy::now().share_since(&busy));
        let link_bytes = self.link_bytes()? - link_bytes;
        let said: Value = serde_json::from_slice(&said).map_err(failed)?;
        let copied_bytes = said["copied_bytes"].as_u64();
        let n_short = said["short"].as_array().map(Vec::len);
        match (copied_bytes, n_short) {
            (Some(copied_bytes), Some(n_short)) => {
                Ok(Repaired { copied_bytes, n_short, link_bytes, wall_s, busy })
            }
            _ => Err(failed(format!("`eyas data repair` does not say what it did: {said}"))),
        }
    }

    /// Bytes that have passed the link of the catalog's machine, in both directions together.
    fn link_bytes(&self) -> Result<u64, Fault> {
        let counts = self.spaces.command(0, "cat").arg("/proc/self/net/dev").output().map_err(failed)?;
        let counts = String::from_utf8_lossy(&counts.stdout).into_owned();
        let of_line = |line: &str| -> Option<u64> {
            let (name, counts) = line.split_once(':')?;
            let counts: Vec<u64> = counts.split_whitespace().map_while(|count| count.parse().ok()).collect();
            (name.trim() != "lo").then(|| Some(counts.first()? + counts.get(8)?))?
        };
        Ok(counts.lines().filter_map(of_line).sum())
    }

    /// Fetches all objects of a store with `rsync` to the machine of the catalog, and flushes them; in MB/s. `None`: there is no
    /// `rsync`.
    fn rsync(&self, name: &str) -> Result<Option<f64>, Fault> {
        if Command::new("rsync").arg("--version").stdout(Stdio::null()).status().is_err() {
            return Ok(None);
        }
        note(&format!("rsync, {name} the loss"));
        let objects = self.dir.join(format!("s{SERVES}/objects"));
        let config = self.dir.join("rsyncd.conf");
        fs::write(
            &config,
            format!("use chroot = no\nuid = 0\ngid = 0\n[objects]\npath = {}\n", objects.display()),
        )?;
        let mut server = self.spaces.command(SERVES, "rsync");
        server.args(["--daemon", "--no-detach", "--port", &RSYNC_PORT.to_string(), "--log-file=/dev/stderr"]);
        server.arg("--config").arg(&config);
        let mut server =
            Part::start(&self.spaces, "rsync", &mut server, self.dir.join(format!("rsync-{name}.log")))?;
        let url = format!("rsync://{}:{RSYNC_PORT}/objects/", address_of(SERVES));
        server.wait(&|| {
            let mut asking = self.spaces.command(0, "rsync");
            Ok(asking.args(["--list-only", &url]).output().map_err(failed)?.status.success())
        })?;
        let target = self.dir.join(format!("rsync-{name}"));
        let mut fetching = self.spaces.command(0, "rsync");
        fetching.args(["--recursive", "--whole-file", "--fsync", &url]).arg(&target);
        let begun = Instant::now();
        let done = fetching.stdin(Stdio::null()).output().map_err(failed)?;
        let seconds = begun.elapsed().as_secs_f64();
        if !done.status.success() {
            return Err(failed(format!("rsync failed: {}", String::from_utf8_lossy(&done.stderr).trim())));
        }
        let n_bytes = bytes_below(&target)?;
        fs::remove_dir_all(&target)?;
        Ok(Some(n_bytes as f64 / 1e6 / seconds))
    }
}

/// Bytes of all files in a folder and the folders in it.
fn bytes_below(folder: &Path) -> Result<u64, Fault> {
    fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let of = entry.metadata()?;
        Ok(sum + if of.is_dir() { bytes_below(&entry.path())? } else { of.len() })
    })
}
