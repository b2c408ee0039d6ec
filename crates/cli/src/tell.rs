//! Explanations, reports and replays: what the log of a run says, from a live cluster or from the
//! folder of one that is over.

use crate::args::{ReplayArgs, ReportArgs, TaskArgs};
use crate::commands::{client_runtime, task_name, write_captured};
use crate::print::count;
use crate::{Exit, Fault, local};
use eyas_core::RunId;
use eyas_core::log::{PrintedLine, PrintedStream};
use eyas_report::TaskStory;
use eyas_runtime::client::Client;
use eyas_wire::identity::Join;
use eyas_wire::message::{Captured, Explained, ReplyBody, RequestBody};
use std::io::Write;
use std::path::PathBuf;

pub fn explain(args: TaskArgs) -> Result<Exit, Fault> {
    let name = task_name(&args.task)?;
    let story = match local::live_or_ended(&args.join, args.dir.as_deref())? {
        None => eyas_report::story_from_group(&local::ended_dirs(args.dir.as_deref())?, &args.task)?,
        Some(path) => client_runtime().block_on(async {
            let mut client = Client::connect(&path).await?;
            match client.ask(RequestBody::Explain { run: args.run.map(RunId), task: name }).await? {
                ReplyBody::Explained(explained) => Ok::<_, Fault>(story_of(*explained)),
                _ => Err(Fault::new(Exit::Cluster, "the dispatcher's answer makes no sense")),
            }
        })?,
    };
    std::io::stdout().lock().write_all(eyas_report::explain_lines(&story).as_bytes())?;
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

/// `eyas logs` of a run that is over.
pub fn ended_logs(args: &TaskArgs) -> Result<Exit, Fault> {
    let story = eyas_report::story_from_group(&local::ended_dirs(args.dir.as_deref())?, &args.task)?;
    let captured = |s: &PrintedStream| Captured {
        head: s.head.clone().into_bytes(),
        tail: s.tail.clone().into_bytes(),
        total_bytes: s.total_bytes,
    };
    for line in &story.printed {
        if story.printed.len() > 1 {
            eprintln!("--- attempt {}", line.attempt);
        }
        write_captured(&mut std::io::stdout().lock(), &captured(&line.stdout))?;
        write_captured(&mut std::io::stderr().lock(), &captured(&line.stderr))?;
    }
    if story.printed.is_empty() {
        eprintln!("task `{}` printed nothing", args.task);
    }
    Ok(Exit::Good)
}

pub fn report(args: ReportArgs) -> Result<Exit, Fault> {
    let dirs = match (&args.dir, local::join_path(&args.join)) {
        (Some(dir), _) => local::ended_dirs(Some(dir))?,
        // The log is on the dispatcher's machine; elsewhere its folder is not there, which the reader says.
        (None, Ok(join)) => {
            let join = Join::read(&join).map_err(|e| Fault::new(Exit::Cluster, e))?;
            local::member_dirs(PathBuf::from(join.dir))
        }
        (None, Err(_)) => local::ended_dirs(None)?,
    };
    let read = |dirs: &[PathBuf]| -> Result<eyas_report::Report, Fault> {
        let log = eyas_report::read_group(dirs)?;
        match args.run {
            None => Ok(eyas_report::metrics(&log)),
            Some(run) => eyas_report::metrics_of(&log, RunId(run)).ok_or_else(|| {
                Fault::new(Exit::BadInput, format!("there is no run {run} in `{}`", dirs[0].display()))
            }),
        }
    };
    let report = read(&dirs)?;
    let base = match &args.compare {
        Some(other) => Some(read(&local::ended_dirs(Some(other))?)?),
        None => None,
    };
    let fail = |path: &PathBuf, e: std::io::Error| {
        Fault::new(Exit::Other, format!("cannot write the report `{}`: {e}", path.display()))
    };
    std::fs::write(&args.out, eyas_report::html(&report, base.as_ref())).map_err(|e| fail(&args.out, e))?;
    let json_path = args.out.with_extension("json");
    let json = serde_json::to_vec_pretty(&report).map_err(|e| Fault::new(Exit::Other, e))?;
    std::fs::write(&json_path, json).map_err(|e| fail(&json_path, e))?;
    writeln!(std::io::stdout(), "{} and {}", args.out.display(), json_path.display())?;
    Ok(Exit::Good)
}

pub fn replay(args: ReplayArgs) -> Result<Exit, Fault> {
    let dir = local::ended_dir(args.dir.as_deref())?;
    let outcome = eyas_report::replay(&dir)?;
    match &outcome.difference {
        None => {
            writeln!(
                std::io::stdout(),
                "{} events of {} dispatcher processes give the same {} actions again",
                count(outcome.n_events),
                outcome.n_lives,
                count(outcome.n_actions)
            )?;
            Ok(Exit::Good)
        }
        Some(difference) => Err(Fault::new(Exit::TasksFailed, difference)),
    }
}
