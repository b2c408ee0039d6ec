//! `eyas tasks`: a table of the tasks of a run.
//!
//! The table is made from the event log. For a running cluster, the dispatcher also reports which programs
//! run now.

use crate::args::SourceArgs;
use crate::connect::connect;
use crate::print::{count, time};
use crate::runtimes::client_runtime;
use crate::source::{self, Source};
use crate::{Exit, Fault, dirs, json};
use clap::Args;
use eyas_core::log::EVENTS_FILE;
use eyas_core::{AttemptNo, RunId, TaskId, Timestamp};
use eyas_report::RunLog;
use eyas_report::read::{AttemptRecord, End, How};
use eyas_text::{line_of, shown_path};
use eyas_wire::identity::Join;
use eyas_wire::message::ClusterStatus;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Characters of a task's id, and of a reason, in the table for people.
const ID_CHARS_MAX: usize = 50;
const REASON_CHARS_MAX: usize = 200;

#[derive(Args)]
pub struct TasksArgs {
    /// Only those that failed
    #[arg(long, conflicts_with = "running")]
    pub failed: bool,
    /// Only those whose program runs now
    #[arg(long)]
    pub running: bool,
    /// Only the N whose program ran longest, the longest first
    #[arg(long, value_name = "N")]
    pub slowest: Option<usize>,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// As lines with tabs between the columns, for programs and spreadsheets
    #[arg(long, conflicts_with = "json")]
    pub tsv: bool,
    /// The run that is meant [default: the newest]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub of: SourceArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The task waits for other tasks, or in the queue.
    Waiting,
    /// The task is at an executor, but its program does not run: inputs or outputs are on their way, or it
    /// waits for a slot.
    Placed,
    Running,
    Done,
    Failed,
    Cancelled,
    /// The task's run was over before the task had ended.
    Unfinished,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Placed => "placed",
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Unfinished => "unfinished",
        }
    }
}

/// One task.
#[derive(Clone, Serialize, Debug)]
pub struct Row {
    /// The user's name for the task.
    pub id: String,
    pub number: TaskId,
    pub state: State,
    /// The node of its last attempt.
    pub node: Option<String>,
    pub n_attempts: u32,
    pub submitted: Timestamp,
    /// When the program of the last attempt began.
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    /// How long the program of the last attempt ran, or has run.
    pub run_ns: Option<u64>,
    /// Why the task failed.
    pub reason: Option<String>,
}

#[derive(Serialize)]
struct Table<'a> {
    run: RunId,
    name: &'a str,
    tasks: &'a [Row],
}

/// A run's tasks, from the logs of all dispatchers that had a part in it.
struct Logs {
    logs: Vec<RunLog>,
    /// The status of a running cluster.
    status: Option<ClusterStatus>,
    /// The newest run that was given from the working folder.
    of_here: Option<RunId>,
}

pub fn tasks(args: TasksArgs) -> Result<Exit, Fault> {
    let logs = read(&args.of)?;
    let newest = || logs.logs.iter().filter_map(RunLog::newest_run).max();
    let is_known = |run: &RunId| logs.logs.iter().any(|log| log.runs.contains_key(run));
    let of_here = || logs.of_here.filter(is_known);
    let wanted = args.run.map(RunId).or_else(of_here).or_else(newest);
    let name = |run: RunId| logs.logs.iter().find_map(|log| log.runs.get(&run)).map(|r| r.name.as_str());
    let Some((run, name)) = wanted.and_then(|run| Some((run, name(run)?))) else {
        let message = match args.run {
            Some(run) => format!("the log has no run {run}"),
            None => "the log has no run".to_owned(),
        };
        return Err(Fault::new(Exit::BadInput, message));
    };
    let mut rows = logs.rows(run);
    let n_all = rows.len() as u64;
    if args.failed {
        rows.retain(|row| row.state == State::Failed);
    }
    if args.running {
        rows.retain(|row| row.state == State::Running);
    }
    if let Some(n) = args.slowest {
        rows.retain(|row| row.run_ns.is_some());
        rows.sort_by_key(|row| std::cmp::Reverse(row.run_ns));
        rows.truncate(n);
    }
    match (args.json, args.tsv) {
        (true, _) => json::write(&Table { run, name, tasks: &rows })?,
        (_, true) => write_tsv(&rows)?,
        _ if rows.is_empty() => {
            eyas_text::say!("no such task among the {} of run {run}, {}", count(n_all), line_of(name));
        }
        _ => write_table(&rows)?,
    }
    Ok(Exit::Good)
}

fn read(of: &SourceArgs) -> Result<Logs, Fault> {
    let (dirs, status) = match source::source(&of.join, of.dir.as_deref())? {
        Source::Ended(dirs) => (dirs, None),
        Source::Live(path) => {
            // A dispatcher completes its log when it is asked for its status.
            let status =
                client_runtime().block_on(async { Ok::<_, Fault>(connect(&path).await?.status().await?) })?;
            let join_file = Join::read(&path).map_err(|e| Fault::new(Exit::Cluster, e))?;
            let dir = PathBuf::from(join_file.dir);
            if !dir.join(EVENTS_FILE).exists() {
                let message = format!("there is no event log in {} on this machine", shown_path(&dir));
                return Err(Fault::new(Exit::BadInput, message).hint(
                    "the table comes from the log, which is on the dispatcher's machine, and nowhere with --no-event-log; \
                     `eyas status` and `eyas explain TASK` ask the dispatcher itself",
                ));
            }
            (dirs::member_dirs(dir), Some(status))
        }
    };
    let logs = dirs.iter().map(|dir| eyas_report::read(dir)).collect::<Result<_, _>>()?;
    Ok(Logs { logs, status, of_here: source::run_of_here(&dirs[0]) })
}

