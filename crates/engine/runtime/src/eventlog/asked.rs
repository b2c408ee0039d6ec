//! What users ask from the log's files: the lines about a task, and the output of programs.
//!
//! The output of ended attempts is in `printed.jsonl`. An index says where in that file each task's output
//! is; it is made when somebody first asks, and grows with the file.

use super::{task_of, to_message};
use eyas_core::event::{Event, Offer};
#[cfg(test)]
use eyas_core::log::PRINTED_FILE;
use eyas_core::log::{FailureLine, Header, Line, PrintedLine, What, add_printed};
use eyas_terms::*;
use eyas_wire::message::*;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;

/// How many log lines an explanation holds at most.
const EXPLAIN_LINES_MAX: usize = 200;

/// Where in the file the output of each task is.
#[derive(Default)]
pub(crate) struct Index {
    /// The device and inode of the file that the index is of. The file is replaced by another when the log is
    /// cut.
    file: Option<(u64, u64)>,
    /// All whole lines before this position are in the index.
    end: u64,
    at: HashMap<TaskId, Vec<u64>>,
}

impl Index {
    /// Adds to the index what was written since the last call.
    fn grow(&mut self, file: &mut BufReader<File>) -> std::io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let found = file.get_ref().metadata()?;
        let found = Some((found.dev(), found.ino()));
        if self.file != found {
            *self = Index { file: found, ..Index::default() };
        }
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

    /// Adds the output of the attempts of `task`, and why it failed where that is missing.
    fn add_to(&self, file: &mut BufReader<File>, task: &mut TaskPrinted) {
        let (mut attempts, mut failure) = (vec![], None);
        for at in self.at.get(&task.task).into_iter().flatten() {
            let mut line = String::new();
            if file.seek(SeekFrom::Start(*at)).and_then(|_| file.read_line(&mut line)).is_err() {
                continue;
            }
            if let Ok(line) = serde_json::from_slice::<PrintedLine>(line.as_bytes()) {
                add_printed(&mut attempts, to_message(&line));
            } else if let Ok(line) = serde_json::from_slice::<FailureLine>(line.as_bytes()) {
                // A task may fail again after a restart: its last failure counts.
                failure = Some(line.failure);
            }
        }
        task.attempts = attempts;
        if let Some(failure) = failure.filter(|_| task.lacks_failure()) {
            task.fail(&failure);
        }
    }
}

/// Adds the output of each of `tasks` and why it failed, in their order, as far as `file` has it.
pub(crate) fn read_printed(index: &Mutex<Index>, path: &Path, tasks: &mut [TaskPrinted]) {
    let Ok(file) = File::open(path) else { return };
    let mut file = BufReader::new(file);
    let mut index = index.lock().expect("nobody panics with it");
    let _ = index.grow(&mut file);
    for task in tasks {
        index.add_to(&mut file, task);
    }
}

/// What an event log has about one task.
#[derive(Default)]
pub(crate) struct About {
    /// The lines that mention it, and those that say what became of the executor that had it.
    pub lines: Vec<String>,
    /// The dispatcher processes: when each began, and the names of those of its executors that the lines mention.
    pub lives: Vec<(Timestamp, Vec<(ExecutorId, String)>)>,
}

/// A dispatcher process while its lines are read.
#[derive(Default)]
struct Life {
    began: Timestamp,
    /// All of its executors so far.
    names: HashMap<u32, String>,
    mentioned: BTreeMap<ExecutorId, String>,
}

impl Life {
    fn mention(&mut self, executor: u32) {
        if let Some(name) = self.names.get(&executor) {
            self.mentioned.insert(ExecutorId(executor), name.clone());
        }
    }
}

