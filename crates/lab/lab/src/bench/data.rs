//! `eyas-lab bench data`: many tasks over shared files, on four nodes with cold caches, beside `xargs`.
//!
//! | | |
//! |---|---|
//! | random | 2,000 tasks, each reads one of 200 files of 10 MB, drawn at random |
//! | pairs | 40 × 40 tasks; task (i, j) reads files i and j of 40 files of 12 MB |
//!
//! The program is `cat` in both. The shell that starts it throws its output away, so that neither side pays
//! for a pipe. The processor time of all processes of the cluster, programs included, is compared with that
//! of `xargs -P2` and its programs. The files are in the page cache when either side starts.
//!
//! Copies need memory that `xargs` does not need. On a virtual machine whose free memory is with its host,
//! the first touch of a page can cost ten times the copy. So a plain copy of each file is timed, too. It
//! comes last, when its pages are as fresh as those of the caches were.

use super::cluster::{Cluster, Shape, template};
use super::table::{Row, Table};
use super::{Common, Random, failed, note};
use clap::{Args, ValueEnum};
use eyas_cli::{Exit, Fault};
use eyas_core::event::Event;
use eyas_core::log::{EVENTS_FILE, Line, What};
use eyas_terms::CacheOutcome;
use eyas_terms::array::{Column, Command, Pattern, Piece, TaskArray};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

const N_NODES: u32 = 4;

#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Workload {
    Random,
    Pairs,
}

#[derive(Args)]
pub struct DataArgs {
    /// The workload to run [default: both]
    #[arg(long)]
    workload: Option<Workload>,
    /// The placement policy, as for `eyas run`
    #[arg(long, default_value = "good-cache-compute", value_name = "POLICY")]
    placement: String,
    /// Size of the files in tenths of the full size; fewer tenths give a quick look
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10))]
    tenths: u64,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &DataArgs) -> Result<Exit, Fault> {
    eyas_core::placement::by_name(&args.placement, &eyas_core::placement::Config::default())
        .map_err(|e| Fault::new(Exit::BadInput, e))?;
    args.common.run(|dir| {
        let mut table =
            Table::new(format!("data: {N_NODES} nodes with one slot each, caches cold, {}", args.placement));
        for workload in [Workload::Random, Workload::Pairs] {
            if args.workload.is_none_or(|wanted| wanted == workload) {
                measure(workload, args, &dir.join(workload.name()), &mut table)?;
                eyas_runner::sandbox::remove_tree(&dir.join(workload.name())).map_err(failed)?;
            }
        }
        table.note(
            "Hit ratio: inputs in the node's own cache by all inputs; those that joined a transfer under way do not count.",
        );
        Ok(table)
    })
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Random => "random",
            Workload::Pairs => "pairs",
        }
    }

    fn files(self) -> (usize, u64) {
        match self {
            Workload::Random => (200, 10_000_000),
            Workload::Pairs => (40, 12_000_000),
        }
    }

    /// The files that each task reads.
    fn tasks(self) -> Vec<Vec<usize>> {
        let (n_files, _) = self.files();
        let mut random = Random(1);
        match self {
            Workload::Random => (0..2000).map(|_| vec![random.below(n_files)]).collect(),
            Workload::Pairs => (0..n_files).flat_map(|i| (0..n_files).map(move |j| vec![i, j])).collect(),
        }
    }
}

fn measure(workload: Workload, args: &DataArgs, dir: &Path, table: &mut Table) -> Result<(), Fault> {
    let (n_files, file_bytes) = workload.files();
    let file_bytes = file_bytes * args.tenths / 10;
    let tasks = workload.tasks();
    let name = workload.name();
    note(&format!("{name}: making {n_files} files of {:.0} MB", file_bytes as f64 / 1e6));
    let files = make_files(&dir.join("home"), n_files, file_bytes)?;
    note(&format!("{name}: xargs"));
    let (bare_ms, bare_s) = through_xargs(&files, &tasks)?;
    note(&format!("{name}: eyas"));
    let shape = Shape {
        nodes: N_NODES,
        slots: 1,
        cache_bytes: n_files as u64 * file_bytes + (1 << 20),
        placement: args.placement.clone(),
        event_log: true,
        dispatchers: 1,
    };
    let mut cluster = Cluster::start(&dir.join("cluster"), &shape)?;
    let cost = cluster.run(&[Arc::new(array(&files, &tasks)?)])?;
    let status = cluster.settled_status()?;
    let log = cluster.stop().join(EVENTS_FILE);
    let hits = hit_ratio(&log)?;
    let n = tasks.len() as f64;
    let mb = |of: fn(&eyas_wire::message::ExecutorStatus) -> u64| {
        status.executors.iter().map(|e| of(&e.status)).sum::<u64>() as f64 / 1e6
    };
    let cpu = Row::new(format!("{name}: CPU of everything"), cost.all_cpu_ns as f64 / 1e6 / n, "ms/task")
        .against("xargs -P2", bare_ms);
    let (home, peers, aim_hits) = match workload {
        Workload::Random => (("2,000", "2,000"), ("400", "200"), Some(("0.88", "0.90"))),
        Workload::Pairs => (("480", "480"), ("1,400", "960"), None),
    };
    table.row(cpu.target("ratio 1.60", "1.20"));
    table.row(Row::new("  of that the dispatcher", cost.dispatcher_cpu_ns as f64 / 1e6 / n, "ms/task"));
    let copy_ms = plain_copy(&files, &dir.join("copy"))? / n;
    table.row(Row::new("  beside it, a plain copy of each file", copy_ms, "ms/task"));
    table.row(Row::new("  through home", mb(|s| s.home_read_bytes), "MB").target(home.0, home.1));
    table.row(Row::new("  between peers", mb(|s| s.peer_bytes), "MB").target(peers.0, peers.1));
    let row = Row::new("  hit ratio", hits, "");
    table.row(match aim_hits {
        Some((must, aim)) => row.target(must, aim),
        None => row,
    });
    table.row(Row::new("  time", cost.wall_ns as f64 / 1e9, "s").against("xargs -P2", bare_s));
    Ok(())
}

