//! `eyas predict`: how long work takes on a cluster, before it is run there.
//!
//! In: a task list, a workflow, or a recorded run; and the clusters to compare. Out: a table with a line for
//! each cluster, and one sentence of advice. The properties of programs and files come from a recorded run,
//! or from a few probes that are run here. With `--from RUN` the run itself is predicted first, and shown
//! beside what was measured.
//!
//! Not here: the model and the range (`eyas_sim::predict`), and how accurate it is
//! (`docs/guides/predict.md`).

use crate::args::bytes;
use crate::print::{count, plural, reason, size};
use crate::sim::{
    MachineArgs, MissingArgs, PolicyArgs, bad, named_machine, per_cent, program_io, seconds, write_json,
};
use crate::{Exit, Fault};
use clap::Args;
use eyas_core::array::{Pattern, TaskArray};
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::is_directory;
use eyas_core::placement::{self, first_input};
use eyas_core::rng::Rng;
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::predict::{
    Calibration, Case, HomeSeen, Prediction, Question, alone_ns, calibrate, distinct_read_bytes, knee,
};
use eyas_sim::workload::list::{Learned, inputs_from_home, list};
use eyas_sim::workload::trace::{Measured, Trace, TraceConfig};
use eyas_sim::workload::workflow::{WorkflowConfig, workflow};
use eyas_sim::workload::{Error, Workload};
use eyas_sim::world::{Scheduling, simulate};
use eyas_storage::{Homes, HomesConfig, Location};
use eyas_text::shown_path;
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const PROBES: u32 = 5;
/// A policy or cache must be better by this share to be advised in place of a simpler one.
const BETTER: f64 = 0.03;
/// Requests to home at the same time.
const STATS_AT_ONCE: usize = 8;

