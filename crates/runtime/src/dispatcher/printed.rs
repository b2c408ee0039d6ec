//! What programs print, for people who ask: of one task, of those that failed, of a whole run in order.
//!
//! What ended attempts printed lies in `printed.jsonl`; where the words of a task are in it, an index knows that is made when
//! somebody asks first and grows with the file. What a running program has printed so far only its slot process knows,
//! so its executor is asked ([`ToExecutor::Look`]) and the answer waits for it, for a while.

use super::service::Service;
use crate::clock;
use crate::eventlog::{self, EventLog};
use eyas_core::dispatcher::TaskState;
use eyas_core::log::{PRINTED_FILE, PrintedLine};
use eyas_core::*;
use eyas_wire::message::*;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// How long an executor has to say what a program has printed so far.
const LOOK_NS: u64 = 5_000_000_000;
/// Tasks in one answer, each with at most what an attempt's report holds of its streams.
const TASKS_IN_ANSWER: usize = 64;
/// Tasks of a run that are looked at for one answer, so that the loop is not kept.
const LOOKED_AT_MAX: usize = 100_000;

/// What people have asked for.
#[derive(Default)]
pub struct Prints {
    index: Arc<Mutex<Index>>,
    last_ask: u64,
    looks: BTreeMap<u64, Look>,
}

/// Somebody who waits for what a running program has printed.
struct Look {
    connection: u64,
    number: u64,
    task: TaskId,
    executor: ExecutorId,
    asked: Timestamp,
}

impl Prints {
    /// A client's connection is gone.
    pub fn left(&mut self, connection: u64) {
        self.looks.retain(|_, look| look.connection != connection);
    }
}

/// Where in the file the words of each task are.
#[derive(Default)]
struct Index {
    /// All whole lines before are in the index.
    end: u64,
    at: HashMap<TaskId, Vec<u64>>,
}

impl Index {
    /// Takes in what was written since the last time.
    fn grow(&mut self, file: &mut BufReader<File>) -> std::io::Result<()> {
        file.seek(SeekFrom::Start(self.end))?;
        let mut line = vec![];
        loop {
            line.clear();
            let n_bytes = file.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
            if let Some(task) = task_of(&line) {
                self.at.entry(task).or_default().push(self.end);
            }
            self.end += n_bytes as u64;
        }
    }

    /// What the attempts of `task` printed.
    fn read(&self, file: &mut BufReader<File>, task: TaskId) -> Vec<Printed> {
        let mut found: Vec<Printed> = vec![];
        for at in self.at.get(&task).into_iter().flatten() {
            let mut line = String::new();
            let read = file.seek(SeekFrom::Start(*at)).and_then(|_| file.read_line(&mut line));
            let parsed = read.ok().and_then(|_| serde_json::from_str::<PrintedLine>(&line).ok());
            found.extend(parsed.map(|line| eventlog::to_message(&line)));
        }
        found
    }
}

/// The task that a line is of. Every line begins with it.
fn task_of(line: &[u8]) -> Option<TaskId> {
    let digits = line.strip_prefix(b"{\"task\":")?;
    let n_digits = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&digits[..n_digits]).ok()?.parse().ok().map(TaskId)
}

/// What each of `tasks` printed, in their order, as far as `file` has it.
fn read_printed(index: &Mutex<Index>, path: &Path, tasks: &mut [TaskPrinted]) {
    let Ok(file) = File::open(path) else { return };
    let mut file = BufReader::new(file);
    let mut index = index.lock().expect("nobody panics with it");
    let _ = index.grow(&mut file);
    for task in tasks {
        task.attempts = index.read(&mut file, task.task);
    }
}

