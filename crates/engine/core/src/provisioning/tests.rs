use super::ProvisionAction::{Release, Request};
use super::*;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

fn config(policy: &str, nodes_max: u32) -> ProvisionConfig {
    ProvisionConfig {
        policy: policy.into(),
        nodes_max,
        slots_per_node: 2,
        start_within_ns: 10 * S,
        headroom: 0.25,
        warm_share: 0.05,
        ..ProvisionConfig::default()
    }
}

fn idle(id: u32, since_s: u64) -> NodeView {
    NodeView {
        executor: ExecutorId(id),
        slots: 2,
        n_assigned: 0,
        idle_since: Some(Timestamp(since_s * S)),
        cached_bytes: 0,
        ..NodeView::default()
    }
}

fn busy(id: u32) -> NodeView {
    NodeView { n_assigned: 2, busy_slots: 2, idle_since: None, ..idle(id, 0) }
}

/// All tasks take `task_ns`, if that is known, and one of a node's `slots`.
fn all_take(slots: u32, task_ns: Option<u64>, n_ready: u64, n_running: u64) -> Predicted {
    let mut predicted = Predicted::default();
    predicted.add_queued(n_ready, task_ns, slots.into());
    predicted.add_running(n_running, task_ns, slots.into());
    predicted
}

/// What is decided at second `now_s` with so many ready tasks of `task_ns`.
fn look(
    p: &mut Provisioner,
    now_s: u64,
    n_ready: u64,
    task_ns: Option<u64>,
    n_pending: u32,
    nodes: &[NodeView],
) -> Vec<ProvisionAction> {
    let n_running = nodes.iter().map(|n| u64::from(n.n_assigned)).sum();
    let mut out = vec![];
    let predicted = all_take(p.config().slots_per_node, task_ns, n_ready, n_running);
    let demand = Demand { n_ready, n_running, predicted: &predicted, n_pending, nodes };
    p.decide(Timestamp(now_s * S), &demand, &mut out);
    out
}

/// Sizes of the requests of a policy that faces a long queue, one look a second, nothing joining.
fn series(policy: &str, nodes_max: u32) -> Vec<u32> {
    let mut p = Provisioner::new(config(policy, nodes_max)).unwrap();
    let (mut sizes, mut n_pending) = (vec![], 0);
    for second in 0..100 {
        for action in look(&mut p, second, 1000, None, n_pending, &[]) {
            let Request { n_nodes } = action else { panic!("{action:?}") };
            sizes.push(n_nodes);
            n_pending += n_nodes;
        }
    }
    sizes
}

#[test]
fn requests_grow_as_their_names_say_and_stop_at_the_maximum() {
    assert_eq!(series("static", 10), [10]);
    assert_eq!(series("one-at-a-time", 10), [1; 10]);
    assert_eq!(series("additive", 10), [1, 2, 3, 4]);
    assert_eq!(series("exponential", 10), [1, 2, 4, 3]);
    assert_eq!(series("all-at-once", 10), [10]);
    assert_eq!(series("demand", 10), [1, 1, 2, 4, 2], "no task has ended: at most as many as there are");
}

#[test]
fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
    let error = Provisioner::new(config("nope", 1)).unwrap_err();
    assert_eq!(
        error,
        "there is no provisioning policy `nope`; known are static, one-at-a-time, additive, exponential, \
         all-at-once, demand"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: fn(&mut ProvisionConfig)| {
        let mut c = config("demand", 4);
        change(&mut c);
        Provisioner::new(c).unwrap_err()
    };
    assert_eq!(refused(|c| c.nodes_min = 5), "at least 5 nodes and at most 4 cannot both be");
    assert_eq!(refused(|c| c.nodes_max = 0), "`nodes_max` must be at least 1");
    assert!(refused(|c| c.slots_per_node = 0).contains("at least 1"));
    assert!(refused(|c| c.warm_share = f64::NAN).contains("`warm_share`"));
    assert!(refused(|c| c.headroom = -1.0).contains("`headroom`"));
}

