//! Predictions for fewer nodes, from runs in which home was saturated: the range holds what then happens.
//!
//! Recorded, predicted and "real" runs are all simulated here, so the rates of home and of one client are known. The same
//! with real processes is `eyas-lab bench predict`.

use eyas_core::log::EVENTS_FILE;
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::predict::{Case, Question, calibrate};
use eyas_sim::workload::trace::{Measured, Trace, TraceConfig};
use eyas_sim::workload::{ArrivingTasks, Compute, ProgramIo, Sizes, Workload};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::Timestamp;
use eyas_terms::array::{Part, Pattern, Piece, TaskArray, TaskForm};
use eyas_terms::rng::Rng;
use std::sync::Arc;

const MS: u64 = 1_000_000;
const MB: u64 = 1_000_000;
const HOME_BYTES_PER_S: f64 = 10e6;

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Each task reads a file of its own.
    Own,
    /// Many tasks read each file.
    Shared,
    /// Each task reads a file of its own and writes one; four of these are read by a task of the second stage.
    TwoStages,
}

fn array(n_tasks: u32, inputs: Vec<Pattern>, outputs: Vec<Pattern>, stage: &str) -> Arc<TaskArray> {
    let command = eyas_terms::array::Command::Exec(vec![Pattern::literal(stage)]);
    let id = Pattern(vec![Piece::Literal(format!("{stage}-")), Piece::Index]);
    let named = |prefix: &str, list: Vec<Pattern>| {
        let name = |i: usize| Pattern::literal(format!("{prefix}{i}"));
        list.into_iter().enumerate().map(|(i, location)| (name(i), location)).collect()
    };
    let template =
        TaskForm { inputs: named("i", inputs), outputs: named("o", outputs), ..TaskForm::new(id, command) };
    Arc::new(TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None })
}

fn indexed(prefix: &str) -> Pattern {
    Pattern(vec![Piece::Literal(prefix.into()), Piece::Index])
}

fn workload(shape: Shape) -> Workload {
    let mut rng = Rng::new(5);
    let at = Timestamp(0);
    let (mut submissions, mut sizes) = (vec![], rustc_hash::FxHashMap::default());
    match shape {
        Shape::Own => {
            (0..40).for_each(|i| _ = sizes.insert(format!("in{i}"), MB + rng.below(2 * MB)));
            let array = array(40, vec![indexed("in")], vec![], "own");
            submissions.push(ArrivingTasks { at, array, compute: Compute::Same(100 * MS) });
        }
        Shape::Shared => {
            (0..6).for_each(|i| _ = sizes.insert(format!("in{i}"), 2 * MB + rng.below(4 * MB)));
            let mut column = eyas_terms::array::Column::default();
            (0..48).for_each(|i| assert!(column.push(&format!("in{}", i % 6))));
            let input = Pattern(vec![Piece::Column { column: 0, part: Part::Whole }]);
            let mut array = Arc::into_inner(array(48, vec![input], vec![], "shared")).unwrap();
            array.columns.push(column);
            submissions.push(ArrivingTasks { at, array: Arc::new(array), compute: Compute::Same(200 * MS) });
        }
        Shape::TwoStages => {
            (0..24).for_each(|i| _ = sizes.insert(format!("in{i}"), 2 * MB));
            (0..24).for_each(|i| _ = sizes.insert(format!("mid{i}"), MB));
            let first = array(24, vec![indexed("in")], vec![indexed("mid")], "first");
            submissions.push(ArrivingTasks { at, array: first, compute: Compute::Same(100 * MS) });
            for k in 0..6 {
                let inputs = (4 * k..4 * k + 4).map(|i| Pattern::literal(format!("mid{i}"))).collect();
                let merge = array(1, inputs, vec![], &format!("merge{k}"));
                submissions.push(ArrivingTasks { at, array: merge, compute: Compute::Same(100 * MS) });
            }
        }
    }
    let n_tasks = submissions.iter().map(|s| u64::from(s.array.n_tasks)).sum();
    Workload {
        name: format!("{shape:?}"),
        n_tasks,
        ideal_ns: 0,
        read_bytes: 0,
        sizes: Sizes::Each(sizes),
        submissions: Box::new(submissions.into_iter()),
    }
}