impl Service {
    pub(super) fn on_logs(&mut self, connection: u64, number: u64, task: TaskId) {
        let state = self.core.task_state(task);
        if let TaskState::Reserved { executor, attempt, landing: false } = state {
            let ask = self.prints.last_ask + 1;
            if self.is_connected(executor) {
                self.prints.last_ask = ask;
                let look = Look { connection, number, task, executor, asked: clock::now() };
                self.prints.looks.insert(ask, look);
                return self.tell(executor, ToExecutor::Look { ask, task, attempt });
            }
        }
        self.answer_logs(connection, number, task, None);
    }

    /// An executor said what a program has printed so far.
    pub(super) fn on_looked(&mut self, executor: ExecutorId, ask: u64, has_begun: bool, printed: Printed) {
        if self.prints.looks.get(&ask).is_none_or(|look| look.executor != executor) {
            return;
        }
        let Some(Look { connection, number, task, .. }) = self.prints.looks.remove(&ask) else { return };
        let printed = Printed { task, ..printed };
        self.answer_logs(connection, number, task, Some((has_begun, printed)));
    }

    /// Answers for those executors that do not.
    pub(super) fn end_looks(&mut self) {
        let now = clock::now();
        let is_late = |look: &Look| now.since_ns(look.asked) > LOOK_NS || !self.is_connected(look.executor);
        let late: Vec<u64> =
            self.prints.looks.iter().filter(|(_, look)| is_late(look)).map(|(ask, _)| *ask).collect();
        for ask in late {
            let Some(Look { connection, number, task, .. }) = self.prints.looks.remove(&ask) else {
                continue;
            };
            self.answer_logs(connection, number, task, None);
        }
    }

    /// `live`: whether its program has begun, and what that has printed so far.
    fn answer_logs(&mut self, connection: u64, number: u64, task: TaskId, live: Option<(bool, Printed)>) {
        let (state, reason) = match self.core.task_state(task) {
            TaskState::Submitting => (PrintedState::Queued, None),
            TaskState::Waiting { .. } => (PrintedState::Queued, Some(self.core.waits_for(task))),
            TaskState::Ready { reason } => (PrintedState::Queued, reason),
            TaskState::Reserved { landing: true, .. } => (PrintedState::Running, None),
            TaskState::Reserved { .. } => match &live {
                Some((true, _)) => (PrintedState::Running, None),
                Some((false, _)) => (PrintedState::Given, None),
                None => (PrintedState::Silent, None),
            },
            TaskState::Done => (PrintedState::Done, None),
            TaskState::Failed => (PrintedState::Failed, self.core.failure_of(task)),
            TaskState::Cancelled => (PrintedState::Cancelled, None),
        };
        let live = live.filter(|(has_begun, _)| *has_begun && !state.is_over()).map(|(_, printed)| printed);
        let asked = TaskPrinted {
            task,
            run: self.core.run_of(task),
            user_id: self.core.user_id(task),
            state,
            reason,
            attempts: vec![],
        };
        self.answer_printed(connection, number, vec![asked], move |mut tasks| {
            let mut asked = tasks.remove(0);
            // It may have ended since, and what it printed be in the file.
            let is_there =
                |live: &Printed| asked.attempts.iter().any(|printed| printed.attempt == live.attempt);
            if let Some(live) = live.filter(|live| !is_there(live)) {
                asked.attempts.push(live);
            }
            ReplyBody::Printed(Box::new(asked))
        });
    }