#[derive(Args)]
pub struct PredictArgs {
    /// A task list, a workflow with run times, or the folder of a recorded run
    #[arg(value_name = "TASKS|WORKFLOW|RUN", required_unless_present = "from")]
    what: Option<PathBuf>,
    /// A recorded run to learn from; it is predicted itself first, beside what was measured
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,
    /// Only this run of the recorded log [default: all]
    #[arg(long, value_name = "RUN")]
    run: Option<u32>,
    /// Nodes, several after commas [default: 1, 2 and 4 times those recorded, or 1,4,16]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    nodes: Vec<u32>,
    /// Cache of each node, several after commas [default: the machine's]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = bytes)]
    cache: Vec<u64>,
    /// Placement policies, several after commas [default: that of the recorded run, or of `eyas run`]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    placement: Vec<String>,
    /// What a node costs in an hour, in any money
    #[arg(long, value_name = "MONEY")]
    price: Option<f64>,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    missing: MissingArgs,
    /// Tasks of the list that are run here to learn from, where no recorded run is given [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    probe: Option<u32>,
    /// Processors that the nodes of a recorded local cluster shared [default: this machine's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    processors: Option<u32>,
    /// Share of the nodes that is lost in an hour
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    losses_per_hour: f64,
    /// Worlds with other rates and run times, for the range
    #[arg(long, value_name = "N", default_value_t = 5)]
    worlds: u32,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Also write everything to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The work that is predicted.
enum Work {
    Recorded(Box<Recorded>),
    Workflow(PathBuf, WorkflowConfig),
    List { name: String, arrays: Vec<Arc<TaskArray>>, sizes: FxHashMap<String, u64>, learned: Learned },
}

/// A recorded run with what is known of it.
struct Recorded {
    trace: Trace,
    calibration: Calibration,
    /// Compute times on unshared processors, by position.
    compute_ns: Vec<u64>,
    learned: Learned,
}

impl Work {
    fn make(&self, rng: Option<&mut Rng>) -> Result<Workload, Error> {
        match self {
            Work::Workflow(path, config) => workflow(path, config),
            Work::List { name, arrays, sizes, learned } => list(name, arrays, sizes, learned, rng),
            Work::Recorded(r) => Ok(match rng {
                None => r.trace.workload_by(|position, _| r.compute_ns[position]),
                Some(rng) => r.trace.workload_by(|_, array| r.learned.draw_ns(&array.template, rng)),
            }),
        }
    }
}

/// The likeliest machine, and further machines that are possible.
struct Machines {
    machine: Machine,
    ends: Vec<Machine>,
}

impl Machines {
    fn known(machine: Machine) -> Machines {
        Machines { machine, ends: vec![] }
    }
    fn measured(calibration: &Calibration) -> Machines {
        let ends = calibration.ends.as_deref().map_or(vec![], |ends| ends.to_vec());
        Machines { machine: calibration.machine.clone(), ends }
    }
}

/// Prints on standard error what a figure depends on.
fn note(text: impl std::fmt::Display) {
    eyas_text::say!("note: {text}");
}

pub fn predict(args: Box<PredictArgs>) -> Result<Exit, Fault> {
    if args.price.is_some_and(|p| !(p.is_finite() && p >= 0.0)) {
        return Err(bad("--price has to be a number from 0"));
    }
    if args.nodes.contains(&0) {
        return Err(bad("--nodes has to be at least 1"));
    }
    // Names are checked first, so that no probe runs for a command with a mistake.
    for name in args.placement.iter().map(Some).chain([None]) {
        args.policy.scheduling(DispatcherConfig::default(), name.map(String::as_str))?;
    }
    let faults = Faults { losses_per_node_hour: args.losses_per_hour, ..Faults::default() };
    faults.check().map_err(bad)?;
    let given = args.machine.machine.as_deref().map(named_machine).transpose()?.map(Machines::known);

    let from = args.from.as_deref().map(|path| args.recorded(path)).transpose()?;
    let replayed = from.as_ref().map(|from| args.replay(from)).transpose()?;
    let (work, Machines { machine, ends }, base) = args.work(from, given)?;
    let machine = args.machine.change(machine)?;
    let ends = ends.into_iter().map(|end| args.machine.change(end)).collect::<Result<Vec<_>, _>>()?;
    let scheduling = args.policy.scheduling(base, None)?;
    let question = Question {
        machine: &machine,
        ends: &ends,
        scheduling: &scheduling,
        faults: &faults,
        workload: &|rng| work.make(rng),
        n_worlds: args.worlds,
        seed: args.seed,
    };
    let rows = args.table(&question)?;
    // Advice prefers cases without failures, if there are any.
    let table: Vec<Prediction> = rows.iter().filter_map(|row| row.answer.clone().ok()).collect();
    let sound: Vec<Prediction> = table.iter().filter(|p| p.summary.n_failed == 0).cloned().collect();
    let advice = args.advice(&question, if sound.is_empty() { &table } else { &sound })?;
    write!(eyas_text::stdout(), "{}\n{advice}\n", args.text(&rows, &machine))?;
    if let Some(path) = &args.json {
        let predicted = |p: &Prediction| {
            serde_json::json!({
                "nodes": p.case.nodes, "cache_bytes": p.case.cache_bytes, "placement": p.case.placement,
                "makespan_min_s": p.makespan_s.0, "makespan_max_s": p.makespan_s.1,
                "cost": args.price.map(|price| price * p.node_hours(machine.slots_per_node)),
                "summary": p.summary,
            })
        };
        let row = |row: &Row| match &row.answer {
            Ok(p) => predicted(p),
            Err(why) => serde_json::json!({
                "nodes": row.case.nodes, "cache_bytes": row.case.cache_bytes, "placement": row.case.placement,
                "cannot_be": why,
            }),
        };
        let all = serde_json::json!({
            "machine": machine, "ends": ends, "scheduling": scheduling, "seed": args.seed, "replayed": replayed,
            "predictions": rows.iter().map(row).collect::<Vec<_>>(), "advice": advice,
        });
        write_json(path, &all)?;
    }
    match table.iter().map(|p| p.summary.n_failed).max() {
        None | Some(0) => Ok(Exit::Good),
        Some(n) => {
            note(format!("up to {} fail in these predictions", plural(n, "task")));
            Ok(Exit::TasksFailed)
        }
    }
}

/// A row of the table. `Err`: why this case is not possible.
struct Row {
    case: Case,
    answer: Result<Prediction, String>,
}

/// The text in a row in place of a time.
const CANNOT_BE: &str = "cannot be";

impl PredictArgs {
    /// A recorded run, with the machine that it ran on.
    fn recorded(&self, path: &Path) -> Result<Recorded, Fault> {
        let trace = Trace::read(path, &TraceConfig { run: self.run, ..TraceConfig::default() })?;
        let calibration = calibrate(&trace.measured).map_err(bad)?;
        let measured = &trace.measured;
        if measured.n_lives > 1 {
            note(format!(
                "the dispatcher of this run was restarted ({} lives): the pauses are in what was measured",
                measured.n_lives
            ));
        }
        if measured.nodes.iter().any(|n| n.held_bytes > 0) {
            note("this run began with files in its caches; predictions begin with empty ones");
        }
        let (io, mut run_ns) = (program_io(&calibration.machine), run_times(measured));
        let processors = self.processors.or_else(|| processors_shared(measured));
        if let Some(processors) = processors.filter(|n| u64::from(*n) < measured.n_slots()) {
            let alone = alone_ns(measured, processors);
            let mean_ms = |all: &[u64]| all.iter().sum::<u64>() as f64 / all.len().max(1) as f64 / 1e6;
            note(format!(
                "{} of the recorded run shared {}: programs took {:.0} ms and are taken to need {:.0} ms on nodes \
                 with processors of their own",
                plural(measured.n_slots(), "slot"),
                plural(u64::from(processors), "processor"),
                mean_ms(&run_ns),
                mean_ms(&alone)
            ));
            run_ns = alone;
        }
        let without_io = |i: usize, ns: u64| {
            let t = &measured.tasks[i];
            io.compute_ns(ns, t.read_bytes(), t.output_bytes)
        };
        let compute_ns: Vec<u64> = run_ns.iter().enumerate().map(|(i, ns)| without_io(i, *ns)).collect();
        let learned = Learned::of(&trace, |position, _| compute_ns[position]);
        Ok(Recorded { trace, calibration, compute_ns, learned })
    }

