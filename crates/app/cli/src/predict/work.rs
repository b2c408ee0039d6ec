//! What is predicted, and the machine that it is predicted for: read from a recorded run, a workflow or a task list, or
//! measured by running a few of its tasks here.

use super::args::PredictArgs;
use crate::print::{plural, reason, size};
use crate::sim::{bad, per_cent, program_io, seconds};
use crate::workflow::{ListFile, WorkflowArgs};
use crate::{Exit, Fault};
use eyas_at_data::program::Temporary;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::predict::{Calibration, HomeSeen, alone_ns, calibrate};
use eyas_sim::workload::list::{Learned, inputs_from_home, list};
use eyas_sim::workload::trace::{Measured, Trace, TraceConfig, find_dir};
use eyas_sim::workload::workflow::{WorkflowConfig, workflow};
use eyas_sim::workload::{Error, Workload};
use eyas_sim::world::{Scheduling, simulate};
use eyas_storage::{Homes, HomesConfig, Location};
use eyas_terms::array::{Pattern, TaskArray};
use eyas_terms::is_directory;
use eyas_terms::rng::Rng;
use eyas_text::shown_path;
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const PROBES: u32 = 5;

/// Requests to home at the same time.
const STATS_AT_ONCE: usize = 8;

/// The work that is predicted.
pub enum PredictedWork {
    Recorded(Box<Recorded>),
    Workflow(PathBuf, WorkflowConfig),
    List { name: String, arrays: Vec<Arc<TaskArray>>, sizes: FxHashMap<String, u64>, learned: Learned },
}

/// A recorded run with what is known of it.
pub struct Recorded {
    pub trace: Trace,
    pub calibration: Calibration,
    /// Compute times on unshared processors, by position.
    pub compute_ns: Vec<u64>,
    pub learned: Learned,
}

impl PredictedWork {
    pub fn make(&self, rng: Option<&mut Rng>) -> Result<Workload, Error> {
        match self {
            PredictedWork::Workflow(path, config) => workflow(path, config),
            PredictedWork::List { name, arrays, sizes, learned } => list(name, arrays, sizes, learned, rng),
            PredictedWork::Recorded(r) => Ok(match rng {
                None => r.trace.workload_by(|position, _| r.compute_ns[position]),
                Some(rng) => r.trace.workload_by(|_, array| r.learned.draw_ns(&array.template, rng)),
            }),
        }
    }
}

/// The likeliest machine, and further machines that are possible.
pub struct Machines {
    pub machine: Machine,
    pub ends: Vec<Machine>,
}

impl Machines {
    pub fn known(machine: Machine) -> Machines {
        Machines { machine, ends: vec![] }
    }
    fn measured(calibration: &Calibration) -> Machines {
        let ends = calibration.ends.as_deref().map_or(vec![], |ends| ends.to_vec());
        Machines { machine: calibration.machine.clone(), ends }
    }
}

/// Prints on standard error what a figure depends on.
pub fn note(text: impl std::fmt::Display) {
    eyas_text::say!("note: {text}");
}

