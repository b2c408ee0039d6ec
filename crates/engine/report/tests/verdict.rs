//! What a report says that limited a run, on logs where that is known.

mod common;

use common::*;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::event::Event;
use eyas_report::{Cause, Report, metrics, read};
use eyas_terms::array::*;
use eyas_terms::processors::ProcessorUse;
use eyas_terms::*;

const LONG: Weather = Weather { run_ns: 200 * MS, ..FAIR };
const SHORT: Weather = Weather { run_ns: MS, ..FAIR };

fn report_of(cluster: &Cluster) -> Report {
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    metrics(&read(dir.path()).unwrap())
}

/// The verdict of a cluster: the cause that holds most of the time, its share, and the last sentence.
#[track_caller]
fn check(cluster: &Cluster, cause: Cause, least: f64, begins: &str) -> Report {
    let report = report_of(cluster);
    let verdict = &report.verdict;
    let whole: f64 = verdict.causes.iter().map(|c| c.share).sum();
    assert!((whole - 1.0).abs() < 1e-9, "{verdict:?}");
    let first = &verdict.causes[0];
    assert!(first.cause == cause && first.share >= least, "{verdict:?}");
    assert!(verdict.sentences.last().unwrap().starts_with(begins), "{verdict:?}");
    report
}

fn without_inputs(mut array: TaskArray) -> TaskArray {
    array.template.inputs.clear();
    array
}

#[test]
fn more_tasks_than_slots() {
    let mut cluster = Cluster::new("affinity", 1, LONG);
    cluster.join("n1", 2);
    cluster.join("n2", 2);
    cluster.submit("many", vec![map("a", 100, 2, 0)]);
    cluster.go(None);
    check(&cluster, Cause::Slots, 0.9, "Limited by the number of slots (9");
}

/// Two nodes of one machine with two processors, of which `others` thousandths are used by others.
fn on_a_machine(others: u32, used: u32, n_tasks: u32) -> Cluster {
    let mut cluster = Cluster::new("affinity", 1, LONG);
    let nodes = [cluster.join("n1", 2), cluster.join("n2", 2)];
    cluster.submit("many", vec![map("a", n_tasks, 2, 0)]);
    let until = cluster.now.plus_ns(2 * S);
    cluster.go(Some(until));
    for executor in nodes {
        let seen = ProcessorUse { machine: 9, n_processors: 2, used_permille: used, others_permille: others };
        cluster.feed(Event::ProcessorsUsed { executor, used: seen });
    }
    cluster.go(None);
    cluster
}

#[test]
fn a_machine_that_others_use() {
    let report = check(&on_a_machine(700, 1000, 100), Cause::Busy, 0.9, "Limited by a busy machine (9");
    let said = report.verdict.sentences.last().unwrap();
    assert!(said.contains("% of the time; others used 70 % of the processors)."), "{said}");
    // Others took what was left over, or little.
    for (others, used) in [(700, 850), (200, 1000)] {
        let report =
            check(&on_a_machine(others, used, 100), Cause::Slots, 0.9, "Limited by the number of slots (9");
        assert!(!report.verdict.sentences.last().unwrap().contains("others used"), "{:?}", report.verdict);
    }
    // Something else limits, and others are in the way all the same.
    let mut cluster = on_a_machine(500, 950, 4);
    cluster.longer_ns.insert(TaskId(6), 20 * S);
    cluster.submit("long", vec![map("b", 4, 1, 0)]);
    cluster.go(None);
    let report = check(&cluster, Cause::Tail, 0.8, "Limited by one long task at the end (");
    let said = report.verdict.sentences.last().unwrap();
    assert!(said.ends_with("; others used 50 % of the processors."), "{said}");
}

#[test]
fn processors_of_a_machine_count_once_however_many_nodes_are_on_it() {
    let bound = report_of(&on_a_machine(0, 1000, 100)).totals.bound;
    assert!((bound.n_processors - 2.0).abs() < 0.01, "{bound:?}");
    let mut slots = Cluster::new("affinity", 1, LONG);
    slots.join("n1", 2);
    slots.join("n2", 2);
    slots.submit("many", vec![map("a", 100, 2, 0)]);
    slots.go(None);
    let of_slots = report_of(&slots).totals.bound;
    assert!((of_slots.n_processors - 4.0).abs() < 0.01, "{of_slots:?}");
}