    /// Predicts the recorded run itself, on its own nodes, and prints both.
    fn replay(&self, recorded: &Recorded) -> Result<serde_json::Value, Fault> {
        let (m, machine) = (&recorded.trace.measured, &recorded.calibration.machine);
        let scheduling = Scheduling {
            dispatcher: m.config.clone(),
            eviction: self.policy.eviction.clone(),
            ..Scheduling::default()
        };
        // The recorded programs shared processors in the same way, so the measured times are right as they
        // are.
        let workload = recorded.trace.workload(&program_io(machine))?;
        let s = simulate(machine, &scheduling, &Faults::default(), workload, self.seed, None).map_err(bad)?;
        let makespan_s = m.makespan_ns as f64 * 1e-9;
        let error = s.makespan_s / makespan_s - 1.0;
        let r = &m.requests;
        let share = |n: u64| n as f64 / r.total().n_requests.max(1) as f64;
        let on_node = share(r.local_hit.n_requests + r.in_place.n_requests + r.joined.n_requests);
        let from_home = share(r.miss.n_requests + r.direct.n_requests);
        let mut text = format!(
            "{}: {} recorded on {} of {}, {}\n{}\n\n{:<22}{:>12}{:>12}\n",
            recorded.trace.name,
            plural(m.n_tasks, "task"),
            plural(m.nodes.len() as u64, "node"),
            plural(u64::from(machine.slots_per_node), "slot"),
            m.config.placement,
            seen(&recorded.calibration),
            "",
            "measured",
            "predicted"
        );
        let mut row = |name: &str, measured: String, predicted: String, more: String| {
            _ = writeln!(text, "{name:<22}{measured:>12}{predicted:>12}{more}");
        };
        let difference = format!("   {:+.1} %", 100.0 * error);
        row("makespan", seconds(makespan_s), seconds(s.makespan_s), difference);
        row("inputs on the node", per_cent(on_node), per_cent(s.local_ratio()), String::new());
        row(
            "  from peers",
            per_cent(share(r.remote_hit.n_requests)),
            per_cent(s.peer_ratio()),
            String::new(),
        );
        row("  from home", per_cent(from_home), per_cent(s.home_ratio()), String::new());
        row("bytes between nodes", size(m.peer.bytes), size(s.moved_peer_bytes), String::new());
        row("  from home", size(m.home_in.bytes), size(s.moved_home_bytes), String::new());
        row("  to home", size(m.home_out.bytes), size(s.landed_bytes), String::new());
        writeln!(eyas_text::stdout(), "{text}")?;
        Ok(serde_json::json!({
            "measured_makespan_s": makespan_s, "predicted": s, "error": error,
            "measured_on_node": on_node, "measured_from_home": from_home,
        }))
    }

