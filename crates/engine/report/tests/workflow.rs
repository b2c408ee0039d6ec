//! A run as a workflow: of the log that a live dispatcher would have written.

mod common;

use common::*;
use eyas_report::workflow;
use eyas_terms::*;

#[test]
fn a_run_has_its_times_sizes_and_machines() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = story("good-cache-compute", 7, FAIR);
    cluster.go(None);
    cluster.save(dir.path());
    let w = workflow(&[dir.path().into()], Some(RunId(1))).unwrap();
    let run = w.run.clone().unwrap();
    assert!(run.executed_at.starts_with("2026-11-21T20:30:0"), "{}", run.executed_at);
    assert!(run.makespan_ns > 0 && !run.machines.is_empty());
    for task in &w.tasks {
        assert_eq!(task.measured.runtime_ns.map(|ns| ns > 0), Some(true), "{}", task.id);
        let machine = task.measured.machine.as_ref().unwrap();
        assert!(run.machines.iter().any(|m| m.name == *machine));
        for u in &task.inputs {
            let file = &w.files[u.file as usize];
            assert_eq!(file.size_bytes, Some(size_of(&file.name)));
        }
    }
    let error = workflow(&[dir.path().into()], Some(RunId(99))).unwrap_err().to_string();
    assert!(error.contains("there is no run 99"), "{error}");
}

#[test]
fn bad_weather_and_restarts_leave_a_workflow() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = story("max-compute-util", 11, ROUGH);
    cluster.go(Some(cluster.now.plus_ns(S)));
    cluster.restart(b"{\"t\":17952930");
    cluster.go(None);
    cluster.save(dir.path());
    let w = workflow(&[dir.path().into()], None).unwrap();
    let n_timed = w.tasks.iter().filter(|t| t.measured.runtime_ns.is_some()).count();
    assert!(n_timed > 0 && !w.tasks.is_empty());
}
