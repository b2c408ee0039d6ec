//! Explanations, reports, replays and what is known of the network: made from the log of a run, of a running cluster or in the folder of
//! one that is over.

use crate::args::{JoinArgs, SourceArgs, task_name};
use crate::print::count;
use crate::runtimes::client_runtime;
use crate::source::{self, Source};
use crate::{Exit, Fault, figures, homes, json};
use clap::Args;
use eyas_client::Client;
use eyas_core::log::PrintedLine;
use eyas_report::TaskStory;
use eyas_runtime::eventlog::stream_of;
use eyas_terms::{ExecutorId, RunId};
use eyas_text::{line_of, shown, shown_path};
use eyas_wire::message::{BlockLine, Explained};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct ExplainArgs {
    /// The task's id, or #N for its number; or a file that `eyas warm` pushed: where it went
    #[arg(value_name = "TASK|FILE", required_unless_present = "nodes")]
    pub task: Option<String>,
    /// Why nodes were requested and released, with the queue and the predicted work at each decision
    #[arg(long, conflicts_with_all = ["task", "run"])]
    pub nodes: bool,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// The run it belongs to [default: the newest that has such a task]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub of: SourceArgs,
}

#[derive(Args)]
pub struct ReportArgs {
    /// Directory of the run or of its cluster [default: the one that was given work last]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// A page with a JSON file beside it, or the run's part of the event log as a table (needs PyArrow)
    #[arg(long, value_enum, default_value = "page")]
    pub format: ReportFormat,
    /// Where it goes; the JSON file beside a page has the same name [default: report.html, or report.parquet]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Also draw figures 17 to 28 of the data diffusion paper from the log, as SVG files into this folder (needs
    /// matplotlib)
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
    /// Directory of another run of the same tasks, to set side by side
    #[arg(long, value_name = "DIR")]
    pub compare: Option<PathBuf>,
    /// The run that the page is about [default: the newest]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    /// All runs of the log together
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
    #[command(flatten)]
    pub join: JoinArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    Page,
    Parquet,
}

#[derive(Args)]
pub struct TopologyArgs {
    /// Also draw it, as SVG; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub of: SourceArgs,
}

