//! `eyas-lab bench files`: the micro-benchmarks of Raicu09 §4.2 and §4.3 (figures 7 to 14), as far as one machine has them.
//!
//! Files of one size are read once each, or read and copied, by programs of one slot on 1 to 4 nodes of
//! this machine:
//!
//! | row | |
//! |---|---|
//! | local disk | a bare loop per node over the files: no eyas, no sandbox, no limit; the reference of all others |
//! | shared storage | `first-available`, which reads home for each task; home gives `--home-rate` bytes per second to all nodes together |
//! | with a wrapper | the same, and each task makes a scratch directory beside the files, links its input into it, and removes it |
//! | diffusion, cold | `good-cache-compute` with empty caches: each file once from home |
//! | diffusion, warm | the same tasks again |
//!
//! The nodes share one disk and its page cache, so this says nothing of how many disks add up; `eyas-lab
//! repro --only micro` simulates that. The benchmark shows the cost of a task in eyas beside the bare loop,
//! and the gain of a cache over a saturated home. Each task of eyas has its sandbox; the bare loop has
//! none.

use super::cluster::{Cluster, Shape, template};
use super::table::{Row, Table};
use super::{Common, Random, failed, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::placement::{first_available, good_cache_compute};
use eyas_terms::array::{Column, Command, Pattern, Piece, TaskArray};
use eyas_terms::run_file;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The most bytes of all files of one size, if there are more than a few files.
const TOTAL_BYTES: u64 = 200_000_000;
const FILES_MIN: u64 = 4;

#[derive(Args)]
pub struct FilesArgs {
    /// Sizes of the files
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = eyas_cli::args::bytes, default_value = "1,10kB,1MB,10MB")]
    sizes: Vec<u64>,
    /// Numbers of nodes, each with one slot
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=16), default_value = "1,4")]
    nodes: Vec<u32>,
    /// Limit of home storage for all nodes together, in bytes per second
    #[arg(long, value_name = "BYTES", value_parser = eyas_cli::args::bytes, default_value = "50MB")]
    home_rate: u64,
    /// Largest number of files of each size
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(4..=100_000))]
    files: u64,
    /// Each program also writes a copy of what it reads
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Wrapper,
}

pub fn bench(args: &FilesArgs) -> Result<Exit, Fault> {
    if args.home_rate == 0 || args.sizes.contains(&0) {
        return Err(Fault::new(Exit::BadInput, "--home-rate and --sizes are at least 1 byte"));
    }
    args.common.run(|dir| {
        let kind = if args.write { "read and written" } else { "read" };
        let mut table = Table::new(format!(
            "files: each {kind} once, home gives {:.0} MB/s to all nodes together",
            args.home_rate as f64 / 1e6
        ));
        for &size in &args.sizes {
            let n_files = (TOTAL_BYTES / size).clamp(FILES_MIN, args.files);
            let files = make(&dir.join(format!("home-{size}")), n_files, size)?;
            for &nodes in &args.nodes {
                measure(args, dir, &files, size, nodes, &mut table)?;
            }
            eyas_runner::sandbox::remove_tree(&dir.join(format!("home-{size}"))).map_err(failed)?;
        }
        table.note(
            "MB/s: bytes read, and written where they are, by time; tasks/s for files below 100 KB. Nodes share this machine's disk and processors.",
        );
        Ok(table)
    })
}

fn make(dir: &Path, n_files: u64, bytes: u64) -> Result<Vec<PathBuf>, Fault> {
    std::fs::create_dir_all(dir)?;
    let mut random = Random(11);
    let block: Vec<u8> = (0..1 << 16).map(|_| random.next() as u8).collect();
    (0..n_files)
        .map(|i| {
            let path = dir.join(format!("file-{i:05}"));
            let mut file = File::create(&path)?;
            let head = i.to_le_bytes();
            let n_head = head.len().min(bytes as usize);
            file.write_all(&head[..n_head])?;
            let mut left = bytes - n_head as u64;
            while left > 0 {
                let part = left.min(block.len() as u64) as usize;
                file.write_all(&block[..part])?;
                left -= part as u64;
            }
            Ok(path)
        })
        .collect()
}

