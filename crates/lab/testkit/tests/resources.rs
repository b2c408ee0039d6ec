//! Gpus, named resources and parts of cpus: who gets them, who waits, who is passed, and what no node can hold.

use eyas_core::dispatcher::TaskState;
use eyas_core::event::{Event, Offer};
use eyas_core::group::{MemberLoad, Membership};
use eyas_core::placement::NAMES;
use eyas_core::provisioning::work::{NODE_PARTS, Predicted};
use eyas_terms::needs::{Equipment, Needs, PARTS, Size};
use eyas_terms::{ExecutorId, MemberId};
use eyas_testkit::build::{Task, task};
use eyas_testkit::script::{Cluster, NodeScript};

fn many(n: usize, like: &Task) -> Vec<Task> {
    (0..n).map(|i| Task { id: format!("{}{i}", like.id), ..like.clone() }).collect()
}

fn gpu(n: u32) -> Needs {
    Needs { gpu_parts: n, ..Needs::default() }
}

#[test]
fn a_node_gets_as_many_tasks_as_it_has_gpus_under_every_policy() {
    for name in NAMES {
        let mut c = Cluster::with(|config| config.placement = name.into());
        c.equipped(1, 8, 2, &[]);
        c.run(&many(3, &task("g").gpus(PARTS)));
        c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
        c.done(1, (0, 1));
        assert!(c.take().contains(&"assign 2.1 to 1".to_string()), "{name}");
    }
}

#[test]
fn tasks_that_need_nothing_pass_a_task_that_waits_for_a_gpu() {
    let mut c = Cluster::new();
    c.equipped(1, 2, 1, &[]);
    c.run(&[task("g0").gpus(PARTS), task("g1").gpus(PARTS), task("c")]);
    c.expect(&["assign 0.1 to 1", "assign 2.1 to 1"]);
}

#[test]
fn a_task_goes_only_to_a_node_that_can_hold_it() {
    let mut c = Cluster::new();
    c.equipped(1, 8, 1, &[]).equipped(2, 8, 2, &[("board", 1)]);
    c.run(&[task("two").gpus(2 * PARTS), task("b0").needs("board", 1), task("b1").needs("board", 1)]);
    c.expect(&["assign 0.1 to 2", "assign 1.1 to 2"]);
}

#[test]
fn parts_of_a_gpu_share_it_and_a_whole_one_stays_whole() {
    let mut c = Cluster::new();
    c.equipped(1, 8, 2, &[]);
    c.run(&many(2, &task("half").gpus(500)));
    c.expect(&["assign 0.1 to 1", "assign 1.1 to 1"]);
    c.run(&[task("quarter").gpus(250), task("whole").gpus(PARTS)]);
    // Both halves lie on one gpu. The quarter takes the other one, so there is no whole one left.
    c.expect(&["assign 2.1 to 1"]);
}

#[test]
fn a_resource_of_the_whole_cluster_is_counted_over_all_nodes() {
    let mut c = Cluster::with(|config| config.resources = [("vcs".to_string(), 3)].into());
    c.node(1, 4).node(2, 4);
    c.run(&many(5, &task("t").needs("vcs", 1)));
    assert_eq!(c.take().iter().filter(|a| a.starts_with("assign")).count(), 3);
    assert_eq!(c.core.cluster_resources(), [("vcs".to_string(), 3, 3)]);
    c.run(&[task("free")]);
    assert_eq!(c.take().iter().filter(|a| a.starts_with("assign 5.")).count(), 1);
    c.lost(1).take();
    assert_eq!(c.core.cluster_resources(), [("vcs".to_string(), 3, 3)]);
    c.lost(2).take();
    assert_eq!(c.core.cluster_resources(), [("vcs".to_string(), 3, 0)]);
}

#[test]
fn halves_of_a_cpu_run_twice_as_many_at_once() {
    for name in NAMES {
        let mut c = Cluster::with(|config| config.placement = name.into());
        c.node(1, 2);
        c.run(&many(5, &task("h").cpu_parts(500)));
        assert_eq!(c.take().iter().filter(|a| a.starts_with("assign")).count(), 4, "{name}");
        c.run(&[task("whole")]);
        c.expect(&[]).done(1, (0, 1));
        // The half that is free now is no slot for a whole task, and the fifth half takes it.
        assert!(c.take().contains(&"assign 4.1 to 1".to_string()), "{name}");
    }
}

