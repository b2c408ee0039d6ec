//! `eyas-lab bench once`: many tasks that share one packed environment (`Raicu09` section 6.5). The node unpacks it once for
//! all of them, beside tasks that each unpack it for themselves.
//!
//! The environment is an archive of many small files, in gzip. Both halves begin with cold caches, and each task reads one
//! file of the environment, so that an empty one would be noticed. The time of a task is that from the end of the program
//! before it to the end of its own, by the event log, so it has everything in it: sandbox, program, reports.

use super::table::{Row, Table};
use super::{Common, failed, median, note};
use clap::Args;
use eyas_cli::{Exit, Fault, local};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Args)]
pub struct OnceArgs {
    /// Tasks that share the environment; the issue asks for 1,000
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    tasks: u32,
    /// Tasks that unpack it for themselves: each takes as long as any other one, so few tell
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=1_000))]
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
            let (first_ms, later_ms) = run(dir, args.tasks, true)?;
            one.push(first_ms);
            later.push(later_ms);
            each.push(run(dir, args.each, false)?.1);
        }
        let [one, later, each] = [one, later, each].map(|times| median(&times));
        let row = Row::new("a task after the first", later, "ms");
        table.row(row.target("20 ms", "5 ms").against("unpacked in each task", each));
        table.row(Row::new("the first task, with the making", one, "ms"));
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

/// A run with `n_tasks` tasks, of which each reads a file of the environment: milliseconds from the first assignment to the
/// end of the first program, and from there to the end of a later one.
fn run(dir: &Path, n_tasks: u32, once: bool) -> Result<(f64, f64), Fault> {
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
    let path = dir.join("tasks.jsonl");
    std::fs::write(&path, list)?;
    let mut eyas = Command::new(local::program()?);
    eyas.arg("run").arg(&path).args(["--slots", "1", "--nodes", "1", "--cache", "20GiB"]);
    eyas.arg("--dir").arg(dir.join("cluster")).stdout(Stdio::null()).stderr(Stdio::null());
    let done = eyas.status().map_err(failed)?;
    if !done.success() {
        return Err(failed(format!("eyas ended with {done}")));
    }
    let mut times = vec![];
    for entry in std::fs::read_to_string(find_log(&dir.join("cluster"))?)?.lines() {
        let entry: serde_json::Value = serde_json::from_str(entry).map_err(failed)?;
        find_times(&entry, &mut times);
    }
    times.sort_unstable_by_key(|(_, exited)| *exited);
    times.dedup();
    if times.len() != n_tasks as usize {
        return Err(failed(format!("{n_tasks} tasks ran, and the log has {} ends", times.len())));
    }
    eyas_runner::sandbox::remove_tree(&dir.join("cluster")).map_err(failed)?;
    let received = times.iter().map(|(received, _)| *received).min().unwrap_or(0);
    let (first, last) = (times[0].1, times[times.len() - 1].1);
    let ms = |ns: u64| ns as f64 / 1e6;
    Ok((ms(first.saturating_sub(received)), ms(last - first) / f64::from(n_tasks - 1)))
}

/// The event log of a cluster, wherever below its folder.
fn find_log(folder: &Path) -> Result<std::path::PathBuf, Fault> {
    let mut left = vec![folder.to_path_buf()];
    while let Some(path) = left.pop() {
        for entry in std::fs::read_dir(&path)?.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                _ if entry.file_name() == "events.jsonl" => return Ok(entry.path()),
                _ => {}
            }
        }
    }
    Err(failed("the cluster left no event log"))
}

/// When attempts were received and when their programs ended, wherever in a line of the log.
fn find_times(value: &serde_json::Value, found: &mut Vec<(u64, u64)>) {
    match value {
        serde_json::Value::Array(all) => all.iter().for_each(|value| find_times(value, found)),
        serde_json::Value::Object(fields) => {
            let time = |name: &str| fields.get(name).and_then(serde_json::Value::as_u64);
            if let (Some(received), Some(exited)) = (time("received"), time("exited")) {
                found.push((received, exited));
            }
            fields.values().for_each(|value| find_times(value, found));
        }
        _ => {}
    }
}