/// Reads what the event log at `path` has about `task`. Nothing, where it cannot be read.
pub(crate) fn lines_about(path: &Path, task: TaskId) -> About {
    let needle = format!("\"task\":{task}");
    let Ok(file) = std::fs::File::open(path) else { return About::default() };
    let mut found = vec![];
    let mut lives: Vec<Life> = vec![Life::default()];
    // Who has the task.
    let mut holder = None;
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        if line.starts_with("{\"eyas_event_log\":") {
            if let Ok(header) = serde_json::from_slice::<Header>(line.as_bytes()) {
                lives.push(Life { began: header.t, ..Life::default() });
                holder = None;
            }
            continue;
        }
        let life = lives.last_mut().expect("there is one from the beginning");
        if let Some((t, executor, offer)) = joins_in(&line) {
            life.names.insert(executor.0, offer.name.clone());
            if offer.attempts.iter().any(|(of, _)| *of == task) {
                holder = Some(executor.0);
                life.mention(executor.0);
                let joined = Line { t, what: What::In(Event::ExecutorJoined { executor, offer }) };
                if found.len() < EXPLAIN_LINES_MAX {
                    found.push(serde_json::to_string(&joined).expect("log lines have string keys"));
                }
            }
            continue;
        }
        if line.find(",\"lost\":{").is_some_and(|at| at < 32) {
            found.push(line);
            continue;
        }
        let is_of_task = line
            .find(&needle)
            .is_some_and(|at| !line[at + needle.len()..].starts_with(|c: char| c.is_ascii_digit()));
        if is_of_task {
            numbers_after(&line, "\"executor\":").for_each(|executor| life.mention(executor));
            numbers_after(&line, "\"from\":").for_each(|executor| life.mention(executor));
            if line.contains("\"assign\":{") {
                holder = executor_in(&line);
            } else if line.contains("\"end_task\":{") {
                holder = None;
            }
        }
        let is_of_holder = || {
            holder.is_some() && FATES.iter().any(|fate| line.contains(fate)) && executor_in(&line) == holder
        };
        if (is_of_task || is_of_holder()) && found.len() < EXPLAIN_LINES_MAX {
            found.push(line);
        }
    }
    let named = lives.into_iter().map(|life| (life.began, life.mentioned.into_iter().collect()));
    About { lines: found, lives: named.collect() }
}

/// How lines begin that say what became of an executor.
const FATES: [&str; 4] =
    ["{\"executor_silent\":{", "{\"executor_leaving\":{", "{\"executor_lost\":{", "{\"forget_executor\":{"];

/// When an executor joins, and which, with what it offers besides what its cache holds.
fn joins_in(line: &str) -> Option<(Timestamp, ExecutorId, Offer)> {
    if !line.contains("{\"executor_joined\":{") {
        return None;
    }
    match serde_json::from_slice(line.as_bytes()).ok()? {
        Line { t, what: What::In(Event::ExecutorJoined { executor, offer }) } => {
            Some((t, executor, Offer { held: vec![], ..offer }))
        }
        _ => None,
    }
}

/// The first executor that a line names.
fn executor_in(line: &str) -> Option<u32> {
    numbers_after(line, "\"executor\":").next()
}

/// The numbers that stand directly behind `key`.
fn numbers_after<'a>(line: &'a str, key: &'a str) -> impl Iterator<Item = u32> + 'a {
    line.match_indices(key).filter_map(move |(at, _)| {
        let rest = &line[at + key.len()..];
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..n_digits].parse().ok()
    })
}

