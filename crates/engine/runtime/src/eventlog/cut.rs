//! The event log without its oldest part, after the runs in that part were forgotten.
//!
//! The log is kept from the line on that opens the oldest known run. All lines before it are replaced by a
//! head, from which readers learn what they need of them: a header that says that the life is cut, how many
//! tasks had been numbered, which executors were connected, whether they were about to leave and how busy
//! their processors were, and which forgotten runs had not ended yet. These lines all have the time of the
//! first line that is kept, so that a report of the whole log begins there.
//!
//! In: the log's files, as far as they are written. Out: a second file beside each, which [`super::EventLog`]
//! puts in its place.

use super::Appender;
use eyas_core::event::{Action, Event};
use eyas_core::log::{HEADER_START, Header, Line, What};
use eyas_terms::{ExecutorId, RunId, TaskId, Timestamp};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A log is written anew only if at least this part of it goes. The session asks for a cut when a fifth of the
/// log's tasks are forgotten, and those may have shorter lines than the others.
const GAIN_MIN: f64 = 0.1;

/// Where the needed part of the log begins: the oldest known run, and the smallest number of a known task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Needed {
    pub from_run: RunId,
    pub from_task: TaskId,
}

/// A file written beside the log, covering the log up to a certain byte. When this is dropped before the file
/// has taken the log's place, the file is removed.
pub(super) struct Shortened {
    path: PathBuf,
    /// The bytes of the log that this file covers.
    covered_bytes: u64,
}

/// What is known at some line of the log.
#[derive(Default)]
struct State {
    header: Option<Header>,
    n_tasks: u64,
    /// The lines which say that an executor is connected, silent or about to leave, and how busy its processors are.
    executors: BTreeMap<ExecutorId, Vec<What>>,
    /// The lines that opened and accepted runs which have not ended.
    runs: BTreeMap<RunId, Vec<What>>,
}

impl State {
    fn take(&mut self, what: What) {
        match what {
            What::In(Event::ArrayAdded { array, .. }) => {
                self.n_tasks = self.n_tasks.saturating_add(array.n_tasks.into())
            }
            What::In(Event::TasksNumbered { n_tasks }) => self.n_tasks = self.n_tasks.max(n_tasks),
            What::In(Event::ExecutorJoined { executor, .. }) => {
                self.executors.insert(executor, vec![what]);
            }
            What::In(
                Event::ExecutorSilent { executor }
                | Event::ExecutorDraining { executor }
                | Event::ExecutorLeaving { executor, .. },
            ) => {
                self.executors.entry(executor).and_modify(|lines| lines.push(what));
            }
            What::In(Event::ProcessorsUsed { executor, .. }) => {
                let is_before = |line: &What| matches!(line, What::In(Event::ProcessorsUsed { .. }));
                self.executors.entry(executor).and_modify(|lines| {
                    lines.retain(|line| !is_before(line));
                    lines.push(what);
                });
            }
            What::In(Event::ExecutorLost { executor, .. })
            | What::Out(Action::ForgetExecutor { executor }) => {
                self.executors.remove(&executor);
            }
            What::In(Event::RunOpened { run, .. }) => {
                self.runs.insert(run, vec![what]);
            }
            What::In(Event::RunCommitted { run }) => {
                let is_part = |lines: &Vec<What>| {
                    matches!(lines.first(), Some(What::In(Event::RunOpened { into: Some(_), .. })))
                };
                match self.runs.get(&run).is_some_and(is_part) {
                    true => drop(self.runs.remove(&run)),
                    false => drop(self.runs.entry(run).and_modify(|lines| lines.push(what))),
                }
            }
            What::In(Event::RunAborted { run })
            | What::Out(Action::RefuseRun { run, .. } | Action::EndRun { run }) => {
                self.runs.remove(&run);
            }
            _ => {}
        }
    }

    fn begin_life(&mut self, header: Header) {
        *self = State { header: Some(header), ..State::default() };
    }

    /// The lines that replace all lines before the one of time `t`.
    fn head(self, t: Timestamp) -> Option<Vec<u8>> {
        let mut lines = super::Lines::default();
        lines.push(&Header { t, is_cut: true, ..self.header? });
        let numbered = What::In(Event::TasksNumbered { n_tasks: self.n_tasks });
        let rest = self.executors.into_values().chain(self.runs.into_values()).flatten();
        [numbered].into_iter().chain(rest).for_each(|what| lines.push(&Line { t, what }));
        Some(lines.into_bytes())
    }
}