#[test]
fn requests_keep_their_distance_and_a_series_begins_anew() {
    let mut p = Provisioner::new(config("exponential", 64)).unwrap();
    assert_eq!(look(&mut p, 0, 100, None, 0, &[]), [Request { n_nodes: 1 }]);
    assert_eq!(look(&mut p, 0, 100, None, 1, &[]), [], "a node joined within the same second");
    assert_eq!(look(&mut p, 1, 100, None, 1, &[]), [Request { n_nodes: 2 }]);
    assert_eq!(look(&mut p, 2, 0, None, 3, &[]), []);
    assert_eq!(look(&mut p, 3, 100, None, 3, &[]), [Request { n_nodes: 1 }]);
}

#[test]
fn the_floor_is_asked_for_without_any_work_and_is_kept() {
    for policy in NAMES {
        let c = ProvisionConfig { nodes_min: 3, ..config(policy, 3) };
        let mut p = Provisioner::new(c).unwrap();
        assert_eq!(look(&mut p, 0, 0, None, 0, &[]), [Request { n_nodes: 3 }], "{policy}");
        let nodes = [idle(1, 0), idle(2, 0), idle(3, 0)];
        assert_eq!(look(&mut p, 1000, 0, None, 0, &nodes), [], "{policy}");
        assert_eq!(
            look(&mut p, 1001, 0, None, 0, &nodes[..2]),
            [Request { n_nodes: 1 }],
            "{policy}: one lost"
        );
    }
}

#[test]
fn idle_nodes_go_the_longest_idle_first_and_only_once() {
    let c = ProvisionConfig { nodes_min: 1, ..config("exponential", 8) };
    let mut p = Provisioner::new(c).unwrap();
    let nodes = [idle(1, 20), idle(2, 10), busy(3), idle(4, 10), idle(5, 31)];
    assert_eq!(look(&mut p, 39, 0, None, 0, &nodes), []);
    assert_eq!(
        look(&mut p, 60, 0, None, 0, &nodes),
        [2, 4, 1].map(|id| Release { executor: ExecutorId(id) })
    );
    assert_eq!(look(&mut p, 60, 0, None, 0, &nodes), [], "they are on their way out");
    let nodes = [idle(3, 60), idle(5, 31)];
    assert_eq!(look(&mut p, 100, 0, None, 0, &nodes), [Release { executor: ExecutorId(5) }], "one stays");
}

#[test]
fn without_an_idle_time_nothing_is_released() {
    for policy in NAMES {
        let c = ProvisionConfig { release_idle_ns: None, ..config(policy, 8) };
        let mut p = Provisioner::new(c).unwrap();
        assert!(!look(&mut p, 0, 0, None, 0, &[idle(1, 0)]).contains(&Release { executor: ExecutorId(1) }));
        assert!(
            !look(&mut p, 9999, 0, None, 7, &[idle(1, 0)]).contains(&Release { executor: ExecutorId(1) })
        );
    }
}

#[test]
fn nodes_that_leave_count_against_the_maximum_and_not_as_help() {
    let c = ProvisionConfig { request_every_ns: 0, ..config("all-at-once", 4) };
    let mut p = Provisioner::new(c).unwrap();
    let nodes = [idle(1, 0), busy(2), busy(3)];
    assert_eq!(look(&mut p, 40, 0, None, 0, &nodes), [Release { executor: ExecutorId(1) }]);
    assert_eq!(look(&mut p, 41, 100, None, 0, &nodes), [Request { n_nodes: 1 }]);
    assert_eq!(look(&mut p, 42, 100, None, 1, &nodes), [], "4 are there or coming");
    assert_eq!(look(&mut p, 43, 100, None, 1, &nodes[1..]), [Request { n_nodes: 1 }]);
}

#[test]
fn nothing_is_asked_for_beside_a_node_that_the_queue_does_not_use() {
    for policy in ["one-at-a-time", "all-at-once", "demand"] {
        let mut p = Provisioner::new(config(policy, 8)).unwrap();
        assert_eq!(look(&mut p, 10, 100, Some(600 * S), 0, &[busy(1), idle(2, 5)]), [], "{policy}");
        assert!(!look(&mut p, 10, 100, Some(600 * S), 0, &[busy(1), idle(2, 6)]).is_empty(), "{policy}");
    }
}