impl Logs {
    /// All tasks of `run`, in their order, dispatcher by dispatcher.
    fn rows(&self, run: RunId) -> Vec<Row> {
        let running = self.running();
        let is_over = match &self.status {
            None => true,
            Some(status) => status.runs.iter().any(|r| r.run == run && r.ended.is_some()),
        };
        let mut rows = vec![];
        for log in &self.logs {
            let mut attempts: FxHashMap<TaskId, (u32, &AttemptRecord)> = FxHashMap::default();
            for attempt in log.attempts.iter().filter(|a| a.run == run) {
                let entry = attempts.entry(attempt.task).or_insert((0, attempt));
                *entry = (entry.0 + 1, attempt);
            }
            let failures: FxHashMap<TaskId, &str> =
                log.failures.iter().map(|f| (f.task, f.failure.message.as_str())).collect();
            for (base, array) in log.arrays_of(run) {
                for i in 0..array.n_tasks {
                    let task = TaskId(base + u64::from(i));
                    let last = attempts.get(&task).copied();
                    let mut row = Row {
                        id: array.fill(&array.template.id, i),
                        number: task,
                        state: State::Waiting,
                        node: None,
                        n_attempts: last.map_or(0, |(n, _)| n),
                        submitted: log.submitted(task),
                        started: None,
                        ended: None,
                        run_ns: None,
                        reason: None,
                    };
                    let (end, ended) = log.end(task);
                    row.ended = Some(ended).filter(|_| end != End::Not);
                    if let Some((_, attempt)) = last {
                        let node = &log.executors[attempt.executor as usize].name;
                        row.node = Some(node.clone());
                        if attempt.exited > Timestamp(0) {
                            row.started = Some(attempt.started);
                            row.run_ns = Some(attempt.run_ns());
                        }
                        if end == End::Not && attempt.how == How::Open {
                            row.state = State::Placed;
                            if let Some(since) = running.get(&(node.as_str(), task, attempt.attempt)) {
                                row.state = State::Running;
                                row.started = Some(*since);
                                row.run_ns = self.status.as_ref().map(|status| status.now.since_ns(*since));
                            }
                        }
                    }
                    row.state = match end {
                        End::Done => State::Done,
                        End::Failed => State::Failed,
                        End::Cancelled => State::Cancelled,
                        End::Not if is_over => State::Unfinished,
                        End::Not => row.state,
                    };
                    if row.state == State::Failed {
                        row.reason = failures.get(&task).map(|message| (*message).to_owned());
                    }
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// The programs that run now, and since when.
    fn running(&self) -> FxHashMap<(&str, TaskId, AttemptNo), Timestamp> {
        let executors = self.status.iter().flat_map(|status| &status.executors);
        let of = executors
            .flat_map(|e| e.status.running.iter().map(|(t, a, at)| ((e.name.as_str(), *t, *a), *at)));
        of.collect()
    }
}

fn write_table(rows: &[Row]) -> Result<(), Fault> {
    let mut out = BufWriter::new(eyas_text::stdout());
    let id = |row: &Row| line_of(&row.id).at_most(ID_CHARS_MAX).to_string();
    let node = |row: &Row| row.node.as_deref().map_or_else(|| "-".into(), |node| line_of(node).to_string());
    let longest = |cell: &dyn Fn(&Row) -> String, least: usize| {
        rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0).max(least)
    };
    let (ids, nodes) = (longest(&id, 4), longest(&node, 4));
    writeln!(
        out,
        "{:<ids$}  {:<10}  {:<nodes$}  {:>8}  {:>12}  {:>12}  reason",
        "task", "state", "node", "attempts", "ran", "in all"
    )?;
    for row in rows {
        let ran = row.run_ns.map_or("-".into(), time);
        let all = row.ended.map_or("-".into(), |ended| time(ended.since_ns(row.submitted)));
        let reason = line_of(row.reason.as_deref().unwrap_or("")).at_most(REASON_CHARS_MAX).to_string();
        let line = format!(
            "{:<ids$}  {:<10}  {:<nodes$}  {:>8}  {ran:>12}  {all:>12}  {reason}",
            id(row),
            row.state.word(),
            node(row),
            row.n_attempts
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(out.flush()?)
}

/// Control characters, including tabs, are escaped, so that each row is one line and no cell contains a tab.
fn write_tsv(rows: &[Row]) -> Result<(), Fault> {
    let mut out = BufWriter::new(eyas_text::raw_unless_terminal());
    let seconds = |ns: Option<u64>| ns.map_or(String::new(), |ns| format!("{:.3}", ns as f64 / 1e9));
    let cell = |text: &str| line_of(text).at_most(usize::MAX).to_string();
    writeln!(out, "task\tnumber\tstate\tnode\tattempts\tran_s\tin_all_s\treason")?;
    for row in rows {
        writeln!(
            out,
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            cell(&row.id),
            row.number,
            row.state.word(),
            cell(row.node.as_deref().unwrap_or("")),
            row.n_attempts,
            seconds(row.run_ns),
            seconds(row.ended.map(|ended| ended.since_ns(row.submitted))),
            cell(row.reason.as_deref().unwrap_or(""))
        )?;
    }
    Ok(out.flush()?)
}
