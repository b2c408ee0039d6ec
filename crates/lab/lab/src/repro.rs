//! `eyas-lab repro`: the evaluation of the data diffusion paper, simulated, and a page that sets it beside the paper's.
//!
//! In: which experiments ([`eyas_papers::experiment`]). Out, in one folder:
//!
//! | file | |
//! |---|---|
//! | `results.json` | what came out of each experiment; the same bytes on every machine |
//! | `timings.json` | what a clock said: how long simulations took, decisions per second |
//! | `figures/*.svg` | drawn by the Python package from `results.json`, where it and matplotlib are there |
//! | `data-diffusion.md` | the page, made from the other files ([`page`], [`micro`]) |
//! | `collectives.md` | the page on the paper of parallel scripting, likewise ([`collectives`]) |
//!
//! Each experiment is simulated by a process of its own, some at a time, so that its memory and processor time are known
//! and given back. With `--only`, results of other experiments that lie in the folder stay, so that a page can be made
//! in parts; they are only as new as the program that made them.
//!
//! Not here: the experiments and the paper's numbers (`eyas_papers::experiment`), simulating (`eyas_sim::world`).

mod collectives;
mod format;
mod micro;
mod page;

use crate::bench::{decide, index};
use clap::Args;
use eyas_cli::print::{count, plural, reason};
use eyas_cli::{Exit, Fault};
use eyas_core::placement;
use eyas_papers::experiment::micro::{Cell, Measured};
use eyas_papers::experiment::{self, Experiment, Metric};
use eyas_sim::outcome::Summary;
use eyas_text::shown_path;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

const RESULTS: &str = "results.json";
const TIMINGS: &str = "timings.json";
const PAGE: &str = "data-diffusion.md";
const COLLECTIVES_PAGE: &str = "collectives.md";
const FIGURES: &str = "figures";
/// Beside the groups of experiments: what is timed and not simulated.
const SCHEDULER: &str = "scheduler";
const INDEX: &str = "index";
/// Groups of many small simulations, which are kept as rows and not each by name.
const MICRO: &str = "micro";
const COLLECTIVES: &str = "collectives";
/// Figure 3 has a million entries.
const INDEX_ENTRIES: u32 = 1_000_000;

#[derive(Args)]
pub struct ReproArgs {
    /// Run only what takes about a minute; the page says what is missing
    #[arg(long)]
    quick: bool,
    /// Folder for the page, the results and the figures [default: docs/results, with --quick eyas-repro]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only these parts: micro, mi, sw, allpairs, stacking, beyond, tiles, provisioning, collectives, scheduler, index, or single experiments by name
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of experiments that are simulated at once
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Simulate this one and print what came out as JSON: what `eyas-lab repro` starts
    #[arg(long, hide = true, value_name = "NAME", conflicts_with_all = ["quick", "out", "only"])]
    single: Option<String>,
}