#[test]
fn after_failed_requests_the_next_one_waits_longer() {
    let mut p = Provisioner::new(config("all-at-once", 4)).unwrap();
    assert_eq!(look(&mut p, 0, 100, None, 0, &[]), [Request { n_nodes: 4 }]);
    p.request_ended(Timestamp(10 * S), 4, false);
    assert_eq!(look(&mut p, 10, 100, None, 0, &[]), []);
    assert_eq!(look(&mut p, 11, 100, None, 0, &[]), [Request { n_nodes: 4 }]);
    p.request_ended(Timestamp(20 * S), 4, false);
    assert_eq!(look(&mut p, 21, 100, None, 0, &[]), []);
    assert_eq!(look(&mut p, 22, 100, None, 0, &[]), [Request { n_nodes: 4 }]);
    p.request_ended(Timestamp(23 * S), 4, true);
    assert_eq!(look(&mut p, 23, 100, None, 0, &[]), [Request { n_nodes: 4 }]);
}

#[test]
fn demand_counts_work_and_not_tasks() {
    let ask = |n_ready, task_ns| {
        let mut p = Provisioner::new(config("demand", 1000)).unwrap();
        look(&mut p, 0, n_ready, Some(task_ns), 0, &[busy(1)])
    };
    // 1,000 tasks of 10 ms are 5 s for two slots: within the 10 s.
    assert_eq!(ask(1000, S / 100), []);
    // 8 tasks of 10 min: none of them would start; four nodes of two slots do.
    assert_eq!(ask(8, 600 * S), [Request { n_nodes: 4 }]);
    // 1,000 s of work in 10 s are 100 slots.
    assert_eq!(ask(100_000, S / 100), [Request { n_nodes: 49 }]);
}

#[test]
fn demand_lets_go_what_is_surplus_although_never_idle_for_long() {
    // Four nodes, of which one is busy at each look, another one each time.
    let mut p = Provisioner::new(config("demand", 8)).unwrap();
    let at = |now_s: u64| -> Vec<NodeView> {
        (0..4).map(|id| if u64::from(id) == now_s % 4 { busy(id) } else { idle(id, now_s - 1) }).collect()
    };
    for now_s in 1..31 {
        assert_eq!(look(&mut p, now_s, 0, Some(S), 0, &at(now_s)), [], "second {now_s}");
    }
    let gone = look(&mut p, 31, 0, Some(S), 0, &at(31));
    // Two busy slots and a quarter of headroom are two nodes.
    assert_eq!(gone, [0, 1].map(|id| Release { executor: ExecutorId(id) }));
}

#[test]
fn demand_releases_the_cache_that_is_worth_least() {
    let mut p = Provisioner::new(config("demand", 8)).unwrap();
    let with = |id, sole_bytes, cached_bytes| NodeView { sole_bytes, cached_bytes, ..idle(id, 0) };
    let nodes = [with(1, 5, 9), with(2, 0, 9), with(3, 0, 7), with(4, 6, 6)];
    assert_eq!(look(&mut p, 0, 0, None, 0, &nodes), []);
    let gone = look(&mut p, 40, 0, None, 0, &nodes);
    assert_eq!(gone, [3, 2, 1, 4].map(|id| Release { executor: ExecutorId(id) }));
}

#[test]
fn demand_keeps_some_warm_for_a_while() {
    let c = ProvisionConfig { warm_share: 0.5, ..config("demand", 8) };
    let mut p = Provisioner::new(c).unwrap();
    let nodes: Vec<NodeView> = (0..4).map(busy).collect();
    assert_eq!(look(&mut p, 0, 0, Some(S), 0, &nodes), []);
    let nodes: Vec<NodeView> = (0..4).map(|id| idle(id, 1)).collect();
    let gone = look(&mut p, 40, 0, Some(S), 0, &nodes);
    assert_eq!(gone, [0, 1].map(|id| Release { executor: ExecutorId(id) }));
    assert_eq!(look(&mut p, 500, 0, Some(S), 0, &nodes[2..]), []);
    let gone = look(&mut p, 600, 0, Some(S), 0, &nodes[2..]);
    assert_eq!(gone, [2, 3].map(|id| Release { executor: ExecutorId(id) }));
}

