//! Which files a dispatcher sends ahead of their readers, and where to. What users say of it counts, also against the
//! cost model.

use eyas_core::collective::Way;
use eyas_core::event::{Action, Event, Offer};
use eyas_terms::array::{GatherHint, Hint, Hints};
use eyas_terms::*;
use eyas_testkit::build::{Task, task, writes};
use eyas_testkit::script::Cluster;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Everything that a dispatcher does to run these tasks on this many nodes, with each program ending as soon
/// as it is given out. Files are small.
fn run(n_nodes: u32, tasks: &[Task]) -> Vec<Action> {
    run_making(n_nodes, tasks, None)
}

/// Like [`run`], with files of this many bytes.
fn run_making(n_nodes: u32, tasks: &[Task], file_bytes: Option<u64>) -> Vec<Action> {
    let mut c = Cluster::new();
    let mut out = vec![];
    for id in 1..=n_nodes {
        let cache_bytes = 1_000_000 + file_bytes.unwrap_or(0) * 1_000;
        let offer = Offer { slots: 1, memory_bytes: 1_000_000, cache_bytes, ..Offer::default() };
        c.core.handle(c.now, Event::ExecutorJoined { executor: ExecutorId(id), offer }, &mut out);
    }
    let run = RunId(1);
    c.core.handle(c.now, Event::RunOpened { run, name: String::new(), keep: false, into: None }, &mut out);
    for task in tasks {
        c.core.handle(c.now, Event::ArrayAdded { run, array: task.array() }, &mut out);
    }
    c.core.handle(c.now, Event::RunCommitted { run }, &mut out);
    let (mut done, mut given) = (0, VecDeque::new());
    loop {
        for action in &out[done..] {
            if let Action::Assign { executor, assignment } = action {
                given.push_back((*executor, assignment.task, assignment.attempt));
            }
        }
        done = out.len();
        let Some((executor, task, attempt)) = given.pop_front() else { break };
        let mut report = c.report((task.0, attempt.0), Outcome::Done);
        if let Some(bytes) = file_bytes {
            report.outputs.iter_mut().for_each(|output| output.size_bytes = bytes);
        }
        c.core.handle(c.now, Event::AttemptEnded { executor, report: report.into() }, &mut out);
    }
    assert!(c.core.work().find_run(run).is_some_and(|r| r.ended.is_some()));
    out
}

/// The number of files that were sent ahead.
fn n_sent(actions: &[Action]) -> usize {
    actions.iter().map(|a| if let Action::Prefetch { inputs, .. } = a { inputs.len() } else { 0 }).sum()
}

fn readers(n: usize, hint: Hint) -> Vec<Task> {
    let hints = Hints { multicast: hint, ..Hints::default() };
    let reader = |i| task(&format!("r{i}")).reads("run:x").label("read").hints(hints);
    std::iter::once(writes("run:x")).chain((0..n).map(reader)).collect()
}

#[test]
fn a_file_is_sent_ahead_where_the_user_says_so() {
    assert_eq!(n_sent(&run(2, &readers(2, Hint::Auto))), 0, "two readers are too few by themselves");
    assert_eq!(n_sent(&run(2, &readers(2, Hint::Always))), 1);
    assert_ne!(n_sent(&run(6, &readers(12, Hint::Auto))), 0, "many are enough");
    assert_eq!(n_sent(&run(6, &readers(12, Hint::Never))), 0);
}

#[test]
fn of_one_stage_who_forbids_counts() {
    let mut tasks = readers(12, Hint::Always);
    tasks[5].hints.multicast = Hint::Never;
    assert_eq!(n_sent(&run(6, &tasks)), 0);
}

/// `n` tasks that each make a file, and one that reads them all.
fn gather(n: usize, gather: GatherHint) -> Vec<Action> {
    let mut all = task("all").label("all").hints(Hints { gather, ..Hints::default() });
    let mut tasks = vec![];
    for i in 0..n {
        tasks.push(task(&format!("w{i}")).writes(&format!("run:{i}")).label("make"));
        all = all.reads(&format!("run:{i}"));
    }
    tasks.push(all);
    run(3, &tasks)
}

fn way(actions: &[Action]) -> Option<Way> {
    actions.iter().find_map(|a| match a {
        Action::EndCollective { record } => Some(record.way),
        _ => None,
    })
}

#[test]
fn a_gather_goes_the_way_that_the_user_says() {
    assert_eq!(n_sent(&gather(3, GatherHint::Auto)), 0, "three files are too few by themselves");
    assert_ne!(n_sent(&gather(3, GatherHint::Always)), 0);
    assert_eq!(way(&gather(9, GatherHint::Collective)), Some(Way::CollectiveGather));
    assert_eq!(way(&gather(9, GatherHint::Async)), Some(Way::AsyncGather));
    assert_eq!(n_sent(&gather(9, GatherHint::Never)), 0);
}

#[test]
fn files_are_dealt_out_where_the_user_says_so() {
    let scatter = |n: usize, scatter: Hint| {
        let maker = (0..n).fold(task("make").label("make"), |t, i| t.writes(&format!("run:{i}")));
        let hints = Hints { scatter, ..Hints::default() };
        let reader = |i| task(&format!("r{i}")).reads(&format!("run:{i}")).label("read").hints(hints);
        let tasks: Vec<Task> = std::iter::once(maker).chain((0..n).map(reader)).collect();
        n_sent(&run(3, &tasks))
    };
    assert_eq!(scatter(4, Hint::Auto), 0, "four files are too few by themselves");
    assert_ne!(scatter(4, Hint::Always), 0);
    assert_eq!(scatter(30, Hint::Never), 0);
}

#[test]
fn files_that_the_same_tasks_read_go_together_by_what_the_group_is_of_all() {
    // Three pieces of two files, each read by a third of the tasks: on a third of the nodes, its maker's among them.
    let mut tasks = vec![];
    for k in 0..3 {
        let [a, b] = ["a", "b"].map(|part| format!("run:{k}.{part}"));
        tasks.push(task(&format!("m{k}")).label("make").writes(&a).writes(&b));
        for i in 0..8 {
            tasks.push(task(&format!("r{k}.{i}")).label("read").reads(&a).reads(&b));
        }
    }
    tasks.sort_by_key(|t| t.id.starts_with('r'));
    // Before anything is known of the links, small files are not worth a tree to two nodes.
    assert_eq!(n_sent(&run(12, &tasks)), 0);
    let actions = run_making(12, &tasks, Some(10_000_000));
    let mut sent: BTreeMap<ObjectId, BTreeSet<ExecutorId>> = BTreeMap::new();
    for action in &actions {
        if let Action::Prefetch { executor, inputs, .. } = action {
            inputs.iter().for_each(|i| assert!(sent.entry(i.object).or_default().insert(*executor)));
        }
    }
    assert_eq!(sent.len(), 6, "{sent:?}");
    for (i, nodes) in sent.values().enumerate() {
        assert!(nodes.len() == 3, "file {i} goes to {nodes:?}");
    }
    let mut groups: Vec<_> = sent.into_values().collect();
    groups.sort();
    assert!(groups.chunks(2).all(|pair| pair[0] == pair[1]), "{groups:?}");
}