#[derive(Args)]
pub struct ReplayArgs {
    /// Directory of the run [default: the last one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Why nodes were requested and released. A group's provider tells all its dispatchers, so one log has it all.
fn explain_nodes(args: &ExplainArgs) -> Result<Exit, Fault> {
    let dirs = source::log_dirs(&args.of.join, args.of.dir.as_deref())?;
    let story = eyas_report::nodes_story(&dirs[0])?;
    if args.json {
        json::write(&story)?;
        return Ok(Exit::Good);
    }
    let mut out = eyas_text::stdout();
    out.write_all(eyas_report::nodes_lines(&story).as_bytes())?;
    // What a log does not have: what waits now, and what the batch system says of that.
    if let Ok(Source::Live(file)) = source::source(&args.of.join, args.of.dir.as_deref()) {
        let status =
            client_runtime().block_on(async { Client::connect(&file.read()?).await?.status().await });
        let blocks = status.ok().and_then(|status| status.provisioner).map(|provisioner| provisioner.blocks);
        let waiting = |block: &BlockLine| block.state == "queued" && !block.why.is_empty();
        for block in blocks.unwrap_or_default().into_iter().filter(waiting) {
            let (name, id) = (line_of(&block.name), line_of(&block.id));
            writeln!(out, "{name} ({id}) waits in the queue: {}", line_of(&block.why))?;
        }
    }
    Ok(Exit::Good)
}

pub fn explain(args: ExplainArgs) -> Result<Exit, Fault> {
    let Some(task) = args.task.as_deref().filter(|_| !args.nodes) else { return explain_nodes(&args) };
    let name = task_name(task)?;
    let run = args.run.map(RunId);
    let told = source::of_task(&args.of, run, |source, run| match source {
        Source::Ended(dirs) => {
            Ok((eyas_report::story_from_group(dirs, task, run)?, eyas_report::newest_run(dirs)?))
        }
        Source::Live(file) => client_runtime().block_on(async {
            let mut client = Client::connect(&file.read()?).await?;
            let story = story_of(client.explain(run, name.clone()).await?);
            let status = client.status().await?;
            source::say_lost_by(&status);
            Ok::<_, Fault>((story, status.runs.last().map(|run| run.run)))
        }),
    });
    let (story, newest) = match told {
        Err(fault) if fault.exit == Exit::BadInput => return explain_file(&args, task, fault),
        told => told?,
    };
    if let Some(newest) = newest.filter(|newest| run.is_none() && *newest != story.run) {
        eyas_text::say!("note: the newest run, {newest}, has no such task; this is of run {}", story.run);
    }
    if args.json {
        json::write(&json::Explained::of(&story))?;
        return Ok(Exit::Good);
    }
    eyas_text::stdout().write_all(eyas_report::explain_lines(&story).as_bytes())?;
    Ok(Exit::Good)
}

/// Where pushes put the file that `name` means. `no_task`: the answer if no push wanted it.
fn explain_file(args: &ExplainArgs, name: &str, no_task: Fault) -> Result<Exit, Fault> {
    let Ok(location) = homes::location(name) else { return Err(no_task) };
    let Ok(dirs) = source::log_dirs(&args.of.join, args.of.dir.as_deref()) else { return Err(no_task) };
    for dir in dirs {
        let Some(story) = eyas_report::file_story(&dir, location.as_str()).ok().flatten() else { continue };
        match args.json {
            true => json::write(&story)?,
            false => eyas_text::stdout().write_all(eyas_report::file_lines(&story, name).as_bytes())?,
        }
        return Ok(Exit::Good);
    }
    Err(no_task)
}

pub(crate) fn story_of(e: Explained) -> TaskStory {
    let printed = e.printed.iter().map(|p| PrintedLine {
        task: p.task,
        attempt: p.attempt,
        stdout: stream_of(&p.stdout),
        stderr: stream_of(&p.stderr),
    });
    TaskStory {
        task: e.task,
        user_id: e.user_id,
        run: e.run,
        state: e.state,
        reason: e.reason,
        submitted: e.submitted,
        printed: printed.collect(),
        log_lines: e.log_lines,
        executors: by_number(e.executors),
        lives: e.lives.into_iter().map(|(began, names)| (began, by_number(names))).collect(),
        objects: e.objects.into_iter().map(|(id, location)| (id.0, location)).collect(),
        spec: e.spec,
        patterns: e.patterns,
    }
}

fn by_number(names: Vec<(ExecutorId, String)>) -> BTreeMap<u32, String> {
    names.into_iter().map(|(executor, name)| (executor.0, name)).collect()
}

/// The report of the requested runs: all of them or one, by default the newest.
fn read_report(dirs: &[PathBuf], args: &ReportArgs) -> Result<eyas_report::Report, Fault> {
    let log = eyas_report::read_group(dirs)?;
    let of_here = || source::run_of_here(&dirs[0]).filter(|run| log.runs.contains_key(run));
    let run = args.run.map(RunId).or_else(of_here).or_else(|| log.newest_run()).filter(|_| !args.all);
    let Some(run) = run else { return Ok(eyas_report::metrics(&log)) };
    eyas_report::metrics_of(&log, run).ok_or_else(|| {
        Fault::new(Exit::BadInput, format!("there is no run {run} in {}", shown_path(&dirs[0])))
    })
}

pub fn report(args: ReportArgs) -> Result<Exit, Fault> {
    let dirs = source::log_dirs(&args.join, args.dir.as_deref())?;
    let read = |dirs: &[PathBuf]| read_report(dirs, &args);
    let report = read(&dirs)?;
    if args.format == ReportFormat::Parquet {
        return write_table(&args, &dirs, &report);
    }
    let out = args.out.clone().unwrap_or_else(|| "report.html".into());
    let base = match &args.compare {
        Some(other) => Some(read(&source::ended_dirs(Some(other))?)?),
        None => None,
    };
    let fail = |path: &PathBuf, e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot write the report {}: {e}", shown_path(path)))
    };
    std::fs::write(&out, eyas_report::html(&report, base.as_ref())).map_err(|e| fail(&out, e))?;
    let json_path = out.with_extension("json");
    let json = serde_json::to_vec_pretty(&report).map_err(|e| Fault::new(Exit::Other, e))?;
    std::fs::write(&json_path, json).map_err(|e| fail(&json_path, e))?;
    let of = match &report.runs[..] {
        [run] => format!("run {}, {},", run.run, shown(&run.name)),
        runs => format!("all {} runs", runs.len()),
    };
    if let Some(folder) = &args.figures {
        let n = draw_figures(folder, &json_path, &report, base.as_ref())?;
        eyas_text::say!("{n} figures in {}", shown_path(folder));
    }
    eyas_text::say!("{of} of {}", shown_path(&dirs[0]));
    for sentence in &report.verdict.sentences {
        eyas_text::say!("{sentence}");
    }
    if let Some(sentence) = report.bound_sentence() {
        eyas_text::say!("{sentence}");
    }
    writeln!(eyas_text::raw_unless_terminal(), "{} and {}", out.display(), json_path.display())?;
    Ok(Exit::Good)
}