/// A node of the small world below.
#[derive(Clone, Debug)]
struct Node {
    id: u32,
    n_assigned: u32,
    idle_since: u64,
    leaving: bool,
}

/// The actions that the records of decisions speak of.
fn told(decisions: &[Decision]) -> Vec<ProvisionAction> {
    let actions_of = |decision: &Decision| match &decision.what {
        Decided::Requested { n_nodes } => vec![Request { n_nodes: *n_nodes }],
        Decided::Released { executors } => executors.iter().map(|&executor| Release { executor }).collect(),
        Decided::Withdrawn { .. } => panic!("blocks do that"),
    };
    decisions.iter().flat_map(actions_of).collect()
}

proptest! {
    /// A world of nodes that come late or never, get lost, work and leave, under a queue that jumps: the promises hold at
    /// each look, and once the queue stays empty everything comes to rest.
    #[test]
    fn the_promises_hold(
        policy in prop::sample::select(NAMES.to_vec()),
        nodes_min in 0u32..4,
        more in 0u32..12,
        slots in 1u32..4,
        release_s in prop::option::of(0u64..40),
        steps in prop::collection::vec((0u64..60, 0u8..10, any::<u32>(), 0u64..4), 1..120),
    ) {
        let nodes_max = (nodes_min + more).max(1);
        let c = ProvisionConfig {
            nodes_min, nodes_max, slots_per_node: slots, release_idle_ns: release_s.map(|s| s * S), ..config(policy, 1)
        };
        let floor = if policy == "static" { nodes_max } else { nodes_min };
        let mut p = Provisioner::new(c).unwrap();
        let (mut nodes, mut pending, mut next_id): (Vec<Node>, Vec<u32>, u32) = (vec![], vec![], 0);
        let (mut now, mut n_requests_at_rest) = (0u64, 0);
        // At the end: no work, and nothing goes wrong any more.
        let rest = (0..400).map(|_| (0u64, 9u8, 0u32, 1u64));
        let n_steps = steps.len();
        for (i, (n_ready, event, pick, pass_s)) in steps.into_iter().chain(rest).enumerate() {
            let at_rest = i >= n_steps;
            now += pass_s * S;
            match event {
                0 if !pending.is_empty() => {
                    let n = pending.swap_remove(pick as usize % pending.len());
                    p.request_ended(Timestamp(now), n, false);
                }
                1..=4 if !pending.is_empty() => {
                    let n = pending.swap_remove(pick as usize % pending.len());
                    for _ in 0..n {
                        nodes.push(Node { id: next_id, n_assigned: 0, idle_since: now, leaving: false });
                        next_id += 1;
                    }
                    p.request_ended(Timestamp(now), n, true);
                }
                5 if !nodes.is_empty() => { nodes.swap_remove(pick as usize % nodes.len()); }
                6 | 7 if !nodes.is_empty() => {
                    let at = pick as usize % nodes.len();
                    // A task may have been on its way to a node when it was told to leave.
                    nodes[at].n_assigned = pick % (slots + 2);
                    nodes[at].idle_since = now;
                }
                8 => nodes.retain(|n| !n.leaving || n.n_assigned > 0),
                9 if at_rest => {
                    for n in pending.drain(..) {
                        for _ in 0..n {
                            nodes.push(Node { id: next_id, n_assigned: 0, idle_since: now, leaving: false });
                            next_id += 1;
                        }
                        p.request_ended(Timestamp(now), n, true);
                    }
                    for n in nodes.iter_mut().filter(|n| n.n_assigned > 0) {
                        (n.n_assigned, n.idle_since) = (0, now);
                    }
                    nodes.retain(|n| !n.leaving);
                }
                _ => {}
            }
            let views: Vec<NodeView> = nodes.iter().map(|n| NodeView {
                executor: ExecutorId(n.id),
                slots,
                n_assigned: n.n_assigned,
                busy_slots: n.n_assigned.min(slots),
                idle_since: (n.n_assigned == 0).then_some(Timestamp(n.idle_since)),
                cached_bytes: u64::from(n.id % 3),
                sole_bytes: u64::from(n.id % 2),
                ..NodeView::default()
            }).collect();
            let n_pending: u32 = pending.iter().sum();
            let n_running = nodes.iter().map(|n| u64::from(n.n_assigned)).sum();
            let task_ns_mean = (pick % 3 > 0).then_some(u64::from(pick) * 100);
            let mut predicted = all_take(slots, task_ns_mean, n_ready, n_running);
            // Some work arrives, sometimes counted anew; some of it takes several slots or fits no node.
            predicted.add_arrived(u64::from(pick % 1000), u64::from(pick), u64::from(pick % 3));
            predicted.add_queued(u64::from(pick % 5), task_ns_mean, u64::from(pick % 2));
            let demand = Demand { n_ready, n_running, predicted: &predicted, n_pending, nodes: &views };
            let mut out = vec![];
            p.decide(Timestamp(now), &demand, &mut out);
            let decisions = p.take_decisions();
            prop_assert_eq!(told(&decisions), out.clone(), "what is recorded is what is done");
            prop_assert!(decisions.iter().all(Decision::follows_from_its_numbers), "{decisions:?}");
            let is_request = |a: &&ProvisionAction| matches!(a, Request { .. });
            prop_assert!(out.iter().filter(is_request).count() <= 1);
            for action in out {
                match action {
                    Request { n_nodes } => {
                        prop_assert!(n_nodes >= 1);
                        pending.push(n_nodes);
                        let n_all = nodes.len() as u32 + pending.iter().sum::<u32>();
                        prop_assert!(n_all <= nodes_max, "{n_all} nodes, at most {nodes_max}");
                        n_requests_at_rest += u32::from(i >= n_steps + 100);
                    }
                    Release { executor } => {
                        prop_assert!(release_s.is_some());
                        let node = nodes.iter_mut().find(|n| n.id == executor.0).expect("a node that is there");
                        prop_assert!(!node.leaving, "released twice");
                        prop_assert_eq!(node.n_assigned, 0);
                        node.leaving = true;
                        let n_stay = nodes.iter().filter(|n| !n.leaving).count() as u32;
                        prop_assert!(n_stay >= floor, "{n_stay} nodes stay, at least {floor}");
                    }
                }
            }
        }
        prop_assert_eq!(n_requests_at_rest, 0, "requests end");
        prop_assert!(pending.is_empty());
        let n_stay = nodes.iter().filter(|n| !n.leaving).count() as u32;
        prop_assert!(n_stay >= floor);
    }
}