/// Whether a line is one that [`State`] uses.
pub(super) fn is_of_state(line: &[u8]) -> bool {
    const NAMES: [&[u8]; 14] = [
        b"array_added",
        b"tasks_numbered",
        b"executor_joined",
        b"executor_silent",
        b"executor_draining",
        b"executor_leaving",
        b"executor_lost",
        b"processors_used",
        b"forget_executor",
        b"run_opened",
        b"run_committed",
        b"run_aborted",
        b"refuse_run",
        b"end_run",
    ];
    let name = &line[..line.len().min(64)];
    let name = name.iter().position(|b| *b == b':').map_or(name, |colon| &name[colon + 1..]);
    let mut quoted = name.split(|b| *b == b'"');
    // Before the name come the time and a comma, `in` or `out`, a colon and a brace.
    quoted.nth(3).is_some_and(|name| NAMES.contains(&name))
}

/// Where `needle` begins in `text`.
fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|w| w == needle)
}

/// The new beginning of the events' file, and how many bytes of the file it replaces. `None`: the file stays
/// as it is.
fn find_head(file: &mut impl BufRead, end: u64, from_run: RunId) -> io::Result<Option<(Vec<u8>, u64)>> {
    let (mut state, mut line, mut at, mut last) = (State::default(), vec![], 0, Timestamp(0));
    loop {
        line.clear();
        let n_bytes = file.read_until(b'\n', &mut line)? as u64;
        if n_bytes == 0 || at + n_bytes > end {
            break;
        }
        // A line that was cut off may precede a header on the same line.
        let header = find(&line, HEADER_START).and_then(|at| serde_json::from_slice(&line[at..]).ok());
        if let Some(header) = header {
            state.begin_life(header);
        } else if is_of_state(&line)
            && let Ok(Line { t, what }) = serde_json::from_slice(&line)
        {
            last = t;
            if matches!(what, What::In(Event::RunOpened { run, .. }) if run >= from_run) {
                break;
            }
            state.take(what);
        }
        at += n_bytes;
    }
    let is_worth_it = at as f64 >= GAIN_MIN * end as f64;
    Ok(state.head(last).filter(|head| is_worth_it && at > head.len() as u64).map(|head| (head, at)))
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// A new file for at most `bytes` of the file at `path`, if that leaves the room which the dispatcher's other
/// files may need.
fn open_new(path: &Path, bytes: u64) -> io::Result<BufWriter<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(free_bytes) = eyas_storage::free_bytes(&File::open(path)?)
        && free_bytes / 2 < bytes
    {
        let why = format!("its disk has {free_bytes} bytes free, and this takes {bytes} for a while");
        return Err(io::Error::new(io::ErrorKind::StorageFull, why));
    }
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(beside(path))?;
    Ok(BufWriter::with_capacity(256 << 10, file))
}

/// Writes the first `end` bytes of the events' file at `path` anew, without lines that are not needed.
pub(super) fn shorten_events(path: &Path, end: u64, needed: Needed) -> io::Result<Option<Shortened>> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let Some((head, at)) = find_head(&mut file, end, needed.from_run)? else { return Ok(None) };
    let shortened = Shortened { path: path.into(), covered_bytes: end };
    let mut out = open_new(path, end - at)?;
    out.write_all(&head)?;
    file.seek(SeekFrom::Start(at))?;
    io::copy(&mut file.take(end - at), &mut out)?;
    out.flush()?;
    Ok(Some(shortened))
}

/// The same for the file of printed output.
pub(super) fn shorten_printed(path: &Path, end: u64, needed: Needed) -> io::Result<Option<Shortened>> {
    let is_gone = |line: &[u8]| super::task_of(line).is_some_and(|task| task < needed.from_task);
    let mut n_gone = 0;
    for_each_line(path, end, |line| {
        n_gone += if is_gone(line) { line.len() as u64 } else { 0 };
        Ok(())
    })?;
    if n_gone == 0 || (n_gone as f64) < GAIN_MIN * end as f64 {
        return Ok(None);
    }
    let shortened = Shortened { path: path.into(), covered_bytes: end };
    let mut out = open_new(path, end - n_gone)?;
    for_each_line(path, end, |line| if is_gone(line) { Ok(()) } else { out.write_all(line) })?;
    out.flush()?;
    Ok(Some(shortened))
}

/// Gives the lines in the first `end` bytes of the file at `path` to `take`, each with its line end.
fn for_each_line(path: &Path, end: u64, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?.take(end));
    let mut line = vec![];
    while file.read_until(b'\n', &mut line)? > 0 {
        take(&line)?;
        line.clear();
    }
    Ok(())
}

