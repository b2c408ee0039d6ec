//! Files that eyas wrote and finds again: the journal, the event log, the join file.

use crate::{Rng, Target, arbitrary};
use eyas_core::log::{EVENTS_FILE, Header, Line, PRINTED_FILE, PrintedLine};
use eyas_journal::{Journal, Options, Sync};
use eyas_papers::workload::mi::{MiConfig, mi};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::world::{Scheduling, simulate};
use eyas_wire::identity::{Identity, Join};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// In memory where there is such a place.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

fn empty(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
}

/// An input is the files of a journal after each other, each as `name length LF bytes`.
pub struct JournalFiles {
    dir: TempDir,
}

impl JournalFiles {
    pub fn new() -> JournalFiles {
        JournalFiles { dir: folder() }
    }

    fn options() -> Options {
        Options { sync: Sync::None, segment_bytes: 4096, ..Options::default() }
    }
}

/// Body of record `seq`.
fn body(seq: u64) -> Vec<u8> {
    let mut body = seq.to_le_bytes().to_vec();
    body.resize(8 + (seq * 37 % 300) as usize, seq as u8);
    body
}

fn pack(dir: &Path) -> Vec<u8> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .expect("the folder is there")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let mut all = vec![];
    for name in names {
        let bytes = fs::read(dir.join(&name)).expect("the file is there");
        let _ = writeln!(all, "{name} {}", bytes.len());
        all.extend_from_slice(&bytes);
    }
    all
}

/// Puts what `bytes` say into `dir`; what makes no sense is left out.
fn unpack(mut bytes: &[u8], dir: &Path) {
    while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes = &bytes[end + 1..];
        let Some((name, length)) = line.rsplit_once(' ') else { continue };
        let length = length.parse::<usize>().unwrap_or(bytes.len()).min(bytes.len());
        let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        if is_plain && !name.is_empty() && !name.starts_with('.') {
            let _ = fs::write(dir.join(name), &bytes[..length]);
        }
        bytes = &bytes[length..];
    }
}