#[test]
fn a_node_that_is_about_to_end_is_replaced_before_it_has_left() {
    let mut p = Provisioner::new(config("all-at-once", 3)).unwrap();
    let leaves = |id| NodeView { leaves: true, ..busy(id) };
    assert_eq!(look(&mut p, 1, 9, None, 0, &[busy(1), busy(2), busy(3)]), [], "there are no more than three");
    assert_eq!(look(&mut p, 2, 9, None, 0, &[busy(1), leaves(2)]), [Request { n_nodes: 1 }]);
    // It counts until it has left.
    assert_eq!(look(&mut p, 4, 9, None, 1, &[busy(1), leaves(2)]), []);
    assert_eq!(look(&mut p, 6, 9, None, 1, &[busy(1)]), [Request { n_nodes: 1 }]);
    let mut p = Provisioner::new(ProvisionConfig { nodes_min: 2, ..config("demand", 3) }).unwrap();
    assert_eq!(look(&mut p, 1, 0, None, 0, &[idle(1, 0), leaves(2)]), [Request { n_nodes: 1 }]);
}

#[test]
fn an_idle_node_without_time_for_what_waits_goes_at_once_and_another_one_comes() {
    let mut p = Provisioner::new(config("all-at-once", 1)).unwrap();
    let spent = NodeView { has_no_time: true, ..idle(7, 0) };
    let released = Release { executor: ExecutorId(7) };
    // It has been idle for long, but proves nothing.
    assert_eq!(look(&mut p, 60, 9, None, 0, &[spent]), [released]);
    assert_eq!(look(&mut p, 61, 9, None, 0, &[spent]), [], "it is still there, and no more than one may be");
    assert_eq!(look(&mut p, 62, 9, None, 0, &[]), [Request { n_nodes: 1 }]);
}

