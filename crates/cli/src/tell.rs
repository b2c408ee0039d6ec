//! Explanations, reports and replays: made from the log of a run, of a running cluster or in the folder of
//! one that is over.

use crate::args::{ReplayArgs, ReportArgs, TaskArgs};
use crate::commands::{client_runtime, task_name};
use crate::local::Source;
use crate::print::count;
use crate::{Exit, Fault, json, local};
use eyas_client::Client;
use eyas_core::RunId;
use eyas_core::log::{PrintedLine, PrintedStream};
use eyas_report::TaskStory;
use eyas_text::{shown, shown_path};
use eyas_wire::message::{Captured, Explained};
use std::io::Write;
use std::path::PathBuf;

pub fn explain(args: TaskArgs) -> Result<Exit, Fault> {
    let name = task_name(&args.task)?;
    let run = args.run.map(RunId);
    let (story, newest) = match local::source(&args.of.join, args.of.dir.as_deref())? {
        Source::Ended(dirs) => {
            (eyas_report::story_from_group(&dirs, &args.task, run)?, eyas_report::newest_run(&dirs)?)
        }
        Source::Live(path) => client_runtime().block_on(async {
            let mut client = Client::connect(&path).await?;
            let story = story_of(client.explain(run, name).await?);
            Ok::<_, Fault>((story, client.status().await?.runs.last().map(|run| run.run)))
        })?,
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

fn story_of(e: Explained) -> TaskStory {
    let stream = |c: &Captured| PrintedStream {
        head: String::from_utf8_lossy(&c.head).into_owned(),
        tail: String::from_utf8_lossy(&c.tail).into_owned(),
        total_bytes: c.total_bytes,
    };
    let printed = e.printed.iter().map(|p| PrintedLine {
        task: p.task,
        attempt: p.attempt,
        stdout: stream(&p.stdout),
        stderr: stream(&p.stderr),
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
        executors: e.executors.into_iter().map(|(id, name)| (id.0, name)).collect(),
        objects: e.objects.into_iter().map(|(id, location)| (id.0, location)).collect(),
        spec: e.spec,
        patterns: e.patterns,
    }
}

/// The report of the requested runs: all of them or one, by default the newest.
fn read_report(dirs: &[PathBuf], args: &ReportArgs) -> Result<eyas_report::Report, Fault> {
    let log = eyas_report::read_group(dirs)?;
    let run = args.run.map(RunId).or_else(|| log.newest_run()).filter(|_| !args.all);
    let Some(run) = run else { return Ok(eyas_report::metrics(&log)) };
    eyas_report::metrics_of(&log, run).ok_or_else(|| {
        Fault::new(Exit::BadInput, format!("there is no run {run} in {}", shown_path(&dirs[0])))
    })
}

pub fn report(args: ReportArgs) -> Result<Exit, Fault> {
    let dirs = local::log_dirs(&args.join, args.dir.as_deref())?;
    let read = |dirs: &[PathBuf]| read_report(dirs, &args);
    let report = read(&dirs)?;
    let base = match &args.compare {
        Some(other) => Some(read(&local::ended_dirs(Some(other))?)?),
        None => None,
    };
    let fail = |path: &PathBuf, e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot write the report {}: {e}", shown_path(path)))
    };
    std::fs::write(&args.out, eyas_report::html(&report, base.as_ref())).map_err(|e| fail(&args.out, e))?;
    let json_path = args.out.with_extension("json");
    let json = serde_json::to_vec_pretty(&report).map_err(|e| Fault::new(Exit::Other, e))?;
    std::fs::write(&json_path, json).map_err(|e| fail(&json_path, e))?;
    let of = match &report.runs[..] {
        [run] => format!("run {}, {},", run.run, shown(&run.name)),
        runs => format!("all {} runs", runs.len()),
    };
    eyas_text::say!("{of} of {}", shown_path(&dirs[0]));
    for sentence in &report.verdict.sentences {
        eyas_text::say!("{sentence}");
    }
    writeln!(eyas_text::raw_unless_terminal(), "{} and {}", args.out.display(), json_path.display())?;
    Ok(Exit::Good)
}

pub fn replay(args: ReplayArgs) -> Result<Exit, Fault> {
    let dir = local::ended_dir(args.dir.as_deref())?;
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
