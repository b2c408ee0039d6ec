//! `eyas tasks`: a table of the tasks of a run.
//!
//! The table is made from the event log. For a running cluster, the dispatcher also reports which programs
//! run now.

use crate::args::SourceArgs;
use crate::connect::connect;
use crate::print::{count, time, wrapped};
use crate::printed::Prints;
use crate::runtimes::client_runtime;
use crate::source::{self, Source};
use crate::{Exit, Fault, json};
use clap::Args;
use eyas_client::JoinFile;
use eyas_cluster::dirs::member_dirs;
use eyas_core::log::EVENTS_FILE;
use eyas_report::RunLog;
use eyas_report::read::{AttemptRecord, End, How};
use eyas_terms::{AttemptNo, Outcome, RunId, TaskId, Timestamp};
use eyas_text::{line_of, shown_path};
use eyas_wire::message::{ClusterStatus, PrintedState, WhichTasks};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Characters of a task's id, and of a reason, in the table for people.
const ID_CHARS_MAX: usize = 50;
const NODE_CHARS_MAX: usize = 12;
const REASON_CHARS_MAX: usize = 400;
/// Columns of the table for people.
const TABLE_CHARS: usize = 80;

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
    /// The task's run is over, and the log, which lacks lines, does not say how the task ended.
    Unknown,
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
            State::Unknown => "unknown",
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
    /// The folder of each of them.
    dirs: Vec<PathBuf>,
    /// A running cluster, and its status.
    live: Option<JoinFile>,
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
    logs.ask_for_ends(run, &mut rows)?;
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
    let (dirs, live, status) = match source::source(&of.join, of.dir.as_deref())? {
        Source::Ended(dirs) => (dirs, None, None),
        Source::Live(file) => {
            // A dispatcher completes its log when it is asked for its status.
            let (status, dir) = client_runtime().block_on(async {
                let mut client = connect(&file).await?;
                Ok::<_, Fault>((client.status().await?, client.target().dir().to_path_buf()))
            })?;
            if !dir.join(EVENTS_FILE).exists() {
                let message = format!("there is no event log in {} on this machine", shown_path(&dir));
                return Err(Fault::new(Exit::BadInput, message).hint(
                    "the table comes from the log, which is on the dispatcher's machine, and nowhere with --no-event-log; \
                     `eyas status` and `eyas explain TASK` ask the dispatcher itself",
                ));
            }
            source::say_lost_by(&status);
            (member_dirs(dir), Some(file), Some(status))
        }
    };
    let dirs = source::say_lost(dirs);
    let logs = dirs.iter().map(|dir| eyas_report::read(dir)).collect::<Result<_, _>>()?;
    let of_here = source::run_of_here(&dirs[0]);
    Ok(Logs { logs, dirs, live, status, of_here })
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
        for (log, dir) in self.logs.iter().zip(&self.dirs) {
            // What the log of a dispatcher that is gone lacks may stand in its journal.
            let mut journal = None;
            let mut end_in_journal = |task: TaskId| {
                let ends = journal.get_or_insert_with(|| eyas_runtime::dispatcher::ends_in_journal(dir));
                ends.get(&task).cloned()
            };
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
                        End::Not if is_over && (log.lost.is_some() || self.live.is_some()) => State::Unknown,
                        End::Not if is_over => State::Unfinished,
                        End::Not => row.state,
                    };
                    if self.status.is_none() && matches!(row.state, State::Unknown | State::Unfinished) {
                        (row.state, row.reason) = match end_in_journal(task) {
                            Some(Outcome::Done) => (State::Done, None),
                            Some(Outcome::Failed(failure)) => (State::Failed, Some(failure.message)),
                            Some(Outcome::Cancelled) => (State::Cancelled, None),
                            None => (row.state, None),
                        };
                    } else if row.state == State::Failed {
                        row.reason = failures.get(&task).map(|message| (*message).to_owned());
                    }
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// How tasks of a run that is over ended, where the log does not say it and the dispatcher is there. The dispatchers of a group
    /// number their tasks alike, and are not asked.
    fn ask_for_ends(&self, run: RunId, rows: &mut [Row]) -> Result<(), Fault> {
        let unknown = |(_, row): &(usize, &Row)| row.state == State::Unknown;
        let unknown = rows.iter().enumerate().filter(unknown).map(|(at, row)| (row.number, at));
        let unknown: FxHashMap<TaskId, usize> = unknown.collect();
        let is_asked = !unknown.is_empty() && self.logs.len() == 1;
        let Some(file) = self.live.as_ref().filter(|_| is_asked) else { return Ok(()) };
        client_runtime().block_on(async {
            let mut client = connect(file).await?;
            let mut ends = Prints::new(Some(run), WhichTasks::Ended);
            loop {
                let tasks = ends.pull(&mut client).await?;
                if tasks.is_empty() {
                    return Ok(());
                }
                for task in tasks {
                    let Some(at) = unknown.get(&task.task) else { continue };
                    let row = &mut rows[*at];
                    row.state = match task.state {
                        PrintedState::Done => State::Done,
                        PrintedState::Failed => State::Failed,
                        PrintedState::Cancelled => State::Cancelled,
                        _ => State::Unknown,
                    };
                    row.reason = task.reason.filter(|_| row.state == State::Failed);
                }
            }
        })
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
    out.write_all(table(rows).as_bytes())?;
    Ok(out.flush()?)
}