#[test]
fn a_task_that_no_node_can_hold_fails_with_the_nearest_node_named() {
    let mut c = Cluster::with(|config| config.resources = [("vcs".to_string(), 2)].into());
    c.equipped(1, 2, 1, &[]).equipped(2, 2, 2, &[("board", 1)]);
    c.run(&[
        task("gpus").gpus(4 * PARTS),
        task("boards").needs("board", 3),
        task("licences").needs("vcs", 3),
        task("nowhere").needs("camera", 1),
        task("apart").gpus(2 * PARTS).cpus(2).needs("board", 1).memory(2_000_000_000),
    ]);
    c.wait(16).take();
    c.wait(1);
    let ended = c.take();
    let why = |id: u64| {
        let found = c.core.work().runs().flat_map(|(_, r)| r.failures.iter()).find(|(task, _)| task.0 == id);
        found.map(|(_, failure)| failure.message.clone()).unwrap_or_else(|| panic!("{id} of {ended:?}"))
    };
    assert_eq!(why(0), "the task needs 4 gpus; the largest node, `n2`, has 2");
    assert_eq!(why(1), "the task needs 3 of `board`; the largest node, `n2`, has 1");
    assert_eq!(why(2), "the task needs 3 of `vcs`; the whole cluster has 2");
    assert_eq!(why(3), "the task needs 1 of `camera`; neither a node nor the cluster has it");
    assert_eq!(why(4), "the task asks for 1.9 GiB of memory, the largest executor offers 953.7 MiB");
}

#[test]
fn a_task_that_needs_all_gpus_is_passed_by_younger_ones_only_so_often() {
    for name in NAMES {
        let mut c = Cluster::with(|config| config.placement = name.into());
        c.equipped(1, 4, 2, &[]);
        c.run(&many(2, &task("first").gpus(PARTS)));
        c.run(&[task("all").gpus(2 * PARTS)]);
        c.run(&many(300, &task("small").gpus(PARTS)));
        let mut running: Vec<u64> = vec![];
        let (mut n_before, mut is_said) = (0, false);
        loop {
            for action in c.take() {
                if let Some(rest) = action.strip_prefix("assign ") {
                    let given: u64 = rest.split('.').next().and_then(|n| n.parse().ok()).expect("a task");
                    running.push(given);
                    n_before += 1;
                }
            }
            if running.contains(&2) {
                break;
            }
            let ends = running.remove(0);
            c.done(1, (ends, 1));
            let TaskState::Ready { reason: Some(reason) } = c.state(100) else {
                panic!("{:?}", c.state(100))
            };
            is_said |=
                reason.contains("of 1, 1 are large enough (1 kept for a task that others passed too often)");
        }
        assert!(is_said, "{name}: tasks that wait for the kept node say so");
        assert!(n_before < 80, "{name}: {n_before} tasks went before it");
    }
}

#[test]
fn a_restarted_dispatcher_counts_what_an_adopted_attempt_holds() {
    let mut c = Cluster::with(|config| config.resources = [("vcs".to_string(), 1)].into());
    c.run(&many(2, &task("t").needs("vcs", 1)));
    c.feed(eyas_core::event::Event::Recovered);
    c.join(1, 2, &[(0, 1)]).wait(5).expect(&[]);
    assert_eq!(c.core.cluster_resources(), [("vcs".to_string(), 1, 1)]);
    c.done(1, (0, 1));
    assert!(c.take().contains(&"assign 1.1 to 1".to_string()));
}

#[test]
fn an_executor_never_starts_more_than_fits_and_keeps_what_the_first_one_waits_for() {
    let mut n = NodeScript::with(4, 0, |config| config.equipment.gpus = 2);
    n.assign_needing(0, 1, gpu(PARTS)).assign_needing(1, 1, gpu(2 * PARTS));
    n.assign_needing(2, 1, gpu(PARTS)).assign(3, &[], &[]);
    // Task 2 has room, but would take from task 1 for as long as others come; task 3 takes nothing from it.
    n.expect(&["start 0.1", "start 3.1"]);
    n.exited(0, &[]).expect(&["clean 0.1", "tell 0.1 done", "start 1.1"]);
    n.exited(1, &[]).expect(&["clean 1.1", "tell 1.1 done", "start 2.1"]);
}

/// How many nodes with `slots`, 1 GB and 2 gpus hold all of these tasks at once, in thousandths, and how many of the tasks are too
/// large for such a node.
fn nodes_for(c: &Cluster, slots: u32) -> (u64, u64) {
    let node = Size::of_node(slots, 1_000_000_000, &Equipment { gpus: 2, ..Equipment::default() });
    let (mut views, mut predicted) = (vec![], Predicted::default());
    c.core.demand(&node, 0, |name| name != "n99", &mut views, &mut predicted);
    (
        (predicted.queued_parts() + predicted.running_parts()).div_ceil(NODE_PARTS / 1000),
        predicted.n_too_large,
    )
}

