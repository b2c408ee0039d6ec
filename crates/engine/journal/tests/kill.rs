//! Promise 1 for real: a process that appends and acknowledges is killed with SIGKILL; the acknowledged
//! records are still there.

mod support;

use eyas_journal::{ErrorKind, Journal, Notice, Options};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use support::*;

const CHILD_DIR: &str = "EYAS_JOURNAL_TEST_DIR";

/// No test of its own: with the variable set, this is the process that is killed.
#[test]
fn child_appends_for_ever() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let on_notice = |notice| {
        if let Notice::Durable(seq) = notice {
            let mut out = std::io::stdout().lock();
            writeln!(out, "acked {seq}").and_then(|()| out.flush()).unwrap();
        }
    };
    let options =
        Options { on_notice: Some(Box::new(on_notice)), segment_bytes: 200_000, ..Options::default() };
    let (journal, recovered) = Journal::open(dir.as_ref(), options).unwrap();
    let mut seq = recovered.last_seq.0;
    loop {
        seq += 1;
        assert_eq!(journal.append_waiting(&body(seq)).unwrap().0, seq);
    }
}

fn start_child(dir: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_appends_for_ever", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn all_that_was_acknowledged_survives_kill_9() {
    let root = tempfile::tempdir().unwrap();
    let mut acked = 0;
    for acks_before_kill in [1, 2, 3, 5, 8, 13] {
        let mut child = start_child(root.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acks_n = 0;
        while acks_n < acks_before_kill {
            let line = lines.next().expect("the child goes on until it is killed").unwrap();
            // The test harness of the child prints lines of its own.
            if let Some((_, seq)) = line.split_once("acked ") {
                acked = seq.parse().unwrap();
                acks_n += 1;
            }
        }
        if acks_before_kill == 5 {
            let error = Journal::open(root.path(), Options::default()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InUse { pid: Some(child.id()) });
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some(seq) = line.strip_prefix("acked ").and_then(|seq| seq.parse().ok()) {
                acked = seq;
            }
        }
        let records = read_all(root.path()).unwrap();
        assert!(records.len() as u64 >= acked, "{} of {acked}", records.len());
        assert_eq!(records, numbered(1..=records.len() as u64));
    }
    assert!(files(root.path(), "segment-").len() > 1, "the test is meant to cross segments");
}
