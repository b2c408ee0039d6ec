//! `eyas-lab bench once`: many tasks that share one packed environment (`Raicu09` section 6.5). The node unpacks it once for
//! all of them, beside tasks that each unpack it for themselves.
//!
//! The environment is an archive of many small files, in gzip. Both halves begin with cold caches, and each task reads one
//! file of the environment, so that an empty one would be noticed. The time of a task after the first one is that of all
//! tasks less that of one, so it has everything in it: sandbox, program, reports.

use super::table::{Row, Table};
use super::{Common, failed, median, note};
use clap::Args;
use eyas_cli::{Exit, Fault, local};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Args)]
pub struct OnceArgs {
    /// Tasks that share the environment; the issue asks for 1,000
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    tasks: u32,
    /// Tasks that unpack it for themselves: each takes as long as any other one, so few tell
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    each: u32,
    /// Files in the environment
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    files: u32,
    /// Megabytes in the environment; the issue asks for 500
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    megabytes: u64,
    /// Number of times that each half is run; figures are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    times: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &OnceArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let packed = pack(args, dir)?;
        let title = format!(
            "an environment of {} MB in {} files, packed to {} MB, one node with one slot",
            args.megabytes,
            args.files,
            packed / 1_000_000
        );
        let mut table = Table::new(title);
        let (mut one, mut later, mut each) = (vec![], vec![], vec![]);
        for time in 0..args.times {
            note(&format!("time {} of {}", time + 1, args.times));
            let alone = run(dir, 1, true)?;
            let all = run(dir, args.tasks, true)?;
            one.push(alone * 1e3);
            later.push((all - alone).max(0.0) * 1e3 / f64::from(args.tasks - 1));
            let unpacked = run(dir, args.each, false)?;
            let empty = run(dir, 0, true)?;
            each.push((unpacked - empty) * 1e3 / f64::from(args.each));
        }
        let [one, later, each] = [one, later, each].map(|times| median(&times));
        let row = Row::new("a task after the first", later, "ms");
        table.row(row.target("20 ms", "5 ms").against("unpacked in each task", each));
        table.row(Row::new("one task, with the making and the cluster", one, "ms"));
        let n = f64::from(args.tasks);
        let row = Row::new(format!("{} tasks", args.tasks), (one + later * (n - 1.0)) / 1e3, "s");
        table.row(row.against("unpacked in each task (computed)", each * n / 1e3));
        table.note(format!(
            "The issue asks for 1,000 tasks and 500 MB: `--tasks 1000 --megabytes 500`. {} tasks unpacked it for themselves; a \
             task's time hardly depends on how many there are.",
            args.each
        ));
        Ok(table)
    })
}

/// Makes the archive; gives its size. Half of each file is noise, as in compiled code.
fn pack(args: &OnceArgs, dir: &Path) -> Result<u64, Fault> {
    let top = dir.join("env");
    let file_bytes = (args.megabytes * 1_000_000 / u64::from(args.files)).max(1) as usize;
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for n in 0..args.files {
        let folder = top.join(format!("{}", n / 100));
        std::fs::create_dir_all(&folder)?;
        let content: Vec<u8> = (0..file_bytes)
            .map(|i| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if i % 2 == 0 { (noise >> 56) as u8 } else { b'x' }
            })
            .collect();
        std::fs::write(folder.join(format!("{n}")), content)?;
    }
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(dir.join("env.tar.gz")).arg("-C").arg(&top).arg(".");
    let done = tar.status().map_err(|e| failed(format!("this benchmark packs with `tar`: {e}")))?;
    if !done.success() {
        return Err(failed(format!("tar ended with {done}")));
    }
    std::fs::remove_dir_all(&top)?;
    Ok(std::fs::metadata(dir.join("env.tar.gz"))?.len())
}

/// Seconds of a run with `n_tasks` tasks, of which each reads a file of the environment.
fn run(dir: &Path, n_tasks: u32, once: bool) -> Result<f64, Fault> {
    let packed = dir.join("env.tar.gz");
    let mut list = String::new();
    for n in 0..n_tasks {
        let task = match once {
            true => serde_json::json!({
                "command": "test -s env/0/7",
                "inputs": { "env": { "environment": packed } },
                "label": n.to_string(),
            }),
            false => serde_json::json!({
                "command": "mkdir env && tar -xzf env.tar.gz -C env && test -s env/0/7",
                "inputs": { "env.tar.gz": packed },
                "label": n.to_string(),
            }),
        };
        list += &format!("{task}\n");
    }
    if n_tasks == 0 {
        list = "{\"command\":\"true\"}\n".into();
    }
    let path = dir.join("tasks.jsonl");
    std::fs::write(&path, list)?;
    let mut eyas = Command::new(local::program()?);
    eyas.arg("run").arg(&path).args(["--slots", "1", "--nodes", "1", "--cache", "20GiB"]);
    eyas.arg("--dir").arg(dir.join("cluster")).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let done = eyas.status().map_err(failed)?;
    let seconds = begun.elapsed().as_secs_f64();
    if !done.success() {
        return Err(failed(format!("eyas ended with {done}")));
    }
    eyas_runner::sandbox::remove_tree(&dir.join("cluster")).map_err(failed)?;
    Ok(seconds)
}
