//! `eyas-lab bench app`: a real application run step by step, as `Zhang12`, figure 10, does.
//!
//! The work is done by `apps/bench/steps.py`, which uses the command line alone, as a user would: it makes
//! the data, runs the workflow once for each step with this very program, and checks every result against a
//! plain run. Here its figures become a table, each compared with the first step's. `pays` is no application:
//! `apps/bench/pays.py` runs tasks of chosen lengths and inputs with eyas and without it.
//!
//! Not here: the meaning of a step and the way in which a stage's time is counted; both are described at
//! the head of `steps.py`.

use super::table::{Row, Table};
use super::{Common, failed, note};
use clap::{Args, ValueEnum};
use eyas_cli::{Exit, Fault};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Name {
    Mosaic,
    Blast,
    Cybershake,
    /// No application: from which task length and input size eyas pays, beside programs without it
    Pays,
}

#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Scale {
    Full,
    /// As many tasks as in the full one, each of some milliseconds (mosaic)
    Short,
    Small,
}

#[derive(Args)]
pub struct AppArgs {
    /// The application
    #[arg(value_enum)]
    name: Name,
    /// The folder of the applications
    #[arg(long, default_value = "apps", value_name = "DIR")]
    apps: PathBuf,
    /// The amount of work
    #[arg(long, value_enum, default_value = "full")]
    scale: Scale,
    /// Nodes, with one slot each [default: 4, for pays 2]
    #[arg(long)]
    nodes: Option<u32>,
    /// Bytes per second from and to home storage, over all nodes
    #[arg(long, default_value = "5MB", value_name = "BYTES")]
    home_rate: String,
    /// Number of times that each step is run; its figures are medians
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The steps to run, separated by commas; the first one is what the others are compared with [default: all but bound
    /// and steal]
    #[arg(long, value_name = "STEPS")]
    steps: Option<String>,
    /// The Python interpreter in which the packages of the application are installed
    #[arg(long, default_value = "python3", value_name = "FILE")]
    python: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// The figures that `steps.py` writes.
#[derive(Deserialize)]
struct StepFigures {
    plain_s: f64,
    /// Names of all stages, in the order of the workflow.
    stages: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    step: String,
    makespan_s: f64,
    parallel_s: f64,
    home_bytes: f64,
    peer_bytes: f64,
    stage_s: BTreeMap<String, f64>,
}

impl AppArgs {
    fn n_nodes(&self) -> u32 {
        self.nodes.unwrap_or(if self.name == Name::Pays { 2 } else { 4 })
    }
}

/// The figures that `pays.py` writes.
#[derive(Deserialize)]
struct CellFigures {
    nodes: u32,
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    length_s: f64,
    size_bytes: u64,
    n_tasks: u64,
    plain_s: f64,
    parallel_s: f64,
    eyas_s: f64,
    rate: Option<f64>,
}

pub fn bench(args: &AppArgs) -> Result<Exit, Fault> {
    let script = args.apps.join(if args.name == Name::Pays { "bench/pays.py" } else { "bench/steps.py" });
    if !script.is_file() {
        let text = format!(
            "there is no `{}`\nhint: run this in a checkout, or say where its applications are with --apps",
            script.display()
        );
        return Err(Fault::new(Exit::BadInput, text));
    }
    let script = script.canonicalize().map_err(failed)?;
    args.common.run(|dir| match args.name {
        Name::Pays => Ok(table_of_cells(&measure(args, &script, dir)?)),
        _ => table(args, &measure(args, &script, dir)?),
    })
}

/// What the script writes of its figures.
fn measure<Figures: DeserializeOwned>(args: &AppArgs, script: &Path, dir: &Path) -> Result<Figures, Fault> {
    let name = value_name(args.name);
    let figures = dir.join("figures.json");
    let mut command = Command::new(&args.python);
    command.arg(script).arg("--eyas").arg(eyas_cli::local::program()?);
    command.arg("--dir").arg(dir.join(&name)).arg("--json").arg(&figures);
    command.args(["--nodes", &args.n_nodes().to_string(), "--rounds", &args.rounds.to_string()]);
    if args.name != Name::Pays {
        command.arg(&name).args(["--home-rate", &args.home_rate, "--scale", &value_name(args.scale)]);
        if let Some(steps) = &args.steps {
            command.args(["--steps", steps]);
        }
    }
    // The tables of `steps.py` are not shown, because ours shows their figures at the end; its notes on
    // progress are on standard error.
    let ended = command
        .stdout(std::process::Stdio::null())
        .status()
        .map_err(|e| Fault::new(Exit::Other, format!("cannot start `{}`: {e}", args.python.display())))?;
    if !ended.success() {
        note("the figures of the steps that ran are lost");
        return Err(Fault::new(Exit::Other, format!("the application {name} did not run through all steps")));
    }
    let text = std::fs::read_to_string(&figures).map_err(failed)?;
    serde_json::from_str(&text).map_err(failed)
}

fn table(args: &AppArgs, found: &StepFigures) -> Result<Table, Fault> {
    let name = value_name(args.name);
    let Some(base) = found.steps.first() else { return Err(failed("no step was run")) };
    let title = format!("app {name}: {} nodes, home limited to {} a second", args.n_nodes(), args.home_rate);
    let mut table = Table::new(title);
    let mut add = |what: String, unit, is_base: bool, value: f64, reference: f64| {
        let row = Row::new(what, value, unit);
        table.row(if is_base { row } else { row.against("first", reference) });
    };
    for (at, step) in found.steps.iter().enumerate() {
        let (is_base, label) = (at == 0, &step.step);
        add(format!("{label}: whole"), "s", is_base, step.makespan_s, base.makespan_s);
        add(format!("{label}: parallel stages"), "s", is_base, step.parallel_s, base.parallel_s);
        for stage in &found.stages {
            let seconds = |s: &Step| s.stage_s.get(stage).copied().unwrap_or(f64::NAN);
            add(format!("{label}: {stage}"), "s", is_base, seconds(step), seconds(base));
        }
        add(format!("{label}: through home"), "MB", is_base, step.home_bytes / 1e6, base.home_bytes / 1e6);
        add(format!("{label}: between nodes"), "MB", true, step.peer_bytes / 1e6, f64::NAN);
    }
    let last = found.steps.last().unwrap_or(base);
    let row = Row::new(format!("{}: whole", last.step), last.makespan_s, "s");
    table.row(row.against("plain", found.plain_s));
    table.note("The plain run: one program after the other on local disk, without a limit.");
    table.note("A stage's time is by how much it moves the end; the results of all steps were those of the plain run.");
    Ok(table)
}

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |v| v.get_name().to_string())
}

fn table_of_cells(found: &CellFigures) -> Table {
    let mut table =
        Table::new(format!("app pays: {} nodes of one slot, files on the local disk", found.nodes));
    for cell in &found.cells {
        let size = eyas_cli::print::size(cell.size_bytes);
        let what = format!("{} tasks of {:.0} ms, inputs of {size}", cell.n_tasks, cell.length_s * 1e3);
        table.row(Row::new(&what, cell.eyas_s, "s").against("one by one", cell.plain_s));
        table.row(Row::new(&what, cell.eyas_s, "s").against("as many at a time", cell.parallel_s));
        table.note(match cell.rate {
            None => format!("{what}: eyas is the quicker one, from a local disk too"),
            Some(rate) => format!(
                "{what}: eyas is quicker than as many at a time from a shared storage of less than {:.0} MB/s",
                rate / 1e6
            ),
        });
    }
    table.note("Whole commands, from start to end, caches cold; each input is read by several tasks.");
    table
}
