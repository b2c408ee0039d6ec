//! What earlier runs made of what: of logs that a live dispatcher would have written.

mod common;

use common::*;
use eyas_core::event::{Event, ReplicaAdded};
use eyas_core::log::{Line, What};
use eyas_report::memo::{Ended, Memo, Record};
use eyas_terms::*;
use std::path::Path;

fn memo_of(cluster: &Cluster, dir: &Path) -> Memo {
    cluster.save(dir);
    Memo::read(dir).unwrap()
}

/// Ids of the tasks of [`story`], with the file that each reads.
fn tasks() -> Vec<(String, String)> {
    let of = |name: &str, n: u32, n_files: u32| -> Vec<(String, String)> {
        (0..n).map(|i| (format!("{name}-{i}"), format!("sky/f{}", i % n_files))).collect()
    };
    [of("a", 30, 7), of("b", 10, 3), of("c", 12, 5)].concat()
}

#[test]
fn each_task_that_ended_well_is_found_by_what_it_did_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let memo = memo_of(&story("good-cache-compute", 7, FAIR), dir.path());
    for (id, file) in tasks() {
        let record = memo.last_of(&id).unwrap();
        assert_eq!(record.ended, Ended::Well);
        assert_eq!(record.inputs, [("in".into(), Some(digest_of(&file)))], "{id}");
        assert_eq!(record.outputs, [("out".into(), Digest::default())]);
        let key = record.recipe.key([("in", digest_of(&file))]);
        assert!(memo.find(key).iter().any(|number| memo.get(*number).id == id));
        let otherwise = record.recipe.key([("in", digest_of("sky/other"))]);
        assert_eq!(memo.find(otherwise), [0u32; 0]);
        assert!(memo.knows(&record.recipe));
    }
}

#[test]
fn in_bad_weather_no_record_says_what_was_not_so() {
    for seed in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let mut cluster = story("max-compute-util", seed, ROUGH);
        cluster.submit("third", vec![map("d", 40, 9, 1)]);
        cluster.go(Some(cluster.now.plus_ns(150 * MS)));
        cluster.restart(b"{\"t\":17952930");
        cluster.go(Some(cluster.now.plus_ns(100 * MS)));
        // Killed, in the middle of a line.
        cluster.log.extend_from_slice(b"{\"t\":1795293005,\"out\":{\"end_ta");
        let memo = memo_of(&cluster, dir.path());
        let third = (0..40).map(|i| (format!("d-{i}"), format!("sky/f{}", i % 9)));
        let mut n_well = 0;
        for (id, file) in tasks().into_iter().chain(third) {
            let record = memo.last_of(&id).unwrap_or_else(|| panic!("{id} is not known"));
            if record.ended == Ended::Well {
                n_well += u32::from(record.inputs[0].1.is_some());
                assert!(record.inputs[0].1.is_none_or(|d| d == digest_of(&file)), "{id}, seed {seed}");
                assert_eq!(record.outputs.len(), 1);
            } else {
                assert!(record.key().is_none() && record.outputs.is_empty());
            }
        }
        assert!(n_well > 20, "seed {seed}: {n_well}");
    }
}

#[test]
fn an_attempt_that_was_told_two_kinds_of_bytes_is_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new("max-compute-util", 3, FAIR);
    cluster.join("n1", 1);
    cluster.submit("only", vec![map("a", 1, 1, 0)]);
    cluster.go(None);
    let mut lines: Vec<String> =
        String::from_utf8(cluster.log.clone()).unwrap().lines().map(str::to_owned).collect();
    let ended = lines.iter().position(|line| line.contains("attempt_ended")).unwrap();
    let line: Line = serde_json::from_str(&lines[ended]).unwrap();
    let What::In(Event::AttemptEnded { executor, report }) = line.what else { panic!("an event") };
    let added = ReplicaAdded {
        object: report.inputs[0].object,
        digest: digest_of("other bytes"),
        size_bytes: 5,
        version: None,
        run: None,
        private: false,
    };
    let change = Event::ReplicasChanged { executor, added: vec![added], dropped: vec![] };
    lines.insert(ended, serde_json::to_string(&Line { t: line.t, what: What::In(change) }).unwrap());
    cluster.log = (lines.join("\n") + "\n").into_bytes();
    let memo = memo_of(&cluster, dir.path());
    let record = memo.last_of("a-0").unwrap();
    assert_eq!((record.ended, record.inputs[0].1), (Ended::Well, None));
    assert_eq!(record.key(), None);
}

#[test]
fn what_is_carried_along_is_known_beside_the_log_and_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let memo = memo_of(&story("good-cache-compute", 7, FAIR), dir.path());
    let next = tempfile::tempdir().unwrap();
    let record: &Record = memo.last_of("a-3").unwrap();
    Memo::carry(next.path(), [record]).unwrap();
    assert_eq!(Memo::read(next.path()).unwrap().last_of("a-3"), Some(record));

    let mut cluster = Cluster::new("max-compute-util", 3, FAIR);
    cluster.join("n1", 1);
    cluster.submit("rest", vec![map("d", 2, 1, 0)]);
    cluster.go(None);
    cluster.save(next.path());
    // Twice: what was carried before stays.
    Memo::carry(next.path(), [memo.last_of("a-4").unwrap()]).unwrap();
    let both = Memo::read(next.path()).unwrap();
    for id in ["a-3", "a-4", "d-0", "d-1"] {
        assert_eq!(both.last_of(id).map(|r| r.ended), Some(Ended::Well), "{id}");
    }
    assert_eq!(std::fs::read_dir(next.path()).unwrap().count(), 3, "nothing else is left there");

    std::fs::write(next.path().join(eyas_report::memo::CARRIED_FILE), "{}\n").unwrap();
    let error = Memo::read(next.path()).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("memo.jsonl"), "{error}");
    let nothing = tempfile::tempdir().unwrap();
    assert!(Memo::read(nothing.path()).is_err());
}