/// What one simulation cost.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
struct Cost {
    wall_s: f64,
    /// Of its process, and the most memory it had; absent where `/proc` does not tell.
    cpu_s: Option<f64>,
    memory_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Single {
    summary: Summary,
    cost: Cost,
}

#[derive(Serialize, Deserialize, Default)]
struct Results {
    /// Version of this format.
    eyas_repro: u32,
    /// By the experiment's name.
    experiments: BTreeMap<String, Summary>,
    /// What the figures need beside that, by the experiment's name.
    about: BTreeMap<String, About>,
    /// The micro-benchmarks, §4.2 and §4.3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    micro: Vec<Measured>,
    /// The evaluation of Zhang12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    collectives: Option<collectives::Scripting>,
}

/// What is known of an experiment without running it.
#[derive(Serialize, Deserialize, Default)]
struct About {
    what: String,
    figure: String,
    /// The paper's numbers.
    paper: BTreeMap<Metric, f64>,
    /// Where they are computed: its time with all data on local disks, and that of the abstract model.
    all_local_s: Option<f64>,
    modelled_s: Option<f64>,
}

#[derive(Serialize, Deserialize, Default)]
struct Timings {
    eyas_repro: u32,
    /// By the experiment's name.
    simulations: BTreeMap<String, Cost>,
    /// By placement policy, in the order of the list.
    scheduler: Vec<decide::Pace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index: Option<index::Rates>,
}

const FORMAT: u32 = 1;

pub fn repro(args: ReproArgs) -> Result<Exit, Fault> {
    if let Some(name) = &args.single {
        return single(name);
    }
    let Selected { experiments, parts } = selected(&args)?;
    let wants = |part: &str| parts.contains(&part);
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| if args.quick { "eyas-repro".into() } else { Path::new("docs").join("results") });
    std::fs::create_dir_all(&out).map_err(|e| {
        Fault::new(Exit::BadInput, format!("cannot make {}: {}", shown_path(&out), reason(&e)))
    })?;
    let (mut results, mut timings) = if args.only.is_empty() {
        (
            Results { eyas_repro: FORMAT, ..Results::default() },
            Timings { eyas_repro: FORMAT, ..Timings::default() },
        )
    } else {
        (found(&out.join(RESULTS))?, found(&out.join(TIMINGS))?)
    };
    let begun = Instant::now();
    let save = |results: &mut Results, timings: &Timings| {
        results.about = page::about(results)?;
        write(&out.join(RESULTS), &json(&rounded(results)?)?)?;
        write(&out.join(TIMINGS), &json(&rounded(timings)?)?)
    };
    let lived = simulate_all(&experiments, args.threads as usize);
    for (name, single) in lived.done {
        timings.simulations.insert(name.clone(), single.cost);
        results.experiments.insert(name, single.summary);
    }
    // What has come out is kept, also when something else went wrong.
    save(&mut results, &timings)?;
    if let Some(fault) = lived.fault {
        return Err(fault);
    }
    if wants(MICRO) {
        results.micro = micro_benchmarks(args.threads as usize)?;
        save(&mut results, &timings)?;
    }
    if wants(COLLECTIVES) {
        results.collectives = Some(collectives::simulate(&note).map_err(|e| Fault::new(Exit::Other, e))?);
        save(&mut results, &timings)?;
    }
    if wants(SCHEDULER) {
        timings.scheduler = pace()?;
        save(&mut results, &timings)?;
    }
    if wants(INDEX) {
        timings.index = Some(index::measure(INDEX_ENTRIES));
        save(&mut results, &timings)?;
    }
    // The page is made of what was written, not of more digits.
    let (results, timings) = (found(&out.join(RESULTS))?, found(&out.join(TIMINGS))?);
    if let Err(why) = draw(&out) {
        note(&format!("the figures are not drawn: {why}"));
    }
    let figures = out.join(FIGURES);
    let has_figure = |name: &str| figures.join(format!("{name}.svg")).is_file();
    let text = page::page(&results, &timings, &has_figure)?;
    write(&out.join(PAGE), text.as_bytes())?;
    let text =
        collectives::page(results.collectives.as_ref(), &|name, title| drawing(&has_figure, name, title));
    write(&out.join(COLLECTIVES_PAGE), text.as_bytes())?;
    show!(
        "{} and {COLLECTIVES_PAGE}: {} in {:.0} s",
        out.join(PAGE).display(),
        plural(experiments.len() as u64, "experiment"),
        begun.elapsed().as_secs_f64()
    );
    Ok(Exit::Good)
}

/// What is asked for: experiments, and the parts that are not lists of experiments.
struct Selected {
    experiments: Vec<Experiment>,
    parts: Vec<&'static str>,
}

fn selected(args: &ReproArgs) -> Result<Selected, Fault> {
    const PARTS: [&str; 4] = [MICRO, COLLECTIVES, SCHEDULER, INDEX];
    let mut experiments = experiment::all();
    let mut parts = PARTS.to_vec();
    if !args.only.is_empty() {
        parts.retain(|part| args.only.iter().any(|name| name == part));
        let only: Vec<String> =
            args.only.iter().filter(|name| !PARTS.contains(&name.as_str())).cloned().collect();
        experiments = match only.is_empty() {
            true => vec![],
            false => experiment::select(experiments, &only).map_err(|e| {
                Fault::new(Exit::BadInput, e.replace("beyond,", &format!("beyond, {},", PARTS.join(", "))))
            })?,
        };
    }
    if args.quick {
        experiments.retain(|e| e.is_quick);
        parts.retain(|part| *part != COLLECTIVES);
    }
    Ok(Selected { experiments, parts })
}