    /// The work, a machine for it, and the dispatcher's settings if the user gives none.
    fn work(
        &self,
        from: Option<Recorded>,
        given: Option<Machines>,
    ) -> Result<(Work, Machines, DispatcherConfig), Fault> {
        let base = from.as_ref().map(|r| r.trace.measured.config.clone()).unwrap_or_default();
        let measured = from.as_ref().map(|r| Machines::measured(&r.calibration));
        let Some(path) = &self.what else {
            let from = from.expect("one of the two is required");
            return Ok((Work::Recorded(Box::new(from)), given.or(measured).expect("it was measured"), base));
        };
        let is_run = path.is_dir() || path.file_name().is_some_and(|n| n == eyas_core::log::EVENTS_FILE);
        if is_run {
            let recorded = self.recorded(path)?;
            let base = recorded.trace.measured.config.clone();
            let machines = match given.or(measured) {
                Some(machines) => machines,
                None => {
                    writeln!(eyas_text::stdout(), "{}\n", seen(&recorded.calibration))?;
                    Machines::measured(&recorded.calibration)
                }
            };
            return Ok((Work::Recorded(Box::new(recorded)), machines, base));
        }
        if crate::workflow::is_workflow(path)? {
            let machines = match given.or(measured) {
                Some(machines) => machines,
                None => {
                    note(
                        "nothing says what the nodes are like: `this-machine` is taken; see --machine and --from",
                    );
                    Machines::known(preset("this-machine").map_err(bad)?)
                }
            };
            let config = WorkflowConfig {
                compute_missing_ns: self.missing.missing_run_time,
                size_missing_bytes: self.missing.missing_size,
                cpus_max: None,
                io: program_io(&machines.machine),
            };
            return Ok((Work::Workflow(path.clone(), config), machines, base));
        }
        let tasks = crate::workflow::list_of(path, &crate::workflow::WorkflowArgs::default())?;
        if tasks.n_tasks == 0 {
            return Err(bad(format!("there are no tasks in {}", shown_path(path))));
        }
        let arrays: Vec<Arc<TaskArray>> = tasks.arrays.into_iter().map(Arc::new).collect();
        if let Some((array, promised)) = arrays.iter().find_map(|a| Some((a, a.template.promises.first()?))) {
            return Err(bad(format!(
                "{}: task `{}` promises `{promised}`, which tasks write that are added on the way, and what they are nobody knows \
                 before; run the list once and predict from that: `eyas predict RUN`, or the run that `eyas export` writes",
                shown_path(path),
                array.fill(&array.template.id, 0),
            )));
        }
        let sizes = sizes_at_home(&inputs_from_home(&arrays))?;
        let (learned, machines) = match from {
            Some(from) => (from.learned, Machines::measured(&from.calibration)),
            None => {
                let probed = self.probe(&arrays)?;
                let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
                let machine = Machine {
                    name: "like this machine".into(),
                    slots_per_node: processors,
                    ..probed.calibration.machine.clone()
                };
                writeln!(eyas_text::stdout(), "{}\n", seen(&probed.calibration))?;
                // Probes run one after the other on one node, so only the rate of a single program is known.
                (probed.learned, Machines::known(machine))
            }
        };
        let name = path.display().to_string();
        Ok((Work::List { name, arrays, sizes, learned }, given.unwrap_or(machines), base))
    }

