//! `eyas-lab bench predict`: recorded runs predicted to fewer nodes, beside the same lists run there.
//!
//! | list | |
//! |---|---|
//! | own | 40 tasks, each reads a file of its own of 0.5 to 1.5 MB |
//! | few | 8 tasks, each reads a file of its own of 4 MB |
//! | shared | 48 tasks over four files of 5 MB |
//! | stages | 24 tasks read 1 MB and write 0.5 MB each; 6 tasks read four of these each |
//! | busy | 32 tasks, each reads 0.2 MB and then takes 0.4 s |
//!
//! Home is limited for all nodes together, so it is saturated in all lists but the last whenever several
//! nodes read. Each list runs on 8, 4, 2 and 1 local nodes of one slot; the runs on 8 and on 4 nodes are
//! used to predict all smaller numbers. Programs sleep in place of computing, because local nodes share the
//! processors of one machine.

use super::table::{Row, Table};
use super::{Common, Random, failed, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_sim::workload::trace::{Trace, TraceConfig};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The runs are recorded in this order; each of the first two is used to predict all smaller ones.
const NODES: [u32; 4] = [8, 4, 2, 1];
const N_RECORDED: usize = 2;

#[derive(Args)]
pub struct PredictArgs {
    /// Bytes per second from and to home storage, all nodes together
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = eyas_cli::args::rate)]
    home_rate: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy)]
enum List {
    Own,
    Few,
    Shared,
    Stages,
    Busy,
}

impl List {
    const ALL: [List; 5] = [List::Own, List::Few, List::Shared, List::Stages, List::Busy];

    fn name(self) -> &'static str {
        match self {
            List::Own => "own",
            List::Few => "few",
            List::Shared => "shared",
            List::Stages => "stages",
            List::Busy => "busy",
        }
    }

    /// Writes the input files into `dir/home`. Returns the tasks.
    fn make(self, dir: &Path) -> Result<Vec<Value>, Fault> {
        let home = dir.join("home");
        std::fs::create_dir_all(&home)?;
        let mut random = Random(3);
        let mut file = |name: String, bytes: usize| -> Result<String, Fault> {
            let path = home.join(name);
            let content: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
            std::fs::write(&path, content)?;
            Ok(path.display().to_string())
        };
        let read = |id: String, input: &str, sleep: &str| json!({"id": id, "command": format!("cat x > /dev/null; sleep {sleep}"), "inputs": {"x": input}});
        let mut tasks = vec![];
        match self {
            List::Own => {
                for i in 0..40 {
                    let input = file(format!("{i}"), 500_000 + (i * 7 % 11) * 100_000)?;
                    tasks.push(read(format!("own-{i}"), &input, "0.05"));
                }
            }
            List::Few => {
                for i in 0..8 {
                    tasks.push(read(format!("few-{i}"), &file(format!("{i}"), 4_000_000)?, "0.1"));
                }
            }
            List::Shared => {
                let files = (0..4).map(|i| file(format!("{i}"), 5_000_000)).collect::<Result<Vec<_>, _>>()?;
                tasks.extend((0..48).map(|i| read(format!("shared-{i}"), &files[i % 4], "0.1")));
            }
            List::Stages => {
                let middle = |i: usize| home.join(format!("middle-{i}")).display().to_string();
                for i in 0..24 {
                    let input = file(format!("{i}"), 1_000_000)?;
                    tasks.push(json!({
                        "id": format!("first-{i}"), "command": "head -c 500000 x > y; sleep 0.05",
                        "inputs": {"x": input}, "outputs": {"y": middle(i)},
                    }));
                }
                for k in 0..6 {
                    let inputs: Value = (0..4).map(|j| (format!("x{j}"), json!(middle(4 * k + j)))).collect();
                    tasks.push(json!({"id": format!("second-{k}"), "command": "cat x* > /dev/null", "inputs": inputs}));
                }
            }
            List::Busy => {
                for i in 0..32 {
                    tasks.push(read(format!("busy-{i}"), &file(format!("{i}"), 200_000)?, "0.4"));
                }
            }
        }
        Ok(tasks)
    }
}

/// A predicted time beside the measured time, in seconds.
struct Case {
    list: &'static str,
    recorded: u32,
    nodes: u32,
    measured_s: f64,
    likeliest_s: f64,
    least_s: f64,
    most_s: f64,
}

impl Case {
    fn is_held(&self) -> bool {
        self.least_s <= self.measured_s && self.measured_s <= self.most_s
    }
}