/// The events of the report's run, or of all runs, as a table.
fn write_table(args: &ReportArgs, dirs: &[PathBuf], report: &eyas_report::Report) -> Result<Exit, Fault> {
    if args.figures.is_some() || args.compare.is_some() {
        let message = "--figures and --compare are of a page, and --format parquet writes a table";
        return Err(Fault::new(Exit::BadInput, message).hint("give each a command of its own"));
    }
    let out = args.out.clone().unwrap_or_else(|| "report.parquet".into());
    let run = match &report.runs[..] {
        [run] if !args.all => Some(run.run.0),
        _ => None,
    };
    figures::write_events(dirs, run, &out).map_err(|why| {
        let message = format!("the table is not written: {why}");
        Fault::new(Exit::Other, message)
            .hint("`pip install pyarrow` in the Python that has eyas brings what writes it")
    })?;
    writeln!(eyas_text::raw_unless_terminal(), "{}", out.display())?;
    Ok(Exit::Good)
}

/// Draws the report, and the one that it is compared with beside it. Gives how many figures there are.
fn draw_figures(
    folder: &Path,
    json_path: &Path,
    report: &eyas_report::Report,
    base: Option<&eyas_report::Report>,
) -> Result<u64, Fault> {
    let fail = |e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot write the figures to {}: {e}", shown_path(folder)))
    };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let name_of = |report: &eyas_report::Report| match &report.runs[..] {
        [run] => run.name.clone(),
        runs => format!("{} runs", runs.len()),
    };
    let mut reports = vec![(name_of(report), json_path.to_path_buf())];
    let base_path = folder.join("compared.json");
    if let Some(base) = base {
        let json = serde_json::to_vec(base).map_err(|e| Fault::new(Exit::Other, e))?;
        std::fs::write(&base_path, json).map_err(fail)?;
        reports.insert(0, (format!("compared: {}", name_of(base)), base_path.clone()));
    }
    let drawn = figures::draw_reports(folder, &reports);
    let _ = std::fs::remove_file(&base_path);
    drawn.map_err(|why| {
        let message = format!("the figures are not drawn: {why}");
        Fault::new(Exit::Other, message)
            .hint("`pip install matplotlib numpy` in the Python that has eyas brings what draws them")
    })
}

pub fn topology(args: TopologyArgs) -> Result<Exit, Fault> {
    let dirs = source::log_dirs(&args.of.join, args.of.dir.as_deref())?;
    let topology = eyas_report::topology(&dirs)?;
    let to_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if let Some(path) = &args.svg {
        let svg = eyas_report::topology_svg(&topology);
        match to_stdout {
            true => eyas_text::raw_unless_terminal().write_all(svg.as_bytes())?,
            false => std::fs::write(path, svg).map_err(|e| {
                let message = format!("cannot write the drawing {}: {e}", shown_path(path));
                Fault::new(Exit::Other, message)
            })?,
        }
    }
    match (args.json, to_stdout) {
        (true, _) => json::write(&topology)?,
        (false, true) => {}
        (false, false) => {
            eyas_text::stdout().write_all(eyas_report::topology_lines(&topology).as_bytes())?;
        }
    }
    Ok(Exit::Good)
}

pub fn replay(args: ReplayArgs) -> Result<Exit, Fault> {
    let dir = source::ended_dir(args.dir.as_deref())?;
    let outcome = eyas_report::replay(&dir)?;
    match &outcome.difference {
        None => {
            writeln!(
                eyas_text::stdout(),
                "{} events of {} dispatcher processes give the same {} actions again",
                count(outcome.n_events),
                outcome.n_lives,
                count(outcome.n_actions)
            )?;
            if outcome.n_lacking > 0 {
                eyas_text::say!(
                    "eyas: {} of these were replayed up to where the log lacks lines, which its disk did not take",
                    outcome.n_lacking
                );
            }
            if outcome.n_shortened > 0 {
                eyas_text::say!(
                    "eyas: the first dispatcher process of this log cannot be replayed: its runs are forgotten, and the log's \
                     lines about them are gone"
                );
            }
            Ok(Exit::Good)
        }
        Some(difference) => Err(Fault::new(Exit::TasksFailed, difference)),
    }
}