#[test]
fn files_that_are_read_once_from_a_slow_home() {
    let cluster = |limit: u64| {
        let mut config =
            DispatcherConfig { placement: "max-compute-util".into(), ..DispatcherConfig::default() };
        config.placement_config.affinity.home_bytes_per_s = limit;
        let mut cluster = Cluster::with(config, 1, SHORT);
        cluster.join("n1", 1);
        cluster.join("n2", 1);
        cluster.submit("once", vec![map("a", 200, 200, 0)]);
        cluster.go(None);
        cluster
    };
    let unlimited = check(&cluster(0), Cause::Home, 0.5, "Limited by home (");
    assert_eq!(unlimited.home_limit_bytes_per_s, None);
    // The same events, from a home that is known to give no more than that.
    let said = &unlimited.verdict.causes[0].text;
    let mib: f64 = said.rsplit_once(", at ").unwrap().1.strip_suffix(" MiB/s)").unwrap().parse().unwrap();
    let rate = (mib * 1_048_576.0) as u64;
    let limited = check(&cluster(rate), Cause::Home, 0.5, "Limited by home (");
    let (t, bound) = (&limited.totals, &limited.totals.bound);
    assert_eq!((unlimited.totals.bound.home_ns, bound.by()), (0, "home"));
    let least_s = (t.home_in_bytes + t.home_out_bytes) as f64 / rate as f64;
    assert!((bound.ns as f64 / 1e9 - least_s).abs() < 0.01 && bound.ns <= t.makespan_ns, "{bound:?}");
    let said = limited.bound_sentence().unwrap();
    assert!(said.contains(" times the least: ") && said.contains(" from and to home at "), "{said}");
    let said = &limited.verdict.causes[0].text;
    assert!(said.ends_with(&format!(", at {mib} of {mib} MiB/s)")), "{said}");
    // A home that could give ten times that: the verdict says so.
    let far = check(&cluster(rate * 10), Cause::Home, 0.5, "Limited by home (");
    let said = &far.verdict.causes[0].text;
    assert!(said.ends_with(&format!(" of {:.2} GiB/s)", mib * 10.0 / 1024.0)), "{said}");
}

#[test]
fn files_that_come_from_peers() {
    let mut cluster = Cluster::new("max-compute-util", 1, SHORT);
    let first = cluster.join("n1", 1);
    cluster.submit("warm", vec![map("a", 100, 100, 0)]);
    cluster.go(None);
    // All files are at the first node; it is busy for long with one task, and another one works.
    let _ = first;
    cluster.longer_ns.insert(TaskId(100), 5 * S);
    cluster.longer_ns.insert(TaskId(101), 5 * S);
    cluster.submit("busy", vec![without_inputs(map("b", 2, 1, 0))]);
    cluster.join("n2", 1);
    let run = cluster.submit("copies", vec![map("c", 80, 80, 0)]);
    cluster.go(None);
    let dir = tempfile::tempdir().unwrap();
    cluster.save(dir.path());
    let report = eyas_report::metrics_of(&read(dir.path()).unwrap(), run).unwrap();
    let peers = report.verdict.causes.iter().find(|c| c.cause == Cause::Peers);
    assert!(peers.is_some_and(|c| c.text.starts_with("copies between nodes (")), "{:?}", report.verdict);
}

#[test]
fn nodes_that_come_late() {
    let mut cluster = Cluster::new("affinity", 1, FAIR);
    cluster.submit("early", vec![map("a", 20, 2, 0)]);
    cluster.now = cluster.now.plus_ns(20 * S);
    cluster.join("n1", 2);
    cluster.go(None);
    check(&cluster, Cause::Nodes, 0.9, "Limited by waiting for nodes (9");
}

#[test]
fn few_nodes_at_first() {
    let mut cluster = Cluster::new("affinity", 1, LONG);
    cluster.submit("early", vec![map("a", 200, 2, 0)]);
    cluster.join("n0", 1);
    let until = cluster.now.plus_ns(10 * S);
    cluster.go(Some(until));
    for i in 1..8 {
        cluster.join(&format!("n{i}"), 1);
    }
    cluster.go(None);
    let report = check(&cluster, Cause::Nodes, 0.5, "Limited by waiting for nodes (");
    let said = report.verdict.sentences.last().unwrap();
    assert!(said.contains("later there were 8") && said.contains(", then by the number of slots"), "{said}");
}