fn measure(
    args: &FilesArgs,
    dir: &Path,
    files: &[PathBuf],
    size: u64,
    nodes: u32,
    table: &mut Table,
) -> Result<(), Fault> {
    let n = files.len() as f64;
    let (unit, per_s): (&'static str, f64) = match size {
        size if size < 100_000 => ("tasks/s", n),
        size => ("MB/s", n * size as f64 / 1e6 * if args.write { 2.0 } else { 1.0 }),
    };
    let what =
        format!("{} on {nodes} {}", eyas_cli::print::size(size), if nodes == 1 { "node" } else { "nodes" });
    note(&what);
    let bare = per_s / bare_s(args, dir, files, nodes)?;
    table.row(Row::new(format!("{what}: local disk, bare loop"), bare, unit));
    let mut add = |name: &str, seconds: f64| {
        table.row(Row::new(format!("  {name}"), per_s / seconds, unit).against("bare", bare));
    };
    // Files written through first-available go home; under diffusion they stay on the nodes.
    let home = dir.join("written");
    let in_cluster = |placement: &str, passes: &[(Kind, String)]| -> Result<Vec<f64>, Fault> {
        std::fs::create_dir_all(&home)?;
        let shape = Shape {
            nodes,
            slots: 1,
            cache_bytes: (files.len() as u64 * size * 4).max(64 << 20),
            placement: placement.into(),
            event_log: true,
            dispatchers: 1,
        };
        let place = dir.join("cluster");
        let mut cluster =
            Cluster::start_changed(&place, &shape, |of| of.policy.home_rate = Some(args.home_rate))?;
        let took = passes
            .iter()
            .map(|(kind, out)| {
                let array = array(args, files, *kind, &dir.join("scratch"), out)?;
                Ok(cluster.run(&[Arc::new(array)])?.wall_ns as f64 / 1e9)
            })
            .collect();
        cluster.stop();
        for left in [&place, &home] {
            eyas_runner::sandbox::remove_tree(left).map_err(failed)?;
        }
        took
    };
    let written = |name: &str| format!("{}/{name}-", home.display());
    let took = in_cluster(
        first_available::NAME,
        &[(Kind::Plain, written("plain")), (Kind::Wrapper, written("wrapper"))],
    )?;
    add("shared storage, FA", took[0]);
    add("shared storage, FA + wrapper", took[1]);
    let passes = [(Kind::Plain, run_file("cold-")), (Kind::Plain, run_file("warm-"))];
    let took = in_cluster(good_cache_compute::NAME, &passes)?;
    add("diffusion, cold", took[0]);
    add("diffusion, warm", took[1]);
    Ok(())
}

/// The shell line of each task: `cat`, with a copy if the task writes.
fn line(args: &FilesArgs, input: &str, output: &str) -> String {
    if args.write { format!("cat {input} > {output}") } else { format!("cat {input} > /dev/null") }
}

/// A loop per node, each over its share of the files.
fn bare_s(args: &FilesArgs, dir: &Path, files: &[PathBuf], nodes: u32) -> Result<f64, Fault> {
    let out = dir.join("bare");
    std::fs::create_dir_all(&out)?;
    let begun = Instant::now();
    let ended: Vec<Result<(), Fault>> = std::thread::scope(|scope| {
        let loops: Vec<_> = (0..nodes as usize)
            .map(|node| {
                let out = &out;
                scope.spawn(move || {
                    for (i, file) in files.iter().enumerate().skip(node).step_by(nodes as usize) {
                        let text = line(args, "\"$1\"", "\"$2\"");
                        let status = std::process::Command::new("/bin/sh")
                            .args(["-c", &text, "sh"])
                            .arg(file)
                            .arg(out.join(i.to_string()))
                            .status()
                            .map_err(|e| failed(format!("cannot start /bin/sh: {e}")))?;
                        if !status.success() {
                            return Err(failed(format!("a program of the bare loop ended with {status}")));
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        loops.into_iter().map(|one| one.join().expect("no loop panics")).collect()
    });
    ended.into_iter().collect::<Result<(), Fault>>()?;
    let took = begun.elapsed().as_secs_f64();
    eyas_runner::sandbox::remove_tree(&out).map_err(failed)?;
    Ok(took)
}

fn array(
    args: &FilesArgs,
    files: &[PathBuf],
    kind: Kind,
    scratch: &Path,
    written: &str,
) -> Result<TaskArray, Fault> {
    std::fs::create_dir_all(scratch)?;
    let mut column = Column::default();
    for file in files {
        if !column.push(&file.display().to_string()) {
            return Err(failed("the names of the files have more than 4 GiB"));
        }
    }
    let plain = line(args, "in", "out");
    let text = match kind {
        Kind::Plain => plain,
        // The work of wrapper scripts as Raicu09 §4.3 describes it.
        Kind::Wrapper => format!(
            "d='{0}'/w-$$ && mkdir \"$d\" && ln -s \"$PWD/in\" \"$d/in\" && {1} && rm -r \"$d\"",
            scratch.display(),
            plain.replacen("cat in", "cat \"$d/in\"", 1)
        ),
    };
    let inputs = vec![(Pattern::literal("in"), Pattern::column(0))];
    let mut template = template(Command::Shell(Pattern::literal(text)), inputs);
    if args.write {
        let location = Pattern(vec![Piece::Literal(written.into()), Piece::Index]);
        template.outputs = vec![(Pattern::literal("out"), location)];
    }
    Ok(TaskArray {
        n_tasks: files.len() as u32,
        first_index: 0,
        template,
        columns: vec![column],
        needs: None,
    })
}
