//! `eyas-lab bench app`: a real application run step by step, as `Zhang12`, figure 10, does.
//!
//! The work is done by `apps/bench/steps.py`, which uses the command line alone, as a user would: it makes
//! the data, runs the workflow once for each step with this very program, and checks every result against a
//! plain run. Here its figures become a table, each compared with the first step's.
//!
//! Not here: the meaning of a step and the way in which a stage's time is counted; both are described at
//! the head of `steps.py`.

use super::table::{Row, Table};
use super::{Common, failed, note};
use clap::{Args, ValueEnum};
use eyas_cli::{Exit, Fault};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Name {
    Mosaic,
    Blast,
    Cybershake,
}

#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Scale {
    Full,
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
    /// Nodes, with one slot each
    #[arg(long, default_value_t = 4)]
    nodes: u32,
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

pub fn bench(args: &AppArgs) -> Result<Exit, Fault> {
    let script = args.apps.join("bench/steps.py");
    if !script.is_file() {
        let text = format!(
            "there is no `{}`\nhint: run this in a checkout, or say where its applications are with --apps",
            script.display()
        );
        return Err(Fault::new(Exit::BadInput, text));
    }
    let script = script.canonicalize().map_err(failed)?;
    args.common.run(|dir| {
        let found = measure(args, &script, dir)?;
        table(args, &found)
    })
}

fn measure(args: &AppArgs, script: &Path, dir: &Path) -> Result<StepFigures, Fault> {
    let name = value_name(args.name);
    let figures = dir.join("steps.json");
    let mut command = Command::new(&args.python);
    command.arg(script).arg(&name).arg("--eyas").arg(eyas_cli::local::program()?);
    command.arg("--dir").arg(dir.join(&name)).arg("--json").arg(&figures);
    command.args(["--nodes", &args.nodes.to_string(), "--home-rate", &args.home_rate]);
    command.args(["--rounds", &args.rounds.to_string(), "--scale", &value_name(args.scale)]);
    if let Some(steps) = &args.steps {
        command.args(["--steps", steps]);
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
    let title = format!("app {name}: {} nodes, home limited to {} a second", args.nodes, args.home_rate);
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
    table.note(format!(
        "The plain run, one program after the other on local disk, took {:.1} s.",
        found.plain_s
    ));
    table.note("A stage's time is by how much it moves the end; the results of all steps were those of the plain run.");
    Ok(table)
}

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |v| v.get_name().to_string())
}