/// A node that was killed and is replaced at once is given up later; it has no slots meanwhile.
#[test]
fn a_node_that_falls_silent_has_no_slots() {
    let mut cluster = Cluster::new("affinity", 1, LONG);
    let killed = cluster.join("n1", 2);
    cluster.join("n2", 2);
    cluster.submit("many", vec![map("a", 100, 2, 0)]);
    let until = cluster.now.plus_ns(S);
    cluster.go(Some(until));
    cluster.silence(killed);
    cluster.join("n1", 2);
    let until = cluster.now.plus_ns(3 * S);
    cluster.go(Some(until));
    cluster.feed(eyas_core::event::Event::ExecutorLost {
        executor: killed,
        reason: "it did not come back".into(),
    });
    cluster.go(None);
    let report = check(&cluster, Cause::Slots, 0.85, "Limited by the number of slots (");
    assert!(report.verdict.sentences[0].contains(" all 4 ran programs"), "{:?}", report.verdict);
}

/// What a killed node had waits until the node is given up, however many slots are free.
#[test]
fn the_last_tasks_are_held_by_a_silent_node() {
    let mut cluster = Cluster::new("affinity", 1, LONG);
    let killed = cluster.join("n1", 2);
    cluster.join("n2", 2);
    cluster.submit("some", vec![map("a", 20, 2, 0)]);
    let until = cluster.now.plus_ns(500 * MS);
    cluster.go(Some(until));
    cluster.silence(killed);
    cluster.join("n1", 2);
    cluster.go(None);
    cluster.now = cluster.now.plus_ns(15 * S);
    cluster.feed(eyas_core::event::Event::ExecutorLost {
        executor: killed,
        reason: "it did not come back".into(),
    });
    cluster.go(None);
    let report = check(&cluster, Cause::Nodes, 0.8, "Limited by waiting for nodes (");
    assert!(report.verdict.sentences[0].contains("until lost ones were given up"), "{:?}", report.verdict);
}

#[test]
fn one_long_task() {
    let mut cluster = Cluster::new("affinity", 1, FAIR);
    cluster.join("n1", 4);
    cluster.longer_ns.insert(TaskId(3), 10 * S);
    cluster.submit("tail", vec![map("a", 40, 2, 0)]);
    cluster.go(None);
    let report = check(&cluster, Cause::Tail, 0.8, "Limited by one long task at the end (");
    let said = report.verdict.sentences.last().unwrap();
    assert!(said.contains("`a-3` on `n1` ran 10.1 s"), "{said}");
}

#[test]
fn a_run_of_less_than_half_a_second_has_no_verdict() {
    let mut cluster = Cluster::new("affinity", 1, LONG);
    cluster.join("n1", 8);
    cluster.submit("three", vec![map("a", 3, 1, 0)]);
    cluster.go(None);
    let verdict = report_of(&cluster).verdict;
    assert!(verdict.causes.is_empty(), "{verdict:?}");
    assert!(verdict.sentences.last().unwrap().ends_with("too short to say what limited it."), "{verdict:?}");
}

#[test]
fn fewer_tasks_than_slots() {
    let mut cluster = Cluster::new("affinity", 1, Weather { run_ns: 3000 * MS, ..FAIR });
    cluster.join("n1", 8);
    cluster.submit("three", vec![map("a", 3, 1, 0)]);
    cluster.go(None);
    check(&cluster, Cause::Tail, 0.6, "Limited by too few tasks (");
}