/// A drawing, where it is there.
fn drawing(has_figure: &dyn Fn(&str) -> bool, name: &str, title: &str) -> String {
    if has_figure(name) { format!("![{title}](figures/{name}.svg)\n\n") } else { String::new() }
}

fn note(text: &str) {
    eyas_text::say!("repro: {text}");
}

// ---------------------------------------------------------------- simulating

struct Lived {
    done: BTreeMap<String, Single>,
    /// The first one that went wrong.
    fault: Option<Fault>,
}

/// Some at a time, the longest first.
fn simulate_all(experiments: &[Experiment], n_threads: usize) -> Lived {
    let mut queue: Vec<&Experiment> = experiments.iter().collect();
    queue.sort_by_key(|e| (e.n_tasks() * e.n_processors(), e.n_tasks()));
    let n = queue.len();
    let queue = Mutex::new(queue);
    // A function, so that the lock is not held while the experiment lives.
    let next = || queue.lock().expect("no thread panics").pop();
    let lived = Mutex::new(Lived { done: BTreeMap::new(), fault: None });
    std::thread::scope(|scope| {
        for _ in 0..n_threads.min(n) {
            scope.spawn(|| {
                while let Some(experiment) = next() {
                    let came_out = in_a_process(&experiment.name);
                    let mut lived = lived.lock().expect("no thread panics");
                    match came_out {
                        Ok(single) => {
                            lived.done.insert(experiment.name.clone(), single);
                            let single = &lived.done[&experiment.name];
                            note(&format!(
                                "{}: {} s, simulated in {:.1} s ({} of {n})",
                                experiment.name,
                                count(single.summary.makespan_s.round() as u64),
                                single.cost.wall_s,
                                lived.done.len(),
                            ));
                        }
                        Err(fault) => {
                            queue.lock().expect("no thread panics").clear();
                            lived.fault.get_or_insert(fault);
                        }
                    }
                }
            });
        }
    });
    lived.into_inner().expect("no thread panics")
}

/// All of them, some at a time; each takes a moment.
fn micro_benchmarks(n_threads: usize) -> Result<Vec<Measured>, Fault> {
    let cells = experiment::micro::cells();
    let per_thread = cells.len().div_ceil(n_threads);
    let begun = Instant::now();
    let parts: Vec<Result<Vec<Measured>, String>> = std::thread::scope(|scope| {
        let run = |part: &'_ [Cell]| part.iter().map(experiment::micro::run).collect();
        let threads: Vec<_> = cells.chunks(per_thread).map(|part| scope.spawn(move || run(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let mut all = vec![];
    for part in parts {
        all.extend(part.map_err(|e| Fault::new(Exit::Other, e))?);
    }
    note(&format!("micro: {} experiments in {:.1} s", all.len(), begun.elapsed().as_secs_f64()));
    Ok(all)
}

fn in_a_process(name: &str) -> Result<Single, Fault> {
    let failed = |what: String| Fault::new(Exit::Other, format!("the experiment `{name}` {what}"));
    let program =
        std::env::current_exe().map_err(|e| failed(format!("cannot be started: {}", reason(&e))))?;
    let done = Command::new(program)
        .args(["repro", "--single", name])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(format!("cannot be started: {}", reason(&e))))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(failed(format!("ended with {}: {}", done.status, said.trim())));
    }
    serde_json::from_slice(&done.stdout).map_err(|e| failed(format!("gave what is not a result: {e}")))
}

fn single(name: &str) -> Result<Exit, Fault> {
    let only = [name.to_string()];
    let list = experiment::select(experiment::all(), &only).map_err(|e| Fault::new(Exit::BadInput, e))?;
    let experiment = list.iter().find(|e| e.name == name);
    let experiment = experiment.ok_or_else(|| Fault::new(Exit::BadInput, format!("`{name}` is a group")))?;
    let begun = Instant::now();
    let summary = experiment.run().map_err(|e| Fault::new(Exit::Other, e))?;
    let wall_s = begun.elapsed().as_secs_f64();
    let cost = Cost { wall_s, cpu_s: cpu_s(), memory_bytes: memory_bytes() };
    show!("{}", serde_json::to_string(&Single { summary, cost }).map_err(|e| Fault::new(Exit::Other, e))?);
    Ok(Exit::Good)
}

/// Processor time of this process so far.
fn cpu_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let ns: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ns as f64 * 1e-9)
}

/// The most memory that this process has had.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

// ---------------------------------------------------------------- timing

/// §4.4: 32 nodes, 250,000 tasks, 10,000 files, a window of 3,200.
fn pace() -> Result<Vec<decide::Pace>, Fault> {
    let mut list = vec![];
    for name in placement::NAMES {
        let pace = decide::pace(name)?;
        note(&format!("{name}: {} decisions/s", count(pace.decisions_per_s.round() as u64)));
        list.push(pace);
    }
    Ok(list)
}

// ---------------------------------------------------------------- drawing

/// Has the Python package draw what `results.json` holds.
fn draw(out: &Path) -> Result<(), String> {
    eyas_cli::figures::draw(&[out.to_path_buf()]).map(drop)
}

// ---------------------------------------------------------------- files

/// What lies there from an earlier run, or nothing.
fn found<T: for<'a> Deserialize<'a> + Default>(path: &Path) -> Result<T, Fault> {
    let bad = |why: String| {
        Fault::new(Exit::BadInput, format!("{} is not what `eyas-lab repro` writes: {why}", shown_path(path)))
            .hint("remove it, or name another folder with --out")
    };
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| bad(e.to_string())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(e) => Err(bad(reason(&e))),
    }
}