#[test]
fn what_waits_is_measured_in_nodes_by_what_tasks_need() {
    let asks = |like: Task, slots| {
        let mut c = Cluster::with(|config| config.resources = [("vcs".to_string(), 3)].into());
        c.run(&many(12, &like));
        nodes_for(&c, slots)
    };
    assert_eq!(asks(task("t"), 2), (6000, 0));
    assert_eq!(asks(task("t").cpus(2), 2), (12_000, 0));
    assert_eq!(asks(task("t").cpus(2), 3), (12_000, 0), "the third slot stays idle");
    assert_eq!(asks(task("t").cpu_parts(500), 2), (3000, 0));
    assert_eq!(asks(task("t").memory(400_000_000), 8), (6000, 0));
    assert_eq!(asks(task("t").gpus(PARTS), 8), (6000, 0));
    assert_eq!(asks(task("t").gpus(500), 8), (3000, 0));
    assert_eq!(asks(task("t").cpus(9), 8), (0, 12));
    assert_eq!(asks(task("t").needs("board", 1), 8), (0, 12));
    assert_eq!(asks(task("t").needs("vcs", 1), 1), (3000, 0), "no more than three may run at once");
}

#[test]
fn what_a_node_of_somebody_else_does_or_has_room_for_asks_for_no_further_node() {
    let one = |n, like: &Task| many(n, like);
    // Node 99 was started by hand: it runs the first two, and the third waits.
    let mut c = Cluster::new();
    c.node(99, 2).run(&one(3, &task("t")));
    c.take();
    assert_eq!(nodes_for(&c, 1), (1000, 0));
    // A task that is too large for further nodes runs there, and one that the node cannot have waits for a further one.
    let mut c = Cluster::new();
    c.node(99, 4).run(&one(1, &task("t").cpus(3)));
    c.take();
    assert_eq!(nodes_for(&c, 1), (0, 0));
    c.run(&one(2, &task("g").gpus(PARTS)));
    assert_eq!(nodes_for(&c, 1), (2000, 0), "the node by hand has no gpu");
    // Who reads that file waits for the busy node that has it. What waits takes room of a node, if not this one's.
    let mut c = Cluster::with(|config| config.placement = "max-cache-hit".into());
    c.node(1, 1).run(&[task("a").reads("x")]);
    c.has(1, "x", "v1", Some("v1")).done(1, (0, 1)).run(&many(2, &task("b").reads("x")));
    assert_eq!(nodes_for(&c, 1), (2000, 0), "one runs, one waits");
    c.node(99, 1);
    assert_eq!(c.take().pop().as_deref(), Some("assign 1.1 to 1"));
    assert_eq!(nodes_for(&c, 1), (1000, 0));
    c.run(&many(2, &task("c").reads("x")));
    assert_eq!(nodes_for(&c, 1), (3000, 0), "it has room for one of three");
}

#[test]
fn tasks_of_a_node_take_slots_by_their_scarcest_need() {
    let mut c = Cluster::new();
    c.equipped(1, 8, 2, &[]).node(2, 8).node(3, 3);
    c.run(&many(2, &task("g").gpus(PARTS)));
    c.run(&many(1, &task("m").memory(500_000_000)));
    c.run(&many(1, &task("c").cpus(3)));
    c.take();
    let (mut views, mut predicted) = (vec![], Predicted::default());
    let demand = c.core.demand(
        &Size::of_node(8, 1_000_000_000, &Equipment::default()),
        0,
        |_| true,
        &mut views,
        &mut predicted,
    );
    let busy: u32 = demand.nodes.iter().map(|view| view.busy_slots).sum();
    let by_node: Vec<u32> = demand.nodes.iter().map(|view| view.busy_slots).collect();
    // Two gpus are a whole node with 8 slots, half of the memory is half of a node, and 3 cpus are 3 slots of 8 (as two such
    // tasks fit, 4) or all of 3.
    assert!(by_node[0] == 8 && busy >= 8 + 2 + 3, "{by_node:?}");
    assert_eq!(demand.nodes.iter().map(|view| view.n_assigned).sum::<u32>(), 4);
}

