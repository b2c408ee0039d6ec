//! `eyas-lab bench pairs`: 40 × 40 pairs of files of 12 MB through `eyas pairs`, on four nodes with cold caches, beside `xargs`.
//!
//! Both sides run the same line of a shell for each pair, which reads both files and prints a number. The processor time is that of
//! all processes, programs and the whole life of the cluster included, so the start and the end of the cluster count against `eyas`.
//! The files are in the page cache when either side starts. The sides take turns, and the figures are medians.
//!
//! The matrix is compared with what the double loop printed, so a fast wrong answer is an error here.

use super::data::make_files;
use super::table::{Row, Table};
use super::{Common, failed, note};
use clap::Args;
use eyas_cli::{Exit, Fault, local};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const N_NODES: u32 = 4;
const N_FILES: usize = 40;
const FILE_BYTES: u64 = 12_000_000;

#[derive(Args)]
pub struct PairsArgs {
    /// How often each side is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Tenths of the files' size, for a quick look
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10))]
    tenths: u64,
    /// Items in one task, as for `eyas pairs` [default: chosen]
    #[arg(long)]
    chunk: Option<u32>,
    /// Which task goes where, as for `eyas run`
    #[arg(long, default_value = "affinity", value_name = "POLICY")]
    placement: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Default)]
struct Side {
    cpu_ms: Vec<f64>,
    seconds: Vec<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub fn bench(args: &PairsArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let file_bytes = FILE_BYTES * args.tenths / 10;
        let files = make_files(&dir.join("home"), N_FILES, file_bytes)?;
        number(&files)?;
        let (mut bare, mut ours) = (Side::default(), Side::default());
        let (mut home_mb, mut peers_mb, mut n_tasks) = (vec![], vec![], 0);
        let n_pairs = (N_FILES * N_FILES) as f64;
        for round in 1..=args.rounds {
            note(&format!("round {round} of {}: xargs", args.rounds));
            let expected = measure(&mut bare, n_pairs, || through_xargs(&files, dir))?;
            note(&format!("round {round} of {}: eyas pairs", args.rounds));
            let status = measure(&mut ours, n_pairs, || through_eyas(args, &files, file_bytes, dir))?;
            check(&dir.join("m.csv"), expected)?;
            let bytes = |name: &str| status[name].as_u64().unwrap_or(0) as f64 / 1e6;
            home_mb.push(bytes("home_bytes"));
            peers_mb.push(bytes("peer_bytes"));
            n_tasks = status["n_tasks"].as_u64().unwrap_or(0);
        }
        let mut table = Table::new(format!(
            "pairs: {N_FILES} × {N_FILES} files of {:.1} MB, {N_NODES} nodes with one slot each, caches cold, {}",
            file_bytes as f64 / 1e6,
            args.placement
        ));
        let cpu = Row::new("CPU of everything", median(&ours.cpu_ms), "ms/pair");
        table.row(cpu.against("xargs -P2", median(&bare.cpu_ms)).target("ratio 1.30", "1.10"));
        table.row(Row::new("  through home", median(&home_mb), "MB").target("480", "480"));
        table.row(Row::new("  between peers", median(&peers_mb), "MB").target("1,000", "960"));
        table.row(Row::new("  tasks", n_tasks as f64, ""));
        let time = Row::new("  time, with the cluster's start and end", median(&ours.seconds), "s");
        table.row(time.against("xargs -P2", median(&bare.seconds)));
        table.note("The bytes are those that inputs of tasks came with, as the run counts them.");
        Ok(table)
    })
}

fn measure<T>(side: &mut Side, n_pairs: f64, run: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let (_, before) = eyas_runtime::clock::cpu_ns();
    let begun = Instant::now();
    let result = run()?;
    side.seconds.push(begun.elapsed().as_secs_f64());
    let (_, after) = eyas_runtime::clock::cpu_ns();
    side.cpu_ms.push((after - before) as f64 / 1e6 / n_pairs);
    Ok(result)
}

/// The program of a pair: reads both files, and prints a number that depends on both and on their order. Each file begins with a
/// number on a line of its own, which the shell reads itself, so the only program that it starts is `cat`.
fn line(a: &str, b: &str) -> String {
    format!("read x < {a}; read y < {b}; cat {a} {b} > /dev/null; echo $((x * {N_FILES} + y))")
}

/// Puts the number of each file on its first line.
fn number(files: &[PathBuf]) -> Result<(), Fault> {
    for (i, path) in files.iter().enumerate() {
        OpenOptions::new().write(true).open(path)?.write_all(format!("{i:8}\n").as_bytes())?;
    }
    Ok(())
}

/// Runs the pairs one by one, two at a time; gives the sum of all numbers that were printed.
fn through_xargs(files: &[PathBuf], dir: &Path) -> Result<f64, Fault> {
    let mut lines = vec![];
    for a in files {
        for b in files {
            lines.extend_from_slice(line(&a.display().to_string(), &b.display().to_string()).as_bytes());
            lines.push(0);
        }
    }
    let mut xargs = Command::new("xargs")
        .args(["-0", "-n1", "-P2", "/bin/sh", "-c"])
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(dir.join("bare.txt"))?)
        .spawn()
        .map_err(|e| failed(format!("cannot start xargs: {e}")))?;
    if let Some(mut stdin) = xargs.stdin.take() {
        stdin.write_all(&lines)?;
    }
    let status = xargs.wait()?;
    if !status.success() {
        return Err(failed(format!("xargs ended with {status}")));
    }
    let printed = std::fs::read_to_string(dir.join("bare.txt"))?;
    printed.lines().map(|line| line.trim().parse::<f64>().map_err(failed)).sum()
}

fn through_eyas(
    args: &PairsArgs,
    files: &[PathBuf],
    file_bytes: u64,
    dir: &Path,
) -> Result<serde_json::Value, Fault> {
    let home = files[0].parent().unwrap_or(dir);
    let cache = files.len() as u64 * file_bytes + (1 << 20);
    let mut eyas = Command::new(local::program()?);
    eyas.args(["pairs", "--self", "--json", "--shell", "--slots", "1", "--placement", &args.placement]);
    eyas.args(["--nodes", &N_NODES.to_string(), "--cache", &cache.to_string()]);
    if let Some(chunk) = args.chunk {
        eyas.args(["--chunk", &chunk.to_string()]);
    }
    eyas.arg("--out").arg(dir.join("m.csv")).arg("--dir").arg(dir.join("cluster")).arg(home);
    eyas.args(["--", &line("{a}", "{b}")]);
    let done = eyas.stderr(Stdio::inherit()).output().map_err(failed)?;
    if !done.status.success() {
        return Err(failed(format!("eyas pairs ended with {}", done.status)));
    }
    eyas_runner::sandbox::remove_tree(&dir.join("cluster")).map_err(failed)?;
    serde_json::from_slice(&done.stdout).map_err(failed)
}

/// The cells of the matrix add up to what the double loop printed.
fn check(csv: &Path, expected: f64) -> Result<(), Fault> {
    let text = std::fs::read_to_string(csv)?;
    let cells = text.lines().skip(1).flat_map(|line| line.split(',').skip(1));
    let sum: f64 = cells.map(|cell| cell.parse::<f64>().map_err(failed)).sum::<Result<f64, Fault>>()?;
    match (sum - expected).abs() <= expected * 1e-12 {
        true => Ok(()),
        false => Err(failed(format!("the matrix adds up to {sum}, the double loop to {expected}"))),
    }
}