/// By rename, so that nobody finds half of it.
fn write(path: &Path, text: &[u8]) -> Result<(), Fault> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|e| Fault::new(Exit::Other, format!("cannot write {}: {}", shown_path(path), reason(&e))))
}

/// Six digits that count: no more are worth keeping, and they keep the file small.
fn rounded(value: &impl Serialize) -> Result<serde_json::Value, Fault> {
    fn round(value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::Number(number) if number.is_f64() => {
                let text = number.as_f64().map(|x| format!("{x:.5e}"));
                if let Some(x) = text.and_then(|text| text.parse::<f64>().ok()) {
                    *value = if x.fract() == 0.0 && x.abs() < 1e15 { (x as i64).into() } else { x.into() };
                }
            }
            Value::Array(list) => list.iter_mut().for_each(round),
            Value::Object(map) => map.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(value).map_err(|e| Fault::new(Exit::Other, e))?;
    value["eyas_repro"] = FORMAT.into();
    round(&mut value);
    Ok(value)
}

/// One line for each experiment: small, and a change shows which one it is.
fn json(value: &serde_json::Value) -> Result<Vec<u8>, Fault> {
    let Some(top) = value.as_object() else { return Ok(vec![]) };
    let mut text = String::from("{\n");
    for (i, (key, value)) in top.iter().enumerate() {
        let comma = if i + 1 < top.len() { "," } else { "" };
        match value.as_object() {
            Some(map) => {
                text += &format!("\"{key}\": {{\n");
                for (k, (name, inner)) in map.iter().enumerate() {
                    let comma = if k + 1 < map.len() { "," } else { "" };
                    text += &format!("\"{name}\": {inner}{comma}\n");
                }
                text += &format!("}}{comma}\n");
            }
            None => match value.as_array().filter(|rows| rows.first().is_some_and(|row| row.is_object())) {
                Some(rows) => {
                    let lines: Vec<String> = rows.iter().map(ToString::to_string).collect();
                    text += &format!("\"{key}\": [\n{}\n]{comma}\n", lines.join(",\n"));
                }
                None => text += &format!("\"{key}\": {value}{comma}\n"),
            },
        }
    }
    text += "}\n";
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_rounded_and_read_again() {
        let summary = Summary { makespan_s: 1_234.567_891, n_tasks: 1_234_567_890, ..Summary::default() };
        let results = Results {
            eyas_repro: FORMAT,
            about: BTreeMap::new(),
            experiments: [("a".to_string(), summary.clone()), ("b".to_string(), summary)].into(),
            ..Results::default()
        };
        let text = json(&rounded(&results).expect("it is plain")).expect("it is plain");
        let again: Results = serde_json::from_slice(&text).expect("it was just written");
        assert_eq!(again.experiments["b"].makespan_s, 1_234.57);
        assert_eq!(again.experiments["a"].n_tasks, 1_234_567_890);
        // One line each: two braces, what they are about (2), the experiments (2 and one for each), the format.
        assert_eq!(text.iter().filter(|c| **c == b'\n').count(), 9);
    }
}