    pub(super) fn on_prints(
        &mut self,
        connection: u64,
        number: u64,
        run: Option<RunId>,
        which: WhichTasks,
        from: u64,
    ) {
        let newest = || self.core.runs().filter(|(_, r)| r.committed).map(|(run, _)| run).last();
        let found = run.or_else(newest).filter(|run| self.core.find_run(*run).is_some());
        let Some(run) = found else {
            let reason = run.map_or("nothing was submitted".into(), |run| format!("there is no run {run}"));
            return self.reply(connection, number, ReplyBody::Refused { reason });
        };
        let (mut tasks, mut next, mut is_early) = (vec![], None, false);
        for (n, task) in self.core.tasks_of(run, from).enumerate() {
            let at = from + n as u64;
            if tasks.len() == TASKS_IN_ANSWER || n == LOOKED_AT_MAX {
                next = Some(at);
                break;
            }
            let state = match self.core.find_end(task) {
                Some(TaskState::Done) => PrintedState::Done,
                Some(TaskState::Failed) => PrintedState::Failed,
                Some(_) => PrintedState::Cancelled,
                None if which == WhichTasks::Ended => {
                    (next, is_early) = (Some(at), true);
                    break;
                }
                None => continue,
            };
            if which == WhichTasks::Ended || state == PrintedState::Failed {
                let reason = self.core.failure_of(task).filter(|_| state == PrintedState::Failed);
                let user_id = self.core.user_id(task);
                tasks.push(TaskPrinted { task, run, user_id, state, reason, attempts: vec![] });
            }
        }
        self.answer_printed(connection, number, tasks, move |tasks| ReplyBody::Prints {
            run,
            tasks,
            next,
            is_early,
        });
    }

    /// Answers with what `tasks` printed, on a thread of its own, after everything so far is in the file.
    fn answer_printed(
        &mut self,
        connection: u64,
        number: u64,
        mut tasks: Vec<TaskPrinted>,
        answer: impl FnOnce(Vec<TaskPrinted>) -> ReplyBody + Send + 'static,
    ) {
        let has_ended = |task: &TaskPrinted| task.state.is_over();
        if self.log.is_none() && tasks.iter().any(has_ended) {
            let reason = "this cluster keeps nothing of what programs print (--no-event-log)".into();
            return self.reply(connection, number, ReplyBody::Refused { reason });
        }
        let flushed = self.log.as_mut().map(EventLog::flush);
        let (path, index) = (self.dir.join(PRINTED_FILE), self.prints.index.clone());
        let Some(writer) = self.connections.get(&connection).map(|c| c.writer.clone()) else { return };
        tokio::task::spawn_blocking(move || {
            if let Some(flushed) = flushed {
                let _ = flushed.recv();
            }
            read_printed(&index, &path, &mut tasks);
            writer.send(&Reply { number, body: answer(tasks) });
        });
    }

    fn is_connected(&self, executor: ExecutorId) -> bool {
        self.executors.get(&executor).is_some_and(|e| self.connections.contains_key(&e.connection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn an_index_grows_with_its_file_and_leaves_half_lines_for_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(PRINTED_FILE);
        let mut out = File::create(&path).unwrap();
        let line = |task: u64, attempt: u32, text: &str| {
            let stream = |text: &str| eyas_core::log::PrintedStream {
                head: text.into(),
                tail: String::new(),
                total_bytes: text.len() as u64,
            };
            let line = PrintedLine {
                task: TaskId(task),
                attempt: AttemptNo(attempt),
                stdout: stream(text),
                stderr: stream(""),
            };
            serde_json::to_string(&line).unwrap() + "\n"
        };
        let index = Mutex::default();
        let read = |task: u64| {
            let mut tasks = [TaskPrinted { task: TaskId(task), ..TaskPrinted::default() }];
            read_printed(&index, &path, &mut tasks);
            let texts = tasks[0].attempts.iter().map(|p| String::from_utf8(p.stdout.head.clone()).unwrap());
            texts.collect::<Vec<_>>()
        };
        let (first, last) = (line(1, 1, "a\nb"), line(1, 2, "{\"task\":12,"));
        let (half, rest) = last.split_at(20);
        write!(out, "{first}{}{half}", line(12, 1, "other")).unwrap();
        assert_eq!((read(1), read(12), read(2)), (vec!["a\nb".into()], vec!["other".into()], vec![]));
        write!(out, "{rest}").unwrap();
        assert_eq!(read(1), ["a\nb", "{\"task\":12,"]);
        assert_eq!(read(12), ["other"]);
    }
}
