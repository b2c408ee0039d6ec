//! Nodes that leave, are lost or are not reached, while only they hold a file that a task still has to read.

use eyas_core::event::{Action, Event};
use eyas_core::log::{Line, What};
use eyas_core::provisioning::{ProvisionConfig, growth};
use eyas_sim::machine::{CutLinks, Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::{ArrivingTasks, Compute, Sizes, Workload};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::Timestamp;
use eyas_terms::array::{Command, Pattern, TaskArray, TaskForm};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

const S: u64 = 1_000_000_000;
const FILE_BYTES: u64 = 100_000_000;

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

impl Log {
    /// All lines after the header.
    fn lines(&self) -> Vec<Line> {
        let bytes = self.0.lock().unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn task(id: &str, inputs: &[&str], output: &str, compute_ns: u64) -> ArrivingTasks {
    let file = |name: &&str| (Pattern::literal(*name), Pattern::literal(format!("run:{name}")));
    let template = TaskForm {
        inputs: inputs.iter().map(file).collect(),
        outputs: vec![file(&output)],
        ..TaskForm::new(Pattern::literal(id), Command::Exec(vec![Pattern::literal("program")]))
    };
    let array = Arc::new(TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None });
    ArrivingTasks { at: Timestamp(0), array, compute: Compute::Same(compute_ns) }
}

/// A short task and a long one, and a third that reads the file of each.
fn workload() -> Workload {
    let submissions =
        vec![task("short", &[], "a", S), task("long", &[], "b", 60 * S), task("both", &["a", "b"], "c", S)];
    Workload {
        name: "a file waits for another".into(),
        n_tasks: 3,
        ideal_ns: 0,
        read_bytes: 2 * FILE_BYTES,
        sizes: Sizes::Same(FILE_BYTES),
        submissions: Box::new(submissions.into_iter()),
    }
}

fn live(scheduling: &Scheduling, faults: &Faults, seed: u64) -> (Summary, Vec<Line>) {
    let machine = Machine { nodes: 2, slots_per_node: 1, ..preset("this-machine").unwrap() };
    let log = Log::default();
    let summary =
        simulate(&machine, scheduling, faults, workload(), seed, Some(Box::new(log.clone()))).unwrap();
    (summary, log.lines())
}

#[test]
fn a_released_node_stays_until_what_only_it_holds_is_copied() {
    let provision = ProvisionConfig {
        policy: growth::ALL_AT_ONCE.into(),
        nodes_max: 2,
        release_idle_ns: Some(2 * S),
        ..ProvisionConfig::default()
    };
    let scheduling = Scheduling { provision: Some(provision), ..Scheduling::default() };
    let (summary, lines) = live(&scheduling, &Faults::default(), 1);
    let left = |line: &&Line| matches!(line.what, What::In(Event::ExecutorLost { .. }));
    let left = lines.iter().find(left).expect("the short task's node was idle for most of the run");
    assert!(left.t < Timestamp(30 * S), "it does not wait for the long task: {left:?}");
    let revived = lines.iter().find(|line| matches!(line.what, What::Out(Action::ReviveTask { .. })));
    assert!(revived.is_none(), "the node left with the only copy: {revived:?}");
    assert_eq!(summary.moved_peer_bytes, FILE_BYTES, "the file was copied once");
    assert_eq!((summary.n_done, summary.n_losses), (3, 0));
}

#[test]
fn a_task_that_runs_again_for_a_lost_file_counts_once() {
    let faults = Faults { losses_per_node_hour: 60.0, ..Faults::default() };
    let mut n_revived = 0;
    for seed in 0..20 {
        let (summary, lines) = live(&Scheduling::default(), &faults, seed);
        let revived = |line: &&Line| matches!(line.what, What::Out(Action::ReviveTask { .. }));
        n_revived += lines.iter().filter(revived).count();
        // Where nodes are lost that often, a task may also fail for good.
        assert_eq!(summary.n_done + summary.n_failed, 3, "seed {seed}: {summary:?}");
    }
    assert!(n_revived > 0, "no seed lost a file that was needed again");
}

/// Four tasks at a time make a file each, and others read the files of all four.
fn crossing() -> Workload {
    let made = |n: u32| task(&format!("m{n}"), &[], &format!("f{n}"), S);
    let read = |n: u32| task(&format!("r{n}"), &["f0", "f1", "f2", "f3"], &format!("g{n}"), S);
    let submissions: Vec<_> = (0..4).map(made).chain((0..8).map(read)).collect();
    Workload {
        name: "files cross".into(),
        n_tasks: 12,
        ideal_ns: 0,
        read_bytes: 32 * FILE_BYTES,
        sizes: Sizes::Same(FILE_BYTES),
        submissions: Box::new(submissions.into_iter()),
    }
}

#[test]
fn nodes_that_do_not_reach_each_other_get_their_files_all_the_same() {
    let live = |cut_links: Option<CutLinks>| {
        let machine = Machine { nodes: 4, slots_per_node: 1, cut_links, ..preset("this-machine").unwrap() };
        let log = Log::default();
        let out = Box::new(log.clone());
        let scheduling = Scheduling::default();
        let s = simulate(&machine, &scheduling, &Faults::default(), crossing(), 1, Some(out)).unwrap();
        assert_eq!((s.n_done, s.n_failed), (12, 0), "{machine:?}");
        let is_unreached = |line: &Line| matches!(line.what, What::In(Event::PeerUnreachable { .. }));
        (s, log.lines().iter().filter(|line| is_unreached(line)).count())
    };
    let links = |islands, pairs: &[(u32, u32)]| {
        Some(CutLinks { islands, pairs: pairs.iter().copied().collect(), notice_ns: 100_000_000 })
    };
    let (whole, n_unreached) = live(None);
    assert_eq!(n_unreached, 0);
    assert_eq!(live(links(1, &[])), (whole.clone(), 0), "one island is a whole machine");
    for cut in [links(4, &[]), links(2, &[]), links(1, &[(0, 1), (1, 0), (2, 0)])] {
        let (apart, n_unreached) = live(cut.clone());
        assert!(n_unreached > 0, "{cut:?}");
        assert!(apart.makespan_s > whole.makespan_s, "{cut:?}");
        assert!(apart.moved_home_bytes == whole.moved_home_bytes, "what stays on the nodes stays there");
        assert_eq!(live(cut), (apart, n_unreached), "the same seed gives the same run");
    }
}
