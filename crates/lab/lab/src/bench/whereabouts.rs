//! `eyas-lab bench where`: move the work, or move the data (`Miceli10`)? The same tasks over files that lie on the nodes' own
//! disks: with executors that know it, and with executors that read them from home as from anywhere.
//!
//! Two kinds of work: a *map*, in which each file is read by several tasks, and *all pairs* of the files. All nodes are processes
//! of this machine, so times say little about networks. What counts is the bytes that would have crossed one: those that came
//! from home or from other nodes. Where executors read in place, nothing is copied, into no cache.
//!
//! Each half has a cluster of its own with cold caches, and the matrix of all pairs has to be the same in both.

use super::data::make_files;
use super::table::{Row, Table};
use super::{Common, failed, note};
use clap::Args;
use eyas_cli::{Exit, Fault, local};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const N_FILES: usize = 40;
const FILE_BYTES: u64 = 12_000_000;

#[derive(Args)]
pub struct WhereArgs {
    /// Nodes, each with its part of the files on its disk
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=40))]
    nodes: u32,
    /// Tasks of the map that read each file
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    passes: u32,
    /// Tenths of the files' size, for a quick look
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10))]
    tenths: u64,
    #[command(flatten)]
    common: Common,
}

/// What one run took.
struct Cost {
    read_mb: f64,
    home_mb: f64,
    peers_mb: f64,
    seconds: f64,
}

impl Cost {
    fn share(&self) -> f64 {
        100.0 * (self.home_mb + self.peers_mb) / self.read_mb
    }
}

pub fn bench(args: &WhereArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let file_bytes = FILE_BYTES * args.tenths / 10;
        let home = dir.join("home");
        let made = make_files(&home, N_FILES, file_bytes)?;
        let mut rules = String::new();
        let mut files: Vec<PathBuf> = vec![];
        for (n, path) in made.iter().enumerate() {
            let node = n % args.nodes as usize + 1;
            let disk = home.join(format!("disk{node}"));
            if !disk.exists() {
                std::fs::create_dir(&disk)?;
                let prefix = disk.display();
                rules += &format!("[[home-on]]\nprefix = \"{prefix}\"\nhosts = [\"node{node}\"]\n");
            }
            let to = disk.join(format!("{n:03}"));
            std::fs::rename(path, &to)?;
            files.push(to);
        }
        let (known, unknown) = (dir.join("known.toml"), dir.join("unknown.toml"));
        std::fs::write(&known, rules)?;
        std::fs::write(&unknown, "")?;
        let title = format!(
            "move the work or the data: {N_FILES} files of {:.1} MB on the disks of {} nodes with one slot each, caches cold",
            file_bytes as f64 / 1e6,
            args.nodes
        );
        let mut table = Table::new(title);
        for job in ["map", "pairs"] {
            let halves = [("data to the work", &unknown), ("work to the data", &known)];
            let mut costs = vec![];
            for (name, rules) in halves {
                note(&format!("{job}, {name}"));
                costs.push(match job {
                    "map" => map(args, &files, file_bytes, rules, dir)?,
                    _ => pairs(args, &files, file_bytes, rules, dir, name == "work to the data")?,
                });
            }
            let [moved, collocated] = [&costs[0], &costs[1]];
            let row = Row::new(format!("{job}: bytes over the network, of all read"), collocated.share(), "%");
            let row = row.against("data to the work", moved.share());
            table.row(if job == "map" { row.target("10 %", "2 %") } else { row });
            let row = Row::new("  read by programs", collocated.read_mb, "MB");
            table.row(row);
            let row = Row::new("  through home", collocated.home_mb, "MB");
            table.row(row.against("data to the work", moved.home_mb));
            let row = Row::new("  between nodes", collocated.peers_mb, "MB");
            table.row(row.against("data to the work", moved.peers_mb));
            let row = Row::new("  time, with the cluster's start and end", collocated.seconds, "s");
            table.row(row.against("data to the work", moved.seconds));
        }
        table.note("The bytes are those that inputs of tasks came with, as the run counts them. All nodes share one machine.");
        Ok(table)
    })
}

fn map(
    args: &WhereArgs,
    files: &[PathBuf],
    file_bytes: u64,
    rules: &Path,
    dir: &Path,
) -> Result<Cost, Fault> {
    let mut list = String::new();
    for pass in 0..args.passes {
        for (n, file) in files.iter().enumerate() {
            let task = serde_json::json!({
                "id": format!("t{pass}-{n}"),
                "command": "cat x > /dev/null",
                "inputs": { "x": file },
            });
            list += &format!("{task}\n");
        }
    }
    let path = dir.join("map.jsonl");
    std::fs::write(&path, list)?;
    let (cache, nodes) = (files.len() as u64 * file_bytes + (1 << 20), args.nodes);
    let mut eyas = Command::new(local::program()?);
    eyas.arg("run").arg(&path).args(["--json", "--slots", "1", "--nodes", &nodes.to_string()]);
    eyas.args(["--cache", &cache.to_string()]).arg("--dir").arg(dir.join("cluster"));
    run(eyas, rules, dir)
}

/// With `again`, the matrix has to be the one that is there.
fn pairs(
    args: &WhereArgs,
    files: &[PathBuf],
    file_bytes: u64,
    rules: &Path,
    dir: &Path,
    again: bool,
) -> Result<Cost, Fault> {
    let (cache, nodes) = (files.len() as u64 * file_bytes + (1 << 20), args.nodes);
    let (list, matrix) = (dir.join("files.txt"), dir.join("matrix.csv"));
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    std::fs::write(&list, names.join("\n"))?;
    let before = if again { Some(std::fs::read(&matrix)?) } else { None };
    let mut eyas = Command::new(local::program()?);
    eyas.args(["pairs", "--self", "--json", "--shell", "--slots", "1", "--nodes", &nodes.to_string()]);
    eyas.args(["--cache", &cache.to_string()]).arg("--out").arg(&matrix);
    eyas.arg("--dir").arg(dir.join("cluster")).arg(format!("@{}", list.display()));
    eyas.args(["--", "cat {a} {b} | cksum | cut -d' ' -f1"]);
    let cost = run(eyas, rules, dir)?;
    match before {
        Some(before) if before != std::fs::read(&matrix)? => {
            Err(failed("the two halves have computed different matrices"))
        }
        _ => Ok(cost),
    }
}

fn run(mut eyas: Command, rules: &Path, dir: &Path) -> Result<Cost, Fault> {
    let begun = Instant::now();
    let done = eyas.env("EYAS_HOMES", rules).stderr(Stdio::inherit()).output().map_err(failed)?;
    if !done.status.success() {
        return Err(failed(format!("eyas ended with {}", done.status)));
    }
    let seconds = begun.elapsed().as_secs_f64();
    eyas_runner::sandbox::remove_tree(&dir.join("cluster")).map_err(failed)?;
    let status: serde_json::Value = serde_json::from_slice(&done.stdout).map_err(failed)?;
    let bytes = |name: &str| status[name].as_u64().unwrap_or(0) as f64 / 1e6;
    let (local_mb, home_mb, peers_mb) = (bytes("local_bytes"), bytes("home_bytes"), bytes("peer_bytes"));
    Ok(Cost { read_mb: local_mb + home_mb + peers_mb, home_mb, peers_mb, seconds })
}
