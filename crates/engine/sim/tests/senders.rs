//! What a copy costs the node that sends it: its disk and link, nothing, or one of a few turns.

use eyas_core::placement::max_compute_util;
use eyas_core::provisioning::{ProvisionConfig, growth};
use eyas_sim::machine::{Costs, Faults, Machine, preset};
use eyas_sim::outcome::Summary;
use eyas_sim::workload::all_pairs::{AllPairsConfig, all_pairs};
use eyas_sim::workload::{ArrivingTasks, Compute, MB, SECOND_NS, Sizes, Workload, template};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::Timestamp;
use eyas_terms::array::{Pattern, Piece, TaskArray};
use std::sync::Arc;

/// Over a link of `tg-anl-64`, a file takes so long alone.
const COPY_S: f64 = 0.8;
const FILE_BYTES: u64 = 100 * MB;
const LATER: Timestamp = Timestamp(10 * SECOND_NS);

fn machine(costs: Costs) -> Machine {
    Machine { nodes: 5, slots_per_node: 1, costs, ..preset("tg-anl-64").unwrap() }
}

fn reading_it(at: Timestamp, n_tasks: u32) -> ArrivingTasks {
    let id = Pattern(vec![Piece::Literal(format!("{}-", at.0)), Piece::Index]);
    let template = template(id, "program", vec![Pattern::literal("file")], vec![]);
    let array = Arc::new(TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None });
    ArrivingTasks { at, array, compute: Compute::Same(100 * SECOND_NS) }
}

/// One task reads a file. Then five do so on five nodes, so that the first node sends it to four others at once.
fn one_holder(costs: Costs) -> Summary {
    let mut machine = machine(costs);
    machine.disk_bytes_per_s = 1e12;
    let mut scheduling = Scheduling::default();
    scheduling.dispatcher.placement = max_compute_util::NAME.into();
    let mut first = reading_it(Timestamp(0), 1);
    first.compute = Compute::Same(SECOND_NS);
    let workload = Workload {
        name: "one holder".into(),
        n_tasks: 6,
        ideal_ns: 0,
        read_bytes: 6 * FILE_BYTES,
        sizes: Sizes::Same(FILE_BYTES),
        submissions: Box::new([first, reading_it(LATER, 5)].into_iter()),
    };
    let summary = simulate(&machine, &scheduling, &Faults::default(), workload, 1, None).unwrap();
    assert_eq!((summary.n_done, summary.moved_peer_bytes), (6, 4 * FILE_BYTES));
    summary
}

#[track_caller]
fn is_near(got: f64, expect: f64) {
    assert!((got - expect).abs() < 0.05, "{got} and not {expect}");
}

#[test]
fn copies_share_their_senders_link_take_turns_or_cost_their_sender_nothing() {
    let shared = one_holder(Costs::default());
    is_near(shared.makespan_s, 110.0 + 4.0 * COPY_S);
    let free = one_holder(Costs { free_senders: true, ..Costs::default() });
    is_near(free.makespan_s, 110.0 + COPY_S);
    // With turns, the last copy comes as late as without, and those before it earlier: after 2 and 4 copies in place of 4.
    let turns = one_holder(Costs { sends_max: Some(2), ..Costs::default() });
    is_near(turns.makespan_s, shared.makespan_s);
    is_near(shared.response_mean_s - turns.response_mean_s, 2.0 * 2.0 * COPY_S / 6.0);
}

#[test]
fn a_turn_of_a_node_that_is_lost_goes_to_the_next_one() {
    let faults = Faults { losses_per_node_hour: 30.0, ..Faults::default() };
    let machine = machine(Costs { sends_max: Some(1), ..Costs::default() });
    let provision = ProvisionConfig {
        policy: growth::ALL_AT_ONCE.into(),
        nodes_max: machine.nodes,
        ..ProvisionConfig::default()
    };
    let scheduling = Scheduling { provision: Some(provision), ..Scheduling::default() };
    for seed in 1..=10 {
        let config = AllPairsConfig { n: 20, item_bytes: 100 * MB, compute_ns: SECOND_NS };
        let workload = all_pairs(config).unwrap();
        let summary = simulate(&machine, &scheduling, &faults, workload, seed, None).unwrap();
        assert_eq!(summary.n_done, 400);
        assert!(summary.n_losses > 0, "seed {seed} loses no node");
    }
}

#[test]
fn a_node_that_may_send_nothing_is_refused() {
    let why = machine(Costs { sends_max: Some(0), ..Costs::default() }).check().unwrap_err();
    assert!(why.contains("`sends_max` is 0"), "{why}");
}