/// Tasks of 1 s arrive at `rate` per second of a busy node of two slots, and nodes take `start_up_s` to come; gives the numbers of
/// the requests by second.
fn requests_at_a_rate(start_up_s: u64, seconds: u64, rate: impl Fn(u64) -> u64) -> Vec<(u64, u32)> {
    let c = ProvisionConfig { start_within_ns: 2 * S, slots_per_node: 1, ..config("demand", 100) };
    let mut p = Provisioner::new(c).unwrap();
    let (mut n_arrived, mut queue, mut requests) = (0, 0u64, vec![]);
    let (mut n_nodes, mut coming): (u64, Vec<(u64, u32)>) = (1, vec![]);
    for now_s in 0..seconds {
        for (_, n) in coming.extract_if(.., |(at, _)| *at <= now_s) {
            n_nodes += u64::from(n);
            p.request_ended(Timestamp(now_s * S), n, true);
        }
        n_arrived += rate(now_s);
        queue += rate(now_s);
        let n_running = queue.min(n_nodes);
        queue -= n_running;
        let mut predicted = all_take(1, Some(S), queue, n_running);
        predicted.add_arrived(n_arrived, n_arrived * 1_000_000, 1);
        let node = |id: u64| match id < n_running {
            true => NodeView { slots: 1, n_assigned: 1, busy_slots: 1, ..busy(id as u32) },
            false => NodeView { slots: 1, ..idle(id as u32, now_s) },
        };
        let nodes: Vec<NodeView> = (0..n_nodes).map(node).collect();
        let n_pending = coming.iter().map(|(_, n)| n).sum();
        let demand = Demand { n_ready: queue, n_running, predicted: &predicted, n_pending, nodes: &nodes };
        let mut out = vec![];
        p.decide(Timestamp(now_s * S), &demand, &mut out);
        for action in out {
            if let Request { n_nodes } = action {
                requests.push((now_s, n_nodes));
                coming.push((now_s + start_up_s, n_nodes));
            }
        }
    }
    requests
}

#[test]
fn demand_asks_ahead_of_a_rising_rate_by_the_time_that_nodes_take() {
    // One more task a second each half minute, from one a second, which the one node does.
    let requests = requests_at_a_rate(20, 300, |second| 1 + second / 30);
    let n_by = |until: u64| requests.iter().filter(|(at, _)| *at < until).map(|(_, n)| n).sum::<u32>();
    // Ten tasks a second arrive at 270 s; nodes for them are asked for before that.
    assert!((9..=14).contains(&n_by(270)), "{requests:?}");
    // A rate that stays is served, and nothing more is asked for: six nodes for the rate, and as many again and a few for
    // what has queued until they are there.
    let requests = requests_at_a_rate(20, 600, |second| if second < 60 { 1 } else { 6 });
    assert!(requests.iter().all(|(at, _)| *at < 200), "{requests:?}");
    let n_all = requests.iter().map(|(_, n)| n).sum::<u32>();
    assert!((6..=17).contains(&n_all), "{requests:?}");
}

#[test]
fn demand_takes_a_burst_for_what_it_is() {
    // Sixty tasks at once, every two minutes, which nodes do that come within 5 s.
    let requests = requests_at_a_rate(5, 120, |second| if second == 30 { 60 } else { 0 });
    let n_all: u32 = requests.iter().map(|(_, n)| n).sum();
    assert!((5..=30).contains(&n_all) && requests.iter().all(|(at, _)| *at < 45), "{requests:?}");
}

