//! Nodes that reach the dispatcher and home, and not each other, event by event.

use eyas_core::dispatcher::TaskState;
use eyas_core::event::*;
use eyas_terms::*;
use eyas_testkit::build::{task, writes};
use eyas_testkit::script::Cluster;

/// The executor finds no way to the other one, and its attempt fails for that.
fn is_cut_off(c: &mut Cluster, reader: u32, holder: u32, attempt: (u64, u32)) {
    c.feed(Event::PeerUnreachable { executor: ExecutorId(reader), peer: ExecutorId(holder) });
    c.failed(reader, attempt, FailureKind::InputLost);
}

/// Tasks 0 and 1 have made `x` on node 1 and `y` on node 2; task 2, which reads both, is given to node 2.
fn two_files_on_two_nodes(first: u32) -> Cluster {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[writes("run:x"), writes("run:y"), task("both").reads("run:x").reads("run:y")]);
    let other = 3 - first;
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 2"]);
    c.done(other, (u64::from(other) - 1, 1)).take();
    c.done(first, (u64::from(first) - 1, 1)).take();
    c
}

fn given_to(c: &Cluster) -> u32 {
    let TaskState::Reserved { executor, .. } = c.core.task_state(TaskId(2)) else {
        panic!("it is given out")
    };
    executor.0
}

#[test]
fn a_file_that_cannot_be_fetched_is_made_once_more_where_it_is_read() {
    let mut c = two_files_on_two_nodes(1);
    assert_eq!(given_to(&c), 1);
    is_cut_off(&mut c, 1, 2, (2, 1));
    c.expect(&["assign 2.2 to 2"]);
    is_cut_off(&mut c, 2, 1, (2, 2));
    c.expect(&["rerun 1.32768 on 1"]);
    assert_eq!(
        c.core.waits_for(TaskId(2)),
        "`run:y`, as node `n1` cannot reach node `n2`, which has it: its maker runs once more, on node `n1`"
    );
    assert_eq!(c.core.out_of_reach().len(), 2);
    c.done(1, (1, 32768)).expect(&["assign 2.3 to 1", "end collective"]);
    assert!(c.assignments.last().expect("just given").inputs.iter().all(|i| i.sources.is_empty()));
    c.done(1, (2, 3)).take();
    assert_eq!(c.state(2), TaskState::Done);
}

#[test]
fn a_task_goes_to_a_node_that_reaches_all_its_inputs() {
    let mut c = two_files_on_two_nodes(1);
    // A third node, which both others serve.
    c.node(3, 1);
    is_cut_off(&mut c, 1, 2, (2, 1));
    c.expect(&["assign 2.2 to 2"]);
    is_cut_off(&mut c, 2, 1, (2, 2));
    c.expect(&["assign 2.3 to 3"]);
}

#[test]
fn a_file_goes_by_way_of_a_third_node_where_that_is_too_small_for_the_task() {
    let mut c = Cluster::new();
    c.node(1, 2).node(2, 2);
    c.run(&[writes("run:x"), writes("run:y").cpus(2), task("both").reads("run:x").reads("run:y").cpus(2)]);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 2"]);
    c.done(2, (1, 1)).done(1, (0, 1)).take();
    c.node(3, 1);
    let at = given_to(&c);
    is_cut_off(&mut c, at, 3 - at, (2, 1));
    is_cut_off(&mut c, 3 - at, at, (2, 2));
    let actions = c.take();
    assert!(
        actions.iter().any(|a| a.starts_with("prefetch run:here.1/") && a.ends_with("to 3")),
        "{actions:?}"
    );
    assert!(c.core.waits_for(TaskId(2)).ends_with("it goes there by way of node `n3`"));
}

#[test]
fn a_maker_that_also_writes_home_is_revived_for_the_reader() {
    let mut c = Cluster::new();
    c.node(1, 1).node(2, 1);
    c.run(&[
        writes("run:x").writes("home"),
        writes("run:y").writes("other"),
        task("both").reads("run:x").reads("run:y"),
    ]);
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 2"]);
    c.done(2, (1, 1)).home(2, (1, 1), true).take();
    c.done(1, (0, 1)).home(1, (0, 1), true).take();
    let at = given_to(&c);
    is_cut_off(&mut c, at, 3 - at, (2, 1));
    c.take();
    is_cut_off(&mut c, 3 - at, at, (2, 2));
    // Both files come together on the first node.
    c.expect(&["revive 1 for run:here.1/y", "assign 1.65537 to 1"]);
    c.done(1, (1, 65537)).home(1, (1, 65537), true);
    c.expect(&["end 1 done", "assign 2.3 to 1"]);
}

#[test]
fn a_cut_ends_after_a_while_and_a_further_one_lasts_longer() {
    let mut c = two_files_on_two_nodes(1);
    is_cut_off(&mut c, 1, 2, (2, 1));
    is_cut_off(&mut c, 2, 1, (2, 2));
    c.take();
    // The rerun takes long. After ten seconds the way to the idle node is tried again, and then the pair is cut for twenty.
    c.wait(9).expect(&[]);
    c.wait(6).expect(&["assign 2.3 to 2"]);
    is_cut_off(&mut c, 2, 1, (2, 3));
    c.take();
    c.wait(14).expect(&[]);
    c.wait(10).expect(&["assign 2.4 to 2"]);
    c.lost(1).take();
    assert_eq!(c.core.out_of_reach(), Vec::<String>::new());
}