impl Shortened {
    /// Takes the place of the log that `appender` writes, including what was appended since.
    pub(super) fn replace(self, appender: &mut Appender) -> io::Result<()> {
        appender.file.flush()?;
        let mut old = File::open(&self.path)?;
        old.seek(SeekFrom::Start(self.covered_bytes))?;
        let new = beside(&self.path);
        let mut out = File::options().append(true).open(&new)?;
        io::copy(&mut old, &mut out)?;
        std::fs::rename(&new, &self.path)?;
        appender.file = BufWriter::with_capacity(super::BUFFER_BYTES, out);
        Ok(())
    }
}

impl Drop for Shortened {
    fn drop(&mut self) {
        let _ = discard_new(&self.path);
    }
}

/// Removes the file beside `path` that a killed process had begun to write anew.
pub(super) fn discard_new(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(beside(path)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventLog;
    use super::*;
    use eyas_core::log::{EVENTS_FILE, LOG_VERSION, PRINTED_FILE};
    use eyas_terms::array::{Command, Pattern, TaskArray, Template};
    use eyas_terms::processors::ProcessorUse;
    use eyas_terms::{AttemptNo, Outcome};
    use eyas_wire::message::Printed;
    use std::sync::Arc;

    fn header() -> Header {
        Header {
            eyas_event_log: LOG_VERSION,
            eyas_version: "0".into(),
            t: Timestamp(1),
            config: Default::default(),
            cluster: "c".into(),
            is_cut: false,
        }
    }

    /// A log of runs of one task each, and of what those printed.
    struct Story {
        dir: tempfile::TempDir,
        log: EventLog,
        now: u64,
    }

    impl Story {
        fn new() -> Story {
            let dir = tempfile::tempdir().unwrap();
            let log = EventLog::open(dir.path(), &header()).unwrap();
            Story { dir, log, now: 1 }
        }

        fn event(&mut self, event: Event) {
            self.now += 1;
            self.log.event(Timestamp(self.now), &event);
        }

        fn open(&mut self, run: u32) {
            let template = Template::new(Pattern::default(), Command::Exec(vec![]));
            let array =
                Arc::new(TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None });
            self.event(Event::RunOpened { run: RunId(run), name: "r".repeat(500), keep: false, into: None });
            self.event(Event::ArrayAdded { run: RunId(run), array });
            self.event(Event::RunCommitted { run: RunId(run) });
        }

        fn end(&mut self, run: u32) {
            let task = TaskId(u64::from(run) - 1);
            let printed = Printed {
                task,
                attempt: AttemptNo(1),
                stdout: Default::default(),
                stderr: Default::default(),
            };
            self.log.printed(Box::new(printed));
            self.log.action(Timestamp(self.now), &Action::EndTask { task, outcome: Outcome::Done, by: None });
            self.log.action(Timestamp(self.now), &Action::EndRun { run: RunId(run) });
        }

        fn cut(&mut self, from_run: u32) {
            self.log.cut(Needed { from_run: RunId(from_run), from_task: TaskId(u64::from(from_run) - 1) });
        }

        fn read(&self, file: &str) -> Vec<String> {
            let text = std::fs::read_to_string(self.dir.path().join(file)).unwrap();
            text.lines().map(String::from).collect()
        }

        /// The files once the log has been cut.
        fn when_cut(&mut self) -> (Vec<String>, Vec<String>) {
            while !self.read(EVENTS_FILE).first().is_some_and(|line| line.contains("is_cut")) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            // Both files have been replaced, and what came meanwhile is in them.
            self.log.flush().recv().unwrap();
            (self.read(EVENTS_FILE), self.read(PRINTED_FILE))
        }
    }

    #[test]
    fn lines_before_the_oldest_known_run_go_and_executors_stay() {
        let mut story = Story::new();
        for executor in 1..4 {
            story.event(Event::ExecutorJoined { executor: ExecutorId(executor), offer: Default::default() });
        }
        story.event(Event::ExecutorSilent { executor: ExecutorId(2) });
        story.event(Event::ExecutorDraining { executor: ExecutorId(2) });
        for n_processors in [4, 8] {
            let used = ProcessorUse { n_processors, ..Default::default() };
            story.event(Event::ProcessorsUsed { executor: ExecutorId(1), used });
        }
        story.open(1);
        story.open(2);
        story.event(Event::ExecutorLost { executor: ExecutorId(3), reason: "gone".into() });
        story.end(1);
        // The second run ends after the third one began.
        story.open(3);
        story.end(2);
        story.log.flush().recv().unwrap();
        let (whole, printed) = (story.read(EVENTS_FILE), story.read(PRINTED_FILE));
        story.cut(3);
        story.end(3);
        let (events, printed_now) = story.when_cut();
        let first = whole.iter().position(|line| line.contains(r#""run_opened":{"run":3"#)).unwrap();
        let t = serde_json::from_str::<Line>(&whole[first]).unwrap().t;
        let head: Header = serde_json::from_str(&events[0]).unwrap();
        assert_eq!(head, Header { t, is_cut: true, ..header() });
        let at = events.iter().position(|line| *line == whole[first]).unwrap();
        let state: Vec<Line> = events[1..at].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(state.iter().all(|line| line.t == t));
        let names: Vec<&str> =
            events[1..at].iter().map(|line| line.split_once(r#""in":{""#).expect("an event").1).collect();
        let begins = [
            "tasks_numbered\":{\"n_tasks\":2",
            "executor_joined\":{\"executor\":1",
            "processors_used\":{\"executor\":1,\"used\":{\"machine\":0,\"n_processors\":8",
            "executor_joined\":{\"executor\":2",
        ];
        let begins = [
            &begins[..],
            &[
                "executor_silent",
                "executor_draining",
                "run_opened\":{\"run\":2",
                "run_committed\":{\"run\":2",
            ],
        ]
        .concat();
        assert_eq!(names.len(), begins.len(), "{names:?}");
        for (name, begin) in names.iter().zip(begins) {
            assert!(name.starts_with(begin), "{name} is not {begin}");
        }
        assert_eq!(events[at..events.len() - 2], whole[first..], "the rest is as it was");
        assert!(events.last().unwrap().contains("end_run"), "what came meanwhile is there");
        assert_eq!((printed.len(), printed_now.len()), (2, 1));
        assert!(printed_now[0].starts_with(r#"{"task":2,"#));
    }

    #[test]
    fn a_log_is_cut_again_and_goes_on() {
        let mut story = Story::new();
        for run in 1..6 {
            story.open(run);
            story.end(run);
        }
        story.cut(4);
        let once = story.when_cut().0;
        story.cut(6);
        let twice = loop {
            let now = story.when_cut().0;
            if now.len() != once.len() {
                break now;
            }
        };
        // All runs are forgotten.
        let numbered: Line = serde_json::from_str(&twice[1]).unwrap();
        assert_eq!((twice.len(), numbered.what), (2, What::In(Event::TasksNumbered { n_tasks: 5 })));
        story.open(6);
        let Story { dir, log, .. } = story;
        drop(log);
        assert_eq!(std::fs::read_to_string(dir.path().join(EVENTS_FILE)).unwrap().lines().count(), 5);
        drop(EventLog::open(dir.path(), &header()).unwrap());
        assert_eq!(std::fs::read_to_string(dir.path().join(EVENTS_FILE)).unwrap().lines().count(), 6);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside the log");
    }

    /// A cut that was wanted during another one was left out, so that the log was about more and more forgotten runs.
    #[test]
    fn a_cut_that_is_wanted_during_another_one_comes_after_it() {
        let mut story = Story::new();
        for run in 1..200 {
            story.open(run);
            story.end(run);
        }
        for run in 60..150 {
            story.cut(run);
        }
        let is_begin = |line: &String| line.contains(r#""run_opened""#);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let first = loop {
            let (events, printed) = story.when_cut();
            let first = events.into_iter().find(is_begin).unwrap();
            if (first.contains(r#"{"run":149,"#) && printed.len() == 51)
                || std::time::Instant::now() > deadline
            {
                break first;
            }
        };
        assert!(first.contains(r#"{"run":149,"#), "{first}");
    }

    #[test]
    fn a_log_stays_whole_where_little_would_go() {
        let mut story = Story::new();
        story.open(1);
        story.end(1);
        for run in 2..30 {
            story.open(run);
        }
        story.log.flush().recv().unwrap();
        let path = story.dir.path().join(EVENTS_FILE);
        let end = path.metadata().unwrap().len();
        let needed = |run| Needed { from_run: RunId(run), from_task: TaskId(0) };
        assert!(shorten_events(&path, end, needed(2)).unwrap().is_none());
        assert!(shorten_events(&path, end, needed(6)).unwrap().is_some());
    }
}