#[test]
fn the_start_up_time_is_measured_from_request_to_join_and_grows_while_nobody_comes() {
    let mut p = Provisioner::new(config("all-at-once", 8)).unwrap();
    assert_eq!(look(&mut p, 0, 8, None, 0, &[]), [Request { n_nodes: 4 }]);
    assert_eq!(p.start_up_ns(Timestamp(7 * S)), 7 * S, "nobody has come for so long");
    p.request_ended(Timestamp(10 * S), 1, true);
    look(&mut p, 10, 6, None, 3, &[busy(1)]);
    p.request_ended(Timestamp(12 * S), 3, false);
    assert_eq!(p.start_up_ns(Timestamp(100 * S)), 10 * S);
    look(&mut p, 100, 8, None, 0, &[busy(1)]);
    p.request_ended(Timestamp(102 * S), 3, true);
    assert_eq!(p.start_up_ns(Timestamp(102 * S)), 8 * S, "a quarter of the way from 10 to 2");
    // A request that the driver took back is not waited for.
    assert_eq!(look(&mut p, 200, 16, None, 0, &[busy(1)]), [Request { n_nodes: 7 }]);
    look(&mut p, 201, 0, None, 0, &[busy(1)]);
    assert_eq!(p.start_up_ns(Timestamp(300 * S)), 8 * S);
}

#[test]
fn a_decision_says_why_and_by_which_numbers() {
    let mut p = Provisioner::new(ProvisionConfig { nodes_min: 1, ..config("demand", 100) }).unwrap();
    look(&mut p, 0, 0, None, 0, &[]);
    look(&mut p, 1, 8, Some(600 * S), 1, &[]);
    look(&mut p, 2, 0, None, 0, &[NodeView { has_no_time: true, ..idle(1, 0) }, busy(2)]);
    let decisions = p.take_decisions();
    assert!(p.take_decisions().is_empty());
    let [least, work, spent] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!((&least.why, least.seen.n_nodes), (&Why::BelowMinimum, 0));
    let Why::Work { n_lacking: 3, sizing } = &work.why else { panic!("{work:?}") };
    assert_eq!((sizing.n_pending, sizing.start_up_ns, work.seen.queued_ns), (1, S, 8 * 600 * S));
    assert_eq!(work.what, Decided::Requested { n_nodes: 3 });
    assert_eq!((&spent.why, spent.seen.n_nodes, spent.seen.n_leaving), (&Why::NoTimeLeft, 1, 1));
    let mut p = Provisioner::new(config("exponential", 100)).unwrap();
    look(&mut p, 0, 8, None, 0, &[]);
    assert_eq!(p.take_decisions()[0].why, Why::Tasks { n_wanted: 4, tasks_per_slot: 1 });
}

#[test]
fn every_policy_counts_what_tasks_take_of_a_node() {
    // Ten tasks, of which a node of two slots holds one at a time.
    let asked = |policy: &str, n_per_node| {
        let mut p = Provisioner::new(config(policy, 100)).unwrap();
        let (mut n_pending, mut out) = (0, vec![]);
        for second in 0..20 {
            let mut predicted = Predicted::default();
            predicted.add_queued(10, Some(600 * S), n_per_node);
            let demand = Demand { n_ready: 10, n_running: 0, predicted: &predicted, n_pending, nodes: &[] };
            out.clear();
            p.decide(Timestamp(second * S), &demand, &mut out);
            for action in &out {
                let Request { n_nodes } = action else { panic!("{action:?}") };
                n_pending += n_nodes;
            }
        }
        n_pending
    };
    for policy in NAMES.into_iter().filter(|policy| *policy != growth::STATIC) {
        assert_eq!((asked(policy, 2), asked(policy, 1), asked(policy, 8)), (5, 10, 2), "{policy}");
        assert_eq!(asked(policy, 0), 1, "{policy}: one, as it may turn out to be larger");
    }
}