    /// Runs a few tasks of the list here; their outputs are thrown away.
    fn probe(&self, arrays: &[Arc<TaskArray>]) -> Result<Recorded, Fault> {
        let outside: rustc_hash::FxHashSet<String> = inputs_from_home(arrays).into_iter().collect();
        let alone = |array: &TaskArray, i: u32| {
            array.template.inputs.iter().all(|(_, pattern)| outside.contains(&array.fill(pattern, i)))
        };
        let each = || arrays.iter().flat_map(|a| (0..a.n_tasks).map(move |i| (a, i)));
        let free: Vec<(&Arc<TaskArray>, u32)> = each().filter(|(a, i)| alone(a, *i)).collect();
        let n = (self.probe.unwrap_or(PROBES) as usize).min(free.len());
        let dir = std::env::temp_dir().join(format!("eyas-probe-{}", std::process::id()));
        let fail = |e: std::io::Error| {
            Fault::new(Exit::Other, format!("cannot use {} for probes: {}", shown_path(&dir), reason(&e)))
        };
        note(format!(
            "{} of the list {} run here to learn from; what they write is thrown away (see --from and --probe)",
            plural(n as u64, "task"),
            if n == 1 { "is" } else { "are" }
        ));
        std::fs::create_dir_all(&dir).map_err(fail)?;
        let mut lines = String::new();
        for k in 0..n {
            // The task in the middle of each of `n` equal parts of the list.
            let (array, i) = free[(2 * k + 1) * free.len() / (2 * n)];
            let mut task = array.expand(i);
            task.id = format!("probe-{k}");
            for (j, (_, location)) in task.outputs.iter_mut().enumerate() {
                let slash = if is_directory(location) { "/" } else { "" };
                *location = format!("{}/out/{k}-{j}{slash}", dir.display());
            }
            let template = task.map(&mut |text: &String| Pattern::literal(text.as_str()));
            let one = TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None };
            lines += &eyas_tasklist::to_jsonl(&one, 0);
            lines.push('\n');
        }
        let (path, run) = (dir.join("probes.jsonl"), dir.join("run"));
        std::fs::create_dir_all(dir.join("out")).and_then(|()| std::fs::write(&path, lines)).map_err(fail)?;
        // One slot, because programs are to be timed alone.
        let ended = Command::new(std::env::current_exe()?)
            .arg("run")
            .arg(&path)
            .arg("--dir")
            .arg(&run)
            .args(["--nodes", "1", "--slots", "1"])
            // A separate cluster, so that `eyas report` does not mean this one by the last run.
            .env_remove("EYAS_JOIN")
            .env("EYAS_STATE", dir.join("state"))
            .stdin(Stdio::null())
            .output()?;
        let learned = match ended.status.success() {
            true => self.recorded(&run),
            false => {
                let said = String::from_utf8_lossy(&ended.stderr).into_owned();
                let why = said.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("it said nothing");
                Err(bad(format!("the probes failed, so nothing can be predicted: {why}"))
                    .hint("`eyas run` with a few lines of the list shows what is wrong with them"))
            }
        };
        let _ = eyas_runner::sandbox::remove_tree(&dir);
        learned
    }

    /// A prediction for each combination; nodes vary fastest. `Err`: no combination is possible.
    fn table(&self, question: &Question) -> Result<Vec<Row>, Fault> {
        let machine = question.machine;
        let recorded = machine.name == "as measured";
        let nodes = match (self.nodes.as_slice(), recorded) {
            ([], true) => vec![machine.nodes, 2 * machine.nodes, 4 * machine.nodes],
            ([], false) => vec![1, 4, 16],
            (given, _) => {
                let mut nodes = given.to_vec();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        };
        let caches = or_else(&self.cache, machine.cache_bytes_per_node);
        let policies = or_else(&self.placement, question.scheduling.dispatcher.placement.clone());
        let mut table = vec![];
        for placement in &policies {
            for cache_bytes in &caches {
                for nodes in &nodes {
                    let case =
                        Case { nodes: *nodes, cache_bytes: *cache_bytes, placement: placement.clone() };
                    let answer = question.answer(&case);
                    table.push(Row { case, answer });
                }
            }
        }
        match table.iter().find_map(|row| row.answer.as_ref().err()) {
            Some(why) if table.iter().all(|row| row.answer.is_err()) => Err(bad(why)),
            _ => Ok(table),
        }
    }

    fn text(&self, table: &[Row], machine: &Machine) -> String {
        let mut rows: Vec<[String; 10]> = vec![
            [
                "placement",
                "cache",
                "nodes",
                "makespan",
                "range",
                "on node",
                "peers",
                "home",
                "through home",
                "CPU hours",
            ]
            .map(String::from),
        ];
        let mut costs = vec!["cost".to_string()];
        for row in table {
            let p = match &row.answer {
                Ok(p) => p,
                Err(_) => {
                    let mut cells: [String; 10] = Default::default();
                    let cache = size(row.case.cache_bytes);
                    let nodes = count(u64::from(row.case.nodes));
                    for (cell, text) in
                        cells.iter_mut().zip([row.case.placement.clone(), cache, nodes, CANNOT_BE.into()])
                    {
                        *cell = text;
                    }
                    rows.push(cells);
                    costs.push(String::new());
                    continue;
                }
            };
            let s: &Summary = &p.summary;
            rows.push([
                p.case.placement.clone(),
                size(p.case.cache_bytes),
                count(u64::from(p.case.nodes)),
                seconds(s.makespan_s),
                format!("{} to {}", seconds(p.makespan_s.0), seconds(p.makespan_s.1)),
                per_cent(s.local_ratio()),
                per_cent(s.peer_ratio()),
                per_cent(s.home_ratio()),
                size(s.moved_home_bytes + s.landed_bytes),
                format!("{:.2}", s.cpu_hours),
            ]);
            let price = self.price.unwrap_or(0.0);
            costs.push(money(price * p.node_hours(machine.slots_per_node)));
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..10).map(width).collect();
        let mut text = String::new();
        for (row, cost) in rows.iter().zip(&costs) {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                _ = write!(line, "  {cell:>width$}");
            }
            if self.price.is_some() {
                _ = write!(line, "  {cost:>8}");
            }
            text += line.trim_end();
            text.push('\n');
        }
        let mut reasons: Vec<&String> = table.iter().filter_map(|row| row.answer.as_ref().err()).collect();
        reasons.dedup();
        for why in reasons {
            _ = write!(text, "\n{CANNOT_BE}: {why}\n");
        }
        text
    }