/// Makes files that differ from each other, and leaves them in the page cache.
pub(super) fn make_files(dir: &Path, n: usize, bytes: u64) -> Result<Vec<PathBuf>, Fault> {
    std::fs::create_dir_all(dir)?;
    let mut random = Random(7);
    let block: Vec<u8> = (0..1 << 17).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut files = vec![];
    for i in 0..n {
        let path = dir.join(format!("file-{i:03}"));
        let mut file = File::create(&path)?;
        file.write_all(format!("{i:08}").as_bytes())?;
        let mut left = bytes - 8;
        while left > 0 {
            let part = left.min(block.len() as u64);
            file.write_all(&block[..part as usize])?;
            left -= part;
        }
        files.push(path);
    }
    Ok(files)
}

/// The shell line of a task: `cat a b > /dev/null`.
fn line(names: &[String]) -> String {
    format!("cat {} > /dev/null", names.join(" "))
}

fn array(files: &[PathBuf], tasks: &[Vec<usize>]) -> Result<TaskArray, Fault> {
    let n_inputs = tasks[0].len();
    let mut columns = vec![Column::default(); n_inputs];
    for task in tasks {
        for (column, file) in columns.iter_mut().zip(task) {
            if !column.push(&files[*file].display().to_string()) {
                return Err(failed("the names of the files have more than 4 GiB"));
            }
        }
    }
    let names: Vec<String> = (0..n_inputs).map(|i| format!("in{i}")).collect();
    let inputs = names.iter().enumerate();
    let inputs =
        inputs.map(|(i, name)| (Pattern(vec![Piece::Literal(name.clone())]), Pattern::column(i as u32)));
    let template = template(Command::Shell(Pattern::literal(line(&names))), inputs.collect());
    Ok(TaskArray { n_tasks: tasks.len() as u32, first_index: 0, template, columns, needs: None })
}

/// Processor time per task in ms, and the elapsed time in seconds.
fn through_xargs(files: &[PathBuf], tasks: &[Vec<usize>]) -> Result<(f64, f64), Fault> {
    let mut lines = vec![];
    for task in tasks {
        let names: Vec<String> = task.iter().map(|i| files[*i].display().to_string()).collect();
        lines.extend_from_slice(line(&names).as_bytes());
        lines.push(0);
    }
    let (_, before) = eyas_runtime::clock::cpu_ns();
    let begun = Instant::now();
    let mut xargs = std::process::Command::new("xargs")
        .args(["-0", "-n1", "-P2", "/bin/sh", "-c"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| failed(format!("cannot start xargs: {e}")))?;
    if let Some(mut stdin) = xargs.stdin.take() {
        stdin.write_all(&lines)?;
    }
    let status = xargs.wait()?;
    let (_, after) = eyas_runtime::clock::cpu_ns();
    if !status.success() {
        return Err(failed(format!("xargs ended with {status}")));
    }
    Ok(((after - before) as f64 / 1e6 / tasks.len() as f64, begun.elapsed().as_secs_f64()))
}

/// Reads and writes each file once, as a cache would that neither hashed nor evicted. Gives processor time
/// in ms.
fn plain_copy(files: &[PathBuf], dir: &Path) -> Result<f64, Fault> {
    std::fs::create_dir_all(dir)?;
    let mut block = vec![0; 256 << 10];
    let (before, _) = eyas_runtime::clock::cpu_ns();
    for (i, path) in files.iter().enumerate() {
        let mut from = File::open(path)?;
        let mut to = File::create(dir.join(i.to_string()))?;
        loop {
            match from.read(&mut block)? {
                0 => break,
                n => to.write_all(&block[..n])?,
            }
        }
    }
    let (after, _) = eyas_runtime::clock::cpu_ns();
    Ok((after - before) as f64 / 1e6)
}

fn hit_ratio(log: &Path) -> Result<f64, Fault> {
    let (mut n_hits, mut n_inputs) = (0u64, 0u64);
    for text in BufReader::new(File::open(log)?).lines().skip(1) {
        let line: Line = serde_json::from_str(&text?).map_err(failed)?;
        if let What::In(Event::AttemptEnded { report, .. }) = line.what {
            n_inputs += report.inputs.len() as u64;
            n_hits += report.inputs.iter().filter(|i| i.outcome == CacheOutcome::LocalHit).count() as u64;
        }
    }
    Ok(n_hits as f64 / n_inputs as f64)
}
