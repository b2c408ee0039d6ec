//! Nodes that end at their walltime: what is given to them, and when others are requested in their place.

use eyas_core::event::Event;
use eyas_core::log::{Line, What};
use eyas_core::provisioning::{ProvisionConfig, demand, growth};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::{ArrivingTasks, Compute, Sizes, Workload};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::Timestamp;
use eyas_terms::array::{Command, Pattern, TaskArray, TaskForm};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

const S: u64 = 1_000_000_000;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tasks of one label that compute for so long, without files.
fn tasks(n_tasks: u32, compute_s: u64) -> Workload {
    let form = TaskForm {
        label: "step".into(),
        ..TaskForm::new(Pattern::literal("t"), Command::Exec(vec![Pattern::literal("program")]))
    };
    let array = Arc::new(TaskArray { n_tasks, first_index: 0, template: form, columns: vec![], needs: None });
    let submission = ArrivingTasks { at: Timestamp(0), array, compute: Compute::Same(compute_s * S) };
    Workload {
        name: "steps".into(),
        n_tasks: n_tasks.into(),
        ideal_ns: 0,
        read_bytes: 0,
        sizes: Sizes::Same(0),
        submissions: Box::new([submission].into_iter()),
    }
}

/// Two nodes of one slot that live for so long; the summary, and all lines of the log after the header.
fn live(walltime_s: u64, policy: Option<&str>, workload: Workload) -> (Summary, Vec<Line>) {
    let machine = Machine {
        nodes: 2,
        slots_per_node: 1,
        walltime_ns: Some(walltime_s * S),
        node_delay_min_ns: 5 * S,
        node_delay_max_ns: 5 * S,
        ..preset("this-machine").unwrap()
    };
    let provision = policy.map(|policy| ProvisionConfig {
        policy: policy.into(),
        nodes_max: 2,
        release_idle_ns: Some(30 * S),
        ..ProvisionConfig::default()
    });
    let scheduling = Scheduling { provision, ..Scheduling::default() };
    let log = Log::default();
    let out: Box<dyn Write> = Box::new(log.clone());
    let summary = simulate(&machine, &scheduling, &Faults::default(), workload, 1, Some(out)).unwrap();
    let bytes = log.0.lock().unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    (summary, text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn n_of(lines: &[Line], is_one: impl Fn(&What) -> bool) -> usize {
    lines.iter().filter(|line| is_one(&line.what)).count()
}

#[test]
fn nodes_drain_before_their_walltime_and_others_take_their_place() {
    for policy in [None, Some(growth::ALL_AT_ONCE), Some(growth::EXPONENTIAL), Some(demand::NAME)] {
        let (summary, lines) = live(100, policy, tasks(40, 10));
        assert_eq!((summary.n_done, summary.n_failed), (40, 0), "{policy:?}");
        let n_left = n_of(&lines, |what| matches!(what, What::In(Event::ExecutorLost { .. })));
        let n_joined = n_of(&lines, |what| matches!(what, What::In(Event::ExecutorJoined { .. })));
        // 400 s of work for two nodes that live for 100 s.
        assert!(n_left >= 3 && n_joined >= 5, "{policy:?}: {n_left} left, {n_joined} joined");
        assert_eq!((summary.n_losses, summary.n_walltimes_ended), (0, 0), "{policy:?}: they left before");
    }
}

#[test]
fn a_task_that_needs_more_than_a_walltime_fails_with_that_sentence() {
    let (summary, _) = live(60, None, tasks(1, 90));
    assert_eq!((summary.n_done, summary.n_failed, summary.n_losses), (0, 1, 0));
    assert!(summary.n_walltimes_ended >= 2, "{}", summary.n_walltimes_ended);
    let why = summary.failure.unwrap();
    assert!(
        why.contains("the task needs more than the walltime of 60 s: 2 nodes ended while it ran"),
        "{why}"
    );
}

#[test]
fn without_a_walltime_nothing_ends() {
    let machine = Machine { nodes: 2, slots_per_node: 1, ..preset("this-machine").unwrap() };
    let summary =
        simulate(&machine, &Scheduling::default(), &Faults::default(), tasks(4, 7_200), 1, None).unwrap();
    assert_eq!((summary.n_done, summary.n_walltimes_ended), (4, 0));
}