    /// One sentence: which policy, how many nodes, how much cache.
    fn advice(&self, question: &Question, table: &[Prediction]) -> Result<String, Fault> {
        let fastest = |all: &[Prediction]| -> Option<Prediction> {
            let least = all.iter().map(|p| p.summary.makespan_s).min_by(f64::total_cmp)?;
            // The first that is about as fast: the user's own order says what is preferred.
            all.iter().find(|p| p.summary.makespan_s <= least * (1.0 + BETTER)).cloned()
        };
        // Policies and caches matter least where resources are plenty, so compare at the largest number of
        // nodes.
        let nodes_max = table.iter().map(|p| p.case.nodes).max().unwrap_or(1);
        let widest: Vec<Prediction> = table.iter().filter(|p| p.case.nodes == nodes_max).cloned().collect();
        let Some(best) = fastest(&widest) else { return Ok(String::new()) };
        let same = |p: &&Prediction| {
            p.case.placement == best.case.placement && p.case.cache_bytes == best.case.cache_bytes
        };
        let by_nodes: Vec<&Prediction> = table.iter().filter(same).collect();
        let at = knee(&by_nodes);
        let mut chosen = by_nodes[at].clone();
        // One likeliest world for each case is enough to compare.
        let quick = Question { n_worlds: 0, ..*question };
        let asked = |case: Case| quick.answer(&case);
        if self.placement.is_empty() {
            let mut all = vec![chosen.clone()];
            let is_to_compare_with =
                |name: &str| [first_input::NAME, first_input::NAME_STEAL].contains(&name);
            let others = placement::NAMES.iter().filter(|name| **name != chosen.case.placement);
            for name in others.filter(|name| !is_to_compare_with(name)) {
                match asked(Case { placement: (*name).into(), ..chosen.case.clone() }) {
                    Ok(other) => all.push(other),
                    Err(why) => note(format!("`{name}` is not advised: {why}")),
                }
            }
            chosen = fastest(&all).unwrap_or(chosen);
        }
        let distinct = distinct_read_bytes((question.workload)(None)?);
        if self.cache.is_empty() {
            // Smaller caches as long as they do no harm, a larger one if it helps. Impossible cases are no
            // candidates.
            let have = chosen.case.cache_bytes;
            let sizes = [have / 16, have / 4, have, have.saturating_mul(4)];
            let all: Vec<Prediction> = sizes
                .iter()
                .filter_map(|bytes| asked(Case { cache_bytes: *bytes, ..chosen.case.clone() }).ok())
                .collect();
            chosen = fastest(&all).unwrap_or(chosen);
        }
        let nodes = |n: u32| plural(u64::from(n), "node");
        let mut text = format!(
            "Advice: {} with `{}` and caches of {} ({}",
            nodes(chosen.case.nodes),
            chosen.case.placement,
            size(chosen.case.cache_bytes),
            seconds(chosen.summary.makespan_s),
        );
        if let Some(price) = self.price {
            let cost = price * chosen.node_hours(question.machine.slots_per_node);
            _ = write!(text, ", cost {}", money(cost));
        }
        text += ")";
        match by_nodes.get(at + 1) {
            Some(next) => {
                let here = by_nodes[at];
                _ = write!(
                    text,
                    "; {} would be {:.2} times as fast for {:.1} times the node hours",
                    nodes(next.case.nodes),
                    here.summary.makespan_s / next.summary.makespan_s,
                    next.summary.cpu_hours / here.summary.cpu_hours.max(1e-12)
                );
            }
            None if by_nodes.len() > 1 => text += "; more nodes than these may pay as well",
            None => {}
        }
        _ = write!(text, "; all different inputs are {}.", size(distinct));
        Ok(text)
    }
}