/// The output of a task's attempts.
pub(crate) fn printed_by(path: &Path, task: TaskId) -> Vec<Printed> {
    let prefix = format!("{{\"task\":{task},");
    let Ok(file) = std::fs::File::open(path) else { return vec![] };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    let lines = lines.filter(|line| line.starts_with(&prefix));
    let mut found = vec![];
    lines
        .filter_map(|line| serde_json::from_slice::<PrintedLine>(line.as_bytes()).ok())
        .for_each(|line| add_printed(&mut found, to_message(&line)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_about_a_task_say_what_became_of_the_executor_that_had_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let lines = [
            r#"{"t":1,"in":{"executor_silent":{"executor":3}}}"#,
            r#"{"t":2,"out":{"assign":{"executor":3,"assignment":{"task":7,"attempt":1}}}}"#,
            r#"{"t":3,"out":{"assign":{"executor":4,"assignment":{"task":77,"attempt":1}}}}"#,
            r#"{"t":4,"in":{"executor_silent":{"executor":3}}}"#,
            r#"{"t":5,"in":{"executor_silent":{"executor":33}}}"#,
            r#"{"t":6,"out":{"forget_executor":{"executor":3}}}"#,
            r#"{"t":7,"out":{"assign":{"executor":4,"assignment":{"task":7,"attempt":2}}}}"#,
            r#"{"t":8,"in":{"executor_lost":{"executor":3,"reason":"late"}}}"#,
            r#"{"t":9,"in":{"attempt_ended":{"executor":4,"report":{"task":7,"attempt":2}}}}"#,
            r#"{"t":10,"out":{"end_task":{"task":7,"outcome":"done"}}}"#,
            r#"{"t":11,"in":{"executor_lost":{"executor":4,"reason":"it was asked to go"}}}"#,
        ];
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let expected: Vec<&str> = [1, 3, 5, 6, 8, 9].iter().map(|n| lines[*n]).collect();
        assert_eq!(lines_about(&path, TaskId(7)).lines, expected);
    }

    #[test]
    fn executors_have_the_names_of_their_own_dispatcher_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let header = |t| {
            let config = Default::default();
            let header = Header {
                eyas_event_log: eyas_core::log::LOG_VERSION,
                eyas_version: "0".into(),
                t: Timestamp(t),
                config,
                cluster: "c".into(),
                is_cut: false,
            };
            serde_json::to_string(&header).unwrap()
        };
        let joined = |t, executor, name: &str| {
            let offer = Offer { name: name.into(), ..Offer::default() };
            let event = Event::ExecutorJoined { executor: ExecutorId(executor), offer };
            serde_json::to_string(&Line { t: Timestamp(t), what: What::In(event) }).unwrap()
        };
        let assigned = |t: u64, executor: u32, attempt: u32| {
            format!(
                r#"{{"t":{t},"out":{{"assign":{{"executor":{executor},"assignment":{{"task":7,"attempt":{attempt}}}}}}}}}"#
            )
        };
        let lines = [
            header(1),
            joined(2, 1, "red"),
            joined(3, 2, "blue"),
            assigned(4, 2, 1),
            header(10),
            joined(11, 2, "red"),
            joined(12, 1, "green"),
            assigned(13, 1, 2),
            r#"{"t":14,"in":{"attempt_ended":{"executor":1,"report":{"task":7,"inputs":[{"remote_hit":{"from":2}}]}}}}"#.into(),
        ];
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let names: Vec<(u64, Vec<(u32, String)>)> = lines_about(&path, TaskId(7))
            .lives
            .into_iter()
            .map(|(began, names)| (began.0, names.into_iter().map(|(e, name)| (e.0, name)).collect()))
            .collect();
        assert_eq!(
            names[1..],
            [(1, vec![(2, "blue".into())]), (10, vec![(1, "green".into()), (2, "red".into())])]
        );
    }

    #[test]
    fn an_index_grows_with_its_file_and_leaves_half_lines_for_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(PRINTED_FILE);
        let mut out = File::create(&path).unwrap();
        let line = |task: u64, attempt: u32, text: &str| {
            let stream = |text: &str| eyas_core::log::PrintedStream {
                head: text.into(),
                total_bytes: text.len() as u64,
                ..Default::default()
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

    #[test]
    fn the_last_failure_of_a_task_is_told_beside_what_it_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(PRINTED_FILE);
        let failure = |message: &str| Failure { kind: FailureKind::ExitCode(3), message: message.into() };
        let line = |task: u64, message: &str| {
            let line = FailureLine { task: TaskId(task), failure: failure(message) };
            serde_json::to_string(&line).unwrap() + "\n"
        };
        let printed = r#"{"task":1,"attempt":1,"stdout":{"head":"a","tail":"","total_bytes":1},"stderr":{"head":"","tail":"","total_bytes":0}}"#;
        let text = [line(1, "before a restart"), format!("{printed}\n"), line(1, "at last"), line(2, "two")]
            .concat();
        std::fs::write(&path, text).unwrap();
        let asked = |task: u64, state: PrintedState| {
            let mut tasks = [TaskPrinted { task: TaskId(task), state, ..TaskPrinted::default() }];
            read_printed(&Mutex::default(), &path, &mut tasks);
            let [TaskPrinted { reason, failure, attempts, .. }] = tasks;
            (reason, failure, attempts.len())
        };
        let told = |message: &str, n: usize| (Some(message.to_string()), Some(FailureKind::ExitCode(3)), n);
        assert_eq!(asked(1, PrintedState::Failed), told("at last", 1));
        assert_eq!(asked(2, PrintedState::Failed), told("two", 0));
        // A task that ended well when it was done again.
        assert_eq!(asked(1, PrintedState::Done), (None, None, 1));
    }
}