impl PredictArgs {
    /// A recorded run, with the machine that it ran on.
    pub fn recorded(&self, path: &Path) -> Result<Recorded, Fault> {
        let trace = Trace::read(path, &TraceConfig { run: self.run, ..TraceConfig::default() })?;
        let mut calibration = calibrate(&trace.measured).map_err(bad)?;
        calibration.heed_network(&eyas_report::topology(&[find_dir(path)?])?);
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
    pub fn replay(&self, recorded: &Recorded) -> Result<serde_json::Value, Fault> {
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
    pub fn work(
        &self,
        from: Option<Recorded>,
        given: Option<Machines>,
    ) -> Result<(PredictedWork, Machines, DispatcherConfig), Fault> {
        let base = from.as_ref().map(|r| r.trace.measured.config.clone()).unwrap_or_default();
        let measured = from.as_ref().map(|r| Machines::measured(&r.calibration));
        let Some(path) = &self.what else {
            let from = from.expect("one of the two is required");
            return Ok((
                PredictedWork::Recorded(Box::new(from)),
                given.or(measured).expect("it was measured"),
                base,
            ));
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
            return Ok((PredictedWork::Recorded(Box::new(recorded)), machines, base));
        }
        let no_options = WorkflowArgs::default();
        let file = ListFile::find(path, &no_options)?;
        if file.is_workflow() {
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
            return Ok((PredictedWork::Workflow(path.clone(), config), machines, base));
        }
        let tasks = file.read()?;
        if tasks.n_tasks == 0 {
            return Err(bad(format!("there are no tasks in {}", shown_path(path))));
        }
        let arrays: Vec<Arc<TaskArray>> = tasks.arrays.into_iter().map(Arc::new).collect();
        if let Some((array, promised)) = arrays.iter().find_map(|a| Some((a, a.template.promises.first()?))) {
            return Err(bad(format!(
                "{}: task `{}` promises `{promised}`, which tasks write that are added while the run goes on; nobody knows beforehand what the added tasks are; \
                 run the list once and predict from that: `eyas predict RUN`, or the run that `eyas export` writes",
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
        Ok((PredictedWork::List { name, arrays, sizes, learned }, given.unwrap_or(machines), base))
    }

    /// Runs a few tasks of the list here; their outputs are thrown away.
    pub fn probe(&self, arrays: &[Arc<TaskArray>]) -> Result<Recorded, Fault> {
        let outside: rustc_hash::FxHashSet<String> = inputs_from_home(arrays).into_iter().collect();
        let alone = |array: &TaskArray, i: u32| {
            array.template.inputs.iter().all(|(_, pattern)| outside.contains(&array.fill(pattern, i)))
        };
        let each = || arrays.iter().flat_map(|a| (0..a.n_tasks).map(move |i| (a, i)));
        let free: Vec<(&Arc<TaskArray>, u32)> = each().filter(|(a, i)| alone(a, *i)).collect();
        let n = (self.probe.unwrap_or(PROBES) as usize).min(free.len());
        let temporary = Temporary::new("probe")?;
        let dir = &temporary.path;
        let fail = |e: std::io::Error| {
            Fault::new(Exit::Other, format!("cannot use {} for probes: {}", shown_path(dir), reason(&e)))
        };
        note(format!(
            "{} of the list {} run here to learn from; what they write is thrown away (see --from and --probe)",
            plural(n as u64, "task"),
            if n == 1 { "is" } else { "are" }
        ));
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
        match ended.status.success() {
            true => self.recorded(&run),
            false => {
                let said = String::from_utf8_lossy(&ended.stderr).into_owned();
                let why = said.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("it said nothing");
                Err(bad(format!("the probes failed, so nothing can be predicted: {why}"))
                    .hint("`eyas run` with a few lines of the list shows what is wrong with them"))
            }
        }
    }
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
    let sites = match &c.sites {
        None => String::new(),
        Some(sites) => {
            let n_nodes: Vec<String> = sites.n_nodes.iter().map(usize::to_string).collect();
            let known = match sites.between_bytes_per_s {
                Some(between) => format!(
                    "with {} between two of them; they are taken to be of equal size, with home in the first one",
                    rate(between)
                ),
                None => {
                    "but nothing large has moved between them, so the prediction knows nothing of them".into()
                }
            };
            format!("; {} sites of {} nodes, {known}", sites.n_nodes.len(), n_nodes.join(", "))
        }
    };
    format!(
        "Machine as measured: {home}; {peers}; {:.1} ms beside the program for each task{sites}",
        m.task_overhead_ns as f64 / 1e6
    )
}

/// The sizes of files at home.
fn sizes_at_home(locations: &[String]) -> Result<FxHashMap<String, u64>, Fault> {
    let homes = Homes::new(HomesConfig::default()).map_err(|e| Fault::new(Exit::Other, e))?;
    let base = crate::dirs::working()?;
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
