//! Slow homes. One large file that all nodes read leaves home once, and goes from node to node. Many files, each read by a few
//! short tasks, come while programs run.

use eyas_core::placement::affinity;
use eyas_papers::workload::stacking::{Format, Locality, StackingConfig, stacking};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::workflow::{WorkflowConfig, workflow};
use eyas_sim::world::{Scheduling, simulate};
use serde_json::json;

const MB: u64 = 1_000_000;

/// Four tasks of 0.5 s for each node, which all read one file from a home whose limit is known, as with `--home-rate`.
fn run(nodes: u32, file_bytes: u64, home_bytes_per_s: u64, nic_bytes_per_s: f64) -> Summary {
    let machine = Machine {
        nodes,
        slots_per_node: 1,
        home_bytes_per_s: home_bytes_per_s as f64,
        home_client_bytes_per_s: home_bytes_per_s as f64,
        nic_bytes_per_s,
        ..preset("this-machine").unwrap()
    };
    let n_tasks = nodes * 4;
    let task = |i: u32| json!({"name": "t", "id": format!("t{i}"), "parents": [], "children": [], "inputFiles": ["db"], "outputFiles": []});
    let took = |i: u32| json!({"id": format!("t{i}"), "runtimeInSeconds": 0.5});
    let text = json!({"name": "slow-home", "schemaVersion": "1.5", "workflow": {
        "specification": {
            "tasks": (0..n_tasks).map(task).collect::<Vec<_>>(),
            "files": [{"id": "db", "sizeInBytes": file_bytes}],
        },
        "execution": {"makespanInSeconds": 1, "executedAt": "2026-11-28T00:00:00Z", "tasks": (0..n_tasks).map(took).collect::<Vec<_>>()},
    }});
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.json");
    std::fs::write(&path, text.to_string()).unwrap();
    let mut scheduling = Scheduling::default();
    scheduling.dispatcher.placement = affinity::NAME.into();
    scheduling.dispatcher.placement_config.affinity.home_bytes_per_s = home_bytes_per_s;
    let workload = workflow(&path, &WorkflowConfig::default()).unwrap();
    let s = simulate(&machine, &scheduling, &Faults::default(), workload, 1, None).unwrap();
    assert_eq!((s.n_done, s.n_failed), (u64::from(n_tasks), 0));
    s
}

#[test]
fn a_large_file_leaves_a_slow_home_once() {
    for nodes in [2, 4, 8, 16] {
        for (file_mb, home_mb) in [(200, 10), (200, 20), (1000, 50), (50, 5)] {
            for nic in [1e8, 1.25e9] {
                let s = run(nodes, file_mb * MB, home_mb * MB, nic);
                // A copy waits for its turn at most as often as a tree of holders that serve two at once is deep.
                let copies_s = file_mb as f64 * MB as f64 / nic * 2.0 * (1.0 + f64::from(nodes).log2());
                let most_s = file_mb as f64 / home_mb as f64 * 1.05 + copies_s + 4.0;
                let what = format!(
                    "{nodes} nodes, {file_mb} MB at {home_mb} MB/s, links of {nic} B/s: {} s of {most_s}",
                    s.makespan_s
                );
                assert!(s.makespan_s <= most_s, "{what}");
                // Two rounds of copies over slow links take as long as a quick home.
                if nic >= 8.0 * (home_mb * MB) as f64 {
                    assert_eq!(s.moved_home_bytes, file_mb * MB, "{what}");
                }
            }
        }
    }
}

/// The demo: home needs about as long for all files as four slots need for all programs, and a node that is the only
/// reader of a file runs seven programs on it while the next file could come.
#[test]
fn the_next_file_comes_while_programs_run() {
    let (home_bytes_per_s, task_ns, file_bytes) = (10 * MB, 64_000_000, 985_000);
    let machine = Machine {
        nodes: 4,
        slots_per_node: 1,
        home_bytes_per_s: home_bytes_per_s as f64,
        home_client_bytes_per_s: home_bytes_per_s as f64,
        ..preset("this-machine").unwrap()
    };
    let locality = Locality { name: "demo", n_objects: 1640, n_files: 240 };
    let format = Format::Fit;
    let config = StackingConfig {
        locality,
        format,
        fit_bytes: file_bytes,
        stack_ns: task_ns,
        ..StackingConfig::default()
    };
    let least_s = (240.0 * file_bytes as f64 / home_bytes_per_s as f64).max(1640.0 * task_ns as f64 / 4e9);
    for seed in 1..4 {
        let mut scheduling = Scheduling::default();
        scheduling.dispatcher.placement = affinity::NAME.into();
        scheduling.dispatcher.placement_config.affinity.home_bytes_per_s = home_bytes_per_s;
        let workload = stacking(seed, config.clone()).unwrap();
        let s = simulate(&machine, &scheduling, &Faults::default(), workload, seed, None).unwrap();
        assert_eq!((s.n_done, s.n_failed), (1640, 0));
        assert!(s.makespan_s <= 1.2 * least_s, "seed {seed}: {} s, {least_s} s at least", s.makespan_s);
    }
}