pub fn bench(args: &PredictArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let mut cases = vec![];
        for list in List::ALL {
            measure(list, args.home_rate, &dir.join(list.name()), &mut cases)?;
        }
        let title = format!(
            "predict: to fewer nodes of one slot, home at {} MB/s for all",
            args.home_rate / 1_000_000
        );
        let mut table = Table::new(title);
        for c in &cases {
            let held = if c.is_held() { "" } else { ", missed" };
            let what = format!(
                "{}, {} to {} nodes: {:.1} to {:.1} s{held}",
                c.list, c.recorded, c.nodes, c.least_s, c.most_s
            );
            table.row(Row::new(what, c.measured_s, "s").against("likeliest", c.likeliest_s));
        }
        let held = cases.iter().filter(|c| c.is_held()).count() as f64 / cases.len() as f64;
        table.row(Row::new("ranges that hold what was measured", held, "").target("0.90", "1.00"));
        let mut widths: Vec<f64> = cases.iter().map(|c| c.most_s / c.least_s).collect();
        widths.sort_unstable_by(f64::total_cmp);
        table.row(Row::new("median of the ranges' widths, slowest by fastest", widths[widths.len() / 2], ""));
        table.row(Row::new("  the widest", widths[widths.len() - 1], ""));
        table.note("The likeliest world lies half way where the run does not say what one node gets alone.");
        Ok(table)
    })
}

fn measure(list: List, home_rate: u64, dir: &Path, cases: &mut Vec<Case>) -> Result<(), Fault> {
    let tasks = list.make(dir)?;
    let path = dir.join("tasks.jsonl");
    std::fs::write(&path, tasks.iter().map(|task| format!("{task}\n")).collect::<String>())?;
    let mut runs: Vec<(u32, PathBuf, f64)> = vec![];
    for nodes in NODES {
        note(&format!("{} on {nodes} nodes", list.name()));
        let run = dir.join(format!("on-{nodes}"));
        let (n, rate) = (nodes.to_string(), home_rate.to_string());
        let options = ["--nodes", &n, "--slots", "1", "--home-rate", &rate];
        eyas(
            dir,
            "run",
            &path,
            [OsStr::new("--dir"), run.as_os_str()].into_iter().chain(options.map(OsStr::new)),
        )?;
        let trace = Trace::read(&run, &TraceConfig::default())?;
        runs.push((nodes, run, trace.measured.makespan_ns as f64 * 1e-9));
    }
    for (k, (recorded, run, _)) in runs.iter().enumerate().take(N_RECORDED) {
        let fewer = &runs[k + 1..];
        let nodes: Vec<String> = fewer.iter().map(|(nodes, ..)| nodes.to_string()).collect();
        let (nodes, out) = (nodes.join(","), dir.join("predicted.json"));
        let options = ["--nodes", &nodes, "--json"].map(OsStr::new);
        eyas(dir, "predict", run, options.into_iter().chain([out.as_os_str()]))?;
        let all: Value = serde_json::from_slice(&std::fs::read(&out)?).map_err(failed)?;
        for (nodes, _, measured_s) in fewer {
            let of_these = |p: &&Value| p["nodes"] == *nodes;
            let p = all["predictions"].as_array().and_then(|list| list.iter().find(of_these));
            let figure =
                |value: &Value| value.as_f64().ok_or_else(|| failed(format!("no prediction: {value}")));
            let p = p.unwrap_or(&Value::Null);
            cases.push(Case {
                list: list.name(),
                recorded: *recorded,
                nodes: *nodes,
                measured_s: *measured_s,
                likeliest_s: figure(&p["summary"]["makespan_s"])?,
                least_s: figure(&p["makespan_min_s"])?,
                most_s: figure(&p["makespan_max_s"])?,
            });
        }
    }
    // The next list makes its own home, and the runs of this list are no longer needed.
    eyas_runner::sandbox::remove_tree(dir).map_err(failed)
}

/// A command of this program, in a cluster of its own.
fn eyas<'a>(
    dir: &Path,
    verb: &str,
    what: &Path,
    options: impl Iterator<Item = &'a OsStr>,
) -> Result<(), Fault> {
    let ended = Command::new(eyas_cli::local::program()?)
        .arg(verb)
        .arg(what)
        .args(options)
        .env_remove("EYAS_JOIN")
        .env("EYAS_STATE", dir.join("state"))
        .stdin(Stdio::null())
        .output()?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(failed(format!(
            "`eyas {verb}` failed: {}",
            String::from_utf8_lossy(&ended.stderr).trim_end()
        ))),
    }
}
