//! `eyas logs`: the output of tasks, also while they run.

use crate::args::{SourceArgs, task_name};
use crate::connect::connect;
use crate::print::size;
use crate::printed::{self, KEEP_ALL, Piece, Prints, ShownOutput};
use crate::runtimes::client_runtime;
use crate::source::{self, Source};
use crate::{Exit, Fault};
use clap::Args;
use eyas_client::{Client, Target};
use eyas_runtime::eventlog::{read_part, to_message};
use eyas_terms::{AttemptNo, RunId, TaskPhase};
use eyas_text::Printer;
use eyas_wire::message::{PrintedState, TaskPrinted, WhichTasks};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How often the dispatcher is asked about a task that is followed.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);
/// The number of replies with output that are shown in a row while the run goes on.
const PULLED_MAX: u32 = 16;

#[derive(Args)]
pub struct LogsArgs {
    /// The task's id, or #N for its number
    #[arg(value_name = "TASK", required_unless_present = "failed")]
    pub task: Option<String>,
    /// Go on until the task has ended
    #[arg(short, long, conflicts_with = "failed")]
    pub follow: bool,
    /// What each failed task printed, under a heading
    #[arg(long, conflicts_with = "task")]
    pub failed: bool,
    /// The run that is meant [default: the newest that has such a task; with --failed the newest]
    #[arg(long, value_name = "RUN")]
    pub run: Option<u32>,
    #[command(flatten)]
    pub of: SourceArgs,
}

pub fn logs(args: LogsArgs) -> Result<Exit, Fault> {
    if let Some(task) = &args.task {
        task_name(task)?;
    }
    let run = args.run.map(RunId);
    match &args.task {
        Some(task) => source::of_task(&args.of, run, |source, run| of_task(source, run, task, args.follow)),
        None => match source::source(&args.of.join, args.of.dir.as_deref())? {
            Source::Live(file) => failed_live(&file.read()?, run),
            Source::Ended(dirs) => failed_ended(&dirs, run),
        },
    }
}

fn of_task(source: &Source, run: Option<RunId>, task: &str, is_followed: bool) -> Result<Exit, Fault> {
    client_runtime().block_on(async {
        match source {
            Source::Live(file) => follow(&file.read()?, run, task, is_followed).await,
            Source::Ended(dirs) => ended(dirs, run, task).await,
        }
    })
}

async fn ended(dirs: &[PathBuf], run: Option<RunId>, task: &str) -> Result<Exit, Fault> {
    let story = eyas_report::story_from_group(dirs, task, run)?;
    let state = match story.state {
        TaskPhase::Done => PrintedState::Done,
        TaskPhase::Failed => PrintedState::Failed,
        TaskPhase::Cancelled => PrintedState::Cancelled,
        _ => PrintedState::Queued,
    };
    let printed = TaskPrinted {
        task: story.task,
        run: story.run,
        user_id: story.user_id,
        state,
        reason: story.reason,
        attempts: story.printed.iter().map(to_message).collect(),
        ..TaskPrinted::default()
    };
    if !printed.state.is_over() {
        source::say_lost(dirs.to_vec());
    }
    let mut seen = ShownOutput::default();
    let lost_bytes = show_new(&printed, &mut seen, &mut Whole::Ended(dirs)).await?;
    if seen.is_empty() {
        eyas_text::say!("{}", printed::nothing_printed(&printed));
    }
    whole(lost_bytes)
}

async fn follow(target: &Target, run: Option<RunId>, task: &str, follow: bool) -> Result<Exit, Fault> {
    let name = task_name(task)?;
    let mut client = Client::connect(target).await?;
    let (mut seen, mut said, mut lost_bytes) = (ShownOutput::default(), None, 0);
    loop {
        let printed = client.printed(run, name.clone()).await?;
        lost_bytes += show_new(&printed, &mut seen, &mut Whole::Live(&mut client)).await?;
        // The reason why there is no output is printed once for each state of the task.
        if seen.is_empty() && said != Some(printed.state) {
            eyas_text::say!("{}", printed::nothing_printed(&printed));
            said = Some(printed.state);
        }
        if !follow || printed.state.is_over() {
            return whole(lost_bytes);
        }
        tokio::time::sleep(FOLLOW_EVERY).await;
    }
}