impl Target for JournalFiles {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let dir = folder();
        let (journal, _) = Journal::open(dir.path(), Self::options()).expect("a new journal");
        for seq in 1..=rng.below(60) as u64 {
            journal.append(&body(seq)).expect("room");
        }
        journal.close().expect("it is written");
        pack(dir.path())
    }

    /// What is read back is a beginning of what was written: nothing else, nothing twice, nothing left out. After that
    /// the journal is as good as new, and what is appended to it is read back.
    fn run(&mut self, bytes: &[u8]) {
        let dir = self.dir.path();
        empty(dir);
        unpack(bytes, dir);
        let mut last = 0;
        match Journal::open(dir, Self::options()) {
            Ok((journal, recovered)) => {
                let read = recovered.for_each(|seq, found| {
                    assert_eq!(seq.0, last + 1, "a record is left out");
                    assert!(found == body(seq.0), "record {} is not what was written", seq.0);
                    last = seq.0;
                });
                if let Err(error) = read {
                    return super::texts::check_message(&error.to_string());
                }
                let first = journal.append(b"after").expect("room");
                assert_eq!(first.0, last + 1);
                journal.close().expect("it is written");
            }
            Err(error) => return super::texts::check_message(&error.to_string()),
        }
        let (journal, recovered) =
            Journal::open(dir, Self::options()).expect("it was mended when it was opened");
        let mut n = 0;
        recovered
            .for_each(|seq, found| {
                n = seq.0;
                assert!(found == body(n) || n == last + 1 && found == b"after", "record {n} is another");
            })
            .expect("it was mended when it was opened");
        assert_eq!(n, last + 1, "what was appended after a recovery is read back");
        drop(journal);
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of a small simulated run, which is what a live one looks like.
fn recorded(seed: u64) -> Vec<u8> {
    let machine = Machine { nodes: 3, ..preset("tg-anl-64").expect("a known machine") };
    let faults = Faults { losses_per_node_hour: 60.0, ..Faults::default() };
    let workload = mi(seed, MiConfig { n_tasks: 20, n_files: 5, ..MiConfig::default() }).expect("a workload");
    let log = Shared::default();
    let scheduling = Scheduling::default();
    simulate(&machine, &scheduling, &faults, workload, seed, Some(Box::new(log.clone()))).expect("it ends");

    log.0.lock().expect("nobody panics with it").clone()
}

/// An event log, and what programs printed, after a line of its own.
pub struct EventLogs {
    dir: TempDir,
    recorded: Vec<Vec<u8>>,
}

const PRINTED_FOLLOWS: &[u8] = b"#printed\n";

impl EventLogs {
    pub fn new() -> EventLogs {
        EventLogs { dir: folder(), recorded: (1..4).map(recorded).collect() }
    }
}

impl Target for EventLogs {
    fn name(&self) -> &'static str {
        "events"
    }

    fn is_json(&self) -> bool {
        true
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let log = rng.pick(&self.recorded);
        let mut lines: Vec<&[u8]> = log.split_inclusive(|b| *b == b'\n').collect();
        // Part of it is enough, and quicker.
        let n = 1 + rng.below(lines.len());
        lines.truncate(n.max(2));
        let mut own: Vec<Vec<u8>> = vec![];
        for _ in 0..rng.below(6) {
            if let Some(line) = arbitrary::value::<Line>(rng, true) {
                own.extend(serde_json::to_vec(&line).ok().map(|line| [line, vec![b'\n']].concat()));
            }
        }
        for line in &own {
            let at = 1 + rng.below(lines.len());
            lines.insert(at, line);
        }
        let mut bytes = lines.concat();
        if rng.one_in(3) {
            bytes.extend_from_slice(PRINTED_FOLLOWS);
            for _ in 0..rng.below(3) {
                if let Some(line) = arbitrary::value::<PrintedLine>(rng, true) {
                    let _ = serde_json::to_writer(&mut bytes, &line);
                    bytes.push(b'\n');
                }
            }
        }
        bytes
    }

    fn words(&self) -> &'static [&'static str] {
        &["null", "-1", "{\"t\":1}", "#printed\n", "\"task\":0", "1e400", "\\u001b"]
    }

    fn run(&mut self, bytes: &[u8]) {
        let dir = self.dir.path();
        empty(dir);
        let cut = bytes.windows(PRINTED_FOLLOWS.len()).position(|w| w == PRINTED_FOLLOWS);
        let (events, printed) = match cut {
            Some(at) => (&bytes[..at], &bytes[at + PRINTED_FOLLOWS.len()..]),
            None => (bytes, &[][..]),
        };
        fs::write(dir.join(EVENTS_FILE), events).expect("room");
        fs::write(dir.join(PRINTED_FILE), printed).expect("room");
        let dirs = [dir.to_path_buf()];
        let check_error = |error: &eyas_report::Error| super::texts::check_message(&error.to_string());
        let _ = serde_json::from_slice::<Header>(events);
        if let Err(error) = eyas_report::membership(dir) {
            check_error(&error);
        }
        match eyas_report::read_group(&dirs) {
            Ok(log) => {
                let report = eyas_report::metrics(&log);
                let page = eyas_report::html(&report, Some(&report));
                assert!(!page.contains("\u{1b}") && !page.contains("<script>alert"), "the page is unsafe");
                let _ = serde_json::to_vec(&report);
            }
            Err(error) => check_error(&error),
        }
        for name in ["#0", "#3", "0", "a1"] {
            match eyas_report::story_from_group(&dirs, name, None) {
                Ok(story) => {
                    let text = eyas_report::explain_lines(&story);
                    let bad = text.chars().find(|c| eyas_text::is_unsafe(*c) && *c != '\n');
                    assert!(bad.is_none(), "an explanation with {bad:?}: {text}");
                }
                Err(error) => check_error(&error),
            }
        }
        match eyas_report::workflow(&dirs, None) {
            Ok(workflow) => drop(eyas_workflow::stages(&workflow)),
            Err(error) => check_error(&error),
        }
        if let Err(error) = eyas_report::replay(dir) {
            check_error(&error);
        }
    }
}

/// The file that lets a client or executor in.
pub struct JoinFiles {
    dir: TempDir,
    good: Vec<u8>,
}

impl JoinFiles {
    pub fn new() -> JoinFiles {
        let dir = folder();
        let path = dir.path().join("join.json");
        let identity = Identity::generate().expect("a new identity");
        let join = Join::new("127.0.0.1:1".into(), "c".into(), "/d".into(), identity);
        join.write(&path).expect("room");
        let good = fs::read(&path).expect("it was written");
        JoinFiles { dir, good }
    }
}

impl Target for JoinFiles {
    fn name(&self) -> &'static str {
        "join"
    }

    fn is_json(&self) -> bool {
        true
    }

    fn make(&self, _: &mut Rng) -> Vec<u8> {
        self.good.clone()
    }

    fn run(&mut self, bytes: &[u8]) {
        let path = self.dir.path().join("join.json");
        fs::write(&path, bytes).expect("room");
        match Join::read(&path) {
            Ok(join) => {
                if let Err(error) = join.identity.client_config() {
                    super::texts::check_message(&error.to_string());
                }
            }
            Err(error) => super::texts::check_message(&error.to_string()),
        }
    }
}