#[test]
fn a_task_waits_for_a_node_that_may_come_and_fails_when_nobody_brings_one() {
    let with_gpus = |gpus| Size::of_node(4, 1_000_000_000, &Equipment { gpus, ..Equipment::default() });
    let expect =
        |c: &mut Cluster, node: Option<Size>| c.feed(Event::NodesExpected { node: node.map(Box::new) });
    let mut c = Cluster::with(|config| config.resources = [("vcs".to_string(), 1)].into());
    c.node(1, 2);
    expect(&mut c, Some(with_gpus(2)));
    c.run(&[
        task("a").gpus(2 * PARTS),
        task("b").gpus(PARTS),
        task("c").gpus(3 * PARTS),
        task("d").needs("vcs", 2),
    ]);
    // Three gpus are more than such a node has, and nobody can have two of one licence.
    c.wait(30).expect(&["end 2 failed NeverFits", "end 3 failed NeverFits"]);
    expect(&mut c, None);
    c.wait(30).expect(&["end 0 failed NeverFits", "end 1 failed NeverFits", "end run 1"]);
}

#[test]
fn dispatchers_tell_each_other_of_named_resources_too() {
    let boards = |n: u32| [("board".to_string(), n)].into();
    let mut c = Cluster::with(|config| config.group = Some(Membership { me: MemberId(0), n_members: 2 }));
    c.node(1, 2);
    c.run(&[task("a").needs("board", 2), task("b").needs("board", 3)]);
    c.wait(1).expect(&[]);
    let unfit = c.core.load().unfit;
    assert_eq!(unfit.iter().map(|size| size.resources.clone()).collect::<Vec<_>>(), [boards(2), boards(3)]);
    // The other one has a node with two boards: `a` waits for it, and `b` fits nowhere.
    let offers =
        vec![Size { cpu_parts: 2000, memory_bytes: 1_000_000_000, resources: boards(2), ..Size::default() }];
    let load = MemberLoad { n_slots: 2, offers, ..MemberLoad::default() };
    c.feed(Event::MemberLoadChanged { member: MemberId(1), load });
    c.wait(30).expect(&["end 1 failed NeverFits"]);
    // There, a node with boards that has nothing to do goes to the dispatcher whose tasks need it.
    let mut c = Cluster::with(|config| config.group = Some(Membership { me: MemberId(1), n_members: 2 }));
    c.node(2, 2);
    let equipment = Equipment { resources: boards(2), ..Equipment::default() };
    c.offers(4, Offer { slots: 2, equipment, ..Offer::default() });
    c.feed(Event::MemberLoadChanged {
        member: MemberId(0),
        load: MemberLoad { unfit, ..MemberLoad::default() },
    });
    c.wait(5).expect(&["send 4 to 0"]);
    assert!(c.core.has_executor(ExecutorId(4)));
}

#[test]
fn a_run_that_fits_no_node_is_known_before_it_is_committed() {
    let mut c = Cluster::with(|config| config.resources = [("vcs".to_string(), 1)].into());
    let open = |c: &mut Cluster, task: Task| c.open(&[task.array()]);
    let why = |c: &Cluster, run, are_all_here| c.core.why_never_fits(c.now, run, are_all_here);
    let (big, fits) = (open(&mut c, task("big").cpus(4)), open(&mut c, task("fits").cpus(2)));
    let licensed = open(&mut c, task("licensed").needs("vcs", 2));
    assert_eq!(why(&c, big, true), None, "nodes may still come");
    c.wait(20).node(1, 2);
    assert_eq!(why(&c, big, true), None, "a node has just come, so that others may be on their way");
    c.wait(16);
    let said = "task `big` fits no node: the task asks for 4 cpus, the largest executor has 2 slots";
    assert_eq!(why(&c, big, true).as_deref(), Some(said));
    let of_cluster = why(&c, licensed, true).unwrap();
    assert!(of_cluster.contains("the whole cluster has 1"), "{of_cluster}");
    assert_eq!(why(&c, fits, true), None);
    // Somebody brings nodes, and says how large they are.
    let node = |slots| Some(Box::new(Size::of_node(slots, u64::MAX, &Equipment::default())));
    c.feed(Event::NodesExpected { node: node(4) });
    assert_eq!(why(&c, big, true), None);
    c.feed(Event::NodesExpected { node: node(3) });
    assert!(why(&c, big, true).is_some());
    c.node(2, 1);
    assert!(why(&c, big, true).is_some());
    assert_eq!(why(&c, big, false), None, "a node is on its way, and may be larger than expected");
    c.take();
}