/// Good, unless bytes are missing in a pipe or file, where no mark stands for them.
fn whole(lost_bytes: u64) -> Result<Exit, Fault> {
    match lost_bytes {
        0 => Ok(Exit::Good),
        _ => Err(not_whole(lost_bytes)),
    }
}

/// The error where standard output, a pipe or file, lacks bytes that tasks printed.
pub fn not_whole(lost_bytes: u64) -> Fault {
    let lost = size(lost_bytes);
    Fault::new(
        Exit::Other,
        format!("standard output is not whole: {lost} that tasks printed were not kept; {KEEP_ALL}"),
    )
}

/// Shows what a task has printed since the last call, each stream separately. Returns how many bytes are missing in a pipe or file.
async fn show_new(task: &TaskPrinted, seen: &mut ShownOutput, whole: &mut Whole<'_>) -> Result<u64, Fault> {
    let several = task.attempts.len() > 1;
    let mut lost_bytes = 0;
    for attempt in &task.attempts {
        let ([stdout, stderr], is_first) = seen.take(attempt);
        if several && is_first {
            eyas_text::say!("--- attempt {}", attempt.attempt);
        }
        lost_bytes += whole.write_stdout(task, attempt.attempt, &stdout).await?;
        write_pieces(eyas_text::printed_stderr(), &stderr)?;
    }
    Ok(lost_bytes)
}

/// A pipe or a file gets the bytes unchanged; a terminal gets text and colours.
pub fn write_pieces<W: Write>(mut out: Printer<W>, pieces: &[Piece<'_>]) -> std::io::Result<()> {
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => out.write_all(bytes)?,
            Piece::Cut { n_bytes, .. } => out.write_all(Piece::cut_mark(*n_bytes).as_bytes())?,
        }
    }
    out.finish()
}