/// A table of at most [`TABLE_CHARS`] columns. A reason that does not fit behind its task stands below it.
fn table(rows: &[Row]) -> String {
    let node = |row: &Row| match row.node.as_deref() {
        Some(node) => eyas_text::end_of(&line_of(node).to_string(), NODE_CHARS_MAX),
        None => "-".into(),
    };
    let ran = |row: &Row| row.run_ns.map_or("-".into(), time);
    let all = |row: &Row| row.ended.map_or("-".into(), |ended| time(ended.since_ns(row.submitted)));
    let longest = |cell: &dyn Fn(&Row) -> String, least: usize| {
        rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0).max(least)
    };
    let states = longest(&|row| row.state.word().into(), 5);
    let (nodes, rans, wholes) = (longest(&node, 4), longest(&ran, 3), longest(&all, 6));
    // Blanks between the columns, the attempts, and the heading of the reasons.
    let ids_max = TABLE_CHARS.saturating_sub(states + nodes + rans + wholes + 26).clamp(8, ID_CHARS_MAX);
    let id = |row: &Row| eyas_text::end_of(&line_of(&row.id).to_string(), ids_max);
    let ids = longest(&id, 4);
    let line = |cells: [&str; 6]| {
        let [id, state, node, attempts, ran, all] = cells;
        format!("{id:<ids$}  {state:<states$}  {node:<nodes$}  {attempts:>8}  {ran:>rans$}  {all:>wholes$}")
    };
    let mut text = format!("{}  reason\n", line(["task", "state", "node", "attempts", "ran", "in all"]));
    for row in rows {
        let cells =
            line([&id(row), row.state.word(), &node(row), &row.n_attempts.to_string(), &ran(row), &all(row)]);
        let reason = line_of(row.reason.as_deref().unwrap_or("")).at_most(REASON_CHARS_MAX).to_string();
        if cells.chars().count() + 2 + reason.chars().count() <= TABLE_CHARS {
            text += format!("{cells}  {reason}").trim_end();
        } else {
            text += &cells;
            wrapped(&reason, TABLE_CHARS - 4).iter().for_each(|line| text += &format!("\n    {line}"));
        }
        text.push('\n');
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_80_columns_and_says_whole_reasons() {
        let row = |id: &str, node: &str, reason: Option<String>| Row {
            id: id.into(),
            number: TaskId(1),
            state: State::Unfinished,
            node: Some(node.into()),
            n_attempts: 12,
            submitted: Timestamp(1),
            started: None,
            ended: Some(Timestamp(4_000_000_000_000)),
            run_ns: Some(5_999_000_000_000),
            reason,
        };
        let reason = "the program ended with status 3; its last words: no space".to_owned();
        let rows = [
            row("1", "n", None),
            row("2", "n", Some("short".into())),
            row(&"long/".repeat(30), "ip-10-0-0-17.eu-west-1.compute", Some(format!("{reason} {reason}"))),
        ];
        for rows in [&rows[..], &rows[..2]] {
            let text = table(rows);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        let text = table(&rows);
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("1 ")), "{text}");
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.ends_with(&format!("{reason} {reason}")) && said.contains("short"), "{text}");
    }
}
