//! Slow homes. One large file that all nodes read leaves home once, and goes from node to node. Many files, each read by a few
//! short tasks, come while programs run.

use eyas_core::placement::{affinity, max_compute_util};
use eyas_papers::workload::stacking::{Format, Locality, StackingConfig, stacking};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::Workload;
use eyas_sim::workload::workflow::{WorkflowConfig, workflow};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::rng::Rng;
use serde_json::json;

const MB: u64 = 1_000_000;
const IMAGE_BYTES: u64 = 6_100_000;

/// A task for each of `reads`, which reads the files of these names and takes `run_s` seconds.
fn tasks_that_read(files: &[(String, u64)], reads: Vec<Vec<String>>, run_s: f64) -> Workload {
    let id = |i: usize| format!("t{i:03}");
    let task = |(i, inputs): (usize, &Vec<String>)| json!({"name": "t", "id": id(i), "parents": [], "children": [], "inputFiles": inputs, "outputFiles": []});
    let file = |(name, bytes): &(String, u64)| json!({"id": name, "sizeInBytes": bytes});
    let took = |i: usize| json!({"id": id(i), "runtimeInSeconds": run_s});
    let text = json!({"name": "reads", "schemaVersion": "1.5", "workflow": {
        "specification": {
            "tasks": reads.iter().enumerate().map(task).collect::<Vec<_>>(),
            "files": files.iter().map(file).collect::<Vec<_>>(),
        },
        "execution": {"makespanInSeconds": 1, "executedAt": "2026-11-28T00:00:00Z", "tasks": (0..reads.len()).map(took).collect::<Vec<_>>()},
    }});
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.json");
    std::fs::write(&path, text.to_string()).unwrap();
    workflow(&path, &WorkflowConfig::default()).unwrap()
}

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
    let workload =
        tasks_that_read(&[("db".into(), file_bytes)], vec![vec!["db".into()]; n_tasks as usize], 0.5);
    let mut scheduling = Scheduling::default();
    scheduling.dispatcher.placement = affinity::NAME.into();
    scheduling.dispatcher.placement_config.affinity.home_bytes_per_s = home_bytes_per_s;
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

/// Stacking as it is evaluated on one machine: `n_objects` short tasks on two nodes, all at once, in random order. All tasks
/// read the program and the list of objects, and each reads one image. Returns how often images were read from home.
fn stack_on_two_nodes(n_objects: u32, n_files: u32, seed: u64) -> u64 {
    let home_bytes_per_s = 40 * MB;
    let machine = Machine {
        nodes: 2,
        slots_per_node: 1,
        home_bytes_per_s: home_bytes_per_s as f64,
        home_client_bytes_per_s: home_bytes_per_s as f64,
        ..preset("this-machine").unwrap()
    };
    let mut images: Vec<u32> = (0..n_objects).map(|object| object % n_files).collect();
    let mut rng = Rng::new(seed);
    for last in (1..images.len()).rev() {
        images.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mut files: Vec<(String, u64)> = (0..n_files).map(|i| (format!("image{i}"), IMAGE_BYTES)).collect();
    files.extend([("program".into(), 20_000), ("objects".into(), 30_000)]);
    let reads = images.iter().map(|image| vec!["program".into(), "objects".into(), format!("image{image}")]);
    let workload = tasks_that_read(&files, reads.collect(), 0.4);
    let mut scheduling = Scheduling::default();
    scheduling.dispatcher.placement = max_compute_util::NAME.into();
    let s = simulate(&machine, &scheduling, &Faults::default(), workload, seed, None).unwrap();
    assert_eq!((s.n_done, s.n_failed), (u64::from(n_objects), 0));
    s.moved_home_bytes / IMAGE_BYTES
}

/// A node that has nothing else to do reads an image again that is on its way to the other node. This is so at the end, where
/// few images are left.
#[test]
fn an_image_that_another_node_is_reading_is_not_read_from_home_again() {
    for (n_objects, n_files) in
        [(60, 43), (60, 30), (60, 15), (60, 12), (60, 6), (140, 70), (600, 300), (600, 20)]
    {
        for seed in 1..4 {
            let n_read = stack_on_two_nodes(n_objects, n_files, seed);
            let hits = f64::from(n_objects) - n_read as f64;
            let ideal = f64::from(n_objects - n_files);
            assert!(
                hits >= 0.97 * ideal,
                "{n_objects} objects in {n_files} images, seed {seed}: {n_read} read"
            );
        }
    }
}