/// Where all that tasks printed to standard output may be, beside its ends.
enum Whole<'a> {
    /// At the dispatcher.
    Live(&'a mut Client),
    /// In the folder of the dispatcher. The dispatchers of a group number their tasks alike, and it is not known here whose the task is.
    Ended(&'a [PathBuf]),
}

impl Whole<'_> {
    /// Writes pieces of what was printed to standard output. Where a middle is not kept, a terminal gets a mark; no mark may stand among
    /// the data in a pipe or file: returns how many bytes are missing there.
    async fn write_stdout(
        &mut self,
        task: &TaskPrinted,
        attempt: AttemptNo,
        pieces: &[Piece<'_>],
    ) -> Result<u64, Fault> {
        let (mut out, mut lost_bytes) = (eyas_text::printed_stdout(), 0);
        for piece in pieces {
            let (mut at, mut left) = match piece {
                Piece::Bytes(bytes) => {
                    out.write_all(bytes)?;
                    continue;
                }
                Piece::Cut { at, n_bytes } => (*at, *n_bytes),
            };
            while left > 0 {
                let part = self.read(task, attempt, at).await?;
                let part = &part[..part.len().min(left as usize)];
                if part.is_empty() {
                    break;
                }
                out.write_all(part)?;
                (at, left) = (at + part.len() as u64, left - part.len() as u64);
            }
            match left {
                0 => {}
                _ if eyas_text::stdout_is_terminal() => out.write_all(Piece::cut_mark(left).as_bytes())?,
                _ => lost_bytes += left,
            }
        }
        out.finish()?;
        Ok(lost_bytes)
    }

    /// A part of what the attempt printed from byte `at` on; empty if none is kept.
    async fn read(&mut self, task: &TaskPrinted, attempt: AttemptNo, at: u64) -> Result<Vec<u8>, Fault> {
        match self {
            Whole::Ended([dir]) => Ok(read_part(dir, task.task, attempt, at)),
            Whole::Ended(_) => Ok(vec![]),
            Whole::Live(client) => loop {
                match client.printed_part(task, attempt, at, false).await.map_err(Fault::from) {
                    // The dispatcher was restarted.
                    Err(fault) if fault.exit == Exit::Cluster => {
                        **client = connect(client.target().file()).await?
                    }
                    read => return read,
                }
            },
        }
    }
}

fn failed_live(target: &Target, run: Option<RunId>) -> Result<Exit, Fault> {
    client_runtime().block_on(async {
        let mut client = Client::connect(target).await?;
        let mut failed = Prints::new(run, WhichTasks::Failed);
        let mut n = 0;
        loop {
            let tasks = failed.pull(&mut client).await?;
            if tasks.is_empty() {
                break;
            }
            for task in &tasks {
                show_grouped(task)?;
                n += 1;
            }
        }
        if n == 0 {
            eyas_text::say!("no task of run {} has failed", failed.run().unwrap_or_default());
        }
        Ok(Exit::Good)
    })
}

fn failed_ended(dirs: &[PathBuf], run: Option<RunId>) -> Result<Exit, Fault> {
    let (run, failed) = eyas_report::failed_printed(&source::say_lost(dirs.to_vec()), run)?;
    for task in &failed {
        show_grouped(&TaskPrinted {
            task: task.task,
            run,
            user_id: task.user_id.clone(),
            state: PrintedState::Failed,
            reason: Some(task.message.clone()),
            attempts: task.printed.iter().map(to_message).collect(),
            ..TaskPrinted::default()
        })?;
    }
    if failed.is_empty() {
        eyas_text::say!("no task of run {run} has failed");
    }
    Ok(Exit::Good)
}

/// Everything that a task printed, under a heading, on standard output.
fn show_grouped(task: &TaskPrinted) -> std::io::Result<()> {
    writeln!(eyas_text::stdout(), "{}", printed::heading(task))?;
    let mut seen = ShownOutput::default();
    for attempt in &task.attempts {
        if task.attempts.len() > 1 {
            writeln!(eyas_text::stdout(), "--- attempt {}", attempt.attempt)?;
        }
        for pieces in seen.take(attempt).0 {
            let ends_line = !matches!(pieces.last(), Some(Piece::Bytes(bytes)) if !bytes.ends_with(b"\n"));
            write_pieces(eyas_text::printed_stdout(), &pieces)?;
            if !ends_line {
                writeln!(eyas_text::stdout())?;
            }
        }
    }
    if seen.is_empty() {
        writeln!(eyas_text::stdout(), "(it printed nothing)")?;
    }
    Ok(())
}

/// Shows the output of a run's tasks, each when it has ended and all tasks before it have, while the user
/// waits for the run.
pub struct InOrder {
    client: Client,
    prints: Prints,
    /// Bytes that a pipe or file lacks.
    lost_bytes: u64,
}

impl InOrder {
    /// Makes a connection of its own, because the one that waits for the run drops answers to other requests.
    pub async fn begin(target: &Target, run: RunId) -> Result<InOrder, Fault> {
        let client = Client::connect(target).await?;
        let prints = Prints::new(Some(run), WhichTasks::Ended);
        Ok(InOrder { client, prints, lost_bytes: 0 })
    }

    /// What is said at the end if bytes are missing in a pipe or file.
    pub fn fault(&self) -> Option<Fault> {
        (self.lost_bytes > 0).then(|| not_whole(self.lost_bytes))
    }

    /// Shows the output that is ready: all of it, or so much that the caller need not wait long. `before` is
    /// called before anything is shown.
    pub async fn show(&mut self, all: bool, mut before: impl FnMut()) -> Result<(), Fault> {
        for n_pulled in 0.. {
            if !all && n_pulled == PULLED_MAX {
                break;
            }
            let tasks = match self.prints.pull(&mut self.client).await {
                Ok(tasks) => tasks,
                // The dispatcher was restarted.
                Err(fault) if fault.exit == Exit::Cluster => {
                    self.client = connect(self.client.target().file()).await?;
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            if tasks.is_empty() {
                return Ok(());
            }
            before();
            for task in &tasks {
                // The output of earlier attempts is not shown.
                let Some(last) = task.attempts.last() else { continue };
                let pieces = printed::beyond(&last.stdout, 0);
                let mut whole = Whole::Live(&mut self.client);
                self.lost_bytes += whole.write_stdout(task, last.attempt, &pieces).await?;
                write_pieces(eyas_text::printed_stderr(), &printed::beyond(&last.stderr, 0))?;
                if pieces.len() > 1 {
                    // What is not dropped now goes with the run.
                    let _ = self.client.printed_part(task, last.attempt, last.stdout.total_bytes, true).await;
                }
            }
        }
        Ok(())
    }
}