#[test]
fn a_chain() {
    let mut cluster = Cluster::new("affinity", 1, LONG);
    cluster.join("n1", 4);
    let link = |i: u32| {
        let mut array = map("a", 1, 1, 0);
        let name = |i: u32| Pattern::literal(format!("out/link{i}"));
        array.template.id = Pattern::literal(format!("link{i}"));
        array.template.outputs = vec![(Pattern::literal("out"), name(i))];
        array.template.inputs = match i {
            0 => vec![],
            _ => vec![(Pattern::literal("in"), name(i - 1))],
        };
        array
    };
    cluster.submit("chain", (0..10).map(link).collect());
    cluster.go(None);
    let report = check(&cluster, Cause::Dependencies, 0.6, "Limited by tasks that wait for each other (");
    let said = report.verdict.sentences.last().unwrap();
    assert!(said.contains("the chain of 10 tasks that ends with `link9` ran 2.0"), "{said}");
    let bound = report.totals.bound;
    assert!((2 * S..report.totals.makespan_ns).contains(&bound.chain_ns), "{bound:?}");
    assert_eq!(bound.by(), "the longest chain");
}

#[test]
fn work_that_comes_slowly() {
    let mut cluster = Cluster::new("affinity", 1, FAIR);
    cluster.join("n1", 4);
    for i in 0..5 {
        cluster.submit("one", vec![map(&format!("a{i}"), 1, 1, 0)]);
        cluster.go(None);
        cluster.now = cluster.now.plus_ns(S);
    }
    check(&cluster, Cause::Arrivals, 0.8, "Limited by fewer submitted tasks than slots (");
}

#[test]
fn a_placement_that_waits_for_one_node() {
    let mut cluster = Cluster::new("max-cache-hit", 1, LONG);
    cluster.join("n1", 1);
    cluster.submit("warm", vec![map("a", 1, 1, 0)]);
    cluster.go(None);
    for i in 2..9 {
        cluster.join(&format!("n{i}"), 1);
    }
    cluster.submit("same file", vec![map("b", 50, 1, 0)]);
    cluster.go(None);
    check(&cluster, Cause::Idle, 0.5, "Limited by placement (slots were idle ");
}

#[test]
fn several_causes_and_none_above_half() {
    let mut cluster = Cluster::new("affinity", 1, FAIR);
    cluster.submit("mixed", vec![map("a", 81, 1, 0)]);
    cluster.now = cluster.now.plus_ns(1500 * MS);
    cluster.longer_ns.insert(TaskId(40), 2 * S);
    cluster.join("n1", 4);
    cluster.go(None);
    let report = check(&cluster, report_of(&cluster).verdict.causes[0].cause, 0.3, "Nothing stands out: ");
    let said = report.verdict.sentences.last().unwrap();
    for cause in ["waiting for nodes (", "the number of slots (", "one long task at the end ("] {
        assert!(said.contains(cause), "{said}");
    }
}

#[test]
fn failures_come_first_and_a_run_that_goes_on_is_judged_so_far() {
    let mut cluster = Cluster::new("affinity", 3, Weather { fail_per_cent: 30, ..LONG });
    cluster.join("n1", 2);
    cluster.submit("some fail", vec![map("a", 60, 2, 0)]);
    let until = cluster.now.plus_ns(4 * S);
    cluster.go(Some(until));
    let so_far = report_of(&cluster).verdict;
    assert!(
        so_far.sentences.last().unwrap().starts_with("Limited so far by the number of slots"),
        "{so_far:?}"
    );
    cluster.go(None);
    let report = check(&cluster, Cause::Slots, 0.9, "Limited by the number of slots");
    let n = report.totals.n_failed;
    assert_eq!(report.verdict.sentences[0], format!("{n} of 60 tasks failed."));
}

#[test]
fn nothing_to_judge() {
    let report = report_of(&Cluster::new("affinity", 1, FAIR));
    assert_eq!(
        (report.verdict.sentences.as_slice(), report.verdict.causes.len()),
        (&["There were no tasks.".to_string()][..], 0)
    );
}

/// Bad weather of all kinds gives shares that add up, and sentences.
#[test]
fn every_log_has_a_verdict() {
    for seed in 0..40 {
        let placement = eyas_core::placement::NAMES[seed as usize % eyas_core::placement::NAMES.len()];
        let verdict = report_of(&story(placement, seed, ROUGH)).verdict;
        let whole: f64 = verdict.causes.iter().map(|c| c.share).sum();
        assert!(
            (whole - 1.0).abs() < 1e-9 && verdict.causes.is_sorted_by(|a, b| a.share >= b.share),
            "seed {seed}"
        );
        assert!(verdict.sentences.iter().all(|s| s.ends_with('.') && !s.contains("NaN")), "{verdict:?}");
    }
}