/// `12.50`, `0.0042`
fn money(amount: f64) -> String {
    if amount < 1.0 { format!("{amount:.4}") } else { format!("{amount:.2}") }
}

fn or_else<T: Clone>(given: &[T], otherwise: T) -> Vec<T> {
    if given.is_empty() { vec![otherwise] } else { given.to_vec() }
}

/// The time from start to exit, by position.
fn run_times(measured: &Measured) -> Vec<u64> {
    measured.tasks.iter().map(|t| t.run_ns()).collect()
}

/// The number of processors of this machine, if the run's nodes are those that `eyas` starts on one machine.
fn processors_shared(measured: &Measured) -> Option<u32> {
    let local = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok_and(|n| n > 0));
    let all = measured.nodes.iter().all(|n| local(&n.name));
    let processors = || std::thread::available_parallelism().ok().map(|n| n.get() as u32);
    all.then(processors).flatten()
}

/// The properties that were found for the machine, on one line.
fn seen(c: &Calibration) -> String {
    let m = &c.machine;
    let rate = |bytes_per_s: f64| format!("{}/s", size(bytes_per_s as u64));
    let (client, home) = (rate(m.home_client_bytes_per_s), rate(m.home_bytes_per_s));
    let home = match (c.home, c.ends.as_deref()) {
        (HomeSeen::Nothing, _) => "home was hardly read, its rate is a guess".to_string(),
        (HomeSeen::Together { n_nodes }, Some([slowest, fastest])) => format!(
            "home gives {home} to {n_nodes} nodes together; what one node alone can read was never seen, it is between {} and {}: \
             run once with --nodes 1 to know",
            rate(slowest.home_client_bytes_per_s),
            rate(fastest.home_client_bytes_per_s)
        ),
        (HomeSeen::Shared { n_nodes } | HomeSeen::Together { n_nodes }, _) => {
            format!("home gives {client} to one node and {home} to all ({n_nodes} seen)")
        }
        (HomeSeen::PerNode { n_nodes: 1 }, _) => {
            format!(
                "home gives {client} to one node; more at once were not seen, so all get no more than that"
            )
        }
        (HomeSeen::PerNode { n_nodes }, _) => format!(
            "home gives {client} to a node; no more than {n_nodes} nodes at once were seen, so all get {home} at most"
        ),
    };
    let peers = match c.peers {
        true => format!("copies between nodes {}", rate(m.nic_bytes_per_s)),
        false => "copies between nodes were not seen".into(),
    };
    format!(
        "Machine as measured: {home}; {peers}; {:.1} ms beside the program for each task",
        m.task_overhead_ns as f64 / 1e6
    )
}

/// The sizes of files at home.
fn sizes_at_home(locations: &[String]) -> Result<FxHashMap<String, u64>, Fault> {
    let homes = Homes::new(HomesConfig::default()).map_err(|e| Fault::new(Exit::Other, e))?;
    let base = std::env::current_dir()?;
    let ask = |part: &[String]| -> Result<Vec<(String, u64)>, Fault> {
        let one = |text: &String| -> Result<(String, u64), Fault> {
            let location = Location::parse(text, &base).map_err(bad)?;
            let stat = homes.stat(&location).map_err(bad)?;
            Ok((text.clone(), stat.size_bytes))
        };
        part.iter().map(one).collect()
    };
    let chunk = locations.len().div_ceil(STATS_AT_ONCE).max(1);
    let answers: Vec<Result<Vec<(String, u64)>, Fault>> = std::thread::scope(|scope| {
        let asking: Vec<_> = locations.chunks(chunk).map(|part| scope.spawn(move || ask(part))).collect();
        asking.into_iter().map(|thread| thread.join().expect("a question to home does not panic")).collect()
    });
    let mut sizes = FxHashMap::default();
    for answer in answers {
        sizes.extend(answer?);
    }
    Ok(sizes)
}