fn machine(nodes: u32, client_bytes_per_s: f64) -> Machine {
    Machine {
        nodes,
        home_bytes_per_s: HOME_BYTES_PER_S,
        home_client_bytes_per_s: client_bytes_per_s,
        ..preset("this-machine").unwrap()
    }
}

fn lasts_s(machine: &Machine, shape: Shape) -> f64 {
    let summary =
        simulate(machine, &Scheduling::default(), &Faults::default(), workload(shape), 0, None).unwrap();
    summary.makespan_s
}

/// A simulated run, read back from its event log.
fn recorded(machine: &Machine, shape: Shape) -> Trace {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join(EVENTS_FILE)).unwrap();
    let log = Box::new(std::io::BufWriter::new(file));
    simulate(machine, &Scheduling::default(), &Faults::default(), workload(shape), 0, Some(log)).unwrap();
    Trace::read(dir.path(), &TraceConfig::default()).unwrap()
}

/// The fastest and the slowest world, on each of these numbers of nodes.
fn predicted(trace: &Trace, nodes: &[u32]) -> Vec<(f64, f64)> {
    let found = calibrate(&trace.measured).unwrap();
    let rate = Some(found.machine.disk_bytes_per_s);
    let io = ProgramIo { read_bytes_per_s: rate, write_bytes_per_s: rate };
    let ends = found.ends.as_deref().map_or(vec![], |ends| ends.to_vec());
    let question = Question {
        machine: &found.machine,
        ends: &ends,
        scheduling: &Scheduling::default(),
        faults: &Faults::default(),
        workload: &|_| trace.workload(&io),
        n_worlds: 5,
        seed: 0,
    };
    let case = |nodes| Case {
        nodes,
        cache_bytes: found.machine.cache_bytes_per_node,
        placement: placement(&trace.measured),
    };
    nodes.iter().map(|n| question.answer(&case(*n)).unwrap().makespan_s).collect()
}

fn placement(measured: &Measured) -> String {
    measured.config.placement.clone()
}

#[test]
fn the_range_for_fewer_nodes_holds_what_happens_in_nine_of_ten() {
    let (mut n_held, mut widths, mut missed) = (0, vec![], vec![]);
    for shape in [Shape::Own, Shape::Shared, Shape::TwoStages] {
        for part in [8.0, 4.0, 2.0, 1.0] {
            let client = HOME_BYTES_PER_S / part;
            for n_recorded in [8, 4] {
                let trace = recorded(&machine(n_recorded, client), shape);
                let fewer: Vec<u32> = [4, 2, 1].into_iter().filter(|n| *n < n_recorded).collect();
                for (nodes, (least, most)) in fewer.iter().zip(predicted(&trace, &fewer)) {
                    let truth = lasts_s(&machine(*nodes, client), shape);
                    widths.push(most / least);
                    match least <= truth && truth <= most {
                        true => n_held += 1,
                        false => missed.push(format!(
                            "{shape:?}, client 1/{part} of home, {n_recorded} -> {nodes}: {truth:.2} s is not in {least:.2} to {most:.2}"
                        )),
                    }
                }
            }
        }
    }
    widths.sort_unstable_by(f64::total_cmp);
    let said = format!(
        "{n_held} of {}; median width {:.2}, widest {:.2}\n{}",
        widths.len(),
        widths[widths.len() / 2],
        widths.last().unwrap(),
        missed.join("\n")
    );
    println!("{said}");
    assert!(n_held * 10 >= widths.len() * 9, "{said}");
    // A range that says anything would hold everything: where home's rate bounds all, factors of ten are no answer.
    assert!(widths[widths.len() / 2] < 3.0, "{said}");
}
